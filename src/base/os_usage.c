/* base: what this process has used of the machine, and of a file's pages in memory. */
#include "base/os.h"

#include "base/error.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#if defined(__linux__)
/* A field of /proc/self/status in KiB, as bytes; HEFT_NONE if it is not there. */
static uint64_t usage_status(const char *text, const char *key) {
    const char *at = strstr(text, key);
    uint64_t value = 0;
    if (!at) return HEFT_NONE;
    for (at += strlen(key); *at == ' ' || *at == '\t'; at++) continue;
    if (*at < '0' || *at > '9') return HEFT_NONE;
    for (; *at >= '0' && *at <= '9'; at++) value = value * 10 + (uint64_t)(*at - '0');
    return value << 10;
}

static void usage_memory(heft__os_use *out) {
    char text[4096];
    int fd = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
    if (fd < 0) return;
    ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    if (n <= 0) return;
    text[n] = 0;
    out->rss_nbytes = usage_status(text, "VmRSS:");
    uint64_t peak = usage_status(text, "VmHWM:");
    if (peak != HEFT_NONE) out->peak_rss_nbytes = peak;
}
#else
static void usage_memory(heft__os_use *out) {
    (void)out;
}
#endif

void heft__os_usage(heft__os_use *out) {
    struct rusage usage;
    *out = (heft__os_use){.rss_nbytes = HEFT_NONE, .peak_rss_nbytes = HEFT_NONE};
    if (getrusage(RUSAGE_SELF, &usage) == 0) {
        out->minor_faults = (uint64_t)usage.ru_minflt;
        out->major_faults = (uint64_t)usage.ru_majflt;
#if defined(__APPLE__)
        out->peak_rss_nbytes = (uint64_t)usage.ru_maxrss; /* bytes there, KiB elsewhere */
#else
        out->peak_rss_nbytes = (uint64_t)usage.ru_maxrss << 10;
#endif
    }
    usage_memory(out);
}

void heft__os_peak_restart(void) {
#if defined(__linux__)
    int fd = open("/proc/self/clear_refs", O_WRONLY | O_CLOEXEC);
    if (fd < 0) return;
    (void)!write(fd, "5", 1);
    close(fd);
#endif
}

/* ---- files, as a program reads them that does nothing else ---- */

heft_status heft__os_open_read(const char *path, bool direct, int *fd, uint64_t *nbytes, heft_error *err) {
    int flags = O_RDONLY | O_CLOEXEC;
    struct stat st;
    *fd = -1;
#if defined(O_DIRECT)
    if (direct) flags |= O_DIRECT;
#else
    if (direct) return heft__fail(err, HEFT_UNSUPPORTED, HEFT_FAULT_CALL, "this system has no O_DIRECT");
#endif
    do *fd = open(path, flags);
    while (*fd < 0 && errno == EINTR);
    if (*fd < 0 || fstat(*fd, &st) != 0) {
        heft_status status = heft__fail_errno(err, errno, path, "opening");
        heft__os_close(*fd);
        *fd = -1;
        return status;
    }
    *nbytes = (uint64_t)st.st_size;
    return HEFT_OK;
}

heft_status heft__os_read_at(int fd, uint64_t offset, void *dst, size_t nbytes, size_t *got, heft_error *err) {
    ssize_t n;
    do n = pread(fd, dst, nbytes, (off_t)offset);
    while (n < 0 && errno == EINTR);
    if (n < 0) return heft__fail_errno(err, errno, "a file", "reading");
    *got = (size_t)n;
    return HEFT_OK;
}

void heft__os_close(int fd) {
    if (fd >= 0) close(fd);
}

heft_status heft__os_evict(const char *path, bool *own, heft_error *err) {
    uint64_t nbytes;
    struct stat st;
    int fd, code;
    *own = false;
    heft_status status = heft__os_open_read(path, false, &fd, &nbytes, err);
    if (status) return status;
    if (fstat(fd, &st) == 0) *own = st.st_uid == geteuid();
#if defined(POSIX_FADV_DONTNEED)
    code = posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
#else
    code = ENOSYS;
#endif
    heft__os_close(fd);
    return code ? heft__fail_errno(err, code, path, "dropping from the page cache") : HEFT_OK;
}
