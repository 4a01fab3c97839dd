/* catalog: which tensors a selection of globs, prefixes and a predicate keeps. */
#include "base/error.h"
#include "base/text.h"
#include "catalog/catalog.h"

#include <string.h>

heft_status heft__glob_refuse(const char *what, const char *glob, heft_error *err) {
    const char *why = NULL;
    size_t at = heft__glob_check(glob, strlen(glob), &why);
    if (at == SIZE_MAX) return HEFT_OK;
    char text[200];
    heft__escape(text, sizeof text, glob, strlen(glob));
    heft__fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL, "%s \"%s\": %s, at offset %zu", what, text, why, at);
    heft__error_at(err, at, HEFT_NONE, HEFT_NONE);
    return HEFT_INVALID_ARGUMENT;
}

static heft_status select_check_globs(const char *const *globs, size_t n, const char *what, heft_error *err) {
    for (size_t i = 0; i < n; i++) {
        if (!globs || !globs[i])
            return heft__fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL, "%s %zu is NULL", what, i);
        heft_status status = heft__glob_refuse(what, globs[i], err);
        if (status) return status;
    }
    return HEFT_OK;
}

static bool select_any_glob(const char *const *globs, size_t n, const char *name, size_t len) {
    for (size_t i = 0; i < n; i++)
        if (heft__glob_match(globs[i], strlen(globs[i]), name, len)) return true;
    return false;
}

static bool select_any_prefix(const char *const *prefixes, size_t n, const char *name, size_t len) {
    for (size_t i = 0; i < n; i++) {
        size_t prefix_len = strlen(prefixes[i]);
        if (prefix_len <= len && memcmp(prefixes[i], name, prefix_len) == 0) return true;
    }
    return false;
}

static bool select_keeps(const heft_archive *archive, const heft_selection *s, uint64_t id) {
    uint32_t file;
    const heft__entry *entry = heft__archive_entry(archive, id, &file);
    const char *name = entry->name;
    size_t len = entry->name_len;
    if (s->ninclude && !select_any_glob(s->include, s->ninclude, name, len)) return false;
    if (s->nprefix && !select_any_prefix(s->prefix, s->nprefix, name, len)) return false;
    if (select_any_glob(s->exclude, s->nexclude, name, len)) return false;
    if (!s->predicate) return true;
    heft_tensor tensor;
    heft__archive_tensor(archive, id, &tensor);
    return s->predicate(s->predicate_ctx, &tensor);
}

heft_status heft__archive_select(const heft_archive *archive, const heft_selection *selection, uint64_t *ids,
                                 uint64_t *nids, heft_error *err) {
    *nids = 0;
    heft_status status = select_check_globs(selection->include, selection->ninclude, "include glob", err);
    if (!status) status = select_check_globs(selection->exclude, selection->nexclude, "exclude glob", err);
    for (size_t i = 0; !status && i < selection->nprefix; i++)
        if (!selection->prefix || !selection->prefix[i])
            status = heft__fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL, "prefix %zu is NULL", i);
    if (status) return status;
    const uint64_t *order = NULL;
    if (selection->order != HEFT_ORDER_FILE) status = heft__archive_order(archive, selection->order, &order, err);
    if (status) return status;
    for (uint64_t i = 0; i < archive->ntensors; i++) {
        uint64_t id = order ? order[i] : i;
        if (select_keeps(archive, selection, id)) ids[(*nids)++] = id;
    }
    return HEFT_OK;
}
