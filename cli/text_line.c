/* cli: a growing line of text, with numbers, sizes and escaped names put in. */
#include "cli.h"

#include "base/text.h"
#include "base/utf8.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char *line_room(cli_text *text, size_t more) {
    if (text->capacity - text->len < more) {
        size_t capacity = text->capacity ? text->capacity : 256;
        while (capacity - text->len < more) {
            if (capacity > SIZE_MAX / 2) cli_die_memory();
            capacity *= 2;
        }
        char *data = realloc(text->data, capacity);
        if (!data) cli_die_memory();
        text->data = data;
        text->capacity = capacity;
    }
    return text->data + text->len;
}

void cli_text_put(cli_text *text, const char *bytes, size_t len) {
    if (len == 0) return;
    memcpy(line_room(text, len), bytes, len);
    text->len += len;
}

void cli_text_str(cli_text *text, const char *string) {
    cli_text_put(text, string, strlen(string));
}

void cli_text_u64(cli_text *text, uint64_t value) {
    char digits[20];
    size_t n = sizeof digits;
    do {
        digits[--n] = (char)('0' + value % 10);
        value /= 10;
    } while (value);
    cli_text_put(text, digits + n, sizeof digits - n);
}

void cli_text_grouped(cli_text *text, uint64_t value) {
    char digits[27];
    size_t n = sizeof digits, written = 0;
    do {
        if (written && written % 3 == 0) digits[--n] = ',';
        digits[--n] = (char)('0' + value % 10);
        value /= 10;
        written++;
    } while (value);
    cli_text_put(text, digits + n, sizeof digits - n);
}

/* value / unit with one decimal, rounded half up; no floating point, so no locale. */
static void line_tenths(cli_text *text, uint64_t value, uint64_t unit) {
    uint64_t whole = value / unit, rest = value % unit;
    /* rest * 10 cannot overflow: unit is at most 2^60. */
    uint64_t tenths = (rest * 10 + unit / 2) / unit;
    if (tenths == 10) {
        whole++;
        tenths = 0;
    }
    cli_text_u64(text, whole);
    cli_text_put(text, ".", 1);
    cli_text_u64(text, tenths);
}

static void line_scaled(cli_text *text, uint64_t value, uint64_t base, const char *const *units, size_t nunits) {
    uint64_t unit = base;
    size_t i = 0;
    /* 1023.95 would print as 1024.0: then the next unit. */
    while (i + 1 < nunits && value / unit >= base - 1 && (value / unit >= base || value % unit >= unit - unit / 20)) {
        unit *= base;
        i++;
    }
    line_tenths(text, value, unit);
    cli_text_put(text, " ", 1);
    cli_text_str(text, units[i]);
}

void cli_text_size(cli_text *text, uint64_t nbytes) {
    static const char *const units[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    if (nbytes < 1024) {
        cli_text_u64(text, nbytes);
        cli_text_put(text, " B", 2);
        return;
    }
    line_scaled(text, nbytes, 1024, units, sizeof units / sizeof *units);
}

void cli_text_count(cli_text *text, uint64_t count) {
    static const char *const units[] = {"k", "M", "G", "T", "P", "E"};
    if (count < 1000) {
        cli_text_u64(text, count);
        return;
    }
    line_scaled(text, count, 1000, units, sizeof units / sizeof *units);
}

void cli_text_fixed(cli_text *text, double value, uint32_t decimals) {
    uint64_t unit = 1;
    for (uint32_t i = 0; i < decimals; i++) unit *= 10;
    double scaled = value * (double)unit + 0.5;
    uint64_t whole = scaled < 1e18 ? (uint64_t)scaled : UINT64_C(1000000000000000000);
    char digits[12];
    cli_text_u64(text, whole / unit);
    if (!decimals) return;
    snprintf(digits, sizeof digits, ".%0*lu", (int)decimals, (unsigned long)(whole % unit));
    cli_text_str(text, digits);
}

void cli_text_seconds(cli_text *text, double seconds) {
    if (seconds < 0.0009995) {
        cli_text_fixed(text, seconds * 1e6, 0);
        cli_text_str(text, " us");
    } else if (seconds < 0.9995) {
        cli_text_fixed(text, seconds * 1e3, seconds < 0.09995 ? 1 : 0);
        cli_text_str(text, " ms");
    } else {
        cli_text_fixed(text, seconds, 2);
        cli_text_str(text, " s");
    }
}

void cli_text_rate(cli_text *text, uint64_t nbytes, double seconds) {
    cli_text_fixed(text, seconds > 0 ? (double)nbytes / seconds / 1e9 : 0, 2);
    cli_text_str(text, " GB/s");
}

void cli_text_percent(cli_text *text, uint64_t part, uint64_t whole) {
    if (whole == 0) {
        cli_text_str(text, "0.0 %");
        return;
    }
    while (part > UINT64_MAX / 1001) {
        part /= 2;
        whole /= 2;
    }
    uint64_t permille = part * 1000 / whole;
    if (part * 1000 % whole >= whole - whole / 2) permille++;
    cli_text_u64(text, permille / 10);
    cli_text_put(text, ".", 1);
    cli_text_u64(text, permille % 10);
    cli_text_str(text, " %");
}

/* How many bytes from the start are printable ASCII; eight at a time, because nearly all of nearly every name is. */
static size_t line_plain(const char *bytes, size_t len) {
    const uint64_t ones = UINT64_C(0x0101010101010101), high = ones << 7;
    size_t at = 0;
    uint64_t x;
    for (; len - at >= sizeof x; at += sizeof x) {
        memcpy(&x, bytes + at, sizeof x);
        /* A byte above 0x7F, one below 0x20, one that is 0x7F. */
        if ((x & high) || ((x - ones * 0x20) & ~x & high) || ((x + ones) & high)) break;
    }
    while (at < len && bytes[at] >= 0x20 && bytes[at] < 0x7F) at++;
    return at;
}

void cli_text_escaped(cli_text *text, const char *bytes, size_t len) {
    if (line_plain(bytes, len) == len) {
        cli_text_put(text, bytes, len);
        return;
    }
    size_t need = heft__escape_length(bytes, len);
    text->len += heft__escape(line_room(text, need + 1), need + 1, bytes, len);
}

void cli_text_name(cli_text *text, const char *name, size_t len) {
    if (len) cli_text_escaped(text, name, len);
    else cli_text_put(text, "\"\"", 2);
}

void cli_text_plural(cli_text *text, uint64_t count, const char *singular) {
    cli_text_grouped(text, count);
    cli_text_put(text, " ", 1);
    cli_text_str(text, singular);
    if (count != 1) cli_text_put(text, "s", 1);
}

void cli_text_shape(cli_text *text, uint32_t rank, const uint64_t *shape) {
    cli_text_put(text, "[", 1);
    for (uint32_t i = 0; i < rank; i++) {
        if (i) cli_text_put(text, ", ", 2);
        cli_text_u64(text, shape[i]);
    }
    cli_text_put(text, "]", 1);
}

void cli_text_repeat(cli_text *text, const char *string, size_t times) {
    size_t len = strlen(string);
    while (times--) cli_text_put(text, string, len);
}

void cli_text_format(cli_text *text, const char *format, ...) {
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (n > 0) {
        vsnprintf(line_room(text, (size_t)n + 1), (size_t)n + 1, format, again);
        text->len += (size_t)n;
    }
    va_end(again);
}

void cli_text_shell(cli_text *text, const char *string) {
    static const char safe[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:=@%+,";
    size_t len = strlen(string);
    if (len && strspn(string, safe) == len) {
        cli_text_put(text, string, len);
        return;
    }
    cli_text_put(text, "'", 1);
    for (size_t i = 0; i < len;) {
        size_t run = strcspn(string + i, "'");
        cli_text_escaped(text, string + i, run);
        i += run;
        if (i < len) {
            cli_text_str(text, "'\\''");
            i++;
        }
    }
    cli_text_put(text, "'", 1);
}

void cli_text_free(cli_text *text) {
    free(text->data);
    *text = (cli_text){0};
}

/* Columns of one character: the wide scripts of East Asia and pictures take two, combining marks none. */
static size_t line_char_columns(uint32_t c) {
    static const struct {
        uint32_t first, last;
    } none[] = {{0x300, 0x36F}, {0x483, 0x489}, {0x591, 0x5BD}, {0x610, 0x61A}, {0x64B, 0x65F}, {0x1AB0, 0x1AFF},
                {0x1DC0, 0x1DFF}, {0x200B, 0x200D}, {0x20D0, 0x20FF}, {0xFE00, 0xFE0F}, {0xFE20, 0xFE2F}},
      two[] = {{0x1100, 0x115F}, {0x2E80, 0x303E}, {0x3041, 0xA4CF}, {0xAC00, 0xD7A3}, {0xF900, 0xFAFF},
               {0xFE30, 0xFE6F}, {0xFF00, 0xFF60}, {0xFFE0, 0xFFE6}, {0x1F300, 0x1F64F}, {0x1F900, 0x1F9FF},
               {0x20000, 0x3FFFD}};
    if (c < 0x300) return 1;
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        if (c >= none[i].first && c <= none[i].last) return 0;
    for (size_t i = 0; i < sizeof two / sizeof *two; i++)
        if (c >= two[i].first && c <= two[i].last) return 2;
    return 1;
}

size_t cli_columns_fit(const char *text, size_t len, size_t columns) {
    size_t at = 0, used = 0;
    while (at < len) {
        size_t n = 1, wide = 1;
        if ((unsigned char)text[at] >= 0x80) wide = line_char_columns(heft__utf8_decode(text + at, len - at, &n));
        if (used + wide > columns) break;
        used += wide;
        at += n;
    }
    return at;
}

size_t cli_columns(const char *text, size_t len) {
    size_t used = line_plain(text, len);
    for (size_t at = used; at < len;) {
        size_t n = 1;
        if ((unsigned char)text[at] < 0x80) used++;
        else used += line_char_columns(heft__utf8_decode(text + at, len - at, &n));
        at += n;
    }
    return used;
}
