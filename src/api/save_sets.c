/* api: saves of sets, what ends them, and layouts. */
#include "base/error.h"
#include "ops/save_set.h"

#include <string.h>

heft_status heft_save_set(const char *folder, const heft_save_item *items, uint64_t nitems,
                          const heft_save_options *options, const heft_set_options *set_options, heft_save_stats *stats,
                          heft_error *err) {
    if (stats) memset(stats, 0, sizeof *stats);
    if (!folder) return heft__fail_null(err, "folder");
    return heft__save_set(folder, items, nitems, options, set_options, stats, err);
}

heft_status heft_set_replace(const char *folder, const heft_set_file *files, uint64_t nfiles, const char *index,
                             const heft_save_options *options, const heft_set_options *set_options,
                             heft_save_stats *stats, heft_error *err) {
    if (stats) memset(stats, 0, sizeof *stats);
    if (!folder) return heft__fail_null(err, "folder");
    if (!files && nfiles) return heft__fail_null(err, "files");
    for (uint64_t i = 0; i < nfiles; i++)
        if (!files[i].items && files[i].nitems) return heft__fail_null(err, "items");
    return heft__set_replace(folder, files, nfiles, index, options, set_options, stats, err);
}

heft_status heft_set_resume(const char *path, const heft_save_options *options, bool *resumed, heft_error *err) {
    heft__target_folder folder;
    heft_save_options checked;
    heft_allocator alloc;
    if (resumed) *resumed = false;
    if (!path) return heft__fail_null(err, "folder");
    heft_status status = heft__save_options_copy(options, &checked, &alloc, err);
    if (status == HEFT_OK) status = heft__target_folder_open(&folder, path, err);
    if (status != HEFT_OK) return status;
    status = heft__set_resume(&folder, &alloc, true, resumed, err);
    heft__target_folder_close(&folder);
    return status;
}

heft_status heft_save_clean(const char *folder, bool all, const heft_save_options *options, uint64_t *nremoved,
                            heft_error *err) {
    heft_save_options checked;
    heft_allocator alloc;
    uint64_t count = 0;
    if (nremoved) *nremoved = 0;
    if (!folder) return heft__fail_null(err, "folder");
    heft_status status = heft__save_options_copy(options, &checked, &alloc, err);
    if (status == HEFT_OK) status = heft__set_clean(folder, &alloc, all, &count, err);
    if (nremoved) *nremoved = count;
    return status;
}

heft_status heft_layout_make(const heft_save_item *items, uint64_t nitems, const heft_save_options *options,
                             const heft_set_options *set_options, heft_layout **out, heft_error *err) {
    heft_save_options checked;
    heft_set_options set;
    heft_allocator alloc;
    if (!out) return heft__fail_null(err, "out");
    *out = NULL;
    heft_status status = heft__save_options_copy(options, &checked, &alloc, err);
    if (status == HEFT_OK && set_options) status = heft__set_options_copy(set_options, &set, err);
    if (status != HEFT_OK) return status;
    return heft__set_layout(items, nitems, &checked, set_options ? &set : NULL, &alloc, out, err);
}

uint32_t heft_layout_file_count(const heft_layout *layout) {
    return (uint32_t)layout->nfiles;
}

heft_status heft_layout_get_file(const heft_layout *layout, uint32_t index, heft_layout_file *out, heft_error *err) {
    memset(out, 0, sizeof *out);
    if (index >= layout->nfiles)
        return heft__fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL, "file %u is out of range; there are %llu", index,
                          (unsigned long long)layout->nfiles);
    *out = layout->files[index];
    return HEFT_OK;
}

heft_status heft_layout_get_tensor(const heft_layout *layout, uint64_t item, heft_layout_tensor *out, heft_error *err) {
    memset(out, 0, sizeof *out);
    if (item >= layout->nitems)
        return heft__fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL, "item %llu is out of range; there are %llu",
                          (unsigned long long)item, (unsigned long long)layout->nitems);
    *out = layout->tensors[item];
    return HEFT_OK;
}

const char *heft_layout_index(const heft_layout *layout, uint64_t *nbytes) {
    if (nbytes) *nbytes = layout->index_nbytes;
    return layout->index ? layout->index : "";
}
