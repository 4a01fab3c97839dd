/* heft_check: everything that can be said about a path, at once and in order. */
#include "helper_files.h"

#include <errno.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *shard(const char *path, const char *names, const char *metadata) {
    test_tensor tensors[16];
    char copy[400];
    size_t n = 0;
    snprintf(copy, sizeof copy, "%s", names);
    for (char *name = strtok(copy, " "); name; name = strtok(NULL, " "))
        tensors[n++] = (test_tensor){name, "F32", "1", NULL, 4};
    return test_write_safetensors(path, tensors, n, metadata);
}

static const char *text(const char *path, const char *content) {
    return test_write(path, content, strlen(content));
}

static heft_report *check(const char *path, const heft_open_options *options) {
    heft_report *report = NULL;
    heft_error err;
    int fds = test_count_fds();
    if (heft_check(path, options, &report, &err)) fail_msg("%s", err.message);
    assert_non_null(report);
    assert_true(fds < 0 || test_count_fds() >= fds);
    return report;
}

static heft_error item(const heft_report *report, uint64_t index) {
    heft_severity severity;
    heft_error fault;
    assert_int_equal(heft_report_get(report, index, &severity, &fault, NULL), HEFT_OK);
    return fault;
}

/* "E:kind W:kind N:kind", with the base name of the file before it where `files`. */
static void verdict(const heft_report *report, bool files, const char *expected) {
    char found[3000] = "";
    uint64_t counts[3] = {0};
    for (uint64_t i = 0; i < heft_report_count(report); i++) {
        heft_severity severity;
        heft_error fault;
        assert_int_equal(heft_report_get(report, i, &severity, &fault, NULL), HEFT_OK);
        assert_true(fault.message[0]);
        assert_int_equal(fault.more, 0);
        if (severity != HEFT_SEVERITY_NOTE) assert_int_not_equal(fault.status, HEFT_OK);
        counts[severity]++;
        const char *slash = strrchr(fault.file, '/');
        snprintf(found + strlen(found), sizeof found - strlen(found), "%s%s%s%c:%s", i ? " " : "",
                 files ? (slash ? slash + 1 : fault.file) : "", files ? "/" : "", "NWE"[severity],
                 heft_fault_name(fault.fault));
    }
    assert_string_equal(found, expected);
    for (heft_severity s = 0; s < 3; s++) assert_int_equal(heft_report_count_of(report, s), counts[s]);
}

static void judge(const char *path, const char *expected) {
    heft_report *report = check(path, NULL);
    verdict(report, false, expected);
    heft_report_free(report);
}

#define OPTIONS(...) (&(heft_open_options){.struct_size = sizeof(heft_open_options), __VA_ARGS__})

static void test_whole_file(void **state) {
    (void)state;
    const test_tensor tensors[] = {{"a", "F32", "2,3", NULL, 24}, {"b", "U8", "3", NULL, 3}};
    int fds = test_count_fds();
    heft_report *report = check(test_write_safetensors("good", tensors, 2, NULL), NULL);
    verdict(report, false, "");
    heft_report_summary sum;
    heft_report_summarize(report, &sum);
    assert_int_equal(sum.nfiles, 1);
    assert_int_equal(sum.ntensors, 2);
    assert_int_equal(sum.nwhole, 2);
    assert_int_equal(sum.data_nbytes, 27);
    assert_int_equal(sum.covered_nbytes, 27);
    assert_int_equal(sum.hole_nbytes + sum.overlap_nbytes + sum.nfillers, 0);
    assert_true(sum.header_nbytes % 8 == 0 && sum.header_nbytes > 8);
    heft_error err;
    heft_severity severity;
    assert_int_equal(heft_report_get(report, 0, &severity, &err, &err), HEFT_INVALID_ARGUMENT);
    heft_report_free(report);
    heft_report_free(NULL);
    assert_int_equal(test_count_fds(), fds);
}

/* Cannot be judged at all: an error of the call, never a report. */
static void test_no_verdict(void **state) {
    (void)state;
    heft_report *report = NULL;
    heft_error err;
    assert_int_equal(heft_check(test_path("none"), NULL, &report, &err), HEFT_NOT_FOUND);
    assert_null(report);
    assert_int_equal(heft_check(NULL, NULL, &report, &err), HEFT_INVALID_ARGUMENT);
    assert_int_equal(heft_check(test_mkdir("nothing"), NULL, &report, &err), HEFT_NOT_FOUND);
    assert_int_equal(err.fault, HEFT_FAULT_NO_CHECKPOINT);
    assert_int_equal(heft_check("/dev/null", NULL, &report, &err), HEFT_INVALID_ARGUMENT);
    assert_int_equal(err.fault, HEFT_FAULT_NOT_REGULAR);
    assert_int_equal(symlink("gone", test_path("dangling.safetensors")), 0);
    assert_int_equal(heft_check(test_path("dangling.safetensors"), NULL, &report, &err), HEFT_NOT_FOUND);
    assert_int_equal(heft_check(test_path("none"), OPTIONS(.links = 7), &report, &err), HEFT_INVALID_ARGUMENT);
    assert_null(report);
    if (geteuid() == 0) return; /* root may read everything */
    const char *path = shard("secret/model.safetensors", "a", NULL);
    assert_int_equal(chmod(path, 0), 0);
    assert_int_equal(heft_check(path, NULL, &report, &err), HEFT_PERMISSION);
}

static void test_damaged_file(void **state) {
    (void)state;
    /* hole of 4, c overlaps b by 4, size of d wrong, and the end is missing */
    static const char header[] = "{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[4,8]},"
                                 "\"b\":{\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":[8,16]},"
                                 "\"c\":{\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":[12,20]},"
                                 "\"d\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[20,28]},"
                                 "\"e\":{\"dtype\":\"U8\",\"shape\":[10],\"data_offsets\":[28,38]}}";
    uint8_t data[33] = {0};
    size_t n;
    uint8_t *bytes = test_raw_safetensors(header, sizeof header - 1, data, sizeof data, &n);
    heft_report *report = check(test_write("damaged", bytes, n), NULL);
    free(bytes);
    char found[400] = "";
    for (uint64_t i = 0; i < heft_report_count(report); i++) {
        heft_error fault = item(report, i);
        if (i) assert_true(fault.offset == HEFT_NONE || fault.offset >= item(report, i - 1).offset);
        strcat(strcat(found, heft_fault_name(fault.fault)), " ");
    }
    assert_non_null(strstr(found, "hole"));
    assert_non_null(strstr(found, "overlap"));
    assert_non_null(strstr(found, "size-mismatch"));
    assert_non_null(strstr(found, "truncated"));
    heft_report_summary sum;
    heft_report_summarize(report, &sum);
    assert_int_equal(sum.ntensors, 5);
    assert_int_equal(sum.nwhole, 1); /* only a */
    assert_int_equal(sum.data_nbytes, 33);
    assert_int_equal(sum.hole_nbytes, 4);
    assert_int_equal(sum.overlap_nbytes, 4);
    assert_int_equal(sum.covered_nbytes, 29);
    heft_report_free(report);
}

static void test_overlap_accounting(void **state) {
    (void)state;
    /* one large tensor over two small ones: none of the three is whole, the last one is */
    static const char header[] = "{\"a\":{\"dtype\":\"U8\",\"shape\":[20],\"data_offsets\":[0,20]},"
                                 "\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[4,6]},"
                                 "\"c\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[10,12]},"
                                 "\"z\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[20,20]},"
                                 "\"d\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[20,24]}}";
    uint8_t data[24] = {0};
    size_t n;
    uint8_t *bytes = test_raw_safetensors(header, sizeof header - 1, data, sizeof data, &n);
    heft_report *report = check(test_write("overlaps", bytes, n), NULL);
    free(bytes);
    heft_report_summary sum;
    heft_report_summarize(report, &sum);
    assert_int_equal(sum.ntensors, 5);
    assert_int_equal(sum.nwhole, 2);
    assert_int_equal(sum.overlap_nbytes, 4);
    assert_int_equal(sum.covered_nbytes, 24);
    assert_int_equal(sum.hole_nbytes, 0);
    heft_report_free(report);
}

static void test_hole_accounting(void **state) {
    (void)state;
    /* a hole that ends at a tensor without bytes is one hole, not two */
    static const char header[] = "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
                                 "\"b\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[3,3]},"
                                 "\"c\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[3,4]}}";
    size_t n;
    uint8_t *bytes = test_raw_safetensors(header, sizeof header - 1, "abcd", 4, &n);
    heft_report *report = check(test_write("hole", bytes, n), NULL);
    free(bytes);
    heft_report_summary sum;
    heft_report_summarize(report, &sum);
    assert_int_equal(sum.hole_nbytes, 2);
    assert_int_equal(sum.covered_nbytes, 2);
    assert_int_equal(sum.nwhole, 3);
    heft_report_free(report);
}

static void test_wrong_files(void **state) {
    (void)state;
    judge(text("wrong/lfs", "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 5\n"), "E:lfs-pointer");
    judge(text("wrong/empty", ""), "E:empty");
    judge(text("wrong/html", "<!DOCTYPE html><html><head><title>Sign in</title></head></html>"), "E:html-page");
    heft_report_summary sum;
    heft_report *report = check(test_path("wrong/html"), NULL);
    heft_report_summarize(report, &sum);
    assert_int_equal(sum.nfiles, 1);
    assert_int_equal(sum.ntensors + sum.nwhole + sum.data_nbytes, 0);
    heft_report_free(report);
}

static void test_notes_and_lenient(void **state) {
    (void)state;
    size_t n;
    static const char header[] = " {\"\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}";
    uint8_t *bytes = test_raw_safetensors(header, sizeof header - 1, "abc", 3, &n);
    const char *path = test_write("notes", bytes, n);
    free(bytes);
    heft_report *report = check(path, NULL);
    verdict(report, false, "N:leading-space N:odd-name N:data-unaligned E:trailing-bytes");
    heft_report_free(report);
    report = check(path, OPTIONS(.lenient = HEFT_LENIENT_ALL));
    verdict(report, false, "N:leading-space N:odd-name N:data-unaligned W:trailing-bytes");
    heft_report_free(report);
    judge(test_write_safetensors("no_tensors", NULL, 0, NULL), "N:no-tensors");
}

static void set_index(const char *path, const char *map) {
    char json[2000] = "{\"weight_map\":{", copy[1000];
    const char *comma = "";
    snprintf(copy, sizeof copy, "%s", map);
    for (char *name = strtok(copy, " "); name; name = strtok(NULL, " ")) {
        char *file = strchr(name, '=');
        *file++ = 0;
        snprintf(json + strlen(json), sizeof json - strlen(json), "%s\"%s\":\"%s.safetensors\"", comma, name, file);
        comma = ",";
    }
    strcat(json, "},\"metadata\":{\"total_size\":12}}");
    test_write(path, json, strlen(json));
}

/* A folder with everything wrong that can be: all of it is told, the set first, then file by file. */
static void test_whole_set(void **state) {
    (void)state;
    shard("set/m-00001-of-00004.safetensors", "a b x shared", "{\"format\":\"pt\"}");
    shard("set/m-00002-of-00004.safetensors", "c shared a", "{\"format\":\"mlx\"}");
    text("set/m-00003-of-00004.safetensors", "<!DOCTYPE html><html></html>");
    shard("set/m-00009-of-00009.safetensors", "o", NULL);
    shard("set/unrelated.safetensors", "u", NULL);
    text("set/.heft-model-0123-99-abcdef01.tmp", "12345");
    text("set/.heft-save-in-progress", "");
    shard("set/model.safetensors", "w", NULL);
    assert_int_equal(symlink("gone", test_path("set/d.safetensors")), 0);
    set_index("set/model.safetensors.index.json",
              "a=m-00001-of-00004 b=m-00001-of-00004 c=m-00002-of-00004 e=m-00002-of-00004 "
              "f=m-00003-of-00004 g=m-00004-of-00004 h=d i=d");
    int fds = test_count_fds();
    heft_report *report = check(test_path("set"), NULL);
    verdict(report, true,
            "set/E:save-interrupted model.safetensors.index.json/E:missing-shard "
            "model.safetensors.index.json/E:missing-shard model.safetensors.index.json/W:shadowed-file "
            "model.safetensors.index.json/W:metadata-differs model.safetensors.index.json/W:orphan-shard "
            "model.safetensors.index.json/N:orphan-shard "
            "model.safetensors.index.json/N:temp-file "
            "m-00001-of-00004.safetensors/W:unindexed-tensor m-00001-of-00004.safetensors/W:unindexed-tensor "
            "m-00002-of-00004.safetensors/E:index-mismatch m-00002-of-00004.safetensors/W:unindexed-tensor "
            "m-00002-of-00004.safetensors/W:unindexed-tensor m-00003-of-00004.safetensors/E:html-page");
    assert_non_null(
        strstr(item(report, 1).message, "m-00004-of-00004.safetensors\" is missing; the index names it for 1 tensor"));
    assert_non_null(
        strstr(item(report, 2).message, "a link to a file that is not there; the index names it for 2 tensors"));
    assert_non_null(strstr(item(report, 4).message, "\"format\""));
    assert_non_null(strstr(item(report, 5).message, "m-00009-of-00009"));
    assert_non_null(strstr(item(report, 7).message, ".heft-model-0123-99-abcdef01.tmp"));
    assert_non_null(strstr(item(report, 7).message, "5 bytes"));
    assert_int_equal(item(report, 7).found, 5);
    heft_report_summary sum;
    heft_report_summarize(report, &sum);
    assert_int_equal(sum.nfiles, 3);
    assert_int_equal(sum.ntensors, 7);
    assert_int_equal(sum.nwhole, 7);
    heft_report_free(report);
    assert_int_equal(test_count_fds(), fds);
    report = check(test_path("set"), OPTIONS(.lenient = HEFT_LENIENT_ALL));
    assert_int_equal(heft_report_count_of(report, HEFT_SEVERITY_ERROR), 2); /* the marker and the page */
    heft_report_free(report);
    report = check(test_path("set"), OPTIONS(.index = HEFT_INDEX_IGNORE));
    assert_int_equal(item(report, 0).fault, HEFT_FAULT_SAVE_INTERRUPTED);
    heft_report_free(report);
}

static void test_sets_without_index(void **state) {
    (void)state;
    shard("plain/n-00001-of-00004.safetensors", "a", NULL);
    shard("plain/n-00003-of-00004.safetensors", "a c", NULL);
    judge(test_path("plain"), "E:shard-numbering W:no-index E:shared-name");
    assert_int_equal(symlink("gone", test_path("plain/n-00002-of-00004.safetensors")), 0);
    heft_report *report = check(test_path("plain/n-*"), NULL);
    verdict(report, false, "E:missing-shard E:shared-name");
    heft_report_free(report);
}

static void test_numbers_of_an_index(void **state) {
    (void)state;
    shard("gap/m-00001-of-00003.safetensors", "a b c", NULL);
    set_index("gap/model.safetensors.index.json", "a=m-00001-of-00003 b=m-00001-of-00003 c=m-00001-of-00003");
    judge(test_path("gap"), "W:shard-numbering");
    shard("gap/m-00002-of-00003.safetensors", "", NULL); /* shards without tensors, that no index names */
    shard("gap/m-00003-of-00003.safetensors", "", NULL);
    judge(test_path("gap"), "W:orphan-shard W:orphan-shard");
    shard("mixed/m-00001-of-00002.safetensors", "a", NULL);
    shard("mixed/m-00002-of-00003.safetensors", "b c", NULL);
    set_index("mixed/model.safetensors.index.json", "a=m-00001-of-00002 b=m-00002-of-00003 c=m-00002-of-00003");
    judge(test_path("mixed"), "W:shard-numbering");
    shard("above/m-00001-of-00002.safetensors", "a", NULL);
    shard("above/m-00002-of-00002.safetensors", "b", NULL);
    shard("above/m-00007-of-00002.safetensors", "c", NULL);
    judge(test_path("above"), "E:shard-numbering W:no-index");
    set_index("above/model.safetensors.index.json", "a=m-00001-of-00002 b=m-00002-of-00002 c=m-00007-of-00002");
    judge(test_path("above"), "W:shard-numbering");
    heft_report *report = check(test_path("above"), NULL);
    assert_non_null(strstr(item(report, 0).message, "it names 1 shard with a number that is not from 1 to the total: "
                                                    "\"m-00007-of-00002.safetensors\""));
    heft_report_free(report);
}

static void test_bad_index(void **state) {
    (void)state;
    shard("badindex/one.safetensors", "a", NULL);
    shard("badindex/two.safetensors", "a", NULL);
    text("badindex/model.safetensors.index.json", "{\"weight_map\":{\"a\":\"../one.safetensors\"}}");
    judge(test_path("badindex"), "E:shard-name E:shared-name");
    judge(test_path("badindex/model.safetensors.index.json"), "E:shard-name E:shared-name");
    text("badindex/model.safetensors.index.json", "{\"weight_map\":[]}");
    judge(test_path("badindex"), "E:index-syntax E:shared-name");
}

static void test_empty_tensors(void **state) {
    (void)state;
    test_tensor tensors[10];
    char names[10][8];
    for (int i = 0; i < 10; i++) {
        snprintf(names[i], sizeof names[i], "t%d", i);
        tensors[i] = (test_tensor){names[i], "F32", i < 3 ? "0" : "1", NULL, i < 3 ? 0 : 4};
    }
    judge(test_write_safetensors("empties", tensors, 10, NULL), "W:empty-tensors");
    judge(test_write_safetensors("few", tensors + 1, 9, NULL), "");
}

static void test_fillers(void **state) {
    (void)state;
    const test_tensor a[] = {{"a", "F32", "64", NULL, 256}, {"__heft_pad__.00000000", "U8", "44", NULL, 44}};
    heft_report *report = check(test_write_safetensors("fill", a, 2, NULL), NULL);
    heft_report_summary sum;
    verdict(report, false, "N:fillers");
    heft_report_summarize(report, &sum);
    assert_int_equal(sum.nfillers, 1);
    assert_int_equal(sum.ntensors, 2);
    heft_report_free(report);
}

static void test_one_source(void **state) {
    (void)state;
    size_t n;
    uint8_t *data = test_safetensors(&(test_tensor){"a", "U8", "1", NULL, 1}, 1, NULL, &n);
    test_bytes bytes = {.data = data, .nbytes = n - 1};
    heft_source *source = test_source(&bytes);
    heft_report *report;
    heft_error err;
    assert_int_equal(heft_check_source(source, NULL, &report, &err), HEFT_OK);
    heft_source_unref(source);
    verdict(report, false, "E:truncated"); /* the report holds what it needs */
    heft_report_free(report);
    assert_int_equal(bytes.released, 1);
    bytes = (test_bytes){.data = data, .nbytes = n, .fail_call = 1, .fail_errno = 5};
    source = test_source(&bytes);
    assert_int_equal(heft_check_source(source, NULL, &report, &err), HEFT_IO);
    assert_null(report);
    assert_int_equal(heft_check_source(NULL, NULL, &report, &err), HEFT_INVALID_ARGUMENT);
    heft_source_unref(source);
    free(data);
}

static void test_out_of_memory(void **state) {
    (void)state;
    static const char *const names[] = {"damaged", "set", "plain", "badindex", "gap", "empties"};
    int fds = test_count_fds();
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[2048];
        snprintf(path, sizeof path, "%s", test_path(names[i]));
        for (uint64_t k = 1;; k++) {
            test_allocator t;
            test_allocator_init(&t, k);
            heft_report *report = NULL;
            heft_error err;
            heft_status status = heft_check(path, OPTIONS(.allocator = &t.alloc, .workers = 2), &report, &err);
            if (status) assert_null(report);
            heft_report_free(report);
            assert_int_equal(t.live_blocks, 0);
            assert_int_equal(test_count_fds(), fds);
            if (status == HEFT_OK) break;
            assert_int_equal(status, HEFT_OUT_OF_MEMORY);
        }
    }
}

/* Too few descriptors are no fault of what is checked: the check does not pass, fail or judge half of it. */
static void test_no_descriptors_left(void **state) {
    (void)state;
    shard("scarce/m-1.safetensors", "a", NULL);
    shard("scarce/m-2.safetensors", "b", NULL);
    set_index("scarce/model.safetensors.index.json", "a=m-1 b=m-2");
    const char *path = test_path("scarce");
    const heft_open_options one = {.struct_size = sizeof one, .workers = 1};
    struct rlimit before, few;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    int next = dup(0);
    assert_true(next > 2);
    close(next);
    for (rlim_t extra = 0;; extra++) {
        heft_report *report;
        heft_error err;
        few = (struct rlimit){.rlim_cur = (rlim_t)next + extra, .rlim_max = before.rlim_max};
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
        heft_status status = heft_check(path, &one, &report, &err);
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
        if (status == HEFT_OK) {
            heft_report_free(report);
            assert_in_range(extra, 3, 6); /* the folder and two files at least */
            return;
        }
        assert_null(report);
        assert_int_equal(status, HEFT_LIMIT);
        assert_int_equal(err.fault, HEFT_FAULT_CALLER_LIMIT);
        assert_int_equal(err.sys_errno, EMFILE);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whole_file),
        cmocka_unit_test(test_no_verdict),
        cmocka_unit_test(test_damaged_file),
        cmocka_unit_test(test_overlap_accounting),
        cmocka_unit_test(test_wrong_files),
        cmocka_unit_test(test_hole_accounting),
        cmocka_unit_test(test_notes_and_lenient),
        cmocka_unit_test(test_whole_set),
        cmocka_unit_test(test_sets_without_index),
        cmocka_unit_test(test_numbers_of_an_index),
        cmocka_unit_test(test_bad_index),
        cmocka_unit_test(test_empty_tensors),
        cmocka_unit_test(test_fillers),
        cmocka_unit_test(test_one_source),
        cmocka_unit_test(test_no_descriptors_left),
        cmocka_unit_test(test_out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
