/* zip: the checksums of members, several at once: stored ones in pieces that are put together, compressed ones decoded whole. */
#include "zip/zip.h"

#include "base/parallel.h"
#include "digest/digest.h"

#include <stdatomic.h>
#include <string.h>

#define ZIPSUM_PIECE      (UINT64_C(4) << 20)
#define ZIPSUM_BLOCK      (UINT64_C(256) << 10) /* still in the cache when it is looked at */
#define ZIPSUM_ONE_WORKER (UINT64_C(8) << 20)

typedef struct zipsum_worker {
    uint8_t *block;
    heft_status status; /* of piece `failed`, its last one */
    uint64_t failed;
    heft_error err;
} zipsum_worker;

typedef struct zipsum_job {
    heft__zip *zip;
    heft__zip_check *checks;
    uint64_t *starts; /* nchecks + 1: the number of the first piece of each */
    uint32_t *pieces; /* their checksums */
    uint64_t nchecks, npieces, total_nbytes;
    int (*progress)(void *ctx, uint64_t done_nbytes, uint64_t total_nbytes);
    void *progress_ctx;
    atomic_uint_fast64_t next, done_nbytes;
    atomic_bool stop, cancelled;
    zipsum_worker *workers;
} zipsum_job;

static uint64_t zipsum_check_of(const zipsum_job *job, uint64_t piece) {
    uint64_t low = 0, high = job->nchecks;
    while (high - low > 1) {
        uint64_t middle = low + (high - low) / 2;
        if (job->starts[middle] <= piece) low = middle;
        else high = middle;
    }
    return low;
}

static heft_status zipsum_stored(zipsum_job *job, const heft__zip_member *member, uint64_t from, uint32_t *crc,
                                 zipsum_worker *worker) {
    uint64_t end = member->nbytes - from < ZIPSUM_PIECE ? member->nbytes : from + ZIPSUM_PIECE;
    for (uint64_t n; from < end; from += n) {
        n = end - from < ZIPSUM_BLOCK ? end - from : ZIPSUM_BLOCK;
        heft_status status = heft_source_read(job->zip->source, member->data + from, n, worker->block, &worker->err);
        if (status != HEFT_OK) return status;
        *crc = heft__crc32(*crc, worker->block, (size_t)n);
        atomic_fetch_add(&job->done_nbytes, n);
    }
    return HEFT_OK;
}

static heft_status zipsum_deflated(zipsum_job *job, heft__zip_check *check, const heft__zip_member *member, uint32_t *crc,
                                   heft_error *err) {
    const heft_allocator *alloc = &job->zip->alloc;
    uint8_t *in = heft__alloc(alloc, member->packed_nbytes), *out = heft__alloc(alloc, member->nbytes);
    heft_status status = in && out ? heft_source_read(job->zip->source, member->data, member->packed_nbytes, in, err)
                                   : heft__fail_memory(err, member->packed_nbytes + member->nbytes);
    if (status == HEFT_OK && heft__inflate(in, (size_t)member->packed_nbytes, out, (size_t)member->nbytes))
        *crc = heft__crc32(0, out, (size_t)member->nbytes);
    else check->damaged = true; /* after a failure nobody looks */
    atomic_fetch_add(&job->done_nbytes, member->nbytes);
    heft__free(alloc, in, member->packed_nbytes);
    heft__free(alloc, out, member->nbytes);
    return status;
}

static heft_status zipsum_piece(zipsum_job *job, zipsum_worker *worker, uint64_t piece) {
    uint64_t number = zipsum_check_of(job, piece);
    heft__zip_check *check = &job->checks[number];
    const heft__zip_member *member = &job->zip->members[check->member];
    if (member->method != HEFT__ZIP_STORED) return zipsum_deflated(job, check, member, &job->pieces[piece], &worker->err);
    return zipsum_stored(job, member, (piece - job->starts[number]) * ZIPSUM_PIECE, &job->pieces[piece], worker);
}

static void zipsum_work(void *ctx, uint32_t number) {
    zipsum_job *job = ctx;
    zipsum_worker *worker = &job->workers[number];
    while (!atomic_load(&job->stop) && !atomic_load(&job->cancelled)) {
        uint64_t piece = atomic_fetch_add(&job->next, 1);
        if (piece >= job->npieces) return;
        worker->status = zipsum_piece(job, worker, piece);
        if (worker->status != HEFT_OK) {
            worker->failed = piece;
            atomic_store(&job->stop, true);
        } else if (number == 0 && job->progress && /* the caller's thread */
                   job->progress(job->progress_ctx, atomic_load(&job->done_nbytes), job->total_nbytes)) {
            atomic_store(&job->cancelled, true);
        }
    }
}

static heft_status zipsum_judge(const zipsum_job *job, uint32_t nworkers, heft_error *err) {
    const zipsum_worker *first = NULL;
    for (uint32_t i = 0; i < nworkers; i++)
        if (job->workers[i].status != HEFT_OK && (!first || job->workers[i].failed < first->failed)) first = &job->workers[i];
    if (first) {
        if (err) *err = first->err;
        return first->status;
    }
    if (atomic_load(&job->cancelled))
        return heft__fail(err, HEFT_CANCELLED, HEFT_FAULT_CALL, "the progress callback asked to stop");
    for (uint64_t i = 0; i < job->nchecks; i++) {
        heft__zip_check *check = &job->checks[i];
        uint64_t left = job->zip->members[check->member].nbytes;
        bool stored = job->zip->members[check->member].method == HEFT__ZIP_STORED;
        check->found = stored ? 0 : job->pieces[job->starts[i]];
        for (uint64_t piece = job->starts[i]; stored && piece < job->starts[i + 1]; piece++) {
            uint64_t n = left < ZIPSUM_PIECE ? left : ZIPSUM_PIECE;
            check->found = heft__crc32_combine(check->found, job->pieces[piece], n);
            left -= n;
        }
    }
    return HEFT_OK;
}

/* Pieces of all members; an empty stored one has none. */
static void zipsum_cut(zipsum_job *job) {
    for (uint64_t i = 0; i < job->nchecks; i++) {
        const heft__zip_member *member = &job->zip->members[job->checks[i].member];
        bool stored = member->method == HEFT__ZIP_STORED;
        job->checks[i].damaged = false;
        job->starts[i] = job->npieces;
        job->npieces += stored ? member->nbytes / ZIPSUM_PIECE + (member->nbytes % ZIPSUM_PIECE > 0) : 1;
        job->total_nbytes += member->nbytes; /* members lie in the file or have been summed up when it was opened */
    }
    job->starts[job->nchecks] = job->npieces;
}

static heft_status zipsum_run(zipsum_job *job, uint32_t wanted, heft_error *err) {
    const heft_allocator *alloc = &job->zip->alloc;
    uint32_t nworkers = wanted ? wanted : job->total_nbytes < ZIPSUM_ONE_WORKER ? 1 : heft__default_workers();
    if (nworkers > HEFT__PARALLEL_MOST) nworkers = HEFT__PARALLEL_MOST;
    if (nworkers > job->npieces) nworkers = job->npieces ? (uint32_t)job->npieces : 1;
    job->workers = heft__alloc_zero(alloc, nworkers * sizeof *job->workers);
    uint8_t *blocks = heft__alloc(alloc, nworkers * ZIPSUM_BLOCK);
    heft_status status = HEFT_OK;
    if (!job->workers || !blocks) {
        status = heft__fail_memory(err, nworkers * ZIPSUM_BLOCK);
    } else {
        for (uint32_t i = 0; i < nworkers; i++) job->workers[i].block = blocks + i * ZIPSUM_BLOCK;
        heft__parallel(nworkers, zipsum_work, job);
        status = zipsum_judge(job, nworkers, err);
    }
    heft__free(alloc, blocks, nworkers * ZIPSUM_BLOCK);
    heft__free(alloc, job->workers, nworkers * sizeof *job->workers);
    return status;
}

heft_status heft__zip_verify(heft__zip *zip, heft__zip_check *checks, uint64_t nchecks, uint32_t workers,
                             int (*progress)(void *ctx, uint64_t done_nbytes, uint64_t total_nbytes), void *progress_ctx,
                             heft_error *err) {
    zipsum_job job = {.zip = zip, .checks = checks, .nchecks = nchecks, .progress = progress, .progress_ctx = progress_ctx};
    atomic_init(&job.next, 0);
    atomic_init(&job.done_nbytes, 0);
    atomic_init(&job.stop, false);
    atomic_init(&job.cancelled, false);
    if (nchecks == 0) return HEFT_OK;
    job.starts = heft__alloc(&zip->alloc, (nchecks + 1) * sizeof *job.starts);
    if (!job.starts) return heft__fail_memory(err, (nchecks + 1) * sizeof *job.starts);
    zipsum_cut(&job);
    job.pieces = heft__alloc_zero(&zip->alloc, job.npieces * sizeof *job.pieces);
    heft_status status = job.pieces ? zipsum_run(&job, workers, err) : heft__fail_memory(err, job.npieces * sizeof *job.pieces);
    heft__free(&zip->alloc, job.pieces, job.npieces * sizeof *job.pieces);
    heft__free(&zip->alloc, job.starts, (nchecks + 1) * sizeof *job.starts);
    return status;
}
