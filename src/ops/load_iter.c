/* ops: an iterator over a load that goes on meanwhile: into arenas, or through a ring. */
#include "ops/load_ring.h"
#include "ops/load_run.h"

#include "base/error.h"
#include "base/os.h"
#include "base/text.h"
#include "device/device.h"

#include <string.h>

enum { ITER_REAP = 64 };
enum { ITER_READING, ITER_GIVEN, ITER_RELEASED };

struct heft_load_iter {
    heft__load_work work;
    heft_load_plan *load;
    uint64_t process; /* whose it is: its workers are in no child that is forked */
    heft_plan *own; /* of a ring; NULL: the load's */
    heft_load_order order;
    uint64_t nkept, given; /* of the sequence */
    uint32_t *sequence;    /* numbers, by name or in the order of completion; NULL: as they are */
    uint64_t ncomplete;    /* of a sequence by completion */
    uint32_t *left;        /* by item: blocks to go */
    uint64_t outstanding;  /* blocks submitted and not reaped */
    heft_status failed;
    bool ended; /* the run is closed */
    /* of a ring */
    heft_buffer memory;
    uint8_t *base;
    heft__ring ring;
    uint64_t ring_align;
    uint32_t *arena_run; /* by arena: its run */
    uint32_t *held;      /* by arena: tensors that were not released */
    uint8_t *states;     /* by number */
    uint64_t admitted;   /* of the sequence (by name), or of the runs */
    bool full;           /* nothing was released since the last chunk found no place */
};

/* ---- small things ---- */

/* The item of a tensor, or HEFT_NONE: it has no bytes. Items are in the order of ids. */
static uint64_t iter_item(const heft_load_iter *iter, uint64_t number) {
    const heft_plan *plan = iter->work.plan;
    uint64_t id = heft__load_kept(iter->load, number), low = 0, high = plan->nitems;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        if (plan->items[middle].id < id)
            low = middle + 1;
        else
            high = middle;
    }
    return low < plan->nitems && plan->items[low].id == id ? low : HEFT_NONE;
}

static void iter_complete(heft_load_iter *iter, uint64_t number) {
    if (iter->order == HEFT_LOAD_ORDER_COMPLETION) iter->sequence[iter->ncomplete++] = (uint32_t)number;
}

static heft_status iter_submit(heft_load_iter *iter, heft__lane lane, uint64_t first, uint64_t n, heft_error *err) {
    return iter->work.run.kind->submit(iter->work.run.engine, lane, first, n, err);
}

/* Waits for blocks and counts them. */
static void iter_reap(heft_load_iter *iter) {
    uint64_t numbers[ITER_REAP], n = iter->work.run.kind->reap(iter->work.run.engine, numbers, ITER_REAP);
    for (uint64_t i = 0; i < n; i++) {
        uint64_t first, items;
        heft__plan_block_items(iter->work.plan, numbers[i], &first, &items);
        for (uint64_t item = first; item < first + items; item++)
            if (--iter->left[item] == 0) iter_complete(iter, iter->work.plan->items[item].view);
    }
    if (n == 0) iter->outstanding = 0; /* failed or cancelled, or a fault of ours */
    iter->outstanding -= n;
}

/* Ends the run, at the end or after a failure. */
static heft_status iter_end(heft_load_iter *iter, heft_error *err) {
    iter->ended = true;
    iter->failed = heft__load_end(&iter->work, err);
    return iter->failed;
}

/* ---- the ring ---- */

static void iter_poison(void *data, uint64_t nbytes) {
#if !defined(NDEBUG)
    memset(data, 0xA5, (size_t)nbytes); /* who uses what he has released shall see it */
#else
    (void)data, (void)nbytes;
#endif
}

/* Gives an arena of the ring its chunk, and reads into it. False: no room now. */
static bool iter_admit_arena(heft_load_iter *iter, uint32_t arena, heft_status *status, heft_error *err) {
    const heft_plan *plan = iter->work.plan;
    if (!heft__ring_place(&iter->ring, arena, plan->arenas[arena].nbytes, plan->arenas[arena].align)) return false;
    const heft__plan_run *run = &plan->runs[iter->arena_run[arena]];
    iter->work.slots[arena] = iter->base + iter->ring.chunks[arena].begin;
    iter->held[arena] = (uint32_t)run->nitems;
    uint64_t blocks = heft__plan_blocks_of(plan, run);
    iter->outstanding += blocks;
    *status = iter_submit(iter, HEFT__LANE_SOON, run->first_block, blocks, err);
    return true;
}

/* Lets in what there is room for, in the order in which it will be wanted. */
static heft_status iter_admit(heft_load_iter *iter, heft_error *err) {
    const heft_plan *plan = iter->work.plan;
    heft_status status = HEFT_OK;
    bool by_name = iter->order == HEFT_LOAD_ORDER_NAME;
    uint64_t n = by_name ? iter->nkept : plan->nruns;
    while (status == HEFT_OK && !iter->full && iter->admitted < n) {
        uint64_t item =
            by_name ? iter_item(iter, iter->sequence[iter->admitted]) : plan->runs[iter->admitted].first_item;
        uint32_t arena = item == HEFT_NONE ? HEFT__RING_NONE : plan->items[item].slot;
        if (arena != HEFT__RING_NONE && !iter->work.slots[arena] && !iter_admit_arena(iter, arena, &status, err))
            iter->full = true;
        else
            iter->admitted++;
    }
    return status;
}

void heft_load_iter_release(heft_load_iter *iter, const heft_loaded *item) {
    if (!iter || !iter->states || !item || !item->item) return;
    uint64_t number = (uint64_t)(uintptr_t)item->item - 1;
    if (number >= iter->nkept || iter->states[number] != ITER_GIVEN) return;
    iter->states[number] = ITER_RELEASED;
    uint64_t index = iter_item(iter, number);
    if (index == HEFT_NONE) return;
    uint32_t arena = iter->work.plan->items[index].slot;
    iter_poison(item->data, item->nbytes);
    if (--iter->held[arena]) return;
    heft__ring_free(&iter->ring, arena);
    iter->full = false;
}

static heft_status iter_fail_full(heft_load_iter *iter, heft_error *err) {
    char ring[HEFT__SIZE_TEXT], used[HEFT__SIZE_TEXT];
    heft__fail(err, HEFT_LIMIT, HEFT_FAULT_CALLER_LIMIT,
               "the ring of %s has no room for the next tensor: %s are held by tensors that were not released",
               heft__size_exact(iter->ring.nbytes, ring), heft__size_exact(iter->ring.used, used));
    heft__error_at(err, HEFT_NONE, iter->ring.nbytes, iter->ring.used);
    return HEFT_LIMIT;
}

/* A ring that its largest tensor does not fit cannot go on. */
static heft_status iter_check_ring(const heft_load_iter *iter, uint64_t ring_nbytes, heft_error *err) {
    const heft_plan *plan = iter->work.plan;
    const heft__plan_arena *largest = NULL;
    uint64_t which = 0;
    for (uint64_t i = 0; i < plan->narenas; i++)
        if (!largest || plan->arenas[i].nbytes > largest->nbytes) {
            largest = &plan->arenas[i];
            which = i;
        }
    if (!largest || largest->nbytes <= ring_nbytes) return HEFT_OK;
    const heft__plan_item *item = &plan->items[plan->runs[iter->arena_run[which]].first_item];
    char ring[HEFT__SIZE_TEXT], needed[HEFT__SIZE_TEXT];
    heft__fail(err, HEFT_LIMIT, HEFT_FAULT_CALLER_LIMIT, "the ring has %s and the largest tensor needs %s",
               heft__size_exact(ring_nbytes, ring), heft__size_exact(largest->nbytes, needed));
    heft__error_at(err, HEFT_NONE, ring_nbytes, largest->nbytes);
    heft__error_name(err, iter->load->archive, item->id);
    return HEFT_LIMIT;
}

static heft_status iter_make_ring(heft_load_iter *iter, uint64_t ring_nbytes, heft_error *err) {
    const heft_allocator *alloc = &iter->load->alloc;
    uint32_t align = HEFT__HOST_ALIGN;
    heft_status status =
        heft__load_layout(iter->load, ring_nbytes, iter->order == HEFT_LOAD_ORDER_NAME, &iter->own, err);
    if (status != HEFT_OK) return status;
    const heft_plan *plan = iter->own;
    iter->work.plan = plan;
    if (plan->nmappings || iter->load->options.io == HEFT_IO_MAP) /* also if all lies beside mappings */
        return heft__fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL, "a ring needs copies, and io map makes none");
    iter->arena_run = heft__alloc(alloc, plan->narenas * sizeof *iter->arena_run);
    iter->held = heft__alloc_zero(alloc, plan->narenas * sizeof *iter->held);
    iter->ring.chunks = heft__alloc(alloc, plan->narenas * sizeof *iter->ring.chunks);
    iter->states = heft__alloc_zero(alloc, iter->nkept);
    if (!iter->arena_run || !iter->held || !iter->ring.chunks || !iter->states)
        return heft__fail_memory(err, plan->narenas * sizeof *iter->ring.chunks);
    for (uint64_t r = 0; r < plan->nruns; r++)
        iter->arena_run[plan->items[plan->runs[r].first_item].slot] = (uint32_t)r;
    for (uint64_t i = 0; i < plan->narenas; i++)
        if (plan->arenas[i].align > align) align = plan->arenas[i].align;
    iter->ring_align = align;
    iter->ring.nbytes = ring_nbytes;
    iter->ring.last = HEFT__RING_NONE;
    return iter_check_ring(iter, ring_nbytes, err);
}

/* ---- beginning and end ---- */

static heft_status iter_sort(heft_load_iter *iter, heft_error *err) {
    const heft_load_plan *load = iter->load;
    const uint64_t *ids, n = load->archive->ntensors;
    if (iter->order == HEFT_LOAD_ORDER_FILE) return HEFT_OK;
    iter->sequence = heft__alloc(&load->alloc, iter->nkept * sizeof *iter->sequence);
    if (!iter->sequence) return heft__fail_memory(err, iter->nkept * sizeof *iter->sequence);
    if (iter->order == HEFT_LOAD_ORDER_COMPLETION) return HEFT_OK;
    heft_status status = heft__archive_order(load->archive, HEFT_ORDER_NATURAL, &ids, err);
    if (status != HEFT_OK) return status;
    uint32_t *numbers = heft__alloc(&load->alloc, n * sizeof *numbers); /* by id */
    if (!numbers) return heft__fail_memory(err, n * sizeof *numbers);
    for (uint64_t i = 0; i < iter->nkept; i++) numbers[heft__load_kept(load, i)] = (uint32_t)i;
    for (uint64_t i = 0, to = 0; i < n; i++)
        if (heft_rule_outcome(heft__load_rule(load, ids[i])) == HEFT_OUTCOME_KEPT) iter->sequence[to++] = numbers[ids[i]];
    heft__free(&load->alloc, numbers, n * sizeof *numbers);
    return HEFT_OK;
}

static heft_status iter_count(heft_load_iter *iter, heft_error *err) {
    const heft_plan *plan = iter->work.plan;
    iter->left = heft__alloc(&iter->load->alloc, plan->nitems * sizeof *iter->left);
    if (!iter->left) return heft__fail_memory(err, plan->nitems * sizeof *iter->left);
    for (uint64_t i = 0, item = 0; i < iter->nkept; i++) {
        uint64_t first, blocks = 0;
        if (item < plan->nitems && plan->items[item].id == heft__load_kept(iter->load, i)) {
            heft__plan_item_blocks(plan, item, &first, &blocks);
            iter->left[item++] = (uint32_t)blocks;
        }
        if (blocks == 0) iter_complete(iter, i);
    }
    return HEFT_OK;
}

static heft_status iter_start(heft_load_iter *iter, uint64_t ring_nbytes, heft_error *err) {
    heft_status status = iter_sort(iter, err);
    if (status == HEFT_OK && ring_nbytes) status = iter_make_ring(iter, ring_nbytes, err);
    if (status == HEFT_OK) status = iter_count(iter, err);
    if (status != HEFT_OK) return status;
    iter->work.run.collect = true;
    status = heft__load_begin(&iter->work, ring_nbytes != 0, err);
    if (status != HEFT_OK) return status;
    iter->ended = false;
    if (ring_nbytes) {
        status =
            heft__load_memory_take(iter->load, ring_nbytes, iter->ring_align, &iter->work.ring, &iter->memory, err);
        iter->base = iter->memory.data;
        return status == HEFT_OK ? iter_admit(iter, err) : status;
    }
    iter->outstanding = iter->work.plan->sum.nblocks;
    return iter_submit(iter, HEFT__LANE_AHEAD, 0, iter->outstanding, err);
}

heft_status heft_load_iter_new(heft_load_plan *plan, heft_load_order order, uint64_t ring_nbytes, heft_load_iter **out,
                               heft_error *err) {
    if (!plan || !out) return heft__fail_null(err, plan ? "out" : "plan");
    *out = NULL;
    if (order > HEFT_LOAD_ORDER_COMPLETION)
        return heft__fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL, "%lu is no order of an iterator",
                          (unsigned long)order);
    if (plan->options.verify)
        return heft__fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL, "only a whole load can be verified, not an iterator");
    if (ring_nbytes > UINT64_MAX / 2)
        return heft__fail(err, HEFT_LIMIT, HEFT_FAULT_CALLER_LIMIT, "a ring of %llu bytes",
                          (unsigned long long)ring_nbytes);
    heft_load_iter *iter = heft__alloc_zero(&plan->alloc, sizeof *iter);
    if (!iter) return heft__fail_memory(err, sizeof *iter);
    iter->load = plan;
    iter->process = heft__os_process();
    iter->order = order;
    iter->work.load = plan;
    iter->ended = true; /* until it has begun */
    heft_status status = heft__load_sample(plan, err);
    iter->work.plan = plan->plan;
    iter->nkept = plan->nkept;
    if (status == HEFT_OK) status = iter_start(iter, ring_nbytes, err);
    if (status != HEFT_OK) {
        heft_load_iter_free(iter, NULL);
        return status;
    }
    *out = iter;
    return HEFT_OK;
}

void heft_load_iter_free(heft_load_iter *iter, heft_load_stats *stats) {
    if (!iter || heft__os_process_check(iter->process, "iterator", NULL) != HEFT_OK) return; /* the parent goes on */
    heft_allocator alloc = iter->load->alloc;
    uint64_t narenas = iter->own ? iter->own->narenas : 0;
    if (!iter->ended) {
        iter->work.run.kind->cancel(iter->work.run.engine);
        (void)iter_end(iter, NULL);
    }
    heft__load_release(&iter->work);
    heft__load_tell(&iter->work, stats);
    heft_buffer_release(&iter->memory);
    heft__free(&alloc, iter->sequence, iter->nkept * sizeof *iter->sequence);
    if (iter->left) heft__free(&alloc, iter->left, iter->work.plan->nitems * sizeof *iter->left);
    heft__free(&alloc, iter->arena_run, narenas * sizeof *iter->arena_run);
    heft__free(&alloc, iter->held, narenas * sizeof *iter->held);
    heft__free(&alloc, iter->ring.chunks, narenas * sizeof *iter->ring.chunks);
    heft__free(&alloc, iter->states, iter->nkept);
    heft_plan_free(iter->own);
    heft__free(&alloc, iter, sizeof *iter);
}

/* ---- the next tensor ---- */

static heft_status iter_fail_again(const heft_load_iter *iter, heft_error *err) {
    return heft__fail(err, iter->failed, HEFT_FAULT_CALL,
                      "the load has failed or was taken; the iterator can only be freed");
}

/* Waits until an item, or by completion any tensor, is in. */
static heft_status iter_wait(heft_load_iter *iter, uint64_t index, heft_error *err) {
    bool any = iter->order == HEFT_LOAD_ORDER_COMPLETION, wanted = false;
    heft_status status = HEFT_OK;
    while (any ? iter->ncomplete <= iter->given : index != HEFT_NONE && iter->left[index] > 0) {
        if (iter->states && (status = iter_admit(iter, err)) != HEFT_OK) break;
        if (iter->outstanding == 0) {
            status = iter_end(iter, err);
            if (status == HEFT_OK) status = iter_fail_full(iter, err);
            break;
        }
        if (!any && !wanted && (!iter->states || iter->work.slots[iter->work.plan->items[index].slot])) {
            uint64_t first, n;
            heft__plan_item_blocks(iter->work.plan, index, &first, &n);
            if ((status = iter_submit(iter, HEFT__LANE_WANTED, first, n, err)) != HEFT_OK) break;
            wanted = true;
        }
        iter_reap(iter);
    }
    iter->failed = status;
    return status;
}

heft_status heft_load_iter_next(heft_load_iter *iter, heft_loaded *out, heft_error *err) {
    memset(out, 0, sizeof *out);
    if (heft__os_process_check(iter->process, "iterator", err) != HEFT_OK) return HEFT_INVALID_ARGUMENT;
    if (iter->failed != HEFT_OK) return iter_fail_again(iter, err);
    if (iter->given == iter->nkept) return iter->ended ? HEFT_OK : iter_end(iter, err);
    bool any = iter->order == HEFT_LOAD_ORDER_COMPLETION;
    uint64_t number = 0, index = HEFT_NONE;
    if (!any) {
        number = iter->sequence ? iter->sequence[iter->given] : iter->given;
        index = iter_item(iter, number);
    }
    heft_status status = iter_wait(iter, index, err);
    if (status != HEFT_OK) return status;
    if (any) {
        number = iter->sequence[iter->given];
        index = iter_item(iter, number);
    }
    const heft__plan_item *item = index == HEFT_NONE ? NULL : &iter->work.plan->items[index];
    heft__load_describe(iter->load, heft__load_kept(iter->load, number),
                        item ? heft__load_item_data(&iter->work, item) : heft__load_nothing(), out);
    out->mapped = item && item->mapped;
    out->item = (void *)(uintptr_t)(number + 1);
    if (iter->states) iter->states[number] = ITER_GIVEN;
    iter->given++;
    return HEFT_OK;
}

heft_status heft_load_iter_take(heft_load_iter *iter, heft_weights **out, heft_error *err) {
    *out = NULL;
    if (heft__os_process_check(iter->process, "iterator", err) != HEFT_OK) return HEFT_INVALID_ARGUMENT;
    if (iter->states)
        return heft__fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL, "what went through a ring cannot be taken");
    if (iter->failed != HEFT_OK || !iter->work.weights) return iter_fail_again(iter, err);
    while (iter->outstanding) iter_reap(iter);
    heft_status status = iter->ended ? HEFT_OK : iter_end(iter, err);
    if (status == HEFT_OK) status = heft__load_publish(&iter->work, err);
    if (status == HEFT_OK) {
        *out = iter->work.weights;
        iter->work.weights = NULL;
    }
    iter->failed = status == HEFT_OK ? HEFT_INVALID_ARGUMENT : status;
    return status;
}
