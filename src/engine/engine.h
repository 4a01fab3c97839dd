/* engine: moves ranges of bytes from sources to memory. It knows no names, dtypes or shapes.
 *
 * The work is a numbered list of blocks. A plain block is one range that goes to one place. Any other names a step: a
 * function that turns the block into requests, one after another, and does what has to be done with the bytes when they
 * are there (scatter, gather, swap, copy to a device). Steps are bound by ops; their parameters are opaque here. A block is
 * the unit in which work is handed out, cancelled and reported; a request is one read of a channel.
 *
 * An engine that has been opened is given blocks by number (submit), in lanes of falling urgency, and gives them back when
 * they are done (reap). The thread that reaps is a worker too: with one worker there is no other. */
#ifndef HEFT_ENGINE_ENGINE_H
#define HEFT_ENGINE_ENGINE_H

#include "source/source.h"

/* Most vectors in one request (IOV_MAX of Linux). */
#define HEFT__VEC_MAX 1024

#define HEFT__STEP_NONE UINT32_MAX

/* Storage with a long way to it wants many requests under way, and how many nobody knows beforehand: when the first blocks of
 * `ramp_from` workers each take longer than this, their number is doubled, twice at most and up to `workers`. */
#define HEFT__RAMP_SECONDS 0.2
#define HEFT__RAMP_STEPS 2

/* A source and the ways to its bytes. The caller makes and closes it (zeros are fine but for direct_fd); the engine fills
 * what is marked. */
typedef struct heft__channel {
    heft_source *source;
    int direct_fd;           /* a second descriptor with O_DIRECT (source/source_direct.c), or -1 */
    uint32_t direct_align;   /* of offsets in the file and lengths of direct requests, a power of two */
    heft__mapping *mapping;  /* of touch blocks, or NULL */
    bool drop;               /* RWF_DONTCACHE where the kernel has it */
    /* filled by the engine */
    atomic_int fallback;     /* errno of the first direct request that was refused: all further ones are buffered; 0: none */
    atomic_bool drop_refused, touch_refused;
    atomic_uint_fast64_t nbytes, nanoseconds; /* requested; from begin to end of blocks, summed over workers */
} heft__channel;

typedef enum heft__block_kind {
    HEFT__BLOCK_READ,   /* through the channel's descriptor or read function */
    HEFT__BLOCK_DIRECT, /* through direct_fd: offset and nbytes are multiples of direct_align, the place is aligned for it */
    HEFT__BLOCK_TOUCH   /* no bytes are moved: the pages of the mapping are brought in */
} heft__block_kind;

typedef struct heft__block {
    uint32_t channel;        /* index into the job's channels */
    uint32_t step;           /* index into the job's steps, or HEFT__STEP_NONE: a plain block */
    heft__block_kind kind;
    uint32_t reserved;
    uint64_t offset, nbytes; /* in the source; of a plain block at most HEFT__READ_MAX */
    uint64_t needed;         /* bytes from offset on that must come; 0: all. A direct block may reach beyond the end */
    uint8_t *dst;            /* of a plain block */
    uint64_t run, part;      /* opaque: which piece of work this is */
} heft__block;

/* A block in flight, and the memory of the worker that runs it. */
typedef struct heft__task {
    heft__block block;
    uint64_t number;         /* of the block in the job */
    uint32_t worker;
    uint64_t state[3];       /* the step's own, zero at the first call */
    heft__vec *vec;          /* room for HEFT__VEC_MAX */
    uint8_t *scratch, *dump; /* scratch_nbytes and dump_nbytes of the job; scratch starts at a multiple of 4,096 */
    /* the request that the step fills: `nbytes` (at most HEFT__READ_MAX) at `offset` into vec[0..nvec), of which `needed`
     * must come. Before each call the engine sets `direct` to what the block's kind says, and `needed` to 0: all */
    uint64_t offset, nbytes, needed;
    size_t nvec;
    bool direct;
} heft__task;

/* Called when a block starts and after each of its requests has been read. Fills the next request and returns true, or
 * returns false: the block is done, or has failed with *status (HEFT_OK before the call) and err filled (never NULL). */
typedef bool (*heft__step)(const void *ctx, heft__task *task, heft_status *status, heft_error *err);

typedef struct heft__engine_job {
    uint64_t nblocks;
    uint64_t total_nbytes;   /* requested over all blocks, for progress */
    void (*block)(const void *ctx, uint64_t number, heft__block *out); /* any thread */
    /* Called by the worker that has ended a block, before it can be reaped; may fail the job. NULL: nothing is to be done. */
    heft_status (*done)(const void *ctx, uint64_t number, heft_error *err);
    const heft__step *steps; /* NULL: all blocks are plain */
    const void *ctx;         /* for `block`, `done` and the steps */
    heft__channel *channels;
    uint32_t nchannels;
    uint64_t scratch_nbytes, dump_nbytes; /* of each worker; 0: no step needs them */
    uint32_t workers;
    uint32_t ramp_from;      /* of the pool: workers at the start; see HEFT__RAMP_SECONDS. 0: all at once */
    uint32_t depth;          /* blocks in flight of io_uring, which has one worker; 0: 8, or `workers` where there is scratch */
    heft_allocator alloc;
    const heft_allocator *scratch_alloc; /* of scratch and dump; NULL: `alloc`. A device's host_alloc, where it has one */
    int (*progress)(void *ctx, uint64_t done_nbytes, uint64_t total_nbytes); /* may be NULL */
    void *progress_ctx;
    double progress_seconds; /* at least this between two calls */
    bool collect;            /* numbers of finished blocks are kept for reap; else reap only waits */
} heft__engine_job;

typedef struct heft__engine_result {
    heft__read_counters counters;
    uint64_t fallbacks;      /* channels that stepped down, and hints that were refused */
    uint32_t workers;
    /* of the failure: the byte of the source at which it happened, HEFT_NONE if it was not a read */
    uint64_t failed_block, failed_offset;
} heft__engine_result;

typedef enum heft__lane { HEFT__LANE_WANTED, HEFT__LANE_SOON, HEFT__LANE_AHEAD, HEFT__LANES } heft__lane;

/* An engine at work on one job. */
typedef struct heft__engine heft__engine;

/* A kind of engine. All functions are called by one thread. Of all blocks that failed the one with the lowest number
 * decides the error, whatever the timing as far as blocks were submitted in order; after a failure or a cancellation blocks
 * not yet begun are dropped, those begun are finished. */
typedef struct heft__engine_kind {
    const char *name;
    /* HEFT_OK if this engine can run here (it may be tried only once); UNSUPPORTED with the reason. */
    heft_status (*probe)(heft_error *err);
    /* The job and what it points to stay as they are until close. */
    heft_status (*open)(const heft__engine_job *job, heft__engine **out, heft_error *err);
    /* Adds blocks [first, first + n) to a lane. One that was submitted before and is not begun moves to a more urgent lane;
     * none is read twice. */
    heft_status (*submit)(heft__engine *engine, heft__lane lane, uint64_t first, uint64_t n, heft_error *err);
    /* Writes up to `room` numbers of finished blocks, waiting for at least one; room 0: waits until all that was submitted is
     * done. Returns how many; 0: nothing is outstanding any more, or the job has failed or was cancelled. */
    uint64_t (*reap)(heft__engine *engine, uint64_t *numbers, uint64_t room);
    /* May be called from any thread. */
    void (*cancel)(heft__engine *engine);
    /* Drops what is not begun, joins all workers, frees the engine, says what happened. CANCELLED only if work was dropped by
     * the progress callback or heft_cancel. */
    heft_status (*close)(heft__engine *engine, heft__engine_result *result, heft_error *err);
} heft__engine_kind;

/* engine_pool.c: threads that call read_at and preadv. Works with every source on every system. */
extern const heft__engine_kind heft__engine_pool;
/* engine_uring.c, or its twin engine_uring_none.c: io_uring. The one thread, which reaps, keeps requests in flight, and runs
 * steps and `done`; sources without a descriptor it reads like the pool. */
extern const heft__engine_kind heft__engine_uring;

/* engine.c: all blocks of a job, to their end. */
heft_status heft__engine_run(const heft__engine_kind *kind, const heft__engine_job *job, heft__engine_result *result,
                             heft_error *err);

#endif
