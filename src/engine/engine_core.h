/* engine: what all engines share: the queue of submitted blocks, one block at work, failures, progress, the end. */
#ifndef HEFT_ENGINE_ENGINE_CORE_H
#define HEFT_ENGINE_ENGINE_CORE_H

#include "engine/engine.h"

/* ---- blocks that wait (engine_lanes.c). Guarded by the engine, but for heft__range_take. ---- */

/* Blocks of one call of submit. */
typedef struct heft__range {
    struct heft__range *next; /* in its lane, or among the spare ones */
    struct heft__range *made; /* all that were made */
    atomic_uint_fast64_t cursor;
    uint64_t end;
    uint32_t holders; /* workers that draw from it */
    bool queued;      /* it is in a lane */
} heft__range;

typedef struct heft__lanes {
    heft_allocator alloc;
    _Atomic uint8_t *states; /* of each block: 0, the lane in which it waits, begun */
    heft__range *first[HEFT__LANES], *last[HEFT__LANES], *spare, *made;
} heft__lanes;

void heft__lanes_free(heft__lanes *lanes);
/* Puts [first, first + n) into a lane. *fresh: how many were not submitted before. False: no memory, and nothing is done. */
bool heft__lanes_add(heft__lanes *lanes, heft__lane lane, uint64_t first, uint64_t n, uint64_t *fresh);
/* Gives `held` (may be NULL) back and takes hold of the most urgent range that has blocks left; NULL: there is none. */
heft__range *heft__lanes_hold(heft__lanes *lanes, heft__range *held);
/* The next block of a range that the caller holds, never one that was begun; false: it has no more. Needs no lock. */
bool heft__range_take(heft__lanes *lanes, heft__range *range, uint64_t *number);

/* ---- the engine ---- */

typedef struct heft__engine_worker {
    heft__read_counters counters;
    uint64_t failed_block, failed_offset; /* of its lowest failure */
    heft_status status;
    heft_error err;
} heft__engine_worker;

typedef enum heft__engine_reason {
    HEFT__STOP_FAILURE = 1,
    HEFT__STOP_PROGRESS = 2, /* the callback says so */
    HEFT__STOP_CANCEL = 4,
    HEFT__STOP_CLOSE = 8
} heft__engine_reason;

/* The first member of every engine. */
struct heft__engine {
    const heft__engine_job *job;
    heft__lanes lanes;
    heft__engine_worker *workers;
    uint32_t nworkers, nslots;
    uint8_t *slots;          /* memory of steps, slot_nbytes for each block that may be at work; NULL: there are no steps */
    uint64_t slot_nbytes;
    void *memory;            /* where slots lie */
    uint64_t memory_nbytes, tables_nbytes; /* tables: workers, finished, states of lanes */
    uint64_t *finished;      /* numbers in the order in which blocks ended; [reaped, ended) wait for reap. Guarded. */
    uint64_t reaped, ended;
    uint64_t submitted;      /* the owner's */
    atomic_uint_fast64_t unfinished; /* blocks that were submitted and have not ended */
    atomic_uint_fast64_t done_nbytes;
    atomic_uint stopped;     /* heft__engine_reason bits: no further block is to be begun */
    atomic_flag reporting;
    double reported;         /* seconds; guarded by `reporting` */
};

/* Fills all that is above for `slots` blocks at work at a time, calls the progress callback for the first time. On failure
 * nothing is held. */
heft_status heft__engine_init(heft__engine *engine, const heft__engine_job *job, uint32_t workers, uint32_t slots,
                              heft_error *err);
/* What submit does in any engine. Guarded. */
heft_status heft__engine_add(heft__engine *engine, heft__lane lane, uint64_t first, uint64_t n, heft_error *err);
bool heft__engine_stopped(const heft__engine *engine);
/* Nor are the further requests of blocks that have begun. */
bool heft__engine_cancelled(const heft__engine *engine);
void heft__engine_stop(heft__engine *engine, heft__engine_reason reason);
/* A block is finished. Guarded if the job collects. True: it was the last of those submitted. */
bool heft__engine_finish(heft__engine *engine, uint64_t number);
/* Finished blocks that wait to be reaped. Guarded. */
uint64_t heft__engine_reap(heft__engine *engine, uint64_t *numbers, uint64_t room);
/* Says what happened, and frees what init has made, when no worker runs any more. `workers`: how many there were. */
heft_status heft__engine_end(heft__engine *engine, uint32_t workers, heft__engine_result *result, heft_error *err);

/* ---- one block at work (engine_work.c) ---- */

typedef struct heft__work {
    heft__engine *engine;
    heft__engine_worker *worker;
    heft__channel *channel;
    heft__task task;
    heft__vec single;     /* of a plain block */
    heft_status status;
    bool requested;       /* the task has a request, of which `got` bytes are there and vectors before `first` are full */
    bool buffered;        /* what is left of it is not to be read directly */
    bool dropped;         /* given up between two requests */
    uint64_t got;
    size_t first;
    uint64_t done_nbytes; /* for progress */
    double began;
    /* the call that is to be made, for the rest of the request */
    bool direct, drop;
} heft__work;

/* Starts a block, with the memory of a slot. */
void heft__work_begin(heft__work *work, heft__engine *engine, uint32_t worker, uint32_t slot, uint64_t number);
/* Goes on until a call must be made (true) or the block has ended (false). */
bool heft__work_next(heft__work *work);
/* Makes the call. Bytes or -errno. */
int64_t heft__work_call(const heft__work *work);
/* Takes what the call gave. */
void heft__work_result(heft__work *work, int64_t result);
/* Of a block that has ended: calls `done`, adds up, reports progress. True: it is finished; false: the engine is to stop. */
bool heft__work_end(heft__work *work);

#endif
