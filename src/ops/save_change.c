/* ops: staged files put in their places: by renames alone, or under a marker that lists what is to be done. */
#include "base/error.h"
#include "base/json_write.h"
#include "ops/save_set.h"

#include <stdio.h>
#include <string.h>

void heft__set_change_init(heft__set_change *change, const heft_allocator *alloc) {
    memset(change, 0, sizeof *change);
    change->alloc = *alloc;
    heft__arena_init(&change->arena, alloc);
}

void heft__set_change_free(heft__set_change *change) {
    heft__free(&change->alloc, change->renames, change->renames_capacity * sizeof *change->renames);
    heft__free(&change->alloc, change->deletes, change->deletes_capacity * sizeof *change->deletes);
    heft__arena_free(&change->arena);
}

bool heft__set_change_add(heft__set_change *change, const char *temp, const char *name, uint64_t nbytes) {
    heft__set_rename rename = {heft__arena_text(&change->arena, temp, strlen(temp)),
                               heft__arena_text(&change->arena, name, strlen(name)), nbytes, false};
    if (!rename.temp || !rename.name ||
        !heft__grow(&change->alloc, (void **)&change->renames, &change->renames_capacity, change->nrenames, sizeof rename, 8))
        return false;
    change->renames[change->nrenames++] = rename;
    return true;
}

bool heft__set_change_delete(heft__set_change *change, const char *name) {
    const char *text = heft__arena_text(&change->arena, name, strlen(name));
    if (!text || !heft__grow(&change->alloc, (void **)&change->deletes, &change->deletes_capacity, change->ndeletes,
                             sizeof text, 8))
        return false;
    change->deletes[change->ndeletes++] = text;
    return true;
}

void heft__set_drop(const heft__set_change *change, const heft__target_folder *folder) {
    for (uint64_t i = 0; i < change->nrenames; i++)
        (void)heft__target_folder_unlink(folder, change->renames[i].temp, NULL);
}

/* ---- the marker ---- */

static void change_text(const heft__set_change *change, const char *writer, heft__json_out *json) {
    heft__json_out_object(json);
    heft__json_out_key(json, "writer", SIZE_MAX);
    heft__json_out_string(json, writer, SIZE_MAX);
    heft__json_out_key(json, "has_index", SIZE_MAX);
    heft__json_out_bool(json, change->has_index);
    heft__json_out_key(json, "old_index", SIZE_MAX);
    heft__json_out_bool(json, change->old_index);
    heft__json_out_key(json, "renames", SIZE_MAX);
    heft__json_out_array(json);
    for (uint64_t i = 0; i < change->nrenames; i++) {
        heft__json_out_array(json);
        heft__json_out_string(json, change->renames[i].temp, SIZE_MAX);
        heft__json_out_string(json, change->renames[i].name, SIZE_MAX);
        heft__json_out_u64(json, change->renames[i].nbytes);
        heft__json_out_array_end(json);
    }
    heft__json_out_array_end(json);
    heft__json_out_key(json, "deletes", SIZE_MAX);
    heft__json_out_array(json);
    for (uint64_t i = 0; i < change->ndeletes; i++) heft__json_out_string(json, change->deletes[i], SIZE_MAX);
    heft__json_out_array_end(json);
    heft__json_out_object_end(json);
}

/* Appears whole or not at all, as every file. */
static heft_status change_mark(const heft__set_change *change, const heft__target_folder *folder, heft_error *err) {
    char writer[HEFT__TARGET_NAME_MAX + 1];
    heft__json_out json;
    heft__target target;
    heft__target_temp_name(writer, "marker");
    heft__json_out_init(&json, &change->alloc, 0, false);
    change_text(change, writer, &json);
    heft__target_options options = {.nbytes = json.len, .no_sync = change->no_sync};
    heft_status status = json.failed ? heft__fail_memory(err, HEFT_NONE)
                                     : heft__target_open_in(&target, folder, HEFT__SET_MARKER, &options, err);
    if (status == HEFT_OK) {
        status = heft__target_write(&target, 0, json.text, json.len, err);
        if (status == HEFT_OK) status = heft__target_publish(&target, err);
        else heft__target_abort(&target);
    }
    heft__json_out_free(&json);
    return status;
}

/* ---- carrying out ---- */

static heft_status change_sync(const heft__set_change *change, const heft__target_folder *folder, heft_error *err) {
    return change->no_sync ? HEFT_OK : heft__target_folder_sync(folder, err);
}

static heft_status change_unlink_old_index(const heft__set_change *change, const heft__target_folder *folder,
                                           const char *index, heft_error *err) {
    heft_status status = heft__target_folder_unlink(folder, index, err);
    return status == HEFT_OK ? change_sync(change, folder, err) : status;
}

/* One that has been done before is no failure. */
static heft_status change_rename(const heft__set_change *change, const heft__target_folder *folder, uint64_t i,
                                 heft_error *err) {
    bool there = true;
    heft_status status = heft__target_folder_has(folder, change->renames[i].temp, &there, err);
    if (status != HEFT_OK || !there) return status;
    return heft__target_folder_rename(folder, change->renames[i].temp, change->renames[i].name, err);
}

heft_status heft__set_redo(const heft__set_change *change, const heft__target_folder *folder, heft_error *err) {
    uint64_t nshards = change->nrenames - change->has_index;
    bool staged = change->has_index; /* while the new index waits, the one that is there is the old one */
    heft_status status = HEFT_OK;
    if (staged) status = heft__target_folder_has(folder, change->renames[nshards].temp, &staged, err);
    const char *old = staged ? change->renames[nshards].name : NULL;
    if (!change->has_index && change->old_index) old = change->deletes[0];
    if (status == HEFT_OK && old && change->old_index) status = change_unlink_old_index(change, folder, old, err);
    for (uint64_t i = 0; i < nshards && status == HEFT_OK; i++) status = change_rename(change, folder, i, err);
    if (status == HEFT_OK && change->has_index) {
        status = change_sync(change, folder, err);
        if (status == HEFT_OK) status = change_rename(change, folder, nshards, err);
    }
    for (uint64_t i = 0; i < change->ndeletes && status == HEFT_OK; i++)
        status = heft__target_folder_unlink(folder, change->deletes[i], err);
    if (status == HEFT_OK) status = change_sync(change, folder, err); /* all of it before the marker goes */
    if (status == HEFT_OK) status = heft__target_folder_unlink(folder, HEFT__SET_MARKER, err);
    return status == HEFT_OK ? change_sync(change, folder, err) : status;
}

/* Nothing of an old set is there: names that appeared meanwhile stay, and what was renamed before them goes again. */
static heft_status change_apply_new(heft__set_change *change, const heft__target_folder *folder, heft_error *err) {
    uint64_t done = 0, nshards = change->nrenames - change->has_index;
    heft_status status = HEFT_OK;
    for (; done < change->nrenames && status == HEFT_OK; done++) {
        if (done == nshards && nshards) status = change_sync(change, folder, err); /* the index names what is there for good */
        if (status == HEFT_OK)
            status = heft__target_folder_rename_new(folder, change->renames[done].temp, change->renames[done].name, err);
        if (status != HEFT_OK) break;
    }
    if (status == HEFT_OK) return change_sync(change, folder, err);
    while (done-- > 0) (void)heft__target_folder_unlink(folder, change->renames[done].name, NULL);
    heft__set_drop(change, folder);
    return status;
}

heft_status heft__set_apply(heft__set_change *change, const heft__target_folder *folder, bool replaces, heft_error *err) {
    if (!replaces) return change_apply_new(change, folder, err);
    heft_status status;
    if (change->nrenames == 1 && change->ndeletes == 0 && !change->old_index) { /* one file for another */
        status = change_rename(change, folder, 0, err);
        if (status != HEFT_OK) heft__set_drop(change, folder);
        return status == HEFT_OK ? change_sync(change, folder, err) : status;
    }
    status = change_sync(change, folder, err); /* the marker speaks of files that are there for good */
    if (status == HEFT_OK) status = change_mark(change, folder, err);
    if (status != HEFT_OK) {
        bool there = false;
        (void)heft__target_folder_has(folder, HEFT__SET_MARKER, &there, NULL);
        if (!there) heft__set_drop(change, folder);
        return status;
    }
    return heft__set_redo(change, folder, err);
}

/* ---- folders in progress ---- */

/* The folder that `path` lies in, opened, and the name in it, which is cut off the copy in `text`. */
static heft_status change_open_parent(const char *path, char text[HEFT__TARGET_PATH_MAX], const char **name,
                                      heft__target_folder *parent, heft_error *err) {
    size_t len = strlen(path);
    while (len > 1 && path[len - 1] == '/') len--;
    if (len == 0 || len >= HEFT__TARGET_PATH_MAX - HEFT__TARGET_NAME_MAX - 2)
        return heft__fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL, "the path of the folder is empty or too long");
    memcpy(text, path, len);
    text[len] = 0;
    char *slash = strrchr(text, '/');
    *name = slash ? slash + 1 : text;
    if (!slash) return heft__target_folder_open(parent, ".", err);
    if (slash > text) *slash = 0;
    return heft__target_folder_open(parent, slash > text ? text : "/", err);
}

/* Its name is on the disk before anything in it says that it is. */
heft_status heft__set_make_folder(const char *path, bool no_sync, heft_error *err) {
    char text[HEFT__TARGET_PATH_MAX];
    const char *name;
    heft__target_folder parent;
    bool made;
    heft_status status = heft__target_mkdir(path, &made, err);
    if (status != HEFT_OK || !made || no_sync) return status;
    status = change_open_parent(path, text, &name, &parent, err);
    if (status != HEFT_OK) return status;
    status = heft__target_folder_sync(&parent, err);
    heft__target_folder_close(&parent);
    return status;
}

heft_status heft__set_staging_open(heft__set_staging *staging, const char *path, heft_error *err) {
    char text[HEFT__TARGET_PATH_MAX];
    const char *name;
    memset(staging, 0, sizeof *staging);
    staging->parent.fd = staging->folder.fd = -1;
    heft_status status = change_open_parent(path, text, &name, &staging->parent, err);
    if (status != HEFT_OK) return status;
    if (strlen(name) > HEFT__TARGET_NAME_MAX || !*name || strcmp(name, ".") == 0 || strcmp(name, "..") == 0) {
        heft__target_folder_close(&staging->parent);
        return heft__fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL, "the path does not end in a name of a new folder");
    }
    memcpy(staging->name, name, strlen(name) + 1);
    bool full;
    status = heft__target_folder_full(&staging->parent, staging->name, &full, err);
    if (status == HEFT_OK && full) {
        status = heft__fail(err, HEFT_EXISTS, HEFT_FAULT_FILE_EXISTS,
                            "a folder that is to appear complete must be absent or empty");
        heft__error_file(err, path);
    }
    heft__target_temp_name(staging->temp, staging->name);
    if (status == HEFT_OK) status = heft__target_folder_make(&staging->parent, staging->temp, &staging->folder, err);
    if (status != HEFT_OK) heft__target_folder_close(&staging->parent);
    return status;
}

heft_status heft__set_staging_close(heft__set_staging *staging, heft_status status, bool no_sync, heft_error *err) {
    heft__target_folder_close(&staging->folder);
    if (status == HEFT_OK) status = heft__target_folder_rename(&staging->parent, staging->temp, staging->name, err);
    if (status != HEFT_OK) (void)heft__target_folder_remove(&staging->parent, staging->temp, NULL);
    else if (!no_sync) status = heft__target_folder_sync(&staging->parent, err);
    heft__target_folder_close(&staging->parent);
    return status;
}
