/* source: memory of the caller, borrowed until the last reference goes. */
#include "source/source.h"

#include "base/checked.h"
#include "base/error.h"

#include <string.h>

static int64_t memory_read_at(heft_source *source, uint64_t offset, void *dst, size_t nbytes) {
    memcpy(dst, source->memory + offset, nbytes);
    return (int64_t)nbytes;
}

static heft_status memory_map(heft_source *source, uint64_t offset, uint64_t nbytes, heft__mapping **out,
                              heft_error *err) {
    return heft__mapping_new(source, nbytes ? source->memory + offset : NULL, offset, nbytes, out, err);
}

static void memory_close(heft_source *source) {
    if (source->release) source->release(source->release_ctx);
}

static const heft__source_ops memory_ops = {memory_read_at, NULL, memory_map, NULL, memory_close};

heft_status heft_source_open_memory(const void *data, uint64_t nbytes, const char *label,
                                    void (*release)(void *release_ctx), void *release_ctx, heft_source **out,
                                    heft_error *err) {
    heft_status status = HEFT_OK;
    heft_source *source = NULL;
    size_t in_memory;
    if (out) *out = NULL;
    if (!out) status = heft__fail_null(err, "out");
    else if (!data && nbytes) status = heft__fail_null(err, "data");
    else if (!heft__to_size(nbytes, &in_memory))
        status = heft__fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL, "more bytes than memory has addresses");
    else if (!(source = heft__source_new(&memory_ops, nbytes, HEFT_SOURCE_MAP | HEFT_SOURCE_STABLE,
                                         label ? label : "memory")))
        status = heft__fail_memory(err, sizeof *source);
    if (status != HEFT_OK) {
        if (release) release(release_ctx);
        return status;
    }
    source->memory = data;
    source->release = release;
    source->release_ctx = release_ctx;
    *out = source;
    return HEFT_OK;
}
