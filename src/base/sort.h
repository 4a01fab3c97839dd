/* base: sorting in place, O(n log n) for any input, no allocation. */
#ifndef HEFT_BASE_SORT_H
#define HEFT_BASE_SORT_H

#include <stdint.h>

/* What is sorted: `major` first, equal ones by the caller's `tie`. The rest is the caller's. */
typedef struct heft__sort_key {
    uint64_t major, minor;
    uint32_t index, rank;
} heft__sort_key;

/* Orders two keys of equal `major`: <0, 0, >0. */
typedef int (*heft__sort_tie)(const void *ctx, const heft__sort_key *a, const heft__sort_key *b);

/* Ascending. Not stable: a caller that needs an order among equals gives it in `tie`. Introsort: quicksort that turns
 * to heapsort when its partitions go bad, so no input is quadratic. */
void heft__sort_keys(heft__sort_key *keys, uint64_t count, heft__sort_tie tie, const void *ctx);

/* The first eight bytes of a text as a number that orders like them; shorter texts are filled up with zeros, so equal
 * numbers need a tie. */
uint64_t heft__sort_prefix(const char *text, uint64_t len);

#endif
