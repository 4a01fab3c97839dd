/* fuzz: a whole safetensors file, scanned by default, leniently and as a check; by the fast reader and by the careful
 * one. */
#include "base/utf8.h"
#include "format/safetensors.h"

#include <stdlib.h>
#include <string.h>

#define REQUIRE(condition)                                                                                             \
    do {                                                                                                               \
        if (!(condition)) abort();                                                                                     \
    } while (0)

/* What every listing promises that was made without a fault of its file. */
static void check_listing(const heft__listing *l, uint64_t size, uint32_t lenient) {
    uint64_t running = 0;
    for (uint64_t i = 0; i < l->nentries; i++) {
        const heft__entry *e = &l->entries[i];
        uint64_t nelems, nbytes;
        REQUIRE(e->begin <= e->end && e->end <= size - l->data_start);
        REQUIRE(e->begin == running || (e->begin > running && (lenient & HEFT_LENIENT_HOLE)));
        REQUIRE(e->name >= l->header && e->name + e->name_len <= l->header + l->header_nbytes);
        REQUIRE(e->name[e->name_len] == 0);
        REQUIRE(heft__listing_find(l, e->name, e->name_len) == i); /* so names are unique */
        if (e->dtype != HEFT_DTYPE_NONE) {
            REQUIRE(heft__shape_nbytes(e->dtype, e->rank, e->shape, &nelems, &nbytes) == HEFT__SHAPE_OK);
            REQUIRE(nbytes == e->end - e->begin);
        } else {
            const heft__spelling *spelling = heft__listing_spelling(l, e);
            REQUIRE(spelling && heft__utf8_check(spelling->text, spelling->len) == spelling->len);
            REQUIRE(heft_dtype_parse(spelling->text, spelling->len) == HEFT_DTYPE_NONE);
        }
        running = e->end;
    }
    REQUIRE(running == size - l->data_start || (lenient & HEFT_LENIENT_TRAILING_BYTES));
    for (uint64_t i = 1; i < l->nmetadata; i++) {
        const heft_pair *a = &l->metadata[i - 1], *b = &l->metadata[i];
        size_t n = a->key_len < b->key_len ? a->key_len : b->key_len;
        int order = n ? memcmp(a->key, b->key, n) : 0;
        REQUIRE(order < 0 || (order == 0 && a->key_len < b->key_len));
    }
}

static void check_faults(const heft__listing *l, uint64_t size) {
    for (uint64_t i = 0; i < l->faults.count; i++) {
        const heft__fault *f = &l->faults.items[i];
        heft_error err;
        heft__fault_describe(f, l, &err);
        REQUIRE(err.fault == f->kind && err.status == -(heft_status)f->status && err.message[0]);
        REQUIRE(f->entry == UINT32_MAX || f->entry < l->nentries);
        if (f->kind < HEFT_FAULT_HOLE) REQUIRE(f->offset <= size);
    }
}

static void check_error(const heft_error *err, heft_status status) {
    REQUIRE(err->status == status && err->fault != HEFT_FAULT_NONE && err->fault < HEFT_FAULT_COUNT);
    REQUIRE(memchr(err->message, 0, sizeof err->message) && memchr(err->tensor, 0, sizeof err->tensor));
}

static heft_status scan(heft_source *source, uint32_t lenient, bool collect, bool careful, heft__listing *l,
                        heft_error *err) {
    heft__scan_options options = {
        .lenient = lenient, .collect = collect, .list_unknown_dtypes = lenient & 1, .max_header_nbytes = 1 << 20};
    uint8_t head[16];
    uint64_t size = heft_source_size(source);
    size_t nhead = size < sizeof head ? (size_t)size : sizeof head;
    memset(err, 0, sizeof *err);
    heft__listing_init(l, &heft__default_allocator);
    if (!careful) return heft__scan(source, &options, l, err);
    REQUIRE(nhead == 0 || heft_source_read(source, 0, nhead, head, NULL) == HEFT_OK);
    l->source = heft_source_ref(source);
    return heft__safetensors_scan(head, nhead, &options, true, l, err);
}

static void compare(const heft__listing *a, const heft__listing *b) {
    REQUIRE(a->nentries == b->nentries && a->faults.count == b->faults.count && a->nfillers == b->nfillers);
    for (uint64_t i = 0; i < a->nentries; i++) {
        const heft__entry *x = &a->entries[i], *y = &b->entries[i];
        REQUIRE(x->name - a->header == y->name - b->header && x->name_len == y->name_len && x->dtype == y->dtype);
        REQUIRE(x->begin == y->begin && x->end == y->end && x->rank == y->rank);
        REQUIRE(x->rank == 0 || memcmp(x->shape, y->shape, x->rank * sizeof *x->shape) == 0);
    }
    for (uint64_t i = 0; i < a->faults.count; i++)
        REQUIRE(memcmp(&a->faults.items[i], &b->faults.items[i], sizeof *a->faults.items) == 0);
    REQUIRE((a->fatal != NULL) == (b->fatal != NULL));
    REQUIRE(!a->fatal || memcmp(a->fatal, b->fatal, sizeof *a->fatal) == 0);
}

static heft_status scan_both(heft_source *source, uint32_t lenient, bool collect) {
    heft__listing fast, careful;
    heft_error err, other;
    uint64_t size = heft_source_size(source);
    heft_status status = scan(source, lenient, collect, false, &fast, &err);
    REQUIRE(scan(source, lenient, collect, true, &careful, &other) == status);
    if (status) {
        check_error(&err, status);
        REQUIRE(memcmp(&err, &other, sizeof err) == 0);
    } else {
        compare(&fast, &careful);
        check_faults(&fast, size);
        if (!collect) check_listing(&fast, size, lenient);
    }
    REQUIRE(!collect || status == HEFT_OK);
    if (collect) { /* a check finds errors in exactly what opening refuses */
        heft__listing opened;
        bool error = fast.fatal != NULL;
        for (uint64_t i = 0; i < fast.faults.count; i++) error |= fast.faults.items[i].severity == HEFT_SEVERITY_ERROR;
        status = scan(source, lenient, false, false, &opened, &err);
        REQUIRE(error == (status != HEFT_OK));
        heft__listing_free(&opened);
    }
    heft__listing_free(&fast);
    heft__listing_free(&careful);
    return status;
}

/* What another format claims has a fuzzer of its own. */
static bool is_other(heft_source *source) {
    heft__listing listing;
    heft_error err;
    (void)scan(source, 0, false, false, &listing, &err);
    bool other = strcmp(listing.format, "safetensors") != 0;
    heft__listing_free(&listing);
    return other;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    heft_source *source;
    if (heft_source_open_memory(data, size, "input", NULL, NULL, &source, NULL)) abort();
    if (is_other(source)) {
        heft_source_unref(source);
        return 0;
    }
    heft_status strict = scan_both(source, 0, false);
    heft_status lenient = scan_both(source, HEFT_LENIENT_ALL, false);
    REQUIRE(strict != HEFT_OK || lenient == HEFT_OK);
    scan_both(source, 0, true);
    scan_both(source, HEFT_LENIENT_ALL, true);
    heft_source_unref(source);
    return 0;
}
