/* ops: joins plan, engine and device: blocks get their addresses, steps their meaning, failures their tensor. */
#include "ops/run.h"

#include "base/error.h"
#include "base/text.h"
#include "dtype/cast.h"
#include "source/source_advise.h"
#include "source/source_direct.h"

#include <stdio.h>
#include <string.h>

static uint8_t *run_place(const heft__running *job, const heft__plan_item *item) {
    return job->slots[item->slot] + item->place;
}

static const heft__plan_item *run_item(const heft__running *job, const heft__task *task) {
    return &job->plan->items[job->plan->runs[task->block.run].first_item];
}

/* Of a request that ends at `end`, the bytes that must come: a direct one may reach beyond the end of the file. */
static uint64_t run_needed(const heft__task *task, uint64_t end) {
    uint64_t stop = task->block.offset + task->block.needed;
    return (end < stop ? end : stop) - task->offset;
}

/* Plain items: a vector a piece. state: where the next request starts, and the item there. */
static bool run_scatter(const void *ctx, heft__task *task, heft_status *status, heft_error *err) {
    (void)status, (void)err;
    const heft__running *job = ctx;
    const heft__plan_run *run = &job->plan->runs[task->block.run];
    uint64_t end = task->block.offset + task->block.nbytes, *at = &task->state[0], *item = &task->state[1], n;
    if (*at == 0) {
        *at = task->block.offset;
        *item = heft__plan_item_at(job->plan, run, *at);
    }
    if (*at >= task->block.offset + task->block.needed) return false;
    task->offset = *at;
    task->nvec = 0;
    while (*at < end) {
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
        else if (task->nvec == HEFT__VEC_MAX)
            break;
        else
            task->vec[task->nvec++] = (heft__vec){base, (size_t)n};
        *item = next;
        *at += n;
    }
    task->nbytes = *at - task->offset;
    task->needed = run_needed(task, *at);
    return true;
}

/* What the cast refused, by the number of the element in its tensor as the file has it. `first`: of the first one, after the
 * item's offset. */
static heft_status run_refuse(const heft__running *job, const heft__plan_item *item, uint64_t first,
                              const heft__refusal *refusal, heft_error *err) {
    const heft__plan_nest *nest = &job->plan->nests[item->nest];
    const heft__plan_source *source = &job->plan->sources[item->source];
    uint32_t file;
    const heft__entry *entry = heft__archive_entry(source->archive, item->id, &file);
    uint64_t at = item->offset + first - heft__entry_offset(source->archive->files[file], entry);
    for (uint32_t d = 0; d < nest->rank; d++)
        at += refusal->steps[d] * (uint64_t)heft__plan_loops(job->plan, nest)[d].loop.src;
    heft__cast cast;
    heft__cast_find(nest->from, nest->to, job->plan->cast_flags, &cast);
    heft_status status = heft__cast_fail(&cast, refusal->element, at / nest->unit, err);
    heft__error_name(err, source->archive, item->id);
    return status;
}

/* Elements of an item, in loops over scratch, to `to`; the first one lies `first` bytes after the item's offset. */
static heft_status run_convert(const heft__running *job, const heft__plan_item *item, const heft__loop *loops, uint64_t first,
                               uint8_t *to, const uint8_t *from, heft_error *err) {
    const heft__plan_nest *nest = &job->plan->nests[item->nest];
    heft__refusal refusal;
    bool stream = !job->plan->ring && job->plan->sum.kept_nbytes >= HEFT__PLAN_STREAM;
    heft__conversion how = {nest->from, nest->to, job->plan->cast_flags | (stream ? HEFT__CAST_STREAM : 0)};
    if (heft__convert_loops(to, from, loops, nest->rank, nest->swap, &how, &refusal)) return HEFT_OK;
    return run_refuse(job, item, first, &refusal, err);
}

/* Items that are small: one request to scratch, then a copy a piece, or a cast an item, which is whole then. state: whether it
 * has been read. */
static bool run_gather(const void *ctx, heft__task *task, heft_status *status, heft_error *err) {
    const heft__running *job = ctx;
    const heft__plan_run *run = &job->plan->runs[task->block.run];
    uint64_t at = task->block.offset, end = at + task->block.nbytes, n;
    if (task->state[0]++ == 0) {
        task->vec[0] = (heft__vec){task->scratch, (size_t)task->block.nbytes};
        task->nvec = 1;
        task->offset = at;
        task->nbytes = task->block.nbytes;
        task->needed = task->block.needed;
        return true;
    }
    uint64_t item = heft__plan_item_at(job->plan, run, at);
    for (; at < end && *status == HEFT_OK; at += n) {
        int64_t place;
        uint32_t slot;
        const heft__plan_item *it = &job->plan->items[item];
        const uint8_t *from = task->scratch + (at - task->block.offset);
        if (!heft__plan_piece(job->plan, run, at, end, &item, &n, &place, &slot)) continue;
        if (it->nest == HEFT__PLAN_NONE || at < it->offset || at >= it->offset + it->nbytes)
            memcpy(job->slots[slot] + place, from, (size_t)n);
        else {
            const heft__plan_loop *loop = heft__plan_loops(job->plan, &job->plan->nests[it->nest]);
            *status = run_convert(job, it, loop ? &loop->loop : NULL, 0, run_place(job, it), from, err);
        }
    }
    return false;
}

/* A box straight to its places. state: units done. */
static bool run_nest_scatter(const void *ctx, heft__task *task, heft_status *status, heft_error *err) {
    (void)status, (void)err;
    const heft__running *job = ctx;
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

/* One request of a nest to `to`; a direct one is rounded out. Returns how far after `to` its first byte then lies. */
static uint64_t run_nest_request(const heft__running *job, heft__task *task, const heft__plan_item *item, uint64_t src,
                                 uint64_t span, uint8_t *to) {
    const heft__plan_nest *nest = &job->plan->nests[item->nest];
    uint64_t begin, end, first;
    heft__nest_range(nest, item, src, span, &begin, &end);
    first = begin;
    task->needed = end;
    if (task->direct) heft__plan_round(&job->plan->sources[item->source], &begin, &end);
    task->offset = begin;
    task->nbytes = end - begin;
    task->needed -= begin;
    task->vec[0] = (heft__vec){to, (size_t)task->nbytes};
    task->nvec = 1;
    return first - begin;
}

/* The bytes of a box, which are in scratch from `from` on, to their places. */
static heft_status run_nest_land(const heft__running *job, const heft__plan_item *item, heft__box *box,
                                 const uint8_t *from, heft_error *err) {
    const heft__plan_nest *nest = &job->plan->nests[item->nest];
    int64_t step = (int64_t)box->span; /* in scratch the requests lie back to back */
    for (uint32_t d = nest->level; d-- > 0;) {
        box->loops[d].src = step;
        step *= (int64_t)box->loops[d].count;
    }
    uint8_t *to = run_place(job, item) + box->dst;
    if (!nest->to) {
        heft__copy_loops(to, from, box->loops, nest->rank, (size_t)box->unit, nest->swap);
        return HEFT_OK;
    }
    return run_convert(job, item, box->loops, box->src, to, from, err);
}

/* A batch of boxes through scratch. state: requests of the box that are done, where the bytes of the last one start, boxes
 * that are done. */
static bool run_nest_gather(const void *ctx, heft__task *task, heft_status *status, heft_error *err) {
    const heft__running *job = ctx;
    const heft__plan_item *item = run_item(job, task);
    const heft__plan_nest *nest = &job->plan->nests[item->nest];
    uint64_t first = task->block.part * nest->batch, *reads = &task->state[0], *boxes = &task->state[2];
    for (; *boxes < nest->batch && first + *boxes < nest->nboxes; ++*boxes, *reads = 0) {
        heft__box box;
        heft__nest_box(job->plan, nest, first + *boxes, &box);
        if (*reads < box.nreads) {
            uint64_t src;
            int64_t dst;
            heft__nest_read(nest, &box, *reads, &src, &dst);
            task->state[1] = run_nest_request(job, task, item, src, box.span, task->scratch + *reads * box.span);
            ++*reads;
            return true;
        }
        *status = run_nest_land(job, item, &box, task->scratch + task->state[1], err);
        if (*status != HEFT_OK) return false;
    }
    return false;
}

/* All boxes of a sub-byte nest, one after another: neighbours share bytes of the destination. state: boxes read, and
 * where the bytes of the last one start. */
static bool run_nest_bits(const void *ctx, heft__task *task, heft_status *status, heft_error *err) {
    (void)status, (void)err;
    const heft__running *job = ctx;
    const heft__plan_item *item = run_item(job, task);
    const heft__plan_nest *nest = &job->plan->nests[item->nest];
    uint8_t *place = run_place(job, item);
    heft__box box;
    if (task->state[0] > 0) {
        heft__nest_box(job->plan, nest, task->state[0] - 1, &box);
        heft__copy_bits(place, nest->dst_bit + box.dst, task->scratch + task->state[1],
                        (nest->src_bit + (int64_t)box.src) % 8, box.loops, nest->rank, box.unit);
    } else
        place[nest->kept - 1] = 0; /* bits behind the last element */
    if (task->state[0] == nest->nboxes) return false;
    heft__nest_box(job->plan, nest, task->state[0]++, &box);
    task->state[1] = run_nest_request(job, task, item, box.src, box.span, task->scratch);
    return true;
}

/* By heft__plan_step, PLAIN left out. */
static const heft__step run_steps[] = {run_scatter, run_gather, run_nest_scatter, run_nest_gather, run_nest_bits};

static bool run_asks(const heft__running *run, uint32_t number) {
    const heft__plan_source *source = &run->plan->sources[number];
    heft__fs_class fs_class = source->facts.fs_class;
    bool far = fs_class == HEFT__FS_NETWORK || fs_class == HEFT__FS_USER_SPACE;
    return source->path == HEFT_PATH_BUFFERED && (far || run->ahead_local);
}

/* Asks for the pages of what a block of a nest reads, request by request. */
static void run_ask_nest(const heft__running *run, const heft__plan_block *block) {
    const heft_plan *plan = run->plan;
    const heft__plan_item *item = &plan->items[plan->runs[block->run].first_item];
    const heft__plan_nest *nest = &plan->nests[item->nest];
    uint64_t first = block->part * nest->batch;
    for (uint64_t i = first; i < nest->nboxes && i - first < nest->batch; i++) {
        heft__box box;
        heft__nest_box(plan, nest, i, &box);
        for (uint64_t r = 0; r < box.nreads; r++) {
            uint64_t src, begin, end;
            int64_t dst;
            heft__nest_read(nest, &box, r, &src, &dst);
            heft__nest_range(nest, item, src, box.span, &begin, &end);
            heft__source_advise(plan->sources[item->source].source, begin, end - begin, HEFT__ADVICE_WANTED);
        }
    }
}

/* Asks for the pages of blocks up to `ahead` beyond the one that begins now. Each is asked for once, by whoever comes.
 */
static void run_ask(heft__running *run, uint64_t number) {
    uint64_t next = atomic_load_explicit(&run->asked, memory_order_relaxed), end = number + 1 + run->ahead;
    if (end > run->plan->sum.nblocks) end = run->plan->sum.nblocks;
    while (next < end) {
        uint64_t until = next + 1;
        if (!atomic_compare_exchange_weak(&run->asked, &next, until)) continue;
        heft__plan_block block;
        heft__plan_block_at(run->plan, next, &block);
        if (block.way == HEFT__PLAN_READ && run_asks(run, block.channel)) {
            if (heft__plan_run_nest(run->plan, &run->plan->runs[block.run])) run_ask_nest(run, &block);
            heft__source_advise(run->plan->sources[block.channel].source, block.offset, block.nbytes,
                                HEFT__ADVICE_WANTED);
        }
        next = until;
    }
}

static void run_block(const void *ctx, uint64_t number, heft__block *out) {
    const heft__running *job = ctx;
    heft__plan_block block;
    heft__plan_block_at(job->plan, number, &block);
    *out = (heft__block){.channel = block.channel,
                         .step = block.step == HEFT__PLAN_PLAIN ? HEFT__STEP_NONE : (uint32_t)block.step - 1,
                         .kind = block.way == HEFT__PLAN_DIRECT  ? HEFT__BLOCK_DIRECT
                                 : block.way == HEFT__PLAN_TOUCH ? HEFT__BLOCK_TOUCH
                                                                 : HEFT__BLOCK_READ,
                         .offset = block.offset,
                         .nbytes = block.nbytes,
                         .needed = block.needed,
                         .run = block.run,
                         .part = block.part};
    if (block.step == HEFT__PLAN_PLAIN && block.way != HEFT__PLAN_TOUCH)
        out->dst = job->slots[block.slot] + block.place;
    if (job->ahead) run_ask((heft__running *)(uintptr_t)job, number);
}

static heft_status run_done(const void *ctx, uint64_t number, heft_error *err) {
    const heft__running *job = ctx;
    return job->done(job->done_ctx, number, err);
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
    const heft__plan_source *s = &plan->sources[source];
    for (uint64_t i = s->first_item; i < s->first_item + s->nitems; i++)
        if (plan->items[i].offset + plan->items[i].nbytes > end) return &plan->items[i];
    return NULL;
}

/* A source that changed since it was opened is not read. If it lost bytes that are wanted, that is what is said. */
static heft_status run_verify(const heft_plan *plan, heft_error *err) {
    heft_error found;
    for (uint32_t number = 0; number < plan->nsources; number++) {
        if (plan->sources[number].nitems == 0) continue;
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
    if (!err || result->failed_block == HEFT_NONE || result->failed_offset == HEFT_NONE) return;
    const heft__plan_item *item = &plan->items[heft__plan_blame(plan, result->failed_block, result->failed_offset)];
    heft__error_name(err, plan->sources[item->source].archive, item->id);
}

/* ---- channels ---- */

static heft_status run_open_direct(heft__channel *channel, const heft__plan_source *source, heft_error *err) {
    heft_error refused;
    channel->direct_align = source->direct_align;
    heft_status status = heft__source_direct_open(source->source, &channel->direct_fd, &refused);
    if (status == HEFT_OK) return HEFT_OK;
    channel->direct_fd = -1;
    if (status == HEFT_UNSUPPORTED) { /* the same ranges through the page cache */
        atomic_store(&channel->fallback, refused.sys_errno ? refused.sys_errno : -1);
        return HEFT_OK;
    }
    if (err) *err = refused;
    return status;
}

/* A file that is brought in whole, from front to back. */
static bool run_in_order(const heft_plan *plan, const heft__plan_mapping *mapping) {
    const heft__plan_source *source = &plan->sources[mapping->source];
    return source->touch && mapping->nbytes >= source->source->size;
}

static heft_status run_open_channels(heft__running *run, heft_error *err) {
    const heft_plan *plan = run->plan;
    uint64_t nbytes = (plan->nsources + plan->nmappings) * sizeof *run->channels;
    run->nchannels = (uint32_t)(plan->nsources + plan->nmappings);
    run->channels = heft__alloc_zero(&plan->alloc, nbytes);
    if (!run->channels) return heft__fail_memory(err, nbytes);
    heft_status status = HEFT_OK;
    for (uint32_t i = 0; i < run->nchannels; i++) run->channels[i].direct_fd = -1;
    for (uint32_t i = 0; i < plan->nsources && status == HEFT_OK; i++) {
        heft__channel *channel = &run->channels[i];
        const heft__plan_source *source = &plan->sources[i];
        channel->source = source->source;
        channel->drop = run->drop && source->source->fd >= 0;
        if (run->ahead && source->nruns && run_asks(run, i))
            heft__source_advise(source->source, 0, source->source->size, HEFT__ADVICE_IN_ORDER);
        if (source->path == HEFT_PATH_DIRECT && source->nruns) status = run_open_direct(channel, source, err);
    }
    for (uint32_t i = 0; i < plan->nmappings; i++) {
        heft__channel *channel = &run->channels[plan->nsources + i];
        channel->source = plan->sources[plan->mappings[i].source].source;
        channel->mapping = run->mappings[i];
        if (run_in_order(plan, &plan->mappings[i])) heft__mapping_advise(channel->mapping, HEFT__ADVICE_IN_ORDER);
    }
    return status;
}

void heft__run_free(heft__running *run) {
    const heft_plan *plan = run->plan;
    if (!run->channels) return;
    for (uint32_t i = 0; i < run->nchannels; i++)
        if (run->channels[i].direct_fd >= 0) heft__source_direct_close(run->channels[i].direct_fd);
    for (uint32_t i = 0; i < plan->nmappings; i++) /* whoever has it now reads it as he likes */
        if (run_in_order(plan, &plan->mappings[i])) heft__mapping_advise(run->mappings[i], HEFT__ADVICE_NORMAL);
    heft__free(&plan->alloc, run->channels, run->nchannels * sizeof *run->channels);
    run->channels = NULL;
}

/* ---- at work ---- */

heft_status heft__run_open(heft__running *run, heft_error *err) {
    const heft_plan *plan = run->plan;
    heft_status status = run_verify(plan, err);
    if (status == HEFT_OK) status = run_open_channels(run, err);
    atomic_init(&run->asked, 0);
    run->job =
        (heft__engine_job){.nblocks = plan->sum.nblocks,
                           .total_nbytes = plan->sum.requested_nbytes,
                           .block = run_block,
                           .done = run->done ? run_done : NULL,
                           .steps = plan->has_vectors ? run_steps : NULL,
                           .ctx = run,
                           .channels = run->channels,
                           .nchannels = run->nchannels,
                           .scratch_nbytes = (plan->scratch_nbytes + 4095) / 4096 * 4096, /* the dump lies behind it */
                           .dump_nbytes = plan->dump_nbytes,
                           .workers = plan->workers,
                           .ramp_from = plan->ramp_from,
                           .alloc = plan->alloc,
                           .progress = run->progress,
                           .progress_ctx = run->progress_ctx,
                           .progress_seconds = 0.05,
                           .collect = run->collect};
    if (status == HEFT_OK) status = run->kind->open(&run->job, &run->engine, err);
    if (status != HEFT_OK) heft__run_free(run);
    return status;
}

heft_status heft__run_close(heft__running *run, heft__engine_result *result, heft_error *err) {
    heft_status status = run->kind->close(run->engine, result, err);
    run->engine = NULL;
    if (status == HEFT_OK && run->strict) return run_verify(run->plan, err);
    if (status != HEFT_OK) run_name_failure(run->plan, result, err);
    return status;
}

heft_status heft__run(const heft_plan *plan, uint8_t *const *slots, heft_read_stats *stats, heft_error *err) {
    heft__engine_result result = {.failed_block = HEFT_NONE};
    heft__running run = {.plan = plan,
                         .slots = slots,
                         .kind = &heft__engine_pool,
                         .progress = plan->options.progress,
                         .progress_ctx = plan->options.progress_ctx};
    heft_status status = heft__run_open(&run, err);
    if (status == HEFT_OK) {
        status = run.kind->submit(run.engine, HEFT__LANE_WANTED, 0, plan->sum.nblocks, err);
        if (status == HEFT_OK) run.kind->reap(run.engine, NULL, 0);
        heft_status closed = heft__run_close(&run, &result, status == HEFT_OK ? err : NULL);
        if (status == HEFT_OK) status = closed;
        heft__run_free(&run);
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
        stats->spanned_nbytes = stats->requested_nbytes - plan->wanted - stats->over_read_nbytes;
    }
    return status;
}
