/* ops: compares two archives: names and shapes first, then values, piece by piece. */
#include "base/error.h"
#include "ops/stats.h"
#include "ops/sweep.h"

#include <math.h>
#include <string.h>

enum { DIFF_BLOCK = 1024 };

/* What the different elements of a piece add up to. */
typedef struct diff_sum {
    uint64_t ndifferent, nbeyond, nnonfinite, first, max_ulp;
    double max_abs, max_rel, squares;
} diff_sum;

struct heft_diff {
    heft_allocator alloc;
    heft_diff_tensor *tensors;
    uint64_t ntensors, capacity;
    uint64_t states[HEFT_DIFF_STATES];
};

typedef struct diff_job {
    const heft_archive *a, *b;
    heft_diff_options options;
    heft_diff *diff;
    uint64_t *items; /* tensors whose values are compared */
    uint64_t nitems;
    double *squares; /* of these, of a - b */
    diff_sum pieces[HEFT__SWEEP_ROUND];
    double of_byte[HEFT_DTYPE_COUNT][256]; /* values of dtypes of 8 bits */
} diff_job;

/* ---- one element ---- */

/* How far two elements are from each other; false: one of them is NaN or infinite. *size is the larger magnitude. */
static bool diff_distance(double a, double b, double *distance, double *size) {
    if (!isfinite(a) || !isfinite(b)) return false;
    double x = a < 0 ? -a : a, y = b < 0 ? -b : b;
    *distance = a > b ? a - b : b - a;
    *size = x > y ? x : y;
    return true;
}

static double diff_real(heft_scalar value) {
    return value.kind == 'i' ? (double)value.i : value.kind == 'f' || value.kind == 'c' ? value.re : (double)value.u;
}

/* Sign and magnitude of a whole number below 2^64, whatever holds it. */
static bool diff_whole(heft_scalar value, bool *below, uint64_t *magnitude) {
    double size = value.re < 0 ? -value.re : value.re;
    *below = value.kind == 'i' ? value.i < 0 : value.kind == 'f' && value.re < 0;
    *magnitude = value.kind == 'i' ? *below ? 0 - (uint64_t)value.i : (uint64_t)value.i : value.u;
    if (value.kind != 'f') return true;
    if (!(size < 18446744073709551616.0) || (double)(uint64_t)size != size) return false;
    *magnitude = (uint64_t)size;
    return true;
}

/* Integers of 64 bits, exactly, also beside floats, and complex numbers: what one double does not hold. */
static bool diff_distance_wide(heft_scalar a, heft_scalar b, double *distance, double *size, double *of_a) {
    bool a_below, b_below;
    uint64_t x, y;
    if (a.kind == 'c' || b.kind == 'c') {
        double a_im = a.kind == 'c' ? a.im : 0, b_im = b.kind == 'c' ? b.im : 0, p = diff_real(a), q = diff_real(b);
        if (!isfinite(p) || !isfinite(a_im) || !isfinite(q) || !isfinite(b_im)) return false;
        double of_b = heft__root(q * q + b_im * b_im);
        *of_a = heft__root(p * p + a_im * a_im);
        *distance = heft__root((p - q) * (p - q) + (a_im - b_im) * (a_im - b_im));
        *size = *of_a > of_b ? *of_a : of_b;
        return true;
    }
    double p = diff_real(a);
    *of_a = p < 0 ? -p : p;
    if (!diff_whole(a, &a_below, &x) || !diff_whole(b, &b_below, &y)) {
        if (!diff_distance(p, diff_real(b), distance, size)) return false;
        if (!(*distance > 0)) *distance = 1; /* 2^64, and an integer that rounds to it: one of the two is one */
        return true;
    }
    *size = (double)(x > y ? x : y);
    *distance = a_below != b_below ? (double)x + (double)y : (double)(x > y ? x - y : y - x);
    return true;
}

static uint64_t diff_bits(const uint8_t *data, uint64_t index, uint32_t nbytes) {
    uint8_t u8;
    uint16_t u16;
    uint32_t u32;
    uint64_t u64;
    switch (nbytes) {
    case 1: memcpy(&u8, data + index, 1); return u8;
    case 2: memcpy(&u16, data + 2 * index, 2); return u16;
    case 4: memcpy(&u32, data + 4 * index, 4); return u32;
    default: memcpy(&u64, data + 8 * index, 8); return u64;
    }
}

/* Representable numbers from one float to another: their bits count up from zero on both sides. */
static uint64_t diff_ulp(const heft__dtype_info *info, uint64_t a, uint64_t b) {
    if (info->exponent_bits + info->mantissa_bits == info->bits) return a > b ? a - b : b - a; /* no sign: E8M0 */
    uint64_t sign = UINT64_C(1) << (info->bits - 1), x = a & ~sign, y = b & ~sign;
    return (a & sign) != (b & sign) ? x + y : x > y ? x - y : y - x;
}

/* ---- one piece ---- */

typedef struct diff_pair {
    const diff_job *job;
    heft_dtype dtype[2];
    const uint8_t *data[2];
    bool same, wide, ulp;
    uint32_t nbytes; /* of an element; 0: less than one */
} diff_pair;

static void diff_element(const diff_pair *pair, uint64_t i, double a, double b, uint64_t index, diff_sum *sum) {
    double distance, size, magnitude = a < 0 ? -a : a;
    bool finite = pair->wide
                      ? diff_distance_wide(heft_dtype_get(pair->dtype[0], pair->data[0], i),
                                           heft_dtype_get(pair->dtype[1], pair->data[1], i), &distance, &size, &magnitude)
                      : diff_distance(a, b, &distance, &size);
    if (!pair->same && finite && !(distance > 0)) return;
    if (!pair->same && !finite && (a == b || (isnan(a) && isnan(b)))) return;
    if (sum->ndifferent++ == 0) sum->first = index;
    if (!finite) {
        sum->nnonfinite++;
        sum->nbeyond += !(isnan(a) && isnan(b)); /* NaNs of other bits are close */
        return;
    }
    sum->nbeyond += distance > pair->job->options.tolerance + pair->job->options.relative * magnitude;
    sum->squares += distance * distance;
    if (distance > sum->max_abs) sum->max_abs = distance;
    if (size > 0 && distance / size > sum->max_rel) sum->max_rel = distance / size;
    if (!pair->ulp) return;
    uint64_t ulp = diff_ulp(&heft__dtypes[pair->dtype[0]], diff_bits(pair->data[0], i, pair->nbytes),
                            diff_bits(pair->data[1], i, pair->nbytes));
    if (ulp > sum->max_ulp) sum->max_ulp = ulp;
}

/* Elements [i, i + n) of a piece. */
static void diff_block(const diff_pair *pair, uint64_t i, uint64_t n, uint64_t first, diff_sum *sum) {
    double a[DIFF_BLOCK], b[DIFF_BLOCK];
    if (pair->same && pair->nbytes &&
        memcmp(pair->data[0] + i * pair->nbytes, pair->data[1] + i * pair->nbytes, n * pair->nbytes) == 0)
        return;
    heft__stats_decode(pair->dtype[0], pair->job->of_byte[pair->dtype[0]], pair->data[0], i, n, a);
    heft__stats_decode(pair->dtype[1], pair->job->of_byte[pair->dtype[1]], pair->data[1], i, n, b);
    for (uint64_t k = 0; k < n; k++) {
        bool equal = a[k] == b[k];
        if (pair->same && pair->nbytes)
            equal = memcmp(pair->data[0] + (i + k) * pair->nbytes, pair->data[1] + (i + k) * pair->nbytes, pair->nbytes) == 0;
        if (!equal || (pair->wide && !pair->same)) diff_element(pair, i + k, a[k], b[k], first + i + k, sum);
    }
}

static bool diff_is_wide(heft_dtype dtype) {
    const heft__dtype_info *info = &heft__dtypes[dtype];
    return info->kind == 'c' || (info->bits == 64 && (info->kind == 'i' || info->kind == 'u'));
}

static heft_dtype diff_dtype(const heft_archive *archive, uint64_t id) {
    uint32_t file;
    return heft__archive_entry(archive, id, &file)->dtype;
}

static void diff_piece(void *ctx, const heft__sweep_piece *piece) {
    diff_job *job = ctx;
    const heft_diff_tensor *tensor = &job->diff->tensors[job->items[piece->item]];
    diff_sum *sum = &job->pieces[piece->slot];
    *sum = (diff_sum){.first = HEFT_NONE};
    diff_pair pair = {.job = job, .dtype = {diff_dtype(job->a, tensor->a), diff_dtype(job->b, tensor->b)},
                      .data = {piece->data[0], piece->data[1]}};
    const heft__dtype_info *info = &heft__dtypes[pair.dtype[0]];
    pair.same = pair.dtype[0] == pair.dtype[1];
    pair.nbytes = info->bits / 8u;
    if (pair.same && memcmp(pair.data[0], pair.data[1], (piece->nelems * info->bits + 7) / 8) == 0) return;
    pair.ulp = pair.same && info->kind == 'f' && info->bits >= 8;
    pair.wide = diff_is_wide(pair.dtype[0]) || diff_is_wide(pair.dtype[1]);
    for (uint64_t i = 0; i < piece->nelems; i += DIFF_BLOCK)
        diff_block(&pair, i, piece->nelems - i < DIFF_BLOCK ? piece->nelems - i : DIFF_BLOCK, piece->first, sum);
}

static void diff_merge(void *ctx, const heft__sweep_piece *piece) {
    diff_job *job = ctx;
    heft_diff_tensor *tensor = &job->diff->tensors[job->items[piece->item]];
    const diff_sum *sum = &job->pieces[piece->slot];
    if (sum->ndifferent == 0) return;
    if (sum->first < tensor->first) tensor->first = sum->first;
    tensor->ndifferent += sum->ndifferent;
    tensor->nbeyond += sum->nbeyond;
    tensor->nnonfinite += sum->nnonfinite;
    if (sum->max_abs > tensor->max_abs) tensor->max_abs = sum->max_abs;
    if (sum->max_rel > tensor->max_rel) tensor->max_rel = sum->max_rel;
    if (tensor->max_ulp != HEFT_NONE && sum->max_ulp > tensor->max_ulp) tensor->max_ulp = sum->max_ulp;
    job->squares[piece->item] += sum->squares;
}

static heft_status diff_view(const void *ctx, uint64_t item, uint32_t side, heft_view *out, heft_error *err) {
    const diff_job *job = ctx;
    const heft_diff_tensor *tensor = &job->diff->tensors[job->items[item]];
    return heft_view_of(side ? job->b : job->a, side ? tensor->b : tensor->a, out, err);
}

/* ---- names and shapes ---- */

static heft_status diff_push(heft_diff *diff, heft_diff_tensor tensor, heft_error *err) {
    if (!heft__grow(&diff->alloc, (void **)&diff->tensors, &diff->capacity, diff->ntensors, sizeof tensor, 64))
        return heft__fail_memory(err, diff->capacity * 2 * sizeof tensor);
    diff->tensors[diff->ntensors++] = tensor;
    return HEFT_OK;
}

static heft_status diff_names(diff_job *job, heft_error *err) {
    heft_status status = HEFT_OK;
    uint32_t file;
    for (uint64_t id = 0; id < job->a->ntensors && status == HEFT_OK; id++) {
        const heft__entry *a = heft__archive_entry(job->a, id, &file);
        heft_diff_tensor tensor = {.a = id, .b = HEFT_NONE, .state = HEFT_DIFF_REMOVED, .first = HEFT_NONE,
                                   .max_ulp = HEFT_NONE};
        if (heft_archive_find(job->b, a->name, a->name_len, &tensor.b, NULL) != HEFT_OK) tensor.b = HEFT_NONE;
        if (tensor.b != HEFT_NONE) {
            const heft__entry *b = heft__archive_entry(job->b, tensor.b, &file);
            tensor.dtype_differs = a->dtype != b->dtype;
            bool shape = a->rank == b->rank && (a->rank == 0 || memcmp(a->shape, b->shape, a->rank * sizeof *a->shape) == 0);
            tensor.state = shape ? HEFT_DIFF_UNREAD : HEFT_DIFF_SHAPE;
            if (!tensor.dtype_differs && heft__dtypes[a->dtype].kind == 'f' && heft__dtypes[a->dtype].bits >= 8)
                tensor.max_ulp = 0;
        }
        status = diff_push(job->diff, tensor, err);
    }
    for (uint64_t id = 0; id < job->b->ntensors && status == HEFT_OK; id++) {
        const heft__entry *b = heft__archive_entry(job->b, id, &file);
        uint64_t found;
        if (heft_archive_find(job->a, b->name, b->name_len, &found, NULL) == HEFT_OK) continue;
        status = diff_push(job->diff, (heft_diff_tensor){.a = HEFT_NONE, .b = id, .state = HEFT_DIFF_ADDED,
                                                         .first = HEFT_NONE, .max_ulp = HEFT_NONE}, err);
    }
    return status;
}

/* ---- values ---- */

/* Norms of a, of the tensors that changed only: what is equal is not looked at twice. */
static heft_status diff_norms(diff_job *job, heft_error *err) {
    const heft_allocator *alloc = &job->diff->alloc;
    uint64_t n = 0, nbytes = job->nitems * sizeof(uint64_t), stats_nbytes;
    uint64_t *ids = heft__alloc(alloc, nbytes);
    if (!ids) return heft__fail_memory(err, nbytes);
    for (uint64_t i = 0; i < job->nitems; i++)
        if (job->squares[i] > 0) ids[n++] = job->diff->tensors[job->items[i]].a;
    stats_nbytes = n * sizeof(heft_stats);
    heft_stats *stats = heft__alloc(alloc, stats_nbytes);
    heft_read_options options = {.workers = job->options.workers};
    heft_status status = stats ? HEFT_OK : heft__fail_memory(err, stats_nbytes);
    if (status == HEFT_OK && n) status = heft__stats_tensors(job->a, ids, n, &options, alloc, stats, NULL, NULL, err);
    for (uint64_t i = job->nitems; i-- > 0 && status == HEFT_OK;) {
        if (!(job->squares[i] > 0)) continue;
        double of_a = stats[--n].norm, of_difference = heft__root(job->squares[i]);
        job->diff->tensors[job->items[i]].rel_l2 = of_a > 0 && isfinite(of_difference) ? of_difference / of_a
                                                                                                            : (double)INFINITY;
    }
    heft__free(alloc, stats, stats_nbytes);
    heft__free(alloc, ids, nbytes);
    return status;
}

static heft_status diff_values(diff_job *job, heft_error *err) {
    heft__sweep sweep = {.nitems = job->nitems, .nsides = 2, .view = diff_view, .piece = diff_piece, .merge = diff_merge,
                         .ctx = job, .workers = job->options.workers, .progress = job->options.progress,
                         .progress_ctx = job->options.progress_ctx, .alloc = job->diff->alloc};
    for (heft_dtype dtype = 1; dtype < HEFT_DTYPE_COUNT; dtype++)
        if (heft__dtypes[dtype].bits == 8) heft__stats_table(dtype, job->of_byte[dtype]);
    heft_status status = heft__sweep_run(&sweep, NULL, err);
    if (status == HEFT_OK) status = diff_norms(job, err);
    for (uint64_t i = 0; i < job->nitems && status == HEFT_OK; i++) {
        heft_diff_tensor *tensor = &job->diff->tensors[job->items[i]];
        heft_view view;
        status = heft_view_of(job->a, tensor->a, &view, err);
        if (status == HEFT_OK) tensor->nelems = heft_view_nelems(&view);
        tensor->state = tensor->nbeyond ? HEFT_DIFF_CHANGED : tensor->ndifferent ? HEFT_DIFF_CLOSE : HEFT_DIFF_EQUAL;
        bool tolerant = job->options.tolerance > 0 || job->options.relative > 0;
        if (tensor->ndifferent && !tolerant) tensor->state = HEFT_DIFF_CHANGED;
    }
    return status;
}

static heft_status diff_run(diff_job *job, heft_error *err) {
    heft_diff *diff = job->diff;
    heft_status status = diff_names(job, err);
    uint64_t nbytes = diff->ntensors * sizeof(uint64_t);
    if (status == HEFT_OK && !job->options.headers_only) {
        job->items = heft__alloc(&diff->alloc, nbytes);
        job->squares = heft__alloc_zero(&diff->alloc, nbytes);
        for (uint64_t i = 0; job->items && i < diff->ntensors; i++)
            if (diff->tensors[i].state == HEFT_DIFF_UNREAD) job->items[job->nitems++] = i;
        status = job->items && job->squares ? diff_values(job, err) : heft__fail_memory(err, nbytes);
        heft__free(&diff->alloc, job->items, nbytes);
        heft__free(&diff->alloc, job->squares, nbytes);
    }
    for (uint64_t i = 0; i < diff->ntensors && status == HEFT_OK; i++) diff->states[diff->tensors[i].state]++;
    return status;
}

heft_status heft__diff(const heft_archive *a, const heft_archive *b, const heft_diff_options *options,
                       const heft_allocator *alloc, heft_diff **out, heft_error *err) {
    diff_job *job = heft__alloc_zero(alloc, sizeof *job);
    heft_diff *diff = heft__alloc_zero(alloc, sizeof *diff);
    heft_status status = job && diff ? HEFT_OK : heft__fail_memory(err, sizeof *job);
    if (status == HEFT_OK) {
        diff->alloc = *alloc;
        *job = (diff_job){.a = a, .b = b, .options = *options, .diff = diff};
        status = diff_run(job, err);
    }
    heft__free(alloc, job, sizeof *job);
    if (status != HEFT_OK) {
        if (diff && diff->alloc.alloc) heft_diff_free(diff);
        else heft__free(alloc, diff, sizeof *diff);
        diff = NULL;
    }
    *out = diff;
    return status;
}

uint64_t heft_diff_count(const heft_diff *diff) {
    return diff->ntensors;
}

uint64_t heft_diff_count_of(const heft_diff *diff, heft_diff_state state) {
    return state < HEFT_DIFF_STATES ? diff->states[state] : 0;
}

heft_status heft_diff_get(const heft_diff *diff, uint64_t index, heft_diff_tensor *out, heft_error *err) {
    if (index >= diff->ntensors) {
        memset(out, 0, sizeof *out);
        return heft__fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL, "index %llu of %llu names",
                          (unsigned long long)index, (unsigned long long)diff->ntensors);
    }
    *out = diff->tensors[index];
    return HEFT_OK;
}

void heft_diff_free(heft_diff *diff) {
    if (!diff) return;
    heft_allocator alloc = diff->alloc;
    heft__free(&alloc, diff->tensors, diff->capacity * sizeof *diff->tensors);
    heft__free(&alloc, diff, sizeof *diff);
}
