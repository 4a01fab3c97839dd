/* Copies of strided memory against element by element: whole tiles, what is left beside them, and all other ways to lie. */
#include "helper.h"
#include "helper_random.h"

#include "device/device.h"

enum { ROOM = 1 << 20 };

static void copy_naive(uint8_t *dst, const uint8_t *src, const heft__loop *loops, uint32_t rank, size_t unit) {
    if (rank == 0) {
        memcpy(dst, src, unit);
        return;
    }
    for (uint64_t i = 0; i < loops->count; i++)
        copy_naive(dst + (int64_t)i * loops->dst, src + (int64_t)i * loops->src, loops + 1, rank - 1, unit);
}

static void assert_copies(uint8_t *mine, uint8_t *expected, const uint8_t *src, int64_t from, const heft__loop *loops,
                          uint32_t rank, size_t unit) {
    memset(mine, 0xA5, ROOM);
    memset(expected, 0xA5, ROOM);
    heft__copy_loops(mine + ROOM / 4, src + from, loops, rank, unit, 0);
    copy_naive(expected + ROOM / 4, src + from, loops, rank, unit);
    assert_memory_equal(mine, expected, ROOM);
}

static void matrices_are_transposed(void **state) {
    (void)state;
    uint64_t seed = 3;
    uint8_t *src = malloc(ROOM), *mine = malloc(ROOM), *expected = malloc(ROOM);
    for (size_t i = 0; i < ROOM; i++) src[i] = (uint8_t)random_u64(&seed);
    for (size_t unit = 1; unit <= 16; unit *= 2)
        for (uint64_t i = 0; i < test_count(60); i++) {
            uint64_t most = 400 / unit + 10, rows = 1 + random_below(&seed, most), columns = 1 + random_below(&seed, most);
            if (i == 0) rows = columns = 64 / unit ? 64 / unit : 1;
            int64_t u = (int64_t)unit, gap = i % 3 ? (int64_t)random_below(&seed, 9) : 0;
            int64_t src_step = (int64_t)columns * u + gap, dst_step = (int64_t)rows * u + gap;
            heft__loop loops[3] = {{columns, u, dst_step}, {rows, src_step, u}};
            assert_copies(mine, expected, src, 7, loops, 2, unit); /* unaligned */
            loops[0].src = -u; /* columns reversed */
            assert_copies(mine, expected, src, (int64_t)(columns - 1) * u, loops, 2, unit);
            loops[0].src = u, loops[1].src = -src_step; /* rows reversed */
            assert_copies(mine, expected, src, (int64_t)(rows - 1) * src_step, loops, 2, unit);
            heft__loop nest[3] = {{columns, u, 2 * dst_step}, {2, (int64_t)rows * src_step, dst_step}, {rows, src_step, u}};
            assert_copies(mine, expected, src, 0, nest, 3, unit);
            nest[0].src = 2 * u; /* every second column */
            assert_copies(mine, expected, src, 0, nest, 3, unit);
        }
    for (size_t unit = 1; unit <= 8; unit *= 2) { /* large and aligned: past the caches */
        uint64_t columns = 2048, rows = 1024 / unit + 16;
        int64_t u = (int64_t)unit;
        uint8_t *from = malloc(columns * rows * unit), *to = aligned_alloc(64, columns * rows * unit);
        for (size_t i = 0; i < columns * rows * unit; i++) from[i] = (uint8_t)random_u64(&seed);
        const heft__loop loops[2] = {{columns, u, (int64_t)rows * u}, {rows, (int64_t)columns * u, u}};
        heft__copy_loops(to, from, loops, 2, unit, 0);
        for (uint64_t i = 0; i < columns * rows; i++)
            assert_memory_equal(to + (i % columns * rows + i / columns) * unit, from + i * unit, unit);
        free(from);
        free(to);
    }
    free(src);
    free(mine);
    free(expected);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(matrices_are_transposed)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
