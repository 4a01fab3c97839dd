/* cli: what a copy will write, and what it wrote. */
#include "copier.h"
#include "table.h"

#include <string.h>

#define COPY_REPORT_FILES 20 /* on a terminal */

static const char *const copy_report_forms[] = {"", "safetensors", "sharded", "npz", "npy"};

/* ---- for people -------------------------------------------------------------------------------------------------- */

static void copy_report_comma(cli_text *line, size_t start) {
    if (line->len > start) cli_text_str(line, ", ");
}

/* "12 tensors F32 to BF16, 3 transposed, 4 renamed, 2 fillers of 96 B"; nothing where all stays as it is. */
static void copy_report_changes(const cli_copier *c, cli_text *line, uint64_t nfillers, uint64_t filler_nbytes) {
    size_t start = line->len;
    const struct {
        uint64_t count;
        const char *word;
    } counts[] = {{c->nviews, " transposed"}, {c->nrenamed, " renamed"}};
    for (heft_dtype from = 0; from < HEFT_DTYPE_COUNT; from++)
        for (heft_dtype to = 0; to < HEFT_DTYPE_COUNT; to++) {
            if (!c->converted[from][to]) continue;
            copy_report_comma(line, start);
            cli_text_plural(line, c->converted[from][to], "tensor");
            cli_text_format(line, " %s to %s", heft_dtype_name(from), heft_dtype_name(to));
        }
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        if (!counts[i].count) continue;
        copy_report_comma(line, start);
        cli_text_grouped(line, counts[i].count);
        cli_text_str(line, counts[i].word);
    }
    if (!nfillers) return;
    copy_report_comma(line, start);
    cli_text_plural(line, nfillers, "filler");
    cli_text_str(line, " of ");
    cli_text_size(line, filler_nbytes);
}

static cli_style copy_report_cell(void *ctx, uint64_t row, size_t column, cli_text *text) {
    heft_layout_file file;
    if (heft_layout_get_file(ctx, (uint32_t)row, &file, NULL) != HEFT_OK) return CLI_PLAIN;
    if (column == 0) cli_text_escaped(text, file.name, strlen(file.name));
    else if (column == 1) cli_text_grouped(text, file.nitems);
    else if (column == 2) cli_text_size(text, file.data_nbytes);
    else cli_text_size(text, file.file_nbytes);
    return file.above_ceiling ? CLI_WARN : CLI_PLAIN;
}

static void copy_report_table(const cli_copier *c, uint32_t nfiles) {
    static const cli_column columns[] = {{"FILE", false, true}, {"TENSORS", true, false}, {"DATA", true, false},
                                         {"SIZE", true, false}};
    uint32_t most = cli_screen_get()->terminal && nfiles > COPY_REPORT_FILES ? COPY_REPORT_FILES : nfiles;
    cli_table table = {.columns = columns, .ncolumns = sizeof columns / sizeof *columns, .nrows = most,
                       .cell = copy_report_cell, .ctx = c->layout, .titled = true};
    cli_table_print(&table);
    if (most == nfiles) return;
    cli_text line = {0};
    cli_text_str(&line, "and ");
    cli_text_plural(&line, nfiles - most, "more file");
    cli_text_str(&line, "; --json lists them");
    cli_print(&line);
    cli_text_free(&line);
}

static void copy_report_above(const cli_copier *c, uint32_t nfiles) {
    cli_text line = {0};
    heft_layout_file file;
    for (uint32_t i = 0; i < nfiles; i++) {
        if (heft_layout_get_file(c->layout, i, &file, NULL) != HEFT_OK || !file.above_ceiling) continue;
        const heft_save_item *item = &c->items[file.first_item];
        cli_text_str(&line, "above the size of a file: ");
        cli_text_name(&line, item->name, item->name_len);
        cli_text_str(&line, ", ");
        cli_text_size(&line, file.data_nbytes);
        cli_text_str(&line, ", which gets one of its own");
        cli_print(&line);
    }
    cli_text_free(&line);
}

void cli_copier_plan(const cli_copier *c) {
    uint32_t nfiles = heft_layout_file_count(c->layout);
    heft_layout_file file, sum = {0};
    cli_text line = {0};
    for (uint32_t i = 0; i < nfiles; i++) {
        if (heft_layout_get_file(c->layout, i, &file, NULL) != HEFT_OK) continue;
        sum.file_nbytes += file.file_nbytes;
        sum.nfillers += file.nfillers;
        sum.filler_nbytes += file.filler_nbytes;
    }
    cli_text_escaped(&line, c->source, strlen(c->source));
    cli_text_str(&line, " to ");
    cli_text_escaped(&line, c->target, strlen(c->target));
    cli_text_str(&line, ": ");
    cli_text_plural(&line, c->nitems, "tensor");
    cli_text_str(&line, ", ");
    cli_text_size(&line, sum.file_nbytes);
    cli_text_str(&line, ", ");
    if (c->form == CLI_COPY_SHARDED) cli_text_plural(&line, nfiles, "file");
    else cli_text_str(&line, copy_report_forms[c->form]);
    cli_print(&line);
    if (c->form == CLI_COPY_SHARDED) {
        copy_report_table(c, nfiles);
        copy_report_above(c, nfiles);
    }
    if (c->args->dry_run) {
        copy_report_changes(c, &line, sum.nfillers, sum.filler_nbytes);
        if (line.len) cli_print(&line);
    }
    cli_text_free(&line);
}

void cli_copier_report(const cli_copier *c) {
    cli_text line = {0}, name = {0};
    cli_text_escaped(&name, c->target, strlen(c->target));
    cli_text_styled(&line, CLI_BOLD, name.data, name.len);
    cli_text_str(&line, ": ");
    cli_text_plural(&line, c->stats.ntensors, "tensor");
    cli_text_str(&line, ", ");
    cli_text_size(&line, c->stats.file_nbytes);
    cli_text_str(&line, " in ");
    cli_text_seconds(&line, c->seconds);
    cli_text_str(&line, ", ");
    cli_text_rate(&line, c->stats.file_nbytes, c->seconds);
    size_t end = line.len;
    cli_text_str(&line, "; ");
    size_t start = line.len;
    copy_report_changes(c, &line, c->stats.nfillers, c->stats.filler_nbytes);
    if (c->stats.shared_nbytes) {
        copy_report_comma(&line, start);
        cli_text_size(&line, c->stats.shared_nbytes);
        cli_text_str(&line, " shared with the source");
    }
    if (line.len == start) line.len = end;
    cli_print(&line);
    cli_text_free(&line);
    cli_text_free(&name);
}

/* ---- for programs ------------------------------------------------------------------------------------------------ */

static void copy_report_json_files(const cli_copier *c, heft__json_out *json) {
    heft__json_out_key(json, "files", SIZE_MAX);
    heft__json_out_array(json);
    for (uint32_t i = 0; i < heft_layout_file_count(c->layout); i++) {
        heft_layout_file file;
        if (heft_layout_get_file(c->layout, i, &file, NULL) != HEFT_OK) continue;
        heft__json_out_object(json);
        cli_json_text_or_null(json, "name", file.name);
        cli_json_u64(json, "tensors", file.nitems);
        cli_json_u64(json, "nbytes", file.file_nbytes);
        cli_json_u64(json, "header_nbytes", file.header_nbytes);
        cli_json_u64(json, "data_nbytes", file.data_nbytes);
        cli_json_u64(json, "fillers", file.nfillers);
        cli_json_u64(json, "filler_nbytes", file.filler_nbytes);
        cli_json_bool(json, "above_ceiling", file.above_ceiling);
        heft__json_out_object_end(json);
        cli_json_flush(json);
    }
    heft__json_out_array_end(json);
}

static void copy_report_json_shape(heft__json_out *json, const heft_tensor *tensor, const heft_save_item *item) {
    heft__json_out_key(json, "shape", SIZE_MAX);
    if (!item->view) {
        cli_json_shape(json, tensor->rank, tensor->shape);
        return;
    }
    heft__json_out_array(json);
    for (uint32_t d = 0; d < item->view->rank; d++) heft__json_out_u64(json, (uint64_t)item->view->shape[d]);
    heft__json_out_array_end(json);
}

static void copy_report_json_tensors(const cli_copier *c, heft__json_out *json) {
    heft__json_out_key(json, "tensors", SIZE_MAX);
    heft__json_out_array(json);
    for (uint64_t i = 0; i < c->nitems; i++) {
        const heft_save_item *item = &c->items[i];
        heft_layout_tensor place;
        heft_tensor tensor;
        if (heft_layout_get_tensor(c->layout, i, &place, NULL) != HEFT_OK ||
            heft_archive_get(c->archive, item->id, &tensor, NULL) != HEFT_OK)
            continue;
        heft__json_out_object(json);
        heft__json_out_key(json, "name", SIZE_MAX);
        heft__json_out_string(json, item->name, item->name_len);
        heft__json_out_key(json, "source_name", SIZE_MAX);
        heft__json_out_string(json, tensor.name, tensor.name_len);
        cli_json_text(json, "dtype", heft_dtype_name(place.dtype));
        cli_json_text(json, "source_dtype", heft_dtype_name(tensor.dtype));
        copy_report_json_shape(json, &tensor, item);
        cli_json_bool(json, "transposed", item->view != NULL);
        cli_json_u64(json, "file", place.file);
        cli_json_u64(json, "offset", place.offset);
        cli_json_u64(json, "nbytes", place.nbytes);
        heft__json_out_object_end(json);
        cli_json_flush(json);
    }
    heft__json_out_array_end(json);
}

static void copy_report_json_written(const cli_copier *c, heft__json_out *json) {
    const heft_save_stats *stats = &c->stats;
    heft__json_out_key(json, "written", SIZE_MAX);
    if (c->args->dry_run) {
        heft__json_out_null(json);
        return;
    }
    heft__json_out_object(json);
    cli_json_double(json, "seconds", c->seconds);
    cli_json_double(json, "gbps", c->seconds > 0 ? (double)stats->file_nbytes / c->seconds / 1e9 : 0);
    cli_json_u64(json, "nbytes", stats->file_nbytes);
    cli_json_u64(json, "shared_nbytes", stats->shared_nbytes);
    cli_json_u64(json, "kernel_nbytes", stats->kernel_nbytes);
    cli_json_u64(json, "workers", stats->workers);
    heft__json_out_object_end(json);
}

void cli_copier_json(const cli_copier *c) {
    heft__json_out json;
    cli_json_begin(&json, false);
    heft__json_out_object(&json);
    cli_json_text(&json, "source", c->source);
    cli_json_text(&json, "target", c->target);
    cli_json_text(&json, "to", copy_report_forms[c->form]);
    cli_json_u64(&json, "transposed", c->nviews);
    cli_json_u64(&json, "renamed", c->nrenamed);
    copy_report_json_files(c, &json);
    copy_report_json_tensors(c, &json);
    copy_report_json_written(c, &json);
    heft__json_out_object_end(&json);
    cli_json_end(&json);
}
