/* Hints about the page cache: which are given for which path, that they are no more than hints, and that loads go on where the
 * system refuses more than these. */
#include "helper_engine.h"
#include "helper_load.h"

#include "facts/facts.h"

#include <errno.h>

static heft_error err;

#define OK(call)                                                                                                       \
    do                                                                                                                 \
        if ((call) != HEFT_OK) fail_msg("%s:%d: %s", __FILE__, __LINE__, err.message);                                 \
    while (0)

enum { BLOCK = 65536 };
#define EXT4 UINT32_C(0xEF53)
#define NFS UINT32_C(0x6969)
#define FUSE UINT32_C(0x65735546)

/* ---- what the machine says of files ---- */

static uint32_t file_system;
static uint64_t cached_percent;

static int say_fs(int fd, uint32_t *magic) {
    (void)fd;
    *magic = file_system;
    return 0;
}

static int say_cached(int fd, uint64_t offset, uint64_t nbytes, heft__cached_pages *out) {
    (void)fd;
    uint64_t pages = (offset + nbytes + 4095) / 4096 - offset / 4096;
    *out = (heft__cached_pages){.cached = pages * cached_percent / 100};
    return 0;
}

static void pretend(uint32_t magic, uint64_t percent) {
    static heft__facts_sys sys;
    heft__facts_sys_replace(NULL);
    sys = *heft__facts_sys_get();
    sys.fs_type = say_fs;
    sys.cachestat = say_cached;
    file_system = magic;
    cached_percent = percent;
    heft__facts_sys_replace(&sys);
}

static int truth(void **state) {
    (void)state;
    test_faults_install(NULL);
    heft__facts_sys_replace(NULL);
    return 0;
}

/* ---- loads ---- */

/* Loads with all hints noted in *f. HEFT_OK, or UNSUPPORTED where this machine has no such path; the bytes are checked. */
static heft_status load_noted(const heft_archive *archive, heft_load_options o, test_faults *f, heft_load_stats *stats) {
    heft_weights *weights;
    o.struct_size = sizeof o;
    o.workers = 1; /* so that hints and reads have one order */
    o.block_nbytes = BLOCK;
    *stats = (heft_load_stats){.struct_size = sizeof *stats};
    test_faults_install(f);
    heft_status status = heft_load(archive, &o, &weights, stats, &err);
    test_faults_install(NULL);
    if (status == HEFT_UNSUPPORTED) return status;
    OK(status);
    assert_true(f->nadvices <= TEST_ADVICES);
    heft__facts_sys_replace(NULL);
    assert_weights(archive, weights);
    heft_weights_unref(weights);
    return HEFT_OK;
}

static uint64_t count_of(const test_faults *f, heft__advice advice) {
    uint64_t n = 0;
    for (uint64_t i = 0; i < f->nadvices; i++) n += f->advices[i].advice == advice;
    return n;
}

/* Once for each file that it is read in order; then each block once, in its order, and never further ahead of the reads than the
 * window. */
static void check_ahead(const test_faults *f, const heft_load_stats *stats, uint64_t files, uint64_t window) {
    uint64_t asked = 0, in_order = 0, slack = heft_features() & HEFT_FEATURE_BIG_ENDIAN ? 2 << 20 : 3 * BLOCK;
    assert_int_equal(count_of(f, HEFT__ADVICE_IN_ORDER), files);
    assert_int_equal(count_of(f, HEFT__ADVICE_IN_ORDER) + count_of(f, HEFT__ADVICE_WANTED), f->nadvices);
    for (uint64_t i = 0; i < f->nadvices; i++) {
        const test_advice *advice = &f->advices[i];
        assert_false(advice->mapping);
        if (advice->advice == HEFT__ADVICE_IN_ORDER) {
            assert_int_equal(advice->offset, 0);
            assert_int_equal(asked, 0);
            in_order++;
            continue;
        }
        assert_int_equal(in_order, files);
        assert_in_range(advice->nbytes, 1, 512 << 10);
        asked += advice->nbytes;
        assert_true(asked <= advice->delivered + window + slack); /* a swapped block is larger */
    }
    assert_true(asked == stats->requested_nbytes);
}

static void far_files_are_asked_for_ahead(void **state) {
    (void)state;
    heft_archive *archive = load_open(load_set("far", 2, 12, 3 << 20));
    static const uint32_t magics[] = {NFS, FUSE};
    static const uint64_t frees[] = {0, 8 << 20}; /* what the machine has; little */
    for (int m = 0; m < 2; m++)
        for (int i = 0; i < 2; i++) {
            test_faults f = {0};
            heft_load_stats stats;
            pretend(magics[m], 0);
            OK(load_noted(archive, (heft_load_options){.free_nbytes = frees[i]}, &f, &stats));
            check_ahead(&f, &stats, 2, frees[i] ? frees[i] / 4 : UINT64_C(1) << 30);
        }
    test_faults f = {0};
    heft_load_stats stats;
    pretend(NFS, 0);
    OK(load_noted(archive, (heft_load_options){.io = HEFT_IO_BUFFERED}, &f, &stats)); /* demanded or chosen */
    check_ahead(&f, &stats, 2, UINT64_C(1) << 30);
    heft_archive_unref(archive);
}

/* The caller's limit is one on the window too: here of a load through a ring, which is smaller than the files. */
static void a_limit_bounds_the_window(void **state) {
    (void)state;
    const uint64_t limit = 11 << 19;
    heft_archive *archive = load_open(load_set("limited", 2, 12, 3 << 20));
    heft_load_options o = {.struct_size = sizeof o, .workers = 1, .block_nbytes = BLOCK, .memory_limit_nbytes = limit};
    heft_load_stats stats = {.struct_size = sizeof stats};
    test_faults f = {0};
    heft_load_plan *plan;
    heft_load_iter *iter;
    heft_loaded item;
    pretend(NFS, 0);
    OK(heft_load_plan_new(archive, &o, &plan, &err));
    test_faults_install(&f);
    OK(heft_load_iter_new(plan, HEFT_LOAD_ORDER_FILE, 4 << 20, &iter, &err));
    do {
        OK(heft_load_iter_next(iter, &item, &err));
        heft_load_iter_release(iter, &item);
    } while (item.name);
    heft_load_iter_free(iter, &stats);
    test_faults_install(NULL);
    heft_load_plan_free(plan);
    assert_true(stats.requested_nbytes > limit);
    check_ahead(&f, &stats, 2, limit);
    heft_archive_unref(archive);
}

/* Of a part of each row every request is asked for, and of what is converted. */
static void parts_are_asked_for(void **state) {
    (void)state;
    heft_archive *archive = load_open(load_set("parts", 2, 12, 3 << 20));
    const char *some = "*.layers.5.weight";
    const heft_tp_rule rule = {some, HEFT_TP_COLUMNS};
    for (int cast = 0; cast < 2; cast++) {
        heft_filter filter = {.struct_size = sizeof filter, .include = &some, .ninclude = 1, .tp_world = cast ? 1 : 2,
                              .tp_rules = &rule, .ntp_rules = 1};
        heft_load_options o = {.struct_size = sizeof o, .filter = &filter, .workers = 1, .dtype = cast ? HEFT_BF16 : 0};
        heft_load_stats stats = {.struct_size = sizeof stats};
        heft_weights *weights;
        test_faults f = {0};
        uint64_t asked = 0;
        pretend(NFS, 0);
        test_faults_install(&f);
        OK(heft_load(archive, &o, &weights, &stats, &err));
        test_faults_install(NULL);
        heft_weights_unref(weights);
        for (uint64_t i = 0; i < f.nadvices; i++)
            if (f.advices[i].advice == HEFT__ADVICE_WANTED) asked += f.advices[i].nbytes;
        assert_true(asked == stats.requested_nbytes && asked >= UINT64_C(3) << (20 + cast));
    }
    heft_archive_unref(archive);
}

/* Nobody asks ahead on a local disk, unless the caller wishes it; a direct read never. */
static void near_files_are_not(void **state) {
    (void)state;
    heft_archive *archive = load_open(load_set("near", 2, 12, 3 << 20));
    static const heft_io ios[] = {HEFT_IO_BUFFERED, HEFT_IO_DIRECT};
    for (int i = 0; i < 2; i++)
        for (int wished = 0; wished < 2; wished++) {
            test_faults f = {0};
            heft_load_stats stats;
            pretend(EXT4, 0);
            heft_load_options o = {.io = ios[i], .prefetch = wished};
            if (load_noted(archive, o, &f, &stats) != HEFT_OK) continue;
            if (wished && ios[i] == HEFT_IO_BUFFERED) check_ahead(&f, &stats, 2, UINT64_C(1) << 30);
            else assert_int_equal(f.nadvices, 0);
        }
    heft_archive_unref(archive);
}

/* A cold file that is mapped whole is brought in from front to back, and its mapping is then one like any other; a part of one,
 * or one that is there, is left as it is. */
static void mappings(void **state) {
    (void)state;
    if (heft_features() & HEFT_FEATURE_BIG_ENDIAN) return; /* it borrows nothing */
    if (test_skip_emulated("populating mappings")) return;
    heft_archive *archive = load_open(load_set("maps", 2, 12, 3 << 20));
    for (uint64_t percent = 0; percent <= 100; percent += 100) {
        test_faults f = {0};
        heft_load_stats stats;
        pretend(EXT4, percent);
        OK(load_noted(archive, (heft_load_options){.io = HEFT_IO_MAP}, &f, &stats));
        assert_int_equal(count_of(&f, HEFT__ADVICE_IN_ORDER), percent ? 0 : 2);
        assert_int_equal(count_of(&f, HEFT__ADVICE_NORMAL), percent ? 0 : 2);
        assert_int_equal(f.nadvices, f.hints + (percent ? 0 : 4)); /* and hints where pages cannot be populated */
        for (uint64_t i = 0; i < f.nadvices; i++) assert_true(f.advices[i].mapping);
    }
    const char *some = "*.layers.5.weight";
    heft_filter filter = {.struct_size = sizeof filter, .include = &some, .ninclude = 1};
    heft_load_options o = {.struct_size = sizeof o, .io = HEFT_IO_MAP, .filter = &filter, .workers = 1};
    heft_weights *weights;
    test_faults f = {0};
    pretend(EXT4, 0);
    test_faults_install(&f);
    OK(heft_load(archive, &o, &weights, NULL, &err));
    test_faults_install(NULL);
    assert_int_equal(f.nadvices, f.hints);
    heft_weights_unref(weights);
    heft_archive_unref(archive);
}

/* What was not in the cache before is dropped after the load, run by run, where reads cannot be told to leave nothing. */
static void dropped_pages(void **state) {
    (void)state;
    heft_archive *archive = load_open(load_set("drop", 2, 12, 3 << 20));
    static const struct {
        uint64_t percent;
        heft_cache_policy policy;
        bool drops;
    } rows[] = {{0, HEFT_CACHE_DROP, true},
                {60, HEFT_CACHE_DROP, false}, /* somebody uses it */
                {0, HEFT_CACHE_NEUTRAL, false},
                {0, HEFT_CACHE_KEEP, false}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        test_faults f = {.drop_errno = EOPNOTSUPP};
        heft_load_stats stats;
        pretend(EXT4, rows[i].percent);
        heft_load_options o = {.io = HEFT_IO_BUFFERED, .cache_policy = rows[i].policy};
        OK(load_noted(archive, o, &f, &stats));
        uint64_t nbytes = 0;
        for (uint64_t k = 0; k < f.nadvices; k++) {
            assert_int_equal(f.advices[k].advice, HEFT__ADVICE_UNWANTED);
            assert_int_equal(f.advices[k].delivered, f.nbytes); /* after all of it */
            nbytes += f.advices[k].nbytes;
        }
        if (rows[i].drops && heft__source_sys_get()->preadv_flags) assert_true(nbytes == stats.requested_nbytes);
        else assert_int_equal(f.nadvices, 0);
    }
    heft_archive_unref(archive);
}

/* A source that is no file takes no hint. */
static void no_file(void **state) {
    (void)state;
    size_t nbytes;
    test_tensor tensor = {"a", "U8", "300000", NULL, 300000};
    uint8_t *data = test_safetensors(&tensor, 1, NULL, &nbytes);
    heft_source *source;
    heft_archive *archive;
    OK(heft_source_open_memory(data, nbytes, NULL, free, data, &source, &err));
    OK(heft_archive_open_source(source, NULL, &archive, &err));
    heft_source_unref(source);
    test_faults f = {0};
    heft_load_stats stats;
    OK(load_noted(archive, (heft_load_options){.prefetch = true, .cache_policy = HEFT_CACHE_DROP}, &f, &stats));
    assert_int_equal(f.nadvices, 0);
    heft_archive_unref(archive);
}

/* ---- refusals ---- */

/* With every hint refused loads are the same: path, reads, bytes. */
static void refused_hints_change_nothing(void **state) {
    (void)state;
    heft_archive *archive = load_open(load_set("refused", 2, 12, 3 << 20));
    static const int codes[] = {0, EINVAL, ENOSYS, EPERM, ESPIPE};
    static const heft_io ios[] = {HEFT_IO_AUTO, HEFT_IO_BUFFERED, HEFT_IO_MAP};
    bool big = heft_features() & HEFT_FEATURE_BIG_ENDIAN, emulated = test_skip_emulated("populating mappings");
    for (int i = 0; i < (big || emulated ? 2 : 3); i++) {
        heft_load_stats first = {.struct_size = sizeof first}, stats;
        for (size_t c = 0; c < sizeof codes / sizeof *codes; c++) {
            test_faults f = {.advise_errno = codes[c]};
            pretend(ios[i] == HEFT_IO_AUTO ? NFS : EXT4, 0);
            OK(load_noted(archive, (heft_load_options){.io = ios[i], .prefetch = true}, &f, &stats));
            assert_true(f.nadvices > 0);
            if (c == 0) first = stats;
            assert_true(stats.requested_nbytes == first.requested_nbytes && stats.requests == first.requests);
            assert_true(stats.fallbacks == first.fallbacks && stats.kept_nbytes == first.kept_nbytes);
        }
    }
    heft_archive_unref(archive);
}

/* io_uring that is refused: a caller who demands it is told before anything is read, one who does not never sees it. */
static void refused_rings(void **state) {
    (void)state;
    static const int codes[] = {EPERM, ENOSYS, ENOMEM};
    heft_archive *archive = load_open(load_set("rings", 1, 12, 300000));
    for (size_t i = 0; i < 3; i++) {
        test_faults f = {.ring_errno = codes[i]};
        heft_load_options o = {.struct_size = sizeof o, .engine = HEFT_ENGINE_URING};
        heft_weights *weights;
        test_faults_install(&f);
        heft_status demanded = heft_load(archive, &o, &weights, NULL, &err);
        assert_null(weights);
        assert_int_equal(demanded, HEFT_UNSUPPORTED);
        assert_int_equal(f.calls, 0);
        if (heft_features() & HEFT_FEATURE_URING) assert_int_equal(err.sys_errno, codes[i]);
        o.engine = HEFT_ENGINE_AUTO;
        OK(heft_load(archive, &o, &weights, NULL, &err));
        test_faults_install(NULL);
        assert_weights(archive, weights);
        heft_weights_unref(weights);
    }
    heft_archive_unref(archive);
}

/* ---- warming ---- */

static heft_status warm_noted(const heft_archive *archive, heft_load_options o, test_faults *f, heft_load_stats *stats) {
    heft_load_plan *plan;
    o.struct_size = sizeof o;
    *stats = (heft_load_stats){.struct_size = sizeof *stats};
    OK(heft_load_plan_new(archive, &o, &plan, &err));
    test_faults_install(f);
    heft_status status = heft_warm(plan, stats, &err);
    test_faults_install(NULL);
    heft_load_plan_free(plan);
    return status;
}

/* While a file is warmed nothing is read ahead of what is asked for; blocks are asked for 64 MiB ahead, each once; and what is
 * asked for and read is within the budget, to the byte. */
static void warming_is_counted(void **state) {
    (void)state;
    const uint64_t block = 4 << 20, large = 45 << 20;
    heft_archive *archive = load_open(load_set("warm", 2, 12, large));
    uint64_t all[2] = {heft_source_size(heft_archive_source(archive, 0)), heft_source_size(heft_archive_source(archive, 1))};
    static const struct {
        uint64_t budget, percent;
        uint32_t workers;
        heft_status status;
    } rows[] = {{0, 0, 1, HEFT_OK},          {0, 0, 3, HEFT_OK},          {0, 100, 1, HEFT_OK},
                {30 << 20, 0, 1, HEFT_LIMIT}, {30 << 20, 0, 3, HEFT_LIMIT}, {1 << 20, 0, 1, HEFT_LIMIT},
                {65 << 20, 50, 1, HEFT_OK},   {35 << 20, 50, 1, HEFT_LIMIT}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        test_faults f = {0};
        heft_load_stats stats;
        pretend(EXT4, rows[i].percent);
        heft_load_options o = {.workers = rows[i].workers, .free_nbytes = rows[i].budget + (rows[i].budget ? 1 << 20 : 0),
                               .reserve_nbytes = rows[i].budget ? 1 << 20 : 0, .no_preflight = rows[i].budget == 0};
        assert_int_equal(warm_noted(archive, o, &f, &stats), rows[i].status);
        uint64_t n = f.nadvices, wanted = 0;
        if (rows[i].percent == 100) {
            assert_true(n == 0 && stats.requests == 0);
            continue;
        }
        assert_true(n >= 4);
        for (uint64_t k = 0; k < n; k++) {
            const test_advice *advice = &f.advices[k];
            assert_int_equal(advice->advice, k < 2       ? HEFT__ADVICE_AS_ASKED
                                             : k + 2 < n ? HEFT__ADVICE_WANTED
                                                         : HEFT__ADVICE_NORMAL);
            if (k < 2 || k + 2 >= n) {
                assert_int_equal(advice->offset, 0);
                assert_true(advice->nbytes == all[k < 2 ? k : k - (n - 2)]);
                continue;
            }
            wanted += advice->nbytes;
            if (rows[i].workers == 1) assert_true(wanted <= advice->delivered + 17 * block);
        }
        uint64_t share = 100 - rows[i].percent; /* what is not there of each block */
        assert_true(wanted == stats.requested_nbytes);
        if (rows[i].status == HEFT_OK) assert_true(stats.requested_nbytes == stats.kept_nbytes);
        else {
            assert_true(stats.requested_nbytes * share / 100 <= rows[i].budget);
            assert_true((stats.requested_nbytes + block) * share / 100 > rows[i].budget);
            assert_true(err.expected == rows[i].budget);
            assert_non_null(strstr(err.message, "stay free"));
        }
    }
    heft_archive_unref(archive);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(far_files_are_asked_for_ahead, truth),
        cmocka_unit_test_teardown(a_limit_bounds_the_window, truth),
        cmocka_unit_test_teardown(parts_are_asked_for, truth),
        cmocka_unit_test_teardown(near_files_are_not, truth),
        cmocka_unit_test_teardown(mappings, truth),
        cmocka_unit_test_teardown(dropped_pages, truth),
        cmocka_unit_test_teardown(no_file, truth),
        cmocka_unit_test_teardown(refused_hints_change_nothing, truth),
        cmocka_unit_test_teardown(refused_rings, truth),
        cmocka_unit_test_teardown(warming_is_counted, truth),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
