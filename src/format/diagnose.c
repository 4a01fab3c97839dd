/* format: what a file that is no checkpoint really is, said from its first bytes. */
#include "format/format.h"

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "base/utf8.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define DIAGNOSE_HEAD 4096
#define DIAGNOSE_LOOK ((uint64_t)64 << 10) /* how far past its supposed end the JSON text is followed */

typedef unsigned long long diagnose_number; /* what %llu takes */

typedef struct diagnose_file {
    heft_source *source;
    const heft_allocator *alloc;
    heft_error *err;
    uint64_t size;
    size_t n;                     /* bytes of the head */
    char head[DIAGNOSE_HEAD + 1]; /* a NUL after them */
} diagnose_file;

/* Rewrites the error as one of a wrong file. */
static bool diagnose_say(const diagnose_file *f, heft_fault kind, const char *format, ...) HEFT__PRINTF(3, 4);

static bool diagnose_say(const diagnose_file *f, heft_fault kind, const char *format, ...) {
    char text[sizeof f->err->message];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    heft__fail(f->err, HEFT_CORRUPT, kind, "%s", text);
    heft__error_at(f->err, 0, HEFT_NONE, HEFT_NONE);
    return true;
}

static bool diagnose_starts(const diagnose_file *f, size_t at, const char *magic, size_t len) {
    return at + len <= f->n && memcmp(f->head + at, magic, len) == 0;
}

static bool diagnose_is_blank(char c) {
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

/* The first eight bytes may be of a text in UTF-8. Read as the length of a header they are beyond any file. */
static bool diagnose_is_text(const diagnose_file *f) {
    for (size_t i = 0; i < 8; i++)
        if (((uint8_t)f->head[i] < 0x20 && !diagnose_is_blank(f->head[i])) || f->head[i] == 0x7F) return false;
    return heft__utf8_check(f->head, 8) >= 5; /* a character may be cut at the end */
}

static char diagnose_lower(char c) {
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

/* Where `what` (lower case) stands in the head from `at` on, in either case; SIZE_MAX: nowhere. */
static size_t diagnose_find(const diagnose_file *f, size_t at, const char *what) {
    size_t len = strlen(what);
    for (; at + len <= f->n; at++) {
        size_t i = 0;
        while (i < len && diagnose_lower(f->head[at + i]) == what[i]) i++;
        if (i == len) return at;
    }
    return SIZE_MAX;
}

/* The text from `at` up to `end`, blanks at both ends left out and runs of blanks joined, escaped and quoted for a
 * message:
 * `, what "text"`. Nothing if it is empty. */
static void diagnose_quote(const diagnose_file *f, size_t at, size_t end, const char *what, char *dst, size_t size) {
    char plain[300], escaped[300];
    size_t n = 0;
    for (; at < end && n < sizeof plain; at++) {
        bool blank = diagnose_is_blank(f->head[at]);
        if (blank && (n == 0 || plain[n - 1] == ' ')) continue;
        plain[n++] = blank ? ' ' : f->head[at];
    }
    while (n > 0 && plain[n - 1] == ' ') n--;
    heft__escape(escaped, sizeof escaped, plain, n);
    dst[0] = 0;
    if (n) snprintf(dst, size, ", %s \"%s\"", what, escaped);
}

/* ---- texts --------------------------------------------------------------------------------------------------------
 */

/* The value of a line "key value" of a pointer file, as at most `size` - 1 plain characters. */
static void diagnose_lfs_value(const diagnose_file *f, const char *key, char *dst, size_t size) {
    size_t at = diagnose_find(f, 0, key), n = 0;
    dst[0] = 0;
    if (at == SIZE_MAX) return;
    for (at += strlen(key); at < f->n && n + 1 < size && f->head[at] > ' ' && f->head[at] < 0x7F; at++)
        dst[n++] = f->head[at];
    dst[n] = 0;
}

static bool diagnose_lfs(const diagnose_file *f) {
    static const char magic[] = "version https://git-lfs.github.com/spec/v1";
    char oid[80], size[24];
    if (!diagnose_starts(f, 0, magic, sizeof magic - 1)) return false;
    diagnose_lfs_value(f, "\noid sha256:", oid, sizeof oid);
    diagnose_lfs_value(f, "\nsize ", size, sizeof size);
    return diagnose_say(f, HEFT_FAULT_LFS_POINTER,
                        "a Git LFS pointer, not the file itself: the real one has %s bytes and sha256 %s",
                        size[0] ? size : "?", oid[0] ? oid : "?");
}

static bool diagnose_html(const diagnose_file *f) {
    char title[340] = "";
    size_t at = 0;
    if (diagnose_starts(f, 0, "\xEF\xBB\xBF", 3)) at = 3;
    while (at < f->n && diagnose_is_blank(f->head[at])) at++;
    if (at == f->n || f->head[at] != '<' || !diagnose_is_text(f)) return false;
    static const char *const tags[][2] = {{"<title", "title"}, {"<message", "message"}, {"<h1", "heading"}};
    for (size_t i = 0; i < 3 && !title[0]; i++) {
        size_t open = diagnose_find(f, at, tags[i][0]);
        const char *text = open == SIZE_MAX ? NULL : memchr(f->head + open, '>', f->n - open);
        if (!text) continue;
        size_t from = (size_t)(text - f->head) + 1;
        const char *end = memchr(f->head + from, '<', f->n - from);
        diagnose_quote(f, from, end ? (size_t)(end - f->head) : f->n, tags[i][1], title, sizeof title);
    }
    bool xml = diagnose_find(f, at, "<?xml") == at && diagnose_find(f, at, "<html") == SIZE_MAX;
    return diagnose_say(f, HEFT_FAULT_HTML_PAGE, "an %s saved in place of the file, likely of an error or a login%s",
                        xml ? "XML answer" : "HTML page", title);
}

/* The first string under one of the usual names of an error message, at any depth. */
static bool diagnose_json_message(const diagnose_file *f, char *dst, size_t size) {
    static const char *const names[] = {"message", "error", "detail", "error_description", "title"};
    heft__json json;
    heft__json_token token;
    bool wanted = false;
    heft__json_init(&json, f->head, f->n);
    for (;;) {
        heft__json_type type = heft__json_next(&json, &token);
        if (type == HEFT__JSON_ERROR || type == HEFT__JSON_END) return false;
        if (type == HEFT__JSON_STRING && wanted) break;
        wanted = false;
        if (type != HEFT__JSON_KEY) continue;
        for (size_t i = 0; i < sizeof names / sizeof *names; i++)
            wanted |= heft__json_equals(&token, names[i], strlen(names[i]));
    }
    char value[DIAGNOSE_HEAD], escaped[400];
    heft__escape(escaped, sizeof escaped, value, heft__json_unescape(&token, value));
    snprintf(dst, size, ": \"%s\"", escaped);
    return true;
}

static bool diagnose_json(const diagnose_file *f) {
    char message[440] = "";
    size_t at = 0;
    while (at < f->n && diagnose_is_blank(f->head[at])) at++;
    if (at == f->n || f->head[at] != '{' || !diagnose_is_text(f)) return false;
    if (diagnose_json_message(f, message, sizeof message))
        return diagnose_say(f, HEFT_FAULT_JSON_ERROR, "a JSON answer of a server saved in place of the file%s",
                            message);
    diagnose_quote(f, at, f->n < at + 120 ? f->n : at + 120, "which begins", message, sizeof message);
    if (f->size <= DIAGNOSE_HEAD)
        return diagnose_say(f, HEFT_FAULT_JSON_ERROR, "a short JSON text, likely an answer of a server%s", message);
    return diagnose_say(f, HEFT_FAULT_TEXT, "a JSON text, not a tensor file%s", message);
}

static bool diagnose_text(const diagnose_file *f) {
    char line[340];
    size_t at = diagnose_starts(f, 0, "\xEF\xBB\xBF", 3) ? 3 : 0, end;
    if (!diagnose_is_text(f)) return false;
    while (at < f->n && diagnose_is_blank(f->head[at])) at++;
    end = at;
    while (end < f->n && f->head[end] != '\n' && f->head[end] != '\r') end++;
    diagnose_quote(f, at, end, "which begins", line, sizeof line);
    return diagnose_say(f, HEFT_FAULT_TEXT, "a text file%s", line);
}

static bool diagnose_utf16(const diagnose_file *f) {
    bool little = diagnose_starts(f, 0, "\xFF\xFE", 2), big = diagnose_starts(f, 0, "\xFE\xFF", 2);
    size_t at = little || big ? 2 : 0, n = 0;
    char line[120], escaped[200];
    if (!little && !big) little = f->head[0] != 0;
    for (; at + 2 <= f->n && n < sizeof line; at += 2) {
        char low = f->head[little ? at : at + 1], high = f->head[little ? at + 1 : at];
        if (high != 0 || (low < ' ' && !diagnose_is_blank(low)) || (uint8_t)low > '~') break;
        if (n > 0 && (low == '\n' || low == '\r')) break;
        line[n++] = low;
    }
    if (n < 4) return false; /* fewer are met by chance */
    heft__escape(escaped, sizeof escaped, line, n);
    return diagnose_say(f, HEFT_FAULT_TEXT, "a UTF-16 text file, which begins \"%s\"", escaped);
}

/* ---- magic numbers ------------------------------------------------------------------------------------------------
 */

static bool diagnose_zip(const diagnose_file *f) {
    if (!diagnose_starts(f, 0, "PK\x03\x04", 4)) return false;
    if (f->n < 30) return diagnose_say(f, HEFT_FAULT_ZIP, "a zip archive that ends inside its first member");
    size_t len = (size_t)(uint8_t)f->head[26] | (size_t)(uint8_t)f->head[27] << 8;
    if (len > f->n - 30) len = f->n - 30;
    const char *name = f->head + 30;
    char escaped[200];
    heft__escape(escaped, sizeof escaped, name, len);
    if (len >= 4 && memcmp(name + len - 4, ".npy", 4) == 0) return false; /* an npz: what its scan says is better */
    bool torch = len >= 9 && memcmp(name + len - 9, "/data.pkl", 9) == 0;
    return diagnose_say(f, HEFT_FAULT_ZIP, "a zip archive, %s (first member \"%s\")",
                        torch ? "by its members a PyTorch checkpoint" : "of what kind its first member does not tell",
                        escaped);
}

static bool diagnose_pickle(const diagnose_file *f) {
    static const char torch[] =
        "\x8A\x0A\x6C\xFC\x9C\x46\xF9\x20\x6A\xA8\x50\x19."; /* its magic number, a pickle of its own */
    const char *h = f->head;
    if (h[0] != '\x80' || h[1] < 2 || h[1] > 5 || h[2] == 0) return false;
    if (h[2] != '\x95' && !h[3] && !h[4] && !h[5] && !h[6] && !h[7]) return false; /* a length; \x95 begins a frame */
    return diagnose_say(f, HEFT_FAULT_PICKLE, "a Python pickle (protocol %d)%s; heft executes none", h[1],
                        diagnose_starts(f, 2, torch, sizeof torch - 1) ? ", a PyTorch checkpoint of the old kind" : "");
}

static bool diagnose_magic(const diagnose_file *f) {
    static const struct {
        const char *magic, *what;
        size_t at, len;
        heft_fault kind;
    } rows[] = {
        {"\x1F\x8B\x08", "gzip-compressed data", 0, 3, HEFT_FAULT_COMPRESSED},
        {"BZh", "bzip2-compressed data", 0, 3, HEFT_FAULT_COMPRESSED},
        {"\xFD"
         "7zXZ\0",
         "xz-compressed data", 0, 6, HEFT_FAULT_COMPRESSED},
        {"\x28\xB5\x2F\xFD", "zstd-compressed data", 0, 4, HEFT_FAULT_COMPRESSED},
        {"GGUF", "a GGUF file", 0, 4, HEFT_FAULT_OTHER_FORMAT},
        {"\x89HDF\r\n\x1A\n", "an HDF5 file", 0, 8, HEFT_FAULT_OTHER_FORMAT},
        {"ustar", "a tar archive", 257, 5, HEFT_FAULT_OTHER_FORMAT},
        {"\x89PNG", "a PNG image", 0, 4, HEFT_FAULT_NOT_TENSORS},
        {"\xFF\xD8\xFF", "a JPEG image", 0, 3, HEFT_FAULT_NOT_TENSORS},
        {"%PDF", "a PDF document", 0, 4, HEFT_FAULT_NOT_TENSORS},
        {"\x7F"
         "ELF",
         "an ELF program or library", 0, 4, HEFT_FAULT_NOT_TENSORS},
        {"RIFF", "a RIFF file (sound, video or image)", 0, 4, HEFT_FAULT_NOT_TENSORS},
        {"SAFT", "a file that begins SAFT, which is the mark of no real format", 0, 4, HEFT_FAULT_NOT_TENSORS},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (diagnose_starts(f, rows[i].at, rows[i].magic, rows[i].len))
            return diagnose_say(f, rows[i].kind, "%s, not a safetensors file", rows[i].what);
    }
    return false;
}

static bool diagnose_zeros(const diagnose_file *f) {
    for (size_t i = 0; i < f->n; i++)
        if (f->head[i]) return false;
    if (f->n == f->size)
        return diagnose_say(f, HEFT_FAULT_ZEROS, "all %llu bytes are zero: space was reserved, or a copy failed",
                            (diagnose_number)f->size);
    return diagnose_say(f, HEFT_FAULT_ZEROS, "the first %llu bytes are zero: space was reserved, or a copy failed",
                        (diagnose_number)f->n);
}

/* ---- safetensors whose header and length do not fit each other ----------------------------------------------------
 */

/* Where the JSON object that starts at byte 8 ends, counted from there; 0: not found in the first `nbytes`. *padded is
 * where the blanks after it end. */
static uint64_t diagnose_json_end(const diagnose_file *f, uint64_t nbytes, uint64_t *padded) {
    char *text = heft__alloc(f->alloc, nbytes);
    uint64_t end = 0;
    if (text && heft_source_read(f->source, 8, nbytes, text, NULL) == HEFT_OK) {
        heft__json json;
        heft__json_token token;
        heft__json_init(&json, text, (size_t)nbytes);
        while (heft__json_next(&json, &token) != HEFT__JSON_ERROR && json.depth > 0) continue;
        if (token.type == HEFT__JSON_OBJECT_END) end = json.pos;
        for (*padded = end; *padded < nbytes && diagnose_is_blank(text[*padded]);) ++*padded;
    }
    heft__free(f->alloc, text, nbytes);
    return end;
}

/* The length field or the text is wrong: says which, if the object's real end can be found. */
static bool diagnose_length(const diagnose_file *f) {
    heft_error *err = f->err;
    uint64_t n = 0, at = err->offset, present = f->size - 8;
    for (int i = 7; i >= 0; i--) n = n << 8 | (uint8_t)f->head[i];
    bool inside = err->fault == HEFT_FAULT_UTF8 || err->fault == HEFT_FAULT_JSON_SYNTAX;
    uint64_t look = (inside ? n : 0) + DIAGNOSE_LOOK;
    uint64_t padded = 0, end = diagnose_json_end(f, look < present ? look : present, &padded);
    bool cut_in_padding = padded == present && (padded > end || n - end < 8);
    if (err->fault == HEFT_FAULT_TRUNCATED && cut_in_padding) return false;
    if (end == 0 || (end <= n && n <= padded) || (inside && end <= n && 8 + end > at)) return false;
    if (err->fault == HEFT_FAULT_JSON_SYNTAX && end <= n) { /* something readable follows: garbage as well as data */
        char c = 0;
        if (heft_source_read(f->source, at, 1, &c, NULL) || (c > ' ' && c <= '~')) return false;
    }
    heft__fail(err, err->status, HEFT_FAULT_HEADER_LENGTH,
               "the header length says %llu, but the JSON object ends at offset %llu: a length of %llu would fit",
               (diagnose_number)n, 8 + (diagnose_number)end, (diagnose_number)end);
    heft__error_at(err, inside ? at : 0, end, n);
    return true;
}

/* ---- all of them --------------------------------------------------------------------------------------------------
 */

/* Byte 8 begins a JSON object and the eight before it are no text: a header, whatever is wrong with it. */
static bool diagnose_is_header(const diagnose_file *f) {
    size_t at = 8;
    while (at < f->n && diagnose_is_blank(f->head[at])) at++;
    return !diagnose_is_text(f) && at < f->n && f->head[at] == '{';
}

static bool diagnose_is_of_header(heft_fault kind) {
    return kind == HEFT_FAULT_HEADER_LIMIT || kind == HEFT_FAULT_TRUNCATED || kind == HEFT_FAULT_UTF8 ||
           kind == HEFT_FAULT_JSON_SYNTAX;
}

bool heft__diagnose(heft_source *source, const heft_allocator *alloc, heft_error *err) {
    diagnose_file f;
    f.source = source;
    f.alloc = alloc;
    f.err = err;
    f.size = heft_source_size(source);
    f.n = f.size < DIAGNOSE_HEAD ? (size_t)f.size : DIAGNOSE_HEAD;
    if (f.n < 8 || !diagnose_is_of_header(err->fault) || heft_source_read(source, 0, f.n, f.head, NULL)) return false;
    f.head[f.n] = 0;
    if (diagnose_is_header(&f)) return diagnose_length(&f);
    return diagnose_zeros(&f) || diagnose_lfs(&f) || diagnose_html(&f) || diagnose_json(&f) || diagnose_zip(&f) ||
           diagnose_pickle(&f) || diagnose_magic(&f) || diagnose_utf16(&f) || diagnose_text(&f);
}
