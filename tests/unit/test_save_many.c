/* Saves and edits of one path at once, by twenty threads and by four processes: one of them is found whole, and nothing else. */
#include "helper_edit.h"
#include "helper_marked.h"

#include "base/os_target.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SIZE = 3000, THREADS = 20, PROCESSES = 4 };

static heft_status save(const char *path, uint8_t mark, const heft_set_options *set, heft_error *err) {
    const heft_save_options over = {.struct_size = sizeof over, .overwrite = true, .no_sync = true, .workers = 1};
    return marked_save(path, mark, SIZE, &over, set, err);
}

typedef struct many_job {
    const char *path;
    const heft_set_options *set;
    heft_status (*run)(const struct many_job *job, int round, heft_error *err);
    int rounds;
    atomic_int done, busy; /* EXISTS, or an edit that is not over */
} many_job;

static void *many_thread(void *arg) {
    many_job *job = arg;
    for (int i = 0; i < job->rounds; i++) {
        heft_error err;
        heft_status status = job->run(job, i, &err);
        if (status == HEFT_OK) atomic_fetch_add(&job->done, 1);
        else if (status == HEFT_EXISTS || status == HEFT_MISMATCH) atomic_fetch_add(&job->busy, 1);
        else {
            fprintf(stderr, "%s\n", err.message);
            return job;
        }
    }
    return NULL;
}

/* So many processes of so many threads each; how many rounds were done in all. */
static int many(many_job *job, int processes, int threads) {
    int ends[2], all = 0;
    pid_t children[PROCESSES];
    assert_int_equal(pipe(ends), 0);
    for (int p = 0; p < processes; p++) {
        children[p] = fork();
        assert_true(children[p] >= 0);
        if (children[p]) continue;
        pthread_t thread[THREADS];
        void *failed = NULL, *each;
        for (int i = 1; i < threads; i++)
            if (pthread_create(&thread[i], NULL, many_thread, job)) _exit(2);
        failed = many_thread(job);
        for (int i = 1; i < threads; i++) {
            pthread_join(thread[i], &each);
            if (each) failed = each;
        }
        int done[2] = {atomic_load(&job->done), atomic_load(&job->busy)};
        if (done[0] + done[1] != threads * job->rounds || write(ends[1], done, sizeof done[0]) != sizeof done[0]) failed = job;
        _exit(failed != NULL);
    }
    for (int p = 0; p < processes; p++) {
        int status, done;
        assert_int_equal(waitpid(children[p], &status, 0), children[p]);
        assert_int_equal(status, 0);
        assert_int_equal(read(ends[0], &done, sizeof done), sizeof done);
        all += done;
    }
    close(ends[0]);
    close(ends[1]);
    return all;
}

static heft_status save_round(const many_job *job, int round, heft_error *err) {
    return save(job->path, (uint8_t)(round + 1), job->set, err);
}

static heft_status sidecar_round(const many_job *job, int round, heft_error *err) {
    const heft_save_options over = {.struct_size = sizeof over, .overwrite = true, .no_sync = true, .workers = 1,
                                    .digests = round % 3 ? HEFT_DIGEST_SIDECAR : 0};
    return marked_save(job->path, (uint8_t)(round + 1), SIZE, &over, NULL, err);
}

/* Some with sidecars: the one that is left is of the file that is left. */
static void one_file_with_sidecars(void **state) {
    (void)state;
    static const int ways[][2] = {{1, THREADS}, {PROCESSES, 5}};
    if (!(heft_features() & HEFT_FEATURE_XXHASH)) return;
    test_mkdir("beside");
    char *path = strdup(test_path("beside/x.safetensors")), *folder = strdup(test_path("beside"));
    for (int i = 0; i < 8; i++) {
        const int *way = ways[i % 2];
        many_job job = {.path = path, .run = sidecar_round, .rounds = 3 + i % 3};
        heft_archive *archive;
        heft_error err;
        assert_int_equal(many(&job, way[0], way[1]), way[0] * way[1] * job.rounds);
        if (heft_archive_open(path, NULL, &archive, &err)) fail_msg("%s", err.message);
        heft_status status = heft_archive_verify(archive, NULL, 0, NULL, NULL, NULL, &err);
        if (status != HEFT_OK && status != HEFT_NOT_FOUND) fail_msg("%s", err.message);
        assert_int_equal(marked_entries(folder), 1 + (status == HEFT_OK));
        heft_archive_unref(archive);
    }
    free(path);
    free(folder);
}

static void one_file(void **state) {
    (void)state;
    static const int ways[][2] = {{1, THREADS}, {PROCESSES, 1}, {PROCESSES, 5}};
    test_mkdir("file");
    char *path = strdup(test_path("file/x.safetensors")), *folder = strdup(test_path("file"));
    for (size_t i = 0; i < 3; i++) {
        many_job job = {.path = path, .run = save_round, .rounds = 10};
        assert_int_equal(many(&job, ways[i][0], ways[i][1]), ways[i][0] * ways[i][1] * 10);
        assert_int_equal(marked_of(path, SIZE), 10);
        assert_int_equal(marked_entries(folder), 1);
    }
    free(path);
    free(folder);
}

/* A new folder: one of them gets the name. */
static void a_published_set(void **state) {
    (void)state;
    static const int ways[][2] = {{1, THREADS}, {PROCESSES, 1}, {PROCESSES, 5}};
    for (int i = 0; i < 3; i++) {
        char name[40];
        snprintf(name, sizeof name, "publish%d", i);
        char *folder = strdup(test_mkdir(name));
        strncat(name, "/set", sizeof name - strlen(name) - 1);
        char *path = strdup(test_path(name));
        const heft_set_options set = {.struct_size = sizeof set, .ceiling_nbytes = SIZE, .publish = true};
        many_job job = {.path = path, .set = &set, .run = save_round, .rounds = 3};
        assert_int_equal(many(&job, ways[i][0], ways[i][1]), 1);
        (void)marked_of(path, SIZE);
        assert_int_equal(marked_entries(path), MARKED_TENSORS + 1);
        assert_int_equal(marked_entries(folder), 1);
        free(folder);
        free(path);
    }
}

/* One set replaced in place by processes: who comes while another is at it is told so. */
static void a_set_replaced_in_place(void **state) {
    (void)state;
    const heft_set_options set = {.struct_size = sizeof set, .ceiling_nbytes = SIZE};
    heft_error err;
    uint64_t removed;
    char *path = strdup(test_mkdir("set"));
    assert_int_equal(save(path, 99, &set, &err), HEFT_OK);
    many_job job = {.path = path, .set = &set, .run = save_round, .rounds = 25};
    assert_true(many(&job, PROCESSES, 1) >= 1);
    assert_int_equal(heft_set_resume(path, NULL, NULL, &err), HEFT_OK);
    assert_int_not_equal(marked_of(path, SIZE), 99);
    assert_int_equal(heft_save_clean(path, false, NULL, &removed, &err), HEFT_OK);
    assert_int_equal(marked_entries(path), MARKED_TENSORS + 1);
    free(path);
}

static heft_status edit_round(const many_job *job, int round, heft_error *err) {
    heft_archive *archive;
    char value[] = "mark .";
    value[5] = (char)('a' + round);
    heft_pair pair = {.key = "mark", .key_len = 4, .value = value, .value_len = 6};
    heft_edit_options options = {.struct_size = sizeof options, .metadata = &pair, .nmetadata = 1, .no_sync = true};
    heft_status status = heft_archive_open(job->path, NULL, &archive, err);
    if (status == HEFT_CORRUPT) return HEFT_EXISTS; /* torn under its eyes, as promised */
    if (status) return status;
    status = heft_edit_in_place(archive, NULL, 0, &options, NULL, err);
    heft_archive_unref(archive);
    return status;
}

static void one_file_edited_in_place(void **state) {
    (void)state;
    static const int ways[][2] = {{1, THREADS}, {PROCESSES, 1}, {PROCESSES, 5}};
    char *path = strdup(edit_make("edit/x.safetensors")), *folder = strdup(test_path("edit"));
    for (size_t i = 0; i < 3; i++) {
        many_job job = {.path = path, .run = edit_round, .rounds = 20};
        heft_archive *archive;
        heft_error err;
        heft_pair pair;
        assert_true(many(&job, ways[i][0], ways[i][1]) >= 1);
        if (heft_archive_open(path, NULL, &archive, &err)) fail_msg("%s", err.message);
        assert_int_equal(heft_report_count(heft_archive_warnings(archive)), 0);
        assert_int_equal(heft_archive_metadata_find(archive, 0, "mark", 4, &pair, &err), HEFT_OK);
        assert_int_equal(pair.value_len, 6);
        heft_archive_unref(archive);
        assert_int_equal(marked_entries(folder), 1);
    }
    free(path);
    free(folder);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(one_file), cmocka_unit_test(one_file_with_sidecars),
                                       cmocka_unit_test(a_published_set),
                                       cmocka_unit_test(a_set_replaced_in_place), cmocka_unit_test(one_file_edited_in_place)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
