/* Checkpoints for tests of loads. */
#include "helper_load.h"

#include "helper_files.h"
#include "helper_random.h"

static uint64_t load_nbytes(uint32_t shard, uint32_t i, uint64_t large) {
    static const uint64_t sizes[] = {4, 36, 100, 4096, 12, 70000, 8};
    if (i == 5) return large;
    if (i % 7 == 6) return 0;
    return sizes[(i * 3 + shard) % 7];
}

const char *load_set(const char *name, uint32_t nshards, uint32_t ntensors, uint64_t large) {
    char file[200];
    uint64_t seed = 77;
    const char *folder = test_mkdir(name);
    for (uint32_t s = 0; s < nshards; s++) {
        test_tensor *tensors = calloc(ntensors, sizeof *tensors);
        for (uint32_t i = 0; i < ntensors; i++) {
            uint64_t nbytes = load_nbytes(s, i, large);
            uint8_t *data = malloc(nbytes + 8);
            for (uint64_t at = 0; at < nbytes; at += 8) {
                uint64_t word = random_u64(&seed);
                memcpy(data + at, &word, 8);
            }
            char *text = malloc(64), *shape = malloc(64);
            snprintf(text, 64, i == 3 ? "s%u.layers.%u.k_scale" : "s%u.layers.%u.weight", s, i);
            bool fp8 = i % 11 == 10;
            if (nbytes % 16 == 0)
                snprintf(shape, 64, "4,%llu", (unsigned long long)(fp8 ? nbytes / 4 : nbytes / 16));
            else
                snprintf(shape, 64, "%llu", (unsigned long long)(fp8 ? nbytes : nbytes / 4));
            tensors[i] = (test_tensor){text, fp8 ? "F8_E4M3" : "F32", shape, data, nbytes};
        }
        snprintf(file, sizeof file, "%s/model-%05u-of-%05u.safetensors", name, s + 1, nshards);
        if (nshards == 1) snprintf(file, sizeof file, "%s/model.safetensors", name);
        test_write_safetensors(file, tensors, ntensors, NULL);
        for (uint32_t i = 0; i < ntensors; i++) {
            free((void *)(uintptr_t)tensors[i].data);
            free((void *)(uintptr_t)tensors[i].name);
            free((void *)(uintptr_t)tensors[i].shape);
        }
        free(tensors);
    }
    return folder;
}

heft_archive *load_open(const char *path) {
    heft_archive *archive;
    heft_error err;
    heft_open_options options = {.struct_size = sizeof options, .lenient = HEFT_LENIENT_ALL};
    if (heft_archive_open(path, &options, &archive, &err) != HEFT_OK) fail_msg("%s", err.message);
    return archive;
}

void assert_view(const heft_view *view, const void *data, uint64_t nbytes) {
    heft_error err;
    assert_non_null(data);
    assert_true(heft_view_nbytes(view) == nbytes);
    uint8_t *want = malloc(nbytes + 1);
    if (heft_read(view, want, nbytes, NULL, NULL, &err) != HEFT_OK) fail_msg("%s", err.message);
    if (nbytes) assert_memory_equal(want, data, nbytes);
    free(want);
}

void assert_tensor(const heft_archive *archive, uint64_t id, const void *data, uint64_t nbytes) {
    heft_view view;
    assert_int_equal(heft_view_of(archive, id, &view, NULL), HEFT_OK);
    assert_view(&view, data, nbytes);
}

void assert_weights(const heft_archive *archive, const heft_weights *weights) {
    uint64_t n = heft_archive_count(archive), nbytes = 0;
    heft_error err;
    assert_true(heft_weights_count(weights) == n);
    for (uint64_t i = 0; i < n; i++) {
        heft_loaded loaded, found;
        heft_tensor tensor;
        assert_int_equal(heft_archive_get(archive, i, &tensor, NULL), HEFT_OK);
        if (heft_weights_at(weights, HEFT_LOAD_ORDER_FILE, i, &loaded, &err) != HEFT_OK) fail_msg("%s", err.message);
        assert_true(loaded.id == i && loaded.dtype == tensor.dtype && loaded.rank == tensor.rank);
        assert_true(loaded.file == tensor.file && loaded.nbytes == tensor.nbytes && loaded.name_len == tensor.name_len);
        assert_string_equal(loaded.name, tensor.name);
        assert_memory_equal(loaded.shape, tensor.shape, tensor.rank * sizeof *tensor.shape);
        assert_int_equal((uintptr_t)loaded.data % 4, 0);
        assert_tensor(archive, i, loaded.data, loaded.nbytes);
        assert_int_equal(heft_weights_get(weights, tensor.name, SIZE_MAX, &found, &err), HEFT_OK);
        assert_ptr_equal(found.data, loaded.data);
        nbytes += loaded.nbytes;
    }
    assert_true(heft_weights_nbytes(weights) == nbytes);
}
