/* The JSON reader against jansson: random and mutated documents, same verdict and same values. Exceptions, where
 * jansson is not the dialect: it allows 2,048 open containers, refuses U+0000 in keys, and rounds correctly next to the
 * largest double. Of a repeated key it keeps the last value, which the comparison of values does too. */
#include "helper.h"

#include "base/json.h"
#include "helper_guard.h"
#include "helper_random.h"

#include <jansson.h>
#include <math.h>

#ifndef JANSSON_TIMES
#define JANSSON_TIMES 1 /* test_jansson_many.c makes it more */
#endif

enum { JANSSON_MOST = 4096 };

/* ---- documents --------------------------------------------------------------------------------------------------- */

typedef struct document {
    char text[JANSSON_MOST];
    size_t len;
    uint64_t seed;
} document;

static uint64_t below(document *d, uint64_t n) {
    return random_below(&d->seed, n);
}

static void put(document *d, const char *text) {
    size_t n = strlen(text);
    if (d->len + n > JANSSON_MOST) return;
    memcpy(d->text + d->len, text, n);
    d->len += n;
}

static void put_blanks(document *d) {
    static const char *const blanks[] = {"", "", "", "", " ", "\n", "\t ", "\r\n"};
    put(d, blanks[below(d, 8)]);
}

static void put_string(document *d) {
    static const char *const pieces[] = {"a",
                                         "weight",
                                         "layers.12",
                                         "\\n",
                                         "\\\"",
                                         "\\\\",
                                         "\\/",
                                         "\\u0041",
                                         "\\u00e9",
                                         "\\u4E2d",
                                         "\xC3\xA9",
                                         "\\uD83D\\uDE00",
                                         "\xF0\x9F\x98\x80",
                                         "\x7F",
                                         "\\b\\f",
                                         "{[,:]}",
                                         "\xEF\xBF\xBF",
                                         "dtype",
                                         "0",
                                         "\\t\\r",
                                         " "};
    put(d, "\"");
    for (uint64_t n = below(d, 4); n > 0; n--) put(d, pieces[below(d, sizeof pieces / sizeof *pieces)]);
    put(d, "\"");
}

static void put_number(document *d) {
    static const char *const numbers[] = {"0",
                                          "-0",
                                          "1",
                                          "42",
                                          "18446744073709551615",
                                          "18446744073709551616",
                                          "0.5",
                                          "1e5",
                                          "1E-7",
                                          "-3.25e+2",
                                          "1e308",
                                          "123456789012345678901234567890",
                                          "1e400",
                                          "-1e309",
                                          "0e999",
                                          "1e-999",
                                          "0.00001e310"};
    char text[64];
    if (below(d, 2)) {
        put(d, numbers[below(d, sizeof numbers / sizeof *numbers)]);
        return;
    }
    snprintf(text, sizeof text, "%s%llu", below(d, 4) ? "" : "-",
             (unsigned long long)random_u64(&d->seed) >> below(d, 64));
    put(d, text);
    if (below(d, 3) == 0) {
        snprintf(text, sizeof text, ".%06llu", (unsigned long long)below(d, 1000000));
        put(d, text);
    }
    if (below(d, 3) == 0) {
        snprintf(text, sizeof text, "e%d", (int)below(d, 640) - 320);
        put(d, text);
    }
}

static void put_value(document *d, int depth) {
    static const char *const words[] = {"true", "false", "null"};
    put_blanks(d);
    uint64_t kind = depth > 5 ? below(d, 5) : depth ? below(d, 9) : 5 + below(d, 4); /* the outermost is a container */
    if (kind < 2) {
        put_string(d);
    } else if (kind < 4) {
        put_number(d);
    } else if (kind == 4) {
        put(d, words[below(d, 3)]);
    } else {
        bool object = kind < 7;
        put(d, object ? "{" : "[");
        for (uint64_t i = 0, n = below(d, 5); i < n; i++) {
            if (i) put(d, ",");
            put_blanks(d);
            if (object) {
                put_string(d);
                put_blanks(d);
                put(d, ":");
            }
            put_value(d, depth + 1);
        }
        put_blanks(d);
        put(d, object ? "}" : "]");
    }
    put_blanks(d);
}

/* One to three small changes, of which most leave nearly valid JSON. */
static void mutate(document *d) {
    static const char alphabet[] = "{}[]:,\"\\u0019aeE+-. \n\t\x01nulltrue\x7F\xC3\xA9\xED\xA0\x80\xFF/";
    for (uint64_t n = 1 + below(d, 3); n > 0 && d->len > 0; n--) {
        size_t at = below(d, d->len), left = d->len - at;
        switch (below(d, 5)) {
        case 0: d->text[at] = alphabet[below(d, sizeof alphabet)]; break;
        case 1: /* leave out */
            memmove(d->text + at, d->text + at + 1, left - 1);
            d->len--;
            break;
        case 2: /* put in */
            if (d->len == JANSSON_MOST) break;
            memmove(d->text + at + 1, d->text + at, left);
            d->text[at] = alphabet[below(d, sizeof alphabet)];
            d->len++;
            break;
        case 3: d->len = at; break;
        default: { /* double a piece */
            size_t piece = 1 + below(d, left < 8 ? left : 8);
            if (d->len + piece > JANSSON_MOST) break;
            memmove(d->text + at + piece, d->text + at, left);
            d->len += piece;
        }
        }
    }
}

/* ---- comparison -------------------------------------------------------------------------------------------------- */

static char unescaped[JANSSON_MOST];

static void compare_scalar(const heft__json_token *token, const json_t *value) {
    char text[JANSSON_MOST];
    switch (token->type) {
    case HEFT__JSON_STRING:
        assert_true(json_is_string(value));
        assert_int_equal(heft__json_unescape(token, unescaped), json_string_length(value));
        assert_memory_equal(unescaped, json_string_value(value), json_string_length(value));
        break;
    case HEFT__JSON_NUMBER:
        assert_true(json_is_real(value));
        memcpy(text, token->text, token->len);
        text[token->len] = 0;
        assert_true(strtod(text, NULL) == json_real_value(value));
        break;
    case HEFT__JSON_TRUE: assert_true(json_is_true(value)); break;
    case HEFT__JSON_FALSE: assert_true(json_is_false(value)); break;
    default: assert_int_equal(token->type, HEFT__JSON_NULL); assert_true(json_is_null(value));
    }
}

/* The value that `token` begins, against jansson's. Only the last value of a repeated key is there to compare with. */
static void compare_value(heft__json *json, heft__json_token token, const json_t *value) {
    if (token.type == HEFT__JSON_ARRAY) {
        assert_true(json_is_array(value));
        size_t i = 0;
        while (heft__json_next(json, &token) != HEFT__JSON_ARRAY_END)
            compare_value(json, token, json_array_get(value, i++));
        assert_int_equal(i, json_array_size(value));
    } else if (token.type == HEFT__JSON_OBJECT) {
        assert_true(json_is_object(value));
        size_t keys = 0;
        while (heft__json_next(json, &token) != HEFT__JSON_OBJECT_END) {
            assert_int_equal(token.type, HEFT__JSON_KEY);
            size_t n = heft__json_unescape(&token, unescaped);
            const json_t *member = json_object_getn(value, unescaped, n);
            assert_non_null(member);
            keys++;
            heft__json again = *json; /* is the same key there once more? */
            heft__json_token other;
            bool last = true;
            heft__json_skip(&again, &token);
            while (last && heft__json_next(&again, &other) == HEFT__JSON_KEY) {
                last = !heft__json_equals(&other, unescaped, n);
                heft__json_skip(&again, &other);
            }
            keys -= !last;
            if (last) {
                heft__json_next(json, &token);
                compare_value(json, token, member);
            } else {
                heft__json_skip(json, &token);
            }
        }
        assert_int_equal(keys, json_object_size(value));
    } else {
        compare_scalar(&token, value);
    }
}

/* Whether the two may differ: a NUL byte, a key with U+0000, more than 127 open containers. */
static bool is_exception(const char *text, size_t len) {
    heft__json json;
    heft__json_token token;
    heft__json_init(&json, text, len);
    if (memchr(text, 0, len)) return true;
    for (;;) {
        heft__json_type type = heft__json_next(&json, &token);
        if (type == HEFT__JSON_END || type == HEFT__JSON_ERROR)
            return type == HEFT__JSON_ERROR && strstr(json.error, "127");
        if (type == HEFT__JSON_KEY && memchr(unescaped, 0, heft__json_unescape(&token, unescaped))) return true;
    }
}

static bool check(const char *text, size_t len) {
    heft__json json;
    heft__json_token token;
    heft__json_init(&json, text, len);
    while (heft__json_next(&json, &token) != HEFT__JSON_END && token.type != HEFT__JSON_ERROR) continue;
    bool good = token.type == HEFT__JSON_END && heft__utf8_check(text, len) == len;
    json_error_t error;
    json_t *value = json_loadb(text, len, JSON_DECODE_ANY | JSON_DECODE_INT_AS_REAL | JSON_ALLOW_NUL, &error);
    if (good != (value != NULL) && !is_exception(text, len))
        fail_msg("jansson: %s; heft: %s\n%.*s", value ? "good" : error.text,
                 good         ? "good"
                 : json.error ? json.error
                              : "UTF-8",
                 (int)len, text);
    if (good && value) {
        heft__json_init(&json, text, len);
        heft__json_next(&json, &token);
        compare_value(&json, token, value);
    }
    json_decref(value);
    return good;
}

static void random_documents(void **state) {
    (void)state;
    static document d;
    guard g;
    guard_init(&g, JANSSON_MOST);
    d.seed = 2;
    uint64_t good = 0, bad = 0;
    for (uint64_t n = test_count(JANSSON_TIMES * 20000); n > 0; n--) {
        d.len = 0;
        put_value(&d, 0);
        bool fine = check(guard_copy(&g, d.text, d.len), d.len);
        good += fine;
        bad += !fine;
        for (int k = 0; k < 3; k++) {
            size_t len = d.len;
            char saved[JANSSON_MOST];
            memcpy(saved, d.text, len);
            mutate(&d);
            fine = check(guard_copy(&g, d.text, d.len), d.len);
            good += fine;
            bad += !fine;
            memcpy(d.text, saved, len);
            d.len = len;
        }
    }
    assert_true(good > 0 && bad > 0);
    if (test_count(100) == 100) assert_true(good > JANSSON_TIMES * 20000 && bad > JANSSON_TIMES * 20000);
    guard_free(&g);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(random_documents)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
