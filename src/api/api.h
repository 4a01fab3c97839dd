/* api: what the public functions share. */
#ifndef HEFT_API_API_H
#define HEFT_API_API_H

#include "ops/ops.h"

/* From a caller's options (may be NULL). INVALID_ARGUMENT. (archive.c) */
heft_status heft__open_job_make(const heft_open_options *options, heft__open_job *job, heft_error *err);

#endif
