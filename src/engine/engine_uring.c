/* engine: io_uring. One thread keeps the requests of several blocks in flight; the rules for each are those of the pool. */
#include "engine/engine_core.h"

#if HEFT_WITH_URING
#include "base/error.h"
#include "base/os.h"
#include "source/source_direct.h"

#include <errno.h>
#include <liburing.h>
#include <stddef.h>
#include <time.h>

/* Enough for one disk; what is best belongs to the storage, so it can be asked for. */
enum { URING_DEPTH = 8, URING_DEPTH_MOST = 64 };

/* A block in flight. */
typedef struct uring_slot {
    heft__work work;
    heft__vec first; /* of its request, where that is cut */
} uring_slot;

typedef struct uring_engine {
    heft__engine base;
    struct io_uring ring;
    heft__range *range;
    double ended;       /* when the last block ended */
    uint32_t flying;    /* blocks in flight */
    uint32_t idle_count;
    uint32_t idle[URING_DEPTH_MOST];
    uring_slot slots[]; /* as many as base.nslots */
} uring_engine;

_Static_assert(sizeof(heft__vec) == sizeof(struct iovec) && offsetof(heft__vec, base) == offsetof(struct iovec, iov_base) &&
                   offsetof(heft__vec, nbytes) == offsetof(struct iovec, iov_len),
               "vectors are passed to the system as they are");

static heft_status uring_setup(uint32_t depth, struct io_uring *ring, heft_error *err) {
    const heft__source_sys *sys = heft__source_sys_get();
    int code = sys->ring_refused ? sys->ring_refused() : 0;
    if (code == 0) code = -io_uring_queue_init(depth, ring, 0);
    if (code == 0) return HEFT_OK;
    heft__fail(err, HEFT_UNSUPPORTED, HEFT_FAULT_CALL, "io_uring is refused here (%s)%s", heft__errno_name(code),
               code == EPERM ? ": containers and administrators often forbid it" : "");
    if (err) err->sys_errno = code;
    return HEFT_UNSUPPORTED;
}

static heft_status uring_probe(heft_error *err) {
    struct io_uring ring;
    heft_status status = uring_setup(1, &ring, err);
    if (status == HEFT_OK) io_uring_queue_exit(&ring);
    return status;
}

static heft_status uring_open(const heft__engine_job *job, heft__engine **out, heft_error *err) {
    *out = NULL;
    /* Each block in flight has scratch of its own; of that there is as much as for so many workers, if no one says else. */
    bool scratch = job->steps && job->scratch_nbytes;
    uint32_t depth = job->depth ? job->depth : scratch ? job->workers : URING_DEPTH;
    if (depth == 0) depth = 1;
    if (depth > URING_DEPTH_MOST) depth = URING_DEPTH_MOST;
    if (depth > job->nblocks) depth = job->nblocks ? (uint32_t)job->nblocks : 1;
    uint64_t nbytes = sizeof(uring_engine) + depth * sizeof(uring_slot);
    uring_engine *uring = heft__alloc(&job->alloc, nbytes);
    if (!uring) return heft__fail_memory(err, nbytes);
    heft_status status = uring_setup(depth, &uring->ring, err);
    if (status == HEFT_OK) {
        status = heft__engine_init(&uring->base, job, 1, depth, err);
        if (status != HEFT_OK) io_uring_queue_exit(&uring->ring);
    }
    if (status != HEFT_OK) {
        heft__free(&job->alloc, uring, nbytes);
        return status;
    }
    uring->range = NULL;
    uring->ended = 0;
    uring->flying = 0;
    uring->idle_count = depth;
    for (uint32_t i = 0; i < depth; i++) uring->idle[i] = depth - 1 - i;
    *out = &uring->base;
    return HEFT_OK;
}

static heft_status uring_submit(heft__engine *engine, heft__lane lane, uint64_t first, uint64_t n, heft_error *err) {
    uring_engine *uring = (uring_engine *)engine;
    heft_status status = heft__engine_add(engine, lane, first, n, err);
    uring->range = heft__lanes_hold(&engine->lanes, uring->range); /* it may be more urgent */
    return status;
}

/* Puts the call of a block into the queue, which has room for one of each. False: there is nothing to read, or no descriptor
 * to read it from. */
static bool uring_queue(uring_engine *uring, uring_slot *slot) {
    heft__work *work = &slot->work;
    const heft__task *task = &work->task;
    const heft_source *source = work->channel->source;
    int fd = work->direct ? work->channel->direct_fd : source->fd;
    uint64_t at = task->offset + work->got;
    const heft__vec *vec = &task->vec[work->first];
    if (fd < 0) return false;
    size_t nvec = heft__source_vectors(source, at, work->direct, vec, task->nvec - work->first, &slot->first);
    struct io_uring_sqe *sqe = nvec ? io_uring_get_sqe(&uring->ring) : NULL;
    if (!sqe) return false;
    io_uring_prep_readv2(sqe, fd, (const struct iovec *)(const void *)(nvec == 1 ? &slot->first : vec), (unsigned)nvec,
                         source->window_offset + at, work->drop ? HEFT__SOURCE_DONTCACHE : 0);
    io_uring_sqe_set_data(sqe, slot);
    return true;
}

static void uring_finish(uring_engine *uring, uring_slot *slot) {
    heft__work *work = &slot->work;
    uint64_t number = work->task.number;
    if (work->began < uring->ended) work->began = uring->ended; /* of several at a time, time counts once */
    if (heft__work_end(work)) heft__engine_finish(&uring->base, number);
    uring->ended = heft__os_seconds();
    uring->idle[uring->idle_count++] = (uint32_t)(slot - uring->slots);
    uring->flying--;
}

/* Brings a block to its next request in flight, or to its end. */
static void uring_advance(uring_engine *uring, uring_slot *slot) {
    heft__work *work = &slot->work;
    while (heft__work_next(work)) {
        if (uring_queue(uring, slot)) return;
        heft__work_result(work, heft__work_call(work));
    }
    uring_finish(uring, slot);
}

static bool uring_take(uring_engine *uring, uint64_t *number) {
    heft__engine *engine = &uring->base;
    while (!heft__engine_stopped(engine)) {
        if (uring->range && heft__range_take(&engine->lanes, uring->range, number)) return true;
        uring->range = heft__lanes_hold(&engine->lanes, uring->range);
        if (!uring->range) return false;
    }
    return false;
}

static void uring_complete(uring_engine *uring, struct io_uring_cqe *cqe) {
    uring_slot *slot = io_uring_cqe_get_data(cqe);
    heft__work *work = &slot->work;
    const heft__source_sys *sys = heft__source_sys_get();
    int64_t result = cqe->res;
    io_uring_cqe_seen(&uring->ring, cqe);
    if (sys->ring_result)
        result = sys->ring_result(work->direct ? work->channel->direct_fd : work->channel->source->fd,
                                  work->channel->source->window_offset + work->task.offset + work->got,
                                  work->drop ? HEFT__SOURCE_DONTCACHE : 0, result);
    /* It would have to wait, and the file system cannot do that for a request: the thread waits. */
    if (result == -EAGAIN) result = heft__work_call(work);
    heft__work_result(work, result);
    uring_advance(uring, slot);
}

/* Hands requests in and takes at least one that is done. */
static void uring_wait(uring_engine *uring) {
    struct io_uring_cqe *cqe;
    int result = io_uring_submit_and_wait(&uring->ring, 1);
    if (result < 0 && result != -EINTR) { /* no memory for requests: some will be done soon */
        struct timespec pause = {0, 1000000};
        nanosleep(&pause, NULL);
    }
    while (io_uring_peek_cqe(&uring->ring, &cqe) == 0 && cqe) uring_complete(uring, cqe);
}

static uint64_t uring_reap(heft__engine *engine, uint64_t *numbers, uint64_t room) {
    uring_engine *uring = (uring_engine *)engine;
    uint64_t number, n;
    if (!engine->job->collect) room = 0;
    for (;;) {
        while (!(room && engine->ended > engine->reaped) && uring->idle_count && uring_take(uring, &number)) {
            uint32_t slot = uring->idle[--uring->idle_count];
            uring->flying++;
            heft__work_begin(&uring->slots[slot].work, engine, 0, slot, number);
            uring_advance(uring, &uring->slots[slot]);
        }
        if (heft__engine_stopped(engine)) return 0;
        n = room ? heft__engine_reap(engine, numbers, room) : 0;
        if (n) {
            io_uring_submit(&uring->ring); /* what is queued goes on while the caller is busy */
            return n;
        }
        if (!uring->flying) return 0;
        uring_wait(uring);
    }
}

static void uring_cancel(heft__engine *engine) {
    heft__engine_stop(engine, HEFT__STOP_CANCEL);
}

static heft_status uring_close(heft__engine *engine, heft__engine_result *result, heft_error *err) {
    uring_engine *uring = (uring_engine *)engine;
    heft_allocator alloc = engine->job->alloc;
    uint64_t nbytes = sizeof(uring_engine) + engine->nslots * sizeof(uring_slot);
    heft__engine_stop(engine, HEFT__STOP_CLOSE);
    while (uring->flying) uring_wait(uring); /* the kernel writes into memory of the caller until then */
    io_uring_queue_exit(&uring->ring);
    heft_status status = heft__engine_end(engine, 1, result, err);
    heft__free(&alloc, uring, nbytes);
    return status;
}

const heft__engine_kind heft__engine_uring = {"uring",    uring_probe,  uring_open, uring_submit,
                                              uring_reap, uring_cancel, uring_close};
#endif
