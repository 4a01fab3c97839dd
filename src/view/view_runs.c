/* view: the byte runs of a strided view, one at a time in constant memory. */
#include "view/view.h"

uint32_t heft__view_collapse(const heft_view *view, int64_t shape[HEFT_MAX_RANK], int64_t stride[HEFT_MAX_RANK]) {
    uint32_t rank = 0;
    for (uint32_t axis = 0; axis < view->rank; axis++) {
        if (view->shape[axis] == 1) continue;
        if (rank && stride[rank - 1] == view->shape[axis] * view->stride[axis]) {
            shape[rank - 1] *= view->shape[axis];
            stride[rank - 1] = view->stride[axis];
        } else {
            shape[rank] = view->shape[axis];
            stride[rank++] = view->stride[axis];
        }
    }
    return rank;
}

void heft__run_iter_init_bits(heft_run_iter *iter, const heft_view *view) {
    uint64_t bits = heft_dtype_bits(view->dtype), elements = heft_view_nelems(view), inner = 1;
    int64_t stride[HEFT_MAX_RANK];
    iter->rank = iter->reserved = 0;
    iter->bit = iter->run_bits = iter->left = 0;
    if (elements == 0 || bits == 0) return;
    uint32_t rank = heft__view_collapse(view, iter->shape, stride);
    if (rank && stride[rank - 1] == 1) inner = (uint64_t)iter->shape[--rank];
    for (uint32_t axis = 0; axis < rank; axis++) {
        iter->index[axis] = 0;
        iter->step[axis] = (uint64_t)stride[axis] * bits; /* modulo 2^64, as all sums of positions are */
    }
    iter->rank = rank;
    iter->bit = (uint64_t)view->offset * bits;
    iter->run_bits = inner * bits;
    iter->left = elements / inner;
}

/* Moves to the place of the next piece of run_bits. */
static void runs_advance(heft_run_iter *iter) {
    for (uint32_t axis = iter->rank; axis-- > 0;) {
        iter->bit += iter->step[axis];
        if (++iter->index[axis] < iter->shape[axis]) return;
        iter->bit -= iter->step[axis] * (uint64_t)iter->shape[axis];
        iter->index[axis] = 0;
    }
}

bool heft__run_iter_next_bits(heft_run_iter *iter, uint64_t *bit, uint64_t *nbits) {
    if (iter->left == 0) return false;
    *bit = iter->bit;
    *nbits = 0;
    do { /* pieces may touch where an inner dim ends, though not everywhere */
        *nbits += iter->run_bits;
        iter->left--;
        runs_advance(iter);
    } while (iter->left && iter->bit == *bit + *nbits);
    return true;
}

heft_status heft_run_iter_init(heft_run_iter *iter, const heft_view *view, heft_error *err) {
    if (!iter || !view)
        return heft__view_fail(NULL, NULL, err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL, "%s is NULL", iter ? "view" : "iter");
    heft__run_iter_init_bits(iter, view);
    /* Each dim left has two places at least, and the first run is never joined to the second: so runs lie on bytes if the first
     * place, the length and every step do. */
    uint64_t off = iter->bit | iter->run_bits;
    for (uint32_t axis = 0; axis < iter->rank; axis++) off |= iter->step[axis];
    if (off % 8 == 0) return HEFT_OK;
    iter->left = 0;
    return heft__view_fail(view, NULL, err, HEFT_UNSUPPORTED, HEFT_FAULT_SUB_BYTE,
                           "runs of this view of %s start or end inside a byte (%u bits an element)",
                           heft_dtype_name(view->dtype), (unsigned)heft_dtype_bits(view->dtype));
}

bool heft_run_iter_next(heft_run_iter *iter, uint64_t *offset, uint64_t *nbytes) {
    if (!heft__run_iter_next_bits(iter, offset, nbytes)) return false;
    *offset /= 8;
    *nbytes /= 8;
    return true;
}
