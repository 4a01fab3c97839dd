/* heft/views.h: which part of a tensor, in what order. A view is a plain value: shape, strides,
 * offset. No byte moves.
 * Rule source: NumPy basic indexing, https://numpy.org/doc/stable/user/basics.indexing.html. */
#ifndef HEFT_VIEWS_H
#define HEFT_VIEWS_H

#include "heft/archives.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A strided view of one tensor. It borrows from its archive, which must outlive it. Copy it
 * freely. Element (i0, i1, ...) is element offset + sum(i[d] * stride[d]) of the tensor,
 * counted in elements from its first. In a view without elements, and for the stride of a dim
 * of 1, these numbers mean nothing.
 * Every function that makes a view of a view allows `out` == `view`. Where it fails it leaves
 * `view` alone and makes any other `out` a view of no archive. */
typedef struct heft_view {
    const heft_archive *archive;
    uint64_t id;       /* of the tensor */
    heft_dtype dtype;
    uint32_t rank;     /* of the view */
    int64_t offset;    /* elements */
    int64_t shape[HEFT_MAX_RANK];
    int64_t stride[HEFT_MAX_RANK]; /* elements, of any sign */
} heft_view;

/* The whole tensor `id`, row-major.
 * Errors: INVALID_ARGUMENT (id), LIMIT (rank above HEFT_MAX_RANK, a dim above 2^63 - 1),
 * UNSUPPORTED (an unknown dtype).
 * Thread rule: any thread. */
HEFT_API heft_status heft_view_of(const heft_archive *archive, uint64_t id, heft_view *out, heft_error *err);

/* The same by name (`name_len` SIZE_MAX: strlen).
 * Errors: NOT_FOUND and as heft_view_of.
 * Thread rule: any thread. */
HEFT_API heft_status heft_view_named(const heft_archive *archive, const char *name, size_t name_len, heft_view *out,
                                     heft_error *err);

/* Elements of a view (the product of its shape), and its packed bytes (bits rounded up to a
 * byte).
 * Thread rule: any thread. */
HEFT_API uint64_t heft_view_nelems(const heft_view *view);
HEFT_API uint64_t heft_view_nbytes(const heft_view *view);

/* True if the elements lie one after another in row-major order (C-contiguous).
 * Thread rule: any thread. */
HEFT_API bool heft_view_is_contiguous(const heft_view *view);

/* ---- indexing ---------------------------------------------------------------------------------------------------- */

typedef uint32_t heft_index_kind;
#define HEFT_INDEX_SLICE UINT32_C(0)    /* start:stop:step */
#define HEFT_INDEX_INTEGER UINT32_C(1)  /* `start`; drops the dim */
#define HEFT_INDEX_ELLIPSIS UINT32_C(2) /* as many full slices as are missing; at most one */
#define HEFT_INDEX_NEWAXIS UINT32_C(3)  /* a dim of 1 */

/* Parts of a slice that were left out. */
#define HEFT_INDEX_NO_START UINT32_C(1)
#define HEFT_INDEX_NO_STOP UINT32_C(2)
#define HEFT_INDEX_NO_STEP UINT32_C(4)

/* One item of an index. Bounds are clamped as Python's slice.indices does; values beyond int64
 * are given clamped. */
typedef struct heft_index {
    heft_index_kind kind;
    uint32_t absent; /* HEFT_INDEX_NO bits, of a slice */
    int64_t start, stop, step;
} heft_index;

/* *out = view[items]: NumPy basic indexing, complete. Fewer items than dims: the rest are full.
 * Errors: INVALID_ARGUMENT (too many items, an integer out of range: the message names axis,
 * index and size; two ellipses, step 0), LIMIT (rank above HEFT_MAX_RANK).
 * Thread rule: any thread. */
HEFT_API heft_status heft_view_index(const heft_view *view, const heft_index *items, size_t nitems, heft_view *out,
                                     heft_error *err);

/* The same from text: what stands between the brackets, "0:4, ::2, -1, ..., None". Blanks are
 * ignored; "" and "()" index nothing; integers of any length are clamped; "newaxis" is None,
 * "Ellipsis" is "..."; "[]" alone is 0:0, as in NumPy. `text_len` may be SIZE_MAX for
 * strlen(text).
 * Errors: INVALID_ARGUMENT (offset = position in the text; other lists, booleans and tuples are
 * refused as advanced indexing, floats and strings by name), and as heft_view_index.
 * Thread rule: any thread. */
HEFT_API heft_status heft_view_index_text(const heft_view *view, const char *text, size_t text_len, heft_view *out,
                                          heft_error *err);

/* ---- shape ------------------------------------------------------------------------------------------------------- */

/* Dims in the order axes[0..rank): each exactly once, negative from the end; NULL reverses all
 * (the transpose).
 * Errors: INVALID_ARGUMENT.
 * Thread rule: any thread. */
HEFT_API heft_status heft_view_permute(const heft_view *view, const int64_t *axes, heft_view *out, heft_error *err);

/* Swaps two dims.
 * Errors: INVALID_ARGUMENT.
 * Thread rule: any thread. */
HEFT_API heft_status heft_view_transpose(const heft_view *view, int64_t axis_a, int64_t axis_b, heft_view *out,
                                         heft_error *err);

/* Another shape of as many elements, where that is a view (no copy), by NumPy's rules; one dim
 * may be -1.
 * Errors: INVALID_ARGUMENT (counts differ, two -1, another negative dim), UNSUPPORTED (it would
 * need a copy), LIMIT (rank).
 * Thread rule: any thread. */
HEFT_API heft_status heft_view_reshape(const heft_view *view, const int64_t *shape, uint32_t rank, heft_view *out,
                                       heft_error *err);

/* Drops a dim of 1 (`axis`, negative from the end). heft_view_squeeze_all drops every one.
 * Errors: INVALID_ARGUMENT (no such axis, not 1).
 * Thread rule: any thread. */
HEFT_API heft_status heft_view_squeeze(const heft_view *view, int64_t axis, heft_view *out, heft_error *err);
HEFT_API void heft_view_squeeze_all(const heft_view *view, heft_view *out);

/* How a dim that the number of parts does not divide is cut. */
typedef uint32_t heft_split;
#define HEFT_SPLIT_EQUAL UINT32_C(0) /* it must divide: else INVALID_ARGUMENT */
#define HEFT_SPLIT_CEIL UINT32_C(1)  /* parts of ceil(n / parts), the last ones shorter or empty */

/* Part `part` of `nparts` along `axis` (the rank's part of a tensor-parallel weight).
 * Errors: INVALID_ARGUMENT.
 * Thread rule: any thread. */
HEFT_API heft_status heft_view_split(const heft_view *view, int64_t axis, uint64_t part, uint64_t nparts,
                                     heft_split mode, heft_view *out, heft_error *err);

/* ---- byte runs --------------------------------------------------------------------------------------------------- */

/* Walks the byte runs of a view in element order and constant memory. Private but for its size. */
typedef struct heft_run_iter {
    uint64_t bit, run_bits, left;
    uint32_t rank, reserved;
    int64_t index[HEFT_MAX_RANK], shape[HEFT_MAX_RANK];
    uint64_t step[HEFT_MAX_RANK];
} heft_run_iter;

/* Starts a walk, which does not refer to `view` later. A view of zero elements has no runs.
 * Errors: UNSUPPORTED (a sub-byte view whose runs do not start and end on bytes).
 * Thread rule: one thread. */
HEFT_API heft_status heft_run_iter_init(heft_run_iter *iter, const heft_view *view, heft_error *err);

/* The next run: *offset in bytes from the start of the tensor, *nbytes of it. Runs that touch
 * are joined. False at the end.
 * Thread rule: one thread. */
HEFT_API bool heft_run_iter_next(heft_run_iter *iter, uint64_t *offset, uint64_t *nbytes);

#ifdef __cplusplus
}
#endif
#endif
