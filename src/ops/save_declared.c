/* ops: declared tensors: every place is known, and bytes are written to it as they come. */
#include "base/error.h"
#include "base/os.h"
#include "base/text.h"
#include "ops/save_writer.h"

#include <stdio.h>
#include <string.h>

/* ---- opening: files with their headers, of the size that they will have ---- */

static heft_status declared_open_file(heft_writer *writer, uint64_t number, const heft_save_item *items, heft_error *err) {
    const heft_layout_file *file = &writer->layout->files[number];
    heft__target *target = &writer->targets[number];
    heft__target_options options = {.nbytes = file->file_nbytes,
                                    .links = writer->options.symlink,
                                    .overwrite = writer->options.overwrite || writer->is_set,
                                    .no_sync = writer->options.no_sync};
    heft__layout one;
    heft_status status = heft__layout_make(&one, heft__items_from(items, file->first_item), file->nitems, &writer->options,
                                           &writer->alloc, err);
    if (status != HEFT_OK) return status;
    status = writer->is_set ? heft__target_open_in(target, &writer->job->folder, file->name, &options, err)
                            : heft__target_open(target, writer->path, &options, err);
    for (uint64_t i = 0; i < one.emit.npieces && status == HEFT_OK; i++)
        status = heft__target_write(target, one.emit.pieces[i].offset, one.emit.pieces[i].bytes, one.emit.pieces[i].nbytes, err);
    writer->stats.file_nbytes += file->file_nbytes;
    writer->stats.filler_nbytes += file->filler_nbytes;
    writer->stats.nfillers += file->nfillers;
    if (number == 0) writer->stats.header_nbytes = file->header_nbytes;
    heft__layout_free(&one);
    return status;
}

heft_status heft__declared_open(heft_writer *writer, const heft_save_item *items, uint64_t nitems, heft_error *err) {
    heft_layout *layout = writer->layout;
    writer->monitor = heft__monitor_new(&writer->alloc);
    writer->given = heft__alloc_zero(&writer->alloc, nitems * sizeof *writer->given);
    writer->targets = heft__alloc_zero(&writer->alloc, layout->nfiles * sizeof *writer->targets);
    for (uint64_t i = 0; writer->targets && i < layout->nfiles; i++)
        writer->targets[i].fd = writer->targets[i].direct_fd = writer->targets[i].folder.fd = -1;
    if (!writer->monitor || !writer->given || !writer->targets) return heft__fail_memory(err, HEFT_NONE);
    heft_status status = HEFT_OK;
    for (uint64_t i = 0; i < nitems && status == HEFT_OK; i++) {
        heft__item checked;
        status = heft__item_check(&items[i], i, &checked, err);
        if (status == HEFT_OK) status = heft__writer_note(writer, &items[i], &checked, err);
        if (status == HEFT_OK) status = heft__writer_count(writer, &checked, err);
    }
    for (uint64_t i = 0; i < layout->nfiles && status == HEFT_OK; i++) status = declared_open_file(writer, i, items, err);
    writer->stats.ntensors = nitems;
    writer->stats.nfiles = (uint32_t)layout->nfiles;
    writer->stats.workers = 1;
    for (uint64_t i = 0; i < nitems; i++) {
        const heft_layout_tensor *tensor = &layout->tensors[i];
        writer->stats.data_nbytes += tensor->nbytes;
        writer->stats.nunaligned += tensor->nbytes && tensor->offset % heft__dtypes[tensor->dtype].align;
    }
    return status;
}

/* ---- bytes ---- */

/* Notes that [begin, end) has been given. False: some of it has been before, or there is no memory (*memory). */
static bool declared_note(heft_writer *writer, heft__given *given, uint64_t begin, uint64_t end, bool *memory) {
    uint64_t at = given->nranges; /* ranges mostly come in order */
    while (at > 0 && given->ranges[at - 1][0] >= begin) at--;
    if ((at > 0 && given->ranges[at - 1][1] > begin) || (at < given->nranges && given->ranges[at][0] < end)) return false;
    bool joins_left = at > 0 && given->ranges[at - 1][1] == begin;
    bool joins_right = at < given->nranges && given->ranges[at][0] == end;
    if (joins_left) {
        given->ranges[at - 1][1] = joins_right ? given->ranges[at][1] : end;
        if (!joins_right) return true;
        given->nranges--;
        memmove(given->ranges + at, given->ranges + at + 1, (given->nranges - at) * sizeof *given->ranges);
    } else if (joins_right) {
        given->ranges[at][0] = begin;
    } else {
        *memory = !heft__grow(&writer->alloc, (void **)&given->ranges, &given->capacity, given->nranges,
                              sizeof *given->ranges, 2);
        if (*memory) return false;
        memmove(given->ranges + at + 1, given->ranges + at, (given->nranges - at) * sizeof *given->ranges);
        given->ranges[at][0] = begin;
        given->ranges[at][1] = end;
        given->nranges++;
    }
    return true;
}

heft_status heft__declared_write(heft_writer *writer, uint64_t item, uint64_t offset, const void *data, uint64_t nbytes,
                                 heft_error *err) {
    const heft_layout_tensor *tensor = &writer->layout->tensors[item];
    const heft_save_item *declared = &writer->items[item];
    if (offset > tensor->nbytes || nbytes > tensor->nbytes - offset)
        return heft__item_fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL, declared, item,
                               "bytes %llu to %llu lie outside of its %llu", (unsigned long long)offset,
                               (unsigned long long)(offset + nbytes), (unsigned long long)tensor->nbytes);
    if (nbytes == 0) return HEFT_OK;
    if (!data) return heft__fail_null(err, "data");
    bool memory = false;
    heft__monitor_enter(writer->monitor);
    bool fresh = declared_note(writer, &writer->given[item], offset, offset + nbytes, &memory);
    heft__monitor_leave(writer->monitor);
    if (memory) return heft__fail_memory(err, HEFT_NONE);
    if (!fresh)
        return heft__item_fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL, declared, item,
                               "some of the bytes %llu to %llu have been written before", (unsigned long long)offset,
                               (unsigned long long)(offset + nbytes));
    heft_status status = heft__target_write(&writer->targets[tensor->file], tensor->offset + offset, data, nbytes, err);
    if (status != HEFT_OK) {
        heft__error_tensor(err, declared->name, strlen(declared->name));
        heft__monitor_enter(writer->monitor);
        writer->broken = true;
        heft__monitor_leave(writer->monitor);
    }
    return status;
}

heft_status heft_writer_write(heft_writer *writer, uint64_t item, uint64_t offset, const void *data, uint64_t nbytes,
                              heft_error *err) {
    if (!writer) return heft__fail_null(err, "writer");
    if (heft__os_process_check(writer->process, "writer", err) != HEFT_OK) return HEFT_INVALID_ARGUMENT;
    if (writer->mode != HEFT_WRITER_DECLARED || writer->ended || item >= writer->nitems)
        return heft__fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL, "%s",
                          writer->ended                            ? "the writer has ended"
                          : writer->mode != HEFT_WRITER_DECLARED ? "ranges are written of declared tensors only"
                                                                 : "there is no such item");
    return heft__declared_write(writer, item, offset, data, nbytes, err);
}

/* ---- the end ---- */

static bool declared_is_whole(const heft_writer *writer, uint64_t i) {
    uint64_t nbytes = writer->layout->tensors[i].nbytes;
    const heft__given *given = &writer->given[i];
    return nbytes == 0 || (given->nranges == 1 && given->ranges[0][0] == 0 && given->ranges[0][1] == nbytes);
}

static heft_status declared_check(const heft_writer *writer, heft_error *err) {
    char names[400] = "";
    uint64_t missing = 0;
    for (uint64_t i = 0; i < writer->nitems; i++) {
        if (declared_is_whole(writer, i)) continue;
        const heft_save_item *item = &writer->items[i];
        size_t used = strlen(names), len = item->name_len == SIZE_MAX ? 0 : item->name_len;
        char name[100];
        heft__escape(name, sizeof name, item->name, len);
        if (missing++ < 12) snprintf(names + used, sizeof names - used, "%s \"%s\"", used ? "," : "", name);
    }
    if (!missing) return HEFT_OK;
    heft__fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL, "%llu declared tensors lack bytes:%s%s",
               (unsigned long long)missing, names, missing > 12 ? ", ..." : "");
    heft__error_at(err, HEFT_NONE, writer->nitems, writer->nitems - missing);
    return HEFT_INVALID_ARGUMENT;
}

heft_status heft__declared_finish(heft_writer *writer, heft_error *err) {
    heft_status status = declared_check(writer, err);
    if (status != HEFT_OK) return status;
    writer->ended = true;
    if (writer->broken)
        return heft__fail(err, HEFT_IO, HEFT_FAULT_WRITE_ERROR, "a write of this writer has failed before");
    if (!writer->is_set) return heft__save_publish(&writer->targets[0], NULL, err);
    for (uint64_t i = 0; i < writer->layout->nfiles && status == HEFT_OK; i++) {
        heft__target *target = &writer->targets[i];
        status = heft__set_job_keep(writer->job, target, writer->layout->files[i].file_nbytes, HEFT_OK, err);
    }
    if (status != HEFT_OK) return status;
    heft__set_job *job = writer->job;
    status = heft__set_job_end(job, writer->layout, err);
    heft__free(&writer->alloc, job, sizeof *job);
    writer->job = NULL;
    return status;
}

void heft__declared_free(heft_writer *writer) {
    if (writer->mode != HEFT_WRITER_DECLARED || !writer->layout) return;
    const heft_layout *layout = writer->layout;
    for (uint64_t i = 0; writer->targets && i < layout->nfiles; i++) heft__target_abort(&writer->targets[i]);
    for (uint64_t i = 0; writer->given && i < layout->nitems; i++)
        heft__free(&writer->alloc, writer->given[i].ranges, writer->given[i].capacity * sizeof *writer->given[i].ranges);
    heft__free(&writer->alloc, writer->targets, layout->nfiles * sizeof *writer->targets);
    heft__free(&writer->alloc, writer->given, layout->nitems * sizeof *writer->given);
    if (writer->monitor) heft__monitor_free(writer->monitor);
}
