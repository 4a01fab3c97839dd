/* api: saves of one file: to a path, to memory, to a function. */
#include "base/checked.h"
#include "base/error.h"
#include "device/device.h"
#include "ops/save.h"

#include <string.h>

static heft_status save_begin(heft__save_job *job, const heft_save_item *items, uint64_t nitems,
                              const heft_save_options *options, const char *path, heft_save_stats *stats,
                              heft_error *err) {
    if (stats) memset(stats, 0, sizeof *stats);
    return heft__save_job_make(job, items, nitems, options, path, err);
}

heft_status heft_save(const char *path, const heft_save_item *items, uint64_t nitems, const heft_save_options *options,
                      heft_save_stats *stats, heft_error *err) {
    heft__save_job job;
    if (!path) return heft__fail_null(err, "path");
    heft_status status = save_begin(&job, items, nitems, options, path, stats, err);
    if (status != HEFT_OK) return status;
    status = heft__save_file(&job, path, err);
    if (status == HEFT_OK && stats) *stats = job.stats;
    heft__save_job_free(&job);
    return status;
}

heft_status heft_save_buffer(const heft_save_item *items, uint64_t nitems, const heft_save_options *options,
                             heft_buffer *out, heft_save_stats *stats, heft_error *err) {
    heft__save_job job;
    size_t size;
    if (!out) return heft__fail_null(err, "out");
    memset(out, 0, sizeof *out);
    heft_status status = save_begin(&job, items, nitems, options, NULL, stats, err);
    if (status != HEFT_OK) return status;
    uint64_t nbytes = job.layout.emit.file_nbytes;
    status = heft__to_size(nbytes, &size) ? heft__host_buffer(&job.alloc, nbytes, out, err) : heft__fail_memory(err, nbytes);
    if (status == HEFT_OK) {
        heft__sink sink = {.memory = out->data};
        status = heft__save_job_run(&job, &sink, err);
        if (status != HEFT_OK) heft_buffer_release(out);
        else if (stats) *stats = job.stats;
    }
    heft__save_job_free(&job);
    return status;
}

heft_status heft_save_callback(const heft_save_item *items, uint64_t nitems, const heft_save_options *options,
                               int (*write)(void *ctx, const void *data, size_t nbytes), void *ctx,
                               heft_save_stats *stats, heft_error *err) {
    heft__save_job job;
    if (!write) return heft__fail_null(err, "write");
    heft_status status = save_begin(&job, items, nitems, options, NULL, stats, err);
    if (status != HEFT_OK) return status;
    heft__sink sink = {.write = write, .write_ctx = ctx};
    status = heft__save_job_run(&job, &sink, err);
    if (status == HEFT_OK && stats) *stats = job.stats;
    heft__save_job_free(&job);
    return status;
}
