/* Scans of bytes in memory. */
#include "helper_scan.h"

heft_status scan_bytes(const void *data, size_t n, const heft__scan_options *options, const heft_allocator *alloc,
                       heft__listing *listing, heft_error *err) {
    heft_source *source;
    heft__scan_options none = {0};
    heft__listing_init(listing, alloc ? alloc : &heft__default_allocator);
    assert_int_equal(heft_source_open_memory(data, n, "file", NULL, NULL, &source, NULL), HEFT_OK);
    heft_status status = heft__scan(source, options ? options : &none, listing, err);
    heft_source_unref(source);
    return status;
}

uint8_t *scan_file(const char *header, size_t header_len, uint64_t data_nbytes, size_t *n) {
    *n = 8 + header_len + (size_t)data_nbytes;
    uint8_t *file = calloc(1, *n);
    assert_non_null(file);
    for (int i = 0; i < 8; i++) file[i] = (uint8_t)((uint64_t)header_len >> 8 * i);
    memcpy(file + 8, header, header_len);
    return file;
}

heft_status scan_text(const char *header, uint64_t data_nbytes, const heft__scan_options *options,
                      heft__listing *listing, heft_error *err) {
    /* The bytes outlive the call: the listing holds their source. A few are kept, the oldest goes. */
    static uint8_t *kept[8];
    static int at;
    size_t n;
    at = (at + 1) % 8;
    free(kept[at]);
    kept[at] = scan_file(header, strlen(header), data_nbytes, &n);
    return scan_bytes(kept[at], n, options, NULL, listing, err);
}

heft_status scan_verdict(const char *header, uint64_t data_nbytes, heft_fault *fault, uint64_t *offset) {
    heft__listing listing;
    heft_error err = {0};
    heft_status status = scan_text(header, data_nbytes, NULL, &listing, &err);
    heft__listing_free(&listing);
    *fault = status ? err.fault : HEFT_FAULT_NONE;
    *offset = status ? err.offset : HEFT_NONE;
    assert_int_equal(err.status, status);
    return status;
}

const char *scan_faults(const heft__listing *listing) {
    static char text[4096];
    int at = 0;
    text[0] = 0;
    for (uint64_t i = 0; i < listing->faults.count && at < (int)sizeof text - 100; i++) {
        const heft__fault *f = &listing->faults.items[i];
        at += snprintf(text + at, sizeof text - (size_t)at, "%s%s%s@%lld:%llu", i ? " " : "",
                       f->severity == HEFT_SEVERITY_ERROR  ? "!"
                       : f->severity == HEFT_SEVERITY_NOTE ? "."
                                                           : "",
                       heft_fault_name(f->kind), (long long)f->offset, (unsigned long long)f->value);
    }
    return text;
}

void scan_assert_equal(const heft__listing *a, const heft__listing *b) {
    assert_int_equal(a->nentries, b->nentries);
    assert_int_equal(a->nfillers, b->nfillers);
    assert_int_equal(a->has_metadata, b->has_metadata);
    assert_int_equal(a->nmetadata, b->nmetadata);
    for (uint64_t i = 0; i < a->nentries; i++) {
        const heft__entry *x = &a->entries[i], *y = &b->entries[i];
        assert_int_equal(x->name_len, y->name_len);
        assert_memory_equal(x->name, y->name, x->name_len + 1);
        assert_int_equal(x->name[x->name_len], 0);
        assert_int_equal(x->dtype, y->dtype);
        assert_int_equal(x->rank, y->rank);
        assert_memory_equal(x->shape, y->shape, x->rank * sizeof *x->shape);
        assert_int_equal(x->begin, y->begin);
        assert_int_equal(x->end, y->end);
        assert_int_equal(heft__listing_find(a, x->name, x->name_len), i);
        assert_int_equal(heft__listing_find(b, x->name, x->name_len), i);
    }
    for (uint64_t i = 0; i < a->nmetadata; i++) {
        const heft_pair *x = &a->metadata[i], *y = &b->metadata[i];
        assert_int_equal(x->key_len, y->key_len);
        assert_int_equal(x->value_len, y->value_len);
        assert_memory_equal(x->key, y->key, x->key_len + 1);
        assert_memory_equal(x->value, y->value, x->value_len + 1);
    }
    char *text = strdup(scan_faults(a));
    assert_string_equal(text, scan_faults(b));
    free(text);
}
