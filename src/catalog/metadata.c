/* catalog: the metadata of several files as one: each key that has one value in all files that have it. */
#include "base/text.h"
#include "catalog/catalog.h"

#include <string.h>

static int metadata_compare(const heft_pair *a, const heft_pair *b) {
    return heft__bytes_compare(a->key, a->key_len, b->key, b->key_len);
}

/* Merges two sorted runs; of equal keys those of `a` come first. */
static void metadata_merge_runs(const heft_pair *a, uint64_t na, const heft_pair *b, uint64_t nb, heft_pair *to) {
    while (na && nb) {
        bool first = metadata_compare(a, b) <= 0;
        *to++ = first ? *a++ : *b++;
        if (first)
            na--;
        else
            nb--;
    }
    while (na--) *to++ = *a++;
    while (nb--) *to++ = *b++;
}

/* The pairs of every file are sorted: `ends` holds where each file's run ends, and runs are merged two by two. */
static heft_pair *metadata_sort(heft_pair *from, heft_pair *to, uint64_t *ends, uint32_t nruns) {
    while (nruns > 1) {
        uint32_t out = 0;
        for (uint32_t i = 0; i < nruns; i += 2) {
            uint64_t start = i ? ends[i - 1] : 0, middle = ends[i], end = i + 1 < nruns ? ends[i + 1] : middle;
            metadata_merge_runs(from + start, middle - start, from + middle, end - middle, to + start);
            ends[out++] = end;
        }
        nruns = out;
        heft_pair *swap = from;
        from = to;
        to = swap;
    }
    return from;
}

/* Keeps of each key one pair if all values are equal, none if not. Writes behind what it reads. */
static uint64_t metadata_keep(heft_pair *pairs, uint64_t n, uint64_t *ndiffer, heft_pair *first) {
    uint64_t kept = 0;
    for (uint64_t i = 0, end; i < n; i = end) {
        bool same = true;
        for (end = i + 1; end < n && !metadata_compare(&pairs[i], &pairs[end]); end++)
            same = same &&
                   !heft__bytes_compare(pairs[i].value, pairs[i].value_len, pairs[end].value, pairs[end].value_len);
        /* The key that says which library a file is for is the one worth naming. */
        if (!same && (!(*ndiffer)++ || (pairs[i].key_len == 6 && !memcmp(pairs[i].key, "format", 6))))
            *first = pairs[i];
        if (same) pairs[kept++] = pairs[i];
    }
    return kept;
}

static void metadata_warn(heft_report *report, uint64_t ndiffer, const heft_pair *first) {
    heft__fault fault = {.kind = HEFT_FAULT_METADATA_DIFFERS,
                         .severity = (uint8_t)HEFT_SEVERITY_WARNING,
                         .status = (uint8_t)-HEFT_MISMATCH,
                         .file = UINT32_MAX,
                         .entry = UINT32_MAX,
                         .offset = HEFT_NONE};
    fault.other = ndiffer < UINT32_MAX ? (uint32_t)ndiffer : UINT32_MAX;
    fault.value = heft__report_text(report, first->key, first->key_len);
    heft__report_add(report, fault);
}

bool heft__archive_merge_metadata(heft_archive *archive) {
    if (archive->nfiles == 1) {
        archive->metadata = archive->files[0]->metadata;
        archive->nmetadata = archive->files[0]->nmetadata;
        return true;
    }
    const heft_allocator *alloc = &archive->alloc;
    uint64_t n = 0, ndiffer = 0;
    for (uint32_t i = 0; i < archive->nfiles; i++) n += archive->files[i]->nmetadata;
    if (!n) return true;
    heft_pair *pairs = heft__alloc(alloc, n * sizeof *pairs), *scratch = heft__alloc(alloc, n * sizeof *scratch);
    heft_pair first = {0};
    uint64_t *ends = heft__alloc(alloc, archive->nfiles * sizeof *ends), at = 0;
    bool ok = pairs && scratch && ends;
    if (ok) {
        for (uint32_t i = 0; i < archive->nfiles; i++) {
            const heft__listing *listing = archive->files[i];
            if (listing->nmetadata) memcpy(pairs + at, listing->metadata, listing->nmetadata * sizeof *pairs);
            at += listing->nmetadata;
            ends[i] = at;
        }
        heft_pair *sorted = metadata_sort(pairs, scratch, ends, archive->nfiles);
        if (sorted == scratch) {
            scratch = pairs;
            pairs = sorted;
        }
        archive->metadata = pairs;
        archive->metadata_capacity = n;
        archive->nmetadata = metadata_keep(pairs, n, &ndiffer, &first);
        if (ndiffer) metadata_warn(archive->warnings, ndiffer, &first);
        pairs = NULL;
    }
    heft__free(alloc, ends, archive->nfiles * sizeof *ends);
    heft__free(alloc, scratch, n * sizeof *scratch);
    heft__free(alloc, pairs, n * sizeof *pairs);
    return ok;
}
