/* Every way to write a checkpoint, behind one interface, so that what must hold of one is asked of all. */
#ifndef HEFT_TESTS_HELPER_WAYS_H
#define HEFT_TESTS_HELPER_WAYS_H

#include "helper_files.h"

/* The bytes of every tensor are the mark of their save: 1 is old, 2 is new. */
typedef struct save_way {
    const char *name;
    const char *target;  /* in the folder; "": the folder itself */
    int before, after;   /* tensors of the set that is replaced (0: there is none) and of the new one; one a file in sets */
    heft_status (*save)(const char *path, int n, uint8_t mark, heft_error *err);
    heft_status (*old)(const char *path, int n, uint8_t mark, heft_error *err); /* what writes the old one; NULL: save */
    bool digests;        /* needs a build with xxhash */
} save_way;

extern const save_way save_ways[];
extern const size_t nsave_ways;
extern const heft_allocator *save_way_alloc; /* of all that a way does; NULL: the default */

/* False: this build cannot. */
bool save_way_can(const save_way *way);
/* Makes the folder hold what is to be replaced, if anything. */
void save_way_prepare(const save_way *way, const char *folder);
heft_status save_way_run(const save_way *way, const char *folder, heft_error *err);
/* What of the way is in `folder`: 0 nothing, 1 the old, 2 the new, each whole, 3 one that is refused until it is resumed, and was
 * the new one then. Anything else fails the test. */
int save_way_found(const save_way *way, const char *folder);
/* What readers see that know nothing of markers: an index, if there is one, names files that are there and of one save. True: there
 * is one. */
bool save_way_index(const save_way *way, const char *folder);
/* Files and folders in it and below; *temps of them are temporary or a marker. */
int save_way_entries(const char *folder, int *temps);

#endif
