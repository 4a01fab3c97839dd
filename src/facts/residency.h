/* facts: how much of a file lies in the page cache. */
#ifndef HEFT_FACTS_RESIDENCY_H
#define HEFT_FACTS_RESIDENCY_H

#include "facts/facts.h"

/* Asks about the extents of a source that has a descriptor, step by step until one answers. */
void heft__residency_ask(const heft__facts_sys *sys, const heft_source *source, const heft__extent *extents,
                         uint64_t nextents, heft__residency *out);

#endif
