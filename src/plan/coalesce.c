/* plan: sorts items by file offset, merges neighbours into runs within the over-read budget, and lays out the arena. */
#include "plan/plan.h"

#include "base/checked.h"
#include "base/error.h"

#include <string.h>

/* ---- order: bottom-up merge sort; qsort may allocate behind the caller's allocator and is not stable ---- */

static bool coalesce_before(const heft__plan_item *a, const heft__plan_item *b) {
    if (a->source != b->source) return a->source < b->source;
    if (a->offset != b->offset) return a->offset < b->offset;
    if (a->nest != b->nest && b->nest == HEFT__PLAN_NONE) return false; /* a nest ends a run of plain ones */
    if (a->nest != b->nest && a->nest == HEFT__PLAN_NONE) return true;
    return a->nbytes < b->nbytes;
}

static void coalesce_merge(const heft__plan_item *from, heft__plan_item *to, uint64_t low, uint64_t middle,
                           uint64_t high) {
    uint64_t a = low, b = middle;
    for (uint64_t i = low; i < high; i++)
        to[i] = b == high || (a < middle && !coalesce_before(&from[b], &from[a])) ? from[a++] : from[b++];
}

static heft_status coalesce_sort(heft_plan *plan, heft_error *err) {
    uint64_t n = plan->nitems, i = 1, nbytes = n * sizeof *plan->items;
    while (i < n && !coalesce_before(&plan->items[i], &plan->items[i - 1])) i++;
    if (i >= n) return HEFT_OK; /* tensors in id order are */
    heft__plan_item *other = heft__alloc(&plan->alloc, nbytes), *from = plan->items, *to = other;
    if (!other) return heft__fail_memory(err, nbytes);
    for (uint64_t width = 1; width < n; width *= 2) {
        for (uint64_t low = 0; low < n; low += 2 * width)
            coalesce_merge(from, to, low, low + width < n ? low + width : n, low + 2 * width < n ? low + 2 * width : n);
        heft__plan_item *swap = from;
        from = to;
        to = swap;
    }
    if (from != plan->items) memcpy(plan->items, from, nbytes);
    heft__free(&plan->alloc, other, nbytes);
    return HEFT_OK;
}

/* ---- gaps ---- */

#define COALESCE_NEVER UINT64_MAX

/* Bytes between item i and the one before it: 0 if they touch, COALESCE_NEVER if they cannot share a run. */
static uint64_t coalesce_gap(const heft_plan *plan, uint64_t i) {
    const heft__plan_item *a = &plan->items[i - 1], *b = &plan->items[i];
    if (a->source != b->source || a->nest != HEFT__PLAN_NONE || b->nest != HEFT__PLAN_NONE) return COALESCE_NEVER;
    return b->offset < a->offset + a->nbytes ? COALESCE_NEVER : b->offset - (a->offset + a->nbytes);
}

/* Which gaps are read over: all below `size`, and of those equal to it the first `equal`. */
typedef struct coalesce_limit {
    uint64_t size, equal;
} coalesce_limit;

/* Moves a[i] down a heap of n whose largest is a[0]. */
static void coalesce_sift(uint64_t *a, uint64_t i, uint64_t n) {
    for (uint64_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && a[child + 1] > a[child]) child++;
        if (a[i] >= a[child]) return;
        uint64_t t = a[i];
        a[i] = a[child];
        a[child] = t;
    }
}

/* Gaps are taken by rising size, ties by offset, until the budget is spent: the largest are given up first. */
static heft_status coalesce_choose(heft_plan *plan, uint64_t kept, coalesce_limit *limit, heft_error *err) {
    uint64_t most = plan->options.gap_nbytes == HEFT_NONE ? 0 : plan->options.gap_nbytes, n = 0, sum = 0;
    uint64_t budget = kept / 20 > HEFT__PLAN_BUDGET_MIN ? kept / 20 : HEFT__PLAN_BUDGET_MIN;
    *limit = (coalesce_limit){most, UINT64_MAX};
    for (uint64_t i = 1; i < plan->nitems; i++) {
        uint64_t gap = coalesce_gap(plan, i);
        if (gap > 0 && gap <= most) {
            n++;
            if (!heft__add_u64(sum, gap, &sum)) sum = UINT64_MAX;
        }
    }
    if (sum <= budget) return HEFT_OK;
    uint64_t *gaps = heft__alloc(&plan->alloc, n * sizeof *gaps), count = 0;
    if (!gaps) return heft__fail_memory(err, n * sizeof *gaps);
    for (uint64_t i = 1; i < plan->nitems; i++) {
        uint64_t gap = coalesce_gap(plan, i);
        if (gap > 0 && gap <= most) gaps[count++] = gap;
    }
    for (uint64_t i = n / 2; i-- > 0;) coalesce_sift(gaps, i, n);
    uint64_t left = n;
    while (sum > budget) { /* at most n times: an empty sum fits every budget */
        limit->size = gaps[0];
        sum -= gaps[0];
        gaps[0] = gaps[--left];
        coalesce_sift(gaps, 0, left);
    }
    limit->equal = 0;
    while (left > 0 && gaps[0] == limit->size) {
        limit->equal++;
        gaps[0] = gaps[--left];
        coalesce_sift(gaps, 0, left);
    }
    heft__free(&plan->alloc, gaps, n * sizeof *gaps);
    return HEFT_OK;
}

static bool coalesce_joins(const heft_plan *plan, uint64_t i, coalesce_limit *limit) {
    uint64_t gap = coalesce_gap(plan, i);
    if (gap == 0) return true;
    if (gap == COALESCE_NEVER || gap > limit->size) return false;
    if (gap < limit->size) return true;
    return limit->equal > 0 && limit->equal-- > 0;
}

static heft_status coalesce_runs(heft_plan *plan, coalesce_limit limit, heft_error *err) {
    for (uint64_t i = 0; i < plan->nitems; i++) {
        const heft__plan_item *item = &plan->items[i];
        heft__plan_run *run = plan->nruns ? &plan->runs[plan->nruns - 1] : NULL;
        uint64_t kept = item->nest == HEFT__PLAN_NONE ? item->nbytes : plan->nests[item->nest].kept;
        if (i > 0 && coalesce_joins(plan, i, &limit)) {
            run->nbytes = item->offset + item->nbytes - run->offset;
            run->kept += kept;
            run->nitems++;
            continue;
        }
        if (!heft__grow(&plan->alloc, (void **)&plan->runs, &plan->runs_capacity, plan->nruns, sizeof *run, 4))
            return heft__fail_memory(err, plan->runs_capacity * 2 * sizeof *run);
        plan->runs[plan->nruns++] = (heft__plan_run){.offset = item->offset,
                                                     .nbytes = item->nbytes,
                                                     .kept = kept,
                                                     .first_item = i,
                                                     .nitems = 1,
                                                     .source = item->source};
    }
    return HEFT_OK;
}

/* ---- layout: a run lands as it lies in the file, so that it needs no vectors; a tensor that would be misaligned for
 * its dtype, or that lies behind a large gap, starts anew at a multiple of 64 ---- */

static bool coalesce_aligned(const heft_plan *plan, const heft__plan_item *item, int64_t place) {
    if (place % 8 == 0) return true; /* no dtype wants more */
    const heft_archive *archive = plan->sources[item->source].archive;
    uint32_t file;
    uint8_t align = heft__dtypes[heft__archive_entry(archive, item->id, &file)->dtype].align;
    return align < 2 || place % align == 0;
}

/* The shift of a run's start that brings the most bytes to multiples of 64, the smallest of equal ones. */
static uint64_t coalesce_shift(const heft_plan *plan, const heft__plan_run *run) {
    uint64_t weights[HEFT__HOST_ALIGN] = {0}, best = 0;
    if (run->nitems == 1) return 0;
    for (uint64_t i = run->first_item; i < run->first_item + run->nitems; i++)
        weights[(run->offset - plan->items[i].offset) % HEFT__HOST_ALIGN] += plan->items[i].nbytes;
    for (uint64_t shift = 1; shift < HEFT__HOST_ALIGN; shift++)
        if (weights[shift] > weights[best]) best = shift;
    return best;
}

static heft_status coalesce_layout(heft_plan *plan, heft_error *err) {
    uint64_t cursor = 0;
    for (uint64_t r = 0; r < plan->nruns; r++) {
        const heft__plan_run *run = &plan->runs[r];
        if (!heft__align_u64(cursor, HEFT__HOST_ALIGN, &cursor)) goto too_large;
        cursor += coalesce_shift(plan, run);
        for (uint64_t i = run->first_item; i < run->first_item + run->nitems; i++) {
            heft__plan_item *item = &plan->items[i];
            uint64_t kept = item->nest == HEFT__PLAN_NONE ? item->nbytes : plan->nests[item->nest].kept;
            uint64_t gap = i > run->first_item ? coalesce_gap(plan, i) : 0, place = cursor + gap;
            if (gap >= HEFT__PLAN_GAP_KEPT || plan->slack + gap > HEFT__PLAN_SLACK ||
                !coalesce_aligned(plan, item, (int64_t)place))
                heft__align_u64(cursor, HEFT__HOST_ALIGN, &place);
            else
                plan->slack += gap;
            item->place = (int64_t)place;
            if (!heft__add_u64(place, kept, &cursor) || cursor > (uint64_t)INT64_MAX / 2) goto too_large;
        }
    }
    plan->sum.dst_nbytes = cursor;
    return HEFT_OK;
too_large:
    return heft__fail(err, HEFT_LIMIT, HEFT_FAULT_CALLER_LIMIT, "the tensors do not fit one destination");
}

/* ---- kinds ---- */

static heft_run_kind coalesce_kind(const heft_plan *plan, const heft__plan_run *run) {
    const heft__plan_item *item = &plan->items[run->first_item];
    if (item->nest != HEFT__PLAN_NONE) {
        const heft__plan_nest *nest = &plan->nests[item->nest];
        return !nest->scatter ? HEFT_RUN_GATHER : nest->level < nest->rank ? HEFT_RUN_VECTOR : HEFT_RUN_DIRECT;
    }
    uint64_t pieces = 1;
    for (uint64_t i = 1; i < run->nitems; i++, item++) {
        bool touch = item->offset + item->nbytes == item[1].offset;
        bool together = item->place - (int64_t)item->offset == item[1].place - (int64_t)item[1].offset;
        if (plan->slots || !together || (!touch && !plan->layout)) pieces++;
    }
    if (pieces == 1) return HEFT_RUN_DIRECT;
    return run->kept / pieces >= plan->vector_min ? HEFT_RUN_VECTOR : HEFT_RUN_GATHER;
}

heft_status heft__plan_coalesce(heft_plan *plan, heft_error *err) {
    coalesce_limit limit;
    uint64_t kept = 0;
    heft_status status = coalesce_sort(plan, err);
    if (status != HEFT_OK) return status;
    for (uint64_t i = 0; i < plan->nitems; i++) {
        const heft__plan_item *item = &plan->items[i];
        if (!heft__add_u64(kept, item->nest == HEFT__PLAN_NONE ? item->nbytes : plan->nests[item->nest].kept, &kept))
            return heft__fail(err, HEFT_LIMIT, HEFT_FAULT_CALLER_LIMIT, "the views have 2^64 bytes or more");
    }
    plan->sum.kept_nbytes = kept;
    status = coalesce_choose(plan, kept, &limit, err);
    if (status == HEFT_OK) status = coalesce_runs(plan, limit, err);
    if (status == HEFT_OK && plan->layout) status = coalesce_layout(plan, err);
    for (uint64_t r = 0; status == HEFT_OK && r < plan->nruns; r++)
        plan->runs[r].kind = coalesce_kind(plan, &plan->runs[r]);
    return status;
}
