/* cli: the files of a plan, in sentences and as a table; on a terminal many files are folded by path and reason. */
#include "loader.h"

#include <stdlib.h>
#include <string.h>

/* Files that a terminal shows one by one. */
#define FILES_SHOWN 12
/* Files that have a sentence each, also where they are alike. */
#define FILES_SAID 3

const char *cli_base_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash && slash[1] ? slash + 1 : path;
}

/* ---- groups ------------------------------------------------------------------------------------------------------ */

static bool files_alike(const heft_load_shard *a, const heft_load_shard *b) {
    return a->path_planned == b->path_planned && a->reason == b->reason && a->path_used == b->path_used &&
           a->fallback_errno == b->fallback_errno && strcmp(a->file_system, b->file_system) == 0 &&
           strcmp(a->class_name, b->class_name) == 0;
}

static void files_add(cli_load_group *group, const heft_load_shard *shard) {
    heft_load_shard *sum = &group->shard;
    if (group->count++) {
        sum->nbytes += shard->nbytes;
        sum->kept_nbytes += shard->kept_nbytes;
        sum->requested_nbytes += shard->requested_nbytes;
        sum->over_read_nbytes += shard->over_read_nbytes;
        sum->spanned_nbytes += shard->spanned_nbytes;
        sum->ntensors += shard->ntensors;
        sum->nruns += shard->nruns;
        sum->read_nbytes += shard->read_nbytes;
        sum->seconds += shard->seconds;
        sum->dirty = sum->dirty || shard->dirty;
    }
    if (shard->resident_nbytes != HEFT_NONE) {
        group->resident_nbytes += shard->resident_nbytes;
        group->resident_of += shard->kept_nbytes;
    }
}

static cli_load_group *files_group(const heft_load_plan *plan, uint32_t nshards, bool fold, size_t *ngroups) {
    cli_load_group *groups = calloc((size_t)nshards + 1, sizeof *groups);
    if (!groups) cli_die_memory();
    *ngroups = 0;
    for (uint32_t i = 0; i < nshards; i++) {
        heft_load_shard shard;
        size_t at = fold ? 0 : *ngroups;
        if (heft_load_plan_shard(plan, i, &shard, NULL) != HEFT_OK) continue;
        while (at < *ngroups && !files_alike(&groups[at].shard, &shard)) at++;
        if (at == *ngroups) groups[(*ngroups)++] = (cli_load_group){.shard = shard, .first = i};
        files_add(&groups[at], &shard);
    }
    return groups;
}

void cli_load_files_make(const heft_load_plan *plan, cli_load_files *out) {
    heft_load_summary sum;
    heft_load_plan_summarize(plan, &sum);
    bool fold = cli_screen_get()->terminal && sum.nshards > FILES_SHOWN;
    out->groups = files_group(plan, sum.nshards, fold, &out->ngroups);
    out->alike = files_group(plan, sum.nshards, sum.nshards > FILES_SAID, &out->nalike);
}

void cli_load_files_free(cli_load_files *files) {
    free(files->groups);
    free(files->alike);
    *files = (cli_load_files){0};
}

/* ---- sentences --------------------------------------------------------------------------------------------------- */

static void files_fallback(const heft_load_shard *shard, cli_text *line) {
    if (shard->path_used == HEFT_PATH_NONE || shard->path_used == shard->path_planned) return;
    cli_text_format(line, "; in the end %s", heft_path_name(shard->path_used));
    if (shard->fallback_errno)
        cli_text_format(line, ", because %s was refused (%s)", heft_path_name(shard->path_planned),
                        heft__errno_name(shard->fallback_errno));
}

/* What a path is stands at its first mention. */
static void files_why(const heft_load_shard *shard, bool seen[HEFT_PATH_COUNT], cli_text *line) {
    static const char *const what[HEFT_PATH_COUNT] = {[HEFT_PATH_MAP] = " (a mapping, without a copy)",
                                                      [HEFT_PATH_BUFFERED] = " (through the page cache)",
                                                      [HEFT_PATH_DIRECT] = " (past the page cache)"};
    heft_path path = shard->path_planned < HEFT_PATH_COUNT ? shard->path_planned : HEFT_PATH_NONE;
    cli_text_str(line, path == HEFT_PATH_NONE ? "not read" : heft_path_name(path));
    if (!seen[path] && what[path]) cli_text_str(line, what[path]);
    seen[path] = true;
    static const char caller[] = "the caller demands it";
    bool demanded = strncmp(shard->why, caller, sizeof caller - 1) == 0;
    if (demanded) cli_text_format(line, ", because --io demands it%s", shard->why + sizeof caller - 1);
    else cli_text_format(line, ", because %s", shard->why);
}

void cli_load_files_sentences(const cli_load_files *files) {
    cli_text line = {0}, name = {0};
    bool seen[HEFT_PATH_COUNT] = {false};
    for (size_t i = 0; i < files->nalike; i++) {
        const cli_load_group *group = &files->alike[i];
        const char *base = cli_base_name(group->shard.path);
        name.len = 0;
        cli_text_escaped(&name, base, strlen(base));
        if (group->count > 1) {
            cli_text_grouped(&line, group->count);
            cli_text_str(&line, " files, ");
            cli_text_size(&line, group->shard.kept_nbytes);
            cli_text_str(&line, " wanted, such as ");
        }
        cli_text_styled(&line, CLI_BOLD, name.data, name.len);
        cli_text_str(&line, ": ");
        files_why(&group->shard, seen, &line);
        files_fallback(&group->shard, &line);
        cli_print(&line);
    }
    cli_text_free(&line);
    cli_text_free(&name);
}

/* ---- table ------------------------------------------------------------------------------------------------------- */

typedef enum files_column {
    FILES_NAME,
    FILES_SYSTEM,
    FILES_CACHED,
    FILES_PATH,
    FILES_WHY,
    FILES_RUNS,
    FILES_WANTED,
    FILES_REQUESTED,
    FILES_OVER
} files_column;

/* Whole percents, 100 only for all. */
static unsigned files_percent(uint64_t part, uint64_t whole) {
    for (; whole > UINT32_MAX; whole >>= 1) part >>= 1;
    return whole ? (unsigned)(part * 100 / whole) : 0;
}

static cli_style files_cell(void *ctx, uint64_t row, size_t column, cli_text *text) {
    const cli_load_group *group = &((const cli_load_files *)ctx)->groups[row];
    const heft_load_shard *shard = &group->shard;
    bool other = shard->path_used != HEFT_PATH_NONE && shard->path_used != shard->path_planned;
    switch ((files_column)column) {
    case FILES_NAME: {
        const char *base = cli_base_name(shard->path);
        if (group->count > 1) cli_text_format(text, "%lu files", (unsigned long)group->count);
        else cli_text_escaped(text, base, strlen(base));
        return CLI_PLAIN;
    }
    case FILES_SYSTEM: cli_text_str(text, *shard->file_system ? shard->file_system : "-"); return CLI_PLAIN;
    case FILES_CACHED:
        if (group->resident_of) cli_text_format(text, "%u %%", files_percent(group->resident_nbytes, group->resident_of));
        else cli_text_str(text, "-");
        return CLI_PLAIN;
    case FILES_PATH:
        cli_text_str(text, heft_path_name(other ? shard->path_used : shard->path_planned));
        return other ? CLI_WARN : CLI_ACCENT;
    case FILES_WHY: cli_text_str(text, other ? "fallback" : heft_reason_name(shard->reason)); return CLI_PLAIN;
    case FILES_RUNS: cli_text_u64(text, shard->nruns); return CLI_PLAIN;
    case FILES_WANTED: cli_text_size(text, shard->kept_nbytes); return CLI_PLAIN;
    case FILES_REQUESTED: cli_text_size(text, shard->requested_nbytes); return CLI_PLAIN;
    case FILES_OVER: cli_text_size(text, shard->over_read_nbytes + shard->spanned_nbytes); return CLI_PLAIN;
    }
    return CLI_PLAIN;
}

void cli_load_files_table(const cli_load_files *files) {
    static const cli_column columns[] = {{"FILE", false, true}, {"FS", false, false},     {"CACHED", true, false},
                                         {"PATH", false, false}, {"WHY", false, false}, {"RUNS", true, false},
                                         {"WANTED", true, false}, {"READ", true, false}, {"OVER-READ", true, false}};
    cli_load_files copy = *files;
    cli_table table = {.columns = columns, .ncolumns = sizeof columns / sizeof *columns, .nrows = files->ngroups,
                       .cell = files_cell, .ctx = &copy, .titled = true};
    cli_table_print(&table);
}
