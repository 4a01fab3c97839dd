/* cli: what heft verify knows of tensors or files. */
#ifndef HEFT_CLI_VERIFY_H
#define HEFT_CLI_VERIFY_H

#include "digest_cache.h"

typedef struct verify_state {
    const cli_args *args;
    const char *path;
    heft_archive *archive;
    bool files;           /* rows are files, by a manifest; else tensors */
    heft_buffer picked;
    const uint64_t *ids;  /* tensors: of each row */
    uint64_t n;           /* rows */
    heft_verified *rows;
    cli_digest_cache *cache;    /* of files, or NULL */
    bool *cached;               /* of files: not read, the digest is from the cache */
    heft_verified_file *wholes; /* of files: their size, and all their data */
    uint64_t counts[3];         /* rows by verdict */
    uint64_t nresized, nspoiled, nwhole; /* files of another size; whose data as a whole are wrong, are right */
    uint64_t nmembers;          /* npz files with a bad member that is no array */
    uint64_t nmissing;          /* names that digests have and files have not */
    uint64_t ncached;           /* rows that are */
    uint64_t nother;            /* lines of the manifest of files that are none of the archive's */
} verify_state;

/* Memory for s->n rows, none with a digest. */
void verify_rows(verify_state *s);

/* Compares the files of the archive with the lines of a file as sha256sum writes it (verify_manifest.c). CLI_OK,
 * or the exit code of what was said. */
int cli_verify_manifest(verify_state *s, const char *path);

#endif
