/* plan: one rule for each tensor of an archive, in one pass over its names. */
#include "plan/filter.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/text.h"

#include <string.h>

/* ---- what the caller wishes ---- */

static heft_status filter_refuse(heft_error *err, const char *what) {
    return heft__fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL, "heft_filter: %s", what);
}

static heft_status filter_check_rank(const char *group, uint64_t rank, uint64_t world, heft_error *err) {
    if (rank < world) return HEFT_OK;
    heft__fail(
        err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL,
        "heft_filter: %s_rank is %llu, but %s_world is %llu: ranks count from 0, and a world that is not set is 1",
        group, (unsigned long long)rank, group, (unsigned long long)world);
    heft__error_at(err, HEFT_NONE, world, rank);
    return HEFT_INVALID_ARGUMENT;
}

/* Checks the plain fields and fills in the defaults. */
static heft_status filter_complete(heft_filter *wish, heft_error *err) {
    static const char *const mtp[] = {"mtp."}, *const heavy[] = {".weight", ".weight_packed"};
    bool vllm = wish->preset == HEFT_PRESET_VLLM;
    if (wish->preset > HEFT_PRESET_VLLM) return filter_refuse(err, "preset is no known one");
    if (wish->expert_name > HEFT_EXPERT_NAME_DOTTED) return filter_refuse(err, "expert_name is no known rule");
    if (wish->placement > HEFT_PLACEMENT_ROUND_ROBIN) return filter_refuse(err, "placement is no known one");
    if (wish->expert_scope > HEFT_EXPERT_SCOPE_HEAVY) return filter_refuse(err, "expert_scope is no known one");
    if (wish->tp_split > HEFT_SPLIT_CEIL) return filter_refuse(err, "tp_split is no known way to cut");
    if (!wish->ep_world) wish->ep_world = 1;
    if (!wish->tp_world) wish->tp_world = 1;
    heft_status status = filter_check_rank("ep", wish->ep_rank, wish->ep_world, err);
    if (!status) status = filter_check_rank("tp", wish->tp_rank, wish->tp_world, err);
    if (status) return status;
    if (!wish->expert_name) wish->expert_name = vllm ? HEFT_EXPERT_NAME_DOTTED : HEFT_EXPERT_NAME_SEGMENT;
    if (!wish->placement) wish->placement = vllm ? HEFT_PLACEMENT_FIRST_TAKE_REST : HEFT_PLACEMENT_LAST_TAKES_REST;
    if (!wish->expert_scope) wish->expert_scope = vllm ? HEFT_EXPERT_SCOPE_HEAVY : HEFT_EXPERT_SCOPE_ALL;
    if (!wish->replicated && !wish->nreplicated) {
        wish->replicated = mtp;
        wish->nreplicated = !vllm;
    }
    if (!wish->heavy && !wish->nheavy) {
        wish->heavy = heavy;
        wish->nheavy = 2;
    }
    return HEFT_OK;
}

static void filter_prepare(heft__filter_text *item) {
    const char *star = strrchr(item->text, '*');
    item->len = strlen(item->text);
    item->head = strcspn(item->text, "*?[\\");
    if (!star || strpbrk(item->text, "[\\") || strchr(star, '?'))
        return; /* the last `*` may be no wildcard, or not the last */
    item->tail = strlen(star + 1);
    item->one_star = item->head + 1 + item->tail == item->len;
}

/* Texts of a list as the caller gives them: a pointer at the start of each `stride` bytes. */
typedef struct filter_source {
    const void *first;
    size_t n, stride;
    const char *what;
} filter_source;

static heft_status filter_take(heft__filter_list *list, const filter_source *from, bool globs, heft_error *err) {
    list->what = from->what;
    for (size_t i = 0; i < from->n; i++) {
        heft__filter_text *item = &list->items[i];
        memset(item, 0, sizeof *item);
        memcpy(&item->text, (const char *)from->first + i * from->stride, sizeof item->text);
        if (!item->text)
            return heft__fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL, "heft_filter: %s %zu is NULL", from->what,
                              i);
        heft_status status = globs ? heft__glob_refuse(from->what, item->text, err) : HEFT_OK;
        if (status) return status;
        filter_prepare(item);
        list->n++;
    }
    return HEFT_OK;
}

static heft_status filter_take_all(heft__filter_pass *pass, heft_error *err) {
    const heft_filter *wish = &pass->wish;
    const size_t text = sizeof(const char *);
    const filter_source from[HEFT__FILTER_LISTS] = {
        [HEFT__FILTER_EXCLUDE] = {wish->exclude, wish->nexclude, text, "exclude glob"},
        [HEFT__FILTER_INCLUDE] = {wish->include, wish->ninclude, text, "include glob"},
        [HEFT__FILTER_DEFER] = {wish->defer, wish->ndefer, text, "defer glob"},
        [HEFT__FILTER_CUT] = {wish->tp_rules, wish->ntp_rules, sizeof *wish->tp_rules, "tensor-parallel glob"},
        [HEFT__FILTER_REPLICATED] = {wish->replicated, wish->nreplicated, text, "replicated prefix"},
        [HEFT__FILTER_HEAVY] = {wish->heavy, wish->nheavy, text, "heavy suffix"}};
    uint64_t n = 0, at = 0, nbytes;
    for (int i = 0; i < HEFT__FILTER_LISTS; i++) {
        if (from[i].n && !from[i].first)
            return heft__fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL,
                              "heft_filter: the %s list is NULL, but its count is %zu", from[i].what, from[i].n);
        if (!heft__add_u64(n, from[i].n, &n)) n = UINT64_MAX;
    }
    if (!heft__mul_u64(n, sizeof *pass->texts, &nbytes) || wish->ntp_rules >= UINT32_MAX)
        return filter_refuse(err, "a list is longer than memory");
    pass->texts = heft__alloc(&pass->result->alloc, nbytes);
    if (!pass->texts) return heft__fail_memory(err, nbytes);
    pass->ntexts = n;
    for (int i = 0; i < HEFT__FILTER_LISTS; i++) {
        pass->lists[i].items = pass->texts + at;
        heft_status status = filter_take(&pass->lists[i], &from[i], i < HEFT__FILTER_GLOBS, err);
        if (status) return status;
        at += from[i].n;
    }
    return HEFT_OK;
}

/* ---- one tensor ---- */

static bool filter_starts(const heft__entry *entry, const char *text, size_t len) {
    return len <= entry->name_len && memcmp(entry->name, text, len) == 0;
}

static bool filter_ends(const heft__entry *entry, const char *text, size_t len) {
    return len <= entry->name_len && memcmp(entry->name + entry->name_len - len, text, len) == 0;
}

static bool filter_matches(const heft__filter_text *glob, const heft__entry *entry) {
    if (!filter_starts(entry, glob->text, glob->head)) return false;
    if (!filter_ends(entry, glob->text + glob->len - glob->tail, glob->tail)) return false;
    if (glob->one_star) return entry->name_len >= glob->head + glob->tail;
    return heft__glob_match(glob->text, glob->len, entry->name, entry->name_len);
}

/* The first glob of a list that matches, SIZE_MAX: none. All globs are tried until each has matched some tensor; after
 * that, none where the answer is not `wanted`. */
static size_t filter_glob(heft__filter_list *list, const heft__entry *entry, bool wanted) {
    size_t first = SIZE_MAX;
    for (size_t i = 0; i < list->n; i++) {
        heft__filter_text *item = &list->items[i];
        bool answered = !wanted || first != SIZE_MAX;
        if (answered && list->nmatched == list->n) break;
        if (answered && item->matched) continue;
        if (!filter_matches(item, entry)) continue;
        if (first == SIZE_MAX) first = i;
        list->nmatched += !item->matched;
        item->matched = true;
    }
    return first;
}

static bool filter_any(const heft__filter_list *list, const heft__entry *entry,
                       bool (*test)(const heft__entry *, const char *, size_t)) {
    for (size_t i = 0; i < list->n; i++)
        if (test(entry, list->items[i].text, list->items[i].len)) return true;
    return false;
}

static bool filter_atlas_defers(const heft__entry *entry) {
    static const char inner[] = "ngram_embeddings.embedders.";
    const size_t n = sizeof inner - 1;
    if (!filter_ends(entry, ".weight", 7)) return false;
    for (size_t at = 0; at + n <= entry->name_len; at++)
        if (memcmp(entry->name + at, inner, n) == 0) return true;
    return false;
}

static heft_rule filter_skip(const heft_filter *wish, const heft__entry *entry) {
    if (wish->skip_vision && (filter_starts(entry, "model.visual.", 13) || filter_starts(entry, "model.vision", 12) ||
                              filter_starts(entry, "visual.", 7)))
        return HEFT_RULE_VISION;
    if (wish->skip_mtp && filter_starts(entry, "mtp.", 4)) return HEFT_RULE_MTP;
    if (wish->skip_activation_scales && filter_ends(entry, ".input_scale", 12)) return HEFT_RULE_ACTIVATION_SCALE;
    return HEFT_RULE_KEPT;
}

static heft_rule filter_expert(heft__filter_pass *pass, uint64_t id, const heft__entry *entry,
                               const heft__expert *expert, bool listed) {
    const heft_filter *wish = &pass->wish;
    if (!listed) return HEFT_RULE_EXPERT_PLAN;
    if (wish->keep_expert) {
        heft_tensor tensor;
        heft__archive_tensor(pass->result->archive, id, &tensor);
        uint64_t layer = heft__expert_layer(entry->name, expert->before);
        if (!wish->keep_expert(wish->keep_expert_ctx, &tensor, layer, expert->index)) return HEFT_RULE_EXPERT_PLAN;
    }
    if (wish->ep_world == 1 || filter_any(&pass->lists[HEFT__FILTER_REPLICATED], entry, filter_starts))
        return HEFT_RULE_KEPT;
    if (wish->expert_scope == HEFT_EXPERT_SCOPE_HEAVY &&
        !filter_any(&pass->lists[HEFT__FILTER_HEAVY], entry, filter_ends))
        return HEFT_RULE_KEPT;
    if (expert->too_large || expert->index >= wish->num_experts) {
        if (expert->index > pass->largest_out_of_range) pass->largest_out_of_range = expert->index;
        return HEFT_RULE_EXPERT_OUT_OF_RANGE;
    }
    bool owned = heft__expert_owned(wish->placement, wish->ep_rank, wish->ep_world, wish->num_experts, expert->index);
    return owned ? HEFT_RULE_KEPT : HEFT_RULE_REMOTE_EXPERT;
}

/* The table of rules, from the third on. The globs are asked about an overlay's tensors too, for what matches nothing. */
static heft_rule filter_decide(heft__filter_pass *pass, uint64_t id, const heft__entry *entry,
                               const heft__expert *expert, bool overlay) {
    const heft_filter *wish = &pass->wish;
    bool excluded = filter_glob(&pass->lists[HEFT__FILTER_EXCLUDE], entry, true) != SIZE_MAX;
    bool included = filter_glob(&pass->lists[HEFT__FILTER_INCLUDE], entry, !excluded) != SIZE_MAX || !wish->ninclude;
    bool left = overlay || (!excluded && included);
    bool deferred = filter_glob(&pass->lists[HEFT__FILTER_DEFER], entry, left) != SIZE_MAX;
    size_t cut = filter_glob(&pass->lists[HEFT__FILTER_CUT], entry, left && pass->result->cuts);
    bool listed = !wish->experts || !expert->found || heft__expert_list_has(&pass->experts, expert, entry->name);
    if (pass->result->cuts) pass->result->cuts[id] = cut == SIZE_MAX ? 0 : (uint32_t)cut + 1;
    if (overlay) return HEFT_RULE_OVERLAY;
    if (!left) return excluded ? HEFT_RULE_EXCLUDE : HEFT_RULE_NOT_INCLUDED;
    heft_rule rule = filter_skip(wish, entry);
    if (rule == HEFT_RULE_KEPT && expert->found) rule = filter_expert(pass, id, entry, expert, listed);
    if (rule != HEFT_RULE_KEPT) return rule;
    if (wish->keep) {
        heft_tensor tensor;
        heft__archive_tensor(pass->result->archive, id, &tensor);
        if (!wish->keep(wish->keep_ctx, &tensor)) return HEFT_RULE_CALLBACK;
    }
    if (deferred || (wish->preset == HEFT_PRESET_ATLAS && filter_atlas_defers(entry))) return HEFT_RULE_DEFER;
    return HEFT_RULE_KEPT;
}

/* ---- all tensors ---- */

static void filter_count(heft_filter_result *result, heft_rule rule, const heft__entry *entry) {
    heft_rule_report *report = &result->reports[rule];
    if (report->ntensors++ == 0) {
        report->first_name = entry->name;
        report->first_name_len = entry->name_len;
    }
    report->nbytes += entry->end - entry->begin;
}

/* What an index or an overlay hides never becomes a tensor of the archive: it is counted from the listings. */
static void filter_count_hidden(heft_filter_result *result) {
    for (uint32_t file = 0; file < result->archive->nfiles; file++) {
        const heft__listing *listing = result->archive->files[file];
        for (uint64_t i = 0; (listing->nwithheld || listing->nreplaced) && i < listing->nentries; i++) {
            const heft__entry *entry = &listing->entries[i];
            if ((entry->flags & (HEFT__ENTRY_FILLER | HEFT__ENTRY_HIDDEN)) == HEFT__ENTRY_HIDDEN)
                filter_count(result,
                             entry->marks & HEFT__ENTRY_REPLACED ? HEFT_RULE_REPLACED : HEFT_RULE_NOT_IN_INDEX, entry);
        }
    }
}

static void filter_count_expert(heft_filter_summary *sum, const heft__expert *expert, const heft__entry *entry) {
    uint64_t nbytes = entry->end - entry->begin;
    if (expert->found) {
        sum->expert_ntensors++;
        sum->expert_nbytes += nbytes;
        if (sum->expert_ntensors == 1 || expert->index > sum->largest_expert) sum->largest_expert = expert->index;
    } else if (expert->fused) {
        sum->fused_ntensors++;
        sum->fused_nbytes += nbytes;
    }
}

static heft_status filter_each(heft__filter_pass *pass, heft_error *err) {
    heft_filter_result *result = pass->result;
    result->sum.largest_expert = HEFT_NONE;
    for (uint64_t id = 0; id < result->archive->ntensors; id++) {
        uint32_t file;
        const heft__entry *entry = heft__archive_entry(result->archive, id, &file);
        heft__expert expert;
        heft__expert_find(pass->wish.expert_name, entry->name, entry->name_len, &expert);
        filter_count_expert(&result->sum, &expert, entry);
        heft_rule rule = filter_decide(pass, id, entry, &expert, result->archive->files[file]->overlay);
        filter_count(result, rule, entry);
        result->rules[id] = (uint8_t)rule;
        uint64_t part = entry->end - entry->begin;
        if (result->cuts && result->cuts[id] && heft_rule_outcome(rule) != HEFT_OUTCOME_WITHHELD) {
            heft_view view; /* a cut that is not possible fails here, not in the middle of a load */
            heft_status status = heft_filter_view(result, id, &view, err);
            if (status) return status;
            part = heft_view_nbytes(&view);
        }
        if (heft_rule_outcome(rule) == HEFT_OUTCOME_KEPT) result->sum.part_nbytes += part;
    }
    filter_count_hidden(result);
    return HEFT_OK;
}

static heft_status filter_list_ids(heft_filter_result *result, heft_error *err) {
    uint64_t n = result->reports[HEFT_RULE_KEPT].ntensors + result->reports[HEFT_RULE_OVERLAY].ntensors;
    uint64_t kept = 0, deferred = n;
    n += result->reports[HEFT_RULE_DEFER].ntensors;
    result->ids = heft__alloc(&result->alloc, n * sizeof *result->ids);
    if (!result->ids) return heft__fail_memory(err, n * sizeof *result->ids);
    result->nids = n;
    for (uint64_t id = 0; id < result->archive->ntensors; id++) {
        if (heft_rule_outcome(result->rules[id]) == HEFT_OUTCOME_KEPT)
            result->ids[kept++] = id;
        else if (result->rules[id] == HEFT_RULE_DEFER)
            result->ids[deferred++] = id;
    }
    return HEFT_OK;
}

static void filter_sum(heft__filter_pass *pass) {
    heft_filter_summary *sum = &pass->result->sum;
    for (heft_rule rule = 0; rule < HEFT_RULE_COUNT; rule++) {
        const heft_rule_report *report = &pass->result->reports[rule];
        heft_outcome outcome = heft_rule_outcome(rule);
        bool kept = outcome == HEFT_OUTCOME_KEPT, withheld = outcome == HEFT_OUTCOME_WITHHELD;
        sum->ntensors += report->ntensors;
        sum->nbytes += report->nbytes;
        *(kept       ? &sum->kept_ntensors
          : withheld ? &sum->withheld_ntensors
                     : &sum->deferred_ntensors) += report->ntensors;
        *(kept ? &sum->kept_nbytes : withheld ? &sum->withheld_nbytes : &sum->deferred_nbytes) += report->nbytes;
    }
    if (pass->wish.ep_world > 1)
        sum->idle_ranks = heft__expert_idle(pass->wish.placement, pass->wish.ep_world, pass->wish.num_experts);
    for (int i = 0; i < HEFT__FILTER_GLOBS; i++) sum->unmatched += pass->lists[i].n - pass->lists[i].nmatched;
    sum->unmatched += pass->experts.n - pass->experts.nfound;
}

static heft_status filter_make(heft__filter_pass *pass, heft_error *err) {
    heft_filter_result *result = pass->result;
    const heft_filter *wish = &pass->wish;
    uint64_t n = result->archive->ntensors;
    heft_status status = filter_take_all(pass, err);
    if (!status && (wish->experts || wish->nexperts))
        status = heft__expert_list_make(&pass->experts, wish->experts, wish->nexperts, &result->alloc, err);
    if (!status && wish->ep_world > 1 && !wish->num_experts) status = heft__filter_no_experts(pass, err);
    if (status) return status;
    result->rules = heft__alloc(&result->alloc, n);
    if (!result->rules) return heft__fail_memory(err, n);
    if (wish->tp_world > 1 && wish->ntp_rules) {
        result->naxes = wish->ntp_rules;
        result->axes = heft__alloc(&result->alloc, result->naxes * sizeof *result->axes);
        result->cuts = heft__alloc(&result->alloc, n * sizeof *result->cuts);
        if (!result->axes || !result->cuts) return heft__fail_memory(err, n * sizeof *result->cuts);
        for (size_t i = 0; i < result->naxes; i++) result->axes[i] = wish->tp_rules[i].axis;
    }
    result->split = wish->tp_split;
    result->tp_rank = wish->tp_rank;
    result->tp_world = wish->tp_world;
    status = filter_each(pass, err);
    if (!status) status = filter_list_ids(result, err);
    if (!status) status = heft__filter_demand(pass, err);
    if (status) return status;
    filter_sum(pass);
    result->warnings = heft__report_new(&result->alloc);
    if (!result->warnings || !heft__filter_warn(pass)) return heft__fail_memory(err, sizeof(heft_report));
    return wish->strict ? heft__report_fail(result->warnings, HEFT_SEVERITY_WARNING, err) : HEFT_OK;
}

heft_status heft__filter_apply(const heft_archive *archive, const heft_filter *filter, const heft_allocator *alloc,
                               heft_filter_result **out, heft_error *err) {
    heft__filter_pass pass = {.wish = *filter};
    heft_status status = filter_complete(&pass.wish, err);
    if (status) return status;
    pass.result = heft__alloc_zero(alloc, sizeof *pass.result);
    if (!pass.result) return heft__fail_memory(err, sizeof *pass.result);
    pass.result->alloc = *alloc;
    pass.result->archive = archive;
    status = filter_make(&pass, err);
    heft__free(alloc, pass.texts, pass.ntexts * sizeof *pass.texts);
    heft__expert_list_free(&pass.experts, alloc);
    if (status) {
        heft_filter_result_free(pass.result);
        return status;
    }
    *out = pass.result;
    return HEFT_OK;
}
