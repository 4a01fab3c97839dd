/* device: memory of the host. */
#include "device/device.h"

#include "base/checked.h"
#include "base/error.h"

#include <string.h>

typedef struct host_owner {
    heft_allocator alloc;
    void *base;
    uint64_t nbytes;
} host_owner;

static void host_release(heft_buffer *buffer) {
    host_owner *owner = buffer->owner;
    heft_allocator alloc = owner->alloc;
    heft__free(&alloc, owner->base, owner->nbytes);
    heft__free(&alloc, owner, sizeof *owner);
}

heft_status heft__host_buffer(const heft_allocator *alloc, uint64_t nbytes, heft_buffer *out, heft_error *err) {
    uint64_t padded; /* any allocator will do: the start is rounded up here */
    if (!heft__add_u64(nbytes, HEFT__HOST_ALIGN, &padded)) return heft__fail_memory(err, nbytes);
    host_owner *owner = heft__alloc(alloc, sizeof *owner);
    if (!owner) return heft__fail_memory(err, sizeof *owner);
    owner->alloc = *alloc;
    owner->nbytes = padded;
    owner->base = heft__alloc(alloc, padded);
    if (!owner->base) {
        heft__free(alloc, owner, sizeof *owner);
        return heft__fail_memory(err, nbytes);
    }
    uintptr_t misfit = (uintptr_t)owner->base % HEFT__HOST_ALIGN;
    *out = (heft_buffer){.data = (uint8_t *)owner->base + (misfit ? HEFT__HOST_ALIGN - misfit : 0),
                         .nbytes = nbytes,
                         .release = host_release,
                         .owner = owner};
    return HEFT_OK;
}

/* ---- the host as a device ---- */

static heft_status host_alloc(const heft__device *device, uint64_t nbytes, heft__device_memory *out, heft_error *err) {
    heft_arena *arena;
    *out = (heft__device_memory){0};
    heft_status status = heft__host_arena_new(&device->host_alloc, HEFT_HUGE_AUTO, &arena, err);
    if (status != HEFT_OK) return status;
    status = heft__host_arena_take(arena, nbytes, device->align, err);
    if (status == HEFT_OK) *out = (heft__device_memory){.host = arena->data, .handle = arena, .nbytes = nbytes};
    else heft__host_arena_unref(arena);
    return status;
}

static void host_free(const heft__device *device, heft__device_memory *memory) {
    (void)device;
    heft__host_arena_unref(memory->handle);
    *memory = (heft__device_memory){0};
}

static heft_status host_copy(const heft__device *device, const heft__device_memory *to, uint64_t offset, const void *from,
                             uint64_t nbytes, uint64_t *ticket, heft_error *err) {
    (void)device;
    *ticket = 0;
    if (offset > to->nbytes || nbytes > to->nbytes - offset)
        return heft__fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL, "a copy goes beyond the memory of the device");
    memcpy(to->host + offset, from, (size_t)nbytes);
    return HEFT_OK;
}

static heft_status host_wait(const heft__device *device, uint64_t ticket, heft_error *err) {
    (void)device, (void)ticket, (void)err;
    return HEFT_OK;
}

heft__device heft__device_host(const heft_allocator *alloc) {
    return (heft__device){.name = "host",
                          .align = HEFT__HOST_ALIGN,
                          .host_alloc = *alloc,
                          .alloc = host_alloc,
                          .free = host_free,
                          .copy = host_copy,
                          .wait = host_wait};
}
