/* label: threads */
/* Loads that are verified: every path sees a flipped bit and names the tensor; what cannot be checked is counted, not claimed. */
#include "helper_files.h"
#include "helper_load.h"

#include "base/error.h"

#include <stdio.h>

static heft_error err;

#define OK(call)                                                                                                       \
    do                                                                                                                 \
        if ((call) != HEFT_OK) fail_msg("%s:%d: %s", __FILE__, __LINE__, err.message);                                 \
    while (0)

static bool no_digests(void) {
    return !(heft_features() & HEFT_FEATURE_XXHASH);
}

/* The last byte of a tensor. */
static void flip(const heft_archive *archive, uint64_t id) {
    heft_tensor tensor;
    heft_file file;
    OK(heft_archive_get(archive, id, &tensor, &err));
    OK(heft_archive_file(archive, tensor.file, &file, &err));
    FILE *f = fopen(file.path, "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, (long)(tensor.offset + tensor.nbytes - 1), SEEK_SET), 0);
    int c = fgetc(f);
    assert_int_equal(fseek(f, -1, SEEK_CUR), 0);
    assert_int_equal(fputc(c ^ 1, f), c ^ 1);
    assert_int_equal(fclose(f), 0);
}

static heft_status load_verified(const heft_archive *archive, heft_load_options options, heft_load_stats *stats) {
    heft_weights *weights;
    options.struct_size = sizeof options;
    options.verify = true;
    *stats = (heft_load_stats){.struct_size = sizeof *stats};
    heft_status status = heft_load(archive, &options, &weights, stats, &err);
    heft_weights_unref(weights);
    return status;
}

static void every_path(void **state) {
    (void)state;
    if (no_digests()) return;
    const char *path = load_set("paths", 3, 40, 9 << 20);
    heft_archive *archive = load_open(path);
    heft_load_stats stats;
    OK(load_verified(archive, (heft_load_options){0}, &stats));
    assert_int_equal(stats.nverified, 0); /* nothing is known */
    OK(heft_archive_write_sidecars(archive, NULL, NULL, &err));
    uint64_t n = heft_archive_count(archive);
    for (heft_io io = HEFT_IO_AUTO; io <= HEFT_IO_DIRECT; io++) {
        if (io == HEFT_IO_MAP && (heft_features() & HEFT_FEATURE_BIG_ENDIAN)) continue;
        for (uint32_t workers = 1; workers <= 3; workers += 2) {
            OK(load_verified(archive, (heft_load_options){.io = io, .workers = workers}, &stats));
            assert_int_equal(stats.nverified, n);
            assert_true(stats.verify_seconds > 0 && stats.total_seconds >= stats.verify_seconds);
        }
    }
    for (uint64_t id = 0; id < n; id += 7) { /* some of no bytes, some large */
        heft_tensor tensor;
        OK(heft_archive_get(archive, id, &tensor, &err));
        if (tensor.nbytes == 0) continue;
        flip(archive, id);
        heft_archive *again = load_open(path);
        for (heft_io io = HEFT_IO_AUTO; io <= HEFT_IO_DIRECT; io++) {
            if (io == HEFT_IO_MAP && (heft_features() & HEFT_FEATURE_BIG_ENDIAN)) continue;
            assert_int_equal(load_verified(again, (heft_load_options){.io = io}, &stats), HEFT_MISMATCH);
            assert_int_equal(err.fault, HEFT_FAULT_CHECKSUM);
            assert_string_equal(err.tensor, tensor.name);
            assert_int_equal(err.more, 0);
            assert_int_equal(stats.nverified, 0);
        }
        const char *const none[] = {tensor.name}; /* a load without it does not care */
        heft_filter filter = {.struct_size = sizeof filter, .exclude = none, .nexclude = 1};
        OK(load_verified(again, (heft_load_options){.filter = &filter}, &stats));
        assert_int_equal(stats.nverified, n - 1);
        heft_archive_unref(again);
        flip(archive, id);
    }
    heft_archive_unref(archive);
}

static void what_cannot_be_checked(void **state) {
    (void)state;
    if (no_digests()) return;
    heft_archive *archive = load_open(load_set("cut", 2, 30, 1 << 20));
    heft_load_stats stats;
    OK(heft_archive_write_sidecars(archive, NULL, NULL, &err));
    const heft_tp_rule rules[] = {{"*.weight", 0}};
    heft_filter filter = {.struct_size = sizeof filter, .tp_world = 2, .tp_split = HEFT_SPLIT_CEIL, .tp_rules = rules,
                          .ntp_rules = 1};
    heft_load_plan *plan;
    heft_load_options options = {.struct_size = sizeof options, .verify = true};
    heft_status status = load_verified(archive, (heft_load_options){.filter = &filter}, &stats);
    if (status != HEFT_OK) fail_msg("%s", err.message);
    assert_true(stats.nverified < heft_archive_count(archive));
    OK(heft_load_plan_new(archive, &options, &plan, &err));
    heft_load_iter *iter;
    assert_int_equal(heft_load_iter_new(plan, HEFT_LOAD_ORDER_FILE, 0, &iter, &err), HEFT_INVALID_ARGUMENT);
    heft_load_plan_free(plan);
    heft_archive_unref(archive);
}

/* Files without digests of tensors, or with more to say than those. */
static void all_data(void **state) {
    (void)state;
    if (no_digests()) return;
    heft_archive *from = load_open(load_set("all", 1, 30, 5 << 20));
    uint64_t n = heft_archive_count(from);
    heft_save_item *items = calloc(n, sizeof *items);
    heft_tensor tensor;
    heft_load_stats stats;
    for (uint64_t i = 0; i < n; i++) {
        OK(heft_archive_get(from, i, &tensor, &err));
        items[i] = (heft_save_item){.name = tensor.name, .archive = from, .id = i};
    }
    const char *path = test_path("data.safetensors");
    heft_save_options options = {.struct_size = sizeof options, .overwrite = true, .no_sync = true, .align = 64,
                                 .digests = HEFT_DIGEST_DATA};
    OK(heft_save(path, items, n, &options, NULL, &err));
    for (int round = 0; round < 2; round++) {
        heft_archive *archive = load_open(path);
        for (heft_io io = HEFT_IO_AUTO; io <= HEFT_IO_DIRECT; io++) {
            if (io == HEFT_IO_MAP && (heft_features() & HEFT_FEATURE_BIG_ENDIAN)) continue;
            heft_status status = load_verified(archive, (heft_load_options){.io = io}, &stats);
            assert_int_equal(status, round ? HEFT_MISMATCH : HEFT_OK);
            assert_int_equal(stats.nverified, round ? 0 : n);
            if (round) assert_true(!*err.tensor && strstr(err.message, "all its data") && err.fault == HEFT_FAULT_CHECKSUM);
        }
        const char *const none[] = {items[0].name}; /* it says nothing of some of them, or of what became of them */
        heft_filter filter = {.struct_size = sizeof filter, .exclude = none, .nexclude = 1};
        OK(load_verified(archive, (heft_load_options){.filter = &filter}, &stats));
        assert_int_equal(stats.nverified, 0);
        OK(load_verified(archive, (heft_load_options){.dtype = HEFT_BF16}, &stats));
        assert_int_equal(stats.nverified, 0);
        if (!round) flip(archive, n / 2);
        heft_archive_unref(archive);
    }
    /* All tensors are what their digests say, and yet there is one too many. */
    options.digests = HEFT_DIGEST_TENSORS;
    options.metadata = &(heft_pair){"heft.data_xxh3", SIZE_MAX, "0123456789abcdef0123456789abcdef", SIZE_MAX};
    options.nmetadata = 1;
    OK(heft_save(path, items, n, &options, NULL, &err));
    heft_archive *archive = load_open(path);
    assert_int_equal(load_verified(archive, (heft_load_options){0}, &stats), HEFT_MISMATCH);
    assert_true(!*err.tensor && strstr(err.message, "0123456789abcdef0123456789abcdef"));
    heft_archive_unref(archive);
    /* The file has another size than its sidecar says. */
    options.metadata = NULL;
    options.nmetadata = 0;
    options.digests = HEFT_DIGEST_SIDECAR;
    OK(heft_save(path, items, n, &options, NULL, &err));
    archive = load_open(path);
    OK(load_verified(archive, (heft_load_options){0}, &stats));
    assert_int_equal(stats.nverified, n);
    size_t nbytes;
    char *text = (char *)test_slurp(test_path("data.safetensors.xxh3.json"), &nbytes), *size = strstr(text, "\"file_nbytes\": ");
    size[15] = size[15] == '9' ? '8' : '9';
    test_write("data.safetensors.xxh3.json", text, nbytes);
    assert_int_equal(load_verified(archive, (heft_load_options){0}, &stats), HEFT_MISMATCH);
    assert_non_null(strstr(err.message, "its sidecar says"));
    heft_archive_unref(archive);
    free(text);
    free(items);
    heft_archive_unref(from);
}

static void arrays_of_an_npz(void **state) {
    (void)state;
    const char *path = test_path("arrays.npz");
    float numbers[1000];
    const int64_t dims[] = {1000}, strides[] = {-(int64_t)sizeof numbers[0]};
    for (int i = 0; i < 1000; i++) numbers[i] = (float)i;
    heft_save_item items[] = {{.name = "a", .data = numbers, .shape = dims, .rank = 1, .dtype = HEFT_F32},
                              {.name = "b", .data = numbers + 999, .stride_nbytes = strides, .shape = dims, .rank = 1,
                               .dtype = HEFT_F32}};
    heft_save_options options = {.struct_size = sizeof options, .format = "npz", .overwrite = true, .no_sync = true};
    heft_load_stats stats;
    OK(heft_save(path, items, 2, &options, NULL, &err));
    heft_archive *archive = load_open(path);
    OK(load_verified(archive, (heft_load_options){0}, &stats));
    assert_int_equal(stats.nverified, 2);
    flip(archive, 1);
    assert_int_equal(load_verified(archive, (heft_load_options){0}, &stats), HEFT_MISMATCH);
    heft_archive_unref(archive);
    archive = load_open(path);
    assert_int_equal(load_verified(archive, (heft_load_options){0}, &stats), HEFT_MISMATCH);
    assert_string_equal(err.tensor, "b");
    assert_non_null(strstr(err.message, "CRC-32"));
    heft_archive_unref(archive);
}

static void allocations_fail(void **state) {
    (void)state;
    if (no_digests()) return;
    heft_archive *archive = load_open(load_set("memory", 2, 10, 100000));
    OK(heft_archive_write_sidecars(archive, NULL, NULL, &err));
    for (uint64_t k = 1;; k++) {
        test_allocator t;
        heft_load_stats stats;
        test_allocator_init(&t, k);
        heft_status status = load_verified(archive, (heft_load_options){.allocator = &t.alloc, .workers = 1}, &stats);
        assert_int_equal(t.live_blocks, 0);
        if (status == HEFT_OK) break;
        assert_int_equal(status, HEFT_OUT_OF_MEMORY);
    }
    heft_archive_unref(archive);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_path),
        cmocka_unit_test(what_cannot_be_checked),
        cmocka_unit_test(all_data),
        cmocka_unit_test(arrays_of_an_npz),
        cmocka_unit_test(allocations_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
