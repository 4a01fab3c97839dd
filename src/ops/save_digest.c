/* ops: digests of tensors that are there, by the machinery that makes them while writing. */
#include "base/error.h"
#include "ops/save.h"

#include <string.h>

typedef struct digest_job {
    heft_allocator alloc;
    heft_save_item *items;
    heft__part *parts;
    uint64_t *first; /* of each tensor its first chunk */
    uint8_t (*chunks)[16];
    uint64_t n, nchunks, nparts, total_nbytes;
} digest_job;

static void digest_job_free(digest_job *job) {
    heft__free(&job->alloc, job->items, job->n * sizeof *job->items);
    heft__free(&job->alloc, job->parts, job->n * sizeof *job->parts);
    heft__free(&job->alloc, job->first, job->n * sizeof *job->first);
    heft__free(&job->alloc, job->chunks, job->nchunks * sizeof *job->chunks);
}

static uint64_t digest_chunks(const heft__entry *entry) {
    return (entry->end - entry->begin + HEFT__DIGEST_CHUNK - 1) / HEFT__DIGEST_CHUNK;
}

/* Tensors as parts of a file that is never written, one behind another. */
static heft_status digest_parts(digest_job *job, const heft_archive *archive, const uint64_t *ids, heft_error *err) {
    heft_save_options options = {.struct_size = sizeof options};
    uint32_t file;
    for (uint64_t i = 0; i < job->n; i++) {
        uint64_t id = ids ? ids[i] : i;
        if (id >= archive->ntensors)
            return heft__fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL, "tensor id %llu is out of range",
                              (unsigned long long)id);
        job->first[i] = job->nchunks;
        job->nchunks += digest_chunks(heft__archive_entry(archive, id, &file));
    }
    job->chunks = heft__alloc(&job->alloc, job->nchunks * sizeof *job->chunks);
    if (!job->chunks) return heft__fail_memory(err, job->nchunks * sizeof *job->chunks);
    for (uint64_t i = 0; i < job->n; i++) {
        const heft__entry *entry = heft__archive_entry(archive, ids ? ids[i] : i, &file);
        uint64_t nbytes = entry->end - entry->begin;
        job->items[i] = (heft_save_item){.name = entry->name, .name_len = entry->name_len, .archive = archive,
                                         .id = ids ? ids[i] : i};
        if (nbytes == 0) continue;
        heft__part *part = &job->parts[job->nparts++];
        heft_dtype dtype = entry->dtype ? entry->dtype : HEFT_U8; /* an unknown one is bytes */
        heft__part_make(part, &job->items[i], dtype, job->total_nbytes, nbytes, &options);
        part->digest = job->chunks + job->first[i];
        job->total_nbytes += nbytes;
    }
    return HEFT_OK;
}

static heft_status digest_run(digest_job *job, const heft_read_options *options, heft_error *err) {
    heft__save_run run = {.alloc = job->alloc,
                          .sink = {.discard = true},
                          .workers = options->workers,
                          .progress = options->progress,
                          .progress_ctx = options->progress_ctx,
                          .total_nbytes = job->total_nbytes,
                          .no_share = true};
    atomic_init(&run.done_nbytes, 0);
    if (run.progress && run.progress(run.progress_ctx, 0, run.total_nbytes))
        return heft__fail(err, HEFT_CANCELLED, HEFT_FAULT_CALL, "the progress callback asked to stop");
    heft_status status = heft__save_run_parts(&run, job->parts, job->nparts, err);
    if (status == HEFT_OK && run.progress && run.progress(run.progress_ctx, run.total_nbytes, run.total_nbytes))
        status = heft__fail(err, HEFT_CANCELLED, HEFT_FAULT_CALL, "the progress callback asked to stop");
    return status;
}

heft_status heft__archive_digests(const heft_archive *archive, const heft_allocator *alloc, const uint64_t *ids,
                                  uint64_t nids, const heft_read_options *options, uint8_t (*digests)[16],
                                  heft_error *err) {
    if (!heft__xxh3(false, err)) return HEFT_UNSUPPORTED;
    digest_job job = {.alloc = *alloc, .n = nids};
    job.items = heft__alloc(alloc, nids * sizeof *job.items);
    job.parts = heft__alloc(alloc, nids * sizeof *job.parts);
    job.first = heft__alloc(alloc, nids * sizeof *job.first);
    heft_status status = job.items && job.parts && job.first ? digest_parts(&job, archive, ids, err)
                                                             : heft__fail_memory(err, HEFT_NONE);
    if (status == HEFT_OK) status = digest_run(&job, options, err);
    for (uint64_t i = 0; i < nids && status == HEFT_OK; i++) {
        uint64_t end = i + 1 < nids ? job.first[i + 1] : job.nchunks;
        status = heft__digest_bytes(HEFT__DIGEST_XXH3, job.chunks + job.first[i], (size_t)(end - job.first[i]) * 16,
                                    digests[i], err);
    }
    digest_job_free(&job);
    return status;
}
