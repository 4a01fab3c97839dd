/* plan: the loops of a strided view: normal form, what one request covers, and the tiles that make its boxes. */
#include "plan/plan.h"

#include "base/checked.h"

uint32_t heft__nest_normalize(heft__loop *loops, uint32_t rank, uint64_t *unit, bool fixed, int64_t *src, int64_t *dst) {
    uint32_t n = 0;
    for (uint32_t d = 0; d < rank; d++) {
        heft__loop loop = loops[d];
        if (loop.count == 1) continue;
        if (loop.src < 0) { /* walk it the other way round */
            *src += (int64_t)(loop.count - 1) * loop.src;
            *dst += (int64_t)(loop.count - 1) * loop.dst;
            loop.src = -loop.src;
            loop.dst = -loop.dst;
        }
        uint32_t at = n++; /* insertion sort: falling steps in the file, equal ones as they are */
        for (; at > 0 && loops[at - 1].src < loop.src; at--) loops[at] = loops[at - 1];
        loops[at] = loop;
    }
    rank = n;
    n = 0;
    for (uint32_t d = 0; d < rank; d++) {
        heft__loop *outer = n ? &loops[n - 1] : NULL, inner = loops[d];
        if (outer && outer->src == (int64_t)inner.count * inner.src && outer->dst == (int64_t)inner.count * inner.dst) {
            inner.count *= outer->count;
            *outer = inner;
        } else
            loops[n++] = inner;
    }
    if (!fixed && n > 0 && loops[n - 1].src == (int64_t)*unit && loops[n - 1].dst == (int64_t)*unit)
        *unit *= loops[--n].count;
    return n;
}

/* Bytes (bits) from the first to the end of the last unit of the loops [level, rank), with counts or tiles. */
static uint64_t nest_span(const heft__plan_loop *loops, uint32_t level, uint32_t rank, uint64_t unit, bool tiles) {
    uint64_t span = unit;
    for (uint32_t d = level; d < rank; d++)
        span += ((tiles ? loops[d].tile : loops[d].loop.count) - 1) * (uint64_t)loops[d].loop.src;
    return span;
}

/* From the inside out, as long as reading over the gap is cheaper than a request of its own. A loop whose steps overlap
 * the loops inside (no index makes such a view) stays outside. */
static uint32_t nest_level(const heft__plan_loop *loops, uint32_t rank, uint64_t unit, uint64_t gap) {
    uint32_t level = rank;
    while (level > 0) {
        uint64_t extent = nest_span(loops, level, rank, unit, false), step = (uint64_t)loops[level - 1].loop.src;
        if (step < extent || step - extent > gap) break;
        level--;
    }
    return level;
}

/* The most steps, at least `least`, of loop d that keep a box within `limit`, all other tiles given. */
static uint64_t nest_fit(const heft__plan_nest *nest, const heft__plan_loop *loops, uint32_t d, uint64_t limit,
                         uint64_t least) {
    uint64_t outer = 1, most;
    for (uint32_t e = 0; e < nest->level; e++)
        if (e != d) outer *= loops[e].tile;
    uint64_t share = limit / outer;
    if (d >= nest->level) {
        uint64_t step = (uint64_t)loops[d].loop.src;
        uint64_t rest = nest_span(loops, nest->level, nest->rank, nest->unit_tile, true) - (loops[d].tile - 1) * step;
        most = share > rest ? 1 + (share - rest) / step : 1;
    } else if (nest->bits || nest->direct)
        most = 1; /* one request a box: each begins at a bit, or at a byte of a page, of its own */
    else
        most = share / (nest_span(loops, nest->level, nest->rank, nest->unit_tile, true) + HEFT__PLAN_VIEW_GAP);
    if (most < least) most = least;
    return most < loops[d].loop.count ? most : loops[d].loop.count;
}

/* Fills boxes from the inside out up to `limit` bytes (bits); loop `keep` gets `least` steps first. */
static void nest_fill(heft__plan_nest *nest, heft__plan_loop *loops, uint64_t limit, uint32_t keep, uint64_t least) {
    for (uint32_t d = 0; d < nest->rank; d++) loops[d].tile = d == keep ? least : 1;
    uint64_t share = keep < nest->level ? limit / least : limit;
    nest->unit_tile = nest->unit < share ? nest->unit : share;
    if (nest->unit_tile < nest->unit) return;
    for (uint32_t d = nest->rank; d-- > 0;) {
        loops[d].tile = nest_fit(nest, loops, d, limit, d == keep ? least : 1);
        if (loops[d].tile < loops[d].loop.count) return;
    }
}

/* A transposing gather writes short pieces when a box holds few steps of the loop that runs along the destination: then
 * its boxes become larger, and, where that does not suffice, rectangles of several requests each. */
enum { NEST_PIECE = 512, NEST_PIECE_UNIT = 64 };

static void nest_rectangles(heft__plan_nest *nest, heft__plan_loop *loops, uint64_t limit) {
    uint32_t along = nest->rank;
    for (uint32_t d = nest->rank; d-- > 0;) {
        uint64_t step = loops[d].loop.dst < 0 ? 0 - (uint64_t)loops[d].loop.dst : (uint64_t)loops[d].loop.dst;
        uint64_t best = along == nest->rank         ? UINT64_MAX
                        : loops[along].loop.dst < 0 ? 0 - (uint64_t)loops[along].loop.dst
                                                    : (uint64_t)loops[along].loop.dst;
        if (step < best) along = d;
    }
    if (nest->unit > NEST_PIECE_UNIT || along + 1 >= nest->rank) return;
    uint64_t want = NEST_PIECE / nest->unit;
    if (want > loops[along].loop.count) want = loops[along].loop.count;
    if (loops[along].tile >= want) return;
    nest_fill(nest, loops, limit, nest->rank, 1);
    if (loops[along].tile >= want) return;
    if (nest->level < along + 1) nest->level = along + 1;
    nest_fill(nest, loops, limit, along, want);
}

static uint64_t nest_ceil(uint64_t a, uint64_t b) {
    return a / b + (a % b != 0);
}

/* Sums of a byte nest over all boxes, in closed form: tiles at the edge are shorter. */
static bool nest_count(heft__plan_nest *nest, const heft__plan_loop *loops) {
    uint64_t outer = 1, inner = nest_ceil(nest->unit, nest->unit_tile), sum, term, boxes = inner;
    bool ok = true;
    for (uint32_t d = 0; d < nest->rank; d++) {
        uint64_t tiles = nest_ceil(loops[d].loop.count, loops[d].tile);
        ok = ok &&
             heft__mul_u64(d < nest->level ? outer : inner, d < nest->level ? loops[d].loop.count : tiles,
                           d < nest->level ? &outer : &inner) &&
             heft__mul_u64(boxes, tiles, &boxes);
    }
    ok = ok && heft__mul_u64(inner / nest_ceil(nest->unit, nest->unit_tile), nest->unit, &sum);
    for (uint32_t d = nest->level; ok && d < nest->rank; d++) {
        uint64_t tiles = nest_ceil(loops[d].loop.count, loops[d].tile);
        ok = heft__mul_u64(inner / tiles, loops[d].loop.count - tiles, &term) &&
             heft__mul_u64(term, (uint64_t)loops[d].loop.src, &term) && heft__add_u64(sum, term, &sum);
    }
    nest->nboxes = boxes;
    return ok && heft__mul_u64(outer, inner, &nest->nreads) && heft__mul_u64(outer, sum, &nest->requested);
}

/* The same for a nest whose requests are rounded out, to bytes or to pages: one box after another. */
static bool nest_count_boxes(const heft_plan *plan, heft__plan_nest *nest, const heft__plan_loop *loops,
                             const heft__plan_item *item) {
    const heft__plan_source *source = &plan->sources[item->source];
    nest->nboxes = nest_ceil(nest->unit, nest->unit_tile);
    for (uint32_t d = 0; d < nest->rank; d++)
        if (!heft__mul_u64(nest->nboxes, nest_ceil(loops[d].loop.count, loops[d].tile), &nest->nboxes)) return false;
    nest->nreads = nest->nboxes;
    for (uint64_t i = 0; i < nest->nboxes; i++) {
        heft__box box;
        uint64_t begin, end;
        heft__nest_box(plan, nest, i, &box);
        heft__nest_range(nest, item, box.src, box.span, &begin, &end);
        if (!heft__add_u64(nest->requested, heft__plan_asked(source, begin, end), &nest->requested)) return false;
    }
    return true;
}

/* What one box may span, in bytes (bits), and whether its units go straight to their places. */
static uint64_t nest_limit(const heft_plan *plan, heft__plan_nest *nest, const heft__plan_loop *loops,
                           const heft__plan_source *source, uint64_t inner) {
    uint64_t scratch = heft__plan_scratch(plan, source);
    nest->scatter = !nest->bits && !nest->swap && !nest->to && !nest->direct && nest->unit >= plan->unit_min;
    if (nest->scatter) { /* as much kept as a block of a plain run, within four blocks of file */
        uint64_t span = nest_span(loops, nest->level, nest->rank, nest->unit, false),
                 block = plan->options.block_nbytes;
        uint64_t ratio = span / inner, limit = block * (ratio < 1 ? 1 : ratio > 4 ? 4 : ratio);
        return limit > HEFT__READ_MAX ? HEFT__READ_MAX : limit;
    }
    if (nest->direct) scratch -= 2 * (uint64_t)source->direct_align;
    else if (nest->to && scratch > HEFT__PLAN_SCRATCH_CAST) scratch = HEFT__PLAN_SCRATCH_CAST;
    return scratch * (nest->bits ? 8 : 1);
}

/* Boxes that are converted are small. A block has so many of them that it is as large as those of plain runs: two workers then
 * do not bring in the same huge page. */
static void nest_batch(const heft_plan *plan, heft__plan_nest *nest) {
    uint64_t block = plan->options.block_nbytes;
    nest->batch = nest->bits ? nest->nboxes : 1;
    if (nest->to && nest->box_nbytes < block) nest->batch = block / nest->box_nbytes;
}

bool heft__nest_tile(const heft_plan *plan, heft__plan_nest *nest, const heft__plan_item *item) {
    const heft__plan_source *source = &plan->sources[item->source];
    heft__plan_loop *loops = heft__plan_loops(plan, nest);
    nest->direct = source->direct_align != 0;
    nest->level = nest_level(loops, nest->rank, nest->unit, source->view_gap * (nest->bits ? 8 : 1));
    nest->kept = nest->unit;
    nest->requested = 0;
    nest->box_nbytes = 0;
    uint64_t inner = nest->unit; /* kept bytes of the loops that one request covers */
    for (uint32_t d = 0; d < nest->rank; d++) {
        if (!heft__mul_u64(nest->kept, loops[d].loop.count, &nest->kept)) return false;
        if (d >= nest->level) inner *= loops[d].loop.count;
    }
    nest->kept = nest->held = nest->bits ? (nest->kept + 7) / 8 : nest->kept;
    if (nest->to && !heft__mul_u64(nest->kept / nest->unit, heft__dtypes[nest->to].bits / 8u, &nest->held)) return false;
    nest_fill(nest, loops, nest_limit(plan, nest, loops, source, inner), nest->rank, 1);
    if (!nest->scatter && !nest->bits && !nest->direct) {
        uint64_t scratch = heft__plan_scratch(plan, source), share = plan->scratch_share;
        nest_rectangles(nest, loops, share < scratch ? scratch : share < 4 * scratch ? share : 4 * scratch);
    }
    if (!nest->scatter) {
        uint64_t span = nest_span(loops, nest->level, nest->rank, nest->unit_tile, true);
        nest->box_nbytes = nest->bits ? (span + 7) / 8 + 2 : span;
        for (uint32_t d = 0; d < nest->level; d++) nest->box_nbytes *= loops[d].tile;
        nest->box_nbytes += 2 * (uint64_t)source->direct_align;
    }
    bool fits = nest->bits || nest->direct ? nest_count_boxes(plan, nest, loops, item) : nest_count(nest, loops);
    nest_batch(plan, nest);
    return fits;
}
