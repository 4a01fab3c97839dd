/* plan: the memory of a load, to the byte, and whether it is there. */
#include "plan/plan.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* In whole pages. */
static uint64_t footprint_pages(const heft_plan *plan, uint64_t nbytes) {
    return (nbytes + plan->page - 1) / plan->page * plan->page;
}

static uint64_t footprint_lists(const heft_plan *plan) {
    return sizeof *plan + plan->sources_capacity * sizeof *plan->sources + plan->items_capacity * sizeof *plan->items +
           plan->nests_capacity * sizeof *plan->nests + plan->loops_capacity * sizeof *plan->loops +
           plan->runs_capacity * sizeof *plan->runs + plan->arenas_capacity * sizeof *plan->arenas +
           plan->mappings_capacity * sizeof *plan->mappings;
}

/* Atlas's rule: FP8 weights are unpacked by what comes after loading. */
static double footprint_atlas(const heft_plan *plan) {
    uint64_t fp8 = 0;
    for (uint64_t i = 0; i < plan->nitems; i++) {
        const heft__plan_item *item = &plan->items[i];
        uint32_t file;
        heft_dtype dtype = heft__archive_entry(plan->sources[item->source].archive, item->id, &file)->dtype;
        if (item->nest != HEFT__PLAN_NONE && plan->nests[item->nest].to) dtype = plan->nests[item->nest].to;
        if (dtype == HEFT_F8_E4M3 || dtype == HEFT_F8_E5M2) fp8 += heft__plan_held(plan, item);
    }
    return fp8 > plan->sum.kept_nbytes / 2 ? 1.5 : 1.3;
}

static bool footprint_sum(const uint64_t *terms, size_t n, uint64_t *out) {
    uint64_t sum = 0;
    for (size_t i = 0; i < n; i++)
        if (!heft__add_u64(sum, terms[i], &sum)) return false;
    *out = sum;
    return true;
}

/* What the estimate counts. A caller who gives a factor counts what the program will need for all that is kept; by itself a load
 * needs what it holds at a time: of a ring no more than the ring, of what is mapped nothing that could not be taken back. */
static uint64_t footprint_counted(const heft_plan *plan, bool by_caller) {
    uint64_t counted = plan->sum.kept_nbytes;
    if (by_caller) return counted;
    for (uint64_t i = 0; i < plan->nitems; i++)
        if (plan->items[i].mapped && !plan->items[i].side) counted -= heft__plan_held(plan, &plan->items[i]);
    return plan->ring && plan->ring < counted ? plan->ring : counted;
}

heft_status heft__plan_footprint(const heft_plan *plan, const heft__plan_memory *memory, heft_footprint *out,
                                 heft_error *err) {
    heft_footprint f = {.kept_nbytes = plan->sum.kept_nbytes,
                        .deferred_nbytes = memory->deferred_nbytes,
                        .withheld_nbytes = memory->withheld_nbytes,
                        .scratch_nbytes = plan->sum.scratch_nbytes,
                        .ring_nbytes = footprint_pages(plan, plan->ring),
                        .mapped_nbytes = heft__plan_mapped(plan),
                        .free_nbytes = memory->free_nbytes};
    for (uint64_t i = 0; i < plan->narenas; i++) {
        uint64_t nbytes = footprint_pages(plan, plan->arenas[i].nbytes);
        if (i == plan->side_arena)
            f.side_nbytes += nbytes;
        else if (!plan->ring)
            f.arena_nbytes += nbytes;
    }
    snprintf(f.free_origin, sizeof f.free_origin, "%s", memory->free_origin ? memory->free_origin : "unknown");
    f.multiplier = memory->multiplier > 0 ? memory->multiplier : memory->atlas ? footprint_atlas(plan) : 1.0;
    uint64_t counted = footprint_counted(plan, memory->multiplier > 0 || memory->atlas);
    double estimate = (double)counted * f.multiplier;
    bool ok = estimate < 9.2e18 && heft__add_u64(memory->metadata_nbytes, footprint_lists(plan), &f.metadata_nbytes);
    if (ok) f.estimate_nbytes = f.multiplier > 1.0 ? (uint64_t)estimate : counted;
    const uint64_t terms[] = {f.arena_nbytes, f.scratch_nbytes,  f.ring_nbytes,
                              f.side_nbytes,  f.metadata_nbytes, plan->workers * HEFT__PLAN_STACK};
    ok = ok && footprint_sum(terms, sizeof terms / sizeof *terms, &f.peak_owned_nbytes) &&
         heft__add_u64(f.peak_owned_nbytes, f.mapped_nbytes, &f.transient_nbytes) &&
         heft__add_u64(f.estimate_nbytes > f.peak_owned_nbytes ? f.estimate_nbytes : f.peak_owned_nbytes,
                       memory->reserve_nbytes, &f.needed_nbytes);
    if (!ok) return heft__fail(err, HEFT_LIMIT, HEFT_FAULT_CALLER_LIMIT, "the load would need 2^63 bytes or more");
    *out = f;
    return HEFT_OK;
}

/* "1.30": no floating point in formats. */
static void footprint_multiplier(double multiplier, char out[32]) {
    uint64_t hundredths = multiplier < 1e9 ? (uint64_t)(multiplier * 100 + 0.5) : UINT64_C(100000000000);
    snprintf(out, 32, "%" PRIu64 ".%02u", hundredths / 100, (unsigned)(hundredths % 100));
}

static heft_status footprint_refuse(const heft_footprint *f, uint64_t reserve, const char *against, uint64_t there,
                                    uint64_t needed, heft_error *err) {
    enum { NEEDED, THERE, KEPT, ESTIMATE, PEAK, MAPPED, RESERVE, SIZES };
    char multiplier[32], size[SIZES][HEFT__SIZE_TEXT];
    footprint_multiplier(f->multiplier, multiplier);
    heft__size_exact(needed, size[NEEDED]);
    heft__size_exact(there, size[THERE]);
    heft__size_text(f->kept_nbytes, size[KEPT]);
    heft__size_text(f->estimate_nbytes, size[ESTIMATE]);
    heft__size_text(f->peak_owned_nbytes, size[PEAK]);
    heft__size_text(f->mapped_nbytes, size[MAPPED]);
    heft__size_text(reserve, size[RESERVE]);
    heft__fail(err, HEFT_LIMIT, HEFT_FAULT_CALLER_LIMIT,
               "the load needs %s, and %s %s: it keeps %s of tensors (estimate %s, by the factor %s), holds %s at its "
               "peak, maps %s, and %s are to stay free. Share the model among more ranks, keep fewer tensors, map the "
               "file, or load through a ring",
               size[NEEDED], against, size[THERE], size[KEPT], size[ESTIMATE], multiplier, size[PEAK], size[MAPPED],
               size[RESERVE]);
    heft__error_at(err, HEFT_NONE, there, needed);
    return HEFT_LIMIT;
}

heft_status heft__plan_admit(const heft_footprint *footprint, uint64_t reserve, uint64_t limit, bool refuse_unknown,
                             heft_error *err) {
    if (limit && footprint->transient_nbytes > limit)
        return footprint_refuse(footprint, reserve, "its limit is", limit, footprint->transient_nbytes, err);
    if (footprint->free_nbytes == HEFT_NONE) {
        char needed[HEFT__SIZE_TEXT];
        if (!refuse_unknown) return HEFT_OK;
        return heft__fail(err, HEFT_LIMIT, HEFT_FAULT_CALLER_LIMIT,
                          "the load needs %s, and how much memory is free is not known",
                          heft__size_exact(footprint->needed_nbytes, needed));
    }
    if (footprint->needed_nbytes <= footprint->free_nbytes) return HEFT_OK;
    char against[200];
    snprintf(against, sizeof against, "of free memory (%s) there are", footprint->free_origin);
    return footprint_refuse(footprint, reserve, against, footprint->free_nbytes, footprint->needed_nbytes, err);
}
