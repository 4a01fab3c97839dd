/* cli: heft stats: statistics of the values of many tensors, in one pass. */
#include "loader.h"

#include "base/float_text.h"

#include <stdlib.h>
#include <string.h>

/* Digits of numbers on the screen. */
#define STATS_DIGITS 6
/* Bins of the library that one column of a drawing stands for. */
#define STATS_FOLD 3

typedef struct stats_state {
    const cli_args *args;
    const char *path;
    heft_archive *archive;
    heft_buffer picked;
    const uint64_t *ids;
    uint64_t nids;
    heft_stats *stats;
    heft_histogram *histograms; /* NULL: not wanted */
    bool fail_nan, fail_inf;
    uint64_t nan_tensors, inf_tensors;
} stats_state;

/* --fail-on nan,inf */
static bool stats_fail_on(const char *text, stats_state *s) {
    while (text) {
        size_t n = strcspn(text, ",");
        if (n == 3 && memcmp(text, "nan", 3) == 0) s->fail_nan = true;
        else if (n == 3 && memcmp(text, "inf", 3) == 0) s->fail_inf = true;
        else {
            cli_usage_error("stats", "--fail-on knows nan and inf, not \"%.*s\"", (int)n, text);
            return false;
        }
        text = text[n] ? text + n + 1 : NULL;
    }
    return true;
}

/* ---- for people -------------------------------------------------------------------------------------------------- */

static void stats_number(cli_text *text, double value) {
    char number[32];
    cli_text_put(text, number, heft__double_text_rounded(value, STATS_DIGITS, number));
}

static cli_style stats_count(cli_text *text, uint64_t count, bool bad) {
    cli_text_u64(text, count);
    return count && bad ? CLI_BAD : CLI_PLAIN;
}

/* Powers of two from large negative values by zero to large positive ones, as tall as they are frequent. */
static void stats_draw(cli_text *text, const heft_histogram *histogram) {
    static const char *const blocks[] = {" ", "\xE2\x96\x81", "\xE2\x96\x82", "\xE2\x96\x83", "\xE2\x96\x84",
                                         "\xE2\x96\x85", "\xE2\x96\x86", "\xE2\x96\x87", "\xE2\x96\x88"};
    uint64_t sums[HEFT_HISTOGRAM_BINS / STATS_FOLD] = {0}, most = 0;
    const size_t n = sizeof sums / sizeof *sums;
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < STATS_FOLD; k++) sums[i] += histogram->bins[i * STATS_FOLD + k];
        if (sums[i] > most) most = sums[i];
    }
    cli_text_put(text, "|", 1);
    for (size_t i = 0; i < n; i++) {
        double part = most ? (double)sums[i] / (double)most * 8 : 0;
        size_t height = (size_t)(part + 0.5);
        cli_text_str(text, blocks[sums[i] && height == 0 ? 1 : height]);
    }
    cli_text_put(text, "|", 1);
}

static cli_style stats_cell(void *ctx, uint64_t row, size_t column, cli_text *text) {
    const stats_state *s = ctx;
    const heft_stats *stats = &s->stats[row];
    heft_tensor tensor;
    switch (column) {
    case 0:
    case 1:
        if (heft_archive_get(s->archive, s->ids[row], &tensor, NULL) != HEFT_OK) return CLI_PLAIN;
        if (column) cli_text_str(text, heft_dtype_name(tensor.dtype));
        else cli_text_name(text, tensor.name, tensor.name_len);
        return column ? CLI_ACCENT : CLI_PLAIN;
    case 2: cli_text_u64(text, stats->count); return CLI_PLAIN;
    case 3: stats_number(text, stats->min); return CLI_PLAIN;
    case 4: stats_number(text, stats->max); return CLI_PLAIN;
    case 5: stats_number(text, stats->mean); return CLI_PLAIN;
    case 6: stats_number(text, stats->std); return CLI_PLAIN;
    case 7: stats_number(text, stats->norm); return CLI_PLAIN;
    case 8: return stats_count(text, stats->zeros, false);
    case 9: return stats_count(text, stats->nans, true);
    case 10: return stats_count(text, stats->infs, true);
    default: stats_draw(text, &s->histograms[row]); return CLI_PLAIN;
    }
}

static void stats_screen(stats_state *s) {
    static const cli_column columns[] = {{"NAME", false, true}, {"DTYPE", false, false}, {"COUNT", true, false},
                                         {"MIN", true, false},  {"MAX", true, false},    {"MEAN", true, false},
                                         {"STD", true, false},  {"NORM", true, false},   {"ZEROS", true, false},
                                         {"NAN", true, false},  {"INF", true, false},    {"-2^15 .. 0 .. 2^15", false, false}};
    size_t ncolumns = sizeof columns / sizeof *columns - !s->histograms;
    cli_table table = {columns, ncolumns, s->nids, stats_cell, s, true};
    cli_table_print(&table);
}

/* ---- for programs ------------------------------------------------------------------------------------------------ */

static void stats_json_tensor(heft__json_out *json, const stats_state *s, uint64_t i) {
    const heft_stats *stats = &s->stats[i];
    heft_tensor tensor;
    if (heft_archive_get(s->archive, s->ids[i], &tensor, NULL) != HEFT_OK) return;
    heft__json_out_object(json);
    heft__json_out_key(json, "name", SIZE_MAX);
    heft__json_out_string(json, tensor.name, tensor.name_len);
    cli_json_text(json, "dtype", heft_dtype_name(tensor.dtype));
    heft__json_out_key(json, "shape", SIZE_MAX);
    cli_json_shape(json, tensor.rank, tensor.shape);
    cli_json_u64(json, "count", stats->count);
    cli_json_u64(json, "zeros", stats->zeros);
    cli_json_u64(json, "nan", stats->nans);
    cli_json_u64(json, "inf", stats->infs);
    cli_json_number(json, "min", stats->min);
    cli_json_number(json, "max", stats->max);
    cli_json_number(json, "mean", stats->mean);
    cli_json_number(json, "std", stats->std);
    cli_json_number(json, "norm", stats->norm);
    if (s->histograms) {
        heft__json_out_key(json, "histogram", SIZE_MAX);
        heft__json_out_array(json);
        for (size_t b = 0; b < HEFT_HISTOGRAM_BINS; b++) heft__json_out_u64(json, s->histograms[i].bins[b]);
        heft__json_out_array_end(json);
    }
    heft__json_out_object_end(json);
    cli_json_flush(json);
}

static void stats_json(const stats_state *s, const heft_read_stats *read) {
    heft__json_out json;
    cli_json_begin(&json, false);
    heft__json_out_object(&json);
    cli_json_text(&json, "path", s->path);
    cli_json_u64(&json, "nan_tensors", s->nan_tensors);
    cli_json_u64(&json, "inf_tensors", s->inf_tensors);
    cli_json_u64(&json, "requested_nbytes", read->requested_nbytes);
    heft__json_out_key(&json, "tensors", SIZE_MAX);
    heft__json_out_array(&json);
    for (uint64_t i = 0; i < s->nids; i++) stats_json_tensor(&json, s, i);
    heft__json_out_array_end(&json);
    heft__json_out_object_end(&json);
    cli_json_end(&json);
}

/* ---- the command ------------------------------------------------------------------------------------------------- */

static heft_status stats_run(stats_state *s, heft_read_stats *read, heft_error *err) {
    cli_progress progress;
    heft_status status = cli_pick(s->args, s->archive, HEFT_ORDER_NATURAL, &s->picked, &s->nids, err);
    if (status != HEFT_OK) return status;
    s->ids = s->picked.data;
    s->stats = calloc((size_t)s->nids + 1, sizeof *s->stats);
    if (s->args->hist) s->histograms = calloc((size_t)s->nids + 1, sizeof *s->histograms);
    if (!s->stats || (s->args->hist && !s->histograms)) cli_die_memory();
    heft_read_options options = cli_read_options(s->args);
    cli_progress_start(&progress, s->args->quiet || s->args->json);
    options.progress = cli_progress_step;
    options.progress_ctx = &progress;
    status = heft_archive_stats(s->archive, s->ids, s->nids, &options, s->stats, s->histograms, read, err);
    cli_progress_end(&progress);
    for (uint64_t i = 0; i < s->nids && status == HEFT_OK; i++) {
        s->nan_tensors += s->stats[i].nans != 0;
        s->inf_tensors += s->stats[i].infs != 0;
    }
    return status;
}

/* What --fail-on found, on standard error. */
static int stats_judge(const stats_state *s) {
    const struct {
        bool asked;
        uint64_t count;
        const char *what;
    } kinds[] = {{s->fail_nan, s->nan_tensors, "NaN"}, {s->fail_inf, s->inf_tensors, "infinities"}};
    int code = CLI_OK;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (!kinds[i].asked || !kinds[i].count) continue;
        cli_text line = {0};
        cli_text_escaped(&line, s->path, strlen(s->path));
        cli_text_str(&line, ": ");
        cli_text_plural(&line, kinds[i].count, "tensor");
        cli_text_format(&line, " with %s", kinds[i].what);
        cli_complain("%.*s", (int)line.len, line.data);
        cli_text_free(&line);
        code = CLI_NEGATIVE;
    }
    return code;
}

int cli_stats(const cli_args *args) {
    stats_state s = {.args = args, .path = args->operands[0]};
    heft_read_stats read = {0};
    heft_error err;
    int code;
    if (!stats_fail_on(args->fail_on, &s)) return CLI_USAGE;
    if (cli_open(args, s.path, &s.archive, &err) != HEFT_OK) return cli_fail(s.path, &err);
    cli_warn(args, s.path, s.archive);
    if (stats_run(&s, &read, &err) != HEFT_OK) {
        code = cli_fail(s.path, &err);
    } else {
        if (args->json) stats_json(&s, &read);
        else stats_screen(&s);
        code = stats_judge(&s);
    }
    free(s.stats);
    free(s.histograms);
    heft_buffer_release(&s.picked);
    heft_archive_unref(s.archive);
    return code;
}
