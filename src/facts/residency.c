/* facts: the ladder of questions about the page cache: cachestat, reads that do not wait, mincore. */
#include "facts/residency.h"

#include "base/os.h"

#include <errno.h>

/* cachestat and mincore walk pages, at up to 20 ns each; of large folios cachestat needs one step. A call costs below a
 * microsecond, one that maps three. */
enum { RESIDENCY_CALLS = 256, RESIDENCY_SAMPLES = 64 };
#define RESIDENCY_WALK (UINT64_C(64) << 20)  /* bytes in all */
#define RESIDENCY_GAP (UINT64_C(64) << 10)   /* between extents: read ahead crosses it anyway */

/* One answer about a range: pages of it, of them in the cache, of them unclean. */
typedef struct residency_answer {
    uint64_t pages, cached, unclean;
} residency_answer;

typedef int (*residency_probe)(const heft__facts_sys *sys, int fd, heft__extent range, residency_answer *out);

static uint64_t residency_pages(heft__extent range) {
    uint64_t page = heft__os_page_size();
    return (range.offset + (range.nbytes - 1)) / page - range.offset / page + 1;
}

static int residency_cachestat(const heft__facts_sys *sys, int fd, heft__extent range, residency_answer *out) {
    heft__cached_pages pages = {0, 0};
    int code = sys->cachestat(fd, range.offset, range.nbytes, &pages);
    *out = (residency_answer){residency_pages(range), pages.cached, pages.unclean};
    return code;
}

static int residency_nowait(const heft__facts_sys *sys, int fd, heft__extent range, residency_answer *out) {
    int code = sys->nowait(fd, range.offset);
    *out = (residency_answer){1, code == 0, 0};
    return code == EAGAIN ? 0 : code;
}

static int residency_mincore(const heft__facts_sys *sys, int fd, heft__extent range, residency_answer *out) {
    uint64_t cached = 0;
    int code = sys->mincore(fd, range.offset, range.nbytes, &cached);
    *out = (residency_answer){residency_pages(range), cached, 0};
    return code;
}

/* ---- runs: extents with small gaps between them, in places of the file ---- */

typedef struct residency_walk {
    const heft_source *source;
    const heft__extent *at, *end;
} residency_walk;

/* The next extent that has bytes, cut at the end of the source. */
static bool residency_extent(residency_walk *walk, heft__extent *out) {
    for (; walk->at < walk->end; walk->at++) {
        uint64_t size = walk->source->size, offset = walk->at->offset;
        if (offset >= size || walk->at->nbytes == 0) continue;
        uint64_t most = size - offset;
        *out = (heft__extent){walk->source->window_offset + offset, walk->at->nbytes < most ? walk->at->nbytes : most};
        return true;
    }
    return false;
}

static bool residency_run(residency_walk *walk, heft__extent *run) {
    heft__extent next;
    if (!residency_extent(walk, run)) return false;
    for (walk->at++; residency_extent(walk, &next); walk->at++) {
        uint64_t end = run->offset + run->nbytes, next_end = next.offset + next.nbytes;
        if (next.offset < run->offset || (next.offset > end && next.offset - end > RESIDENCY_GAP)) break;
        if (next_end > end) run->nbytes = next_end - run->offset;
    }
    return true;
}

/* ---- asking ---- */

/* whole * part / of without overflow, for of < 2^32. */
static uint64_t residency_share(uint64_t whole, uint64_t part, uint64_t of) {
    if (part > of) part = of;
    return whole / of * part + whole % of * part / of;
}

static void residency_count(heft__residency *out, uint64_t nbytes, const residency_answer *answer) {
    out->resident_nbytes += residency_share(nbytes, answer->cached, answer->pages);
    if (answer->unclean) out->dirty = true;
}

static int residency_exact(const heft__facts_sys *sys, residency_walk walk, heft__residency *out) {
    heft__extent run;
    residency_answer answer;
    while (residency_run(&walk, &run)) {
        int code = residency_cachestat(sys, walk.source->fd, run, &answer);
        if (code != 0) return code;
        residency_count(out, run.nbytes, &answer);
    }
    return 0;
}

/* A number below 2^32 out of a seed, another one for each i, mixed well enough that lots of two seeds have nothing in common
 * (the finalizer of MurmurHash3). */
static uint64_t residency_lot(uint64_t seed, uint64_t i) {
    uint64_t x = seed + i;
    x = (x ^ x >> 33) * UINT64_C(0xFF51AFD7ED558CCD);
    x = (x ^ x >> 33) * UINT64_C(0xC4CEB9FE1A85EC53);
    return x >> 32;
}

/* Byte `i` of `n` equal parts of `total`. */
static uint64_t residency_place(uint64_t total, uint64_t i, uint64_t n) {
    return total / n * i + total % n * i / n;
}

/* Cuts all that is asked for into n equal parts, and lets a window of at most `most` bytes of each speak for it; a window ends
 * with its run. Where in its part a window lies is drawn by lot: a read that does not wait brings a page in all the same, and
 * whoever asked at the same places again would find them hot. */
static int residency_spread(const heft__facts_sys *sys, residency_walk walk, residency_probe probe, uint64_t n,
                            uint64_t most, heft__residency *out) {
    uint64_t total = out->asked_nbytes, before = 0, i = 0, lot;
    heft__extent run;
    residency_answer answer;
    if (n > total) n = total;
    heft__os_random(&lot, sizeof lot);
    while (i < n && residency_run(&walk, &run)) {
        for (; i < n; i++) {
            uint64_t begin = residency_place(total, i, n), part = residency_place(total, i + 1, n) - begin;
            uint64_t window = part < most ? part : most;
            uint64_t at = begin + residency_share(part - window, residency_lot(lot, i), UINT32_MAX) - before;
            if (at >= run.nbytes) break;
            if (window > run.nbytes - at) window = run.nbytes - at;
            int code = probe(sys, walk.source->fd, (heft__extent){run.offset + at, window}, &answer);
            if (code != 0) return code;
            residency_count(out, part, &answer);
        }
        before += run.nbytes;
    }
    return 0;
}

/* Starts the answer of a step. */
static void residency_begin(heft__residency *out, heft__residency_step step) {
    out->step = step;
    out->resident_nbytes = 0;
    out->dirty = false;
    out->known = true;
}

void heft__residency_ask(const heft__facts_sys *sys, const heft_source *source, bool stacked, const heft__extent *extents,
                         uint64_t nextents, heft__residency *out) {
    residency_walk walk = {source, extents, nextents ? extents + nextents : extents}, count = walk;
    uint64_t nruns = 0;
    *out = (heft__residency){.step = HEFT__RESIDENCY_NONE};
    for (heft__extent run; residency_run(&count, &run); nruns++) out->asked_nbytes += run.nbytes;
    if (nruns == 0) return;
    residency_begin(out, HEFT__RESIDENCY_CACHESTAT);
    bool exact = nruns <= RESIDENCY_CALLS && out->asked_nbytes <= RESIDENCY_WALK;
    uint64_t window = RESIDENCY_WALK / RESIDENCY_CALLS;
    int code = stacked ? EOPNOTSUPP
               : exact ? residency_exact(sys, walk, out)
                       : residency_spread(sys, walk, residency_cachestat, RESIDENCY_CALLS, window, out);
    out->exact = exact && code == 0;
    if (code == 0) return;
    residency_begin(out, HEFT__RESIDENCY_NOWAIT);
    if (residency_spread(sys, walk, residency_nowait, RESIDENCY_SAMPLES, 1, out) == 0) return;
    residency_begin(out, HEFT__RESIDENCY_MINCORE);
    if (sys->may_mincore(source->fd) &&
        residency_spread(sys, walk, residency_mincore, RESIDENCY_SAMPLES, HEFT__MINCORE_MOST, out) == 0)
        return;
    residency_begin(out, HEFT__RESIDENCY_NONE);
    out->known = false;
}
