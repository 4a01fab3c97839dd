/* cli: the rules of kinds.def, and the same form read from a file. */
#include "kinds.h"

#include <stdlib.h>
#include <string.h>

static const kind_rule rules_builtin[] = {
#define CONFIG(type, kind) {KIND_CONFIG, {type, kind}},
#define NAMES(glob, other, kind) {KIND_NAMES, {glob, other, kind}},
#define PACKING(glob, other, packed, dtype, bits, how) {KIND_PACKING, {glob, other, packed, dtype, bits, how}},
#include "kinds.def"
#undef CONFIG
#undef NAMES
#undef PACKING
};

kind_rules cli_kinds_builtin(void) {
    return (kind_rules){.items = rules_builtin, .count = sizeof rules_builtin / sizeof *rules_builtin};
}

/* A quoted word at *at; backslashes are resolved in place. */
static char *rules_word(char **at) {
    char *from = *at, *to;
    if (*from != '"') return NULL;
    char *word = to = ++from;
    while (*from && *from != '"') {
        if (*from == '\\' && from[1]) from++;
        *to++ = *from++;
    }
    if (*from != '"') return NULL;
    *at = from + 1;
    *to = 0;
    return word;
}

/* "WORD(" quoted words ")"; blanks between them are free. */
static bool rules_line(char *line, kind_rule *rule) {
    static const struct {
        const char *word;
        size_t count;
    } forms[] = {[KIND_CONFIG] = {"CONFIG(", 2}, [KIND_NAMES] = {"NAMES(", 3}, [KIND_PACKING] = {"PACKING(", 6}};
    *rule = (kind_rule){0};
    for (size_t f = 0; f < sizeof forms / sizeof *forms; f++) {
        size_t len = strlen(forms[f].word);
        if (strncmp(line, forms[f].word, len) != 0) continue;
        char *at = line + len;
        rule->type = (kind_rule_type)f;
        for (size_t i = 0; i < forms[f].count; i++) {
            at += strspn(at, " \t");
            if (i && *at++ != ',') return false;
            at += strspn(at, " \t");
            rule->words[i] = rules_word(&at);
            if (!rule->words[i]) return false;
        }
        at += strspn(at, " \t");
        if (*at++ != ')') return false;
        return at[strspn(at, " \t\r")] == 0;
    }
    return false;
}

static bool rules_globs_are_well_formed(const kind_rule *rule) {
    size_t nglobs = rule->type == KIND_CONFIG ? 0 : rule->type == KIND_NAMES ? 2 : 3;
    bool match;
    for (size_t i = 0; i < nglobs; i++)
        if (heft_glob_match(rule->words[i], "", 0, &match, NULL) != HEFT_OK) return false;
    return true;
}

bool cli_kinds_parse(char *text, size_t len, kind_rules *out, uint64_t *line) {
    kind_rule *items = NULL;
    uint64_t count = 0, capacity = 0;
    *out = (kind_rules){0};
    *line = 0;
    for (char *at = text, *next; at < text + len; at = next) {
        char *end = memchr(at, '\n', (size_t)(text + len - at));
        if (!end) end = text + len; /* the caller left a NUL there */
        next = end + 1;
        *end = 0;
        ++*line;
        if (!*at || strchr("/*# \t\r", *at)) continue;
        if (!heft__grow(&heft__default_allocator, (void **)&items, &capacity, count, sizeof *items, 64)) cli_die_memory();
        if (!rules_line(at, &items[count]) || !rules_globs_are_well_formed(&items[count])) {
            heft__free(&heft__default_allocator, items, capacity * sizeof *items);
            return false;
        }
        count++;
    }
    kind_rule *kept = count ? malloc((size_t)count * sizeof *kept) : NULL;
    if (count && !kept) cli_die_memory();
    if (count) memcpy(kept, items, (size_t)count * sizeof *kept);
    heft__free(&heft__default_allocator, items, capacity * sizeof *items);
    *out = (kind_rules){.items = kept, .count = (size_t)count};
    return true;
}

void cli_kinds_free(kind_rules *rules) {
    free((void *)(uintptr_t)rules->items);
    *rules = (kind_rules){0};
}
