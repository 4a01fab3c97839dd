/* base: a strict JSON pull reader. No tree, no recursion, no allocation; a byte offset with each error.
 *
 * The dialect is that of the safetensors reference (serde_json): RFC 8259 without extensions, UTF-8 checked beforehand
 * (base/utf8.h), at most 127 open containers, lone surrogates refused, numbers that overflow a double refused wherever
 * they stand, anything but whitespace after the value refused. Duplicate keys are the caller's business.
 *
 * Whether a number overflows is decided as serde_json decides it without its `float_roundtrip` feature, in double
 * arithmetic on the first 19 or 20 digits, so that both agree on every file: within about one part in 10^16 of the largest
 * double it refuses numbers that a correctly rounded conversion would accept (1.7976931348623158e308), and the reverse. */
#ifndef HEFT_BASE_JSON_H
#define HEFT_BASE_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HEFT__JSON_MAX_DEPTH 127

typedef enum heft__json_type {
    HEFT__JSON_ERROR = 0, /* sticky: `error` and `error_at` of the reader say what and where */
    HEFT__JSON_OBJECT,    /* { */
    HEFT__JSON_OBJECT_END,
    HEFT__JSON_ARRAY, /* [ */
    HEFT__JSON_ARRAY_END,
    HEFT__JSON_KEY, /* a member's name; the colon is consumed, the value is next */
    HEFT__JSON_STRING,
    HEFT__JSON_NUMBER,
    HEFT__JSON_TRUE,
    HEFT__JSON_FALSE,
    HEFT__JSON_NULL,
    HEFT__JSON_END /* the value is complete and only whitespace followed */
} heft__json_type;

typedef struct heft__json_token {
    heft__json_type type;
    bool escaped;     /* a string or key that holds a backslash: heft__json_unescape gives its value */
    size_t offset;    /* of the token's first byte (a string's opening quote) */
    const char *text; /* the raw bytes: between the quotes, or of the number */
    size_t len;
} heft__json_token;

typedef struct heft__json {
    const char *text;
    size_t len, pos;
    uint32_t depth;
    uint32_t state;        /* private */
    uint64_t is_object[2]; /* one bit an open container */
    const char *error;     /* static text: "expected a comma or }", without offset; NULL: no error */
    size_t error_at;       /* byte offset of the fault; `len` where the text ends too early */
} heft__json;

/* Starts a reader on text[0..len); the bytes must stay. */
void heft__json_init(heft__json *json, const char *text, size_t len);

/* The next token; after HEFT__JSON_ERROR and HEFT__JSON_END always the same. Returns token->type. */
heft__json_type heft__json_next(heft__json *json, heft__json_token *token);

/* Reads over the rest of the value that `token`, the last one read, began, validating it: of an object or array all up to
 * its end, of a key its value, of anything else nothing. After it the next token is what follows. False on an error. */
bool heft__json_skip(heft__json *json, const heft__json_token *token);

/* The value of a string or key token: writes it to `dst` (token->len bytes suffice; dst may be token->text itself, made
 * writable) and returns its length. The token has been validated, so it cannot fail. */
size_t heft__json_unescape(const heft__json_token *token, char *dst);

/* True if the string or key token's value is exactly text[0..len), escapes resolved. */
bool heft__json_equals(const heft__json_token *token, const char *text, size_t len);

/* A number token as a plain non-negative integer literal (digits only) of at most 2^64 - 1. False for anything else. */
bool heft__json_u64(const heft__json_token *token, uint64_t *out);

/* The position of the first quote, backslash or byte below 0x20 in text[pos..len), or `len`: where the plain part of a
 * string ends. Vectorised; reads nothing outside of text[pos..len). */
size_t heft__json_string_end(const char *text, size_t pos, size_t len);

/* The same without vector instructions: what other processors run, and a second opinion for the tests. */
size_t heft__json_string_end_portable(const char *text, size_t pos, size_t len);

/* In words for messages: "a string", "an object", "the end of the text". */
const char *heft__json_type_name(heft__json_type type);

#endif
