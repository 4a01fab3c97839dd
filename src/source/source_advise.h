/* source: hints about the page cache. Nothing here can fail anything. */
#ifndef HEFT_SOURCE_SOURCE_ADVISE_H
#define HEFT_SOURCE_SOURCE_ADVISE_H

#include "source/source.h"

/* Window offset applied; sources without a descriptor take no hint. */
void heft__source_advise(heft_source *source, uint64_t offset, uint64_t nbytes, heft__advice advice);

#endif
