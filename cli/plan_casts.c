/* cli: what a plan converts, summed up by pair of dtypes. */
#include "loader.h"

#include <stdlib.h>

void cli_load_casts_make(const heft_archive *archive, const heft_load_plan *plan, cli_load_casts *out) {
    *out = (cli_load_casts){0};
    for (uint64_t id = 0; id < heft_archive_count(archive); id++) {
        heft_tensor tensor;
        heft_load_place place;
        if (heft_archive_get(archive, id, &tensor, NULL) != HEFT_OK || heft_load_plan_place(plan, id, &place, NULL) != HEFT_OK ||
            place.dtype == tensor.dtype)
            continue;
        size_t i = 0;
        while (i < out->n && (out->rows[i].from != tensor.dtype || out->rows[i].to != place.dtype)) i++;
        if (i == out->n) {
            out->rows = realloc(out->rows, (i + 1) * sizeof *out->rows);
            if (!out->rows) cli_die_memory();
            out->rows[out->n++] = (cli_load_cast){.from = tensor.dtype, .to = place.dtype, .first = id};
        }
        out->rows[i].ntensors++;
        out->rows[i].nbytes += place.nbytes;
        out->rows[i].stored_nbytes += place.nbytes / (heft_dtype_bits(place.dtype) / 8) * (heft_dtype_bits(tensor.dtype) / 8);
    }
    out->archive = archive;
}

void cli_load_casts_free(cli_load_casts *casts) {
    free(casts->rows);
    *casts = (cli_load_casts){0};
}

static cli_style casts_cell(void *ctx, uint64_t row, size_t column, cli_text *text) {
    const cli_load_casts *casts = ctx;
    const cli_load_cast *cast = &casts->rows[row];
    heft_tensor tensor;
    switch (column) {
    case 0: cli_text_format(text, "%s to %s", heft_dtype_name(cast->from), heft_dtype_name(cast->to)); return CLI_ACCENT;
    case 1: cli_text_u64(text, cast->ntensors); return CLI_PLAIN;
    case 2: cli_text_size(text, cast->stored_nbytes); return CLI_PLAIN;
    case 3: cli_text_size(text, cast->nbytes); return CLI_PLAIN;
    default:
        if (heft_archive_get(casts->archive, cast->first, &tensor, NULL) == HEFT_OK)
            cli_text_name(text, tensor.name, tensor.name_len);
        return CLI_PLAIN;
    }
}

void cli_load_casts_table(const cli_load_casts *casts) {
    static const cli_column columns[] = {{"CONVERTED", false, false},
                                         {"TENSORS", true, false},
                                         {"STORED", true, false},
                                         {"IN MEMORY", true, false},
                                         {"FIRST", false, true}};
    cli_table table = {columns, sizeof columns / sizeof *columns, casts->n, casts_cell, (void *)(uintptr_t)casts, true};
    cli_table_print(&table);
}

void cli_load_casts_words(const cli_load_casts *casts, cli_text *line) {
    for (size_t i = 0; i < casts->n; i++) {
        const cli_load_cast *cast = &casts->rows[i];
        if (i) cli_text_str(line, ", ");
        cli_text_plural(line, cast->ntensors, "tensor");
        cli_text_format(line, " %s to %s", heft_dtype_name(cast->from), heft_dtype_name(cast->to));
    }
}

void cli_json_load_casts(heft__json_out *json, const cli_load_casts *casts) {
    heft__json_out_key(json, "casts", SIZE_MAX);
    heft__json_out_array(json);
    for (size_t i = 0; i < casts->n; i++) {
        heft__json_out_object(json);
        cli_json_text(json, "from", heft_dtype_name(casts->rows[i].from));
        cli_json_text(json, "to", heft_dtype_name(casts->rows[i].to));
        cli_json_u64(json, "tensors", casts->rows[i].ntensors);
        cli_json_u64(json, "stored_nbytes", casts->rows[i].stored_nbytes);
        cli_json_u64(json, "nbytes", casts->rows[i].nbytes);
        heft__json_out_object_end(json);
    }
    heft__json_out_array_end(json);
}
