/* ops: how much memory a load will hold, and whether that fits. */
#include "ops/load.h"

#include "base/error.h"

/* What the archive holds: retained headers, entries, shapes, hashes. */
uint64_t heft__load_archive_nbytes(const heft_archive *archive) {
    uint64_t sum = archive->tensors ? archive->ntensors * sizeof *archive->tensors : 0;
    sum += heft__hash_index_nbytes(&archive->index);
    for (uint32_t i = 0; i < archive->nfiles; i++) {
        const heft__listing *listing = archive->files[i];
        sum += listing->header_nbytes + 1 + HEFT__HEADER_SLACK + listing->capacity * sizeof *listing->entries;
        sum += heft__arena_nbytes(&listing->arena) + listing->spellings_capacity * sizeof *listing->spellings;
        if (archive->nfiles > 1) sum += heft__hash_index_nbytes(&listing->names);
    }
    return sum;
}

heft_status heft__load_measure(const heft_load_plan *load, const heft_plan *plan, heft_footprint *out,
                               heft_error *err) {
    uint64_t n = load->archive->ntensors, lists = heft__weights_room(n) + 2 * n + (load->parts.dtypes ? 2 * n : 0);
    heft__os_memory have;
    heft_filter_summary sum = {0};
    if (load->filter) {
        heft_filter_summarize(load->filter, &sum);
        lists += load->filter->nids * sizeof(uint64_t);
    }
    heft__facts_memory(load->options.free_nbytes ? load->options.free_nbytes : HEFT_NONE, plan->workers - 1, &have);
    heft__plan_memory memory = {.deferred_nbytes = sum.deferred_nbytes,
                                .withheld_nbytes = sum.withheld_nbytes,
                                .metadata_nbytes = load->archive_nbytes + lists,
                                .reserve_nbytes = load->options.reserve_nbytes,
                                .free_nbytes = have.nbytes,
                                .free_origin = have.origin,
                                .multiplier = load->options.peak_memory_multiplier,
                                .atlas = load->atlas};
    return heft__plan_footprint(plan, &memory, out, err);
}

heft_status heft__load_admit(const heft_load_plan *load, const heft_plan *plan, heft_footprint *out, heft_error *err) {
    const heft_load_options *o = &load->options;
    heft_status status = heft__load_measure(load, plan, out, err);
    if (status != HEFT_OK) return status;
    heft_footprint asked = *out;
    if (o->no_preflight) asked.free_nbytes = HEFT_NONE;
    return heft__plan_admit(&asked, o->reserve_nbytes, o->memory_limit_nbytes, o->refuse_unknown && !o->no_preflight,
                            err);
}

heft_status heft_load_plan_admit(heft_load_plan *plan, heft_error *err) {
    return heft__load_admit(plan, plan->plan, &plan->memory, err);
}
