/* source: references, windows, and the read loop that every kind of source shares. */
#include "source/source.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/text.h"

#include <errno.h>
#include <string.h>

/* Vectors of one call (IOV_MAX of Linux and macOS). */
enum { SOURCE_MOST_VECTORS = 1024 };

heft_status heft__fail_null(heft_error *err, const char *what) {
    return heft__fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL, "%s is NULL", what);
}

heft_source *heft__source_new(const heft__source_ops *ops, uint64_t size, uint32_t capabilities, const char *label) {
    const heft_allocator *alloc = heft__source_sys_get()->alloc;
    heft_source *source = heft__alloc_zero(alloc, sizeof *source);
    if (!source) return NULL;
    source->alloc = *alloc;
    atomic_init(&source->refs, 1);
    source->ops = ops;
    source->size = size;
    source->capabilities = capabilities;
    source->fd = -1;
    if (label && !(source->label = heft__strdup_len(alloc, label, strlen(label)))) {
        heft__free(alloc, source, sizeof *source);
        return NULL;
    }
    return source;
}

heft_source *heft_source_ref(heft_source *source) {
    if (source) atomic_fetch_add_explicit(&source->refs, 1, memory_order_relaxed);
    return source;
}

void heft_source_unref(heft_source *source) {
    if (!source || atomic_fetch_sub_explicit(&source->refs, 1, memory_order_acq_rel) != 1) return;
    if (source->parent) heft_source_unref(source->parent); /* one level only: a parent is never a window */
    else {
        if (source->ops->close) source->ops->close(source);
        heft__free(&source->alloc, source->label, (uint64_t)strlen(source->label) + 1);
    }
    heft_allocator alloc = source->alloc;
    heft__free(&alloc, source, sizeof *source);
}

uint64_t heft_source_size(const heft_source *source) {
    return source->size;
}

uint32_t heft_source_capabilities(const heft_source *source) {
    return source->capabilities;
}

const char *heft_source_label(const heft_source *source) {
    return source->label;
}

static bool source_holds(const heft_source *source, uint64_t offset, uint64_t nbytes) {
    return offset <= source->size && nbytes <= source->size - offset;
}

static heft_status source_fail_range(heft_error *err, const heft_source *source, uint64_t offset, uint64_t nbytes) {
    char name[300];
    heft__escape(name, sizeof name, source->label, strlen(source->label));
    heft__fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL,
               "%s: %llu bytes at offset %llu are asked for, but the source has %llu bytes", name,
               (unsigned long long)nbytes, (unsigned long long)offset, (unsigned long long)source->size);
    heft__error_file(err, source->label);
    heft__error_at(err, offset, source->size, HEFT_NONE);
    return HEFT_INVALID_ARGUMENT;
}

heft_status heft_source_window(heft_source *parent, uint64_t offset, uint64_t nbytes, heft_source **out,
                               heft_error *err) {
    if (!out) return heft__fail_null(err, "out");
    *out = NULL;
    if (!parent) return heft__fail_null(err, "parent");
    if (!source_holds(parent, offset, nbytes)) return source_fail_range(err, parent, offset, nbytes);
    heft_source *base = heft__source_base(parent);
    heft_source *window = heft__source_new(base->ops, nbytes, base->capabilities, NULL);
    if (!window) return heft__fail_memory(err, sizeof *window);
    window->label = base->label;
    window->fd = base->fd;
    window->identity = base->identity;
    window->window_offset = parent->window_offset + offset; /* cannot wrap: it lies inside of the base */
    window->parent = heft_source_ref(base);
    *out = window;
    return HEFT_OK;
}

int64_t heft__source_read_some(heft_source *source, uint64_t offset, void *dst, size_t nbytes) {
    if (offset >= source->size || nbytes == 0) return 0;
    if (nbytes > source->size - offset) nbytes = (size_t)(source->size - offset);
    if (nbytes > HEFT__READ_MAX) nbytes = (size_t)HEFT__READ_MAX;
    heft_source *base = heft__source_base(source);
    return base->ops->read_at(base, source->window_offset + offset, dst, nbytes);
}

static int64_t source_read_vectors_singly(heft_source *source, uint64_t offset, const heft__vec *vec, size_t nvec) {
    uint64_t done = 0;
    for (size_t i = 0; i < nvec; i++) {
        if (vec[i].nbytes == 0) continue;
        int64_t got = heft__source_read_some(source, offset + done, vec[i].base, vec[i].nbytes);
        if (got < 0) return done ? (int64_t)done : got; /* the error comes back with the next call */
        done += (uint64_t)got;
        if ((uint64_t)got < vec[i].nbytes) break;
    }
    return (int64_t)done;
}

int64_t heft__source_read_vec(heft_source *source, uint64_t offset, const heft__vec *vec, size_t nvec) {
    if (offset >= source->size) return 0;
    if (nvec > SOURCE_MOST_VECTORS) nvec = SOURCE_MOST_VECTORS;
    uint64_t most = source->size - offset, total = 0;
    if (most > HEFT__READ_MAX) most = HEFT__READ_MAX;
    size_t n = 0;
    while (n < nvec && vec[n].nbytes <= most - total) total += vec[n++].nbytes;
    heft_source *base = heft__source_base(source);
    /* A vector that reaches over the end or the limit is left for the next call, unless it is the first that wants bytes. */
    if (total == 0 || !base->ops->read_vec) return source_read_vectors_singly(source, offset, vec, total ? n : nvec);
    return base->ops->read_vec(base, source->window_offset + offset, vec, n);
}

heft_status heft__fail_truncated(heft_error *err, const heft_source *source, uint64_t offset, uint64_t wanted,
                                 uint64_t got) {
    char name[300];
    heft__escape(name, sizeof name, source->label, strlen(source->label));
    offset += source->window_offset;
    heft__fail(err, HEFT_IO, HEFT_FAULT_TRUNCATED,
               "%s: truncated: %llu bytes were wanted at offset %llu, but the data ended after %llu of them", name,
               (unsigned long long)wanted, (unsigned long long)offset, (unsigned long long)got);
    heft__error_file(err, source->label);
    heft__error_at(err, offset, wanted, got);
    return HEFT_IO;
}

heft_status heft__source_read_all(heft_source *source, uint64_t offset, uint64_t nbytes, void *dst,
                                  heft__read_counters *counters, heft_error *err) {
    heft__read_counters none = {0, 0, 0, 0};
    if (!counters) counters = &none;
    if (!source_holds(source, offset, nbytes)) return source_fail_range(err, source, offset, nbytes);
    uint64_t done = 0;
    while (done < nbytes) {
        uint64_t left = nbytes - done;
        size_t wanted = (size_t)(left < HEFT__READ_MAX ? left : HEFT__READ_MAX);
        int64_t got = heft__source_read_some(source, offset + done, (uint8_t *)dst + done, wanted);
        counters->requests++;
        if (got == -EINTR) {
            counters->retries++;
            continue;
        }
        if (got < 0) {
            heft_status status = heft__fail_errno(err, (int)-got, source->label, "reading");
            heft__error_at(err, source->window_offset + offset + done, left, HEFT_NONE);
            return status;
        }
        if (got == 0) return heft__fail_truncated(err, source, offset, nbytes, done);
        if ((uint64_t)got < wanted) counters->short_reads++;
        counters->nbytes += (uint64_t)got;
        done += (uint64_t)got;
    }
    return HEFT_OK;
}

heft_status heft_source_read(heft_source *source, uint64_t offset, uint64_t nbytes, void *dst, heft_error *err) {
    if (!source) return heft__fail_null(err, "source");
    if (!dst && nbytes) return heft__fail_null(err, "dst");
    return heft__source_read_all(source, offset, nbytes, dst, NULL, err);
}

heft_status heft__source_verify(heft_source *source, heft_error *err) {
    heft_source *base = heft__source_base(source);
    return base->ops->verify ? base->ops->verify(base, err) : HEFT_OK;
}

heft_status heft__source_map(heft_source *source, uint64_t offset, uint64_t nbytes, heft__mapping **out,
                             heft_error *err) {
    *out = NULL;
    heft_source *base = heft__source_base(source);
    if (!source_holds(source, offset, nbytes)) return source_fail_range(err, source, offset, nbytes);
    if (!base->ops->map) {
        char name[300];
        heft__escape(name, sizeof name, source->label, strlen(source->label));
        heft__fail(err, HEFT_UNSUPPORTED, HEFT_FAULT_CALL, "%s: this source cannot be mapped; read it instead", name);
        heft__error_file(err, source->label);
        return HEFT_UNSUPPORTED;
    }
    return base->ops->map(base, source->window_offset + offset, nbytes, out, err);
}
