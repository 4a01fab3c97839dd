/* Comparisons of archives: every dtype element by element, names and shapes, failures. */
#include "helper_archive.h"
#include "helper_files.h"

#include "heft/saves.h"
#include "heft/values.h"

#include <math.h>

/* What the comparison must say, one element after another. */
static heft_diff_tensor naive_diff(heft_dtype dtype, const uint8_t *a, const uint8_t *b, uint64_t n, double tolerance) {
    heft_diff_tensor out = {.first = HEFT_NONE, .nelems = n};
    uint32_t size = heft_dtype_bits(dtype) / 8;
    double squares = 0, norm = 0;
    for (uint64_t i = 0; i < n; i++) {
        heft_scalar x = heft_dtype_get(dtype, a, i), y = heft_dtype_get(dtype, b, i);
        double p = x.kind == 'i' ? (double)x.i : x.kind == 'f' ? x.re : (double)x.u;
        double q = y.kind == 'i' ? (double)y.i : y.kind == 'f' ? y.re : (double)y.u;
        if (isfinite(p)) norm += p * p;
        if (memcmp(a + i * size, b + i * size, size) == 0) continue;
        if (out.ndifferent++ == 0) out.first = i;
        if (!isfinite(p) || !isfinite(q)) {
            out.nnonfinite++;
            out.nbeyond += !(isnan(p) && isnan(q));
            continue;
        }
        double distance = fabs(p - q), size_of = fmax(fabs(p), fabs(q));
        out.nbeyond += distance > tolerance;
        out.max_abs = fmax(out.max_abs, distance);
        if (size_of > 0) out.max_rel = fmax(out.max_rel, distance / size_of);
        squares += distance * distance;
    }
    out.rel_l2 = squares > 0 ? sqrt(squares) / sqrt(norm) : 0;
    return out;
}

/* A file in memory with tensors "t0", "t1" ..., and an archive of it. */
typedef struct saved {
    heft_buffer buffer;
    test_bytes bytes;
    heft_archive *archive;
} saved;

static void saved_init(saved *out, const heft_save_item *tensors, uint64_t n) {
    heft_save_item items[8];
    char names[8][8];
    heft_error err;
    for (uint64_t i = 0; i < n; i++) {
        snprintf(names[i], sizeof names[i], "t%u", (unsigned)i);
        items[i] = tensors[i];
        items[i].name = names[i];
    }
    heft_save_options options = {.struct_size = sizeof options, .keep_order = true};
    if (heft_save_buffer(items, n, &options, &out->buffer, NULL, &err) != HEFT_OK) fail_msg("%s", err.message);
    out->bytes = (test_bytes){.data = out->buffer.data, .nbytes = out->buffer.nbytes};
    heft_source *source = test_source(&out->bytes);
    if (heft_archive_open_source(source, NULL, &out->archive, &err) != HEFT_OK) fail_msg("%s", err.message);
    heft_source_unref(source);
}

static void saved_end(saved *file) {
    heft_archive_unref(file->archive);
    heft_buffer_release(&file->buffer);
}

static heft_diff *diff_of(const saved *a, const saved *b, const heft_diff_options *options) {
    heft_diff *diff;
    heft_error err;
    if (heft_diff_archives(a->archive, b->archive, options, &diff, &err) != HEFT_OK) fail_msg("%s", err.message);
    return diff;
}

static void every_dtype_element_by_element(void **state) {
    (void)state;
    const uint64_t n = 300000, nbytes = n * 8;
    uint64_t seed = 3;
    uint8_t *a = malloc(nbytes), *b = malloc(nbytes);
    for (heft_dtype dtype = 1; dtype < HEFT_DTYPE_COUNT; dtype++) {
        uint32_t bits = heft_dtype_bits(dtype);
        if (bits < 8 || heft_dtype_kind(dtype) == 'c') continue;
        for (uint64_t i = 0; i < nbytes; i += 8) {
            uint64_t r = test_random(&seed);
            memcpy(a + i, &r, 8);
        }
        memcpy(b, a, nbytes);
        for (int k = 0; k < 200; k++) {
            uint64_t r = test_random(&seed);
            b[test_random(&seed) % (n * bits / 8)] = (uint8_t)r;
        }
        const int64_t shape[] = {(int64_t)n / 100, 100};
        saved sides[2];
        for (int s = 0; s < 2; s++) {
            heft_save_item item = {.data = s ? b : a, .dtype = dtype, .rank = 2, .shape = shape};
            saved_init(&sides[s], &item, 1);
        }
        heft_diff_tensor first = {0};
        for (uint32_t workers = 1; workers <= 4; workers += 3) {
            heft_diff_options options = {.struct_size = sizeof options, .workers = workers, .tolerance = 3};
            heft_diff *diff = diff_of(&sides[0], &sides[1], &options);
            heft_diff_tensor mine, expected;
            assert_int_equal(heft_diff_count(diff), 1);
            assert_int_equal(heft_diff_get(diff, 0, &mine, NULL), HEFT_OK);
            expected = naive_diff(dtype, a, b, n, 3);
            assert_int_equal(mine.ndifferent, expected.ndifferent);
            assert_int_equal(mine.first, expected.first);
            assert_int_equal(mine.nnonfinite, expected.nnonfinite);
            assert_int_equal(mine.state, mine.nbeyond ? HEFT_DIFF_CHANGED : HEFT_DIFF_CLOSE);
            if (bits < 64 || heft_dtype_kind(dtype) == 'f') assert_int_equal(mine.nbeyond, expected.nbeyond);
            assert_true(fabs(mine.max_abs - expected.max_abs) <= 1e-9 * expected.max_abs || isinf(expected.max_abs));
            assert_true(fabs(mine.max_rel - expected.max_rel) <= 1e-9 * expected.max_rel || isnan(expected.max_rel));
            if (isfinite(expected.rel_l2) && isfinite(mine.rel_l2))
                assert_true(fabs(mine.rel_l2 - expected.rel_l2) <= 1e-9 * expected.rel_l2);
            if (workers == 1) first = mine;
            assert_memory_equal(&mine, &first, sizeof mine);
            heft_diff_free(diff);
        }
        for (int s = 0; s < 2; s++) saved_end(&sides[s]);
    }
    free(a), free(b);
}

/* Two sides: names missing on either, other shapes, the same values in another dtype, equal ones, close ones. */
static void names_shapes_dtypes(void **state) {
    (void)state;
    const float x[12] = {1, 2, 3, 4, 5, 6, -0.0f, NAN, 0.5f, 100, 7, 8};
    const uint16_t halves[4] = {0x3C00, 0x4000, 0x4200, 0x4401}; /* 1, 2, 3, 4.004 */
    const float y[12] = {1, 2, 3, 4, 5, 6, 0.0f, NAN, 0.5000001f, 100, 7, 8};
    const int64_t four[] = {4}, one_two[] = {1, 2}, two[] = {2}, one[] = {1};
    const heft_save_item of_a[] = {
        {.data = x, .dtype = HEFT_F32, .rank = 1, .shape = four},
        {.data = x + 4, .dtype = HEFT_F32, .rank = 2, .shape = one_two},
        {.data = x + 6, .dtype = HEFT_F32, .rank = 1, .shape = two},
        {.data = x + 8, .dtype = HEFT_F32},
        {.data = x + 9, .dtype = HEFT_F32, .rank = 1, .shape = one},
        {.data = x + 10, .dtype = HEFT_F32, .rank = 1, .shape = one}};
    const heft_save_item of_b[] = {
        {.data = halves, .dtype = HEFT_F16, .rank = 1, .shape = four},
        {.data = y + 4, .dtype = HEFT_F32, .rank = 1, .shape = two},
        {.data = y + 6, .dtype = HEFT_F32, .rank = 1, .shape = two},
        {.data = y + 8, .dtype = HEFT_F32},
        {.data = y + 9, .dtype = HEFT_F32, .rank = 1, .shape = one}};
    saved sides[2];
    saved_init(&sides[0], of_a, 6);
    saved_init(&sides[1], of_b, 5);
    heft_diff_options options = {.struct_size = sizeof options, .relative = 1e-6};
    static const heft_diff_state expected[] = {HEFT_DIFF_CHANGED, HEFT_DIFF_SHAPE, HEFT_DIFF_CLOSE, HEFT_DIFF_CLOSE,
                                               HEFT_DIFF_EQUAL, HEFT_DIFF_REMOVED};
    heft_diff *diff = diff_of(&sides[0], &sides[1], &options);
    heft_diff_tensor t;
    assert_int_equal(heft_diff_count(diff), 6);
    for (uint64_t i = 0; i < 6; i++) {
        assert_int_equal(heft_diff_get(diff, i, &t, NULL), HEFT_OK);
        assert_int_equal(t.state, expected[i]);
        assert_int_equal(t.a, i);
        if (i == 0) {
            assert_true(t.dtype_differs && t.ndifferent == 1 && t.first == 3 && t.max_ulp == HEFT_NONE);
            assert_true(fabs(t.max_abs - 4.00390625 + 4) < 1e-12);
        }
        if (i == 2) assert_true(t.ndifferent == 1 && t.max_abs == 0 && t.max_ulp == 0 && t.first == 0); /* -0 and 0 */
        if (i == 3) assert_true(t.max_ulp == 2 && t.nelems == 1);
    }
    assert_int_equal(heft_diff_count_of(diff, HEFT_DIFF_CLOSE), 2);
    assert_int_equal(heft_diff_count_of(diff, HEFT_DIFF_STATES), 0);
    assert_int_equal(heft_diff_get(diff, 6, &t, NULL), HEFT_INVALID_ARGUMENT);
    heft_diff_free(diff);

    diff = diff_of(&sides[1], &sides[0], NULL); /* the other way round, nothing is close */
    assert_int_equal(heft_diff_count_of(diff, HEFT_DIFF_ADDED), 1);
    assert_int_equal(heft_diff_count_of(diff, HEFT_DIFF_CHANGED), 3);
    assert_int_equal(heft_diff_get(diff, 5, &t, NULL), HEFT_OK);
    assert_true(t.a == HEFT_NONE && t.b == 5);
    heft_diff_free(diff);

    options = (heft_diff_options){.struct_size = sizeof options, .headers_only = true};
    diff = diff_of(&sides[0], &sides[1], &options);
    assert_int_equal(heft_diff_count_of(diff, HEFT_DIFF_UNREAD), 4);
    assert_int_equal(heft_diff_count_of(diff, HEFT_DIFF_EQUAL), 0);
    heft_diff_free(diff);
    heft_diff_free(NULL);
    for (int s = 0; s < 2; s++) saved_end(&sides[s]);
}

/* Of two dtypes the values count, also those that no double holds. */
static void values_across_dtypes(void **state) {
    (void)state;
    const int64_t large = (INT64_C(1) << 53) + 1, most = INT64_MIN, two[] = {2}, whole[] = {-1, 7};
    const double near = 9007199254740992, least = -9223372036854775808.0, huge = 18446744073709551616.0, part = 0.5;
    const double low = -1.7e308, high = 1.7e308;
    const float ones[] = {1, 0}, same[] = {-1, 7}, odd[] = {-1, 1, 7, 0};
    const uint64_t all = UINT64_MAX, none = 0;
    const heft_save_item of_a[] = {{.data = &large, .dtype = HEFT_I64}, {.data = &most, .dtype = HEFT_I64},
                                   {.data = &all, .dtype = HEFT_U64},   {.data = &none, .dtype = HEFT_U64},
                                   {.data = whole, .dtype = HEFT_I64, .rank = 1, .shape = two},
                                   {.data = ones, .dtype = HEFT_C64},
                                   {.data = odd, .dtype = HEFT_C64, .rank = 1, .shape = two},
                                   {.data = &low, .dtype = HEFT_F64}};
    const heft_save_item of_b[] = {{.data = &near, .dtype = HEFT_F64},  {.data = &least, .dtype = HEFT_F64},
                                   {.data = &huge, .dtype = HEFT_F64},  {.data = &part, .dtype = HEFT_F64},
                                   {.data = same, .dtype = HEFT_F32, .rank = 1, .shape = two},
                                   {.data = ones, .dtype = HEFT_F32},
                                   {.data = same, .dtype = HEFT_F32, .rank = 1, .shape = two},
                                   {.data = &high, .dtype = HEFT_F64}};
    static const heft_diff_state expected[] = {HEFT_DIFF_CHANGED, HEFT_DIFF_EQUAL, HEFT_DIFF_CHANGED, HEFT_DIFF_CHANGED,
                                               HEFT_DIFF_EQUAL,   HEFT_DIFF_EQUAL, HEFT_DIFF_CHANGED, HEFT_DIFF_CHANGED};
    saved sides[2];
    saved_init(&sides[0], of_a, 8);
    saved_init(&sides[1], of_b, 8);
    for (int turned = 0; turned < 2; turned++) {
        heft_diff *diff = diff_of(&sides[turned], &sides[!turned], NULL);
        heft_diff_tensor t;
        for (uint64_t i = 0; i < 8; i++) {
            assert_int_equal(heft_diff_get(diff, i, &t, NULL), HEFT_OK);
            if (t.state != expected[i]) fail_msg("tensor %u, turned %d: state %u", (unsigned)i, turned, (unsigned)t.state);
            if (i == 0) assert_true(t.max_abs == 1);
            if (i == 3) assert_true(t.max_abs == 0.5);
            if (i == 6) assert_true(t.max_abs == 1 && t.ndifferent == 1 && t.first == 0);
            if (i == 7) assert_true(isinf(t.rel_l2)); /* and no NaN, which has no place in an order */
        }
        heft_diff_free(diff);
    }
    /* What is close is so by the values of A, also where those are integers of 64 bits. */
    const int64_t ten = 10, twenty = 20;
    const heft_save_item left = {.data = &ten, .dtype = HEFT_I64}, right = {.data = &twenty, .dtype = HEFT_I64};
    for (int s = 0; s < 2; s++) saved_end(&sides[s]);
    saved_init(&sides[0], &left, 1);
    saved_init(&sides[1], &right, 1);
    heft_diff_options options = {.struct_size = sizeof options, .relative = 0.6};
    heft_diff *diff = diff_of(&sides[0], &sides[1], &options);
    assert_int_equal(heft_diff_count_of(diff, HEFT_DIFF_CHANGED), 1); /* 10 is more than 0.6 of 10 */
    heft_diff_free(diff);
    diff = diff_of(&sides[1], &sides[0], &options);
    assert_int_equal(heft_diff_count_of(diff, HEFT_DIFF_CLOSE), 1);
    heft_diff_free(diff);
    for (int s = 0; s < 2; s++) saved_end(&sides[s]);
}

static int diff_cancel(void *ctx, uint64_t done, uint64_t total) {
    (void)ctx, (void)done, (void)total;
    return 1;
}

static void failures(void **state) {
    (void)state;
    static uint8_t data[2 << 20];
    const int64_t shape[] = {sizeof data / 4};
    const heft_save_item item = {.data = data, .dtype = HEFT_F32, .rank = 1, .shape = shape};
    saved a, b;
    saved_init(&a, &item, 1);
    saved_init(&b, &item, 1);
    heft_diff *diff;
    heft_error err;
    a.bytes.fail_call = a.bytes.calls + 2, a.bytes.fail_errno = 5;
    assert_int_equal(heft_diff_archives(a.archive, b.archive, NULL, &diff, &err), HEFT_IO);
    assert_null(diff);
    assert_string_equal(err.tensor, "t0");
    a.bytes.fail_call = 0;
    test_allocator t;
    for (uint64_t k = 1;; k++) {
        test_allocator_init(&t, k);
        heft_diff_options options = {.struct_size = sizeof options, .allocator = &t.alloc};
        heft_status status = heft_diff_archives(a.archive, b.archive, &options, &diff, &err);
        if (status == HEFT_OK) heft_diff_free(diff);
        assert_int_equal(t.live_blocks, 0);
        if (status == HEFT_OK) break;
        assert_int_equal(status, HEFT_OUT_OF_MEMORY);
        assert_true(k < 100);
    }
    heft_diff_options options = {.struct_size = sizeof options, .progress = diff_cancel};
    assert_int_equal(heft_diff_archives(a.archive, b.archive, &options, &diff, &err), HEFT_CANCELLED);
    options = (heft_diff_options){.struct_size = sizeof options, .tolerance = -1};
    assert_int_equal(heft_diff_archives(a.archive, b.archive, &options, &diff, &err), HEFT_INVALID_ARGUMENT);
    options.tolerance = NAN;
    assert_int_equal(heft_diff_archives(a.archive, b.archive, &options, &diff, &err), HEFT_INVALID_ARGUMENT);
    assert_int_equal(heft_diff_archives(NULL, b.archive, NULL, &diff, &err), HEFT_INVALID_ARGUMENT);
    saved_end(&a);
    saved_end(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_dtype_element_by_element),
        cmocka_unit_test(names_shapes_dtypes),
        cmocka_unit_test(values_across_dtypes),
        cmocka_unit_test(failures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
