/* label: full */
/* Files of 5 and 20 GiB, sparse, a tensor above 4 GiB read whole, and strides that pass 32 bits. */
#include "helper_files.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#define GIB (UINT64_C(1) << 30)
static heft_error err;

static const char *sparse(const char *name, const char *header, uint64_t data_nbytes) {
    size_t n = strlen(header), padded = (n + 7) / 8 * 8;
    uint8_t length[8] = {(uint8_t)padded, (uint8_t)(padded >> 8)};
    const char *path = test_write(name, length, 8);
    int fd = open(path, O_WRONLY);
    assert_true(fd >= 0);
    char blanks[8] = "       ";
    assert_int_equal(pwrite(fd, header, n, 8), (ssize_t)n);
    assert_int_equal(pwrite(fd, blanks, padded - n, (off_t)(8 + n)), (ssize_t)(padded - n));
    assert_int_equal(ftruncate(fd, (off_t)(8 + padded + data_nbytes)), 0);
    close(fd);
    return path;
}

/* Writes `text` at a byte of the data area. */
static void mark(const heft_archive *archive, uint64_t at, const char *text) {
    heft_file file;
    assert_int_equal(heft_archive_file(archive, 0, &file, &err), HEFT_OK);
    int fd = open(file.path, O_WRONLY);
    assert_int_equal(pwrite(fd, text, strlen(text), (off_t)(file.header_nbytes + at)), (ssize_t)strlen(text));
    close(fd);
}

static heft_archive *open_archive(const char *path) {
    heft_archive *archive;
    if (heft_archive_open(path, NULL, &archive, &err) != HEFT_OK) fail_msg("%s", err.message);
    return archive;
}

static void strides_pass_32_bits(void **state) {
    (void)state;
    const char *path = sparse("large20", "{\"w\":{\"dtype\":\"F16\",\"shape\":[10,1073741824],\"data_offsets\":[0,21474836480]}}",
                              20 * GIB);
    heft_archive *archive = open_archive(path);
    mark(archive, 2 * GIB - 4, "abcd"); /* the end of row 0 and of row 9 */
    mark(archive, 20 * GIB - 4, "efgh");
    mark(archive, 18 * GIB, "ijkl"); /* the start of row 9 */
    heft_archive_unref(archive);
    archive = open_archive(path); /* it changed */
    heft_view view, part;
    uint8_t got[40];
    heft_read_stats stats;
    heft_read_options options = {.struct_size = sizeof options, .keep_file_order = true};
    assert_int_equal(heft_view_named(archive, "w", SIZE_MAX, &view, &err), HEFT_OK);
    assert_int_equal(heft_view_index_text(&view, "::-1, -2:", SIZE_MAX, &part, &err), HEFT_OK);
    assert_int_equal(heft_read(&part, got, sizeof got, &options, &stats, &err), HEFT_OK);
    assert_memory_equal(got, "efgh", 4);
    assert_memory_equal(got + 36, "abcd", 4);
    assert_int_equal(stats.requested_nbytes, 40);
    assert_int_equal(stats.requests, 10);
    assert_int_equal(heft_view_index_text(&view, "-1, :2", SIZE_MAX, &part, &err), HEFT_OK);
    assert_int_equal(heft_read(&part, got, sizeof got, &options, &stats, &err), HEFT_OK);
    assert_memory_equal(got, "ijkl", 4);
    assert_int_equal(heft_view_index_text(&view, "9, ::1073741823", SIZE_MAX, &part, &err), HEFT_OK);
    assert_int_equal(heft_read(&part, got, sizeof got, &options, NULL, &err), HEFT_OK);
    assert_memory_equal(got, "ijgh", 4);
    heft_archive_unref(archive);
    unlink(path);
}

/* 5 GiB of addresses over 32 MiB of memory, so that a whole large tensor can be read on any machine. */
static uint8_t *folded(uint64_t nbytes, uint64_t fold) {
    const char *path = test_write("fold", "", 0);
    int fd = open(path, O_RDWR);
    uint8_t *all = mmap(NULL, nbytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (all == MAP_FAILED) return NULL;
    assert_int_equal(ftruncate(fd, (off_t)fold), 0);
    for (uint64_t at = 0; at < nbytes; at += fold)
        if (mmap(all + at, fold, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) return NULL;
    close(fd);
    return all;
}

static int count_progress(void *ctx, uint64_t done, uint64_t total) {
    (void)total;
    *(uint64_t *)ctx = done;
    return 0;
}

static void a_tensor_above_4_gib_is_read_whole(void **state) {
    (void)state;
    if (sizeof(size_t) < 8) return;
    const char *path = sparse("large5",
                              "{\"a\":{\"dtype\":\"U8\",\"shape\":[5,1073741824],\"data_offsets\":[0,5368709120]},"
                              "\"b\":{\"dtype\":\"I16\",\"shape\":[2],\"data_offsets\":[5368709120,5368709124]}}",
                              5 * GIB + 4);
    heft_archive *archive = open_archive(path);
    mark(archive, 5 * GIB - 4, "tail");
    mark(archive, 5 * GIB, "more");
    heft_archive_unref(archive);
    archive = open_archive(path);
    uint8_t *dst = folded(5 * GIB, 32 << 20), got[8];
    assert_non_null(dst);
    heft_view view, part;
    heft_read_stats stats;
    uint64_t done = 0;
    heft_read_options options = {.struct_size = sizeof options, .workers = 1, .progress = count_progress, .progress_ctx = &done};
    assert_int_equal(heft_view_named(archive, "a", SIZE_MAX, &view, &err), HEFT_OK);
    assert_int_equal(heft_view_nbytes(&view), 5 * GIB);
    if (heft_read(&view, dst, 5 * GIB, &options, &stats, &err) != HEFT_OK) fail_msg("%s", err.message);
    assert_int_equal(stats.kept_nbytes, 5 * GIB);
    assert_int_equal(stats.requested_nbytes, 5 * GIB);
    assert_int_equal(done, 5 * GIB);
    assert_memory_equal(dst + 5 * GIB - 4, "tail", 4); /* one worker: the last block is the last one written */
    options = (heft_read_options){.struct_size = sizeof options, .keep_file_order = true};
    assert_int_equal(heft_view_named(archive, "b", SIZE_MAX, &part, &err), HEFT_OK);
    assert_int_equal(heft_read(&part, got, sizeof got, &options, NULL, &err), HEFT_OK);
    assert_memory_equal(got, "more", 4);
    assert_int_equal(truncate(path, (off_t)(5 * GIB + 100)), 0);
    assert_int_equal(heft_read(&view, dst, 5 * GIB, NULL, NULL, &err), HEFT_IO);
    assert_string_equal(err.tensor, "a");
    assert_int_equal(err.expected, 5 * GIB);
    assert_true(err.found < 5 * GIB && err.found > 5 * GIB - 200);
    munmap(dst, 5 * GIB);
    heft_archive_unref(archive);
    unlink(path);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(strides_pass_32_bits),
        cmocka_unit_test(a_tensor_above_4_gib_is_read_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
