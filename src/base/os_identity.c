/* base: files that are known again later, by what the file system says of them. */
#include "base/os.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#if defined(__linux__)
#include <sys/statfs.h>
#elif defined(__APPLE__) || defined(__FreeBSD__)
#include <sys/param.h>
#include <sys/mount.h>
#endif

/* Times of files are as coarse as 2 s (the worst that is still in use), and those of a server may be a little behind. */
#define IDENTITY_FRESH_NS UINT64_C(2000000000)

static const char identity_made_up[] = "its file system does not tell files apart for good";

static uint64_t identity_ns(struct timespec time) {
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static bool identity_of(const struct stat *st, heft__os_identity *out) {
#if defined(__APPLE__)
    struct timespec written = st->st_mtimespec, changed = st->st_ctimespec;
#else
    struct timespec written = st->st_mtim, changed = st->st_ctim;
#endif
    *out = (heft__os_identity){0};
    if (!S_ISREG(st->st_mode) || written.tv_sec < 0 || changed.tv_sec < 0) return false;
    *out = (heft__os_identity){.device = (uint64_t)st->st_dev,
                               .inode = (uint64_t)st->st_ino,
                               .nbytes = (uint64_t)st->st_size,
                               .mtime_ns = identity_ns(written),
                               .ctime_ns = identity_ns(changed)};
    return true;
}

bool heft__os_identity_same(const heft__os_identity *a, const heft__os_identity *b) {
    return a->device == b->device && a->inode == b->inode && a->nbytes == b->nbytes && a->mtime_ns == b->mtime_ns &&
           a->ctime_ns == b->ctime_ns;
}

bool heft__os_identity_at(const char *path, heft__os_identity *out) {
    struct stat st;
    *out = (heft__os_identity){0};
    return stat(path, &st) == 0 && identity_of(&st, out);
}

/* Whether numbers of files stay with them, and a time tells of every change. Not so where they are made up when a file is looked
 * at (FAT, file systems in user space), or where a server may do so without a word (9p, SMB). */
#if defined(__linux__)
static bool identity_lasts(int fd) {
    static const uint32_t made_up[] = {0x00004D44 /* vfat */, 0x2011BAB0 /* exfat */, 0x65735546 /* fuse */,
                                       0x01021997 /* 9p */,   0x0000517B /* smb */,   0xFF534D42 /* cifs */,
                                       0xFE534D42 /* smb2 */, 0x786F4256 /* vboxsf */};
    struct statfs st;
    int result;
    do result = fstatfs(fd, &st);
    while (result != 0 && errno == EINTR);
    if (result != 0) return false;
    for (size_t i = 0; i < sizeof made_up / sizeof *made_up; i++)
        if ((uint32_t)st.f_type == made_up[i]) return false; /* signed and wider on most processors */
    return true;
}
#elif defined(__APPLE__) || defined(__FreeBSD__)
static bool identity_lasts(int fd) {
    static const char *const lasting[] = {"apfs", "hfs", "ufs", "zfs", "nfs", "tmpfs"};
    struct statfs st;
    if (fstatfs(fd, &st) != 0) return false;
    for (size_t i = 0; i < sizeof lasting / sizeof *lasting; i++)
        if (strcmp(st.f_fstypename, lasting[i]) == 0) return true;
    return false;
}
#else
static bool identity_lasts(int fd) {
    (void)fd;
    return false;
}
#endif

static uint64_t identity_now(void) {
    struct timespec now;
    uint64_t made_up = heft__os_traits_get()->now_ns;
    if (made_up) return made_up;
    return clock_gettime(CLOCK_REALTIME, &now) == 0 ? identity_ns(now) : 0;
}

const char *heft__os_identify(int fd, heft__os_identity *out) {
    struct stat st;
    *out = (heft__os_identity){0};
    if (fstat(fd, &st) != 0 || !identity_of(&st, out)) return "it is no regular file with a time of change";
    if (heft__os_traits_get()->plain_identity || !identity_lasts(fd)) return identity_made_up;
    /* Every change sets the ctime, to the clock's time: the mtime, which anybody may set, says nothing more. */
    uint64_t now = identity_now();
    if (out->ctime_ns > now) return "it changed at a time that is still to come";
    return now - out->ctime_ns < IDENTITY_FRESH_NS ? "it changed less than 2 seconds ago" : NULL;
}
