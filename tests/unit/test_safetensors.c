/* The safetensors scanner: order of checks, policy, notes, what a listing holds, what is read, memory that fails. */
#include "helper_scan.h"

#include "format/safetensors.h"
#include "helper_files.h"
#include "helper_guard.h"
#include "helper_random.h"

#include <errno.h>

#define E(name, dtype, shape, begin, end)                                                                              \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":[" shape "],\"data_offsets\":[" #begin "," #end "]}"

/* ---- order of checks ---- */

static void assert_verdict(const char *header, uint64_t data, heft_status status, heft_fault fault, uint64_t offset) {
    heft_fault found_fault;
    uint64_t found_offset;
    heft_status found = scan_verdict(header, data, &found_fault, &found_offset);
    if (found != status || found_fault != fault || found_offset != offset)
        print_message("%s: found %s, %s at %lld\n", header, heft_status_name(found), heft_fault_name(found_fault),
                      (long long)found_offset);
    assert_int_equal(found, status);
    assert_int_equal(found_fault, fault);
    assert_int_equal(found_offset, offset);
}

static uint64_t data_at(const char *header, uint64_t begin) {
    return 8 + strlen(header) + begin;
}

static void the_first_failure_wins(void **state) {
    (void)state;
    const char *h;
    /* a bad begin with an overflowing shape is 8a */
    h = "{" E("a", "F32", "18446744073709551615,2", 4, 8) "}";
    assert_verdict(h, 8, HEFT_CORRUPT, HEFT_FAULT_HOLE, data_at(h, 0));
    /* overflow outranks a wrong size, and a sub-byte fault does too */
    assert_verdict("{" E("a", "F32", "18446744073709551615,2", 0, 8) "}", 8, HEFT_CORRUPT, HEFT_FAULT_SHAPE_OVERFLOW,
                   9);
    assert_verdict("{" E("a", "F4", "3", 0, 8) "}", 8, HEFT_CORRUPT, HEFT_FAULT_SUB_BYTE, 9);
    assert_verdict("{" E("a", "F4", "", 0, 1) "}", 1, HEFT_CORRUPT, HEFT_FAULT_SUB_BYTE, 9);
    /* a wrong size in the first tensor outranks a hole before the second */
    assert_verdict("{" E("a", "U8", "3", 0, 4) "," E("b", "U8", "1", 9, 10) "}", 10, HEFT_CORRUPT,
                   HEFT_FAULT_SIZE_MISMATCH, 9);
    /* an offset past the end of the file is 9, never 8a */
    h = "{" E("a", "U8", "4", 0, 4) "," E("b", "U8", "4", 4, 8) "}";
    assert_verdict(h, 5, HEFT_CORRUPT, HEFT_FAULT_TRUNCATED, data_at(h, 5));
    /* with no tensors the data area must be empty */
    assert_verdict("{}", 1, HEFT_CORRUPT, HEFT_FAULT_TRAILING_BYTES, 10);
    assert_verdict("{\"__metadata__\":{}}", 3, HEFT_CORRUPT, HEFT_FAULT_TRAILING_BYTES, 27);
    /* dims are multiplied from the left */
    assert_verdict("{" E("a", "U8", "18446744073709551615,18446744073709551615,0", 0, 0) "}", 0, HEFT_CORRUPT,
                   HEFT_FAULT_SHAPE_OVERFLOW, 9);
    assert_verdict("{" E("a", "U8", "0,18446744073709551615,18446744073709551615", 0, 0) "}", 0, HEFT_OK,
                   HEFT_FAULT_NONE, HEFT_NONE);
    /* the largest U8 dim that passes 8c */
    assert_verdict("{" E("a", "U8", "2305843009213693952", 0, 0) "}", 0, HEFT_CORRUPT, HEFT_FAULT_SHAPE_OVERFLOW, 9);
    assert_verdict("{" E("a", "U8", "2305843009213693951", 0, 0) "}", 0, HEFT_CORRUPT, HEFT_FAULT_SIZE_MISMATCH, 9);
    h = "{" E("a", "U8", "2305843009213693951", 0, 2305843009213693951) "}";
    assert_verdict(h, 0, HEFT_CORRUPT, HEFT_FAULT_TRUNCATED, data_at(h, 0));
    /* a JSON fault anywhere outranks an unknown dtype, which outranks what the offsets say */
    assert_verdict("{" E("a", "F99", "1", 0, 4) ",}", 4, HEFT_CORRUPT, HEFT_FAULT_JSON_SYNTAX,
                   8 + strlen("{" E("a", "F99", "1", 0, 4) ","));
    assert_verdict("{" E("a", "F99", "1", 5, 9) "}", 4, HEFT_UNSUPPORTED, HEFT_FAULT_UNKNOWN_DTYPE,
                   8 + strlen("{\"a\":{\"dtype\":"));
    /* bad UTF-8 outranks any JSON fault before it */
    assert_verdict("{]\"\xFF\"}", 0, HEFT_CORRUPT, HEFT_FAULT_UTF8, 11);
}

/* Eight U8 tensors of 2^61 - 1 elements and one of 7: `end` reaches 2^64 - 1, and check 9 must not wrap. */
static void the_last_end_does_not_wrap(void **state) {
    (void)state;
    char h[2048] = "{";
    uint64_t dim = (UINT64_C(1) << 61) - 1, begin = 0;
    for (int i = 0; i < 9; i++) {
        uint64_t n = i < 8 ? dim : 7;
        sprintf(h + strlen(h), "%s\"%d\":{\"dtype\":\"U8\",\"shape\":[%llu],\"data_offsets\":[%llu,%llu]}",
                i ? "," : "", i, (unsigned long long)n, (unsigned long long)begin, (unsigned long long)(begin + n));
        begin += n;
    }
    assert_int_equal(begin, UINT64_MAX);
    strcat(h, "}");
    assert_verdict(h, 8, HEFT_CORRUPT, HEFT_FAULT_TRUNCATED, data_at(h, 8));
    heft__scan_options options = {.collect = true};
    heft__listing listing;
    assert_int_equal(scan_text(h, 8, &options, &listing, NULL), HEFT_OK);
    heft_error err;
    for (uint64_t i = 0; i < listing.faults.count; i++)
        heft__fault_describe(&listing.faults.items[i], &listing, &err);
    assert_int_equal(listing.faults.items[0].value, UINT64_MAX - 8);
    heft__listing_free(&listing);
}

static void lengths_are_checked_before_anything(void **state) {
    (void)state;
    static const struct {
        uint64_t n;
        const char *rest;
        heft_status status;
        heft_fault fault;
        uint64_t offset, expected, found;
    } rows[] = {
        {100000000, "x", HEFT_CORRUPT, HEFT_FAULT_TRUNCATED, 9, 100000008, 9},
        {100000001, "x", HEFT_LIMIT, HEFT_FAULT_HEADER_LIMIT, 0, 100000000, 100000001},
        {UINT64_C(1) << 63, "x", HEFT_LIMIT, HEFT_FAULT_HEADER_LIMIT, 0, 100000000, UINT64_C(1) << 63},
        {1000, "{\"a\":", HEFT_CORRUPT, HEFT_FAULT_TRUNCATED, 13, 1008, 13},
        {1000, "{}", HEFT_CORRUPT, HEFT_FAULT_HEADER_LENGTH, 0, 2, 1000},
        {UINT64_C(1) << 63, "{} ", HEFT_LIMIT, HEFT_FAULT_HEADER_LENGTH, 0, 2, UINT64_C(1) << 63},
        {1, "{}", HEFT_CORRUPT, HEFT_FAULT_HEADER_LENGTH, 9, 2, 1},
        {3, "{}\xFF", HEFT_CORRUPT, HEFT_FAULT_HEADER_LENGTH, 10, 2, 3},
        {3, "{}\x01", HEFT_CORRUPT, HEFT_FAULT_HEADER_LENGTH, 10, 2, 3},
        {3, "{}x", HEFT_CORRUPT, HEFT_FAULT_JSON_SYNTAX, 10, HEFT_NONE, HEFT_NONE},
        {4, "{}\0\xFF", HEFT_CORRUPT, HEFT_FAULT_HEADER_LENGTH, 11, 2, 4},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        uint8_t file[64];
        size_t len = i == 10 ? 4 : strlen(rows[i].rest);
        for (int k = 0; k < 8; k++) file[k] = (uint8_t)(rows[i].n >> 8 * k);
        memcpy(file + 8, rows[i].rest, len);
        heft__listing listing;
        heft_error err;
        assert_int_equal(scan_bytes(file, 8 + len, NULL, NULL, &listing, &err), rows[i].status);
        assert_int_equal(err.fault, rows[i].fault);
        assert_int_equal(err.offset, rows[i].offset);
        assert_int_equal(err.expected, rows[i].expected);
        assert_int_equal(err.found, rows[i].found);
        heft__listing_free(&listing);
    }
}

static int64_t read_zeros(void *ctx, uint64_t offset, void *dst, size_t nbytes) {
    static const uint8_t length[8] = {0, 0, 0, 0, 1};
    (void)ctx;
    memset(dst, ' ', nbytes);
    for (size_t i = 0; i < nbytes && offset + i < 8; i++) ((uint8_t *)dst)[i] = length[offset + i];
    return (int64_t)nbytes;
}

static void limits_can_be_raised_up_to_spans(void **state) {
    (void)state;
    heft__scan_options options = {.max_header_nbytes = 10};
    heft__listing listing;
    heft_error err;
    assert_int_equal(scan_text("{        }", 0, &options, &listing, &err), HEFT_OK);
    heft__listing_free(&listing);
    assert_int_equal(scan_text("{         }", 0, &options, &listing, &err), HEFT_LIMIT);
    assert_int_equal(err.expected, 10);
    assert_int_equal(err.found, 11);
    heft__listing_free(&listing);
    /* a header of 2^32 bytes that is all there: refused before it is read */
    heft_source_callbacks callbacks = {
        .struct_size = sizeof callbacks, .size = UINT64_C(1) << 40, .read_at = read_zeros};
    heft_source *source;
    assert_int_equal(heft_source_open_callbacks(&callbacks, "large", &source, &err), HEFT_OK);
    options.max_header_nbytes = UINT64_MAX;
    heft__listing_init(&listing, &heft__default_allocator);
    assert_int_equal(heft__scan(source, &options, &listing, &err), HEFT_LIMIT);
    assert_int_equal(err.fault, HEFT_FAULT_HEADER_LIMIT);
    assert_non_null(strstr(err.message, "below 4 GiB"));
    heft__listing_free(&listing);
    heft_source_unref(source);
}

/* ---- policy ---- */

static const struct {
    uint32_t bit;
    const char *header;
    uint64_t data;
    heft_fault fault;
    const char *warnings;
} deviations[] = {
    {HEFT_LENIENT_DUPLICATE_NAME, "{" E("a", "U8", "1", 0, 1) "," E("a", "U8", "2", 0, 2) "}", 2,
     HEFT_FAULT_DUPLICATE_NAME, "duplicate-name@61:9"},
    {HEFT_LENIENT_ARRAY_ENTRY, "{\"a\":[\"U8\",[1],[0,1]]}", 1, HEFT_FAULT_ARRAY_ENTRY, "array-entry@13:0"},
    {HEFT_LENIENT_OBJECT_DTYPE, "{\"a\":{\"shape\":[1],\"dtype\":{\"U8\":null},\"data_offsets\":[0,1]}}", 1,
     HEFT_FAULT_OBJECT_DTYPE, "object-dtype@34:0"},
    {HEFT_LENIENT_RESERVED_NAME, "{" E("__metadata__", "U8", "1", 0, 1) "}", 1, HEFT_FAULT_RESERVED_NAME,
     "reserved-name@9:0"},
    {HEFT_LENIENT_TRAILING_BYTES, "{" E("a", "U8", "1", 0, 1) "}", 4, HEFT_FAULT_TRAILING_BYTES, "trailing-bytes@62:3"},
    {HEFT_LENIENT_HOLE, "{" E("a", "U8", "1", 2, 3) "}", 3, HEFT_FAULT_HOLE, "hole@61:2"},
    {HEFT_LENIENT_HOLE, "{" E("a", "U8", "1", 0, 1) "," E("b", "U8", "0", 3, 3) "}", 3, HEFT_FAULT_HOLE, "hole@114:2"},
};

static void each_lenient_bit_admits_its_own(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof deviations / sizeof *deviations; i++) {
        for (uint32_t bit = 1; bit < HEFT_LENIENT_ALL; bit <<= 1) {
            heft__scan_options options = {.lenient = bit};
            heft__listing listing;
            heft_error err;
            heft_status status = scan_text(deviations[i].header, deviations[i].data, &options, &listing, &err);
            assert_int_equal(status, bit == deviations[i].bit ? HEFT_OK : HEFT_CORRUPT);
            if (status)
                assert_int_equal(err.fault, deviations[i].fault);
            else
                assert_string_equal(scan_faults(&listing), deviations[i].warnings);
            heft__listing_free(&listing);
        }
    }
}

static void nul_padding(void **state) {
    (void)state;
    static const struct {
        const char *padding;
        size_t len;
        const char *warnings; /* NULL: refused even under lenient */
    } rows[] = {{"\0\0\0", 3, "nul-padding@10:3"},
                {" \0", 2, "nul-padding@11:1"},
                {"\0 \n\0", 4, "nul-padding@10:2"},
                {"\0x", 2, NULL},
                {"\0{}", 3, NULL},
                {"\f", 1, NULL}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char header[16] = "{}";
        size_t n;
        memcpy(header + 2, rows[i].padding, rows[i].len);
        uint8_t *file = scan_file(header, 2 + rows[i].len, 0, &n);
        heft__scan_options options = {.lenient = HEFT_LENIENT_NUL_PADDING};
        heft__listing listing;
        heft_error err;
        assert_int_equal(scan_bytes(file, n, NULL, NULL, &listing, &err), HEFT_CORRUPT);
        assert_int_equal(err.fault, rows[i].warnings ? HEFT_FAULT_NUL_PADDING : err.fault);
        heft__listing_free(&listing);
        assert_int_equal(scan_bytes(file, n, &options, NULL, &listing, &err),
                         rows[i].warnings ? HEFT_OK : HEFT_CORRUPT);
        if (rows[i].warnings) assert_string_equal(scan_faults(&listing), rows[i].warnings);
        heft__listing_free(&listing);
        free(file);
    }
}

/* What stays refused whatever is asked for. */
static void lenient_has_limits(void **state) {
    (void)state;
    static const struct {
        const char *header;
        uint64_t data;
        heft_fault fault;
    } rows[] = {
        {"{" E("a", "U8", "2", 0, 2) "," E("b", "U8", "2", 1, 3) "}", 3, HEFT_FAULT_OVERLAP},
        {"{" E("a", "U8", "2", 0, 2) "," E("b", "U8", "0", 1, 1) "}", 2, HEFT_FAULT_OVERLAP},
        {"{" E("a", "U8", "2", 0, 2) "," E("b", "U8", "2", 0, 2) "}", 2, HEFT_FAULT_OVERLAP},
        {"{" E("a", "U8", "2", 0, 2) "}", 1, HEFT_FAULT_TRUNCATED},
        {"{" E("a", "U8", "0", 9, 9) "}", 1, HEFT_FAULT_TRUNCATED}, /* behind a hole that leaves the file */
        {"{" E("a", "U8", "2", 0, 1) "}", 1, HEFT_FAULT_SIZE_MISMATCH},
        {"{" E("a", "U8", "2", 2, 0) "}", 2, HEFT_FAULT_BAD_ENTRY},
        {"{\"__metadata__\":{},\"__metadata__\":{}}", 0, HEFT_FAULT_BAD_METADATA},
        {"{\"__metadata__\":null,\"__metadata__\":null}", 0, HEFT_FAULT_BAD_METADATA},
        {"{\"__metadata__\":{\"dtype\":\"U8\",\"shape\":[1]}}", 0, HEFT_FAULT_BAD_METADATA},
        {"{\"__metadata__\":[\"U8\",[1],[0,1]]}", 1, HEFT_FAULT_BAD_METADATA},
        {"{\"a\":[\"U8\",[1],[0,1],1]}", 1, HEFT_FAULT_BAD_ENTRY},
        {"{\"a\":[\"U8\",[1]]}", 1, HEFT_FAULT_BAD_ENTRY},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        heft__scan_options options = {.lenient = HEFT_LENIENT_ALL};
        heft__listing listing;
        heft_error err;
        assert_int_equal(scan_text(rows[i].header, rows[i].data, &options, &listing, &err), HEFT_CORRUPT);
        assert_int_equal(err.fault, rows[i].fault);
        heft__listing_free(&listing);
    }
}

static void a_reserved_name_lies_beside_metadata(void **state) {
    (void)state;
    heft__scan_options options = {.lenient = HEFT_LENIENT_RESERVED_NAME};
    heft__listing listing;
    static const char *const headers[] = {
        "{\"__metadata__\":{\"k\":\"v\"}," E("__metadata__", "U8", "1", 0, 1) "}",
        "{" E("__metadata__", "U8", "1", 0, 1) ",\"__metadata__\":{\"k\":\"v\"}}",
    };
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(scan_text(headers[i], 1, &options, &listing, NULL), HEFT_OK);
        assert_int_equal(listing.nmetadata, 1);
        assert_string_equal(listing.metadata[0].value, "v");
        assert_int_equal(heft__listing_find(&listing, "__metadata__", 12), 0);
        heft__listing_free(&listing);
    }
}

static void unknown_dtypes_can_be_listed(void **state) {
    (void)state;
    static const char header[] = "{" E("a", "F128", "18446744073709551615", 0, 3) "," E("b", "U8", "1", 3, 4) "}";
    heft__scan_options options = {.list_unknown_dtypes = true};
    heft__listing listing;
    heft_error err;
    assert_int_equal(scan_text(header, 4, &options, &listing, &err), HEFT_OK);
    assert_int_equal(listing.nentries, 2);
    assert_int_equal(listing.entries[0].dtype, HEFT_DTYPE_NONE);
    assert_int_equal(listing.entries[0].end, 3);
    assert_string_equal(scan_faults(&listing), "unknown-dtype@22:0");
    heft__listing_free(&listing);
    /* 8b stays */
    assert_int_equal(scan_text("{" E("a", "F128", "18446744073709551615,2", 0, 3) "}", 3, &options, &listing, &err),
                     HEFT_CORRUPT);
    assert_int_equal(err.fault, HEFT_FAULT_SHAPE_OVERFLOW);
    heft__listing_free(&listing);
    /* without it: the spelling is in the message, escaped as it stands there */
    assert_int_equal(scan_text("{" E("a", "\\u0058\\\"Y", "1", 0, 3) "}", 3, NULL, &listing, &err), HEFT_UNSUPPORTED);
    assert_non_null(strstr(err.message, "\"\\u0058\\\"Y\""));
    assert_string_equal(err.tensor, "a");
    heft__listing_free(&listing);
}

/* ---- check: all faults ---- */

static void assert_check(const char *header, bool pad, uint64_t data, const char *faults) {
    heft__scan_options options = {.collect = true};
    heft__listing listing;
    char text[1024];
    strcpy(text, header);
    while (pad && strlen(text) % 8) strcat(text, " ");
    assert_int_equal(scan_text(text, data, &options, &listing, NULL), HEFT_OK);
    assert_null(listing.fatal);
    assert_string_equal(scan_faults(&listing), faults);
    for (uint64_t i = 0; i < listing.faults.count; i++) {
        heft_error err;
        heft__fault_describe(&listing.faults.items[i], &listing, &err);
        assert_int_equal(err.fault, listing.faults.items[i].kind);
        assert_int_equal(-err.status, listing.faults.items[i].status);
        assert_int_equal(strncmp(err.message, "file: ", 6), 0);
        assert_string_equal(err.file, "file");
    }
    heft__listing_free(&listing);
}

static void a_check_records_all(void **state) {
    (void)state;
    assert_check("{\"__metadata__\":{}," E("a", "U8", "8", 0, 8) "}", true, 8, "");
    /* the running end is the greatest end so far, so that one fault does not cascade: n = 160, data at 168 */
    assert_check("{" E("a", "U8", "9", 0, 9) "," E("b", "U8", "2", 4, 6) "," E("c", "U8", "1", 9, 10) "}", true, 10,
                 "!overlap@172:2");
    /* several faults of one tensor, of several, and of the end: n = 160 */
    assert_check("{" E("a", "U8", "3", 2, 4) "," E("b", "F4", "3", 9, 1) "," E("c", "U8", "1", 20, 21) "}", true, 40,
                 "!hole@168:2 !size-mismatch@9:3 !bad-entry@61:0 !sub-byte@61:3 !hole@172:16 !trailing-bytes@189:19");
    /* entries that the format does not have, and names twice: n = 192, data at 200 */
    assert_check("{\"a\":[\"U8\",[1],[0,1]]," E("b", "F99", "1", 1, 2) "," E("a", "U8", "2", 2, 4) "," E(
                     "__metadata__", "U8", "1", 0, 1) "}",
                 true, 4, "!array-entry@13:0 !unknown-dtype@43:0 !duplicate-name@83:9 !reserved-name@135:0");
}

static void a_check_notes_what_is_accepted(void **state) {
    (void)state;
    assert_check("{}", false, 0, ".data-unaligned@10:2 .no-tensors@-1:1");
    assert_check("\t {\"__metadata__\":{\"k\":\"1\",\"k\":\"2\",\"k\":\"3\"}}   ", true, 0,
                 ".leading-space@8:2 .duplicate-key@35:2 .no-tensors@-1:1");
    assert_check("{" E("", "U8", "1", 0, 1) "," E("a\\u0000b", "F32", "1", 1, 5) "," E("c", "F64", "", 5, 13) "}", true,
                 13, ".odd-name@9:2 .tensor-unaligned@177:2");
    assert_check("{\"a\":{\"x\":1,\"dtype\":\"U8\",\"shape\":[1],\"y\":{},\"data_offsets\":[0,1]}}", true, 1,
                 ".unknown-field@14:2");
    assert_check("{" E("__heft_pad__.00000000", "U8", "8", 0, 8) "}", true, 8, ".fillers@-1:1");
}

static void a_check_ends_at_a_fault_of_syntax(void **state) {
    (void)state;
    heft__scan_options options = {.collect = true};
    heft__listing listing;
    assert_int_equal(scan_text("{\"a\":[\"U8\",[1],[0,1]]," E("b", "U8", "1", 1, 2) "x", 2, &options, &listing, NULL),
                     HEFT_OK);
    assert_non_null(listing.fatal);
    assert_int_equal(listing.fatal->fault, HEFT_FAULT_JSON_SYNTAX);
    assert_int_equal(listing.fatal->offset, 8 + 73);
    assert_string_equal(scan_faults(&listing), "!array-entry@13:0");
    heft_error err;
    heft__fault_describe(&listing.faults.items[0], &listing, &err);
    assert_string_equal(err.tensor, "a");
    heft__listing_free(&listing);
}

static void holes_and_tails_are_looked_at(void **state) {
    (void)state;
    static const char header[] = "{" E("a", "U8", "1", 4, 5) "}";
    for (int content = 0; content < 3; content++) {
        size_t n;
        uint8_t *file = scan_file(header, strlen(header), 100000, &n);
        if (content == 1) file[8 + strlen(header) + 3] = 1;
        if (content == 2) file[n - 1] = 1;
        heft__scan_options options = {.collect = true};
        heft__listing listing;
        assert_int_equal(scan_bytes(file, n, &options, NULL, &listing, NULL), HEFT_OK);
        assert_int_equal(listing.faults.items[0].other, content == 1 ? HEFT__CONTENT_DATA : HEFT__CONTENT_ZERO);
        assert_int_equal(listing.faults.items[1].other, content == 2 ? HEFT__CONTENT_DATA : HEFT__CONTENT_ZERO);
        heft__listing_free(&listing);
        free(file);
    }
}

/* ---- what a listing holds ---- */

static void spelling_makes_no_difference(void **state) {
    (void)state;
    static const char *const headers[] = {
        "{\"__metadata__\":{\"b\":\"2\",\"a\":\"1\"}," E("x", "F32", "2,3", 0, 24) "," E(
            "y.z", "BF16", "", 24, 26) "," E("e", "I64", "0", 26, 26) "}",
        "{\"__metadata__\": {\"b\": \"2\", \"a\": \"1\"}, \"x\": {\"dtype\": \"F32\", \"shape\": [2, 3], "
        "\"data_offsets\": [0, "
        "24]}, \"y.z\": {\"dtype\": \"BF16\", \"shape\": [], \"data_offsets\": [24, 26]}, \"e\": {\"dtype\": \"I64\", "
        "\"shape\": [0], \"data_offsets\": [26, 26]}}",
        " {\n\"\\u0065\":{\"data_offsets\":[26,26],\"shape\":[0],\"dtype\":\"I64\"},\"__metadata__\":{\"a\":\"1\","
        "\"b\":\"\\u0032\"}\t,\"y.z\":{\"dtype\":\"BF16\",\"shape\":[ "
        "],\"data_offsets\":[24,26]},\"x\":{\"dt\\u0079pe\":"
        "\"\\u004632\",\"shape\":[ 2,3],\"data_offsets\":[0,24]}}  ",
    };
    heft__listing first, other;
    assert_int_equal(scan_text(headers[0], 26, NULL, &first, NULL), HEFT_OK);
    assert_int_equal(first.nentries, 3);
    assert_string_equal(first.entries[0].name, "x");
    assert_string_equal(first.entries[1].name, "y.z");
    for (size_t i = 1; i < 3; i++) {
        heft_error err;
        assert_int_equal(scan_text(headers[i], 26, NULL, &other, &err), HEFT_OK);
        scan_assert_equal(&first, &other);
        heft__listing_free(&other);
    }
    heft__listing_free(&first);
}

/* A header of `n` entries in some order and mixture of spellings. */
static char *make_header(uint64_t n, uint64_t *seed, bool shuffled, uint64_t *data_nbytes) {
    static const char *const dtypes[] = {"U8", "F32", "BF16", "F8_E4M3"};
    char *text = malloc(n * 160 + 100), *p = text;
    uint64_t *order = malloc(n * sizeof *order);
    for (uint64_t i = 0; i < n; i++) order[i] = i;
    for (uint64_t i = n; shuffled && i > 1; i--) {
        uint64_t k = random_below(seed, i), keep = order[i - 1];
        order[i - 1] = order[k];
        order[k] = keep;
    }
    *p++ = '{';
    for (uint64_t i = 0; i < n; i++) {
        static const uint64_t widths[] = {1, 4, 2, 1};
        uint64_t k = order[i], kind = random_below(seed, 4), begin = k * 4, dim = 4 / widths[kind];
        const char *form = random_below(seed, 8)
                               ? "%s\"t.%llu.%s\":{\"dtype\":\"%s\",\"shape\":[%llu,1],\"data_offsets\":[%llu,%llu]}"
                               : "%s \"t.%llu.%s\":{\"dtype\":\"%s\",\"shape\":[%llu,1] ,\"data_offsets\":[%llu,%llu]}";
        p += sprintf(p, form, i ? "," : "", (unsigned long long)k, random_below(seed, 2) ? "weight" : "bias",
                     dtypes[kind], (unsigned long long)dim, (unsigned long long)begin, (unsigned long long)begin + 4);
    }
    strcpy(p, "}");
    free(order);
    *data_nbytes = n * 4;
    return text;
}

static heft_status scan_one_by_one(const uint8_t *file, size_t n, heft__listing *listing) {
    heft__scan_options options = {0};
    heft_source *source;
    assert_int_equal(heft_source_open_memory(file, n, "file", NULL, NULL, &source, NULL), HEFT_OK);
    heft__listing_init(listing, &heft__default_allocator);
    listing->source = source;
    return heft__safetensors_scan(file, n < 16 ? n : 16, &options, true, listing, NULL);
}

static void both_readers_agree_on_large_headers(void **state) {
    (void)state;
    uint64_t seed = 5;
    for (uint64_t round = 0; round < test_count(40); round++) {
        uint64_t data, entries = random_below(&seed, 3000) + 1;
        char *header = make_header(entries, &seed, round % 2, &data);
        size_t n;
        uint8_t *file = scan_file(header, strlen(header), data, &n);
        heft__listing fast, slow;
        heft_error err;
        assert_int_equal(scan_bytes(file, n, NULL, NULL, &fast, &err), HEFT_OK);
        assert_int_equal(scan_one_by_one(file, n, &slow), HEFT_OK);
        assert_int_equal(fast.nentries, entries);
        scan_assert_equal(&fast, &slow);
        for (uint64_t i = 1; i < entries; i++) assert_true(fast.entries[i - 1].end == fast.entries[i].begin);
        heft__listing_free(&fast);
        heft__listing_free(&slow);
        free(file);
        free(header);
    }
}

static void file_order_is_begin_end_name(void **state) {
    (void)state;
    heft__listing listing;
    assert_int_equal(
        scan_text("{" E("d", "U8", "1", 0, 1) "," E("c", "U8", "0", 0, 0) "," E("z", "U8", "0", 1, 1) "," E(
                      "a", "U8", "0", 0, 0) "," E("b", "U8", "0", 1, 1) "," E("aa", "U8", "0", 0, 0) "}",
                  1, NULL, &listing, NULL),
        HEFT_OK);
    static const char *const names[] = {"a", "aa", "c", "d", "b", "z"};
    for (uint32_t i = 0; i < 6; i++) {
        assert_string_equal(listing.entries[i].name, names[i]);
        assert_int_equal(heft__listing_find(&listing, names[i], strlen(names[i])), i);
    }
    assert_int_equal(heft__listing_find(&listing, "nobody", 6), UINT32_MAX);
    assert_int_equal(heft__listing_find(&listing, "", 0), UINT32_MAX);
    heft__listing_free(&listing);
}

static void metadata_is_unescaped_unique_and_sorted(void **state) {
    (void)state;
    heft__listing listing;
    assert_int_equal(
        scan_text("{\"__metadata__\":{\"b\":\"1\",\"\\u0061\\n\":\"x\\u0000y\",\"\":\"\",\"b\":\"2\",\"a\":\"\\ud83d"
                  "\\ude00\",\"abcdefghi\":\"l\",\"abcdefgh\":\"s\"}}",
                  0, NULL, &listing, NULL),
        HEFT_OK);
    static const struct {
        const char *key, *value;
        size_t value_len;
    } pairs[] = {{"", "", 0},          {"a", "\xF0\x9F\x98\x80", 4}, {"a\n", "x\0y", 3},
                 {"abcdefgh", "s", 1}, {"abcdefghi", "l", 1},        {"b", "2", 1}};
    assert_true(listing.has_metadata);
    assert_int_equal(listing.nmetadata, 6);
    for (size_t i = 0; i < 6; i++) {
        assert_string_equal(listing.metadata[i].key, pairs[i].key);
        assert_int_equal(listing.metadata[i].key_len, strlen(pairs[i].key));
        assert_int_equal(listing.metadata[i].value_len, pairs[i].value_len);
        assert_memory_equal(listing.metadata[i].value, pairs[i].value, pairs[i].value_len + 1);
    }
    heft__listing_free(&listing);
    static const struct {
        const char *header;
        bool has;
    } rows[] = {{"{}", false}, {"{\"__metadata__\":null}", false}, {"{\"__metadata__\":{}}", true}};
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(scan_text(rows[i].header, 0, NULL, &listing, NULL), HEFT_OK);
        assert_int_equal(listing.has_metadata, rows[i].has);
        assert_int_equal(listing.nmetadata, 0);
        heft__listing_free(&listing);
    }
}

static void fillers_are_known_by_all_their_marks(void **state) {
    (void)state;
    static const struct {
        const char *header;
        uint64_t data, nfillers;
    } rows[] = {
        {"{" E("__heft_pad__.00000000", "U8", "3", 0, 3) "}", 3, 1},
        {"{" E("x", "U8", "0", 0, 0) "," E("__heft_pad__.99999999", "U8", "65535", 0, 65535) "}", 65535, 1},
        {"{" E("x", "U8", "0", 0, 0) "," E("__heft_pad__.00000000", "U8", "65536", 0, 65536) "}", 65536, 0},
        {"{" E("__heft_pad__.0000000", "U8", "3", 0, 3) "}", 3, 0},
        {"{" E("__heft_pad__.000000000", "U8", "3", 0, 3) "}", 3, 0},
        {"{" E("__heft_pad__.0000000a", "U8", "3", 0, 3) "}", 3, 0},
        {"{" E("__heft_pad__.00000000", "I8", "3", 0, 3) "}", 3, 0},
        {"{" E("__heft_pad__.00000000", "U8", "3,1", 0, 3) "}", 3, 0},
        {"{" E("__heft_pad__.00000000", "U8", "", 0, 1) "}", 1, 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        heft__listing listing;
        assert_int_equal(scan_text(rows[i].header, rows[i].data, NULL, &listing, NULL), HEFT_OK);
        assert_int_equal(listing.nfillers, rows[i].nfillers);
        uint32_t flags = 0;
        for (uint64_t k = 0; k < listing.nentries; k++) flags |= listing.entries[k].flags & HEFT__ENTRY_FILLER;
        assert_int_equal(flags, rows[i].nfillers ? HEFT__ENTRY_FILLER : 0);
        heft__listing_free(&listing);
    }
}

static void cases_of_the_reference(void **state) {
    (void)state;
    heft_fault fault;
    uint64_t offset;
    assert_int_equal(scan_verdict("{}\r \t\n", 0, &fault, &offset), HEFT_OK);
    assert_int_equal(scan_verdict("\t\n{}\r ", 0, &fault, &offset), HEFT_OK);
    assert_int_equal(
        scan_verdict("{\"t\":{\"dtype\":\"I32\",\"shape\":[2,0],\"data_offsets\":[0, 0]}}", 0, &fault, &offset),
        HEFT_OK);
    assert_int_equal(scan_verdict("{" E("t", "I32", "", 0, 4) "}", 4, &fault, &offset), HEFT_OK);
    assert_int_equal(scan_verdict("{" E("t", "I32", "2,2", 0, 4) "}", 4, &fault, &offset), HEFT_CORRUPT);
    assert_int_equal(fault, HEFT_FAULT_SIZE_MISMATCH);
    assert_int_equal(scan_verdict("{" E("t", "I32", "2,18446744073709551614", 0, 16) "}", 16, &fault, &offset),
                     HEFT_CORRUPT);
    assert_int_equal(fault, HEFT_FAULT_SHAPE_OVERFLOW);
    assert_int_equal(scan_verdict("{" E("t", "I32", "2,9223372036854775807", 0, 16) "}", 16, &fault, &offset),
                     HEFT_CORRUPT);
    assert_int_equal(fault, HEFT_FAULT_SHAPE_OVERFLOW);
    char ten[1024] = "{";
    for (int i = 0; i < 10; i++)
        sprintf(ten + strlen(ten), "%s\"weight_%d\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[0,16]}",
                i ? "," : "", i);
    strcat(ten, "}");
    assert_int_equal(scan_verdict(ten, 16, &fault, &offset), HEFT_CORRUPT);
    assert_int_equal(fault, HEFT_FAULT_OVERLAP);
}

/* ---- reading and memory ---- */

static const char rich[] = " {\"__metadata__\":{\"k\":\"v\",\"\\u006b\":\"w\"}," E("b\\n", "F32", "2", 0, 8) "," E(
    "c", "U8", "1,1,1,1,1,1,1,1,1", 8,
    9) "," E("a", "U8", "4", 9, 13) "," E("d", "U8", "1", 13,
                                          14) ",\"e\":{\"dtype\":\"I16\",\"shape\":[2],\"x\":[1,{}],"
                                              "\"data_offsets\":[14,18]}," E("__heft_pad__.00000001", "U8", "2", 18,
                                                                             20) "}";

static void opening_reads_the_header_and_no_more(void **state) {
    (void)state;
    size_t n;
    uint8_t *file = scan_file(rich, strlen(rich), 20, &n);
    static const char *const small[] = {"{}", "{} ", "{}     ", "{}      "};
    for (size_t most = 0; most < 3; most++) {
        test_bytes bytes = {.data = file, .nbytes = n, .most = most, .eintr = most == 2};
        heft_source *source = test_source(&bytes);
        heft__scan_options options = {0};
        heft__listing listing, whole;
        heft__listing_init(&listing, &heft__default_allocator);
        assert_int_equal(heft__scan(source, &options, &listing, NULL), HEFT_OK);
        assert_int_equal(bytes.read_nbytes, 8 + strlen(rich));
        if (most == 0) assert_int_equal(bytes.calls, 2);
        assert_int_equal(scan_bytes(file, n, NULL, NULL, &whole, NULL), HEFT_OK);
        scan_assert_equal(&listing, &whole);
        heft__listing_free(&whole);
        heft__listing_free(&listing);
        heft_source_unref(source);
    }
    free(file);
    for (size_t i = 0; i < 4; i++) {
        file = scan_file(small[i], strlen(small[i]), 0, &n);
        test_bytes bytes = {.data = file, .nbytes = n};
        heft_source *source = test_source(&bytes);
        heft__scan_options options = {0};
        heft__listing listing;
        heft__listing_init(&listing, &heft__default_allocator);
        assert_int_equal(heft__scan(source, &options, &listing, NULL), HEFT_OK);
        assert_int_equal(bytes.read_nbytes, n);
        heft__listing_free(&listing);
        heft_source_unref(source);
        free(file);
    }
}

static void a_read_that_fails_is_no_verdict(void **state) {
    (void)state;
    size_t n;
    uint8_t *file = scan_file(rich, strlen(rich), 20, &n);
    for (int collect = 0; collect < 2; collect++) {
        for (uint64_t call = 1; call <= 3; call++) {
            /* the third round: the file lost its tail after it was opened */
            test_bytes bytes = {.data = file,
                                .nbytes = n,
                                .fail_call = call == 3 ? 0 : call,
                                .fail_errno = EIO,
                                .end = call == 3 ? 50 : 0};
            heft_source *source = test_source(&bytes);
            heft__scan_options options = {.collect = collect};
            heft__listing listing;
            heft_error err;
            heft__listing_init(&listing, &heft__default_allocator);
            assert_int_equal(heft__scan(source, &options, &listing, &err), HEFT_IO);
            if (call == 3)
                assert_int_equal(err.fault, HEFT_FAULT_TRUNCATED);
            else
                assert_int_equal(err.sys_errno, EIO);
            heft__listing_free(&listing);
            heft_source_unref(source);
        }
    }
    free(file);
}

static void every_allocation_may_fail(void **state) {
    (void)state;
    uint64_t seed = 3, data;
    char *large = make_header(500, &seed, true, &data);
    static const char bad[] = "{\"a\":[\"U8\",[1],[0,1]]," E("b", "F99", "1", 1, 2) "," E("a", "U8", "2", 2, 4) "," E(
        "__metadata__", "U8", "1", 0, 1) ",\"__metadata__\":{\"a\":\"b\"}}";
    const struct {
        const char *header;
        uint64_t data;
        heft__scan_options options;
        heft_status status;
    } rows[] = {
        {rich, 20, {0}, HEFT_OK},
        {rich, 25, {.collect = true}, HEFT_OK},
        {large, data, {0}, HEFT_OK},
        {large, data + 1, {.lenient = HEFT_LENIENT_ALL}, HEFT_OK},
        {bad, 9, {.collect = true}, HEFT_OK},
        {bad, 9, {.lenient = HEFT_LENIENT_ALL, .list_unknown_dtypes = true}, HEFT_OK},
        {bad, 3, {.lenient = HEFT_LENIENT_ALL, .list_unknown_dtypes = true}, HEFT_CORRUPT},
        {"{\"a\":1}", 0, {.collect = true}, HEFT_OK},
        {"{\"a\":1}", 0, {0}, HEFT_CORRUPT},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        size_t n;
        uint8_t *file = scan_file(rows[i].header, strlen(rows[i].header), rows[i].data, &n);
        for (uint64_t k = 1;; k++) {
            test_allocator t;
            heft__listing listing;
            heft_error err;
            test_allocator_init(&t, k);
            heft_status status = scan_bytes(file, n, &rows[i].options, &t.alloc, &listing, &err);
            bool all = t.calls < k;
            heft__listing_free(&listing);
            assert_int_equal(t.live_blocks, 0);
            if (all) {
                assert_int_equal(status, rows[i].status);
                break;
            }
            assert_int_equal(status, HEFT_OUT_OF_MEMORY);
            assert_int_equal(err.fault, HEFT_FAULT_MEMORY);
        }
        free(file);
    }
    free(large);
}

/* Blocks end where memory may not be touched, so a byte read or written past the slack of the header is seen. */
static void *guarded_alloc(void *ctx, size_t nbytes) {
    (void)ctx;
    size_t room = (nbytes + 15) / 16 * 16;
    guard *g = malloc(sizeof *g);
    guard_init(g, room + sizeof(guard *) + 16);
    char *p = g->end - room;
    memcpy(p - sizeof g, &g, sizeof g);
    return p;
}

static void guarded_free(void *ctx, void *ptr, size_t nbytes) {
    (void)ctx;
    (void)nbytes;
    guard *g;
    memcpy(&g, (char *)ptr - sizeof g, sizeof g);
    guard_free(g);
    free(g);
}

static void *guarded_realloc(void *ctx, void *ptr, size_t old_nbytes, size_t new_nbytes) {
    void *fresh = guarded_alloc(ctx, new_nbytes);
    memcpy(fresh, ptr, old_nbytes < new_nbytes ? old_nbytes : new_nbytes);
    guarded_free(ctx, ptr, old_nbytes);
    return fresh;
}

/* Every prefix of a header as the whole header, so that each literal, number and string is cut at each place. */
static void nothing_behind_the_header_is_touched(void **state) {
    (void)state;
    static const heft_allocator alloc = {NULL, guarded_alloc, guarded_realloc, guarded_free};
    static const char *const texts[] = {"{" E("a", "F8_E4M3FNUZ", "1,2,3", 123, 456) "," E(
                                            "bcd", "F8_E4M3FNUZ", "18446744073709551615", 12345678901234567890, 1) "}",
                                        "{\"a\": {\"dtype\": \"U8\", \"shape\": [1, 2], \"data_offsets\": [0, 2]}, "
                                        "\"b\": {\"dtype\": \"U8\", \"shape\": [1, 2], "
                                        "\"data_offsets\": [2, 4]}}",
                                        rich};
    for (size_t i = 0; i < 3; i++) {
        for (size_t len = 0; len <= strlen(texts[i]); len++) {
            for (int collect = 0; collect < 2; collect++) {
                size_t n;
                uint8_t *file = scan_file(texts[i], len, 4, &n);
                heft__scan_options options = {.collect = collect, .lenient = HEFT_LENIENT_ALL};
                heft__listing listing;
                scan_bytes(file, n, &options, &alloc, &listing, NULL);
                heft__listing_free(&listing);
                free(file);
            }
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_failure_wins),
        cmocka_unit_test(the_last_end_does_not_wrap),
        cmocka_unit_test(lengths_are_checked_before_anything),
        cmocka_unit_test(limits_can_be_raised_up_to_spans),
        cmocka_unit_test(each_lenient_bit_admits_its_own),
        cmocka_unit_test(nul_padding),
        cmocka_unit_test(lenient_has_limits),
        cmocka_unit_test(a_reserved_name_lies_beside_metadata),
        cmocka_unit_test(unknown_dtypes_can_be_listed),
        cmocka_unit_test(a_check_records_all),
        cmocka_unit_test(a_check_notes_what_is_accepted),
        cmocka_unit_test(a_check_ends_at_a_fault_of_syntax),
        cmocka_unit_test(holes_and_tails_are_looked_at),
        cmocka_unit_test(spelling_makes_no_difference),
        cmocka_unit_test(both_readers_agree_on_large_headers),
        cmocka_unit_test(file_order_is_begin_end_name),
        cmocka_unit_test(metadata_is_unescaped_unique_and_sorted),
        cmocka_unit_test(fillers_are_known_by_all_their_marks),
        cmocka_unit_test(cases_of_the_reference),
        cmocka_unit_test(opening_reads_the_header_and_no_more),
        cmocka_unit_test(a_read_that_fails_is_no_verdict),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(nothing_behind_the_header_is_touched),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
