/* label: full threads */
/* Many jobs: one after another, at the same time, and while the process forks. Nothing is left behind. */
#include "helper_engine.h"

#include "device/device.h"
#include "source/source_direct.h"

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ALIGN = 4096, BLOCK = 64 * ALIGN, BLOCKS = 12, NBYTES = BLOCKS * BLOCK };
static uint8_t *content;
static const char *path;

typedef struct work {
    uint8_t *dst;
    heft__block_kind kind;
    uint32_t step;
} work;

static void block_of(const void *ctx, uint64_t number, heft__block *out) {
    const work *w = ctx;
    *out = (heft__block){.step = w->step, .kind = w->kind, .offset = number * BLOCK, .nbytes = BLOCK,
                         .dst = w->dst + number * BLOCK};
}

static bool through_scratch(const void *ctx, heft__task *task, heft_status *status, heft_error *e) {
    (void)ctx, (void)status, (void)e;
    if (task->state[0]++) {
        memcpy(task->block.dst, task->scratch, BLOCK);
        return false;
    }
    task->vec[0] = (heft__vec){task->scratch, BLOCK};
    task->nvec = 1;
    task->offset = task->block.offset;
    task->nbytes = BLOCK;
    return true;
}

static const heft__step steps[] = {through_scratch};

/* A load as there are many: an arena, a descriptor, a job. */
static void load(const heft__engine_kind *kind, uint32_t number, const heft_allocator *alloc) {
    heft_error err;
    heft_arena *arena;
    heft__channel channel = {.direct_fd = -1, .direct_align = ALIGN};
    heft__engine_result result;
    work w = {.kind = number % 2 ? HEFT__BLOCK_DIRECT : HEFT__BLOCK_READ,
              .step = number % 3 == 2 ? 0 : HEFT__STEP_NONE};
    if (heft__host_arena_new(alloc, HEFT_HUGE_AUTO, &arena, &err) != HEFT_OK ||
        heft__host_arena_take(arena, NBYTES, ALIGN, &err) != HEFT_OK ||
        heft_source_open_file(path, &channel.source, &err) != HEFT_OK)
        fail_msg("%s", err.message);
    if (w.kind == HEFT__BLOCK_DIRECT) (void)heft__source_direct_open(channel.source, &channel.direct_fd, &err);
    w.dst = arena->data;
    heft__engine_job job = {.nblocks = BLOCKS, .total_nbytes = NBYTES, .block = block_of, .steps = steps, .ctx = &w,
                            .channels = &channel, .nchannels = 1, .scratch_nbytes = BLOCK, .workers = 1 + number % 4,
                            .depth = 1 + number % 5, .alloc = *alloc};
    if (heft__engine_run(kind, &job, &result, &err) != HEFT_OK) fail_msg("%s", err.message);
    heft__host_arena_settle(arena);
    assert_memory_equal(arena->data, content, NBYTES);
    heft__source_direct_close(channel.direct_fd);
    heft_source_unref(channel.source);
    heft__host_arena_unref(arena);
}

static void a_thousand_in_turn(void **state) {
    (void)state;
    const heft__engine_kind *kinds[2];
    size_t n = test_engines(kinds);
    test_allocator t;
    test_allocator_init(&t, 0);
    load(kinds[0], 3, &t.alloc); /* what sanitizers start with the first thread is there */
    int fds = test_count_fds(), threads = test_count_threads();
    for (uint32_t i = 0; i < test_count(1000); i++) {
        load(kinds[i % n], i, &t.alloc);
        assert_int_equal(t.live_blocks, 0);
        assert_int_equal(test_count_fds(), fds);
        test_assert_threads(threads);
    }
}

typedef struct crowd {
    const heft__engine_kind *kinds[2];
    size_t n;
    _Atomic uint32_t number;
    uint32_t each;
} crowd;

/* The thread sanitizer does not see that liburing maps its rings anew: one that another thread had at the same address looks
 * like a race to it. */
static void crowd_engines(crowd *c) {
    c->n = test_engines(c->kinds);
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
    c->n = 1;
#endif
#elif defined(__SANITIZE_THREAD__)
    c->n = 1;
#endif
}

static void *one_of_many(void *ctx) {
    crowd *c = ctx;
    uint32_t me = c->number++;
    for (uint32_t i = 0; i < c->each; i++) load(c->kinds[(me + i) % c->n], me + i, &heft__default_allocator);
    return NULL;
}

static void sixteen_at_once(void **state) {
    (void)state;
    crowd c = {.each = (uint32_t)test_count(10)};
    crowd_engines(&c);
    pthread_t threads[16];
    int fds = test_count_fds();
    for (size_t i = 0; i < 16; i++) assert_int_equal(pthread_create(&threads[i], NULL, one_of_many, &c), 0);
    for (size_t i = 0; i < 16; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_int_equal(test_count_fds(), fds);
}

/* Direct reads write into pages whose copies a child would share. */
static void forks_meanwhile(void **state) {
    (void)state;
    crowd c = {.each = (uint32_t)test_count(100)};
    crowd_engines(&c);
    pthread_t threads[2];
    for (size_t i = 0; i < 2; i++) assert_int_equal(pthread_create(&threads[i], NULL, one_of_many, &c), 0);
    for (uint64_t i = 0; i < test_count(200); i++) {
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) _exit(0);
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
    }
    for (size_t i = 0; i < 2; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
}

static int setup(void **state) {
    (void)state;
    content = malloc(NBYTES);
    for (size_t i = 0; i < NBYTES; i++) content[i] = (uint8_t)(i * 7 + i / 251 + i / 65521);
    path = strdup(test_write("many", content, NBYTES));
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_thousand_in_turn),
        cmocka_unit_test(sixteen_at_once),
        cmocka_unit_test(forks_meanwhile),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
