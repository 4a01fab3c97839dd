/* label: full */
/* The float tests with millions of random values. */
#define FLOAT_TEXT_TIMES 12
#include "test_float_text.c"
