/* Inputs that end right before a page that may not be touched: a parser that reads one byte too far dies at once. */
#ifndef HEFT_TESTS_HELPER_GUARD_H
#define HEFT_TESTS_HELPER_GUARD_H

#include <stddef.h>

/* Room for inputs of up to `capacity` bytes. Ends the program if the system has no memory. */
typedef struct guard {
    char *base;   /* of the mapping */
    size_t mapped; /* with the guard page */
    char *end;    /* the first byte that may not be touched */
} guard;

void guard_init(guard *g, size_t capacity);
void guard_free(guard *g);

/* A copy of data[0..len) whose end is the guard page; valid until the next call. len 0 gives the guard page itself. */
char *guard_copy(guard *g, const void *data, size_t len);

#endif
