/* write: arrays whose first dim steps fastest, turned round so that they are written as they lie. */
#include "base/error.h"
#include "base/text.h"
#include "dtype/dtype.h"
#include "view/view.h"
#include "write/write.h"

#include <string.h>

bool heft__item_is_fortran(const heft_save_item *item) {
    uint64_t size = heft__dtypes[item->dtype].bits / 8u, step = size, back = size;
    bool last_fastest = true;
    if (!item->stride_nbytes) return false;
    for (uint32_t d = 0; d < item->rank; d++) {
        if (item->shape[d] == 0) return false;
        if (item->shape[d] != 1 && item->stride_nbytes[d] != (int64_t)step) return false;
        step *= (uint64_t)item->shape[d]; /* the whole size fits */
    }
    for (uint32_t d = item->rank; d-- > 0; back *= (uint64_t)item->shape[d])
        last_fastest = last_fastest && (item->shape[d] == 1 || item->stride_nbytes[d] == (int64_t)back);
    return !last_fastest;
}

/* The same of a view, or of a tensor of an archive; *out is it turned round. */
static bool fortran_view(const heft_save_item *item, heft_view *out) {
    heft_view view;
    if (item->view) view = *item->view;
    else if (heft_view_of(item->archive, item->id, &view, NULL) != HEFT_OK) return false;
    if (heft_view_nelems(&view) == 0 || heft_view_is_contiguous(&view)) return false;
    return heft_view_permute(&view, NULL, out, NULL) == HEFT_OK && heft_view_is_contiguous(out);
}

heft_status heft__layout_turn(heft__layout *layout, const heft_save_item *items, uint64_t nitems, heft_error *err) {
    const heft_allocator *alloc = &layout->emit.alloc;
    layout->turned = heft__alloc(alloc, nitems * sizeof *layout->turned);
    layout->views = heft__alloc(alloc, nitems * sizeof *layout->views);
    if (layout->turned) layout->nturned = nitems;
    if (layout->views) layout->nviews = nitems;
    if (!layout->turned || !layout->views) return heft__fail_memory(err, nitems * sizeof *layout->views);
    for (uint64_t i = 0; i < nitems; i++) {
        heft_save_item *item = &layout->turned[i];
        heft__item checked;
        heft_status status = heft__item_check(&items[i], i, &checked, err);
        if (status != HEFT_OK) return status;
        *item = items[i];
        if (checked.rank < 2) continue;
        if (item->view || item->archive) {
            if (fortran_view(item, &layout->views[i])) item->view = &layout->views[i];
            continue;
        }
        if (!heft__item_is_fortran(item)) continue;
        int64_t *shape = heft__arena_alloc(&layout->emit.arena, item->rank * sizeof *shape, sizeof *shape);
        if (!shape) return heft__fail_memory(err, item->rank * sizeof *shape);
        for (uint32_t d = 0; d < item->rank; d++) shape[d] = item->shape[item->rank - 1 - d];
        item->shape = shape;
        item->stride_nbytes = NULL;
    }
    return HEFT_OK;
}

bool heft__layout_is_turned(const heft__layout *layout, const heft_save_item *items, uint64_t number) {
    const heft_save_item *item = layout->turned ? &layout->turned[number] : NULL;
    return item && (item->view != items[number].view || item->shape != items[number].shape);
}
