/* catalog: a report, that is the faults of several listings and of the set that they make, told on demand. */
#include "base/error.h"
#include "catalog/catalog.h"

#include <string.h>

heft_report *heft__report_new(const heft_allocator *alloc) {
    heft_report *report = heft__alloc_zero(alloc, sizeof *report);
    if (!report) return NULL;
    report->alloc = *alloc;
    heft__arena_init(&report->arena, alloc);
    return report;
}

void heft__report_free(heft_report *report) {
    if (!report) return;
    heft_allocator alloc = report->alloc;
    if (report->owned) {
        for (uint32_t i = 0; i < report->nlistings; i++) heft__listing_delete(report->listings[i]);
        heft__free(&alloc, (void *)report->listings, report->nlistings * sizeof *report->listings);
    }
    heft__free(&alloc, report->faults.items, report->faults.capacity * sizeof *report->faults.items);
    heft__free(&alloc, report->texts, report->texts_capacity * sizeof *report->texts);
    heft__free(&alloc, report->errors, report->errors_capacity * sizeof *report->errors);
    heft__arena_free(&report->arena);
    heft__free(&alloc, report, sizeof *report);
}

void heft__report_add(heft_report *report, heft__fault fault) {
    if (!heft__faults_add(&report->faults, &report->alloc, fault)) report->failed = true;
}

void heft__report_add_error(heft_report *report, heft_severity severity, uint32_t file, const heft_error *error) {
    if (!heft__grow(&report->alloc, (void **)&report->errors, &report->errors_capacity, report->nerrors,
                    sizeof *report->errors, 2)) {
        report->failed = true;
        return;
    }
    heft__fault fault = {.kind = (uint16_t)error->fault,
                         .severity = (uint8_t)severity,
                         .status = (uint8_t)-error->status,
                         .file = file,
                         .entry = HEFT__FAULT_WHOLE,
                         .other = UINT32_MAX,
                         .offset = error->offset};
    fault.value = report->nerrors;
    report->errors[report->nerrors++] = *error;
    heft__report_add(report, fault);
}

uint64_t heft__report_text(heft_report *report, const char *text, size_t len) {
    char *copy = heft__arena_text(&report->arena, text, len);
    if (!copy || !heft__grow(&report->alloc, (void **)&report->texts, &report->texts_capacity, report->ntexts,
                             sizeof *report->texts, 8)) {
        report->failed = true;
        return HEFT_NONE;
    }
    report->texts[report->ntexts] = (heft__text){copy, len};
    return report->ntexts++;
}

void heft__report_add_listing(heft_report *report, const heft__listing *listing, uint32_t file, heft_severity least) {
    for (uint64_t i = 0; i < listing->faults.count; i++) {
        heft__fault fault = listing->faults.items[i];
        fault.file = file;
        if (fault.severity >= least) heft__report_add(report, fault);
    }
    if (listing->fatal) heft__report_add_error(report, HEFT_SEVERITY_ERROR, file, listing->fatal);
}

/* The set (UINT32_MAX) first, then by file; a fault of no place comes before those that have one. */
static bool report_before(const heft__fault *a, const heft__fault *b) {
    uint32_t file_a = a->file + 1, file_b = b->file + 1;
    if (file_a != file_b) return file_a < file_b;
    return a->offset + 1 < b->offset + 1;
}

/* A merge sort, bottom up: stable, and linear for what is sorted already. */
bool heft__report_sort(heft_report *report) {
    uint64_t n = report->faults.count, i = 1;
    heft__fault *from = report->faults.items;
    while (i < n && !report_before(&from[i], &from[i - 1])) i++;
    if (i >= n) return true;
    heft__fault *scratch = heft__alloc(&report->alloc, n * sizeof *scratch), *to = scratch;
    if (!scratch) return false;
    for (uint64_t width = 1; width < n; width *= 2) {
        for (uint64_t start = 0; start < n; start += 2 * width) {
            uint64_t middle = start + width < n ? start + width : n, end = middle + width < n ? middle + width : n;
            uint64_t a = start, b = middle;
            for (uint64_t at = start; at < end; at++) {
                bool second = a >= middle || (b < end && report_before(&from[b], &from[a]));
                to[at] = from[second ? b++ : a++];
            }
        }
        heft__fault *swap = from;
        from = to;
        to = swap;
    }
    if (from == scratch) memcpy(report->faults.items, scratch, n * sizeof *scratch);
    heft__free(&report->alloc, scratch, n * sizeof *scratch);
    return true;
}

void heft__report_describe(const heft_report *report, const heft__fault *fault, heft_error *out) {
    if (fault->entry == HEFT__FAULT_WHOLE) {
        *out = report->errors[fault->value];
        return;
    }
    if (heft__set_fault_describe(report, fault, out)) return;
    const heft__listing *listing = fault->file < report->nlistings ? report->listings[fault->file] : NULL;
    heft__fault_describe(fault, listing, out);
}

heft_status heft__report_fail(const heft_report *report, heft_severity least, heft_error *err) {
    const heft__fault *first = NULL;
    uint64_t more = 0;
    for (uint64_t i = 0; i < report->faults.count; i++) {
        const heft__fault *fault = &report->faults.items[i];
        if (fault->severity < least) continue;
        if (first)
            more++;
        else
            first = fault;
    }
    if (!first) return HEFT_OK;
    heft_status status = -(heft_status)first->status;
    if (err) {
        heft__report_describe(report, first, err);
        err->more = more < UINT32_MAX ? (uint32_t)more : UINT32_MAX;
    }
    return status;
}
