/* engine: one block at work: its requests one after another, and the rules by which a request is read whole. */
#include "engine/engine_core.h"

#include "base/error.h"
#include "base/os.h"
#include "source/source_direct.h"

#include <errno.h>
#include <string.h>

void heft__work_begin(heft__work *work, heft__engine *engine, uint32_t worker, uint32_t slot, uint64_t number) {
    const heft__engine_job *job = engine->job;
    memset(work, 0, sizeof *work);
    work->engine = engine;
    work->worker = &engine->workers[worker];
    work->began = heft__os_seconds();
    heft__task *task = &work->task;
    task->number = number;
    task->worker = worker;
    job->block(job->ctx, number, &task->block);
    work->channel = &job->channels[task->block.channel];
    if (!engine->slots) return;
    uint64_t vectors = HEFT__VEC_MAX * sizeof(heft__vec);
    task->scratch = engine->slots + slot * engine->slot_nbytes;
    task->dump = task->scratch + job->scratch_nbytes;
    task->vec = (heft__vec *)(void *)(task->scratch + engine->slot_nbytes - vectors);
}

/* Keeps the failure if it is of a lower block than what the worker has kept. `offset` in the source, or HEFT_NONE. */
static void work_fail(heft__work *work, heft_status status, uint64_t offset, const heft_error *err) {
    heft__engine_worker *worker = work->worker;
    work->status = status;
    if (worker->status != HEFT_OK && worker->failed_block < work->task.number) return;
    worker->status = status;
    worker->failed_block = work->task.number;
    worker->failed_offset = offset;
    worker->err = *err;
}

static void work_touch(heft__work *work) {
    const heft__block *block = &work->task.block;
    heft__channel *channel = work->channel;
    heft_source *source = channel->source;
    heft_error err;
    uint64_t got, at = source->window_offset + block->offset;
    int code = heft__mapping_touch(channel->mapping, at, block->nbytes, atomic_load(&channel->touch_refused), &got);
    if (heft__source_refused(code)) {
        atomic_store(&channel->touch_refused, true);
        code = heft__mapping_touch(channel->mapping, at, block->nbytes, true, &got);
    }
    if (code == 0) {
        work->done_nbytes = block->nbytes;
        return;
    }
    if (code == EFAULT) heft__fail_truncated(&err, source, block->offset, block->nbytes, got);
    else {
        heft__fail_errno(&err, code, source->label, "reading");
        heft__error_at(&err, at + got, block->nbytes, got);
    }
    work_fail(work, err.status, block->offset + got, &err);
}

/* The next request of the block; false: it has no more. */
static bool work_request(heft__work *work) {
    heft__task *task = &work->task;
    const heft__block *block = &task->block;
    const heft__engine_job *job = work->engine->job;
    bool again = work->requested;
    task->direct = block->kind == HEFT__BLOCK_DIRECT;
    if (block->kind == HEFT__BLOCK_TOUCH) {
        work_touch(work);
        return false;
    }
    if (block->step == HEFT__STEP_NONE) {
        if (again) return false;
        work->single = (heft__vec){block->dst, (size_t)block->nbytes};
        task->vec = &work->single;
        task->nvec = 1;
        task->offset = block->offset;
        task->nbytes = block->nbytes;
        task->needed = block->needed;
    } else {
        heft_status status = HEFT_OK;
        heft_error err;
        work->dropped = heft__engine_cancelled(work->engine);
        task->needed = 0;
        if (work->dropped) return false;
        if (!job->steps[block->step](job->ctx, task, &status, &err)) {
            if (status != HEFT_OK) work_fail(work, status, HEFT_NONE, &err);
            return false;
        }
    }
    if (task->needed == 0 || task->needed > task->nbytes) task->needed = task->nbytes;
    work->requested = true;
    work->buffered = !task->direct || work->channel->direct_fd < 0;
    work->got = 0;
    work->first = 0;
    work->worker->counters.nbytes += task->nbytes;
    work->done_nbytes += task->nbytes;
    return true;
}

bool heft__work_next(heft__work *work) {
    heft__channel *channel = work->channel;
    while (work->status == HEFT_OK) {
        if (work->requested && work->got < work->task.needed) {
            work->direct = !work->buffered && atomic_load_explicit(&channel->fallback, memory_order_relaxed) == 0;
            work->drop = !work->direct && channel->drop && channel->source->fd >= 0 &&
                         !atomic_load_explicit(&channel->drop_refused, memory_order_relaxed);
            return true;
        }
        if (!work_request(work)) return false;
    }
    return false;
}

int64_t heft__work_call(const heft__work *work) {
    const heft__task *task = &work->task;
    const heft__vec *vec = &task->vec[work->first];
    size_t nvec = task->nvec - work->first;
    heft_source *source = work->channel->source;
    uint64_t at = task->offset + work->got;
    if (work->direct) return heft__source_direct_read(source, work->channel->direct_fd, at, vec, nvec);
    if (work->drop) return heft__source_read_drop(source, at, vec, nvec);
    return nvec == 1 ? heft__source_read_some(source, at, vec->base, vec->nbytes)
                     : heft__source_read_vec(source, at, vec, nvec);
}

/* Vectors that are read already are taken off the front. */
static void work_advance(heft__work *work, uint64_t got) {
    while (got > 0) {
        heft__vec *v = &work->task.vec[work->first];
        if (got < v->nbytes) {
            v->base = (uint8_t *)v->base + got;
            v->nbytes -= (size_t)got;
            return;
        }
        got -= v->nbytes;
        work->first++;
    }
}

/* A call that failed is made in a plainer way, if that was the reason. */
static bool work_step_down(heft__work *work, int code) {
    heft__channel *channel = work->channel;
    int none = 0;
    if (!heft__source_refused(code)) return false;
    if (work->direct) {
        atomic_compare_exchange_strong(&channel->fallback, &none, code);
        work->buffered = true;
    } else if (work->drop)
        atomic_store(&channel->drop_refused, true);
    else
        return false;
    return true;
}

void heft__work_result(heft__work *work, int64_t result) {
    const heft__task *task = &work->task;
    heft__read_counters *counters = &work->worker->counters;
    heft_source *source = work->channel->source;
    uint64_t offset = task->offset + work->got;
    heft_error err;
    counters->requests++;
    if (result == -EINTR) {
        counters->retries++;
        return;
    }
    if (result < 0) {
        if (work_step_down(work, (int)-result)) return;
        heft__fail_errno(&err, (int)-result, heft_source_label(source), "reading");
        heft__error_at(&err, source->window_offset + offset, task->needed, work->got);
    } else if (result == 0)
        heft__fail_truncated(&err, source, task->offset, task->needed, work->got);
    else if ((uint64_t)result > task->nbytes - work->got)
        heft__fail(&err, HEFT_IO, HEFT_FAULT_READ_ERROR, "the source returned more than was asked for");
    else {
        work->got += (uint64_t)result;
        if (work->got >= task->needed) return;
        counters->short_reads++;
        work_advance(work, (uint64_t)result);
        /* A direct read can go on only at a multiple of the alignment. */
        if (work->direct && work->got % work->channel->direct_align != 0) work->buffered = true;
        return;
    }
    work_fail(work, err.status, offset, &err);
}

/* Reports now and then, one worker at a time; a worker that finds another one reporting goes on. */
static void work_report(heft__engine *engine) {
    const heft__engine_job *job = engine->job;
    if (!job->progress || atomic_flag_test_and_set_explicit(&engine->reporting, memory_order_acquire)) return;
    double now = heft__os_seconds();
    if (now - engine->reported >= job->progress_seconds && !heft__engine_cancelled(engine)) {
        uint64_t done = atomic_load(&engine->done_nbytes);
        if (done < job->total_nbytes && job->progress(job->progress_ctx, done, job->total_nbytes))
            heft__engine_stop(engine, HEFT__STOP_PROGRESS);
        engine->reported = now;
    }
    atomic_flag_clear_explicit(&engine->reporting, memory_order_release);
}

bool heft__work_end(heft__work *work) {
    heft__engine *engine = work->engine;
    const heft__engine_job *job = engine->job;
    heft_error err;
    if (work->status == HEFT_OK && !work->dropped && job->done) {
        heft_status status = job->done(job->ctx, work->task.number, &err);
        if (status != HEFT_OK) work_fail(work, status, HEFT_NONE, &err);
    }
    double seconds = heft__os_seconds() - work->began;
    if (seconds > 0) atomic_fetch_add(&work->channel->nanoseconds, (uint64_t)(seconds * 1e9));
    atomic_fetch_add(&work->channel->nbytes, work->done_nbytes);
    if (work->status != HEFT_OK) heft__engine_stop(engine, HEFT__STOP_FAILURE);
    if (work->status != HEFT_OK || work->dropped) return false;
    atomic_fetch_add(&engine->done_nbytes, work->done_nbytes);
    work_report(engine);
    return true;
}
