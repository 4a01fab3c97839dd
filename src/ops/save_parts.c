/* ops: parts of a file to be written: which item each range is of, and how its bytes are had. */
#include "base/error.h"
#include "dtype/cast.h"
#include "ops/save.h"

#include <string.h>

/* Bytes that are converted at a time: source and result stay in the first two levels of cache. */
enum { PART_CAST = 32768 };

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

/* A tensor, or the part of it from byte `skip_nbytes` on: one range, unless its bytes lie there in another order. */
static void part_of_tensor(heft__part *part, const heft_archive *archive, uint64_t id, uint64_t skip_nbytes, bool view) {
    uint32_t file;
    const heft__entry *entry = heft__archive_entry(archive, id, &file);
    bool odd = entry->flags & (HEFT__ENTRY_BIG | (view ? 0 : HEFT__ENTRY_FORTRAN));
    part->kind = odd ? HEFT__PART_VIEW : HEFT__PART_RANGE;
    part->packed = entry->flags & HEFT__ENTRY_PACKED;
    part->from = entry->dtype ? entry->dtype : HEFT_U8; /* an unknown one is bytes */
    part->source = archive->files[file]->source;
    part->source_offset = heft__entry_offset(archive->files[file], entry) + skip_nbytes;
}

static void part_of_item(heft__part *part, const heft_save_item *item) {
    part->item = item;
    if (item->view) {
        uint64_t bits = (uint64_t)item->view->offset * heft__dtypes[item->view->dtype].bits;
        part->kind = HEFT__PART_VIEW;
        part->from = (uint8_t)item->view->dtype;
        if (heft_view_is_contiguous(item->view) && bits % 8 == 0)
            part_of_tensor(part, item->view->archive, item->view->id, bits / 8, true);
    } else if (item->archive) {
        part_of_tensor(part, item->archive, item->id, 0, false);
    } else {
        part->kind = part_is_packed(item, heft__dtypes[item->dtype].bits / 8) ? HEFT__PART_MEMORY : HEFT__PART_STRIDED;
        part->from = (uint8_t)item->dtype;
        part->data = item->data;
    }
}

void heft__part_make(heft__part *part, const heft_save_item *item, heft_dtype dtype, uint64_t offset, uint64_t nbytes,
                     const heft_save_options *options) {
    if (dtype == HEFT_DTYPE_NONE) dtype = HEFT_U8;
    *part = (heft__part){.offset = offset,
                         .nbytes = nbytes,
                         .end = offset + nbytes,
                         .from = (uint8_t)dtype,
                         .to = (uint8_t)dtype,
                         .cast_flags = (uint8_t)((options->saturate ? HEFT__CAST_SATURATE : 0) |
                                                 (options->allow_inexact ? HEFT__CAST_INEXACT : 0))};
    if (item) part_of_item(part, item);
}

static void part_of_piece(heft__part *part, const heft__emit_piece *piece) {
    *part = (heft__part){.offset = piece->offset,
                         .nbytes = piece->nbytes,
                         .data = piece->bytes,
                         .kind = HEFT__PART_MEMORY,
                         .from = HEFT_U8,
                         .to = HEFT_U8};
}

uint64_t heft__parts_most(const heft__layout *layout) {
    return layout->emit.nentries + layout->emit.npieces;
}

heft_status heft__parts_make(const heft__layout *layout, const heft_save_item *items, const heft_save_options *options,
                             _Atomic uint32_t *crcs, heft__part **out, uint64_t *nparts, heft_error *err) {
    const heft__emit *emit = &layout->emit;
    if (layout->turned) items = layout->turned;
    uint64_t n = 0, most = heft__parts_most(layout), piece = 0;
    bool first = !emit->late; /* pieces that are known now are parts like others */
    *nparts = 0;
    *out = heft__alloc_zero(&emit->alloc, most * sizeof **out);
    if (!*out) return heft__fail_memory(err, most * sizeof **out);
    for (uint64_t i = 0; i < emit->nentries; i++) {
        const heft__emit_entry *entry = &emit->entries[i];
        if (!entry->nbytes) continue;
        for (; first && piece < emit->npieces && emit->pieces[piece].offset < entry->offset; piece++)
            part_of_piece(&(*out)[n++], &emit->pieces[piece]);
        heft__part *part = &(*out)[n++];
        heft__part_make(part, entry->item == UINT32_MAX ? NULL : &items[entry->item], entry->dtype, entry->offset,
                        entry->nbytes, options);
        part->crc32 = crcs ? &crcs[i] : NULL;
        if (layout->digests.want && entry->item != UINT32_MAX)
            part->digest = layout->digests.chunks + layout->digests.first[i];
    }
    for (; first && piece < emit->npieces; piece++) part_of_piece(&(*out)[n++], &emit->pieces[piece]);
    *nparts = n;
    return HEFT_OK;
}

/* ---- filling ---- */

/* Elements [at, end) of a row-major array in memory, packed; each component reversed under `swap`. */
static void part_gather(const uint8_t *data, uint32_t rank, const uint64_t *shape, const int64_t *strides,
                        const heft__dtype_info *info, uint64_t at, uint64_t end, bool swap, uint8_t *dst) {
    uint32_t group = swap && info->component_bits > 8 ? info->component_bits / 8u : 0;
    int64_t packed[HEFT_MAX_RANK], step = info->bits / 8;
    for (uint32_t d = rank; d-- > 0 && !strides;) {
        packed[d] = step;
        step *= (int64_t)shape[d];
    }
    if (!strides) strides = packed;
    heft__boxes boxes = {.dims = shape, .rank = rank, .at = at, .end = end};
    while (heft__boxes_next(&boxes)) {
        heft__loop loops[HEFT_MAX_RANK + 1];
        uint64_t unit = info->bits / 8u;
        int64_t src = 0, to = 0;
        step = (int64_t)unit;
        for (uint32_t d = rank; d-- > 0;) {
            loops[d] = (heft__loop){boxes.shape[d], strides[d], step};
            step *= (int64_t)boxes.shape[d];
            src += (int64_t)boxes.first[d] * strides[d];
        }
        uint32_t inner = heft__nest_normalize(loops, rank, &unit, group != 0, &src, &to);
        heft__copy_loops(dst + to, data + src, loops, inner, (size_t)unit, group);
        dst += step;
    }
}

bool heft__item_pack(const heft_save_item *item, uint64_t nelems, uint64_t nbytes, bool keep_fortran, uint8_t *dst) {
    bool as_it_lies = keep_fortran && heft__item_is_fortran(item);
    if (item->stride_nbytes && !as_it_lies)
        part_gather(item->data, item->rank, (const uint64_t *)item->shape, item->stride_nbytes, &heft__dtypes[item->dtype], 0,
                    nelems, false, dst);
    else memcpy(dst, item->data, (size_t)nbytes);
    return as_it_lies;
}

/* Elements [at, end) of a part, packed, in host byte order or that of files. */
static heft_status part_elements(const heft__part *part, uint64_t at, uint64_t end, bool host_order, uint8_t *dst,
                                 heft_error *err) {
    const heft__dtype_info *info = &heft__dtypes[part->from];
    uint64_t size = info->bits / 8u, count = end - at;
    bool swap = HEFT__HOST_IS_BIG_ENDIAN && !host_order;
    if (part->kind == HEFT__PART_STRIDED) {
        const heft_save_item *item = part->item;
        part_gather(part->data, item->rank, (const uint64_t *)item->shape, item->stride_nbytes, info, at, end, swap, dst);
    } else if (part->kind == HEFT__PART_MEMORY) {
        uint64_t all = part->nbytes / (heft__dtypes[part->to].bits / 8u);
        part_gather(part->data, 1, &all, NULL, info, at, end, swap, dst);
    } else {
        heft_status status =
            heft__source_read_all(part->source, part->source_offset + at * size, count * size, dst, NULL, err);
        if (status != HEFT_OK) return status;
        uint32_t group = info->component_bits / 8u;
        for (uint8_t *p = dst; HEFT__HOST_IS_BIG_ENDIAN && host_order && p < dst + count * size; p += group)
            for (uint32_t i = 0; i < group / 2; i++) {
                uint8_t byte = p[i];
                p[i] = p[group - 1 - i];
                p[group - 1 - i] = byte;
            }
    }
    return HEFT_OK;
}

/* Elements [at, end) converted, in the byte order of files. */
static heft_status part_convert(const heft__part *part, uint64_t at, uint64_t end, uint8_t *dst, heft_error *err) {
    _Alignas(64) uint8_t raw[PART_CAST], cooked[PART_CAST];
    const heft__dtype_info *from = &heft__dtypes[part->from], *to = &heft__dtypes[part->to];
    bool swap = HEFT__HOST_IS_BIG_ENDIAN && to->component_bits > 8;
    heft__cast cast;
    if (!heft__cast_find(part->from, part->to, part->cast_flags, &cast))
        return heft__cast_fail_pair(part->from, part->to, err);
    uint64_t size = from->bits / 8u, to_size = to->bits / 8u, most = PART_CAST / (size > to_size ? size : to_size), n;
    for (; at < end; at += n, dst += n * to_size) {
        n = end - at < most ? end - at : most;
        const uint8_t *src = part->kind == HEFT__PART_MEMORY ? part->data + at * size : raw;
        if (src == raw) {
            heft_status status = part_elements(part, at, at + n, true, raw, err);
            if (status != HEFT_OK) return status;
        }
        size_t did = heft__cast_run(&cast, src, swap ? cooked : dst, (size_t)n);
        if (did < n) return heft__cast_fail(&cast, src + did * size, at + did, err);
        heft__loop loop = {n, (int64_t)to_size, (int64_t)to_size};
        if (swap) heft__copy_loops(dst, cooked, &loop, 1, (size_t)to_size, (uint32_t)to_size);
    }
    return HEFT_OK;
}

/* Bytes of whole elements or parts of them. */
static heft_status part_bytes(const heft__part *part, uint64_t from, uint64_t nbytes, uint8_t *dst, heft_error *err) {
    uint64_t size = heft__dtypes[part->to].bits / 8u, n;
    uint8_t element[16];
    heft_status status = HEFT_OK;
    for (; nbytes && status == HEFT_OK; from += n, nbytes -= n, dst += n) {
        uint64_t at = from / size, skip = from % size;
        bool whole = skip == 0 && nbytes >= size;
        n = whole ? nbytes / size * size : size - skip < nbytes ? size - skip : nbytes;
        uint64_t end = whole ? at + n / size : at + 1;
        status = part->from == part->to ? part_elements(part, at, end, false, whole ? dst : element, err)
                                        : part_convert(part, at, end, whole ? dst : element, err);
        if (!whole && status == HEFT_OK) memcpy(dst, element + skip, (size_t)n);
    }
    return status;
}

heft_status heft__part_fill(const heft__part *part, uint64_t from, uint64_t nbytes, uint8_t *dst, heft_error *err) {
    heft_status status = HEFT_OK;
    if (part->kind == HEFT__PART_ZERO) memset(dst, 0, (size_t)nbytes);
    else if (part->kind == HEFT__PART_MEMORY && heft__part_is_plain(part)) memcpy(dst, part->data + from, (size_t)nbytes);
    else if (part->kind == HEFT__PART_RANGE && part->from == part->to)
        status = heft__source_read_all(part->source, part->source_offset + from, nbytes, dst, NULL, err);
    else status = part_bytes(part, from, nbytes, dst, err);
    if (status == HEFT_OK || !part->item) return status;
    const heft_view *view = part->item->view;
    const heft_archive *archive = view ? view->archive : part->item->archive;
    if (archive) heft__error_name(err, archive, view ? view->id : part->item->id);
    else heft__error_tensor(err, part->item->name, part->item->name_len ? part->item->name_len : strlen(part->item->name));
    return status;
}
