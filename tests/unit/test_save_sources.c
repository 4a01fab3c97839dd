/* label: threads */
/* What a save reads and what it leaves alone: sources that change or are cut meanwhile, views of the file that is replaced, bytes
 * that came to the disk otherwise than they were written; what lasts of a file that is replaced; the memory of writers. */
#include "helper_files.h"
#include "helper_target.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#if defined(__linux__)
#include <sys/xattr.h>
#endif
#include <unistd.h>

enum { SIZE = 100000, TENSORS = 3 };
static const int64_t one_dim[] = {SIZE};
static const char *const names[TENSORS] = {"a", "b", "c"};

static void items_of(heft_save_item items[TENSORS], uint8_t mark) {
    static uint8_t data[3][SIZE];
    memset(data[mark], mark, SIZE);
    for (int i = 0; i < TENSORS; i++)
        items[i] = (heft_save_item){.name = names[i], .data = data[mark], .shape = one_dim, .rank = 1, .dtype = HEFT_U8};
}

static heft_save_options overwriting(void) {
    return (heft_save_options){.struct_size = sizeof(heft_save_options), .overwrite = true, .no_sync = true};
}

static void save_marked(const char *path, uint8_t mark) {
    heft_save_item items[TENSORS];
    heft_save_options over = overwriting();
    heft_error err;
    items_of(items, mark);
    if (heft_save(path, items, TENSORS, &over, NULL, &err)) fail_msg("%s", err.message);
}

static heft_archive *open_file(const char *path) {
    heft_archive *archive;
    heft_error err;
    if (heft_archive_open(path, NULL, &archive, &err)) fail_msg("%s", err.message);
    return archive;
}

static void items_of_archive(heft_save_item items[TENSORS], const heft_archive *archive) {
    for (int i = 0; i < TENSORS; i++) {
        items[i] = (heft_save_item){.name = names[i], .archive = archive};
        assert_int_equal(heft_archive_find(archive, names[i], 1, &items[i].id, NULL), HEFT_OK);
    }
}

static void assert_mark(const char *path, uint8_t mark) {
    static uint8_t bytes[SIZE];
    heft_archive *archive = open_file(path);
    assert_int_equal(heft_archive_count(archive), TENSORS);
    for (uint64_t i = 0; i < TENSORS; i++) {
        heft_view view;
        assert_int_equal(heft_view_of(archive, i, &view, NULL), HEFT_OK);
        assert_int_equal(heft_read(&view, bytes, SIZE, NULL, NULL, NULL), HEFT_OK);
        for (int j = 0; j < SIZE; j++)
            if (bytes[j] != mark) fail_msg("%s: byte %d is %d", path, j, bytes[j]);
    }
    heft_archive_unref(archive);
}

static int no_trap(void **state) {
    (void)state;
    trap_log = NULL;
    trap_end();
    return 0;
}

/* ---- verified before the rename ---- */

static uint64_t spoil_at;
static bool spoil_done;

static void spoil(const trap_event *event) {
    char byte;
    if (strcmp(event->name, "fsync") != 0 || spoil_done) return;
    spoil_done = true;
    int fd = event->fd;
    assert_int_equal(pread(fd, &byte, 1, (off_t)spoil_at), 1);
    byte ^= 4;
    assert_int_equal(pwrite(fd, &byte, 1, (off_t)spoil_at), 1);
}

/* A bit that the disk turned over is seen where `verify` was asked for, wherever it is. */
static void verify_sees_every_part(void **state) {
    (void)state;
    static const char *const formats[] = {NULL, "npz", "npy"};
    char *path = strdup(test_path("verify/x")), *folder = strdup(test_mkdir("verify"));
    for (int f = 0; f < 3; f++) {
        heft_save_item items[TENSORS];
        heft_save_options over = overwriting();
        heft_save_stats stats;
        heft_error err = {0};
        uint64_t n = f == 2 ? 1 : TENSORS;
        over.format = formats[f];
        items_of(items, 1);
        assert_int_equal(heft_save(path, items, n, &over, &stats, NULL), HEFT_OK);
        items_of(items, 2);
        over.verify = true;
        over.no_sync = false; /* the trap does not sync */
        uint64_t places[] = {0, 9, stats.file_nbytes / 3, stats.file_nbytes / 2, stats.file_nbytes - 1};
        for (int i = 0; i < 5; i++) {
            spoil_at = places[i];
            spoil_done = false;
            trap_log = spoil;
            trap_begin(&(trap_plan){0});
            heft_status status = heft_save(path, items, n, &over, NULL, &err);
            no_trap(NULL);
            assert_true(spoil_done);
            if (status != HEFT_MISMATCH) fail_msg("format %d, byte %llu: %d", f, (unsigned long long)spoil_at, status);
            assert_int_equal(test_entries(folder), 1);
            if (f < 2) assert_mark(path, 1);
        }
    }
    free(path);
    free(folder);
}

/* ---- sources that change ---- */

/* A source that was cut, or written again, after it was opened: the save fails and says so, and the old file stays. */
static void sources_that_change(void **state) {
    (void)state;
    char *source = strdup(test_path("changed/source")), *path = strdup(test_path("changed/x"));
    test_mkdir("changed");
    for (int way = 0; way < 6; way++) {
        heft_save_item items[TENSORS];
        heft_save_options over = overwriting();
        heft_error err = {0};
        struct timespec old[2] = {{.tv_sec = 1}, {.tv_sec = 1}};
        over.no_share = way % 2;
        over.match_source = true;
        save_marked(source, 2);
        save_marked(path, 1);
        if (way / 2 == 2) assert_int_equal(utimensat(AT_FDCWD, source, old, 0), 0);
        heft_archive *archive = open_file(source);
        items_of_archive(items, archive);
        if (way / 2 == 0) assert_int_equal(truncate(source, SIZE), 0);
        if (way / 2 == 1) assert_int_equal(truncate(source, 100), 0);
        if (way / 2 == 2) { /* the same size */
            int fd = open(source, O_WRONLY);
            assert_int_equal(pwrite(fd, "x", 1, SIZE), 1);
            close(fd);
        }
        heft_status status = heft_save(path, items, TENSORS, &over, NULL, &err);
        if (status != HEFT_MISMATCH && status != HEFT_IO && status != HEFT_CORRUPT) fail_msg("way %d: %d", way, status);
        assert_non_null(strstr(err.message, "source"));
        assert_mark(path, 1);
        assert_int_equal(test_entries(test_path("changed")), 2);
        heft_archive_unref(archive);
    }
    free(source);
    free(path);
}

/* Mappings of the file that is replaced keep what they had. */
static void a_mapped_file_is_replaced(void **state) {
    (void)state;
    char *path = strdup(test_path("mapped/x"));
    test_mkdir("mapped");
    save_marked(path, 1);
    heft_archive *archive = open_file(path);
    heft_buffer lent[TENSORS];
    heft_save_item items[TENSORS];
    heft_save_options over = overwriting();
    heft_error err;
    for (int i = 0; i < TENSORS; i++) {
        heft_view view;
        assert_int_equal(heft_view_named(archive, names[i], 1, &view, NULL), HEFT_OK);
        if (heft_borrow(&view, 0, &lent[i], &err)) skip(); /* this host does not map */
        items[i] = (heft_save_item){.name = names[i], .data = lent[i].data, .shape = one_dim, .rank = 1, .dtype = HEFT_U8};
    }
    over.keep_order = true;
    over.reserve_header_nbytes = 5000; /* all lies elsewhere */
    if (heft_save(path, items, TENSORS, &over, NULL, &err)) fail_msg("%s", err.message);
    assert_mark(path, 1);
    save_marked(path, 2);
    for (int i = 0; i < TENSORS; i++)
        for (int j = 0; j < SIZE; j++) assert_int_equal(((const uint8_t *)lent[i].data)[j], 1);
    assert_mark(path, 2);
    for (int i = 0; i < TENSORS; i++) heft_buffer_release(&lent[i]);
    heft_archive_unref(archive);
    free(path);
}

/* Digests of a file that is replaced while it is verified, or was written to: those beside it are of the new one, those in it of
 * what it was. */
static void verified_while_it_is_replaced(void **state) {
    (void)state;
    if (!(heft_features() & HEFT_FEATURE_XXHASH)) skip();
    char *path = strdup(test_path("verified/x")), *other = strdup(test_path("verified/y"));
    test_mkdir("verified");
    for (uint32_t kind = HEFT_DIGEST_TENSORS; kind <= HEFT_DIGEST_SIDECAR; kind *= 2) {
        heft_save_item items[TENSORS];
        heft_save_options over = overwriting();
        heft_verified verified[TENSORS];
        heft_error err;
        over.digests = kind;
        items_of(items, 1);
        assert_int_equal(heft_save(path, items, TENSORS, &over, NULL, &err), HEFT_OK);
        heft_archive *archive = open_file(path);
        assert_int_equal(heft_archive_verify(archive, NULL, 0, NULL, verified, NULL, &err), HEFT_OK);
        items_of(items, 2);
        assert_int_equal(heft_save(other, items, TENSORS, &over, NULL, &err), HEFT_OK);
        assert_int_equal(rename(other, path), 0); /* by another program: a sidecar stays */
        bool beside = kind == HEFT_DIGEST_SIDECAR;
        assert_int_equal(heft_archive_verify(archive, NULL, 0, NULL, verified, NULL, &err), beside ? HEFT_NOT_FOUND : HEFT_OK);
        for (int i = 0; i < TENSORS; i++)
            assert_int_equal(verified[i].verdict, beside ? HEFT_VERDICT_ABSENT : HEFT_VERDICT_GOOD);
        heft_archive_unref(archive);
        archive = open_file(path); /* the new one, beside which the old digests lie */
        assert_int_equal(heft_archive_verify(archive, NULL, 0, NULL, verified, NULL, &err), beside ? HEFT_MISMATCH : HEFT_OK);
        int fd = open(path, O_WRONLY);
        heft_tensor tensor;
        assert_int_equal(heft_archive_get(archive, 1, &tensor, NULL), HEFT_OK);
        assert_int_equal(pwrite(fd, "x", 1, (off_t)tensor.offset), 1);
        close(fd);
        assert_int_not_equal(heft_archive_verify(archive, NULL, 0, NULL, NULL, NULL, &err), HEFT_OK);
        heft_archive_unref(archive);
    }
    free(path);
    free(other);
}

/* All are one kind of fault; the status tells what is wrong from what is not known yet. */
static void digests_that_are_none(void **state) {
    (void)state;
    const struct {
        const char *text;
        heft_status status;
    } cases[] = {{"{", HEFT_CORRUPT}, {"", HEFT_CORRUPT}, {"{\"tensors\":{}}", HEFT_CORRUPT},
                 {"{\"algorithm\":\"xxh3-256, 4 MiB chunks\",\"tensors\":{}}", HEFT_UNSUPPORTED},
                 {"{\"algorithm\":\"xxh3-128, 4 MiB chunks\",\"tensors\":{\"t\":\"0\"}}", HEFT_CORRUPT},
                 {"{\"algorithm\":\"xxh3-128, 4 MiB chunks\",\"tensors\":{\"t\":\"0123456789abcdef0123456789abcdef\","
                  "\"\\u0074\":\"0123456789abcdef0123456789abcdef\"}}", HEFT_CORRUPT}};
    heft_save_item items[TENSORS];
    heft_save_options over = overwriting();
    heft_error err;
    char *path = strdup(test_path("none/x"));
    test_mkdir("none");
    items_of(items, 1);
    assert_int_equal(heft_save(path, items, TENSORS, &over, NULL, &err), HEFT_OK);
    heft_archive *archive = open_file(path);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        test_write("none/x.xxh3.json", cases[i].text, strlen(cases[i].text));
        assert_int_equal(heft_archive_verify(archive, NULL, 0, NULL, NULL, NULL, &err), cases[i].status);
        assert_int_equal(err.fault, HEFT_FAULT_BAD_DIGESTS);
        assert_non_null(strstr(err.file, "x.xxh3.json"));
    }
    heft_archive_unref(archive);
    const heft_pair pairs[] = {{"heft.xxh3", SIZE_MAX, "{\"t\":1}", SIZE_MAX}, {"heft.data_xxh3", SIZE_MAX, "0", SIZE_MAX}};
    for (size_t i = 0; i < 2; i++) {
        over.metadata = &pairs[i];
        over.nmetadata = 1;
        assert_int_equal(heft_save(path, items, TENSORS, &over, NULL, &err), HEFT_OK);
        archive = open_file(path);
        assert_int_equal(heft_archive_verify(archive, NULL, 0, NULL, NULL, NULL, &err), HEFT_CORRUPT);
        assert_int_equal(err.fault, HEFT_FAULT_BAD_DIGESTS);
        heft_archive_unref(archive);
    }
    free(path);
}

/* They decide nothing, and are told: no digest covers a name. One that is in both texts counts once. */
static void digests_of_no_tensor(void **state) {
    (void)state;
    if (!(heft_features() & HEFT_FEATURE_XXHASH)) skip();
    static const char sidecar[] = "{\"algorithm\":\"xxh3-128, 4 MiB chunks\",\"tensors\":{"
                                  "\"gone\":\"0123456789abcdef0123456789abcdef\",\"x\\n\":\"0123456789abcdef0123456789abcdef\"}}";
    const heft_pair pair = {"heft.xxh3", SIZE_MAX, "{\"gone\":\"0123456789abcdef0123456789abcdef\"}", SIZE_MAX};
    heft_save_item items[TENSORS];
    heft_save_options over = overwriting();
    heft_verified_file file;
    heft_error err;
    test_mkdir("names");
    items_of(items, 1);
    for (int i = 0; i < 3; i++) {
        over.metadata = i ? &pair : NULL;
        over.nmetadata = i > 0;
        over.digests = HEFT_DIGEST_DATA;
        assert_int_equal(heft_save(test_path("names/x"), items, TENSORS, &over, NULL, &err), HEFT_OK);
        if (i == 2) test_write("names/x.xxh3.json", sidecar, sizeof sidecar - 1);
        heft_archive *archive = open_file(test_path("names/x"));
        assert_int_equal(heft_archive_verify(archive, NULL, 0, NULL, NULL, &file, &err), HEFT_OK);
        assert_int_equal(file.data, HEFT_VERDICT_GOOD);
        assert_int_equal(file.nmissing, i);
        assert_string_equal(file.missing, i ? "gone" : "");
        heft_archive_unref(archive);
    }
    heft_open_options options = {.struct_size = sizeof options}; /* a tensor that an overlay hides is one */
    char *overlay = strdup(test_path("names/over"));
    const char *const overlays[] = {overlay};
    over.digests = 0;
    assert_int_equal(heft_save(overlay, items, 1, &over, NULL, &err), HEFT_OK);
    options.overlays = overlays;
    options.noverlays = 1;
    heft_archive *archive;
    heft_verified_file both[2];
    assert_int_equal(heft_archive_open(test_path("names/x"), &options, &archive, &err), HEFT_OK);
    (void)heft_archive_verify(archive, NULL, 0, NULL, NULL, both, &err);
    assert_int_equal(both[0].nmissing, 0);
    heft_archive_unref(archive);
    free(overlay);
}

/* ---- what lasts of a file that is replaced ---- */

static void access_lists_are_kept(void **state) {
    (void)state;
#if defined(__linux__)
    /* Version 2; of the owner, user 123, the group, the mask, others. */
    static const uint8_t list[] = {2,   0,   0,   0,   1,  0, 6, 0, 255, 255, 255, 255, 2,  0, 4, 0, 123, 0,   0,   0,   4, 0,
                                   4,   0,   255, 255, 255, 255, 16, 0, 4, 0, 255, 255, 255, 255, 32, 0, 0, 0, 255, 255, 255, 255};
    uint8_t found[sizeof list];
    char *path = strdup(test_path("acl/x"));
    test_mkdir("acl");
    save_marked(path, 1);
    if (setxattr(path, "system.posix_acl_access", list, sizeof list, 0) != 0) {
        free(path);
        skip(); /* no such lists here */
    }
    save_marked(path, 2);
    assert_int_equal(getxattr(path, "system.posix_acl_access", found, sizeof found), sizeof list);
    assert_memory_equal(found, list, sizeof list);
    assert_mark(path, 2);
    free(path);
#endif
}

static void a_cache_of_the_hub_is_not_written_to(void **state) {
    (void)state;
    heft_save_item items[TENSORS];
    heft_save_options over = overwriting();
    heft_error err;
    char *blob = strdup(test_path("models--o--n/blobs/abc")), *link = strdup(test_path("models--o--n/snapshots/r/x.safetensors"));
    test_mkdir("models--o--n/blobs");
    test_mkdir("models--o--n/snapshots/r");
    save_marked(blob, 1);
    assert_int_equal(symlink("../../blobs/abc", link), 0);
    items_of(items, 2);
    assert_int_equal(heft_save(link, items, TENSORS, &over, NULL, &err), HEFT_PERMISSION);
    assert_mark(blob, 1);
    over.symlink = HEFT_SYMLINK_REPLACE;
    assert_int_equal(heft_save(link, items, TENSORS, &over, NULL, &err), HEFT_OK);
    assert_mark(link, 2);
    assert_mark(blob, 1);
    assert_int_equal(test_entries(test_path("models--o--n/blobs")), 1);
    free(blob);
    free(link);
}

static void a_read_only_file_is_replaced(void **state) {
    (void)state;
    struct stat st;
    char *path = strdup(test_path("locked/x"));
    test_mkdir("locked");
    save_marked(path, 1);
    assert_int_equal(chmod(path, 0444), 0);
    save_marked(path, 2); /* by its folder's leave, as rename does it */
    assert_mark(path, 2);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0444);
    if (geteuid() != 0) { /* root may */
        heft_save_item items[TENSORS];
        heft_save_options over = overwriting();
        heft_error err;
        items_of(items, 1);
        assert_int_equal(chmod(test_path("locked"), 0555), 0);
        assert_int_equal(heft_save(path, items, TENSORS, &over, NULL, &err), HEFT_PERMISSION);
        assert_int_equal(chmod(test_path("locked"), 0755), 0);
        assert_mark(path, 2);
    }
    free(path);
}

/* ---- writers ---- */

typedef struct range_job {
    heft_writer *writer;
    uint64_t first;
    heft_status status;
} range_job;

enum { RANGE_THREADS = 4, RANGE_NBYTES = 777 };

static void *write_ranges(void *arg) {
    range_job *job = arg;
    uint8_t bytes[RANGE_NBYTES];
    heft_error err;
    for (uint64_t item = 0; item < TENSORS; item++) {
        memset(bytes, 2, sizeof bytes);
        for (uint64_t at = job->first * RANGE_NBYTES; at < SIZE && job->status == HEFT_OK; at += RANGE_THREADS * RANGE_NBYTES) {
            uint64_t n = SIZE - at < RANGE_NBYTES ? SIZE - at : RANGE_NBYTES;
            job->status = heft_writer_write(job->writer, item, at, bytes, n, &err);
        }
    }
    return NULL;
}

static void ranges_from_several_threads(void **state) {
    (void)state;
    const heft_set_options set = {.struct_size = sizeof set, .ceiling_nbytes = SIZE, .create_dir = true};
    heft_save_item items[TENSORS];
    items_of(items, 1);
    for (int round = 0; round < 2; round++) {
        char *path = strdup(test_path(round ? "ranges-set" : "ranges"));
        heft_save_options over = overwriting();
        heft_error err;
        pthread_t threads[RANGE_THREADS];
        range_job jobs[RANGE_THREADS];
        heft_writer *writer;
        if (heft_writer_open(path, HEFT_WRITER_DECLARED, items, TENSORS, &over, round ? &set : NULL, &writer, &err))
            fail_msg("%s", err.message);
        for (uint64_t i = 0; i < RANGE_THREADS; i++) {
            jobs[i] = (range_job){writer, i, HEFT_OK};
            assert_int_equal(pthread_create(&threads[i], NULL, write_ranges, &jobs[i]), 0);
        }
        for (int i = 0; i < RANGE_THREADS; i++) {
            pthread_join(threads[i], NULL);
            assert_int_equal(jobs[i].status, HEFT_OK);
        }
        if (heft_writer_finish(writer, NULL, &err)) fail_msg("%s", err.message);
        heft_writer_free(writer);
        assert_mark(path, 2);
        free(path);
    }
}

/* What a writer holds at most: one file and the tensor in flight, or only what is in flight. */
static void memory_of_writers(void **state) {
    (void)state;
    enum { COUNT = 40, EACH = 1 << 18 };
    static uint8_t data[EACH];
    const int64_t shape[] = {EACH / 512, 512}, turned[] = {1, EACH / 512};
    for (int way = 0; way < 6; way++) {
        heft_writer_mode mode = (heft_writer_mode)(way / 2);
        test_allocator t;
        heft_writer *writer;
        heft_error err;
        char names_of[COUNT][8];
        heft_save_item items[COUNT];
        heft_save_options over = overwriting();
        heft_set_options set = {.struct_size = sizeof set, .ceiling_nbytes = 4 * EACH, .create_dir = true};
        test_allocator_init(&t, 0);
        over.allocator = &t.alloc;
        over.workers = 2;
        for (int i = 0; i < COUNT; i++) {
            snprintf(names_of[i], sizeof names_of[i], "t%d", i);
            items[i] = (heft_save_item){.name = names_of[i], .data = data, .shape = shape, .rank = 2, .dtype = HEFT_U8,
                                        .stride_nbytes = i % 2 ? turned : NULL};
        }
        bool declared = mode == HEFT_WRITER_DECLARED;
        if (heft_writer_open(test_path(way % 2 ? "bounded-set" : "bounded"), mode, declared ? items : NULL, declared ? COUNT : 0,
                             &over, way % 2 ? &set : NULL, &writer, &err))
            fail_msg("%s", err.message);
        for (uint64_t i = 0; i < COUNT; i++)
            if (declared ? heft_writer_write(writer, i, 0, data, EACH, &err) : heft_writer_add(writer, &items[i], &err))
                fail_msg("%s", err.message);
        if (heft_writer_finish(writer, NULL, &err)) fail_msg("%s", err.message);
        heft_writer_free(writer);
        uint64_t most = (mode == HEFT_WRITER_COLLECT ? (way % 2 ? 5 : COUNT) : 0) * (uint64_t)EACH + (4u << 20);
        if (t.peak_nbytes > most) fail_msg("way %d: %llu bytes", way, (unsigned long long)t.peak_nbytes);
        assert_int_equal(t.live_blocks, 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(verify_sees_every_part, no_trap),
        cmocka_unit_test(sources_that_change),
        cmocka_unit_test(a_mapped_file_is_replaced),
        cmocka_unit_test(verified_while_it_is_replaced), cmocka_unit_test(digests_that_are_none),
        cmocka_unit_test(digests_of_no_tensor),
        cmocka_unit_test(access_lists_are_kept),
        cmocka_unit_test(a_cache_of_the_hub_is_not_written_to),
        cmocka_unit_test(a_read_only_file_is_replaced),
        cmocka_unit_test(ranges_from_several_threads),
        cmocka_unit_test(memory_of_writers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
