/* label: threads */
/* Archives of one file and of lists: lookup, orders, selection, metadata, ownership, every allocation failing in turn.
 */
#include "helper_files.h"

#include "base/text.h"
#include "ops/ops.h"

static const test_tensor layers[] = {
    {"model.layers.10.weight", "F32", "2,3", NULL, 24},
    {"model.layers.2.weight", "F32", "2,3", NULL, 24},
    {"model.layers.2.bias", "F32", "3", NULL, 12},
    {"lm_head", "F16", "2,2", NULL, 8},
    {"scalar", "I64", "", NULL, 8},
    {"empty", "F32", "0,5", NULL, 0},
};
enum { NLAYERS = sizeof layers / sizeof *layers };

static const char *one_file(void) {
    return test_write_safetensors("one/any.name", layers, NLAYERS, "{\"format\":\"pt\",\"a\":\"1\"}");
}

static heft_archive *open_path(const char *path, const heft_open_options *options) {
    heft_archive *archive;
    heft_error err;
    if (heft_archive_open(path, options, &archive, &err)) fail_msg("%s", err.message);
    return archive;
}

static uint64_t find(const heft_archive *archive, const char *name) {
    uint64_t id;
    heft_error err;
    if (heft_archive_find(archive, name, SIZE_MAX, &id, &err)) fail_msg("%s", err.message);
    return id;
}

static void test_one_file(void **state) {
    (void)state;
    int fds = test_count_fds();
    const char *path = one_file();
    heft_archive *archive = open_path(path, NULL);
    assert_int_equal(heft_archive_count(archive), NLAYERS);
    assert_int_equal(heft_archive_file_count(archive), 1);
    assert_string_equal(heft_archive_path(archive), path);
    assert_null(heft_archive_index_path(archive));
    assert_string_equal(heft_archive_resolution(archive), "one file");
    heft_file file;
    assert_int_equal(heft_archive_file(archive, 0, &file, NULL), HEFT_OK);
    assert_string_equal(file.path, path);
    assert_string_equal(file.format, "safetensors");
    assert_int_equal(file.ntensors, NLAYERS);
    assert_int_equal(file.nwithheld + file.nfillers, 0);
    assert_true(file.has_metadata);
    assert_int_equal(file.nbytes, file.header_nbytes + 76);
    assert_ptr_equal(heft_source_label(heft_archive_source(archive, 0)), file.path);
    for (int i = 0; i < NLAYERS; i++) {
        heft_tensor t;
        uint64_t id = find(archive, layers[i].name);
        assert_int_equal(heft_archive_get(archive, id, &t, NULL), HEFT_OK);
        assert_string_equal(t.name, layers[i].name);
        assert_int_equal(t.id, id);
        assert_int_equal(t.nbytes, layers[i].nbytes);
        assert_string_equal(heft_dtype_name(t.dtype), layers[i].dtype);
        assert_int_equal(t.nelems * heft_dtype_bits(t.dtype), layers[i].nbytes * 8);
        uint8_t bytes[24];
        assert_int_equal(heft_source_read(heft_archive_source(archive, t.file), t.offset, t.nbytes, bytes, NULL),
                         HEFT_OK);
        for (size_t k = 0; k < t.nbytes; k++) assert_int_equal(bytes[k], k);
    }
    assert_int_equal(heft_report_count(heft_archive_warnings(archive)), 0);
    heft_archive_unref(heft_archive_ref(archive));
    heft_archive_unref(archive);
    heft_archive_unref(NULL);
    assert_int_equal(test_count_fds(), fds);
}

static void test_bad_calls(void **state) {
    (void)state;
    heft_archive *archive = open_path(one_file(), NULL), *none = archive;
    heft_error err;
    heft_tensor t;
    heft_file f;
    heft_pair pair;
    const uint64_t *ids;
    assert_int_equal(heft_archive_get(archive, NLAYERS, &t, &err), HEFT_INVALID_ARGUMENT);
    assert_int_equal(heft_archive_file(archive, 1, &f, &err), HEFT_INVALID_ARGUMENT);
    assert_null(heft_archive_source(archive, 1));
    assert_int_equal(heft_archive_order(archive, 3, &ids, &err), HEFT_INVALID_ARGUMENT);
    assert_null(ids);
    assert_int_equal(heft_archive_metadata(archive, 0, 2, &pair, &err), HEFT_INVALID_ARGUMENT);
    assert_int_equal(heft_archive_metadata(archive, 1, 0, &pair, &err), HEFT_INVALID_ARGUMENT);
    assert_int_equal(heft_archive_metadata_count(archive, 1), 0);
    heft_archive_unref(archive);
    assert_int_equal(heft_archive_open(NULL, NULL, &none, &err), HEFT_INVALID_ARGUMENT);
    assert_null(none);
    assert_int_equal(heft_archive_open("", NULL, &none, &err), HEFT_NOT_FOUND);
    assert_int_equal(heft_archive_open_files(NULL, 0, NULL, &none, &err), HEFT_INVALID_ARGUMENT);
    const char *paths[] = {one_file(), NULL};
    assert_int_equal(heft_archive_open_files(paths, 2, NULL, &none, &err), HEFT_INVALID_ARGUMENT);
    assert_int_equal(heft_archive_open_source(NULL, NULL, &none, &err), HEFT_INVALID_ARGUMENT);
    heft_allocator broken = {0};
    heft_open_options bad[] = {
        {.struct_size = sizeof bad[0], .lenient = HEFT_LENIENT_ALL + 1},
        {.struct_size = sizeof bad[0], .index = 3},
        {.struct_size = sizeof bad[0], .links = 2},
        {.struct_size = sizeof bad[0], .allocator = &broken},
        {.struct_size = sizeof bad[0], .variant = "a/b"},
        {.struct_size = sizeof bad[0], .variant = ""},
        {.struct_size = 3},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        none = (heft_archive *)&err;
        assert_int_equal(heft_archive_open(paths[0], &bad[i], &none, &err), HEFT_INVALID_ARGUMENT);
        assert_null(none);
        assert_int_equal(heft_archive_open(paths[0], &bad[i], &none, NULL), HEFT_INVALID_ARGUMENT);
    }
}

static void test_orders(void **state) {
    (void)state;
    static const char *const expected[2][NLAYERS] = {
        {"empty", "lm_head", "model.layers.10.weight", "model.layers.2.bias", "model.layers.2.weight", "scalar"},
        {"empty", "lm_head", "model.layers.2.bias", "model.layers.2.weight", "model.layers.10.weight", "scalar"}};
    heft_archive *archive = open_path(one_file(), NULL);
    for (heft_order order = 0; order < 3; order++) {
        const uint64_t *ids;
        assert_int_equal(heft_archive_order(archive, order, &ids, NULL), HEFT_OK);
        for (uint64_t i = 0; i < NLAYERS; i++) {
            heft_tensor t;
            assert_int_equal(heft_archive_get(archive, ids[i], &t, NULL), HEFT_OK);
            if (order == HEFT_ORDER_FILE)
                assert_int_equal(ids[i], i);
            else
                assert_string_equal(t.name, expected[order][i]);
        }
    }
    heft_archive_unref(archive);
}

static void test_nearest_names(void **state) {
    (void)state;
    heft_archive *archive = open_path(one_file(), NULL);
    static const struct {
        const char *wanted, *offered; /* NULL: nothing */
    } rows[] = {{"model.layers.2.wieght", "did you mean \"model.layers.2.weight\""},
                {"layers.2.bias", "\"model.layers.2.bias\""},
                {"model.layers.2", "\"model.layers.2.bias\""},
                {"lm_haed", "\"lm_head\""},
                {"nothing like it at all", NULL},
                {"", NULL}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        heft_error err;
        uint64_t id = 7;
        assert_int_equal(heft_archive_find(archive, rows[i].wanted, SIZE_MAX, &id, &err), HEFT_NOT_FOUND);
        assert_int_equal(id, 0);
        assert_string_equal(err.tensor, rows[i].wanted);
        assert_non_null(strstr(err.message, "no tensor"));
        if (rows[i].offered)
            assert_non_null(strstr(err.message, rows[i].offered));
        else
            assert_null(strstr(err.message, "did you mean"));
        assert_int_equal(heft_archive_find(archive, rows[i].wanted, SIZE_MAX, &id, NULL), HEFT_NOT_FOUND);
    }
    heft_archive_unref(archive);
}

static bool not_empty(void *ctx, const heft_tensor *tensor) {
    ++*(int *)ctx;
    return tensor->nelems > 0;
}

static void test_select(void **state) {
    (void)state;
    heft_archive *archive = open_path(one_file(), NULL);
    const char *weights[] = {"*.weight", "scalar"}, *two[] = {"*.2.*"}, *prefix[] = {"model.", "em"},
               *bad[] = {"ok", "[x"};
    int calls = 0;
    struct {
        heft_selection s;
        const char *kept;
    } rows[] = {
        {{0}, "empty lm_head model.layers.10.weight model.layers.2.bias model.layers.2.weight scalar "},
        {{.include = weights, .ninclude = 2}, "model.layers.10.weight model.layers.2.weight scalar "},
        {{.include = weights, .ninclude = 2, .exclude = two, .nexclude = 1}, "model.layers.10.weight scalar "},
        {{.prefix = prefix, .nprefix = 2, .order = HEFT_ORDER_NATURAL},
         "empty model.layers.2.bias model.layers.2.weight model.layers.10.weight "},
        {{.prefix = prefix, .nprefix = 2, .include = two, .ninclude = 1}, "model.layers.2.bias model.layers.2.weight "},
        {{.predicate = not_empty, .predicate_ctx = &calls, .exclude = weights, .nexclude = 1},
         "lm_head model.layers.2.bias scalar "},
        {{.include = weights + 1, .ninclude = 1, .exclude = weights + 1, .nexclude = 1}, ""},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        heft_buffer buffer;
        uint64_t n;
        char text[400] = "";
        rows[i].s.struct_size = sizeof rows[i].s;
        assert_int_equal(heft_archive_select(archive, i ? &rows[i].s : NULL, &buffer, &n, NULL), HEFT_OK);
        assert_non_null(buffer.data);
        assert_int_equal(buffer.nbytes, n * sizeof(uint64_t));
        for (uint64_t k = 0; k < n; k++) {
            heft_tensor t;
            heft_archive_get(archive, ((uint64_t *)buffer.data)[k], &t, NULL);
            strcat(strcat(text, t.name), " ");
        }
        assert_string_equal(text, rows[i].kept);
        heft_buffer_release(&buffer);
        assert_null(buffer.data);
    }
    assert_int_equal(calls, 4);
    heft_error err;
    heft_buffer buffer;
    uint64_t n;
    heft_selection s = {.struct_size = sizeof s, .exclude = bad, .nexclude = 2};
    assert_int_equal(heft_archive_select(archive, &s, &buffer, &n, &err), HEFT_INVALID_ARGUMENT);
    assert_int_equal(err.offset, 0);
    assert_non_null(strstr(err.message, "[x"));
    assert_null(buffer.data);
    s = (heft_selection){.struct_size = sizeof s, .order = 9};
    assert_int_equal(heft_archive_select(archive, &s, &buffer, &n, &err), HEFT_INVALID_ARGUMENT);
    /* A buffer of ids does not need its archive. */
    assert_int_equal(heft_archive_select(archive, NULL, &buffer, &n, &err), HEFT_OK);
    heft_archive_unref(archive);
    assert_int_equal(((uint64_t *)buffer.data)[n - 1] < NLAYERS, 1);
    heft_buffer_release(&buffer);
}

static void test_glob_match(void **state) {
    (void)state;
    heft_error err;
    bool matches = true;
    assert_int_equal(heft_glob_match("a.*.c", "a.b.b.c", SIZE_MAX, &matches, &err), HEFT_OK);
    assert_true(matches);
    assert_int_equal(heft_glob_match("a.*.c", "a.b.b.cd", 7, &matches, &err), HEFT_OK);
    assert_true(matches);
    assert_int_equal(heft_glob_match("a.?", "a.bc", SIZE_MAX, &matches, &err), HEFT_OK);
    assert_false(matches);
    matches = true;
    assert_int_equal(heft_glob_match("ab[", "x", 1, &matches, &err), HEFT_INVALID_ARGUMENT);
    assert_int_equal(err.offset, 2);
    assert_false(matches);
}

static void expect_pair(const heft_archive *archive, uint32_t file, const char *key, const char *value) {
    heft_pair pair;
    heft_error err;
    heft_status status = heft_archive_metadata_find(archive, file, key, SIZE_MAX, &pair, &err);
    if (!value) {
        assert_int_equal(status, HEFT_NOT_FOUND);
        assert_non_null(strstr(err.message, key));
        return;
    }
    assert_int_equal(status, HEFT_OK);
    assert_string_equal(pair.value, value);
    assert_int_equal(pair.value_len, strlen(value));
}

static void test_merged_metadata(void **state) {
    (void)state;
    static const char *const metadata[] = {"{\"format\":\"pt\",\"same\":\"x\",\"only0\":\"0\"}",
                                           "{\"format\":\"mlx\",\"same\":\"x\",\"v\":\"1\"}", NULL, "{}",
                                           "{\"same\":\"x\",\"v\":\"2\",\"z\":\"\"}"};
    const char *paths[5];
    for (int i = 0; i < 5; i++) {
        char name[32], tensor[8];
        snprintf(name, sizeof name, "meta/%d", i);
        snprintf(tensor, sizeof tensor, "t%d", i);
        paths[i] = test_write_safetensors(name, &(test_tensor){tensor, "U8", "1", NULL, 1}, 1, metadata[i]);
    }
    heft_archive *archive;
    heft_error err;
    assert_int_equal(heft_archive_open_files(paths, 5, NULL, &archive, &err), HEFT_OK);
    assert_string_equal(heft_archive_resolution(archive), "list of files");
    assert_int_equal(heft_archive_metadata_count(archive, HEFT_MERGED), 3);
    static const char *const keys[] = {"only0", "same", "z"};
    for (int i = 0; i < 3; i++) {
        heft_pair pair;
        assert_int_equal(heft_archive_metadata(archive, HEFT_MERGED, (uint64_t)i, &pair, NULL), HEFT_OK);
        assert_string_equal(pair.key, keys[i]);
    }
    expect_pair(archive, HEFT_MERGED, "same", "x");
    expect_pair(archive, HEFT_MERGED, "z", "");
    expect_pair(archive, HEFT_MERGED, "format", NULL);
    expect_pair(archive, 0, "format", "pt");
    expect_pair(archive, 1, "format", "mlx");
    expect_pair(archive, 4, "v", "2");
    expect_pair(archive, 9, "v", NULL);
    heft_file f;
    heft_archive_file(archive, 2, &f, NULL);
    assert_false(f.has_metadata);
    heft_archive_file(archive, 3, &f, NULL);
    assert_true(f.has_metadata);
    const heft_report *warnings = heft_archive_warnings(archive);
    heft_severity severity;
    heft_error fault;
    assert_int_equal(heft_report_count(warnings), 1);
    assert_int_equal(heft_report_get(warnings, 0, &severity, &fault, NULL), HEFT_OK);
    assert_int_equal(severity, HEFT_SEVERITY_WARNING);
    assert_int_equal(fault.fault, HEFT_FAULT_METADATA_DIFFERS);
    assert_non_null(strstr(fault.message, "2 metadata keys"));
    assert_non_null(strstr(fault.message, "\"format\""));
    assert_int_equal(heft_report_get(warnings, 1, &severity, &fault, &err), HEFT_INVALID_ARGUMENT);
    heft_archive_unref(archive);
    heft_open_options strict = {.struct_size = sizeof strict, .strict = true};
    assert_int_equal(heft_archive_open_files(paths, 5, &strict, &archive, &err), HEFT_MISMATCH);
    assert_null(archive);
    assert_int_equal(err.fault, HEFT_FAULT_METADATA_DIFFERS);
}

static void test_shared_names(void **state) {
    (void)state;
    const test_tensor a[] = {{"x", "U8", "1", NULL, 1}, {"y", "U8", "1", NULL, 1}, {"w", "U8", "1", NULL, 1}};
    const char *paths[3] = {test_write_safetensors("shared/0", a, 2, NULL),
                            test_write_safetensors("shared/1", a + 1, 2, NULL),
                            test_write_safetensors("shared/2", a, 3, NULL)};
    heft_archive *archive;
    heft_error err;
    assert_int_equal(heft_archive_open_files(paths, 2, NULL, &archive, &err), HEFT_CORRUPT);
    assert_null(archive);
    assert_int_equal(err.fault, HEFT_FAULT_SHARED_NAME);
    assert_int_equal(err.more, 0);
    assert_string_equal(err.tensor, "y");
    assert_string_equal(err.file, paths[1]);
    assert_non_null(strstr(err.message, "\"0\""));
    assert_int_equal(heft_archive_open_files(paths, 3, NULL, &archive, &err), HEFT_CORRUPT);
    assert_int_equal(err.more, 3); /* y in 1; w, x, y in 2 */
}

/* Fillers: hidden by the exact rule, shown on request, in several files too. */
static void test_fillers(void **state) {
    (void)state;
    const test_tensor a[] = {{"a", "F32", "64", NULL, 256},
                             {"__heft_pad__.00000000", "U8", "44", NULL, 44},
                             {"__heft_pad__.0000000x", "U8", "1", NULL, 1},
                             {"__heft_pad__.000000000", "U8", "1", NULL, 1},
                             {"__heft_pad__.00000001", "I8", "1", NULL, 1},
                             {"__heft_pad__.00000002", "U8", "1,1", NULL, 1},
                             {"__heft_pad__.00000003", "U8", "65535", NULL, 65535},
                             {"__heft_pad__.00000004", "U8", "65536", NULL, 65536}};
    const test_tensor b[] = {{"b", "F32", "64", NULL, 256}, {"__heft_pad__.00000000", "U8", "44", NULL, 44}};
    const char *paths[] = {test_write_safetensors("fill/a", a, 8, NULL), test_write_safetensors("fill/b", b, 2, NULL)};
    heft_archive *archive = open_path(paths[0], NULL);
    uint64_t id;
    heft_file file;
    assert_int_equal(heft_archive_count(archive), 6);
    heft_archive_file(archive, 0, &file, NULL);
    assert_int_equal(file.nfillers, 2);
    assert_int_equal(file.ntensors, 6);
    assert_int_equal(heft_archive_find(archive, a[1].name, SIZE_MAX, &id, NULL), HEFT_NOT_FOUND);
    assert_int_equal(heft_archive_find(archive, a[6].name, SIZE_MAX, &id, NULL), HEFT_NOT_FOUND);
    for (int i = 0; i < 8; i++)
        if (i != 1 && i != 6) find(archive, a[i].name);
    heft_archive_unref(archive);
    heft_open_options show = {.struct_size = sizeof show, .show_fillers = true};
    archive = open_path(paths[0], &show);
    assert_int_equal(heft_archive_count(archive), 8);
    find(archive, a[1].name);
    heft_archive_unref(archive);
    heft_error err;
    assert_int_equal(heft_archive_open_files(paths, 2, NULL, &archive, &err), HEFT_OK);
    assert_int_equal(heft_archive_count(archive), 7);
    heft_archive_unref(archive);
    assert_int_equal(heft_archive_open_files(paths, 2, &show, &archive, &err), HEFT_OK);
    assert_int_equal(heft_archive_count(archive), 10);
    heft_tensor t;
    heft_archive_get(archive, find(archive, a[1].name), &t, NULL);
    assert_int_equal(t.file, 0);
    heft_archive_unref(archive);
}

static void test_sources(void **state) {
    (void)state;
    size_t n;
    uint8_t *data = test_safetensors(layers, NLAYERS, NULL, &n);
    test_bytes bytes = {.data = data, .nbytes = n, .most = 7, .eintr = true};
    heft_source *source = test_source(&bytes);
    heft_archive *archive;
    heft_error err;
    assert_int_equal(heft_archive_open_source(source, NULL, &archive, &err), HEFT_OK);
    heft_source_unref(source);
    assert_int_equal(bytes.released, 0);
    assert_true(bytes.read_nbytes <= n - 76);
    assert_int_equal(heft_archive_count(archive), NLAYERS);
    assert_string_equal(heft_archive_path(archive), heft_source_label(heft_archive_source(archive, 0)));
    heft_archive_unref(archive);
    assert_int_equal(bytes.released, 1);
    bytes = (test_bytes){.data = data, .nbytes = n, .fail_call = 2, .fail_errno = 5};
    source = test_source(&bytes);
    assert_int_equal(heft_archive_open_source(source, NULL, &archive, &err), HEFT_IO);
    assert_null(archive);
    heft_source_unref(source);
    assert_int_equal(bytes.released, 1);
    free(data);
}

/* A file that is no checkpoint, opened alone and in a list: the first by place is reported, the others are counted. */
static void test_first_failure(void **state) {
    (void)state;
    const char *paths[12];
    for (int i = 0; i < 12; i++) {
        char name[32], text[64], tensor[8];
        snprintf(name, sizeof name, "bad/%02d", i);
        snprintf(text, sizeof text, "this is text number %d and nothing else", i);
        snprintf(tensor, sizeof tensor, "t%d", i);
        if (i % 3 == 2)
            paths[i] = test_write(name, text, strlen(text));
        else
            paths[i] = test_write_safetensors(name, &(test_tensor){tensor, "U8", "1", NULL, 1}, 1, NULL);
    }
    int fds = test_count_fds();
    for (uint32_t workers = 0; workers < 40; workers++) {
        heft_open_options options = {.struct_size = sizeof options, .workers = workers % 9};
        heft_archive *archive;
        heft_error err;
        assert_int_equal(heft_archive_open_files(paths, 12, &options, &archive, &err), HEFT_CORRUPT);
        assert_string_equal(err.file, paths[2]);
        assert_int_equal(err.more, 3);
        assert_int_equal(err.fault, HEFT_FAULT_TEXT);
    }
    assert_int_equal(test_count_fds(), fds);
}

static heft_status open_and_use(const heft_allocator *alloc, const char *const *paths, size_t npaths) {
    heft_open_options options = {
        .struct_size = sizeof options, .allocator = alloc, .workers = 2, .lenient = HEFT_LENIENT_ALL};
    heft_archive *archive;
    heft_error err;
    heft_status status = npaths == 1 ? heft_archive_open(paths[0], &options, &archive, &err)
                                     : heft_archive_open_files(paths, npaths, &options, &archive, &err);
    if (status) {
        assert_null(archive);
        assert_int_equal(err.status, status);
        return status;
    }
    const uint64_t *ids;
    heft_buffer buffer = {0};
    uint64_t n;
    for (heft_order order = 0; order < 3 && !status; order++) status = heft_archive_order(archive, order, &ids, &err);
    if (!status) status = heft_archive_select(archive, NULL, &buffer, &n, &err);
    heft_buffer_release(&buffer);
    heft_archive_unref(archive);
    return status;
}

static void test_out_of_memory(void **state) {
    (void)state;
    const test_tensor second[] = {{"b", "F32", "64", NULL, 256}, {"__heft_pad__.00000000", "U8", "44", NULL, 44}};
    const char *paths[] = {one_file(), test_write_safetensors("oom/b", second, 2, "{\"format\":\"np\",\"b\":\"2\"}")};
    int fds = test_count_fds();
    for (size_t npaths = 1; npaths <= 2; npaths++) {
        for (int after = 0; after < 2; after++) {
            for (uint64_t k = 1;; k++) {
                test_allocator t;
                test_allocator_init(&t, k);
                t.fail_after = after;
                heft_status status = open_and_use(&t.alloc, paths, npaths);
                assert_int_equal(t.live_blocks, 0);
                assert_int_equal(test_count_fds(), fds);
                if (status == HEFT_OK) break;
                assert_int_equal(status, HEFT_OUT_OF_MEMORY);
            }
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_file),        cmocka_unit_test(test_bad_calls),
        cmocka_unit_test(test_orders),          cmocka_unit_test(test_nearest_names),
        cmocka_unit_test(test_select),          cmocka_unit_test(test_glob_match),
        cmocka_unit_test(test_merged_metadata), cmocka_unit_test(test_shared_names),
        cmocka_unit_test(test_fillers),         cmocka_unit_test(test_sources),
        cmocka_unit_test(test_first_failure),   cmocka_unit_test(test_out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
