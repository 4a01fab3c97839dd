/* label: threads */
/* Engines that are given blocks bit by bit: lanes, reaping, hooks, cancelling, early ends, memory that is not there. */
#include "helper_archive.h"
#include "helper_engine.h"

#include <errno.h>
#include <pthread.h>

enum { BLOCKS = 200, BLOCK = 64 };
static uint8_t bytes[BLOCKS * BLOCK], got[BLOCKS * BLOCK];
static heft_error err;

typedef struct work {
    test_bytes origin;
    heft__channel channel;
    _Atomic uint8_t done[BLOCKS]; /* how often the hook was called */
    uint64_t wait_at;             /* block that waits until `go`, HEFT_NONE: none */
    atomic_bool go;
    heft__engine_job job;
    heft__engine *engine;
    const heft__engine_kind *kind;
} work;

static void block_of(const void *ctx, uint64_t number, heft__block *out) {
    work *w = (work *)(uintptr_t)ctx;
    while (number == w->wait_at && !atomic_load(&w->go)) {}
    *out = (heft__block){.offset = number * BLOCK, .nbytes = BLOCK, .dst = got + number * BLOCK, .step = HEFT__STEP_NONE};
}

static heft_status note_done(const void *ctx, uint64_t number, heft_error *e) {
    (void)e;
    work *w = (work *)(uintptr_t)ctx;
    w->done[number]++;
    return HEFT_OK;
}

static void start(work *w, const heft__engine_kind *kind, uint32_t workers, bool collect) {
    memset(w, 0, sizeof *w);
    memset(got, 0, sizeof got);
    w->wait_at = HEFT_NONE;
    w->origin = (test_bytes){.data = bytes, .nbytes = sizeof bytes};
    w->channel = (heft__channel){.source = test_source(&w->origin), .direct_fd = -1};
    w->kind = kind;
    w->job = (heft__engine_job){.nblocks = BLOCKS, .total_nbytes = sizeof bytes, .block = block_of, .done = note_done,
                                .ctx = w, .channels = &w->channel, .nchannels = 1, .workers = workers, .depth = workers,
                                .alloc = heft__default_allocator, .collect = collect};
    assert_int_equal(kind->open(&w->job, &w->engine, &err), HEFT_OK);
}

static void submit(work *w, heft__lane lane, uint64_t first, uint64_t n) {
    assert_int_equal(w->kind->submit(w->engine, lane, first, n, &err), HEFT_OK);
}

static heft_status finish(work *w, heft__engine_result *result) {
    heft_status status = w->kind->close(w->engine, result, &err);
    heft_source_unref(w->channel.source);
    return status;
}

/* Calls fn for each engine with one and with four workers. */
static void each(void (*fn)(const heft__engine_kind *kind, uint32_t workers)) {
    const heft__engine_kind *kinds[2];
    size_t n = test_engines(kinds);
    for (size_t i = 0; i < n; i++)
        for (uint32_t workers = 1; workers <= 4; workers += 3) fn(kinds[i], workers);
}

static void urgent(const heft__engine_kind *kind, uint32_t workers) {
    (void)workers;
    work w;
    uint64_t numbers[4];
    heft__engine_result result;
    start(&w, kind, 1, true);
    submit(&w, HEFT__LANE_AHEAD, 0, BLOCKS);
    submit(&w, HEFT__LANE_SOON, 50, 2);
    submit(&w, HEFT__LANE_WANTED, 120, 1);
    static const uint64_t order[] = {120, 50, 51, 0, 1, 2};
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(w.kind->reap(w.engine, numbers, 1), 1);
        assert_int_equal(numbers[0], order[i]);
    }
    submit(&w, HEFT__LANE_WANTED, 49, 3); /* 50 and 51 have been read */
    assert_int_equal(w.kind->reap(w.engine, numbers, 1), 1);
    assert_int_equal(numbers[0], 49);
    submit(&w, HEFT__LANE_AHEAD, 48, 4); /* less urgent: nothing changes */
    for (size_t i = 3; i < 6; i++) {
        assert_int_equal(w.kind->reap(w.engine, numbers, 1), 1);
        assert_int_equal(numbers[0], order[i]);
    }
    uint64_t more = 0, n;
    while ((n = w.kind->reap(w.engine, numbers, 4)) != 0) more += n;
    assert_int_equal(more, BLOCKS - 7);
    assert_int_equal(finish(&w, &result), HEFT_OK);
    assert_int_equal(w.origin.read_nbytes, sizeof bytes);
    assert_memory_equal(got, bytes, sizeof bytes);
}

static void urgent_blocks_come_first(void **state) {
    (void)state;
    each(urgent);
}

static void at_random(const heft__engine_kind *kind, uint32_t workers) {
    uint64_t seed = 12 + workers;
    for (int round = 0; round < 60; round++) {
        work w;
        bool submitted[BLOCKS] = {false}, reaped[BLOCKS] = {false};
        uint64_t nsubmitted = 0, nreaped = 0, numbers[7], n;
        start(&w, kind, workers, true);
        for (int step = 0; step < 60; step++) {
            if (test_random(&seed) % 3) {
                uint64_t first = test_random(&seed) % BLOCKS, most = BLOCKS - first;
                uint64_t count = test_random(&seed) % (most < 20 ? most + 1 : 20);
                submit(&w, (heft__lane)(test_random(&seed) % HEFT__LANES), first, count);
                for (uint64_t i = first; i < first + count; i++) {
                    nsubmitted += !submitted[i];
                    submitted[i] = true;
                }
            } else {
                n = kind->reap(w.engine, numbers, 1 + test_random(&seed) % 7);
                assert_true(n > 0 || nreaped == nsubmitted);
                for (uint64_t i = 0; i < n; i++) {
                    assert_true(submitted[numbers[i]]);
                    assert_false(reaped[numbers[i]]);
                    assert_int_equal(w.done[numbers[i]], 1); /* before it is reaped */
                    assert_memory_equal(got + numbers[i] * BLOCK, bytes + numbers[i] * BLOCK, BLOCK);
                    reaped[numbers[i]] = true;
                    nreaped++;
                }
            }
        }
        if (round % 2) {
            assert_int_equal(kind->reap(w.engine, NULL, 0), 0); /* waits for all */
            for (uint64_t i = 0; i < BLOCKS; i++) assert_int_equal(w.done[i], submitted[i]);
        }
        while ((n = kind->reap(w.engine, numbers, 7)) != 0) nreaped += n;
        assert_int_equal(nreaped, nsubmitted);
        heft__engine_result result;
        assert_int_equal(finish(&w, &result), HEFT_OK);
        assert_int_equal(w.origin.read_nbytes, nsubmitted * BLOCK);
        assert_int_equal(w.origin.calls, nsubmitted);
    }
}

static void submitted_at_random_and_read_once(void **state) {
    (void)state;
    each(at_random);
}

static void waits(const heft__engine_kind *kind, uint32_t workers) {
    work w;
    heft__engine_result result;
    start(&w, kind, workers, false);
    assert_int_equal(kind->reap(w.engine, NULL, 0), 0);
    for (uint64_t at = 0; at < BLOCKS; at += 40) {
        submit(&w, HEFT__LANE_SOON, at, 40);
        uint64_t number;
        assert_int_equal(kind->reap(w.engine, &number, 1), 0); /* nothing is collected: it only waits */
        for (uint64_t i = 0; i < BLOCKS; i++) assert_int_equal(w.done[i], i < at + 40);
    }
    heft_error e;
    assert_int_equal(kind->submit(w.engine, HEFT__LANE_SOON, BLOCKS, 1, &e), HEFT_INVALID_ARGUMENT);
    assert_int_equal(kind->submit(w.engine, HEFT__LANE_SOON, 1, UINT64_MAX, &e), HEFT_INVALID_ARGUMENT);
    assert_int_equal(kind->submit(w.engine, HEFT__LANE_SOON, BLOCKS, 0, &e), HEFT_OK);
    assert_int_equal(finish(&w, &result), HEFT_OK);
    assert_int_equal(result.counters.nbytes, sizeof bytes);
    assert_int_equal(atomic_load(&w.channel.nbytes), sizeof bytes);
    assert_memory_equal(got, bytes, sizeof bytes);
}

static void reaping_waits(void **state) {
    (void)state;
    each(waits);
}

/* Closing early is no failure, whatever was not begun, reaped or waited for. */
static void dropped(const heft__engine_kind *kind, uint32_t workers) {
    for (int round = 0; round < 40; round++) {
        work w;
        heft__engine_result result;
        uint64_t numbers[3];
        start(&w, kind, workers, round % 2);
        if (round % 4) submit(&w, HEFT__LANE_SOON, 0, BLOCKS);
        if (round % 3 == 0) kind->reap(w.engine, numbers, 3);
        assert_int_equal(finish(&w, &result), HEFT_OK);
        for (uint64_t i = 0; i < BLOCKS; i++) assert_true(w.done[i] <= 1);
    }
}

static void closing_early_is_fine(void **state) {
    (void)state;
    each(dropped);
}

static void *cancel_soon(void *ctx) {
    work *w = ctx;
    w->kind->cancel(w->engine);
    atomic_store(&w->go, true);
    return NULL;
}

static void cancelled(const heft__engine_kind *kind, uint32_t workers) {
    for (uint64_t at = 0; at < BLOCKS; at += 19) {
        work w;
        heft__engine_result result;
        pthread_t thread;
        start(&w, kind, workers, at % 2);
        w.wait_at = at; /* a block that is begun cannot go on before it is cancelled */
        submit(&w, HEFT__LANE_SOON, 0, BLOCKS);
        assert_int_equal(pthread_create(&thread, NULL, cancel_soon, &w), 0);
        uint64_t numbers[3], ndone = 0;
        while (kind->reap(w.engine, numbers, 3)) {}
        assert_int_equal(pthread_join(thread, NULL), 0);
        heft_status status = finish(&w, &result);
        for (uint64_t i = 0; i < BLOCKS; i++) ndone += w.done[i];
        if (ndone == BLOCKS) assert_int_equal(status, HEFT_OK); /* others had done all the rest before */
        else assert_int_equal(status, HEFT_CANCELLED);
        if (status == HEFT_OK) continue;
        assert_string_equal(err.message, "the work was cancelled");
        assert_int_equal(result.failed_block, HEFT_NONE);
        if (workers == 1 || kind == &heft__engine_uring) assert_true(ndone <= at + 1); /* nobody else went on */
    }
    work w; /* too late: nothing is dropped */
    heft__engine_result result;
    start(&w, kind, workers, false);
    submit(&w, HEFT__LANE_SOON, 0, BLOCKS);
    kind->reap(w.engine, NULL, 0);
    kind->cancel(w.engine);
    assert_int_equal(finish(&w, &result), HEFT_OK);
}

static void another_thread_cancels(void **state) {
    (void)state;
    each(cancelled);
}

/* A failure ends reaping; a block that was begun before it is ended, and may be the lowest that fails. */
static void failed(const heft__engine_kind *kind, uint32_t workers) {
    for (uint64_t bad = 0; bad < BLOCKS; bad += 31) {
        work w;
        heft__engine_result result;
        uint64_t numbers[5], n, all = 0;
        start(&w, kind, workers, true);
        w.origin.end = bad * BLOCK + 7;
        submit(&w, HEFT__LANE_WANTED, 0, BLOCKS);
        while ((n = kind->reap(w.engine, numbers, 5)) != 0) all += n;
        assert_true(all <= bad);
        assert_int_equal(finish(&w, &result), HEFT_IO);
        assert_int_equal(err.fault, HEFT_FAULT_TRUNCATED);
        assert_int_equal(result.failed_block, bad);
        assert_int_equal(result.failed_offset, w.origin.end);
        for (uint64_t i = 0; i < BLOCKS; i++) assert_int_equal(w.done[i], i < bad);
    }
}

static void the_lowest_failure_is_told(void **state) {
    (void)state;
    each(failed);
}

static bool one_read(const void *ctx, heft__task *task, heft_status *status, heft_error *e) {
    (void)ctx, (void)status, (void)e;
    if (task->state[0]++) return false;
    task->vec[0] = (heft__vec){task->block.dst, BLOCK};
    task->nvec = 1;
    task->offset = task->block.offset;
    task->nbytes = BLOCK;
    return true;
}

static void scratch(const heft__engine_kind *kind, uint32_t workers) {
    static const heft__step steps[] = {one_read};
    for (uint64_t k = 1;; k++) {
        test_allocator t, of_scratch;
        test_allocator_init(&t, k);
        test_allocator_init(&of_scratch, k % 2 ? 0 : k / 2);
        work w;
        start(&w, kind, workers, true);
        heft__engine_result result;
        assert_int_equal(w.kind->close(w.engine, &result, &err), HEFT_OK);
        w.job.alloc = t.alloc;
        w.job.scratch_alloc = &of_scratch.alloc;
        w.job.steps = steps;
        w.job.scratch_nbytes = 100;
        heft_status status = heft__engine_run(kind, &w.job, &result, &err);
        assert_int_equal(t.live_blocks, 0);
        assert_int_equal(of_scratch.live_blocks, 0);
        heft_source_unref(w.channel.source);
        if (status != HEFT_OK) {
            assert_int_equal(status, HEFT_OUT_OF_MEMORY);
            continue;
        }
        assert_memory_equal(got, bytes, sizeof bytes);
        assert_true(t.calls < k);
        if (k % 2) break;
    }
}

static void every_allocation_fails_once(void **state) {
    (void)state;
    each(scratch);
}

/* Sizes that do not fit are refused before anything is made. */
static void sizes_are_checked(void **state) {
    (void)state;
    const heft__engine_kind *kinds[2];
    size_t n = test_engines(kinds);
    static const heft__step steps[] = {one_read};
    for (size_t i = 0; i < n; i++) {
        heft__engine_job job = {.nblocks = 10, .block = block_of, .steps = steps, .alloc = heft__default_allocator,
                                .workers = 4};
        heft__engine *engine;
        job.scratch_nbytes = UINT64_MAX - 10;
        assert_int_equal(kinds[i]->open(&job, &engine, &err), HEFT_OUT_OF_MEMORY);
        assert_null(engine);
        job.dump_nbytes = UINT64_MAX;
        assert_int_equal(kinds[i]->open(&job, &engine, &err), HEFT_OUT_OF_MEMORY);
        job.scratch_nbytes = job.dump_nbytes = UINT64_MAX / 8;
        assert_int_equal(kinds[i]->open(&job, &engine, &err), HEFT_OUT_OF_MEMORY);
        job.scratch_nbytes = job.dump_nbytes = 0;
        job.nblocks = UINT64_MAX;
        job.collect = true;
        assert_int_equal(kinds[i]->open(&job, &engine, &err), HEFT_OUT_OF_MEMORY);
    }
}

static void a_ring_can_be_refused(void **state) {
    (void)state;
    static const int codes[] = {EPERM, ENOSYS, ENOMEM, EMFILE};
    for (size_t i = 0; i < 4; i++) {
        test_faults f = {.ring_errno = codes[i]};
        test_faults_install(&f);
        heft__engine_job job = {.nblocks = 1, .block = block_of, .alloc = heft__default_allocator};
        heft__engine *engine;
        assert_int_equal(heft__engine_uring.probe(&err), HEFT_UNSUPPORTED);
        assert_true(strlen(err.message) > 10);
        assert_int_equal(heft__engine_uring.open(&job, &engine, &err), HEFT_UNSUPPORTED);
        assert_null(engine);
        assert_int_equal(heft__engine_uring.probe(NULL), HEFT_UNSUPPORTED);
    }
    test_faults_install(NULL);
}

static int setup(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (uint8_t)(i * 7 + i / 256);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(urgent_blocks_come_first),    cmocka_unit_test(submitted_at_random_and_read_once),
        cmocka_unit_test(reaping_waits),               cmocka_unit_test(closing_early_is_fine),
        cmocka_unit_test(another_thread_cancels),      cmocka_unit_test(the_lowest_failure_is_told),
        cmocka_unit_test(every_allocation_fails_once), cmocka_unit_test(sizes_are_checked),
        cmocka_unit_test(a_ring_can_be_refused),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
