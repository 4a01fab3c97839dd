/* Byte runs of views: the table, joining, sub-byte views, constant memory. */
#include "helper_view.h"

#include "view/view.h"

/* "0-12 12-16", or the status if there are none. */
static const char *runs_of(const heft_view *view) {
    static char text[4096];
    size_t n = 0;
    heft_run_iter iter;
    uint64_t offset, nbytes;
    text[0] = 0;
    heft_status status = heft_run_iter_init(&iter, view, NULL);
    if (status != HEFT_OK) strcpy(text, heft_status_name(status));
    while (heft_run_iter_next(&iter, &offset, &nbytes))
        n += (size_t)sprintf(text + n, "%s%llu-%llu", n ? " " : "", (unsigned long long)offset,
                             (unsigned long long)(offset + nbytes));
    return text;
}

static void every_row_of_the_table(void **state) {
    (void)state;
    static const struct {
        heft_dtype dtype;
        const char *shape, *index, *runs;
    } rows[] = {
        {HEFT_F32, "[1,2,3]", "0:1", "0-24"},
        {HEFT_F32, "[1,2,3]", "", "0-24"},
        {HEFT_F32, "[1,2,3]", ":,:", "0-24"},
        {HEFT_F32, "[1,2,3]", ":,:,:", "0-24"},
        {HEFT_F32, "[1,2,3]", ":,0:1", "0-12"},
        {HEFT_F32, "[1,2,3]", ":,:,0:1", "0-4 12-16"},
        {HEFT_F32, "[1,2,3]", ":,1:2,0:1", "12-16"},
        {HEFT_F32, "[2,3]", ":,1:3", "4-12 16-24"},
        {HEFT_F32, "[2,3]", "1,1:3", "16-24"},
        {HEFT_F32, "[2,3]", "0,1:3", "4-12"},
        {HEFT_F32, "[2,3]", "1:2,0", "12-16"},
        {HEFT_F32, "[2,3]", "1,1:4", "16-24"},
        {HEFT_F32, "[2,3]", "1,3:2", ""},
        {HEFT_F32, "[2,3]", "::-1", "12-24 0-12"},
        {HEFT_F32, "[2,3]", "::-1,::-1", "20-24 16-20 12-16 8-12 4-8 0-4"},
        {HEFT_U8, "[2,2,2,2]", ":,:,0", "0-2 4-6 8-10 12-14"},
        {HEFT_U8, "[2,2,2,2]", ":,1,:,:", "4-8 12-16"},
        {HEFT_U8, "[4]", "None,1:3,None", "1-3"},
        {HEFT_C64, "[2,2]", ":,1", "8-16 24-32"},
        {HEFT_U8, "[]", "", "0-1"},
        {HEFT_U8, "[0,3]", "", ""},
        /* sub-byte */
        {HEFT_F4, "[1,2,2]", ":,0:1", "0-1"},
        {HEFT_F4, "[1,2]", ":,0:1", "unsupported"},
        {HEFT_F4, "[4]", "1:3", "unsupported"},
        {HEFT_F4, "[4]", "0:3", "unsupported"},
        {HEFT_F4, "[8]", "2:6", "1-3"},
        {HEFT_F4, "[2,3]", "", "0-3"},
        {HEFT_F4, "[2,3]", "1", "unsupported"},
        {HEFT_F4, "[3,2,2]", ":,1", "1-2 3-4 5-6"},
        {HEFT_F4, "[4,3]", "::2,0:2", "0-1 3-4"},
        {HEFT_F4, "[4,3]", ":,0:2", "unsupported"},
        {HEFT_F4, "[4,2]", "::-1", "3-4 2-3 1-2 0-1"},
        {HEFT_F4, "[2]", "0:0", ""},
        {HEFT_F6_E2M3, "[2,4]", "1", "3-6"},
        {HEFT_F6_E3M2, "[2,8]", ":,4:", "3-6 9-12"},
        {HEFT_F6_E3M2, "[2,8]", ":,:2", "unsupported"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        heft_view view = helper_view_text(rows[i].dtype, rows[i].shape), out;
        assert_int_equal(heft_view_index_text(&view, rows[i].index, SIZE_MAX, &out, NULL), HEFT_OK);
        if (strcmp(runs_of(&out), rows[i].runs) != 0)
            fail_msg("%s%s[%s]: %s", heft_dtype_name(rows[i].dtype), rows[i].shape, rows[i].index, runs_of(&out));
    }
    heft_view view = helper_view_text(HEFT_F4, "[2]"), out;
    heft_error err;
    heft_run_iter iter;
    assert_int_equal(heft_view_index_text(&view, "1:", 2, &out, NULL), HEFT_OK);
    assert_int_equal(heft_run_iter_init(&iter, &out, &err), HEFT_UNSUPPORTED);
    assert_string_equal(err.message, "runs of this view of F4 start or end inside a byte (4 bits an element)");
    assert_int_equal(heft_run_iter_init(&iter, NULL, &err), HEFT_INVALID_ARGUMENT);
    assert_int_equal(heft_run_iter_init(NULL, &view, &err), HEFT_INVALID_ARGUMENT);
}

/* Runs touch where an inner dim ends though the dims do not step as one. */
static void touching_runs_are_joined(void **state) {
    (void)state;
    heft_view view = {.dtype = HEFT_U8, .rank = 2, .shape = {3, 2}, .stride = {3, 2}};
    assert_string_equal(runs_of(&view), "0-1 2-4 5-7 8-9");
    view = (heft_view){.dtype = HEFT_U8, .rank = 1, .shape = {4}, .stride = {1}, .offset = 3};
    assert_string_equal(runs_of(&view), "3-7");
    heft_view whole = helper_view_text(HEFT_F32, "[3,4,5]"), out;
    assert_int_equal(heft_view_permute(&whole, NULL, &out, NULL), HEFT_OK);
    assert_int_equal(heft_view_permute(&out, NULL, &out, NULL), HEFT_OK);
    assert_string_equal(runs_of(&out), "0-240");
}

static void runs_in_bits_have_no_rule(void **state) {
    (void)state;
    heft_view view = helper_view_text(HEFT_F6_E2M3, "[2,8]"), out;
    heft_run_iter iter;
    uint64_t bit, nbits;
    assert_int_equal(heft_view_index_text(&view, ":,1:3", SIZE_MAX, &out, NULL), HEFT_OK);
    heft__run_iter_init_bits(&iter, &out);
    assert_true(heft__run_iter_next_bits(&iter, &bit, &nbits));
    assert_int_equal(bit, 6);
    assert_int_equal(nbits, 12);
    assert_true(heft__run_iter_next_bits(&iter, &bit, &nbits));
    assert_int_equal(bit, 54);
    assert_int_equal(nbits, 12);
    assert_false(heft__run_iter_next_bits(&iter, &bit, &nbits));
}

/* One column of a U8 matrix of 8 Mi rows, and the largest tensor of F4: no memory but the iterator. */
static void many_runs_and_far_ones(void **state) {
    (void)state;
    heft_view view = helper_view_text(HEFT_U8, "[8388608,4]"), out;
    heft_run_iter iter;
    uint64_t offset, nbytes, count = 0;
    assert_int_equal(heft_view_index_text(&view, ":,2", SIZE_MAX, &out, NULL), HEFT_OK);
    assert_int_equal(heft_run_iter_init(&iter, &out, NULL), HEFT_OK);
    while (heft_run_iter_next(&iter, &offset, &nbytes)) {
        if (offset != count * 4 + 2 || nbytes != 1) fail_msg("run %llu", (unsigned long long)count);
        count++;
    }
    assert_int_equal(count, 8388608);
    view = helper_view(HEFT_F4, 2, (int64_t[]){2, (INT64_C(1) << 61) - 2}); /* 2^63 - 8 bits each */
    assert_int_equal(heft_view_index_text(&view, "::-1,-2:", SIZE_MAX, &out, NULL), HEFT_OK);
    char expected[100];
    uint64_t half = (UINT64_C(1) << 60) - 1;
    sprintf(expected, "%llu-%llu %llu-%llu", 2 * (unsigned long long)half - 1, 2 * (unsigned long long)half,
            (unsigned long long)half - 1, (unsigned long long)half);
    assert_string_equal(runs_of(&out), expected);
}

static void collapsed_dims_are_the_fewest(void **state) {
    (void)state;
    static const struct {
        const char *index;
        uint32_t rank;
        int64_t shape[4], stride[4];
    } rows[] = {
        {"", 1, {120}, {1}},
        {":,:,:,0", 1, {24}, {5}},
        {":,0:1,:,1:4", 3, {2, 4, 3}, {60, 5, 1}},
        {"::-1,::-1,::-1,::-1", 1, {120}, {-1}},
        {"0,0,0,0", 0, {0}, {0}},
        {"0,:,::2,:", 2, {6, 5}, {10, 1}},
    };
    heft_view view = helper_view_text(HEFT_F32, "[2,3,4,5]");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        heft_view out;
        int64_t shape[HEFT_MAX_RANK], stride[HEFT_MAX_RANK];
        assert_int_equal(heft_view_index_text(&view, rows[i].index, SIZE_MAX, &out, NULL), HEFT_OK);
        assert_int_equal(heft__view_collapse(&out, shape, stride), rows[i].rank);
        for (uint32_t k = 0; k < rows[i].rank; k++) {
            assert_int_equal(shape[k], rows[i].shape[k]);
            assert_int_equal(stride[k], rows[i].stride[k]);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_row_of_the_table),     cmocka_unit_test(touching_runs_are_joined),
        cmocka_unit_test(runs_in_bits_have_no_rule),  cmocka_unit_test(many_runs_and_far_ones),
        cmocka_unit_test(collapsed_dims_are_the_fewest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
