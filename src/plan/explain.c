/* plan: a plan as text, one line an object, for people and for goldens. */
#include "plan/plan.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

typedef struct explain_out {
    const heft_allocator *alloc;
    char *text;
    uint64_t len, capacity;
    bool failed;
} explain_out;

static void explain_line(explain_out *out, const char *format, ...) {
    char line[512];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    for (int i = 0; i < n && !out->failed; i++) {
        if (!heft__grow(out->alloc, (void **)&out->text, &out->capacity, out->len, 1, 1024))
            out->failed = true;
        else
            out->text[out->len++] = line[i];
    }
}

static void explain_nest(explain_out *out, const heft_plan *plan, const heft__plan_nest *nest) {
    const heft__plan_loop *loops = heft__plan_loops(plan, nest);
    const char *unit = nest->bits ? "bits" : "bytes";
    explain_line(out, "    nest: %" PRIu64 " boxes, %" PRIu64 " reads, level %u, unit %" PRIu64 " %s", nest->nboxes,
                 nest->nreads, nest->level, nest->unit, unit);
    if (nest->unit_tile < nest->unit) explain_line(out, " in pieces of %" PRIu64, nest->unit_tile);
    if (nest->swap) explain_line(out, ", swap %u", nest->swap);
    explain_line(out, "\n");
    for (uint32_t d = 0; d < nest->rank; d++)
        explain_line(out, "      loop %" PRIu64 " x %" PRId64 " -> %" PRId64 ", tile %" PRIu64 "\n",
                     loops[d].loop.count, loops[d].loop.src, loops[d].loop.dst, loops[d].tile);
}

char *heft__plan_text(const heft_plan *plan, uint64_t *nbytes) {
    static const char *const kinds[] = {"direct", "vector", "gather"};
    explain_out out = {.alloc = &plan->alloc};
    const heft_plan_summary *s = &plan->sum;
    explain_line(&out,
                 "plan: %" PRIu64 " views, %" PRIu64 " runs, %" PRIu64 " blocks, %u workers; kept %" PRIu64
                 ", requested %" PRIu64 " (over-read %" PRIu64 ", spanned %" PRIu64 "), destination %" PRIu64
                 ", scratch %" PRIu64 "\n",
                 s->nviews, s->nruns, s->nblocks, s->workers, s->kept_nbytes, s->requested_nbytes, s->over_read_nbytes,
                 s->spanned_nbytes, s->dst_nbytes, s->scratch_nbytes);
    for (uint64_t r = 0; r < plan->nruns; r++) {
        const heft__plan_run *run = &plan->runs[r];
        explain_line(&out,
                     "  run %" PRIu64 ": file %u [%" PRIu64 ", %" PRIu64 ") %s, kept %" PRIu64 ", blocks %" PRIu64 "\n",
                     r, plan->sources[run->source].file, run->offset, run->offset + run->nbytes, kinds[run->kind],
                     run->kept, heft__plan_blocks_of(plan, run));
        for (uint64_t i = run->first_item; i < run->first_item + run->nitems; i++) {
            const heft__plan_item *item = &plan->items[i];
            explain_line(&out, "    view %u: tensor %u [%" PRIu64 ", %" PRIu64 ") -> %" PRId64 "\n", item->view,
                         item->id, item->offset, item->offset + item->nbytes, item->place);
            if (item->nest != HEFT__PLAN_NONE) explain_nest(&out, plan, &plan->nests[item->nest]);
        }
    }
    explain_line(&out, "");
    if (out.failed || !heft__grow(out.alloc, (void **)&out.text, &out.capacity, out.len, 1, 1)) {
        heft__free(out.alloc, out.text, out.capacity);
        return NULL;
    }
    out.text[out.len] = 0;
    *nbytes = out.capacity;
    return out.text;
}
