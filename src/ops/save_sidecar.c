/* ops: sidecars of digests: where they lie, how they are written, and when an old one goes. */
#include "base/error.h"
#include "base/text.h"
#include "ops/save.h"
#include "zip/zip.h"

#include <string.h>

bool heft__sidecar_name(const char *name, char *out, size_t size) {
    size_t len = strlen(name), suffix = sizeof HEFT__SIDECAR_SUFFIX;
    if (len == 0 || len + suffix > size) return false;
    memcpy(out, name, len);
    memcpy(out + len, HEFT__SIDECAR_SUFFIX, suffix);
    return true;
}

/* The sidecar beside the file in `folder`, and beside the link that leads to it. */
static heft_status sidecar_remove(const heft__target *target, const heft__target_folder *folder, heft_error *err) {
    char name[HEFT__TARGET_NAME_MAX + 1], path[HEFT__TARGET_PATH_MAX];
    bool there = false;
    heft_status status = HEFT_OK;
    if (heft__sidecar_name(target->name, name, sizeof name)) status = heft__target_folder_has(folder, name, &there, err);
    if (status == HEFT_OK && there) status = heft__target_folder_unlink(folder, name, err);
    /* For good: nothing says that a disk keeps the order of this and of the rename. */
    if (status == HEFT_OK && there && !target->no_sync) status = heft__target_folder_sync(folder, err);
    if (status == HEFT_OK && target->followed && heft__sidecar_name(target->path, path, sizeof path))
        status = heft__target_unlink(path, err);
    return status;
}

/* Before the rename, so that whoever dies between has left no sidecar of the old file; and after it, as another save of the path
 * may have written one meanwhile, if the file is not another one already, whose save does the same. */
heft_status heft__save_publish(heft__target *target, heft__target_status *out, heft_error *err) {
    heft__target_folder folder = target->folder;
    heft__target_status file = {0};
    bool borrowed = target->borrowed, mine;
    heft_status status = heft__target_stat(target, &file, err);
    if (status == HEFT_OK) status = sidecar_remove(target, &folder, err);
    target->borrowed = true; /* it is needed once more */
    if (status == HEFT_OK) {
        status = heft__target_publish(target, err);
        if (status == HEFT_OK) status = heft__target_leads(target->path, file.device, file.inode, &mine, err);
        if (status == HEFT_OK && mine) status = sidecar_remove(target, &folder, err);
    } else {
        heft__target_abort(target);
    }
    if (!borrowed) heft__target_folder_close(&folder);
    if (out) *out = file;
    return status;
}

heft_status heft__save_job_sidecar(const heft__save_job *job, heft__json_out *json, heft_error *err) {
    const heft__digests *digests = &job->layout.digests;
    return heft__digests_sidecar(&job->layout.emit, (const uint8_t(*)[16])digests->tensors, digests->data, json, err);
}

/* Before the rename and after it: in between another save may have replaced the file and have found no sidecar to remove. */
heft_status heft__sidecar_write(const char *path, const heft__json_out *text, uint64_t device, uint64_t inode,
                                const heft_save_options *options, bool *other, heft_error *err) {
    char name[HEFT__TARGET_PATH_MAX];
    heft__target target;
    heft__target_status own;
    heft__target_options wanted = {
        .nbytes = text->len, .links = options->symlink, .overwrite = options->overwrite, .no_sync = options->no_sync};
    bool leads = true;
    *other = false;
    if (!heft__sidecar_name(path, name, sizeof name))
        return heft__fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL, "the path of the sidecar is empty or too long");
    heft_status status = heft__target_open(&target, name, &wanted, err);
    if (status != HEFT_OK) return status;
    heft__target_folder folder = target.folder;
    target.borrowed = true;
    status = heft__target_write(&target, 0, text->text, text->len, err);
    if (status == HEFT_OK) status = heft__target_stat(&target, &own, err);
    if (status == HEFT_OK) status = heft__target_leads(path, device, inode, &leads, err);
    if (status == HEFT_OK && leads) {
        status = heft__target_publish(&target, err);
        if (status == HEFT_OK) status = heft__target_leads(path, device, inode, &leads, err);
        if (status == HEFT_OK && !leads) status = heft__target_folder_unlink_of(&folder, target.name, own.inode, err);
    } else {
        heft__target_abort(&target);
    }
    heft__target_folder_close(&folder);
    *other = !leads;
    return status;
}

heft_status heft__sidecar_path_leads(heft_source *source, bool *leads, heft_error *err) {
    const heft__identity *mine = &heft__source_base(heft__unpack_file(source))->identity;
    heft_error local;
    *leads = false;
    if (!mine->known) return HEFT_OK;
    heft_status status = heft__target_leads(heft_source_label(source), mine->device, mine->inode, leads, &local);
    if (status == HEFT_OK || status == HEFT_NOT_FOUND || status == HEFT_PERMISSION) return HEFT_OK; /* a label may be anything */
    if (err) *err = local;
    return status;
}

/* ---- of files that are there ------------------------------------------------------------------------------------- */

typedef struct sidecar_job {
    const heft_archive *archive;
    uint64_t next; /* id: they ascend with files */
    uint8_t (*digests)[16]; /* by id */
    heft__emit_entry *entries;
    uint8_t (*own)[16]; /* of the entries */
} sidecar_job;

/* The tensors of the next file, as entries of a file that is written. */
static uint64_t sidecar_gather(sidecar_job *job, uint32_t number) {
    const heft_archive *archive = job->archive;
    uint64_t n = 0;
    for (; job->next < archive->ntensors; job->next++) {
        uint32_t file;
        const heft__entry *entry = heft__archive_entry(archive, job->next, &file);
        if (file != number) break;
        if (entry->flags & HEFT__ENTRY_FILLER) continue;
        job->entries[n] = (heft__emit_entry){.name = entry->name, .name_len = entry->name_len};
        memcpy(job->own[n++], job->digests[job->next], 16);
    }
    return n;
}

static heft_status sidecar_file(sidecar_job *job, uint32_t number, const heft_save_options *options,
                                const heft_allocator *alloc, heft_error *err) {
    const heft__listing *listing = job->archive->files[number];
    heft__emit emit = {.alloc = *alloc, .entries = job->entries, .file_nbytes = heft__listing_file_nbytes(listing)};
    char data[HEFT__DIGEST_TEXT_MOST];
    uint8_t whole[16];
    heft__json_out json;
    emit.nentries = sidecar_gather(job, number);
    heft_status status = heft__digests_of_all(alloc, (const uint8_t(*)[16])job->own, emit.nentries, whole, err);
    if (status != HEFT_OK) return status;
    heft__digest_text(whole, 16, data);
    bool all = listing->nwithheld == 0 && listing->nreplaced == 0;
    status = heft__digests_sidecar(&emit, (const uint8_t(*)[16])job->own, all ? data : NULL, &json, err);
    const heft__identity *identity = &heft__source_base(heft__unpack_file(listing->source))->identity;
    const char *path = heft_source_label(listing->source);
    bool other = false;
    if (status == HEFT_OK)
        status = heft__sidecar_write(path, &json, identity->device, identity->inode, options, &other, err);
    if (status == HEFT_OK && other) {
        status = heft__fail(err, HEFT_MISMATCH, HEFT_FAULT_FILE_CHANGED, "another file has taken its place; open it again");
        heft__error_file(err, path);
    }
    heft__json_out_free(&json);
    return status;
}

heft_status heft__archive_write_sidecars(const heft_archive *archive, const heft_allocator *alloc,
                                         const heft_read_options *options, const heft_save_options *save_options,
                                         heft_error *err) {
    uint64_t n = archive->ntensors;
    for (uint32_t i = 0; i < archive->nfiles; i++) {
        heft_source *source = archive->files[i]->source;
        bool leads;
        heft_status known = heft__sidecar_path_leads(source, &leads, err);
        if (known != HEFT_OK) return known;
        if (leads) continue;
        char name[300];
        const char *label = heft_source_label(source);
        heft__escape(name, sizeof name, label, strlen(label));
        return heft__fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL,
                          "%s: no file of this path is open, so no sidecar can lie beside it", name);
    }
    sidecar_job job = {.archive = archive};
    job.digests = heft__alloc(alloc, n * sizeof *job.digests);
    job.entries = heft__alloc(alloc, n * sizeof *job.entries);
    job.own = heft__alloc(alloc, n * sizeof *job.own);
    heft_status status = job.digests && job.entries && job.own ? HEFT_OK : heft__fail_memory(err, n * sizeof *job.entries);
    if (status == HEFT_OK) status = heft__archive_digests(archive, alloc, NULL, n, options, job.digests, err);
    for (uint32_t i = 0; i < archive->nfiles && status == HEFT_OK; i++)
        status = sidecar_file(&job, i, save_options, alloc, err);
    heft__free(alloc, job.digests, n * sizeof *job.digests);
    heft__free(alloc, job.entries, n * sizeof *job.entries);
    heft__free(alloc, job.own, n * sizeof *job.own);
    return status;
}
