/* cli: what heft verify knows of tensors or files, and where the digests to compare with come from. */
#ifndef HEFT_CLI_VERIFY_H
#define HEFT_CLI_VERIFY_H

#include "loader.h"

typedef struct verify_state {
    const cli_args *args;
    const char *path;
    heft_archive *archive;
    bool files;           /* rows are files, by a manifest; else tensors */
    heft_buffer picked;
    const uint64_t *ids;  /* tensors: of each row */
    uint64_t n;           /* rows */
    heft_verdict *verdicts;
    bool *beside;         /* of a row: the digest was in a sidecar */
    bool *resized;        /* of a file: its sidecar says another size */
    uint64_t counts[3];   /* rows by verdict */
    uint64_t nresized, nother; /* lines of the manifest of files that are none of the archive's */
} verify_state;

/* Memory for s->n rows, none with a digest. */
void verify_rows(verify_state *s);

/* Compares tensors that have no verdict yet with FILE.xxh3.json beside their files (verify_known.c). CLI_OK, or the exit code of
 * what was said. */
int cli_verify_sidecars(verify_state *s, const heft_read_options *options);
/* Compares the files of the archive with the lines of a file as sha256sum writes it; the same. */
int cli_verify_manifest(verify_state *s, const char *path);

#endif
