/* cli: heft verify: are tensors and files what their digests say? */
#include "copier.h" /* cli_complain_of */
#include "verify.h"

#include <stdlib.h>
#include <string.h>

#define VERIFY_ROWS 20 /* on a terminal */

/* ---- tensors ----------------------------------------------------------------------------------------------------- */

/* CLI_OK, or the exit code of what was said. */
static int verify_tensors(verify_state *s) {
    heft_error err;
    cli_progress progress;
    heft_read_options options = cli_read_options(s->args);
    heft_selection selection = {.struct_size = sizeof selection, .include = s->args->include.items,
                                .ninclude = s->args->include.n, .exclude = s->args->exclude.items,
                                .nexclude = s->args->exclude.n, .order = HEFT_ORDER_NATURAL};
    heft_status status = heft_archive_select(s->archive, &selection, &s->picked, &s->n, &err);
    if (status != HEFT_OK) return cli_fail(s->path, &err);
    s->ids = s->picked.data;
    verify_rows(s);
    cli_progress_start(&progress, s->args->quiet || s->args->json);
    options.progress = cli_progress_step;
    options.progress_ctx = &progress;
    status = heft_archive_verify(s->archive, s->ids, s->n, &options, s->rows, s->wholes, &err);
    cli_progress_end(&progress);
    bool told = status == HEFT_OK || status == HEFT_NOT_FOUND || (status == HEFT_MISMATCH && err.fault == HEFT_FAULT_CHECKSUM);
    return told ? CLI_OK : cli_fail(s->path, &err); /* the rows say so */
}

void verify_rows(verify_state *s) {
    s->rows = calloc((size_t)s->n + 1, sizeof *s->rows);
    s->cached = calloc((size_t)s->n + 1, sizeof *s->cached);
    s->wholes = calloc((size_t)heft_archive_file_count(s->archive) + 1, sizeof *s->wholes);
    if (!s->rows || !s->cached || !s->wholes) cli_die_memory();
}

/* ---- the answer -------------------------------------------------------------------------------------------------- */

static const char *const verify_words[] = {"no digest", "good", "bad"};

static void verify_count(verify_state *s) {
    for (uint64_t i = 0; i < s->n; i++) {
        s->counts[s->rows[i].verdict]++;
        s->ncached += s->cached[i];
    }
    for (uint32_t i = 0; i < heft_archive_file_count(s->archive); i++) {
        s->nmissing += s->wholes[i].nmissing;
        s->nresized += s->wholes[i].resized;
        s->nmembers += s->wholes[i].bad_member;
        s->nspoiled += s->wholes[i].data == HEFT_VERDICT_BAD;
        s->nwhole += s->wholes[i].data == HEFT_VERDICT_GOOD;
    }
}

/* What has no digest is not verified: that is never success. */
static int verify_code(const verify_state *s) {
    if (s->counts[HEFT_VERDICT_BAD] || s->nresized || s->nspoiled || s->nmembers) return CLI_NEGATIVE;
    return s->counts[HEFT_VERDICT_ABSENT] || (!s->n && !s->nwhole) ? CLI_UNREADABLE : CLI_OK;
}

/* Names that digests have and files have not: the bytes may be right all the same. */
static void verify_warn_missing(const verify_state *s) {
    heft_file file;
    for (uint32_t i = 0; i < heft_archive_file_count(s->archive); i++) {
        const heft_verified_file *whole = &s->wholes[i];
        if (!whole->nmissing || heft_archive_file(s->archive, i, &file, NULL) != HEFT_OK) continue;
        cli_text line = {0};
        cli_text_str(&line, "warning: the digests name ");
        cli_text_plural(&line, whole->nmissing, "tensor");
        cli_text_str(&line, whole->nmissing == 1 ? " that is not there: \"" : " that are not there, such as \"");
        cli_text_str(&line, whole->missing);
        cli_text_str(&line, "\"");
        cli_complain_of(file.path, &line);
        cli_text_free(&line);
    }
}

static const char *verify_verdict(int code) {
    return code == CLI_OK ? "good" : code == CLI_NEGATIVE ? "bad" : "not verified";
}

static void verify_digits(cli_text *line, const uint8_t *digest, size_t nbytes) {
    for (size_t i = 0; i < nbytes; i++) cli_text_format(line, "%02x", digest[i]);
}

/* ": expected ..., found ..." */
static void verify_why(cli_text *line, const heft_verified *row) {
    static const char *const kinds[] = {"", "expected ", "expected ", "expected CRC-32 "};
    size_t nbytes = row->by == HEFT_VERIFIED_BY_CRC32 ? 4 : 16;
    if (row->by == HEFT_VERIFIED_BY_NOTHING) return;
    cli_text_str(line, ": ");
    if (row->by == HEFT_VERIFIED_BY_DATA) {
        cli_text_str(line, "by the digest of all data of its file");
        return;
    }
    cli_text_str(line, kinds[row->by]);
    verify_digits(line, row->expected, nbytes);
    cli_text_str(line, row->damaged ? ", and its compressed data cannot be decoded" : ", found ");
    if (!row->damaged) verify_digits(line, row->found, nbytes);
}

static void verify_row(const verify_state *s, uint64_t row) {
    cli_text line = {0}, word = {0};
    heft_verdict verdict = s->rows[row].verdict;
    cli_text_format(&word, "  %-9s  ", verify_words[verdict]);
    cli_text_styled(&line, verdict == HEFT_VERDICT_BAD ? CLI_BAD : CLI_WARN, word.data, word.len);
    if (s->files) {
        heft_file file = {0};
        if (heft_archive_file(s->archive, (uint32_t)row, &file, NULL) == HEFT_OK)
            cli_text_escaped(&line, file.path, strlen(file.path));
    } else {
        heft_tensor tensor = {0};
        if (heft_archive_get(s->archive, s->ids[row], &tensor, NULL) == HEFT_OK)
            cli_text_name(&line, tensor.name, tensor.name_len);
        if (s->rows[row].by == HEFT_VERIFIED_BY_CRC32) cli_text_str(&line, ".npy"); /* its member */
        if (verdict == HEFT_VERDICT_BAD) verify_why(&line, &s->rows[row]);
    }
    cli_print(&line);
    cli_text_free(&word);
    cli_text_free(&line);
}

/* Files whose size is not what is said of them, or whose data as a whole: where no tensor says it itself. */
static void verify_wholes(const verify_state *s) {
    bool told = false;
    for (uint64_t i = 0; i < s->n; i++)
        told = told || (s->rows[i].verdict == HEFT_VERDICT_BAD && s->rows[i].by != HEFT_VERIFIED_BY_DATA);
    for (uint32_t i = 0; i < heft_archive_file_count(s->archive); i++) {
        const heft_verified_file *whole = &s->wholes[i];
        heft_file file;
        cli_text line = {0};
        bool spoiled = whole->data == HEFT_VERDICT_BAD && !told;
        if ((!whole->resized && !spoiled && !whole->bad_member) || heft_archive_file(s->archive, i, &file, NULL) != HEFT_OK)
            continue;
        if (whole->resized) {
            cli_text_styled(&line, CLI_BAD, "  bad size   ", 13);
            cli_text_escaped(&line, file.path, strlen(file.path));
            cli_text_str(&line, ": ");
            cli_text_grouped(&line, file.nbytes);
            cli_text_str(&line, " bytes, and its sidecar says ");
            cli_text_grouped(&line, whole->sidecar_nbytes);
            cli_print(&line);
        }
        if (spoiled) {
            cli_text_styled(&line, CLI_BAD, "  bad data   ", 13);
            cli_text_escaped(&line, file.path, strlen(file.path));
            cli_text_str(&line, ": all of it: expected ");
            verify_digits(&line, whole->expected, 16);
            cli_text_str(&line, ", found ");
            verify_digits(&line, whole->found, 16);
            cli_print(&line);
        }
        if (whole->bad_member) {
            cli_text_styled(&line, CLI_BAD, "  bad member ", 13);
            cli_text_escaped(&line, file.path, strlen(file.path));
            cli_text_str(&line, ": something in it that is no array does not have its CRC-32");
            cli_print(&line);
        }
        cli_text_free(&line);
    }
}

/* The bad ones, then those without a digest. */
static void verify_list(const verify_state *s) {
    uint64_t most = cli_screen_get()->terminal && !s->args->all ? VERIFY_ROWS : HEFT_NONE, shown = 0;
    static const heft_verdict order[] = {HEFT_VERDICT_BAD, HEFT_VERDICT_ABSENT};
    for (size_t k = 0; k < 2; k++)
        for (uint64_t i = 0; i < s->n; i++)
            if (s->rows[i].verdict == order[k] && shown++ < most) verify_row(s, i);
    if (shown <= most) return;
    cli_text line = {0};
    cli_text_str(&line, "  and ");
    cli_text_grouped(&line, shown - most);
    cli_text_str(&line, " more; --all lists them");
    cli_print(&line);
    cli_text_free(&line);
}

static void verify_screen(const verify_state *s, int code) {
    static const char *const words[] = {" without a digest", " good", " bad"};
    static const heft_verdict order[] = {HEFT_VERDICT_GOOD, HEFT_VERDICT_BAD, HEFT_VERDICT_ABSENT};
    cli_text line = {0};
    const char *verdict = verify_verdict(code), *comma = ": ";
    cli_text_escaped(&line, s->path, strlen(s->path));
    cli_text_str(&line, ": ");
    cli_text_styled(&line, code == CLI_OK ? CLI_GOOD : code == CLI_NEGATIVE ? CLI_BAD : CLI_WARN, verdict, strlen(verdict));
    cli_print(&line);
    if (!s->args->quiet) {
        cli_text_str(&line, "  ");
        cli_text_plural(&line, s->n, s->files ? "file" : "tensor");
        for (size_t i = 0; i < 3; i++) {
            if (!s->counts[order[i]]) continue;
            cli_text_str(&line, comma);
            cli_text_grouped(&line, s->counts[order[i]]);
            cli_text_str(&line, words[order[i]]);
            comma = ", ";
        }
        cli_print(&line);
        if (s->ncached) {
            cli_text_str(&line, "  not read: ");
            cli_text_plural(&line, s->ncached, "file");
            cli_text_str(&line, s->ncached == 1 ? ", whose digest is in " : ", whose digests are in ");
            cli_text_escaped(&line, s->args->cache, strlen(s->args->cache));
            cli_print(&line);
        }
        verify_wholes(s);
        verify_list(s);
        if (s->nother) {
            cli_text_str(&line, "  the manifest has ");
            cli_text_plural(&line, s->nother, "line");
            cli_text_str(&line, " of other files, not looked at");
            cli_print(&line);
        }
    }
    cli_text_free(&line);
}

static const char *const verify_by[] = {NULL, "metadata", "sidecar", "crc32", "data"};

static void verify_json_digest(heft__json_out *json, const char *key, const uint8_t *digest, size_t nbytes) {
    cli_text digits = {0};
    verify_digits(&digits, digest, nbytes);
    heft__json_out_key(json, key, SIZE_MAX);
    if (nbytes) heft__json_out_string(json, digits.data, digits.len);
    else heft__json_out_null(json);
    cli_text_free(&digits);
}

static void verify_json_digests(heft__json_out *json, const heft_verified *row) {
    size_t nbytes = row->by == HEFT_VERIFIED_BY_NOTHING ? 0 : row->by == HEFT_VERIFIED_BY_CRC32 ? 4 : 16;
    verify_json_digest(json, "expected", row->expected, nbytes);
    verify_json_digest(json, "found", row->found, row->damaged ? 0 : nbytes);
}

/* What is said of files as wholes. */
static void verify_json_wholes(const verify_state *s, heft__json_out *json) {
    static const char *const words[] = {"absent", "good", "bad"};
    heft__json_out_key(json, "wholes", SIZE_MAX);
    heft__json_out_array(json);
    for (uint32_t i = 0; i < heft_archive_file_count(s->archive); i++) {
        const heft_verified_file *whole = &s->wholes[i];
        heft_file file;
        if (heft_archive_file(s->archive, i, &file, NULL) != HEFT_OK) continue;
        heft__json_out_object(json);
        cli_json_text(json, "file", file.path);
        cli_json_u64(json, "nbytes", file.nbytes);
        cli_json_u64_or_null(json, "sidecar_nbytes", whole->by || whole->sidecar_nbytes ? whole->sidecar_nbytes : HEFT_NONE);
        cli_json_text(json, "verdict", words[whole->data]);
        cli_json_text_or_null(json, "by", whole->data ? verify_by[whole->by] : NULL);
        verify_json_digest(json, "expected", whole->expected, whole->by ? 16 : 0);
        verify_json_digest(json, "found", whole->found, whole->data ? 16 : 0);
        cli_json_bool(json, "bad_member", whole->bad_member);
        cli_json_u64(json, "missing", whole->nmissing);
        cli_json_text_or_null(json, "first_missing", whole->nmissing ? whole->missing : NULL);
        heft__json_out_object_end(json);
        cli_json_flush(json);
    }
    heft__json_out_array_end(json);
}

static void verify_json_row(const verify_state *s, heft__json_out *json, uint64_t row) {
    static const char *const words[] = {"absent", "good", "bad"};
    heft_verdict verdict = s->rows[row].verdict;
    heft__json_out_object(json);
    if (s->files) {
        heft_file file = {0};
        if (heft_archive_file(s->archive, (uint32_t)row, &file, NULL) == HEFT_OK) cli_json_text(json, "file", file.path);
    } else {
        heft_tensor tensor = {0};
        if (heft_archive_get(s->archive, s->ids[row], &tensor, NULL) == HEFT_OK) {
            heft__json_out_key(json, "name", SIZE_MAX);
            heft__json_out_string(json, tensor.name, tensor.name_len);
        }
    }
    cli_json_text(json, "verdict", words[verdict]);
    cli_json_text_or_null(json, "by", verdict == HEFT_VERDICT_ABSENT ? NULL : s->files ? "manifest" : verify_by[s->rows[row].by]);
    if (s->files) cli_json_bool(json, "cached", s->cached[row]);
    else verify_json_digests(json, &s->rows[row]);
    heft__json_out_object_end(json);
    cli_json_flush(json);
}

static void verify_json(const verify_state *s, int code) {
    heft__json_out json;
    cli_json_begin(&json, false);
    heft__json_out_object(&json);
    cli_json_text(&json, "path", s->path);
    cli_json_text(&json, "verdict", verify_verdict(code));
    cli_json_u64(&json, "good", s->counts[HEFT_VERDICT_GOOD]);
    cli_json_u64(&json, "bad", s->counts[HEFT_VERDICT_BAD]);
    cli_json_u64(&json, "absent", s->counts[HEFT_VERDICT_ABSENT]);
    cli_json_u64(&json, "bad_sizes", s->nresized);
    cli_json_u64(&json, "bad_data", s->nspoiled);
    cli_json_u64(&json, "bad_members", s->nmembers);
    cli_json_u64(&json, "missing", s->nmissing);
    cli_json_u64(&json, "other_lines", s->nother);
    heft__json_out_key(&json, s->files ? "files" : "tensors", SIZE_MAX);
    heft__json_out_array(&json);
    for (uint64_t i = 0; i < s->n; i++) verify_json_row(s, &json, i);
    heft__json_out_array_end(&json);
    if (!s->files) verify_json_wholes(s, &json);
    heft__json_out_object_end(&json);
    cli_json_end(&json);
}

/* ---- the command ------------------------------------------------------------------------------------------------- */

static int verify_run(verify_state *s) {
    heft_error err;
    if (cli_open(s->args, s->path, &s->archive, &err) != HEFT_OK) return cli_fail(s->path, &err);
    cli_warn(s->args, s->path, s->archive);
    int code = s->files ? cli_verify_manifest(s, s->args->operands[1]) : verify_tensors(s);
    if (code != CLI_OK) return code;
    verify_count(s);
    code = verify_code(s);
    if (s->args->json) verify_json(s, code);
    else verify_screen(s, code);
    if (s->args->strict || !s->args->quiet) verify_warn_missing(s);
    return code == CLI_OK && s->nmissing && s->args->strict ? CLI_REFUSED : code;
}

int cli_verify(const cli_args *args) {
    verify_state s = {.args = args, .path = args->operands[0], .files = args->noperands > 1};
    if (args->noperands > 2) return cli_usage_error("verify", "one path and at most one manifest: too many arguments");
    if (args->cache && !s.files)
        return cli_usage_error("verify", "--cache is of SHA-256 of files: it goes with a manifest");
    if (s.files && (args->include.n || args->exclude.n))
        return cli_usage_error("verify", "a manifest is of whole files: --include and --exclude do not go with it");
    int code = cli_digest_cache_open("verify", args, &s.cache);
    if (code == CLI_OK) code = cli_digest_cache_close(args, s.cache, verify_run(&s));
    free(s.rows);
    free(s.cached);
    free(s.wholes);
    heft_buffer_release(&s.picked);
    heft_archive_unref(s.archive);
    return code;
}
