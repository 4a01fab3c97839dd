/* view: whole tensors as views, their sizes, and errors that name the tensor. */
#include "view/view.h"

#include "base/checked.h"
#include "base/text.h"
#include "catalog/catalog.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

heft_status heft__view_fail(const heft_view *view, heft_view *out, heft_error *err, heft_status status, heft_fault fault,
                            const char *format, ...) {
    const heft_archive *archive = view ? view->archive : NULL;
    uint64_t id = view ? view->id : 0; /* read before `out`, which may be the view, is cleared */
    if (out && out != view) {
        out->archive = NULL;
        out->id = 0;
        out->dtype = HEFT_DTYPE_NONE;
        out->rank = 0;
        out->offset = 0;
    }
    if (!err) return status;
    char text[640], name[400] = "";
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    const heft__entry *entry = NULL;
    uint32_t file = 0;
    if (archive && id < archive->ntensors) {
        entry = heft__archive_entry(archive, id, &file);
        heft__escape(name, sizeof name, entry->name, entry->name_len);
    }
    heft__fail(err, status, fault, "%s%s%s", name, entry ? ": " : "", text);
    if (entry) {
        heft__error_tensor(err, entry->name, entry->name_len);
        heft__error_file(err, heft_source_label(archive->files[file]->source));
    }
    return status;
}

heft_status heft__view_check(const heft_view *view, heft_view *out, heft_error *err) {
    if (!view || !out)
        return heft__view_fail(NULL, out, err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL, "%s is NULL", view ? "out" : "view");
    if (view->rank > HEFT_MAX_RANK)
        return heft__view_fail(view, out, err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL, "a view of rank %lu",
                               (unsigned long)view->rank);
    return HEFT_OK;
}

void heft__view_derive(const heft_view *view, uint32_t rank, int64_t offset, heft_view *out) {
    out->archive = view->archive;
    out->id = view->id;
    out->dtype = view->dtype;
    out->rank = rank;
    out->offset = offset;
}

void heft__view_strides(const int64_t *shape, uint32_t rank, int64_t *stride) {
    int64_t step = 1;
    for (uint32_t axis = rank; axis-- > 0;) {
        stride[axis] = step;
        if (shape[axis] > 1) heft__mul_i64(step, shape[axis], &step);
    }
}

bool heft__view_axis(const heft_view *view, int64_t axis, uint32_t *out) {
    int64_t rank = view->rank;
    if (axis < -rank || axis >= rank) return false;
    *out = (uint32_t)(axis < 0 ? axis + rank : axis);
    return true;
}

/* The first dim steps fastest. */
static void view_fortran_strides(heft_view *view) {
    int64_t step = 1;
    for (uint32_t axis = 0; axis < view->rank; axis++) {
        view->stride[axis] = step;
        if (view->shape[axis] > 1) heft__mul_i64(step, view->shape[axis], &step);
    }
}

heft_status heft_view_of(const heft_archive *archive, uint64_t id, heft_view *out, heft_error *err) {
    const heft_view whole = {.archive = archive, .id = id};
    if (!archive || !out)
        return heft__view_fail(NULL, out, err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL, "%s is NULL",
                               archive ? "out" : "archive");
    if (id >= archive->ntensors)
        return heft__view_fail(NULL, out, err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL,
                               "no tensor has id %llu, the archive holds %llu", (unsigned long long)id,
                               (unsigned long long)archive->ntensors);
    uint32_t file;
    const heft__entry *entry = heft__archive_entry(archive, id, &file);
    if (entry->dtype == HEFT_DTYPE_NONE)
        return heft__view_fail(&whole, out, err, HEFT_UNSUPPORTED, HEFT_FAULT_UNKNOWN_DTYPE,
                               "its dtype is unknown: it can be listed, not viewed");
    if (entry->rank > HEFT_MAX_RANK) {
        heft__view_fail(&whole, out, err, HEFT_LIMIT, HEFT_FAULT_RANK_LIMIT, "a view has at most %d dims, the tensor has %lu",
                        HEFT_MAX_RANK, (unsigned long)entry->rank);
        heft__error_at(err, HEFT_NONE, HEFT_MAX_RANK, entry->rank);
        return HEFT_LIMIT;
    }
    for (uint32_t axis = 0; axis < entry->rank; axis++) {
        if (entry->shape[axis] > INT64_MAX) {
            heft__view_fail(&whole, out, err, HEFT_LIMIT, HEFT_FAULT_RANK_LIMIT, "dim %lu is %llu, a view's is at most 2^63 - 1",
                            (unsigned long)axis, (unsigned long long)entry->shape[axis]);
            heft__error_at(err, HEFT_NONE, INT64_MAX, entry->shape[axis]);
            return HEFT_LIMIT;
        }
        out->shape[axis] = (int64_t)entry->shape[axis];
    }
    out->archive = archive;
    out->id = id;
    out->dtype = entry->dtype;
    out->rank = entry->rank;
    out->offset = 0;
    if (entry->flags & HEFT__ENTRY_FORTRAN) view_fortran_strides(out);
    else heft__view_strides(out->shape, out->rank, out->stride);
    return HEFT_OK;
}

heft_status heft_view_named(const heft_archive *archive, const char *name, size_t name_len, heft_view *out,
                            heft_error *err) {
    if (!archive || !name || !out)
        return heft__view_fail(NULL, out, err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL, "%s is NULL",
                               !archive ? "archive" : !name ? "name" : "out");
    uint64_t id;
    heft_status status = heft_archive_find(archive, name, name_len, &id, err);
    if (status == HEFT_OK) return heft_view_of(archive, id, out, err);
    heft__view_fail(NULL, out, NULL, status, HEFT_FAULT_CALL, "not found");
    return status;
}

uint64_t heft_view_nelems(const heft_view *view) {
    uint64_t count = 1;
    for (uint32_t axis = 0; axis < view->rank; axis++)
        if (view->shape[axis] == 0) return 0;
    for (uint32_t axis = 0; axis < view->rank; axis++) count *= (uint64_t)view->shape[axis];
    return count;
}

uint64_t heft_view_nbytes(const heft_view *view) {
    uint64_t count = heft_view_nelems(view), bits = heft_dtype_bits(view->dtype);
    return count / 8 * bits + (count % 8 * bits + 7) / 8;
}

bool heft_view_is_contiguous(const heft_view *view) {
    int64_t expected = 1;
    if (heft_view_nelems(view) == 0) return true;
    for (uint32_t axis = view->rank; axis-- > 0;) {
        if (view->shape[axis] == 1) continue;
        if (view->stride[axis] != expected) return false;
        expected *= view->shape[axis];
    }
    return true;
}

void heft__view_span(const heft_view *view, uint64_t *first, uint64_t *end) {
    int64_t low = view->offset, high = view->offset;
    *first = *end = 0;
    if (heft_view_nelems(view) == 0) return;
    for (uint32_t axis = 0; axis < view->rank; axis++) {
        if (view->shape[axis] == 1) continue;
        int64_t reach = (view->shape[axis] - 1) * view->stride[axis];
        if (reach < 0) low += reach;
        else high += reach;
    }
    *first = (uint64_t)low;
    *end = (uint64_t)high + 1;
}
