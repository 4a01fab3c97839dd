/* engine: a pool of threads that draw blocks from the lanes and read them one call after another. */
#include "engine/engine_core.h"

#include "base/error.h"
#include "base/os.h"
#include "base/parallel.h"

#include <pthread.h>

/* What a worker draws from. It goes on without a lock until its range is empty or something new was submitted. */
typedef struct pool_hand {
    heft__range *range;
    uint32_t epoch;
} pool_hand;

typedef struct pool_engine {
    heft__engine base;
    pthread_mutex_t lock;
    pthread_cond_t more;  /* blocks were submitted, or it is over */
    pthread_cond_t ended; /* a block has ended that the caller may wait for */
    atomic_uint epoch;    /* of submitting; set under the lock */
    heft__crew *crew;
    bool started;         /* the crew, by the first blocks */
    pool_hand hand;       /* of the caller, who works inside of reap */
    atomic_bool ramping;  /* more workers may be let in */
    uint32_t active, slow, steps; /* workers that draw; blocks of theirs that were slow; doublings. Guarded. */
} pool_engine;

static heft_status pool_probe(heft_error *err) {
    (void)err;
    return HEFT_OK;
}

/* Whoever waits looks again. */
static void pool_wake(pool_engine *pool) {
    pthread_mutex_lock(&pool->lock);
    pthread_cond_broadcast(&pool->more);
    pthread_cond_broadcast(&pool->ended);
    pthread_mutex_unlock(&pool->lock);
}

static bool pool_take(pool_engine *pool, pool_hand *hand, uint64_t *number) {
    while (!heft__engine_stopped(&pool->base)) {
        if (hand->range && hand->epoch == atomic_load_explicit(&pool->epoch, memory_order_acquire) &&
            heft__range_take(&pool->base.lanes, hand->range, number))
            return true;
        pthread_mutex_lock(&pool->lock);
        hand->epoch = atomic_load_explicit(&pool->epoch, memory_order_relaxed);
        hand->range = heft__lanes_hold(&pool->base.lanes, hand->range);
        pthread_mutex_unlock(&pool->lock);
        if (!hand->range) return false;
    }
    return false;
}

/* A block of the first ones has ended. */
static void pool_ramp(pool_engine *pool, double seconds) {
    uint32_t workers = pool->base.nworkers;
    pthread_mutex_lock(&pool->lock);
    if (seconds < HEFT__RAMP_SECONDS) {
        atomic_store(&pool->ramping, false);
    } else if (++pool->slow >= pool->active && atomic_load(&pool->ramping)) {
        pool->active = pool->active < workers / 2 ? 2 * pool->active : workers;
        pool->slow = 0;
        if (++pool->steps == HEFT__RAMP_STEPS || pool->active == workers) atomic_store(&pool->ramping, false);
        pthread_cond_broadcast(&pool->more);
    }
    pthread_mutex_unlock(&pool->lock);
}

static void pool_block(pool_engine *pool, uint32_t worker, uint64_t number) {
    heft__work work;
    heft__work_begin(&work, &pool->base, worker, worker, number);
    while (heft__work_next(&work)) heft__work_result(&work, heft__work_call(&work));
    if (atomic_load_explicit(&pool->ramping, memory_order_relaxed)) pool_ramp(pool, heft__os_seconds() - work.began);
    if (!heft__work_end(&work)) pool_wake(pool);
    else if (pool->base.job->collect) {
        pthread_mutex_lock(&pool->lock);
        heft__engine_finish(&pool->base, number);
        pthread_cond_signal(&pool->ended);
        pthread_mutex_unlock(&pool->lock);
    } else if (heft__engine_finish(&pool->base, number))
        pool_wake(pool);
}

static void pool_help(void *ctx, uint32_t worker) {
    pool_engine *pool = ctx;
    pool_hand hand = {NULL, 0};
    uint64_t number;
    pthread_mutex_lock(&pool->lock);
    while (worker >= pool->active && !heft__engine_stopped(&pool->base)) pthread_cond_wait(&pool->more, &pool->lock);
    pthread_mutex_unlock(&pool->lock);
    while (!heft__engine_stopped(&pool->base)) {
        while (pool_take(pool, &hand, &number)) pool_block(pool, worker, number);
        pthread_mutex_lock(&pool->lock);
        while (!heft__engine_stopped(&pool->base) && hand.epoch == atomic_load(&pool->epoch))
            pthread_cond_wait(&pool->more, &pool->lock);
        pthread_mutex_unlock(&pool->lock);
    }
}

static heft_status pool_open(const heft__engine_job *job, heft__engine **out, heft_error *err) {
    *out = NULL;
    uint32_t workers = job->workers ? job->workers : 1;
    if (workers > HEFT__PARALLEL_MOST) workers = HEFT__PARALLEL_MOST;
    if (workers > job->nblocks) workers = job->nblocks ? (uint32_t)job->nblocks : 1;
    pool_engine *pool = heft__alloc_zero(&job->alloc, sizeof *pool);
    if (!pool) return heft__fail_memory(err, sizeof *pool);
    pool->crew = heft__crew_new(&job->alloc, workers);
    heft_status status = pool->crew ? heft__engine_init(&pool->base, job, workers, workers, err)
                                    : heft__fail_memory(err, HEFT_NONE);
    if (status != HEFT_OK) {
        if (pool->crew) heft__crew_join(pool->crew);
        heft__free(&job->alloc, pool, sizeof *pool);
        return status;
    }
    pthread_mutex_init(&pool->lock, NULL); /* with default attributes these cannot fail on the systems that heft runs on */
    pthread_cond_init(&pool->more, NULL);
    pthread_cond_init(&pool->ended, NULL);
    pool->active = job->ramp_from && job->ramp_from < workers ? job->ramp_from : workers;
    atomic_init(&pool->ramping, pool->active < workers);
    *out = &pool->base;
    return HEFT_OK;
}

static heft_status pool_submit(heft__engine *engine, heft__lane lane, uint64_t first, uint64_t n, heft_error *err) {
    pool_engine *pool = (pool_engine *)engine;
    pthread_mutex_lock(&pool->lock);
    heft_status status = heft__engine_add(engine, lane, first, n, err);
    atomic_fetch_add_explicit(&pool->epoch, 1, memory_order_release);
    pthread_cond_broadcast(&pool->more);
    pthread_mutex_unlock(&pool->lock);
    if (status == HEFT_OK && n && !pool->started && !heft__engine_stopped(engine)) {
        pool->started = true;
        heft__crew_start(pool->crew, pool_help, pool);
    }
    return status;
}

static uint64_t pool_reap(heft__engine *engine, uint64_t *numbers, uint64_t room) {
    pool_engine *pool = (pool_engine *)engine;
    uint64_t number;
    if (!engine->job->collect) room = 0;
    for (;;) {
        if (room) {
            pthread_mutex_lock(&pool->lock);
            uint64_t n = heft__engine_stopped(engine) ? 0 : heft__engine_reap(engine, numbers, room);
            pthread_mutex_unlock(&pool->lock);
            if (n) return n;
        }
        if (pool_take(pool, &pool->hand, &number)) pool_block(pool, 0, number);
        else {
            pthread_mutex_lock(&pool->lock);
            while (!heft__engine_stopped(engine) && atomic_load(&engine->unfinished) > 0 &&
                   !(room && engine->ended > engine->reaped))
                pthread_cond_wait(&pool->ended, &pool->lock);
            bool over = heft__engine_stopped(engine) || !(room && engine->ended > engine->reaped);
            pthread_mutex_unlock(&pool->lock);
            if (over) return 0;
        }
    }
}

static void pool_cancel(heft__engine *engine) {
    heft__engine_stop(engine, HEFT__STOP_CANCEL);
    pool_wake((pool_engine *)engine);
}

static heft_status pool_close(heft__engine *engine, heft__engine_result *result, heft_error *err) {
    pool_engine *pool = (pool_engine *)engine;
    heft_allocator alloc = engine->job->alloc;
    heft__engine_stop(engine, HEFT__STOP_CLOSE);
    pool_wake(pool);
    uint32_t workers = heft__crew_join(pool->crew);
    if (workers > pool->active) workers = pool->active; /* the others were never let in */
    pthread_mutex_destroy(&pool->lock);
    pthread_cond_destroy(&pool->more);
    pthread_cond_destroy(&pool->ended);
    heft_status status = heft__engine_end(engine, workers, result, err);
    heft__free(&alloc, pool, sizeof *pool);
    return status;
}

const heft__engine_kind heft__engine_pool = {"pool",   pool_probe,  pool_open, pool_submit,
                                             pool_reap, pool_cancel, pool_close};
