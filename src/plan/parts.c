/* plan: what a finished plan says about one block: its range or box, and where its bytes go. */
#include "plan/plan.h"

uint64_t heft__plan_blocks_of(const heft_plan *plan, const heft__plan_run *run) {
    const heft__plan_item *item = &plan->items[run->first_item];
    uint64_t block = plan->options.block_nbytes, tail = HEFT__PLAN_TAIL, n;
    if (item->nest != HEFT__PLAN_NONE) {
        const heft__plan_nest *nest = &plan->nests[item->nest];
        return nest->bits ? 1 : nest->nboxes;
    }
    if (run->kind == HEFT_RUN_GATHER) return (run->nbytes + plan->scratch_most - 1) / plan->scratch_most;
    uint64_t first = block - heft__plan_misfit(plan, run);
    if (run->nbytes <= first) return 1;
    uint64_t rest = run->nbytes - first;
    n = 1 + rest / block;
    if (tail > block / 2) tail = block / 2;
    return n + (rest % block >= tail);
}

uint64_t heft__plan_misfit(const heft_plan *plan, const heft__plan_run *run) {
    if (run->kind != HEFT_RUN_DIRECT || plan->options.block_nbytes % HEFT__PLAN_CUT != 0) return 0;
    const heft__plan_item *item = &plan->items[run->first_item];
    return (plan->phase + (uint64_t)item->place) % HEFT__PLAN_CUT; /* the item is the first byte of its run */
}

void heft__plan_locate(const heft_plan *plan, uint64_t number, uint64_t *run, uint64_t *part) {
    uint64_t low = 0, high = plan->nruns;
    while (high - low > 1) {
        uint64_t middle = low + (high - low) / 2;
        if (plan->runs[middle].first_block <= number)
            low = middle;
        else
            high = middle;
    }
    *run = low;
    *part = number - plan->runs[low].first_block;
}

void heft__plan_cut(const heft_plan *plan, const heft__plan_run *run, uint64_t part, uint64_t *begin, uint64_t *end) {
    uint64_t block = run->kind == HEFT_RUN_GATHER ? plan->scratch_most : plan->options.block_nbytes;
    uint64_t misfit = heft__plan_misfit(plan, run);
    *begin = run->offset + (part ? part * block - misfit : 0);
    *end = part + 1 == heft__plan_blocks_of(plan, run) ? run->offset + run->nbytes
                                                       : run->offset + (part + 1) * block - misfit;
}

uint64_t heft__plan_item_at(const heft_plan *plan, const heft__plan_run *run, uint64_t offset) {
    uint64_t low = run->first_item, high = run->first_item + run->nitems - 1;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        const heft__plan_item *item = &plan->items[middle];
        if (item->offset + item->nbytes > offset)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

bool heft__plan_lands(const heft_plan *plan, const heft__plan_item *item) {
    const heft__plan_item *next = item + 1;
    return plan->layout && item->place - (int64_t)item->offset == next->place - (int64_t)next->offset;
}

bool heft__plan_piece(const heft_plan *plan, const heft__plan_run *run, uint64_t at, uint64_t end, uint64_t *item,
                      uint64_t *nbytes, int64_t *place, uint32_t *slot) {
    const heft__plan_item *it = &plan->items[*item], *last = &plan->items[run->first_item + run->nitems - 1];
    if (at < it->offset) { /* the gap before it */
        *nbytes = (it->offset < end ? it->offset : end) - at;
        *slot = 0;
        *place = it->place - (int64_t)(it->offset - at);
        return heft__plan_lands(plan, it - 1);
    }
    uint64_t stop = it->offset + it->nbytes;
    *place = it->place + (int64_t)(at - it->offset);
    *slot = plan->slots ? it->view : 0;
    if (stop <= end && it < last) ++*item;
    *nbytes = (stop < end ? stop : end) - at;
    return true;
}

void heft__nest_box(const heft_plan *plan, const heft__plan_nest *nest, uint64_t number, heft__box *box) {
    const heft__plan_loop *loops = heft__plan_loops(plan, nest);
    uint64_t tiles = nest->unit / nest->unit_tile + (nest->unit % nest->unit_tile != 0);
    uint64_t first = number % tiles * nest->unit_tile;
    number /= tiles;
    box->unit = nest->unit - first < nest->unit_tile ? nest->unit - first : nest->unit_tile;
    box->src = first;
    box->dst = (int64_t)first;
    box->span = box->unit;
    box->nreads = 1;
    for (uint32_t d = nest->rank; d-- > 0;) {
        const heft__plan_loop *l = &loops[d];
        tiles = l->loop.count / l->tile + (l->loop.count % l->tile != 0);
        first = number % tiles * l->tile;
        number /= tiles;
        box->loops[d] = l->loop;
        box->loops[d].count = l->loop.count - first < l->tile ? l->loop.count - first : l->tile;
        box->src += first * (uint64_t)l->loop.src;
        box->dst += (int64_t)first * l->loop.dst;
        if (d >= nest->level)
            box->span += (box->loops[d].count - 1) * (uint64_t)l->loop.src;
        else
            box->nreads *= box->loops[d].count;
    }
}

void heft__nest_read(const heft__plan_nest *nest, const heft__box *box, uint64_t read, uint64_t *src, int64_t *dst) {
    *src = box->src;
    *dst = box->dst;
    for (uint32_t d = nest->level; d-- > 0;) {
        const heft__loop *loop = &box->loops[d];
        *src += read % loop->count * (uint64_t)loop->src;
        *dst += (int64_t)(read % loop->count) * loop->dst;
        read /= loop->count;
    }
}

/* Vectors that a gap takes: the dump is short and used again and again. */
static size_t parts_dump(uint8_t *dump, uint64_t gap, heft__vec *vec, size_t n) {
    for (; gap > 0; n++) {
        vec[n] = (heft__vec){dump, (size_t)(gap < HEFT__PLAN_DUMP ? gap : HEFT__PLAN_DUMP)};
        gap -= vec[n].nbytes;
    }
    return n;
}

size_t heft__nest_vectors(const heft__plan_nest *nest, const heft__box *box, uint64_t *unit, uint8_t *place,
                          uint8_t *dump, heft__vec *vec, uint64_t *src, uint64_t *nbytes) {
    uint64_t per_read = 1, index[HEFT_MAX_RANK + 1] = {0}, at;
    for (uint32_t d = nest->level; d < nest->rank; d++) per_read *= box->loops[d].count;
    int64_t dst;
    uint64_t within = *unit % per_read, left = per_read - within;
    heft__nest_read(nest, box, *unit / per_read, &at, &dst);
    for (uint32_t d = nest->rank; d-- > nest->level;) {
        const heft__loop *loop = &box->loops[d];
        index[d] = within % loop->count;
        within /= loop->count;
        at += index[d] * (uint64_t)loop->src;
        dst += (int64_t)index[d] * loop->dst;
    }
    size_t n = 0;
    *src = at;
    for (;;) {
        vec[n++] = (heft__vec){place + dst, (size_t)box->unit};
        ++*unit;
        *nbytes = at + box->unit - *src;
        if (--left == 0) return n;
        uint64_t before = at;
        uint32_t d = nest->rank;
        while (d-- > nest->level) { /* never runs out: units are left */
            const heft__loop *loop = &box->loops[d];
            at += (uint64_t)loop->src;
            dst += loop->dst;
            if (++index[d] < loop->count) break;
            at -= index[d] * (uint64_t)loop->src;
            dst -= (int64_t)index[d] * loop->dst;
            index[d] = 0;
        }
        uint64_t gap = at - before - box->unit;
        if (n + 1 + gap / HEFT__PLAN_DUMP + (gap % HEFT__PLAN_DUMP != 0) > HEFT__VEC_MAX) return n;
        n = parts_dump(dump, gap, vec, n);
    }
}
