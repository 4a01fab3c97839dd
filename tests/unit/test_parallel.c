/* label: threads */
/* A crew of threads: every call made, signals blocked, work finished by however many there are. */
#include "helper.h"

#include "base/parallel.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/resource.h>

typedef struct crew {
    _Atomic uint64_t cursor, sum;
    _Atomic uint32_t seen[300];
    _Atomic uint32_t unblocked;
    pthread_t caller;
} crew;

static void work(void *ctx, uint32_t worker) {
    crew *c = ctx;
    c->seen[worker]++;
    sigset_t now;
    pthread_sigmask(SIG_SETMASK, NULL, &now);
    bool own = pthread_equal(pthread_self(), c->caller) != 0;
    if (own != (worker == 0)) c->unblocked += 1000;
    if (!own && !sigismember(&now, SIGINT)) c->unblocked++;
    for (uint64_t k; (k = c->cursor++) < 10000;) c->sum += k;
}

static void all_work_is_done(void **state) {
    (void)state;
    uint32_t counts[] = {0, 1, 2, 3, 8, 64, 256, 300, UINT32_MAX};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        crew c = {.caller = pthread_self()};
        uint32_t made = heft__parallel(counts[i], work, &c);
        assert_in_range(made, 1, 256);
        if (counts[i] > 1) assert_true(made > 1 && made <= counts[i]);
        for (uint32_t w = 0; w < 300; w++) assert_int_equal(c.seen[w], w < made);
        assert_int_equal(c.sum, 10000 * 9999 / 2);
        assert_int_equal(c.unblocked, 0);
    }
    sigset_t now;
    pthread_sigmask(SIG_SETMASK, NULL, &now);
    assert_false(sigismember(&now, SIGINT));
}

static void one_thread_finishes_alone(void **state) {
    (void)state;
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
    skip();
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer) || __has_feature(memory_sanitizer)
    skip(); /* they need address space of their own */
#endif
#endif
    struct rlimit before, tight;
    assert_int_equal(getrlimit(RLIMIT_AS, &before), 0);
    tight = before;
    tight.rlim_cur = 1 << 20; /* no stack can be mapped */
    assert_int_equal(setrlimit(RLIMIT_AS, &tight), 0);
    crew c = {.caller = pthread_self()};
    uint32_t made = heft__parallel(8, work, &c);
    assert_int_equal(setrlimit(RLIMIT_AS, &before), 0);
    if (made != 1) {
        print_message("thread stacks were still at hand (%u threads)\n", (unsigned)made); /* kept from an earlier crew */
        assert_in_range(made, 2, 8);
    }
    assert_int_equal(c.sum, 10000 * 9999 / 2);
}

static void default_workers_are_few(void **state) {
    (void)state;
    assert_in_range(heft__default_workers(), 1, 4);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_thread_finishes_alone),
        cmocka_unit_test(all_work_is_done),
        cmocka_unit_test(default_workers_are_few),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
