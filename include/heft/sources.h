/* heft/sources.h: where bytes live. A source is positioned, stateless, sized and identified:
 * read_at from any thread. */
#ifndef HEFT_SOURCES_H
#define HEFT_SOURCES_H

#include "heft/core.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Reference-counted handle. Shared freely between threads. It takes a few hundred bytes, of malloc: sources, which the
 * archives of several allocators share, have none of their own. */
typedef struct heft_source heft_source;

/* Capabilities of a source. */
#define HEFT_SOURCE_MAP UINT32_C(1)    /* its bytes can be had without a copy (a mapping, or memory) */
#define HEFT_SOURCE_FD UINT32_C(2)     /* a file descriptor stands behind it */
#define HEFT_SOURCE_REMOTE UINT32_C(4) /* a request has a round trip: few large reads are better than many */
#define HEFT_SOURCE_STABLE UINT32_C(8) /* the bytes cannot change while it is open */

/* Opens a regular file for reading. `path` is taken as it is, symbolic links are followed, the
 * descriptor is close-on-exec. On success *out holds one reference; on failure it is NULL.
 * Errors: INVALID_ARGUMENT (NULL), NOT_FOUND, PERMISSION, IO with errno, INVALID_ARGUMENT with
 * fault NOT_REGULAR for directories, FIFOs and devices (a FIFO does not hang), OUT_OF_MEMORY.
 * Thread rule: any thread. */
HEFT_API heft_status heft_source_open_file(const char *path, heft_source **out, heft_error *err);

/* A source on an open descriptor, which is duplicated: the caller's stays open and its offset
 * is never used or moved. `label` names it in messages (copied; NULL: "fd N"). Regular files
 * and block devices only.
 * Errors: as heft_source_open_file (NOT_REGULAR for pipes, sockets, terminals and other devices:
 * they cannot be read at an offset); PERMISSION for a descriptor that is not open for reading; IO
 * for one that is closed.
 * Thread rule: any thread. */
HEFT_API heft_status heft_source_open_fd(int fd, const char *label, heft_source **out, heft_error *err);

/* A source on `nbytes` bytes at `data`. The memory is borrowed: it must stay unchanged until
 * `release` is called with `release_ctx` (may be NULL), which happens when the last reference
 * goes. `label` is copied (NULL: "memory"). `release` is also called when this function fails.
 * Errors: OUT_OF_MEMORY, INVALID_ARGUMENT.
 * Thread rule: any thread. */
HEFT_API heft_status heft_source_open_memory(const void *data, uint64_t nbytes, const char *label,
                                             void (*release)(void *release_ctx), void *release_ctx, heft_source **out,
                                             heft_error *err);

/* A program's own source. `struct_size` = sizeof(heft_source_callbacks). */
typedef struct heft_source_callbacks {
    size_t struct_size;
    void *ctx;
    uint64_t size;         /* bytes in all */
    uint32_t capabilities; /* HEFT_SOURCE_REMOTE, HEFT_SOURCE_STABLE; others are refused */
    uint32_t reserved;
    /* Reads up to `nbytes` (1 to 2^30) at `offset` into `dst`; called from several threads at
     * once. Returns the bytes read (short is fine), 0 at the end, or a negative errno. It must
     * not write past `dst + nbytes`. */
    int64_t (*read_at)(void *ctx, uint64_t offset, void *dst, size_t nbytes);
    void (*release)(void *ctx); /* when the last reference goes; may be NULL */
} heft_source_callbacks;

/* A source on a program's callbacks; `label` is copied (NULL: "callback"). `release` is also
 * called on failure.
 * Errors: INVALID_ARGUMENT (no read_at, unknown capability or non-zero tail), OUT_OF_MEMORY.
 * Thread rule: any thread. */
HEFT_API heft_status heft_source_open_callbacks(const heft_source_callbacks *callbacks, const char *label,
                                                heft_source **out, heft_error *err);

/* The bytes [offset, offset + nbytes) of `parent` as a source of their own. Windows collapse: a
 * window of a window of a file reads the file directly, at an absolute offset, and keeps only
 * the file alive.
 * Errors: INVALID_ARGUMENT (outside of the parent), OUT_OF_MEMORY.
 * Thread rule: any thread. */
HEFT_API heft_status heft_source_window(heft_source *parent, uint64_t offset, uint64_t nbytes, heft_source **out,
                                        heft_error *err);

/* One more reference / one less; the last one closes. heft_source_unref(NULL) does nothing.
 * Thread rule: any thread. */
HEFT_API heft_source *heft_source_ref(heft_source *source);
HEFT_API void heft_source_unref(heft_source *source);

/* Bytes in all; the HEFT_SOURCE capabilities; the path or label (lives as long as the source).
 * Thread rule: any thread. */
HEFT_API uint64_t heft_source_size(const heft_source *source);
HEFT_API uint32_t heft_source_capabilities(const heft_source *source);
HEFT_API const char *heft_source_label(const heft_source *source);

/* Reads exactly `nbytes` at `offset` into `dst`. EINTR and short reads are handled, requests
 * are cut at 1 GiB.
 * Errors: INVALID_ARGUMENT (range outside of the source), IO (errno, or "truncated" with
 * offset, expected and found: zeros are never delivered in place of missing bytes). After an
 * error the content of `dst` is undefined.
 * Thread rule: any thread. */
HEFT_API heft_status heft_source_read(heft_source *source, uint64_t offset, uint64_t nbytes, void *dst, heft_error *err);

#ifdef __cplusplus
}
#endif
#endif
