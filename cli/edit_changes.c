/* cli: heft edit: what the command line asks for, worked out on the items and metadata of each file. */
#include "editor.h"

#include <stdlib.h>
#include <string.h>

cli_edit_change *cli_edit_add(cli_edit *edit, cli_edit_kind kind, uint32_t file) {
    if (edit->nchanges == edit->changes_capacity) {
        size_t capacity = edit->changes_capacity ? 2 * edit->changes_capacity : 16;
        cli_edit_change *more = realloc(edit->changes, capacity * sizeof *more);
        if (!more) cli_die_memory();
        edit->changes = more;
        edit->changes_capacity = capacity;
    }
    cli_edit_change *change = &edit->changes[edit->nchanges++];
    *change = (cli_edit_change){.kind = kind, .file = file, .nfiles = 1};
    return change;
}

size_t cli_edit_split(const char *word) {
    const char *sign = strchr(word, '=');
    return sign ? (size_t)(sign - word) : SIZE_MAX;
}

/* ---- metadata ---------------------------------------------------------------------------------------------------- */

static uint64_t edit_key(const cli_edit_file *file, const char *key, size_t len) {
    uint64_t i = 0;
    while (i < file->nmetadata && !(file->metadata[i].key_len == len && memcmp(file->metadata[i].key, key, len) == 0)) i++;
    return i;
}

static bool edit_same_value(const heft_pair *a, const heft_pair *b) {
    if (!a->key || !b->key) return a->key == b->key;
    return a->value_len == b->value_len && memcmp(a->value, b->value, a->value_len) == 0;
}

/* Sets `pair` in every file, or, with value NULL, takes its key out of every file that has it. */
static bool edit_pair(cli_edit *edit, const heft_pair *pair) {
    cli_edit_change *change = NULL;
    bool found = false;
    for (uint32_t f = 0; f < edit->nfiles; f++) {
        cli_edit_file *file = &edit->files[f];
        uint64_t at = edit_key(file, pair->key, pair->key_len);
        heft_pair old = {0};
        if (at < file->nmetadata) old = file->metadata[at];
        found = found || old.key;
        if (pair->value ? old.key && edit_same_value(&old, pair) : !old.key) continue;
        if (!change) {
            change = cli_edit_add(edit, pair->value ? EDIT_SET : EDIT_DELETE, f);
            change->pair = *pair;
            change->old = old;
        } else {
            change->nfiles++;
            change->differs = change->differs || !edit_same_value(&change->old, &old);
        }
        if (pair->value) {
            file->metadata[at] = *pair;
            file->nmetadata += at == file->nmetadata;
            file->has_metadata = true;
        } else {
            file->metadata[at] = file->metadata[--file->nmetadata];
            file->has_metadata = file->nmetadata > 0;
        }
        file->changed = true;
    }
    return found;
}

static int edit_metadata(cli_edit *edit) {
    const cli_words *gone = &edit->args->deleted, *set = &edit->args->set;
    for (size_t i = 0; i < gone->n; i++) {
        heft_pair pair = {.key = gone->items[i], .key_len = strlen(gone->items[i])};
        if (edit_pair(edit, &pair)) continue;
        heft_error err;
        cli_text key = {0};
        cli_text_escaped(&key, pair.key, pair.key_len);
        heft__fail(&err, HEFT_NOT_FOUND, HEFT_FAULT_NONE, "there is no metadata key \"%.*s\"", (int)key.len, key.data);
        cli_text_free(&key);
        return cli_fail(edit->path, &err);
    }
    for (size_t i = 0; i < set->n; i++) {
        const char *word = set->items[i];
        size_t len = cli_edit_split(word);
        heft_pair pair = {.key = word, .key_len = len, .value = word + len + 1, .value_len = strlen(word + len + 1)};
        edit_pair(edit, &pair);
    }
    return CLI_OK;
}

/* ---- tensors ----------------------------------------------------------------------------------------------------- */

static int edit_fail_withheld(const cli_edit *edit, uint32_t number) {
    cli_text name = {0};
    cli_text_escaped(&name, edit->files[number].file.path, strlen(edit->files[number].file.path));
    cli_complain("%.*s: the index leaves out %llu of its tensors, so that it cannot be written again as it is; "
                 "give --rebuild-index as well",
                 (int)name.len, name.data, (unsigned long long)edit->files[number].file.nwithheld);
    cli_text_free(&name);
    return CLI_REFUSED;
}

static int edit_drop(cli_edit *edit, const char *glob) {
    uint64_t matches = 0;
    heft_selection selection = {.struct_size = sizeof selection, .include = &glob, .ninclude = 1, .order = HEFT_ORDER_FILE};
    heft_error err;
    for (uint32_t f = 0; f < edit->nfiles; f++) {
        heft_buffer buffer;
        uint64_t n;
        cli_edit_file *file = &edit->files[f];
        if (heft_archive_select(file->archive, &selection, &buffer, &n, &err) != HEFT_OK) return cli_fail(edit->path, &err);
        const uint64_t *ids = buffer.data;
        for (uint64_t i = 0; i < n; i++) {
            matches++;
            if (file->dropped[ids[i]]) continue;
            file->dropped[ids[i]] = file->changed = file->renamed = true;
            cli_edit_change *change = cli_edit_add(edit, EDIT_DROP, f);
            heft_archive_get(file->archive, ids[i], &change->tensor, NULL);
        }
        heft_buffer_release(&buffer);
    }
    if (matches) return CLI_OK;
    cli_text text = {0};
    cli_text_escaped(&text, glob, strlen(glob));
    heft__fail(&err, HEFT_NOT_FOUND, HEFT_FAULT_NONE, "no tensor matches \"%.*s\"", (int)text.len, text.data);
    cli_text_free(&text);
    return cli_fail(edit->path, &err);
}

/* Names may hold '=': the first one counts before which there is a tensor. */
static int edit_rename(cli_edit *edit, const char *word) {
    heft_error err;
    for (const char *sign = strchr(word, '='); sign; sign = strchr(sign + 1, '=')) {
        for (uint32_t f = 0; f < edit->nfiles; f++) {
            uint64_t id;
            cli_edit_file *file = &edit->files[f];
            if (heft_archive_find(file->archive, word, (size_t)(sign - word), &id, NULL) != HEFT_OK) continue;
            if (file->dropped[id]) return cli_usage_error("edit", "--rename %s: that tensor is dropped", word);
            heft_tensor named;
            if (heft_archive_get(file->archive, id, &named, NULL) == HEFT_OK && file->items[id].name != named.name)
                return cli_usage_error("edit", "--rename %s: another --rename is of that tensor too", word);
            if (strlen(sign + 1) == (size_t)(sign - word) && memcmp(sign + 1, word, (size_t)(sign - word)) == 0) return CLI_OK;
            file->items[id].name = sign + 1;
            file->items[id].name_len = 0;
            file->changed = file->renamed = true;
            cli_edit_change *change = cli_edit_add(edit, EDIT_RENAME, f);
            change->name = sign + 1;
            heft_archive_get(file->archive, id, &change->tensor, NULL);
            return CLI_OK;
        }
    }
    cli_text text = {0};
    cli_text_escaped(&text, word, cli_edit_split(word));
    heft__fail(&err, HEFT_NOT_FOUND, HEFT_FAULT_NONE, "there is no tensor \"%.*s\"", (int)text.len, text.data);
    cli_text_free(&text);
    if (edit->nfiles == 1) heft_archive_find(edit->files[0].archive, word, cli_edit_split(word), &(uint64_t){0}, &err);
    return cli_fail(edit->path, &err);
}

/* ---- how files are written --------------------------------------------------------------------------------------- */

/* The order in the file stays. A file with fillers is aligned anew, to what its tensors are aligned to; one whose data starts at
 * a page keeps that, so that the file system can share the blocks of its tensors. */
static void edit_alignment(cli_edit_file *file) {
    uint64_t common = 65536;
    for (uint64_t id = 0; id < heft_archive_count(file->archive); id++) {
        heft_tensor tensor;
        if (heft_archive_get(file->archive, id, &tensor, NULL) != HEFT_OK || tensor.nbytes == 0) continue;
        while (tensor.offset % common) common /= 2;
    }
    heft_save_options *options = &file->options;
    if (file->file.header_nbytes % 4096 == 0) options->data_start_align = common > 4096 ? common : 4096;
    if (file->file.nfillers) options->align = common < 16 ? 16 : common;
    else options->keep_order = true;
}

static void edit_options_of(const cli_args *args, cli_edit_file *file) {
    static const struct {
        const char *key;
        uint32_t bit;
    } digests[] = {{"heft.xxh3", HEFT_DIGEST_TENSORS}, {"heft.data_xxh3", HEFT_DIGEST_DATA}};
    heft_save_options *options = &file->options;
    *options = (heft_save_options){.struct_size = sizeof *options, .overwrite = true, .match_source = true};
    options->metadata = file->has_metadata ? file->metadata : NULL;
    options->nmetadata = file->nmetadata;
    options->max_header_nbytes = cli_max_header(args);
    edit_alignment(file);
    for (size_t i = 0; file->renamed && i < sizeof digests / sizeof *digests; i++)
        if (edit_key(file, digests[i].key, strlen(digests[i].key)) < file->nmetadata) options->digests |= digests[i].bit;
}

/* The items that stay, and where they would lie. */
static int edit_lay_out(cli_edit *edit, uint32_t number) {
    cli_edit_file *file = &edit->files[number];
    heft_layout *layout;
    heft_error err;
    uint64_t n = 0;
    for (uint64_t i = 0; i < file->nitems; i++)
        if (!file->dropped[file->items[i].id]) file->items[n++] = file->items[i];
    file->nitems = n;
    if (edit->is_set && file->renamed && edit->index.len) {
        if (file->file.nwithheld) return edit_fail_withheld(edit, number);
        if (n == 0)
            return cli_edit_refuse(file->file.path, "no tensor would be left in it; write the set again without them",
                                   CLI_REFUSED);
        edit->writes_index = true;
    }
    if (edit->args->in_place) return cli_edit_measure_in_place(edit);
    edit_options_of(edit->args, file);
    heft_status status = heft_layout_make(file->items, n, &file->options, NULL, &layout, &err);
    if (status == HEFT_OK) {
        status = heft_layout_get_file(layout, 0, &file->after, &err);
        heft_layout_free(layout);
    }
    if (status == HEFT_OK) return CLI_OK;
    if (err.status == HEFT_INVALID_ARGUMENT) err.fault = HEFT_FAULT_CALL; /* of what was asked for, not of the file */
    if (!*err.file) heft__error_file(&err, file->file.path);
    return cli_fail(file->file.path, &err);
}

int cli_edit_apply(cli_edit *edit) {
    const cli_args *args = edit->args;
    int code = args->in_place ? cli_edit_check_in_place(edit) : CLI_OK;
    if (code == CLI_OK) code = edit_metadata(edit);
    for (size_t i = 0; i < args->dropped.n && code == CLI_OK; i++) code = edit_drop(edit, args->dropped.items[i]);
    for (size_t i = 0; i < args->rename.n && code == CLI_OK; i++) code = edit_rename(edit, args->rename.items[i]);
    for (uint32_t f = 0; f < edit->nfiles && code == CLI_OK; f++)
        if (edit->files[f].changed) code = edit_lay_out(edit, f);
    return code == CLI_OK ? cli_edit_warn_index(edit) : code;
}
