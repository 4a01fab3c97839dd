/* ops: sets of files put in place, all or none: the redo log, and what ends an interrupted change. */
#ifndef HEFT_OPS_SAVE_SET_H
#define HEFT_OPS_SAVE_SET_H

#include "ops/save.h"

#define HEFT__SET_MARKER ".heft-save-in-progress"

typedef struct heft__set_rename {
    const char *temp, *name;
    uint64_t nbytes; /* of the file, so that one that has been renamed can be told from an old one */
    bool beside;     /* it is the sidecar of the one before, whose name it takes when that has one */
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
    bool old_index; /* an index of the old set goes first: that of the same name, or, if there is no new one, deletes[0] */
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
/* Reads the text of a marker, which anybody may have written. False: *why says why not, NULL: no memory. */
bool heft__set_marker_parse(const char *data, size_t nbytes, heft__set_change *change, char writer[256], const char **why);
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
/* Makes a folder that lasts; one that is there is fine. */
heft_status heft__set_make_folder(const char *path, bool no_sync, heft_error *err);

/* ---- one set from begin to end (save_set.c) ---- */

typedef struct heft__set_job {
    heft_save_options options; /* checked, as are those of the set */
    heft_set_options set;
    heft_allocator alloc;
    const char *path;
    heft__target_folder folder; /* that files are made in */
    heft__set_staging staging;  /* of `publish` */
    heft__set_change change;    /* files staged so far */
    char index_name[300];
    heft_save_stats stats;
    uint64_t done_nbytes, total_nbytes; /* for progress */
} heft__set_job;

/* Checks options, opens the folder, ends what was begun there. Frees nothing that the caller has not given: _end or _abort
 * must follow, but after a failure nothing. `path` must stay. */
heft_status heft__set_job_begin(heft__set_job *job, const char *path, const heft_save_options *options,
                                const heft_set_options *set, heft_error *err);
/* Whether files of a set with this stem are there: EXISTS unless they may be replaced. `layout` (NULL: not known yet) says which
 * names stay; the others are noted for removal. */
heft_status heft__set_job_look(heft__set_job *job, const heft_layout *layout, bool *any, heft_error *err);
/* Writes items as one file under a temporary name. `name` may be NULL: it comes at the end. */
heft_status heft__set_job_stage(heft__set_job *job, const char *name, const heft_save_item *items, uint64_t nitems,
                                heft_error *err);
/* Opens one file under a temporary name. `name` as above. */
heft_status heft__set_job_open(const heft__set_job *job, const char *name, uint64_t nbytes, uint64_t shared_nbytes,
                               heft__target *target, heft_error *err);
/* Takes over a target whose bytes are complete (status HEFT_OK; else it is dropped). */
heft_status heft__set_job_keep(heft__set_job *job, heft__target *target, uint64_t nbytes, heft_status status,
                               heft_error *err);
/* Names the staged files as the layout does, writes the index, and puts all in place. Ends the job in any case. */
heft_status heft__set_job_end(heft__set_job *job, const heft_layout *layout, heft_error *err);
void heft__set_job_abort(heft__set_job *job); /* removes what has been staged */

heft_status heft__save_set(const char *path, const heft_save_item *items, uint64_t nitems,
                           const heft_save_options *options, const heft_set_options *set_options,
                           heft_save_stats *stats, heft_error *err);

heft_status heft__set_replace(const char *path, const heft_set_file *files, uint64_t nfiles, const char *index,
                              const heft_save_options *options, const heft_set_options *set_options,
                              heft_save_stats *stats, heft_error *err);

#endif
