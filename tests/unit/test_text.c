/* Names as text: globs against a plain recursive matcher, natural order, escaping, edit distance. */
#include "helper.h"

#include "base/text.h"
#include "helper_guard.h"
#include "helper_random.h"

static bool match(const char *glob, const char *name) {
    return heft__glob_match(glob, strlen(glob), name, strlen(name));
}

static void globs_by_hand(void **state) {
    (void)state;
    static const struct {
        const char *glob, *name;
        bool match;
    } rows[] = {
        {"", "", true},
        {"", "a", false},
        {"*", "", true},
        {"*", "model.layers.0", true},
        {"**", "x", true},
        {"a*", "a", true},
        {"*.weight", "h.0.weight", true},
        {"*.weight", "h.0.weights", false},
        {"layers.*.attn.*", "layers.10.attn.q", true},
        {"layers.*.attn.*", "layers.10.mlp.q", false},
        {"?", "", false},
        {"?", "ab", false},
        {"h.?.b", "h.1.b", true},
        {"??", "\xC3\xA9", true}, /* by bytes */
        {"[abc]", "b", true},
        {"[!abc]", "b", false},
        {"[^abc]", "d", true},
        {"[a-c]x", "bx", true},
        {"[a-c]x", "dx", false},
        {"[-a]", "-", true},
        {"[a-]", "-", true},
        {"[a-]", "b", false},
        {"[]]", "]", true},
        {"[!]]", "]", false},
        {"[]a]", "a", true},
        {"[\\]]", "]", true},
        {"[\\a-c]", "b", true},
        {"[a\\-c]", "-", true},
        {"[a\\-c]", "b", false},
        {"[*]", "*", true},
        {"[?]", "x", false},
        {"[[]", "[", true},
        {"\\*", "*", true},
        {"\\*", "x", false},
        {"\\[a]", "[a]", true},
        {"a\\\\b", "a\\b", true},
        {"[0-9][0-9]", "42", true},
        {"*[0-9]", "layer7", true},
        {"*[!0-9]*", "123", false},
        {"A", "a", false},
        {"*a*b*c", "aabbcc", true},
        {"*a*b*c", "aabbc", true},
        {"*a*b*c", "aabbcd", false},
        {"[\xC0-\xFF]*", "\xC3\xA9", true},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *why = NULL;
        assert_int_equal(heft__glob_check(rows[i].glob, strlen(rows[i].glob), &why), SIZE_MAX);
        if (match(rows[i].glob, rows[i].name) != rows[i].match) fail_msg("%s on %s", rows[i].glob, rows[i].name);
    }
    assert_true(heft__glob_match("a?b", 3, "a\0b", 3));
    assert_true(heft__glob_match("a\0b", 3, "a\0b", 3));
}

static void bad_globs_are_named(void **state) {
    (void)state;
    static const struct {
        const char *glob;
        size_t at;
        const char *why;
    } rows[] = {
        {"a\\", 1, "a backslash at the end escapes nothing"},
        {"[", 0, "a [ without its ]"},
        {"ab[cd", 2, "a [ without its ]"},
        {"[]", 0, "a [ without its ]"},
        {"[!]", 0, "a [ without its ]"},
        {"x[c-a]", 2, "a range that runs backwards"},
        {"x[ab\\", 4, "a backslash at the end escapes nothing"},
        {"x[a-\\", 4, "a backslash at the end escapes nothing"},
        {"x[a-", 1, "a [ without its ]"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *why = NULL;
        assert_int_equal(heft__glob_check(rows[i].glob, strlen(rows[i].glob), &why), rows[i].at);
        assert_string_equal(why, rows[i].why);
        match(rows[i].glob, "x[a-"); /* only has to come back */
        assert_false(match(rows[i].glob, ""));
    }
}

/* The definition, one item at a time, trying everything. */
static bool slow_match(const char *glob, const char *name) {
    if (!*glob) return !*name;
    if (*glob == '*') return slow_match(glob + 1, name) || (*name && slow_match(glob, name + 1));
    if (!*name) return false;
    if (*glob == '?') return slow_match(glob + 1, name + 1);
    if (*glob == '[') { /* "[ab]" or "[!ab]", as the test makes them */
        bool negated = glob[1] == '!';
        const char *set = glob + 1 + negated;
        bool hit = *name == set[0] || *name == set[1];
        return hit != negated && slow_match(set + 3, name + 1);
    }
    return *glob == *name && slow_match(glob + 1, name + 1);
}

static void random_globs_match_the_definition(void **state) {
    (void)state;
    static const char *const items[] = {"*", "*", "?", "a", "b", "c", "[ab]", "[!ab]", "[bc]"};
    uint64_t seed = 5, hits = 0;
    guard g, n;
    guard_init(&g, 64);
    guard_init(&n, 64);
    for (uint64_t i = test_count(300000); i > 0; i--) {
        char glob[64] = "", name[16] = "";
        for (uint64_t k = random_below(&seed, 8); k > 0; k--) strcat(glob, items[random_below(&seed, 9)]);
        for (uint64_t k = 0, len = random_below(&seed, 10); k < len; k++)
            name[k] = (char)('a' + random_below(&seed, 3));
        bool want = slow_match(glob, name);
        bool got = heft__glob_match(guard_copy(&g, glob, strlen(glob)), strlen(glob),
                                    guard_copy(&n, name, strlen(name)), strlen(name));
        if (got != want) fail_msg("%s on %s", glob, name);
        hits += got;
    }
    assert_true(hits > 0);
    guard_free(&g);
    guard_free(&n);
}

/* With backtracking into every star this would take longer than the universe has been there. */
static void hostile_globs_take_no_time(void **state) {
    (void)state;
    static char glob[4001], name[20001];
    for (size_t i = 0; i < 4000; i += 2) memcpy(glob + i, "a*", 2);
    memset(name, 'a', 20000);
    assert_true(match(glob, name));
    glob[3999] = 'b';
    assert_false(match(glob, name));
    memset(glob, '*', 4000);
    glob[3999] = 'b';
    assert_false(match(glob, name));
    for (size_t i = 0; i + 4 <= 4000; i += 4) memcpy(glob + i, "*[b]", 4);
    assert_false(match(glob, name));
}

static int natural(const char *a, const char *b) {
    return heft__natural_compare(a, strlen(a), b, strlen(b));
}

static void natural_order_of_names(void **state) {
    (void)state;
    static const char *const sorted[] = {"",
                                         "-1",
                                         "0",
                                         "00",
                                         "01",
                                         "1",
                                         "1a",
                                         "2",
                                         "9",
                                         "010",
                                         "10",
                                         "099",
                                         "100",
                                         "99999999999999999999",
                                         "100000000000000000000",
                                         "100000000000000000001",
                                         "a",
                                         "a-1",
                                         "a1",
                                         "a1b",
                                         "a2",
                                         "a10",
                                         "layers.2.attn",
                                         "layers.2.mlp",
                                         "layers.10.attn",
                                         "v1.2",
                                         "v1.10",
                                         "v2.0",
                                         "x0",
                                         "x00",
                                         "x01",
                                         "x1"};
    size_t n = sizeof sorted / sizeof *sorted;
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < n; j++) {
            int order = natural(sorted[i], sorted[j]);
            if ((order > 0) - (order < 0) != (i > j) - (i < j)) fail_msg("%s and %s: %d", sorted[i], sorted[j], order);
        }
}

static void natural_order_is_an_order(void **state) {
    (void)state;
    uint64_t seed = 3;
    for (uint64_t i = test_count(300000); i > 0; i--) {
        char t[3][8];
        size_t len[3];
        for (int k = 0; k < 3; k++) {
            len[k] = random_below(&seed, 7);
            for (size_t j = 0; j < len[k]; j++) t[k][j] = "0012a./\xFF"[random_below(&seed, 8)];
        }
        int ab = heft__natural_compare(t[0], len[0], t[1], len[1]),
            ba = heft__natural_compare(t[1], len[1], t[0], len[0]);
        int bc = heft__natural_compare(t[1], len[1], t[2], len[2]),
            ac = heft__natural_compare(t[0], len[0], t[2], len[2]);
        assert_int_equal((ab > 0) - (ab < 0), (ba < 0) - (ba > 0));
        if (ab == 0) assert_true(len[0] == len[1] && memcmp(t[0], t[1], len[0]) == 0);
        if (ab <= 0 && bc <= 0) assert_true(ac <= 0);
    }
}

static void order_of_bytes(void **state) {
    (void)state;
    assert_true(heft__bytes_compare("a", 1, "b", 1) < 0);
    assert_true(heft__bytes_compare("a", 1, "a", 1) == 0);
    assert_true(heft__bytes_compare("a", 1, "ab", 2) < 0);
    assert_true(heft__bytes_compare("\xFF", 1, "a", 1) > 0);
    assert_true(heft__bytes_compare("a\0", 2, "a", 1) > 0);
    assert_true(heft__bytes_compare(NULL, 0, NULL, 0) == 0);
}

static void escapes_by_hand(void **state) {
    (void)state;
    static const struct {
        const char *text;
        size_t len;
        const char *escaped;
    } rows[] = {
        {"", 0, ""},
        {"h.0.weight", 10, "h.0.weight"},
        {"a\\b\"c'", 6, "a\\b\"c'"},
        {"\x1B[31m", 5, "\\x1B[31m"},
        {"a\nb\tc\rd", 7, "a\\nb\\tc\\rd"},
        {"\0\x01\x1F\x7F", 4, "\\x00\\x01\\x1F\\x7F"},
        {"\xC2\x9B", 2, "\\u{9B}"}, /* C1: CSI */
        {"\xC2\xA0", 2, "\xC2\xA0"},
        {"\xE2\x80\xAE", 3, "\\u{202E}"}, /* right-to-left override */
        {"\xE2\x81\xA6x\xE2\x81\xA9", 7, "\\u{2066}x\\u{2069}"},
        {"\xD8\x9C", 2, "\\u{61C}"},
        {"\xE2\x80\x8B", 3, "\\u{200B}"}, /* zero width */
        {"\xEF\xBB\xBF", 3, "\\u{FEFF}"},
        {"\xE2\x80\xA8", 3, "\\u{2028}"},
        {"\xF3\xA0\x80\x81", 4, "\\u{E0001}"},
        {"\xE4\xB8\xAD\xC3\xA9\xF0\x9F\x98\x80", 9, "\xE4\xB8\xAD\xC3\xA9\xF0\x9F\x98\x80"},
        {"\xFF\xC3", 2, "\\xFF\\xC3"},
        {"\xED\xA0\x80", 3, "\\xED\\xA0\\x80"},
        {"\xEF\xBF\xBD", 3, "\xEF\xBF\xBD"}, /* U+FFFD itself */
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char out[64];
        assert_int_equal(heft__escape(out, sizeof out, rows[i].text, rows[i].len), strlen(rows[i].escaped));
        assert_string_equal(out, rows[i].escaped);
        assert_int_equal(heft__escape_length(rows[i].text, rows[i].len), strlen(rows[i].escaped));
    }
}

static void cut_escapes_are_whole(void **state) {
    (void)state;
    static const char text[] = "ab\n\xE4\xB8\xAD\x1B\xE2\x80\xAEz\xF0\x9F\x98\x80";
    char whole[64];
    size_t need = heft__escape(whole, sizeof whole, text, sizeof text - 1);
    guard g;
    guard_init(&g, 64);
    for (size_t size = 0; size <= need + 2; size++) {
        char zero[64] = {0}, *out = guard_copy(&g, zero, size);
        size_t n = heft__escape(out, size, text, sizeof text - 1);
        if (size == 0) {
            assert_int_equal(n, 0);
            continue;
        }
        assert_true(n < size && out[n] == 0);
        assert_int_equal(heft__utf8_check(out, n), n);
        if (size > need) {
            assert_string_equal(out, whole);
        } else if (size > 3) {
            assert_true(n >= 3);
            assert_memory_equal(out + n - 3, "\xE2\x80\xA6", 3);
            assert_memory_equal(out, whole, n - 3);
            assert_true(size - n <= 8); /* no room for the longest form was left unused */
            assert_int_not_equal(out[n - 4 < n ? n - 4 : 0], '\\');
        } else {
            assert_int_equal(n, 0);
        }
    }
    guard_free(&g);
}

/* Optimal string alignment, the whole table. */
static uint32_t slow_distance(const char *a, size_t n, const char *b, size_t m) {
    uint32_t d[16][16];
    for (size_t i = 0; i <= n; i++)
        for (size_t j = 0; j <= m; j++) {
            if (i == 0 || j == 0) {
                d[i][j] = (uint32_t)(i + j);
                continue;
            }
            uint32_t best = d[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
            if (d[i - 1][j] + 1 < best) best = d[i - 1][j] + 1;
            if (d[i][j - 1] + 1 < best) best = d[i][j - 1] + 1;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && d[i - 2][j - 2] + 1 < best)
                best = d[i - 2][j - 2] + 1;
            d[i][j] = best;
        }
    return d[n][m];
}

static void distances_match_the_table(void **state) {
    (void)state;
    uint64_t seed = 9;
    for (uint64_t i = test_count(200000); i > 0; i--) {
        char a[15], b[15];
        size_t n = random_below(&seed, 15), m = random_below(&seed, 15);
        for (size_t k = 0; k < n; k++) a[k] = (char)('a' + random_below(&seed, 3));
        for (size_t k = 0; k < m; k++) b[k] = (char)('a' + random_below(&seed, 3));
        uint32_t want = slow_distance(a, n, b, m), limit = (uint32_t)random_below(&seed, 17);
        uint32_t got = heft__edit_distance(a, n, b, m, limit);
        if (got != (want < limit + 1 ? want : limit + 1))
            fail_msg("%.*s %.*s %u: %u", (int)n, a, (int)m, b, limit, got);
    }
}

static void distances_of_long_names_are_bounded(void **state) {
    (void)state;
    static char a[100000], b[100000];
    memset(a, 'a', sizeof a);
    memset(b, 'b', sizeof b);
    assert_int_equal(heft__edit_distance(a, sizeof a, a, sizeof a, 3), 0);
    assert_int_equal(heft__edit_distance(a, sizeof a, b, sizeof b, 3), 4);
    assert_int_equal(heft__edit_distance(a, sizeof a, a, sizeof a - 2, 3), 2);
    assert_int_equal(heft__edit_distance(a, sizeof a, b, 5, 3), 4);
    assert_int_equal(heft__edit_distance(a, sizeof a, b, sizeof b, UINT32_MAX), 256);
    assert_int_equal(heft__edit_distance(a, 0, b, 0, 0), 0);
    memcpy(b, a, sizeof b);
    b[50] = 'x';
    b[90000] = 'y';
    assert_int_equal(heft__edit_distance(a, 200, b, 200, 3), 1);
}

static void sizes_for_people(void **state) {
    (void)state;
    static const struct {
        uint64_t nbytes;
        const char *text, *exact;
    } rows[] = {
        {0, "0 bytes", "0 bytes"},
        {1, "1 byte", "1 byte"},
        {1023, "1023 bytes", "1023 bytes"},
        {1024, "1.0 KiB", "1.0 KiB (1,024 bytes)"},
        {(1 << 20) - 1, "1023.9 KiB", "1023.9 KiB (1,048,575 bytes)"},
        {1 << 20, "1.0 MiB", "1.0 MiB (1,048,576 bytes)"},
        {UINT64_C(13204889600), "12.2 GiB", "12.2 GiB (13,204,889,600 bytes)"},
        {UINT64_MAX, "15.9 EiB", "15.9 EiB (18,446,744,073,709,551,615 bytes)"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[HEFT__SIZE_TEXT];
        assert_string_equal(heft__size_text(rows[i].nbytes, text), rows[i].text);
        assert_string_equal(heft__size_exact(rows[i].nbytes, text), rows[i].exact);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(globs_by_hand),
        cmocka_unit_test(bad_globs_are_named),
        cmocka_unit_test(random_globs_match_the_definition),
        cmocka_unit_test(hostile_globs_take_no_time),
        cmocka_unit_test(natural_order_of_names),
        cmocka_unit_test(natural_order_is_an_order),
        cmocka_unit_test(order_of_bytes),
        cmocka_unit_test(escapes_by_hand),
        cmocka_unit_test(cut_escapes_are_whole),
        cmocka_unit_test(distances_match_the_table),
        cmocka_unit_test(distances_of_long_names_are_bounded),
        cmocka_unit_test(sizes_for_people),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
