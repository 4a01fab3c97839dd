/* ops: runs a sweep: views are cut into pieces, workers draw pieces, results are merged in order. */
#include "ops/sweep.h"

#include "base/error.h"
#include "base/os.h"
#include "base/parallel.h"
#include "ops/run.h"
#include "view/view.h"

#include <string.h>

#define SWEEP_ONE_WORKER (UINT64_C(8) << 20) /* less than this is not worth a thread */

/* An item, cut: a piece is `chunk` steps of dim `cut`, whole ones of the dims after it, one of those before. */
typedef struct sweep_cut {
    heft_view side[2];
    uint32_t cut;
    int64_t chunk, nchunks, inner; /* inner: elements of a step */
    uint64_t npieces;
} sweep_cut;

typedef struct sweep_worker {
    sweep_cut cut; /* of `item` */
    uint64_t item;
    uint8_t *data[2];
    heft_read_stats read;
    heft_status status; /* of the piece `failed`, its last one */
    uint64_t failed;
    heft_error err;
} sweep_worker;

typedef struct sweep_job {
    const heft__sweep *sweep;
    uint64_t *starts; /* nitems + 1: number of the first piece of each item */
    uint64_t npieces, total_nbytes;
    uint64_t side_nbytes[2]; /* of the largest piece */
    uint64_t first, count;   /* pieces of this round */
    atomic_uint_fast64_t next, done_nbytes;
    atomic_bool stop, cancelled;
    sweep_worker *workers;
    uint32_t nworkers;
    double reported;
} sweep_job;

/* ---- cutting ---- */

/* The view's elements in the order in which they lie: reading is best that way. */
static void sweep_normalize(const heft_view *view, heft_view *out) {
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
}

static void sweep_collapse(heft_view *view) {
    view->rank = heft__view_collapse(view, view->shape, view->stride); /* in place: it writes no further than it has read */
    if (view->rank == 0) view->rank = 1, view->shape[0] = 1, view->stride[0] = 1;
}

/* The sides of an item with the fewest dims that both share. */
static heft_status sweep_sides(const heft__sweep *sweep, uint64_t item, sweep_cut *cut, heft_error *err) {
    bool flat = true;
    for (uint32_t s = 0; s < sweep->nsides; s++) {
        heft_status status = sweep->view(sweep->ctx, item, s, &cut->side[s], err);
        if (status != HEFT_OK) return status;
        flat = flat && heft_view_is_contiguous(&cut->side[s]);
    }
    if (heft_view_nelems(&cut->side[0]) == 0) return HEFT_OK;
    if (sweep->nsides == 1 && sweep->any_order) {
        heft_view view = cut->side[0];
        sweep_normalize(&view, &cut->side[0]);
        flat = true;
    }
    for (uint32_t s = 0; s < sweep->nsides && (flat || sweep->nsides == 1); s++) sweep_collapse(&cut->side[s]);
    for (uint32_t s = 0; s < sweep->nsides; s++) /* a view of rank 0 that could not be collapsed */
        if (cut->side[s].rank == 0) cut->side[s].rank = 1, cut->side[s].shape[0] = 1, cut->side[s].stride[0] = 1;
    return HEFT_OK;
}

/* Parts an item into pieces. A multiple of 8 elements at a time keeps pieces of a packed sub-byte view on bytes. */
static heft_status sweep_cut_item(const heft__sweep *sweep, uint64_t item, sweep_cut *cut, heft_error *err) {
    heft_status status = sweep_sides(sweep, item, cut, err);
    const heft_view *view = &cut->side[0];
    cut->npieces = 0;
    if (status != HEFT_OK || heft_view_nelems(view) == 0) return status;
    uint32_t bits = heft_dtype_bits(view->dtype);
    if (sweep->nsides == 2 && heft_dtype_bits(cut->side[1].dtype) > bits) bits = heft_dtype_bits(cut->side[1].dtype);
    int64_t most = (int64_t)(HEFT__SWEEP_PIECE * 8 / bits) & ~INT64_C(7);
    cut->inner = 1;
    cut->cut = view->rank - 1;
    while (cut->cut > 0 && view->shape[cut->cut] <= most / cut->inner) cut->inner *= view->shape[cut->cut--];
    cut->chunk = most / cut->inner;
    if (cut->chunk > view->shape[cut->cut]) cut->chunk = view->shape[cut->cut];
    cut->nchunks = (view->shape[cut->cut] - 1) / cut->chunk + 1;
    cut->npieces = (uint64_t)cut->nchunks;
    for (uint32_t axis = 0; axis < cut->cut; axis++) cut->npieces *= (uint64_t)view->shape[axis];
    return HEFT_OK;
}

static uint64_t sweep_nbytes(heft_dtype dtype, uint64_t nelems) {
    return (nelems * heft_dtype_bits(dtype) + 7) / 8;
}

/* Piece `number` of an item: the view of one side, and which elements these are. */
static void sweep_piece_of(const sweep_cut *cut, uint32_t side, uint64_t number, heft_view *out, uint64_t *first) {
    const heft_view *view = &cut->side[side];
    uint32_t at = cut->cut;
    int64_t start = (int64_t)(number % (uint64_t)cut->nchunks) * cut->chunk, offset = view->offset + start * view->stride[at];
    number /= (uint64_t)cut->nchunks;
    *first = (number * (uint64_t)view->shape[at] + (uint64_t)start) * (uint64_t)cut->inner;
    for (uint32_t axis = at; axis-- > 0;) {
        offset += (int64_t)(number % (uint64_t)view->shape[axis]) * view->stride[axis];
        number /= (uint64_t)view->shape[axis];
    }
    for (uint32_t axis = at; axis < view->rank; axis++) {
        out->shape[axis - at] = view->shape[axis];
        out->stride[axis - at] = view->stride[axis];
    }
    out->shape[0] = view->shape[at] - start < cut->chunk ? view->shape[at] - start : cut->chunk;
    heft__view_derive(view, view->rank - at, offset, out);
}

/* ---- reading ---- */

static void sweep_count(heft_read_stats *sum, const heft_read_stats *other) {
    sum->kept_nbytes += other->kept_nbytes;
    sum->requested_nbytes += other->requested_nbytes;
    sum->over_read_nbytes += other->over_read_nbytes;
    sum->spanned_nbytes += other->spanned_nbytes;
    sum->requests += other->requests;
    sum->short_reads += other->short_reads;
    sum->retries += other->retries;
}

/* One contiguous range needs no plan. */
static heft_status sweep_range(const heft_view *view, uint8_t *dst, heft_read_stats *read, heft_error *err) {
    uint32_t file;
    const heft__entry *entry = heft__archive_entry(view->archive, view->id, &file);
    const heft__listing *listing = view->archive->files[file];
    heft__read_counters counters = {0};
    uint64_t nbytes = heft_view_nbytes(view), skip = (uint64_t)view->offset * (heft_dtype_bits(view->dtype) / 8);
    heft_status status =
        heft__source_read_all(listing->source, listing->data_start + entry->begin + skip, nbytes, dst, &counters, err);
    read->requested_nbytes += counters.nbytes;
    read->requests += counters.requests;
    read->short_reads += counters.short_reads;
    read->retries += counters.retries;
    if (status == HEFT_OK)
        read->kept_nbytes += nbytes;
    else
        heft__error_name(err, view->archive, view->id);
    return status;
}

static heft_status sweep_plan(const heft__sweep *sweep, const heft_view *view, uint8_t *dst, heft_read_stats *read,
                              heft_error *err) {
    heft__plan_request request = {.nviews = 1, .host_is_big_endian = HEFT__HOST_IS_BIG_ENDIAN, .alloc = sweep->alloc};
    heft_plan *plan = NULL;
    heft_read_stats stats = {0};
    request.options.workers = 1;
    heft_status status = heft__plan_new(&request, &plan, err);
    if (status == HEFT_OK) status = heft__plan_add_view(plan, view, 0, NULL, 0, err);
    if (status == HEFT_OK) status = heft__plan_finish(plan, err);
    if (status == HEFT_OK) status = heft__run(plan, &dst, &stats, err);
    heft_plan_free(plan);
    sweep_count(read, &stats);
    return status;
}

static heft_status sweep_read(const heft__sweep *sweep, const heft_view *view, uint8_t *dst, heft_read_stats *read,
                              heft_error *err) {
    uint32_t file;
    bool plain = (heft__archive_entry(view->archive, view->id, &file)->flags & HEFT__ENTRY_ODD) == 0 &&
                 heft_view_is_contiguous(view) && heft_dtype_bits(view->dtype) >= 8 &&
                 (!HEFT__HOST_IS_BIG_ENDIAN || heft__dtypes[view->dtype].component_bits == 8);
    return plain ? sweep_range(view, dst, read, err) : sweep_plan(sweep, view, dst, read, err);
}

/* ---- working ---- */

static uint64_t sweep_item_of(const sweep_job *job, uint64_t number) {
    uint64_t low = 0, high = job->sweep->nitems;
    while (high - low > 1) {
        uint64_t middle = low + (high - low) / 2;
        if (job->starts[middle] <= number) low = middle;
        else high = middle;
    }
    return low;
}

/* A file that changed since it was opened is not read on: asked once an item. */
static heft_status sweep_verify(const heft__sweep *sweep, const sweep_cut *cut, heft_error *err) {
    heft_status status = HEFT_OK;
    for (uint32_t s = 0; s < sweep->nsides && status == HEFT_OK; s++) {
        uint32_t file;
        heft__archive_entry(cut->side[s].archive, cut->side[s].id, &file);
        status = heft__source_verify(cut->side[s].archive->files[file]->source, err);
        if (status != HEFT_OK) heft__error_name(err, cut->side[s].archive, cut->side[s].id);
    }
    return status;
}

static heft_status sweep_one(sweep_job *job, sweep_worker *worker, uint32_t number, uint64_t at) {
    const heft__sweep *sweep = job->sweep;
    uint64_t item = worker->item < sweep->nitems && job->starts[worker->item] <= at && at < job->starts[worker->item + 1]
                        ? worker->item
                        : sweep_item_of(job, at);
    heft_status status = HEFT_OK;
    if (item != worker->item) {
        worker->item = HEFT_NONE;
        status = sweep_cut_item(sweep, item, &worker->cut, &worker->err);
        if (status == HEFT_OK) status = sweep_verify(sweep, &worker->cut, &worker->err);
        if (status != HEFT_OK) return status;
        worker->item = item;
    }
    heft__sweep_piece piece = {.item = item, .slot = (uint32_t)(at - job->first), .worker = number};
    uint64_t before = worker->read.kept_nbytes;
    for (uint32_t s = 0; s < sweep->nsides && status == HEFT_OK; s++) {
        heft_view view;
        sweep_piece_of(&worker->cut, s, at - job->starts[item], &view, &piece.first);
        piece.nelems = heft_view_nelems(&view);
        piece.data[s] = worker->data[s];
        status = sweep_read(sweep, &view, worker->data[s], &worker->read, &worker->err);
    }
    if (status != HEFT_OK) return status;
    sweep->piece(sweep->ctx, &piece);
    atomic_fetch_add(&job->done_nbytes, worker->read.kept_nbytes - before);
    return HEFT_OK;
}

static void sweep_report(sweep_job *job, bool now) {
    const heft__sweep *sweep = job->sweep;
    if (!sweep->progress || atomic_load(&job->cancelled)) return;
    double seconds = heft__os_seconds();
    if (!now && seconds - job->reported < 0.05) return;
    job->reported = seconds;
    if (sweep->progress(sweep->progress_ctx, atomic_load(&job->done_nbytes), job->total_nbytes))
        atomic_store(&job->cancelled, true);
}

static void sweep_work(void *ctx, uint32_t number) {
    sweep_job *job = ctx;
    sweep_worker *worker = &job->workers[number];
    while (!atomic_load(&job->stop) && !atomic_load(&job->cancelled)) {
        uint64_t at = atomic_fetch_add(&job->next, 1);
        if (at >= job->first + job->count) return;
        worker->status = sweep_one(job, worker, number, at);
        if (worker->status != HEFT_OK) {
            worker->failed = at;
            atomic_store(&job->stop, true);
            return;
        }
        if (number == 0 && job->sweep->progress) sweep_report(job, false); /* the caller's thread, one at a time */
    }
}

/* The failure of the first piece that failed. */
static heft_status sweep_failure(const sweep_job *job, heft_error *err) {
    const sweep_worker *first = NULL;
    for (uint32_t i = 0; i < job->nworkers; i++) {
        const sweep_worker *w = &job->workers[i];
        if (w->status != HEFT_OK && (!first || w->failed < first->failed)) first = w;
    }
    if (first) {
        if (err) *err = first->err;
        return first->status;
    }
    if (atomic_load(&job->cancelled))
        return heft__fail(err, HEFT_CANCELLED, HEFT_FAULT_CALL, "the progress callback asked to stop");
    return HEFT_OK;
}

static void sweep_merge(const sweep_job *job, uint64_t *item) {
    const heft__sweep *sweep = job->sweep;
    for (uint64_t i = 0; i < job->count; i++) {
        while (job->starts[*item + 1] <= job->first + i) ++*item;
        heft__sweep_piece piece = {.item = *item, .slot = (uint32_t)i};
        sweep->merge(sweep->ctx, &piece);
    }
}

static heft_status sweep_rounds(sweep_job *job, heft_error *err) {
    uint64_t item = 0;
    heft_status status = HEFT_OK;
    sweep_report(job, true);
    status = sweep_failure(job, err);
    for (job->first = 0; job->first < job->npieces && status == HEFT_OK; job->first += job->count) {
        job->count = job->npieces - job->first;
        if (job->count > HEFT__SWEEP_ROUND) job->count = HEFT__SWEEP_ROUND;
        atomic_store(&job->next, job->first);
        heft__parallel(job->nworkers, sweep_work, job);
        status = sweep_failure(job, err);
        if (status == HEFT_OK) sweep_merge(job, &item);
    }
    if (status != HEFT_OK) return status;
    sweep_report(job, true);
    return sweep_failure(job, err);
}

/* ---- around it ---- */

/* Counts the pieces of all items, and how large they get. */
static heft_status sweep_survey(sweep_job *job, heft_error *err) {
    const heft__sweep *sweep = job->sweep;
    sweep_cut cut;
    for (uint64_t i = 0; i < sweep->nitems; i++) {
        job->starts[i] = job->npieces;
        heft_status status = sweep_cut_item(sweep, i, &cut, err);
        if (status != HEFT_OK) return status;
        job->npieces += cut.npieces;
        for (uint32_t s = 0; s < sweep->nsides && cut.npieces; s++) {
            uint64_t nbytes = sweep_nbytes(cut.side[s].dtype, (uint64_t)(cut.chunk * cut.inner));
            if (nbytes > job->side_nbytes[s]) job->side_nbytes[s] = nbytes;
            job->total_nbytes += heft_view_nbytes(&cut.side[s]);
        }
    }
    job->starts[sweep->nitems] = job->npieces;
    return HEFT_OK;
}

static heft_status sweep_run_workers(sweep_job *job, heft_read_stats *stats, heft_error *err) {
    const heft_allocator *alloc = &job->sweep->alloc;
    uint32_t wanted = job->sweep->workers ? job->sweep->workers
                      : job->total_nbytes < SWEEP_ONE_WORKER ? 1 : heft__default_workers();
    if (wanted > HEFT__PARALLEL_MOST) wanted = HEFT__PARALLEL_MOST;
    job->nworkers = wanted < job->npieces ? wanted : job->npieces ? (uint32_t)job->npieces : 1;
    job->workers = heft__alloc_zero(alloc, job->nworkers * sizeof *job->workers);
    if (!job->workers) return heft__fail_memory(err, job->nworkers * sizeof *job->workers);
    heft_status status = HEFT_OK;
    for (uint32_t i = 0; i < job->nworkers; i++) {
        job->workers[i].item = HEFT_NONE;
        for (uint32_t s = 0; s < job->sweep->nsides && status == HEFT_OK; s++) {
            job->workers[i].data[s] = heft__alloc(alloc, job->side_nbytes[s]);
            if (!job->workers[i].data[s]) status = heft__fail_memory(err, job->side_nbytes[s]);
        }
    }
    if (status == HEFT_OK) status = sweep_rounds(job, err);
    for (uint32_t i = 0; i < job->nworkers; i++) {
        sweep_count(stats, &job->workers[i].read);
        for (uint32_t s = 0; s < job->sweep->nsides; s++)
            heft__free(alloc, job->workers[i].data[s], job->side_nbytes[s]);
    }
    stats->workers = job->nworkers;
    heft__free(alloc, job->workers, job->nworkers * sizeof *job->workers);
    return status;
}

heft_status heft__sweep_run(const heft__sweep *sweep, heft_read_stats *stats, heft_error *err) {
    heft_read_stats unwanted = {0};
    sweep_job job = {.sweep = sweep};
    if (!stats) stats = &unwanted;
    *stats = unwanted;
    uint64_t nbytes;
    if (!heft__mul_u64(sweep->nitems + 1, sizeof *job.starts, &nbytes)) return heft__fail_memory(err, sweep->nitems);
    job.starts = heft__alloc(&sweep->alloc, nbytes);
    if (!job.starts) return heft__fail_memory(err, nbytes);
    atomic_init(&job.next, 0);
    atomic_init(&job.done_nbytes, 0);
    atomic_init(&job.stop, false);
    atomic_init(&job.cancelled, false);
    heft_status status = sweep_survey(&job, err);
    if (status == HEFT_OK) status = sweep_run_workers(&job, stats, err);
    heft__free(&sweep->alloc, job.starts, nbytes);
    return status;
}
