/* What a load says that it will hold: compared with free memory before a byte is read, and with what it does hold. */
#include "helper_files.h"
#include "helper_load.h"

#include "base/os.h"
#include "facts/facts.h"

static heft_error err;

#define OK(call)                                                                                                       \
    do                                                                                                                 \
        if ((call) != HEFT_OK) fail_msg("%s:%d: %s", __FILE__, __LINE__, err.message);                                 \
    while (0)

/* A file in memory behind a source that counts. */
typedef struct counted {
    uint8_t *data;
    test_bytes bytes;
    heft_archive *archive;
} counted;

static void counted_init(counted *c, uint64_t large, const char *dtype) {
    test_tensor tensors[3];
    char shape[32];
    snprintf(shape, sizeof shape, "%llu", (unsigned long long)(strcmp(dtype, "F32") == 0 ? large / 4 : large));
    size_t nbytes;
    tensors[0] = (test_tensor){"big", dtype, shape, NULL, large};
    tensors[1] = (test_tensor){"small", "F32", "4", NULL, 16};
    tensors[2] = (test_tensor){"empty", "F32", "0", NULL, 0};
    memset(c, 0, sizeof *c);
    c->data = test_safetensors(tensors, 3, NULL, &nbytes);
    c->bytes = (test_bytes){.data = c->data, .nbytes = nbytes};
    heft_source *source = test_source(&c->bytes);
    OK(heft_archive_open_source(source, NULL, &c->archive, &err));
    heft_source_unref(source);
    c->bytes.read_nbytes = 0;
}

static void counted_end(counted *c) {
    heft_archive_unref(c->archive);
    free(c->data);
}

static heft_status load(counted *c, heft_load_options *o, heft_weights **w, heft_load_stats *stats) {
    o->struct_size = sizeof *o;
    heft_status status = heft_load(c->archive, o, w, stats, &err);
    if (status == HEFT_OK) heft_weights_unref(*w);
    return status;
}

/* Free memory as needed passes, one byte less is refused, and then nothing was read or allocated for tensors. */
static void test_equality(void **state) {
    (void)state;
    counted c;
    counted_init(&c, 3 << 20, "F32");
    for (int multiplier = 0; multiplier < 2; multiplier++) {
        heft_load_options o = {
            .struct_size = sizeof o, .reserve_nbytes = 12345, .peak_memory_multiplier = multiplier ? 3.5 : 0};
        heft_load_plan *plan;
        heft_load_summary sum;
        heft_weights *w;
        c.bytes.read_nbytes = 0;
        OK(heft_load_plan_new(c.archive, &o, &plan, &err));
        assert_true(c.bytes.read_nbytes == 0); /* a plan is made of headers, and those were read when it was opened */
        heft_load_plan_summarize(plan, &sum);
        heft_load_plan_free(plan);
        const heft_footprint *m = &sum.memory;
        uint64_t kept = (3 << 20) + 16,
                 most = m->estimate_nbytes > m->peak_owned_nbytes ? m->estimate_nbytes : m->peak_owned_nbytes;
        assert_true(m->kept_nbytes == kept && m->needed_nbytes == most + 12345);
        assert_true(m->estimate_nbytes == (multiplier ? (uint64_t)(3.5 * (double)kept) : kept));
        assert_true(m->peak_owned_nbytes == m->arena_nbytes + m->scratch_nbytes + m->ring_nbytes + m->side_nbytes +
                                                m->metadata_nbytes + sum.workers * 65536);
        assert_true(m->transient_nbytes == m->peak_owned_nbytes + m->mapped_nbytes);
        c.bytes.read_nbytes = 0;
        o.free_nbytes = m->needed_nbytes - 1;
        heft_load_stats stats = {.struct_size = sizeof stats};
        assert_int_equal(load(&c, &o, &w, &stats), HEFT_LIMIT);
        assert_null(w);
        assert_true(c.bytes.read_nbytes == 0 && stats.requested_nbytes == 0 && stats.free_nbytes == o.free_nbytes);
        assert_true(err.expected == o.free_nbytes && err.found == m->needed_nbytes);
        static const char *const parts[] = {"of free memory (caller)", "of tensors (estimate", "by the factor", "at its peak",
                                            "12.0 KiB are to stay free", "more ranks", "fewer tensors", "map the file",
                                            "a ring"};
        for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
            if (!strstr(err.message, parts[i])) fail_msg("no \"%s\" in: %s", parts[i], err.message);
        o.no_preflight = true;
        OK(load(&c, &o, &w, NULL));
        o.no_preflight = false;
        o.free_nbytes = m->needed_nbytes;
        OK(load(&c, &o, &w, NULL));
        /* The caller's limit is on all that the load takes. */
        c.bytes.read_nbytes = 0;
        o = (heft_load_options){.memory_limit_nbytes = m->transient_nbytes - 1};
        assert_int_equal(load(&c, &o, &w, NULL), HEFT_LIMIT);
        assert_true(c.bytes.read_nbytes == 0);
        o.memory_limit_nbytes = m->transient_nbytes;
        OK(load(&c, &o, &w, NULL));
    }
    counted_end(&c);
}

/* The arena is what the allocator gives, in whole pages; nothing else grows with the tensors. */
static void test_exact(void **state) {
    (void)state;
    heft_archive *archive = load_open(load_set("exact", 1, 60, 300000));
    for (heft_io io = HEFT_IO_AUTO; io <= HEFT_IO_BUFFERED; io++) {
        test_allocator t;
        test_allocator_init(&t, 0);
        heft_load_options o = {.struct_size = sizeof o, .allocator = &t.alloc, .io = io, .workers = 1};
        if (io == HEFT_IO_MAP && (heft_features() & HEFT_FEATURE_BIG_ENDIAN)) continue;
        heft_load_plan *plan;
        heft_load_summary sum;
        heft_weights *w;
        OK(heft_load_plan_new(archive, &o, &plan, &err));
        heft_load_plan_summarize(plan, &sum);
        uint64_t before = t.live_nbytes;
        OK(heft_load_run(plan, &w, NULL, &err));
        uint64_t lists = heft_archive_count(archive) * (sizeof(void *) + 1) + 2048, grown = t.live_nbytes - before;
        assert_true(grown + 2 * heft__os_page_size() > sum.memory.arena_nbytes + sum.memory.side_nbytes);
        assert_true(grown <= sum.memory.arena_nbytes + sum.memory.side_nbytes + lists);
        assert_true(t.peak_nbytes <= sum.memory.peak_owned_nbytes + 65536);
        heft_weights_unref(w);
        heft_load_plan_free(plan);
        assert_true(t.live_blocks == 0);
    }
    heft_archive_unref(archive);
}

/* However many tensors there are: nothing is allocated for one of them. */
static void test_few_allocations(void **state) {
    (void)state;
    uint64_t calls[2];
    for (int i = 0; i < 2; i++) {
        heft_archive *archive = load_open(load_set(i ? "hundreds" : "dozens", 1, i ? 900 : 30, 300000));
        test_allocator t;
        test_allocator_init(&t, 0);
        heft_load_options o = {.struct_size = sizeof o, .allocator = &t.alloc, .workers = 1};
        heft_weights *w;
        OK(heft_load(archive, &o, &w, NULL, &err));
        calls[i] = t.calls;
        heft_weights_unref(w);
        assert_true(t.live_blocks == 0);
        heft_archive_unref(archive);
    }
    assert_true(calls[1] <= calls[0] + 10);
}

/* The preset's rule: half again for FP8, three tenths else. */
static void test_presets(void **state) {
    (void)state;
    for (int fp8 = 0; fp8 < 2; fp8++) {
        counted c;
        counted_init(&c, 1000000, fp8 ? "F8_E4M3" : "F32");
        heft_filter filter = {.struct_size = sizeof filter, .preset = HEFT_PRESET_ATLAS};
        heft_load_options o = {.struct_size = sizeof o, .filter = &filter};
        heft_load_plan *plan;
        heft_load_summary sum;
        OK(heft_load_plan_new(c.archive, &o, &plan, &err));
        heft_load_plan_summarize(plan, &sum);
        assert_true(sum.memory.multiplier == (fp8 ? 1.5 : 1.3));
        heft_load_plan_free(plan);
        counted_end(&c);
    }
}

/* Where nothing can be known a load goes on, or is refused on request. */
static void test_unknown(void **state) {
    (void)state;
    static const heft__os_traits nowhere = {.root = "/nowhere-at-all"};
    counted c;
    counted_init(&c, 1000000, "F32");
    heft__os_traits_replace(&nowhere);
    heft_load_options o = {0};
    heft_weights *w;
    heft_status goes_on = load(&c, &o, &w, NULL);
    o.refuse_unknown = true;
    heft__os_memory have;
    heft__facts_memory(HEFT_NONE, 1, &have);
    heft_status refused = load(&c, &o, &w, NULL);
    heft__os_traits_replace(NULL);
    assert_int_equal(goes_on, HEFT_OK);
    if (have.nbytes == HEFT_NONE) assert_int_equal(refused, HEFT_LIMIT); /* no limit of the process itself */
    counted_end(&c);
}

/* Between files free memory is looked at again: here another program takes it all while the first file is read. */
static heft__os_traits full_machine;

static int take_all(void *ctx, const heft_loaded *tensor) {
    (void)ctx;
    if (tensor->file == 0) heft__os_traits_replace(&full_machine);
    return 0;
}

static void test_between_files(void **state) {
    (void)state;
    char root[300];
    heft_archive *archive = load_open(load_set("between", 4, 12, 100000));
    test_write("full/proc/meminfo", "MemAvailable:         10 kB\n", 28);
    snprintf(root, sizeof root, "%s/full", test_dir());
    full_machine = (heft__os_traits){.root = root};
    test_allocator t;
    test_allocator_init(&t, 0);
    heft_load_options o = {.struct_size = sizeof o, .reserve_nbytes = 20000, .workers = 1, .allocator = &t.alloc};
    heft_load_plan *plan;
    OK(heft_load_plan_new(archive, &o, &plan, &err));
    heft_status status = heft_load_each(plan, take_all, NULL, NULL, &err);
    heft__os_traits_replace(NULL);
    assert_int_equal(status, HEFT_LIMIT);
    assert_true(err.expected == 20000 && err.found == 10240);
    assert_non_null(strstr(err.message, "stay free"));
    assert_non_null(strstr(err.file, "model-00001"));
    heft_load_plan_free(plan);
    assert_true(t.live_blocks == 0); /* everything is released */
    heft_archive_unref(archive);
}

/* More than there is room for goes through a ring; by a mapping too. A factor is the caller's rule about all of it. */
static void test_held_at_a_time(void **state) {
    (void)state;
    enum { N = 40 };
    test_tensor tensors[N];
    char names[N][8];
    for (int i = 0; i < N; i++) {
        snprintf(names[i], sizeof names[i], "t%d", i);
        tensors[i] = (test_tensor){names[i], "F32", "65536", NULL, 262144};
    }
    test_mkdir("held");
    test_write_safetensors("held/model.safetensors", tensors, N, NULL);
    heft_archive *archive = load_open(test_mkdir("held"));
    heft_load_options o = {.struct_size = sizeof o, .free_nbytes = 4 << 20, .workers = 2};
    heft_weights *w;
    heft_load_plan *plan;
    heft_load_iter *iter;
    heft_loaded t;
    uint64_t n = 0;
    assert_int_equal(heft_load(archive, &o, &w, NULL, &err), HEFT_LIMIT);
    OK(heft_load_plan_new(archive, &o, &plan, &err));
    OK(heft_load_iter_new(plan, HEFT_LOAD_ORDER_FILE, 1 << 20, &iter, &err));
    for (;; n++) {
        OK(heft_load_iter_next(iter, &t, &err));
        if (!t.name) break;
        heft_load_iter_release(iter, &t);
    }
    assert_int_equal(n, heft_archive_count(archive));
    heft_load_iter_free(iter, NULL);
    heft_load_plan_free(plan);
    o.peak_memory_multiplier = 1;
    OK(heft_load_plan_new(archive, &o, &plan, &err));
    assert_int_equal(heft_load_iter_new(plan, HEFT_LOAD_ORDER_FILE, 1 << 20, &iter, &err), HEFT_LIMIT);
    assert_null(iter);
    heft_load_plan_free(plan);
    if (!(heft_features() & HEFT_FEATURE_BIG_ENDIAN)) {
        o.peak_memory_multiplier = 0;
        o.io = HEFT_IO_MAP;
        OK(heft_load(archive, &o, &w, NULL, &err));
        heft_weights_unref(w);
    }
    heft_archive_unref(archive);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equality), cmocka_unit_test(test_few_allocations),
        cmocka_unit_test(test_exact),    cmocka_unit_test(test_presets),
        cmocka_unit_test(test_unknown),  cmocka_unit_test(test_between_files),
        cmocka_unit_test(test_held_at_a_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
