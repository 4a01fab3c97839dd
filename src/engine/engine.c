/* engine: what all engines share around their blocks: memory, submitting, finishing, the end; and running a job whole. */
#include "engine/engine_core.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/os.h"

#include <string.h>

/* Scratch starts at a multiple of this, as direct reads want it. */
#define ENGINE_ALIGN UINT64_C(4096)

static const heft_allocator *engine_scratch_alloc(const heft__engine *engine) {
    return engine->job->scratch_alloc ? engine->job->scratch_alloc : &engine->job->alloc;
}

/* Pages that a direct read fills must not become shared with a child by a fork meanwhile: what is read then could land in the
 * child's copy. */
static void engine_inherit(const heft__engine *engine, bool inherit) {
    uint64_t page = heft__os_page_size(), nbytes = engine->nslots * engine->slot_nbytes;
    uint64_t skip = (page - (uintptr_t)engine->slots % page) % page;
    if (!engine->memory || nbytes < skip + page) return;
    heft__os_pages_inherit(engine->slots + skip, (size_t)((nbytes - skip) / page * page), inherit);
}

static void engine_free(heft__engine *engine) {
    engine_inherit(engine, true);
    heft__lanes_free(&engine->lanes);
    heft__free(engine_scratch_alloc(engine), engine->memory, engine->memory_nbytes);
    heft__free(&engine->job->alloc, engine->workers, engine->tables_nbytes);
}

/* Memory of steps. */
static bool engine_slots(heft__engine *engine) {
    const heft__engine_job *job = engine->job;
    if (!job->steps) return true;
    uint64_t *each = &engine->slot_nbytes, *all = &engine->memory_nbytes;
    if (!heft__add_u64(job->scratch_nbytes, job->dump_nbytes, each) || !heft__align_u64(*each, 64, each) ||
        !heft__add_u64(*each, HEFT__VEC_MAX * sizeof(heft__vec), each) || !heft__align_u64(*each, ENGINE_ALIGN, each) ||
        !heft__mul_u64(*each, engine->nslots, all) || !heft__add_u64(*all, ENGINE_ALIGN, all))
        return false;
    engine->memory = heft__alloc(engine_scratch_alloc(engine), *all);
    if (!engine->memory) return false;
    engine->slots = (uint8_t *)engine->memory + (ENGINE_ALIGN - (uintptr_t)engine->memory % ENGINE_ALIGN) % ENGINE_ALIGN;
    engine_inherit(engine, false);
    return true;
}

static bool engine_tables(heft__engine *engine) {
    const heft__engine_job *job = engine->job;
    uint64_t workers = engine->nworkers * sizeof *engine->workers, finished = 0, *all = &engine->tables_nbytes;
    if ((job->collect && !heft__mul_u64(job->nblocks, sizeof *engine->finished, &finished)) ||
        !heft__add_u64(workers, finished, all) || !heft__add_u64(*all, job->nblocks, all))
        return false;
    uint8_t *tables = heft__alloc_zero(&job->alloc, *all);
    if (!tables) return false;
    engine->workers = (heft__engine_worker *)(void *)tables;
    engine->finished = (uint64_t *)(void *)(tables + workers);
    engine->lanes.states = (_Atomic uint8_t *)(tables + workers + finished);
    return true;
}

heft_status heft__engine_init(heft__engine *engine, const heft__engine_job *job, uint32_t workers, uint32_t slots,
                              heft_error *err) {
    memset(engine, 0, sizeof *engine);
    engine->job = job;
    engine->lanes.alloc = job->alloc;
    engine->nworkers = workers;
    engine->nslots = slots;
    atomic_flag_clear(&engine->reporting);
    if (!engine_slots(engine) || !engine_tables(engine)) {
        uint64_t wanted = engine->slots || !job->steps ? engine->tables_nbytes : engine->memory_nbytes;
        engine_free(engine);
        return heft__fail_memory(err, wanted);
    }
    if (!job->progress) return HEFT_OK;
    if (job->progress(job->progress_ctx, 0, job->total_nbytes)) heft__engine_stop(engine, HEFT__STOP_PROGRESS);
    engine->reported = heft__os_seconds();
    return HEFT_OK;
}

heft_status heft__engine_add(heft__engine *engine, heft__lane lane, uint64_t first, uint64_t n, heft_error *err) {
    uint64_t fresh;
    if (n > engine->job->nblocks || first > engine->job->nblocks - n)
        return heft__fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL, "blocks are submitted that the job does not have");
    if (!heft__lanes_add(&engine->lanes, lane, first, n, &fresh)) return heft__fail_memory(err, sizeof(heft__range));
    engine->submitted += fresh;
    atomic_fetch_add(&engine->unfinished, fresh);
    return HEFT_OK;
}

bool heft__engine_stopped(const heft__engine *engine) {
    return atomic_load_explicit(&engine->stopped, memory_order_relaxed);
}

bool heft__engine_cancelled(const heft__engine *engine) {
    unsigned reasons = atomic_load_explicit(&engine->stopped, memory_order_relaxed);
    if (reasons & (HEFT__STOP_PROGRESS | HEFT__STOP_CANCEL)) return true;
    return (reasons & HEFT__STOP_CLOSE) && !(reasons & HEFT__STOP_FAILURE); /* what has begun may be the lowest failure */
}

void heft__engine_stop(heft__engine *engine, heft__engine_reason reason) {
    atomic_fetch_or(&engine->stopped, reason);
}

bool heft__engine_finish(heft__engine *engine, uint64_t number) {
    if (engine->job->collect) engine->finished[engine->ended++] = number;
    return atomic_fetch_sub(&engine->unfinished, 1) == 1;
}

uint64_t heft__engine_reap(heft__engine *engine, uint64_t *numbers, uint64_t room) {
    uint64_t n = engine->ended - engine->reaped;
    if (n > room) n = room;
    if (n) memcpy(numbers, engine->finished + engine->reaped, (size_t)n * sizeof *numbers);
    engine->reaped += n;
    return n;
}

/* The failure of the lowest block: blocks are begun in order and a block that is begun is ended, so whichever worker fails
 * first, the lowest of all that can fail is among those that have failed. */
static const heft__engine_worker *engine_sum(const heft__engine *engine, heft__engine_result *result) {
    const heft__engine_worker *first = NULL;
    for (uint32_t i = 0; i < engine->nworkers; i++) {
        const heft__engine_worker *w = &engine->workers[i];
        result->counters.requests += w->counters.requests;
        result->counters.short_reads += w->counters.short_reads;
        result->counters.retries += w->counters.retries;
        result->counters.nbytes += w->counters.nbytes;
        if (w->status != HEFT_OK && (!first || w->failed_block < first->failed_block)) first = w;
    }
    return first;
}

heft_status heft__engine_end(heft__engine *engine, uint32_t workers, heft__engine_result *result, heft_error *err) {
    const heft__engine_job *job = engine->job;
    uint32_t stopped = atomic_load(&engine->stopped);
    bool all = atomic_load(&engine->unfinished) == 0;
    heft_status status = HEFT_OK;
    *result = (heft__engine_result){.workers = workers, .failed_block = HEFT_NONE, .failed_offset = HEFT_NONE};
    for (uint32_t i = 0; i < job->nchannels; i++) {
        heft__channel *channel = &job->channels[i];
        result->fallbacks += (uint64_t)(atomic_load(&channel->fallback) != 0) + atomic_load(&channel->drop_refused) +
                             atomic_load(&channel->touch_refused);
    }
    const heft__engine_worker *failure = engine_sum(engine, result);
    if (failure) {
        result->failed_block = failure->failed_block;
        result->failed_offset = failure->failed_offset;
        if (err) *err = failure->err;
        status = failure->status;
    } else if ((stopped & HEFT__STOP_CANCEL) && !all)
        status = heft__fail(err, HEFT_CANCELLED, HEFT_FAULT_CALL, "the work was cancelled");
    else if ((stopped & HEFT__STOP_PROGRESS) ||
             (job->progress && all && engine->submitted == job->nblocks &&
              job->progress(job->progress_ctx, job->total_nbytes, job->total_nbytes)))
        status = heft__fail(err, HEFT_CANCELLED, HEFT_FAULT_CALL, "the progress callback asked to stop");
    engine_free(engine);
    return status;
}

heft_status heft__engine_run(const heft__engine_kind *kind, const heft__engine_job *job, heft__engine_result *result,
                             heft_error *err) {
    heft__engine *engine;
    *result = (heft__engine_result){.failed_block = HEFT_NONE, .failed_offset = HEFT_NONE};
    heft_status status = kind->open(job, &engine, err);
    if (status != HEFT_OK) return status;
    status = kind->submit(engine, HEFT__LANE_WANTED, 0, job->nblocks, err);
    if (status != HEFT_OK) {
        kind->close(engine, result, NULL);
        return status;
    }
    kind->reap(engine, NULL, 0);
    return kind->close(engine, result, err);
}
