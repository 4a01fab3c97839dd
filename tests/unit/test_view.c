/* Whole tensors as views: by id, by name, and what cannot be one. */
#include "helper_files.h"

static heft_archive *open_bytes(const char *header, uint64_t data_nbytes, const heft_open_options *options) {
    size_t nbytes;
    void *data = calloc(1, data_nbytes + 1);
    uint8_t *file = test_raw_safetensors(header, strlen(header), data, data_nbytes, &nbytes);
    const char *path = test_write("view.safetensors", file, nbytes);
    heft_archive *archive;
    heft_error err;
    if (heft_archive_open(path, options, &archive, &err) != HEFT_OK) fail_msg("%s", err.message);
    free(file);
    free(data);
    return archive;
}

static void whole_tensors(void **state) {
    (void)state;
    heft_archive *archive = open_bytes("{\"a\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]},"
                                       "\"b\":{\"dtype\":\"F4\",\"shape\":[1,4],\"data_offsets\":[24,26]},"
                                       "\"s\":{\"dtype\":\"C64\",\"shape\":[],\"data_offsets\":[26,34]}}", 34, NULL);
    heft_view view;
    heft_error err;
    assert_int_equal(heft_view_named(archive, "a", SIZE_MAX, &view, &err), HEFT_OK);
    assert_ptr_equal(view.archive, archive);
    assert_int_equal(view.id, 0);
    assert_int_equal(view.dtype, HEFT_F32);
    assert_int_equal(view.rank, 2);
    assert_int_equal(view.shape[1], 3);
    assert_int_equal(view.stride[0], 3);
    assert_int_equal(view.stride[1], 1);
    assert_int_equal(heft_view_nbytes(&view), 24);
    assert_int_equal(heft_view_named(archive, "bc", 1, &view, &err), HEFT_OK);
    assert_int_equal(heft_view_nbytes(&view), 2);
    assert_int_equal(heft_view_of(archive, 2, &view, &err), HEFT_OK);
    assert_int_equal(view.rank, 0);
    assert_int_equal(heft_view_nelems(&view), 1);
    assert_int_equal(heft_view_index_text(&view, "0", 1, &view, &err), HEFT_INVALID_ARGUMENT);
    assert_string_equal(err.message, "s: too many indices: the tensor has 0 dims, index item 0 is for axis 0");
    assert_string_equal(err.tensor, "s");
    assert_non_null(strstr(err.file, "view.safetensors"));

    assert_int_equal(heft_view_of(archive, 3, &view, &err), HEFT_INVALID_ARGUMENT);
    assert_string_equal(err.message, "no tensor has id 3, the archive holds 3");
    assert_null(view.archive);
    assert_int_equal(heft_view_named(archive, "A", 1, &view, &err), HEFT_NOT_FOUND);
    assert_int_equal(err.status, HEFT_NOT_FOUND);
    assert_null(view.archive);
    assert_int_equal(heft_view_of(NULL, 0, &view, &err), HEFT_INVALID_ARGUMENT);
    assert_int_equal(heft_view_of(archive, 0, NULL, &err), HEFT_INVALID_ARGUMENT);
    assert_int_equal(heft_view_named(archive, NULL, 0, &view, &err), HEFT_INVALID_ARGUMENT);
    assert_int_equal(heft_view_named(NULL, "a", 1, &view, NULL), HEFT_INVALID_ARGUMENT);
    assert_int_equal(heft_view_named(archive, "a", 1, NULL, NULL), HEFT_INVALID_ARGUMENT);
    heft_archive_unref(archive);
}

static void what_is_listed_and_no_view(void **state) {
    (void)state;
    char header[2000] = "{\"deep\":{\"dtype\":\"U8\",\"shape\":[";
    for (int i = 0; i < 65; i++) strcat(header, i ? ",1" : "1");
    strcat(header, "],\"data_offsets\":[0,1]},\"odd\":{\"dtype\":\"Q\\u001b7\",\"shape\":[2],\"data_offsets\":[1,3]},"
                   "\"wide\":{\"dtype\":\"U8\",\"shape\":[0,9223372036854775808],\"data_offsets\":[3,3]},"
                   "\"max\":{\"dtype\":\"U8\",\"shape\":[0,9223372036854775807,9223372036854775807],\"data_offsets\":[3,3]}}");
    heft_open_options options = {.struct_size = sizeof options, .list_unknown_dtypes = true};
    heft_archive *archive = open_bytes(header, 3, &options);
    heft_view view;
    heft_error err;
    assert_int_equal(heft_view_named(archive, "deep", SIZE_MAX, &view, &err), HEFT_LIMIT);
    assert_string_equal(err.message, "deep: a view has at most 64 dims, the tensor has 65");
    assert_int_equal(err.fault, HEFT_FAULT_RANK_LIMIT);
    assert_int_equal(err.expected, 64);
    assert_int_equal(err.found, 65);
    assert_int_equal(heft_view_named(archive, "wide", SIZE_MAX, &view, &err), HEFT_LIMIT);
    assert_string_equal(err.message, "wide: dim 1 is 9223372036854775808, a view's is at most 2^63 - 1");
    assert_int_equal(heft_view_named(archive, "odd", SIZE_MAX, &view, &err), HEFT_UNSUPPORTED);
    assert_string_equal(err.message, "odd: its dtype is unknown: it can be listed, not viewed");
    assert_int_equal(err.fault, HEFT_FAULT_UNKNOWN_DTYPE);
    assert_int_equal(view.dtype, HEFT_DTYPE_NONE);
    assert_int_equal(heft_view_named(archive, "max", SIZE_MAX, &view, &err), HEFT_OK);
    assert_int_equal(heft_view_nelems(&view), 0);
    heft_archive_unref(archive);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_tensors),
        cmocka_unit_test(what_is_listed_and_no_view),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
