/* source: regular files and block devices behind one descriptor, by positioned reads. */
#include "source/source.h"

#include "base/error.h"
#include "base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>
#if defined(__linux__)
#include <sys/ioctl.h>
#endif

/* ---- the system ---- */

static int sys_open(int at, const char *path, int flags) {
    return openat(at, path, flags);
}

static int sys_stat(int fd, heft__file_status *out) {
    struct stat st;
    if (fstat(fd, &st) != 0) return -1;
#if defined(__APPLE__)
    struct timespec mtime = st.st_mtimespec;
#else
    struct timespec mtime = st.st_mtim;
#endif
    out->mode = (uint32_t)st.st_mode;
    out->identity = (heft__identity){.device = (uint64_t)st.st_dev,
                                     .inode = (uint64_t)st.st_ino,
                                     .size = st.st_size > 0 ? (uint64_t)st.st_size : 0,
                                     .mtime_ns = (int64_t)((uint64_t)mtime.tv_sec * 1000000000u + (uint64_t)mtime.tv_nsec),
                                     .known = true};
    return 0;
}

static int64_t sys_pread(int fd, void *dst, size_t nbytes, uint64_t offset) {
    return pread(fd, dst, nbytes, (off_t)offset);
}

#if defined(__linux__)
_Static_assert(sizeof(heft__vec) == sizeof(struct iovec) && offsetof(heft__vec, base) == offsetof(struct iovec, iov_base) &&
                   offsetof(heft__vec, nbytes) == offsetof(struct iovec, iov_len),
               "vectors are passed to the system as they are");
static int64_t sys_preadv(int fd, const heft__vec *vec, size_t nvec, uint64_t offset) {
    return preadv(fd, (const struct iovec *)(const void *)vec, (int)nvec, (off_t)offset);
}
static int64_t sys_preadv_flags(int fd, const heft__vec *vec, size_t nvec, uint64_t offset, int flags) {
    return preadv2(fd, (const struct iovec *)(const void *)vec, (int)nvec, (off_t)offset, flags);
}
#define SYS_PREADV sys_preadv
#define SYS_PREADV_FLAGS sys_preadv_flags
#else
#define SYS_PREADV NULL
#define SYS_PREADV_FLAGS NULL
#endif

static void *sys_map(size_t nbytes, int fd, uint64_t offset) {
    void *p = mmap(NULL, nbytes, PROT_READ, MAP_SHARED, fd, (off_t)offset);
    return p == MAP_FAILED ? NULL : p;
}

static int sys_populate(void *at, size_t nbytes) {
#if defined(__linux__)
    const int populate_read = 22; /* linux/mman.h, 5.14 */
    return madvise(at, nbytes, populate_read);
#else
    (void)at, (void)nbytes;
    errno = ENOSYS;
    return -1;
#endif
}

static int sys_advise(int fd, uint64_t offset, uint64_t nbytes, heft__advice advice) {
#if defined(POSIX_FADV_NORMAL)
    static const int words[] = {[HEFT__ADVICE_NORMAL] = POSIX_FADV_NORMAL,
                                [HEFT__ADVICE_WANTED] = POSIX_FADV_WILLNEED,
                                [HEFT__ADVICE_IN_ORDER] = POSIX_FADV_SEQUENTIAL,
                                [HEFT__ADVICE_AS_ASKED] = POSIX_FADV_RANDOM,
                                [HEFT__ADVICE_UNWANTED] = POSIX_FADV_DONTNEED};
    errno = posix_fadvise(fd, (off_t)offset, (off_t)nbytes, words[advice]);
    return errno ? -1 : 0;
#else
    (void)fd, (void)offset, (void)nbytes, (void)advice;
    errno = ENOSYS;
    return -1;
#endif
}

/* Never MADV_RANDOM: pages would come one by one. */
static int sys_advise_map(void *at, size_t nbytes, heft__advice advice) {
    return madvise(at, nbytes, advice == HEFT__ADVICE_WANTED     ? MADV_WILLNEED
                               : advice == HEFT__ADVICE_IN_ORDER ? MADV_SEQUENTIAL
                                                                 : MADV_NORMAL);
}

static const heft__source_sys sys_real = {sys_open, sys_stat, sys_pread, SYS_PREADV, sys_map, false,
                                          &heft__default_allocator, SYS_PREADV_FLAGS, sys_populate, sys_advise,
                                          sys_advise_map, NULL, NULL};
static _Atomic(const heft__source_sys *) sys_now = &sys_real;

const heft__source_sys *heft__source_sys_get(void) {
    return atomic_load_explicit(&sys_now, memory_order_acquire);
}

void heft__source_sys_replace(const heft__source_sys *sys) {
    atomic_store_explicit(&sys_now, sys ? sys : &sys_real, memory_order_release);
}

/* ---- reading ---- */

static int64_t file_read_at(heft_source *source, uint64_t offset, void *dst, size_t nbytes) {
    int64_t got = heft__source_sys_get()->pread(source->fd, dst, nbytes, offset);
    return got < 0 ? -(int64_t)errno : got;
}

static int64_t file_read_vec(heft_source *source, uint64_t offset, const heft__vec *vec, size_t nvec) {
    const heft__source_sys *sys = heft__source_sys_get();
    if (sys->preadv) {
        int64_t got = sys->preadv(source->fd, vec, nvec, offset);
        return got < 0 ? -(int64_t)errno : got;
    }
    while (nvec && vec->nbytes == 0) vec++, nvec--; /* there is one that wants bytes */
    return file_read_at(source, offset, vec->base, vec->nbytes);
}

static int file_stat(int fd, heft__file_status *out) {
    int result;
    do result = heft__source_sys_get()->stat(fd, out);
    while (result != 0 && errno == EINTR);
    return result;
}

static heft_status file_verify(heft_source *source, heft_error *err) {
    const heft__identity *then = &source->identity;
    if (!then->known) return HEFT_OK;
    heft__file_status now;
    if (file_stat(source->fd, &now) != 0) return heft__fail_errno(err, errno, source->label, "examining");
    char name[300];
    heft__escape(name, sizeof name, source->label, strlen(source->label));
    if (now.identity.size != then->size) {
        heft__fail(err, HEFT_MISMATCH, HEFT_FAULT_FILE_CHANGED,
                   "%s: the file changed since it was opened: it had %llu bytes and has %llu now; open it again", name,
                   (unsigned long long)then->size, (unsigned long long)now.identity.size);
        heft__error_at(err, HEFT_NONE, then->size, now.identity.size);
    } else if (now.identity.mtime_ns != then->mtime_ns || now.identity.inode != then->inode ||
               now.identity.device != then->device) {
        heft__fail(err, HEFT_MISMATCH, HEFT_FAULT_FILE_CHANGED,
                   "%s: the file changed since it was opened: %s; open it again", name,
                   now.identity.mtime_ns != then->mtime_ns ? "its modification time is another"
                                                           : "the descriptor leads to another file");
    } else return HEFT_OK;
    heft__error_file(err, source->label);
    return HEFT_MISMATCH;
}

static void file_close(heft_source *source) {
    close(source->fd);
}

static const heft__source_ops file_ops = {file_read_at, file_read_vec, heft__map_file, file_verify, file_close};

/* ---- opening ---- */

int heft__source_open_flags(void) {
    /* Without O_NONBLOCK opening a FIFO would wait for a writer; files do not mind it. */
    return O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
}

int heft__source_open_at(int at, const char *path, int flags) {
    int fd;
    do fd = heft__source_sys_get()->open(at, path, flags);
    while (fd < 0 && errno == EINTR);
    if (fd < 0) return -errno;
    if (fd > STDERR_FILENO) return fd;
    /* A program that closed a standard stream would print into the checkpoint, or read it as its input. */
    int moved = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    int code = errno;
    close(fd);
    return moved < 0 ? -code : moved;
}

static const char *file_kind_name(uint32_t mode) {
    mode_t m = (mode_t)mode;
    if (S_ISREG(m)) return "a regular file";
    if (S_ISDIR(m)) return "a directory";
    if (S_ISFIFO(m)) return "a FIFO or pipe";
    if (S_ISCHR(m)) return "a character device";
    if (S_ISBLK(m)) return "a block device";
    if (S_ISSOCK(m)) return "a socket";
    return "something that is not a file";
}

static heft_status file_fail_not_regular(heft_error *err, const char *path, const char *is, const char *wanted) {
    char name[300];
    heft__escape(name, sizeof name, path, strlen(path));
    heft__fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_NOT_REGULAR, "%s: it is %s; %s is wanted", name, is, wanted);
    heft__error_file(err, path);
    return HEFT_INVALID_ARGUMENT;
}

heft_status heft__fail_kind(heft_error *err, const char *path, uint32_t mode, const char *wanted) {
    return file_fail_not_regular(err, path, file_kind_name(mode), wanted);
}

heft_status heft__fail_open(heft_error *err, int code, const char *path) {
    if (code == ENXIO || code == EOPNOTSUPP || code == ENODEV) /* what sockets and drivers that are not there answer */
        return file_fail_not_regular(err, path, "a socket, or a device that is not there", "a regular file");
    if (code == EISDIR) return file_fail_not_regular(err, path, "a directory", "a regular file");
    return heft__fail_errno(err, code, path, "opening");
}

/* The size of a block device; asking does not move the offset, which the caller's descriptor shares. */
static bool file_device_size(int fd, uint64_t *size) {
#if defined(__linux__)
    const unsigned long get_size64 = _IOR(0x12, 114, size_t); /* BLKGETSIZE64 of linux/fs.h */
    return ioctl(fd, get_size64, size) == 0;
#else
    (void)fd, (void)size;
    return false;
#endif
}

heft_status heft__source_from_fd(int fd, const char *label, bool devices, heft_source **out, heft_error *err) {
    heft__file_status st;
    heft_status status = HEFT_OK;
    heft_source *source = NULL;
    if (file_stat(fd, &st) != 0) status = heft__fail_errno(err, errno, label, "examining");
    else if (devices && S_ISBLK((mode_t)st.mode)) {
        st.identity.known = false; /* its times and its size say nothing about its content */
        if (!file_device_size(fd, &st.identity.size)) status = heft__fail_errno(err, errno, label, "examining");
    } else if (!S_ISREG((mode_t)st.mode)) status = heft__fail_kind(err, label, st.mode, "a regular file");
    if (status == HEFT_OK &&
        !(source = heft__source_new(&file_ops, st.identity.size, HEFT_SOURCE_MAP | HEFT_SOURCE_FD, label)))
        status = heft__fail_memory(err, sizeof *source);
    if (status != HEFT_OK) {
        close(fd);
        return status;
    }
    source->fd = fd;
    source->identity = st.identity;
    *out = source;
    return HEFT_OK;
}

heft_status heft_source_open_file(const char *path, heft_source **out, heft_error *err) {
    if (!out) return heft__fail_null(err, "out");
    *out = NULL;
    if (!path) return heft__fail_null(err, "path");
    int fd = heft__source_open_at(AT_FDCWD, path, heft__source_open_flags());
    if (fd < 0) return heft__fail_open(err, -fd, path);
    heft_status status = heft__source_from_fd(fd, path, false, out, err);
    if (status == HEFT_OK) (*out)->name = (*out)->label;
    return status;
}

heft_status heft_source_open_fd(int fd, const char *label, heft_source **out, heft_error *err) {
    if (!out) return heft__fail_null(err, "out");
    *out = NULL;
    char number[32];
    if (!label) {
        snprintf(number, sizeof number, "fd %d", fd);
        label = number;
    }
    int flags = fcntl(fd, F_GETFL);
    if (flags < 0) return heft__fail_errno(err, errno, label, "examining");
    bool readable = (flags & O_ACCMODE) != O_WRONLY;
#if defined(O_PATH)
    if (flags & O_PATH) readable = false;
#endif
    if (!readable) {
        char name[300];
        heft__escape(name, sizeof name, label, strlen(label));
        heft__fail(err, HEFT_PERMISSION, HEFT_FAULT_ACCESS, "%s: the descriptor is not open for reading", name);
        heft__error_file(err, label);
        return HEFT_PERMISSION;
    }
    int own = fcntl(fd, F_DUPFD_CLOEXEC, 3); /* never one of the standard ones */
    if (own < 0) return heft__fail_errno(err, errno, label, "duplicating the descriptor");
    return heft__source_from_fd(own, label, true, out, err);
}
