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
    if (nest->to) explain_line(out, ", %s -> %s", heft_dtype_name(nest->from), heft_dtype_name(nest->to));
    if (nest->batch > 1 && !nest->bits) explain_line(out, ", %" PRIu64 " boxes a block", nest->batch);
    explain_line(out, "\n");
    for (uint32_t d = 0; d < nest->rank; d++)
        explain_line(out, "      loop %" PRIu64 " x %" PRId64 " -> %" PRId64 ", tile %" PRIu64 "\n",
                     loops[d].loop.count, loops[d].loop.src, loops[d].loop.dst, loops[d].tile);
}

/* Of a load: what was chosen for each file, and the memory that it lands in. */
static void explain_load(explain_out *out, const heft_plan *plan) {
    for (uint32_t i = 0; i < plan->nsources; i++) {
        const heft__plan_source *s = &plan->sources[i];
        char why[200];
        heft__plan_why(plan, i, why, sizeof why);
        explain_line(out, "  source %u: %s, %s (%s): %s\n", i, s->facts.fs_name, heft_path_name(s->path),
                     heft_reason_name(s->reason), why);
        if (s->nitems == 0) continue;
        explain_line(out,
                     "    views %" PRIu64 ", runs %" PRIu64 ", kept %" PRIu64 ", requested %" PRIu64
                     " (over-read %" PRIu64 ", spanned %" PRIu64 ")",
                     s->nitems, s->nruns, s->kept, s->requested, s->over_read, s->spanned);
        if (s->direct_align) explain_line(out, ", aligned to %u", s->direct_align);
        if (s->touch) explain_line(out, ", brought in");
        explain_line(out, "\n");
    }
    for (uint64_t i = 0; i < plan->narenas && !plan->ring; i++) {
        const heft__plan_arena *arena = &plan->arenas[i];
        explain_line(out, "  arena %" PRIu64 ": %" PRIu64 " bytes at a multiple of %u%s\n", i, arena->nbytes,
                     arena->align, i == plan->side_arena ? ", beside mappings" : "");
    }
    for (uint64_t i = 0; i < plan->nmappings; i++) {
        const heft__plan_mapping *mapping = &plan->mappings[i];
        explain_line(out, "  mapping %" PRIu64 ": source %u [%" PRIu64 ", %" PRIu64 ")\n", i, mapping->source,
                     mapping->offset, mapping->offset + mapping->nbytes);
    }
    if (plan->chosen) explain_line(out, "  slack %" PRIu64 "\n", plan->slack);
}

static void explain_item(explain_out *out, const heft_plan *plan, const heft__plan_item *item) {
    heft_load_place place;
    explain_line(out, "    view %u: tensor %u [%" PRIu64 ", %" PRIu64 ") -> ", item->view, item->id, item->offset,
                 item->offset + item->nbytes);
    if (plan->chosen) {
        heft__plan_place(plan, item, &place);
        explain_line(out, "%s %u at %" PRIu64 ", aligned to %u%s\n", item->mapped ? "mapping" : "arena", place.arena,
                     place.offset, place.align, item->apart ? ", a slot" : "");
    } else
        explain_line(out, "%" PRId64 "\n", item->place);
    if (item->nest != HEFT__PLAN_NONE) explain_nest(out, plan, &plan->nests[item->nest]);
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
    if (plan->chosen) explain_load(&out, plan);
    for (uint64_t r = 0; r < plan->nruns; r++) {
        const heft__plan_run *run = &plan->runs[r];
        uint64_t begin = run->offset, end = run->offset + run->nbytes;
        explain_line(
            &out, "  run %" PRIu64 ": file %u [%" PRIu64 ", %" PRIu64 ") %s, kept %" PRIu64 ", blocks %" PRIu64, r,
            plan->sources[run->source].file, begin, end, kinds[run->kind], run->kept, heft__plan_blocks_of(plan, run));
        heft__plan_round(&plan->sources[run->source], &begin, &end);
        if (run->direct) explain_line(&out, ", O_DIRECT [%" PRIu64 ", %" PRIu64 ")", begin, end);
        explain_line(&out, "\n");
        for (uint64_t i = run->first_item; i < run->first_item + run->nitems; i++)
            explain_item(&out, plan, &plan->items[i]);
    }
    for (uint64_t i = 0; i < plan->nitems && plan->nmappings; i++)
        if (plan->items[i].mapped) explain_item(&out, plan, &plan->items[i]);
    explain_line(&out, "");
    if (out.failed || !heft__grow(out.alloc, (void **)&out.text, &out.capacity, out.len, 1, 1)) {
        heft__free(out.alloc, out.text, out.capacity);
        return NULL;
    }
    out.text[out.len] = 0;
    *nbytes = out.capacity;
    return out.text;
}
