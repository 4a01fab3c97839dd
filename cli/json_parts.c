/* cli: pieces of JSON output that several commands share. */
#include "cli.h"

#include "base/float_text.h"

#include <string.h>

void cli_json_shape(heft__json_out *json, uint32_t rank, const uint64_t *shape) {
    heft__json_out_array(json);
    for (uint32_t i = 0; i < rank; i++) heft__json_out_u64(json, shape[i]);
    heft__json_out_array_end(json);
}

void cli_json_metadata(heft__json_out *json, const heft_archive *archive) {
    bool any = false;
    for (uint32_t i = 0; i < heft_archive_file_count(archive) && !any; i++) {
        heft_file file;
        any = heft_archive_file(archive, i, &file, NULL) == HEFT_OK && file.has_metadata;
    }
    if (!any) {
        heft__json_out_null(json);
        return;
    }
    heft__json_out_object(json);
    for (uint64_t i = 0; i < heft_archive_metadata_count(archive, HEFT_MERGED); i++) {
        heft_pair pair;
        if (heft_archive_metadata(archive, HEFT_MERGED, i, &pair, NULL) != HEFT_OK) continue;
        heft__json_out_key(json, pair.key, pair.key_len);
        heft__json_out_string(json, pair.value, pair.value_len);
        cli_json_flush(json);
    }
    heft__json_out_object_end(json);
}

void cli_json_number(heft__json_out *json, const char *key, double value) {
    char word[32];
    heft__json_out_key(json, key, SIZE_MAX);
    size_t n = heft__double_text(value, word);
    if (strpbrk(word, "0123456789")) heft__json_out_double(json, value);
    else heft__json_out_string(json, word, n);
}

void cli_json_u64_or_null(heft__json_out *json, const char *key, uint64_t value) {
    heft__json_out_key(json, key, SIZE_MAX);
    if (value == HEFT_NONE) heft__json_out_null(json);
    else heft__json_out_u64(json, value);
}

void cli_json_text_or_null(heft__json_out *json, const char *key, const char *text) {
    heft__json_out_key(json, key, SIZE_MAX);
    if (!text || !*text) heft__json_out_null(json);
    else heft__json_out_string(json, text, SIZE_MAX);
}

void cli_json_fault(heft__json_out *json, heft_severity severity, const heft_error *fault, const char *path) {
    static const char *const severities[] = {"note", "warning", "error"};
    const struct {
        const char *key, *advice;
    } more[] = {{"cause", cli_fault_cause(fault->fault)}, {"next", cli_fault_next(fault->fault)}};
    heft__json_out_object(json);
    heft__json_out_key(json, "kind", SIZE_MAX);
    heft__json_out_string(json, heft_fault_name(fault->fault), SIZE_MAX);
    heft__json_out_key(json, "severity", SIZE_MAX);
    heft__json_out_string(json, severities[severity <= HEFT_SEVERITY_ERROR ? severity : HEFT_SEVERITY_ERROR], SIZE_MAX);
    cli_json_text_or_null(json, "file", fault->file);
    cli_json_text_or_null(json, "tensor", fault->tensor);
    cli_json_u64_or_null(json, "offset", fault->offset);
    cli_json_u64_or_null(json, "expected", fault->expected);
    cli_json_u64_or_null(json, "found", fault->found);
    heft__json_out_key(json, "message", SIZE_MAX);
    heft__json_out_string(json, fault->message, SIZE_MAX);
    for (size_t i = 0; i < sizeof more / sizeof *more; i++) {
        cli_text text = {0};
        heft__json_out_key(json, more[i].key, SIZE_MAX);
        if (more[i].advice) {
            cli_text_advice(&text, more[i].advice, cli_advised_path(path, fault));
            heft__json_out_string(json, text.data, text.len);
        } else {
            heft__json_out_null(json);
        }
        cli_text_free(&text);
    }
    heft__json_out_object_end(json);
}
