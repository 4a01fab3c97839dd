/* fuzz: the JSON reader. Whatever it reads, skipping gives the same verdict, strings equal their own values, and what
 * the writer makes of good text reads the same again. */
#include "base/json.h"
#include "base/json_write.h"
#include "base/utf8.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define REQUIRE(condition)                                                                                             \
    if (!(condition)) abort()

static void check_string(const heft__json_token *token, bool utf8) {
    char *value = malloc(token->len + 1);
    REQUIRE(value);
    size_t n = heft__json_unescape(token, value);
    REQUIRE(n <= token->len && heft__json_equals(token, value, n));
    value[n] = 'x';
    REQUIRE(!heft__json_equals(token, value, n + 1));
    if (utf8) REQUIRE(heft__utf8_check(value, n) == n);
    free(value);
}

/* Copies a token to the writer; numbers as the text they are. */
static void write_token(heft__json_out *out, const heft__json_token *token, char *scratch) {
    size_t n;
    switch (token->type) {
    case HEFT__JSON_OBJECT: heft__json_out_object(out); break;
    case HEFT__JSON_OBJECT_END: heft__json_out_object_end(out); break;
    case HEFT__JSON_ARRAY: heft__json_out_array(out); break;
    case HEFT__JSON_ARRAY_END: heft__json_out_array_end(out); break;
    case HEFT__JSON_KEY:
        n = heft__json_unescape(token, scratch);
        heft__json_out_key(out, scratch, n);
        break;
    case HEFT__JSON_STRING:
        n = heft__json_unescape(token, scratch);
        heft__json_out_string(out, scratch, n);
        break;
    case HEFT__JSON_NUMBER: heft__json_out_string(out, token->text, token->len); break;
    case HEFT__JSON_TRUE: heft__json_out_bool(out, true); break;
    case HEFT__JSON_FALSE: heft__json_out_bool(out, false); break;
    default: heft__json_out_null(out);
    }
}

static void check_written(const char *text, size_t len, uint32_t indent, bool ascii) {
    heft__json json, again;
    heft__json_token token, other;
    heft__json_out out;
    char *scratch = malloc(len + 1);
    REQUIRE(scratch);
    heft__json_out_init(&out, &heft__default_allocator, indent, ascii);
    heft__json_init(&json, text, len);
    while (heft__json_next(&json, &token) != HEFT__JSON_END) write_token(&out, &token, scratch);
    REQUIRE(!out.failed);
    heft__json_init(&json, text, len);
    heft__json_init(&again, out.text, (size_t)out.len);
    while (heft__json_next(&json, &token) != HEFT__JSON_END) {
        heft__json_next(&again, &other);
        REQUIRE(other.type == (token.type == HEFT__JSON_NUMBER ? HEFT__JSON_STRING : token.type));
        if (token.type == HEFT__JSON_STRING || token.type == HEFT__JSON_KEY)
            REQUIRE(heft__json_equals(&other, scratch, heft__json_unescape(&token, scratch)));
    }
    REQUIRE(heft__json_next(&again, &other) == HEFT__JSON_END);
    heft__json_out_free(&out);
    free(scratch);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const char *text = (const char *)data;
    heft__json json, skipper;
    heft__json_token token, first;
    bool utf8 = heft__utf8_check(text, size) == size;
    heft__json_init(&json, text, size);
    size_t before = 0, steps = 0;
    while (heft__json_next(&json, &token) != HEFT__JSON_END && token.type != HEFT__JSON_ERROR) {
        REQUIRE(token.offset >= before && token.offset < size && ++steps <= size);
        before = token.offset + 1;
        if (token.type == HEFT__JSON_STRING || token.type == HEFT__JSON_KEY) check_string(&token, utf8);
    }
    REQUIRE((token.type == HEFT__JSON_ERROR) == (json.error != NULL) && json.error_at <= size);
    heft__json_init(&skipper, text, size);
    heft__json_next(&skipper, &first);
    if (first.type != HEFT__JSON_ERROR && heft__json_skip(&skipper, &first)) heft__json_next(&skipper, &first);
    REQUIRE((skipper.error == NULL) == (json.error == NULL) && skipper.error_at == json.error_at);
    if (!json.error && utf8) {
        check_written(text, size, 0, true);
        check_written(text, size, 3, false);
    }
    return 0;
}
