/* label: full */
/* kill -9 at random times, 1,000 rounds: saves of a file, of a set in place and published, of an npz, and edits in place. What is
 * found is old or new and whole, or refused and then ended, and cleaning leaves nothing else. */
#include "helper_edit.h"
#include "helper_marked.h"
#include "helper_random.h"
#include "helper_target.h"

#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { SIZE = MARKED_MOST, ROUNDS = 200 }; /* of each of five kinds */

static heft_status save_marked(const char *path, uint8_t mark, const char *format, const heft_set_options *set) {
    const heft_save_options over = {.struct_size = sizeof over, .overwrite = true, .format = format, .workers = 2};
    return marked_save(path, mark, SIZE, &over, set, NULL);
}

typedef struct kill_kind {
    const char *path, *folder;
    void (*work)(const struct kill_kind *kind); /* forever */
    void (*look)(const struct kill_kind *kind);
    int entries; /* of the folder, when all is whole; 0: not counted */
} kill_kind;

static void must(heft_status status) {
    if (status != HEFT_OK) _exit(3);
}

/* ---- the kinds ---- */

static const heft_set_options in_place = {.struct_size = sizeof in_place, .ceiling_nbytes = SIZE};
static const heft_set_options published = {.struct_size = sizeof published, .ceiling_nbytes = SIZE, .publish = true};

static void file_work(const kill_kind *kind) {
    for (uint8_t mark = 1;; mark = (uint8_t)(mark % 200 + 1)) must(save_marked(kind->path, mark, NULL, NULL));
}

static void npz_work(const kill_kind *kind) {
    for (uint8_t mark = 1;; mark = (uint8_t)(mark % 200 + 1)) must(save_marked(kind->path, mark, "npz", NULL));
}

static void set_work(const kill_kind *kind) {
    for (uint8_t mark = 1;; mark = (uint8_t)(mark % 200 + 1)) must(save_marked(kind->path, mark, NULL, &in_place));
}

static unsigned publish_round = 1;

/* A loop that keeps its last two folders. */
static void publish_work(const kill_kind *kind) {
    for (unsigned step = publish_round * 10000;; step++) {
        char path[600];
        uint64_t removed;
        snprintf(path, sizeof path, "%s/step-%u", kind->folder, step);
        must(save_marked(path, (uint8_t)(step % 200 + 1), NULL, &published));
        must(heft_checkpoint_keep(kind->folder, NULL, 2, 0, NULL, &removed, NULL));
    }
}

static void edit_work(const kill_kind *kind) {
    static char text[1501];
    for (int round = 0;; round++) {
        heft_archive *archive;
        heft_pair pair = {.key = "mark", .key_len = 4, .value = text, .value_len = 1500};
        heft_edit_options options = {.struct_size = sizeof options, .metadata = &pair, .nmetadata = 1};
        heft_new_name name = {.name = round % 2 ? "b1" : "b2"};
        memset(text, round % 2 ? '1' : '2', 1500);
        must(heft_archive_open(kind->path, NULL, &archive, NULL));
        if (heft_archive_find(archive, "b1", 2, &name.id, NULL)) must(heft_archive_find(archive, "b2", 2, &name.id, NULL));
        must(heft_edit_in_place(archive, &name, 1, &options, NULL, NULL));
        heft_archive_unref(archive);
    }
}

static void file_look(const kill_kind *kind) {
    (void)marked_of(kind->path, SIZE);
}

static void set_look(const kill_kind *kind) {
    heft_error err;
    heft_archive *archive;
    heft_status status = heft_archive_open(kind->path, NULL, &archive, &err);
    heft_archive_unref(archive);
    if (status != HEFT_OK) {
        assert_int_equal(err.fault, HEFT_FAULT_SAVE_INTERRUPTED);
        if (heft_set_resume(kind->path, NULL, NULL, &err)) fail_msg("%s", err.message);
    }
    (void)marked_of(kind->path, SIZE);
}

static void publish_look(const kill_kind *kind) {
    heft_buffer newest = {0};
    heft_error err;
    uint64_t skipped;
    publish_round++;
    if (heft_checkpoint_latest(kind->folder, NULL, 0, NULL, &newest, &skipped, &err)) fail_msg("%s", err.message);
    assert_int_equal(skipped, 0);
    (void)marked_of(newest.data, SIZE);
    heft_buffer_release(&newest);
}

static int interrupted;

static void edit_look(const kill_kind *kind) {
    heft_error err;
    bool there = access(edit_journal_path(kind->path), F_OK) == 0, done;
    if (!edit_mark(kind->path, there ? HEFT_FAULT_EDIT_INTERRUPTED : HEFT_FAULT_NONE, &err)) fail_msg("%s", err.message);
    interrupted += there;
    if (there) assert_int_equal((interrupted & 1 ? heft_edit_undo : heft_edit_resume)(kind->path, NULL, &done, &err), HEFT_OK);
    if (!edit_mark(kind->path, HEFT_FAULT_NONE, &err)) fail_msg("%s", err.message);
}

/* ---- the rounds ---- */

static void rounds(const kill_kind *kind, uint64_t *seed) {
    for (uint64_t n = test_count(ROUNDS); n > 0; n--) {
        int status;
        uint64_t removed;
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            trap_begin(&(trap_plan){0}); /* what is not synced is not lost by this */
            kind->work(kind);
        }
        struct timespec pause = {.tv_nsec = (long)(random_below(seed, 12000) * 1000)};
        nanosleep(&pause, NULL);
        assert_int_equal(kill(child, SIGKILL), 0);
        assert_int_equal(waitpid(child, &status, 0), child);
        if (!WIFSIGNALED(status)) fail_msg("it ended by itself: %d", WEXITSTATUS(status));
        kind->look(kind);
        assert_int_equal(heft_save_clean(kind->folder, false, NULL, &removed, NULL), HEFT_OK);
        if (kind->entries) assert_int_equal(marked_entries(kind->folder), kind->entries);
    }
}

static uint64_t seed = 20;

static void a_file(void **state) {
    (void)state;
    test_mkdir("file");
    kill_kind kind = {strdup(test_path("file/x.safetensors")), strdup(test_path("file")), file_work, file_look, 1};
    assert_int_equal(save_marked(kind.path, 1, NULL, NULL), HEFT_OK);
    rounds(&kind, &seed);
    free((void *)(uintptr_t)kind.path);
    free((void *)(uintptr_t)kind.folder);
}

static void an_npz(void **state) {
    (void)state;
    test_mkdir("npz");
    kill_kind kind = {strdup(test_path("npz/x.npz")), strdup(test_path("npz")), npz_work, file_look, 1};
    assert_int_equal(save_marked(kind.path, 1, "npz", NULL), HEFT_OK);
    rounds(&kind, &seed);
    free((void *)(uintptr_t)kind.path);
    free((void *)(uintptr_t)kind.folder);
}

static void a_set_in_place(void **state) {
    (void)state;
    char *path = strdup(test_mkdir("set"));
    kill_kind kind = {path, path, set_work, set_look, MARKED_TENSORS + 1};
    assert_int_equal(save_marked(path, 1, NULL, &in_place), HEFT_OK);
    rounds(&kind, &seed);
    free(path);
}

static void published_sets(void **state) {
    (void)state;
    char *folder = strdup(test_mkdir("published"));
    kill_kind kind = {NULL, folder, publish_work, publish_look, 0};
    assert_int_equal(save_marked(test_path("published/step-0"), 1, NULL, &published), HEFT_OK);
    rounds(&kind, &seed);
    free(folder);
}

static void edits_in_place(void **state) {
    (void)state;
    kill_kind kind = {strdup(edit_make("edit/x.safetensors")), strdup(test_path("edit")), edit_work, edit_look, 1};
    rounds(&kind, &seed);
    free((void *)(uintptr_t)kind.path);
    free((void *)(uintptr_t)kind.folder);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_file), cmocka_unit_test(an_npz), cmocka_unit_test(a_set_in_place),
                                       cmocka_unit_test(published_sets), cmocka_unit_test(edits_in_place)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
