/* catalog: a listing, that is what one file holds: made empty, looked up by name, freed. */
#include "catalog/catalog.h"

#include <string.h>

void heft__listing_init(heft__listing *listing, const heft_allocator *alloc) {
    memset(listing, 0, sizeof *listing);
    listing->alloc = *alloc;
    heft__arena_init(&listing->arena, alloc);
}

void heft__listing_free(heft__listing *listing) {
    const heft_allocator *alloc = &listing->alloc;
    if (listing->header) heft__free(alloc, listing->header, listing->header_nbytes + 1 + HEFT__HEADER_SLACK);
    heft__free(alloc, listing->entries, listing->capacity * sizeof *listing->entries);
    heft__free(alloc, listing->metadata, listing->metadata_capacity * sizeof *listing->metadata);
    heft__free(alloc, listing->spellings, listing->spellings_capacity * sizeof *listing->spellings);
    heft__free(alloc, listing->faults.items, listing->faults.capacity * sizeof *listing->faults.items);
    heft__free(alloc, listing->fatal, sizeof *listing->fatal);
    heft__hash_index_free(&listing->names);
    heft__arena_free(&listing->arena);
    heft_source_unref(listing->source);
    memset(listing, 0, sizeof *listing);
}

heft__entry *heft__listing_add(heft__listing *listing, const char *name, uint32_t name_len, heft_dtype dtype,
                               uint32_t rank, const uint64_t *shape) {
    uint64_t *dims = heft__arena_alloc(&listing->arena, rank * sizeof *dims, sizeof *dims);
    if (!dims || !heft__grow(&listing->alloc, (void **)&listing->entries, &listing->capacity, listing->nentries,
                             sizeof *listing->entries, 1))
        return NULL;
    if (rank) memcpy(dims, shape, rank * sizeof *dims);
    heft__entry *entry = &listing->entries[listing->nentries++];
    *entry = (heft__entry){.name = name, .shape = dims, .name_len = name_len, .rank = rank, .dtype = (uint8_t)dtype};
    return entry;
}

const heft__spelling *heft__listing_spelling(const heft__listing *listing, const heft__entry *entry) {
    uint64_t low = 0, high = listing->nspellings;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        if ((uintptr_t)listing->spellings[middle].name < (uintptr_t)entry->name) low = middle + 1;
        else high = middle;
    }
    return low < listing->nspellings && listing->spellings[low].name == entry->name ? &listing->spellings[low] : NULL;
}

bool heft__listing_index(heft__listing *listing, uint32_t *twice) {
    *twice = UINT32_MAX;
    if (!heft__hash_index_init(&listing->names, &listing->alloc, listing->nentries)) return false;
    for (uint32_t i = 0; i < listing->nentries; i++) {
        heft__entry *entry = &listing->entries[i];
        entry->hash = heft__hash_name(&listing->names, entry->name, entry->name_len);
        if (*twice == UINT32_MAX && heft__listing_find(listing, entry->name, entry->name_len) != UINT32_MAX) *twice = i;
        if (!heft__hash_add(&listing->names, entry->hash, i)) return false;
    }
    return true;
}

uint32_t heft__listing_find(const heft__listing *listing, const char *name, size_t len) {
    uint32_t hash = heft__hash_name(&listing->names, name, len), number;
    for (uint64_t cursor = heft__hash_start(&listing->names, hash);
         heft__hash_next(&listing->names, hash, &cursor, &number);) {
        const heft__entry *entry = &listing->entries[number];
        if (entry->name_len == len && memcmp(entry->name, name, len) == 0) return number;
    }
    return UINT32_MAX;
}
