/* ops: which files a path means: a file, an index, a folder, a Hub cache, a glob, a list. */
#include "base/error.h"
#include "base/text.h"
#include "ops/ops.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Indexes of 60 MB are in use; the default is far above them, and max_header_nbytes can raise it. */
#define RESOLVE_INDEX_MAX ((uint64_t)256 << 20)
enum { RESOLVE_REF_MAX = 512 };

typedef struct resolve_job {
    const heft__open_job *open;
    heft__resolution *out;
    heft_error *err;
} resolve_job;

static heft_status resolve_memory(const resolve_job *job) {
    return heft__fail_memory(job->err, HEFT_NONE);
}

static const char *resolve_base(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static const char *resolve_text(const resolve_job *job, const char *text, size_t len) {
    return heft__arena_text(&job->out->arena, text, len);
}

/* The folder of a path: "a/b" a, "/b" /, "b" . */
static const char *resolve_parent(const resolve_job *job, const char *path) {
    const char *slash = strrchr(path, '/');
    if (!slash) return ".";
    while (slash > path && slash[-1] == '/') slash--;
    return resolve_text(job, path, slash == path ? 1 : (size_t)(slash - path));
}

/* folder/name */
static const char *resolve_join(const resolve_job *job, const char *folder, const char *name) {
    size_t n = strlen(folder), m = strlen(name);
    bool slash = n && folder[n - 1] != '/';
    char *text = heft__arena_alloc(&job->out->arena, (uint64_t)n + m + 2, 1);
    if (!text) return NULL;
    memcpy(text, folder, n);
    if (slash) text[n++] = '/';
    memcpy(text + n, name, m + 1);
    return text;
}

static bool resolve_beneath(const resolve_job *job) {
    return job->open->options.links == HEFT_LINKS_BENEATH;
}

/* Whether a path is folder/name, letter by letter. */
static bool resolve_is_in(const char *path, const char *folder, const char *name) {
    const char *base = resolve_base(path);
    size_t n = (size_t)(base - path), len = strlen(folder);
    while (n > 1 && path[n - 1] == '/') n--;
    while (len > 1 && folder[len - 1] == '/') len--;
    if (strcmp(base, name) != 0) return false;
    return n == 0 ? strcmp(folder, ".") == 0 : n == len && memcmp(path, folder, n) == 0;
}

/* Marks the files of the folder that are laid over the others: that of Atlas, if the caller wants it and it is there, and what
 * the caller names by the folder's own path. */
static void resolve_overlays(const resolve_job *job) {
    heft__resolution *r = job->out;
    const char *folder = heft__directory_path(r->directory);
    for (uint64_t i = 0; i < r->nentries; i++) {
        heft__directory_entry *entry = &r->entries[i];
        if (entry->kind == HEFT__FILE_DIRECTORY) continue;
        for (uint32_t k = 0; k < r->noverlays && !entry->overlay; k++)
            entry->overlay = resolve_is_in(r->overlays[k], folder, entry->name);
        if (!entry->overlay && job->open->options.atlas_overlay && strcmp(entry->name, HEFT__ATLAS_OVERLAY) == 0) {
            r->beside = entry->name;
            entry->overlay = true;
        }
        entry->named = entry->named || entry->overlay;
    }
}

/* heft__folder_choose, to which files that lie over the others do not exist. False: out of memory. */
static bool resolve_choose(const resolve_job *job, heft_index_mode mode, heft__folder_choice *out) {
    const heft__resolution *r = job->out;
    uint64_t n = 0;
    heft__directory_entry *entries =
        heft__arena_alloc(&job->out->arena, (r->nentries + 1) * sizeof *entries, sizeof(void *));
    if (!entries) return false;
    for (uint64_t i = 0; i < r->nentries; i++)
        if (!r->entries[i].overlay) entries[n++] = r->entries[i];
    return heft__folder_choose(entries, n, mode, job->open->options.variant, &job->out->arena, out);
}

static heft_status resolve_open_folder(const resolve_job *job, const char *path) {
    heft__resolution *r = job->out;
    heft_status status = heft__directory_open(path, &r->directory, job->err);
    if (!status) status = heft__directory_list(r->directory, &r->arena, &r->entries, &r->nentries, job->err);
    return status;
}

/* ---- lists in messages ---- */

typedef struct resolve_list {
    char text[420];
    size_t len;
    uint64_t n, left_out;
} resolve_list;

static void resolve_list_add(resolve_list *list, const char *name) {
    char escaped[200];
    size_t n = heft__escape(escaped, sizeof escaped, name, strlen(name));
    list->n++;
    if (list->left_out || list->len + n + 40 > sizeof list->text) {
        list->left_out++;
        return;
    }
    list->len += (size_t)snprintf(list->text + list->len, sizeof list->text - list->len, "%s%s",
                                  list->n > 1 ? ", " : "", escaped);
}

static const char *resolve_list_end(resolve_list *list) {
    if (!list->n) return "nothing";
    if (list->left_out)
        snprintf(list->text + list->len, sizeof list->text - list->len, " and %llu more",
                 (unsigned long long)list->left_out);
    return list->text;
}

/* ---- folders in which there is nothing to open ---- */

/* Whether a sub-folder would open, by the names in it. Whatever goes wrong there is a no. */
static bool resolve_would_open(const resolve_job *job, const char *name) {
    heft__arena arena;
    heft__arena_init(&arena, &job->out->alloc);
    heft__directory *directory = NULL;
    heft__directory_entry *entries;
    uint64_t n;
    heft__folder_choice choice = {0};
    const char *path = resolve_join(job, heft__directory_path(job->out->directory), name);
    if (path && !heft__directory_open(path, &directory, NULL) &&
        !heft__directory_list(directory, &arena, &entries, &n, NULL) &&
        !heft__folder_choose(entries, n, job->open->options.index, job->open->options.variant, &arena, &choice))
        choice.how = NULL;
    bool yes = choice.how != NULL;
    heft__directory_close(directory);
    heft__arena_free(&arena);
    return yes;
}

static heft_status resolve_nothing(const resolve_job *job, const heft__folder_choice *choice) {
    enum { MOST_FOLDERS = 64 };
    const heft__resolution *r = job->out;
    const char *variant = job->open->options.variant;
    resolve_list files = {0}, folders = {0};
    uint32_t looked = 0;
    for (uint64_t i = 0; i < r->nentries; i++) {
        const heft__directory_entry *entry = &r->entries[i];
        bool folder = entry->kind == HEFT__FILE_DIRECTORY;
        if (choice->fault == HEFT_FAULT_AMBIGUOUS ? heft__is_tensor_file(entry) || heft__is_index_name(entry->name)
                                                  : !folder)
            resolve_list_add(&files, entry->name);
        if (folder && entry->name[0] != '.' && looked++ < MOST_FOLDERS && resolve_would_open(job, entry->name))
            resolve_list_add(&folders, entry->name);
    }
    char path[200], wanted[120] = "";
    heft__escape(path, sizeof path, r->path, strlen(r->path));
    if (variant) {
        char name[80];
        heft__escape(name, sizeof name, variant, strlen(variant));
        snprintf(wanted, sizeof wanted, " of variant \"%s\"", name);
    }
    const char *kind = heft__folder_find(r->entries, r->nentries, "model_index.json") ? "a diffusers pipeline: " : "";
    const char *opens = folders.n ? "; these folders in it would open: " : "";
    const char *which = folders.n ? resolve_list_end(&folders) : "";
    if (choice->fault == HEFT_FAULT_AMBIGUOUS)
        heft__fail(job->err, HEFT_NOT_FOUND, choice->fault,
                   "%s: %sseveral %s%s: %s; name one, or a glob such as \"%s/*.safetensors\"%s%s", path, kind,
                   choice->what, wanted, resolve_list_end(&files), path, opens, which);
    else
        heft__fail(
            job->err, HEFT_NOT_FOUND, choice->fault,
            "%s: %sno checkpoint%s: looked for an index file, model.safetensors and the like, numbered shards, one "
            "*.safetensors; it holds %s%s%s",
            path, kind, wanted, files.n ? resolve_list_end(&files) : r->nentries ? "no file" : "nothing", opens, which);
    heft__error_file(job->err, r->path);
    return HEFT_NOT_FOUND;
}

/* ---- faults and warnings of the set ---- */

/* Keeps an error in the report, as a warning or a fault. */
static void resolve_report(const resolve_job *job, heft_severity severity, const heft_error *error) {
    heft__report_add_error(job->out->report, severity, UINT32_MAX, error);
}

static void resolve_warn(const resolve_job *job, heft_status status, heft_fault fault, const char *text) {
    heft_error error;
    char path[300];
    const char *file = job->out->index_path ? job->out->index_path : job->out->path;
    heft__escape(path, sizeof path, file, strlen(file));
    heft__fail(&error, status, fault, "%s: %s", path, text);
    heft__error_file(&error, file);
    resolve_report(job, HEFT_SEVERITY_WARNING, &error);
}

static heft_status resolve_marker(const resolve_job *job) {
    const heft__resolution *r = job->out;
    if (!heft__folder_find(r->entries, r->nentries, ".heft-save-in-progress")) return HEFT_OK;
    heft_error error;
    char path[300];
    heft__escape(path, sizeof path, heft__directory_path(r->directory), strlen(heft__directory_path(r->directory)));
    heft__fail(&error, HEFT_MISMATCH, HEFT_FAULT_SAVE_INTERRUPTED,
               "%s: a save was interrupted here (.heft-save-in-progress is there), so old and new shards may be mixed",
               path);
    heft__error_file(&error, heft__directory_path(r->directory));
    if (job->open->collect) {
        resolve_report(job, HEFT_SEVERITY_ERROR, &error);
        return HEFT_OK;
    }
    if (job->err) *job->err = error;
    return HEFT_MISMATCH;
}

/* ---- an index ---- */

static int resolve_compare_names(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Of each shard of the index how many tensors are named for it. */
static uint32_t *resolve_shard_counts(const resolve_job *job) {
    const heft__index *index = job->out->index;
    uint32_t *counts = heft__arena_alloc(&job->out->arena, (uint64_t)index->nshards * sizeof *counts, 4);
    if (!counts) return NULL;
    memset(counts, 0, (size_t)index->nshards * sizeof *counts);
    for (uint64_t i = 0; i < index->nitems; i++) counts[index->items[i].shard]++;
    return counts;
}

/* One error that names every missing shard, and the whole model that may lie beside them. */
static heft_status resolve_fail_missing(const resolve_job *job, const char *whole) {
    const heft__resolution *r = job->out;
    resolve_list missing = {0};
    for (uint32_t i = 0; i < r->index->nshards; i++)
        if (r->shard_files[i] == UINT32_MAX) resolve_list_add(&missing, r->index->shards[i]);
    char path[260], beside[300] = "";
    heft__escape(path, sizeof path, r->index_path, strlen(r->index_path));
    if (whole) {
        char name[200];
        heft__escape(name, sizeof name, whole, strlen(whole));
        snprintf(beside, sizeof beside, "; \"%s\" lies beside it and is not taken instead", name);
    }
    heft__fail(job->err, HEFT_NOT_FOUND, HEFT_FAULT_MISSING_SHARD,
               "%s: %llu of %u shards that it names are missing: %s%s", path, (unsigned long long)missing.n,
               r->index->nshards, resolve_list_end(&missing), beside);
    heft__error_file(job->err, r->index_path);
    heft__error_at(job->err, HEFT_NONE, r->index->nshards, r->index->nshards - missing.n);
    if (job->err) job->err->more = (uint32_t)missing.n - 1;
    return HEFT_NOT_FOUND;
}

/* A whole model beside the index: STEM.safetensors of STEM.safetensors.index.json, which the index does not name. */
static const char *resolve_whole_model(const resolve_job *job) {
    const heft__resolution *r = job->out;
    const char *base = resolve_base(r->index_path), *end = strstr(base, ".index.");
    if (!end) return NULL;
    const char *name = resolve_text(job, base, (size_t)(end - base));
    const heft__directory_entry *entry = name ? heft__folder_find(r->entries, r->nentries, name) : NULL;
    for (uint32_t i = 0; entry && i < r->index->nshards; i++)
        if (strcmp(r->index->shards[i], entry->name) == 0) return NULL;
    return entry ? entry->name : NULL;
}

static void resolve_add_missing(const resolve_job *job, const char *name, bool dangling, uint32_t ntensors) {
    heft_report *report = job->out->report;
    bool lenient = job->open->options.lenient & HEFT_LENIENT_MISSING_SHARD;
    heft__fault fault = {.kind = HEFT_FAULT_MISSING_SHARD,
                         .status = (uint8_t)-HEFT_NOT_FOUND,
                         .file = UINT32_MAX,
                         .severity = (uint8_t)(lenient ? HEFT_SEVERITY_WARNING : HEFT_SEVERITY_ERROR),
                         .entry = dangling,
                         .other = ntensors,
                         .offset = HEFT_NONE};
    fault.value = heft__report_text(report, name, strlen(name));
    heft__report_add(report, fault);
    job->out->incomplete = true;
}

/* Numbers shards that are there by name, and reports those that are not. */
static heft_status resolve_shards(const resolve_job *job) {
    heft__resolution *r = job->out;
    const heft__index *index = r->index;
    uint32_t *counts = resolve_shard_counts(job);
    const char **sorted = heft__arena_alloc(&r->arena, (uint64_t)index->nshards * sizeof *sorted, sizeof(void *));
    r->shard_files = heft__arena_alloc(&r->arena, (uint64_t)index->nshards * sizeof *r->shard_files, 4);
    if (!counts || !sorted || !r->shard_files) return resolve_memory(job);
    bool lenient = job->open->options.lenient & HEFT_LENIENT_MISSING_SHARD;
    for (uint32_t i = 0; i < index->nshards; i++) {
        const heft__directory_entry *entry = heft__folder_find(r->entries, r->nentries, index->shards[i]);
        r->shard_files[i] = UINT32_MAX;
        if (entry && entry->name == r->beside) r->beside = NULL; /* the index makes it a shard like any other */
        if (entry) r->entries[entry - r->entries].named = true;
        if (entry && entry->kind != HEFT__FILE_DANGLING) {
            r->shard_files[i] = 0;
            sorted[r->nnames++] = entry->name;
            continue;
        }
        resolve_add_missing(job, index->shards[i], entry != NULL, counts[i]);
    }
    if (r->nnames) qsort(sorted, r->nnames, sizeof *sorted, resolve_compare_names);
    r->names = sorted;
    for (uint32_t i = 0; i < index->nshards; i++) {
        if (r->shard_files[i] == UINT32_MAX) continue;
        const char **found = bsearch(&index->shards[i], sorted, r->nnames, sizeof *sorted, resolve_compare_names);
        r->shard_files[i] = (uint32_t)(found - sorted);
    }
    const char *whole = resolve_whole_model(job);
    if (r->incomplete && !lenient && !job->open->collect) return resolve_fail_missing(job, whole);
    r->shadowed = whole;
    if (whole) {
        char text[400], name[260];
        heft__escape(name, sizeof name, whole, strlen(whole));
        snprintf(text, sizeof text, "the index decides; \"%s\" beside it is not opened", name);
        resolve_warn(job, HEFT_MISMATCH, HEFT_FAULT_SHADOWED_FILE, text);
    }
    return HEFT_OK;
}

/* All files of tensors, for a check whose index cannot be read. */
static heft_status resolve_without_index(const resolve_job *job) {
    heft__resolution *r = job->out;
    heft__folder_choice choice;
    r->index_path = NULL;
    if (!resolve_choose(job, HEFT_INDEX_IGNORE, &choice)) return resolve_memory(job);
    r->names = choice.names;
    r->nnames = choice.nnames;
    return HEFT_OK;
}

static heft_status resolve_index(const resolve_job *job, const char *name) {
    heft__resolution *r = job->out;
    uint64_t most = job->open->options.max_header_nbytes;
    heft_source *source = NULL;
    r->how = "index file";
    r->index_path = resolve_join(job, heft__directory_path(r->directory), name);
    r->index = heft__alloc_zero(&r->alloc, sizeof *r->index);
    if (!r->index_path || !r->index) return resolve_memory(job);
    r->report->index_path = heft__arena_text(&r->report->arena, r->index_path, strlen(r->index_path));
    if (!r->report->index_path) return resolve_memory(job);
    heft_error error;
    heft_status status =
        heft__directory_source(r->directory, name, resolve_beneath(job), r->beneath_levels, &source, &error);
    if (!status)
        status =
            heft__index_read(source, &r->alloc, most > RESOLVE_INDEX_MAX ? most : RESOLVE_INDEX_MAX, r->index, &error);
    heft_source_unref(source);
    if (!status) return resolve_shards(job);
    heft__free(&r->alloc, r->index, sizeof *r->index);
    r->index = NULL;
    if (job->open->collect && (status == HEFT_CORRUPT || (status == HEFT_LIMIT && !error.sys_errno))) {
        resolve_report(job, HEFT_SEVERITY_ERROR, &error);
        return resolve_without_index(job);
    }
    if (job->err) *job->err = error;
    return status;
}

/* ---- a folder ---- */

/* In snapshots of the Hub's cache links lead to the blobs of the repository: how many folders up that is, else 0. */
static uint32_t resolve_cache_levels(const char *path) {
    const char *at = strstr(path, "/snapshots/"), *start = at;
    if (!at) return 0;
    while (start > path && start[-1] != '/') start--;
    uint32_t levels = 1;
    if (strncmp(start, "models--", 8) != 0 && strncmp(start, "datasets--", 10) != 0 &&
        strncmp(start, "spaces--", 8) != 0)
        return 0;
    for (at++; *at;) {
        while (*at && *at != '/') at++;
        while (*at == '/') at++;
        if (at[0] == '.' && (at[1] == '/' || at[1] == 0 || at[1] == '.'))
            return 0; /* no plain path: nothing is granted */
        if (*at) levels++;
    }
    return levels;
}

static bool resolve_is_cache(const heft__resolution *r) {
    uint32_t found = 0;
    for (uint64_t i = 0; i < r->nentries; i++)
        if (r->entries[i].kind == HEFT__FILE_DIRECTORY)
            found += !strcmp(r->entries[i].name, "refs") || !strcmp(r->entries[i].name, "snapshots");
    return found == 2;
}

/* models--org--name: refs/main holds the name of the snapshot to open. Its folder takes the place of the cache's. */
static heft_status resolve_cache(const resolve_job *job) {
    heft__resolution *r = job->out;
    char text[RESOLVE_REF_MAX];
    const char *folder = heft__directory_path(r->directory), *ref = resolve_join(job, folder, "refs/main");
    heft_source *source = NULL;
    if (!ref) return resolve_memory(job);
    heft_status status = heft__directory_source(r->directory, "refs/main", resolve_beneath(job), 0, &source, job->err);
    if (status) return status;
    size_t n = (size_t)(heft_source_size(source) < sizeof text ? heft_source_size(source) : sizeof text);
    status = heft_source_read(source, 0, n, text, job->err);
    heft_source_unref(source);
    if (status) return status;
    while (n && strchr(" \t\r\n", text[n - 1])) n--;
    const char *why = heft__path_component_fault(text, n);
    if (why) {
        char path[300];
        heft__escape(path, sizeof path, ref, strlen(ref));
        heft__fail(job->err, HEFT_CORRUPT, HEFT_FAULT_SHARD_NAME, "%s: not the name of a snapshot: %s", path, why);
        heft__error_file(job->err, ref);
        return HEFT_CORRUPT;
    }
    const char *name = resolve_text(job, text, n), *snapshots = resolve_join(job, folder, "snapshots");
    const char *snapshot = name && snapshots ? resolve_join(job, snapshots, name) : NULL;
    if (!snapshot) return resolve_memory(job);
    heft__directory_close(r->directory);
    r->directory = NULL;
    r->beneath_levels = 2;
    return resolve_open_folder(job, snapshot);
}

/* Ends with an error of `n` items, unless it goes into a report, where it is one item. */
static heft_status resolve_numbering(const resolve_job *job, bool lenient, heft_error *error, uint64_t n) {
    heft__error_file(error, job->out->path);
    if (!lenient && !job->open->collect) {
        error->more = (uint32_t)(n - 1 < UINT32_MAX ? n - 1 : UINT32_MAX);
        if (job->err) *job->err = *error;
        return error->status;
    }
    resolve_report(job, lenient ? HEFT_SEVERITY_WARNING : HEFT_SEVERITY_ERROR, error);
    return HEFT_OK;
}

/* Numbers from 1 to the total that no file has. */
static heft_status resolve_missing_numbers(const resolve_job *job, const heft__folder_choice *choice) {
    heft__resolution *r = job->out;
    heft_error error;
    char path[260], missing[300];
    uint64_t n = 0;
    if (!heft__missing_numbers(&r->arena, r->names, r->nnames, choice->total, missing, sizeof missing, &n))
        return resolve_memory(job);
    if (!n) return HEFT_OK;
    r->incomplete = true;
    heft__escape(path, sizeof path, r->path, strlen(r->path));
    heft__fail(&error, HEFT_NOT_FOUND, HEFT_FAULT_SHARD_NUMBERING, "%s: of %llu numbered shards %llu %s missing: %s",
               path, (unsigned long long)choice->total, (unsigned long long)n, n == 1 ? "is" : "are", missing);
    heft__error_at(&error, HEFT_NONE, choice->total, r->nnames);
    return resolve_numbering(job, job->open->options.lenient & HEFT_LENIENT_MISSING_SHARD, &error, n);
}

/* Files with other numbers: two sets that became one, or a file renamed by hand. */
static heft_status resolve_odd_numbers(const resolve_job *job, const heft__folder_choice *choice) {
    heft__resolution *r = job->out;
    heft_error error;
    char path[260];
    resolve_list odd = {0};
    for (uint32_t i = 0; i < r->nnames; i++)
        if (!heft__shard_number_fits(r->names[i])) resolve_list_add(&odd, r->names[i]);
    if (!odd.n) return HEFT_OK;
    heft__escape(path, sizeof path, r->path, strlen(r->path));
    heft__fail(&error, HEFT_MISMATCH, HEFT_FAULT_SHARD_NUMBERING,
               "%s: %llu numbered shard%s no number from 1 to %llu: %s", path, (unsigned long long)odd.n,
               odd.n == 1 ? " has" : "s have", (unsigned long long)choice->total, resolve_list_end(&odd));
    return resolve_numbering(job, false, &error, odd.n);
}

/* Shards that bring no index with them: complete they open with a warning. */
static heft_status resolve_numbered(const resolve_job *job, const heft__folder_choice *choice) {
    heft__resolution *r = job->out;
    char text[420];
    heft_status status = choice->total ? resolve_missing_numbers(job, choice) : HEFT_OK;
    if (!status) status = resolve_odd_numbers(job, choice);
    if (status) return status;
    snprintf(text, sizeof text, "%u shards without an index file, opened as one set", r->nnames);
    if (r->nnames > 1) resolve_warn(job, HEFT_NOT_FOUND, HEFT_FAULT_NO_INDEX, text);
    return HEFT_OK;
}

/* For a check: links that lead nowhere are faults of a set, not the end of it. */
static void resolve_drop_dangling(const resolve_job *job) {
    heft__resolution *r = job->out;
    uint32_t kept = 0;
    if (!job->open->collect || r->nnames < 2) return;
    for (uint32_t i = 0; i < r->nnames; i++) {
        const heft__directory_entry *entry = heft__folder_find(r->entries, r->nentries, r->names[i]);
        if (!entry || entry->kind != HEFT__FILE_DANGLING) {
            r->names[kept++] = r->names[i];
            continue;
        }
        resolve_add_missing(job, r->names[i], true, 0);
    }
    r->nnames = kept;
}

static heft_status resolve_folder(const resolve_job *job, const char *path) {
    heft__resolution *r = job->out;
    r->beneath_levels = resolve_cache_levels(path);
    heft_status status = resolve_open_folder(job, path);
    if (!status && resolve_is_cache(r)) status = resolve_cache(job);
    if (!status) status = resolve_marker(job);
    if (status) return status;
    heft__folder_choice choice;
    resolve_overlays(job);
    if (!resolve_choose(job, job->open->options.index, &choice)) return resolve_memory(job);
    if (!choice.how) return resolve_nothing(job, &choice);
    if (choice.index) return resolve_index(job, choice.index);
    r->how = choice.how;
    r->names = choice.names;
    r->nnames = choice.nnames;
    status = choice.no_index ? resolve_numbered(job, &choice) : HEFT_OK;
    if (!status) resolve_drop_dangling(job);
    return status;
}

/* The path is an index file: its folder is the set's. */
static heft_status resolve_index_path(const resolve_job *job, const char *path) {
    heft__resolution *r = job->out;
    const char *folder = resolve_parent(job, path);
    if (!folder) return resolve_memory(job);
    r->beneath_levels = resolve_cache_levels(folder);
    heft_status status = resolve_open_folder(job, folder);
    if (!status) status = resolve_marker(job);
    if (status) return status;
    resolve_overlays(job);
    if (job->open->options.index != HEFT_INDEX_IGNORE) return resolve_index(job, resolve_base(path));
    r->how = "all files of the folder";
    return resolve_without_index(job);
}

/* ---- a glob ---- */

static heft_status resolve_glob(const resolve_job *job, const char *path) {
    heft__resolution *r = job->out;
    const char *glob = resolve_base(path), *folder = resolve_parent(job, path), *why = NULL;
    size_t len = strlen(glob), at = heft__glob_check(glob, len, &why);
    char text[300];
    heft__escape(text, sizeof text, path, strlen(path));
    if (at != SIZE_MAX) {
        heft__fail(job->err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL,
                   "%s: no such file, and as a glob: %s, at offset %zu", text, why, at);
        heft__error_at(job->err, at, HEFT_NONE, HEFT_NONE);
        return HEFT_INVALID_ARGUMENT;
    }
    if (!folder) return resolve_memory(job);
    r->beneath_levels = resolve_cache_levels(folder);
    heft_status status = resolve_open_folder(job, folder);
    if (status) return status;
    resolve_overlays(job);
    r->names = heft__arena_alloc(&r->arena, r->nentries * sizeof *r->names, sizeof(void *));
    if (!r->names) return resolve_memory(job);
    for (uint64_t i = 0; i < r->nentries; i++) {
        const char *name = r->entries[i].name;
        if (r->entries[i].overlay) continue;
        /* As in shells, a dot file is matched by a glob with a dot only. */
        if (r->entries[i].kind == HEFT__FILE_DIRECTORY || (name[0] == '.' && glob[0] != '.')) continue;
        if (heft__glob_match(glob, len, name, strlen(name))) r->names[r->nnames++] = name;
    }
    r->how = "glob";
    resolve_drop_dangling(job);
    if (r->nnames) return HEFT_OK;
    heft__fail(job->err, HEFT_NOT_FOUND, HEFT_FAULT_NO_FILE, "%s: no such file, and as a glob it matches none", text);
    heft__error_file(job->err, path);
    return HEFT_NOT_FOUND;
}

/* ---- the ways in ---- */

static heft_status resolve_begin(resolve_job *job, const char *path) {
    heft__resolution *r = job->out;
    memset(r, 0, sizeof *r);
    r->alloc = job->open->alloc;
    heft__arena_init(&r->arena, &r->alloc);
    r->how = "one file";
    r->overlays = job->open->options.overlays;
    r->noverlays = (uint32_t)job->open->options.noverlays;
    r->path = resolve_text(job, path, strlen(path));
    r->report = r->path ? heft__report_new(&r->alloc) : NULL;
    if (!r->report) return resolve_memory(job);
    r->report->path = heft__arena_text(&r->report->arena, path, strlen(path));
    return r->report->path ? HEFT_OK : resolve_memory(job);
}

static heft_status resolve_end(const resolve_job *job, heft_status status) {
    if (!status && job->out->report->failed) status = resolve_memory(job);
    if (status) heft__resolution_free(job->out);
    return status;
}

static heft_status resolve_path(const resolve_job *job, const char *path) {
    heft__resolution *r = job->out;
    const char *base = resolve_base(path);
    if (heft__is_index_name(base)) return resolve_index_path(job, path);
    heft_error error;
    heft_status status = heft_source_open_file(path, &r->source, &error);
    if (!status) return HEFT_OK;
    if (error.fault == HEFT_FAULT_NOT_REGULAR) {
        heft__directory *directory = NULL;
        if (!heft__directory_open(path, &directory, NULL)) {
            heft__directory_close(directory);
            return resolve_folder(job, path);
        }
    }
    if (status == HEFT_NOT_FOUND && strpbrk(base, "*?[")) return resolve_glob(job, path);
    if (job->err) *job->err = error;
    return status;
}

heft_status heft__resolve(const char *path, const heft__open_job *open, heft__resolution *out, heft_error *err) {
    resolve_job job = {open, out, err};
    heft_status status = resolve_begin(&job, path);
    if (!status) status = resolve_path(&job, path);
    return resolve_end(&job, status);
}

heft_status heft__resolve_files(const char *const *paths, size_t npaths, const heft__open_job *open,
                                heft__resolution *out, heft_error *err) {
    resolve_job job = {open, out, err};
    heft_status status = resolve_begin(&job, npaths == 1 ? paths[0] : "");
    if (!status) {
        out->how = npaths == 1 ? "one file" : "list of files";
        out->names = heft__arena_alloc(&out->arena, (uint64_t)npaths * sizeof *out->names, sizeof(void *));
        if (!out->names) status = resolve_memory(&job);
    }
    for (size_t i = 0; !status && i < npaths; i++) {
        out->names[i] = resolve_text(&job, paths[i], strlen(paths[i]));
        if (!out->names[i]) status = resolve_memory(&job);
    }
    out->nnames = (uint32_t)npaths;
    return resolve_end(&job, status);
}

heft_status heft__resolve_source(heft_source *source, const heft__open_job *open, heft__resolution *out,
                                 heft_error *err) {
    resolve_job job = {open, out, err};
    heft_status status = resolve_begin(&job, heft_source_label(source));
    if (!status) out->source = heft_source_ref(source);
    return resolve_end(&job, status);
}

void heft__resolution_free(heft__resolution *r) {
    if (r->index) {
        heft__index_free(r->index);
        heft__free(&r->alloc, r->index, sizeof *r->index);
    }
    heft_source_unref(r->source);
    heft__directory_close(r->directory);
    heft__report_free(r->report);
    heft__arena_free(&r->arena);
    memset(r, 0, sizeof *r);
}
