/* Children of the command line, what a process uses, and files as a bare program reads them. */
#include "helper_files.h"

#include "base/os.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

typedef struct child_answer {
    uint64_t sum;
    char text[16];
} child_answer;

static void adds(void *ctx, void *result) {
    child_answer *answer = result;
    assert_int_equal(answer->sum, 0);
    for (int i = 0; i < 10; i++) answer->sum += (uint64_t)((int *)ctx)[i];
    ((int *)ctx)[0] = 77; /* the parent's stays */
    strcpy(answer->text, "sum");
    _Exit(0);
}

static void raises(void *ctx, void *result) {
    (void)result;
    signal(*(int *)ctx, SIG_DFL); /* a sanitizer has its own handler */
    raise(*(int *)ctx);
}

static void leaves(void *ctx, void *result) {
    (void)ctx, (void)result;
    _Exit(7);
}

static void returns(void *ctx, void *result) {
    (void)ctx, (void)result;
}

/* Reads past the end of a truncated file through a mapping. */
static void touches(void *ctx, void *result) {
    signal(SIGBUS, SIG_DFL);
    *(volatile uint64_t *)result = ((volatile uint8_t *)ctx)[100000];
    _Exit(0);
}

static void results_come_back(void **state) {
    (void)state;
    int numbers[10] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
    child_answer answer = {.sum = 99};
    heft_error err;
    assert_int_equal(heft__os_child(adds, numbers, &answer, sizeof answer, &err), HEFT_OK);
    assert_int_equal(answer.sum, 55);
    assert_string_equal(answer.text, "sum");
    assert_int_equal(numbers[0], 1);
}

static void signals_are_failures(void **state) {
    (void)state;
    static const struct {
        int number;
        heft_status status;
        const char *piece;
    } cases[] = {{SIGBUS, HEFT_IO, "truncated, or its storage failed"},
                 {SIGKILL, HEFT_OUT_OF_MEMORY, "signal 9"},
                 {SIGABRT, HEFT_INTERNAL, "ended by signal 6"},
                 {SIGINT, HEFT_CANCELLED, "interrupted"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        child_answer answer = {.sum = 99};
        heft_error err;
        int number = cases[i].number;
        assert_int_equal(heft__os_child(raises, &number, &answer, sizeof answer, &err), cases[i].status);
        assert_int_equal(err.status, cases[i].status);
        assert_non_null(strstr(err.message, cases[i].piece));
        if (number != SIGINT) assert_int_equal(err.found, number);
        assert_int_equal(answer.sum, 99);
        assert_int_equal(heft__os_child(raises, &number, &answer, sizeof answer, NULL), cases[i].status);
    }
    child_answer answer;
    heft_error err;
    assert_int_equal(heft__os_child(leaves, NULL, &answer, sizeof answer, &err), HEFT_INTERNAL);
    assert_non_null(strstr(err.message, "code 7"));
    assert_int_equal(heft__os_child(returns, NULL, &answer, sizeof answer, &err), HEFT_INTERNAL);
    assert_int_equal(err.found, SIGABRT);
}

static void a_truncated_mapping_is_a_failure(void **state) {
    (void)state;
    uint8_t *bytes = calloc(1, 200000);
    test_write("mapped", bytes, 200000);
    free(bytes);
    int fd;
    uint64_t nbytes, got = 0;
    heft_error err;
    assert_int_equal(heft__os_open_read(test_path("mapped"), false, &fd, &nbytes, &err), HEFT_OK);
    assert_int_equal(nbytes, 200000);
    void *map = mmap(NULL, 200000, PROT_READ, MAP_SHARED, fd, 0);
    assert_true(map != MAP_FAILED);
    assert_int_equal(heft__os_child(touches, map, &got, sizeof got, &err), HEFT_OK);
    assert_int_equal(truncate(test_path("mapped"), 10), 0);
    assert_int_equal(heft__os_child(touches, map, &got, sizeof got, &err), HEFT_IO);
    munmap(map, 200000);
    heft__os_close(fd);
    heft__os_close(-1);
}

static void interrupts_wait(void **state) {
    (void)state;
    assert_false(heft__os_interrupted());
    heft__os_defer_interrupt();
    assert_false(heft__os_interrupted());
    raise(SIGINT);
    assert_true(heft__os_interrupted());
    struct sigaction now;
    sigaction(SIGINT, NULL, &now);
    assert_true(now.sa_handler == SIG_DFL); /* the second one ends the program */
}

static void usage_grows(void **state) {
    (void)state;
    heft__os_use before, after, later;
    const size_t nbytes = 64u << 20;
    heft__os_peak_restart();
    heft__os_usage(&before);
    uint8_t *pages = heft__os_pages(nbytes);
    assert_non_null(pages);
    memset(pages, 1, nbytes);
    heft__os_usage(&after);
    heft__os_pages_free(pages, nbytes);
    heft__os_usage(&later);
    assert_true(after.minor_faults > before.minor_faults);
    assert_true(after.peak_rss_nbytes != HEFT_NONE);
    if (before.rss_nbytes == HEFT_NONE) return;
    assert_true(after.rss_nbytes >= before.rss_nbytes + nbytes / 2);
    assert_true(after.peak_rss_nbytes >= before.peak_rss_nbytes + nbytes / 2);
    assert_true(later.rss_nbytes <= after.rss_nbytes - nbytes / 2);
    assert_true(later.peak_rss_nbytes >= after.rss_nbytes - (8u << 20)); /* the counters of threads lag behind a little */
}

static void files_are_read_and_dropped(void **state) {
    (void)state;
    char text[8] = "", all[6] = "bytes";
    int fd;
    uint64_t nbytes = 0;
    size_t got;
    bool own = false;
    heft_error err;
    test_write("plain", all, 5);
    assert_int_equal(heft__os_open_read(test_path("plain"), false, &fd, &nbytes, &err), HEFT_OK);
    assert_int_equal(nbytes, 5);
    assert_int_equal(heft__os_read_at(fd, 1, text, sizeof text, &got, &err), HEFT_OK);
    assert_int_equal(got, 4);
    assert_memory_equal(text, "ytes", 4);
    heft__os_close(fd);
    assert_int_equal(heft__os_read_at(fd, 1, text, sizeof text, &got, &err), HEFT_IO);
#if defined(POSIX_FADV_DONTNEED)
    assert_int_equal(heft__os_evict(test_path("plain"), &own, &err), HEFT_OK);
    assert_true(own);
#endif
    assert_int_equal(heft__os_evict(test_path("nothing"), &own, &err), HEFT_NOT_FOUND);
    assert_false(own);
    assert_int_equal(heft__os_open_read(test_path("nothing"), false, &fd, &nbytes, &err), HEFT_NOT_FOUND);
    assert_int_equal(fd, -1);
    assert_non_null(strstr(err.message, "nothing"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(results_come_back),
        cmocka_unit_test(signals_are_failures),
        cmocka_unit_test(a_truncated_mapping_is_a_failure),
        cmocka_unit_test(usage_grows),
        cmocka_unit_test(files_are_read_and_dropped),
        cmocka_unit_test(interrupts_wait),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
