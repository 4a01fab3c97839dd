/* base: the hash of names and the table of their numbers. */
#include "base/hash_index.h"

#include "base/checked.h"
#include "base/os.h"

#include <string.h>

#define HASH_FIRST_CAPACITY 16

/* Odd constants with about as many ones as zeros (fractions of the square roots of 2 and 3). */
#define HASH_K0 UINT64_C(0x6A09E667F3BCC909)
#define HASH_K1 UINT64_C(0xBB67AE8584CAA73B)

/* The two halves of the 128-bit product, folded together: every bit of both factors reaches the middle. */
static inline uint64_t hash_fold(uint64_t a, uint64_t b) {
#if defined(__SIZEOF_INT128__)
    __extension__ typedef unsigned __int128 hash_wide;
    hash_wide product = (hash_wide)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
#else
    uint64_t a0 = (uint32_t)a, a1 = a >> 32, b0 = (uint32_t)b, b1 = b >> 32;
    uint64_t low = a0 * b0, middle = a1 * b0 + (low >> 32), cross = a0 * b1 + (uint32_t)middle;
    return (cross << 32 | (uint32_t)low) ^ (a1 * b1 + (middle >> 32) + (cross >> 32));
#endif
}

static inline uint64_t hash_word(const char *p) {
    uint64_t word;
    memcpy(&word, p, 8);
    return word;
}

static inline uint32_t hash_half(const char *p) {
    uint32_t word;
    memcpy(&word, p, 4);
    return word;
}

/* Both factors of every product hold secret bits (seed, or the state that grows from it), so which names collide cannot
 * be known beforehand. The length is part of the state: the last words may overlap what was read before. */
uint32_t heft__hash_name(const heft__hash_index *index, const char *name, size_t len) {
    uint64_t s0 = index->seed[0], state = index->seed[1] ^ (uint64_t)len * HASH_K0, other = state ^ HASH_K1;
    const char *p = name;
    size_t left = len;
    for (; left > 32; p += 32, left -= 32) {
        state = hash_fold(hash_word(p) ^ s0, hash_word(p + 8) ^ state);
        other = hash_fold(hash_word(p + 16) ^ s0, hash_word(p + 24) ^ other);
    }
    if (left > 16) {
        state = hash_fold(hash_word(p) ^ s0, hash_word(p + 8) ^ state);
        p += 16;
        left -= 16;
    }
    uint64_t a = 0, b = 0;
    if (left >= 8) {
        a = hash_word(p);
        b = hash_word(p + left - 8);
    } else if (left >= 4) {
        a = hash_half(p);
        b = hash_half(p + left - 4);
    } else if (left > 0) {
        a = (uint64_t)(uint8_t)p[0] << 16 | (uint64_t)(uint8_t)p[left / 2] << 8 | (uint8_t)p[left - 1];
    }
    other = hash_fold(a ^ s0 ^ HASH_K0, b ^ other);
    uint64_t h = hash_fold(state ^ HASH_K1, other ^ s0);
    return (uint32_t)(h ^ h >> 32);
}

/* Makes the table `capacity` slots, a power of two, and carries the numbers over. */
static bool hash_resize(heft__hash_index *index, uint64_t capacity) {
    uint64_t nbytes;
    if (!heft__mul_u64(capacity, sizeof *index->slots, &nbytes)) return false;
    uint64_t *slots = heft__alloc_zero(&index->alloc, nbytes);
    if (!slots) return false;
    uint64_t mask = capacity - 1;
    for (uint64_t i = 0; index->slots && i <= index->mask; i++) {
        uint64_t slot = index->slots[i];
        if (slot == 0) continue;
        uint64_t at = slot >> 32 & mask;
        while (slots[at] != 0) at = (at + 1) & mask;
        slots[at] = slot;
    }
    heft__free(&index->alloc, index->slots, heft__hash_index_nbytes(index));
    index->slots = slots;
    index->mask = mask;
    return true;
}

bool heft__hash_index_init(heft__hash_index *index, const heft_allocator *alloc, uint64_t expected) {
    memset(index, 0, sizeof *index);
    index->alloc = *alloc;
    heft__os_random(index->seed, sizeof index->seed);
    if (expected == 0) return true;
    if (expected > UINT32_MAX) return false;
    uint64_t capacity = HASH_FIRST_CAPACITY;
    while (capacity / 4 * 3 < expected) capacity *= 2;
    return hash_resize(index, capacity);
}

void heft__hash_index_free(heft__hash_index *index) {
    heft__free(&index->alloc, index->slots, heft__hash_index_nbytes(index));
    index->slots = NULL;
    index->mask = index->count = 0;
}

uint64_t heft__hash_index_nbytes(const heft__hash_index *index) {
    return index->slots ? (index->mask + 1) * sizeof *index->slots : 0;
}

bool heft__hash_add(heft__hash_index *index, uint32_t hash, uint32_t number) {
    uint64_t capacity = index->slots ? index->mask + 1 : 0;
    if (index->count >= capacity / 4 * 3 && !hash_resize(index, capacity ? capacity * 2 : HASH_FIRST_CAPACITY))
        return false;
    uint64_t at = hash & index->mask;
    while (index->slots[at] != 0) at = (at + 1) & index->mask;
    index->slots[at] = (uint64_t)hash << 32 | (number + 1);
    index->count++;
    return true;
}
