/* cli: the bound of a bench, and what puts the machine into the same state before each row. */
#ifndef HEFT_CLI_BOUND_READ_H
#define HEFT_CLI_BOUND_READ_H

#include "cli.h"

/* Reads files whole into fresh memory and gives it back. */
heft_status cli_bound_read(const char *const *paths, size_t npaths, uint32_t workers, bool direct, heft_error *err);
/* Brings files into the page cache, as one sequential reader does. */
heft_status cli_bound_fill(const char *const *paths, size_t npaths, heft_error *err);
/* Touches and frees memory: the next who takes as much finds it at hand, whoever was here before. */
void cli_bound_prime(uint64_t nbytes);

#endif
