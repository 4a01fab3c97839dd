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
    heft__free(alloc, listing->faults.items, listing->faults.capacity * sizeof *listing->faults.items);
    heft__free(alloc, listing->fatal, sizeof *listing->fatal);
    heft__hash_index_free(&listing->names);
    heft__arena_free(&listing->arena);
    heft_source_unref(listing->source);
    memset(listing, 0, sizeof *listing);
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
