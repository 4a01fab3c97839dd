/* device: owns memory and copies inside it; knows no files. This is the host; accelerators get a file each beside it. */
#ifndef HEFT_DEVICE_DEVICE_H
#define HEFT_DEVICE_DEVICE_H

#include "base/alloc.h"

/* ---- memory that a read lands in (host.c) ---- */

/* Every buffer starts at a multiple of this; from HEFT__HUGE_MIN on the default allocator gives 2 MiB-aligned huge pages. */
#define HEFT__HOST_ALIGN 64

/* A buffer of nbytes (0 is fine), released through its own callback. Not cleared. */
heft_status heft__host_buffer(const heft_allocator *alloc, uint64_t nbytes, heft_buffer *out, heft_error *err);

/* ---- strided copies (copy.c, bits.c) ---- */

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

#endif
