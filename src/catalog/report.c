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

/* Room for `more` records, with little to spare: a hostile header has a million. */
static bool report_reserve(heft_report *report, uint64_t more) {
    heft__faults *faults = &report->faults;
    uint64_t wanted = faults->capacity + faults->capacity / 4;
    if (faults->capacity - faults->count >= more) return true;
    if (wanted < faults->count + more) wanted = faults->count + more;
    void *grown = heft__realloc(&report->alloc, faults->items, faults->capacity * sizeof *faults->items,
                                wanted * sizeof *faults->items);
    if (!grown) return false;
    faults->items = grown;
    faults->capacity = wanted;
    return true;
}

void heft__report_take_listing(heft_report *report, heft__listing *listing, uint32_t file) {
    heft__faults *from = &listing->faults, *to = &report->faults, none = {0};
    for (uint64_t i = 0; i < from->count; i++) from->items[i].file = file;
    if (to->count == 0) { /* no copy: the two lists change places */
        none = *to;
        *to = *from;
        *from = none;
    } else if (from->count == 0 || report_reserve(report, from->count)) {
        if (from->count) memcpy(to->items + to->count, from->items, from->count * sizeof *from->items);
        to->count += from->count;
    } else {
        report->failed = true;
    }
    heft__free(&listing->alloc, from->items, from->capacity * sizeof *from->items);
    *from = (heft__faults){0};
    if (listing->fatal) heft__report_add_error(report, HEFT_SEVERITY_ERROR, file, listing->fatal);
}

/* The set (UINT32_MAX) first, then by file; a fault of no place comes before those that have one. */
static bool report_before(const heft__fault *a, const heft__fault *b) {
    uint32_t file_a = a->file + 1, file_b = b->file + 1;
    if (file_a != file_b) return file_a < file_b;
    return a->offset + 1 < b->offset + 1;
}

/* Merges two sorted runs that lie one behind the other; only the shorter one is copied. */
static void report_merge(heft__fault *start, heft__fault *middle, heft__fault *end, heft__fault *scratch) {
    if (!report_before(middle, middle - 1)) return;
    size_t left = (size_t)(middle - start), right = (size_t)(end - middle);
    if (left <= right) {
        memcpy(scratch, start, left * sizeof *scratch);
        for (const heft__fault *a = scratch, *b = middle; a < scratch + left;)
            *start++ = b < end && report_before(b, a) ? *b++ : *a++;
    } else {
        memcpy(scratch, middle, right * sizeof *scratch);
        for (const heft__fault *a = middle, *b = scratch + right; b > scratch;)
            *--end = a > start && report_before(b - 1, a - 1) ? *--a : *--b;
    }
}

/* A merge sort, bottom up: stable, and linear for what is sorted already. */
bool heft__report_sort(heft_report *report) {
    uint64_t n = report->faults.count, i = 1;
    heft__fault *faults = report->faults.items;
    while (i < n && !report_before(&faults[i], &faults[i - 1])) i++;
    if (i >= n) return true;
    uint64_t nbytes = n / 2 * sizeof *faults; /* no shorter run is longer */
    heft__fault *scratch = heft__alloc(&report->alloc, nbytes);
    if (!scratch) return false;
    for (uint64_t width = 1; width < n; width *= 2)
        for (uint64_t start = 0; n - start > width; start += 2 * width) {
            uint64_t middle = start + width, end = n - middle < width ? n : middle + width;
            report_merge(faults + start, faults + middle, faults + end, scratch);
            if (end == n) break;
        }
    heft__free(&report->alloc, scratch, nbytes);
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
