/* ops: interrupted changes of a set ended, and temporary files of the dead removed. */
#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "base/utf8.h"
#include "ops/edit_header.h"
#include "ops/save_set.h"

#include <stdio.h>
#include <string.h>

enum { RESUME_MARKER_MAX = 64 << 20 };

static heft_status resume_fail(const heft__target_folder *folder, heft_error *err, const char *why) {
    char path[300];
    heft__escape(path, sizeof path, folder->path, strlen(folder->path));
    heft__fail(err, HEFT_CORRUPT, HEFT_FAULT_SAVE_INTERRUPTED, "%s: the marker of an interrupted save is damaged: %s", path, why);
    heft__error_file(err, folder->path);
    return HEFT_CORRUPT;
}

/* ---- reading the marker, which anybody may have written ---- */

typedef struct resume_text {
    heft__json json;
    heft__set_change *change;
    char *writer;
    const char *why;
    bool failed; /* no memory */
} resume_text;

/* A string token that is one plain file name; out holds 256 bytes. */
static bool resume_name(resume_text *text, const heft__json_token *token, char *out) {
    if (token->type == HEFT__JSON_STRING && token->len < HEFT__TARGET_NAME_MAX * 6) {
        char raw[HEFT__TARGET_NAME_MAX * 6];
        size_t len = heft__json_unescape(token, raw);
        if (!heft__path_component_fault(raw, len) && !memchr(raw, 0, len)) {
            memcpy(out, raw, len);
            out[len] = 0;
            return true;
        }
    }
    text->why = "a name in it is no plain file name";
    return false;
}

static bool resume_rename(resume_text *text) {
    heft__json_token token;
    char temp[256], name[256];
    uint64_t nbytes;
    heft__json_next(&text->json, &token);
    if (!resume_name(text, &token, temp)) return false;
    heft__json_next(&text->json, &token);
    if (!resume_name(text, &token, name)) return false;
    text->why = "an entry is no pair of names with a size";
    if (heft__json_next(&text->json, &token) != HEFT__JSON_NUMBER || !heft__json_u64(&token, &nbytes)) return false;
    if (heft__json_next(&text->json, &token) != HEFT__JSON_ARRAY_END) return false;
    text->why = "it renames what is no temporary file of heft";
    if (!heft__target_temp_is(temp) || heft__target_temp_is(name) || strcmp(name, HEFT__SET_MARKER) == 0) return false;
    text->failed = !heft__set_change_add(text->change, temp, name, nbytes);
    return !text->failed;
}

static bool resume_list(resume_text *text, bool renames) {
    heft__json_token token;
    char name[256];
    text->why = "a list in it is none";
    if (heft__json_next(&text->json, &token) != HEFT__JSON_ARRAY) return false;
    while (heft__json_next(&text->json, &token) != HEFT__JSON_ARRAY_END) {
        text->why = "an entry is of the wrong kind";
        if (renames && (token.type != HEFT__JSON_ARRAY || !resume_rename(text))) return false;
        if (renames) continue;
        if (!resume_name(text, &token, name)) return false;
        text->failed = !heft__set_change_delete(text->change, name);
        if (text->failed) return false;
    }
    return true;
}

static bool resume_parse(resume_text *text) {
    heft__json_token key, token;
    text->why = "it is no JSON object";
    if (heft__json_next(&text->json, &key) != HEFT__JSON_OBJECT) return false;
    while (heft__json_next(&text->json, &key) == HEFT__JSON_KEY) {
        bool has = heft__json_equals(&key, "has_index", 9), old = heft__json_equals(&key, "old_index", 9);
        if (heft__json_equals(&key, "renames", 7)) {
            if (!resume_list(text, true)) return false;
        } else if (heft__json_equals(&key, "deletes", 7)) {
            if (!resume_list(text, false)) return false;
        } else if (heft__json_equals(&key, "writer", 6)) {
            heft__json_next(&text->json, &token);
            if (!resume_name(text, &token, text->writer)) return false;
        } else if (has || old) {
            heft__json_next(&text->json, &token);
            text->why = "a flag is neither true nor false";
            if (token.type != HEFT__JSON_TRUE && token.type != HEFT__JSON_FALSE) return false;
            *(has ? &text->change->has_index : &text->change->old_index) = token.type == HEFT__JSON_TRUE;
        } else {
            text->why = "it has a key that this version does not know";
            return false;
        }
    }
    text->why = "it is cut off";
    if (key.type != HEFT__JSON_OBJECT_END || heft__json_next(&text->json, &token) != HEFT__JSON_END) return false;
    const heft__set_change *change = text->change;
    text->why = "it names no files, or not the index that it speaks of";
    return change->nrenames > 0 && (!change->old_index || change->has_index || change->ndeletes > 0);
}

bool heft__set_marker_parse(const char *data, size_t nbytes, heft__set_change *change, char writer[256], const char **why) {
    resume_text text = {.change = change, .writer = writer, .why = "it is not UTF-8"};
    writer[0] = 0;
    heft__json_init(&text.json, data, nbytes);
    bool ok = heft__utf8_check(data, nbytes) == nbytes && resume_parse(&text);
    *why = ok || text.failed ? NULL : text.why;
    return ok;
}

heft_status heft__set_marker_read(const heft__target_folder *folder, heft__set_change *change, char writer[256],
                                  bool *found, heft_error *err) {
    void *data = NULL;
    uint64_t nbytes = 0;
    writer[0] = 0;
    heft_status status = heft__target_folder_read(folder, HEFT__SET_MARKER, RESUME_MARKER_MAX, &change->alloc, &data,
                                                  &nbytes, found, err);
    if (status != HEFT_OK || !*found) return status;
    const char *why = NULL;
    if (!heft__set_marker_parse(data, (size_t)nbytes, change, writer, &why))
        status = why ? resume_fail(folder, err, why) : heft__fail_memory(err, HEFT_NONE);
    heft__free(&change->alloc, data, nbytes);
    return status;
}

/* ---- ending ---- */

/* Each file waits under its temporary name, or has the size of the one that was renamed. */
static heft_status resume_check(const heft__target_folder *folder, const heft__set_change *change, heft_error *err) {
    for (uint64_t i = 0; i < change->nrenames; i++) {
        bool there;
        uint64_t nbytes = 0;
        heft_status status = heft__target_folder_size(folder, change->renames[i].temp, &there, &nbytes, err);
        if (status == HEFT_OK && !there)
            status = heft__target_folder_size(folder, change->renames[i].name, &there, &nbytes, err);
        if (status != HEFT_OK) return status;
        if (there && nbytes == change->renames[i].nbytes) continue;
        char name[300], why[400];
        heft__escape(name, sizeof name, change->renames[i].name, strlen(change->renames[i].name));
        snprintf(why, sizeof why, "the new %s is not there", name);
        return resume_fail(folder, err, why);
    }
    return HEFT_OK;
}

heft_status heft__set_resume(const heft__target_folder *folder, const heft_allocator *alloc, bool polite, bool *resumed,
                             heft_error *err) {
    heft__set_change change;
    char writer[256];
    bool found;
    heft__set_change_init(&change, alloc);
    heft_status status = heft__set_marker_read(folder, &change, writer, &found, err);
    if (status == HEFT_OK && found && polite && heft__target_temp_alive(writer)) {
        char path[300];
        heft__escape(path, sizeof path, folder->path, strlen(folder->path));
        status = heft__fail(err, HEFT_EXISTS, HEFT_FAULT_SAVE_INTERRUPTED, "%s: another process is replacing the set there", path);
        heft__error_file(err, folder->path);
    }
    if (status == HEFT_OK && found) status = resume_check(folder, &change, err);
    if (status == HEFT_OK && found) status = heft__set_redo(&change, folder, err);
    if (resumed) *resumed = status == HEFT_OK && found;
    heft__set_change_free(&change);
    return status;
}

/* ---- cleaning ---- */

static bool resume_listed(const heft__set_change *change, const char *name) {
    for (uint64_t i = 0; i < change->nrenames; i++)
        if (strcmp(change->renames[i].temp, name) == 0) return true;
    return false;
}

static heft_status resume_clean(const heft__target_folder *folder, heft__directory *directory,
                                const heft__set_change *change, bool all, uint64_t *nremoved, heft_error *err) {
    heft__directory_entry *entries;
    heft__arena arena;
    uint64_t nentries;
    heft__arena_init(&arena, &change->alloc);
    heft_status status = heft__directory_list_prefix(directory, ".heft-", &arena, &entries, &nentries, err);
    for (uint64_t i = 0; status == HEFT_OK && i < nentries; i++) {
        const char *name = entries[i].name;
        bool litter = false;
        if (heft__journal_is(name)) status = heft__edit_journal_useless(folder, directory, name, &change->alloc, &litter, err);
        else if (heft__target_temp_is(name) && !resume_listed(change, name))
            litter = all ? !heft__target_temp_alive(name) : heft__target_temp_dead(name);
        if (!litter) continue;
        status = entries[i].kind == HEFT__FILE_DIRECTORY ? heft__target_folder_remove(folder, name, err)
                                                         : heft__target_folder_unlink(folder, name, err);
        *nremoved += status == HEFT_OK;
    }
    heft__arena_free(&arena);
    return status;
}

heft_status heft__set_clean(const char *path, const heft_allocator *alloc, bool all, uint64_t *nremoved,
                            heft_error *err) {
    heft__target_folder folder;
    heft__directory *directory = NULL;
    heft__set_change change;
    char writer[256];
    bool found;
    *nremoved = 0;
    heft_status status = heft__target_folder_open(&folder, path, err);
    if (status != HEFT_OK) return status;
    heft__set_change_init(&change, alloc);
    status = heft__set_marker_read(&folder, &change, writer, &found, err);
    if (status == HEFT_OK) status = heft__directory_open(path, &directory, err);
    if (status == HEFT_OK) status = resume_clean(&folder, directory, &change, all, nremoved, err);
    if (directory) heft__directory_close(directory);
    heft__set_change_free(&change);
    heft__target_folder_close(&folder);
    return status;
}
