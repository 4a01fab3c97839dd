/* Which files a path means: every shape of folder, every check between an index and its shards. */
#include "helper_files.h"

#include "ops/ops.h"

#include <unistd.h>

/* test_path that stays valid for the whole test: helpers here make many paths. */
static const char *place(const char *name) {
    static char kept[8][2048];
    static unsigned next;
    char *path = kept[next++ % 8];
    snprintf(path, sizeof kept[0], "%s", test_path(name));
    return path;
}

static const char *folder(const char *name) {
    test_mkdir(name);
    return place(name);
}

/* A shard with tensors of 4 bytes named in `names`, divided by blanks. */
static const char *shard(const char *path, const char *names) {
    test_tensor tensors[16];
    char copy[400];
    size_t n = 0;
    snprintf(copy, sizeof copy, "%s", names);
    for (char *name = strtok(copy, " "); name; name = strtok(NULL, " "))
        tensors[n++] = (test_tensor){name, "F32", "1", NULL, 4};
    return test_write_safetensors(path, tensors, n, NULL);
}

static void text(const char *path, const char *content) {
    test_write(path, content, strlen(content));
}

/* An index whose map is "name=shard name=shard"; total_size is left out if negative. */
static const char *index_file(const char *path, const char *map, long total) {
    char json[4000] = "{\"weight_map\":{", copy[1000];
    const char *comma = "";
    snprintf(copy, sizeof copy, "%s", map);
    for (char *name = strtok(copy, " "); name; name = strtok(NULL, " ")) {
        char *file = strchr(name, '=');
        *file++ = 0;
        snprintf(json + strlen(json), sizeof json - strlen(json), "%s\"%s\":\"%s\"", comma, name, file);
        comma = ",";
    }
    strcat(json, "}");
    if (total >= 0)
        snprintf(json + strlen(json), sizeof json - strlen(json), ",\"metadata\":{\"total_size\":%ld}", total);
    strcat(json, "}");
    return test_write(path, json, strlen(json));
}

/* Two shards with an index: a and b in the first, c in the second. */
static const char *two_shards(const char *name) {
    char path[200];
    snprintf(path, sizeof path, "%s/model-00001-of-00002.safetensors", name);
    shard(path, "a b");
    snprintf(path, sizeof path, "%s/model-00002-of-00002.safetensors", name);
    shard(path, "c");
    snprintf(path, sizeof path, "%s/model.safetensors.index.json", name);
    index_file(
        path,
        "a=model-00001-of-00002.safetensors b=model-00001-of-00002.safetensors c=model-00002-of-00002.safetensors", 12);
    return place(name);
}

static void names_of(const heft_archive *archive, char *out) {
    const uint64_t *ids;
    *out = 0;
    assert_int_equal(heft_archive_order(archive, HEFT_ORDER_NAME, &ids, NULL), HEFT_OK);
    for (uint64_t i = 0; i < heft_archive_count(archive); i++) {
        heft_tensor t;
        uint64_t id;
        assert_int_equal(heft_archive_get(archive, ids[i], &t, NULL), HEFT_OK);
        assert_int_equal(heft_archive_find(archive, t.name, t.name_len, &id, NULL), HEFT_OK);
        assert_int_equal(id, ids[i]);
        strcat(strcat(out, *out ? " " : ""), t.name);
    }
}

static void kinds_of(const heft_report *report, char *out) {
    *out = 0;
    for (uint64_t i = 0; i < heft_report_count(report); i++) {
        heft_severity severity;
        heft_error fault;
        assert_int_equal(heft_report_get(report, i, &severity, &fault, NULL), HEFT_OK);
        assert_true(fault.message[0] && fault.status != HEFT_OK);
        strcat(strcat(out, *out ? " " : ""), heft_fault_name(fault.fault));
    }
}

/* Opens; the tensors must be `names`, the warnings `kinds`. */
static void opens(const char *path, const heft_open_options *options, const char *how, const char *names,
                  const char *kinds) {
    heft_archive *archive;
    heft_error err;
    char found[1000];
    int fds = test_count_fds();
    if (heft_archive_open(path, options, &archive, &err)) fail_msg("%s", err.message);
    names_of(archive, found);
    assert_string_equal(found, names);
    kinds_of(heft_archive_warnings(archive), found);
    assert_string_equal(found, kinds);
    if (how) assert_string_equal(heft_archive_resolution(archive), how);
    assert_string_equal(heft_archive_path(archive), path);
    heft_archive_unref(archive);
    assert_int_equal(test_count_fds(), fds);
}

/* Does not open; `parts` (NULL-terminated) must be in the message. */
static heft_error refuses(const char *path, const heft_open_options *options, heft_status status, heft_fault fault,
                          ...) {
    heft_archive *archive = NULL;
    heft_error err;
    int fds = test_count_fds();
    heft_status got = heft_archive_open(path, options, &archive, &err);
    if (got != status || err.fault != fault)
        fail_msg("%s: %s (%s) instead of %s (%s): %s", path, heft_status_name(got),
                 got ? heft_fault_name(err.fault) : "", heft_status_name(status), heft_fault_name(fault),
                 got ? err.message : "it opens");
    assert_null(archive);
    assert_int_equal(err.status, status);
    va_list args;
    va_start(args, fault);
    for (const char *part; (part = va_arg(args, const char *));)
        if (!strstr(err.message, part)) fail_msg("\"%s\" is not in: %s", part, err.message);
    va_end(args);
    assert_int_equal(heft_archive_open(path, options, &archive, NULL), status);
    assert_int_equal(test_count_fds(), fds);
    return err;
}

#define OPTIONS(...) (&(heft_open_options){.struct_size = sizeof(heft_open_options), __VA_ARGS__})

/* ---- folders ---- */

static void test_folder_rules(void **state) {
    (void)state;
    const char *dir = folder("rules");
    refuses(dir, NULL, HEFT_NOT_FOUND, HEFT_FAULT_NO_CHECKPOINT, "looked for", "it holds nothing", NULL);
    text("rules/config.json", "{}");
    refuses(dir, NULL, HEFT_NOT_FOUND, HEFT_FAULT_NO_CHECKPOINT, "it holds config.json", NULL);
    /* From the last rule to the first: each file that comes takes over. */
    shard("rules/only.safetensors", "only");
    opens(dir, NULL, "one file", "only", "");
    shard("rules/second.safetensors", "second");
    refuses(dir, NULL, HEFT_NOT_FOUND, HEFT_FAULT_AMBIGUOUS, "only.safetensors", "second.safetensors", "glob", NULL);
    shard("rules/adapter_model.safetensors", "adapter");
    opens(dir, NULL, "one file", "adapter", "");
    shard("rules/diffusion_pytorch_model.safetensors", "diffusion");
    opens(dir, NULL, "one file", "diffusion", "");
    shard("rules/consolidated-b.safetensors", "cb");
    shard("rules/consolidated-a.safetensors", "ca");
    opens(dir, NULL, "numbered shards", "ca cb", "no-index");
    shard("rules/model.safetensors-x.safetensors", "mx");
    opens(dir, NULL, "numbered shards", "mx", "");
    shard("rules/any-00002-of-00002.safetensors", "a2");
    shard("rules/any-00001-of-00002.safetensors", "a1");
    opens(dir, NULL, "numbered shards", "a1 a2", "no-index");
    shard("rules/weights.safetensors", "weights");
    opens(dir, NULL, "one file", "weights", "");
    shard("rules/consolidated.safetensors", "consolidated");
    opens(dir, NULL, "one file", "consolidated", "");
    shard("rules/model.safetensors", "model");
    opens(dir, NULL, "one file", "model", "");
    index_file("rules/other.safetensors.index.json", "a1=any-00001-of-00002.safetensors", -1);
    opens(dir, NULL, "index file", "a1", "");
    index_file("rules/more.safetensors.index.json", "a2=any-00002-of-00002.safetensors", -1);
    refuses(dir, NULL, HEFT_NOT_FOUND, HEFT_FAULT_AMBIGUOUS, "index files", "other.safetensors.index.json", NULL);
    index_file("rules/consolidated.safetensors.index.json", "ca=consolidated-a.safetensors", -1);
    opens(dir, NULL, "index file", "ca", "shadowed-file");
    index_file("rules/model.safetensors.index.json", "cb=consolidated-b.safetensors", -1);
    opens(dir, NULL, "index file", "cb", "shadowed-file");
    opens(dir, OPTIONS(.index = HEFT_INDEX_IGNORE), "all files of the folder",
          "a1 a2 adapter ca cb consolidated diffusion model mx only second weights", "");
    char slash[2100];
    snprintf(slash, sizeof slash, "%s/", dir);
    opens(slash, NULL, "index file", "cb", "shadowed-file");
}

static void test_index_path(void **state) {
    (void)state;
    two_shards("two");
    opens(test_path("two"), NULL, "index file", "a b c", "");
    const char *index = test_path("two/model.safetensors.index.json");
    opens(index, NULL, "index file", "a b c", "");
    opens(index, OPTIONS(.index = HEFT_INDEX_IGNORE), "all files of the folder", "a b c", "");
    heft_archive *archive;
    assert_int_equal(heft_archive_open(index, NULL, &archive, NULL), HEFT_OK);
    assert_string_equal(heft_archive_index_path(archive), index);
    assert_int_equal(heft_archive_file_count(archive), 2);
    heft_archive_unref(archive);
    char old[2000];
    assert_non_null(getcwd(old, sizeof old));
    assert_int_equal(chdir(test_path("two")), 0);
    opens("model.safetensors.index.json", NULL, "index file", "a b c", "");
    opens("model-*.safetensors", NULL, "glob", "a b c", "");
    opens(".", NULL, "index file", "a b c", "");
    assert_int_equal(chdir(old), 0);
    refuses(test_path("two/none.safetensors.index.json"), NULL, HEFT_NOT_FOUND, HEFT_FAULT_NO_FILE,
            "none.safetensors.index.json", NULL);
    refuses(test_path("none/model.safetensors.index.json"), NULL, HEFT_NOT_FOUND, HEFT_FAULT_NO_FILE, NULL);
}

static void test_globs(void **state) {
    (void)state;
    two_shards("globs");
    shard("globs/.model-hidden.safetensors", "hidden");
    shard("globs/odd[1].safetensors", "odd");
    opens(test_path("globs/model-*.safetensors"), NULL, "glob", "a b c", "");
    opens(test_path("globs/model-0000[2-9]*"), NULL, "glob", "c", "");
    opens(test_path("globs/.model*.safetensors"), NULL, "glob", "hidden", "");
    refuses(test_path("globs/*hidden*"), NULL, HEFT_NOT_FOUND, HEFT_FAULT_NO_FILE, NULL); /* a dot wants a dot */
}

static void test_globs_refused(void **state) {
    (void)state;
    two_shards("globs2");
    shard("globs2/odd[1].safetensors", "odd");
    opens(test_path("globs2/odd[1].safetensors"), NULL, "one file", "odd", ""); /* the very name comes first */
    refuses(test_path("globs2/*.bin"), NULL, HEFT_NOT_FOUND, HEFT_FAULT_NO_FILE, "matches none", NULL);
    refuses(test_path("globs2/x[.safetensors"), NULL, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL, "offset 1", NULL);
    refuses(test_path("no*/model.safetensors"), NULL, HEFT_NOT_FOUND, HEFT_FAULT_NO_FILE, NULL);
    refuses(test_path("globs2/plain"), NULL, HEFT_NOT_FOUND, HEFT_FAULT_NO_FILE, "plain", NULL);
    shard("globs2/model-copy.safetensors", "c");
    heft_error err = refuses(test_path("globs2/model-*.safetensors"), NULL, HEFT_CORRUPT, HEFT_FAULT_SHARED_NAME, NULL);
    assert_string_equal(err.tensor, "c");
}

static void test_hub_cache(void **state) {
    (void)state;
    shard("cache/models--org--name/blobs/0123", "a b");
    text("cache/models--org--name/refs/main", "abcdef\n");
    test_mkdir("cache/models--org--name/snapshots/abcdef/unet");
    const char *link = test_path("cache/models--org--name/snapshots/abcdef/model.safetensors");
    assert_int_equal(symlink("../../blobs/0123", link), 0);
    const char *deep = test_path("cache/models--org--name/snapshots/abcdef/unet/model.safetensors");
    assert_int_equal(symlink("../../../blobs/0123", deep), 0);
    const heft_open_options *beneath = OPTIONS(.links = HEFT_LINKS_BENEATH);
    const char *root = place("cache/models--org--name"), *snapshot = place("cache/models--org--name/snapshots/abcdef");
    opens(root, NULL, "one file", "a b", "");
    opens(root, beneath, "one file", "a b", "");
    opens(snapshot, NULL, "one file", "a b", "");
    opens(snapshot, beneath, "one file", "a b", "");
    opens(test_path("cache/models--org--name/snapshots/abcdef/unet"), beneath, "one file", "a b", "");
    /* Out of the repository. */
    shard("cache/elsewhere.safetensors", "x");
    assert_int_equal(unlink(link), 0);
    assert_int_equal(symlink("../../../elsewhere.safetensors", link), 0);
    opens(root, NULL, "one file", "x", "");
    refuses(root, beneath, HEFT_PERMISSION, HEFT_FAULT_ACCESS, NULL);
    refuses(snapshot, beneath, HEFT_PERMISSION, HEFT_FAULT_ACCESS, NULL);
    /* A snapshot that is a link out of the repository takes what it may reach with it. */
    test_mkdir("cache/far/away");
    assert_int_equal(symlink("../../elsewhere.safetensors", test_path("cache/far/away/model.safetensors")), 0);
    assert_int_equal(symlink("../../far/away", test_path("cache/models--org--name/snapshots/linked")), 0);
    text("cache/models--org--name/refs/main", "linked");
    opens(root, NULL, "one file", "x", "");
    refuses(root, beneath, HEFT_PERMISSION, HEFT_FAULT_ACCESS, NULL);
    refuses(test_path("cache/models--org--name/snapshots/linked"), beneath, HEFT_PERMISSION, HEFT_FAULT_ACCESS, NULL);
    /* So does refs/main. */
    text("cache/far/main", "abcdef");
    assert_int_equal(unlink(test_path("cache/models--org--name/refs/main")), 0);
    assert_int_equal(symlink("../../far/main", test_path("cache/models--org--name/refs/main")), 0);
    opens(root, NULL, "one file", "x", "");
    refuses(root, beneath, HEFT_PERMISSION, HEFT_FAULT_ACCESS, "refs/main", NULL);
    assert_int_equal(unlink(test_path("cache/models--org--name/refs/main")), 0);
    /* What refs/main holds is a name, never a path. */
    text("cache/models--org--name/refs/main", "../../../two");
    refuses(root, NULL, HEFT_CORRUPT, HEFT_FAULT_SHARD_NAME, "refs/main", NULL);
    text("cache/models--org--name/refs/main", "\n");
    refuses(root, NULL, HEFT_CORRUPT, HEFT_FAULT_SHARD_NAME, NULL);
    text("cache/models--org--name/refs/main", "gone");
    refuses(root, NULL, HEFT_NOT_FOUND, HEFT_FAULT_NO_FILE, "snapshots/gone", NULL);
    assert_int_equal(unlink(test_path("cache/models--org--name/refs/main")), 0);
    refuses(root, NULL, HEFT_NOT_FOUND, HEFT_FAULT_NO_FILE, "refs/main", NULL);
}

static void test_links(void **state) {
    (void)state;
    const heft_open_options *beneath = OPTIONS(.links = HEFT_LINKS_BENEATH);
    shard("outside.safetensors", "a");
    shard("links/inside/x", "b");
    assert_int_equal(symlink("../outside.safetensors", test_path("links/model.safetensors")), 0);
    opens(test_path("links"), NULL, "one file", "a", "");
    refuses(test_path("links"), beneath, HEFT_PERMISSION, HEFT_FAULT_ACCESS, NULL);
    assert_int_equal(unlink(test_path("links/model.safetensors")), 0);
    assert_int_equal(symlink("inside/x", test_path("links/model.safetensors")), 0);
    opens(test_path("links"), beneath, "one file", "b", "");
    assert_int_equal(unlink(test_path("links/model.safetensors")), 0);
    assert_int_equal(symlink("gone", test_path("links/model.safetensors")), 0);
    refuses(test_path("links"), NULL, HEFT_NOT_FOUND, HEFT_FAULT_NO_FILE, "model.safetensors", NULL);
    refuses(test_path("links"), beneath, HEFT_NOT_FOUND, HEFT_FAULT_NO_FILE, "model.safetensors", NULL);
}

static void test_sub_folders(void **state) {
    (void)state;
    shard("pipeline/unet/diffusion_pytorch_model.safetensors", "u");
    shard("pipeline/unet/diffusion_pytorch_model.fp16.safetensors", "h");
    shard("pipeline/text_encoder/model.safetensors", "t");
    test_mkdir("pipeline/scheduler");
    text("pipeline/scheduler/scheduler_config.json", "{}");
    refuses(test_path("pipeline"), NULL, HEFT_NOT_FOUND, HEFT_FAULT_NO_CHECKPOINT, "would open: text_encoder, unet",
            NULL);
    text("pipeline/model_index.json", "{}");
    heft_error err = refuses(test_path("pipeline"), NULL, HEFT_NOT_FOUND, HEFT_FAULT_NO_CHECKPOINT,
                             "diffusers pipeline", "it holds model_index.json", "would open: text_encoder, unet", NULL);
    assert_null(strstr(err.message, "scheduler"));
    opens(test_path("pipeline/unet"), NULL, "one file", "u", "");
    opens(test_path("pipeline/unet"), OPTIONS(.variant = "fp16"), "one file", "h", "");
    refuses(test_path("pipeline"), OPTIONS(.variant = "fp16"), HEFT_NOT_FOUND, HEFT_FAULT_NO_CHECKPOINT,
            "variant \"fp16\"", "would open: unet", NULL);
}

static void test_variants(void **state) {
    (void)state;
    const heft_open_options *fp16 = OPTIONS(.variant = "fp16");
    const char *dir = folder("variant");
    shard("variant/model.safetensors", "full");
    refuses(dir, fp16, HEFT_NOT_FOUND, HEFT_FAULT_NO_CHECKPOINT, "variant \"fp16\"", NULL);
    shard("variant/other.fp16.safetensors", "other");
    opens(dir, fp16, "one file", "other", "");
    shard("variant/model-00001-of-00002.fp16.safetensors", "x1");
    shard("variant/model-00002-of-00002.fp16.safetensors", "x2");
    opens(dir, fp16, "numbered shards", "x1 x2", "no-index");
    assert_int_equal(unlink(test_path("variant/model-00001-of-00002.fp16.safetensors")), 0);
    assert_int_equal(unlink(test_path("variant/model-00002-of-00002.fp16.safetensors")), 0);
    shard("variant/model.fp16-00001-of-00002.safetensors", "h1");
    shard("variant/model.fp16-00002-of-00002.safetensors", "h2");
    opens(dir, fp16, "numbered shards", "h1 h2", "no-index");
    shard("variant/model.fp16.safetensors", "h");
    opens(dir, fp16, "one file", "h", "");
    index_file("variant/model.safetensors.index.fp16.json", "h2=model.fp16-00002-of-00002.safetensors", -1);
    opens(dir, fp16, "index file", "h2", "shadowed-file");
    opens(test_path("variant/model.safetensors.index.fp16.json"), NULL, "index file", "h2", "shadowed-file");
    index_file("variant/model.safetensors.index.json", "h1=model.fp16-00001-of-00002.safetensors", -1);
    opens(dir, fp16, "index file", "h2", "shadowed-file");
    opens(dir, NULL, "index file", "h1", "shadowed-file");
    opens(dir, OPTIONS(.variant = "fp16", .index = HEFT_INDEX_IGNORE), "all files of the folder", "h h1 h2 other", "");
}

/* Numbers that are none of 1 to the total: a file of another set, or renamed by hand. */
static void test_odd_numbers(void **state) {
    (void)state;
    const char *dir = folder("odd");
    shard("odd/m-00001-of-00002.safetensors", "a");
    shard("odd/m-00002-of-00002.safetensors", "b");
    opens(dir, NULL, "numbered shards", "a b", "no-index");
    shard("odd/m-00003-of-00002.safetensors", "c");
    heft_error err = refuses(dir, NULL, HEFT_MISMATCH, HEFT_FAULT_SHARD_NUMBERING,
                             "1 numbered shard has no number from 1 to 2: m-00003-of-00002.safetensors", NULL);
    assert_int_equal(err.more, 0);
    assert_string_equal(err.file, dir);
    refuses(dir, OPTIONS(.lenient = HEFT_LENIENT_ALL), HEFT_MISMATCH, HEFT_FAULT_SHARD_NUMBERING, NULL);
    opens(dir, OPTIONS(.index = HEFT_INDEX_IGNORE), "all files of the folder", "a b c", "");
    shard("odd/m-00000-of-00002.safetensors", "z");
    err = refuses(dir, NULL, HEFT_MISMATCH, HEFT_FAULT_SHARD_NUMBERING, "2 numbered shards have no number from 1 to 2",
                  "m-00000-of-00002.safetensors, m-00003-of-00002.safetensors", NULL);
    assert_int_equal(err.more, 1);
    /* What is missing is said first, since that is what is wrong more often. */
    assert_int_equal(unlink(test_path("odd/m-00002-of-00002.safetensors")), 0);
    refuses(dir, NULL, HEFT_NOT_FOUND, HEFT_FAULT_SHARD_NUMBERING, "of 2 numbered shards 1 is missing: 2", NULL);
    refuses(dir, OPTIONS(.lenient = HEFT_LENIENT_MISSING_SHARD), HEFT_MISMATCH, HEFT_FAULT_SHARD_NUMBERING, NULL);
    /* An index decides. */
    index_file("odd/model.safetensors.index.json", "c=m-00003-of-00002.safetensors", -1);
    opens(dir, NULL, "index file", "c", "");
    shard("none/m-00001-of-00000.safetensors", "a");
    refuses(test_path("none"), NULL, HEFT_MISMATCH, HEFT_FAULT_SHARD_NUMBERING, "from 1 to 0", NULL);
}

static void test_numbered(void **state) {
    (void)state;
    const char *dir = folder("numbered");
    const heft_open_options *lenient = OPTIONS(.lenient = HEFT_LENIENT_MISSING_SHARD);
    shard("numbered/m-00002-of-00007.safetensors", "b");
    heft_error err = refuses(dir, NULL, HEFT_NOT_FOUND, HEFT_FAULT_SHARD_NUMBERING, "1, 3-7", NULL);
    assert_int_equal(err.more, 5);
    opens(dir, lenient, "numbered shards", "b", "shard-numbering");
    shard("numbered/m-00007-of-00007.safetensors", "g");
    shard("numbered/m-00001-of-00007.safetensors", "a");
    refuses(dir, NULL, HEFT_NOT_FOUND, HEFT_FAULT_SHARD_NUMBERING, "of 7 numbered shards 4 are missing: 3-6", NULL);
    opens(dir, lenient, "numbered shards", "a b g", "shard-numbering no-index");
    shard("numbered/m-00001-of-00008.safetensors", "z");
    refuses(dir, NULL, HEFT_NOT_FOUND, HEFT_FAULT_AMBIGUOUS, "m-00001-of-00008", NULL);
    test_mkdir("complete");
    shard("complete/x-1-of-2.safetensors", "a");
    shard("complete/x-2-of-2.safetensors", ""); /* an empty shard is one */
    opens(test_path("complete"), NULL, "numbered shards", "a", "no-index");
    refuses(test_path("complete"), OPTIONS(.strict = true), HEFT_NOT_FOUND, HEFT_FAULT_NO_INDEX, NULL);
    shard("complete/y-1-of-1.safetensors", "y");
    refuses(test_path("complete"), NULL, HEFT_NOT_FOUND, HEFT_FAULT_AMBIGUOUS, "sets of numbered shards", NULL);
}

/* ---- index and shards ---- */

static void test_marker(void **state) {
    (void)state;
    two_shards("marker");
    text("marker/.heft-save-in-progress", "");
    refuses(test_path("marker"), NULL, HEFT_MISMATCH, HEFT_FAULT_SAVE_INTERRUPTED, "interrupted", NULL);
    refuses(test_path("marker/model.safetensors.index.json"), NULL, HEFT_MISMATCH, HEFT_FAULT_SAVE_INTERRUPTED, NULL);
    opens(test_path("marker/model-00002-of-00002.safetensors"), NULL, "one file", "c", "");
}

static void test_missing_shards(void **state) {
    (void)state;
    const char *dir = folder("missing");
    index_file("missing/model.safetensors.index.json",
               "a=1.safetensors b=2.safetensors c=3.safetensors d=3.safetensors e=4.safetensors", 4);
    shard("missing/2.safetensors", "b");
    assert_int_equal(symlink("nowhere", test_path("missing/4.safetensors")), 0);
    heft_error err = refuses(dir, NULL, HEFT_NOT_FOUND, HEFT_FAULT_MISSING_SHARD, "3 of 4 shards",
                             "1.safetensors, 3.safetensors, 4.safetensors", NULL);
    assert_int_equal(err.more, 2);
    assert_null(strstr(err.message, "beside"));
    opens(dir, OPTIONS(.lenient = HEFT_LENIENT_MISSING_SHARD), "index file", "b",
          "missing-shard missing-shard missing-shard");
    refuses(dir, OPTIONS(.lenient = HEFT_LENIENT_ALL, .strict = true), HEFT_NOT_FOUND, HEFT_FAULT_MISSING_SHARD, NULL);
    /* A whole model beside an incomplete set is named, and never taken instead. */
    shard("missing/model.safetensors", "x");
    refuses(dir, NULL, HEFT_NOT_FOUND, HEFT_FAULT_MISSING_SHARD, "model.safetensors.index.json",
            "\"model.safetensors\" lies beside", NULL);
    opens(dir, OPTIONS(.lenient = HEFT_LENIENT_MISSING_SHARD), "index file", "b",
          "missing-shard missing-shard missing-shard shadowed-file");
    assert_int_equal(unlink(test_path("missing/2.safetensors")), 0);
    opens(dir, OPTIONS(.lenient = HEFT_LENIENT_MISSING_SHARD), "index file", "",
          "missing-shard missing-shard missing-shard missing-shard shadowed-file");
}

static void test_shadowed(void **state) {
    (void)state;
    two_shards("shadow");
    shard("shadow/model.safetensors", "x");
    opens(test_path("shadow"), NULL, "index file", "a b c", "shadowed-file");
    refuses(test_path("shadow"), OPTIONS(.strict = true), HEFT_MISMATCH, HEFT_FAULT_SHADOWED_FILE, "model.safetensors",
            NULL);
    /* Not if the index names that very file. */
    shard("whole/model.safetensors", "x y");
    index_file("whole/model.safetensors.index.json", "x=model.safetensors y=model.safetensors", 8);
    opens(test_path("whole"), OPTIONS(.strict = true), "index file", "x y", "");
}

static void test_mismatches(void **state) {
    (void)state;
    const char *dir = folder("mismatch");
    shard("mismatch/1.safetensors", "a b x");
    shard("mismatch/2.safetensors", "c a y");
    index_file("mismatch/model.safetensors.index.json",
               "a=1.safetensors b=2.safetensors c=2.safetensors d=1.safetensors e=2.safetensors", 20);
    heft_error err =
        refuses(dir, NULL, HEFT_CORRUPT, HEFT_FAULT_INDEX_MISMATCH, "names tensor \"b\" for this shard", NULL);
    assert_int_equal(err.more, 2);
    assert_string_equal(err.tensor, "b");
    assert_string_equal(err.file, test_path("mismatch/2.safetensors"));
    opens(dir, OPTIONS(.lenient = HEFT_LENIENT_INDEX_MISMATCH), "index file", "a c",
          "index-mismatch unindexed-tensor unindexed-tensor index-mismatch index-mismatch unindexed-tensor "
          "unindexed-tensor");
}

static void test_unindexed(void **state) {
    (void)state;
    const char *dir = folder("unindexed");
    shard("unindexed/1.safetensors", "a x shared");
    shard("unindexed/2.safetensors", "c a shared");
    index_file("unindexed/model.safetensors.index.json", "a=1.safetensors c=2.safetensors", 8);
    opens(dir, NULL, "index file", "a c", "unindexed-tensor unindexed-tensor unindexed-tensor unindexed-tensor");
    heft_archive *archive;
    heft_error fault;
    heft_severity severity;
    heft_file file;
    assert_int_equal(heft_archive_open(dir, NULL, &archive, NULL), HEFT_OK);
    assert_int_equal(heft_archive_file(archive, 1, &file, NULL), HEFT_OK);
    assert_int_equal(file.nwithheld, 2);
    assert_int_equal(file.ntensors, 1);
    heft_report_get(heft_archive_warnings(archive), 2, &severity, &fault, NULL);
    assert_string_equal(fault.tensor, "a");
    assert_non_null(strstr(fault.message, "taken from \"1.safetensors\""));
    assert_int_equal(fault.status, HEFT_MISMATCH);
    heft_archive_unref(archive);
    heft_error err =
        refuses(dir, OPTIONS(.strict = true), HEFT_MISMATCH, HEFT_FAULT_UNINDEXED_TENSOR, "not named by", NULL);
    assert_int_equal(err.more, 3);
    /* prefer shows what is not named, lets the index decide where it can, and refuses where it cannot */
    const heft_open_options *prefer = OPTIONS(.index = HEFT_INDEX_PREFER);
    refuses(dir, prefer, HEFT_CORRUPT, HEFT_FAULT_SHARED_NAME, "\"shared\"", NULL);
    shard("unindexed/2.safetensors", "c a");
    opens(dir, prefer, "index file", "a c shared x", "unindexed-tensor unindexed-tensor unindexed-tensor");
    refuses(dir, OPTIONS(.index = HEFT_INDEX_IGNORE), HEFT_CORRUPT, HEFT_FAULT_SHARED_NAME, "\"a\"", NULL);
}

static void test_total_size(void **state) {
    (void)state;
    const char *dir = two_shards("total"),
               *map = "a=model-00001-of-00002.safetensors c=model-00002-of-00002.safetensors";
    index_file("total/model.safetensors.index.json", map, 9);
    opens(dir, NULL, "index file", "a c", "total-size unindexed-tensor");
    heft_error err =
        refuses(dir, OPTIONS(.strict = true), HEFT_MISMATCH, HEFT_FAULT_TOTAL_SIZE, "is 9", "8 bytes", NULL);
    assert_int_equal(err.expected, 8);
    assert_int_equal(err.found, 9);
    index_file("total/model.safetensors.index.json", map, 8);
    opens(dir, NULL, "index file", "a c", "unindexed-tensor");
}

static void test_bad_index(void **state) {
    (void)state;
    const char *dir = two_shards("badindex");
    static const struct {
        const char *json;
        heft_fault fault;
    } rows[] = {{"", HEFT_FAULT_INDEX_SYNTAX},
                {"{\"weight_map\":{\"a\":\"../two/x\"}}", HEFT_FAULT_SHARD_NAME},
                {"{\"weight_map\":{\"a\":\"/etc/passwd\"}}", HEFT_FAULT_SHARD_NAME},
                {"{\"weight_map\":{\"a\":\"x\\u0000y\"}}", HEFT_FAULT_SHARD_NAME},
                {"{\"weight_map\":{\"a\":\"..\"}}", HEFT_FAULT_SHARD_NAME},
                {"{\"weight_map\":{\"a\":\"\"}}", HEFT_FAULT_SHARD_NAME}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        text("badindex/model.safetensors.index.json", rows[i].json);
        refuses(dir, NULL, HEFT_CORRUPT, rows[i].fault, NULL);
        refuses(dir, OPTIONS(.lenient = HEFT_LENIENT_ALL), HEFT_CORRUPT, rows[i].fault, NULL);
        opens(dir, OPTIONS(.index = HEFT_INDEX_IGNORE), "all files of the folder", "a b c", "");
    }
    text("badindex/model.safetensors.index.json", "{\"weight_map\":{}}");
    refuses(dir, NULL, HEFT_CORRUPT, HEFT_FAULT_EMPTY_INDEX, "weight_map names no tensor", NULL);
    refuses(dir, OPTIONS(.lenient = HEFT_LENIENT_ALL), HEFT_CORRUPT, HEFT_FAULT_EMPTY_INDEX, NULL);
    opens(dir, OPTIONS(.index = HEFT_INDEX_IGNORE), "all files of the folder", "a b c", "");
}

/* A shard that is no file, and one that is damaged: the first is reported whatever the threads do. */
static void test_bad_shards(void **state) {
    (void)state;
    const char *dir = two_shards("badshards");
    text("badshards/model-00002-of-00002.safetensors",
         "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 5\n");
    refuses(dir, NULL, HEFT_CORRUPT, HEFT_FAULT_LFS_POINTER, "model-00002-of-00002.safetensors", NULL);
    text("badshards/model-00001-of-00002.safetensors", "x");
    heft_error err = refuses(dir, NULL, HEFT_CORRUPT, HEFT_FAULT_TOO_SMALL, NULL);
    assert_int_equal(err.more, 1);
    assert_int_equal(unlink(test_path("badshards/model-00001-of-00002.safetensors")), 0);
    test_mkdir("badshards/model-00001-of-00002.safetensors");
    refuses(dir, NULL, HEFT_NOT_FOUND, HEFT_FAULT_MISSING_SHARD, NULL);
}

static void test_out_of_memory(void **state) {
    (void)state;
    const char *dirs[] = {two_shards("oom"), place("complete"), place("unindexed")};
    shard("unindexed/2.safetensors", "c a");
    assert_int_equal(unlink(test_path("complete/y-1-of-1.safetensors")), 0);
    int fds = test_count_fds();
    for (size_t i = 0; i < 3; i++) {
        for (uint64_t k = 1;; k++) {
            test_allocator t;
            test_allocator_init(&t, k);
            heft_open_options options = {.struct_size = sizeof options, .allocator = &t.alloc, .index = i == 2};
            heft_archive *archive;
            heft_error err;
            heft_status status = heft_archive_open(dirs[i], &options, &archive, &err);
            heft_archive_unref(archive);
            assert_int_equal(t.live_blocks, 0);
            assert_int_equal(test_count_fds(), fds);
            if (status == HEFT_OK) break;
            assert_int_equal(status, HEFT_OUT_OF_MEMORY);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_folder_rules),   cmocka_unit_test(test_index_path),
        cmocka_unit_test(test_globs),          cmocka_unit_test(test_globs_refused),
        cmocka_unit_test(test_hub_cache),      cmocka_unit_test(test_links),
        cmocka_unit_test(test_sub_folders),    cmocka_unit_test(test_variants),
        cmocka_unit_test(test_odd_numbers),
        cmocka_unit_test(test_numbered),       cmocka_unit_test(test_marker),
        cmocka_unit_test(test_missing_shards), cmocka_unit_test(test_shadowed),
        cmocka_unit_test(test_mismatches),     cmocka_unit_test(test_unindexed),
        cmocka_unit_test(test_total_size),     cmocka_unit_test(test_bad_index),
        cmocka_unit_test(test_bad_shards),     cmocka_unit_test(test_out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
