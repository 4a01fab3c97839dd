/* label: full */
/* A power cut at every point of a save: what has been written and not synced is lost or not, names that have been changed and not
 * synced are old or new, and what is found then is the old set, the new one, or one that is refused until it is resumed. Of an edit
 * in place any sectors of the header may be on the disk: what opens is the file with the old header or with the new one. */
#include "helper_edit.h"
#include "helper_target.h"

#include <dirent.h>
#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SIZE = 64, FILES = 64, NAMES = 64, PENDING = 64, BYTES = 4096, SECTOR = 512, SECTORS = 4 };
static const int64_t one_dim[] = {SIZE};

/* ---- the disk ---- */

typedef struct disk_file {
    uint8_t bytes[BYTES], durable[BYTES];
    size_t size, durable_size;
} disk_file;

typedef struct disk_name {
    char name[256];
    int file; /* -1: no such name any more */
} disk_name;

typedef struct disk_change {
    char from[256], to[256]; /* `from` empty: a new name `to`; `to` empty: `from` is removed */
    int file;
} disk_change;

typedef struct disk {
    disk_file files[FILES];
    int nfiles;
    disk_name names[NAMES]; /* durable */
    int nnames;
    disk_change pending[PENDING];
    int npending;
} disk;

static disk now;
static int file_of_fd[1024];
static bool recording;

static int find_name(const disk *d, const char *name) {
    for (int i = 0; i < d->nnames; i++)
        if (d->names[i].file >= 0 && strcmp(d->names[i].name, name) == 0) return i;
    return -1;
}

static void set_name(disk *d, const char *name, int file) {
    int i = find_name(d, name);
    if (i < 0) i = d->nnames++;
    assert_true(d->nnames < NAMES);
    snprintf(d->names[i].name, sizeof d->names[i].name, "%s", name);
    d->names[i].file = file;
}

static void apply(disk *d, const disk_change *change) {
    if (change->from[0]) {
        int i = find_name(d, change->from);
        if (i < 0) return;
        int file = d->names[i].file;
        d->names[i].file = -1;
        if (change->to[0]) set_name(d, change->to, file);
    } else set_name(d, change->to, change->file);
}

/* The file that a name leads to for the running program. */
static int seen(const char *name) {
    static disk view;
    view = now;
    for (int i = 0; i < now.npending; i++) apply(&view, &now.pending[i]);
    int i = find_name(&view, name);
    return i < 0 ? -1 : view.names[i].file;
}

static void pend(const char *from, const char *to, int file) {
    assert_true(now.npending < PENDING);
    disk_change *change = &now.pending[now.npending++];
    snprintf(change->from, sizeof change->from, "%s", from);
    snprintf(change->to, sizeof change->to, "%s", to);
    change->file = file;
}

static void note(const trap_event *e) {
    disk_file *file = e->fd >= 0 && file_of_fd[e->fd] >= 0 ? &now.files[file_of_fd[e->fd]] : NULL;
    if (strcmp(e->name, "opened") == 0) {
        file_of_fd[e->fd] = -1;
        int number = seen(e->from);
        if (number < 0 && strncmp(e->from, ".heft-", 6) != 0) return; /* a folder */
        if (number < 0) {
            number = now.nfiles++;
            assert_true(number < FILES);
            pend("", e->from, number);
        }
        file_of_fd[e->fd] = number;
    } else if (strcmp(e->name, "reserve") == 0 || strcmp(e->name, "resize") == 0) {
        assert_true(e->offset + e->nbytes <= BYTES);
        file->size = e->offset + e->nbytes;
    } else if (strcmp(e->name, "pwrite") == 0) {
        assert_true(e->offset + e->nbytes <= BYTES);
        memcpy(file->bytes + e->offset, e->data, e->nbytes);
        if (e->offset + e->nbytes > file->size) file->size = e->offset + e->nbytes;
    } else if (strcmp(e->name, "fsync") == 0 && file) {
        memcpy(file->durable, file->bytes, BYTES);
        file->durable_size = file->size;
    } else if (strcmp(e->name, "fsync") == 0) {
        for (int i = 0; i < now.npending; i++) apply(&now, &now.pending[i]);
        now.npending = 0;
    } else if (strcmp(e->name, "rename") == 0) pend(e->from, e->to, 0);
    else if (strcmp(e->name, "unlink") == 0) pend(e->from, "", 0);
    else if (strcmp(e->name, "close") == 0) file_of_fd[e->fd] = -1;
}

/* ---- after the cut ---- */

static int old_files, new_files, outcomes[3];
static const char *target; /* of a save of one file; NULL: a set */

static void empty(const char *path) {
    DIR *d = opendir(path);
    for (struct dirent *e; (e = readdir(d));)
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0) unlinkat(dirfd(d), e->d_name, 0);
    closedir(d);
}

static bool edited; /* in place, rather than saved */

/* An edit opens as old or new; if it is not over, one of the ends gives what it promises, the other time the other. */
static void check_edited(const char *path) {
    static bool undo;
    heft_archive *archive;
    heft_error err;
    heft_pair pair;
    bool done;
    if (heft_archive_open(path, NULL, &archive, &err)) fail_msg("neither old nor new: %s", err.message);
    assert_int_equal(heft_archive_metadata_find(archive, 0, "mark", 4, &pair, &err), HEFT_OK);
    for (size_t i = 0; i < pair.value_len; i++) assert_int_equal(pair.value[i], pair.value[0]);
    assert_int_equal(heft_archive_find(archive, pair.value[0] == '1' ? "b1" : "b2", 2, &(uint64_t){0}, &err), HEFT_OK);
    outcomes[pair.value[0] == '2']++;
    char before = pair.value[0];
    heft_archive_unref(archive);
    undo = !undo;
    heft_status status = (undo ? heft_edit_undo : heft_edit_resume)(path, &done, &err);
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

static void check_found(const char *folder) {
    heft_archive *archive = NULL;
    heft_error err = {0};
    char path[600];
    snprintf(path, sizeof path, "%s%s%s", folder, target ? "/" : "", target ? target : "");
    if (edited) {
        check_edited(path);
        return;
    }
    if (heft_archive_open(path, NULL, &archive, &err)) {
        if (old_files == 0) {
            outcomes[0]++;
            return;
        }
        if (err.fault != HEFT_FAULT_SAVE_INTERRUPTED) fail_msg("neither old nor new: %s", err.message);
        if (heft_set_resume(folder, NULL, &err)) fail_msg("%s", err.message);
        assert_int_equal(heft_archive_open(path, NULL, &archive, &err), HEFT_OK);
        outcomes[2]++;
    }
    uint8_t bytes[SIZE], mark = 0;
    int n = (int)heft_archive_count(archive);
    for (int i = 0; i < n; i++) {
        heft_view view;
        assert_int_equal(heft_view_of(archive, (uint64_t)i, &view, NULL), HEFT_OK);
        assert_int_equal(heft_read(&view, bytes, SIZE, NULL, NULL, NULL), HEFT_OK);
        if (i == 0) mark = bytes[0];
        for (int j = 0; j < SIZE; j++) assert_int_equal(bytes[j], mark);
    }
    heft_archive_unref(archive);
    assert_true(mark == 1 || mark == 2);
    assert_int_equal(n, mark == 1 ? old_files : new_files);
    outcomes[mark == 2]++;
}

/* One way in which the disk may look: the first `applied` pending changes of names are there; bytes that were not synced are
 * there in the sectors of `lucky`, and not in others. */
static void cut(int applied, unsigned lucky) {
    static disk after;
    char folder[400];
    snprintf(folder, sizeof folder, "%s", test_path("cut"));
    after = now;
    for (int i = 0; i < applied; i++) apply(&after, &now.pending[i]);
    empty(folder);
    for (int i = 0; i < after.nnames; i++) {
        if (after.names[i].file < 0) continue;
        const disk_file *file = &after.files[after.names[i].file];
        char name[300];
        uint8_t bytes[BYTES];
        for (unsigned at = 0; at < BYTES; at += SECTOR)
            memcpy(bytes + at, (lucky >> at / SECTOR & 1 ? file->bytes : file->durable) + at, SECTOR);
        snprintf(name, sizeof name, "cut/%s", after.names[i].name);
        test_write(name, bytes, lucky ? file->size : file->durable_size);
    }
    check_found(folder);
}

static void on_event(const trap_event *event) {
    if (!recording) return;
    recording = false; /* what is looked at makes calls too */
    trap_end();
    note(event);
    for (int applied = 0; applied <= now.npending; applied++) {
        for (unsigned lucky = 0; edited && lucky < 1u << SECTORS; lucky++) cut(applied, lucky); /* of its header */
        if (!edited) cut(applied, 0);
        cut(applied, ~0u);
    }
    trap_begin(&(trap_plan){0});
    recording = true;
}

/* ---- saves ---- */

static void save_marked(const char *folder, int n, uint8_t mark) {
    static const char *const names[] = {"a", "b", "c", "d"};
    uint8_t bytes[SIZE];
    heft_error err;
    heft_save_item items[4] = {{0}};
    heft_set_options set = {.struct_size = sizeof set, .ceiling_nbytes = SIZE};
    heft_save_options over = {.struct_size = sizeof over, .overwrite = true};
    memset(bytes, mark, sizeof bytes);
    for (int i = 0; i < n; i++)
        items[i] = (heft_save_item){.name = names[i], .data = bytes, .shape = one_dim, .rank = 1, .dtype = HEFT_U8};
    char path[600];
    snprintf(path, sizeof path, "%s/%s", folder, target ? target : "");
    heft_status status = target ? heft_save(path, items, (uint64_t)n, &over, NULL, &err)
                                : heft_save_set(folder, items, (uint64_t)n, &over, &set, NULL, &err);
    if (status != HEFT_OK) fail_msg("%s", err.message);
}

static void load_disk(const char *folder) {
    memset(&now, 0, sizeof now);
    memset(file_of_fd, -1, sizeof file_of_fd);
    DIR *d = opendir(folder);
    for (struct dirent *e; (e = readdir(d));) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) continue;
        char path[700];
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        size_t n;
        uint8_t *bytes = test_slurp(path, &n);
        disk_file *file = &now.files[now.nfiles];
        assert_true(n <= BYTES);
        memcpy(file->bytes, bytes, n);
        memcpy(file->durable, bytes, n);
        file->size = file->durable_size = n;
        set_name(&now, e->d_name, now.nfiles++);
        free(bytes);
    }
    closedir(d);
}

static void begin_replay(const char *folder) {
    load_disk(folder);
    trap_log = on_event;
    trap_begin(&(trap_plan){0});
    recording = true;
}

static void end_replay(void) {
    recording = false;
    trap_end();
    trap_log = NULL;
}

static void replay(int old, int new) {
    char *folder = strdup(test_mkdir("disk"));
    test_mkdir("cut");
    empty(folder);
    old_files = old;
    new_files = new;
    if (old) save_marked(folder, old, 1);
    begin_replay(folder);
    save_marked(folder, new, 2);
    end_replay();
    free(folder);
}

static void one_file(void **state) {
    (void)state;
    target = "x.safetensors";
    memset(outcomes, 0, sizeof outcomes);
    replay(0, 3);
    replay(2, 3);
    assert_true(outcomes[0] > 20 && outcomes[1] > 2 && outcomes[2] == 0);
}

static void sets(void **state) {
    (void)state;
    static const int changes[][2] = {{0, 3}, {0, 1}, {3, 2}, {2, 4}, {3, 1}, {1, 3}, {1, 1}};
    target = NULL;
    memset(outcomes, 0, sizeof outcomes);
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) replay(changes[i][0], changes[i][1]);
    assert_true(outcomes[0] > 100 && outcomes[1] > 20 && outcomes[2] > 50);
}

/* Forwards, and the end of one that was interrupted. */
static void edits_in_place(void **state) {
    (void)state;
    char *folder = strdup(test_mkdir("disk")), *path = strdup(test_path("disk/x.safetensors"));
    target = "x.safetensors";
    edited = true;
    for (int round = 0; round < 3; round++) {
        heft_error err;
        size_t n;
        bool done;
        memset(outcomes, 0, sizeof outcomes);
        empty(folder);
        edit_make("disk/x.safetensors");
        uint8_t *journal = edit_journal(path, &n);
        if (round) test_write("disk/.heft-x.safetensors.journal", journal, n);
        free(journal);
        begin_replay(folder);
        heft_status status = round == 0   ? edit_run(path, NULL, &err)
                             : round == 1 ? heft_edit_resume(path, &done, &err)
                                          : heft_edit_undo(path, &done, &err);
        end_replay();
        if (status) fail_msg("%s", err.message);
        assert_true(outcomes[0] > 20 && (round == 2 || outcomes[1] > 20));
        assert_true(round == 2 || outcomes[2] > 20);
    }
    edited = false;
    free(folder);
    free(path);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(one_file), cmocka_unit_test(sets), cmocka_unit_test(edits_in_place)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
