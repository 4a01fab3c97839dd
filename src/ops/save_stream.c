/* ops: streamed tensors: written as they come, the header last into the place that was kept for it. */
#include "base/error.h"
#include "ops/save_writer.h"

#include <string.h>

#define STREAM_HEADER (UINT64_C(64) << 10)
#define STREAM_MOVE (UINT64_C(4) << 20)

static heft_status stream_open(heft_writer *writer, heft_error *err) {
    heft__target_options options = {.nbytes = HEFT_NONE,
                                    .links = writer->options.symlink,
                                    .overwrite = writer->options.overwrite || writer->is_set,
                                    .no_sync = writer->options.no_sync};
    uint64_t reserved = writer->options.reserve_header_nbytes ? writer->options.reserve_header_nbytes : STREAM_HEADER;
    if (!heft__align_u64(reserved, 64, &reserved) || reserved > UINT64_C(1) << 40)
        return heft__fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL, "reserve_header_nbytes is too large");
    heft_status status = writer->is_set
                             ? heft__set_job_open(writer->job, NULL, HEFT_NONE, 0, &writer->target, err)
                             : heft__target_open(&writer->target, writer->path, &options, err);
    writer->target_open = status == HEFT_OK;
    writer->reserved = writer->at = reserved;
    return status;
}

heft_status heft__stream_add(heft_writer *writer, const heft_save_item *item, const heft__item *checked, heft_error *err) {
    heft_status status = writer->target_open ? HEFT_OK : stream_open(writer, err);
    if (status != HEFT_OK || checked->nbytes == 0) return status;
    heft__part part;
    heft__part_make(&part, item, checked->dtype, writer->at, checked->nbytes, &writer->options);
    heft__save_run run = {.alloc = writer->alloc,
                          .sink = {.target = &writer->target},
                          .workers = writer->options.workers,
                          .total_nbytes = checked->nbytes,
                          .no_share = writer->options.no_share};
    atomic_init(&run.done_nbytes, 0);
    status = heft__save_run_parts(&run, &part, 1, err);
    if (status != HEFT_OK) return status; /* the next tensor is written over what came of it */
    writer->at += checked->nbytes;
    writer->stats.shared_nbytes += run.shared_nbytes;
    writer->stats.kernel_nbytes += run.kernel_nbytes;
    if (run.most_workers > writer->stats.workers) writer->stats.workers = run.most_workers;
    return HEFT_OK;
}

/* Moves the data `by` bytes towards the end, last bytes first. */
static heft_status stream_move(heft_writer *writer, uint64_t by, heft_error *err) {
    uint8_t *block = heft__alloc(&writer->alloc, STREAM_MOVE);
    heft_status status = block ? HEFT_OK : heft__fail_memory(err, STREAM_MOVE);
    for (uint64_t end = writer->at; status == HEFT_OK && end > writer->reserved;) {
        uint64_t n = end - writer->reserved < STREAM_MOVE ? end - writer->reserved : STREAM_MOVE;
        end -= n;
        status = heft__target_read(&writer->target, end, block, n, err);
        if (status == HEFT_OK) status = heft__target_write(&writer->target, end + by, block, n, err);
    }
    heft__free(&writer->alloc, block, STREAM_MOVE);
    return status;
}

/* The header of the tensors of this file, in the order in which they came. */
static heft_status stream_header(heft_writer *writer, uint64_t *file_nbytes, heft_error *err) {
    heft_save_options options = writer->options;
    heft__layout layout;
    options.keep_order = true;
    options.data_start_align = 0;
    options.reserve_header_nbytes = writer->reserved;
    heft_status status = heft__layout_make(&layout, heft__items_from(writer->items, writer->first), writer->nitems - writer->first,
                                           &options, &writer->alloc, err);
    if (status != HEFT_OK) return status;
    const heft__emit *emit = &layout.emit;
    if (emit->header_nbytes > writer->reserved) status = stream_move(writer, emit->header_nbytes - writer->reserved, err);
    if (status == HEFT_OK) status = heft__target_write(&writer->target, 0, emit->pieces[0].bytes, emit->pieces[0].nbytes, err);
    if (status == HEFT_OK) status = heft__target_resize(&writer->target, emit->file_nbytes, err); /* after a failed tensor */
    *file_nbytes = emit->file_nbytes;
    heft_save_stats *stats = &writer->stats;
    if (stats->nfiles == 0) stats->header_nbytes = emit->header_nbytes;
    stats->file_nbytes += emit->file_nbytes;
    stats->nfiles++;
    for (uint64_t i = 0; i < emit->nentries; i++) {
        stats->ntensors++;
        stats->data_nbytes += emit->entries[i].nbytes;
        stats->nunaligned += emit->entries[i].nbytes && emit->entries[i].offset % heft__dtypes[emit->entries[i].dtype].align;
    }
    heft__layout_free(&layout);
    return status;
}

heft_status heft__stream_finish(heft_writer *writer, heft_error *err) {
    uint64_t nbytes = 0;
    heft_status status = writer->target_open ? HEFT_OK : stream_open(writer, err);
    if (status == HEFT_OK) status = stream_header(writer, &nbytes, err);
    if (status != HEFT_OK) return status;
    writer->target_open = false;
    if (!writer->is_set) return heft__save_publish(&writer->target, NULL, err);
    status = heft__set_job_keep(writer->job, &writer->target, nbytes, HEFT_OK, err);
    if (status == HEFT_OK) status = heft__writer_end_file(writer, err);
    writer->job->stats = writer->stats;
    return status;
}

void heft__stream_free(heft_writer *writer) {
    if (writer->target_open) heft__target_abort(&writer->target);
}
