/* fuzz: a file in memory, opened as the first byte says, then all that an archive answers about itself. */
#include "heft/heft.h"

#include "base/text.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define DEMAND(what)                                                                                                   \
    do {                                                                                                               \
        if (!(what)) abort();                                                                                          \
    } while (0)

static void demand_order(const heft_archive *archive, heft_order order) {
    const uint64_t *ids;
    uint64_t n = heft_archive_count(archive), sum = 0;
    DEMAND(heft_archive_order(archive, order, &ids, NULL) == HEFT_OK);
    for (uint64_t i = 0; i < n; i++) {
        heft_tensor a, b;
        DEMAND(heft_archive_get(archive, ids[i], &b, NULL) == HEFT_OK);
        sum += ids[i];
        if (i == 0) continue;
        DEMAND(heft_archive_get(archive, ids[i - 1], &a, NULL) == HEFT_OK);
        if (order == HEFT_ORDER_FILE) DEMAND(ids[i - 1] < ids[i] && a.offset <= b.offset);
        if (order == HEFT_ORDER_NAME) DEMAND(heft__bytes_compare(a.name, a.name_len, b.name, b.name_len) < 0);
        if (order == HEFT_ORDER_NATURAL) DEMAND(heft__natural_compare(a.name, a.name_len, b.name, b.name_len) < 0);
    }
    DEMAND(sum == n * (n - (n > 0)) / 2);
}

static void demand_tensors(const heft_archive *archive, uint64_t size, bool strict_layout) {
    uint64_t n = heft_archive_count(archive), end = 0;
    for (uint64_t id = 0; id < n; id++) {
        heft_tensor t;
        uint64_t found, nbytes;
        DEMAND(heft_archive_get(archive, id, &t, NULL) == HEFT_OK);
        DEMAND(t.id == id && t.file == 0 && t.name[t.name_len] == 0);
        DEMAND(t.offset <= size && t.nbytes <= size - t.offset);
        DEMAND(heft_archive_find(archive, t.name, t.name_len, &found, NULL) == HEFT_OK && found == id);
        if (t.dtype != HEFT_DTYPE_NONE) {
            DEMAND(heft_dtype_nbytes(t.dtype, t.rank, t.shape, &nbytes, NULL) == HEFT_OK && nbytes == t.nbytes);
            DEMAND(t.nelems / 8 * heft_dtype_bits(t.dtype) <= t.nbytes);
        }
        if (strict_layout && id) DEMAND(t.offset == end);
        end = t.offset + t.nbytes;
    }
    if (strict_layout && n) DEMAND(end == size);
}

static void demand_metadata(const heft_archive *archive) {
    uint64_t n = heft_archive_metadata_count(archive, HEFT_MERGED);
    DEMAND(n == heft_archive_metadata_count(archive, 0));
    heft_pair before = {0}, pair, found;
    for (uint64_t i = 0; i < n; i++, before = pair) {
        DEMAND(heft_archive_metadata(archive, HEFT_MERGED, i, &pair, NULL) == HEFT_OK);
        if (i) DEMAND(heft__bytes_compare(before.key, before.key_len, pair.key, pair.key_len) < 0);
        DEMAND(heft_archive_metadata_find(archive, 0, pair.key, pair.key_len, &found, NULL) == HEFT_OK);
        DEMAND(found.value == pair.value && found.value_len == pair.value_len);
    }
}

static void demand_selection(const heft_archive *archive) {
    const char *globs[] = {"*[0-9]*", "?"};
    heft_selection half = {.struct_size = sizeof half, .include = globs, .ninclude = 2}, rest = half;
    rest.include = NULL, rest.ninclude = 0, rest.exclude = globs, rest.nexclude = 2, rest.order = HEFT_ORDER_NATURAL;
    uint64_t a = 0, b = 0;
    heft_buffer ids;
    DEMAND(heft_archive_select(archive, &half, &ids, &a, NULL) == HEFT_OK);
    heft_buffer_release(&ids);
    DEMAND(heft_archive_select(archive, &rest, &ids, &b, NULL) == HEFT_OK);
    heft_buffer_release(&ids);
    DEMAND(a + b == heft_archive_count(archive));
}

static void demand_report(const heft_report *report, uint64_t size) {
    heft_error fault = {0};
    heft_severity severity;
    uint64_t offset = 0;
    for (uint64_t i = 0; i < heft_report_count(report); i++) {
        DEMAND(heft_report_get(report, i, &severity, &fault, NULL) == HEFT_OK);
        DEMAND(fault.message[0] && fault.fault != HEFT_FAULT_NONE && severity <= HEFT_SEVERITY_ERROR);
        if (fault.offset == HEFT_NONE) continue;
        DEMAND(fault.offset >= offset);
        offset = fault.offset;
    }
    (void)size;
}

/* Opening and checking must agree: what opens has no fault, what does not has one. */
static void demand_check(heft_source *source, const heft_open_options *options, heft_status opened) {
    heft_report *report;
    heft_report_summary sum;
    DEMAND(heft_check_source(source, options, &report, NULL) == HEFT_OK);
    DEMAND((heft_report_count_of(report, HEFT_SEVERITY_ERROR) == 0) == (opened == HEFT_OK));
    demand_report(report, heft_source_size(source));
    heft_report_summarize(report, &sum);
    DEMAND(sum.nwhole <= sum.ntensors && sum.covered_nbytes <= sum.data_nbytes);
    DEMAND(sum.covered_nbytes + sum.hole_nbytes <= sum.data_nbytes);
    if (opened == HEFT_OK) DEMAND(sum.nwhole == sum.ntensors && sum.overlap_nbytes == 0);
    heft_report_free(report);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 1) return 0;
    heft_open_options options = {.struct_size = sizeof options};
    options.lenient = data[0] & 1 ? HEFT_LENIENT_ALL : 0;
    options.list_unknown_dtypes = data[0] & 2;
    options.show_fillers = data[0] & 4;
    heft_source *source;
    heft_archive *archive;
    heft_error err;
    if (heft_source_open_memory(data + 1, size - 1, NULL, NULL, NULL, &source, NULL)) return 0;
    heft_status status = heft_archive_open_source(source, &options, &archive, &err);
    if (status) {
        DEMAND(!archive && err.status == status && err.message[0]);
    } else {
        demand_tensors(archive, size - 1, data[0] == 4);
        for (heft_order order = HEFT_ORDER_NAME; order <= HEFT_ORDER_FILE; order++) demand_order(archive, order);
        demand_metadata(archive);
        demand_selection(archive);
        demand_report(heft_archive_warnings(archive), size - 1);
        uint64_t id;
        status = heft_archive_find(archive, "a.weight", SIZE_MAX, &id, &err);
        DEMAND(status == HEFT_OK || (status == HEFT_NOT_FOUND && err.message[0]));
        status = HEFT_OK;
        heft_archive_unref(archive);
    }
    demand_check(source, &options, status);
    heft_source_unref(source);
    return 0;
}
