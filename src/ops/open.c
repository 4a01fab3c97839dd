/* ops: opens the files of a resolution, their headers in parallel, and makes one archive of them. */
#include "base/error.h"
#include "base/parallel.h"
#include "base/text.h"
#include "ops/journal.h"
#include "ops/ops.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

/* ---- scanning ---- */

/* What one worker met: the failure of the first file, and how many there were. */
typedef struct open_failures {
    heft_error first;
    uint32_t file; /* whose */
    uint64_t count;
} open_failures;

typedef struct open_scan {
    const heft__resolution *resolution;
    const heft__open_job *job;
    heft__scan_options options;
    heft__listing **listings;
    uint32_t nfiles;
    atomic_uint cursor;
    open_failures *failures; /* one a worker */
} open_scan;

static heft_status open_source(const open_scan *scan, uint32_t file, heft_source **out, heft_error *err) {
    const heft__resolution *r = scan->resolution;
    uint32_t files = heft__resolution_files(r);
    bool beneath = scan->job->options.links == HEFT_LINKS_BENEATH;
    if (file >= files) return heft__overlay_source(r, file - files, beneath, out, err);
    if (r->source) {
        *out = heft_source_ref(r->source);
        return HEFT_OK;
    }
    if (!r->directory) return heft_source_open_file(r->names[file], out, err);
    return heft__directory_source(r->directory, r->names[file], beneath, r->beneath_levels, out, err);
}

static heft_status open_scan_file(open_scan *scan, uint32_t file, heft_error *err) {
    heft__listing *listing = heft__listing_new(&scan->job->alloc);
    if (!listing) return heft__fail_memory(err, sizeof *listing);
    heft_source *source = NULL;
    heft_status status = open_source(scan, file, &source, err);
    if (!status) {
        heft__journal_place place = {.directory = source->in_directory ? scan->resolution->directory : NULL,
                                     .name = source->name,
                                     .beneath = scan->job->options.links == HEFT_LINKS_BENEATH,
                                     .beneath_levels = scan->resolution->beneath_levels};
        status = heft__scan(source, &scan->options, listing, err);
        if (place.name) /* looked for after the header was read: an edit that tore it is not over yet */
            status = heft__journal_rescan(source, &place, &scan->options, &listing, status, err);
    }
    heft_source_unref(source);
    if (status)
        heft__listing_delete(listing);
    else
        scan->listings[file] = listing;
    return status;
}

/* Every file is scanned, also after a failure, so that which one is reported does not depend on the threads. */
static void open_work(void *ctx, uint32_t worker) {
    open_scan *scan = ctx;
    open_failures *failures = &scan->failures[worker];
    for (;;) {
        uint32_t file = atomic_fetch_add_explicit(&scan->cursor, 1, memory_order_relaxed);
        if (file >= scan->nfiles) return;
        heft_error error;
        if (!open_scan_file(scan, file, &error)) continue;
        if (!failures->count++) {
            failures->first = error;
            failures->file = file;
        }
    }
}

static heft_status open_judge(const open_scan *scan, uint32_t workers, heft_error *err) {
    const open_failures *first = NULL;
    uint64_t count = 0;
    for (uint32_t i = 0; i < workers; i++) {
        const open_failures *f = &scan->failures[i];
        count += f->count;
        if (f->count && (!first || f->file < first->file)) first = f;
    }
    if (!first) return HEFT_OK;
    if (err) {
        *err = first->first;
        uint64_t more = err->more + count - 1;
        err->more = more < UINT32_MAX ? (uint32_t)more : UINT32_MAX;
    }
    return first->first.status;
}

static void open_free_listings(const heft_allocator *alloc, heft__listing **listings, uint32_t n) {
    for (uint32_t i = 0; listings && i < n; i++) heft__listing_delete(listings[i]);
    heft__free(alloc, listings, n * sizeof *listings);
}

/* How many workers share `n` pieces of work. */
static uint32_t open_workers(const heft__open_job *job, uint64_t n) {
    if (n < 2) return 1;
    uint32_t workers = job->options.workers ? job->options.workers : heft__default_workers();
    if (workers > HEFT__PARALLEL_MOST) workers = HEFT__PARALLEL_MOST;
    return workers < n ? workers : (uint32_t)n;
}

static heft_status open_scan_all(const heft__resolution *r, const heft__open_job *job, heft__listing ***out,
                                 uint32_t *n, heft_error *err) {
    const heft_open_options *o = &job->options;
    open_scan scan = {.resolution = r, .job = job, .nfiles = heft__resolution_all(r)};
    scan.options = (heft__scan_options){.max_header_nbytes = o->max_header_nbytes,
                                        .lenient = o->lenient,
                                        .list_unknown_dtypes = o->list_unknown_dtypes,
                                        .void1 = o->void1,
                                        .void2 = o->void2,
                                        .max_decoded_nbytes = o->max_decoded_nbytes,
                                        .collect = job->collect};
    atomic_init(&scan.cursor, 0);
    uint32_t workers = open_workers(job, scan.nfiles);
    uint64_t nbytes = (uint64_t)scan.nfiles * sizeof *scan.listings;
    scan.listings = heft__alloc_zero(&job->alloc, nbytes);
    scan.failures = heft__alloc(&job->alloc, workers * sizeof *scan.failures);
    heft_status status = HEFT_OK;
    if (!scan.listings || !scan.failures) {
        status = heft__fail_memory(err, nbytes);
    } else {
        for (uint32_t i = 0; i < workers; i++) scan.failures[i].count = 0;
        if (workers == 1)
            open_work(&scan, 0);
        else
            heft__parallel(workers, open_work, &scan);
        status = open_judge(&scan, workers, err);
    }
    heft__free(&job->alloc, scan.failures, workers * sizeof *scan.failures);
    if (status) {
        open_free_listings(&job->alloc, scan.listings, scan.nfiles);
        return status;
    }
    *out = scan.listings;
    *n = scan.nfiles;
    return HEFT_OK;
}

/* ---- the index and the shards ---- */

/* The index applied to the shards, by several workers: each item has an entry of its own, so they write side by side.
 */
typedef struct open_index {
    const heft__resolution *resolution;
    heft__listing **listings;
    _Atomic uint64_t cursor, nmissed;
} open_index;

/* The entry that item `i` names, or NULL. *file is UINT32_MAX where nothing can be said: the shard is missing, or its
 * listing ended early, which has been reported. */
static heft__entry *open_item_entry(const heft__resolution *r, heft__listing **listings, uint64_t i, uint32_t *file) {
    const heft__index_item *item = &r->index->items[i];
    *file = r->shard_files[item->shard];
    if (*file == UINT32_MAX) return NULL;
    heft__listing *listing = listings[*file];
    if (listing->fatal) *file = UINT32_MAX;
    uint32_t number = listing->fatal ? UINT32_MAX : heft__listing_find(listing, item->name, item->name_len);
    return number == UINT32_MAX ? NULL : &listing->entries[number];
}

static void open_index_work(void *ctx, uint32_t worker) {
    enum { BLOCK = 4096 };
    open_index *work = ctx;
    uint64_t nitems = work->resolution->index->nitems, missed = 0;
    (void)worker;
    for (;;) {
        uint64_t i = atomic_fetch_add_explicit(&work->cursor, BLOCK, memory_order_relaxed), end = i + BLOCK;
        if (i >= nitems) break;
        for (; i < end && i < nitems; i++) {
            uint32_t file;
            heft__entry *entry = open_item_entry(work->resolution, work->listings, i, &file);
            if (!entry) {
                missed++;
                continue;
            }
            entry->flags = (uint8_t)((entry->flags & ~HEFT__ENTRY_HIDDEN) | HEFT__ENTRY_INDEXED);
            entry->hash = (uint32_t)i;
        }
    }
    atomic_fetch_add_explicit(&work->nmissed, missed, memory_order_relaxed);
}

/* Marks what the index names for each shard, and reports what it names in vain. Returns whether all of it is there. */
static bool open_apply_index(heft__resolution *r, const heft__open_job *job, heft__listing **listings, uint32_t n) {
    bool lenient = job->options.lenient & HEFT_LENIENT_INDEX_MISMATCH;
    for (uint32_t i = 0; job->options.index == HEFT_INDEX_EXACT && i < n; i++)
        for (uint64_t e = 0; e < listings[i]->nentries; e++) listings[i]->entries[e].flags |= HEFT__ENTRY_HIDDEN;
    open_index work = {.resolution = r, .listings = listings};
    atomic_init(&work.cursor, 0);
    atomic_init(&work.nmissed, 0);
    heft__parallel(open_workers(job, r->index->nitems / 8192), open_index_work, &work);
    if (!atomic_load_explicit(&work.nmissed, memory_order_relaxed)) return true;
    for (uint64_t i = 0; i < r->index->nitems; i++) {
        uint32_t file;
        if (open_item_entry(r, listings, i, &file) || file == UINT32_MAX) continue;
        heft__fault fault = {.kind = HEFT_FAULT_INDEX_MISMATCH,
                             .status = (uint8_t)-HEFT_CORRUPT,
                             .file = file,
                             .severity = (uint8_t)(lenient ? HEFT_SEVERITY_WARNING : HEFT_SEVERITY_ERROR),
                             .entry = UINT32_MAX,
                             .other = UINT32_MAX,
                             .offset = HEFT_NONE};
        fault.value = heft__report_text(r->report, r->index->items[i].name, r->index->items[i].name_len);
        heft__report_add(r->report, fault);
    }
    r->incomplete = true;
    return false;
}

/* Under HEFT_INDEX_PREFER: what the index names for one shard is hidden in the others. */
static void open_prefer_index(const heft__index *index, heft__listing **listings, uint32_t n) {
    for (uint32_t file = 0; file < n; file++) {
        for (uint64_t e = 0; e < listings[file]->nentries; e++) {
            heft__entry *entry = &listings[file]->entries[e];
            if (entry->flags & (HEFT__ENTRY_INDEXED | HEFT__ENTRY_FILLER)) continue;
            uint32_t hash = heft__hash_name(&index->names, entry->name, entry->name_len), number;
            for (uint64_t at = heft__hash_start(&index->names, hash);
                 heft__hash_next(&index->names, hash, &at, &number);) {
                const heft__index_item *item = &index->items[number];
                if (item->name_len == entry->name_len && memcmp(item->name, entry->name, item->name_len) == 0)
                    entry->flags |= HEFT__ENTRY_HIDDEN;
            }
        }
    }
}

/* Warns of a total_size that is not the sum of the tensors that the index names, if all of them are there. */
static void open_check_total(heft__resolution *r, heft__listing **listings, uint32_t n) {
    uint64_t sum = 0;
    if (r->index->total_size == HEFT_NONE || r->incomplete) return;
    for (uint32_t i = 0; i < n; i++) {
        if (listings[i]->fatal) return;
        for (uint64_t e = 0; e < listings[i]->nentries; e++) {
            const heft__entry *entry = &listings[i]->entries[e];
            if ((entry->flags & HEFT__ENTRY_INDEXED) && entry->end >= entry->begin) sum += entry->end - entry->begin;
        }
    }
    if (sum == r->index->total_size) return;
    heft_error error;
    char path[300];
    heft__escape(path, sizeof path, r->index_path, strlen(r->index_path));
    heft__fail(&error, HEFT_MISMATCH, HEFT_FAULT_TOTAL_SIZE,
               "%s: metadata.total_size is %llu, but the tensors that it names hold %llu bytes", path,
               (unsigned long long)r->index->total_size, (unsigned long long)sum);
    heft__error_file(&error, r->index_path);
    heft__error_at(&error, HEFT_NONE, sum, r->index->total_size);
    heft__report_add_error(r->report, HEFT_SEVERITY_WARNING, UINT32_MAX, &error);
}

/* Warns of tensors in shards that the index does not name, or names for another shard. */
static void open_report_unindexed(const heft_archive *archive) {
    for (uint32_t file = 0; file < archive->nfiles; file++) {
        const heft__listing *listing = archive->files[file];
        for (uint64_t e = 0; e < listing->nentries && !listing->fatal && !listing->overlay; e++) {
            const heft__entry *entry = &listing->entries[e];
            if ((entry->flags & (HEFT__ENTRY_INDEXED | HEFT__ENTRY_FILLER)) || (entry->marks & HEFT__ENTRY_REPLACED))
                continue;
            heft__fault fault = {.kind = HEFT_FAULT_UNINDEXED_TENSOR,
                                 .severity = (uint8_t)HEFT_SEVERITY_WARNING,
                                 .status = (uint8_t)-HEFT_MISMATCH,
                                 .file = file,
                                 .entry = (uint32_t)e,
                                 .other = UINT32_MAX};
            fault.offset = heft__entry_offset(listing, entry);
            uint64_t id = heft__archive_lookup(archive, entry->name, entry->name_len);
            if (id != HEFT_NONE) heft__archive_entry(archive, id, &fault.other);
            if (fault.other == file) fault.other = UINT32_MAX;
            heft__report_add(archive->warnings, fault);
        }
    }
}

/* ---- the whole ---- */

static heft_status open_set(heft__resolution *r, const heft__open_job *job, heft__listing **listings, uint32_t n,
                            heft_archive **out, heft_error *err) {
    bool all = false;
    uint32_t files = heft__resolution_files(r);
    if (r->index) {
        all = open_apply_index(r, job, listings, files);
        if (job->options.index == HEFT_INDEX_PREFER) open_prefer_index(r->index, listings, files);
        open_check_total(r, listings, files);
    }
    if (files < n) {
        heft__overlay_apply(r->report, listings, files, n);
        all = false; /* the index does not name what overlays bring */
    }
    heft__union_input input = {.listings = listings,
                               .nlistings = n,
                               .path = r->path,
                               .resolution = r->how,
                               .index_path = r->index ? r->index_path : NULL,
                               .names = all && job->options.index == HEFT_INDEX_EXACT ? &r->index->names : NULL,
                               .report = r->report,
                               .show_fillers = job->options.show_fillers};
    r->report = NULL;
    heft_status status = heft__union(&job->alloc, &input, out, err);
    if (status) return status;
    heft_archive *archive = *out;
    heft_report *report = archive->warnings;
    if (!job->collect) status = heft__report_fail(report, HEFT_SEVERITY_ERROR, err);
    if (!status && r->index) open_report_unindexed(archive);
    for (uint32_t i = 0; !status && i < n; i++) heft__report_take_listing(report, archive->files[i], i);
    if (!status && (report->failed || !heft__report_sort(report))) status = heft__fail_memory(err, HEFT_NONE);
    if (!status && job->options.strict && !job->collect) status = heft__report_fail(report, HEFT_SEVERITY_WARNING, err);
    if (status) {
        heft__archive_free(archive);
        *out = NULL;
    }
    return status;
}

heft_status heft__open(heft__resolution *resolution, const heft__open_job *job, heft_archive **out, heft_error *err) {
    heft__listing **listings;
    uint32_t n;
    *out = NULL;
    heft_status status = open_scan_all(resolution, job, &listings, &n, err);
    if (!status) status = open_set(resolution, job, listings, n, out, err);
    return status;
}
