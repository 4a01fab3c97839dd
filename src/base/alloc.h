/* base: memory through the caller's allocator, with overflow checks. */
#ifndef HEFT_BASE_ALLOC_H
#define HEFT_BASE_ALLOC_H

#include "heft/core.h"

/* malloc for small blocks; from HEFT__HUGE_MIN on, pages of the system, 2 MiB-aligned, with huge pages asked for: a 36 MB
 * header costs 18 page faults instead of 9,000. `free` tells them apart by the size that it is given. */
#define HEFT__HUGE_MIN ((size_t)4 << 20)
extern const heft_allocator heft__default_allocator;

/* `given` if it is complete, the default if it is NULL. False if a member is missing. */
bool heft__allocator_from(const heft_allocator *given, heft_allocator *out);

/* NULL on failure; 0 bytes give a valid pointer. Not cleared. */
void *heft__alloc(const heft_allocator *a, uint64_t nbytes);
void *heft__alloc_zero(const heft_allocator *a, uint64_t nbytes);
/* Grows or shrinks; on failure NULL, and the old block stays. ptr NULL with old_nbytes 0 allocates. */
void *heft__realloc(const heft_allocator *a, void *ptr, uint64_t old_nbytes, uint64_t new_nbytes);
/* `nbytes` as it was asked for. ptr NULL does nothing. */
void heft__free(const heft_allocator *a, void *ptr, uint64_t nbytes);

/* Makes room for one more element in a growing array of *capacity elements: doubles (at least `first`). False on failure. */
bool heft__grow(const heft_allocator *a, void **array, uint64_t *capacity, uint64_t count, size_t element_nbytes,
                uint64_t first);

/* A copy of `len` bytes with a NUL after them; free with heft__free(a, p, len + 1). */
char *heft__strdup_len(const heft_allocator *a, const char *text, size_t len);

/* ---- arena: many small blocks that go at once; beyond HEFT__HUGE_MIN of them in huge pages. Not thread-safe. ---- */
typedef struct heft__arena_chunk heft__arena_chunk;
typedef struct heft__arena {
    heft_allocator alloc;
    heft__arena_chunk *chunks;
    uint8_t *at, *end;
    uint64_t nbytes; /* of all chunks */
} heft__arena;

void heft__arena_init(heft__arena *arena, const heft_allocator *alloc);
void *heft__arena_alloc(heft__arena *arena, uint64_t nbytes, size_t align); /* NULL on failure; align: power of two <= 16 */
char *heft__arena_text(heft__arena *arena, const char *text, size_t len);   /* with a NUL after it */
uint64_t heft__arena_nbytes(const heft__arena *arena);                      /* of all chunks */
void heft__arena_free(heft__arena *arena);                                  /* everything */

#endif
