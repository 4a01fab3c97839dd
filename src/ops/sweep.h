/* ops: reads many views, or pairs of views, piece by piece, several pieces at once, in bounded memory: what statistics and
 * comparisons have in common. */
#ifndef HEFT_OPS_SWEEP_H
#define HEFT_OPS_SWEEP_H

#include "plan/plan.h"

#define HEFT__SWEEP_PIECE (UINT64_C(1) << 20) /* bytes of one side: in the second-level cache when it is looked at */
#define HEFT__SWEEP_ROUND UINT32_C(256)       /* pieces between two merges */

/* A piece: elements [first, first + nelems) of its item in row-major order (under `any_order` in the file's order), packed
 * and in host byte order. */
typedef struct heft__sweep_piece {
    uint64_t item;
    uint64_t first, nelems;
    uint32_t slot;   /* below HEFT__SWEEP_ROUND: where its result may be kept until it is merged */
    uint32_t worker;
    const void *data[2];
} heft__sweep_piece;

typedef struct heft__sweep {
    uint64_t nitems;
    uint32_t nsides; /* 1, or 2: views of the same shape, read side by side */
    bool any_order;  /* of one side: the elements may come as they lie in the file */
    /* The view of an item; any thread. Its archive and every number in it have been checked. */
    heft_status (*view)(const void *ctx, uint64_t item, uint32_t side, heft_view *out, heft_error *err);
    void (*piece)(void *ctx, const heft__sweep_piece *piece); /* a worker; pieces come in any order */
    void (*merge)(void *ctx, const heft__sweep_piece *piece); /* the caller's thread, in order of items and elements; no data */
    void *ctx;
    uint32_t workers; /* 0: as many as are usual */
    int (*progress)(void *ctx, uint64_t done_nbytes, uint64_t total_nbytes);
    void *progress_ctx;
    heft_allocator alloc;
} heft__sweep;

/* Runs it. *stats (may be NULL) is filled in any case. Of all pieces that fail the first decides the error, which names the
 * tensor. The result of merges does not depend on the number of workers. */
heft_status heft__sweep_run(const heft__sweep *sweep, heft_read_stats *stats, heft_error *err);

#endif
