/* base: crews of threads. */
#include "base/parallel.h"

#include "base/os.h"

#include <limits.h>
#include <pthread.h>
#include <signal.h>

typedef struct parallel_job {
    void (*fn)(void *ctx, uint32_t worker);
    void *ctx;
    uint32_t worker;
    pthread_t thread;
} parallel_job;

static void *parallel_main(void *arg) {
    parallel_job *job = arg;
    job->fn(job->ctx, job->worker);
    return NULL;
}

/* Starts jobs 1 to workers - 1 until one fails; the number of jobs that run, the caller's included. */
static uint32_t parallel_start(parallel_job *jobs, uint32_t workers, void (*fn)(void *ctx, uint32_t worker), void *ctx) {
    pthread_attr_t attr;
    if (pthread_attr_init(&attr) != 0) return 1;
    size_t stack = HEFT__THREAD_STACK;
#if defined(PTHREAD_STACK_MIN)
    if (stack < (size_t)PTHREAD_STACK_MIN) stack = (size_t)PTHREAD_STACK_MIN;
#endif
    sigset_t all, before;
    sigfillset(&all);
    /* Threads inherit the mask: signals of the program go to threads of the program. */
    bool masked = pthread_attr_setstacksize(&attr, stack) == 0 && pthread_sigmask(SIG_SETMASK, &all, &before) == 0;
    uint32_t made = 1;
    while (masked && made < workers) {
        jobs[made] = (parallel_job){.fn = fn, .ctx = ctx, .worker = made};
        if (pthread_create(&jobs[made].thread, &attr, parallel_main, &jobs[made]) != 0) break;
        made++;
    }
    if (masked) pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attr);
    return made;
}

uint32_t heft__parallel(uint32_t workers, void (*fn)(void *ctx, uint32_t worker), void *ctx) {
    parallel_job jobs[HEFT__PARALLEL_MOST];
    if (workers > HEFT__PARALLEL_MOST) workers = HEFT__PARALLEL_MOST;
    uint32_t made = workers > 1 ? parallel_start(jobs, workers, fn, ctx) : 1;
    fn(ctx, 0);
    for (uint32_t i = 1; i < made; i++) pthread_join(jobs[i].thread, NULL);
    return made;
}

struct heft__crew {
    heft_allocator alloc;
    uint64_t nbytes;
    uint32_t workers, made;
    parallel_job jobs[];
};

heft__crew *heft__crew_new(const heft_allocator *alloc, uint32_t workers) {
    if (workers > HEFT__PARALLEL_MOST) workers = HEFT__PARALLEL_MOST;
    uint64_t nbytes = sizeof(heft__crew) + workers * sizeof(parallel_job);
    heft__crew *crew = heft__alloc(alloc, nbytes);
    if (!crew) return NULL;
    *crew = (heft__crew){.alloc = *alloc, .nbytes = nbytes, .workers = workers, .made = 1};
    return crew;
}

uint32_t heft__crew_start(heft__crew *crew, void (*fn)(void *ctx, uint32_t worker), void *ctx) {
    if (crew->workers > 1) crew->made = parallel_start(crew->jobs, crew->workers, fn, ctx);
    return crew->made;
}

uint32_t heft__crew_join(heft__crew *crew) {
    uint32_t made = crew->made;
    for (uint32_t i = 1; i < made; i++) pthread_join(crew->jobs[i].thread, NULL);
    heft_allocator alloc = crew->alloc;
    heft__free(&alloc, crew, crew->nbytes);
    return made;
}

uint32_t heft__default_workers(void) {
    uint32_t cpus = heft__os_usable_cpus();
    return cpus < 4 ? cpus : 4;
}

/* ---- monitor ---- */

struct heft__monitor {
    heft_allocator alloc;
    pthread_mutex_t mutex;
    pthread_cond_t wake;
};

heft__monitor *heft__monitor_new(const heft_allocator *alloc) {
    heft__monitor *monitor = heft__alloc(alloc, sizeof *monitor);
    if (!monitor) return NULL;
    monitor->alloc = *alloc;
    if (pthread_mutex_init(&monitor->mutex, NULL) == 0) {
        if (pthread_cond_init(&monitor->wake, NULL) == 0) return monitor;
        pthread_mutex_destroy(&monitor->mutex);
    }
    heft__free(alloc, monitor, sizeof *monitor);
    return NULL;
}

void heft__monitor_free(heft__monitor *monitor) {
    if (!monitor) return;
    heft_allocator alloc = monitor->alloc;
    pthread_cond_destroy(&monitor->wake);
    pthread_mutex_destroy(&monitor->mutex);
    heft__free(&alloc, monitor, sizeof *monitor);
}

void heft__monitor_enter(heft__monitor *monitor) {
    pthread_mutex_lock(&monitor->mutex);
}

void heft__monitor_leave(heft__monitor *monitor) {
    pthread_mutex_unlock(&monitor->mutex);
}

void heft__monitor_wait(heft__monitor *monitor) {
    pthread_cond_wait(&monitor->wake, &monitor->mutex);
}

void heft__monitor_wake(heft__monitor *monitor) {
    pthread_cond_broadcast(&monitor->wake);
}
