/* cli: heft edit: opens each file of a checkpoint by itself, and notes what writing it again mends. */
#include "editor.h"

#include <stdlib.h>
#include <string.h>

#define EDIT_MENDED                                                                                                    \
    (HEFT_LENIENT_DUPLICATE_NAME | HEFT_LENIENT_ARRAY_ENTRY | HEFT_LENIENT_OBJECT_DTYPE | HEFT_LENIENT_TRAILING_BYTES | \
     HEFT_LENIENT_HOLE | HEFT_LENIENT_NUL_PADDING)

int cli_edit_refuse(const char *path, const char *why, int code) {
    cli_text name = {0};
    cli_text_escaped(&name, path, strlen(path));
    cli_complain("%.*s: %s", (int)name.len, name.data, why);
    cli_text_free(&name);
    return code;
}

static heft_open_options edit_options(const cli_edit *edit) {
    heft_open_options options = cli_open_options(edit->args);
    if (edit->args->trim) options.lenient |= HEFT_LENIENT_TRAILING_BYTES;
    if (edit->args->repair) options.lenient |= EDIT_MENDED;
    if (edit->args->rebuild_index) options.index = HEFT_INDEX_IGNORE;
    return options;
}

/* Whether a file without this warning is what comes out. */
static bool edit_is_mended(heft_fault fault) {
    static const heft_fault kinds[] = {HEFT_FAULT_DUPLICATE_NAME, HEFT_FAULT_ARRAY_ENTRY, HEFT_FAULT_OBJECT_DTYPE,
                                       HEFT_FAULT_TRAILING_BYTES, HEFT_FAULT_HOLE, HEFT_FAULT_NUL_PADDING};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (kinds[i] == fault) return true;
    return false;
}

static void edit_note_mended(cli_edit *edit, uint32_t number) {
    cli_edit_file *file = &edit->files[number];
    const heft_report *report = heft_archive_warnings(file->archive);
    for (uint64_t i = 0; i < heft_report_count(report); i++) {
        heft_severity severity;
        heft_error fault;
        if (heft_report_get(report, i, &severity, &fault, NULL) != HEFT_OK || !edit_is_mended(fault.fault)) continue;
        cli_edit_change *change = cli_edit_add(edit, fault.fault == HEFT_FAULT_TRAILING_BYTES ? EDIT_TRIM : EDIT_MEND, number);
        change->fault = fault;
        file->changed = true;
    }
}

static int edit_open_file(cli_edit *edit, const heft_archive *set, uint32_t number) {
    cli_edit_file *file = &edit->files[number];
    heft_open_options options = edit_options(edit);
    heft_file named;
    heft_error err;
    options.strict = false; /* judged with the whole */
    options.variant = NULL;
    heft_status status = heft_archive_file(set, number, &named, &err);
    if (status == HEFT_OK && strcmp(named.format, "safetensors") != 0) {
        status = heft__fail(&err, HEFT_UNSUPPORTED, HEFT_FAULT_NONE, "files of the format %s are not edited", named.format);
        heft__error_file(&err, named.path);
    }
    if (status == HEFT_OK) status = heft_archive_open(named.path, &options, &file->archive, &err);
    if (status == HEFT_OK) status = heft_archive_file(file->archive, 0, &file->file, &err);
    if (status != HEFT_OK) return cli_fail(edit->path, &err);
    uint64_t n = heft_archive_count(file->archive), pairs = heft_archive_metadata_count(file->archive, 0);
    file->items = calloc((size_t)n + 1, sizeof *file->items);
    file->dropped = calloc((size_t)n + 1, sizeof *file->dropped);
    file->metadata = calloc((size_t)pairs + edit->args->set.n + 1, sizeof *file->metadata);
    if (!file->items || !file->dropped || !file->metadata) cli_die_memory();
    for (uint64_t id = 0; id < n; id++) {
        heft_tensor tensor;
        if (heft_archive_get(file->archive, id, &tensor, NULL) != HEFT_OK) continue;
        file->items[file->nitems++] =
            (heft_save_item){.name = tensor.name, .name_len = tensor.name_len, .archive = file->archive, .id = id};
    }
    for (uint64_t i = 0; i < pairs; i++)
        if (heft_archive_metadata(file->archive, 0, i, &file->metadata[file->nmetadata], NULL) == HEFT_OK) file->nmetadata++;
    file->has_metadata = file->file.has_metadata;
    edit_note_mended(edit, number);
    return CLI_OK;
}

/* ---- a set: its folder and index --------------------------------------------------------------------------------- */

static void edit_folder(cli_text *out, const char *path) {
    size_t len = (size_t)(cli_base_name(path) - path);
    if (len == 0) cli_text_str(out, ".");
    else cli_text_put(out, path, len > 1 ? len - 1 : len);
    cli_text_put(out, "", 1);
}

int cli_edit_warn_index(const cli_edit *edit) {
    heft_open_options options = {.struct_size = sizeof options, .lenient = HEFT_LENIENT_ALL};
    const char *name = cli_base_name(edit->files[0].file.path);
    heft_archive *set;
    heft_file file;
    cli_text folder = {0}, line = {0};
    bool named = false;
    if (edit->is_set || !edit->files[0].renamed) return CLI_OK;
    edit_folder(&folder, edit->files[0].file.path);
    if (heft_archive_open(folder.data, &options, &set, NULL) == HEFT_OK) {
        const char *index = heft_archive_index_path(set);
        for (uint32_t i = 0; index && !named && heft_archive_file(set, i, &file, NULL) == HEFT_OK; i++)
            named = strcmp(cli_base_name(file.path), name) == 0;
        if (named) {
            cli_text_str(&line, "warning: ");
            cli_text_escaped(&line, cli_base_name(index), strlen(cli_base_name(index)));
            cli_text_str(&line, " names its tensors and will not fit it: edit the folder instead, or make the index new then: "
                                "heft edit --rebuild-index ");
            cli_text_shell(&line, folder.data);
        }
        heft_archive_unref(set);
    }
    cli_text_put(&line, "", 1);
    if (named && (!edit->args->quiet || edit->args->strict))
        (void)cli_edit_refuse(edit->files[0].file.path, line.data, CLI_OK);
    cli_text_free(&folder);
    cli_text_free(&line);
    return named && edit->args->strict ? CLI_REFUSED : CLI_OK;
}

/* "model.safetensors.index.json" of "model-00001-of-00003.safetensors", and the 3; 0 of another name. */
static uint64_t edit_index_of(cli_text *out, const char *name) {
    static const char digits[] = "0123456789";
    const char *suffix = strstr(name, ".safetensors"), *at = suffix ? suffix : name + strlen(name);
    size_t len = (size_t)(at - name), back = 0;
    uint64_t total = 0;
    while (back < len && back < 9 && strchr(digits, at[-1 - (ptrdiff_t)back])) back++;
    for (size_t i = back; i > 0; i--) total = total * 10 + (uint64_t)(at[-(ptrdiff_t)i] - '0');
    at -= back;
    if (back == 0 || at < name + 5 || memcmp(at - 4, "-of-", 4) != 0) total = 0;
    if (total) {
        at -= 4;
        while (at > name && strchr(digits, at[-1])) at--;
        if (at > name + 1 && at[-1] == '-') len = (size_t)(at - 1 - name);
    }
    cli_text_put(out, name, len);
    cli_text_str(out, ".safetensors.index.json");
    return total;
}

/* The index that is there, whatever it says; else the one that belongs to the shards. */
static int edit_index_name(cli_edit *edit, const heft_archive *set) {
    cli_text usual = {0};
    uint64_t total = edit_index_of(&usual, cli_base_name(edit->files[0].file.path));
    heft_open_options options = cli_open_options(edit->args);
    heft_archive *old = NULL;
    const char *path = heft_archive_index_path(set);
    options.lenient |= HEFT_LENIENT_ALL;
    options.index = HEFT_INDEX_EXACT;
    options.strict = false;
    if (!path && heft_archive_open(edit->path, &options, &old, NULL) == HEFT_OK) path = heft_archive_index_path(old);
    if (path) cli_text_str(&edit->index, cli_base_name(path));
    else cli_text_put(&edit->index, usual.data, usual.len);
    cli_text_put(&edit->index, "", 1);
    cli_text_free(&usual);
    heft_archive_unref(old);
    if (!edit->args->rebuild_index || !total || total == edit->nfiles) return CLI_OK;
    cli_text name = {0};
    cli_text_escaped(&name, edit->path, strlen(edit->path));
    cli_complain("%.*s: the names of the shards say that there are %llu, and %u are there: an index of these would hide that",
                 (int)name.len, name.data, (unsigned long long)total, edit->nfiles);
    cli_text_free(&name);
    return CLI_REFUSED;
}

static int edit_open_set(cli_edit *edit, const heft_archive *set) {
    bool indexed = heft_archive_index_path(set) != NULL, rebuild = edit->args->rebuild_index;
    uint32_t nfiles = heft_archive_file_count(set);
    if (nfiles == 0) return cli_edit_refuse(edit->path, "there is no file to edit", CLI_UNREADABLE);
    if (rebuild && strcmp(heft_archive_resolution(set), "one file") == 0 && !indexed) {
        heft_file only;
        if (heft_archive_file(set, 0, &only, NULL) == HEFT_OK && strcmp(only.path, edit->path) == 0)
            return cli_usage_error("edit", "--rebuild-index takes a directory of shards");
    }
    edit->files = calloc(nfiles, sizeof *edit->files);
    if (!edit->files) cli_die_memory();
    edit->nfiles = nfiles;
    for (uint32_t i = 0; i < edit->nfiles; i++) {
        int code = edit_open_file(edit, set, i);
        if (code != CLI_OK) return code;
    }
    edit->is_set = rebuild || indexed || edit->nfiles > 1;
    if (edit->is_set) edit_folder(&edit->folder, edit->files[0].file.path);
    edit->writes_index = rebuild;
    return rebuild || indexed ? edit_index_name(edit, set) : CLI_OK;
}

int cli_edit_open(cli_edit *edit) {
    heft_open_options options = edit_options(edit);
    heft_archive *set;
    heft_error err;
    if (heft_archive_open(edit->path, &options, &set, &err) != HEFT_OK) {
        int code = cli_fail(edit->path, &err);
        if (edit->args->repair) cli_complain("nothing was changed: this cannot be mended without loss");
        return code;
    }
    int code = edit_open_set(edit, set);
    for (uint32_t i = 0; code == CLI_OK && edit->args->rebuild_index == false && i < edit->nfiles; i++) {
        heft_file file;
        if (heft_archive_file(set, i, &file, NULL) == HEFT_OK) edit->files[i].file.nwithheld = file.nwithheld;
    }
    heft_archive_unref(set);
    return code;
}

void cli_edit_free(cli_edit *edit) {
    for (uint32_t i = 0; edit->files && i < edit->nfiles; i++) {
        cli_edit_file *file = &edit->files[i];
        free(file->items);
        free(file->metadata);
        free(file->dropped);
        heft_archive_unref(file->archive);
    }
    free(edit->files);
    free(edit->changes);
    cli_text_free(&edit->folder);
    cli_text_free(&edit->index);
}
