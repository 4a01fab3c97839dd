/* Filters: which rule decides, what is refused, the rank's part, the report; every allocation that fails. */
#include "helper_filter.h"

#include "helper_files.h"
#include "helper_random.h"

#define FILTER(...)                                                                                                    \
    { .struct_size = sizeof(heft_filter), __VA_ARGS__ }
#define COUNT(array) (sizeof(array) / sizeof *(array))

/* ---- rules ---- */

static void rules_have_names_and_outcomes(void **state) {
    (void)state;
    static const char *const words[] = {
        "not-in-index",     "replaced",    "overlay",       "exclude",             "not-included", "vision", "mtp",
        "activation-scale", "expert-plan", "remote-expert", "expert-out-of-range", "callback",     "defer",  "kept"};
    assert_int_equal(HEFT_RULE_COUNT, COUNT(words));
    for (heft_rule rule = 0; rule < HEFT_RULE_COUNT; rule++) {
        assert_string_equal(heft_rule_name(rule), words[rule]);
        bool kept = rule == HEFT_RULE_KEPT || rule == HEFT_RULE_OVERLAY;
        heft_outcome outcome = kept                      ? HEFT_OUTCOME_KEPT
                               : rule == HEFT_RULE_DEFER ? HEFT_OUTCOME_DEFERRED
                                                         : HEFT_OUTCOME_WITHHELD;
        assert_int_equal(heft_rule_outcome(rule), outcome);
    }
    assert_string_equal(heft_rule_name(HEFT_RULE_COUNT), "unknown");
    assert_string_equal(heft_rule_name(UINT32_MAX), "unknown");
    assert_int_equal(heft_rule_outcome(UINT32_MAX), HEFT_OUTCOME_WITHHELD);
}

static void skips(void **state) {
    (void)state;
    static const char *const withheld[] = {"model.visual.x", "model.visionfoo", "model.vision_tower.x",
                                           "visual.x",       "mtp.fc.weight",   "a.input_scale"};
    static const heft_rule by[] = {HEFT_RULE_VISION, HEFT_RULE_VISION, HEFT_RULE_VISION,
                                   HEFT_RULE_VISION, HEFT_RULE_MTP,    HEFT_RULE_ACTIVATION_SCALE};
    static const char *const kept[] = {"model.visualx",
                                       "model.layers.0.revision.weight",
                                       "Visual.x",
                                       "model.mtp.fc.weight",
                                       "mtpx.w",
                                       "input_scale",
                                       "a.input_scale_inv",
                                       "a.weight_scale",
                                       "a.weight_scale_2",
                                       "a.k_scale",
                                       "visual",
                                       "mtp",
                                       "model.visual"};
    const char *names[COUNT(withheld) + COUNT(kept)];
    memcpy(names, withheld, sizeof withheld);
    memcpy(names + COUNT(withheld), kept, sizeof kept);
    heft_archive *archive = named_archive(names, COUNT(names));
    for (int bits = 0; bits < 8; bits++) {
        heft_filter filter = FILTER(.skip_vision = bits & 1, .skip_mtp = bits & 2, .skip_activation_scales = bits & 4);
        heft_filter_result *result = applied(archive, &filter);
        assert_accounts(archive, result);
        for (size_t i = 0; i < COUNT(kept); i++) assert_int_equal(rule_of(archive, result, kept[i]), HEFT_RULE_KEPT);
        for (size_t i = 0; i < COUNT(withheld); i++) {
            bool on = by[i] == HEFT_RULE_VISION ? bits & 1 : by[i] == HEFT_RULE_MTP ? bits & 2 : bits & 4;
            assert_int_equal(rule_of(archive, result, withheld[i]), on ? by[i] : HEFT_RULE_KEPT);
        }
        heft_filter_result_free(result);
    }
    heft_archive_unref(archive);
}

static bool never(void *ctx, const heft_tensor *tensor) {
    (void)tensor;
    ++*(int *)ctx;
    return false;
}

static bool never_expert(void *ctx, const heft_tensor *tensor, uint64_t layer, uint64_t expert) {
    (void)tensor, (void)layer, (void)expert;
    ++*(int *)ctx;
    return false;
}

/* One tensor that every rule could decide: taking the first away lets the next one decide. */
static void the_first_rule_decides(void **state) {
    (void)state;
    static const char *const names[] = {"mtp.experts.9.input_scale", "visual.experts.9.w.input_scale"};
    static const char *const all[] = {"*"}, *const none[] = {"nothing"}, *const some[] = {"*experts*"};
    heft_archive *archive = named_archive(names, 2);
    int experts = 0, tensors = 0;
    heft_filter filter = FILTER(.exclude = some, .nexclude = 1, .include = none, .ninclude = 1, .skip_vision = true,
                                .skip_mtp = true, .skip_activation_scales = true, .keep_expert = never_expert,
                                .keep_expert_ctx = &experts, .ep_world = 2, .num_experts = 20, .ep_rank = 1,
                                .keep = never, .keep_ctx = &tensors, .defer = all, .ndefer = 1, .replicated = none);
    static const heft_rule order[2][9] = {
        {HEFT_RULE_EXCLUDE, HEFT_RULE_NOT_INCLUDED, HEFT_RULE_MTP, HEFT_RULE_ACTIVATION_SCALE, HEFT_RULE_EXPERT_PLAN,
         HEFT_RULE_REMOTE_EXPERT, HEFT_RULE_CALLBACK, HEFT_RULE_DEFER, HEFT_RULE_KEPT},
        {HEFT_RULE_EXCLUDE, HEFT_RULE_NOT_INCLUDED, HEFT_RULE_VISION, HEFT_RULE_ACTIVATION_SCALE, HEFT_RULE_EXPERT_PLAN,
         HEFT_RULE_REMOTE_EXPERT, HEFT_RULE_CALLBACK, HEFT_RULE_DEFER, HEFT_RULE_KEPT}};
    for (int step = 0; step < 9; step++) {
        heft_filter_result *result = applied(archive, &filter);
        assert_accounts(archive, result);
        assert_int_equal(experts, 2 * (step > 4 ? 1 : step == 4));
        assert_int_equal(tensors, 2 * (step > 6 ? 1 : step == 6));
        for (int i = 0; i < 2; i++) assert_int_equal(rule_of(archive, result, names[i]), order[i][step]);
        heft_filter_result_free(result);
        if (step == 0) filter.nexclude = 0;
        if (step == 1) filter.ninclude = 0;
        if (step == 2) filter.skip_vision = filter.skip_mtp = false;
        if (step == 3) filter.skip_activation_scales = false;
        if (step == 4) filter.keep_expert = NULL;
        if (step == 5) filter.ep_world = filter.ep_rank = 0;
        if (step == 6) filter.keep = NULL;
        if (step == 7) filter.ndefer = 0;
    }
    heft_archive_unref(archive);
}

/* ---- callbacks ---- */

static bool keep_long(void *ctx, const heft_tensor *tensor) {
    uint64_t *last = ctx;
    assert_true(*last == HEFT_NONE || tensor->id > *last);
    *last = tensor->id;
    return tensor->name_len > 6;
}

static bool keep_pair(void *ctx, const heft_tensor *tensor, uint64_t layer, uint64_t expert) {
    (void)ctx;
    if (strncmp(tensor->name, "mtp.", 4) == 0) return expert == UINT64_MAX;
    return layer == 3 && expert == 5;
}

static void callbacks(void **state) {
    (void)state;
    static const char *const names[] = {"embed",           "l.3.experts.5.w", "l.3.experts.6.w",
                                        "l.4.experts.5.w", "experts.5.w",     "mtp.experts.99999999999999999999.w",
                                        "embedding"};
    heft_archive *archive = named_archive(names, COUNT(names));
    uint64_t last = HEFT_NONE;
    heft_filter filter =
        FILTER(.keep = keep_long, .keep_ctx = &last, .keep_expert = keep_pair, .expert_name = HEFT_EXPERT_NAME_DOTTED);
    heft_filter_result *result = applied(archive, &filter);
    assert_accounts(archive, result);
    static const heft_rule expected[] = {HEFT_RULE_CALLBACK,    HEFT_RULE_KEPT, HEFT_RULE_EXPERT_PLAN,
                                         HEFT_RULE_EXPERT_PLAN, HEFT_RULE_KEPT, HEFT_RULE_KEPT,
                                         HEFT_RULE_KEPT};
    for (size_t i = 0; i < COUNT(names); i++) assert_int_equal(rule_of(archive, result, names[i]), expected[i]);
    heft_filter_summary sum;
    heft_filter_summarize(result, &sum);
    assert_int_equal(sum.expert_ntensors, 4);
    assert_int_equal(sum.largest_expert, UINT64_MAX);
    assert_int_equal(sum.fused_ntensors, 1);
    heft_filter_result_free(result);
    heft_archive_unref(archive);
}

/* ---- lists of experts ---- */

static void listed_experts(void **state) {
    (void)state;
    static const char *const names[] = {"embed",           "l.3.experts.5.w", "l.3.experts.6.w",
                                        "l.4.experts.5.w", "experts.5.w",     "mtp.3.experts.5.s",
                                        "l.3.experts.up",  "x.experts.99999999999999999999.w"};
    static const heft_expert_id list[] = {
        {3, 5}, {9, 1}, {HEFT_NONE, 5}, {3, 5}, {3, 9}, {HEFT_NONE, UINT64_MAX}, {3, 5}};
    heft_archive *archive = named_archive(names, COUNT(names));
    heft_filter filter = FILTER(.experts = list, .nexperts = COUNT(list));
    heft_filter_result *result = applied(archive, &filter);
    assert_accounts(archive, result);
    for (size_t i = 0; i < COUNT(names); i++)
        assert_int_equal(rule_of(archive, result, names[i]),
                         i == 2 || i == 3 ? HEFT_RULE_EXPERT_PLAN : HEFT_RULE_KEPT);
    heft_filter_summary sum;
    heft_severity severity;
    heft_error fault;
    heft_filter_summarize(result, &sum);
    assert_int_equal(sum.unmatched, 3);
    assert_int_equal(heft_report_count(heft_filter_warnings(result)), 1);
    heft_report_get(heft_filter_warnings(result), 0, &severity, &fault, NULL);
    assert_string_equal(fault.message,
                        "3 of 5 listed experts are in no tensor's name; the first is expert 9 of layer 3");
    heft_filter_result_free(result);
    filter.expert_name = HEFT_EXPERT_NAME_DOTTED; /* now the last name has a number, which no list can hold */
    result = applied(archive, &filter);
    assert_int_equal(rule_of(archive, result, names[7]), HEFT_RULE_EXPERT_PLAN);
    assert_int_equal(rule_of(archive, result, names[4]), HEFT_RULE_KEPT); /* no number under this rule */
    heft_filter_result_free(result);
    filter.strict = true;
    assert_refused(archive, &filter, HEFT_NOT_FOUND, "listed experts are in no tensor's name");
    filter = (heft_filter)FILTER(.experts = list, .nexperts = 1, .keep_expert = keep_pair);
    result = applied(archive, &filter); /* both have to agree */
    assert_int_equal(rule_of(archive, result, names[1]), HEFT_RULE_KEPT);
    assert_int_equal(rule_of(archive, result, names[5]), HEFT_RULE_EXPERT_PLAN);
    heft_filter_result_free(result);
    filter = (heft_filter)FILTER(.experts = list, .strict = true); /* a list of none */
    result = applied(archive, &filter);
    for (int i = 1; i < 6; i++) assert_int_equal(rule_of(archive, result, names[i]), HEFT_RULE_EXPERT_PLAN);
    assert_int_equal(rule_of(archive, result, names[6]), HEFT_RULE_KEPT);
    heft_filter_result_free(result);
    heft_archive_unref(archive);
}

/* Any list decides as a search through it would. */
static void listed_experts_at_random(void **state) {
    (void)state;
    uint64_t seed = 5;
    static char names[200][32];
    const char *given[200];
    for (int i = 0; i < 200; i++) {
        snprintf(names[i], sizeof names[i], "l.%d.experts.%d.w", i / 20, i % 20);
        given[i] = names[i];
    }
    heft_archive *archive = named_archive(given, 200);
    for (uint64_t round = 0; round < test_count(300); round++) {
        heft_expert_id list[64];
        size_t n = random_below(&seed, 65);
        for (size_t i = 0; i < n; i++)
            list[i] = (heft_expert_id){random_below(&seed, 12), random_below(&seed, 22)};
        heft_filter filter = FILTER(.experts = list, .nexperts = n);
        heft_filter_result *result = applied(archive, &filter);
        for (uint64_t i = 0; i < 200; i++) {
            bool there = false;
            for (size_t k = 0; k < n; k++) there = there || (list[k].layer == i / 20 && list[k].expert == i % 20);
            assert_int_equal(rule_of(archive, result, names[i]), there ? HEFT_RULE_KEPT : HEFT_RULE_EXPERT_PLAN);
        }
        heft_filter_result_free(result);
    }
    heft_archive_unref(archive);
}

/* ---- globs ---- */

static void lists_of_globs(void **state) {
    (void)state;
    static const char *const names[] = {"a.weight", "a.bias", "b.weight", "b.bias", "c"};
    static const char *const include[] = {"a.*", "b.*"}, *const exclude[] = {"*.bias"}, *const defer[] = {"b.*"};
    heft_archive *archive = named_archive(names, COUNT(names));
    heft_filter filter =
        FILTER(.include = include, .ninclude = 2, .exclude = exclude, .nexclude = 1, .defer = defer, .ndefer = 1);
    heft_filter_result *result = applied(archive, &filter);
    assert_accounts(archive, result);
    static const heft_rule expected[] = {HEFT_RULE_KEPT, HEFT_RULE_EXCLUDE, HEFT_RULE_DEFER, HEFT_RULE_EXCLUDE,
                                         HEFT_RULE_NOT_INCLUDED};
    for (size_t i = 0; i < COUNT(names); i++) assert_int_equal(rule_of(archive, result, names[i]), expected[i]);
    assert_int_equal(heft_report_count(heft_filter_warnings(result)), 0);
    heft_filter_result_free(result);
    result = applied(archive, NULL);
    heft_filter_summary sum;
    heft_filter_summarize(result, &sum);
    assert_int_equal(sum.kept_ntensors, 5);
    assert_int_equal(sum.part_nbytes, sum.kept_nbytes);
    assert_int_equal(sum.largest_expert, HEFT_NONE);
    heft_filter_result_free(result);
    heft_archive_unref(archive);
}

/* A glob counts as matched by any tensor, whatever rule decides about it in the end. */
static void globs_that_match_nothing(void **state) {
    (void)state;
    static const char *const names[] = {"a.weight", "a.bias"};
    static const char *const exclude[] = {"*"}, *const include[] = {"*.bias", "a", "x*"},
                             *const defer[] = {"a.weight", "z"};
    static const heft_tp_rule rules[] = {{"*.bias", 0}, {"*.w", 0}};
    heft_archive *archive = named_archive(names, 2);
    heft_filter filter = FILTER(.include = include, .ninclude = 3, .exclude = exclude, .nexclude = 1, .defer = defer,
                                .ndefer = 2, .tp_rules = rules, .ntp_rules = 2);
    heft_filter_result *result = applied(archive, &filter);
    heft_filter_summary sum;
    heft_filter_summarize(result, &sum);
    assert_int_equal(sum.unmatched, 4);
    const heft_report *report = heft_filter_warnings(result);
    assert_int_equal(heft_report_count_of(report, HEFT_SEVERITY_WARNING), 4);
    static const char *const texts[] = {
        "include glob \"a\" matches none of 2 tensors: without * ? or [ it must be a whole name",
        "include glob \"x*\" matches none of 2 tensors", "defer glob \"z\" matches", "tensor-parallel glob \"*.w\""};
    for (uint64_t i = 0; i < 4; i++) {
        heft_error fault;
        heft_severity severity;
        assert_int_equal(heft_report_get(report, i, &severity, &fault, NULL), HEFT_OK);
        assert_non_null(strstr(fault.message, texts[i]));
        assert_int_equal(fault.status, HEFT_NOT_FOUND);
    }
    heft_filter_result_free(result);
    filter.strict = true;
    assert_refused(archive, &filter, HEFT_NOT_FOUND, "include glob \"a\"");
    heft_error err;
    heft_filter_apply(archive, &filter, &result, &err);
    assert_int_equal(err.more, 3);
    heft_archive_unref(archive);
}

/* A glob that would take a backtracking matcher longer than the universe lasts, on a long name. */
static void globs_are_linear(void **state) {
    (void)state;
    char *name = malloc(20001), glob[201];
    memset(name, 'a', 20000);
    name[20000] = 0;
    for (int i = 0; i < 200; i++) glob[i] = i % 2 ? 'a' : '*';
    glob[199] = 'b';
    glob[200] = 0;
    const char *names[] = {name}, *globs[] = {glob, glob, glob};
    heft_archive *archive = named_archive(names, 1);
    heft_filter filter = FILTER(.include = globs, .ninclude = 3, .exclude = globs, .nexclude = 3);
    heft_filter_result *result = applied(archive, &filter);
    assert_int_equal(rule_of(archive, result, name), HEFT_RULE_NOT_INCLUDED);
    heft_filter_result_free(result);
    heft_archive_unref(archive);
    free(name);
}

/* The shortcuts for simple globs say what the matcher says. */
static void globs_at_random(void **state) {
    (void)state;
    uint64_t seed = 8;
    static const char letters[] = "ab*?*a\\[b]*";
    for (uint64_t round = 0; round < test_count(3000); round++) {
        char glob[8] = "", text[30][12];
        const char *names[30], *globs[] = {glob};
        bool matches;
        for (uint64_t i = random_below(&seed, 7); i-- > 0;)
            glob[strlen(glob)] = letters[random_below(&seed, sizeof letters - 1)];
        if (heft_glob_match(glob, "", 0, &matches, NULL)) continue;
        for (unsigned i = 0; i < 30; i++) { /* all names of one to four letters a and b */
            unsigned length = i < 2 ? 1 : i < 6 ? 2 : i < 14 ? 3 : 4, bits = i - ((1u << length) - 2);
            for (unsigned k = 0; k < length; k++) text[i][k] = bits >> k & 1 ? 'a' : 'b';
            text[i][length] = 0;
            names[i] = text[i];
        }
        heft_archive *archive = named_archive(names, 30);
        heft_filter filter = FILTER(.exclude = globs, .nexclude = 1);
        heft_filter_result *result = applied(archive, &filter);
        for (int i = 0; i < 30; i++) {
            heft_glob_match(glob, names[i], SIZE_MAX, &matches, NULL);
            if (matches != (rule_of(archive, result, names[i]) == HEFT_RULE_EXCLUDE))
                fail_msg("glob \"%s\", name \"%s\"", glob, names[i]);
        }
        heft_filter_result_free(result);
        heft_archive_unref(archive);
    }
}

/* ---- refusals ---- */

static void malformed_calls(void **state) {
    (void)state;
    static const char *const names[] = {"a.experts.7.weight", "b"}, *const bad[] = {"*", "x[a"}, *const null[] = {NULL},
                             *const all[] = {"*"};
    static const heft_tp_rule bad_rule[] = {{"a\\", 0}}, null_rule[] = {{NULL, 0}};
    heft_archive *archive = named_archive(names, 2);
    const struct {
        heft_filter filter;
        const char *piece;
    } cases[] = {
        {FILTER(.include = bad, .ninclude = 2), "include glob \"x[a\": a [ without its ], at offset 1"},
        {FILTER(.exclude = bad, .nexclude = 2), "exclude glob \"x[a\""},
        {FILTER(.defer = bad, .ndefer = 2), "defer glob \"x[a\""},
        {FILTER(.tp_rules = bad_rule, .ntp_rules = 1),
         "tensor-parallel glob \"a\\\": a backslash at the end escapes nothing, at offset 1"},
        {FILTER(.include = null, .ninclude = 1), "include glob 0 is NULL"},
        {FILTER(.tp_rules = null_rule, .ntp_rules = 1), "tensor-parallel glob 0 is NULL"},
        {FILTER(.ninclude = 1), "the include glob list is NULL, but its count is 1"},
        {FILTER(.nreplicated = 1), "the replicated prefix list is NULL"},
        {FILTER(.nheavy = 3), "the heavy suffix list is NULL, but its count is 3"},
        {FILTER(.ndemand = 1), "the demanded name list is NULL"},
        {FILTER(.demand = null, .ndemand = 1), "demanded name 0 is NULL"},
        {FILTER(.nexperts = 2), "the list of experts is NULL, but its count is 2"},
        {FILTER(.preset = 3), "preset is no known one"},
        {FILTER(.expert_name = 3), "expert_name is no known rule"},
        {FILTER(.placement = 4), "placement is no known one"},
        {FILTER(.expert_scope = 3), "expert_scope is no known one"},
        {FILTER(.tp_split = 2), "tp_split is no known way"},
        {FILTER(.ep_rank = 1), "ep_rank is 1, but ep_world is 1"},
        {FILTER(.ep_rank = 4, .ep_world = 4, .num_experts = 8), "ep_rank is 4, but ep_world is 4"},
        {FILTER(.tp_rank = 2, .tp_world = 2), "tp_rank is 2, but tp_world is 2"},
        {FILTER(.ep_world = 4), "the largest number in a name is 7, so num_experts may be 8"},
        {FILTER(.include = all, .ninclude = SIZE_MAX / 2, .exclude = all, .nexclude = SIZE_MAX / 2),
         "longer than memory"},
    };
    for (size_t i = 0; i < COUNT(cases); i++)
        assert_refused(archive, &cases[i].filter, HEFT_INVALID_ARGUMENT, cases[i].piece);
    heft_filter_result *result;
    heft_error err;
    heft_filter_apply(archive, &cases[0].filter, &result, &err);
    assert_int_equal(err.offset, 1);
    heft_filter_apply(archive, &cases[20].filter, &result, &err);
    assert_int_equal(err.expected, 8);
    assert_int_equal(heft_filter_apply(NULL, NULL, &result, &err), HEFT_INVALID_ARGUMENT);
    assert_int_equal(heft_filter_apply(archive, NULL, NULL, &err), HEFT_INVALID_ARGUMENT);
    heft_filter no_size = {.skip_mtp = true};
    assert_refused(archive, &no_size, HEFT_INVALID_ARGUMENT, "struct_size is 0");
    heft_allocator half = {0};
    heft_filter lame = FILTER(.allocator = &half);
    assert_refused(archive, &lame, HEFT_INVALID_ARGUMENT, "allocator lacks");
    heft_archive_unref(archive);
    heft_filter world = FILTER(.ep_world = 2);
    static const char *const dense[] = {"a", "m.experts.gate"}, *const absurd[] = {"experts.18446744073709551615.w"};
    archive = named_archive(dense, 2);
    assert_refused(archive, &world, HEFT_INVALID_ARGUMENT, "no tensor's name holds an expert's number");
    heft_archive_unref(archive);
    archive = named_archive(absurd, 1);
    assert_refused(archive, &world, HEFT_INVALID_ARGUMENT, "beyond all use");
    heft_archive_unref(archive);
}

static void demanded_names(void **state) {
    (void)state;
    static const char *const names[] = {"mtp.fc.weight", "embed.weight", "late"}, *const late[] = {"late"};
    const char *one[1];
    heft_archive *archive = named_archive(names, 3);
    heft_filter filter = FILTER(.skip_mtp = true, .defer = late, .ndefer = 1, .demand = one, .ndemand = 1);
    one[0] = "mtp.fc.weight";
    assert_refused(archive, &filter, HEFT_INVALID_ARGUMENT,
                   "mtp.fc.weight: demanded by name, but withheld by the rule mtp");
    one[0] = "embed.weigth";
    assert_refused(archive, &filter, HEFT_NOT_FOUND, "embed.weight");
    for (int i = 0; i < 2; i++) {
        one[0] = names[1 + i];
        heft_filter_result_free(applied(archive, &filter));
    }
    heft_archive_unref(archive);
}

static void strict_experts(void **state) {
    (void)state;
    static const char *const names[] = {"a.experts.0.weight", "a.experts.8.weight", "a.experts.9.weight",
                                        "a.experts.up"};
    heft_archive *archive = named_archive(names, 4);
    heft_filter filter = FILTER(.ep_world = 4, .ep_rank = 3, .num_experts = 8);
    heft_filter_result *result = applied(archive, &filter);
    assert_accounts(archive, result);
    const heft_report *report = heft_filter_warnings(result);
    heft_severity severity;
    heft_error fault;
    assert_int_equal(heft_report_count(report), 2);
    heft_report_get(report, 0, &severity, &fault, NULL);
    assert_string_equal(
        fault.message,
        "2 tensors of 5 bytes belong to experts that no rank owns: num_experts is 8, the largest number is 9; "
        "the first is \"a.experts.8.weight\"");
    assert_int_equal(severity, HEFT_SEVERITY_WARNING);
    assert_int_equal(fault.expected, 8);
    assert_int_equal(fault.found, 9);
    heft_report_get(report, 1, &severity, &fault, NULL);
    assert_int_equal(severity, HEFT_SEVERITY_NOTE);
    assert_non_null(strstr(fault.message, "1 tensor of 4 bytes lie under `experts` without a number"));
    heft_filter_result_free(result);
    filter.strict = true;
    assert_refused(archive, &filter, HEFT_LIMIT, "experts that no rank owns");
    filter.num_experts = 10;
    heft_filter_result_free(applied(archive, &filter)); /* a note is no warning */
    filter.ep_world = 12;
    assert_refused(archive, &filter, HEFT_INVALID_ARGUMENT,
                   "11 of 12 ranks own no expert, since there are only 10: the last rank has them all");
    filter.placement = HEFT_PLACEMENT_ROUND_ROBIN;
    assert_refused(archive, &filter, HEFT_INVALID_ARGUMENT, "2 of 12 ranks own no expert");
    heft_archive_unref(archive);
}

/* ---- the index ---- */

static void what_the_index_hides_is_counted(void **state) {
    (void)state;
    static const test_tensor one[] = {{"a", "U8", "3", NULL, 3}, {"stray", "U8", "5", NULL, 5}};
    static const test_tensor two[] = {{"a", "U8", "7", NULL, 7}, {"b", "U8", "2", NULL, 2}};
    static const char index[] = "{\"weight_map\":{\"a\":\"one.safetensors\",\"b\":\"two.safetensors\"}}";
    const char *dir = test_mkdir("indexed"), *stray[] = {"stray"};
    test_write_safetensors("indexed/one.safetensors", one, 2, NULL);
    test_write_safetensors("indexed/two.safetensors", two, 2, NULL);
    test_write("indexed/model.safetensors.index.json", index, sizeof index - 1);
    heft_archive *archive;
    heft_error err;
    if (heft_archive_open(dir, NULL, &archive, &err)) fail_msg("%s", err.message);
    heft_filter_result *result = applied(archive, NULL);
    assert_accounts(archive, result);
    heft_rule_report report;
    heft_filter_report(result, HEFT_RULE_NOT_IN_INDEX, &report, NULL);
    assert_int_equal(report.ntensors, 2);
    assert_int_equal(report.nbytes, 12);
    assert_string_equal(report.first_name, "stray");
    heft_filter_report(result, HEFT_RULE_KEPT, &report, NULL);
    assert_int_equal(report.nbytes, 5);
    assert_int_equal(heft_filter_report(result, HEFT_RULE_COUNT, &report, NULL), HEFT_INVALID_ARGUMENT);
    heft_filter_result_free(result);
    heft_filter filter = FILTER(.demand = stray, .ndemand = 1);
    assert_refused(archive, &filter, HEFT_INVALID_ARGUMENT, "withheld by the rule not-in-index");
    heft_archive_unref(archive);
}

/* ---- presets ---- */

static void the_preset_defers(void **state) {
    (void)state;
    static const char *const names[] = {"m.ngram_embeddings.embedders.3.weight", "ngram_embeddings.embedders.weight",
                                        "m.ngram_embeddings.embedders.3.bias", "m.ngram_embeddings.embedders"};
    heft_archive *archive = named_archive(names, 4);
    heft_filter filter = FILTER(.preset = HEFT_PRESET_ATLAS, .strict = true);
    for (heft_preset preset = HEFT_PRESET_NONE; preset <= HEFT_PRESET_VLLM; preset++) {
        filter.preset = preset;
        heft_filter_result *result = applied(archive, &filter);
        assert_accounts(archive, result);
        for (size_t i = 0; i < 4; i++)
            assert_int_equal(rule_of(archive, result, names[i]),
                             preset == HEFT_PRESET_ATLAS && i < 2 ? HEFT_RULE_DEFER : HEFT_RULE_KEPT);
        heft_filter_result_free(result);
    }
    heft_archive_unref(archive);
}

static void fields_override_presets(void **state) {
    (void)state;
    static const char *const names[] = {"x.experts.9.scale", "mtp.experts.9.weight", "x.experts.9",
                                        "rep.experts.9.weight"};
    static const char *const rep[] = {"rep."}, *const scale[] = {"le"};
    heft_archive *archive = named_archive(names, 4);
    heft_filter filter = FILTER(.preset = HEFT_PRESET_VLLM, .ep_world = 2, .num_experts = 10, .replicated = rep,
                                .nreplicated = 1, .heavy = scale, .nheavy = 1);
    heft_filter_result *result = applied(archive, &filter);
    static const heft_rule vllm[] = {HEFT_RULE_REMOTE_EXPERT, HEFT_RULE_KEPT, HEFT_RULE_KEPT, HEFT_RULE_KEPT};
    for (size_t i = 0; i < 4; i++) assert_int_equal(rule_of(archive, result, names[i]), vllm[i]);
    heft_filter_result_free(result);
    filter.preset = HEFT_PRESET_ATLAS;
    filter.nreplicated = 0; /* a list of none */
    result = applied(archive, &filter);
    for (size_t i = 0; i < 4; i++) assert_int_equal(rule_of(archive, result, names[i]), HEFT_RULE_REMOTE_EXPERT);
    heft_filter_result_free(result);
    heft_archive_unref(archive);
}

/* ---- tensor parallel ---- */

static heft_archive *matrices(uint8_t *data, size_t nbytes) {
    test_tensor tensors[] = {{"q.weight", "I16", "6,8", data, 96},
                             {"o.weight", "I16", "6,8", data, 96},
                             {"q.bias", "I16", "6", data, 12},
                             {"stack", "U8", "2,6,4", data, 48},
                             {"norm", "U8", "5", data, 5}};
    size_t n;
    heft_source *source;
    heft_archive *archive;
    for (size_t i = 0; i < nbytes; i++) data[i] = (uint8_t)(i * 7 + 1);
    uint8_t *file = test_safetensors(tensors, COUNT(tensors), NULL, &n);
    assert_int_equal(heft_source_open_memory(file, n, "matrices", free, file, &source, NULL), HEFT_OK);
    assert_int_equal(heft_archive_open_source(source, NULL, &archive, NULL), HEFT_OK);
    heft_source_unref(source);
    return archive;
}

/* The parts of all ranks, read by one plan each, are the whole tensors. */
static void parts_of_all_ranks(void **state) {
    (void)state;
    static const heft_tp_rule rules[] = {{"q.*", 0}, {"o.weight", HEFT_TP_COLUMNS}, {"stack", HEFT_TP_ROWS}, {"*", -1}};
    uint8_t data[96];
    heft_archive *archive = matrices(data, sizeof data);
    for (uint64_t world = 1; world <= 8; world++) {
        heft_filter filter = FILTER(.tp_world = world, .tp_rules = rules, .ntp_rules = 3,
                                    .tp_split = world == 2 ? HEFT_SPLIT_EQUAL : HEFT_SPLIT_CEIL);
        uint64_t part_nbytes = 0;
        for (filter.tp_rank = 0; filter.tp_rank < world; filter.tp_rank++) {
            heft_filter_result *result = applied(archive, &filter);
            heft_view views[5];
            heft_filter_summary sum;
            heft_plan *plan;
            heft_plan_summary planned;
            uint64_t n;
            const uint64_t *ids = heft_filter_kept(result, &n);
            assert_int_equal(n, 5);
            for (uint64_t i = 0; i < n; i++) {
                heft_view whole, expected;
                heft_tensor tensor;
                heft_archive_get(archive, ids[i], &tensor, NULL);
                assert_int_equal(heft_filter_view(result, ids[i], &views[i], NULL), HEFT_OK);
                heft_view_of(archive, ids[i], &whole, NULL);
                int axis = tensor.name[0] == 'q' ? 0 : strcmp(tensor.name, "norm") == 0 ? -1 : 1;
                expected = whole;
                if (axis >= 0) heft_view_split(&whole, axis, filter.tp_rank, world, HEFT_SPLIT_CEIL, &expected, NULL);
                assert_int_equal(views[i].rank, expected.rank);
                assert_memory_equal(views[i].shape, expected.shape, expected.rank * sizeof *expected.shape);
                if (heft_view_nelems(&expected)) assert_int_equal(views[i].offset, expected.offset);
            }
            heft_filter_summarize(result, &sum);
            assert_int_equal(heft_plan_views(views, n, NULL, NULL, &plan, NULL), HEFT_OK);
            heft_plan_summarize(plan, &planned);
            assert_int_equal(planned.kept_nbytes, sum.part_nbytes);
            part_nbytes += sum.part_nbytes;
            heft_plan_free(plan);
            heft_filter_result_free(result);
        }
        assert_int_equal(part_nbytes, 96 + 96 + 12 + 48 + 5 * world); /* norm is replicated */
    }
    heft_archive_unref(archive);
}

static void cuts_that_are_impossible(void **state) {
    (void)state;
    static const heft_tp_rule rows[] = {{"norm", HEFT_TP_ROWS}}, third[] = {{"q.weight", 2}},
                              all[] = {{"norm", 0}, {"*", HEFT_TP_COLUMNS}};
    static const char *const norm[] = {"norm"};
    uint8_t data[96];
    heft_archive *archive = matrices(data, sizeof data);
    heft_filter filter = FILTER(.tp_world = 2, .tp_rules = rows, .ntp_rules = 1);
    assert_refused(archive, &filter, HEFT_INVALID_ARGUMENT, "norm: axis -2 is out of range");
    filter.tp_rules = third;
    assert_refused(archive, &filter, HEFT_INVALID_ARGUMENT, "q.weight: axis 2 is out of range");
    filter.tp_rules = all;
    filter.ntp_rules = 2;
    assert_refused(archive, &filter, HEFT_INVALID_ARGUMENT,
                   "norm: axis 0 of size 5 cannot be split into 2 equal parts");
    filter.defer = norm, filter.ndefer = 1; /* deferred is read later: checked now */
    assert_refused(archive, &filter, HEFT_INVALID_ARGUMENT, "norm: axis 0 of size 5");
    filter.exclude = norm, filter.nexclude = 1; /* withheld: no matter */
    heft_filter_result_free(applied(archive, &filter));
    filter.nexclude = 0;
    filter.tp_world = 1; /* nothing is cut */
    heft_filter_result_free(applied(archive, &filter));
    heft_archive_unref(archive);
}

static void views_of_results(void **state) {
    (void)state;
    static const char *const exclude[] = {"norm"};
    uint8_t data[96];
    heft_archive *archive = matrices(data, sizeof data);
    heft_filter filter = FILTER(.exclude = exclude, .nexclude = 1);
    heft_filter_result *result = applied(archive, &filter);
    heft_view view;
    heft_error err;
    uint64_t id, n;
    heft_archive_find(archive, "norm", SIZE_MAX, &id, NULL);
    assert_int_equal(heft_filter_view(result, id, &view, &err), HEFT_NOT_FOUND);
    assert_string_equal(err.message, "norm: withheld by the rule exclude");
    assert_string_equal(err.tensor, "norm");
    assert_null(view.archive);
    assert_int_equal(heft_filter_view(result, 99, &view, &err), HEFT_INVALID_ARGUMENT);
    /* The ids go straight into a read of many. */
    heft_buffer bytes;
    uint64_t offsets[5];
    const uint64_t *ids = heft_filter_kept(result, &n);
    assert_int_equal(n, 4);
    if (heft_read_many(archive, ids, n, NULL, &bytes, offsets, NULL, &err)) fail_msg("%s", err.message);
    for (uint64_t i = 0; i < n; i++) {
        uint8_t alone[96];
        assert_int_equal(heft_filter_view(result, ids[i], &view, NULL), HEFT_OK);
        assert_int_equal(heft_read(&view, alone, sizeof alone, NULL, NULL, NULL), HEFT_OK);
        assert_memory_equal((uint8_t *)bytes.data + offsets[i], alone, heft_view_nbytes(&view));
    }
    heft_buffer_release(&bytes);
    heft_filter_result_free(result);
    heft_filter_result_free(NULL);
    heft_archive_unref(archive);
}

/* ---- random filters ---- */

static void accounts_at_random(void **state) {
    (void)state;
    static const char *const parts[] = {"model.", "mtp.", "visual.", "layers.0.",   "experts.", "1.",
                                        "3.",     "w",    "weight",  "input_scale", "x",        "norm."};
    static const char *const globs[] = {"*", "*w*", "model.*", "*[0-9].*", "*weight", "zz*", "?", "*.experts.*"};
    uint64_t seed = 21;
    for (uint64_t round = 0; round < test_count(600); round++) {
        static char names[60][96];
        const char *list[60], *include[3], *exclude[3], *defer[3];
        heft_tp_rule rules[2];
        size_t n = random_below(&seed, 60);
        for (size_t i = 0; i < n; i++) {
            names[i][0] = 0;
            for (uint64_t k = random_below(&seed, 6); k-- > 0;)
                strcat(names[i], parts[random_below(&seed, COUNT(parts))]);
            snprintf(names[i] + strlen(names[i]), 8, "%s%u", *names[i] ? "." : "", (unsigned)i);
            list[i] = names[i];
        }
        heft_archive *archive = named_archive(list, n);
        for (int i = 0; i < 3; i++) {
            include[i] = globs[random_below(&seed, COUNT(globs))];
            exclude[i] = globs[1 + random_below(&seed, COUNT(globs) - 1)];
            defer[i] = globs[random_below(&seed, COUNT(globs))];
        }
        for (int i = 0; i < 2; i++) rules[i] = (heft_tp_rule){globs[random_below(&seed, COUNT(globs))], -1};
        heft_filter filter =
            FILTER(.include = include, .ninclude = random_below(&seed, 4), .exclude = exclude,
                   .nexclude = random_below(&seed, 3), .defer = defer, .ndefer = random_below(&seed, 3),
                   .skip_vision = random_below(&seed, 2), .skip_mtp = random_below(&seed, 2),
                   .skip_activation_scales = random_below(&seed, 2), .preset = (heft_preset)random_below(&seed, 3),
                   .ep_world = random_below(&seed, 4), .num_experts = 3, .tp_world = random_below(&seed, 4),
                   .tp_rules = rules, .ntp_rules = random_below(&seed, 3), .tp_split = HEFT_SPLIT_CEIL);
        if (filter.ep_world) filter.ep_rank = random_below(&seed, filter.ep_world);
        if (filter.tp_world) filter.tp_rank = random_below(&seed, filter.tp_world);
        heft_filter_result *result = applied(archive, &filter);
        assert_accounts(archive, result);
        heft_filter_result_free(result);
        heft_archive_unref(archive);
    }
}

/* ---- memory ---- */

static void every_allocation_fails(void **state) {
    (void)state;
    static const char *const names[] = {"a.experts.7.weight", "b", "c.experts.1.weight"},
                             *const defer[] = {"b", "none"}, *const demand[] = {"b"};
    static const heft_tp_rule rules[] = {{"b", 0}};
    static const heft_expert_id experts[] = {{HEFT_NONE, 7}, {HEFT_NONE, 1}};
    heft_archive *archive = named_archive(names, 3);
    for (uint64_t k = 1;; k++) {
        test_allocator t;
        test_allocator_init(&t, k);
        heft_filter filter =
            FILTER(.defer = defer, .ndefer = 2, .demand = demand, .ndemand = 1, .tp_rules = rules, .ntp_rules = 1,
                   .tp_world = 2, .tp_split = HEFT_SPLIT_CEIL, .ep_world = 5, .num_experts = 4, .experts = experts,
                   .nexperts = 2, .allocator = &t.alloc);
        heft_filter_result *result = NULL;
        heft_error err;
        heft_status status = heft_filter_apply(archive, &filter, &result, &err);
        if (status == HEFT_OK) {
            assert_int_equal(heft_report_count(heft_filter_warnings(result)), 3);
            heft_filter_result_free(result);
            assert_int_equal(t.live_blocks, 0);
            assert_true(k > 8);
            break;
        }
        assert_int_equal(status, HEFT_OUT_OF_MEMORY);
        assert_int_equal(err.status, HEFT_OUT_OF_MEMORY);
        assert_null(result);
        assert_int_equal(t.live_blocks, 0);
    }
    heft_archive_unref(archive);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rules_have_names_and_outcomes),
        cmocka_unit_test(skips),
        cmocka_unit_test(the_first_rule_decides),
        cmocka_unit_test(callbacks),
        cmocka_unit_test(listed_experts),
        cmocka_unit_test(listed_experts_at_random),
        cmocka_unit_test(lists_of_globs),
        cmocka_unit_test(globs_that_match_nothing),
        cmocka_unit_test(globs_are_linear),
        cmocka_unit_test(globs_at_random),
        cmocka_unit_test(malformed_calls),
        cmocka_unit_test(demanded_names),
        cmocka_unit_test(strict_experts),
        cmocka_unit_test(what_the_index_hides_is_counted),
        cmocka_unit_test(the_preset_defers),
        cmocka_unit_test(fields_override_presets),
        cmocka_unit_test(parts_of_all_ranks),
        cmocka_unit_test(cuts_that_are_impossible),
        cmocka_unit_test(views_of_results),
        cmocka_unit_test(accounts_at_random),
        cmocka_unit_test(every_allocation_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
