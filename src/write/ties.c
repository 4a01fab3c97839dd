/* write: items that are one storage under several names: tied weights, written once and the other names noted. */
#include "write/ties.h"

#include "base/sort.h"

#include <string.h>

static const char tie_prefix[] = "tied:";

/* Where the elements of an item are and how they lie: equal for items that are one storage, of a size that is not 0. */
typedef struct tie_place {
    const void *base; /* memory, or an archive */
    uint64_t id;      /* in the archive */
    int64_t offset;   /* of a view, in elements */
    uint32_t kind, rank, from, dtype;
    int64_t shape[HEFT_MAX_RANK], stride[HEFT_MAX_RANK]; /* strides of dims of 1 are 0 */
} tie_place;

enum { TIE_MEMORY, TIE_TENSOR, TIE_VIEW };

static void tie_strides(const heft_save_item *item, const heft__item *checked, tie_place *out) {
    int64_t step = heft__dtypes[checked->from].bits / 8;
    for (uint32_t d = out->rank; d-- > 0; step *= out->shape[d]) {
        out->shape[d] = (int64_t)checked->shape[d];
        out->stride[d] = item->view ? item->view->stride[d] : item->stride_nbytes ? item->stride_nbytes[d] : step;
        if (out->shape[d] == 1) out->stride[d] = 0;
    }
}

/* False: it is nobody's equal. */
static bool tie_find_place(const heft_save_item *item, uint64_t number, tie_place *out) {
    heft__item checked;
    if (heft__item_check(item, number, &checked, NULL) != HEFT_OK || checked.nbytes == 0) return false;
    out->kind = TIE_MEMORY;
    out->base = item->data;
    out->id = 0;
    out->offset = 0;
    out->rank = item->archive && !item->view ? 0 : checked.rank;
    out->from = (uint32_t)checked.from;
    out->dtype = (uint32_t)checked.dtype;
    if (item->view) {
        out->kind = TIE_VIEW;
        out->base = item->view->archive;
        out->id = item->view->id;
        out->offset = item->view->offset;
    } else if (item->archive) {
        out->kind = TIE_TENSOR;
        out->base = item->archive;
        out->id = item->id; /* says all */
    }
    if (out->rank > HEFT_MAX_RANK) return false;
    tie_strides(item, &checked, out);
    return true;
}

static bool tie_same(const tie_place *a, const tie_place *b) {
    size_t dims = a->rank * sizeof *a->shape;
    return a->kind == b->kind && a->base == b->base && a->id == b->id && a->offset == b->offset && a->rank == b->rank &&
           a->from == b->from && a->dtype == b->dtype && memcmp(a->shape, b->shape, dims) == 0 &&
           memcmp(a->stride, b->stride, dims) == 0;
}

static uint64_t tie_mix(uint64_t hash, uint64_t value) {
    hash = (hash ^ value) * UINT64_C(0x9E3779B97F4A7C15);
    return hash ^ hash >> 29;
}

/* Who gives the items is not who is attacked: no seed. */
static uint64_t tie_hash(const tie_place *place) {
    uint64_t hash = tie_mix(place->kind + 3 * (uint64_t)place->from + ((uint64_t)place->dtype << 16), (uintptr_t)place->base);
    hash = tie_mix(tie_mix(hash, place->id), (uint64_t)place->offset);
    for (uint32_t d = 0; d < place->rank; d++)
        hash = tie_mix(tie_mix(hash, (uint64_t)place->shape[d]), (uint64_t)place->stride[d]);
    return hash;
}

static bool tie_is_first(const heft_save_item *items, uint64_t a, uint64_t b) {
    heft__item x, y;
    (void)heft__item_check(&items[a], a, &x, NULL);
    (void)heft__item_check(&items[b], b, &y, NULL);
    int order = memcmp(x.name, y.name, x.name_len < y.name_len ? x.name_len : y.name_len);
    return order ? order < 0 : x.name_len < y.name_len;
}

/* Keys [begin, end) of one hash: items of one place are tied to the least name among them. `rank` of a key: it is settled. */
static uint64_t tie_group(const heft_save_item *items, heft__sort_key *keys, uint64_t begin, uint64_t end, uint32_t *kept) {
    uint64_t ties = 0;
    for (uint64_t i = begin; i < end; i++) {
        tie_place place, other;
        uint32_t first = keys[i].index;
        if (keys[i].rank) continue;
        (void)tie_find_place(&items[first], first, &place);
        for (uint64_t k = i; k < end; k++) {
            uint32_t at = keys[k].index;
            if (keys[k].rank || !tie_find_place(&items[at], at, &other) || !tie_same(&place, &other)) continue;
            keys[k].rank = keys[i].index + 1;
            if (tie_is_first(items, at, first)) first = at;
        }
        for (uint64_t k = i; k < end; k++) {
            if (keys[k].rank != keys[i].index + 1) continue;
            kept[keys[k].index] = first;
            ties += keys[k].index != first;
        }
    }
    return ties;
}

heft_status heft__ties_find(const heft_save_item *items, uint64_t nitems, const heft_allocator *alloc, uint32_t *kept,
                            uint64_t *nties, heft_error *err) {
    uint64_t nkeys = 0;
    *nties = 0;
    heft__sort_key *keys = heft__alloc(alloc, nitems * sizeof *keys);
    if (!keys && nitems) return heft__fail_memory(err, nitems * sizeof *keys);
    for (uint64_t i = 0; i < nitems; i++) {
        tie_place place;
        kept[i] = (uint32_t)i;
        if (tie_find_place(&items[i], i, &place)) keys[nkeys++] = (heft__sort_key){tie_hash(&place), 0, (uint32_t)i, 0};
    }
    heft__sort_keys(keys, nkeys);
    for (uint64_t i = 0, end; i < nkeys; i = end) {
        for (end = i + 1; end < nkeys && keys[end].major == keys[i].major; end++) {}
        if (end - i > 1) *nties += tie_group(items, keys, i, end, kept);
    }
    heft__free(alloc, keys, nitems * sizeof *keys);
    return HEFT_OK;
}

heft_status heft__ties_count(const heft_save_item *items, uint64_t nitems, const heft_allocator *alloc, uint64_t *nties,
                             heft_error *err) {
    uint64_t nmemory = 0;
    *nties = 0;
    for (uint64_t i = 0; i < nitems && nmemory < 2; i++) nmemory += !items[i].view && !items[i].archive;
    if (nmemory < 2) return HEFT_OK;
    uint32_t *kept = heft__alloc(alloc, nitems * sizeof *kept);
    if (!kept) return heft__fail_memory(err, nitems * sizeof *kept);
    heft_status status = heft__ties_find(items, nitems, alloc, kept, nties, err);
    heft__free(alloc, kept, nitems * sizeof *kept);
    return status;
}

/* ---- what is left of the items ---- */

static char *tie_key(heft__arena *arena, const heft__item *dropped) {
    size_t prefix = sizeof tie_prefix - 1;
    char *key = heft__arena_alloc(arena, prefix + dropped->name_len + 1, 1);
    if (!key) return NULL;
    memcpy(key, tie_prefix, prefix);
    memcpy(key + prefix, dropped->name, dropped->name_len);
    key[prefix + dropped->name_len] = 0;
    return key;
}

static bool tie_note(heft_ties *ties, const heft_save_item *items, uint64_t number, uint64_t kept) {
    heft__item gone, stays;
    (void)heft__item_check(&items[number], number, &gone, NULL);
    (void)heft__item_check(&items[kept], kept, &stays, NULL);
    char *key = tie_key(&ties->arena, &gone), *value = heft__arena_text(&ties->arena, stays.name, stays.name_len);
    if (!key || !value) return false;
    ties->metadata[ties->nmetadata++] = (heft_pair){key, sizeof tie_prefix - 1 + gone.name_len, value, stays.name_len};
    ties->ties[ties->nties++] = (heft_tie){number, kept};
    return true;
}

heft_status heft__ties_make(heft_ties *ties, const heft_save_item *items, uint64_t nitems, const heft_pair *metadata,
                            uint64_t nmetadata, heft_error *err) {
    uint64_t nties;
    uint32_t *kept = heft__alloc(&ties->alloc, nitems * sizeof *kept);
    if (!kept && nitems) return heft__fail_memory(err, nitems * sizeof *kept);
    heft_status status = heft__ties_find(items, nitems, &ties->alloc, kept, &nties, err);
    if (status == HEFT_OK) {
        ties->items = heft__arena_alloc(&ties->arena, (nitems - nties) * sizeof *ties->items + 1, 16);
        ties->metadata = heft__arena_alloc(&ties->arena, (nmetadata + nties) * sizeof *ties->metadata + 1, 16);
        ties->ties = heft__arena_alloc(&ties->arena, nties * sizeof *ties->ties + 1, 16);
        bool fine = ties->items && ties->metadata && ties->ties;
        if (fine && nmetadata) memcpy(ties->metadata, metadata, nmetadata * sizeof *metadata);
        ties->nmetadata = nmetadata;
        for (uint64_t i = 0; i < nitems && fine; i++) {
            if (kept[i] == i) ties->items[ties->nitems++] = items[i];
            else fine = tie_note(ties, items, i, kept[i]);
        }
        if (!fine) status = heft__fail_memory(err, HEFT_NONE);
    }
    heft__free(&ties->alloc, kept, nitems * sizeof *kept);
    return status;
}
