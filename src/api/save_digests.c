/* api: digests of tensors that are there, verifying them, sidecars, and SHA-256 of files. */
#include "base/error.h"
#include "base/options.h"
#include "base/parallel.h"
#include "ops/digest_verify.h"

#include <stdatomic.h>
#include <string.h>

static heft_status digests_begin(const heft_archive *archive, const heft_read_options *given, heft_read_options *options,
                                 heft_allocator *alloc, heft_error *err) {
    heft_status status = heft__options_copy(options, sizeof *options, given, "heft_read_options", err);
    if (status != HEFT_OK) return status;
    const heft_allocator *own = archive ? &archive->alloc : NULL;
    if (!heft__allocator_from(options->allocator ? options->allocator : own, alloc))
        return heft__fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL, "the allocator lacks a function");
    return HEFT_OK;
}

heft_status heft_archive_digests(const heft_archive *archive, const uint64_t *ids, uint64_t nids,
                                 const heft_read_options *options, uint8_t (*digests)[16], uint8_t *whole,
                                 heft_error *err) {
    heft_read_options checked;
    heft_allocator alloc;
    if (!archive) return heft__fail_null(err, "archive");
    if (!ids) nids = archive->ntensors;
    if (!digests && nids) return heft__fail_null(err, "digests");
    heft_status status = digests_begin(archive, options, &checked, &alloc, err);
    if (status == HEFT_OK) status = heft__archive_digests(archive, &alloc, ids, nids, &checked, digests, err);
    if (status == HEFT_OK && whole)
        status = heft__digests_of_all(&alloc, (const uint8_t(*)[16])digests, nids, whole, err);
    return status;
}

heft_status heft_archive_verify(const heft_archive *archive, const uint64_t *ids, uint64_t nids,
                                const heft_read_options *options, heft_verified *tensors, heft_verified_file *files,
                                heft_error *err) {
    heft_read_options checked;
    heft_allocator alloc;
    if (!archive) return heft__fail_null(err, "archive");
    if (!ids) nids = archive->ntensors;
    if (tensors && nids) memset(tensors, 0, (size_t)nids * sizeof *tensors);
    if (files) memset(files, 0, archive->nfiles * sizeof *files);
    heft_status status = digests_begin(archive, options, &checked, &alloc, err);
    return status == HEFT_OK ? heft__archive_verify(archive, &alloc, ids, nids, &checked, tensors, files, err) : status;
}

heft_status heft_archive_write_sidecars(const heft_archive *archive, const heft_read_options *options,
                                        const heft_save_options *save_options, heft_error *err) {
    heft_read_options checked;
    heft_save_options save;
    heft_allocator alloc, own;
    if (!archive) return heft__fail_null(err, "archive");
    heft_status status = heft__save_options_copy(save_options, &save, &own, err);
    if (status == HEFT_OK) status = digests_begin(archive, options, &checked, &alloc, err);
    return status == HEFT_OK ? heft__archive_write_sidecars(archive, &alloc, &checked, &save, err) : status;
}

/* ---- SHA-256: the caller's thread hashes, another one reads ahead; without it the caller reads too ---- */

enum { SHA_BLOCK = 1 << 20, SHA_SLOTS = 4 };

typedef struct sha_job {
    heft_source *source;
    heft__monitor *monitor;
    uint64_t nbytes, nblocks;
    uint8_t *blocks;
    /* guarded by the monitor */
    uint64_t claimed, used;      /* blocks that somebody reads or has read; blocks that have been hashed */
    uint64_t filled[SHA_SLOTS];  /* of each slot the number of its block, and 1 more */
    bool stop;
    heft_status status;
    heft_error err;
} sha_job;

static uint64_t sha_block_nbytes(const sha_job *job, uint64_t block) {
    uint64_t left = job->nbytes - block * SHA_BLOCK;
    return left < SHA_BLOCK ? left : SHA_BLOCK;
}

/* Reads the next block. Inside of the monitor, which is left meanwhile. */
static void sha_fill(sha_job *job) {
    uint64_t block = job->claimed++;
    heft_error error;
    heft__monitor_leave(job->monitor);
    heft_status status = heft_source_read(job->source, block * SHA_BLOCK, sha_block_nbytes(job, block),
                                          job->blocks + block % SHA_SLOTS * SHA_BLOCK, &error);
    heft__monitor_enter(job->monitor);
    if (status == HEFT_OK) job->filled[block % SHA_SLOTS] = block + 1;
    else if (job->status == HEFT_OK) {
        job->status = status;
        job->err = error;
    }
    heft__monitor_wake(job->monitor);
}

static void sha_read_ahead(void *ctx, uint32_t worker) {
    sha_job *job = ctx;
    (void)worker;
    heft__monitor_enter(job->monitor);
    while (job->claimed < job->nblocks && !job->stop && job->status == HEFT_OK) {
        if (job->claimed - job->used < SHA_SLOTS) sha_fill(job);
        else heft__monitor_wait(job->monitor);
    }
    heft__monitor_leave(job->monitor);
}

/* The next block, when it is there; NULL: reading failed. */
static const uint8_t *sha_next(sha_job *job, uint64_t block) {
    heft__monitor_enter(job->monitor);
    job->used = block;
    heft__monitor_wake(job->monitor);
    while (job->filled[block % SHA_SLOTS] != block + 1 && job->status == HEFT_OK) {
        if (job->claimed == block) sha_fill(job);
        else heft__monitor_wait(job->monitor);
    }
    bool there = job->filled[block % SHA_SLOTS] == block + 1;
    heft__monitor_leave(job->monitor);
    return there ? job->blocks + block % SHA_SLOTS * SHA_BLOCK : NULL;
}

static heft_status sha_run(sha_job *job, heft__crew *crew, const heft_read_options *options, uint8_t out[32], heft_error *err) {
    heft__digest digest;
    heft_status status = heft__digest_init(&digest, HEFT__DIGEST_SHA256, err);
    if (status != HEFT_OK) return status;
    heft__crew_start(crew, sha_read_ahead, job);
    for (uint64_t i = 0; i < job->nblocks && status == HEFT_OK; i++) {
        const uint8_t *block = sha_next(job, i);
        uint64_t n = sha_block_nbytes(job, i);
        if (!block) break;
        heft__digest_update(&digest, block, (size_t)n);
        if (options->progress && options->progress(options->progress_ctx, i * SHA_BLOCK + n, job->nbytes))
            status = heft__fail(err, HEFT_CANCELLED, HEFT_FAULT_CALL, "the progress callback asked to stop");
    }
    heft__digest_final(&digest, out);
    return status;
}

heft_status heft_source_sha256(heft_source *source, const heft_read_options *given, char *text, heft_error *err) {
    heft_read_options options;
    heft_allocator alloc;
    uint8_t out[HEFT__DIGEST_MOST];
    if (!source || !text) return heft__fail_null(err, source ? "text" : "source");
    text[0] = 0;
    heft_status status = digests_begin(NULL, given, &options, &alloc, err);
    if (status != HEFT_OK) return status;
    sha_job job = {.source = source, .nbytes = heft_source_size(source)};
    job.nblocks = job.nbytes / SHA_BLOCK + (job.nbytes % SHA_BLOCK > 0);
    job.monitor = heft__monitor_new(&alloc);
    job.blocks = heft__alloc(&alloc, (uint64_t)SHA_BLOCK * SHA_SLOTS);
    heft__crew *crew = heft__crew_new(&alloc, 2);
    status = job.monitor && job.blocks && crew ? sha_run(&job, crew, &options, out, err) : heft__fail_memory(err, HEFT_NONE);
    if (job.monitor) {
        heft__monitor_enter(job.monitor);
        job.stop = true;
        heft__monitor_wake(job.monitor);
        heft__monitor_leave(job.monitor);
    }
    if (crew) (void)heft__crew_join(crew);
    if (status == HEFT_OK && job.status != HEFT_OK) {
        status = job.status;
        if (err) *err = job.err;
    }
    if (job.monitor) heft__monitor_free(job.monitor);
    heft__free(&alloc, job.blocks, (uint64_t)SHA_BLOCK * SHA_SLOTS);
    if (status == HEFT_OK) heft__digest_text(out, 32, text);
    return status;
}
