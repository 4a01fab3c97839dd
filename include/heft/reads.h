/* heft/reads.h: plans and bytes. A plan says which bytes go where; running it moves them;
 * borrowing moves nothing. */
#ifndef HEFT_READS_H
#define HEFT_READS_H

#include "heft/views.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- borrowing --------------------------------------------------------------------------------------------------- */

/* The bytes of a view without a copy, from a read-only mapping of its file (or the source's own
 * memory). `out->data` points at the view's element 0; reach the others by the view's strides;
 * `out->nbytes` counts from there to the last byte that the view touches (0 elements: 0). For a
 * view with negative strides data points at the element that lies first in the file and nbytes
 * spans all of it. The buffer keeps the mapping alive, also after the archive has gone.
 * `min_alignment` 0: the element size of the dtype (C64: 8); else a power of two that the
 * address must be a multiple of. Never a copy: what cannot be borrowed is UNSUPPORTED with the
 * reason (alignment, a source that does not map, a big-endian host, sub-byte runs that start
 * inside a byte).
 * Errors: UNSUPPORTED, INVALID_ARGUMENT, MISMATCH (the file changed since it was opened), IO,
 * OUT_OF_MEMORY.
 * Not guaranteed: that the file stays as it is. If another program truncates it, touching the
 * memory raises SIGBUS in the caller's code. Remedies: heft_read instead, and replacing files
 * by rename.
 * Thread rule: any thread. */
HEFT_API heft_status heft_borrow(const heft_view *view, uint64_t min_alignment, heft_buffer *out, heft_error *err);

/* HEFT_OK if heft_borrow would be possible by the rules (alignment, source, host), without
 * mapping anything; else as there.
 * Thread rule: any thread. */
HEFT_API heft_status heft_can_borrow(const heft_view *view, uint64_t min_alignment, heft_error *err);

/* ---- reading ----------------------------------------------------------------------------------------------------- */

/* Options of plans and reads. Zero is the default of each; struct_size =
 * sizeof(heft_read_options). Copied. */
typedef struct heft_read_options {
    size_t struct_size;
    uint32_t workers;        /* threads, the caller's included; 0: min(4, usable CPUs), 1 below 8 MiB */
    bool keep_file_order;    /* components come little-endian, as nearly all files have them; default: host byte order */
    bool saturate, allow_inexact; /* of `dtype`: as heft_cast_options */
    bool reserved_flags[1];
    uint64_t gap_nbytes;     /* gaps up to this are read over when runs are merged; 0: 32 KiB; HEFT_NONE: never */
    uint64_t block_nbytes;   /* bytes of one request; 0: 4 MiB */
    /* Progress, serialised and monotone, from worker threads: at 0, at the end, at most every
     * 50 ms. Non-zero cancels: CANCELLED. May be NULL. */
    int (*progress)(void *ctx, uint64_t done_nbytes, uint64_t total_nbytes);
    void *progress_ctx;
    const heft_allocator *allocator; /* for plans and scratch; NULL: the archive's */
    /* Elements are converted to this dtype while they are read, by the rules of heft_cast, in host
     * byte order (so not together with keep_file_order). Sizes and strides of destinations are
     * then those of this dtype. HEFT_DTYPE_NONE: they come as they are stored. Statistics and
     * digests, which take these options too, are of the stored values. A pair that heft_can_cast
     * does not know is UNSUPPORTED; an integer that does not fit is MISMATCH, named
     * by tensor and by its number among the tensor's elements as the file has them. */
    heft_dtype dtype;
    uint32_t reserved; /* 0 */
} heft_read_options;

/* What a read did. Filled on success and on failure; kept, over-read and spanned bytes are 0 on
 * failure, the other numbers tell how far it came. */
typedef struct heft_read_stats {
    uint64_t kept_nbytes;      /* bytes delivered, after a cast */
    uint64_t requested_nbytes; /* bytes asked of sources; kept (before a cast) + over_read + spanned */
    uint64_t over_read_nbytes; /* gaps between tensors that were read over */
    uint64_t spanned_nbytes;   /* bytes between the runs of a strided view */
    uint64_t requests;         /* read calls */
    uint64_t short_reads;
    uint64_t retries;          /* EINTR */
    uint32_t workers;
    uint32_t reserved;
} heft_read_stats;

/* Reads a view into the caller's memory as a packed row-major array of heft_view_nbytes() bytes
 * (or as many as its elements have in the dtype of the options) at `dst`, in host byte order
 * (unless keep_file_order). Sub-byte views are repacked, the last
 * byte zero-filled. Only the view's runs, or the span that covers them, are read; never a
 * mapping. A view of zero elements reads nothing. `stats` may be NULL.
 * Errors: INVALID_ARGUMENT (dst too small: dst_nbytes below heft_view_nbytes), IO (errno, or
 * truncated), MISMATCH (the file changed, or a cast refused an element), UNSUPPORTED (there is no
 * such cast), CANCELLED, OUT_OF_MEMORY. After an error the content of dst is undefined.
 * Thread rule: any thread; dst is written by worker threads until the call returns. */
HEFT_API heft_status heft_read(const heft_view *view, void *dst, uint64_t dst_nbytes, const heft_read_options *options,
                               heft_read_stats *stats, heft_error *err);

/* The same into strided memory: element (i0, i1, ...) goes to dst + sum(i[d] *
 * dst_stride_nbytes[d]). Strides may be negative or have gaps; bytes in gaps are not touched.
 * Elements must not overlap (not checked). Sub-byte dtypes are UNSUPPORTED.
 * Errors and thread rule: as heft_read. */
HEFT_API heft_status heft_read_strided(const heft_view *view, void *dst, const int64_t *dst_stride_nbytes,
                                       const heft_read_options *options, heft_read_stats *stats, heft_error *err);

/* The same into memory of heft (huge pages where they help), 64-byte aligned; release the
 * buffer.
 * Errors and thread rule: as heft_read. */
HEFT_API heft_status heft_read_buffer(const heft_view *view, const heft_read_options *options, heft_buffer *out,
                                      heft_read_stats *stats, heft_error *err);

/* Reads many whole tensors in one call into one allocation. ids[0..nids) in any order, each at
 * most once (NULL: all, nids ignored). Tensor i lies at out->data + offsets[i], aligned to its
 * element size; `offsets` (nids of them) is the caller's and may be NULL if ids is NULL and the
 * place of tensors is not wanted. Bytes of small gaps between tensors may lie in the allocation
 * too.
 * Errors: INVALID_ARGUMENT (an id out of range or twice) and as heft_read.
 * Thread rule: any thread. */
HEFT_API heft_status heft_read_many(const heft_archive *archive, const uint64_t *ids, uint64_t nids,
                                    const heft_read_options *options, heft_buffer *out, uint64_t *offsets,
                                    heft_read_stats *stats, heft_error *err);

/* Reads many whole tensors into the caller's memory: tensor ids[i] into dst[i], which holds
 * dst_nbytes[i] bytes or more.
 * Errors: INVALID_ARGUMENT (an id out of range, a destination too small) and as heft_read.
 * Thread rule: any thread. */
HEFT_API heft_status heft_read_many_into(const heft_archive *archive, const uint64_t *ids, uint64_t nids,
                                         void *const *dst, const uint64_t *dst_nbytes, const heft_read_options *options,
                                         heft_read_stats *stats, heft_error *err);

/* ---- plans ------------------------------------------------------------------------------------------------------- */

/* What a read will do, before it is done: pure, deterministic, printable. One thread at a time. */
typedef struct heft_plan heft_plan;

/* Plans the read of views into slots: view i goes packed to slot i at dst_offsets[i] of one
 * destination (NULL: one after another, each at a multiple of 64). No byte is read. The
 * archives must outlive the plan.
 * Errors: INVALID_ARGUMENT, LIMIT (sizes), OUT_OF_MEMORY.
 * Thread rule: any thread. */
HEFT_API heft_status heft_plan_views(const heft_view *views, uint64_t nviews, const uint64_t *dst_offsets,
                                     const heft_read_options *options, heft_plan **out, heft_error *err);

/* How a run of a plan lands. */
typedef uint32_t heft_run_kind;
#define HEFT_RUN_DIRECT UINT32_C(0)  /* straight into its place */
#define HEFT_RUN_VECTOR UINT32_C(1)  /* one request scattered into places; gaps go to a dump */
#define HEFT_RUN_GATHER UINT32_C(2)  /* through scratch, then copied element by element */

/* One part of a plan: views that are read as one contiguous range, or one strided view, which may
 * take several reads where the gaps between them cost more than a read. */
typedef struct heft_plan_run {
    uint32_t file;          /* index in the archive of its first view */
    heft_run_kind kind;
    uint64_t offset;        /* in the file */
    uint64_t span_nbytes;   /* from there to the last byte */
    uint64_t nbytes;        /* requested */
    uint64_t kept_nbytes;   /* of these, delivered (before a cast) */
    uint64_t nreads;        /* contiguous reads, before they are cut into blocks */
    uint64_t first_view;    /* the view that lies first in the file */
    uint64_t nviews;
} heft_plan_run;

/* Sums of a plan. */
typedef struct heft_plan_summary {
    uint64_t nruns, nblocks, nviews;
    uint64_t kept_nbytes, requested_nbytes, over_read_nbytes, spanned_nbytes;
    uint64_t dst_nbytes;     /* size of the destination */
    uint64_t scratch_nbytes; /* most scratch in use at once */
    uint32_t workers;
    uint32_t reserved;
} heft_plan_summary;

/* The sums, and run `index` of them.
 * Errors: INVALID_ARGUMENT (out of range).
 * Thread rule: one thread per plan. */
HEFT_API void heft_plan_summarize(const heft_plan *plan, heft_plan_summary *out);
HEFT_API heft_status heft_plan_get(const heft_plan *plan, uint64_t index, heft_plan_run *out, heft_error *err);

/* Runs a plan into `dst` (dst_nbytes of the summary or more). May be repeated.
 * Errors: as heft_read.
 * Thread rule: one thread per plan. */
HEFT_API heft_status heft_plan_execute(const heft_plan *plan, void *dst, uint64_t dst_nbytes, heft_read_stats *stats,
                                       heft_error *err);

/* Frees a plan; NULL does nothing.
 * Thread rule: one thread per plan. */
HEFT_API void heft_plan_free(heft_plan *plan);

#ifdef __cplusplus
}
#endif
#endif
