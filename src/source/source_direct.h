/* source: ways past the page cache: direct reads, reads that leave no pages behind, and pages of mappings. */
#ifndef HEFT_SOURCE_SOURCE_DIRECT_H
#define HEFT_SOURCE_SOURCE_DIRECT_H

#include "source/source.h"

/* A second descriptor on the same file, for direct reads; closed with heft__source_direct_close.
 * UNSUPPORTED with err->sys_errno: the file system or the system refuses it, or there is no file; buffered reads will do.
 * MISMATCH: the path leads to another file by now, and there is no other way. */
heft_status heft__source_direct_open(heft_source *source, int *fd, heft_error *err);
void heft__source_direct_close(int fd);

/* One call each, window offset applied, no retry: bytes read, 0 at the end, -errno. At most HEFT__READ_MAX bytes. A direct one
 * may reach beyond the end; its offset in the file, its lengths and places are aligned, or it is -EINVAL. */
int64_t heft__source_direct_read(heft_source *source, int fd, uint64_t offset, const heft__vec *vec, size_t nvec);
/* Through the page cache, without leaving pages there that were not there before. For sources with a descriptor. */
int64_t heft__source_read_drop(heft_source *source, uint64_t offset, const heft__vec *vec, size_t nvec);

/* For calls that are made elsewhere (io_uring): the vectors of one call at `offset` of a source with a descriptor, which ends
 * with the source unless it is direct. Returns their number, 0: there are no bytes; *first is what is left of the first
 * where that must be cut, and the only one then. */
size_t heft__source_vectors(const heft_source *source, uint64_t offset, bool direct, const heft__vec *vec, size_t nvec,
                            heft__vec *first);
/* The flag of preadv2 that heft__source_read_drop sets. */
#define HEFT__SOURCE_DONTCACHE 0x80

/* Whether the errno of a direct or dropping read says that such reads are refused, so that a plain one is to be tried. */
bool heft__source_refused(int code);

#endif
