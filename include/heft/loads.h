/* heft/loads.h: loading a checkpoint, or the part of it that one process wants: filter, plan, memory, path, run,
 * result. The rules, with their reasons: docs/loading.md.
 *
 *     heft_load_options want = {.struct_size = sizeof want, .filter = &mine};
 *     heft_load_plan *plan;
 *     heft_weights *weights;
 *     if (heft_load_plan_new(archive, &want, &plan, &err) == HEFT_OK) { // reads no tensor byte; print it if you like
 *         if (heft_load_run(plan, &weights, NULL, &err) == HEFT_OK) {   // refuses before the first byte, or loads
 *             heft_loaded tensor;
 *             heft_weights_get(weights, "lm_head.weight", SIZE_MAX, &tensor, &err);
 *         }
 *         heft_load_plan_free(plan); // the weights stay until heft_weights_unref
 *     }
 */
#ifndef HEFT_LOADS_H
#define HEFT_LOADS_H

#include "heft/casts.h"
#include "heft/filters.h"
#include "heft/reads.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- words that plans print -------------------------------------------------------------------------------------- */

/* How the bytes of a shard are had. */
#define HEFT_PATH_TABLE(X)                                                                                             \
    X(NONE, "none")         /* nothing is wanted of this file */                                                       \
    X(MAP, "map")           /* borrowed from a mapping: no copy */                                                     \
    X(BUFFERED, "buffered") /* positioned reads through the page cache */                                              \
    X(DIRECT, "direct")     /* O_DIRECT, past the page cache */                                                        \
    X(SOURCE, "source")     /* the read function of a source that is no file */

typedef uint32_t heft_path;
enum {
#define HEFT_PATH_ENUM(constant, word) HEFT_PATH_##constant,
    HEFT_PATH_TABLE(HEFT_PATH_ENUM)
#undef HEFT_PATH_ENUM
        HEFT_PATH_COUNT
};

/* Why: the rules of path choice in the order in which they are asked, the first that applies decides. */
#define HEFT_REASON_TABLE(X)                                                                                           \
    X(NOTHING, "nothing-wanted")                                                                                       \
    X(FORCED, "forced")         /* the caller demands it */                                                            \
    X(SOURCE, "source")         /* no file descriptor behind it */                                                     \
    X(MEMORY_FS, "memory-fs")   /* tmpfs and the like */                                                               \
    X(NETWORK, "network")       /* network or user-space file system */                                                \
    X(DIRTY, "dirty")           /* pages that wait to be written: direct reads would flush them first */               \
    X(HOT, "hot")               /* 80 % or more of the wanted bytes are in the page cache */                           \
    X(SHARED, "shared")         /* other processes will read the same file */                                          \
    X(SMALL, "small")           /* less than 16 MiB wanted */                                                          \
    X(NO_DIRECT, "no-direct")   /* the caller forbids it */                                                            \
    X(NO_DIO, "no-dio")         /* the file system refuses it, or wants more than 64 KiB of alignment */               \
    X(EXTENT_CAP, "extent-cap") /* too many separate pieces */                                                         \
    X(BUDGET, "budget")         /* rounding to the alignment would read or hold too much */                            \
    X(COLD_LOCAL, "cold-local") /* not cached, a local disk: direct */

typedef uint32_t heft_reason;
enum {
#define HEFT_REASON_ENUM(constant, word) HEFT_REASON_##constant,
    HEFT_REASON_TABLE(HEFT_REASON_ENUM)
#undef HEFT_REASON_ENUM
        HEFT_REASON_COUNT
};

/* The word of a path ("direct") or reason ("cold-local"); "unknown" for a number that is none.
 * Returns a static string.
 * Thread rule: any thread. */
HEFT_API const char *heft_path_name(heft_path path);
HEFT_API const char *heft_reason_name(heft_reason reason);

/* ---- options ----------------------------------------------------------------------------------------------------- */

/* Which path: chosen per shard, or demanded for all (UNSUPPORTED where it cannot be). */
typedef uint32_t heft_io;
#define HEFT_IO_AUTO UINT32_C(0)
#define HEFT_IO_MAP UINT32_C(1)
#define HEFT_IO_BUFFERED UINT32_C(2)
#define HEFT_IO_DIRECT UINT32_C(3)

/* Who moves the bytes. */
typedef uint32_t heft_engine;
#define HEFT_ENGINE_AUTO UINT32_C(0)
#define HEFT_ENGINE_POOL UINT32_C(1)  /* threads with positioned reads: always there */
#define HEFT_ENGINE_URING UINT32_C(2) /* io_uring; UNSUPPORTED where demanded and not there */

/* What becomes of the page cache. */
typedef uint32_t heft_cache_policy;
#define HEFT_CACHE_NEUTRAL UINT32_C(0) /* nothing is dropped */
#define HEFT_CACHE_KEEP UINT32_C(1)    /* other processes will read the same files: never direct */
#define HEFT_CACHE_DROP UINT32_C(2)    /* pages that were not there before are dropped after use */

/* Huge pages for arenas. */
typedef uint32_t heft_huge;
#define HEFT_HUGE_AUTO UINT32_C(0)
#define HEFT_HUGE_NEVER UINT32_C(1)
#define HEFT_HUGE_REQUIRE UINT32_C(2) /* LIMIT if the system grants none for a load of 2 MiB or more */

/* How much memory belongs together: freed when nothing of it is held. */
typedef uint32_t heft_arena_scope;
#define HEFT_ARENA_LOAD UINT32_C(0)
#define HEFT_ARENA_SHARD UINT32_C(1)

/* Memory that a load lands in and that outlives it, so that the next load need not fault it in again. */
typedef struct heft_arena heft_arena;

/* Options of a load. Zero is the default of each; struct_size = sizeof(heft_load_options). Copied, the filter too. */
typedef struct heft_load_options {
    size_t struct_size;
    const heft_filter *filter; /* NULL: all tensors */
    heft_io io;
    heft_engine engine;
    heft_cache_policy cache_policy;
    heft_huge huge;
    heft_arena_scope arena_scope;
    uint32_t workers;     /* 0: min(4, usable CPUs); past the page cache 8; network 8 to 16; 1 below 8 MiB */
    bool no_direct;       /* io auto without the direct path */
    bool no_preflight;    /* do not compare with free memory (memory_limit_nbytes holds still) */
    bool refuse_unknown;  /* free memory that cannot be known is LIMIT, not a warning */
    bool count_tensors;   /* direct_io_tensor_cap counts tensors, as Atlas, not runs */
    bool keep_file_order; /* leave components little-endian as in the file */
    bool prefetch;        /* buffered: ask for pages ahead of the reader; network: always */
    bool no_timed_sample; /* never decide about residency by timing reads */
    bool saturate;        /* of casts: as heft_cast_options */
    uint64_t align;       /* of every tensor: a power of two up to 4,096; 0: the element size, 64 where it costs nothing */
    uint64_t direct_io_tensor_cap;       /* separate pieces above which a shard is read buffered; 0: 5,000; HEFT_NONE: no cap */
    uint64_t gap_nbytes, block_nbytes;   /* as heft_read_options; 0: by path */
    uint64_t memory_limit_nbytes;        /* most that the load may use, mappings included; 0: no limit */
    uint64_t free_nbytes;                /* free memory as the caller knows it; 0: the system is asked */
    uint64_t reserve_nbytes;             /* to be left free */
    double peak_memory_multiplier;       /* of the kept bytes; 0: the preset's, else 1.0 */
    heft_arena *arena;                   /* for the largest of the arenas, usually the only one; NULL: a new one */
    int (*progress)(void *ctx, uint64_t done_nbytes, uint64_t total_nbytes); /* as heft_read_options */
    void *progress_ctx;
    const heft_allocator *allocator; /* of everything but arenas of 2 MiB and more; NULL: the archive's */
    /* Tensors are converted while they are read, to what heft_dtype_choose says: `dtype` (F64, F32, F16, BF16 or
     * HEFT_DTYPE_NONE) for floats, then the last of `dtype_rules` that matches. They come in host byte order, so not together
     * with keep_file_order. Deferred tensors are converted when they are read; of mapped files they lie beside the mapping. */
    heft_dtype dtype;
    bool allow_inexact;   /* of casts: as heft_cast_options */
    /* Whole loads (heft_load, heft_load_run) only: what has landed is compared with the digests of its file, as
     * heft_archive_verify finds them, in memory and by all workers; of mapped tensors and of arrays of an npz without a digest
     * the file is read again. The digest of all data of a file is compared where all its tensors have landed so, and the size
     * that its sidecar says always. What has no digest, and what is converted or a part of a tensor on this rank, is not
     * compared: nverified of the statistics says how many were. */
    bool verify;
    bool more_reserved_flags[2];
    const heft_dtype_rule *dtype_rules; /* needed until the plan is made */
    size_t ndtype_rules;
} heft_load_options;

/* ---- plans ------------------------------------------------------------------------------------------------------- */

/* What a load will do, before it is done: which tensors, which bytes, which path and why, how much memory. Made of headers
 * and of what the system says about files and memory; no tensor byte is read. One thread at a time. */
typedef struct heft_load_plan heft_load_plan;

/* Plans a load. The archive must outlive the plan.
 * Errors: as heft_filter_apply; UNSUPPORTED (a path or engine that is demanded and cannot be; a cast that there is not: names
 * the tensor), INVALID_ARGUMENT (options), LIMIT (sizes), OUT_OF_MEMORY. A load that does not fit memory can be planned:
 * heft_load_plan_admit says so.
 * Thread rule: any thread. */
HEFT_API heft_status heft_load_plan_new(const heft_archive *archive, const heft_load_options *options,
                                        heft_load_plan **out, heft_error *err);

/* Frees a plan; NULL does nothing. What it loaded stays.
 * Thread rule: one thread per plan. */
HEFT_API void heft_load_plan_free(heft_load_plan *plan);

/* The memory of a load, in bytes, exact but for `estimate_nbytes`, which is the caller's rule: kept bytes times the
 * multiplier. */
typedef struct heft_footprint {
    uint64_t kept_nbytes, deferred_nbytes, withheld_nbytes; /* of tensors; kept: of this rank's parts, after casts */
    uint64_t arena_nbytes;     /* all arenas with slack, in whole pages */
    uint64_t scratch_nbytes;   /* of all workers */
    uint64_t ring_nbytes;      /* 0 but for a ring */
    uint64_t side_nbytes;      /* path map: misaligned tensors that are read beside the mapping */
    uint64_t metadata_nbytes;  /* headers, catalog and lists of the plan */
    uint64_t mapped_nbytes;    /* in whole pages */
    uint64_t peak_owned_nbytes; /* arena + scratch + ring + side + metadata + 64 KiB a worker */
    uint64_t transient_nbytes;  /* peak_owned + mapped: what memory_limit_nbytes is compared with */
    double multiplier;
    uint64_t estimate_nbytes;  /* kept, deferred left out, times the multiplier; without one, of these only what is held at
                                * a time: nothing of what is mapped, of a ring no more than the ring */
    uint64_t needed_nbytes;    /* max(estimate, peak_owned) + reserve: what free memory is compared with */
    uint64_t free_nbytes;      /* HEFT_NONE: not known */
    char free_origin[128];     /* "MemAvailable", "cgroup memory.max of /a/b", "caller", "unknown" */
} heft_footprint;

/* Sums of a plan. */
typedef struct heft_load_summary {
    heft_footprint memory;
    uint64_t ntensors;          /* kept */
    uint64_t nruns, nblocks;
    uint64_t requested_nbytes, over_read_nbytes, spanned_nbytes; /* what will be asked of sources; as heft_read_stats */
    uint64_t slack_nbytes;      /* of the arena: gaps, padding, edges of direct reads */
    uint32_t nshards;           /* files of the archive */
    uint32_t workers;
    heft_engine engine;
    uint32_t reserved;
} heft_load_summary;

/* Fills *out.
 * Thread rule: one thread per plan. */
HEFT_API void heft_load_plan_summarize(const heft_load_plan *plan, heft_load_summary *out);

/* One file of a plan: what will be done, and after a run what was. */
typedef struct heft_load_shard {
    const char *path;          /* of the file, lives as long as the archive */
    const char *file_system;   /* "ext4", static; "" if it is not known */
    const char *class_name;    /* "local", "memory", "network", "user-space", "stacked", "unknown"; static */
    const char *residency_by;  /* "cachestat", "nowait", "mincore", "timed", "none"; static */
    const char *why;           /* one sentence for people; lives as long as the plan */
    uint64_t nbytes;           /* of the file; the next four are its bytes too, before casts */
    uint64_t kept_nbytes, requested_nbytes, over_read_nbytes, spanned_nbytes;
    uint64_t ntensors, nruns;
    uint64_t resident_nbytes;  /* of the kept bytes, in the page cache; HEFT_NONE: not known */
    uint32_t direct_align;     /* of direct reads; 0: refused; HEFT_PATH_DIRECT only: proven by the first read */
    bool dirty;                /* pages wait to be written */
    bool reserved_flags[3];
    heft_path path_planned, path_used; /* used: NONE before a run */
    heft_reason reason;
    int32_t fallback_errno;    /* why the used path is not the planned one; 0: it is */
    uint64_t read_nbytes;      /* of a run */
    double seconds;            /* of a run, summed over workers */
} heft_load_shard;

/* File `index` of a plan.
 * Errors: INVALID_ARGUMENT (out of range).
 * Thread rule: one thread per plan. */
HEFT_API heft_status heft_load_plan_shard(const heft_load_plan *plan, uint32_t index, heft_load_shard *out,
                                          heft_error *err);

/* Run `index` of a plan (nruns of the summary); `file` is the archive's, `first_view` the id of the first tensor.
 * Errors: INVALID_ARGUMENT (out of range).
 * Thread rule: one thread per plan. */
HEFT_API heft_status heft_load_plan_run(const heft_load_plan *plan, uint64_t index, heft_plan_run *out, heft_error *err);

/* Where a kept tensor will lie. */
typedef struct heft_load_place {
    uint64_t offset;     /* in its arena, its mapping, or the side arena */
    uint32_t arena;      /* number of the arena: 0, or that of its shard under HEFT_ARENA_SHARD */
    uint32_t align;      /* the largest power of two up to 4,096 that its address will be a multiple of */
    bool slot;           /* not as it lies in the file: it has a place of its own */
    bool side;           /* path map: read beside the mapping */
    bool reserved[2];
    heft_dtype dtype;    /* that it will have there: the stored one, or what it is converted to */
    uint64_t nbytes;     /* that it takes there */
} heft_load_place;

/* The place of tensor `id`.
 * Errors: INVALID_ARGUMENT (id), NOT_FOUND (not kept: the message names the rule).
 * Thread rule: one thread per plan. */
HEFT_API heft_status heft_load_plan_place(const heft_load_plan *plan, uint64_t id, heft_load_place *out,
                                          heft_error *err);

/* What the filter of a plan decided; borrowed from the plan. Of a plan without one it is made now: NULL out of memory.
 * Thread rule: one thread per plan. */
HEFT_API const heft_filter_result *heft_load_plan_filter(const heft_load_plan *plan);

/* Whether the load fits: asks for free memory anew. Every run begins with it.
 * Errors: LIMIT (more than free memory or memory_limit_nbytes; `expected` is what there is, `found` what is needed, the
 * message names estimate, multiplier, peak, reserve, free memory and its origin, and the next step).
 * Thread rule: one thread per plan. */
HEFT_API heft_status heft_load_plan_admit(heft_load_plan *plan, heft_error *err);

/* One tensor that a caller expects. Shapes are of whole tensors, before any cut. */
typedef struct heft_expected {
    const char *name; /* ends in NUL */
    heft_dtype dtype; /* after casts; HEFT_DTYPE_NONE: any */
    uint32_t rank;
    const uint64_t *shape; /* NULL: any shape */
} heft_expected;

/* Compares what a plan keeps with what a caller expects, and calls `fault` for *each* difference: an expected tensor that
 * is missing (withheld: the message names the rule; not there: the nearest names), one that is kept and not expected (not
 * under `partial`), another dtype, another shape.
 * Errors: MISMATCH (there are differences; `more` counts those after the first), OUT_OF_MEMORY.
 * Thread rule: one thread per plan; `fault` is called from the caller's thread and may be NULL. */
HEFT_API heft_status heft_load_plan_audit(const heft_load_plan *plan, const heft_expected *expected, uint64_t nexpected,
                                          bool partial, void (*fault)(void *ctx, const heft_error *difference),
                                          void *ctx, heft_error *err);

/* ---- running ----------------------------------------------------------------------------------------------------- */

/* What a load did. The caller sets struct_size; filled on success and on failure. */
typedef struct heft_load_stats {
    size_t struct_size;
    double resolve_seconds, filter_seconds, plan_seconds, allocate_seconds, read_seconds, total_seconds;
    uint64_t kept_nbytes, requested_nbytes, over_read_nbytes, spanned_nbytes, mapped_nbytes;
    uint64_t requests, short_reads, retries;
    uint64_t fallbacks;                   /* shards that stepped down, and hints that were refused */
    uint64_t arena_nbytes, slack_nbytes, scratch_nbytes;
    uint64_t huge_wanted_nbytes;          /* of the arenas, where huge pages were asked for */
    uint64_t minor_faults, major_faults;  /* of the process, during the load */
    uint64_t free_nbytes;                 /* before it; HEFT_NONE: not known */
    uint64_t block_nbytes;
    uint32_t workers;                     /* that ran */
    heft_engine engine;                   /* that ran */
    uint64_t nverified;                   /* tensors that are what their digests say, under `verify` */
    double verify_seconds;                /* in total_seconds too */
} heft_load_stats;

/* The tensors of a load, in memory. Reference-counted. Reading from any threads; insert, remove and detach from one
 * thread while no other uses it. */
typedef struct heft_weights heft_weights;

/* Runs a plan: all kept bytes in memory, or an error and nothing. May be repeated.
 * Errors: as heft_load_plan_admit; IO (errno, or truncated: tensor, offset, wanted, got), MISMATCH (a file changed since it
 * was opened; a cast refused an integer: tensor, value, and in `found` its number among the tensor's elements in the file;
 * under `verify` bytes that a digest does not fit: tensor or file, expected, found), CORRUPT and UNSUPPORTED as
 * heft_archive_verify, CANCELLED, OUT_OF_MEMORY.
 * Thread rule: one thread per plan. */
HEFT_API heft_status heft_load_run(heft_load_plan *plan, heft_weights **out, heft_load_stats *stats, heft_error *err);

/* Plans and runs in one call.
 * Errors and thread rule: as heft_load_plan_new and heft_load_run. */
HEFT_API heft_status heft_load(const heft_archive *archive, const heft_load_options *options, heft_weights **out,
                               heft_load_stats *stats, heft_error *err);

/* Brings the kept bytes of a plan into the page cache, for programs that are not heft's, and holds none of them: what is
 * resident is not read, the next shard is read ahead and not the whole set, and it stops with LIMIT when free memory would
 * fall below the plan's reserve. Everything that is brought in is counted against that: while it goes on the system is told to
 * read nothing ahead by itself, where it can be told (posix_fadvise). Sources without a file have nothing to warm.
 * Errors and thread rule: as heft_load_run. */
HEFT_API heft_status heft_warm(heft_load_plan *plan, heft_load_stats *stats, heft_error *err);

/* The same on a thread of its own, while the program goes on. In a process that is forked meanwhile that thread is not: there
 * heft_warmer_wait is INVALID_ARGUMENT, heft_warmer_poll is false, and heft_warmer_free does nothing. */
typedef struct heft_warmer heft_warmer;

/* Begins. The plan is the warmer's until that is freed; `progress` of its options is called on threads of the warmer.
 * Errors: OUT_OF_MEMORY; those of warming itself come from heft_warmer_wait.
 * Thread rule: one thread per plan. */
HEFT_API heft_status heft_warmer_start(heft_load_plan *plan, heft_warmer **out, heft_error *err);

/* True while it goes on. *done_nbytes of *total_nbytes (either may be NULL) have been looked at by then.
 * Thread rule: any thread. */
HEFT_API bool heft_warmer_poll(heft_warmer *warmer, uint64_t *done_nbytes, uint64_t *total_nbytes);

/* Asks it to stop: it ends as CANCELLED, within one block of each worker, or it has ended before. NULL does nothing.
 * Thread rule: any thread. */
HEFT_API void heft_warmer_cancel(heft_warmer *warmer);

/* Waits for the end and gives the result, as often as it is asked.
 * Errors: as heft_warm.
 * Thread rule: one thread per warmer. */
HEFT_API heft_status heft_warmer_wait(heft_warmer *warmer, heft_load_stats *stats, heft_error *err);

/* Stops it if it goes on, and frees it. NULL does nothing.
 * Thread rule: one thread per warmer. */
HEFT_API void heft_warmer_free(heft_warmer *warmer);

/* ---- tensors in memory ------------------------------------------------------------------------------------------- */

/* A tensor in memory: packed row-major, in host byte order. `data` is never NULL, also for 0 bytes. Pointers live as long
 * as what gave them. */
typedef struct heft_loaded {
    const char *name; /* NUL after it */
    size_t name_len;
    uint64_t id; /* in the archive; HEFT_NONE: inserted */
    heft_dtype dtype;
    uint32_t rank;
    const uint64_t *shape; /* of this rank's part */
    void *data; /* read-only where `mapped` */
    uint64_t nbytes;
    uint32_t file; /* in the archive */
    heft_dtype stored_dtype; /* in the file; `dtype` unless it was converted */
    bool mapped;
    bool reserved[7];
    void *item; /* of an iterator: what heft_load_iter_release takes back */
} heft_loaded;

/* One more reference / one less; the last one frees the arenas. heft_weights_unref(NULL) does nothing.
 * Thread rule: any thread. */
HEFT_API heft_weights *heft_weights_ref(heft_weights *weights);
HEFT_API void heft_weights_unref(heft_weights *weights);

/* Number of tensors, bytes of all of them.
 * Thread rule: any thread. */
HEFT_API uint64_t heft_weights_count(const heft_weights *weights);
HEFT_API uint64_t heft_weights_nbytes(const heft_weights *weights);

/* An order of tensors. */
typedef uint32_t heft_load_order;
#define HEFT_LOAD_ORDER_FILE UINT32_C(0)       /* by file and offset: as ids */
#define HEFT_LOAD_ORDER_NAME UINT32_C(1)       /* by name, numbers in it by their value */
#define HEFT_LOAD_ORDER_COMPLETION UINT32_C(2) /* iterators only: as they arrive */

/* Tensor `index` in an order, and the tensor of a name (`name_len` SIZE_MAX: strlen).
 * Errors: INVALID_ARGUMENT (out of range, no such order); NOT_FOUND: the message names the nearest names, or the rule by
 * which the tensor was withheld or deferred. OUT_OF_MEMORY (the first use of name order).
 * Thread rule: any thread. */
HEFT_API heft_status heft_weights_at(const heft_weights *weights, heft_load_order order, uint64_t index,
                                     heft_loaded *out, heft_error *err);
HEFT_API heft_status heft_weights_get(const heft_weights *weights, const char *name, size_t name_len, heft_loaded *out,
                                      heft_error *err);
HEFT_API bool heft_weights_contains(const heft_weights *weights, const char *name, size_t name_len);

/* Puts a tensor in, which takes over `buffer` (its bytes packed row-major; released with the weights, also if the tensor is
 * displaced or removed before). *displaced, may be NULL, gets the tensor that had the name: its bytes stay until the weights
 * go; name NULL: none had.
 * Errors: INVALID_ARGUMENT (shape and nbytes disagree), OUT_OF_MEMORY; the buffer is then still the caller's.
 * Thread rule: one thread. */
HEFT_API heft_status heft_weights_insert(heft_weights *weights, const char *name, size_t name_len, heft_dtype dtype,
                                         uint32_t rank, const uint64_t *shape, heft_buffer *buffer,
                                         heft_loaded *displaced, heft_error *err);

/* Takes a tensor out; its bytes stay until its arena goes: with the weights, or, under HEFT_ARENA_SHARD, when the last
 * tensor of its shard is taken out.
 * Errors: NOT_FOUND.
 * Thread rule: one thread. */
HEFT_API heft_status heft_weights_remove(heft_weights *weights, const char *name, size_t name_len, heft_error *err);

/* The bytes of a tensor in a buffer of their own, by a copy: one tensor that is kept does not pin its arena.
 * Errors: NOT_FOUND, OUT_OF_MEMORY.
 * Thread rule: any thread. */
HEFT_API heft_status heft_weights_detach(const heft_weights *weights, const char *name, size_t name_len,
                                         heft_buffer *out, heft_error *err);

/* Whether a tensor here is F8_E4M3 (after casts); how many names end in ".k_scale".
 * Thread rule: any thread. */
HEFT_API bool heft_weights_has_fp8(const heft_weights *weights);
HEFT_API uint64_t heft_weights_k_scales(const heft_weights *weights);

/* A deferred tensor: located, not read. */
typedef struct heft_deferred {
    const char *name;
    size_t name_len;
    uint64_t id;
    const char *path; /* of its file */
    uint64_t offset;  /* of its first byte in the file */
    uint64_t nbytes;  /* once it has been read, as `dtype` */
    heft_dtype dtype;
    uint32_t rank;
    const uint64_t *shape;
} heft_deferred;

/* The deferred tensors, by (name without its last all-digit segment, that number): 2, 9, 10, 11.
 * Errors: INVALID_ARGUMENT (out of range).
 * Thread rule: any thread. */
HEFT_API uint64_t heft_weights_deferred_count(const heft_weights *weights);
HEFT_API heft_status heft_weights_deferred(const heft_weights *weights, uint64_t index, heft_deferred *out,
                                           heft_error *err);

/* Reads a deferred tensor now, by the engine and path of the load, after checking that the file is what it was.
 * Errors: NOT_FOUND (no such deferred tensor), and as heft_load_run.
 * Thread rule: any thread. */
HEFT_API heft_status heft_weights_read_deferred(const heft_weights *weights, const char *name, size_t name_len,
                                                heft_buffer *out, heft_error *err);

/* ---- delivery while loading -------------------------------------------------------------------------------------- */

/* Calls `deliver` for each tensor when its last byte is in: from worker threads, concurrently for different tensors, never
 * twice for one. The bytes are valid during the call. Non-zero stops the load.
 * Errors: CANCELLED (`deliver` returned non-zero), and as heft_load_run.
 * Thread rule: one thread per plan. */
HEFT_API heft_status heft_load_each(heft_load_plan *plan, int (*deliver)(void *ctx, const heft_loaded *tensor),
                                    void *ctx, heft_load_stats *stats, heft_error *err);

/* An iterator over a load that goes on meanwhile. One consumer thread. A process that is forked meanwhile lacks its workers: there
 * heft_load_iter_next and _take are INVALID_ARGUMENT, and heft_load_iter_free does nothing. Archives, and weights whose load had
 * ended, may be used there; memory of a load that goes on is not there. */
typedef struct heft_load_iter heft_load_iter;

/* Starts one. `ring_nbytes` 0: all bytes go to arenas, items stay valid until the iterator is freed (or longer, see
 * heft_load_iter_take). Otherwise memory is bounded: items live in a ring of so many bytes (at least the largest tensor)
 * and are valid until they are released, never reused before; when the ring is full the load waits.
 * Errors: as heft_load_plan_admit (with the ring in place of the arenas); LIMIT (a tensor is larger than the ring: named),
 * INVALID_ARGUMENT (order), OUT_OF_MEMORY.
 * Thread rule: one thread per plan. */
HEFT_API heft_status heft_load_iter_new(heft_load_plan *plan, heft_load_order order, uint64_t ring_nbytes,
                                        heft_load_iter **out, heft_error *err);

/* The next tensor, waiting for it; *out with name NULL at the end.
 * Errors: as heft_load_run; after one the iterator can only be freed.
 * Thread rule: one thread per iterator. */
HEFT_API heft_status heft_load_iter_next(heft_load_iter *iter, heft_loaded *out, heft_error *err);

/* Gives an item of a ring back, in any order. Without a ring it does nothing.
 * Thread rule: one thread per iterator. */
HEFT_API void heft_load_iter_release(heft_load_iter *iter, const heft_loaded *item);

/* The tensors of an iterator without a ring as weights, which outlive it: waits for those that are not in yet. After it
 * the iterator can only be freed.
 * Errors: INVALID_ARGUMENT (there is a ring), and as heft_load_run.
 * Thread rule: one thread per iterator. */
HEFT_API heft_status heft_load_iter_take(heft_load_iter *iter, heft_weights **out, heft_error *err);

/* Stops the workers, frees everything that was not taken; NULL does nothing. `stats` may be NULL.
 * Thread rule: one thread per iterator. */
HEFT_API void heft_load_iter_free(heft_load_iter *iter, heft_load_stats *stats);

/* ---- arenas ------------------------------------------------------------------------------------------------------ */

/* An arena to be given to several loads in turn. It grows to the largest of them and is free again when the weights that
 * lie in it are gone; a load that finds it in use gets INVALID_ARGUMENT.
 * Errors: OUT_OF_MEMORY.
 * Thread rule: any thread. */
HEFT_API heft_status heft_arena_new(heft_huge huge, const heft_allocator *allocator, heft_arena **out, heft_error *err);
HEFT_API void heft_arena_unref(heft_arena *arena);

/* Bytes that an arena holds, and of these bytes in huge pages (asks the system; HEFT_NONE: it does not say).
 * Thread rule: when no load runs in it. */
HEFT_API uint64_t heft_arena_nbytes(const heft_arena *arena);
HEFT_API uint64_t heft_arena_huge_nbytes(const heft_arena *arena);

#ifdef __cplusplus
}
#endif
#endif
