/* ops: the memory that a load lands in: an arena of the caller's, or one of its own. */
#include "ops/load.h"

#include "base/error.h"
#include "device/device.h"

heft_status heft__load_memory_take(const heft_load_plan *load, uint64_t nbytes, uint64_t align, heft_arena **arena,
                                   heft_buffer *out, heft_error *err) {
    heft_status status = HEFT_OK;
    heft_arena *a = load->options.arena;
    *arena = NULL;
    if (a)
        heft__host_arena_ref(a);
    else
        status = heft__host_arena_new(&load->alloc, load->options.huge, &a, err);
    if (status == HEFT_OK) status = heft__host_arena_take(a, nbytes, align, err);
    if (status == HEFT_OK) {
        heft__host_arena_buffer(a, nbytes, out);
        *arena = a;
    }
    heft__host_arena_unref(a); /* the buffer holds it */
    return status;
}

heft_status heft_arena_new(heft_huge huge, const heft_allocator *allocator, heft_arena **out, heft_error *err) {
    heft_allocator alloc;
    if (!out) return heft__fail_null(err, "out");
    *out = NULL;
    if (huge > HEFT_HUGE_REQUIRE)
        return heft__fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL, "huge is no known number");
    if (!heft__allocator_from(allocator, &alloc))
        return heft__fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL, "the allocator lacks a function");
    return heft__host_arena_new(&alloc, huge, out, err);
}

void heft_arena_unref(heft_arena *arena) {
    heft__host_arena_unref(arena);
}

uint64_t heft_arena_nbytes(const heft_arena *arena) {
    return arena->nbytes;
}

uint64_t heft_arena_huge_nbytes(const heft_arena *arena) {
    return heft__host_arena_huge_nbytes(arena);
}
