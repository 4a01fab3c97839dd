/* ops: the arithmetic of statistics: values to doubles, blocks of them to sums, sums to one. */
#include "base/cpu.h"
#include "dtype/cast.h"
#include "dtype/sums.h"
#include "ops/stats.h"

#include <math.h>
#include <string.h>

enum { STATS_BLOCK = 1024, STATS_NARROW = 4096, STATS_SIZES = 512 };

/* The square root of a value >= 0 by Newton's method, to be independent of the mathematics library. */
double heft__root(double value) {
    if (!(value > 0) || isinf(value)) return value;
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    bits = (bits >> 1) + (UINT64_C(0x1FF8) << 48); /* half the exponent */
    double root;
    memcpy(&root, &bits, sizeof root);
    for (int i = 0; i < 6; i++) root = 0.5 * (root + value / root);
    return root;
}

static double stats_magnitude(double re, double im) {
    if (isinf(re) || isinf(im)) return (double)INFINITY;
    return heft__root(re * re + im * im); /* parts are F32: the squares fit a double */
}

static double stats_value(heft_dtype dtype, const void *data, uint64_t index) {
    heft_scalar value = heft_dtype_get(dtype, data, index);
    switch (value.kind) {
    case 'i': return (double)value.i;
    case 'f': return value.re;
    case 'c': return stats_magnitude(value.re, value.im);
    default: return (double)value.u;
    }
}

static float stats_float(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* F16 by widening its fields to those of F32 and scaling, which makes its subnormals right too. */
static float stats_half(uint16_t half) {
    uint32_t bits = (uint32_t)(half & 0x7FFF) << 13, sign = (uint32_t)(half & 0x8000) << 16;
    if ((half & 0x7C00) == 0x7C00) return stats_float(bits | sign | 0x7F800000);
    return stats_float(bits | sign) * 0x1p112f;
}

void heft__stats_table(heft_dtype dtype, double of_byte[256]) {
    for (uint32_t i = 0; i < 256; i++) {
        uint8_t byte = (uint8_t)i;
        of_byte[i] = stats_value(dtype, &byte, 0);
    }
}

void heft__stats_decode(heft_dtype dtype, const double *of_byte, const void *data, uint64_t first, uint64_t count,
                        double *out) {
    if (dtype == HEFT_F32) {
        const float *values = (const float *)data + first;
        for (uint64_t i = 0; i < count; i++) out[i] = (double)values[i];
    } else if (dtype == HEFT_BF16) {
        const uint16_t *values = (const uint16_t *)data + first;
        for (uint64_t i = 0; i < count; i++) out[i] = (double)stats_float((uint32_t)values[i] << 16);
    } else if (dtype == HEFT_F16) {
        const uint16_t *values = (const uint16_t *)data + first;
        for (uint64_t i = 0; i < count; i++) out[i] = (double)stats_half(values[i]);
    } else if (heft_dtype_bits(dtype) == 8) {
        const uint8_t *values = (const uint8_t *)data + first;
        for (uint64_t i = 0; i < count; i++) out[i] = of_byte[values[i]];
    } else {
        for (uint64_t i = 0; i < count; i++) out[i] = stats_value(dtype, data, first + i);
    }
}

/* Adds the sums of other values (Chan, Golub, LeVeque: Updating formulae and a pairwise algorithm, 1979). */
void heft__stats_merge(heft__stats_sum *sum, const heft__stats_sum *other) {
    sum->nans += other->nans;
    sum->infs += other->infs;
    sum->zeros += other->zeros;
    if (other->min < sum->min) sum->min = other->min;
    if (other->max > sum->max) sum->max = other->max;
    if (other->finite == 0) return;
    double a = (double)sum->finite, b = (double)other->finite, delta = other->mean - sum->mean;
    if (sum->finite == 0) { /* not by the formula: of large values that is infinity times 0 */
        sum->finite = other->finite;
        sum->mean = other->mean;
        sum->squares = other->squares;
        return;
    }
    if (isfinite(delta)) sum->mean += delta * (b / (a + b));
    else sum->mean = sum->mean * (a / (a + b)) + other->mean * (b / (a + b));
    sum->squares += other->squares + delta * delta * (a / (a + b) * b);
    sum->finite += other->finite;
}

const heft__stats_sum heft__stats_nothing = {.min = (double)INFINITY, .max = -(double)INFINITY};

/* Counts one value of any kind; true if it is finite. */
static bool stats_count(heft__stats_sum *sum, double value) {
    if (isnan(value)) {
        sum->nans++;
        return false;
    }
    if (value < sum->min) sum->min = value;
    if (value > sum->max) sum->max = value;
    sum->zeros += value == 0;
    if (!isinf(value)) return true;
    sum->infs++;
    return false;
}

/* Sums of values, and of their squared distances from `mean`: four side by side, so that an addition does not wait for the one
 * before. The values that are not finite have been taken out. */
static double stats_total(const double *v, uint64_t count) {
    double a = 0, b = 0, c = 0, d = 0;
    uint64_t i = 0;
    for (; i + 4 <= count; i += 4) a += v[i], b += v[i + 1], c += v[i + 2], d += v[i + 3];
    for (; i < count; i++) a += v[i];
    return (a + b) + (c + d);
}

static double stats_squares(const double *v, uint64_t count, double mean) {
    double a = 0, b = 0, c = 0, d = 0;
    uint64_t i = 0;
    for (; i + 4 <= count; i += 4) {
        double p = v[i] - mean, q = v[i + 1] - mean, r = v[i + 2] - mean, s = v[i + 3] - mean;
        a += p * p, b += q * q, c += r * r, d += s * s;
    }
    for (; i < count; i++) a += (v[i] - mean) * (v[i] - mean);
    return (a + b) + (c + d);
}

/* What a block adds up to; `values` is used up. */
static heft__stats_sum stats_block(double *values, uint64_t count) {
    heft__stats_sum sum = heft__stats_nothing;
    double probe = stats_total(values, count);
    if (isfinite(probe)) { /* then all of them are */
        sum.finite = count;
        for (uint64_t i = 0; i < count; i++) {
            sum.min = values[i] < sum.min ? values[i] : sum.min;
            sum.max = values[i] > sum.max ? values[i] : sum.max;
            sum.zeros += values[i] == 0;
        }
    } else {
        for (uint64_t i = 0; i < count; i++)
            if (stats_count(&sum, values[i])) values[sum.finite++] = values[i];
        probe = stats_total(values, sum.finite);
    }
    if (sum.finite == 0) return sum;
    sum.mean = probe / (double)sum.finite;
    if (!isfinite(probe)) { /* finite values whose sum is not: each is divided first */
        sum.mean = 0;
        for (uint64_t i = 0; i < sum.finite; i++) sum.mean += values[i] / (double)sum.finite;
    }
    sum.squares = stats_squares(values, sum.finite, sum.mean);
    return sum;
}

void heft__histogram_add(heft_histogram *histogram, const double *values, uint64_t count) {
    for (uint64_t i = 0; i < count; i++) {
        uint64_t bits;
        memcpy(&bits, &values[i], sizeof bits);
        int64_t exponent = (int64_t)(bits >> 52 & 0x7FF) - 1023;
        if (exponent == 1024) continue; /* NaN and infinities are counted elsewhere */
        int64_t at = exponent - HEFT_HISTOGRAM_MIN_EXPONENT;
        if (at < 0) at = 0;
        if (at >= HEFT_HISTOGRAM_SIDE) at = HEFT_HISTOGRAM_SIDE - 1;
        if (values[i] == 0) histogram->bins[HEFT_HISTOGRAM_SIDE]++;
        else histogram->bins[bits >> 63 ? HEFT_HISTOGRAM_SIDE - 1 - at : HEFT_HISTOGRAM_SIDE + 1 + at]++;
    }
}

/* Counts of F32 by sign and exponent become those of bins. Zeros and subnormals, which have one exponent, are told apart. */
static void stats_sizes(const float *values, uint64_t count, uint32_t sizes[2][STATS_SIZES], heft_histogram *histogram) {
    for (uint64_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, &values[i], sizeof bits);
        sizes[i & 1][bits >> 23]++; /* turns, so that a count does not wait for the one before */
        if (bits & 0x7F800000) continue;
        double value = (double)values[i];
        heft__histogram_add(histogram, &value, 1);
    }
}

static void stats_bins(uint32_t sizes[2][STATS_SIZES], heft_histogram *histogram) {
    for (uint32_t i = 0; i < STATS_SIZES; i++) {
        uint32_t exponent = i & 255, n = sizes[0][i] + sizes[1][i];
        if (n == 0 || exponent == 0 || exponent == 255) continue;
        int64_t at = (int64_t)exponent - 127 - HEFT_HISTOGRAM_MIN_EXPONENT;
        if (at < 0) at = 0;
        if (at >= HEFT_HISTOGRAM_SIDE) at = HEFT_HISTOGRAM_SIDE - 1;
        histogram->bins[i >= 256 ? HEFT_HISTOGRAM_SIDE - 1 - at : HEFT_HISTOGRAM_SIDE + 1 + at] += n;
    }
}

/* What fits F32 goes through it, by the kernels of casts. False: it does not fit. */
static bool stats_narrow(heft_dtype dtype, const uint8_t *data, uint64_t nelems, heft__stats_sum *sum,
                         heft_histogram *histogram) {
    const heft__dtype_info *info = &heft__dtypes[dtype];
    heft__cast cast;
    bool fits = info->kind == 'f' ? info->bits <= 32 : (info->kind == 'i' || info->kind == 'u') && info->bits <= 16;
    if (!fits || info->bits < 8 || !heft__cast_find(dtype, HEFT_F32, 0, &cast)) return false;
    heft__sum_kernel *kernel = heft__sum_find();
    float values[STATS_NARROW];
    uint32_t sizes[2][STATS_SIZES] = {{0}};
    bool careful = false;
    uint64_t size = info->bits / 8u, mode = heft__cpu_float_enter();
    for (uint64_t i = 0, count; i < nelems; i += count) {
        count = nelems - i < STATS_NARROW ? nelems - i : STATS_NARROW;
        heft__sum block;
        (void)heft__cast_run(&cast, data + i * size, values, (size_t)count);
        heft__sum_block(kernel, values, (size_t)count, careful, &block);
        careful = block.nans || block.infs;
        heft__stats_sum other = {block.finite, block.nans, block.infs, block.zeros,
                                 block.min,    block.max,  block.mean, block.squares};
        heft__stats_merge(sum, &other);
        if (histogram) stats_sizes(values, count, sizes, histogram);
    }
    if (histogram) stats_bins(sizes, histogram);
    heft__cpu_float_leave(mode);
    return true;
}

void heft__stats_add(heft_dtype dtype, const double *of_byte, const void *data, uint64_t nelems, heft__stats_sum *sum,
                     heft_histogram *histogram) {
    double values[STATS_BLOCK];
    if (stats_narrow(dtype, data, nelems, sum, histogram)) return;
    for (uint64_t i = 0; i < nelems; i += STATS_BLOCK) {
        uint64_t count = nelems - i < STATS_BLOCK ? nelems - i : STATS_BLOCK;
        heft__stats_decode(dtype, of_byte, data, i, count, values);
        if (histogram) heft__histogram_add(histogram, values, count);
        heft__stats_sum block = stats_block(values, count);
        heft__stats_merge(sum, &block);
    }
}

void heft__stats_finish(const heft__stats_sum *sum, uint64_t count, heft_stats *out) {
    double n = (double)sum->finite;
    *out = (heft_stats){.count = count, .nans = sum->nans, .infs = sum->infs, .zeros = sum->zeros,
                        .min = (double)NAN, .max = (double)NAN, .mean = (double)NAN, .std = (double)NAN};
    if (sum->min <= sum->max) out->min = sum->min, out->max = sum->max;
    if (sum->finite == 0) return;
    out->mean = sum->mean;
    out->std = heft__root(sum->squares / n);
    out->norm = heft__root(sum->squares + n * sum->mean * sum->mean);
}
