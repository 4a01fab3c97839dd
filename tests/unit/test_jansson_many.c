/* label: full */
/* The comparison with jansson, with a million documents. */
#define JANSSON_TIMES 12
#include "test_jansson.c"
