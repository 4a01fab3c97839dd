/* cli: what files that were laid over a checkpoint have replaced. */
#include "loader.h"

#include <string.h>

/* Replacements that a screen shows one by one. */
#define OVERLAYS_SHOWN 20

static const cli_args *overlays_args; /* of the command that runs */

void cli_overlays_given(const cli_args *args) {
    overlays_args = args;
}

const char *cli_advised_path(const char *path, const heft_error *err) {
    const cli_args *args = overlays_args;
    if (!args || !*err->file) return path;
    for (size_t i = 0; i < args->overlay.n; i++)
        if (strcmp(args->overlay.items[i], err->file) == 0) return err->file;
    bool atlas = args->preset == CLI_PRESET_ATLAS && strcmp(cli_base_name(err->file), "extra_weights.safetensors") == 0;
    return atlas ? err->file : path;
}

static uint64_t overlays_replaced(const heft_archive *archive) {
    uint64_t n = 0;
    for (uint32_t i = 0; i < heft_archive_file_count(archive); i++) {
        heft_file file;
        if (heft_archive_file(archive, i, &file, NULL) == HEFT_OK) n += file.nreplaced;
    }
    return n;
}

/* The next replacement in the warnings of an archive, from *at on. False: there is none. */
static bool overlays_next(const heft_archive *archive, uint64_t *at, heft_severity *severity, heft_error *fault) {
    const heft_report *report = heft_archive_warnings(archive);
    while (*at < heft_report_count(report))
        if (heft_report_get(report, (*at)++, severity, fault, NULL) == HEFT_OK && fault->fault == HEFT_FAULT_REPLACED)
            return true;
    return false;
}

void cli_overlays_screen(const heft_archive *archive, const char *path) {
    cli_text line = {0};
    heft_severity severity;
    heft_error fault;
    uint64_t replaced = overlays_replaced(archive), at = 0, shown = 0;
    for (uint32_t i = 0; i < heft_archive_file_count(archive); i++) {
        heft_file file;
        if (heft_archive_file(archive, i, &file, NULL) != HEFT_OK || !file.overlay) continue;
        cli_text_escaped(&line, cli_base_name(file.path), strlen(cli_base_name(file.path)));
        cli_text_str(&line, ": laid over the files before it, with ");
        cli_text_plural(&line, file.ntensors, "tensor");
        cli_text_str(&line, " that no filter withholds");
        cli_print(&line);
    }
    while (shown < OVERLAYS_SHOWN && overlays_next(archive, &at, &severity, &fault)) {
        cli_text_str(&line, "  ");
        cli_text_message(&line, path, "", &fault);
        cli_print(&line);
        shown++;
    }
    if (replaced > shown) {
        cli_text_str(&line, "  and ");
        cli_text_grouped(&line, replaced - shown);
        cli_text_str(&line, " more are replaced; --json lists all");
        cli_print(&line);
    }
    cli_text_free(&line);
}

void cli_json_replaced(heft__json_out *json, const heft_archive *archive, const char *path) {
    heft_severity severity;
    heft_error fault;
    uint64_t at = 0;
    heft__json_out_key(json, "replaced", SIZE_MAX);
    heft__json_out_array(json);
    while (overlays_next(archive, &at, &severity, &fault)) cli_json_fault(json, severity, &fault, path);
    heft__json_out_array_end(json);
}
