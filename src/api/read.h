/* api: what every read begins with. */
#ifndef HEFT_API_READ_H
#define HEFT_API_READ_H

#include "plan/plan.h"

/* Options and facts of this process for a plan. `archive` (NULL: none) lends its allocator where no other is given. */
heft_status heft__read_begin(const heft_archive *archive, const heft_read_options *options, uint64_t nviews,
                             heft__plan_request *request, heft_error *err);

#endif
