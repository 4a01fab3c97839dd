/* Checkpoints whose bytes are all one mark, so that two saves in one are seen. */
#include "helper_marked.h"

#include <dirent.h>

heft_status marked_save(const char *path, uint8_t mark, size_t size, const heft_save_options *options,
                        const heft_set_options *set, heft_error *err) {
    static const char *const names[MARKED_TENSORS] = {"a", "b", "c", "d"};
    const int64_t shape[] = {(int64_t)size};
    uint8_t bytes[MARKED_MOST];
    heft_save_item items[MARKED_TENSORS] = {{0}};
    memset(bytes, mark, size);
    for (int i = 0; i < MARKED_TENSORS; i++)
        items[i] = (heft_save_item){.name = names[i], .data = bytes, .shape = shape, .rank = 1, .dtype = HEFT_U8};
    return set ? heft_save_set(path, items, MARKED_TENSORS, options, set, NULL, err)
               : heft_save(path, items, MARKED_TENSORS, options, NULL, err);
}

uint8_t marked_of(const char *path, size_t size) {
    uint8_t bytes[MARKED_MOST], mark = 0;
    heft_archive *archive;
    heft_error err;
    if (heft_archive_open(path, NULL, &archive, &err)) fail_msg("%s", err.message);
    assert_int_equal(heft_archive_count(archive), MARKED_TENSORS);
    for (uint64_t id = 0; id < MARKED_TENSORS; id++) {
        heft_view view;
        assert_int_equal(heft_view_of(archive, id, &view, NULL), HEFT_OK);
        assert_int_equal(heft_read(&view, bytes, size, NULL, NULL, NULL), HEFT_OK);
        if (!mark) mark = bytes[0];
        for (size_t i = 0; i < size; i++)
            if (bytes[i] != mark) fail_msg("%s: two saves in one", path);
    }
    heft_archive_unref(archive);
    return mark;
}

int marked_entries(const char *folder) {
    DIR *d = opendir(folder);
    int n = 0;
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));) n += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
    closedir(d);
    return n;
}
