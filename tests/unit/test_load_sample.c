/* The timed sample: where nobody tells whether a file is in the page cache, a few timed reads do, by a clock that the test
 * winds. */
#include "helper_files.h"

#include "ops/load_run.h"

#include <errno.h>

static heft_error err;

#define OK(call)                                                                                                       \
    do                                                                                                                 \
        if ((call) != HEFT_OK) fail_msg("%s:%d: %s", __FILE__, __LINE__, err.message);                                 \
    while (0)

#define SAMPLED (UINT64_C(16) << 20) /* bytes of one sample */

/* ---- a system that does not tell ---- */

static double now, tick; /* each look at the clock moves it */

static double wound(void) {
    return now += tick;
}

static int local(int fd, uint32_t *magic) {
    (void)fd;
    *magic = 0xEF53;
    return 0;
}

static int aligned(int fd, uint32_t *memory, uint32_t *offset) {
    (void)fd;
    *memory = *offset = 4096;
    return 0;
}

static int silent_cachestat(int fd, uint64_t offset, uint64_t nbytes, heft__cached_pages *out) {
    (void)fd, (void)offset, (void)nbytes, (void)out;
    return ENOSYS;
}

static int silent_nowait(int fd, uint64_t offset) {
    (void)fd, (void)offset;
    return EOPNOTSUPP;
}

static int silent_mincore(int fd, uint64_t offset, uint64_t nbytes, uint64_t *cached) {
    (void)fd, (void)offset, (void)nbytes, (void)cached;
    return EPERM;
}

static bool no_mincore(int fd) {
    (void)fd;
    return false;
}

static bool huge_pages(void) {
    return false;
}

static int silence(void **state) {
    (void)state;
    static const heft__facts_sys sys = {local,          aligned,    silent_cachestat, silent_nowait,
                                        silent_mincore, no_mincore, huge_pages,       wound};
    heft__facts_sys_replace(&sys);
    now = 1000;
    return 0;
}

static int truth(void **state) {
    (void)state;
    heft__facts_sys_replace(NULL);
    return 0;
}

/* A file of one tensor, of which only the last byte takes room on the disk. */
static heft_archive *hollow(const char *name, uint64_t mib) {
    char header[200], shape[32];
    size_t nbytes;
    heft_archive *archive;
    snprintf(shape, sizeof shape, "%llu", (unsigned long long)(mib << 20));
    int n = snprintf(header, sizeof header, "{\"w\":{\"dtype\":\"U8\",\"shape\":[%s],\"data_offsets\":[0,%s]}}", shape, shape);
    while (n % 8) header[n++] = ' ';
    uint8_t *start = test_raw_safetensors(header, (size_t)n, "", 0, &nbytes);
    const char *path = test_write(name, start, nbytes);
    free(start);
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    assert_int_equal(fseek(file, (long)(nbytes + (mib << 20) - 1), SEEK_SET), 0);
    assert_int_equal(fputc(7, file), 7);
    assert_int_equal(fclose(file), 0);
    OK(heft_archive_open(path, NULL, &archive, &err));
    return archive;
}

static heft_load_plan *planned(const heft_archive *archive, heft_load_options o) {
    heft_load_plan *plan;
    heft_load_shard shard;
    o.struct_size = sizeof o;
    OK(heft_load_plan_new(archive, &o, &plan, &err));
    OK(heft_load_plan_shard(plan, 0, &shard, &err));
    assert_true(shard.resident_nbytes == HEFT_NONE);
    assert_string_equal(shard.residency_by, "none");
    return plan;
}

static void is(const heft_load_plan *plan, heft_path path, heft_reason reason, const char *by, uint64_t resident) {
    heft_load_shard shard;
    OK(heft_load_plan_shard(plan, 0, &shard, &err));
    assert_int_equal(shard.path_planned, path);
    assert_int_equal(shard.reason, reason);
    assert_string_equal(shard.residency_by, by);
    assert_true(shard.resident_nbytes == resident);
}

/* Fast reads: the file is hot after all, goes buffered, and what was read for it is told once. */
static void fast(void **state) {
    (void)state;
    const uint64_t kept = UINT64_C(336) << 20;
    heft_archive *archive = hollow("fast.safetensors", 336);
    heft_load_plan *plan = planned(archive, (heft_load_options){.workers = 2});
    is(plan, HEFT_PATH_DIRECT, HEFT_REASON_COLD_LOCAL, "none", HEFT_NONE);
    for (int round = 0; round < 2; round++) {
        heft_load_stats stats = {.struct_size = sizeof stats};
        heft_weights *weights;
        heft_loaded loaded;
        tick = 1e-3;
        OK(heft_load_run(plan, &weights, &stats, &err));
        is(plan, HEFT_PATH_BUFFERED, HEFT_REASON_HOT, "timed", kept);
        assert_true(stats.kept_nbytes == kept);
        assert_true(stats.requested_nbytes == kept + (round ? 0 : SAMPLED)); /* the second run knows */
        assert_true(stats.over_read_nbytes == (round ? 0 : SAMPLED));
        OK(heft_weights_get(weights, "w", SIZE_MAX, &loaded, &err));
        assert_int_equal(((uint8_t *)loaded.data)[kept - 1], 7);
        heft_weights_unref(weights);
    }
    heft_load_plan_free(plan);
    heft_archive_unref(archive);
}

/* The border is 5 GB/s: a little less is a disk. */
static void slow(void **state) {
    (void)state;
    heft_archive *archive = hollow("slow.safetensors", 336);
    for (int hot = 0; hot < 2; hot++) {
        heft_load_plan *plan = planned(archive, (heft_load_options){.workers = 1});
        tick = (double)SAMPLED / (hot ? 5.1e9 : 4.9e9);
        OK(heft__load_sample(plan, &err));
        is(plan, hot ? HEFT_PATH_BUFFERED : HEFT_PATH_DIRECT, hot ? HEFT_REASON_HOT : HEFT_REASON_COLD_LOCAL, "timed",
           hot ? UINT64_C(336) << 20 : 0);
        assert_true(plan->sampled.nbytes == SAMPLED);
        OK(heft__load_sample(plan, &err)); /* once is enough */
        assert_true(plan->sampled.nbytes == SAMPLED);
        heft_load_plan_free(plan);
    }
    heft_archive_unref(archive);
}

/* A few files that nothing is timed of. */
static void not_timed(void **state) {
    (void)state;
    heft_archive *archive = hollow("small.safetensors", 300), *enough = hollow("enough.safetensors", 336);
    const struct {
        const heft_archive *archive;
        heft_load_options options;
        heft_status status;
    } rows[] = {
        {archive, {.workers = 1}, HEFT_OK}, /* 16 MiB are more than 5 % of it */
        {enough, {.no_timed_sample = true}, HEFT_OK},
        {enough, {.no_direct = true}, HEFT_OK}, /* the answer would change nothing */
        {enough, {.io = HEFT_IO_DIRECT}, HEFT_OK},
        {enough, {.memory_limit_nbytes = 1 << 20}, HEFT_LIMIT}, /* refused before a byte is read */
    };
    tick = 1e-6;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        heft_load_plan *plan = planned(rows[i].archive, rows[i].options);
        assert_int_equal(heft__load_sample(plan, &err), rows[i].status);
        assert_true(plan->sampled.nbytes == 0 && plan->sampled.requests == 0);
        assert_false(plan->shards[0].timed);
        heft_load_plan_free(plan);
    }
    heft_archive_unref(archive);
    heft_archive_unref(enough);
}

/* A file that lost its end before it is sampled: the load fails, and what was read is told all the same. */
static void cut_off(void **state) {
    (void)state;
    heft_archive *archive = hollow("cut.safetensors", 336);
    heft_load_plan *plan = planned(archive, (heft_load_options){.workers = 1});
    test_write("cut.safetensors", "short", 5);
    heft_load_stats stats = {.struct_size = sizeof stats};
    heft_weights *weights;
    assert_int_equal(heft_load_run(plan, &weights, &stats, &err), HEFT_IO);
    assert_int_equal(err.fault, HEFT_FAULT_TRUNCATED);
    assert_null(weights);
    assert_true(stats.requests > 0 && stats.kept_nbytes == 0);
    heft_load_plan_free(plan);
    heft_archive_unref(archive);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(fast, silence, truth),
        cmocka_unit_test_setup_teardown(slow, silence, truth),
        cmocka_unit_test_setup_teardown(not_timed, silence, truth),
        cmocka_unit_test_setup_teardown(cut_off, silence, truth),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
