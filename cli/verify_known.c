/* cli: digests that heft verify compares with: sidecars of files, and manifests as sha256sum writes them. */
#include "copier.h"
#include "verify.h"

#include "base/json.h"

#include <stdlib.h>
#include <string.h>

#define KNOWN_SIDECAR_LIMIT (UINT64_C(256) << 20)
#define KNOWN_MANIFEST_LIMIT (UINT64_C(16) << 20)

static int known_complain(const char *path, const char *why) {
    cli_text line = {0};
    cli_text_str(&line, why);
    cli_complain_of(path, &line);
    cli_text_free(&line);
    return CLI_BAD_FILE;
}

static int known_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* ---- sidecars ---------------------------------------------------------------------------------------------------- */

typedef struct known_side {
    verify_state *s;
    uint32_t file; /* that is looked at */
    char *text;
    size_t len;
    uint64_t *row_of; /* of each tensor of the archive its row, and 1 more */
    uint8_t (*known)[16];
    bool *has; /* of rows */
    uint64_t nbytes;
} known_side;

static bool known_hex(const heft__json_token *token, uint8_t out[16]) {
    if (token->type != HEFT__JSON_STRING || token->escaped || token->len != 32) return false;
    for (size_t i = 0; i < 32; i += 2) {
        int high = known_digit(token->text[i]), low = known_digit(token->text[i + 1]);
        if (high < 0 || low < 0) return false;
        out[i / 2] = (uint8_t)(high << 4 | low);
    }
    return true;
}

/* The object of names and digests; its rows without a verdict get them. */
static bool known_tensors(known_side *side, heft__json *json) {
    heft__json_token key, value;
    while (heft__json_next(json, &key) == HEFT__JSON_KEY) {
        uint8_t digest[16];
        uint64_t id;
        heft_tensor tensor;
        char *name = side->text + (key.text - side->text); /* its value is made in place */
        heft__json_next(json, &value);
        if (!known_hex(&value, digest)) return false;
        size_t len = heft__json_unescape(&key, name);
        if (heft_archive_find(side->s->archive, name, len, &id, NULL) != HEFT_OK || !side->row_of[id]) continue;
        uint64_t row = side->row_of[id] - 1;
        if (heft_archive_get(side->s->archive, id, &tensor, NULL) != HEFT_OK || tensor.file != side->file) continue;
        if (side->s->verdicts[row] != HEFT_VERDICT_ABSENT) continue;
        memcpy(side->known[row], digest, sizeof digest);
        side->has[row] = true;
    }
    return key.type == HEFT__JSON_OBJECT_END;
}

/* NULL, or what is wrong. */
static const char *known_read(known_side *side) {
    static const char bad[] = "not a sidecar of digests as heft writes it";
    heft__json json;
    heft__json_token key, value;
    bool algorithm = false, tensors = false;
    side->nbytes = HEFT_NONE;
    heft__json_init(&json, side->text, side->len);
    if (heft__json_next(&json, &key) != HEFT__JSON_OBJECT) return bad;
    while (heft__json_next(&json, &key) == HEFT__JSON_KEY) {
        heft__json_next(&json, &value);
        if (heft__json_equals(&key, "algorithm", 9)) {
            if (value.type != HEFT__JSON_STRING) return bad;
            if (!heft__json_equals(&value, CLI_DIGEST_ALGORITHM, strlen(CLI_DIGEST_ALGORITHM)))
                return "its digests are of an algorithm that this heft does not know";
            algorithm = true;
        } else if (heft__json_equals(&key, "file_nbytes", 11)) {
            if (value.type != HEFT__JSON_NUMBER || !heft__json_u64(&value, &side->nbytes)) return bad;
        } else if (heft__json_equals(&key, "tensors", 7)) {
            if (value.type != HEFT__JSON_OBJECT || tensors || !known_tensors(side, &json)) return bad;
            tensors = true;
        } else if (!heft__json_skip(&json, &value)) {
            return bad;
        }
    }
    if (key.type != HEFT__JSON_OBJECT_END || heft__json_next(&json, &key) != HEFT__JSON_END) return bad;
    return algorithm && tensors ? NULL : bad;
}

/* The sidecar of one file, if there is one. */
static int known_sidecar(known_side *side, const heft_file *file) {
    heft_error err;
    cli_text path = {0};
    int code = CLI_OK;
    if (strcmp(file->path, "-") == 0) return CLI_OK;
    cli_text_str(&path, file->path);
    cli_text_put(&path, ".xxh3.json", sizeof ".xxh3.json");
    if (cli_read_text(path.data, KNOWN_SIDECAR_LIMIT, &side->text, &side->len, &err) == HEFT_OK) {
        const char *why = known_read(side);
        if (why) code = known_complain(path.data, why);
        else side->s->resized[side->file] = side->nbytes != HEFT_NONE && side->nbytes != file->nbytes;
        heft__free(&heft__default_allocator, side->text, side->len + 1);
    } else if (err.status != HEFT_NOT_FOUND) {
        code = cli_fail(path.data, &err);
    }
    cli_text_free(&path);
    return code;
}

/* Whether a row of this file has no verdict: else its sidecar has nothing to say. */
static bool known_wanted(const verify_state *s, uint32_t file) {
    for (uint64_t i = 0; i < s->n; i++) {
        heft_tensor tensor;
        if (s->verdicts[i] == HEFT_VERDICT_ABSENT && heft_archive_get(s->archive, s->ids[i], &tensor, NULL) == HEFT_OK &&
            tensor.file == file)
            return true;
    }
    return false;
}

static int known_compare(known_side *side, const heft_read_options *options) {
    verify_state *s = side->s;
    uint64_t n = 0;
    heft_error err;
    uint64_t *ids = calloc((size_t)s->n + 1, sizeof *ids);
    uint8_t(*found)[16] = calloc((size_t)s->n + 1, sizeof *found);
    if (!ids || !found) cli_die_memory();
    for (uint64_t i = 0; i < s->n; i++)
        if (side->has[i]) ids[n++] = s->ids[i];
    heft_status status = n ? heft_archive_digests(s->archive, ids, n, options, found, NULL, &err) : HEFT_OK;
    for (uint64_t i = 0, k = 0; i < s->n && status == HEFT_OK; i++) {
        if (!side->has[i]) continue;
        s->verdicts[i] = memcmp(side->known[i], found[k++], 16) == 0 ? HEFT_VERDICT_GOOD : HEFT_VERDICT_BAD;
        s->beside[i] = true;
    }
    free(ids);
    free(found);
    return status == HEFT_OK ? CLI_OK : cli_fail(s->path, &err);
}

int cli_verify_sidecars(verify_state *s, const heft_read_options *options) {
    known_side side = {.s = s};
    int code = CLI_OK;
    side.row_of = calloc((size_t)heft_archive_count(s->archive) + 1, sizeof *side.row_of);
    side.known = calloc((size_t)s->n + 1, sizeof *side.known);
    side.has = calloc((size_t)s->n + 1, sizeof *side.has);
    if (!side.row_of || !side.known || !side.has) cli_die_memory();
    for (uint64_t i = 0; i < s->n; i++) side.row_of[s->ids[i]] = i + 1;
    for (; side.file < heft_archive_file_count(s->archive) && code == CLI_OK; side.file++) {
        heft_file file;
        if (known_wanted(s, side.file) && heft_archive_file(s->archive, side.file, &file, NULL) == HEFT_OK)
            code = known_sidecar(&side, &file);
    }
    if (code == CLI_OK) code = known_compare(&side, options);
    free(side.row_of);
    free(side.known);
    free(side.has);
    return code;
}

/* ---- manifests --------------------------------------------------------------------------------------------------- */

typedef struct known_sum {
    const char *digits, *name; /* 64 digits */
    size_t len;
    bool used;
} known_sum;

typedef struct known_sums {
    known_sum *items;
    uint64_t n, capacity;
} known_sums;

/* A name as it stands in an escaped line, made in place. */
static size_t known_unescape(char *name, size_t len) {
    size_t n = 0;
    for (size_t i = 0; i < len; i++) {
        bool escape = name[i] == '\\' && i + 1 < len;
        char c = name[escape ? ++i : i];
        name[n++] = (char)(!escape ? c : c == 'n' ? '\n' : c == 'r' ? '\r' : c);
    }
    return n;
}

/* "DIGITS  NAME", "DIGITS *NAME", "\DIGITS  NAME"; empty lines and # are passed over. False: something else. */
static bool known_line(char *line, size_t len, known_sums *sums) {
    bool escaped = len && line[0] == '\\';
    if (!len || line[0] == '#') return true;
    line += escaped, len -= escaped;
    if (len < 67 || line[64] != ' ' || (line[65] != ' ' && line[65] != '*')) return false;
    for (size_t i = 0; i < 64; i++)
        if (known_digit(line[i]) < 0) return false;
    void *items = sums->items;
    if (!heft__grow(&heft__default_allocator, &items, &sums->capacity, sums->n, sizeof *sums->items, 16)) cli_die_memory();
    sums->items = items;
    char *name = line + 66;
    size_t name_len = escaped ? known_unescape(name, len - 66) : len - 66;
    sums->items[sums->n++] = (known_sum){.digits = line, .name = name, .len = name_len};
    return true;
}

/* Whether a line's name is the path of a file, or what stands behind a slash of it. */
static bool known_is(const known_sum *sum, const char *path, size_t len) {
    return sum->len <= len && memcmp(path + len - sum->len, sum->name, sum->len) == 0 &&
           (sum->len == len || path[len - sum->len - 1] == '/');
}

static bool known_same(const char *a, const char *b) {
    for (size_t i = 0; i < 64; i++)
        if (known_digit(a[i]) != known_digit(b[i])) return false;
    return true;
}

/* The line of the longest name that fits; of several for one name all have to hold. */
static int known_file(verify_state *s, known_sums *sums, uint32_t number) {
    heft_file file;
    heft_error err;
    char found[65];
    size_t longest = 0;
    if (heft_archive_file(s->archive, number, &file, &err) != HEFT_OK) return cli_fail(s->path, &err);
    const char *path = file.path;
    size_t len = strlen(path);
    for (uint64_t i = 0; i < sums->n; i++)
        if (sums->items[i].len > longest && known_is(&sums->items[i], path, len)) longest = sums->items[i].len;
    if (!longest) return CLI_OK;
    if (cli_sha256(s->args, s->archive, number, found, &err) != HEFT_OK) return cli_fail(path, &err);
    s->verdicts[number] = HEFT_VERDICT_GOOD;
    for (uint64_t i = 0; i < sums->n; i++) {
        known_sum *sum = &sums->items[i];
        if (sum->len != longest || !known_is(sum, path, len)) continue;
        sum->used = true;
        if (!known_same(sum->digits, found)) s->verdicts[number] = HEFT_VERDICT_BAD;
    }
    return CLI_OK;
}

static int known_lines(const char *path, char *text, size_t len, known_sums *sums) {
    uint64_t number = 1;
    for (size_t at = 0; at < len; number++) {
        char *end = memchr(text + at, '\n', len - at);
        size_t n = end ? (size_t)(end - text) - at : len - at;
        if (!known_line(text + at, n, sums)) {
            cli_text why = {0};
            cli_text_format(&why, "line %llu is not of the form of sha256sum", (unsigned long long)number);
            cli_complain_of(path, &why);
            cli_text_free(&why);
            return CLI_BAD_FILE;
        }
        at += n + 1;
    }
    return CLI_OK;
}

int cli_verify_manifest(verify_state *s, const char *path) {
    heft_error err;
    known_sums sums = {0};
    char *text;
    size_t len;
    if (cli_read_text(path, KNOWN_MANIFEST_LIMIT, &text, &len, &err) != HEFT_OK) return cli_fail(path, &err);
    s->n = heft_archive_file_count(s->archive);
    verify_rows(s);
    int code = known_lines(path, text, len, &sums);
    for (uint32_t i = 0; i < s->n && code == CLI_OK; i++) code = known_file(s, &sums, i);
    for (uint64_t i = 0; i < sums.n; i++) s->nother += !sums.items[i].used;
    heft__free(&heft__default_allocator, sums.items, sums.capacity * sizeof *sums.items);
    heft__free(&heft__default_allocator, text, len + 1);
    return code;
}
