/* label: threads */
/* Statistics of views: exact counts, sums as a two-pass computation in long double gives them, any number of workers. */
#include "helper_archive.h"
#include "helper_files.h"

#include "base/alloc.h"
#include "heft/values.h"

#include <math.h>

/* Files are little-endian: turns components around on a big-endian host, either way. */
static void swap_components(heft_dtype dtype, void *data, uint64_t nbytes) {
    uint64_t width = heft_dtype_component_bits(dtype) / 8;
    uint8_t *bytes = data;
    if (!(heft_features() & HEFT_FEATURE_BIG_ENDIAN) || width < 2) return;
    for (uint64_t at = 0; at < nbytes; at += width)
        for (uint64_t i = 0; i < width / 2; i++) {
            uint8_t byte = bytes[at + i];
            bytes[at + i] = bytes[at + width - 1 - i];
            bytes[at + width - 1 - i] = byte;
        }
}

/* A two-pass computation over all elements of a view, gathered one by one. */
static heft_stats naive_stats(const heft_view *view, const uint8_t *source) {
    uint64_t n = heft_view_nelems(view), finite = 0;
    heft_stats stats = {.count = n, .min = NAN, .max = NAN, .mean = NAN, .std = NAN};
    uint8_t *packed = malloc(heft_view_nbytes(view) + 8);
    double *values = malloc((n + 1) * sizeof *values);
    naive_gather(view, source, packed);
    test_host_order(view->dtype, packed, heft_view_nbytes(view));
    long double sum = 0, squares = 0;
    for (uint64_t i = 0; i < n; i++) {
        heft_scalar s = heft_dtype_get(view->dtype, packed, i);
        double v = s.kind == 'i' ? (double)s.i : s.kind == 'f' ? s.re : s.kind == 'c' ? hypot(s.re, s.im) : (double)s.u;
        values[i] = v;
        stats.nans += isnan(v) != 0;
        stats.infs += isinf(v) != 0;
        stats.zeros += v == 0;
        if (isnan(v)) continue;
        if (!(v >= stats.min)) stats.min = v;
        if (!(v <= stats.max)) stats.max = v;
        if (isfinite(v)) finite++, sum += (long double)v;
    }
    if (finite) {
        long double mean = sum / (long double)finite;
        for (uint64_t i = 0; i < n; i++)
            if (isfinite(values[i])) squares += ((long double)values[i] - mean) * ((long double)values[i] - mean);
        stats.mean = (double)mean;
        stats.std = (double)sqrtl(squares / (long double)finite);
        long double all = 0;
        for (uint64_t i = 0; i < n; i++)
            if (isfinite(values[i])) all += (long double)values[i] * (long double)values[i];
        stats.norm = (double)sqrtl(all);
    }
    free(values);
    free(packed);
    return stats;
}

static bool is_near(double a, double b, double scale) {
    return (isnan(a) && isnan(b)) || a == b || fabs(a - b) <= 1e-12 * (scale + fabs(b));
}

static void assert_stats(const heft_stats *a, const heft_stats *b) {
    assert_int_equal(a->count, b->count);
    assert_int_equal(a->nans, b->nans);
    assert_int_equal(a->infs, b->infs);
    assert_int_equal(a->zeros, b->zeros);
    if (!is_near(a->min, b->min, 0) || !is_near(a->max, b->max, 0) || !is_near(a->mean, b->mean, b->std) ||
        !is_near(a->std, b->std, 0) || !is_near(a->norm, b->norm, 0))
        fail_msg("%.17g %.17g %.17g %.17g, expected %.17g %.17g %.17g %.17g", a->min, a->max, a->mean, a->std, b->min, b->max,
                 b->mean, b->std);
}

/* Bins by the exponent that frexp tells. */
static void assert_histogram(const heft_histogram *histogram, const heft_view *view, const uint8_t *source) {
    heft_histogram expected = {{0}};
    uint64_t n = heft_view_nelems(view);
    uint8_t *packed = malloc(heft_view_nbytes(view) + 8);
    naive_gather(view, source, packed);
    test_host_order(view->dtype, packed, heft_view_nbytes(view));
    for (uint64_t i = 0; i < n; i++) {
        heft_scalar s = heft_dtype_get(view->dtype, packed, i);
        double v = s.kind == 'i' ? (double)s.i : s.kind == 'f' ? s.re : (double)s.u;
        int exponent = 0, at;
        (void)frexp(v, &exponent);
        at = exponent - 1 - HEFT_HISTOGRAM_MIN_EXPONENT;
        at = at < 0 ? 0 : at >= HEFT_HISTOGRAM_SIDE ? HEFT_HISTOGRAM_SIDE - 1 : at;
        int bin = v == 0 ? HEFT_HISTOGRAM_SIDE : v < 0 ? HEFT_HISTOGRAM_SIDE - 1 - at : HEFT_HISTOGRAM_SIDE + 1 + at;
        if (isfinite(v)) expected.bins[bin]++;
    }
    free(packed);
    assert_memory_equal(histogram, &expected, sizeof expected);
}

static heft_stats stats_of(const heft_view *view, uint32_t workers, heft_read_stats *read) {
    heft_read_options options = {.struct_size = sizeof options, .workers = workers};
    heft_stats stats;
    heft_error err;
    if (heft_view_stats(view, &options, &stats, read, &err) != HEFT_OK) fail_msg("%s", err.message);
    return stats;
}

static uint8_t *random_bytes(uint64_t nbytes, uint64_t seed) {
    uint8_t *data = malloc(nbytes);
    assert_non_null(data);
    for (uint64_t i = 0; i + 8 <= nbytes; i += 8) {
        uint64_t r = test_random(&seed);
        memcpy(data + i, &r, 8);
    }
    return data;
}

static void every_dtype_and_many_views(void **state) {
    (void)state;
    uint64_t seed = 5;
    uint8_t *data = random_bytes(1 << 16, 6);
    heft_source *source;
    assert_int_equal(heft_source_open_memory(data, 1 << 16, NULL, NULL, NULL, &source, NULL), HEFT_OK);
    for (heft_dtype dtype = 1; dtype < HEFT_DTYPE_COUNT; dtype++) {
        made_tensor tensor = {.dtype = dtype, .begin = 64, .rank = 3, .shape = {8, 9, 16}};
        tensor.end = 64 + 8 * 9 * 16 * heft_dtype_bits(dtype) / 8;
        if (dtype == HEFT_F64) { /* random bits are mostly huge: make them of one size */
            for (uint64_t i = 64; i < tensor.end; i += 8) {
                double value = (double)(int64_t)test_random(&seed) / 1e17;
                memcpy(data + i, &value, 8);
                test_host_order(dtype, data + i, 8);
            }
        }
        made_archive made;
        made_archive_init(&made, source, &tensor, 1);
        for (uint64_t i = 0; i < test_count(40); i++) {
            heft_view view = i ? random_view(&made, 0, &seed) : made_view(&made, 0);
            heft_stats mine = stats_of(&view, 1, NULL), expected = naive_stats(&view, data);
            assert_stats(&mine, &expected);
        }
    }
    heft_source_unref(source);
    free(data);
}

/* Several pieces: 11 MiB of F32 around a mean that dwarfs the spread, with NaN, infinities and zeros between. */
static void pieces_are_merged_alike_by_any_workers(void **state) {
    (void)state;
    const uint64_t rows = 700, columns = 4096, nbytes = rows * columns * 4;
    uint64_t seed = 9;
    float *data = malloc(nbytes);
    for (uint64_t i = 0; i < rows * columns; i++) {
        uint64_t r = test_random(&seed);
        data[i] = r % 1000 == 0 ? 0 : r % 1000 == 1 ? NAN : r % 1000 == 2 ? INFINITY : 1000.0f + (float)(r >> 40) / 16777216.0f;
    }
    test_host_order(HEFT_F32, data, nbytes);
    swap_components(HEFT_F32, data, nbytes);
    heft_source *source;
    assert_int_equal(heft_source_open_memory(data, nbytes, NULL, NULL, NULL, &source, NULL), HEFT_OK);
    made_tensor tensor = {.dtype = HEFT_F32, .begin = 0, .end = nbytes, .rank = 2, .shape = {rows, columns}};
    made_archive made;
    made_archive_init(&made, source, &tensor, 1);
    static const char *const indexes[] = {"", "::-1,::-1", "1:,3::7", ":,5", "::2,:100", "...,None"};
    for (size_t i = 0; i < test_count(sizeof indexes / sizeof *indexes); i++) {
        heft_view view = made_view(&made, 0);
        assert_int_equal(heft_view_index_text(&view, indexes[i], SIZE_MAX, &view, NULL), HEFT_OK);
        if (i % 2) assert_int_equal(heft_view_permute(&view, NULL, &view, NULL), HEFT_OK);
        heft_stats expected = naive_stats(&view, (const uint8_t *)data), one = {0};
        for (uint32_t workers = 1; workers <= 5; workers += 2) {
            heft_read_stats read;
            heft_stats mine = stats_of(&view, workers, &read);
            assert_stats(&mine, &expected);
            if (workers == 1) one = mine;
            assert_memory_equal(&mine, &one, sizeof one);
            assert_int_equal(read.kept_nbytes, heft_view_nbytes(&view));
            assert_true(read.workers >= 1 && read.workers <= workers);
        }
    }
    heft_source_unref(source);
    free(data);
}

static int cancel_after(void *ctx, uint64_t done, uint64_t total) {
    uint64_t *state = ctx; /* calls left, last done */
    assert_true(done <= total && done >= state[1]);
    state[1] = done;
    return state[0]-- == 0;
}

static void failures_and_bounds(void **state) {
    (void)state;
    if (test_skip_emulated("270 MiB of values take minutes")) return;
    const uint64_t nbytes = UINT64_C(135) << 20; /* more than a round of pieces */
    test_bytes bytes = {.data = calloc(1, nbytes), .nbytes = nbytes};
    heft_source *source = test_source(&bytes);
    made_tensor tensor = {.dtype = HEFT_U8, .begin = 0, .end = nbytes, .rank = 1, .shape = {nbytes}};
    made_archive made;
    made_archive_init(&made, source, &tensor, 1);
    heft_view view = made_view(&made, 0), small;
    heft_stats stats;
    heft_error err;
    uint64_t ticks[2] = {1, 0};
    heft_read_options options = {.struct_size = sizeof options, .workers = 2, .progress = cancel_after, .progress_ctx = ticks};
    assert_int_equal(heft_view_stats(&view, &options, &stats, NULL, &err), HEFT_CANCELLED);
    assert_int_equal(stats.count, 0);
    test_allocator t;
    test_allocator_init(&t, 0);
    ticks[0] = 1000, ticks[1] = 0;
    options.allocator = &t.alloc;
    heft_read_stats read;
    bytes.read_nbytes = 0;
    assert_int_equal(heft_view_stats(&view, &options, &stats, &read, &err), HEFT_OK);
    assert_int_equal(stats.zeros, nbytes);
    assert_true(stats.mean == 0 && stats.std == 0);
    assert_int_equal(ticks[1], nbytes);
    assert_int_equal(bytes.read_nbytes, nbytes);
    assert_int_equal(read.requested_nbytes, nbytes);
    assert_true(t.peak_nbytes < (UINT64_C(9) << 20));
    assert_int_equal(t.live_blocks, 0);
    options.progress = NULL;
    bytes.fail_call = bytes.calls + 3, bytes.fail_errno = 5;
    assert_int_equal(heft_view_stats(&view, &options, &stats, &read, &err), HEFT_IO);
    assert_int_equal(err.status, HEFT_IO);
    assert_string_equal(err.tensor, "t0");
    bytes.fail_call = bytes.calls + 1;
    assert_int_equal(heft_view_stats(&view, &options, &stats, NULL, NULL), HEFT_IO);
    assert_int_equal(t.live_blocks, 0);
    bytes.fail_call = 0;
    assert_int_equal(heft_view_index_text(&view, "::1350000", SIZE_MAX, &small, NULL), HEFT_OK);
    for (uint64_t k = 1;; k++) {
        test_allocator_init(&t, k);
        heft_status status = heft_view_stats(&small, &options, &stats, NULL, &err);
        assert_int_equal(t.live_blocks, 0);
        if (status == HEFT_OK) break;
        assert_int_equal(status, HEFT_OUT_OF_MEMORY);
        assert_true(k < 100);
    }
    assert_int_equal(stats.count, 105);
    heft_source_unref(source);
    free((void *)bytes.data);
}

static void odd_views(void **state) {
    (void)state;
    float data[4] = {1, NAN, -INFINITY, NAN};
    test_host_order(HEFT_F32, data, sizeof data);
    heft_source *source;
    assert_int_equal(heft_source_open_memory(data, sizeof data, NULL, NULL, NULL, &source, NULL), HEFT_OK);
    made_tensor tensor = {.dtype = HEFT_F32, .begin = 0, .end = sizeof data, .rank = 1, .shape = {4}};
    made_archive made;
    made_archive_init(&made, source, &tensor, 1);
    heft_view view = made_view(&made, 0), part;
    heft_stats stats;
    assert_int_equal(heft_view_index_text(&view, "0", 1, &part, NULL), HEFT_OK); /* a scalar */
    stats = stats_of(&part, 0, NULL);
    assert_true(stats.count == 1 && stats.min == 1 && stats.max == 1 && stats.mean == 1 && stats.std == 0);
    assert_int_equal(heft_view_index_text(&view, "2:2", 3, &part, NULL), HEFT_OK); /* nothing */
    stats = stats_of(&part, 0, NULL);
    assert_true(stats.count == 0 && isnan(stats.min) && isnan(stats.max) && isnan(stats.mean) && isnan(stats.std));
    assert_int_equal(heft_view_index_text(&view, "1::2", 4, &part, NULL), HEFT_OK); /* no number */
    stats = stats_of(&part, 0, NULL);
    assert_true(stats.nans == 2 && isnan(stats.min) && isnan(stats.mean));
    assert_int_equal(heft_view_index_text(&view, "2:", 2, &part, NULL), HEFT_OK); /* no finite number */
    stats = stats_of(&part, 0, NULL);
    assert_true(stats.infs == 1 && stats.min == -INFINITY && stats.max == -INFINITY && isnan(stats.mean) && isnan(stats.std));
    assert_int_equal(heft_view_stats(NULL, NULL, &stats, NULL, NULL), HEFT_INVALID_ARGUMENT);
    assert_int_equal(heft_view_stats(&view, NULL, NULL, NULL, NULL), HEFT_INVALID_ARGUMENT);
    heft_read_options options = {.struct_size = 3};
    assert_int_equal(heft_view_stats(&view, &options, &stats, NULL, NULL), HEFT_INVALID_ARGUMENT);
    options = (heft_read_options){.struct_size = sizeof options, .reserved_flags = {true}};
    assert_int_equal(heft_view_stats(&view, &options, &stats, NULL, NULL), HEFT_INVALID_ARGUMENT);
    part = view; /* views that no function of heft makes */
    part.rank = HEFT_MAX_RANK + 1;
    assert_int_equal(heft_view_stats(&part, NULL, &stats, NULL, NULL), HEFT_INVALID_ARGUMENT);
    part = view;
    part.offset = 1;
    assert_int_equal(heft_view_stats(&part, NULL, &stats, NULL, NULL), HEFT_INVALID_ARGUMENT);
    part.dtype = HEFT_DTYPE_NONE;
    assert_int_equal(heft_view_stats(&part, NULL, &stats, NULL, NULL), HEFT_INVALID_ARGUMENT);
    heft_source_unref(source);
}

/* Tensors of several dtypes and sizes in one pass: as one by one, whatever the order and the number of workers. */
static void many_tensors_in_one_pass(void **state) {
    (void)state;
    static const heft_dtype dtypes[] = {HEFT_F32, HEFT_BF16, HEFT_I8, HEFT_F16, HEFT_U64, HEFT_F8_E4M3, HEFT_BOOL};
    enum { N = sizeof dtypes / sizeof *dtypes + 1 };
    const uint64_t nbytes = UINT64_C(3) << 20;
    uint8_t *data = random_bytes(nbytes, 8);
    heft_source *source;
    assert_int_equal(heft_source_open_memory(data, nbytes, NULL, NULL, NULL, &source, NULL), HEFT_OK);
    made_tensor tensors[N] = {{.dtype = HEFT_F32, .rank = 1, .shape = {0}}};
    uint64_t at = 0;
    for (size_t i = 1; i < N; i++) {
        uint64_t n = i % 2 ? 1000 * i : 200000 + i, size = heft_dtype_bits(dtypes[i - 1]) / 8;
        tensors[i] = (made_tensor){.dtype = dtypes[i - 1], .begin = at, .end = at + n * size, .rank = 1, .shape = {n}};
        at += (n * size + 7) / 8 * 8;
    }
    assert_true(at <= nbytes);
    made_archive made;
    made_archive_init(&made, source, tensors, N);
    const uint64_t backwards[] = {7, 3, 0};
    for (uint32_t workers = 1; workers <= 4; workers += 3) {
        heft_read_options options = {.struct_size = sizeof options, .workers = workers};
        heft_stats stats[N], one;
        heft_histogram histograms[N];
        heft_error err;
        assert_int_equal(heft_archive_stats(&made.archive, NULL, 0, &options, stats, histograms, NULL, &err), HEFT_OK);
        for (uint64_t i = 0; i < N; i++) {
            heft_view view = made_view(&made, i);
            one = naive_stats(&view, data);
            assert_stats(&stats[i], &one);
            assert_histogram(&histograms[i], &view, data);
        }
        heft_stats some[3];
        assert_int_equal(heft_archive_stats(&made.archive, backwards, 3, &options, some, NULL, NULL, &err), HEFT_OK);
        for (size_t i = 0; i < 3; i++) assert_memory_equal(&some[i], &stats[backwards[i]], sizeof *some);
    }
    const uint64_t wrong = N;
    heft_stats stats;
    assert_int_equal(heft_archive_stats(&made.archive, &wrong, 1, NULL, &stats, NULL, NULL, NULL), HEFT_INVALID_ARGUMENT);
    heft_source_unref(source);
    free(data);
}

/* Squares that do not fit a double are infinite, not NaN, and the rest stays right. */
static void huge_values(void **state) {
    (void)state;
    enum { LARGE = 3, MOST = 2500 };
    double values[LARGE + MOST] = {1e200, 1e200, -1e200};
    for (int i = 0; i < MOST; i++) values[LARGE + i] = i < 1024 ? 1.7e308 : -1.7e308;
    swap_components(HEFT_F64, values, sizeof values);
    heft_source *source;
    assert_int_equal(heft_source_open_memory(values, sizeof values, NULL, NULL, NULL, &source, NULL), HEFT_OK);
    const made_tensor tensors[] = {
        {.dtype = HEFT_F64, .begin = 0, .end = LARGE * 8, .rank = 1, .shape = {LARGE}},
        {.dtype = HEFT_F64, .begin = LARGE * 8, .end = sizeof values, .rank = 1, .shape = {MOST}}};
    made_archive made;
    made_archive_init(&made, source, tensors, 2);
    heft_stats stats[2];
    assert_int_equal(heft_archive_stats(&made.archive, NULL, 0, NULL, stats, NULL, NULL, NULL), HEFT_OK);
    for (int i = 0; i < 2; i++) {
        assert_true(isinf(stats[i].std) && stats[i].std > 0);
        assert_true(isinf(stats[i].norm) && stats[i].norm > 0);
    }
    assert_true(stats[0].mean > 3.33e199 && stats[0].mean < 3.34e199);
    assert_true(stats[1].mean > -3.08e307 && stats[1].mean < -3.07e307);
    heft_source_unref(source);
}

static void histograms_count_by_powers_of_two(void **state) {
    (void)state;
    double data[] = {0, -0.0, 1, 1.99, 2, -1, 1e-9, -1e30, 0.5, NAN, INFINITY};
    test_host_order(HEFT_F64, data, sizeof data);
    heft_source *source;
    assert_int_equal(heft_source_open_memory(data, sizeof data, NULL, NULL, NULL, &source, NULL), HEFT_OK);
    made_tensor tensor = {.dtype = HEFT_F64, .begin = 0, .end = sizeof data, .rank = 1, .shape = {11}};
    made_archive made;
    made_archive_init(&made, source, &tensor, 1);
    heft_stats stats;
    heft_histogram histogram;
    assert_int_equal(heft_archive_stats(&made.archive, NULL, 0, NULL, &stats, &histogram, NULL, NULL), HEFT_OK);
    const uint64_t *bins = histogram.bins, zero = HEFT_HISTOGRAM_SIDE, one = zero + 1 + 24;
    assert_int_equal(bins[zero], 2);
    assert_int_equal(bins[one], 2);     /* 1, 1.99 */
    assert_int_equal(bins[one + 1], 1); /* 2 */
    assert_int_equal(bins[one - 1], 1); /* 0.5 */
    assert_int_equal(bins[zero + 1], 1); /* 1e-9 */
    assert_int_equal(bins[2 * zero - one], 1); /* -1 */
    assert_int_equal(bins[0], 1); /* -1e30 */
    heft_source_unref(source);
    double large[] = {1e308, 1.5e308, 1.2e308}; /* their sum does not fit */
    test_host_order(HEFT_F64, large, sizeof large);
    assert_int_equal(heft_source_open_memory(large, sizeof large, NULL, NULL, NULL, &source, NULL), HEFT_OK);
    tensor.end = sizeof large, tensor.shape[0] = 3;
    made_archive_init(&made, source, &tensor, 1);
    heft_view view = made_view(&made, 0);
    stats = stats_of(&view, 1, NULL);
    assert_true(fabs(stats.mean / 1e308 - 3.7 / 3) < 1e-12);
    heft_source_unref(source);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_dtype_and_many_views),
        cmocka_unit_test(pieces_are_merged_alike_by_any_workers),
        cmocka_unit_test(failures_and_bounds),
        cmocka_unit_test(odd_views),
        cmocka_unit_test(many_tensors_in_one_pass),
        cmocka_unit_test(huge_values),
        cmocka_unit_test(histograms_count_by_powers_of_two),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
