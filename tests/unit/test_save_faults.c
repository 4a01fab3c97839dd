/* label: full */
/* Every way to save, with each of its system calls failing in turn, interrupted, short, or the last: what is found is old or new
 * and whole, nothing else is left, and the failure is told. */
#include "helper_disk.h"
#include "helper_target.h"
#include "helper_ways.h"

#include <errno.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#if defined(__linux__)
#include <sys/mount.h>
#endif
#include <unistd.h>

static int outcomes[4];

/* Calls from one that fails to the next: every one, or fewer where programs run slowly. */
static uint64_t step(void) {
    return 20 / test_count(20);
}

/* What is found, and made whole without waiting for a disk. */
static int found_in(const save_way *way, const char *folder) {
    trap_begin(&(trap_plan){0});
    int found = save_way_found(way, folder);
    trap_end();
    return found;
}

static char *fresh(const save_way *way) {
    char *folder = strdup(test_mkdir("ways"));
    disk_empty(folder);
    trap_begin(&(trap_plan){0});
    save_way_prepare(way, folder);
    trap_end();
    return folder;
}

/* Entries of the folder when all is whole. */
static int whole_entries(const save_way *way, int found) {
    static char counted[200];
    static int entries[3];
    if (strcmp(counted, way->name) != 0) { /* as they are without a fault */
        heft_error err;
        int temps = 0;
        snprintf(counted, sizeof counted, "%s", way->name);
        char *folder = fresh(way);
        entries[0] = 0;
        entries[1] = save_way_entries(folder, &temps);
        trap_begin(&(trap_plan){0});
        if (save_way_run(way, folder, &err)) fail_msg("%s: %s", way->name, err.message);
        trap_end();
        entries[2] = save_way_entries(folder, &temps);
        assert_int_equal(temps, 0);
        free(folder);
    }
    return entries[found];
}

/* What is found after a save that ended as `status`. */
static void check(const save_way *way, const char *folder, heft_status status, const heft_error *err, uint64_t k) {
    int temps = 0, found = found_in(way, folder);
    outcomes[found]++;
    if (status == HEFT_OK && found != 2) fail_msg("%s: call %u: a failure is not told", way->name, (unsigned)k);
    if (status != HEFT_OK && (err->status != status || !err->message[0])) fail_msg("%s: it is not said why", way->name);
    int n = save_way_entries(folder, &temps), all = whole_entries(way, found == 3 ? 2 : found);
    /* Of a folder that was made, the folder; of digests beside a file, those of neither: they go first and come last. */
    bool fewer = way->digests && n == all - 1;
    bool folder_left = found == 0 && n == 1 && strcmp(way->target, "new") == 0;
    if (temps || (n != all && !fewer && !folder_left))
        fail_msg("%s: call %u leaves %d files, not %d", way->name, (unsigned)k, n, all);
}

static void failing_at_every_call(void **state) {
    (void)state;
    static const int codes[] = {EIO, ENOSPC, EDQUOT};
    memset(outcomes, 0, sizeof outcomes);
    for (size_t i = 0; i < nsave_ways; i++) {
        const save_way *way = &save_ways[i];
        if (!save_way_can(way)) continue;
        (void)whole_entries(way, 0);
        for (size_t c = 0; c < sizeof codes / sizeof *codes; c++)
            for (uint64_t k = 1;; k += step()) {
                heft_error err = {0};
                char *folder = fresh(way);
                int fds = test_count_fds();
                trap_begin(&(trap_plan){.fail_call = k, .fail_errno = codes[c]});
                heft_status status = save_way_run(way, folder, &err);
                uint64_t calls = trap_calls();
                trap_end();
                assert_int_equal(test_count_fds(), fds);
                if (status != HEFT_OK && err.sys_errno != codes[c])
                    fail_msg("%s: call %u: errno %d of %d: %s", way->name, (unsigned)k, err.sys_errno, codes[c], err.message);
                check(way, folder, status, &err, k);
                free(folder);
                if (calls < k) break;
            }
    }
    assert_true(step() > 1 || (outcomes[0] > 100 && outcomes[1] > 400 && outcomes[2] > 100 && outcomes[3] > 50));
}

/* As a call that fails, but that what is told is the lack of memory. */
static void memory_failing_at_every_allocation(void **state) {
    (void)state;
    for (size_t i = 0; i < nsave_ways; i++) {
        const save_way *way = &save_ways[i];
        if (!save_way_can(way)) continue;
        (void)whole_entries(way, 0);
        for (int after = 0; after < 2; after++)
            for (uint64_t k = 1;; k += step()) {
                heft_error err = {0};
                test_allocator memory;
                char *folder = fresh(way);
                int fds = test_count_fds();
                test_allocator_init(&memory, k);
                memory.fail_after = after;
                save_way_alloc = &memory.alloc;
                trap_begin(&(trap_plan){0});
                heft_status status = save_way_run(way, folder, &err);
                trap_end();
                save_way_alloc = NULL;
                assert_int_equal(test_count_fds(), fds);
                if (memory.live_blocks)
                    fail_msg("%s: allocation %u: %u blocks are left", way->name, (unsigned)k, (unsigned)memory.live_blocks);
                if (status != HEFT_OK && (status != HEFT_OUT_OF_MEMORY || err.fault != HEFT_FAULT_MEMORY || memory.calls < k))
                    fail_msg("%s: allocation %u: %s: %s", way->name, (unsigned)k, heft_status_name(status), err.message);
                check(way, folder, status, &err, k);
                free(folder);
                if (memory.calls < k) break;
            }
    }
}

static void interrupted_and_short(void **state) {
    (void)state;
    for (size_t i = 0; i < nsave_ways; i++) {
        const save_way *way = &save_ways[i];
        if (!save_way_can(way)) continue;
        for (int round = 1; round < 6; round++) {
            heft_error err = {0};
            (void)whole_entries(way, 0);
            char *folder = fresh(way);
            int temps = 0;
            trap_begin(&(trap_plan){.interrupt = round & 1, .most = round & 2 ? 7 : 0,
                                    .no_reserve = round & 4 ? EOPNOTSUPP : 0, .no_clone = round & 1 ? EXDEV : 0,
                                    .no_copy = round & 4 ? ENOSYS : 0, .no_rename_new = round & 4 ? ENOSYS : 0});
            if (save_way_run(way, folder, &err)) fail_msg("%s: %s", way->name, err.message);
            trap_end();
            assert_int_equal(save_way_found(way, folder), 2);
            assert_int_equal(save_way_entries(folder, &temps), whole_entries(way, 2));
            free(folder);
        }
    }
}

/* SIGKILL before each call; cleaning takes what is left. */
static void killed_at_every_call(void **state) {
    (void)state;
    memset(outcomes, 0, sizeof outcomes);
    for (size_t i = 0; i < nsave_ways; i++) {
        const save_way *way = &save_ways[i];
        if (!save_way_can(way)) continue;
        for (uint64_t k = 1, over = false; !over; k += step()) {
            heft_error err = {0};
            int status, temps = 0;
            uint64_t removed;
            char *folder = fresh(way);
            pid_t child = fork();
            assert_true(child >= 0);
            if (child == 0) {
                trap_begin(&(trap_plan){.fail_call = k, .die = true});
                _exit(save_way_run(way, folder, &err) != HEFT_OK);
            }
            assert_int_equal(waitpid(child, &status, 0), child);
            over = WIFEXITED(status);
            if (over) assert_int_equal(WEXITSTATUS(status), 0);
            outcomes[found_in(way, folder)]++;
            char *inner = *way->target && strcmp(way->target, "new") == 0 ? strdup(test_path("ways/new")) : strdup(folder);
            heft_status cleaned = heft_save_clean(inner, false, NULL, &removed, &err);
            if (cleaned != HEFT_OK && cleaned != HEFT_NOT_FOUND) fail_msg("%s: %s", way->name, err.message);
            (void)save_way_entries(folder, &temps);
            if (temps) fail_msg("%s: call %u leaves %d temporary files", way->name, (unsigned)k, temps);
            free(inner);
            free(folder);
        }
    }
    assert_true(step() > 1 || (outcomes[0] > 50 && outcomes[1] > 100 && outcomes[2] > 50 && outcomes[3] > 20));
}

/* A file system that is full after so many pages, where one can be made: at each of them the save fails and the old one stays, or
 * it has room. Nobody says beforehand that it is full, or it reserves nothing. */
static void full_at_every_page(void **state) {
    (void)state;
#if defined(__linux__)
    enum { PAGE = 4096 };
    char *folder = strdup(test_mkdir("small"));
    int full = 0, fits = 0;
    for (size_t i = 0; i < nsave_ways; i++) {
        const save_way *way = &save_ways[i];
        if (!save_way_can(way)) continue;
        for (int pages = !way->before, over = 0; !over; pages++) /* of 0 pages there is no limit */
            for (int told = 0; told < 3; told++) {
                heft_error err = {0};
                int temps = 0;
                if (mount("none", folder, "tmpfs", 0, "size=1m") != 0) skip();
                trap_begin(&(trap_plan){0});
                save_way_prepare(way, folder);
                trap_end();
                int before = save_way_entries(folder, &temps);
                char size[40];
                snprintf(size, sizeof size, "size=%dk", (before + pages) * PAGE / 1024); /* each file is one page */
                assert_int_equal(mount("none", folder, "tmpfs", MS_REMOUNT, size), 0);
                trap_begin(&(trap_plan){.space = told ? UINT64_C(1) << 40 : 0, .no_reserve = told == 2 ? EOPNOTSUPP : 0});
                heft_status status = save_way_run(way, folder, &err);
                trap_end();
                int found = save_way_found(way, folder);
                if (status == HEFT_OK) assert_int_equal(found, 2);
                else {
                    assert_true(status == HEFT_IO || status == HEFT_LIMIT);
                    if (err.fault != HEFT_FAULT_NO_SPACE) fail_msg("%s: %s", way->name, err.message);
                    assert_int_equal(found, way->before ? 1 : 0);
                }
                temps = 0;
                (void)save_way_entries(folder, &temps);
                if (temps) fail_msg("%s: %d pages: %d temporary files", way->name, pages, temps);
                full += status != HEFT_OK;
                fits += status == HEFT_OK;
                over = status == HEFT_OK || pages > 30;
                assert_int_equal(umount(folder), 0);
            }
    }
    assert_true(full > 60 && fits > 60);
    free(folder);
#endif
}

/* A full file that cannot be written keeps its tensors: the failure says which it is, and the call may be repeated. */
static void a_flush_is_repeated(void **state) {
    (void)state;
    static uint8_t bytes[100];
    static const int64_t shape[] = {sizeof bytes};
    static const char *const names[] = {"a", "b", "c"};
    const heft_set_options set = {.struct_size = sizeof set, .ceiling_nbytes = sizeof bytes};
    char *folder = strdup(test_mkdir("flush"));
    int failures = 0;
    for (uint64_t k = 1, over = false; !over; k++) {
        heft_writer *writer;
        heft_error err = {0};
        heft_status last = HEFT_OK;
        disk_empty(folder);
        assert_int_equal(heft_writer_open(folder, HEFT_WRITER_COLLECT, NULL, 0, NULL, &set, &writer, &err), HEFT_OK);
        trap_begin(&(trap_plan){.fail_call = k, .fail_errno = EIO});
        for (int i = 0; i < 3; i++) {
            heft_save_item item = {.name = names[i], .data = bytes, .shape = shape, .rank = 1, .dtype = HEFT_U8};
            memset(bytes, i + 1, sizeof bytes);
            heft_status status = heft_writer_add(writer, &item, &err);
            if (status == HEFT_OK) continue;
            char number[20];
            snprintf(number, sizeof number, "model-%05d", i);
            if (last != HEFT_OK || !strstr(err.message, number)) fail_msg("add %d: %s", i, err.message);
            last = status;
            failures++;
            i--; /* once more */
        }
        over = trap_calls() < k;
        trap_end();
        if (heft_writer_finish(writer, NULL, &err)) fail_msg("%s", err.message);
        heft_writer_free(writer);
        heft_archive *archive;
        assert_int_equal(heft_archive_open(folder, NULL, &archive, &err), HEFT_OK);
        assert_int_equal(heft_archive_file_count(archive), 3);
        for (int i = 0; i < 3; i++) {
            heft_view view;
            assert_int_equal(heft_view_named(archive, names[i], 1, &view, NULL), HEFT_OK);
            assert_int_equal(heft_read(&view, bytes, sizeof bytes, NULL, NULL, NULL), HEFT_OK);
            for (size_t j = 0; j < sizeof bytes; j++) assert_int_equal(bytes[j], i + 1);
        }
        heft_archive_unref(archive);
        int temps = 0;
        assert_int_equal(save_way_entries(folder, &temps), 4);
    }
    assert_true(failures > 6);
    free(folder);
}

/* What else is in the folder of a set is in nobody's way. */
static void folders_beside_a_set(void **state) {
    (void)state;
    for (size_t i = 0; i < nsave_ways; i++) {
        const save_way *way = &save_ways[i];
        heft_error err;
        if (*way->target || !save_way_can(way)) continue;
        char *folder = fresh(way);
        test_mkdir("ways/model");
        test_write("ways/model.part", "x", 1);
        trap_begin(&(trap_plan){0});
        if (save_way_run(way, folder, &err)) fail_msg("%s: %s", way->name, err.message);
        trap_end();
        assert_int_equal(save_way_found(way, folder), 2);
        free(folder);
    }
}

static int teardown(void **state) {
    (void)state;
    trap_end();
#if defined(__linux__)
    (void)umount(test_path("small"));
#endif
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(failing_at_every_call, teardown),
        cmocka_unit_test_teardown(memory_failing_at_every_allocation, teardown),
        cmocka_unit_test_teardown(interrupted_and_short, teardown),
        cmocka_unit_test_teardown(killed_at_every_call, teardown),
        cmocka_unit_test_teardown(full_at_every_page, teardown),
        cmocka_unit_test_teardown(a_flush_is_repeated, teardown),
        cmocka_unit_test_teardown(folders_beside_a_set, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
