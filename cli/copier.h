/* cli: what copy, align, shard and merge share. */
#ifndef HEFT_CLI_COPIER_H
#define HEFT_CLI_COPIER_H

#include "loader.h"

/* ---- new names (rename.c) ---------------------------------------------------------------------------------------- */

typedef struct cli_renames cli_renames;

/* From --rename and --map. False: a message was printed, the exit code is in *code. *out may be NULL: no name changes. */
bool cli_renames_make(const char *command, const cli_args *args, cli_renames **out, int *code);
/* The new name, in *text (which it replaces). */
void cli_renames_apply(cli_renames *renames, const char *name, size_t len, cli_text *text);
/* The first name of --map that cli_renames_apply was never asked for, and how many there are. */
const char *cli_renames_unused(const cli_renames *renames, size_t *len, uint64_t *count);
void cli_renames_free(cli_renames *renames);

/* "heft: PATH: " and the text so far, which is emptied, on standard error. */
void cli_complain_of(const char *path, cli_text *text);

/* ---- a copy (copier.c) ------------------------------------------------------------------------------------------- */

/* What is written: places of the words of --to. */
#define CLI_COPY_BY_NAME UINT32_C(0)
#define CLI_COPY_SAFETENSORS UINT32_C(1)
#define CLI_COPY_SHARDED UINT32_C(2)
#define CLI_COPY_NPZ UINT32_C(3)
#define CLI_COPY_NPY UINT32_C(4)

typedef struct cli_copier {
    const char *command, *source;
    char *target; /* without slashes at the end */
    const cli_args *args;
    uint32_t form; /* CLI_COPY_BY_NAME until that has been decided */
    bool fresh;    /* of a set: the folder is not there yet */
    bool stream;   /* to standard output, a pipe or a device, in order */
    cli_dtypes dtypes;
    cli_renames *renames;
    heft_archive *archive;
    heft_buffer selected; /* ids */
    heft_save_item *items;
    uint64_t nitems;
    heft_view *views;     /* of the transposed */
    uint64_t nviews;
    heft_pair *metadata;
    heft__arena names;
    uint64_t nrenamed, nwarnings;
    uint64_t converted[HEFT_DTYPE_COUNT][HEFT_DTYPE_COUNT]; /* tensors, from and to */
    heft_save_options options;
    heft_set_options set;
    heft_layout *layout;
    heft_save_stats stats;
    double seconds;
} cli_copier;

/* Options and metadata of the save (copier_options.c). False: a message was printed. */
bool cli_copier_check_form(cli_copier *copier);
bool cli_copier_metadata(cli_copier *copier);
/* A warning about the source, which --strict makes an error. */
void cli_copier_warn(cli_copier *copier, const char *text, size_t len);

/* The whole command; its exit code. `align` 0: as --align says. */
int cli_copier_run(const char *command, const cli_args *args, uint32_t form, uint64_t align);

/* ---- what it says (copier_report.c) ------------------------------------------------------------------------------ */

void cli_copier_plan(const cli_copier *copier);
void cli_copier_report(const cli_copier *copier);
void cli_copier_json(const cli_copier *copier);

#endif
