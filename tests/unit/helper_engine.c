/* Reads that go wrong on demand: a table of system calls in front of the real one. */
#include "helper_engine.h"

#include "source/source_direct.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

static test_faults *faults;
static heft__source_sys sys;
static const heft__source_sys *real;

static bool faults_direct(int fd) {
#if defined(O_DIRECT)
    return (fcntl(fd, F_GETFL) & O_DIRECT) != 0;
#else
    (void)fd;
    return false;
#endif
}

/* What a read that gave `got` bytes (-1: it is still to be made) is to give: -errno, or the most bytes. */
static int64_t faults_verdict(int fd, uint64_t offset, uint64_t wanted, bool flagged) {
    bool direct = faults_direct(fd);
    uint64_t call = ++faults->calls, nth = direct ? ++faults->direct_calls : 0;
    if (flagged) faults->drop_calls++;
    if (flagged && faults->drop_errno) return -faults->drop_errno;
    if (faults->eintr && call % faults->eintr == 0) return -EINTR;
    if (call == faults->fail_call) return -faults->fail_errno;
    if (direct && faults->fail_direct && nth >= faults->fail_direct) return -faults->direct_errno;
    if (faults->fail_byte && offset <= faults->fail_byte && faults->fail_byte < offset + wanted) return -EIO;
    if (faults->most && wanted > faults->most) wanted = faults->most;
    if (faults->end && offset >= faults->end) return 0;
    if (faults->end && wanted > faults->end - offset) wanted = faults->end - offset;
    return (int64_t)wanted;
}

static int64_t faults_apply(int fd, uint64_t offset, uint64_t wanted, bool flagged, int64_t got) {
    if (got < 0) return got;
    int64_t most = faults_verdict(fd, offset, wanted, flagged);
    if (most >= 0 && most < got) got = most;
    if (most < 0) {
        errno = (int)-most;
        return -1;
    }
    faults->nbytes += (uint64_t)got;
    return got;
}

static int64_t faults_pread(int fd, void *dst, size_t nbytes, uint64_t offset) {
    return faults_apply(fd, offset, nbytes, false, real->pread(fd, dst, nbytes, offset));
}

static uint64_t faults_sum(const heft__vec *vec, size_t nvec) {
    uint64_t n = 0;
    for (size_t i = 0; i < nvec; i++) n += vec[i].nbytes;
    return n;
}

static int64_t faults_preadv(int fd, const heft__vec *vec, size_t nvec, uint64_t offset) {
    return faults_apply(fd, offset, faults_sum(vec, nvec), false, real->preadv(fd, vec, nvec, offset));
}

static int64_t faults_preadv_flags(int fd, const heft__vec *vec, size_t nvec, uint64_t offset, int flags) {
    int64_t got = real->preadv_flags(fd, vec, nvec, offset, flags);
    if (got < 0 && !faults->drop_errno) return got; /* this file system's own refusal */
    return faults_apply(fd, offset, faults_sum(vec, nvec), true, got < 0 ? 0 : got);
}

static int64_t faults_ring_result(int fd, uint64_t offset, int flags, int64_t result) {
    if (result < 0 && !(flags && faults->drop_errno)) return result;
    int64_t got = faults_apply(fd, offset, result < 0 ? 0 : (uint64_t)result, flags != 0, result < 0 ? 0 : result);
    return got < 0 ? -(int64_t)errno : got;
}

static int faults_ring_refused(void) {
    return faults->ring_errno;
}

static int faults_open(int at, const char *path, int flags) {
#if defined(O_DIRECT)
    int code = !(flags & O_DIRECT) ? 0 : strncmp(path, "/proc/", 6) == 0 ? faults->open_errno : faults->path_errno;
    if (code) {
        errno = code;
        return -1;
    }
#endif
    return real->open(at, path, flags);
}

static int faults_populate(void *at, size_t nbytes) {
    if (!faults->populate_errno) return real->populate(at, nbytes);
    errno = faults->populate_errno;
    return -1;
}

static int faults_advise(int fd, uint64_t offset, uint64_t nbytes, heft__advice advice) {
    uint64_t i = faults->nadvices++;
    if (i < TEST_ADVICES) faults->advices[i] = (test_advice){advice, false, offset, nbytes, faults->nbytes};
    if (!faults->advise_errno) return real->advise(fd, offset, nbytes, advice);
    errno = faults->advise_errno;
    return -1;
}

static int faults_advise_map(void *at, size_t nbytes, heft__advice advice) {
    faults->hints += advice == HEFT__ADVICE_WANTED;
    uint64_t i = faults->nadvices++;
    if (i < TEST_ADVICES) faults->advices[i] = (test_advice){advice, true, 0, nbytes, faults->nbytes};
    if (!faults->advise_errno) return real->advise_map(at, nbytes, advice);
    errno = faults->advise_errno;
    return -1;
}

void test_faults_install(test_faults *now) {
    heft__source_sys_replace(NULL);
    faults = now;
    if (!now) return;
    real = heft__source_sys_get();
    sys = *real;
    sys.pread = faults_pread;
    if (real->preadv) sys.preadv = faults_preadv;
    if (real->preadv_flags) sys.preadv_flags = faults_preadv_flags;
    sys.open = faults_open;
    sys.populate = faults_populate;
    sys.advise = faults_advise;
    sys.advise_map = faults_advise_map;
    sys.ring_refused = faults_ring_refused;
    sys.ring_result = faults_ring_result;
    heft__source_sys_replace(&sys);
}

size_t test_engines(const heft__engine_kind **kinds) {
    static bool told;
    heft_error err;
    kinds[0] = &heft__engine_pool;
    kinds[1] = &heft__engine_uring;
    assert_int_equal(kinds[0]->probe(&err), HEFT_OK);
    heft_status status = kinds[1]->probe(&err);
    if (status == HEFT_OK) return 2;
    assert_int_equal(status, HEFT_UNSUPPORTED);
    if (!told) printf("left out: %s\n", err.message);
    told = true;
    return 1;
}

static char memory_path[64];

static void remove_memory_path(void) {
    unlink(memory_path);
}

const char *test_memory_path(const char *name) {
    struct stat st;
    if (stat("/dev/shm", &st) != 0 || access("/dev/shm", W_OK) != 0) return NULL;
    if (!memory_path[0]) {
        snprintf(memory_path, sizeof memory_path, "/dev/shm/heft-%.20s-%ld", name, (long)getpid());
        atexit(remove_memory_path);
    }
    return memory_path;
}
