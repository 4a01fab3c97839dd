/* source: hints about the page cache, where the system takes them. */
#include "source/source_advise.h"

#include <errno.h>
#include <fcntl.h>

void heft__source_advise(heft_source *source, uint64_t offset, uint64_t nbytes, heft__advice advice) {
    heft_source *base = heft__source_base(source);
    if (base->fd < 0 || nbytes == 0) return;
#if defined(POSIX_FADV_WILLNEED)
    int saved = errno;
    (void)posix_fadvise(base->fd, (off_t)(source->window_offset + offset), (off_t)nbytes,
                        advice == HEFT__ADVICE_WANTED     ? POSIX_FADV_WILLNEED
                        : advice == HEFT__ADVICE_IN_ORDER ? POSIX_FADV_SEQUENTIAL
                                                          : POSIX_FADV_DONTNEED);
    errno = saved;
#else
    (void)offset, (void)advice;
#endif
}
