/* cli: prints what heft info gathered, as JSON. */
#include "info.h"

#include <string.h>

static void info_json_u64(heft__json_out *json, const char *key, uint64_t value) {
    heft__json_out_key(json, key, SIZE_MAX);
    heft__json_out_u64(json, value);
}

static void info_json_text(heft__json_out *json, const char *key, const char *text) {
    heft__json_out_key(json, key, SIZE_MAX);
    heft__json_out_string(json, text, SIZE_MAX);
}

static void info_json_kind(const info_facts *f, heft__json_out *json) {
    heft__json_out_key(json, "kind", SIZE_MAX);
    heft__json_out_object(json);
    info_json_text(json, "name", f->kind.name);
    info_json_text(json, "certainty", f->kind.certainty);
    cli_json_text_or_null(json, "reason", f->kind.reason);
    heft__json_out_object_end(json);
    heft__json_out_key(json, "quantization", SIZE_MAX);
    if (!*f->kind.packing) {
        heft__json_out_null(json);
        return;
    }
    heft__json_out_object(json);
    info_json_text(json, "how", f->kind.packing);
    info_json_text(json, "certainty", f->kind.packing_certainty);
    info_json_text(json, "reason", f->kind.packing_reason);
    cli_json_u64_or_null(json, "bits", f->kind.packed_bits ? f->kind.packed_bits : HEFT_NONE);
    info_json_u64(json, "packed_tensors", f->kind.packed_tensors);
    info_json_u64(json, "packed_nbytes", f->kind.packed_nbytes);
    heft__json_out_object_end(json);
}

static void info_json_dtypes(const info_facts *f, heft__json_out *json) {
    heft__json_out_key(json, "dtypes", SIZE_MAX);
    heft__json_out_object(json);
    for (uint32_t d = 0; d < HEFT_DTYPE_COUNT; d++) {
        if (!f->dtypes[d].tensors) continue;
        heft__json_out_key(json, heft_dtype_name(d), SIZE_MAX);
        heft__json_out_object(json);
        info_json_u64(json, "tensors", f->dtypes[d].tensors);
        info_json_u64(json, "parameters", f->dtypes[d].nelems);
        info_json_u64(json, "nbytes", f->dtypes[d].nbytes);
        heft__json_out_object_end(json);
    }
    heft__json_out_object_end(json);
}

static void info_json_files(const info_facts *f, heft__json_out *json) {
    heft__json_out_key(json, "files", SIZE_MAX);
    heft__json_out_array(json);
    for (uint32_t i = 0; i < f->nfiles; i++) {
        heft_file file;
        if (heft_archive_file(f->archive, i, &file, NULL) != HEFT_OK) continue;
        heft__json_out_object(json);
        info_json_text(json, "path", file.path);
        info_json_u64(json, "nbytes", file.nbytes);
        info_json_u64(json, "header_nbytes", file.header_nbytes);
        info_json_u64(json, "tensors", file.ntensors);
        info_json_u64(json, "fillers", file.nfillers);
        info_json_u64(json, "withheld", file.nwithheld);
        info_json_u64(json, "replaced", file.nreplaced);
        heft__json_out_key(json, "overlay", SIZE_MAX);
        heft__json_out_bool(json, file.overlay);
        heft__json_out_object_end(json);
    }
    heft__json_out_array_end(json);
}

static void info_json_largest(const info_facts *f, heft__json_out *json) {
    heft__json_out_key(json, "largest", SIZE_MAX);
    heft__json_out_array(json);
    for (uint32_t i = 0; i < f->nlargest; i++) {
        const cli_fold_line *line = &f->fold.lines[f->largest[i].place];
        heft_tensor t;
        if (heft_archive_get(f->archive, line->id, &t, NULL) != HEFT_OK) continue;
        heft__json_out_object(json);
        heft__json_out_key(json, "names", SIZE_MAX);
        heft__json_out_string(json, line->label, line->label_len);
        info_json_u64(json, "count", line->count);
        info_json_text(json, "dtype", heft_dtype_name(t.dtype));
        heft__json_out_key(json, "shape", SIZE_MAX);
        cli_json_shape(json, t.rank, t.shape);
        info_json_u64(json, "nbytes_each", t.nbytes);
        heft__json_out_object_end(json);
    }
    heft__json_out_array_end(json);
}

static void info_json_warnings(const info_facts *f, heft__json_out *json) {
    const heft_report *report = heft_archive_warnings(f->archive);
    heft__json_out_key(json, "warnings", SIZE_MAX);
    heft__json_out_array(json);
    for (uint64_t i = 0; i < heft_report_count(report); i++) {
        heft_severity severity;
        heft_error fault;
        if (heft_report_get(report, i, &severity, &fault, NULL) != HEFT_OK || severity < HEFT_SEVERITY_WARNING) continue;
        cli_json_fault(json, severity, &fault, f->path);
        cli_json_flush(json);
    }
    heft__json_out_array_end(json);
}

void cli_info_json(const info_facts *f) {
    heft__json_out json;
    cli_json_begin(&json, true);
    heft__json_out_object(&json);
    info_json_text(&json, "path", f->path);
    info_json_text(&json, "format", f->format ? f->format : "safetensors");
    info_json_text(&json, "resolution", heft_archive_resolution(f->archive));
    info_json_kind(f, &json);
    info_json_u64(&json, "tensors", f->ntensors);
    info_json_u64(&json, "parameters", f->nelems);
    info_json_u64(&json, "nbytes", f->nbytes);
    info_json_dtypes(f, &json);
    info_json_files(f, &json);
    info_json_u64(&json, "header_nbytes", f->header_nbytes);
    info_json_u64(&json, "data_start", f->data_start);
    info_json_u64(&json, "aligned", f->aligned);
    info_json_u64(&json, "aligned64", f->aligned64);
    info_json_u64(&json, "borrowable", f->borrowable);
    info_json_u64(&json, "borrowable_nbytes", f->borrowed_nbytes);
    info_json_largest(f, &json);
    heft__json_out_key(&json, "metadata", SIZE_MAX);
    cli_json_metadata(&json, f->archive);
    cli_json_text_or_null(&json, "index", heft_archive_index_path(f->archive));
    info_json_u64(&json, "fillers", f->fillers);
    info_json_u64(&json, "withheld", f->withheld);
    info_json_warnings(f, &json);
    heft__json_out_object_end(&json);
    cli_json_end(&json);
}
