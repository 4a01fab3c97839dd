/* ops: saves in the background: what they need is copied or held, and a thread does the rest. */
#include "base/checked.h"
#include "base/error.h"
#include "base/options.h"
#include "base/os.h"
#include "base/parallel.h"
#include "ops/save_set.h"

#include <string.h>

struct heft_saver {
    heft_saver_options options;
    heft_allocator alloc;
    uint64_t process;       /* whose it is: its thread is in no child that is forked */
    heft__monitor *monitor; /* guards `running` */
    heft__crew *crew;       /* of the save that has not been waited for, NULL: none */
    bool running;
    atomic_bool cancelled;
    _Atomic uint64_t done_nbytes, total_nbytes;
    /* of the present save */
    heft__arena arena;
    const char *path;
    heft_save_item *items;
    heft_archive **held; /* one for each item, NULL: none */
    uint64_t nitems;
    heft_save_options save;
    heft_allocator save_alloc; /* of these */
    heft_set_options set;
    bool is_set;
    int (*progress)(void *ctx, uint64_t done_nbytes, uint64_t total_nbytes);
    void *progress_ctx;
    heft_save_stats stats;
    heft_status status;
    heft_error error;
    /* of snapshots */
    uint8_t *snapshot;
    uint64_t snapshot_nbytes;
};

/* ---- copies of what the caller gave ---- */

static void *saver_copy(heft_saver *saver, const void *data, uint64_t nbytes) {
    if (!data) return NULL;
    void *copy = heft__arena_alloc(&saver->arena, nbytes ? nbytes : 1, 16);
    if (copy) memcpy(copy, data, (size_t)nbytes);
    return copy;
}

static bool saver_copy_item(heft_saver *saver, heft_save_item *item, uint64_t i) {
    size_t len = item->name_len == 0 || item->name_len == SIZE_MAX ? strlen(item->name) : item->name_len;
    item->name = heft__arena_text(&saver->arena, item->name, len);
    item->name_len = len ? len : SIZE_MAX;
    const heft_archive *archive = item->view ? item->view->archive : item->archive;
    if (archive) saver->held[i] = heft_archive_ref((heft_archive *)(uintptr_t)archive);
    const heft_view *view = item->view;
    const int64_t *shape = item->shape, *strides = item->stride_nbytes;
    uint64_t nbytes = (uint64_t)item->rank * sizeof *shape;
    item->view = saver_copy(saver, view, sizeof *view);
    item->shape = saver_copy(saver, shape, nbytes);
    item->stride_nbytes = saver_copy(saver, strides, nbytes);
    return item->name && !item->view == !view && !item->shape == !shape && !item->stride_nbytes == !strides;
}

static bool saver_copy_metadata(heft_saver *saver) {
    heft_save_options *save = &saver->save;
    if (!save->metadata) return true;
    heft_pair *pairs = saver_copy(saver, save->metadata, save->nmetadata * sizeof *pairs);
    if (!pairs) return false;
    for (uint64_t i = 0; i < save->nmetadata; i++) {
        if (!pairs[i].key || !pairs[i].value) continue; /* refused by the save */
        if (pairs[i].key_len == SIZE_MAX) pairs[i].key_len = strlen(pairs[i].key);
        if (pairs[i].value_len == SIZE_MAX) pairs[i].value_len = strlen(pairs[i].value);
        pairs[i].key = heft__arena_text(&saver->arena, pairs[i].key, pairs[i].key_len);
        pairs[i].value = heft__arena_text(&saver->arena, pairs[i].value, pairs[i].value_len);
        if (!pairs[i].key || !pairs[i].value) return false;
    }
    save->metadata = pairs;
    return true;
}

static const char *saver_copy_text(heft_saver *saver, const char *text) {
    return text ? heft__arena_text(&saver->arena, text, strlen(text)) : NULL;
}

static heft_status saver_copy_all(heft_saver *saver, const char *path, const heft_save_item *items, uint64_t nitems,
                                  heft_error *err) {
    const char *format = saver->save.format, *stem = saver->set.stem;
    saver->path = saver_copy_text(saver, path);
    saver->save.format = saver_copy_text(saver, format);
    saver->set.stem = saver_copy_text(saver, stem);
    bool ok = saver->path && !saver->save.format == !format && !saver->set.stem == !stem && saver_copy_metadata(saver);
    saver->items = heft__alloc(&saver->alloc, nitems * sizeof *items);
    saver->held = heft__alloc_zero(&saver->alloc, nitems * sizeof *saver->held);
    saver->nitems = nitems;
    if (!ok || !saver->items || !saver->held) return heft__fail_memory(err, HEFT_NONE);
    if (nitems) memcpy(saver->items, items, (size_t)nitems * sizeof *items);
    for (uint64_t i = 0; i < nitems; i++)
        if (!saver_copy_item(saver, &saver->items[i], i)) return heft__fail_memory(err, HEFT_NONE);
    return HEFT_OK;
}

/* ---- snapshots ---- */

/* Copies memory of all items into one block, by several threads; strided memory is packed. The items have been checked. */
static heft_status saver_snapshot(heft_saver *saver, const uint64_t *nbytes, const uint64_t *nelems, heft_error *err) {
    uint64_t total = 0, n = 0;
    for (uint64_t i = 0; i < saver->nitems; i++)
        if (!heft__align_u64(total, 64, &total) || !heft__add_u64(total, nbytes[i], &total))
            return heft__fail_memory(err, HEFT_NONE);
    if (total > saver->snapshot_nbytes) {
        heft__free(&saver->alloc, saver->snapshot, saver->snapshot_nbytes);
        saver->snapshot = heft__alloc(&saver->alloc, total);
        saver->snapshot_nbytes = saver->snapshot ? total : 0;
    }
    heft__part *parts = heft__alloc_zero(&saver->alloc, saver->nitems * sizeof *parts);
    if (!parts || (total && !saver->snapshot)) {
        heft__free(&saver->alloc, parts, saver->nitems * sizeof *parts);
        return heft__fail_memory(err, total);
    }
    uint64_t at = 0;
    for (uint64_t i = 0; i < saver->nitems; i++) {
        heft_save_item *item = &saver->items[i];
        at = (at + 63) / 64 * 64;
        if (nbytes[i] == 0) continue;
        bool as_it_lies = false;
        if (item->stride_nbytes)
            as_it_lies = heft__item_pack(item, nelems[i], nbytes[i], saver->save.keep_fortran, saver->snapshot + at);
        else parts[n++] = (heft__part){.offset = at, .nbytes = nbytes[i], .data = item->data, .kind = HEFT__PART_MEMORY,
                                       .from = HEFT_U8, .to = HEFT_U8};
        item->data = saver->snapshot + at;
        if (!as_it_lies) item->stride_nbytes = NULL;
        at += nbytes[i];
    }
    heft__save_run run = {.alloc = saver->alloc, .sink = {.memory = saver->snapshot}, .workers = saver->save.workers};
    atomic_init(&run.done_nbytes, 0);
    heft_status status = heft__save_run_blocks(&run, parts, n, err);
    heft__free(&saver->alloc, parts, saver->nitems * sizeof *parts);
    return status;
}

/* Bytes of each item that lies in memory, 0 of others; the items are checked on the way. */
static heft_status saver_take_snapshot(heft_saver *saver, heft_error *err) {
    uint64_t *sizes = heft__alloc_zero(&saver->alloc, saver->nitems * 2 * sizeof *sizes);
    if (!sizes) return heft__fail_memory(err, saver->nitems * 2 * sizeof *sizes);
    heft_status status = HEFT_OK;
    for (uint64_t i = 0; i < saver->nitems && status == HEFT_OK; i++) {
        heft__item checked;
        status = heft__item_check(&saver->items[i], i, &checked, err);
        if (status != HEFT_OK || saver->items[i].view || saver->items[i].archive) continue;
        uint64_t nelems, nbytes = 0;
        (void)heft__shape_nbytes(checked.from, checked.rank, checked.shape, &nelems, &nbytes);
        sizes[i] = nbytes;
        sizes[saver->nitems + i] = checked.nelems;
    }
    if (status == HEFT_OK) status = saver_snapshot(saver, sizes, sizes + saver->nitems, err);
    heft__free(&saver->alloc, sizes, saver->nitems * 2 * sizeof *sizes);
    return status;
}

/* ---- the thread ---- */

static int saver_progress(void *ctx, uint64_t done, uint64_t total) {
    heft_saver *saver = ctx;
    atomic_store(&saver->done_nbytes, done);
    atomic_store(&saver->total_nbytes, total);
    if (atomic_load(&saver->cancelled)) return 1;
    return saver->progress ? saver->progress(saver->progress_ctx, done, total) : 0;
}

static heft_status saver_file(heft_saver *saver) {
    heft__save_job job;
    heft_status status = heft__save_job_make(&job, saver->items, saver->nitems, &saver->save, saver->path, &saver->error);
    if (status != HEFT_OK) return status;
    status = heft__save_file(&job, saver->path, &saver->error);
    if (status == HEFT_OK) saver->stats = job.stats;
    heft__save_job_free(&job);
    return status;
}

static void saver_run(void *ctx, uint32_t worker) {
    heft_saver *saver = ctx;
    (void)worker;
    saver->status = saver->is_set ? heft__save_set(saver->path, saver->items, saver->nitems, &saver->save, &saver->set,
                                                   &saver->stats, &saver->error)
                                  : saver_file(saver);
    if (saver->options.completed)
        saver->options.completed(saver->options.completed_ctx, saver->status,
                                 saver->status == HEFT_OK ? NULL : &saver->error);
    heft__monitor_enter(saver->monitor);
    saver->running = false;
    heft__monitor_wake(saver->monitor);
    heft__monitor_leave(saver->monitor);
}

/* Frees what the save needed, but for the snapshot's memory. */
static void saver_clear(heft_saver *saver) {
    for (uint64_t i = 0; i < saver->nitems && saver->held; i++) heft_archive_unref(saver->held[i]);
    heft__free(&saver->alloc, saver->held, saver->nitems * sizeof *saver->held);
    heft__free(&saver->alloc, saver->items, saver->nitems * sizeof *saver->items);
    saver->held = NULL;
    saver->items = NULL;
    saver->nitems = 0;
    heft__arena_free(&saver->arena);
    heft__arena_init(&saver->arena, &saver->alloc);
}

/* ---- the interface ---- */

heft_status heft_saver_new(const heft_saver_options *options, heft_saver **out, heft_error *err) {
    heft_saver_options checked;
    heft_allocator alloc;
    if (!out) return heft__fail_null(err, "out");
    *out = NULL;
    heft_status status = heft__options_copy(&checked, sizeof checked, options, "heft_saver_options", err);
    if (status != HEFT_OK) return status;
    if (!heft__allocator_from(checked.allocator, &alloc))
        return heft__fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL, "the allocator lacks a function");
    heft_saver *saver = heft__alloc_zero(&alloc, sizeof *saver);
    heft__monitor *monitor = saver ? heft__monitor_new(&alloc) : NULL;
    if (!monitor) {
        heft__free(&alloc, saver, sizeof *saver);
        return heft__fail_memory(err, sizeof *saver);
    }
    saver->options = checked;
    saver->alloc = alloc;
    saver->process = heft__os_process();
    saver->monitor = monitor;
    heft__arena_init(&saver->arena, &alloc);
    *out = saver;
    return HEFT_OK;
}

static heft_status saver_begin(heft_saver *saver, const char *path, const heft_save_item *items, uint64_t nitems,
                               const heft_save_options *options, const heft_set_options *set_options, heft_error *err) {
    heft_status status = heft__save_options_copy(options, &saver->save, &saver->save_alloc, err);
    if (status == HEFT_OK) status = heft__set_options_copy(set_options, &saver->set, err);
    if (status != HEFT_OK) return status;
    for (uint64_t i = 0; i < nitems; i++) /* what is copied is looked at here, the rest on the thread */
        if (!items[i].name) return heft__item_fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL, &items[i], i, "the name is NULL");
    if (!saver->save.allocator) saver->save_alloc = saver->alloc;
    saver->save.allocator = &saver->save_alloc; /* the caller's struct may go */
    saver->is_set = set_options != NULL;
    saver->set.struct_size = sizeof saver->set;
    saver->progress = saver->save.progress;
    saver->progress_ctx = saver->save.progress_ctx;
    saver->save.progress = saver_progress;
    saver->save.progress_ctx = saver;
    status = saver_copy_all(saver, path, items, nitems, err);
    if (status == HEFT_OK && saver->options.snapshot) status = saver_take_snapshot(saver, err);
    return status;
}

heft_status heft_saver_start(heft_saver *saver, const char *path, const heft_save_item *items, uint64_t nitems,
                             const heft_save_options *options, const heft_set_options *set_options, heft_error *err) {
    if (!saver || !path || (!items && nitems)) return heft__fail_null(err, !saver ? "saver" : !path ? "path" : "items");
    if (heft__os_process_check(saver->process, "saver", err) != HEFT_OK) return HEFT_INVALID_ARGUMENT;
    if (saver->crew)
        return heft__fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL,
                          "a save of this saver is going on, or has not been waited for");
    heft_status status = saver_begin(saver, path, items, nitems, options, set_options, err);
    if (status == HEFT_OK && !(saver->crew = heft__crew_new(&saver->alloc, 2))) status = heft__fail_memory(err, HEFT_NONE);
    if (status != HEFT_OK) {
        saver_clear(saver);
        return status;
    }
    atomic_store(&saver->cancelled, false);
    atomic_store(&saver->done_nbytes, 0);
    atomic_store(&saver->total_nbytes, 0);
    memset(&saver->stats, 0, sizeof saver->stats);
    saver->running = true;
    if (heft__crew_start(saver->crew, saver_run, saver) < 2) saver_run(saver, 0); /* no thread could be made */
    return HEFT_OK;
}

bool heft_saver_poll(heft_saver *saver, uint64_t *done_nbytes, uint64_t *total_nbytes) {
    if (done_nbytes) *done_nbytes = atomic_load(&saver->done_nbytes);
    if (total_nbytes) *total_nbytes = atomic_load(&saver->total_nbytes);
    if (heft__os_process_check(saver->process, "saver", NULL) != HEFT_OK) return false;
    heft__monitor_enter(saver->monitor);
    bool running = saver->running;
    heft__monitor_leave(saver->monitor);
    return running;
}

void heft_saver_cancel(heft_saver *saver) {
    if (saver) atomic_store(&saver->cancelled, true);
}

heft_status heft_saver_wait(heft_saver *saver, heft_save_stats *stats, heft_error *err) {
    if (stats) memset(stats, 0, sizeof *stats);
    if (!saver) return heft__fail_null(err, "saver");
    if (heft__os_process_check(saver->process, "saver", err) != HEFT_OK) return HEFT_INVALID_ARGUMENT;
    if (!saver->crew) return HEFT_OK;
    (void)heft__crew_join(saver->crew);
    saver->crew = NULL;
    saver_clear(saver);
    if (saver->status == HEFT_OK && stats) *stats = saver->stats;
    if (saver->status != HEFT_OK && err) *err = saver->error;
    return saver->status;
}

void heft_saver_free(heft_saver *saver) {
    if (!saver || heft__os_process_check(saver->process, "saver", NULL) != HEFT_OK) return; /* the parent goes on */
    heft_allocator alloc = saver->alloc;
    (void)heft_saver_wait(saver, NULL, NULL);
    heft__free(&alloc, saver->snapshot, saver->snapshot_nbytes);
    heft__arena_free(&saver->arena);
    heft__monitor_free(saver->monitor);
    heft__free(&alloc, saver, sizeof *saver);
}
