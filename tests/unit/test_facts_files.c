/* Facts of real files: hot, evicted, dirty, in memory, and another user's. */
#include "helper_files.h"

#include "facts/facts.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#if defined(__linux__)
#include <sys/prctl.h>
#endif

enum { SIZE = 4 << 20 };
static heft__facts_sys sys;

static int unavailable_cachestat(int fd, uint64_t offset, uint64_t nbytes, heft__cached_pages *out) {
    (void)fd, (void)offset, (void)nbytes, (void)out;
    return ENOSYS;
}

static int unavailable_nowait(int fd, uint64_t offset) {
    (void)fd, (void)offset;
    return EOPNOTSUPP;
}

/* The ladder from this step on. */
static void start_at(heft__residency_step step) {
    heft__facts_sys_replace(NULL);
    sys = *heft__facts_sys_get();
    if (step > HEFT__RESIDENCY_CACHESTAT) sys.cachestat = unavailable_cachestat;
    if (step > HEFT__RESIDENCY_NOWAIT) sys.nowait = unavailable_nowait;
    heft__facts_sys_replace(&sys);
}

static int restore(void **state) {
    (void)state;
    heft__facts_sys_replace(NULL);
    return 0;
}

static const char *new_file(const char *name) {
    uint8_t *data = malloc(SIZE);
    for (size_t i = 0; i < SIZE; i++) data[i] = (uint8_t)(i * 11);
    const char *path = test_write(name, data, SIZE);
    free(data);
    return path;
}

/* On the disk; in the cache or not. */
static void settle(const char *path, bool hot) {
    int fd = open(path, O_RDONLY);
    assert_true(fd >= 0);
    assert_int_equal(fsync(fd), 0);
#if defined(POSIX_FADV_DONTNEED)
    if (!hot) assert_int_equal(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED), 0);
#endif
    uint8_t *data = malloc(SIZE);
    if (hot) assert_int_equal(read(fd, data, SIZE), SIZE);
    free(data);
    close(fd);
}

static heft__source_facts facts_of(const char *path) {
    heft_source *source = NULL;
    heft__source_facts facts;
    heft__extent all = {0, SIZE};
    assert_int_equal(heft_source_open_file(path, &source, NULL), HEFT_OK);
    heft__facts_source(source, &all, 1, &facts);
    heft_source_unref(source);
    return facts;
}

/* What the file system and the kernel at hand can do: pages can be dropped, and a step answers. */
static bool answers(const char *path, heft__residency_step step) {
    start_at(step);
    heft__source_facts facts = facts_of(path);
    bool fine = facts.residency.known && facts.residency.step == step;
    if (!fine) printf("%s is not answered here\n", heft__residency_step_name(step));
    return fine;
}

static bool on_disk(const char *path) {
    heft__source_facts facts = facts_of(path);
    if (facts.fs_class == HEFT__FS_LOCAL) return true;
    printf("left out: the build tree lies on %s (%s)\n", facts.fs_name, heft__fs_class_name(facts.fs_class));
    return false;
}

static void identity_and_class(void **state) {
    (void)state;
    const char *path = new_file("plain");
    heft__source_facts facts = facts_of(path);
    assert_true(facts.file);
    assert_int_equal(facts.identity.size, SIZE);
    assert_true(facts.identity.known && facts.identity.inode && facts.identity.mtime_ns);
    assert_true(strlen(facts.fs_name) > 0);
    assert_int_equal(facts.residency.asked_nbytes, SIZE);
    if (facts.direct == HEFT__DIRECT_REFUSED) assert_int_equal(facts.direct_memory + facts.direct_offset, 0);
    else assert_true(facts.direct_memory >= 1 && facts.direct_offset >= 1);
#if defined(__linux__)
    assert_int_not_equal(facts.fs_class, HEFT__FS_UNKNOWN);
#endif
}

static void hot_and_cold(void **state) {
    (void)state;
    if (test_skip_emulated("the page cache is the host's")) return;
    const char *path = new_file("cached");
    if (!on_disk(path)) return;
    for (int step = HEFT__RESIDENCY_CACHESTAT; step <= HEFT__RESIDENCY_MINCORE; step++) {
        settle(path, true);
        if (!answers(path, (heft__residency_step)step)) continue;
        heft__source_facts facts = facts_of(path);
        /* A read that does not wait is interrupted by other programs now and then, and does not count then. */
        assert_in_range(facts.residency.resident_nbytes, step == HEFT__RESIDENCY_NOWAIT ? SIZE / 2 : SIZE - SIZE / 16,
                        SIZE);
        assert_false(facts.residency.dirty);
        settle(path, false);
        facts = facts_of(path);
        assert_int_equal(facts.residency.step, step);
        assert_true(facts.residency.known);
        assert_in_range(facts.residency.resident_nbytes, 0, SIZE / 8);
        assert_int_equal(facts.residency.asked_nbytes, SIZE);
    }
    /* Half of it. */
    settle(path, false);
    int fd = open(path, O_RDONLY);
    uint8_t *data = malloc(SIZE / 2);
#if defined(POSIX_FADV_RANDOM)
    (void)posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM); /* no reading ahead */
#endif
    assert_int_equal(pread(fd, data, SIZE / 2, 0), SIZE / 2);
    free(data);
    close(fd);
    if (answers(path, HEFT__RESIDENCY_CACHESTAT)) {
        heft__source_facts facts = facts_of(path);
        assert_in_range(facts.residency.resident_nbytes, SIZE / 2, SIZE / 2 + SIZE / 16);
    }
}

static void dirty(void **state) {
    (void)state;
    if (test_skip_emulated("the page cache is the host's")) return;
    const char *path = new_file("dirty");
    if (!on_disk(path) || !answers(path, HEFT__RESIDENCY_CACHESTAT)) return;
    /* A new one: an old one that is cut and written again goes to the disk as soon as it is closed, on ext4. */
    path = new_file("new");
    assert_true(facts_of(path).residency.dirty);
    settle(path, true);
    assert_false(facts_of(path).residency.dirty);
}

static void in_memory(void **state) {
    (void)state;
    char path[] = "/dev/shm/heft-test-XXXXXX";
    int fd = mkstemp(path);
    if (fd < 0) {
        printf("left out: no file can be made in /dev/shm\n");
        return;
    }
    assert_int_equal(ftruncate(fd, SIZE), 0);
    assert_int_equal(pwrite(fd, "x", 1, 0), 1);
    heft__source_facts facts = facts_of(path);
    if (strcmp(facts.fs_name, "tmpfs") == 0) {
        assert_int_equal(facts.fs_class, HEFT__FS_MEMORY);
        assert_int_equal(facts.identity.size, SIZE);
        /* The first step knows tmpfs, the second does not, and the third is the owner's. */
        start_at(HEFT__RESIDENCY_NOWAIT);
        facts = facts_of(path);
        assert_true(facts.residency.step == HEFT__RESIDENCY_MINCORE || facts.residency.step == HEFT__RESIDENCY_NOWAIT);
        assert_true(facts.residency.known);
    } else printf("left out: /dev/shm is %s\n", facts.fs_name);
    close(fd);
    unlink(path);
}

/* ---- another user's file ---- */

enum { OTHER_USER = 12345 };

/* Runs `check` of an open descriptor as an ordinary user in a child; the exit status. */
static int as_other_user(const char *path, int (*check)(int fd)) {
    int fd = open(path, O_RDONLY), status = 0;
    assert_true(fd >= 0);
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        if (setgid(OTHER_USER) != 0 || setuid(OTHER_USER) != 0) _exit(100);
#if defined(__linux__)
        (void)prctl(PR_SET_DUMPABLE, 1, 0, 0, 0); /* as it is for a program that was started by that user */
#endif
        _exit(check(fd));
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    close(fd);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* 0: right answers; else the number of the check that failed. */
static int cold_file_is_not_called_hot(int fd) {
    heft_source *source = NULL;
    heft__source_facts facts;
    heft__extent all = {0, SIZE};
    if (heft_source_open_fd(fd, "x", &source, NULL) != HEFT_OK) return 1;
    for (int step = HEFT__RESIDENCY_CACHESTAT; step <= HEFT__RESIDENCY_MINCORE; step++) {
        start_at((heft__residency_step)step);
        heft__facts_source(source, &all, 1, &facts);
        if (facts.residency.resident_nbytes > SIZE / 2) return 10 * step;
        if (facts.residency.step == HEFT__RESIDENCY_MINCORE) return 10 * step + 1;
        if (step == HEFT__RESIDENCY_MINCORE && facts.residency.known) return 10 * step + 2;
    }
    heft_source_unref(source);
    return 0;
}

static int may_ask(int fd) {
    heft__facts_sys_replace(NULL);
    return heft__facts_sys_get()->may_mincore(fd) ? 0 : 1;
}

static void another_users_file(void **state) {
    (void)state;
    if (geteuid() != 0 || test_skip_emulated("the page cache is the host's")) {
        printf("left out: only root can become another user\n");
        return;
    }
    const char *path = new_file("others");
    if (!on_disk(path)) return;
    assert_int_equal(chmod(path, 0644), 0);
    settle(path, false);
    assert_int_equal(as_other_user(path, cold_file_is_not_called_hot), 0);
#if defined(__linux__)
    int fd = open(path, O_RDONLY);
    assert_int_equal(may_ask(fd), 0); /* the owner */
    close(fd);
    assert_int_equal(as_other_user(path, may_ask), 1);
    assert_int_equal(chmod(path, 0666), 0); /* it may write the file */
    assert_int_equal(as_other_user(path, may_ask), 0);
    assert_int_equal(chmod(path, 0600), 0);
    assert_int_equal(as_other_user(path, may_ask), 1);
    assert_int_equal(chown(path, OTHER_USER, OTHER_USER), 0);
    assert_int_equal(as_other_user(path, may_ask), 0);
#endif
}

static void the_machine_at_hand(void **state) {
    (void)state;
    heft__host_facts host;
    heft__facts_host(&host);
    assert_true(host.cpus >= 1);
    assert_true(host.page_nbytes >= 4096);
    assert_true(strlen(host.thp_enabled) > 0);
    if (host.huge_page_nbytes) assert_true(host.huge_page_nbytes > host.page_nbytes);
#if defined(__linux__) && defined(PR_SET_THP_DISABLE)
    int before = prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0);
    if (before == 0 && prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) == 0) {
        assert_false(host.thp_disabled);
        heft__facts_host(&host);
        assert_true(host.thp_disabled);
        assert_int_equal(prctl(PR_SET_THP_DISABLE, 0, 0, 0, 0), 0);
        heft__facts_host(&host);
        assert_false(host.thp_disabled);
    }
#endif
    heft__os_memory memory;
    heft__facts_memory(HEFT_NONE, 0, &memory);
    assert_true(memory.nbytes > 0);
    assert_true(strlen(memory.origin) > 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(identity_and_class, restore),
        cmocka_unit_test_teardown(hot_and_cold, restore),
        cmocka_unit_test_teardown(dirty, restore),
        cmocka_unit_test_teardown(in_memory, restore),
        cmocka_unit_test_teardown(another_users_file, restore),
        cmocka_unit_test_teardown(the_machine_at_hand, restore),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
