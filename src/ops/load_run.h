/* ops: a load at work: memory, mappings, the run, what it tells. */
#ifndef HEFT_OPS_LOAD_RUN_H
#define HEFT_OPS_LOAD_RUN_H

#include "ops/load.h"
#include "ops/run.h"

/* A load at work. Zero but for `load` and `plan` before heft__load_begin. */
typedef struct heft__load_work {
    heft_load_plan *load;
    const heft_plan *plan;      /* the load's own, or a ring's */
    heft_weights *weights;      /* what will come out; holds arenas and mappings */
    uint8_t **slots;            /* by arena of the plan */
    heft__mapping **mappings;   /* by mapping of the plan; each is held by `weights` */
    heft_arena *ring;           /* of a ring: its memory, which the iterator holds */
    heft__running run;
    heft_status (*done)(void *ctx, uint64_t block, heft_error *err); /* the caller's, as that of the run; NULL: none */
    void *done_ctx;
    atomic_uint_fast64_t *left; /* by file: blocks to go, where memory is looked at between files; else NULL */
    atomic_uint_fast32_t files_left;
    heft_footprint memory;      /* as it was admitted */
    heft_load_stats stats;
    double started, read_started;
    uint64_t minor_faults, major_faults;
} heft__load_work;

/* Finds out by timing what the system does not tell about residency, once the load is admitted, and plans anew with it. What it
 * read is told as requested and over-read by the run that follows. */
heft_status heft__load_sample(heft_load_plan *load, heft_error *err);
/* Admits; unless there is a `ring`, which gives the memory, makes the weights without their data, allocates and maps; opens
 * the run. The caller has set `done` and what it wants of `run` (collect). On failure everything is given back but `stats`. */
heft_status heft__load_begin(heft__load_work *work, bool ring, heft_error *err);
/* Submits all blocks unless `status` is a failure, waits, and ends the run. Returns the first failure. */
heft_status heft__load_go(heft__load_work *work, heft_status status, heft_error *err);
/* Ends the run: OK, and the caller goes on with heft__load_finish; or the failure. */
heft_status heft__load_end(heft__load_work *work, heft_error *err);
/* Fills `data` of the weights: all kept tensors are there. */
heft_status heft__load_publish(heft__load_work *work, heft_error *err);
/* Compares what has been published with the digests of its files (load_verify.c): MISMATCH names the first bad tensor. */
heft_status heft__load_verify(heft__load_work *work, heft_error *err);
/* Frees what is left; weights too unless they were taken (set to NULL). */
void heft__load_release(heft__load_work *work);
/* Copies to the caller's struct, minding its struct_size, with what samples have read, which is told once; NULL: nobody asks. */
void heft__load_tell(const heft__load_work *work, heft_load_stats *out);

/* Who looks on while pages are brought in. */
typedef struct heft__warm_watch {
    int (*progress)(void *ctx, uint64_t done_nbytes, uint64_t total_nbytes); /* as in heft_load_options; NULL: nobody */
    bool (*stop)(void *ctx); /* ends also the wait for another warmer; NULL: nobody can */
    void *ctx;
} heft__warm_watch;
/* heft_warm (load_warm.c). */
heft_status heft__warm(heft_load_plan *plan, const heft__warm_watch *watch, heft_load_stats *stats, heft_error *err);

/* What is known of a tensor that lies at `data`. */
void heft__load_describe(const heft_load_plan *load, uint64_t id, uint8_t *data, heft_loaded *out);

/* Where an item lies. */
static inline uint8_t *heft__load_item_data(const heft__load_work *work, const heft__plan_item *item) {
    if (item->mapped) return (uint8_t *)(uintptr_t)work->mappings[item->slot]->data + item->place;
    return work->slots[item->slot] + item->place;
}

#endif
