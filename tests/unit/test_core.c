/* Status and fault tables, errors, allocator helpers, arena. */
#include "helper.h"

#include "base/alloc.h"
#include "base/error.h"

static void statuses_are_unique(void **state) {
    (void)state;
    static const struct {
        heft_status number;
        const char *name;
    } all[] = {
#define ROW(constant, number, name, text) {HEFT_##constant, name},
        HEFT_STATUS_TABLE(ROW)
#undef ROW
    };
    size_t n = sizeof all / sizeof *all;
    for (size_t i = 0; i < n; i++) {
        assert_string_equal(heft_status_name(all[i].number), all[i].name);
        for (size_t j = 0; j < i; j++) {
            assert_int_not_equal(all[i].number, all[j].number);
            assert_string_not_equal(all[i].name, all[j].name);
        }
    }
    assert_string_equal(heft_status_name(1), "unknown");
    assert_string_equal(heft_status_text(-1000), "unknown status");
}

static void fault_words_are_unique(void **state) {
    (void)state;
    for (uint32_t i = 0; i < HEFT_FAULT_COUNT; i++)
        for (uint32_t j = 0; j < i; j++) assert_string_not_equal(heft_fault_name(i), heft_fault_name(j));
    assert_string_equal(heft_fault_name(HEFT_FAULT_COUNT), "unknown");
}

static void long_messages_are_cut(void **state) {
    (void)state;
    heft_error err;
    char text[1000];
    for (size_t shift = 0; shift < 4; shift++) { /* a cut at each byte of a multi-byte character */
        memset(text, 'a', sizeof text);
        for (size_t i = shift; i + 2 < sizeof text - 1; i += 2) memcpy(text + i, "\xC3\xA9", 2);
        text[sizeof text - 1] = 0;
        assert_int_equal(heft__fail(&err, HEFT_CORRUPT, HEFT_FAULT_HOLE, "%s", text), HEFT_CORRUPT);
        size_t n = strlen(err.message);
        assert_in_range(n, sizeof err.message - 4, sizeof err.message - 1);
        assert_memory_equal(err.message + n - 3, "\xE2\x80\xA6", 3);
        assert_int_equal(heft__utf8_check(err.message, n), n);
    }
    assert_int_equal(err.offset, HEFT_NONE);
    assert_int_equal(heft__fail(NULL, HEFT_IO, HEFT_FAULT_NONE, "x"), HEFT_IO);
}

static void arena_blocks_are_apart(void **state) {
    (void)state;
    heft__arena arena;
    heft__arena_init(&arena, &heft__default_allocator);
    uint8_t *blocks[300];
    for (size_t i = 0; i < 300; i++) {
        size_t n = i * 37 % 9001;
        blocks[i] = heft__arena_alloc(&arena, n, i % 2 ? 8 : 1);
        assert_non_null(blocks[i]);
        if (i % 2) assert_int_equal((uintptr_t)blocks[i] % 8, 0);
        memset(blocks[i], (int)i, n);
    }
    for (size_t i = 0; i < 300; i++)
        for (size_t k = 0; k < i * 37 % 9001; k++) assert_int_equal(blocks[i][k], (uint8_t)i);
    assert_null(heft__arena_alloc(&arena, UINT64_MAX, 1));
    heft__arena_free(&arena);
}

static void large_blocks_keep_their_content(void **state) {
    (void)state;
    const heft_allocator *a = &heft__default_allocator;
    /* Tails behind the last huge page, and blocks that have grown before: several areas of memory each. */
    uint64_t sizes[] = {10, HEFT__HUGE_MIN - 1, HEFT__HUGE_MIN, HEFT__HUGE_MIN + 9001, 3 * HEFT__HUGE_MIN + 5,
                        7 * HEFT__HUGE_MIN, HEFT__HUGE_MIN, 7};
    uint8_t *p = NULL;
    uint64_t old = 0;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        uint64_t kept = old < sizes[i] ? old : sizes[i];
        p = heft__realloc(a, p, old, sizes[i]);
        assert_non_null(p);
        for (uint64_t k = 0; k < kept; k += 4093) assert_int_equal(p[k], (uint8_t)(k * 31 >> 8));
        for (uint64_t k = kept; k < sizes[i]; k++) p[k] = (uint8_t)(k * 31 >> 8);
        old = sizes[i];
    }
    heft__free(a, p, old);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(statuses_are_unique),      cmocka_unit_test(fault_words_are_unique),
        cmocka_unit_test(long_messages_are_cut),    cmocka_unit_test(arena_blocks_are_apart),
        cmocka_unit_test(large_blocks_keep_their_content),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
