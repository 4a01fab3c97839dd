/* device: memory of the host. */
#include "device/device.h"

#include "base/checked.h"
#include "base/error.h"

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
