/* Files with a header of several sectors, edited in place, and what they are found to be. */
#include "helper_edit.h"

#include "base/os_target.h"

#include <sys/stat.h>

enum { TEXT = 1500 };

const uint8_t *edit_bytes(char mark) {
    static uint8_t all[2][EDIT_FILE];
    uint8_t *bytes = all[mark == '2'];
    if (bytes[8] == '{') return bytes;
    char *header = (char *)bytes + 8, value[TEXT + 1];
    memset(value, mark, TEXT);
    value[TEXT] = 0;
    memset(bytes, 0, 8);
    bytes[0] = (EDIT_HEADER - 8) & 255;
    bytes[1] = (EDIT_HEADER - 8) >> 8;
    int n = snprintf(header, EDIT_HEADER - 8,
                     "{\"__metadata__\":{\"mark\":\"%s\"},\"a\":{\"dtype\":\"F32\",\"shape\":[8],\"data_offsets\":[0,32]},"
                     "\"b%c\":{\"dtype\":\"U8\",\"shape\":[64],\"data_offsets\":[32,96]}}",
                     value, mark);
    assert_true(n > 0 && n < EDIT_HEADER - 8);
    memset(header + n, ' ', (size_t)(EDIT_HEADER - 8 - n));
    for (int i = 0; i < EDIT_DATA; i++) bytes[EDIT_HEADER + i] = (uint8_t)i;
    return bytes;
}

const char *edit_make(const char *name) {
    return test_write(name, edit_bytes('1'), EDIT_FILE);
}

char edit_mark(const char *path, heft_fault fault, heft_error *err) {
    heft_archive *archive;
    heft_pair pair;
    heft_error warning;
    if (heft_archive_open(path, NULL, &archive, err)) return 0;
    const heft_report *report = heft_archive_warnings(archive);
    assert_int_equal(heft_report_count(report), fault != HEFT_FAULT_NONE);
    if (fault) {
        heft_severity severity;
        assert_int_equal(heft_report_get(report, 0, &severity, &warning, NULL), HEFT_OK);
        assert_int_equal(severity, HEFT_SEVERITY_WARNING);
        if (warning.fault != fault) fail_msg("%s", warning.message);
    }
    assert_int_equal(heft_archive_count(archive), 2);
    assert_int_equal(heft_archive_metadata_find(archive, 0, "mark", 4, &pair, NULL), HEFT_OK);
    assert_int_equal(pair.value_len, TEXT);
    char mark = pair.value[0], name[3] = {'b', mark, 0};
    for (size_t i = 0; i < TEXT; i++) assert_int_equal(pair.value[i], mark);
    uint64_t id;
    uint8_t bytes[80];
    heft_view view;
    assert_int_equal(heft_archive_find(archive, name, 2, &id, NULL), HEFT_OK);
    assert_int_equal(heft_view_of(archive, id, &view, NULL), HEFT_OK);
    assert_int_equal(heft_read(&view, bytes, heft_view_nbytes(&view), NULL, NULL, NULL), HEFT_OK);
    for (int i = 0; i < 64; i++) assert_int_equal(bytes[i], 32 + i);
    heft_archive_unref(archive);
    return mark;
}

heft_status edit_run(const char *path, const heft_allocator *alloc, heft_error *err) {
    heft_archive *archive;
    char value[TEXT];
    heft_pair pair = {.key = "mark", .key_len = 4, .value = value, .value_len = TEXT};
    heft_edit_options options = {.struct_size = sizeof options, .metadata = &pair, .nmetadata = 1, .allocator = alloc};
    heft_new_name name = {.name = "b2"};
    memset(value, '2', sizeof value);
    heft_status status = heft_archive_open(path, NULL, &archive, err);
    if (status) return status;
    if (heft_archive_find(archive, "b1", 2, &name.id, NULL) && heft_archive_find(archive, "b2", 2, &name.id, NULL))
        fail_msg("%s", "no tensor to be renamed");
    status = heft_edit_in_place(archive, &name, 1, &options, NULL, err);
    heft_archive_unref(archive);
    return status;
}

uint8_t *edit_journal(const char *path, size_t *nbytes) {
    struct stat st;
    const char *slash = strrchr(path, '/');
    heft__journal journal = {.header_nbytes = EDIT_HEADER, .file_nbytes = EDIT_FILE, .before = edit_bytes('1'),
                             .after = edit_bytes('2'), .writer = ".heft-x-12345678-1-12345678.tmp"};
    assert_int_equal(stat(path, &st), 0);
    journal.inode = (uint64_t)st.st_ino;
#if defined(__APPLE__)
    struct timespec mtime = st.st_mtimespec;
#else
    struct timespec mtime = st.st_mtim;
#endif
    journal.mtime_ns = (int64_t)((uint64_t)mtime.tv_sec * 1000000000u + (uint64_t)mtime.tv_nsec);
    snprintf(journal.name, sizeof journal.name, "%s", slash ? slash + 1 : path);
    *nbytes = (size_t)heft__journal_nbytes(EDIT_HEADER);
    uint8_t *bytes = malloc(*nbytes);
    assert_non_null(bytes);
    heft__journal_write(&journal, bytes);
    return bytes;
}

const char *edit_journal_path(const char *path) {
    static char out[4400];
    char name[HEFT__TARGET_NAME_MAX + 1];
    const char *slash = strrchr(path, '/');
    heft__target_journal_name(name, slash ? slash + 1 : path);
    snprintf(out, sizeof out, "%.*s%s", slash ? (int)(slash + 1 - path) : 0, path, name);
    return out;
}
