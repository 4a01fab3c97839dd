/* ops: the memory of an iterator with a bound: chunks of one block, given back in any order. Knows no tensors. One thread. */
#ifndef HEFT_OPS_LOAD_RING_H
#define HEFT_OPS_LOAD_RING_H

#include "base/alloc.h"

#define HEFT__RING_NONE UINT32_MAX

typedef struct heft__ring_chunk {
    uint64_t begin, end;
    uint32_t previous, next; /* by address, in a circle */
} heft__ring_chunk;

typedef struct heft__ring {
    heft__ring_chunk *chunks; /* by number; the caller's */
    uint64_t nbytes, used;
    uint64_t phase;           /* of byte 0, modulo every alignment that is asked for */
    uint32_t last;            /* the chunk placed last, or a neighbour of one that is gone; HEFT__RING_NONE: empty */
} heft__ring;

/* Finds a place for chunk `number`, behind the one placed last if there is one. False: there is no room now. */
bool heft__ring_place(heft__ring *ring, uint32_t number, uint64_t nbytes, uint64_t align);
void heft__ring_free(heft__ring *ring, uint32_t number);

#endif
