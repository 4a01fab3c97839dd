/* ops: views that no single range holds: read by plans, window by window, and written from there. */
#include "base/checked.h"
#include "base/error.h"
#include "base/parallel.h"
#include "ops/run.h"
#include "ops/save.h"

#include <string.h>

/* Memory of one window. A larger one reads strided views in fewer passes over their files. */
#define SAVE_WINDOW (UINT64_C(32) << 20)

/* What goes into the next window: parts [first, end), the first from byte `from` of the file on, the last up to byte `to`. */
typedef struct view_window {
    uint64_t first, end, from, to;
    uint64_t nbytes; /* of memory */
} view_window;

static uint64_t view_size(const heft__part *part) {
    return heft__dtypes[part->from].bits / 8u; /* 0: sub-byte, which is never cut nor converted */
}

/* Bytes in memory of so many bytes in the file. */
static uint64_t view_memory(const heft__part *part, uint64_t nbytes) {
    return part->from == part->to ? nbytes : nbytes / (heft__dtypes[part->to].bits / 8u) * view_size(part);
}

/* From the place where the last one ended. */
static void view_next(view_window *w, const heft__part *parts, uint64_t nparts) {
    w->first = w->end;
    w->from = 0;
    if (w->nbytes && w->to < parts[w->end - 1].nbytes) {
        w->first--;
        w->from = w->to;
    }
    w->nbytes = 0;
    for (w->end = w->first; w->end < nparts && w->nbytes < SAVE_WINDOW; w->end++) {
        const heft__part *part = &parts[w->end];
        uint64_t from = w->end == w->first ? w->from : 0, left = part->nbytes - from, size = view_size(part);
        uint64_t room = size ? (SAVE_WINDOW - w->nbytes) / size * (heft__dtypes[part->to].bits / 8u) : left;
        if (part->digest && left > room) room -= room % HEFT__DIGEST_CHUNK; /* no chunk is cut */
        if (room == 0) break;
        if (left > room && w->nbytes) break; /* it begins a window of its own */
        w->to = from + (left < room ? left : room);
        w->nbytes += view_memory(part, w->to - from);
    }
}

/* Adds elements [at, end) of a view to a plan, box by box, from `place` on. */
static heft_status view_add(heft_plan *plan, const heft_view *view, uint64_t at, uint64_t end, uint64_t place,
                            uint32_t number, heft_error *err) {
    uint64_t size = heft__dtypes[view->dtype].bits / 8u;
    heft__boxes boxes = {.dims = (const uint64_t *)view->shape, .rank = view->rank, .at = at, .end = end};
    heft_status status = HEFT_OK;
    while (status == HEFT_OK && heft__boxes_next(&boxes)) {
        heft_view box = *view;
        for (uint32_t d = 0; d < view->rank; d++) {
            box.offset += (int64_t)boxes.first[d] * view->stride[d];
            box.shape[d] = (int64_t)boxes.shape[d];
        }
        status = heft__plan_add_view(plan, &box, place, NULL, number, err);
        place += boxes.nelems * size;
    }
    return status;
}

static heft_status view_plan(const heft__save_run *run, const heft__part *parts, const view_window *w, heft_plan **out,
                             heft_error *err) {
    heft__plan_request request = {.alloc = run->alloc,
                                  .default_workers = heft__default_workers(),
                                  .host_is_big_endian = HEFT__HOST_IS_BIG_ENDIAN,
                                  .nviews = w->end - w->first,
                                  .options = {.struct_size = sizeof request.options, .workers = run->workers}};
    heft_status status = heft__plan_new(&request, out, err);
    heft_view whole;
    uint64_t place = 0;
    for (uint64_t i = w->first; i < w->end && status == HEFT_OK; i++) {
        uint64_t from = i == w->first ? w->from : 0, to = i + 1 == w->end ? w->to : parts[i].nbytes;
        uint64_t size = heft__dtypes[parts[i].to].bits / 8u;
        const heft_save_item *item = parts[i].item;
        const heft_view *view = item->view;
        if (!view) { /* a whole tensor whose bytes lie in another order */
            status = heft_view_of(item->archive, item->id, &whole, err);
            if (status != HEFT_OK) break;
            view = &whole;
        }
        if (size) status = view_add(*out, view, from / size, to / size, place, (uint32_t)(i - w->first), err);
        else status = heft__plan_add_view(*out, view, place, NULL, (uint32_t)(i - w->first), err);
        place += view_memory(&parts[i], to - from);
    }
    return status == HEFT_OK ? heft__plan_finish(*out, err) : status;
}

/* Writes a window that has been read: its parts, as memory. */
static heft_status view_write(heft__save_run *run, const heft__part *parts, const view_window *w, const uint8_t *data,
                              heft_error *err) {
    uint64_t n = w->end - w->first;
    heft__part *ready = heft__alloc(&run->alloc, n * sizeof *ready);
    if (!ready) return heft__fail_memory(err, n * sizeof *ready);
    for (uint64_t i = 0; i < n; i++) {
        uint64_t from = i == 0 ? w->from : 0, to = i + 1 == n ? w->to : parts[w->first + i].nbytes;
        ready[i] = parts[w->first + i];
        ready[i].kind = HEFT__PART_MEMORY;
        ready[i].data = data;
        ready[i].offset += from;
        ready[i].base += from;
        ready[i].nbytes = to - from;
        data += view_memory(&ready[i], to - from);
    }
    heft_status status = heft__save_run_blocks(run, ready, n, err);
    heft__free(&run->alloc, ready, n * sizeof *ready);
    return status;
}

heft_status heft__save_run_views(heft__save_run *run, const heft__part *parts, uint64_t nparts, heft_error *err) {
    view_window w = {0};
    heft_status status = HEFT_OK;
    while (status == HEFT_OK) {
        view_next(&w, parts, nparts);
        if (!w.nbytes) break;
        heft_plan *plan = NULL;
        uint8_t *data = heft__alloc(&run->alloc, w.nbytes);
        status = data ? view_plan(run, parts, &w, &plan, err) : heft__fail_memory(err, w.nbytes);
        if (status == HEFT_OK) status = heft__run(plan, &data, NULL, err);
        if (status == HEFT_OK) status = view_write(run, parts, &w, data, err);
        heft_plan_free(plan);
        heft__free(&run->alloc, data, w.nbytes);
    }
    return status;
}
