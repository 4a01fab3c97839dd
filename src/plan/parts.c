/* plan: what a finished plan says about one block: its range or box, and where its bytes go. */
#include "plan/plan.h"

#include "base/checked.h"

/* ---- where blocks are cut ---- */

uint64_t heft__plan_scratch(const heft_plan *plan, const heft__plan_source *source) {
    uint64_t most = plan->scratch_most;
    if (source->direct_align && most == HEFT__PLAN_SCRATCH) most = HEFT__PLAN_SCRATCH_DIRECT;
    if (most > plan->scratch_share) most = plan->scratch_share;
    if (source->direct_align == 0) return most;
    most -= most % source->direct_align;
    return most < 4 * (uint64_t)source->direct_align ? 4 * (uint64_t)source->direct_align : most;
}

/* The range that a run of plain items reads. */
static void parts_range(const heft_plan *plan, const heft__plan_run *run, uint64_t *begin, uint64_t *end) {
    *begin = run->offset;
    *end = run->offset + run->nbytes;
    if (run->direct) heft__plan_round(&plan->sources[run->source], begin, end);
}

uint64_t heft__plan_requested(const heft_plan *plan, const heft__plan_run *run) {
    const heft__plan_nest *nest = heft__plan_run_nest(plan, run);
    if (nest) return nest->requested;
    return heft__plan_asked(&plan->sources[run->source], run->offset, run->offset + run->nbytes);
}

/* How a run of plain items is cut: into pieces of `block` bytes, the first shorter by `misfit`, of a line that begins
 * at `first` and is `nbytes` long. Where places rise with offsets it is the memory, cut where its huge pages end, so
 * that no two workers fault the same one in; else the file. */
typedef struct parts_line {
    uint64_t block, misfit, nbytes, begin, end; /* begin, end: of the file */
    int64_t first;
    bool memory;
} parts_line;

static parts_line parts_line_of(const heft_plan *plan, const heft__plan_run *run) {
    const heft__plan_source *source = &plan->sources[run->source];
    const heft__plan_item *item = &plan->items[run->first_item], *last = item + run->nitems - 1;
    parts_line line = {.block = plan->options.block_nbytes};
    parts_range(plan, run, &line.begin, &line.end);
    line.memory = run->kind == HEFT_RUN_DIRECT || (run->kind == HEFT_RUN_VECTOR && plan->layout);
    if (run->kind == HEFT_RUN_GATHER)
        line.block = heft__plan_scratch(plan, source);
    else if (run->direct)
        heft__align_u64(line.block, source->congruence, &line.block);
    line.first = item->place - (int64_t)(item->offset - line.begin);
    line.nbytes = line.end - line.begin;
    if (!line.memory) return line;
    line.nbytes = (uint64_t)(last->place + (int64_t)(line.end - last->offset) - line.first);
    if (line.block % HEFT__PLAN_CUT == 0) line.misfit = (plan->phase + (uint64_t)line.first) % HEFT__PLAN_CUT;
    return line;
}

static uint64_t parts_count(const heft__plan_run *run, const parts_line *line) {
    uint64_t first = line->block - line->misfit, tail = HEFT__PLAN_TAIL;
    if (line->nbytes <= first) return 1;
    uint64_t rest = line->nbytes - first;
    if (run->kind == HEFT_RUN_GATHER) return 1 + (rest + line->block - 1) / line->block;
    if (tail > line->block / 2) tail = line->block / 2;
    if (tail == 0) tail = 1;
    return 1 + rest / line->block + (rest % line->block >= tail);
}

uint64_t heft__plan_blocks_of(const heft_plan *plan, const heft__plan_run *run) {
    const heft__plan_nest *nest = heft__plan_run_nest(plan, run);
    if (nest) return nest->nboxes / nest->batch + (nest->nboxes % nest->batch != 0);
    uint64_t half = plan->options.block_nbytes / 2, tail = HEFT__PLAN_TAIL < half ? HEFT__PLAN_TAIL : half;
    if (run->kind == HEFT_RUN_DIRECT && !run->direct && run->nbytes < tail)
        return 1; /* most are, where there are many */
    parts_line line = parts_line_of(plan, run);
    return parts_count(run, &line);
}

/* True if what lies between an item and the next one may be read to where it lies between their places: the arena is
 * heft's, and the places are as far apart as the offsets. Not of what is converted, which has another size there. */
static bool parts_lands(const heft_plan *plan, const heft__plan_item *item) {
    const heft__plan_item *next = item + 1;
    return plan->layout && item->nest == HEFT__PLAN_NONE &&
           item->place - (int64_t)item->offset == next->place - (int64_t)next->offset;
}

/* The offset of what lies at a place of a run whose places rise with offsets. */
static uint64_t parts_offset(const heft_plan *plan, const heft__plan_run *run, int64_t place) {
    uint64_t low = run->first_item, end = run->first_item + run->nitems, high = end;
    while (high - low > 1) { /* the last item that starts at or before it */
        uint64_t middle = low + (high - low) / 2;
        if (plan->items[middle].place <= place)
            low = middle;
        else
            high = middle;
    }
    const heft__plan_item *item = &plan->items[low];
    uint64_t offset = item->offset + (uint64_t)(place - item->place);
    if (low + 1 == end || offset < item->offset + item->nbytes || parts_lands(plan, item)) return offset;
    return run->direct ? item[1].offset & ~(plan->sources[run->source].congruence - UINT64_C(1)) : item[1].offset;
}

void heft__plan_cut(const heft_plan *plan, const heft__plan_run *run, uint64_t part, uint64_t *begin, uint64_t *end) {
    parts_line line = parts_line_of(plan, run);
    uint64_t n = parts_count(run, &line), from = part * line.block - line.misfit, to = from + line.block;
    *begin = line.begin;
    *end = line.end;
    if (line.memory) {
        if (part > 0) *begin = parts_offset(plan, run, line.first + (int64_t)from);
        if (part + 1 < n) *end = parts_offset(plan, run, line.first + (int64_t)to);
    } else {
        if (part > 0) *begin = line.begin + from;
        if (part + 1 < n) *end = line.begin + to;
    }
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

/* ---- pieces of plain items ---- */

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

/* Bytes [at, to) of no item, before `next` or after `before` (NULL: none). Of a run that is read directly to its place
 * the ends of their pages land beside them; whole pages of a gap go nowhere. */
static bool parts_gap(const heft_plan *plan, const heft__plan_run *run, uint64_t at, uint64_t to,
                      const heft__plan_item *before, const heft__plan_item *next, uint64_t *nbytes, int64_t *place) {
    *nbytes = to - at;
    *place = 0;
    if (run->direct && run->kind == HEFT_RUN_GATHER) return false;
    bool lands = before && next && parts_lands(plan, before);
    if (!run->direct || lands) {
        if (lands) *place = before->place + (int64_t)(at - before->offset);
        return lands;
    }
    uint64_t mask = plan->sources[run->source].congruence - UINT64_C(1);
    uint64_t tail = before ? (before->offset + before->nbytes + mask) & ~mask : 0;
    uint64_t head = next ? next->offset & ~mask : UINT64_MAX;
    if (at < tail) {
        if (*nbytes > tail - at) *nbytes = tail - at;
        *place = before->place + (int64_t)(at - before->offset);
        return true;
    }
    if (at < head) {
        if (*nbytes > head - at) *nbytes = head - at;
        return false;
    }
    *place = next->place - (int64_t)(next->offset - at);
    return true;
}

bool heft__plan_piece(const heft_plan *plan, const heft__plan_run *run, uint64_t at, uint64_t end, uint64_t *item,
                      uint64_t *nbytes, int64_t *place, uint32_t *slot) {
    const heft__plan_item *it = &plan->items[*item], *first = &plan->items[run->first_item];
    const heft__plan_item *last = first + run->nitems - 1;
    uint64_t stop = it->offset + it->nbytes;
    *slot = it->slot;
    if (at < it->offset)
        return parts_gap(plan, run, at, it->offset < end ? it->offset : end, it > first ? it - 1 : NULL, it, nbytes,
                         place);
    if (at >= stop) return parts_gap(plan, run, at, end, it, NULL, nbytes, place); /* after the last */
    *place = it->place + (int64_t)(at - it->offset);
    if (stop <= end && it < last) ++*item;
    *nbytes = (stop < end ? stop : end) - at;
    return true;
}

/* ---- blocks ---- */

static const heft__plan_mapping *parts_mapping(const heft_plan *plan, uint64_t number) {
    uint64_t low = 0, high = plan->nmappings;
    while (high - low > 1) { /* the last one that starts at or before it; those without blocks come before it */
        uint64_t middle = low + (high - low) / 2;
        if (plan->mappings[middle].first_block <= number)
            low = middle;
        else
            high = middle;
    }
    return &plan->mappings[low];
}

static void parts_touch(const heft_plan *plan, uint64_t number, heft__plan_block *out) {
    const heft__plan_mapping *mapping = parts_mapping(plan, number);
    uint64_t from = (number - mapping->first_block) * HEFT__PLAN_WINDOW, left = mapping->nbytes - from;
    out->way = HEFT__PLAN_TOUCH;
    out->channel = (uint32_t)(plan->nsources + (uint64_t)(mapping - plan->mappings));
    out->offset = mapping->offset + from;
    out->nbytes = out->needed = left < HEFT__PLAN_WINDOW ? left : HEFT__PLAN_WINDOW;
    out->run = HEFT_NONE;
    out->part = number - mapping->first_block;
}

void heft__plan_block_at(const heft_plan *plan, uint64_t number, heft__plan_block *out) {
    *out = (heft__plan_block){.step = HEFT__PLAN_PLAIN};
    if (number >= plan->first_touch) {
        parts_touch(plan, number, out);
        return;
    }
    heft__plan_locate(plan, number, &out->run, &out->part);
    const heft__plan_run *run = &plan->runs[out->run];
    const heft__plan_item *item = &plan->items[run->first_item];
    out->channel = run->source;
    out->way = run->direct ? HEFT__PLAN_DIRECT : HEFT__PLAN_READ;
    out->slot = item->slot;
    const heft__plan_nest *nest = heft__plan_run_nest(plan, run);
    if (nest) {
        out->step = nest->bits      ? HEFT__PLAN_NEST_BITS
                    : nest->scatter ? HEFT__PLAN_NEST_SCATTER
                                    : HEFT__PLAN_NEST_GATHER;
        return;
    }
    uint64_t end, stop = run->offset + run->nbytes;
    heft__plan_cut(plan, run, out->part, &out->offset, &end);
    out->nbytes = end - out->offset;
    out->needed = (end < stop ? end : stop) - out->offset;
    out->place = item->place + (int64_t)(out->offset - item->offset);
    if (run->kind == HEFT_RUN_VECTOR) out->step = HEFT__PLAN_SCATTER;
    if (run->kind == HEFT_RUN_GATHER) out->step = HEFT__PLAN_GATHER;
}

/* The first of the items [first, first + n) of one source, sorted and apart, that ends after `offset`. */
static uint64_t parts_first_after(const heft_plan *plan, uint64_t first, uint64_t n, uint64_t offset) {
    uint64_t low = first, high = first + n;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        if (plan->items[middle].offset + plan->items[middle].nbytes > offset)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

void heft__plan_block_items(const heft_plan *plan, uint64_t number, uint64_t *first, uint64_t *n) {
    heft__plan_block block;
    heft__plan_block_at(plan, number, &block);
    const heft__plan_source *source = number < plan->first_touch
                                          ? &plan->sources[block.channel]
                                          : &plan->sources[plan->mappings[block.channel - plan->nsources].source];
    const heft__plan_run *run = number < plan->first_touch ? &plan->runs[block.run] : NULL;
    *first = run ? run->first_item : source->first_item;
    *n = run ? run->nitems : source->nitems;
    if (run && plan->items[run->first_item].nest != HEFT__PLAN_NONE) return;
    uint64_t end = *first + *n;
    *first = parts_first_after(plan, *first, *n, block.offset);
    for (*n = 0; *first + *n < end && plan->items[*first + *n].offset < block.offset + block.nbytes;) ++*n;
}

/* The run of an item that some run reads. */
static uint64_t parts_run_of(const heft_plan *plan, uint64_t index) {
    uint64_t low = 0, high = plan->nruns;
    while (high - low > 1) {
        uint64_t middle = low + (high - low) / 2;
        if (plan->runs[middle].first_item <= index)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* The part of a run that holds the byte at `offset`. */
static uint64_t parts_part_at(const heft_plan *plan, const heft__plan_run *run, uint64_t offset) {
    uint64_t low = 0, high = heft__plan_blocks_of(plan, run), begin, end;
    while (high - low > 1) {
        uint64_t middle = low + (high - low) / 2;
        heft__plan_cut(plan, run, middle, &begin, &end);
        if (begin <= offset)
            low = middle;
        else
            high = middle;
    }
    return low;
}

void heft__plan_item_blocks(const heft_plan *plan, uint64_t index, uint64_t *first, uint64_t *n) {
    const heft__plan_item *item = &plan->items[index];
    *first = *n = 0;
    if (item->mapped) {
        const heft__plan_mapping *mapping = &plan->mappings[item->slot];
        uint64_t from = (uint64_t)item->place / HEFT__PLAN_WINDOW;
        if (!plan->sources[item->source].touch) return;
        *first = mapping->first_block + from;
        *n = ((uint64_t)item->place + item->nbytes - 1) / HEFT__PLAN_WINDOW - from + 1;
        return;
    }
    const heft__plan_run *run = &plan->runs[parts_run_of(plan, index)];
    *first = run->first_block;
    *n = heft__plan_blocks_of(plan, run);
    if (item->nest != HEFT__PLAN_NONE) return;
    uint64_t from = parts_part_at(plan, run, item->offset);
    *n = parts_part_at(plan, run, item->offset + item->nbytes - 1) - from + 1;
    *first += from;
}

uint64_t heft__plan_blame(const heft_plan *plan, uint64_t number, uint64_t offset) {
    uint64_t first, n, r, part;
    if (number >= plan->first_touch) {
        heft__plan_block_items(plan, number, &first, &n);
        uint64_t at = parts_first_after(plan, first, n, offset);
        return at < first + n || n == 0 ? at : first + n - 1;
    }
    heft__plan_locate(plan, number, &r, &part);
    const heft__plan_run *run = &plan->runs[r];
    return run->nitems > 1 ? heft__plan_item_at(plan, run, offset) : run->first_item;
}

void heft__plan_place(const heft_plan *plan, const heft__plan_item *item, heft_load_place *out) {
    uint64_t address = (uint64_t)item->place, align = 4096;
    if (item->mapped)
        address = heft__plan_address(plan->sources[item->source].source) + item->offset;
    else if (plan->narenas)
        align = plan->arenas[item->slot].align;
    while (align > 4096 || address % align) align /= 2;
    *out = (heft_load_place){.offset = (uint64_t)item->place,
                             .arena = item->slot,
                             .align = (uint32_t)align,
                             .slot = item->apart,
                             .side = item->side};
}

/* ---- boxes of nests ---- */

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

void heft__nest_range(const heft__plan_nest *nest, const heft__plan_item *item, uint64_t src, uint64_t span,
                      uint64_t *begin, uint64_t *end) {
    uint64_t first = nest->bits ? (uint64_t)nest->src_bit + src : src;
    *begin = item->offset + (nest->bits ? first / 8 : first);
    *end = item->offset + (nest->bits ? (first + span + 7) / 8 : first + span);
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
