/* view: NumPy basic indexing. */
#include "view/view.h"

#include "base/checked.h"

/* What an index adds up to before any dim is touched. */
typedef struct view_count {
    size_t dims, newaxes, integers, ellipses;
} view_count;

static heft_status view_count_items(const heft_view *view, const heft_index *items, size_t nitems, heft_view *out,
                                    view_count *count, size_t *bad, heft_error *err) {
    for (size_t i = 0; i < nitems; i++) {
        *bad = i;
        switch (items[i].kind) {
        case HEFT_INDEX_SLICE:
            count->dims++;
            if (items[i].step == 0 && !(items[i].absent & HEFT_INDEX_NO_STEP))
                return heft__view_fail(view, out, err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL,
                                       "the slice of index item %llu has step 0", (unsigned long long)i);
            break;
        case HEFT_INDEX_INTEGER: count->dims++, count->integers++; break;
        case HEFT_INDEX_NEWAXIS: count->newaxes++; break;
        case HEFT_INDEX_ELLIPSIS:
            if (count->ellipses++)
                return heft__view_fail(view, out, err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL,
                                       "an index has at most one ellipsis ('...')");
            break;
        default:
            return heft__view_fail(view, out, err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL, "index item %llu has kind %lu",
                                   (unsigned long long)i, (unsigned long)items[i].kind);
        }
        if (count->dims > view->rank) {
            heft__view_fail(view, out, err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL,
                            "too many indices: the tensor has %lu dim%s, index item %llu is for axis %llu",
                            (unsigned long)view->rank, view->rank == 1 ? "" : "s", (unsigned long long)i,
                            (unsigned long long)count->dims - 1);
            heft__error_at(err, HEFT_NONE, view->rank, count->dims);
            return HEFT_INVALID_ARGUMENT;
        }
    }
    size_t rank = view->rank - count->integers + count->newaxes;
    if (rank <= HEFT_MAX_RANK) return HEFT_OK;
    heft__view_fail(view, out, err, HEFT_LIMIT, HEFT_FAULT_RANK_LIMIT, "a view has at most %d dims, the index makes more",
                    HEFT_MAX_RANK);
    heft__error_at(err, HEFT_NONE, HEFT_MAX_RANK, rank);
    return HEFT_LIMIT;
}

/* Clamps a bound as Python's slice.indices does: below 0 counts from the end, then to [low, high]. */
static int64_t view_clamp(int64_t bound, int64_t dim, int64_t low, int64_t high) {
    if (bound < 0) bound += dim; /* cannot overflow: the signs differ */
    return bound < low ? low : bound > high ? high : bound;
}

/* The elements that a slice takes of a dim: their number, the first, and the step (-(2^63 - 1) at least). */
static int64_t view_slice(const heft_index *item, int64_t dim, int64_t *start, int64_t *step) {
    *step = item->absent & HEFT_INDEX_NO_STEP ? 1 : item->step < -INT64_MAX ? -INT64_MAX : item->step;
    bool no_start = item->absent & HEFT_INDEX_NO_START, no_stop = item->absent & HEFT_INDEX_NO_STOP;
    int64_t count, stop;
    if (*step > 0) {
        *start = no_start ? 0 : view_clamp(item->start, dim, 0, dim);
        stop = no_stop ? dim : view_clamp(item->stop, dim, 0, dim);
        count = *start < stop ? (stop - *start - 1) / *step + 1 : 0;
    } else {
        *start = no_start ? dim - 1 : view_clamp(item->start, dim, -1, dim - 1);
        stop = no_stop ? -1 : view_clamp(item->stop, dim, -1, dim - 1);
        count = *start > stop ? (*start - stop - 1) / -*step + 1 : 0;
    }
    if (count == 0) *start = 0, *step = 1; /* as NumPy: an empty slice stays where it was */
    return count;
}

static heft_status view_out_of_range(const heft_view *view, heft_view *out, uint32_t axis, int64_t index, heft_error *err) {
    heft__view_fail(view, out, err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL,
                    "index %lld is out of range for axis %lu with size %lld", (long long)index, (unsigned long)axis,
                    (long long)view->shape[axis]);
    heft__error_at(err, HEFT_NONE, (uint64_t)view->shape[axis], index < 0 ? HEFT_NONE : (uint64_t)index);
    return HEFT_INVALID_ARGUMENT;
}

/* Moves the offset by `count` strides. What does not fit belongs to a view without elements: see view.h. */
static void view_move(int64_t *offset, int64_t count, int64_t stride) {
    int64_t distance;
    if (heft__mul_i64(count, stride, &distance)) heft__add_i64(*offset, distance, offset);
}

heft_status heft__view_index(const heft_view *view, const heft_index *items, size_t nitems, heft_view *out, size_t *bad,
                             heft_error *err) {
    view_count count = {0};
    *bad = nitems;
    heft_status status = heft__view_check(view, out, err);
    if (status == HEFT_OK && nitems && !items)
        status = heft__view_fail(view, out, err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL, "items is NULL");
    if (status == HEFT_OK) status = view_count_items(view, items, nitems, out, &count, bad, err);
    if (status != HEFT_OK) return status;
    int64_t shape[HEFT_MAX_RANK], stride[HEFT_MAX_RANK], offset = view->offset; /* `out` may be the view */
    uint32_t axis = 0, rank = 0, full = view->rank - (uint32_t)count.dims;
    for (size_t i = 0; i < nitems; i++) {
        int64_t start = 0, step = 1;
        switch (items[i].kind) {
        case HEFT_INDEX_ELLIPSIS:
            for (uint32_t k = 0; k < full; k++, axis++, rank++) shape[rank] = view->shape[axis], stride[rank] = view->stride[axis];
            full = 0;
            break;
        case HEFT_INDEX_NEWAXIS: shape[rank] = 1, stride[rank++] = 0; break;
        case HEFT_INDEX_INTEGER:
            start = items[i].start < 0 ? items[i].start + view->shape[axis] : items[i].start;
            *bad = i;
            if (start < 0 || start >= view->shape[axis]) return view_out_of_range(view, out, axis, items[i].start, err);
            view_move(&offset, start, view->stride[axis++]);
            break;
        default:
            shape[rank] = view_slice(&items[i], view->shape[axis], &start, &step);
            view_move(&offset, start, view->stride[axis]);
            stride[rank] = view->stride[axis++];
            heft__mul_i64(stride[rank], step, &stride[rank]);
            rank++;
        }
    }
    for (; axis < view->rank; axis++, rank++) shape[rank] = view->shape[axis], stride[rank] = view->stride[axis];
    for (uint32_t k = 0; k < rank; k++) out->shape[k] = shape[k], out->stride[k] = stride[k];
    heft__view_derive(view, rank, offset, out);
    return HEFT_OK;
}

heft_status heft_view_index(const heft_view *view, const heft_index *items, size_t nitems, heft_view *out,
                            heft_error *err) {
    size_t bad;
    return heft__view_index(view, items, nitems, out, &bad, err);
}
