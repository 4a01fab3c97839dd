/* ops: statistics of a view, and of many tensors in one pass. */
#include "ops/stats.h"

#include "base/error.h"
#include "ops/sweep.h"
#include "view/view.h"

typedef struct stats_job {
    const heft_view *view;       /* one item ... */
    const heft_archive *archive; /* ... or tensors of an archive: `ids`, NULL: all */
    const uint64_t *ids;
    heft__stats_sum pieces[HEFT__SWEEP_ROUND];
    heft_histogram *piece_histograms;          /* the same; NULL: not wanted */
    heft__stats_sum *sums;                     /* of the items */
    heft_histogram *histograms;
    double of_byte[HEFT_DTYPE_COUNT][256];     /* of dtypes of 8 bits */
} stats_job;

static heft_dtype stats_dtype(const stats_job *job, uint64_t item) {
    if (job->view) return job->view->dtype;
    uint32_t file;
    return heft__archive_entry(job->archive, job->ids ? job->ids[item] : item, &file)->dtype;
}

static heft_status stats_view(const void *ctx, uint64_t item, uint32_t side, heft_view *out, heft_error *err) {
    const stats_job *job = ctx;
    (void)side;
    if (!job->view) return heft_view_of(job->archive, job->ids ? job->ids[item] : item, out, err);
    *out = *job->view;
    return HEFT_OK;
}

static void stats_piece(void *ctx, const heft__sweep_piece *piece) {
    stats_job *job = ctx;
    heft_dtype dtype = stats_dtype(job, piece->item);
    heft_histogram *histogram = job->piece_histograms ? &job->piece_histograms[piece->slot] : NULL;
    job->pieces[piece->slot] = heft__stats_nothing;
    if (histogram) *histogram = (heft_histogram){{0}};
    heft__stats_add(dtype, job->of_byte[dtype], piece->data[0], piece->nelems, &job->pieces[piece->slot], histogram);
}

static void stats_merge(void *ctx, const heft__sweep_piece *piece) {
    stats_job *job = ctx;
    heft__stats_merge(&job->sums[piece->item], &job->pieces[piece->slot]);
    for (uint32_t i = 0; job->histograms && i < HEFT_HISTOGRAM_BINS; i++)
        job->histograms[piece->item].bins[i] += job->piece_histograms[piece->slot].bins[i];
}

/* Options and memory around a sweep of `n` items. */
static heft_status stats_run(stats_job *job, uint64_t n, const heft_read_options *options, const heft_allocator *alloc,
                             heft_read_stats *read, heft_error *err) {
    heft__sweep sweep = {.nitems = n, .nsides = 1, .any_order = true, .view = stats_view, .piece = stats_piece,
                         .merge = stats_merge, .ctx = job, .workers = options->workers, .progress = options->progress,
                         .progress_ctx = options->progress_ctx, .alloc = *alloc};
    for (heft_dtype dtype = 1; dtype < HEFT_DTYPE_COUNT; dtype++)
        if (heft__dtypes[dtype].bits == 8) heft__stats_table(dtype, job->of_byte[dtype]);
    uint64_t nbytes = HEFT__SWEEP_ROUND * sizeof *job->piece_histograms;
    if (job->histograms) {
        job->piece_histograms = heft__alloc(alloc, nbytes);
        if (!job->piece_histograms) return heft__fail_memory(err, nbytes);
    }
    heft_status status = heft__sweep_run(&sweep, read, err);
    heft__free(alloc, job->piece_histograms, nbytes);
    return status;
}

heft_status heft__stats_view(const heft_view *view, const heft_read_options *options, const heft_allocator *alloc,
                             heft_stats *out, heft_read_stats *read, heft_error *err) {
    heft__stats_sum sum = heft__stats_nothing;
    stats_job *job = heft__alloc_zero(alloc, sizeof *job);
    if (!job) return heft__fail_memory(err, sizeof *job);
    job->view = view;
    job->sums = &sum;
    heft_status status = stats_run(job, 1, options, alloc, read, err);
    heft__free(alloc, job, sizeof *job);
    if (status == HEFT_OK) heft__stats_finish(&sum, heft_view_nelems(view), out);
    return status;
}

heft_status heft__stats_tensors(const heft_archive *archive, const uint64_t *ids, uint64_t nids,
                                const heft_read_options *options, const heft_allocator *alloc, heft_stats *out,
                                heft_histogram *histograms, heft_read_stats *read, heft_error *err) {
    uint64_t nbytes = nids * sizeof(heft__stats_sum);
    stats_job *job = heft__alloc_zero(alloc, sizeof *job);
    heft__stats_sum *sums = heft__alloc(alloc, nbytes);
    heft_status status = job && sums ? HEFT_OK : heft__fail_memory(err, nbytes + sizeof *job);
    for (uint64_t i = 0; sums && i < nids; i++) sums[i] = heft__stats_nothing;
    if (status == HEFT_OK) {
        *job = (stats_job){.archive = archive, .ids = ids, .sums = sums, .histograms = histograms};
        status = stats_run(job, nids, options, alloc, read, err);
    }
    for (uint64_t i = 0; i < nids && status == HEFT_OK; i++) {
        heft_view view;
        status = heft_view_of(archive, ids ? ids[i] : i, &view, err);
        if (status == HEFT_OK) heft__stats_finish(&sums[i], heft_view_nelems(&view), &out[i]);
    }
    heft__free(alloc, sums, nbytes);
    heft__free(alloc, job, sizeof *job);
    return status;
}
