/* engine: moves ranges of bytes from sources to memory. It knows no names, dtypes or shapes.
 *
 * The work is a numbered list of blocks. A plain block is one range that goes to one place. Any other names a step: a
 * function that turns the block into requests, one after another, and does what has to be done with the bytes when they
 * are there (scatter, gather, swap). Steps are bound by ops/run.c; their parameters are opaque here. A block is the unit
 * in which work is handed out, cancelled and reported; a request is one read of a source. */
#ifndef HEFT_ENGINE_ENGINE_H
#define HEFT_ENGINE_ENGINE_H

#include "source/source.h"

/* Most vectors in one request (IOV_MAX of Linux). */
#define HEFT__VEC_MAX 1024

#define HEFT__STEP_NONE UINT32_MAX

typedef struct heft__block {
    heft_source *source;
    uint64_t offset, nbytes; /* in the source; of a plain block at most HEFT__READ_MAX */
    uint8_t *dst;            /* of a plain block */
    uint32_t step;           /* index into the job's steps, or HEFT__STEP_NONE: a plain block */
    uint32_t reserved;
    uint64_t run, part;      /* opaque: which piece of work this is */
} heft__block;

/* A block in flight, and the memory of the worker that runs it. */
typedef struct heft__task {
    heft__block block;
    uint64_t number;         /* of the block in the job */
    uint64_t state[2];       /* the step's own, zero at the first call */
    heft__vec *vec;          /* room for HEFT__VEC_MAX */
    uint8_t *scratch, *dump; /* scratch_nbytes and dump_nbytes of the job */
    /* the request that the step fills: `nbytes` (at most HEFT__READ_MAX) at `offset` into vec[0..nvec) */
    uint64_t offset, nbytes;
    size_t nvec;
} heft__task;

/* Called when a block starts and after each of its requests has been read whole. Fills the next request and returns true,
 * or returns false: the block is done. */
typedef bool (*heft__step)(const void *ctx, heft__task *task);

typedef struct heft__engine_job {
    uint64_t nblocks;
    uint64_t total_nbytes; /* requested over all blocks */
    void (*block)(const void *ctx, uint64_t number, heft__block *out); /* any thread */
    const heft__step *steps; /* NULL: all blocks are plain */
    const void *ctx; /* for `block` and the steps */
    uint64_t scratch_nbytes, dump_nbytes; /* of each worker; 0: no step needs them */
    uint32_t workers;
    heft_allocator alloc;
    int (*progress)(void *ctx, uint64_t done_nbytes, uint64_t total_nbytes); /* may be NULL */
    void *progress_ctx;
    double progress_seconds; /* at least this between two calls */
} heft__engine_job;

typedef struct heft__engine_result {
    heft__read_counters counters;
    uint32_t workers;
    /* of the failure: the byte of the source at which it happened, HEFT_NONE if it was not a read */
    uint64_t failed_block, failed_offset;
} heft__engine_result;

/* An engine: runs a job to its end. The lowest-numbered failing block decides the error, whatever the timing; blocks not
 * yet begun are dropped then, those begun are finished, and all workers are joined before it returns. */
typedef struct heft__engine {
    const char *name;
    heft_status (*run)(const heft__engine_job *job, heft__engine_result *result, heft_error *err);
} heft__engine;

/* engine_pool.c: threads that call read_at and preadv. Works with every source on every system. */
extern const heft__engine heft__engine_pool;

#endif
