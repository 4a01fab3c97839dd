/* What a load says that it will hold, against what the process does hold at its peak: in a child process for each form. */
#include "helper_files.h"
#include "helper_load.h"

#include "base/os.h"
#include "ops/load.h"

#include <sys/wait.h>
#include <unistd.h>

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define SANITIZED true
#endif
#endif
#if !defined(SANITIZED) && (defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__))
#define SANITIZED true
#elif !defined(SANITIZED)
#define SANITIZED false
#endif

#define MARGIN (UINT64_C(2) << 20)
#define RING (UINT64_C(40) << 20)

/* One way to load. What the plan announced for it in *announced. */
typedef heft_status (*way)(heft_load_plan *plan, uint64_t *announced, heft_error *err);

static heft_status owned(heft_load_plan *plan, uint64_t *announced, heft_error *err) {
    heft_weights *weights;
    heft_status status = heft_load_run(plan, &weights, NULL, err);
    if (status == HEFT_OK) heft_weights_unref(weights);
    *announced = plan->memory.peak_owned_nbytes;
    return status;
}

/* With the mapping, whose pages count as resident. */
static heft_status mapped(heft_load_plan *plan, uint64_t *announced, heft_error *err) {
    heft_status status = owned(plan, announced, err);
    *announced = plan->memory.transient_nbytes;
    return status;
}

static heft_status through(heft_load_plan *plan, heft_load_order order, uint64_t ring, heft_error *err) {
    heft_load_iter *iter;
    heft_status status = heft_load_iter_new(plan, order, ring, &iter, err);
    if (status != HEFT_OK) return status;
    heft_loaded item = {.name = ""};
    while (status == HEFT_OK && item.name) {
        status = heft_load_iter_next(iter, &item, err);
        if (status == HEFT_OK && item.name) heft_load_iter_release(iter, &item);
    }
    heft_load_iter_free(iter, NULL);
    return status;
}

static heft_status iterated(heft_load_plan *plan, uint64_t *announced, heft_error *err) {
    *announced = plan->memory.peak_owned_nbytes;
    return through(plan, HEFT_LOAD_ORDER_COMPLETION, 0, err);
}

static heft_status ring(heft_load_plan *plan, uint64_t *announced, heft_error *err) {
    heft_plan *layout;
    heft_footprint memory;
    heft_status status = heft__load_layout(plan, RING, false, &layout, err);
    if (status != HEFT_OK) return status;
    status = heft__load_measure(plan, layout, &memory, err);
    heft_plan_free(layout);
    *announced = memory.peak_owned_nbytes;
    return status == HEFT_OK ? through(plan, HEFT_LOAD_ORDER_FILE, RING, err) : status;
}

/* In the child: 0, or what went wrong; 77: this system does not tell. */
static int measure(const char *path, way load, heft_io io) {
    heft__os_use before, after;
    heft_archive *archive;
    heft_load_plan *plan;
    heft_error err;
    uint64_t announced = 0;
    heft_load_options o = {.struct_size = sizeof o, .workers = 4, .io = io};
    heft__os_peak_restart();
    heft__os_usage(&before);
    if (before.rss_nbytes == HEFT_NONE || before.peak_rss_nbytes == HEFT_NONE) return 77;
    heft_status status = heft_archive_open(path, NULL, &archive, &err);
    if (status == HEFT_OK) status = heft_load_plan_new(archive, &o, &plan, &err);
    if (status == HEFT_OK) status = load(plan, &announced, &err);
    if (status != HEFT_OK) {
        fprintf(stderr, "%s\n", err.message);
        return 1;
    }
    heft__os_usage(&after);
    uint64_t growth = after.peak_rss_nbytes > before.rss_nbytes ? after.peak_rss_nbytes - before.rss_nbytes : 0;
    uint64_t least = io == HEFT_IO_MAP ? 0 : announced / 4; /* a peak of nothing would be no measure; a mapping is not touched */
    if (growth <= announced + MARGIN && growth >= least) return 0;
    fprintf(stderr, "grew by %llu bytes, announced were %llu\n", (unsigned long long)growth,
            (unsigned long long)announced);
    return 2;
}

static void child(const char *path, way load, heft_io io) {
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) _exit(measure(path, load, io));
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 77) {
        printf("left out: this system does not tell how much memory is resident\n");
        return;
    }
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void the_peak_is_as_announced(void **state) {
    (void)state;
    if (SANITIZED) {
        printf("left out: a sanitizer has memory of its own\n");
        return;
    }
    if (test_skip_emulated("/proc tells of the emulator")) return;
    char path[400];
    snprintf(path, sizeof path, "%s", load_set("peak", 3, 40, 32 << 20));
    child(path, owned, HEFT_IO_BUFFERED);
    child(path, owned, HEFT_IO_AUTO);
    child(path, iterated, HEFT_IO_BUFFERED);
    child(path, ring, HEFT_IO_BUFFERED);
    child(path, mapped, HEFT_IO_MAP);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_peak_is_as_announced)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
