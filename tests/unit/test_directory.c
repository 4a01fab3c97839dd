/* Folders: listing, opening by one name, links followed or kept inside, names that may come from a file. */
#include "helper_files.h"

#include "source/source.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

static heft__source_sys sys;

static int restore(void **state) {
    (void)state;
    heft__source_sys_replace(NULL);
    return 0;
}

static heft__directory *open_dir(const char *path) {
    heft__directory *directory = NULL;
    heft_error err = {0};
    if (heft__directory_open(path, &directory, &err)) fail_msg("%s", err.message);
    return directory;
}

static void only_folders_open(void **state) {
    (void)state;
    int fds = test_count_fds();
    heft__directory *directory = (heft__directory *)&fds;
    heft_error err;
    assert_int_equal(heft__directory_open(test_write("file", "x", 1), &directory, &err), HEFT_INVALID_ARGUMENT);
    assert_int_equal(err.fault, HEFT_FAULT_NOT_REGULAR);
    assert_non_null(strstr(err.message, "a regular file; a directory is wanted"));
    assert_null(directory);
    assert_int_equal(mkfifo(test_path("fifo"), 0666), 0);
    assert_int_equal(heft__directory_open(test_path("fifo"), &directory, &err), HEFT_INVALID_ARGUMENT);
    assert_int_equal(heft__directory_open(test_path("nowhere"), &directory, &err), HEFT_NOT_FOUND);
    directory = open_dir(test_dir());
    assert_string_equal(heft__directory_path(directory), test_dir());
    heft__directory_close(directory);
    heft__directory_close(NULL);
    assert_int_equal(test_count_fds(), fds);
}

static void listings_are_sorted_and_say_kinds(void **state) {
    (void)state;
    int fds = test_count_fds();
    test_write("list/b", "12345", 5);
    test_write("list/B", "", 0);
    test_write("list/a10", "1", 1);
    test_write("list/a9", "1", 1);
    test_write("list/.hidden", "1", 1);
    test_write("list/\xC3\xA9", "1", 1);
    test_write("list/\xFF" "bad", "1", 1);
    test_mkdir("list/folder");
    assert_int_equal(mkfifo(test_path("list/fifo"), 0666), 0);
    assert_int_equal(symlink("b", test_path("list/link")), 0);
    assert_int_equal(symlink("folder", test_path("list/link-folder")), 0);
    assert_int_equal(symlink("nowhere", test_path("list/link-nowhere")), 0);
    assert_int_equal(symlink("b/x", test_path("list/link-through")), 0);
    assert_int_equal(symlink("loop", test_path("list/loop")), 0);
    static const struct {
        const char *name;
        heft__file_kind kind;
        uint64_t nbytes;
    } expected[] = {{".hidden", HEFT__FILE_REGULAR, 1},
                    {"B", HEFT__FILE_REGULAR, 0},
                    {"a10", HEFT__FILE_REGULAR, 1},
                    {"a9", HEFT__FILE_REGULAR, 1},
                    {"b", HEFT__FILE_REGULAR, 5},
                    {"fifo", HEFT__FILE_OTHER, 0},
                    {"folder", HEFT__FILE_DIRECTORY, 0},
                    {"link", HEFT__FILE_REGULAR, 5},
                    {"link-folder", HEFT__FILE_DIRECTORY, 0},
                    {"link-nowhere", HEFT__FILE_DANGLING, 0},
                    {"link-through", HEFT__FILE_DANGLING, 0},
                    {"loop", HEFT__FILE_DANGLING, 0},
                    {"\xC3\xA9", HEFT__FILE_REGULAR, 1},
                    {"\xFF" "bad", HEFT__FILE_REGULAR, 1}};
    heft__directory *directory = open_dir(test_path("list"));
    for (int pass = 0; pass < 2; pass++) { /* a second listing starts anew */
        heft__arena arena;
        heft__arena_init(&arena, &heft__default_allocator);
        heft__directory_entry *entries;
        uint64_t n;
        assert_int_equal(heft__directory_list(directory, &arena, &entries, &n, NULL), HEFT_OK);
        assert_int_equal(n, sizeof expected / sizeof *expected);
        for (size_t i = 0; i < n; i++) {
            assert_string_equal(entries[i].name, expected[i].name);
            assert_int_equal(entries[i].kind, expected[i].kind);
            if (expected[i].kind == HEFT__FILE_REGULAR) {
                assert_int_equal(entries[i].nbytes, expected[i].nbytes);
                assert_true(entries[i].mtime_ns > 0);
            }
        }
        heft__arena_free(&arena);
    }
    heft__directory_close(directory);
    assert_int_equal(test_count_fds(), fds);
}

static void large_and_empty_folders(void **state) {
    (void)state;
    test_mkdir("empty");
    heft__directory *directory = open_dir(test_path("empty"));
    heft__arena arena;
    heft__directory_entry *entries;
    uint64_t n = 5;
    heft__arena_init(&arena, &heft__default_allocator);
    assert_int_equal(heft__directory_list(directory, &arena, &entries, &n, NULL), HEFT_OK);
    assert_int_equal(n, 0);
    heft__directory_close(directory);
    for (int i = 0; i < 500; i++) {
        char name[64];
        snprintf(name, sizeof name, "many/model-%05d-of-00500.safetensors", i);
        test_write(name, "x", 1);
    }
    directory = open_dir(test_path("many"));
    assert_int_equal(heft__directory_list(directory, &arena, &entries, &n, NULL), HEFT_OK);
    assert_int_equal(n, 500);
    for (size_t i = 1; i < n; i++) assert_true(strcmp(entries[i - 1].name, entries[i].name) < 0);
    assert_int_equal(heft__directory_list_prefix(directory, "model-0012", &arena, &entries, &n, NULL), HEFT_OK);
    assert_int_equal(n, 10);
    assert_string_equal(entries[0].name, "model-00120-of-00500.safetensors");
    assert_int_equal(heft__directory_list_prefix(directory, "model-1", &arena, &entries, &n, NULL), HEFT_OK);
    assert_int_equal(n, 0);
    heft__directory_close(directory);
    heft__arena_free(&arena);
}

/* ---- opening ---- */

static void expect(heft__directory *directory, const char *name, bool beneath, uint32_t levels, heft_status status,
                   const char *content) {
    heft_source *source = (heft_source *)&status;
    heft_error err = {0};
    int fds = test_count_fds();
    heft_status got = heft__directory_source(directory, name, beneath, levels, &source, &err);
    if (got != status) fail_msg("%s, levels %u: %d instead of %d: %s", name, levels, got, status, err.message);
    if (got != HEFT_OK) {
        assert_null(source);
        assert_int_equal(err.status, status);
        assert_non_null(strstr(err.file, name));
        assert_int_equal(test_count_fds(), fds);
        return;
    }
    char bytes[64] = {0}, label[2048];
    snprintf(label, sizeof label, "%s/%s", heft__directory_path(directory), name);
    assert_string_equal(heft_source_label(source), label);
    assert_int_equal(heft_source_read(source, 0, heft_source_size(source), bytes, NULL), HEFT_OK);
    assert_string_equal(bytes, content);
    assert_int_equal(test_count_fds(), fds < 0 ? -1 : fds + 1);
    heft_source_unref(source);
}

static void link_to(const char *target, const char *name) {
    if (symlink(target, test_path(name)) != 0) assert_int_equal(errno, EEXIST);
}

/* A Hub cache, a folder beside it, and every way of leaving. */
static heft__directory *make_cache(void) {
    test_write("hub/models--o--n/blobs/abc", "blob", 4);
    test_write("hub/models--o--n/snapshots/r1/own", "own", 3);
    test_write("hub/models--o--n/snapshots/r2/other", "other", 5);
    test_write("hub/outside", "outside", 7);
    test_mkdir("hub/models--o--n/snapshots/r1/sub");
    link_to("../../blobs/abc", "hub/models--o--n/snapshots/r1/blob");
    link_to("../../../outside", "hub/models--o--n/snapshots/r1/out");
    link_to("../r2/other", "hub/models--o--n/snapshots/r1/sibling");
    link_to("own", "hub/models--o--n/snapshots/r1/near");
    link_to("./sub/../near", "hub/models--o--n/snapshots/r1/winding");
    link_to("blob", "hub/models--o--n/snapshots/r1/chain");
    link_to("sub", "hub/models--o--n/snapshots/r1/to-sub");
    link_to("to-sub/../own", "hub/models--o--n/snapshots/r1/via-sub");
    link_to("loop", "hub/models--o--n/snapshots/r1/loop");
    link_to("gone", "hub/models--o--n/snapshots/r1/gone-link");
    link_to("own/", "hub/models--o--n/snapshots/r1/slash");
    link_to("../../../models--o--n/blobs/abc", "hub/models--o--n/snapshots/r1/out-and-in");
    link_to(test_path("hub/models--o--n/blobs/abc"), "hub/models--o--n/snapshots/r1/absolute");
    if (mkfifo(test_path("hub/models--o--n/snapshots/r1/fifo"), 0666) != 0) assert_int_equal(errno, EEXIST);
    return open_dir(test_path("hub/models--o--n/snapshots/r1"));
}

static void links_are_followed_by_default(void **state) {
    (void)state;
    heft__directory *d = make_cache();
    expect(d, "own", false, 0, HEFT_OK, "own");
    expect(d, "blob", false, 0, HEFT_OK, "blob");
    expect(d, "out", false, 0, HEFT_OK, "outside");
    expect(d, "absolute", false, 0, HEFT_OK, "blob");
    expect(d, "winding", false, 0, HEFT_OK, "own");
    expect(d, "loop", false, 0, HEFT_NOT_FOUND, NULL);
    expect(d, "gone", false, 0, HEFT_NOT_FOUND, NULL);
    expect(d, "gone-link", false, 0, HEFT_NOT_FOUND, NULL);
    expect(d, "sub", false, 0, HEFT_INVALID_ARGUMENT, NULL);
    expect(d, "fifo", false, 0, HEFT_INVALID_ARGUMENT, NULL);
    heft__directory_close(d);
}

/* False under emulators that show a program another "/" by its name than by going up. */
static bool root_is_one(void) {
    char up[300];
    for (size_t i = 0; i < 99; i++) memcpy(up + 3 * i, "../", 4);
    struct stat a, b;
    bool one = stat("/", &a) == 0 && stat(up, &b) == 0 && a.st_ino == b.st_ino && a.st_dev == b.st_dev;
    if (!one) print_message("left out: this emulator has a root folder of its own\n");
    return one;
}

static void links_stay_beneath(void **state) {
    (void)state;
    heft__directory *d = make_cache();
    for (int pass = 0; pass < 2; pass++) {
        sys = *heft__source_sys_get();
        sys.no_openat2 = pass == 1;
        heft__source_sys_replace(&sys);
        expect(d, "own", true, 0, HEFT_OK, "own");
        expect(d, "near", true, 0, HEFT_OK, "own");
        expect(d, "winding", true, 0, HEFT_OK, "own");
        expect(d, "via-sub", true, 0, HEFT_OK, "own");
        expect(d, "blob", true, 0, HEFT_PERMISSION, NULL);
        expect(d, "chain", true, 0, HEFT_PERMISSION, NULL);
        expect(d, "sibling", true, 0, HEFT_PERMISSION, NULL);
        expect(d, "sibling", true, 1, HEFT_OK, "other");
        expect(d, "blob", true, 1, HEFT_PERMISSION, NULL);
        expect(d, "blob", true, 2, HEFT_OK, "blob");
        expect(d, "chain", true, 2, HEFT_OK, "blob");
        expect(d, "own", true, 2, HEFT_OK, "own");
        expect(d, "out", true, 2, HEFT_PERMISSION, NULL);
        expect(d, "out-and-in", true, 2, HEFT_PERMISSION, NULL);
        expect(d, "out-and-in", true, 3, HEFT_OK, "blob");
        expect(d, "absolute", true, 2, HEFT_PERMISSION, NULL);
        expect(d, "out", true, 3, HEFT_OK, "outside");
        if (root_is_one()) expect(d, "out", true, 1000, HEFT_OK, "outside"); /* the whole file system */
        expect(d, "loop", true, 2, HEFT_NOT_FOUND, NULL);
        expect(d, "gone", true, 2, HEFT_NOT_FOUND, NULL);
        expect(d, "gone-link", true, 2, HEFT_NOT_FOUND, NULL);
        expect(d, "slash", true, 2, HEFT_NOT_FOUND, NULL);
        expect(d, "sub", true, 2, HEFT_INVALID_ARGUMENT, NULL);
        expect(d, "to-sub", true, 2, HEFT_INVALID_ARGUMENT, NULL);
        expect(d, "fifo", true, 2, HEFT_INVALID_ARGUMENT, NULL);
    }
    heft__directory_close(d);
}

/* What lies above a folder is what its path says. Where a link has led elsewhere, nothing above is granted. */
static void a_linked_folder_has_nothing_above(void **state) {
    (void)state;
    heft__directory_close(make_cache());
    test_write("hub/far/away/own", "own", 3);
    link_to("../outside", "hub/far/out");
    link_to("../out", "hub/far/away/out");
    link_to("../../far/away", "hub/models--o--n/snapshots/linked");
    heft__directory *d = open_dir(test_path("hub/models--o--n/snapshots/linked"));
    expect(d, "own", true, 0, HEFT_OK, "own");
    expect(d, "own", true, 2, HEFT_PERMISSION, NULL);
    expect(d, "out", true, 2, HEFT_PERMISSION, NULL);
    heft__directory_close(d);
    /* Links before that are the caller's. */
    link_to("hub", "shortcut");
    d = open_dir(test_path("shortcut/models--o--n//snapshots/r1/"));
    heft_source *source;
    assert_int_equal(heft__directory_source(d, "blob", true, 2, &source, NULL), HEFT_OK);
    assert_int_equal(heft_source_size(source), 4);
    heft_source_unref(source);
    heft__directory_close(d);
    char *before = getcwd(NULL, 0);
    assert_int_equal(chdir(test_path("hub")), 0);
    d = open_dir("models--o--n/snapshots/r1");
    expect(d, "blob", true, 2, HEFT_OK, "blob");
    assert_int_equal(chdir(before), 0);
    free(before);
    expect(d, "own", true, 0, HEFT_OK, "own"); /* without levels the path is not needed */
    expect(d, "blob", true, 2, HEFT_NOT_FOUND, NULL); /* the path leads nowhere now: refused, not guessed */
    heft__directory_close(d);
}

static void a_folder_renamed_meanwhile(void **state) {
    (void)state;
    test_write("moving/in/file", "first", 5);
    heft__directory *d = open_dir(test_path("moving/in"));
    assert_int_equal(rename(test_path("moving/in"), test_path("moving/away")), 0);
    expect(d, "file", false, 0, HEFT_OK, "first");
    expect(d, "file", true, 0, HEFT_OK, "first");
    expect(d, "file", true, 1, HEFT_NOT_FOUND, NULL);
    test_write("moving/in/file", "second", 6);
    expect(d, "file", false, 0, HEFT_OK, "first");
    expect(d, "file", true, 1, HEFT_MISMATCH, NULL);
    heft__directory_close(d);
}

static void deep_links_end(void **state) {
    (void)state;
    char target[600] = "", name[64];
    for (int i = 0; i < 70; i++) {
        strcat(target, i ? "/d" : "d");
        char folder[700];
        snprintf(folder, sizeof folder, "deep/%s", target);
        test_mkdir(folder);
    }
    char folder[700];
    snprintf(folder, sizeof folder, "deep/%s/file", target);
    test_write(folder, "bottom", 6);
    strcat(target, "/file");
    link_to(target, "deep/down");
    for (int i = 0; i < 50; i++) {
        char next[64];
        snprintf(name, sizeof name, "deep/l%d", i);
        snprintf(next, sizeof next, i == 49 ? "end" : "l%d", i + 1);
        link_to(next, name);
    }
    test_write("deep/end", "end", 3);
    heft__directory *d = open_dir(test_path("deep"));
    for (int pass = 0; pass < 2; pass++) {
        sys = *heft__source_sys_get();
        sys.no_openat2 = pass == 1;
        heft__source_sys_replace(&sys);
        expect(d, "l0", true, 0, HEFT_NOT_FOUND, NULL); /* 50 links */
        expect(d, "l10", true, 0, HEFT_OK, "end");      /* 40 links */
        if (pass == 1) expect(d, "down", true, 0, HEFT_NOT_FOUND, NULL); /* the walk holds 64 folders at most */
    }
    heft__directory_close(d);
}

/* ---- failures ---- */

static heft_status use_folder(void) {
    heft__directory *d = NULL;
    heft_source *source = NULL;
    heft__arena arena;
    heft__directory_entry *entries;
    uint64_t n;
    heft__arena_init(&arena, heft__source_sys_get()->alloc);
    heft_status status = heft__directory_open(test_path("many2"), &d, NULL);
    if (!status) status = heft__directory_list(d, &arena, &entries, &n, NULL);
    if (!status) status = heft__directory_source(d, "5", true, 1, &source, NULL);
    heft_source_unref(source);
    heft__arena_free(&arena);
    heft__directory_close(d);
    return status;
}

static void every_failing_allocation(void **state) {
    (void)state;
    char name[32];
    for (int i = 0; i < 200; i++) {
        snprintf(name, sizeof name, "many2/%d", i);
        test_write(name, "x", 1);
    }
    int fds = test_count_fds();
    for (uint64_t k = 1;; k++) {
        test_allocator t;
        test_allocator_init(&t, k);
        sys = *heft__source_sys_get();
        sys.alloc = &t.alloc;
        heft__source_sys_replace(&sys);
        heft_status status = use_folder();
        assert_int_equal(t.live_blocks, 0);
        assert_int_equal(test_count_fds(), fds);
        if (status == HEFT_OK) {
            assert_true(k > 5);
            break;
        }
        assert_int_equal(status, HEFT_OUT_OF_MEMORY);
    }
}

static uint64_t open_calls, open_fails;
static bool open_interrupts;

static int counted_open(int at, const char *path, int flags) {
    open_calls++;
    if (open_interrupts && open_calls % 2) {
        errno = EINTR;
        return -1;
    }
    if (open_calls == open_fails) {
        errno = ENFILE;
        return -1;
    }
    return openat(at, path, flags);
}

static void every_failing_open(void **state) {
    (void)state;
    test_write("many2/5", "x", 1);
    int fds = test_count_fds();
    sys = *heft__source_sys_get();
    sys.open = counted_open;
    sys.no_openat2 = true;
    heft__source_sys_replace(&sys);
    for (open_fails = 1;; open_fails++) {
        open_calls = 0;
        heft_status status = use_folder();
        assert_int_equal(test_count_fds(), fds);
        if (status == HEFT_OK) break;
        assert_int_equal(status, HEFT_LIMIT);
    }
    assert_int_equal(open_fails, 6); /* folder, listing, root, "many2", "5" */
    open_calls = open_fails = 0;
    open_interrupts = true;
    assert_int_equal(use_folder(), HEFT_OK);
    open_interrupts = false;
}

/* ---- names from files ---- */

static void components(void **state) {
    (void)state;
    char a255[256], a256[257];
    memset(a255, 'a', 255);
    memset(a256, 'a', 256);
    a255[255] = a256[256] = 0;
    const char *good[] = {"a",   "model-00001-of-00002.safetensors", "...", "..a", ".hidden", "a b", "\xC3\xA9",
                          "ab:c", "1:x",                             "~",   "-",   "*",       a255};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        assert_null(heft__path_component_fault(good[i], strlen(good[i])));
    const char *bad[] = {"",    ".",    "..",    "/",     "/etc/passwd", "../x", "a/b",      "a/", "a\\b", "\\\\host\\x",
                         "a\n", "\x7F", "C:", "a:b", "c:x",   "\x1B[0m",     "\xFF", "\xC0\xAF", "\xED\xA0\x80", a256};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_non_null(heft__path_component_fault(bad[i], strlen(bad[i])));
    assert_non_null(heft__path_component_fault("a\0b", 3));
    assert_null(heft__path_component_fault("ab/c", 2)); /* the length rules, not a NUL */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_folders_open),
        cmocka_unit_test(listings_are_sorted_and_say_kinds),
        cmocka_unit_test(large_and_empty_folders),
        cmocka_unit_test(links_are_followed_by_default),
        cmocka_unit_test_teardown(links_stay_beneath, restore),
        cmocka_unit_test(a_linked_folder_has_nothing_above),
        cmocka_unit_test(a_folder_renamed_meanwhile),
        cmocka_unit_test_teardown(deep_links_end, restore),
        cmocka_unit_test_teardown(every_failing_allocation, restore),
        cmocka_unit_test_teardown(every_failing_open, restore),
        cmocka_unit_test(components),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
