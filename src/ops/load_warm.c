/* ops: brings the kept bytes of a plan into the page cache, through scratch memory, and holds none of them. */
#include "ops/load.h"

#include "base/error.h"
#include "base/parallel.h"
#include "base/text.h"
#include "ops/load_run.h"
#include "source/source_advise.h"

#include <string.h>

#define WARM_BLOCK (UINT64_C(4) << 20)
enum { WARM_AHEAD = 16 }; /* blocks for which pages are asked for ahead of the readers */

/* What has been found out about a block. Those that come stand before the first one that is refused. */
typedef enum warm_state { WARM_UNSEEN, WARM_THERE, WARM_COMES, WARM_REFUSED } warm_state;

typedef struct warm_block {
    uint64_t offset;
    uint32_t nbytes, file;
    warm_state state;
} warm_block;

typedef struct warm_job {
    heft_load_plan *load;
    warm_block *blocks;
    uint64_t nblocks, capacity, total;
    uint64_t budget;         /* bytes that may be brought in; HEFT_NONE: no bound is known */
    heft__channel *channels; /* by file */
    bool *as_asked;          /* by file: nothing is read ahead of what is asked for */
    heft__monitor *monitor;  /* guards the next three, and states of blocks from `seen` on */
    uint64_t seen;           /* blocks before this one have been looked at */
    uint64_t brought;        /* bytes that were not there */
    bool full;               /* the budget is used up */
} warm_job;

/* ---- what is to be brought in ---- */

static heft_status warm_add_extent(warm_job *job, uint32_t file, heft__extent extent, heft_error *err) {
    for (uint64_t at = 0; at < extent.nbytes; at += WARM_BLOCK) {
        uint64_t left = extent.nbytes - at, n = left < WARM_BLOCK ? left : WARM_BLOCK;
        if (!heft__grow(&job->load->alloc, (void **)&job->blocks, &job->capacity, job->nblocks, sizeof *job->blocks,
                        16))
            return heft__fail_memory(err, job->capacity * 2 * sizeof *job->blocks);
        job->blocks[job->nblocks++] = (warm_block){extent.offset + at, (uint32_t)n, file, WARM_UNSEEN};
        job->total += n;
    }
    return HEFT_OK;
}

/* A file that is in memory already, or that has no pages, is left alone. A large one of which only samples were asked is looked at
 * block by block, unless reads that may not wait are all there is to ask with. Of what is warmed the system reads nothing ahead by
 * itself: that would be in no account. */
static heft_status warm_add_file(warm_job *job, uint32_t file, heft_error *err) {
    heft_load_plan *load = job->load;
    heft_source *source = load->archive->files[file]->source;
    heft__extent *extents;
    uint64_t n;
    if (source->fd < 0 || load->plan->sources[file].nitems == 0) return HEFT_OK;
    heft_status status = heft__source_verify(source, err);
    if (status == HEFT_OK) status = heft__plan_extents(load->plan, file, &extents, &n, err);
    if (status != HEFT_OK) return status;
    heft__source_facts facts;
    heft__facts_source(source, extents, n, &facts);
    const heft__residency *residency = &facts.residency;
    bool sure = residency->exact || residency->step == HEFT__RESIDENCY_NOWAIT;
    bool there = facts.fs_class == HEFT__FS_MEMORY ||
                 (residency->known && sure && residency->resident_nbytes >= residency->asked_nbytes);
    for (uint64_t i = 0; i < n && !there && status == HEFT_OK; i++)
        status = warm_add_extent(job, file, extents[i], err);
    heft__free(&load->alloc, extents, n * sizeof *extents);
    if (there || n == 0) return status;
    job->as_asked[file] = true;
    heft__source_advise(source, 0, source->size, HEFT__ADVICE_AS_ASKED);
    return status;
}

/* ---- bringing it in ---- */

static void warm_look(warm_job *job, warm_block *block) {
    heft__extent extent = {block->offset, block->nbytes};
    heft__source_facts facts;
    heft__facts_source(job->channels[block->file].source, &extent, 1, &facts);
    const heft__residency *residency = &facts.residency;
    bool sure = residency->known && residency->step != HEFT__RESIDENCY_NOWAIT;
    uint64_t missing = sure ? residency->asked_nbytes - residency->resident_nbytes : block->nbytes;
    if (missing && job->budget != HEFT_NONE && missing > job->budget - job->brought) job->full = true;
    block->state = missing == 0 ? WARM_THERE : job->full ? WARM_REFUSED : WARM_COMES;
    if (block->state == WARM_COMES) job->brought += missing;
}

/* Counts blocks up to WARM_AHEAD beyond the one that begins now, each once and in their order, and asks for those that come before
 * anyone reads them: a read of what nobody has asked for may set off more, also where the system was told to read nothing ahead
 * (Linux: the first read beyond what reading the header has left). */
static void warm_give_block(const void *ctx, uint64_t number, heft__block *out) {
    warm_job *job = (warm_job *)(uintptr_t)ctx;
    const warm_block *block = &job->blocks[number];
    *out = (heft__block){.channel = block->file, .step = 0, .offset = block->offset, .nbytes = block->nbytes};
    heft__monitor_enter(job->monitor);
    for (; job->seen < job->nblocks && job->seen <= number + WARM_AHEAD; job->seen++) {
        warm_block *ahead = &job->blocks[job->seen];
        warm_look(job, ahead);
        if (ahead->state == WARM_COMES)
            heft__source_advise(job->channels[ahead->file].source, ahead->offset, ahead->nbytes, HEFT__ADVICE_WANTED);
    }
    heft__monitor_leave(job->monitor);
}

static heft_status warm_fail_full(const warm_job *job, const warm_block *block, heft_error *err) {
    char done[HEFT__SIZE_TEXT];
    heft__fail(err, HEFT_LIMIT, HEFT_FAULT_CALLER_LIMIT,
               "warming stops after %s, since more would take the memory that is to stay free; a filter or more ranks want "
               "less",
               heft__size_exact(job->brought, done));
    heft__error_at(err, block->offset, job->budget, job->total);
    heft__error_file(err, job->channels[block->file].source->label);
    return HEFT_LIMIT;
}

/* state: whether it has been read. */
static bool warm_step(const void *ctx, heft__task *task, heft_status *status, heft_error *err) {
    const warm_job *job = ctx;
    const warm_block *block = &job->blocks[task->number];
    if (task->state[0]++ || block->state == WARM_THERE) return false;
    if (block->state == WARM_REFUSED) {
        *status = warm_fail_full(job, block, err);
        return false;
    }
    task->vec[0] = (heft__vec){task->scratch, block->nbytes};
    task->nvec = 1;
    task->offset = block->offset;
    task->nbytes = block->nbytes;
    return true;
}

static heft_status warm_run(warm_job *job, const heft__warm_watch *watch, heft_load_stats *stats, heft_error *err) {
    static const heft__step steps[] = {warm_step};
    const heft_load_plan *load = job->load;
    heft__engine_job engine_job = {.nblocks = job->nblocks,
                                   .total_nbytes = job->total,
                                   .block = warm_give_block,
                                   .steps = steps,
                                   .ctx = job,
                                   .channels = job->channels,
                                   .nchannels = load->archive->nfiles,
                                   .scratch_nbytes = WARM_BLOCK,
                                   .workers = load->options.workers ? load->options.workers : load->plan->workers,
                                   .alloc = load->alloc,
                                   .progress = watch->progress,
                                   .progress_ctx = watch->ctx,
                                   .progress_seconds = 0.05};
    heft__engine_result result = {.failed_block = HEFT_NONE};
    heft_status status = heft__engine_run(&heft__engine_pool, &engine_job, &result, err);
    stats->requested_nbytes = result.counters.nbytes;
    stats->requests = result.counters.requests;
    stats->short_reads = result.counters.short_reads;
    stats->retries = result.counters.retries;
    stats->workers = result.workers;
    return status;
}

/* What may be brought in without others having to give memory up. */
static void warm_measure(warm_job *job, heft_load_stats *stats) {
    const heft_load_options *o = &job->load->options;
    heft__os_memory have;
    heft__facts_memory(o->free_nbytes ? o->free_nbytes : HEFT_NONE, job->load->plan->workers, &have);
    stats->free_nbytes = have.nbytes;
    job->budget = have.nbytes;
    if (job->budget != HEFT_NONE && !o->no_preflight)
        job->budget = job->budget > o->reserve_nbytes ? job->budget - o->reserve_nbytes : 0;
    if (o->no_preflight) job->budget = HEFT_NONE;
    if (o->memory_limit_nbytes && o->memory_limit_nbytes < job->budget) job->budget = o->memory_limit_nbytes;
}

/* ---- beginning and end ---- */

static heft_status warm_make(warm_job *job, heft_error *err) {
    const heft_load_plan *load = job->load;
    uint32_t nfiles = load->archive->nfiles;
    job->channels = heft__alloc_zero(&load->alloc, nfiles * sizeof *job->channels);
    job->as_asked = heft__alloc_zero(&load->alloc, nfiles * sizeof *job->as_asked);
    job->monitor = heft__monitor_new(&load->alloc);
    if (!job->channels || !job->as_asked || !job->monitor)
        return heft__fail_memory(err, nfiles * sizeof *job->channels);
    for (uint32_t i = 0; i < nfiles; i++) {
        job->channels[i].source = load->archive->files[i]->source;
        job->channels[i].direct_fd = -1;
    }
    return HEFT_OK;
}

static void warm_free(warm_job *job) {
    const heft_load_plan *load = job->load;
    uint32_t nfiles = load->archive->nfiles;
    for (uint32_t i = 0; job->channels && job->as_asked && i < nfiles; i++) {
        heft_source *source = job->channels[i].source;
        if (job->as_asked[i]) heft__source_advise(source, 0, source->size, HEFT__ADVICE_NORMAL);
    }
    heft__monitor_free(job->monitor);
    heft__free(&load->alloc, job->blocks, job->capacity * sizeof *job->blocks);
    heft__free(&load->alloc, job->as_asked, nfiles * sizeof *job->as_asked);
    heft__free(&load->alloc, job->channels, nfiles * sizeof *job->channels);
}

heft_status heft__warm(heft_load_plan *plan, const heft__warm_watch *watch, heft_load_stats *stats, heft_error *err) {
    warm_job job = {.load = plan};
    heft__load_work work = {.load = plan, .started = heft__os_seconds()};
    heft_status status = warm_make(&job, err);
    /* Waits for another warmer; where no lock can be had there is none. */
    int lock = status == HEFT_OK ? heft__os_lock("heft-warm", watch->stop, watch->ctx) : -1;
    if (status == HEFT_OK && watch->stop && watch->stop(watch->ctx))
        status = heft__fail(err, HEFT_CANCELLED, HEFT_FAULT_CALL, "the work was cancelled");
    for (uint32_t i = 0; i < plan->archive->nfiles && status == HEFT_OK; i++) status = warm_add_file(&job, i, err);
    if (status == HEFT_OK) {
        warm_measure(&job, &work.stats);
        work.stats.kept_nbytes = job.total;
        work.read_started = heft__os_seconds();
        status = warm_run(&job, watch, &work.stats, err);
        work.stats.read_seconds = heft__os_seconds() - work.read_started;
    }
    warm_free(&job);
    heft__os_unlock(lock);
    work.stats.block_nbytes = WARM_BLOCK;
    work.stats.engine = HEFT_ENGINE_POOL;
    work.stats.total_seconds = heft__os_seconds() - work.started;
    heft__load_tell(&work, stats);
    return status;
}

heft_status heft_warm(heft_load_plan *plan, heft_load_stats *stats, heft_error *err) {
    if (!plan) return heft__fail_null(err, "plan");
    heft__warm_watch watch = {.progress = plan->options.progress, .ctx = plan->options.progress_ctx};
    return heft__warm(plan, &watch, stats, err);
}
