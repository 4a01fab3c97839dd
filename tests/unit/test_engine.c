/* label: threads */
/* The engine alone: blocks and steps without a plan. Order of failures, cancelling at every block, short reads. */
#include "helper_files.h"

#include "engine/engine.h"

#include <errno.h>
#include <unistd.h>

enum { BLOCKS = 40, BLOCK = 100 };
static uint8_t bytes[BLOCKS * BLOCK], got[BLOCKS * BLOCK];
static heft_error err;

typedef struct work {
    heft__channel channel;
    atomic_int running, most_running;
    uint64_t calls, stop_at, last;
    bool wrong;
} work;

static void plain_block(const void *ctx, uint64_t number, heft__block *out) {
    (void)ctx;
    *out = (heft__block){.offset = number * BLOCK, .nbytes = BLOCK, .dst = got + number * BLOCK, .step = HEFT__STEP_NONE};
}

/* Each block as one request of two vectors, the second half first. */
static void step_block(const void *ctx, uint64_t number, heft__block *out) {
    plain_block(ctx, number, out);
    out->step = number % 2;
    out->part = number;
}

static bool swap_halves(const void *ctx, heft__task *task, heft_status *status, heft_error *error) {
    (void)ctx, (void)status, (void)error;
    if (task->state[0]++) return false;
    uint8_t *dst = got + task->block.part * BLOCK;
    task->vec[0] = (heft__vec){dst + BLOCK / 2, BLOCK / 2};
    task->vec[1] = (heft__vec){dst, BLOCK / 2};
    task->nvec = 2;
    task->offset = task->block.offset;
    task->nbytes = BLOCK;
    return true;
}

/* Ten requests through scratch. */
static bool by_tens(const void *ctx, heft__task *task, heft_status *status, heft_error *error) {
    (void)ctx, (void)status, (void)error;
    uint64_t n = task->state[0]++;
    if (n) memcpy(got + task->block.part * BLOCK + (n - 1) * 10, task->scratch, 10);
    if (n == 10) return false;
    task->vec[0] = (heft__vec){task->scratch, 10};
    task->nvec = 1;
    task->offset = task->block.offset + n * 10;
    task->nbytes = 10;
    return true;
}

static const heft__step steps[] = {swap_halves, by_tens};

static heft__engine_job job_of(work *w) {
    return (heft__engine_job){.nblocks = BLOCKS, .total_nbytes = sizeof bytes, .block = plain_block, .ctx = w,
                              .channels = &w->channel, .nchannels = 1, .workers = 4, .alloc = heft__default_allocator};
}

static int setup(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (uint8_t)(i * 7 + i / 256);
    return 0;
}

static void plain_blocks_arrive(void **state) {
    (void)state;
    for (size_t most = 1; most < 120; most += 13) {
        test_bytes origin = {.data = bytes, .nbytes = sizeof bytes, .most = most, .eintr = most % 2};
        work w = {.channel = {.source = test_source(&origin), .direct_fd = -1}};
        heft__engine_job job = job_of(&w);
        heft__engine_result result;
        memset(got, 0, sizeof got);
        assert_int_equal(heft__engine_run(&heft__engine_pool, &job, &result, &err), HEFT_OK);
        assert_memory_equal(got, bytes, sizeof bytes);
        assert_int_equal(result.counters.nbytes, sizeof bytes);
        assert_int_equal(result.counters.requests, origin.calls);
        uint64_t shorts = most < BLOCK ? BLOCKS * ((BLOCK + most - 1) / most - 1) : 0;
        assert_int_equal(result.counters.short_reads, shorts);
        if (most % 2 == 0) assert_int_equal(result.counters.retries, 0);
        else assert_true(result.counters.retries > 0);
        heft_source_unref(w.channel.source);
    }
}

static void steps_do_what_they_want(void **state) {
    (void)state;
    for (size_t most = 1; most < 120; most += 7) { /* vectors are cut anywhere */
        test_bytes origin = {.data = bytes, .nbytes = sizeof bytes, .most = most};
        work w = {.channel = {.source = test_source(&origin), .direct_fd = -1}};
        heft__engine_job job = job_of(&w);
        job.block = step_block;
        job.steps = steps;
        job.scratch_nbytes = 10;
        heft__engine_result result;
        memset(got, 0, sizeof got);
        assert_int_equal(heft__engine_run(&heft__engine_pool, &job, &result, &err), HEFT_OK);
        for (uint64_t i = 0; i < sizeof bytes; i++) {
            uint64_t block = i / BLOCK, at = i % BLOCK;
            assert_int_equal(got[i], bytes[block * BLOCK + (block % 2 ? at : (at + BLOCK / 2) % BLOCK)]);
        }
        heft_source_unref(w.channel.source);
    }
}

/* All from one block on are lost: whoever fails first, the lowest number is told. */
static void the_lowest_failure_wins(void **state) {
    (void)state;
    for (int round = 0; round < 30; round++)
        for (uint64_t bad = 0; bad < 12; bad += 3) {
            test_bytes origin = {.data = bytes, .nbytes = sizeof bytes, .most = 9, .end = bad * BLOCK + 55};
            work w = {.channel = {.source = test_source(&origin), .direct_fd = -1}};
            heft__engine_job job = job_of(&w);
            heft__engine_result result;
            assert_int_equal(heft__engine_run(&heft__engine_pool, &job, &result, &err), HEFT_IO);
            assert_int_equal(result.failed_block, bad);
            assert_int_equal(result.failed_offset, bad * BLOCK + 55);
            assert_int_equal(err.offset, bad * BLOCK);
            assert_int_equal(err.expected, BLOCK);
            assert_int_equal(err.found, 55);
            heft_source_unref(w.channel.source);
        }
}

static int watch(void *ctx, uint64_t done, uint64_t total) {
    work *w = ctx;
    if (atomic_fetch_add(&w->running, 1) != 0) w->wrong = true; /* never two at once */
    if (total != sizeof bytes || done > total || done < w->last || (w->calls == 0) != (done == 0)) w->wrong = true;
    w->last = done;
    bool stop = w->calls++ == w->stop_at;
    atomic_fetch_sub(&w->running, 1);
    return stop;
}

/* Runs a job whose callback asks to stop at its k-th call. Returns whether it did, and not more than a block a worker was read
 * beyond what had been reported. */
static bool cancel_at(uint64_t k, uint32_t workers, bool *ended) {
    test_bytes origin = {.data = bytes, .nbytes = sizeof bytes};
    work w = {.channel = {.source = test_source(&origin), .direct_fd = -1}, .stop_at = k};
    heft__engine_job job = job_of(&w);
    job.workers = workers;
    job.progress = watch;
    job.progress_ctx = &w;
    heft__engine_result result;
    heft_status status = heft__engine_run(&heft__engine_pool, &job, &result, &err);
    heft_source_unref(w.channel.source);
    assert_false(w.wrong);
    *ended = status == HEFT_OK;
    if (*ended) {
        assert_true(w.calls >= 2 && w.calls <= BLOCKS + 1);
        assert_int_equal(w.last, sizeof bytes);
        return false;
    }
    assert_int_equal(status, HEFT_CANCELLED);
    assert_int_equal(w.calls, k + 1);
    return workers == 1 ? result.counters.requests == k : result.counters.nbytes <= w.last + workers * BLOCK;
}

/* One worker stops at once. Of several the others go on until the answer is known, which takes as long as the system keeps the
 * one that asked from its processor: not every time. */
static void cancelling_works_at_every_block(void **state) {
    (void)state;
    for (uint32_t workers = 1; workers <= 4; workers += 3) {
        bool ended = false;
        for (uint64_t k = 0; !ended; k++) {
            bool soon = cancel_at(k, workers, &ended);
            for (int more = 0; !soon && !ended && workers > 1 && more < 1000; more++) soon = cancel_at(k, workers, &ended);
            assert_true(soon || ended);
        }
    }
}

/* Between the first and the last report so much time passes, however many blocks end. */
static void reports_are_rare(void **state) {
    (void)state;
    for (uint32_t workers = 1; workers <= 4; workers += 3) {
        test_bytes origin = {.data = bytes, .nbytes = sizeof bytes};
        work w = {.channel = {.source = test_source(&origin), .direct_fd = -1}, .stop_at = 9};
        heft__engine_job job = job_of(&w);
        job.workers = workers;
        job.progress = watch;
        job.progress_ctx = &w;
        job.progress_seconds = 1000;
        heft__engine_result result;
        assert_int_equal(heft__engine_run(&heft__engine_pool, &job, &result, &err), HEFT_OK);
        assert_int_equal(w.calls, 2);
        assert_false(w.wrong);
        assert_int_equal(w.last, sizeof bytes);
        heft_source_unref(w.channel.source);
    }
}

static void nothing_is_fine(void **state) {
    (void)state;
    work w = {.stop_at = 9};
    heft__engine_job job = job_of(&w);
    job.nblocks = 0;
    heft__engine_result result;
    assert_int_equal(heft__engine_run(&heft__engine_pool, &job, &result, &err), HEFT_OK);
    assert_int_equal(result.counters.requests, 0);
}

/* A source with a long way to it, which counts how many are on it. */
typedef struct far_away {
    atomic_int running, most;
    useconds_t wait;
} far_away;

static int64_t far_away_read(void *ctx, uint64_t offset, void *dst, size_t nbytes) {
    far_away *far = ctx;
    int now = atomic_fetch_add(&far->running, 1) + 1, most = atomic_load(&far->most);
    while (now > most && !atomic_compare_exchange_weak(&far->most, &most, now)) continue;
    usleep(far->wait);
    memcpy(dst, bytes + offset, nbytes);
    atomic_fetch_sub(&far->running, 1);
    return (int64_t)nbytes;
}

/* Slow first reads let more workers in, twice at most; fast ones do not. */
static void workers_are_let_in_where_the_way_is_long(void **state) {
    (void)state;
    static const struct {
        useconds_t wait;
        uint32_t from, workers;
        int most; /* at a time */
    } rows[] = {{250000, 2, 16, 8}, {250000, 2, 6, 6}, {1000, 2, 16, 2}, {1000, 0, 4, 4}, {1000, 9, 4, 4}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        far_away far = {.wait = rows[i].wait};
        heft_source_callbacks callbacks = {.struct_size = sizeof callbacks, .ctx = &far, .size = sizeof bytes,
                                           .read_at = far_away_read};
        work w = {.channel = {.direct_fd = -1}};
        assert_int_equal(heft_source_open_callbacks(&callbacks, NULL, &w.channel.source, &err), HEFT_OK);
        heft__engine_job job = job_of(&w);
        job.workers = rows[i].workers;
        job.ramp_from = rows[i].from;
        heft__engine_result result;
        memset(got, 0, sizeof got);
        assert_int_equal(heft__engine_run(&heft__engine_pool, &job, &result, &err), HEFT_OK);
        assert_memory_equal(got, bytes, sizeof bytes);
        assert_true(atomic_load(&far.most) <= rows[i].most);
        assert_int_equal(result.workers, rows[i].most); /* it is told how many there were in the end */
        if (rows[i].wait > 200000) assert_int_equal(atomic_load(&far.most), rows[i].most); /* they all wait at once */
        heft_source_unref(w.channel.source);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_blocks_arrive),     cmocka_unit_test(steps_do_what_they_want),
        cmocka_unit_test(the_lowest_failure_wins), cmocka_unit_test(cancelling_works_at_every_block),
        cmocka_unit_test(reports_are_rare),        cmocka_unit_test(nothing_is_fine),
        cmocka_unit_test(workers_are_let_in_where_the_way_is_long),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
