/* device: owns memory and copies inside it; knows no files. This is the host; accelerators get a file each beside it. */
#ifndef HEFT_DEVICE_DEVICE_H
#define HEFT_DEVICE_DEVICE_H

#include "base/alloc.h"
#include "dtype/dtype.h"
#include "heft/loads.h"

#include <stdatomic.h>

/* ---- memory that a read lands in (host.c) ---- */

/* Every buffer starts at a multiple of this; from HEFT__HUGE_MIN on the default allocator gives 2 MiB-aligned huge pages. */
#define HEFT__HOST_ALIGN 64

/* A buffer of nbytes (0 is fine), released through its own callback. Not cleared. */
heft_status heft__host_buffer(const heft_allocator *alloc, uint64_t nbytes, heft_buffer *out, heft_error *err);

/* ---- arenas (host_arena.c): memory of many tensors, that may serve one load after another ---- */

/* From here on an arena is a mapping of its own that starts at a multiple of 2 MiB, with huge pages in its whole units; below
 * it is a block of the allocator. Also a smaller one is a mapping if it must be aligned to more than a buffer. */
#define HEFT__ARENA_PAGES ((uint64_t)2 << 20)

struct heft_arena {
    heft_allocator alloc;
    atomic_uint refs;
    atomic_bool in_use;
    heft_huge huge;
    uint8_t *data;    /* NULL: none yet */
    uint64_t nbytes;  /* of it; of mappings whole pages */
    void *base;       /* what is freed */
    uint64_t base_nbytes;
    bool pages;       /* a mapping */
};

/* An arena without memory, with one reference. */
heft_status heft__host_arena_new(const heft_allocator *alloc, heft_huge huge, heft_arena **out, heft_error *err);
heft_arena *heft__host_arena_ref(heft_arena *arena);
void heft__host_arena_unref(heft_arena *arena); /* the last one frees the memory; NULL does nothing */

/* Takes an arena into use for a load of nbytes (0 is fine) at a multiple of `align`, a power of two up to 2 MiB. What it held is
 * lost, memory that is large enough stays. A child that is forked now does not get the pages: direct reads and copies of pages
 * do not go together.
 * INVALID_ARGUMENT: it is in use. LIMIT: huge pages are required, and the system grants none. OUT_OF_MEMORY. */
heft_status heft__host_arena_take(heft_arena *arena, uint64_t nbytes, uint64_t align, heft_error *err);
/* The load has ended: from now on children inherit the pages. */
void heft__host_arena_settle(heft_arena *arena);
/* Nothing of it is held any more: it may be taken again. */
void heft__host_arena_give_back(heft_arena *arena);
/* The first nbytes of an arena in use as a buffer, which holds a reference; its release gives the arena back. */
void heft__host_arena_buffer(heft_arena *arena, uint64_t nbytes, heft_buffer *out);

/* Bytes for which huge pages were asked for, and bytes that lie in huge pages (asks the system; HEFT_NONE: it does not say). */
uint64_t heft__host_arena_huge_wanted(const heft_arena *arena);
uint64_t heft__host_arena_huge_nbytes(const heft_arena *arena);

/* ---- devices ---- */

typedef struct heft__device heft__device;

/* Memory of a device. */
typedef struct heft__device_memory {
    uint8_t *host;   /* where a read may land, or NULL: bytes come by copies only */
    void *handle;    /* the device's own */
    uint64_t nbytes;
} heft__device_memory;

/* What a device is and can. Functions but for `copy` and `wait` are called by one thread. */
struct heft__device {
    const char *name;
    void *ctx;
    uint64_t align;  /* of tensors in its memory, a power of two */
    bool staging;    /* reads land in memory of the host first, `host_alloc`, and are copied from there */
    heft_allocator host_alloc; /* memory of the host that copies come from (pinned): scratch of engines */
    heft_status (*alloc)(const heft__device *device, uint64_t nbytes, heft__device_memory *out, heft_error *err);
    void (*free)(const heft__device *device, heft__device_memory *memory);
    /* Puts a copy into the device's queue. *ticket: a number for `wait`; they rise in the order of the queue. The source must
     * stay as it is until then. Any thread. */
    heft_status (*copy)(const heft__device *device, const heft__device_memory *to, uint64_t offset, const void *from,
                        uint64_t nbytes, uint64_t *ticket, heft_error *err);
    /* Waits for a copy and all before it. Any thread. */
    heft_status (*wait)(const heft__device *device, uint64_t ticket, heft_error *err);
};

/* host.c: memory of the host, in arenas. Reads land where they should; a copy is done when `copy` returns. */
heft__device heft__device_host(const heft_allocator *alloc);

/* ---- strided copies (copy.c, bits.c, convert.c) ---- */

/* One loop of a nest: `count` steps of `src` and `dst`, in bytes (heft__copy_loops) or bits (heft__copy_bits). */
typedef struct heft__loop {
    uint64_t count;
    int64_t src, dst;
} heft__loop;

/* Copies `unit` bytes at every index of a nest of loops (rank 0: once), reversing each group of `swap` bytes (2, 4 or 8; a
 * divisor of unit) on the way; 0 and 1: as they are. Source and destination do not overlap. Blocked for the cache. */
void heft__copy_loops(uint8_t *dst, const uint8_t *src, const heft__loop *loops, uint32_t rank, size_t unit, uint32_t swap);

/* The same for `unit` bits from bit *_bit on (bit 0 is the least significant of byte 0). Other bits of dst are kept. */
void heft__copy_bits(uint8_t *dst, int64_t dst_bit, const uint8_t *src, int64_t src_bit, const heft__loop *loops,
                     uint32_t rank, uint64_t unit);

/* From one dtype to another; `flags` as heft__cast_find takes them, which must know the pair. */
typedef struct heft__conversion {
    heft_dtype from, to;
    uint32_t flags;
} heft__conversion;

/* An element that a cast refused: its step of each loop, and its bytes in host byte order. */
typedef struct heft__refusal {
    uint64_t steps[HEFT_MAX_RANK + 1];
    uint8_t element[16];
} heft__refusal;

/* heft__copy_loops with one element of `how->from` as the unit, reversed by `swap` before it is converted. False: an element was
 * refused, *refusal is the first in the order of the destination. */
bool heft__convert_loops(uint8_t *dst, const uint8_t *src, const heft__loop *loops, uint32_t rank, uint32_t swap,
                         const heft__conversion *how, heft__refusal *refusal);

#endif
