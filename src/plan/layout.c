/* plan: where the bytes of runs land: in arenas that the plan sizes, as they lie in the file where that aligns them. */
#include "plan/plan.h"

#include "base/checked.h"
#include "base/error.h"

static heft_status layout_too_large(heft_error *err) {
    return heft__fail(err, HEFT_LIMIT, HEFT_FAULT_CALLER_LIMIT, "the tensors do not fit one destination");
}

/* The shift of a run's start that brings the most bytes to multiples of 64, the smallest of equal ones; a multiple of
 * what every tensor is to be aligned to. */
static uint64_t layout_shift(const heft_plan *plan, const heft__plan_run *run) {
    if (run->nitems == 1 || plan->items[run->first_item].nest != HEFT__PLAN_NONE) return 0;
    uint64_t weights[HEFT__HOST_ALIGN] = {0}, best = 0;
    for (uint64_t i = run->first_item; i < run->first_item + run->nitems; i++)
        weights[(run->offset - plan->items[i].offset) % HEFT__HOST_ALIGN] += plan->items[i].nbytes;
    for (uint64_t step = plan->align ? plan->align : 1, shift = step; shift < HEFT__HOST_ALIGN; shift += step)
        if (weights[shift] > weights[best]) best = shift;
    return best;
}

/* A run that is read buffered, or through scratch, lands as it lies in the file, so that it needs few vectors; a tensor
 * that would be misaligned, or that lies behind a large gap, starts anew at a multiple of 64. `*slack`: bytes of gaps
 * that may still lie in arenas. */
static heft_status layout_packed(const heft_plan *plan, const heft__plan_run *run, heft__plan_arena *arena,
                                 uint64_t *slack, heft_error *err) {
    uint64_t cursor = arena->nbytes;
    if (!heft__align_u64(cursor, HEFT__HOST_ALIGN, &cursor)) return layout_too_large(err);
    cursor += layout_shift(plan, run);
    for (uint64_t i = run->first_item; i < run->first_item + run->nitems; i++) {
        heft__plan_item *item = &plan->items[i];
        const heft__plan_item *before = i > run->first_item ? item - 1 : NULL;
        uint64_t align = heft__plan_align(plan, item), gap = 0, place;
        if (before && item->nest == HEFT__PLAN_NONE) gap = item->offset - (before->offset + before->nbytes);
        if (!heft__add_u64(cursor, gap, &place)) return layout_too_large(err);
        if (gap >= HEFT__PLAN_GAP_KEPT || gap > *slack || place % align) {
            if (align < HEFT__HOST_ALIGN) align = HEFT__HOST_ALIGN;
            if (!heft__align_u64(cursor, align, &place)) return layout_too_large(err);
            item->apart = item->apart || before;
        } else
            *slack -= gap;
        item->place = (int64_t)place;
        if (!heft__add_u64(place, heft__plan_held(plan, item), &cursor) || cursor > (uint64_t)INT64_MAX / 2)
            return layout_too_large(err);
        if (align > arena->align) arena->align = (uint32_t)align;
    }
    arena->nbytes = cursor;
    return HEFT_OK;
}

/* A run that is read by O_DIRECT straight to its place: places are congruent to offsets modulo the source's
 * `congruence`, whole pages of a gap are left out, and the pages at both ends are the run's alone. */
static heft_status layout_direct(const heft_plan *plan, const heft__plan_run *run, heft__plan_arena *arena,
                                 heft_error *err) {
    const heft__plan_source *source = &plan->sources[run->source];
    uint64_t mask = source->congruence - UINT64_C(1), begin = run->offset, end = run->offset + run->nbytes, cursor;
    heft__plan_round(source, &begin, &end);
    if (!heft__align_u64(arena->nbytes, source->congruence, &cursor)) return layout_too_large(err);
    uint64_t left_out = 0, base = cursor + (begin & mask);
    for (uint64_t i = run->first_item; i < run->first_item + run->nitems; i++) {
        heft__plan_item *item = &plan->items[i];
        const heft__plan_item *before = i > run->first_item ? item - 1 : NULL;
        if (before) {
            uint64_t from = (before->offset + before->nbytes + mask) & ~mask, to = item->offset & ~mask;
            if (to > from) left_out += to - from;
        }
        item->place = (int64_t)(base + (item->offset - begin) - left_out);
    }
    cursor = base + (end - begin) - left_out;
    if (cursor > (uint64_t)INT64_MAX / 2) return layout_too_large(err);
    arena->nbytes = cursor;
    if (source->congruence > arena->align) arena->align = source->congruence;
    return HEFT_OK;
}

static heft_run_kind layout_kind(const heft_plan *plan, const heft__plan_run *run) {
    const heft__plan_item *item = &plan->items[run->first_item];
    if (item->nest != HEFT__PLAN_NONE) {
        const heft__plan_nest *nest = heft__plan_run_nest(plan, run);
        if (!nest) return HEFT_RUN_GATHER;
        return !nest->scatter ? HEFT_RUN_GATHER : nest->level < nest->rank ? HEFT_RUN_VECTOR : HEFT_RUN_DIRECT;
    }
    if (run->direct && item->apart) return HEFT_RUN_GATHER;
    uint64_t pieces = 1;
    for (uint64_t i = 1; i < run->nitems; i++, item++) {
        bool touch = item->offset + item->nbytes == item[1].offset;
        bool together = item->place - (int64_t)item->offset == item[1].place - (int64_t)item[1].offset;
        if (plan->slots || !together || (!touch && !plan->layout)) pieces++;
    }
    if (pieces == 1) return HEFT_RUN_DIRECT;
    return run->direct || run->kept / pieces >= plan->vector_min ? HEFT_RUN_VECTOR : HEFT_RUN_GATHER;
}

/* One arena, one a source or one a run, and one for what is read beside a mapping. */
static heft_status layout_arenas(heft_plan *plan, heft_error *err) {
    bool side = false, maps = false;
    for (uint64_t i = 0; i < plan->nsources && !maps; i++) maps = plan->sources[i].path == HEFT_PATH_MAP;
    for (uint64_t i = 0; maps && i < plan->nitems && !side; i++) side = plan->items[i].side;
    bool shard = !plan->ring && plan->arena_scope == HEFT_ARENA_SHARD;
    uint64_t n = (plan->ring ? plan->nruns : shard ? plan->nsources : 1) + side;
    if (n >= HEFT__PLAN_NONE) return heft__fail(err, HEFT_LIMIT, HEFT_FAULT_CALLER_LIMIT, "too many pieces in a ring");
    if (n == 0) return HEFT_OK;
    plan->arenas = heft__alloc(&plan->alloc, n * sizeof *plan->arenas);
    if (!plan->arenas) return heft__fail_memory(err, n * sizeof *plan->arenas);
    plan->narenas = plan->arenas_capacity = n;
    for (uint32_t i = 0; i < n; i++)
        plan->arenas[i] = (heft__plan_arena){0, HEFT__HOST_ALIGN, shard ? i : HEFT__PLAN_NONE};
    if (side) {
        plan->side_arena = (uint32_t)n - 1;
        plan->arenas[n - 1].source = HEFT__PLAN_NONE;
    }
    return HEFT_OK;
}

static uint32_t layout_arena_of(const heft_plan *plan, uint64_t number) {
    const heft__plan_run *run = &plan->runs[number];
    if (plan->items[run->first_item].side) return plan->side_arena;
    return plan->ring ? (uint32_t)number : plan->arena_scope == HEFT_ARENA_SHARD ? run->source : 0;
}

static heft_status layout_places(heft_plan *plan, heft_error *err) {
    uint64_t slack = plan->spill < HEFT__PLAN_SLACK ? HEFT__PLAN_SLACK - plan->spill : 0, total = 0;
    heft_status status = layout_arenas(plan, err);
    for (uint64_t r = 0; status == HEFT_OK && r < plan->nruns; r++) {
        const heft__plan_run *run = &plan->runs[r];
        uint32_t number = layout_arena_of(plan, r);
        heft__plan_arena *arena = &plan->arenas[number];
        if (plan->ring) arena->source = run->source;
        for (uint64_t i = 0; number && i < run->nitems; i++) plan->items[run->first_item + i].slot = number; /* 0 it is */
        const heft__plan_item *first = &plan->items[run->first_item];
        bool identity = run->direct && !first->apart && first->nest == HEFT__PLAN_NONE;
        status = identity ? layout_direct(plan, run, arena, err) : layout_packed(plan, run, arena, &slack, err);
    }
    for (uint64_t i = 0; status == HEFT_OK && i < plan->narenas; i++) {
        heft__plan_arena *arena = &plan->arenas[i];
        if (arena->nbytes >= HEFT__PLAN_CUT && arena->align < 4096) arena->align = 4096;
        if (!heft__add_u64(total, arena->nbytes, &total) || total > (uint64_t)INT64_MAX / 2)
            status = layout_too_large(err);
    }
    plan->sum.dst_nbytes = plan->slack = total;
    for (uint64_t i = 0; status == HEFT_OK && i < plan->nitems; i++)
        if (!plan->items[i].mapped) plan->slack -= heft__plan_held(plan, &plan->items[i]);
    return status;
}

heft_status heft__plan_layout(heft_plan *plan, heft_error *err) {
    heft_status status = plan->layout ? layout_places(plan, err) : HEFT_OK;
    for (uint64_t r = 0; status == HEFT_OK && r < plan->nruns; r++)
        plan->runs[r].kind = layout_kind(plan, &plan->runs[r]);
    return status;
}
