/* Journals of edits in place as opening finds them: torn headers of every kind, journals of others, damaged ones. */
#include "helper_edit.h"

#include "base/os_target.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *put_journal(const char *path) {
    size_t n;
    uint8_t *bytes = edit_journal(path, &n);
    const char *at = edit_journal_path(path);
    FILE *f = fopen(at, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    fclose(f);
    free(bytes);
    return at;
}

/* The first bytes of a file, the file being the same one after it. */
static void overwrite(const char *path, const uint8_t *bytes, size_t n) {
    int fd = open(path, O_WRONLY);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, bytes, n, 0), n);
    close(fd);
}

static void bytes_of_a_journal(void **state) {
    (void)state;
    const char *path = edit_make("bytes/x.safetensors"), *why = NULL;
    heft__journal journal;
    size_t n;
    uint8_t *bytes = edit_journal(path, &n), copy[8192];
    assert_true(n < sizeof copy);
    assert_true(heft__journal_parse(bytes, n, &journal, &why));
    assert_int_equal(journal.header_nbytes, EDIT_HEADER);
    assert_int_equal(journal.file_nbytes, EDIT_FILE);
    assert_string_equal(journal.name, "x.safetensors");
    assert_memory_equal(journal.before, edit_bytes('1'), EDIT_HEADER);
    assert_memory_equal(journal.after, edit_bytes('2'), EDIT_HEADER);
    for (size_t i = 0; i < n; i++) { /* each byte counts */
        memcpy(copy, bytes, n);
        copy[i] ^= 0x40;
        assert_false(heft__journal_parse(copy, n, &journal, &why));
        assert_non_null(why);
        assert_false(heft__journal_parse(bytes, i, &journal, &why));
    }
    memcpy(copy, bytes, n);
    assert_false(heft__journal_parse(copy, n + 1, &journal, &why));
    assert_int_equal(heft__journal_nbytes(UINT64_MAX / 2), HEFT_NONE);
    free(bytes);
}

static void headers_torn_anywhere(void **state) {
    (void)state;
    const char *path = edit_make("torn/x.safetensors");
    const uint8_t *old = edit_bytes('1'), *new = edit_bytes('2');
    size_t differs = 0, sectors = (EDIT_HEADER + 511) / 512;
    heft_error err;
    uint8_t mixed[EDIT_HEADER];
    while (old[differs] == new[differs]) differs++;
    put_journal(path);
    assert_int_equal(edit_mark(path, HEFT_FAULT_EDIT_INTERRUPTED, &err), '2'); /* before the first byte */
    for (unsigned mask = 1; mask < 1u << sectors; mask++) {
        bool begun = false;
        for (size_t s = 0; s < sectors; s++) {
            size_t at = s * 512, n = EDIT_HEADER - at < 512 ? EDIT_HEADER - at : 512;
            memcpy(mixed + at, (mask >> s & 1 ? new : old) + at, n);
            begun = begun || ((mask >> s & 1) && memcmp(old + at, new + at, n) != 0);
        }
        overwrite(path, mixed, sizeof mixed);
        /* The last sector is the same in both: then the file has its old header, and nobody knows who touched it. */
        assert_int_equal(edit_mark(path, HEFT_FAULT_EDIT_INTERRUPTED, &err), begun ? '2' : '1');
    }
    for (size_t n = 0; n <= EDIT_HEADER; n += 37) {
        memcpy(mixed, old, sizeof mixed);
        memcpy(mixed, new, n);
        overwrite(path, mixed, sizeof mixed);
        assert_int_equal(edit_mark(path, HEFT_FAULT_EDIT_INTERRUPTED, &err), n > differs ? '2' : '1');
    }
}

/* Inside of a sector where it was killed; anywhere only while the writer is at work. */
static void torn_within_a_sector(void **state) {
    (void)state;
    const char *path = edit_make("within/x.safetensors");
    size_t n;
    const char *why;
    heft__journal journal;
    uint8_t *bytes = edit_journal(path, &n), mixed[EDIT_HEADER];
    assert_true(heft__journal_parse(bytes, n, &journal, &why));
    for (size_t cut = 0; cut <= EDIT_HEADER; cut++) {
        memcpy(mixed, edit_bytes('1'), sizeof mixed);
        memcpy(mixed, edit_bytes('2'), cut);
        heft__journal_fit fit = heft__journal_judge(&journal, EDIT_FILE, journal.inode, 0, mixed, true);
        assert_int_equal(fit, memcmp(mixed, edit_bytes('1'), sizeof mixed) ? HEFT__JOURNAL_FITS : HEFT__JOURNAL_UNDONE);
        assert_int_equal(heft__journal_judge(&journal, EDIT_FILE, journal.inode, 0, mixed, false), fit);
        if (cut == 700) /* in the text: no sector of either header, in another file */
            assert_int_equal(heft__journal_judge(&journal, EDIT_FILE, journal.inode + 1, 0, mixed, false), HEFT__JOURNAL_FOREIGN);
    }
    mixed[600] = '1'; /* a hole in what is written */
    assert_int_equal(heft__journal_judge(&journal, EDIT_FILE, journal.inode, 0, mixed, true), HEFT__JOURNAL_FITS);
    assert_int_equal(heft__journal_judge(&journal, EDIT_FILE, journal.inode, 0, mixed, false), HEFT__JOURNAL_FOREIGN);
    mixed[600] = '3';
    assert_int_equal(heft__journal_judge(&journal, EDIT_FILE, journal.inode, 0, mixed, true), HEFT__JOURNAL_FOREIGN);
    free(bytes);
}

static void journals_of_other_files(void **state) {
    (void)state;
    heft_error err;
    uint8_t bytes[EDIT_FILE + 1];
    const char *path = edit_make("other/x.safetensors");
    put_journal(path);
    /* Written again, in place, with the same header: the tensors are others. */
    struct timespec later[2] = {{.tv_sec = 1000000000}, {.tv_sec = 1000000000}};
    overwrite(path, edit_bytes('1'), EDIT_FILE);
    assert_int_equal(utimensat(AT_FDCWD, path, later, 0), 0);
    assert_int_equal(edit_mark(path, HEFT_FAULT_EDIT_INTERRUPTED, &err), '1');
    /* Replaced by one with the same header, even with the same time. */
    put_journal(path);
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    test_write("other/y.safetensors", edit_bytes('1'), EDIT_FILE);
#if !defined(__APPLE__)
    later[0] = later[1] = st.st_mtim;
#else
    later[0] = later[1] = st.st_mtimespec;
#endif
    assert_int_equal(utimensat(AT_FDCWD, test_path("other/y.safetensors"), later, 0), 0);
    assert_int_equal(rename(test_path("other/y.safetensors"), path), 0);
    assert_int_equal(edit_mark(path, HEFT_FAULT_JOURNAL_IGNORED, &err), '1');
    /* With another header of the same length, the size the same. */
    memcpy(bytes, edit_bytes('1'), EDIT_FILE);
    memcpy(strstr((char *)bytes + 8, "\"a\""), "\"c\"", 3);
    overwrite(path, bytes, EDIT_FILE);
    assert_int_equal(edit_mark(path, HEFT_FAULT_JOURNAL_IGNORED, &err), '1');
    /* Of another size, with the new header. */
    memcpy(bytes, edit_bytes('2'), EDIT_FILE);
    char *shape = strstr((char *)bytes + 8, "[64]");
    memcpy(shape, "[65]", 4);
    memcpy(strstr(shape, "96]"), "97]", 3);
    bytes[EDIT_FILE] = 0;
    test_write("other/x.safetensors", bytes, EDIT_FILE + 1);
    assert_int_equal(edit_mark(path, HEFT_FAULT_JOURNAL_IGNORED, &err), '2');
    /* A torn header is no file without its journal, and the other journal is no help. */
    memcpy(bytes, edit_bytes('1'), EDIT_FILE);
    memset(bytes + 8, '{', 20);
    test_write("other/x.safetensors", bytes, EDIT_FILE);
    assert_int_equal(edit_mark(path, HEFT_FAULT_NONE, &err), 0);
    assert_int_equal(err.status, HEFT_CORRUPT);
}

static void damaged_and_unreadable_journals(void **state) {
    (void)state;
    heft_error err;
    char *path = strdup(edit_make("damaged/x.safetensors"));
    size_t n;
    uint8_t *bytes = edit_journal(path, &n);
    for (size_t cut = 0; cut < n; cut += 97) {
        test_write("damaged/.heft-x.safetensors.journal", bytes, cut);
        if (edit_mark(path, HEFT_FAULT_JOURNAL_IGNORED, &err) != '1') fail_msg("%s", err.message);
    }
    uint8_t *large = calloc(1, 4 * EDIT_FILE); /* more than two headers of this file */
    assert_non_null(large);
    memcpy(large, bytes, n);
    test_write("damaged/.heft-x.safetensors.journal", large, 4 * EDIT_FILE);
    assert_int_equal(edit_mark(path, HEFT_FAULT_JOURNAL_IGNORED, &err), '1');
    unlink(test_path("damaged/.heft-x.safetensors.journal"));
    test_mkdir("damaged/.heft-x.safetensors.journal");
    assert_int_equal(edit_mark(path, HEFT_FAULT_JOURNAL_IGNORED, &err), '1');
    assert_int_equal(rmdir(test_path("damaged/.heft-x.safetensors.journal")), 0);
    heft__journal journal;
    const char *why;
    assert_true(heft__journal_parse(bytes, n, &journal, &why));
    uint8_t new_header[EDIT_HEADER]; /* whole, but what it holds is no header */
    memcpy(new_header, journal.after, EDIT_HEADER);
    memset(new_header + 8, 'x', 40);
    journal.after = new_header;
    uint8_t *other = malloc(n);
    heft__journal_write(&journal, other);
    test_write("damaged/.heft-x.safetensors.journal", other, n);
    assert_int_equal(edit_mark(path, HEFT_FAULT_JOURNAL_IGNORED, &err), '1');
    free(other);
    free(large);
    free(bytes);
    free(path);
}

/* Every way to open a file finds it; what is in memory has none. */
static void every_way_in(void **state) {
    (void)state;
    heft_error err;
    heft_open_options beneath = {.struct_size = sizeof beneath, .links = HEFT_LINKS_BENEATH};
    const char *path = strdup(edit_make("ways/set/x.safetensors"));
    char *top = strdup(test_path("ways/set")), *index = strdup(test_path("ways/set/model.safetensors.index.json"));
    static const char text[] = "{\"weight_map\":{\"a\":\"x.safetensors\",\"b2\":\"x.safetensors\"}}";
    heft_archive *archive;
    put_journal(path);
    overwrite(path, edit_bytes('2'), 512);
    assert_int_equal(edit_mark(path, HEFT_FAULT_EDIT_INTERRUPTED, &err), '2');
    assert_int_equal(edit_mark(top, HEFT_FAULT_EDIT_INTERRUPTED, &err), '2');
    test_write("ways/set/model.safetensors.index.json", text, sizeof text - 1);
    assert_int_equal(edit_mark(top, HEFT_FAULT_EDIT_INTERRUPTED, &err), '2');
    assert_int_equal(edit_mark(index, HEFT_FAULT_EDIT_INTERRUPTED, &err), '2');
    assert_int_equal(heft_archive_open(top, &beneath, &archive, &err), HEFT_OK);
    assert_int_equal(heft_report_count(heft_archive_warnings(archive)), 1);
    heft_archive_unref(archive);
    assert_int_equal(heft_archive_open_files(&path, 1, NULL, &archive, &err), HEFT_OK);
    assert_int_equal(heft_report_count(heft_archive_warnings(archive)), 1);
    heft_archive_unref(archive);
    heft_source *source;
    assert_int_equal(heft_source_open_file(path, &source, NULL), HEFT_OK);
    assert_int_equal(heft_archive_open_source(source, NULL, &archive, &err), HEFT_OK);
    heft_archive_unref(archive);
    heft_source_unref(source);
    heft_open_options strict = {.struct_size = sizeof strict, .strict = true};
    assert_int_equal(heft_archive_open(path, &strict, &archive, &err), HEFT_MISMATCH);
    assert_int_equal(err.fault, HEFT_FAULT_EDIT_INTERRUPTED);
    /* Links, to the file and to its folder, inside and outside of the folder that is opened. */
    assert_int_equal(symlink("set/x.safetensors", test_path("ways/link.safetensors")), 0);
    assert_int_equal(symlink("link.safetensors", test_path("ways/again.safetensors")), 0);
    assert_int_equal(symlink(path, test_path("ways/whole.safetensors")), 0);
    assert_int_equal(edit_mark(test_path("ways/again.safetensors"), HEFT_FAULT_EDIT_INTERRUPTED, &err), '2');
    assert_int_equal(edit_mark(test_path("ways/whole.safetensors"), HEFT_FAULT_EDIT_INTERRUPTED, &err), '2');
    test_mkdir("ways/links");
    assert_int_equal(symlink("../set/x.safetensors", test_path("ways/links/model.safetensors")), 0);
    assert_int_equal(edit_mark(test_path("ways/links"), HEFT_FAULT_EDIT_INTERRUPTED, &err), '2');
    /* A check tells it, and counts what is there. */
    heft_report *report;
    assert_int_equal(heft_check(path, NULL, &report, NULL), HEFT_OK);
    heft_error fault;
    heft_severity severity;
    assert_int_equal(heft_report_count(report), 1);
    assert_int_equal(heft_report_get(report, 0, &severity, &fault, NULL), HEFT_OK);
    assert_int_equal(fault.fault, HEFT_FAULT_EDIT_INTERRUPTED);
    heft_report_free(report);
    /* Nothing was written. */
    size_t n;
    uint8_t *now = test_slurp(path, &n);
    assert_memory_equal(now, edit_bytes('2'), 512);
    assert_memory_equal(now + 512, edit_bytes('1') + 512, n - 512);
    free(now);
    free((char *)(uintptr_t)path);
    free(top);
    free(index);
}

/* The orphans that a check of a folder finds, which must be so many; the text of the last one. */
static const char *orphans(const char *folder, int wanted) {
    static heft_error fault;
    heft_report *report;
    heft_severity severity;
    int n = 0;
    heft_error err, one;
    if (heft_check(folder, NULL, &report, &err)) fail_msg("%s", err.message);
    for (uint64_t i = 0; i < heft_report_count(report); i++) {
        assert_int_equal(heft_report_get(report, i, &severity, &one, NULL), HEFT_OK);
        if (one.fault != HEFT_FAULT_JOURNAL_ORPHAN) continue;
        assert_int_equal(severity, HEFT_SEVERITY_WARNING);
        fault = one;
        n++;
    }
    assert_int_equal(n, wanted);
    heft_report_free(report);
    return fault.message;
}

/* A file that was renamed while its edit had not ended is found by what it is. */
static void renamed_files(void **state) {
    (void)state;
    char *path = strdup(edit_make("renamed/x.safetensors")), *folder = strdup(test_path("renamed"));
    char *journal = strdup(put_journal(path)), *other = strdup(test_path("renamed/y.safetensors"));
    heft_error err;
    bool done;
    orphans(folder, 0);
    for (int torn = 0; torn < 3; torn++) { /* not begun, torn, whole */
        if (torn) overwrite(path, edit_bytes('2'), torn == 1 ? 1024 : EDIT_HEADER);
        assert_int_equal(rename(path, other), 0);
        const char *text = orphans(folder, 1);
        if (!strstr(text, "\"x.safetensors\"") || !strstr(text, "\"y.safetensors\" now")) fail_msg("%s", text);
        assert_int_equal(rename(other, path), 0);
        orphans(folder, 0);
    }
    assert_int_equal(heft_edit_resume(path, NULL, &done, &err), HEFT_OK);
    orphans(folder, 0);
    edit_make("renamed/x.safetensors");
    put_journal(path);
    assert_int_equal(unlink(path), 0); /* gone, and another file is there, of the same size */
    edit_make("renamed/z.safetensors");
    overwrite(test_path("renamed/z.safetensors"), (const uint8_t *)"\xA8\x06\0\0\0\0\0\0{ ", 10);
    assert_non_null(strstr(orphans(folder, 1), "no such file is there"));
    size_t n;
    uint8_t *bytes = test_slurp(journal, &n);
    test_write("renamed/.heft-x.safetensors.journal", bytes, n - 1); /* and it is damaged */
    assert_non_null(strstr(orphans(folder, 1), "\"x.safetensors\""));
    test_write("renamed/.heft-.journal", bytes, n); /* no name of a journal */
    orphans(folder, 1);
    free(bytes);
    free(path);
    free(folder);
    free(journal);
    free(other);
}

static void long_names(void **state) {
    (void)state;
    heft_error err;
    char name[300] = "long/", other[300], journal[HEFT__TARGET_NAME_MAX + 1], second[HEFT__TARGET_NAME_MAX + 1];
    memset(name + 5, 'n', 255);
    memcpy(name + 5 + 255 - 12, ".safetensors", 13);
    memcpy(other, name, sizeof name);
    other[5 + 254 - 12] = 'm';
    heft__target_journal_name(journal, name + 5);
    heft__target_journal_name(second, other + 5);
    assert_int_equal(strlen(journal), 255);
    assert_string_not_equal(journal, second);
    assert_int_equal(strncmp(journal, ".heft-nnn", 9), 0);
    assert_string_equal(journal + 247, ".journal");
    char *path = strdup(edit_make(name));
    put_journal(path);
    overwrite(path, edit_bytes('2'), 1024);
    assert_int_equal(edit_mark(path, HEFT_FAULT_EDIT_INTERRUPTED, &err), '2');
    free(path);
}

static void every_allocation_can_fail(void **state) {
    (void)state;
    const char *path = edit_make("memory/x.safetensors");
    put_journal(path);
    overwrite(path, edit_bytes('2'), 512);
    for (uint64_t k = 1;; k++) {
        test_allocator t;
        heft_error err;
        heft_archive *archive = NULL;
        test_allocator_init(&t, k);
        heft_open_options options = {.struct_size = sizeof options, .allocator = &t.alloc};
        heft_status status = heft_archive_open(path, &options, &archive, &err);
        if (status == HEFT_OK) assert_int_equal(heft_report_count(heft_archive_warnings(archive)), 1);
        else assert_int_equal(status, HEFT_OUT_OF_MEMORY);
        heft_archive_unref(archive);
        assert_int_equal(t.live_blocks, 0);
        if (status == HEFT_OK && t.calls < k) break;
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_of_a_journal),
        cmocka_unit_test(headers_torn_anywhere),
        cmocka_unit_test(torn_within_a_sector),
        cmocka_unit_test(journals_of_other_files),
        cmocka_unit_test(damaged_and_unreadable_journals),
        cmocka_unit_test(every_way_in),
        cmocka_unit_test(renamed_files),
        cmocka_unit_test(long_names),
        cmocka_unit_test(every_allocation_can_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
