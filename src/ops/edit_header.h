/* ops: headers changed where they stand, under a journal that is there before the first byte and gone after the last. */
#ifndef HEFT_OPS_EDIT_HEADER_H
#define HEFT_OPS_EDIT_HEADER_H

#include "base/os_target.h"
#include "ops/journal.h"
#include "write/write.h"

/* INVALID_ARGUMENT. */
heft_status heft__edit_options_copy(const heft_edit_options *given, heft_edit_options *out, heft_allocator *alloc,
                                    heft_error *err);
heft_status heft__edit_in_place(const heft_archive *archive, const heft_new_name *names, uint64_t nnames,
                                const heft_edit_options *options, heft_edit_stats *stats, heft_error *err);
/* Ends an interrupted edit of the file: `undo` puts the old header back, else the new one is written. */
heft_status heft__edit_end(const char *path, bool undo, const heft_allocator *alloc, bool *done, heft_error *err);

/* Whether the journal of this name in a folder is of no use to anybody, so that it may be removed: the file that it is named for
 * opens without it, and it is damaged or does not belong to it. `directory` is the same folder. OUT_OF_MEMORY; what cannot be
 * looked at for another reason is of use. */
heft_status heft__edit_journal_useless(const heft__target_folder *folder, heft__directory *directory, const char *name,
                                       const heft_allocator *alloc, bool *useless, heft_error *err);

/* ---- the journal of an open target (edit_journal.c) ---- */

typedef enum heft__edit_found {
    HEFT__EDIT_NONE,
    HEFT__EDIT_DAMAGED,
    HEFT__EDIT_FOREIGN,
    HEFT__EDIT_UNDONE,
    HEFT__EDIT_FITS
} heft__edit_found;

typedef struct heft__edit_file {
    heft_allocator alloc;
    heft__target target;        /* open for reading and writing */
    heft__target_status status; /* as it was opened */
    char name[HEFT__TARGET_NAME_MAX + 1]; /* of the journal */
    heft__edit_found found;
    const char *why;            /* DAMAGED: static */
    heft__journal journal;      /* in `bytes`, if `found` is more than DAMAGED */
    uint8_t *bytes;
    uint64_t nbytes;
} heft__edit_file;

/* Opens the file and reads the journal beside it. After a failure nothing is open. */
heft_status heft__edit_file_open(heft__edit_file *file, const char *path, bool no_sync, const heft_allocator *alloc,
                                 heft_error *err);
void heft__edit_file_close(heft__edit_file *file);
/* Makes the journal: EXISTS if there is one. *inode is how it is known later. */
heft_status heft__edit_journal_make(const heft__edit_file *file, const heft__journal *journal, uint64_t *inode,
                                    heft_error *err);
/* Removes it, on the disk too. */
heft_status heft__edit_journal_remove(const heft__edit_file *file, uint64_t inode, heft_error *err);

#endif
