/* plan: which path the bytes of each file of a load take, and why. */
#include "plan/plan.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/sort.h"
#include "base/text.h"

#include <stdio.h>
#include <string.h>

const char *heft_path_name(heft_path path) {
    static const char *const words[HEFT_PATH_COUNT] = {
#define CHOOSE_WORD(constant, word) word,
        HEFT_PATH_TABLE(CHOOSE_WORD)};
    return path < HEFT_PATH_COUNT ? words[path] : "unknown";
}

const char *heft_reason_name(heft_reason reason) {
    static const char *const words[HEFT_REASON_COUNT] = {HEFT_REASON_TABLE(CHOOSE_WORD)};
#undef CHOOSE_WORD
    return reason < HEFT_REASON_COUNT ? words[reason] : "unknown";
}

/* ---- the table ---- */

/* What offsets, lengths and addresses of direct reads are multiples of; 0: there can be none. No system is known that asks
 * more of addresses than a small page; scratch is aligned to that. */
static uint32_t choose_alignment(const heft__plan_source *source) {
    const heft__source_facts *facts = &source->facts;
    if (!facts->file || facts->direct == HEFT__DIRECT_REFUSED || facts->fs_class == HEFT__FS_MEMORY) return 0;
    uint32_t align = facts->direct_memory > facts->direct_offset ? facts->direct_memory : facts->direct_offset;
    if (align == 0) align = HEFT__DIRECT_ASSUMED;
    if (align > HEFT__PLAN_DIRECT_MOST || facts->direct_memory > 4096 || (align & (align - 1))) return 0;
    if (source->source->window_offset % align || source->source->size > (uint64_t)INT64_MAX) return 0;
    return align;
}

static bool choose_hot(const heft__residency *residency) {
    return residency->known && residency->asked_nbytes &&
           residency->resident_nbytes >= residency->asked_nbytes - residency->asked_nbytes / 5;
}

/* The first rule that applies, but for those that look at the whole plan. COLD_LOCAL: none of them did. */
static heft_reason choose_rule(const heft__plan_source *source, const heft__plan_wishes *wishes) {
    const heft__source_facts *facts = &source->facts;
    if (source->nitems == 0) return HEFT_REASON_NOTHING;
    if (wishes->io != HEFT_IO_AUTO) return HEFT_REASON_FORCED;
    if (!facts->file) return HEFT_REASON_SOURCE;
    if (facts->fs_class == HEFT__FS_MEMORY) return HEFT_REASON_MEMORY_FS;
    if (facts->fs_class == HEFT__FS_NETWORK || facts->fs_class == HEFT__FS_USER_SPACE) return HEFT_REASON_NETWORK;
    if (facts->residency.dirty) return HEFT_REASON_DIRTY;
    if (choose_hot(&facts->residency)) return HEFT_REASON_HOT;
    if (wishes->cache_policy == HEFT_CACHE_KEEP) return HEFT_REASON_SHARED;
    if (source->kept < HEFT__PLAN_SMALL) return HEFT_REASON_SMALL;
    if (wishes->no_direct) return HEFT_REASON_NO_DIRECT;
    return choose_alignment(source) ? HEFT_REASON_COLD_LOCAL : HEFT_REASON_NO_DIO;
}

/* ---- paths that are demanded ---- */

static heft_status choose_refuse(const heft__plan_source *source, const char *path, const char *why, heft_error *err) {
    char name[300];
    heft__escape(name, sizeof name, source->source->label, strlen(source->source->label));
    heft__fail(err, HEFT_UNSUPPORTED, HEFT_FAULT_CALL, "%s: cannot be had by path %s: %s; leave the choice to heft",
               name, path, why);
    heft__error_file(err, source->source->label);
    return HEFT_UNSUPPORTED;
}

static heft_status choose_map(heft_plan *plan, heft__plan_source *source, heft_error *err) {
    if (!(source->source->capabilities & HEFT_SOURCE_MAP))
        return choose_refuse(source, "map", "it has no mapping", err);
    uint64_t address = heft__plan_address(source->source);
    for (uint64_t i = source->first_item; i < source->first_item + source->nitems; i++) {
        heft__plan_item *item = &plan->items[i];
        bool nest = item->nest != HEFT__PLAN_NONE, cast = nest && plan->nests[item->nest].to;
        if (nest && !cast) {
            uint32_t file;
            const heft__entry *entry = heft__archive_entry(source->archive, item->id, &file);
            char name[260], why[340];
            heft__escape(name, sizeof name, entry->name, entry->name_len);
            snprintf(why, sizeof why,
                     plan->nests[item->nest].swap ? "tensor \"%s\" needs its bytes swapped"
                                                  : "of tensor \"%s\" a part is wanted that is not in one piece",
                     name);
            choose_refuse(source, "map", why, err);
            heft__error_tensor(err, entry->name, entry->name_len);
            return HEFT_UNSUPPORTED;
        }
        item->mapped = !cast && (address + item->offset) % heft__plan_align(plan, item) == 0;
        item->side = item->apart = !item->mapped;
    }
    source->path = HEFT_PATH_MAP;
    source->touch =
        source->facts.file && source->facts.fs_class != HEFT__FS_MEMORY && !choose_hot(&source->facts.residency);
    return HEFT_OK;
}

static heft_status choose_forced(heft_plan *plan, heft__plan_source *source, heft_io io, heft_error *err) {
    if (io == HEFT_IO_MAP) return choose_map(plan, source, err);
    if (!source->facts.file)
        return choose_refuse(source, io == HEFT_IO_DIRECT ? "direct" : "buffered", "no file stands behind it", err);
    source->path = io == HEFT_IO_DIRECT ? HEFT_PATH_DIRECT : HEFT_PATH_BUFFERED;
    if (io != HEFT_IO_DIRECT || choose_alignment(source)) return HEFT_OK;
    return choose_refuse(source, "direct",
                         source->facts.fs_class == HEFT__FS_MEMORY
                             ? "its file system keeps files in memory"
                             : "its file system refuses O_DIRECT, or wants more than 64 KiB of alignment",
                         err);
}

/* ---- direct or not ---- */

static heft_status choose_tile(heft_plan *plan, const heft__plan_source *source, heft_error *err) {
    for (uint64_t i = source->first_item; plan->nnests && i < source->first_item + source->nitems; i++) {
        heft__plan_item *item = &plan->items[i];
        if (item->nest != HEFT__PLAN_NONE && !heft__nest_tile(plan, &plan->nests[item->nest], item))
            return heft__fail(err, HEFT_LIMIT, HEFT_FAULT_CALLER_LIMIT, "the view is too large to be planned");
    }
    return HEFT_OK;
}

static void choose_gaps(const heft_plan *plan, heft__plan_source *source, uint64_t gap, uint64_t view_gap) {
    source->gap = plan->gap_wished ? plan->options.gap_nbytes : gap;
    if (source->gap == HEFT_NONE) source->gap = 0;
    source->view_gap = plan->gap_wished ? plan->view_gap : view_gap;
}

static heft_status choose_buffered(heft_plan *plan, heft__plan_source *source, heft_reason reason, heft_error *err) {
    bool was_direct = source->direct_align != 0, tiled = was_direct || reason == HEFT_REASON_NETWORK;
    source->reason = reason;
    source->path = HEFT_PATH_BUFFERED;
    source->direct_align = 0;
    for (uint64_t i = 0; was_direct && i < source->nitems; i++) plan->items[source->first_item + i].apart = false;
    if (reason == HEFT_REASON_NETWORK)
        choose_gaps(plan, source, HEFT__PLAN_GAP_NETWORK, HEFT__PLAN_GAP_DIRECT);
    else
        choose_gaps(plan, source, HEFT__PLAN_GAP, plan->view_gap);
    return tiled ? choose_tile(plan, source, err) : HEFT_OK;
}

/* Small tensors beside one that goes through scratch go there too: a run of their own would read its pages twice. */
enum { CHOOSE_SMALL = 1 << 20 };

static bool choose_drawn(const heft__plan_source *source, const heft__plan_item *a, const heft__plan_item *b) {
    uint64_t mask = source->direct_align - UINT64_C(1);
    const heft__plan_item *hit = a->apart ? b : a;
    return a->apart != b->apart && hit->nest == HEFT__PLAN_NONE && hit->nbytes < CHOOSE_SMALL &&
           ((a->offset + a->nbytes + mask) & ~mask) >= (b->offset & ~mask);
}

static heft_status choose_direct(heft_plan *plan, heft__plan_source *source, heft_error *err) {
    source->direct_align = choose_alignment(source);
    source->congruence = source->direct_align > 4096 ? source->direct_align : 4096;
    source->path = HEFT_PATH_DIRECT;
    choose_gaps(plan, source, HEFT__PLAN_GAP_DIRECT, HEFT__PLAN_GAP_DIRECT);
    heft__plan_item *items = plan->items + source->first_item;
    for (uint64_t i = 0; i < source->nitems; i++) {
        items[i].apart = items[i].nest == HEFT__PLAN_NONE && items[i].offset % heft__plan_align(plan, &items[i]);
        if (i > 0 && !items[i].apart && choose_drawn(source, &items[i - 1], &items[i])) items[i].apart = true;
    }
    for (uint64_t i = source->nitems; i-- > 1;)
        if (!items[i - 1].apart && choose_drawn(source, &items[i - 1], &items[i])) items[i - 1].apart = true;
    return choose_tile(plan, source, err);
}

/* Files whose pieces are few, from the one with the cheapest edges on, as long as the budgets last. */
static heft_status choose_within_budgets(heft_plan *plan, heft__sort_key *keys, uint64_t n, heft_error *err) {
    uint64_t budget = heft__plan_budget(plan), kept = 0;
    for (uint64_t i = 0; i < plan->nsources; i++) {
        heft__plan_source *source = &plan->sources[i];
        uint64_t edges, spill;
        if (source->path != HEFT_PATH_DIRECT) continue;
        heft_status status = choose_direct(plan, source, err);
        if (status != HEFT_OK) return status;
        heft__coalesce_edges(plan, (uint32_t)i, &edges, &spill);
        keys[kept++] = (heft__sort_key){.major = edges, .minor = spill, .index = (uint32_t)i};
        if (kept == n) break;
    }
    heft__sort_keys(keys, kept);
    for (uint64_t i = 0; i < kept; i++) {
        heft__plan_source *source = &plan->sources[keys[i].index];
        uint64_t edges, spill;
        bool fits = heft__add_u64(plan->edges, keys[i].major, &edges) &&
                    heft__add_u64(plan->spill, keys[i].minor, &spill) && edges <= budget && spill <= HEFT__PLAN_SLACK;
        if (fits || source->reason == HEFT_REASON_FORCED) {
            plan->edges += keys[i].major;
            plan->spill += keys[i].minor;
            continue;
        }
        heft_status status = choose_buffered(plan, source, HEFT_REASON_BUDGET, err);
        if (status != HEFT_OK) return status;
    }
    return HEFT_OK;
}

/* Those that the table leaves for direct reads: gaps as if all were hot, pieces counted, then the choice. */
static heft_status choose_candidates(heft_plan *plan, const heft__plan_wishes *wishes, heft_error *err) {
    uint64_t cap = wishes->direct_io_tensor_cap ? wishes->direct_io_tensor_cap : HEFT__PLAN_CAP, n = 0;
    heft_status status = heft__coalesce_count(plan, err);
    for (uint64_t i = 0; i < plan->nsources && status == HEFT_OK; i++) {
        heft__plan_source *source = &plan->sources[i];
        if (wishes->count_tensors) source->pieces = source->nitems;
        if (source->path != HEFT_PATH_DIRECT) continue;
        if (source->reason != HEFT_REASON_FORCED && source->pieces > cap)
            status = choose_buffered(plan, source, HEFT_REASON_EXTENT_CAP, err);
        else
            n++;
    }
    if (status != HEFT_OK || n == 0) return status;
    heft__sort_key *keys = heft__alloc(&plan->alloc, n * sizeof *keys);
    if (!keys) return heft__fail_memory(err, n * sizeof *keys);
    status = choose_within_budgets(plan, keys, n, err);
    heft__free(&plan->alloc, keys, n * sizeof *keys);
    return status;
}

static heft_status choose_source(heft_plan *plan, heft__plan_source *source, const heft__plan_wishes *wishes,
                                 heft_error *err) {
    source->reason = choose_rule(source, wishes);
    switch (source->reason) {
    case HEFT_REASON_NOTHING: return HEFT_OK;
    case HEFT_REASON_FORCED: return choose_forced(plan, source, wishes->io, err);
    case HEFT_REASON_SOURCE: source->path = HEFT_PATH_SOURCE; return HEFT_OK;
    case HEFT_REASON_COLD_LOCAL: source->path = HEFT_PATH_DIRECT; return HEFT_OK;
    default: return choose_buffered(plan, source, source->reason, err);
    }
}

/* min(4, CPUs). Requests that wait for a disk take little of a CPU: where some go past the page cache there are more of them.
 * So there are of network files, and more still where none of them is known to be in the page cache and the first requests
 * show that the way is long. */
static void choose_workers(heft_plan *plan, const heft__plan_wishes *wishes) {
    bool network = false, cold = false, direct = false;
    for (uint64_t i = 0; i < plan->nsources; i++) {
        const heft__plan_source *source = &plan->sources[i];
        heft_reason reason = choose_rule(source, wishes);
        heft__fs_class class = source->facts.fs_class;
        if (reason == HEFT_REASON_NOTHING) continue;
        network = network || (source->facts.file && (class == HEFT__FS_NETWORK || class == HEFT__FS_USER_SPACE));
        cold = cold || !choose_hot(&source->facts.residency);
        direct = direct || reason == HEFT_REASON_COLD_LOCAL || wishes->io == HEFT_IO_DIRECT;
    }
    if (plan->options.workers || (wishes->cpus == 0 && !network)) return;
    uint32_t cpus = wishes->cpus;
    plan->ramp_from = 0;
    if (network) {
        plan->workers = cpus < 4 ? 8 : cpus > 8 ? 16 : 2 * cpus;
        if (cold) {
            plan->ramp_from = plan->workers;
            plan->workers <<= HEFT__RAMP_STEPS;
        }
    } else {
        plan->workers = direct ? HEFT__PLAN_DIRECT_WORKERS : cpus < 4 ? cpus : 4;
    }
    plan->scratch_share = HEFT__PLAN_SCRATCH_ALL / plan->workers;
}

static heft_status choose_check(const heft__plan_wishes *wishes, heft_error *err) {
    if (wishes->io > HEFT_IO_DIRECT)
        return heft__fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL, "io %u is not known", wishes->io);
    if (wishes->align > 4096 || (wishes->align & (wishes->align - 1)))
        return heft__fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL,
                          "align is %llu; it must be a power of two up to 4,096", (unsigned long long)wishes->align);
    return HEFT_OK;
}

/* Undoes an earlier choice. */
static heft_status choose_reset(heft_plan *plan, heft_error *err) {
    heft_status status = HEFT_OK;
    plan->edges = plan->spill = 0;
    for (uint64_t i = 0; plan->chosen && i < plan->nitems; i++)
        plan->items[i].mapped = plan->items[i].side = plan->items[i].apart = false;
    for (uint64_t i = 0; i < plan->nsources && status == HEFT_OK; i++) {
        heft__plan_source *source = &plan->sources[i];
        source->path = HEFT_PATH_NONE;
        source->touch = false;
        source->direct_align = 0;
        choose_gaps(plan, source, HEFT__PLAN_GAP, plan->view_gap);
        if (plan->chosen) status = choose_tile(plan, source, err);
    }
    return status;
}

heft_status heft__plan_choose(heft_plan *plan, const heft__source_facts *facts, const heft__plan_wishes *wishes,
                              heft_error *err) {
    heft_status status = choose_check(wishes, err);
    if (status == HEFT_OK) status = heft__plan_sort(plan, err);
    if (status != HEFT_OK) return status;
    plan->align = wishes->align;
    plan->arena_scope = wishes->arena_scope;
    plan->ring = wishes->ring_nbytes;
    plan->ring_single = wishes->ring_single;
    if (wishes->page_nbytes) plan->page = wishes->page_nbytes;
    plan->cap = wishes->direct_io_tensor_cap ? wishes->direct_io_tensor_cap : HEFT__PLAN_CAP;
    for (uint64_t i = 0; i < plan->nsources; i++) plan->sources[i].facts = facts[i];
    choose_workers(plan, wishes);
    status = choose_reset(plan, err);
    plan->chosen = true;
    bool direct = false;
    for (uint64_t i = 0; i < plan->nsources && status == HEFT_OK; i++) {
        status = choose_source(plan, &plan->sources[i], wishes, err);
        direct = direct || plan->sources[i].path == HEFT_PATH_DIRECT;
    }
    return status == HEFT_OK && direct ? choose_candidates(plan, wishes, err) : status;
}

/* ---- for people ---- */

static unsigned choose_percent(const heft__residency *residency) {
    uint64_t asked = residency->asked_nbytes, resident = residency->resident_nbytes;
    for (; asked > UINT32_MAX; asked >>= 1) resident >>= 1;
    return asked ? (unsigned)(resident * 100 / asked) : 0;
}

void heft__plan_why(const heft_plan *plan, uint32_t number, char *out, size_t size) {
    const heft__plan_source *source = &plan->sources[number];
    const heft__source_facts *facts = &source->facts;
    unsigned percent = choose_percent(&facts->residency);
    char wanted[HEFT__SIZE_TEXT];
    heft__size_text(source->kept, wanted);
    static const char *const texts[HEFT_REASON_COUNT] = {
        [HEFT_REASON_NOTHING] = "nothing of this file is wanted",
        [HEFT_REASON_SOURCE] = "no file stands behind it: its own read function is called",
        [HEFT_REASON_DIRTY] = "some of its pages wait to be written to disk: direct reads would wait for that",
        [HEFT_REASON_SHARED] = "other processes will read it too, so it should stay in the page cache",
        [HEFT_REASON_NO_DIRECT] = "it is not in the page cache, but direct reads are forbidden",
        [HEFT_REASON_BUDGET] = "rounding its pieces to the alignment of direct reads would read or hold too much",
    };
    if (texts[source->reason])
        snprintf(out, size, "%s", texts[source->reason]);
    else if (source->reason == HEFT_REASON_FORCED)
        snprintf(out, size, "the caller demands it%s",
                 source->path == HEFT_PATH_MAP &&
                         (facts->fs_class == HEFT__FS_NETWORK || facts->fs_class == HEFT__FS_USER_SPACE)
                     ? ", though pages of such a file system come one by one, and one that cannot be had ends the "
                       "program (SIGBUS)"
                     : "");
    else if (source->reason == HEFT_REASON_MEMORY_FS)
        snprintf(out, size, "%s keeps its files in memory", facts->fs_name);
    else if (source->reason == HEFT_REASON_NETWORK)
        snprintf(out, size, "%s %s: many large reads at once", facts->fs_name,
                 facts->fs_class == HEFT__FS_NETWORK ? "is reached over a network" : "is served by a program");
    else if (source->reason == HEFT_REASON_HOT)
        snprintf(out, size, "%u %% of the %s wanted are in the page cache already", percent, wanted);
    else if (source->reason == HEFT_REASON_SMALL)
        snprintf(out, size, "only %s of it are wanted, and direct reads pay from 16 MiB on", wanted);
    else if (source->reason == HEFT_REASON_NO_DIO)
        snprintf(out, size, "%s takes no direct reads of this file, or only with too large an alignment",
                 facts->fs_name);
    else if (source->reason == HEFT_REASON_EXTENT_CAP)
        snprintf(out, size, "it is wanted in %llu pieces; direct reads are for up to %llu",
                 (unsigned long long)source->pieces, (unsigned long long)plan->cap);
    else if (facts->residency.known)
        snprintf(out, size,
                 "only %u %% of the %s wanted are in the page cache (80 %% would make it buffered), and the disk is local",
                 percent, wanted);
    else
        snprintf(out, size,
                 "whether the %s wanted are in the page cache is not known, and the disk is local: as if they were not",
                 wanted);
}
