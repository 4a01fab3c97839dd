/* ops: writes parts in blocks, by several threads: each fills a block of the file in cache and puts it where it belongs. */
#include "base/error.h"
#include "base/os.h"
#include "base/parallel.h"
#include "digest/digest.h"
#include "ops/save.h"

#include <stdatomic.h>
#include <string.h>

/* A block is handed to a thread; it goes out in pieces that fit the second-level cache, where they are packed. Larger
 * pieces of packed memory go out as they lie, unless that is where the disk cannot take them from. */
#define SAVE_BLOCK (UINT64_C(4) << 20)
#define SAVE_PIECE (UINT64_C(1) << 20)
#define SAVE_STRAIGHT (UINT64_C(256) << 10)
#define SAVE_ONE_WORKER (UINT64_C(8) << 20)

typedef struct save_block {
    uint64_t offset, nbytes;
    uint64_t part; /* the first; the others follow without a gap */
} save_block;

typedef struct save_worker {
    uint8_t *scratch; /* `piece` bytes; NULL: the sink is memory */
    uint64_t failed_block;
    heft_status status;
    heft_error err;
    heft__digest digest; /* of the chunk in progress */
} save_worker;

typedef struct save_pool {
    heft__save_run *run;
    const heft__part *parts;
    save_block *blocks;
    uint64_t nblocks, capacity;
    uint64_t piece; /* bytes of scratch, and of one write */
    save_worker *workers;
    _Atomic uint64_t cursor;
    atomic_bool stop, cancelled;
    atomic_flag reporting;
} save_pool;

/* ---- the sink ---- */

static heft_status save_compare(const heft__sink *sink, uint64_t offset, const uint8_t *data, uint64_t nbytes,
                                heft_error *err) {
    uint8_t back[16384];
    for (uint64_t done = 0; done < nbytes;) {
        uint64_t n = nbytes - done < sizeof back ? nbytes - done : sizeof back, i = 0;
        heft_status status = heft__target_read(sink->target, offset + done, back, n, err);
        if (status != HEFT_OK) return status;
        if (memcmp(back, data + done, (size_t)n) != 0) {
            while (back[i] == data[done + i]) i++;
            heft__fail(err, HEFT_MISMATCH, HEFT_FAULT_WRITE_ERROR,
                       "byte %llu of the file reads back as 0x%02x, and 0x%02x was written",
                       (unsigned long long)(offset + done + i), back[i], data[done + i]);
            heft__error_file(err, sink->target->path);
            heft__error_at(err, offset + done + i, data[done + i], back[i]);
            return HEFT_MISMATCH;
        }
        done += n;
    }
    return HEFT_OK;
}

/* Whole blocks past the page cache, the rest through it. */
static heft_status save_put_direct(heft__target *target, uint64_t offset, const uint8_t *data, uint64_t nbytes,
                                   heft_error *err) {
    uint64_t whole = nbytes / HEFT__TARGET_BLOCK * HEFT__TARGET_BLOCK;
    heft_status status = whole ? heft__target_write_direct(target, offset, data, whole, err) : HEFT_OK;
    return status == HEFT_OK ? heft__target_write(target, offset + whole, data + whole, nbytes - whole, err) : status;
}

heft_status heft__sink_put(const heft__sink *sink, uint64_t offset, const void *data, uint64_t nbytes,
                           heft_error *err) {
    if (sink->discard) return HEFT_OK;
    if (sink->compare) return save_compare(sink, offset, data, nbytes, err);
    if (sink->target && sink->target->direct_fd >= 0 &&
        (offset | (uintptr_t)data) % HEFT__TARGET_BLOCK == 0)
        return save_put_direct(sink->target, offset, data, nbytes, err);
    if (sink->target) return heft__target_write(sink->target, offset, data, nbytes, err);
    if (sink->memory) {
        if (sink->memory + offset != data) memcpy(sink->memory + offset, data, (size_t)nbytes);
        return HEFT_OK;
    }
    for (uint64_t done = 0, n; done < nbytes; done += n) {
        n = nbytes - done < SAVE_PIECE ? nbytes - done : SAVE_PIECE;
        int code = sink->write(sink->write_ctx, (const uint8_t *)data + done, (size_t)n);
        if (code) return heft__target_fail_errno(err, code, "the caller's function", "writing");
    }
    return HEFT_OK;
}

/* ---- blocks ---- */

/* Where the block that holds byte `at` of the file ends: at a multiple of SAVE_BLOCK of the file, or, where digests are made, of
 * the tensor, so that each chunk is one thread's. */
static uint64_t save_stop(const heft__part *part, uint64_t at) {
    if (!part->digest) return (at / SAVE_BLOCK + 1) * SAVE_BLOCK;
    uint64_t in = part->base + (at - part->offset);
    return at + (HEFT__DIGEST_CHUNK - in % HEFT__DIGEST_CHUNK);
}

/* True if byte `at` of the file begins a block. */
static bool save_starts(const heft__part *part, uint64_t at, const save_block *last) {
    if (!last || last->offset + last->nbytes != at) return true;
    if (!part->digest) return at % SAVE_BLOCK == 0;
    return (at == part->offset ? last->nbytes + part->nbytes > SAVE_BLOCK : true); /* small tensors share one */
}

/* Cuts parts into blocks. */
static bool save_cut(save_pool *pool, const heft__part *parts, uint64_t nparts) {
    const heft_allocator *alloc = &pool->run->alloc;
    save_block *last = NULL;
    for (uint64_t i = 0; i < nparts; i++) {
        uint64_t at = parts[i].offset, end = at + parts[i].nbytes;
        while (at < end && !parts[i].done) {
            uint64_t stop = save_stop(&parts[i], at);
            if (stop > end) stop = end;
            if (save_starts(&parts[i], at, last)) {
                if (!heft__grow(alloc, (void **)&pool->blocks, &pool->capacity, pool->nblocks, sizeof *last, 64))
                    return false;
                last = &pool->blocks[pool->nblocks++];
                *last = (save_block){.offset = at, .part = i};
            }
            last->nbytes += stop - at;
            at = stop;
        }
    }
    return true;
}

static heft_status save_flush(const save_pool *pool, uint64_t offset, const uint8_t *data, uint64_t nbytes,
                              heft_error *err) {
    return nbytes ? heft__sink_put(&pool->run->sink, offset, data, nbytes, err) : HEFT_OK;
}

static bool save_goes_straight(const save_pool *pool, const heft__part *part, uint64_t nbytes) {
    const heft__sink *sink = &pool->run->sink;
    if (sink->memory || (sink->target && sink->target->direct_fd >= 0)) return false;
    return part->kind == HEFT__PART_MEMORY && nbytes >= SAVE_STRAIGHT && heft__part_is_plain(part);
}

/* Adds a piece to the checksum of its tensor. Pieces may come in any order: each is moved to its place by the bytes that
 * follow, and then they only add up. */
static void save_crc(const save_pool *pool, const heft__part *part, uint64_t skip, uint64_t n, const uint8_t *data) {
    if (!part->crc32 || pool->run->sink.compare) return;
    uint64_t after = part->end - (part->offset + skip + n);
    uint32_t crc = heft__crc32_combine(heft__crc32(0, data, (size_t)n), 0, after);
    atomic_fetch_xor_explicit(part->crc32, crc, memory_order_relaxed);
}

/* The same for digests: a chunk is one thread's, from its first byte to its last. */
static heft_status save_digest(save_worker *worker, const heft__part *part, uint64_t skip, uint64_t n, const uint8_t *data) {
    uint64_t at = part->base + skip;
    if (at % HEFT__DIGEST_CHUNK == 0) {
        heft_status status = heft__digest_init(&worker->digest, HEFT__DIGEST_XXH3, &worker->err);
        if (status != HEFT_OK) return status;
    }
    heft__digest_update(&worker->digest, data, (size_t)n);
    if ((at + n) % HEFT__DIGEST_CHUNK == 0 || skip + n == part->nbytes)
        heft__digest_final(&worker->digest, part->digest[at / HEFT__DIGEST_CHUNK]);
    return HEFT_OK;
}

/* What is made of bytes on their way. */
static heft_status save_look(const save_pool *pool, save_worker *worker, const heft__part *part, uint64_t skip, uint64_t n,
                             const uint8_t *data) {
    save_crc(pool, part, skip, n, data);
    return part->digest && !pool->run->sink.compare ? save_digest(worker, part, skip, n, data) : HEFT_OK;
}

/* Fills and puts one block. */
static heft_status save_block_run(save_pool *pool, save_worker *worker, const save_block *block) {
    const heft__part *part = &pool->parts[block->part];
    uint8_t *memory = pool->run->sink.memory;
    uint64_t at = block->offset, end = at + block->nbytes, from = at; /* [from, at) lies in scratch */
    heft_status status = HEFT_OK;
    while (at < end && status == HEFT_OK && !atomic_load_explicit(&pool->cancelled, memory_order_relaxed)) {
        while (part->offset + part->nbytes <= at) part++;
        uint64_t skip = at - part->offset, n = part->nbytes - skip;
        if (n > end - at) n = end - at;
        if (save_goes_straight(pool, part, n)) {
            status = save_flush(pool, from, worker->scratch, at - from, &worker->err);
            if (status == HEFT_OK) status = save_flush(pool, at, part->data + skip, n, &worker->err);
            if (status == HEFT_OK) status = save_look(pool, worker, part, skip, n, part->data + skip);
            from = at += n;
            continue;
        }
        if (n > pool->piece - (at - from)) n = pool->piece - (at - from);
        uint8_t *dst = memory ? memory + at : worker->scratch + (at - from);
        status = heft__part_fill(part, skip, n, dst, &worker->err);
        if (status == HEFT_OK) status = save_look(pool, worker, part, skip, n, dst);
        at += n;
        if (status == HEFT_OK && at - from == pool->piece) {
            status = save_flush(pool, from, memory ? memory + from : worker->scratch, at - from, &worker->err);
            from = at;
        }
    }
    if (status == HEFT_OK) status = save_flush(pool, from, memory ? memory + from : worker->scratch, at - from, &worker->err);
    return status;
}

/* Reports now and then, one worker at a time; a worker that finds another one reporting goes on. */
static void save_report(save_pool *pool) {
    heft__save_run *run = pool->run;
    if (!run->progress || atomic_flag_test_and_set_explicit(&pool->reporting, memory_order_acquire)) return;
    double now = heft__os_seconds();
    if (now - run->reported >= 0.05 && !atomic_load(&pool->cancelled)) {
        uint64_t done = atomic_load(&run->done_nbytes);
        if (done < run->total_nbytes && run->progress(run->progress_ctx, done, run->total_nbytes))
            atomic_store(&pool->cancelled, true);
        run->reported = now;
    }
    atomic_flag_clear_explicit(&pool->reporting, memory_order_release);
}

static void save_work(void *ctx, uint32_t number) {
    save_pool *pool = ctx;
    save_worker *worker = &pool->workers[number];
    while (!atomic_load_explicit(&pool->stop, memory_order_relaxed) && !atomic_load(&pool->cancelled)) {
        uint64_t block = atomic_fetch_add(&pool->cursor, 1);
        if (block >= pool->nblocks) return;
        worker->status = save_block_run(pool, worker, &pool->blocks[block]);
        if (worker->status != HEFT_OK) {
            worker->failed_block = block;
            atomic_store(&pool->stop, true);
            return;
        }
        atomic_fetch_add(&pool->run->done_nbytes, pool->blocks[block].nbytes);
        save_report(pool);
    }
}

/* The lowest failing block decides the error, whatever the timing: blocks are handed out in order, and one begun is ended. */
static heft_status save_collect(save_pool *pool, uint32_t workers, heft_error *err) {
    const save_worker *first = NULL;
    for (uint32_t i = 0; i < workers; i++) {
        const save_worker *w = &pool->workers[i];
        if (w->status != HEFT_OK && (!first || w->failed_block < first->failed_block)) first = w;
    }
    if (first && err) *err = first->err;
    if (first) return first->status;
    if (atomic_load(&pool->cancelled))
        return heft__fail(err, HEFT_CANCELLED, HEFT_FAULT_CALL, "the progress callback asked to stop");
    return HEFT_OK;
}

static uint32_t save_workers(const heft__save_run *run, const save_pool *pool) {
    uint64_t nbytes = 0;
    for (uint64_t i = 0; i < pool->nblocks; i++) nbytes += pool->blocks[i].nbytes;
    uint32_t workers = run->workers ? run->workers : nbytes < SAVE_ONE_WORKER ? 1 : heft__default_workers();
    if (!run->workers && workers > 1 && run->sink.target && run->sink.target->direct_fd >= 0)
        workers *= 2; /* while some wait for the disk, others fill the next blocks */
    if (run->sink.write) workers = 1;
    if (workers > HEFT__PARALLEL_MOST) workers = HEFT__PARALLEL_MOST;
    return workers < pool->nblocks ? workers : pool->nblocks ? (uint32_t)pool->nblocks : 1;
}

heft_status heft__save_run_blocks(heft__save_run *run, const heft__part *parts, uint64_t nparts, heft_error *err) {
    save_pool pool = {.run = run, .parts = parts, .reporting = ATOMIC_FLAG_INIT, .piece = SAVE_PIECE};
    if (run->sink.memory) pool.piece = SAVE_BLOCK;
    if (!nparts) return HEFT_OK;
    atomic_init(&pool.cursor, 0);
    atomic_init(&pool.stop, false);
    atomic_init(&pool.cancelled, false);
    heft_status status = save_cut(&pool, parts, nparts) ? HEFT_OK : heft__fail_memory(err, HEFT_NONE);
    uint32_t workers = save_workers(run, &pool);
    uint64_t head = workers * sizeof(save_worker) + HEFT__TARGET_BLOCK, each = run->sink.memory ? 0 : pool.piece;
    uint64_t all = head + workers * each;
    uint8_t *block = status == HEFT_OK ? heft__alloc(&run->alloc, all) : NULL;
    if (status == HEFT_OK && !block) status = heft__fail_memory(err, all);
    if (status == HEFT_OK) {
        pool.workers = (save_worker *)(void *)block;
        memset(pool.workers, 0, workers * sizeof(save_worker));
        uint8_t *scratch = block + head - (uintptr_t)(block + head) % HEFT__TARGET_BLOCK;
        for (uint32_t i = 0; i < workers; i++) pool.workers[i].scratch = each ? scratch + i * each : NULL;
        uint32_t ran = heft__parallel(workers, save_work, &pool);
        if (ran > run->most_workers) run->most_workers = ran;
        status = save_collect(&pool, workers, err);
    }
    heft__free(&run->alloc, block, all);
    heft__free(&run->alloc, pool.blocks, pool.capacity * sizeof *pool.blocks);
    return status;
}

/* ---- all parts ---- */

static heft_source *save_part_source(const heft__part *part) {
    if (part->kind == HEFT__PART_RANGE) return part->source;
    return NULL; /* views are verified when their plans run */
}

heft_status heft__save_run_parts(heft__save_run *run, heft__part *parts, uint64_t nparts, heft_error *err) {
    heft_source *last = NULL;
    heft_status status = HEFT_OK;
    for (uint64_t i = 0; i < nparts && status == HEFT_OK; i++) {
        heft_source *source = save_part_source(&parts[i]);
        if (source && source != last) status = heft__source_verify(source, err);
        last = source ? source : last;
    }
    if (status == HEFT_OK) status = heft__save_share(run, parts, nparts, err);
    for (uint64_t i = 0, n; i < nparts && status == HEFT_OK; i += n) {
        bool views = parts[i].kind == HEFT__PART_VIEW;
        for (n = 1; i + n < nparts && (parts[i + n].kind == HEFT__PART_VIEW) == views; n++) {}
        status = (views ? heft__save_run_views : heft__save_run_blocks)(run, parts + i, n, err);
    }
    return status;
}
