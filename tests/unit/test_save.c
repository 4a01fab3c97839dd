/* label: threads */
/* Saves of one file: modes, owners, links, refusals; every system call that fails, is interrupted or is the last; threads. */
#include "helper_files.h"
#include "helper_target.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#if defined(__linux__)
#include <sys/mount.h>
#endif
#include <unistd.h>

static const int64_t one_dim[] = {1000};
static uint8_t numbers[3][1000];

/* Three tensors whose bytes are all `mark`, and what they look like when saved. */
static heft_status save_marked(const char *path, uint8_t mark, const heft_save_options *options, heft_error *err) {
    uint8_t bytes[3][1000];
    static const char *const names[] = {"a", "b", "c"};
    heft_save_item items[3] = {{0}};
    memset(bytes, mark, sizeof bytes);
    for (int i = 0; i < 3; i++)
        items[i] = (heft_save_item){.name = names[i], .data = bytes[i], .shape = one_dim, .rank = 1, .dtype = HEFT_U8};
    return heft_save(path, items, 3, options, NULL, err);
}

/* The mark of a whole file; fails if it is not whole. */
static uint8_t mark_of(const char *path) {
    heft_archive *archive;
    heft_error err;
    if (heft_archive_open(path, NULL, &archive, &err)) fail_msg("%s", err.message);
    assert_int_equal(heft_archive_count(archive), 3);
    for (uint64_t i = 0; i < 3; i++) {
        heft_view view;
        assert_int_equal(heft_view_of(archive, i, &view, NULL), HEFT_OK);
        assert_int_equal(heft_read(&view, numbers[i], 1000, NULL, NULL, NULL), HEFT_OK);
        for (int j = 0; j < 1000; j++) assert_int_equal(numbers[i][j], numbers[0][0]);
    }
    heft_archive_unref(archive);
    return numbers[0][0];
}

static int leftovers(const char *path) {
    DIR *d = opendir(path);
    int n = 0;
    for (struct dirent *e; (e = readdir(d));) n += strncmp(e->d_name, ".heft-", 6) == 0;
    closedir(d);
    return n;
}

static unsigned mode_of(const char *path) {
    struct stat st;
    assert_int_equal(lstat(path, &st), 0);
    return st.st_mode & 07777;
}

static heft_save_options overwriting(void) {
    return (heft_save_options){.struct_size = sizeof(heft_save_options), .overwrite = true};
}

static int no_trap(void **state) {
    (void)state;
    trap_end();
    trap_log = NULL;
    return 0;
}

/* ---- what a save leaves ---- */

static void modes_and_owners(void **state) {
    (void)state;
    heft_save_options over = overwriting();
    mode_t masks[] = {022, 077}, before = umask(0);
    test_mkdir("modes");
    for (int i = 0; i < 2; i++) {
        umask(masks[i]);
        unlink(test_path("modes/x"));
        assert_int_equal(save_marked(test_path("modes/x"), 1, NULL, NULL), HEFT_OK);
        assert_int_equal(mode_of(test_path("modes/x")), 0666 & ~masks[i]);
        assert_int_equal(chmod(test_path("modes/x"), 0640), 0);
        if (geteuid() == 0) assert_int_equal(chown(test_path("modes/x"), 123, 456), 0);
        assert_int_equal(save_marked(test_path("modes/x"), 2, &over, NULL), HEFT_OK);
        assert_int_equal(mode_of(test_path("modes/x")), 0640);
        struct stat st;
        assert_int_equal(stat(test_path("modes/x"), &st), 0);
        if (geteuid() == 0) assert_true(st.st_uid == 123 && st.st_gid == 456);
        assert_int_equal(mark_of(test_path("modes/x")), 2);
    }
    umask(before);
    assert_int_equal(test_entries(test_path("modes")), 1);
}

static void existing_files_and_links(void **state) {
    (void)state;
    heft_error err;
    heft_save_options over = overwriting();
    const char *path = test_path("links/x"), *link_path = test_path("links/l");
    test_mkdir("links");
    assert_int_equal(save_marked(path, 1, NULL, NULL), HEFT_OK);
    assert_int_equal(save_marked(path, 2, NULL, &err), HEFT_EXISTS);
    assert_int_equal(err.fault, HEFT_FAULT_FILE_EXISTS);
    assert_string_equal(err.file, path);
    assert_int_equal(mark_of(path), 1);
    for (heft_writer_mode mode = 0; mode <= HEFT_WRITER_STREAM; mode++) { /* who adds tensors for hours knows it beforehand */
        heft_writer *writer;
        assert_int_equal(heft_writer_open(path, mode, NULL, 0, NULL, NULL, &writer, &err), HEFT_EXISTS);
        assert_string_equal(err.file, path);
        assert_int_equal(heft_writer_open(test_path("nowhere/x"), mode, NULL, 0, NULL, NULL, &writer, &err), HEFT_NOT_FOUND);
    }
    assert_int_equal(link(path, test_path("links/hard")), 0);
    assert_int_equal(symlink("x", link_path), 0);
    assert_int_equal(save_marked(link_path, 2, NULL, &err), HEFT_EXISTS);
    assert_int_equal(save_marked(link_path, 2, &over, NULL), HEFT_OK);
    assert_int_equal(mark_of(path), 2);
    assert_int_equal(mark_of(test_path("links/hard")), 1);
    over.symlink = HEFT_SYMLINK_REFUSE;
    assert_int_equal(save_marked(link_path, 3, &over, &err), HEFT_PERMISSION);
    over.symlink = HEFT_SYMLINK_REPLACE;
    assert_int_equal(save_marked(link_path, 3, &over, NULL), HEFT_OK);
    assert_int_equal(mark_of(path), 2);
    assert_int_equal(mark_of(link_path), 3);
    struct stat st;
    assert_int_equal(lstat(link_path, &st), 0);
    assert_true(S_ISREG(st.st_mode));
    assert_int_equal(unlink(link_path), 0);
    assert_int_equal(symlink("fresh", link_path), 0); /* leads nowhere yet */
    assert_int_equal(save_marked(link_path, 4, NULL, NULL), HEFT_OK);
    assert_int_equal(mark_of(test_path("links/fresh")), 4);
    assert_int_equal(leftovers(test_path("links")), 0);
}

static void what_is_no_target(void **state) {
    (void)state;
    heft_error err;
    heft_save_options over = overwriting();
    test_mkdir("no/folder");
    assert_int_equal(mkfifo(test_path("no/fifo"), 0666), 0);
    assert_int_equal(save_marked(test_path("no/folder"), 1, &over, &err), HEFT_INVALID_ARGUMENT);
    assert_int_equal(err.fault, HEFT_FAULT_NOT_REGULAR);
    assert_int_equal(save_marked(test_path("no/fifo"), 1, &over, &err), HEFT_INVALID_ARGUMENT);
    assert_int_equal(err.fault, HEFT_FAULT_NOT_REGULAR);
    assert_int_equal(save_marked("/dev/null", 1, &over, &err), HEFT_INVALID_ARGUMENT);
    assert_int_equal(save_marked(test_path("no/where/x"), 1, &over, &err), HEFT_NOT_FOUND);
    assert_int_equal(save_marked("", 1, &over, &err), HEFT_INVALID_ARGUMENT);
    assert_int_equal(save_marked(NULL, 1, &over, &err), HEFT_INVALID_ARGUMENT);
    char name[300] = "no/";
    memset(name + 3, 'n', 256);
    assert_int_equal(save_marked(test_path(name), 1, NULL, &err), HEFT_NOT_FOUND);
    name[3 + 255] = 0;
    assert_int_equal(save_marked(test_path(name), 7, NULL, NULL), HEFT_OK);
    assert_int_equal(mark_of(test_path(name)), 7);
    assert_int_equal(leftovers(test_path("no")), 0);
}

static void options_are_checked(void **state) {
    (void)state;
    heft_error err;
    heft_save_options bad[6];
    for (int i = 0; i < 6; i++) bad[i] = (heft_save_options){.struct_size = sizeof *bad};
    bad[0].align = 8;
    bad[1].align = 48;
    bad[2].align = 131072;
    bad[3].data_start_align = 12;
    bad[4].symlink = 3;
    bad[5].nmetadata = 1;
    for (int i = 0; i < 6; i++)
        assert_int_equal(save_marked(test_path("options"), 1, &bad[i], &err), HEFT_INVALID_ARGUMENT);
    heft_save_options unknown = {.struct_size = sizeof unknown, .format = "xyz"};
    assert_int_equal(save_marked(test_path("options"), 1, &unknown, &err), HEFT_UNSUPPORTED);
    assert_int_equal(access(test_path("options"), F_OK), -1);
    heft_pair twice[] = {{"k", 1, "v", 1}, {"k", 1, "w", 1}};
    heft_save_options doubled = {.struct_size = sizeof doubled, .metadata = twice, .nmetadata = 2};
    assert_int_equal(save_marked(test_path("options"), 1, &doubled, &err), HEFT_INVALID_ARGUMENT);
    assert_int_equal(err.fault, HEFT_FAULT_BAD_METADATA);
    heft_save_item item = {.name = "a", .shape = one_dim, .rank = 1, .dtype = HEFT_U8}; /* no data */
    assert_int_equal(heft_save(test_path("options"), &item, 1, NULL, NULL, &err), HEFT_INVALID_ARGUMENT);
    assert_string_equal(err.tensor, "a");
    assert_int_equal(heft_save(test_path("options"), NULL, 1, NULL, NULL, &err), HEFT_INVALID_ARGUMENT);
    assert_int_equal(heft_save(test_path("options"), NULL, 0, NULL, NULL, &err), HEFT_OK);
}

/* ---- failing calls ---- */

static void check_old(const char *folder, int fds, uint64_t k) {
    char path[600];
    snprintf(path, sizeof path, "%s/x", folder);
    if (mark_of(path) != 1) fail_msg("the old file is gone after call %u failed", (unsigned)k);
    assert_int_equal(test_entries(folder), 1);
    assert_int_equal(test_count_fds(), fds);
}

/* Each call in turn fails with each errno; the old file stays, nothing is left, or the call did not matter. */
static void every_call_can_fail(void **state) {
    (void)state;
    int codes[] = {EIO, ENOSPC, EDQUOT, EACCES};
    char *folder = strdup(test_mkdir("failing"));
    const char *path = test_path("failing/x");
    heft_save_options over = overwriting();
    over.verify = true;
    for (size_t c = 0; c < 4; c++) {
        for (uint64_t k = 1;; k++) {
            heft_error err;
            assert_int_equal(save_marked(path, 1, &over, NULL), HEFT_OK);
            int fds = test_count_fds();
            trap_begin(&(trap_plan){.fail_call = k, .fail_errno = codes[c]});
            heft_status status = save_marked(path, 2, &over, &err);
            uint64_t calls = trap_calls();
            trap_end();
            if (status == HEFT_OK) {
                assert_int_equal(mark_of(path), 2);
                assert_int_equal(test_entries(folder), 1);
                if (calls < k) break;
                continue;
            }
            assert_int_equal(err.status, status);
            if (err.sys_errno != 0) assert_int_equal(err.sys_errno, codes[c]);
            if (mark_of(path) == 2) { /* the rename was done: only the sync of the folder, or a close, can have failed */
                assert_int_equal(test_entries(folder), 1);
                assert_int_equal(test_count_fds(), fds);
            } else check_old(folder, fds, k);
        }
    }
    free(folder);
}

static void named_calls(void **state) {
    (void)state;
    static const struct {
        const char *name;
        int code;
        heft_status status;
        heft_fault fault;
    } rows[] = {{"pwrite", ENOSPC, HEFT_IO, HEFT_FAULT_NO_SPACE},   {"pwrite", EDQUOT, HEFT_IO, HEFT_FAULT_NO_SPACE},
                {"pwrite", EIO, HEFT_IO, HEFT_FAULT_WRITE_ERROR},   {"fsync", EIO, HEFT_IO, HEFT_FAULT_WRITE_ERROR},
                {"fsync", ENOSPC, HEFT_IO, HEFT_FAULT_NO_SPACE},    {"fsync", EDQUOT, HEFT_IO, HEFT_FAULT_NO_SPACE},
                {"rename", EIO, HEFT_IO, HEFT_FAULT_WRITE_ERROR},   {"rename", EACCES, HEFT_PERMISSION, HEFT_FAULT_ACCESS},
                {"chmod", EIO, HEFT_IO, HEFT_FAULT_WRITE_ERROR},    {"reserve", EIO, HEFT_IO, HEFT_FAULT_WRITE_ERROR},
                {"reserve", EDQUOT, HEFT_IO, HEFT_FAULT_NO_SPACE}};
    const char *path = test_path("named/x");
    char *folder = strdup(test_mkdir("named"));
    heft_save_options over = overwriting();
    assert_int_equal(save_marked(path, 1, NULL, NULL), HEFT_OK);
    int fds = test_count_fds();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        heft_error err;
        trap_begin(&(trap_plan){.fail_call = 1, .fail_errno = rows[i].code, .only = rows[i].name});
        assert_int_equal(save_marked(path, 2, &over, &err), rows[i].status);
        trap_end();
        assert_int_equal(err.fault, rows[i].fault);
        assert_int_equal(err.sys_errno, rows[i].code);
        assert_string_equal(err.file, path);
        bool full = rows[i].fault == HEFT_FAULT_NO_SPACE && strcmp(rows[i].name, "fsync") != 0;
        assert_true(!full || strstr(err.message, "the file needs 3")); /* and so many bytes more */
        assert_true(!full || !strstr(err.message, " are free") == (rows[i].code == EDQUOT));
        check_old(folder, fds, i);
    }
    heft_error err;
    trap_begin(&(trap_plan){.space = 100}); /* found out before anything is made */
    assert_int_equal(save_marked(path, 2, &over, &err), HEFT_LIMIT);
    assert_int_equal(err.fault, HEFT_FAULT_NO_SPACE);
    assert_int_equal(err.found, 100);
    assert_true(err.expected > 3000 && err.expected < 4000);
    trap_end();
    check_old(folder, fds, 0);
    free(folder);
}

static void interrupted_and_short_calls(void **state) {
    (void)state;
    const char *path = test_path("short/x");
    test_mkdir("short");
    heft_save_options over = overwriting();
    over.verify = true;
    for (int i = 0; i < 4; i++) {
        trap_begin(&(trap_plan){.interrupt = i & 1, .most = i & 2 ? 7 : 0, .no_reserve = i & 1 ? EOPNOTSUPP : 0});
        heft_error err;
        if (save_marked(path, (uint8_t)(i + 1), &over, &err)) fail_msg("%s", err.message);
        trap_end();
        assert_int_equal(mark_of(path), i + 1);
        assert_int_equal(test_entries(test_path("short")), 1);
    }
}

static void renames_that_do_not_replace(void **state) {
    (void)state;
    const char *path = test_path("new/x");
    test_mkdir("new");
    int codes[] = {0, ENOSYS, EINVAL, EPERM};
    for (int i = 0; i < 4; i++) {
        trap_begin(&(trap_plan){.no_rename_new = codes[i]});
        assert_int_equal(save_marked(path, (uint8_t)i, NULL, NULL), HEFT_OK);
        assert_int_equal(mark_of(path), i);
        heft_error err;
        assert_int_equal(save_marked(path, 9, NULL, &err), HEFT_EXISTS);
        trap_end();
        assert_int_equal(mark_of(path), i);
        assert_int_equal(test_entries(test_path("new")), 1);
        unlink(path);
    }
}

static const char *race_path;
static void race_log(const trap_event *event) {
    if (strcmp(event->name, "fsync") != 0 || !race_path) return;
    const char *path = race_path;
    race_path = NULL;
    FILE *f = fopen(path, "w");
    fputs("theirs", f);
    fclose(f);
}

static void what_appears_meanwhile_is_kept(void **state) {
    (void)state;
    char *path = strdup(test_path("race/x"));
    test_mkdir("race");
    for (int i = 0; i < 2; i++) {
        heft_error err;
        unlink(path);
        race_path = path;
        trap_log = race_log;
        trap_begin(&(trap_plan){.no_rename_new = i ? ENOSYS : 0});
        assert_int_equal(save_marked(path, 1, NULL, &err), HEFT_EXISTS);
        trap_end();
        trap_log = NULL;
        size_t n;
        uint8_t *text = test_slurp(path, &n);
        assert_string_equal((char *)text, "theirs");
        free(text);
        assert_int_equal(test_entries(test_path("race")), 1);
    }
    free(path);
}

/* A file system of 64 KiB, where one can be made. */
static void a_full_disk(void **state) {
    (void)state;
#if defined(__linux__)
    char *folder = strdup(test_mkdir("small")), *path = strdup(test_path("small/x"));
    if (mount("none", folder, "tmpfs", 0, "size=64k") != 0) skip();
    static uint8_t big[100000];
    const int64_t shape[] = {sizeof big};
    heft_error err;
    heft_save_options over = overwriting();
    heft_save_item item = {.name = "big", .data = big, .shape = shape, .rank = 1, .dtype = HEFT_U8};
    assert_int_equal(save_marked(path, 1, NULL, NULL), HEFT_OK);
    assert_int_equal(heft_save(path, &item, 1, &over, NULL, &err), HEFT_LIMIT);
    assert_int_equal(err.fault, HEFT_FAULT_NO_SPACE);
    int reserves[] = {0, EOPNOTSUPP};
    for (int i = 0; i < 2; i++) { /* nobody says beforehand that it is full */
        trap_begin(&(trap_plan){.space = UINT64_C(1) << 40, .no_reserve = reserves[i]});
        heft_status status = heft_save(path, &item, 1, &over, NULL, &err);
        trap_end();
        assert_int_equal(status, HEFT_IO);
        assert_int_equal(err.sys_errno, ENOSPC);
        assert_int_equal(err.fault, HEFT_FAULT_NO_SPACE);
    }
    assert_int_equal(mark_of(path), 1);
    assert_int_equal(test_entries(folder), 1);
    assert_int_equal(umount(folder), 0);
    free(folder);
    free(path);
#endif
}

/* Bytes that go from file to file inside the kernel: shared where that works, copied, or left to the caller. */
static void transfers_are_whole_or_say_how_far(void **state) {
    (void)state;
    enum { SIZE = 100000 };
    uint8_t *bytes = malloc(SIZE), *back = malloc(SIZE);
    for (int i = 0; i < SIZE; i++) bytes[i] = (uint8_t)(i * 31 >> 3);
    int from = open(test_write("transfer", bytes, SIZE), O_RDONLY);
    static const struct {
        int no_clone, no_copy;
        size_t most;
        bool interrupt, copy;
    } ways[] = {{0, 0, 0, false, true}, {EOPNOTSUPP, 0, 0, false, true}, {EXDEV, 0, 777, true, true},
                {EINVAL, EXDEV, 0, false, true}, {EOPNOTSUPP, 0, 0, false, false}};
    static const uint64_t offsets[][2] = {{0, 0}, {4096, 4096}, {100, 100}, {4196, 100}, {5000, 7}};
    for (size_t w = 0; w < 5; w++)
        for (size_t o = 0; o < 5; o++) {
            heft__target_options options = {.nbytes = HEFT_NONE, .no_sync = true};
            heft__target target;
            uint64_t to = offsets[o][0], at = offsets[o][1], n = SIZE - 9000, cloned;
            assert_int_equal(heft__target_open(&target, test_path("transferred"), &options, NULL), HEFT_OK);
            trap_begin(&(trap_plan){.no_clone = ways[w].no_clone, .no_copy = ways[w].no_copy, .most = ways[w].most,
                                    .interrupt = ways[w].interrupt});
            uint64_t done = heft__target_transfer(&target, to, from, at, n, ways[w].copy, &cloned);
            trap_end();
            assert_true(done <= n && cloned <= done);
            if (ways[w].no_clone) assert_int_equal(cloned, 0);
            if (ways[w].no_clone) assert_int_equal(done, ways[w].no_copy || !ways[w].copy ? 0 : n);
            assert_int_equal(heft__target_read(&target, to, back, done, NULL), HEFT_OK);
            assert_memory_equal(back, bytes + at, done);
            heft__target_abort(&target);
        }
    close(from);
    free(bytes);
    free(back);
}

/* ---- ends of the process ---- */

/* SIGKILL before each call: the old file or the new one, whole; litter only under a temporary name, known as dead. */
static void killed_at_every_call(void **state) {
    (void)state;
    char *folder = strdup(test_mkdir("killed")), *path = strdup(test_path("killed/x"));
    heft_save_options over = overwriting();
    int old = 0, new = 0;
    for (uint64_t k = 1;; k++) {
        assert_int_equal(save_marked(path, 1, &over, NULL), HEFT_OK);
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            trap_begin(&(trap_plan){.fail_call = k, .die = true});
            _exit(save_marked(path, 2, &over, NULL) != HEFT_OK);
        }
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        uint8_t mark = mark_of(path);
        old += mark == 1;
        new += mark == 2;
        DIR *d = opendir(folder);
        for (struct dirent *e; (e = readdir(d));) {
            if (e->d_name[0] == '.' && strlen(e->d_name) < 3) continue;
            if (strcmp(e->d_name, "x") == 0) continue;
            assert_true(heft__target_temp_is(e->d_name));
            assert_true(heft__target_temp_dead(e->d_name));
            char litter[600];
            snprintf(litter, sizeof litter, "%s/%s", folder, e->d_name);
            unlink(litter);
        }
        closedir(d);
        if (WIFEXITED(status)) {
            assert_int_equal(WEXITSTATUS(status), 0);
            break;
        }
        assert_int_equal(WTERMSIG(status), SIGKILL);
    }
    assert_true(old > 8 && new >= 2);
    free(folder);
    free(path);
}

static void names_of_temporary_files(void **state) {
    (void)state;
    char name[HEFT__TARGET_NAME_MAX + 1];
    heft__target_temp_name(name, "model.safetensors");
    assert_true(heft__target_temp_is(name));
    assert_false(heft__target_temp_dead(name)); /* this process lives */
    static const char *const others[] = {"model.safetensors", ".heft-.tmp", ".heft-x-0-0.tmp", ".heft-x-1234567z-1-12345678.tmp",
                                         ".heft-x-12345678-1-1234567x.tmp", ".heft-x-12345678--12345678.tmp"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        assert_false(heft__target_temp_is(others[i]));
        assert_false(heft__target_temp_dead(others[i]));
    }
    assert_true(heft__target_temp_is(".heft-x-12345678-1-12345678.tmp"));
    assert_false(heft__target_temp_dead(".heft-x-00000000-999999999-12345678.tmp")); /* of nobody knows where */
}

/* ---- at once ---- */

static atomic_int saved;

static void *save_many(void *arg) {
    heft_save_options over = overwriting();
    over.no_sync = true;
    for (int i = 0; i < 20; i++)
        if (save_marked(arg, (uint8_t)(i + 1), &over, NULL) == HEFT_OK) atomic_fetch_add(&saved, 1);
    return NULL;
}

static void twenty_threads_save_one_path(void **state) {
    (void)state;
    char *path = strdup(test_path("many/x"));
    test_mkdir("many");
    pthread_t threads[20];
    atomic_store(&saved, 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) _exit(save_many(path) != NULL);
    for (int i = 0; i < 20; i++) assert_int_equal(pthread_create(&threads[i], NULL, save_many, path), 0);
    for (int i = 0; i < 20; i++) pthread_join(threads[i], NULL);
    int status;
    waitpid(child, &status, 0);
    assert_int_equal(status, 0);
    assert_int_equal(atomic_load(&saved), 400);
    assert_int_equal(mark_of(path), 20);
    assert_int_equal(test_entries(test_path("many")), 1);
    free(path);
}

static int stop_at_once(void *ctx, uint64_t done, uint64_t total) {
    (void)done, (void)total;
    return --*(int *)ctx < 0;
}

static void cancelled_saves_leave_nothing(void **state) {
    (void)state;
    const char *path = test_path("cancel/x");
    test_mkdir("cancel");
    for (int left = 0; left < 2; left++) {
        int calls = left;
        heft_error err;
        heft_save_options options = {.struct_size = sizeof options, .progress = stop_at_once, .progress_ctx = &calls};
        assert_int_equal(save_marked(path, 1, &options, &err), HEFT_CANCELLED);
        assert_int_equal(test_entries(test_path("cancel")), 0);
    }
}

static uint8_t *stream;
static size_t stream_nbytes;
static int stream_write(void *ctx, const void *data, size_t nbytes) {
    if (*(int *)ctx) return *(int *)ctx;
    stream = realloc(stream, stream_nbytes + nbytes);
    memcpy(stream + stream_nbytes, data, nbytes);
    stream_nbytes += nbytes;
    return 0;
}

static void functions_get_the_same_bytes(void **state) {
    (void)state;
    static uint32_t values[1 << 20];
    for (uint32_t i = 0; i < 1 << 20; i++) values[i] = i * 2654435761u;
    const int64_t shape[] = {1024, 1024}, turned[] = {4, 4096};
    heft_save_item items[] = {{.name = "x", .data = values, .shape = shape, .rank = 2, .dtype = HEFT_F32},
                              {.name = "y", .data = values, .shape = shape, .stride_nbytes = turned, .rank = 2, .dtype = HEFT_I32},
                              {.name = "s", .data = values, .dtype = HEFT_U8}};
    int code = 0;
    heft_error err;
    heft_save_stats stats;
    heft_buffer buffer;
    assert_int_equal(heft_save_callback(items, 3, NULL, stream_write, &code, &stats, NULL), HEFT_OK);
    assert_int_equal(heft_save_buffer(items, 3, NULL, &buffer, NULL, NULL), HEFT_OK);
    assert_int_equal(stream_nbytes, buffer.nbytes);
    assert_int_equal(stats.file_nbytes, buffer.nbytes);
    assert_memory_equal(stream, buffer.data, buffer.nbytes);
    heft_buffer_release(&buffer);
    free(stream);
    code = EPIPE;
    assert_int_equal(heft_save_callback(items, 3, NULL, stream_write, &code, &stats, &err), HEFT_IO);
    assert_int_equal(err.sys_errno, EPIPE);
}

static void every_allocation_can_fail(void **state) {
    (void)state;
    const char *path = test_path("memory/x");
    test_mkdir("memory");
    assert_int_equal(save_marked(path, 1, NULL, NULL), HEFT_OK);
    heft_archive *archive;
    assert_int_equal(heft_archive_open(path, NULL, &archive, NULL), HEFT_OK);
    heft_view view;
    assert_int_equal(heft_view_of(archive, 0, &view, NULL), HEFT_OK);
    assert_int_equal(heft_view_index_text(&view, "::-1", SIZE_MAX, &view, NULL), HEFT_OK);
    heft_pair pair = {"k", SIZE_MAX, "v", SIZE_MAX};
    for (uint64_t k = 1;; k++) {
        test_allocator t;
        test_allocator_init(&t, k);
        heft_save_options options = {.struct_size = sizeof options, .allocator = &t.alloc, .overwrite = true, .no_sync = true,
                                     .metadata = &pair, .nmetadata = 1, .align = 64, .match_source = true,
                                     .digests = heft_features() & HEFT_FEATURE_XXHASH ? 7 : 0};
        heft_save_item items[] = {{.name = "r", .view = &view},
                                  {.name = "w", .archive = archive, .id = 1},
                                  {.name = "m", .data = numbers[0], .shape = one_dim, .rank = 1, .dtype = HEFT_I8}};
        heft_status status = heft_save(test_path("memory/y"), items, 3, &options, NULL, NULL);
        assert_int_equal(t.live_blocks, 0);
        bool sidecar = access(test_path("memory/y.xxh3.json"), F_OK) == 0;
        bool there = access(test_path("memory/y"), F_OK) == 0; /* a sidecar may fail when the file is there */
        assert_int_equal(test_entries(test_path("memory")), 1 + there + sidecar);
        assert_true(there || status != HEFT_OK);
        unlink(test_path("memory/y"));
        if (status == HEFT_OK) break;
        assert_int_equal(status, HEFT_OUT_OF_MEMORY);
    }
    heft_archive_unref(archive);
}

/* ---- two saves of one path, with sidecars ---- */

static uint64_t meddle_at, meddle_calls;
static bool meddling;
static const char *meddle_path;
static heft_save_options meddle_options;

/* Before call `meddle_at` of one save another one begins and ends. */
static void meddle(const trap_event *event) {
    (void)event;
    if (meddling || ++meddle_calls != meddle_at) return;
    meddling = true;
    assert_int_equal(save_marked(meddle_path, 2, &meddle_options, NULL), HEFT_OK);
    meddling = false;
}

static heft_status verified(const char *path) {
    heft_archive *archive;
    heft_error err;
    if (heft_archive_open(path, NULL, &archive, &err)) fail_msg("%s", err.message);
    heft_status status = heft_archive_verify(archive, NULL, 0, NULL, NULL, NULL, &err);
    if (status == HEFT_MISMATCH) fail_msg("before call %d: %s", (int)meddle_at, err.message);
    heft_archive_unref(archive);
    return status;
}

/* Whatever comes in between, no sidecar lies beside a file that it is not of. */
static void sidecars_of_two_saves(void **state) {
    (void)state;
    if (!(heft_features() & HEFT_FEATURE_XXHASH)) return;
    test_mkdir("two");
    char *file = strdup(test_path("two/x.safetensors")), *link = strdup(test_path("link.safetensors"));
    assert_int_equal(symlink(file, link), 0);
    for (int way = 0; way < 8; way++) {
        heft_save_options options = overwriting();
        const char *path = way & 4 ? link : file;
        meddle_options = options;
        options.digests = way & 1 ? HEFT_DIGEST_SIDECAR : 0;
        meddle_options.digests = way & 2 ? HEFT_DIGEST_SIDECAR : 0;
        meddle_path = path;
        for (meddle_at = 1;; meddle_at++) {
            meddle_calls = 0;
            trap_begin(&(trap_plan){0});
            trap_log = meddle;
            assert_int_equal(save_marked(path, 1, &options, NULL), HEFT_OK);
            no_trap(NULL);
            heft_status status = verified(path);
            if (meddle_at <= meddle_calls) continue;
            assert_int_equal(status, way & 1 ? HEFT_OK : HEFT_NOT_FOUND);
            break;
        }
        assert_true(meddle_at > 10);
        assert_int_equal(leftovers(test_path("two")), 0);
    }
    free(file);
    free(link);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(modes_and_owners),
        cmocka_unit_test(existing_files_and_links),
        cmocka_unit_test(what_is_no_target),
        cmocka_unit_test(options_are_checked),
        cmocka_unit_test_teardown(every_call_can_fail, no_trap),
        cmocka_unit_test_teardown(named_calls, no_trap),
        cmocka_unit_test_teardown(interrupted_and_short_calls, no_trap),
        cmocka_unit_test_teardown(sidecars_of_two_saves, no_trap),
        cmocka_unit_test_teardown(renames_that_do_not_replace, no_trap),
        cmocka_unit_test_teardown(what_appears_meanwhile_is_kept, no_trap),
        cmocka_unit_test_teardown(a_full_disk, no_trap),
        cmocka_unit_test_teardown(transfers_are_whole_or_say_how_far, no_trap),
        cmocka_unit_test_teardown(killed_at_every_call, no_trap),
        cmocka_unit_test(names_of_temporary_files),
        cmocka_unit_test(twenty_threads_save_one_path),
        cmocka_unit_test(cancelled_saves_leave_nothing),
        cmocka_unit_test(functions_get_the_same_bytes),
        cmocka_unit_test(every_allocation_can_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
