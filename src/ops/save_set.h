/* ops: sets of files put in place, all or none: the redo log, and what ends an interrupted change. */
#ifndef HEFT_OPS_SAVE_SET_H
#define HEFT_OPS_SAVE_SET_H

#include "ops/save.h"

#define HEFT__SET_MARKER ".heft-save-in-progress"

typedef struct heft__set_rename {
    const char *temp, *name;
    uint64_t nbytes; /* of the file, so that one that has been renamed can be told from an old one */
} heft__set_rename;

/* What a folder is to become. Texts lie in the arena. */
typedef struct heft__set_change {
    heft_allocator alloc;
    heft__arena arena;
    heft__set_rename *renames; /* the index, if there is one, last */
    uint64_t nrenames, renames_capacity;
    const char **deletes;
    uint64_t ndeletes, deletes_capacity;
    bool has_index; /* the last rename is the index */
    bool old_index; /* an index of the old set goes first */
    bool no_sync;
} heft__set_change;

void heft__set_change_init(heft__set_change *change, const heft_allocator *alloc);
void heft__set_change_free(heft__set_change *change);
bool heft__set_change_add(heft__set_change *change, const char *temp, const char *name, uint64_t nbytes); /* false: no memory */
bool heft__set_change_delete(heft__set_change *change, const char *name);

/* Carries a change out. `replaces`: files of an old set are there, so that a marker is needed unless one rename is all. Staged
 * files are gone after a failure, unless the marker lists them. */
heft_status heft__set_apply(heft__set_change *change, const heft__target_folder *folder, bool replaces, heft_error *err);
/* Removes what has been staged. */
void heft__set_drop(const heft__set_change *change, const heft__target_folder *folder);

/* Ends what a marker in the folder says. `polite`: EXISTS if its writer lives. *resumed may be NULL. (save_resume.c) */
heft_status heft__set_resume(const heft__target_folder *folder, const heft_allocator *alloc, bool polite, bool *resumed,
                             heft_error *err);
/* Reads the marker; *found false: there is none. */
heft_status heft__set_marker_read(const heft__target_folder *folder, heft__set_change *change, char writer[256], bool *found,
                                  heft_error *err);
heft_status heft__set_clean(const char *path, const heft_allocator *alloc, bool all, uint64_t *nremoved, heft_error *err);
/* The steps from the marker on, which may be repeated. */
heft_status heft__set_redo(const heft__set_change *change, const heft__target_folder *folder, heft_error *err);

/* A folder in progress beside the one that it will be. */
typedef struct heft__set_staging {
    heft__target_folder parent, folder;
    char name[HEFT__TARGET_NAME_MAX + 1], temp[HEFT__TARGET_NAME_MAX + 1];
} heft__set_staging;
heft_status heft__set_staging_open(heft__set_staging *staging, const char *path, heft_error *err);
/* Renames it, or removes it if `status` is a failure, which is then returned. */
heft_status heft__set_staging_close(heft__set_staging *staging, heft_status status, bool no_sync, heft_error *err);
/* Makes a folder; one that is there is fine. */
heft_status heft__set_make_folder(const char *path, heft_error *err);

heft_status heft__save_set(const char *path, const heft_save_item *items, uint64_t nitems,
                           const heft_save_options *options, const heft_set_options *set_options,
                           heft_save_stats *stats, heft_error *err);

#endif
