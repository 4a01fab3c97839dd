/* ops: brings the kept bytes of a plan into the page cache, through scratch memory, and holds none of them. */
#include "ops/load.h"

#include "base/error.h"
#include "base/text.h"
#include "ops/load_run.h"
#include "source/source_advise.h"

#include <string.h>

#define WARM_BLOCK (UINT64_C(4) << 20)
enum { WARM_AHEAD = 16 }; /* blocks for which pages are asked for ahead of the readers */

typedef struct warm_block {
    uint64_t offset;
    uint32_t nbytes, file;
} warm_block;

typedef struct warm_job {
    heft_load_plan *load;
    warm_block *blocks;
    uint64_t nblocks, capacity, total;
    uint64_t budget;              /* bytes that may be brought in; HEFT_NONE: no bound is known */
    heft__channel *channels;      /* by file */
    atomic_uint_fast64_t brought; /* bytes that were not there */
} warm_job;

/* ---- what is to be brought in ---- */

static heft_status warm_add_extent(warm_job *job, uint32_t file, heft__extent extent, heft_error *err) {
    for (uint64_t at = 0; at < extent.nbytes; at += WARM_BLOCK) {
        uint64_t left = extent.nbytes - at, n = left < WARM_BLOCK ? left : WARM_BLOCK;
        if (!heft__grow(&job->load->alloc, (void **)&job->blocks, &job->capacity, job->nblocks, sizeof *job->blocks,
                        16))
            return heft__fail_memory(err, job->capacity * 2 * sizeof *job->blocks);
        job->blocks[job->nblocks++] = (warm_block){extent.offset + at, (uint32_t)n, file};
        job->total += n;
    }
    return HEFT_OK;
}

/* A file that is in memory already, or that has no pages, is left alone. A large one of which only samples were asked is looked at
 * block by block, unless reads that may not wait are all there is to ask with. */
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
    return status;
}

/* ---- bringing it in ---- */

static void warm_give_block(const void *ctx, uint64_t number, heft__block *out) {
    const warm_job *job = ctx;
    const warm_block *block = &job->blocks[number];
    *out = (heft__block){.channel = block->file, .step = 0, .offset = block->offset, .nbytes = block->nbytes};
    if (number + WARM_AHEAD >= job->nblocks) return;
    const warm_block *ahead = &job->blocks[number + WARM_AHEAD];
    heft__source_advise(job->channels[ahead->file].source, ahead->offset, ahead->nbytes, HEFT__ADVICE_WANTED);
}

/* state: whether it has been read. */
static bool warm_step(const void *ctx, heft__task *task, heft_status *status, heft_error *err) {
    warm_job *job = (warm_job *)(uintptr_t)ctx;
    heft__extent extent = {task->block.offset, task->block.nbytes};
    heft__source_facts facts;
    if (task->state[0]++) return false;
    heft_source *source = job->channels[task->block.channel].source;
    heft__facts_source(source, &extent, 1, &facts);
    const heft__residency *residency = &facts.residency;
    if (residency->known && residency->step != HEFT__RESIDENCY_NOWAIT &&
        residency->resident_nbytes >= residency->asked_nbytes)
        return false;
    uint64_t before = atomic_fetch_add(&job->brought, extent.nbytes);
    if (job->budget != HEFT_NONE && (before > job->budget || extent.nbytes > job->budget - before)) {
        char done[HEFT__SIZE_TEXT];
        *status = heft__fail(err, HEFT_LIMIT, HEFT_FAULT_CALLER_LIMIT,
                             "warming stops after %s, since more would take the memory that is to stay free; a "
                             "filter or more ranks want less",
                             heft__size_exact(before, done));
        heft__error_at(err, extent.offset, job->budget, job->total);
        heft__error_file(err, source->label);
        return false;
    }
    task->vec[0] = (heft__vec){task->scratch, (size_t)extent.nbytes};
    task->nvec = 1;
    task->offset = extent.offset;
    task->nbytes = extent.nbytes;
    return true;
}

static heft_status warm_run(warm_job *job, heft_load_stats *stats, heft_error *err) {
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
                                   .progress = load->options.progress,
                                   .progress_ctx = load->options.progress_ctx,
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

heft_status heft_warm(heft_load_plan *plan, heft_load_stats *stats, heft_error *err) {
    if (!plan) return heft__fail_null(err, "plan");
    warm_job job = {.load = plan};
    heft__load_work work = {.load = plan, .started = heft__os_seconds()};
    uint32_t nfiles = plan->archive->nfiles;
    uint64_t nbytes = nfiles * sizeof *job.channels;
    atomic_init(&job.brought, 0);
    job.channels = heft__alloc_zero(&plan->alloc, nbytes);
    heft_status status = job.channels ? HEFT_OK : heft__fail_memory(err, nbytes);
    int lock =
        status == HEFT_OK ? heft__os_lock("heft-warm") : -1; /* waits for another warmer; none to be had: go on */
    for (uint32_t i = 0; i < nfiles && status == HEFT_OK; i++) {
        job.channels[i].source = plan->archive->files[i]->source;
        job.channels[i].direct_fd = -1;
        status = warm_add_file(&job, i, err);
    }
    if (status == HEFT_OK) {
        warm_measure(&job, &work.stats);
        work.stats.kept_nbytes = job.total;
        work.read_started = heft__os_seconds();
        status = warm_run(&job, &work.stats, err);
        work.stats.read_seconds = heft__os_seconds() - work.read_started;
    }
    heft__os_unlock(lock);
    work.stats.block_nbytes = WARM_BLOCK;
    work.stats.engine = HEFT_ENGINE_POOL;
    work.stats.total_seconds = heft__os_seconds() - work.started;
    heft__free(&plan->alloc, job.blocks, job.capacity * sizeof *job.blocks);
    heft__free(&plan->alloc, job.channels, nbytes);
    heft__load_tell(&work, stats);
    return status;
}
