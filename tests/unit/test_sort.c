/* Sorting by keys and by texts: any input, the worst cases of plain quicksorts, permutations. */
#include "helper.h"

#include "base/sort.h"
#include "base/text.h"
#include "helper_random.h"

static void assert_sorted(heft__sort_key *keys, uint64_t n) {
    uint64_t sum = 0;
    for (uint64_t i = 0; i < n; i++) sum += keys[i].index;
    heft__sort_keys(keys, n);
    for (uint64_t i = 0; i < n; i++) sum -= keys[i].index;
    assert_int_equal(sum, 0);
    for (uint64_t i = 1; i < n; i++) {
        assert_true(keys[i - 1].major <= keys[i].major);
        if (keys[i - 1].major == keys[i].major) assert_true(keys[i - 1].index < keys[i].index);
    }
}

static void any_order_is_sorted(void **state) {
    (void)state;
    static heft__sort_key keys[3000];
    uint64_t seed = 1;
    for (uint64_t round = 0; round < test_count(600); round++) {
        uint64_t n = round < 100 ? round : random_below(&seed, 3000), shape = random_below(&seed, 6);
        for (uint32_t i = 0; i < n; i++) {
            uint64_t major = shape == 0   ? random_u64(&seed)
                             : shape == 1 ? i
                             : shape == 2 ? n - i
                             : shape == 3 ? 7
                             : shape == 4 ? random_below(&seed, 5)
                                          : (i < n / 2 ? i : n - i); /* an organ pipe */
            keys[i] = (heft__sort_key){.major = major, .index = i};
        }
        assert_sorted(keys, n);
    }
}

/* What makes a quicksort with the median of three quadratic (Musser): the sort must fall back, and still be right. */
static void killers_are_sorted(void **state) {
    (void)state;
    enum { N = 200000 };
    heft__sort_key *keys = malloc(N * sizeof *keys);
    for (uint32_t i = 0; i < N; i++) {
        uint32_t k = N / 2, value = i < k ? (i % 2 ? k + i - (i == 0) : i + 1) : 2 * (i - k + 1);
        keys[i] = (heft__sort_key){.major = value, .index = i};
    }
    assert_sorted(keys, N);
    free(keys);
}

/* ---- texts ---- */

typedef struct text {
    char bytes[40];
    uint32_t len;
} text;

static const char *text_of(const void *ctx, uint32_t index, uint64_t *len) {
    const text *t = (const text *)ctx + index;
    *len = t->len;
    return t->bytes;
}

static void texts_are_sorted_by_bytes(void **state) {
    (void)state;
    static text texts[500], moved[500];
    static heft__sort_key keys[500];
    uint64_t seed = 2;
    for (uint64_t round = 0; round < test_count(400); round++) {
        uint32_t n = (uint32_t)random_below(&seed, 500), letters = (uint32_t)random_below(&seed, 3) + 1;
        for (uint32_t i = 0; i < n; i++) {
            texts[i].len = (uint32_t)random_below(&seed, 40);
            for (uint32_t k = 0; k < texts[i].len; k++) texts[i].bytes[k] = "\0a\xFF"[random_below(&seed, letters)];
            keys[i].index = i;
        }
        heft__sort_texts(keys, n, text_of, texts);
        for (uint32_t i = 1; i < n; i++) {
            const text *a = &texts[keys[i - 1].index], *b = &texts[keys[i].index];
            int order = heft__bytes_compare(a->bytes, a->len, b->bytes, b->len);
            assert_true(order < 0 || (order == 0 && keys[i - 1].index < keys[i].index));
        }
        memcpy(moved, texts, sizeof moved);
        uint32_t order[500];
        for (uint32_t i = 0; i < n; i++) order[i] = keys[i].index;
        heft__sort_permute(keys, n, moved, sizeof *moved);
        for (uint32_t i = 0; i < n; i++) assert_memory_equal(&moved[i], &texts[order[i]], sizeof *moved);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_order_is_sorted),
        cmocka_unit_test(killers_are_sorted),
        cmocka_unit_test(texts_are_sorted_by_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
