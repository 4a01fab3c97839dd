/* base: the system calls of files in progress, behind a table that tests replace. */
#include "base/os_target.h"

#include "base/os.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>
#if defined(__linux__)
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#endif

static int target_sys_open(int at, const char *path, int flags, uint32_t mode) {
    return openat(at, path, flags, (mode_t)mode);
}

static int target_sys_stat(int at, const char *path, heft__target_status *out) {
    struct stat st;
    if (path ? fstatat(at, path, &st, 0) : fstat(at, &st)) return -1;
#if defined(__APPLE__)
    struct timespec mtime = st.st_mtimespec;
#else
    struct timespec mtime = st.st_mtim;
#endif
    *out = (heft__target_status){.nbytes = st.st_size > 0 ? (uint64_t)st.st_size : 0,
                                 .device = (uint64_t)st.st_dev,
                                 .inode = (uint64_t)st.st_ino,
                                 .nlinks = (uint64_t)st.st_nlink,
                                 .mtime_ns = (int64_t)((uint64_t)mtime.tv_sec * 1000000000u + (uint64_t)mtime.tv_nsec),
                                 .mode = (uint32_t)st.st_mode,
                                 .uid = (uint32_t)st.st_uid,
                                 .gid = (uint32_t)st.st_gid};
    return 0;
}

static int target_sys_space(int fd, uint64_t *nbytes) {
    struct statvfs st;
    if (fstatvfs(fd, &st)) return -1;
    uint64_t unit = st.f_frsize ? (uint64_t)st.f_frsize : (uint64_t)st.f_bsize;
    /* File systems that do not count answer 0 blocks of 0. */
    *nbytes = st.f_blocks && !__builtin_mul_overflow((uint64_t)st.f_bavail, unit, &unit) ? unit : HEFT_NONE;
    return 0;
}

static int target_sys_reserve(int fd, uint64_t offset, uint64_t nbytes) {
#if defined(__linux__)
    return fallocate(fd, 0, (off_t)offset, (off_t)nbytes); /* not posix_fallocate, which writes zeros where this is not there */
#else
    (void)fd, (void)offset, (void)nbytes;
    errno = EOPNOTSUPP;
    return -1;
#endif
}

static int target_sys_resize(int fd, uint64_t nbytes) {
    return ftruncate(fd, (off_t)nbytes);
}

static int64_t target_sys_pwrite(int fd, const void *data, size_t nbytes, uint64_t offset) {
    return pwrite(fd, data, nbytes, (off_t)offset);
}

static int64_t target_sys_pread(int fd, void *data, size_t nbytes, uint64_t offset) {
    return pread(fd, data, nbytes, (off_t)offset);
}

static int target_sys_clone(int to, uint64_t to_offset, int from, uint64_t from_offset, uint64_t nbytes) {
#if defined(__linux__)
    struct {
        int64_t fd;
        uint64_t from_offset, nbytes, to_offset;
    } range = {from, from_offset, nbytes, to_offset};
    const unsigned long clone_range = _IOW(0x94, 13, range); /* FICLONERANGE of linux/fs.h */
    return ioctl(to, clone_range, &range);
#else
    (void)to, (void)to_offset, (void)from, (void)from_offset, (void)nbytes;
    errno = EOPNOTSUPP;
    return -1;
#endif
}

static int64_t target_sys_copy(int to, uint64_t to_offset, int from, uint64_t from_offset, size_t nbytes) {
#if defined(__linux__) && defined(SYS_copy_file_range)
    int64_t in = (int64_t)from_offset, out = (int64_t)to_offset;
    return syscall(SYS_copy_file_range, from, &in, to, &out, nbytes, 0u);
#else
    (void)to, (void)to_offset, (void)from, (void)from_offset, (void)nbytes;
    errno = ENOSYS;
    return -1;
#endif
}

static int target_sys_chmod(int fd, uint32_t mode) {
    return fchmod(fd, (mode_t)mode);
}

static int target_sys_chown(int fd, uint32_t uid, uint32_t gid) {
    if (fchown(fd, (uid_t)uid, (gid_t)gid) == 0) return 0;
    return fchown(fd, (uid_t)-1, (gid_t)gid); /* a member of the group may set that much */
}

static void target_sys_copy_acl(int folder, const char *from, int to) {
#if defined(__linux__)
    static const char name[] = "system.posix_acl_access";
    char value[4096];
    int fd = openat(folder, from, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) return;
    ssize_t n = fgetxattr(fd, name, value, sizeof value);
    if (n > 0) (void)fsetxattr(to, name, value, (size_t)n, 0);
    close(fd);
#else
    (void)folder, (void)from, (void)to;
#endif
}

static void target_sys_drop_cache(int fd) {
#if defined(POSIX_FADV_DONTNEED)
    (void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
#else
    (void)fd;
#endif
}

static int target_sys_rename_new(int from_at, const char *from, int to_at, const char *to) {
#if defined(__linux__) && defined(SYS_renameat2)
    enum { TARGET_NOREPLACE = 1 };
    if (!heft__os_traits_get()->plain_rename)
        return (int)syscall(SYS_renameat2, from_at, from, to_at, to, TARGET_NOREPLACE);
#endif
    (void)from_at, (void)from, (void)to_at, (void)to;
    errno = ENOSYS;
    return -1;
}

static int target_sys_link(int at, const char *from, const char *to) {
    return linkat(at, from, at, to, 0);
}

static int target_sys_unlink(int at, const char *name) {
    return unlinkat(at, name, 0);
}

static int target_sys_rmdir(int at, const char *name) {
    return unlinkat(at, name, AT_REMOVEDIR);
}

static int target_sys_mkdir(int at, const char *name) {
    return mkdirat(at, name, 0777);
}

static const heft__target_sys target_sys_real = {.open = target_sys_open,
                                                 .close = close,
                                                 .stat = target_sys_stat,
                                                 .space = target_sys_space,
                                                 .reserve = target_sys_reserve,
                                                 .resize = target_sys_resize,
                                                 .pwrite = target_sys_pwrite,
                                                 .pread = target_sys_pread,
                                                 .clone = target_sys_clone,
                                                 .copy = target_sys_copy,
                                                 .chmod = target_sys_chmod,
                                                 .chown = target_sys_chown,
                                                 .copy_acl = target_sys_copy_acl,
                                                 .fsync = fsync,
                                                 .drop_cache = target_sys_drop_cache,
                                                 .rename = renameat,
                                                 .rename_new = target_sys_rename_new,
                                                 .link = target_sys_link,
                                                 .unlink = target_sys_unlink,
                                                 .rmdir = target_sys_rmdir,
                                                 .mkdir = target_sys_mkdir};
static _Atomic(const heft__target_sys *) target_sys_now = &target_sys_real;

const heft__target_sys *heft__target_sys_get(void) {
    return atomic_load_explicit(&target_sys_now, memory_order_acquire);
}

void heft__target_sys_replace(const heft__target_sys *sys) {
    atomic_store_explicit(&target_sys_now, sys ? sys : &target_sys_real, memory_order_release);
}
