/* cli: heft digest: checksums of tensors, sidecars of them, or SHA-256 of files in the form of sha256sum. */
#include "copier.h"
#include "digest_cache.h"

#include <stdlib.h>
#include <string.h>

#define DIGEST_DIGITS 32

typedef struct digest_state {
    const cli_args *args;
    const char *path;
    heft_archive *archive;
    heft_buffer picked;
    const uint64_t *ids;
    uint64_t nids;
    uint8_t (*digests)[16], whole[16];
    uint32_t nfiles;
    cli_digest_cache *cache;
    cli_sum *sums; /* of the files */
} digest_state;

/* ---- tensors ----------------------------------------------------------------------------------------------------- */

static void digest_hex(const uint8_t *digest, char out[DIGEST_DIGITS]) {
    for (size_t i = 0; i < DIGEST_DIGITS; i++)
        out[i] = "0123456789abcdef"[(digest[i / 2] >> (i % 2 ? 0 : 4)) & 15];
}

static cli_style digest_cell(void *ctx, uint64_t row, size_t column, cli_text *text) {
    const digest_state *s = ctx;
    heft_tensor tensor;
    char digits[DIGEST_DIGITS];
    if (column) {
        if (heft_archive_get(s->archive, s->ids[row], &tensor, NULL) == HEFT_OK)
            cli_text_name(text, tensor.name, tensor.name_len);
        return CLI_PLAIN;
    }
    digest_hex(s->digests[row], digits);
    cli_text_put(text, digits, sizeof digits);
    return CLI_ACCENT;
}

static void digest_screen(digest_state *s) {
    static const cli_column columns[] = {{"XXH3-128", false, false}, {"NAME", false, true}};
    cli_table table = {columns, 2, s->nids, digest_cell, s, false};
    char digits[DIGEST_DIGITS];
    if (!s->args->data) {
        cli_table_print(&table);
        return;
    }
    cli_text line = {0};
    digest_hex(s->whole, digits);
    cli_text_put(&line, digits, sizeof digits);
    cli_text_str(&line, "  ");
    cli_text_escaped(&line, s->path, strlen(s->path));
    cli_print(&line);
    cli_text_free(&line);
}

static void digest_json(const digest_state *s) {
    heft__json_out json;
    char digits[DIGEST_DIGITS];
    cli_json_begin(&json, false);
    heft__json_out_object(&json);
    cli_json_text(&json, "path", s->path);
    cli_json_text(&json, "algorithm", CLI_DIGEST_ALGORITHM);
    digest_hex(s->whole, digits);
    heft__json_out_key(&json, "data_xxh3", SIZE_MAX);
    heft__json_out_string(&json, digits, sizeof digits);
    heft__json_out_key(&json, "tensors", SIZE_MAX);
    heft__json_out_array(&json);
    for (uint64_t i = 0; i < s->nids; i++) {
        heft_tensor tensor;
        if (heft_archive_get(s->archive, s->ids[i], &tensor, NULL) != HEFT_OK) continue;
        digest_hex(s->digests[i], digits);
        heft__json_out_object(&json);
        heft__json_out_key(&json, "name", SIZE_MAX);
        heft__json_out_string(&json, tensor.name, tensor.name_len);
        heft__json_out_key(&json, "xxh3", SIZE_MAX);
        heft__json_out_string(&json, digits, sizeof digits);
        heft__json_out_object_end(&json);
        cli_json_flush(&json);
    }
    heft__json_out_array_end(&json);
    heft__json_out_object_end(&json);
    cli_json_end(&json);
}

static heft_status digest_tensors(digest_state *s, heft_error *err) {
    cli_progress progress;
    heft_status status = cli_pick(s->args, s->archive, HEFT_ORDER_NATURAL, &s->picked, &s->nids, err);
    if (status != HEFT_OK) return status;
    s->ids = s->picked.data;
    s->digests = calloc((size_t)s->nids + 1, sizeof *s->digests);
    if (!s->digests) cli_die_memory();
    heft_read_options options = cli_read_options(s->args);
    cli_progress_start(&progress, s->args->quiet || s->args->json);
    options.progress = cli_progress_step;
    options.progress_ctx = &progress;
    status = heft_archive_digests(s->archive, s->ids, s->nids, &options, s->digests, s->whole, err);
    cli_progress_end(&progress);
    if (status != HEFT_OK) return status;
    if (s->args->json) digest_json(s);
    else digest_screen(s);
    return HEFT_OK;
}

/* ---- files ------------------------------------------------------------------------------------------------------- */

/* A line as sha256sum writes it: a name with a backslash or a line break is escaped, and a backslash before the line says so. */
static void digest_sum_line(cli_text *line, const char *sum, const char *name) {
    if (strpbrk(name, "\\\n\r")) cli_text_str(line, "\\");
    cli_text_str(line, sum);
    cli_text_str(line, "  ");
    for (; *name; name++) {
        const char *escaped = *name == '\\' ? "\\\\" : *name == '\n' ? "\\n" : *name == '\r' ? "\\r" : NULL;
        if (escaped) cli_text_str(line, escaped);
        else cli_text_put(line, name, 1);
    }
}

/* The name as a reader in the folder of the output sees it, if the file lies in that folder. */
static const char *digest_sum_name(const digest_state *s, const char *path) {
    const char *slash = s->args->output ? strrchr(s->args->output, '/') : NULL;
    size_t folder = slash ? (size_t)(slash + 1 - s->args->output) : 0;
    return strncmp(path, s->args->output ? s->args->output : "", folder) == 0 ? path + folder : path;
}

static heft_status digest_sums_write(const digest_state *s, heft_error *err) {
    heft__output *out;
    heft_file file;
    cli_text text = {0};
    heft_status status = heft__output_open(s->args->output ? s->args->output : "-", s->args->force, &out, err);
    if (status != HEFT_OK) return status;
    for (uint32_t i = 0; i < s->nfiles; i++) {
        if (heft_archive_file(s->archive, i, &file, NULL) != HEFT_OK) continue;
        digest_sum_line(&text, s->sums[i].text, digest_sum_name(s, file.path));
        cli_text_str(&text, "\n");
    }
    if (text.len) status = heft__output_write(out, text.data, text.len, err);
    cli_text_free(&text);
    if (status == HEFT_OK) return heft__output_commit(out, err);
    heft__output_abort(out);
    return status;
}

/* On a terminal names are made harmless. */
static void digest_sums_screen(const digest_state *s) {
    cli_text line = {0};
    for (uint32_t i = 0; i < s->nfiles; i++) {
        heft_file file;
        if (heft_archive_file(s->archive, i, &file, NULL) != HEFT_OK) continue;
        cli_text_str(&line, s->sums[i].text);
        cli_text_str(&line, "  ");
        cli_text_escaped(&line, file.path, strlen(file.path));
        cli_print(&line);
    }
    cli_text_free(&line);
}

static void digest_sums_json(const digest_state *s) {
    heft__json_out json;
    cli_json_begin(&json, false);
    heft__json_out_object(&json);
    cli_json_text(&json, "path", s->path);
    heft__json_out_key(&json, "files", SIZE_MAX);
    heft__json_out_array(&json);
    for (uint32_t i = 0; i < s->nfiles; i++) {
        heft_file file;
        if (heft_archive_file(s->archive, i, &file, NULL) != HEFT_OK) continue;
        heft__json_out_object(&json);
        cli_json_text(&json, "file", file.path);
        cli_json_u64(&json, "nbytes", file.nbytes);
        cli_json_text(&json, "sha256", s->sums[i].text);
        cli_json_bool(&json, "cached", s->sums[i].cached);
        heft__json_out_object_end(&json);
        cli_json_flush(&json);
    }
    heft__json_out_array_end(&json);
    heft__json_out_object_end(&json);
    cli_json_end(&json);
}

/* The lines have no room for it. */
static void digest_cached_tell(const digest_state *s) {
    uint64_t n = 0;
    for (uint32_t i = 0; i < s->nfiles; i++) n += s->sums[i].cached;
    if (!n || s->args->quiet || s->args->json) return;
    cli_text line = {0};
    cli_text_format(&line, "note: %llu of ", (unsigned long long)n);
    cli_text_plural(&line, s->nfiles, "digest");
    cli_text_str(&line, n == 1 ? " is from it: the file was not read" : " are from it: the files were not read");
    cli_complain_of(s->args->cache, &line);
    cli_text_free(&line);
}

static heft_status digest_files(digest_state *s, heft_error *err) {
    heft_status status = HEFT_OK;
    s->nfiles = heft_archive_file_count(s->archive);
    s->sums = calloc((size_t)s->nfiles + 1, sizeof *s->sums);
    if (!s->sums) cli_die_memory();
    for (uint32_t i = 0; i < s->nfiles && status == HEFT_OK; i++)
        status = cli_sha256(s->args, s->archive, i, s->cache, false, &s->sums[i], err);
    if (status != HEFT_OK) return status;
    if (s->args->json) digest_sums_json(s);
    else if (!s->args->output && cli_screen_get()->terminal) digest_sums_screen(s);
    else status = digest_sums_write(s, err);
    if (status == HEFT_OK) digest_cached_tell(s);
    return status;
}

/* ---- sidecars ---------------------------------------------------------------------------------------------------- */

static heft_status digest_sidecars(digest_state *s, heft_error *err) {
    cli_progress progress;
    heft_read_options options = cli_read_options(s->args);
    heft_save_options save = {.struct_size = sizeof save, .overwrite = s->args->force, .no_sync = s->args->no_sync};
    cli_progress_start(&progress, s->args->quiet || s->args->json);
    options.progress = cli_progress_step;
    options.progress_ctx = &progress;
    heft_status status = heft_archive_write_sidecars(s->archive, &options, &save, err);
    cli_progress_end(&progress);
    return status;
}

/* The paths of what was written. */
static void digest_sidecars_tell(const digest_state *s) {
    heft__json_out json;
    cli_text line = {0};
    if (s->args->json) {
        cli_json_begin(&json, false);
        heft__json_out_object(&json);
        cli_json_text(&json, "path", s->path);
        heft__json_out_key(&json, "sidecars", SIZE_MAX);
        heft__json_out_array(&json);
    }
    for (uint32_t i = 0; i < heft_archive_file_count(s->archive); i++) {
        heft_file file;
        if (heft_archive_file(s->archive, i, &file, NULL) != HEFT_OK) continue;
        line.len = 0;
        cli_text_str(&line, file.path);
        cli_text_str(&line, ".xxh3.json");
        if (s->args->json) {
            heft__json_out_string(&json, line.data, line.len);
            continue;
        }
        line.len = 0;
        cli_text_escaped(&line, file.path, strlen(file.path));
        cli_text_str(&line, ".xxh3.json");
        if (!s->args->quiet) cli_print(&line);
    }
    if (s->args->json) {
        heft__json_out_array_end(&json);
        heft__json_out_object_end(&json);
        cli_json_end(&json);
    }
    cli_text_free(&line);
}

/* ---- the command ------------------------------------------------------------------------------------------------- */

static bool digest_arguments_agree(const cli_args *args) {
    const struct {
        bool wrong;
        const char *why;
    } rules[] = {
        {args->sha256 && args->noperands > 1, "--sha256 is of whole files: a GLOB does not go with it"},
        {args->sha256 && args->data, "--data is of tensors, --sha256 of files: one of them"},
        {args->output && args->noperands > 1,
         "--output is of whole files, as --sha256 is: a GLOB does not go with it"},
        {args->output && args->data, "--output is of files, as --sha256 is, and --data of tensors: one of them"},
        {args->output && args->sidecar, "--output and --sidecar write different files: one of them"},
        {args->sidecar && (args->sha256 || args->data),
         "--sidecar writes all digests: --sha256 and --data do not go with it"},
        {args->sidecar && args->noperands > 1, "--sidecar is of all tensors of a file: a GLOB does not go with it"},
        {args->no_sync && !args->sidecar, "--no-sync is of files that are written: it goes with --sidecar"},
        {args->cache && !args->sha256 && !args->output, "--cache is of SHA-256 of files: it goes with --sha256 or --output"},
        {args->output && args->json, "--output is in the form of sha256sum: --json does not go with it"},
    };
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        if (!rules[i].wrong) continue;
        cli_usage_error("digest", "%s", rules[i].why);
        return false;
    }
    return true;
}

int cli_digest(const cli_args *args) {
    digest_state s = {.args = args, .path = args->operands[0]};
    heft_error err;
    if (!digest_arguments_agree(args)) return CLI_USAGE;
    int code = cli_digest_cache_open("digest", args, &s.cache);
    if (code != CLI_OK) return code;
    if (cli_open(args, s.path, &s.archive, &err) != HEFT_OK)
        return cli_digest_cache_close(args, s.cache, cli_fail(s.path, &err));
    cli_warn(args, s.path, s.archive);
    bool files = args->sha256 || args->output; /* what is written to a file is in the form of sha256sum */
    heft_status status = args->sidecar ? digest_sidecars(&s, &err)
                         : files       ? digest_files(&s, &err)
                                       : digest_tensors(&s, &err);
    if (status == HEFT_OK && args->sidecar) digest_sidecars_tell(&s);
    code = cli_digest_cache_close(args, s.cache, status == HEFT_OK ? CLI_OK : cli_fail(s.path, &err));
    free(s.digests);
    free(s.sums);
    heft_buffer_release(&s.picked);
    heft_archive_unref(s.archive);
    return code;
}
