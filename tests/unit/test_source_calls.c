/* System calls of sources that come short, are interrupted, fail at the k-th, and end early. */
#include "helper_source.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

/* ---- injected system calls ---- */

static struct {
    uint64_t calls;     /* of all kinds */
    uint64_t fail_call; /* which fails, with: */
    int fail_errno;
    bool eintr;         /* each call is interrupted once before it works */
    bool interrupted;
    size_t most;        /* bytes of one read */
    uint64_t end;       /* reads end here */
    size_t largest;     /* longest read asked for */
    bool fake;          /* reads do not touch memory: sizes beyond what there is */
} shim;
static heft__source_sys sys;
static const heft__source_sys *real_sys;

/* True: the call fails, errno is set. */
static bool shim_fails(void) {
    if (shim.eintr && !(shim.interrupted = !shim.interrupted)) {
        /* the second of a pair works */
    } else if (shim.eintr) {
        errno = EINTR;
        return true;
    }
    if (++shim.calls != shim.fail_call) return false;
    errno = shim.fail_errno;
    return true;
}

static int shim_open(int at, const char *path, int flags) {
    return shim_fails() ? -1 : real_sys->open(at, path, flags);
}

static int shim_stat(int fd, heft__file_status *out) {
    return shim_fails() ? -1 : real_sys->stat(fd, out);
}

static size_t shim_clip(size_t nbytes, uint64_t offset) {
    if (nbytes > shim.largest) shim.largest = nbytes;
    if (shim.most && nbytes > shim.most) nbytes = shim.most;
    if (shim.end && offset >= shim.end) return 0;
    if (shim.end && nbytes > shim.end - offset) nbytes = (size_t)(shim.end - offset);
    return nbytes;
}

static int64_t shim_pread(int fd, void *dst, size_t nbytes, uint64_t offset) {
    if (shim_fails()) return -1;
    nbytes = shim_clip(nbytes, offset);
    if (shim.fake) return (int64_t)nbytes;
    return nbytes ? real_sys->pread(fd, dst, nbytes, offset) : 0;
}

static int64_t shim_preadv(int fd, const heft__vec *vec, size_t nvec, uint64_t offset) {
    if (shim_fails()) return -1;
    heft__vec copy[1024];
    size_t left = 0;
    assert_in_range(nvec, 1, 1024);
    for (size_t i = 0; i < nvec; i++) left += vec[i].nbytes;
    left = shim_clip(left, offset);
    if (!left) return 0;
    for (size_t i = 0; i < nvec; i++) {
        copy[i] = vec[i];
        if (copy[i].nbytes > left) copy[i].nbytes = left;
        left -= copy[i].nbytes;
    }
    return real_sys->preadv(fd, copy, nvec, offset);
}

static void *shim_map(size_t nbytes, int fd, uint64_t offset) {
    return shim_fails() ? NULL : real_sys->map(nbytes, fd, offset);
}

static int inject(void **state) {
    (void)state;
    heft__source_sys_replace(NULL);
    real_sys = heft__source_sys_get();
    sys = *real_sys;
    sys.open = shim_open;
    sys.stat = shim_stat;
    sys.pread = shim_pread;
    sys.preadv = real_sys->preadv ? shim_preadv : NULL;
    sys.map = shim_map;
    memset(&shim, 0, sizeof shim);
    heft__source_sys_replace(&sys);
    return 0;
}

static int restore(void **state) {
    (void)state;
    heft__source_sys_replace(NULL);
    return 0;
}

/* ---- the read loop ---- */

static void interrupted_calls_are_retried(void **state) {
    (void)state;
    content_file();
    shim.eintr = true;
    heft_source *source = open_content();
    heft__read_counters counters = {0};
    uint8_t dst[sizeof content];
    shim.most = 3000;
    assert_int_equal(heft__source_read_all(source, 0, sizeof content, dst, &counters, NULL), HEFT_OK);
    assert_memory_equal(dst, content, sizeof content);
    assert_int_equal(counters.retries, 4);
    assert_int_equal(counters.short_reads, 3);
    assert_int_equal(counters.requests, 8);
    assert_int_equal(counters.nbytes, sizeof content);
    assert_int_equal(heft__source_verify(source, NULL), HEFT_OK);
    heft_source_unref(source);
}

static void single_bytes_add_up(void **state) {
    (void)state;
    heft_source *source = open_content();
    shim.most = 1;
    check_ranges(source, content, sizeof content);
    heft_source_unref(source);
    test_bytes bytes = {.data = content, .nbytes = sizeof content, .most = 1, .eintr = true};
    source = test_source(&bytes);
    check_ranges(source, content, sizeof content);
    heft_source_unref(source);
}

static void every_failing_read_is_reported_once(void **state) {
    (void)state;
    heft_source *source = open_content();
    shim.most = 1000;
    uint8_t dst[sizeof content];
    for (uint64_t k = 1; k <= 11; k++) {
        heft_error err;
        shim.calls = 0;
        shim.fail_call = k;
        shim.fail_errno = k % 2 ? EIO : ESTALE;
        assert_int_equal(heft_source_read(source, 0, sizeof content, dst, &err), HEFT_IO);
        assert_int_equal(err.sys_errno, shim.fail_errno);
        assert_int_equal(err.offset, (k - 1) * 1000);
        assert_int_equal(err.expected, sizeof content - (k - 1) * 1000);
        assert_string_equal(err.file, test_path("content"));
        assert_int_equal(shim.calls, k);
    }
    shim.calls = 0;
    shim.fail_call = 12;
    assert_int_equal(heft_source_read(source, 0, sizeof content, dst, NULL), HEFT_OK);
    shim.fail_call = 1; /* nobody asked not to wait: it cannot happen, so it is not retried */
    shim.calls = 0;
    shim.fail_errno = EAGAIN;
    assert_int_equal(heft_source_read(source, 0, 1, dst, NULL), HEFT_IO);
    heft_source_unref(source);
}

static void an_early_end_is_truncated(void **state) {
    (void)state;
    heft_source *file = open_content(), *source;
    assert_int_equal(heft_source_window(file, 500, 1000, &source, NULL), HEFT_OK);
    uint8_t dst[1000];
    shim.end = 700;
    heft_error err;
    assert_int_equal(heft_source_read(source, 0, 1000, dst, &err), HEFT_IO);
    assert_int_equal(err.fault, HEFT_FAULT_TRUNCATED);
    assert_int_equal(err.offset, 500); /* in the file */
    assert_int_equal(err.expected, 1000);
    assert_int_equal(err.found, 200);
    assert_string_equal(err.file, test_path("content"));
    assert_memory_equal(dst, content + 500, 200);
    assert_int_equal(heft_source_read(source, 200, 1, dst, &err), HEFT_IO);
    assert_int_equal(err.found, 0);
    assert_int_equal(heft_source_read(source, 100, 100, dst, &err), HEFT_OK);
    heft_source_unref(source);
    heft_source_unref(file);
    /* for real */
    shim.end = 0;
    source = open_content();
    assert_int_equal(truncate(test_path("content"), 50), 0);
    assert_int_equal(heft_source_read(source, 40, 20, dst, &err), HEFT_IO);
    assert_int_equal(err.fault, HEFT_FAULT_TRUNCATED);
    assert_int_equal(err.found, 10);
    heft_source_unref(source);
}

static void requests_are_at_most_a_gibibyte(void **state) {
    (void)state;
    FILE *f = fopen(test_path("sparse"), "wb");
    assert_int_equal(ftruncate(fileno(f), (off_t)6 << 30), 0);
    fclose(f);
    heft_source *source;
    assert_int_equal(heft_source_open_file(test_path("sparse"), &source, NULL), HEFT_OK);
    shim.fake = true;
    heft__read_counters counters = {0};
    static uint8_t dst[1]; /* the reads do not write */
    assert_int_equal(heft__source_read_all(source, 0, UINT64_C(6) << 30, dst, &counters, NULL), HEFT_OK);
    assert_int_equal(shim.largest, 1 << 30);
    assert_int_equal(counters.requests, 6);
    shim.most = 700000000; /* a system that stops earlier */
    counters = (heft__read_counters){0};
    assert_int_equal(heft__source_read_all(source, 12345, (UINT64_C(5) << 30) + 7, dst, &counters, NULL), HEFT_OK);
    assert_int_equal(counters.nbytes, (UINT64_C(5) << 30) + 7);
    assert_int_equal(counters.short_reads, counters.requests - 1);
    assert_int_equal(heft__source_read_some(source, 0, dst, SIZE_MAX), 700000000);
    shim.most = 0;
    assert_int_equal(heft__source_read_some(source, 0, dst, SIZE_MAX), 1 << 30);
    heft_source_unref(source);
}

/* ---- vectors ---- */

static void check_vectors(heft_source *source, size_t nvec, size_t each, uint64_t expected) {
    static uint8_t dst[4096 * 4];
    heft__vec vec[1500];
    memset(dst, 0, sizeof dst);
    for (size_t i = 0; i < nvec; i++) vec[i] = (heft__vec){dst + i * each, each};
    int64_t got = heft__source_read_vec(source, 7, vec, nvec);
    assert_int_equal(got, expected);
    assert_memory_equal(dst, content + 107, expected);
    assert_int_equal(dst[expected], 0);
}

static void vectors_stay_inside(void **state) {
    (void)state;
    heft_source *file = open_content(), *window;
    assert_int_equal(heft_source_window(file, 100, 5000, &window, NULL), HEFT_OK);
    test_bytes bytes = {.data = content + 100, .nbytes = 5000};
    heft_source *callback = test_source(&bytes);
    for (int pass = 0; pass < 3; pass++) {
        heft_source *source = pass == 2 ? callback : window;
        sys.preadv = pass == 1 || !real_sys->preadv ? NULL : shim_preadv;
        bool one = pass == 1; /* without preadv a call fills one vector */
        check_vectors(source, 10, 100, one ? 100 : 1000);
        check_vectors(source, 1500, 2, one ? 2 : 2048);
        check_vectors(source, 3, 2000, one ? 2000 : 4000); /* the third reaches over the end */
        check_vectors(source, 1, 4993, 4993);
        check_vectors(source, 2, 5000, 4993);
        heft__vec none[2] = {{NULL, 0}, {NULL, 0}};
        assert_int_equal(heft__source_read_vec(source, 7, none, 2), 0);
        assert_int_equal(heft__source_read_vec(source, 5000, none, 2), 0);
        uint8_t byte[2] = {0, 0};
        heft__vec late[3] = {{NULL, 0}, {byte, 1}, {byte + 1, 1}};
        assert_int_equal(heft__source_read_vec(source, 4998, late, 3), one ? 1 : 2);
        assert_int_equal(byte[0], content[5098]);
    }
    sys.preadv = real_sys->preadv ? shim_preadv : NULL;
    shim.fail_call = ++shim.calls + 1;
    shim.fail_errno = EIO;
    uint8_t byte;
    heft__vec vec = {&byte, 1};
    shim.calls = shim.fail_call - 1;
    assert_int_equal(heft__source_read_vec(window, 0, &vec, 1), -EIO);
    heft_source_unref(window);
    heft_source_unref(file);
    bytes.fail_call = bytes.calls + 2; /* what was read before the failure counts */
    bytes.fail_errno = EIO;
    heft__vec two[2] = {{&byte, 1}, {&byte, 1}};
    assert_int_equal(heft__source_read_vec(callback, 0, two, 2), 1);
    heft_source_unref(callback);
}

/* ---- identity and mappings ---- */

static void another_file_behind_the_descriptor(void **state) {
    (void)state;
    heft_source *source = open_content();
    heft_error err;
    source->identity.inode++;
    assert_int_equal(heft__source_verify(source, &err), HEFT_MISMATCH);
    assert_non_null(strstr(err.message, "another file"));
    source->identity.inode--;
    shim.fail_call = shim.calls + 1;
    shim.fail_errno = EIO;
    assert_int_equal(heft__source_verify(source, &err), HEFT_IO);
    assert_int_equal(err.sys_errno, EIO);
    heft_source_unref(source);
}

static void mappings_are_shared_and_rounded(void **state) {
    (void)state;
    int fds = test_count_fds();
    heft_source *source = open_content();
    heft_error err;
    heft__mapping *m[4];
    uint64_t ranges[4][2] = {{0, sizeof content}, {4096, 100}, {4097, 4095}, {sizeof content, 0}};
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(heft__source_map(source, ranges[i][0], ranges[i][1], &m[i], &err), HEFT_OK);
        assert_non_null(m[i]->data);
        assert_memory_equal(m[i]->data, content + ranges[i][0], ranges[i][1]);
        assert_int_equal(m[i]->nbytes, ranges[i][1]);
        heft__mapping_ref(m[i]);
        heft__mapping_unref(m[i]);
    }
    heft__mapping *none = m[0];
    assert_int_equal(heft__source_map(source, 1, sizeof content, &none, &err), HEFT_INVALID_ARGUMENT);
    assert_null(none);
    int codes[] = {ENOMEM, ENODEV, EACCES, EPERM, EINVAL};
    heft_status statuses[] = {HEFT_OUT_OF_MEMORY, HEFT_UNSUPPORTED, HEFT_PERMISSION, HEFT_PERMISSION, HEFT_IO};
    for (size_t i = 0; i < 5; i++) {
        shim.calls = 0;
        shim.fail_call = 2; /* after the stat */
        shim.fail_errno = codes[i];
        assert_int_equal(heft__source_map(source, 1, 5, &none, &err), statuses[i]);
        assert_int_equal(err.sys_errno, codes[i]);
        assert_null(none);
    }
    heft_source_unref(source);
    for (size_t i = 0; i < 4; i++) heft__mapping_unref(m[i]);
    heft__mapping_unref(NULL);
    assert_int_equal(test_count_fds(), fds);
}

/* ---- failures ---- */

static void every_failing_call_of_opening(void **state) {
    (void)state;
    const char *path = content_file();
    int fds = test_count_fds();
    for (uint64_t k = 1;; k++) {
        heft_source *source = (heft_source *)&k;
        heft_error err;
        shim.calls = 0;
        shim.fail_call = k;
        shim.fail_errno = EMFILE;
        heft_status status = heft_source_open_file(path, &source, &err);
        if (status == HEFT_OK) {
            assert_int_equal(k, 3); /* open and stat */
            heft_source_unref(source);
            break;
        }
        assert_int_equal(status, HEFT_LIMIT);
        assert_int_equal(err.sys_errno, EMFILE);
        assert_null(source);
        assert_int_equal(test_count_fds(), fds);
    }
}

static heft_status open_all_kinds(int fd, int *released) {
    heft_source *sources[5] = {NULL, NULL, NULL, NULL, NULL};
    heft__mapping *mapping = NULL;
    test_bytes bytes = {.data = content, .nbytes = 5};
    heft_source_callbacks c = {sizeof c, released, 5, 0, 0, liar, count_release};
    heft_status status = heft_source_open_file(test_path("content"), &sources[0], NULL);
    if (!status) status = heft_source_open_fd(fd, NULL, &sources[1], NULL);
    if (!status) status = heft_source_open_memory(content, 5, NULL, count_release, released, &sources[2], NULL);
    else ++*released;
    if (!status) status = heft_source_open_callbacks(&c, NULL, &sources[3], NULL);
    else ++*released;
    if (!status) status = heft_source_window(sources[0], 1, 2, &sources[4], NULL);
    if (!status) status = heft__source_map(sources[4], 0, 2, &mapping, NULL);
    heft__mapping_unref(mapping);
    for (size_t i = 0; i < 5; i++) heft_source_unref(sources[i]);
    (void)bytes;
    return status;
}

static void every_failing_allocation(void **state) {
    (void)state;
    int fd = open(content_file(), O_RDONLY), fds = test_count_fds();
    for (uint64_t k = 1;; k++) {
        test_allocator t;
        test_allocator_init(&t, k);
        sys.alloc = &t.alloc;
        int released = 0;
        heft_status status = open_all_kinds(fd, &released);
        assert_int_equal(t.live_blocks, 0);
        assert_int_equal(released, 2);
        assert_int_equal(test_count_fds(), fds);
        if (status == HEFT_OK) {
            assert_int_equal(k, 11);
            break;
        }
        assert_int_equal(status, HEFT_OUT_OF_MEMORY);
    }
    close(fd);
}

#define INJECTED(test) cmocka_unit_test_setup_teardown(test, inject, restore)

int main(void) {
    const struct CMUnitTest tests[] = {
        INJECTED(interrupted_calls_are_retried),
        INJECTED(single_bytes_add_up),
        INJECTED(every_failing_read_is_reported_once),
        INJECTED(an_early_end_is_truncated),
        INJECTED(requests_are_at_most_a_gibibyte),
        INJECTED(vectors_stay_inside),
        INJECTED(another_file_behind_the_descriptor),
        INJECTED(mappings_are_shared_and_rounded),
        INJECTED(every_failing_call_of_opening),
        INJECTED(every_failing_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
