/* plan: views and places in, runs and blocks out. Pure: no system call, the same answer for the same input, printable.
 *
 *     items   one a view: its covering range in a source, and the place of its first byte
 *     runs    consecutive items that are read as one contiguous range (plain ones), or one item that is a nest of loops
 *     blocks  a numbering of the pieces of runs; computed on demand, never stored
 *
 * A view whose bytes do not lie in one piece on both sides (strided, transposed, repacked, byte-swapped) is a nest: loops
 * over a contiguous unit, outermost in the file first. It is cut into boxes, equal tiles of its loops; a box is read by one
 * request, or by several where the gaps between them cost more than a request. No list of its runs exists anywhere. */
#ifndef HEFT_PLAN_PLAN_H
#define HEFT_PLAN_PLAN_H

#include "catalog/catalog.h"
#include "device/device.h"
#include "engine/engine.h"
#include "heft/reads.h"

#define HEFT__PLAN_NONE UINT32_MAX

/* Measured on two machines, see docs/performance.md. */
#define HEFT__PLAN_GAP (UINT64_C(32) << 10)          /* between tensors: a request costs as much as reading this */
#define HEFT__PLAN_VIEW_GAP (UINT64_C(8) << 10)      /* inside a view, where gaps are many and go to a hot dump */
#define HEFT__PLAN_BUDGET_MIN (UINT64_C(1) << 20)    /* over-read that is always allowed; else 5 % of what is kept */
#define HEFT__PLAN_BLOCK (UINT64_C(4) << 20)
#define HEFT__PLAN_CUT (UINT64_C(2) << 20)           /* blocks end where huge pages of the destination do */
#define HEFT__PLAN_TAIL (UINT64_C(512) << 10)        /* a shorter last block joins its neighbour */
#define HEFT__PLAN_SCRATCH (UINT64_C(1) << 20)       /* fits the second-level cache */
#define HEFT__PLAN_DUMP (UINT64_C(64) << 10)
#define HEFT__PLAN_VECTOR_MIN 4096                   /* mean piece from which vectors beat scratch and memcpy */
#define HEFT__PLAN_UNIT_MIN 512                      /* the same for the units of a nest */
#define HEFT__PLAN_GAP_KEPT 4096                     /* a gap below this may lie in an arena that the plan lays out ... */
#define HEFT__PLAN_SLACK (UINT64_C(12) << 20)        /* ... up to this sum */
#define HEFT__PLAN_ONE_WORKER (UINT64_C(8) << 20)    /* less than this is not worth a thread */

typedef struct heft__plan_source {
    heft_source *source;
    const heft_archive *archive;
    uint32_t file;
    uint32_t reserved;
} heft__plan_source;

typedef struct heft__plan_item {
    uint64_t offset, nbytes; /* covering range in the source */
    int64_t place;           /* in its slot, of the byte at `offset` (of a sub-byte nest: of the slot's bit 0) */
    uint32_t source;
    uint32_t id;             /* of the tensor */
    uint32_t view;           /* the caller's number */
    uint32_t nest;           /* HEFT__PLAN_NONE: one piece */
} heft__plan_item;

typedef struct heft__plan_loop {
    heft__loop loop;
    uint64_t tile; /* steps of one box */
} heft__plan_loop;

typedef struct heft__plan_nest {
    uint64_t unit, unit_tile; /* bytes (bits) in one piece on both sides; how much of it one box holds */
    uint64_t kept, requested; /* bytes */
    uint64_t nreads, nboxes;
    uint64_t box_nbytes;      /* scratch of one box */
    int64_t src_bit, dst_bit; /* of a sub-byte nest: bit of its first element after `offset` and `place` */
    uint32_t first_loop, rank;
    uint32_t level;           /* the loops from here on are covered by one request */
    uint32_t swap;            /* bytes of a component that are reversed; 0: none */
    uint32_t align;           /* of its place where the plan lays out */
    bool bits;                /* sub-byte: unit and steps are bits; its boxes are one block, since they share bytes */
    bool scatter;             /* units go straight to their places, gaps to the dump */
} heft__plan_nest;

typedef struct heft__plan_run {
    uint64_t offset, nbytes;  /* covering range */
    uint64_t kept;
    uint64_t first_block;
    uint64_t first_item, nitems;
    uint32_t source;
    heft_run_kind kind;
} heft__plan_run;

struct heft_plan {
    heft_allocator alloc;
    heft_read_options options; /* effective */
    uint64_t view_gap;         /* largest gap read over inside a view */
    uint64_t phase;            /* address of the destination modulo HEFT__PLAN_CUT */
    uint64_t scratch_most;     /* of a gather, HEFT__PLAN_SCRATCH */
    uint64_t vector_min;       /* HEFT__PLAN_VECTOR_MIN */
    uint64_t unit_min;         /* HEFT__PLAN_UNIT_MIN */
    uint32_t workers;
    bool swap;                 /* bring components to the other byte order */
    bool layout;               /* the plan chooses the places, in one arena */
    bool slots;                /* each view has a slot of its own; else all are in slot 0 */
    uint64_t slack;            /* gap bytes that lie in the arena */
    heft__plan_source *sources;
    uint64_t nsources, sources_capacity;
    heft__plan_item *items; /* by (source, offset) once finished */
    uint64_t nitems, items_capacity;
    heft__plan_nest *nests;
    uint64_t nnests, nests_capacity;
    heft__plan_loop *loops;
    uint64_t nloops, loops_capacity;
    heft__plan_run *runs; /* the same order */
    uint64_t nruns, runs_capacity;
    heft_plan_summary sum;
    uint64_t scratch_nbytes, dump_nbytes; /* of one worker */
    bool has_vectors;                     /* some step fills vectors */
};

static inline heft__plan_loop *heft__plan_loops(const heft_plan *plan, const heft__plan_nest *nest) {
    return nest->rank ? plan->loops + nest->first_loop : NULL;
}

/* ---- making one (items.c, plan.c) ---- */

/* What a plan is made under; all facts come from outside. */
typedef struct heft__plan_request {
    heft_read_options options; /* copied and complete; allocator may be NULL: `alloc` */
    heft_allocator alloc;
    uint32_t default_workers;
    uint64_t phase;
    bool host_is_big_endian;   /* tests force it */
    bool layout, slots;
    uint64_t nviews; /* expected; not checked */
    uint64_t scratch_most, vector_min, unit_min; /* 0: as measured; tests reach every path with small ones */
} heft__plan_request;

/* An empty plan. */
heft_status heft__plan_new(const heft__plan_request *request, heft_plan **out, heft_error *err);

/* Checks that a view has a tensor and stays inside of it. *count: its elements. Views are plain values of the caller. */
heft_status heft__plan_check_view(const heft_view *view, uint64_t *count, heft_error *err);
/* Adds view number `number` (below 2^32 - 1), checked against its tensor. It goes to `place` of its slot, packed row-major, or
 * with the byte strides given (not for sub-byte dtypes). Views without elements add nothing. */
heft_status heft__plan_add_view(heft_plan *plan, const heft_view *view, uint64_t place, const int64_t *dst_strides,
                                uint32_t number, heft_error *err);
/* Adds tensor `id` (in range) whole, as bytes, without making a view of it. */
heft_status heft__plan_add_tensor(heft_plan *plan, const heft_archive *archive, uint64_t id, uint32_t number,
                                  heft_error *err);

/* Sorts, coalesces, lays out and cuts. After it the plan is read-only. */
heft_status heft__plan_finish(heft_plan *plan, heft_error *err);

/* nest.c: brings the loops of a view (outermost first; source and destination steps of any sign) to their normal form: dims
 * of 1 gone, source steps positive and falling, neighbours merged. *src and *dst move to the first byte (bit) in the file.
 * Returns the rank left; *unit grows by what is contiguous on both sides unless `swap`. */
uint32_t heft__nest_normalize(heft__loop *loops, uint32_t rank, uint64_t *unit, bool swap, int64_t *src, int64_t *dst);
/* nest.c: chooses level and tiles, and counts. False: a number does not fit. */
bool heft__nest_tile(heft_plan *plan, heft__plan_nest *nest);

/* coalesce.c: sorts items, makes runs, lays out. */
heft_status heft__plan_coalesce(heft_plan *plan, heft_error *err);

/* ---- using one (parts.c) ---- */

/* Block `number`: its run, and which part of it. */
void heft__plan_locate(const heft_plan *plan, uint64_t number, uint64_t *run, uint64_t *part);
uint64_t heft__plan_blocks_of(const heft_plan *plan, const heft__plan_run *run);
/* Bytes by which the place of a direct run misses the last huge page boundary: its first block is shorter by this. */
uint64_t heft__plan_misfit(const heft_plan *plan, const heft__plan_run *run);
/* True if the gap after an item may be read to where it lies between the places of its neighbours: the arena is heft's. */
bool heft__plan_lands(const heft_plan *plan, const heft__plan_item *item);
/* The range of a part of a run of plain items. */
void heft__plan_cut(const heft_plan *plan, const heft__plan_run *run, uint64_t part, uint64_t *begin, uint64_t *end);
/* The first item of a run of plain items that ends after `offset`. */
uint64_t heft__plan_item_at(const heft_plan *plan, const heft__plan_run *run, uint64_t offset);
/* The piece of a run of plain items that starts at `at`: at most up to `end`, *nbytes long. True: it goes to *place of *slot;
 * false: it is a gap. *item is the item at or after `at` (heft__plan_item_at) and moves on with it. */
bool heft__plan_piece(const heft_plan *plan, const heft__plan_run *run, uint64_t at, uint64_t end, uint64_t *item,
                      uint64_t *nbytes, int64_t *place, uint32_t *slot);

/* One box of a nest. */
typedef struct heft__box {
    heft__loop loops[HEFT_MAX_RANK + 1]; /* counts of this box, steps of the nest */
    uint64_t unit;
    uint64_t src;    /* bytes (bits) of its first unit after the item's offset */
    int64_t dst;     /* and after its place */
    uint64_t span;   /* bytes (bits) of one request */
    uint64_t nreads; /* requests */
} heft__box;
void heft__nest_box(const heft_plan *plan, const heft__plan_nest *nest, uint64_t number, heft__box *box);
/* Offset of request `read` of a box, in bytes (bits) after the item's offset, and of its first unit after the place. */
void heft__nest_read(const heft__plan_nest *nest, const heft__box *box, uint64_t read, uint64_t *src, int64_t *dst);
/* Fills vectors for the units from number *unit on, up to the end of the request or of the room. Returns their number;
 * *src is where they start after the item's offset, *nbytes how long they are; *unit moves on. */
size_t heft__nest_vectors(const heft__plan_nest *nest, const heft__box *box, uint64_t *unit, uint8_t *place, uint8_t *dump,
                          heft__vec *vec, uint64_t *src, uint64_t *nbytes);

/* ---- explaining one (explain.c) ---- */

/* The whole plan as text, one line an object, into a block of *nbytes (free with heft__free); NULL: out of memory. */
char *heft__plan_text(const heft_plan *plan, uint64_t *nbytes);

#endif
