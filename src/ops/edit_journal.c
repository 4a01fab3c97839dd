/* ops: the journal beside a file that is edited in place: read, made, removed. */
#include "base/checked.h"
#include "base/error.h"
#include "base/text.h"
#include "ops/edit_header.h"

#include <string.h>

enum { EDIT_JOURNAL_MAX = 1 << 30 };

void heft__edit_file_close(heft__edit_file *file) {
    heft__free(&file->alloc, file->bytes, file->nbytes);
    file->bytes = NULL;
    heft__target_abort(&file->target);
}

/* Judges what has been read by the header that the file has now. */
static heft_status journal_judge_file(heft__edit_file *file, heft_error *err) {
    const heft__target_status *st = &file->status;
    file->found = HEFT__EDIT_DAMAGED;
    if (!heft__journal_parse(file->bytes, file->nbytes, &file->journal, &file->why)) return HEFT_OK;
    file->found = HEFT__EDIT_FOREIGN;
    uint64_t n = file->journal.header_nbytes;
    if (file->journal.file_nbytes != st->nbytes) return HEFT_OK;
    uint8_t *header = heft__alloc(&file->alloc, n);
    if (!header) return heft__fail_memory(err, n);
    heft_status status = heft__target_read(&file->target, 0, header, n, err);
    if (status == HEFT_OK) {
        static const heft__edit_found fits[] = {[HEFT__JOURNAL_FOREIGN] = HEFT__EDIT_FOREIGN,
                                                [HEFT__JOURNAL_UNDONE] = HEFT__EDIT_UNDONE,
                                                [HEFT__JOURNAL_FITS] = HEFT__EDIT_FITS};
        file->found = fits[heft__journal_judge(&file->journal, st->nbytes, st->inode, st->mtime_ns, header,
                                               heft__journal_is_written(&file->journal))];
    }
    heft__free(&file->alloc, header, n);
    return status;
}

heft_status heft__edit_file_open(heft__edit_file *file, const char *path, bool no_sync, const heft_allocator *alloc,
                                 heft_error *err) {
    heft__target_options options = {.nbytes = HEFT_NONE, .overwrite = true, .no_sync = no_sync};
    void *data;
    bool there = false;
    memset(file, 0, sizeof *file);
    file->alloc = *alloc;
    heft_status status = heft__target_open_there(&file->target, path, &options, &file->status, err);
    if (status != HEFT_OK) return status;
    heft__target_journal_name(file->name, file->target.name);
    status = heft__target_folder_read(&file->target.folder, file->name, EDIT_JOURNAL_MAX, alloc, &data, &file->nbytes, &there, err);
    if (status == HEFT_OK && there) {
        file->bytes = data;
        status = journal_judge_file(file, err);
    }
    if (status != HEFT_OK) heft__edit_file_close(file);
    return status;
}

heft_status heft__edit_journal_make(const heft__edit_file *file, const heft__journal *journal, uint64_t *inode,
                                    heft_error *err) {
    heft__target target;
    heft__target_status st;
    uint64_t nbytes = heft__journal_nbytes(journal->header_nbytes);
    heft__target_options options = {.nbytes = nbytes, .no_sync = file->target.no_sync};
    if (nbytes > EDIT_JOURNAL_MAX) /* what could not be read back */
        return heft__fail(err, HEFT_LIMIT, HEFT_FAULT_HEADER_LIMIT, "a header of %llu bytes is too long to be edited in place",
                          (unsigned long long)journal->header_nbytes);
    uint8_t *bytes = heft__alloc(&file->alloc, nbytes);
    if (!bytes) return heft__fail_memory(err, nbytes);
    heft__journal_write(journal, bytes);
    heft_status status = heft__target_open_in(&target, &file->target.folder, file->name, &options, err);
    if (status == HEFT_OK) {
        target.mode = file->status.mode & 0777; /* whoever may read the file may read its header */
        target.uid = file->status.uid;
        target.gid = file->status.gid;
        target.keep_owner = true;
        status = heft__target_write(&target, 0, bytes, nbytes, err);
        if (status == HEFT_OK) status = heft__target_stat(&target, &st, err);
        if (status != HEFT_OK) heft__target_abort(&target);
        else {
            *inode = st.inode;
            status = heft__target_publish(&target, err);
            if (status != HEFT_OK && status != HEFT_EXISTS) /* it has its name, and may have it tomorrow or not */
                (void)heft__target_folder_unlink_of(&file->target.folder, file->name, st.inode, NULL);
        }
    }
    heft__free(&file->alloc, bytes, nbytes);
    return status;
}

heft_status heft__edit_journal_remove(const heft__edit_file *file, uint64_t inode, heft_error *err) {
    heft_status status = heft__target_folder_unlink_of(&file->target.folder, file->name, inode, err);
    return status == HEFT_OK && !file->target.no_sync ? heft__target_folder_sync(&file->target.folder, err) : status;
}

/* ---- cleaning ---- */

/* A failure that is no verdict: there was no memory to look. */
static heft_status journal_pass_on(heft_status status, const heft_error *local, heft_error *err) {
    if (status != HEFT_OUT_OF_MEMORY) return HEFT_OK;
    if (err) *err = *local;
    return status;
}

/* Whether a file opens by its own header. */
static heft_status journal_file_is_whole(heft_source *source, const heft_allocator *alloc, bool *whole, heft_error *err) {
    heft__scan_options options = {.max_header_nbytes = HEFT__MAX_HEADER_NBYTES, .list_unknown_dtypes = true};
    heft__listing listing;
    heft_error local;
    heft__listing_init(&listing, alloc);
    heft_status status = heft__scan(source, &options, &listing, &local);
    heft__listing_free(&listing);
    *whole = status == HEFT_OK;
    return journal_pass_on(status, &local, err);
}

static heft_status journal_is_foreign(const heft__journal *journal, heft_source *source, const heft_allocator *alloc,
                                      bool *foreign, heft_error *err) {
    const heft__identity *id = &source->identity;
    *foreign = false;
    if (heft__journal_is_written(journal)) return HEFT_OK;
    *foreign = journal->file_nbytes != id->size;
    if (*foreign) return HEFT_OK;
    uint8_t *header = heft__alloc(alloc, journal->header_nbytes);
    if (!header) return heft__fail_memory(err, journal->header_nbytes);
    *foreign = heft_source_read(source, 0, journal->header_nbytes, header, NULL) == HEFT_OK &&
               heft__journal_judge(journal, id->size, id->inode, id->mtime_ns, header, false) == HEFT__JOURNAL_FOREIGN;
    heft__free(alloc, header, journal->header_nbytes);
    return HEFT_OK;
}

heft_status heft__edit_journal_useless(const heft__target_folder *folder, heft__directory *directory, const char *name,
                                       const heft_allocator *alloc, bool *useless, heft_error *err) {
    char base[HEFT__TARGET_NAME_MAX + 1], again[HEFT__TARGET_NAME_MAX + 1];
    heft__journal journal;
    heft_source *source = NULL;
    heft_error local;
    const char *why;
    void *data;
    uint64_t nbytes;
    bool there;
    *useless = false;
    heft_status status = heft__target_folder_read(folder, name, EDIT_JOURNAL_MAX, alloc, &data, &nbytes, &there, &local);
    if (status != HEFT_OK) return journal_pass_on(status, &local, err);
    bool whole = there && heft__journal_parse(data, nbytes, &journal, &why);
    heft__journal_base(name, base);
    if (whole) memcpy(base, journal.name, sizeof base);
    heft__target_journal_name(again, base); /* of a name that was cut only a whole journal tells it all */
    if (there && strcmp(again, name) == 0 && !heft__path_component_fault(base, strlen(base))) {
        status = heft__directory_source(directory, base, false, 0, &source, &local);
        if (status != HEFT_OK) status = journal_pass_on(status, &local, err);
        else status = journal_file_is_whole(source, alloc, useless, err);
        if (status == HEFT_OK && *useless && whole) status = journal_is_foreign(&journal, source, alloc, useless, err);
    }
    heft_source_unref(source);
    heft__free(alloc, data, nbytes);
    return status;
}
