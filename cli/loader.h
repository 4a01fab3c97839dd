/* cli: what plan, load, warm and bench share. */
#ifndef HEFT_CLI_LOADER_H
#define HEFT_CLI_LOADER_H

#include "table.h"

/* ---- which tensors (filter_flags.c) ------------------------------------------------------------------------------ */

typedef struct cli_filter {
    heft_filter filter;
    heft_tp_rule *rules;
    size_t nrules;
} cli_filter;

/* False: a message was printed. */
bool cli_filter_make(const char *command, const cli_args *args, cli_filter *out);
void cli_filter_free(cli_filter *filter);

/* ---- what they are converted to (dtype_flags.c) ------------------------------------------------------------------- */

/* --dtype and --dtype-for. */
typedef struct cli_dtypes {
    heft_dtype floats; /* HEFT_DTYPE_NONE: none */
    heft_dtype_rule *rules;
    size_t nrules;
} cli_dtypes;

/* False: a message was printed. Freeing is the caller's in any case. */
bool cli_dtypes_make(const char *command, const cli_args *args, cli_dtypes *out);
void cli_dtypes_free(cli_dtypes *dtypes);
/* False: a message was printed. */
bool cli_check_glob(const char *command, const char *option, const char *glob);
/* Whether the name of any tensor matches. */
bool cli_glob_matches(const heft_archive *archive, const char *glob);

/* ---- how they are loaded (loader.c) ------------------------------------------------------------------------------ */

/* An open archive and the plan for it. */
typedef struct cli_loader {
    const char *path;
    const cli_args *args;
    cli_filter filter;
    cli_dtypes dtypes;
    heft_archive *archive;
    heft_load_plan *plan;
    heft_load_summary sum;
    double open_seconds;
} cli_loader;

/* The options of the command line; `filter` may be NULL. */
heft_load_options cli_load_options(const cli_args *args, const heft_filter *filter);
/* Opens and plans the only operand; warns. CLI_OK, or the exit code of what was said. Closing is the caller's in any case. */
int cli_loader_open(const char *command, const cli_args *args, const heft_load_options *options, cli_loader *out);
void cli_loader_close(cli_loader *loader);
/* "heft: PATH: message" with the next step in words of the command line; the exit code. */
int cli_loader_fail(const cli_loader *loader, const heft_error *err);

/* ---- a progress bar on standard error (progress.c) --------------------------------------------------------------- */

typedef struct cli_progress {
    double start;
    size_t width; /* of the terminal; 0: no bar */
    bool shown;
} cli_progress;

/* Starts the clock; SIGINT is noted from now on, and the step below asks for a stop. */
void cli_progress_start(cli_progress *progress, bool quiet);
/* The callback of a load: draws when the work has taken half a second. */
int cli_progress_step(void *progress, uint64_t done_nbytes, uint64_t total_nbytes);
void cli_progress_end(cli_progress *progress);

/* ---- files of a plan (plan_files.c) ------------------------------------------------------------------------------ */

/* Files that are shown together: one, or, where there are too many for a terminal, those of one path and reason. */
typedef struct cli_load_group {
    heft_load_shard shard; /* the first, with the sums of all */
    uint32_t first, count;
    uint64_t resident_nbytes, resident_of; /* of those whose residency is known */
} cli_load_group;

typedef struct cli_load_files {
    cli_load_group *groups;
    size_t ngroups;
    cli_load_group *alike; /* those of one path and reason together, where they are more than a few */
    size_t nalike;
} cli_load_files;

void cli_load_files_make(const heft_load_plan *plan, cli_load_files *out);
void cli_load_files_free(cli_load_files *files);
/* A sentence for each, or for all that are alike: "model.safetensors: direct, because ...". */
void cli_load_files_sentences(const cli_load_files *files);
void cli_load_files_table(const cli_load_files *files);
/* The name without its folder. */
const char *cli_base_name(const char *path);

/* ---- overlays (overlays.c) --------------------------------------------------------------------------------------- */

/* Which files lie over the others, and what they have replaced; nothing where there are none. */
void cli_overlays_screen(const heft_archive *archive, const char *path);
/* The member "replaced": one item a replacement, as of "warnings". */
void cli_json_replaced(heft__json_out *json, const heft_archive *archive, const char *path);

/* ---- what a plan converts (plan_casts.c) ------------------------------------------------------------------------- */

typedef struct cli_load_cast {
    heft_dtype from, to;
    uint64_t ntensors, stored_nbytes, nbytes;
    uint64_t first; /* tensor */
} cli_load_cast;

typedef struct cli_load_casts {
    const heft_archive *archive;
    cli_load_cast *rows;
    size_t n;
} cli_load_casts;

void cli_load_casts_make(const heft_archive *archive, const heft_load_plan *plan, cli_load_casts *out);
void cli_load_casts_free(cli_load_casts *casts);
void cli_load_casts_table(const cli_load_casts *casts);
/* "290 tensors F32 to BF16, 2 tensors F32 to F16" */
void cli_load_casts_words(const cli_load_casts *casts, cli_text *line);

/* ---- pieces of JSON (plan_json.c) -------------------------------------------------------------------------------- */

void cli_json_u64(heft__json_out *json, const char *key, uint64_t value);
void cli_json_double(heft__json_out *json, const char *key, double value);
void cli_json_text(heft__json_out *json, const char *key, const char *text);
void cli_json_bool(heft__json_out *json, const char *key, bool value);
/* The members "shards", "rules", "memory" and "warnings" of a plan. */
void cli_json_load_shards(heft__json_out *json, const heft_load_plan *plan, bool ran);
void cli_json_load_rules(heft__json_out *json, const heft_load_plan *plan);
void cli_json_load_casts(heft__json_out *json, const cli_load_casts *casts);
void cli_json_load_memory(heft__json_out *json, const heft_footprint *memory);
void cli_json_load_warnings(heft__json_out *json, const heft_filter_result *filter, const char *path);
/* "auto", "pool", "uring". */
const char *cli_engine_name(heft_engine engine);

#endif
