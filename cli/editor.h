/* cli: an edit of a checkpoint as it is worked out before anything is written. */
#ifndef HEFT_CLI_EDITOR_H
#define HEFT_CLI_EDITOR_H

#include "loader.h"

typedef enum cli_edit_kind {
    EDIT_SET,
    EDIT_DELETE,
    EDIT_RENAME,
    EDIT_DROP,
    EDIT_TRIM,
    EDIT_MEND,
    EDIT_KINDS
} cli_edit_kind;

/* One change. Texts belong to the arguments and to the archives. */
typedef struct cli_edit_change {
    cli_edit_kind kind;
    uint32_t file, nfiles;    /* the first file concerned, and how many */
    heft_pair pair;           /* SET: key and new value; DELETE: the key */
    heft_pair old;            /* SET, DELETE: as it was; key NULL: it was not there */
    bool differs;             /* in other files it was something else */
    heft_tensor tensor;       /* RENAME, DROP: as it was */
    const char *name;         /* RENAME: the new one */
    heft_error fault;         /* TRIM, MEND: what is mended */
} cli_edit_change;

typedef struct cli_edit_file {
    heft_archive *archive;    /* of this file alone, so that all of it is kept */
    heft_file file;
    heft_save_item *items;
    uint64_t nitems;
    heft_pair *metadata;
    uint64_t nmetadata;
    bool has_metadata, changed, renamed; /* renamed: other names, or fewer */
    bool *dropped;            /* by id */
    heft_save_options options;
    heft_layout_file after;
    heft_edit_stats in_place; /* under --in-place */
} cli_edit_file;

typedef struct cli_edit {
    const cli_args *args;
    const char *path;
    cli_text folder, index;   /* of a set: NUL-terminated; the index is empty if there is none to write */
    bool is_set, writes_index;
    cli_edit_file *files;
    uint32_t nfiles;
    cli_edit_change *changes;
    size_t nchanges, changes_capacity;
} cli_edit;

/* Opens what is edited; works all changes out: CLI_OK, or the exit code of what was said. Freeing is the caller's in any
 * case. (edit_open.c, edit_changes.c) */
int cli_edit_open(cli_edit *edit);
int cli_edit_apply(cli_edit *edit);
void cli_edit_free(cli_edit *edit);
/* Of one file whose tensors get other names, or fewer: whether the index of its folder names it and will be wrong (edit_open.c). */
int cli_edit_warn_index(const cli_edit *edit);
cli_edit_change *cli_edit_add(cli_edit *edit, cli_edit_kind kind, uint32_t file);
/* Under --in-place: whether that can be; what it takes, with all checks; the edit; what is shown of it. (edit_in_place.c) */
int cli_edit_check_in_place(const cli_edit *edit);
int cli_edit_measure_in_place(cli_edit *edit);
int cli_edit_write_in_place(cli_edit *edit);
void cli_edit_row_in_place(const cli_edit *edit);
void cli_edit_json_in_place(const cli_edit *edit, heft__json_out *json); /* the member "in_place" */
/* --resume and --undo. */
int cli_edit_end(const cli_args *args);
/* "heft: PATH: why" on standard error; `code`. */
int cli_edit_refuse(const char *path, const char *why, int code);
/* Length of a word of the command line up to its '=', or SIZE_MAX. */
size_t cli_edit_split(const char *word);

#endif
