/* write: a set of files laid out: which items go into which file, their names, and the text of the index. */
#include "base/error.h"
#include "base/json_write.h"
#include "base/options.h"
#include "base/sort.h"
#include "write/write.h"

#include <stdio.h>
#include <string.h>

#define SHARDS_CEILING (UINT64_C(5) << 30)
enum { SHARDS_MOST_STEM = 200, SHARDS_INDENT = 2 };

heft_status heft__set_options_copy(const heft_set_options *given, heft_set_options *out, heft_error *err) {
    heft_status status = heft__options_copy(out, sizeof *out, given, "heft_set_options", err);
    if (status != HEFT_OK) return status;
    if (!out->ceiling_nbytes) out->ceiling_nbytes = SHARDS_CEILING;
    if (!out->stem) out->stem = "model";
    if (!out->index_indent) out->index_indent = SHARDS_INDENT;
    size_t len = strlen(out->stem);
    const char *fault = heft__path_component_fault(out->stem, len);
    if (!fault && len > SHARDS_MOST_STEM) fault = "it is longer than 200 bytes";
    if (!fault && out->stem[0] == '.') fault = "it begins with a dot";
    if (fault) return heft__fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_SHARD_NAME, "the stem is no file name: %s", fault);
    if (out->index > HEFT_SET_INDEX_NEVER || out->index_indent > 16)
        return heft__fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL, "heft_set_options: index or index_indent is no such value");
    return HEFT_OK;
}

const char *heft__shard_name(heft__arena *arena, const char *stem, uint64_t number, uint64_t total) {
    char name[300];
    int len = total == 1 ? snprintf(name, sizeof name, "%s.safetensors", stem)
                         : snprintf(name, sizeof name, "%s-%05llu-of-%05llu.safetensors", stem,
                                    (unsigned long long)number, (unsigned long long)total);
    return heft__arena_text(arena, name, (size_t)len);
}

bool heft__shards_cut(heft_layout *layout, const uint64_t *sizes, uint64_t ceiling) {
    heft_layout_file *file = NULL;
    for (uint64_t i = 0; i < layout->nitems || !file; i++) {
        bool none = layout->nitems == 0;
        bool full = file && file->nitems && (file->data_nbytes > ceiling || sizes[i] > ceiling - file->data_nbytes);
        if (!file || full) {
            if (!heft__grow(&layout->alloc, (void **)&layout->files, &layout->files_capacity, layout->nfiles, sizeof *file, 4))
                return false;
            file = &layout->files[layout->nfiles++];
            *file = (heft_layout_file){.name = "", .first_item = i};
        }
        if (none) break;
        file->nitems++;
        file->data_nbytes += sizes[i]; /* the sum of all has been checked */
        file->above_ceiling = file->data_nbytes > ceiling;
    }
    return true;
}

/* ---- the index ---- */

static const char *shards_name(const void *ctx, uint32_t index, uint64_t *len) {
    const heft_save_item *item = (const heft_save_item *)ctx + index;
    *len = item->name_len == 0 || item->name_len == SIZE_MAX ? strlen(item->name) : item->name_len;
    return item->name;
}

heft_status heft__shards_index(heft_layout *layout, const heft_save_item *items, const heft_set_options *set,
                               uint64_t nbytes, uint64_t nelems, heft_error *err) {
    uint64_t n = layout->nitems;
    heft__sort_key *keys = heft__alloc(&layout->alloc, n * sizeof *keys);
    if (!keys) return heft__fail_memory(err, n * sizeof *keys);
    for (uint64_t i = 0; i < n; i++) keys[i] = (heft__sort_key){.index = (uint32_t)i};
    heft__sort_texts(keys, n, shards_name, items);
    heft__json_out json;
    heft__json_out_init(&json, &layout->alloc, set->index_indent, set->index_ascii);
    heft__json_out_object(&json);
    heft__json_out_key(&json, "metadata", SIZE_MAX);
    heft__json_out_object(&json);
    heft__json_out_key(&json, "total_size", SIZE_MAX);
    heft__json_out_u64(&json, nbytes);
    heft__json_out_key(&json, "total_parameters", SIZE_MAX);
    heft__json_out_u64(&json, set->total_parameters ? set->total_parameters : nelems);
    heft__json_out_object_end(&json);
    heft__json_out_key(&json, "weight_map", SIZE_MAX);
    heft__json_out_object(&json);
    for (uint64_t i = 0; i < n; i++) {
        uint64_t len;
        const char *name = shards_name(items, keys[i].index, &len);
        heft__json_out_key(&json, name, (size_t)len);
        heft__json_out_string(&json, layout->files[layout->tensors[keys[i].index].file].name, SIZE_MAX);
    }
    heft__json_out_object_end(&json);
    heft__json_out_object_end(&json);
    heft__free(&layout->alloc, keys, n * sizeof *keys);
    layout->index = json.text;
    layout->index_nbytes = json.len;
    layout->index_capacity = json.capacity;
    return json.failed ? heft__fail_memory(err, HEFT_NONE) : HEFT_OK;
}

/* ---- the whole ---- */

/* One file: its sizes, and where its items lie. */
static heft_status shards_lay(heft_layout *layout, uint32_t number, const heft_save_item *items,
                              const heft_save_options *options, heft_error *err) {
    heft_layout_file *file = &layout->files[number];
    heft__layout one;
    heft_status status =
        heft__layout_make(&one, heft__items_from(items, file->first_item), file->nitems, options, &layout->alloc, err);
    if (status != HEFT_OK) return status;
    file->file_nbytes = one.emit.file_nbytes;
    file->header_nbytes = one.emit.header_nbytes;
    for (uint64_t i = 0; i < one.emit.nentries; i++) {
        const heft__emit_entry *entry = &one.emit.entries[i];
        if (entry->item == UINT32_MAX) {
            file->nfillers++;
            file->filler_nbytes += entry->nbytes;
        } else {
            layout->tensors[file->first_item + entry->item] =
                (heft_layout_tensor){number, entry->dtype, entry->offset, entry->nbytes};
        }
    }
    heft__layout_free(&one);
    if (!heft__add_u64(layout->total_nbytes, file->file_nbytes, &layout->total_nbytes))
        return heft__fail(err, HEFT_LIMIT, HEFT_FAULT_CALLER_LIMIT, "the files are more than 2^64 bytes together");
    return HEFT_OK;
}

/* Sizes of all items, which are checked, and their sums. */
static heft_status shards_sizes(const heft_save_item *items, uint64_t nitems, uint64_t *sizes, uint64_t *nbytes,
                                uint64_t *nelems, heft_error *err) {
    *nbytes = *nelems = 0;
    for (uint64_t i = 0; i < nitems; i++) {
        heft__item item;
        heft_status status = heft__item_check(&items[i], i, &item, err);
        if (status != HEFT_OK) return status;
        sizes[i] = item.nbytes;
        if (!heft__add_u64(*nbytes, item.nbytes, nbytes) || !heft__add_u64(*nelems, item.nelems, nelems))
            return heft__fail(err, HEFT_LIMIT, HEFT_FAULT_CALLER_LIMIT, "the tensors are more than 2^64 bytes together");
    }
    return HEFT_OK;
}

static heft_status shards_make(heft_layout *layout, const heft_save_item *items, const heft_save_options *options,
                               const heft_set_options *set, uint64_t *sizes, heft_error *err) {
    uint64_t nbytes, nelems;
    heft_status status = shards_sizes(items, layout->nitems, sizes, &nbytes, &nelems, err);
    if (status == HEFT_OK) status = heft__items_check_names(items, layout->nitems, &layout->alloc, err);
    if (status == HEFT_OK && !heft__shards_cut(layout, sizes, set ? set->ceiling_nbytes : UINT64_MAX))
        status = heft__fail_memory(err, HEFT_NONE);
    if (status == HEFT_OK && layout->nfiles >= UINT32_MAX)
        status = heft__fail(err, HEFT_LIMIT, HEFT_FAULT_CALLER_LIMIT, "too many files");
    for (uint64_t i = 0; i < layout->nfiles && status == HEFT_OK; i++) {
        if (set && !(layout->files[i].name = heft__shard_name(&layout->arena, set->stem, i + 1, layout->nfiles)))
            status = heft__fail_memory(err, HEFT_NONE);
        if (status == HEFT_OK) status = shards_lay(layout, (uint32_t)i, items, options, err);
    }
    bool index = set && heft__set_has_index(set, layout->nfiles, layout->nitems);
    return status == HEFT_OK && index ? heft__shards_index(layout, items, set, nbytes, nelems, err) : status;
}

bool heft__set_has_index(const heft_set_options *set, uint64_t nfiles, uint64_t nitems) {
    return nitems && (set->index == HEFT_SET_INDEX_ALWAYS || (set->index == HEFT_SET_INDEX_AUTO && nfiles > 1));
}

heft_status heft__set_layout(const heft_save_item *items, uint64_t nitems, const heft_save_options *options,
                             const heft_set_options *set, const heft_allocator *alloc, heft_layout **out,
                             heft_error *err) {
    *out = NULL;
    if (!items && nitems) return heft__fail_null(err, "items");
    if (nitems >= UINT32_MAX / 2) return heft__fail(err, HEFT_LIMIT, HEFT_FAULT_CALLER_LIMIT, "too many items");
    heft_layout *layout = heft__alloc_zero(alloc, sizeof *layout);
    if (!layout) return heft__fail_memory(err, sizeof *layout);
    layout->alloc = *alloc;
    heft__arena_init(&layout->arena, alloc);
    uint64_t *sizes = heft__alloc(alloc, nitems * sizeof *sizes);
    layout->tensors = heft__alloc(alloc, nitems * sizeof *layout->tensors);
    if (layout->tensors) layout->nitems = nitems;
    heft_status status = sizes && layout->tensors ? shards_make(layout, items, options, set, sizes, err)
                                                  : heft__fail_memory(err, nitems * sizeof *layout->tensors);
    heft__free(alloc, sizes, nitems * sizeof *sizes);
    if (status == HEFT_OK) *out = layout;
    else heft_layout_free(layout);
    return status;
}

void heft_layout_free(heft_layout *layout) {
    if (!layout) return;
    heft_allocator alloc = layout->alloc;
    heft__free(&alloc, layout->index, layout->index_capacity);
    heft__free(&alloc, layout->tensors, layout->nitems * sizeof *layout->tensors);
    heft__free(&alloc, layout->files, layout->files_capacity * sizeof *layout->files);
    heft__arena_free(&layout->arena);
    heft__free(&alloc, layout, sizeof *layout);
}
