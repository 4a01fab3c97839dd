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
    heft_source *source; /* held, never a window; memory sources lend their own memory */
    const uint8_t *data; /* byte `offset` of the source */
    uint64_t offset, nbytes;
    void *base;          /* what is unmapped; NULL for memory sources */
    size_t base_nbytes;
} heft__mapping;

typedef struct heft__source_ops {
    /* Up to nbytes (1 to HEFT__READ_MAX) at offset: bytes read, 0 at the end, or -errno; -EOVERFLOW if a callback says
     * that it read more than it was asked for. Retries of EINTR and short reads are done by the callers
     * (heft__source_read_some's users), which count them. */
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
    heft_allocator alloc;
    atomic_uint refs;
    uint32_t capabilities;
    const heft__source_ops *ops;
    uint64_t size;
    char *label;             /* a window's is its parent's */
    int fd;                  /* -1: none; a window's is its parent's */
    uint64_t window_offset;  /* added to every offset; the base source's fields are used otherwise */
    heft_source *parent;     /* of a window: the base source, never a window itself */
    heft__identity identity;
    const char *name;        /* into the label: the path by which it was opened, or its name in a folder; NULL: otherwise */
    bool in_directory;       /* the latter */
    const uint8_t *memory;   /* memory sources */
    heft_source_callbacks callbacks;
    void (*release)(void *);
    void *release_ctx;
};

/* What a window, or any other source, reads from. */
static inline heft_source *heft__source_base(heft_source *source) { return source->parent ? source->parent : source; }

/* One call, window offset applied, no retry. Short reads happen, also at the source's end and at HEFT__READ_MAX; 0 at the
 * end or if nothing is wanted; -errno on failure. */
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

/* UNSUPPORTED if the source or its file system cannot; MISMATCH if the file changed since it was opened. A mapping of 0
 * bytes has a non-NULL address. */
heft_status heft__source_map(heft_source *source, uint64_t offset, uint64_t nbytes, heft__mapping **out,
                             heft_error *err);
void heft__mapping_ref(heft__mapping *mapping);
void heft__mapping_unref(heft__mapping *mapping);
/* MISMATCH, FILE_CHANGED if size or modification time are not what they were. HEFT_OK where that cannot be told. */
heft_status heft__source_verify(heft_source *source, heft_error *err);

typedef struct heft__file_status {
    heft__identity identity;
    uint32_t mode; /* st_mode */
} heft__file_status;

/* What is said about pages of a file or of a mapping. */
typedef enum heft__advice {
    HEFT__ADVICE_NORMAL,   /* nothing is known any more */
    HEFT__ADVICE_WANTED,   /* will be read soon */
    HEFT__ADVICE_IN_ORDER, /* will be read from front to back */
    HEFT__ADVICE_AS_ASKED, /* what is asked for is all that is wanted: nothing is to be read ahead of it */
    HEFT__ADVICE_UNWANTED  /* clean pages of it may go */
} heft__advice;

/* The system calls of file sources, replaceable by tests (one atomic pointer; never set outside of tests): copy what
 * heft__source_sys_get gives, change a member, replace. All fail with a negative result or NULL, and errno. */
typedef struct heft__source_sys {
    int (*open)(int at, const char *path, int flags);
    int (*stat)(int fd, heft__file_status *out);
    int64_t (*pread)(int fd, void *dst, size_t nbytes, uint64_t offset);
    int64_t (*preadv)(int fd, const heft__vec *vec, size_t nvec, uint64_t offset); /* NULL: there is none */
    void *(*map)(size_t nbytes, int fd, uint64_t offset);
    bool no_openat2;             /* links are resolved component by component */
    const heft_allocator *alloc; /* of new sources and folders */
    int64_t (*preadv_flags)(int fd, const heft__vec *vec, size_t nvec, uint64_t offset, int flags); /* preadv2, or NULL */
    int (*populate)(void *at, size_t nbytes);  /* MADV_POPULATE_READ */
    int (*advise)(int fd, uint64_t offset, uint64_t nbytes, heft__advice advice); /* posix_fadvise */
    int (*advise_map)(void *at, size_t nbytes, heft__advice advice);              /* madvise */
    /* Of io_uring, whose calls do not pass here; NULL but in tests. The errno with which it is refused, or 0; what a request
     * of fd gave, as a test wants it: no more bytes than `result`. */
    int (*ring_refused)(void);
    int64_t (*ring_result)(int fd, uint64_t offset, int flags, int64_t result);
} heft__source_sys;
const heft__source_sys *heft__source_sys_get(void);
void heft__source_sys_replace(const heft__source_sys *sys); /* NULL: the real ones */

/* What the kinds of source share (source.c). A new source with one reference, fd -1, its label copied; NULL: no memory. */
heft_source *heft__source_new(const heft__source_ops *ops, uint64_t size, uint32_t capabilities, const char *label);
/* INVALID_ARGUMENT if a pointer of the caller is NULL. */
heft_status heft__fail_null(heft_error *err, const char *what);

/* Makes a source of an open descriptor, which it takes over also on failure (source_file.c). `devices`: block devices are
 * fine as well. */
heft_status heft__source_from_fd(int fd, const char *label, bool devices, heft_source **out, heft_error *err);
/* The flags of every open for reading. */
int heft__source_open_flags(void);
/* open with EINTR retried: a descriptor above the standard ones, or -errno. */
int heft__source_open_at(int at, const char *path, int flags);
/* An open failed: NOT_REGULAR where the errno says so, else as heft__fail_errno. */
heft_status heft__fail_open(heft_error *err, int code, const char *path);
/* INVALID_ARGUMENT, NOT_REGULAR, naming what `path` is. `wanted`: "a regular file". */
heft_status heft__fail_kind(heft_error *err, const char *path, uint32_t mode, const char *wanted);

/* mapping.c */
heft_status heft__mapping_new(heft_source *source, const uint8_t *data, uint64_t offset, uint64_t nbytes,
                              heft__mapping **out, heft_error *err);
heft_status heft__map_file(heft_source *source, uint64_t offset, uint64_t nbytes, heft__mapping **out,
                           heft_error *err);
/* Brings in the pages of bytes [offset, offset + nbytes) of the mapping's source. 0; EFAULT: the file ends after *got of them;
 * EIO and others: they cannot be read; ENOSYS or EINVAL: the system has no such call. With `hint` they are only asked for,
 * which proves nothing and never fails. */
int heft__mapping_touch(heft__mapping *mapping, uint64_t offset, uint64_t nbytes, bool hint, uint64_t *got);
/* A hint about all of its pages, which cannot fail anything. */
void heft__mapping_advise(heft__mapping *mapping, heft__advice advice);

/* ---- folders (directory.c) ---- */
typedef struct heft__directory heft__directory;
/* NOT_REGULAR if `path` is no directory. */
heft_status heft__directory_open(const char *path, heft__directory **out, heft_error *err);
void heft__directory_close(heft__directory *directory);
const char *heft__directory_path(const heft__directory *directory);
typedef enum heft__file_kind { HEFT__FILE_REGULAR, HEFT__FILE_DIRECTORY, HEFT__FILE_DANGLING, HEFT__FILE_OTHER } heft__file_kind;
typedef struct heft__directory_entry {
    const char *name; /* NUL-terminated, in the listing's arena */
    heft__file_kind kind; /* links followed; REGULAR also where that is forbidden, so that opening it says why */
    uint64_t nbytes;
    int64_t mtime_ns;
    bool named, overlay; /* for whoever listed it: an index or a caller names it; it is laid over the others */
} heft__directory_entry;
/* All entries but "." and "..", sorted by bytes, in `arena`. */
heft_status heft__directory_list(heft__directory *directory, heft__arena *arena, heft__directory_entry **entries,
                                 uint64_t *nentries, heft_error *err);
/* Those whose names begin so: the others are not examined, which on a network's file system takes a message each. */
heft_status heft__directory_list_prefix(heft__directory *directory, const char *prefix, heft__arena *arena,
                                        heft__directory_entry **entries, uint64_t *nentries, heft_error *err);
/* Opens a file by one plain name under the directory (openat). Links are followed; with `beneath` only inside the folder
 * that lies `beneath_levels` above the directory (0: the directory itself), and a link that leaves is PERMISSION. `name` has
 * passed heft__path_component_fault. */
heft_status heft__directory_source(heft__directory *directory, const char *name, bool beneath, uint32_t beneath_levels,
                                   heft_source **out, heft_error *err);
/* The path of the file that `path` leads to, links at its end followed: relative to `directory` if that is given and the path is.
 * False: it cannot be told. */
enum { HEFT__SOURCE_PATH_MAX = 4096 };
bool heft__source_follow(const heft__directory *directory, const char *path, char out[HEFT__SOURCE_PATH_MAX]);
/* Rules of a name that comes from a file: one component, no separator, `.`, `..`, NUL, control byte, backslash, drive
 * form; at most 255 bytes of UTF-8. NULL if fine, else why (static text). */
const char *heft__path_component_fault(const char *name, size_t len);

#endif
