/* npy: the grammar of its header, what is refused and where, and the header that is written. */
#include "helper_guard.h"
#include "helper_scan.h"

#include "format/npy.h"

#define PLAIN "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }"

/* A file of this header text in version 1.0 and `data` zero bytes. malloc'ed. */
static uint8_t *npy_file(const char *text, size_t data, size_t *n) {
    size_t len = strlen(text);
    uint8_t *file = calloc(1, 10 + len + data);
    memcpy(file, "\x93NUMPY\1\0", 8);
    file[8] = (uint8_t)(len & 255);
    file[9] = (uint8_t)(len >> 8);
    memcpy(file + 10, text, len);
    *n = 10 + len + data;
    return file;
}

static heft_status verdict(const char *text, size_t data, const heft__scan_options *options, heft_error *err) {
    size_t n;
    heft__listing listing;
    uint8_t *file = npy_file(text, data, &n);
    heft_status status = scan_bytes(file, n, options, NULL, &listing, err);
    heft__listing_free(&listing);
    free(file);
    return status;
}

static void spellings_that_are_read(void **state) {
    (void)state;
    static const char *const texts[] = {
        PLAIN,
        PLAIN "\n",
        PLAIN "     \n",
        " \t{ \"shape\" : ( 2 , 3 ) , \"fortran_order\" : False , \"descr\" : \"<f4\" } \n",
        "{'shape':(2,3),'descr':'f4','fortran_order':False}",
        "{'descr': '=f4', 'fortran_order': False, 'shape': (2, 3,), }\n",
        "{'descr': '|f4', 'fortran_order': False, 'shape': (2L, 3L), }\n",
        "{'descr': '<c8', 'fortran_order': False, 'shape': (3,), }",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (3,), }",
        "{'descr': '<i8', 'fortran_order': True, 'shape': (1, 3), }",
        "{'descr': '|u1', 'fortran_order': False, 'shape': (24,), }",
        "{'descr': '|b1', 'fortran_order': False, 'shape': (2, 2, 2, 3), }",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        heft_error err;
        if (verdict(texts[i], 24, NULL, &err)) fail_msg("%s: %s", texts[i], err.message);
    }
}

typedef struct bad_header {
    const char *text;
    heft_status status;
    heft_fault fault;
    const char *at; /* the text from the offset on; NULL: no offset is checked */
    const char *says;
} bad_header;

#define WITH(descr, shape) "{'descr': " descr ", 'fortran_order': False, 'shape': " shape ", }"

static const bad_header bad_headers[] = {
    {"", HEFT_CORRUPT, HEFT_FAULT_HEADER_SYNTAX, "", "{ expected"},
    {"[]", HEFT_CORRUPT, HEFT_FAULT_HEADER_SYNTAX, "[]", "{ expected"},
    {"{}", HEFT_CORRUPT, HEFT_FAULT_HEADER_SYNTAX, "}", "'descr' is missing"},
    {"{'descr': '<f4', 'shape': (6,)}", HEFT_CORRUPT, HEFT_FAULT_HEADER_SYNTAX, "}", "'fortran_order' is missing"},
    {"{'descr': '<f4', 'fortran_order': False}", HEFT_CORRUPT, HEFT_FAULT_HEADER_SYNTAX, "}", "'shape' is missing"},
    {"{'descr': '<f4', 'descr': '<f4', 'x", HEFT_CORRUPT, HEFT_FAULT_HEADER_SYNTAX, "'descr': '<f4', 'x", "twice"},
    {"{'descr': '<f4', 'order': 1", HEFT_CORRUPT, HEFT_FAULT_HEADER_SYNTAX, "'order': 1", "unknown key 'order'"},
    {"{'descr' '<f4'", HEFT_CORRUPT, HEFT_FAULT_HEADER_SYNTAX, "'<f4'", "a colon"},
    {"{descr: '<f4'", HEFT_CORRUPT, HEFT_FAULT_HEADER_SYNTAX, "descr: '<f4'", "a key"},
    {"{'descr': '<f4'\n 'shape'", HEFT_CORRUPT, HEFT_FAULT_HEADER_SYNTAX, "'shape'", "a comma or }"},
    {"{'descr': '<f4", HEFT_CORRUPT, HEFT_FAULT_HEADER_SYNTAX, "", "the end of a string"},
    {"{'descr': '<f\\x34'", HEFT_CORRUPT, HEFT_FAULT_HEADER_SYNTAX, "\\x34'", "the end of a string"},
    {"{'fortran_order': 0", HEFT_CORRUPT, HEFT_FAULT_HEADER_SYNTAX, "0", "True or False"},
    {"{'fortran_order': Falsely", HEFT_CORRUPT, HEFT_FAULT_HEADER_SYNTAX, "ly", "a comma or }"},
    {PLAIN "x", HEFT_CORRUPT, HEFT_FAULT_HEADER_SYNTAX, "x", "nothing but blanks"},
    {"{,}", HEFT_CORRUPT, HEFT_FAULT_HEADER_SYNTAX, ",}", "a key"},
    {WITH("'<f4'", "2"), HEFT_CORRUPT, HEFT_FAULT_HEADER_SYNTAX, "2, }", "a tuple"},
    {WITH("'<f4'", "[2]"), HEFT_CORRUPT, HEFT_FAULT_HEADER_SYNTAX, "[2], }", "a tuple"},
    {WITH("'<f4'", "(6)"), HEFT_CORRUPT, HEFT_FAULT_HEADER_SYNTAX, "), }", "a comma after the only dim"},
    {WITH("'<f4'", "(-1,)"), HEFT_CORRUPT, HEFT_FAULT_HEADER_SYNTAX, "-1,), }", "not negative"},
    {WITH("'<f4'", "(2.0,)"), HEFT_CORRUPT, HEFT_FAULT_HEADER_SYNTAX, ".0,), }", "a comma or the end of the shape"},
    {WITH("'<f4'", "(1e3,)"), HEFT_CORRUPT, HEFT_FAULT_HEADER_SYNTAX, "e3,), }", NULL},
    {WITH("'<f4'", "(0x6,)"), HEFT_CORRUPT, HEFT_FAULT_HEADER_SYNTAX, "x6,), }", NULL},
    {WITH("'<f4'", "(True,)"), HEFT_CORRUPT, HEFT_FAULT_HEADER_SYNTAX, "True,), }", NULL},
    {WITH("'<f4'", "(,)"), HEFT_CORRUPT, HEFT_FAULT_HEADER_SYNTAX, ",), }", NULL},
    {WITH("'<f4'", "(2,,3)"), HEFT_CORRUPT, HEFT_FAULT_HEADER_SYNTAX, ",3), }", NULL},
    {WITH("'<f4'", "(2"), HEFT_CORRUPT, HEFT_FAULT_HEADER_SYNTAX, "}", NULL},
    {WITH("'<f4'", "(06,)"), HEFT_CORRUPT, HEFT_FAULT_SHAPE_OVERFLOW, "06,), }", NULL},
    {WITH("'<f4'", "(9223372036854775808,)"), HEFT_CORRUPT, HEFT_FAULT_SHAPE_OVERFLOW, "9223372036854775808,), }",
     NULL},
    {WITH("'<f4'", "(99999999999999999999999,)"), HEFT_CORRUPT, HEFT_FAULT_SHAPE_OVERFLOW, NULL, NULL},
    {WITH("'<f4'", "(4294967296, 4294967296)"), HEFT_CORRUPT, HEFT_FAULT_SHAPE_OVERFLOW, NULL, "2^63"},
    {WITH("'<f8'", "(1152921504606846976,)"), HEFT_CORRUPT, HEFT_FAULT_SHAPE_OVERFLOW, NULL, "2^63"},
    {WITH("'<f4'", "(7,)"), HEFT_CORRUPT, HEFT_FAULT_TRUNCATED, NULL, "4 missing"},
    {WITH("'<f4'", "(5,)"), HEFT_CORRUPT, HEFT_FAULT_TRAILING_BYTES, NULL, "4 bytes"},
    {WITH("'|O'", "(3,)"), HEFT_UNSUPPORTED, HEFT_FAULT_OBJECT_ARRAY, "|O', 'fortran_order': False, 'shape': (3,), }",
     "pickle"},
    {WITH("'<c16'", "(1,)"), HEFT_UNSUPPORTED, HEFT_FAULT_UNKNOWN_DTYPE, NULL, "complex128"},
    {WITH("'<f16'", "(1,)"), HEFT_UNSUPPORTED, HEFT_FAULT_UNKNOWN_DTYPE, NULL, "long double"},
    {WITH("'|S24'", "(1,)"), HEFT_UNSUPPORTED, HEFT_FAULT_UNKNOWN_DTYPE, NULL, "byte strings"},
    {WITH("'<U6'", "(1,)"), HEFT_UNSUPPORTED, HEFT_FAULT_UNKNOWN_DTYPE, NULL, "texts"},
    {WITH("'<M8[ns]'", "(3,)"), HEFT_UNSUPPORTED, HEFT_FAULT_UNKNOWN_DTYPE, NULL, "dates"},
    {WITH("'<m8'", "(3,)"), HEFT_UNSUPPORTED, HEFT_FAULT_UNKNOWN_DTYPE, NULL, "time spans"},
    {WITH("'|V8'", "(3,)"), HEFT_UNSUPPORTED, HEFT_FAULT_UNKNOWN_DTYPE, NULL, "raw bytes"},
    {WITH("'|V2'", "(12,)"), HEFT_UNSUPPORTED, HEFT_FAULT_UNKNOWN_DTYPE, NULL, "void2"},
    {WITH("'|V1'", "(24,)"), HEFT_UNSUPPORTED, HEFT_FAULT_UNKNOWN_DTYPE, NULL, "void1"},
    {WITH("'<f1'", "(24,)"), HEFT_UNSUPPORTED, HEFT_FAULT_UNKNOWN_DTYPE, NULL, "void1"},
    {WITH("''", "(3,)"), HEFT_CORRUPT, HEFT_FAULT_HEADER_SYNTAX, NULL, "no dtype"},
    {WITH("'<'", "(3,)"), HEFT_CORRUPT, HEFT_FAULT_HEADER_SYNTAX, NULL, "no dtype"},
    {WITH("'<f'", "(3,)"), HEFT_CORRUPT, HEFT_FAULT_HEADER_SYNTAX, NULL, "no dtype"},
    {WITH("'<f3'", "(3,)"), HEFT_CORRUPT, HEFT_FAULT_HEADER_SYNTAX, NULL, "no dtype"},
    {WITH("'<f4x'", "(3,)"), HEFT_CORRUPT, HEFT_FAULT_HEADER_SYNTAX, NULL, "no dtype"},
    {WITH("'<f04'", "(3,)"), HEFT_CORRUPT, HEFT_FAULT_HEADER_SYNTAX, NULL, "no dtype"},
    {WITH("'<f99999999999999999999'", "(3,)"), HEFT_CORRUPT, HEFT_FAULT_HEADER_SYNTAX, NULL, "no dtype"},
    {WITH("'<q8'", "(3,)"), HEFT_CORRUPT, HEFT_FAULT_HEADER_SYNTAX, NULL, "no dtype"},
    {WITH("'\x1b[31m'", "(3,)"), HEFT_CORRUPT, HEFT_FAULT_HEADER_SYNTAX, NULL, "\\x1B"},
    {WITH("[('x', '<f4'), ('y z', '<i4', (2,)), (('t', 'n'), '<f4')]", "(3,)"), HEFT_UNSUPPORTED,
     HEFT_FAULT_STRUCTURED_ARRAY, NULL, "the fields x, y z"},
    {WITH("[", ""), HEFT_UNSUPPORTED, HEFT_FAULT_STRUCTURED_ARRAY, NULL, "structured"},
    {WITH("('<f4', (2,))", "(3,)"), HEFT_UNSUPPORTED, HEFT_FAULT_STRUCTURED_ARRAY, NULL, "sub-arrays"},
};

static void spellings_that_are_refused(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof bad_headers / sizeof *bad_headers; i++) {
        const bad_header *b = &bad_headers[i];
        heft_error err = {0};
        heft_status status = verdict(b->text, 24, NULL, &err);
        if (status != b->status || err.fault != b->fault) fail_msg("%s: %d %s", b->text, status, err.message);
        if (b->at && err.offset != 10 + strlen(b->text) - strlen(b->at))
            fail_msg("%s: offset %llu: %s", b->text, (unsigned long long)err.offset, err.message);
        if (b->says && !strstr(err.message, b->says)) fail_msg("%s: %s", b->text, err.message);
        assert_int_equal(strncmp(err.message, "file: ", 6), 0);
        heft__scan_options collect = {.collect = true}; /* a check says the same */
        size_t n;
        heft__listing listing;
        uint8_t *file = npy_file(b->text, 24, &n);
        assert_int_equal(scan_bytes(file, n, &collect, NULL, &listing, NULL), HEFT_OK);
        assert_true(listing.fatal ? listing.fatal->fault == b->fault : listing.faults.count == 1);
        heft__listing_free(&listing);
        free(file);
    }
}

/* Each proper prefix of a header text in memory that may not be read beyond: no crash, and no success. */
static void prefixes_in_guarded_memory(void **state) {
    (void)state;
    static const char text[] = PLAIN "  \n";
    size_t n;
    uint8_t *file = npy_file(text, 24, &n);
    heft__scan_options options = {0};
    heft__npy npy;
    uint64_t extra, header;
    heft_error err;
    guard g;
    guard_init(&g, 4096);
    for (size_t i = 0; i < n; i++) {
        const uint8_t *head = (const uint8_t *)guard_copy(&g, file, i < HEFT__NPY_PREFIX ? i : HEFT__NPY_PREFIX);
        heft_status status =
            heft__npy_length(head, i < HEFT__NPY_PREFIX ? i : HEFT__NPY_PREFIX, i, &options, &header, &err);
        assert_int_equal(status, i < n - 24 ? HEFT_CORRUPT : HEFT_OK);
    }
    for (size_t len = 0; len < n - 34; len++) { /* the text cut, its length field right */
        file[8] = (uint8_t)len;
        const uint8_t *at = (const uint8_t *)guard_copy(&g, file, 10 + len);
        heft_status status = heft__npy_parse(at, 10 + len, 10 + len + 24, &options, &npy, &extra, &err);
        assert_int_equal(status, len < sizeof PLAIN - 1 ? HEFT_CORRUPT : HEFT_OK);
    }
    guard_free(&g);
    free(file);
}

static void versions_and_limits(void **state) {
    (void)state;
    size_t n;
    heft_error err;
    heft__listing listing;
    uint8_t *file = npy_file(PLAIN, 24, &n);
    static const uint8_t versions[][2] = {{0, 0}, {4, 0}, {1, 1}, {255, 255}};
    for (size_t i = 0; i < 4; i++) {
        file[6] = versions[i][0], file[7] = versions[i][1];
        assert_int_equal(scan_bytes(file, n, NULL, NULL, &listing, &err), HEFT_UNSUPPORTED);
        assert_int_equal(err.offset, 6);
        heft__listing_free(&listing);
    }
    file[6] = 2, file[7] = 0; /* four bytes of length, of which two are text: far beyond the file */
    assert_int_equal(scan_bytes(file, n, NULL, NULL, &listing, &err), HEFT_LIMIT);
    assert_int_equal(err.fault, HEFT_FAULT_HEADER_LIMIT);
    heft__listing_free(&listing);
    file[6] = 1;
    heft__scan_options small = {.max_header_nbytes = 50};
    assert_int_equal(scan_bytes(file, n, &small, NULL, &listing, &err), HEFT_LIMIT);
    assert_int_equal(err.expected, 50);
    heft__listing_free(&listing);
    free(file);
    char text[1200];
    for (int rank = 64; rank <= 65; rank++) {
        int at = snprintf(text, sizeof text, "{'descr': '<f4', 'fortran_order': False, 'shape': (6");
        for (int i = 1; i < rank; i++) at += snprintf(text + at, sizeof text - (size_t)at, ", 1");
        snprintf(text + at, sizeof text - (size_t)at, ")}");
        assert_int_equal(verdict(text, 24, NULL, &err), rank == 64 ? HEFT_OK : HEFT_LIMIT);
    }
}

static void unknown_dtypes_are_listed(void **state) {
    (void)state;
    heft__scan_options options = {.list_unknown_dtypes = true};
    size_t n;
    heft__listing listing;
    heft_error err;
    uint8_t *file = npy_file(WITH("'<U3'", "(2,)"), 24, &n);
    assert_int_equal(scan_bytes(file, n, &options, NULL, &listing, NULL), HEFT_OK);
    assert_int_equal(listing.entries[0].dtype, HEFT_DTYPE_NONE);
    assert_int_equal(listing.entries[0].end, 24);
    assert_int_equal(listing.faults.count, 1);
    heft__fault_describe(&listing.faults.items[0], &listing, &err);
    assert_non_null(strstr(err.message, "24 bytes"));
    heft__listing_free(&listing);
    free(file);
    assert_int_equal(verdict(WITH("'|O'", "(3,)"), 24, &options, &err), HEFT_UNSUPPORTED);
    heft__scan_options voids = {.void1 = HEFT_F8_E4M3, .void2 = HEFT_BF16};
    assert_int_equal(verdict(WITH("'|V2'", "(12,)"), 24, &voids, &err), HEFT_OK);
    assert_int_equal(verdict(WITH("'|V1'", "(24,)"), 24, &voids, &err), HEFT_OK);
    assert_int_equal(verdict(WITH("'|V3'", "(8,)"), 24, &voids, &err), HEFT_UNSUPPORTED);
}

/* The vector of the format's page: length 118, data at 128. The oracle compares many more with NumPy. */
static void headers_that_are_written(void **state) {
    (void)state;
    uint8_t out[HEFT__NPY_EMIT_MAX];
    uint64_t shape[] = {2, 3}, large[64];
    size_t n;
    heft_error err;
    assert_int_equal(heft__npy_header(HEFT_F32, 2, shape, false, HEFT_FOREIGN_REFUSE, out, &n, &err), HEFT_OK);
    assert_int_equal(n, 128);
    assert_memory_equal(out, "\x93NUMPY\1\0\x76\0{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }   ", 72);
    assert_int_equal(out[127], '\n');
    assert_int_equal(heft__npy_header(HEFT_F32, 2, shape, true, HEFT_FOREIGN_REFUSE, out, &n, &err), HEFT_OK);
    assert_memory_equal(out, "\x93NUMPY\1\0\x76\0{'descr': '<f4', 'fortran_order': True, 'shape': (3, 2), }    ", 72);
    for (size_t i = 0; i < 64; i++) large[i] = UINT64_MAX;
    assert_int_equal(heft__npy_header(HEFT_F32, 64, large, false, HEFT_FOREIGN_REFUSE, out, &n, &err), HEFT_OK);
    assert_true(n % 64 == 0 && n < sizeof out);
    assert_int_equal(heft__npy_header(HEFT_BF16, 0, NULL, false, HEFT_FOREIGN_REFUSE, out, &n, &err), HEFT_UNSUPPORTED);
    assert_int_equal(heft__npy_header(HEFT_BF16, 0, NULL, false, HEFT_FOREIGN_VOID, out, &n, &err), HEFT_OK);
    assert_non_null(strstr((char *)out + 10, "|V2"));
    assert_int_equal(heft__npy_header(HEFT_F8_E4M3, 0, NULL, false, HEFT_FOREIGN_UINT, out, &n, &err), HEFT_OK);
    assert_non_null(strstr((char *)out + 10, "|u1"));
    assert_int_equal(heft__npy_header(HEFT_F4, 0, NULL, false, HEFT_FOREIGN_UINT, out, &n, &err), HEFT_UNSUPPORTED);
    assert_int_equal(heft__npy_header(HEFT_F32, 65, NULL, false, HEFT_FOREIGN_REFUSE, out, &n, &err), HEFT_LIMIT);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(spellings_that_are_read),    cmocka_unit_test(spellings_that_are_refused),
        cmocka_unit_test(prefixes_in_guarded_memory), cmocka_unit_test(versions_and_limits),
        cmocka_unit_test(unknown_dtypes_are_listed),  cmocka_unit_test(headers_that_are_written),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
