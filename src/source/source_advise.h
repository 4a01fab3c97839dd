/* source: hints about the page cache. Nothing here can fail anything. */
#ifndef HEFT_SOURCE_SOURCE_ADVISE_H
#define HEFT_SOURCE_SOURCE_ADVISE_H

#include "source/source.h"

typedef enum heft__advice {
    HEFT__ADVICE_WANTED,    /* will be read soon */
    HEFT__ADVICE_IN_ORDER,  /* will be read from front to back */
    HEFT__ADVICE_UNWANTED   /* clean pages of it may go */
} heft__advice;

/* Window offset applied; sources without a descriptor take no hint. */
void heft__source_advise(heft_source *source, uint64_t offset, uint64_t nbytes, heft__advice advice);

#endif
