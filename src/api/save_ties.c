/* api: tied weights: what is left of the items of a save, and the names that go. */
#include "write/ties.h"

heft_status heft_ties_find(const heft_save_item *items, uint64_t nitems, const heft_save_options *options, heft_ties **out,
                           heft_error *err) {
    heft_save_options checked;
    heft_allocator alloc;
    if (!out) return heft__fail_null(err, "out");
    *out = NULL;
    if (!items && nitems) return heft__fail_null(err, "items");
    if (nitems >= UINT32_MAX / 2) return heft__fail(err, HEFT_LIMIT, HEFT_FAULT_CALLER_LIMIT, "too many items");
    heft_status status = heft__save_options_copy(options, &checked, &alloc, err);
    if (status != HEFT_OK) return status;
    heft_ties *ties = heft__alloc_zero(&alloc, sizeof *ties);
    if (!ties) return heft__fail_memory(err, sizeof *ties);
    ties->alloc = alloc;
    heft__arena_init(&ties->arena, &ties->alloc);
    status = heft__ties_make(ties, items, nitems, checked.metadata, checked.nmetadata, err);
    if (status == HEFT_OK) *out = ties;
    else heft_ties_free(ties);
    return status;
}

const heft_save_item *heft_ties_items(const heft_ties *ties, uint64_t *nitems) {
    *nitems = ties->nitems;
    return ties->items;
}

const heft_pair *heft_ties_metadata(const heft_ties *ties, uint64_t *nmetadata) {
    *nmetadata = ties->nmetadata;
    return ties->metadata;
}

const heft_tie *heft_ties_list(const heft_ties *ties, uint64_t *nties) {
    *nties = ties->nties;
    return ties->ties;
}

void heft_ties_free(heft_ties *ties) {
    if (!ties) return;
    heft__arena_free(&ties->arena);
    heft_allocator alloc = ties->alloc;
    heft__free(&alloc, ties, sizeof *ties);
}
