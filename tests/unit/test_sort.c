/* The introsort: any input, ties, and the worst cases of plain quicksorts. */
#include "helper.h"

#include "base/sort.h"
#include "helper_random.h"

static int by_index(const void *ctx, const heft__sort_key *a, const heft__sort_key *b) {
    (void)ctx;
    return a->index < b->index ? -1 : a->index > b->index;
}

static void assert_sorted(heft__sort_key *keys, uint64_t n) {
    uint64_t sum = 0;
    for (uint64_t i = 0; i < n; i++) sum += keys[i].index;
    heft__sort_keys(keys, n, by_index, NULL);
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
    for (uint64_t round = 0; round < random_count(600); round++) {
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

/* McIlroy's adversary: it decides what is less only when asked, so that every pivot is bad. */
static uint32_t adversary_value[4096], adversary_solid, adversary_gas, adversary_candidate;
static uint64_t adversary_asked;

static int adversary(const void *ctx, const heft__sort_key *a, const heft__sort_key *b) {
    (void)ctx;
    adversary_asked++;
    uint32_t x = a->index, y = b->index;
    if (adversary_value[x] == adversary_gas && adversary_value[y] == adversary_gas)
        adversary_value[x == adversary_candidate ? x : y] = adversary_solid++;
    if (adversary_value[x] == adversary_gas)
        adversary_candidate = x;
    else if (adversary_value[y] == adversary_gas)
        adversary_candidate = y;
    return adversary_value[x] < adversary_value[y] ? -1 : adversary_value[x] > adversary_value[y];
}

static void no_input_is_quadratic(void **state) {
    (void)state;
    static heft__sort_key keys[4096];
    const uint32_t n = 4096;
    adversary_gas = n;
    for (uint32_t i = 0; i < n; i++) {
        adversary_value[i] = adversary_gas;
        keys[i] = (heft__sort_key){.major = 0, .index = i};
    }
    heft__sort_keys(keys, n, adversary, NULL);
    assert_true(adversary_asked < (uint64_t)n * 12 * 6); /* n log2 n = 49,152; a quadratic sort asks 4 million times */
    for (uint32_t i = 1; i < n; i++) assert_true(adversary_value[keys[i - 1].index] <= adversary_value[keys[i].index]);
}

static void prefixes_order_like_bytes(void **state) {
    (void)state;
    static const char *const texts[] = {"", "\x01", "a", "a\x01", "ab", "abcdefgh", "abcdefgi", "b", "\xC3\xA9"};
    for (size_t i = 1; i < sizeof texts / sizeof *texts; i++)
        assert_true(heft__sort_prefix(texts[i - 1], strlen(texts[i - 1])) <
                    heft__sort_prefix(texts[i], strlen(texts[i])));
    assert_true(heft__sort_prefix("abcdefghX", 9) == heft__sort_prefix("abcdefghA", 9));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_order_is_sorted),
        cmocka_unit_test(no_input_is_quadratic),
        cmocka_unit_test(prefixes_order_like_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
