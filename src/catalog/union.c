/* catalog: how the listings of files become one archive, and the end of both. */
#include "base/error.h"
#include "catalog/catalog.h"

#include <string.h>

heft__listing *heft__listing_new(const heft_allocator *alloc) {
    heft__listing *listing = heft__alloc(alloc, sizeof *listing);
    if (listing) heft__listing_init(listing, alloc);
    return listing;
}

void heft__listing_delete(heft__listing *listing) {
    if (!listing) return;
    heft_allocator alloc = listing->alloc;
    heft__listing_free(listing);
    heft__free(&alloc, listing, sizeof *listing);
}

static void union_free_text(const heft_allocator *alloc, char *text) {
    if (text) heft__free(alloc, text, strlen(text) + 1);
}

void heft__archive_free(heft_archive *archive) {
    heft_allocator alloc = archive->alloc;
    uint64_t nids = archive->ntensors * sizeof(uint64_t);
    for (size_t i = 0; i < sizeof archive->orders / sizeof *archive->orders; i++)
        heft__free(&alloc, atomic_load_explicit(&archive->orders[i], memory_order_acquire), nids);
    for (uint32_t i = 0; archive->mappings && i < archive->nfiles; i++) {
        heft__mapping *mapping = atomic_load_explicit(&archive->mappings[i], memory_order_acquire);
        if (mapping) heft__mapping_unref(mapping);
    }
    heft__free(&alloc, archive->mappings, archive->nfiles * sizeof *archive->mappings);
    if (archive->metadata_capacity)
        heft__free(&alloc, archive->metadata, archive->metadata_capacity * sizeof *archive->metadata);
    heft__report_free(archive->warnings);
    heft__hash_index_free(&archive->index);
    heft__free(&alloc, archive->tensors, archive->ntensors * sizeof *archive->tensors);
    for (uint32_t i = 0; archive->files && i < archive->nfiles; i++) heft__listing_delete(archive->files[i]);
    heft__free(&alloc, archive->files, archive->nfiles * sizeof *archive->files);
    union_free_text(&alloc, archive->path);
    union_free_text(&alloc, archive->index_path);
    union_free_text(&alloc, archive->resolution);
    heft__free(&alloc, archive, sizeof *archive);
}

heft_report *heft__archive_report(heft_archive *archive) {
    heft_report *report = archive->warnings;
    report->owned = true; /* the listings go over to it */
    archive->files = NULL;
    archive->warnings = NULL;
    heft__archive_free(archive);
    return report;
}

static uint64_t union_find(const heft_archive *archive, uint32_t hash, const char *name, size_t len) {
    uint32_t number, file;
    for (uint64_t cursor = heft__hash_start(&archive->index, hash);
         heft__hash_next(&archive->index, hash, &cursor, &number);) {
        const heft__entry *entry = heft__archive_entry(archive, number, &file);
        if (entry->name_len == len && memcmp(entry->name, name, len) == 0) return number;
    }
    return HEFT_NONE;
}

uint64_t heft__archive_lookup(const heft_archive *archive, const char *name, size_t len) {
    return union_find(archive, heft__hash_name(&archive->index, name, len), name, len);
}

/* Says of each entry whether it is visible, and counts. Where nothing can be hidden no entry is looked at. */
static uint64_t union_count(heft__listing *listing, bool indexed, bool show_fillers) {
    listing->nvisible = listing->nwithheld = 0;
    if (listing->fatal) { /* a check's: its entries are whatever was read before the fault */
        for (uint64_t i = 0; i < listing->nentries; i++) listing->entries[i].flags |= HEFT__ENTRY_HIDDEN;
        return 0;
    }
    if (!indexed && !listing->nfillers && !listing->nreplaced) return listing->nvisible = listing->nentries;
    for (uint64_t i = 0; i < listing->nentries; i++) {
        heft__entry *entry = &listing->entries[i];
        if (entry->flags & HEFT__ENTRY_FILLER) {
            if (show_fillers)
                entry->flags &= (uint8_t)~HEFT__ENTRY_HIDDEN;
            else
                entry->flags |= HEFT__ENTRY_HIDDEN;
        } else if ((entry->flags & HEFT__ENTRY_HIDDEN) && !(entry->marks & HEFT__ENTRY_REPLACED)) {
            listing->nwithheld++;
        }
        listing->nvisible += !(entry->flags & HEFT__ENTRY_HIDDEN);
    }
    return listing->nvisible;
}

static void union_add_shared(heft_archive *archive, uint64_t id, uint64_t first_id) {
    heft__fault fault = {
        .kind = HEFT_FAULT_SHARED_NAME, .severity = (uint8_t)HEFT_SEVERITY_ERROR, .status = (uint8_t)-HEFT_CORRUPT};
    const heft__entry *entry = heft__archive_entry(archive, id, &fault.file);
    const heft__listing *listing = archive->files[fault.file];
    heft__archive_entry(archive, first_id, &fault.other);
    fault.entry = (uint32_t)(entry - listing->entries);
    fault.offset = heft__entry_offset(listing, entry);
    heft__report_add(archive->warnings, fault);
}

/* Numbers the visible entries. */
static bool union_number(heft_archive *archive) {
    archive->tensors = heft__alloc(&archive->alloc, archive->ntensors * sizeof *archive->tensors);
    if (!archive->tensors) return false;
    heft__ref *next = archive->tensors;
    for (uint32_t file = 0; file < archive->nfiles; file++) {
        const heft__listing *listing = archive->files[file];
        for (uint64_t i = 0; i < listing->nentries; i++)
            if (!(listing->entries[i].flags & HEFT__ENTRY_HIDDEN)) *next++ = (heft__ref){file, (uint32_t)i};
    }
    return true;
}

/* Puts tensor `id` under its hash. Fillers that are shown may share names: they number themselves file by file. */
static bool union_add(heft_archive *archive, uint64_t id, uint32_t hash) {
    uint32_t file;
    const heft__entry *entry = heft__archive_entry(archive, id, &file);
    uint64_t known = union_find(archive, hash, entry->name, entry->name_len);
    if (known == HEFT_NONE) return heft__hash_add(&archive->index, hash, (uint32_t)id);
    if (!(entry->flags & HEFT__ENTRY_FILLER)) union_add_shared(archive, id, known);
    return true;
}

/* Names of all visible entries in one table. It is larger than the caches, so the slots of a batch of names are asked
 * for before the first of them is needed. */
static bool union_index(heft_archive *archive) {
    enum { BATCH = 32 };
    if (!heft__hash_index_init(&archive->index, &archive->alloc, archive->ntensors)) return false;
    for (uint64_t from = 0; from < archive->ntensors; from += BATCH) {
        uint32_t hashes[BATCH], file;
        uint64_t n = archive->ntensors - from < BATCH ? archive->ntensors - from : BATCH;
        for (uint64_t i = 0; i < n; i++) {
            const heft__entry *entry = heft__archive_entry(archive, from + i, &file);
            hashes[i] = heft__hash_name(&archive->index, entry->name, entry->name_len);
            __builtin_prefetch(&archive->index.slots[heft__hash_start(&archive->index, hashes[i])], 1);
        }
        for (uint64_t i = 0; i < n; i++)
            if (!union_add(archive, from + i, hashes[i])) return false;
    }
    return true;
}

/* The index that named the tensors has made such a table already: only the numbers in it are others. */
static bool union_take_names(heft_archive *archive, heft__hash_index *names) {
    uint64_t nbytes = archive->ntensors * sizeof(uint32_t);
    uint32_t *ids = heft__alloc(&archive->alloc, nbytes), file;
    if (!ids) return false;
    for (uint64_t id = 0; id < archive->ntensors; id++)
        ids[heft__archive_entry(archive, id, &file)->hash] = (uint32_t)id;
    for (uint64_t i = 0; names->slots && i <= names->mask; i++) {
        uint64_t slot = names->slots[i];
        if (slot) names->slots[i] = (slot >> 32) << 32 | ((uint64_t)ids[(uint32_t)slot - 1] + 1);
    }
    heft__free(&archive->alloc, ids, nbytes);
    archive->index = *names;
    memset(names, 0, sizeof *names);
    return true;
}

static bool union_fill(heft_archive *archive, heft__union_input *input) {
    const heft_allocator *alloc = &archive->alloc;
    archive->path = heft__strdup_len(alloc, input->path, strlen(input->path));
    archive->resolution = heft__strdup_len(alloc, input->resolution, strlen(input->resolution));
    if (!archive->path || !archive->resolution) return false;
    if (input->index_path) {
        archive->index_path = heft__strdup_len(alloc, input->index_path, strlen(input->index_path));
        if (!archive->index_path) return false;
    }
    archive->mappings = heft__alloc(alloc, archive->nfiles * sizeof *archive->mappings);
    if (!archive->mappings) return false;
    for (uint32_t i = 0; i < archive->nfiles; i++) atomic_init(&archive->mappings[i], NULL);
    heft__listing *only = archive->nfiles == 1 ? archive->files[0] : NULL;
    if (input->names && input->names->count != archive->ntensors) input->names = NULL;
    if (only && only->nvisible == only->nentries && only->names.count == only->nentries) {
        archive->index = only->names; /* the listing's own index counts entries as the archive counts tensors */
        memset(&only->names, 0, sizeof only->names);
    } else if (!union_number(archive) ||
               !(input->names ? union_take_names(archive, input->names) : union_index(archive))) {
        return false;
    }
    return heft__archive_merge_metadata(archive) && !archive->warnings->failed;
}

heft_status heft__union(const heft_allocator *alloc, heft__union_input *input, heft_archive **out, heft_error *err) {
    *out = NULL;
    heft_archive *archive = heft__alloc_zero(alloc, sizeof *archive);
    if (!archive) {
        for (uint32_t i = 0; i < input->nlistings; i++) heft__listing_delete(input->listings[i]);
        heft__free(alloc, input->listings, input->nlistings * sizeof *input->listings);
        heft__report_free(input->report);
        return heft__fail_memory(err, sizeof *archive);
    }
    atomic_init(&archive->refs, 1);
    archive->alloc = *alloc;
    archive->files = input->listings;
    archive->nfiles = input->nlistings;
    archive->warnings = input->report;
    archive->warnings->listings = archive->files;
    archive->warnings->nlistings = archive->nfiles;
    for (size_t i = 0; i < sizeof archive->orders / sizeof *archive->orders; i++)
        atomic_init(&archive->orders[i], NULL);
    uint64_t count = 0;
    for (uint32_t i = 0; i < archive->nfiles; i++)
        count += union_count(archive->files[i], input->index_path != NULL, input->show_fillers);
    if (count >= UINT32_MAX) {
        heft__archive_free(archive);
        return heft__fail(err, HEFT_LIMIT, HEFT_FAULT_CALLER_LIMIT,
                          "%llu tensors in one archive are more than heft counts", (unsigned long long)count);
    }
    archive->ntensors = count;
    if (!union_fill(archive, input)) {
        heft__archive_free(archive);
        return heft__fail_memory(err, HEFT_NONE);
    }
    *out = archive;
    return HEFT_OK;
}

void heft__archive_tensor(const heft_archive *archive, uint64_t id, heft_tensor *out) {
    uint32_t file;
    const heft__entry *entry = heft__archive_entry(archive, id, &file);
    memset(out, 0, sizeof *out);
    out->name = entry->name;
    out->name_len = entry->name_len;
    out->id = id;
    out->dtype = entry->dtype;
    out->rank = entry->rank;
    out->shape = entry->shape;
    out->nbytes = entry->end - entry->begin;
    out->file = file;
    out->offset = entry->flags & HEFT__ENTRY_PACKED ? HEFT_NONE : archive->files[file]->data_start + entry->begin;
    out->layout = (entry->flags & HEFT__ENTRY_FORTRAN ? HEFT_LAYOUT_FORTRAN : 0) |
                  (entry->flags & HEFT__ENTRY_BIG ? HEFT_LAYOUT_BIG_ENDIAN : 0) |
                  (entry->flags & HEFT__ENTRY_PACKED ? HEFT_LAYOUT_PACKED : 0);
    if (entry->dtype == HEFT_DTYPE_NONE) return;
    /* The scan has checked that the product fits. */
    out->nelems = 1;
    for (uint32_t i = 0; i < entry->rank; i++) out->nelems *= entry->shape[i];
}
