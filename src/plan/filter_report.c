/* plan: what a filter has to say: warnings, and wishes that cannot be met. */
#include "plan/filter.h"

#include "base/error.h"
#include "base/text.h"

#include <stdio.h>
#include <string.h>

/* ---- warnings ---- */

static void filter_warn_globs(heft__filter_pass *pass) {
    const heft_archive *archive = pass->result->archive;
    for (int i = 0; i < HEFT__FILTER_GLOBS; i++) {
        const heft__filter_list *list = &pass->lists[i];
        for (size_t k = 0; k < list->n; k++) {
            const heft__filter_text *item = &list->items[k];
            if (item->matched) continue;
            char text[300];
            heft_error error;
            bool plain = !strpbrk(item->text, "*?[");
            heft__escape(text, sizeof text, item->text, item->len);
            heft__fail(&error, HEFT_NOT_FOUND, HEFT_FAULT_CALL, "%s \"%s\" matches none of %llu tensors%s", list->what,
                       text, (unsigned long long)archive->ntensors,
                       plain ? ": without * ? or [ it must be a whole name" : "");
            heft__report_add_error(pass->result->warnings, HEFT_SEVERITY_WARNING, UINT32_MAX, &error);
        }
    }
}

static void filter_warn_experts(heft__filter_pass *pass) {
    const heft__expert_list *list = &pass->experts;
    heft_error error;
    char layer[40] = "no layer";
    uint64_t first = 0;
    if (list->nfound == list->n) return;
    while (list->keys[first].rank) first++;
    if (list->keys[first].major != HEFT_NONE)
        snprintf(layer, sizeof layer, "layer %llu", (unsigned long long)list->keys[first].major);
    heft__fail(&error, HEFT_NOT_FOUND, HEFT_FAULT_CALL,
               "%llu of %llu listed experts are in no tensor's name; the first is expert %llu of %s",
               (unsigned long long)(list->n - list->nfound), (unsigned long long)list->n,
               (unsigned long long)list->keys[first].minor, layer);
    heft__error_at(&error, HEFT_NONE, list->n, list->nfound);
    heft__report_add_error(pass->result->warnings, HEFT_SEVERITY_WARNING, UINT32_MAX, &error);
}

static void filter_warn_range(heft__filter_pass *pass) {
    const heft_rule_report *report = &pass->result->reports[HEFT_RULE_EXPERT_OUT_OF_RANGE];
    heft_error error;
    char name[300];
    if (!report->ntensors) return;
    heft__escape(name, sizeof name, report->first_name, report->first_name_len);
    heft__fail(
        &error, HEFT_LIMIT, HEFT_FAULT_CALLER_LIMIT,
        "%llu tensor%s of %llu bytes belong to experts that no rank owns: num_experts is %llu, the largest number is "
        "%llu; the first is \"%s\"",
        (unsigned long long)report->ntensors, report->ntensors == 1 ? "" : "s", (unsigned long long)report->nbytes,
        (unsigned long long)pass->wish.num_experts, (unsigned long long)pass->largest_out_of_range, name);
    heft__error_tensor(&error, report->first_name, report->first_name_len);
    heft__error_at(&error, HEFT_NONE, pass->wish.num_experts, pass->largest_out_of_range);
    heft__report_add_error(pass->result->warnings, HEFT_SEVERITY_WARNING, UINT32_MAX, &error);
}

static void filter_warn_idle(heft__filter_pass *pass) {
    const heft_filter *wish = &pass->wish;
    uint64_t idle = pass->result->sum.idle_ranks;
    heft_error error;
    if (!idle) return;
    heft__fail(&error, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL,
               "%llu of %llu ranks own no expert, since there are only %llu%s", (unsigned long long)idle,
               (unsigned long long)wish->ep_world, (unsigned long long)wish->num_experts,
               wish->placement == HEFT_PLACEMENT_LAST_TAKES_REST
                   ? ": the last rank has them all; first-take-rest would spread them"
                   : "");
    heft__error_at(&error, HEFT_NONE, wish->ep_world, wish->num_experts);
    heft__report_add_error(pass->result->warnings, HEFT_SEVERITY_WARNING, UINT32_MAX, &error);
}

static void filter_note_fused(heft__filter_pass *pass) {
    const heft_filter_summary *sum = &pass->result->sum;
    heft_error error;
    if (!sum->fused_ntensors || pass->wish.ep_world == 1) return;
    heft__fail(
        &error, HEFT_OK, HEFT_FAULT_CALL,
        "%llu tensor%s of %llu bytes lie under `experts` without a number (fused experts): every rank keeps them whole",
        (unsigned long long)sum->fused_ntensors, sum->fused_ntensors == 1 ? "" : "s",
        (unsigned long long)sum->fused_nbytes);
    heft__report_add_error(pass->result->warnings, HEFT_SEVERITY_NOTE, UINT32_MAX, &error);
}

bool heft__filter_warn(heft__filter_pass *pass) {
    filter_warn_globs(pass);
    filter_warn_experts(pass);
    filter_warn_range(pass);
    filter_warn_idle(pass);
    filter_note_fused(pass);
    return !pass->result->warnings->failed;
}

/* ---- refusals ---- */

/* True if a file holds the tensor, but the index hides it. */
static bool filter_is_hidden(const heft_archive *archive, const char *name, size_t len) {
    for (uint32_t file = 0; file < archive->nfiles; file++) {
        const heft__listing *listing = archive->files[file];
        if (listing->nwithheld && heft__listing_find(listing, name, len) != UINT32_MAX) return true;
    }
    return false;
}

heft_status heft__filter_demand(const heft__filter_pass *pass, heft_error *err) {
    const heft_archive *archive = pass->result->archive;
    if (pass->wish.ndemand && !pass->wish.demand)
        return heft__fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL,
                          "heft_filter: the demanded name list is NULL, but its count is %zu", pass->wish.ndemand);
    for (size_t i = 0; i < pass->wish.ndemand; i++) {
        const char *name = pass->wish.demand[i];
        if (!name)
            return heft__fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL, "heft_filter: demanded name %zu is NULL", i);
        size_t len = strlen(name);
        uint64_t id = heft__archive_lookup(archive, name, len);
        if (id == HEFT_NONE && !filter_is_hidden(archive, name, len))
            return heft__archive_fail_name(archive, name, len, err);
        heft_rule rule = id == HEFT_NONE ? HEFT_RULE_NOT_IN_INDEX : pass->result->rules[id];
        if (heft_rule_outcome(rule) != HEFT_OUTCOME_WITHHELD) continue;
        char text[300];
        heft__escape(text, sizeof text, name, len);
        heft__fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL, "%s: demanded by name, but withheld by the rule %s",
                   text, heft_rule_name(rule));
        heft__error_tensor(err, name, len);
        return HEFT_INVALID_ARGUMENT;
    }
    return HEFT_OK;
}

heft_status heft__filter_no_experts(const heft__filter_pass *pass, heft_error *err) {
    const heft_archive *archive = pass->result->archive;
    uint64_t n = 0, largest = 0;
    for (uint64_t id = 0; id < archive->ntensors; id++) {
        uint32_t file;
        heft__expert expert;
        const heft__entry *entry = heft__archive_entry(archive, id, &file);
        heft__expert_find(pass->wish.expert_name, entry->name, entry->name_len, &expert);
        if (!expert.found) continue;
        n++;
        if (expert.index > largest) largest = expert.index;
    }
    unsigned long long world = pass->wish.ep_world;
    if (!n)
        return heft__fail(
            err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL,
            "heft_filter: ep_world is %llu and num_experts is not set; no tensor's name holds an expert's number",
            world);
    if (largest == UINT64_MAX)
        return heft__fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL,
                          "heft_filter: ep_world is %llu and num_experts is not set; names hold numbers beyond all use",
                          world);
    heft__fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL,
               "heft_filter: ep_world is %llu and num_experts is not set; the largest number in a name is %llu, so "
               "num_experts may be %llu",
               world, (unsigned long long)largest, (unsigned long long)largest + 1);
    heft__error_at(err, HEFT_NONE, largest + 1, 0);
    return HEFT_INVALID_ARGUMENT;
}
