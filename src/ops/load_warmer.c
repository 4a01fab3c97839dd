/* ops: warming in the background, on a thread of its own. */
#include "base/error.h"
#include "base/os.h"
#include "base/parallel.h"
#include "ops/load_run.h"

#include <string.h>

struct heft_warmer {
    heft_load_plan *plan;
    uint64_t process;       /* whose it is: its thread is in no child that is forked */
    heft__monitor *monitor; /* guards `running` */
    heft__crew *crew;       /* until it has been waited for */
    bool running;
    atomic_bool cancelled;
    _Atomic uint64_t done_nbytes, total_nbytes;
    heft_load_stats stats;
    heft_status status;
    heft_error error;
};

static bool warmer_stop(void *ctx) {
    heft_warmer *warmer = ctx;
    return atomic_load(&warmer->cancelled);
}

static int warmer_progress(void *ctx, uint64_t done, uint64_t total) {
    heft_warmer *warmer = ctx;
    const heft_load_options *o = &warmer->plan->options;
    atomic_store(&warmer->done_nbytes, done);
    atomic_store(&warmer->total_nbytes, total);
    if (warmer_stop(warmer)) return 1;
    return o->progress ? o->progress(o->progress_ctx, done, total) : 0;
}

static void warmer_run(void *ctx, uint32_t worker) {
    heft_warmer *warmer = ctx;
    const heft__warm_watch watch = {.progress = warmer_progress, .stop = warmer_stop, .ctx = warmer};
    (void)worker;
    warmer->status = heft__warm(warmer->plan, &watch, &warmer->stats, &warmer->error);
    heft__monitor_enter(warmer->monitor);
    warmer->running = false;
    heft__monitor_leave(warmer->monitor);
}

heft_status heft_warmer_start(heft_load_plan *plan, heft_warmer **out, heft_error *err) {
    if (!plan || !out) return heft__fail_null(err, plan ? "out" : "plan");
    *out = NULL;
    heft_warmer *warmer = heft__alloc_zero(&plan->alloc, sizeof *warmer);
    if (!warmer) return heft__fail_memory(err, sizeof *warmer);
    warmer->plan = plan;
    warmer->process = heft__os_process();
    warmer->stats.struct_size = sizeof warmer->stats;
    warmer->monitor = heft__monitor_new(&plan->alloc);
    warmer->crew = warmer->monitor ? heft__crew_new(&plan->alloc, 2) : NULL;
    if (!warmer->crew) {
        heft__monitor_free(warmer->monitor);
        heft__free(&plan->alloc, warmer, sizeof *warmer);
        return heft__fail_memory(err, HEFT_NONE);
    }
    warmer->running = true;
    if (heft__crew_start(warmer->crew, warmer_run, warmer) < 2) warmer_run(warmer, 0); /* no thread could be made */
    *out = warmer;
    return HEFT_OK;
}

bool heft_warmer_poll(heft_warmer *warmer, uint64_t *done_nbytes, uint64_t *total_nbytes) {
    if (done_nbytes) *done_nbytes = atomic_load(&warmer->done_nbytes);
    if (total_nbytes) *total_nbytes = atomic_load(&warmer->total_nbytes);
    if (heft__os_process_check(warmer->process, "warmer", NULL) != HEFT_OK) return false;
    heft__monitor_enter(warmer->monitor);
    bool running = warmer->running;
    heft__monitor_leave(warmer->monitor);
    return running;
}

void heft_warmer_cancel(heft_warmer *warmer) {
    if (warmer) atomic_store(&warmer->cancelled, true);
}

heft_status heft_warmer_wait(heft_warmer *warmer, heft_load_stats *stats, heft_error *err) {
    if (!warmer) return heft__fail_null(err, "warmer");
    if (heft__os_process_check(warmer->process, "warmer", err) != HEFT_OK) return HEFT_INVALID_ARGUMENT;
    if (warmer->crew) {
        (void)heft__crew_join(warmer->crew);
        warmer->crew = NULL;
    }
    if (stats) {
        size_t size = stats->struct_size;
        memcpy(stats, &warmer->stats, size < sizeof *stats ? size : sizeof *stats);
        stats->struct_size = size;
    }
    if (warmer->status != HEFT_OK && err) *err = warmer->error;
    return warmer->status;
}

void heft_warmer_free(heft_warmer *warmer) {
    if (!warmer || heft__os_process_check(warmer->process, "warmer", NULL) != HEFT_OK) return; /* the parent goes on */
    heft_allocator alloc = warmer->plan->alloc;
    heft_warmer_cancel(warmer);
    (void)heft_warmer_wait(warmer, NULL, NULL);
    heft__monitor_free(warmer->monitor);
    heft__free(&alloc, warmer, sizeof *warmer);
}
