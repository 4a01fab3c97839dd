/* api: heft_read and its relatives: a plan made, run and freed in one call. */
#include "api/read.h"

#include "base/error.h"
#include "base/options.h"
#include "base/parallel.h"
#include "ops/run.h"

#include <string.h>

heft_status heft__read_begin(const heft_archive *archive, const heft_read_options *options, uint64_t nviews,
                             heft__plan_request *request, heft_error *err) {
    *request = (heft__plan_request){.nviews = nviews, .host_is_big_endian = HEFT__HOST_IS_BIG_ENDIAN};
    heft_status status =
        heft__options_copy(&request->options, sizeof request->options, options, "heft_read_options", err);
    if (status != HEFT_OK) return status;
    const heft_read_options *o = &request->options;
    if (o->reserved_flags[0] || o->reserved)
        return heft__fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL, "heft_read_options: reserved fields are not 0");
    if (o->dtype >= HEFT_DTYPE_COUNT || (o->dtype && o->keep_file_order))
        return heft__fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL, "heft_read_options: dtype %lu %s", (unsigned long)o->dtype,
                          o->keep_file_order ? "and keep_file_order exclude each other" : "is none");
    const heft_allocator *given = request->options.allocator;
    if (!heft__allocator_from(given ? given : archive ? &archive->alloc : NULL, &request->alloc))
        return heft__fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL, "the allocator lacks a function");
    request->default_workers = request->options.workers ? 1 : heft__default_workers();
    return HEFT_OK;
}

static heft_status read_fail_small(heft_error *err, const heft_archive *archive, uint64_t id, uint64_t has,
                                   uint64_t needs) {
    heft__fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL, "the destination has %llu bytes and the read needs %llu",
               (unsigned long long)has, (unsigned long long)needs);
    heft__error_at(err, HEFT_NONE, needs, has);
    heft__error_name(err, archive, id);
    return HEFT_INVALID_ARGUMENT;
}

/* A plan of one view, not finished: the caller may look at its size first. */
static heft_status read_one(const heft_view *view, const int64_t *strides, const void *dst,
                            const heft_read_options *options, heft_plan **out, heft_error *err) {
    heft__plan_request request;
    *out = NULL;
    if (!view || !view->archive)
        return heft__fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL, "the view is NULL or not one that heft made");
    heft_status status = heft__read_begin(view->archive, options, 1, &request, err);
    request.phase = (uintptr_t)dst % HEFT__PLAN_CUT;
    if (status == HEFT_OK) status = heft__plan_new(&request, out, err);
    if (status != HEFT_OK) return status;
    status = heft__plan_add_view(*out, view, 0, strides, 0, err);
    if (status != HEFT_OK) {
        heft_plan_free(*out);
        *out = NULL;
    }
    return status;
}

/* Finishes, runs and frees a plan. */
static heft_status read_run(heft_plan *plan, uint8_t *const *slots, heft_read_stats *stats, heft_error *err) {
    heft_status status = heft__plan_finish(plan, err);
    if (status == HEFT_OK) status = heft__run(plan, slots, stats, err);
    heft_plan_free(plan);
    return status;
}

static void read_clear(heft_read_stats *stats) {
    if (stats) memset(stats, 0, sizeof *stats);
}

heft_status heft_read(const heft_view *view, void *dst, uint64_t dst_nbytes, const heft_read_options *options,
                      heft_read_stats *stats, heft_error *err) {
    heft_plan *plan;
    uint8_t *slot = dst;
    read_clear(stats);
    heft_status status = read_one(view, NULL, dst, options, &plan, err);
    if (status != HEFT_OK) return status;
    uint64_t needs = plan->sum.dst_nbytes;
    if (needs <= dst_nbytes && (dst || needs == 0)) return read_run(plan, &slot, stats, err);
    heft_plan_free(plan);
    if (needs > dst_nbytes) return read_fail_small(err, view->archive, view->id, dst_nbytes, needs);
    return heft__fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL, "dst is NULL");
}

heft_status heft_read_strided(const heft_view *view, void *dst, const int64_t *dst_stride_nbytes,
                              const heft_read_options *options, heft_read_stats *stats, heft_error *err) {
    heft_plan *plan;
    uint8_t *slot = dst;
    read_clear(stats);
    if (!dst || (!dst_stride_nbytes && view && view->rank))
        return heft__fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL, "dst or dst_stride_nbytes is NULL");
    if (view && heft_dtype_bits(view->dtype) < 8 && view->dtype != HEFT_DTYPE_NONE)
        return heft__fail(err, HEFT_UNSUPPORTED, HEFT_FAULT_SUB_BYTE,
                          "elements of less than a byte cannot be read into strided memory; use heft_read");
    heft_status status = read_one(view, dst_stride_nbytes, dst, options, &plan, err);
    return status == HEFT_OK ? read_run(plan, &slot, stats, err) : status;
}

heft_status heft_read_buffer(const heft_view *view, const heft_read_options *options, heft_buffer *out,
                             heft_read_stats *stats, heft_error *err) {
    heft_plan *plan;
    read_clear(stats);
    if (!out) return heft__fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL, "out is NULL");
    memset(out, 0, sizeof *out);
    heft_status status = read_one(view, NULL, NULL, options, &plan, err);
    if (status != HEFT_OK) return status;
    status = heft__host_buffer(&plan->alloc, plan->sum.dst_nbytes, out, err);
    if (status != HEFT_OK) {
        heft_plan_free(plan);
        return status;
    }
    plan->phase = (uintptr_t)out->data % HEFT__PLAN_CUT;
    uint8_t *slot = out->data;
    status = read_run(plan, &slot, stats, err);
    if (status != HEFT_OK) heft_buffer_release(out);
    return status;
}

static heft_status read_fail_id(heft_error *err, const heft_archive *archive, uint64_t id, const char *why) {
    return heft__fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL, "tensor id %llu %s; the archive has %llu tensors",
                      (unsigned long long)id, why, (unsigned long long)archive->ntensors);
}

/* Each id in range and, under `once`, given once. */
static heft_status read_check_ids(const heft_archive *archive, const uint64_t *ids, uint64_t nids, bool once,
                                  const heft_allocator *alloc, heft_error *err) {
    bool rising = true;
    for (uint64_t i = 0; i < nids; i++) {
        if (ids[i] >= archive->ntensors) return read_fail_id(err, archive, ids[i], "is out of range");
        rising = rising && (i == 0 || ids[i] > ids[i - 1]);
    }
    if (rising || !once) return HEFT_OK;
    uint64_t nbytes = archive->ntensors / 8 + 1;
    uint8_t *seen = heft__alloc_zero(alloc, nbytes);
    if (!seen) return heft__fail_memory(err, nbytes);
    heft_status status = HEFT_OK;
    for (uint64_t i = 0; i < nids && status == HEFT_OK; i++) {
        uint8_t bit = (uint8_t)(1u << (ids[i] % 8));
        if (seen[ids[i] / 8] & bit) status = read_fail_id(err, archive, ids[i], "is given twice");
        seen[ids[i] / 8] |= bit;
    }
    heft__free(alloc, seen, nbytes);
    return status;
}

/* A plan of whole tensors, straight from the catalog: no view is made. */
static heft_status read_tensors(const heft_archive *archive, const uint64_t *ids, uint64_t nids,
                                const heft_read_options *options, bool layout, heft_plan **out, heft_error *err) {
    heft__plan_request request;
    *out = NULL;
    if (!archive || (!ids && nids && !layout))
        return heft__fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL, "archive or ids is NULL");
    heft_status status = heft__read_begin(archive, options, nids, &request, err);
    if (status == HEFT_OK && ids) status = read_check_ids(archive, ids, nids, layout, &request.alloc, err);
    request.layout = layout;
    request.slots = !layout;
    if (status == HEFT_OK) status = heft__plan_new(&request, out, err);
    for (uint64_t i = 0; status == HEFT_OK && i < nids; i++)
        status = heft__plan_add_tensor(*out, archive, ids ? ids[i] : i, (uint32_t)i, err);
    if (status == HEFT_OK) status = heft__plan_finish(*out, err);
    if (status != HEFT_OK) {
        heft_plan_free(*out);
        *out = NULL;
    }
    return status;
}

heft_status heft_read_many(const heft_archive *archive, const uint64_t *ids, uint64_t nids,
                           const heft_read_options *options, heft_buffer *out, uint64_t *offsets,
                           heft_read_stats *stats, heft_error *err) {
    heft_plan *plan;
    read_clear(stats);
    if (!out) return heft__fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL, "out is NULL");
    memset(out, 0, sizeof *out);
    if (archive && !ids) nids = archive->ntensors;
    heft_status status = read_tensors(archive, ids, nids, options, true, &plan, err);
    if (status != HEFT_OK) return status;
    status = heft__host_buffer(&plan->alloc, plan->sum.dst_nbytes, out, err);
    uint8_t *slot = out->data;
    if (status == HEFT_OK) status = heft__run(plan, &slot, stats, err);
    if (status != HEFT_OK)
        heft_buffer_release(out);
    else if (offsets && nids) {
        memset(offsets, 0, nids * sizeof *offsets); /* where tensors without bytes are */
        for (uint64_t i = 0; i < plan->nitems; i++) offsets[plan->items[i].view] = (uint64_t)plan->items[i].place;
    }
    heft_plan_free(plan);
    return status;
}

heft_status heft_read_many_into(const heft_archive *archive, const uint64_t *ids, uint64_t nids, void *const *dst,
                                const uint64_t *dst_nbytes, const heft_read_options *options, heft_read_stats *stats,
                                heft_error *err) {
    heft_plan *plan;
    read_clear(stats);
    if (nids && (!dst || !dst_nbytes))
        return heft__fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL, "dst or dst_nbytes is NULL");
    heft_status status = read_tensors(archive, ids, nids, options, false, &plan, err);
    if (status != HEFT_OK) return status;
    for (uint64_t i = 0; i < plan->nitems && status == HEFT_OK; i++) {
        const heft__plan_item *item = &plan->items[i];
        uint64_t needs = heft__plan_held(plan, item);
        if (dst_nbytes[item->view] < needs)
            status = read_fail_small(err, archive, item->id, dst_nbytes[item->view], needs);
        else if (!dst[item->view])
            status = heft__fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL, "dst[%u] is NULL", item->view);
    }
    if (status == HEFT_OK) status = heft__run(plan, (uint8_t *const *)dst, stats, err);
    heft_plan_free(plan);
    return status;
}
