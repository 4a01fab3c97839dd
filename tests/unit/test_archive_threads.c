/* label: threads */
/* 64 threads share one archive: lookups, orders that they race to make, selections, references. */
#include "helper_files.h"

#include <pthread.h>

enum { NTHREADS = 64, NTENSORS = 600, NFILES = 5 };

typedef struct shared {
    heft_archive *archive;
    pthread_barrier_t barrier;
    const uint64_t *orders[NTHREADS][3];
} shared;

static shared job;

static void *work(void *arg) {
    size_t me = (size_t)(uintptr_t)arg;
    heft_archive *archive = heft_archive_ref(job.archive);
    pthread_barrier_wait(&job.barrier);
    for (heft_order order = 0; order < 3; order++) {
        heft_order mine = (heft_order)((order + me) % 3);
        if (heft_archive_order(archive, mine, &job.orders[me][mine], NULL)) abort();
    }
    for (uint64_t i = 0; i < NTENSORS; i++) {
        char name[32];
        uint64_t id;
        heft_tensor tensor;
        int len = snprintf(name, sizeof name, "layer.%u.w", (unsigned)((i * 7 + me) % NTENSORS));
        if (heft_archive_find(archive, name, (size_t)len, &id, NULL)) abort();
        if (heft_archive_get(archive, id, &tensor, NULL) || strcmp(tensor.name, name)) abort();
    }
    const char *glob = "*9.w";
    heft_selection selection = {
        .struct_size = sizeof selection, .include = &glob, .ninclude = 1, .order = (heft_order)(me % 3)};
    heft_buffer buffer;
    uint64_t n;
    heft_error err;
    if (heft_archive_select(archive, &selection, &buffer, &n, NULL) || n != NTENSORS / 10) abort();
    heft_buffer_release(&buffer);
    if (heft_archive_find(archive, "layer.7.v", SIZE_MAX, &n, &err) != HEFT_NOT_FOUND) abort();
    heft_pair pair;
    if (heft_archive_metadata_find(archive, HEFT_MERGED, "format", SIZE_MAX, &pair, NULL)) abort();
    heft_severity severity;
    if (heft_report_get(heft_archive_warnings(archive), 0, &severity, &err, NULL)) abort();
    heft_archive_unref(archive);
    return NULL;
}

static void run_threads(heft_archive *archive) {
    pthread_t threads[NTHREADS];
    job.archive = archive;
    assert_int_equal(pthread_barrier_init(&job.barrier, NULL, NTHREADS), 0);
    for (size_t i = 0; i < NTHREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, work, (void *)(uintptr_t)i), 0);
    for (size_t i = 0; i < NTHREADS; i++) pthread_join(threads[i], NULL);
    for (size_t i = 1; i < NTHREADS; i++)
        for (int order = 0; order < 3; order++) assert_ptr_equal(job.orders[i][order], job.orders[0][order]);
    pthread_barrier_destroy(&job.barrier);
}

/* Several files with an index, opened by several workers; each round has its races for the orders again. */
static void test_shared_archive(void **state) {
    (void)state;
    static char names[NTENSORS][24];
    test_tensor tensors[NTENSORS / NFILES];
    char *json = malloc(NTENSORS * 80);
    strcpy(json, "{\"weight_map\":{");
    for (int file = 0; file < NFILES; file++) {
        char path[64];
        snprintf(path, sizeof path, "threads/%d.safetensors", file);
        for (int i = 0; i < NTENSORS / NFILES; i++) {
            int number = file * (NTENSORS / NFILES) + i;
            snprintf(names[number], sizeof names[number], "layer.%d.w", number);
            tensors[i] = (test_tensor){names[number], "U8", "1", NULL, 1};
            sprintf(json + strlen(json), "%s\"%s\":\"%d.safetensors\"", number ? "," : "", names[number], file);
        }
        test_write_safetensors(path, tensors, NTENSORS / NFILES, "{\"format\":\"pt\"}");
    }
    strcat(json, "},\"metadata\":{\"total_size\":1}}");
    test_write("threads/model.safetensors.index.json", json, strlen(json));
    free(json);
    for (int round = 0; round < 4; round++) {
        heft_open_options options = {
            .struct_size = sizeof options, .workers = 4, .index = (heft_index_mode)(round % 2)};
        heft_archive *archive;
        heft_error err;
        if (heft_archive_open(test_path("threads"), &options, &archive, &err)) fail_msg("%s", err.message);
        run_threads(archive);
        heft_archive_unref(archive);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_shared_archive)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
