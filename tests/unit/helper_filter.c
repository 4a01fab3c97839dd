/* Archives of names, and what holds of every result of a filter. */
#include "helper_filter.h"

#include "helper_files.h"

#include "catalog/catalog.h"

heft_archive *named_archive(const char *const *names, size_t n) {
    static const char *const shapes[] = {"1", "2", "3", "4", "5"};
    test_tensor *tensors = calloc(n + 1, sizeof *tensors);
    size_t nbytes;
    heft_source *source;
    heft_archive *archive;
    heft_error err;
    for (size_t i = 0; i < n; i++)
        tensors[i] = (test_tensor){.name = names[i], .dtype = "U8", .shape = shapes[i % 5], .nbytes = i % 5 + 1};
    uint8_t *file = test_safetensors(tensors, n, NULL, &nbytes);
    free(tensors);
    if (heft_source_open_memory(file, nbytes, "names", free, file, &source, &err)) fail_msg("%s", err.message);
    if (heft_archive_open_source(source, NULL, &archive, &err)) fail_msg("%s", err.message);
    heft_source_unref(source);
    return archive;
}

heft_filter_result *applied(const heft_archive *archive, const heft_filter *filter) {
    heft_filter_result *result;
    heft_error err;
    if (heft_filter_apply(archive, filter, &result, &err)) fail_msg("%s", err.message);
    return result;
}

heft_rule rule_of(const heft_archive *archive, const heft_filter_result *result, const char *name) {
    uint64_t id;
    heft_error err;
    if (heft_archive_find(archive, name, SIZE_MAX, &id, &err)) fail_msg("%s", err.message);
    return heft_filter_rules(result)[id];
}

void assert_refused(const heft_archive *archive, const heft_filter *filter, heft_status status, const char *piece) {
    heft_filter_result *result = (heft_filter_result *)&status;
    heft_error err;
    heft_status got = heft_filter_apply(archive, filter, &result, &err);
    if (got != status || !strstr(err.message, piece))
        fail_msg("%s: \"%s\", wanted %s with \"%s\"", heft_status_name(got), got ? err.message : "",
                 heft_status_name(status), piece);
    assert_int_equal(err.status, status);
    assert_null(result);
    assert_int_equal(heft_filter_apply(archive, filter, &result, NULL), status);
}

void assert_accounts(const heft_archive *archive, const heft_filter_result *result) {
    uint64_t tensors = 0, nbytes = 0, hidden = 0, by_rule[HEFT_RULE_COUNT] = {0},
             bytes[HEFT_RULE_COUNT] = {0};
    const uint8_t *rules = heft_filter_rules(result);
    heft_filter_summary sum;
    heft_filter_summarize(result, &sum);
    for (uint32_t file = 0; file < archive->nfiles; file++) {
        const heft__listing *listing = archive->files[file];
        hidden += listing->nwithheld;
        for (uint64_t i = 0; i < listing->nentries; i++) {
            uint64_t size = listing->entries[i].end - listing->entries[i].begin;
            if (listing->entries[i].flags & HEFT__ENTRY_FILLER) continue;
            tensors++;
            nbytes += size;
            if (!(listing->entries[i].flags & HEFT__ENTRY_HIDDEN)) continue;
            bool replaced = listing->entries[i].marks & HEFT__ENTRY_REPLACED;
            by_rule[replaced ? HEFT_RULE_REPLACED : HEFT_RULE_NOT_IN_INDEX]++;
            bytes[replaced ? HEFT_RULE_REPLACED : HEFT_RULE_NOT_IN_INDEX] += size;
        }
    }
    uint64_t nkept, ndeferred, kept = 0, deferred = 0;
    const uint64_t *kept_ids = heft_filter_kept(result, &nkept),
                   *deferred_ids = heft_filter_deferred(result, &ndeferred);
    for (uint64_t id = 0; id < heft_archive_count(archive); id++) {
        heft_tensor tensor;
        heft_view view;
        heft_archive_get(archive, id, &tensor, NULL);
        assert_true(rules[id] < HEFT_RULE_COUNT);
        assert_true(rules[id] != HEFT_RULE_NOT_IN_INDEX && rules[id] != HEFT_RULE_REPLACED);
        by_rule[rules[id]]++;
        bytes[rules[id]] += tensor.nbytes;
        heft_outcome outcome = heft_rule_outcome(rules[id]);
        if (outcome == HEFT_OUTCOME_KEPT) assert_int_equal(kept_ids[kept++], id);
        if (outcome == HEFT_OUTCOME_DEFERRED) assert_int_equal(deferred_ids[deferred++], id);
        assert_int_equal(heft_filter_view(result, id, &view, NULL),
                         outcome == HEFT_OUTCOME_WITHHELD ? HEFT_NOT_FOUND : HEFT_OK);
    }
    assert_int_equal(by_rule[HEFT_RULE_NOT_IN_INDEX], hidden);
    assert_int_equal(kept, nkept);
    assert_int_equal(deferred, ndeferred);
    uint64_t sum_tensors = 0, sum_bytes = 0;
    for (heft_rule rule = 0; rule < HEFT_RULE_COUNT; rule++) {
        heft_rule_report report;
        assert_int_equal(heft_filter_report(result, rule, &report, NULL), HEFT_OK);
        assert_int_equal(report.ntensors, by_rule[rule]);
        assert_int_equal(report.nbytes, bytes[rule]);
        assert_int_equal(report.first_name != NULL, report.ntensors != 0);
        sum_tensors += report.ntensors;
        sum_bytes += report.nbytes;
    }
    assert_int_equal(sum_tensors, tensors);
    assert_int_equal(sum_bytes, nbytes);
    assert_int_equal(sum.ntensors, tensors);
    assert_int_equal(sum.nbytes, nbytes);
    assert_int_equal(sum.kept_ntensors + sum.withheld_ntensors + sum.deferred_ntensors, tensors);
    assert_int_equal(sum.kept_nbytes + sum.withheld_nbytes + sum.deferred_nbytes, nbytes);
    assert_int_equal(sum.kept_ntensors, kept);
    assert_int_equal(sum.deferred_ntensors, deferred);
}
