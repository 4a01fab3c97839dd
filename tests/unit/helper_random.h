/* Random numbers that are the same in every run. */
#ifndef HEFT_TESTS_HELPER_RANDOM_H
#define HEFT_TESTS_HELPER_RANDOM_H

#include <stdint.h>

/* The state is the seed: start it with any constant. (Sequence of a Weyl counter through two multiply-xorshift rounds.) */
static inline uint64_t random_u64(uint64_t *state) {
    uint64_t x = *state += UINT64_C(0x9E3779B97F4A7C15);
    x = (x ^ (x >> 31)) * UINT64_C(0xD6E8FEB86659FD93);
    x = (x ^ (x >> 29)) * UINT64_C(0xC2B2AE3D27D4EB4F);
    return x ^ (x >> 32);
}

/* 0 to n - 1. */
static inline uint64_t random_below(uint64_t *state, uint64_t n) { return random_u64(state) % n; }

#endif
