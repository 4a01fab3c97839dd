/* cli: SHA-256 of files, and the file in which digests of files are kept that nobody has written since (--cache). */
#ifndef HEFT_CLI_DIGEST_CACHE_H
#define HEFT_CLI_DIGEST_CACHE_H

#include "loader.h"

typedef struct cli_digest_cache cli_digest_cache;

typedef struct cli_sum {
    char text[65]; /* 64 digits and a NUL */
    bool cached;   /* from the cache: the file was not read */
} cli_sum;

/* Reads the file of --cache: *out is NULL without that option. CLI_OK, or the exit code of what was said. */
int cli_digest_cache_open(const char *command, const cli_args *args, cli_digest_cache **out);
/* Writes it if there is anything new, says what could not be kept, and frees it. `code`, or under --strict the code of a failure
 * to write. NULL does nothing. */
int cli_digest_cache_close(const cli_args *args, cli_digest_cache *cache, int code);

/* SHA-256 of a file of an archive, with a progress bar; `anew`: of its bytes, whatever the cache says. `cache` may be NULL. */
heft_status cli_sha256(const cli_args *args, const heft_archive *archive, uint32_t file, cli_digest_cache *cache, bool anew,
                       cli_sum *out, heft_error *err);

#endif
