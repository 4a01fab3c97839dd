/* view: what part of a tensor, in what order. Arithmetic on shapes, strides and offsets in elements; no byte moves.
 *
 * Numbers never overflow in a view that has elements: each of its addresses lies in a tensor of less than 2^64 bits. In a view
 * without elements, and for the stride of a dim of 1, a product that does not fit is left out, because no address uses it. */
#ifndef HEFT_VIEW_VIEW_H
#define HEFT_VIEW_VIEW_H

#include "base/error.h"
#include "heft/views.h"

/* Fails with a message that names the tensor first, and clears `out` unless it is the view itself (or NULL). `archive` may be
 * NULL. Returns `status`. */
heft_status heft__view_fail(const heft_view *view, heft_view *out, heft_error *err, heft_status status, heft_fault fault,
                            const char *format, ...) HEFT__PRINTF(6, 7);

/* HEFT_OK if both are there and the rank is possible. */
heft_status heft__view_check(const heft_view *view, heft_view *out, heft_error *err);

/* Sets all of *out but shape and stride to those of the view, with another rank and offset. */
void heft__view_derive(const heft_view *view, uint32_t rank, int64_t offset, heft_view *out);

/* Row-major strides of a shape; a dim of 0 counts as 1. */
void heft__view_strides(const int64_t *shape, uint32_t rank, int64_t *stride);

/* Axis -rank .. rank - 1 as 0 .. rank - 1; false: there is none. */
bool heft__view_axis(const heft_view *view, int64_t axis, uint32_t *out);

/* heft_view_index; on failure *bad is the item at fault (nitems: the number of items). */
heft_status heft__view_index(const heft_view *view, const heft_index *items, size_t nitems, heft_view *out, size_t *bad,
                             heft_error *err);

/* The fewest dims that visit the same elements in the same order: no dim of 1, neighbours that step as one are one. Returns
 * their number; 0: one element. Not for views without elements. */
uint32_t heft__view_collapse(const heft_view *view, int64_t shape[HEFT_MAX_RANK], int64_t stride[HEFT_MAX_RANK]);

/* The elements [*first, *end) of the tensor that cover the view; both 0 if it has no elements. */
void heft__view_span(const heft_view *view, uint64_t *first, uint64_t *end);

/* Runs counted in bits from the start of the tensor: for sub-byte views whose runs start or end inside a byte too. */
void heft__run_iter_init_bits(heft_run_iter *iter, const heft_view *view);
bool heft__run_iter_next_bits(heft_run_iter *iter, uint64_t *bit, uint64_t *nbits);

#endif
