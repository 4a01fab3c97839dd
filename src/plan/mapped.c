/* plan: which pages of a file are mapped, and where in them each tensor lies. */
#include "plan/plan.h"

#include "base/checked.h"
#include "base/error.h"

/* What an address of a source in memory is, modulo any page size, less its offset: memory sources lend their own bytes.
 */
uint64_t heft__plan_address(const heft_source *source) {
    const heft_source *base = source->parent ? source->parent : source;
    return base->memory ? (uint64_t)(uintptr_t)base->memory + source->window_offset : source->window_offset;
}

static bool mapped_lent(const heft_source *source) {
    return (source->parent ? source->parent : source)->memory != NULL;
}

/* The pages that hold a range, cut at the ends of the source. Of lent memory the range itself. */
static void mapped_pages(const heft_plan *plan, const heft_source *source, uint64_t *begin, uint64_t *end) {
    if (mapped_lent(source)) return;
    uint64_t before = (source->window_offset + *begin) % plan->page,
             after = (source->window_offset + *end) % plan->page;
    *begin -= before < *begin ? before : *begin;
    if (after && !heft__add_u64(*end, plan->page - after, end)) return;
    if (*end > source->size) *end = source->size;
}

/* Mappings of a source whose gaps are larger than `merge`; added to the plan, and items placed in them, under `make`.
 */
static uint64_t mapped_pass(heft_plan *plan, uint32_t number, uint64_t merge, bool make) {
    const heft__plan_source *source = &plan->sources[number];
    uint64_t n = 0, end = 0;
    for (uint64_t i = source->first_item; i < source->first_item + source->nitems; i++) {
        heft__plan_item *item = &plan->items[i];
        uint64_t from = item->offset, to = item->offset + item->nbytes;
        if (!item->mapped) continue;
        mapped_pages(plan, source->source, &from, &to);
        if (n == 0 || (from > end && from - end > merge)) {
            n++;
            if (make) plan->mappings[plan->nmappings++] = (heft__plan_mapping){.offset = from, .source = number};
            end = to;
        }
        if (to > end) end = to;
        if (!make) continue;
        heft__plan_mapping *mapping = &plan->mappings[plan->nmappings - 1];
        mapping->nbytes = end - mapping->offset;
        item->slot = (uint32_t)plan->nmappings - 1;
        item->place = (int64_t)(item->offset - mapping->offset);
    }
    return n;
}

static uint64_t mapped_merge(heft_plan *plan, uint32_t number, uint64_t *n) {
    uint64_t merge = mapped_lent(plan->sources[number].source) ? UINT64_MAX : HEFT__PLAN_MERGE;
    *n = mapped_pass(plan, number, merge, false);
    if (*n <= HEFT__PLAN_MAPPINGS) return merge;
    *n = 1;
    return UINT64_MAX;
}

heft_status heft__plan_map(heft_plan *plan, heft_error *err) {
    uint64_t total = 0, n;
    for (uint32_t s = 0; s < plan->nsources; s++) {
        if (plan->sources[s].path != HEFT_PATH_MAP) continue;
        mapped_merge(plan, s, &n);
        total += n;
    }
    if (total == 0) return HEFT_OK;
    if (total >= HEFT__PLAN_NONE) return heft__fail(err, HEFT_LIMIT, HEFT_FAULT_CALLER_LIMIT, "too many mappings");
    plan->mappings = heft__alloc(&plan->alloc, total * sizeof *plan->mappings);
    if (!plan->mappings) return heft__fail_memory(err, total * sizeof *plan->mappings);
    plan->mappings_capacity = total;
    for (uint32_t s = 0; s < plan->nsources; s++)
        if (plan->sources[s].path == HEFT_PATH_MAP) mapped_pass(plan, s, mapped_merge(plan, s, &n), true);
    return HEFT_OK;
}

uint64_t heft__plan_mapped(const heft_plan *plan) {
    uint64_t sum = 0;
    for (uint64_t i = 0; i < plan->nmappings; i++) {
        const heft__plan_mapping *mapping = &plan->mappings[i];
        const heft_source *source = plan->sources[mapping->source].source;
        uint64_t lead = (source->window_offset + mapping->offset) % plan->page;
        if (!mapped_lent(source)) sum += (lead + mapping->nbytes + plan->page - 1) / plan->page * plan->page;
    }
    return sum;
}
