/* plan: the expert that a tensor's name speaks of, and the ranks that own it. */
#include "plan/filter.h"

#include "base/alloc.h"
#include "base/checked.h"
#include "base/error.h"

#include <string.h>

static bool expert_digit(char c) {
    return c >= '0' && c <= '9';
}

/* The number that the `len` digits spell. */
typedef enum expert_parse { EXPERT_NO_NUMBER, EXPERT_NUMBER, EXPERT_TOO_LARGE } expert_parse;

static expert_parse expert_number(const char *digits, size_t len, uint64_t *out) {
    uint64_t value = 0;
    bool fits = true;
    for (size_t i = 0; i < len; i++) {
        if (!expert_digit(digits[i])) return EXPERT_NO_NUMBER;
        fits = fits && heft__mul_u64(value, 10, &value) && heft__add_u64(value, (uint64_t)(digits[i] - '0'), &value);
    }
    if (len == 0) return EXPERT_NO_NUMBER;
    *out = fits ? value : UINT64_MAX;
    return fits ? EXPERT_NUMBER : EXPERT_TOO_LARGE;
}

static size_t expert_segment_end(const char *name, size_t len, size_t start) {
    const char *dot = memchr(name + start, '.', len - start);
    return dot ? (size_t)(dot - name) : len;
}

/* The first segment `experts` that starts at `from` or later and is not the last one: its start, SIZE_MAX if there is
 * none. Looks at every seventh byte where there is nothing to find: this runs over all names of all archives. */
static size_t expert_segment(const char *name, size_t len, size_t from) {
    for (size_t at = from; at + 7 < len;) {
        switch (name[at + 6]) { /* how far "experts" must move for this byte to be one of its own */
        case 's':
            if (memcmp(name + at, "experts", 7) == 0 && name[at + 7] == '.' && (at == 0 || name[at - 1] == '.'))
                return at;
            at += 7;
            break;
        case 't': at += 1; break;
        case 'r': at += 2; break;
        case 'e': at += 3; break;
        case 'p': at += 4; break;
        case 'x': at += 5; break;
        default: at += 7; break;
        }
    }
    return SIZE_MAX;
}

/* What follows the first segment `experts` is the number, or there is none. */
static void expert_by_segment(const char *name, size_t len, size_t start, heft__expert *out) {
    size_t at = start + 8, stop = expert_segment_end(name, len, at);
    if (at < stop && name[at] == '+') at++;
    out->before = start ? start - 1 : 0;
    out->found = expert_number(name + at, stop - at, &out->index) == EXPERT_NUMBER;
    out->fused = !out->found;
}

/* The first ".experts.DIGITS." anywhere. */
static void expert_by_dots(const char *name, size_t len, size_t start, heft__expert *out) {
    out->fused = true;
    for (; start != SIZE_MAX; start = expert_segment(name, len, start + 8)) {
        size_t at = start + 8, stop = expert_segment_end(name, len, at);
        uint64_t index;
        expert_parse parse = start && stop < len ? expert_number(name + at, stop - at, &index) : EXPERT_NO_NUMBER;
        if (parse == EXPERT_NO_NUMBER) continue;
        *out =
            (heft__expert){.found = true, .too_large = parse == EXPERT_TOO_LARGE, .index = index, .before = start - 1};
        return;
    }
}

void heft__expert_find(heft_expert_name rule, const char *name, size_t len, heft__expert *out) {
    *out = (heft__expert){0};
    size_t start = expert_segment(name, len, 0);
    if (start == SIZE_MAX) return;
    if (rule == HEFT_EXPERT_NAME_SEGMENT)
        expert_by_segment(name, len, start, out);
    else
        expert_by_dots(name, len, start, out);
}

uint64_t heft__expert_layer(const char *name, size_t len) {
    for (size_t start = 0, end; start < len; start = end + 1) {
        uint64_t layer;
        end = expert_segment_end(name, len, start);
        if (expert_number(name + start, end - start, &layer) == EXPERT_NUMBER) return layer;
    }
    return HEFT_NONE;
}

bool heft__expert_owned(heft_placement placement, uint64_t rank, uint64_t world, uint64_t n, uint64_t index) {
    uint64_t base = n / world, rest = n % world;
    if (placement == HEFT_PLACEMENT_ROUND_ROBIN) return index % world == rank;
    uint64_t start = rank * base, end = rank == world - 1 ? n : start + base;
    if (placement == HEFT_PLACEMENT_FIRST_TAKE_REST) {
        start += rank < rest ? rank : rest;
        end = start + base + (rank < rest);
    }
    return start <= index && index < end;
}

uint64_t heft__expert_idle(heft_placement placement, uint64_t world, uint64_t n) {
    if (n >= world) return 0;
    return placement == HEFT_PLACEMENT_LAST_TAKES_REST ? world - 1 : world - n;
}

/* ---- sets of experts ---- */

heft_status heft__expert_list_make(heft__expert_list *list, const heft_expert_id *ids, size_t nids,
                                   const heft_allocator *alloc, heft_error *err) {
    uint64_t nbytes;
    *list = (heft__expert_list){0};
    if (nids && !ids)
        return heft__fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL,
                          "heft_filter: the list of experts is NULL, but its count is %zu", nids);
    if (nids > UINT32_MAX || !heft__mul_u64(nids, sizeof *list->keys, &nbytes))
        return heft__fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL,
                          "heft_filter: the list of experts is longer than memory");
    list->keys = heft__alloc(alloc, nbytes);
    if (!list->keys) return heft__fail_memory(err, nbytes);
    list->capacity = nids;
    for (size_t i = 0; i < nids; i++)
        list->keys[i] = (heft__sort_key){.major = ids[i].layer, .minor = ids[i].expert, .index = (uint32_t)i};
    heft__sort_keys(list->keys, nids);
    for (size_t i = 0; i < nids; i++) {
        const heft__sort_key *last = &list->keys[list->n - (list->n != 0)];
        if (list->n && last->major == list->keys[i].major && last->minor == list->keys[i].minor) continue;
        list->keys[list->n++] = list->keys[i];
    }
    return HEFT_OK;
}

void heft__expert_list_free(heft__expert_list *list, const heft_allocator *alloc) {
    heft__free(alloc, list->keys, list->capacity * sizeof *list->keys);
    *list = (heft__expert_list){0};
}

bool heft__expert_list_has(heft__expert_list *list, const heft__expert *expert, const char *name) {
    uint64_t layer = heft__expert_layer(name, expert->before), low = 0, high = list->n;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        const heft__sort_key *key = &list->keys[middle];
        if (key->major < layer || (key->major == layer && key->minor < expert->index)) low = middle + 1;
        else high = middle;
    }
    heft__sort_key *key = low < list->n ? &list->keys[low] : NULL;
    if (expert->too_large || !key || key->major != layer || key->minor != expert->index) return false;
    list->nfound += !key->rank;
    key->rank = 1;
    return true;
}
