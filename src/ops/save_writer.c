/* ops: saves one tensor after another: what all modes share, and the one that collects a file in memory. */
#include "base/error.h"
#include "base/os.h"
#include "ops/save_writer.h"

#include <string.h>

static heft_status writer_refuse(heft_error *err, const char *why) {
    return heft__fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL, "%s", why);
}

/* ---- what is shared ---- */

heft_status heft__writer_note(heft_writer *writer, const heft_save_item *item, const heft__item *checked, heft_error *err) {
    if (checked->spelling && writer->mode != HEFT_WRITER_COLLECT)
        return heft__item_fail(err, HEFT_UNSUPPORTED, HEFT_FAULT_UNKNOWN_DTYPE, item, writer->nitems,
                               "its dtype is unknown, so that it can neither be declared nor streamed");
    uint32_t hash = heft__hash_name(&writer->names, checked->name, checked->name_len), other;
    uint64_t cursor = heft__hash_start(&writer->names, hash);
    while (heft__hash_next(&writer->names, hash, &cursor, &other)) {
        size_t len = writer->items[other].name_len == SIZE_MAX ? 0 : writer->items[other].name_len; /* as is noted below */
        if (len == checked->name_len && memcmp(writer->items[other].name, checked->name, len) == 0)
            return heft__item_fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_DUPLICATE_NAME, item, writer->nitems,
                                   "item %u has the same name", other);
    }
    if (!heft__grow(&writer->alloc, (void **)&writer->items, &writer->items_capacity, writer->nitems, sizeof *item, 16))
        return heft__fail_memory(err, HEFT_NONE);
    heft_save_item *copy = &writer->items[writer->nitems];
    *copy = *item;
    copy->name = heft__arena_text(&writer->arena, checked->name, checked->name_len);
    copy->name_len = checked->name_len ? checked->name_len : SIZE_MAX;
    int64_t *shape = heft__arena_alloc(&writer->arena, (uint64_t)checked->rank * sizeof *shape, sizeof *shape);
    if (!copy->name || !shape) return heft__fail_memory(err, HEFT_NONE);
    if (checked->rank) memcpy(shape, checked->shape, checked->rank * sizeof *shape);
    copy->shape = shape;
    return HEFT_OK;
}

heft_status heft__writer_count(heft_writer *writer, const heft__item *checked, heft_error *err) {
    uint32_t hash = heft__hash_name(&writer->names, checked->name, checked->name_len);
    if (!heft__hash_add(&writer->names, hash, (uint32_t)writer->nitems)) return heft__fail_memory(err, HEFT_NONE);
    writer->nitems++;
    writer->file_nbytes += checked->nbytes;
    writer->data_nbytes += checked->nbytes;
    writer->nelems += checked->nelems;
    return HEFT_OK;
}

heft_status heft__writer_end_file(heft_writer *writer, heft_error *err) {
    heft_layout *layout = writer->layout;
    if (!heft__grow(&writer->alloc, (void **)&layout->files, &layout->files_capacity, layout->nfiles, sizeof *layout->files, 8))
        return heft__fail_memory(err, HEFT_NONE);
    for (uint64_t i = writer->first; i < writer->nitems; i++) {
        if (!heft__grow(&writer->alloc, (void **)&layout->tensors, &writer->tensors_capacity, i, sizeof *layout->tensors, 16))
            return heft__fail_memory(err, HEFT_NONE);
        layout->tensors[i] = (heft_layout_tensor){.file = (uint32_t)layout->nfiles};
    }
    layout->files[layout->nfiles++] = (heft_layout_file){.first_item = writer->first, .nitems = writer->nitems - writer->first};
    layout->nitems = writer->nitems;
    writer->first = writer->nitems;
    writer->file_nbytes = 0;
    return HEFT_OK;
}

heft_status heft__writer_end_set(heft_writer *writer, heft_error *err) {
    heft_layout *layout = writer->layout;
    const heft_set_options *set = &writer->set;
    heft_status status = HEFT_OK;
    for (uint64_t i = 0; i < layout->nfiles && status == HEFT_OK; i++)
        if (!(layout->files[i].name = heft__shard_name(&layout->arena, set->stem, i + 1, layout->nfiles)))
            status = heft__fail_memory(err, HEFT_NONE);
    if (status == HEFT_OK && heft__set_has_index(set, layout->nfiles, layout->nitems))
        status = heft__shards_index(layout, writer->items, set, writer->data_nbytes, writer->nelems, err);
    if (status == HEFT_OK) {
        heft__set_job *job = writer->job;
        status = heft__set_job_end(job, layout, err);
        writer->stats = job->stats;
        heft__free(&writer->alloc, job, sizeof *job);
        writer->job = NULL;
    }
    return status;
}

/* ---- collecting ---- */

static void writer_drop_held(heft_writer *writer) {
    for (uint64_t i = 0; i < writer->nheld; i++)
        heft__free(&writer->alloc, writer->held[i], writer->held_nbytes[i]);
    writer->nheld = 0;
}

/* A packed copy of memory. */
static heft_status writer_hold(heft_writer *writer, heft_save_item *item, const heft__item *checked, heft_error *err) {
    uint64_t nbytes;
    if (item->view || item->archive) return HEFT_OK;
    if (checked->nelems == 0) item->stride_nbytes = NULL; /* the caller's */
    if (checked->nelems == 0) return HEFT_OK;
    if (heft__shape_nbytes(checked->from, checked->rank, checked->shape, &nbytes, &nbytes) != HEFT__SHAPE_OK)
        return writer_refuse(err, "the size by its shape does not fit 64 bits");
    if (!heft__grow(&writer->alloc, (void **)&writer->held, &writer->held_capacity, writer->nheld, sizeof(void *), 16) ||
        !heft__grow(&writer->alloc, (void **)&writer->held_nbytes, &writer->held_nbytes_capacity, writer->nheld,
                    sizeof nbytes, 16))
        return heft__fail_memory(err, HEFT_NONE);
    int64_t *strides = heft__arena_alloc(&writer->arena, (uint64_t)item->rank * sizeof *strides, sizeof *strides);
    void *copy = strides ? heft__alloc(&writer->alloc, nbytes) : NULL;
    if (!copy) return heft__fail_memory(err, nbytes);
    if (item->stride_nbytes) memcpy(strides, item->stride_nbytes, item->rank * sizeof *strides);
    bool as_it_lies = heft__item_pack(item, checked->nelems, nbytes, writer->options.keep_fortran, copy);
    writer->held[writer->nheld] = copy;
    writer->held_nbytes[writer->nheld++] = nbytes;
    item->data = copy;
    item->stride_nbytes = as_it_lies ? strides : NULL;
    return HEFT_OK;
}

static heft_status writer_flush(heft_writer *writer, heft_error *err) {
    heft_status status = heft__set_job_stage(writer->job, NULL, heft__items_from(writer->items, writer->first),
                                             writer->nitems - writer->first, err);
    if (status == HEFT_OK) status = heft__writer_end_file(writer, err);
    if (status == HEFT_OK) writer_drop_held(writer);
    return status;
}

static bool writer_is_full(const heft_writer *writer, uint64_t nbytes) {
    if (!writer->is_set || writer->nitems == writer->first) return false;
    uint64_t ceiling = writer->set.ceiling_nbytes;
    return writer->file_nbytes > ceiling || nbytes > ceiling - writer->file_nbytes;
}

heft_status heft_writer_add(heft_writer *writer, const heft_save_item *item, heft_error *err) {
    heft__item checked;
    if (!writer || !item) return heft__fail_null(err, writer ? "item" : "writer");
    if (heft__os_process_check(writer->process, "writer", err) != HEFT_OK) return HEFT_INVALID_ARGUMENT;
    if (writer->ended || writer->mode == HEFT_WRITER_DECLARED)
        return writer_refuse(err, writer->ended ? "the writer has ended" : "all tensors of this writer are declared");
    if (writer->nitems >= UINT32_MAX / 2) return writer_refuse(err, "too many items");
    heft_status status = heft__item_check(item, writer->nitems, &checked, err);
    if (status != HEFT_OK) return status;
    bool stream = writer->mode == HEFT_WRITER_STREAM;
    if (writer_is_full(writer, checked.nbytes)) {
        status = stream ? heft__stream_finish(writer, err) : writer_flush(writer, err);
        if (status != HEFT_OK) return status;
    }
    status = heft__writer_note(writer, item, &checked, err);
    if (status == HEFT_OK)
        status = stream ? heft__stream_add(writer, &writer->items[writer->nitems], &checked, err)
                        : writer_hold(writer, &writer->items[writer->nitems], &checked, err);
    if (status == HEFT_OK) status = heft__writer_count(writer, &checked, err);
    if (status == HEFT_OK && stream) { /* written: what is left is a name with a shape */
        heft_save_item *left = &writer->items[writer->nitems - 1];
        *left = (heft_save_item){.name = left->name, .name_len = left->name_len, .shape = left->shape, .data = left->shape,
                                 .rank = checked.rank, .dtype = checked.dtype};
    }
    return status;
}

static heft_status writer_finish_file(heft_writer *writer, heft_error *err) {
    heft__save_job job;
    heft_status status = heft__save_job_make(&job, writer->items, writer->nitems, &writer->options, writer->path, err);
    if (status != HEFT_OK) return status;
    status = heft__save_file(&job, writer->path, err);
    writer->stats = job.stats;
    heft__save_job_free(&job);
    return status;
}

static heft_status writer_finish_collected(heft_writer *writer, heft_error *err) {
    if (!writer->is_set) return writer_finish_file(writer, err);
    heft_status status = HEFT_OK;
    if (writer->nitems > writer->first || writer->layout->nfiles == 0) status = writer_flush(writer, err);
    return status == HEFT_OK ? heft__writer_end_set(writer, err) : status;
}

heft_status heft_writer_finish(heft_writer *writer, heft_save_stats *stats, heft_error *err) {
    if (stats) memset(stats, 0, sizeof *stats);
    if (!writer) return heft__fail_null(err, "writer");
    if (heft__os_process_check(writer->process, "writer", err) != HEFT_OK) return HEFT_INVALID_ARGUMENT;
    if (writer->ended) return writer_refuse(err, "the writer has ended");
    heft_status status;
    if (writer->mode == HEFT_WRITER_DECLARED) {
        status = heft__declared_finish(writer, err); /* may be called again if bytes are missing */
    } else {
        writer->ended = true;
        bool stream = writer->mode == HEFT_WRITER_STREAM;
        status = HEFT_OK;
        if (!stream) status = writer_finish_collected(writer, err);
        else if (!writer->is_set || writer->nitems > writer->first || writer->layout->nfiles == 0)
            status = heft__stream_finish(writer, err);
        if (status == HEFT_OK && stream && writer->is_set) status = heft__writer_end_set(writer, err);
    }
    if (status == HEFT_OK && stats) *stats = writer->stats;
    return status;
}

void heft_writer_free(heft_writer *writer) {
    if (!writer || heft__os_process_check(writer->process, "writer", NULL) != HEFT_OK) return; /* the parent goes on */
    heft_allocator alloc = writer->alloc;
    heft__declared_free(writer);
    heft__stream_free(writer);
    if (writer->job) {
        heft__set_job_abort(writer->job);
        heft__free(&alloc, writer->job, sizeof *writer->job);
    }
    writer_drop_held(writer);
    heft__free(&alloc, writer->held, writer->held_capacity * sizeof *writer->held);
    heft__free(&alloc, writer->held_nbytes, writer->held_nbytes_capacity * sizeof *writer->held_nbytes);
    heft__free(&alloc, writer->items, writer->items_capacity * sizeof *writer->items);
    if (writer->layout && writer->mode != HEFT_WRITER_DECLARED) { /* grown here, not made by a layout */
        heft__free(&alloc, writer->layout->tensors, writer->tensors_capacity * sizeof *writer->layout->tensors);
        writer->layout->tensors = NULL;
        writer->layout->nitems = 0;
    }
    heft_layout_free(writer->layout);
    heft__hash_index_free(&writer->names);
    heft__arena_free(&writer->arena);
    heft__free(&alloc, writer->path, writer->path_nbytes);
    heft__free(&alloc, writer, sizeof *writer);
}

/* ---- opening ---- */

static heft_status writer_check(const heft_writer *writer, uint64_t nitems, heft_error *err) {
    const heft_save_options *options = &writer->options;
    if (writer->mode > HEFT_WRITER_STREAM) return writer_refuse(err, "there is no such mode of a writer");
    if (nitems && writer->mode != HEFT_WRITER_DECLARED) return writer_refuse(err, "only declared tensors are given at once");
    if ((options->verify || options->digests) && writer->mode != HEFT_WRITER_COLLECT)
        return writer_refuse(err, "verify and digests need tensors that are held");
    if ((options->align || options->keep_order) && writer->mode == HEFT_WRITER_STREAM)
        return writer_refuse(err, "the places of streamed tensors cannot be chosen");
    if (options->format && strcmp(options->format, "safetensors") != 0 && writer->mode != HEFT_WRITER_COLLECT)
        return heft__fail(err, HEFT_UNSUPPORTED, HEFT_FAULT_OTHER_FORMAT, "only safetensors files are declared or streamed");
    return HEFT_OK;
}

static heft_status writer_begin_set(heft_writer *writer, const heft_set_options *set_options, heft_error *err) {
    bool any;
    heft__set_job *job = heft__alloc(&writer->alloc, sizeof *job);
    if (!job) return heft__fail_memory(err, sizeof *job);
    heft_status status = heft__set_job_begin(job, writer->path, &writer->options, set_options, err);
    if (status != HEFT_OK) {
        heft__free(&writer->alloc, job, sizeof *job);
        return status;
    }
    writer->job = job;
    job->options.progress = NULL; /* nobody knows the whole */
    return heft__set_job_look(job, NULL, &any, err);
}

static heft_status writer_open(heft_writer *writer, const char *path, const heft_save_item *items, uint64_t nitems,
                               const heft_set_options *set_options, heft_error *err) {
    heft_status status = heft__set_options_copy(set_options, &writer->set, err);
    if (status == HEFT_OK) status = writer_check(writer, nitems, err);
    if (status != HEFT_OK) return status;
    heft__arena_init(&writer->arena, &writer->alloc);
    writer->path = heft__strdup_len(&writer->alloc, path, strlen(path));
    writer->path_nbytes = strlen(path) + 1;
    if (!writer->path || !heft__hash_index_init(&writer->names, &writer->alloc, nitems))
        return heft__fail_memory(err, HEFT_NONE);
    if (writer->mode == HEFT_WRITER_DECLARED) {
        status = heft__set_layout(items, nitems, &writer->options, writer->is_set ? &writer->set : NULL, &writer->alloc,
                                  &writer->layout, err);
    } else {
        writer->layout = heft__alloc_zero(&writer->alloc, sizeof *writer->layout);
        if (!writer->layout) return heft__fail_memory(err, sizeof *writer->layout);
        writer->layout->alloc = writer->alloc;
        heft__arena_init(&writer->layout->arena, &writer->alloc);
    }
    if (status == HEFT_OK && writer->is_set) status = writer_begin_set(writer, set_options, err);
    /* What collects or streams makes its file later: not only then shall it be known that it may not be. */
    if (status == HEFT_OK && !writer->is_set) status = heft__save_enter(path, &writer->options, &writer->alloc, err);
    if (status == HEFT_OK && writer->mode == HEFT_WRITER_DECLARED) status = heft__declared_open(writer, items, nitems, err);
    return status;
}

heft_status heft_writer_open(const char *path, heft_writer_mode mode, const heft_save_item *items, uint64_t nitems,
                             const heft_save_options *options, const heft_set_options *set_options, heft_writer **out,
                             heft_error *err) {
    heft_save_options checked;
    heft_allocator alloc;
    if (!out || !path) return heft__fail_null(err, out ? "path" : "out");
    *out = NULL;
    heft_status status = heft__save_options_copy(options, &checked, &alloc, err);
    if (status != HEFT_OK) return status;
    heft_writer *writer = heft__alloc_zero(&alloc, sizeof *writer);
    if (!writer) return heft__fail_memory(err, sizeof *writer);
    writer->alloc = alloc;
    writer->mode = mode;
    writer->process = heft__os_process();
    writer->options = checked;
    writer->options.allocator = &writer->alloc; /* the caller's struct may go */
    writer->is_set = set_options != NULL;
    writer->target.fd = writer->target.direct_fd = writer->target.folder.fd = -1;
    status = writer_open(writer, path, items, nitems, set_options, err);
    if (status == HEFT_OK) *out = writer;
    else heft_writer_free(writer);
    return status;
}
