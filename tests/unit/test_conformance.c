/* label: threads */
/* One table: engine x layout x file system x fault. The same bytes, or one clear error; nothing is left behind; nothing is
 * read twice. */
#include "helper_engine.h"

#include "source/source_direct.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

enum { ALIGN = 4096, BLOCK = 8 * ALIGN, LAST = 13, FILE_NBYTES = LAST * BLOCK + 1234, BEGIN = 1000, END = FILE_NBYTES - 777 };
static uint8_t content[FILE_NBYTES];
static uint8_t *got; /* ALIGN-aligned; byte `offset` of the file goes to got + offset where a layout does not say otherwise */
static heft_error err;

/* ---- layouts ---- */

typedef struct layout {
    const char *name;
    uint64_t begin, end;  /* of what is wanted */
    heft__block_kind kind;
    uint32_t step;
} layout;

typedef struct job_ctx {
    const layout *l;
    uint64_t fail_step, fail_done; /* block + 1 of which the step or the hook fails */
    atomic_uint_fast64_t done;
    uint64_t reports, stop_at;
} job_ctx;

/* Blocks in multiples of the alignment, that meet there. */
static void block_of(const void *ctx, uint64_t number, heft__block *out) {
    const layout *l = ((const job_ctx *)ctx)->l;
    uint64_t first = l->kind == HEFT__BLOCK_DIRECT ? l->begin / ALIGN * ALIGN : l->begin;
    uint64_t last = l->kind == HEFT__BLOCK_DIRECT ? (l->end + ALIGN - 1) / ALIGN * ALIGN : l->end;
    uint64_t at = first + number * BLOCK, end = at + BLOCK < last ? at + BLOCK : last;
    *out = (heft__block){.step = l->step, .kind = l->kind, .offset = at, .nbytes = end - at, .dst = got + at,
                         .needed = (end < l->end ? end : l->end) - at};
}

static uint64_t blocks_of(const layout *l) {
    uint64_t first = l->kind == HEFT__BLOCK_DIRECT ? l->begin / ALIGN * ALIGN : l->begin;
    return (l->end - first + BLOCK - 1) / BLOCK;
}

static bool fails(const job_ctx *ctx, const heft__task *task, heft_status *status, heft_error *e) {
    if (task->number + 1 != ctx->fail_step) return false;
    memset(e, 0, sizeof *e);
    snprintf(e->message, sizeof e->message, "step");
    *status = e->status = HEFT_DEVICE;
    return true;
}

/* A request of many vectors, the second half of the block before the first. */
static bool step_vectors(const void *ctx, heft__task *task, heft_status *status, heft_error *e) {
    if (task->state[0]++ || fails(ctx, task, status, e)) return false;
    task->nvec = 0;
    for (uint64_t at = 0; at < task->block.nbytes; at += 700) {
        uint64_t n = task->block.nbytes - at < 700 ? task->block.nbytes - at : 700;
        task->vec[task->nvec++] = (heft__vec){task->block.dst + at, (size_t)n};
    }
    task->offset = task->block.offset;
    task->nbytes = task->block.nbytes;
    return true;
}

/* Through scratch. */
static bool step_gather(const void *ctx, heft__task *task, heft_status *status, heft_error *e) {
    assert_int_equal((uintptr_t)task->scratch % ALIGN, 0);
    if (task->state[0]++) {
        if (!fails(ctx, task, status, e)) memcpy(task->block.dst, task->scratch, task->block.needed);
        return false;
    }
    task->vec[0] = (heft__vec){task->scratch, (size_t)task->block.nbytes};
    task->nvec = 1;
    task->offset = task->block.offset;
    task->nbytes = task->block.nbytes;
    task->needed = task->block.needed;
    return true;
}

/* A request for each piece, gaps to the dump. */
static bool step_nest(const void *ctx, heft__task *task, heft_status *status, heft_error *e) {
    uint64_t at = task->state[0];
    if (at >= task->block.nbytes || fails(ctx, task, status, e)) return false;
    uint64_t n = task->block.nbytes - at < 5000 ? task->block.nbytes - at : 5000, gap = n / 10;
    task->vec[0] = (heft__vec){task->block.dst + at, (size_t)(n - gap)};
    task->vec[1] = (heft__vec){gap > 100 ? task->dump : task->block.dst + at + n - gap, (size_t)gap};
    task->nvec = 2;
    if (gap > 100) memcpy(task->block.dst + at + n - gap, content + task->block.offset + at + n - gap, gap);
    task->offset = task->block.offset + at;
    task->nbytes = n;
    task->state[0] += n;
    return true;
}

static const heft__step steps[] = {step_vectors, step_gather, step_nest};

static const layout layouts[] = {
    {"one run", BEGIN, END, HEFT__BLOCK_READ, HEFT__STEP_NONE},
    {"vectors", BEGIN, END, HEFT__BLOCK_READ, 0},
    {"gather", BEGIN, END, HEFT__BLOCK_READ, 1},
    {"nest", BEGIN, END, HEFT__BLOCK_READ, 2},
    {"direct", 2 * ALIGN, LAST * BLOCK, HEFT__BLOCK_DIRECT, HEFT__STEP_NONE},
    {"direct, ragged edges", BEGIN, LAST * BLOCK - 100, HEFT__BLOCK_DIRECT, HEFT__STEP_NONE},
    {"direct, past the end", BEGIN, FILE_NBYTES, HEFT__BLOCK_DIRECT, HEFT__STEP_NONE},
    {"direct gather, past the end", 0, END, HEFT__BLOCK_DIRECT, 1},
};
enum { LAYOUTS = sizeof layouts / sizeof *layouts };

/* ---- a run ---- */

typedef struct setting {
    const heft__engine_kind *kind;
    uint32_t workers, depth;
    const layout *l;
    const char *path;
    uint64_t nblocks;
    job_ctx ctx;
    int (*progress)(void *ctx, uint64_t done, uint64_t total);
    heft__engine_result result;
    int fallback;
} setting;

static heft_status count_done(const void *ctx, uint64_t number, heft_error *e) {
    job_ctx *c = (job_ctx *)(uintptr_t)ctx;
    if (number + 1 == c->fail_done) {
        memset(e, 0, sizeof *e);
        snprintf(e->message, sizeof e->message, "done");
        return e->status = HEFT_CANCELLED;
    }
    c->done++;
    return HEFT_OK;
}

static heft_status run(setting *s) {
    test_allocator t;
    test_allocator_init(&t, 0);
    int fds = test_count_fds();
    heft__channel channel = {.direct_fd = -1, .direct_align = ALIGN};
    s->ctx.l = s->l;
    s->nblocks = blocks_of(s->l);
    heft_status status = heft_source_open_file(s->path, &channel.source, &err);
    assert_int_equal(status, HEFT_OK);
    if (s->l->kind == HEFT__BLOCK_DIRECT) {
        status = heft__source_direct_open(channel.source, &channel.direct_fd, &err);
        if (status != HEFT_OK) assert_int_equal(status, HEFT_UNSUPPORTED);
    }
    heft__engine_job job = {.nblocks = s->nblocks, .total_nbytes = 1, .block = block_of, .done = count_done,
                            .steps = s->l->step == HEFT__STEP_NONE ? NULL : steps, .ctx = &s->ctx, .channels = &channel,
                            .nchannels = 1, .scratch_nbytes = BLOCK, .dump_nbytes = 5000, .workers = s->workers,
                            .depth = s->depth, .alloc = t.alloc, .progress = s->progress, .progress_ctx = &s->ctx};
    memset(got, 0xEE, FILE_NBYTES + 2 * ALIGN);
    for (uint64_t i = 0; i < s->nblocks; i++) {
        heft__block block;
        block_of(&s->ctx, i, &block);
        job.total_nbytes += block.nbytes; /* one more than there is: progress never ends by itself */
    }
    status = heft__engine_run(s->kind, &job, &s->result, &err);
    s->fallback = atomic_load(&channel.fallback);
    heft__source_direct_close(channel.direct_fd);
    heft_source_unref(channel.source);
    assert_int_equal(t.live_blocks, 0);
    assert_int_equal(test_count_fds(), fds);
    return status;
}

static void check_bytes(const setting *s) {
    for (uint64_t i = s->l->begin; i < s->l->end; i++)
        if (got[i] != content[i]) fail_msg("%s, %s, %s: byte %llu", s->kind->name, s->l->name, s->path, (unsigned long long)i);
    assert_int_equal(s->ctx.done, s->nblocks);
}

/* What a file holds of the blocks of a layout: each byte is delivered once. */
static uint64_t delivered(const layout *l) {
    uint64_t begin = l->kind == HEFT__BLOCK_DIRECT ? l->begin / ALIGN * ALIGN : l->begin;
    uint64_t end = l->kind == HEFT__BLOCK_DIRECT ? (l->end + ALIGN - 1) / ALIGN * ALIGN : l->end;
    return (end < FILE_NBYTES ? end : FILE_NBYTES) - begin;
}

/* ---- the table ---- */

static const char *paths[2];
static size_t npaths;

/* Calls fn for every engine, layout and file system. */
static void each(void (*fn)(setting *s)) {
    const heft__engine_kind *kinds[2];
    size_t nkinds = test_engines(kinds);
    static const uint32_t counts[][3] = {{1, 8, 0}, {4, 3, 0}}; /* workers of the pool; depth of the other */
    for (size_t k = 0; k < nkinds; k++)
        for (size_t c = 0; c < 2; c++)
            for (size_t l = 0; l < LAYOUTS; l++)
                for (size_t p = 0; p < npaths; p++) {
                    setting s = {.kind = kinds[k], .workers = counts[c][0], .depth = counts[c][1], .l = &layouts[l],
                                 .path = paths[p]};
                    fn(&s);
                }
    test_faults_install(NULL);
}

static void no_fault(setting *s) {
    test_faults f = {0};
    test_faults_install(&f);
    if (run(s) != HEFT_OK) fail_msg("%s", err.message);
    check_bytes(s);
    assert_int_equal(s->result.fallbacks, 0);
    assert_int_equal(f.nbytes, delivered(s->l));
    assert_int_equal(f.calls, s->result.counters.requests);
    assert_int_equal(f.direct_calls, s->l->kind == HEFT__BLOCK_DIRECT ? f.calls : 0);
    assert_int_equal(s->result.counters.short_reads, 0);
    assert_int_equal(s->result.counters.retries, 0);
    assert_int_equal(s->result.workers, s->kind == &heft__engine_pool ? s->workers : 1);
}

/* Direct reads that stop at a multiple of the alignment go on directly, others through the buffered descriptor. */
static void short_reads(setting *s) {
    static const size_t most[] = {ALIGN, 2 * ALIGN, 5001, 700};
    for (size_t i = 0; i < 4; i++) {
        test_faults f = {.most = most[i]};
        test_faults_install(&f);
        s->ctx.done = 0;
        if (run(s) != HEFT_OK) fail_msg("%s", err.message);
        check_bytes(s);
        assert_in_range(f.nbytes, delivered(s->l) - ALIGN + 1, delivered(s->l)); /* what no one needs may be left out */
        assert_int_equal(s->result.fallbacks, 0); /* no stepping down: the next block is read directly again */
        if (most[i] < 5000) assert_true(s->result.counters.short_reads > 0); /* of the shortest request */
        if (s->l->kind == HEFT__BLOCK_DIRECT)
            assert_int_equal(f.direct_calls, most[i] % ALIGN ? s->nblocks : f.calls);
    }
}

static void interrupted(setting *s) {
    test_faults f = {.eintr = 3};
    test_faults_install(&f);
    if (run(s) != HEFT_OK) fail_msg("%s", err.message);
    check_bytes(s);
    assert_int_equal(f.nbytes, delivered(s->l));
    assert_int_equal(s->result.counters.retries, f.calls / 3);
}

/* From the k-th direct read on the file system refuses: the same ranges come through the buffered descriptor. */
static void direct_refused(setting *s) {
    static const int codes[] = {EINVAL, EOPNOTSUPP, ENOSYS};
    if (s->l->kind != HEFT__BLOCK_DIRECT) return;
    for (uint64_t k = 1; k <= 5; k += 2) {
        test_faults f = {.fail_direct = k, .direct_errno = codes[k / 2]};
        test_faults_install(&f);
        s->ctx.done = 0;
        if (run(s) != HEFT_OK) fail_msg("%s", err.message);
        check_bytes(s);
        assert_int_equal(s->fallback, codes[k / 2]);
        assert_int_equal(s->result.fallbacks, 1);
        assert_int_equal(f.nbytes, delivered(s->l)); /* what was read directly is kept */
        assert_in_range(f.direct_calls, k, k + s->workers + s->depth); /* those in flight; no later one is tried */
    }
}

/* The descriptor for direct reads cannot be had: the caller goes on without. */
static void direct_open_refused(setting *s) {
    static const int codes[] = {EINVAL, EOPNOTSUPP, EPERM, EACCES};
    if (s->l->kind != HEFT__BLOCK_DIRECT) return;
    for (size_t i = 0; i < 4; i++) {
        test_faults f = {.open_errno = codes[i], .path_errno = codes[i]};
        test_faults_install(&f);
        s->ctx.done = 0;
        if (run(s) != HEFT_OK) fail_msg("%s", err.message);
        check_bytes(s);
        assert_int_equal(f.direct_calls, 0);
        assert_int_equal(f.nbytes, delivered(s->l));
    }
}

static void check_failure(const setting *s, int code) {
    assert_int_equal(err.status, HEFT_IO);
    assert_int_equal(err.sys_errno, code);
    assert_non_null(strstr(err.message, s->path));
    assert_true(s->ctx.done < s->nblocks);
}

/* One byte of the disk is bad: no second try, and the block that has it is told. */
static void io_error(setting *s) {
    test_faults f = {.fail_byte = 9 * BLOCK + 77};
    heft__block block;
    test_faults_install(&f);
    assert_int_equal(run(s), HEFT_IO);
    check_failure(s, EIO);
    block_of(&s->ctx, s->result.failed_block, &block);
    assert_in_range(f.fail_byte, block.offset, block.offset + block.nbytes - 1);
    assert_in_range(s->result.failed_offset, block.offset, f.fail_byte);
    assert_int_equal(s->result.fallbacks, 0);
}

/* One of eight workers gets an error. */
static void one_of_eight(setting *s) {
    test_faults f = {.fail_call = 6, .fail_errno = EIO};
    s->workers = 8;
    test_faults_install(&f);
    assert_int_equal(run(s), HEFT_IO);
    check_failure(s, EIO);
}

/* EAGAIN cannot be, since no read asks not to wait. A request of io_uring that cannot wait is made by the thread. */
static void not_now(setting *s) {
    test_faults f = {.fail_call = 3, .fail_errno = EAGAIN};
    test_faults_install(&f);
    if (s->kind == &heft__engine_uring) {
        if (run(s) != HEFT_OK) fail_msg("%s", err.message);
        check_bytes(s);
        return;
    }
    assert_int_equal(run(s), HEFT_IO);
    check_failure(s, EAGAIN);
}

/* The file ends early: never zeros. */
static void truncated(setting *s) {
    uint64_t ends[] = {11 * BLOCK + 123, s->l->end - 1, s->l->begin / ALIGN * ALIGN};
    for (size_t i = 0; i < 3; i++) {
        test_faults f = {.end = ends[i] ? ends[i] : 1};
        heft__block block;
        test_faults_install(&f);
        s->ctx.done = 0;
        assert_int_equal(run(s), HEFT_IO);
        assert_int_equal(err.fault, HEFT_FAULT_TRUNCATED);
        check_failure(s, 0);
        block_of(&s->ctx, s->result.failed_block, &block);
        assert_true(s->result.failed_offset >= f.end || f.end <= s->l->begin);
        assert_in_range(s->result.failed_offset, block.offset, block.offset + block.nbytes);
        assert_int_equal(err.offset + err.found, s->result.failed_offset);
    }
}

static int stop_at(void *ctx, uint64_t done, uint64_t total) {
    job_ctx *c = ctx;
    assert_true(done <= total);
    return c->reports++ == c->stop_at;
}

static void cancelled(setting *s) {
    uint64_t n = blocks_of(s->l);
    for (uint64_t k = 0; k <= n; k += s->path == paths[0] ? 1 : 2) {
        test_faults f = {0};
        test_faults_install(&f);
        s->ctx.done = s->ctx.reports = 0;
        s->ctx.stop_at = k;
        s->progress = stop_at;
        heft_status status = run(s);
        if (status == HEFT_OK) return; /* reports can be fewer than blocks, when workers end together */
        assert_int_equal(status, HEFT_CANCELLED);
        assert_int_equal(s->ctx.reports, k + 1);
        if (k < n) assert_true(s->ctx.done <= k + 2 * (s->workers + s->depth));
    }
}

static void hooks_fail(setting *s) {
    for (uint64_t k = 1; k <= blocks_of(s->l); k += 4) {
        test_faults f = {0};
        test_faults_install(&f);
        s->ctx = (job_ctx){.fail_done = k};
        assert_int_equal(run(s), HEFT_CANCELLED);
        assert_string_equal(err.message, "done");
        assert_int_equal(s->result.failed_block, k - 1);
        assert_int_equal(s->result.failed_offset, HEFT_NONE);
        if (s->l->step == HEFT__STEP_NONE) continue;
        s->ctx = (job_ctx){.fail_step = k};
        assert_int_equal(run(s), HEFT_DEVICE);
        assert_string_equal(err.message, "step");
        assert_int_equal(s->result.failed_block, k - 1);
    }
}

#define ROW(name) \
    static void table_##name(void **state) { \
        (void)state; \
        each(name); \
    }
ROW(no_fault)
ROW(short_reads)
ROW(interrupted)
ROW(direct_refused)
ROW(direct_open_refused)
ROW(io_error)
ROW(one_of_eight)
ROW(not_now)
ROW(truncated)
ROW(cancelled)
ROW(hooks_fail)

static void put(const char *path) {
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(content, 1, sizeof content, file), sizeof content);
    assert_int_equal(fclose(file), 0);
    int fd = open(path, O_RDONLY);
    assert_true(fd >= 0);
    assert_int_equal(fsync(fd), 0); /* direct reads flush dirty pages first */
    close(fd);
    paths[npaths++] = path;
}

static int setup(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof content; i++) content[i] = (uint8_t)(i * 7 + i / 251 + i / 65521);
    got = aligned_alloc(ALIGN, (FILE_NBYTES / ALIGN + 3) * ALIGN);
    put(strdup(test_path("on_disk")));
    if (test_memory_path("conformance")) put(test_memory_path("conformance"));
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(table_no_fault),       cmocka_unit_test(table_short_reads),
        cmocka_unit_test(table_interrupted),    cmocka_unit_test(table_direct_refused),
        cmocka_unit_test(table_direct_open_refused), cmocka_unit_test(table_io_error),
        cmocka_unit_test(table_one_of_eight),   cmocka_unit_test(table_not_now),
        cmocka_unit_test(table_truncated),      cmocka_unit_test(table_cancelled),
        cmocka_unit_test(table_hooks_fail),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
