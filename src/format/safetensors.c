/* format: safetensors. Everything around the text of the header: reading it, and the order of the checks. */
#include "format/safetensors.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/sort.h"
#include "base/text.h"
#include "base/utf8.h"

#include <string.h>

#define SAFETENSORS_DEFAULT_LIMIT  UINT64_C(100000000)
#define SAFETENSORS_SPAN_LIMIT     UINT64_C(0xFFFFFFFF) /* names are 32-bit spans of the header */
#define SAFETENSORS_CONTENT_BUDGET (UINT64_C(64) << 20)
#define SAFETENSORS_CONTENT_BLOCK  16384

typedef unsigned long long safetensors_number; /* what %llu takes */

static int safetensors_probe(const uint8_t *head, size_t nhead, uint64_t size);
static heft_status safetensors_scan(const uint8_t *head, size_t nhead, const heft__scan_options *options,
                                    heft__listing *listing, heft_error *err);

const heft__format heft__format_safetensors = {"safetensors", safetensors_probe, safetensors_scan};

/* ---- checks 1 to 6: the length and the bytes of the header --------------------------------------------------------
 */

static uint64_t safetensors_length(const uint8_t *head) {
    uint64_t n = 0;
    for (int i = 7; i >= 0; i--) n = n << 8 | head[i];
    return n;
}

static int safetensors_probe(const uint8_t *head, size_t nhead, uint64_t size) {
    if (nhead < 10) return 0;
    uint64_t n = safetensors_length(head);
    return n >= 2 && n <= size - 8 && head[8] == '{' ? 90 : 0;
}

static heft_status safetensors_check_length(heft__safetensors *scan, const uint8_t *head, size_t nhead, uint64_t *n) {
    heft_error *err = scan->err;
    uint64_t size = scan->file_nbytes, limit = scan->options->max_header_nbytes;
    if (limit == 0) limit = SAFETENSORS_DEFAULT_LIMIT;
    if (nhead < 8) {
        heft__fail(err, HEFT_CORRUPT, size ? HEFT_FAULT_TOO_SMALL : HEFT_FAULT_EMPTY,
                   "the file has %llu of the 8 bytes that hold the length of the header", (safetensors_number)size);
        heft__error_at(err, size, 8, size);
        return HEFT_CORRUPT;
    }
    *n = safetensors_length(head);
    if (*n > limit) {
        heft__fail(err, HEFT_LIMIT, HEFT_FAULT_HEADER_LIMIT,
                   "the header is %llu bytes long, the limit is %llu (option max_header_nbytes)",
                   (safetensors_number)*n, (safetensors_number)limit);
        heft__error_at(err, 0, limit, *n);
        return HEFT_LIMIT;
    }
    if (*n > size - 8) {
        heft__fail(err, HEFT_CORRUPT, HEFT_FAULT_TRUNCATED,
                   "truncated inside the header: it needs %llu bytes, the file has %llu, %llu missing",
                   (safetensors_number)*n + 8, (safetensors_number)size, (safetensors_number)(*n - (size - 8)));
        heft__error_at(err, size, *n > UINT64_MAX - 8 ? HEFT_NONE : *n + 8, size);
        return HEFT_CORRUPT;
    }
    if (*n >= SAFETENSORS_SPAN_LIMIT || *n > SIZE_MAX - 1 - HEFT__HEADER_SLACK) {
        heft__fail(err, HEFT_LIMIT, HEFT_FAULT_HEADER_LIMIT,
                   "the header is %llu bytes long; heft reads headers below 4 GiB", (safetensors_number)*n);
        heft__error_at(err, 0, SAFETENSORS_SPAN_LIMIT, *n);
        return HEFT_LIMIT;
    }
    return HEFT_OK;
}

/* Reads the n bytes of the header, of which `head` holds the first ones. */
static heft_status safetensors_read_header(heft__safetensors *scan, const uint8_t *head, size_t nhead, uint64_t n) {
    heft__listing *l = scan->listing;
    uint64_t have = nhead - 8 < n ? nhead - 8 : n;
    l->header = heft__alloc(&l->alloc, n + 1 + HEFT__HEADER_SLACK);
    if (!l->header) return heft__fail_memory(scan->err, n + 1 + HEFT__HEADER_SLACK);
    l->header_nbytes = n;
    l->data_start = 8 + n;
    memset(l->header + n, 0, 1 + HEFT__HEADER_SLACK);
    if (scan->options->header) {
        if (scan->options->header_nbytes != 8 + n)
            return heft__fail(scan->err, HEFT_CORRUPT, HEFT_FAULT_HEADER_LENGTH, "the header has another length than it says");
        memcpy(l->header, scan->options->header + 8, (size_t)n);
        return HEFT_OK;
    }
    memcpy(l->header, head + 8, (size_t)have);
    if (have < n) return heft_source_read(l->source, 8 + have, n - have, l->header + have, scan->err);
    return HEFT_OK;
}

static heft_status safetensors_check_utf8(heft__safetensors *scan) {
    const heft__listing *l = scan->listing;
    size_t bad = heft__utf8_check(l->header, (size_t)l->header_nbytes);
    if (bad == l->header_nbytes) return HEFT_OK;
    heft__fail(scan->err, HEFT_CORRUPT, HEFT_FAULT_UTF8, "the header is not UTF-8: bad byte 0x%02X at offset %llu",
               (unsigned)(uint8_t)l->header[bad], 8 + (safetensors_number)bad);
    heft__error_at(scan->err, 8 + (uint64_t)bad, HEFT_NONE, HEFT_NONE);
    return HEFT_CORRUPT;
}

/* ---- file order ---------------------------------------------------------------------------------------------------
 */

static const char *safetensors_name(const void *ctx, uint32_t index, uint64_t *len) {
    const heft__entry *entry = (const heft__entry *)ctx + index;
    *len = entry->name_len;
    return entry->name;
}

/* Numbers that named entries in header order get those of file order: keys[old].rank. */
static void safetensors_renumber(heft__safetensors *scan, const heft__sort_key *keys) {
    heft__listing *l = scan->listing;
    for (uint64_t i = 0; l->names.slots && i <= l->names.mask; i++) {
        uint64_t slot = l->names.slots[i];
        if (slot) l->names.slots[i] = (slot >> 32) << 32 | (keys[(uint32_t)slot - 1].rank + 1);
    }
    for (uint64_t i = 0; i < l->faults.count; i++) {
        heft__fault *fault = &l->faults.items[i];
        if (fault->entry != UINT32_MAX) fault->entry = keys[fault->entry].rank;
    }
    heft__safetensors_count *counts[] = {&scan->odd_names, &scan->unknown_fields};
    for (size_t i = 0; i < 2; i++)
        if (counts[i]->count) counts[i]->entry = keys[counts[i]->entry].rank;
}

static heft_status safetensors_sort(heft__safetensors *scan) {
    heft__listing *l = scan->listing;
    if (scan->in_order) return HEFT_OK;
    uint64_t nbytes = l->nentries * sizeof(heft__sort_key);
    heft__sort_key *keys = heft__alloc(&l->alloc, nbytes);
    if (!keys) return heft__fail_memory(scan->err, nbytes);
    for (uint32_t i = 0; i < l->nentries; i++) keys[i] = (heft__sort_key){l->entries[i].begin, l->entries[i].end, i, 0};
    heft__sort_keys(keys, l->nentries);
    for (uint64_t i = 0, end; i < l->nentries; i = end) {
        const heft__entry *first = &l->entries[keys[i].index];
        for (end = i + 1; end < l->nentries; end++)
            if (keys[end].major != first->begin || keys[end].minor != first->end) break;
        if (end - i > 1) heft__sort_texts(keys + i, end - i, safetensors_name, l->entries);
    }
    for (uint32_t i = 0; i < l->nentries; i++) keys[keys[i].index].rank = i;
    safetensors_renumber(scan, keys);
    heft__sort_permute(keys, l->nentries, l->entries, sizeof *l->entries);
    heft__free(&l->alloc, keys, nbytes);
    return HEFT_OK;
}

/* ---- checks 8 and 9: what the entries say -------------------------------------------------------------------------
 */

/* HEFT_NONE where a place is beyond 2^64. */
static uint64_t safetensors_place(const heft__listing *l, uint64_t begin) {
    uint64_t at = HEFT_NONE;
    heft__add_u64(l->data_start, begin, &at);
    return at;
}

static uint64_t safetensors_key_place(const heft__listing *l, uint32_t number) {
    return 8 + (uint64_t)(l->entries[number].name - l->header) - 1;
}

/* Whether bytes that no tensor owns are zero, as far as the budget of the scan goes. */
static uint32_t safetensors_content(heft__safetensors *scan, uint64_t at, uint64_t nbytes) {
    uint8_t block[SAFETENSORS_CONTENT_BLOCK];
    if (at >= scan->file_nbytes) return HEFT__CONTENT_UNKNOWN;
    if (nbytes > scan->file_nbytes - at) nbytes = scan->file_nbytes - at;
    uint64_t end = at + nbytes;
    while (at < end && scan->content_budget >= sizeof block) {
        uint64_t n = end - at < sizeof block ? end - at : sizeof block;
        if (heft_source_read(scan->listing->source, at, n, block, NULL)) return HEFT__CONTENT_UNKNOWN;
        scan->content_budget -= sizeof block; /* a block each: many small holes are many requests */
        for (uint64_t i = 0; i < n; i++)
            if (block[i]) return HEFT__CONTENT_DATA;
        at += n;
    }
    if (at == end) return HEFT__CONTENT_ZERO;
    return nbytes - (end - at) ? HEFT__CONTENT_ZERO_START : HEFT__CONTENT_UNKNOWN;
}

/* HOLE or TRAILING_BYTES. Opening under `lenient` never reads such bytes: they are looked at where something fails and
 * where somebody asked for a check. */
static heft_status safetensors_report_gap(heft__safetensors *scan, heft_fault kind, uint32_t entry, uint64_t at,
                                          uint64_t nbytes) {
    heft__fault fault = heft__safetensors_fault(kind, entry, at, nbytes);
    uint32_t bit = kind == HEFT_FAULT_HOLE ? HEFT_LENIENT_HOLE : HEFT_LENIENT_TRAILING_BYTES;
    if (scan->options->collect || !(scan->options->lenient & bit)) fault.other = safetensors_content(scan, at, nbytes);
    return heft__safetensors_report(scan, fault);
}

/* Check 8a. `running` is the end of the data so far, `owner` the entry that ends there. */
static heft_status safetensors_check_place(heft__safetensors *scan, uint32_t number, uint64_t running, uint32_t owner) {
    const heft__listing *l = scan->listing;
    const heft__entry *e = &l->entries[number];
    if (e->end < e->begin)
        return heft__safetensors_report(
            scan, heft__safetensors_fault(HEFT_FAULT_BAD_ENTRY, number, safetensors_key_place(l, number), 0));
    if (e->begin > running)
        return safetensors_report_gap(scan, HEFT_FAULT_HOLE, number, safetensors_place(l, running), e->begin - running);
    uint64_t end = e->end < running ? e->end : running;
    heft__fault fault =
        heft__safetensors_fault(HEFT_FAULT_OVERLAP, number, safetensors_place(l, e->begin), end - e->begin);
    fault.other = owner;
    return heft__safetensors_report(scan, fault);
}

/* Checks 8b to 8e. */
static heft_status safetensors_check_size(heft__safetensors *scan, uint32_t number) {
    const heft__listing *l = scan->listing;
    const heft__entry *e = &l->entries[number];
    uint64_t nelems = 0, nbytes = 0;
    heft__shape_fault shape = heft__shape_nbytes(e->dtype, e->rank, e->shape, &nelems, &nbytes);
    if (e->dtype == HEFT_DTYPE_NONE && shape != HEFT__SHAPE_ELEMENTS_OVERFLOW) return HEFT_OK;
    if (shape == HEFT__SHAPE_OK && (nbytes == e->end - e->begin || e->end < e->begin)) return HEFT_OK;
    uint64_t at = safetensors_key_place(l, number);
    switch (shape) {
    case HEFT__SHAPE_ELEMENTS_OVERFLOW:
        return heft__safetensors_report(scan, heft__safetensors_fault(HEFT_FAULT_SHAPE_OVERFLOW, number, at, 0));
    case HEFT__SHAPE_BITS_OVERFLOW:
        return heft__safetensors_report(scan, heft__safetensors_fault(HEFT_FAULT_SHAPE_OVERFLOW, number, at, 1));
    case HEFT__SHAPE_SUB_BYTE:
        return heft__safetensors_report(scan, heft__safetensors_fault(HEFT_FAULT_SUB_BYTE, number, at, nelems));
    case HEFT__SHAPE_OK: break;
    }
    return heft__safetensors_report(scan, heft__safetensors_fault(HEFT_FAULT_SIZE_MISMATCH, number, at, nbytes));
}

/* Check 9. `running` is the end of the data as the entries give it. */
static heft_status safetensors_check_end(heft__safetensors *scan, uint64_t running) {
    const heft__listing *l = scan->listing;
    uint64_t data = scan->file_nbytes - l->data_start;
    if (running < data)
        return safetensors_report_gap(scan, HEFT_FAULT_TRAILING_BYTES, UINT32_MAX, l->data_start + running,
                                      data - running);
    if (running == data) return HEFT_OK;
    uint32_t first = 0;
    while (l->entries[first].end <= data) first++;
    return heft__safetensors_report(
        scan, heft__safetensors_fault(HEFT_FAULT_TRUNCATED, first, scan->file_nbytes, running - data));
}

static heft_status safetensors_check_entries(heft__safetensors *scan) {
    const heft__listing *l = scan->listing;
    uint64_t running = 0;
    uint32_t owner = UINT32_MAX;
    heft_status status = HEFT_OK;
    scan->total = l->nentries;
    scan->nfaults_before = l->faults.count;
    for (uint32_t i = 0; i < l->nentries && !status; i++) {
        const heft__entry *e = &l->entries[i];
        scan->done = i;
        if (e->begin != running || e->end < e->begin) status = safetensors_check_place(scan, i, running, owner);
        if (!status && !(e->flags & HEFT__ENTRY_SIZED)) status = safetensors_check_size(scan, i);
        if (e->end >= running) {
            running = e->end;
            owner = i;
        }
    }
    return status ? status : safetensors_check_end(scan, running);
}

/* ---- notes: accepted in silence, mentioned by check ---------------------------------------------------------------
 */

static heft_status safetensors_note(heft__safetensors *scan, heft_fault kind, heft__safetensors_count count) {
    heft__listing *l = scan->listing;
    if (count.count == 0) return HEFT_OK;
    heft__fault fault = heft__safetensors_fault(kind, count.entry, count.offset, count.count);
    fault.severity = HEFT_SEVERITY_NOTE;
    fault.status = (uint8_t)-HEFT_OK;
    return heft__faults_add(&l->faults, &l->alloc, fault) ? HEFT_OK : heft__fail_memory(scan->err, sizeof fault);
}

static heft__safetensors_count safetensors_unaligned(const heft__listing *l) {
    heft__safetensors_count count = {0, HEFT_NONE, UINT32_MAX};
    for (uint32_t i = 0; i < l->nentries; i++) {
        const heft__entry *e = &l->entries[i];
        uint64_t align = heft__dtypes[e->dtype].align, at = safetensors_place(l, e->begin);
        if (e->dtype == HEFT_DTYPE_NONE || e->begin == e->end || at % align == 0) continue;
        if (count.count++ == 0) {
            count.offset = at;
            count.entry = i;
        }
    }
    return count;
}

static heft_status safetensors_notes(heft__safetensors *scan, uint64_t leading) {
    const heft__listing *l = scan->listing;
    const struct {
        heft_fault kind;
        heft__safetensors_count count;
    } notes[] = {
        {HEFT_FAULT_LEADING_SPACE, {leading, 8, UINT32_MAX}},
        {HEFT_FAULT_UNKNOWN_FIELD, scan->unknown_fields},
        {HEFT_FAULT_DUPLICATE_KEY, scan->duplicate_keys},
        {HEFT_FAULT_ODD_NAME, scan->odd_names},
        {HEFT_FAULT_DATA_UNALIGNED, {l->data_start % 8, l->data_start, UINT32_MAX}},
        {HEFT_FAULT_TENSOR_UNALIGNED, safetensors_unaligned(l)},
        {HEFT_FAULT_NO_TENSORS, {l->nentries == 0, HEFT_NONE, UINT32_MAX}},
        {HEFT_FAULT_FILLERS, {l->nfillers, HEFT_NONE, UINT32_MAX}},
    };
    heft_status status = HEFT_OK;
    for (size_t i = 0; i < sizeof notes / sizeof *notes && !status; i++)
        status = safetensors_note(scan, notes[i].kind, notes[i].count);
    return status;
}

/* ---- the scan -----------------------------------------------------------------------------------------------------
 */

static heft_status safetensors_run(heft__safetensors *scan, const uint8_t *head, size_t nhead) {
    heft__listing *l = scan->listing;
    uint64_t n = 0, leading = 0;
    heft_status status = safetensors_check_length(scan, head, nhead, &n);
    if (!status) status = safetensors_read_header(scan, head, nhead, n);
    if (!status) status = safetensors_check_utf8(scan);
    if (status) return status;
    while (leading < n && strchr(" \t\r\n", l->header[leading]) && l->header[leading]) leading++;
    if (!heft__hash_index_init(&l->names, &l->alloc, n / 128 + 1)) return heft__fail_memory(scan->err, n / 16);
    scan->total = n;
    status = heft__safetensors_parse(scan);
    scan->parsed = status == HEFT_OK;
    if (!status) status = safetensors_sort(scan);
    if (!status) status = safetensors_check_entries(scan);
    if (!status && scan->options->collect) status = safetensors_notes(scan, leading);
    return status;
}

/* Faults of the file's content, which under `collect` are a result. */
static bool safetensors_is_verdict(heft_status status) {
    return status == HEFT_CORRUPT || status == HEFT_UNSUPPORTED || status == HEFT_LIMIT;
}

heft_status heft__safetensors_scan(const uint8_t *head, size_t nhead, const heft__scan_options *options,
                                   bool one_by_one, heft__listing *listing, heft_error *err) {
    heft_error local;
    heft__safetensors scan = {.options = options,
                              .listing = listing,
                              .err = &local,
                              .file_nbytes = heft_source_size(listing->source),
                              .in_order = true,
                              .one_by_one = one_by_one,
                              .content_budget = SAFETENSORS_CONTENT_BUDGET};
    listing->format = heft__format_safetensors.name;
    heft_status status = safetensors_run(&scan, head, nhead);
    if (safetensors_is_verdict(status)) {
        if (!scan.parsed) heft__diagnose(listing->source, &listing->alloc, &local);
        status = local.status;
    }
    return heft__scan_end(status, &local, options, listing, err);
}

static heft_status safetensors_scan(const uint8_t *head, size_t nhead, const heft__scan_options *options,
                                    heft__listing *listing, heft_error *err) {
    return heft__safetensors_scan(head, nhead, options, false, listing, err);
}
