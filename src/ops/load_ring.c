/* ops: places of chunks in a ring. */
#include "ops/load_ring.h"

/* The first place in [begin, end) that is aligned; false: it does not fit. */
static bool ring_fits(const heft__ring *ring, uint64_t begin, uint64_t end, uint64_t nbytes, uint64_t align,
                      uint64_t *place) {
    uint64_t misfit = (ring->phase + begin) & (align - 1);
    *place = begin + (misfit ? align - misfit : 0);
    return *place <= end && nbytes <= end - *place;
}

static void ring_insert(heft__ring *ring, uint32_t number, uint32_t after, uint64_t place, uint64_t nbytes) {
    heft__ring_chunk *chunk = &ring->chunks[number];
    *chunk = (heft__ring_chunk){place, place + nbytes, number, number};
    if (after != HEFT__RING_NONE) {
        chunk->previous = after;
        chunk->next = ring->chunks[after].next;
        ring->chunks[chunk->next].previous = number;
        ring->chunks[after].next = number;
    }
    ring->last = number;
    ring->used += nbytes;
}

bool heft__ring_place(heft__ring *ring, uint32_t number, uint64_t nbytes, uint64_t align) {
    uint64_t place;
    uint32_t at = ring->last;
    if (at == HEFT__RING_NONE) {
        if (!ring_fits(ring, 0, ring->nbytes, nbytes, align, &place)) return false;
        ring_insert(ring, number, HEFT__RING_NONE, place, nbytes);
        return true;
    }
    if (nbytes > ring->nbytes - ring->used) return false;
    do {
        const heft__ring_chunk *chunk = &ring->chunks[at], *next = &ring->chunks[chunk->next];
        bool wraps = next->begin <= chunk->begin;
        if (ring_fits(ring, chunk->end, wraps ? ring->nbytes : next->begin, nbytes, align, &place) ||
            (wraps && ring_fits(ring, 0, next->begin, nbytes, align, &place))) {
            ring_insert(ring, number, at, place, nbytes);
            return true;
        }
        at = chunk->next;
    } while (at != ring->last);
    return false;
}

void heft__ring_free(heft__ring *ring, uint32_t number) {
    heft__ring_chunk *chunk = &ring->chunks[number];
    ring->used -= chunk->end - chunk->begin;
    if (chunk->next == number) {
        ring->last = HEFT__RING_NONE;
        return;
    }
    ring->chunks[chunk->previous].next = chunk->next;
    ring->chunks[chunk->next].previous = chunk->previous;
    if (ring->last == number) ring->last = chunk->previous;
}
