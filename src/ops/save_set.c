/* ops: a set of files: staged one after another, then put in their places together. */
#include "base/error.h"
#include "base/text.h"
#include "ops/ops.h"
#include "ops/save_set.h"

#include <stdio.h>
#include <string.h>

typedef struct set_job {
    heft_save_options options;
    heft_set_options set;
    heft_allocator alloc;
    const heft_save_item *items;
    heft_layout *layout;
    heft__set_change change;
    char index_name[300];
    heft_save_stats stats;
    uint64_t done_nbytes; /* of the files before the present one */
    heft_error *err;
} set_job;

/* ---- staging ---- */

static int set_progress(void *ctx, uint64_t done, uint64_t total) {
    const set_job *job = ctx;
    (void)total;
    return job->options.progress(job->options.progress_ctx, job->done_nbytes + done, job->layout->total_nbytes);
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
    sum->nfiles++;
    if (one->workers > sum->workers) sum->workers = one->workers;
}

/* Finishes a target but for its rename, and notes what is to be renamed. */
static heft_status set_keep(set_job *job, heft__target *target, uint64_t nbytes, heft_status status) {
    if (status == HEFT_OK) status = heft__target_seal(target, job->err);
    if (status == HEFT_OK && !heft__set_change_add(&job->change, target->temp, target->name, nbytes))
        status = heft__fail_memory(job->err, HEFT_NONE);
    if (status == HEFT_OK) target->temp[0] = 0; /* it is the change's now */
    heft__target_abort(target);
    return status;
}

static heft__target_options set_target_options(const set_job *job, uint64_t nbytes) {
    return (heft__target_options){.nbytes = nbytes, .overwrite = true, .no_sync = job->options.no_sync};
}

static heft_status set_stage_file(set_job *job, const heft__target_folder *folder, const heft_layout_file *file) {
    heft_save_options options = job->options;
    if (options.progress) {
        options.progress = set_progress;
        options.progress_ctx = job;
    }
    heft__save_job save;
    heft_status status = heft__save_job_make(&save, job->items + file->first_item, file->nitems, &options, job->err);
    if (status != HEFT_OK) return status;
    heft__target target;
    heft__target_options target_options = set_target_options(job, file->file_nbytes);
    status = heft__target_open_in(&target, folder, file->name, &target_options, job->err);
    if (status == HEFT_OK) {
        status = heft__save_job_target(&save, &target, job->err);
        status = set_keep(job, &target, file->file_nbytes, status);
    }
    if (status == HEFT_OK) set_add_stats(&job->stats, &save.stats);
    job->done_nbytes += file->file_nbytes;
    heft__save_job_free(&save);
    return status;
}

static heft_status set_stage_index(set_job *job, const heft__target_folder *folder) {
    heft__target target;
    heft__target_options options = set_target_options(job, job->layout->index_nbytes);
    heft_status status = heft__target_open_in(&target, folder, job->index_name, &options, job->err);
    if (status != HEFT_OK) return status;
    status = heft__target_write(&target, 0, job->layout->index, job->layout->index_nbytes, job->err);
    job->change.has_index = true;
    return set_keep(job, &target, job->layout->index_nbytes, status);
}

static heft_status set_space(const set_job *job, const heft__target_folder *folder) {
    uint64_t free_nbytes, wanted = job->layout->total_nbytes + job->layout->index_nbytes;
    if (heft__target_sys_get()->space(folder->fd, &free_nbytes) != 0 || wanted <= free_nbytes) return HEFT_OK;
    char name[300];
    heft__escape(name, sizeof name, folder->path, strlen(folder->path));
    heft__fail(job->err, HEFT_LIMIT, HEFT_FAULT_NO_SPACE,
               "%s: no space left on the device: %llu bytes are needed and %llu are free", name,
               (unsigned long long)wanted, (unsigned long long)free_nbytes);
    heft__error_file(job->err, folder->path);
    heft__error_at(job->err, HEFT_NONE, wanted, free_nbytes);
    return HEFT_LIMIT;
}

static heft_status set_stage(set_job *job, const heft__target_folder *folder) {
    heft_status status = set_space(job, folder);
    for (uint64_t i = 0; i < job->layout->nfiles && status == HEFT_OK; i++)
        status = set_stage_file(job, folder, &job->layout->files[i]);
    if (status == HEFT_OK && job->layout->index) status = set_stage_index(job, folder);
    return status;
}

/* ---- what is there already ---- */

static bool set_is_new(const set_job *job, const char *name) {
    for (uint64_t i = 0; i < job->layout->nfiles; i++)
        if (strcmp(job->layout->files[i].name, name) == 0) return true;
    return job->layout->index && strcmp(name, job->index_name) == 0;
}

/* Whether a name is of a set with this stem. */
static bool set_is_of_stem(const set_job *job, const char *name) {
    heft__shard_number number;
    size_t len = strlen(job->set.stem);
    if (strncmp(name, job->set.stem, len) != 0) return false;
    if (strcmp(name + len, ".safetensors") == 0 || strcmp(name, job->index_name) == 0) return true;
    return heft__shard_number_parse(name, &number) && number.stem_len == len && !number.variant;
}

/* Shards that the old index names are old too, whatever they are called. An index that cannot be read names nothing. */
static void set_mark_indexed(const set_job *job, heft__directory *directory, heft__directory_entry *entries,
                             uint64_t nentries) {
    heft_source *source;
    heft__index index = {0};
    if (!heft__folder_find(entries, nentries, job->index_name)) return;
    if (heft__directory_source(directory, job->index_name, false, 0, &source, NULL) != HEFT_OK) return;
    if (heft__index_read(source, &job->alloc, UINT64_C(1) << 30, &index, NULL) == HEFT_OK) {
        for (uint32_t i = 0; i < index.nshards; i++) {
            const heft__directory_entry *entry = heft__folder_find(entries, nentries, index.shards[i]);
            if (entry) entries[entry - entries].named = true;
        }
        heft__index_free(&index);
    }
    heft_source_unref(source);
}

static heft_status set_fail_exists(const set_job *job, const char *folder, const char *names) {
    char path[300];
    heft__escape(path, sizeof path, folder, strlen(folder));
    heft__fail(job->err, HEFT_EXISTS, HEFT_FAULT_FILE_EXISTS, "%s: there is a set already, which is not replaced unless forced:%s",
               path, names);
    heft__error_file(job->err, folder);
    return HEFT_EXISTS;
}

/* Notes old files that must go, and whether any file of an old set is there. */
static heft_status set_old_files(set_job *job, const char *path, bool *any) {
    heft__directory *directory;
    heft__directory_entry *entries;
    uint64_t nentries;
    heft__arena arena;
    char names[400] = "";
    *any = false;
    heft_status status = heft__directory_open(path, &directory, job->err);
    if (status != HEFT_OK) return status;
    heft__arena_init(&arena, &job->alloc);
    status = heft__directory_list(directory, &arena, &entries, &nentries, job->err);
    if (status == HEFT_OK) set_mark_indexed(job, directory, entries, nentries);
    for (uint64_t i = 0; i < nentries && status == HEFT_OK; i++) {
        const char *name = entries[i].name;
        if (!entries[i].named && !set_is_of_stem(job, name)) continue;
        char escaped[100];
        size_t used = strlen(names);
        heft__escape(escaped, sizeof escaped, name, strlen(name));
        snprintf(names + used, sizeof names - used, "%s %s", *any ? "," : "", escaped);
        *any = true;
        bool index = job->layout->index && strcmp(name, job->index_name) == 0; /* of the old set, and there will be another */
        job->change.old_index = job->change.old_index || index;
        if (!index && !set_is_new(job, name) && !heft__set_change_delete(&job->change, name))
            status = heft__fail_memory(job->err, HEFT_NONE);
    }
    if (status == HEFT_OK && *any && !job->options.overwrite) status = set_fail_exists(job, path, names);
    heft__arena_free(&arena);
    heft__directory_close(directory);
    return status;
}

/* ---- whole sets ---- */

static heft_status set_in_place(set_job *job, const char *path) {
    heft__target_folder folder;
    bool any = false;
    if (job->set.create_dir) {
        heft_status made = heft__set_make_folder(path, job->err);
        if (made != HEFT_OK) return made;
    }
    heft_status status = heft__target_folder_open(&folder, path, job->err);
    if (status != HEFT_OK) return status;
    status = heft__set_resume(&folder, &job->alloc, true, NULL, job->err);
    uint64_t litter; /* of processes that are gone */
    if (status == HEFT_OK) (void)heft__set_clean(path, &job->alloc, false, &litter, NULL);
    if (status == HEFT_OK) status = set_old_files(job, path, &any);
    if (status == HEFT_OK) status = set_stage(job, &folder);
    job->change.no_sync = job->options.no_sync;
    if (status == HEFT_OK) status = heft__set_apply(&job->change, &folder, any, job->err);
    else heft__set_drop(&job->change, &folder);
    heft__target_folder_close(&folder);
    return status;
}

static heft_status set_published(set_job *job, const char *path) {
    heft__set_staging staging;
    heft_status status = heft__set_staging_open(&staging, path, job->err);
    if (status != HEFT_OK) return status;
    status = set_stage(job, &staging.folder);
    job->change.no_sync = job->options.no_sync;
    if (status == HEFT_OK) status = heft__set_apply(&job->change, &staging.folder, false, job->err);
    else heft__set_drop(&job->change, &staging.folder);
    return heft__set_staging_close(&staging, status, job->options.no_sync, job->err);
}

heft_status heft__save_set(const char *path, const heft_save_item *items, uint64_t nitems,
                           const heft_save_options *options, const heft_set_options *set_options,
                           heft_save_stats *stats, heft_error *err) {
    set_job *job;
    heft_save_options checked;
    heft_allocator alloc;
    heft_status status = heft__save_options_copy(options, &checked, &alloc, err);
    if (status != HEFT_OK) return status;
    if (!(job = heft__alloc_zero(&alloc, sizeof *job))) return heft__fail_memory(err, sizeof *job);
    job->options = checked;
    job->alloc = alloc;
    job->items = items;
    job->err = err;
    heft__set_change_init(&job->change, &alloc);
    status = heft__set_options_copy(set_options, &job->set, err);
    if (status == HEFT_OK) status = heft__set_layout(items, nitems, &job->options, &job->set, &alloc, &job->layout, err);
    if (status == HEFT_OK) {
        snprintf(job->index_name, sizeof job->index_name, "%s.safetensors.index.json", job->set.stem);
        status = job->set.publish ? set_published(job, path) : set_in_place(job, path);
    }
    if (status == HEFT_OK && stats) *stats = job->stats;
    heft_layout_free(job->layout);
    heft__set_change_free(&job->change);
    heft__free(&alloc, job, sizeof *job);
    return status;
}
