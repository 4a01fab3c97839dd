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

/* ---- the same in steps: open, submit and reap as often as wanted, close, free ---- */

/* A plan at work. What the first part points to is the caller's and stays as it is until close. */
typedef struct heft__running {
    const heft_plan *plan;
    uint8_t *const *slots;           /* by slot of the plan; may be filled as late as the blocks that need them are submitted */
    heft__mapping *const *mappings;  /* by mapping of the plan */
    const heft__engine_kind *kind;
    /* Called by the worker that ended a block; may fail the run. NULL: not wanted. */
    heft_status (*done)(void *ctx, uint64_t block, heft_error *err);
    void *done_ctx;
    int (*progress)(void *ctx, uint64_t done_nbytes, uint64_t total_nbytes);
    void *progress_ctx;
    bool collect;                    /* numbers of finished blocks are reaped */
    bool drop;                       /* reads leave no pages in the cache that were not there */
    bool strict;                     /* sources are verified again at the end */
    uint64_t ahead;                  /* blocks for which pages are asked for ahead of the reader; 0: none */
    bool ahead_local;                /* not only of files that are far away */

    heft__channel *channels;         /* by source, then by mapping; there until free */
    uint32_t nchannels;
    heft__engine *engine;
    heft__engine_job job;
    atomic_uint_fast64_t asked;      /* blocks before this one have been asked for */
} heft__running;

/* Verifies sources, opens channels (a direct one that is refused falls back) and the engine. On failure it is closed and
 * free. */
heft_status heft__run_open(heft__running *run, heft_error *err);
/* Ends the engine; names the tensor of a failure. Not called twice. */
heft_status heft__run_close(heft__running *run, heft__engine_result *result, heft_error *err);
void heft__run_free(heft__running *run);

/* borrow_map.c: the bytes of a view in a mapping, or, with `out` NULL, whether they can be had by the rules. */
heft_status heft__borrow(const heft_view *view, uint64_t min_alignment, bool host_is_big_endian, heft_buffer *out,
                         heft_error *err);

/* Adds the name of the tensor to an error: as a field and to the message. `err` may be NULL. */
void heft__error_name(heft_error *err, const heft_archive *archive, uint64_t id);

#endif
