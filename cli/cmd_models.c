/* cli: heft ls --models: one row a model; a bad one is a row with its class word. */
#include "table.h"

#include <stdlib.h>
#include <string.h>

typedef struct models_row {
    const char *path;
    bool bad;
    heft_error err;
    uint64_t tensors, nelems, nbytes;
    uint64_t by_dtype[HEFT_DTYPE_COUNT]; /* bytes; tensors without bytes count as one */
    uint32_t files;
    bool warned;
} models_row;

typedef struct models_state {
    const cli_args *args;
    models_row *rows;
} models_state;

static void models_open(const cli_args *args, models_row *row) {
    heft_archive *archive;
    row->bad = cli_open(args, row->path, &archive, &row->err) != HEFT_OK;
    if (row->bad) return;
    row->tensors = heft_archive_count(archive);
    row->files = heft_archive_file_count(archive);
    for (uint64_t i = 0; i < row->tensors; i++) {
        heft_tensor t;
        if (heft_archive_get(archive, i, &t, NULL) != HEFT_OK) continue;
        row->nelems += t.nelems;
        row->nbytes += t.nbytes;
        if (t.dtype < HEFT_DTYPE_COUNT) row->by_dtype[t.dtype] += t.nbytes ? t.nbytes : 1;
    }
    row->warned = heft_report_count_of(heft_archive_warnings(archive), HEFT_SEVERITY_WARNING) > 0;
    heft_archive_unref(archive);
}

/* The dtypes of a row, the one with most bytes first; at most `most`. */
static size_t models_dtypes(const models_row *row, heft_dtype *out, size_t most) {
    size_t n = 0;
    bool used[HEFT_DTYPE_COUNT] = {false};
    while (n < most) {
        heft_dtype best = HEFT_DTYPE_COUNT;
        for (heft_dtype d = 0; d < HEFT_DTYPE_COUNT; d++)
            if (!used[d] && row->by_dtype[d] && (best == HEFT_DTYPE_COUNT || row->by_dtype[d] > row->by_dtype[best])) best = d;
        if (best == HEFT_DTYPE_COUNT) break;
        used[best] = true;
        out[n++] = best;
    }
    return n;
}

static cli_style models_cell(void *ctx, uint64_t number, size_t column, cli_text *text) {
    models_state *s = ctx;
    const models_row *row = &s->rows[number];
    heft_dtype dtypes[HEFT_DTYPE_COUNT];
    size_t n;
    if (row->bad && column > 0 && column < 6) {
        cli_text_put(text, "-", 1);
        return CLI_DIM;
    }
    switch (column) {
    case 0: cli_text_escaped(text, row->path, strlen(row->path)); return CLI_PLAIN;
    case 1: cli_text_u64(text, row->tensors); return CLI_PLAIN;
    case 2:
        if (s->args->bytes) cli_text_u64(text, row->nelems);
        else cli_text_count(text, row->nelems);
        return CLI_PLAIN;
    case 3:
        if (s->args->bytes) cli_text_u64(text, row->nbytes);
        else cli_text_size(text, row->nbytes);
        return CLI_PLAIN;
    case 4:
        n = models_dtypes(row, dtypes, HEFT_DTYPE_COUNT);
        for (size_t i = 0; i < n; i++) cli_text_format(text, "%s%s", i ? "," : "", heft_dtype_name(dtypes[i]));
        if (n == 0) cli_text_put(text, "-", 1);
        return CLI_ACCENT;
    case 5: cli_text_u64(text, row->files); return CLI_PLAIN;
    default:
        if (row->bad) cli_text_str(text, heft_fault_name(row->err.fault));
        else cli_text_str(text, row->warned ? "ok, with warnings" : "ok");
        return row->bad ? CLI_BAD : row->warned ? CLI_WARN : CLI_GOOD;
    }
}

static void models_json(const models_row *row) {
    heft__json_out json;
    heft_dtype dtypes[HEFT_DTYPE_COUNT];
    size_t n = models_dtypes(row, dtypes, HEFT_DTYPE_COUNT);
    uint64_t files = row->files;
    cli_json_begin(&json, true);
    heft__json_out_object(&json);
    heft__json_out_key(&json, "path", SIZE_MAX);
    heft__json_out_string(&json, row->path, SIZE_MAX);
    heft__json_out_key(&json, "ok", SIZE_MAX);
    heft__json_out_bool(&json, !row->bad);
    cli_json_u64_or_null(&json, "tensors", row->bad ? HEFT_NONE : row->tensors);
    cli_json_u64_or_null(&json, "parameters", row->bad ? HEFT_NONE : row->nelems);
    cli_json_u64_or_null(&json, "nbytes", row->bad ? HEFT_NONE : row->nbytes);
    heft__json_out_key(&json, "dtypes", SIZE_MAX);
    heft__json_out_array(&json);
    for (size_t i = 0; i < n; i++) heft__json_out_string(&json, heft_dtype_name(dtypes[i]), SIZE_MAX);
    heft__json_out_array_end(&json);
    cli_json_u64_or_null(&json, "files", row->bad ? HEFT_NONE : files);
    heft__json_out_key(&json, "fault", SIZE_MAX);
    if (row->bad) cli_json_fault(&json, HEFT_SEVERITY_ERROR, &row->err, row->path);
    else heft__json_out_null(&json);
    heft__json_out_object_end(&json);
    cli_json_end(&json);
}

static bool models_options_agree(const cli_args *args) {
    if (args->tree || args->fold || args->long_rows || args->names_only || args->sort || args->reverse || args->depth ||
        args->expand || args->order) {
        cli_usage_error("ls", "--models gives one row for each path: of the other forms only --bytes and --json go with it");
        return false;
    }
    return true;
}

int cli_models(const cli_args *args) {
    static const cli_column columns[] = {{"MODEL", false, true},   {"TENSORS", true, false}, {"PARAMETERS", true, false},
                                         {"SIZE", true, false},    {"DTYPES", false, true},  {"SHARDS", true, false},
                                         {"STATE", false, false}};
    if (!models_options_agree(args) || !cli_one_stdin(args, 0, args->noperands)) return CLI_USAGE;
    models_state s = {.args = args, .rows = calloc(args->noperands, sizeof *s.rows)};
    if (!s.rows) cli_die_memory();
    int code = CLI_OK;
    for (size_t i = 0; i < args->noperands; i++) {
        models_row *row = &s.rows[i];
        row->path = args->operands[i];
        models_open(args, row);
        int its = row->bad ? cli_exit_code(&row->err) : CLI_OK;
        if (row->bad) code = cli_worse(code, its >= CLI_INTERNAL || its == CLI_USAGE ? its : CLI_NEGATIVE);
        if (args->json) models_json(row);
    }
    cli_table table = {columns, sizeof columns / sizeof *columns, args->noperands, models_cell, &s, false};
    if (!args->json) cli_table_print(&table);
    free(s.rows);
    return code;
}
