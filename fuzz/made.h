/* What the fuzzers of writers share: tensors in memory made from the bytes of the input, of every dtype, in every order of memory,
 * and what must be read when they have been written. */
#ifndef HEFT_FUZZ_MADE_H
#define HEFT_FUZZ_MADE_H

#include "heft/heft.h"

#include "base/utf8.h"
#include "format/format.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEMAND(what)                                                                                                   \
    do {                                                                                                               \
        if (!(what)) abort();                                                                                          \
    } while (0)

enum { MADE_MOST = 9, MADE_RANK = 5, MADE_NAME = 40, MADE_NBYTES = 1 << 15 };

/* The input, byte by byte; zeros after its end. */
typedef struct made_bytes {
    const uint8_t *data;
    size_t size;
} made_bytes;

static uint8_t made_take(made_bytes *in) {
    if (in->size == 0) return 0;
    in->size--;
    return *in->data++;
}

typedef struct made {
    char name[MADE_NAME];
    size_t name_len;
    uint32_t rank;
    int64_t shape[MADE_RANK], stride[MADE_RANK];
    bool strided;
    heft_dtype from, to; /* as it is in memory, as it is written */
    uint8_t *memory;     /* exactly what its strides reach */
    uint64_t memory_nbytes;
    int64_t first;       /* byte of element 0 in it */
    uint64_t nelems;
    uint8_t *packed;     /* as it must be read: row-major, dtype `to`, host byte order */
    uint64_t nbytes;
    bool refused;        /* no format takes it */
} made;

typedef struct made_all {
    made items[MADE_MOST];
    uint64_t n;
    bool saturate, allow_inexact;
    bool unfit; /* the cast of a value is refused, which only those ways of writing see that are given values */
} made_all;

/* Byte strides: 0 packed row-major, 1 first dim fastest, 2 backwards, 3 with gaps, 4 one row again and again, 5 turned and
 * backwards with gaps. What memory it takes. */
static uint64_t made_strides(made *m, uint32_t how) {
    int64_t size = heft_dtype_bits(m->from) / 8, step = size, low = 0, high = 0;
    for (uint32_t k = 0; k < m->rank; k++) {
        uint32_t d = how == 1 || how == 5 ? k : m->rank - 1 - k;
        bool back = how == 2 || (how == 5 && (d & 1));
        int64_t dim = m->shape[d];
        m->stride[d] = back ? -step : step;
        if (how == 4 && d == 0) m->stride[d] = 0;
        int64_t reach = (dim ? dim - 1 : 0) * m->stride[d];
        if (reach < 0) low += reach;
        else high += reach;
        step *= dim ? dim : 1;
        if (how == 3 || how == 5) step += size * (1 + (d & 1));
    }
    m->first = m->nelems ? -low : 0;
    return m->nelems ? (uint64_t)(high - low + size) : 0;
}

/* Element by element. */
static void made_pack(const made *m, uint8_t *out) {
    size_t size = heft_dtype_bits(m->from) / 8;
    for (uint64_t i = 0; i < m->nelems; i++) {
        uint64_t rest = i;
        int64_t at = m->first;
        for (uint32_t d = m->rank; d-- > 0; rest /= (uint64_t)m->shape[d])
            at += (int64_t)(rest % (uint64_t)m->shape[d]) * m->stride[d];
        memcpy(out + i * size, m->memory + at, size);
    }
}

static void made_shape(made *m, made_bytes *in, uint8_t how) {
    m->rank = how % (MADE_RANK + 1);
    m->nelems = 1;
    for (uint32_t d = 0; d < m->rank; d++) {
        uint8_t dim = made_take(in);
        m->shape[d] = dim & 128 && d == 0 ? 16 * (dim & 127) : dim % 9;
        m->nelems *= (uint64_t)m->shape[d];
    }
    if (m->nelems * 8 <= MADE_NBYTES) return;
    m->shape[0] = 0;
    m->nelems = 0;
}

static void made_name(made *m, made_bytes *in, uint64_t number) {
    static const char *const odd[] = {"__metadata__", "__heft_pad__.00000000", "../up", "/root", "a/b", "a\\b", "c:x", ".npy",
                                      "arr_0", "a.npy", "\xc3\xa4", "tied:x", "nul", "model.safetensors", "", " "};
    uint8_t how = made_take(in), len = how & 31;
    if (how & 128) { /* bytes as they come */
        for (uint8_t i = 0; i < len; i++) m->name[i] = (char)made_take(in);
        m->name_len = len;
    } else if (how & 64) {
        m->name_len = (size_t)snprintf(m->name, sizeof m->name, "%s", odd[how & 15]);
    } else m->name_len = (size_t)snprintf(m->name, sizeof m->name, "layers.%u.w%u", how & 15, (unsigned)number);
    bool reserved = (m->name_len == 12 && memcmp(m->name, "__metadata__", 12) == 0) ||
                    (m->name_len >= 13 && memcmp(m->name, "__heft_pad__.", 13) == 0);
    m->refused = reserved || heft__utf8_check(m->name, m->name_len) != m->name_len;
}

/* Any bits; of integers, on request, numbers that every dtype holds. */
static void made_fill(made *m, uint64_t nbytes, uint64_t seed, bool small) {
    uint64_t size = heft_dtype_bits(m->from) / 8, least = heft_features() & HEFT_FEATURE_BIG_ENDIAN && size ? size - 1 : 0;
    for (uint64_t i = 0; i < nbytes; i++) {
        seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        m->memory[i] = (uint8_t)(seed >> 56);
        if (small && size && heft_dtype_kind(m->from) != 'f') m->memory[i] = i % size == least ? (uint8_t)(seed >> 60) : 0;
    }
}

static void made_item(made *m, made_bytes *in, uint64_t number, made_all *all) {
    memset(m, 0, sizeof *m);
    uint8_t dtype = made_take(in), how = made_take(in), as = made_take(in);
    m->from = m->to = 1u + dtype % (HEFT_DTYPE_COUNT - 1u);
    made_name(m, in, number);
    made_shape(m, in, how & 15);
    uint32_t bits = heft_dtype_bits(m->from), order = how >> 4 & 7;
    if (m->nelems * bits % 8) m->refused = true;
    uint64_t plain = (m->nelems * bits + 7) / 8, nbytes = plain;
    m->strided = bits >= 8 && order < 6;
    if (m->strided) nbytes = made_strides(m, order);
    m->memory_nbytes = nbytes;
    m->memory = malloc(nbytes ? nbytes : 1);
    m->packed = malloc(8 * m->nelems + 8);
    DEMAND(m->memory && m->packed);
    made_fill(m, nbytes, dtype * 256u + as, how & 128);
    if (m->strided) made_pack(m, m->packed);
    else memcpy(m->packed, m->memory, plain);
    m->nbytes = plain;
    if (as & 128 && !m->refused) { /* to another dtype on the way */
        m->to = 1u + (as & 127u) % (HEFT_DTYPE_COUNT - 1u);
        const heft_cast_options cast = {
            .struct_size = sizeof cast, .workers = 1, .saturate = all->saturate, .allow_inexact = all->allow_inexact};
        uint8_t *converted = calloc(m->nelems + 1, 8);
        DEMAND(converted);
        heft_status status = heft_cast(m->from, m->packed, m->to, converted, m->nelems, &cast, NULL);
        all->unfit = all->unfit || status == HEFT_MISMATCH;
        m->refused = status != HEFT_OK && status != HEFT_MISMATCH;
        m->nbytes = (m->nelems * heft_dtype_bits(m->to) + 7) / 8;
        free(m->packed);
        m->packed = converted;
    }
}

static bool made_same_name(const made *a, const made *b) {
    return a->name_len == b->name_len && memcmp(a->name, b->name, a->name_len) == 0;
}

/* Reads up to MADE_MOST of them; true: nothing of them is refused by safetensors. */
static bool made_init(made_all *all, made_bytes *in, uint64_t most) {
    bool fine = true;
    uint8_t how = made_take(in);
    all->unfit = false;
    all->saturate = how & 64;
    all->allow_inexact = how & 128;
    all->n = (how & 63) % (most + 1);
    for (uint64_t i = 0; i < all->n; i++) {
        made_item(&all->items[i], in, i, all);
        fine = fine && !all->items[i].refused;
        for (uint64_t k = 0; k < i; k++) fine = fine && !made_same_name(&all->items[i], &all->items[k]);
    }
    return fine;
}

static void made_free(made_all *all) {
    for (uint64_t i = 0; i < all->n; i++) {
        free(all->items[i].memory);
        free(all->items[i].packed);
    }
}

static void made_save_items(const made_all *all, heft_save_item *items) {
    for (uint64_t i = 0; i < all->n; i++) {
        const made *m = &all->items[i];
        items[i] = (heft_save_item){.name = m->name,
                                    .name_len = m->name_len ? m->name_len : SIZE_MAX,
                                    .data = m->memory + m->first,
                                    .shape = m->shape,
                                    .stride_nbytes = m->strided ? m->stride : NULL,
                                    .rank = m->rank,
                                    .dtype = m->from,
                                    .as = m->to == m->from ? HEFT_DTYPE_NONE : m->to};
    }
}

/* Bytes of element size that files hold in the other order. */
static void made_swap(uint8_t *bytes, uint64_t nbytes, heft_dtype dtype) {
    uint64_t size = heft_dtype_component_bits(dtype) / 8;
    if (size < 2 || !(heft_features() & HEFT_FEATURE_BIG_ENDIAN)) return;
    for (uint64_t i = 0; i + size <= nbytes; i += size)
        for (uint64_t k = 0; k < size / 2; k++) {
            uint8_t byte = bytes[i + k];
            bytes[i + k] = bytes[i + size - 1 - k];
            bytes[i + size - 1 - k] = byte;
        }
}

/* ---- what a format makes of them ---- */

/* The dtype that is found: that of a dtype which npy lacks is what `foreign` says. NONE: it is refused. */
static heft_dtype made_found_dtype(heft_dtype dtype, const char *format, heft_foreign foreign) {
    uint32_t bits = heft_dtype_bits(dtype);
    bool lacks = bits < 8 || (heft_dtype_kind(dtype) == 'f' && (bits == 8 || dtype == HEFT_BF16));
    if (!format || !lacks) return dtype;
    if (bits < 8 || foreign == HEFT_FOREIGN_REFUSE) return HEFT_DTYPE_NONE;
    if (foreign == HEFT_FOREIGN_VOID) return bits == 8 ? HEFT_F8_E4M3 : HEFT_BF16; /* as made_options says */
    return bits == 8 ? HEFT_U8 : HEFT_U16;
}

static heft_open_options made_options(void) {
    return (heft_open_options){
        .struct_size = sizeof(heft_open_options), .workers = 1, .void1 = HEFT_F8_E4M3, .void2 = HEFT_BF16};
}

/* A save is taken, or refused, as was foreseen. */
static void made_expect(heft_status status, bool takes, const heft_error *err) {
    if ((status == HEFT_OK) == takes) return;
    fprintf(stderr, "%s: %s\n", heft_status_name(status), status == HEFT_OK ? "it was not to be taken" : err->message);
    abort();
}

/* Each of them is in the archive, with its dtype, shape and bytes, and nothing else. */
static void made_compare(const made_all *all, const heft_archive *archive, const char *format, heft_foreign foreign) {
    bool npy = format && strcmp(format, "npy") == 0;
    DEMAND(heft_archive_count(archive) == all->n);
    for (uint64_t i = 0; i < all->n; i++) {
        const made *m = &all->items[i];
        heft_view view;
        uint64_t id = 0;
        if (!npy) DEMAND(heft_archive_find(archive, m->name, m->name_len, &id, NULL) == HEFT_OK);
        DEMAND(heft_view_of(archive, id, &view, NULL) == HEFT_OK);
        DEMAND(view.dtype == made_found_dtype(m->to, format, foreign) && view.rank == m->rank);
        for (uint32_t d = 0; d < m->rank; d++) DEMAND(view.shape[d] == m->shape[d]);
        DEMAND(heft_view_nbytes(&view) == m->nbytes);
        uint8_t *bytes = malloc(m->nbytes ? m->nbytes : 1);
        DEMAND(bytes && heft_read(&view, bytes, m->nbytes, NULL, NULL, NULL) == HEFT_OK);
        DEMAND(memcmp(bytes, m->packed, m->nbytes) == 0);
        free(bytes);
    }
}

#endif
