/* format: IDX, one big-endian array, in which MNIST and its like are published. */
#include "format/format.h"

#include "base/checked.h"
#include "base/error.h"

#include <string.h>

typedef unsigned long long idx_number; /* what %llu takes */

/* HEFT_DTYPE_NONE: no type of IDX. */
static heft_dtype idx_dtype(uint8_t code) {
    switch (code) {
    case 0x08: return HEFT_U8;
    case 0x09: return HEFT_I8;
    case 0x0B: return HEFT_I16;
    case 0x0C: return HEFT_I32;
    case 0x0D: return HEFT_F32;
    case 0x0E: return HEFT_F64;
    default: return HEFT_DTYPE_NONE;
    }
}

static uint64_t idx_dim(const uint8_t *at) {
    return (uint64_t)at[0] << 24 | (uint64_t)at[1] << 16 | (uint64_t)at[2] << 8 | at[3];
}

/* Bytes that `rank` dims at `dims` and the elements take; false: 2^63 or more. The product is from the left, as in every format:
 * what opens can be written in another one. */
static bool idx_nbytes(heft_dtype dtype, const uint8_t *dims, uint32_t rank, uint64_t *nbytes) {
    uint64_t n = 1;
    *nbytes = 0;
    for (uint32_t i = 0; i < rank; i++)
        if (!heft__mul_u64(n, idx_dim(dims + 4 * i), &n)) return false;
    if (!heft__mul_u64(n, heft_dtype_bits(dtype) / 8, &n) || n > INT64_MAX) return false;
    *nbytes = n;
    return true;
}

/* The magic number is four bytes of little surprise: the sizes decide how sure it is. A rank of 4 or more is not whole
 * within the head. */
static int idx_probe(const uint8_t *head, size_t nhead, uint64_t size) {
    if (nhead < 4 || head[0] || head[1] || idx_dtype(head[2]) == HEFT_DTYPE_NONE || head[3] == 0) return 0;
    uint32_t rank = head[3];
    uint64_t header = 4 + 4 * (uint64_t)rank, nbytes;
    if (rank > HEFT_MAX_RANK) return 0;
    if (header > nhead) return 60;
    return idx_nbytes(idx_dtype(head[2]), head + 4, rank, &nbytes) && nbytes == size - header ? 95 : 60;
}

static heft_status idx_fail(heft_error *err, uint64_t size, uint64_t needed, const char *what) {
    heft__fail(err, HEFT_CORRUPT, HEFT_FAULT_TRUNCATED,
               "truncated inside the %s: an IDX file of these dims has %llu bytes, this one has %llu, %llu missing",
               what, (idx_number)needed, (idx_number)size, (idx_number)(needed - size));
    heft__error_at(err, size, needed, size);
    return HEFT_CORRUPT;
}

static heft_status idx_run(const uint8_t *head, const heft__scan_options *options, heft__listing *l, heft_error *err) {
    uint8_t dims[4 * HEFT_MAX_RANK];
    uint64_t shape[HEFT_MAX_RANK], size = heft_source_size(l->source), nbytes;
    uint32_t rank = head[3], twice;
    heft_dtype dtype = idx_dtype(head[2]);
    l->data_start = 4 + 4 * (uint64_t)rank;
    if (size < l->data_start) {
        heft__fail(err, HEFT_CORRUPT, HEFT_FAULT_TRUNCATED,
                   "truncated inside the dims: an IDX header of rank %u has %llu bytes, the file has %llu", rank,
                   (idx_number)l->data_start, (idx_number)size);
        heft__error_at(err, size, l->data_start, size);
        return HEFT_CORRUPT;
    }
    heft_status status = heft_source_read(l->source, 4, 4 * (uint64_t)rank, dims, err);
    if (status) return status;
    for (uint32_t i = 0; i < rank; i++) shape[i] = idx_dim(dims + 4 * i);
    if (!idx_nbytes(dtype, dims, rank, &nbytes)) {
        heft__fail(err, HEFT_CORRUPT, HEFT_FAULT_SHAPE_OVERFLOW, "the dims at offset 4 give 2^63 bytes or more");
        heft__error_at(err, 4, HEFT_NONE, HEFT_NONE);
        return HEFT_CORRUPT;
    }
    if (size - l->data_start < nbytes) return idx_fail(err, size, l->data_start + nbytes, "data");
    heft__entry *entry = heft__listing_add(l, "data", 4, dtype, rank, shape);
    if (!entry) return heft__fail_memory(err, HEFT_NONE);
    entry->end = nbytes;
    if (heft_dtype_bits(dtype) > 8) entry->flags |= HEFT__ENTRY_BIG;
    if (!heft__listing_index(l, &twice)) return heft__fail_memory(err, HEFT_NONE);
    uint64_t extra = size - l->data_start - nbytes;
    return extra ? heft__scan_extra(l, options, size - extra, extra, err) : HEFT_OK;
}

static heft_status idx_scan(const uint8_t *head, size_t nhead, const heft__scan_options *options,
                            heft__listing *listing, heft_error *err) {
    heft_error local;
    (void)nhead; /* four bytes: the probe has seen them */
    listing->format = "idx";
    return heft__scan_end(idx_run(head, options, listing, &local), &local, options, listing, err);
}

const heft__format heft__format_idx = {"idx", idx_probe, idx_scan};
