/* Records of faults: their text, and the page with their severities. */
#include "helper_scan.h"

#include "helper_files.h"

#define E(name, dtype, shape, begin, end)                                                                              \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":[" shape "],\"data_offsets\":[" #begin "," #end "]}"

static void every_kind_is_on_the_page(void **state) {
    (void)state;
    size_t n;
    char *page = (char *)test_slurp(TEST_DATA "/../../docs/severities.md", &n);
    for (uint32_t kind = 0; kind < HEFT_FAULT_COUNT; kind++) {
        char row[64];
        snprintf(row, sizeof row, "\n| `%s` |", heft_fault_name(kind));
        if (!strstr(page, row)) fail_msg("docs/severities.md lacks %s", heft_fault_name(kind));
    }
    free(page);
}

/* What a check says, word by word: what, where, needed, found. */
static void texts_say_what_and_where(void **state) {
    (void)state;
    static const char header[] =
        "  {\"a\":[{\"U8\":null},[1],[0,1]]," E("b\\u001b", "F99", "1", 1, 2) "," E("a", "U8", "3", 2, 4) "," E(
            "__metadata__", "U8", "1", 0,
            1) "," E("c", "U8", "4", 3, 7) "," E("d", "F4", "3", 9,
                                                 11) "," E("e", "F32", "4611686018427387904,4", 11,
                                                           12) "," E("f", "F64", "2305843009213693952", 12,
                                                                     13) "," E("g", "U8", "1", 15,
                                                                               14) "," E("h", "U8", "0", 8, 8) "}\0";
    static const char *const texts[] = {
        "file: tensor \"a\": the entry at offset 15 is written as an array, the format wants an object",
        "file: tensor \"a\": the dtype at offset 16 is written as an object, the format wants a string",
        "file: tensor \"b\\x1B\": unknown dtype \"F99\" at offset 58; known are BOOL, F4, F6_E2M3, F6_E3M2, U8, I8, "
        "F8_E5M2, "
        "F8_E4M3, F8_E8M0, F8_E4M3FNUZ, F8_E5M2FNUZ, I16, U16, F16, BF16, I32, U32, F32, C64, F64, I64, U64",
        "file: tensor \"a\": the name stands twice, at offsets 11 and 98",
        "file: a tensor entry at offset 150 has the reserved name __metadata__",
        "file: the header is padded with 1 NUL byte from offset 572 on; the format pads with spaces",
        "file: tensor \"a\": U8 [3] needs 3 bytes, data_offsets [2, 4] give 2",
        "file: tensor \"c\" (data 3 to 7) overlaps \"a\" (data 2 to 4) by 1 byte at offset 576",
        "file: hole of 1 byte at offset 580, before tensor \"h\" (data 8 to 8), all zero",
        "file: hole of 1 byte at offset 581, before tensor \"d\" (data 9 to 11), all zero",
        "file: tensor \"d\": 3 elements of F4 (4 bits each) do not fill whole bytes",
        "file: tensor \"e\": F32 [4611686018427387904, 4]: the number of elements does not fit 64 bits",
        "file: tensor \"f\": F64 [2305843009213693952]: the number of bits does not fit 64 bits",
        "file: tensor \"g\": data_offsets [15, 14] end before they begin",
        "file: 7 bytes after the last tensor, from offset 587 on, all zero",
        "file: the header begins with 2 bytes of white space",
    };
    size_t n;
    uint8_t *file = scan_file(header, sizeof header - 1, 21, &n);
    heft__scan_options options = {.collect = true};
    heft__listing listing;
    assert_int_equal(scan_bytes(file, n, &options, NULL, &listing, NULL), HEFT_OK);
    for (uint64_t i = 0; i < listing.faults.count; i++) {
        heft_error err;
        heft__fault_describe(&listing.faults.items[i], &listing, &err);
        if (i < sizeof texts / sizeof *texts) assert_string_equal(err.message, texts[i]);
        assert_string_equal(err.file, "file");
        assert_int_equal(err.offset, listing.faults.items[i].offset);
    }
    assert_true(listing.faults.count >= sizeof texts / sizeof *texts);
    heft__listing_free(&listing);
    free(file);
}

/* A record that names no entry of its listing, as a caller with a bug might make: no crash, the word of the kind. */
static void records_out_of_place_have_a_text(void **state) {
    (void)state;
    heft__listing listing;
    heft__listing_init(&listing, &heft__default_allocator);
    for (uint32_t kind = 0; kind < HEFT_FAULT_COUNT; kind++) {
        heft__fault fault = {.kind = (uint16_t)kind, .status = 7, .entry = 5, .other = 6, .offset = 3, .value = 1};
        heft_error err;
        heft__fault_describe(&fault, &listing, &err);
        assert_int_equal(err.fault, kind);
        assert_true(err.message[0] != 0);
    }
    heft__listing_free(&listing);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_is_on_the_page),
        cmocka_unit_test(texts_say_what_and_where),
        cmocka_unit_test(records_out_of_place_have_a_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
