/* Files that are laid over a checkpoint: what they replace, what is said about it, and that all that follows sees one archive.
 */
#include "helper_files.h"
#include "helper_filter.h"
#include "helper_load.h"

static heft_error err;

#define OK(call)                                                                                                       \
    do                                                                                                                 \
        if ((call) != HEFT_OK) fail_msg("%s:%d: %s", __FILE__, __LINE__, err.message);                                 \
    while (0)

static const char over[] = "over", extra[] = "over/extra_weights.safetensors";

static uint8_t ones[64], twos[64], threes[64];

static void write_file(const char *name, const char *const *names, const char *shape, size_t nbytes, const void *data) {
    test_tensor tensors[8];
    size_t n = 0;
    for (; names[n]; n++) tensors[n] = (test_tensor){names[n], "U8", shape, data, nbytes};
    test_write_safetensors(name, tensors, n, NULL);
}

/* over/: model.safetensors holds a, b, vision; extra_weights a (as it was), b (another shape), mtp.c; last.safetensors a, d. */
static int make_files(void **state) {
    (void)state;
    static const char *const base[] = {"a", "b", "model.visual.v", NULL}, *const same[] = {"a", "mtp.c", NULL},
                      *const last[] = {"a", "d", NULL};
    memset(ones, 1, sizeof ones);
    memset(twos, 2, sizeof twos);
    memset(threes, 3, sizeof threes);
    test_mkdir(over);
    test_mkdir("apart");
    write_file("over/model.safetensors", base, "2,3", 6, ones);
    test_tensor tensors[] = {{same[0], "U8", "2,3", twos, 6}, {"b", "I8", "8", twos, 8}, {same[1], "U8", "4", twos, 4}};
    test_write_safetensors(extra, tensors, 3, NULL);
    write_file("apart/last.safetensors", last, "2,3", 6, threes);
    return 0;
}

static heft_archive *opened(const char *path, const heft_open_options *options) {
    heft_archive *archive;
    OK(heft_archive_open(path, options, &archive, &err));
    return archive;
}

static uint8_t first_byte(const heft_archive *archive, const char *name) {
    uint64_t id;
    heft_buffer bytes;
    OK(heft_archive_find(archive, name, SIZE_MAX, &id, &err));
    uint64_t place;
    OK(heft_read_many(archive, &id, 1, NULL, &bytes, &place, NULL, &err));
    uint8_t byte = ((uint8_t *)bytes.data)[place];
    heft_buffer_release(&bytes);
    return byte;
}

/* The replacements in the warnings of an archive, "name:loser>winner" by base names; capital N or W for the severity. */
static void replaced_are(const heft_archive *archive, const char *expected) {
    const heft_report *report = heft_archive_warnings(archive);
    char text[600] = "";
    for (uint64_t i = 0; i < heft_report_count(report); i++) {
        heft_severity severity;
        heft_error fault;
        OK(heft_report_get(report, i, &severity, &fault, &err));
        if (fault.fault != HEFT_FAULT_REPLACED) continue;
        const char *winner = strstr(fault.message, "is replaced by that of ");
        assert_non_null(winner);
        assert_int_equal(fault.status, HEFT_MISMATCH);
        assert_true(fault.offset != HEFT_NONE);
        char by[200];
        snprintf(by, sizeof by, "%s", strrchr(winner, '/') + 1);
        by[strcspn(by, " ")] = 0;
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%c %s:%s>%s", *text ? ", " : "",
                 severity == HEFT_SEVERITY_NOTE ? 'N' : 'W', fault.tensor, strrchr(fault.file, '/') + 1, by);
    }
    assert_string_equal(text, expected);
}

static void without_the_option(void **state) {
    (void)state;
    heft_archive *archive = opened(test_path(over), NULL);
    assert_int_equal(heft_archive_count(archive), 3);
    assert_int_equal(first_byte(archive, "a"), 1);
    assert_int_equal(heft_report_count(heft_archive_warnings(archive)), 0);
    heft_archive_unref(archive);
}

static void as_atlas_does(void **state) {
    (void)state;
    const heft_open_options options = {.struct_size = sizeof options, .atlas_overlay = true};
    heft_archive *archive = opened(test_path(over), &options);
    heft_file file;
    assert_int_equal(heft_archive_count(archive), 4);
    assert_int_equal(heft_archive_file_count(archive), 2);
    assert_int_equal(first_byte(archive, "a"), 2);
    assert_int_equal(first_byte(archive, "b"), 2);
    assert_int_equal(first_byte(archive, "mtp.c"), 2);
    assert_int_equal(first_byte(archive, "model.visual.v"), 1);
    replaced_are(archive, "N a:model.safetensors>extra_weights.safetensors, "
                          "W b:model.safetensors>extra_weights.safetensors");
    OK(heft_archive_file(archive, 0, &file, &err));
    assert_true(file.ntensors == 1 && file.nreplaced == 2 && file.nwithheld == 0 && !file.overlay);
    OK(heft_archive_file(archive, 1, &file, &err));
    assert_true(file.ntensors == 3 && file.nreplaced == 0 && file.overlay);
    heft_archive_unref(archive);
    /* a path that is one file has nothing beside it */
    archive = opened(test_path("over/model.safetensors"), &options);
    assert_int_equal(heft_archive_file_count(archive), 1);
    heft_archive_unref(archive);
    archive = opened(test_path("over/*.safetensors"), &options);
    assert_int_equal(heft_archive_count(archive), 4);
    heft_archive_unref(archive);
    /* a file that is not there is none */
    archive = opened(test_path("apart"), &options);
    assert_int_equal(heft_archive_count(archive), 2);
    heft_archive_unref(archive);
    heft_open_options strict = options;
    strict.strict = true;
    assert_int_equal(heft_archive_open(test_path(over), &strict, &archive, &err), HEFT_MISMATCH);
    assert_int_equal(err.fault, HEFT_FAULT_REPLACED);
    assert_string_equal(err.tensor, "b");
    assert_non_null(strstr(err.message, "(U8 [2, 3]) is replaced"));
    assert_non_null(strstr(err.message, "(I8 [8])"));
}

/* The folder of rule 5, of the index that ignores it, and of the one that names it. */
static void beside_an_index(void **state) {
    (void)state;
    static const char *const base[] = {"a", "x", NULL}, *const more[] = {"a", NULL};
    const heft_open_options options = {.struct_size = sizeof options, .atlas_overlay = true};
    heft_archive *archive;
    test_mkdir("index");
    write_file("index/one.safetensors", base, "6", 6, ones);
    write_file("index/extra_weights.safetensors", more, "6", 6, twos);
    archive = opened(test_path("index"), &options); /* else ambiguous */
    assert_int_equal(first_byte(archive, "a"), 2);
    heft_archive_unref(archive);
    assert_int_equal(heft_archive_open(test_path("index"), NULL, &archive, &err), HEFT_NOT_FOUND);
    assert_int_equal(err.fault, HEFT_FAULT_AMBIGUOUS);
    static const char only[] = "{\"metadata\":{\"total_size\":6},\"weight_map\":{\"a\":\"one.safetensors\"}}",
                      both[] = "{\"weight_map\":{\"x\":\"one.safetensors\",\"a\":\"extra_weights.safetensors\"}}";
    const char *path = test_write("index/model.safetensors.index.json", only, sizeof only - 1);
    archive = opened(path, &options);
    assert_int_equal(heft_archive_count(archive), 1);
    assert_int_equal(first_byte(archive, "a"), 2);
    assert_int_equal(heft_report_count_of(heft_archive_warnings(archive), HEFT_SEVERITY_WARNING), 1); /* x: not named */
    replaced_are(archive, "N a:one.safetensors>extra_weights.safetensors");
    heft_filter_result *result = applied(archive, NULL);
    assert_accounts(archive, result);
    heft_filter_result_free(result);
    heft_archive_unref(archive);
    test_write("index/model.safetensors.index.json", both, sizeof both - 1);
    archive = opened(test_path("index"), &options);
    replaced_are(archive, "");
    heft_file file;
    OK(heft_archive_file(archive, 0, &file, &err));
    assert_false(file.overlay);
    assert_int_equal(heft_archive_count(archive), 2);
    heft_archive_unref(archive);
    heft_open_options ignore = options;
    ignore.index = HEFT_INDEX_IGNORE;
    archive = opened(test_path("index"), &ignore);
    assert_int_equal(first_byte(archive, "a"), 2);
    replaced_are(archive, "N a:one.safetensors>extra_weights.safetensors");
    heft_archive_unref(archive);
}

/* Each lies over all before it; the one of Atlas is the first. */
static void several(void **state) {
    (void)state;
    char last[400];
    snprintf(last, sizeof last, "%s", test_path("apart/last.safetensors"));
    const char *paths[] = {last};
    const heft_open_options options = {
        .struct_size = sizeof options, .atlas_overlay = true, .overlays = paths, .noverlays = 1};
    heft_archive *archive = opened(test_path(over), &options);
    assert_int_equal(heft_archive_count(archive), 5);
    assert_int_equal(first_byte(archive, "a"), 3);
    assert_int_equal(first_byte(archive, "b"), 2);
    replaced_are(archive, "N a:model.safetensors>last.safetensors, W b:model.safetensors>extra_weights.safetensors, "
                          "N a:extra_weights.safetensors>last.safetensors");
    heft_archive_unref(archive);
    /* over a list, and over a source */
    char base[400];
    snprintf(base, sizeof base, "%s", test_path("over/model.safetensors"));
    const char *list[] = {base};
    heft_open_options only = options;
    OK(heft_archive_open_files(list, 1, &only, &archive, &err));
    assert_int_equal(heft_archive_count(archive), 4);
    heft_archive_unref(archive);
    heft_source *source;
    OK(heft_source_open_file(base, &source, &err));
    OK(heft_archive_open_source(source, &only, &archive, &err));
    assert_int_equal(first_byte(archive, "d"), 3);
    heft_archive_unref(archive);
    heft_source_unref(source);
}

/* A file of the folder itself that is given as an overlay is no part of the set beneath. */
static void of_the_same_folder(void **state) {
    (void)state;
    static const char *const base[] = {"a", "x", NULL}, *const fix[] = {"a", NULL};
    char path[400], folder[400];
    const char *paths[] = {path};
    test_mkdir("pair");
    write_file("pair/any.safetensors", base, "6", 6, ones);
    write_file("pair/fix.safetensors", fix, "6", 6, twos);
    snprintf(path, sizeof path, "%s", test_path("pair/fix.safetensors"));
    heft_open_options options = {.struct_size = sizeof options, .overlays = paths, .noverlays = 1};
    static const char *const ways[] = {"pair", "pair/", "pair/*.safetensors"};
    for (size_t i = 0; i < 3; i++) { /* else ambiguous, or a name that two files share */
        heft_archive *archive = opened(test_path(ways[i]), &options);
        assert_int_equal(heft_archive_file_count(archive), 2);
        assert_int_equal(first_byte(archive, "a"), 2);
        replaced_are(archive, "N a:any.safetensors>fix.safetensors");
        heft_archive_unref(archive);
    }
    static const char index[] = "{\"weight_map\":{\"a\":\"any.safetensors\",\"x\":\"any.safetensors\"}}";
    heft_report *report;
    test_write("pair/model.safetensors.index.json", index, sizeof index - 1);
    OK(heft_check(test_path("pair"), &options, &report, &err));
    assert_int_equal(heft_report_count(report), 1); /* the replacement: no orphan */
    heft_report_free(report);
    /* given by name, and the one of Atlas: it is one file */
    snprintf(path, sizeof path, "%s", test_path(extra));
    options.atlas_overlay = true;
    snprintf(folder, sizeof folder, "%s", test_path(over));
    heft_archive *archive = opened(folder, &options);
    assert_int_equal(heft_archive_file_count(archive), 2);
    heft_archive_unref(archive);
}

static void refusals(void **state) {
    (void)state;
    char path[400];
    const char *paths[] = {path};
    heft_open_options options = {.struct_size = sizeof options, .overlays = paths, .noverlays = 1};
    heft_archive *archive;
    heft_report *report;
    snprintf(path, sizeof path, "%s", test_path("nowhere.safetensors"));
    assert_int_equal(heft_archive_open(test_path(over), &options, &archive, &err), HEFT_NOT_FOUND);
    assert_string_equal(err.file, path);
    assert_int_equal(heft_check(test_path(over), &options, &report, &err), HEFT_NOT_FOUND);
    snprintf(path, sizeof path, "%s", test_mkdir("apart"));
    assert_int_equal(heft_archive_open(test_path(over), &options, &archive, &err), HEFT_INVALID_ARGUMENT);
    snprintf(path, sizeof path, "%s", test_write("short.safetensors", "12345678", 8));
    assert_int_equal(heft_archive_open(test_path(over), &options, &archive, &err), HEFT_CORRUPT);
    assert_string_equal(err.file, path);
    OK(heft_check(test_path(over), &options, &report, &err));
    assert_true(heft_report_count_of(report, HEFT_SEVERITY_ERROR) == 1);
    heft_report_free(report);
    paths[0] = NULL;
    assert_int_equal(heft_archive_open(test_path(over), &options, &archive, &err), HEFT_INVALID_ARGUMENT);
    options.overlays = NULL;
    assert_int_equal(heft_archive_open(test_path(over), &options, &archive, &err), HEFT_INVALID_ARGUMENT);
    paths[0] = path;
    snprintf(path, sizeof path, "%s", test_path("apart/last.safetensors"));
    options.overlays = paths;
    OK(heft_check(test_path(over), &options, &report, &err));
    assert_true(heft_report_count_of(report, HEFT_SEVERITY_NOTE) == 1);
    heft_report_free(report);
}

/* No rule takes an overlay's tensors away, but cuts apply; the sums are those of the files. */
static void under_a_filter(void **state) {
    (void)state;
    const heft_open_options options = {.struct_size = sizeof options, .atlas_overlay = true};
    heft_archive *archive = opened(test_path(over), &options);
    static const char *const all[] = {"*"}, *const none[] = {"nothing"}, *const demanded[] = {"a"};
    static const heft_tp_rule cut[] = {{"b", 0}};
    heft_filter filter = {.struct_size = sizeof filter, .exclude = all, .nexclude = 1, .skip_mtp = true, .defer = all,
                          .ndefer = 1, .demand = demanded, .ndemand = 1, .tp_rules = cut, .ntp_rules = 1, .tp_rank = 1,
                          .tp_world = 4};
    heft_filter_result *result = applied(archive, &filter);
    heft_filter_summary sum;
    heft_view view;
    uint64_t id;
    assert_accounts(archive, result);
    assert_int_equal(rule_of(archive, result, "a"), HEFT_RULE_OVERLAY);
    assert_int_equal(rule_of(archive, result, "b"), HEFT_RULE_OVERLAY);
    assert_int_equal(rule_of(archive, result, "mtp.c"), HEFT_RULE_OVERLAY);
    assert_int_equal(rule_of(archive, result, "model.visual.v"), HEFT_RULE_EXCLUDE);
    heft_filter_summarize(result, &sum);
    assert_true(sum.kept_ntensors == 3 && sum.withheld_ntensors == 3 && sum.part_nbytes == 6 + 2 + 4);
    OK(heft_archive_find(archive, "b", SIZE_MAX, &id, &err));
    OK(heft_filter_view(result, id, &view, &err));
    assert_int_equal(heft_view_nbytes(&view), 2);
    heft_filter_result_free(result);
    heft_filter globs = {.struct_size = sizeof globs, .include = none, .ninclude = 1};
    result = applied(archive, &globs);
    assert_accounts(archive, result);
    assert_int_equal(rule_of(archive, result, "model.visual.v"), HEFT_RULE_NOT_INCLUDED);
    heft_filter_result_free(result);
    heft_archive_unref(archive);
}

/* Loads, iterators in every order, audits: one archive. */
static void loads(void **state) {
    (void)state;
    static const uint64_t eight[] = {8};
    static const heft_expected expected[] = {{"a", HEFT_U8, 2, NULL}, {"b", HEFT_I8, 1, eight},
                                             {"mtp.c", HEFT_U8, 1, NULL}};
    const heft_open_options options = {.struct_size = sizeof options, .atlas_overlay = true};
    heft_archive *archive = opened(test_path(over), &options);
    heft_weights *weights;
    heft_load_options all = {.struct_size = sizeof all};
    OK(heft_load(archive, &all, &weights, NULL, &err));
    assert_int_equal(heft_weights_count(weights), 4);
    for (uint64_t i = 0; i < 4; i++) {
        heft_loaded loaded;
        OK(heft_weights_at(weights, HEFT_LOAD_ORDER_FILE, i, &loaded, &err));
        assert_tensor(archive, i, loaded.data, loaded.nbytes);
    }
    heft_weights_unref(weights);
    heft_filter filter = {.struct_size = sizeof filter, .skip_vision = true, .skip_mtp = true};
    for (heft_load_order order = 0; order <= HEFT_LOAD_ORDER_COMPLETION; order++) {
        heft_load_options some = {.struct_size = sizeof some, .filter = &filter};
        heft_load_plan *plan;
        heft_load_iter *iter;
        heft_loaded item;
        uint64_t n = 0;
        OK(heft_load_plan_new(archive, &some, &plan, &err));
        OK(heft_load_plan_audit(plan, expected, 3, false, NULL, NULL, &err));
        OK(heft_load_iter_new(plan, order, order == 1 ? 4096 : 0, &iter, &err));
        for (;; n++) {
            OK(heft_load_iter_next(iter, &item, &err));
            if (!item.name) break;
            assert_int_equal(item.file, 1);
            assert_tensor(archive, item.id, item.data, item.nbytes);
            heft_load_iter_release(iter, &item);
        }
        assert_int_equal(n, 3);
        heft_load_iter_free(iter, NULL);
        heft_load_plan_free(plan);
    }
    heft_archive_unref(archive);
}

/* Every allocation of an open with an index and two overlays fails in turn. */
static void allocation_failures(void **state) {
    (void)state;
    char last[400];
    snprintf(last, sizeof last, "%s", test_path("apart/last.safetensors"));
    const char *paths[] = {last};
    for (uint64_t k = 1;; k++) {
        test_allocator t;
        heft_archive *archive;
        test_allocator_init(&t, k);
        const heft_open_options options = {.struct_size = sizeof options, .atlas_overlay = true, .overlays = paths,
                                           .noverlays = 1, .workers = 1, .allocator = &t.alloc};
        heft_status status = heft_archive_open(test_path("index"), &options, &archive, &err);
        if (status == HEFT_OK) heft_archive_unref(archive);
        assert_int_equal(t.live_blocks, 0);
        if (status == HEFT_OK) break;
        assert_int_equal(status, HEFT_OUT_OF_MEMORY);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_the_option), cmocka_unit_test(as_atlas_does), cmocka_unit_test(beside_an_index),
        cmocka_unit_test(several),            cmocka_unit_test(refusals),      cmocka_unit_test(under_a_filter),
        cmocka_unit_test(of_the_same_folder),
        cmocka_unit_test(loads),              cmocka_unit_test(allocation_failures),
    };
    return cmocka_run_group_tests(tests, make_files, NULL);
}
