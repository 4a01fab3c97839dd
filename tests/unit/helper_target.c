/* System calls of files in progress, on demand failing, interrupted, short, fatal. */
#include "helper_target.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <unistd.h>

static trap_plan trap_now;
static const heft__target_sys *trap_real;
static heft__target_sys trap_sys;
static _Atomic uint64_t trap_count, trap_odd;
void (*trap_log)(const trap_event *event);

/* True: the call fails, errno is set. */
static bool trapped(const trap_event *event) {
    if (trap_log) trap_log(event);
    if (trap_now.interrupt && atomic_fetch_add(&trap_odd, 1) % 2 == 0) {
        errno = EINTR;
        return true;
    }
    if (trap_now.only && strcmp(trap_now.only, event->name) != 0) return false;
    if (atomic_fetch_add(&trap_count, 1) + 1 != trap_now.fail_call) return false;
    if (trap_now.die) raise(SIGKILL);
    while (trap_now.hold && write(trap_now.hold, "", 1) == 1) pause();
    errno = trap_now.fail_errno;
    return true;
}

#define TRAPPED(...) trapped(&(trap_event){__VA_ARGS__})

static int trap_open(int at, const char *path, int flags, uint32_t mode) {
    if (TRAPPED(.name = "open", .fd = at, .from = path)) return -1;
    int fd = trap_real->open(at, path, flags, mode);
    if (trap_log && fd >= 0) trap_log(&(trap_event){.name = "opened", .fd = fd, .at = at, .from = path});
    return fd;
}
static int trap_close(int fd) {
    bool fails = TRAPPED(.name = "close", .fd = fd);
    int code = errno, result = trap_real->close(fd); /* closed all the same, as Linux does */
    errno = code;
    return fails ? -1 : result;
}
static int trap_stat(int at, const char *path, heft__target_status *out) {
    return TRAPPED(.name = "stat", .fd = at, .from = path) ? -1 : trap_real->stat(at, path, out);
}
static int trap_space(int fd, uint64_t *nbytes) {
    if (TRAPPED(.name = "space", .fd = fd)) return -1;
    if (!trap_now.space) return trap_real->space(fd, nbytes);
    *nbytes = trap_now.space;
    return 0;
}
static int trap_reserve(int fd, uint64_t offset, uint64_t nbytes) {
    if (TRAPPED(.name = "reserve", .fd = fd, .offset = offset, .nbytes = nbytes)) return -1;
    if (!trap_now.no_reserve) return trap_real->reserve(fd, offset, nbytes);
    errno = trap_now.no_reserve;
    return -1;
}
static int trap_resize(int fd, uint64_t nbytes) {
    return TRAPPED(.name = "resize", .fd = fd, .nbytes = nbytes) ? -1 : trap_real->resize(fd, nbytes);
}
static int64_t trap_pwrite(int fd, const void *data, size_t nbytes, uint64_t offset) {
    if (trap_now.most && nbytes > trap_now.most) nbytes = trap_now.most;
    if (TRAPPED(.name = "pwrite", .fd = fd, .data = data, .nbytes = nbytes, .offset = offset)) return -1;
    return trap_real->pwrite(fd, data, nbytes, offset);
}
static int64_t trap_pread(int fd, void *data, size_t nbytes, uint64_t offset) {
    if (trap_now.most && nbytes > trap_now.most) nbytes = trap_now.most;
    return TRAPPED(.name = "pread", .fd = fd) ? -1 : trap_real->pread(fd, data, nbytes, offset);
}
static int trap_copied(int to, uint64_t offset, int result, uint64_t nbytes) {
    if (trap_log && result == 0) trap_log(&(trap_event){.name = "copied", .fd = to, .offset = offset, .nbytes = nbytes});
    return result;
}
static int trap_clone(int to, uint64_t to_offset, int from, uint64_t from_offset, uint64_t nbytes) {
    if (TRAPPED(.name = "clone", .fd = to, .nbytes = nbytes, .offset = to_offset)) return -1;
    if (!trap_now.no_clone) return trap_copied(to, to_offset, trap_real->clone(to, to_offset, from, from_offset, nbytes), nbytes);
    errno = trap_now.no_clone;
    return -1;
}
static int64_t trap_copy(int to, uint64_t to_offset, int from, uint64_t from_offset, size_t nbytes) {
    if (trap_now.most && nbytes > trap_now.most) nbytes = trap_now.most;
    if (TRAPPED(.name = "copy", .fd = to, .nbytes = nbytes, .offset = to_offset)) return -1;
    if (!trap_now.no_copy) {
        int64_t n = trap_real->copy(to, to_offset, from, from_offset, nbytes);
        trap_copied(to, to_offset, n > 0 ? 0 : -1, (uint64_t)n);
        return n;
    }
    errno = trap_now.no_copy;
    return -1;
}
static int trap_chmod(int fd, uint32_t mode) {
    return TRAPPED(.name = "chmod", .fd = fd) ? -1 : trap_real->chmod(fd, mode);
}
static int trap_chown(int fd, uint32_t uid, uint32_t gid) {
    return TRAPPED(.name = "chown", .fd = fd) ? -1 : trap_real->chown(fd, uid, gid);
}
static int trap_fsync(int fd) {
    return TRAPPED(.name = "fsync", .fd = fd) ? -1 : 0; /* nobody pulls a plug here, and it would take most of the time */
}
static int trap_rename(int from_at, const char *from, int to_at, const char *to) {
    return TRAPPED(.name = "rename", .fd = from_at, .from = from, .to = to) ? -1 : trap_real->rename(from_at, from, to_at, to);
}
static int trap_rename_new(int from_at, const char *from, int to_at, const char *to) {
    if (TRAPPED(.name = "rename", .fd = from_at, .from = from, .to = to)) return -1;
    if (!trap_now.no_rename_new) return trap_real->rename_new(from_at, from, to_at, to);
    errno = trap_now.no_rename_new;
    return -1;
}
static int trap_link(int at, const char *from, const char *to) {
    return TRAPPED(.name = "link", .fd = at, .from = from, .to = to) ? -1 : trap_real->link(at, from, to);
}
static int trap_unlink(int at, const char *name) {
    return TRAPPED(.name = "unlink", .fd = at, .from = name) ? -1 : trap_real->unlink(at, name);
}
static int trap_rmdir(int at, const char *name) {
    return TRAPPED(.name = "rmdir", .fd = at, .from = name) ? -1 : trap_real->rmdir(at, name);
}
static int trap_mkdir(int at, const char *name) {
    return TRAPPED(.name = "mkdir", .fd = at, .from = name) ? -1 : trap_real->mkdir(at, name);
}

void trap_begin(const trap_plan *plan) {
    heft__target_sys_replace(NULL);
    trap_real = heft__target_sys_get();
    trap_now = *plan;
    atomic_store(&trap_count, 0);
    atomic_store(&trap_odd, 0);
    trap_sys = *trap_real;
    trap_sys.open = trap_open;
    trap_sys.close = trap_close;
    trap_sys.stat = trap_stat;
    trap_sys.space = trap_space;
    trap_sys.reserve = trap_reserve;
    trap_sys.resize = trap_resize;
    trap_sys.pwrite = trap_pwrite;
    trap_sys.pread = trap_pread;
    trap_sys.clone = trap_clone;
    trap_sys.copy = trap_copy;
    trap_sys.chmod = trap_chmod;
    trap_sys.chown = trap_chown;
    trap_sys.fsync = trap_fsync;
    trap_sys.rename = trap_rename;
    trap_sys.rename_new = trap_rename_new;
    trap_sys.link = trap_link;
    trap_sys.unlink = trap_unlink;
    trap_sys.rmdir = trap_rmdir;
    trap_sys.mkdir = trap_mkdir;
    heft__target_sys_replace(&trap_sys);
}

uint64_t trap_calls(void) {
    return atomic_load(&trap_count);
}

void trap_end(void) {
    heft__target_sys_replace(NULL);
}
