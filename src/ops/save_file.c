/* ops: one file, from items to its name: laid out, written, synced, read back if asked for, renamed. */
#include "base/error.h"
#include "ops/save.h"

#include <string.h>

heft_status heft__save_job_make(heft__save_job *job, const heft_save_item *items, uint64_t nitems,
                                const heft_save_options *options, heft_error *err) {
    memset(job, 0, sizeof *job);
    heft_status status = heft__save_options_copy(options, &job->options, &job->alloc, err);
    if (status != HEFT_OK) return status;
    status = heft__layout_make(&job->layout, items, nitems, &job->options, &job->alloc, err);
    if (status != HEFT_OK) return status;
    status = heft__parts_make(&job->layout, items, &job->parts, &job->nparts, err);
    if (status != HEFT_OK) heft__save_job_free(job);
    return status;
}

void heft__save_job_free(heft__save_job *job) {
    heft__free(&job->alloc, job->parts, job->nparts * sizeof *job->parts);
    heft__layout_free(&job->layout);
}

void heft__save_job_stats(const heft__save_job *job, uint32_t workers, heft_save_stats *out) {
    const heft__emit *emit = &job->layout.emit;
    if (!out) return;
    *out = (heft_save_stats){.file_nbytes = emit->file_nbytes,
                             .header_nbytes = emit->header_nbytes,
                             .nfiles = 1,
                             .workers = workers};
    for (uint64_t i = 0; i < emit->nentries; i++) {
        bool filler = emit->entries[i].item == UINT32_MAX;
        *(filler ? &out->nfillers : &out->ntensors) += 1;
        *(filler ? &out->filler_nbytes : &out->data_nbytes) += emit->entries[i].nbytes;
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

heft_status heft__save_job_run(heft__save_job *job, const heft__sink *sink, uint32_t *workers, heft_error *err) {
    heft__emit *emit = &job->layout.emit;
    const heft__emitter *emitter = job->layout.emitter;
    const heft_save_options *options = &job->options;
    heft__save_run run = {.alloc = job->alloc,
                          .sink = *sink,
                          .workers = options->workers,
                          .progress = sink->compare ? NULL : options->progress,
                          .progress_ctx = options->progress_ctx};
    for (uint64_t i = 0; i < job->nparts; i++) run.total_nbytes += job->parts[i].nbytes;
    atomic_init(&run.done_nbytes, 0);
    if (run.progress && run.progress(run.progress_ctx, 0, run.total_nbytes)) return save_cancelled(err);
    if (emitter->finish && sink->write)
        return heft__fail(err, HEFT_UNSUPPORTED, HEFT_FAULT_CALL, "%s files cannot be written in order", emitter->name);
    heft_status status = emitter->finish ? HEFT_OK : save_pieces(emit, sink, err);
    if (status == HEFT_OK) status = heft__save_run_parts(&run, job->parts, job->nparts, err);
    if (status == HEFT_OK && emitter->finish) {
        if (!sink->compare) status = emitter->finish(emit, err);
        if (status == HEFT_OK) status = save_pieces(emit, sink, err);
    }
    *workers = run.most_workers ? run.most_workers : 1;
    if (status == HEFT_OK && run.progress && run.progress(run.progress_ctx, run.total_nbytes, run.total_nbytes))
        status = save_cancelled(err);
    return status;
}

heft_status heft__save_file(heft__save_job *job, const char *path, heft_save_stats *stats, heft_error *err) {
    const heft_save_options *options = &job->options;
    heft__target_options target_options = {.nbytes = job->layout.emit.file_nbytes,
                                           .links = options->symlink,
                                           .overwrite = options->overwrite,
                                           .no_sync = options->no_sync};
    heft__target target;
    uint32_t workers = 1, ignored;
    heft_status status = heft__target_open(&target, path, &target_options, err);
    if (status != HEFT_OK) return status;
    heft__sink sink = {.target = &target};
    status = heft__save_job_run(job, &sink, &workers, err);
    if (status == HEFT_OK) status = heft__target_sync(&target, err);
    if (status == HEFT_OK && options->verify) {
        heft__target_sys_get()->drop_cache(target.fd);
        sink.compare = true;
        status = heft__save_job_run(job, &sink, &ignored, err);
    }
    if (status == HEFT_OK) status = heft__target_publish(&target, err);
    else heft__target_abort(&target);
    if (status == HEFT_OK) heft__save_job_stats(job, workers, stats);
    return status;
}
