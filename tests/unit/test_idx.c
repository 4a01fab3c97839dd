/* IDX files: each type and rank, sizes that do not fit, and files that could be something else. */
#include "helper_scan.h"

static const uint8_t small[] = {0, 0, 0x0B, 2, 0, 0, 0,    2,    0,    0,    0,    3,
                                0, 1, 0,    2, 0, 3, 0xFF, 0xFE, 0x7F, 0xFF, 0x80, 0};

static heft_status scan(const void *data, size_t n, const heft__scan_options *options, heft_error *err) {
    heft__listing listing;
    heft_status status = scan_bytes(data, n, options, NULL, &listing, err);
    heft__listing_free(&listing);
    return status;
}

static void one_array(void **state) {
    (void)state;
    heft__listing listing;
    assert_int_equal(scan_bytes(small, sizeof small, NULL, NULL, &listing, NULL), HEFT_OK);
    assert_string_equal(listing.format, "idx");
    assert_int_equal(listing.nentries, 1);
    const heft__entry *e = &listing.entries[0];
    assert_string_equal(e->name, "data");
    assert_int_equal(e->dtype, HEFT_I16);
    assert_int_equal(e->rank, 2);
    assert_int_equal(e->shape[0], 2);
    assert_int_equal(e->shape[1], 3);
    assert_int_equal(heft__entry_offset(&listing, e), 12);
    assert_int_equal(e->end - e->begin, 12);
    assert_int_equal(e->flags & HEFT__ENTRY_BIG, HEFT__ENTRY_BIG);
    heft__listing_free(&listing);
}

static void each_type(void **state) {
    (void)state;
    static const struct {
        uint8_t code, dtype, nbytes;
    } types[] = {{8, HEFT_U8, 1},   {9, HEFT_I8, 1},   {11, HEFT_I16, 2},
                 {12, HEFT_I32, 4}, {13, HEFT_F32, 4}, {14, HEFT_F64, 8}};
    uint8_t file[16] = {0, 0, 0, 1, 0, 0, 0, 1};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        heft__listing listing;
        file[2] = types[i].code;
        assert_int_equal(scan_bytes(file, 8u + types[i].nbytes, NULL, NULL, &listing, NULL), HEFT_OK);
        assert_int_equal(listing.entries[0].dtype, types[i].dtype);
        assert_int_equal(listing.entries[0].flags, types[i].nbytes > 1 ? HEFT__ENTRY_BIG : 0);
        heft__listing_free(&listing);
    }
    file[2] = 10; /* no type */
    assert_int_not_equal(scan(file, 9, NULL, NULL), HEFT_OK);
    file[2] = 8, file[3] = 0; /* no rank */
    assert_int_not_equal(scan(file, 5, NULL, NULL), HEFT_OK);
}

static void sizes_must_fit(void **state) {
    (void)state;
    heft_error err;
    uint8_t more[sizeof small + 1] = {0};
    for (size_t n = 4; n < sizeof small; n++) {
        assert_int_equal(scan(small, n, NULL, &err), HEFT_CORRUPT);
        assert_int_equal(err.fault, HEFT_FAULT_TRUNCATED);
        assert_int_equal(err.found, n);
        assert_int_equal(err.expected, n < 12 ? 12 : sizeof small);
        assert_non_null(strstr(err.message, n < 12 ? "inside the dims" : "inside the data"));
    }
    memcpy(more, small, sizeof small);
    assert_int_equal(scan(more, sizeof more, NULL, &err), HEFT_CORRUPT);
    assert_int_equal(err.fault, HEFT_FAULT_TRAILING_BYTES);
    assert_int_equal(err.offset, sizeof small);
    heft__scan_options lenient = {.lenient = HEFT_LENIENT_TRAILING_BYTES}, collect = {.collect = true};
    heft__listing listing;
    assert_int_equal(scan_bytes(more, sizeof more, &lenient, NULL, &listing, &err), HEFT_OK);
    assert_string_equal(scan_faults(&listing), "trailing-bytes@24:1");
    heft__listing_free(&listing);
    assert_int_equal(scan_bytes(more, sizeof more, &collect, NULL, &listing, &err), HEFT_OK);
    assert_string_equal(scan_faults(&listing), "!trailing-bytes@24:1");
    heft__listing_free(&listing);
}

static void impossible_sizes(void **state) {
    (void)state;
    heft_error err;
    uint8_t file[4 + 4 * 64] = {0, 0, 0x0E, 64};
    memset(file + 4, 0xFF, sizeof file - 4);
    assert_int_equal(scan(file, sizeof file, NULL, &err), HEFT_CORRUPT);
    assert_int_equal(err.fault, HEFT_FAULT_SHAPE_OVERFLOW);
    memset(file + 100, 0, 4); /* a zero dim too late: no other format could hold it */
    assert_int_equal(scan(file, sizeof file, NULL, &err), HEFT_CORRUPT);
    assert_int_equal(err.fault, HEFT_FAULT_SHAPE_OVERFLOW);
    memset(file + 4, 0, 4); /* in time it makes all of it nothing */
    assert_int_equal(scan(file, sizeof file, NULL, &err), HEFT_OK);
    file[3] = 65; /* more dims than NumPy has */
    assert_int_not_equal(scan(file, sizeof file, NULL, &err), HEFT_OK);
}

/* What has an IDX magic by chance, or the other way round. */
static void beside_safetensors(void **state) {
    (void)state;
    heft_error err;
    /* A header length that looks like IDX: safetensors, as the brace says. */
    size_t len = 0x0108, n;
    char *header = malloc(len);
    memset(header, ' ', len);
    memcpy(header, "{}", 2);
    uint8_t *file = scan_file(header, len, 0, &n);
    heft__listing listing;
    assert_int_equal(scan_bytes(file, n, NULL, NULL, &listing, &err), HEFT_OK);
    assert_string_equal(listing.format, "safetensors");
    heft__listing_free(&listing);
    free(file);
    free(header);
    static const uint8_t gzip[] = {0x1F, 0x8B, 8, 0, 0, 0, 0, 0, 0, 3, 1, 2};
    assert_int_equal(scan(gzip, sizeof gzip, NULL, &err), HEFT_CORRUPT);
    assert_int_equal(err.fault, HEFT_FAULT_COMPRESSED);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(one_array), cmocka_unit_test(each_type),
                                       cmocka_unit_test(sizes_must_fit), cmocka_unit_test(impossible_sizes),
                                       cmocka_unit_test(beside_safetensors)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
