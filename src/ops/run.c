/* ops: joins plan, engine and device: blocks get their addresses, steps their meaning, failures their tensor. */
#include "ops/run.h"

#include "base/error.h"
#include "base/text.h"

#include <stdio.h>
#include <string.h>

typedef struct run_job {
    const heft_plan *plan;
    uint8_t *const *slots;
} run_job;

enum { RUN_SCATTER, RUN_GATHER, RUN_NEST_SCATTER, RUN_NEST_GATHER, RUN_NEST_BITS, RUN_STEPS };

static uint8_t *run_place(const run_job *job, const heft__plan_item *item) {
    return job->slots[item->slot] + item->place;
}

static const heft__plan_item *run_item(const run_job *job, const heft__task *task) {
    return &job->plan->items[job->plan->runs[task->block.run].first_item];
}

/* Plain items: a vector a piece. state: where the next request starts, and the item there. */
static bool run_scatter(const void *ctx, heft__task *task, heft_status *status, heft_error *err) {
    (void)status, (void)err;
    const run_job *job = ctx;
    const heft__plan_run *run = &job->plan->runs[task->block.run];
    uint64_t end = task->block.offset + task->block.nbytes, *at = &task->state[0], *item = &task->state[1], n;
    if (*at == 0) {
        *at = task->block.offset;
        *item = heft__plan_item_at(job->plan, run, *at);
    }
    task->offset = *at;
    task->nvec = 0;
    while (*at < end && task->nvec < HEFT__VEC_MAX) {
        int64_t place;
        uint32_t slot;
        uint64_t next = *item;
        uint8_t *base;
        if (heft__plan_piece(job->plan, run, *at, end, &next, &n, &place, &slot))
            base = job->slots[slot] + place;
        else {
            base = task->dump;
            if (n > HEFT__PLAN_DUMP) n = HEFT__PLAN_DUMP;
        }
        heft__vec *last = task->nvec ? &task->vec[task->nvec - 1] : NULL;
        if (last && base != task->dump && (uint8_t *)last->base + last->nbytes == base)
            last->nbytes += (size_t)n;
        else
            task->vec[task->nvec++] = (heft__vec){base, (size_t)n};
        *item = next;
        *at += n;
    }
    task->nbytes = *at - task->offset;
    return task->nbytes > 0;
}

/* Plain items that are small: one request to scratch, then a copy a piece. state: whether it has been read. */
static bool run_gather(const void *ctx, heft__task *task, heft_status *status, heft_error *err) {
    (void)status, (void)err;
    const run_job *job = ctx;
    const heft__plan_run *run = &job->plan->runs[task->block.run];
    uint64_t at = task->block.offset, end = at + task->block.nbytes, n;
    if (task->state[0]++ == 0) {
        task->vec[0] = (heft__vec){task->scratch, (size_t)task->block.nbytes};
        task->nvec = 1;
        task->offset = at;
        task->nbytes = task->block.nbytes;
        return true;
    }
    uint64_t item = heft__plan_item_at(job->plan, run, at);
    for (; at < end; at += n) {
        int64_t place;
        uint32_t slot;
        if (heft__plan_piece(job->plan, run, at, end, &item, &n, &place, &slot))
            memcpy(job->slots[slot] + place, task->scratch + (at - task->block.offset), (size_t)n);
    }
    return false;
}

/* A box straight to its places. state: units done. */
static bool run_nest_scatter(const void *ctx, heft__task *task, heft_status *status, heft_error *err) {
    (void)status, (void)err;
    const run_job *job = ctx;
    const heft__plan_item *item = run_item(job, task);
    const heft__plan_nest *nest = &job->plan->nests[item->nest];
    heft__box box;
    heft__nest_box(job->plan, nest, task->block.part, &box);
    uint64_t units = 1, src;
    for (uint32_t d = 0; d < nest->rank; d++) units *= box.loops[d].count;
    if (task->state[0] == units) return false;
    task->nvec = heft__nest_vectors(nest, &box, &task->state[0], run_place(job, item), task->dump, task->vec, &src,
                                    &task->nbytes);
    task->offset = item->offset + src;
    return true;
}

/* A box through scratch. state: requests done. */
static bool run_nest_gather(const void *ctx, heft__task *task, heft_status *status, heft_error *err) {
    (void)status, (void)err;
    const run_job *job = ctx;
    const heft__plan_item *item = run_item(job, task);
    const heft__plan_nest *nest = &job->plan->nests[item->nest];
    heft__box box;
    heft__nest_box(job->plan, nest, task->block.part, &box);
    if (task->state[0] < box.nreads) {
        uint64_t src;
        int64_t dst;
        heft__nest_read(nest, &box, task->state[0], &src, &dst);
        task->vec[0] = (heft__vec){task->scratch + task->state[0] * box.span, (size_t)box.span};
        task->nvec = 1;
        task->offset = item->offset + src;
        task->nbytes = box.span;
        task->state[0]++;
        return true;
    }
    int64_t step = (int64_t)box.span; /* in scratch the requests lie back to back */
    for (uint32_t d = nest->level; d-- > 0;) {
        box.loops[d].src = step;
        step *= (int64_t)box.loops[d].count;
    }
    heft__copy_loops(run_place(job, item) + box.dst, task->scratch, box.loops, nest->rank, (size_t)box.unit,
                     nest->swap);
    return false;
}

/* All boxes of a sub-byte nest, one after another: neighbours share bytes of the destination. state: boxes read. */
static bool run_nest_bits(const void *ctx, heft__task *task, heft_status *status, heft_error *err) {
    (void)status, (void)err;
    const run_job *job = ctx;
    const heft__plan_item *item = run_item(job, task);
    const heft__plan_nest *nest = &job->plan->nests[item->nest];
    uint8_t *place = run_place(job, item);
    heft__box box;
    if (task->state[0] > 0) {
        heft__nest_box(job->plan, nest, task->state[0] - 1, &box);
        heft__copy_bits(place, nest->dst_bit + box.dst, task->scratch, (nest->src_bit + (int64_t)box.src) % 8,
                        box.loops, nest->rank, box.unit);
    } else
        place[nest->kept - 1] = 0; /* bits behind the last element */
    if (task->state[0] == nest->nboxes) return false;
    heft__nest_box(job->plan, nest, task->state[0]++, &box);
    uint64_t first = (uint64_t)nest->src_bit + box.src;
    task->offset = item->offset + first / 8;
    task->nbytes = (first + box.span + 7) / 8 - first / 8;
    task->vec[0] = (heft__vec){task->scratch, (size_t)task->nbytes};
    task->nvec = 1;
    return true;
}

static const heft__step run_steps[RUN_STEPS] = {run_scatter, run_gather, run_nest_scatter, run_nest_gather,
                                                run_nest_bits};

static void run_block(const void *ctx, uint64_t number, heft__block *out) {
    const run_job *job = ctx;
    const heft_plan *plan = job->plan;
    heft__plan_locate(plan, number, &out->run, &out->part);
    const heft__plan_run *run = &plan->runs[out->run];
    const heft__plan_item *item = &plan->items[run->first_item];
    out->channel = run->source;
    if (item->nest != HEFT__PLAN_NONE) {
        const heft__plan_nest *nest = &plan->nests[item->nest];
        out->step = nest->bits ? RUN_NEST_BITS : nest->scatter ? RUN_NEST_SCATTER : RUN_NEST_GATHER;
        return;
    }
    uint64_t end;
    heft__plan_cut(plan, run, out->part, &out->offset, &end);
    out->nbytes = end - out->offset;
    out->step = run->kind == HEFT_RUN_VECTOR   ? RUN_SCATTER
                : run->kind == HEFT_RUN_GATHER ? RUN_GATHER
                                               : HEFT__STEP_NONE;
    if (out->step == HEFT__STEP_NONE) out->dst = run_place(job, item) + (out->offset - run->offset);
}

void heft__error_name(heft_error *err, const heft_archive *archive, uint64_t id) {
    if (!err) return;
    uint32_t file;
    const heft__entry *entry = heft__archive_entry(archive, id, &file);
    char name[160], text[sizeof err->message + sizeof name + 16];
    heft__escape(name, sizeof name, entry->name, entry->name_len);
    snprintf(text, sizeof text, "%s, in tensor \"%s\"", err->message, name);
    heft__copy_text(err->message, sizeof err->message, text, strlen(text)); /* cut between characters, if at all */
    heft__error_tensor(err, entry->name, entry->name_len);
    heft__error_file(err, archive->files[file]->source->label);
}

/* The first item of a source that needs bytes from `end` on, or NULL. Items are in file order, so their ends nearly
 * are. */
static const heft__plan_item *run_first_beyond(const heft_plan *plan, uint32_t source, uint64_t end) {
    for (uint64_t i = 0; i < plan->nitems; i++) {
        const heft__plan_item *item = &plan->items[i];
        if (item->source == source && item->offset + item->nbytes > end) return item;
    }
    return NULL;
}

/* A source that changed since it was opened is not read. If it lost bytes that are wanted, that is what is said. */
static heft_status run_verify(const heft_plan *plan, heft_error *err) {
    uint32_t last = UINT32_MAX;
    heft_error found;
    for (uint64_t r = 0; r < plan->nruns; r++) {
        uint32_t number = plan->runs[r].source;
        if (number == last) continue;
        last = number;
        heft_source *source = plan->sources[number].source;
        heft_status status = heft__source_verify(source, &found);
        if (status == HEFT_OK) continue;
        const heft__plan_item *item = NULL;
        if (status == HEFT_MISMATCH && found.found < found.expected) {
            uint64_t size = found.found > source->window_offset ? found.found - source->window_offset : 0;
            item = run_first_beyond(plan, number, size);
            if (item) {
                status = heft__fail_truncated(&found, source, item->offset, item->nbytes,
                                              size > item->offset ? size - item->offset : 0);
                heft__error_name(&found, plan->sources[number].archive, item->id);
            }
        }
        if (err) *err = found;
        return status;
    }
    return HEFT_OK;
}

/* From the byte that could not be read to the tensor that has it. */
static void run_name_failure(const heft_plan *plan, const heft__engine_result *result, heft_error *err) {
    uint64_t r, part;
    if (!err || result->failed_block == HEFT_NONE) return;
    heft__plan_locate(plan, result->failed_block, &r, &part);
    const heft__plan_run *run = &plan->runs[r];
    uint64_t item = run->nitems > 1 ? heft__plan_item_at(plan, run, result->failed_offset) : run->first_item;
    heft__error_name(err, plan->sources[run->source].archive, plan->items[item].id);
}

heft_status heft__run(const heft_plan *plan, uint8_t *const *slots, heft_read_stats *stats, heft_error *err) {
    run_job job = {plan, slots};
    heft__engine_result result = {.failed_block = HEFT_NONE};
    heft_status status = run_verify(plan, err);
    uint64_t nbytes = plan->nsources * sizeof(heft__channel);
    heft__channel *channels = status == HEFT_OK ? heft__alloc_zero(&plan->alloc, nbytes) : NULL;
    if (status == HEFT_OK && !channels) status = heft__fail_memory(err, nbytes);
    if (channels) {
        for (uint64_t i = 0; i < plan->nsources; i++) {
            channels[i].source = plan->sources[i].source;
            channels[i].direct_fd = -1;
        }
        heft__engine_job engine_job = {.nblocks = plan->sum.nblocks,
                                       .total_nbytes = plan->sum.requested_nbytes,
                                       .block = run_block,
                                       .steps = plan->has_vectors ? run_steps : NULL,
                                       .ctx = &job,
                                       .channels = channels,
                                       .nchannels = (uint32_t)plan->nsources,
                                       .scratch_nbytes = plan->scratch_nbytes,
                                       .dump_nbytes = plan->dump_nbytes,
                                       .workers = plan->workers,
                                       .alloc = plan->alloc,
                                       .progress = plan->options.progress,
                                       .progress_ctx = plan->options.progress_ctx,
                                       .progress_seconds = 0.05};
        status = heft__engine_run(&heft__engine_pool, &engine_job, &result, err);
        if (status != HEFT_OK) run_name_failure(plan, &result, err);
        heft__free(&plan->alloc, channels, nbytes);
    }
    if (!stats) return status;
    *stats = (heft_read_stats){.requested_nbytes = result.counters.nbytes,
                               .requests = result.counters.requests,
                               .short_reads = result.counters.short_reads,
                               .retries = result.counters.retries,
                               .workers = result.workers};
    if (status == HEFT_OK) {
        stats->kept_nbytes = plan->sum.kept_nbytes;
        stats->over_read_nbytes = plan->sum.over_read_nbytes;
        stats->spanned_nbytes = stats->requested_nbytes - stats->kept_nbytes - stats->over_read_nbytes;
    }
    return status;
}
