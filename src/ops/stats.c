/* ops: statistics of a view's values, read piece by piece in bounded memory. */
#include "base/alloc.h"
#include "base/error.h"
#include "base/options.h"
#include "base/parallel.h"
#include "catalog/catalog.h"
#include "heft/reads.h"
#include "plan/plan.h"
#include "view/view.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>

/* Pieces of at most STATS_PIECE bytes are read by the workers, STATS_ROUND of them at a time; what they add up to is merged in
 * their order, so that the result does not depend on the number of workers. Within a piece STATS_BLOCK values at a time are
 * decoded and summed around their own mean. */
#define STATS_PIECE (UINT64_C(4) << 20)
#define STATS_ONE_WORKER (UINT64_C(8) << 20) /* less than this is not worth a thread */
enum { STATS_ROUND = 32, STATS_BLOCK = 1024, STATS_WORKERS = 16 };

/* Count, mean and sum of squared distances from it of finite values, and what is counted beside them. */
typedef struct stats_sum {
    uint64_t finite, nans, infs, zeros;
    double min, max; /* where there is any: infinities count */
    double mean, squares;
} stats_sum;

typedef struct stats_worker {
    void *data;
    heft_read_stats read;
    heft_error err;
    heft_status status; /* of the piece `failed`, its last one */
    uint64_t failed;
} stats_worker;

typedef struct stats_job {
    heft_view view; /* the same elements in the order of the file */
    uint32_t cut;   /* a piece is `chunk` steps of this dim, whole ones of the dims after it, one of those before */
    int64_t chunk, nchunks;
    uint64_t npieces, piece_nbytes;
    uint64_t first;  /* piece of this round */
    atomic_uint next;
    atomic_bool stop;
    stats_sum sums[STATS_ROUND];
    stats_worker *workers;
    heft_read_options options;
    double of_byte[256]; /* values of a dtype of 8 bits */
    bool with_err;
} stats_job;

/* The square root of a value >= 0 by Newton's method, to be independent of the mathematics library. */
static double stats_root(double value) {
    if (!(value > 0) || isinf(value)) return value;
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    bits = (bits >> 1) + (UINT64_C(0x1FF8) << 48); /* half the exponent */
    double root;
    memcpy(&root, &bits, sizeof root);
    for (int i = 0; i < 6; i++) root = 0.5 * (root + value / root);
    return root;
}

static double stats_magnitude(double re, double im) {
    if (isinf(re) || isinf(im)) return (double)INFINITY;
    return stats_root(re * re + im * im); /* parts are F32: the squares fit a double */
}

static double stats_value(heft_dtype dtype, const void *data, uint64_t index) {
    heft_scalar value = heft_dtype_get(dtype, data, index);
    switch (value.kind) {
    case 'i': return (double)value.i;
    case 'f': return value.re;
    case 'c': return stats_magnitude(value.re, value.im);
    default: return (double)value.u;
    }
}

static float stats_float(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* F16 by widening its fields to those of F32 and scaling, which makes its subnormals right too. */
static float stats_half(uint16_t half) {
    uint32_t bits = (uint32_t)(half & 0x7FFF) << 13, sign = (uint32_t)(half & 0x8000) << 16;
    if ((half & 0x7C00) == 0x7C00) return stats_float(bits | sign | 0x7F800000);
    return stats_float(bits | sign) * 0x1p112f;
}

/* The fast ways for what models are made of; the rest by the general one. */
static void stats_decode(const stats_job *job, const void *data, uint64_t first, uint64_t count, double *out) {
    heft_dtype dtype = job->view.dtype;
    if (dtype == HEFT_F32) {
        const float *values = (const float *)data + first;
        for (uint64_t i = 0; i < count; i++) out[i] = (double)values[i];
    } else if (dtype == HEFT_BF16) {
        const uint16_t *values = (const uint16_t *)data + first;
        for (uint64_t i = 0; i < count; i++) out[i] = (double)stats_float((uint32_t)values[i] << 16);
    } else if (dtype == HEFT_F16) {
        const uint16_t *values = (const uint16_t *)data + first;
        for (uint64_t i = 0; i < count; i++) out[i] = (double)stats_half(values[i]);
    } else if (heft_dtype_bits(dtype) == 8) {
        const uint8_t *values = (const uint8_t *)data + first;
        for (uint64_t i = 0; i < count; i++) out[i] = job->of_byte[values[i]];
    } else {
        for (uint64_t i = 0; i < count; i++) out[i] = stats_value(dtype, data, first + i);
    }
}

/* Adds the sums of other values (Chan, Golub, LeVeque: Updating formulae and a pairwise algorithm, 1979). */
static void stats_merge(stats_sum *sum, const stats_sum *other) {
    sum->nans += other->nans;
    sum->infs += other->infs;
    sum->zeros += other->zeros;
    if (other->min < sum->min) sum->min = other->min;
    if (other->max > sum->max) sum->max = other->max;
    if (other->finite == 0) return;
    double a = (double)sum->finite, b = (double)other->finite, delta = other->mean - sum->mean;
    sum->mean += delta * (b / (a + b));
    sum->squares += other->squares + delta * delta * (a / (a + b) * b);
    sum->finite += other->finite;
}

static const stats_sum stats_nothing = {.min = (double)INFINITY, .max = -(double)INFINITY};

/* Counts one value of any kind; true if it is finite. */
static bool stats_count(stats_sum *sum, double value) {
    if (isnan(value)) {
        sum->nans++;
        return false;
    }
    if (value < sum->min) sum->min = value;
    if (value > sum->max) sum->max = value;
    sum->zeros += value == 0;
    if (!isinf(value)) return true;
    sum->infs++;
    return false;
}

/* Sums of values, and of their squared distances from `mean`: four side by side, so that an addition does not wait for the one
 * before. The values that are not finite have been taken out. */
static double stats_total(const double *v, uint64_t count) {
    double a = 0, b = 0, c = 0, d = 0;
    uint64_t i = 0;
    for (; i + 4 <= count; i += 4) a += v[i], b += v[i + 1], c += v[i + 2], d += v[i + 3];
    for (; i < count; i++) a += v[i];
    return (a + b) + (c + d);
}

static double stats_squares(const double *v, uint64_t count, double mean) {
    double a = 0, b = 0, c = 0, d = 0;
    uint64_t i = 0;
    for (; i + 4 <= count; i += 4) {
        double p = v[i] - mean, q = v[i + 1] - mean, r = v[i + 2] - mean, s = v[i + 3] - mean;
        a += p * p, b += q * q, c += r * r, d += s * s;
    }
    for (; i < count; i++) a += (v[i] - mean) * (v[i] - mean);
    return (a + b) + (c + d);
}

/* What a block adds up to; `values` is used up. */
static stats_sum stats_block(double *values, uint64_t count) {
    stats_sum sum = stats_nothing;
    double probe = stats_total(values, count);
    if (isfinite(probe)) { /* then all of them are */
        sum.finite = count;
        for (uint64_t i = 0; i < count; i++) {
            sum.min = values[i] < sum.min ? values[i] : sum.min;
            sum.max = values[i] > sum.max ? values[i] : sum.max;
            sum.zeros += values[i] == 0;
        }
    } else {
        for (uint64_t i = 0; i < count; i++)
            if (stats_count(&sum, values[i])) values[sum.finite++] = values[i];
        probe = stats_total(values, sum.finite);
    }
    if (sum.finite == 0) return sum;
    sum.mean = probe / (double)sum.finite;
    sum.squares = stats_squares(values, sum.finite, sum.mean);
    return sum;
}

/* The view's elements in the order in which they lie: no order matters to a sum, and reading is best that way. */
static void stats_normalize(const heft_view *view, heft_view *out) {
    heft__view_derive(view, 0, view->offset, out);
    for (uint32_t axis = 0; axis < view->rank; axis++) {
        int64_t dim = view->shape[axis], stride = view->stride[axis];
        if (dim == 1) continue;
        if (stride < 0) out->offset += (dim - 1) * stride, stride = -stride;
        uint32_t at = out->rank++;
        for (; at > 0 && out->stride[at - 1] < stride; at--) {
            out->shape[at] = out->shape[at - 1];
            out->stride[at] = out->stride[at - 1];
        }
        out->shape[at] = dim;
        out->stride[at] = stride;
    }
    out->rank = heft__view_collapse(out, out->shape, out->stride); /* in place: it writes no further than it has read */
    if (out->rank == 0) out->rank = 1, out->shape[0] = 1, out->stride[0] = 1;
}

/* Parts the view into pieces. A multiple of 8 elements at a time keeps pieces of a packed sub-byte view on bytes. */
static void stats_cut(stats_job *job) {
    const heft_view *view = &job->view;
    int64_t most = (int64_t)(STATS_PIECE * 8 / heft_dtype_bits(view->dtype)) & ~INT64_C(7), inner = 1;
    job->cut = view->rank - 1;
    while (job->cut > 0 && view->shape[job->cut] <= most / inner) inner *= view->shape[job->cut--];
    job->chunk = most / inner;
    if (job->chunk > view->shape[job->cut]) job->chunk = view->shape[job->cut];
    job->nchunks = (view->shape[job->cut] - 1) / job->chunk + 1;
    job->npieces = (uint64_t)job->nchunks;
    for (uint32_t axis = 0; axis < job->cut; axis++) job->npieces *= (uint64_t)view->shape[axis];
    job->piece_nbytes = ((uint64_t)(job->chunk * inner) * heft_dtype_bits(view->dtype) + 7) / 8;
}

static void stats_piece(const stats_job *job, uint64_t number, heft_view *piece) {
    const heft_view *view = &job->view;
    uint32_t cut = job->cut;
    int64_t start = (int64_t)(number % (uint64_t)job->nchunks) * job->chunk;
    int64_t offset = view->offset + start * view->stride[cut];
    number /= (uint64_t)job->nchunks;
    for (uint32_t axis = cut; axis-- > 0;) {
        offset += (int64_t)(number % (uint64_t)view->shape[axis]) * view->stride[axis];
        number /= (uint64_t)view->shape[axis];
    }
    for (uint32_t axis = cut; axis < view->rank; axis++) {
        piece->shape[axis - cut] = view->shape[axis];
        piece->stride[axis - cut] = view->stride[axis];
    }
    if (piece->shape[0] - start < job->chunk) piece->shape[0] -= start;
    else piece->shape[0] = job->chunk;
    heft__view_derive(view, view->rank - cut, offset, piece);
}

static void stats_add_read(heft_read_stats *sum, const heft_read_stats *other) {
    sum->kept_nbytes += other->kept_nbytes;
    sum->requested_nbytes += other->requested_nbytes;
    sum->over_read_nbytes += other->over_read_nbytes;
    sum->spanned_nbytes += other->spanned_nbytes;
    sum->requests += other->requests;
    sum->short_reads += other->short_reads;
    sum->retries += other->retries;
}

static void stats_work(void *ctx, uint32_t number) {
    stats_job *job = ctx;
    stats_worker *worker = &job->workers[number];
    double values[STATS_BLOCK];
    for (;;) {
        uint64_t at = atomic_fetch_add(&job->next, 1);
        if (at >= STATS_ROUND || job->first + at >= job->npieces || atomic_load(&job->stop)) return;
        heft_view piece;
        heft_read_stats read = {0};
        stats_piece(job, job->first + at, &piece);
        worker->status = heft_read(&piece, worker->data, job->piece_nbytes, &job->options, &read,
                                   job->with_err ? &worker->err : NULL);
        stats_add_read(&worker->read, &read);
        if (worker->status != HEFT_OK) {
            worker->failed = job->first + at;
            atomic_store(&job->stop, true);
            return;
        }
        stats_sum *sum = &job->sums[at];
        *sum = stats_nothing;
        uint64_t nelems = heft_view_nelems(&piece);
        for (uint64_t i = 0; i < nelems; i += STATS_BLOCK) {
            uint64_t count = nelems - i < STATS_BLOCK ? nelems - i : STATS_BLOCK;
            stats_decode(job, worker->data, i, count, values);
            stats_sum block = stats_block(values, count);
            stats_merge(sum, &block);
        }
    }
}

/* The failure of the earliest piece that failed. */
static heft_status stats_failure(const stats_job *job, uint32_t nworkers, heft_error *err) {
    const stats_worker *first = NULL;
    for (uint32_t i = 0; i < nworkers; i++)
        if (job->workers[i].status != HEFT_OK && (!first || job->workers[i].failed < first->failed)) first = &job->workers[i];
    if (!first) return HEFT_OK;
    if (err) *err = first->err;
    return first->status;
}

static heft_status stats_progress(const stats_job *job, const heft_read_options *caller, uint64_t done, heft_error *err) {
    if (!caller->progress || caller->progress(caller->progress_ctx, done, heft_view_nbytes(&job->view)) == 0) return HEFT_OK;
    return heft__view_fail(&job->view, NULL, err, HEFT_CANCELLED, HEFT_FAULT_CALL, "cancelled by the caller");
}

/* Runs all rounds and merges them into *sum. The caller's progress is told between rounds. */
static heft_status stats_rounds(stats_job *job, uint32_t nworkers, const heft_read_options *caller, stats_sum *sum,
                                heft_error *err) {
    uint64_t piece = heft_view_nbytes(&job->view) / job->npieces; /* all but a few are equal */
    for (job->first = 0; job->first < job->npieces; job->first += STATS_ROUND) {
        heft_status status = stats_progress(job, caller, job->first * piece, err);
        if (status != HEFT_OK) return status;
        atomic_store(&job->next, 0);
        heft__parallel(nworkers, stats_work, job);
        status = stats_failure(job, nworkers, err);
        if (status != HEFT_OK) return status;
        for (uint64_t i = 0; i < STATS_ROUND && job->first + i < job->npieces; i++) stats_merge(sum, &job->sums[i]);
    }
    return stats_progress(job, caller, heft_view_nbytes(&job->view), err);
}

/* Memory of the workers around the rounds. */
static heft_status stats_run(stats_job *job, uint32_t nworkers, const heft_allocator *alloc, const heft_read_options *caller,
                             stats_sum *sum, heft_read_stats *read, heft_error *err) {
    heft_status status = HEFT_OK;
    job->workers = heft__alloc_zero(alloc, nworkers * sizeof *job->workers);
    if (!job->workers) return heft__fail_memory(err, nworkers * sizeof *job->workers);
    for (uint32_t i = 0; i < nworkers && status == HEFT_OK; i++) {
        job->workers[i].data = heft__alloc(alloc, job->piece_nbytes);
        if (!job->workers[i].data) status = heft__fail_memory(err, job->piece_nbytes);
    }
    if (status == HEFT_OK) status = stats_rounds(job, nworkers, caller, sum, err);
    for (uint32_t i = 0; i < nworkers; i++) {
        stats_add_read(read, &job->workers[i].read);
        heft__free(alloc, job->workers[i].data, job->piece_nbytes);
    }
    heft__free(alloc, job->workers, nworkers * sizeof *job->workers);
    return status;
}

static uint32_t stats_worker_count(const stats_job *job) {
    uint64_t most = job->npieces < STATS_WORKERS ? job->npieces : STATS_WORKERS, wanted = job->options.workers;
    if (wanted == 0) wanted = heft_view_nbytes(&job->view) < STATS_ONE_WORKER ? 1 : heft__default_workers();
    return (uint32_t)(wanted < most ? wanted : most);
}

heft_status heft_view_stats(const heft_view *view, const heft_read_options *options, heft_stats *out,
                            heft_read_stats *stats, heft_error *err) {
    heft_read_stats read = {0};
    stats_sum sum = stats_nothing;
    stats_job job = {.with_err = err != NULL};
    heft_allocator alloc;
    if (out) *out = (heft_stats){0};
    if (stats) *stats = read;
    if (!view || !view->archive || !out)
        return heft__view_fail(NULL, NULL, err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL, "%s",
                               out ? "the view is NULL or not one that heft made" : "out is NULL");
    heft_read_options caller;
    heft_status status = heft__options_copy(&caller, sizeof caller, options, "heft_read_options", err);
    if (status != HEFT_OK) return status;
    uint64_t count;
    status = heft__plan_check_view(view, &count, err); /* views are plain values of the caller */
    if (status != HEFT_OK) return status;
    if (!heft__allocator_from(caller.allocator ? caller.allocator : &view->archive->alloc, &alloc))
        return heft__fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL, "the allocator lacks a function");
    const heft_stats none = {.min = (double)NAN, .max = (double)NAN, .mean = (double)NAN, .std = (double)NAN};
    if (count == 0) return *out = none, HEFT_OK;
    stats_normalize(view, &job.view);
    stats_cut(&job);
    for (uint32_t i = 0; i < 256 && heft_dtype_bits(view->dtype) == 8; i++) {
        uint8_t byte = (uint8_t)i;
        job.of_byte[i] = stats_value(view->dtype, &byte, 0);
    }
    job.options = caller;
    uint32_t nworkers = stats_worker_count(&job);
    job.options.workers = 1; /* of one piece's read */
    job.options.keep_file_order = false;
    job.options.progress = NULL;
    status = stats_run(&job, nworkers, &alloc, &caller, &sum, &read, err);
    read.workers = nworkers;
    if (stats) *stats = read;
    if (status != HEFT_OK) return status;
    *out = none;
    out->count = count;
    out->nans = sum.nans;
    out->infs = sum.infs;
    out->zeros = sum.zeros;
    if (sum.min <= sum.max) out->min = sum.min, out->max = sum.max;
    if (sum.finite) out->mean = sum.mean, out->std = stats_root(sum.squares / (double)sum.finite);
    return HEFT_OK;
}
