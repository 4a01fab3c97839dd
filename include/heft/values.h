/* heft/values.h: what the values of tensors are: statistics, and how two checkpoints differ. Everything is read once, in
 * pieces, by several threads, in memory that does not grow with the tensors. */
#ifndef HEFT_VALUES_H
#define HEFT_VALUES_H

#include "heft/reads.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- statistics -------------------------------------------------------------------------------------------------- */

/* Statistics of values. Complex values count by their magnitude. NaN values are counted and left
 * out of the rest; infinities are counted and left out of mean, std and norm. Sums are doubles,
 * added in blocks of 1,024 or 4,096 values around one of them or their mean, so that they depend
 * neither on the number of workers nor, unless the compiler fuses multiplications and additions,
 * on the processor; beside NumPy's in float64 the relative difference is below 1e-12. F64 values beyond
 * 1e154 make std and norm infinite. */
typedef struct heft_stats {
    uint64_t count, nans, infs, zeros;
    double min, max;  /* NaN if there is no number */
    double mean, std; /* population standard deviation of the finite values; NaN if there is none */
    double norm;      /* square root of the sum of squares; 0 if there is none */
} heft_stats;

/* A histogram over powers of two: of sides for negative and positive values, with a bin for each
 * exponent from 2^-24 to 2^15 (smaller magnitudes count in the first, larger ones in the last),
 * and one for zeros between them. Bins run from large negative to large positive values:
 * bin HEFT_HISTOGRAM_SIDE counts zeros, bin SIDE + 1 + k values in [2^(MIN_EXPONENT + k),
 * 2^(MIN_EXPONENT + k + 1)), bin SIDE - 1 - k their negatives. NaN and infinities are in none. */
#define HEFT_HISTOGRAM_SIDE 40
#define HEFT_HISTOGRAM_MIN_EXPONENT (-24)
#define HEFT_HISTOGRAM_BINS 81 /* 2 x SIDE + 1 */
typedef struct heft_histogram {
    uint64_t bins[HEFT_HISTOGRAM_BINS];
} heft_histogram;

/* Statistics of a view. Of the options workers, progress and allocator count.
 * Errors and thread rule: as heft_read. */
HEFT_API heft_status heft_view_stats(const heft_view *view, const heft_read_options *options, heft_stats *out,
                                     heft_read_stats *stats, heft_error *err);

/* Statistics of many whole tensors in one pass: out[i] (and histograms[i], where wanted: else
 * NULL) are those of ids[i] (NULL: of tensor i, nids ignored: all of them).
 * Errors: INVALID_ARGUMENT (an id out of range), and as heft_read; those of reading name the
 * tensor.
 * Thread rule: any thread. */
HEFT_API heft_status heft_archive_stats(const heft_archive *archive, const uint64_t *ids, uint64_t nids,
                                        const heft_read_options *options, heft_stats *out, heft_histogram *histograms,
                                        heft_read_stats *stats, heft_error *err);

/* ---- differences ------------------------------------------------------------------------------------------------- */

/* What became of a name. */
typedef uint32_t heft_diff_state;
#define HEFT_DIFF_EQUAL UINT32_C(0)      /* the same bits; of two dtypes: the same values */
#define HEFT_DIFF_CLOSE UINT32_C(1)      /* they differ, within the tolerance */
#define HEFT_DIFF_CHANGED UINT32_C(2)    /* they differ */
#define HEFT_DIFF_SHAPE UINT32_C(3)      /* other shapes: values are not compared */
#define HEFT_DIFF_ADDED UINT32_C(4)      /* only in b */
#define HEFT_DIFF_REMOVED UINT32_C(5)    /* only in a */
#define HEFT_DIFF_UNREAD UINT32_C(6)     /* the same shape and dtype, values not compared as the caller wished */
#define HEFT_DIFF_STATES 7

/* Options. Zero is the default of each; struct_size = sizeof(heft_diff_options). Copied. */
typedef struct heft_diff_options {
    size_t struct_size;
    bool headers_only; /* names, dtypes, shapes; no tensor byte is read */
    bool reserved_flags[7];
    double tolerance;  /* |a - b| <= tolerance + relative x |a| is close; 0 and 0: nothing is but equality */
    double relative;
    uint32_t workers;  /* as heft_read_options */
    uint32_t reserved;
    int (*progress)(void *ctx, uint64_t done_nbytes, uint64_t total_nbytes); /* as heft_read_options: bytes of both */
    void *progress_ctx;
    const heft_allocator *allocator; /* NULL: a's */
} heft_diff_options;

/* One name of either side. Names of ids are those of the archives. An element is different when
 * its bits are, or, of two dtypes, its value; NaN equals NaN there. */
typedef struct heft_diff_tensor {
    uint64_t a, b;         /* ids; HEFT_NONE: not on that side */
    heft_diff_state state;
    bool dtype_differs;
    bool reserved[3];
    uint64_t nelems;       /* compared */
    uint64_t ndifferent;   /* of these */
    uint64_t nbeyond;      /* of these, beyond the tolerance */
    uint64_t first;        /* row-major index of the first that differs; HEFT_NONE: none */
    uint64_t nnonfinite;   /* different ones of which a side, or both, is NaN or infinite: not in the next numbers */
    double max_abs;        /* largest |a - b| */
    double max_rel;        /* largest |a - b| / max(|a|, |b|) */
    double rel_l2;         /* norm of a - b over norm of a; 0 / 0 is 0 */
    uint64_t max_ulp;      /* of two equal float dtypes: most representable numbers from a to b; else HEFT_NONE */
} heft_diff_tensor;

/* What a comparison found. Frozen. */
typedef struct heft_diff heft_diff;

/* Compares two archives, of whatever formats: names, shapes, dtypes, then values. Metadata is the caller's to compare
 * (heft_archive_metadata). The archives must outlive the result.
 * Errors: INVALID_ARGUMENT (a tolerance that is negative or NaN), UNSUPPORTED and LIMIT (a tensor that cannot be
 * viewed), CANCELLED, OUT_OF_MEMORY, and those of reading. Differences are no error.
 * Thread rule: any thread. */
HEFT_API heft_status heft_diff_archives(const heft_archive *a, const heft_archive *b, const heft_diff_options *options,
                                        heft_diff **out, heft_error *err);

/* Number of names, and how many are in a state.
 * Thread rule: any thread. */
HEFT_API uint64_t heft_diff_count(const heft_diff *diff);
HEFT_API uint64_t heft_diff_count_of(const heft_diff *diff, heft_diff_state state);

/* Name `index`: those of a in its order, then those that only b has.
 * Errors: INVALID_ARGUMENT (out of range).
 * Thread rule: any thread. */
HEFT_API heft_status heft_diff_get(const heft_diff *diff, uint64_t index, heft_diff_tensor *out, heft_error *err);

/* Frees a result; NULL does nothing.
 * Thread rule: when no other thread uses it. */
HEFT_API void heft_diff_free(heft_diff *diff);

#ifdef __cplusplus
}
#endif
#endif
