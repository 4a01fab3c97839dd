/* Saves that make digests of tensors which have some already: every writer refuses damage, and nothing is left of the save. */
#include "helper_files.h"

#include <fcntl.h>
#include <unistd.h>

enum { ROWS = 50, COLUMNS = 20, ELEMENTS = ROWS * COLUMNS, TENSORS = 3 };
static const int64_t two_dims[] = {ROWS, COLUMNS};
static const char *const names[TENSORS] = {"a", "b", "c"};
static heft_error err;

#define OK(call) do { if ((call) != HEFT_OK) fail_msg("line %d: %s", __LINE__, err.message); } while (0)

static heft_save_options with_digests(uint32_t digests) {
    return (heft_save_options){.struct_size = sizeof(heft_save_options), .overwrite = true, .no_sync = true, .digests = digests};
}

static bool no_digests(void) {
    return !(heft_features() & HEFT_FEATURE_XXHASH);
}

/* A file of three tensors, all of whose elements are `mark`. */
static const char *make(const char *name, float mark, uint32_t digests) {
    static float data[ELEMENTS];
    heft_save_item items[TENSORS];
    heft_save_options options = with_digests(digests);
    const char *path = test_path(name);
    for (int i = 0; i < ELEMENTS; i++) data[i] = mark;
    for (int i = 0; i < TENSORS; i++)
        items[i] = (heft_save_item){.name = names[i], .data = data, .shape = two_dims, .rank = 2, .dtype = HEFT_F32};
    OK(heft_save(path, items, TENSORS, &options, NULL, &err));
    return path;
}

static heft_archive *open_path(const char *path) {
    heft_archive *archive;
    OK(heft_archive_open(path, NULL, &archive, &err));
    return archive;
}

/* Changes one bit of a tensor, in the file itself: a sidecar stays. */
static void damage(const char *path, const char *name) {
    heft_archive *archive = open_path(path);
    heft_tensor tensor;
    uint64_t id;
    uint8_t byte;
    OK(heft_archive_find(archive, name, SIZE_MAX, &id, &err));
    OK(heft_archive_get(archive, id, &tensor, &err));
    int fd = open(path, O_RDWR);
    assert_int_equal(pread(fd, &byte, 1, (off_t)tensor.offset + 100), 1);
    byte ^= 1;
    assert_int_equal(pwrite(fd, &byte, 1, (off_t)tensor.offset + 100), 1);
    close(fd);
    heft_archive_unref(archive);
}

static void take_all(heft_save_item items[TENSORS], const heft_archive *archive) {
    for (int i = 0; i < TENSORS; i++) {
        items[i] = (heft_save_item){.name = names[i], .archive = archive};
        OK(heft_archive_find(archive, names[i], SIZE_MAX, &items[i].id, &err));
    }
}

/* ---- every writer ---- */

enum { TO_FILE, TO_SET, TO_NEW_SET, TO_MEMORY, COLLECTED, COLLECTED_SET, BACKGROUND, WRITERS };

static heft_status collect(const char *path, const heft_save_item *items, const heft_save_options *options,
                           const heft_set_options *set) {
    heft_writer *writer;
    OK(heft_writer_open(path, HEFT_WRITER_COLLECT, NULL, 0, options, set, &writer, &err));
    heft_status status = HEFT_OK;
    for (int i = 0; i < TENSORS && status == HEFT_OK; i++) status = heft_writer_add(writer, &items[i], &err);
    if (status == HEFT_OK) status = heft_writer_finish(writer, NULL, &err);
    heft_writer_free(writer);
    return status;
}

static heft_status in_background(const char *path, const heft_save_item *items, const heft_save_options *options) {
    heft_saver_options how = {.struct_size = sizeof how};
    heft_saver *saver;
    OK(heft_saver_new(&how, &saver, &err));
    heft_status status = heft_saver_start(saver, path, items, TENSORS, options, NULL, &err);
    if (status == HEFT_OK) status = heft_saver_wait(saver, NULL, &err);
    heft_saver_free(saver);
    return status;
}

static heft_status write_by(int writer, const heft_save_item *items, uint32_t digests) {
    heft_save_options options = with_digests(digests);
    heft_set_options set = {.struct_size = sizeof set, .ceiling_nbytes = ELEMENTS * 4, .create_dir = true,
                            .publish = writer == TO_NEW_SET};
    heft_buffer buffer = {0};
    heft_status status;
    switch (writer) {
    case TO_FILE: return heft_save(test_path("out/x"), items, TENSORS, &options, NULL, &err);
    case TO_SET: return heft_save_set(test_path("out"), items, TENSORS, &options, &set, NULL, &err);
    case TO_NEW_SET: return heft_save_set(test_path("out/new"), items, TENSORS, &options, &set, NULL, &err);
    case COLLECTED: return collect(test_path("out/x"), items, &options, NULL);
    case COLLECTED_SET: return collect(test_path("out"), items, &options, &set);
    case BACKGROUND: return in_background(test_path("out/x"), items, &options);
    default:
        status = heft_save_buffer(items, TENSORS, &options, &buffer, NULL, &err);
        heft_buffer_release(&buffer);
        return status;
    }
}

static void every_writer(void **state) {
    (void)state;
    const uint32_t all = HEFT_DIGEST_TENSORS | HEFT_DIGEST_DATA;
    const uint32_t kinds[] = {all, HEFT_DIGEST_TENSORS, HEFT_DIGEST_SIDECAR};
    if (no_digests()) return;
    test_mkdir("out");
    char *old = strdup(make("out/x", 7, 0));
    size_t nbytes, again;
    uint8_t *before = test_slurp(old, &nbytes);
    for (int i = 0; i < 2 * WRITERS * 3; i++) {
        int writer = i / 2 % WRITERS;
        uint32_t known = kinds[i / 2 / WRITERS], made = i % 2 ? all : HEFT_DIGEST_SIDECAR;
        heft_save_item items[TENSORS];
        const char *source = make("source", 1, known);
        damage(source, "b");
        heft_archive *archive = open_path(source);
        take_all(items, archive);
        assert_int_equal(write_by(writer, items, made), HEFT_MISMATCH);
        assert_int_equal(err.fault, HEFT_FAULT_CHECKSUM);
        assert_string_equal(err.tensor, "b");
        assert_string_equal(err.file, source);
        assert_non_null(strstr(err.message, known == HEFT_DIGEST_SIDECAR ? "its sidecar says" : "its metadata says"));
        assert_int_equal(test_entries(test_path("out")), 1);
        uint8_t *after = test_slurp(old, &again);
        assert_int_equal(again, nbytes);
        assert_memory_equal(after, before, nbytes);
        free(after);
        heft_archive_unref(archive);
    }
    free(before);
    free(old);
}

/* ---- what is compared ---- */

static heft_status save_items(const heft_save_item *items, int nitems, uint32_t digests) {
    heft_save_options options = with_digests(digests);
    return heft_save(test_path("kept"), items, (uint64_t)nitems, &options, NULL, &err);
}

/* The result verifies: its digests are those of its bytes. */
static void saved(const heft_save_item *items, int nitems) {
    OK(save_items(items, nitems, HEFT_DIGEST_TENSORS | HEFT_DIGEST_DATA));
    heft_archive *archive = open_path(test_path("kept"));
    OK(heft_archive_verify(archive, NULL, 0, NULL, NULL, NULL, &err));
    heft_archive_unref(archive);
}

static void refused(const heft_save_item *items, int nitems) {
    assert_int_equal(save_items(items, nitems, HEFT_DIGEST_DATA), HEFT_MISMATCH);
    assert_int_equal(err.fault, HEFT_FAULT_CHECKSUM);
}

static void what_stays_as_it_is(void **state) {
    (void)state;
    if (no_digests()) return;
    heft_save_item items[2 * TENSORS];
    heft_archive *good = open_path(make("good", 2, HEFT_DIGEST_TENSORS)), *archive;
    take_all(items, good);
    saved(items, TENSORS);
    const char *path = make("bad", 1, HEFT_DIGEST_TENSORS);
    damage(path, "b");
    archive = open_path(path);
    take_all(items + TENSORS, archive);
    const char *const others[] = {"x", "y", "z"}; /* names have no say */
    for (int i = 0; i < TENSORS; i++) items[i].name = others[i];
    refused(items, 2 * TENSORS);
    assert_string_equal(err.tensor, "b");
    heft_save_item *bad = &items[TENSORS + 1], given = *bad;
    refused(bad, 1);
    OK(save_items(bad, 1, 0)); /* a copy as it is, whose digests nobody asked for */
    saved(items, TENSORS + 1);
    bad->as = HEFT_F16;
    saved(items, 2 * TENSORS);
    bad->as = HEFT_F32;
    refused(bad, 1);
    heft_view view;
    *bad = (heft_save_item){.name = "b", .view = &view};
    OK(heft_view_of(archive, given.id, &view, &err));
    refused(items, 2 * TENSORS);
    OK(heft_view_transpose(&view, 0, 1, &view, &err));
    saved(items, 2 * TENSORS);
    OK(heft_view_of(archive, given.id, &view, &err));
    view.shape[0]--;
    saved(bad, 1);
    heft_archive_unref(archive);
    heft_archive_unref(good);
}

/* The digest of all data speaks where all of a file goes into one. */
static void all_data(void **state) {
    (void)state;
    if (no_digests()) return;
    heft_save_item items[TENSORS];
    const char *path = make("data", 1, HEFT_DIGEST_DATA);
    heft_archive *archive = open_path(path);
    take_all(items, archive);
    saved(items, TENSORS);
    heft_archive_unref(archive);
    damage(path, "c");
    archive = open_path(path);
    take_all(items, archive);
    refused(items, TENSORS);
    saved(items, TENSORS - 1);
    heft_archive_unref(archive);
}

/* What is no digest is not known: a save is how it is mended. */
static void digests_that_are_none(void **state) {
    (void)state;
    if (no_digests()) return;
    heft_save_item items[TENSORS];
    heft_archive *archive = open_path(make("none", 1, 0));
    take_all(items, archive);
    static const char *const texts[] = {"{", "{\"algorithm\":\"xxh3-256, 4 MiB chunks\",\"tensors\":{}}"};
    for (size_t i = 0; i < 2; i++) {
        test_write("none.xxh3.json", texts[i], strlen(texts[i]));
        saved(items, TENSORS);
    }
    static const char wrong[] =
        "{\"algorithm\":\"xxh3-128, 4 MiB chunks\",\"tensors\":{\"a\":\"0123456789abcdef0123456789abcdef\"}}";
    test_write("none.xxh3.json", wrong, sizeof wrong - 1);
    refused(items, TENSORS);
    heft_archive_unref(archive);
}

static void allocations_fail(void **state) {
    (void)state;
    if (no_digests()) return;
    heft_save_item items[TENSORS];
    heft_archive *archive = open_path(make("memory", 1, HEFT_DIGEST_SIDECAR));
    take_all(items, archive);
    for (uint64_t k = 1;; k++) {
        test_allocator t;
        test_allocator_init(&t, k);
        heft_save_options options = with_digests(HEFT_DIGEST_TENSORS);
        options.allocator = &t.alloc;
        heft_status status = heft_save(test_path("kept"), items, TENSORS, &options, NULL, k % 2 ? &err : NULL);
        assert_int_equal(t.live_blocks, 0);
        if (status == HEFT_OK) break;
        assert_int_equal(status, HEFT_OUT_OF_MEMORY);
    }
    heft_archive_unref(archive);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_writer),          cmocka_unit_test(what_stays_as_it_is), cmocka_unit_test(all_data),
        cmocka_unit_test(digests_that_are_none), cmocka_unit_test(allocations_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
