/* ops: runs the plan of a load: admits, allocates, maps, reads, and makes the weights of it. */
#include "ops/load_run.h"

#include "base/error.h"
#include "base/text.h"
#include "device/device.h"
#include "source/source_advise.h"

#include <string.h>

/* ---- telemetry ---- */

void heft__load_tell(const heft__load_work *work, heft_load_stats *out) {
    heft_load_stats told = work->stats;
    if (work->load) {
        heft__read_counters *sampled = &work->load->sampled;
        told.requested_nbytes += sampled->nbytes;
        told.over_read_nbytes += sampled->nbytes;
        told.requests += sampled->requests;
        told.short_reads += sampled->short_reads;
        told.retries += sampled->retries;
        *sampled = (heft__read_counters){0};
    }
    if (!out) return;
    size_t size = out->struct_size;
    memcpy(out, &told, size < sizeof *out ? size : sizeof *out);
    out->struct_size = size;
}

static void load_run_sums(heft__load_work *work) {
    heft_load_stats *s = &work->stats;
    const heft_plan *plan = work->plan;
    s->resolve_seconds = work->load->archive->open_seconds;
    s->filter_seconds = work->load->filter_seconds;
    s->plan_seconds = work->load->plan_seconds;
    s->arena_nbytes = work->memory.arena_nbytes;
    s->scratch_nbytes = work->memory.scratch_nbytes;
    s->slack_nbytes = plan->slack;
    s->free_nbytes = work->memory.free_nbytes;
    s->block_nbytes = plan->options.block_nbytes;
    s->engine = work->load->engine;
}

/* What each file's channel has seen. */
static void load_run_shards(heft__load_work *work) {
    for (uint32_t i = 0; i < work->plan->nsources; i++) {
        heft__load_shard *shard = &work->load->shards[i];
        heft__channel *channel = &work->run.channels[i];
        const heft__plan_source *source = &work->plan->sources[i];
        shard->fallback_errno = atomic_load(&channel->fallback);
        shard->used = source->path == HEFT_PATH_DIRECT && shard->fallback_errno ? HEFT_PATH_BUFFERED : source->path;
        shard->read_nbytes = atomic_load(&channel->nbytes);
        shard->seconds = (double)atomic_load(&channel->nanoseconds) * 1e-9;
    }
    for (uint64_t i = 0; i < work->plan->nmappings; i++) {
        heft__channel *channel = &work->run.channels[work->plan->nsources + i];
        work->load->shards[work->plan->mappings[i].source].seconds += (double)atomic_load(&channel->nanoseconds) * 1e-9;
    }
}

/* ---- between files ---- */

/* The last block of a file is in: is there still as much memory as shall stay free? */
static heft_status load_run_look(heft__load_work *work, uint32_t file, heft_error *err) {
    const heft_load_options *o = &work->load->options;
    heft__os_memory have;
    if (atomic_fetch_sub(&work->left[file], 1) != 1 || atomic_fetch_sub(&work->files_left, 1) == 1) return HEFT_OK;
    heft__facts_memory(o->free_nbytes ? o->free_nbytes : HEFT_NONE, 0, &have);
    if (have.nbytes == HEFT_NONE || have.nbytes >= o->reserve_nbytes) return HEFT_OK;
    char left[HEFT__SIZE_TEXT], reserve[HEFT__SIZE_TEXT];
    heft__fail(err, HEFT_LIMIT, HEFT_FAULT_CALLER_LIMIT,
               "%s of memory are left (%s) while loading, and %s are to stay free", heft__size_exact(have.nbytes, left),
               have.origin, heft__size_exact(o->reserve_nbytes, reserve));
    heft__error_at(err, HEFT_NONE, o->reserve_nbytes, have.nbytes);
    heft__error_file(err, work->plan->sources[file].source->label);
    return HEFT_LIMIT;
}

static heft_status load_run_done(void *ctx, uint64_t block, heft_error *err) {
    heft__load_work *work = ctx;
    heft_status status = work->done ? work->done(work->done_ctx, block, err) : HEFT_OK;
    if (status != HEFT_OK || !work->left || block >= work->plan->first_touch) return status;
    heft__plan_block at;
    heft__plan_block_at(work->plan, block, &at);
    return load_run_look(work, at.channel, err);
}

static heft_status load_run_count(heft__load_work *work, heft_error *err) {
    const heft_plan *plan = work->plan;
    if (work->load->options.reserve_nbytes == 0 || work->load->options.no_preflight) return HEFT_OK;
    uint64_t nbytes = plan->nsources * sizeof *work->left;
    work->left = heft__alloc(&plan->alloc, nbytes);
    if (!work->left) return heft__fail_memory(err, nbytes);
    for (uint64_t i = 0; i < plan->nsources; i++) {
        uint64_t blocks = 0;
        const heft__plan_source *source = &plan->sources[i];
        for (uint64_t r = 0; r < source->nruns; r++)
            blocks += heft__plan_blocks_of(plan, &plan->runs[source->first_run + r]);
        atomic_init(&work->left[i], blocks);
        if (blocks) atomic_fetch_add(&work->files_left, 1);
    }
    return HEFT_OK;
}

/* Reading a header brings in so much of what follows at the most: a file of which no more is cached was not in use. */
#define LOAD_HEADER_AHEAD (UINT64_C(1) << 20)

/* Pages that were not there before the load go after it. Where the kernel can, the reads themselves have left none. */
static void load_run_drop(const heft__load_work *work) {
    const heft_plan *plan = work->plan;
    for (uint64_t i = 0; i < plan->nsources && work->run.drop; i++) {
        const heft__plan_source *source = &plan->sources[i];
        const heft__residency *before = &source->facts.residency;
        if (!atomic_load(&work->run.channels[i].drop_refused) || !before->known ||
            before->resident_nbytes > LOAD_HEADER_AHEAD)
            continue;
        for (uint64_t r = source->first_run; r < source->first_run + source->nruns; r++)
            heft__source_advise(source->source, plan->runs[r].offset, plan->runs[r].nbytes, HEFT__ADVICE_UNWANTED);
    }
}

/* Blocks that are asked for ahead of the readers: never a whole file, which could push its own head out of the cache. */
static uint64_t load_run_ahead(const heft__load_work *work) {
    uint64_t block = work->plan->options.block_nbytes, most = UINT64_C(1) << 30;
    uint64_t have = work->memory.free_nbytes, limit = work->load->options.memory_limit_nbytes;
    if (have != HEFT_NONE && have / 4 < most) most = have / 4;
    if (limit && limit < most) most = limit;
    return most / (block > work->plan->scratch_nbytes ? block : work->plan->scratch_nbytes);
}

/* ---- memory ---- */

static void load_run_unmap(heft_buffer *buffer) {
    heft__mapping_unref(buffer->owner);
}

static heft_status load_run_maps(heft__load_work *work, heft_error *err) {
    const heft_plan *plan = work->plan;
    for (uint64_t i = 0; i < plan->nmappings; i++) {
        const heft__plan_mapping *m = &plan->mappings[i];
        heft__load_memory *memory = &work->weights->memories[plan->narenas + i];
        heft_status status =
            heft__source_map(plan->sources[m->source].source, m->offset, m->nbytes, &work->mappings[i], err);
        if (status != HEFT_OK) return status;
        memory->buffer = (heft_buffer){.data = (uint8_t *)(uintptr_t)work->mappings[i]->data,
                                       .nbytes = m->nbytes,
                                       .release = load_run_unmap,
                                       .owner = work->mappings[i]};
        memory->file = m->source;
        work->stats.mapped_nbytes += m->nbytes;
    }
    return HEFT_OK;
}

/* Of several arenas the largest lies in the caller's, which holds one at a time; the others get memory of their own. */
static heft_status load_run_arenas(heft__load_work *work, heft_error *err) {
    const heft_plan *plan = work->plan;
    heft_load_plan own = *work->load;
    uint64_t largest = 0;
    own.options.arena = NULL;
    for (uint64_t i = 1; i < plan->narenas; i++)
        if (plan->arenas[i].nbytes > plan->arenas[largest].nbytes) largest = i;
    for (uint64_t i = 0; i < plan->narenas; i++) {
        heft__load_memory *memory = &work->weights->memories[i];
        const heft__plan_arena *arena = &plan->arenas[i];
        heft_status status = heft__load_memory_take(i == largest ? work->load : &own, arena->nbytes, arena->align,
                                                    &memory->arena, &memory->buffer, err);
        if (status != HEFT_OK) return status;
        memory->file = arena->source;
        work->stats.huge_wanted_nbytes += heft__host_arena_huge_wanted(memory->arena);
        work->slots[i] = memory->buffer.data;
    }
    return HEFT_OK;
}

static heft_status load_run_memory(heft__load_work *work, bool ring, heft_error *err) {
    const heft_plan *plan = work->plan;
    heft_load_plan *load = work->load;
    uint64_t n = plan->narenas + plan->nmappings;
    heft_status status = HEFT_OK;
    if (n >= UINT32_MAX) return heft__fail(err, HEFT_LIMIT, HEFT_FAULT_CALLER_LIMIT, "too many arenas in one load");
    if (!ring) status = heft__weights_new(load->archive, load->filter, &load->alloc, &work->weights, err);
    if (status == HEFT_OK && !ring)
        status = heft__weights_hold(work->weights, (uint32_t)n, load->options.arena_scope == HEFT_ARENA_SHARD, err);
    if (status != HEFT_OK) return status;
    work->slots = heft__alloc_zero(&load->alloc, plan->narenas * sizeof *work->slots);
    work->mappings = heft__alloc_zero(&load->alloc, plan->nmappings * sizeof *work->mappings);
    if (!work->slots || !work->mappings) return heft__fail_memory(err, n * sizeof *work->slots);
    if (!ring) status = load_run_arenas(work, err);
    if (status == HEFT_OK && !ring) status = load_run_maps(work, err);
    return status;
}

void heft__load_release(heft__load_work *work) {
    const heft_allocator *alloc = &work->load->alloc;
    heft_weights_unref(work->weights);
    work->weights = NULL;
    heft__free(alloc, work->left, work->plan->nsources * sizeof *work->left);
    work->left = NULL;
    if (work->slots) heft__free(alloc, work->slots, work->plan->narenas * sizeof *work->slots);
    if (work->mappings) heft__free(alloc, work->mappings, work->plan->nmappings * sizeof *work->mappings);
    work->slots = NULL;
    work->mappings = NULL;
}

/* ---- the steps of a run ---- */

const heft__engine_kind *heft__load_engine(heft_engine engine) {
    return engine == HEFT_ENGINE_URING ? &heft__engine_uring : &heft__engine_pool;
}

heft_status heft__load_begin(heft__load_work *work, bool ring, heft_error *err) {
    heft_load_plan *load = work->load;
    work->started = heft__os_seconds();
    heft__os_faults(&work->minor_faults, &work->major_faults);
    heft_status status = heft__load_admit(load, work->plan, &work->memory, err);
    if (!ring) load->memory = work->memory;
    load_run_sums(work);
    if (status != HEFT_OK) return status;
    double allocating = heft__os_seconds();
    status = load_run_memory(work, ring, err);
    work->read_started = heft__os_seconds();
    work->stats.allocate_seconds = work->read_started - allocating;
    work->run.plan = work->plan;
    work->run.slots = work->slots;
    work->run.mappings = work->mappings;
    work->run.kind = heft__load_engine(load->engine);
    work->run.progress = load->options.progress;
    work->run.progress_ctx = load->options.progress_ctx;
    work->run.strict = true;
    work->run.drop = load->options.cache_policy == HEFT_CACHE_DROP;
    work->run.ahead = load_run_ahead(work);
    work->run.ahead_local = load->options.prefetch;
    if (status == HEFT_OK) status = load_run_count(work, err);
    if (work->done || work->left) {
        work->run.done = load_run_done;
        work->run.done_ctx = work;
    }
    if (status == HEFT_OK) status = heft__run_open(&work->run, err);
    if (status != HEFT_OK) heft__load_release(work);
    return status;
}

heft_status heft__load_end(heft__load_work *work, heft_error *err) {
    heft__engine_result result;
    heft_load_stats *s = &work->stats;
    heft_status status = heft__run_close(&work->run, &result, err);
    load_run_shards(work);
    load_run_drop(work);
    heft__run_free(&work->run);
    for (uint32_t i = 0; work->weights && i < work->weights->nmemories; i++)
        if (work->weights->memories[i].arena) heft__host_arena_settle(work->weights->memories[i].arena);
    if (work->ring) heft__host_arena_settle(work->ring);
    double now = heft__os_seconds();
    uint64_t minor, major;
    heft__os_faults(&minor, &major);
    s->read_seconds = now - work->read_started;
    s->total_seconds = now - work->started + s->resolve_seconds + s->filter_seconds + s->plan_seconds;
    s->minor_faults = minor - work->minor_faults;
    s->major_faults = major - work->major_faults;
    s->requested_nbytes = result.counters.nbytes;
    s->requests = result.counters.requests;
    s->short_reads = result.counters.short_reads;
    s->retries = result.counters.retries;
    s->fallbacks = result.fallbacks;
    s->workers = result.workers;
    if (status != HEFT_OK) return status;
    s->kept_nbytes = work->plan->sum.kept_nbytes;
    s->over_read_nbytes = work->plan->sum.over_read_nbytes;
    s->spanned_nbytes = work->plan->sum.spanned_nbytes;
    return HEFT_OK;
}

heft_status heft__load_go(heft__load_work *work, heft_status status, heft_error *err) {
    heft__running *run = &work->run;
    if (status == HEFT_OK) status = run->kind->submit(run->engine, HEFT__LANE_WANTED, 0, work->plan->sum.nblocks, err);
    if (status == HEFT_OK) run->kind->reap(run->engine, NULL, 0);
    heft_status ended = heft__load_end(work, status == HEFT_OK ? err : NULL);
    return status == HEFT_OK ? ended : status;
}

void heft__load_describe(const heft_load_plan *load, uint64_t id, uint8_t *data, heft_loaded *out) {
    uint32_t file;
    const heft__entry *entry = heft__archive_entry(load->archive, id, &file);
    *out = (heft_loaded){.name = entry->name,
                         .name_len = entry->name_len,
                         .id = id,
                         .dtype = heft__load_dtype(&load->parts, entry, id),
                         .rank = entry->rank,
                         .data = data,
                         .file = file,
                         .stored_dtype = entry->dtype};
    out->shape = heft__load_part(load->archive, &load->parts, id, &out->nbytes);
}

heft_status heft__load_publish(heft__load_work *work, heft_error *err) {
    heft_weights *w = work->weights;
    const heft_load_plan *load = work->load;
    const heft_plan *plan = work->plan;
    uint64_t n = load->nkept;
    for (uint64_t i = 0; i < n && plan->nitems < n; i++) w->data[heft__load_kept(load, i)] = heft__load_nothing();
    for (uint64_t i = 0; i < plan->nitems; i++) {
        const heft__plan_item *item = &plan->items[i];
        w->data[item->id] = heft__load_item_data(work, item);
        if (item->mapped) w->states[item->id] |= HEFT__WEIGHTS_MAPPED;
    }
    for (uint64_t i = 0; w->held && i < n; i++) {
        uint32_t file;
        (void)heft__archive_entry(w->archive, heft__load_kept(load, i), &file);
        w->held[file]++;
    }
    w->count = n;
    w->nbytes = plan->sum.kept_nbytes;
    w->options = load->options;
    w->options.progress = NULL;
    w->options.arena = NULL;
    w->options.engine = load->engine;
    if (w->options.io == HEFT_IO_MAP) w->options.io = HEFT_IO_AUTO; /* what is read later is a copy */
    heft_status status = heft__load_parts_make(load->filter, &w->alloc, &w->parts, err);
    if (status == HEFT_OK && load->parts.dtypes) {
        uint64_t nbytes = w->archive->ntensors;
        w->parts.dtypes = heft__alloc(&w->alloc, nbytes);
        if (!w->parts.dtypes) return heft__fail_memory(err, nbytes);
        memcpy(w->parts.dtypes, load->parts.dtypes, nbytes);
    }
    return status == HEFT_OK ? heft__weights_defer(w, load->filter, err) : status;
}

/* ---- the whole load ---- */

heft_status heft_load_run(heft_load_plan *plan, heft_weights **out, heft_load_stats *stats, heft_error *err) {
    if (!plan || !out) return heft__fail_null(err, plan ? "out" : "plan");
    *out = NULL;
    heft_status status = heft__load_sample(plan, err);
    heft__load_work work = {.load = plan, .plan = plan->plan};
    if (status == HEFT_OK) status = heft__load_begin(&work, false, err);
    if (status == HEFT_OK) {
        status = heft__load_go(&work, HEFT_OK, err);
        if (status == HEFT_OK) status = heft__load_publish(&work, err);
        if (status == HEFT_OK && plan->options.verify) status = heft__load_verify(&work, err);
        if (status == HEFT_OK) {
            *out = work.weights;
            work.weights = NULL;
        }
        heft__load_release(&work);
    }
    heft__load_tell(&work, stats);
    return status;
}

heft_status heft_load(const heft_archive *archive, const heft_load_options *options, heft_weights **out,
                      heft_load_stats *stats, heft_error *err) {
    heft_load_plan *plan;
    if (!out) return heft__fail_null(err, "out");
    *out = NULL;
    heft_status status = heft_load_plan_new(archive, options, &plan, err);
    if (status != HEFT_OK) {
        heft__load_work none = {0};
        heft__load_tell(&none, stats);
        return status;
    }
    status = heft_load_run(plan, out, stats, err);
    heft_load_plan_free(plan);
    return status;
}
