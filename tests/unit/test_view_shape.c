/* Permute, transpose, reshape, squeeze, split, contiguity. */
#include "helper_view.h"

#include "view/view.h"

static heft_view index_of(const heft_view *view, const char *index) {
    heft_view out;
    heft_error err;
    if (heft_view_index_text(view, index, SIZE_MAX, &out, &err) != HEFT_OK) fail_msg("[%s]: %s", index, err.message);
    return out;
}

static void permutes_and_transposes(void **state) {
    (void)state;
    heft_view view = helper_view_text(HEFT_F32, "[2,3,4]"), out;
    heft_error err;
    assert_int_equal(heft_view_permute(&view, NULL, &out, &err), HEFT_OK);
    assert_string_equal(helper_shape(&out), "[4,3,2]");
    assert_string_equal(helper_elements(&out, 4), "0 12 4 16 ...");
    assert_int_equal(heft_view_permute(&view, (int64_t[]){1, -1, 0}, &out, &err), HEFT_OK);
    assert_string_equal(helper_shape(&out), "[3,4,2]");
    assert_int_equal(heft_view_transpose(&view, 0, -1, &view, &err), HEFT_OK);
    assert_string_equal(helper_shape(&view), "[4,3,2]");
    assert_false(heft_view_is_contiguous(&view));
    assert_int_equal(heft_view_transpose(&view, 2, 2, &out, &err), HEFT_OK);
    assert_int_equal(heft_view_permute(&view, (int64_t[]){0, 1, -3}, &out, &err), HEFT_INVALID_ARGUMENT);
    assert_string_equal(err.message, "axis 0 is given twice");
    assert_int_equal(heft_view_permute(&view, (int64_t[]){0, 1, 3}, &out, &err), HEFT_INVALID_ARGUMENT);
    assert_string_equal(err.message, "axis 3 is out of range for a view of 3 dims");
    assert_int_equal(heft_view_transpose(&view, -4, 0, &out, &err), HEFT_INVALID_ARGUMENT);
    assert_int_equal(heft_view_transpose(&view, 0, INT64_MAX, &out, &err), HEFT_INVALID_ARGUMENT);
    heft_view scalar = helper_view_text(HEFT_F32, "[]");
    assert_int_equal(heft_view_permute(&scalar, NULL, &out, &err), HEFT_OK);
    assert_int_equal(out.rank, 0);
}

static void reshapes_where_it_is_a_view(void **state) {
    (void)state;
    static const struct {
        const char *shape, *index;
        bool transpose;
        uint32_t rank;
        int64_t wanted[6];
        heft_status status;
        const char *result, *strides;
    } rows[] = {
        {"[2,3,4]", "", false, 2, {6, 4}, HEFT_OK, "[6,4]", "4 1"},
        {"[2,3,4]", "", false, 2, {-1, 4}, HEFT_OK, "[6,4]", "4 1"},
        {"[2,3,4]", "", false, 1, {-1}, HEFT_OK, "[24]", "1"},
        {"[2,3,4]", "", false, 5, {1, 2, 1, 12, 1}, HEFT_OK, "[1,2,1,12,1]", "24 12 12 1 1"},
        {"[2,3,4]", "", false, 1, {23}, HEFT_INVALID_ARGUMENT, NULL, NULL},
        {"[2,3,4]", "", false, 2, {-1, 5}, HEFT_INVALID_ARGUMENT, NULL, NULL},
        {"[2,3,4]", "", false, 2, {-1, -1}, HEFT_INVALID_ARGUMENT, NULL, NULL},
        {"[2,3,4]", "", false, 2, {-2, 12}, HEFT_INVALID_ARGUMENT, NULL, NULL},
        {"[2,3,4]", "", false, 3, {INT64_MAX, INT64_MAX, 2}, HEFT_INVALID_ARGUMENT, NULL, NULL},
        {"[2,3,4]", "", true, 1, {24}, HEFT_UNSUPPORTED, NULL, NULL},
        {"[2,3,4]", "", true, 4, {2, 2, 3, 2}, HEFT_OK, "[2,2,3,2]", "2 1 4 12"},
        {"[2,3,4]", "", true, 3, {4, 3, 2}, HEFT_OK, "[4,3,2]", "1 4 12"},
        {"[2,3,4]", "", true, 2, {12, 2}, HEFT_UNSUPPORTED, NULL, NULL},
        {"[4,6]", ":,::2", false, 1, {12}, HEFT_OK, "[12]", "2"},
        {"[4,6]", ":,::2", false, 3, {2, 3, 2}, HEFT_OK, "[2,3,2]", "12 4 2"},
        {"[4,6]", ":,:4", false, 1, {16}, HEFT_UNSUPPORTED, NULL, NULL},
        {"[4,6]", ":,:4", false, 4, {2, 2, 2, 2}, HEFT_OK, "[2,2,2,2]", "12 6 2 1"},
        {"[4,6]", "::-1,::-1", false, 1, {24}, HEFT_OK, "[24]", "-1"},
        {"[4,6]", ":,0", false, 2, {4, 1}, HEFT_OK, "[4,1]", "6 6"},
        {"[4,6]", ":,0", false, 4, {1, 2, 1, 2}, HEFT_OK, "[1,2,1,2]", "24 12 12 6"},
        {"[0,3]", "", false, 3, {7, 0, 2}, HEFT_OK, "[7,0,2]", "2 2 1"},
        {"[0,3]", "", false, 2, {0, -1}, HEFT_INVALID_ARGUMENT, NULL, NULL},
        {"[0,3]", "", false, 2, {-1, 3}, HEFT_OK, "[0,3]", "3 1"},
        {"[0,3]", "", false, 0, {0}, HEFT_INVALID_ARGUMENT, NULL, NULL},
        {"[1,1]", "", false, 0, {0}, HEFT_OK, "[]", ""},
        {"[]", "", false, 3, {1, -1, 1}, HEFT_OK, "[1,1,1]", "1 1 1"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        heft_view whole = helper_view_text(HEFT_F32, rows[i].shape), view = index_of(&whole, rows[i].index), out;
        heft_error err;
        if (rows[i].transpose) heft_view_permute(&view, NULL, &view, &err);
        assert_int_equal(heft_view_reshape(&view, rows[i].wanted, rows[i].rank, &out, &err), rows[i].status);
        if (rows[i].status != HEFT_OK) continue;
        assert_string_equal(helper_shape(&out), rows[i].result);
        char strides[200] = "";
        for (uint32_t k = 0; k < out.rank; k++)
            sprintf(strides + strlen(strides), "%s%lld", k ? " " : "", (long long)out.stride[k]);
        assert_string_equal(strides, rows[i].strides);
        char before[4096];
        strcpy(before, helper_elements(&view, 100));
        assert_string_equal(helper_elements(&out, 100), before);
    }
    heft_view view = helper_view_text(HEFT_F32, "[1]"), out;
    int64_t ones[65];
    for (int i = 0; i < 65; i++) ones[i] = 1;
    assert_int_equal(heft_view_reshape(&view, ones, 64, &out, NULL), HEFT_OK);
    assert_int_equal(heft_view_reshape(&view, ones, 65, &out, NULL), HEFT_LIMIT);
    assert_int_equal(heft_view_reshape(&view, NULL, 1, &out, NULL), HEFT_INVALID_ARGUMENT);
}

static void squeezes(void **state) {
    (void)state;
    heft_view view = helper_view_text(HEFT_F32, "[1,3,1,4]"), out;
    heft_error err;
    assert_int_equal(heft_view_squeeze(&view, -2, &out, &err), HEFT_OK);
    assert_string_equal(helper_shape(&out), "[1,3,4]");
    assert_int_equal(heft_view_squeeze(&view, 1, &out, &err), HEFT_INVALID_ARGUMENT);
    assert_string_equal(err.message, "axis 1 has size 3, only 1 can be squeezed");
    assert_int_equal(heft_view_squeeze(&view, 4, &out, &err), HEFT_INVALID_ARGUMENT);
    heft_view_squeeze_all(&view, &view);
    assert_string_equal(helper_shape(&view), "[3,4]");
    assert_string_equal(helper_elements(&view, 3), "0 1 2 ...");
}

static void splits_into_parts(void **state) {
    (void)state;
    heft_view view = helper_view_text(HEFT_F32, "[2,7]"), out;
    heft_error err;
    static const char *const ceil[] = {"0 1 2 7 8 9", "3 4 5 10 11 12", "6 13", ""};
    static const uint64_t nparts[] = {3, 4, 8};
    for (uint64_t part = 0; part < 3; part++) {
        assert_int_equal(heft_view_split(&view, 1, part, 3, HEFT_SPLIT_CEIL, &out, &err), HEFT_OK);
        assert_string_equal(helper_elements(&out, 20), ceil[part]);
    }
    for (size_t i = 0; i < 3; i++) { /* parts together are the dim, whatever their number */
        int64_t sum = 0;
        for (uint64_t part = 0; part < nparts[i]; part++) {
            assert_int_equal(heft_view_split(&view, -1, part, nparts[i], HEFT_SPLIT_CEIL, &out, &err), HEFT_OK);
            sum += out.shape[1];
        }
        assert_int_equal(sum, 7);
    }
    assert_int_equal(heft_view_split(&view, 0, 1, 2, HEFT_SPLIT_EQUAL, &out, &err), HEFT_OK);
    assert_string_equal(helper_shape(&out), "[1,7]");
    assert_int_equal(out.offset, 7);
    assert_int_equal(heft_view_split(&view, 1, 0, 2, HEFT_SPLIT_EQUAL, &out, &err), HEFT_INVALID_ARGUMENT);
    assert_string_equal(err.message, "axis 1 of size 7 cannot be split into 2 equal parts");
    assert_int_equal(heft_view_split(&view, 1, 3, 3, HEFT_SPLIT_CEIL, &out, &err), HEFT_INVALID_ARGUMENT);
    assert_int_equal(heft_view_split(&view, 1, 0, 0, HEFT_SPLIT_CEIL, &out, &err), HEFT_INVALID_ARGUMENT);
    assert_int_equal(heft_view_split(&view, 2, 0, 1, HEFT_SPLIT_CEIL, &out, &err), HEFT_INVALID_ARGUMENT);
    assert_int_equal(heft_view_split(&view, 1, 0, 1, 2, &out, &err), HEFT_INVALID_ARGUMENT);
    heft_view huge = helper_view(HEFT_U8, 2, (int64_t[]){0, INT64_MAX});
    assert_int_equal(heft_view_split(&huge, 1, UINT64_MAX - 1, UINT64_MAX, HEFT_SPLIT_CEIL, &out, &err), HEFT_OK);
    assert_int_equal(out.shape[1], 0);
    assert_int_equal(heft_view_split(&huge, 1, 1, 2, HEFT_SPLIT_CEIL, &out, &err), HEFT_OK);
    assert_int_equal(out.shape[1], INT64_MAX / 2);
    assert_int_equal(heft_view_split(&huge, 0, 2, 5, HEFT_SPLIT_EQUAL, &out, &err), HEFT_OK);
}

static void contiguity_and_sizes(void **state) {
    (void)state;
    static const struct {
        const char *index;
        bool contiguous;
        uint64_t nelems;
    } rows[] = {{"", true, 24},     {"1", true, 12},   {":,0:1", false, 8},   {"0,1:", true, 8},     {"::-1", false, 24},
                {"::2", true, 12},  {":,:,::2", false, 12}, {":,:,0:1", false, 6}, {"0:1,0:1,2:3", true, 1},
                {"0,:,0", false, 3}, {"None,...,None", true, 24}, {"0:0", true, 0}, {"0:1:-5", true, 0}};
    heft_view view = helper_view_text(HEFT_F4, "[2,3,4]");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        heft_view out = index_of(&view, rows[i].index);
        assert_int_equal(heft_view_is_contiguous(&out), rows[i].contiguous);
        assert_int_equal(heft_view_nelems(&out), rows[i].nelems);
        assert_int_equal(heft_view_nbytes(&out), (rows[i].nelems + 1) / 2);
    }
    heft_view huge = helper_view(HEFT_F4, 1, (int64_t[]){(INT64_C(1) << 62) - 2});
    assert_int_equal(heft_view_nbytes(&huge), (UINT64_C(1) << 61) - 1);
    uint64_t first, end;
    heft__view_span(&huge, &first, &end);
    assert_int_equal(first, 0);
    assert_int_equal(end, (UINT64_C(1) << 62) - 2);
    heft_view reversed = index_of(&view, "::-1,:,3:1:-1");
    heft__view_span(&reversed, &first, &end);
    assert_int_equal(first, 2);
    assert_int_equal(end, 24);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(permutes_and_transposes), cmocka_unit_test(reshapes_where_it_is_a_view),
        cmocka_unit_test(squeezes),                cmocka_unit_test(splits_into_parts),
        cmocka_unit_test(contiguity_and_sizes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
