/* cli: new names for tensors: a map from a file, then substitutions by regular expressions. */
#include "copier.h"

#include "base/json.h"
#include "base/utf8.h"

#include <regex.h>
#include <stdlib.h>
#include <string.h>

#define RENAME_GROUPS 10
#define RENAME_MAP_LIMIT (UINT64_C(64) << 20)

/* s/PATTERN/REPLACEMENT/g */
typedef struct rename_rule {
    regex_t regex;
    cli_text replacement; /* as it was written */
    char delimiter;
    bool all;
} rename_rule;

typedef struct rename_pair {
    const char *name, *to; /* in `text` */
    size_t name_len, to_len;
    bool used;
} rename_pair;

struct cli_renames {
    rename_rule *rules;
    size_t nrules;
    rename_pair *pairs; /* by name */
    uint64_t npairs, capacity;
    char *text;
    size_t text_len;
};

/* ---- substitutions ----------------------------------------------------------------------------------------------- */

/* The part of a substitution up to an unescaped delimiter; NULL: there is none. In a pattern an escaped delimiter is the
 * character itself; in a replacement the escape stays until it is used. */
static const char *rename_part(const char *at, char delimiter, bool pattern, cli_text *out) {
    for (; *at && *at != delimiter; at++) {
        if (*at == '\\' && at[1]) {
            if (!pattern || at[1] != delimiter) cli_text_put(out, at, 1);
            at++;
        }
        cli_text_put(out, at, 1);
    }
    cli_text_put(out, "", 1);
    return *at ? at + 1 : NULL;
}

static bool rename_parse(const char *command, const char *word, rename_rule *rule) {
    cli_text pattern = {0};
    const char *at = NULL;
    if (word[0] == 's' && word[1] && word[1] != '\\') {
        rule->delimiter = word[1];
        at = rename_part(word + 2, word[1], true, &pattern);
        if (at) at = rename_part(at, word[1], false, &rule->replacement);
    }
    rule->all = at && strcmp(at, "g") == 0;
    int fault = at && (rule->all || !*at) ? regcomp(&rule->regex, pattern.data, REG_EXTENDED) : -1;
    cli_text_free(&pattern);
    if (fault == 0) return true;
    cli_text_free(&rule->replacement);
    if (fault == -1) {
        cli_usage_error(command, "--rename takes 's/PATTERN/REPLACEMENT/', with a g at the end for every match, not \"%s\"",
                        word);
    } else {
        char why[160];
        regerror(fault, &rule->regex, why, sizeof why);
        cli_usage_error(command, "--rename \"%s\": %s", word, why);
    }
    return false;
}

/* The replacement with \1 to \9 and & filled in. */
static void rename_expand(const rename_rule *rule, const char *name, const regmatch_t *groups, cli_text *out) {
    for (const char *at = rule->replacement.data; *at; at++) {
        size_t group = *at == '&' ? 0 : RENAME_GROUPS;
        if (*at == '\\' && at[1]) {
            at++;
            if (*at >= '0' && *at <= '9') group = (size_t)(*at - '0');
        }
        if (group == RENAME_GROUPS) cli_text_put(out, at, 1);
        else if (groups[group].rm_so >= 0)
            cli_text_put(out, name + groups[group].rm_so, (size_t)(groups[group].rm_eo - groups[group].rm_so));
    }
}

/* *text after one substitution. Names that hold a NUL, which regular expressions cannot see past, stay. */
static void rename_substitute(const rename_rule *rule, cli_text *text) {
    regmatch_t groups[RENAME_GROUPS];
    cli_text out = {0};
    if (text->len && memchr(text->data, 0, text->len)) return;
    cli_text_put(text, "", 1);
    const char *at = text->data, *after = NULL; /* where the last match that was not empty ended */
    bool first = true;
    while (regexec(&rule->regex, at, RENAME_GROUPS, groups, first ? 0 : REG_NOTBOL) == 0) {
        const char *start = at + groups[0].rm_so, *end = at + groups[0].rm_eo;
        first = false;
        cli_text_put(&out, at, (size_t)(start - at));
        if (start != end || start != after) rename_expand(rule, at, groups, &out);
        after = end;
        if (start == end && *end) cli_text_put(&out, end, 1);
        at = start == end && *end ? end + 1 : end;
        if (!rule->all || (start == end && !*end)) break;
    }
    cli_text_str(&out, at);
    cli_text_free(text);
    *text = out;
}

/* ---- the map ----------------------------------------------------------------------------------------------------- */

static int rename_compare_names(const char *a, size_t a_len, const char *b, size_t b_len) {
    int order = memcmp(a, b, a_len < b_len ? a_len : b_len);
    return order ? order : a_len < b_len ? -1 : a_len > b_len;
}

static int rename_compare(const void *a, const void *b) {
    const rename_pair *x = a, *y = b;
    return rename_compare_names(x->name, x->name_len, y->name, y->name_len);
}

static rename_pair *rename_add(cli_renames *renames) {
    void *pairs = renames->pairs;
    if (!heft__grow(&heft__default_allocator, &pairs, &renames->capacity, renames->npairs, sizeof(rename_pair), 64))
        cli_die_memory();
    renames->pairs = pairs;
    rename_pair *pair = &renames->pairs[renames->npairs++];
    *pair = (rename_pair){0};
    return pair;
}

/* A string's value, made in place. */
static const char *rename_value(const cli_renames *renames, const heft__json_token *token, size_t *len) {
    char *at = renames->text + (token->text - renames->text);
    *len = heft__json_unescape(token, at);
    return at;
}

/* An object of strings. NULL, or what is wrong at *offset. */
static const char *rename_read(cli_renames *renames, size_t *offset) {
    heft__json json;
    heft__json_token token;
    *offset = heft__utf8_check(renames->text, renames->text_len);
    if (*offset < renames->text_len) return "not UTF-8";
    heft__json_init(&json, renames->text, renames->text_len);
    if (heft__json_next(&json, &token) == HEFT__JSON_OBJECT) {
        while (heft__json_next(&json, &token) == HEFT__JSON_KEY) {
            heft__json_token key = token;
            *offset = token.offset;
            if (heft__json_next(&json, &token) == HEFT__JSON_ERROR) break;
            *offset = token.offset;
            if (token.type != HEFT__JSON_STRING) return "a new name is no string";
            rename_pair *pair = rename_add(renames);
            pair->name = rename_value(renames, &key, &pair->name_len);
            pair->to = rename_value(renames, &token, &pair->to_len);
        }
        if (token.type == HEFT__JSON_OBJECT_END && heft__json_next(&json, &token) == HEFT__JSON_END) return NULL;
    }
    *offset = json.error ? json.error_at : token.offset;
    return json.error ? json.error : "not an object of old and new names";
}

static bool rename_map(const char *path, cli_renames *renames, int *code) {
    heft_error err;
    size_t offset = 0;
    if (cli_read_text(path, RENAME_MAP_LIMIT, &renames->text, &renames->text_len, &err) != HEFT_OK) {
        *code = cli_fail(path, &err);
        return false;
    }
    cli_text line = {0};
    const char *why = rename_read(renames, &offset);
    if (why) cli_text_format(&line, "--map: %s, at offset %zu", why, offset);
    else if (renames->npairs) qsort(renames->pairs, (size_t)renames->npairs, sizeof *renames->pairs, rename_compare);
    for (uint64_t i = 1; i < renames->npairs && !line.len; i++) {
        if (rename_compare(&renames->pairs[i - 1], &renames->pairs[i]) != 0) continue;
        cli_text_str(&line, "--map: \"");
        cli_text_escaped(&line, renames->pairs[i].name, renames->pairs[i].name_len);
        cli_text_str(&line, "\" is there twice");
    }
    if (!line.len) return true;
    cli_complain_of(path, &line);
    cli_text_free(&line);
    *code = CLI_USAGE;
    return false;
}

/* ---- both -------------------------------------------------------------------------------------------------------- */

bool cli_renames_make(const char *command, const cli_args *args, cli_renames **out, int *code) {
    *out = NULL;
    if (!args->rename.n && !args->map) return true;
    cli_renames *renames = calloc(1, sizeof *renames);
    if (!renames) cli_die_memory();
    *out = renames;
    renames->rules = calloc(args->rename.n + 1, sizeof *renames->rules);
    if (!renames->rules) cli_die_memory();
    *code = CLI_USAGE;
    for (size_t i = 0; i < args->rename.n; i++, renames->nrules++)
        if (!rename_parse(command, args->rename.items[i], &renames->rules[i])) return false;
    return !args->map || rename_map(args->map, renames, code);
}

void cli_renames_apply(cli_renames *renames, const char *name, size_t len, cli_text *text) {
    rename_pair wanted = {.name = name, .name_len = len};
    rename_pair *pair = renames->npairs ? bsearch(&wanted, renames->pairs, (size_t)renames->npairs, sizeof wanted,
                                                  rename_compare)
                                        : NULL;
    text->len = 0;
    cli_text_put(text, pair ? pair->to : name, pair ? pair->to_len : len);
    if (pair) pair->used = true;
    for (size_t i = 0; i < renames->nrules && !pair; i++) rename_substitute(&renames->rules[i], text);
}

const char *cli_renames_unused(const cli_renames *renames, size_t *len, uint64_t *count) {
    const rename_pair *first = NULL;
    *count = 0;
    for (uint64_t i = 0; i < renames->npairs; i++) {
        if (renames->pairs[i].used) continue;
        if (!first) first = &renames->pairs[i];
        ++*count;
    }
    *len = first ? first->name_len : 0;
    return first ? first->name : NULL;
}

void cli_renames_free(cli_renames *renames) {
    if (!renames) return;
    for (size_t i = 0; i < renames->nrules; i++) {
        regfree(&renames->rules[i].regex);
        cli_text_free(&renames->rules[i].replacement);
    }
    free(renames->rules);
    heft__free(&heft__default_allocator, renames->pairs, renames->capacity * sizeof *renames->pairs);
    if (renames->text) heft__free(&heft__default_allocator, renames->text, renames->text_len + 1);
    free(renames);
}
