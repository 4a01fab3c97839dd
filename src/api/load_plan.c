/* api: what a plan of a load says about itself. */
#include "ops/load.h"

#include "base/error.h"

#include <string.h>

void heft_load_plan_summarize(const heft_load_plan *plan, heft_load_summary *out) {
    const heft_plan *p = plan->plan;
    *out = (heft_load_summary){.memory = plan->memory,
                               .ntensors = plan->nkept,
                               .nruns = p->sum.nruns,
                               .nblocks = p->sum.nblocks,
                               .requested_nbytes = p->sum.requested_nbytes,
                               .over_read_nbytes = p->sum.over_read_nbytes,
                               .spanned_nbytes = p->sum.spanned_nbytes,
                               .slack_nbytes = p->slack,
                               .nshards = plan->archive->nfiles,
                               .workers = p->workers,
                               .engine = plan->engine};
}

static heft_status load_fail_range(heft_error *err, const char *what, uint64_t index, uint64_t count) {
    return heft__fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL, "%s %llu is out of range; there are %llu", what,
                      (unsigned long long)index, (unsigned long long)count);
}

/* Of the kept bytes: the system was asked about small gaps between them too. */
static uint64_t load_resident(const heft__residency *residency, uint64_t kept) {
    if (!residency->known) return HEFT_NONE;
    if (residency->resident_nbytes >= residency->asked_nbytes) return kept;
    return (uint64_t)((double)kept * ((double)residency->resident_nbytes / (double)residency->asked_nbytes));
}

heft_status heft_load_plan_shard(const heft_load_plan *plan, uint32_t index, heft_load_shard *out, heft_error *err) {
    memset(out, 0, sizeof *out);
    if (index >= plan->archive->nfiles) return load_fail_range(err, "file", index, plan->archive->nfiles);
    const heft__plan_source *s = &plan->plan->sources[index];
    const heft__load_shard *shard = &plan->shards[index];
    const heft__residency *residency = &plan->facts[index].residency;
    *out = (heft_load_shard){.path = s->source->label,
                             .file_system = s->facts.file ? plan->facts[index].fs_name : "",
                             .class_name = heft__fs_class_name(s->facts.fs_class),
                             .residency_by = shard->timed ? "timed" : heft__residency_step_name(residency->step),
                             .why = shard->why,
                             .nbytes = s->source->size,
                             .kept_nbytes = s->kept,
                             .requested_nbytes = s->requested,
                             .over_read_nbytes = s->over_read,
                             .spanned_nbytes = s->spanned,
                             .ntensors = s->nitems,
                             .nruns = s->nruns,
                             .resident_nbytes = load_resident(residency, s->kept),
                             .direct_align = s->direct_align,
                             .dirty = residency->dirty,
                             .path_planned = s->path,
                             .path_used = shard->used,
                             .reason = s->reason,
                             .fallback_errno = shard->fallback_errno,
                             .read_nbytes = shard->read_nbytes,
                             .seconds = shard->seconds};
    return HEFT_OK;
}

heft_status heft_load_plan_run(const heft_load_plan *plan, uint64_t index, heft_plan_run *out, heft_error *err) {
    const heft_plan *p = plan->plan;
    heft_status status = heft_plan_get(p, index, out, err);
    if (status == HEFT_OK) out->first_view = p->items[p->runs[index].first_item].id;
    return status;
}

heft_status heft_load_plan_place(const heft_load_plan *plan, uint64_t id, heft_load_place *out, heft_error *err) {
    const heft_plan *p = plan->plan;
    memset(out, 0, sizeof *out);
    if (id >= plan->archive->ntensors) return load_fail_range(err, "tensor id", id, plan->archive->ntensors);
    heft_rule rule = heft__load_rule(plan, id);
    uint32_t file;
    const heft__entry *entry = heft__archive_entry(plan->archive, id, &file);
    if (heft_rule_outcome(rule) != HEFT_OUTCOME_KEPT) {
        heft__fail(err, HEFT_NOT_FOUND, HEFT_FAULT_CALL, "the tensor is not kept, by the rule %s",
                   heft_rule_name(rule));
        heft__error_tensor(err, entry->name, entry->name_len);
        return HEFT_NOT_FOUND;
    }
    uint64_t low = 0, high = p->nitems; /* items are in the order of files and offsets, which is that of ids */
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        if (p->items[middle].id < id)
            low = middle + 1;
        else
            high = middle;
    }
    if (low < p->nitems && p->items[low].id == id)
        heft__plan_place(p, &p->items[low], out);
    else
        *out = (heft_load_place){.align = 4096, .slot = true}; /* no bytes, no place */
    out->dtype = heft__load_dtype(&plan->parts, entry, id);
    (void)heft__load_part(plan->archive, &plan->parts, id, &out->nbytes);
    return HEFT_OK;
}
