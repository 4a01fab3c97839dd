/* base: globs, natural order, escaping and similarity of names. */
#include "base/text.h"

#include "base/utf8.h"

#include <stdio.h>
#include <string.h>

/* ---- globs ------------------------------------------------------------------------------------------------------- */

/* Where a glob is ill formed, and why; `why` stays NULL while all is well. */
typedef struct glob_fault {
    size_t at;
    const char *why;
} glob_fault;

/* One literal byte at glob[*at], `\` resolved; moves on. */
static bool glob_literal(const char *glob, size_t len, size_t *at, uint8_t *byte, glob_fault *fault) {
    size_t i = *at;
    if (glob[i] == '\\' && ++i == len) {
        *fault = (glob_fault){*at, "a backslash at the end escapes nothing"};
        return false;
    }
    *byte = (uint8_t)glob[i];
    *at = i + 1;
    return true;
}

/* Reads the set whose `[` is glob[*at] and moves past its `]`. True if `byte` is in it; false also if it is ill formed.
 */
static bool glob_set(const char *glob, size_t len, size_t *at, uint8_t byte, glob_fault *fault) {
    size_t i = *at + 1;
    bool negated = i < len && (glob[i] == '!' || glob[i] == '^'), hit = false;
    if (negated) i++;
    for (size_t first = i; i < len;) {
        if (glob[i] == ']' && i > first) {
            *at = i + 1;
            return hit != negated;
        }
        size_t start = i;
        uint8_t low, high;
        if (!glob_literal(glob, len, &i, &low, fault)) return false;
        high = low;
        if (i + 1 < len && glob[i] == '-' && glob[i + 1] != ']') {
            i++;
            if (!glob_literal(glob, len, &i, &high, fault)) return false;
            if (high < low) {
                *fault = (glob_fault){start, "a range that runs backwards"};
                return false;
            }
        }
        hit = hit || (low <= byte && byte <= high);
    }
    *fault = (glob_fault){*at, "a [ without its ]"};
    return false;
}

size_t heft__glob_check(const char *glob, size_t glob_len, const char **why) {
    glob_fault fault = {0, NULL};
    uint8_t byte;
    for (size_t i = 0; i < glob_len && !fault.why;) {
        if (glob[i] == '[')
            glob_set(glob, glob_len, &i, 0, &fault);
        else
            glob_literal(glob, glob_len, &i, &byte, &fault);
    }
    if (!fault.why) return SIZE_MAX;
    *why = fault.why;
    return fault.at;
}

/* Matches one byte against the item at glob[*at], which is no `*`; moves past the item on a match. */
static bool glob_item(const char *glob, size_t len, size_t *at, uint8_t byte) {
    glob_fault fault = {0, NULL};
    uint8_t literal;
    if (glob[*at] == '?') {
        ++*at;
        return true;
    }
    if (glob[*at] == '[') return glob_set(glob, len, at, byte, &fault);
    return glob_literal(glob, len, at, &literal, &fault) && literal == byte;
}

/* A later `*` makes every earlier one's choice final, so one place to return to is enough: for each `*` the name is
 * tried from each position at most once. */
bool heft__glob_match(const char *glob, size_t glob_len, const char *name, size_t name_len) {
    size_t g = 0, n = 0, star = SIZE_MAX, star_name = 0;
    while (n < name_len) {
        if (g < glob_len && glob[g] == '*') {
            star = ++g;
            star_name = n;
        } else if (g < glob_len && glob_item(glob, glob_len, &g, (uint8_t)name[n])) {
            n++;
        } else if (star != SIZE_MAX) {
            g = star;
            n = ++star_name;
        } else {
            return false;
        }
    }
    while (g < glob_len && glob[g] == '*') g++;
    return g == glob_len;
}

/* ---- order ------------------------------------------------------------------------------------------------------- */

static bool text_is_digit(char c) {
    return c >= '0' && c <= '9';
}

/* The digits at text[*at): moves past them, returns their number without leading zeros and sets *first to the first. */
static size_t text_number(const char *text, size_t len, size_t *at, const char **first) {
    size_t i = *at;
    while (i < len && text[i] == '0') i++;
    size_t start = i;
    while (i < len && text_is_digit(text[i])) i++;
    *at = i;
    *first = text + start;
    return i - start;
}

int heft__natural_compare(const char *a, size_t a_len, const char *b, size_t b_len) {
    size_t i = 0, j = 0;
    while (i < a_len && j < b_len) {
        if (text_is_digit(a[i]) && text_is_digit(b[j])) {
            const char *x, *y;
            size_t nx = text_number(a, a_len, &i, &x), ny = text_number(b, b_len, &j, &y);
            if (nx != ny) return nx < ny ? -1 : 1;
            int order = memcmp(x, y, nx);
            if (order) return order;
        } else {
            uint8_t x = (uint8_t)a[i++], y = (uint8_t)b[j++];
            if (x != y) return x < y ? -1 : 1;
        }
    }
    if (i < a_len) return 1;
    if (j < b_len) return -1;
    return heft__bytes_compare(a, a_len, b, b_len);
}

int heft__bytes_compare(const char *a, size_t a_len, const char *b, size_t b_len) {
    size_t n = a_len < b_len ? a_len : b_len;
    int order = n ? memcmp(a, b, n) : 0;
    if (order) return order;
    return a_len < b_len ? -1 : a_len > b_len;
}

/* ---- escaping ---------------------------------------------------------------------------------------------------- */

/* Characters beyond ASCII that are escaped: they move the cursor, turn the direction of text, or cannot be seen, so
 * that two different names would look the same. */
static bool text_is_hidden(uint32_t code) {
    static const struct {
        uint32_t first, last;
    } ranges[] = {
        {0x80, 0x9F},      /* C1 controls */
        {0xAD, 0xAD},      /* soft hyphen */
        {0x61C, 0x61C},    /* Arabic letter mark */
        {0x180E, 0x180E},  /* Mongolian vowel separator */
        {0x200B, 0x200F},  /* zero-width characters, left-to-right and right-to-left marks */
        {0x2028, 0x202E},  /* line and paragraph separators, embeddings and overrides */
        {0x2060, 0x206F},  /* word joiner, invisible operators, isolates */
        {0xFEFF, 0xFEFF},  /* byte order mark */
        {0xFFF9, 0xFFFB},  /* interlinear annotations */
        {0xE0000, 0xE0FFF} /* tags and variation selectors of the supplement */
    };
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
        if (code >= ranges[i].first && code <= ranges[i].last) return true;
    return false;
}

/* The digits of `value` in upper-case hex, at least `least` of them, written to dst; returns their number. */
static size_t text_hex(uint32_t value, size_t least, char *dst) {
    size_t n = least;
    while (n < 8 && value >> (4 * n)) n++;
    for (size_t i = 0; i < n; i++) dst[i] = "0123456789ABCDEF"[value >> (4 * (n - 1 - i)) & 15];
    return n;
}

/* The escaped form of the character at text[*at), len > *at, in dst[16]; moves past it. Returns the form's length. */
static size_t text_escape_one(const char *text, size_t len, size_t *at, char dst[16]) {
    size_t n, out = 0;
    uint32_t code = heft__utf8_decode(text + *at, len - *at, &n);
    bool bad = code == 0xFFFD && n == 1;
    if (!bad && code >= 0x20 && code != 0x7F && !text_is_hidden(code)) {
        memcpy(dst, text + *at, n);
        *at += n;
        return n;
    }
    dst[out++] = '\\';
    if (code == '\n' || code == '\t' || code == '\r') {
        dst[out++] = code == '\n' ? 'n' : code == '\t' ? 't' : 'r';
    } else if (bad || n == 1) {
        dst[out++] = 'x';
        out += text_hex((uint8_t)text[*at], 2, dst + out);
    } else {
        memcpy(dst + out, "u{", 2);
        out += 2 + text_hex(code, 2, dst + out + 2);
        dst[out++] = '}';
    }
    *at += n;
    return out;
}

size_t heft__escape(char *dst, size_t size, const char *text, size_t len) {
    if (size == 0) return 0;
    size_t out = 0, fit = 0; /* `fit`: the longest part so far that leaves room for the ellipsis */
    char form[16];
    for (size_t at = 0; at < len;) {
        size_t n = text_escape_one(text, len, &at, form);
        if (n >= size - out) {
            out = fit;
            if (size > 3) {
                memcpy(dst + out, "\xE2\x80\xA6", 3);
                out += 3;
            }
            break;
        }
        memcpy(dst + out, form, n);
        out += n;
        if (out + 3 < size) fit = out;
    }
    dst[out] = 0;
    return out;
}

size_t heft__escape_length(const char *text, size_t len) {
    size_t out = 0;
    char form[16];
    for (size_t at = 0; at < len;) out += text_escape_one(text, len, &at, form);
    return out;
}

/* ---- similarity -------------------------------------------------------------------------------------------------- */

#define TEXT_DISTANCE_MAX 256

static uint32_t text_min(uint32_t a, uint32_t b) {
    return a < b ? a : b;
}

/* Optimal string alignment within a band of `limit` cells beside the diagonal: what lies outside costs more anyway. */
static uint32_t text_distance(const char *a, size_t n, const char *b, size_t m, uint32_t limit) {
    uint32_t rows[3][TEXT_DISTANCE_MAX + 1], cap = limit + 1, before_best = cap;
    uint32_t *before = rows[0], *last = rows[1], *row = rows[2];
    for (size_t j = 0; j <= m; j++) {
        last[j] = j <= limit ? (uint32_t)j : cap;
        before[j] = cap;
    }
    for (size_t i = 1; i <= n; i++) {
        size_t from = i > limit ? i - limit : 1, to = i + limit < m ? i + limit : m;
        uint32_t best = cap;
        for (size_t j = 0; j <= m; j++) row[j] = cap;
        if (i <= limit) best = row[0] = (uint32_t)i;
        for (size_t j = from; j <= to; j++) {
            uint32_t d = text_min(text_min(last[j], row[j - 1]) + 1, last[j - 1] + (a[i - 1] != b[j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) d = text_min(d, before[j - 2] + 1);
            row[j] = text_min(d, cap);
            best = text_min(best, row[j]);
        }
        if (best > limit && before_best >= limit) return cap; /* the next row grows from these two */
        before_best = best;
        uint32_t *spare = before;
        before = last;
        last = row;
        row = spare;
    }
    return last[m];
}

uint32_t heft__edit_distance(const char *a, size_t a_len, const char *b, size_t b_len, uint32_t limit) {
    if (limit > 2 * TEXT_DISTANCE_MAX) limit = 2 * TEXT_DISTANCE_MAX;
    if ((a_len > b_len ? a_len - b_len : b_len - a_len) > limit) return limit + 1;
    while (a_len && b_len && a[a_len - 1] == b[b_len - 1]) a_len--, b_len--;
    while (a_len && b_len && *a == *b) a++, b++, a_len--, b_len--;
    if (a_len > TEXT_DISTANCE_MAX) {
        a += a_len - TEXT_DISTANCE_MAX;
        a_len = TEXT_DISTANCE_MAX;
    }
    if (b_len > TEXT_DISTANCE_MAX) {
        b += b_len - TEXT_DISTANCE_MAX;
        b_len = TEXT_DISTANCE_MAX;
    }
    return text_distance(a, a_len, b, b_len, limit);
}

/* ---- sizes ---- */

const char *heft__size_text(uint64_t nbytes, char out[HEFT__SIZE_TEXT]) {
    static const char *const units[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    unsigned i = 0;
    if (nbytes < 1024) {
        snprintf(out, HEFT__SIZE_TEXT, "%llu byte%s", (unsigned long long)nbytes, nbytes == 1 ? "" : "s");
        return out;
    }
    for (; nbytes >= (UINT64_C(1) << 20); nbytes >>= 10) i++;
    snprintf(out, HEFT__SIZE_TEXT, "%llu.%llu %s", (unsigned long long)(nbytes >> 10),
             (unsigned long long)((nbytes & 1023) * 10 >> 10), units[i]);
    return out;
}

const char *heft__size_exact(uint64_t nbytes, char out[HEFT__SIZE_TEXT]) {
    char digits[24];
    size_t n = (size_t)snprintf(digits, sizeof digits, "%llu", (unsigned long long)nbytes), at;
    heft__size_text(nbytes, out);
    if (nbytes < 1024) return out;
    at = strlen(out);
    out[at++] = ' ';
    out[at++] = '(';
    for (size_t i = 0; i < n; i++) {
        if (i && (n - i) % 3 == 0) out[at++] = ',';
        out[at++] = digits[i];
    }
    snprintf(out + at, HEFT__SIZE_TEXT - at, " bytes)");
    return out;
}
