/* An archive of made-up tensors over any source, and views of it, for tests of plans and reads. */
#ifndef HEFT_TESTS_HELPER_ARCHIVE_H
#define HEFT_TESTS_HELPER_ARCHIVE_H

#include "helper.h"

#include "catalog/catalog.h"

typedef struct made_tensor {
    heft_dtype dtype;
    uint64_t begin, end; /* in the source */
    uint32_t rank;
    uint64_t shape[4];
} made_tensor;

typedef struct made_archive {
    heft_archive archive;
    heft__listing listing, *listings[1];
    _Atomic(heft__mapping *) mapping;
    heft__entry entries[64];
    uint64_t shapes[64][4];
    char names[64][16];
} made_archive;

/* Fills *made in place: tensors "t0", "t1", ... in the order given, which must be file order. `source` is borrowed. */
void made_archive_init(made_archive *made, heft_source *source, const made_tensor *tensors, uint64_t n);

void made_archive_end(made_archive *made); /* lets go of its mapping */

/* The whole tensor. */
heft_view made_view(const made_archive *made, uint64_t id);

/* Bytes (data) of `view` gathered one element after another, packed; bits of the last byte zero. `dst` is large enough. */
void naive_gather(const heft_view *view, const uint8_t *source, uint8_t *dst);

/* xorshift64*. */
uint64_t test_random(uint64_t *state);

/* A random view of a tensor: steps of any sign, dims dropped, inserted, reordered, empty ones sometimes. */
heft_view random_view(const made_archive *made, uint64_t id, uint64_t *state);

#endif
