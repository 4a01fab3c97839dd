/* cli: heft edit: changes metadata, names and faults of a checkpoint by writing it again beside itself. */
#include "editor.h"

#include <string.h>

#define EDIT_ROWS 20 /* of each kind, on a terminal */

static const char *const edit_words[EDIT_KINDS] = {"set", "delete", "rename", "drop", "trim", "mend"};

/* ---- sums -------------------------------------------------------------------------------------------------------- */

typedef struct edit_sums {
    uint64_t files, tensors, metadata, data_nbytes, file_nbytes;
} edit_sums;

/* Of metadata each key counts once a file. */
static void edit_sum(const cli_edit *edit, edit_sums *before, edit_sums *after) {
    memset(before, 0, sizeof *before);
    before->files = edit->nfiles;
    *after = *before;
    for (uint32_t f = 0; f < edit->nfiles; f++) {
        const cli_edit_file *file = &edit->files[f];
        uint64_t data = 0, n = heft_archive_count(file->archive);
        for (uint64_t id = 0; id < n; id++) {
            heft_tensor tensor;
            if (heft_archive_get(file->archive, id, &tensor, NULL) == HEFT_OK) data += tensor.nbytes;
        }
        before->tensors += n;
        before->metadata += heft_archive_metadata_count(file->archive, 0);
        before->data_nbytes += data;
        before->file_nbytes += file->file.nbytes;
        after->tensors += file->nitems;
        after->metadata += file->nmetadata;
        after->data_nbytes += file->changed ? file->after.data_nbytes : data;
        after->file_nbytes += file->changed ? file->after.file_nbytes : file->file.nbytes;
    }
}

static uint64_t edit_count_changed(const cli_edit *edit) {
    uint64_t n = 0;
    for (uint32_t f = 0; f < edit->nfiles; f++) n += edit->files[f].changed;
    return n;
}

/* ---- the screen -------------------------------------------------------------------------------------------------- */

/* A value of at most 40 columns. */
static void edit_value(cli_text *line, const heft_pair *pair) {
    cli_text value = {0};
    cli_text_escaped(&value, pair->value, pair->value_len < 400 ? pair->value_len : 400);
    size_t fits = cli_columns_fit(value.data, value.len, 40);
    cli_text_str(line, "\"");
    cli_text_put(line, value.data, fits);
    cli_text_str(line, fits < value.len || pair->value_len >= 400 ? "…\"" : "\"");
    cli_text_free(&value);
}

static void edit_tensor_text(cli_text *line, const heft_tensor *tensor) {
    cli_text_format(line, "  %s ", heft_dtype_name(tensor->dtype));
    cli_text_shape(line, tensor->rank, tensor->shape);
}

/* The message without the file, which the verdict or the end of the line names. */
static void edit_message(cli_text *line, const heft_error *fault) {
    cli_text file = {0};
    cli_text_escaped(&file, fault->file, strlen(fault->file));
    cli_text_str(&file, ": ");
    bool leads = strncmp(fault->message, file.data, file.len) == 0;
    cli_text_str(line, fault->message + (leads ? file.len : 0));
    cli_text_free(&file);
}

static void edit_row(const cli_edit *edit, const cli_edit_change *change) {
    cli_text line = {0};
    cli_text_format(&line, "  %-7s ", edit_words[change->kind]);
    switch (change->kind) {
    case EDIT_SET:
    case EDIT_DELETE:
        cli_text_escaped(&line, change->pair.key, change->pair.key_len);
        cli_text_str(&line, change->old.key ? ": was " : ": new");
        if (change->old.key) edit_value(&line, &change->old);
        if (change->differs) cli_text_str(&line, " in one file and something else in others");
        if (change->kind == EDIT_SET) {
            cli_text_str(&line, change->old.key ? ", becomes " : ", ");
            edit_value(&line, &change->pair);
        }
        break;
    case EDIT_RENAME:
        cli_text_name(&line, change->tensor.name, change->tensor.name_len);
        cli_text_str(&line, ": becomes ");
        cli_text_name(&line, change->name, strlen(change->name));
        edit_tensor_text(&line, &change->tensor);
        break;
    case EDIT_DROP:
        cli_text_name(&line, change->tensor.name, change->tensor.name_len);
        edit_tensor_text(&line, &change->tensor);
        cli_text_str(&line, "  ");
        cli_text_size(&line, change->tensor.nbytes);
        break;
    default:
        cli_text_format(&line, "%s: ", heft_fault_name(change->fault.fault));
        edit_message(&line, &change->fault);
        break;
    }
    if (edit->nfiles > 1 && change->kind <= EDIT_DELETE) {
        cli_text_str(&line, "  in ");
        cli_text_grouped(&line, change->nfiles);
        cli_text_str(&line, " of ");
        cli_text_plural(&line, edit->nfiles, "file");
    } else if (edit->nfiles > 1) {
        const char *name = cli_base_name(edit->files[change->file].file.path);
        cli_text_str(&line, "  in ");
        cli_text_escaped(&line, name, strlen(name));
    }
    cli_print(&line);
    cli_text_free(&line);
}

static void edit_rows(const cli_edit *edit) {
    uint64_t most = cli_screen_get()->terminal ? EDIT_ROWS : UINT64_MAX;
    for (cli_edit_kind kind = 0; kind < EDIT_KINDS; kind++) {
        uint64_t n = 0;
        for (size_t i = 0; i < edit->nchanges; i++)
            if (edit->changes[i].kind == kind && n++ < most) edit_row(edit, &edit->changes[i]);
        if (n <= most) continue;
        cli_text line = {0};
        cli_text_format(&line, "  %-7s and ", edit_words[kind]);
        cli_text_grouped(&line, n - most);
        cli_text_str(&line, " more");
        cli_print(&line);
        cli_text_free(&line);
    }
}

static void edit_sum_row(const char *word, const edit_sums *sums) {
    cli_text line = {0};
    cli_text_format(&line, "  %-7s ", word);
    cli_text_plural(&line, sums->tensors, "tensor");
    cli_text_str(&line, ", ");
    cli_text_size(&line, sums->data_nbytes);
    cli_text_str(&line, " of data, ");
    cli_text_plural(&line, sums->metadata, "metadata pair");
    cli_text_str(&line, ", ");
    cli_text_size(&line, sums->file_nbytes);
    cli_text_str(&line, " in ");
    cli_text_plural(&line, sums->files, "file");
    cli_print(&line);
    cli_text_free(&line);
}

static void edit_screen(const cli_edit *edit, bool changes) {
    cli_text line = {0};
    const char *verdict = !changes ? "nothing to change" : edit->args->dry_run ? "would be edited" : "edited";
    const char *where = changes && edit->args->in_place ? " in place" : "";
    cli_text_escaped(&line, edit->path, strlen(edit->path));
    cli_text_str(&line, ": ");
    cli_text_styled(&line, changes && !edit->args->dry_run ? CLI_GOOD : CLI_DIM, verdict, strlen(verdict));
    cli_text_str(&line, where);
    cli_print(&line);
    if (changes && !edit->args->quiet) {
        edit_sums before, after;
        edit_sum(edit, &before, &after);
        edit_rows(edit);
        if (edit->writes_index) {
            cli_text_str(&line, "  index   ");
            cli_text_escaped(&line, edit->index.data, strlen(edit->index.data));
            cli_text_str(&line, ": made new from the headers, ");
            cli_text_plural(&line, after.tensors, "tensor");
            cli_text_str(&line, " in ");
            cli_text_plural(&line, after.files, "file");
            cli_print(&line);
        }
        edit_sum_row("before", &before);
        edit_sum_row("after", &after);
        if (edit->args->in_place) cli_edit_row_in_place(edit);
        if (edit->nfiles > 1) {
            cli_text_str(&line, "  written ");
            cli_text_grouped(&line, edit_count_changed(edit));
            cli_text_str(&line, " of ");
            cli_text_plural(&line, edit->nfiles, "file");
            cli_text_str(&line, edit->writes_index ? " and the index" : "");
            cli_print(&line);
        }
    }
    cli_text_free(&line);
}

/* ---- JSON -------------------------------------------------------------------------------------------------------- */

static void edit_json_pair(heft__json_out *json, const char *key, const heft_pair *pair) {
    heft__json_out_key(json, key, SIZE_MAX);
    if (pair->key && pair->value) heft__json_out_string(json, pair->value, pair->value_len);
    else heft__json_out_null(json);
}

static void edit_json_change(const cli_edit *edit, heft__json_out *json, const cli_edit_change *change) {
    bool metadata = change->kind <= EDIT_DELETE, tensor = change->kind == EDIT_RENAME || change->kind == EDIT_DROP;
    heft__json_out_object(json);
    cli_json_text(json, "change", edit_words[change->kind]);
    cli_json_text(json, "file", edit->files[change->file].file.path);
    cli_json_u64(json, "files", change->nfiles);
    if (metadata) {
        heft__json_out_key(json, "key", SIZE_MAX);
        heft__json_out_string(json, change->pair.key, change->pair.key_len);
        edit_json_pair(json, "before", &change->old);
        edit_json_pair(json, "after", &change->pair);
        cli_json_bool(json, "differs", change->differs);
    } else if (tensor) {
        heft__json_out_key(json, "name", SIZE_MAX);
        heft__json_out_string(json, change->tensor.name, change->tensor.name_len);
        heft__json_out_key(json, "after", SIZE_MAX);
        if (change->kind == EDIT_RENAME) heft__json_out_string(json, change->name, SIZE_MAX);
        else heft__json_out_null(json);
    } else {
        heft__json_out_key(json, "fault", SIZE_MAX);
        cli_json_fault(json, HEFT_SEVERITY_WARNING, &change->fault, edit->path);
    }
    heft__json_out_object_end(json);
}

static void edit_json_sums(heft__json_out *json, const char *key, const edit_sums *sums) {
    heft__json_out_key(json, key, SIZE_MAX);
    heft__json_out_object(json);
    cli_json_u64(json, "files", sums->files);
    cli_json_u64(json, "tensors", sums->tensors);
    cli_json_u64(json, "metadata", sums->metadata);
    cli_json_u64(json, "data_nbytes", sums->data_nbytes);
    cli_json_u64(json, "file_nbytes", sums->file_nbytes);
    heft__json_out_object_end(json);
}

static void edit_json(const cli_edit *edit, bool changes, const heft_save_stats *stats) {
    heft__json_out json;
    edit_sums before, after;
    edit_sum(edit, &before, &after);
    cli_json_begin(&json, false);
    heft__json_out_object(&json);
    cli_json_text(&json, "path", edit->path);
    cli_json_bool(&json, "changed", changes);
    cli_json_bool(&json, "written", changes && !edit->args->dry_run);
    heft__json_out_key(&json, "changes", SIZE_MAX);
    heft__json_out_array(&json);
    for (size_t i = 0; i < edit->nchanges; i++) {
        edit_json_change(edit, &json, &edit->changes[i]);
        cli_json_flush(&json);
    }
    heft__json_out_array_end(&json);
    cli_json_text_or_null(&json, "index", edit->writes_index ? edit->index.data : NULL);
    edit_json_sums(&json, "before", &before);
    edit_json_sums(&json, "after", &after);
    cli_json_u64(&json, "files_changed", edit_count_changed(edit));
    cli_json_u64(&json, "shared_nbytes", stats->shared_nbytes);
    cli_json_u64(&json, "kernel_nbytes", stats->kernel_nbytes);
    cli_edit_json_in_place(edit, &json);
    heft__json_out_object_end(&json);
    cli_json_end(&json);
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

/* Without the advice where it would be to do what was just done. */
static int edit_fail(const char *path, heft_error *err) {
    if (err->status == HEFT_EXISTS) { /* another process is at work there */
        cli_complain("%s", err->message);
        return cli_exit_code(err);
    }
    bool damaged = err->fault == HEFT_FAULT_CHECKSUM; /* what to do follows */
    if (damaged || err->fault == HEFT_FAULT_DUPLICATE_NAME || err->fault == HEFT_FAULT_SAVE_INTERRUPTED)
        err->fault = HEFT_FAULT_CALL;
    int code = cli_fail(path, err);
    if (damaged)
        cli_complain("nothing was changed: new digests would hide that; heft verify tells all, and --delete heft.xxh3 and "
                     "--delete heft.data_xxh3 take the digests out");
    return code;
}

static heft_status edit_write_set(cli_edit *edit, const heft_save_options *options, heft_save_stats *stats,
                                  heft_error *err) {
    heft_set_file *files = heft__alloc_zero(&heft__default_allocator, edit->nfiles * sizeof *files);
    if (!files) cli_die_memory();
    for (uint32_t f = 0; f < edit->nfiles; f++) {
        const cli_edit_file *file = &edit->files[f];
        files[f] = (heft_set_file){.name = cli_base_name(file->file.path), .items = file->items, .nitems = file->nitems,
                                   .options = &file->options, .keep = !file->changed};
        if (!file->changed) files[f].options = NULL;
    }
    heft_status status = heft_set_replace(edit->folder.data, files, edit->nfiles,
                                          edit->writes_index ? edit->index.data : NULL, options, NULL, stats, err);
    heft__free(&heft__default_allocator, files, edit->nfiles * sizeof *files);
    return status;
}

static int edit_write(cli_edit *edit, heft_save_stats *stats) {
    cli_progress progress;
    heft_error err;
    heft_save_options options = {.struct_size = sizeof options, .progress = cli_progress_step, .progress_ctx = &progress};
    heft_status status;
    if (edit->args->in_place) return cli_edit_write_in_place(edit);
    cli_progress_start(&progress, edit->args->quiet);
    if (edit->is_set) {
        status = edit_write_set(edit, &options, stats, &err);
    } else {
        cli_edit_file *file = &edit->files[0];
        file->options.progress = cli_progress_step;
        file->options.progress_ctx = &progress;
        status = heft_save(file->file.path, file->items, file->nitems, &file->options, stats, &err);
    }
    cli_progress_end(&progress);
    return status == HEFT_OK ? CLI_OK : edit_fail(edit->path, &err);
}

static int edit_file(const cli_args *args) {
    cli_edit edit = {.args = args, .path = args->operands[0]};
    heft_save_stats stats = {0};
    int code = cli_edit_open(&edit);
    if (code == CLI_OK) code = cli_edit_apply(&edit);
    bool changes = code == CLI_OK && (edit_count_changed(&edit) || edit.writes_index);
    if (code == CLI_OK && changes && !args->dry_run) code = edit_write(&edit, &stats);
    if (code == CLI_OK) {
        if (args->json) edit_json(&edit, changes, &stats);
        else edit_screen(&edit, changes);
    }
    cli_edit_free(&edit);
    return code;
}

/* ---- what saves have left ---------------------------------------------------------------------------------------- */

static void edit_say(const cli_args *args, const char *verdict) {
    cli_text line = {0};
    cli_text_escaped(&line, args->operands[0], strlen(args->operands[0]));
    cli_text_format(&line, ": %s", verdict);
    cli_print(&line);
    cli_text_free(&line);
}

/* Temporary files and useless journals that heft_check names, one after another: HEFT_NONE after the last. */
static uint64_t edit_next_litter(const heft_report *report, uint64_t at, heft_error *fault) {
    heft_severity severity;
    for (uint64_t n = report ? heft_report_count(report) : 0; at < n; at++)
        if (heft_report_get(report, at, &severity, fault, NULL) == HEFT_OK &&
            (fault->fault == HEFT_FAULT_TEMP_FILE || fault->fault == HEFT_FAULT_JOURNAL_IGNORED))
            return at;
    return HEFT_NONE;
}

/* Whether a temporary file of `before` is there in `after` too: the same sentence up to its size and age. */
static bool edit_litter_stays(const heft_report *after, const heft_error *before) {
    const char *end = strstr(before->message, " is a temporary file");
    size_t len = end ? (size_t)(end - before->message) : strlen(before->message);
    heft_error fault;
    for (uint64_t i = edit_next_litter(after, 0, &fault); i != HEFT_NONE; i = edit_next_litter(after, i + 1, &fault))
        if (strncmp(fault.message, before->message, len) == 0) return true;
    return false;
}

static void edit_clean_json(const cli_args *args, const heft_report *reports[2], uint64_t nremoved) {
    heft__json_out json;
    heft_error fault;
    cli_json_begin(&json, false);
    heft__json_out_object(&json);
    cli_json_text(&json, "path", args->operands[0]);
    cli_json_u64(&json, "removed", nremoved);
    heft__json_out_key(&json, "found", SIZE_MAX);
    heft__json_out_array(&json);
    for (uint64_t i = edit_next_litter(reports[0], 0, &fault); i != HEFT_NONE;
         i = edit_next_litter(reports[0], i + 1, &fault)) {
        heft__json_out_object(&json);
        cli_json_text(&json, "message", fault.message);
        cli_json_bool(&json, "stays", edit_litter_stays(reports[1], &fault));
        heft__json_out_object_end(&json);
    }
    heft__json_out_array_end(&json);
    heft__json_out_object_end(&json);
    cli_json_end(&json);
}

static void edit_clean_screen(const cli_args *args, const heft_report *reports[2], uint64_t count) {
    heft_error fault;
    cli_text line = {0};
    cli_text_grouped(&line, count);
    cli_text_format(&line, " temporary file%s %s", count == 1 ? "" : "s", args->dry_run ? "found" : "removed");
    cli_text_put(&line, "", 1);
    edit_say(args, line.data);
    for (uint64_t i = edit_next_litter(reports[0], 0, &fault); !args->quiet && i != HEFT_NONE;
         i = edit_next_litter(reports[0], i + 1, &fault)) {
        line.len = 0;
        cli_text_str(&line, !args->dry_run && edit_litter_stays(reports[1], &fault) ? "  stays: " : "  ");
        edit_message(&line, &fault);
        cli_print(&line);
    }
    cli_text_free(&line);
}

static int edit_clean(const cli_args *args) {
    const char *path = args->operands[0];
    heft_open_options options = cli_open_options(args);
    heft_report *reports[2] = {NULL, NULL}; /* before and after; where there is nothing to check there is only a count */
    heft_error err, fault;
    uint64_t nfound = 0, nremoved = 0;
    (void)heft_check(path, &options, &reports[0], NULL);
    for (uint64_t i = edit_next_litter(reports[0], 0, &fault); i != HEFT_NONE; i = edit_next_litter(reports[0], i + 1, &fault))
        nfound++;
    heft_status status = args->dry_run ? HEFT_OK : heft_save_clean(path, true, NULL, &nremoved, &err);
    if (status == HEFT_OK) {
        const heft_report *told[2];
        (void)heft_check(path, &options, &reports[1], NULL);
        told[0] = reports[0], told[1] = reports[1];
        if (args->json) edit_clean_json(args, told, nremoved);
        else edit_clean_screen(args, told, args->dry_run ? nfound : nremoved);
    }
    for (int i = 0; i < 2; i++) heft_report_free(reports[i]);
    return status == HEFT_OK ? CLI_OK : cli_fail(path, &err);
}

/* ---- the command ------------------------------------------------------------------------------------------------- */

static int edit_words_check(const char *option, const cli_words *words, const char *form) {
    for (size_t i = 0; i < words->n; i++) {
        size_t len = cli_edit_split(words->items[i]);
        if (len != SIZE_MAX) continue;
        return cli_usage_error("edit", "--%s takes %s, not \"%s\"", option, form, words->items[i]);
    }
    return CLI_OK;
}

int cli_edit_command(const cli_args *args) {
    bool edits = args->set.n || args->deleted.n || args->rename.n || args->dropped.n || args->trim || args->repair ||
                 args->rebuild_index;
    if (args->noperands != 1) return cli_usage_error("edit", "one path is edited");
    if (strcmp(args->operands[0], "-") == 0) return cli_usage_error("edit", "standard input cannot be edited");
    if (args->resume + args->undo + args->clean + (edits || args->in_place) > 1)
        return cli_usage_error("edit", "--resume, --undo and --clean stand alone");
    if ((args->resume || args->undo) && args->dry_run)
        return cli_usage_error("edit", "--%s does it or does not; there is no --dry-run", args->undo ? "undo" : "resume");
    if (args->resume || args->undo) return cli_edit_end(args);
    if (args->clean) return edit_clean(args);
    if (!edits) return cli_usage_error("edit", "nothing is said about what to change");
    if (args->in_place && (args->dropped.n || args->trim || args->repair || args->rebuild_index))
        return cli_usage_error("edit", "--in-place changes metadata and names, and nothing else");
    int code = edit_words_check("set", &args->set, "KEY=VALUE");
    if (code == CLI_OK) code = edit_words_check("rename", &args->rename, "OLD=NEW");
    return code == CLI_OK ? edit_file(args) : code;
}
