/* cli: the flags that say which tensors one process wants, the same for plan, load and warm. */
#include "loader.h"

#include <stdlib.h>
#include <string.h>

/* --skip vision,mtp */
static bool flags_skip(const char *command, const char *text, heft_filter *filter) {
    const struct {
        const char *word;
        bool *flag;
    } kinds[] = {{"vision", &filter->skip_vision},
                 {"mtp", &filter->skip_mtp},
                 {"activation-scales", &filter->skip_activation_scales}};
    const size_t nkinds = sizeof kinds / sizeof *kinds;
    while (text) {
        size_t n = strcspn(text, ","), i = 0;
        while (i < nkinds && !(strlen(kinds[i].word) == n && memcmp(kinds[i].word, text, n) == 0)) i++;
        if (i == nkinds) {
            cli_usage_error(command, "--skip knows vision, mtp and activation-scales, not \"%.*s\"", (int)n, text);
            return false;
        }
        *kinds[i].flag = true;
        text = text[n] ? text + n + 1 : NULL;
    }
    return true;
}

/* "row", "column", "0", "-2". */
static bool flags_axis(const char *text, int64_t *axis) {
    bool minus = *text == '-';
    uint64_t value;
    if (strcmp(text, "row") == 0) *axis = HEFT_TP_ROWS;
    else if (strcmp(text, "column") == 0) *axis = HEFT_TP_COLUMNS;
    else {
        text += minus;
        if (strlen(text) > 2 || strspn(text, "0123456789") != strlen(text) || !cli_parse_size(text, &value)) return false;
        *axis = minus ? -(int64_t)value : (int64_t)value;
    }
    return true;
}

/* GLOB=AXIS; the glob may hold a = of its own. */
static bool flags_rules(const char *command, const cli_words *words, cli_filter *out) {
    if (!words->n) return true;
    out->rules = calloc(words->n, sizeof *out->rules);
    if (!out->rules) cli_die_memory();
    for (size_t i = 0; i < words->n; i++) {
        const char *equals = strrchr(words->items[i], '=');
        int64_t axis = 0;
        if (!equals || equals == words->items[i] || !flags_axis(equals + 1, &axis)) {
            cli_usage_error(command, "--tp-rule takes GLOB=AXIS, the axis a number, row or column, not \"%s\"",
                            words->items[i]);
            return false;
        }
        cli_text glob = {0};
        cli_text_put(&glob, words->items[i], (size_t)(equals - words->items[i]));
        cli_text_put(&glob, "", 1);
        out->rules[out->nrules++] = (heft_tp_rule){glob.data, axis};
    }
    return true;
}

/* Ranks, and what only they give a meaning. */
static bool flags_ranks(const char *command, const cli_args *args) {
    const struct {
        bool wrong;
        const char *why;
    } rules[] = {
        {args->ep_rank && !args->ep_world, "--ep-rank needs --ep-world, the number of ranks"},
        {args->experts && !args->ep_world, "--experts needs --ep-world, the number of ranks"},
        {args->tp_rank && !args->tp_world, "--tp-rank needs --tp-world, the number of ranks"},
        {args->tp_rules.n && !args->tp_world, "--tp-rule needs --tp-world, the number of ranks"},
        {args->tp_world > 1 && !args->tp_rules.n, "--tp-world needs --tp-rule: without one no tensor is cut"},
        {args->tp_ceil && !args->tp_rules.n, "--tp-ceil needs --tp-rule: without one no tensor is cut"},
        {args->ep_world && args->ep_rank >= args->ep_world, "--ep-rank must be below --ep-world: ranks count from 0"},
        {args->tp_world && args->tp_rank >= args->tp_world, "--tp-rank must be below --tp-world: ranks count from 0"},
    };
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (rules[i].wrong) {
            cli_usage_error(command, "%s", rules[i].why);
            return false;
        }
    return true;
}

bool cli_filter_make(const char *command, const cli_args *args, cli_filter *out) {
    static const heft_preset presets[] = {HEFT_PRESET_NONE, HEFT_PRESET_ATLAS, HEFT_PRESET_VLLM};
    *out = (cli_filter){.filter = {.struct_size = sizeof out->filter}};
    heft_filter *f = &out->filter;
    if (!flags_skip(command, args->skip, f) || !flags_ranks(command, args) ||
        !flags_rules(command, &args->tp_rules, out)) {
        cli_filter_free(out);
        return false;
    }
    f->include = args->include.items, f->ninclude = args->include.n;
    f->exclude = args->exclude.items, f->nexclude = args->exclude.n;
    f->defer = args->defer.items, f->ndefer = args->defer.n;
    f->replicated = args->replicated.items, f->nreplicated = args->replicated.n;
    f->preset = presets[args->preset];
    f->ep_rank = args->ep_rank, f->ep_world = args->ep_world, f->num_experts = args->experts;
    f->tp_rank = args->tp_rank, f->tp_world = args->tp_world;
    f->tp_rules = out->rules, f->ntp_rules = out->nrules;
    f->tp_split = args->tp_ceil ? HEFT_SPLIT_CEIL : HEFT_SPLIT_EQUAL;
    f->strict = args->strict;
    return true;
}

void cli_filter_free(cli_filter *filter) {
    for (size_t i = 0; i < filter->nrules; i++) free((void *)(uintptr_t)filter->rules[i].glob);
    free(filter->rules);
    *filter = (cli_filter){0};
}
