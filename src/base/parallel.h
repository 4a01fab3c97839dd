/* base: crews of threads. Nothing is global. */
#ifndef HEFT_BASE_PARALLEL_H
#define HEFT_BASE_PARALLEL_H

#include "base/alloc.h"

/* More threads than this never help and would only cost stacks: heft__parallel starts no more. What is made for each worker
 * beforehand is made for so many at most. */
#define HEFT__PARALLEL_MOST UINT32_C(256)

/* Bytes of a worker's stack. Explicit, because the default follows a user's ulimit; workers keep large buffers elsewhere. */
#define HEFT__THREAD_STACK ((size_t)512 << 10)

/* Calls fn(ctx, 0) ... fn(ctx, workers - 1), one of them (0) on the caller's thread, the others on threads of their own, and
 * returns when all have. Threads block all signals and have an explicit stack size. Where a thread cannot be made the
 * remaining calls are left out: the work must be drawn from a shared cursor, so that any one worker can finish it.
 * Returns the number of calls made, at least 1. */
uint32_t heft__parallel(uint32_t workers, void (*fn)(void *ctx, uint32_t worker), void *ctx);

/* The same without the caller: start makes threads for fn(ctx, 1) ... fn(ctx, workers - 1), as many as it can, and goes on. Join
 * waits for them and frees the crew. Both return the number of threads and one more, for the caller. */
typedef struct heft__crew heft__crew;
heft__crew *heft__crew_new(const heft_allocator *alloc, uint32_t workers); /* NULL: no memory */
uint32_t heft__crew_start(heft__crew *crew, void (*fn)(void *ctx, uint32_t worker), void *ctx);
uint32_t heft__crew_join(heft__crew *crew);

/* A lock that can be waited at: for what several threads want and one of them makes. */
typedef struct heft__monitor heft__monitor;
heft__monitor *heft__monitor_new(const heft_allocator *alloc); /* NULL: no memory */
void heft__monitor_free(heft__monitor *monitor);
void heft__monitor_enter(heft__monitor *monitor);
void heft__monitor_leave(heft__monitor *monitor);
void heft__monitor_wait(heft__monitor *monitor); /* leaves, waits for a wake, which may be for nothing, and enters */
void heft__monitor_wake(heft__monitor *monitor); /* all that wait */

/* min(4, CPUs that this process may use: affinity and cgroup quota), at least 1. */
uint32_t heft__default_workers(void);

#endif
