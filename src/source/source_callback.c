/* source: a program's own bytes, by its callbacks. */
#include "source/source.h"

#include "base/error.h"
#include "base/options.h"

#include <errno.h>
#include <string.h>

static int64_t callback_read_at(heft_source *source, uint64_t offset, void *dst, size_t nbytes) {
    int64_t got = source->callbacks.read_at(source->callbacks.ctx, offset, dst, nbytes);
    if (got > (int64_t)nbytes) return -EOVERFLOW;
    if (got < -INT32_MAX) return -EIO;
    return got;
}

static void callback_close(heft_source *source) {
    if (source->callbacks.release) source->callbacks.release(source->callbacks.ctx);
}

static const heft__source_ops callback_ops = {callback_read_at, NULL, NULL, NULL, callback_close};

static heft_status callback_check(const heft_source_callbacks *callbacks, heft_error *err) {
    if (!callbacks->read_at) return heft__fail_null(err, "heft_source_callbacks: read_at");
    if (callbacks->capabilities & ~(HEFT_SOURCE_REMOTE | HEFT_SOURCE_STABLE))
        return heft__fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL,
                          "heft_source_callbacks: capabilities 0x%x; only REMOTE and STABLE can be claimed",
                          (unsigned)callbacks->capabilities);
    if (callbacks->reserved)
        return heft__fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL, "heft_source_callbacks: reserved is not 0");
    return HEFT_OK;
}

heft_status heft_source_open_callbacks(const heft_source_callbacks *callbacks, const char *label, heft_source **out,
                                       heft_error *err) {
    if (out) *out = NULL;
    if (!callbacks) return heft__fail_null(err, "callbacks");
    heft_source_callbacks copy;
    heft_source *source = NULL;
    heft_status status = heft__options_copy(&copy, sizeof copy, callbacks, "heft_source_callbacks", err);
    if (status == HEFT_OK) status = callback_check(&copy, err);
    else if (callbacks->struct_size > sizeof copy) memcpy(&copy, callbacks, sizeof copy); /* still to be released */
    if (status == HEFT_OK && !out) status = heft__fail_null(err, "out");
    if (status == HEFT_OK &&
        !(source = heft__source_new(&callback_ops, copy.size, copy.capabilities, label ? label : "callback")))
        status = heft__fail_memory(err, sizeof *source);
    if (status != HEFT_OK) {
        if (copy.release) copy.release(copy.ctx);
        return status;
    }
    source->callbacks = copy;
    *out = source;
    return HEFT_OK;
}
