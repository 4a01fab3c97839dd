/* source: read-only mappings that several holders keep alive. */
#include "source/source.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/os.h"
#include "base/text.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

/* What a mapping of nothing points at: aligned for every dtype. */
static const _Alignas(64) uint8_t mapping_of_nothing[64] = {0};

heft_status heft__mapping_new(heft_source *source, const uint8_t *data, uint64_t offset, uint64_t nbytes,
                              heft__mapping **out, heft_error *err) {
    heft__mapping *mapping = heft__alloc_zero(&source->alloc, sizeof *mapping);
    if (!mapping) return heft__fail_memory(err, sizeof *mapping);
    atomic_init(&mapping->refs, 1);
    mapping->source = heft_source_ref(source);
    mapping->data = data ? data : mapping_of_nothing;
    mapping->offset = offset;
    mapping->nbytes = nbytes;
    *out = mapping;
    return HEFT_OK;
}

void heft__mapping_ref(heft__mapping *mapping) {
    atomic_fetch_add_explicit(&mapping->refs, 1, memory_order_relaxed);
}

void heft__mapping_unref(heft__mapping *mapping) {
    if (!mapping || atomic_fetch_sub_explicit(&mapping->refs, 1, memory_order_acq_rel) != 1) return;
    if (mapping->base) munmap(mapping->base, mapping->base_nbytes);
    heft_source *source = mapping->source;
    heft_allocator alloc = source->alloc;
    heft__free(&alloc, mapping, sizeof *mapping);
    heft_source_unref(source);
}

static heft_status map_fail(heft_error *err, const heft_source *source, uint64_t offset, uint64_t nbytes, int code) {
    heft_status status = heft__fail_errno(err, code, source->label, "mapping");
    if (code == ENODEV || code == EOPNOTSUPP) { /* some user-space and network file systems cannot */
        char name[300];
        heft__escape(name, sizeof name, source->label, strlen(source->label));
        status = heft__fail(err, HEFT_UNSUPPORTED, HEFT_FAULT_CALL,
                            "%s: its file system cannot map files (%s); read it instead", name, heft__errno_name(code));
        heft__error_file(err, source->label);
        if (err) err->sys_errno = code;
    }
    heft__error_at(err, offset, nbytes, HEFT_NONE);
    return status;
}

heft_status heft__map_file(heft_source *source, uint64_t offset, uint64_t nbytes, heft__mapping **out,
                           heft_error *err) {
    /* Extents were checked against the size at open: only if that still holds, no page lies past the end. */
    heft_status status = heft__source_verify(source, err);
    if (status != HEFT_OK) return status;
    heft__mapping *mapping = NULL;
    status = heft__mapping_new(source, NULL, offset, nbytes, &mapping, err);
    if (status != HEFT_OK) return status;
    if (nbytes) {
        uint64_t lead = offset % heft__os_page_size();
        size_t length;
        if (!heft__to_size(lead + nbytes, &length)) {
            heft__mapping_unref(mapping);
            return heft__fail(err, HEFT_LIMIT, HEFT_FAULT_CALLER_LIMIT,
                              "%llu bytes do not fit the address space of this program", (unsigned long long)nbytes);
        }
        uint8_t *base = heft__source_sys_get()->map(length, source->fd, offset - lead);
        if (!base) {
            int code = errno;
            heft__mapping_unref(mapping);
            return map_fail(err, source, offset, nbytes, code);
        }
        mapping->base = base;
        mapping->base_nbytes = length;
        mapping->data = base + lead;
    }
    *out = mapping;
    return HEFT_OK;
}

int heft__mapping_touch(heft__mapping *mapping, uint64_t offset, uint64_t nbytes, bool hint, uint64_t *got) {
    const heft__source_sys *sys = heft__source_sys_get();
    *got = 0;
    if (offset < mapping->offset || offset - mapping->offset > mapping->nbytes ||
        nbytes > mapping->nbytes - (offset - mapping->offset))
        return ERANGE;
    if (!mapping->base || !nbytes) return 0; /* memory of the caller */
    size_t first = (size_t)(mapping->data - (const uint8_t *)mapping->base) + (size_t)(offset - mapping->offset);
    size_t lead = first % heft__os_page_size();
    uint8_t *at = (uint8_t *)mapping->base + (first - lead);
    if (hint) {
        (void)sys->advise_map(at, lead + (size_t)nbytes, HEFT__ADVICE_WANTED);
        return 0;
    }
    int result;
    do result = sys->populate(at, lead + (size_t)nbytes);
    while (result != 0 && errno == EINTR);
    if (result == 0) return 0;
    if (errno != EFAULT) return errno;
    /* A page that cannot be read: beyond the end of the file, or for another reason. */
    heft__file_status now;
    do result = sys->stat(mapping->source->fd, &now);
    while (result != 0 && errno == EINTR);
    if (result != 0 || now.identity.size >= offset + nbytes) return EIO;
    *got = now.identity.size > offset ? now.identity.size - offset : 0;
    return EFAULT;
}

void heft__mapping_advise(heft__mapping *mapping, heft__advice advice) {
    int saved = errno;
    if (mapping->base) (void)heft__source_sys_get()->advise_map(mapping->base, mapping->base_nbytes, advice);
    errno = saved;
}
