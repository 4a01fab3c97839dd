/* plan: sorts items by file offset, says what is wanted of each file, and merges neighbours into runs within the
 * over-read budget. */
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

static heft_status coalesce_order(heft_plan *plan, heft_error *err) {
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

heft_status heft__plan_sort(heft_plan *plan, heft_error *err) {
    if (plan->sorted) return HEFT_OK;
    heft_status status = coalesce_order(plan, err);
    if (status != HEFT_OK) return status;
    uint64_t kept = 0, held = 0;
    for (uint64_t i = 0; i < plan->nitems; i++) {
        const heft__plan_item *item = &plan->items[i];
        heft__plan_source *source = &plan->sources[item->source];
        uint64_t n = heft__plan_kept(plan, item);
        if (!heft__add_u64(kept, n, &kept) || !heft__add_u64(held, heft__plan_held(plan, item), &held))
            return heft__fail(err, HEFT_LIMIT, HEFT_FAULT_CALLER_LIMIT, "the views have 2^64 bytes or more");
        if (source->nitems++ == 0) source->first_item = i;
        source->kept += n;
    }
    plan->wanted = kept;
    plan->sum.kept_nbytes = held;
    plan->sorted = true;
    return HEFT_OK;
}

/* Ranges of a source that do not touch; written to `out` unless it is NULL. Returns their number. */
static uint64_t coalesce_extents(const heft_plan *plan, uint32_t source, heft__extent *out) {
    const heft__plan_source *s = &plan->sources[source];
    uint64_t n = 0, begin = 0, end = 0;
    for (uint64_t i = s->first_item; i < s->first_item + s->nitems; i++) {
        const heft__plan_item *item = &plan->items[i];
        if (n == 0 || item->offset > end) {
            begin = end = item->offset;
            n++;
        }
        if (item->offset + item->nbytes > end) end = item->offset + item->nbytes;
        if (out) out[n - 1] = (heft__extent){begin, end - begin};
    }
    return n;
}

heft_status heft__plan_extents(const heft_plan *plan, uint32_t source, heft__extent **extents, uint64_t *n,
                               heft_error *err) {
    *extents = NULL;
    *n = coalesce_extents(plan, source, NULL);
    if (*n == 0) return HEFT_OK;
    uint64_t nbytes = *n * sizeof **extents;
    *extents = heft__alloc(&plan->alloc, nbytes);
    if (!*extents) {
        *n = 0;
        return heft__fail_memory(err, nbytes);
    }
    coalesce_extents(plan, source, *extents);
    return HEFT_OK;
}

/* ---- gaps ---- */

/* Most of a run of small items that are converted: it is one block, so that no element is cut. */
static uint64_t coalesce_scratch(const heft_plan *plan, uint32_t source) {
    uint64_t scratch = heft__plan_scratch(plan, &plan->sources[source]);
    scratch -= 2 * (uint64_t)plan->sources[source].direct_align;
    return scratch < HEFT__PLAN_SCRATCH_CAST ? scratch : HEFT__PLAN_SCRATCH_CAST;
}

#define COALESCE_NEVER UINT64_MAX

/* True if an item has a run of its own: it is a nest, but for one that is converted and so small that several go through scratch
 * together. */
static bool coalesce_is_nest(const heft_plan *plan, const heft__plan_item *item) {
    return item->nest != HEFT__PLAN_NONE &&
           !(plan->nests[item->nest].lies_whole && item->nbytes <= coalesce_scratch(plan, item->source) / 4);
}

/* What it costs to read items i - 1 and i as one: the bytes between them, or between the pages that hold them where
 * reads are direct. COALESCE_NEVER if they cannot share a run. */
static uint64_t coalesce_gap(const heft_plan *plan, uint64_t i) {
    const heft__plan_item *a = &plan->items[i - 1], *b = &plan->items[i];
    if (a->source != b->source || coalesce_is_nest(plan, a) || coalesce_is_nest(plan, b)) return COALESCE_NEVER;
    if ((a->nest == HEFT__PLAN_NONE) != (b->nest == HEFT__PLAN_NONE)) return COALESCE_NEVER;
    if (a->mapped || b->mapped || b->offset < a->offset + a->nbytes) return COALESCE_NEVER;
    const heft__plan_source *source = &plan->sources[b->source];
    uint64_t begin = b->offset, end = a->offset + a->nbytes, gap = begin - end, mask = source->direct_align;
    if (mask == 0) return gap <= source->gap ? gap : COALESCE_NEVER;
    if (a->apart != b->apart) return COALESCE_NEVER;
    mask--;
    end = (end + mask) & ~mask;
    begin &= ~mask;
    if (end >= begin) return 0; /* read as two, the page between them would be read twice */
    return gap <= source->gap ? begin - end : COALESCE_NEVER;
}

/* Which gaps are read over: all below `size`, and of those equal to it the first `equal`. */
typedef struct coalesce_limit {
    uint64_t size, equal;
} coalesce_limit;

/* The sum of all gaps up to a size, or something above `budget` if it is more than that. */
static uint64_t coalesce_sum(const uint64_t *gaps, uint64_t n, uint64_t size, uint64_t budget) {
    uint64_t sum = 0;
    for (uint64_t i = 0; i < n && sum <= budget; i++)
        if (gaps[i] <= size && !heft__add_u64(sum, gaps[i], &sum)) return UINT64_MAX;
    return sum;
}

uint64_t heft__plan_budget(const heft_plan *plan) {
    uint64_t part = plan->wanted / 20;
    return part > HEFT__PLAN_BUDGET_MIN ? part : HEFT__PLAN_BUDGET_MIN;
}

/* Gaps are taken by rising size, ties by offset, until the budget is spent. */
static heft_status coalesce_choose(const heft_plan *plan, coalesce_limit *limit, heft_error *err) {
    uint64_t budget = heft__plan_budget(plan), n = 0, sum = 0, high = 0;
    budget = plan->edges < budget ? budget - plan->edges : 0;
    *limit = (coalesce_limit){UINT64_MAX, UINT64_MAX};
    for (uint64_t i = 1; i < plan->nitems; i++) {
        uint64_t gap = coalesce_gap(plan, i);
        if (gap == 0 || gap == COALESCE_NEVER) continue;
        n++;
        if (gap > high) high = gap;
        if (!heft__add_u64(sum, gap, &sum)) sum = UINT64_MAX;
    }
    if (sum <= budget) return HEFT_OK;
    uint64_t *gaps = heft__alloc(&plan->alloc, n * sizeof *gaps), count = 0, low = 0;
    if (!gaps) return heft__fail_memory(err, n * sizeof *gaps);
    for (uint64_t i = 1; i < plan->nitems; i++) {
        uint64_t gap = coalesce_gap(plan, i);
        if (gap > 0 && gap != COALESCE_NEVER) gaps[count++] = gap;
    }
    while (high - low > 1) { /* all up to `low` fit, all up to `high` do not */
        uint64_t middle = low + (high - low) / 2;
        if (coalesce_sum(gaps, n, middle, budget) <= budget)
            low = middle;
        else
            high = middle;
    }
    *limit = (coalesce_limit){high, (budget - coalesce_sum(gaps, n, low, budget)) / high};
    heft__free(&plan->alloc, gaps, n * sizeof *gaps);
    return HEFT_OK;
}

/* ---- runs ---- */

typedef struct coalesce_walk {
    coalesce_limit limit;
    uint64_t at, end; /* items */
} coalesce_walk;

static bool coalesce_joins(const heft_plan *plan, uint64_t i, const heft__plan_run *run, coalesce_limit *limit) {
    uint64_t gap = coalesce_gap(plan, i);
    if (gap == COALESCE_NEVER || gap > limit->size) return false;
    const heft__plan_item *next = &plan->items[i];
    if (plan->ring_single) return false;
    if (next->nest != HEFT__PLAN_NONE && next->offset + next->nbytes - run->offset > coalesce_scratch(plan, next->source))
        return false;
    if (plan->ring) { /* a run is what a ring hands out */
        uint64_t most = plan->ring / 4 < HEFT__PLAN_RING_RUN ? plan->ring / 4 : HEFT__PLAN_RING_RUN;
        if (next->offset + next->nbytes - run->offset > most) return false;
    }
    if (gap < limit->size) return true;
    return limit->equal > 0 && limit->equal-- > 0;
}

/* The next run; false: there is none. */
static bool coalesce_next(const heft_plan *plan, coalesce_walk *walk, heft__plan_run *run) {
    while (walk->at < walk->end && plan->items[walk->at].mapped) walk->at++;
    if (walk->at >= walk->end) return false;
    const heft__plan_item *item = &plan->items[walk->at];
    *run = (heft__plan_run){.offset = item->offset,
                            .nbytes = item->nbytes,
                            .kept = heft__plan_kept(plan, item),
                            .first_item = walk->at++,
                            .nitems = 1,
                            .source = item->source,
                            .direct = plan->sources[item->source].direct_align != 0};
    for (; walk->at < walk->end && coalesce_joins(plan, walk->at, run, &walk->limit); walk->at++) {
        item = &plan->items[walk->at];
        run->nbytes = item->offset + item->nbytes - run->offset;
        run->kept += item->nbytes;
        run->nitems++;
    }
    return true;
}

static uint64_t coalesce_reads(const heft_plan *plan, const heft__plan_run *run) {
    const heft__plan_nest *nest = heft__plan_run_nest(plan, run);
    return nest ? nest->nreads : 1;
}

heft_status heft__coalesce_count(heft_plan *plan, heft_error *err) {
    coalesce_walk walk = {.end = plan->nitems};
    heft__plan_run run;
    heft_status status = coalesce_choose(plan, &walk.limit, err);
    if (status != HEFT_OK) return status;
    for (uint64_t s = 0; s < plan->nsources; s++) plan->sources[s].pieces = 0;
    while (coalesce_next(plan, &walk, &run)) {
        heft__plan_source *source = &plan->sources[run.source];
        if (!heft__add_u64(source->pieces, coalesce_reads(plan, &run), &source->pieces)) source->pieces = UINT64_MAX;
    }
    return HEFT_OK;
}

void heft__coalesce_edges(const heft_plan *plan, uint32_t source, uint64_t *edges, uint64_t *spill) {
    const heft__plan_source *s = &plan->sources[source];
    coalesce_walk walk = {.at = s->first_item, .end = s->first_item + s->nitems};
    heft__plan_run run;
    uint64_t mask = s->congruence - UINT64_C(1);
    *edges = *spill = 0;
    while (coalesce_next(plan, &walk, &run)) {
        const heft__plan_item *item = &plan->items[run.first_item];
        if (item->nest != HEFT__PLAN_NONE) continue;
        uint64_t end = run.offset + run.nbytes;
        *edges += heft__plan_asked(s, run.offset, end) - run.kept;
        if (!item->apart) *spill += ((end + mask) & ~mask) - (run.offset & ~mask) - run.kept;
    }
}

heft_status heft__plan_coalesce(heft_plan *plan, heft_error *err) {
    coalesce_limit limit;
    heft__plan_run run;
    heft_status status = coalesce_choose(plan, &limit, err);
    if (status != HEFT_OK) return status;
    uint64_t n = 0;
    for (coalesce_walk walk = {limit, 0, plan->nitems}; coalesce_next(plan, &walk, &run);) n++;
    if (n == 0) return HEFT_OK;
    plan->runs = heft__alloc(&plan->alloc, n * sizeof *plan->runs); /* they are fewer than the items */
    if (!plan->runs) return heft__fail_memory(err, n * sizeof *plan->runs);
    plan->runs_capacity = n;
    for (coalesce_walk walk = {limit, 0, plan->nitems}; coalesce_next(plan, &walk, &run);) {
        heft__plan_source *source = &plan->sources[run.source];
        if (source->nruns++ == 0) source->first_run = plan->nruns;
        plan->runs[plan->nruns++] = run;
    }
    return HEFT_OK;
}
