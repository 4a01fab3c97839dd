/* ops: bytes without a copy: one read-only mapping of each whole file, made by the first borrow and shared from then
 * on. */
#include "ops/run.h"

#include "base/error.h"
#include "base/os.h"
#include "view/view.h"

static heft_status borrow_refuse(heft_error *err, const heft_view *view, heft_fault fault, const char *why) {
    heft__fail(err, HEFT_UNSUPPORTED, fault, "%s; read it instead", why);
    heft__error_name(err, view->archive, view->id);
    return HEFT_UNSUPPORTED;
}

/* What a view without elements points at: aligned for every demand that is a page or less. */
static const _Alignas(4096) uint8_t borrow_nothing[4096] = {0};

static void borrow_forget(heft_buffer *buffer) {
    (void)buffer;
}

static void borrow_release(heft_buffer *buffer) {
    heft__mapping_unref(buffer->owner);
}

/* The mapping of a file, published once; whoever comes second gives his own back. */
static heft_status borrow_mapping(const heft_archive *archive, uint32_t file, heft__mapping **out, heft_error *err) {
    _Atomic(heft__mapping *) *slot = &archive->mappings[file];
    heft_source *source = archive->files[file]->source;
    *out = atomic_load_explicit(slot, memory_order_acquire);
    if (*out) return HEFT_OK;
    heft__mapping *fresh, *other = NULL;
    heft_status status = heft__source_map(source, 0, heft_source_size(source), &fresh, err);
    if (status != HEFT_OK) return status;
    if (!atomic_compare_exchange_strong(slot, &other, fresh)) {
        heft__mapping_unref(fresh);
        fresh = other;
    }
    *out = fresh;
    return HEFT_OK;
}

static heft_status borrow_fail_align(heft_error *err, const heft_view *view, uint64_t offset, uint64_t align,
                                     uint64_t off_by) {
    heft__fail(err, HEFT_UNSUPPORTED, HEFT_FAULT_NOT_ALIGNED,
               "the view starts at offset %llu, %llu bytes past a multiple of %llu; read it instead",
               (unsigned long long)offset, (unsigned long long)off_by, (unsigned long long)align);
    heft__error_at(err, offset, align, off_by);
    heft__error_name(err, view->archive, view->id);
    return HEFT_UNSUPPORTED;
}

/* The rules that need no mapping. *offset and *nbytes: the range in the source. */
static heft_status borrow_check(const heft_view *view, uint64_t align, bool big_endian, heft_source *source,
                                uint64_t *offset, uint64_t *nbytes, heft_error *err) {
    const heft__dtype_info *info = &heft__dtypes[view->dtype];
    uint32_t file;
    uint64_t first, end, bits = info->bits;
    heft_run_iter runs;
    const heft__entry *entry = heft__archive_entry(view->archive, view->id, &file);
    if (entry->flags & HEFT__ENTRY_PACKED)
        return borrow_refuse(err, view, HEFT_FAULT_CALL, "it is compressed in its file");
    if (big_endian != ((entry->flags & HEFT__ENTRY_BIG) != 0) && info->component_bits > 8)
        return borrow_refuse(err, view, HEFT_FAULT_CALL,
                             big_endian ? "its bytes are little-endian and this host is not"
                                        : "its bytes are big-endian and this host is not");
    if (!(heft_source_capabilities(source) & HEFT_SOURCE_MAP))
        return borrow_refuse(err, view, HEFT_FAULT_CALL, "its source cannot be mapped");
    if (bits < 8 && heft_run_iter_init(&runs, view, NULL) != HEFT_OK)
        return borrow_refuse(err, view, HEFT_FAULT_SUB_BYTE, "runs of the view start or end inside a byte");
    heft__view_span(view, &first, &end);
    *offset =
        view->archive->files[file]->data_start + entry->begin + (bits < 8 ? first * bits / 8 : first * (bits / 8));
    *nbytes = bits < 8 ? (end - first) * bits / 8 : (end - first) * (bits / 8);
    /* A mapping starts on a page, the memory of a memory source where it starts. */
    uint64_t address = source->window_offset + *offset;
    uint64_t sure = heft__source_base(source)->memory ? UINT64_MAX : heft__os_page_size();
    if (heft__source_base(source)->memory) address += (uintptr_t)heft__source_base(source)->memory;
    uint64_t off_by = address % (align < sure ? align : sure);
    return off_by ? borrow_fail_align(err, view, *offset, align, off_by) : HEFT_OK;
}

heft_status heft__borrow(const heft_view *view, uint64_t min_alignment, bool host_is_big_endian, heft_buffer *out,
                         heft_error *err) {
    uint64_t count = 0, offset, nbytes;
    uint32_t file;
    if (!view || (min_alignment & (min_alignment - 1)))
        return heft__fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL,
                          view ? "the alignment is not a power of two" : "the view is NULL");
    heft_status status = heft__plan_check_view(view, &count, err);
    if (status != HEFT_OK) return status;
    uint64_t align = min_alignment ? min_alignment : heft__dtypes[view->dtype].align;
    if (count == 0) {
        if (out) *out = (heft_buffer){.data = (void *)(uintptr_t)borrow_nothing, .release = borrow_forget};
        return HEFT_OK;
    }
    heft__archive_entry(view->archive, view->id, &file);
    heft_source *source = view->archive->files[file]->source;
    status = borrow_check(view, align, host_is_big_endian, source, &offset, &nbytes, err);
    if (status != HEFT_OK || !out) return status;
    heft__mapping *mapping;
    status = borrow_mapping(view->archive, file, &mapping, err);
    if (status != HEFT_OK) {
        heft__error_name(err, view->archive, view->id);
        return status;
    }
    const uint8_t *data = mapping->data + offset;
    if ((uintptr_t)data % align) return borrow_fail_align(err, view, offset, align, (uintptr_t)data % align);
    heft__mapping_ref(mapping);
    *out =
        (heft_buffer){.data = (void *)(uintptr_t)data, .nbytes = nbytes, .release = borrow_release, .owner = mapping};
    return HEFT_OK;
}
