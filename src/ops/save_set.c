/* ops: a set of files: staged one after another, then put in their places together. */
#include "base/checked.h"
#include "base/error.h"
#include "base/text.h"
#include "ops/ops.h"
#include "ops/save_set.h"
#include "write/ties.h"

#include <stdio.h>
#include <string.h>

/* ---- staging ---- */

static int set_progress(void *ctx, uint64_t done, uint64_t total) {
    const heft__set_job *job = ctx;
    (void)total;
    return job->options.progress(job->options.progress_ctx, job->done_nbytes + done, job->total_nbytes);
}

static void set_add_stats(heft_save_stats *sum, const heft_save_stats *one) {
    if (sum->nfiles == 0) sum->header_nbytes = one->header_nbytes;
    sum->file_nbytes += one->file_nbytes;
    sum->data_nbytes += one->data_nbytes;
    sum->filler_nbytes += one->filler_nbytes;
    sum->shared_nbytes += one->shared_nbytes;
    sum->kernel_nbytes += one->kernel_nbytes;
    sum->ntensors += one->ntensors;
    sum->nfillers += one->nfillers;
    sum->nunaligned += one->nunaligned;
    sum->nfiles++;
    if (one->workers > sum->workers) sum->workers = one->workers;
}

heft_status heft__set_job_keep(heft__set_job *job, heft__target *target, uint64_t nbytes, heft_status status,
                               heft_error *err) {
    if (status == HEFT_OK) status = heft__target_seal(target, err);
    if (status == HEFT_OK && !heft__set_change_add(&job->change, target->temp, target->name, nbytes))
        status = heft__fail_memory(err, HEFT_NONE);
    if (status == HEFT_OK) target->temp[0] = 0; /* it is the change's now */
    heft__target_abort(target);
    return status;
}

heft_status heft__set_job_open(const heft__set_job *job, const char *name, uint64_t nbytes, uint64_t shared_nbytes,
                               heft__target *target, heft_error *err) {
    char own[300];
    heft__target_options options = {
        .nbytes = nbytes, .shared_nbytes = shared_nbytes, .overwrite = true, .no_sync = job->options.no_sync};
    /* Nothing keeps the mode of a file whose name is not known; its number is, and failures tell it. */
    unsigned long long number = (unsigned long long)job->stats.nfiles + 1;
    snprintf(own, sizeof own, "%s-%05llu.part", job->set.stem, number);
    return heft__target_open_in(target, &job->folder, name ? name : own, &options, err);
}

/* The sidecar of a file that has been staged. */
static heft_status set_stage_sidecar(heft__set_job *job, const char *name, const heft__save_job *save, heft_error *err) {
    char own[HEFT__TARGET_NAME_MAX + 1];
    heft__json_out json;
    heft__target target;
    if (name && !heft__sidecar_name(name, own, sizeof own))
        return heft__fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_SHARD_NAME, "the name of a sidecar would be too long");
    heft_status status = heft__save_job_sidecar(save, &json, err);
    if (status == HEFT_OK) status = heft__set_job_open(job, name ? own : NULL, json.len, 0, &target, err);
    if (status == HEFT_OK) {
        status = heft__target_write(&target, 0, json.text, json.len, err);
        status = heft__set_job_keep(job, &target, json.len, status, err);
    }
    if (status == HEFT_OK) {
        job->change.renames[job->change.nrenames - 1].beside = true;
        job->stats.file_nbytes += json.len;
    }
    heft__json_out_free(&json);
    return status;
}

heft_status heft__set_job_stage(heft__set_job *job, const char *name, const heft_save_item *items, uint64_t nitems,
                                heft_error *err) {
    heft_save_options options = job->options;
    if (options.progress) {
        options.progress = set_progress;
        options.progress_ctx = job;
    }
    heft__save_job save;
    heft_status status = heft__save_job_make(&save, items, nitems, &options, job->folder.path, err);
    if (status != HEFT_OK) return status;
    heft__target target;
    uint64_t nbytes = save.layout.emit.file_nbytes;
    status = heft__set_job_open(job, name, nbytes, heft__save_job_shareable(&save), &target, err);
    if (status == HEFT_OK)
        status = heft__set_job_keep(job, &target, nbytes, heft__save_job_target(&save, &target, err), err);
    if (status == HEFT_OK) set_add_stats(&job->stats, &save.stats);
    if (status == HEFT_OK && (options.digests & HEFT_DIGEST_SIDECAR)) status = set_stage_sidecar(job, name, &save, err);
    job->done_nbytes += nbytes;
    heft__save_job_free(&save);
    return status;
}

static heft_status set_stage_index(heft__set_job *job, const heft_layout *layout, heft_error *err) {
    heft__target target;
    heft_status status = heft__set_job_open(job, job->index_name, layout->index_nbytes, 0, &target, err);
    if (status != HEFT_OK) return status;
    job->change.has_index = true;
    status = heft__target_write(&target, 0, layout->index, layout->index_nbytes, err);
    return heft__set_job_keep(job, &target, layout->index_nbytes, status, err);
}

/* ---- what is there already ---- */

/* Bytes of a name without the suffix of sidecars. */
static size_t set_bare_len(const char *name, bool *beside) {
    size_t len = strlen(name), suffix = sizeof HEFT__SIDECAR_SUFFIX - 1;
    *beside = len > suffix && strcmp(name + len - suffix, HEFT__SIDECAR_SUFFIX) == 0;
    return *beside ? len - suffix : len;
}

static bool set_is_new(const heft__set_job *job, const heft_layout *layout, const char *name) {
    bool beside, sidecars = job->options.digests & HEFT_DIGEST_SIDECAR;
    size_t len = set_bare_len(name, &beside);
    for (uint64_t i = 0; layout && (sidecars || !beside) && i < layout->nfiles; i++)
        if (strlen(layout->files[i].name) == len && memcmp(layout->files[i].name, name, len) == 0) return true;
    return layout && layout->index && strcmp(name, job->index_name) == 0;
}

/* Whether a name is of a set with this stem. */
static bool set_is_of_stem(const heft__set_job *job, const char *given) {
    heft__shard_number number;
    bool beside;
    char name[HEFT__TARGET_NAME_MAX + 1];
    size_t stem = strlen(job->set.stem), len = set_bare_len(given, &beside);
    if (strncmp(given, job->set.stem, stem) != 0 || len < stem || len >= sizeof name) return false;
    memcpy(name, given, len);
    name[len] = 0;
    if (strcmp(name + stem, ".safetensors") == 0 || strcmp(given, job->index_name) == 0) return true;
    return heft__shard_number_parse(name, &number) && number.stem_len == stem && !number.variant;
}

/* Marks a file of an old set, and its sidecar. */
static void set_mark(heft__directory_entry *entries, uint64_t nentries, const char *name) {
    char beside[HEFT__TARGET_NAME_MAX + 1];
    const heft__directory_entry *entry = heft__folder_find(entries, nentries, name);
    if (entry) entries[entry - entries].named = true;
    if (!heft__sidecar_name(name, beside, sizeof beside)) return;
    entry = heft__folder_find(entries, nentries, beside);
    if (entry) entries[entry - entries].named = true;
}

/* Shards that the old index names are old too, whatever they are called. An index that cannot be read names nothing, unless the
 * memory to read it is what lacks. */
static heft_status set_mark_indexed(const heft__set_job *job, heft__directory *directory, heft__directory_entry *entries,
                                    uint64_t nentries, heft_error *err) {
    heft_source *source;
    heft_error local;
    heft__index index = {0};
    if (!heft__folder_find(entries, nentries, job->index_name)) return HEFT_OK;
    heft_status status = heft__directory_source(directory, job->index_name, false, 0, &source, &local);
    if (status == HEFT_OK) {
        status = heft__index_read(source, &job->alloc, UINT64_C(1) << 30, &index, &local);
        heft_source_unref(source);
    }
    if (status == HEFT_OK) {
        for (uint32_t i = 0; i < index.nshards; i++) set_mark(entries, nentries, index.shards[i]);
        heft__index_free(&index);
    }
    if (status != HEFT_OUT_OF_MEMORY) return HEFT_OK;
    if (err) *err = local;
    return status;
}

static heft_status set_fail_exists(const heft__set_job *job, const char *names, heft_error *err) {
    char path[300];
    heft__escape(path, sizeof path, job->path, strlen(job->path));
    heft__fail(err, HEFT_EXISTS, HEFT_FAULT_FILE_EXISTS, "%s: there is a set already, which is not replaced unless forced:%s",
               path, names);
    heft__error_file(err, job->path);
    return HEFT_EXISTS;
}

/* One entry of the folder. */
static heft_status set_note(heft__set_job *job, const heft_layout *layout, const char *name, heft_error *err) {
    heft__set_change *change = &job->change;
    bool index = layout && strcmp(name, job->index_name) == 0;
    change->old_index = change->old_index || index;
    if (!layout || set_is_new(job, layout, name)) return HEFT_OK; /* an index that there will be again among them */
    if (!heft__set_change_delete(change, name)) return heft__fail_memory(err, HEFT_NONE);
    if (index) { /* it goes first */
        const char *last = change->deletes[change->ndeletes - 1];
        change->deletes[change->ndeletes - 1] = change->deletes[0];
        change->deletes[0] = last;
    }
    return HEFT_OK;
}

heft_status heft__set_job_look(heft__set_job *job, const heft_layout *layout, bool *any, heft_error *err) {
    heft__directory *directory;
    heft__directory_entry *entries;
    uint64_t nentries;
    heft__arena arena;
    char names[400] = "";
    *any = false;
    if (job->set.publish) return HEFT_OK;
    heft_status status = heft__directory_open(job->path, &directory, err);
    if (status != HEFT_OK) return status;
    heft__arena_init(&arena, &job->alloc);
    status = heft__directory_list(directory, &arena, &entries, &nentries, err);
    if (status == HEFT_OK) status = set_mark_indexed(job, directory, entries, nentries, err);
    for (uint64_t i = 0; status == HEFT_OK && i < nentries; i++) {
        const char *name = entries[i].name;
        if (!entries[i].named && !set_is_of_stem(job, name)) continue;
        char escaped[100];
        size_t used = strlen(names);
        heft__escape(escaped, sizeof escaped, name, strlen(name));
        snprintf(names + used, sizeof names - used, "%s %s", *any ? "," : "", escaped);
        *any = true;
        status = set_note(job, layout, name, err);
    }
    if (status == HEFT_OK && *any && !job->options.overwrite) status = set_fail_exists(job, names, err);
    heft__arena_free(&arena);
    heft__directory_close(directory);
    return status;
}

/* ---- from begin to end ---- */

static heft_status set_enter(heft__set_job *job, heft_error *err) {
    uint64_t litter; /* of processes that are gone */
    heft_status status = job->set.create_dir ? heft__set_make_folder(job->path, job->options.no_sync, err) : HEFT_OK;
    if (status == HEFT_OK) status = heft__target_folder_open(&job->folder, job->path, err);
    if (status != HEFT_OK) return status;
    status = heft__set_resume(&job->folder, &job->alloc, true, NULL, err);
    if (status == HEFT_OK) (void)heft__set_clean(job->path, &job->alloc, false, &litter, NULL);
    else heft__target_folder_close(&job->folder);
    return status;
}

heft_status heft__set_job_begin(heft__set_job *job, const char *path, const heft_save_options *options,
                                const heft_set_options *set, heft_error *err) {
    memset(job, 0, sizeof *job);
    job->folder.fd = -1;
    job->path = path;
    heft_status status = heft__save_options_copy(options, &job->options, &job->alloc, err);
    if (status == HEFT_OK) status = heft__set_options_copy(set, &job->set, err);
    if (status == HEFT_OK && job->options.format && strcmp(job->options.format, "safetensors") != 0)
        status = heft__fail(err, HEFT_UNSUPPORTED, HEFT_FAULT_OTHER_FORMAT, "sets are of safetensors files");
    if (status != HEFT_OK) return status;
    snprintf(job->index_name, sizeof job->index_name, "%s.safetensors.index.json", job->set.stem);
    heft__set_change_init(&job->change, &job->alloc);
    job->change.no_sync = job->options.no_sync;
    if (!job->set.publish) return set_enter(job, err);
    status = heft__set_staging_open(&job->staging, path, err);
    if (status != HEFT_OK) return status;
    job->folder = job->staging.folder;
    uint64_t litter;
    (void)heft__set_clean(job->staging.parent.path, &job->alloc, false, &litter, NULL);
    return HEFT_OK;
}

/* Closes what _begin opened. */
static heft_status set_leave(heft__set_job *job, heft_status status, heft_error *err) {
    if (job->set.publish) status = heft__set_staging_close(&job->staging, status, job->options.no_sync, err);
    else heft__target_folder_close(&job->folder);
    heft__set_change_free(&job->change);
    return status;
}

void heft__set_job_abort(heft__set_job *job) {
    heft__set_drop(&job->change, &job->folder);
    (void)set_leave(job, HEFT_CANCELLED, NULL);
}

/* Staged files, and sidecars behind them, get the names of the layout. */
static heft_status set_name_all(heft__set_job *job, const heft_layout *layout, heft_error *err) {
    char beside[HEFT__TARGET_NAME_MAX + 1];
    for (uint64_t i = 0, file = 0; i < job->change.nrenames; i++) {
        heft__set_rename *rename = &job->change.renames[i];
        if (!rename->beside) rename->name = layout->files[file++].name;
        else if (!heft__sidecar_name(rename[-1].name, beside, sizeof beside))
            return heft__fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_SHARD_NAME, "the name of a sidecar would be too long");
        else if (!(rename->name = heft__arena_text(&job->change.arena, beside, strlen(beside))))
            return heft__fail_memory(err, HEFT_NONE);
    }
    return HEFT_OK;
}

heft_status heft__set_job_end(heft__set_job *job, const heft_layout *layout, heft_error *err) {
    bool any = false;
    heft_status status = set_name_all(job, layout, err);
    if (status == HEFT_OK) status = heft__set_job_look(job, layout, &any, err);
    if (status == HEFT_OK && layout->index) status = set_stage_index(job, layout, err);
    if (status == HEFT_OK) status = heft__set_apply(&job->change, &job->folder, any, err);
    else heft__set_drop(&job->change, &job->folder);
    return set_leave(job, status, err);
}

static heft_status set_space(const heft__set_job *job, const heft_layout *layout, heft_error *err) {
    uint64_t free_nbytes, wanted = layout->total_nbytes + layout->index_nbytes;
    if (heft__target_sys_get()->space(job->folder.fd, &free_nbytes) != 0 || wanted <= free_nbytes) return HEFT_OK;
    return heft__target_fail_space(err, job->path, wanted, free_nbytes);
}

heft_status heft__save_set(const char *path, const heft_save_item *items, uint64_t nitems,
                           const heft_save_options *options, const heft_set_options *set_options,
                           heft_save_stats *stats, heft_error *err) {
    heft_save_options checked;
    heft_set_options set;
    heft_allocator alloc;
    heft_layout *layout = NULL;
    heft_status status = heft__save_options_copy(options, &checked, &alloc, err);
    if (status == HEFT_OK) status = heft__set_options_copy(set_options, &set, err);
    uint64_t ntied = 0; /* also from file to file */
    if (status == HEFT_OK) status = heft__set_layout(items, nitems, &checked, &set, &alloc, &layout, err);
    if (status == HEFT_OK) status = heft__ties_count(items, nitems, &alloc, &ntied, err);
    if (status != HEFT_OK) {
        heft_layout_free(layout);
        return status;
    }
    heft__set_job *job = heft__alloc(&alloc, sizeof *job);
    status = job ? heft__set_job_begin(job, path, options, set_options, err) : heft__fail_memory(err, sizeof *job);
    if (status == HEFT_OK) {
        bool any;
        job->total_nbytes = layout->total_nbytes;
        status = heft__set_job_look(job, NULL, &any, err);
        bool shares = !job->options.no_share && heft__save_can_share(items, nitems, job->folder.path);
        if (status == HEFT_OK && !shares) status = set_space(job, layout, err); /* else each file tells what it needs */
        for (uint64_t i = 0; i < layout->nfiles && status == HEFT_OK; i++) {
            const heft_layout_file *file = &layout->files[i];
            status = heft__set_job_stage(job, file->name, heft__items_from(items, file->first_item), file->nitems, err);
        }
        if (status == HEFT_OK) status = heft__set_job_end(job, layout, err);
        else heft__set_job_abort(job);
        job->stats.ntied = ntied;
        if (status == HEFT_OK && stats) *stats = job->stats;
    }
    heft_layout_free(layout);
    heft__free(&alloc, job, sizeof *job);
    return status;
}

/* ---- some files of a set replaced ---- */

/* Names of files, and all items as one list, checked together: *items is a block of layout->nitems. */
static heft_status replace_gather(heft_layout *layout, const heft_set_file *files, heft_save_item *items, uint64_t *nbytes,
                                  uint64_t *nelems, heft_error *err) {
    uint64_t at = 0;
    for (uint64_t f = 0; f < layout->nfiles; f++) {
        const char *name = files[f].name;
        const char *fault = name ? heft__path_component_fault(name, strlen(name)) : "it is NULL";
        if (!fault && name[0] == '.') fault = "it begins with a dot";
        for (size_t i = 0; !fault && i < sizeof files->reserved / sizeof *files->reserved; i++)
            if (files[f].reserved[i]) fault = "a reserved field beside it is not 0";
        for (uint64_t other = 0; !fault && other < f; other++)
            if (strcmp(files[other].name, name) == 0) fault = "two files have it";
        if (fault)
            return heft__fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_SHARD_NAME, "the name of file %llu cannot be used: %s",
                              (unsigned long long)f, fault);
        layout->files[f] = (heft_layout_file){.name = name, .first_item = at, .nitems = files[f].nitems};
        for (uint64_t i = 0; i < files[f].nitems; i++, at++) {
            heft__item item;
            heft_status status = heft__item_check(&files[f].items[i], i, &item, err);
            if (status != HEFT_OK) return status;
            items[at] = files[f].items[i];
            layout->tensors[at] = (heft_layout_tensor){.file = (uint32_t)f};
            if (!heft__add_u64(*nbytes, item.nbytes, nbytes) || !heft__add_u64(*nelems, item.nelems, nelems))
                return heft__fail(err, HEFT_LIMIT, HEFT_FAULT_CALLER_LIMIT, "the tensors are more than 2^64 bytes together");
        }
    }
    return heft__items_check_names(items, layout->nitems, &layout->alloc, err);
}

/* The layout of all files, kept ones among them, with the text of the index. */
static heft_status replace_layout(const heft_set_file *files, uint64_t nfiles, bool index, const heft_set_options *set,
                                  const heft_allocator *alloc, heft_layout **out, heft_error *err) {
    uint64_t nitems = 0, nbytes = 0, nelems = 0;
    for (uint64_t f = 0; f < nfiles; f++)
        if (!heft__add_u64(nitems, files[f].nitems, &nitems)) nitems = UINT64_MAX;
    if (nitems >= UINT32_MAX / 2 || nfiles >= UINT32_MAX)
        return heft__fail(err, HEFT_LIMIT, HEFT_FAULT_CALLER_LIMIT, "too many items or files");
    heft_layout *layout = heft__alloc_zero(alloc, sizeof *layout);
    if (!layout) return heft__fail_memory(err, sizeof *layout);
    layout->alloc = *alloc;
    heft__arena_init(&layout->arena, alloc);
    heft_save_item *items = heft__alloc(alloc, nitems * sizeof *items);
    layout->files = heft__alloc(alloc, nfiles * sizeof *layout->files);
    layout->tensors = heft__alloc(alloc, nitems * sizeof *layout->tensors);
    if (layout->files) layout->nfiles = layout->files_capacity = nfiles;
    if (layout->tensors) layout->nitems = nitems;
    heft_status status = items && layout->files && layout->tensors
                             ? replace_gather(layout, files, items, &nbytes, &nelems, err)
                             : heft__fail_memory(err, nitems * sizeof *items);
    if (status == HEFT_OK && index) status = heft__shards_index(layout, items, set, nbytes, nelems, err);
    heft__free(alloc, items, nitems * sizeof *items);
    if (status == HEFT_OK) *out = layout;
    else heft_layout_free(layout);
    return status;
}

/* A sidecar of the file that is replaced goes with it. */
static heft_status replace_sidecar(heft__set_job *job, const char *name, heft_error *err) {
    char beside[HEFT__TARGET_NAME_MAX + 1];
    bool there = false;
    if (!heft__sidecar_name(name, beside, sizeof beside)) return HEFT_OK;
    heft_status status = heft__target_folder_has(&job->folder, beside, &there, err);
    if (status == HEFT_OK && there && !heft__set_change_delete(&job->change, beside)) status = heft__fail_memory(err, HEFT_NONE);
    return status;
}

/* One file by its own options, but for those of the whole. */
static heft_status replace_stage(heft__set_job *job, const heft_set_file *file, heft_error *err) {
    heft_save_options whole = job->options, own;
    heft_allocator alloc;
    heft_status status = heft__save_options_copy(file->options, &own, &alloc, err);
    if (status != HEFT_OK) return status;
    if (own.format && strcmp(own.format, "safetensors") != 0)
        return heft__fail(err, HEFT_UNSUPPORTED, HEFT_FAULT_OTHER_FORMAT, "sets are of safetensors files");
    own.no_sync = whole.no_sync;
    own.allocator = whole.allocator;
    own.progress = whole.progress;
    own.progress_ctx = whole.progress_ctx;
    job->options = own;
    status = heft__set_job_stage(job, file->name, file->items, file->nitems, err);
    job->options = whole;
    return status == HEFT_OK && !(own.digests & HEFT_DIGEST_SIDECAR) ? replace_sidecar(job, file->name, err) : status;
}

static heft_status replace_run(heft__set_job *job, const heft_set_file *files, const heft_layout *layout, heft_error *err) {
    heft_status status = HEFT_OK;
    for (uint64_t i = 0; i < layout->nfiles; i++) /* near enough for progress: headers are small */
        for (uint64_t k = 0; !files[i].keep && k < files[i].nitems; k++) {
            heft__item item;
            if (heft__item_check(&files[i].items[k], k, &item, NULL) == HEFT_OK) job->total_nbytes += item.nbytes;
        }
    for (uint64_t i = 0; i < layout->nfiles && status == HEFT_OK; i++)
        if (!files[i].keep) status = replace_stage(job, &files[i], err);
    if (status == HEFT_OK && layout->index) status = set_stage_index(job, layout, err);
    if (status == HEFT_OK && layout->index && job->change.nrenames > 1)
        status = heft__target_folder_has(&job->folder, job->index_name, &job->change.old_index, err);
    if (status != HEFT_OK) heft__set_drop(&job->change, &job->folder);
    else if (job->change.nrenames) status = heft__set_apply(&job->change, &job->folder, true, err);
    return set_leave(job, status, err);
}

heft_status heft__set_replace(const char *path, const heft_set_file *files, uint64_t nfiles, const char *index,
                              const heft_save_options *options, const heft_set_options *set_options,
                              heft_save_stats *stats, heft_error *err) {
    heft_save_options checked;
    heft_set_options set;
    heft_layout *layout = NULL;
    heft_allocator alloc;
    heft_status status = heft__save_options_copy(options, &checked, &alloc, err);
    if (status == HEFT_OK) status = heft__set_options_copy(set_options, &set, err);
    if (status == HEFT_OK && (set.publish || set.create_dir))
        status = heft__fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL, "files are replaced in a folder that is there");
    const char *fault = index ? heft__path_component_fault(index, strlen(index)) : NULL;
    if (status == HEFT_OK && fault)
        status = heft__fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_SHARD_NAME, "the name of the index cannot be used: %s", fault);
    if (status == HEFT_OK) status = replace_layout(files, nfiles, index != NULL, &set, &alloc, &layout, err);
    if (status != HEFT_OK) return status;
    heft__set_job *job = heft__alloc(&alloc, sizeof *job);
    status = job ? heft__set_job_begin(job, path, options, set_options, err) : heft__fail_memory(err, sizeof *job);
    if (status == HEFT_OK) {
        if (index) snprintf(job->index_name, sizeof job->index_name, "%s", index);
        status = replace_run(job, files, layout, err);
        if (status == HEFT_OK && stats) *stats = job->stats;
    }
    heft_layout_free(layout);
    heft__free(&alloc, job, sizeof *job);
    return status;
}
