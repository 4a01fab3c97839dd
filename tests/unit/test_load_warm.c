/* label: quick threads */
/* Warming: what is kept comes into the page cache and nothing else, once, within a budget, one warmer after another. */
#include "helper_files.h"
#include "helper_load.h"

#include "base/os.h"
#include "facts/facts.h"
#include "source/source.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static heft_error err;

#define OK(call)                                                                                                       \
    do                                                                                                                 \
        if ((call) != HEFT_OK) fail_msg("%s:%d: %s", __FILE__, __LINE__, err.message);                                 \
    while (0)

static const char *cold(const char *name, uint64_t nbytes) {
    char path[4300];
    snprintf(path, sizeof path, "%s/model.safetensors", load_set(name, 1, 12, nbytes));
    int fd = open(path, O_RDONLY);
    assert_int_equal(fsync(fd), 0);
    (void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    close(fd);
    return test_path(name);
}

/* Bytes of a range that are in the page cache; HEFT_NONE: nobody says. */
static uint64_t resident(const heft_archive *archive, uint64_t offset, uint64_t nbytes) {
    heft__extent extent = {offset, nbytes};
    heft__source_facts facts;
    heft__facts_source(heft_archive_source(archive, 0), &extent, 1, &facts);
    return facts.residency.known ? facts.residency.resident_nbytes : HEFT_NONE;
}

static heft_status warm(const heft_archive *archive, heft_load_options *o, heft_load_stats *stats) {
    heft_load_plan *plan;
    o->struct_size = sizeof *o;
    OK(heft_load_plan_new(archive, o, &plan, &err));
    heft_status status = heft_warm(plan, stats, &err);
    heft_load_plan_free(plan);
    return status;
}

static void test_kept_only(void **state) {
    (void)state;
    heft_archive *archive = load_open(cold("warm", 9 << 20));
    uint64_t id;
    heft_tensor big;
    OK(heft_archive_find(archive, "s0.layers.5.weight", SIZE_MAX, &id, &err));
    OK(heft_archive_get(archive, id, &big, &err));
    const char *exclude = big.name;
    heft_filter filter = {.struct_size = sizeof filter, .exclude = &exclude, .nexclude = 1};
    heft_load_options o = {.filter = &filter};
    heft_load_stats stats = {.struct_size = sizeof stats};
    OK(warm(archive, &o, &stats));
    assert_true(stats.requested_nbytes < 1 << 20);
    o.filter = NULL;
    bool was_cold = resident(archive, big.offset, big.nbytes) < big.nbytes / 2;
    OK(warm(archive, &o, &stats));
    if (was_cold) assert_true(stats.requested_nbytes >= big.nbytes / 4);
    uint64_t there = resident(archive, big.offset, big.nbytes);
    if (there != HEFT_NONE) {
        assert_true(there >= big.nbytes);
        OK(warm(archive, &o, &stats)); /* all is there: nothing is read */
        assert_true(stats.requested_nbytes == 0);
    }
    heft_archive_unref(archive);
}

static void test_budget(void **state) {
    (void)state;
    const uint64_t nbytes = 24 << 20; /* several blocks and what a kernel reads ahead of one: btrfs 4 MiB */
    heft_archive *archive = load_open(cold("budget", nbytes));
    if (resident(archive, 1 << 20, nbytes - (2 << 20)) < 1 << 20) {
        heft_load_stats stats = {.struct_size = sizeof stats};
        heft_load_options o = {.free_nbytes = 6 << 20, .reserve_nbytes = 1 << 20, .workers = 1};
        assert_int_equal(warm(archive, &o, &stats), HEFT_LIMIT);
        assert_true(stats.requested_nbytes <= 5 << 20);
        assert_non_null(strstr(err.message, "stay free"));
        /* No more came than was counted, but for what opening the file has brought in. */
        uint64_t there = resident(archive, 1 << 20, nbytes - (2 << 20));
        assert_true(there <= 6 << 20);
    }
    heft_archive_unref(archive);
}

/* Sources that are no file have nothing to warm. */
static void test_no_file(void **state) {
    (void)state;
    size_t nbytes;
    test_tensor tensor = {"a", "U8", "4", NULL, 4};
    uint8_t *data = test_safetensors(&tensor, 1, NULL, &nbytes);
    heft_source *source;
    heft_archive *archive;
    OK(heft_source_open_memory(data, nbytes, NULL, NULL, NULL, &source, &err));
    OK(heft_archive_open_source(source, NULL, &archive, &err));
    heft_source_unref(source);
    heft_load_options o = {0};
    heft_load_stats stats = {.struct_size = sizeof stats};
    OK(warm(archive, &o, &stats));
    assert_true(stats.requested_nbytes == 0);
    heft_archive_unref(archive);
    free(data);
}

/* A second warmer waits for the first; where there is no place for a lock there is none. */
static void test_lock(void **state) {
    (void)state;
    const char *folder = test_mkdir("locks");
    assert_int_equal(setenv("XDG_RUNTIME_DIR", folder, 1), 0);
    int ready[2];
    assert_int_equal(pipe(ready), 0);
    pid_t child = fork();
    if (child == 0) {
        int lock = heft__os_lock("heft-warm", NULL, NULL);
        struct timespec t = {0, 200000000};
        (void)!write(ready[1], lock >= 0 ? "y" : "n", 1);
        nanosleep(&t, NULL);
        _exit(0); /* the lock goes with the process */
    }
    char answer = 0;
    assert_int_equal(read(ready[0], &answer, 1), 1);
    assert_int_equal(answer, 'y');
    double before = heft__os_seconds();
    heft_archive *archive = load_open(cold("locked", 9 << 20));
    heft_load_options o = {0};
    OK(warm(archive, &o, NULL));
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(heft__os_seconds() - before > 0.05);
    close(ready[0]);
    close(ready[1]);
    assert_int_equal(setenv("XDG_RUNTIME_DIR", "/nowhere-at-all", 1), 0);
    OK(warm(archive, &o, NULL));
    assert_int_equal(heft__os_lock("heft-warm", NULL, NULL), -1);
    assert_int_equal(unsetenv("XDG_RUNTIME_DIR"), 0);
    heft_archive_unref(archive);
}

/* ---- in the background ---- */

static heft_load_plan *planned(const heft_archive *archive, heft_load_options *o) {
    heft_load_plan *plan;
    o->struct_size = sizeof *o;
    OK(heft_load_plan_new(archive, o, &plan, &err));
    return plan;
}

static int count_progress(void *ctx, uint64_t done, uint64_t total) {
    (void)done, (void)total;
    ++*(uint64_t *)ctx;
    return 0;
}

/* It does what heft_warm does, and can be asked how far it is, waited for twice, or be left alone. */
static void test_background(void **state) {
    (void)state;
    int fds = test_count_fds(), threads = test_count_threads();
    heft_archive *archive = load_open(cold("background", 9 << 20));
    uint64_t all = heft_source_size(heft_archive_source(archive, 0)), calls = 0, done, total;
    test_allocator t;
    test_allocator_init(&t, 0);
    heft_load_options o = {.progress = count_progress, .progress_ctx = &calls, .allocator = &t.alloc};
    heft_load_plan *plan = planned(archive, &o);
    heft_load_stats stats = {.struct_size = sizeof stats}, again = {.struct_size = sizeof again};
    heft_warmer *warmer;
    OK(heft_warmer_start(plan, &warmer, &err));
    OK(heft_warmer_wait(warmer, &stats, &err));
    assert_false(heft_warmer_poll(warmer, &done, &total));
    assert_true(done == total && calls >= 2);
    OK(heft_warmer_wait(warmer, &again, NULL));
    assert_memory_equal(&stats, &again, sizeof stats);
    heft_warmer_free(warmer);
    uint64_t there = resident(archive, all / 10, all - all / 10);
    if (there != HEFT_NONE) assert_true(there >= all - all / 10);
    OK(heft_warmer_start(plan, &warmer, &err)); /* nobody waits */
    heft_warmer_free(warmer);
    heft_warmer_free(NULL);
    heft_warmer_cancel(NULL);
    assert_int_equal(heft_warmer_start(NULL, &warmer, &err), HEFT_INVALID_ARGUMENT);
    assert_int_equal(heft_warmer_wait(NULL, NULL, &err), HEFT_INVALID_ARGUMENT);
    heft_load_plan_free(plan);
    assert_true(t.live_blocks == 0);
    heft_archive_unref(archive);
    assert_int_equal(test_count_fds(), fds);
    test_assert_threads(threads);
}

/* One that waits for another warmer can be told to stop, and what fails is told to whoever waits. */
static void test_background_ends(void **state) {
    (void)state;
    heft_archive *archive = load_open(cold("ends", 24 << 20));
    const char *folder = test_mkdir("locks2");
    assert_int_equal(setenv("XDG_RUNTIME_DIR", folder, 1), 0);
    heft_load_options o = {.workers = 1};
    heft_load_plan *plan = planned(archive, &o);
    heft_load_stats stats = {.struct_size = sizeof stats};
    heft_warmer *warmer;
    int lock = heft__os_lock("heft-warm", NULL, NULL);
    assert_true(lock >= 0);
    OK(heft_warmer_start(plan, &warmer, &err));
    assert_true(heft_warmer_poll(warmer, NULL, NULL));
    heft_warmer_cancel(warmer);
    assert_int_equal(heft_warmer_wait(warmer, &stats, &err), HEFT_CANCELLED);
    assert_int_equal(err.status, HEFT_CANCELLED);
    assert_true(stats.requests == 0);
    heft_warmer_free(warmer);
    OK(heft_warmer_start(plan, &warmer, &err));
    heft_warmer_free(warmer); /* the same */
    heft__os_unlock(lock);
    heft_load_plan_free(plan);
    if (resident(archive, 1 << 20, 22 << 20) < 1 << 20) {
        o = (heft_load_options){.free_nbytes = 6 << 20, .reserve_nbytes = 1 << 20, .workers = 1};
        plan = planned(archive, &o);
        OK(heft_warmer_start(plan, &warmer, &err));
        assert_int_equal(heft_warmer_wait(warmer, &stats, &err), HEFT_LIMIT);
        assert_non_null(strstr(err.message, "stay free"));
        assert_true(stats.requested_nbytes <= 5 << 20);
        heft_warmer_free(warmer);
        heft_load_plan_free(plan);
    }
    assert_int_equal(unsetenv("XDG_RUNTIME_DIR"), 0);
    heft_archive_unref(archive);
}

/* Of a large file only samples are asked at first. They may all be there and a block be missing: it is found and read. */
#define BLOCK (UINT64_C(4) << 20)
static uint64_t missing_at;

static int nearly_all(int fd, uint64_t offset, uint64_t nbytes, heft__cached_pages *out) {
    (void)fd;
    uint64_t end = offset + nbytes, all = (end + 4095) / 4096 - offset / 4096;
    bool missed = nbytes >= BLOCK && offset <= missing_at && missing_at < end; /* a sample never meets it */
    *out = (heft__cached_pages){.cached = missed ? all / 2 : all};
    return 0;
}

static int a_disk(int fd, uint32_t *magic) {
    (void)fd;
    *magic = 0xEF53;
    return 0;
}

static void test_estimates(void **state) {
    (void)state;
    const char *path = load_set("estimates", 1, 12, 80 << 20);
    heft_archive *archive = load_open(path);
    uint64_t id;
    heft_tensor big;
    heft_load_stats stats = {.struct_size = sizeof stats};
    static heft__facts_sys sys;
    sys = *heft__facts_sys_get();
    sys.fs_type = a_disk;
    sys.cachestat = nearly_all;
    OK(heft_archive_find(archive, "s0.layers.5.weight", SIZE_MAX, &id, &err));
    OK(heft_archive_get(archive, id, &big, &err));
    const char *only = big.name;
    heft_filter filter = {.struct_size = sizeof filter, .include = &only, .ninclude = 1};
    heft_load_options o = {.filter = &filter};
    heft__facts_sys_replace(&sys);
    missing_at = big.offset + (40 << 20);
    heft_status status = warm(archive, &o, &stats);
    uint64_t one_missing = stats.requested_nbytes;
    missing_at = HEFT_NONE;
    if (status == HEFT_OK) status = warm(archive, &o, &stats);
    heft__facts_sys_replace(NULL);
    OK(status);
    assert_true(one_missing == BLOCK);
    assert_true(stats.requested_nbytes == 0);
    heft_archive_unref(archive);
}

/* ---- what becomes of the page cache under cache_policy drop ---- */

static const heft__source_sys *real_calls;
static uint64_t flag_reads;

static int64_t flags_refused(int fd, const heft__vec *vec, size_t nvec, uint64_t offset, int flags) {
    if (flags == 0) return real_calls->preadv_flags(fd, vec, nvec, offset, flags);
    flag_reads++;
    errno = EOPNOTSUPP;
    return -1;
}

/* Bytes that are cached after a load of everything. */
static uint64_t after_load(const char *path, heft_cache_policy policy, bool refused) {
    heft_archive *archive = load_open(path);
    heft_load_options o = {.struct_size = sizeof o, .io = HEFT_IO_BUFFERED, .cache_policy = policy, .workers = 1};
    heft_weights *w;
    real_calls = heft__source_sys_get();
    heft__source_sys calls = *real_calls;
    if (calls.preadv_flags) calls.preadv_flags = flags_refused;
    flag_reads = 0;
    if (refused) heft__source_sys_replace(&calls);
    heft_status status = heft_load(archive, &o, &w, NULL, &err);
    heft__source_sys_replace(NULL);
    assert_int_equal(status, HEFT_OK);
    heft_weights_unref(w);
    uint64_t cached = resident(archive, 0, heft_source_size(heft_archive_source(archive, 0)));
    heft_archive_unref(archive);
    return cached;
}

/* Pages that were not there before are gone after the load, by the flag of each read or, where that is refused, by advice at
 * the end; pages that were there stay. */
static void test_drop(void **state) {
    (void)state;
    for (int refused = 0; refused < 2; refused++) {
        const char *path = cold("drop", 9 << 20);
        heft_archive *archive = load_open(path);
        uint64_t all = heft_source_size(heft_archive_source(archive, 0)), before = resident(archive, 0, all);
        heft_archive_unref(archive);
        if (before > all / 8) continue; /* nobody says, or these files cannot be made cold */
        uint64_t dropped = after_load(path, HEFT_CACHE_DROP, refused);
        assert_int_equal(flag_reads, refused && heft__source_sys_get()->preadv_flags ? 1 : 0); /* asked once */
        assert_true(dropped < all / 4);
        uint64_t hot = after_load(path, HEFT_CACHE_NEUTRAL, false);
        if (hot < all) continue; /* other programs need the memory */
        assert_true(after_load(path, HEFT_CACHE_DROP, refused) > all / 4 * 3);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_drop),
        cmocka_unit_test(test_estimates),
        cmocka_unit_test(test_kept_only),
        cmocka_unit_test(test_budget),
        cmocka_unit_test(test_no_file),
        cmocka_unit_test(test_lock),
        cmocka_unit_test(test_background),
        cmocka_unit_test(test_background_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
