/* dtype: what blocks of F32 add up to: the inner loop of statistics, with kernels behind one dispatcher as casts have. */
#ifndef HEFT_DTYPE_SUMS_H
#define HEFT_DTYPE_SUMS_H

#include <stddef.h>
#include <stdint.h>

/* Sums are kept in lanes, element i in lane i % 8, so that every kernel gives the same bits. */
enum { HEFT__SUM_LANES = 8 };

typedef struct heft__sum_lanes {
    double sum[HEFT__SUM_LANES], squares[HEFT__SUM_LANES]; /* of finite values less the pivot */
    float min[HEFT__SUM_LANES], max[HEFT__SUM_LANES];      /* of all but NaN */
    uint32_t nans[HEFT__SUM_LANES], odd[HEFT__SUM_LANES], zeros[HEFT__SUM_LANES]; /* odd: NaN or infinite */
} heft__sum_lanes;

/* Adds 8 x ngroups values. */
typedef void heft__sum_kernel(const float *values, size_t ngroups, float pivot, heft__sum_lanes *lanes);

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

/* n up to 2^30. The error of `squares` is at most about 64 x 2^-52 x 8 of it, whatever the mean. */
void heft__sum_block(heft__sum_kernel *kernel, const float *values, size_t n, heft__sum *out);

#endif
