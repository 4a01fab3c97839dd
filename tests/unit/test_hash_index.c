/* The hash index: growth, replacing, failing allocations, spread of the hash. */
#include "helper.h"

#include "base/hash_index.h"
#include "helper_files.h"
#include "helper_guard.h"
#include "helper_random.h"

static size_t make_name(uint32_t number, char *name) {
    return (size_t)sprintf(name, "model.layers.%u.self_attn.q_proj.weight", (unsigned)number);
}

/* The number of a name that make_name made, or UINT32_MAX. */
static uint32_t find(const heft__hash_index *index, const char *name, size_t len) {
    uint32_t hash = heft__hash_name(index, name, len), number;
    uint64_t cursor = heft__hash_start(index, hash);
    while (heft__hash_next(index, hash, &cursor, &number)) {
        char other[64];
        size_t n = make_name(number, other);
        if (n == len && memcmp(name, other, n) == 0) return number;
    }
    return UINT32_MAX;
}

static void names_are_found_while_it_grows(void **state) {
    (void)state;
    uint32_t n = (uint32_t)test_count(100000);
    for (uint64_t expected = 0; expected <= n; expected += n) {
        test_allocator t;
        test_allocator_init(&t, 0);
        heft__hash_index index;
        assert_true(heft__hash_index_init(&index, &t.alloc, expected));
        assert_int_equal(find(&index, "x", 1), UINT32_MAX);
        uint64_t before = heft__hash_index_nbytes(&index);
        assert_int_equal(t.live_nbytes, before);
        char name[64];
        for (uint32_t i = 0; i < n; i++) {
            size_t len = make_name(i, name);
            if (i % 64 == 0) assert_int_equal(find(&index, name, len), UINT32_MAX);
            assert_true(heft__hash_add(&index, heft__hash_name(&index, name, len), i));
        }
        assert_int_equal(index.count, n);
        if (expected) assert_int_equal(heft__hash_index_nbytes(&index), before);       /* it did not grow */
        assert_true(heft__hash_index_nbytes(&index) <= 8 * 8 * (uint64_t)n / 3 + 128); /* at least 3/8 full */
        assert_int_equal(t.live_nbytes, heft__hash_index_nbytes(&index));
        for (uint32_t i = 0; i < n; i++) assert_int_equal(find(&index, name, make_name(i, name)), i);
        assert_int_equal(find(&index, name, make_name(n, name)), UINT32_MAX);
        heft__hash_index_free(&index);
        assert_int_equal(t.live_blocks, 0);
        assert_int_equal(find(&index, "x", 1), UINT32_MAX); /* an empty one again */
    }
}

/* All under one hash: slow, but right, also when the run of slots wraps around the end. */
static void equal_hashes_are_kept_apart(void **state) {
    (void)state;
    static const uint32_t hashes[] = {0, 1, 0xFFFFFFFF, 0xFFFFFFFE, 0x80000000};
    heft__hash_index index;
    assert_true(heft__hash_index_init(&index, &heft__default_allocator, 0));
    for (uint32_t i = 0; i < 5000; i++) assert_true(heft__hash_add(&index, hashes[i % 5], i));
    for (uint32_t h = 0; h < 5; h++) {
        uint64_t cursor = heft__hash_start(&index, hashes[h]);
        uint32_t number, sum = 0, n = 0;
        for (; heft__hash_next(&index, hashes[h], &cursor, &number); n++) {
            assert_int_equal(number % 5, h);
            sum += number / 5;
        }
        assert_int_equal(n, 1000);
        assert_int_equal(sum, 1000 * 999 / 2);
    }
    heft__hash_index_free(&index);
}

static void failing_allocations_leave_it_as_it_was(void **state) {
    (void)state;
    heft__hash_index index;
    test_allocator t;
    test_allocator_init(&t, 1);
    assert_false(heft__hash_index_init(&index, &t.alloc, 100));
    heft__hash_index_free(&index);
    assert_int_equal(t.live_blocks, 0);
    assert_false(heft__hash_index_init(&index, &t.alloc, UINT64_C(1) << 33)); /* more numbers than there are */
    for (uint64_t k = 1; k <= 4; k++) {
        test_allocator_init(&t, k);
        assert_true(heft__hash_index_init(&index, &t.alloc, 0));
        uint32_t i = 0;
        while (i < 80 && heft__hash_add(&index, i * 2654435761u, i)) i++;
        assert_int_equal(i, k == 1 ? 0 : 12u << (k - 2)); /* full at 3/4 of 16, 32, 64 */
        assert_int_equal(index.count, i);
        for (uint32_t j = 0; j < i; j++) {
            uint64_t cursor = heft__hash_start(&index, j * 2654435761u);
            uint32_t number;
            assert_true(heft__hash_next(&index, j * 2654435761u, &cursor, &number));
            assert_int_equal(number, j);
        }
        assert_true(heft__hash_add(&index, 1, 99)); /* memory is there again */
        heft__hash_index_free(&index);
        assert_int_equal(t.live_blocks, 0);
    }
}

/* Every length, every bit of the name, and the seed change the hash. */
static void every_bit_counts(void **state) {
    (void)state;
    heft__hash_index index, other;
    assert_true(heft__hash_index_init(&index, &heft__default_allocator, 0));
    assert_true(heft__hash_index_init(&other, &heft__default_allocator, 0));
    assert_memory_not_equal(index.seed, other.seed, sizeof index.seed);
    index.seed[0] = 1, index.seed[1] = 2; /* the same in every run */
    other.seed[0] = 1, other.seed[1] = 3;
    guard g;
    guard_init(&g, 200);
    char text[200];
    uint64_t seed = 1, same_seed = 0, flips = 0, changed = 0;
    for (size_t len = 0; len <= 130; len++) {
        for (size_t i = 0; i < len; i++) text[i] = (char)random_u64(&seed);
        char *name = guard_copy(&g, text, len);
        uint32_t hash = heft__hash_name(&index, name, len);
        assert_int_equal(heft__hash_name(&index, text, len), hash); /* wherever it lies */
        same_seed += heft__hash_name(&other, name, len) == hash;
        for (size_t bit = 0; bit < 8 * len; bit++) {
            name[bit / 8] = (char)(name[bit / 8] ^ 1 << bit % 8);
            uint32_t now = heft__hash_name(&index, name, len);
            name[bit / 8] = (char)(name[bit / 8] ^ 1 << bit % 8);
            assert_int_not_equal(now, hash);
            changed += (uint64_t)__builtin_popcount(now ^ hash);
            flips++;
        }
    }
    assert_int_equal(same_seed, 0);
    double mean = (double)changed / (double)flips; /* of 32 bits; 16 is perfect */
    if (mean < 15.8 || mean > 16.2) fail_msg("a flipped bit changes %d/1000 bits", (int)(mean * 1000));
    heft__hash_index_free(&index);
    heft__hash_index_free(&other);
    guard_free(&g);
}

/* Zeros of different lengths, short names, and names that differ in one number, spread evenly over buckets. */
static void hashes_spread(void **state) {
    (void)state;
    heft__hash_index index;
    assert_true(heft__hash_index_init(&index, &heft__default_allocator, 0));
    index.seed[0] = 3, index.seed[1] = 4;
    static char zeros[4096];
    for (int kind = 0; kind < 3; kind++) {
        static uint32_t low[1024], high[1024];
        memset(low, 0, sizeof low);
        memset(high, 0, sizeof high);
        for (uint32_t i = 0; i < 65536; i++) {
            char name[64];
            size_t len = make_name(i, name);
            if (kind == 1) {
                len = 3;
                for (size_t k = 0; k < len; k++) name[k] = (char)(i >> 8 * k);
            }
            uint32_t hash = heft__hash_name(&index, kind == 2 ? zeros + i % 16 : name, kind == 2 ? i / 17 : len);
            if (kind == 2 && i % 17) continue;
            low[hash % 1024]++;
            high[hash >> 22]++;
        }
        double n = kind == 2 ? 3856 : 65536, mean = n / 1024, chi_low = 0, chi_high = 0;
        for (int b = 0; b < 1024; b++) {
            chi_low += (low[b] - mean) * (low[b] - mean) / mean;
            chi_high += (high[b] - mean) * (high[b] - mean) / mean;
        }
        /* Chi squared of 1,023 degrees: standard deviation 45; five of them. */
        if (chi_low > 1023 + 226 || chi_high > 1023 + 226)
            fail_msg("kind %d: %d, %d", kind, (int)chi_low, (int)chi_high);
    }
    heft__hash_index_free(&index);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_found_while_it_grows),
        cmocka_unit_test(equal_hashes_are_kept_apart),
        cmocka_unit_test(failing_allocations_leave_it_as_it_was),
        cmocka_unit_test(every_bit_counts),
        cmocka_unit_test(hashes_spread),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
