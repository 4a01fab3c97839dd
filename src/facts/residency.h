/* facts: how much of a file lies in the page cache. */
#ifndef HEFT_FACTS_RESIDENCY_H
#define HEFT_FACTS_RESIDENCY_H

#include "facts/facts.h"

/* Asks about the extents of a source that has a descriptor, step by step until one answers. Of a `stacked` file cachestat
 * looks into the pages of the upper file, of which there are never any: those of the file beneath are what reads find. */
void heft__residency_ask(const heft__facts_sys *sys, const heft_source *source, bool stacked, const heft__extent *extents,
                         uint64_t nextents, heft__residency *out);

#endif
