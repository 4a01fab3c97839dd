/* The JSON writer: layout, commas, escaping, numbers, failing allocations; what it writes the reader reads back. */
#include "helper.h"

#include "base/json.h"
#include "base/json_write.h"
#include "helper_files.h"
#include "helper_random.h"

#include <math.h>

static void check_text(heft__json_out *out, const char *want) {
    assert_false(out->failed);
    if (out->len != strlen(want) || memcmp(out->text, want, out->len) != 0)
        fail_msg("%.*s, not %s", (int)out->len, out->text, want);
    heft__json_out_free(out);
}

static void write_sample(heft__json_out *out) {
    heft__json_out_object(out);
    heft__json_out_key(out, "name", SIZE_MAX);
    heft__json_out_string(out, "h.0", SIZE_MAX);
    heft__json_out_key(out, "shape", 5);
    heft__json_out_array(out);
    heft__json_out_u64(out, 2);
    heft__json_out_u64(out, UINT64_MAX);
    heft__json_out_array_end(out);
    heft__json_out_key(out, "none", 4);
    heft__json_out_array(out);
    heft__json_out_array_end(out);
    heft__json_out_key(out, "inner", 5);
    heft__json_out_object(out);
    heft__json_out_key(out, "", 0);
    heft__json_out_object(out);
    heft__json_out_object_end(out);
    heft__json_out_key(out, "t", 1);
    heft__json_out_bool(out, true);
    heft__json_out_key(out, "f", 1);
    heft__json_out_bool(out, false);
    heft__json_out_object_end(out);
    heft__json_out_key(out, "null", 4);
    heft__json_out_null(out);
    heft__json_out_object_end(out);
}

static void minified_and_indented(void **state) {
    (void)state;
    heft__json_out out;
    heft__json_out_init(&out, &heft__default_allocator, 0, false);
    write_sample(&out);
    check_text(&out, "{\"name\":\"h.0\",\"shape\":[2,18446744073709551615],\"none\":[],"
                     "\"inner\":{\"\":{},\"t\":true,\"f\":false},\"null\":null}");
    heft__json_out_init(&out, &heft__default_allocator, 2, false);
    write_sample(&out);
    check_text(
        &out,
        "{\n  \"name\": \"h.0\",\n  \"shape\": [\n    2,\n    18446744073709551615\n  ],\n"
        "  \"none\": [],\n  \"inner\": {\n    \"\": {},\n    \"t\": true,\n    \"f\": false\n  },\n  \"null\": "
        "null\n}");
}

static void json_lines(void **state) {
    (void)state;
    heft__json_out out;
    heft__json_out_init(&out, &heft__default_allocator, 0, true);
    for (uint64_t i = 0; i < 3; i++) {
        heft__json_out_array(&out);
        heft__json_out_u64(&out, i);
        heft__json_out_array_end(&out);
        heft__json_out_newline(&out);
    }
    check_text(&out, "[0]\n[1]\n[2]\n");
}

static void numbers_as_text(void **state) {
    (void)state;
    static const double values[] = {0.0, -0.0, 1.0, 0.1, 1e-7, 1e16, 5e-324, 1.7976931348623157e308};
    heft__json_out out;
    heft__json_out_init(&out, &heft__default_allocator, 0, false);
    heft__json_out_array(&out);
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) heft__json_out_double(&out, values[i]);
    heft__json_out_double(&out, (double)NAN);
    heft__json_out_double(&out, (double)-INFINITY);
    heft__json_out_array_end(&out);
    check_text(&out, "[0.0,-0.0,1.0,0.1,1e-07,1e+16,5e-324,1.7976931348623157e+308,null,null]");
}

static void escaping(void **state) {
    (void)state;
    static const struct {
        const char *text;
        size_t len;
        const char *raw, *ascii;
    } rows[] = {
        {"", 0, "\"\"", "\"\""},
        {"a/b", 3, "\"a/b\"", "\"a/b\""},
        {"q\"\\\n\x01\x7F/\xC3\xA9", 9, "\"q\\\"\\\\\\n\\u0001\x7F/\xC3\xA9\"",
         "\"q\\\"\\\\\\n\\u0001\\u007f/\\u00e9\""},
        {"\b\t\f\r\x1F", 5, "\"\\b\\t\\f\\r\\u001f\"", "\"\\b\\t\\f\\r\\u001f\""},
        {"a\0b", 3, "\"a\\u0000b\"", "\"a\\u0000b\""},
        {"\xE4\xB8\xAD\xF0\x9F\x98\x80", 7, "\"\xE4\xB8\xAD\xF0\x9F\x98\x80\"", "\"\\u4e2d\\ud83d\\ude00\""},
        {"x\xFFy\xE4\xB8", 5, "\"x\xEF\xBF\xBDy\xEF\xBF\xBD\xEF\xBF\xBD\"", "\"x\\ufffdy\\ufffd\\ufffd\""},
        {"\xEF\xBF\xBD", 3, "\"\xEF\xBF\xBD\"", "\"\\ufffd\""},
        {"\xF4\x8F\xBF\xBF", 4, "\"\xF4\x8F\xBF\xBF\"", "\"\\udbff\\udfff\""},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        heft__json_out out;
        heft__json_out_init(&out, &heft__default_allocator, 0, false);
        heft__json_out_string(&out, rows[i].text, rows[i].len);
        check_text(&out, rows[i].raw);
        heft__json_out_init(&out, &heft__default_allocator, 0, true);
        heft__json_out_string(&out, rows[i].text, rows[i].len);
        check_text(&out, rows[i].ascii);
    }
}

/* Random names, written in both ways, come back from the reader as they were. */
static void strings_come_back(void **state) {
    (void)state;
    uint64_t seed = 17;
    for (uint64_t n = test_count(20000); n > 0; n--) {
        char text[256], back[2048];
        size_t len = 0;
        for (uint64_t k = random_below(&seed, 40); k > 0; k--) {
            static const uint32_t bounds[] = {0x20, 0x80, 0x80, 0x800, 0xD800, 0x110000};
            uint32_t code = (uint32_t)random_below(&seed, bounds[random_below(&seed, 6)]);
            if (code < 0xD800 || code > 0xDFFF) len += heft__utf8_encode(code, text + len);
        }
        heft__json_out out;
        heft__json_out_init(&out, &heft__default_allocator, 0, n % 2);
        heft__json_out_string(&out, text, len);
        heft__json json;
        heft__json_token token;
        heft__json_init(&json, out.text, (size_t)out.len);
        assert_int_equal(heft__json_next(&json, &token), HEFT__JSON_STRING);
        assert_int_equal(heft__json_unescape(&token, back), len);
        assert_memory_equal(back, text, len);
        assert_int_equal(heft__json_next(&json, &token), HEFT__JSON_END);
        for (size_t i = 0; n % 2 && i < out.len; i++) assert_in_range(out.text[i], 0x20, 0x7E);
        heft__json_out_free(&out);
    }
}

static void failing_allocations_are_kept_in_mind(void **state) {
    (void)state;
    for (uint64_t k = 1;; k++) {
        test_allocator t;
        test_allocator_init(&t, k);
        heft__json_out out;
        heft__json_out_init(&out, &t.alloc, 1, false);
        for (int i = 0; i < 20; i++) write_sample(&out);
        bool failed = out.failed;
        heft__json_out_free(&out);
        assert_int_equal(t.live_blocks, 0);
        if (!failed) {
            assert_true(k > 3);
            break;
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(minified_and_indented), cmocka_unit_test(json_lines),
        cmocka_unit_test(numbers_as_text),       cmocka_unit_test(escaping),
        cmocka_unit_test(strings_come_back),     cmocka_unit_test(failing_allocations_are_kept_in_mind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
