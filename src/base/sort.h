/* base: sorting in place by small keys, O(n log n) for any input, no allocation. */
#ifndef HEFT_BASE_SORT_H
#define HEFT_BASE_SORT_H

#include <stddef.h>
#include <stdint.h>

/* Ordered by major, then minor, then index. */
typedef struct heft__sort_key {
    uint64_t major, minor;
    uint32_t index; /* of the item that it stands for */
    uint32_t rank;  /* the caller's, but heft__sort_texts uses it */
} heft__sort_key;

/* Ascending. Introsort: quicksort that turns to heapsort when its partitions go bad, so no input is quadratic. */
void heft__sort_keys(heft__sort_key *keys, uint64_t count);

/* The text of an item. */
typedef const char *(*heft__sort_text)(const void *ctx, uint32_t index, uint64_t *len);

/* Sorts keys, whose `index` alone is set, by the bytes of their texts, equal texts by index. Time is that of reading
 * what distinguishes the texts, and of heft__sort_keys for each eight bytes of it. count < 2^32. */
void heft__sort_texts(heft__sort_key *keys, uint64_t count, heft__sort_text text, const void *ctx);

/* Moves each item to its place: items[i] becomes what items[keys[i].index] was. Items are at most 64 bytes. The keys
 * are used up. */
void heft__sort_permute(heft__sort_key *keys, uint64_t count, void *items, size_t item_nbytes);

#endif
