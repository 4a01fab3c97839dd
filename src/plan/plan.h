/* plan: views and places in, runs and blocks out. Pure: no system call, the same answer for the same input, printable.
 *
 *     items   one a view: its covering range in a source, and the place of its first byte
 *     runs    consecutive items that are read as one contiguous range (plain ones, or small ones that are converted), or one
 *             item that is a nest of loops
 *     blocks  a numbering of the pieces of runs and of mappings; computed on demand, never stored
 *
 * A read is planned by new, add, finish. A load is planned by
 *
 *     heft__plan_new          a request with `layout`: the plan chooses the places
 *     heft__plan_add_archive  each file becomes a source with the number that it has in the archive
 *     heft__plan_add_tensor   (or _view), with any numbers
 *     heft__plan_sort         then heft__plan_extents tells which bytes of a source facts should be asked about
 *     heft__plan_choose       facts and wishes in; path and reason of each source out
 *     heft__plan_finish       runs, layout, blocks
 *     heft__plan_footprint    and heft__plan_admit
 *
 * A view whose bytes do not lie in one piece on both sides (strided, transposed, repacked, byte-swapped) is a nest: loops
 * over a contiguous unit, outermost in the file first. What is converted to another dtype is a nest of elements, whose steps
 * are those of the old dtype in the file and those of the new one in memory. A nest is cut into boxes, equal tiles of its
 * loops; a box is read by one request, or by several where the gaps between them cost more than a request. No list of its
 * runs exists anywhere. */
#ifndef HEFT_PLAN_PLAN_H
#define HEFT_PLAN_PLAN_H

#include "catalog/catalog.h"
#include "device/device.h"
#include "engine/engine.h"
#include "facts/facts.h"
#include "heft/loads.h"

#define HEFT__PLAN_NONE UINT32_MAX

/* Measured on two machines, see docs/performance.md. */
#define HEFT__PLAN_GAP (UINT64_C(32) << 10)          /* between tensors: a request costs as much as reading this */
#define HEFT__PLAN_VIEW_GAP (UINT64_C(8) << 10)      /* inside a view, where gaps are many and go to a hot dump */
#define HEFT__PLAN_BUDGET_MIN (UINT64_C(1) << 20)    /* over-read that is always allowed; else 5 % of what is kept */
#define HEFT__PLAN_BLOCK (UINT64_C(4) << 20)
#define HEFT__PLAN_CUT (UINT64_C(2) << 20)           /* blocks end where huge pages of the destination do */
#define HEFT__PLAN_TAIL (UINT64_C(512) << 10)        /* a shorter last block joins its neighbour */
#define HEFT__PLAN_SCRATCH (UINT64_C(1) << 20)       /* fits the second-level cache */
#define HEFT__PLAN_SCRATCH_CAST (UINT64_C(256) << 10) /* of what is converted, but for direct reads: half of such a cache */
#define HEFT__PLAN_STREAM (UINT64_C(64) << 20)       /* converted results of so many bytes go past the caches */
#define HEFT__PLAN_DIRECT_WORKERS 8                  /* past the page cache: they wait most of the time */
#define HEFT__PLAN_DUMP (UINT64_C(64) << 10)
#define HEFT__PLAN_VECTOR_MIN 4096                   /* mean piece from which vectors beat scratch and memcpy */
#define HEFT__PLAN_UNIT_MIN 512                      /* the same for the units of a nest */
#define HEFT__PLAN_GAP_KEPT 4096                     /* a gap below this may lie in an arena that the plan lays out ... */
#define HEFT__PLAN_SLACK (UINT64_C(12) << 20)        /* ... up to this sum */
#define HEFT__PLAN_ONE_WORKER (UINT64_C(8) << 20)    /* less than this is not worth a thread */

/* Of loads, see docs/loading.md. */
#define HEFT__PLAN_GAP_DIRECT (UINT64_C(128) << 10)  /* as HEFT__PLAN_GAP, also inside a view */
#define HEFT__PLAN_GAP_NETWORK (UINT64_C(1) << 20)
#define HEFT__PLAN_SMALL (UINT64_C(16) << 20)        /* less than this of a file is read buffered */
#define HEFT__PLAN_CAP UINT64_C(5000)                /* most pieces of a file that is read directly */
#define HEFT__PLAN_DIRECT_MOST (UINT32_C(64) << 10)  /* a larger alignment of direct reads is not used */
#define HEFT__PLAN_SCRATCH_DIRECT (UINT64_C(4) << 20)
#define HEFT__PLAN_SCRATCH_ALL (UINT64_C(16) << 20)  /* of all workers, but for nests that need more */
#define HEFT__PLAN_MERGE (UINT64_C(2) << 20)         /* mappings with a smaller gap become one */
#define HEFT__PLAN_MAPPINGS 1024                     /* of one file; else it has one */
#define HEFT__PLAN_WINDOW (UINT64_C(64) << 20)       /* bytes of a mapping that are brought in at once */
#define HEFT__PLAN_RING_RUN (UINT64_C(16) << 20)     /* most of one run of a ring, unless one tensor is larger */
#define HEFT__PLAN_STACK (UINT64_C(64) << 10)        /* of a worker */

/* A file. What follows `file` is of loads: unset before heft__plan_choose, sums before heft__plan_finish. */
typedef struct heft__plan_source {
    heft_source *source;
    const heft_archive *archive;
    uint32_t file;
    heft_path path;
    heft_reason reason;
    uint32_t direct_align;           /* of offsets, lengths and addresses of direct reads; 0: not direct */
    uint32_t congruence;             /* direct: a place is congruent to its offset modulo this */
    bool touch;                      /* mapped, and its pages are brought in */
    uint64_t gap, view_gap;          /* most that is read over, between tensors and inside a view */
    uint64_t first_item, nitems;     /* set by heft__plan_sort */
    uint64_t first_run, nruns;
    uint64_t kept;                   /* bytes of the file */
    uint64_t pieces;                 /* what direct_io_tensor_cap was compared with */
    uint64_t requested, over_read, spanned;
    heft__source_facts facts;        /* as they were given */
} heft__plan_source;

typedef struct heft__plan_item {
    uint64_t offset, nbytes; /* covering range in the source */
    int64_t place;           /* in its slot, of the byte at `offset` (of a sub-byte nest: of the slot's bit 0) */
    uint32_t source;
    uint32_t id;             /* of the tensor */
    uint32_t view;           /* the caller's number */
    uint32_t nest;           /* HEFT__PLAN_NONE: one piece */
    uint32_t slot;           /* of a load: its arena, or its mapping; of a plan with `slots`: its view; else 0 */
    bool mapped;             /* lies in mapping `slot`, at `place`; no run reads it */
    bool side;               /* read beside the mapping */
    bool apart;              /* not as it lies in the file between its neighbours: it has a place of its own */
    uint8_t align;           /* of its dtype; 0 and 1: none */
} heft__plan_item;

/* Memory that a load asks for. */
typedef struct heft__plan_arena {
    uint64_t nbytes;
    uint32_t align; /* of its start, a power of two from 64 to 64 KiB */
    uint32_t source; /* of the shard or run that it is for; HEFT__PLAN_NONE: of all */
} heft__plan_arena;

/* A mapping that a load asks for: pages of a source. */
typedef struct heft__plan_mapping {
    uint64_t offset, nbytes; /* in the source; whole pages but for the end of the file */
    uint64_t first_block;    /* of those that bring it in; windows of HEFT__PLAN_WINDOW */
    uint32_t source;
    uint32_t reserved;
} heft__plan_mapping;

typedef struct heft__plan_loop {
    heft__loop loop;
    uint64_t tile; /* steps of one box */
} heft__plan_loop;

typedef struct heft__plan_nest {
    uint64_t unit, unit_tile; /* bytes (bits) in one piece on both sides; how much of it one box holds */
    uint64_t kept, requested; /* bytes of the file */
    uint64_t held;            /* bytes in memory: `kept`, unless they are converted */
    uint64_t nreads, nboxes;
    uint64_t batch;           /* boxes of one block, one after another */
    uint64_t box_nbytes;      /* scratch of one box */
    int64_t src_bit, dst_bit; /* of a sub-byte nest: bit of its first element after `offset` and `place` */
    uint32_t first_loop, rank;
    uint32_t level;           /* the loops from here on are covered by one request */
    uint32_t swap;            /* bytes of a component that are reversed; 0: none */
    heft_dtype from, to;      /* the unit is an element that is converted; HEFT_DTYPE_NONE: it is not */
    bool bits;                /* sub-byte: unit and steps are bits; its boxes are one batch, since they share bytes */
    bool scatter;             /* units go straight to their places, gaps to the dump */
    bool lies_whole;          /* converted, and in one piece on both sides: small ones are read together */
    bool direct;              /* requests are rounded out to multiples of the source's direct_align, in scratch */
} heft__plan_nest;

typedef struct heft__plan_run {
    uint64_t offset, nbytes;  /* covering range */
    uint64_t kept;
    uint64_t first_block;
    uint64_t first_item, nitems;
    uint32_t source;
    heft_run_kind kind;
    bool direct;              /* read by O_DIRECT, in multiples of the source's direct_align */
    bool reserved[3];
} heft__plan_run;

struct heft_plan {
    heft_allocator alloc;
    heft_read_options options; /* effective */
    uint64_t view_gap;         /* largest gap read over inside a view, but for the sources of a load */
    uint64_t phase;            /* address of the destination modulo HEFT__PLAN_CUT */
    uint64_t scratch_most;     /* of a gather, HEFT__PLAN_SCRATCH */
    uint64_t scratch_share;    /* HEFT__PLAN_SCRATCH_ALL of the workers wanted; fewer may do */
    uint64_t vector_min;       /* HEFT__PLAN_VECTOR_MIN */
    uint64_t unit_min;         /* HEFT__PLAN_UNIT_MIN */
    uint64_t cap;              /* of a load: most pieces of a direct source */
    uint32_t workers, ramp_from; /* as in heft__engine_job */
    bool gap_wished;           /* the caller gave gap_nbytes: it holds for all paths */
    heft_dtype as;             /* what is added from now on is converted to this; HEFT_DTYPE_NONE: to nothing */
    uint32_t cast_flags;       /* HEFT__CAST_SATURATE, _INEXACT */
    bool swap, swap_big;       /* bring components to the other byte order: little-endian and big-endian ones */
    bool layout;               /* the plan chooses the places, in one arena */
    bool slots;                /* each view has a slot of its own; else all are in slot 0 */
    bool sorted, chosen;
    uint64_t slack;            /* bytes of arenas that are no tensor's: gaps, padding, edges of direct reads */
    uint64_t align;            /* wished for every tensor; 0: that of its dtype */
    uint64_t page;             /* of mappings */
    heft_arena_scope arena_scope;
    uint64_t ring;             /* not 0: each run is an arena of its own */
    bool ring_single;          /* ... and has one tensor */
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
    heft__plan_arena *arenas; /* slots 0 to narenas - 1; of a load only */
    uint64_t narenas, arenas_capacity;
    uint32_t side_arena;      /* the last one, or HEFT__PLAN_NONE */
    heft__plan_mapping *mappings; /* by (source, offset) */
    uint64_t nmappings, mappings_capacity;
    uint64_t first_touch;         /* number of the first block that brings a mapping in; nblocks: there is none */
    uint64_t touch_nbytes;        /* of all such blocks */
    uint64_t edges, spill;        /* of direct sources: bytes read beyond what is kept, and memory that no tensor has */
    uint64_t wanted;              /* bytes of files; kept bytes of `sum` are those in memory */
    heft_plan_summary sum;
    uint64_t scratch_nbytes, dump_nbytes; /* of one worker */
    bool has_vectors;                     /* some step fills vectors */
};

/* Bytes of an item that are wanted of its file, and those that it has in memory. */
static inline uint64_t heft__plan_kept(const heft_plan *plan, const heft__plan_item *item) {
    return item->nest == HEFT__PLAN_NONE ? item->nbytes : plan->nests[item->nest].kept;
}
static inline uint64_t heft__plan_held(const heft_plan *plan, const heft__plan_item *item) {
    return item->nest == HEFT__PLAN_NONE ? item->nbytes : plan->nests[item->nest].held;
}

/* What the address of an item must be a multiple of. */
static inline uint64_t heft__plan_align(const heft_plan *plan, const heft__plan_item *item) {
    uint64_t align = item->align > 1 ? item->align : 1;
    return plan->align > align ? plan->align : align;
}

/* The nest that a run is, or NULL: a run of plain items, among which may be small ones that are converted. */
static inline const heft__plan_nest *heft__plan_run_nest(const heft_plan *plan, const heft__plan_run *run) {
    uint32_t nest = plan->items[run->first_item].nest;
    return nest == HEFT__PLAN_NONE || run->nitems > 1 ? NULL : &plan->nests[nest];
}

/* Rounds a range out to what a source can be asked for. */
static inline void heft__plan_round(const heft__plan_source *source, uint64_t *begin, uint64_t *end) {
    uint64_t mask = source->direct_align ? source->direct_align - UINT64_C(1) : 0;
    *begin &= ~mask;
    *end = (*end + mask) & ~mask;
}

/* Bytes that come when a range is asked for: rounded out, but not beyond the end of the file. */
static inline uint64_t heft__plan_asked(const heft__plan_source *source, uint64_t begin, uint64_t end) {
    uint64_t needed = end;
    heft__plan_round(source, &begin, &end);
    if (end > source->source->size) end = needed > source->source->size ? needed : source->source->size;
    return end - begin;
}

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
/* Makes sources of all files of an archive, in order, also of those of which nothing will be wanted. */
heft_status heft__plan_add_archive(heft_plan *plan, const heft_archive *archive, heft_error *err);

/* Sorts items; nothing can be added after it. */
heft_status heft__plan_sort(heft_plan *plan, heft_error *err);
/* What is wanted of a source of a sorted plan: ranges by offset that neither overlap nor touch. Free *extents with
 * heft__free(&plan->alloc, *extents, *n * sizeof **extents). */
heft_status heft__plan_extents(const heft_plan *plan, uint32_t source, heft__extent **extents, uint64_t *n,
                               heft_error *err);

/* What a caller of a load wants, and what the machine is. Zero is the default of each but `page_nbytes`. Gaps, blocks and
 * workers are in the read options of the request, where 0 is: by path. */
typedef struct heft__plan_wishes {
    heft_io io;
    heft_cache_policy cache_policy;
    heft_arena_scope arena_scope;
    bool no_direct, count_tensors;
    uint64_t align;                /* 0, or a power of two up to 4,096 */
    uint64_t direct_io_tensor_cap; /* 0: HEFT__PLAN_CAP; HEFT_NONE: no cap */
    uint64_t ring_nbytes;          /* not 0: memory comes from a ring, run by run; arena_scope is ignored */
    bool ring_single;              /* of a ring: each run is one tensor, since they are wanted in another order */
    uint64_t page_nbytes;
    uint32_t cpus;                 /* usable; default of workers. 0: default_workers of the request */
} heft__plan_wishes;

/* Chooses the path of each source by the table of docs/loading.md, the first rule that applies. `facts`: one a source, in
 * order.
 * UNSUPPORTED where the caller demands a path that cannot be: names file, tensor and reason. */
heft_status heft__plan_choose(heft_plan *plan, const heft__source_facts *facts, const heft__plan_wishes *wishes,
                              heft_error *err);

/* Sorts, coalesces, lays out and cuts. After it the plan is read-only. */
heft_status heft__plan_finish(heft_plan *plan, heft_error *err);

/* ---- the memory of a load (footprint.c) ---- */

/* What the plan does not know. */
typedef struct heft__plan_memory {
    uint64_t deferred_nbytes, withheld_nbytes;
    uint64_t metadata_nbytes; /* headers, catalog, result: all but the plan itself */
    uint64_t reserve_nbytes;
    uint64_t free_nbytes;     /* HEFT_NONE: not known */
    const char *free_origin;
    double multiplier;        /* 0: 1.0, or the rule of Atlas */
    bool atlas;               /* its rule: 1.5 if more than half of the bytes are FP8, else 1.3 */
} heft__plan_memory;

/* The footprint of a finished plan. LIMIT: a number does not fit 64 bits. */
heft_status heft__plan_footprint(const heft_plan *plan, const heft__plan_memory *memory, heft_footprint *out,
                                 heft_error *err);
/* Whether it may run: LIMIT where more is needed than is free (`reserve` as above, for the message), or than `limit` (0:
 * none); where free memory is not known, only under `refuse_unknown`. */
heft_status heft__plan_admit(const heft_footprint *footprint, uint64_t reserve, uint64_t limit, bool refuse_unknown,
                             heft_error *err);

/* nest.c: brings the loops of a view (outermost first; source and destination steps of any sign) to their normal form: dims
 * of 1 gone, source steps positive and falling, neighbours merged. *src and *dst move to the first byte (bit) in the file.
 * Returns the rank left; *unit grows by what is contiguous on both sides unless it is `fixed`. */
uint32_t heft__nest_normalize(heft__loop *loops, uint32_t rank, uint64_t *unit, bool fixed, int64_t *src, int64_t *dst);
/* nest.c: chooses level and tiles for the path of the item's source, and counts. False: a number does not fit. */
bool heft__nest_tile(const heft_plan *plan, heft__plan_nest *nest, const heft__plan_item *item);

/* coalesce.c: makes runs. */
heft_status heft__plan_coalesce(heft_plan *plan, heft_error *err);
/* coalesce.c: pieces of each source by the gaps that its `gap` and the budget allow. */
heft_status heft__coalesce_count(heft_plan *plan, heft_error *err);
/* coalesce.c: what direct reads of a source cost if no gap is read over: bytes read beyond those kept, and bytes of memory
 * that no tensor has. */
void heft__coalesce_edges(const heft_plan *plan, uint32_t source, uint64_t *edges, uint64_t *spill);
/* coalesce.c: most that may be read beyond what is kept: 5 % of it, but 1 MiB at least. */
uint64_t heft__plan_budget(const heft_plan *plan);
/* layout.c: arenas, places and kinds of all runs. */
heft_status heft__plan_layout(heft_plan *plan, heft_error *err);
/* mapped.c: mappings of the sources whose path is MAP. */
heft_status heft__plan_map(heft_plan *plan, heft_error *err);
/* mapped.c: the address of a source's first byte in a mapping, modulo the size of pages. */
uint64_t heft__plan_address(const heft_source *source);
/* mapped.c: bytes of address space that all mappings take; memory sources lend theirs. */
uint64_t heft__plan_mapped(const heft_plan *plan);

/* ---- using one (parts.c) ---- */

/* What is to be done with a block when its bytes are there; the engine's steps are bound to these. */
typedef enum heft__plan_step {
    HEFT__PLAN_PLAIN,        /* nothing: it is read to its place */
    HEFT__PLAN_SCATTER,      /* vectors: pieces to their places, gaps to the dump */
    HEFT__PLAN_GATHER,       /* to scratch, then a copy (or a cast) a piece */
    HEFT__PLAN_NEST_SCATTER, /* a box straight to its places */
    HEFT__PLAN_NEST_GATHER,  /* a batch of boxes through scratch, one after another; converted on the way */
    HEFT__PLAN_NEST_BITS     /* all boxes of a sub-byte nest, one after another */
} heft__plan_step;

typedef enum heft__plan_way { HEFT__PLAN_READ, HEFT__PLAN_DIRECT, HEFT__PLAN_TOUCH } heft__plan_way;

/* A block as an engine takes it. */
typedef struct heft__plan_block {
    heft__plan_step step;
    heft__plan_way way;
    uint32_t channel;        /* the source's number; of TOUCH: nsources + the number of the mapping */
    uint32_t slot;           /* of PLAIN: where it goes */
    int64_t place;
    uint64_t offset, nbytes; /* in the source; of nests that of the box is found by heft__nest_box */
    uint64_t needed;         /* bytes from `offset` on that must come: a direct block may reach beyond the end of the file */
    uint64_t run, part;      /* of TOUCH: run HEFT_NONE */
} heft__plan_block;
void heft__plan_block_at(const heft_plan *plan, uint64_t number, heft__plan_block *out);

/* Items of which a block brings bytes in: [*first, *first + *n); of TOUCH only those of them that are mapped. */
void heft__plan_block_items(const heft_plan *plan, uint64_t number, uint64_t *first, uint64_t *n);
/* Blocks that bring bytes of item `index` in: [*first, *first + *n); none for a mapped item that is not touched. */
void heft__plan_item_blocks(const heft_plan *plan, uint64_t index, uint64_t *first, uint64_t *n);
/* The item that the byte at `offset` of the source of a block belongs to, or the one nearest to it. */
uint64_t heft__plan_blame(const heft_plan *plan, uint64_t number, uint64_t offset);

/* Where an item of a load lies. */
void heft__plan_place(const heft_plan *plan, const heft__plan_item *item, heft_load_place *out);

/* Block `number`, which is no TOUCH: its run, and which part of it. */
void heft__plan_locate(const heft_plan *plan, uint64_t number, uint64_t *run, uint64_t *part);
uint64_t heft__plan_blocks_of(const heft_plan *plan, const heft__plan_run *run);
/* Bytes that a run asks of its source. */
uint64_t heft__plan_requested(const heft_plan *plan, const heft__plan_run *run);
/* Most scratch of one worker for blocks of a source. */
uint64_t heft__plan_scratch(const heft_plan *plan, const heft__plan_source *source);
/* The range of a part of a run of plain items; of a direct run in multiples of direct_align. */
void heft__plan_cut(const heft_plan *plan, const heft__plan_run *run, uint64_t part, uint64_t *begin, uint64_t *end);
/* The first item of a run of plain items that ends after `offset`. */
uint64_t heft__plan_item_at(const heft_plan *plan, const heft__plan_run *run, uint64_t offset);
/* The piece of a run of plain items that starts at `at`: at most up to `end`, *nbytes long. True: it goes to *place of *slot
 * (also a gap that lies in heft's own arena); false: it goes nowhere. *item is the item at or after `at`
 * (heft__plan_item_at) and moves on with it. */
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
/* The bytes of the source that a request of `span` bytes (bits) from `src` on covers. */
void heft__nest_range(const heft__plan_nest *nest, const heft__plan_item *item, uint64_t src, uint64_t span,
                      uint64_t *begin, uint64_t *end);
/* Offset of request `read` of a box, in bytes (bits) after the item's offset, and of its first unit after the place. */
void heft__nest_read(const heft__plan_nest *nest, const heft__box *box, uint64_t read, uint64_t *src, int64_t *dst);
/* Fills vectors for the units from number *unit on, up to the end of the request or of the room. Returns their number;
 * *src is where they start after the item's offset, *nbytes how long they are; *unit moves on. */
size_t heft__nest_vectors(const heft__plan_nest *nest, const heft__box *box, uint64_t *unit, uint8_t *place, uint8_t *dump,
                          heft__vec *vec, uint64_t *src, uint64_t *nbytes);

/* ---- explaining one (explain.c) ---- */

/* The whole plan as text, one line an object, into a block of *nbytes (free with heft__free); NULL: out of memory. */
char *heft__plan_text(const heft_plan *plan, uint64_t *nbytes);
/* Why a source of a load has its path, as one sentence for people, into out[size]. */
void heft__plan_why(const heft_plan *plan, uint32_t source, char *out, size_t size);

#endif
