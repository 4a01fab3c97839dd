/* label: full threads */
/* Loads while files change, reads fail, memory ends, processes fork: one clear error each, or the right bytes, and
 * nothing is left behind. */
#include "helper_files.h"
#include "helper_load.h"

#include "facts/facts.h"
#include "source/source.h"

#include <errno.h>
#include <fcntl.h>
#include <locale.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static heft_error err;

#define OK(call)                                                                                                       \
    do                                                                                                                 \
        if ((call) != HEFT_OK) fail_msg("%s:%d: %s", __FILE__, __LINE__, err.message);                                 \
    while (0)

/* ---- something happens at the k-th read ---- */

static const heft__source_sys *real_sys;
static heft__source_sys trap_sys;
static _Atomic uint64_t trap_calls;
static uint64_t trap_at; /* 0: never */
static int trap_errno;   /* 0: an action instead */
static void (*trap_action)(void);

static bool trapped(void) {
    if (++trap_calls != trap_at) return false;
    if (trap_action) trap_action();
    errno = trap_errno;
    return trap_errno != 0;
}

static int64_t trap_pread(int fd, void *dst, size_t nbytes, uint64_t offset) {
    return trapped() ? -1 : real_sys->pread(fd, dst, nbytes, offset);
}

static int64_t trap_preadv(int fd, const heft__vec *vec, size_t nvec, uint64_t offset) {
    return trapped() ? -1 : real_sys->preadv(fd, vec, nvec, offset);
}

static void trap(uint64_t at, int code, void (*action)(void)) {
    real_sys = heft__source_sys_get();
    trap_sys = *real_sys;
    trap_sys.pread = trap_pread;
    if (trap_sys.preadv) trap_sys.preadv = trap_preadv;
    trap_calls = 0;
    trap_at = at;
    trap_errno = code;
    trap_action = action;
    heft__source_sys_replace(&trap_sys);
}

static void untrap(void) {
    heft__source_sys_replace(NULL);
}

static heft_load_options small_blocks(uint32_t workers) {
    return (heft_load_options){
        .struct_size = sizeof(heft_load_options), .io = HEFT_IO_BUFFERED, .workers = workers, .block_nbytes = 65536};
}

static void nap(long milliseconds) {
    struct timespec t = {0, milliseconds * 1000000};
    nanosleep(&t, NULL);
}

/* ---- files that change ---- */

static char victim[4096];

static void act_shrink(void) {
    assert_int_equal(truncate(victim, 300000), 0);
}
static void act_grow(void) {
    int fd = open(victim, O_WRONLY | O_APPEND);
    assert_int_equal(write(fd, "more", 4), 4);
    close(fd);
}
static void act_rewrite(void) {
    int fd = open(victim, O_WRONLY);
    assert_int_equal(pwrite(fd, "other", 5, 200000), 5);
    close(fd);
}
static void act_replace(void) {
    char other[4200];
    snprintf(other, sizeof other, "%s.new", victim);
    int fd = open(other, O_WRONLY | O_CREAT, 0600);
    assert_int_equal(write(fd, "nothing", 7), 7);
    close(fd);
    assert_int_equal(rename(other, victim), 0);
}

static void changing(const char *name, void (*action)(void), heft_status want, heft_fault fault) {
    snprintf(victim, sizeof victim, "%s/model-00001-of-00002.safetensors", load_set(name, 2, 12, 900000));
    nap(20); /* times of files are coarse */
    test_allocator t;
    test_allocator_init(&t, 0);
    heft_load_options o = small_blocks(1);
    o.allocator = &t.alloc;
    heft_archive *archive = load_open(test_path(name));
    heft_load_stats stats = {.struct_size = sizeof stats};
    heft_weights *w;
    trap(4, 0, action);
    heft_status status = heft_load(archive, &o, &w, &stats, &err);
    untrap();
    assert_int_equal(status, want);
    if (status == HEFT_OK)
        heft_weights_unref(w);
    else {
        assert_null(w);
        assert_int_equal(err.fault, fault);
        assert_string_equal(err.file, victim);
        assert_true(stats.requests >= 4 && stats.total_seconds > 0);
        if (fault == HEFT_FAULT_TRUNCATED)
            assert_true(err.tensor[0] && err.offset <= 300000 && err.found < err.expected);
    }
    assert_true(t.live_blocks == 0);
    heft_archive_unref(archive);
}

static void test_changing(void **state) {
    (void)state;
    changing("shrinks", act_shrink, HEFT_IO, HEFT_FAULT_TRUNCATED);
    changing("grows", act_grow, HEFT_MISMATCH, HEFT_FAULT_FILE_CHANGED);
    changing("rewritten", act_rewrite, HEFT_MISMATCH, HEFT_FAULT_FILE_CHANGED);
    changing("replaced", act_replace, HEFT_OK, HEFT_FAULT_NONE); /* the open file is the old one, whole */
}

/* The same while a mapping is brought in: a byte that is gone is an error of the load and never a signal. */
static int populate_trapped(void *at, size_t nbytes) {
    if (++trap_calls == trap_at) trap_action();
    return real_sys->populate(at, nbytes);
}

static int cold_cachestat(int fd, uint64_t offset, uint64_t nbytes, heft__cached_pages *out) {
    (void)fd, (void)offset, (void)nbytes;
    *out = (heft__cached_pages){0};
    return 0;
}

static int local_file(int fd, uint32_t *magic) {
    (void)fd;
    *magic = 0xEF53;
    return 0;
}

static void changing_mapped(const char *name, void (*action)(void), heft_status want, heft_fault fault) {
    static heft__facts_sys facts;
    snprintf(victim, sizeof victim, "%s/model-00001-of-00002.safetensors", load_set(name, 2, 12, 900000));
    nap(20);
    int fds = test_count_fds();
    test_allocator t;
    test_allocator_init(&t, 0);
    heft_archive *archive = load_open(test_path(name));
    heft_load_options o = {.struct_size = sizeof o, .io = HEFT_IO_MAP, .workers = 1, .allocator = &t.alloc};
    heft_weights *w;
    facts = *heft__facts_sys_get();
    facts.cachestat = cold_cachestat; /* what is there need not be brought in */
    facts.fs_type = local_file;
    heft__facts_sys_replace(&facts);
    trap(1, 0, action);
    trap_calls = 0;
    trap_sys.populate = populate_trapped;
    trap_sys.pread = real_sys->pread;
    trap_sys.preadv = real_sys->preadv;
    heft_load_stats stats = {.struct_size = sizeof stats};
    heft_status status = heft_load(archive, &o, &w, &stats, &err);
    untrap();
    heft__facts_sys_replace(NULL);
    assert_true(trap_calls >= 1);
    assert_int_equal(status, want);
    if (status == HEFT_OK) {
        heft_weights_unref(w);
    } else {
        assert_null(w);
        assert_int_equal(err.fault, fault);
        assert_string_equal(err.file, victim);
        if (fault == HEFT_FAULT_TRUNCATED) assert_true(err.tensor[0] && err.offset <= 300000 && err.found < err.expected);
    }
    assert_true(t.live_blocks == 0);
    heft_archive_unref(archive);
    assert_int_equal(test_count_fds(), fds);
}

static void test_changing_mapped(void **state) {
    (void)state;
    if (heft_features() & HEFT_FEATURE_BIG_ENDIAN) return; /* it borrows nothing */
    if (test_skip_emulated("populating mappings")) return;
    changing_mapped("map_shrinks", act_shrink, HEFT_IO, HEFT_FAULT_TRUNCATED);
    changing_mapped("map_grows", act_grow, HEFT_MISMATCH, HEFT_FAULT_FILE_CHANGED);
    changing_mapped("map_rewritten", act_rewrite, HEFT_MISMATCH, HEFT_FAULT_FILE_CHANGED);
    changing_mapped("map_replaced", act_replace, HEFT_OK, HEFT_FAULT_NONE);
}

/* What is borrowed and what is read later is compared with the file that was opened, too. */
static void test_changed_before(void **state) {
    (void)state;
    bool big = heft_features() & HEFT_FEATURE_BIG_ENDIAN; /* it borrows nothing */
    for (int mapped = 0; mapped < 2 - big; mapped++) {
        snprintf(victim, sizeof victim, "%s/model-00001-of-00002.safetensors", load_set("before", 2, 12, 900000));
        nap(20);
        heft_archive *archive = load_open(test_path("before"));
        heft_load_options o = {.struct_size = sizeof o, .io = mapped ? HEFT_IO_MAP : HEFT_IO_AUTO, .workers = 1};
        heft_load_plan *plan;
        heft_weights *w = NULL;
        OK(heft_load_plan_new(archive, &o, &plan, &err));
        act_grow();
        assert_int_equal(heft_load_run(plan, &w, NULL, &err), HEFT_MISMATCH);
        assert_int_equal(err.fault, HEFT_FAULT_FILE_CHANGED);
        assert_string_equal(err.file, victim);
        assert_null(w);
        heft_load_plan_free(plan);
        heft_archive_unref(archive);
    }
    snprintf(victim, sizeof victim, "%s/model-00001-of-00002.safetensors", load_set("later", 2, 12, 900000));
    nap(20);
    heft_archive *archive = load_open(test_path("later"));
    const char *all = "s0.*";
    heft_filter filter = {.struct_size = sizeof filter, .defer = &all, .ndefer = 1};
    heft_load_options o = {.struct_size = sizeof o, .filter = &filter};
    heft_weights *w;
    heft_buffer buffer;
    OK(heft_load(archive, &o, &w, NULL, &err));
    OK(heft_weights_read_deferred(w, "s0.layers.0.weight", SIZE_MAX, &buffer, &err));
    heft_buffer_release(&buffer);
    act_rewrite();
    assert_int_equal(heft_weights_read_deferred(w, "s0.layers.0.weight", SIZE_MAX, &buffer, &err), HEFT_MISMATCH);
    assert_int_equal(err.fault, HEFT_FAULT_FILE_CHANGED);
    assert_null(buffer.data);
    heft_weights_unref(w);
    heft_archive_unref(archive);
}

/* A mapping that the system refuses is an error where it is demanded, and nothing is left of it. */
static uint64_t map_calls, map_fails;

static void *map_refused(size_t nbytes, int fd, uint64_t offset) {
    if (++map_calls != map_fails) return real_sys->map(nbytes, fd, offset);
    errno = ENOMEM;
    return NULL;
}

static void test_no_mapping(void **state) {
    (void)state;
    if (heft_features() & HEFT_FEATURE_BIG_ENDIAN) return; /* it borrows nothing */
    heft_archive *archive = load_open(load_set("nomap", 2, 12, 900000));
    heft_load_options o = {.struct_size = sizeof o, .io = HEFT_IO_MAP, .workers = 1};
    for (map_fails = 1; map_fails <= 2; map_fails++) {
        heft_load_plan *plan;
        heft_weights *w = NULL;
        OK(heft_load_plan_new(archive, &o, &plan, &err));
        real_sys = heft__source_sys_get();
        trap_sys = *real_sys;
        trap_sys.map = map_refused;
        map_calls = 0;
        heft__source_sys_replace(&trap_sys);
        heft_status status = heft_load_run(plan, &w, NULL, &err);
        untrap();
        assert_true(status == HEFT_OUT_OF_MEMORY || status == HEFT_LIMIT || status == HEFT_IO);
        assert_int_equal(err.sys_errno, ENOMEM);
        assert_non_null(strstr(err.file, map_fails == 1 ? "00001" : "00002"));
        assert_null(w);
        OK(heft_load_run(plan, &w, NULL, &err)); /* the next time it works */
        assert_weights(archive, w);
        heft_weights_unref(w);
        heft_load_plan_free(plan);
    }
    heft_archive_unref(archive);
}

/* ---- reads that fail ---- */

static void test_eio(void **state) {
    (void)state;
    heft_archive *archive = load_open(load_set("eio", 2, 20, 900000));
    int fds = test_count_fds();
    heft_load_options far = small_blocks(2);
    heft_weights *none;
    trap(7, ESTALE, NULL); /* a network file that is gone: no other way is tried */
    assert_int_equal(heft_load(archive, &far, &none, NULL, &err), HEFT_IO);
    untrap();
    assert_true(err.sys_errno == ESTALE && err.tensor[0] && err.file[0] && err.offset != HEFT_NONE);
    assert_non_null(strstr(err.message, "stale"));
    for (uint32_t workers = 1; workers <= 8; workers += 7)
        for (uint64_t k = 1;; k++) {
            test_allocator t;
            test_allocator_init(&t, 0);
            heft_load_options o = small_blocks(workers);
            o.allocator = &t.alloc;
            heft_weights *w;
            trap(k, EIO, NULL);
            heft_status status = heft_load(archive, &o, &w, NULL, &err);
            untrap();
            if (status == HEFT_OK) {
                assert_true(k > 20);
                heft_weights_unref(w);
                break;
            }
            assert_int_equal(status, HEFT_IO);
            assert_true(w == NULL && err.sys_errno == EIO && err.tensor[0] && err.file[0] && err.offset != HEFT_NONE);
            assert_true(t.live_blocks == 0);
            assert_int_equal(test_count_fds(), fds);
        }
    heft_archive_unref(archive);
}

/* The same under an iterator: what came before the failure is good, after it there is only an error. */
static void test_eio_iterator(void **state) {
    (void)state;
    heft_archive *archive = load_open(load_set("eio_iter", 2, 20, 900000));
    for (uint64_t ring = 0; ring <= 2000000; ring += 2000000)
        for (uint64_t k = 1; k < 20; k += 3) {
            heft_load_options o = small_blocks(2);
            heft_load_plan *plan;
            heft_load_iter *iter;
            heft_loaded tensor;
            OK(heft_load_plan_new(archive, &o, &plan, &err));
            trap(k, EIO, NULL);
            heft_status status = heft_load_iter_new(plan, HEFT_LOAD_ORDER_FILE, ring, &iter, &err);
            assert_int_equal(status, HEFT_OK);
            while ((status = heft_load_iter_next(iter, &tensor, &err)) == HEFT_OK && tensor.name) {
                heft_load_iter_release(iter, &tensor);
            }
            assert_int_equal(status, HEFT_IO);
            assert_true(err.sys_errno == EIO && err.tensor[0]);
            assert_int_equal(heft_load_iter_next(iter, &tensor, &err), HEFT_IO);
            heft_load_iter_free(iter, NULL);
            untrap();
            heft_load_plan_free(plan);
        }
    heft_archive_unref(archive);
}

/* ---- cancelling ---- */

static _Atomic bool cancel_now;

static void act_cancel(void) {
    nap(60); /* progress is told every 50 ms at the most */
    cancel_now = true;
}

static int cancel_progress(void *ctx, uint64_t done, uint64_t total) {
    uint64_t *last = ctx;
    assert_true(done >= *last && done <= total);
    *last = done;
    return cancel_now;
}

/* At whatever block progress says stop, the load ends there, within one block of each worker, and leaves nothing. */
static void test_cancel(void **state) {
    (void)state;
    heft_archive *archive = load_open(load_set("cancel", 2, 12, 900000));
    int fds = test_count_fds(), threads = test_count_threads();
    uint64_t blocks = 0;
    for (uint64_t k = 0; k <= blocks; k++) {
        test_allocator t;
        uint64_t last = 0;
        test_allocator_init(&t, 0);
        heft_load_options o = small_blocks(1 + (uint32_t)(k % 3));
        o.allocator = &t.alloc;
        o.progress = cancel_progress;
        o.progress_ctx = &last;
        heft_load_stats stats = {.struct_size = sizeof stats};
        heft_weights *w;
        cancel_now = false;
        trap(k, 0, act_cancel);
        heft_status status = heft_load(archive, &o, &w, &stats, &err);
        untrap();
        if (k == 0) { /* nobody cancels: so many blocks there are */
            assert_int_equal(status, HEFT_OK);
            heft_weights_unref(w);
            blocks = stats.requests;
            assert_true(blocks > 10);
            continue;
        }
        assert_int_equal(status, HEFT_CANCELLED);
        assert_null(w);
        assert_true(stats.kept_nbytes == 0);
        if (k % 3 == 0) assert_true(stats.requests <= k + 1); /* one worker: that block, and no other */
        assert_true(t.live_blocks == 0);
        assert_int_equal(test_count_fds(), fds);
        test_assert_threads(threads);
    }
    heft_archive_unref(archive);
}

/* ---- direct reads that are refused ---- */

static int open_indirect(int at, const char *path, int flags) {
#if defined(O_DIRECT)
    if (flags & O_DIRECT) {
        errno = EINVAL;
        return -1;
    }
#endif
    return real_sys->open(at, path, flags);
}

/* Whether the open or the k-th read is refused: the bytes are the same, read once, and the file says what happened. */
static void test_step_down(void **state) {
    (void)state;
    heft_archive *archive = load_open(load_set("down", 2, 20, 3000000));
    heft_load_options o = {.struct_size = sizeof o, .io = HEFT_IO_DIRECT, .workers = 1};
    heft_load_plan *plan;
    heft_status status = heft_load_plan_new(archive, &o, &plan, &err);
    for (uint64_t k = 0; k <= 3 && status == HEFT_OK; k++) {
        heft_load_stats stats = {.struct_size = sizeof stats};
        heft_load_shard shard;
        heft_weights *w;
        trap(k, EINVAL, NULL);
        if (k == 0) trap_sys.open = open_indirect;
        status = heft_load_run(plan, &w, &stats, &err);
        untrap();
        OK(status);
        assert_weights(archive, w);
        heft_weights_unref(w);
        int fallbacks = 0;
        for (uint32_t i = 0; i < 2; i++) {
            OK(heft_load_plan_shard(plan, i, &shard, &err));
            assert_int_equal(shard.path_planned, HEFT_PATH_DIRECT);
            assert_int_equal(shard.path_used, shard.fallback_errno ? HEFT_PATH_BUFFERED : HEFT_PATH_DIRECT);
            assert_true(shard.fallback_errno == 0 || shard.fallback_errno == EINVAL);
            fallbacks += shard.fallback_errno != 0;
        }
        assert_true(fallbacks == (k == 0 ? 2 : fallbacks) && stats.fallbacks == (uint64_t)fallbacks);
        if (k == 1) assert_int_equal(fallbacks, 1);
        uint64_t sum =
            stats.kept_nbytes + stats.over_read_nbytes + stats.spanned_nbytes; /* beyond the ends of both files */
        if (stats.requested_nbytes < sum || stats.requested_nbytes > sum + 2 * 65536)
            fail_msg("%llu %llu", (unsigned long long)stats.requested_nbytes, (unsigned long long)sum);
    }
    if (status == HEFT_OK) heft_load_plan_free(plan);
    heft_archive_unref(archive);
}

/* ---- memory ---- */

static const heft_archive *scarce_archive;

static heft_status job_load(const heft_allocator *alloc, heft_error *e) {
    const char *defer = "*.layers.1*";
    heft_tp_rule rule = {"*.layers.5.*", HEFT_TP_COLUMNS};
    heft_filter filter = {
        .struct_size = sizeof filter, .defer = &defer, .ndefer = 1, .tp_world = 2, .tp_rules = &rule, .ntp_rules = 1};
    heft_load_options o = small_blocks(2);
    o.allocator = alloc;
    o.filter = &filter;
    o.arena_scope = HEFT_ARENA_SHARD;
    heft_weights *w;
    heft_status status = heft_load(scarce_archive, &o, &w, NULL, e);
    if (status != HEFT_OK) return status;
    heft_loaded t;
    heft_buffer buffer, copy;
    uint64_t shape = 4;
    status = heft_weights_at(w, HEFT_LOAD_ORDER_FILE, 3, &t, e);
    if (status == HEFT_OK) status = heft_weights_read_deferred(w, "s0.layers.10.weight", SIZE_MAX, &buffer, e);
    if (status == HEFT_OK) heft_buffer_release(&buffer);
    if (status == HEFT_OK) status = heft_weights_detach(w, "s0.layers.0.weight", SIZE_MAX, &copy, e);
    if (status == HEFT_OK) {
        status = heft_weights_insert(w, "new", 3, HEFT_U8, 1, &shape, &copy, NULL, e);
        if (status != HEFT_OK) heft_buffer_release(&copy);
    }
    heft_weights_unref(w);
    return status;
}

static int take(void *ctx, const heft_loaded *tensor) {
    (void)ctx, (void)tensor;
    return 0;
}

static heft_status job_each(const heft_allocator *alloc, heft_error *e) {
    heft_load_options o = small_blocks(2);
    o.allocator = alloc;
    heft_load_plan *plan;
    heft_status status = heft_load_plan_new(scarce_archive, &o, &plan, e);
    if (status != HEFT_OK) return status;
    status = heft_load_each(plan, take, NULL, NULL, e);
    if (status == HEFT_OK) status = heft_warm(plan, NULL, e);
    heft_warmer *warmer = NULL;
    if (status == HEFT_OK) status = heft_warmer_start(plan, &warmer, e);
    if (status == HEFT_OK) status = heft_warmer_wait(warmer, NULL, e);
    heft_warmer_free(warmer);
    heft_load_plan_free(plan);
    return status;
}

static heft_status job_iterate(const heft_allocator *alloc, heft_error *e) {
    heft_load_options o = small_blocks(2);
    o.allocator = alloc;
    heft_load_plan *plan;
    heft_load_iter *iter;
    heft_loaded t;
    heft_status status = heft_load_plan_new(scarce_archive, &o, &plan, e);
    if (status != HEFT_OK) return status;
    status = heft_load_iter_new(plan, HEFT_LOAD_ORDER_COMPLETION, 400000, &iter, e);
    if (status == HEFT_OK) {
        while ((status = heft_load_iter_next(iter, &t, e)) == HEFT_OK && t.name) heft_load_iter_release(iter, &t);
        heft_load_iter_free(iter, NULL);
    }
    heft_load_plan_free(plan);
    return status;
}

static void scarce(const char *what, heft_status (*job)(const heft_allocator *alloc, heft_error *e)) {
    for (int after = 0; after < 2; after++)
        for (uint64_t k = 1;; k++) {
            test_allocator t;
            int fds = test_count_fds();
            test_allocator_init(&t, k);
            t.fail_after = after;
            heft_status status = job(&t.alloc, &err);
            assert_true(t.live_blocks == 0);
            assert_int_equal(test_count_fds(), fds);
            if (status == HEFT_OK) {
                assert_true(t.calls < k && k > 5);
                break;
            }
            if (status != HEFT_OUT_OF_MEMORY)
                fail_msg("%s, allocation %llu: %s", what, (unsigned long long)k, err.message);
        }
}

static void test_scarce(void **state) {
    (void)state;
    heft_archive *archive = load_open(load_set("scarce", 2, 16, 300000));
    scarce_archive = archive;
    scarce("load", job_load);
    scarce("each", job_each);
    scarce("iterator", job_iterate);
    heft_archive_unref(archive);
}

/* On a full machine: in a child that may hardly allocate, a load ends in an error and not in a crash. */
static void test_full_machine(void **state) {
    (void)state;
    if (test_skip_emulated("the emulator does not hold its program to a limit of address space")) return;
#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define SANITIZED
#endif
#endif
#if defined(SANITIZED) || defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    skip(); /* they need address space of their own */
#else
    heft_archive *archive = load_open(load_set("full", 1, 8, 64 << 20));
    pid_t child = fork();
    if (child == 0) {
        struct rlimit limit;
        char line[256];
        unsigned long pages = 0;
        FILE *f = fopen("/proc/self/statm", "r");
        if (f && fgets(line, sizeof line, f)) pages = strtoul(line, NULL, 10);
        if (f) fclose(f);
        limit.rlim_cur = limit.rlim_max = pages * (rlim_t)sysconf(_SC_PAGESIZE) + (32 << 20);
        heft_load_options o = small_blocks(2);
        heft_weights *w;
        if (setrlimit(RLIMIT_AS, &limit) != 0) _exit(77);
        heft_status first = heft_load(archive, &o, &w, NULL, &err); /* known beforehand */
        o.no_preflight = true;
        heft_status second = heft_load(archive, &o, &w, NULL, &err); /* met on the way */
        _exit(first == HEFT_LIMIT && (second == HEFT_OUT_OF_MEMORY || second == HEFT_LIMIT) ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) != 77) assert_int_equal(WEXITSTATUS(status), 0);
    heft_archive_unref(archive);
#endif
}

/* ---- many at once, one after another, forks ---- */

static void test_thousand(void **state) {
    (void)state;
    const char *path = load_set("thousand", 2, 8, 100000);
    test_allocator t;
    test_allocator_init(&t, 0);
    int fds = test_count_fds(), threads = test_count_threads();
    for (uint64_t i = test_count(1000); i-- > 0;) {
        heft_archive *archive;
        heft_open_options open_options = {
            .struct_size = sizeof open_options, .lenient = HEFT_LENIENT_ALL, .allocator = &t.alloc};
        OK(heft_archive_open(path, &open_options, &archive, &err));
        heft_load_options o = small_blocks(3);
        if (i % 2) o.io = HEFT_IO_AUTO;
        heft_weights *w;
        OK(heft_load(archive, &o, &w, NULL, &err));
        heft_archive_unref(archive);
        heft_weights_unref(w);
        assert_true(t.live_blocks == 0);
    }
    assert_int_equal(test_count_fds(), fds);
    test_assert_threads(threads);
}

static void *load_repeatedly(void *ctx) {
    heft_archive *archive = ctx;
    for (uint64_t i = test_count(5); i-- > 0;) {
        heft_load_options o = {.struct_size = sizeof o, .workers = 2, .block_nbytes = 65536};
        heft_weights *w;
        heft_error e;
        if (heft_load(archive, &o, &w, NULL, &e) != HEFT_OK) return "load";
        for (uint64_t id = 0; id < heft_weights_count(w); id++) {
            heft_loaded t;
            heft_view view;
            if (heft_weights_at(w, HEFT_LOAD_ORDER_NAME, id, &t, &e) != HEFT_OK) return "at";
            uint8_t *want = malloc(t.nbytes + 1);
            heft_status status = heft_view_of(archive, t.id, &view, &e);
            if (status == HEFT_OK) status = heft_read(&view, want, t.nbytes, NULL, NULL, &e);
            int differs = status != HEFT_OK || (t.nbytes && memcmp(want, t.data, t.nbytes) != 0);
            free(want);
            if (differs) return "bytes";
        }
        heft_weights_unref(w);
    }
    return NULL;
}

static void test_sixteen(void **state) {
    (void)state;
    heft_archive *archive = load_open(load_set("sixteen", 2, 12, 700000));
    pthread_t threads[16];
    for (int i = 0; i < 16; i++) assert_int_equal(pthread_create(&threads[i], NULL, load_repeatedly, archive), 0);
    for (int i = 0; i < 16; i++) {
        void *failed;
        pthread_join(threads[i], &failed);
        assert_null(failed);
    }
    heft_archive_unref(archive);
}

static void test_fork(void **state) {
    (void)state;
    heft_archive *archive = load_open(load_set("fork", 2, 12, 20 << 20));
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, load_repeatedly, archive), 0);
    for (uint64_t i = test_count(60); i-- > 0;) {
        pid_t child = fork();
        if (child == 0) _exit(0);
        int status;
        waitpid(child, &status, 0);
        nap(2);
    }
    void *failed;
    pthread_join(thread, &failed);
    assert_null(failed);
    heft_archive_unref(archive);
}

static void test_locale(void **state) {
    (void)state;
    const char *old = setlocale(LC_ALL, NULL);
    if (!setlocale(LC_ALL, "de_DE.UTF-8")) setlocale(LC_ALL, "");
    heft_archive *archive = load_open(load_set("locale", 1, 12, 1000));
    heft_weights *w;
    heft_load_options o = {.struct_size = sizeof o, .peak_memory_multiplier = 1.5, .free_nbytes = 10};
    assert_int_equal(heft_load(archive, &o, &w, NULL, &err), HEFT_LIMIT);
    assert_non_null(strstr(err.message, "1.50"));
    o.free_nbytes = 0;
    OK(heft_load(archive, &o, &w, NULL, &err));
    assert_weights(archive, w);
    heft_weights_unref(w);
    heft_archive_unref(archive);
    setlocale(LC_ALL, old);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_changing),
        cmocka_unit_test(test_changing_mapped),
        cmocka_unit_test(test_changed_before),
        cmocka_unit_test(test_no_mapping),
        cmocka_unit_test(test_eio),
        cmocka_unit_test(test_cancel),
        cmocka_unit_test(test_eio_iterator),
        cmocka_unit_test(test_scarce),
        cmocka_unit_test(test_step_down),
        cmocka_unit_test(test_full_machine),
        cmocka_unit_test(test_thousand),
        cmocka_unit_test(test_sixteen),
        cmocka_unit_test(test_fork),
        cmocka_unit_test(test_locale),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
