/* base: the JSON pull reader: one token a call, all its memory is the struct of the caller. */
#include "base/json.h"

#include "base/utf8.h"

#include <float.h>
#include <string.h>

#if defined(__SSE2__)
#include <emmintrin.h>
#elif defined(__aarch64__) && defined(__ARM_NEON)
#include <arm_neon.h>
#endif

/* What may come next. */
enum {
    JSON_WANT_VALUE,        /* at the start, after a colon, after a comma in an array */
    JSON_WANT_VALUE_OR_END, /* after [ */
    JSON_WANT_KEY_OR_END,   /* after { */
    JSON_WANT_KEY,          /* after a comma in an object */
    JSON_WANT_MORE,         /* after a value inside a container: comma or end */
    JSON_WANT_NOTHING,      /* after the outermost value */
    JSON_IS_FINISHED,
    JSON_IS_FAILED
};

void heft__json_init(heft__json *json, const char *text, size_t len) {
    memset(json, 0, sizeof *json);
    json->text = text;
    json->len = len;
    json->state = JSON_WANT_VALUE;
}

static bool json_fail(heft__json *json, size_t at, const char *error) {
    json->state = JSON_IS_FAILED;
    json->error = error;
    json->error_at = at;
    return false;
}

/* Fails with one of two texts: something else stands at `at`, or the text ends there. */
#define JSON_EXPECTED(json, at, what)                                                                                  \
    json_fail(json, at, (at) < (json)->len ? "expected " what : "the text ends here, expected " what)

/* ---- strings ----------------------------------------------------------------------------------------------------- */

size_t heft__json_string_end_portable(const char *text, size_t pos, size_t len) {
    const uint64_t ones = UINT64_C(0x0101010101010101), highs = ones << 7;
    for (; pos + 8 <= len; pos += 8) {
        uint64_t word;
        memcpy(&word, text + pos, 8);
        /* A zero byte in x shows as a high bit of (x - ones) & ~x; bytes above 0x7F never count as below 0x20. Borrows
         * reach only bytes beyond a true hit, so "any" is exact and the place is found below. */
        uint64_t quote = word ^ (ones * '"'), slash = word ^ (ones * '\\');
        if ((((word - ones * 0x20) & ~word) | ((quote - ones) & ~quote) | ((slash - ones) & ~slash)) & highs) break;
    }
    for (; pos < len; pos++) {
        uint8_t c = (uint8_t)text[pos];
        if (c < 0x20 || c == '"' || c == '\\') break;
    }
    return pos;
}

size_t heft__json_string_end(const char *text, size_t pos, size_t len) {
#if defined(__SSE2__)
    const __m128i quote = _mm_set1_epi8('"'), slash = _mm_set1_epi8('\\'), control = _mm_set1_epi8(0x1F);
    for (; pos + 16 <= len; pos += 16) {
        __m128i v = _mm_loadu_si128((const __m128i *)(const void *)(text + pos));
        __m128i hit = _mm_or_si128(_mm_or_si128(_mm_cmpeq_epi8(v, quote), _mm_cmpeq_epi8(v, slash)),
                                   _mm_cmpeq_epi8(_mm_min_epu8(v, control), v));
        int mask = _mm_movemask_epi8(hit);
        if (mask) return pos + (size_t)__builtin_ctz((unsigned)mask);
    }
#elif defined(__aarch64__) && defined(__ARM_NEON)
    for (; pos + 16 <= len; pos += 16) {
        uint8x16_t v = vld1q_u8((const uint8_t *)text + pos);
        uint8x16_t hit = vorrq_u8(vorrq_u8(vceqq_u8(v, vdupq_n_u8('"')), vceqq_u8(v, vdupq_n_u8('\\'))),
                                  vcltq_u8(v, vdupq_n_u8(0x20)));
        /* Four bits a byte: the first set one says which. */
        uint64_t mask = vget_lane_u64(vreinterpret_u64_u8(vshrn_n_u16(vreinterpretq_u16_u8(hit), 4)), 0);
        if (mask) return pos + (size_t)__builtin_ctzll(mask) / 4;
    }
#endif
    return heft__json_string_end_portable(text, pos, len);
}

/* Four hex digits at text[at); -1 if one is none, with its place in *bad. */
static int32_t json_hex4(const char *text, size_t at, size_t len, size_t *bad) {
    int32_t value = 0;
    for (size_t i = at; i < at + 4; i++) {
        char c = i < len ? text[i] : 0;
        int digit = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
        if (digit < 0) {
            *bad = i;
            return -1;
        }
        value = value * 16 + digit;
    }
    return value;
}

/* Validates the escape whose backslash is at *at and moves past it. */
static bool json_escape(heft__json *json, size_t *at) {
    size_t i = *at, bad = 0;
    if (i + 1 == json->len) return json_fail(json, i + 1, "the text ends inside a string");
    char c = json->text[i + 1];
    if (c != 'u') {
        if (c == 0 || !strchr("\"\\/bfnrt", c)) return json_fail(json, i, "an escape that JSON does not have");
        *at = i + 2;
        return true;
    }
    int32_t high = json_hex4(json->text, i + 2, json->len, &bad);
    if (high < 0) return JSON_EXPECTED(json, bad, "a hex digit");
    *at = i + 6;
    if (high < 0xD800 || high > 0xDFFF) return true;
    if (high >= 0xDC00) return json_fail(json, i, "a low surrogate without a high one before it");
    if (json->len - *at < 2 || json->text[*at] != '\\' || json->text[*at + 1] != 'u')
        return json_fail(json, i, "a high surrogate without a low one after it");
    int32_t low = json_hex4(json->text, *at + 2, json->len, &bad);
    if (low < 0) return JSON_EXPECTED(json, bad, "a hex digit");
    if (low < 0xDC00 || low > 0xDFFF) return json_fail(json, i, "a high surrogate without a low one after it");
    *at += 6;
    return true;
}

/* Reads the string whose opening quote is at json->pos. */
static bool json_string(heft__json *json, heft__json_token *token, heft__json_type type) {
    size_t start = json->pos + 1, at = start;
    bool escaped = false;
    for (;;) {
        at = heft__json_string_end(json->text, at, json->len);
        if (at == json->len) return json_fail(json, at, "the text ends inside a string");
        if (json->text[at] == '"') break;
        if (json->text[at] != '\\') return json_fail(json, at, "a control character inside a string");
        escaped = true;
        if (!json_escape(json, &at)) return false;
    }
    *token = (heft__json_token){type, escaped, json->pos, json->text + start, at - start};
    json->pos = at + 1;
    return true;
}

/* The value of the escape at *p, validated: moves *p past it, writes UTF-8 to dst[4], returns its length. */
static size_t json_escape_value(const char **p, char *dst) {
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    char c = (*p)[1];
    size_t bad;
    if (c != 'u') {
        dst[0] = to[strchr(from, c) - from];
        *p += 2;
        return 1;
    }
    uint32_t code = (uint32_t)json_hex4(*p, 2, 6, &bad);
    *p += 6;
    if (code >= 0xD800 && code <= 0xDBFF) {
        code = 0x10000 + ((code & 0x3FF) << 10) + ((uint32_t)json_hex4(*p, 2, 6, &bad) & 0x3FF);
        *p += 6;
    }
    return heft__utf8_encode(code, dst);
}

size_t heft__json_unescape(const heft__json_token *token, char *dst) {
    const char *p = token->text, *end = p + token->len;
    char *out = dst;
    while (p < end) {
        const char *slash = token->escaped ? memchr(p, '\\', (size_t)(end - p)) : NULL;
        size_t plain = (size_t)((slash ? slash : end) - p);
        memmove(out, p, plain);
        out += plain;
        p += plain;
        if (slash) {
            char form[4];
            size_t n = json_escape_value(&p, form); /* never longer than the escape, so in place is fine */
            memcpy(out, form, n);
            out += n;
        }
    }
    return (size_t)(out - dst);
}

bool heft__json_equals(const heft__json_token *token, const char *text, size_t len) {
    if (!token->escaped) return token->len == len && (len == 0 || memcmp(token->text, text, len) == 0);
    const char *p = token->text, *end = p + token->len;
    size_t at = 0;
    while (p < end) {
        char form[4];
        size_t n = 1;
        if (*p == '\\')
            n = json_escape_value(&p, form);
        else
            form[0] = *p++;
        if (n > len - at || memcmp(text + at, form, n) != 0) return false;
        at += n;
    }
    return at == len;
}

/* ---- numbers ----------------------------------------------------------------------------------------------------- */

/* Whether significand x 10^exponent is too large for a double, computed as serde_json does (see the header). */
static bool json_overflows(uint64_t significand, int64_t exponent) {
    static const double powers[] = {1e289, 1e290, 1e291, 1e292, 1e293, 1e294, 1e295, 1e296, 1e297, 1e298,
                                    1e299, 1e300, 1e301, 1e302, 1e303, 1e304, 1e305, 1e306, 1e307, 1e308};
    if (significand == 0 || exponent < 289) return false; /* 2^64 x 10^288 fits */
    if (exponent > 308) return true;
    volatile double product = (double)significand * powers[exponent - 289]; /* volatile: no excess precision */
    return product > DBL_MAX;
}

/* One more digit if it fits. */
static bool json_take_digit(uint64_t *significand, char digit) {
    uint64_t d = (uint64_t)(digit - '0');
    if (*significand > (UINT64_MAX - d) / 10) return false;
    *significand = *significand * 10 + d;
    return true;
}

/* Whether a number of right form is too large for a double. Digits beyond what 64 bits hold only scale. */
static bool json_number_overflows(const char *text, size_t len) {
    uint64_t significand = 0;
    int64_t exponent = 0, power = 0;
    bool full = false;
    size_t i = text[0] == '-';
    for (; i < len && text[i] >= '0' && text[i] <= '9'; i++) {
        full = full || !json_take_digit(&significand, text[i]);
        exponent += full;
    }
    if (i < len && text[i] == '.') {
        full = false; /* after the point digits are tried again, as the reference does */
        for (i++; i < len && text[i] >= '0' && text[i] <= '9'; i++) {
            full = full || !json_take_digit(&significand, text[i]);
            exponent -= !full;
        }
    }
    if (i == len) return json_overflows(significand, exponent);
    bool negative = text[++i] == '-';
    for (i += text[i] == '-' || text[i] == '+'; i < len; i++)
        if (power <= INT32_MAX) power = power * 10 + (text[i] - '0');
    if (power > INT32_MAX) power = INT64_MAX / 4; /* beyond 31 bits only the sign matters */
    return json_overflows(significand, negative ? exponent - power : exponent + power);
}

/* The first place from `at` on that holds no digit. */
static size_t json_digits_end(const heft__json *json, size_t at) {
    while (at < json->len && json->text[at] >= '0' && json->text[at] <= '9') at++;
    return at;
}

static bool json_number(heft__json *json, heft__json_token *token) {
    const char *text = json->text;
    size_t start = json->pos, first = start + (text[start] == '-'), at = json_digits_end(json, first);
    bool scaled = false;
    if (at == first) return JSON_EXPECTED(json, at, "a digit");
    if (text[first] == '0' && at > first + 1) return json_fail(json, first, "a number with a leading zero");
    if (at < json->len && text[at] == '.') {
        size_t point = at;
        at = json_digits_end(json, point + 1);
        if (at == point + 1) return JSON_EXPECTED(json, at, "a digit after the decimal point");
    }
    if (at < json->len && (text[at] == 'e' || text[at] == 'E')) {
        scaled = true;
        at++;
        if (at < json->len && (text[at] == '+' || text[at] == '-')) at++;
        size_t power = at;
        at = json_digits_end(json, power);
        if (at == power) return JSON_EXPECTED(json, at, "a digit of the exponent");
    }
    if ((scaled || at - start > 289) && json_number_overflows(text + start, at - start))
        return json_fail(json, start, "a number too large for a double");
    *token = (heft__json_token){HEFT__JSON_NUMBER, false, start, text + start, at - start};
    json->pos = at;
    return true;
}

bool heft__json_u64(const heft__json_token *token, uint64_t *out) {
    if (token->type != HEFT__JSON_NUMBER) return false;
    uint64_t value = 0;
    for (size_t i = 0; i < token->len; i++) {
        char c = token->text[i];
        if (c < '0' || c > '9' || !json_take_digit(&value, c)) return false;
    }
    *out = value;
    return true;
}

/* ---- tokens ------------------------------------------------------------------------------------------------------ */

static inline void json_skip_blanks(heft__json *json) {
    size_t at = json->pos;
    while (at < json->len && (uint8_t)json->text[at] <= ' ') {
        char c = json->text[at];
        if (c != ' ' && c != '\n' && c != '\t' && c != '\r') break;
        at++;
    }
    json->pos = at;
}

static bool json_in_object(const heft__json *json) {
    uint32_t top = json->depth - 1;
    return json->is_object[top / 64] >> (top % 64) & 1;
}

/* A token of the one byte at json->pos. */
static void json_punctuation(heft__json *json, heft__json_token *token, heft__json_type type) {
    *token = (heft__json_token){type, false, json->pos, json->text + json->pos, 1};
    json->pos++;
}

static bool json_open(heft__json *json, heft__json_token *token, bool object) {
    if (json->depth == HEFT__JSON_MAX_DEPTH)
        return json_fail(json, json->pos, "more than 127 containers inside each other");
    uint64_t bit = UINT64_C(1) << (json->depth % 64), *word = &json->is_object[json->depth / 64];
    *word = object ? *word | bit : *word & ~bit;
    json->depth++;
    json_punctuation(json, token, object ? HEFT__JSON_OBJECT : HEFT__JSON_ARRAY);
    json->state = object ? JSON_WANT_KEY_OR_END : JSON_WANT_VALUE_OR_END;
    return true;
}

static void json_after_value(heft__json *json) {
    json->state = json->depth ? JSON_WANT_MORE : JSON_WANT_NOTHING;
}

/* Closes the innermost container if its end stands at json->pos. */
static bool json_close(heft__json *json, heft__json_token *token) {
    bool object = json_in_object(json);
    if (json->pos == json->len || json->text[json->pos] != (object ? '}' : ']')) return false;
    json_punctuation(json, token, object ? HEFT__JSON_OBJECT_END : HEFT__JSON_ARRAY_END);
    json->depth--;
    json_after_value(json);
    return true;
}

static bool json_word(heft__json *json, heft__json_token *token, const char *word, size_t len, heft__json_type type) {
    for (size_t i = 1; i < len; i++)
        if (json->pos + i >= json->len || json->text[json->pos + i] != word[i])
            return JSON_EXPECTED(json, json->pos + i, "true, false or null");
    *token = (heft__json_token){type, false, json->pos, json->text + json->pos, len};
    json->pos += len;
    return true;
}

static bool json_value(heft__json *json, heft__json_token *token) {
    bool good;
    switch (json->pos < json->len ? json->text[json->pos] : 0) {
    case '{': return json_open(json, token, true);
    case '[': return json_open(json, token, false);
    case '"': good = json_string(json, token, HEFT__JSON_STRING); break;
    case 't': good = json_word(json, token, "true", 4, HEFT__JSON_TRUE); break;
    case 'f': good = json_word(json, token, "false", 5, HEFT__JSON_FALSE); break;
    case 'n': good = json_word(json, token, "null", 4, HEFT__JSON_NULL); break;
    case '-':
    case '0':
    case '1':
    case '2':
    case '3':
    case '4':
    case '5':
    case '6':
    case '7':
    case '8':
    case '9': good = json_number(json, token); break;
    default:
        if (json->state == JSON_WANT_VALUE_OR_END) return JSON_EXPECTED(json, json->pos, "a value or ]");
        return JSON_EXPECTED(json, json->pos, "a value");
    }
    if (good) json_after_value(json);
    return good;
}

static bool json_key(heft__json *json, heft__json_token *token) {
    if (json->pos == json->len || json->text[json->pos] != '"') {
        if (json->state == JSON_WANT_KEY_OR_END) return JSON_EXPECTED(json, json->pos, "a name in double quotes or }");
        return JSON_EXPECTED(json, json->pos, "a name in double quotes");
    }
    if (!json_string(json, token, HEFT__JSON_KEY)) return false;
    json_skip_blanks(json);
    if (json->pos == json->len || json->text[json->pos] != ':') return JSON_EXPECTED(json, json->pos, "a colon");
    json->pos++;
    json->state = JSON_WANT_VALUE;
    return true;
}

/* After a value in a container: its end, or a comma and what follows. */
static bool json_more(heft__json *json, heft__json_token *token) {
    bool object = json_in_object(json);
    if (json->pos < json->len && json->text[json->pos] == ',') {
        json->pos++;
        json_skip_blanks(json);
        json->state = object ? JSON_WANT_KEY : JSON_WANT_VALUE;
        return object ? json_key(json, token) : json_value(json, token);
    }
    if (json_close(json, token)) return true;
    if (object) return JSON_EXPECTED(json, json->pos, "a comma or }");
    return JSON_EXPECTED(json, json->pos, "a comma or ]");
}

static bool json_step(heft__json *json, heft__json_token *token) {
    json_skip_blanks(json);
    switch (json->state) {
    case JSON_WANT_VALUE_OR_END: return json_close(json, token) || json_value(json, token);
    case JSON_WANT_KEY_OR_END: return json_close(json, token) || json_key(json, token);
    case JSON_WANT_KEY: return json_key(json, token);
    case JSON_WANT_MORE: return json_more(json, token);
    case JSON_WANT_NOTHING:
        if (json->pos < json->len) return json_fail(json, json->pos, "something follows the value");
        json->state = JSON_IS_FINISHED;
        break;
    case JSON_IS_FINISHED: break;
    case JSON_IS_FAILED: return false;
    default: return json_value(json, token);
    }
    *token = (heft__json_token){HEFT__JSON_END, false, json->len, json->text + json->len, 0};
    return true;
}

heft__json_type heft__json_next(heft__json *json, heft__json_token *token) {
    if (!json_step(json, token))
        *token = (heft__json_token){HEFT__JSON_ERROR, false, json->error_at, json->text + json->error_at, 0};
    return token->type;
}

bool heft__json_skip(heft__json *json, const heft__json_token *token) {
    heft__json_token inner = *token;
    if (token->type == HEFT__JSON_KEY) heft__json_next(json, &inner);
    if (inner.type == HEFT__JSON_OBJECT || inner.type == HEFT__JSON_ARRAY) {
        uint32_t outside = json->depth - 1;
        while (json->depth > outside && heft__json_next(json, &inner) != HEFT__JSON_ERROR) continue;
    }
    return inner.type != HEFT__JSON_ERROR;
}

const char *heft__json_type_name(heft__json_type type) {
    static const char *const names[] = {"an error",
                                        "an object",
                                        "the end of an object",
                                        "an array",
                                        "the end of an array",
                                        "a member's name",
                                        "a string",
                                        "a number",
                                        "true",
                                        "false",
                                        "null",
                                        "the end of the text"};
    return (size_t)type < sizeof names / sizeof *names ? names[type] : names[0];
}
