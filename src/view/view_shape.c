/* view: other orders and shapes of the same elements: permute, transpose, reshape, squeeze, split. */
#include "view/view.h"

#include "base/checked.h"

static heft_status view_no_axis(const heft_view *view, heft_view *out, int64_t axis, heft_error *err) {
    heft__view_fail(view, out, err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL, "axis %lld is out of range for a view of %lu dim%s",
                    (long long)axis, (unsigned long)view->rank, view->rank == 1 ? "" : "s");
    heft__error_at(err, HEFT_NONE, view->rank, axis < 0 ? HEFT_NONE : (uint64_t)axis);
    return HEFT_INVALID_ARGUMENT;
}

/* *out = the view with these dims; shape and stride are not those of `out`. */
static void view_set(const heft_view *view, uint32_t rank, const int64_t *shape, const int64_t *stride, heft_view *out) {
    for (uint32_t axis = 0; axis < rank; axis++) {
        out->shape[axis] = shape[axis];
        out->stride[axis] = stride[axis];
    }
    heft__view_derive(view, rank, view->offset, out);
}

heft_status heft_view_permute(const heft_view *view, const int64_t *axes, heft_view *out, heft_error *err) {
    heft_status status = heft__view_check(view, out, err);
    if (status != HEFT_OK) return status;
    int64_t shape[HEFT_MAX_RANK], stride[HEFT_MAX_RANK];
    uint64_t seen = 0; /* one bit an axis: HEFT_MAX_RANK is 64 */
    for (uint32_t i = 0; i < view->rank; i++) {
        uint32_t axis = view->rank - 1 - i;
        if (axes && !heft__view_axis(view, axes[i], &axis)) return view_no_axis(view, out, axes[i], err);
        if (seen >> axis & 1)
            return heft__view_fail(view, out, err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL, "axis %lu is given twice",
                                   (unsigned long)axis);
        seen |= UINT64_C(1) << axis;
        shape[i] = view->shape[axis];
        stride[i] = view->stride[axis];
    }
    view_set(view, view->rank, shape, stride, out);
    return HEFT_OK;
}

heft_status heft_view_transpose(const heft_view *view, int64_t axis_a, int64_t axis_b, heft_view *out, heft_error *err) {
    heft_status status = heft__view_check(view, out, err);
    if (status != HEFT_OK) return status;
    uint32_t a, b;
    if (!heft__view_axis(view, axis_a, &a)) return view_no_axis(view, out, axis_a, err);
    if (!heft__view_axis(view, axis_b, &b)) return view_no_axis(view, out, axis_b, err);
    int64_t axes[HEFT_MAX_RANK];
    for (uint32_t i = 0; i < view->rank; i++) axes[i] = i == a ? b : i == b ? a : i;
    return heft_view_permute(view, axes, out, err);
}

/* Copies the wanted shape with the -1 worked out. */
static heft_status view_known_shape(const heft_view *view, const int64_t *wanted, uint32_t rank, int64_t *shape,
                                    heft_view *out, heft_error *err) {
    uint64_t have = heft_view_nelems(view), product = 1;
    uint32_t unknown = rank;
    bool zero = false, fits = true;
    for (uint32_t axis = 0; axis < rank; axis++) {
        shape[axis] = wanted[axis];
        zero = zero || wanted[axis] == 0;
        if (wanted[axis] < -1 || (wanted[axis] == -1 && unknown < rank))
            return heft__view_fail(view, out, err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL,
                                   wanted[axis] < -1 ? "dim %lu of the new shape is negative"
                                                     : "dim %lu of the new shape is the second -1: one can be worked out",
                                   (unsigned long)axis);
        if (wanted[axis] == -1) unknown = axis;
        else fits = heft__mul_u64(product, (uint64_t)wanted[axis], &product) && fits;
    }
    if (zero) product = 0;
    else if (!fits) product = UINT64_MAX; /* more than any view holds */
    if (unknown < rank && product && have % product == 0) {
        shape[unknown] = (int64_t)(have / product);
        return HEFT_OK;
    }
    if (unknown == rank && product == have) return HEFT_OK;
    if (unknown < rank)
        heft__view_fail(view, out, err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL,
                        "%llu elements cannot be parted into groups of %llu", (unsigned long long)have,
                        (unsigned long long)product);
    else
        heft__view_fail(view, out, err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL, "%llu elements do not fill a shape of %s%llu",
                        (unsigned long long)have, fits ? "" : "more than ", (unsigned long long)product);
    heft__error_at(err, HEFT_NONE, have, product);
    return HEFT_INVALID_ARGUMENT;
}

/* Strides of `shape` over the elements of a view that has some. From the last dim to the first, each new dim takes elements from
 * `room`: dims of the view, joined as far as they step as one. False: a new dim would cross two that do not. */
static bool view_reshape_strides(const heft_view *view, const int64_t *shape, uint32_t rank, int64_t *stride) {
    uint32_t next = view->rank; /* dims at and after it are in `room` or used up */
    int64_t room = 1, step = 1;
    bool started = false;
    for (uint32_t axis = rank; axis-- > 0;) {
        while (!started || (shape[axis] != 1 && room % shape[axis] != 0)) {
            while (next > 0 && view->shape[next - 1] == 1) next--;
            if (next == 0) return false; /* not reached: the counts are equal, and a view of dims of 1 is contiguous */
            next--;
            if (room == 1) step = view->stride[next];
            else if (view->stride[next] != step * room) return false;
            room *= view->shape[next];
            started = true;
        }
        stride[axis] = step;
        if (shape[axis] == 1) continue;
        room /= shape[axis];
        step *= shape[axis];
    }
    return true;
}

heft_status heft_view_reshape(const heft_view *view, const int64_t *shape, uint32_t rank, heft_view *out, heft_error *err) {
    heft_status status = heft__view_check(view, out, err);
    if (status == HEFT_OK && rank && !shape)
        status = heft__view_fail(view, out, err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL, "shape is NULL");
    if (status != HEFT_OK) return status;
    if (rank > HEFT_MAX_RANK) {
        heft__view_fail(view, out, err, HEFT_LIMIT, HEFT_FAULT_RANK_LIMIT, "a view has at most %d dims, %lu are wanted",
                        HEFT_MAX_RANK, (unsigned long)rank);
        heft__error_at(err, HEFT_NONE, HEFT_MAX_RANK, rank);
        return HEFT_LIMIT;
    }
    int64_t known[HEFT_MAX_RANK], stride[HEFT_MAX_RANK];
    bool same = rank == view->rank;
    for (uint32_t axis = 0; same && axis < rank; axis++) same = shape[axis] == view->shape[axis];
    if (same) {
        view_set(view, rank, view->shape, view->stride, out);
        return HEFT_OK;
    }
    status = view_known_shape(view, shape, rank, known, out, err);
    if (status != HEFT_OK) return status;
    if (heft_view_is_contiguous(view)) heft__view_strides(known, rank, stride);
    else if (!view_reshape_strides(view, known, rank, stride))
        return heft__view_fail(view, out, err, HEFT_UNSUPPORTED, HEFT_FAULT_CALL,
                               "this reshape would need a copy: the view's elements do not lie as the new shape wants them");
    view_set(view, rank, known, stride, out);
    return HEFT_OK;
}

heft_status heft_view_squeeze(const heft_view *view, int64_t axis, heft_view *out, heft_error *err) {
    heft_status status = heft__view_check(view, out, err);
    if (status != HEFT_OK) return status;
    uint32_t which;
    if (!heft__view_axis(view, axis, &which)) return view_no_axis(view, out, axis, err);
    if (view->shape[which] != 1) {
        heft__view_fail(view, out, err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL, "axis %lu has size %lld, only 1 can be squeezed",
                        (unsigned long)which, (long long)view->shape[which]);
        heft__error_at(err, HEFT_NONE, 1, (uint64_t)view->shape[which]);
        return HEFT_INVALID_ARGUMENT;
    }
    uint32_t rank = view->rank;
    for (uint32_t i = 0, to = 0; i < rank; i++) { /* `out` may be the view: never written before it is read */
        if (i == which) continue;
        out->shape[to] = view->shape[i];
        out->stride[to++] = view->stride[i];
    }
    heft__view_derive(view, rank - 1, view->offset, out);
    return HEFT_OK;
}

void heft_view_squeeze_all(const heft_view *view, heft_view *out) {
    uint32_t rank = view->rank, to = 0;
    for (uint32_t i = 0; i < rank; i++) {
        if (view->shape[i] == 1) continue;
        out->shape[to] = view->shape[i];
        out->stride[to++] = view->stride[i];
    }
    heft__view_derive(view, to, view->offset, out);
}

heft_status heft_view_split(const heft_view *view, int64_t axis, uint64_t part, uint64_t nparts, heft_split mode,
                            heft_view *out, heft_error *err) {
    heft_status status = heft__view_check(view, out, err);
    if (status != HEFT_OK) return status;
    uint32_t which;
    if (!heft__view_axis(view, axis, &which)) return view_no_axis(view, out, axis, err);
    if (part >= nparts)
        return heft__view_fail(view, out, err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL, "part %llu of %llu does not exist",
                               (unsigned long long)part, (unsigned long long)nparts);
    if (mode != HEFT_SPLIT_EQUAL && mode != HEFT_SPLIT_CEIL)
        return heft__view_fail(view, out, err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL, "no way to split has the number %lu",
                               (unsigned long)mode);
    uint64_t dim = (uint64_t)view->shape[which];
    if (mode == HEFT_SPLIT_EQUAL && dim % nparts != 0) {
        heft__view_fail(view, out, err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL,
                        "axis %lu of size %llu cannot be split into %llu equal parts", (unsigned long)which,
                        (unsigned long long)dim, (unsigned long long)nparts);
        heft__error_at(err, HEFT_NONE, nparts, dim);
        return HEFT_INVALID_ARGUMENT;
    }
    uint64_t most = dim / nparts + (dim % nparts != 0), start = part * most; /* below dim + nparts <= 2^64 - 1 */
    if (start > dim) start = dim;
    uint64_t stop = dim - start < most ? dim : start + most;
    heft_index items[HEFT_MAX_RANK];
    for (uint32_t i = 0; i < which; i++)
        items[i] = (heft_index){.absent = HEFT_INDEX_NO_START | HEFT_INDEX_NO_STOP | HEFT_INDEX_NO_STEP};
    items[which] = (heft_index){.start = (int64_t)start, .stop = (int64_t)stop, .step = 1};
    return heft_view_index(view, items, which + 1, out, err);
}
