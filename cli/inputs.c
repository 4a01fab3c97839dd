/* cli: opens what a PATH names, with the options of the command line; "-" is standard input. */
#include "args.h"

#include "base/alloc.h"

#include <string.h>

/* Warnings shown one by one; of the rest the number. */
#define INPUTS_WARNINGS 20

bool cli_one_stdin(const cli_args *args, size_t first, size_t count) {
    size_t n = 0;
    for (size_t i = first; i < first + count; i++) n += strcmp(args->operands[i], "-") == 0;
    if (n > 1) cli_complain("only one path can be -, standard input");
    return n <= 1;
}

/* The dtype that stands at a place of a list of choices. */
static heft_dtype inputs_dtype(const char *choices, uint32_t place) {
    if (place == 0) return HEFT_DTYPE_NONE;
    for (; place > 0; place--) choices = strchr(choices, ',') + 1;
    return heft_dtype_parse(choices, strcspn(choices, ","));
}

heft_open_options cli_open_options(const cli_args *args) {
    heft_open_options options = {.struct_size = sizeof options};
    options.max_header_nbytes = args->max_header;
    options.lenient = args->lenient_bits;
    options.index = args->index_mode;
    options.links = args->links;
    options.workers = (uint32_t)args->jobs;
    options.list_unknown_dtypes = args->unknown_dtypes;
    options.show_fillers = args->show_fillers;
    options.strict = args->strict;
    options.variant = args->variant;
    options.overlays = args->overlay.items;
    options.noverlays = args->overlay.n;
    options.atlas_overlay = args->preset == CLI_PRESET_ATLAS;
    options.void1 = inputs_dtype(CLI_VOID1, args->void1);
    options.void2 = inputs_dtype(CLI_VOID2, args->void2);
    return options;
}

uint64_t cli_max_header(const cli_args *args) {
    return args->max_header > CLI_MAX_HEADER ? args->max_header : CLI_MAX_HEADER;
}

typedef struct inputs_block {
    void *data;
    uint64_t nbytes;
} inputs_block;

static void inputs_release(void *ctx) {
    inputs_block *block = ctx;
    heft__free(&heft__default_allocator, block->data, block->nbytes);
    heft__free(&heft__default_allocator, block, sizeof *block);
}

/* Standard input: in place if it is a regular file, else all of it in memory. */
static heft_status inputs_stdin(const cli_args *args, heft_source **out, heft_error *err) {
    *out = NULL;
    if (heft__os_is_regular(0)) return heft_source_open_fd(0, "-", out, err);
    uint64_t limit = args->stdin_limit;
    heft__os_memory memory;
    heft__os_free_memory(0, &memory);
    if (!limit) limit = memory.nbytes == HEFT_NONE ? (uint64_t)1 << 30 : memory.nbytes / 4;
    inputs_block *block = heft__alloc(&heft__default_allocator, sizeof *block);
    if (!block) return heft__fail_memory(err, sizeof *block);
    heft_status status = heft__os_read_all(0, limit, &block->data, &block->nbytes, err);
    if (status != HEFT_OK) {
        heft__free(&heft__default_allocator, block, sizeof *block);
        return status;
    }
    return heft_source_open_memory(block->data, block->nbytes, "-", inputs_release, block, out, err);
}

heft_status cli_open(const cli_args *args, const char *path, heft_archive **out, heft_error *err) {
    heft_open_options options = cli_open_options(args);
    if (strcmp(path, "-") != 0) return heft_archive_open(path, &options, out, err);
    heft_source *source;
    *out = NULL;
    heft_status status = inputs_stdin(args, &source, err);
    if (status == HEFT_OK) status = heft_archive_open_source(source, &options, out, err);
    heft_source_unref(source);
    return status;
}

heft_status cli_check_path(const cli_args *args, const char *path, heft_report **out, heft_error *err) {
    heft_open_options options = cli_open_options(args);
    if (strcmp(path, "-") != 0) return heft_check(path, &options, out, err);
    heft_source *source;
    *out = NULL;
    heft_status status = inputs_stdin(args, &source, err);
    if (status == HEFT_OK) status = heft_check_source(source, &options, out, err);
    heft_source_unref(source);
    return status;
}

void cli_warn(const cli_args *args, const char *path, const heft_archive *archive) {
    const heft_report *report = heft_archive_warnings(archive);
    uint64_t count = heft_report_count(report), shown = 0, warnings = heft_report_count_of(report, HEFT_SEVERITY_WARNING);
    if (args->quiet || !warnings) return;
    cli_text name = {0}, line = {0};
    cli_text_escaped(&name, path, strlen(path));
    for (uint64_t i = 0; i < count && shown < INPUTS_WARNINGS; i++) {
        heft_severity severity;
        heft_error fault;
        if (heft_report_get(report, i, &severity, &fault, NULL) != HEFT_OK || severity < HEFT_SEVERITY_WARNING) continue;
        line.len = 0;
        cli_text_message(&line, path, "warning: ", &fault);
        cli_complain("%.*s", (int)line.len, line.data);
        shown++;
    }
    if (warnings > shown)
        cli_complain("%.*s: and %llu more warnings; heft check lists them", (int)name.len, name.data,
                     (unsigned long long)(warnings - shown));
    cli_text_free(&name);
    cli_text_free(&line);
}

heft_status cli_read_text(const char *path, uint64_t limit, char **text, size_t *len, heft_error *err) {
    heft_source *source;
    *text = NULL;
    *len = 0;
    heft_status status = heft_source_open_file(path, &source, err);
    if (status != HEFT_OK && err && err->fault == HEFT_FAULT_NOT_REGULAR) err->file[0] = 0; /* what is advised for models is not */
    if (status != HEFT_OK) return status;
    uint64_t nbytes = heft_source_size(source);
    if (nbytes > limit) {
        heft_source_unref(source);
        return heft__fail(err, HEFT_LIMIT, HEFT_FAULT_CALLER_LIMIT, "%llu bytes, of such a file at most %llu are read",
                          (unsigned long long)nbytes, (unsigned long long)limit);
    }
    char *data = heft__alloc(&heft__default_allocator, nbytes + 1);
    status = data ? heft_source_read(source, 0, nbytes, data, err) : heft__fail_memory(err, nbytes);
    heft_source_unref(source);
    if (status != HEFT_OK) {
        heft__free(&heft__default_allocator, data, nbytes + 1);
        return status;
    }
    data[nbytes] = 0;
    *text = data;
    *len = (size_t)nbytes;
    return HEFT_OK;
}
