/* source: the inside of heft_source. Positioned, stateless, sized, identified bytes. */
#ifndef HEFT_SOURCE_SOURCE_H
#define HEFT_SOURCE_SOURCE_H

#include "base/alloc.h"
#include "heft/sources.h"

#include <stdatomic.h>

/* One request is at most this long (Linux caps a call at 0x7ffff000, macOS refuses above 2^31 - 1). */
#define HEFT__READ_MAX ((uint64_t)1 << 30)

/* Who a file is, to see later that it is still the same. */
typedef struct heft__identity {
    uint64_t device, inode, size;
    int64_t mtime_ns;
    bool known;
} heft__identity;

typedef struct heft__vec {
    void *base;
    size_t nbytes;
} heft__vec;

/* A mapping that several holders keep alive. */
typedef struct heft__mapping {
    atomic_uint refs;
    heft_source *source; /* held; memory sources lend their own memory */
    const uint8_t *data; /* byte `offset` of the source */
    uint64_t offset, nbytes;
    void *base;          /* what is unmapped; NULL for memory sources */
    size_t base_nbytes;
} heft__mapping;

typedef struct heft__source_ops {
    /* Up to nbytes (1 to HEFT__READ_MAX) at offset: bytes read, 0 at the end, or -errno. Retries of EINTR and short reads
     * are done by the callers (heft__source_read_some's users), which count them. */
    int64_t (*read_at)(heft_source *source, uint64_t offset, void *dst, size_t nbytes);
    /* The same scattered into vectors (at most 1,024); NULL: not there. */
    int64_t (*read_vec)(heft_source *source, uint64_t offset, const heft__vec *vec, size_t nvec);
    /* Maps [offset, offset + nbytes); NULL: cannot. */
    heft_status (*map)(heft_source *source, uint64_t offset, uint64_t nbytes, heft__mapping **out, heft_error *err);
    /* MISMATCH if the bytes behind it changed since it was opened; NULL: cannot tell. */
    heft_status (*verify)(heft_source *source, heft_error *err);
    void (*close)(heft_source *source); /* frees what `state` holds, not the source */
} heft__source_ops;

struct heft_source {
    atomic_uint refs;
    uint32_t capabilities;
    const heft__source_ops *ops;
    uint64_t size;
    char *label;
    int fd;                  /* -1: none */
    uint64_t window_offset;  /* added to every offset; the base source's fields are used otherwise */
    heft_source *parent;     /* of a window: the base source, never a window itself */
    heft__identity identity;
    const uint8_t *memory;   /* memory sources */
    heft_source_callbacks callbacks;
    void (*release)(void *);
    void *release_ctx;
};

/* One call, window offset applied, no retry. Short reads happen; -errno on failure. */
int64_t heft__source_read_some(heft_source *source, uint64_t offset, void *dst, size_t nbytes);
/* The same into vectors; sources without read_vec are served by reads one vector at a time. */
int64_t heft__source_read_vec(heft_source *source, uint64_t offset, const heft__vec *vec, size_t nvec);

/* Exactly nbytes or an error, with counters (may be NULL). What heft_source_read calls. */
typedef struct heft__read_counters {
    uint64_t requests, short_reads, retries, nbytes;
} heft__read_counters;
heft_status heft__source_read_all(heft_source *source, uint64_t offset, uint64_t nbytes, void *dst,
                                  heft__read_counters *counters, heft_error *err);

/* A read ended early: IO, TRUNCATED, with offset, wanted and got. */
heft_status heft__fail_truncated(heft_error *err, const heft_source *source, uint64_t offset, uint64_t wanted,
                                 uint64_t got);

heft_status heft__source_map(heft_source *source, uint64_t offset, uint64_t nbytes, heft__mapping **out,
                             heft_error *err);
void heft__mapping_ref(heft__mapping *mapping);
void heft__mapping_unref(heft__mapping *mapping);
heft_status heft__source_verify(heft_source *source, heft_error *err);

/* The system calls of file sources, replaceable by tests (one atomic pointer; never set outside of tests). */
typedef struct heft__source_sys {
    int64_t (*pread)(int fd, void *dst, size_t nbytes, uint64_t offset);
    int64_t (*preadv)(int fd, const heft__vec *vec, size_t nvec, uint64_t offset); /* NULL: forced off */
    void *(*map)(size_t nbytes, int fd, uint64_t offset);                          /* NULL on failure, errno set */
} heft__source_sys;
void heft__source_sys_replace(const heft__source_sys *sys); /* NULL: the real ones */

/* ---- folders (directory.c) ---- */
typedef struct heft__directory heft__directory;
/* NOT_REGULAR if `path` is no directory. */
heft_status heft__directory_open(const char *path, heft__directory **out, heft_error *err);
void heft__directory_close(heft__directory *directory);
const char *heft__directory_path(const heft__directory *directory);
typedef enum heft__file_kind { HEFT__FILE_REGULAR, HEFT__FILE_DIRECTORY, HEFT__FILE_DANGLING, HEFT__FILE_OTHER } heft__file_kind;
typedef struct heft__directory_entry {
    const char *name; /* NUL-terminated, in the listing's arena */
    heft__file_kind kind; /* links followed */
    uint64_t nbytes;
    int64_t mtime_ns;
} heft__directory_entry;
/* All entries but "." and "..", sorted by bytes, in `arena`. */
heft_status heft__directory_list(heft__directory *directory, heft__arena *arena, heft__directory_entry **entries,
                                 uint64_t *nentries, heft_error *err);
/* Opens a file by one plain name under the directory (openat), links followed or kept beneath `beneath_levels` parents of
 * it (0: the directory itself). `name` has passed heft__path_component. */
heft_status heft__directory_source(heft__directory *directory, const char *name, bool beneath, uint32_t beneath_levels,
                                   heft_source **out, heft_error *err);
/* Rules of a name that comes from a file: one component, no separator, `.`, `..`, NUL, control byte, backslash, drive
 * form; at most 255 bytes of UTF-8. NULL if fine, else why (static text). */
const char *heft__path_component_fault(const char *name, size_t len);

#endif
