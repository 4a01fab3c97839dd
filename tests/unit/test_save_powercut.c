/* label: full */
/* A power cut at every point of every way to save: what is found then is the old checkpoint, the new one, or, only where a set is
 * replaced in place, one that is refused until it is resumed; and what a save has said to be saved is. Of an edit in place any
 * sectors of the header may be on the disk: what opens is the file with the old header or with the new one. */
#include "helper_disk.h"
#include "helper_edit.h"
#include "helper_target.h"
#include "helper_ways.h"

#include <dirent.h>
#include <sys/wait.h>
#include <unistd.h>

static int outcomes[4];
static const save_way *way_now;

static void must(heft_status status, const heft_error *err) {
    if (status != HEFT_OK) fail_msg("%s", err->message);
}

/* ---- saves ---- */

static void look_at_way(const char *folder) {
    (void)save_way_index(way_now, folder);
    outcomes[save_way_found(way_now, folder)]++;
}

static void look_for_new(const char *folder) {
    if (save_way_found(way_now, folder) != 2) fail_msg("%s: it was saved, and is not there", way_now->name);
    bool file = strstr(way_now->target, ".") || way_now->after == 1;
    if (!file && !save_way_index(way_now, folder)) fail_msg("%s: the index is not there", way_now->name);
}

static void every_way(void **state) {
    (void)state;
    for (size_t i = 0; i < nsave_ways; i += test_count(20) < 2 ? 6 : 1) { /* fewer under an emulator */
        heft_error err;
        way_now = &save_ways[i];
        if (!save_way_can(way_now)) continue;
        memset(outcomes, 0, sizeof outcomes);
        char *folder = strdup(test_mkdir("disk"));
        disk_empty(folder);
        trap_begin(&(trap_plan){0});
        save_way_prepare(way_now, folder);
        trap_end();
        disk_begin(look_at_way, false);
        must(save_way_run(way_now, folder, &err), &err);
        disk_end(look_for_new);
        bool marked = !*way_now->target && way_now->before > 0 && (way_now->before > 1 || way_now->after > 1);
        if (outcomes[way_now->before ? 1 : 0] < 6 || outcomes[2] < 1 || (outcomes[3] > 0) != marked)
            fail_msg("%s: nothing %d, old %d, new %d, resumed %d", way_now->name, outcomes[0], outcomes[1], outcomes[2],
                     outcomes[3]);
        free(folder);
    }
}

/* The end of a replacement that died anywhere, which the power cuts short again. */
static void look_at_resumed(const char *folder) {
    (void)save_way_index(way_now, folder);
    int found = save_way_found(way_now, folder);
    assert_true(found == 2 || found == 3);
    outcomes[found]++;
}

static void resuming(void **state) {
    (void)state;
    char *folder = strdup(test_mkdir("disk")), *marker = strdup(test_path("disk/.heft-save-in-progress"));
    memset(outcomes, 0, sizeof outcomes);
    for (size_t i = 0; i < nsave_ways; i++) {
        way_now = &save_ways[i];
        if (strcmp(way_now->name, "a larger set") != 0 && strcmp(way_now->name, "one file for a set") != 0) continue;
        for (uint64_t k = 1, last = false; !last; k += test_count(20) < 20 ? 7 : 1) {
            heft_error err;
            int status;
            disk_empty(folder);
            trap_begin(&(trap_plan){0});
            save_way_prepare(way_now, folder);
            trap_end();
            pid_t child = fork();
            assert_true(child >= 0);
            if (child == 0) {
                trap_begin(&(trap_plan){.fail_call = k, .die = true});
                _exit(save_way_run(way_now, folder, NULL) != HEFT_OK);
            }
            assert_int_equal(waitpid(child, &status, 0), child);
            last = WIFEXITED(status);
            if (access(marker, F_OK) != 0) continue;
            disk_begin(look_at_resumed, false);
            must(heft_set_resume(folder, NULL, NULL, &err), &err);
            disk_end(look_for_new);
        }
    }
    assert_true(test_count(20) < 20 || (outcomes[2] > 50 && outcomes[3] > 50));
    free(folder);
    free(marker);
}

/* ---- what else is written beside checkpoints ---- */

/* 0: there is no digest of the file; 1: they are whole and right. */
static void look_at_sidecar(const char *folder) {
    heft_archive *archive;
    heft_error err;
    char path[600];
    snprintf(path, sizeof path, "%s/x.safetensors", folder);
    must(heft_archive_open(path, NULL, &archive, &err), &err);
    heft_status status = heft_archive_verify(archive, NULL, 0, NULL, NULL, NULL, &err);
    heft_archive_unref(archive);
    if (status != HEFT_OK && status != HEFT_NOT_FOUND) fail_msg("%s", err.message);
    outcomes[status == HEFT_OK]++;
}

static void look_for_sidecar(const char *folder) {
    int before = outcomes[1];
    look_at_sidecar(folder);
    assert_int_equal(outcomes[1], before + 1);
}

static void sidecars(void **state) {
    (void)state;
    heft_archive *archive;
    heft_error err;
    if (!(heft_features() & HEFT_FEATURE_XXHASH)) skip();
    char *folder = strdup(test_mkdir("disk"));
    memset(outcomes, 0, sizeof outcomes);
    disk_empty(folder);
    must(save_ways[0].save(test_path("disk/x.safetensors"), 3, 1, &err), &err);
    must(heft_archive_open(test_path("disk/x.safetensors"), NULL, &archive, &err), &err);
    for (int round = 0; round < 2; round++) { /* a new one; one in the place of another */
        heft_save_options over = {.struct_size = sizeof over, .overwrite = round};
        disk_begin(look_at_sidecar, false);
        must(heft_archive_write_sidecars(archive, NULL, &over, &err), &err);
        disk_end(look_for_sidecar);
    }
    heft_archive_unref(archive);
    assert_true(outcomes[0] > 4 && outcomes[1] > 4);
    free(folder);
}

/* Aligned copies: what is visible opens, is aligned and is the source. */
static void look_at_cache(const char *folder) {
    DIR *d = opendir(folder);
    int copies = 0;
    for (struct dirent *e; (e = readdir(d));) {
        heft_archive *archive;
        heft_error err;
        heft_tensor tensor;
        char path[600];
        if (strncmp(e->d_name, "x.safetensors.", 14) != 0) continue;
        copies++;
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        must(heft_archive_open(path, NULL, &archive, &err), &err);
        assert_int_equal(heft_archive_count(archive), 3);
        for (uint64_t i = 0; i < 3; i++) {
            uint8_t bytes[200];
            heft_view view;
            assert_int_equal(heft_archive_get(archive, i, &tensor, &err), HEFT_OK);
            assert_int_equal(tensor.offset % 64, 0);
            assert_int_equal(heft_view_of(archive, i, &view, NULL), HEFT_OK);
            assert_int_equal(heft_read(&view, bytes, sizeof bytes, NULL, NULL, NULL), HEFT_OK);
            for (size_t j = 0; j < sizeof bytes; j++) assert_int_equal(bytes[j], 1);
        }
        heft_archive_unref(archive);
    }
    closedir(d);
    assert_true(copies <= 1);
    outcomes[copies]++;
}

static void aligned_copies(void **state) {
    (void)state;
    heft_archive *archive;
    heft_error err;
    heft_aligned how;
    if (!(heft_features() & HEFT_FEATURE_XXHASH)) skip();
    char *folder = strdup(test_mkdir("disk")), *path = strdup(test_path("source/x.safetensors"));
    test_mkdir("source");
    memset(outcomes, 0, sizeof outcomes);
    disk_empty(folder);
    must(save_ways[0].save(path, 3, 1, &err), &err);
    disk_begin(look_at_cache, false);
    must(heft_open_aligned(path, folder, 64, NULL, &archive, &how, &err), &err);
    disk_end(NULL); /* a copy that is gone is made again */
    assert_int_equal(how, HEFT_ALIGNED_BUILT);
    heft_archive_unref(archive);
    assert_true(outcomes[0] > 4 && outcomes[1] > 0);
    free(folder);
    free(path);
}

/* Old checkpoints removed: each is there and whole, or not there; the newest stay. */
static void look_at_checkpoints(const char *folder) {
    static const char *const names[] = {"step-1", "step-2", "step-3.safetensors", "step-4"};
    int n = 0;
    for (int i = 0; i < 4; i++) {
        heft_archive *archive;
        heft_error err;
        char path[600];
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        if (i < 3 && access(path, F_OK) != 0) continue;
        must(heft_archive_open(path, NULL, &archive, &err), &err);
        assert_int_equal(heft_archive_count(archive), 2);
        heft_archive_unref(archive);
        n++;
    }
    outcomes[n > 3 ? 3 : n]++;
}

static void old_checkpoints(void **state) {
    (void)state;
    heft_error err;
    uint64_t removed;
    char *folder = strdup(test_mkdir("disk"));
    memset(outcomes, 0, sizeof outcomes);
    disk_empty(folder);
    trap_begin(&(trap_plan){0});
    const heft_set_options each = {.struct_size = sizeof each, .ceiling_nbytes = 200, .publish = true};
    static const int64_t shape[] = {200};
    static uint8_t bytes[200];
    const heft_save_item items[] = {{.name = "a", .data = bytes, .shape = shape, .rank = 1, .dtype = HEFT_U8},
                                    {.name = "b", .data = bytes, .shape = shape, .rank = 1, .dtype = HEFT_U8}};
    for (int i = 1; i <= 4; i++) {
        char name[40];
        snprintf(name, sizeof name, i == 3 ? "disk/step-3.safetensors" : "disk/step-%d", i);
        if (i == 3) must(heft_save(test_path(name), items, 2, NULL, NULL, &err), &err);
        else must(heft_save_set(test_path(name), items, 2, NULL, &each, NULL, &err), &err);
    }
    trap_end();
    disk_begin(look_at_checkpoints, false);
    must(heft_checkpoint_keep(folder, NULL, 1, HEFT_VERIFY_HEADERS, NULL, &removed, &err), &err);
    disk_end(NULL); /* what is removed may be there once more */
    assert_int_equal(removed, 3);
    assert_true(outcomes[1] > 0 && outcomes[2] > 2 && outcomes[3] > 2);
    free(folder);
}

/* ---- edits in place ---- */

/* An edit opens as old or new; if it is not over, one of the ends gives what it promises, the other time the other. */
static void look_at_edited(const char *folder) {
    static bool undo;
    heft_archive *archive;
    heft_error err;
    heft_pair pair;
    bool done;
    char path[600];
    snprintf(path, sizeof path, "%s/x.safetensors", folder);
    if (heft_archive_open(path, NULL, &archive, &err)) fail_msg("neither old nor new: %s", err.message);
    assert_int_equal(heft_archive_metadata_find(archive, 0, "mark", 4, &pair, &err), HEFT_OK);
    for (size_t i = 0; i < pair.value_len; i++) assert_int_equal(pair.value[i], pair.value[0]);
    assert_int_equal(heft_archive_find(archive, pair.value[0] == '1' ? "b1" : "b2", 2, &(uint64_t){0}, &err), HEFT_OK);
    outcomes[pair.value[0] == '2']++;
    char before = pair.value[0];
    heft_archive_unref(archive);
    undo = !undo;
    heft_status status = (undo ? heft_edit_undo : heft_edit_resume)(path, NULL, &done, &err);
    /* The file of a power cut is a new one here, so that a header that is still the old one is that of a stranger. */
    if (status != HEFT_OK && (err.fault != HEFT_FAULT_JOURNAL_IGNORED || before != '1')) fail_msg("%s", err.message);
    outcomes[2] += done;
    if (!edit_mark(path, status ? HEFT_FAULT_JOURNAL_IGNORED : HEFT_FAULT_NONE, &err)) fail_msg("%s", err.message);
    size_t n;
    uint8_t *bytes = test_slurp(path, &n);
    assert_int_equal(n, EDIT_FILE);
    assert_memory_equal(bytes, edit_bytes(!done ? before : undo ? '1' : '2'), EDIT_FILE);
    free(bytes);
}

static char wanted;

static void look_for_edited(const char *folder) {
    heft_error err;
    char path[600];
    snprintf(path, sizeof path, "%s/x.safetensors", folder);
    assert_int_equal(edit_mark(path, HEFT_FAULT_NONE, &err), wanted);
}

/* Forwards, and the end of one that was interrupted. */
static void edits_in_place(void **state) {
    (void)state;
    char *folder = strdup(test_mkdir("disk")), *path = strdup(test_path("disk/x.safetensors"));
    for (int round = 0; round < 3; round++) {
        heft_error err;
        size_t n;
        bool done;
        memset(outcomes, 0, sizeof outcomes);
        disk_empty(folder);
        edit_make("disk/x.safetensors");
        uint8_t *journal = edit_journal(path, &n);
        if (round) test_write("disk/.heft-x.safetensors.journal", journal, n);
        free(journal);
        disk_begin(look_at_edited, true);
        must(round == 0   ? edit_run(path, NULL, &err)
             : round == 1 ? heft_edit_resume(path, NULL, &done, &err)
                          : heft_edit_undo(path, NULL, &done, &err),
             &err);
        wanted = round == 2 ? '1' : '2';
        disk_end(look_for_edited);
        assert_true(outcomes[0] > 20 && (round == 2 || outcomes[1] > 20));
        assert_true(round == 2 || outcomes[2] > 20);
    }
    free(folder);
    free(path);
}

static int teardown(void **state) {
    (void)state;
    trap_log = NULL;
    trap_end();
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(every_way, teardown),       cmocka_unit_test_teardown(resuming, teardown),
        cmocka_unit_test_teardown(sidecars, teardown),        cmocka_unit_test_teardown(aligned_copies, teardown),
        cmocka_unit_test_teardown(old_checkpoints, teardown), cmocka_unit_test_teardown(edits_in_place, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
