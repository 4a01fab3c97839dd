/* base: introsort over small keys. */
#include "base/sort.h"

#include <stdbool.h>
#include <string.h>

#define SORT_SMALL 24

static inline bool sort_less(const heft__sort_key *a, const heft__sort_key *b) {
    if (a->major != b->major) return a->major < b->major;
    if (a->minor != b->minor) return a->minor < b->minor;
    return a->index < b->index;
}

static inline void sort_swap(heft__sort_key *a, heft__sort_key *b) {
    heft__sort_key keep = *a;
    *a = *b;
    *b = keep;
}

static void sort_insertion(heft__sort_key *keys, uint64_t from, uint64_t to) {
    for (uint64_t i = from + 1; i < to; i++) {
        heft__sort_key moving = keys[i];
        uint64_t at = i;
        for (; at > from && sort_less(&moving, &keys[at - 1]); at--) keys[at] = keys[at - 1];
        keys[at] = moving;
    }
}

/* Lets keys[from + at] sink into the heap keys[from, from + count). */
static void sort_sink(heft__sort_key *keys, uint64_t from, uint64_t at, uint64_t count) {
    heft__sort_key *heap = keys + from, moving = heap[at];
    for (uint64_t child; (child = 2 * at + 1) < count; at = child) {
        if (child + 1 < count && sort_less(&heap[child], &heap[child + 1])) child++;
        if (!sort_less(&moving, &heap[child])) break;
        heap[at] = heap[child];
    }
    heap[at] = moving;
}

static void sort_heap(heft__sort_key *keys, uint64_t from, uint64_t to) {
    uint64_t count = to - from;
    for (uint64_t i = count / 2; i-- > 0;) sort_sink(keys, from, i, count);
    for (uint64_t last = count - 1; last > 0; last--) {
        sort_swap(&keys[from], &keys[from + last]);
        sort_sink(keys, from, 0, last);
    }
}

/* The middle one of three goes to b. */
static void sort_median(heft__sort_key *a, heft__sort_key *b, heft__sort_key *c) {
    if (sort_less(b, a)) sort_swap(a, b);
    if (sort_less(c, b)) {
        sort_swap(b, c);
        if (sort_less(b, a)) sort_swap(a, b);
    }
}

/* Splits [from, to) so that nothing before the returned place is greater than anything from it on; both parts are not
 * empty. Equal keys go to both sides, so runs of them halve as well. */
static uint64_t sort_split(heft__sort_key *keys, uint64_t from, uint64_t to) {
    uint64_t middle = from + (to - from) / 2, low = from, high = to - 1;
    sort_median(&keys[from], &keys[middle], &keys[to - 1]);
    heft__sort_key pivot = keys[middle];
    for (;;) {
        while (sort_less(&keys[low], &pivot)) low++;
        while (sort_less(&pivot, &keys[high])) high--;
        if (low >= high) return high + 1;
        sort_swap(&keys[low++], &keys[high--]);
    }
}

void heft__sort_keys(heft__sort_key *keys, uint64_t count) {
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
            uint64_t middle = sort_split(keys, from, to);
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
            sort_heap(keys, from, to);
        else if (to > from)
            sort_insertion(keys, from, to);
        if (nwaiting == 0) return;
        nwaiting--;
        from = waiting[nwaiting].from;
        to = waiting[nwaiting].to;
        depth = waiting[nwaiting].depth;
    }
}

/* Fills the keys of texts that agree in their first `depth` bytes: the next eight as a number that orders like them,
 * then how many of them there are, 9 for more. */
static void sort_pieces(heft__sort_key *keys, uint64_t count, uint64_t depth, heft__sort_text text, const void *ctx) {
    for (uint64_t i = 0; i < count; i++) {
        uint64_t len, piece = 0;
        const char *p = text(ctx, keys[i].index, &len) + depth;
        len -= depth;
        for (uint64_t k = 0; k < 8; k++) piece = piece << 8 | (k < len ? (uint8_t)p[k] : 0);
        keys[i].major = piece;
        keys[i].minor = len < 9 ? len : 9;
    }
}

void heft__sort_texts(heft__sort_key *keys, uint64_t count, heft__sort_text text, const void *ctx) {
    if (count == 0) return;
    /* A run of keys whose texts agree so far is known by its first key: `rank` is where it ends, `major` how much
     * agrees. Runs fall into smaller ones in place, so nothing has to be remembered. */
    keys[0].rank = (uint32_t)count;
    keys[0].major = 0;
    for (uint64_t from = 0; from < count;) {
        uint64_t to = keys[from].rank, depth = keys[from].major;
        if (to - from < 2) {
            from = to;
            continue;
        }
        sort_pieces(keys + from, to - from, depth, text, ctx);
        heft__sort_keys(keys + from, to - from);
        for (uint64_t i = from, end; i < to; i = end) {
            uint64_t piece = keys[i].major;
            end = i + 1;
            if (keys[i].minor == 9) /* longer ones with the same piece lie together */
                while (end < to && keys[end].minor == 9 && keys[end].major == piece) end++;
            keys[i].rank = (uint32_t)end;
            keys[i].major = depth + 8;
        }
    }
}

void heft__sort_permute(heft__sort_key *keys, uint64_t count, void *items, size_t item_nbytes) {
    char *base = items, first[64];
    for (uint32_t i = 0; i < count; i++) {
        uint32_t at = i;
        if (keys[i].index == i) continue;
        memcpy(first, base + i * item_nbytes, item_nbytes);
        while (keys[at].index != i) {
            uint32_t from = keys[at].index;
            memcpy(base + at * item_nbytes, base + from * item_nbytes, item_nbytes);
            keys[at].index = at;
            at = from;
        }
        memcpy(base + at * item_nbytes, first, item_nbytes);
        keys[at].index = at;
    }
}
