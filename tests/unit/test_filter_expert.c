/* Experts: numbers in names, placements, presets; each expert belongs to one rank. */
#include "helper_filter.h"

#include "helper_files.h"
#include "helper_random.h"

#include "plan/filter.h"

/* ---- the table of names ---- */

typedef struct expert_row {
    char name[160];
    char column[4][24]; /* segment, dotted, atlas, vllm */
} expert_row;

/* Rows of tests/data/filter-experts.tsv, with `prefix` in place of a first segment `m`. */
static size_t load_rows(const char *prefix, expert_row *rows, size_t most) {
    size_t nbytes, n = 0;
    char *text = (char *)test_slurp(TEST_DATA "/filter-experts.tsv", &nbytes), *line = text;
    for (char *end; (end = strchr(line, '\n')); line = end + 1) {
        *end = 0;
        if (*line == '#') continue;
        assert_true(n < most);
        expert_row *row = &rows[n++];
        char *tab = strchr(line, '\t');
        bool swap = strncmp(line, "m.", 2) == 0;
        snprintf(row->name, sizeof row->name, "%s%.*s", swap ? prefix : "", (int)(tab - line - swap), line + swap);
        for (int i = 0; i < 4; i++) {
            char *start = tab + 1;
            tab = i < 3 ? strchr(start, '\t') : start + strlen(start);
            snprintf(row->column[i], sizeof row->column[i], "%.*s", (int)(tab - start), start);
        }
    }
    free(text);
    return n;
}

static const char *found_text(heft_expert_name rule, const char *name, char *out) {
    heft__expert expert;
    heft__expert_find(rule, name, strlen(name), &expert);
    if (expert.too_large) assert_int_equal(expert.index, UINT64_MAX);
    assert_false(expert.found && expert.fused);
    if (!expert.found || expert.too_large) return expert.found ? "large" : "no";
    snprintf(out, 24, "%llu", (unsigned long long)expert.index);
    return out;
}

static void names_of_the_table(void **state) {
    (void)state;
    static const char *const prefixes[] = {"m", "model.layers.3", "x.y.7.z", "experts_.", "sub.experts9"};
    static expert_row rows[64];
    char number[24];
    for (size_t p = 0; p < sizeof prefixes / sizeof *prefixes; p++) {
        size_t n = load_rows(prefixes[p], rows, 64);
        assert_int_equal(n, 31);
        const char *names[64];
        for (size_t i = 0; i < n; i++) {
            names[i] = rows[i].name;
            assert_string_equal(found_text(HEFT_EXPERT_NAME_SEGMENT, names[i], number), rows[i].column[0]);
            assert_string_equal(found_text(HEFT_EXPERT_NAME_DOTTED, names[i], number), rows[i].column[1]);
        }
        heft_archive *archive = named_archive(names, n);
        for (heft_preset preset = HEFT_PRESET_ATLAS; preset <= HEFT_PRESET_VLLM; preset++) {
            char keeps[64][8] = {{0}};
            for (uint64_t rank = 0; rank < 4; rank++) {
                heft_filter filter = {
                    .struct_size = sizeof filter, .preset = preset, .ep_rank = rank, .ep_world = 4, .num_experts = 10};
                heft_filter_result *result = applied(archive, &filter);
                assert_accounts(archive, result);
                for (size_t i = 0; i < n; i++) {
                    heft_rule rule = rule_of(archive, result, names[i]);
                    if (rule == HEFT_RULE_KEPT)
                        keeps[i][strlen(keeps[i])] = (char)('0' + rank);
                    else if (rule == HEFT_RULE_EXPERT_OUT_OF_RANGE)
                        strcpy(keeps[i], "out");
                    else
                        assert_int_equal(rule, HEFT_RULE_REMOTE_EXPERT);
                }
                heft_filter_result_free(result);
            }
            for (size_t i = 0; i < n; i++)
                if (strcmp(keeps[i], rows[i].column[1 + preset]) != 0)
                    fail_msg("%s under preset %u: \"%s\", wanted %s", names[i], preset, keeps[i],
                             rows[i].column[1 + preset]);
        }
        heft_archive_unref(archive);
    }
}

/* Names built from pieces, against the rules written down once more, in the plainest way. */
static void names_at_random(void **state) {
    (void)state;
    static const char *const pieces[] = {
        "experts", ".", ".", ".", "9", "experts.", "+", "18446744073709551615", "0", "x", ".experts", "Experts", "1"};
    uint64_t seed = 11;
    for (uint64_t round = 0; round < test_count(200000); round++) {
        char name[256] = "", number[24];
        for (uint64_t i = random_below(&seed, 9); i-- > 0;) strcat(name, pieces[random_below(&seed, 13)]);
        const char *expected = "no";
        char copy[256], digits[256];
        for (const char *at = name; (at = strstr(at, ".experts.")); at++) { /* dotted */
            size_t k = strspn(at + 9, "0123456789");
            if (!k || at[9 + k] != '.') continue;
            snprintf(digits, sizeof digits, "%.*s", (int)k, at + 9);
            const char *first = digits + strspn(digits, "0");
            bool large = strlen(first) > 20 || (strlen(first) == 20 && strcmp(first, "18446744073709551615") > 0);
            expected = large ? "large" : *first ? first : "0";
            break;
        }
        assert_string_equal(found_text(HEFT_EXPERT_NAME_DOTTED, name, number), expected);
        expected = "no";
        snprintf(copy, sizeof copy, "%s", name);
        for (char *segment = copy, *end; (end = strchr(segment, '.')); segment = end + 1) { /* segment */
            *end = 0;
            if (strcmp(segment, "experts") != 0) continue;
            char *next = end + 1;
            next[strcspn(next, ".")] = 0;
            if (*next == '+') next++;
            const char *first = next + strspn(next, "0");
            bool large = strlen(first) > 20 || (strlen(first) == 20 && strcmp(first, "18446744073709551615") > 0);
            if (*next && strspn(next, "0123456789") == strlen(next) && !large) expected = *first ? first : "0";
            break;
        }
        assert_string_equal(found_text(HEFT_EXPERT_NAME_SEGMENT, name, number), expected);
    }
}

static void layers(void **state) {
    (void)state;
    static const struct {
        const char *name;
        uint64_t layer;
    } cases[] = {{"model.layers.12.mlp.experts.3.w.weight", 12},
                 {"experts.3.w1", HEFT_NONE},
                 {"a.experts.3.4.w", HEFT_NONE},
                 {"encoder.block.1.layer.2.mlp.experts.0.w", 1},
                 {"a.18446744073709551616.b.experts.1.w", HEFT_NONE},
                 {"7.experts.1.w", 7},
                 {"a.1x.experts.2.w", HEFT_NONE},
                 {"a.+1.experts.2.w", HEFT_NONE},
                 {"a.007.experts.2.w", 7}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        heft__expert expert;
        heft__expert_find(HEFT_EXPERT_NAME_SEGMENT, cases[i].name, strlen(cases[i].name), &expert);
        assert_true(expert.found);
        assert_int_equal(heft__expert_layer(cases[i].name, expert.before), cases[i].layer);
    }
}

/* ---- placements ---- */

static void placements_of_the_table(void **state) {
    (void)state;
    static const struct {
        heft_placement placement;
        uint64_t n, world;
        const char *owned[4]; /* ranges, or members */
    } cases[] = {
        {HEFT_PLACEMENT_LAST_TAKES_REST, 10, 4, {"0 1", "2 3", "4 5", "6 7 8 9"}},
        {HEFT_PLACEMENT_LAST_TAKES_REST, 3, 4, {"", "", "", "0 1 2"}},
        {HEFT_PLACEMENT_FIRST_TAKE_REST, 10, 4, {"0 1 2", "3 4 5", "6 7", "8 9"}},
        {HEFT_PLACEMENT_FIRST_TAKE_REST, 3, 4, {"0", "1", "2", ""}},
        {HEFT_PLACEMENT_ROUND_ROBIN, 10, 4, {"0 4 8", "1 5 9", "2 6", "3 7"}},
        {HEFT_PLACEMENT_ROUND_ROBIN, 3, 4, {"0", "1", "2", ""}},
    };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++)
        for (uint64_t rank = 0; rank < cases[c].world; rank++) {
            char text[64] = "";
            for (uint64_t e = 0; e < cases[c].n; e++)
                if (heft__expert_owned(cases[c].placement, rank, cases[c].world, cases[c].n, e))
                    snprintf(text + strlen(text), 8, "%s%u", *text ? " " : "", (unsigned)e);
            assert_string_equal(text, cases[c].owned[rank]);
        }
    static const uint64_t starts[2][4] = {{0, 85, 170, 256}, {0, 86, 171, 256}};
    for (heft_placement p = HEFT_PLACEMENT_LAST_TAKES_REST; p <= HEFT_PLACEMENT_ROUND_ROBIN; p++)
        for (uint64_t rank = 0; rank < 3; rank++) {
            uint64_t count = 0;
            for (uint64_t e = 0; e < 256; e++) {
                bool owned = heft__expert_owned(p, rank, 3, 256, e);
                count += owned;
                if (p != HEFT_PLACEMENT_ROUND_ROBIN)
                    assert_int_equal(owned, starts[p - 1][rank] <= e && e < starts[p - 1][rank + 1]);
            }
            if (p == HEFT_PLACEMENT_ROUND_ROBIN) assert_int_equal(count, rank ? 85 : 86);
        }
}

static void each_expert_has_one_owner(void **state) {
    (void)state;
    for (heft_placement p = HEFT_PLACEMENT_LAST_TAKES_REST; p <= HEFT_PLACEMENT_ROUND_ROBIN; p++)
        for (uint64_t n = 1; n <= 40; n++)
            for (uint64_t world = 1; world <= 45; world++) {
                uint64_t idle = 0, owners[40] = {0};
                for (uint64_t rank = 0; rank < world; rank++) {
                    uint64_t count = 0;
                    for (uint64_t e = 0; e < n; e++) {
                        bool owned = heft__expert_owned(p, rank, world, n, e);
                        count += owned;
                        owners[e] += owned;
                    }
                    idle += count == 0;
                }
                for (uint64_t e = 0; e < n; e++) assert_int_equal(owners[e], 1);
                assert_int_equal(heft__expert_idle(p, world, n), idle);
            }
    /* Numbers at the end of what fits. */
    for (heft_placement p = HEFT_PLACEMENT_LAST_TAKES_REST; p <= HEFT_PLACEMENT_ROUND_ROBIN; p++) {
        const uint64_t most = UINT64_MAX;
        bool last = p != HEFT_PLACEMENT_ROUND_ROBIN;
        assert_int_equal(heft__expert_owned(p, 6, 7, most, most - 1), last || (most - 1) % 7 == 6);
        assert_int_equal(heft__expert_owned(p, 0, most, most, 0), true);
        assert_int_equal(heft__expert_owned(p, most - 1, most, most, most - 1), true);
        assert_int_equal(heft__expert_owned(p, most - 2, most, most, most - 1), false);
    }
}

/* ---- all ranks together ---- */

static size_t random_names(uint64_t *seed, char names[][64], const char **out, size_t n) {
    static const char *const tails[] = {"w.weight", "w.weight_packed", "w.weight_scale", "w1", "w.input_scale", "w.zp"};
    static const char *const heads[] = {"model.layers.%u.mlp.experts.%u.%s",
                                        "mtp.layers.%u.mlp.experts.%u.%s",
                                        "model.%u.attn%u.%s",
                                        "model.layers.%u.mlp.experts.gate%u.%s",
                                        "visual.%u.%u.%s",
                                        "m.%u.shared_experts.%u.%s"};
    for (size_t i = 0; i < n; i++) {
        snprintf(names[i], 64, heads[random_below(seed, 3) ? 0 : random_below(seed, 6)],
                 (unsigned)random_below(seed, 40), (unsigned)random_below(seed, 24), tails[random_below(seed, 6)]);
        for (size_t k = 0; k < i; k++)
            if (strcmp(names[k], names[i]) == 0) snprintf(names[i] + strlen(names[i]), 12, ".%u", (unsigned)i);
        out[i] = names[i];
    }
    return n;
}

static void ranks_share_all_tensors(void **state) {
    (void)state;
    uint64_t seed = 3;
    static char names[120][64];
    const char *list[120];
    for (uint64_t round = 0; round < test_count(150); round++) {
        size_t n = random_names(&seed, names, list, 1 + random_below(&seed, 120));
        heft_archive *archive = named_archive(list, n);
        heft_filter filter = {.struct_size = sizeof filter,
                              .preset = (heft_preset)random_below(&seed, 3),
                              .expert_name = (heft_expert_name)random_below(&seed, 3),
                              .placement = (heft_placement)random_below(&seed, 4),
                              .expert_scope = (heft_expert_scope)random_below(&seed, 3),
                              .ep_world = 2 + random_below(&seed, 9),
                              .num_experts = 1 + random_below(&seed, 30)};
        bool vllm = filter.preset == HEFT_PRESET_VLLM;
        heft_expert_name by = filter.expert_name ? filter.expert_name
                              : vllm             ? HEFT_EXPERT_NAME_DOTTED
                                                 : HEFT_EXPERT_NAME_SEGMENT;
        bool heavy = filter.expert_scope ? filter.expert_scope == HEFT_EXPERT_SCOPE_HEAVY : vllm;
        uint64_t keepers[120] = {0};
        for (filter.ep_rank = 0; filter.ep_rank < filter.ep_world; filter.ep_rank++) {
            heft_filter_result *result = applied(archive, &filter);
            assert_accounts(archive, result);
            for (size_t i = 0; i < n; i++) keepers[i] += rule_of(archive, result, list[i]) == HEFT_RULE_KEPT;
            heft_filter_result_free(result);
        }
        for (size_t i = 0; i < n; i++) {
            heft__expert expert;
            heft__expert_find(by, list[i], strlen(list[i]), &expert);
            const char *tail = strstr(list[i], ".weight"); /* there is at most one */
            bool is_heavy = tail && (strcmp(tail, ".weight") == 0 || strcmp(tail, ".weight_packed") == 0);
            bool everywhere = !expert.found || (!vllm && strncmp(list[i], "mtp.", 4) == 0) || (heavy && !is_heavy);
            uint64_t expected = everywhere ? filter.ep_world : expert.index < filter.num_experts;
            if (keepers[i] != expected)
                fail_msg("%s: %u ranks keep it, expected %u", list[i], (unsigned)keepers[i], (unsigned)expected);
        }
        heft_archive_unref(archive);
    }
}

/* ---- hostile names ---- */

#define HOSTILE(...)                                                                                                   \
    { .struct_size = sizeof(heft_filter), __VA_ARGS__ }
#define HOSTILE_COUNT(array) (sizeof(array) / sizeof *(array))

static void assert_readable(const char *message) {
    assert_true(*message);
    for (const char *at = message; *at; at++)
        if ((unsigned char)*at < 0x20 || *at == 0x7F) fail_msg("byte %d in a message: %s", *at, message);
}

/* Whatever names hold, and whichever rule speaks of them, a terminal gets text. */
static void messages_escape_names(void **state) {
    (void)state;
    static const char *const names[] = {"a\x1b[31m.experts.9.w\x1b[0m.weight", "a\x1b[31m.experts.0.w\x1b[0m.weight",
                                        "a\n.experts.up\x07", "mtp.\x1b]0;title\x07", "embed\t\x7f"};
    static const char *const hostile[] = {"\x1b[2J*", "\n"}, *const broken[] = {"\x1b[2J[a"}, *const all[] = {"embed*"};
    static const char *const missing[] = {"embed\t\x1b"}, *const withheld[] = {"mtp.\x1b]0;title\x07"},
                             *const remote[] = {"a\x1b[31m.experts.0.w\x1b[0m.weight"};
    static const heft_tp_rule axis[] = {{"embed*", 7}}, uneven[] = {{"embed*", 0}};
    static const heft_expert_id listed[] = {{3, 4}};
    heft_archive *archive = named_archive(names, HOSTILE_COUNT(names));
    const heft_filter cases[] = {
        HOSTILE(.ep_world = 2, .num_experts = 3),
        HOSTILE(.ep_world = 2, .ep_rank = 1, .num_experts = 1, .placement = HEFT_PLACEMENT_ROUND_ROBIN),
        HOSTILE(.ep_world = 2),
        HOSTILE(.experts = listed, .nexperts = 1),
        HOSTILE(.include = hostile, .ninclude = 2, .exclude = hostile, .nexclude = 2, .defer = hostile, .ndefer = 2),
        HOSTILE(.include = broken, .ninclude = 1),
        HOSTILE(.demand = missing, .ndemand = 1),
        HOSTILE(.skip_mtp = true, .demand = withheld, .ndemand = 1),
        HOSTILE(.ep_world = 2, .ep_rank = 1, .num_experts = 10, .demand = remote, .ndemand = 1),
        HOSTILE(.tp_world = 2, .tp_rules = axis, .ntp_rules = 1),
        HOSTILE(.tp_world = 3, .tp_rules = uneven, .ntp_rules = 1),
        HOSTILE(.exclude = all, .nexclude = 1),
    };
    for (size_t i = 0; i < HOSTILE_COUNT(cases); i++) {
        heft_filter filter = cases[i];
        heft_filter_result *result;
        heft_error err;
        for (int strict = 0; strict < 2; strict++) {
            filter.strict = strict;
            if (heft_filter_apply(archive, &filter, &result, &err) != HEFT_OK) {
                assert_readable(err.message);
                continue;
            }
            const heft_report *report = heft_filter_warnings(result);
            for (uint64_t k = 0; k < heft_report_count(report); k++) {
                heft_severity severity;
                heft_error fault;
                heft_report_get(report, k, &severity, &fault, NULL);
                assert_readable(fault.message);
            }
            for (uint64_t id = 0; id < HOSTILE_COUNT(names); id++) {
                heft_view view;
                if (heft_filter_view(result, id, &view, &err) != HEFT_OK) assert_readable(err.message);
            }
            heft_filter_result_free(result);
        }
    }
    heft_archive_unref(archive);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_of_the_table),
        cmocka_unit_test(names_at_random),
        cmocka_unit_test(layers),
        cmocka_unit_test(placements_of_the_table),
        cmocka_unit_test(each_expert_has_one_owner),
        cmocka_unit_test(ranks_share_all_tensors),
        cmocka_unit_test(messages_escape_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
