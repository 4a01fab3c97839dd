/* ops: tensors of npz files verified by the checksums in the directory of the zip archive. */
#include "base/error.h"
#include "ops/digest_verify.h"
#include "zip/zip.h"

#include <string.h>

/* The tensors of one file, by rising entries, and the members that they are. */
typedef struct member_job {
    const heft_archive *archive;
    const uint64_t *ids;
    heft_verified *tensors;
    heft__zip zip;
    heft__hash_index names; /* of members */
    heft__zip_check *checks; /* of n tensors, then of `nothers` members that are no arrays */
    uint64_t *places;        /* of each of the n its place in `ids` */
    uint64_t n, nothers, most;
} member_job;

static void member_crc(uint32_t crc, uint8_t out[16]) {
    for (int i = 0; i < 4; i++) out[i] = (uint8_t)(crc >> (24 - 8 * i));
}

static bool member_is_array(const heft__zip_member *m) {
    return m->name_len >= 4 && memcmp(m->name + m->name_len - 4, ".npy", 4) == 0;
}

static heft_status member_index(member_job *job, const heft_allocator *alloc, heft_error *err) {
    if (!heft__hash_index_init(&job->names, alloc, job->zip.nmembers)) return heft__fail_memory(err, HEFT_NONE);
    for (uint32_t i = 0; i < job->zip.nmembers; i++) {
        const heft__zip_member *m = &job->zip.members[i];
        if (!member_is_array(m)) continue;
        if (!heft__hash_add(&job->names, heft__hash_name(&job->names, m->name, m->name_len - 4), i))
            return heft__fail_memory(err, HEFT_NONE);
    }
    return HEFT_OK;
}

/* The member of a tensor, or UINT32_MAX: the file is another one now. */
static uint32_t member_find(const member_job *job, const heft__entry *entry) {
    uint32_t hash = heft__hash_name(&job->names, entry->name, entry->name_len), number;
    for (uint64_t cursor = heft__hash_start(&job->names, hash); heft__hash_next(&job->names, hash, &cursor, &number);) {
        const heft__zip_member *m = &job->zip.members[number];
        if (m->name_len - 4 == entry->name_len && memcmp(m->name, entry->name, entry->name_len) == 0) return number;
    }
    return UINT32_MAX;
}

static heft_status member_gather(member_job *job, uint64_t nids, uint32_t wanted, heft_error *err) {
    for (uint64_t i = 0; i < nids; i++) {
        uint32_t file;
        const heft__entry *entry = heft__archive_entry(job->archive, job->ids ? job->ids[i] : i, &file);
        if (file != wanted) continue;
        uint32_t number = member_find(job, entry);
        if (number == UINT32_MAX)
            return heft__fail(err, HEFT_MISMATCH, HEFT_FAULT_FILE_CHANGED, "its members are others than when it was opened");
        heft_status status = heft__zip_locate(&job->zip, &job->zip.members[number], err);
        if (status != HEFT_OK) return status;
        job->places[job->n] = i;
        job->checks[job->n++] = (heft__zip_check){.member = number};
    }
    return HEFT_OK;
}

/* What can be decoded of all else. */
static heft_status member_gather_others(member_job *job, heft_error *err) {
    for (uint64_t i = 0; i < job->zip.nmembers; i++) {
        heft__zip_member *m = &job->zip.members[i];
        if (member_is_array(m) || heft__zip_check_method(m, NULL) == HEFT_UNSUPPORTED) continue;
        heft_status status = heft__zip_check_method(m, err);
        if (status == HEFT_OK) status = heft__zip_locate(&job->zip, m, err);
        if (status != HEFT_OK) return status;
        job->checks[job->n + job->nothers++] = (heft__zip_check){.member = i};
    }
    return HEFT_OK;
}

static void member_judge_others(const member_job *job, uint32_t file, heft_verified_file *out, heft_error *other) {
    for (uint64_t i = job->n; i < job->n + job->nothers; i++) {
        const heft__zip_check *check = &job->checks[i];
        const heft__zip_member *m = &job->zip.members[check->member];
        if (!check->damaged && check->found == m->crc32) continue;
        out->bad_member = true;
        if (other->status != HEFT_OK) continue;
        if (check->damaged)
            heft__zip_fail(other, HEFT_MISMATCH, HEFT_FAULT_CHECKSUM, m, "its compressed data cannot be decoded");
        else
            heft__zip_fail(other, HEFT_MISMATCH, HEFT_FAULT_CHECKSUM, m,
                           "its bytes have the CRC-32 %08lx, and the directory of the zip archive says %08lx",
                           (unsigned long)check->found, (unsigned long)m->crc32);
        heft__name_file(other, job->archive->files[file]->source);
    }
}

static void member_judge(const member_job *job) {
    for (uint64_t i = 0; i < job->n; i++) {
        const heft__zip_check *check = &job->checks[i];
        uint32_t expected = job->zip.members[check->member].crc32;
        heft_verified *out = &job->tensors[job->places[i]];
        bool good = !check->damaged && check->found == expected;
        *out = (heft_verified){.verdict = good ? HEFT_VERDICT_GOOD : HEFT_VERDICT_BAD, .by = HEFT_VERIFIED_BY_CRC32,
                               .damaged = check->damaged};
        member_crc(expected, out->expected);
        if (!check->damaged) member_crc(check->found, out->found);
    }
}

/* Checks of the open archive. */
static heft_status member_check(member_job *job, uint64_t nids, uint32_t file, const heft_read_options *options,
                                heft_verified_file *out, heft_error *other, const heft_allocator *alloc, heft_error *err) {
    job->n = job->nothers = 0;
    job->most = nids + job->zip.nmembers;
    job->checks = heft__alloc(alloc, job->most * sizeof *job->checks);
    if (!job->checks) return heft__fail_memory(err, job->most * sizeof *job->checks);
    heft_status status = member_index(job, alloc, err);
    if (status == HEFT_OK) status = member_gather(job, nids, file, err);
    bool all = out && job->n >= job->archive->files[file]->nvisible;
    if (status == HEFT_OK && all) status = member_gather_others(job, err);
    if (status == HEFT_OK)
        status = heft__zip_verify(&job->zip, job->checks, job->n + job->nothers, options->workers, options->progress,
                                  options->progress_ctx, err);
    if (status == HEFT_OK) member_judge(job);
    if (status == HEFT_OK && all) member_judge_others(job, file, out, other);
    heft__hash_index_free(&job->names);
    heft__free(alloc, job->checks, job->most * sizeof *job->checks);
    return status;
}

static heft_status member_file(member_job *job, uint64_t nids, uint32_t file, const heft_read_options *options,
                               heft_verified_file *out, heft_error *other, const heft_allocator *alloc, heft_error *err) {
    const heft__listing *listing = job->archive->files[file];
    heft_source *plain;
    heft_status status = heft__source_verify(listing->source, err);
    if (status == HEFT_OK)
        status = heft_source_window(listing->source, 0, heft__listing_file_nbytes(listing), &plain, err);
    if (status != HEFT_OK) return status;
    status = heft__zip_open(plain, HEFT__ZIP_DIRECTORY_MAX, alloc, &job->zip, err);
    if (status == HEFT_OK) {
        status = member_check(job, nids, file, options, out, other, alloc, err);
        heft__zip_close(&job->zip);
    }
    if (status != HEFT_OK) heft__error_file(err, heft_source_label(listing->source));
    heft_source_unref(plain);
    return status;
}

heft_status heft__verify_members(const heft_archive *archive, const heft_allocator *alloc, const uint64_t *ids, uint64_t nids,
                                 const heft_read_options *options, heft_verified *tensors, heft_verified_file *files,
                                 heft_error *other, heft_error *err) {
    member_job job = {.archive = archive, .ids = ids, .tensors = tensors};
    uint32_t last = UINT32_MAX;
    for (uint32_t i = 0; i < archive->nfiles; i++)
        if (strcmp(archive->files[i]->format, "npz") == 0) last = i;
    if (last == UINT32_MAX || nids == 0) return HEFT_OK;
    job.places = heft__alloc(alloc, nids * sizeof *job.places);
    heft_status status = job.places ? HEFT_OK : heft__fail_memory(err, nids * sizeof *job.places);
    for (uint32_t i = 0; i <= last && status == HEFT_OK; i++) {
        if (strcmp(archive->files[i]->format, "npz") != 0) continue;
        status = member_file(&job, nids, i, options, files ? &files[i] : NULL, other, alloc, err);
    }
    heft__free(alloc, job.places, nids * sizeof *job.places);
    return status;
}
