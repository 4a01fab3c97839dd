/* api: folders of checkpoints: which is the newest that is whole, and removing the others. */
#include "api/api.h"

#include "base/error.h"
#include "base/text.h"
#include "device/device.h"
#include "ops/save_set.h"

#include <stdio.h>
#include <string.h>

typedef struct keep_entry {
    const char *name;
    const char *digits; /* the last number in it, without leading zeros */
    size_t ndigits;
    bool folder;
} keep_entry;

typedef struct keep_list {
    heft__open_job job; /* how checkpoints are opened */
    heft__arena arena;
    heft__directory *directory;
    keep_entry *entries; /* newest first */
    uint64_t nentries;
} keep_list;

/* The last number of a name; false: it has none. */
static bool keep_number(keep_entry *entry) {
    size_t end = strlen(entry->name);
    const char *suffix = ".safetensors";
    size_t len = strlen(suffix);
    if (end > len && strcmp(entry->name + end - len, suffix) == 0) end -= len;
    while (end > 0 && (entry->name[end - 1] < '0' || entry->name[end - 1] > '9')) end--;
    size_t at = end;
    while (at > 0 && entry->name[at - 1] >= '0' && entry->name[at - 1] <= '9') at--;
    if (at == end) return false;
    while (at + 1 < end && entry->name[at] == '0') at++;
    entry->digits = entry->name + at;
    entry->ndigits = end - at;
    return true;
}

/* Newer first; equal numbers by name. */
static bool keep_before(const keep_entry *a, const keep_entry *b) {
    if (a->ndigits != b->ndigits) return a->ndigits > b->ndigits;
    int order = memcmp(a->digits, b->digits, a->ndigits);
    return order ? order > 0 : strcmp(a->name, b->name) > 0;
}

static void keep_sort(keep_entry *entries, uint64_t n) {
    for (uint64_t gap = n / 2; gap > 0; gap /= 2) /* shell sort: checkpoints are few */
        for (uint64_t i = gap; i < n; i++) {
            keep_entry entry = entries[i];
            uint64_t k = i;
            for (; k >= gap && keep_before(&entry, &entries[k - gap]); k -= gap) entries[k] = entries[k - gap];
            entries[k] = entry;
        }
}

static void keep_close(keep_list *list) {
    if (list->directory) heft__directory_close(list->directory);
    heft__arena_free(&list->arena);
}

static bool keep_is_sidecar(const char *name) {
    static const char suffix[] = HEFT__SIDECAR_SUFFIX;
    size_t len = strlen(name), n = sizeof suffix - 1;
    return len > n && strcmp(name + len - n, suffix) == 0;
}

static heft_status keep_open(keep_list *list, const char *folder, const char *glob, const heft_open_options *options,
                             heft_error *err) {
    heft__directory_entry *found;
    uint64_t n;
    memset(list, 0, sizeof *list);
    heft_status status = heft__open_job_make(options, &list->job, err);
    list->job.options.struct_size = sizeof list->job.options; /* they are passed on */
    heft__arena_init(&list->arena, &list->job.alloc);
    if (status != HEFT_OK) return status;
    const char *why;
    if (glob && heft__glob_check(glob, strlen(glob), &why) != SIZE_MAX) return heft__glob_refuse("glob", glob, err);
    status = heft__directory_open(folder, &list->directory, err);
    if (status == HEFT_OK) status = heft__directory_list(list->directory, &list->arena, &found, &n, err);
    if (status != HEFT_OK) return status;
    list->entries = heft__arena_alloc(&list->arena, n * sizeof *list->entries, 16);
    if (!list->entries) return heft__fail_memory(err, n * sizeof *list->entries);
    for (uint64_t i = 0; i < n; i++) {
        keep_entry entry = {.name = found[i].name, .folder = found[i].kind == HEFT__FILE_DIRECTORY};
        bool file = found[i].kind == HEFT__FILE_REGULAR && strstr(entry.name, ".safetensors") && !keep_is_sidecar(entry.name);
        if (entry.name[0] == '.' || (!entry.folder && !file) || !keep_number(&entry)) continue;
        if (glob && !heft__glob_match(glob, strlen(glob), entry.name, strlen(entry.name))) continue;
        list->entries[list->nentries++] = entry;
    }
    keep_sort(list->entries, list->nentries);
    return HEFT_OK;
}

/* Whether each tensor has a digest and is as that says. */
static heft_status keep_verify_bytes(const keep_list *list, const char *path, bool *good, heft_error *err) {
    heft_archive *archive;
    heft_status status = heft_archive_open(path, &list->job.options, &archive, err);
    if (status != HEFT_OK) return status;
    uint64_t n = heft_archive_count(archive);
    heft_verified *verified = heft__alloc_zero(&list->job.alloc, n * sizeof *verified);
    status = verified ? heft_archive_verify(archive, NULL, 0, NULL, verified, NULL, err)
                      : heft__fail_memory(err, n * sizeof *verified);
    *good = status == HEFT_OK;
    for (uint64_t i = 0; i < n && *good; i++) *good = verified[i].verdict == HEFT_VERDICT_GOOD;
    heft__free(&list->job.alloc, verified, n * sizeof *verified);
    heft_archive_unref(archive);
    return status;
}

/* Whether a checkpoint is whole. One that cannot be looked at is not, unless the memory to look is what lacks: then nothing is
 * known of it. */
static heft_status keep_verify(const keep_list *list, const char *path, heft_verify verify, bool *whole, heft_error *err) {
    heft_report *report;
    heft_error local;
    *whole = verify == HEFT_VERIFY_NONE;
    if (*whole) return HEFT_OK;
    heft_status status = heft_check(path, &list->job.options, &report, &local);
    if (status == HEFT_OK) {
        *whole = heft_report_count_of(report, HEFT_SEVERITY_ERROR) == 0;
        heft_report_free(report);
        if (*whole && verify == HEFT_VERIFY_DIGESTS) status = keep_verify_bytes(list, path, whole, &local);
    }
    if (status == HEFT_OK) return HEFT_OK;
    *whole = false;
    if (status != HEFT_OUT_OF_MEMORY) return HEFT_OK;
    if (err) *err = local;
    return status;
}

static bool keep_path(char *out, size_t size, const char *folder, const char *name) {
    size_t len = strlen(folder);
    int n = snprintf(out, size, "%s%s%s", folder, len && folder[len - 1] == '/' ? "" : "/", name);
    return n > 0 && (size_t)n < size;
}

static heft_status keep_refuse(const char *folder, uint64_t looked_at, heft_error *err) {
    char path[300];
    heft__escape(path, sizeof path, folder, strlen(folder));
    heft__fail(err, HEFT_NOT_FOUND, HEFT_FAULT_NO_CHECKPOINT, "%s: none of the %llu checkpoints there verifies", path,
               (unsigned long long)looked_at);
    heft__error_file(err, folder);
    return HEFT_NOT_FOUND;
}

static heft_status keep_arguments(const char *folder, heft_verify verify, heft_error *err) {
    if (!folder) return heft__fail_null(err, "folder");
    if (verify > HEFT_VERIFY_DIGESTS)
        return heft__fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL, "there is no such way of verifying");
    return HEFT_OK;
}

heft_status heft_checkpoint_latest(const char *folder, const char *glob, heft_verify verify, const heft_open_options *options,
                                   heft_buffer *path, uint64_t *nskipped, heft_error *err) {
    char text[HEFT__TARGET_PATH_MAX];
    keep_list list;
    uint64_t skipped = 0;
    if (nskipped) *nskipped = 0;
    if (!path) return heft__fail_null(err, "path");
    memset(path, 0, sizeof *path);
    heft_status status = keep_arguments(folder, verify, err);
    if (status != HEFT_OK) return status;
    status = keep_open(&list, folder, glob, options, err);
    bool found = false;
    for (uint64_t i = 0; status == HEFT_OK && !found && i < list.nentries; i++) {
        if (keep_path(text, sizeof text, folder, list.entries[i].name)) status = keep_verify(&list, text, verify, &found, err);
        skipped += !found;
    }
    if (status == HEFT_OK && !found) status = keep_refuse(folder, list.nentries, err);
    if (status == HEFT_OK) status = heft__host_buffer(&list.job.alloc, strlen(text) + 1, path, err);
    if (status == HEFT_OK) memcpy(path->data, text, strlen(text) + 1);
    if (nskipped) *nskipped = status == HEFT_OK ? skipped : 0;
    keep_close(&list);
    return status;
}

/* A folder in a checkpoint is not heft's. */
static heft_status keep_check_folder(const keep_list *list, const char *folder, const char *name, heft_error *err) {
    char path[HEFT__TARGET_PATH_MAX];
    heft__directory *directory;
    heft__directory_entry *entries;
    heft__arena arena;
    uint64_t n;
    if (!keep_path(path, sizeof path, folder, name))
        return heft__fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL, "the path is too long");
    heft_status status = heft__directory_open(path, &directory, err);
    if (status != HEFT_OK) return status;
    heft__arena_init(&arena, &list->job.alloc);
    status = heft__directory_list(directory, &arena, &entries, &n, err);
    for (uint64_t i = 0; status == HEFT_OK && i < n; i++)
        if (entries[i].kind == HEFT__FILE_DIRECTORY) {
            status = heft__fail(err, HEFT_UNSUPPORTED, HEFT_FAULT_CALL, "a checkpoint with folders in it is not removed");
            heft__error_file(err, path);
        }
    heft__arena_free(&arena);
    heft__directory_close(directory);
    return status;
}

/* A folder goes out of sight first, and for good, so that it is never there in part. */
static heft_status keep_remove_folder(const keep_list *list, const heft__target_folder *folder, const char *name,
                                      heft_error *err) {
    char temp[HEFT__TARGET_NAME_MAX + 1];
    heft_status status = keep_check_folder(list, folder->path, name, err);
    heft__target_temp_name(temp, name);
    if (status == HEFT_OK) status = heft__target_folder_rename(folder, name, temp, err);
    if (status == HEFT_OK) status = heft__target_folder_sync(folder, err);
    return status == HEFT_OK ? heft__target_folder_remove(folder, temp, err) : status;
}

/* A file goes with its sidecar, that first. */
static heft_status keep_remove_file(const heft__target_folder *folder, const char *name, heft_error *err) {
    char beside[HEFT__TARGET_NAME_MAX + 1];
    heft_status status = HEFT_OK;
    if (heft__sidecar_name(name, beside, sizeof beside)) status = heft__target_folder_unlink(folder, beside, err);
    return status == HEFT_OK ? heft__target_folder_unlink(folder, name, err) : status;
}

/* Removes entries [from, end) of the list, oldest first: what is left after a failure is the newer part. */
static heft_status keep_remove(const keep_list *list, const char *path, uint64_t from, uint64_t *nremoved, heft_error *err) {
    heft__target_folder folder;
    heft_status status = heft__target_folder_open(&folder, path, err);
    if (status != HEFT_OK) return status;
    for (uint64_t i = list->nentries; status == HEFT_OK && i-- > from;) {
        const keep_entry *entry = &list->entries[i];
        status = entry->folder ? keep_remove_folder(list, &folder, entry->name, err)
                               : keep_remove_file(&folder, entry->name, err);
        *nremoved += status == HEFT_OK;
    }
    heft__target_folder_close(&folder);
    return status;
}

heft_status heft_checkpoint_keep(const char *folder, const char *glob, uint64_t keep, heft_verify verify,
                                 const heft_open_options *options, uint64_t *nremoved, heft_error *err) {
    char text[HEFT__TARGET_PATH_MAX];
    keep_list list;
    uint64_t verified = 0, removed = 0, i = 0;
    bool whole;
    if (nremoved) *nremoved = 0;
    heft_status status = keep_arguments(folder, verify, err);
    if (status == HEFT_OK && keep == 0)
        status = heft__fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL, "at least one checkpoint is kept");
    if (status != HEFT_OK) return status;
    status = keep_open(&list, folder, glob, options, err);
    for (; status == HEFT_OK && verified < keep && i < list.nentries; i++) {
        if (!keep_path(text, sizeof text, folder, list.entries[i].name)) continue;
        status = keep_verify(&list, text, verify, &whole, err);
        verified += status == HEFT_OK && whole;
    }
    if (status == HEFT_OK && i < list.nentries) status = keep_remove(&list, folder, i, &removed, err);
    if (nremoved) *nremoved = removed;
    keep_close(&list);
    return status;
}
