/* Sums of blocks of F32: every kernel gives the bits of the portable one, and that what long doubles give. */
#include "helper.h"
#include "helper_guard.h"
#include "helper_random.h"

#include "dtype/sums.h"

#include <math.h>
#include <string.h>

enum { MOST = 4099 };

static float float_of(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Kinds of blocks: like weights, any bits, a mean that dwarfs the spread, an outlier in front, subnormals, nothing finite. */
static void make_block(int kind, float *values, size_t n, uint64_t *seed) {
    for (size_t i = 0; i < n; i++) {
        uint64_t r = random_u64(seed);
        float unit = (float)(int32_t)(r >> 32) / 2147483648.0f;
        switch (kind) {
        case 0: values[i] = unit * 0.02f; break;
        case 1: values[i] = float_of((uint32_t)r); break;
        case 2: values[i] = 1e6f + unit; break;
        case 3: values[i] = i == 0 ? 3e38f : unit; break;
        case 4: values[i] = float_of((uint32_t)r & 0x807FFFFF); break;
        case 5: values[i] = r % 3 == 0 ? NAN : r % 3 == 1 ? INFINITY : -INFINITY; break;
        default: values[i] = r % 5 == 0 ? 0.0f : r % 5 == 1 ? -0.0f : r % 5 == 2 ? NAN : unit; break;
        }
    }
}

static void assert_naive(const float *values, size_t n, const heft__sum *sum) {
    uint64_t finite = 0, nans = 0, infs = 0, zeros = 0;
    long double total = 0, squares = 0;
    double min = (double)INFINITY, max = -(double)INFINITY;
    for (size_t i = 0; i < n; i++) {
        double v = (double)values[i];
        nans += isnan(v) != 0;
        infs += isinf(v) != 0;
        zeros += v == 0;
        if (v < min) min = v;
        if (v > max) max = v;
        if (isfinite(v)) finite++, total += (long double)v;
    }
    assert_int_equal(sum->finite, finite);
    assert_int_equal(sum->nans, nans);
    assert_int_equal(sum->infs, infs);
    assert_int_equal(sum->zeros, zeros);
    assert_true(sum->min == min && sum->max == max);
    if (!finite) return;
    long double mean = total / (long double)finite;
    for (size_t i = 0; i < n; i++)
        if (isfinite(values[i])) squares += ((long double)values[i] - mean) * ((long double)values[i] - mean);
    double spread = (double)sqrtl(squares / (long double)finite);
    if (!(fabs(sum->mean - (double)mean) <= 1e-13 * (spread + fabs((double)mean)))) fail_msg("%.17g, %.17Lg", sum->mean, mean);
    if (!(fabs(sum->squares - (double)squares) <= 1e-12 * (double)squares)) fail_msg("%.17g, %.17Lg", sum->squares, squares);
}

static void kernels_agree_and_are_right(void **state) {
    (void)state;
    static const size_t lengths[] = {0, 1, 7, 8, 9, 15, 16, 100, 1024, 4096, MOST};
    static float block[MOST];
    uint64_t seed = 1;
    guard g;
    guard_init(&g, sizeof block);
    for (int kind = 0; kind < 7; kind++)
        for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++) {
            size_t n = lengths[l];
            make_block(kind, block, n, &seed);
            const float *values = (const float *)(const void *)guard_copy(&g, block, n * sizeof *values);
            heft__sum a, b;
            memset(&a, 0, sizeof a);
            memset(&b, 0, sizeof b);
            heft__sum_block(heft__sum_portable, values, n, false, &a);
            assert_naive(values, n, &a);
            heft__sum_block(heft__sum_find(), values, n, false, &b);
            assert_memory_equal(&a, &b, sizeof a);
            heft__sum_block(heft__sum_find(), values, n, true, &b);
            assert_memory_equal(&a, &b, sizeof a);
        }
    guard_free(&g);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(kernels_agree_and_are_right)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
