/* heft/heft.h: everything. heft reads, slices, checks and places the weights of models (safetensors and sharded sets).
 *
 *     heft_archive *a;
 *     heft_error err;
 *     heft_view v;
 *     if (heft_archive_open("model.safetensors", NULL, &a, &err) != HEFT_OK) { puts(err.message); return 1; }
 *     if (heft_view_named(a, "embed.weight", SIZE_MAX, &v, &err) == HEFT_OK && ...
 */
#ifndef HEFT_HEFT_H
#define HEFT_HEFT_H

#include "heft/archives.h"
#include "heft/casts.h"
#include "heft/core.h"
#include "heft/dtypes.h"
#include "heft/filters.h"
#include "heft/loads.h"
#include "heft/reads.h"
#include "heft/saves.h"
#include "heft/sources.h"
#include "heft/values.h"
#include "heft/views.h"

#endif
