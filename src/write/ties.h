/* write: items that are one storage under several names. */
#ifndef HEFT_WRITE_TIES_H
#define HEFT_WRITE_TIES_H

#include "write/write.h"

struct heft_ties {
    heft_allocator alloc;
    heft__arena arena; /* holds all that follows */
    heft_save_item *items;
    heft_pair *metadata;
    heft_tie *ties;
    uint64_t nitems, nmetadata, nties;
};

/* kept[i]: the item that stands for item i, which is i itself or the least name of those that are the same storage. Items that
 * heft__item_check refuses, and those without bytes, stand for themselves. nitems < 2^32. */
heft_status heft__ties_find(const heft_save_item *items, uint64_t nitems, const heft_allocator *alloc, uint32_t *kept,
                            uint64_t *nties, heft_error *err);
/* How many items are tied to another; 0 without a look where no two are in memory. */
heft_status heft__ties_count(const heft_save_item *items, uint64_t nitems, const heft_allocator *alloc, uint64_t *nties,
                             heft_error *err);
/* Fills an empty one, whose allocator and arena are set. */
heft_status heft__ties_make(heft_ties *ties, const heft_save_item *items, uint64_t nitems, const heft_pair *metadata,
                            uint64_t nmetadata, heft_error *err);

#endif
