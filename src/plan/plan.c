/* plan: begins and ends the making of a plan: defaults in, sums out. */
#include "plan/plan.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/parallel.h"
#include "dtype/cast.h"

#include <string.h>

/* Room for `n` elements at once; a large array is asked for as one that gets huge pages: fresh 4 KiB pages are dear. */
static bool plan_reserve(const heft_allocator *alloc, void **array, uint64_t *capacity, uint64_t n,
                         size_t element_nbytes) {
    uint64_t nbytes;
    if (n == 0) return true;
    if (!heft__mul_u64(n, element_nbytes, &nbytes)) return false;
    if (nbytes > HEFT__HUGE_MIN / 4 && nbytes < HEFT__HUGE_MIN) n = HEFT__HUGE_MIN / element_nbytes + 1;
    *array = heft__alloc(alloc, n * element_nbytes);
    *capacity = *array ? n : 0;
    return *array != NULL;
}

heft_status heft__plan_new(const heft__plan_request *request, heft_plan **out, heft_error *err) {
    *out = NULL;
    if (request->nviews >= HEFT__PLAN_NONE)
        return heft__fail(err, HEFT_LIMIT, HEFT_FAULT_CALLER_LIMIT, "a plan takes at most 2^32 - 2 views");
    heft_plan *plan = heft__alloc_zero(&request->alloc, sizeof *plan);
    if (!plan) return heft__fail_memory(err, sizeof *plan);
    plan->alloc = request->alloc;
    heft_read_options *o = &plan->options;
    *o = request->options;
    o->allocator = NULL; /* a copy is in `alloc` */
    plan->gap_wished = o->gap_nbytes != 0;
    plan->view_gap = o->gap_nbytes ? o->gap_nbytes : HEFT__PLAN_VIEW_GAP;
    if (plan->view_gap == HEFT_NONE) plan->view_gap = 0;
    if (plan->view_gap > HEFT__PLAN_BLOCK) plan->view_gap = HEFT__PLAN_BLOCK;
    if (o->gap_nbytes == 0) o->gap_nbytes = HEFT__PLAN_GAP;
    if (o->block_nbytes == 0) o->block_nbytes = HEFT__PLAN_BLOCK;
    if (o->block_nbytes > HEFT__READ_MAX / 2) o->block_nbytes = HEFT__READ_MAX / 2; /* a tail may join it */
    if (o->block_nbytes > HEFT__PLAN_CUT) o->block_nbytes -= o->block_nbytes % HEFT__PLAN_CUT;
    plan->phase = request->phase % HEFT__PLAN_CUT;
    plan->scratch_most = request->scratch_most ? request->scratch_most : HEFT__PLAN_SCRATCH;
    plan->vector_min = request->vector_min ? request->vector_min : HEFT__PLAN_VECTOR_MIN;
    plan->unit_min = request->unit_min ? request->unit_min : HEFT__PLAN_UNIT_MIN;
    plan->workers = o->workers ? o->workers : request->default_workers;
    if (plan->workers > HEFT__PARALLEL_MOST) plan->workers = HEFT__PARALLEL_MOST;
    if (plan->workers == 0) plan->workers = 1;
    plan->scratch_share = HEFT__PLAN_SCRATCH_ALL / plan->workers;
    plan->page = 4096;
    plan->side_arena = HEFT__PLAN_NONE;
    plan->swap = request->host_is_big_endian && !o->keep_file_order;
    plan->swap_big = !request->host_is_big_endian || o->keep_file_order; /* what is kept is the order of most files */
    plan->as = o->dtype;
    plan->cast_flags = (o->saturate ? HEFT__CAST_SATURATE : 0) | (o->allow_inexact ? HEFT__CAST_INEXACT : 0);
    plan->layout = request->layout;
    plan->slots = request->slots;
    if (!plan_reserve(&plan->alloc, (void **)&plan->items, &plan->items_capacity, request->nviews,
                      sizeof *plan->items)) {
        heft_plan_free(plan);
        return heft__fail_memory(err, request->nviews * sizeof *plan->items);
    }
    *out = plan;
    return HEFT_OK;
}

/* Adds a run to the sums. */
static heft_status plan_sum_run(heft_plan *plan, heft__plan_run *run, heft_error *err) {
    heft_plan_summary *sum = &plan->sum;
    heft__plan_source *source = &plan->sources[run->source];
    const heft__plan_nest *nest = heft__plan_run_nest(plan, run);
    uint64_t requested = heft__plan_requested(plan, run), scratch = heft__plan_scratch(plan, source);
    run->first_block = sum->nblocks;
    if (!heft__add_u64(sum->nblocks, heft__plan_blocks_of(plan, run), &sum->nblocks) ||
        !heft__add_u64(sum->requested_nbytes, requested, &sum->requested_nbytes))
        return heft__fail(err, HEFT_LIMIT, HEFT_FAULT_CALLER_LIMIT, "the plan would read 2^64 bytes or more");
    source->requested += requested;
    *(nest ? &source->spanned : &source->over_read) += requested - run->kept;
    *(nest ? &sum->spanned_nbytes : &sum->over_read_nbytes) += requested - run->kept;
    if (run->kind == HEFT_RUN_GATHER) {
        uint64_t whole = run->nbytes + (run->direct ? 2 * (uint64_t)source->direct_align : 0);
        scratch = nest ? nest->box_nbytes : whole < scratch ? whole : scratch;
        if (scratch > plan->scratch_nbytes) plan->scratch_nbytes = scratch;
    }
    if (run->kind == HEFT_RUN_VECTOR) plan->dump_nbytes = HEFT__PLAN_DUMP;
    if ((nest && nest->scatter) || run->kind != HEFT_RUN_DIRECT) plan->has_vectors = true;
    return HEFT_OK;
}

/* Numbers the blocks that bring mappings in, after all others. */
static void plan_number_touches(heft_plan *plan) {
    plan->first_touch = plan->sum.nblocks;
    for (uint64_t i = 0; i < plan->nmappings; i++) {
        heft__plan_mapping *mapping = &plan->mappings[i];
        mapping->first_block = plan->sum.nblocks;
        if (!plan->sources[mapping->source].touch) continue;
        plan->sum.nblocks += (mapping->nbytes + HEFT__PLAN_WINDOW - 1) / HEFT__PLAN_WINDOW;
        plan->touch_nbytes += mapping->nbytes;
    }
}

heft_status heft__plan_finish(heft_plan *plan, heft_error *err) {
    heft_plan_summary *sum = &plan->sum;
    heft_status status = heft__plan_sort(plan, err);
    if (status == HEFT_OK) status = heft__plan_coalesce(plan, err);
    if (status == HEFT_OK) status = heft__plan_layout(plan, err);
    if (status == HEFT_OK) status = heft__plan_map(plan, err);
    sum->nruns = plan->nruns;
    for (uint64_t r = 0; status == HEFT_OK && r < plan->nruns; r++) status = plan_sum_run(plan, &plan->runs[r], err);
    if (status != HEFT_OK) return status;
    plan_number_touches(plan);
    if (plan->options.workers == 0 && sum->requested_nbytes < HEFT__PLAN_ONE_WORKER &&
        plan->touch_nbytes < HEFT__PLAN_ONE_WORKER)
        plan->workers = 1;
    if (plan->workers > sum->nblocks) plan->workers = (uint32_t)sum->nblocks;
    if (plan->workers == 0) plan->workers = 1;
    sum->workers = plan->workers;
    sum->scratch_nbytes = plan->workers * (plan->scratch_nbytes + plan->dump_nbytes);
    return HEFT_OK;
}

void heft_plan_free(heft_plan *plan) {
    if (!plan) return;
    heft_allocator alloc = plan->alloc;
    heft__free(&alloc, plan->sources, plan->sources_capacity * sizeof *plan->sources);
    heft__free(&alloc, plan->items, plan->items_capacity * sizeof *plan->items);
    heft__free(&alloc, plan->nests, plan->nests_capacity * sizeof *plan->nests);
    heft__free(&alloc, plan->loops, plan->loops_capacity * sizeof *plan->loops);
    heft__free(&alloc, plan->runs, plan->runs_capacity * sizeof *plan->runs);
    heft__free(&alloc, plan->arenas, plan->arenas_capacity * sizeof *plan->arenas);
    heft__free(&alloc, plan->mappings, plan->mappings_capacity * sizeof *plan->mappings);
    heft__free(&alloc, plan, sizeof *plan);
}
