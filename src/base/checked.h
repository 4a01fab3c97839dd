/* base: arithmetic on numbers that come from files. Each returns false, and leaves *out alone, if the result does not fit. */
#ifndef HEFT_BASE_CHECKED_H
#define HEFT_BASE_CHECKED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

static inline bool heft__add_u64(uint64_t a, uint64_t b, uint64_t *out) {
    uint64_t r;
    if (__builtin_add_overflow(a, b, &r)) return false;
    *out = r;
    return true;
}

static inline bool heft__mul_u64(uint64_t a, uint64_t b, uint64_t *out) {
    uint64_t r;
    if (__builtin_mul_overflow(a, b, &r)) return false;
    *out = r;
    return true;
}

/* Rounds up to a multiple of `align`, a power of two. */
static inline bool heft__align_u64(uint64_t a, uint64_t align, uint64_t *out) {
    uint64_t r;
    if (__builtin_add_overflow(a, align - 1, &r)) return false;
    *out = r & ~(align - 1);
    return true;
}

static inline bool heft__add_i64(int64_t a, int64_t b, int64_t *out) {
    int64_t r;
    if (__builtin_add_overflow(a, b, &r)) return false;
    *out = r;
    return true;
}

static inline bool heft__mul_i64(int64_t a, int64_t b, int64_t *out) {
    int64_t r;
    if (__builtin_mul_overflow(a, b, &r)) return false;
    *out = r;
    return true;
}

/* A size for memory: false where size_t is narrower than the number. */
static inline bool heft__to_size(uint64_t a, size_t *out) {
#if SIZE_MAX < UINT64_MAX
    if (a > SIZE_MAX) return false;
#endif
    *out = (size_t)a;
    return true;
}

#endif
