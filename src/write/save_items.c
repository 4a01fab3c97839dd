/* write: items and options of a save, checked before anything is made. */
#include "base/checked.h"
#include "base/error.h"
#include "base/hash_index.h"
#include "base/options.h"
#include "base/sort.h"
#include "base/text.h"
#include "base/utf8.h"
#include "dtype/cast.h"
#include "plan/plan.h"
#include "write/write.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { GIVEN_MIN_ALIGN = 16, GIVEN_MAX_ALIGN = 65536 };

static size_t given_name_len(const heft_save_item *item) {
    return item->name && (item->name_len == 0 || item->name_len == SIZE_MAX) ? strlen(item->name) : item->name_len;
}

heft_status heft__item_fail(heft_error *err, heft_status status, heft_fault fault, const heft_save_item *item,
                            uint64_t number, const char *format, ...) {
    if (!err) return status;
    char text[512], name[160] = "";
    size_t len = given_name_len(item);
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (item->name) heft__escape(name, sizeof name, item->name, len);
    heft__fail(err, status, fault, "item %llu, \"%s\": %s", (unsigned long long)number, name, text);
    heft__error_tensor(err, item->name, len);
    return status;
}

static heft_status given_refuse(heft_error *err, const heft_save_item *item, uint64_t number, const char *why) {
    return heft__item_fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL, item, number, "%s", why);
}

static heft_status given_check_name(const heft_save_item *item, uint64_t number, heft__item *out, heft_error *err) {
    static const char metadata[] = "__metadata__", filler[] = HEFT__FILLER_PREFIX;
    if (!item->name) return given_refuse(err, item, number, "the name is NULL");
    size_t len = given_name_len(item);
    if (len >= UINT32_MAX) return given_refuse(err, item, number, "the name is longer than 4 GiB");
    if (len == sizeof metadata - 1 && memcmp(item->name, metadata, len) == 0)
        return heft__item_fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_RESERVED_NAME, item, number,
                               "the name is reserved by the format");
    if (len >= sizeof filler - 1 && memcmp(item->name, filler, sizeof filler - 1) == 0)
        return heft__item_fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_RESERVED_NAME, item, number,
                               "names that begin like this are kept for alignment fillers");
    size_t bad = heft__utf8_check(item->name, len);
    if (bad < len) {
        heft__item_fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_UTF8, item, number,
                        "the name is not UTF-8: byte %zu of it starts no character", bad);
        heft__error_at(err, bad, HEFT_NONE, HEFT_NONE);
        return HEFT_INVALID_ARGUMENT;
    }
    out->name = item->name;
    out->name_len = len;
    return HEFT_OK;
}

/* Where it comes from: rank, shape and dtype. */
static heft_status given_check_origin(const heft_save_item *item, uint64_t number, heft__item *out, heft_error *err) {
    if (item->view) {
        uint64_t count;
        heft_status status = heft__plan_check_view(item->view, &count, err);
        if (status != HEFT_OK) return status;
        out->rank = item->view->rank;
        out->shape = (const uint64_t *)item->view->shape; /* no dim of a view is negative */
        out->from = item->view->dtype;
        return HEFT_OK;
    }
    if (item->archive) {
        uint32_t file;
        if (item->id >= item->archive->ntensors)
            return heft__item_fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL, item, number,
                                   "its archive has %llu tensors and no id %llu",
                                   (unsigned long long)item->archive->ntensors, (unsigned long long)item->id);
        const heft__entry *entry = heft__archive_entry(item->archive, item->id, &file);
        out->rank = entry->rank;
        out->shape = entry->shape;
        out->from = entry->dtype;
        if (entry->dtype == HEFT_DTYPE_NONE) {
            out->spelling = heft__listing_spelling(item->archive->files[file], entry);
            out->nbytes = entry->end - entry->begin;
        }
        return HEFT_OK;
    }
    if (item->rank && !item->shape) return given_refuse(err, item, number, "the shape is NULL");
    for (uint32_t d = 0; d < item->rank; d++)
        if (item->shape[d] < 0) return given_refuse(err, item, number, "a dim is negative");
    out->rank = item->rank;
    out->shape = (const uint64_t *)item->shape;
    out->from = item->dtype;
    if (item->stride_nbytes && heft_dtype_bits(item->dtype) < 8)
        return given_refuse(err, item, number, "elements of less than a byte cannot have strides");
    if (item->stride_nbytes && item->rank > HEFT_MAX_RANK)
        return given_refuse(err, item, number, "strided memory has at most 64 dims");
    return HEFT_OK;
}

heft_status heft__item_check(const heft_save_item *item, uint64_t number, heft__item *out, heft_error *err) {
    memset(out, 0, sizeof *out);
    for (size_t i = 0; i < sizeof item->reserved / sizeof *item->reserved; i++)
        if (item->reserved[i]) return given_refuse(err, item, number, "a reserved field is not 0");
    heft_status status = given_check_name(item, number, out, err);
    if (status == HEFT_OK) status = given_check_origin(item, number, out, err);
    if (status != HEFT_OK) return status;
    out->dtype = item->as ? item->as : out->from;
    if (out->spelling && !item->as) return HEFT_OK; /* its bytes, whatever they are */
    if (out->spelling)
        return heft__item_fail(err, HEFT_UNSUPPORTED, HEFT_FAULT_UNKNOWN_DTYPE, item, number,
                               "its dtype is unknown, so that it can only be copied as it is");
    if (out->from == HEFT_DTYPE_NONE || out->from >= HEFT_DTYPE_COUNT || out->dtype >= HEFT_DTYPE_COUNT)
        return heft__item_fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_UNKNOWN_DTYPE, item, number,
                               "%u is no dtype that can be written", out->from < HEFT_DTYPE_COUNT ? out->dtype : out->from);
    if (!heft__cast_supported(out->from, out->dtype)) {
        status = heft__cast_fail_pair(out->from, out->dtype, err);
        return err ? heft__item_fail(err, status, err->fault, item, number, "%s", err->message) : status;
    }
    heft__shape_fault fault = heft__shape_nbytes(out->dtype, out->rank, out->shape, &out->nelems, &out->nbytes);
    if (fault == HEFT__SHAPE_SUB_BYTE)
        return heft__item_fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_SUB_BYTE, item, number,
                               "%llu elements of %u bits do not fill whole bytes", (unsigned long long)out->nelems,
                               heft_dtype_bits(out->dtype));
    if (fault != HEFT__SHAPE_OK)
        return heft__item_fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_SHAPE_OVERFLOW, item, number,
                               "the size by its shape does not fit 64 bits");
    if (!item->view && !item->archive && !item->data && out->nbytes)
        return given_refuse(err, item, number, "its data is NULL");
    return HEFT_OK;
}

/* ---- options ---- */

static bool given_is_align(uint64_t align) {
    return align >= GIVEN_MIN_ALIGN && align <= GIVEN_MAX_ALIGN && (align & (align - 1)) == 0;
}

static heft_status given_refuse_option(heft_error *err, const char *what) {
    return heft__fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL, "heft_save_options: %s", what);
}

heft_status heft__save_options_copy(const heft_save_options *given, heft_save_options *out, heft_allocator *alloc,
                                    heft_error *err) {
    heft_status status = heft__options_copy(out, sizeof *out, given, "heft_save_options", err);
    if (status != HEFT_OK) return status;
    out->struct_size = sizeof *out; /* it is passed on */
    if (!heft__allocator_from(out->allocator, alloc)) return given_refuse_option(err, "the allocator lacks a function");
    if (out->align && !given_is_align(out->align))
        return given_refuse_option(err, "align is no power of two from 16 to 65,536");
    uint64_t start = out->data_start_align;
    if (start && (start < 8 || start > GIVEN_MAX_ALIGN || (start & (start - 1)) != 0))
        return given_refuse_option(err, "data_start_align is no power of two from 8 to 65,536");
    if (out->symlink > HEFT_SYMLINK_REFUSE) return given_refuse_option(err, "symlink is none of its values");
    if (out->foreign > HEFT_FOREIGN_UINT) return given_refuse_option(err, "foreign is none of its values");
    if (out->digests >> 3) return given_refuse_option(err, "digests has a bit that is none");
    if (out->keep_fortran && (!out->format || strcmp(out->format, "safetensors") == 0))
        return given_refuse_option(err, "only npy and npz hold arrays whose first dim steps fastest");
    if (out->digests && out->format && strcmp(out->format, "safetensors") != 0)
        return given_refuse_option(err, "only safetensors files hold digests");
    if (!out->metadata && out->nmetadata) return given_refuse_option(err, "metadata is NULL");
    return HEFT_OK;
}

/* ---- metadata ---- */

static const char *given_key(const void *ctx, uint32_t index, uint64_t *len) {
    const heft_pair *pair = (const heft_pair *)ctx + index;
    *len = pair->key_len;
    return pair->key;
}

static heft_status given_fail_pair(heft_error *err, const heft_pair *pair, const char *why) {
    char key[160];
    heft__escape(key, sizeof key, pair->key ? pair->key : "", pair->key ? pair->key_len : 0);
    return heft__fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_BAD_METADATA, "metadata key \"%s\": %s", key, why);
}

static bool given_is_digest(const heft_pair *pair, uint32_t want) {
    static const char *const keys[] = {"heft.xxh3", "heft.data_xxh3"};
    for (uint32_t i = 0; i < 2; i++)
        if ((want & (UINT32_C(1) << i)) && pair->key_len == strlen(keys[i]) && memcmp(pair->key, keys[i], pair->key_len) == 0)
            return true;
    return false;
}

/* The pairs, checked, with the digests in place of those of the same keys. */
static heft_status given_pairs(heft__layout *layout, const heft_save_options *options, heft_error *err) {
    uint32_t want = options->digests;
    for (uint64_t i = 0; i < options->nmetadata; i++) {
        heft_pair pair = options->metadata[i];
        if (!pair.key || !pair.value) return given_fail_pair(err, &pair, "it or its value is NULL");
        if (pair.key_len == SIZE_MAX) pair.key_len = strlen(pair.key);
        if (pair.value_len == SIZE_MAX) pair.value_len = strlen(pair.value);
        if (heft__utf8_check(pair.key, pair.key_len) < pair.key_len ||
            heft__utf8_check(pair.value, pair.value_len) < pair.value_len)
            return given_fail_pair(err, &pair, "it or its value is not UTF-8");
        if (!given_is_digest(&pair, want)) layout->metadata[layout->nmetadata++] = pair;
    }
    const heft__digests *digests = &layout->digests;
    if (want & HEFT_DIGEST_TENSORS)
        layout->metadata[layout->nmetadata++] = (heft_pair){"heft.xxh3", 9, digests->text.text, (size_t)digests->text.len};
    if (want & HEFT_DIGEST_DATA)
        layout->metadata[layout->nmetadata++] = (heft_pair){"heft.data_xxh3", 14, digests->data, sizeof digests->data};
    return HEFT_OK;
}

/* All metadata, sorted by key. */
static heft_status given_metadata(heft__layout *layout, const heft_save_options *options, heft_error *err) {
    uint64_t most = options->nmetadata + 2;
    const heft_allocator *alloc = &layout->emit.alloc;
    if (most >= UINT32_MAX) return heft__fail(err, HEFT_LIMIT, HEFT_FAULT_CALLER_LIMIT, "too many metadata pairs");
    layout->metadata = heft__alloc(alloc, most * sizeof(heft_pair));
    layout->metadata_capacity = layout->metadata ? most : 0;
    heft__sort_key *keys = heft__alloc(alloc, most * sizeof *keys);
    heft_status status = layout->metadata && keys ? given_pairs(layout, options, err) : heft__fail_memory(err, most);
    if (status == HEFT_OK) {
        uint64_t n = layout->nmetadata;
        for (uint64_t i = 0; i < n; i++) keys[i] = (heft__sort_key){.index = (uint32_t)i};
        heft__sort_texts(keys, n, given_key, layout->metadata);
        heft__sort_permute(keys, n, layout->metadata, sizeof *layout->metadata);
        for (uint64_t i = 1; i < n && status == HEFT_OK; i++) {
            const heft_pair *a = &layout->metadata[i - 1], *b = a + 1;
            if (a->key_len == b->key_len && memcmp(a->key, b->key, a->key_len) == 0)
                status = given_fail_pair(err, a, "it is given twice");
        }
    }
    heft__free(alloc, keys, most * sizeof *keys);
    layout->emit.metadata = layout->metadata;
    layout->emit.nmetadata = layout->nmetadata;
    layout->emit.has_metadata = options->metadata != NULL || (options->digests & (HEFT_DIGEST_TENSORS | HEFT_DIGEST_DATA));
    return status;
}

/* ---- all items together ---- */

heft_status heft__items_check_names(const heft_save_item *items, uint64_t nitems, const heft_allocator *alloc,
                                    heft_error *err) {
    heft__hash_index names;
    if (!heft__hash_index_init(&names, alloc, nitems)) return heft__fail_memory(err, HEFT_NONE);
    heft_status status = HEFT_OK;
    for (uint64_t i = 0; i < nitems && status == HEFT_OK; i++) {
        size_t len = given_name_len(&items[i]);
        uint32_t hash = heft__hash_name(&names, items[i].name, len), other;
        uint64_t cursor = heft__hash_start(&names, hash);
        while (status == HEFT_OK && heft__hash_next(&names, hash, &cursor, &other))
            if (given_name_len(&items[other]) == len && memcmp(items[other].name, items[i].name, len) == 0)
                status = heft__item_fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_DUPLICATE_NAME, &items[i], i,
                                         "item %u has the same name", other);
        if (status == HEFT_OK && !heft__hash_add(&names, hash, (uint32_t)i)) status = heft__fail_memory(err, HEFT_NONE);
    }
    heft__hash_index_free(&names);
    return status;
}

static heft_status given_add_all(heft__layout *layout, const heft_save_item *items, uint64_t nitems, bool turn,
                                 heft_error *err) {
    heft__emit *emit = &layout->emit;
    if (nitems >= UINT32_MAX / 2) return heft__fail(err, HEFT_LIMIT, HEFT_FAULT_CALLER_LIMIT, "too many items");
    heft_status turned = turn ? heft__layout_turn(layout, items, nitems, err) : HEFT_OK;
    if (turned != HEFT_OK) return turned;
    emit->entries = heft__alloc(&emit->alloc, nitems * sizeof *emit->entries);
    if (!emit->entries) return heft__fail_memory(err, nitems * sizeof *emit->entries);
    emit->capacity = nitems;
    for (uint64_t i = 0; i < nitems; i++) {
        heft__item item;
        heft_status status = heft__item_check(layout->turned ? &layout->turned[i] : &items[i], i, &item, err);
        if (status != HEFT_OK) return status;
        emit->entries[emit->nentries++] = (heft__emit_entry){.name = item.name,
                                                             .name_len = (uint32_t)item.name_len,
                                                             .shape = item.shape,
                                                             .rank = item.rank,
                                                             .dtype = item.dtype,
                                                             .spelling = item.spelling,
                                                             .nbytes = item.nbytes,
                                                             .fortran = heft__layout_is_turned(layout, items, i),
                                                             .item = (uint32_t)i};
    }
    return heft__items_check_names(items, nitems, &emit->alloc, err);
}

heft_status heft__layout_make(heft__layout *layout, const heft_save_item *items, uint64_t nitems,
                              const heft_save_options *options, const heft_allocator *alloc, heft_error *err) {
    const char *format = options->format ? options->format : "safetensors";
    memset(layout, 0, sizeof *layout);
    heft__emit_init(&layout->emit, alloc);
    layout->emit.keep_order = options->keep_order;
    layout->emit.no_fill = options->no_fill;
    layout->emit.foreign = options->foreign;
    layout->emit.align = options->align;
    layout->emit.data_start_align = options->data_start_align;
    layout->emit.max_header_nbytes = options->max_header_nbytes;
    layout->emit.reserve_header_nbytes = options->reserve_header_nbytes;
    layout->emitter = heft__emitter_find(format);
    layout->emit.late = layout->emitter && layout->emitter->wants_crc32;
    heft_status status = HEFT_OK;
    if (!layout->emitter) {
        char name[64];
        heft__escape(name, sizeof name, format, strlen(format));
        status = heft__fail(err, HEFT_UNSUPPORTED, HEFT_FAULT_OTHER_FORMAT, "no format \"%s\" can be written", name);
    }
    if (status == HEFT_OK && !items && nitems)
        status = heft__fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL, "items is NULL");
    if (status == HEFT_OK) status = given_add_all(layout, items, nitems, options->keep_fortran, err);
    if (status == HEFT_OK) status = heft__digests_prepare(layout, options->digests, err);
    if (status == HEFT_OK) status = given_metadata(layout, options, err);
    if (status == HEFT_OK) status = layout->emitter->layout(&layout->emit, err);
    if (status == HEFT_OK) status = heft__digests_allocate(layout, err);
    if (status != HEFT_OK) heft__layout_free(layout);
    return status;
}

void heft__layout_free(heft__layout *layout) {
    heft__digests_free(layout);
    heft__free(&layout->emit.alloc, layout->turned, layout->nturned * sizeof *layout->turned);
    heft__free(&layout->emit.alloc, layout->views, layout->nviews * sizeof *layout->views);
    layout->turned = NULL;
    layout->views = NULL;
    layout->nturned = layout->nviews = 0;
    heft__free(&layout->emit.alloc, layout->metadata, layout->metadata_capacity * sizeof *layout->metadata);
    layout->metadata = NULL;
    layout->nmetadata = layout->metadata_capacity = 0;
    heft__emit_free(&layout->emit);
}
