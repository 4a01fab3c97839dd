/* Files that are written beside their target: modes, links, refusals, failures, signals; and descriptors read to the end. */
#include "helper_files.h"

#include "base/alloc.h"
#include "base/os.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static heft__os_traits traits;

/* Both ways of renaming without replacing. */
static void pretend_rename(bool plain) {
    memset(&traits, 0, sizeof traits);
    traits.root = "";
    traits.plain_rename = plain;
    heft__os_traits_replace(&traits);
}

static int restore(void **state) {
    (void)state;
    heft__os_traits_replace(NULL);
    return 0;
}

static heft_status write_file(const char *path, bool force, const char *text, heft_error *err) {
    heft__output *out;
    heft_status status = heft__output_open(path, force, &out, err);
    if (status != HEFT_OK) {
        assert_null(out);
        return status;
    }
    status = heft__output_write(out, text, strlen(text), err);
    if (status == HEFT_OK) return heft__output_commit(out, err);
    heft__output_abort(out);
    return status;
}

static void expect_file(const char *path, const char *text) {
    size_t n;
    uint8_t *content = test_slurp(path, &n);
    assert_string_equal((char *)content, text);
    assert_int_equal(n, strlen(text));
    free(content);
}

static unsigned mode_of(const char *path) {
    struct stat st;
    assert_int_equal(lstat(path, &st), 0);
    return st.st_mode & 07777;
}

/* Entries of a folder that begin with ".heft-". */
static int leftovers(const char *path) {
    DIR *d = opendir(path);
    int n = 0;
    for (struct dirent *e; (e = readdir(d));) n += strncmp(e->d_name, ".heft-", 6) == 0;
    closedir(d);
    return n;
}

static void new_files_follow_the_umask(void **state) {
    (void)state;
    int fds = test_count_fds();
    mode_t masks[] = {022, 077, 0, 027}, before = umask(0);
    for (size_t i = 0; i < 4; i++) {
        umask(masks[i]);
        unlink(test_path("new"));
        heft__output *out;
        assert_int_equal(heft__output_open(test_path("new"), false, &out, NULL), HEFT_OK);
        assert_int_equal(access(test_path("new"), F_OK), -1); /* nothing to see before it is whole */
        assert_int_equal(leftovers(test_dir()), 1);
        assert_int_equal(heft__output_write(out, "ab", 2, NULL), HEFT_OK);
        assert_int_equal(heft__output_write(out, NULL, 0, NULL), HEFT_OK);
        assert_int_equal(heft__output_write(out, "c", 1, NULL), HEFT_OK);
        assert_int_equal(heft__output_commit(out, NULL), HEFT_OK);
        expect_file(test_path("new"), "abc");
        assert_int_equal(mode_of(test_path("new")), 0666 & ~masks[i]);
        assert_int_equal(leftovers(test_dir()), 0);
    }
    umask(before);
    assert_int_equal(test_count_fds(), fds);
}

static void work_in_progress_is_private(void **state) {
    (void)state;
    heft__output *out;
    assert_int_equal(heft__output_open(test_path("private/../p"), false, &out, NULL), HEFT_NOT_FOUND);
    test_mkdir("private");
    assert_int_equal(heft__output_open(test_path("private/p"), false, &out, NULL), HEFT_OK);
    DIR *d = opendir(test_path("private"));
    for (struct dirent *e; (e = readdir(d));) {
        if (e->d_name[0] == '.' && strlen(e->d_name) < 3) continue;
        char name[300];
        snprintf(name, sizeof name, "private/%s", e->d_name);
        assert_int_equal(mode_of(test_path(name)), 0600);
        assert_memory_equal(e->d_name, ".heft-p-", 8);
        assert_string_equal(e->d_name + strlen(e->d_name) - 4, ".tmp");
    }
    closedir(d);
    heft__output_abort(out);
    heft__output_abort(NULL);
    assert_int_equal(leftovers(test_path("private")), 0);
}

static void existing_files_need_force_and_keep_their_mode(void **state) {
    (void)state;
    heft_error err;
    const char *path = test_write("old", "old", 3);
    assert_int_equal(chmod(path, 0640), 0);
    assert_int_equal(write_file(path, false, "new", &err), HEFT_EXISTS);
    assert_string_equal(err.file, path);
    expect_file(path, "old");
    heft__output *out;
    assert_int_equal(heft__output_open(path, true, &out, NULL), HEFT_OK);
    assert_int_equal(heft__output_write(out, "half", 4, NULL), HEFT_OK);
    heft__output_abort(out);
    expect_file(path, "old");
    assert_int_equal(link(path, test_path("hard")), 0);
    if (geteuid() == 0) assert_int_equal(chown(path, 12345, 54321), 0);
    assert_int_equal(write_file(path, true, "new", NULL), HEFT_OK);
    expect_file(path, "new");
    assert_int_equal(mode_of(path), 0640);
    expect_file(test_path("hard"), "old"); /* another name of the old file */
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    if (geteuid() == 0) assert_int_equal(st.st_uid, 12345);
    if (geteuid() == 0) assert_int_equal(st.st_gid, 54321);
    assert_int_equal(chmod(path, 0400), 0);
    assert_int_equal(write_file(path, true, "newer", NULL), HEFT_OK); /* a read-only file is replaced, not written to */
    expect_file(path, "newer");
    assert_int_equal(mode_of(path), 0400);
    assert_int_equal(leftovers(test_dir()), 0);
}

static void what_appears_meanwhile_is_kept(void **state) {
    (void)state;
    for (int plain = 0; plain < 2; plain++) {
        pretend_rename(plain);
        heft__output *out;
        heft_error err;
        const char *path = test_path("race");
        unlink(path);
        assert_int_equal(heft__output_open(path, false, &out, NULL), HEFT_OK);
        assert_int_equal(heft__output_write(out, "mine", 4, NULL), HEFT_OK);
        test_write("race", "theirs", 6);
        assert_int_equal(heft__output_commit(out, &err), HEFT_EXISTS);
        expect_file(path, "theirs");
        unlink(path);
        assert_int_equal(symlink("nowhere", path), 0); /* a link is something, too */
        assert_int_equal(write_file(test_path("other"), true, "other", NULL), HEFT_OK);
        unlink(path);
        assert_int_equal(write_file(path, false, "mine", NULL), HEFT_OK);
        expect_file(path, "mine");
        assert_int_equal(leftovers(test_dir()), 0);
        assert_int_equal(write_file(path, true, "forced", NULL), HEFT_OK);
        expect_file(path, "forced");
    }
}

static void links_stay_and_their_files_are_replaced(void **state) {
    (void)state;
    heft_error err;
    test_write("far/target", "old", 3);
    assert_int_equal(symlink("far/target", test_path("link")), 0);
    assert_int_equal(symlink(test_path("link"), test_path("link2")), 0);
    assert_int_equal(write_file(test_path("link2"), false, "new", &err), HEFT_EXISTS);
    assert_int_equal(write_file(test_path("link2"), true, "new", NULL), HEFT_OK);
    expect_file(test_path("far/target"), "new");
    char target[64] = {0};
    assert_int_equal(readlink(test_path("link"), target, sizeof target - 1), 10);
    assert_string_equal(target, "far/target");
    assert_int_equal(symlink("far/fresh", test_path("dangling")), 0);
    assert_int_equal(write_file(test_path("dangling"), false, "fresh", NULL), HEFT_OK);
    expect_file(test_path("far/fresh"), "fresh");
    assert_int_equal(symlink("no-folder/x", test_path("astray")), 0);
    assert_int_equal(write_file(test_path("astray"), true, "x", &err), HEFT_NOT_FOUND);
    assert_int_equal(symlink("circle", test_path("circle")), 0);
    assert_int_equal(write_file(test_path("circle"), true, "x", &err), HEFT_NOT_FOUND);
    test_write("models--o--n/blobs/abc", "blob", 4);
    test_mkdir("models--o--n/snapshots/r");
    assert_int_equal(symlink("../../blobs/abc", test_path("models--o--n/snapshots/r/m")), 0);
    assert_int_equal(write_file(test_path("models--o--n/snapshots/r/m"), true, "x", &err), HEFT_PERMISSION);
    expect_file(test_path("models--o--n/blobs/abc"), "blob");
    assert_int_equal(leftovers(test_dir()) + leftovers(test_path("far")) + leftovers(test_path("models--o--n/blobs")), 0);
}

static void what_is_no_target(void **state) {
    (void)state;
    heft_error err;
    int fds = test_count_fds();
    assert_int_equal(write_file(test_dir(), true, "x", &err), HEFT_INVALID_ARGUMENT);
    assert_int_equal(err.fault, HEFT_FAULT_NOT_REGULAR);
    assert_int_equal(write_file("", true, "x", &err), HEFT_INVALID_ARGUMENT);
    assert_int_equal(write_file(test_path("nowhere/x"), true, "x", &err), HEFT_NOT_FOUND);
    assert_int_equal(write_file(test_path("nowhere/"), true, "x", &err), HEFT_INVALID_ARGUMENT);
    test_write("plain", "x", 1);
    assert_int_equal(write_file(test_path("plain/x"), true, "x", &err), HEFT_NOT_FOUND);
    char *long_path = malloc(9000);
    memset(long_path, 'a', 8999);
    long_path[8999] = 0;
    assert_int_equal(write_file(long_path, true, "x", &err), HEFT_NOT_FOUND);
    assert_int_equal(err.sys_errno, ENAMETOOLONG);
    free(long_path);
    assert_int_equal(test_count_fds(), fds);
}

/* The temporary name is UTF-8 like its target's, and ends so that no loader takes it for a checkpoint. */
static void check_temp_name(const char *path) {
    DIR *d = opendir(path);
    for (struct dirent *e; (e = readdir(d));) {
        size_t n = strlen(e->d_name);
        if (strncmp(e->d_name, ".heft-", 6) != 0) continue;
        assert_string_equal(e->d_name + n - 4, ".tmp");
        assert_int_equal(heft__utf8_check(e->d_name, n), n);
    }
    closedir(d);
}

static void long_names_fit(void **state) {
    (void)state;
    test_mkdir("long");
    for (size_t len = 220; len <= 256; len++) {
        char name[300] = "long/";
        size_t lead = len / 2 % 2; /* so that a cut falls into a character and between two */
        memset(name + 5, 'x', len);
        for (size_t i = 5 + lead; i + 1 < 5 + len; i += 2) memcpy(name + i, "\xC3\xA9", 2);
        heft__output *out;
        heft_error err;
        heft_status status = heft__output_open(test_path(name), false, &out, &err);
        assert_int_equal(status, len <= 255 ? HEFT_OK : HEFT_NOT_FOUND);
        if (status != HEFT_OK) continue;
        assert_int_equal(leftovers(test_path("long")), 1);
        check_temp_name(test_path("long"));
        assert_int_equal(heft__output_commit(out, NULL), HEFT_OK);
        expect_file(test_path(name), "");
    }
    assert_int_equal(leftovers(test_path("long")), 0);
}

static void relative_targets(void **state) {
    (void)state;
    char *before = getcwd(NULL, 0);
    assert_int_equal(chdir(test_mkdir("here")), 0);
    heft__output *out;
    assert_int_equal(heft__output_open("file", false, &out, NULL), HEFT_OK);
    assert_int_equal(chdir(before), 0); /* the folder was opened once */
    assert_int_equal(heft__output_write(out, "x", 1, NULL), HEFT_OK);
    assert_int_equal(heft__output_commit(out, NULL), HEFT_OK);
    free(before);
    expect_file(test_path("here/file"), "x");
}

/* ---- failures ---- */

static void a_full_disk_leaves_the_old_file(void **state) {
    (void)state;
    const char *path = test_write("precious", "old", 3);
    struct rlimit before, tight;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    tight = before;
    tight.rlim_cur = 1000;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &tight), 0);
    heft__output *out;
    heft_error err;
    static char big[5000];
    assert_int_equal(heft__output_open(path, true, &out, NULL), HEFT_OK);
    heft_status status = heft__output_write(out, big, sizeof big, &err); /* a short write, then EFBIG */
    heft__output_abort(out);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(status, HEFT_IO);
    assert_int_equal(err.sys_errno, EFBIG);
    expect_file(path, "old");
    assert_int_equal(leftovers(test_dir()), 0);
    assert_int_equal(write_file("/dev/full", false, "x", &err), HEFT_IO);
    assert_int_equal(err.sys_errno, ENOSPC);
}

static int in_child(int (*job)(void)) {
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) _exit(job());
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

static int write_as_nobody(void) {
    heft_error err = {0};
    if (geteuid() == 0 && setuid(65534) != 0) return 77;
    if (write_file(test_path("locked/new"), false, "x", &err) != HEFT_PERMISSION || err.sys_errno != EACCES) return 1;
    if (write_file(test_path("locked/there"), true, "x", &err) != HEFT_PERMISSION) return 2;
    return 0;
}

static void folders_without_permission(void **state) {
    (void)state;
    test_write("locked/there", "old", 3);
    assert_int_equal(chmod(test_dir(), 0755), 0);
    assert_int_equal(chmod(test_path("locked"), 0555), 0);
    int status = in_child(write_as_nobody);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) skip();
    assert_int_equal(status, 0);
    expect_file(test_path("locked/there"), "old");
    assert_int_equal(leftovers(test_path("locked")), 0);
}

static int die_of(int number) {
    heft__output *out;
    heft__os_catch_interrupt();
    if (heft__output_open(test_path("killed/file"), true, &out, NULL)) return 1;
    if (heft__output_write(out, "half", 4, NULL)) return 2;
    if (leftovers(test_path("killed")) != 1) return 3;
    raise(number);
    return 4;
}

static int die_of_int(void) { return die_of(SIGINT); }
static int die_of_term(void) { return die_of(SIGTERM); }
static int die_of_hup(void) { return die_of(SIGHUP); }
static int ignore_int(void) {
    signal(SIGINT, SIG_IGN); /* as a background job of a shell */
    return die_of(SIGINT);
}
static int die_idle(void) {
    heft__output *out;
    heft__os_catch_interrupt();
    if (heft__output_open(test_path("killed/done"), true, &out, NULL) || heft__output_commit(out, NULL)) return 1;
    raise(SIGINT);
    return 2;
}

static void signals_remove_what_was_begun(void **state) {
    (void)state;
    test_write("killed/file", "old", 3);
    int (*jobs[])(void) = {die_of_int, die_of_term, die_of_hup};
    int numbers[] = {SIGINT, SIGTERM, SIGHUP};
    for (size_t i = 0; i < 3; i++) {
        int status = in_child(jobs[i]);
        assert_true(WIFSIGNALED(status));
        assert_int_equal(WTERMSIG(status), numbers[i]);
        assert_int_equal(leftovers(test_path("killed")), 0);
        expect_file(test_path("killed/file"), "old");
    }
    int status = in_child(die_idle);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGINT);
    expect_file(test_path("killed/done"), "");
    status = in_child(ignore_int);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 4);
    assert_int_equal(leftovers(test_path("killed")), 1); /* that child ended without a word */
}

/* ---- streams ---- */

static int fill_fifo(void) {
    static char block[300000];
    memset(block, 'x', sizeof block);
    heft__output *out;
    if (heft__output_open(test_path("fifo"), false, &out, NULL)) return 1;
    if (heft__output_write(out, block, sizeof block, NULL)) return 2;
    return heft__output_commit(out, NULL) != HEFT_OK;
}

static int write_standard(void) {
    int fd = open(test_path("redirected"), O_WRONLY | O_CREAT | O_TRUNC, 0666);
    if (dup2(fd, 1) != 1) return 1;
    if (write(1, "before ", 7) != 7) return 2;
    if (write_file("-", false, "one ", NULL) || write_file("/dev/stdout", false, "two ", NULL)) return 3;
    if (write_file("/dev/fd/1", false, "three ", NULL) || write_file("/proc/self/fd/1", true, "four ", NULL)) return 4;
    if (write(1, "after", 5) != 5) return 5; /* it is still open */
    if (write_file("/dev/fd/999", false, "x", NULL) != HEFT_IO) return 6;
    return 0;
}

static void pipes_devices_and_standard_output(void **state) {
    (void)state;
    assert_int_equal(write_file("/dev/null", false, "x", NULL), HEFT_OK);
    assert_int_equal(in_child(write_standard), 0);
    expect_file(test_path("redirected"), "before one two three four after");
    assert_int_equal(mkfifo(test_path("fifo"), 0666), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) _exit(fill_fifo());
    int fd = open(test_path("fifo"), O_RDONLY);
    void *data;
    uint64_t n;
    assert_int_equal(heft__os_read_all(fd, 300000, &data, &n, NULL), HEFT_OK);
    assert_int_equal(n, 300000);
    heft__free(&heft__default_allocator, data, n);
    close(fd);
    int status;
    waitpid(child, &status, 0);
    assert_int_equal(status, 0);
    struct stat st;
    assert_int_equal(stat(test_path("fifo"), &st), 0);
    assert_true(S_ISFIFO(st.st_mode));
}

static void a_pipe_that_does_not_block(void **state) {
    (void)state;
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        close(ends[0]);
        fcntl(ends[1], F_SETFL, O_NONBLOCK);
        static char block[1000000];
        char name[64];
        snprintf(name, sizeof name, "/dev/fd/%d", ends[1]);
        heft__output *out;
        if (heft__output_open(name, false, &out, NULL)) _exit(1);
        if (heft__output_write(out, block, sizeof block, NULL)) _exit(2);
        _exit(heft__output_commit(out, NULL) != HEFT_OK);
    }
    close(ends[1]);
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    void *data;
    uint64_t n;
    assert_int_equal(heft__os_read_all(ends[0], 1 << 30, &data, &n, NULL), HEFT_OK);
    assert_int_equal(n, 1000000);
    heft__free(&heft__default_allocator, data, n);
    close(ends[0]);
    int status;
    waitpid(child, &status, 0);
    assert_int_equal(status, 0);
}

static void closed_pipes_end_in_silence(void **state) {
    (void)state;
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    close(ends[0]);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        signal(SIGPIPE, SIG_IGN);
        heft__os_quiet_sigpipe();
        if (write(ends[1], "x", 1) != 1) _exit(1);
        _exit(2);
    }
    close(ends[1]);
    int status;
    waitpid(child, &status, 0);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGPIPE);
}

/* ---- input ---- */

static void reading_to_the_end(void **state) {
    (void)state;
    size_t sizes[] = {0, 1, 65535, 65536, 65537, 1 << 20, (4 << 20) + 3, 9 << 20};
    uint8_t *content = malloc(9 << 20);
    for (size_t i = 0; i < (9u << 20); i++) content[i] = (uint8_t)(i % 253);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        int fd = open(test_write("input", content, sizes[i]), O_RDONLY);
        void *data;
        uint64_t n;
        heft_error err;
        for (uint64_t extra = 0; extra < 2; extra++) {
            assert_int_equal(heft__os_read_all(fd, sizes[i] + extra, &data, &n, NULL), HEFT_OK);
            assert_int_equal(n, sizes[i]);
            assert_non_null(data);
            assert_memory_equal(data, content, n);
            heft__free(&heft__default_allocator, data, n);
            lseek(fd, 0, SEEK_SET);
        }
        assert_int_equal(heft__os_read_all(fd, UINT64_MAX, &data, &n, NULL), HEFT_OK);
        heft__free(&heft__default_allocator, data, n);
        lseek(fd, 0, SEEK_SET);
        if (sizes[i]) {
            assert_int_equal(heft__os_read_all(fd, sizes[i] - 1, &data, &n, &err), HEFT_LIMIT);
            assert_int_equal(err.fault, HEFT_FAULT_CALLER_LIMIT);
            assert_int_equal(err.expected, sizes[i] - 1);
            assert_null(data);
            assert_int_equal(lseek(fd, 0, SEEK_CUR), sizes[i]); /* one byte more than the limit was taken */
        }
        close(fd);
    }
    void *data;
    uint64_t n;
    heft_error err;
    int folder = open(test_dir(), O_RDONLY);
    assert_int_equal(heft__os_read_all(folder, 10, &data, &n, &err), HEFT_IO);
    assert_int_equal(err.sys_errno, EISDIR);
    assert_false(heft__os_is_regular(folder));
    close(folder);
    assert_false(heft__os_is_regular(-1));
    int fd = open(test_path("input"), O_RDONLY);
    assert_true(heft__os_is_regular(fd));
    assert_false(heft__os_is_terminal(fd));
    assert_int_equal(heft__os_terminal_width(fd), 80);
    close(fd);
    free(content);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(new_files_follow_the_umask),
        cmocka_unit_test(work_in_progress_is_private),
        cmocka_unit_test(existing_files_need_force_and_keep_their_mode),
        cmocka_unit_test_teardown(what_appears_meanwhile_is_kept, restore),
        cmocka_unit_test(links_stay_and_their_files_are_replaced),
        cmocka_unit_test(what_is_no_target),
        cmocka_unit_test(long_names_fit),
        cmocka_unit_test(relative_targets),
        cmocka_unit_test(a_full_disk_leaves_the_old_file),
        cmocka_unit_test(folders_without_permission),
        cmocka_unit_test(signals_remove_what_was_begun),
        cmocka_unit_test(pipes_devices_and_standard_output),
        cmocka_unit_test(a_pipe_that_does_not_block),
        cmocka_unit_test(closed_pipes_end_in_silence),
        cmocka_unit_test(reading_to_the_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
