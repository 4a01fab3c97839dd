/* facts: the system calls of Linux behind the facts of a file. Old headers lack some, so numbers and layouts are given here;
 * an old kernel answers ENOSYS or leaves a bit out. */
#include "facts/facts.h"

#if defined(__linux__)

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static int facts_linux_fs_type(int fd, uint32_t *magic) {
    struct statfs st;
    int result;
    do result = fstatfs(fd, &st);
    while (result != 0 && errno == EINTR);
    if (result != 0) return errno;
    *magic = (uint32_t)st.f_type; /* signed and wider on most processors */
    return 0;
}

/* ---- direct alignment: statx of linux/stat.h, 6.1 and later ---- */

enum {
    FACTS_STATX_WORDS = 64, /* 256 bytes */
    FACTS_STATX_MASK = 0,
    FACTS_STATX_MEMORY = 38,
    FACTS_STATX_OFFSET = 39
};
#define FACTS_STATX_DIOALIGN 0x2000u

static int facts_linux_direct(int fd, uint32_t *memory, uint32_t *offset) {
#if defined(SYS_statx)
    _Alignas(8) uint32_t words[FACTS_STATX_WORDS] = {0};
    if (syscall(SYS_statx, fd, "", AT_EMPTY_PATH, FACTS_STATX_DIOALIGN, words) != 0) return errno;
    if (!(words[FACTS_STATX_MASK] & FACTS_STATX_DIOALIGN)) return ENODATA;
    *memory = words[FACTS_STATX_MEMORY];
    *offset = words[FACTS_STATX_OFFSET];
    return 0;
#else
    (void)fd, (void)memory, (void)offset;
    return ENOSYS;
#endif
}

/* ---- the page cache ---- */

/* One number for all processors but some old ones. */
#if defined(SYS_cachestat)
#define FACTS_CACHESTAT SYS_cachestat
#elif !defined(__alpha__) && !defined(__mips__) && !defined(__ia64__)
#define FACTS_CACHESTAT 451
#endif

static int facts_linux_cachestat(int fd, uint64_t offset, uint64_t nbytes, heft__cached_pages *out) {
#if defined(FACTS_CACHESTAT)
    struct {
        uint64_t offset, nbytes;
    } range = {offset, nbytes};
    struct {
        uint64_t cached, dirty, writeback, evicted, recently_evicted;
    } answer = {0, 0, 0, 0, 0};
    if (syscall(FACTS_CACHESTAT, fd, &range, &answer, 0u) != 0) return errno;
    *out = (heft__cached_pages){answer.cached, answer.dirty + answer.writeback};
    return 0;
#else
    (void)fd, (void)offset, (void)nbytes, (void)out;
    return ENOSYS;
#endif
}

/* The kernel starts to read a page that is not there before it says so, and where this thread loses its processor meanwhile
 * the page has come and the read succeeds. A page that was there takes 1 to 4 microseconds, one that came 30 and more
 * (measured; up to 4 % of a cold file's pages are such, on busy machines), so a slow success is none. */
#define FACTS_NOWAIT_SECONDS 25e-6

static int facts_linux_nowait(int fd, uint64_t offset) {
#if defined(RWF_NOWAIT)
    uint8_t byte;
    struct iovec vec = {&byte, 1};
    ssize_t got;
    double begin;
    do {
        begin = heft__os_seconds();
        got = preadv2(fd, &vec, 1, (off_t)offset, RWF_NOWAIT);
    } while (got < 0 && errno == EINTR);
    if (got < 0) return errno;
    if (got == 0) return ENODATA; /* the file became shorter */
    return heft__os_seconds() - begin > FACTS_NOWAIT_SECONDS ? EAGAIN : 0;
#else
    (void)fd, (void)offset;
    return ENOSYS;
#endif
}

static int facts_linux_mincore(int fd, uint64_t offset, uint64_t nbytes, uint64_t *cached) {
    unsigned char pages[HEFT__MINCORE_MOST / 4096 + 1];
    uint64_t page = heft__os_page_size(), lead = offset % page, length = lead + nbytes, n = (length + page - 1) / page;
    if (nbytes > HEFT__MINCORE_MOST || n > sizeof pages) return EINVAL;
    void *base = mmap(NULL, (size_t)length, PROT_READ, MAP_SHARED, fd, (off_t)(offset - lead));
    if (base == MAP_FAILED) return errno;
    int code = mincore(base, (size_t)length, pages) == 0 ? 0 : errno;
    munmap(base, (size_t)length);
    *cached = 0;
    for (uint64_t i = 0; code == 0 && i < n; i++) *cached += pages[i] & 1;
    return code;
}

/* CAP_FOWNER in effect. What a user namespace has no name for shows as 65534, and there the capability does not count. */
static bool facts_linux_capable(const struct stat *st) {
    enum { VERSION = 0x20080522, FOWNER = 3, NOBODY = 65534 };
    struct {
        uint32_t version;
        int pid;
    } header = {VERSION, 0};
    struct {
        uint32_t effective, permitted, inheritable;
    } sets[2] = {{0, 0, 0}, {0, 0, 0}};
    return st->st_uid != NOBODY && st->st_gid != NOBODY && syscall(SYS_capget, &header, sets) == 0 &&
           (sets[0].effective >> FOWNER & 1);
}

static bool facts_linux_may_mincore(int fd) {
    struct stat st;
    char path[32];
    if (fstat(fd, &st) != 0) return false;
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    return geteuid() == st.st_uid || faccessat(AT_FDCWD, path, W_OK, AT_EACCESS) == 0 || facts_linux_capable(&st);
}

/* ---- huge pages ---- */

static bool facts_linux_thp_disabled(void) {
    const int get = 42; /* PR_GET_THP_DISABLE */
    int answer = prctl(get, 0, 0, 0, 0);
    return answer > 0 && (answer & 3) == 1; /* with bit 1 (6.18) memory that asks for them has them still */
}

const heft__facts_sys heft__facts_sys_linux = {
    facts_linux_fs_type, facts_linux_direct,      facts_linux_cachestat,    facts_linux_nowait,
    facts_linux_mincore, facts_linux_may_mincore, facts_linux_thp_disabled, heft__os_seconds,
};

#endif
