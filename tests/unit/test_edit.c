/* Edits in place: what they change, what they refuse, every system call that fails or is the last, and what ends them. */
#include "helper_edit.h"
#include "helper_target.h"

#include "ops/edit_header.h"

#include <errno.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static bool has_journal(const char *path) {
    return access(edit_journal_path(path), F_OK) == 0;
}

/* The file is byte for byte the one of a mark, and there is no journal. */
static void assert_whole(const char *path, char mark) {
    size_t n;
    uint8_t *bytes = test_slurp(path, &n);
    assert_int_equal(n, EDIT_FILE);
    assert_memory_equal(bytes, edit_bytes(mark), EDIT_FILE);
    assert_false(has_journal(path));
    free(bytes);
}

static void names_and_metadata(void **state) {
    (void)state;
    char *path = strdup(edit_make("edit/x.safetensors"));
    heft_archive *archive;
    heft_edit_stats stats;
    heft_error err;
    struct stat before, after;
    assert_int_equal(chmod(path, 0640), 0);
    assert_int_equal(stat(path, &before), 0);
    int fds = test_count_fds();
    if (edit_run(path, NULL, &err)) fail_msg("%s", err.message);
    assert_int_equal(test_count_fds(), fds);
    assert_whole(path, '2');
    assert_int_equal(stat(path, &after), 0);
    assert_int_equal(before.st_ino, after.st_ino);
    assert_int_equal(after.st_mode & 0777, 0640);
    assert_int_equal(heft_archive_open(path, NULL, &archive, &err), HEFT_OK);
    /* Nothing to do; what it would take; no metadata at all. */
    assert_int_equal(heft_edit_in_place(archive, NULL, 0, NULL, &stats, &err), HEFT_OK);
    assert_int_equal(stats.header_nbytes, EDIT_HEADER);
    assert_int_equal(stats.changed_nbytes, 0);
    heft_pair none = {0};
    heft_edit_options options = {.struct_size = sizeof options, .metadata = &none, .dry_run = true};
    assert_int_equal(heft_edit_in_place(archive, NULL, 0, &options, &stats, &err), HEFT_OK);
    assert_true(stats.changed_nbytes > 1000 && stats.needed_nbytes < 200);
    assert_whole(path, '2');
    options.dry_run = false;
    assert_int_equal(heft_edit_in_place(archive, NULL, 0, &options, &stats, &err), HEFT_OK);
    heft_archive_unref(archive);
    assert_int_equal(heft_archive_open(path, NULL, &archive, &err), HEFT_OK);
    assert_int_equal(heft_archive_metadata_count(archive, 0), 0);
    /* An archive that is older than the file. */
    heft_pair pair = {.key = "k", .key_len = SIZE_MAX, .value = "v", .value_len = SIZE_MAX};
    options.metadata = &pair;
    options.nmetadata = 1;
    assert_int_equal(heft_edit_in_place(archive, NULL, 0, &options, NULL, &err), HEFT_OK);
    pair.value = "w";
    assert_int_equal(heft_edit_in_place(archive, NULL, 0, &options, NULL, &err), HEFT_MISMATCH);
    assert_int_equal(err.fault, HEFT_FAULT_FILE_CHANGED);
    heft_archive_unref(archive);
    free(path);
}

static heft_status try_edit(const char *path, const heft_new_name *names, uint64_t nnames, const heft_edit_options *options,
                            heft_error *err) {
    heft_archive *archive;
    assert_int_equal(heft_archive_open(path, NULL, &archive, NULL), HEFT_OK);
    heft_status status = heft_edit_in_place(archive, names, nnames, options, NULL, err);
    heft_archive_unref(archive);
    return status;
}

static void refusals(void **state) {
    (void)state;
    heft_error err;
    char *path = strdup(edit_make("refused/x.safetensors")), longer[2000];
    memset(longer, 'x', sizeof longer);
    heft_new_name name = {.name = longer, .name_len = sizeof longer};
    heft_edit_stats stats;
    heft_archive *archive;
    assert_int_equal(heft_archive_open(path, NULL, &archive, NULL), HEFT_OK);
    assert_int_equal(heft_edit_in_place(archive, &name, 1, NULL, &stats, &err), HEFT_LIMIT);
    assert_int_equal(err.fault, HEFT_FAULT_HEADER_LIMIT);
    assert_int_equal(err.expected, EDIT_HEADER);
    assert_int_equal(err.found, stats.needed_nbytes);
    assert_true(stats.needed_nbytes > EDIT_HEADER + 200);
    heft_archive_unref(archive);
    const heft_new_name bad[] = {{.name = "b1"}, {.id = 7, .name = "c"}, {.name = NULL}, {.name = "__metadata__"},
                                 {.name = "__heft_pad__.1"}, {.name = "\xff"}, {.name = "c", .reserved = {1, 0}}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(try_edit(path, &bad[i], 1, NULL, &err), HEFT_INVALID_ARGUMENT);
    heft_pair one = {.key = "k", .key_len = 1, .value = "", .value_len = 0}, twice[] = {one, one};
    heft_edit_options options = {.struct_size = sizeof options, .metadata = twice, .nmetadata = 2};
    assert_int_equal(try_edit(path, NULL, 0, &options, &err), HEFT_INVALID_ARGUMENT);
    options.metadata = NULL;
    assert_int_equal(try_edit(path, NULL, 0, &options, &err), HEFT_INVALID_ARGUMENT);
    assert_int_equal(heft_edit_in_place(NULL, NULL, 0, NULL, NULL, &err), HEFT_INVALID_ARGUMENT);
    assert_int_equal(heft_edit_resume(NULL, NULL, NULL, &err), HEFT_INVALID_ARGUMENT);
    assert_int_equal(heft_edit_undo(test_path("refused/nothing"), NULL, NULL, &err), HEFT_NOT_FOUND);
    assert_int_equal(heft_edit_undo(test_path("refused"), NULL, NULL, &err), HEFT_INVALID_ARGUMENT);
    /* Several names, and none. */
    assert_int_equal(link(path, test_path("refused/y.safetensors")), 0);
    assert_int_equal(edit_run(path, NULL, &err), HEFT_UNSUPPORTED);
    assert_int_equal(unlink(test_path("refused/y.safetensors")), 0);
    size_t n;
    uint8_t *bytes = test_slurp(path, &n);
    heft_source *source;
    assert_int_equal(heft_source_open_memory(bytes, n, path, NULL, NULL, &source, NULL), HEFT_OK);
    assert_int_equal(heft_archive_open_source(source, NULL, &archive, NULL), HEFT_OK);
    assert_int_equal(heft_edit_in_place(archive, NULL, 0, NULL, NULL, &err), HEFT_UNSUPPORTED);
    heft_archive_unref(archive);
    heft_source_unref(source);
    free(bytes);
    if (geteuid() != 0) {
        assert_int_equal(chmod(path, 0444), 0);
        assert_int_equal(edit_run(path, NULL, &err), HEFT_PERMISSION);
        assert_int_equal(chmod(path, 0644), 0);
    }
    assert_whole(path, '1');
    free(path);
}

static void links_lead_to_the_file(void **state) {
    (void)state;
    heft_error err;
    char *real = strdup(edit_make("real/x.safetensors")), *blob = strdup(edit_make("models--a--b/blobs/0123"));
    test_mkdir("links");
    char *path = strdup(test_path("links/x.safetensors")), *cached = strdup(test_path("links/cached.safetensors"));
    assert_int_equal(symlink("../real/x.safetensors", path), 0);
    assert_int_equal(symlink("../models--a--b/blobs/0123", cached), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        trap_begin(&(trap_plan){.fail_call = 2, .only = "pwrite", .die = true}); /* the journal is the first */
        _exit(edit_run(path, NULL, NULL) != HEFT_OK);
    }
    int ended;
    assert_int_equal(waitpid(child, &ended, 0), child);
    assert_true(WIFSIGNALED(ended));
    assert_true(has_journal(real));
    assert_int_equal(edit_mark(path, HEFT_FAULT_EDIT_INTERRUPTED, &err), '2');
    assert_int_equal(edit_run(path, NULL, &err), HEFT_MISMATCH);
    assert_int_equal(err.fault, HEFT_FAULT_EDIT_INTERRUPTED);
    bool done;
    if (heft_edit_resume(path, NULL, &done, &err)) fail_msg("%s", err.message);
    assert_true(done);
    assert_whole(real, '2');
    assert_int_equal(heft_edit_resume(path, NULL, &done, &err), HEFT_OK);
    assert_false(done);
    assert_int_equal(edit_run(cached, NULL, &err), HEFT_PERMISSION);
    assert_whole(blob, '1');
    free(real);
    free(blob);
    free(path);
    free(cached);
}

static void a_name_of_255_bytes(void **state) {
    (void)state;
    heft_error err;
    bool done;
    int status;
    char name[300] = "long/";
    memset(name + 5, 'n', 255);
    char *path = strdup(edit_make(name));
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        trap_begin(&(trap_plan){.fail_call = 2, .only = "pwrite", .die = true});
        _exit(edit_run(path, NULL, NULL) != HEFT_OK);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && has_journal(path));
    assert_int_equal(edit_mark(path, HEFT_FAULT_EDIT_INTERRUPTED, &err), '2');
    assert_int_equal(heft_edit_undo(path, NULL, &done, &err), HEFT_OK);
    assert_true(done);
    if (edit_run(path, NULL, &err)) fail_msg("%s", err.message);
    assert_whole(path, '2');
    free(path);
}

/* Digests in the metadata follow the names; what else the header holds stays. */
static void digests_get_the_new_names(void **state) {
    (void)state;
    static const char header[] =
        "{\"__metadata__\":{\"heft.data_xxh3\":\"00000000000000000000000000000002\","
        "\"heft.xxh3\":\"{\\\"a\\\":\\\"00000000000000000000000000000001\\\","
        "\\\"b\\\":\\\"00000000000000000000000000000009\\\"}\"},"
        "\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},"
        "\"__heft_pad__.00000000\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[2,4]},"
        "\"a\":{\"dtype\":\"F4\",\"shape\":[4],\"data_offsets\":[4,6]}}    ";
    size_t n;
    uint8_t *bytes = test_raw_safetensors(header, sizeof header - 1, "abcdef", 6, &n);
    char *path = strdup(test_write("digests/x.safetensors", bytes, n));
    heft_error err;
    heft_archive *archive;
    heft_new_name name = {.name = "0"};
    assert_int_equal(heft_archive_open(path, NULL, &archive, &err), HEFT_OK);
    assert_int_equal(heft_archive_find(archive, "b", 1, &name.id, NULL), HEFT_OK);
    if (heft_edit_in_place(archive, &name, 1, NULL, NULL, &err)) fail_msg("%s", err.message);
    heft_archive_unref(archive);
    size_t m;
    uint8_t *now = test_slurp(path, &m);
    assert_int_equal(n, m);
    const char *text = (char *)now + 8;
    assert_non_null(strstr(text, "\"{\\\"0\\\":\\\"00000000000000000000000000000009\\\","
                                 "\\\"a\\\":\\\"00000000000000000000000000000001\\\"}\""));
    assert_non_null(strstr(text, "\"0\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},\"__heft_pad__.00000000\""));
    assert_non_null(strstr(text, "\"a\":{\"dtype\":\"F4\",\"shape\":[4],\"data_offsets\":[4,6]}}    abcdef"));
    free(now);
    free(bytes);
    free(path);
}

/* Each call fails in turn: the file is the old one or the new one, alone or by its journal, and can be brought to either. */
static void failing_at_every_call(void **state) {
    (void)state;
    static const int codes[] = {EIO, ENOSPC};
    int marks[2] = {0}, journals = 0;
    char *path = strdup(test_path("failing/x.safetensors"));
    for (int c = 0; c < 2; c++) {
        for (uint64_t k = 1;; k++) {
            heft_error err;
            edit_make("failing/x.safetensors");
            int fds = test_count_fds();
            trap_begin(&(trap_plan){.fail_call = k, .fail_errno = codes[c], .most = 700});
            heft_status status = edit_run(path, NULL, &err);
            uint64_t calls = trap_calls();
            trap_end();
            assert_int_equal(test_count_fds(), fds);
            bool journal = has_journal(path), done;
            char mark = edit_mark(path, journal ? HEFT_FAULT_EDIT_INTERRUPTED : HEFT_FAULT_NONE, &err);
            assert_true(mark == '1' || mark == '2');
            if (status == HEFT_OK) assert_int_equal(mark, '2');
            marks[mark - '1']++;
            journals += journal;
            if (!journal) assert_whole(path, mark);
            assert_int_equal((k & 1 ? heft_edit_undo : heft_edit_resume)(path, NULL, &done, &err), HEFT_OK);
            assert_int_equal(done, journal);
            if (journal) assert_whole(path, k & 1 ? '1' : '2');
            if (status == HEFT_OK && calls < k) break;
        }
    }
    assert_true(marks[0] > 20 && marks[1] > 4 && journals > 0);
    free(path);
}

static void killed_at_every_call(void **state) {
    (void)state;
    int status, marks[2] = {0}, journals = 0;
    char *path = strdup(test_path("killed/x.safetensors"));
    for (uint64_t k = 1;; k++) {
        edit_make("killed/x.safetensors");
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            trap_begin(&(trap_plan){.fail_call = k, .die = true, .most = 700});
            _exit(edit_run(path, NULL, NULL) != HEFT_OK);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        heft_error err;
        uint64_t removed;
        bool journal = has_journal(path), done;
        char mark = edit_mark(path, journal ? HEFT_FAULT_EDIT_INTERRUPTED : HEFT_FAULT_NONE, &err);
        if (!mark) fail_msg("%s", err.message);
        marks[mark - '1']++;
        journals += journal;
        /* Cleaning leaves what is needed, and takes the rest. */
        assert_int_equal(heft_save_clean(test_path("killed"), false, NULL, &removed, &err), HEFT_OK);
        assert_int_equal(has_journal(path), journal);
        assert_int_equal((k & 1 ? heft_edit_undo : heft_edit_resume)(path, NULL, &done, &err), HEFT_OK);
        assert_int_equal(done, journal);
        assert_whole(path, journal ? (k & 1 ? '1' : '2') : mark);
        if (WIFEXITED(status)) break;
    }
    assert_int_equal(WEXITSTATUS(status), 0);
    assert_true(marks[0] > 10 && marks[1] > 4 && journals > 3);
    free(path);
}

/* An end that is itself interrupted, at every call. */
static void ending_can_be_repeated(void **state) {
    (void)state;
    char *path = strdup(test_path("ending/x.safetensors"));
    for (uint64_t k = 1;; k++) {
        heft_error err;
        bool done;
        edit_make("ending/x.safetensors");
        size_t n;
        uint8_t *journal = edit_journal(path, &n);
        test_write("ending/.heft-x.safetensors.journal", journal, n);
        free(journal);
        trap_begin(&(trap_plan){.fail_call = k, .fail_errno = EIO, .most = 1000});
        heft_status status = (k & 1 ? heft_edit_undo : heft_edit_resume)(path, NULL, &done, &err);
        uint64_t calls = trap_calls();
        trap_end();
        assert_int_equal(done, status == HEFT_OK);
        if (status != HEFT_OK && has_journal(path)) {
            assert_int_not_equal(edit_mark(path, HEFT_FAULT_EDIT_INTERRUPTED, &err), 0);
            if (heft_edit_undo(path, NULL, &done, &err)) fail_msg("%s", err.message);
            assert_whole(path, '1');
        } else assert_whole(path, k & 1 ? '1' : '2');
        if (status == HEFT_OK && calls < k) break;
    }
    free(path);
}

static void a_living_writer_is_left_alone(void **state) {
    (void)state;
    heft_error err;
    uint64_t removed;
    int ends[2];
    char byte, *path = strdup(edit_make("living/x.safetensors"));
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) { /* waits where the journal is there, and the file untouched */
        trap_begin(&(trap_plan){.fail_call = 2, .only = "pwrite", .fail_errno = EIO, .hold = ends[1]});
        _exit(edit_run(path, NULL, NULL) != HEFT_OK);
    }
    assert_int_equal(read(ends[0], &byte, 1), 1);
    assert_int_equal(edit_run(path, NULL, &err), HEFT_EXISTS);
    assert_int_equal(err.fault, HEFT_FAULT_EDIT_INTERRUPTED);
    assert_int_equal(heft_edit_resume(path, NULL, NULL, &err), HEFT_EXISTS);
    assert_int_equal(heft_edit_undo(path, NULL, NULL, &err), HEFT_EXISTS);
    assert_int_equal(heft_save_clean(test_path("living"), true, NULL, &removed, NULL), HEFT_OK);
    assert_int_equal(removed, 0);
    assert_true(has_journal(path));
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_int_equal(edit_run(path, NULL, &err), HEFT_MISMATCH);
    assert_int_equal(heft_edit_undo(path, NULL, NULL, &err), HEFT_OK);
    assert_whole(path, '1');
    assert_int_equal(edit_run(path, NULL, &err), HEFT_OK);
    assert_whole(path, '2');
    close(ends[0]);
    close(ends[1]);
    free(path);
}

/* Journals that are of no use: told, refused by what would apply them, in nobody's way, removed by cleaning and by saves. */
static void useless_journals(void **state) {
    (void)state;
    heft_error err;
    bool done;
    uint64_t removed;
    size_t n;
    char *path = strdup(edit_make("useless/x.safetensors")), *folder = strdup(test_path("useless"));
    uint8_t *journal = edit_journal(path, &n);
    test_write("useless/.heft-x.safetensors.journal", journal, n - 1);
    assert_int_equal(heft_edit_resume(path, NULL, &done, &err), HEFT_CORRUPT);
    assert_int_equal(err.fault, HEFT_FAULT_JOURNAL_IGNORED);
    assert_int_equal(heft_edit_undo(path, NULL, &done, &err), HEFT_CORRUPT);
    assert_int_equal(heft_save_clean(folder, true, NULL, &removed, NULL), HEFT_OK);
    assert_int_equal(removed, 1);
    assert_whole(path, '1');
    test_write("useless/.heft-x.safetensors.journal", journal, n - 1);
    assert_int_equal(edit_run(path, NULL, &err), HEFT_OK);
    assert_whole(path, '2');
    edit_make("useless/x.safetensors");
    edit_make("useless/new.safetensors"); /* another file takes the name, by another program */
    assert_int_equal(rename(test_path("useless/new.safetensors"), path), 0);
    test_write("useless/.heft-x.safetensors.journal", journal, n);
    assert_int_equal(heft_edit_undo(path, NULL, &done, &err), HEFT_MISMATCH);
    assert_int_equal(err.fault, HEFT_FAULT_JOURNAL_IGNORED);
    assert_int_equal(heft_save_clean(folder, false, NULL, &removed, NULL), HEFT_OK);
    assert_int_equal(removed, 1);
    assert_whole(path, '1');
    /* One whose file is torn or gone may be all that there is. */
    test_write("useless/.heft-x.safetensors.journal", journal, n - 1);
    assert_int_equal(truncate(path, 5), 0);
    assert_int_equal(heft_save_clean(folder, true, NULL, &removed, NULL), HEFT_OK);
    assert_int_equal(removed, 0);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(heft_save_clean(folder, true, NULL, &removed, NULL), HEFT_OK);
    assert_int_equal(removed, 0);
    /* A save takes the place of the file, and the journal goes with it. */
    static const int64_t one[] = {1};
    heft_save_item item = {.name = "a", .data = "x", .shape = one, .rank = 1, .dtype = HEFT_U8};
    assert_int_equal(heft_save(path, &item, 1, NULL, NULL, &err), HEFT_OK);
    assert_false(has_journal(path));
    free(journal);
    free(path);
    free(folder);
}

/* What opening ignores is not written: the old header is all that the file can have. */
static void a_new_header_that_fits_no_file(void **state) {
    (void)state;
    heft_error err;
    heft__journal journal;
    const char *why;
    bool done = true;
    size_t n;
    char *path = strdup(edit_make("unfit/x.safetensors"));
    uint8_t *bytes = edit_journal(path, &n), *other = malloc(n), header[EDIT_HEADER];
    assert_non_null(other);
    assert_true(heft__journal_parse(bytes, n, &journal, &why));
    memcpy(header, journal.after, sizeof header);
    memcpy(strstr((char *)header + 8, "[64]"), "[63]", 4);
    journal.after = header;
    heft__journal_write(&journal, other);
    test_write("unfit/.heft-x.safetensors.journal", other, n);
    assert_int_equal(heft_edit_resume(path, NULL, &done, &err), HEFT_MISMATCH);
    assert_int_equal(err.fault, HEFT_FAULT_EDIT_INTERRUPTED);
    assert_false(done);
    assert_true(has_journal(path));
    assert_int_equal(heft_edit_undo(path, NULL, &done, &err), HEFT_OK);
    assert_true(done);
    assert_whole(path, '1');
    assert_false(has_journal(path));
    free(other);
    free(bytes);
    free(path);
}

static void every_allocation_can_fail(void **state) {
    (void)state;
    char *path = strdup(test_path("memory/x.safetensors"));
    for (uint64_t k = 1;; k++) {
        test_allocator t;
        heft_error err;
        edit_make("memory/x.safetensors");
        test_allocator_init(&t, k);
        trap_begin(&(trap_plan){0});
        heft_status status = edit_run(path, &t.alloc, &err);
        trap_end();
        assert_int_equal(t.live_blocks, 0);
        assert_whole(path, status == HEFT_OK ? '2' : '1');
        if (status == HEFT_OK && t.calls < k) break;
        assert_true(status == HEFT_OUT_OF_MEMORY);
    }
    free(path);
}

static int teardown(void **state) {
    (void)state;
    trap_end();
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_and_metadata),
        cmocka_unit_test(refusals),
        cmocka_unit_test(links_lead_to_the_file),
        cmocka_unit_test(a_name_of_255_bytes),
        cmocka_unit_test(digests_get_the_new_names),
        cmocka_unit_test_teardown(failing_at_every_call, teardown),
        cmocka_unit_test_teardown(killed_at_every_call, teardown),
        cmocka_unit_test_teardown(ending_can_be_repeated, teardown),
        cmocka_unit_test(a_living_writer_is_left_alone),
        cmocka_unit_test(useless_journals),
        cmocka_unit_test(a_new_header_that_fits_no_file),
        cmocka_unit_test_teardown(every_allocation_can_fail, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
