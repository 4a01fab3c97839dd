/* api: heft_cast, block by block over a few threads. */
#include "heft/casts.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/options.h"
#include "base/os.h"
#include "base/parallel.h"
#include "dtype/cast.h"
#include "source/source.h"

#include <stdatomic.h>

/* Bytes of a block of a small array, on the wider side. */
#define CASTS_BLOCK ((size_t)1 << 20)
/* Results of so many bytes are in no cache when the caller looks at them: they go past the caches, which saves reading
 * what is overwritten. But not into a page that is new: that one the system has just put into the caches by zeroing it. The
 * blocks are huge pages of the results then, so that no two workers fault in the same one. */
#define CASTS_LARGE ((size_t)64 << 20)

bool heft_can_cast(heft_dtype from, heft_dtype to) {
    return heft__cast_supported(from, to);
}

/* Blocks are drawn in order, so that all before the first refused element are done when the crew ends. */
typedef struct casts_job {
    heft__cast cast, stream; /* the second past the caches */
    const uint8_t *src;
    uint8_t *dst;
    bool large;
    size_t nelems, block, lead; /* elements; the first block is `lead` shorter */
    uint32_t from_bits, to_bits;
    atomic_size_t cursor;
    _Atomic uint64_t refused; /* index of the first element that is, or nelems */
} casts_job;

static void casts_refuse(casts_job *job, uint64_t index) {
    uint64_t first = atomic_load(&job->refused);
    while (index < first && !atomic_compare_exchange_weak(&job->refused, &first, index)) {
    }
}

static void casts_work(void *ctx, uint32_t worker) {
    casts_job *job = ctx;
    (void)worker;
    for (;;) {
        size_t index = atomic_fetch_add(&job->cursor, 1), end = (index + 1) * job->block - job->lead;
        size_t at = index ? end - job->block : 0;
        if (at >= job->nelems || at >= atomic_load(&job->refused)) return;
        size_t n = (end < job->nelems ? end : job->nelems) - at;
        uint8_t *to = job->dst + at / 8 * job->to_bits;
        const heft__cast *cast = job->large && heft__os_resident(to) ? &job->stream : &job->cast;
        size_t done = heft__cast_run(cast, job->src + at / 8 * job->from_bits, to, n);
        if (done < n) casts_refuse(job, at + done);
    }
}

/* Blocks are multiples of 8 elements, which end at whole bytes whatever the dtypes. */
static void casts_blocks(casts_job *job) {
    uint32_t wider = job->from_bits > job->to_bits ? job->from_bits : job->to_bits;
    job->large = job->nelems / 8 * job->to_bits >= CASTS_LARGE;
    job->block = job->large ? HEFT__OS_HUGE_PAGE * 8 / job->to_bits : CASTS_BLOCK * 8 / wider;
    job->block &= ~(size_t)7;
    if (job->large) job->lead = (uintptr_t)job->dst % HEFT__OS_HUGE_PAGE / job->to_bits * 8;
}

static heft_status casts_check(heft_dtype from, const void *src, heft_dtype to, const void *dst, uint64_t nelems,
                               const heft_cast_options *options, heft_error *err) {
    const bool *flags = options->reserved_flags;
    uint64_t nbytes;
    if (flags[0] || flags[1])
        return heft__fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL, "heft_cast_options: reserved_flags are not 0");
    if (!heft__cast_supported(from, to)) return heft__cast_fail_pair(from, to, err);
    if (nelems && !src) return heft__fail_null(err, "src");
    if (nelems && !dst) return heft__fail_null(err, "dst");
    heft_status status = heft_dtype_nbytes(from, 1, &nelems, &nbytes, err);
    if (!status) status = heft_dtype_nbytes(to, 1, &nelems, &nbytes, err);
    return status;
}

heft_status heft_cast(heft_dtype from, const void *src, heft_dtype to, void *dst, uint64_t nelems,
                      const heft_cast_options *options, heft_error *err) {
    heft_cast_options how;
    heft_status status = heft__options_copy(&how, sizeof how, options, "heft_cast_options", err);
    if (!status) status = casts_check(from, src, to, dst, nelems, &how, err);
    if (status || nelems == 0) return status;
    casts_job job = {.src = src, .dst = dst, .from_bits = heft_dtype_bits(from), .to_bits = heft_dtype_bits(to)};
    if (!heft__to_size(nelems, &job.nelems) || job.nelems > SIZE_MAX / 8)
        return heft__fail(err, HEFT_LIMIT, HEFT_FAULT_CALLER_LIMIT, "%llu elements do not fit into memory",
                          (unsigned long long)nelems);
    casts_blocks(&job);
    uint32_t flags = (how.saturate ? HEFT__CAST_SATURATE : 0) | (how.allow_inexact ? HEFT__CAST_INEXACT : 0);
    heft__cast_find(from, to, flags, &job.cast);
    heft__cast_find(from, to, flags | HEFT__CAST_STREAM, &job.stream);
    atomic_init(&job.cursor, 0);
    atomic_init(&job.refused, nelems);
    size_t blocks = (job.nelems + job.lead - 1) / job.block + 1;
    uint32_t workers = how.workers ? how.workers : blocks == 1 ? 1 : heft__default_workers();
    heft__parallel(blocks < workers ? (uint32_t)blocks : workers, casts_work, &job);
    uint64_t refused = atomic_load(&job.refused);
    if (refused == nelems) return HEFT_OK;
    return heft__cast_fail(&job.cast, job.src + refused * (job.from_bits / 8), refused, err);
}
