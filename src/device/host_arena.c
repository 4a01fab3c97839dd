/* device: arenas of the host: one piece of memory for many tensors, of huge pages where it is large. */
#include "device/device.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/os.h"

heft_status heft__host_arena_new(const heft_allocator *alloc, heft_huge huge, heft_arena **out, heft_error *err) {
    *out = NULL;
    heft_arena *arena = heft__alloc_zero(alloc, sizeof *arena);
    if (!arena) return heft__fail_memory(err, sizeof *arena);
    arena->alloc = *alloc;
    arena->huge = huge;
    atomic_init(&arena->refs, 1);
    atomic_init(&arena->in_use, false);
    *out = arena;
    return HEFT_OK;
}

heft_arena *heft__host_arena_ref(heft_arena *arena) {
    atomic_fetch_add_explicit(&arena->refs, 1, memory_order_relaxed);
    return arena;
}

static void arena_drop(heft_arena *arena) {
    if (arena->pages) heft__os_pages_free(arena->base, (size_t)arena->base_nbytes);
    else heft__free(&arena->alloc, arena->base, arena->base_nbytes);
    arena->data = arena->base = NULL;
    arena->nbytes = arena->base_nbytes = 0;
    arena->pages = false;
}

void heft__host_arena_unref(heft_arena *arena) {
    if (!arena || atomic_fetch_sub_explicit(&arena->refs, 1, memory_order_acq_rel) != 1) return;
    arena_drop(arena);
    heft_allocator alloc = arena->alloc;
    heft__free(&alloc, arena, sizeof *arena);
}

static heft_status arena_map(heft_arena *arena, uint64_t nbytes, heft_error *err) {
    size_t n;
    if (!heft__to_size(nbytes, &n) || !heft__align_u64(nbytes, heft__os_page_size(), &arena->nbytes))
        return heft__fail_memory(err, nbytes);
    arena->base = arena->huge == HEFT_HUGE_NEVER ? heft__os_pages_small(n) : heft__os_pages(n);
    if (!arena->base) {
        arena->nbytes = 0;
        return heft__fail_memory(err, nbytes);
    }
    arena->base_nbytes = nbytes;
    arena->pages = true;
    arena->data = arena->base;
    if (arena->huge != HEFT_HUGE_REQUIRE || nbytes < HEFT__ARENA_PAGES) return HEFT_OK;
    *(volatile uint8_t *)arena->data = 0; /* the system decides at the first touch */
    uint64_t huge = heft__os_huge_nbytes(arena->data, HEFT__OS_HUGE_PAGE);
    if (huge != 0 && huge != HEFT_NONE) return HEFT_OK;
    arena_drop(arena);
    return heft__fail(err, HEFT_LIMIT, HEFT_FAULT_CALLER_LIMIT,
                      "huge pages are required, but the system grants none (see /sys/kernel/mm/transparent_hugepage)");
}

static heft_status arena_block(heft_arena *arena, uint64_t nbytes, heft_error *err) {
    uint64_t padded;
    if (!heft__add_u64(nbytes, HEFT__HOST_ALIGN, &padded)) return heft__fail_memory(err, nbytes);
    arena->base = heft__alloc(&arena->alloc, padded);
    if (!arena->base) return heft__fail_memory(err, padded);
    arena->base_nbytes = padded;
    uintptr_t misfit = (uintptr_t)arena->base % HEFT__HOST_ALIGN;
    arena->data = (uint8_t *)arena->base + (misfit ? HEFT__HOST_ALIGN - misfit : 0);
    arena->nbytes = nbytes;
    return HEFT_OK;
}

heft_status heft__host_arena_take(heft_arena *arena, uint64_t nbytes, uint64_t align, heft_error *err) {
    if (atomic_exchange(&arena->in_use, true))
        return heft__fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL,
                          "the arena is in use: weights of an earlier load lie in it, or another load runs");
    bool pages = nbytes >= HEFT__ARENA_PAGES || align > HEFT__HOST_ALIGN;
    heft_status status = HEFT_OK;
    if (!arena->data || arena->nbytes < nbytes || (pages && !arena->pages)) {
        arena_drop(arena); /* first, so that old and new are never there at a time */
        status = pages ? arena_map(arena, nbytes, err) : arena_block(arena, nbytes, err);
    }
    if (status != HEFT_OK) atomic_store(&arena->in_use, false);
    else if (arena->pages)
        heft__os_pages_inherit(arena->base, (size_t)arena->base_nbytes, false);
    return status;
}

void heft__host_arena_settle(heft_arena *arena) {
    if (arena->pages) heft__os_pages_inherit(arena->base, (size_t)arena->base_nbytes, true);
}

void heft__host_arena_give_back(heft_arena *arena) {
    atomic_store(&arena->in_use, false);
}

static void arena_release(heft_buffer *buffer) {
    heft__host_arena_give_back(buffer->owner);
    heft__host_arena_unref(buffer->owner);
}

void heft__host_arena_buffer(heft_arena *arena, uint64_t nbytes, heft_buffer *out) {
    *out = (heft_buffer){.data = arena->data,
                         .nbytes = nbytes,
                         .release = arena_release,
                         .owner = heft__host_arena_ref(arena)};
}

uint64_t heft__host_arena_huge_wanted(const heft_arena *arena) {
    if (!arena->pages || arena->huge == HEFT_HUGE_NEVER) return 0;
    return arena->nbytes / HEFT__OS_HUGE_PAGE * HEFT__OS_HUGE_PAGE;
}

uint64_t heft__host_arena_huge_nbytes(const heft_arena *arena) {
    return arena->pages ? heft__os_huge_nbytes(arena->base, (size_t)arena->nbytes) : 0;
}
