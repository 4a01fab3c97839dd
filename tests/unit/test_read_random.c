/* label: threads */
/* Random views of random tensors, read into packed and strided memory and compared with a gather element by element. */
#include "helper_archive.h"
#include "helper_files.h"

#include "base/error.h"
#include "ops/run.h"
#include "plan/plan.h"

#define ROOM (1 << 20)
static uint8_t bytes[ROOM], want[ROOM + 64], got[ROOM + 64];
static test_bytes origin = {.data = bytes, .nbytes = ROOM};

static void fresh(uint64_t at, uint64_t nbytes) {
    memset(want + at, 0xA5, nbytes);
    memset(got + at, 0xA5, nbytes);
}

/* Up to 12 tensors, some touching, some apart, some unaligned. */
static uint64_t random_tensors(made_tensor *tensors, uint64_t *state, uint64_t most_dim) {
    uint64_t n = 1 + test_random(state) % 12, at = 8 + test_random(state) % 64, made = 0;
    for (uint64_t i = 0; i < n; i++) {
        made_tensor t = {.dtype = (heft_dtype)(1 + test_random(state) % (HEFT_DTYPE_COUNT - 1))};
        uint64_t bits = heft_dtype_bits(t.dtype);
        t.rank = (uint32_t)(test_random(state) % 5);
        for (uint32_t d = 0; d < t.rank; d++) {
            t.shape[d] = test_random(state) % 10 ? 1 + test_random(state) % most_dim : 0;
            bits *= t.shape[d];
        }
        if (bits % 8 || bits / 8 > ROOM / 16 || at + bits / 8 > ROOM - 4096) continue;
        t.begin = at;
        t.end = at += bits / 8;
        if (test_random(state) % 3 == 0) at += test_random(state) % 40;
        if (test_random(state) % 8 == 0) at += test_random(state) % 9000;
        tensors[made++] = t;
    }
    return made;
}

static void swap_packed(heft_dtype dtype, uint8_t *data, uint64_t nbytes) {
    uint64_t n = heft_dtype_component_bits(dtype) / 8;
    for (uint64_t at = 0; n > 1 && at < nbytes; at += n)
        for (uint64_t i = 0; i < n / 2; i++) {
            uint8_t t = data[at + i];
            data[at + i] = data[at + n - 1 - i];
            data[at + n - 1 - i] = t;
        }
}

static uint64_t packed_nbytes(const heft_view *view) {
    uint64_t n = heft_dtype_bits(view->dtype);
    for (uint32_t d = 0; d < view->rank; d++) n *= (uint64_t)view->shape[d];
    return (n + 7) / 8;
}

static heft_plan *new_plan(uint64_t *state, bool *swap, bool layout, bool slots) {
    static const uint64_t gaps[] = {0, 0, HEFT_NONE, 1, 100, 5000};
    heft__plan_request request = {.alloc = heft__default_allocator, .default_workers = 2, .layout = layout, .slots = slots};
    request.options.gap_nbytes = gaps[test_random(state) % 6];
    request.options.block_nbytes = test_random(state) % 3 ? 0 : 1 + test_random(state) % 5000;
    request.options.workers = (uint32_t)(test_random(state) % 3);
    request.host_is_big_endian = test_random(state) % 4 == 0;
    request.options.keep_file_order = test_random(state) % 8 == 0;
    request.phase = test_random(state);
    if (test_random(state) % 2) { /* all ways to read, also for what is small */
        request.scratch_most = 16 + test_random(state) % 500;
        request.vector_min = 1 + test_random(state) % 64;
        request.unit_min = 1 + test_random(state) % 32;
    }
    *swap = request.host_is_big_endian && !request.options.keep_file_order;
    heft_plan *plan;
    heft_error err;
    if (heft__plan_new(&request, &plan, &err) != HEFT_OK) fail_msg("%s", err.message);
    return plan;
}

static void run_plan(heft_plan *plan, uint8_t *const *slots) {
    heft_error err;
    heft_read_stats stats;
    uint64_t before = origin.read_nbytes;
    if (heft__run(plan, slots, &stats, &err) != HEFT_OK) fail_msg("%s", err.message);
    assert_int_equal(stats.kept_nbytes, plan->sum.kept_nbytes);
    assert_int_equal(stats.kept_nbytes + stats.over_read_nbytes + stats.spanned_nbytes, stats.requested_nbytes);
    assert_true(stats.requested_nbytes <= plan->sum.requested_nbytes);
    assert_int_equal(origin.read_nbytes - before, stats.requested_nbytes); /* nothing that the plan does not say */
    assert_true(plan->sum.requested_nbytes == plan->sum.kept_nbytes + plan->sum.over_read_nbytes + plan->sum.spanned_nbytes);
}

static void start(made_archive *made, heft_source *source, uint64_t *state) {
    made_tensor tensors[12];
    uint64_t n;
    do n = random_tensors(tensors, state, test_random(state) % 4 ? 9 : 40);
    while (n == 0);
    made_archive_init(made, source, tensors, n);
}

static void packed_views_are_right(void **unused) {
    (void)unused;
    uint64_t state = 20241129, cases = test_count(20000);
    heft_source *source = test_source(&origin);
    made_archive made;
    fresh(0, ROOM);
    for (uint64_t c = 0; c < cases; c++) {
        start(&made, source, &state);
        bool swap;
        heft_error err;
        heft_plan *plan = new_plan(&state, &swap, false, false);
        uint64_t nviews = 1 + test_random(&state) % 6, place = test_random(&state) % 70;
        heft_view views[6];
        uint64_t places[6];
        for (uint64_t i = 0; i < nviews; i++) {
            uint64_t id = test_random(&state) % made.archive.ntensors;
            views[i] = test_random(&state) % 4 ? random_view(&made, id, &state) : made_view(&made, id);
            places[i] = place;
            if (place + packed_nbytes(&views[i]) + 200 > ROOM / 4) {
                nviews = i;
                break;
            }
            naive_gather(&views[i], bytes, want + place);
            if (swap) swap_packed(views[i].dtype, want + place, packed_nbytes(&views[i]));
            place += packed_nbytes(&views[i]) + (test_random(&state) % 2 ? 0 : test_random(&state) % 100);
        }
        for (uint64_t i = 0; i < nviews; i++)
            if (heft__plan_add_view(plan, &views[i], places[i], NULL, (uint32_t)i, &err) != HEFT_OK) fail_msg("%s", err.message);
        assert_int_equal(heft__plan_finish(plan, &err), HEFT_OK);
        uint8_t *slot = got;
        run_plan(plan, &slot);
        assert_memory_equal(got, want, place + 64);
        fresh(0, place + 64);
        heft_plan_free(plan);
    }
    heft_source_unref(source);
}

static void strided_destinations_are_right(void **unused) {
    (void)unused;
    uint64_t state = 777, cases = test_count(20000);
    heft_source *source = test_source(&origin);
    made_archive made;
    for (uint64_t c = 0; c < cases; c++) {
        start(&made, source, &state);
        heft_view view = random_view(&made, test_random(&state) % made.archive.ntensors, &state);
        uint32_t bits = heft_dtype_bits(view.dtype);
        if (bits < 8) continue;
        int64_t strides[HEFT_MAX_RANK], step = bits / 8, base = 300000, low = 0, high = 0, room;
        uint32_t order[HEFT_MAX_RANK];
        for (uint32_t d = 0; d < view.rank; d++) order[d] = d;
        for (uint32_t d = view.rank; d > 1; d--) { /* any order of dims in the destination */
            uint32_t e = test_random(&state) % 3 ? d - 1 : (uint32_t)(test_random(&state) % d), t = order[d - 1];
            order[d - 1] = order[e];
            order[e] = t;
        }
        for (uint32_t d = view.rank; d-- > 0;) {
            uint32_t dim = order[d];
            step += test_random(&state) % 3 ? 0 : (int64_t)(test_random(&state) % 9);
            strides[dim] = test_random(&state) % 4 ? step : -step;
            room = strides[dim] * (view.shape[dim] > 0 ? view.shape[dim] - 1 : 0);
            if (room < 0) low += room;
            else high += room;
            step *= view.shape[dim] > 0 ? view.shape[dim] : 1;
        }
        if (base + low < 64 || base + high > ROOM - 128) continue;
        bool swap;
        heft_error err;
        heft_plan *plan = new_plan(&state, &swap, false, false);
        uint64_t n = packed_nbytes(&view), index[HEFT_MAX_RANK] = {0};
        uint8_t *packed = malloc(n + 1);
        naive_gather(&view, bytes, packed);
        if (swap) swap_packed(view.dtype, packed, n);
        fresh((uint64_t)(base + low - 64), (uint64_t)(high - low) + 136);
        for (uint64_t at = 0; at < n; at += bits / 8) {
            int64_t to = base;
            for (uint32_t d = 0; d < view.rank; d++) to += (int64_t)index[d] * strides[d];
            memcpy(want + to, packed + at, bits / 8);
            for (uint32_t d = view.rank; d-- > 0;) {
                if (++index[d] < (uint64_t)view.shape[d]) break;
                index[d] = 0;
            }
        }
        free(packed);
        assert_int_equal(heft__plan_add_view(plan, &view, 0, strides, 0, &err), HEFT_OK);
        assert_int_equal(heft__plan_finish(plan, &err), HEFT_OK);
        uint8_t *slot = got + base;
        run_plan(plan, &slot);
        /* gaps and surroundings too */
        assert_memory_equal(got + base + low - 64, want + base + low - 64, (size_t)(high - low) + 136);
        heft_plan_free(plan);
    }
    heft_source_unref(source);
}

static void many_tensors_are_right(void **unused) {
    (void)unused;
    uint64_t state = 4711, cases = test_count(10000);
    heft_source *source = test_source(&origin);
    made_archive made;
    for (uint64_t c = 0; c < cases; c++) {
        start(&made, source, &state);
        bool swap, layout = test_random(&state) % 2;
        heft_error err;
        heft_plan *plan = new_plan(&state, &swap, layout, !layout);
        uint64_t n = made.archive.ntensors, keep = 1 + test_random(&state) % 3;
        uint8_t *slots[12], *memory[12];
        for (uint64_t i = 0; i < n; i++) {
            uint64_t nbytes = made.entries[i].end - made.entries[i].begin;
            memory[i] = malloc(nbytes + 2);
            memory[i][0] = memory[i][nbytes + 1] = 0xA5;
            slots[i] = memory[i] + 1;
        }
        for (uint64_t i = n; i-- > 0;)
            if ((i + c) % keep == 0)
                assert_int_equal(heft__plan_add_tensor(plan, &made.archive, i, (uint32_t)i, &err), HEFT_OK);
        assert_int_equal(heft__plan_finish(plan, &err), HEFT_OK);
        uint8_t *arena = layout ? malloc(plan->sum.dst_nbytes + 1) : NULL;
        if (layout) arena[plan->sum.dst_nbytes] = 0xA5;
        run_plan(plan, layout ? &arena : slots);
        if (layout) assert_int_equal(arena[plan->sum.dst_nbytes], 0xA5);
        for (uint64_t i = 0; i < plan->nitems; i++) {
            const heft__plan_item *item = &plan->items[i];
            uint64_t nbytes = made.entries[item->id].end - made.entries[item->id].begin;
            heft_view view = made_view(&made, item->id);
            naive_gather(&view, bytes, want);
            if (swap) swap_packed(view.dtype, want, nbytes);
            assert_memory_equal(layout ? arena + item->place : slots[item->view], want, nbytes);
            if (layout) assert_int_equal((uint64_t)item->place % heft__dtypes[view.dtype].align, 0);
        }
        for (uint64_t i = 0; i < n; i++) {
            uint64_t nbytes = made.entries[i].end - made.entries[i].begin;
            assert_int_equal(memory[i][0] + memory[i][nbytes + 1], 2 * 0xA5);
            free(memory[i]);
        }
        free(arena);
        heft_plan_free(plan);
    }
    heft_source_unref(source);
}

static int setup(void **unused) {
    (void)unused;
    uint64_t state = 99;
    for (size_t i = 0; i < ROOM; i++) bytes[i] = (uint8_t)(test_random(&state) >> 56);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(packed_views_are_right),
        cmocka_unit_test(strided_destinations_are_right),
        cmocka_unit_test(many_tensors_are_right),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
