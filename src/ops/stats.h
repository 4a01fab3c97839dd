/* ops: the arithmetic of statistics and comparisons. */
#ifndef HEFT_OPS_STATS_H
#define HEFT_OPS_STATS_H

#include "base/alloc.h"
#include "dtype/dtype.h"
#include "heft/values.h"

/* Count, mean and sum of squared distances from it of finite values, and what is counted beside them. */
typedef struct heft__stats_sum {
    uint64_t finite, nans, infs, zeros;
    double min, max; /* where there is any: infinities count */
    double mean, squares;
} heft__stats_sum;

extern const heft__stats_sum heft__stats_nothing;

/* Values of a dtype of 8 bits. */
void heft__stats_table(heft_dtype dtype, double of_byte[256]);
/* `count` elements from number `first` on as doubles; `of_byte` is of dtypes of 8 bits only. */
void heft__stats_decode(heft_dtype dtype, const double *of_byte, const void *data, uint64_t first, uint64_t count,
                        double *out);
/* Adds elements of a piece, fewer than 2^32, to a sum, and to a histogram (may be NULL). */
void heft__stats_add(heft_dtype dtype, const double *of_byte, const void *data, uint64_t nelems, heft__stats_sum *sum,
                     heft_histogram *histogram);
void heft__stats_merge(heft__stats_sum *sum, const heft__stats_sum *other);
void heft__histogram_add(heft_histogram *histogram, const double *values, uint64_t count);
void heft__stats_finish(const heft__stats_sum *sum, uint64_t count, heft_stats *out);

/* Statistics of a checked view, and of whole tensors (`ids` in range; NULL: 0 to nids - 1), whose `histograms` may be NULL. Of
 * the options workers and progress count. *read may be NULL. (stats.c) */
heft_status heft__stats_view(const heft_view *view, const heft_read_options *options, const heft_allocator *alloc,
                             heft_stats *out, heft_read_stats *read, heft_error *err);
heft_status heft__stats_tensors(const heft_archive *archive, const uint64_t *ids, uint64_t nids,
                                const heft_read_options *options, const heft_allocator *alloc, heft_stats *out,
                                heft_histogram *histograms, heft_read_stats *read, heft_error *err);

/* Compares two archives; options are complete but for the allocator. (diff.c) */
heft_status heft__diff(const heft_archive *a, const heft_archive *b, const heft_diff_options *options,
                       const heft_allocator *alloc, heft_diff **out, heft_error *err);

/* The square root of a value >= 0, independent of the mathematics library. */
double heft__root(double value);

#endif
