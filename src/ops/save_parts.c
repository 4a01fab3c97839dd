/* ops: parts of a file to be written: which item each range is of, and how its bytes are had. */
#include "base/error.h"
#include "ops/run.h"
#include "ops/save.h"

#include <string.h>

/* ---- making ---- */

static bool part_is_packed(const heft_save_item *item, uint64_t size) {
    if (!item->stride_nbytes) return true;
    uint64_t step = size; /* no product overflows: the whole size fits */
    for (uint32_t d = item->rank; d-- > 0;) {
        if (item->shape[d] != 1 && item->stride_nbytes[d] != (int64_t)step) return false;
        step *= (uint64_t)item->shape[d];
    }
    return true;
}

static void part_of_tensor(heft__part *part, const heft_archive *archive, uint64_t id, uint64_t skip_nbytes) {
    uint32_t file;
    const heft__entry *entry = heft__archive_entry(archive, id, &file);
    part->kind = HEFT__PART_RANGE;
    part->source = archive->files[file]->source;
    part->source_offset = heft__entry_offset(archive->files[file], entry) + skip_nbytes;
}

static void part_of_item(heft__part *part, const heft__emit_entry *entry, const heft_save_item *item) {
    const heft__dtype_info *info = &heft__dtypes[entry->dtype];
    part->item = item;
    if (item->view) {
        uint64_t bits = (uint64_t)item->view->offset * info->bits;
        if (heft_view_is_contiguous(item->view) && bits % 8 == 0)
            part_of_tensor(part, item->view->archive, item->view->id, bits / 8);
        else part->kind = HEFT__PART_VIEW;
    } else if (item->archive) {
        part_of_tensor(part, item->archive, item->id, 0);
    } else if (part_is_packed(item, info->bits / 8) && (!HEFT__HOST_IS_BIG_ENDIAN || info->component_bits <= 8)) {
        part->kind = HEFT__PART_MEMORY;
        part->data = item->data;
    } else {
        part->kind = HEFT__PART_STRIDED;
    }
}

heft_status heft__parts_make(const heft__layout *layout, const heft_save_item *items, heft__part **out,
                             uint64_t *nparts, heft_error *err) {
    const heft__emit *emit = &layout->emit;
    uint64_t n = 0;
    *nparts = 0;
    for (uint64_t i = 0; i < emit->nentries; i++) n += emit->entries[i].nbytes > 0;
    *out = heft__alloc_zero(&emit->alloc, n * sizeof **out);
    if (!*out) return heft__fail_memory(err, n * sizeof **out);
    for (uint64_t i = 0; i < emit->nentries; i++) {
        const heft__emit_entry *entry = &emit->entries[i];
        if (!entry->nbytes) continue;
        heft__part *part = &(*out)[(*nparts)++];
        part->offset = entry->offset;
        part->nbytes = entry->nbytes;
        if (entry->item != UINT32_MAX) part_of_item(part, entry, &items[entry->item]);
    }
    return HEFT_OK;
}

/* ---- filling ---- */

/* Elements [at, end) of strided memory, packed, in the byte order of files. */
static void part_gather(const heft_save_item *item, uint64_t at, uint64_t end, uint8_t *dst) {
    const heft__dtype_info *info = &heft__dtypes[item->dtype];
    uint32_t swap = HEFT__HOST_IS_BIG_ENDIAN && info->component_bits > 8 ? info->component_bits / 8u : 0;
    int64_t packed = INT64_C(1), strides[HEFT_MAX_RANK];
    for (uint32_t d = item->rank; d-- > 0;) {
        strides[d] = item->stride_nbytes ? item->stride_nbytes[d] : packed * (info->bits / 8);
        packed *= item->shape[d];
    }
    heft__boxes boxes = {.dims = (const uint64_t *)item->shape, .rank = item->rank, .at = at, .end = end};
    while (heft__boxes_next(&boxes)) {
        heft__loop loops[HEFT_MAX_RANK + 1];
        uint64_t unit = info->bits / 8u;
        int64_t src = 0, to = 0, step = (int64_t)unit;
        for (uint32_t d = item->rank; d-- > 0;) {
            loops[d] = (heft__loop){boxes.shape[d], strides[d], step};
            step *= (int64_t)boxes.shape[d];
            src += (int64_t)boxes.first[d] * strides[d];
        }
        uint32_t rank = heft__nest_normalize(loops, item->rank, &unit, swap != 0, &src, &to);
        heft__copy_loops(dst + to, (const uint8_t *)item->data + src, loops, rank, (size_t)unit, swap);
        dst += step;
    }
}

/* The same for bytes, which may begin and end inside of elements. */
static void part_gather_bytes(const heft_save_item *item, uint64_t from, uint64_t nbytes, uint8_t *dst) {
    uint64_t size = heft__dtypes[item->dtype].bits / 8u, n;
    uint8_t element[16];
    for (; nbytes; from += n, nbytes -= n, dst += n) {
        uint64_t at = from / size, skip = from % size;
        if (skip == 0 && nbytes >= size) {
            n = nbytes / size * size;
            part_gather(item, at, at + nbytes / size, dst);
            continue;
        }
        n = size - skip < nbytes ? size - skip : nbytes;
        part_gather(item, at, at + 1, element);
        memcpy(dst, element + skip, (size_t)n);
    }
}

heft_status heft__part_fill(const heft__part *part, uint64_t from, uint64_t nbytes, uint8_t *dst, heft_error *err) {
    if (part->kind == HEFT__PART_RANGE) {
        heft_status status = heft__source_read_all(part->source, part->source_offset + from, nbytes, dst, NULL, err);
        const heft_view *view = part->item->view;
        if (status != HEFT_OK)
            heft__error_name(err, view ? view->archive : part->item->archive, view ? view->id : part->item->id);
        return status;
    }
    if (part->kind == HEFT__PART_ZERO) memset(dst, 0, (size_t)nbytes);
    else if (part->kind == HEFT__PART_MEMORY) memcpy(dst, part->data + from, (size_t)nbytes);
    else part_gather_bytes(part->item, from, nbytes, dst);
    return HEFT_OK;
}
