/* device: strided copies that convert on the way. Rows that are contiguous on both sides are converted from place to place,
 * all else through two small buffers. */
#include "device/device.h"

#include "dtype/cast.h"

#include <string.h>

/* Bytes of a buffer, and elements of a row that is worth a call of its own. */
enum { CONVERT_NBYTES = 8192, CONVERT_ROW = 64 };

typedef struct convert_job {
    heft__loop loops[HEFT_MAX_RANK + 1]; /* outermost in the destination first, none of one step */
    uint32_t order[HEFT_MAX_RANK + 1];   /* the caller's number of each */
    uint32_t rank, split;                /* loops from `split` on make a piece */
    uint64_t step;                       /* steps of loop `split` in a piece */
    uint32_t from, to, swap;             /* bytes of an element; see heft__copy_loops */
    heft__cast straight, buffered;
    heft__refusal *refusal;
} convert_job;

static uint64_t convert_magnitude(int64_t step) {
    return step < 0 ? 0 - (uint64_t)step : (uint64_t)step;
}

static void convert_sort(convert_job *job, const heft__loop *loops, uint32_t rank) {
    for (uint32_t d = 0; d < rank; d++) {
        uint32_t at = job->rank;
        if (loops[d].count == 1) continue;
        for (; at > 0 && convert_magnitude(job->loops[at - 1].dst) < convert_magnitude(loops[d].dst); at--) {
            job->loops[at] = job->loops[at - 1];
            job->order[at] = job->order[at - 1];
        }
        job->loops[at] = loops[d];
        job->order[at] = d;
        job->rank++;
    }
}

/* A long row is a piece; else as many loops as the buffers hold, and of the next one as many steps. */
static void convert_split(convert_job *job) {
    const heft__loop *last = job->rank ? &job->loops[job->rank - 1] : NULL;
    uint64_t most = CONVERT_NBYTES / (job->from > job->to ? job->from : job->to), n = 1;
    job->split = job->rank;
    job->step = 1;
    if (!last) return;
    if (job->swap < 2 && last->count >= CONVERT_ROW && last->src == (int64_t)job->from && last->dst == (int64_t)job->to) {
        job->split--;
        job->step = last->count;
        return;
    }
    while (job->split > 0 && n * job->loops[job->split - 1].count <= most) n *= job->loops[--job->split].count;
    job->step = job->loops[job->split < job->rank ? job->split : 0].count;
    if (job->split > 0) {
        job->split--;
        job->step = most / n;
    }
}

/* Which element was refused: the one with number `n` of the piece that starts at `index`. */
static void convert_refuse(const convert_job *job, uint64_t n, const uint8_t *element, const uint64_t *index) {
    memset(job->refusal, 0, sizeof *job->refusal);
    memcpy(job->refusal->element, element, job->from);
    for (uint32_t d = job->rank; d-- > 0;) {
        uint64_t count = job->loops[d].count, within = d > job->split ? n % count : d == job->split ? n : 0;
        job->refusal->steps[job->order[d]] = index[d] + within;
        if (d > job->split) n /= count;
    }
}

/* The piece that starts at `index`: `steps` of loop `split`, all of those inside of it. False: an element was refused. */
static bool convert_piece(const convert_job *job, uint8_t *dst, const uint8_t *src, const uint64_t *index, uint64_t steps) {
    _Alignas(64) uint8_t raw[CONVERT_NBYTES], cooked[CONVERT_NBYTES];
    heft__loop in[HEFT_MAX_RANK + 1], out[HEFT_MAX_RANK + 1];
    bool src_packed = job->swap < 2, dst_packed = true;
    uint64_t n = 1;
    uint32_t inner = job->rank - job->split;
    for (uint32_t d = inner; d-- > 0;) {
        heft__loop loop = job->loops[job->split + d];
        if (d == 0) loop.count = steps;
        in[d] = (heft__loop){loop.count, loop.src, (int64_t)(n * job->from)};
        out[d] = (heft__loop){loop.count, (int64_t)(n * job->to), loop.dst};
        src_packed = src_packed && in[d].src == in[d].dst;
        dst_packed = dst_packed && out[d].src == out[d].dst;
        n *= loop.count;
    }
    if (!src_packed) {
        heft__copy_loops(raw, src, in, inner, job->from, job->swap);
        src = raw;
    }
    size_t done = heft__cast_run(dst_packed ? &job->straight : &job->buffered, src, dst_packed ? dst : cooked, (size_t)n);
    if (done < n) {
        convert_refuse(job, done, src + done * job->from, index);
        return false;
    }
    if (!dst_packed) heft__copy_loops(dst, cooked, out, inner, job->to, 0);
    return true;
}

bool heft__convert_loops(uint8_t *dst, const uint8_t *src, const heft__loop *loops, uint32_t rank, uint32_t swap,
                         const heft__conversion *how, heft__refusal *refusal) {
    convert_job job = {.from = heft__dtypes[how->from].bits / 8u, .to = heft__dtypes[how->to].bits / 8u, .swap = swap};
    uint64_t index[HEFT_MAX_RANK + 1] = {0};
    job.refusal = refusal;
    heft__cast_find(how->from, how->to, how->flags, &job.straight);
    heft__cast_find(how->from, how->to, how->flags & ~HEFT__CAST_STREAM, &job.buffered);
    convert_sort(&job, loops, rank);
    convert_split(&job);
    for (;;) {
        uint64_t steps = job.step;
        if (job.split < job.rank && job.loops[job.split].count - index[job.split] < steps)
            steps = job.loops[job.split].count - index[job.split];
        if (!convert_piece(&job, dst, src, index, steps)) return false;
        uint32_t d = job.split < job.rank ? job.split + 1 : 0;
        while (d-- > 0) {
            uint64_t by = d == job.split ? steps : 1;
            src += (int64_t)by * job.loops[d].src;
            dst += (int64_t)by * job.loops[d].dst;
            if ((index[d] += by) < job.loops[d].count) break;
            src -= (int64_t)index[d] * job.loops[d].src;
            dst -= (int64_t)index[d] * job.loops[d].dst;
            index[d] = 0;
        }
        if (d == UINT32_MAX) return true;
    }
}
