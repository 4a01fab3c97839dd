/* label: full */
/* Headers made to cost: memory stays below 8 times the header (2 times and 64 bytes a tensor for ordinary ones), work
 * below anything quadratic (a test that hangs is one that fails). Memory is counted at the allocator. */
#include "helper_scan.h"

#include "helper_files.h"
#include "helper_random.h"

typedef struct text {
    char *at, *start;
    uint64_t room;
} text;

static uint64_t header_limit; /* the reference's 100,000,000, or less on slow machines */

static text text_new(uint64_t room) {
    char *start = malloc(room + 4096);
    assert_non_null(start);
    return (text){start + 8, start, room};
}

static bool text_has_room(const text *t, uint64_t more) {
    return (uint64_t)(t->at - t->start) + more <= t->room + 8;
}

static void put(text *t, const char *s) {
    size_t n = strlen(s);
    memcpy(t->at, s, n);
    t->at += n;
}

static void put_number(text *t, uint64_t value) {
    char digits[24];
    int n = 0;
    do digits[n++] = (char)('0' + value % 10);
    while (value /= 10);
    while (n > 0) *t->at++ = digits[--n];
}

/* A name of printable characters that is another one for each number. */
static void put_name(text *t, uint64_t number) {
    *t->at++ = '"';
    do {
        *t->at++ = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"[number % 64];
    } while (number /= 64);
    *t->at++ = '"';
}

typedef struct verdict {
    heft_status status;
    heft_fault fault;
    uint64_t nentries, nfaults, peak, header;
} verdict;

/* Scans the text and `data` bytes after it, and frees it. */
static verdict scan(text *t, uint64_t data, heft__scan_options options) {
    verdict v = {0};
    test_allocator counting;
    heft__listing listing;
    heft_error err = {0};
    uint64_t n = v.header = (uint64_t)(t->at - t->start) - 8;
    assert_true(data <= 4096);
    memset(t->at, 0, data);
    for (int i = 0; i < 8; i++) t->start[i] = (char)(n >> 8 * i);
    if (n > 100000000) options.max_header_nbytes = n;
    test_allocator_init(&counting, 0);
    v.status = scan_bytes(t->start, 8 + n + data, &options, &counting.alloc, &listing, &err);
    v.fault = listing.fatal ? listing.fatal->fault : err.fault;
    v.nentries = listing.nentries;
    v.nfaults = listing.faults.count;
    v.peak = counting.peak_nbytes;
    heft__listing_free(&listing);
    assert_int_equal(counting.live_blocks, 0);
    free(t->start);
    return v;
}

/* The allocator counts a block that grows as two, old and new, though of the new one only what is written becomes
 * resident. `bound` is 8 where that makes no difference. */
static void assert_below(const char *what, verdict v, uint64_t bound) {
    print_message("%-52s %10llu bytes, peak %.2f headers, %llu entries, %llu faults\n", what,
                  (unsigned long long)v.header, (double)v.peak / (double)v.header, (unsigned long long)v.nentries,
                  (unsigned long long)v.nfaults);
    assert_true(v.peak <= bound * v.header + 65536);
}

static void assert_bounded(const char *what, verdict v) {
    assert_below(what, v, 8);
}

static void an_ordinary_header(void **state) {
    (void)state;
    for (int kind = 0; kind < 3; kind++) { /* short names, long names, in reverse order */
        text t = text_new(header_limit * 36 / 100);
        uint64_t count = 0, begin = kind == 2 ? UINT64_C(1) << 30 : 0;
        put(&t, "{");
        while (text_has_room(&t, 200)) {
            if (count) put(&t, ",");
            put(&t, kind == 1 ? "\"model.layers.10.block_sparse_moe.experts." : "\"layers.10.");
            put_number(&t, count++);
            put(&t, ".weight\":{\"dtype\":\"U8\",\"shape\":[1,1],\"data_offsets\":[");
            put_number(&t, begin);
            put(&t, ",");
            put_number(&t, begin + 1);
            put(&t, "]}");
            begin += kind == 2 ? UINT64_MAX : 1;
        }
        put(&t, "}");
        /* the data is not there, but everything before check 9 has been done */
        verdict v = scan(&t, 0, (heft__scan_options){.lenient = HEFT_LENIENT_HOLE});
        assert_int_equal(v.status, HEFT_CORRUPT);
        assert_int_equal(v.fault, HEFT_FAULT_TRUNCATED);
        assert_int_equal(v.nentries, count);
        assert_bounded("ordinary", v);
        assert_true(v.peak <= 2 * v.header + 64 * v.nentries);
    }
}

/* Names of one range each, which overlap all: 1.7 million in 100 MB. In the order of their names, or mixed. */
static void put_overlapping(text *t, uint64_t mixed) {
    uint64_t count = 0;
    put(t, "{");
    while (text_has_room(t, 80)) {
        if (count) put(t, ",");
        put_name(t, mixed ? count * mixed % (UINT64_C(1) << 36) : count);
        count++;
        put(t, ":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}");
    }
    put(t, "}");
}

static void overlapping_names(void **state) {
    (void)state;
    for (int collect = 0; collect < 2; collect++) {
        text t = text_new(header_limit);
        put_overlapping(&t, collect ? UINT64_C(0x9E3779B97F4A7C15) : 0);
        verdict v = scan(&t, 4, (heft__scan_options){.collect = collect});
        assert_int_equal(v.status, collect ? HEFT_OK : HEFT_CORRUPT);
        assert_true(v.nentries > header_limit / 60);
        if (collect)
            assert_in_range(v.nfaults, v.nentries - 1, v.nentries + 3);
        else
            assert_int_equal(v.fault, HEFT_FAULT_OVERLAP);
        assert_bounded("overlapping names", v);
    }
}

static void ten_million_names(void **state) {
    (void)state;
    text t = text_new(header_limit / 10 * 56);
    put_overlapping(&t, 0);
    verdict v = scan(&t, 4, (heft__scan_options){0});
    assert_int_equal(v.fault, HEFT_FAULT_OVERLAP);
    assert_bounded("ten million names, the limit raised", v);
}

static void many_names_on_one_tensor(void **state) {
    (void)state;
    text t = text_new(header_limit);
    put(&t, "{");
    for (uint64_t i = 0; i < 100000 && text_has_room(&t, 100); i++) {
        if (i) put(&t, ",");
        put_name(&t, i);
        put(&t, ":{\"dtype\":\"U8\",\"shape\":[1000],\"data_offsets\":[0,1000]}");
    }
    put(&t, "}");
    verdict v = scan(&t, 1000, (heft__scan_options){0});
    assert_int_equal(v.fault, HEFT_FAULT_OVERLAP);
    assert_bounded("100,000 names on one tensor", v);
}

static void holes(void **state) {
    (void)state;
    for (int collect = 0; collect < 2; collect++) {
        text t = text_new(header_limit);
        put(&t, "{");
        uint64_t count = 0;
        while (text_has_room(&t, 100)) {
            if (count) put(&t, ",");
            put_name(&t, count++);
            put(&t, ":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[");
            put_number(&t, count);
            put(&t, ",");
            put_number(&t, count);
            put(&t, "]}");
        }
        put(&t, "}");
        verdict v = scan(&t, 100, (heft__scan_options){.lenient = HEFT_LENIENT_HOLE, .collect = collect});
        assert_int_equal(v.status, collect ? HEFT_OK : HEFT_CORRUPT); /* they leave the file in the end */
        assert_int_equal(v.fault, collect ? HEFT_FAULT_NONE : HEFT_FAULT_TRUNCATED);
        assert_in_range(v.nfaults, count, count + 4);
        assert_bounded("holes", v);
    }
}

/* The entries that take the least text, each with several deviations; at first nothing but blanks, so that what will
 * come is foreseen badly. */
static void dense_deviations(void **state) {
    (void)state;
    static const struct {
        const char *what, *value;
        bool same_name;
        uint64_t blanks; /* percent */
    } rows[] = {
        {"array entries", ":[\"U8\",[],[0,0]]", false, 0},
        {"array entries after blanks", ":[\"U8\",[],[0,0]]", false, 10},
        {"one name, array entries", ":[\"U8\",[],[0,0]]", true, 0},
        {"one name, array entries after blanks", ":[\"U8\",[],[0,0]]", true, 20},
        {"array entries, dtypes as objects", ":[{\"U8\":null},[],[0,0]]", false, 0},
        {"one name, array entries, unknown dtypes as objects", ":[{\"\":null},[],[0,0]]", true, 0},
        {"scalars that overlap", ":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,2]}", false, 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        for (int collect = 0; collect < 2; collect++) {
            text t = text_new(header_limit / 2);
            uint64_t count = 0;
            for (uint64_t k = 0; k < t.room / 100 * rows[i].blanks; k++) *t.at++ = ' ';
            put(&t, "{");
            while (text_has_room(&t, 100)) {
                if (count) put(&t, ",");
                put_name(&t, rows[i].same_name ? 0 : count);
                count++;
                put(&t, rows[i].value);
            }
            put(&t, "}");
            heft__scan_options options = {.lenient = HEFT_LENIENT_ALL, .collect = collect, .list_unknown_dtypes = true};
            verdict v = scan(&t, 0, options);
            assert_true(v.nentries == (rows[i].same_name ? 1 : count) || v.status);
            assert_below(rows[i].what, v, 10);
        }
    }
}

static void large_shapes(void **state) {
    (void)state;
    for (int kind = 0; kind < 3; kind++) { /* 50 million dims, a list of commas, many shapes of many dims */
        text t = text_new(header_limit);
        uint64_t count = 0;
        put(&t, "{");
        while (text_has_room(&t, 200000)) {
            if (count) put(&t, ",");
            put_name(&t, count++);
            put(&t, ":{\"dtype\":\"U8\",\"shape\":[");
            for (uint64_t k = 0; kind < 2 ? text_has_room(&t, 100) : k < 66000; k++) put(&t, kind == 1 ? "," : "1,");
            put(&t, "1],\"data_offsets\":[");
            put_number(&t, count - 1);
            put(&t, ",");
            put_number(&t, count);
            put(&t, "]}");
        }
        put(&t, "}");
        verdict v = scan(&t, count, (heft__scan_options){0});
        assert_int_equal(v.status, kind == 1 ? HEFT_CORRUPT : HEFT_OK);
        assert_bounded(kind == 0   ? "one shape of 50 million dims"
                       : kind == 1 ? "commas for a shape"
                                   : "shapes of 66,001 dims",
                       v);
    }
}

static void metadata_pairs(void **state) {
    (void)state;
    for (int kind = 0; kind < 3; kind++) { /* 10 million keys in order, mixed, one key */
        text t = text_new(header_limit);
        uint64_t count = 0;
        put(&t, "{\"__metadata__\":{");
        while (text_has_room(&t, 40)) {
            if (count) put(&t, ",");
            if (kind == 2)
                put(&t, "\"\"");
            else
                put_name(&t, kind ? count * UINT64_C(7368787) % (UINT64_C(1) << 24) : count);
            count++;
            put(&t, ":\"\"");
        }
        put(&t, "}}");
        verdict v = scan(&t, 0, (heft__scan_options){0});
        assert_int_equal(v.status, HEFT_OK);
        assert_bounded(kind == 2 ? "one metadata key again and again" : "metadata pairs", v);
    }
}

static void brackets_and_names(void **state) {
    (void)state;
    for (int kind = 0; kind < 3; kind++) { /* brackets in a field, braces as entries, a name of 64 MiB */
        text t = text_new(header_limit);
        uint64_t most = header_limit < UINT64_C(64) << 20 ? header_limit / 2 : UINT64_C(64) << 20;
        put(&t, kind == 0 ? "{\"a\":{\"x\":" : "{\"");
        for (uint64_t i = 0; i < (kind == 2 ? most : header_limit / 100); i++)
            put(&t, kind == 0 ? "[" : kind == 1 ? "{\"a\":" : "n");
        if (kind == 2) put(&t, "\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1]}}");
        verdict v = scan(&t, 1, (heft__scan_options){0});
        assert_int_equal(v.status, kind == 2 ? HEFT_OK : HEFT_CORRUPT);
        assert_bounded(kind == 0 ? "nested brackets" : kind == 1 ? "nested braces" : "a name of 64 MiB", v);
    }
}

/* The value of __metadata__ is tried as metadata and as an entry; again and again it must not become quadratic. */
static void reserved_names(void **state) {
    (void)state;
    text t = text_new(header_limit / 2);
    put(&t, "{\"a\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1]}");
    while (text_has_room(&t, 100)) put(&t, ",\"__metadata__\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1]}");
    put(&t, "}");
    verdict v = scan(&t, 1, (heft__scan_options){.collect = true});
    assert_int_equal(v.nentries, 2);
    assert_bounded("tensors named __metadata__", v);
}

int main(void) {
    header_limit = test_count(100000000);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_ordinary_header),
        cmocka_unit_test(overlapping_names),
        cmocka_unit_test(ten_million_names),
        cmocka_unit_test(many_names_on_one_tensor),
        cmocka_unit_test(holes),
        cmocka_unit_test(dense_deviations),
        cmocka_unit_test(large_shapes),
        cmocka_unit_test(metadata_pairs),
        cmocka_unit_test(brackets_and_names),
        cmocka_unit_test(reserved_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
