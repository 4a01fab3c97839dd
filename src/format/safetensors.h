/* format: what the two halves of the safetensors scanner share: the text of the header (safetensors_parse.c, check 7)
 * and everything around it (safetensors.c, checks 1 to 6, 8, 9). */
#ifndef HEFT_FORMAT_SAFETENSORS_H
#define HEFT_FORMAT_SAFETENSORS_H

#include "format/format.h"

/* How often something was met that is accepted in silence, and where first. */
typedef struct heft__safetensors_count {
    uint64_t count;
    uint64_t offset; /* in the file */
    uint32_t entry;
} heft__safetensors_count;

typedef struct heft__safetensors {
    const heft__scan_options *options;
    heft__listing *listing;
    heft_error *err; /* never NULL */
    uint64_t file_nbytes;
    uint64_t done,
        total; /* of the present work: bytes of text read, then entries checked; growth is foreseen from it */
    uint64_t nfaults_before; /* records that were there when it began */
    bool out_of_memory;      /* met where only true and false are said */
    uint64_t nindexed;       /* entries whose names are in listing->names */
    bool parsed;             /* the text is sound: what fails after it is no wrong file */
    bool in_order;           /* the entries so far are in file order */
    bool one_by_one;         /* tests: every entry by the pull reader, none by direct comparison */
    char dtype_text[16];     /* the spelling of the last dtype with its closing quote, and what it means */
    uint8_t dtype_len, dtype;
    heft__fault unknown; /* the first unknown dtype, reported when the whole text has been found sound; kind 0: none */
    heft__safetensors_count odd_names, unknown_fields, duplicate_keys;
    uint64_t content_budget; /* bytes of holes and trailing bytes that may still be looked at */
} heft__safetensors;

/* Reads the header text in listing->header[0..header_nbytes), which is UTF-8: check 7 and 7'. Appends entries in header
 * order. */
heft_status heft__safetensors_parse(heft__safetensors *scan);

/* A deviation from the format: a warning if `lenient` admits its kind, an error on record under `collect`, else the
 * failure of the scan. */
heft_status heft__safetensors_report(heft__safetensors *scan, heft__fault fault);

/* The scan, with the fast path of the parser switched off if `one_by_one`. */
heft_status heft__safetensors_scan(const uint8_t *head, size_t nhead, const heft__scan_options *options,
                                   bool one_by_one, heft__listing *listing, heft_error *err);

/* The record of a deviation of `kind` in `entry` (UINT32_MAX: none). */
static inline heft__fault heft__safetensors_fault(heft_fault kind, uint32_t entry, uint64_t offset, uint64_t value) {
    return (heft__fault){.kind = (uint16_t)kind,
                         .severity = HEFT_SEVERITY_ERROR,
                         .status = (uint8_t)-HEFT_CORRUPT,
                         .entry = entry,
                         .other = UINT32_MAX,
                         .offset = offset,
                         .value = value};
}

#endif
