/* engine: a pool of threads that draw blocks from one cursor and read them with pread and preadv. */
#include "engine/engine.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/os.h"
#include "base/parallel.h"

#include <errno.h>
#include <string.h>

typedef struct pool_worker {
    heft__read_counters counters;
    uint64_t failed_block, failed_offset; /* of its first failure */
    heft_status status;
    heft_error err;
    uint8_t *memory; /* vectors, scratch, dump */
} pool_worker;

typedef struct pool_state {
    const heft__engine_job *job;
    pool_worker *workers;
    uint64_t memory_nbytes; /* of one worker */
    atomic_uint_fast64_t cursor, done;
    atomic_bool stop, cancelled;
    atomic_flag reporting;
    double reported; /* seconds; guarded by `reporting` */
} pool_state;

/* Vectors that are read already are taken off the front. */
static void pool_advance(heft__task *task, size_t *first, uint64_t got) {
    while (got > 0) {
        heft__vec *v = &task->vec[*first];
        if (got < v->nbytes) {
            v->base = (uint8_t *)v->base + got;
            v->nbytes -= (size_t)got;
            return;
        }
        got -= v->nbytes;
        ++*first;
    }
}

/* One request, whole or not at all. */
static heft_status pool_read(pool_worker *worker, heft__task *task) {
    heft_source *source = task->block.source;
    uint64_t got = 0;
    size_t first = 0;
    worker->counters.nbytes += task->nbytes;
    while (got < task->nbytes) {
        const heft__vec *v = &task->vec[first];
        size_t nvec = task->nvec - first;
        int64_t r = nvec == 1 ? heft__source_read_some(source, task->offset + got, v->base, v->nbytes)
                              : heft__source_read_vec(source, task->offset + got, v, nvec);
        worker->counters.requests++;
        if (r == -EINTR) {
            worker->counters.retries++;
            continue;
        }
        worker->failed_offset = task->offset + got;
        if (r < 0) {
            heft__fail_errno(&worker->err, (int)-r, heft_source_label(source), "reading");
            heft__error_at(&worker->err, task->offset + got, task->nbytes, got);
            return worker->err.status;
        }
        if (r == 0) return heft__fail_truncated(&worker->err, source, task->offset, task->nbytes, got);
        if ((uint64_t)r > task->nbytes - got)
            return heft__fail(&worker->err, HEFT_IO, HEFT_FAULT_READ_ERROR,
                              "the source returned more than was asked for");
        got += (uint64_t)r;
        if (got < task->nbytes) {
            worker->counters.short_reads++;
            pool_advance(task, &first, (uint64_t)r);
        }
    }
    return HEFT_OK;
}

static bool pool_cancelled(pool_state *pool) {
    return atomic_load_explicit(&pool->cancelled, memory_order_relaxed);
}

static heft_status pool_block(pool_state *pool, pool_worker *worker, uint64_t number) {
    const heft__engine_job *job = pool->job;
    heft__task task = {.number = number};
    uint64_t vec_nbytes = HEFT__VEC_MAX * sizeof(heft__vec);
    heft__vec single;
    job->block(job->ctx, number, &task.block);
    if (task.block.step == HEFT__STEP_NONE) {
        single = (heft__vec){task.block.dst, (size_t)task.block.nbytes};
        task.vec = &single;
        task.nvec = 1;
        task.offset = task.block.offset;
        task.nbytes = task.block.nbytes;
        return pool_read(worker, &task);
    }
    task.vec = (heft__vec *)(void *)worker->memory;
    task.scratch = worker->memory + vec_nbytes;
    task.dump = task.scratch + job->scratch_nbytes;
    heft_status status = HEFT_OK;
    while (status == HEFT_OK && !pool_cancelled(pool) && job->steps[task.block.step](job->ctx, &task))
        status = pool_read(worker, &task);
    return status;
}

/* Reports now and then, one worker at a time; a worker that finds another one reporting goes on. */
static void pool_report(pool_state *pool) {
    const heft__engine_job *job = pool->job;
    if (!job->progress || atomic_flag_test_and_set_explicit(&pool->reporting, memory_order_acquire)) return;
    double now = heft__os_seconds();
    if (now - pool->reported >= job->progress_seconds && !pool_cancelled(pool)) {
        uint64_t done = atomic_load(&pool->done);
        if (done < job->total_nbytes && job->progress(job->progress_ctx, done, job->total_nbytes))
            atomic_store(&pool->cancelled, true);
        pool->reported = now;
    }
    atomic_flag_clear_explicit(&pool->reporting, memory_order_release);
}

static void pool_work(void *ctx, uint32_t number) {
    pool_state *pool = ctx;
    pool_worker *worker = &pool->workers[number];
    while (!atomic_load_explicit(&pool->stop, memory_order_relaxed) && !pool_cancelled(pool)) {
        uint64_t block = atomic_fetch_add(&pool->cursor, 1), before = worker->counters.nbytes;
        if (block >= pool->job->nblocks) return;
        worker->failed_offset = HEFT_NONE;
        worker->status = pool_block(pool, worker, block);
        if (worker->status != HEFT_OK) {
            worker->failed_block = block;
            atomic_store(&pool->stop, true);
            return;
        }
        atomic_fetch_add(&pool->done, worker->counters.nbytes - before);
        pool_report(pool);
    }
}

/* Blocks are handed out in order and a block that is begun is ended, so whichever worker fails first, the block with
 * the lowest number of all that can fail is among those that have failed. */
static heft_status pool_collect(pool_state *pool, uint32_t workers, heft__engine_result *result, heft_error *err) {
    const pool_worker *first = NULL;
    for (uint32_t i = 0; i < workers; i++) {
        const pool_worker *w = &pool->workers[i];
        result->counters.requests += w->counters.requests;
        result->counters.short_reads += w->counters.short_reads;
        result->counters.retries += w->counters.retries;
        result->counters.nbytes += w->counters.nbytes;
        if (w->status != HEFT_OK && (!first || w->failed_block < first->failed_block)) first = w;
    }
    if (first) {
        result->failed_block = first->failed_block;
        result->failed_offset = first->failed_offset;
        if (err) *err = first->err;
        return first->status;
    }
    if (atomic_load(&pool->cancelled))
        return heft__fail(err, HEFT_CANCELLED, HEFT_FAULT_CALL, "the progress callback asked to stop");
    return HEFT_OK;
}

static heft_status pool_run(const heft__engine_job *job, heft__engine_result *result, heft_error *err) {
    uint32_t workers = job->workers ? job->workers : 1;
    if (workers > job->nblocks) workers = job->nblocks ? (uint32_t)job->nblocks : 1;
    *result = (heft__engine_result){.workers = workers, .failed_block = HEFT_NONE, .failed_offset = HEFT_NONE};
    pool_state pool = {.job = job, .reporting = ATOMIC_FLAG_INIT};
    atomic_init(&pool.cursor, 0);
    atomic_init(&pool.done, 0);
    atomic_init(&pool.stop, false);
    atomic_init(&pool.cancelled, false);
    uint64_t memory = 0, head, all;
    if (job->steps) {
        if (!heft__add_u64(job->scratch_nbytes, job->dump_nbytes + HEFT__VEC_MAX * sizeof(heft__vec), &memory) ||
            !heft__align_u64(memory, 64, &memory))
            return heft__fail_memory(err, job->scratch_nbytes);
    }
    heft__align_u64(workers * sizeof(pool_worker), 64, &head);
    if (!heft__mul_u64(memory, workers, &all) || !heft__add_u64(all, head, &all)) return heft__fail_memory(err, memory);
    uint8_t *block = heft__alloc(&job->alloc, all);
    if (!block) return heft__fail_memory(err, all);
    pool.workers = (pool_worker *)(void *)block;
    memset(pool.workers, 0, workers * sizeof(pool_worker));
    for (uint32_t i = 0; i < workers; i++) pool.workers[i].memory = block + head + i * memory;

    if (job->progress && job->progress(job->progress_ctx, 0, job->total_nbytes)) atomic_store(&pool.cancelled, true);
    pool.reported = job->progress ? heft__os_seconds() : 0;
    if (job->nblocks && !pool_cancelled(&pool)) result->workers = heft__parallel(workers, pool_work, &pool);
    heft_status status = pool_collect(&pool, workers, result, err);
    if (status == HEFT_OK && job->progress && job->progress(job->progress_ctx, job->total_nbytes, job->total_nbytes))
        status = heft__fail(err, HEFT_CANCELLED, HEFT_FAULT_CALL, "the progress callback asked to stop");
    heft__free(&job->alloc, block, all);
    return status;
}

const heft__engine heft__engine_pool = {"pool", pool_run};
