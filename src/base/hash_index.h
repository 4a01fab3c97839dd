/* base: an open-addressing index from names to numbers. Names live elsewhere; the caller compares them. The hash is keyed
 * with a random seed, so a file cannot be made that collides. */
#ifndef HEFT_BASE_HASH_INDEX_H
#define HEFT_BASE_HASH_INDEX_H

#include "base/alloc.h"

typedef struct heft__hash_index {
    heft_allocator alloc;
    uint64_t *slots; /* 0: empty; else hash in the high 32 bits, number + 1 in the low */
    uint64_t mask;   /* capacity - 1; capacity is a power of two or 0 */
    uint64_t count;
    uint64_t seed[2];
} heft__hash_index;

/* Empty, with a fresh random seed; room for `expected` numbers without growing. False: out of memory. */
bool heft__hash_index_init(heft__hash_index *index, const heft_allocator *alloc, uint64_t expected);
void heft__hash_index_free(heft__hash_index *index);
uint64_t heft__hash_index_nbytes(const heft__hash_index *index);

/* The keyed 32-bit hash of a name. */
uint32_t heft__hash_name(const heft__hash_index *index, const char *name, size_t len);

/* Candidates of a hash, one after another: start with *cursor = heft__hash_start(...). False: no more. */
static inline uint64_t heft__hash_start(const heft__hash_index *index, uint32_t hash) { return hash & index->mask; }
static inline bool heft__hash_next(const heft__hash_index *index, uint32_t hash, uint64_t *cursor, uint32_t *number) {
    if (!index->slots) return false;
    for (;;) {
        uint64_t slot = index->slots[*cursor];
        if (slot == 0) return false;
        *cursor = (*cursor + 1) & index->mask;
        if ((uint32_t)(slot >> 32) == hash) {
            *number = (uint32_t)slot - 1;
            return true;
        }
    }
}

/* Adds a number under a hash, growing at 3/4 full. The caller has made sure that the name is not there. number < 2^32 - 1.
 * False: out of memory. */
bool heft__hash_add(heft__hash_index *index, uint32_t hash, uint32_t number);

#endif
