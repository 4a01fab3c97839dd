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

uint64_t heft__archive_lookup(const heft_archive *archive, const char *name, size_t len) {
    uint32_t hash = heft__hash_name(&archive->index, name, len), number, file;
    for (uint64_t cursor = heft__hash_start(&archive->index, hash);
         heft__hash_next(&archive->index, hash, &cursor, &number);) {
        const heft__entry *entry = heft__archive_entry(archive, number, &file);
        if (entry->name_len == len && memcmp(entry->name, name, len) == 0) return number;
    }
    return HEFT_NONE;
}

/* Says of each entry whether it is visible, and counts. Where nothing can be hidden no entry is looked at. */
static uint64_t union_count(heft__listing *listing, bool indexed, bool show_fillers) {
    listing->nvisible = listing->nwithheld = 0;
    if (listing->fatal) { /* a check's: its entries are whatever was read before the fault */
        for (uint64_t i = 0; i < listing->nentries; i++) listing->entries[i].flags |= HEFT__ENTRY_HIDDEN;
        return 0;
    }
    if (!indexed && !listing->nfillers && listing->names.count == listing->nentries)
        return listing->nvisible = listing->nentries;
    for (uint64_t i = 0; i < listing->nentries; i++) {
        heft__entry *entry = &listing->entries[i];
        if (entry->flags & HEFT__ENTRY_DROPPED) continue;
        if (entry->flags & HEFT__ENTRY_FILLER) {
            if (show_fillers)
                entry->flags &= (uint8_t)~HEFT__ENTRY_HIDDEN;
            else
                entry->flags |= HEFT__ENTRY_HIDDEN;
        } else if (entry->flags & HEFT__ENTRY_HIDDEN) {
            listing->nwithheld++;
        }
        listing->nvisible += !(entry->flags & HEFT__ENTRY_HIDDEN);
    }
    return listing->nvisible;
}

static void union_add_shared(heft_archive *archive, uint32_t file, uint32_t number, uint64_t first_id) {
    const heft__listing *listing = archive->files[file];
    uint32_t first_file;
    heft__archive_entry(archive, first_id, &first_file);
    heft__fault fault = {.kind = HEFT_FAULT_SHARED_NAME,
                         .severity = (uint8_t)HEFT_SEVERITY_ERROR,
                         .status = (uint8_t)-HEFT_CORRUPT,
                         .file = file,
                         .entry = number,
                         .other = first_file};
    fault.offset = listing->data_start + listing->entries[number].begin;
    heft__report_add(archive->warnings, fault);
}

/* Names of all visible entries under one index. Fillers that are shown may share names: they number themselves per
 * file. */
static bool union_index(heft_archive *archive) {
    if (!heft__hash_index_init(&archive->index, &archive->alloc, archive->ntensors)) return false;
    archive->tensors = heft__alloc(&archive->alloc, archive->ntensors * sizeof *archive->tensors);
    if (!archive->tensors) return false;
    uint64_t id = 0;
    for (uint32_t file = 0; file < archive->nfiles; file++) {
        const heft__listing *listing = archive->files[file];
        for (uint64_t i = 0; i < listing->nentries; i++) {
            const heft__entry *entry = &listing->entries[i];
            if (entry->flags & (HEFT__ENTRY_HIDDEN | HEFT__ENTRY_DROPPED)) continue;
            archive->tensors[id] = (heft__ref){file, (uint32_t)i};
            uint64_t known =
                archive->nfiles > 1 ? heft__archive_lookup(archive, entry->name, entry->name_len) : HEFT_NONE;
            if (known == HEFT_NONE) {
                uint32_t hash = heft__hash_name(&archive->index, entry->name, entry->name_len);
                if (!heft__hash_add(&archive->index, hash, (uint32_t)id)) return false;
            } else if (!(entry->flags & HEFT__ENTRY_FILLER)) {
                union_add_shared(archive, file, (uint32_t)i, known);
            }
            id++;
        }
    }
    return true;
}

static bool union_fill(heft_archive *archive, const heft__union_input *input) {
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
    if (only && only->nvisible == only->nentries && only->names.count == only->nentries) {
        archive->index = only->names; /* the listing's own index counts entries as the archive counts tensors */
        memset(&only->names, 0, sizeof only->names);
    } else if (!union_index(archive)) {
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
    out->offset = archive->files[file]->data_start + entry->begin;
    if (entry->dtype == HEFT_DTYPE_NONE) return;
    /* The scan has checked that the product fits. */
    out->nelems = 1;
    for (uint32_t i = 0; i < entry->rank; i++) out->nelems *= entry->shape[i];
}
