/* base: options structs of callers. */
#ifndef HEFT_BASE_OPTIONS_H
#define HEFT_BASE_OPTIONS_H

#include "heft/core.h"

/* Copies an options struct of the caller (`given` NULL: all zero) into `out` of `known` bytes, minding its struct_size: a
 * shorter one is an older caller's, a longer one must have a zero tail. INVALID_ARGUMENT otherwise. */
heft_status heft__options_copy(void *out, size_t known, const void *given, const char *what, heft_error *err);

#endif
