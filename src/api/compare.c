/* api: statistics and comparisons: what the caller gives is checked, the rest is done by ops. */
#include "api/read.h"
#include "base/error.h"
#include "base/options.h"
#include "ops/stats.h"
#include "view/view.h"

#include <string.h>

heft_status heft_view_stats(const heft_view *view, const heft_read_options *options, heft_stats *out,
                            heft_read_stats *stats, heft_error *err) {
    if (out) memset(out, 0, sizeof *out);
    if (stats) memset(stats, 0, sizeof *stats);
    if (!view || !view->archive || !out)
        return heft__view_fail(NULL, NULL, err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL, "%s",
                               out ? "the view is NULL or not one that heft made" : "out is NULL");
    uint64_t count;
    heft__plan_request request;
    heft_status status = heft__plan_check_view(view, &count, err); /* views are plain values of the caller */
    if (status == HEFT_OK) status = heft__read_begin(view->archive, options, 1, &request, err);
    return status == HEFT_OK ? heft__stats_view(view, &request.options, &request.alloc, out, stats, err) : status;
}

heft_status heft_archive_stats(const heft_archive *archive, const uint64_t *ids, uint64_t nids,
                               const heft_read_options *options, heft_stats *out, heft_histogram *histograms,
                               heft_read_stats *stats, heft_error *err) {
    if (stats) memset(stats, 0, sizeof *stats);
    if (!archive) return heft__fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL, "archive is NULL");
    if (!ids) nids = archive->ntensors;
    if (nids && !out) return heft__fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL, "out is NULL");
    for (uint64_t i = 0; ids && i < nids; i++)
        if (ids[i] >= archive->ntensors)
            return heft__fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL,
                              "tensor id %llu is out of range; the archive has %llu tensors", (unsigned long long)ids[i],
                              (unsigned long long)archive->ntensors);
    if (nids) memset(out, 0, nids * sizeof *out);
    if (nids && histograms) memset(histograms, 0, nids * sizeof *histograms);
    heft__plan_request request;
    heft_status status = heft__read_begin(archive, options, nids, &request, err);
    if (status == HEFT_OK)
        status = heft__stats_tensors(archive, ids, nids, &request.options, &request.alloc, out, histograms, stats, err);
    if (status != HEFT_OK && nids) memset(out, 0, nids * sizeof *out);
    return status;
}

heft_status heft_diff_archives(const heft_archive *a, const heft_archive *b, const heft_diff_options *options,
                               heft_diff **out, heft_error *err) {
    if (!out) return heft__fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL, "out is NULL");
    *out = NULL;
    if (!a || !b) return heft__fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL, "an archive is NULL");
    heft_diff_options caller;
    heft_allocator alloc;
    heft_status status = heft__options_copy(&caller, sizeof caller, options, "heft_diff_options", err);
    if (status != HEFT_OK) return status;
    if (!(caller.tolerance >= 0) || !(caller.relative >= 0))
        return heft__fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL, "a tolerance is negative or NaN");
    if (!heft__allocator_from(caller.allocator ? caller.allocator : &a->alloc, &alloc))
        return heft__fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL, "the allocator lacks a function");
    return heft__diff(a, b, &caller, &alloc, out, err);
}
