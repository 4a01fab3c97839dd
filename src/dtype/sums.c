/* dtype: sums of blocks of F32: the dispatcher, the portable kernel, and what becomes of its lanes. */
#include "dtype/sums.h"

#include <math.h>
#include <string.h>

heft__sum_kernel *heft__sum_find(void) {
    heft__sum_kernel *kernel = heft__sum_avx2();
    return kernel ? kernel : heft__sum_portable;
}

void heft__sum_portable(const float *values, size_t ngroups, float pivot, bool careful, heft__sum_lanes *lanes) {
    (void)careful; /* it always is */
    for (; ngroups--; values += HEFT__SUM_LANES)
        for (int i = 0; i < HEFT__SUM_LANES; i++) {
            uint32_t size;
            float x = values[i];
            memcpy(&size, &x, sizeof size);
            size &= 0x7FFFFFFF;
            lanes->odd[i] += size >= 0x7F800000;
            lanes->nans[i] += size > 0x7F800000;
            lanes->zeros[i] += size == 0;
            lanes->min[i] = x < lanes->min[i] ? x : lanes->min[i];
            lanes->max[i] = x > lanes->max[i] ? x : lanes->max[i];
            double far = (double)(size >= 0x7F800000 ? pivot : x) - (double)pivot;
            lanes->sum[i] += far;
            lanes->squares[i] += far * far;
        }
}

static double sum_of_lanes(const double *v) {
    return ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7]));
}

/* One pass around a pivot. The last group is filled up with NaN, which are taken off again. False: not careful enough. */
static bool sum_pass(heft__sum_kernel *kernel, const float *values, size_t n, float pivot, bool careful, heft__sum *out) {
    heft__sum_lanes lanes = {.nans = {0}};
    size_t whole = n / HEFT__SUM_LANES, rest = n % HEFT__SUM_LANES, fill = rest ? HEFT__SUM_LANES - rest : 0;
    for (int i = 0; i < HEFT__SUM_LANES; i++) {
        lanes.min[i] = INFINITY;
        lanes.max[i] = -INFINITY;
    }
    kernel(values, whole, pivot, careful, &lanes);
    if (!careful && !isfinite(sum_of_lanes(lanes.squares))) return false; /* finite F32 do not get so far */
    if (rest) {
        float last[HEFT__SUM_LANES];
        for (size_t i = 0; i < HEFT__SUM_LANES; i++) last[i] = i < rest ? values[whole * HEFT__SUM_LANES + i] : NAN;
        kernel(last, 1, pivot, true, &lanes);
    }
    *out = (heft__sum){.finite = n + fill, .min = (double)INFINITY, .max = -(double)INFINITY};
    for (int i = 0; i < HEFT__SUM_LANES; i++) {
        out->finite -= lanes.odd[i];
        out->nans += lanes.nans[i];
        out->infs += lanes.odd[i] - lanes.nans[i];
        out->zeros += lanes.zeros[i];
        if ((double)lanes.min[i] < out->min) out->min = (double)lanes.min[i];
        if ((double)lanes.max[i] > out->max) out->max = (double)lanes.max[i];
    }
    out->nans -= fill;
    if (out->finite == 0) return true;
    double far = sum_of_lanes(lanes.sum) / (double)out->finite;
    out->mean = (double)pivot + far;
    out->squares = sum_of_lanes(lanes.squares) - far * far * (double)out->finite;
    return true;
}

void heft__sum_block(heft__sum_kernel *kernel, const float *values, size_t n, bool careful, heft__sum *out) {
    size_t at = 0;
    while (at < n && !isfinite(values[at])) at++; /* a value of the block: then the pivot lies not far out */
    float pivot = at < n ? values[at] : 0;
    if (!sum_pass(kernel, values, n, pivot, careful, out)) (void)sum_pass(kernel, values, n, pivot, true, out);
    double far = out->mean - (double)pivot, lost = far * far * (double)out->finite;
    if (out->finite && lost > 63 * out->squares) (void)sum_pass(kernel, values, n, (float)out->mean, true, out); /* too far */
    if (!(out->squares > 0)) out->squares = 0;
}
