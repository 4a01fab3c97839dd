/* api: headers edited in place, and what ends an edit that was interrupted. */
#include "base/error.h"
#include "ops/edit_header.h"

#include <string.h>

heft_status heft_edit_in_place(const heft_archive *archive, const heft_new_name *names, uint64_t nnames,
                               const heft_edit_options *options, heft_edit_stats *stats, heft_error *err) {
    heft_edit_stats own;
    if (!stats) stats = &own;
    memset(stats, 0, sizeof *stats);
    if (!archive) return heft__fail_null(err, "archive");
    if (!names && nnames) return heft__fail_null(err, "names");
    return heft__edit_in_place(archive, names, nnames, options, stats, err);
}

static heft_status edit_end(const char *path, bool undo, const heft_edit_options *options, bool *done, heft_error *err) {
    heft_edit_options checked;
    heft_allocator alloc;
    bool ended = false;
    if (done) *done = false;
    if (!path) return heft__fail_null(err, "path");
    heft_status status = heft__edit_options_copy(options, &checked, &alloc, err);
    if (status == HEFT_OK) status = heft__edit_end(path, undo, &alloc, &ended, err);
    if (done) *done = ended;
    return status;
}

heft_status heft_edit_resume(const char *path, const heft_edit_options *options, bool *done, heft_error *err) {
    return edit_end(path, false, options, done, err);
}

heft_status heft_edit_undo(const char *path, const heft_edit_options *options, bool *done, heft_error *err) {
    return edit_end(path, true, options, done, err);
}
