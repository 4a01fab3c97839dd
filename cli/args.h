/* cli: one row of the table of options. */
#ifndef HEFT_CLI_ARGS_H
#define HEFT_CLI_ARGS_H

#include "cli.h"

#define CLI_LS UINT32_C(1)
#define CLI_INFO UINT32_C(2)
#define CLI_SHOW UINT32_C(4)
#define CLI_CHECK UINT32_C(8)
#define CLI_PLAN UINT32_C(16)
#define CLI_LOAD UINT32_C(32)
#define CLI_WARM UINT32_C(64)
#define CLI_BENCH UINT32_C(128)
#define CLI_DIFF UINT32_C(256)
#define CLI_STATS UINT32_C(512)
#define CLI_COPY UINT32_C(1024)
#define CLI_ALIGN UINT32_C(2048)
#define CLI_SHARD UINT32_C(4096)
#define CLI_MERGE UINT32_C(8192)
#define CLI_EDIT UINT32_C(16384)
#define CLI_DIGEST UINT32_C(32768)
#define CLI_VERIFY UINT32_C(65536)
#define CLI_READERS (CLI_LS | CLI_INFO | CLI_SHOW | CLI_CHECK | CLI_STATS | CLI_DIGEST | CLI_VERIFY)
#define CLI_LOADERS (CLI_PLAN | CLI_LOAD | CLI_WARM)
#define CLI_COPIERS (CLI_COPY | CLI_ALIGN | CLI_SHARD | CLI_MERGE)
/* What opens one checkpoint as it is. */
#define CLI_OVERLAYS ((CLI_READERS & ~CLI_VERIFY) | CLI_LOADERS | CLI_BENCH | CLI_COPIERS)
#define CLI_ALL (CLI_READERS | CLI_LOADERS | CLI_BENCH | CLI_DIFF | CLI_COPIERS | CLI_EDIT)

/* Dtypes of one and two bytes; the first place means none. */
#define CLI_VOID1 "none,F8_E4M3,F8_E5M2,F8_E4M3FNUZ,F8_E5M2FNUZ,F8_E8M0,U8,I8"
#define CLI_VOID2 "none,BF16,F16,U16,I16"

typedef enum cli_option_kind {
    ARG_FLAG,     /* bool */
    ARG_TEXT,     /* const char * */
    ARG_OPTIONAL, /* const char *, "" without a value, which only --name=value gives */
    ARG_LIST,     /* cli_words: may be given again */
    ARG_NUMBER,   /* uint64_t from 1 */
    ARG_RANK,     /* uint64_t from 0 */
    ARG_DECIMAL,  /* double above 0, digits with one point */
    ARG_AMOUNT,   /* the same from 0 */
    ARG_SIZE,     /* uint64_t from 1, with a unit */
    ARG_CHOICE    /* uint32_t: place in `choices` */
} cli_option_kind;

typedef struct cli_option {
    const char *name;
    char letter; /* 0: none */
    cli_option_kind kind;
    size_t at;         /* offset in cli_args */
    uint32_t commands; /* which have it */
    const char *value; /* its name in the help */
    const char *choices;
    const char *help; /* lines */
} cli_option;

extern const cli_option cli_option_table[]; /* ends with a NULL name */

#endif
