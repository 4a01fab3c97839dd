/* Archives of made-up tensors. */
#include "helper_archive.h"

void made_archive_init(made_archive *made, heft_source *source, const made_tensor *tensors, uint64_t n) {
    memset(made, 0, sizeof *made);
    made->listings[0] = &made->listing;
    made->archive.alloc = heft__default_allocator;
    made->archive.files = made->listings;
    made->archive.nfiles = 1;
    made->archive.ntensors = n;
    made->archive.mappings = &made->mapping;
    made->listing.source = source;
    made->listing.entries = made->entries;
    made->listing.nentries = n;
    for (uint64_t i = 0; i < n; i++) {
        heft__entry *e = &made->entries[i];
        snprintf(made->names[i], sizeof made->names[i], "t%u", (unsigned)i);
        memcpy(made->shapes[i], tensors[i].shape, sizeof made->shapes[i]);
        *e = (heft__entry){.name = made->names[i],
                           .shape = made->shapes[i],
                           .begin = tensors[i].begin,
                           .end = tensors[i].end,
                           .name_len = (uint32_t)strlen(made->names[i]),
                           .rank = tensors[i].rank,
                           .dtype = (uint8_t)tensors[i].dtype};
    }
}

void made_archive_end(made_archive *made) {
    heft__mapping_unref(made->mapping);
    made->mapping = NULL;
}

heft_view made_view(const made_archive *made, uint64_t id) {
    const heft__entry *e = &made->entries[id];
    heft_view v = {.archive = &made->archive, .id = id, .dtype = e->dtype, .rank = e->rank};
    int64_t stride = 1;
    for (uint32_t d = e->rank; d-- > 0;) {
        v.shape[d] = (int64_t)e->shape[d];
        v.stride[d] = stride;
        stride *= v.shape[d];
    }
    return v;
}

void naive_gather(const heft_view *view, const uint8_t *source, uint8_t *dst) {
    uint32_t file, bits = heft_dtype_bits(view->dtype);
    const heft__entry *e = heft__archive_entry(view->archive, view->id, &file);
    const uint8_t *data = source + view->archive->files[file]->data_start + e->begin;
    int64_t index[HEFT_MAX_RANK] = {0};
    for (uint32_t d = 0; d < view->rank; d++)
        if (view->shape[d] == 0) return;
    for (uint64_t at = 0;; at += bits) {
        int64_t element = view->offset;
        for (uint32_t d = 0; d < view->rank; d++) element += index[d] * view->stride[d];
        if (at % 8 == 0) dst[at / 8] = 0;
        for (uint64_t b = 0; b < bits; b++) {
            uint64_t from = (uint64_t)element * bits + b, to = at + b;
            if (to % 8 == 0) dst[to / 8] = 0;
            dst[to / 8] |= (uint8_t)((data[from / 8] >> (from % 8) & 1) << (to % 8));
        }
        uint32_t d = view->rank;
        while (d-- > 0) {
            if (++index[d] < view->shape[d]) break;
            index[d] = 0;
        }
        if (d == UINT32_MAX) return;
    }
}

uint64_t test_random(uint64_t *state) {
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return *state * UINT64_C(2685821657736338717);
}

heft_view random_view(const made_archive *made, uint64_t id, uint64_t *state) {
    heft_view whole = made_view(made, id), v = whole;
    v.rank = 0;
    for (uint32_t d = 0; d < whole.rank; d++) {
        int64_t n = whole.shape[d], start = 0, count = n, step = 1;
        switch (test_random(state) % 6) {
        case 0: /* one of it, the dim goes */
            if (n == 0) break;
            v.offset += (int64_t)(test_random(state) % (uint64_t)n) * whole.stride[d];
            continue;
        case 1: /* a range */
        case 2: /* a range with steps */
        case 3:
            if (n == 0) break;
            start = (int64_t)(test_random(state) % (uint64_t)n);
            count = test_random(state) % 16 ? 1 + (int64_t)(test_random(state) % (uint64_t)(n - start)) : 0;
            break;
        default: break;
        }
        if (count > 1 && test_random(state) % 3 == 0) {
            step = 1 + (int64_t)(test_random(state) % 3);
            count = (count + step - 1) / step;
        }
        if (count > 0 && test_random(state) % 4 == 0) { /* backwards */
            start += (count - 1) * step;
            step = -step;
        }
        v.shape[v.rank] = count;
        v.stride[v.rank++] = step * whole.stride[d];
        v.offset += start * whole.stride[d];
        if (test_random(state) % 12 == 0) {
            v.shape[v.rank] = 1;
            v.stride[v.rank++] = (int64_t)(test_random(state) % 3) * 1000; /* says nothing */
        }
    }
    for (uint32_t d = v.rank; d > 1 && test_random(state) % 2; d--) { /* reordered */
        uint32_t e = (uint32_t)(test_random(state) % d);
        int64_t t = v.shape[d - 1];
        v.shape[d - 1] = v.shape[e];
        v.shape[e] = t;
        t = v.stride[d - 1];
        v.stride[d - 1] = v.stride[e];
        v.stride[e] = t;
    }
    return v;
}
