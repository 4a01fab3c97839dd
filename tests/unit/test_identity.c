/* Files that are known again: what changes their identity, and when nothing may be built on it. */
#include "helper_files.h"

#include "base/os.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

static heft__os_traits traits;

/* The clock says so much more than the time of the file's last change. */
static void pretend(uint64_t ctime_ns, int64_t later_ns, bool plain) {
    memset(&traits, 0, sizeof traits);
    traits.now_ns = ctime_ns + (uint64_t)later_ns;
    traits.plain_identity = plain;
    heft__os_traits_replace(&traits);
}

static int restore(void **state) {
    (void)state;
    heft__os_traits_replace(NULL);
    return 0;
}

static int open_file(const char *path, heft__os_identity *identity) {
    int fd = open(path, O_RDONLY);
    assert_true(fd >= 0);
    pretend(0, INT64_MAX, false);
    const char *why = heft__os_identify(fd, identity);
    if (why && strstr(why, "file system")) {
        close(fd);
        skip(); /* the tests lie on one that makes numbers up */
    }
    assert_null(why);
    return fd;
}

static void young_files_are_not_believed(void **state) {
    (void)state;
    const int64_t second = 1000000000;
    const struct {
        int64_t later;
        const char *why;
    } cases[] = {{-1, "to come"}, {-second, "to come"}, {0, "less than 2 seconds"}, {2 * second - 1, "less than 2 seconds"},
                 {2 * second, NULL}, {1000 * second, NULL}};
    heft__os_identity first, now;
    int fd = open_file(test_write("young", "abc", 3), &first);
    assert_int_equal(first.nbytes, 3);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pretend(first.ctime_ns, cases[i].later, false);
        const char *why = heft__os_identify(fd, &now);
        assert_true(heft__os_identity_same(&first, &now)); /* is told in any case */
        if (cases[i].why) assert_non_null(strstr(why, cases[i].why));
        else assert_null(why);
    }
    close(fd);
}

static void nor_is_what_has_no_lasting_number(void **state) {
    (void)state;
    heft__os_identity first, now;
    int fd = open_file(test_write("plain", "abc", 3), &first), ends[2];
    pretend(first.ctime_ns, INT64_C(1) << 40, true);
    assert_non_null(strstr(heft__os_identify(fd, &now), "file system"));
    close(fd);
    pretend(first.ctime_ns, INT64_C(1) << 40, false);
    assert_int_equal(pipe(ends), 0);
    assert_non_null(strstr(heft__os_identify(ends[0], &now), "no regular file"));
    close(ends[0]);
    close(ends[1]);
    fd = open(test_dir(), O_RDONLY);
    assert_non_null(strstr(heft__os_identify(fd, &now), "no regular file"));
    close(fd);
    assert_non_null(strstr(heft__os_identify(-1, &now), "no regular file"));
    assert_false(heft__os_identity_at(test_dir(), &now));
    assert_false(heft__os_identity_at(test_path("nothing"), &now));
    assert_false(heft__os_identity_at("", &now));
    assert_int_equal(now.nbytes | now.inode | now.device, 0);
}

/* Waits until the clock of the file system has moved on, so that the next change is seen by its time alone. */
static void tick(const char *path, uint64_t since) {
    heft__os_identity now;
    do {
        assert_int_equal(chmod(path, 0600), 0);
        assert_true(heft__os_identity_at(path, &now));
    } while (now.ctime_ns <= since);
}

static void every_change_shows(void **state) {
    (void)state;
    heft__os_identity first, now;
    const char *path = test_write("file", "abc", 3);
    int fd = open_file(path, &first);
    struct timespec times[2];
    struct stat st;
    assert_true(heft__os_identity_at(path, &now));
    assert_true(heft__os_identity_same(&first, &now));
    assert_int_equal(symlink(path, test_path("link")), 0);
    assert_true(heft__os_identity_at(test_path("link"), &now)); /* of the file behind it */
    assert_true(heft__os_identity_same(&first, &now));
    assert_int_equal(fstat(fd, &st), 0);
    times[0] = times[1] = (struct timespec){.tv_sec = st.st_mtime, .tv_nsec = (long)(first.mtime_ns % 1000000000u)};
    tick(path, first.ctime_ns);
    assert_true(heft__os_identity_at(path, &first));
    tick(path, first.ctime_ns);
    int out = open(path, O_WRONLY);
    assert_int_equal(write(out, "xyz", 3), 3);
    assert_int_equal(futimens(out, times), 0); /* as if nothing had been written */
    close(out);
    assert_true(heft__os_identity_at(path, &now));
    assert_int_equal(now.mtime_ns, first.mtime_ns);
    assert_int_equal(now.inode, first.inode);
    assert_int_equal(now.nbytes, first.nbytes);
    assert_false(heft__os_identity_same(&first, &now));
    first = now;
    const char *other = test_write("other", "abc", 3);
    assert_int_equal(utimensat(AT_FDCWD, other, times, 0), 0);
    assert_int_equal(rename(other, path), 0);
    assert_true(heft__os_identity_at(path, &now));
    assert_int_not_equal(now.inode, first.inode);
    assert_false(heft__os_identity_same(&first, &now));
    pretend(first.ctime_ns, INT64_C(1) << 40, false);
    (void)heft__os_identify(fd, &now); /* the descriptor leads to the old one */
    assert_int_equal(now.inode, first.inode);
    close(fd);
}

static void times_before_1970(void **state) {
    (void)state;
    heft__os_identity now;
    const char *path = test_write("old", "abc", 3);
    struct timespec times[2] = {{.tv_sec = -5}, {.tv_sec = -5}};
    struct stat st;
    if (utimensat(AT_FDCWD, path, times, 0) != 0 || stat(path, &st) != 0 || st.st_mtime >= 0) skip();
    assert_false(heft__os_identity_at(path, &now));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(young_files_are_not_believed, restore),
        cmocka_unit_test_teardown(nor_is_what_has_no_lasting_number, restore),
        cmocka_unit_test_teardown(every_change_shows, restore),
        cmocka_unit_test_teardown(times_before_1970, restore),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
