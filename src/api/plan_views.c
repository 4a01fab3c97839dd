/* api: plans that a caller makes, looks at, and runs. */
#include "api/read.h"

#include "base/checked.h"
#include "base/error.h"
#include "ops/run.h"

#include <string.h>

heft_status heft_plan_views(const heft_view *views, uint64_t nviews, const uint64_t *dst_offsets,
                            const heft_read_options *options, heft_plan **out, heft_error *err) {
    heft__plan_request request;
    if (!out) return heft__fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL, "out is NULL");
    *out = NULL;
    if (!views && nviews) return heft__fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL, "views is NULL");
    heft_status status = heft__read_begin(nviews ? views[0].archive : NULL, options, nviews, &request, err);
    heft_plan *plan = NULL;
    if (status == HEFT_OK) status = heft__plan_new(&request, &plan, err);
    for (uint64_t i = 0; status == HEFT_OK && i < nviews; i++) {
        uint64_t place = plan->sum.dst_nbytes;
        if (dst_offsets)
            place = dst_offsets[i];
        else if (!heft__align_u64(place, HEFT__HOST_ALIGN, &place))
            place = UINT64_MAX; /* refused below */
        status = heft__plan_add_view(plan, &views[i], place, NULL, (uint32_t)i, err);
    }
    if (status == HEFT_OK) status = heft__plan_finish(plan, err);
    if (status != HEFT_OK) {
        heft_plan_free(plan);
        return status;
    }
    *out = plan;
    return HEFT_OK;
}

void heft_plan_summarize(const heft_plan *plan, heft_plan_summary *out) {
    *out = plan->sum;
}

heft_status heft_plan_get(const heft_plan *plan, uint64_t index, heft_plan_run *out, heft_error *err) {
    memset(out, 0, sizeof *out);
    if (index >= plan->nruns)
        return heft__fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL, "run %llu is out of range; the plan has %llu",
                          (unsigned long long)index, (unsigned long long)plan->nruns);
    const heft__plan_run *run = &plan->runs[index];
    const heft__plan_item *item = &plan->items[run->first_item];
    const heft__plan_nest *nest = heft__plan_run_nest(plan, run);
    *out = (heft_plan_run){.file = plan->sources[run->source].file,
                           .kind = run->kind,
                           .offset = run->offset,
                           .span_nbytes = run->nbytes,
                           .nbytes = nest ? nest->requested : run->nbytes,
                           .kept_nbytes = run->kept,
                           .nreads = nest ? nest->nreads : 1,
                           .first_view = item->view,
                           .nviews = run->nitems};
    return HEFT_OK;
}

heft_status heft_plan_execute(const heft_plan *plan, void *dst, uint64_t dst_nbytes, heft_read_stats *stats,
                              heft_error *err) {
    uint8_t *slot = dst;
    if (stats) memset(stats, 0, sizeof *stats);
    if (dst_nbytes < plan->sum.dst_nbytes || (!dst && plan->sum.dst_nbytes)) {
        heft__fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL,
                   "the destination has %llu bytes and the plan needs %llu", (unsigned long long)dst_nbytes,
                   (unsigned long long)plan->sum.dst_nbytes);
        heft__error_at(err, HEFT_NONE, plan->sum.dst_nbytes, dst_nbytes);
        return HEFT_INVALID_ARGUMENT;
    }
    return heft__run(plan, &slot, stats, err);
}
