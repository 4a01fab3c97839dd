/* Loads: whatever the options, the bytes are those of the files; what a plan says is what is done. */
#include "helper_files.h"
#include "helper_load.h"
#include "helper_random.h"

#include "base/os.h"

#include <math.h>

static heft_error err;

#define OK(call)                                                                                                       \
    do                                                                                                                 \
        if ((call) != HEFT_OK) fail_msg("%s:%d: %s", __FILE__, __LINE__, err.message);                                 \
    while (0)

static heft_weights *loaded(const heft_archive *archive, const heft_load_options *options, heft_load_stats *stats) {
    heft_weights *weights;
    OK(heft_load(archive, options, &weights, stats, &err));
    return weights;
}

static void test_whole(void **state) {
    (void)state;
    heft_archive *archive = load_open(load_set("whole", 3, 40, 3 << 20));
    heft_load_stats stats = {.struct_size = sizeof stats};
    heft_weights *weights = loaded(archive, NULL, &stats);
    assert_weights(archive, weights);
    assert_true(stats.kept_nbytes == heft_weights_nbytes(weights));
    assert_true(stats.requested_nbytes == stats.kept_nbytes + stats.over_read_nbytes + stats.spanned_nbytes);
    assert_true(stats.total_seconds > 0 && stats.workers >= 1 && stats.requests >= 1);
    heft_weights *second = heft_weights_ref(weights);
    heft_weights_unref(weights);
    heft_archive_unref(archive); /* the weights hold it */
    heft_loaded one;
    OK(heft_weights_get(second, "s1.layers.0.weight", SIZE_MAX, &one, &err));
    assert_string_equal(one.name, "s1.layers.0.weight");
    heft_weights_unref(second);
}

/* Every way to load gives the same bytes. */
static void test_options(void **state) {
    (void)state;
    heft_archive *archive = load_open(load_set("options", 2, 60, 2500000));
    uint64_t seed = 3;
    for (uint64_t round = test_count(120); round-- > 0;) {
        static const uint64_t aligns[] = {0, 1, 8, 64, 256, 4096};
        heft_load_options o = {.struct_size = sizeof o,
                               .io = (heft_io)random_below(&seed, 4),
                               .engine = (heft_engine)random_below(&seed, 3),
                               .huge = (heft_huge)random_below(&seed, 2),
                               .cache_policy = (heft_cache_policy)(random_below(&seed, 2) * 2),
                               .arena_scope = (heft_arena_scope)random_below(&seed, 2),
                               .workers = (uint32_t)random_below(&seed, 5),
                               .prefetch = random_below(&seed, 2) == 0,
                               .align = aligns[random_below(&seed, 6)],
                               .gap_nbytes = random_below(&seed, 2) ? HEFT_NONE : 0,
                               .block_nbytes = random_below(&seed, 2) ? 0 : 100000};
        if ((heft_features() & HEFT_FEATURE_BIG_ENDIAN) && o.io == HEFT_IO_MAP) o.io = HEFT_IO_AUTO;
        heft_load_plan *plan;
        heft_weights *weights;
        heft_status status = heft_load_plan_new(archive, &o, &plan, &err);
        if (status == HEFT_UNSUPPORTED &&
            (o.io == HEFT_IO_DIRECT || o.io == HEFT_IO_MAP || o.engine == HEFT_ENGINE_URING))
            continue;
        OK(status);
        heft_load_stats stats = {.struct_size = sizeof stats};
        OK(heft_load_run(plan, &weights, &stats, &err));
        assert_weights(archive, weights);
        for (uint64_t id = 0; id < heft_archive_count(archive); id++) {
            heft_load_place place;
            heft_loaded tensor;
            OK(heft_load_plan_place(plan, id, &place, &err));
            OK(heft_weights_at(weights, HEFT_LOAD_ORDER_FILE, id, &tensor, &err));
            if (tensor.nbytes) assert_true((uintptr_t)tensor.data % place.align == 0);
            if (o.align) assert_true((uintptr_t)tensor.data % o.align == 0);
        }
        for (uint32_t i = 0; i < 2; i++) {
            heft_load_shard shard;
            OK(heft_load_plan_shard(plan, i, &shard, &err));
            assert_true(shard.path_used != HEFT_PATH_NONE && shard.why[0]);
            if (o.io == HEFT_IO_MAP) assert_int_equal(shard.path_used, HEFT_PATH_MAP);
            if (o.io == HEFT_IO_BUFFERED) assert_int_equal(shard.path_used, HEFT_PATH_BUFFERED);
        }
        heft_load_plan_free(plan);
        heft_weights_unref(weights);
    }
    heft_archive_unref(archive);
}

/* One rank's part: experts left out, tensors cut; requested bytes stay near to what is kept. */
static void test_filtered(void **state) {
    (void)state;
    heft_archive *archive = load_open(load_set("filtered", 2, 60, 4 << 20));
    const char *include[] = {"*.layers.1*", "*.layers.2*", "*.layers.5.*"},
               *defer[] = {"*.layers.12.*", "*.layers.2.*"};
    heft_tp_rule rules[] = {{"*.layers.1*", HEFT_TP_COLUMNS}};
    for (uint64_t rank = 0; rank < 2; rank++) {
        heft_filter filter = {.struct_size = sizeof filter,
                              .include = include,
                              .ninclude = 3,
                              .defer = defer,
                              .ndefer = 2,
                              .tp_rank = rank,
                              .tp_world = 2,
                              .tp_split = HEFT_SPLIT_CEIL,
                              .tp_rules = rules,
                              .ntp_rules = 1};
        heft_load_options o = {.struct_size = sizeof o, .filter = &filter};
        heft_load_plan *plan;
        heft_weights *weights;
        OK(heft_load_plan_new(archive, &o, &plan, &err));
        OK(heft_load_run(plan, &weights, NULL, &err));
        uint64_t kept = 0, deferred = 0;
        for (uint64_t id = 0; id < heft_archive_count(archive); id++) {
            heft_tensor tensor;
            heft_loaded part;
            heft_view view;
            OK(heft_archive_get(archive, id, &tensor, &err));
            heft_outcome outcome = heft_rule_outcome(heft_filter_rules(heft_load_plan_filter(plan))[id]);
            heft_status status = heft_weights_get(weights, tensor.name, SIZE_MAX, &part, &err);
            assert_true(heft_weights_contains(weights, tensor.name, SIZE_MAX) == (status == HEFT_OK));
            if (outcome == HEFT_OUTCOME_KEPT) {
                assert_int_equal(status, HEFT_OK);
                OK(heft_filter_view(heft_load_plan_filter(plan), id, &view, &err));
                for (uint32_t d = 0; d < view.rank; d++) assert_true((int64_t)part.shape[d] == view.shape[d]);
                assert_view(&view, part.data, part.nbytes);
                kept++;
            } else {
                assert_int_equal(status, HEFT_NOT_FOUND);
                assert_non_null(strstr(err.message, outcome == HEFT_OUTCOME_DEFERRED ? "deferred" : "not-included"));
                deferred += outcome == HEFT_OUTCOME_DEFERRED;
            }
        }
        assert_true(kept > 20 && heft_weights_count(weights) == kept);
        assert_true(deferred > 0 && heft_weights_deferred_count(weights) == deferred);
        for (uint64_t i = 0; i < deferred; i++) {
            heft_deferred d;
            heft_buffer buffer;
            heft_view view;
            OK(heft_weights_deferred(weights, i, &d, &err));
            OK(heft_weights_read_deferred(weights, d.name, d.name_len, &buffer, &err));
            OK(heft_filter_view(heft_load_plan_filter(plan), d.id, &view, &err));
            assert_true(buffer.nbytes == d.nbytes);
            assert_view(&view, buffer.data, buffer.nbytes);
            heft_buffer_release(&buffer);
        }
        heft_deferred none;
        assert_int_equal(heft_weights_deferred(weights, deferred, &none, &err), HEFT_INVALID_ARGUMENT);
        heft_buffer buffer;
        assert_int_equal(heft_weights_read_deferred(weights, "s0.layers.1.weight", SIZE_MAX, &buffer, &err),
                         HEFT_NOT_FOUND);
        assert_int_equal(heft_weights_read_deferred(weights, "nothing", SIZE_MAX, &buffer, &err), HEFT_NOT_FOUND);
        heft_weights_unref(weights);
        heft_load_plan_free(plan);
    }
    heft_archive_unref(archive);
}

static heft_archive *named(const char *const *names, uint32_t n, const char *file) {
    test_tensor *tensors = calloc(n, sizeof *tensors);
    for (uint32_t i = 0; i < n; i++) tensors[i] = (test_tensor){names[i], "F32", "2", NULL, 8};
    heft_archive *archive = load_open(test_write_safetensors(file, tensors, n, NULL));
    free(tensors);
    return archive;
}

/* Deferred tensors are sorted by what is left of the name and the number in it. */
static void test_deferred_order(void **state) {
    (void)state;
    static const char *const names[] = {"e.10.w", "e.2.w",   "e.9.w",    "e.11.w", "a.3",
                                        "a.x",    "e.002.w", "1.e.20.w", "7",      "e.2.v"};
    static const char *const want[] = {"7",       "1.e.20.w", "a.3",   "a.x",    "e.2.v",
                                       "e.002.w", "e.2.w",    "e.9.w", "e.10.w", "e.11.w"};
    heft_archive *archive = named(names, 10, "deferred.safetensors");
    const char *all = "*";
    heft_filter filter = {.struct_size = sizeof filter, .defer = &all, .ndefer = 1};
    heft_load_options o = {.struct_size = sizeof o, .filter = &filter};
    heft_weights *weights = loaded(archive, &o, NULL);
    assert_true(heft_weights_deferred_count(weights) == 10 && heft_weights_count(weights) == 0);
    bool seen[10] = {false};
    const char *previous = NULL;
    for (uint64_t i = 0; i < 10; i++) {
        heft_deferred d;
        OK(heft_weights_deferred(weights, i, &d, &err));
        for (int k = 0; k < 10; k++)
            if (strcmp(d.name, want[k]) == 0) seen[k] = true;
        if (previous && strncmp(previous, "e.", 2) == 0 && strncmp(d.name, "e.", 2) == 0 && strstr(d.name, ".w") &&
            strstr(previous, ".w"))
            assert_true(atoi(previous + 2) <= atoi(d.name + 2));
        previous = d.name;
    }
    for (int k = 0; k < 10; k++) assert_true(seen[k]);
    heft_weights_unref(weights);
    heft_archive_unref(archive);
}

static void test_orders_and_changes(void **state) {
    (void)state;
    static const char *const names[] = {"l.10", "l.2", "l.1", "b", "l.9.k_scale"};
    heft_archive *archive = named(names, 5, "orders.safetensors");
    heft_weights *w = loaded(archive, NULL, NULL);
    heft_loaded t, displaced;
    static const char *const natural[] = {"b", "l.1", "l.2", "l.9.k_scale", "l.10"};
    for (uint64_t i = 0; i < 5; i++) {
        OK(heft_weights_at(w, HEFT_LOAD_ORDER_NAME, i, &t, &err));
        assert_string_equal(t.name, natural[i]);
    }
    assert_int_equal(heft_weights_at(w, HEFT_LOAD_ORDER_COMPLETION, 0, &t, &err), HEFT_INVALID_ARGUMENT);
    assert_int_equal(heft_weights_at(w, HEFT_LOAD_ORDER_FILE, 5, &t, &err), HEFT_INVALID_ARGUMENT);
    assert_true(heft_weights_k_scales(w) == 1 && !heft_weights_has_fp8(w));
    assert_int_equal(heft_weights_get(w, "l.3", SIZE_MAX, &t, &err), HEFT_NOT_FOUND);
    assert_non_null(strstr(err.message, "did you mean"));

    heft_buffer buffer, copy;
    OK(heft_weights_detach(w, "l.2", SIZE_MAX, &copy, &err));
    OK(heft_weights_get(w, "l.2", SIZE_MAX, &t, &err));
    assert_true(copy.nbytes == 8 && copy.data != t.data);
    assert_memory_equal(copy.data, t.data, 8);

    uint64_t shape[] = {4, 2}, wrong[] = {3};
    buffer = copy;
    assert_int_equal(heft_weights_insert(w, "l.3", SIZE_MAX, HEFT_F8_E4M3, 1, wrong, &buffer, NULL, &err),
                     HEFT_INVALID_ARGUMENT);
    assert_ptr_equal(buffer.data, copy.data); /* still ours */
    OK(heft_weights_insert(w, "l.3", SIZE_MAX, HEFT_F8_E4M3, 2, shape, &buffer, &displaced, &err));
    assert_null(buffer.data);
    assert_null(displaced.name);
    assert_true(heft_weights_has_fp8(w) && heft_weights_count(w) == 6 && heft_weights_nbytes(w) == 48);
    static const char *const more[] = {"b", "l.1", "l.2", "l.3", "l.9.k_scale", "l.10"};
    for (uint64_t i = 0; i < 6; i++) {
        OK(heft_weights_at(w, HEFT_LOAD_ORDER_NAME, i, &t, &err));
        assert_string_equal(t.name, more[i]);
    }
    OK(heft_weights_at(w, HEFT_LOAD_ORDER_FILE, 5, &t, &err));
    assert_string_equal(t.name, "l.3");
    assert_true(t.id == HEFT_NONE && t.shape[0] == 4);

    OK(heft_weights_get(w, "b", SIZE_MAX, &t, &err));
    OK(heft_weights_detach(w, "b", SIZE_MAX, &buffer, &err));
    OK(heft_weights_insert(w, "b", SIZE_MAX, HEFT_F32, 1, (uint64_t[]){2}, &buffer, &displaced, &err));
    assert_ptr_equal(displaced.data, t.data);
    uint8_t first[4] = {0, 1, 2, 3};
    test_host_order(HEFT_F32, first, 4);
    assert_memory_equal(displaced.data, first, 4); /* its bytes are still there */
    OK(heft_weights_detach(w, "b", SIZE_MAX, &buffer, &err));
    OK(heft_weights_insert(w, "b", SIZE_MAX, HEFT_F32, 1, (uint64_t[]){2}, &buffer, &displaced, &err));
    assert_string_equal(displaced.name, "b");
    assert_true(heft_weights_count(w) == 6);
    OK(heft_weights_remove(w, "b", SIZE_MAX, &err));
    assert_int_equal(heft_weights_remove(w, "b", SIZE_MAX, &err), HEFT_NOT_FOUND);
    assert_non_null(strstr(err.message, "taken out"));
    assert_false(heft_weights_contains(w, "b", SIZE_MAX));
    OK(heft_weights_at(w, HEFT_LOAD_ORDER_NAME, 0, &t, &err));
    assert_string_equal(t.name, "l.1");
    OK(heft_weights_detach(w, "l.1", SIZE_MAX, &buffer, &err));
    OK(heft_weights_insert(w, "b", SIZE_MAX, HEFT_F32, 1, (uint64_t[]){2}, &buffer, &displaced, &err));
    assert_null(displaced.name);
    assert_true(heft_weights_count(w) == 6 && heft_weights_contains(w, "b", SIZE_MAX));
    heft_weights_unref(w);
    heft_archive_unref(archive);
}

/* With an arena for each shard, memory goes with the last tensor of the shard. */
static void test_shard_scope(void **state) {
    (void)state;
    heft_archive *archive = load_open(load_set("scope", 3, 10, 100000));
    test_allocator t;
    test_allocator_init(&t, 0);
    heft_load_options o = {.struct_size = sizeof o, .arena_scope = HEFT_ARENA_SHARD, .allocator = &t.alloc};
    heft_weights *w = loaded(archive, &o, NULL);
    uint64_t before = t.live_nbytes;
    for (uint64_t id = 0; id < heft_archive_count(archive); id++) {
        heft_tensor tensor;
        OK(heft_archive_get(archive, id, &tensor, &err));
        if (tensor.file == 1) OK(heft_weights_remove(w, tensor.name, SIZE_MAX, &err));
    }
    assert_true(before - t.live_nbytes > 100000);
    assert_true(heft_weights_count(w) == 20);
    heft_weights_unref(w);
    assert_true(t.live_blocks == 0);
    heft_archive_unref(archive);
}

typedef struct faults {
    uint64_t n;
    char text[8][800];
} faults;

static void note(void *ctx, const heft_error *difference) {
    faults *f = ctx;
    if (f->n < 8) snprintf(f->text[f->n], sizeof f->text[0], "%s", difference->message);
    f->n++;
}

static void test_audit(void **state) {
    (void)state;
    static const char *const names[] = {"a", "b", "c", "d"};
    heft_archive *archive = named(names, 4, "audit.safetensors");
    const char *exclude = "c";
    heft_filter filter = {.struct_size = sizeof filter, .exclude = &exclude, .nexclude = 1};
    heft_load_options o = {.struct_size = sizeof o, .filter = &filter};
    heft_load_plan *plan;
    OK(heft_load_plan_new(archive, &o, &plan, &err));
    uint64_t two[] = {2}, three[] = {3};
    heft_expected good[] = {{"a", HEFT_F32, 1, two}, {"b", HEFT_DTYPE_NONE, 0, NULL}, {"d", HEFT_F32, 1, two}};
    heft_expected bad[] = {{"a", HEFT_F16, 1, three}, {"c", HEFT_F32, 1, two}, {"bb", HEFT_F32, 1, two}};
    faults f = {0};
    OK(heft_load_plan_audit(plan, good, 3, false, note, &f, &err));
    OK(heft_load_plan_audit(plan, good, 1, true, note, &f, &err));
    assert_true(f.n == 0);
    assert_int_equal(heft_load_plan_audit(plan, good, 2, false, note, &f, &err), HEFT_MISMATCH);
    assert_true(f.n == 1 && strstr(f.text[0], "nobody expects"));
    f.n = 0;
    assert_int_equal(heft_load_plan_audit(plan, bad, 3, false, note, &f, &err), HEFT_MISMATCH);
    assert_true(f.n == 6 && err.more == 5); /* dtype, shape, withheld, missing, and two that nobody expects */
    assert_non_null(strstr(f.text[0], "F16"));
    assert_non_null(strstr(f.text[1], "[3]"));
    assert_non_null(strstr(f.text[2], "exclude"));
    assert_non_null(strstr(f.text[3], "no tensor \"bb\""));
    assert_int_equal(heft_load_plan_audit(plan, bad, 3, true, NULL, NULL, NULL), HEFT_MISMATCH);
    heft_load_plan_free(plan);
    heft_archive_unref(archive);
}

/* An arena serves one load after another, one at a time. */
static void test_arena(void **state) {
    (void)state;
    heft_archive *archive = load_open(load_set("arena", 1, 30, 5 << 20));
    heft_arena *arena;
    OK(heft_arena_new(HEFT_HUGE_AUTO, NULL, &arena, &err));
    assert_true(heft_arena_nbytes(arena) == 0);
    heft_load_options o = {.struct_size = sizeof o, .arena = arena, .io = HEFT_IO_BUFFERED};
    void *data = NULL;
    for (int i = 0; i < 3; i++) {
        heft_weights *w = loaded(archive, &o, NULL), *other;
        heft_loaded t;
        OK(heft_weights_at(w, HEFT_LOAD_ORDER_FILE, 0, &t, &err));
        if (data) assert_ptr_equal(t.data, data);
        data = t.data;
        assert_weights(archive, w);
        assert_int_equal(heft_load(archive, &o, &other, NULL, &err), HEFT_INVALID_ARGUMENT);
        assert_null(other);
        if (i == 2) heft_arena_unref(arena); /* the weights hold it */
        heft_weights_unref(w);
    }
    heft_archive_unref(archive);
}

static void test_refusals(void **state) {
    (void)state;
    heft_archive *archive = load_open(load_set("refusals", 1, 4, 100));
    heft_load_plan *plan;
    heft_arena *arena;
    OK(heft_arena_new(HEFT_HUGE_AUTO, NULL, &arena, &err));
    heft_allocator broken = {0};
    heft_load_options wrong[] = {{.io = 4},
                                 {.engine = 3},
                                 {.cache_policy = 3},
                                 {.huge = 3},
                                 {.arena_scope = 2},
                                 {.align = 3},
                                 {.align = 8192},
                                 {.peak_memory_multiplier = 0.5},
                                 {.peak_memory_multiplier = -1},
                                 {.peak_memory_multiplier = (double)NAN},
                                 {.peak_memory_multiplier = (double)INFINITY},
                                 {.more_reserved_flags = {true}},
                                 {.io = HEFT_IO_DIRECT, .no_direct = true},
                                 {.io = HEFT_IO_DIRECT, .cache_policy = HEFT_CACHE_KEEP},
                                 {.arena = arena, .arena_scope = HEFT_ARENA_SHARD},
                                 {.allocator = &broken}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        wrong[i].struct_size = sizeof wrong[i];
        assert_int_equal(heft_load_plan_new(archive, &wrong[i], &plan, &err), HEFT_INVALID_ARGUMENT);
        assert_null(plan);
    }
    heft_arena_unref(arena);
    OK(heft_load_plan_new(archive, NULL, &plan, &err));
    heft_load_shard shard;
    heft_load_place place;
    heft_plan_run run;
    assert_int_equal(heft_load_plan_shard(plan, 1, &shard, &err), HEFT_INVALID_ARGUMENT);
    assert_int_equal(heft_load_plan_place(plan, 4, &place, &err), HEFT_INVALID_ARGUMENT);
    assert_int_equal(heft_load_plan_run(plan, 99, &run, &err), HEFT_INVALID_ARGUMENT);
    heft_load_plan_free(plan);
    heft_archive_unref(archive);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whole),
        cmocka_unit_test(test_options),
        cmocka_unit_test(test_filtered),
        cmocka_unit_test(test_deferred_order),
        cmocka_unit_test(test_orders_and_changes),
        cmocka_unit_test(test_shard_scope),
        cmocka_unit_test(test_audit),
        cmocka_unit_test(test_arena),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
