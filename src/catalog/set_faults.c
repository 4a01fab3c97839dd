/* catalog: the text of faults that only a set can have, between an index, its shards and their folder. */
#include "base/error.h"
#include "base/text.h"
#include "catalog/catalog.h"

#include <stdio.h>
#include <string.h>

/* What the fields of a record mean; fields that a row leaves out are UINT32_MAX, HEFT_NONE or 0. Kinds of a set that
 * are not here, or occur once, are kept as whole errors (HEFT__FAULT_WHOLE).
 *
 *   kind              file, entry, other, offset, value
 *   MISSING_SHARD     entry: 0 absent, 1 a dangling link; other: tensors that the index expects in it; value: text, its name
 *   INDEX_MISMATCH    file: the shard; value: text, the tensor
 *   UNINDEXED_TENSOR  file, entry: the tensor; other: the file that the index names for it, or UINT32_MAX; offset: its bytes
 *   SHARED_NAME       file, entry: the later tensor; other: the first file that has it; offset: its bytes
 *   ORPHAN_SHARD      value: text, the file
 *   METADATA_DIFFERS  other: how many keys; value: text, the first
 *   REPLACED          file, entry: the tensor; value: file << 32 | entry of the one that takes its place; offset: its bytes
 *   EMPTY_TENSORS     file, entry: the first; other: how many
 *   TEMP_FILE         entry, other: high and low half of its size; value: text, the file; value + 1: text, its age */

typedef struct setfault_names {
    char file[300];  /* of the record, escaped; else the index, else what was opened */
    char index[200]; /* base name of the index */
    char tensor[260];
    char text[260];
    char other[200];
} setfault_names;

static const char *setfault_label(const heft_report *report, uint32_t file) {
    return file < report->nlistings ? heft_source_label(report->listings[file]->source) : NULL;
}

static const char *setfault_base(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static const char *setfault_file(const heft_report *report, const heft__fault *fault) {
    const char *label = setfault_label(report, fault->file);
    if (label) return label;
    return report->index_path ? report->index_path : report->path ? report->path : "";
}

static const char *setfault_s(uint32_t n) {
    return n == 1 ? "" : "s";
}

static void setfault_say(const heft__fault *fault, const setfault_names *names, heft_error *out) {
    heft_status status = -(heft_status)fault->status;
    char lost[64] = "";
    switch (fault->kind) {
    case HEFT_FAULT_MISSING_SHARD:
        if (fault->other)
            snprintf(lost, sizeof lost, "; the index names it for %u tensor%s", fault->other, setfault_s(fault->other));
        heft__fail(out, status, fault->kind, "%s: shard \"%s\" %s%s", names->file, names->text,
                   fault->entry == 1 ? "is a link to a file that is not there" : "is missing", lost);
        break;
    case HEFT_FAULT_INDEX_MISMATCH:
        heft__fail(out, status, fault->kind, "%s: %s names tensor \"%s\" for this shard, which does not hold it",
                   names->file, names->index, names->text);
        break;
    case HEFT_FAULT_UNINDEXED_TENSOR:
        if (fault->other == UINT32_MAX)
            heft__fail(out, status, fault->kind, "%s: tensor \"%s\" is not named by %s", names->file, names->tensor,
                       names->index);
        else
            heft__fail(out, status, fault->kind, "%s: tensor \"%s\" is taken from \"%s\", as %s says", names->file,
                       names->tensor, names->other, names->index);
        break;
    case HEFT_FAULT_SHARED_NAME:
        heft__fail(out, status, fault->kind, "%s: tensor \"%s\" is also in \"%s\", and no index says which one counts",
                   names->file, names->tensor, names->other);
        break;
    case HEFT_FAULT_ORPHAN_SHARD:
        heft__fail(out, status, fault->kind, "%s: \"%s\" lies in the folder, but the index does not name it",
                   names->file, names->text);
        break;
    case HEFT_FAULT_METADATA_DIFFERS:
        heft__fail(
            out, status, fault->kind,
            "%s: %u metadata key%s in different files different values, so the merged metadata leaves %s out; \"%s\" "
            "is one",
            names->file, fault->other, fault->other == 1 ? " has" : "s have", fault->other == 1 ? "it" : "them",
            names->text);
        break;
    case HEFT_FAULT_EMPTY_TENSORS:
        heft__fail(
            out, status, fault->kind,
            "%s: %u tensor%s without elements, \"%s\" is the first; many of them mean that a distributed save was "
            "not gathered",
            names->file, fault->other, fault->other == 1 ? " is" : "s are", names->tensor);
        break;
    default: break;
    }
}

static void setfault_say_temp(const heft_report *report, const heft__fault *fault, const setfault_names *names,
                              heft_error *out) {
    uint64_t nbytes = (uint64_t)fault->entry << 32 | fault->other;
    heft__fail(out, -(heft_status)fault->status, fault->kind,
               "%s: \"%s\" is a temporary file of a save: %llu byte%s, last written %s", names->file, names->text,
               (unsigned long long)nbytes, nbytes == 1 ? "" : "s", report->texts[fault->value + 1].text);
    heft__error_at(out, HEFT_NONE, HEFT_NONE, nbytes);
}

/* " (F32 [2, 3])" */
static const char *setfault_form(const heft__entry *entry, char *text, size_t size) {
    size_t at = (size_t)snprintf(text, size, " (%s [", heft_dtype_name(entry->dtype));
    for (uint32_t d = 0; d < entry->rank && at + 32 < size; d++)
        at += (size_t)snprintf(text + at, size - at, "%s%llu", d ? ", " : "", (unsigned long long)entry->shape[d]);
    snprintf(text + at, size - at, "])");
    return text;
}

/* What both look like is said where they differ. */
static void setfault_say_replaced(const heft_report *report, const heft__fault *fault, const heft__entry *lost,
                                  const setfault_names *names, heft_error *out) {
    char before[160] = "", after[160] = "", file[300];
    uint32_t winner = (uint32_t)(fault->value >> 32);
    const char *label = setfault_label(report, winner);
    const heft__entry *won = label ? &report->listings[winner]->entries[(uint32_t)fault->value] : NULL;
    if (!label) label = "";
    heft__escape(file, sizeof file, label, strlen(label));
    if (lost && won && fault->severity != HEFT_SEVERITY_NOTE) {
        setfault_form(lost, before, sizeof before);
        setfault_form(won, after, sizeof after);
    }
    heft__fail(out, -(heft_status)fault->status, fault->kind, "%s: tensor \"%s\"%s is replaced by that of %s%s",
               names->file, names->tensor, before, file, after);
}

bool heft__set_fault_describe(const heft_report *report, const heft__fault *fault, heft_error *out) {
    setfault_names names;
    const heft__listing *listing = fault->file < report->nlistings ? report->listings[fault->file] : NULL;
    const heft__entry *entry = NULL;
    const heft__text *text = NULL;
    switch (fault->kind) {
    case HEFT_FAULT_UNINDEXED_TENSOR:
    case HEFT_FAULT_SHARED_NAME:
    case HEFT_FAULT_EMPTY_TENSORS:
    case HEFT_FAULT_REPLACED:
        if (listing) entry = &listing->entries[fault->entry];
        break;
    case HEFT_FAULT_MISSING_SHARD:
    case HEFT_FAULT_INDEX_MISMATCH:
    case HEFT_FAULT_ORPHAN_SHARD:
    case HEFT_FAULT_METADATA_DIFFERS:
    case HEFT_FAULT_TEMP_FILE: text = &report->texts[fault->value]; break;
    default: return false;
    }
    memset(&names, 0, sizeof names);
    const char *file = setfault_file(report, fault), *other = setfault_label(report, fault->other);
    heft__escape(names.file, sizeof names.file, file, strlen(file));
    if (report->index_path) {
        const char *base = setfault_base(report->index_path);
        heft__escape(names.index, sizeof names.index, base, strlen(base));
    }
    if (entry) heft__escape(names.tensor, sizeof names.tensor, entry->name, entry->name_len);
    if (text) heft__escape(names.text, sizeof names.text, text->text, text->len);
    if (other) heft__escape(names.other, sizeof names.other, setfault_base(other), strlen(setfault_base(other)));
    if (fault->kind == HEFT_FAULT_TEMP_FILE)
        setfault_say_temp(report, fault, &names, out);
    else if (fault->kind == HEFT_FAULT_REPLACED)
        setfault_say_replaced(report, fault, entry, &names, out);
    else
        setfault_say(fault, &names, out);
    if (fault->kind != HEFT_FAULT_TEMP_FILE) out->offset = fault->offset;
    heft__error_file(out, file);
    if (entry)
        heft__error_tensor(out, entry->name, entry->name_len);
    else if (fault->kind == HEFT_FAULT_INDEX_MISMATCH)
        heft__error_tensor(out, text->text, text->len);
    return true;
}
