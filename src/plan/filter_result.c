/* plan: what a filter decided, as its users see it. */
#include "plan/filter.h"
#include "view/view.h"

#include <string.h>

const char *heft_rule_name(heft_rule rule) {
    static const char *const names[] = {
#define FILTER_NAME(constant, word, outcome) word,
        HEFT_RULE_TABLE(FILTER_NAME)
#undef FILTER_NAME
    };
    return rule < HEFT_RULE_COUNT ? names[rule] : "unknown";
}

heft_outcome heft_rule_outcome(heft_rule rule) {
    static const uint8_t outcomes[] = {
#define FILTER_OUTCOME(constant, word, outcome) HEFT_OUTCOME_##outcome,
        HEFT_RULE_TABLE(FILTER_OUTCOME)
#undef FILTER_OUTCOME
    };
    return rule < HEFT_RULE_COUNT ? outcomes[rule] : HEFT_OUTCOME_WITHHELD;
}

void heft_filter_result_free(heft_filter_result *result) {
    if (!result) return;
    heft_allocator alloc = result->alloc;
    uint64_t n = result->archive->ntensors;
    heft__report_free(result->warnings);
    heft__free(&alloc, result->rules, n * sizeof *result->rules);
    heft__free(&alloc, result->cuts, n * sizeof *result->cuts);
    heft__free(&alloc, result->axes, result->naxes * sizeof *result->axes);
    heft__free(&alloc, result->ids, result->nids * sizeof *result->ids);
    heft__free(&alloc, result, sizeof *result);
}

const uint64_t *heft_filter_kept(const heft_filter_result *result, uint64_t *nids) {
    *nids = result->sum.kept_ntensors;
    return result->ids;
}

const uint64_t *heft_filter_deferred(const heft_filter_result *result, uint64_t *nids) {
    *nids = result->sum.deferred_ntensors;
    return result->ids + result->sum.kept_ntensors;
}

const uint8_t *heft_filter_rules(const heft_filter_result *result) {
    return result->rules;
}

heft_status heft_filter_view(const heft_filter_result *result, uint64_t id, heft_view *out, heft_error *err) {
    heft_status status = heft_view_of(result->archive, id, out, err);
    if (status) return status;
    heft_rule rule = result->rules[id];
    if (heft_rule_outcome(rule) == HEFT_OUTCOME_WITHHELD) {
        heft_view whole = *out;
        return heft__view_fail(&whole, out, err, HEFT_NOT_FOUND, HEFT_FAULT_CALL, "withheld by the rule %s",
                               heft_rule_name(rule));
    }
    uint32_t cut = result->cuts ? result->cuts[id] : 0;
    if (!cut) return HEFT_OK;
    heft_view whole = *out;
    return heft_view_split(&whole, result->axes[cut - 1], result->tp_rank, result->tp_world, result->split, out, err);
}

heft_status heft_filter_report(const heft_filter_result *result, heft_rule rule, heft_rule_report *out,
                               heft_error *err) {
    memset(out, 0, sizeof *out);
    if (rule >= HEFT_RULE_COUNT)
        return heft__fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL, "no rule has the number %lu",
                          (unsigned long)rule);
    *out = result->reports[rule];
    return HEFT_OK;
}

void heft_filter_summarize(const heft_filter_result *result, heft_filter_summary *out) {
    *out = result->sum;
}

const heft_report *heft_filter_warnings(const heft_filter_result *result) {
    return result->warnings;
}
