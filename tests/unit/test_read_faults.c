/* label: threads */
/* Reads that fail: devices, truncation, replaced files, cancelling, memory, wrong calls. One clear error each. */
#include "helper_archive.h"
#include "helper_files.h"

#include "heft/values.h"
#include "ops/run.h"

#include <errno.h>
#include <unistd.h>

#define ROOM 60000
static uint8_t bytes[ROOM], got[ROOM], want[ROOM];
static heft_error err;

/* t0 U8 [100, 100], t1 F32 [1000] two bytes after it, t2 F4 [4001 x 2], t3 I16 [0], t4 F32 [2500] */
static const made_tensor tensors[] = {
    {HEFT_U8, 8, 10008, 2, {100, 100}},       {HEFT_F32, 10010, 14010, 1, {1000}}, {HEFT_F4, 14010, 18011, 2, {4001, 2}},
    {HEFT_I16, 18011, 18011, 1, {0}}, {HEFT_F32, 40012, 50012, 1, {2500}},
};
enum { TENSORS = 5 };

static heft_read_options small_blocks(void) {
    return (heft_read_options){.struct_size = sizeof(heft_read_options), .workers = 3, .block_nbytes = 1000};
}

static int setup(void **state) {
    (void)state;
    uint64_t random = 5;
    for (size_t i = 0; i < ROOM; i++) bytes[i] = (uint8_t)(test_random(&random) >> 40);
    return 0;
}

static void every_other_row(const made_archive *made, heft_view *view) {
    *view = made_view(made, 0);
    view->shape[0] = 50;
    view->stride[0] = 200;
    view->shape[1] = 60;
}

static void one_byte_at_a_time(void **state) {
    (void)state;
    test_bytes origin = {.data = bytes, .nbytes = ROOM, .most = 1, .eintr = true};
    made_archive made;
    heft_source *source = test_source(&origin);
    heft_read_stats stats;
    heft_read_options options = small_blocks();
    made_archive_init(&made, source, tensors, TENSORS);
    for (uint64_t id = 0; id < TENSORS; id++) {
        heft_view view = made_view(&made, id);
        if (id == 0) every_other_row(&made, &view);
        uint64_t n = heft_view_nbytes(&view);
        naive_gather(&view, bytes, want);
        memset(got, 0xA5, sizeof got);
        assert_int_equal(heft_read(&view, got, n, &options, &stats, &err), HEFT_OK);
        if (heft__dtypes[view.dtype].component_bits == 8 || !HEFT__HOST_IS_BIG_ENDIAN) assert_memory_equal(got, want, n);
        assert_int_equal(got[n], 0xA5);
        assert_int_equal(stats.kept_nbytes, n);
        assert_int_equal(stats.requests, stats.requested_nbytes + stats.retries);
    }
    heft_source_unref(source);
}

static void a_failing_call_names_tensor_and_place(void **state) {
    (void)state;
    made_archive made;
    for (uint64_t k = 1;; k++) {
        test_bytes origin = {.data = bytes, .nbytes = ROOM, .most = 700, .fail_call = k, .fail_errno = EIO, .fail_on = true};
        heft_source *source = test_source(&origin);
        made_archive_init(&made, source, tensors, TENSORS);
        heft_buffer buffer;
        heft_read_stats stats;
        heft_read_options options = small_blocks();
        heft_status status = heft_read_many(&made.archive, NULL, 0, &options, &buffer, NULL, &stats, &err);
        heft_source_unref(source);
        if (status == HEFT_OK) {
            assert_true(k > 20);
            heft_buffer_release(&buffer);
            break;
        }
        assert_int_equal(status, HEFT_IO);
        assert_int_equal(err.sys_errno, EIO);
        assert_null(buffer.data);
        assert_int_equal(stats.kept_nbytes, 0);
        assert_int_equal(err.tensor[0], 't');
        assert_non_null(strstr(err.message, err.tensor));
        uint64_t id = (uint64_t)(err.tensor[1] - '0');
        assert_true(err.offset < tensors[id].end);
        assert_true(err.offset >= (id ? tensors[id - 1].end : 0));
        assert_int_equal(origin.released, 1);
    }
}

static void lost_tails_are_never_zeros(void **state) {
    (void)state;
    made_archive made;
    for (uint64_t end = 10000; end < 50012; end += end < 18000 ? 9 : 997) {
        test_bytes origin = {.data = bytes, .nbytes = ROOM, .end = end};
        heft_source *source = test_source(&origin);
        made_archive_init(&made, source, tensors, TENSORS);
        heft_buffer buffer;
        heft_read_options options = small_blocks();
        options.keep_file_order = true; /* swapped tensors would be read apart */
        assert_int_equal(heft_read_many(&made.archive, NULL, 0, &options, &buffer, NULL, NULL, &err), HEFT_IO);
        assert_int_equal(err.fault, HEFT_FAULT_TRUNCATED);
        uint64_t id = end < 10008 ? 0 : end < 14010 ? 1 : end < 18011 ? 2 : 4;
        assert_int_equal(err.tensor[1] - '0', id);
        if (err.offset + err.found != end) assert_true(end > 18011 && err.found == 0); /* the gap is not read */
        assert_true(err.found < err.expected);
        heft_source_unref(source);
    }
}

static heft_source *file_of(const char *name) {
    heft_source *source;
    const char *path = test_write(name, bytes, ROOM);
    assert_int_equal(heft_source_open_file(path, &source, &err), HEFT_OK);
    return source;
}

static void files_that_change_are_not_read(void **state) {
    (void)state;
    made_archive made;
    heft_source *source = file_of("shrinks.bin");
    made_archive_init(&made, source, tensors, TENSORS);
    heft_view view = made_view(&made, 1);
    assert_int_equal(heft_read(&view, got, sizeof got, NULL, NULL, &err), HEFT_OK);
    assert_int_equal(truncate(test_path("shrinks.bin"), 12010), 0);
    assert_int_equal(heft_read(&view, got, sizeof got, NULL, NULL, &err), HEFT_IO);
    assert_int_equal(err.fault, HEFT_FAULT_TRUNCATED);
    assert_string_equal(err.tensor, "t1");
    assert_int_equal(err.offset, 10010);
    assert_int_equal(err.expected, 4000);
    assert_int_equal(err.found, 2000);
    view = made_view(&made, 0); /* whole, but who knows what it holds now */
    assert_int_equal(heft_read(&view, got, sizeof got, NULL, NULL, &err), HEFT_MISMATCH);
    assert_int_equal(err.fault, HEFT_FAULT_FILE_CHANGED);
    heft_source_unref(source);

    source = file_of("grows.bin");
    made_archive_init(&made, source, tensors, TENSORS);
    view = made_view(&made, 1);
    assert_int_equal(truncate(test_path("grows.bin"), ROOM + 1), 0);
    assert_int_equal(heft_read(&view, got, sizeof got, NULL, NULL, &err), HEFT_MISMATCH);
    heft_source_unref(source);

    source = file_of("replaced.bin"); /* by rename: the open file is the old one and stays whole */
    made_archive_init(&made, source, tensors, TENSORS);
    view = made_view(&made, 0);
    char old[1024];
    snprintf(old, sizeof old, "%s", test_write("new.bin", want, 100));
    assert_int_equal(rename(old, test_path("replaced.bin")), 0);
    assert_int_equal(heft_read(&view, got, sizeof got, NULL, NULL, &err), HEFT_OK);
    assert_memory_equal(got, bytes + 8, 10000);
    heft_source_unref(source);
}

typedef struct canceller {
    uint64_t calls, stop_at, last;
    bool wrong;
} canceller;

static int cancel_at(void *ctx, uint64_t done, uint64_t total) {
    canceller *c = ctx;
    if (done < c->last || done > total || (c->calls == 0) != (done == 0)) c->wrong = true;
    c->last = done;
    return c->calls++ == c->stop_at;
}

static void cancelling_stops(void **state) {
    (void)state;
    made_archive made;
    test_bytes origin = {.data = bytes, .nbytes = ROOM};
    heft_source *source = test_source(&origin);
    made_archive_init(&made, source, tensors, TENSORS);
    for (uint64_t k = 0;; k++) {
        canceller c = {.stop_at = k};
        heft_read_options options = small_blocks();
        options.progress = cancel_at;
        options.progress_ctx = &c;
        heft_buffer buffer;
        heft_read_stats stats;
        heft_status status = heft_read_many(&made.archive, NULL, 0, &options, &buffer, NULL, &stats, &err);
        assert_false(c.wrong);
        if (status == HEFT_OK) {
            assert_int_equal(c.last, stats.requested_nbytes);
            assert_true(k >= 2); /* at 0 and at the end at least */
            heft_buffer_release(&buffer);
            break;
        }
        assert_int_equal(status, HEFT_CANCELLED);
        assert_int_equal(c.calls, k + 1);
        assert_null(buffer.data);
        if (k == 0) assert_int_equal(stats.requested_nbytes, 0);
    }
    heft_source_unref(source);
}

static void every_allocation_may_fail(void **state) {
    (void)state;
    made_archive made;
    test_bytes origin = {.data = bytes, .nbytes = ROOM};
    heft_source *source = test_source(&origin);
    made_archive_init(&made, source, tensors, TENSORS);
    for (int job = 0; job < 7; job++) {
        for (uint64_t k = 1;; k++) {
            test_allocator t;
            test_allocator_init(&t, k);
            heft_read_options options = small_blocks();
            options.allocator = &t.alloc;
            heft_view view, views[3];
            every_other_row(&made, &view);
            heft_buffer buffer = {0};
            heft_plan *plan = NULL;
            heft_stats values;
            static const uint64_t ids[] = {4, 0, 2, 1}, sizes[] = {10000, 10000, 10000, 10000};
            void *places[] = {got, got + 10000, got + 20000, got + 30000};
            heft_status status = HEFT_OK;
            if (job == 0) status = heft_read(&view, got, sizeof got, &options, NULL, &err);
            if (job == 1) status = heft_read_buffer(&view, &options, &buffer, NULL, &err);
            if (job == 2) status = heft_read_many(&made.archive, ids, 4, &options, &buffer, NULL, NULL, &err);
            if (job == 3) status = heft_read_many_into(&made.archive, ids, 4, places, sizes, &options, NULL, &err);
            if (job == 4) status = heft_view_stats(&view, &options, &values, NULL, &err);
            if (job == 5) {
                for (uint64_t i = 0; i < 3; i++) views[i] = made_view(&made, i);
                views[1].shape[0] = 100;
                views[1].stride[0] = 10;
                views[2].offset = 1;
                views[2].shape[0] = 3;
                status = heft_plan_views(views, 3, NULL, &options, &plan, &err);
                if (status == HEFT_OK) status = heft_plan_execute(plan, got, sizeof got, NULL, &err);
            }
            if (job == 6) { /* so small a budget for gaps that they are sorted */
                options.gap_nbytes = UINT64_C(1) << 60;
                status = heft_read_many(&made.archive, ids, 4, &options, &buffer, NULL, NULL, &err);
            }
            heft_plan_free(plan);
            if (status == HEFT_OK) heft_buffer_release(&buffer);
            assert_null(buffer.data);
            assert_int_equal(t.live_blocks, 0);
            if (status == HEFT_OK) {
                assert_true(k > 2);
                break;
            }
            assert_int_equal(status, HEFT_OUT_OF_MEMORY);
            assert_true(k < 100);
        }
    }
    heft_source_unref(source);
}

static void wrong_calls_are_refused(void **state) {
    (void)state;
    made_archive made;
    test_bytes origin = {.data = bytes, .nbytes = ROOM};
    heft_source *source = test_source(&origin);
    made_archive_init(&made, source, tensors, TENSORS);
    heft_view view = made_view(&made, 1), bad;
    heft_buffer buffer;
    heft_read_options options = small_blocks();
    const uint64_t twice[] = {2, 1, 2}, far[] = {1, 5};
    void *place = got;
    uint64_t size = 3999;
    assert_int_equal(heft_read(&view, got, 3999, NULL, NULL, &err), HEFT_INVALID_ARGUMENT);
    assert_int_equal(err.expected, 4000);
    assert_int_equal(err.found, 3999);
    assert_string_equal(err.tensor, "t1");
    assert_int_equal(heft_read(&view, NULL, 4000, NULL, NULL, &err), HEFT_INVALID_ARGUMENT);
    assert_int_equal(heft_read(NULL, got, 4000, NULL, NULL, NULL), HEFT_INVALID_ARGUMENT);
    assert_int_equal(heft_read_many(&made.archive, twice, 3, NULL, &buffer, NULL, NULL, &err), HEFT_INVALID_ARGUMENT);
    assert_non_null(strstr(err.message, "twice"));
    assert_int_equal(heft_read_many(&made.archive, far, 2, NULL, &buffer, NULL, NULL, &err), HEFT_INVALID_ARGUMENT);
    assert_int_equal(heft_read_many_into(&made.archive, twice + 1, 1, &place, &size, NULL, NULL, &err), HEFT_INVALID_ARGUMENT);
    options.struct_size = 3;
    assert_int_equal(heft_read(&view, got, 4000, &options, NULL, &err), HEFT_INVALID_ARGUMENT);
    for (int i = 0; i < 7; i++) { /* views that nobody made */
        bad = view;
        if (i == 0) bad.offset = 1;
        if (i == 1) bad.offset = -1;
        if (i == 2) bad.stride[0] = INT64_MAX;
        if (i == 3) bad.shape[0] = INT64_MAX;
        if (i == 4) bad.shape[0] = -1;
        if (i == 5) bad.id = 5;
        if (i == 6) bad.dtype = HEFT_F64;
        heft_status status = heft_read(&bad, got, sizeof got, NULL, NULL, &err);
        assert_true(status == HEFT_INVALID_ARGUMENT || (i == 3 && status == HEFT_LIMIT));
    }
    const int64_t stride[] = {INT64_MIN, 1};
    heft_view packed = made_view(&made, 2);
    assert_int_equal(heft_read_strided(&view, got, stride, NULL, NULL, &err), HEFT_INVALID_ARGUMENT);
    assert_int_equal(heft_read_strided(&packed, got, stride, NULL, NULL, &err), HEFT_UNSUPPORTED);
    assert_int_equal(heft_read_strided(&view, NULL, stride, NULL, NULL, &err), HEFT_INVALID_ARGUMENT);
    view = made_view(&made, 3); /* nothing to read: nothing is needed */
    assert_int_equal(heft_read(&view, NULL, 0, NULL, NULL, &err), HEFT_OK);
    assert_int_equal(heft_read_buffer(&view, NULL, &buffer, NULL, &err), HEFT_OK);
    assert_non_null(buffer.data);
    heft_buffer_release(&buffer);
    assert_int_equal(heft_read_many(&made.archive, twice, 0, NULL, &buffer, NULL, NULL, &err), HEFT_OK);
    heft_buffer_release(&buffer);
    assert_int_equal(origin.calls, 0);
    heft_source_unref(source);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_byte_at_a_time),
        cmocka_unit_test(a_failing_call_names_tensor_and_place),
        cmocka_unit_test(lost_tails_are_never_zeros),
        cmocka_unit_test(files_that_change_are_not_read),
        cmocka_unit_test(cancelling_stops),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(wrong_calls_are_refused),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
