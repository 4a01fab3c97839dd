/* ops: verifying tensors that are there: what is known of them, and what is found. */
#ifndef HEFT_OPS_DIGEST_VERIFY_H
#define HEFT_OPS_DIGEST_VERIFY_H

#include "ops/save.h"

/* What files, their metadata and their sidecars say. */
typedef struct heft__known {
    heft_allocator alloc;
    uint64_t ntensors;
    uint32_t nfiles;
    uint8_t (*digests)[16];    /* by id, where `by` is not NOTHING */
    uint8_t *by;               /* heft_verified_by */
    heft_verified_file *files; /* `by`, `expected`, sidecar_nbytes, resized */
} heft__known;

/* Of all tensors of the files with wanted[file] (NULL: of all files). CORRUPT, with the file and what is wrong; OUT_OF_MEMORY, IO
 * of sidecars that are there. Free in any case. */
heft_status heft__known_make(heft__known *known, const heft_archive *archive, const bool *wanted,
                             const heft_allocator *alloc, heft_error *err);
void heft__known_free(heft__known *known);
/* Takes in what the text of the sidecar at `path` says of a file. CORRUPT, OUT_OF_MEMORY. */
heft_status heft__known_sidecar(heft__known *known, const heft_archive *archive, uint32_t file, const char *path,
                                const char *data, size_t nbytes, heft_error *err);

/* Verifies as heft_archive_verify does; `options` complete, ids NULL: all. */
heft_status heft__archive_verify(const heft_archive *archive, const heft_allocator *alloc, const uint64_t *ids, uint64_t nids,
                                 const heft_read_options *options, heft_verified *tensors, heft_verified_file *files,
                                 heft_error *err);

/* The same by digests of ids[0..nids) that somebody has made of their bytes: none is read. */
heft_status heft__archive_compare(const heft_archive *archive, const heft_allocator *alloc, const uint64_t *ids, uint64_t nids,
                                  const uint8_t (*digests)[16], heft_error *err);

/* MISMATCH, naming tensor `id`, what was expected and what was found. */
heft_status heft__verify_fail(const heft_archive *archive, uint64_t id, const heft_verified *result, heft_error *err);

/* The same of a file whose size, or the digest of all its data, is another one. */
heft_status heft__verify_fail_file(const heft_archive *archive, uint32_t number, const heft_verified_file *file, heft_error *err);

/* The CRC-32 of members of npz files: tensors[i] of ids[i] becomes BY_CRC32, where its file is one. Of files whose tensors are all
 * asked for the other members too: `bad_member` of files[] (NULL: nobody asks), and MISMATCH of the first in *other.
 * (digest_zip.c) */
heft_status heft__verify_members(const heft_archive *archive, const heft_allocator *alloc, const uint64_t *ids, uint64_t nids,
                                 const heft_read_options *options, heft_verified *tensors, heft_verified_file *files,
                                 heft_error *other, heft_error *err);

#endif
