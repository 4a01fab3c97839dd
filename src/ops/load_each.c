/* ops: gives each tensor to a callback as soon as its last byte is in, from the worker that brought it. */
#include "ops/load_run.h"

#include "base/error.h"

typedef struct each_job {
    heft__load_work work;
    atomic_uint_fast32_t *left; /* by item: blocks to go */
    int (*deliver)(void *ctx, const heft_loaded *tensor);
    void *ctx;
} each_job;

static heft_status each_deliver(each_job *job, uint64_t id, uint8_t *data, bool mapped, heft_error *err) {
    heft_loaded tensor;
    heft__load_describe(job->work.load, id, data, &tensor);
    tensor.mapped = mapped;
    if (job->deliver(job->ctx, &tensor) == 0) return HEFT_OK;
    heft__fail(err, HEFT_CANCELLED, HEFT_FAULT_CALL, "the callback asked to stop");
    heft__error_tensor(err, tensor.name, tensor.name_len);
    return HEFT_CANCELLED;
}

static heft_status each_deliver_item(each_job *job, uint64_t index, heft_error *err) {
    const heft__plan_item *item = &job->work.plan->items[index];
    return each_deliver(job, item->id, heft__load_item_data(&job->work, item), item->mapped, err);
}

static heft_status each_done(void *ctx, uint64_t block, heft_error *err) {
    each_job *job = ctx;
    uint64_t first, n;
    heft_status status = HEFT_OK;
    heft__plan_block_items(job->work.plan, block, &first, &n);
    for (uint64_t i = first; i < first + n && status == HEFT_OK; i++)
        if (atomic_fetch_sub_explicit(&job->left[i], 1, memory_order_acq_rel) == 1)
            status = each_deliver_item(job, i, err);
    return status;
}

/* Counts blocks; what needs none is there already. */
static heft_status each_begin(each_job *job, heft_error *err) {
    const heft_load_plan *load = job->work.load;
    const heft_plan *plan = job->work.plan;
    uint64_t n = load->nkept, first, blocks, item = 0;
    heft_status status = HEFT_OK;
    for (uint64_t i = 0; i < n && status == HEFT_OK; i++) {
        if (item == plan->nitems || plan->items[item].id != heft__load_kept(load, i)) {
            status = each_deliver(job, heft__load_kept(load, i), heft__load_nothing(), false, err);
            continue;
        }
        heft__plan_item_blocks(plan, item, &first, &blocks);
        atomic_init(&job->left[item], (uint_fast32_t)blocks);
        if (blocks == 0) status = each_deliver_item(job, item, err);
        item++;
    }
    return status;
}

heft_status heft_load_each(heft_load_plan *plan, int (*deliver)(void *ctx, const heft_loaded *tensor), void *ctx,
                           heft_load_stats *stats, heft_error *err) {
    if (!plan || !deliver) return heft__fail_null(err, plan ? "deliver" : "plan");
    if (plan->options.verify)
        return heft__fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL, "only a whole load can be verified, not one by callback");
    heft_status status = heft__load_sample(plan, err);
    uint64_t nbytes = plan->plan->nitems * sizeof(atomic_uint_fast32_t);
    each_job job = {.work = {.load = plan, .plan = plan->plan}, .deliver = deliver, .ctx = ctx};
    job.left = heft__alloc(&plan->alloc, nbytes);
    if (status == HEFT_OK && !job.left) status = heft__fail_memory(err, nbytes);
    job.work.done = each_done;
    job.work.done_ctx = &job;
    if (status == HEFT_OK) status = heft__load_begin(&job.work, false, err);
    if (status == HEFT_OK) {
        status = each_begin(&job, err);
        status = heft__load_go(&job.work, status, err);
        heft__load_release(&job.work);
    }
    heft__free(&plan->alloc, job.left, nbytes);
    heft__load_tell(&job.work, stats);
    return status;
}
