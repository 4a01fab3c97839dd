/* ops: what a load has brought against the digests of its files: in memory, by all workers, right after it has landed. */
#include "base/error.h"
#include "base/parallel.h"
#include "ops/digest_verify.h"
#include "ops/load_run.h"

#include <string.h>

/* A kept tensor and how it can be looked at. */
typedef struct landed_tensor {
    uint64_t id;
    const uint8_t *data;
    uint64_t nbytes, first; /* first: its first piece */
} landed_tensor;

typedef struct landed_job {
    const heft__load_work *work;
    heft_allocator alloc;
    heft__known known;
    bool *wanted;                /* of files */
    uint64_t *missing;           /* of files: tensors without whose bytes the digest of all data cannot be made */
    uint8_t (*values)[16];       /* by id: the digest that was found */
    landed_tensor *tensors;      /* in memory, whose digest is made */
    uint64_t n, npieces;
    uint8_t (*pieces)[16];
    uint64_t *again, nagain;     /* mapped ones, likewise: their bytes are read, never touched */
    uint64_t *members, nmembers; /* ids of stored npz arrays without a digest: by the checksum of their member */
    heft_verified *results;      /* of `members`, or of `again` */
    uint8_t (*found)[16];
    const heft__xxh3_calls *xxh3;
    atomic_uint_fast64_t next;
    uint64_t nverified, nbad;
    heft_status status;
    heft_error first;            /* of the bad ones, by id */
    uint64_t first_id;
} landed_job;

/* Whether memory holds what the digest is of: all of the tensor, row by row, as its file's dtype, little-endian. */
static bool landed_as_digested(const heft_load_plan *load, const heft__entry *entry, const heft_loaded *tensor) {
    bool kept_order = load->options.keep_file_order, big = entry->flags & HEFT__ENTRY_BIG;
    bool swapped = heft__dtypes[entry->dtype].component_bits > 8 && (kept_order ? big : HEFT__HOST_IS_BIG_ENDIAN);
    return tensor->nbytes == entry->end - entry->begin && tensor->dtype == entry->dtype && !swapped;
}

/* Whether the digest of a kept tensor can be made. */
static bool landed_is_there(const landed_job *job, uint64_t id, const heft__entry *entry, heft_loaded *tensor) {
    const heft_weights *weights = job->work->weights;
    heft__load_describe(job->work->load, id, weights->data[id], tensor);
    return (weights->states[id] & HEFT__WEIGHTS_MAPPED) || landed_as_digested(job->work->load, entry, tensor);
}

/* Which files have landed whole, and have a digest of all their data. */
static void landed_find_whole(landed_job *job) {
    const heft_load_plan *load = job->work->load;
    const heft_archive *archive = load->archive;
    uint32_t file;
    heft_loaded tensor;
    for (uint32_t i = 0; i < archive->nfiles; i++)
        job->missing[i] = archive->files[i]->nwithheld + archive->files[i]->nreplaced + (job->known.files[i].by ? 0 : 1);
    for (uint64_t id = 0; id < archive->ntensors; id++)
        if (!(heft__archive_entry(archive, id, &file)->flags & HEFT__ENTRY_FILLER)) job->missing[file]++;
    for (uint64_t i = 0; i < load->nkept; i++) {
        uint64_t id = heft__load_kept(load, i);
        const heft__entry *entry = heft__archive_entry(archive, id, &file);
        if (!(entry->flags & HEFT__ENTRY_FILLER) && landed_is_there(job, id, entry, &tensor)) job->missing[file]--;
    }
}

static void landed_sort_out(landed_job *job) {
    const heft_load_plan *load = job->work->load;
    for (uint64_t i = 0; i < load->nkept; i++) {
        uint64_t id = heft__load_kept(load, i);
        uint32_t file;
        heft_loaded tensor;
        const heft__entry *entry = heft__archive_entry(load->archive, id, &file);
        bool npz = strcmp(load->archive->files[file]->format, "npz") == 0;
        bool there = landed_is_there(job, id, entry, &tensor), mapped = job->work->weights->states[id] & HEFT__WEIGHTS_MAPPED;
        bool wanted = job->known.by[id] || (!job->missing[file] && !(entry->flags & HEFT__ENTRY_FILLER));
        if (wanted && mapped) job->again[job->nagain++] = id;
        else if (wanted && there) {
            job->tensors[job->n++] = (landed_tensor){id, tensor.data, tensor.nbytes, job->npieces};
            job->npieces += (tensor.nbytes + HEFT__DIGEST_CHUNK - 1) / HEFT__DIGEST_CHUNK;
        } else if (npz && (entry->flags & HEFT__ENTRY_PACKED)) job->nverified++; /* by whoever decoded it */
        else if (npz) job->members[job->nmembers++] = id;
    }
}

/* ---- in memory ---- */

static uint64_t landed_find(const landed_job *job, uint64_t piece) {
    uint64_t low = 0, high = job->n;
    while (high - low > 1) {
        uint64_t middle = low + (high - low) / 2;
        if (job->tensors[middle].first <= piece) low = middle;
        else high = middle;
    }
    return low;
}

static void landed_work(void *ctx, uint32_t worker) {
    enum { BATCH = 16 };
    landed_job *job = ctx;
    (void)worker;
    for (;;) {
        uint64_t piece = atomic_fetch_add_explicit(&job->next, BATCH, memory_order_relaxed), end = piece + BATCH;
        if (piece >= job->npieces) return;
        uint64_t at = landed_find(job, piece);
        for (; piece < end && piece < job->npieces; piece++) {
            while (at + 1 < job->n && job->tensors[at + 1].first <= piece) at++;
            const landed_tensor *tensor = &job->tensors[at];
            uint64_t from = (piece - tensor->first) * HEFT__DIGEST_CHUNK, left = tensor->nbytes - from;
            job->xxh3->bytes(tensor->data + from, (size_t)(left < HEFT__DIGEST_CHUNK ? left : HEFT__DIGEST_CHUNK),
                             job->pieces[piece]);
        }
    }
}

/* One result; the first bad one by id becomes the error. */
static void landed_judge(landed_job *job, uint64_t id, const heft_verified *result) {
    uint32_t file;
    job->nverified++;
    if (result->verdict == HEFT_VERDICT_GOOD) return;
    (void)heft__archive_entry(job->work->load->archive, id, &file);
    job->missing[file]++; /* that all its data are others says no more */
    if (job->nbad++ && job->first_id < id) return;
    job->first_id = id;
    job->status = heft__verify_fail(job->work->load->archive, id, result, &job->first);
}

static void landed_compare(landed_job *job, uint64_t id, const uint8_t found[16]) {
    memcpy(job->values[id], found, 16);
    if (!job->known.by[id]) return; /* the digest of all data speaks for it */
    bool good = memcmp(job->known.digests[id], found, 16) == 0;
    heft_verified result = {.verdict = good ? HEFT_VERDICT_GOOD : HEFT_VERDICT_BAD, .by = job->known.by[id]};
    memcpy(result.expected, job->known.digests[id], 16);
    memcpy(result.found, found, 16);
    landed_judge(job, id, &result);
}

static heft_status landed_memory(landed_job *job, heft_error *err) {
    heft_status status = HEFT_OK;
    if (!job->n) return HEFT_OK;
    job->xxh3 = heft__xxh3(false, err);
    if (!job->xxh3) return HEFT_UNSUPPORTED;
    job->pieces = heft__alloc(&job->alloc, job->npieces * sizeof *job->pieces);
    if (!job->pieces) return heft__fail_memory(err, job->npieces * sizeof *job->pieces);
    heft__parallel(job->work->plan->workers ? job->work->plan->workers : 1, landed_work, job);
    for (uint64_t i = 0; i < job->n && status == HEFT_OK; i++) {
        uint8_t found[16];
        uint64_t first = job->tensors[i].first, end = i + 1 < job->n ? job->tensors[i + 1].first : job->npieces;
        status = heft__digest_bytes(HEFT__DIGEST_XXH3, job->pieces + first, (size_t)(end - first) * 16, found, err);
        if (status == HEFT_OK) landed_compare(job, job->tensors[i].id, found);
    }
    return status;
}

/* ---- what is not memory of the load, and what has no digest but a checksum ---- */

static heft_status landed_files(landed_job *job, heft_error *err) {
    heft_read_options options = {.struct_size = sizeof options, .workers = job->work->load->options.workers};
    const heft_archive *archive = job->work->load->archive;
    heft_status status = HEFT_OK;
    if (job->nagain) status = heft__archive_digests(archive, &job->alloc, job->again, job->nagain, &options, job->found, err);
    for (uint64_t i = 0; i < job->nagain && status == HEFT_OK; i++) landed_compare(job, job->again[i], job->found[i]);
    if (status == HEFT_OK && job->nmembers)
        status = heft__verify_members(archive, &job->alloc, job->members, job->nmembers, &options, job->results, NULL, NULL,
                                      err);
    for (uint64_t i = 0; i < job->nmembers && status == HEFT_OK; i++) landed_judge(job, job->members[i], &job->results[i]);
    return status;
}

/* The digest of all data of each file that has landed whole, and the sizes of all files. */
static heft_status landed_wholes(landed_job *job, heft_error *err) {
    const heft_archive *archive = job->work->load->archive;
    uint8_t(*own)[16] = heft__alloc(&job->alloc, archive->ntensors * sizeof *own);
    heft_status status = own ? HEFT_OK : heft__fail_memory(err, archive->ntensors * sizeof *own);
    uint64_t id = 0;
    for (uint32_t i = 0; i < archive->nfiles && status == HEFT_OK; i++) {
        heft_verified_file *file = &job->known.files[i];
        uint64_t n = 0, alone = 0;
        uint32_t of;
        for (; id < archive->ntensors; id++) {
            const heft__entry *entry = heft__archive_entry(archive, id, &of);
            if (of != i) break;
            if (job->missing[i] || (entry->flags & HEFT__ENTRY_FILLER)) continue;
            memcpy(own[n++], job->values[id], 16);
            alone += !job->known.by[id];
        }
        if (!job->wanted[i]) continue;
        if (!job->missing[i]) {
            status = heft__digests_of_all(&job->alloc, (const uint8_t(*)[16])own, n, file->found, err);
            file->data = memcmp(file->found, file->expected, 16) == 0 ? HEFT_VERDICT_GOOD : HEFT_VERDICT_BAD;
            job->nverified += alone;
        }
        bool bad = file->data == HEFT_VERDICT_BAD || file->resized;
        if (status == HEFT_OK && bad && job->nbad++ == 0)
            job->status = heft__verify_fail_file(archive, i, file, &job->first);
    }
    heft__free(&job->alloc, own, archive->ntensors * sizeof *own);
    return status;
}

static heft_status landed_allocate(landed_job *job, heft_error *err) {
    uint64_t n = job->work->load->nkept, all_tensors = job->work->load->archive->ntensors;
    job->missing = heft__alloc(&job->alloc, job->work->load->archive->nfiles * sizeof *job->missing);
    job->values = heft__alloc(&job->alloc, all_tensors * sizeof *job->values);
    job->wanted = heft__alloc_zero(&job->alloc, job->work->load->archive->nfiles * sizeof *job->wanted);
    job->tensors = heft__alloc(&job->alloc, n * sizeof *job->tensors);
    job->again = heft__alloc(&job->alloc, n * sizeof *job->again);
    job->members = heft__alloc(&job->alloc, n * sizeof *job->members);
    job->results = heft__alloc_zero(&job->alloc, n * sizeof *job->results);
    job->found = heft__alloc(&job->alloc, n * sizeof *job->found);
    bool all = job->missing && job->values && job->wanted && job->tensors && job->again && job->members && job->results &&
               job->found;
    for (uint64_t i = 0; i < n && all; i++) {
        uint32_t file;
        (void)heft__archive_entry(job->work->load->archive, heft__load_kept(job->work->load, i), &file);
        job->wanted[file] = true;
    }
    return all ? HEFT_OK : heft__fail_memory(err, n * sizeof *job->results);
}

static void landed_free(landed_job *job) {
    uint64_t n = job->work->load->nkept;
    heft__free(&job->alloc, job->missing, job->work->load->archive->nfiles * sizeof *job->missing);
    heft__free(&job->alloc, job->values, job->work->load->archive->ntensors * sizeof *job->values);
    heft__free(&job->alloc, job->wanted, job->work->load->archive->nfiles * sizeof *job->wanted);
    heft__free(&job->alloc, job->tensors, n * sizeof *job->tensors);
    heft__free(&job->alloc, job->again, n * sizeof *job->again);
    heft__free(&job->alloc, job->members, n * sizeof *job->members);
    heft__free(&job->alloc, job->results, n * sizeof *job->results);
    heft__free(&job->alloc, job->found, n * sizeof *job->found);
    heft__free(&job->alloc, job->pieces, job->npieces * sizeof *job->pieces);
    heft__known_free(&job->known);
}

heft_status heft__load_verify(heft__load_work *work, heft_error *err) {
    const heft_load_plan *load = work->load;
    landed_job job = {.work = work, .alloc = load->alloc, .known = {.alloc = load->alloc}};
    double started = heft__os_seconds();
    atomic_init(&job.next, 0);
    heft_status status = landed_allocate(&job, err);
    if (status == HEFT_OK) status = heft__known_make(&job.known, load->archive, job.wanted, &job.alloc, err);
    if (status == HEFT_OK) {
        landed_find_whole(&job);
        landed_sort_out(&job);
        status = landed_memory(&job, err);
    }
    if (status == HEFT_OK) status = landed_files(&job, err);
    if (status == HEFT_OK) status = landed_wholes(&job, err);
    if (status == HEFT_OK && job.nbad) {
        status = job.status;
        if (err) {
            *err = job.first;
            err->more = job.nbad - 1 < UINT32_MAX ? (uint32_t)(job.nbad - 1) : UINT32_MAX;
        }
    }
    work->stats.nverified = status == HEFT_OK ? job.nverified : 0;
    work->stats.verify_seconds = heft__os_seconds() - started;
    work->stats.total_seconds += work->stats.verify_seconds;
    landed_free(&job);
    return status;
}
