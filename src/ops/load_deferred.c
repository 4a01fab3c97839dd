/* ops: tensors that a load located and did not read: their list, and reading them later. */
#include "ops/load.h"

#include "base/error.h"
#include "base/sort.h"
#include "device/device.h"
#include "ops/run.h"

#include <string.h>

/* How deferred tensors are ordered: by the name without its last segment that is all digits, then by that number. */
typedef struct deferred_names {
    const char **texts;
    uint64_t *lens;
} deferred_names;

static bool deferred_all_digits(const char *text, size_t len) {
    for (size_t i = 0; i < len; i++)
        if (text[i] < '0' || text[i] > '9') return false;
    return len > 0;
}

/* The last all-digit segment of a name: [*begin, *end); false: there is none. */
static bool deferred_number(const char *name, size_t len, size_t *begin, size_t *end) {
    for (*end = len;;) {
        for (*begin = *end; *begin > 0 && name[*begin - 1] != '.';) --*begin;
        if (deferred_all_digits(name + *begin, *end - *begin)) return true;
        if (*begin == 0) return false;
        *end = *begin - 1;
    }
}

/* The name as bytes that compare in that order: the rest, a NUL, how many digits the number has, its digits. */
static const char *deferred_key(heft__arena *arena, const char *name, size_t len, uint64_t *key_len) {
    size_t begin, end;
    if (!deferred_number(name, len, &begin, &end)) begin = end = len;
    char *key = heft__arena_alloc(arena, (uint64_t)len + 6, 1);
    if (!key) return NULL;
    size_t at = begin;
    memcpy(key, name, begin);
    memcpy(key + at, name + end, len - end);
    at += len - end;
    key[at++] = 0;
    while (begin < end && name[begin] == '0') begin++;
    size_t digits = end - begin;
    for (uint32_t shift = 32; shift > 0; at++) key[at] = (char)(uint8_t)(digits >> (shift -= 8));
    memcpy(key + at, name + begin, digits);
    *key_len = at + digits;
    return key;
}

static const char *deferred_text(const void *ctx, uint32_t index, uint64_t *len) {
    const deferred_names *names = ctx;
    *len = names->lens[index];
    return names->texts[index];
}

heft_status heft__weights_defer(heft_weights *w, const heft_filter_result *filter, heft_error *err) {
    uint64_t n;
    if (!filter) return HEFT_OK;
    const uint64_t *ids = heft_filter_deferred(filter, &n);
    if (n == 0) return HEFT_OK;
    heft__arena arena;
    heft__arena_init(&arena, &w->alloc);
    deferred_names names = {heft__arena_alloc(&arena, n * sizeof *names.texts, 8),
                            heft__arena_alloc(&arena, n * sizeof *names.lens, 8)};
    heft__sort_key *keys = heft__arena_alloc(&arena, n * sizeof *keys, 8);
    w->deferred = heft__alloc(&w->alloc, n * sizeof *w->deferred);
    if (w->deferred) w->ndeferred = n;
    bool ok = names.texts && names.lens && keys && w->deferred;
    for (uint64_t i = 0; ok && i < n; i++) {
        uint32_t file;
        const heft__entry *entry = heft__archive_entry(w->archive, ids[i], &file);
        names.texts[i] = deferred_key(&arena, entry->name, entry->name_len, &names.lens[i]);
        keys[i] = (heft__sort_key){.index = (uint32_t)i};
        ok = names.texts[i] != NULL;
    }
    if (ok) {
        heft__sort_texts(keys, n, deferred_text, &names);
        for (uint64_t i = 0; i < n; i++) w->deferred[i] = (uint32_t)ids[keys[i].index];
    }
    heft__arena_free(&arena);
    return ok ? HEFT_OK : heft__fail_memory(err, n * sizeof *keys);
}

uint64_t heft_weights_deferred_count(const heft_weights *weights) {
    return weights->ndeferred;
}

heft_status heft_weights_deferred(const heft_weights *weights, uint64_t index, heft_deferred *out, heft_error *err) {
    memset(out, 0, sizeof *out);
    if (index >= weights->ndeferred)
        return heft__fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL,
                          "deferred tensor %llu is out of range; there are %llu", (unsigned long long)index,
                          (unsigned long long)weights->ndeferred);
    uint64_t id = weights->deferred[index];
    uint32_t file;
    const heft__entry *entry = heft__archive_entry(weights->archive, id, &file);
    *out = (heft_deferred){.name = entry->name,
                           .name_len = entry->name_len,
                           .id = id,
                           .path = weights->archive->files[file]->source->label,
                           .offset = heft__entry_offset(weights->archive->files[file], entry),
                           .dtype = heft__load_dtype(&weights->parts, entry, id),
                           .rank = entry->rank};
    out->shape = heft__load_part(weights->archive, &weights->parts, id, &out->nbytes);
    return HEFT_OK;
}

/* ---- reading one tensor ---- */

/* Into its own memory, by a plan of its own. `facts`: room for one a file. */
static heft_status deferred_run(const heft_weights *w, uint64_t id, heft__source_facts *facts, heft_plan **plan,
                                heft_buffer *out, heft_error *err) {
    heft_load_plan load = {.alloc = w->alloc,
                           .archive = w->archive,
                           .options = w->options,
                           .kept = &id,
                           .nkept = 1,
                           .parts = w->parts,
                           .facts = facts};
    uint32_t file;
    heft__engine_result result;
    heft__facts_host(&load.host);
    (void)heft__archive_entry(w->archive, id, &file);
    heft_status status = heft__load_plan_sorted(&load, plan, err);
    if (status == HEFT_OK) status = heft__load_facts(&load, *plan, file, err);
    if (status == HEFT_OK) status = heft__load_plan_finish(&load, 0, false, *plan, err);
    if (status != HEFT_OK) return status;
    const heft__plan_arena none = {.align = HEFT__HOST_ALIGN}, *wanted = (*plan)->narenas ? &(*plan)->arenas[0] : &none;
    heft_arena *arena;
    status = heft__load_memory_take(&load, wanted->nbytes, wanted->align, &arena, out, err);
    if (status != HEFT_OK || (*plan)->nitems == 0) return status;
    uint8_t *slot = out->data;
    heft__running run = {.plan = *plan, .slots = &slot, .kind = heft__load_engine(w->options.engine), .strict = true};
    status = heft__run_open(&run, err);
    if (status != HEFT_OK) return status;
    status = run.kind->submit(run.engine, HEFT__LANE_WANTED, 0, (*plan)->sum.nblocks, err);
    if (status == HEFT_OK) run.kind->reap(run.engine, NULL, 0);
    heft_status closed = heft__run_close(&run, &result, status == HEFT_OK ? err : NULL);
    heft__run_free(&run);
    heft__host_arena_settle(arena);
    out->data = slot + (*plan)->items[0].place;
    return status == HEFT_OK ? closed : status;
}

heft_status heft__weights_read(const heft_weights *w, uint64_t id, heft_buffer *out, heft_error *err) {
    heft_plan *plan = NULL;
    uint64_t nbytes = w->archive->nfiles * sizeof(heft__source_facts);
    memset(out, 0, sizeof *out);
    heft__source_facts *facts = heft__alloc_zero(&w->alloc, nbytes);
    if (!facts) return heft__fail_memory(err, nbytes);
    heft_status status = deferred_run(w, id, facts, &plan, out, err);
    if (status != HEFT_OK)
        heft_buffer_release(out);
    else
        (void)heft__load_part(w->archive, &w->parts, id, &out->nbytes);
    heft_plan_free(plan);
    heft__free(&w->alloc, facts, nbytes);
    return status;
}

heft_status heft_weights_read_deferred(const heft_weights *weights, const char *name, size_t name_len, heft_buffer *out,
                                       heft_error *err) {
    memset(out, 0, sizeof *out);
    if (!name) return heft__fail_null(err, "name");
    size_t len = name_len == SIZE_MAX ? strlen(name) : name_len;
    uint64_t id = heft__archive_lookup(weights->archive, name, len);
    if (id == HEFT_NONE) return heft__archive_fail_name(weights->archive, name, len, err);
    if (weights->states[id] == HEFT_RULE_DEFER) return heft__weights_read(weights, id, out, err);
    heft__fail(err, HEFT_NOT_FOUND, HEFT_FAULT_CALL, "the tensor is not deferred, but decided about by the rule %s",
               heft_rule_name(weights->states[id] & HEFT__WEIGHTS_RULE));
    heft__error_name(err, weights->archive, id);
    return HEFT_NOT_FOUND;
}

heft_status heft_weights_detach(const heft_weights *weights, const char *name, size_t name_len, heft_buffer *out,
                                heft_error *err) {
    heft_loaded tensor;
    memset(out, 0, sizeof *out);
    heft_status status = heft_weights_get(weights, name, name_len, &tensor, err);
    if (status != HEFT_OK) return status;
    if (tensor.mapped) return heft__weights_read(weights, tensor.id, out, err); /* never a copy out of a mapping */
    status = heft__host_buffer(&weights->alloc, tensor.nbytes, out, err);
    if (status == HEFT_OK && tensor.nbytes) memcpy(out->data, tensor.data, (size_t)tensor.nbytes);
    return status;
}
