/* Chunks of a ring: they never overlap, stay aligned, and a ring that is empty takes its whole size. */
#include "helper.h"
#include "helper_random.h"

#include "ops/load_ring.h"

enum { CHUNKS = 40 };

static void check(const heft__ring *ring, const bool *live) {
    uint64_t used = 0;
    for (uint32_t i = 0; i < CHUNKS; i++) {
        if (!live[i]) continue;
        const heft__ring_chunk *a = &ring->chunks[i];
        used += a->end - a->begin;
        assert_true(a->begin <= a->end && a->end <= ring->nbytes);
        for (uint32_t j = 0; j < i; j++)
            if (live[j]) assert_true(a->end <= ring->chunks[j].begin || ring->chunks[j].end <= a->begin);
    }
    assert_true(used == ring->used);
}

static void test_random(void **state) {
    (void)state;
    uint64_t seed = 5;
    for (uint64_t round = test_count(300); round-- > 0;) {
        heft__ring_chunk chunks[CHUNKS];
        bool live[CHUNKS] = {false};
        heft__ring ring = {.chunks = chunks, .nbytes = 1000 + random_below(&seed, 5000), .last = HEFT__RING_NONE};
        for (int step = 0; step < 300; step++) {
            uint32_t i = (uint32_t)random_below(&seed, CHUNKS);
            if (live[i]) {
                heft__ring_free(&ring, i);
                live[i] = false;
            } else {
                uint64_t align = UINT64_C(1) << random_below(&seed, 8), n = random_below(&seed, ring.nbytes / 3) + 1;
                live[i] = heft__ring_place(&ring, i, n, align);
                if (live[i]) assert_true(chunks[i].begin % align == 0 && chunks[i].end - chunks[i].begin == n);
            }
            check(&ring, live);
        }
        for (uint32_t i = 0; i < CHUNKS; i++)
            if (live[i]) heft__ring_free(&ring, i);
        assert_true(ring.used == 0);
        assert_true(heft__ring_place(&ring, 0, ring.nbytes, 1));
        assert_false(heft__ring_place(&ring, 1, 1, 1));
        heft__ring_free(&ring, 0);
        assert_false(heft__ring_place(&ring, 0, ring.nbytes + 1, 1));
    }
}

/* First in, first out goes round for ever, whatever the sizes below half of the ring. */
static void test_round(void **state) {
    (void)state;
    heft__ring_chunk chunks[CHUNKS];
    heft__ring ring = {.chunks = chunks, .nbytes = 1 << 16, .last = HEFT__RING_NONE};
    uint64_t seed = 9, first = 0, next = 0;
    for (int i = 0; i < 10000; i++) {
        uint64_t n = random_below(&seed, 1 << 15) + 1;
        while (next - first == CHUNKS || !heft__ring_place(&ring, (uint32_t)(next % CHUNKS), n, 64)) {
            assert_true(first < next);
            heft__ring_free(&ring, (uint32_t)(first++ % CHUNKS));
        }
        next++;
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random), cmocka_unit_test(test_round)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
