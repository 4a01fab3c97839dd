/* plan: items from views and tensors, checked against the catalog. */
#include "plan/plan.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/text.h"
#include "dtype/cast.h"

#include <string.h>

static uint64_t items_magnitude(int64_t step) {
    return step < 0 ? 0 - (uint64_t)step : (uint64_t)step;
}

/* The number of an archive's first file among the sources, plus 1; 0: it is not there. */
static uint64_t items_archive(const heft_plan *plan, const heft_archive *archive) {
    uint64_t at = plan->nsources;
    while (at > 0 && plan->sources[at - 1].archive != archive) at -= plan->sources[at - 1].file + UINT64_C(1);
    return at > 0 ? at - plan->sources[at - 1].file : 0;
}

heft_status heft__plan_add_archive(heft_plan *plan, const heft_archive *archive, heft_error *err) {
    if (items_archive(plan, archive)) return HEFT_OK;
    for (uint32_t i = 0; i < archive->nfiles; i++) {
        if (!heft__grow(&plan->alloc, (void **)&plan->sources, &plan->sources_capacity, plan->nsources,
                        sizeof *plan->sources, archive->nfiles))
            return heft__fail_memory(err, archive->nfiles * sizeof *plan->sources);
        plan->sources[plan->nsources++] =
            (heft__plan_source){.source = archive->files[i]->source,
                                .archive = archive,
                                .file = i,
                                .gap = plan->options.gap_nbytes == HEFT_NONE ? 0 : plan->options.gap_nbytes,
                                .view_gap = plan->view_gap};
    }
    if (plan->nsources >= UINT32_MAX)
        return heft__fail(err, HEFT_LIMIT, HEFT_FAULT_CALLER_LIMIT, "too many files in one plan");
    return HEFT_OK;
}

/* The plan's number of a file; all files of an archive are numbered at its first use. */
static heft_status items_source(heft_plan *plan, const heft_archive *archive, uint32_t file, uint32_t *out,
                                heft_error *err) {
    uint64_t first = items_archive(plan, archive);
    if (first == 0) {
        heft_status status = heft__plan_add_archive(plan, archive, err);
        if (status != HEFT_OK) return status;
        first = items_archive(plan, archive);
    }
    *out = (uint32_t)(first - 1 + file);
    return HEFT_OK;
}

static heft_status items_push(heft_plan *plan, const heft__plan_item *item, heft_error *err) {
    if (!heft__grow(&plan->alloc, (void **)&plan->items, &plan->items_capacity, plan->nitems, sizeof *item, 4))
        return heft__fail_memory(err, plan->items_capacity * 2 * sizeof *item);
    plan->items[plan->nitems++] = *item;
    return HEFT_OK;
}

static heft_status items_push_nest(heft_plan *plan, heft__plan_item *item, heft__plan_nest *nest,
                                   const heft__loop *loops, heft_error *err) {
    if (!heft__grow(&plan->alloc, (void **)&plan->nests, &plan->nests_capacity, plan->nnests, sizeof *nest, 4))
        return heft__fail_memory(err, plan->nests_capacity * 2 * sizeof *nest);
    nest->first_loop = (uint32_t)plan->nloops;
    nest->lies_whole = nest->to && (nest->rank == 0 || (nest->rank == 1 && loops[0].src == (int64_t)nest->unit &&
                                                        loops[0].dst == heft__dtypes[nest->to].bits / 8));
    for (uint32_t d = 0; d < nest->rank; d++) {
        if (!heft__grow(&plan->alloc, (void **)&plan->loops, &plan->loops_capacity, plan->nloops, sizeof *plan->loops,
                        8))
            return heft__fail_memory(err, plan->loops_capacity * 2 * sizeof *plan->loops);
        plan->loops[plan->nloops++] = (heft__plan_loop){loops[d], 1};
    }
    if (plan->nloops >= HEFT__PLAN_NONE)
        return heft__fail(err, HEFT_LIMIT, HEFT_FAULT_CALLER_LIMIT, "too many strided views in one plan");
    if (!heft__nest_tile(plan, nest, item))
        return heft__fail(err, HEFT_LIMIT, HEFT_FAULT_CALLER_LIMIT, "the view is too large to be planned");
    item->nest = (uint32_t)plan->nnests;
    plan->nests[plan->nnests++] = *nest;
    return items_push(plan, item, err);
}

static uint32_t items_swap(const heft_plan *plan, const heft__entry *entry) {
    uint32_t bits = heft__dtypes[entry->dtype].component_bits;
    return (entry->flags & HEFT__ENTRY_BIG ? plan->swap_big : plan->swap) && bits > 8 ? bits / 8u : 0;
}

/* What an entry is to be converted to: HEFT_DTYPE_NONE where it stays what it is. */
static heft_status items_target(const heft_plan *plan, const heft_archive *archive, const heft__entry *entry,
                                uint32_t file, heft_dtype *out, heft_error *err) {
    *out = plan->as == entry->dtype ? HEFT_DTYPE_NONE : plan->as;
    if (!*out || heft__cast_supported(entry->dtype, *out)) return HEFT_OK;
    heft_error why;
    char name[170];
    heft_status status = heft__cast_fail_pair(entry->dtype, *out, &why);
    heft__escape(name, sizeof name, entry->name, entry->name_len);
    heft__fail(err, status, why.fault, "tensor \"%s\": %s", name, why.message);
    heft__error_tensor(err, entry->name, entry->name_len);
    heft__error_file(err, archive->files[file]->source->label);
    return status;
}

/* A tensor that does not lie row-major is gathered as a view of it is. The plan has places of its own for it. */
static heft_status items_add_fortran(heft_plan *plan, const heft_archive *archive, uint64_t id, uint32_t number,
                                     heft_error *err) {
    heft_view view;
    uint64_t dst_nbytes = plan->sum.dst_nbytes;
    heft_status status = heft_view_of(archive, id, &view, err);
    if (status == HEFT_OK) status = heft__plan_add_view(plan, &view, 0, NULL, number, err);
    plan->sum.dst_nbytes = dst_nbytes;
    return status;
}

heft_status heft__plan_add_tensor(heft_plan *plan, const heft_archive *archive, uint64_t id, uint32_t number,
                                  heft_error *err) {
    uint32_t file, source;
    const heft__entry *entry = heft__archive_entry(archive, id, &file);
    if (entry->flags & HEFT__ENTRY_FORTRAN) return items_add_fortran(plan, archive, id, number, err);
    heft_dtype to;
    plan->sum.nviews++;
    heft_status status = items_target(plan, archive, entry, file, &to, err);
    if (status != HEFT_OK || entry->end == entry->begin) return status;
    status = items_source(plan, archive, file, &source, err);
    if (status != HEFT_OK) return status;
    const heft__dtype_info *info = &heft__dtypes[to ? to : entry->dtype];
    heft__plan_item item = {.offset = archive->files[file]->data_start + entry->begin,
                            .nbytes = entry->end - entry->begin,
                            .source = source,
                            .id = (uint32_t)id,
                            .view = number,
                            .nest = HEFT__PLAN_NONE,
                            .slot = plan->slots ? number : 0,
                            .align = info->align};
    uint32_t swap = items_swap(plan, entry);
    if (!swap && !to) return items_push(plan, &item, err);
    uint32_t unit = to ? heft__dtypes[entry->dtype].bits / 8u : swap;
    heft__loop loop = {item.nbytes / unit, unit, to ? info->bits / 8 : (int64_t)unit};
    heft__plan_nest nest = {.unit = unit, .rank = 1, .swap = swap, .from = entry->dtype, .to = to};
    return items_push_nest(plan, &item, &nest, &loop, err);
}

/* True if all elements of a view lie in its tensor. */
static bool items_in_range(const heft_view *view, uint64_t nelems) {
    int64_t lo = view->offset, hi = view->offset, reach;
    for (uint32_t d = 0; d < view->rank; d++) {
        if (!heft__mul_i64(view->shape[d] - 1, view->stride[d], &reach)) return false;
        if (reach < 0 ? !heft__add_i64(lo, reach, &lo) : !heft__add_i64(hi, reach, &hi)) return false;
    }
    return lo >= 0 && (uint64_t)hi < nelems;
}

heft_status heft__plan_check_view(const heft_view *view, uint64_t *count, heft_error *err) {
    uint32_t file;
    if (!view->archive || view->id >= view->archive->ntensors || view->rank > HEFT_MAX_RANK)
        return heft__fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL, "the view is not one that heft made");
    const heft__entry *entry = heft__archive_entry(view->archive, view->id, &file);
    uint32_t bits = heft__dtypes[entry->dtype].bits;
    uint64_t nbytes = entry->end - entry->begin;
    if (bits == 0) return heft__fail(err, HEFT_UNSUPPORTED, HEFT_FAULT_UNKNOWN_DTYPE, "its dtype is unknown");
    if (view->dtype != entry->dtype)
        return heft__fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL, "the view's dtype is not its tensor's");
    if (bits < 8 && nbytes >> 59)
        return heft__fail(err, HEFT_LIMIT, HEFT_FAULT_CALLER_LIMIT, "the tensor is too large to be repacked");
    *count = 1;
    bool fits = true;
    for (uint32_t d = 0; d < view->rank; d++) {
        if (view->shape[d] < 0)
            return heft__fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL, "dim %u of the view is negative", d);
        if (view->shape[d] == 0) {
            *count = 0;
            return HEFT_OK;
        }
        fits = fits && heft__mul_u64(*count, (uint64_t)view->shape[d], count);
    }
    if (!fits || *count > (uint64_t)INT64_MAX / (bits < 8 ? 8 : bits / 8 + 1))
        return heft__fail(err, HEFT_LIMIT, HEFT_FAULT_CALLER_LIMIT, "the view has too many elements");
    if (!items_in_range(view, bits < 8 ? nbytes * 8 / bits : nbytes / (bits / 8)))
        return heft__fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL, "the view reaches outside of its tensor");
    return HEFT_OK;
}

/* The loops of a view, outermost first, in bytes or bits: `unit` an element in the file, `packed` in memory. False: a step does
 * not fit. */
static bool items_loops(const heft_view *view, uint32_t unit, int64_t packed, const int64_t *dst_strides,
                        heft__loop *loops) {
    int64_t reach = 0, sum = 0;
    for (uint32_t d = view->rank; d-- > 0;) {
        loops[d] = (heft__loop){(uint64_t)view->shape[d], 0, packed};
        packed *= view->shape[d];
        if (view->shape[d] == 1) continue; /* never stepped; a user's stride here may be anything */
        loops[d].src = view->stride[d] * (int64_t)unit;
        if (dst_strides) {
            loops[d].dst = dst_strides[d];
            uint64_t magnitude = items_magnitude(dst_strides[d]);
            if (magnitude > (uint64_t)INT64_MAX || !heft__mul_i64((int64_t)magnitude, view->shape[d] - 1, &reach) ||
                !heft__add_i64(sum, reach, &sum))
                return false;
        }
    }
    return true;
}

/* The extent of the loops in the source: from the first unit's start to the last one's end. */
static uint64_t items_extent(const heft__loop *loops, uint32_t rank, uint64_t unit) {
    uint64_t extent = unit;
    for (uint32_t d = 0; d < rank; d++) extent += (loops[d].count - 1) * (uint64_t)loops[d].src;
    return extent;
}

static bool items_whole_bytes(const heft__loop *loops, uint32_t rank, uint64_t unit, int64_t src, int64_t dst) {
    bool whole = unit % 8 == 0 && src % 8 == 0 && dst % 8 == 0;
    for (uint32_t d = 0; d < rank; d++) whole = whole && loops[d].src % 8 == 0 && loops[d].dst % 8 == 0;
    return whole;
}

heft_status heft__plan_add_view(heft_plan *plan, const heft_view *view, uint64_t place, const int64_t *dst_strides,
                                uint32_t number, heft_error *err) {
    heft__loop loops[HEFT_MAX_RANK + 1];
    uint64_t count = 0;
    uint32_t file, source;
    plan->sum.nviews++;
    heft_status status = heft__plan_check_view(view, &count, err);
    if (status != HEFT_OK || count == 0) return status;
    const heft__entry *entry = heft__archive_entry(view->archive, view->id, &file);
    heft_dtype to;
    status = items_target(plan, view->archive, entry, file, &to, err);
    if (status != HEFT_OK) return status;
    const heft__dtype_info *info = &heft__dtypes[entry->dtype], *landed = &heft__dtypes[to ? to : entry->dtype];
    uint32_t scale = info->bits < 8 ? 8 : 1, swap = items_swap(plan, entry), rank = view->rank; /* steps per byte */
    uint64_t unit = info->bits < 8 ? info->bits : info->bits / 8u, size = to ? landed->bits / 8u : unit;
    int64_t src = view->offset * (int64_t)unit, dst = 0;
    uint64_t packed = scale == 8 ? (count * unit + 7) / 8 : count * size;
    if (count > (uint64_t)INT64_MAX / size || place > (uint64_t)INT64_MAX - packed)
        return heft__fail(err, HEFT_LIMIT, HEFT_FAULT_CALLER_LIMIT, "the destination is too large");
    if (!items_loops(view, (uint32_t)unit, (int64_t)size, dst_strides, loops))
        return heft__fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL, "the strides of the destination do not fit");
    if (!dst_strides && place + packed > plan->sum.dst_nbytes) plan->sum.dst_nbytes = place + packed;
    if (swap && swap < unit) { /* two components an element */
        loops[rank++] = (heft__loop){unit / swap, swap, swap};
        unit = swap;
    }
    rank = heft__nest_normalize(loops, rank, &unit, swap || to, &src, &dst);
    bool whole = scale == 8 && items_whole_bytes(loops, rank, unit, src, dst);
    if (whole) {
        for (uint32_t d = 0; d < rank; d++) {
            loops[d].src /= 8;
            loops[d].dst /= 8;
        }
        unit /= 8;
        src /= 8;
        dst /= 8;
        scale = 1;
    }
    status = items_source(plan, view->archive, file, &source, err);
    if (status != HEFT_OK) return status;
    uint64_t extent = items_extent(loops, rank, unit), first = (uint64_t)src / scale;
    heft__plan_item item = {.offset = view->archive->files[file]->data_start + entry->begin + first,
                            .nbytes = ((uint64_t)src + extent + scale - 1) / scale - first,
                            .place = (int64_t)place + (scale == 8 ? 0 : dst),
                            .source = source,
                            .id = (uint32_t)view->id,
                            .view = number,
                            .nest = HEFT__PLAN_NONE,
                            .slot = plan->slots ? number : 0,
                            .align = landed->align};
    if (rank == 0 && !swap && !to && scale == 1) return items_push(plan, &item, err);
    heft__plan_nest nest = {.unit = unit, .rank = rank, .swap = swap, .from = entry->dtype, .to = to, .bits = scale == 8};
    if (nest.bits) {
        nest.src_bit = src % 8;
        nest.dst_bit = dst;
    }
    return items_push_nest(plan, &item, &nest, loops, err);
}
