/* What the fuzzers of array files share: a file in memory is opened, checked, and read in every way, which must agree. */
#ifndef HEFT_FUZZ_ARRAYS_H
#define HEFT_FUZZ_ARRAYS_H

#include "heft/heft.h"

#include <stdlib.h>
#include <string.h>

#define DEMAND(what)                                                                                                   \
    do {                                                                                                               \
        if (!(what)) abort();                                                                                          \
    } while (0)

/* One tensor: its size fits its shape, its place the file, and two ways of reading give the same bytes. */
static void arrays_demand_tensor(const heft_archive *archive, uint64_t id, uint64_t size, bool *read) {
    enum { MOST = 1 << 20 };
    heft_tensor t;
    heft_view view;
    uint64_t found, nbytes;
    DEMAND(heft_archive_get(archive, id, &t, NULL) == HEFT_OK && t.name[t.name_len] == 0);
    DEMAND(heft_archive_find(archive, t.name, t.name_len, &found, NULL) == HEFT_OK && found == id);
    if (t.layout & HEFT_LAYOUT_PACKED) DEMAND(t.offset == HEFT_NONE);
    else DEMAND(t.offset <= size && t.nbytes <= size - t.offset);
    if (t.dtype == HEFT_DTYPE_NONE) {
        *read = false;
        return;
    }
    DEMAND(t.nbytes == t.nelems * (heft_dtype_bits(t.dtype) / 8));
    if (t.nbytes > MOST) *read = false;
    if (t.nbytes > MOST || heft_view_of(archive, id, &view, NULL)) return;
    DEMAND(heft_view_nelems(&view) == t.nelems && heft_view_nbytes(&view) == t.nbytes);
    uint8_t *a = malloc(t.nbytes + 1), *b = malloc(t.nbytes + 1);
    void *const dst[] = {b};
    nbytes = t.nbytes;
    heft_error err;
    heft_status status = heft_read(&view, a, t.nbytes, NULL, NULL, &err);
    DEMAND(heft_read_many_into(archive, &id, 1, dst, &nbytes, NULL, NULL, NULL) == status);
    if (status == HEFT_OK) DEMAND(memcmp(a, b, t.nbytes) == 0);
    else DEMAND((t.layout & HEFT_LAYOUT_PACKED) && err.status == status && err.message[0]);
    *read = *read && status == HEFT_OK;
    free(a);
    free(b);
}

static void arrays_demand(const uint8_t *data, size_t size, const heft_open_options *options) {
    heft_source *source;
    heft_archive *archive;
    heft_report *report;
    heft_error err;
    if (heft_source_open_memory(data, size, NULL, NULL, NULL, &source, NULL)) return;
    heft_status status = heft_archive_open_source(source, options, &archive, &err);
    if (status) {
        DEMAND(!archive && err.status == status && err.message[0]);
    } else {
        bool read = true;
        uint64_t n = heft_archive_count(archive);
        for (uint64_t id = 0; id < n && id < 100; id++) arrays_demand_tensor(archive, id, size, &read);
        heft_buffer all;
        if (read && n && n <= 100) {
            DEMAND(heft_read_many(archive, NULL, 0, NULL, &all, NULL, NULL, NULL) == HEFT_OK);
            heft_buffer_release(&all);
        }
        heft_archive_unref(archive);
    }
    DEMAND(heft_check_source(source, options, &report, NULL) == HEFT_OK);
    DEMAND((heft_report_count_of(report, HEFT_SEVERITY_ERROR) == 0) == (status == HEFT_OK));
    for (uint64_t i = 0; i < heft_report_count(report); i++) {
        heft_severity severity;
        DEMAND(heft_report_get(report, i, &severity, &err, NULL) == HEFT_OK && err.message[0]);
    }
    heft_report_free(report);
    heft_source_unref(source);
}

#endif
