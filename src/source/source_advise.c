/* source: hints about the page cache, where the system takes them. */
#include "source/source_advise.h"

#include <errno.h>

/* Linux brings in no more of one request than the device takes at once, and most take so much. */
#define ADVISE_WANTED (UINT64_C(512) << 10)

void heft__source_advise(heft_source *source, uint64_t offset, uint64_t nbytes, heft__advice advice) {
    heft_source *base = heft__source_base(source);
    if (base->fd < 0 || nbytes == 0) return;
    const heft__source_sys *sys = heft__source_sys_get();
    uint64_t piece = advice == HEFT__ADVICE_WANTED ? ADVISE_WANTED : nbytes;
    int saved = errno;
    for (uint64_t at = 0; at < nbytes; at += piece)
        (void)sys->advise(base->fd, source->window_offset + offset + at, nbytes - at < piece ? nbytes - at : piece, advice);
    errno = saved;
}
