/* cli: rules for kinds of models, and what config.json says. */
#ifndef HEFT_CLI_KINDS_H
#define HEFT_CLI_KINDS_H

#include "cli.h"

#define KIND_WORDS 6

typedef enum kind_rule_type { KIND_CONFIG, KIND_NAMES, KIND_PACKING } kind_rule_type;

typedef struct kind_rule {
    kind_rule_type type;
    const char *words[KIND_WORDS]; /* as in kinds.def, unused ones NULL */
} kind_rule;

typedef struct kind_rules {
    const kind_rule *items;
    size_t count;
} kind_rules;

kind_rules cli_kinds_builtin(void);

/* The rules of a --kinds text, allocated (cli_kinds_free). `text` is changed and must stay. On a malformed line false, and
 * its number in *line. */
bool cli_kinds_parse(char *text, size_t len, kind_rules *out, uint64_t *line);
void cli_kinds_free(kind_rules *rules);

/* What config.json beside the first file says; empty strings where it says nothing. */
typedef struct kind_config {
    bool found;
    char model_type[64], architecture[64], class_name[64];
    char method[64]; /* of quantization */
    uint32_t bits;
} kind_config;
void cli_kinds_config(const heft_archive *archive, kind_config *out);

/* `own`: the rules of --kinds, asked before the table compiled in. */
void cli_kind_find(const heft_archive *archive, const cli_fold *fold, const kind_rules *own, cli_kind *out);

#endif
