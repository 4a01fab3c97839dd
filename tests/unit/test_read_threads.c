/* label: threads */
/* 64 threads read, borrow and list one archive at once, each with what it finds checked. Meant for TSan too. */
#include "helper_files.h"

#include <pthread.h>

enum { THREADS = 64, FILES = 3, EACH = 20, VALUES = 500 };

static heft_archive *archive;
static _Atomic int faults;

/* Tensor k of file f holds the numbers f * 1000000 + k * 1000 + i. */
static uint32_t value_of(uint64_t file, uint64_t k, uint64_t i) {
    return (uint32_t)(file * 1000000 + k * 1000 + i);
}

static void make_files(void) {
    static uint8_t data[EACH][VALUES * 4];
    static char names[EACH][32];
    const char *paths[FILES];
    for (uint64_t f = 0; f < FILES; f++) {
        test_tensor tensors[EACH];
        for (uint64_t k = 0; k < EACH; k++) {
            for (uint64_t i = 0; i < VALUES; i++)
                for (uint32_t b = 0; b < 4; b++) data[k][i * 4 + b] = (uint8_t)(value_of(f, k, i) >> 8 * b);
            snprintf(names[k], sizeof names[k], "f%u.t%u", (unsigned)f, (unsigned)k);
            tensors[k] = (test_tensor){names[k], "U32", "50,10", data[k], VALUES * 4};
        }
        char name[32];
        snprintf(name, sizeof name, "threads%u.safetensors", (unsigned)f);
        paths[f] = test_write_safetensors(name, tensors, EACH, NULL);
    }
    heft_error err;
    if (heft_archive_open_files(paths, FILES, NULL, &archive, &err) != HEFT_OK) fail_msg("%s", err.message);
}

static void expect(bool ok) {
    if (!ok) faults++;
}

static void *work(void *arg) {
    unsigned seed = (unsigned)(uintptr_t)arg;
    heft_error err;
    uint32_t got[VALUES];
    for (unsigned round = 0; round < 10; round++) {
        unsigned f = (seed + round) % FILES, k = (seed * 7 + round * 3) % EACH;
        char name[32];
        heft_view view, part;
        snprintf(name, sizeof name, "f%u.t%u", f, k);
        if (heft_view_named(archive, name, SIZE_MAX, &view, &err) != HEFT_OK) {
            faults++;
            continue;
        }
        heft_read_options options = {.struct_size = sizeof options, .workers = 1 + seed % 2, .block_nbytes = 700};
        expect(heft_read(&view, got, sizeof got, &options, NULL, &err) == HEFT_OK);
        for (unsigned i = 0; i < VALUES; i++) expect(got[i] == value_of(f, k, i));
        expect(heft_view_index_text(&view, "::5, ::-3", SIZE_MAX, &part, &err) == HEFT_OK);
        expect(heft_read(&part, got, sizeof got, &options, NULL, &err) == HEFT_OK);
        expect(got[0] == value_of(f, k, 9) && got[39] == value_of(f, k, 450));
        heft_buffer buffer;
        heft_status status = heft_borrow(&view, 1, &buffer, &err);
        expect(status == HEFT_OK || (status == HEFT_UNSUPPORTED && heft_features() & HEFT_FEATURE_BIG_ENDIAN));
        if (status == HEFT_OK) {
            expect(memcmp((uint8_t *)buffer.data + 4, &(uint32_t){value_of(f, k, 1)}, 4) == 0);
            heft_buffer_release(&buffer);
        }
        const uint64_t *ids;
        expect(heft_archive_order(archive, HEFT_ORDER_NATURAL, &ids, &err) == HEFT_OK);
        if (seed % 8 == 0) {
            uint64_t offsets[FILES * EACH];
            expect(heft_read_many(archive, ids, FILES * EACH, &options, &buffer, offsets, NULL, &err) == HEFT_OK);
            uint32_t last; /* in natural order the last one is t19 of the last file */
            memcpy(&last, (uint8_t *)buffer.data + offsets[FILES * EACH - 1], 4);
            expect(last == value_of(FILES - 1, EACH - 1, 0));
            heft_buffer_release(&buffer);
        }
    }
    return NULL;
}

static void threads_share_an_archive(void **state) {
    (void)state;
    pthread_t threads[THREADS];
    make_files();
    for (uintptr_t i = 0; i < THREADS; i++) assert_int_equal(pthread_create(&threads[i], NULL, work, (void *)i), 0);
    for (size_t i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    assert_int_equal(faults, 0);
    heft_archive_unref(archive);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(threads_share_an_archive)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
