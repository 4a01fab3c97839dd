/* ops: digests of tensors that are there, by the machinery that makes them while writing; and what they are compared with. */
#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "ops/save.h"

#include <string.h>

/* ---- making ---- */

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
        if (entry->dtype == HEFT_DTYPE_NONE)
            return heft__fail(err, HEFT_UNSUPPORTED, HEFT_FAULT_UNKNOWN_DTYPE, "a tensor of unknown dtype has no digest");
        job->items[i] = (heft_save_item){.name = entry->name, .name_len = entry->name_len, .archive = archive,
                                         .id = ids ? ids[i] : i};
        if (nbytes == 0) continue;
        heft__part *part = &job->parts[job->nparts++];
        heft__part_make(part, &job->items[i], entry->dtype, job->total_nbytes, nbytes, &options);
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

/* ---- what is known ---- */

static bool digest_hex(const heft__json_token *token, uint8_t out[16]) {
    if (token->type != HEFT__JSON_STRING || token->escaped || token->len != 32) return false;
    for (size_t i = 0; i < 32; i++) {
        char c = token->text[i];
        int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
        if (digit < 0) return false;
        out[i / 2] = (uint8_t)(i % 2 ? out[i / 2] | digit : digit << 4);
    }
    return true;
}

static heft_status digest_fail_metadata(const heft__listing *listing, heft_error *err) {
    const char *path = heft_source_label(listing->source);
    char name[300];
    heft__escape(name, sizeof name, path, strlen(path));
    heft__fail(err, HEFT_CORRUPT, HEFT_FAULT_BAD_METADATA,
               "%s: its metadata heft.xxh3 is no object of names and 32 hexadecimal digits", name);
    heft__error_file(err, path);
    return HEFT_CORRUPT;
}

/* Digests in the metadata of one file: known[id] and has[id] of its visible tensors. */
static heft_status digest_read(const heft_archive *archive, uint32_t file, uint8_t (*known)[16], bool *has, heft_error *err) {
    const heft__listing *listing = archive->files[file];
    heft_pair pair;
    if (heft_archive_metadata_find(archive, file, "heft.xxh3", 9, &pair, NULL) != HEFT_OK) return HEFT_OK;
    heft__json json;
    heft__json_token key, value;
    char *name = heft__alloc(&archive->alloc, pair.value_len + 1);
    if (!name) return heft__fail_memory(err, pair.value_len + 1);
    heft__json_init(&json, pair.value, pair.value_len);
    bool ok = heft__json_next(&json, &key) == HEFT__JSON_OBJECT;
    while (ok && heft__json_next(&json, &key) == HEFT__JSON_KEY) {
        uint8_t digest[16];
        size_t len = heft__json_unescape(&key, name);
        heft__json_next(&json, &value);
        ok = digest_hex(&value, digest);
        uint64_t id = ok ? heft__archive_lookup(archive, name, len) : HEFT_NONE;
        uint32_t of;
        if (id == HEFT_NONE || (heft__archive_entry(archive, id, &of), of != file)) continue;
        memcpy(known[id], digest, 16);
        has[id] = true;
    }
    ok = ok && key.type == HEFT__JSON_OBJECT_END && heft__json_next(&json, &key) == HEFT__JSON_END;
    heft__free(&archive->alloc, name, pair.value_len + 1);
    return ok ? HEFT_OK : digest_fail_metadata(listing, err);
}

heft_status heft__digests_known(const heft_archive *archive, uint8_t (*known)[16], bool *has, heft_error *err) {
    heft_status status = HEFT_OK;
    for (uint32_t file = 0; file < archive->nfiles && status == HEFT_OK; file++)
        status = digest_read(archive, file, known, has, err);
    return status;
}
