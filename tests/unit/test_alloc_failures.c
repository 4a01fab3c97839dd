/* Every allocation of a whole job fails in turn: opening, listing, selecting, slicing, planning, reading, borrowing, checking.
 * The job then ends in OUT_OF_MEMORY with nothing leaked, neither memory nor descriptors, and every output empty. */
#include "helper_files.h"

#include "heft/values.h"

typedef heft_status (*alloc_job)(const heft_allocator *alloc, heft_error *err);

static char folder[4096]; /* an index, two shards, a warning (total_size), metadata that differs */
static char single[4096]; /* one file: several dtypes, a tensor that is not aligned */
static char damaged[4096];

static void write_inputs(void) {
    static const test_tensor one[] = {{"layers.10.w", "F32", "16,8", NULL, 512}, {"layers.2.w", "BF16", "10", NULL, 20}},
                             two[] = {{"head", "F32", "4,4", NULL, 64}, {"n", "F4", "4", NULL, 2}};
    strcpy(folder, test_mkdir("set"));
    test_write_safetensors("set/model-00001-of-00002.safetensors", one, 2, "{\"a\":\"1\",\"b\":\"same\"}");
    test_write_safetensors("set/model-00002-of-00002.safetensors", two, 2, "{\"a\":\"2\",\"b\":\"same\"}");
    const char *index = "{\"metadata\":{\"total_size\":7},\"weight_map\":{"
                        "\"layers.10.w\":\"model-00001-of-00002.safetensors\","
                        "\"layers.2.w\":\"model-00001-of-00002.safetensors\",\"head\":\"model-00002-of-00002.safetensors\"}}";
    test_write("set/model.safetensors.index.json", index, strlen(index));
    static const test_tensor all[] = {{"u", "U8", "3", NULL, 3}, {"f", "F32", "64,32", NULL, 8192}, {"z", "I64", "0,2", NULL, 0}};
    strcpy(single, test_write_safetensors("single.safetensors", all, 3, "{\"k\":\"v\"}"));
    static const char bad[] = "{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},"
                              "\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[3,5]},"
                              "\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[4,8]}}";
    size_t nbytes;
    uint8_t *file = test_raw_safetensors(bad, strlen(bad), "0123456789abc", 13, &nbytes);
    strcpy(damaged, test_write("damaged.safetensors", file, nbytes));
    free(file);
}

/* Runs a job with its first, second, ... allocation failing, alone or with all that follow, until one run needs no more. */
static void fail_each(const char *what, alloc_job job) {
    for (int after = 0; after < 2; after++) {
        for (uint64_t k = 1;; k++) {
            test_allocator t;
            heft_error err;
            int fds = test_count_fds();
            test_allocator_init(&t, k);
            t.fail_after = after;
            heft_status status = job(&t.alloc, &err);
            assert_int_equal(t.live_blocks, 0);
            assert_int_equal(test_count_fds(), fds);
            if (status == HEFT_OK) {
                assert_true(t.calls < k); /* none failed: a failed one was not lost on the way */
                if (k == 1) fail_msg("%s allocates nothing", what);
                break;
            }
            if (status != HEFT_OUT_OF_MEMORY || err.status != status || err.fault != HEFT_FAULT_MEMORY)
                fail_msg("%s, allocation %llu: %s: %s", what, (unsigned long long)k, heft_status_name(status), err.message);
        }
    }
}

static uint32_t open_workers;

static heft_status open_set(const heft_allocator *alloc, heft_archive **archive, heft_error *err) {
    heft_open_options options = {.struct_size = sizeof options, .allocator = alloc, .workers = open_workers};
    heft_status status = heft_archive_open(folder, &options, archive, err);
    assert_int_equal(status == HEFT_OK, *archive != NULL);
    return status;
}

static heft_status job_open(const heft_allocator *alloc, heft_error *err) {
    heft_archive *archive = NULL;
    heft_status status = open_set(alloc, &archive, err);
    if (status == HEFT_OK) assert_int_equal(heft_archive_count(archive), 3);
    heft_archive_unref(archive);
    return status;
}

static heft_status job_open_files(const heft_allocator *alloc, heft_error *err) {
    heft_open_options options = {.struct_size = sizeof options, .allocator = alloc};
    const char *paths[] = {test_path("set/model-00001-of-00002.safetensors"), single};
    heft_archive *archive = NULL;
    heft_status status = heft_archive_open_files(paths, 2, &options, &archive, err);
    heft_archive_unref(archive);
    if (status != HEFT_OK) return status;
    status = heft_archive_open(test_path("set/model-*.safetensors"), &options, &archive, err);
    heft_archive_unref(archive);
    return status;
}

static heft_status job_open_damaged(const heft_allocator *alloc, heft_error *err) {
    heft_open_options options = {.struct_size = sizeof options, .allocator = alloc};
    heft_archive *archive = NULL;
    heft_status status = heft_archive_open(damaged, &options, &archive, err);
    assert_null(archive);
    if (status != HEFT_CORRUPT) return status;
    assert_int_equal(err->fault, HEFT_FAULT_DUPLICATE_NAME);
    return HEFT_OK;
}

static heft_status job_list(const heft_allocator *alloc, heft_error *err) {
    heft_archive *archive = NULL;
    heft_status status = open_set(alloc, &archive, err);
    const uint64_t *ids;
    for (heft_order order = 0; order < 3 && status == HEFT_OK; order++) status = heft_archive_order(archive, order, &ids, err);
    const char *globs[] = {"layers.*", "h?ad"};
    heft_selection selection = {.struct_size = sizeof selection, .include = globs, .ninclude = 2, .order = HEFT_ORDER_NATURAL};
    heft_buffer buffer = {0};
    uint64_t nids = 0;
    if (status == HEFT_OK) status = heft_archive_select(archive, &selection, &buffer, &nids, err);
    if (status == HEFT_OK) assert_int_equal(nids, 3);
    else assert_null(buffer.data);
    for (uint64_t i = 0; status == HEFT_OK && i < heft_report_count(heft_archive_warnings(archive)); i++) {
        heft_error fault;
        heft_severity severity;
        status = heft_report_get(heft_archive_warnings(archive), i, &severity, &fault, err);
    }
    heft_buffer_release(&buffer);
    heft_archive_unref(archive);
    return status;
}

static heft_status job_read(const heft_allocator *alloc, heft_error *err) {
    heft_archive *archive = NULL;
    heft_status status = open_set(alloc, &archive, err);
    heft_view view;
    float values[128];
    heft_buffer buffer = {0};
    heft_read_options options = {.struct_size = sizeof options, .workers = open_workers};
    if (status == HEFT_OK) status = heft_view_named(archive, "layers.10.w", SIZE_MAX, &view, err);
    if (status == HEFT_OK) status = heft_view_index_text(&view, "::-2,1:5", SIZE_MAX, &view, err);
    if (status == HEFT_OK) status = heft_view_permute(&view, NULL, &view, err);
    if (status == HEFT_OK) status = heft_read(&view, values, sizeof values, &options, NULL, err);
    const int64_t strides[] = {4, 64};
    if (status == HEFT_OK) status = heft_read_strided(&view, values, strides, &options, NULL, err);
    if (status == HEFT_OK) {
        status = heft_read_buffer(&view, &options, &buffer, NULL, err);
        assert_int_equal(status == HEFT_OK, buffer.data != NULL);
        heft_buffer_release(&buffer);
    }
    uint64_t offsets[3];
    if (status == HEFT_OK) {
        status = heft_read_many(archive, NULL, 0, &options, &buffer, offsets, NULL, err);
        assert_int_equal(status == HEFT_OK, buffer.data != NULL);
        heft_buffer_release(&buffer);
    }
    heft_stats stats;
    if (status == HEFT_OK) status = heft_view_stats(&view, &options, &stats, NULL, err);
    heft_archive_unref(archive);
    return status;
}

static heft_status job_plan(const heft_allocator *alloc, heft_error *err) {
    heft_archive *archive = NULL;
    heft_status status = open_set(alloc, &archive, err);
    heft_view views[2];
    heft_plan *plan = NULL;
    uint8_t dst[1024];
    if (status == HEFT_OK) status = heft_view_named(archive, "head", SIZE_MAX, &views[0], err);
    if (status == HEFT_OK) status = heft_view_named(archive, "layers.2.w", SIZE_MAX, &views[1], err);
    if (status == HEFT_OK) status = heft_view_index_text(&views[0], ":,::2", SIZE_MAX, &views[0], err);
    if (status == HEFT_OK) {
        status = heft_plan_views(views, 2, NULL, NULL, &plan, err);
        assert_int_equal(status == HEFT_OK, plan != NULL);
    }
    if (status == HEFT_OK) status = heft_plan_execute(plan, dst, sizeof dst, NULL, err);
    heft_plan_free(plan);
    heft_archive_unref(archive);
    return status;
}

static heft_status job_borrow(const heft_allocator *alloc, heft_error *err) {
    heft_open_options options = {.struct_size = sizeof options, .allocator = alloc};
    heft_archive *archive = NULL;
    heft_view view;
    heft_buffer buffer = {0};
    heft_status status = heft_archive_open(single, &options, &archive, err);
    if (status == HEFT_OK) status = heft_view_named(archive, "u", SIZE_MAX, &view, err); /* bytes: on any host */
    if (status == HEFT_OK) {
        status = heft_borrow(&view, 0, &buffer, err);
        assert_int_equal(status == HEFT_OK, buffer.data != NULL);
    }
    heft_archive_unref(archive); /* the buffer keeps what it needs */
    heft_buffer_release(&buffer);
    return status;
}

static heft_status check_path(const heft_allocator *alloc, const char *path, uint64_t least, heft_error *err) {
    heft_open_options options = {.struct_size = sizeof options, .allocator = alloc};
    heft_report *report = NULL;
    heft_status status = heft_check(path, &options, &report, err);
    assert_int_equal(status == HEFT_OK, report != NULL);
    if (status == HEFT_OK) assert_true(heft_report_count(report) >= least);
    heft_report_free(report);
    return status;
}

static heft_status job_check(const heft_allocator *alloc, heft_error *err) {
    heft_status status = check_path(alloc, folder, 2, err);
    if (status == HEFT_OK) status = check_path(alloc, single, 0, err);
    if (status == HEFT_OK) status = check_path(alloc, damaged, 2, err);
    return status;
}

static void every_allocation_fails_once(void **state) {
    (void)state;
    write_inputs();
    for (open_workers = 1; open_workers <= 2; open_workers++) {
        fail_each("open", job_open);
        fail_each("list", job_list);
        fail_each("read", job_read);
        fail_each("plan", job_plan);
    }
    fail_each("open files", job_open_files);
    fail_each("open damaged", job_open_damaged);
    fail_each("borrow", job_borrow);
    fail_each("check", job_check);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_allocation_fails_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
