/* facts: a system that tells nothing; every fact has its value for that. */
#include "facts/facts.h"

#include <errno.h>

static int facts_none_fs_type(int fd, uint32_t *magic) {
    (void)fd, (void)magic;
    return ENOSYS;
}

static int facts_none_direct(int fd, uint32_t *memory, uint32_t *offset) {
    (void)fd, (void)memory, (void)offset;
    return ENOSYS;
}

static int facts_none_cachestat(int fd, uint64_t offset, uint64_t nbytes, heft__cached_pages *out) {
    (void)fd, (void)offset, (void)nbytes, (void)out;
    return ENOSYS;
}

static int facts_none_nowait(int fd, uint64_t offset) {
    (void)fd, (void)offset;
    return ENOSYS;
}

static int facts_none_mincore(int fd, uint64_t offset, uint64_t nbytes, uint64_t *cached) {
    (void)fd, (void)offset, (void)nbytes, (void)cached;
    return ENOSYS;
}

static bool facts_none_may_mincore(int fd) {
    (void)fd;
    return false;
}

static bool facts_none_thp_disabled(void) {
    return false;
}

const heft__facts_sys heft__facts_sys_none = {
    facts_none_fs_type, facts_none_direct,      facts_none_cachestat,    facts_none_nowait,
    facts_none_mincore, facts_none_may_mincore, facts_none_thp_disabled, heft__os_seconds,
};
