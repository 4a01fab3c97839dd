/* The reference's header cases, whole: status, fault and byte offset by default, warnings under lenient. */
#include "helper.h"

#include "helper_files.h"

#include "format/format.h"

/* tests/data/safetensors-header-expected.tsv holds, for each case, what heft says of it, reviewed by hand:
 *   case, status, fault, offset (default), status (lenient), warnings (lenient: fault@offset:value ...) */

static char *next_line(char **text) {
    char *line = *text, *end = line ? strchr(line, '\n') : NULL;
    if (!line || !*line) return NULL;
    *text = end ? end + 1 : line + strlen(line);
    if (end) *end = 0;
    return line;
}

static char *next_column(char **line) {
    char *column = *line, *tab = strchr(column, '\t');
    *line = tab ? tab + 1 : column + strlen(column);
    if (tab) *tab = 0;
    return column;
}

static size_t unhex(char *text, uint8_t **data) {
    size_t n = strlen(text) / 2;
    *data = malloc(n ? n : 1);
    for (size_t i = 0; i < n; i++) {
        char byte[3] = {text[2 * i], text[2 * i + 1], 0};
        (*data)[i] = (uint8_t)strtoul(byte, NULL, 16);
    }
    return n;
}

static heft_status scan_bytes(const uint8_t *data, size_t n, uint32_t lenient, bool collect, heft__listing *listing,
                              heft_error *err) {
    heft_source *source;
    heft__scan_options options = {.lenient = lenient, .collect = collect};
    assert_int_equal(heft_source_open_memory(data, n, "case", NULL, NULL, &source, NULL), HEFT_OK);
    heft__listing_init(listing, &heft__default_allocator);
    heft_status status = heft__scan(source, &options, listing, err);
    heft_source_unref(source);
    return status;
}

static void describe(const char *name, const uint8_t *data, size_t n, char *out, size_t size) {
    heft__listing listing;
    heft_error err = {0};
    heft_status status = scan_bytes(data, n, 0, false, &listing, &err);
    int at = snprintf(out, size, "%s\t%s\t%s\t%lld\t", name, heft_status_name(status),
                      heft_fault_name(status ? err.fault : 0), status ? (long long)err.offset : 0);
    if (!status) assert_int_equal(listing.faults.count, 0);
    heft__listing_free(&listing);
    status = scan_bytes(data, n, HEFT_LENIENT_ALL, false, &listing, &err);
    at += snprintf(out + at, size - (size_t)at, "%s\t", heft_status_name(status));
    for (uint64_t i = 0; !status && i < listing.faults.count; i++) {
        const heft__fault *fault = &listing.faults.items[i];
        assert_int_equal(fault->severity, HEFT_SEVERITY_WARNING);
        at += snprintf(out + at, size - (size_t)at, "%s%s@%llu:%llu", i ? " " : "", heft_fault_name(fault->kind),
                       (unsigned long long)fault->offset, (unsigned long long)fault->value);
    }
    heft__listing_free(&listing);
}

/* The four rows of the reference that heft refuses, and the classes that the reference's verdicts stand for. */
static bool agrees(const char *name, const char *verdict, const char *status) {
    static const char *const refused[] = {"dup tensor names identical", "dup via escape", "tensor as array",
                                          "dtype obj {\"F32\":null}"};
    for (size_t i = 0; i < 4; i++)
        if (strcmp(name, refused[i]) == 0) return strcmp(verdict, "OK") == 0 && strcmp(status, "corrupt") == 0;
    if (strcmp(verdict, "OK") == 0) return strcmp(status, "ok") == 0;
    if (strcmp(verdict, "HeaderTooLarge") == 0) return strcmp(status, "limit") == 0;
    if (strcmp(verdict, "InvalidHeaderDeserialization") == 0 && strcmp(status, "unsupported") == 0)
        return strncmp(name, "dtype '", 7) == 0;
    return strcmp(status, "corrupt") == 0;
}

static void cases_come_out_right(void **state) {
    (void)state;
    size_t n;
    uint64_t rows = 0, wrong = 0;
    char *cases = (char *)test_slurp(TEST_DATA "/safetensors-header-cases.tsv", &n), *cases_at = cases;
    char *expected = (char *)test_slurp(TEST_DATA "/safetensors-header-expected.tsv", &n), *expected_at = expected;
    for (char *line; (line = next_line(&cases_at));) {
        if (line[0] == '#') continue;
        char *name = next_column(&line), *verdict = next_column(&line), text[2048], *wanted = next_line(&expected_at);
        next_column(&line);
        uint8_t *data;
        size_t nbytes = unhex(line, &data);
        describe(name, data, nbytes, text, sizeof text);
        if (!wanted || strcmp(text, wanted) != 0) {
            printf("wanted %s\nfound  %s\n", wanted ? wanted : "(nothing)", text);
            wrong++;
        }
        char *status_at = text;
        next_column(&status_at);
        char *status = next_column(&status_at);
        if (!agrees(name, verdict, status)) {
            printf("the reference says %s of \"%s\", heft %s\n", verdict, name, status);
            wrong++;
        }
        free(data);
        rows++;
    }
    free(cases);
    free(expected);
    assert_int_equal(wrong, 0);
    assert_int_equal(rows, 148);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cases_come_out_right),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
