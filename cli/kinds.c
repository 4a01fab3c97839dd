/* cli: what kind of model it is, and how sure that is: config.json says so, or names look so. */
#include "kinds.h"

#include <stdio.h>
#include <string.h>

/* Lines of a folded listing that rules are matched with: enough for any model, bounded for a hostile file; so are names. */
#define KINDS_LINES 20000
#define KINDS_NAME 4096

typedef struct kinds_state {
    const heft_archive *archive;
    const cli_fold *fold;
    cli_kind *out;
} kinds_state;

static void kinds_copy(char *dst, size_t size, const char *text, size_t len) {
    cli_text line = {0};
    cli_text_escaped(&line, text, len);
    heft__copy_text(dst, size, line.data ? line.data : "", line.len);
    cli_text_free(&line);
}

/* The first tensor that a glob matches. */
static bool kinds_match(const kinds_state *s, const char *glob, heft_tensor *t) {
    uint64_t n = s->fold->count < KINDS_LINES ? s->fold->count : KINDS_LINES;
    for (uint64_t i = 0; i < n; i++) {
        bool matches = false;
        if (heft_archive_get(s->archive, s->fold->lines[i].id, t, NULL) != HEFT_OK || t->name_len > KINDS_NAME) continue;
        if (heft_glob_match(glob, t->name, t->name_len, &matches, NULL) == HEFT_OK && matches) return true;
    }
    return false;
}

static bool kinds_applies(const kinds_state *s, const kind_rule *rule, heft_tensor *t) {
    heft_tensor other;
    if (rule->words[1][0] && !kinds_match(s, rule->words[1], &other)) return false;
    return kinds_match(s, rule->words[0], t);
}

/* ---- from config.json -------------------------------------------------------------------------------------------- */

static const char *kinds_label(const kind_rules *rules, const char *word) {
    for (size_t i = 0; i < rules->count; i++)
        if (rules->items[i].type == KIND_CONFIG && strcmp(rules->items[i].words[0], word) == 0)
            return rules->items[i].words[1];
    return NULL;
}

static bool kinds_confirmed(const kind_rules *tables, size_t ntables, const kind_config *config, cli_kind *out) {
    const struct {
        const char *field, *word;
    } said[] = {{"model_type", config->model_type}, {"_class_name", config->class_name}, {"architectures", config->architecture}};
    const char *label = NULL;
    size_t i = 0;
    for (size_t k = 0; k < sizeof said / sizeof *said && !label; k++)
        for (size_t t = 0; t < ntables && !label; t++) {
            if (*said[k].word) label = kinds_label(&tables[t], said[k].word);
            i = k;
        }
    for (size_t k = 0; k < sizeof said / sizeof *said && !label; k++) /* a kind without a rule goes by its own word */
        if (*said[k].word) {
            label = said[k].word;
            i = k;
        }
    if (!label) return false;
    char reason[192];
    snprintf(reason, sizeof reason, "config.json says %s = %s", said[i].field, said[i].word);
    kinds_copy(out->name, sizeof out->name, label, strlen(label));
    kinds_copy(out->reason, sizeof out->reason, reason, strlen(reason));
    strcpy(out->certainty, "confirmed");
    return true;
}

/* ---- from names -------------------------------------------------------------------------------------------------- */

static bool kinds_inferred(const kinds_state *s, const kind_rules *rules) {
    for (size_t i = 0; i < rules->count; i++) {
        heft_tensor t;
        if (rules->items[i].type != KIND_NAMES || !kinds_applies(s, &rules->items[i], &t)) continue;
        cli_text reason = {0};
        cli_text_str(&reason, "names look so: ");
        cli_text_escaped(&reason, t.name, t.name_len);
        kinds_copy(s->out->name, sizeof s->out->name, rules->items[i].words[2], strlen(rules->items[i].words[2]));
        heft__copy_text(s->out->reason, sizeof s->out->reason, reason.data, reason.len);
        strcpy(s->out->certainty, "inferred");
        cli_text_free(&reason);
        return true;
    }
    return false;
}

/* Tensors that hold several weights an element. */
static void kinds_count_packed(const kinds_state *s, const kind_rule *rule) {
    for (uint64_t i = 0; i < s->fold->count; i++) {
        heft_tensor t;
        bool matches = false;
        if (heft_archive_get(s->archive, s->fold->lines[i].id, &t, NULL) != HEFT_OK || t.name_len > KINDS_NAME) continue;
        if (strcmp(heft_dtype_name(t.dtype), rule->words[3]) != 0) continue;
        if (heft_glob_match(rule->words[2], t.name, t.name_len, &matches, NULL) != HEFT_OK || !matches) continue;
        s->out->packed_tensors += s->fold->lines[i].count;
        s->out->packed_nbytes += s->fold->lines[i].count * t.nbytes;
    }
}

static bool kinds_packing(const kinds_state *s, const kind_rules *rules, const kind_config *config) {
    for (size_t i = 0; i < rules->count; i++) {
        const kind_rule *rule = &rules->items[i];
        heft_tensor t;
        if (rule->type != KIND_PACKING || !kinds_applies(s, rule, &t)) continue;
        kinds_count_packed(s, rule);
        if (rule->words[2][0] && !s->out->packed_tensors) continue; /* the names fit, the dtype does not */
        cli_text why = {0};
        s->out->packed_bits = config->bits ? config->bits : (uint32_t)(rule->words[4][0] - '0');
        strcpy(s->out->packing_certainty, config->method[0] ? "confirmed" : "inferred");
        if (config->method[0]) {
            cli_text_str(&why, "config.json says ");
            cli_text_escaped(&why, config->method, strlen(config->method));
        } else {
            cli_text_str(&why, "names look so: ");
            cli_text_escaped(&why, t.name, t.name_len);
        }
        kinds_copy(s->out->packing, sizeof s->out->packing, rule->words[5], strlen(rule->words[5]));
        heft__copy_text(s->out->packing_reason, sizeof s->out->packing_reason, why.data, why.len);
        cli_text_free(&why);
        return true;
    }
    return false;
}

void cli_kind_find(const heft_archive *archive, const cli_fold *fold, const kind_rules *own, cli_kind *out) {
    kind_rules tables[2] = {*own, cli_kinds_builtin()};
    kind_config config;
    kinds_state s = {.archive = archive, .fold = fold, .out = out};
    *out = (cli_kind){.name = "unknown", .certainty = "unknown"};
    cli_kinds_config(archive, &config);
    if (!kinds_confirmed(tables, 2, &config, out) && !kinds_inferred(&s, &tables[0]) && !kinds_inferred(&s, &tables[1])) {
        strcpy(out->reason, config.found ? "config.json names no model_type and no rule knows these names"
                                         : "no config.json beside it and no rule knows these names");
    }
    if (!kinds_packing(&s, &tables[0], &config)) kinds_packing(&s, &tables[1], &config);
}
