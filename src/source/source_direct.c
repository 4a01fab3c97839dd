/* source: ways past the page cache: a second descriptor for direct reads, and reads that leave no pages behind. */
#include "source/source_direct.h"

#include "base/error.h"
#include "base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

bool heft__source_refused(int code) {
    return code == EINVAL || code == EOPNOTSUPP || code == ENOSYS;
}

#if defined(O_DIRECT)
static int direct_open_at(const char *path) {
    return heft__source_open_at(AT_FDCWD, path, heft__source_open_flags() | O_DIRECT);
}

/* By path, if that still leads to the file that is open. */
static int direct_open_path(const heft_source *base) {
    if (!base->identity.known) return -ENOENT;
    int fd = direct_open_at(base->label);
    if (fd < 0) return fd;
    heft__file_status now;
    int result, code = ESTALE;
    do result = heft__source_sys_get()->stat(fd, &now);
    while (result != 0 && errno == EINTR);
    if (result != 0) code = errno;
    else if (now.identity.device == base->identity.device && now.identity.inode == base->identity.inode) return fd;
    close(fd);
    return -code;
}

/* Through /proc the very file is opened again, whatever its path is by now; where that is not there or not allowed the path
 * is tried, and where that fails too the first answer stands. */
static int direct_open(const heft_source *base) {
    char path[40];
    snprintf(path, sizeof path, "/proc/self/fd/%d", base->fd);
    int fd = direct_open_at(path);
    if (fd != -ENOENT && fd != -ENOTDIR && fd != -EACCES && fd != -EPERM) return fd;
    int second = direct_open_path(base);
    return second == -ENOENT || second == -ENOTDIR ? fd : second;
}
#else
static int direct_open(const heft_source *base) {
    (void)base;
    return -EOPNOTSUPP;
}
#endif

heft_status heft__source_direct_open(heft_source *source, int *fd, heft_error *err) {
    heft_source *base = heft__source_base(source);
    *fd = base->fd < 0 ? -EOPNOTSUPP : direct_open(base);
    if (*fd >= 0) return HEFT_OK;
    int code = -*fd;
    *fd = -1;
    heft_status status = heft__fail_errno(err, code, base->label, "opening for direct reads");
    if (!heft__source_refused(code) && code != EPERM && code != EACCES && code != ENOENT && code != ESTALE) return status;
    char name[300];
    heft__escape(name, sizeof name, base->label, strlen(base->label));
    heft__fail(err, HEFT_UNSUPPORTED, HEFT_FAULT_CALL, "%s: it cannot be opened for direct reads (%s)", name,
               heft__errno_name(code));
    heft__error_file(err, base->label);
    if (err) err->sys_errno = code;
    return HEFT_UNSUPPORTED;
}

void heft__source_direct_close(int fd) {
    if (fd >= 0) close(fd);
}

size_t heft__source_vectors(const heft_source *source, uint64_t offset, bool direct, const heft__vec *vec, size_t nvec,
                            heft__vec *first) {
    uint64_t most = HEFT__READ_MAX, total = 0;
    size_t n = 0;
    if (!direct) {
        if (offset >= source->size) return 0;
        if (most > source->size - offset) most = source->size - offset;
    }
    while (n < nvec && vec[n].nbytes <= most - total) total += vec[n++].nbytes;
    *first = (heft__vec){vec->base, n ? vec->nbytes : (size_t)most};
    return n ? n : 1;
}

int64_t heft__source_direct_read(heft_source *source, int fd, uint64_t offset, const heft__vec *vec, size_t nvec) {
    const heft__source_sys *sys = heft__source_sys_get();
    heft__vec first;
    nvec = heft__source_vectors(source, offset, true, vec, nvec, &first);
    offset += source->window_offset;
    int64_t got = nvec > 1 && sys->preadv ? sys->preadv(fd, vec, nvec, offset)
                                          : sys->pread(fd, first.base, first.nbytes, offset);
    return got < 0 ? -(int64_t)errno : got;
}

int64_t heft__source_read_drop(heft_source *source, uint64_t offset, const heft__vec *vec, size_t nvec) {
    const heft__source_sys *sys = heft__source_sys_get();
    heft__vec first;
    if (!sys->preadv_flags) return -ENOSYS;
    nvec = heft__source_vectors(source, offset, false, vec, nvec, &first);
    if (nvec == 0) return 0;
    int64_t got = sys->preadv_flags(source->fd, nvec == 1 ? &first : vec, nvec, source->window_offset + offset,
                                    HEFT__SOURCE_DONTCACHE);
    return got < 0 ? -(int64_t)errno : got;
}
