/* ops: makes the plan of a load: which tensors, where their bytes are, what the machine says, which path, which places.
 */
#include "ops/load.h"

#include "base/error.h"
#include "base/options.h"
#include "base/parallel.h"
#include "dtype/cast.h"
#include "ops/run.h"

#include <math.h>
#include <string.h>

/* ---- options ---- */

static heft_status load_refuse(heft_error *err, const char *what) {
    return heft__fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL, "heft_load_options: %s", what);
}

static heft_status load_check_options(const heft_load_options *o, heft_error *err) {
    const bool *flags = o->more_reserved_flags;
    if (flags[0] || flags[1]) return load_refuse(err, "more_reserved_flags are not 0");
    if (o->io > HEFT_IO_DIRECT || o->engine > HEFT_ENGINE_URING || o->cache_policy > HEFT_CACHE_DROP ||
        o->huge > HEFT_HUGE_REQUIRE || o->arena_scope > HEFT_ARENA_SHARD)
        return load_refuse(err, "io, engine, cache_policy, huge or arena_scope is no known number");
    if (o->align > 4096 || (o->align & (o->align - 1))) return load_refuse(err, "align is no power of two up to 4,096");
    double m = o->peak_memory_multiplier;
    if (m != 0 && (!isfinite(m) || m < 1)) return load_refuse(err, "peak_memory_multiplier is below 1 or not finite");
    if (o->arena && o->arena_scope == HEFT_ARENA_SHARD)
        return load_refuse(err, "one arena is given and one for each shard is wanted");
    if (o->io == HEFT_IO_DIRECT && (o->no_direct || o->cache_policy == HEFT_CACHE_KEEP))
        return load_refuse(err, "io direct is demanded, and forbidden by no_direct or cache_policy keep");
    if (o->keep_file_order && (o->dtype || o->ndtype_rules))
        return load_refuse(err, "keep_file_order and dtype or dtype_rules exclude each other");
    return heft__dtype_check_rules(o->dtype, o->dtype_rules, o->ndtype_rules, err);
}

/* ---- layout ---- */

heft_status heft__load_view(const heft_archive *archive, const heft__load_parts *parts, uint64_t id, heft_view *out,
                            heft_error *err) {
    heft_status status = heft_view_of(archive, id, out, err);
    uint32_t at = parts->at ? parts->at[id] : 0;
    if (status != HEFT_OK || !at) return status;
    const uint64_t *dims = parts->dims + (at - 1);
    for (uint32_t d = 0; d < out->rank; d++) out->shape[d] = (int64_t)dims[d];
    out->offset = (int64_t)dims[out->rank];
    return HEFT_OK;
}

static heft_status load_add(const heft_load_plan *load, heft_plan *plan, heft_error *err) {
    for (uint64_t i = 0; i < load->nkept; i++) {
        heft_status status;
        uint64_t id = heft__load_kept(load, i);
        plan->as = load->parts.dtypes ? load->parts.dtypes[id] : HEFT_DTYPE_NONE;
        if (load->parts.at && load->parts.at[id]) {
            heft_view view;
            status = heft__load_view(load->archive, &load->parts, id, &view, err);
            if (status == HEFT_OK) status = heft__plan_add_view(plan, &view, 0, NULL, (uint32_t)i, err);
        } else
            status = heft__plan_add_tensor(plan, load->archive, id, (uint32_t)i, err);
        if (status != HEFT_OK) return status;
    }
    return HEFT_OK;
}

heft_status heft__load_facts(const heft_load_plan *load, const heft_plan *plan, uint32_t file, heft_error *err) {
    heft__extent *extents;
    uint64_t n;
    heft_status status = heft__plan_extents(plan, file, &extents, &n, err);
    if (status != HEFT_OK) return status;
    heft__facts_source(load->archive->files[file]->source, extents, n, &load->facts[file]);
    heft__free(&plan->alloc, extents, n * sizeof *extents);
    return HEFT_OK;
}

heft_status heft__load_plan_sorted(const heft_load_plan *load, heft_plan **out, heft_error *err) {
    const heft_load_options *o = &load->options;
    heft__plan_request request = {.options = {.struct_size = sizeof request.options,
                                              .workers = o->workers,
                                              .keep_file_order = o->keep_file_order,
                                              .saturate = o->saturate,
                                              .allow_inexact = o->allow_inexact,
                                              .gap_nbytes = o->gap_nbytes,
                                              .block_nbytes = o->block_nbytes},
                                  .alloc = load->alloc,
                                  .default_workers = heft__default_workers(),
                                  .host_is_big_endian = HEFT__HOST_IS_BIG_ENDIAN,
                                  .layout = true,
                                  .nviews = load->nkept};
    heft_status status = heft__plan_new(&request, out, err);
    if (status == HEFT_OK) status = heft__plan_add_archive(*out, load->archive, err);
    if (status == HEFT_OK) status = load_add(load, *out, err);
    if (status == HEFT_OK) status = heft__plan_sort(*out, err);
    return status;
}

heft_status heft__load_plan_finish(const heft_load_plan *load, uint64_t ring_nbytes, bool single, heft_plan *plan,
                                   heft_error *err) {
    const heft_load_options *o = &load->options;
    heft__plan_wishes wishes = {.io = o->io,
                                .cache_policy = o->cache_policy,
                                .arena_scope = o->arena_scope,
                                .no_direct = o->no_direct,
                                .count_tensors = o->count_tensors,
                                .align = o->align,
                                .direct_io_tensor_cap = o->direct_io_tensor_cap,
                                .ring_nbytes = ring_nbytes,
                                .ring_single = single,
                                .page_nbytes = load->host.page_nbytes,
                                .cpus = load->host.cpus};
    heft_status status = heft__plan_choose(plan, load->facts, &wishes, err);
    return status == HEFT_OK ? heft__plan_finish(plan, err) : status;
}

heft_status heft__load_layout(const heft_load_plan *load, uint64_t ring_nbytes, bool single, heft_plan **out,
                              heft_error *err) {
    heft_status status = heft__load_plan_sorted(load, out, err);
    if (status == HEFT_OK) status = heft__load_plan_finish(load, ring_nbytes, single, *out, err);
    if (status != HEFT_OK) {
        heft_plan_free(*out);
        *out = NULL;
    }
    return status;
}

/* ---- the plan ---- */

static heft_status load_apply(heft_load_plan *load, const heft_filter *filter, heft_error *err) {
    heft_filter wish;
    heft_status status = heft__options_copy(&wish, sizeof wish, filter, "heft_filter", err);
    if (status != HEFT_OK) return status;
    wish.struct_size = sizeof wish;
    if (!wish.allocator) wish.allocator = &load->alloc;
    load->atlas = wish.preset == HEFT_PRESET_ATLAS;
    return heft_filter_apply(load->archive, &wish, &load->filter, err);
}

/* Without a filter there is nothing to decide, unless an index or an overlay withholds something. */
static heft_status load_filter(heft_load_plan *load, const heft_filter *filter, heft_error *err) {
    bool all = filter == NULL;
    for (uint32_t i = 0; i < load->archive->nfiles; i++) {
        const heft__listing *listing = load->archive->files[i];
        all = all && !listing->nwithheld && !listing->nreplaced && !listing->overlay;
    }
    load->nkept = load->archive->ntensors;
    if (all) return HEFT_OK;
    heft_status status = load_apply(load, filter, err);
    if (status != HEFT_OK) return status;
    load->kept = heft_filter_kept(load->filter, &load->nkept);
    return heft__load_parts_make(load->filter, &load->alloc, &load->parts, err);
}

/* What each tensor is to become; nothing is noted if all stay what they are. */
static heft_status load_dtypes(heft_load_plan *load, heft_error *err) {
    heft_load_options *o = &load->options;
    const heft_archive *archive = load->archive;
    if (!o->dtype && !o->ndtype_rules) return HEFT_OK;
    uint8_t *dtypes = heft__alloc(&load->alloc, archive->ntensors);
    if (!dtypes) return heft__fail_memory(err, archive->ntensors);
    bool any = false;
    for (uint64_t id = 0; id < archive->ntensors; id++) {
        uint32_t file;
        const heft__entry *entry = heft__archive_entry(archive, id, &file);
        dtypes[id] = (uint8_t)heft_dtype_choose(o->dtype, o->dtype_rules, o->ndtype_rules, entry->name, entry->name_len,
                                                entry->dtype);
        any = any || dtypes[id] != entry->dtype;
    }
    o->dtype_rules = NULL; /* the caller's */
    if (any) load->parts.dtypes = dtypes;
    else heft__free(&load->alloc, dtypes, archive->ntensors);
    return HEFT_OK;
}

static heft_status load_make(heft_load_plan *load, const heft_filter *filter, heft_error *err) {
    uint64_t files = load->archive->nfiles;
    double started = heft__os_seconds();
    heft_status status = load_filter(load, filter, err);
    if (status == HEFT_OK) status = load_dtypes(load, err);
    if (status != HEFT_OK) return status;
    load->filter_seconds = heft__os_seconds() - started;
    started = heft__os_seconds();
    heft__facts_host(&load->host);
    load->archive_nbytes = heft__load_archive_nbytes(load->archive);
    load->facts = heft__alloc_zero(&load->alloc, files * sizeof *load->facts);
    load->shards = heft__alloc_zero(&load->alloc, files * sizeof *load->shards);
    if (!load->facts || !load->shards) return heft__fail_memory(err, files * sizeof *load->shards);
    status = heft__load_plan_sorted(load, &load->plan, err);
    for (uint32_t i = 0; status == HEFT_OK && i < files; i++) status = heft__load_facts(load, load->plan, i, err);
    if (status == HEFT_OK) status = heft__load_plan_finish(load, 0, false, load->plan, err);
    if (status == HEFT_OK) status = heft__load_measure(load, load->plan, &load->memory, err);
    for (uint32_t i = 0; status == HEFT_OK && i < files; i++)
        heft__plan_why(load->plan, i, load->shards[i].why, sizeof load->shards[i].why);
    load->plan_seconds = heft__os_seconds() - started;
    return status;
}

heft_status heft_load_plan_new(const heft_archive *archive, const heft_load_options *options, heft_load_plan **out,
                               heft_error *err) {
    heft_load_options o;
    heft_allocator alloc;
    if (!out || !archive) return heft__fail_null(err, out ? "archive" : "out");
    *out = NULL;
    heft_status status = heft__options_copy(&o, sizeof o, options, "heft_load_options", err);
    if (status == HEFT_OK) status = load_check_options(&o, err);
    if (status != HEFT_OK) return status;
    if (!heft__allocator_from(o.allocator ? o.allocator : &archive->alloc, &alloc))
        return load_refuse(err, "the allocator lacks a function");
    heft_load_plan *load = heft__alloc_zero(&alloc, sizeof *load);
    if (!load) return heft__fail_memory(err, sizeof *load);
    load->alloc = alloc;
    load->archive = heft_archive_ref((heft_archive *)(uintptr_t)archive);
    const heft_filter *filter = o.filter;
    load->options = o;
    load->options.filter = NULL;
    load->options.allocator = NULL;
    load->engine = o.engine == HEFT_ENGINE_URING ? HEFT_ENGINE_URING : HEFT_ENGINE_POOL; /* measured: never slower */
    status = heft__load_engine(load->engine)->probe(err);
    if (status == HEFT_OK) status = load_make(load, filter, err);
    if (status != HEFT_OK) {
        heft_load_plan_free(load);
        return status;
    }
    *out = load;
    return HEFT_OK;
}

void heft_load_plan_free(heft_load_plan *load) {
    if (!load) return;
    heft_allocator alloc = load->alloc;
    heft_plan_free(load->plan);
    heft_filter_result_free(load->filter);
    heft__load_parts_free(load->archive, &alloc, &load->parts);
    heft__free(&alloc, load->facts, load->archive->nfiles * sizeof *load->facts);
    heft__free(&alloc, load->shards, load->archive->nfiles * sizeof *load->shards);
    heft_archive_unref(load->archive);
    heft__free(&alloc, load, sizeof *load);
}

const heft_filter_result *heft_load_plan_filter(const heft_load_plan *plan) {
    heft_load_plan *load = (heft_load_plan *)(uintptr_t)plan; /* of one thread */
    if (!load->filter && load_apply(load, NULL, NULL) != HEFT_OK) return NULL;
    return load->filter;
}
