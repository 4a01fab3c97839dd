/* dtype: what blocks of F32 add up to: the inner loop of statistics, with kernels behind one dispatcher as casts have. */
#ifndef HEFT_DTYPE_SUMS_H
#define HEFT_DTYPE_SUMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Sums are kept in lanes, element i in lane i % 8, so that every kernel gives the same bits. */
enum { HEFT__SUM_LANES = 8 };

typedef struct heft__sum_lanes {
    double sum[HEFT__SUM_LANES], squares[HEFT__SUM_LANES]; /* of finite values less the pivot */
    float min[HEFT__SUM_LANES], max[HEFT__SUM_LANES];      /* of all but NaN */
    uint32_t nans[HEFT__SUM_LANES], odd[HEFT__SUM_LANES], zeros[HEFT__SUM_LANES]; /* odd: NaN or infinite */
} heft__sum_lanes;

/* Adds 8 x ngroups values. Without `careful` all of them are taken for finite, which is faster: if one is not, sums are not. */
typedef void heft__sum_kernel(const float *values, size_t ngroups, float pivot, bool careful, heft__sum_lanes *lanes);

/* The best for this processor; only tests ask for the portable one. */
heft__sum_kernel *heft__sum_find(void);
heft__sum_kernel heft__sum_portable;
heft__sum_kernel *heft__sum_avx2(void); /* NULL: not here */

/* Of a block of F32. */
typedef struct heft__sum {
    uint64_t finite, nans, infs, zeros;
    double min, max;      /* infinity and -infinity: there is none; infinities count */
    double mean, squares; /* of finite values; squared distances from the mean */
} heft__sum;

/* n up to 2^30. `careful`: some values are likely not to be finite, as some before were not. The error of `squares` is about
 * 1e-12 of it at most, of `mean` 1e-13 of its size and the spread, whatever the values are. */
void heft__sum_block(heft__sum_kernel *kernel, const float *values, size_t n, bool careful, heft__sum *out);

#endif
