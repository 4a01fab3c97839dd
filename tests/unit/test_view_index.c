/* Basic indexing, by items and by text: the table of NumPy results, errors and their positions, extreme numbers. */
#include "helper_view.h"

#include "view/view.h"

static const struct {
    const char *shape, *index, *result, *elements;
} rows[] = {
    {"[2,3,4]", "-1", "[3,4]", "12 13 14 15 16 17 18 19 20 21 22 23"},
    {"[2,3,4]", "-1:", "[1,3,4]", "12 13 14 15 16 17 18 19 20 21 22 23"},
    {"[2,3,4]", "0:100", "[2,3,4]", "0 1 2 3 ..."},
    {"[2,3,4]", "::2", "[1,3,4]", "0 1 2 3 ..."},
    {"[2,3,4]", "::-1", "[2,3,4]", "12 13 14 15 ..."},
    {"[2,3,4]", ":,:,::2", "[2,3,2]", "0 2 4 6 ..."},
    {"[2,3,4]", ":,:,3:0:-2", "[2,3,2]", "3 1 7 5 ..."},
    {"[2,3,4]", ":,:,::-3", "[2,3,2]", "3 0 7 4 ..."},
    {"[2,3,4]", ":,5:0:-1", "[2,2,4]", "8 9 10 11 4 ..."},
    {"[2,3,4]", "1:-5:-1", "[2,3,4]", "12 13 14 ..."},
    {"[2,3,4]", "1:0", "[0,3,4]", ""},
    {"[2,3,4]", "2:2", "[0,3,4]", ""},
    {"[2,3,4]", "3:1", "[0,3,4]", ""},
    {"[2,3,4]", "0:0:2", "[0,3,4]", ""},
    {"[2,3,4]", ":,10:5:1", "[2,0,4]", ""},
    {"[2,3,4]", "...,0", "[2,3]", "0 4 8 12 16 20"},
    {"[2,3,4]", "0,None,1", "[1,4]", "4 5 6 7"},
    {"[2,3,4]", ":,None,1", "[2,1,4]", "4 5 6 7 16 17 18 19"},
    {"[2,3,4]", "...,None", "[2,3,4,1]", "0 1 2 3 ..."},
    {"[2,3,4]", "0,1,2", "[]", "6"},
    {"[2,3,4]", "0,1,2,...", "[]", "6"},
    {"[2,3,4]", "...,0,1,2", "[]", "6"},
    {"[2,3,4]", "0,...,1,2", "[]", "6"},
    {"[2,3,4]", "()", "[2,3,4]", "0 1 2 ..."},
    {"[2,3,4]", "", "[2,3,4]", "0 1 2 ..."},
    {"[2,3,4]", "...", "[2,3,4]", "0 1 2 ..."},
    {"[2,3,4]", "[]", "[0,3,4]", ""},
    {"[2,3,4]", "1,2,-4:", "[4]", "20 21 22 23"},
    {"[10]", "10:10", "[0]", ""},
    {"[10]", "20:", "[0]", ""},
    {"[10]", ":-20", "[0]", ""},
    {"[10]", "1099511627776:", "[0]", ""},
    {"[10]", "8:2:-2", "[3]", "8 6 4"},
    {"[10]", "-1:-11:-1", "[10]", "9 8 7 6 5 4 3 2 1 0"},
    {"[10]", "-1:0:-1", "[9]", "9 8 7 6 5 4 3 2 1"},
    {"[10]", "::9223372036854775807", "[1]", "0"},
    {"[10]", "::-4611686018427387904", "[1]", "9"},
    {"[10]", "::-9223372036854775808", "[1]", "9"},
    {"[10]", "::-99999999999999999999999999999999", "[1]", "9"},
    {"[10]", "-99999999999999999999:99999999999999999999", "[10]", "0 1 2 3 4 5 6 7 8 9"},
    {"[10]", "99999999999999999999:-99999999999999999999:-4", "[3]", "9 5 1"},
    {"[0,3]", ":", "[0,3]", ""},
    {"[0,3]", "0:5", "[0,3]", ""},
    {"[0,3]", ":,0:1", "[0,1]", ""},
    {"[0,3]", "::-1", "[0,3]", ""},
    {"[0,3]", ":,0", "[0]", ""},
    {"[]", "()", "[]", "0"},
    {"[]", "...", "[]", "0"},
    {"[]", "None", "[1]", "0"},
    {"[]", "None,...,None", "[1,1]", "0"},
    /* ways of writing */
    {"[2,3,4]", " 0 : 1 : 1 , ... , None ", "[1,3,4,1]", "0 1 2 ..."},
    {"[2,3,4]", "( )", "[2,3,4]", "0 1 2 ..."},
    {"[2,3,4]", "[ ] ", "[0,3,4]", ""},
    {"[2,3,4]", "+1,\t- 1,\n0,", "[]", "20"},
    {"[2,3,4]", "newaxis,Ellipsis", "[1,2,3,4]", "0 1 2 ..."},
    {"[2,3,4]", "None:None:None", "[2,3,4]", "0 1 2 ..."},
    {"[2,3,4]", "None:1", "[1,3,4]", "0 1 2 ..."},
    {"[2,3,4]", "1::", "[1,3,4]", "12 13 14 ..."},
    {"[2,3,4]", "00", "[3,4]", "0 1 2 ..."},
};

static void every_row_of_the_table(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        heft_view view = helper_view_text(HEFT_F32, rows[i].shape), out;
        heft_error err;
        if (heft_view_index_text(&view, rows[i].index, SIZE_MAX, &out, &err) != HEFT_OK)
            fail_msg("%s[%s]: %s", rows[i].shape, rows[i].index, err.message);
        if (strcmp(helper_shape(&out), rows[i].result) != 0)
            fail_msg("%s[%s]: shape %s", rows[i].shape, rows[i].index, helper_shape(&out));
        const char *dots = strstr(rows[i].elements, " ...");
        size_t most = 1;
        for (const char *c = rows[i].elements; c < (dots ? dots : rows[i].elements + strlen(rows[i].elements)); c++)
            most += *c == ' ';
        if (strcmp(helper_elements(&out, most), rows[i].elements) != 0)
            fail_msg("%s[%s]: elements %s", rows[i].shape, rows[i].index, helper_elements(&out, most));
        assert_int_equal(heft_view_index_text(&view, rows[i].index, strlen(rows[i].index), &view, NULL), HEFT_OK);
        assert_string_equal(helper_shape(&view), rows[i].result); /* in place too */
    }
}

static void every_error_says_where(void **state) {
    (void)state;
    static const struct {
        const char *shape, *index;
        uint64_t at;
        const char *message;
        uint64_t expected, found; /* of errors of the index; those of the text have none and start with its position */
    } errors[] = {
        {"[2,3]", "2", 0, "index 2 is out of range for axis 0 with size 2", 2, 2},
        {"[2,3]", "-3", 0, "index -3 is out of range for axis 0 with size 2", 2, HEFT_NONE},
        {"[2,3]", "1, 3", 3, "index 3 is out of range for axis 1 with size 3", 3, 3},
        {"[2,3]", "...,None,-4", 9, "index -4 is out of range for axis 1 with size 3", 3, HEFT_NONE},
        {"[1,0]", ":,1", 2, "index 1 is out of range for axis 1 with size 0", 0, 1},
        {"[2]", "99999999999999999999", 0, "index 9223372036854775807 is out of range for axis 0 with size 2", 2, INT64_MAX},
        {"[2,3,4]", "0,1,2,3", 6, "too many indices: the tensor has 3 dims, index item 3 is for axis 3", 3, 4},
        {"[]", ":", 0, "too many indices: the tensor has 0 dims, index item 0 is for axis 0", 0, 1},
        {"[]", "0", 0, "too many indices: the tensor has 0 dims, index item 0 is for axis 0", 0, 1},
        {"[]", "[]", 0, "too many indices: the tensor has 0 dims, index item 0 is for axis 0", 0, 1},
        {"[2]", "...,...", 4, "an index has at most one ellipsis ('...')", 0, 0},
        {"[2,2]", ":, ::0", 3, "the slice of index item 1 has step 0", 0, 0},
        {"[2]", "1.0", 0, "a float is no index, found '1.0'", 0, 0},
        {"[2]", "0:1e3", 2, "a float is no index, found '1e3'", 0, 0},
        {"[2]", ".5", 0, "a float is no index, found '.5'", 0, 0},
        {"[2]", "nan", 0, "a float is no index, found 'nan'", 0, 0},
        {"[2]", "\"a\"", 0, "a string is no index, found '\"a\"'", 0, 0},
        {"[2]", "0,'a'", 2, "a string is no index, found ''a''", 0, 0},
        {"[2]", "True", 0, "a boolean is advanced indexing, which is not supported, found 'True'", 0, 0},
        {"[2]", "0, false", 3, "a boolean is advanced indexing, which is not supported, found 'false'", 0, 0},
        {"[2]", "[0,1]", 0, "a list is advanced indexing, which is not supported, found '[0'", 0, 0},
        {"[2,2]", "0,[]", 2, "a list is advanced indexing, which is not supported, found '[]'", 0, 0},
        {"[2]", "[[]]", 0, "a list is advanced indexing, which is not supported, found '[[]]'", 0, 0},
        {"[2]", "(0)", 0, "a tuple inside an index is advanced indexing, which is not supported, found '(0)'", 0, 0},
        {"[2]", "Trueish", 0, "an integer, a slice, '...' or None is expected, found 'Trueish'", 0, 0},
        {"[2]", "None2", 0, "an integer, a slice, '...' or None is expected, found 'None2'", 0, 0},
        {"[2]", "0,,1", 2, "an integer, a slice, '...' or None is expected", 0, 0},
        {"[2]", ",", 0, "an integer, a slice, '...' or None is expected", 0, 0},
        {"[2]", "0x1", 0, "not a decimal integer, found '0x1'", 0, 0},
        {"[2]", "1_0", 0, "not a decimal integer, found '1_0'", 0, 0},
        {"[2]", "01", 0, "an integer does not start with 0, found '01'", 0, 0},
        {"[2]", "-", 0, "digits are expected after a sign, found '-'", 0, 0},
        {"[2]", "1 2", 2, "a comma is expected, found '2'", 0, 0},
        {"[2]", "0:1:1:1", 5, "a comma is expected, found ':1'", 0, 0},
        {"[2]", "0:\x1b[31m", 2, "an integer, a slice, '...' or None is expected, found '\\x1B[31m'", 0, 0},
        {"[2]", "....", 3, "a comma is expected, found '.'", 0, 0},
    };
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
        heft_view view = helper_view_text(HEFT_F32, errors[i].shape), out = view;
        heft_error err;
        assert_int_equal(heft_view_index_text(&view, errors[i].index, SIZE_MAX, &out, &err), HEFT_INVALID_ARGUMENT);
        const char *message = err.message, *start = "index, position ";
        if (strncmp(message, start, strlen(start)) == 0) {
            char *end;
            assert_int_equal(strtoull(message + strlen(start), &end, 10), errors[i].at);
            message = end + 2;
        }
        bool numbers = errors[i].expected || errors[i].found;
        assert_string_equal(message, errors[i].message);
        assert_int_equal(err.offset, errors[i].at);
        assert_int_equal(err.expected, numbers ? errors[i].expected : HEFT_NONE);
        assert_int_equal(err.found, numbers ? errors[i].found : HEFT_NONE);
        assert_int_equal(err.fault, HEFT_FAULT_CALL);
        assert_int_equal(out.rank, 0); /* cleared */
        assert_int_equal(out.dtype, HEFT_DTYPE_NONE);
        out = view;
        assert_int_equal(heft_view_index_text(&view, errors[i].index, SIZE_MAX, &view, NULL), HEFT_INVALID_ARGUMENT);
        assert_memory_equal(&view, &out, offsetof(heft_view, shape)); /* in place: left alone */
    }
    heft_view view = helper_view_text(HEFT_F32, "[2]"), out;
    assert_int_equal(heft_view_index_text(&view, "0\0", 2, &out, NULL), HEFT_INVALID_ARGUMENT);
    assert_int_equal(heft_view_index_text(&view, NULL, 0, &out, NULL), HEFT_INVALID_ARGUMENT);
    assert_int_equal(heft_view_index_text(NULL, "", 0, &out, NULL), HEFT_INVALID_ARGUMENT);
    assert_int_equal(heft_view_index(&view, NULL, 1, &out, NULL), HEFT_INVALID_ARGUMENT);
    assert_int_equal(heft_view_index(&view, NULL, 0, NULL, NULL), HEFT_INVALID_ARGUMENT);
    heft_index item = {.kind = 4};
    assert_int_equal(heft_view_index(&view, &item, 1, &out, NULL), HEFT_INVALID_ARGUMENT);
    view.rank = HEFT_MAX_RANK + 1;
    assert_int_equal(heft_view_index(&view, NULL, 0, &out, NULL), HEFT_INVALID_ARGUMENT);
}

static void rank_has_a_limit(void **state) {
    (void)state;
    int64_t shape[HEFT_MAX_RANK];
    for (int i = 0; i < HEFT_MAX_RANK; i++) shape[i] = i % 2 + 1;
    heft_view view = helper_view(HEFT_U8, HEFT_MAX_RANK, shape), out;
    heft_error err;
    assert_int_equal(heft_view_index_text(&view, "None", 4, &out, &err), HEFT_LIMIT);
    assert_int_equal(err.fault, HEFT_FAULT_RANK_LIMIT);
    assert_int_equal(err.expected, 64);
    assert_int_equal(err.found, 65);
    assert_int_equal(heft_view_index_text(&view, "None,0", 6, &out, &err), HEFT_OK);
    assert_int_equal(out.rank, 64);
    char text[1024] = ""; /* the longest index that fits: each dim dropped, 64 made, an ellipsis, a comma */
    for (int i = 0; i < 64; i++) strcat(text, "0,None,");
    strcat(text, "...,");
    assert_int_equal(heft_view_index_text(&view, text, SIZE_MAX, &out, &err), HEFT_OK);
    assert_int_equal(out.rank, 64);
    assert_int_equal(heft_view_nelems(&out), 1);
    text[0] = 0;
    for (int i = 0; i < 131; i++) strcat(text, "None,");
    assert_int_equal(heft_view_index_text(&view, text, SIZE_MAX, &out, &err), HEFT_INVALID_ARGUMENT);
    assert_non_null(strstr(err.message, "too many items"));
    static heft_index many[100000];
    for (size_t i = 0; i < 100000; i++) many[i].kind = HEFT_INDEX_NEWAXIS;
    assert_int_equal(heft_view_index(&view, many, 100000, &out, &err), HEFT_LIMIT);
}

/* Tensors of no elements may have any dims: arithmetic on them must not overflow. */
static void extreme_dims_without_elements(void **state) {
    (void)state;
    const int64_t max = INT64_MAX;
    heft_view view = helper_view(HEFT_C64, 4, (int64_t[]){max, max, 0, max}), out;
    heft_error err;
    assert_int_equal(heft_view_nelems(&view), 0);
    assert_int_equal(heft_view_nbytes(&view), 0);
    assert_true(heft_view_is_contiguous(&view));
    assert_int_equal(heft_view_index_text(&view, "-1,::-1,:,-9223372036854775807:", SIZE_MAX, &out, &err), HEFT_OK);
    assert_int_equal(out.shape[0], max);
    assert_int_equal(out.shape[2], max);
    assert_int_equal(heft_view_index_text(&out, "::9223372036854775807,...,5", SIZE_MAX, &out, &err), HEFT_OK);
    assert_string_equal(helper_shape(&out), "[1,0]");
    assert_int_equal(heft_view_index_text(&view, "9223372036854775807", SIZE_MAX, &out, &err), HEFT_INVALID_ARGUMENT);
    assert_int_equal(heft_view_index_text(&view, "9223372036854775806", SIZE_MAX, &out, &err), HEFT_OK);
    assert_int_equal(heft_view_index_text(&view, "-9223372036854775808", SIZE_MAX, &out, &err), HEFT_INVALID_ARGUMENT);
    heft_run_iter runs;
    uint64_t offset, nbytes;
    assert_int_equal(heft_run_iter_init(&runs, &view, &err), HEFT_OK);
    assert_false(heft_run_iter_next(&runs, &offset, &nbytes));
    uint64_t first = 1, end = 1;
    heft__view_span(&view, &first, &end);
    assert_int_equal(first + end, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_row_of_the_table),
        cmocka_unit_test(every_error_says_where),
        cmocka_unit_test(rank_has_a_limit),
        cmocka_unit_test(extreme_dims_without_elements),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
