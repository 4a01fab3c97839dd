/* Reports: the order of their records, and the memory that those of a hostile header take. */
#include "helper_files.h"

#include "catalog/catalog.h"
#include "helper_random.h"

/* ---- order ---- */

static bool comes_before(const heft__fault *a, const heft__fault *b) {
    if (a->file != b->file) return a->file + 1 < b->file + 1;
    return a->offset + 1 < b->offset + 1;
}

/* Any mixture of sorted runs: by file, then offset, equal ones as they came. `value` numbers them. */
static void records_are_sorted_and_equal_ones_stay(void **state) {
    (void)state;
    uint64_t seed = 7;
    for (uint64_t round = 0; round < test_count(4000); round++) {
        heft_report *report = heft__report_new(&heft__default_allocator);
        assert_non_null(report);
        uint64_t n = random_below(&seed, 70), run = 1 + random_below(&seed, 40), last = 0;
        bool seen[70] = {false};
        for (uint64_t i = 0; i < n; i++) {
            heft__fault fault = {.entry = UINT32_MAX, .value = i};
            uint64_t draw = random_below(&seed, 5);
            fault.file = draw == 4 ? UINT32_MAX : (uint32_t)draw / 2;
            last = i % run ? last + random_below(&seed, 3) : random_below(&seed, 20);
            fault.offset = random_below(&seed, 8) ? last : HEFT_NONE;
            heft__report_add(report, fault);
        }
        assert_true(heft__report_sort(report));
        assert_int_equal(report->faults.count, n);
        for (uint64_t i = 0; i < n; i++) {
            const heft__fault *fault = &report->faults.items[i];
            assert_false(seen[fault->value]);
            seen[fault->value] = true;
            if (i == 0) continue;
            assert_false(comes_before(fault, fault - 1));
            if (!comes_before(fault - 1, fault)) assert_true(fault[-1].value < fault->value);
        }
        heft__report_free(report);
    }
}

/* Each listing's records arrive, with its number, behind what is there. */
static void listings_are_taken(void **state) {
    (void)state;
    heft_report *report = heft__report_new(&heft__default_allocator);
    assert_non_null(report);
    for (uint32_t file = 0; file < 50; file++) {
        heft__listing listing;
        heft__listing_init(&listing, &heft__default_allocator);
        for (uint64_t i = 0; i < file % 7 * 5; i++) {
            heft__fault fault = {.file = 99, .entry = UINT32_MAX, .offset = i, .value = file};
            assert_true(heft__faults_add(&listing.faults, &listing.alloc, fault));
        }
        uint64_t before = report->faults.count, n = listing.faults.count;
        heft__report_take_listing(report, &listing, file);
        assert_int_equal(report->faults.count, before + n);
        assert_int_equal(listing.faults.count, 0);
        for (uint64_t i = 0; i < n; i++) {
            const heft__fault *fault = &report->faults.items[before + i];
            assert_int_equal(fault->file, file);
            assert_int_equal(fault->value, file);
            assert_int_equal(fault->offset, i);
        }
        heft__listing_free(&listing);
    }
    assert_false(report->failed);
    heft__report_free(report);
}

/* ---- memory ---- */

/* A file whose entries, each of several deviations, take little text. */
static uint8_t *dense_file(const char *value, bool backwards, size_t *nbytes, uint64_t *nheader) {
    enum { COUNT = 20000 };
    char *text = malloc(COUNT * 80);
    assert_non_null(text);
    size_t n = 0;
    text[n++] = '{';
    for (uint32_t i = 0; i < COUNT; i++) {
        uint32_t number = backwards ? COUNT - i : i + 1;
        n += (size_t)sprintf(text + n, "%s\"%x\":[", i ? "," : "", number);
        n += (size_t)sprintf(text + n, value, number, number);
        text[n++] = ']';
    }
    text[n++] = '}';
    uint8_t *data = calloc(1, COUNT);
    assert_non_null(data);
    uint8_t *file = test_raw_safetensors(text, n, data, COUNT, nbytes);
    free(data);
    free(text);
    *nheader = n;
    return file;
}

/* What is measured is all that an open archive, or a report of a check, ever held at once. */
static void many_records_cost_little(void **state) {
    (void)state;
    static const struct {
        const char *value;
        bool backwards;
        double open, check; /* bounds as multiples of the header */
    } rows[] = {
        {"\"U8\",[0],[%u,%u]", false, 8, 8},
        {"\"U8\",[0],[%u,%u]", true, 8, 8},
        {"{\"U8\":null},[0],[%u,%u]", true, 8, 8},
        {"{\"U8\":null},[],[9,%u]", true, 8, 10},
        {"\"\",[],[9,0]", false, 8, 13},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        size_t nbytes;
        uint64_t nheader;
        uint8_t *file = dense_file(rows[i].value, rows[i].backwards, &nbytes, &nheader);
        heft_source *source;
        assert_int_equal(heft_source_open_memory(file, nbytes, NULL, NULL, NULL, &source, NULL), HEFT_OK);
        test_allocator counting;
        test_allocator_init(&counting, 0);
        heft_open_options options = {
            .struct_size = sizeof options, .lenient = HEFT_LENIENT_ALL, .allocator = &counting.alloc};
        heft_archive *archive;
        heft_status status = heft_archive_open_source(source, &options, &archive, NULL);
        double open = (double)counting.peak_nbytes / (double)nheader;
        heft_archive_unref(archive);
        assert_int_equal(counting.live_blocks, 0);
        counting.peak_nbytes = 0;
        heft_report *report;
        assert_int_equal(heft_check_source(source, &options, &report, NULL), HEFT_OK);
        double check = (double)counting.peak_nbytes / (double)nheader;
        print_message("%-28s open %2d %5.2f headers, check %5.2f, %llu records\n", rows[i].value, status, open, check,
                      (unsigned long long)heft_report_count(report));
        heft_report_free(report);
        assert_int_equal(counting.live_blocks, 0);
        assert_true(open <= rows[i].open);
        assert_true(check <= rows[i].check);
        heft_source_unref(source);
        free(file);
    }
}

/* ---- accounting ---- */

/* A hole in which tensors without bytes lie is counted once. */
static void holes_are_counted_once(void **state) {
    (void)state;
    static const char text[] = "{\"a\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[1,1]},"
                               "\"b\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[3,3]},"
                               "\"c\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[4,6]},"
                               "\"d\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[99,99]}}";
    size_t nbytes;
    uint8_t *file = test_raw_safetensors(text, sizeof text - 1, "0123456789", 10, &nbytes);
    heft_source *source;
    heft_report *report;
    assert_int_equal(heft_source_open_memory(file, nbytes, NULL, NULL, NULL, &source, NULL), HEFT_OK);
    assert_int_equal(heft_check_source(source, NULL, &report, NULL), HEFT_OK);
    heft_report_summary summary;
    heft_report_summarize(report, &summary);
    assert_int_equal(summary.data_nbytes, 10);
    assert_int_equal(summary.covered_nbytes, 2);
    assert_int_equal(summary.hole_nbytes, 8);
    assert_int_equal(summary.overlap_nbytes, 0);
    assert_int_equal(summary.nwhole, 3);
    heft_report_free(report);
    heft_source_unref(source);
    free(file);
}

/* Places beyond 2^64 are no places. */
static void an_offset_does_not_wrap(void **state) {
    (void)state;
    static const char entry[] = "\"%c\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[18446744073709551615,"
                                "18446744073709551615]}%c";
    char text[400];
    size_t nbytes, n = (size_t)sprintf(text, "{");
    for (int i = 0; i < 3; i++) n += (size_t)sprintf(text + n, entry, 'a' + i, i < 2 ? ',' : '}');
    uint8_t *file = test_raw_safetensors(text, n, "", 0, &nbytes);
    heft_source *source;
    heft_report *report;
    assert_int_equal(heft_source_open_memory(file, nbytes, NULL, NULL, NULL, &source, NULL), HEFT_OK);
    assert_int_equal(heft_check_source(source, NULL, &report, NULL), HEFT_OK);
    bool found = false;
    for (uint64_t i = 0; i < heft_report_count(report); i++) {
        heft_severity severity;
        heft_error fault;
        assert_int_equal(heft_report_get(report, i, &severity, &fault, NULL), HEFT_OK);
        if (fault.fault != HEFT_FAULT_EMPTY_TENSORS) continue;
        assert_true(fault.offset == HEFT_NONE);
        found = true;
    }
    assert_true(found);
    heft_report_free(report);
    heft_source_unref(source);
    free(file);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(records_are_sorted_and_equal_ones_stay),
        cmocka_unit_test(listings_are_taken),
        cmocka_unit_test(many_records_cost_little),
        cmocka_unit_test(holes_are_counted_once),
        cmocka_unit_test(an_offset_does_not_wrap),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
