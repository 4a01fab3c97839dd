/* label: full */
/* Sets of files: ended at every call, failing at every call, resumed; markers that were not written by heft; litter. */
#include "helper_files.h"
#include "helper_target.h"

#include "ops/save_set.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SIZE = 500 };
static const int64_t one_dim[] = {SIZE};

static bool lasting = true; /* saves sync, or pretend to */
static bool old_beside, new_beside; /* sidecars of the set with the mark 1; of all others */

static int files_of(int nfiles, uint8_t mark) {
    int each = (mark == 1 ? old_beside : new_beside) ? 2 : 1;
    return nfiles * each + (nfiles > 1);
}

static heft_save_options overwriting(void) {
    return (heft_save_options){.struct_size = sizeof(heft_save_options), .overwrite = true, .no_sync = !lasting};
}

/* The set that is there before. */
static heft_status save_marked(const char *folder, int n, uint8_t mark, bool publish, heft_error *err);
static void save_old(const char *folder, int n) {
    lasting = false;
    if (n) assert_int_equal(save_marked(folder, n, 1, false, NULL), HEFT_OK);
    lasting = true;
}

/* `n` tensors of one file each, whose bytes are all `mark`. */
static heft_status save_marked(const char *folder, int n, uint8_t mark, bool publish, heft_error *err) {
    static const char *const names[] = {"a", "b", "c", "d"};
    uint8_t bytes[SIZE];
    heft_save_item items[4] = {{0}};
    heft_set_options set = {.struct_size = sizeof set, .ceiling_nbytes = SIZE, .publish = publish};
    heft_save_options over = overwriting();
    if (mark == 1 ? old_beside : new_beside) over.digests = HEFT_DIGEST_SIDECAR;
    memset(bytes, mark, sizeof bytes);
    for (int i = 0; i < n; i++)
        items[i] = (heft_save_item){.name = names[i], .data = bytes, .shape = one_dim, .rank = 1, .dtype = HEFT_U8};
    return heft_save_set(folder, items, (uint64_t)n, &over, &set, NULL, err);
}

/* Sidecars are those of the files, or there are none: one of another set would say that all is bad. */
static void check_sidecars(const heft_archive *archive, uint8_t mark) {
    heft_error err;
    heft_status wanted = (mark == 1 ? old_beside : new_beside) ? HEFT_OK : HEFT_NOT_FOUND;
    heft_status status = heft_archive_verify(archive, NULL, 0, NULL, NULL, NULL, &err);
    if (status != wanted) fail_msg("%d: %s", status, status ? err.message : "verified");
}

/* The mark and the number of tensors of a set that opens; 0 if it does not, *err says why. */
static uint8_t mark_of(const char *folder, int *n, heft_error *err) {
    heft_archive *archive;
    uint8_t bytes[SIZE], mark = 0;
    *n = 0;
    if (heft_archive_open(folder, NULL, &archive, err)) return 0;
    *n = (int)heft_archive_count(archive);
    for (int i = 0; i < *n; i++) {
        heft_view view;
        assert_int_equal(heft_view_of(archive, (uint64_t)i, &view, NULL), HEFT_OK);
        assert_int_equal(heft_read(&view, bytes, SIZE, NULL, NULL, NULL), HEFT_OK);
        if (i == 0) mark = bytes[0];
        for (int j = 0; j < SIZE; j++) assert_int_equal(bytes[j], mark);
    }
    check_sidecars(archive, mark);
    heft_archive_unref(archive);
    return mark;
}

/* Entries of a folder; *temps of them are temporary. */
static int entries(const char *path, int *temps) {
    DIR *d = opendir(path);
    int n = 0;
    *temps = 0;
    for (struct dirent *e; (e = readdir(d));) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) continue;
        n++;
        *temps += heft__target_temp_is(e->d_name);
    }
    closedir(d);
    return n;
}

static void empty(const char *path) {
    char command[1000];
    snprintf(command, sizeof command, "rm -rf '%s'/* '%s'/.heft-*", path, path);
    assert_int_equal(system(command), 0);
}

/* After a change from `old` files of mark 1 to `new` files of mark 2 that ended somewhere: old whole, new whole, or refused until
 * it is resumed. */
static void check_outcome(const char *folder, int old, int new, bool clean, int outcomes[3]) {
    heft_error err;
    int n, temps;
    uint8_t mark = mark_of(folder, &n, &err);
    if (mark == 0 && old) {
        assert_int_equal(err.status, HEFT_MISMATCH);
        assert_int_equal(err.fault, HEFT_FAULT_SAVE_INTERRUPTED);
        bool resumed;
        uint64_t removed;
        assert_int_equal(heft_save_clean(folder, true, NULL, &removed, NULL), HEFT_OK); /* what the marker lists stays */
        if (heft_set_resume(folder, NULL, &resumed, &err)) fail_msg("%s", err.message);
        assert_true(resumed);
        assert_int_equal(mark_of(folder, &n, &err), 2);
        outcomes[2]++;
        clean = true;
    } else outcomes[mark == 2]++;
    if (mark == 1) assert_int_equal(n, old);
    else if (mark) assert_int_equal(n, new);
    if (clean) { /* nothing but files of the set */
        int files = mark == 1 ? old : mark == 0 && !old ? 0 : new;
        assert_int_equal(entries(folder, &temps), files_of(files, mark));
        assert_int_equal(temps, 0);
    }
}

/* Files before and after; sidecars before (1) and after (2). */
static const int changes[][3] = {{0, 3, 0}, {3, 2, 0}, {2, 4, 0}, {3, 1, 0}, {1, 3, 0}, {1, 1, 0},
                                 {0, 2, 2}, {3, 2, 3}, {2, 2, 1}, {1, 1, 1}, {1, 1, 2}, {1, 1, 3}};

/* False: this build makes no digests. */
static bool set_beside(int which) {
    old_beside = which & 1, new_beside = which & 2;
    return !which || (heft_features() & HEFT_FEATURE_XXHASH);
}

static void failing_at_every_call(void **state) {
    (void)state;
    char *folder = strdup(test_mkdir("failing"));
    int outcomes[3] = {0};
    for (size_t c = 0; c < sizeof changes / sizeof *changes; c++) {
        int old = changes[c][0], new = changes[c][1];
        if (!set_beside(changes[c][2])) continue;
        for (uint64_t k = 1;; k++) {
            heft_error err;
            empty(folder);
            save_old(folder, old);
            int fds = test_count_fds();
            trap_begin(&(trap_plan){.fail_call = k, .fail_errno = EIO});
            heft_status status = save_marked(folder, new, 2, false, &err);
            uint64_t calls = trap_calls();
            trap_end();
            assert_int_equal(test_count_fds(), fds);
            check_outcome(folder, old, new, status != HEFT_OK, outcomes);
            if (status == HEFT_OK && calls < k) break;
        }
    }
    assert_true(outcomes[0] > 20 && outcomes[1] > 10 && outcomes[2] > 10);
    free(folder);
}

static void killed_at_every_call(void **state) {
    (void)state;
    char *folder = strdup(test_mkdir("killed"));
    int outcomes[3] = {0};
    for (size_t c = 0; c < sizeof changes / sizeof *changes; c++) {
        int old = changes[c][0], new = changes[c][1], status;
        if (!set_beside(changes[c][2])) continue;
        for (uint64_t k = 1;; k++) {
            empty(folder);
            save_old(folder, old);
            pid_t child = fork();
            assert_true(child >= 0);
            if (child == 0) {
                trap_begin(&(trap_plan){.fail_call = k, .die = true});
                _exit(save_marked(folder, new, 2, false, NULL) != HEFT_OK);
            }
            assert_int_equal(waitpid(child, &status, 0), child);
            if (k % 3 == 0 && WIFSIGNALED(status)) { /* the next save there ends what was begun, and cleans up */
                int n, temps;
                heft_error err;
                if (old == 0) empty(folder);
                trap_begin(&(trap_plan){0});
                if (save_marked(folder, 2, 3, false, &err)) fail_msg("%s", err.message);
                trap_end();
                assert_int_equal(mark_of(folder, &n, &err), 3);
                assert_int_equal(entries(folder, &temps), files_of(2, 3));
                continue;
            }
            check_outcome(folder, old, new, false, outcomes);
            if (WIFEXITED(status)) break;
        }
        assert_int_equal(WEXITSTATUS(status), 0);
    }
    assert_true(outcomes[0] > 20 && outcomes[2] > 10);
    free(folder);
}

static void published_folders_are_whole(void **state) {
    (void)state;
    char *top = strdup(test_mkdir("publish")), *folder = strdup(test_path("publish/step"));
    for (uint64_t k = 1;; k++) {
        int n, temps, status;
        heft_error err;
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            trap_begin(&(trap_plan){.fail_call = k, .die = true});
            _exit(save_marked(folder, 3, 2, true, NULL) != HEFT_OK);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        uint8_t mark = mark_of(folder, &n, &err);
        assert_true(mark == 2 || err.fault == HEFT_FAULT_NO_FILE);
        uint64_t removed;
        assert_int_equal(heft_save_clean(top, false, NULL, &removed, NULL), HEFT_OK);
        assert_int_equal(entries(top, &temps), mark == 2);
        empty(top);
        trap_begin(&(trap_plan){.fail_call = k, .fail_errno = ENOSPC});
        (void)save_marked(folder, 3, 2, true, &err);
        trap_end();
        assert_true(entries(top, &temps) <= 1);
        assert_int_equal(temps, 0);
        empty(top);
        if (WIFEXITED(status)) break;
    }
    free(top);
    free(folder);
}

static void markers_of_others(void **state) {
    (void)state;
    static const char *const bad[] = {
        "", "{", "[]", "{}", "{\"renames\":[]}", "{\"renames\":[[\"a\",\"b\",1]]}", "\xff", "{\"x\":1}",
        "{\"renames\":[[\".heft-x-12345678-1-12345678.tmp\",\"../b\",1]]}",
        "{\"renames\":[[\".heft-x-12345678-1-12345678.tmp\",\"b\",-1]]}",
        "{\"renames\":[[\".heft-x-12345678-1-12345678.tmp\",\".heft-save-in-progress\",1]]}",
        "{\"renames\":[[\".heft-x-12345678-1-12345678.tmp\",\"b\",1]],\"deletes\":[\"a/b\"]}",
        "{\"renames\":[[\".heft-x-12345678-1-12345678.tmp\",\"b\",1]],\"deletes\":[\"a\\u0000b\"]}",
        "{\"renames\":[[\".heft-x-12345678-1-12345678.tmp\",\"b\",1]],\"old_index\":1}",
        "{\"renames\":[[\".heft-x-12345678-1-12345678.tmp\",\"b\",1]],\"old_index\":true}",
        "{\"renames\":[[\".heft-x-12345678-1-12345678.tmp\",\"b\",1]],\"deletes\":[\"precious\"]}" /* not there any more */};
    test_write("markers/precious", "x", 1);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        heft_error err;
        bool resumed;
        test_write("markers/.heft-save-in-progress", bad[i], strlen(bad[i]));
        assert_int_equal(heft_set_resume(test_path("markers"), NULL, &resumed, &err), HEFT_CORRUPT);
        assert_int_equal(err.fault, HEFT_FAULT_SAVE_INTERRUPTED);
        assert_false(resumed);
        assert_int_equal(save_marked(test_path("markers"), 2, 1, false, &err), HEFT_CORRUPT);
        assert_int_equal(access(test_path("markers/precious"), F_OK), 0);
    }
    char text[300];
    snprintf(text, sizeof text, "{\"writer\":\"x\",\"renames\":[[\"%s\",\"b\",1]],\"deletes\":[\"precious\"]}",
             ".heft-x-12345678-1-12345678.tmp");
    test_write("markers/.heft-save-in-progress", text, strlen(text));
    test_write("markers/.heft-x-12345678-1-12345678.tmp", "y", 1);
    assert_int_equal(heft_set_resume(test_path("markers"), NULL, NULL, NULL), HEFT_OK);
    assert_int_equal(access(test_path("markers/precious"), F_OK), -1);
    assert_int_equal(access(test_path("markers/b"), F_OK), 0);
    bool resumed = true;
    assert_int_equal(heft_set_resume(test_path("markers"), NULL, &resumed, NULL), HEFT_OK);
    assert_false(resumed);
}

static void a_living_writer_is_left_alone(void **state) {
    (void)state;
    test_mkdir("living");
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        pause();
        _exit(0);
    }
    char name[HEFT__TARGET_NAME_MAX + 1], text[600];
    heft__target_temp_name(name, "marker");
    char *pid = strstr(name, "marker-") + 7 + 9; /* behind the place */
    snprintf(text, sizeof text, "{\"writer\":\"%.*s%ld-12345678.tmp\",\"renames\":[[\".heft-x-12345678-1-12345678.tmp\",\"b\",1]]}",
             (int)(pid - name), name, (long)child);
    test_write("living/.heft-save-in-progress", text, strlen(text));
    test_write("living/.heft-x-12345678-1-12345678.tmp", "y", 1);
    heft_error err;
    assert_int_equal(heft_set_resume(test_path("living"), NULL, NULL, &err), HEFT_EXISTS);
    assert_int_equal(save_marked(test_path("living"), 2, 1, false, &err), HEFT_EXISTS);
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_int_equal(heft_set_resume(test_path("living"), NULL, NULL, &err), HEFT_OK);
}

static void only_litter_is_removed(void **state) {
    (void)state;
    test_write("litter/.heft-x-12345678-1-12345678.tmp", "y", 1); /* another machine's */
    test_write("litter/.heft-y-12345678-1-12345678.tmp/inside", "y", 1);
    test_write("litter/.heft-z.tmp", "y", 1); /* no name of heft */
    test_write("litter/model.safetensors.tmp", "y", 1);
    uint64_t removed;
    int temps;
    assert_int_equal(heft_save_clean(test_path("litter"), false, NULL, &removed, NULL), HEFT_OK);
    assert_int_equal(removed, 0);
    assert_int_equal(heft_save_clean(test_path("litter"), true, NULL, &removed, NULL), HEFT_OK);
    assert_int_equal(removed, 2);
    assert_int_equal(entries(test_path("litter"), &temps), 2);
    assert_int_equal(heft_save_clean(test_path("nowhere"), true, NULL, &removed, NULL), HEFT_NOT_FOUND);
}

/* A temporary file as a process that was killed has left it. False: nobody can tell here that it is. */
static bool leave_litter(const char *folder) {
    int ends[2];
    char name[HEFT__TARGET_NAME_MAX + 1], path[700];
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        heft__target_temp_name(name, "killed");
        _exit(write(ends[1], name, sizeof name) == sizeof name ? 0 : 1);
    }
    int ended;
    assert_int_equal(waitpid(child, &ended, 0), child);
    assert_int_equal(read(ends[0], name, sizeof name), sizeof name);
    close(ends[0]), close(ends[1]);
    snprintf(path, sizeof path, "%s/%s", folder, name);
    test_write(path + strlen(test_dir()) + 1, "y", 1);
    return heft__target_temp_dead(name);
}

/* Saves of every kind remove what killed ones have left in their folder, which else would fill the disk, and nothing else. */
static void litter_goes_with_the_next_save(void **state) {
    (void)state;
    char *folder = strdup(test_mkdir("next"));
    uint8_t bytes[SIZE] = {1};
    heft_save_item item = {.name = "a", .data = bytes, .shape = one_dim, .rank = 1, .dtype = HEFT_U8};
    heft_save_options options = overwriting();
    heft_set_options set = {.struct_size = sizeof set}, publish = {.struct_size = sizeof publish, .publish = true};
    char name[HEFT__TARGET_NAME_MAX + 1], own[700];
    heft__target_temp_name(name, "own");
    snprintf(own, sizeof own, "next/%s", name);
    test_write(own, "y", 1);                                    /* a save of this process that goes on */
    test_write("next/.heft-x-12345678-1-12345678.tmp", "y", 1); /* another machine's */
    assert_int_equal(symlink("next", test_path("link")), 0);
    for (int kind = 0; kind < 6; kind++) {
        int temps;
        if (!leave_litter(folder)) break;
        entries(folder, &temps);
        assert_int_equal(temps, 3);
        if (kind == 0) assert_int_equal(heft_save(test_path("next/a"), &item, 1, &options, NULL, NULL), HEFT_OK);
        if (kind == 1) assert_int_equal(heft_save_set(folder, &item, 1, &options, &set, NULL, NULL), HEFT_OK);
        if (kind == 2) assert_int_equal(heft_save_set(test_path("next/p"), &item, 1, &options, &publish, NULL, NULL), HEFT_OK);
        if (kind == 3) assert_int_equal(heft_save(test_path("link/a"), &item, 1, &options, NULL, NULL), HEFT_OK);
        if (kind >= 4) {
            heft_writer *writer;
            bool declared = kind == 5;
            assert_int_equal(heft_writer_open(test_path("next/w"), declared ? HEFT_WRITER_DECLARED : HEFT_WRITER_STREAM,
                                              declared ? &item : NULL, declared, &options, NULL, &writer, NULL), HEFT_OK);
            heft_writer_free(writer);
        }
        entries(folder, &temps);
        if (temps != 2) fail_msg("save %d leaves %d temporary files", kind, temps);
    }
    free(folder);
}

static void every_allocation_can_fail(void **state) {
    (void)state;
    char *folder = strdup(test_mkdir("memory"));
    for (uint64_t k = 1;; k++) {
        test_allocator t;
        int n, temps;
        heft_error err;
        uint8_t bytes[SIZE];
        memset(bytes, 2, SIZE);
        heft_save_item items[] = {{.name = "a", .data = bytes, .shape = one_dim, .rank = 1, .dtype = HEFT_U8},
                                  {.name = "b", .data = bytes, .shape = one_dim, .rank = 1, .dtype = HEFT_U8}};
        empty(folder);
        save_old(folder, 3);
        test_allocator_init(&t, k);
        heft_save_options options = overwriting();
        heft_set_options set = {.struct_size = sizeof set, .ceiling_nbytes = SIZE};
        options.allocator = &t.alloc;
        options.no_sync = true;
        heft_status status = heft_save_set(folder, items, 2, &options, &set, NULL, &err);
        assert_int_equal(t.live_blocks, 0);
        assert_int_equal(mark_of(folder, &n, &err), status == HEFT_OK ? 2 : 1);
        entries(folder, &temps);
        assert_int_equal(temps, 0);
        if (status == HEFT_OK && t.calls < k) break;
        assert_true(status == HEFT_OUT_OF_MEMORY || status == HEFT_OK); /* cleaning up may fail in silence */
    }
    free(folder);
}

/* ---- files of a set replaced ---- */

/* Gives files [first, n) of a set of `n` the mark 2; what is before them stays. Names of tensors are those of save_marked. */
static heft_status replace_marked(const char *folder, int n, int first, const heft_archive *old, const heft_allocator *alloc,
                                  heft_error *err) {
    static const char *const names[] = {"a", "b", "c", "d"};
    uint8_t bytes[SIZE];
    char files[4][40];
    heft_save_item items[4] = {{0}};
    heft_set_file set[4] = {{0}};
    heft_save_options options = {.struct_size = sizeof options, .no_sync = !lasting, .allocator = alloc};
    memset(bytes, 2, sizeof bytes);
    for (int i = 0; i < n; i++) {
        snprintf(files[i], sizeof files[i], n > 1 ? "model-%05d-of-%05d.safetensors" : "model.safetensors", i + 1, n);
        items[i] = (heft_save_item){.name = names[i], .data = bytes, .shape = one_dim, .rank = 1, .dtype = HEFT_U8};
        if (i < first) items[i] = (heft_save_item){.name = names[i], .archive = old, .id = (uint64_t)i};
        set[i] = (heft_set_file){.name = files[i], .items = &items[i], .nitems = 1, .keep = i < first};
    }
    return heft_set_replace(folder, set, (uint64_t)n, n > 1 ? "model.safetensors.index.json" : NULL, &options, NULL, NULL, err);
}

static void replacing_is_all_or_nothing(void **state) {
    (void)state;
    char *folder = strdup(test_mkdir("replacing"));
    int outcomes[3] = {0};
    for (int round = 0; round < 4; round++) {
        int n = round % 2 ? 3 : 1;
        if (!set_beside(round / 2)) continue;
        for (uint64_t k = 1;; k++) {
            int status;
            heft_error err;
            empty(folder);
            save_old(folder, n);
            trap_begin(&(trap_plan){.fail_call = k, .fail_errno = EIO});
            heft_status done = replace_marked(folder, n, 0, NULL, NULL, &err);
            trap_end();
            check_outcome(folder, n, n, done != HEFT_OK, outcomes);
            empty(folder);
            save_old(folder, n);
            pid_t child = fork();
            assert_true(child >= 0);
            if (child == 0) {
                trap_begin(&(trap_plan){.fail_call = k, .die = true});
                _exit(replace_marked(folder, n, 0, NULL, NULL, NULL) != HEFT_OK);
            }
            assert_int_equal(waitpid(child, &status, 0), child);
            check_outcome(folder, n, n, false, outcomes);
            if (WIFEXITED(status)) break;
        }
    }
    assert_true(outcomes[0] > 20 && outcomes[1] > 4 && outcomes[2] > 10);
    free(folder);
}

static void kept_files_are_in_the_index(void **state) {
    (void)state;
    char *folder = strdup(test_mkdir("kept"));
    heft_archive *old;
    heft_error err;
    for (uint64_t k = 1;; k++) {
        test_allocator t;
        empty(folder);
        save_old(folder, 3);
        assert_int_equal(unlink(test_path("kept/model.safetensors.index.json")), 0);
        assert_int_equal(heft_archive_open(folder, NULL, &old, NULL), HEFT_OK);
        test_allocator_init(&t, k);
        lasting = false;
        heft_status status = replace_marked(folder, 3, 2, old, &t.alloc, &err);
        lasting = true;
        heft_archive_unref(old);
        assert_int_equal(t.live_blocks, 0);
        int temps;
        entries(folder, &temps);
        assert_int_equal(temps, 0);
        assert_int_equal(heft_archive_open(folder, NULL, &old, &err), HEFT_OK);
        uint8_t bytes[SIZE];
        for (uint64_t i = 0; i < 3; i++) {
            heft_view view;
            assert_int_equal(heft_view_of(old, i, &view, NULL), HEFT_OK);
            assert_int_equal(heft_read(&view, bytes, SIZE, NULL, NULL, NULL), HEFT_OK);
            assert_int_equal(bytes[0], status == HEFT_OK && i == 2 ? 2 : 1);
        }
        assert_int_equal(heft_archive_index_path(old) != NULL, status == HEFT_OK);
        heft_archive_unref(old);
        if (status == HEFT_OK && t.calls < k) break;
        assert_true(status == HEFT_OUT_OF_MEMORY || status == HEFT_OK);
    }
    free(folder);
}

static void replacing_refuses_bad_names(void **state) {
    (void)state;
    char *folder = strdup(test_mkdir("names"));
    uint8_t byte[SIZE] = {0};
    heft_error err;
    heft_save_item item = {.name = "a", .data = byte, .shape = one_dim, .rank = 1, .dtype = HEFT_U8};
    static const char *const bad[][2] = {{"../a", "b"}, {"a", "a"}, {".a", "b"}, {"", "b"}, {NULL, "b"}, {"a", "b"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) { /* of the last the tensor names are the same */
        heft_set_file files[2] = {{.name = bad[i][0], .items = &item, .nitems = 1},
                                  {.name = bad[i][1], .items = &item, .nitems = 1}};
        assert_int_equal(heft_set_replace(folder, files, 2, NULL, NULL, NULL, NULL, &err), HEFT_INVALID_ARGUMENT);
    }
    heft_set_file one = {.name = "a", .items = &item, .nitems = 1};
    assert_int_equal(heft_set_replace(folder, &one, 1, "../i", NULL, NULL, NULL, &err), HEFT_INVALID_ARGUMENT);
    int temps;
    assert_int_equal(entries(folder, &temps), 0);
    free(folder);
}

static int teardown(void **state) {
    set_beside(0);
    (void)state;
    trap_end();
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(failing_at_every_call, teardown),
        cmocka_unit_test_teardown(killed_at_every_call, teardown),
        cmocka_unit_test_teardown(published_folders_are_whole, teardown),
        cmocka_unit_test(markers_of_others),
        cmocka_unit_test(a_living_writer_is_left_alone),
        cmocka_unit_test(only_litter_is_removed),
        cmocka_unit_test(litter_goes_with_the_next_save),
        cmocka_unit_test(every_allocation_can_fail),
        cmocka_unit_test_teardown(replacing_is_all_or_nothing, teardown),
        cmocka_unit_test(kept_files_are_in_the_index),
        cmocka_unit_test(replacing_refuses_bad_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
