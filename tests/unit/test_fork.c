/* label: quick threads */
/* What a process that is forked meanwhile can do with writers, savers, warmers and iterators: nothing, and it does no harm to its
 * parent's. What happens where no thread can be made. */
#include "helper_files.h"
#include "helper_load.h"
#include "helper_marked.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static heft_error err;

#define OK(call)                                                                                                       \
    do                                                                                                                 \
        if ((call) != HEFT_OK) fail_msg("%s:%d: %s", __FILE__, __LINE__, err.message);                                 \
    while (0)

/* Calls work(ctx) in a child, which fails by the number that it returns, or by a hang of 60 seconds. */
static void in_child(int (*work)(void *ctx), void *ctx) {
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        alarm(60);
        _exit(work(ctx));
    }
    int ended;
    assert_int_equal(waitpid(child, &ended, 0), child);
    assert_true(WIFEXITED(ended));
    assert_int_equal(WEXITSTATUS(ended), 0);
}

/* ---- writers ---- */

enum { VALUES = 1000 };
static uint8_t values[VALUES];
static const int64_t shape[] = {VALUES};

static const heft_save_item items[] = {{.name = "a", .data = values, .shape = shape, .rank = 1, .dtype = HEFT_U8},
                                       {.name = "b", .data = values, .shape = shape, .rank = 1, .dtype = HEFT_U8}};

static int use_writer(void *ctx) {
    heft_writer *writer = ctx;
    heft_save_stats stats;
    if (heft_writer_add(writer, &items[1], &err) != HEFT_INVALID_ARGUMENT) return 1;
    if (!strstr(err.message, "fork")) return 2;
    if (heft_writer_write(writer, 1, 0, values, VALUES, NULL) != HEFT_INVALID_ARGUMENT) return 3;
    if (heft_writer_finish(writer, &stats, NULL) != HEFT_INVALID_ARGUMENT) return 4;
    heft_writer_free(writer);
    return 0;
}

static void writers(void **state) {
    (void)state;
    for (heft_writer_mode mode = 0; mode <= HEFT_WRITER_STREAM; mode++)
        for (int kind = 0; kind < 3; kind++) { /* a file, a set in a folder, a set that is published */
            char name[32];
            heft_save_options options = {.struct_size = sizeof options, .no_sync = true};
            heft_set_options set = {.struct_size = sizeof set, .ceiling_nbytes = 1, .create_dir = true, .publish = kind == 2};
            heft_writer *writer;
            bool declared = mode == HEFT_WRITER_DECLARED;
            snprintf(name, sizeof name, "writer-%u-%d", mode, kind);
            OK(heft_writer_open(test_path(name), mode, declared ? items : NULL, declared ? 2 : 0, &options, kind ? &set : NULL,
                                &writer, &err));
            for (int i = 0; i < 2; i++) {
                if (declared) OK(heft_writer_write(writer, (uint64_t)i, 0, values, VALUES, &err));
                else OK(heft_writer_add(writer, &items[i], &err));
                if (i == 0) in_child(use_writer, writer);
            }
            in_child(use_writer, writer);
            OK(heft_writer_finish(writer, NULL, &err));
            heft_writer_free(writer);
            heft_archive *archive;
            OK(heft_archive_open(test_path(name), NULL, &archive, &err));
            assert_int_equal(heft_archive_count(archive), 2);
            heft_archive_unref(archive);
        }
    assert_int_equal(marked_entries(test_dir()), 9); /* and no litter */
}

/* ---- a saver ---- */

static atomic_bool gate;

static int wait_for_gate(void *ctx, uint64_t done, uint64_t total) {
    (void)ctx, (void)done, (void)total;
    while (!atomic_load(&gate)) nanosleep(&(struct timespec){0, 1000000}, NULL);
    return 0;
}

static int use_saver(void *ctx) {
    heft_saver *saver = ctx;
    if (heft_saver_poll(saver, NULL, NULL)) return 1;
    if (heft_saver_start(saver, test_path("other"), items, 2, NULL, NULL, NULL) != HEFT_INVALID_ARGUMENT) return 2;
    if (heft_saver_wait(saver, NULL, &err) != HEFT_INVALID_ARGUMENT || !strstr(err.message, "fork")) return 3;
    heft_saver_free(saver);
    return 0;
}

static void savers(void **state) {
    (void)state;
    heft_saver *saver;
    heft_save_options options = {.struct_size = sizeof options, .no_sync = true, .progress = wait_for_gate};
    OK(heft_saver_new(NULL, &saver, &err));
    atomic_store(&gate, false);
    OK(heft_saver_start(saver, test_path("saved"), items, 2, &options, NULL, &err));
    assert_true(heft_saver_poll(saver, NULL, NULL));
    in_child(use_saver, saver);
    atomic_store(&gate, true);
    OK(heft_saver_wait(saver, NULL, &err));
    in_child(use_saver, saver);
    heft_saver_free(saver);
    assert_int_equal(access(test_path("other"), F_OK), -1);
}

/* ---- what reads ---- */

static int use_iterator(void *ctx) {
    heft_load_iter *iter = ctx;
    heft_loaded loaded;
    heft_weights *weights;
    if (heft_load_iter_next(iter, &loaded, &err) != HEFT_INVALID_ARGUMENT || !strstr(err.message, "fork")) return 1;
    if (heft_load_iter_take(iter, &weights, NULL) != HEFT_INVALID_ARGUMENT) return 2;
    heft_load_iter_free(iter, NULL);
    return 0;
}

static int use_archive(void *ctx) {
    heft_archive *archive = ctx;
    heft_weights *weights;
    heft_load_options options = {.struct_size = sizeof options};
    if (heft_load(archive, &options, &weights, NULL, &err) != HEFT_OK) return 1;
    uint64_t count = heft_weights_count(weights);
    heft_weights_unref(weights);
    return count == heft_archive_count(archive) ? 0 : 2;
}

static void iterators(void **state) {
    (void)state;
    heft_archive *archive = load_open(load_set("set", 2, 12, 3 << 20));
    for (int ring = 0; ring < 2; ring++) {
        heft_load_plan *plan;
        heft_load_iter *iter;
        heft_loaded loaded;
        uint64_t count = 0;
        heft_load_options options = {.struct_size = sizeof options, .io = HEFT_IO_BUFFERED};
        OK(heft_load_plan_new(archive, &options, &plan, &err));
        OK(heft_load_iter_new(plan, HEFT_LOAD_ORDER_FILE, ring ? 8 << 20 : 0, &iter, &err));
        in_child(use_iterator, iter);
        for (;; count++) {
            OK(heft_load_iter_next(iter, &loaded, &err));
            if (!loaded.name) break;
            heft_load_iter_release(iter, &loaded);
        }
        assert_int_equal(count, heft_archive_count(archive));
        heft_load_iter_free(iter, NULL);
        heft_load_plan_free(plan);
    }
    in_child(use_archive, archive); /* which works */
    heft_archive_unref(archive);
}

static int use_warmer(void *ctx) {
    heft_warmer *warmer = ctx;
    if (heft_warmer_poll(warmer, NULL, NULL)) return 1;
    if (heft_warmer_wait(warmer, NULL, &err) != HEFT_INVALID_ARGUMENT || !strstr(err.message, "fork")) return 2;
    heft_warmer_free(warmer);
    return 0;
}

static void warmers(void **state) {
    (void)state;
    heft_archive *archive = load_open(load_set("warm", 1, 12, 3 << 20));
    heft_load_options options = {.struct_size = sizeof options, .progress = wait_for_gate};
    heft_load_plan *plan;
    heft_warmer *warmer;
    OK(heft_load_plan_new(archive, &options, &plan, &err));
    atomic_store(&gate, false);
    OK(heft_warmer_start(plan, &warmer, &err));
    in_child(use_warmer, warmer);
    atomic_store(&gate, true);
    OK(heft_warmer_wait(warmer, NULL, &err));
    heft_warmer_free(warmer);
    heft_load_plan_free(plan);
    heft_archive_unref(archive);
}

/* ---- without threads ---- */

static pthread_t completed_on;

static void note_thread(void *ctx, heft_status status, const heft_error *error) {
    (void)ctx, (void)status, (void)error;
    completed_on = pthread_self();
}

static int save_alone(void *ctx) {
    (void)ctx;
    heft_saver *saver;
    heft_saver_options options = {.struct_size = sizeof options, .completed = note_thread};
    if (getuid() == 0 && setuid(65534) != 0) return 1; /* root has no such limit */
    if (setrlimit(RLIMIT_NPROC, &(struct rlimit){1, 1}) != 0) return 2;
    if (heft_saver_new(&options, &saver, NULL) != HEFT_OK) return 3;
    if (heft_saver_start(saver, test_path("alone"), items, 2, NULL, NULL, NULL) != HEFT_OK) return 4;
    while (heft_saver_poll(saver, NULL, NULL)) nanosleep(&(struct timespec){0, 1000000}, NULL); /* not for ever */
    (void)heft_saver_wait(saver, NULL, NULL); /* what it gives depends on whose the folder is */
    if (!pthread_equal(completed_on, pthread_self())) write(STDOUT_FILENO, "threads could be made\n", 22);
    heft_saver_free(saver);
    return 0;
}

static void no_threads(void **state) {
    (void)state;
    if (test_skip_emulated("limits of threads")) return;
    in_child(save_alone, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(writers),   cmocka_unit_test(savers),  cmocka_unit_test(iterators),
                                       cmocka_unit_test(warmers), cmocka_unit_test(no_threads)};
    for (size_t i = 0; i < VALUES; i++) values[i] = (uint8_t)(i * 7);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
