/* ops: runs a plan. The one place where plan, engine and device meet. */
#ifndef HEFT_OPS_RUN_H
#define HEFT_OPS_RUN_H

#include "plan/plan.h"

/* The byte order of this host, as plans and borrows take it; tests give the other one. */
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
#define HEFT__HOST_IS_BIG_ENDIAN true
#else
#define HEFT__HOST_IS_BIG_ENDIAN false
#endif

/* Runs a finished plan into memory. slots[0] is the one destination, or slots[view] that of a view where the plan has slots.
 * Sources are verified first. *stats (may be NULL) is filled in any case. A failure names the tensor. */
heft_status heft__run(const heft_plan *plan, uint8_t *const *slots, heft_read_stats *stats, heft_error *err);

/* borrow_map.c: the bytes of a view in a mapping, or, with `out` NULL, whether they can be had by the rules. */
heft_status heft__borrow(const heft_view *view, uint64_t min_alignment, bool host_is_big_endian, heft_buffer *out,
                         heft_error *err);

/* Adds the name of the tensor to an error: as a field and to the message. `err` may be NULL. */
void heft__error_name(heft_error *err, const heft_archive *archive, uint64_t id);

#endif
