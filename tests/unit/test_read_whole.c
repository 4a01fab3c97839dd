/* What reads whole archives (opening, checking, digests, verifying, statistics, differences, saving) where the source fails at each
 * of its reads in turn, and where memory does: one clear error each, nothing leaks, no output is there, no file either. */
#include "helper_files.h"

#include "heft/values.h"

#include <dirent.h>
#include <errno.h>

enum { TENSORS = 3, NELEMS = 900 };

typedef struct whole_file {
    const char *name;
    heft_buffer bytes;
} whole_file;

static whole_file files[2] = {{"safetensors", {0}}, {"npz", {0}}};

static heft_source *source;      /* of the job at work; it is opened before reads fail, unless the job opens */
static heft_archive *archive;    /* of it */
static heft_archive *same;       /* of the same bytes, which can be read */
static const heft_allocator *memory;

static heft_read_options reading(void) {
    return (heft_read_options){.struct_size = sizeof(heft_read_options), .workers = 2, .allocator = memory};
}

static heft_save_options saving(const char *format) {
    return (heft_save_options){
        .struct_size = sizeof(heft_save_options), .workers = 2, .no_sync = true, .allocator = memory, .format = format};
}

static void items_of(heft_save_item items[TENSORS]) {
    for (uint64_t i = 0; i < TENSORS; i++) {
        heft_tensor tensor;
        assert_int_equal(heft_archive_get(archive, i, &tensor, NULL), HEFT_OK);
        items[i] = (heft_save_item){.name = tensor.name, .archive = archive, .id = i};
    }
    items[1].as = HEFT_F64;
}

typedef struct whole_job {
    const char *name;
    heft_status (*run)(heft_error *err);
    bool opens, names; /* it opens the source itself; its failures name a tensor */
    uint64_t features;
} whole_job;

static heft_status job_open(heft_error *err) {
    const heft_open_options options = {.struct_size = sizeof options, .allocator = memory};
    heft_archive *opened = (heft_archive *)&options;
    heft_status status = heft_archive_open_source(source, &options, &opened, err);
    assert_int_equal(status == HEFT_OK, opened != NULL);
    heft_archive_unref(opened);
    return status;
}

static heft_status job_check(heft_error *err) {
    const heft_open_options options = {.struct_size = sizeof options, .allocator = memory};
    heft_report *report = (heft_report *)&options;
    heft_status status = heft_check_source(source, &options, &report, err);
    assert_int_equal(status == HEFT_OK, report != NULL);
    heft_report_free(report);
    return status;
}

static heft_status job_digests(heft_error *err) {
    heft_read_options options = reading();
    uint8_t each[TENSORS][16], whole[16];
    return heft_archive_digests(archive, NULL, 0, &options, each, whole, err);
}

static heft_status job_verify(heft_error *err) {
    heft_read_options options = reading();
    return heft_archive_verify(archive, NULL, 0, &options, NULL, NULL, err);
}

static heft_status job_stats(heft_error *err) {
    heft_read_options options = reading();
    heft_stats out[TENSORS];
    return heft_archive_stats(archive, NULL, 0, &options, out, NULL, NULL, err);
}

static heft_status job_view_stats(heft_error *err) {
    heft_read_options options = reading();
    heft_stats out;
    heft_view view;
    assert_int_equal(heft_view_of(archive, 2, &view, NULL), HEFT_OK);
    assert_int_equal(heft_view_index_text(&view, "::2", SIZE_MAX, &view, NULL), HEFT_OK);
    heft_status status = heft_view_stats(&view, &options, &out, NULL, err);
    assert_int_equal(out.count, status == HEFT_OK ? NELEMS / 2 : 0);
    return status;
}

static heft_status diff_of(const heft_archive *a, const heft_archive *b, heft_error *err) {
    const heft_diff_options options = {.struct_size = sizeof options, .workers = 2, .allocator = memory};
    heft_diff *diff = (heft_diff *)&options;
    heft_status status = heft_diff_archives(a, b, &options, &diff, err);
    assert_int_equal(status == HEFT_OK, diff != NULL);
    if (diff) assert_int_equal(heft_diff_count_of(diff, HEFT_DIFF_EQUAL), TENSORS);
    heft_diff_free(diff);
    return status;
}

static heft_status job_diff(heft_error *err) {
    return diff_of(archive, same, err);
}
static heft_status job_diff_other(heft_error *err) {
    return diff_of(same, archive, err);
}

static heft_status job_sha256(heft_error *err) {
    heft_read_options options = reading();
    char text[65];
    return heft_source_sha256(source, &options, text, err);
}

static heft_status save_buffer_as(const char *format, heft_error *err) {
    heft_save_item items[TENSORS];
    heft_save_options options = saving(format);
    heft_buffer buffer = {.data = items};
    items_of(items);
    heft_status status = heft_save_buffer(items, TENSORS, &options, &buffer, NULL, err);
    assert_int_equal(status == HEFT_OK, buffer.data != NULL);
    heft_buffer_release(&buffer);
    return status;
}

static heft_status job_buffer(heft_error *err) {
    return save_buffer_as(NULL, err);
}
static heft_status job_buffer_npz(heft_error *err) {
    return save_buffer_as("npz", err);
}

static int take(void *ctx, const void *data, size_t nbytes) {
    (void)ctx, (void)data, (void)nbytes;
    return 0;
}

static heft_status job_function(heft_error *err) {
    heft_save_item items[TENSORS];
    heft_save_options options = saving(NULL);
    items_of(items);
    return heft_save_callback(items, TENSORS, &options, take, NULL, NULL, err);
}

static heft_status job_file(heft_error *err) {
    heft_save_item items[TENSORS];
    heft_save_options options = saving(NULL);
    heft_save_stats stats = {.nfiles = 9};
    items_of(items);
    options.overwrite = options.verify = true;
    heft_status status = heft_save(test_path("out/file"), items, TENSORS, &options, &stats, err);
    assert_int_equal(stats.nfiles, status == HEFT_OK);
    return status;
}

static heft_status job_set(heft_error *err) {
    heft_save_item items[TENSORS];
    heft_save_options options = saving(NULL);
    const heft_set_options set = {.struct_size = sizeof set, .ceiling_nbytes = 1};
    heft_save_stats stats = {.nfiles = 9};
    items_of(items);
    options.overwrite = true;
    heft_status status = heft_save_set(test_path("out"), items, TENSORS, &options, &set, &stats, err);
    assert_int_equal(stats.nfiles, status == HEFT_OK ? TENSORS : 0);
    return status;
}

static heft_status write_by(heft_writer_mode mode, const heft_set_options *set, heft_error *err) {
    heft_save_item items[TENSORS];
    heft_save_options options = saving(NULL);
    heft_writer *writer = (heft_writer *)&options;
    items_of(items);
    options.overwrite = true;
    heft_status status = heft_writer_open(test_path(set ? "out" : "out/file"), mode, NULL, 0, &options, set, &writer, err);
    assert_int_equal(status == HEFT_OK, writer != NULL);
    for (int i = 0; i < TENSORS && status == HEFT_OK; i++) status = heft_writer_add(writer, &items[i], err);
    if (status == HEFT_OK) status = heft_writer_finish(writer, NULL, err);
    heft_writer_free(writer);
    return status;
}

static heft_status job_collect(heft_error *err) {
    return write_by(HEFT_WRITER_COLLECT, NULL, err);
}
static heft_status job_stream(heft_error *err) {
    return write_by(HEFT_WRITER_STREAM, NULL, err);
}
static heft_status job_stream_set(heft_error *err) {
    const heft_set_options set = {.struct_size = sizeof set, .ceiling_nbytes = 1};
    return write_by(HEFT_WRITER_STREAM, &set, err);
}

static const whole_job jobs[] = {
    {"open", job_open, true, false, 0},
    {"check", job_check, true, false, 0},
    {"digests", job_digests, false, true, HEFT_FEATURE_XXHASH},
    {"verify", job_verify, false, true, HEFT_FEATURE_XXHASH},
    {"statistics", job_stats, false, true, 0},
    {"statistics of a view", job_view_stats, false, true, 0},
    {"differences", job_diff, false, true, 0},
    {"differences, the other side", job_diff_other, false, true, 0},
    {"SHA-256", job_sha256, false, false, HEFT_FEATURE_OPENSSL},
    {"a save to memory", job_buffer, false, true, 0},
    {"a save to an npz in memory", job_buffer_npz, false, true, 0},
    {"a save to a function", job_function, false, true, 0},
    {"a save", job_file, false, true, 0},
    {"a set", job_set, false, true, 0},
    {"a collecting writer", job_collect, false, true, 0},
    {"a streaming writer", job_stream, false, true, 0},
    {"a streaming writer of a set", job_stream_set, false, true, 0},
};

static void assert_nothing_written(const whole_job *job) {
    DIR *d = opendir(test_mkdir("out"));
    for (struct dirent *e; (e = readdir(d));)
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0) fail_msg("%s leaves %s", job->name, e->d_name);
    closedir(d);
}

static void empty_out(void) {
    char command[4300];
    snprintf(command, sizeof command, "rm -rf '%s'/* '%s'/.heft-*", test_path("out"), test_path("out"));
    assert_int_equal(system(command), 0);
}

static heft_archive *open_bytes(heft_source *bytes) {
    heft_archive *opened;
    heft_error err;
    if (heft_archive_open_source(bytes, NULL, &opened, &err)) fail_msg("%s", err.message);
    return opened;
}

/* Read `k` of a job fails, and all after it. True: it had no such read. */
static bool fail_read(const whole_job *job, const whole_file *file, uint64_t k) {
    test_bytes bytes = {.data = file->bytes.data, .nbytes = file->bytes.nbytes, .most = 1000, .fail_errno = EIO};
    heft_error err = {0};
    source = test_source(&bytes);
    archive = job->opens ? NULL : open_bytes(source);
    bytes.fail_call = bytes.calls + k;
    bytes.fail_on = true;
    heft_status status = job->run(&err);
    bool reached = bytes.calls >= bytes.fail_call;
    heft_archive_unref(archive);
    heft_source_unref(source);
    assert_int_equal(bytes.released, 1);
    if (status == HEFT_OK) {
        if (reached) fail_msg("%s of %s, read %u: it is not told", job->name, file->name, (unsigned)k);
        empty_out();
        return true;
    }
    bool names = job->names && !(job->run == job_verify && file == &files[1]); /* there is the directory of the zip, too */
    if (status != HEFT_IO || err.status != status || err.sys_errno != EIO || !*err.message || (names && !*err.tensor))
        fail_msg("%s of %s, read %u: %s: %s", job->name, file->name, (unsigned)k, heft_status_name(status), err.message);
    assert_nothing_written(job);
    return false;
}

/* Allocation `k` fails, and if `after` all after it. */
static bool fail_allocation(const whole_job *job, const whole_file *file, uint64_t k, bool after) {
    test_bytes bytes = {.data = file->bytes.data, .nbytes = file->bytes.nbytes};
    test_allocator t;
    heft_error err = {0};
    source = test_source(&bytes);
    archive = job->opens ? NULL : open_bytes(source);
    test_allocator_init(&t, k);
    t.fail_after = after;
    memory = &t.alloc;
    heft_status status = job->run(&err);
    memory = NULL;
    heft_archive_unref(archive);
    heft_source_unref(source);
    assert_int_equal(t.live_blocks, 0);
    bool reached = t.calls >= k;
    if (status == HEFT_OK) {
        if (reached || k == 1) fail_msg("%s of %s, allocation %u: it is not told", job->name, file->name, (unsigned)k);
        empty_out();
        return true;
    }
    if (status != HEFT_OUT_OF_MEMORY || err.fault != HEFT_FAULT_MEMORY)
        fail_msg("%s of %s, allocation %u: %s: %s", job->name, file->name, (unsigned)k, heft_status_name(status), err.message);
    assert_nothing_written(job);
    return false;
}

static void over_all(bool reads) {
    for (size_t f = 0; f < sizeof files / sizeof *files; f++) {
        heft_source *bytes;
        const heft_buffer *whole = &files[f].bytes;
        assert_int_equal(heft_source_open_memory(whole->data, whole->nbytes, NULL, NULL, NULL, &bytes, NULL), HEFT_OK);
        same = open_bytes(bytes);
        heft_source_unref(bytes);
        for (size_t i = 0; i < sizeof jobs / sizeof *jobs; i++) {
            if (jobs[i].features & ~heft_features()) continue;
            for (int after = 0; after < (reads ? 1 : 2); after++) {
                uint64_t k = 1;
                while (!(reads ? fail_read(&jobs[i], &files[f], k) : fail_allocation(&jobs[i], &files[f], k, after))) k++;
                assert_true(k > 1);
            }
        }
        heft_archive_unref(same);
    }
}

static void every_read_fails(void **state) {
    (void)state;
    over_all(true);
}

static void every_allocation_fails(void **state) {
    (void)state;
    over_all(false);
}

static int setup(void **state) {
    (void)state;
    static float values[NELEMS];
    static const int64_t shape[] = {NELEMS};
    static const char *const names[] = {"a", "b", "c"};
    heft_save_item items[TENSORS];
    test_mkdir("out");
    for (int i = 0; i < NELEMS; i++) values[i] = (float)i;
    for (int i = 0; i < TENSORS; i++)
        items[i] = (heft_save_item){.name = names[i], .data = values, .shape = shape, .rank = 1, .dtype = HEFT_F32};
    for (int f = 0; f < 2; f++) {
        heft_save_options options = {.struct_size = sizeof options, .format = files[f].name};
        if (f == 0 && heft_features() & HEFT_FEATURE_XXHASH) options.digests = HEFT_DIGEST_TENSORS;
        if (heft_save_buffer(items, TENSORS, &options, &files[f].bytes, NULL, NULL)) return 1;
    }
    return 0;
}

static int teardown(void **state) {
    (void)state;
    for (int f = 0; f < 2; f++) heft_buffer_release(&files[f].bytes);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_read_fails), cmocka_unit_test(every_allocation_fails)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
