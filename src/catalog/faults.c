/* catalog: records of faults, and their text, which is made only when somebody asks for it. */
#include "catalog/catalog.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* What the fields of a record mean. `entry` is the tensor concerned and `offset` a place in the file unless a row says
 * otherwise; fields that a row leaves out are UINT32_MAX, HEFT_NONE or 0. "key" is the opening quote of the name in the
 * header. The error made from a record carries `offset` as it is; E and F are its `expected` and `found`.
 *
 *   kind              entry, other, offset, value
 *   NUL_PADDING       offset: the first NUL; value: how many
 *   UNKNOWN_DTYPE     offset: the opening quote of the spelling; of npy arrays, which are warnings, none
 *   DUPLICATE_NAME    offset: the later key; value: the key before it
 *   ARRAY_ENTRY       offset: its bracket
 *   OBJECT_DTYPE      offset: its brace
 *   RESERVED_NAME     offset: the key
 *   BAD_ENTRY         data_offsets that end before they begin; offset: the key; E begin, F end
 *   HOLE              entry: the tensor after it; other: HEFT__CONTENT of it; offset: where it starts; value:
 *                     bytes; E the begin that was due, F the begin that was found (both relative to the data area)
 *   OVERLAP           other: the tensor before; offset: where it begins; value: bytes of both; E, F: as HOLE
 *   SHAPE_OVERFLOW    offset: the key; value: 0 elements, 1 bits
 *   SUB_BYTE          offset: the key; value: elements
 *   SIZE_MISMATCH     offset: the key; value: bytes by shape (E); F bytes by data_offsets
 *   TRUNCATED         entry: the first incomplete tensor; offset: end of the file (F); value: bytes missing;
 *                     E bytes needed
 *   TRAILING_BYTES    other: HEFT__CONTENT of them; offset: the first of them (E); value: how many;
 *                     F size of the file
 *   notes (`value` counts all of the kind, the place is that of the first):
 *   LEADING_SPACE     value: bytes
 *   UNKNOWN_FIELD     offset: the field's key
 *   DUPLICATE_KEY     offset: the later key
 *   ODD_NAME          offset: the key
 *   DATA_UNALIGNED    offset: start of the data area; value: bytes past a multiple of 8
 *   TENSOR_UNALIGNED  offset: where it begins
 *   NO_TENSORS        none
 *   MEMBER_SKIPPED    offset: its local header; value: where its name is in the listing's header; other: its length
 *   FILLERS           value: how many */

typedef struct fault_writer {
    const heft__fault *fault;
    const heft__listing *listing; /* may be NULL */
    const heft__entry *entry;     /* may be NULL */
    const heft__entry *other;     /* may be NULL */
    char file[280];               /* escaped, with ": " after it; empty if there is none */
    char name[280];               /* of the tensor, escaped */
    char other_name[200];
    heft_error *out;
} fault_writer;

typedef unsigned long long fault_number; /* what %llu takes */

static const char *fault_s(uint64_t n) {
    return n == 1 ? "" : "s";
}

bool heft__faults_add(heft__faults *faults, const heft_allocator *alloc, heft__fault fault) {
    if (!heft__grow(alloc, (void **)&faults->items, &faults->capacity, faults->count, sizeof *faults->items, 8)) {
        faults->failed = true;
        return false;
    }
    faults->items[faults->count++] = fault;
    return true;
}

/* heft__fail with the status and kind of a record; the message begins with the file. */
static void fault_say(const fault_writer *w, const char *format, ...) HEFT__PRINTF(2, 3);

static void fault_say(const fault_writer *w, const char *format, ...) {
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    heft__fail(w->out, -(heft_status)w->fault->status, w->fault->kind, "%s%s", w->file, text);
}

/* "[2, 3]", cut when long. */
static const char *fault_shape(const heft__entry *entry, char *dst, size_t size) {
    size_t at = 0;
    dst[at++] = '[';
    for (uint32_t i = 0; i < entry->rank; i++) {
        char dim[32];
        int n = snprintf(dim, sizeof dim, "%s%llu", i ? ", " : "", (fault_number)entry->shape[i]);
        if (at + (size_t)n + 8 > size) {
            memcpy(dst + at, ", \xE2\x80\xA6", 5);
            at += 5;
            break;
        }
        memcpy(dst + at, dim, (size_t)n);
        at += (size_t)n;
    }
    dst[at++] = ']';
    dst[at] = 0;
    return dst;
}

static const char *fault_content(const fault_writer *w) {
    switch (w->fault->other) {
    case HEFT__CONTENT_ZERO: return ", all zero";
    case HEFT__CONTENT_DATA: return ", not all zero";
    case HEFT__CONTENT_ZERO_START: return ", zero as far as they were looked at";
    default: return "";
    }
}

static void fault_numbers(const fault_writer *w, uint64_t expected, uint64_t found) {
    heft__error_at(w->out, w->fault->offset, expected, found);
}

/* ---- faults of one entry as it stands in the header -------------------------------------------------------------- */

/* The spelling of a dtype as it stands in the header, quotes excluded, escaped for people. */
static void fault_spelling(const fault_writer *w, char *dst, size_t size) {
    const heft__listing *l = w->listing;
    uint64_t at = w->fault->offset - 8 + 1, end = at;
    dst[0] = 0;
    if (!l || !l->header || w->fault->offset < 8 || at > l->header_nbytes) return;
    while (end < l->header_nbytes && l->header[end] != '"') end += l->header[end] == '\\' ? 2 : 1;
    if (end > l->header_nbytes) end = l->header_nbytes;
    heft__escape(dst, size, l->header + at, (size_t)(end - at));
}

static bool fault_header(const fault_writer *w) {
    const heft__fault *f = w->fault;
    char spelling[80];
    switch (f->kind) {
    case HEFT_FAULT_NUL_PADDING:
        fault_say(w, "the header is padded with %llu NUL byte%s from offset %llu on; the format pads with spaces",
                  (fault_number)f->value, fault_s(f->value), (fault_number)f->offset);
        return true;
    case HEFT_FAULT_UNKNOWN_DTYPE:
        if (w->entry && w->listing && strcmp(w->listing->format, "safetensors") != 0) {
            fault_say(w, "tensor \"%s\": a dtype of NumPy that heft lacks, listed as %llu bytes", w->name,
                      (fault_number)(w->entry->end - w->entry->begin));
            return true;
        }
        fault_spelling(w, spelling, sizeof spelling);
        fault_say(w,
                  "tensor \"%s\": unknown dtype \"%s\" at offset %llu; known are BOOL, F4, F6_E2M3, F6_E3M2, U8, I8, "
                  "F8_E5M2, "
                  "F8_E4M3, F8_E8M0, F8_E4M3FNUZ, F8_E5M2FNUZ, I16, U16, F16, BF16, I32, U32, F32, C64, F64, I64, U64",
                  w->name, spelling, (fault_number)f->offset);
        return true;
    case HEFT_FAULT_DUPLICATE_NAME:
        fault_say(w, "tensor \"%s\": the name stands twice, at offsets %llu and %llu", w->name, (fault_number)f->value,
                  (fault_number)f->offset);
        return true;
    case HEFT_FAULT_ARRAY_ENTRY:
        fault_say(w, "tensor \"%s\": the entry at offset %llu is written as an array, the format wants an object",
                  w->name, (fault_number)f->offset);
        return true;
    case HEFT_FAULT_OBJECT_DTYPE:
        fault_say(w, "tensor \"%s\": the dtype at offset %llu is written as an object, the format wants a string",
                  w->name, (fault_number)f->offset);
        return true;
    case HEFT_FAULT_RESERVED_NAME:
        fault_say(w, "a tensor entry at offset %llu has the reserved name __metadata__", (fault_number)f->offset);
        return true;
    default: return false;
    }
}

/* ---- faults of where a tensor lies and how large it is ------------------------------------------------------------
 */

static void fault_overlap(const fault_writer *w) {
    const heft__entry *e = w->entry, *o = w->other;
    if (w->fault->value)
        fault_say(w,
                  "tensor \"%s\" (data %llu to %llu) overlaps \"%s\" (data %llu to %llu) by %llu byte%s at offset %llu",
                  w->name, (fault_number)e->begin, (fault_number)e->end, w->other_name, (fault_number)o->begin,
                  (fault_number)o->end, (fault_number)w->fault->value, fault_s(w->fault->value),
                  (fault_number)w->fault->offset);
    else
        fault_say(w, "tensor \"%s\" has no bytes and lies at %llu, inside of \"%s\" (data %llu to %llu)", w->name,
                  (fault_number)e->begin, w->other_name, (fault_number)o->begin, (fault_number)o->end);
    fault_numbers(w, o->end, e->begin);
}

static void fault_truncated(const fault_writer *w) {
    const heft__listing *l = w->listing;
    uint64_t size = w->fault->offset, data = size - l->data_start, whole = 0, needed = HEFT_NONE;
    for (uint64_t i = 0; i < l->nentries; i++) whole += l->entries[i].end <= data;
    char need[64] = "more than 2^64 bytes";
    if (heft__add_u64(size, w->fault->value, &needed)) snprintf(need, sizeof need, "%llu bytes", (fault_number)needed);
    fault_say(w,
              "truncated: needs %s, has %llu, %llu byte%s missing; %llu of %llu tensor%s whole; first incomplete: "
              "\"%s\" (data %llu to %llu)",
              need, (fault_number)size, (fault_number)w->fault->value, fault_s(w->fault->value), (fault_number)whole,
              (fault_number)l->nentries, l->nentries == 1 ? " is" : "s are", w->name, (fault_number)w->entry->begin,
              (fault_number)w->entry->end);
    fault_numbers(w, needed, size);
}

static bool fault_layout(const fault_writer *w) {
    const heft__fault *f = w->fault;
    const heft__entry *e = w->entry;
    if (!e && f->kind != HEFT_FAULT_TRAILING_BYTES) return false;
    switch (f->kind) {
    case HEFT_FAULT_HOLE:
        fault_say(w, "hole of %llu byte%s at offset %llu, before tensor \"%s\" (data %llu to %llu)%s",
                  (fault_number)f->value, fault_s(f->value), (fault_number)f->offset, w->name, (fault_number)e->begin,
                  (fault_number)e->end, fault_content(w));
        fault_numbers(w, e->begin - f->value, e->begin);
        return true;
    case HEFT_FAULT_OVERLAP:
        if (!w->other) return false;
        fault_overlap(w);
        return true;
    case HEFT_FAULT_BAD_ENTRY:
        fault_say(w, "tensor \"%s\": data_offsets [%llu, %llu] end before they begin", w->name, (fault_number)e->begin,
                  (fault_number)e->end);
        fault_numbers(w, e->begin, e->end);
        return true;
    case HEFT_FAULT_TRUNCATED: fault_truncated(w); return true;
    case HEFT_FAULT_TRAILING_BYTES:
        fault_say(w, "%llu byte%s after the last tensor, from offset %llu on%s", (fault_number)f->value,
                  fault_s(f->value), (fault_number)f->offset, fault_content(w));
        fault_numbers(w, f->offset, f->offset + f->value);
        return true;
    default: return false;
    }
}

static bool fault_size(const fault_writer *w) {
    const heft__fault *f = w->fault;
    const heft__entry *e = w->entry;
    char shape[120];
    if (!e) return false;
    switch (f->kind) {
    case HEFT_FAULT_SHAPE_OVERFLOW:
        fault_say(w, "tensor \"%s\": %s %s: the number of %s does not fit 64 bits", w->name, heft_dtype_name(e->dtype),
                  fault_shape(e, shape, sizeof shape), f->value ? "bits" : "elements");
        return true;
    case HEFT_FAULT_SUB_BYTE:
        fault_say(w, "tensor \"%s\": %llu element%s of %s (%u bits each) do not fill whole bytes", w->name,
                  (fault_number)f->value, fault_s(f->value), heft_dtype_name(e->dtype), heft_dtype_bits(e->dtype));
        fault_numbers(w, HEFT_NONE, f->value);
        return true;
    case HEFT_FAULT_SIZE_MISMATCH:
        fault_say(w, "tensor \"%s\": %s %s needs %llu byte%s, data_offsets [%llu, %llu] give %llu", w->name,
                  heft_dtype_name(e->dtype), fault_shape(e, shape, sizeof shape), (fault_number)f->value,
                  fault_s(f->value), (fault_number)e->begin, (fault_number)e->end, (fault_number)(e->end - e->begin));
        fault_numbers(w, f->value, e->end - e->begin);
        return true;
    default: return false;
    }
}

/* ---- notes --------------------------------------------------------------------------------------------------------
 */

static void fault_skipped(const fault_writer *w) {
    const heft__listing *l = w->listing;
    char name[200] = "";
    if (l && l->header && w->fault->value <= l->header_nbytes && w->fault->other <= l->header_nbytes - w->fault->value)
        heft__escape(name, sizeof name, l->header + w->fault->value, w->fault->other);
    fault_say(w, "member \"%s\" at offset %llu is no array (.npy) and is left out", name, (fault_number)w->fault->offset);
}

static bool fault_note(const fault_writer *w) {
    const heft__fault *f = w->fault;
    fault_number n = f->value;
    switch (f->kind) {
    case HEFT_FAULT_LEADING_SPACE:
        fault_say(w, "the header begins with %llu byte%s of white space", n, fault_s(n));
        return true;
    case HEFT_FAULT_UNKNOWN_FIELD:
        fault_say(
            w,
            "%llu field%s of entries other than dtype, shape and data_offsets, ignored; the first at offset %llu in "
            "tensor \"%s\"",
            n, fault_s(n), (fault_number)f->offset, w->name);
        return true;
    case HEFT_FAULT_DUPLICATE_KEY:
        fault_say(w, "%llu metadata key%s again, the last value counts; the first at offset %llu", n,
                  n == 1 ? " stands" : "s stand", (fault_number)f->offset);
        return true;
    case HEFT_FAULT_ODD_NAME:
        fault_say(w, "%llu name%s empty or with a NUL character; the first at offset %llu", n, n == 1 ? " is" : "s are",
                  (fault_number)f->offset);
        return true;
    case HEFT_FAULT_DATA_UNALIGNED:
        fault_say(w, "the data area starts at offset %llu, %llu byte%s past a multiple of 8", (fault_number)f->offset,
                  n, fault_s(n));
        return true;
    case HEFT_FAULT_TENSOR_UNALIGNED:
        fault_say(w, "%llu of %llu tensor%s not at a multiple of the element size; the first is \"%s\" at offset %llu",
                  n, (fault_number)w->listing->nentries, w->listing->nentries == 1 ? " is" : "s are", w->name,
                  (fault_number)f->offset);
        return true;
    case HEFT_FAULT_NO_TENSORS: fault_say(w, "the file holds no tensors"); return true;
    case HEFT_FAULT_MEMBER_SKIPPED: fault_skipped(w); return true;
    case HEFT_FAULT_FILLERS: fault_say(w, "%llu alignment filler%s, hidden from listings", n, fault_s(n)); return true;
    default: return false;
    }
}

/* ---- journals of edits in place ----------------------------------------------------------------------------------- */

static bool fault_journal(const fault_writer *w) {
    static const char *const ignored[] = {"it is damaged", "it belongs to another file, or to what this one was before",
                                          "it cannot be read", "its new header does not fit the file"};
    uint64_t n = w->fault->value;
    switch (w->fault->kind) {
    case HEFT_FAULT_EDIT_INTERRUPTED:
        fault_say(w, "an edit in place was interrupted; %s",
                  n ? "the file has been written to since and has its old header, which is used"
                    : "the new header is taken from its journal");
        return true;
    case HEFT_FAULT_JOURNAL_IGNORED:
        fault_say(w, "the journal of an edit in place lies beside the file and is ignored: %s",
                  ignored[n < sizeof ignored / sizeof *ignored ? n : 0]);
        return true;
    default: return false;
    }
}

/* ---- all of them --------------------------------------------------------------------------------------------------
 */

static const heft__entry *fault_entry(const heft__listing *listing, uint32_t number) {
    return listing && number < listing->nentries ? &listing->entries[number] : NULL;
}

void heft__fault_describe(const heft__fault *fault, const heft__listing *listing, heft_error *out) {
    fault_writer w = {.fault = fault, .listing = listing, .out = out};
    const char *label = listing && listing->source ? heft_source_label(listing->source) : NULL;
    if (label) {
        size_t n = heft__escape(w.file, sizeof w.file - 2, label, strlen(label));
        memcpy(w.file + n, ": ", 3);
    }
    w.entry = fault_entry(listing, fault->entry);
    if (w.entry) heft__escape(w.name, sizeof w.name, w.entry->name, w.entry->name_len);
    if (fault->kind == HEFT_FAULT_OVERLAP) w.other = fault_entry(listing, fault->other);
    if (w.other) heft__escape(w.other_name, sizeof w.other_name, w.other->name, w.other->name_len);
    bool said = fault_header(&w) || fault_layout(&w) || fault_size(&w) || fault_note(&w) || fault_journal(&w);
    if (!said) fault_say(&w, "%s", heft_fault_name(fault->kind));
    out->offset = fault->offset;
    if (label) heft__error_file(out, label);
    if (w.entry) heft__error_tensor(out, w.entry->name, w.entry->name_len);
}
