/* label: threads */
/* Saves in the background: one at a time, snapshots, cancelling, results that are not lost; writers under failing memory. */
#include "helper_files.h"

#include <dirent.h>
#include <errno.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

enum { ROWS = 300, COLUMNS = 700 };
static const int64_t shape[] = {ROWS, COLUMNS}, turned[] = {COLUMNS, ROWS}, strides[] = {4, COLUMNS * 4};
static uint32_t values[ROWS * COLUMNS];

static void fill(uint32_t mark) {
    for (uint32_t i = 0; i < ROWS * COLUMNS; i++) values[i] = mark + i;
}

static void items_of(heft_save_item items[2]) {
    items[0] = (heft_save_item){.name = "packed", .data = values, .shape = shape, .rank = 2, .dtype = HEFT_U32};
    items[1] = (heft_save_item){.name = "turned", .data = values, .shape = turned, .stride_nbytes = strides, .rank = 2,
                                .dtype = HEFT_U32};
}

static void check(const char *path, uint32_t mark) {
    heft_archive *archive;
    heft_error err;
    heft_view view;
    static uint32_t back[ROWS * COLUMNS];
    if (heft_archive_open(path, NULL, &archive, &err)) fail_msg("%s", err.message);
    for (int t = 0; t < 2; t++) {
        assert_int_equal(heft_view_named(archive, t ? "turned" : "packed", SIZE_MAX, &view, NULL), HEFT_OK);
        assert_int_equal(heft_read(&view, back, sizeof back, NULL, NULL, NULL), HEFT_OK);
        for (uint32_t i = 0; i < ROWS * COLUMNS; i++)
            assert_int_equal(back[i], mark + (t ? i % ROWS * COLUMNS + i / ROWS : i));
    }
    heft_archive_unref(archive);
}

static heft_save_options overwriting(void) {
    return (heft_save_options){.struct_size = sizeof(heft_save_options), .overwrite = true, .no_sync = true};
}

static void snapshots_let_memory_go(void **state) {
    (void)state;
    heft_saver *saver;
    heft_error err;
    heft_save_stats stats;
    heft_saver_options options = {.struct_size = sizeof options, .snapshot = true};
    heft_save_options over = overwriting();
    assert_int_equal(heft_saver_new(&options, &saver, NULL), HEFT_OK);
    assert_int_equal(heft_saver_wait(saver, &stats, NULL), HEFT_OK); /* nothing to wait for */
    for (uint32_t round = 0; round < 4; round++) {
        heft_save_item items[2];
        char name[16] = "packed", key[8] = "step", value[8] = "1";
        heft_pair pair = {key, SIZE_MAX, value, SIZE_MAX};
        over.metadata = &pair;
        over.nmetadata = 1;
        fill(round * 1000);
        items_of(items);
        items[0].name = name;
        assert_int_equal(heft_saver_start(saver, test_path("snapshot"), items, 2, &over, NULL, NULL), HEFT_OK);
        fill(77); /* training goes on */
        memset(name, 'x', 6), memset(key, 'x', 4), memset(items, 0, sizeof items);
        assert_int_equal(heft_saver_start(saver, test_path("other"), items, 0, &over, NULL, &err), HEFT_INVALID_ARGUMENT);
        uint64_t done, total;
        while (heft_saver_poll(saver, &done, &total)) nanosleep(&(struct timespec){0, 1000000}, NULL);
        assert_int_equal(done, total);
        assert_int_equal(heft_saver_start(saver, test_path("other"), items, 0, &over, NULL, &err), HEFT_INVALID_ARGUMENT);
        assert_int_equal(heft_saver_wait(saver, &stats, NULL), HEFT_OK);
        assert_int_equal(stats.ntensors, 2);
        check(test_path("snapshot"), round * 1000);
    }
    heft_saver_free(saver);
    assert_int_equal(access(test_path("other"), F_OK), -1);
}

static void borrowed_memory_views_and_sets(void **state) {
    (void)state;
    heft_saver *saver;
    heft_save_options over = overwriting();
    heft_save_item items[2];
    fill(5);
    items_of(items);
    assert_int_equal(heft_saver_new(NULL, &saver, NULL), HEFT_OK);
    assert_int_equal(heft_saver_start(saver, test_path("borrowed"), items, 2, &over, NULL, NULL), HEFT_OK);
    assert_int_equal(heft_saver_wait(saver, NULL, NULL), HEFT_OK);
    check(test_path("borrowed"), 5);
    heft_archive *archive;
    heft_view view;
    assert_int_equal(heft_archive_open(test_path("borrowed"), NULL, &archive, NULL), HEFT_OK);
    assert_int_equal(heft_view_named(archive, "packed", SIZE_MAX, &view, NULL), HEFT_OK);
    uint64_t id;
    assert_int_equal(heft_archive_find(archive, "turned", SIZE_MAX, &id, NULL), HEFT_OK);
    heft_save_item copies[] = {{.name = "packed", .view = &view}, {.name = "turned", .archive = archive, .id = id}};
    heft_set_options set = {.struct_size = sizeof set, .ceiling_nbytes = 1, .create_dir = true};
    assert_int_equal(heft_saver_start(saver, test_path("set"), copies, 2, &over, &set, NULL), HEFT_OK);
    memset(&view, 0xFF, sizeof view);
    heft_archive_unref(archive); /* the saver holds it */
    heft_save_stats stats;
    assert_int_equal(heft_saver_wait(saver, &stats, NULL), HEFT_OK);
    assert_int_equal(stats.nfiles, 2);
    check(test_path("set"), 5);
    heft_saver_free(saver);
}

static atomic_int completions;
static heft_status completed_status;
static void completed(void *ctx, heft_status status, const heft_error *error) {
    assert_true(ctx == &completions);
    assert_true((status == HEFT_OK) == (error == NULL));
    completed_status = status;
    atomic_fetch_add(&completions, 1);
}

static void failures_are_not_lost(void **state) {
    (void)state;
    heft_saver *saver;
    heft_error err;
    heft_save_item items[2];
    heft_saver_options options = {.struct_size = sizeof options, .completed = completed, .completed_ctx = &completions};
    items_of(items);
    assert_int_equal(heft_saver_new(&options, &saver, NULL), HEFT_OK);
    assert_int_equal(heft_saver_start(saver, test_path("nowhere/x"), items, 2, NULL, NULL, NULL), HEFT_OK);
    assert_int_equal(heft_saver_wait(saver, NULL, &err), HEFT_NOT_FOUND);
    assert_string_equal(err.file, test_path("nowhere/x"));
    assert_int_equal(atomic_load(&completions), 1);
    items[1].name = "packed";
    assert_int_equal(heft_saver_start(saver, test_path("twice"), items, 2, NULL, NULL, NULL), HEFT_OK);
    heft_saver_free(saver); /* nobody waits */
    assert_int_equal(atomic_load(&completions), 2);
    assert_int_equal(completed_status, HEFT_INVALID_ARGUMENT);
    items[1].name = NULL;
    options.snapshot = true;
    assert_int_equal(heft_saver_new(&options, &saver, NULL), HEFT_OK);
    assert_int_equal(heft_saver_start(saver, test_path("null"), items, 2, NULL, NULL, &err), HEFT_INVALID_ARGUMENT);
    items_of(items);
    assert_int_equal(heft_saver_start(saver, test_path("fine"), items, 2, NULL, NULL, NULL), HEFT_OK); /* not in flight */
    assert_int_equal(heft_saver_wait(saver, NULL, NULL), HEFT_OK);
    heft_saver_free(saver);
    heft_saver_free(NULL);
}

static int cancel_from_inside(void *ctx, uint64_t done, uint64_t total) {
    (void)done, (void)total;
    heft_saver_cancel(ctx);
    return 0;
}

static void cancelled_saves_leave_the_old(void **state) {
    (void)state;
    heft_saver *saver;
    heft_error err;
    heft_save_item items[2];
    heft_save_options over = overwriting();
    fill(1);
    items_of(items);
    assert_int_equal(heft_save(test_path("cancelled"), items, 2, &over, NULL, NULL), HEFT_OK);
    fill(2);
    assert_int_equal(heft_saver_new(NULL, &saver, NULL), HEFT_OK);
    over.progress = cancel_from_inside;
    over.progress_ctx = saver;
    assert_int_equal(heft_saver_start(saver, test_path("cancelled"), items, 2, &over, NULL, NULL), HEFT_OK);
    assert_int_equal(heft_saver_wait(saver, NULL, &err), HEFT_CANCELLED);
    check(test_path("cancelled"), 1);
    over.progress = NULL;
    assert_int_equal(heft_saver_start(saver, test_path("cancelled"), items, 2, &over, NULL, NULL), HEFT_OK);
    assert_int_equal(heft_saver_wait(saver, NULL, &err), HEFT_OK);
    check(test_path("cancelled"), 2);
    heft_saver_free(saver);
}

/* Under keep_fortran what lies with its first dim fastest is written so, also out of a copy. */
static void copies_keep_the_order_of_memory(void **state) {
    (void)state;
    static const int64_t hollow[] = {3, 0};
    heft_save_item items[3];
    heft_save_options over = overwriting();
    const heft_saver_options snapshot = {.struct_size = sizeof snapshot, .snapshot = true};
    over.format = "npz";
    over.keep_fortran = true;
    fill(7);
    for (int way = 0; way < 2; way++) {
        heft_saver *saver;
        heft_writer *writer;
        heft_archive *archive;
        heft_tensor tensor;
        size_t n, wanted;
        char *plain = strdup(test_path("fortran-plain")), *path = strdup(test_path("fortran"));
        items_of(items);
        items[2] = (heft_save_item){.name = "z", .data = values, .shape = hollow, .stride_nbytes = strides, .rank = 2,
                                    .dtype = HEFT_F64};
        assert_int_equal(heft_save(plain, items, 3, &over, NULL, NULL), HEFT_OK);
        if (way) {
            assert_int_equal(heft_saver_new(&snapshot, &saver, NULL), HEFT_OK);
            assert_int_equal(heft_saver_start(saver, path, items, 3, &over, NULL, NULL), HEFT_OK);
            assert_int_equal(heft_saver_wait(saver, NULL, NULL), HEFT_OK);
            heft_saver_free(saver);
        } else {
            int64_t *steps = malloc(sizeof strides); /* goes: tensors are copied, with and without elements */
            assert_non_null(steps);
            memcpy(steps, strides, sizeof strides);
            items[1].stride_nbytes = items[2].stride_nbytes = steps;
            assert_int_equal(heft_writer_open(path, HEFT_WRITER_COLLECT, NULL, 0, &over, NULL, &writer, NULL), HEFT_OK);
            for (int i = 0; i < 3; i++) assert_int_equal(heft_writer_add(writer, &items[i], NULL), HEFT_OK);
            free(steps);
            assert_int_equal(heft_writer_finish(writer, NULL, NULL), HEFT_OK);
            heft_writer_free(writer);
        }
        uint8_t *bytes = test_slurp(path, &n), *as_saved = test_slurp(plain, &wanted);
        assert_int_equal(n, wanted);
        assert_memory_equal(bytes, as_saved, n);
        assert_int_equal(heft_archive_open(path, NULL, &archive, NULL), HEFT_OK);
        for (uint64_t i = 0; i < 2; i++) {
            assert_int_equal(heft_archive_get(archive, i, &tensor, NULL), HEFT_OK);
            assert_int_equal(tensor.layout, i ? HEFT_LAYOUT_FORTRAN : 0);
        }
        heft_archive_unref(archive);
        check(path, 7);
        free(bytes);
        free(as_saved);
        free(plain);
        free(path);
    }
}

/* Without a tensor, by every mode: a file, and a set of one file without an index. */
static void writers_of_nothing(void **state) {
    (void)state;
    heft_save_options over = overwriting();
    heft_set_options set = {.struct_size = sizeof set, .create_dir = true};
    for (int way = 0; way < 6; way++) {
        heft_writer *writer;
        heft_archive *archive;
        heft_save_stats stats;
        const char *path = test_path(way & 1 ? "nothing-set" : "nothing");
        heft_status status = heft_writer_open(path, (heft_writer_mode)(way / 2), NULL, 0, &over, way & 1 ? &set : NULL,
                                              &writer, NULL);
        assert_int_equal(status, HEFT_OK);
        assert_int_equal(heft_writer_finish(writer, &stats, NULL), HEFT_OK);
        heft_writer_free(writer);
        assert_true(stats.nfiles == 1 && stats.ntensors == 0 && stats.data_nbytes == 0);
        assert_int_equal(heft_archive_open(path, NULL, &archive, NULL), HEFT_OK);
        assert_true(heft_archive_count(archive) == 0 && heft_archive_file_count(archive) == 1);
        heft_archive_unref(archive);
    }
    assert_int_equal(heft_save_set(test_path("nothing-set"), NULL, 0, &over, &set, NULL, NULL), HEFT_OK);
}

/* Also the empty one, and in another file of a set. */
static void writers_refuse_a_name_twice(void **state) {
    (void)state;
    static const char *const names[] = {"", "x"};
    heft_save_options over = overwriting();
    const heft_set_options each = {.struct_size = sizeof each, .create_dir = true, .ceiling_nbytes = 1};
    for (int way = 0; way < 8; way++) {
        heft_writer *writer;
        heft_error err;
        heft_writer_mode mode = way & 1 ? HEFT_WRITER_STREAM : HEFT_WRITER_COLLECT;
        heft_save_item items[2];
        items_of(items);
        items[0].name = names[way / 4];
        const char *path = test_path(way & 2 ? "twice-set" : "twice-file");
        assert_int_equal(heft_writer_open(path, mode, NULL, 0, &over, way & 2 ? &each : NULL, &writer, NULL), HEFT_OK);
        for (int i = 0; i < 2; i++) assert_int_equal(heft_writer_add(writer, &items[i], NULL), HEFT_OK);
        assert_int_equal(heft_writer_add(writer, &items[0], &err), HEFT_INVALID_ARGUMENT);
        assert_int_equal(err.fault, HEFT_FAULT_DUPLICATE_NAME);
        heft_writer_free(writer);
    }
}

/* ---- failing memory ---- */

/* Allocators are copied: the struct may be overwritten after each call that is given it. */
static heft_status use_saver(const heft_allocator *alloc, bool snapshot, bool own) {
    heft_saver *saver;
    heft_allocator given = *alloc;
    heft_save_item items[2];
    heft_pair pair = {"k", SIZE_MAX, "v", SIZE_MAX};
    heft_saver_options options = {.struct_size = sizeof options, .snapshot = snapshot, .allocator = &given};
    heft_save_options over = overwriting();
    over.metadata = &pair;
    over.nmetadata = 1;
    over.workers = 1;
    items_of(items);
    heft_status status = heft_saver_new(&options, &saver, NULL);
    memset(&given, 0, sizeof given);
    if (status != HEFT_OK) return status;
    given = *alloc;
    if (own) over.allocator = &given;
    status = heft_saver_start(saver, test_path("memory"), items, 2, &over, NULL, NULL);
    memset(&given, 0, sizeof given);
    if (status == HEFT_OK) status = heft_saver_wait(saver, NULL, NULL);
    heft_saver_free(saver);
    return status;
}

static heft_status use_writer(const heft_allocator *alloc, heft_writer_mode mode, bool set) {
    heft_writer *writer;
    heft_allocator given = *alloc;
    heft_save_item items[2];
    heft_save_options over = overwriting();
    heft_set_options set_options = {.struct_size = sizeof set_options, .ceiling_nbytes = 1, .create_dir = true};
    over.allocator = &given;
    over.workers = 1;
    items_of(items);
    bool declared = mode == HEFT_WRITER_DECLARED;
    heft_status status = heft_writer_open(test_path(set ? "memory-set" : "memory-file"), mode, declared ? items : NULL,
                                          declared ? 2 : 0, &over, set ? &set_options : NULL, &writer, NULL);
    memset(&given, 0, sizeof given);
    if (status != HEFT_OK) return status;
    for (uint64_t i = 0; i < 2 && status == HEFT_OK; i++)
        status = declared ? heft_writer_write(writer, i, 0, values, sizeof values, NULL)
                          : heft_writer_add(writer, &items[i], NULL);
    if (status == HEFT_OK) status = heft_writer_finish(writer, NULL, NULL);
    heft_writer_free(writer);
    return status;
}

static void every_allocation_can_fail(void **state) {
    (void)state;
    for (int way = 0; way < 10; way++)
        for (uint64_t k = 1;; k++) {
            test_allocator t;
            test_allocator_init(&t, k);
            int fds = test_count_fds();
            heft_status status = way < 4 ? use_saver(&t.alloc, way & 1, way & 2)
                                         : use_writer(&t.alloc, (heft_writer_mode)(way / 2 - 2), way % 2);
            assert_int_equal(t.live_blocks, 0);
            assert_int_equal(test_count_fds(), fds);
            if (status == HEFT_OK && t.calls < k) break;
            assert_true(status == HEFT_OUT_OF_MEMORY || status == HEFT_OK);
        }
    DIR *d = opendir(test_dir());
    for (struct dirent *e; (e = readdir(d));) assert_memory_not_equal(e->d_name, ".heft-", 6);
    closedir(d);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(snapshots_let_memory_go),       cmocka_unit_test(borrowed_memory_views_and_sets),
        cmocka_unit_test(failures_are_not_lost),         cmocka_unit_test(cancelled_saves_leave_the_old),
        cmocka_unit_test(writers_of_nothing),            cmocka_unit_test(writers_refuse_a_name_twice),
        cmocka_unit_test(copies_keep_the_order_of_memory), cmocka_unit_test(every_allocation_can_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
