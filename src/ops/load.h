/* ops: loads. A load plan joins filter, facts, plan and memory; running it joins the plan with engine and device.
 *
 *     load.c           options, filter, facts, layout: a plan that can be printed
 *     load_memory.c    what it will hold, and whether that fits
 *     load_run.c       a plan at work: arenas, mappings, channels, telemetry
 *     load_weights.c   what came out
 *     load_iter.c, load_ring.c   tensors while they come in */
#ifndef HEFT_OPS_LOAD_H
#define HEFT_OPS_LOAD_H

#include "base/os.h"
#include "heft/loads.h"
#include "ops/load_weights.h"
#include "plan/plan.h"

/* Of a file: what was done by the last run. */
typedef struct heft__load_shard {
    char why[256];
    bool timed;     /* residency was found by timing reads */
    heft_path used; /* HEFT_PATH_NONE: not run yet */
    int32_t fallback_errno;
    uint64_t read_nbytes;
    double seconds;
} heft__load_shard;

struct heft_load_plan {
    heft_allocator alloc;
    heft_archive *archive;     /* held */
    heft_load_options options; /* copied; no filter, no allocator */
    bool atlas;                /* its rule for the multiplier */
    heft_filter_result *filter; /* NULL: all tensors are kept, and nobody has asked yet */
    const uint64_t *kept;      /* ids, ascending; NULL: all. An item's `view` is its number here */
    uint64_t nkept;
    heft__load_parts parts;
    heft__source_facts *facts; /* by file */
    heft__host_facts host;
    heft_plan *plan;           /* into arenas */
    heft__load_shard *shards;  /* by file */
    heft_footprint memory;
    heft_engine engine;        /* effective */
    uint64_t archive_nbytes;   /* that the archive holds */
    double filter_seconds, plan_seconds;
    heft__read_counters sampled; /* by timed samples, until a run has told of them */
};

/* The id of kept tensor `number`; the rule that decided about a tensor. */
static inline uint64_t heft__load_kept(const heft_load_plan *load, uint64_t number) {
    return load->kept ? load->kept[number] : number;
}
static inline heft_rule heft__load_rule(const heft_load_plan *load, uint64_t id) {
    return load->filter ? load->filter->rules[id] : HEFT_RULE_KEPT;
}
/* This rank's part of a tensor. */
heft_status heft__load_view(const heft_archive *archive, const heft__load_parts *parts, uint64_t id, heft_view *out,
                            heft_error *err);
/* What the machine says about a file of which `plan`, which is sorted, wants something. */
heft_status heft__load_facts(const heft_load_plan *load, const heft_plan *plan, uint32_t file, heft_error *err);
/* The two halves of a layout: between them facts may be asked for. */
heft_status heft__load_plan_sorted(const heft_load_plan *load, heft_plan **out, heft_error *err);
heft_status heft__load_plan_finish(const heft_load_plan *load, uint64_t ring_nbytes, bool single, heft_plan *plan,
                                   heft_error *err);
/* Lays out the kept tensors, for arenas or for a ring (`ring_nbytes` not 0), there with `single` tensors if their order is not
 * that of the files. */
heft_status heft__load_layout(const heft_load_plan *load, uint64_t ring_nbytes, bool single, heft_plan **out,
                              heft_error *err);

/* load_arena.c: memory for a load: `out` holds *arena, which is to be settled when the load has ended. */
heft_status heft__load_memory_take(const heft_load_plan *load, uint64_t nbytes, uint64_t align, heft_arena **arena,
                                   heft_buffer *out, heft_error *err);
/* The engine of an effective number. */
const heft__engine_kind *heft__load_engine(heft_engine engine);

/* load_deferred.c: one tensor into memory of its own. */
heft_status heft__weights_read(const heft_weights *weights, uint64_t id, heft_buffer *out, heft_error *err);

/* load_memory.c: what an archive holds. */
uint64_t heft__load_archive_nbytes(const heft_archive *archive);
/* The footprint of a layout, with the free memory of this moment. */
heft_status heft__load_measure(const heft_load_plan *load, const heft_plan *plan, heft_footprint *out, heft_error *err);
/* Measures anew and compares. */
heft_status heft__load_admit(const heft_load_plan *load, const heft_plan *plan, heft_footprint *out, heft_error *err);

#endif
