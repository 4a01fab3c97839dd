/* zip: the decoded bytes of compressed members, laid out behind the bytes of the file as one source. */
#include "zip/zip.h"

#include "base/parallel.h"
#include "digest/digest.h"

#include <errno.h>
#include <string.h>

/* Decoded members that nobody reads just now are kept up to so many bytes: reads come in blocks, in file order. */
#define UNPACK_KEEP (UINT64_C(256) << 20)
#define UNPACK_NONE UINT64_MAX

typedef struct unpack_slot {
    uint8_t *data;  /* of the whole member; NULL: not decoded */
    uint64_t next;  /* in the queue of decoded members, oldest first */
    uint32_t users; /* that copy from it now */
    bool busy;      /* somebody is decoding it */
} unpack_slot;

typedef struct unpack_state {
    heft_allocator alloc;
    heft_source *file;
    heft__monitor *monitor; /* over the slots, the queue and `held` */
    heft__packed *packed;
    unpack_slot *slots;
    uint64_t n, held, oldest, newest;
} unpack_state;

/* Lets go of decoded members, the oldest first, until `wanted` more bytes fit. One that is in use goes to the end. */
static void unpack_evict(unpack_state *s, uint64_t wanted) {
    for (uint64_t i = 0; i < s->n && s->oldest != UNPACK_NONE && s->held + wanted > UNPACK_KEEP; i++) {
        uint64_t number = s->oldest;
        unpack_slot *slot = &s->slots[number];
        s->oldest = slot->next;
        if (s->oldest == UNPACK_NONE) s->newest = UNPACK_NONE;
        slot->next = UNPACK_NONE;
        if (slot->users == 0) {
            heft__free(&s->alloc, slot->data, s->packed[number].decoded_nbytes);
            s->held -= s->packed[number].decoded_nbytes;
            slot->data = NULL;
            continue;
        }
        if (s->newest == UNPACK_NONE) {
            s->oldest = s->newest = number;
            return; /* the only one */
        }
        s->slots[s->newest].next = number;
        s->newest = number;
    }
}

/* Decodes a member into *out: 0 or -errno. */
static int unpack_decode(const unpack_state *s, const heft__packed *packed, uint8_t **out) {
    uint8_t *in = heft__alloc(&s->alloc, packed->packed_nbytes);
    *out = heft__alloc(&s->alloc, packed->decoded_nbytes);
    int code = in && *out ? 0 : -ENOMEM;
    heft_error err;
    if (!code && heft_source_read(s->file, packed->data, packed->packed_nbytes, in, &err))
        code = err.sys_errno ? -err.sys_errno : -EIO;
    if (!code && (!heft__inflate(in, (size_t)packed->packed_nbytes, *out, (size_t)packed->decoded_nbytes) ||
                  heft__crc32(0, *out, (size_t)packed->decoded_nbytes) != packed->crc32))
        code = -EBADMSG;
    heft__free(&s->alloc, in, packed->packed_nbytes);
    if (code) {
        heft__free(&s->alloc, *out, packed->decoded_nbytes);
        *out = NULL;
    }
    return code;
}

/* Makes sure that a member is decoded and stays so until its users go down again. Whoever comes second waits. */
static int unpack_acquire(unpack_state *s, uint64_t number) {
    unpack_slot *slot = &s->slots[number];
    int code = 0;
    heft__monitor_enter(s->monitor);
    while (slot->busy) heft__monitor_wait(s->monitor);
    if (!slot->data) {
        uint8_t *data;
        slot->busy = true;
        unpack_evict(s, s->packed[number].decoded_nbytes);
        heft__monitor_leave(s->monitor);
        code = unpack_decode(s, &s->packed[number], &data);
        heft__monitor_enter(s->monitor);
        slot->busy = false;
        slot->data = data;
        if (data) {
            s->held += s->packed[number].decoded_nbytes;
            if (s->newest == UNPACK_NONE)
                s->oldest = number;
            else
                s->slots[s->newest].next = number;
            s->newest = number;
        }
        heft__monitor_wake(s->monitor);
    }
    if (slot->data) slot->users++;
    heft__monitor_leave(s->monitor);
    return code;
}

static void unpack_release(unpack_state *s, uint64_t number) {
    heft__monitor_enter(s->monitor);
    s->slots[number].users--;
    heft__monitor_leave(s->monitor);
}

/* The first range that ends after `offset`; n: none. */
static uint64_t unpack_find(const unpack_state *s, uint64_t offset) {
    uint64_t low = 0, high = s->n;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        if (s->packed[middle].offset + s->packed[middle].nbytes <= offset)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static int64_t unpack_read_at(heft_source *source, uint64_t offset, void *dst, size_t nbytes) {
    unpack_state *s = source->release_ctx;
    uint64_t size = heft_source_size(s->file), n = nbytes;
    if (offset < size) return heft__source_read_some(s->file, offset, dst, nbytes);
    uint64_t number = unpack_find(s, offset), start = number < s->n ? s->packed[number].offset : source->size;
    if (offset < start) { /* between two ranges there is nothing */
        if (n > start - offset) n = start - offset;
        memset(dst, 0, (size_t)n);
        return (int64_t)n;
    }
    const heft__packed *packed = &s->packed[number];
    int code = unpack_acquire(s, number);
    if (code) return code;
    if (n > packed->nbytes - (offset - start)) n = packed->nbytes - (offset - start);
    memcpy(dst, s->slots[number].data + packed->skip + (offset - start), (size_t)n);
    unpack_release(s, number);
    return (int64_t)n;
}

static heft_status unpack_verify(heft_source *source, heft_error *err) {
    unpack_state *s = source->release_ctx;
    return heft__source_verify(s->file, err);
}

static void unpack_free(unpack_state *s) {
    heft_allocator alloc = s->alloc;
    for (uint64_t i = 0; s->slots && s->packed && i < s->n; i++)
        heft__free(&alloc, s->slots[i].data, s->packed[i].decoded_nbytes);
    heft__free(&alloc, s->slots, s->n * sizeof *s->slots);
    heft__free(&alloc, s->packed, s->n * sizeof *s->packed);
    heft__monitor_free(s->monitor);
    heft_source_unref(s->file);
    heft__free(&alloc, s, sizeof *s);
}

static void unpack_close(heft_source *source) {
    unpack_free(source->release_ctx);
}

static const heft__source_ops unpack_ops = {unpack_read_at, NULL, NULL, unpack_verify, unpack_close};

heft_status heft__unpack_source(heft_source *file, const heft__packed *packed, uint64_t n, const heft_allocator *alloc,
                                heft_source **out, heft_error *err) {
    uint64_t size = n ? packed[n - 1].offset + packed[n - 1].nbytes : heft_source_size(file);
    unpack_state *s = heft__alloc_zero(alloc, sizeof *s);
    *out = NULL;
    if (!s) return heft__fail_memory(err, sizeof *s);
    s->alloc = *alloc;
    s->file = heft_source_ref(file);
    s->n = n;
    s->oldest = s->newest = UNPACK_NONE;
    s->packed = heft__alloc(alloc, n * sizeof *s->packed);
    s->slots = heft__alloc_zero(alloc, n * sizeof *s->slots);
    s->monitor = heft__monitor_new(alloc);
    uint32_t capabilities = file->capabilities & ~(HEFT_SOURCE_MAP | HEFT_SOURCE_FD);
    if (s->packed && s->slots && s->monitor) *out = heft__source_new(&unpack_ops, size, capabilities, file->label);
    if (!*out) {
        unpack_free(s);
        return heft__fail_memory(err, n * sizeof *packed);
    }
    memcpy(s->packed, packed, n * sizeof *packed);
    for (uint64_t i = 0; i < n; i++) s->slots[i].next = UNPACK_NONE;
    (*out)->release_ctx = s;
    return HEFT_OK;
}

heft_source *heft__unpack_file(heft_source *source) {
    return source->ops == &unpack_ops ? ((const unpack_state *)source->release_ctx)->file : source;
}
