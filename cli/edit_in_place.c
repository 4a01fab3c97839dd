/* cli: heft edit --in-place: a header changed where it stands, and what ends such an edit. */
#include "editor.h"

#include <stdlib.h>
#include <string.h>

int cli_edit_check_in_place(const cli_edit *edit) {
    if (edit->is_set || edit->nfiles != 1) return cli_usage_error("edit", "--in-place takes one file");
    return CLI_OK;
}

/* Whether the item has another name than its tensor. */
static bool in_place_renamed(const cli_edit_file *file, const heft_save_item *item) {
    heft_tensor tensor;
    size_t len = item->name_len ? item->name_len : strlen(item->name);
    return heft_archive_get(file->archive, item->id, &tensor, NULL) == HEFT_OK &&
           (tensor.name_len != len || memcmp(tensor.name, item->name, len) != 0);
}

static heft_status in_place_run(cli_edit_file *file, bool dry_run, heft_error *err) {
    static const heft_pair none;
    heft_edit_options options = {.struct_size = sizeof options,
                                 .metadata = file->has_metadata ? file->metadata : &none,
                                 .nmetadata = file->nmetadata,
                                 .dry_run = dry_run};
    heft_new_name *names = calloc((size_t)file->nitems + 1, sizeof *names);
    uint64_t n = 0;
    if (!names) cli_die_memory();
    for (uint64_t i = 0; i < file->nitems; i++) {
        const heft_save_item *item = &file->items[i];
        if (in_place_renamed(file, item)) names[n++] = (heft_new_name){item->id, item->name, item->name_len, {0, 0}};
    }
    if (!file->has_metadata) options.nmetadata = 0;
    heft_status status = heft_edit_in_place(file->archive, names, n, &options, &file->in_place, err);
    free(names);
    return status;
}

static int in_place_fail(const char *path, heft_error *err) {
    if (err->status == HEFT_INVALID_ARGUMENT) err->fault = HEFT_FAULT_CALL; /* of what was asked for, not of the file */
    if (err->fault == HEFT_FAULT_HEADER_LIMIT || err->status == HEFT_EXISTS || err->status == HEFT_UNSUPPORTED) {
        bool other = err->status == HEFT_LIMIT || err->status == HEFT_UNSUPPORTED;
        cli_complain("%s%s", err->message, other ? ": leave out --in-place" : "");
        return err->fault == HEFT_FAULT_HEADER_LIMIT ? CLI_REFUSED : cli_exit_code(err);
    }
    return cli_fail(path, err);
}

int cli_edit_measure_in_place(cli_edit *edit) {
    cli_edit_file *file = &edit->files[0];
    heft_error err;
    if (in_place_run(file, true, &err) != HEFT_OK) return in_place_fail(edit->path, &err);
    file->after = (heft_layout_file){.file_nbytes = file->file.nbytes, .header_nbytes = file->in_place.header_nbytes};
    for (uint64_t id = 0; id < heft_archive_count(file->archive); id++) {
        heft_tensor tensor;
        if (heft_archive_get(file->archive, id, &tensor, NULL) == HEFT_OK) file->after.data_nbytes += tensor.nbytes;
    }
    return CLI_OK;
}

int cli_edit_write_in_place(cli_edit *edit) {
    heft_error err;
    return in_place_run(&edit->files[0], false, &err) == HEFT_OK ? CLI_OK : in_place_fail(edit->path, &err);
}

void cli_edit_row_in_place(const cli_edit *edit) {
    const heft_edit_stats *stats = &edit->files[0].in_place;
    cli_text line = {0};
    cli_text_str(&line, "  header  ");
    cli_text_grouped(&line, stats->needed_nbytes);
    cli_text_str(&line, " of ");
    cli_text_grouped(&line, stats->header_nbytes);
    cli_text_str(&line, " bytes before the data are needed, ");
    cli_text_grouped(&line, stats->changed_nbytes);
    cli_text_str(&line, edit->args->dry_run ? " would change" : " have changed");
    cli_print(&line);
    cli_text_free(&line);
}

void cli_edit_json_in_place(const cli_edit *edit, heft__json_out *json) {
    heft__json_out_key(json, "in_place", SIZE_MAX);
    if (!edit->args->in_place) {
        heft__json_out_null(json);
        return;
    }
    const heft_edit_stats *stats = &edit->files[0].in_place;
    heft__json_out_object(json);
    cli_json_u64(json, "header_nbytes", stats->header_nbytes);
    cli_json_u64(json, "needed_nbytes", stats->needed_nbytes);
    cli_json_u64(json, "changed_nbytes", stats->changed_nbytes);
    heft__json_out_object_end(json);
}

/* ---- ending ------------------------------------------------------------------------------------------------------- */

static int in_place_end_fail(const char *path, heft_error *err) {
    /* The advice would be to do what was just tried. */
    if (err->fault == HEFT_FAULT_SAVE_INTERRUPTED || err->fault == HEFT_FAULT_EDIT_INTERRUPTED ||
        err->fault == HEFT_FAULT_NOT_REGULAR)
        err->fault = HEFT_FAULT_CALL;
    if (err->status != HEFT_EXISTS) return cli_fail(path, err);
    cli_complain("%s", err->message); /* another process is at work there */
    return cli_exit_code(err);
}

int cli_edit_end(const cli_args *args) {
    const char *path = args->operands[0], *verdict = "no edit or save was interrupted there";
    bool done, set = false;
    heft_error err;
    heft_status status = (args->undo ? heft_edit_undo : heft_edit_resume)(path, NULL, &done, &err);
    if (status == HEFT_INVALID_ARGUMENT && err.fault == HEFT_FAULT_NOT_REGULAR && args->resume) {
        set = true;
        status = heft_set_resume(path, NULL, &done, &err);
    }
    if (status != HEFT_OK) return in_place_end_fail(path, &err);
    if (done) verdict = set          ? "the interrupted save is complete now"
                        : args->undo ? "the interrupted edit is taken back"
                                     : "the interrupted edit is complete now";
    if (args->json) {
        heft__json_out json;
        cli_json_begin(&json, false);
        heft__json_out_object(&json);
        cli_json_text(&json, "path", path);
        cli_json_bool(&json, args->undo ? "undone" : "resumed", done);
        heft__json_out_object_end(&json);
        cli_json_end(&json);
    } else {
        cli_text line = {0};
        cli_text_escaped(&line, path, strlen(path));
        cli_text_format(&line, ": %s", verdict);
        cli_print(&line);
        cli_text_free(&line);
    }
    return CLI_OK;
}
