/* heft/loads.h: loading a checkpoint, or the part of it that one process wants: filter, plan, memory, path, run,
 * result. The rules, with their reasons: docs/loading.md.
 */
#ifndef HEFT_LOADS_H
#define HEFT_LOADS_H

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

/* ---- plans ------------------------------------------------------------------------------------------------------- */

/* The memory of a load, in bytes, exact but for `estimate_nbytes`, which is the caller's rule: kept bytes times the
 * multiplier. */
typedef struct heft_footprint {
    uint64_t kept_nbytes, deferred_nbytes, withheld_nbytes; /* of tensors; kept: of this rank's parts */
    uint64_t arena_nbytes;     /* all arenas with slack, in whole pages */
    uint64_t scratch_nbytes;   /* of all workers */
    uint64_t ring_nbytes;      /* 0 but for a ring */
    uint64_t side_nbytes;      /* path map: misaligned tensors that are read beside the mapping */
    uint64_t metadata_nbytes;  /* headers, catalog and lists of the plan */
    uint64_t mapped_nbytes;    /* in whole pages */
    uint64_t peak_owned_nbytes; /* arena + scratch + ring + side + metadata + 64 KiB a worker */
    uint64_t transient_nbytes;  /* peak_owned + mapped: what memory_limit_nbytes is compared with */
    double multiplier;
    uint64_t estimate_nbytes;  /* kept, deferred left out, times the multiplier */
    uint64_t needed_nbytes;    /* max(estimate, peak_owned) + reserve: what free memory is compared with */
    uint64_t free_nbytes;      /* HEFT_NONE: not known */
    char free_origin[128];     /* "MemAvailable", "cgroup memory.max of /a/b", "caller", "unknown" */
} heft_footprint;

/* Where a kept tensor will lie. */
typedef struct heft_load_place {
    uint64_t offset;     /* in its arena, its mapping, or the side arena */
    uint32_t arena;      /* number of the arena: 0, or that of its shard under HEFT_ARENA_SHARD */
    uint32_t align;      /* the largest power of two up to 4,096 that its address will be a multiple of */
    bool slot;           /* not as it lies in the file: it has a place of its own */
    bool side;           /* path map: read beside the mapping */
    bool reserved[6];
} heft_load_place;

#ifdef __cplusplus
}
#endif
#endif
