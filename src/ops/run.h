/* ops: runs a plan. The one place where plan, engine and device meet. */
#ifndef HEFT_OPS_RUN_H
#define HEFT_OPS_RUN_H

#include "plan/plan.h"

/* Runs a finished plan into memory. slots[0] is the one destination, or slots[view] that of a view where the plan has slots.
 * Sources are verified first. *stats (may be NULL) is filled in any case. A failure names the tensor. */
heft_status heft__run(const heft_plan *plan, uint8_t *const *slots, heft_read_stats *stats, heft_error *err);

/* Adds the name of the tensor to an error: as a field and to the message. `err` may be NULL. */
void heft__error_name(heft_error *err, const heft_archive *archive, uint64_t id);

#endif
