/* ops: the tensors of a load: found by the hash of the archive, held in flat arrays. */
#include "ops/load_weights.h"

#include "base/error.h"
#include "base/text.h"
#include "device/device.h"

#include <string.h>

static _Alignas(4096) uint8_t weights_nothing[1];

uint8_t *heft__load_nothing(void) {
    return weights_nothing;
}

/* ---- beginning and end ---- */

uint64_t heft__weights_room(uint64_t ntensors) {
    uint64_t nbytes = ntensors * sizeof(uint8_t *);
    return nbytes > HEFT__HUGE_MIN / 4 && nbytes < HEFT__HUGE_MIN ? HEFT__HUGE_MIN : nbytes;
}

heft_status heft__weights_new(const heft_archive *archive, const heft_filter_result *filter,
                              const heft_allocator *alloc, heft_weights **out, heft_error *err) {
    uint64_t n = archive->ntensors;
    *out = NULL;
    heft_weights *w = heft__alloc_zero(alloc, sizeof *w);
    if (!w) return heft__fail_memory(err, sizeof *w);
    atomic_init(&w->refs, 1);
    atomic_init(&w->orders[0], NULL);
    atomic_init(&w->orders[1], NULL);
    w->alloc = *alloc;
    w->archive = heft_archive_ref((heft_archive *)(uintptr_t)archive);
    w->data_nbytes = heft__weights_room(n);
    w->data = heft__alloc(alloc, w->data_nbytes);
    w->states = w->data ? heft__alloc(alloc, n) : NULL;
    if (!w->states) {
        heft_weights_unref(w);
        return heft__fail_memory(err, n * sizeof *w->data);
    }
    if (n) memset(w->data, 0, n * sizeof *w->data);
    if (n && filter)
        memcpy(w->states, heft_filter_rules(filter), n);
    else if (n)
        memset(w->states, HEFT_RULE_KEPT, n);
    *out = w;
    return HEFT_OK;
}

heft_status heft__weights_hold(heft_weights *w, uint32_t nmemories, bool by_file, heft_error *err) {
    uint64_t nbytes = nmemories * sizeof *w->memories, files = w->archive->nfiles * sizeof *w->held;
    w->memories = heft__alloc_zero(&w->alloc, nbytes);
    if (!w->memories) return heft__fail_memory(err, nbytes);
    w->nmemories = nmemories;
    if (by_file && !(w->held = heft__alloc_zero(&w->alloc, files))) return heft__fail_memory(err, files);
    return HEFT_OK;
}

heft_weights *heft_weights_ref(heft_weights *weights) {
    atomic_fetch_add_explicit(&weights->refs, 1, memory_order_relaxed);
    return weights;
}

static void weights_forget_orders(heft_weights *w) {
    for (uint32_t i = 0; i < 2; i++) {
        uint32_t *order = atomic_exchange(&w->orders[i], NULL);
        if (order) heft__free(&w->alloc, order, order[0] * sizeof *order);
    }
}

void heft_weights_unref(heft_weights *w) {
    if (!w || atomic_fetch_sub_explicit(&w->refs, 1, memory_order_acq_rel) > 1) return;
    heft_allocator alloc = w->alloc;
    uint64_t n = w->archive->ntensors;
    weights_forget_orders(w);
    for (uint32_t i = 0; i < w->nmemories; i++) heft_buffer_release(&w->memories[i].buffer);
    for (uint64_t i = 0; i < w->nextras; i++) {
        heft_buffer_release(&w->extras[i]->buffer);
        heft__free(&alloc, w->extras[i], w->extras[i]->nbytes);
    }
    if (w->extras) heft__hash_index_free(&w->extra_names);
    heft__free(&alloc, w->extras, w->extras_capacity * sizeof *w->extras);
    heft__free(&alloc, w->memories, w->nmemories * sizeof *w->memories);
    heft__free(&alloc, w->held, w->archive->nfiles * sizeof *w->held);
    heft__free(&alloc, w->deferred, w->ndeferred * sizeof *w->deferred);
    heft__load_parts_free(w->archive, &alloc, &w->parts);
    heft__free(&alloc, w->data, w->data_nbytes);
    heft__free(&alloc, w->states, n);
    heft_archive_unref(w->archive);
    heft__free(&alloc, w, sizeof *w);
}

/* ---- parts of a rank ---- */

const uint64_t *heft__load_part(const heft_archive *archive, const heft__load_parts *parts, uint64_t id,
                                uint64_t *nbytes) {
    uint32_t file;
    const heft__entry *entry = heft__archive_entry(archive, id, &file);
    uint32_t at = parts->at ? parts->at[id] : 0;
    heft_dtype dtype = heft__load_dtype(parts, entry, id);
    *nbytes = entry->end - entry->begin;
    if (!at && dtype == entry->dtype) return entry->shape;
    const uint64_t *shape = at ? parts->dims + (at - 1) : entry->shape;
    uint64_t count = 1;
    for (uint32_t d = 0; d < entry->rank; d++) count *= shape[d];
    uint32_t bits = heft__dtypes[dtype].bits;
    *nbytes = bits < 8 ? (count * bits + 7) / 8 : count * (bits / 8);
    return shape;
}

heft_status heft__load_parts_make(const heft_filter_result *filter, const heft_allocator *alloc, heft__load_parts *out,
                                  heft_error *err) {
    *out = (heft__load_parts){0};
    if (!filter || !filter->cuts) return HEFT_OK;
    const heft_archive *archive = filter->archive;
    uint64_t n = archive->ntensors, used = 0;
    uint32_t file;
    for (uint64_t id = 0; id < n; id++)
        if (filter->cuts[id]) out->ndims += heft__archive_entry(archive, id, &file)->rank + 1;
    if (out->ndims == 0) return HEFT_OK;
    if (out->ndims >= UINT32_MAX)
        return heft__fail(err, HEFT_LIMIT, HEFT_FAULT_CALLER_LIMIT, "too many tensors are cut");
    out->at = heft__alloc_zero(alloc, n * sizeof *out->at);
    out->dims = out->at ? heft__alloc(alloc, out->ndims * sizeof *out->dims) : NULL;
    heft_status status = out->dims ? HEFT_OK : heft__fail_memory(err, out->ndims * sizeof *out->dims);
    for (uint64_t id = 0; status == HEFT_OK && id < n; id++) {
        heft_view view;
        if (!filter->cuts[id] || heft_rule_outcome(filter->rules[id]) == HEFT_OUTCOME_WITHHELD) continue;
        status = heft_filter_view(filter, id, &view, err);
        if (status != HEFT_OK) break;
        out->at[id] = (uint32_t)used + 1;
        for (uint32_t d = 0; d < view.rank; d++) out->dims[used++] = (uint64_t)view.shape[d];
        out->dims[used++] = (uint64_t)view.offset;
    }
    if (status != HEFT_OK) heft__load_parts_free(archive, alloc, out);
    return status;
}

void heft__load_parts_free(const heft_archive *archive, const heft_allocator *alloc, heft__load_parts *parts) {
    heft__free(alloc, parts->at, archive->ntensors * sizeof *parts->at);
    heft__free(alloc, parts->dims, parts->ndims * sizeof *parts->dims);
    heft__free(alloc, parts->dtypes, archive->ntensors);
    *parts = (heft__load_parts){0};
}

/* ---- reading ---- */

uint64_t heft_weights_count(const heft_weights *weights) {
    return weights->count;
}

uint64_t heft_weights_nbytes(const heft_weights *weights) {
    return weights->nbytes;
}

/* `number`: an id, or archive->ntensors + the number of an extra. */
static void weights_fill(const heft_weights *w, uint64_t number, heft_loaded *out) {
    if (number >= w->archive->ntensors) {
        *out = w->extras[number - w->archive->ntensors]->tensor;
        return;
    }
    uint32_t file;
    const heft__entry *entry = heft__archive_entry(w->archive, number, &file);
    *out = (heft_loaded){.name = entry->name,
                         .name_len = entry->name_len,
                         .id = number,
                         .dtype = heft__load_dtype(&w->parts, entry, number),
                         .rank = entry->rank,
                         .data = w->data[number],
                         .file = file,
                         .stored_dtype = entry->dtype,
                         .mapped = (w->states[number] & HEFT__WEIGHTS_MAPPED) != 0};
    out->shape = heft__load_part(w->archive, &w->parts, number, &out->nbytes);
}

/* The number of a name that is here, or HEFT_NONE; *id is the archive's, HEFT_NONE if it has none. */
static uint64_t weights_lookup(const heft_weights *w, const char *name, size_t len, uint64_t *id) {
    *id = heft__archive_lookup(w->archive, name, len);
    if (*id != HEFT_NONE && w->data[*id]) return *id;
    if (!w->extras) return HEFT_NONE;
    uint32_t hash = heft__hash_name(&w->extra_names, name, len), number;
    for (uint64_t cursor = heft__hash_start(&w->extra_names, hash);
         heft__hash_next(&w->extra_names, hash, &cursor, &number);) {
        const heft__weights_extra *extra = w->extras[number];
        if (!extra->gone && extra->tensor.name_len == len && memcmp(extra->tensor.name, name, len) == 0)
            return w->archive->ntensors + number;
    }
    return HEFT_NONE;
}

/* Why a name is not here. */
static heft_status weights_fail_name(const heft_weights *w, const char *name, size_t len, uint64_t id,
                                     heft_error *err) {
    if (id == HEFT_NONE) return heft__archive_fail_name(w->archive, name, len, err);
    if (!err) return HEFT_NOT_FOUND;
    char text[170];
    heft__escape(text, sizeof text, name, len);
    heft_rule rule = w->states[id] & HEFT__WEIGHTS_RULE;
    if (w->states[id] & HEFT__WEIGHTS_REMOVED)
        heft__fail(err, HEFT_NOT_FOUND, HEFT_FAULT_CALL, "tensor \"%s\" was taken out of the weights", text);
    else if (heft_rule_outcome(rule) == HEFT_OUTCOME_DEFERRED)
        heft__fail(err, HEFT_NOT_FOUND, HEFT_FAULT_CALL,
                   "tensor \"%s\" was not loaded: it is deferred; heft_weights_read_deferred reads it", text);
    else
        heft__fail(err, HEFT_NOT_FOUND, HEFT_FAULT_CALL, "tensor \"%s\" was not loaded: withheld by the rule %s", text,
                   heft_rule_name(rule));
    heft__error_tensor(err, name, len);
    return HEFT_NOT_FOUND;
}

heft_status heft_weights_get(const heft_weights *weights, const char *name, size_t name_len, heft_loaded *out,
                             heft_error *err) {
    uint64_t id;
    memset(out, 0, sizeof *out);
    if (!name) return heft__fail_null(err, "name");
    size_t len = name_len == SIZE_MAX ? strlen(name) : name_len;
    uint64_t number = weights_lookup(weights, name, len, &id);
    if (number == HEFT_NONE) return weights_fail_name(weights, name, len, id, err);
    weights_fill(weights, number, out);
    return HEFT_OK;
}

bool heft_weights_contains(const heft_weights *weights, const char *name, size_t name_len) {
    uint64_t id;
    return name && weights_lookup(weights, name, name_len == SIZE_MAX ? strlen(name) : name_len, &id) != HEFT_NONE;
}

bool heft_weights_has_fp8(const heft_weights *weights) {
    uint32_t file;
    for (uint64_t id = 0; id < weights->archive->ntensors; id++)
        if (weights->data[id] &&
            heft__load_dtype(&weights->parts, heft__archive_entry(weights->archive, id, &file), id) == HEFT_F8_E4M3)
            return true;
    for (uint64_t i = 0; i < weights->nextras; i++)
        if (!weights->extras[i]->gone && weights->extras[i]->tensor.dtype == HEFT_F8_E4M3) return true;
    return false;
}

static bool weights_is_k_scale(const char *name, size_t len) {
    static const char suffix[] = ".k_scale";
    size_t n = sizeof suffix - 1;
    return len >= n && memcmp(name + len - n, suffix, n) == 0;
}

uint64_t heft_weights_k_scales(const heft_weights *weights) {
    uint64_t count = 0;
    uint32_t file;
    for (uint64_t id = 0; id < weights->archive->ntensors; id++) {
        const heft__entry *entry = heft__archive_entry(weights->archive, id, &file);
        count += weights->data[id] && weights_is_k_scale(entry->name, entry->name_len);
    }
    for (uint64_t i = 0; i < weights->nextras; i++) {
        const heft__weights_extra *extra = weights->extras[i];
        count += !extra->gone && weights_is_k_scale(extra->tensor.name, extra->tensor.name_len);
    }
    return count;
}

/* ---- orders ---- */

static const char *weights_name(const heft_weights *w, uint32_t number, size_t *len) {
    const heft_loaded *t = &w->extras[number - w->archive->ntensors]->tensor;
    *len = t->name_len;
    return t->name;
}

static bool weights_before(const heft_weights *w, uint32_t a, uint32_t b) {
    size_t a_len, b_len;
    const char *a_name = weights_name(w, a, &a_len), *b_name = weights_name(w, b, &b_len);
    return heft__natural_compare(a_name, a_len, b_name, b_len) < 0;
}

static void weights_sift(const heft_weights *w, uint32_t *a, uint64_t i, uint64_t n) {
    for (uint64_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && weights_before(w, a[child], a[child + 1])) child++;
        if (!weights_before(w, a[i], a[child])) return;
        uint32_t t = a[i];
        a[i] = a[child];
        a[child] = t;
    }
}

/* Sorts extras by name: a heap sort, which needs no memory. */
static void weights_sort_extras(const heft_weights *w, uint32_t *a, uint64_t n) {
    for (uint64_t i = n / 2; i-- > 0;) weights_sift(w, a, i, n);
    for (uint64_t i = n; i-- > 1;) {
        uint32_t t = a[0];
        a[0] = a[i];
        a[i] = t;
        weights_sift(w, a, 0, i);
    }
}

/* Two lists in natural order become one in `order`, from the end; `extra` lies behind it. */
static void weights_merge(const heft_weights *w, uint32_t *order, uint64_t n, uint64_t nextra, const uint32_t *extra) {
    for (uint64_t to = n + nextra; nextra > 0;) {
        if (n > 0) {
            uint32_t file;
            const heft__entry *entry = heft__archive_entry(w->archive, order[n - 1], &file);
            size_t len;
            const char *name = weights_name(w, extra[nextra - 1], &len);
            if (heft__natural_compare(entry->name, entry->name_len, name, len) > 0) {
                order[--to] = order[--n];
                continue;
            }
        }
        order[--to] = extra[--nextra];
    }
}

static heft_status weights_order(const heft_weights *weights, heft_load_order order, const uint32_t **out,
                                 heft_error *err) {
    heft_weights *w = (heft_weights *)(uintptr_t)weights; /* what changes is published once */
    uint32_t *list = atomic_load_explicit(&w->orders[order], memory_order_acquire), *other = NULL;
    if (list) {
        *out = list + 1;
        return HEFT_OK;
    }
    uint64_t tensors = w->archive->ntensors, n = 1, extra = 0;
    const uint64_t *sorted = NULL;
    if (order == HEFT_LOAD_ORDER_NAME) {
        heft_status status = heft__archive_order(w->archive, HEFT_ORDER_NATURAL, &sorted, err);
        if (status != HEFT_OK) return status;
    }
    uint64_t room = 1 + tensors + 2 * w->nextras; /* extras are sorted behind what they are merged into */
    list = heft__alloc(&w->alloc, room * sizeof *list);
    if (!list) return heft__fail_memory(err, room * sizeof *list);
    list[0] = (uint32_t)room;
    for (uint64_t i = 0; i < tensors; i++) {
        uint64_t id = sorted ? sorted[i] : i;
        if (w->data[id]) list[n++] = (uint32_t)id;
    }
    uint32_t *extras = list + 1 + tensors + w->nextras;
    for (uint64_t i = 0; i < w->nextras; i++)
        if (!w->extras[i]->gone) extras[extra++] = (uint32_t)(tensors + i);
    if (sorted) {
        weights_sort_extras(w, extras, extra);
        weights_merge(w, list + 1, n - 1, extra, extras);
    } else if (extra)
        memmove(list + n, extras, extra * sizeof *list);
    if (!atomic_compare_exchange_strong(&w->orders[order], &other, list)) {
        heft__free(&w->alloc, list, room * sizeof *list);
        list = other;
    }
    *out = list + 1;
    return HEFT_OK;
}

heft_status heft_weights_at(const heft_weights *weights, heft_load_order order, uint64_t index, heft_loaded *out,
                            heft_error *err) {
    memset(out, 0, sizeof *out);
    if (order != HEFT_LOAD_ORDER_FILE && order != HEFT_LOAD_ORDER_NAME)
        return heft__fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL, "weights have no order %lu",
                          (unsigned long)order);
    if (index >= weights->count)
        return heft__fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL,
                          "tensor %llu is out of range; the weights have %llu", (unsigned long long)index,
                          (unsigned long long)weights->count);
    uint64_t number = index;
    if (order == HEFT_LOAD_ORDER_NAME || weights->count != weights->archive->ntensors || weights->nextras) {
        const uint32_t *list = NULL;
        heft_status status = weights_order(weights, order, &list, err);
        if (status != HEFT_OK) return status;
        number = list[index];
    }
    weights_fill(weights, number, out);
    return HEFT_OK;
}

/* ---- changing ---- */

/* Takes out what has a number; memory that nothing lies in any more goes unless `keep`. */
static void weights_take_out(heft_weights *w, uint64_t number, bool keep) {
    heft_loaded tensor;
    weights_fill(w, number, &tensor);
    w->count--;
    w->nbytes -= tensor.nbytes;
    weights_forget_orders(w);
    if (number >= w->archive->ntensors) {
        w->extras[number - w->archive->ntensors]->gone = true;
        return;
    }
    w->data[number] = NULL;
    w->states[number] |= HEFT__WEIGHTS_REMOVED;
    if (!w->held || keep || --w->held[tensor.file]) return;
    for (uint32_t i = 0; i < w->nmemories; i++)
        if (w->memories[i].file == tensor.file) heft_buffer_release(&w->memories[i].buffer);
}

heft_status heft_weights_remove(heft_weights *weights, const char *name, size_t name_len, heft_error *err) {
    uint64_t id;
    if (!name) return heft__fail_null(err, "name");
    size_t len = name_len == SIZE_MAX ? strlen(name) : name_len;
    uint64_t number = weights_lookup(weights, name, len, &id);
    if (number == HEFT_NONE) return weights_fail_name(weights, name, len, id, err);
    weights_take_out(weights, number, false);
    return HEFT_OK;
}

static heft_status weights_check_insert(const char *name, heft_dtype dtype, uint32_t rank, const uint64_t *shape,
                                        const heft_buffer *buffer, heft_error *err) {
    uint64_t nbytes;
    if (!name || !buffer || (rank && !shape))
        return heft__fail_null(err, !name ? "name" : !buffer ? "buffer" : "shape");
    heft_status status = heft_dtype_nbytes(dtype, rank, shape, &nbytes, err);
    if (status != HEFT_OK) return status;
    if (nbytes == buffer->nbytes && (buffer->data || !nbytes)) return HEFT_OK;
    heft__fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL, "the buffer has %llu bytes and the shape needs %llu",
               (unsigned long long)buffer->nbytes, (unsigned long long)nbytes);
    heft__error_at(err, HEFT_NONE, nbytes, buffer->nbytes);
    return HEFT_INVALID_ARGUMENT;
}

/* A block for an extra, in the list and the hash, still marked as gone. NULL: out of memory. */
static heft__weights_extra *weights_new_extra(heft_weights *w, const char *name, size_t len, uint32_t rank) {
    if (!w->extras && !heft__hash_index_init(&w->extra_names, &w->alloc, 4)) return NULL;
    if (!heft__grow(&w->alloc, (void **)&w->extras, &w->extras_capacity, w->nextras, sizeof *w->extras, 4)) {
        if (!w->extras) heft__hash_index_free(&w->extra_names);
        return NULL;
    }
    uint64_t nbytes = sizeof(heft__weights_extra) + rank * sizeof(uint64_t) + len + 1;
    heft__weights_extra *extra = heft__alloc_zero(&w->alloc, nbytes);
    if (!extra) return NULL;
    if (!heft__hash_add(&w->extra_names, heft__hash_name(&w->extra_names, name, len), (uint32_t)w->nextras)) {
        heft__free(&w->alloc, extra, nbytes);
        return NULL;
    }
    extra->nbytes = nbytes;
    extra->gone = true;
    w->extras[w->nextras++] = extra;
    return extra;
}

heft_status heft_weights_insert(heft_weights *weights, const char *name, size_t name_len, heft_dtype dtype,
                                uint32_t rank, const uint64_t *shape, heft_buffer *buffer, heft_loaded *displaced,
                                heft_error *err) {
    heft_weights *w = weights;
    uint64_t id;
    if (displaced) memset(displaced, 0, sizeof *displaced);
    heft_status status = weights_check_insert(name, dtype, rank, shape, buffer, err);
    if (status != HEFT_OK) return status;
    size_t len = name_len == SIZE_MAX ? strlen(name) : name_len;
    uint64_t number = weights_lookup(w, name, len, &id);
    if (w->archive->ntensors + 2 * w->nextras >= UINT32_MAX - 2)
        return heft__fail(err, HEFT_LIMIT, HEFT_FAULT_CALLER_LIMIT, "too many tensors");
    heft__weights_extra *extra = weights_new_extra(w, name, len, rank);
    if (!extra) return heft__fail_memory(err, HEFT_NONE);
    if (number != HEFT_NONE) {
        if (displaced) weights_fill(w, number, displaced);
        weights_take_out(w, number, true);
    }
    uint64_t *dims = (uint64_t *)(void *)(extra + 1);
    char *text = (char *)(dims + rank);
    if (rank) memcpy(dims, shape, rank * sizeof *dims);
    memcpy(text, name, len);
    extra->tensor = (heft_loaded){.name = text,
                                  .name_len = len,
                                  .id = HEFT_NONE,
                                  .dtype = dtype,
                                  .rank = rank,
                                  .shape = dims,
                                  .data = buffer->nbytes ? buffer->data : weights_nothing,
                                  .nbytes = buffer->nbytes,
                                  .file = UINT32_MAX,
                                  .stored_dtype = dtype};
    extra->buffer = *buffer;
    extra->gone = false;
    memset(buffer, 0, sizeof *buffer);
    weights_forget_orders(w);
    w->count++;
    w->nbytes += extra->tensor.nbytes;
    return HEFT_OK;
}
