/* ops: checks a set as a whole: what opening would say, and what only a look at the folder and the sums can. */
#include "base/error.h"
#include "base/text.h"
#include "ops/journal.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

/* ---- accounting ---- */

/* Entries that a fault of the scan names are not whole, wherever their bytes lie. */
static void check_mark_broken(const heft_archive *archive) {
    const heft__faults *faults = &archive->warnings->faults;
    for (uint64_t i = 0; i < faults->count; i++) {
        const heft__fault *fault = &faults->items[i];
        if (fault->severity != HEFT_SEVERITY_ERROR || fault->file >= archive->nfiles) continue;
        heft__listing *listing = archive->files[fault->file];
        if (fault->entry >= listing->nentries) continue;
        switch (fault->kind) {
        case HEFT_FAULT_BAD_ENTRY:
        case HEFT_FAULT_UNKNOWN_DTYPE:
        case HEFT_FAULT_SHAPE_OVERFLOW:
        case HEFT_FAULT_SUB_BYTE:
        case HEFT_FAULT_SIZE_MISMATCH: listing->entries[fault->entry].flags |= HEFT__ENTRY_BROKEN; break;
        default: break;
        }
    }
}

/* One pass over the entries, which lie in the order of their first bytes. What overlaps is found at the later entry,
 * and the entry that reaches furthest so far is its partner. */
static void check_account(heft__listing *listing, heft_report_summary *sum) {
    uint64_t size = heft_source_size(listing->source), end = 0; /* what is decoded lies behind the end of the file */
    uint64_t data = size > listing->data_start ? size - listing->data_start : 0;
    heft__entry *furthest = NULL;
    sum->header_nbytes += listing->data_start;
    sum->data_nbytes += data;
    for (uint64_t i = 0; i < listing->nentries; i++) {
        heft__entry *entry = &listing->entries[i];
        sum->ntensors++;
        sum->nfillers += (entry->flags & HEFT__ENTRY_FILLER) != 0;
        if (entry->end < entry->begin) continue;
        uint64_t from = entry->begin < data ? entry->begin : data, to = entry->end < data ? entry->end : data;
        if (entry->end > data) entry->flags |= HEFT__ENTRY_BROKEN;
        if (from > end && !listing->scattered) sum->hole_nbytes += from - end;
        if (entry->begin < end && entry->end > entry->begin) {
            sum->overlap_nbytes += (to < end ? to : end) - (from < end ? from : end);
            entry->flags |= HEFT__ENTRY_BROKEN;
            if (furthest) furthest->flags |= HEFT__ENTRY_BROKEN;
        }
        if (to > end) sum->covered_nbytes += to - (from > end ? from : end);
        if (entry->end >= end && entry->end > entry->begin) furthest = entry;
        if (to > end) end = to;
    }
    for (uint64_t i = 0; i < listing->nentries; i++)
        sum->nwhole += !(listing->entries[i].flags & HEFT__ENTRY_BROKEN);
}

static void check_summarize(heft_archive *archive) {
    heft_report_summary *sum = &archive->warnings->summary;
    sum->nfiles = archive->nfiles;
    check_mark_broken(archive);
    for (uint32_t i = 0; i < archive->nfiles; i++)
        if (!archive->files[i]->fatal) check_account(archive->files[i], sum);
}

/* ---- tensors of the set ---- */

/* Tensors without elements are legal. In number they are what a distributed save leaves when nobody gathered it. */
static void check_empty_tensors(const heft_archive *archive) {
    enum { LEAST = 3, SHARE = 10 };
    uint64_t empty = 0, all = 0;
    heft__fault fault = {.kind = HEFT_FAULT_EMPTY_TENSORS,
                         .severity = (uint8_t)HEFT_SEVERITY_WARNING,
                         .status = (uint8_t)-HEFT_MISMATCH,
                         .offset = HEFT_NONE};
    for (uint32_t file = 0; file < archive->nfiles; file++) {
        const heft__listing *listing = archive->files[file];
        for (uint64_t e = 0; e < listing->nentries && !listing->fatal; e++) {
            const heft__entry *entry = &listing->entries[e];
            all++;
            if (entry->end != entry->begin || empty++) continue;
            fault.file = file;
            fault.entry = (uint32_t)e;
            fault.offset = heft__entry_offset(listing, entry);
        }
    }
    if (empty < LEAST || empty < all / SHARE) return;
    fault.other = empty < UINT32_MAX ? (uint32_t)empty : UINT32_MAX;
    heft__report_add(archive->warnings, fault);
}

/* ---- the folder ---- */

static void check_add_named(heft_report *report, heft_fault kind, heft_status status, heft_severity severity,
                            const char *name) {
    heft__fault fault = {.kind = (uint16_t)kind,
                         .severity = (uint8_t)severity,
                         .status = (uint8_t)-status,
                         .file = UINT32_MAX,
                         .entry = UINT32_MAX,
                         .other = UINT32_MAX,
                         .offset = HEFT_NONE};
    fault.value = heft__report_text(report, name, strlen(name));
    heft__report_add(report, fault);
}

/* The first shard of the index that is there and has a number. */
typedef struct check_stem {
    const char *name; /* NULL: none */
    size_t len;
} check_stem;

static check_stem check_find_stem(const heft__resolution *r) {
    heft__shard_number shard;
    for (uint32_t i = 0; i < r->nnames; i++)
        if (heft__shard_number_parse(r->names[i], &shard)) return (check_stem){r->names[i], shard.stem_len};
    return (check_stem){NULL, 0};
}

/* A numbered file of the stem that the index's shards have: it looks as if the index should name it. */
static bool check_has_stem(check_stem stem, const char *name) {
    heft__shard_number number;
    return stem.name && heft__shard_number_parse(name, &number) && number.stem_len == stem.len &&
           memcmp(stem.name, name, stem.len) == 0;
}

static void check_orphans(const heft__resolution *r, check_stem stem, heft_report *report) {
    for (uint64_t i = 0; i < r->nentries; i++) {
        const heft__directory_entry *entry = &r->entries[i];
        if (entry->named || !heft__is_tensor_file(entry)) continue;
        if (r->shadowed && strcmp(r->shadowed, entry->name) == 0) continue; /* a warning says so already */
        heft_severity severity = check_has_stem(stem, entry->name) ? HEFT_SEVERITY_WARNING : HEFT_SEVERITY_NOTE;
        check_add_named(report, HEFT_FAULT_ORPHAN_SHARD, HEFT_MISMATCH, severity, entry->name);
    }
}

static void check_say_numbering(const heft__resolution *r, heft_report *report, const char *text) {
    heft_error error;
    char path[200];
    heft__escape(path, sizeof path, r->index_path, strlen(r->index_path));
    heft__fail(&error, HEFT_MISMATCH, HEFT_FAULT_SHARD_NUMBERING, "%s: %s", path, text);
    heft__error_file(&error, r->index_path);
    heft__report_add_error(report, HEFT_SEVERITY_WARNING, UINT32_MAX, &error);
}

/* Shards of the index whose number is none of 1 to their total: how many, and the first. */
static void check_odd_numbers(const heft__resolution *r, heft_report *report) {
    const heft__index *index = r->index;
    const char *first = NULL;
    char name[200], text[300];
    uint32_t n = 0;
    for (uint32_t i = 0; i < index->nshards; i++) {
        if (heft__shard_number_fits(index->shards[i])) continue;
        if (n++ == 0) first = index->shards[i];
    }
    if (!first) return;
    heft__escape(name, sizeof name, first, strlen(first));
    snprintf(text, sizeof text, "it names %u shard%s with a number that is not from 1 to the total: \"%s\"%s", n,
             n == 1 ? "" : "s", name, n == 1 ? "" : " is the first");
    check_say_numbering(r, report, text);
}

/* Numbers of the index's shards: gaps that no file in the folder fills, and several totals. */
static bool check_numbering(heft__resolution *r, check_stem stem, heft_report *report) {
    const heft__index *index = r->index;
    heft__shard_number first = {0, 0, 0, false}, number;
    char missing[300], text[500];
    uint64_t n = 0;
    uint32_t numbered = 0;
    bool mixed = false;
    const char **names = heft__arena_alloc(&r->arena, (index->nshards + r->nentries) * sizeof *names, sizeof(void *));
    if (!names) return false;
    for (uint32_t i = 0; i < index->nshards; i++) {
        if (!heft__shard_number_parse(index->shards[i], &number)) continue;
        if (!numbered) first = number;
        mixed = mixed || number.total != first.total;
        names[numbered++] = index->shards[i];
    }
    for (uint64_t i = 0; numbered && i < r->nentries; i++)
        if (check_has_stem(stem, r->entries[i].name)) names[numbered++] = r->entries[i].name;
    if (!numbered) return true;
    if (!mixed && !heft__missing_numbers(&r->arena, names, numbered, first.total, missing, sizeof missing, &n))
        return false;
    if (!mixed && !n) return true;
    if (mixed)
        snprintf(text, sizeof text, "it names shards of different totals (-of-N)");
    else
        snprintf(text, sizeof text, "of %llu numbered shards it does not name %s, and no such file is there",
                 (unsigned long long)first.total, missing);
    check_say_numbering(r, report, text);
    return true;
}

static void check_age(int64_t mtime_ns, char *text, size_t size) {
    static const struct {
        int64_t seconds;
        const char *name;
    } units[] = {{86400, "day"}, {3600, "hour"}, {60, "minute"}, {1, "second"}};
    int64_t age = (int64_t)time(NULL) - mtime_ns / 1000000000;
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        int64_t n = age / units[i].seconds;
        if (n < 1) continue;
        snprintf(text, size, "%lld %s%s ago", (long long)n, units[i].name, n == 1 ? "" : "s");
        return;
    }
    snprintf(text, size, "just now");
}

/* Temporary files that saves left, or are writing. */
static void check_litter(const heft__resolution *r, heft_report *report) {
    for (uint64_t i = 0; i < r->nentries; i++) {
        const heft__directory_entry *entry = &r->entries[i];
        size_t len = strlen(entry->name);
        if (len < 10 || strncmp(entry->name, ".heft-", 6) != 0 || strcmp(entry->name + len - 4, ".tmp") != 0) continue;
        char age[64];
        heft__fault fault = {.kind = HEFT_FAULT_TEMP_FILE,
                             .severity = (uint8_t)HEFT_SEVERITY_NOTE,
                             .status = (uint8_t)-HEFT_MISMATCH,
                             .file = UINT32_MAX,
                             .entry = (uint32_t)(entry->nbytes >> 32),
                             .other = (uint32_t)entry->nbytes,
                             .offset = HEFT_NONE};
        fault.value = heft__report_text(report, entry->name, len);
        check_age(entry->mtime_ns, age, sizeof age);
        heft__report_text(report, age, strlen(age));
        heft__report_add(report, fault);
    }
}

heft_status heft__check(heft__resolution *r, const heft__open_job *job, heft_report **out, heft_error *err) {
    heft_archive *archive;
    *out = NULL;
    heft_status status = heft__open(r, job, &archive, err);
    if (status) return status;
    heft_report *report = archive->warnings;
    bool ok = true;
    check_summarize(archive);
    check_empty_tensors(archive);
    if (r->index) {
        check_stem stem = check_find_stem(r);
        check_orphans(r, stem, report);
        if (!r->incomplete) ok = check_numbering(r, stem, report);
        check_odd_numbers(r, report);
    }
    if (r->directory) {
        check_litter(r, report);
        heft__check_journals(r, report);
    }
    if (!ok || report->failed || !heft__report_sort(report)) {
        heft__archive_free(archive);
        return heft__fail_memory(err, HEFT_NONE);
    }
    *out = heft__archive_report(archive);
    return HEFT_OK;
}
