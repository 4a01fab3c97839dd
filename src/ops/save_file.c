/* ops: one file, from items to its name: laid out, written, synced, read back if asked for, renamed. */
#include "base/error.h"
#include "ops/save_set.h"
#include "write/ties.h"

#include <string.h>

/* What has to be on the disk anyway goes there faster past the page cache, if it is large. */
#define SAVE_DIRECT_LEAST (UINT64_C(16) << 20)

/* Lays out once more where more blanks in the header bring more of the bytes that come from files to the offsets that they have
 * there, modulo the blocks of file systems. */
static heft_status save_match(heft__save_job *job, const heft_save_item *items, uint64_t nitems, heft_error *err) {
    uint64_t nparts, most = heft__parts_most(&job->layout), shift = 0;
    heft__part *parts;
    heft_status status = heft__parts_make(&job->layout, items, &job->options, NULL, &parts, &nparts, err);
    if (status == HEFT_OK) shift = heft__save_shift(parts, nparts);
    heft__free(&job->alloc, parts, most * sizeof *parts);
    if (status == HEFT_OK && shift == 0) return HEFT_OK;
    if (status != HEFT_OK) {
        heft__layout_free(&job->layout);
        return status;
    }
    job->options.reserve_header_nbytes = job->layout.emit.header_nbytes + shift;
    heft__layout_free(&job->layout);
    return heft__layout_make(&job->layout, items, nitems, &job->options, &job->alloc, err);
}

/* Bytes that are not shared: someone has to see them. */
static bool save_needs_bytes(const heft__save_job *job) {
    return job->options.no_share || job->options.digests || job->layout.emitter->wants_crc32;
}

heft_status heft__save_job_make(heft__save_job *job, const heft_save_item *items, uint64_t nitems,
                                const heft_save_options *options, const char *path, heft_error *err) {
    memset(job, 0, sizeof *job);
    heft_status status = heft__save_options_copy(options, &job->options, &job->alloc, err);
    if (status != HEFT_OK) return status;
    status = heft__layout_make(&job->layout, items, nitems, &job->options, &job->alloc, err);
    if (status != HEFT_OK) return status;
    job->shares = !save_needs_bytes(job) && heft__save_can_share(items, nitems, path);
    if (job->options.match_source && job->shares) status = save_match(job, items, nitems, err);
    if (status != HEFT_OK) return status;
    if (job->layout.emitter->wants_crc32) {
        uint64_t nbytes = job->layout.emit.nentries * sizeof *job->crcs;
        job->crcs = heft__alloc_zero(&job->alloc, nbytes);
        if (!job->crcs) status = heft__fail_memory(err, nbytes);
    }
    if (status == HEFT_OK)
        status = heft__parts_make(&job->layout, items, &job->options, job->crcs, &job->parts, &job->nparts, err);
    job->parts_most = heft__parts_most(&job->layout);
    job->items = job->layout.turned ? job->layout.turned : items;
    if (status == HEFT_OK) status = heft__ties_count(items, nitems, &job->alloc, &job->ntied, err);
    if (status != HEFT_OK) heft__save_job_free(job);
    return status;
}

void heft__save_job_free(heft__save_job *job) {
    heft__free(&job->alloc, job->parts, job->parts_most * sizeof *job->parts);
    heft__free(&job->alloc, job->crcs, job->layout.emit.nentries * sizeof *job->crcs);
    heft__layout_free(&job->layout);
}

static void save_count(heft__save_job *job, const heft__save_run *run) {
    const heft__emit *emit = &job->layout.emit;
    heft_save_stats *out = &job->stats;
    *out = (heft_save_stats){.file_nbytes = emit->file_nbytes,
                             .header_nbytes = emit->header_nbytes,
                             .shared_nbytes = run->shared_nbytes,
                             .kernel_nbytes = run->kernel_nbytes,
                             .ntied = job->ntied,
                             .nfiles = 1,
                             .workers = run->most_workers ? run->most_workers : 1};
    for (uint64_t i = 0; i < emit->nentries; i++) {
        bool filler = emit->entries[i].item == UINT32_MAX;
        *(filler ? &out->nfillers : &out->ntensors) += 1;
        *(filler ? &out->filler_nbytes : &out->data_nbytes) += emit->entries[i].nbytes;
        out->nunaligned += emit->entries[i].nbytes && emit->entries[i].offset % heft__dtypes[emit->entries[i].dtype].align;
    }
}

static heft_status save_pieces(const heft__emit *emit, const heft__sink *sink, heft_error *err) {
    heft_status status = HEFT_OK;
    for (uint64_t i = 0; i < emit->npieces && status == HEFT_OK; i++)
        status = heft__sink_put(sink, emit->pieces[i].offset, emit->pieces[i].bytes, emit->pieces[i].nbytes, err);
    return status;
}

static heft_status save_cancelled(heft_error *err) {
    return heft__fail(err, HEFT_CANCELLED, HEFT_FAULT_CALL, "the progress callback asked to stop");
}

heft_status heft__save_job_run(heft__save_job *job, const heft__sink *sink, heft_error *err) {
    heft__emit *emit = &job->layout.emit;
    const heft__emitter *emitter = job->layout.emitter;
    const heft_save_options *options = &job->options;
    heft__save_run run = {.alloc = job->alloc,
                          .sink = *sink,
                          .workers = options->workers,
                          .no_share = save_needs_bytes(job),
                          .progress = sink->compare ? NULL : options->progress,
                          .progress_ctx = options->progress_ctx};
    for (uint64_t i = 0; i < job->nparts; i++) run.total_nbytes += job->parts[i].nbytes;
    atomic_init(&run.done_nbytes, 0);
    if (run.progress && run.progress(run.progress_ctx, 0, run.total_nbytes)) return save_cancelled(err);
    if (emit->late && sink->write)
        return heft__fail(err, HEFT_UNSUPPORTED, HEFT_FAULT_CALL, "%s files cannot be written in order", emitter->name);
    heft_status status = heft__save_run_parts(&run, job->parts, job->nparts, err);
    if (status == HEFT_OK && !sink->compare) status = heft__digests_finish(&job->layout, err);
    if (status == HEFT_OK && !sink->compare) status = heft__save_compare_kept(job, err);
    if (status == HEFT_OK && emit->late) {
        for (uint64_t i = 0; job->crcs && i < emit->nentries; i++) emit->entries[i].crc32 = atomic_load(&job->crcs[i]);
        if (!sink->compare) status = emitter->finish(emit, err);
        if (status == HEFT_OK) status = save_pieces(emit, sink, err);
    }
    if (!sink->compare) save_count(job, &run);
    if (status == HEFT_OK && run.progress && run.progress(run.progress_ctx, run.total_nbytes, run.total_nbytes))
        status = save_cancelled(err);
    return status;
}

heft_status heft__save_job_target(heft__save_job *job, heft__target *target, heft_error *err) {
    heft__sink sink = {.target = target};
    const heft_save_options *options = &job->options;
    bool lasting = !options->no_sync && !options->no_direct && !options->digests;
    if (lasting && job->layout.emit.file_nbytes >= SAVE_DIRECT_LEAST) heft__target_try_direct(target);
    heft_status status = heft__save_job_run(job, &sink, err);
    if (status == HEFT_OK) status = heft__target_sync(target, err);
    if (status != HEFT_OK || !options->verify) return status;
    for (uint64_t i = 0; i < job->nparts; i++) job->parts[i].done = false;
    heft__target_sys_get()->drop_cache(target->fd);
    sink.compare = true;
    return heft__save_job_run(job, &sink, err);
}

uint64_t heft__save_job_shareable(const heft__save_job *job) {
    return job->shares ? heft__save_shareable(job->parts, job->nparts) : 0;
}

heft_status heft__save_enter(const char *path, const heft_save_options *options, const heft_allocator *alloc, heft_error *err) {
    heft__target_options file = {.links = options->symlink, .overwrite = options->overwrite};
    char folder[HEFT__TARGET_PATH_MAX];
    uint64_t litter;
    heft_status status = heft__target_check(path, &file, folder, err);
    if (status != HEFT_OK) return status;
    heft_error local; /* what cannot be removed stays, and does no harm */
    if (heft__set_clean(folder, alloc, false, &litter, &local) != HEFT_OUT_OF_MEMORY) return HEFT_OK;
    if (err) *err = local;
    return HEFT_OUT_OF_MEMORY;
}

heft_status heft__save_file(heft__save_job *job, const char *path, heft_error *err) {
    heft__target_options options = {.nbytes = job->layout.emit.file_nbytes,
                                    .shared_nbytes = heft__save_job_shareable(job),
                                    .links = job->options.symlink,
                                    .overwrite = job->options.overwrite,
                                    .no_sync = job->options.no_sync};
    heft__target target;
    heft__target_status file;
    bool other; /* a later save's: then the sidecar is that one's business */
    heft_status status = heft__save_enter(path, &job->options, &job->alloc, err);
    if (status == HEFT_OK) status = heft__target_open(&target, path, &options, err);
    if (status != HEFT_OK) return status;
    status = heft__save_job_target(job, &target, err);
    if (status == HEFT_OK) status = heft__save_publish(&target, &file, err);
    else heft__target_abort(&target);
    if (status != HEFT_OK || !(job->options.digests & HEFT_DIGEST_SIDECAR)) return status;
    heft__json_out json;
    status = heft__save_job_sidecar(job, &json, err);
    if (status == HEFT_OK)
        status = heft__sidecar_write(path, &json, file.device, file.inode, &job->options, &other, err);
    heft__json_out_free(&json);
    return status;
}
