/* cli: heft show: values of a tensor or of a slice of it, on the screen, as statistics, or into a file. */
#include "cli.h"

#include "base/float_text.h"

#include <string.h>

/* Digits of statistics on the screen. */
#define SHOW_DIGITS 9

typedef struct show_state {
    const cli_args *args;
    const char *path;
    const heft_archive *archive;
    const char *index; /* text between the brackets; NULL: the whole tensor */
    size_t index_len;
    heft_tensor tensor;
    heft_view view;
    heft_read_stats stats;
} show_state;

/* ---- which tensor, which part ------------------------------------------------------------------------------------ */

/* The place of the '[' that matches the final ']', or SIZE_MAX. */
static size_t show_bracket(const char *text, size_t len) {
    size_t depth = 0;
    if (len == 0 || text[len - 1] != ']') return SIZE_MAX;
    for (size_t at = len; at-- > 0;) {
        if (text[at] == ']') depth++;
        if (text[at] == '[' && --depth == 0) return at;
    }
    return SIZE_MAX;
}

/* A name as heft ls prints it, with \n or \u{202E} in it, finds its tensor too. */
static bool show_find_escaped(const heft_archive *archive, const char *name, size_t len, uint64_t *id) {
    cli_text line = {0};
    bool found = false;
    if (!memchr(name, '\\', len)) return false;
    for (uint64_t i = 0; i < heft_archive_count(archive) && !found; i++) {
        heft_tensor t;
        if (heft_archive_get(archive, i, &t, NULL) != HEFT_OK) continue;
        line.len = 0;
        cli_text_escaped(&line, t.name, t.name_len);
        found = line.len == len && memcmp(line.data, name, len) == 0;
        *id = i;
    }
    cli_text_free(&line);
    return found;
}

static bool show_find(const heft_archive *archive, const char *name, size_t len, uint64_t *id) {
    return heft_archive_find(archive, name, len, id, NULL) == HEFT_OK || show_find_escaped(archive, name, len, id);
}

static heft_status show_resolve(show_state *s, heft_error *err) {
    const char *text = s->args->name ? s->args->name : s->args->operands[1];
    size_t len = strlen(text), bracket = s->args->name ? SIZE_MAX : show_bracket(text, len);
    uint64_t id = 0;
    if (!show_find(s->archive, text, len, &id)) {
        if (bracket == SIZE_MAX) return heft_archive_find(s->archive, text, len, &id, err);
        if (!show_find(s->archive, text, bracket, &id)) return heft_archive_find(s->archive, text, bracket, &id, err);
        s->index = text + bracket + 1;
        s->index_len = len - bracket - 2;
    }
    if (s->args->index) {
        s->index = s->args->index;
        s->index_len = strlen(s->index);
    }
    heft_status status = heft_archive_get(s->archive, id, &s->tensor, err);
    if (status == HEFT_OK) status = heft_view_of(s->archive, id, &s->view, err);
    if (status == HEFT_OK && s->index) status = heft_view_index_text(&s->view, s->index, s->index_len, &s->view, err);
    return status;
}

static void show_view_shape(const heft_view *view, uint64_t shape[HEFT_MAX_RANK]) {
    for (uint32_t d = 0; d < view->rank; d++) shape[d] = (uint64_t)view->shape[d];
}

/* ---- on the screen ----------------------------------------------------------------------------------------------- */

static void show_title(const show_state *s) {
    cli_text line = {0}, name = {0};
    uint64_t shape[HEFT_MAX_RANK];
    if (s->args->quiet) return;
    show_view_shape(&s->view, shape);
    cli_text_escaped(&name, s->tensor.name, s->tensor.name_len);
    if (s->index) {
        cli_text_put(&name, "[", 1);
        cli_text_escaped(&name, s->index, s->index_len);
        cli_text_put(&name, "]", 1);
    }
    cli_text_styled(&line, CLI_BOLD, name.data, name.len);
    cli_text_format(&line, "  %s ", heft_dtype_name(s->view.dtype));
    cli_text_shape(&line, s->view.rank, shape);
    cli_print(&line);
    cli_text_free(&line);
    cli_text_free(&name);
}

/* What was read, and whether a program could have the view without a copy. */
static void show_account(const show_state *s, bool on_error) {
    cli_text line = {0};
    heft_error why;
    if (!s->args->verbose) return;
    cli_text_str(&line, "read: ");
    cli_text_grouped(&line, s->stats.requested_nbytes);
    cli_text_str(&line, s->stats.requested_nbytes == 1 ? " byte requested in " : " bytes requested in ");
    cli_text_plural(&line, s->stats.requests, "request");
    cli_text_str(&line, ", ");
    cli_text_grouped(&line, s->stats.kept_nbytes);
    cli_text_str(&line, " used, of ");
    cli_text_grouped(&line, s->tensor.nbytes);
    cli_text_str(&line, " of the tensor");
    if (on_error) cli_complain("%.*s", (int)line.len, line.data);
    else cli_print(&line);
    line.len = 0;
    if (heft_can_borrow(&s->view, 0, &why) == HEFT_OK)
        cli_text_format(&line, "borrow: shares memory with the mapping of its file, %s",
                        heft_view_is_contiguous(&s->view) ? "contiguous" : "strided");
    else
        cli_text_format(&line, "borrow: needs a copy: %s", why.message);
    if (on_error) cli_complain("%.*s", (int)line.len, line.data);
    else cli_print(&line);
    cli_text_free(&line);
}

static void show_double(const char *label, double value) {
    char number[32];
    cli_text line = {0};
    cli_text_format(&line, "  %-6s ", label);
    cli_text_put(&line, number, heft__double_text_rounded(value, SHOW_DIGITS, number));
    cli_print(&line);
    cli_text_free(&line);
}

static void show_number(const char *label, uint64_t value) {
    cli_text line = {0};
    cli_text_format(&line, "  %-6s ", label);
    cli_text_grouped(&line, value);
    cli_print(&line);
    cli_text_free(&line);
}

static heft_status show_stats(show_state *s, heft_stats *out, heft_error *err) {
    heft_read_options options = cli_read_options(s->args);
    return heft_view_stats(&s->view, &options, out, &s->stats, err);
}

static heft_status show_screen(show_state *s, heft_error *err) {
    heft_stats stats;
    heft_status status = s->args->stats ? show_stats(s, &stats, err) : HEFT_OK;
    if (status != HEFT_OK) return status;
    show_title(s);
    if (s->args->stats) {
        show_number("count", stats.count);
        show_double("min", stats.min);
        show_double("max", stats.max);
        show_double("mean", stats.mean);
        show_double("std", stats.std);
        show_number("zeros", stats.zeros);
        show_number("nan", stats.nans);
        show_number("inf", stats.infs);
    } else {
        status = cli_render_view(s->args, &s->view, &s->stats, err);
    }
    if (status == HEFT_OK) show_account(s, false);
    return status;
}

/* ---- into an output ---------------------------------------------------------------------------------------------- */

static void show_json_head(const show_state *s, heft__json_out *json) {
    uint64_t shape[HEFT_MAX_RANK];
    show_view_shape(&s->view, shape);
    heft__json_out_object(json);
    heft__json_out_key(json, "path", SIZE_MAX);
    heft__json_out_string(json, s->path, SIZE_MAX);
    heft__json_out_key(json, "name", SIZE_MAX);
    heft__json_out_string(json, s->tensor.name, s->tensor.name_len);
    heft__json_out_key(json, "index", SIZE_MAX);
    if (s->index) heft__json_out_string(json, s->index, s->index_len);
    else heft__json_out_null(json);
    heft__json_out_key(json, "dtype", SIZE_MAX);
    heft__json_out_string(json, heft_dtype_name(s->view.dtype), SIZE_MAX);
    heft__json_out_key(json, "shape", SIZE_MAX);
    cli_json_shape(json, s->view.rank, shape);
    heft__json_out_key(json, "borrowable", SIZE_MAX);
    heft__json_out_bool(json, heft_can_borrow(&s->view, 0, NULL) == HEFT_OK);
}

static void show_json_stats(heft__json_out *json, const heft_stats *stats) {
    const struct {
        const char *key;
        double value;
    } numbers[] = {{"min", stats->min}, {"max", stats->max}, {"mean", stats->mean}, {"std", stats->std}};
    const struct {
        const char *key;
        uint64_t value;
    } counts[] = {{"count", stats->count}, {"zeros", stats->zeros}, {"nan", stats->nans}, {"inf", stats->infs}};
    heft__json_out_key(json, "stats", SIZE_MAX);
    heft__json_out_object(json);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        heft__json_out_key(json, counts[i].key, SIZE_MAX);
        heft__json_out_u64(json, counts[i].value);
    }
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        cli_json_number(json, numbers[i].key, numbers[i].value);
    heft__json_out_object_end(json);
}

static void show_json_read(heft__json_out *json, const heft_read_stats *stats) {
    heft__json_out_key(json, "read", SIZE_MAX);
    heft__json_out_object(json);
    heft__json_out_key(json, "requested_nbytes", SIZE_MAX);
    heft__json_out_u64(json, stats->requested_nbytes);
    heft__json_out_key(json, "kept_nbytes", SIZE_MAX);
    heft__json_out_u64(json, stats->kept_nbytes);
    heft__json_out_key(json, "requests", SIZE_MAX);
    heft__json_out_u64(json, stats->requests);
    heft__json_out_object_end(json);
}

static heft_status show_hand_over(heft__json_out *json, heft__output *out, heft_error *err) {
    if (json->failed) cli_die_memory();
    heft_status status = heft__output_write(out, json->text, (size_t)json->len, err);
    json->len = 0;
    return status;
}

static heft_status show_json(show_state *s, heft__output *out, heft_error *err) {
    heft__json_out json;
    heft_stats stats;
    heft_status status = s->args->stats ? show_stats(s, &stats, err) : HEFT_OK;
    if (status != HEFT_OK) return status;
    heft__json_out_init(&json, &heft__default_allocator, 0, true);
    show_json_head(s, &json);
    if (s->args->stats) {
        show_json_stats(&json, &stats);
    } else {
        heft__json_out_key(&json, "values", SIZE_MAX);
        status = show_hand_over(&json, out, err);
        if (status == HEFT_OK) status = cli_write_json_values(s->args, &s->view, out, &s->stats, err);
        /* The values went out beside the writer: an empty element keeps its commas right. */
        if (status == HEFT_OK) heft__json_out_bool(&json, true);
        json.len = 0;
    }
    if (status == HEFT_OK) {
        show_json_read(&json, &s->stats);
        heft__json_out_object_end(&json);
        heft__json_out_newline(&json);
        status = show_hand_over(&json, out, err);
    }
    heft__json_out_free(&json);
    return status;
}

/* What --format says, or else the name of the file. */
static uint32_t show_format(const cli_args *args) {
    if (args->json || !args->output) return CLI_FORMAT_JSON;
    size_t len = strlen(args->output);
    bool npy = len > 4 && strcmp(args->output + len - 4, ".npy") == 0;
    return args->format ? args->format : npy ? CLI_FORMAT_NPY : CLI_FORMAT_RAW;
}

static heft_status show_output(show_state *s, heft_error *err) {
    const char *path = s->args->output ? s->args->output : "-";
    heft__output *out;
    heft_status status = heft__output_open(path, s->args->force, &out, err);
    if (status != HEFT_OK) {
        if (err->fault != HEFT_FAULT_NOT_REGULAR) s->path = path; /* that is what is wrong, and no model */
        return status;
    }
    uint32_t format = show_format(s->args);
    if (format == CLI_FORMAT_RAW) status = cli_write_raw(s->args, &s->view, out, &s->stats, err);
    else if (format == CLI_FORMAT_NPY) status = cli_write_npy(s->args, &s->view, out, &s->stats, err);
    else status = show_json(s, out, err);
    if (status == HEFT_OK) status = heft__output_commit(out, err);
    else heft__output_abort(out);
    if (status == HEFT_OK) show_account(s, strcmp(path, "-") == 0);
    return status;
}

/* ---- the command ------------------------------------------------------------------------------------------------- */

static bool show_arguments_agree(const cli_args *args) {
    const struct {
        bool wrong;
        const char *why;
    } rules[] = {
        {args->noperands > 2, "one tensor at a time: too many arguments"},
        {args->name && args->noperands == 2, "a tensor is named either by NAME[INDEX] or by --name"},
        {!args->name && args->noperands < 2, "the name of a tensor is missing; heft ls lists them"},
        {args->index && !args->name, "--index goes with --name"},
        {args->format && !args->output, "--format goes with --output"},
        {args->format && args->format != CLI_FORMAT_JSON && args->json, "--json goes with --format json only"},
        {args->stats && args->output && !args->json && args->format != CLI_FORMAT_JSON,
         "statistics are written as JSON: give --format json"},
        {args->force && !args->output, "--force goes with --output"},
    };
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        if (!rules[i].wrong) continue;
        cli_usage_error("show", "%s", rules[i].why);
        return false;
    }
    return true;
}

int cli_show(const cli_args *args) {
    if (!show_arguments_agree(args)) return CLI_USAGE;
    show_state s = {.args = args, .path = args->operands[0]};
    heft_archive *archive;
    heft_error err;
    int code = CLI_OK;
    if (cli_open(args, s.path, &archive, &err) != HEFT_OK) return cli_fail(s.path, &err);
    s.archive = archive;
    cli_warn(args, s.path, archive);
    heft_status status = show_resolve(&s, &err);
    if (status == HEFT_OK) status = args->json || args->output ? show_output(&s, &err) : show_screen(&s, &err);
    if (status != HEFT_OK) code = cli_fail(s.path, &err);
    heft_archive_unref(archive);
    return code;
}
