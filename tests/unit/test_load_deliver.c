/* label: quick threads */
/* Tensors while they come in: each once and whole, in the order that was asked for; rings of every size; every way to
 * stop. */
#include "helper_files.h"
#include "helper_load.h"
#include "helper_random.h"

#include <pthread.h>
#include <stdatomic.h>

static heft_error err;

#define OK(call)                                                                                                       \
    do                                                                                                                 \
        if ((call) != HEFT_OK) fail_msg("%s:%d: %s", __FILE__, __LINE__, err.message);                                 \
    while (0)

static heft_load_plan *planned(const heft_archive *archive, heft_load_options *o) {
    heft_load_plan *plan;
    o->struct_size = sizeof *o;
    OK(heft_load_plan_new(archive, o, &plan, &err));
    return plan;
}

/* ---- the callback ---- */

typedef struct delivery {
    uint8_t *whole;    /* the bytes of all tensors, one after another */
    uint64_t *offsets; /* by id */
    _Atomic uint32_t *seen;
    _Atomic uint64_t wrong, calls, elsewhere; /* elsewhere: calls on other threads than the caller's */
    pthread_t caller;
    uint64_t stop_after; /* 0: never */
} delivery;

static void delivery_init(delivery *d, const heft_archive *archive) {
    uint64_t n = heft_archive_count(archive), nbytes = 0;
    memset(d, 0, sizeof *d);
    d->caller = pthread_self();
    d->offsets = calloc(n, sizeof *d->offsets);
    d->seen = calloc(n, sizeof *d->seen);
    for (uint64_t id = 0; id < n; id++) {
        heft_tensor t;
        OK(heft_archive_get(archive, id, &t, &err));
        d->offsets[id] = nbytes;
        nbytes += t.nbytes;
    }
    d->whole = malloc(nbytes + 1);
    for (uint64_t id = 0; id < n; id++) {
        heft_view view;
        OK(heft_view_of(archive, id, &view, &err));
        OK(heft_read(&view, d->whole + d->offsets[id], heft_view_nbytes(&view), NULL, NULL, &err));
    }
}

static void delivery_end(delivery *d) {
    free(d->whole);
    free(d->offsets);
    free(d->seen);
}

static int deliver(void *ctx, const heft_loaded *t) {
    delivery *d = ctx;
    d->seen[t->id]++;
    d->elsewhere += !pthread_equal(pthread_self(), d->caller);
    if (!t->data || memcmp(t->data, d->whole + d->offsets[t->id], t->nbytes) != 0) d->wrong++;
    return ++d->calls == d->stop_after;
}

static void test_each(void **state) {
    (void)state;
    heft_archive *archive = load_open(load_set("each", 2, 50, 2500000));
    uint64_t n = heft_archive_count(archive);
    for (heft_io io = HEFT_IO_AUTO; io <= HEFT_IO_DIRECT; io++) {
        for (uint32_t workers = 1; workers <= 4; workers += 3) {
            heft_load_options o = {.struct_size = sizeof o, .io = io, .workers = workers, .block_nbytes = 65536};
            heft_load_plan *plan;
            heft_status status = heft_load_plan_new(archive, &o, &plan, &err);
            if (status == HEFT_UNSUPPORTED) continue;
            OK(status);
            delivery d;
            delivery_init(&d, archive);
            heft_load_stats stats = {.struct_size = sizeof stats};
            OK(heft_load_each(plan, deliver, &d, &stats, &err));
            for (uint64_t id = 0; id < n; id++) assert_int_equal(d.seen[id], 1);
            assert_true(d.wrong == 0 && stats.kept_nbytes > 0);
            if (workers == 1) assert_true(d.elsewhere == 0 && stats.workers == 1); /* no thread was made */
            delivery_end(&d);
            heft_load_plan_free(plan);
        }
    }
    heft_archive_unref(archive);
}

/* A callback that fails ends the load at every point, and nothing is left. */
static void test_each_stops(void **state) {
    (void)state;
    heft_archive *archive = load_open(load_set("stops", 2, 20, 300000));
    for (uint64_t k = 1; k <= 40; k++) {
        test_allocator t;
        test_allocator_init(&t, 0);
        heft_load_options o = {.workers = 3, .block_nbytes = 65536, .allocator = &t.alloc};
        heft_load_plan *plan = planned(archive, &o);
        delivery d;
        delivery_init(&d, archive);
        d.stop_after = k;
        assert_int_equal(heft_load_each(plan, deliver, &d, NULL, &err), HEFT_CANCELLED);
        assert_true(err.tensor[0] && d.calls >= k && d.wrong == 0);
        heft_load_plan_free(plan);
        delivery_end(&d);
        assert_true(t.live_blocks == 0);
    }
    heft_archive_unref(archive);
}

/* ---- the iterator ---- */

/* Runs an iterator to its end; items of a ring are released one late, in either order. */
static uint64_t drain(heft_load_iter *iter, delivery *d, heft_load_order order, uint64_t hold) {
    heft_loaded t, held[8];
    uint64_t n = 0, nheld = 0, last = 0;
    for (;; n++) {
        OK(heft_load_iter_next(iter, &t, &err));
        if (!t.name) break;
        d->seen[t.id]++;
        if (memcmp(t.data, d->whole + d->offsets[t.id], t.nbytes) != 0) d->wrong++;
        if (order == HEFT_LOAD_ORDER_FILE && n) assert_true(t.id > last);
        last = t.id;
        held[nheld++] = t;
        if (nheld <= hold) continue;
        uint64_t at = n % 2 ? 0 : nheld - 1;
        if (memcmp(held[at].data, d->whole + d->offsets[held[at].id], held[at].nbytes) != 0) d->wrong++;
        heft_load_iter_release(iter, &held[at]);
        heft_load_iter_release(iter, &held[at]); /* twice does nothing */
        held[at] = held[--nheld];
    }
    while (nheld) heft_load_iter_release(iter, &held[--nheld]);
    OK(heft_load_iter_next(iter, &t, &err)); /* the end stays the end */
    assert_null(t.name);
    return n;
}

static void test_iterators(void **state) {
    (void)state;
    heft_archive *archive = load_open(load_set("iter", 2, 50, 1500000));
    uint64_t n = heft_archive_count(archive), seed = 1;
    static const uint64_t rings[] = {0, 1700000, 3000000, 20000000};
    for (int i = 0; i < 4; i++)
        for (heft_load_order order = HEFT_LOAD_ORDER_FILE; order <= HEFT_LOAD_ORDER_COMPLETION; order++)
            for (heft_io io = HEFT_IO_AUTO; io <= HEFT_IO_DIRECT; io++) {
                if (io == HEFT_IO_MAP && rings[i]) continue;
                heft_load_options o = {.struct_size = sizeof o,
                                       .io = io,
                                       .engine = (heft_engine)random_below(&seed, 3),
                                       .workers = 1 + (uint32_t)random_below(&seed, 4),
                                       .block_nbytes = random_below(&seed, 2) ? 65536 : 0,
                                       .align = random_below(&seed, 2) ? 256 : 0};
                heft_load_plan *plan;
                heft_load_iter *iter;
                heft_status status = heft_load_plan_new(archive, &o, &plan, &err);
                if (status == HEFT_UNSUPPORTED) continue;
                OK(status);
                delivery d;
                delivery_init(&d, archive);
                OK(heft_load_iter_new(plan, order, rings[i], &iter, &err));
                assert_true(drain(iter, &d, order, rings[i] > 10000000 ? random_below(&seed, 8) : 0) == n);
                heft_load_stats stats = {.struct_size = sizeof stats};
                heft_load_iter_free(iter, &stats);
                for (uint64_t id = 0; id < n; id++) assert_int_equal(d.seen[id], 1);
                assert_true(d.wrong == 0 && stats.kept_nbytes > 0);
                delivery_end(&d);
                heft_load_plan_free(plan);
            }
    heft_archive_unref(archive);
}

/* By name: numbers by their value, whatever the order in the file. */
static void test_name_order(void **state) {
    (void)state;
    static const char *const names[] = {"l.10", "l.9", "l.1", "b", "l.2"}, *const want[] = {"b", "l.1", "l.2", "l.9",
                                                                                            "l.10"};
    test_tensor tensors[5];
    for (int i = 0; i < 5; i++) tensors[i] = (test_tensor){names[i], i % 2 ? "F32" : "U8", "16", NULL, i % 2 ? 64 : 16};
    heft_archive *archive = load_open(test_write_safetensors("name.safetensors", tensors, 5, NULL));
    for (uint64_t ring = 0; ring <= 64; ring += 64) {
        heft_load_options o = {0};
        heft_load_plan *plan = planned(archive, &o);
        heft_load_iter *iter;
        heft_loaded t;
        OK(heft_load_iter_new(plan, HEFT_LOAD_ORDER_NAME, ring, &iter, &err));
        for (int i = 0; i < 5; i++) {
            OK(heft_load_iter_next(iter, &t, &err));
            assert_string_equal(t.name, want[i]);
            heft_load_iter_release(iter, &t);
        }
        heft_load_iter_free(iter, NULL);
        heft_load_plan_free(plan);
    }
    heft_archive_unref(archive);
}

/* A ring that is too small says which tensor; one whose items are never released says so, and everything goes. */
static void test_ring_limits(void **state) {
    (void)state;
    heft_archive *archive = load_open(load_set("limits", 1, 20, 900000));
    test_allocator a;
    test_allocator_init(&a, 0);
    heft_load_options o = {.allocator = &a.alloc, .workers = 4};
    heft_load_plan *plan = planned(archive, &o);
    heft_load_iter *iter;
    heft_loaded t;
    assert_int_equal(heft_load_iter_new(plan, HEFT_LOAD_ORDER_FILE, 800000, &iter, &err), HEFT_LIMIT);
    assert_null(iter);
    assert_true(err.tensor[0] && err.expected == 800000 && err.found >= 900000);
    assert_int_equal(heft_load_iter_new(plan, 3, 0, &iter, &err), HEFT_INVALID_ARGUMENT);
    OK(heft_load_iter_new(plan, HEFT_LOAD_ORDER_FILE, 1000000, &iter, &err));
    heft_status status = HEFT_OK;
    for (int i = 0; i < 100 && status == HEFT_OK; i++) status = heft_load_iter_next(iter, &t, &err);
    assert_int_equal(status, HEFT_LIMIT);
    assert_non_null(strstr(err.message, "not released"));
    assert_int_equal(heft_load_iter_next(iter, &t, &err), HEFT_LIMIT);
    heft_weights *w;
    assert_int_equal(heft_load_iter_take(iter, &w, &err), HEFT_INVALID_ARGUMENT);
    heft_load_iter_free(iter, NULL);
    /* Dropped at every point, with workers at work. */
    for (int k = 0; k < 20; k++) {
        OK(heft_load_iter_new(plan, HEFT_LOAD_ORDER_FILE, k % 2 ? 2000000 : 0, &iter, &err));
        for (int i = 0; i < k; i++) {
            OK(heft_load_iter_next(iter, &t, &err));
            heft_load_iter_release(iter, &t);
        }
        heft_load_iter_free(iter, NULL);
    }
    heft_load_iter_free(NULL, NULL);
    heft_load_plan_free(plan);
    assert_true(a.live_blocks == 0);
    heft_archive_unref(archive);
}

/* Whoever uses a place of a ring that he has released sees it, in builds for debugging: it is overwritten at once, all of it and
 * nothing else. What no ring holds stays. */
#if defined(NDEBUG)
#define DEBUGGING false
#else
#define DEBUGGING true
#endif

static void test_released(void **state) {
    (void)state;
    enum { ITEMS = 6, NBYTES = 5000 };
    static const uint64_t order[ITEMS] = {3, 0, 5, 1, 4, 2};
    static uint8_t data[ITEMS][NBYTES];
    test_tensor tensors[ITEMS];
    char names[ITEMS][8];
    for (int i = 0; i < ITEMS; i++) {
        memset(data[i], i + 1, NBYTES);
        snprintf(names[i], sizeof names[i], "t%d", i);
        tensors[i] = (test_tensor){names[i], "U8", "5000", data[i], NBYTES};
    }
    heft_archive *archive = load_open(test_write_safetensors("released.safetensors", tensors, ITEMS, NULL));
    for (uint64_t ring = 0; ring <= 1 << 20; ring += 1 << 20)
        for (heft_load_order by = HEFT_LOAD_ORDER_FILE; by <= HEFT_LOAD_ORDER_COMPLETION; by++) {
            heft_load_options o = {.workers = 1};
            heft_load_plan *plan = planned(archive, &o);
            heft_load_iter *iter;
            heft_loaded items[ITEMS];
            bool released[ITEMS] = {false};
            OK(heft_load_iter_new(plan, by, ring, &iter, &err));
            for (int i = 0; i < ITEMS; i++) OK(heft_load_iter_next(iter, &items[i], &err));
            for (int i = 0; i < ITEMS; i++) {
                heft_load_iter_release(iter, &items[order[i]]);
                released[order[i]] = true;
                for (int k = 0; k < ITEMS; k++) {
                    uint8_t want = (uint8_t)(items[k].name[1] - '0' + 1);
                    if (DEBUGGING && ring && released[k]) want = 0xA5;
                    for (int b = 0; b < NBYTES; b++) assert_int_equal(((uint8_t *)items[k].data)[b], want);
                }
            }
            heft_load_iter_free(iter, NULL);
            heft_load_plan_free(plan);
        }
    heft_archive_unref(archive);
}

/* What a consumer waits for is read before what lies before it in the file: here the last tensor, which is the first by name. */
static void test_waited_for_first(void **state) {
    (void)state;
    enum { ITEMS = 40, NBYTES = 65536 };
    test_tensor tensors[ITEMS + 1];
    char names[ITEMS][8];
    for (int i = 0; i < ITEMS; i++) {
        snprintf(names[i], sizeof names[i], "b.%d", i);
        tensors[i] = (test_tensor){names[i], "F32", "16384", NULL, NBYTES};
    }
    tensors[ITEMS] = (test_tensor){"a", "U8", "65536", NULL, NBYTES}; /* smaller elements lie behind larger ones */
    size_t nbytes;
    uint8_t *file = test_safetensors(tensors, ITEMS + 1, NULL, &nbytes);
    for (uint64_t ring = 0; ring <= 4 << 20; ring += 4 << 20) {
        test_bytes bytes = {.data = file, .nbytes = nbytes};
        heft_source *source = test_source(&bytes);
        heft_archive *archive;
        heft_load_options o = {.workers = 1, .block_nbytes = NBYTES};
        heft_load_iter *iter;
        heft_loaded t;
        OK(heft_archive_open_source(source, NULL, &archive, &err));
        heft_source_unref(source);
        heft_load_plan *plan = planned(archive, &o);
        bytes.calls = 0;
        OK(heft_load_iter_new(plan, HEFT_LOAD_ORDER_NAME, ring, &iter, &err));
        OK(heft_load_iter_next(iter, &t, &err));
        assert_string_equal(t.name, "a");
        assert_in_range(bytes.calls, 1, 3); /* of more than 40 */
        for (int i = 0; i < ITEMS; i++) OK(heft_load_iter_next(iter, &t, &err));
        assert_true(bytes.calls >= ITEMS);
        heft_load_iter_free(iter, NULL);
        heft_load_plan_free(plan);
        heft_archive_unref(archive);
    }
    free(file);
}

/* What an iterator has read becomes weights that outlive it. */
static void test_take(void **state) {
    (void)state;
    heft_archive *archive = load_open(load_set("take", 2, 30, 200000));
    for (int k = 0; k <= 61; k += 20) {
        heft_load_options o = {.workers = 2};
        heft_load_plan *plan = planned(archive, &o);
        heft_load_iter *iter;
        heft_loaded t;
        heft_weights *w;
        OK(heft_load_iter_new(plan, HEFT_LOAD_ORDER_COMPLETION, 0, &iter, &err));
        for (int i = 0; i <= k; i++) OK(heft_load_iter_next(iter, &t, &err));
        OK(heft_load_iter_take(iter, &w, &err));
        assert_int_not_equal(heft_load_iter_next(iter, &t, &err), HEFT_OK);
        heft_load_iter_free(iter, NULL);
        heft_load_plan_free(plan);
        assert_weights(archive, w);
        heft_weights_unref(w);
    }
    heft_archive_unref(archive);
}

typedef struct reports {
    uint64_t calls, last, total, stop_at;
    bool monotone;
} reports;

static int report(void *ctx, uint64_t done, uint64_t total) {
    reports *r = ctx;
    if (r->calls == 0) r->monotone = done == 0;
    r->monotone = r->monotone && done >= r->last && done <= total;
    r->last = done;
    r->total = total;
    return ++r->calls == r->stop_at;
}

static void test_progress(void **state) {
    (void)state;
    heft_archive *archive = load_open(load_set("progress", 2, 30, 200000));
    reports r = {0};
    heft_load_options o = {.progress = report, .progress_ctx = &r};
    heft_load_plan *plan = planned(archive, &o);
    heft_weights *w;
    OK(heft_load_run(plan, &w, NULL, &err));
    assert_true(r.monotone && r.calls >= 2 && r.last == r.total && r.total > 0);
    heft_weights_unref(w);
    for (uint64_t stop = 1; stop <= 2; stop++) {
        r = (reports){.stop_at = stop};
        heft_load_stats stats = {.struct_size = sizeof stats};
        assert_int_equal(heft_load_run(plan, &w, &stats, &err), HEFT_CANCELLED);
        assert_null(w);
        assert_true(stats.total_seconds > 0 && stats.arena_nbytes > 0);
    }
    heft_load_plan_free(plan);
    heft_archive_unref(archive);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each),       cmocka_unit_test(test_each_stops),  cmocka_unit_test(test_iterators),
        cmocka_unit_test(test_name_order), cmocka_unit_test(test_ring_limits), cmocka_unit_test(test_take),
        cmocka_unit_test(test_released),   cmocka_unit_test(test_waited_for_first),
        cmocka_unit_test(test_progress),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
