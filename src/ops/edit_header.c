/* ops: headers changed where they stand: what is to be written, checked as opening checks it, then written under a journal; and the
 * end of an edit that was interrupted. */
#include "base/error.h"
#include "base/options.h"
#include "base/text.h"
#include "ops/digest_verify.h"
#include "ops/edit_header.h"

#include <stdio.h>
#include <string.h>

typedef struct header_edit {
    heft_allocator alloc;
    const heft_archive *archive;
    heft__listing *listing; /* of the one file */
    const char *path;
    heft_edit_options options;
    heft__layout layout;
    heft__json_out digests; /* text of metadata that names tensors, under their new names */
    bool has_layout, has_digests;
    heft__edit_file file;
    uint8_t *bytes; /* the old header, the new one */
    uint64_t nbytes; /* of each */
} header_edit;

static const char header_busy[] = "another process is editing it in place";

static heft_status header_fail(const char *path, heft_error *err, heft_status status, heft_fault fault, const char *why) {
    char name[300];
    heft__escape(name, sizeof name, path, strlen(path));
    heft__fail(err, status, fault, "%s: %s", name, why);
    heft__error_file(err, path);
    return status;
}

/* ---- the new header ---- */

static heft_status header_check(header_edit *edit, const heft_new_name *names, uint64_t nnames, heft_error *err) {
    const heft_archive *archive = edit->archive;
    if (archive->nfiles != 1)
        return heft__fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL, "an archive of one file is edited in place, not of %u",
                          archive->nfiles);
    edit->listing = archive->files[0];
    edit->path = heft_source_label(edit->listing->source);
    if (strcmp(edit->listing->format, "safetensors") != 0)
        return header_fail(edit->path, err, HEFT_UNSUPPORTED, HEFT_FAULT_NONE, "only safetensors files are edited in place");
    if (!edit->listing->source->name)
        return header_fail(edit->path, err, HEFT_UNSUPPORTED, HEFT_FAULT_NONE, "it was not opened by its path");
    for (uint64_t i = 0; i < nnames; i++) {
        if (!names[i].name) return heft__fail_null(err, "name");
        if (names[i].id >= archive->ntensors || names[i].reserved[0] || names[i].reserved[1])
            return heft__fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL,
                              "new name %llu: its id is none of the %llu of the archive, or a reserved field is not 0",
                              (unsigned long long)i, (unsigned long long)archive->ntensors);
    }
    return HEFT_OK;
}

/* Tensors under their new names and the metadata, checked as those of a save are. */
static heft_status header_lay_out(header_edit *edit, const heft_new_name *names, uint64_t nnames, heft_error *err) {
    const heft_archive *archive = edit->archive;
    const heft__listing *l = edit->listing;
    heft_save_options options = {.struct_size = sizeof options, .keep_order = true, .max_header_nbytes = UINT64_MAX,
                                 .metadata = edit->options.metadata, .nmetadata = edit->options.nmetadata};
    if (!options.metadata && l->has_metadata) { /* it stays, also if it is empty */
        static const heft_pair none;
        options.metadata = l->nmetadata ? l->metadata : &none;
        options.nmetadata = l->nmetadata;
    } else if (!options.nmetadata) options.metadata = NULL;
    uint64_t n = archive->ntensors;
    heft_save_item *items = heft__alloc_zero(&edit->alloc, n * sizeof *items);
    if (!items) return heft__fail_memory(err, n * sizeof *items);
    for (uint64_t id = 0; id < n; id++) {
        uint32_t file;
        const heft__entry *entry = heft__archive_entry(archive, id, &file);
        items[id] = (heft_save_item){.name = entry->name, .name_len = entry->name_len, .archive = archive, .id = id};
        if (entry->name_len == 0) items[id].name = ""; /* the length 0 means strlen */
    }
    for (uint64_t i = 0; i < nnames; i++) {
        items[names[i].id].name = names[i].name;
        items[names[i].id].name_len = names[i].name_len;
    }
    heft_status status = heft__layout_make(&edit->layout, items, n, &options, &edit->alloc, err);
    edit->has_layout = status == HEFT_OK;
    heft__free(&edit->alloc, items, n * sizeof *items);
    return status;
}

static heft_pair *header_digests_pair(const header_edit *edit) {
    static const char key[] = "heft.xxh3";
    heft_pair old;
    if (heft_archive_metadata_find(edit->archive, 0, key, sizeof key - 1, &old, NULL) != HEFT_OK) return NULL;
    for (uint64_t i = 0; i < edit->layout.nmetadata; i++) {
        heft_pair *pair = &edit->layout.metadata[i];
        if (pair->key_len == sizeof key - 1 && memcmp(pair->key, key, pair->key_len) == 0)
            return pair->value_len == old.value_len && memcmp(pair->value, old.value, old.value_len) == 0 ? pair : NULL;
    }
    return NULL;
}

/* Digests by the names of tensors, which stay true, get the new names. */
static heft_status header_rename_digests(header_edit *edit, heft_error *err) {
    heft_pair *pair = header_digests_pair(edit);
    uint64_t n = edit->archive->ntensors;
    if (!pair) return HEFT_OK;
    heft__known known;
    heft_status status = heft__known_make(&known, edit->archive, NULL, &edit->alloc, err);
    if (status == HEFT_OK) {
        for (uint64_t i = 0; i < n; i++)
            if (known.by[i] != HEFT_VERIFIED_BY_METADATA) edit->layout.emit.entries[i].item = UINT32_MAX;
        heft__json_out_init(&edit->digests, &edit->alloc, 0, false);
        edit->has_digests = true;
        if (!heft__digests_object(&edit->layout.emit, (const uint8_t(*)[16])known.digests, &edit->digests) || edit->digests.failed)
            status = heft__fail_memory(err, HEFT_NONE);
        pair->value = edit->digests.text;
        pair->value_len = (size_t)edit->digests.len;
    }
    heft__known_free(&known);
    return status;
}

/* The entries as the file has them, fillers and hidden ones too, each where it lies. */
static heft_status header_entries(header_edit *edit, heft_error *err) {
    const heft__listing *l = edit->listing;
    heft__emit *emit = &edit->layout.emit;
    heft__emit_entry *entries = heft__alloc(&edit->alloc, l->nentries * sizeof *entries);
    if (!entries) return heft__fail_memory(err, l->nentries * sizeof *entries);
    uint64_t at = 0;
    for (uint64_t i = 0; i < l->nentries; i++) {
        const heft__entry *e = &l->entries[i];
        bool hidden = e->flags & HEFT__ENTRY_HIDDEN;
        entries[i] = (heft__emit_entry){.name = hidden ? e->name : emit->entries[at].name,
                                        .name_len = hidden ? e->name_len : emit->entries[at].name_len,
                                        .shape = e->shape, .rank = e->rank, .dtype = e->dtype,
                                        .spelling = e->dtype ? NULL : heft__listing_spelling(l, e),
                                        .offset = e->begin, .nbytes = e->end - e->begin};
        at += !hidden;
    }
    heft__free(&edit->alloc, emit->entries, emit->capacity * sizeof *entries);
    emit->entries = entries;
    emit->nentries = emit->capacity = l->nentries;
    return HEFT_OK;
}

/* What is to be written is read as any file: nothing is written that would not open. */
static heft_status header_try(const header_edit *edit, heft_error *err) {
    heft__scan_options options = {.max_header_nbytes = UINT64_MAX, .header = edit->bytes + edit->nbytes,
                                  .header_nbytes = edit->nbytes,
                                  .list_unknown_dtypes = edit->listing->nspellings > 0}; /* they are as they were */
    heft__listing listing;
    heft__listing_init(&listing, &edit->alloc);
    heft_status status = heft__scan(edit->listing->source, &options, &listing, err);
    heft__listing_free(&listing);
    return status;
}

static heft_status header_make(header_edit *edit, const heft_new_name *names, uint64_t nnames, heft_edit_stats *stats,
                               heft_error *err) {
    heft_status status = header_lay_out(edit, names, nnames, err);
    if (status == HEFT_OK && nnames) status = header_rename_digests(edit, err);
    if (status == HEFT_OK) status = header_entries(edit, err);
    if (status != HEFT_OK) return status;
    edit->nbytes = edit->listing->data_start;
    edit->bytes = heft__alloc(&edit->alloc, 2 * edit->nbytes);
    if (!edit->bytes) return heft__fail_memory(err, 2 * edit->nbytes);
    heft_error fit;
    stats->header_nbytes = edit->nbytes;
    status = heft__safetensors_fit(&edit->layout.emit, edit->nbytes, edit->bytes + edit->nbytes, &stats->needed_nbytes, &fit);
    if (status == HEFT_OK) return header_try(edit, err);
    if (status == HEFT_LIMIT) {
        char name[300];
        heft__escape(name, sizeof name, edit->path, strlen(edit->path));
        heft__fail(err, HEFT_LIMIT, HEFT_FAULT_HEADER_LIMIT,
                   "%s: the new header needs %llu bytes, and %llu are available before the data; the file has to be written again",
                   name, (unsigned long long)stats->needed_nbytes, (unsigned long long)edit->nbytes);
        heft__error_file(err, edit->path);
        heft__error_at(err, HEFT_NONE, edit->nbytes, stats->needed_nbytes);
    } else if (err) *err = fit;
    return status;
}

/* ---- writing it ---- */

/* The file must be the one that the archive was opened of, and nobody else's business. */
static heft_status header_verify(header_edit *edit, heft_error *err) {
    const heft__identity *then = &edit->listing->source->identity;
    const heft__target_status *now = &edit->file.status;
    switch (edit->file.found) {
    case HEFT__EDIT_UNDONE:
    case HEFT__EDIT_FITS:
        if (heft__target_temp_alive(edit->file.journal.writer))
            return header_fail(edit->path, err, HEFT_EXISTS, HEFT_FAULT_EDIT_INTERRUPTED, header_busy);
        return header_fail(edit->path, err, HEFT_MISMATCH, HEFT_FAULT_EDIT_INTERRUPTED,
                           "an edit in place was interrupted there; end it or take it back first");
    case HEFT__EDIT_NONE:
    case HEFT__EDIT_DAMAGED:
    case HEFT__EDIT_FOREIGN: break;
    }
    heft_status status = heft__source_verify(edit->listing->source, err);
    if (status != HEFT_OK) return status;
    if (now->nbytes != then->size || now->inode != then->inode || now->mtime_ns != then->mtime_ns)
        return header_fail(edit->path, err, HEFT_MISMATCH, HEFT_FAULT_FILE_CHANGED,
                           "the file changed since it was opened; open it again");
    if (now->nlinks > 1)
        return header_fail(edit->path, err, HEFT_UNSUPPORTED, HEFT_FAULT_NONE,
                           "it has several names (hard links), and whoever opens it by another one would not find the journal; "
                           "the file has to be written again");
    return HEFT_OK;
}

/* A failed edit is taken back; if that fails too, the journal stays, and with it both headers. */
static heft_status header_roll_back(header_edit *edit, uint64_t inode, heft_error *failure, heft_error *err) {
    heft_status status = heft__target_write(&edit->file.target, 0, edit->bytes, edit->nbytes, NULL);
    if (status == HEFT_OK) status = heft__target_flush(&edit->file.target, NULL);
    if (status == HEFT_OK) status = heft__edit_journal_remove(&edit->file, inode, NULL);
    if (err) *err = *failure;
    if (err && status != HEFT_OK) {
        char text[sizeof err->message];
        heft__copy_text(text, sizeof text, failure->message, strlen(failure->message));
        snprintf(err->message, sizeof err->message, "%.600s; the journal stays: end the edit or take it back", text);
    }
    return failure->status;
}

static heft_status header_write(header_edit *edit, heft_error *err) {
    heft__edit_file *file = &edit->file;
    heft__journal journal = {.header_nbytes = edit->nbytes,
                             .file_nbytes = file->status.nbytes,
                             .inode = file->status.inode,
                             .mtime_ns = file->status.mtime_ns,
                             .before = edit->bytes,
                             .after = edit->bytes + edit->nbytes};
    heft_error failure;
    uint64_t inode = 0;
    heft_status status = HEFT_OK;
    heft__target_temp_name(journal.writer, file->target.name);
    memcpy(journal.name, file->target.name, sizeof file->target.name);
    if (file->found != HEFT__EDIT_NONE) /* it is of no use: this file opened without it */
        status = heft__target_folder_unlink(&file->target.folder, file->name, err);
    if (status == HEFT_OK) status = heft__edit_journal_make(file, &journal, &inode, err);
    if (status == HEFT_EXISTS) /* not of a rename: of another edit that began at the same time */
        return header_fail(edit->path, err, HEFT_EXISTS, HEFT_FAULT_EDIT_INTERRUPTED, header_busy);
    if (status != HEFT_OK) return status;
    status = heft__target_write(&file->target, 0, journal.after, edit->nbytes, &failure);
    if (status == HEFT_OK) status = heft__target_flush(&file->target, &failure);
    if (status != HEFT_OK) return header_roll_back(edit, inode, &failure, err);
    return heft__edit_journal_remove(file, inode, err);
}

static heft_status header_run(header_edit *edit, const heft_new_name *names, uint64_t nnames, heft_edit_stats *stats,
                              heft_error *err) {
    heft_status status = heft__edit_file_open(&edit->file, edit->path, edit->options.no_sync, &edit->alloc, err);
    if (status != HEFT_OK) return status;
    status = header_verify(edit, err);
    if (status == HEFT_OK) status = header_make(edit, names, nnames, stats, err);
    if (status == HEFT_OK) status = heft__target_read(&edit->file.target, 0, edit->bytes, edit->nbytes, err);
    for (uint64_t i = 0; status == HEFT_OK && i < edit->nbytes; i++)
        stats->changed_nbytes += edit->bytes[i] != edit->bytes[edit->nbytes + i];
    if (status == HEFT_OK && stats->changed_nbytes && !edit->options.dry_run) status = header_write(edit, err);
    heft__edit_file_close(&edit->file);
    return status;
}

heft_status heft__edit_options_copy(const heft_edit_options *given, heft_edit_options *out, heft_allocator *alloc,
                                    heft_error *err) {
    heft_status status = heft__options_copy(out, sizeof *out, given, "heft_edit_options", err);
    if (status != HEFT_OK) return status;
    if (!heft__allocator_from(out->allocator, alloc))
        return heft__fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL, "heft_edit_options: the allocator lacks a function");
    if (!out->metadata && out->nmetadata)
        return heft__fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL, "heft_edit_options: metadata is NULL");
    return HEFT_OK;
}

heft_status heft__edit_in_place(const heft_archive *archive, const heft_new_name *names, uint64_t nnames,
                                const heft_edit_options *options, heft_edit_stats *stats, heft_error *err) {
    header_edit edit = {.archive = archive};
    heft_status status = heft__edit_options_copy(options, &edit.options, &edit.alloc, err);
    if (status != HEFT_OK) return status;
    status = header_check(&edit, names, nnames, err);
    if (status == HEFT_OK) status = header_run(&edit, names, nnames, stats, err);
    if (edit.has_layout) heft__layout_free(&edit.layout);
    if (edit.has_digests) heft__json_out_free(&edit.digests);
    heft__free(&edit.alloc, edit.bytes, 2 * edit.nbytes);
    return status;
}

/* ---- ending an edit that was interrupted ---- */

static heft_status header_fail_useless(const char *path, const heft__edit_file *file, heft_error *err) {
    char name[300];
    heft__escape(name, sizeof name, path, strlen(path));
    if (file->found == HEFT__EDIT_DAMAGED)
        heft__fail(err, HEFT_CORRUPT, HEFT_FAULT_JOURNAL_IGNORED, "%s: the journal of an edit in place is damaged: %s", name,
                   file->why);
    else
        heft__fail(err, HEFT_MISMATCH, HEFT_FAULT_JOURNAL_IGNORED,
                   "%s: the journal beside it belongs to another file, or to what this one was before", name);
    heft__error_file(err, path);
    return file->found == HEFT__EDIT_DAMAGED ? HEFT_CORRUPT : HEFT_MISMATCH;
}

/* Opening ignores a new header that does not fit the file: then it is not written either. */
static heft_status header_try_journal(const char *path, const heft__journal *journal, const heft_allocator *alloc,
                                      heft_error *err) {
    heft__scan_options options = {.max_header_nbytes = UINT64_MAX, .header = journal->after,
                                  .header_nbytes = journal->header_nbytes, .list_unknown_dtypes = true};
    heft__listing listing;
    heft_source *source;
    heft_error local;
    heft_status status = heft_source_open_file(path, &source, err);
    if (status != HEFT_OK) return status;
    heft__listing_init(&listing, alloc);
    status = heft__scan(source, &options, &listing, &local);
    heft__listing_free(&listing);
    heft_source_unref(source);
    if (status == HEFT_OUT_OF_MEMORY || status == HEFT_IO) {
        if (err) *err = local;
        return status;
    }
    return status == HEFT_OK ? status
                             : header_fail(path, err, HEFT_MISMATCH, HEFT_FAULT_EDIT_INTERRUPTED,
                                           "the new header in the journal does not fit the file; the edit can be taken back");
}

heft_status heft__edit_end(const char *path, bool undo, const heft_allocator *alloc, bool *done, heft_error *err) {
    heft__edit_file file;
    heft_status status = heft__edit_file_open(&file, path, false, alloc, err);
    if (status != HEFT_OK) return status;
    bool there = file.found != HEFT__EDIT_NONE;
    if (there && file.found <= HEFT__EDIT_FOREIGN) status = header_fail_useless(path, &file, err);
    else if (there && heft__target_temp_alive(file.journal.writer))
        status = header_fail(path, err, HEFT_EXISTS, HEFT_FAULT_EDIT_INTERRUPTED, header_busy);
    if (status == HEFT_OK && there && !undo) status = header_try_journal(path, &file.journal, alloc, err);
    if (status == HEFT_OK && there) {
        const heft__journal *j = &file.journal;
        status = heft__target_write(&file.target, 0, undo ? j->before : j->after, j->header_nbytes, err);
        if (status == HEFT_OK) status = heft__target_flush(&file.target, err);
        if (status == HEFT_OK) status = heft__target_folder_unlink(&file.target.folder, file.name, err);
        if (status == HEFT_OK) status = heft__target_folder_sync(&file.target.folder, err);
    }
    *done = status == HEFT_OK && there;
    heft__edit_file_close(&file);
    return status;
}
