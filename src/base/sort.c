/* base: introsort over small keys. */
#include "base/sort.h"

#include <stdbool.h>

#define SORT_SMALL 24

typedef struct sort_job {
    heft__sort_key *keys;
    heft__sort_tie tie;
    const void *ctx;
} sort_job;

static inline bool sort_less(const sort_job *job, const heft__sort_key *a, const heft__sort_key *b) {
    if (a->major != b->major) return a->major < b->major;
    return job->tie(job->ctx, a, b) < 0;
}

static inline void sort_swap(heft__sort_key *a, heft__sort_key *b) {
    heft__sort_key keep = *a;
    *a = *b;
    *b = keep;
}

static void sort_insertion(const sort_job *job, uint64_t from, uint64_t to) {
    for (uint64_t i = from + 1; i < to; i++) {
        heft__sort_key moving = job->keys[i];
        uint64_t at = i;
        for (; at > from && sort_less(job, &moving, &job->keys[at - 1]); at--) job->keys[at] = job->keys[at - 1];
        job->keys[at] = moving;
    }
}

/* Lets keys[from + at] sink into the heap keys[from, from + count). */
static void sort_sink(const sort_job *job, uint64_t from, uint64_t at, uint64_t count) {
    heft__sort_key *heap = job->keys + from, moving = heap[at];
    for (uint64_t child; (child = 2 * at + 1) < count; at = child) {
        if (child + 1 < count && sort_less(job, &heap[child], &heap[child + 1])) child++;
        if (!sort_less(job, &moving, &heap[child])) break;
        heap[at] = heap[child];
    }
    heap[at] = moving;
}

static void sort_heap(const sort_job *job, uint64_t from, uint64_t to) {
    uint64_t count = to - from;
    for (uint64_t i = count / 2; i-- > 0;) sort_sink(job, from, i, count);
    for (uint64_t last = count - 1; last > 0; last--) {
        sort_swap(&job->keys[from], &job->keys[from + last]);
        sort_sink(job, from, 0, last);
    }
}

/* The middle one of three goes to b. */
static void sort_median(const sort_job *job, heft__sort_key *a, heft__sort_key *b, heft__sort_key *c) {
    if (sort_less(job, b, a)) sort_swap(a, b);
    if (sort_less(job, c, b)) {
        sort_swap(b, c);
        if (sort_less(job, b, a)) sort_swap(a, b);
    }
}

/* Splits [from, to) so that nothing before the returned place is greater than anything from it on; both parts are not
 * empty. Equal keys go to both sides, so runs of them halve as well. */
static uint64_t sort_split(const sort_job *job, uint64_t from, uint64_t to) {
    heft__sort_key *keys = job->keys;
    uint64_t middle = from + (to - from) / 2, low = from, high = to - 1;
    sort_median(job, &keys[from], &keys[middle], &keys[to - 1]);
    heft__sort_key pivot = keys[middle];
    for (;;) {
        while (sort_less(job, &keys[low], &pivot)) low++;
        while (sort_less(job, &pivot, &keys[high])) high--;
        if (low >= high) return high + 1;
        sort_swap(&keys[low++], &keys[high--]);
    }
}

void heft__sort_keys(heft__sort_key *keys, uint64_t count, heft__sort_tie tie, const void *ctx) {
    sort_job job = {keys, tie, ctx};
    /* The larger part waits, so at most log2(count) parts wait at once. */
    struct {
        uint64_t from, to;
        uint32_t depth;
    } waiting[64];
    uint32_t nwaiting = 0, depth = 0;
    for (uint64_t n = count; n > 1; n /= 2) depth += 2;
    uint64_t from = 0, to = count;
    for (;;) {
        while (to - from > SORT_SMALL && depth > 0) {
            uint64_t middle = sort_split(&job, from, to);
            depth--;
            bool first_is_small = middle - from < to - middle;
            waiting[nwaiting].from = first_is_small ? middle : from;
            waiting[nwaiting].to = first_is_small ? to : middle;
            waiting[nwaiting++].depth = depth;
            if (first_is_small)
                to = middle;
            else
                from = middle;
        }
        if (to - from > SORT_SMALL)
            sort_heap(&job, from, to);
        else if (to > from)
            sort_insertion(&job, from, to);
        if (nwaiting == 0) return;
        nwaiting--;
        from = waiting[nwaiting].from;
        to = waiting[nwaiting].to;
        depth = waiting[nwaiting].depth;
    }
}

uint64_t heft__sort_prefix(const char *text, uint64_t len) {
    uint64_t prefix = 0;
    for (uint64_t i = 0; i < 8; i++) prefix = prefix << 8 | (i < len ? (uint8_t)text[i] : 0);
    return prefix;
}
