/* cli: files against a manifest as sha256sum writes it. */
#include "copier.h"
#include "verify.h"

#include "base/text.h"

#include <stdlib.h>
#include <string.h>

#define MANIFEST_LIMIT (UINT64_C(16) << 20)

static int manifest_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

typedef struct manifest_sum {
    const char *digits, *name; /* 64 digits */
    size_t len;
    uint64_t line;
    bool used;
} manifest_sum;

typedef struct manifest_sums {
    manifest_sum *items;
    uint64_t n, capacity;
} manifest_sums;

/* A name as it stands in an escaped line, made in place. */
static size_t manifest_unescape(char *name, size_t len) {
    size_t n = 0;
    for (size_t i = 0; i < len; i++) {
        bool escape = name[i] == '\\' && i + 1 < len;
        char c = name[escape ? ++i : i];
        name[n++] = (char)(!escape ? c : c == 'n' ? '\n' : c == 'r' ? '\r' : c);
    }
    return n;
}

/* "DIGITS  NAME", "DIGITS *NAME", "\DIGITS  NAME"; empty lines and # are passed over. False: something else. */
static bool manifest_line(char *line, size_t len, uint64_t number, manifest_sums *sums) {
    bool escaped = len && line[0] == '\\';
    if (!len || line[0] == '#') return true;
    line += escaped, len -= escaped;
    if (len < 67 || line[64] != ' ' || (line[65] != ' ' && line[65] != '*')) return false;
    for (size_t i = 0; i < 64; i++)
        if (manifest_digit(line[i]) < 0) return false;
    void *items = sums->items;
    if (!heft__grow(&heft__default_allocator, &items, &sums->capacity, sums->n, sizeof *sums->items, 16)) cli_die_memory();
    sums->items = items;
    char *name = line + 66;
    size_t name_len = escaped ? manifest_unescape(name, len - 66) : len - 66;
    sums->items[sums->n++] = (manifest_sum){.digits = line, .name = name, .len = name_len, .line = number};
    return true;
}

/* Whether a line's name is the path of a file, or what stands behind a slash of it. */
static bool manifest_is(const manifest_sum *sum, const char *path, size_t len) {
    return sum->len <= len && memcmp(path + len - sum->len, sum->name, sum->len) == 0 &&
           (sum->len == len || path[len - sum->len - 1] == '/');
}

static bool manifest_same(const char *a, const char *b) {
    for (size_t i = 0; i < 64; i++)
        if (manifest_digit(a[i]) != manifest_digit(b[i])) return false;
    return true;
}

/* The line of the longest name that fits. */
static int manifest_file(verify_state *s, manifest_sums *sums, uint32_t number) {
    heft_file file;
    heft_error err;
    cli_sum found;
    manifest_sum *longest = NULL;
    if (heft_archive_file(s->archive, number, &file, &err) != HEFT_OK) return cli_fail(s->path, &err);
    const char *path = file.path;
    size_t len = strlen(path);
    for (uint64_t i = 0; i < sums->n; i++) {
        bool longer = sums->items[i].len > (longest ? longest->len : 0);
        if (longer && manifest_is(&sums->items[i], path, len)) longest = &sums->items[i];
    }
    if (!longest) return CLI_OK;
    heft_status status = cli_sha256(s->args, s->archive, number, s->cache, false, &found, &err);
    if (status == HEFT_OK && found.cached && !manifest_same(longest->digits, found.text)) /* a bad one is looked at again */
        status = cli_sha256(s->args, s->archive, number, s->cache, true, &found, &err);
    if (status != HEFT_OK) return cli_fail(path, &err);
    longest->used = true;
    s->cached[number] = found.cached;
    s->rows[number].verdict = manifest_same(longest->digits, found.text) ? HEFT_VERDICT_GOOD : HEFT_VERDICT_BAD;
    return CLI_OK;
}

static int manifest_compare(const void *a, const void *b) {
    const manifest_sum *x = *(const manifest_sum *const *)a, *y = *(const manifest_sum *const *)b;
    int order = heft__bytes_compare(x->name, x->len, y->name, y->len);
    return order ? order : x->line < y->line ? -1 : 1;
}

/* Of two lines for one name nobody knows which counts. */
static int manifest_names_differ(const char *path, const manifest_sums *sums) {
    const manifest_sum **sorted = calloc((size_t)sums->n + 1, sizeof *sorted), *first = NULL, *again = NULL;
    if (!sorted) cli_die_memory();
    for (uint64_t i = 0; i < sums->n; i++) sorted[i] = &sums->items[i];
    qsort(sorted, (size_t)sums->n, sizeof *sorted, manifest_compare);
    for (uint64_t i = 1; i < sums->n; i++) {
        const manifest_sum *a = sorted[i - 1], *b = sorted[i];
        if (heft__bytes_compare(a->name, a->len, b->name, b->len) != 0 || (again && again->line < b->line)) continue;
        first = a;
        again = b;
    }
    free(sorted);
    if (!again) return CLI_OK;
    cli_text why = {0};
    cli_text_format(&why, "lines %llu and %llu are both of ", (unsigned long long)first->line, (unsigned long long)again->line);
    cli_text_escaped(&why, again->name, again->len);
    cli_complain_of(path, &why);
    cli_text_free(&why);
    return CLI_BAD_FILE;
}

static int manifest_lines(const char *path, char *text, size_t len, manifest_sums *sums) {
    uint64_t number = 1;
    for (size_t at = 0; at < len; number++) {
        char *end = memchr(text + at, '\n', len - at);
        size_t n = end ? (size_t)(end - text) - at : len - at;
        if (!manifest_line(text + at, n, number, sums)) {
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
    manifest_sums sums = {0};
    char *text;
    size_t len;
    if (cli_read_text(path, MANIFEST_LIMIT, &text, &len, &err) != HEFT_OK) return cli_fail(path, &err);
    s->n = heft_archive_file_count(s->archive);
    verify_rows(s);
    int code = manifest_lines(path, text, len, &sums);
    if (code == CLI_OK) code = manifest_names_differ(path, &sums);
    for (uint32_t i = 0; i < s->n && code == CLI_OK; i++) code = manifest_file(s, &sums, i);
    for (uint64_t i = 0; i < sums.n; i++) s->nother += !sums.items[i].used;
    heft__free(&heft__default_allocator, sums.items, sums.capacity * sizeof *sums.items);
    heft__free(&heft__default_allocator, text, len + 1);
    return code;
}
