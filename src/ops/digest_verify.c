/* ops: tensors that are there against what is known of them: by their own digest, by their member, by that of all data. */
#include "base/error.h"
#include "base/text.h"
#include "ops/digest_verify.h"

#include <stdio.h>
#include <string.h>

typedef struct verify_job {
    const heft_archive *archive;
    heft_allocator alloc;
    const uint64_t *ids; /* NULL: all */
    uint64_t nids;
    const uint8_t (*given)[16]; /* of `ids`: nothing is read; NULL: digests are made of the bytes */
    heft_verified *tensors; /* of `ids` */
    heft__known known;
    uint64_t *place;        /* by id, 1 more than its place in `ids`; 0: not asked for */
    bool *wanted;           /* of files: a tensor of it is asked for */
    bool *whole;            /* of files: the digest of all data can be made */
    uint64_t *digested;     /* ids whose bytes are looked at, ascending */
    uint8_t (*found)[16];
    uint64_t ndigested;
    heft_error other;       /* of the first bad member that is no array */
} verify_job;

static uint64_t verify_id(const verify_job *job, uint64_t i) {
    return job->ids ? job->ids[i] : i;
}

static heft_status verify_allocate(verify_job *job, heft_error *err) {
    uint64_t n = job->archive->ntensors, nfiles = job->archive->nfiles;
    job->tensors = heft__alloc_zero(&job->alloc, job->nids * sizeof *job->tensors);
    job->place = heft__alloc_zero(&job->alloc, n * sizeof *job->place);
    job->wanted = heft__alloc_zero(&job->alloc, nfiles * sizeof *job->wanted);
    job->whole = heft__alloc_zero(&job->alloc, nfiles * sizeof *job->whole);
    job->digested = heft__alloc(&job->alloc, n * sizeof *job->digested);
    job->found = heft__alloc(&job->alloc, n * sizeof *job->found);
    bool all = job->tensors && job->place && job->wanted && job->whole && job->digested && job->found;
    return all ? HEFT_OK : heft__fail_memory(err, n * sizeof *job->found);
}

static void verify_free(verify_job *job) {
    uint64_t n = job->archive->ntensors, nfiles = job->archive->nfiles;
    heft__free(&job->alloc, job->tensors, job->nids * sizeof *job->tensors);
    heft__free(&job->alloc, job->place, n * sizeof *job->place);
    heft__free(&job->alloc, job->wanted, nfiles * sizeof *job->wanted);
    heft__free(&job->alloc, job->whole, nfiles * sizeof *job->whole);
    heft__free(&job->alloc, job->digested, n * sizeof *job->digested);
    heft__free(&job->alloc, job->found, n * sizeof *job->found);
    heft__known_free(&job->known);
}

static heft_status verify_places(verify_job *job, heft_error *err) {
    for (uint64_t i = 0; i < job->nids; i++) {
        uint64_t id = verify_id(job, i);
        uint32_t file;
        if (id >= job->archive->ntensors)
            return heft__fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL, "tensor id %llu is out of range",
                              (unsigned long long)id);
        heft__archive_entry(job->archive, id, &file);
        job->place[id] = i + 1;
        job->wanted[file] = true;
    }
    for (uint32_t i = 0; i < job->archive->nfiles; i++) { /* one without a tensor belongs to the whole */
        const heft__listing *listing = job->archive->files[i];
        if (job->nids == job->archive->ntensors && listing->nvisible == 0) job->wanted[i] = true;
    }
    return HEFT_OK;
}

/* Which files are whole: all their tensors are asked for, none is hidden, and none is bad already. */
static void verify_find_whole(verify_job *job) {
    const heft_archive *archive = job->archive;
    for (uint32_t i = 0; i < archive->nfiles; i++)
        job->whole[i] = job->wanted[i] && job->known.files[i].by && archive->files[i]->nwithheld == 0 &&
                        archive->files[i]->nreplaced == 0;
    for (uint64_t id = 0; id < archive->ntensors; id++) {
        uint32_t file;
        const heft__entry *entry = heft__archive_entry(archive, id, &file);
        if (entry->flags & HEFT__ENTRY_FILLER) continue;
        bool fine = job->place[id] && job->tensors[job->place[id] - 1].verdict != HEFT_VERDICT_BAD;
        if (!fine) job->whole[file] = false;
    }
}

static void verify_choose(verify_job *job) {
    for (uint64_t id = 0; id < job->archive->ntensors; id++) {
        uint32_t file;
        const heft__entry *entry = heft__archive_entry(job->archive, id, &file);
        bool filler = entry->flags & HEFT__ENTRY_FILLER, own = job->place[id] && job->known.by[id];
        if (!own && (filler || !job->whole[file])) continue;
        if (job->place[id] && job->tensors[job->place[id] - 1].verdict == HEFT_VERDICT_BAD) continue;
        job->digested[job->ndigested++] = id;
    }
}

/* The digest of all data of each whole file, from those of its tensors. */
static heft_status verify_data(verify_job *job, heft_error *err) {
    heft_status status = HEFT_OK;
    uint8_t(*own)[16] = heft__alloc(&job->alloc, job->ndigested * sizeof *own);
    if (!own) return heft__fail_memory(err, job->ndigested * sizeof *own);
    for (uint32_t i = 0, at = 0; i < job->archive->nfiles && status == HEFT_OK; i++) {
        heft_verified_file *file = &job->known.files[i];
        uint64_t n = 0;
        uint32_t of;
        for (; at < job->ndigested; at++) {
            const heft__entry *entry = heft__archive_entry(job->archive, job->digested[at], &of);
            if (of != i) break;
            if (!(entry->flags & HEFT__ENTRY_FILLER)) memcpy(own[n++], job->found[at], 16);
        }
        if (!job->whole[i]) continue;
        status = heft__digests_of_all(&job->alloc, (const uint8_t(*)[16])own, n, file->found, err);
        file->data = memcmp(file->found, file->expected, 16) == 0 ? HEFT_VERDICT_GOOD : HEFT_VERDICT_BAD;
    }
    heft__free(&job->alloc, own, job->ndigested * sizeof *own);
    return status;
}

static void verify_judge(verify_job *job) {
    for (uint64_t i = 0; i < job->ndigested; i++) {
        uint64_t id = job->digested[i];
        if (!job->place[id] || !job->known.by[id]) continue;
        heft_verified *out = &job->tensors[job->place[id] - 1];
        bool good = memcmp(job->known.digests[id], job->found[i], 16) == 0;
        *out = (heft_verified){.verdict = good ? HEFT_VERDICT_GOOD : HEFT_VERDICT_BAD, .by = job->known.by[id]};
        memcpy(out->expected, job->known.digests[id], 16);
        memcpy(out->found, job->found[i], 16);
    }
    for (uint64_t i = 0; i < job->nids; i++) { /* an id that comes twice, and what has no digest of its own */
        uint64_t id = verify_id(job, i);
        uint32_t number;
        heft_verified *out = &job->tensors[i];
        const heft__entry *entry = heft__archive_entry(job->archive, id, &number);
        const heft_verified_file *file = &job->known.files[number];
        if (job->place[id] != i + 1) *out = job->tensors[job->place[id] - 1];
        if (out->verdict || !job->whole[number] || (entry->flags & HEFT__ENTRY_FILLER)) continue;
        *out = (heft_verified){.verdict = file->data, .by = HEFT_VERIFIED_BY_DATA};
        memcpy(out->expected, file->expected, 16);
        memcpy(out->found, file->found, 16);
    }
}

/* ---- the answer ---- */

static void verify_text(const heft_verified *result, char expected[HEFT__DIGEST_TEXT_MOST], char found[HEFT__DIGEST_TEXT_MOST]) {
    size_t nbytes = result->by == HEFT_VERIFIED_BY_CRC32 ? 4 : 16;
    heft__digest_text(result->expected, nbytes, expected);
    heft__digest_text(result->found, nbytes, found);
}

heft_status heft__verify_fail(const heft_archive *archive, uint64_t id, const heft_verified *result, heft_error *err) {
    static const char *const says[] = {"", "its metadata says", "its sidecar says", "the directory of the zip archive says",
                                       "all data of its file should have"};
    char expected[HEFT__DIGEST_TEXT_MOST], found[HEFT__DIGEST_TEXT_MOST];
    verify_text(result, expected, found);
    if (result->damaged)
        heft__fail(err, HEFT_MISMATCH, HEFT_FAULT_CHECKSUM, "its compressed data cannot be decoded; CRC-32 %s was expected",
                   expected);
    else
        heft__fail(err, HEFT_MISMATCH, HEFT_FAULT_CHECKSUM, "its bytes have the %s %s, and %s %s",
                   result->by == HEFT_VERIFIED_BY_CRC32 ? "CRC-32" : "digest", found, says[result->by], expected);
    heft__error_name(err, archive, id);
    return HEFT_MISMATCH;
}

heft_status heft__verify_fail_file(const heft_archive *archive, uint32_t number, const heft_verified_file *file, heft_error *err) {
    const char *path = heft_source_label(archive->files[number]->source);
    char name[300], expected[HEFT__DIGEST_TEXT_MOST], found[HEFT__DIGEST_TEXT_MOST];
    uint64_t nbytes = heft__listing_file_nbytes(archive->files[number]);
    heft__escape(name, sizeof name, path, strlen(path));
    if (file->resized)
        heft__fail(err, HEFT_MISMATCH, HEFT_FAULT_CHECKSUM, "%s: it has %llu bytes, and its sidecar says %llu", name,
                   (unsigned long long)nbytes, (unsigned long long)file->sidecar_nbytes);
    else {
        heft__digest_text(file->expected, 16, expected);
        heft__digest_text(file->found, 16, found);
        heft__fail(err, HEFT_MISMATCH, HEFT_FAULT_CHECKSUM, "%s: all its data have the digest %s, and its %s says %s", name, found,
                   file->by == HEFT_VERIFIED_BY_SIDECAR ? "sidecar" : "metadata", expected);
    }
    heft__error_file(err, path);
    if (file->resized) heft__error_at(err, HEFT_NONE, file->sidecar_nbytes, nbytes);
    return HEFT_MISMATCH;
}

/* The first that is bad decides. */
static heft_status verify_answer(const verify_job *job, heft_error *err) {
    uint64_t bad = 0, known = 0, first = HEFT_NONE;
    uint32_t file = UINT32_MAX;
    for (uint64_t i = 0; i < job->nids; i++) {
        known += job->tensors[i].verdict != HEFT_VERDICT_ABSENT;
        if (job->tensors[i].verdict == HEFT_VERDICT_BAD && bad++ == 0) first = i;
    }
    for (uint32_t i = 0; i < job->archive->nfiles; i++) {
        const heft_verified_file *f = &job->known.files[i];
        known += f->data != HEFT_VERDICT_ABSENT;
        if ((f->data == HEFT_VERDICT_BAD || f->resized || f->bad_member) && bad++ == 0) file = i;
    }
    if (!bad)
        return known ? HEFT_OK
                     : heft__fail(err, HEFT_NOT_FOUND, HEFT_FAULT_CALL,
                                  "no digest of these tensors is known: they cannot be verified");
    heft_status status = HEFT_MISMATCH;
    const heft_verified_file *of = file == UINT32_MAX ? NULL : &job->known.files[file];
    if (first != HEFT_NONE) status = heft__verify_fail(job->archive, verify_id(job, first), &job->tensors[first], err);
    else if (of->resized || of->data == HEFT_VERDICT_BAD) status = heft__verify_fail_file(job->archive, file, of, err);
    else if (err) *err = job->other;
    if (err) err->more = bad - 1 < UINT32_MAX ? (uint32_t)(bad - 1) : UINT32_MAX;
    return status;
}

/* The digests of `digested`. */
static heft_status verify_digest(verify_job *job, const heft_read_options *options, heft_error *err) {
    if (!job->ndigested) return HEFT_OK;
    if (!job->given)
        return heft__archive_digests(job->archive, &job->alloc, job->digested, job->ndigested, options, job->found, err);
    for (uint64_t i = 0; i < job->ndigested; i++) /* all of them have been asked for */
        memcpy(job->found[i], job->given[job->place[job->digested[i]] - 1], 16);
    return HEFT_OK;
}

static heft_status verify_run(verify_job *job, const heft_read_options *options, heft_error *err) {
    heft_status status = verify_allocate(job, err);
    if (status == HEFT_OK) status = verify_places(job, err);
    if (status == HEFT_OK) status = heft__known_make(&job->known, job->archive, job->wanted, &job->alloc, err);
    if (status == HEFT_OK && !job->given)
        status = heft__verify_members(job->archive, &job->alloc, job->ids, job->nids, options, job->tensors, job->known.files,
                                      &job->other, err);
    if (status != HEFT_OK) return status;
    verify_find_whole(job);
    verify_choose(job);
    status = verify_digest(job, options, err);
    if (status == HEFT_OK) status = verify_data(job, err);
    if (status == HEFT_OK) verify_judge(job);
    return status;
}

heft_status heft__archive_verify(const heft_archive *archive, const heft_allocator *alloc, const uint64_t *ids, uint64_t nids,
                                 const heft_read_options *options, heft_verified *tensors, heft_verified_file *files,
                                 heft_error *err) {
    verify_job job = {.archive = archive, .alloc = *alloc, .ids = ids, .nids = nids, .known = {.alloc = *alloc}};
    heft_status status = verify_run(&job, options, err);
    if (status == HEFT_OK) {
        if (tensors && nids) memcpy(tensors, job.tensors, (size_t)nids * sizeof *tensors);
        if (files) memcpy(files, job.known.files, archive->nfiles * sizeof *files);
        status = verify_answer(&job, err);
    }
    verify_free(&job);
    return status;
}

heft_status heft__archive_compare(const heft_archive *archive, const heft_allocator *alloc, const uint64_t *ids, uint64_t nids,
                                  const uint8_t (*digests)[16], heft_error *err) {
    verify_job job = {
        .archive = archive, .alloc = *alloc, .ids = ids, .nids = nids, .given = digests, .known = {.alloc = *alloc}};
    heft_status status = verify_run(&job, NULL, err);
    if (status == HEFT_OK) status = verify_answer(&job, err);
    verify_free(&job);
    return status;
}
