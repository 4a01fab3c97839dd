/* base: the default allocator and checked helpers around any allocator. */
#include "base/alloc.h"

#include "base/checked.h"
#include "base/os.h"

#include <stdlib.h>
#include <string.h>

static void *default_alloc(void *ctx, size_t nbytes) {
    (void)ctx;
    if (nbytes >= HEFT__HUGE_MIN) return heft__os_pages(nbytes);
    return malloc(nbytes ? nbytes : 1);
}

static void default_free(void *ctx, void *ptr, size_t nbytes) {
    (void)ctx;
    if (nbytes >= HEFT__HUGE_MIN) heft__os_pages_free(ptr, nbytes);
    else free(ptr);
}

static void *default_realloc(void *ctx, void *ptr, size_t old_nbytes, size_t new_nbytes) {
    if (old_nbytes < HEFT__HUGE_MIN && new_nbytes < HEFT__HUGE_MIN) return realloc(ptr, new_nbytes ? new_nbytes : 1);
    if (ptr && old_nbytes >= HEFT__HUGE_MIN && new_nbytes >= old_nbytes)
        return heft__os_pages_grow(ptr, old_nbytes, new_nbytes);
    void *fresh = default_alloc(ctx, new_nbytes);
    if (!fresh) return NULL;
    if (ptr) {
        memcpy(fresh, ptr, old_nbytes < new_nbytes ? old_nbytes : new_nbytes);
        default_free(ctx, ptr, old_nbytes);
    }
    return fresh;
}

const heft_allocator heft__default_allocator = {NULL, default_alloc, default_realloc, default_free};

bool heft__allocator_from(const heft_allocator *given, heft_allocator *out) {
    *out = given ? *given : heft__default_allocator;
    return out->alloc && out->realloc && out->free;
}

void *heft__alloc(const heft_allocator *a, uint64_t nbytes) {
    size_t n;
    return heft__to_size(nbytes, &n) ? a->alloc(a->ctx, n ? n : 1) : NULL;
}

void *heft__alloc_zero(const heft_allocator *a, uint64_t nbytes) {
    void *p = heft__alloc(a, nbytes);
    if (p) memset(p, 0, (size_t)nbytes);
    return p;
}

void *heft__realloc(const heft_allocator *a, void *ptr, uint64_t old_nbytes, uint64_t new_nbytes) {
    size_t n;
    if (!ptr) return heft__alloc(a, new_nbytes);
    if (!heft__to_size(new_nbytes, &n)) return NULL;
    return a->realloc(a->ctx, ptr, old_nbytes ? (size_t)old_nbytes : 1, n ? n : 1);
}

void heft__free(const heft_allocator *a, void *ptr, uint64_t nbytes) {
    if (ptr) a->free(a->ctx, ptr, nbytes ? (size_t)nbytes : 1);
}

bool heft__grow(const heft_allocator *a, void **array, uint64_t *capacity, uint64_t count, size_t element_nbytes,
                uint64_t first) {
    if (count < *capacity) return true;
    uint64_t more = *capacity ? *capacity : first, wanted, nbytes;
    if (!heft__add_u64(*capacity, more, &wanted) || !heft__mul_u64(wanted, element_nbytes, &nbytes)) return false;
    void *p = heft__realloc(a, *array, *capacity * element_nbytes, nbytes);
    if (!p) return false;
    *array = p;
    *capacity = wanted;
    return true;
}

char *heft__strdup_len(const heft_allocator *a, const char *text, size_t len) {
    char *p = heft__alloc(a, (uint64_t)len + 1);
    if (!p) return NULL;
    memcpy(p, text, len);
    p[len] = 0;
    return p;
}

struct heft__arena_chunk {
    heft__arena_chunk *next;
    uint64_t nbytes;
    /* blocks follow, the first at a multiple of 16 */
};
enum { ARENA_HEAD = 16, ARENA_FIRST = 4096, ARENA_MOST = 1 << 20 };
_Static_assert(sizeof(heft__arena_chunk) <= ARENA_HEAD, "the chunk header must fit before the first block");

void heft__arena_init(heft__arena *arena, const heft_allocator *alloc) {
    memset(arena, 0, sizeof *arena);
    arena->alloc = *alloc;
}

void *heft__arena_alloc(heft__arena *arena, uint64_t nbytes, size_t align) {
    uintptr_t at = ((uintptr_t)arena->at + align - 1) & ~(uintptr_t)(align - 1);
    if (arena->at && at <= (uintptr_t)arena->end && nbytes <= (uintptr_t)arena->end - at) {
        void *p = arena->at + (at - (uintptr_t)arena->at);
        arena->at = (uint8_t *)p + nbytes;
        return p;
    }
    uint64_t size = arena->chunks ? arena->chunks->nbytes * 2 : ARENA_FIRST, wanted;
    if (size > ARENA_MOST) size = arena->nbytes < HEFT__HUGE_MIN ? ARENA_MOST : HEFT__HUGE_MIN;
    if (!heft__add_u64(nbytes, ARENA_HEAD, &wanted)) return NULL;
    /* A large block gets a chunk of its own and the present one stays in use: at most a quarter of a chunk is lost. */
    bool own = wanted > size / 4;
    heft__arena_chunk *chunk = heft__alloc(&arena->alloc, own ? wanted : size);
    if (!chunk) return NULL;
    chunk->nbytes = own ? wanted : size;
    arena->nbytes += chunk->nbytes;
    uint8_t *first = (uint8_t *)chunk + ARENA_HEAD;
    if (own && arena->chunks) {
        chunk->next = arena->chunks->next;
        arena->chunks->next = chunk;
        return first;
    }
    chunk->next = arena->chunks;
    arena->chunks = chunk;
    arena->at = first + nbytes;
    arena->end = (uint8_t *)chunk + chunk->nbytes;
    return first;
}

char *heft__arena_text(heft__arena *arena, const char *text, size_t len) {
    char *p = heft__arena_alloc(arena, (uint64_t)len + 1, 1);
    if (!p) return NULL;
    memcpy(p, text, len);
    p[len] = 0;
    return p;
}

uint64_t heft__arena_nbytes(const heft__arena *arena) {
    return arena->nbytes;
}

void heft__arena_free(heft__arena *arena) {
    for (heft__arena_chunk *chunk = arena->chunks, *next; chunk; chunk = next) {
        next = chunk->next;
        heft__free(&arena->alloc, chunk, chunk->nbytes);
    }
    arena->chunks = NULL;
    arena->at = arena->end = NULL;
    arena->nbytes = 0;
}
