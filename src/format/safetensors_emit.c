/* format: safetensors files as the reference writes them: the order of tensors, alignment, and the header. */
#include "base/checked.h"
#include "base/error.h"
#include "base/json_write.h"
#include "base/sort.h"
#include "format/format.h"

#include <stdio.h>
#include <string.h>

enum { EMIT_PREFIX = 8, EMIT_FILLER_NAME = 24, EMIT_DATA_START = 4096, EMIT_MAX_FILLERS = 100000000 };
#define EMIT_MAX_HEADER UINT64_C(100000000)

static const char *emit_name(const void *ctx, uint32_t index, uint64_t *len) {
    const heft__emit_entry *entry = (const heft__emit_entry *)ctx + index;
    *len = entry->name_len;
    return entry->name;
}

/* Whether an entry comes in the first group of an aligned file: it fills its place up to the next multiple. */
static bool emit_fills(const heft__emit *emit, const heft__emit_entry *entry) {
    return emit->align && entry->nbytes % emit->align == 0;
}

/* The reference's order: dtype rank falling, then name; what has an unknown dtype last; under alignment group by group. */
static heft_status emit_sort(heft__emit *emit, heft_error *err) {
    uint64_t n = emit->nentries;
    heft__sort_key *keys = heft__alloc(&emit->alloc, n * sizeof *keys);
    if (!keys) return heft__fail_memory(err, n * sizeof *keys);
    for (uint64_t i = 0; i < n; i++) keys[i] = (heft__sort_key){.index = (uint32_t)i};
    heft__sort_texts(keys, n, emit_name, emit->entries);
    for (uint64_t i = 0; i < n; i++) {
        const heft__emit_entry *entry = &emit->entries[keys[i].index];
        keys[i].major = entry->spelling ? 256 : UINT64_C(255) - heft__dtypes[entry->dtype].rank;
        if (emit->align && !emit_fills(emit, entry)) keys[i].major += 512;
        keys[i].minor = i;
    }
    heft__sort_keys(keys, n);
    heft__sort_permute(keys, n, emit->entries, sizeof *emit->entries);
    heft__free(&emit->alloc, keys, n * sizeof *keys);
    return HEFT_OK;
}

/* Bytes that the filler after entry `i` needs so that the next one is aligned; `end` is where the entry ends. */
static uint64_t emit_gap(const heft__emit *emit, uint64_t i, uint64_t end) {
    if (!emit->align || emit->no_fill || emit->keep_order || i + 1 == emit->nentries) return 0;
    return (emit->align - end % emit->align) % emit->align;
}

static bool emit_filler(heft__emit *emit, heft__emit_entry *entry, uint64_t offset, uint64_t nbytes, uint32_t number) {
    char *name = heft__arena_alloc(&emit->arena, EMIT_FILLER_NAME, 1);
    uint64_t *shape = heft__arena_alloc(&emit->arena, sizeof *shape, sizeof *shape);
    if (!name || !shape) return false;
    int len = snprintf(name, EMIT_FILLER_NAME, "__heft_pad__.%08lu", (unsigned long)number);
    *shape = nbytes;
    *entry = (heft__emit_entry){.name = name,
                                .name_len = (uint32_t)len,
                                .shape = shape,
                                .rank = 1,
                                .dtype = HEFT_U8,
                                .nbytes = nbytes,
                                .offset = offset,
                                .item = UINT32_MAX};
    return true;
}

/* Offsets from the start of the data area, and fillers. */
static heft_status emit_place(heft__emit *emit, heft_error *err) {
    uint64_t end = 0, fillers = 0;
    for (uint64_t i = 0; i < emit->nentries; i++) {
        emit->entries[i].offset = end;
        if (!heft__add_u64(end, emit->entries[i].nbytes, &end) || end > UINT64_MAX / 2)
            return heft__fail(err, HEFT_LIMIT, HEFT_FAULT_CALLER_LIMIT, "the tensors are more than 2^63 bytes together");
        uint64_t gap = emit_gap(emit, i, end);
        fillers += gap > 0;
        end += gap;
    }
    emit->file_nbytes = end;
    if (!fillers) return HEFT_OK;
    if (fillers > EMIT_MAX_FILLERS)
        return heft__fail(err, HEFT_LIMIT, HEFT_FAULT_CALLER_LIMIT, "alignment would take %llu fillers",
                          (unsigned long long)fillers);
    uint64_t n = emit->nentries + fillers, at = n, number = fillers;
    heft__emit_entry *entries = heft__alloc(&emit->alloc, n * sizeof *entries);
    if (!entries) return heft__fail_memory(err, n * sizeof *entries);
    bool ok = true;
    for (uint64_t i = emit->nentries; i-- > 0 && ok;) {
        uint64_t stop = emit->entries[i].offset + emit->entries[i].nbytes, gap = emit_gap(emit, i, stop);
        if (gap) ok = emit_filler(emit, &entries[--at], stop, gap, (uint32_t)--number);
        entries[--at] = emit->entries[i];
    }
    heft__free(&emit->alloc, emit->entries, emit->capacity * sizeof *entries);
    emit->entries = entries;
    emit->nentries = emit->capacity = n;
    return ok ? HEFT_OK : heft__fail_memory(err, HEFT_NONE);
}

static void emit_entry(heft__json_out *json, const heft__emit_entry *entry) {
    heft__json_out_key(json, entry->name, entry->name_len);
    heft__json_out_object(json);
    heft__json_out_key(json, "dtype", SIZE_MAX);
    if (entry->spelling) heft__json_out_string(json, entry->spelling->text, entry->spelling->len);
    else heft__json_out_string(json, heft__dtypes[entry->dtype].name, SIZE_MAX);
    heft__json_out_key(json, "shape", SIZE_MAX);
    heft__json_out_array(json);
    for (uint32_t d = 0; d < entry->rank; d++) heft__json_out_u64(json, entry->shape[d]);
    heft__json_out_array_end(json);
    heft__json_out_key(json, "data_offsets", SIZE_MAX);
    heft__json_out_array(json);
    heft__json_out_u64(json, entry->offset);
    heft__json_out_u64(json, entry->offset + entry->nbytes);
    heft__json_out_array_end(json);
    heft__json_out_object_end(json);
}

static void emit_json(const heft__emit *emit, heft__json_out *json) {
    heft__json_out_object(json);
    if (emit->has_metadata) {
        heft__json_out_key(json, "__metadata__", SIZE_MAX);
        heft__json_out_object(json);
        for (uint64_t i = 0; i < emit->nmetadata; i++) {
            heft__json_out_key(json, emit->metadata[i].key, emit->metadata[i].key_len);
            heft__json_out_string(json, emit->metadata[i].value, emit->metadata[i].value_len);
        }
        heft__json_out_object_end(json);
    }
    for (uint64_t i = 0; i < emit->nentries; i++) emit_entry(json, &emit->entries[i]);
    heft__json_out_object_end(json);
}

/* The padded length of the header, or its refusal. */
static heft_status emit_header_nbytes(const heft__emit *emit, uint64_t text_nbytes, uint64_t *n, heft_error *err) {
    uint64_t start = emit->data_start_align, most = emit->max_header_nbytes ? emit->max_header_nbytes : EMIT_MAX_HEADER;
    if (!start && emit->align) start = emit->align > EMIT_DATA_START ? emit->align : EMIT_DATA_START;
    if (start < emit->align) start = emit->align;
    if (start < EMIT_PREFIX) start = EMIT_PREFIX;
    *n = text_nbytes + EMIT_PREFIX;
    if (*n < emit->reserve_header_nbytes) *n = emit->reserve_header_nbytes;
    bool fits = heft__align_u64(*n, start, n);
    *n -= EMIT_PREFIX;
    if (fits && *n <= most) return HEFT_OK;
    heft__fail(err, HEFT_LIMIT, HEFT_FAULT_HEADER_LIMIT,
               "the header would have %llu bytes and the limit is %llu; max_header_nbytes raises it%s", (unsigned long long)*n,
               (unsigned long long)most, most == EMIT_MAX_HEADER ? ", but the reference cannot read such a file" : "");
    heft__error_at(err, HEFT_NONE, most, *n);
    return HEFT_LIMIT;
}

static heft_status emit_header(heft__emit *emit, heft_error *err) {
    heft__json_out json;
    heft__json_out_init(&json, &emit->alloc, 0, false);
    emit_json(emit, &json);
    uint64_t n = 0;
    heft_status status = json.failed ? heft__fail_memory(err, HEFT_NONE) : emit_header_nbytes(emit, json.len, &n, err);
    uint8_t *bytes = NULL;
    if (status == HEFT_OK && !(bytes = heft__emit_add_piece(emit, 0, EMIT_PREFIX + n)))
        status = heft__fail_memory(err, EMIT_PREFIX + n);
    if (status == HEFT_OK) {
        for (int i = 0; i < EMIT_PREFIX; i++) bytes[i] = (uint8_t)(n >> 8 * i);
        memcpy(bytes + EMIT_PREFIX, json.text, (size_t)json.len);
        memset(bytes + EMIT_PREFIX + json.len, ' ', (size_t)(n - json.len));
        emit->header_nbytes = EMIT_PREFIX + n;
    }
    heft__json_out_free(&json);
    return status;
}

heft_status heft__safetensors_fit(const heft__emit *emit, uint64_t header_nbytes, uint8_t *out, uint64_t *needed,
                                  heft_error *err) {
    heft__json_out json;
    heft__json_out_init(&json, &emit->alloc, 0, false);
    emit_json(emit, &json);
    heft_status status = json.failed ? heft__fail_memory(err, HEFT_NONE) : HEFT_OK;
    *needed = EMIT_PREFIX + json.len;
    if (status == HEFT_OK && *needed > header_nbytes) {
        status = heft__fail(err, HEFT_LIMIT, HEFT_FAULT_HEADER_LIMIT,
                            "the new header needs %llu bytes, and %llu are there before the data", (unsigned long long)*needed,
                            (unsigned long long)header_nbytes);
        heft__error_at(err, HEFT_NONE, header_nbytes, *needed);
    } else if (status == HEFT_OK) {
        for (int i = 0; i < EMIT_PREFIX; i++) out[i] = (uint8_t)((header_nbytes - EMIT_PREFIX) >> 8 * i);
        memcpy(out + EMIT_PREFIX, json.text, (size_t)json.len);
        memset(out + *needed, ' ', (size_t)(header_nbytes - *needed));
    }
    heft__json_out_free(&json);
    return status;
}

static heft_status emit_layout(heft__emit *emit, heft_error *err) {
    heft_status status = emit->keep_order || emit->nentries < 2 ? HEFT_OK : emit_sort(emit, err);
    if (status == HEFT_OK) status = emit_place(emit, err);
    if (status == HEFT_OK) status = emit_header(emit, err);
    if (status != HEFT_OK) return status;
    for (uint64_t i = 0; i < emit->nentries; i++) emit->entries[i].offset += emit->header_nbytes;
    emit->file_nbytes += emit->header_nbytes;
    return HEFT_OK;
}

/* The header once more, for metadata that has become known meanwhile. */
static heft_status emit_finish(heft__emit *emit, heft_error *err) {
    heft__json_out json;
    heft__json_out_init(&json, &emit->alloc, 0, false);
    for (uint64_t i = 0; i < emit->nentries; i++) emit->entries[i].offset -= emit->header_nbytes;
    emit_json(emit, &json);
    for (uint64_t i = 0; i < emit->nentries; i++) emit->entries[i].offset += emit->header_nbytes;
    heft_status status = HEFT_OK;
    if (json.failed) status = heft__fail_memory(err, HEFT_NONE);
    else if (json.len + EMIT_PREFIX > emit->pieces[0].nbytes)
        status = heft__fail(err, HEFT_INTERNAL, HEFT_FAULT_CALL, "the header has grown while the tensors were written");
    else memcpy(emit->pieces[0].bytes + EMIT_PREFIX, json.text, (size_t)json.len);
    heft__json_out_free(&json);
    return status;
}

const heft__emitter heft__emitter_safetensors = {"safetensors", false, emit_layout, emit_finish};
