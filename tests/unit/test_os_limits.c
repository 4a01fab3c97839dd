/* Pages, random bytes, free memory and CPUs, on the real system and on made-up ones. */
#include "helper_files.h"

#include "base/os.h"
#include "base/parallel.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static heft__os_traits traits;

static int restore(void **state) {
    (void)state;
    heft__os_traits_replace(NULL);
    return 0;
}

/* A made-up system: files under test_dir()/name. */
static void pretend(const char *name) {
    memset(&traits, 0, sizeof traits);
    traits.root = test_path(name);
    heft__os_traits_replace(&traits);
}

static void put(const char *root, const char *path, const char *text) {
    char name[512];
    snprintf(name, sizeof name, "%s/%s", root, path);
    test_write(name, text, strlen(text));
}

static heft__os_memory memory;

static uint64_t free_memory(void) {
    heft__os_free_memory(0, &memory);
    return memory.nbytes;
}

static void pages_are_aligned_zeroed_and_apart(void **state) {
    (void)state;
    size_t sizes[] = {0, 1, 4095, 4096, 4097, (2u << 20) - 1, 2u << 20, (2u << 20) + 1, 9u << 20};
    for (int plain = 0; plain < 2; plain++) {
        memset(&traits, 0, sizeof traits);
        traits.root = "";
        traits.plain_pages = plain;
        heft__os_traits_replace(&traits);
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            uint8_t *p = heft__os_pages(sizes[i]), *q = heft__os_pages(sizes[i]);
            assert_non_null(p);
            assert_non_null(q);
            assert_int_equal((uintptr_t)p % (2u << 20), 0);
            for (size_t k = 0; k < sizes[i]; k += 4096) {
                assert_int_equal(p[k], 0);
                p[k] = 1;
            }
            if (sizes[i]) p[sizes[i] - 1] = q[sizes[i] - 1] = 1;
            heft__os_pages_free(p, sizes[i]);
            heft__os_pages_free(q, sizes[i]);
        }
    }
    assert_null(heft__os_pages(SIZE_MAX));
    assert_null(heft__os_pages(SIZE_MAX - (2u << 20)));
    assert_null(heft__os_pages(SIZE_MAX / 2 + 1));
}

static void random_bytes_differ(void **state) {
    (void)state;
    for (int plain = 0; plain < 2; plain++) {
        memset(&traits, 0, sizeof traits);
        traits.root = "";
        traits.plain_random = plain;
        heft__os_traits_replace(&traits);
        uint8_t a[64] = {0}, b[64] = {0}, zero[64] = {0};
        heft__os_random(a, sizeof a);
        heft__os_random(b, sizeof b);
        assert_memory_not_equal(a, b, sizeof a);
        assert_memory_not_equal(a, zero, sizeof a);
        assert_memory_not_equal(a, a + 32, 32);
    }
    double before = heft__os_seconds();
    assert_true(heft__os_seconds() >= before);
}

static void the_real_system_answers(void **state) {
    (void)state;
    heft__os_traits_replace(NULL);
    assert_true(heft__os_usable_cpus() >= 1);
    assert_true(heft__os_page_size() >= 4096);
    assert_true(free_memory() > 0);
    assert_int_equal(heft_features() & HEFT_FEATURE_MAP, HEFT_FEATURE_MAP);
}

static void unknown_is_said(void **state) {
    (void)state;
    pretend("nowhere");
    assert_true(free_memory() == HEFT_NONE);
    assert_string_equal(memory.origin, "unknown");
    assert_true(heft__os_usable_cpus() >= 1);
    test_mkdir("odd");
    put("odd", "proc/meminfo", "MemTotal: 5 kB\nMemAvailable: many\n");
    put("odd", "proc/self/cgroup", "nonsense\n0:\n::\n");
    put("odd", "proc/self/mountinfo", "\n\n1 2 3\n");
    pretend("odd");
    assert_true(free_memory() == HEFT_NONE);
}

static const char meminfo[] = "MemTotal:       16000000 kB\nMemFree:  1 kB\nMemAvailable:    8000000 kB\n";
#define AVAILABLE (UINT64_C(8000000) << 10)

static void version_2_takes_the_tightest_level(void **state) {
    (void)state;
    put("v2", "proc/meminfo", meminfo);
    put("v2", "proc/self/cgroup", "0::/user.slice/job\n");
    put("v2", "proc/self/mountinfo",
        "22 1 0:20 / /proc rw - proc proc rw\n30 25 0:26 / /sys/fs/cgroup rw,nosuid shared:4 master:1 - cgroup2 cgroup2 rw\n");
    pretend("v2");
    assert_true(free_memory() == AVAILABLE); /* the folder of the group is missing: only the mount point */
    assert_string_equal(memory.origin, "MemAvailable");
    put("v2", "sys/fs/cgroup/memory.max", "7000000\n"); /* a container's root has a limit of its own */
    put("v2", "sys/fs/cgroup/memory.current", "1000000\n");
    assert_int_equal(free_memory(), 6000000);
    assert_string_equal(memory.origin, "cgroup v2 /sys/fs/cgroup memory.max");
    put("v2", "sys/fs/cgroup/user.slice/job/memory.max", "max\n");
    put("v2", "sys/fs/cgroup/user.slice/job/memory.current", "100\n");
    assert_int_equal(free_memory(), 6000000);
    put("v2", "sys/fs/cgroup/user.slice/memory.max", "1000000\n");
    put("v2", "sys/fs/cgroup/user.slice/memory.current", "900000\n");
    assert_int_equal(free_memory(), 100000);
    put("v2", "sys/fs/cgroup/user.slice/memory.stat",
        "anon 5\nfile 700000\ninactive_file 300000\nactive_file 200000\ninactive_anon 9\n");
    assert_int_equal(free_memory(), 600000);
    assert_string_equal(memory.origin, "cgroup v2 /sys/fs/cgroup/user.slice memory.max");
    put("v2", "sys/fs/cgroup/user.slice/job/memory.high", "50100\n");
    assert_int_equal(free_memory(), 50000);
    assert_string_equal(memory.origin, "cgroup v2 /sys/fs/cgroup/user.slice/job memory.high");
    put("v2", "sys/fs/cgroup/user.slice/job/memory.current", "60000\n");
    assert_int_equal(free_memory(), 0); /* above its limit, not below zero */
    put("v2", "sys/fs/cgroup/user.slice/job/memory.stat", "inactive_file 18446744073709551615\nactive_file 5\n");
    assert_int_equal(free_memory(), 50100);
}

static void version_1_and_hybrid(void **state) {
    (void)state;
    put("v1", "proc/meminfo", meminfo);
    /* A hybrid host: the memory controller is in version 1, a container's root stands in mountinfo. */
    put("v1", "proc/self/cgroup", "12:cpuset:/x\n5:memory:/docker/abc/in side\n3:cpu,cpuacct:/docker/abc\n0::/docker/abc\n");
    put("v1", "proc/self/mountinfo",
        "30 25 0:26 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
        "31 25 0:27 /docker/abc /sys/fs/cg\\040roup/memory ro - cgroup cgroup rw,memory\n"
        "32 25 0:28 /docker/abc /sys/fs/cgroup/cpu,cpuacct ro - cgroup cgroup rw,cpu,cpuacct\n");
    put("v1", "sys/fs/cg roup/memory/in side/memory.limit_in_bytes", "9223372036854771712\n");
    put("v1", "sys/fs/cg roup/memory/in side/memory.usage_in_bytes", "5\n");
    pretend("v1");
    assert_true(free_memory() == AVAILABLE);
    put("v1", "sys/fs/cg roup/memory/memory.limit_in_bytes", "5000\n");
    put("v1", "sys/fs/cg roup/memory/memory.usage_in_bytes", "4000\n");
    put("v1", "sys/fs/cg roup/memory/memory.stat",
        "cache 3000\ninactive_file 1\ntotal_inactive_file 200\ntotal_active_file 300\n");
    assert_int_equal(free_memory(), 1500);
    assert_string_equal(memory.origin, "cgroup v1 /sys/fs/cg roup/memory memory.limit_in_bytes");
    put("v1", "sys/fs/cg roup/memory/memory.limit_in_bytes", "4611686018427387904\n"); /* 2^62: none */
    assert_true(free_memory() == AVAILABLE);
    put("v1", "sys/fs/cg roup/memory/memory.limit_in_bytes", "4611686018427387903\n");
    put("v1", "proc/meminfo", "");
    assert_int_equal(free_memory(), (UINT64_C(1) << 62) - 1 - 3500);

    uint32_t cpus = heft__os_usable_cpus();
    put("v1", "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
    put("v1", "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
    assert_int_equal(heft__os_usable_cpus(), cpus);
    put("v1", "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "50000\n");
    assert_int_equal(heft__os_usable_cpus(), 1);
}

/* The group's folder lies outside of what is mounted here, or under a mount of another name. */
static void roots_of_mounts(void **state) {
    (void)state;
    put("roots", "proc/self/mountinfo",
        "30 25 0:26 /kube/pod /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n31 25 0:26 / /elsewhere rw - cgroup2 cgroup2 rw\n");
    put("roots", "sys/fs/cgroup/memory.max", "1000\n");
    put("roots", "sys/fs/cgroup/memory.current", "100\n");
    put("roots", "sys/fs/cgroup/c/memory.max", "500\n");
    put("roots", "sys/fs/cgroup/c/memory.current", "100\n");
    pretend("roots");
    static const struct {
        const char *group;
        uint64_t left;
    } rows[] = {{"/kube/pod/c", 400}, {"/kube/pod", 900},      {"/kube/pod/", 900},     {"/kube/podx/c", 900},
                {"/", 900},           {"/kube/pod/gone", 900}, {"/kube/pod/c/gone", 900}, {"", 900}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char line[64];
        snprintf(line, sizeof line, "0::%s\n", rows[i].group);
        put("roots", "proc/self/cgroup", line);
        assert_int_equal(free_memory(), rows[i].left);
    }
    put("roots", "proc/self/cgroup", "0::/kube/pod/c\n");
    put("roots", "sys/fs/cgroup/c/memory.current", "many\n"); /* a limit without a use says nothing */
    assert_int_equal(free_memory(), 900);
    put("roots", "sys/fs/cgroup/memory.max", "0\n");
    put("roots", "sys/fs/cgroup/memory.current", "0\n");
    assert_int_equal(free_memory(), 0);
}

static void a_long_path_is_cut_in_the_origin(void **state) {
    (void)state;
    char group[700], line[720], name[900], expected[64] = "cgroup v2 /sys/fs/cgroup/aaaa";
    memset(group, 'a', sizeof group);
    for (size_t i = 0; i < sizeof group; i += 100) group[i] = '/';
    group[sizeof group - 1] = 0;
    snprintf(line, sizeof line, "0::%s\n", group);
    put("long", "proc/self/cgroup", line);
    put("long", "proc/self/mountinfo", "30 25 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
    char root[32] = "long/sys/fs/cgroup";
    snprintf(name, sizeof name, "%s%s/memory.max", root, group);
    test_write(name, "9\n", 2);
    snprintf(name, sizeof name, "%s%s/memory.current", root, group);
    test_write(name, "1\n", 2);
    pretend("long");
    assert_int_equal(free_memory(), 8);
    assert_memory_equal(memory.origin, expected, strlen(expected));
    assert_in_range(strlen(memory.origin), 300, sizeof memory.origin - 1);
    assert_string_equal(memory.origin + strlen(memory.origin) - 3, "\xE2\x80\xA6");
}

/* Runs in a child: limits do not go up again. */
static int own_limits(int which, const char *name, const char *use) {
    const uint64_t limit = UINT64_C(1) << 46; /* above what sanitizers take */
    struct rlimit now = {.rlim_cur = limit, .rlim_max = limit};
    char text[128];
    if (free_memory() != HEFT_NONE) return 1;
    if ((which == RLIMIT_AS ? setrlimit(RLIMIT_AS, &now) : setrlimit(RLIMIT_DATA, &now)) != 0) return 2;
    if (free_memory() != limit || strcmp(memory.origin, name) != 0) return 3;
    snprintf(text, sizeof text, "Name: x\nVmPeak:  9 kB\n%s:\t    4096 kB\n", use);
    put("own", "proc/self/status", text);
    pretend("own");
    if (free_memory() != limit - (4096u << 10) || strcmp(memory.origin, name) != 0) return 4;
    heft__os_free_memory(10, &memory); /* the stacks of threads to come */
    if (memory.nbytes != limit - (4096u << 10) - 10 * HEFT__THREAD_STACK) return 5;
    snprintf(text, sizeof text, "%s: 18446744073709551615 kB\n", use);
    put("own", "proc/self/status", text);
    if (free_memory() != 0) return 6;
    put("own", "proc/meminfo", "MemAvailable: 1 kB\n");
    snprintf(text, sizeof text, "%s: 1 kB\n", use);
    put("own", "proc/self/status", text);
    if (free_memory() != 1024 || strcmp(memory.origin, "MemAvailable") != 0) return 7;
    return 0;
}

static void limits_of_the_process(void **state) {
    (void)state;
    static const struct {
        int which;
        const char *name, *use;
    } rows[] = {{RLIMIT_AS, "RLIMIT_AS", "VmSize"}, {RLIMIT_DATA, "RLIMIT_DATA", "VmData"}};
    struct rlimit as, data;
    getrlimit(RLIMIT_AS, &as);
    getrlimit(RLIMIT_DATA, &data);
    if (test_skip_emulated("limits of memory are not passed on")) return;
    if (sizeof(void *) < 8 || as.rlim_cur != RLIM_INFINITY || data.rlim_cur != RLIM_INFINITY) {
        printf("left out: this process is limited already\n");
        return;
    }
    test_mkdir("own/proc/self");
    pretend("own");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        fflush(NULL);
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) _exit(own_limits(rows[i].which, rows[i].name, rows[i].use));
        int status = 0;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 0);
        remove(test_path("own/proc/meminfo"));
        remove(test_path("own/proc/self/status"));
    }
}

static void first_lines(void **state) {
    (void)state;
    char line[8];
    put("lines", "a", "123456789\n");
    put("lines", "b", "ab\ncd\n");
    put("lines", "c", "");
    pretend("lines");
    assert_true(heft__os_first_line("/a", line, sizeof line));
    assert_string_equal(line, "1234567");
    assert_true(heft__os_first_line("/b", line, sizeof line));
    assert_string_equal(line, "ab");
    assert_false(heft__os_first_line("/c", line, sizeof line));
    assert_string_equal(line, "");
    assert_false(heft__os_first_line("/d", line, sizeof line));
    assert_string_equal(line, "");
}

static void cpu_quotas(void **state) {
    (void)state;
    put("quota", "proc/self/cgroup", "0::/a/b\n");
    put("quota", "proc/self/mountinfo", "30 25 0:26 / /cg rw - cgroup2 none rw\n");
    put("quota", "cg/a/b/cpu.max", "max 100000\n");
    pretend("quota");
    traits.plain_affinity = true; /* as many as are online */
    uint32_t cpus = heft__os_usable_cpus();
    static const struct {
        const char *text;
        uint32_t most;
    } rows[] = {{"100000 100000", 1}, {"1 100000", 1},  {"100001 100000", 2}, {"0 100000", 1}, {"5 0", UINT32_MAX},
                {"", UINT32_MAX},     {"5", UINT32_MAX}, {"99999999999999999999 5", UINT32_MAX}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        put("quota", "cg/a/cpu.max", rows[i].text);
        assert_int_equal(heft__os_usable_cpus(), rows[i].most < cpus ? rows[i].most : cpus);
    }
}

static void as_many_files_as_the_hard_limit_allows(void **state) {
    (void)state;
    struct rlimit before, now;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    now = (struct rlimit){.rlim_cur = 32, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &now), 0);
    for (int i = 0; i < 2; i++) {
        heft__os_allow_files();
        assert_int_equal(getrlimit(RLIMIT_NOFILE, &now), 0);
        assert_true(now.rlim_cur > 32);
        assert_true(now.rlim_max == before.rlim_max);
    }
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(pages_are_aligned_zeroed_and_apart, restore),
        cmocka_unit_test_teardown(random_bytes_differ, restore),
        cmocka_unit_test_teardown(the_real_system_answers, restore),
        cmocka_unit_test_teardown(unknown_is_said, restore),
        cmocka_unit_test_teardown(version_2_takes_the_tightest_level, restore),
        cmocka_unit_test_teardown(version_1_and_hybrid, restore),
        cmocka_unit_test_teardown(roots_of_mounts, restore),
        cmocka_unit_test_teardown(a_long_path_is_cut_in_the_origin, restore),
        cmocka_unit_test_teardown(limits_of_the_process, restore),
        cmocka_unit_test_teardown(first_lines, restore),
        cmocka_unit_test_teardown(cpu_quotas, restore),
        cmocka_unit_test(as_many_files_as_the_hard_limit_allows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
