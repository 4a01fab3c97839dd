/* Memory that fails in everything that writes, digests and verifies: OUT_OF_MEMORY, nothing leaks, nothing is left. */
#include "helper_files.h"

#include <dirent.h>
#include <unistd.h>

enum { ROWS = 40, COLUMNS = 70 };
static const int64_t shape[] = {ROWS, COLUMNS}, turned[] = {COLUMNS, ROWS}, strides[] = {4, COLUMNS * 4};
static float values[ROWS * COLUMNS];
static heft_archive *source; /* of the same two tensors */
static bool digests_are_there;

static void items_of(heft_save_item items[3]) {
    items[0] = (heft_save_item){.name = "packed", .data = values, .shape = shape, .rank = 2, .dtype = HEFT_F32};
    items[1] = (heft_save_item){.name = "turned", .data = values, .shape = turned, .stride_nbytes = strides, .rank = 2,
                                .dtype = HEFT_F32, .as = HEFT_F16};
    items[2] = (heft_save_item){.name = "stored", .archive = source, .id = 0};
}

typedef heft_status (*memory_job)(const heft_allocator *alloc, heft_error *err);

/* Each allocation of a job fails in turn, alone or with all after it. `hides`: the job goes on without what failed. */
static void fail_each(const char *what, memory_job job, bool hides) {
    for (int after = 0; after < 2; after++)
        for (uint64_t k = 1;; k++) {
            test_allocator t;
            heft_error err = {0};
            int fds = test_count_fds();
            test_allocator_init(&t, k);
            t.fail_after = after;
            heft_status status = job(&t.alloc, &err);
            if (t.live_blocks) fail_msg("%s, allocation %llu: %llu blocks are left", what, (unsigned long long)k,
                                        (unsigned long long)t.live_blocks);
            assert_int_equal(test_count_fds(), fds);
            if (t.calls < k) {
                if (status != HEFT_OK) fail_msg("%s: %s", what, err.message);
                if (k == 1) fail_msg("%s allocates nothing", what);
                break;
            }
            if (status == HEFT_OK && hides) continue;
            if (status != HEFT_OUT_OF_MEMORY || err.fault != HEFT_FAULT_MEMORY)
                fail_msg("%s, allocation %llu: %s: %s", what, (unsigned long long)k, heft_status_name(status), err.message);
        }
    DIR *d = opendir(test_dir());
    for (struct dirent *e; (e = readdir(d));)
        if (strncmp(e->d_name, ".heft-", 6) == 0) fail_msg("%s leaves %s", what, e->d_name);
    closedir(d);
}

/* ---- saves ---- */

static const char *format_now;

static heft_save_options options_of(const heft_allocator *alloc) {
    static const heft_pair pairs[] = {{"k", 1, "v", 1}, {"a", 1, "b", 1}};
    heft_save_options options = {.struct_size = sizeof options, .allocator = alloc, .format = format_now, .overwrite = true,
                                 .no_sync = true, .workers = 2};
    options.keep_fortran = format_now != NULL;
    if (format_now) return options;
    options.metadata = pairs;
    options.nmetadata = 2;
    options.align = 64;
    options.digests = digests_are_there ? HEFT_DIGEST_TENSORS | HEFT_DIGEST_DATA : 0;
    return options;
}

static uint64_t count_of(void) {
    return format_now && strcmp(format_now, "npy") == 0 ? 1 : 3;
}

static heft_status job_buffer(const heft_allocator *alloc, heft_error *err) {
    heft_save_item items[3];
    heft_save_options options = options_of(alloc);
    heft_buffer buffer;
    items_of(items);
    heft_status status = heft_save_buffer(items, count_of(), &options, &buffer, NULL, err);
    assert_true((status == HEFT_OK) == (buffer.data != NULL));
    heft_buffer_release(&buffer);
    return status;
}

static int take(void *ctx, const void *data, size_t nbytes) {
    (void)ctx, (void)data, (void)nbytes;
    return 0;
}

static heft_status job_callback(const heft_allocator *alloc, heft_error *err) {
    heft_save_item items[3];
    heft_save_options options = options_of(alloc);
    items_of(items);
    options.digests = 0;
    return heft_save_callback(items, count_of(), &options, take, NULL, NULL, err);
}

static heft_status job_file(const heft_allocator *alloc, heft_error *err) {
    heft_save_item items[3];
    heft_save_options options = options_of(alloc);
    items_of(items);
    options.verify = true;
    return heft_save(test_path("file"), items, count_of(), &options, NULL, err);
}

static heft_status job_writer(const heft_allocator *alloc, heft_error *err) {
    heft_save_item items[3];
    heft_save_options options = options_of(alloc);
    heft_writer *writer;
    items_of(items);
    heft_status status = heft_writer_open(test_path("written"), HEFT_WRITER_COLLECT, NULL, 0, &options, NULL, &writer, err);
    assert_true((status == HEFT_OK) == (writer != NULL));
    for (uint64_t i = 0; status == HEFT_OK && i < count_of(); i++) status = heft_writer_add(writer, &items[i], err);
    if (status == HEFT_OK) status = heft_writer_finish(writer, NULL, err);
    heft_writer_free(writer);
    return status;
}

static void saves(void **state) {
    (void)state;
    static const char *const formats[] = {NULL, "npz", "npy"};
    for (int i = 0; i < 3; i++) {
        format_now = formats[i];
        fail_each("a save to memory", job_buffer, false);
        if (i != 1) fail_each("a save to a function", job_callback, false);
        fail_each("a save", job_file, false);
        fail_each("a writer", job_writer, false);
    }
    format_now = NULL;
}

/* ---- plans ---- */

static heft_status job_layout(const heft_allocator *alloc, heft_error *err) {
    heft_save_item items[3];
    heft_save_options options = options_of(alloc);
    heft_layout *layout;
    uint64_t nbytes;
    items_of(items);
    heft_status status = heft_layout_make(items, 3, &options, NULL, &layout, err);
    assert_true((status == HEFT_OK) == (layout != NULL));
    if (status == HEFT_OK) assert_int_equal(heft_layout_file_count(layout), 1);
    heft_layout_free(layout);
    if (status != HEFT_OK) return status;
    heft_set_options set = {.struct_size = sizeof set, .ceiling_nbytes = 1};
    status = heft_layout_make(items, 3, &options, &set, &layout, err);
    if (status == HEFT_OK) assert_int_equal(heft_layout_file_count(layout), 3);
    if (status == HEFT_OK) assert_non_null(heft_layout_index(layout, &nbytes));
    heft_layout_free(layout);
    return status;
}

static void plans(void **state) {
    (void)state;
    fail_each("a layout", job_layout, false);
}

/* ---- digests ---- */

static const char *path_now;

static heft_status job_digests(const heft_allocator *alloc, heft_error *err) {
    heft_archive *archive;
    uint8_t each[3][16], whole[16];
    heft_read_options options = {.struct_size = sizeof options, .allocator = alloc, .workers = 2};
    heft_open_options opened = {.struct_size = sizeof opened, .allocator = alloc};
    heft_status status = heft_archive_open(path_now, &opened, &archive, err);
    if (status != HEFT_OK) return status;
    status = heft_archive_digests(archive, NULL, 0, &options, each, whole, err);
    heft_archive_unref(archive);
    return status;
}

static heft_status job_verify(const heft_allocator *alloc, heft_error *err) {
    heft_archive *archive;
    heft_read_options options = {.struct_size = sizeof options, .allocator = alloc, .workers = 2};
    heft_open_options opened = {.struct_size = sizeof opened, .allocator = alloc};
    heft_status status = heft_archive_open(path_now, &opened, &archive, err);
    if (status != HEFT_OK) return status;
    status = heft_archive_verify(archive, NULL, 0, &options, NULL, NULL, err);
    heft_archive_unref(archive);
    return status;
}

static heft_status job_sidecars(const heft_allocator *alloc, heft_error *err) {
    heft_archive *archive;
    heft_read_options options = {.struct_size = sizeof options, .allocator = alloc, .workers = 2};
    heft_save_options over = {.struct_size = sizeof over, .allocator = alloc, .overwrite = true, .no_sync = true};
    heft_status status = heft_archive_open(path_now, NULL, &archive, err);
    assert_int_equal(status, HEFT_OK);
    status = heft_archive_write_sidecars(archive, &options, &over, err);
    heft_archive_unref(archive);
    return status;
}

static heft_status job_sha256(const heft_allocator *alloc, heft_error *err) {
    heft_source *file;
    char text[65];
    heft_read_options options = {.struct_size = sizeof options, .allocator = alloc};
    assert_int_equal(heft_source_open_file(path_now, &file, NULL), HEFT_OK);
    heft_status status = heft_source_sha256(file, &options, text, err);
    heft_source_unref(file);
    return status;
}

static void digests(void **state) {
    (void)state;
    heft_save_item items[3];
    heft_error err;
    heft_save_options over = {.struct_size = sizeof over, .overwrite = true, .no_sync = true};
    items_of(items);
    items[1].as = HEFT_DTYPE_NONE;
    char *path = strdup(test_path("digested"));
    over.format = "npz";
    path_now = path;
    assert_int_equal(heft_save(path, items, 3, &over, NULL, &err), HEFT_OK);
    fail_each("verifying an npz", job_verify, false);
    over.format = NULL;
    assert_int_equal(heft_save(path, items, 3, &over, NULL, &err), HEFT_OK);
    if (heft_features() & HEFT_FEATURE_OPENSSL) fail_each("a SHA-256", job_sha256, false);
    for (uint32_t kind = 1; kind < 8 && digests_are_there; kind++) {
        over.digests = kind;
        assert_int_equal(heft_save(path, items, 3, &over, NULL, &err), HEFT_OK);
        fail_each("verifying", job_verify, false);
    }
    if (digests_are_there) {
        fail_each("digests", job_digests, false);
        fail_each("sidecars", job_sidecars, false);
    }
    free(path);
}

/* ---- aligned copies ---- */

static heft_aligned aligned_how;
static bool aligned_fresh;

static heft_status job_aligned(const heft_allocator *alloc, heft_error *err) {
    heft_archive *archive;
    heft_open_options opened = {.struct_size = sizeof opened, .allocator = alloc};
    if (aligned_fresh) {
        char command[700];
        snprintf(command, sizeof command, "rm -rf '%s'/*", test_path("cache"));
        assert_int_equal(system(command), 0);
    }
    heft_status status = heft_open_aligned(path_now, test_path("cache"), 4096, &opened, &archive, &aligned_how, err);
    assert_true((status == HEFT_OK) == (archive != NULL));
    if (status == HEFT_OK) assert_int_equal(heft_archive_count(archive), 3);
    heft_archive_unref(archive);
    return status;
}

static void aligned_copies(void **state) {
    (void)state;
    heft_save_item items[3];
    heft_save_options over = {.struct_size = sizeof over, .overwrite = true, .no_sync = true};
    if (!digests_are_there) skip();
    char *path = strdup(test_path("unaligned"));
    items_of(items);
    test_mkdir("cache");
    path_now = path;
    assert_int_equal(heft_save(path, items, 3, &over, NULL, NULL), HEFT_OK);
    aligned_fresh = true;
    fail_each("an aligned copy", job_aligned, true);
    assert_int_equal(aligned_how, HEFT_ALIGNED_BUILT);
    aligned_fresh = false;
    fail_each("an aligned copy that is there", job_aligned, true);
    assert_int_equal(aligned_how, HEFT_ALIGNED_CACHED);
    free(path);
}

static int setup(void **state) {
    (void)state;
    static const test_tensor one = {"stored", "F32", "100", NULL, 400};
    digests_are_there = heft_features() & HEFT_FEATURE_XXHASH;
    for (int i = 0; i < ROWS * COLUMNS; i++) values[i] = (float)i;
    return heft_archive_open(test_write_safetensors("source", &one, 1, NULL), NULL, &source, NULL) != HEFT_OK;
}

static int teardown(void **state) {
    (void)state;
    heft_archive_unref(source);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(saves), cmocka_unit_test(plans), cmocka_unit_test(digests),
                                       cmocka_unit_test(aligned_copies)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
