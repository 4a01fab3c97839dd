/* The ways to the bytes of a file: descriptors for direct reads, reads that drop pages, pages of mappings. */
#include "helper_engine.h"

#include "source/source_direct.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, NBYTES = 40 * PAGE + 100, BLOCK = 10 * PAGE };
static uint8_t content[NBYTES];
static uint8_t *got;
static heft_error err;

static heft_source *open_file(const char *name) {
    heft_source *source;
    if (heft_source_open_file(test_write(name, content, NBYTES), &source, &err) != HEFT_OK) fail_msg("%s", err.message);
    return source;
}

/* ---- descriptors ---- */

static void check_refused(heft_source *source, int code) {
    int fd = 77;
    assert_int_equal(heft__source_direct_open(source, &fd, &err), HEFT_UNSUPPORTED);
    assert_int_equal(fd, -1);
    assert_int_equal(err.sys_errno, code);
    assert_int_equal(heft__source_direct_open(source, &fd, NULL), HEFT_UNSUPPORTED);
}

static void direct_descriptors(void **state) {
    (void)state;
    int fds = test_count_fds(), fd = -1;
    test_faults f = {0};
    heft_source *source = open_file("direct");
    test_faults_install(&f);
    heft_status status = heft__source_direct_open(source, &fd, &err);
    if (status == HEFT_OK) {
        assert_true(fd > 2);
        assert_int_equal(fcntl(fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
        heft__source_direct_close(fd);
        /* Without /proc, or where it does not let: by path. */
        static const int codes[] = {ENOENT, ENOTDIR, EACCES, EPERM};
        for (size_t i = 0; i < 4; i++) {
            f.open_errno = codes[i];
            assert_int_equal(heft__source_direct_open(source, &fd, &err), HEFT_OK);
            heft__source_direct_close(fd);
        }
        /* The path leads elsewhere by now. The file itself is still found through /proc. */
        assert_int_equal(rename(test_path("direct"), test_path("moved")), 0);
        check_refused(source, EPERM); /* the first answer stands where there is nothing at the path */
        test_write("direct", content, 10);
        check_refused(source, ESTALE);
        f.open_errno = 0;
        assert_int_equal(heft__source_direct_open(source, &fd, &err), HEFT_OK);
        heft__source_direct_close(fd);
    } else
        assert_int_equal(status, HEFT_UNSUPPORTED);
    static const int refused[] = {EINVAL, EOPNOTSUPP};
    for (size_t i = 0; i < 2; i++) {
        f.open_errno = refused[i]; /* the path is not tried: the file system is the same */
        check_refused(source, refused[i]);
    }
    f.open_errno = f.path_errno = EACCES;
    check_refused(source, EACCES);
    f.open_errno = EMFILE; /* no refusal */
    assert_int_equal(heft__source_direct_open(source, &fd, &err), HEFT_LIMIT);
    assert_int_equal(err.sys_errno, EMFILE);
    test_faults_install(NULL);
    heft_source_unref(source);
    heft__source_direct_close(-1);
    assert_int_equal(heft_source_open_memory(content, 10, NULL, NULL, NULL, &source, &err), HEFT_OK);
    check_refused(source, EOPNOTSUPP);
    heft_source_unref(source);
    assert_int_equal(test_count_fds(), fds);
}

static void refusals(void **state) {
    (void)state;
    static const int no[] = {EIO, EINTR, EAGAIN, ESTALE, EFAULT, ENOMEM, 0};
    assert_true(heft__source_refused(EINVAL) && heft__source_refused(EOPNOTSUPP) && heft__source_refused(ENOSYS));
    for (size_t i = 0; i < sizeof no / sizeof *no; i++) assert_false(heft__source_refused(no[i]));
}

/* What one call takes: up to the end of the source unless it is direct, and at most 1 GiB. */
static void vectors_are_cut(void **state) {
    (void)state;
    heft_source *source, *window;
    assert_int_equal(heft_source_open_memory(content, 1000, NULL, NULL, NULL, &source, &err), HEFT_OK);
    assert_int_equal(heft_source_window(source, 100, 500, &window, &err), HEFT_OK);
    heft__vec vec[3] = {{content, 200}, {content, 200}, {content, 200}}, first;
    assert_int_equal(heft__source_vectors(window, 0, false, vec, 3, &first), 2);
    assert_int_equal(heft__source_vectors(window, 350, false, vec, 3, &first), 1);
    assert_int_equal(first.nbytes, 150);
    assert_int_equal(heft__source_vectors(window, 500, false, vec, 3, &first), 0);
    assert_int_equal(heft__source_vectors(window, 350, true, vec, 3, &first), 3);
    if (sizeof(size_t) > 4) {
        heft__vec large[2] = {{content, (size_t)HEFT__READ_MAX + 1}, {content, 1}};
        assert_int_equal(heft__source_vectors(window, 0, true, large, 2, &first), 1);
        assert_int_equal(first.nbytes, HEFT__READ_MAX);
        large[0].nbytes = (size_t)HEFT__READ_MAX;
        assert_int_equal(heft__source_vectors(window, 0, true, large, 2, &first), 1);
    }
    heft_source_unref(window);
    heft_source_unref(source);
}

/* ---- blocks ---- */

typedef struct work {
    heft__block_kind kind;
    uint64_t nbytes; /* of the source */
} work;

static void block_of(const void *ctx, uint64_t number, heft__block *out) {
    const work *w = ctx;
    uint64_t at = number * BLOCK, n = w->nbytes - at < BLOCK ? w->nbytes - at : BLOCK;
    *out = (heft__block){.step = HEFT__STEP_NONE, .kind = w->kind, .offset = at, .nbytes = n, .dst = got + at};
    if (w->kind != HEFT__BLOCK_DIRECT) return;
    out->needed = n;
    out->nbytes = (n + PAGE - 1) / PAGE * PAGE;
}

static heft_status run_blocks(const heft__engine_kind *kind, heft__channel *channel, heft__block_kind blocks,
                              heft__engine_result *result) {
    work w = {blocks, heft_source_size(channel->source)};
    heft__engine_job job = {.nblocks = (w.nbytes + BLOCK - 1) / BLOCK, .total_nbytes = w.nbytes, .block = block_of,
                            .ctx = &w, .channels = channel, .nchannels = 1, .workers = 2,
                            .alloc = heft__default_allocator};
    memset(got, 0xEE, NBYTES + PAGE);
    return heft__engine_run(kind, &job, result, &err);
}

/* A window that starts at a multiple of the alignment is read directly at the right place. */
static void direct_reads_of_windows(void **state) {
    (void)state;
    const heft__engine_kind *kinds[2];
    size_t n = test_engines(kinds);
    heft_source *source = open_file("windows"), *window;
    assert_int_equal(heft_source_window(source, 3 * PAGE, NBYTES - 3 * PAGE, &window, &err), HEFT_OK);
    for (size_t i = 0; i < n; i++) {
        test_faults f = {0};
        heft__channel channel = {.source = window, .direct_align = PAGE};
        heft__engine_result result;
        test_faults_install(&f);
        if (heft__source_direct_open(window, &channel.direct_fd, &err) != HEFT_OK) break;
        assert_int_equal(run_blocks(kinds[i], &channel, HEFT__BLOCK_DIRECT, &result), HEFT_OK);
        assert_memory_equal(got, content + 3 * PAGE, NBYTES - 3 * PAGE);
        assert_int_equal(f.direct_calls, f.calls);
        assert_int_equal(result.fallbacks, 0);
        heft__source_direct_close(channel.direct_fd);
    }
    test_faults_install(NULL);
    heft_source_unref(window);
    heft_source_unref(source);
}

/* A place that is not aligned: the system refuses, or takes it; the bytes are right in any case. */
static void misaligned_places(void **state) {
    (void)state;
    const heft__engine_kind *kinds[2];
    size_t n = test_engines(kinds);
    heft_source *source = open_file("misaligned");
    for (size_t i = 0; i < n; i++) {
        heft__channel channel = {.source = source, .direct_align = PAGE};
        heft__engine_result result;
        if (heft__source_direct_open(source, &channel.direct_fd, &err) != HEFT_OK) break;
        got++;
        assert_int_equal(run_blocks(kinds[i], &channel, HEFT__BLOCK_DIRECT, &result), HEFT_OK);
        assert_memory_equal(got, content, NBYTES);
        got--;
        int fallback = atomic_load(&channel.fallback);
        assert_true(fallback == 0 || fallback == EINVAL);
        assert_int_equal(result.fallbacks, fallback != 0);
        heft__source_direct_close(channel.direct_fd);
    }
    heft_source_unref(source);
}

/* ---- forks ---- */

static bool sees_scratch;

/* Whether a child that is forked now has the page that a direct read would fill. */
static bool fork_step(const void *ctx, heft__task *task, heft_status *status, heft_error *e) {
    (void)ctx, (void)status, (void)e;
    int ends[2], how;
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) _exit(write(ends[1], task->scratch, 1) == 1 ? 0 : 1); /* EFAULT instead of a fault */
    assert_int_equal(waitpid(child, &how, 0), child);
    sees_scratch = sees_scratch || (WIFEXITED(how) && WEXITSTATUS(how) == 0);
    close(ends[0]);
    close(ends[1]);
    return false;
}

static void step_of_fork(const void *ctx, uint64_t number, heft__block *out) {
    (void)ctx;
    *out = (heft__block){.step = 0, .offset = number, .nbytes = 1};
}

static void children_get_no_scratch(void **state) {
    (void)state;
    static const heft__step steps[] = {fork_step};
    const heft__engine_kind *kinds[2];
    size_t n = test_engines(kinds);
    if (test_skip_emulated("forks without pages")) return;
    heft_source *source = open_file("forks");
    for (size_t i = 0; i < n; i++) {
        heft__channel channel = {.source = source, .direct_fd = -1};
        heft__engine_job job = {.nblocks = 2,
                                .total_nbytes = 2,
                                .block = step_of_fork,
                                .steps = steps,
                                .channels = &channel,
                                .nchannels = 1,
                                .scratch_nbytes = 1 << 20,
                                .workers = 1,
                                .alloc = heft__default_allocator};
        heft__engine_result result;
        sees_scratch = false;
        assert_int_equal(heft__engine_run(kinds[i], &job, &result, &err), HEFT_OK);
        assert_false(sees_scratch);
    }
    heft_source_unref(source);
}

static void pages_are_dropped(void **state) {
    (void)state;
    const heft__engine_kind *kinds[2];
    size_t n = test_engines(kinds);
    heft_source *source = open_file("dropped");
    for (size_t i = 0; i < n; i++) {
        static const int codes[] = {0, EOPNOTSUPP, EINVAL, ENOSYS};
        for (size_t c = 0; c < 4; c++) {
            test_faults f = {.drop_errno = codes[c]};
            heft__channel channel = {.source = source, .direct_fd = -1, .drop = true};
            heft__engine_result result;
            test_faults_install(&f);
            if (run_blocks(kinds[i], &channel, HEFT__BLOCK_READ, &result) != HEFT_OK) fail_msg("%s", err.message);
            assert_memory_equal(got, content, NBYTES);
            bool refused = atomic_load(&channel.drop_refused);
            if (codes[c]) assert_true(refused);
            assert_int_equal(result.fallbacks, refused);
            assert_int_equal(f.nbytes, NBYTES);
            if (codes[c]) assert_in_range(f.drop_calls, 1, 8); /* by those in flight, no later one */
        }
    }
    test_faults_install(NULL);
    heft_source_unref(source);
    heft__channel channel = {.direct_fd = -1, .drop = true}; /* no descriptor: no flag */
    heft__engine_result result;
    assert_int_equal(heft_source_open_memory(content, NBYTES, NULL, NULL, NULL, &channel.source, &err), HEFT_OK);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(run_blocks(kinds[i], &channel, HEFT__BLOCK_READ, &result), HEFT_OK);
        assert_int_equal(result.fallbacks, 0);
        assert_memory_equal(got, content, NBYTES);
    }
    heft_source_unref(channel.source);
}

static void pages_are_touched(void **state) {
    (void)state;
    if (test_skip_emulated("populating mappings")) return;
    const heft__engine_kind *kinds[2];
    size_t n = test_engines(kinds);
    heft_source *source = open_file("touched"), *window;
    assert_int_equal(heft_source_window(source, 5000, NBYTES - 5000, &window, &err), HEFT_OK);
    static const int codes[] = {0, EINVAL, ENOSYS};
    for (size_t i = 0; i < n; i++)
        for (size_t c = 0; c < 3; c++) {
            test_faults f = {.populate_errno = codes[c]};
            heft__channel channel = {.source = window, .direct_fd = -1};
            heft__engine_result result;
            test_faults_install(&f);
            assert_int_equal(heft__source_map(window, 0, heft_source_size(window), &channel.mapping, &err), HEFT_OK);
            if (run_blocks(kinds[i], &channel, HEFT__BLOCK_TOUCH, &result) != HEFT_OK) fail_msg("%s", err.message);
            assert_int_equal(result.counters.nbytes, 0);
            assert_int_equal(result.counters.requests, 0);
            assert_int_equal(atomic_load(&channel.nbytes), NBYTES - 5000);
            bool refused = atomic_load(&channel.touch_refused);
            if (codes[c]) assert_true(refused);
            assert_int_equal(result.fallbacks, refused);
            assert_int_equal(f.hints, refused ? 4 : 0); /* every window is asked for */
            assert_memory_equal(channel.mapping->data, content + 5000, NBYTES - 5000);
            heft__mapping_unref(channel.mapping);
        }
    test_faults_install(NULL);
    heft_source_unref(window);
    heft_source_unref(source);
}

/* The file is cut under its mapping: a touch by hand would end the process. */
static void touching_what_is_gone(void **state) {
    (void)state;
    if (test_skip_emulated("populating mappings")) return;
    const heft__engine_kind *kinds[2];
    size_t n = test_engines(kinds);
    for (size_t i = 0; i < n; i++) {
        heft__channel channel = {.source = open_file("cut"), .direct_fd = -1};
        heft__engine_result result;
        test_faults f = {0};
        assert_int_equal(heft__source_map(channel.source, 0, NBYTES, &channel.mapping, &err), HEFT_OK);
        test_faults_install(&f);
        f.populate_errno = EFAULT; /* a page that cannot be read, and the file is as long as it was */
        assert_int_equal(run_blocks(kinds[i], &channel, HEFT__BLOCK_TOUCH, &result), HEFT_IO);
        assert_int_equal(err.sys_errno, EIO);
        f.populate_errno = ENOMEM;
        assert_int_equal(run_blocks(kinds[i], &channel, HEFT__BLOCK_TOUCH, &result), HEFT_OUT_OF_MEMORY);
        f.populate_errno = 0;
        assert_int_equal(truncate(test_path("cut"), 2 * BLOCK + 6000), 0);
        heft_status status = run_blocks(kinds[i], &channel, HEFT__BLOCK_TOUCH, &result);
        if (!atomic_load(&channel.touch_refused)) {
            assert_int_equal(status, HEFT_IO);
            assert_int_equal(err.fault, HEFT_FAULT_TRUNCATED);
            assert_int_equal(err.offset, 2 * BLOCK);
            assert_int_equal(err.expected, BLOCK);
            assert_int_equal(err.found, 6000);
            assert_int_equal(result.failed_block, 2);
            assert_int_equal(result.failed_offset, 2 * BLOCK + 6000);
        }
        heft__mapping_unref(channel.mapping);
        heft_source_unref(channel.source);
        test_faults_install(NULL);
    }
}

static void touching_other_memory(void **state) {
    (void)state;
    heft__channel channel = {.direct_fd = -1};
    heft__engine_result result;
    uint64_t there;
    assert_int_equal(heft_source_open_memory(content, NBYTES, NULL, NULL, NULL, &channel.source, &err), HEFT_OK);
    assert_int_equal(heft__source_map(channel.source, 0, NBYTES, &channel.mapping, &err), HEFT_OK);
    assert_int_equal(run_blocks(&heft__engine_pool, &channel, HEFT__BLOCK_TOUCH, &result), HEFT_OK);
    assert_int_equal(heft__mapping_touch(channel.mapping, 1, NBYTES, false, &there), ERANGE);
    assert_int_equal(heft__mapping_touch(channel.mapping, NBYTES + 1, 0, false, &there), ERANGE);
    assert_int_equal(heft__mapping_touch(channel.mapping, NBYTES, 0, false, &there), 0);
    heft__mapping_unref(channel.mapping);
    heft_source_unref(channel.source);
}

static int setup(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof content; i++) content[i] = (uint8_t)(i * 7 + i / 251);
    got = aligned_alloc(PAGE, (NBYTES / PAGE + 3) * PAGE);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(direct_descriptors), cmocka_unit_test(refusals),
        cmocka_unit_test(vectors_are_cut),    cmocka_unit_test(direct_reads_of_windows),
        cmocka_unit_test(misaligned_places),
        cmocka_unit_test(children_get_no_scratch),  cmocka_unit_test(pages_are_dropped),
        cmocka_unit_test(pages_are_touched),  cmocka_unit_test(touching_what_is_gone),
        cmocka_unit_test(touching_other_memory),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
