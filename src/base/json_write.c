/* base: the JSON writer. */
#include "base/json_write.h"

#include "base/float_text.h"
#include "base/utf8.h"

#include <math.h>
#include <string.h>

void heft__json_out_init(heft__json_out *out, const heft_allocator *alloc, uint32_t indent, bool ascii) {
    memset(out, 0, sizeof *out);
    out->alloc = *alloc;
    out->indent = indent;
    out->ascii = ascii;
}

void heft__json_out_free(heft__json_out *out) {
    heft__free(&out->alloc, out->text, out->capacity);
    out->text = NULL;
    out->len = out->capacity = 0;
}

/* Room for `nbytes` more; false, for good, when memory runs out. */
static bool json_out_reserve(heft__json_out *out, uint64_t nbytes) {
    if (out->failed) return false;
    if (nbytes <= out->capacity - out->len) return true;
    uint64_t capacity = out->capacity ? out->capacity : 256;
    while (capacity - out->len < nbytes && capacity <= UINT64_MAX / 2) capacity *= 2;
    char *text = capacity - out->len < nbytes ? NULL : heft__realloc(&out->alloc, out->text, out->capacity, capacity);
    if (!text) {
        out->failed = true;
        return false;
    }
    out->text = text;
    out->capacity = capacity;
    return true;
}

static void json_out_put(heft__json_out *out, const char *text, size_t len) {
    if (len == 0 || !json_out_reserve(out, len)) return;
    memcpy(out->text + out->len, text, len);
    out->len += len;
}

static void json_out_line(heft__json_out *out) {
    if (out->indent == 0) return;
    json_out_put(out, "\n", 1);
    for (uint64_t i = 0; i < (uint64_t)out->depth * out->indent; i++) json_out_put(out, " ", 1);
}

/* What stands before an element: a comma, a new line; nothing after a key. */
static void json_out_element(heft__json_out *out) {
    if (out->after_key) {
        out->after_key = false;
        return;
    }
    if (out->need_comma) json_out_put(out, ",", 1);
    if (out->depth) json_out_line(out);
}

static void json_out_scalar(heft__json_out *out, const char *text, size_t len) {
    json_out_element(out);
    json_out_put(out, text, len);
    out->need_comma = true;
}

static void json_out_open(heft__json_out *out, const char *bracket) {
    json_out_element(out);
    json_out_put(out, bracket, 1);
    out->depth++;
    out->need_comma = false;
}

static void json_out_close(heft__json_out *out, const char *bracket) {
    out->depth--;
    if (out->need_comma) json_out_line(out); /* an empty container stays on its line */
    json_out_put(out, bracket, 1);
    out->need_comma = true;
}

void heft__json_out_object(heft__json_out *out) {
    json_out_open(out, "{");
}
void heft__json_out_object_end(heft__json_out *out) {
    json_out_close(out, "}");
}
void heft__json_out_array(heft__json_out *out) {
    json_out_open(out, "[");
}
void heft__json_out_array_end(heft__json_out *out) {
    json_out_close(out, "]");
}

static void json_out_unit(heft__json_out *out, uint32_t unit) {
    char form[6] = {'\\', 'u'};
    for (int i = 0; i < 4; i++) form[2 + i] = "0123456789abcdef"[unit >> (12 - 4 * i) & 15];
    json_out_put(out, form, 6);
}

static void json_out_escaped(heft__json_out *out, uint32_t code) {
    static const char from[] = "\"\\\b\f\n\r\t", to[] = "\"\\bfnrt";
    const char *known = code && code < 0x80 ? strchr(from, (int)code) : NULL;
    if (known) {
        char form[2] = {'\\', to[known - from]};
        json_out_put(out, form, 2);
    } else if (code < 0x10000) {
        json_out_unit(out, code);
    } else {
        json_out_unit(out, 0xD800 + ((code - 0x10000) >> 10));
        json_out_unit(out, 0xDC00 + ((code - 0x10000) & 0x3FF));
    }
}

static void json_out_quoted(heft__json_out *out, const char *text, size_t len) {
    json_out_put(out, "\"", 1);
    size_t plain = 0; /* where the part begins that goes out as it is */
    for (size_t at = 0; at < len;) {
        size_t n;
        uint32_t code = heft__utf8_decode(text + at, len - at, &n);
        bool bad = code == 0xFFFD && n == 1;
        if (code < 0x20 || code == '"' || code == '\\' || bad || (out->ascii && code > 0x7E)) {
            json_out_put(out, text + plain, at - plain);
            if (bad && !out->ascii)
                json_out_put(out, "\xEF\xBF\xBD", 3);
            else
                json_out_escaped(out, code);
            plain = at + n;
        }
        at += n;
    }
    json_out_put(out, text + plain, len - plain);
    json_out_put(out, "\"", 1);
}

void heft__json_out_key(heft__json_out *out, const char *key, size_t len) {
    json_out_element(out);
    json_out_quoted(out, key, len == SIZE_MAX ? strlen(key) : len);
    json_out_put(out, ": ", out->indent ? 2 : 1);
    out->after_key = true;
}

void heft__json_out_string(heft__json_out *out, const char *text, size_t len) {
    json_out_element(out);
    json_out_quoted(out, text, len == SIZE_MAX ? strlen(text) : len);
    out->need_comma = true;
}

void heft__json_out_u64(heft__json_out *out, uint64_t value) {
    char text[24];
    size_t at = sizeof text;
    do {
        text[--at] = (char)('0' + value % 10);
        value /= 10;
    } while (value);
    json_out_scalar(out, text + at, sizeof text - at);
}

void heft__json_out_double(heft__json_out *out, double value) {
    char text[32];
    if (!isfinite(value))
        heft__json_out_null(out);
    else
        json_out_scalar(out, text, heft__double_text(value, text));
}

void heft__json_out_bool(heft__json_out *out, bool value) {
    json_out_scalar(out, value ? "true" : "false", value ? 4 : 5);
}
void heft__json_out_null(heft__json_out *out) {
    json_out_scalar(out, "null", 4);
}

void heft__json_out_newline(heft__json_out *out) {
    json_out_put(out, "\n", 1);
    out->need_comma = false;
}
