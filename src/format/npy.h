/* format: the header of a .npy array, which stands at the start of a file or of a member of an .npz. */
#ifndef HEFT_FORMAT_NPY_H
#define HEFT_FORMAT_NPY_H

#include "format/format.h"

/* The longest header text that is read (NumPy itself stops at 10,000). */
#define HEFT__NPY_HEADER_MAX (UINT64_C(1) << 20)
/* Bytes that say how long the header is: magic, version, length. */
#define HEFT__NPY_PREFIX 12

/* What a header says. */
typedef struct heft__npy {
    uint64_t header_nbytes; /* from the magic to the data */
    uint64_t nbytes;        /* of the data */
    heft_dtype dtype;       /* HEFT_DTYPE_NONE: a type of NumPy that heft lacks, listed as bytes */
    uint8_t flags;          /* HEFT__ENTRY_FORTRAN, HEFT__ENTRY_BIG */
    uint32_t rank;
    uint64_t shape[HEFT_MAX_RANK];
} heft__npy;

/* From the first min(HEFT__NPY_PREFIX, all) bytes of an array of `size` bytes: how long the header is, prefix included.
 * Offsets in errors count from the start of the array, and no error names a file. */
heft_status heft__npy_length(const uint8_t *head, size_t nhead, uint64_t size, const heft__scan_options *options,
                             uint64_t *header_nbytes, heft_error *err);

/* Reads the whole header. `size`: of the array with its header, which must hold the data; *extra: what is left after
 * it. */
heft_status heft__npy_parse(const uint8_t *header, uint64_t header_nbytes, uint64_t size,
                            const heft__scan_options *options, heft__npy *out, uint64_t *extra, heft_error *err);

/* The bytes of a header as NumPy writes it, at most HEFT__NPY_EMIT_MAX. `fortran`: the array's shape is `shape` the other way
 * round. UNSUPPORTED for dtypes that NumPy lacks, but for
 * those of 8 and 16 bits if `foreign` says as what they are written. */
#define HEFT__NPY_EMIT_MAX 4096
heft_status heft__npy_header(heft_dtype dtype, uint32_t rank, const uint64_t *shape, bool fortran, heft_foreign foreign,
                             uint8_t *out, size_t *nbytes, heft_error *err);

#endif
