/* UTF-8: every sequence of one to three bytes and every range of four against a slow reference, at every place. */
#include "helper.h"

#include "helper_guard.h"
#include "helper_random.h"

/* Where text[0..len) stops being UTF-8, straight from the table of RFC 3629, section 3, and its three exceptions. */
static size_t slow_check(const uint8_t *p, size_t len) {
    size_t at = 0;
    while (at < len) {
        size_t n = p[at] < 0x80             ? 1
                   : (p[at] & 0xE0) == 0xC0 ? 2
                   : (p[at] & 0xF0) == 0xE0 ? 3
                   : (p[at] & 0xF8) == 0xF0 ? 4
                                            : 0;
        static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000}, mask[] = {0, 0x7F, 0x1F, 0x0F, 0x07};
        if (n == 0 || n > len - at) return at;
        uint32_t code = p[at] & mask[n];
        for (size_t i = 1; i < n; i++) {
            if ((p[at + i] & 0xC0) != 0x80) return at;
            code = code << 6 | (p[at + i] & 0x3F);
        }
        if (code < least[n] || code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF)) return at;
        at += n;
    }
    return len;
}

static void check_same(const uint8_t *p, size_t len) {
    size_t want = slow_check(p, len);
    if (heft__utf8_check((const char *)p, len) != want || heft__utf8_check_portable((const char *)p, len) != want) {
        for (size_t i = 0; i < len; i++) print_error("%02x ", p[i]);
        fail_msg("wanted %zu, got %zu and %zu", want, heft__utf8_check((const char *)p, len),
                 heft__utf8_check_portable((const char *)p, len));
    }
}

static void all_short_sequences(void **state) {
    (void)state;
    uint32_t step = test_count(100) < 100 ? 7 : 1; /* an emulator sees every seventh */
    for (uint32_t v = 0; v < 1u << 24; v += step) {
        uint8_t p[3] = {(uint8_t)(v >> 16), (uint8_t)(v >> 8), (uint8_t)v};
        check_same(p, 3);
        if (p[2] == 0) check_same(p, 2);
        if ((v & 0xFFFF) == 0) check_same(p, 1);
    }
    check_same((const uint8_t *)"", 0);
}

static void ranges_of_four(void **state) {
    (void)state;
    static const uint8_t tails[] = {0x00, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xFF};
    for (uint32_t lead = 0xE0; lead < 0x100; lead++)
        for (uint32_t second = 0; second < 0x100; second++)
            for (size_t i = 0; i < sizeof tails; i++)
                for (size_t j = 0; j < sizeof tails; j++)
                    check_same((uint8_t[]){(uint8_t)lead, (uint8_t)second, tails[i], tails[j]}, 4);
}

static void every_place_before_a_guard_page(void **state) {
    (void)state;
    static const char *const pieces[] = {"\xC3\xA9", "\xE4\xB8\xAD", "\xF0\x9F\x98\x80", "\xC0\x80", "\xED\xA0\x80",
                                         "\xE4\xB8", "\x80"};
    guard g;
    guard_init(&g, 256);
    for (size_t len = 0; len <= 150; len++) {
        char text[200];
        memset(text, 'a', sizeof text);
        check_same((const uint8_t *)guard_copy(&g, text, len), len);
        for (size_t k = 0; k < sizeof pieces / sizeof *pieces; k++)
            for (size_t at = 0; at + strlen(pieces[k]) <= len; at++) {
                memset(text, 'a', sizeof text);
                memcpy(text + at, pieces[k], strlen(pieces[k]));
                check_same((const uint8_t *)guard_copy(&g, text, len), len);
            }
    }
    guard_free(&g);
}

static void random_mixtures(void **state) {
    (void)state;
    uint64_t seed = 11;
    for (uint64_t n = test_count(200000); n > 0; n--) {
        uint8_t text[160];
        size_t len = 0, most = random_below(&seed, 150);
        while (len < most) {
            static const uint32_t bounds[] = {0x80, 0x80, 0x80, 0x800, 0xD800, 0x110000};
            uint32_t code = (uint32_t)random_below(&seed, bounds[random_below(&seed, 6)]);
            if (code >= 0xD800 && code <= 0xDFFF) continue;
            len += heft__utf8_encode(code, (char *)text + len);
        }
        assert_int_equal(slow_check(text, len), len);
        check_same(text, len);
        if (len && n % 2) {
            text[random_below(&seed, len)] = (uint8_t)random_u64(&seed);
            check_same(text, len);
        }
    }
}

static void every_code_point_both_ways(void **state) {
    (void)state;
    for (uint32_t code = 0; code <= 0x10FFFF; code++) {
        if (code >= 0xD800 && code <= 0xDFFF) continue;
        char text[4];
        size_t n = heft__utf8_encode(code, text), back = 0;
        if (heft__utf8_decode(text, n, &back) != code || back != n || heft__utf8_check(text, n) != n)
            fail_msg("U+%X", code);
        for (size_t cut = 1; cut < n; cut++) {
            assert_int_equal(heft__utf8_decode(text, cut, &back), 0xFFFD);
            assert_int_equal(back, 1);
        }
    }
}

static void cuts_between_characters(void **state) {
    (void)state;
    static const struct {
        const char *text;
        size_t len, cut;
    } rows[] = {{"", 0, 0},
                {"abc", 3, 3},
                {"ab\xC3", 3, 2},
                {"ab\xC3\xA9", 4, 4},
                {"\xE4\xB8\xAD", 2, 0},
                {"a\xE4\xB8\xAD", 2, 1},
                {"a\xE4\xB8\xAD", 4, 4},
                {"\xF0\x9F\x98\x80", 3, 0},
                {"\xF0\x9F\x98\x80", 4, 4},
                {"\x80\x80\x80\x80", 4, 4}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_int_equal(heft__utf8_cut(rows[i].text, rows[i].len), rows[i].cut);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_short_sequences),
        cmocka_unit_test(ranges_of_four),
        cmocka_unit_test(every_place_before_a_guard_page),
        cmocka_unit_test(random_mixtures),
        cmocka_unit_test(every_code_point_both_ways),
        cmocka_unit_test(cuts_between_characters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
