/* Every way to write a checkpoint. */
#include "helper_ways.h"

#include "base/os_target.h"

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SIZE = 200, MOST = 4 };
static const int64_t one_dim[] = {SIZE};
static const char *const names[MOST] = {"a", "b", "c", "d"};

/* ---- what is written ---- */

/* `n` tensors whose bytes are all `mark`. */
static void items_of(heft_save_item items[MOST], int n, uint8_t mark) {
    static uint8_t bytes[4][SIZE];
    memset(bytes[mark], mark, SIZE);
    for (int i = 0; i < n; i++)
        items[i] = (heft_save_item){.name = names[i], .data = bytes[mark], .shape = one_dim, .rank = 1, .dtype = HEFT_U8};
}

/* The same as tensors of a file elsewhere, whose bytes go from file to file inside the kernel where that works. */
static heft_archive *items_of_file(heft_save_item items[MOST], int n, uint8_t mark) {
    heft_save_item own[MOST];
    heft_archive *archive;
    heft_save_options over = {.struct_size = sizeof over, .overwrite = true, .no_sync = true};
    heft_buffer buffer;
    char name[40];
    snprintf(name, sizeof name, "source-%d-%d", n, mark);
    items_of(own, n, mark);
    assert_int_equal(heft_save_buffer(own, (uint64_t)n, &over, &buffer, NULL, NULL), HEFT_OK);
    const char *path = test_write(name, buffer.data, buffer.nbytes);
    heft_buffer_release(&buffer);
    assert_int_equal(heft_archive_open(path, NULL, &archive, NULL), HEFT_OK);
    for (int i = 0; i < n; i++) {
        items[i] = (heft_save_item){.name = names[i], .archive = archive};
        assert_int_equal(heft_archive_find(archive, names[i], 1, &items[i].id, NULL), HEFT_OK);
    }
    return archive;
}

const heft_allocator *save_way_alloc;

static heft_save_options overwriting(void) {
    return (heft_save_options){
        .struct_size = sizeof(heft_save_options), .overwrite = true, .workers = 1, .allocator = save_way_alloc};
}

static heft_set_options each_alone(void) {
    return (heft_set_options){.struct_size = sizeof(heft_set_options), .ceiling_nbytes = SIZE, .create_dir = true};
}

/* ---- one file ---- */

static heft_status save_with(const char *path, int n, uint8_t mark, const heft_save_options *options, heft_error *err) {
    heft_save_item items[MOST];
    items_of(items, n, mark);
    return heft_save(path, items, (uint64_t)n, options, NULL, err);
}

static heft_status save_plain(const char *path, int n, uint8_t mark, heft_error *err) {
    heft_save_options options = overwriting();
    return save_with(path, n, mark, &options, err);
}

static heft_status save_checked(const char *path, int n, uint8_t mark, heft_error *err) {
    heft_save_options options = overwriting();
    options.verify = true;
    options.align = options.data_start_align = 64;
    return save_with(path, n, mark, &options, err);
}

static heft_status save_digested(const char *path, int n, uint8_t mark, heft_error *err) {
    heft_save_options options = overwriting();
    options.digests = HEFT_DIGEST_TENSORS | HEFT_DIGEST_DATA | HEFT_DIGEST_SIDECAR;
    return save_with(path, n, mark, &options, err);
}

static heft_status save_npz(const char *path, int n, uint8_t mark, heft_error *err) {
    heft_save_options options = overwriting();
    options.format = "npz";
    return save_with(path, n, mark, &options, err);
}

static heft_status save_npy(const char *path, int n, uint8_t mark, heft_error *err) {
    heft_save_options options = overwriting();
    options.format = "npy";
    return save_with(path, n, mark, &options, err);
}

static heft_status save_copied(const char *path, int n, uint8_t mark, heft_error *err) {
    heft_save_item items[MOST];
    heft_archive *archive = items_of_file(items, n, mark);
    heft_save_options options = overwriting();
    options.match_source = true;
    heft_status status = heft_save(path, items, (uint64_t)n, &options, NULL, err);
    heft_archive_unref(archive);
    return status;
}

static heft_status in_background(const char *path, int n, uint8_t mark, bool snapshot, const heft_set_options *set,
                                 heft_error *err) {
    heft_saver *saver;
    heft_save_item items[MOST];
    heft_saver_options options = {.struct_size = sizeof options, .snapshot = snapshot, .allocator = save_way_alloc};
    heft_save_options over = overwriting();
    items_of(items, n, mark);
    heft_status status = heft_saver_new(&options, &saver, err);
    if (status != HEFT_OK) return status;
    status = heft_saver_start(saver, path, items, (uint64_t)n, &over, set, err);
    if (status == HEFT_OK) status = heft_saver_wait(saver, NULL, err);
    heft_saver_free(saver);
    return status;
}

static heft_status save_npz_copied(const char *path, int n, uint8_t mark, heft_error *err) {
    heft_save_item items[MOST];
    heft_archive *archive = items_of_file(items, n, mark);
    heft_save_options options = overwriting();
    options.format = "npz";
    heft_status status = heft_save(path, items, (uint64_t)n, &options, NULL, err);
    heft_archive_unref(archive);
    return status;
}

static heft_status save_in_background(const char *path, int n, uint8_t mark, heft_error *err) {
    return in_background(path, n, mark, true, NULL, err);
}

/* ---- sets ---- */

static heft_status set_with(const char *path, int n, uint8_t mark, const heft_save_options *options,
                            const heft_set_options *set, heft_error *err) {
    heft_save_item items[MOST];
    items_of(items, n, mark);
    return heft_save_set(path, items, (uint64_t)n, options, set, NULL, err);
}

static heft_status set_plain(const char *path, int n, uint8_t mark, heft_error *err) {
    heft_save_options options = overwriting();
    heft_set_options set = each_alone();
    return set_with(path, n, mark, &options, &set, err);
}

static heft_status set_checked(const char *path, int n, uint8_t mark, heft_error *err) {
    heft_save_options options = overwriting();
    heft_set_options set = each_alone();
    options.verify = true;
    options.align = options.data_start_align = 64;
    return set_with(path, n, mark, &options, &set, err);
}

static heft_status set_digested(const char *path, int n, uint8_t mark, heft_error *err) {
    heft_save_options options = overwriting();
    heft_set_options set = each_alone();
    options.digests = HEFT_DIGEST_SIDECAR;
    return set_with(path, n, mark, &options, &set, err);
}

static heft_status set_copied(const char *path, int n, uint8_t mark, heft_error *err) {
    heft_save_item items[MOST];
    heft_archive *archive = items_of_file(items, n, mark);
    heft_save_options options = overwriting();
    heft_set_options set = each_alone();
    heft_status status = heft_save_set(path, items, (uint64_t)n, &options, &set, NULL, err);
    heft_archive_unref(archive);
    return status;
}

static heft_status set_published(const char *path, int n, uint8_t mark, heft_error *err) {
    heft_save_options options = overwriting();
    heft_set_options set = each_alone();
    set.publish = true;
    return set_with(path, n, mark, &options, &set, err);
}

static heft_status set_in_background(const char *path, int n, uint8_t mark, heft_error *err) {
    heft_set_options set = each_alone();
    return in_background(path, n, mark, false, &set, err);
}

/* All files of a set of the same number. */
static heft_status set_replaced(const char *path, int n, uint8_t mark, heft_error *err) {
    char files[MOST][40];
    heft_save_item items[MOST];
    heft_save_options options = overwriting();
    heft_set_file set[MOST];
    items_of(items, n, mark);
    for (int i = 0; i < n; i++) {
        snprintf(files[i], sizeof files[i], n > 1 ? "model-%05d-of-%05d.safetensors" : "model.safetensors", i + 1, n);
        set[i] = (heft_set_file){.name = files[i], .items = &items[i], .nitems = 1};
    }
    return heft_set_replace(path, set, (uint64_t)n, n > 1 ? "model.safetensors.index.json" : NULL, &options, NULL, NULL, err);
}

/* ---- writers ---- */

static heft_status write_as(const char *format, const char *path, int n, uint8_t mark, heft_writer_mode mode,
                            uint64_t reserve, const heft_set_options *set, heft_error *err) {
    heft_writer *writer;
    heft_save_item items[MOST];
    heft_save_options options = overwriting();
    bool declared = mode == HEFT_WRITER_DECLARED;
    options.format = format;
    options.reserve_header_nbytes = reserve;
    items_of(items, n, mark);
    heft_status status = heft_writer_open(path, mode, declared ? items : NULL, declared ? (uint64_t)n : 0, &options, set,
                                          &writer, err);
    if (status != HEFT_OK) return status;
    for (int i = n; i-- > 0 && declared && status == HEFT_OK;) { /* from the end, in two parts */
        const uint8_t *data = items[i].data;
        status = heft_writer_write(writer, (uint64_t)i, SIZE / 2, data + SIZE / 2, SIZE / 2, err);
        if (status == HEFT_OK) status = heft_writer_write(writer, (uint64_t)i, 0, data, SIZE / 2, err);
    }
    for (int i = 0; i < n && !declared && status == HEFT_OK; i++) status = heft_writer_add(writer, &items[i], err);
    if (status == HEFT_OK) status = heft_writer_finish(writer, NULL, err);
    heft_writer_free(writer);
    return status;
}

static heft_status write_with(const char *path, int n, uint8_t mark, heft_writer_mode mode, uint64_t reserve,
                              const heft_set_options *set, heft_error *err) {
    return write_as(NULL, path, n, mark, mode, reserve, set, err);
}

static heft_status write_collected_npz(const char *path, int n, uint8_t mark, heft_error *err) {
    return write_as("npz", path, n, mark, HEFT_WRITER_COLLECT, 0, NULL, err);
}
static heft_status write_collected(const char *path, int n, uint8_t mark, heft_error *err) {
    return write_with(path, n, mark, HEFT_WRITER_COLLECT, 0, NULL, err);
}
static heft_status write_declared(const char *path, int n, uint8_t mark, heft_error *err) {
    return write_with(path, n, mark, HEFT_WRITER_DECLARED, 0, NULL, err);
}
static heft_status write_streamed(const char *path, int n, uint8_t mark, heft_error *err) {
    return write_with(path, n, mark, HEFT_WRITER_STREAM, 1000, NULL, err);
}
/* No room for the header: the data moves. */
static heft_status write_moved(const char *path, int n, uint8_t mark, heft_error *err) {
    return write_with(path, n, mark, HEFT_WRITER_STREAM, 8, NULL, err);
}
static heft_status write_collected_set(const char *path, int n, uint8_t mark, heft_error *err) {
    heft_set_options set = each_alone();
    return write_with(path, n, mark, HEFT_WRITER_COLLECT, 0, &set, err);
}
static heft_status write_declared_set(const char *path, int n, uint8_t mark, heft_error *err) {
    heft_set_options set = each_alone();
    return write_with(path, n, mark, HEFT_WRITER_DECLARED, 0, &set, err);
}
static heft_status write_streamed_set(const char *path, int n, uint8_t mark, heft_error *err) {
    heft_set_options set = each_alone();
    return write_with(path, n, mark, HEFT_WRITER_STREAM, 1000, &set, err);
}
static heft_status write_moved_set(const char *path, int n, uint8_t mark, heft_error *err) {
    heft_set_options set = each_alone();
    return write_with(path, n, mark, HEFT_WRITER_STREAM, 8, &set, err);
}
static heft_status write_published(const char *path, int n, uint8_t mark, heft_error *err) {
    heft_set_options set = each_alone();
    set.publish = true;
    return write_with(path, n, mark, HEFT_WRITER_STREAM, 1000, &set, err);
}

const save_way save_ways[] = {
    {"a new file", "x.safetensors", 0, 3, save_plain, NULL, false},
    {"a file", "x.safetensors", 2, 3, save_plain, NULL, false},
    {"a file aligned and verified", "x.safetensors", 2, 3, save_checked, NULL, false},
    {"a file with digests", "x.safetensors", 2, 3, save_digested, NULL, true},
    {"a file without digests for one with", "x.safetensors", 2, 3, save_plain, save_digested, true},
    {"an npz", "x.npz", 2, 3, save_npz, NULL, false},
    {"an npz copied", "x.npz", 2, 3, save_npz_copied, save_npz, false},
    {"an npy", "x.npy", 1, 1, save_npy, NULL, false},
    {"a file copied", "x.safetensors", 2, 3, save_copied, save_plain, false},
    {"a file in the background", "x.safetensors", 2, 3, save_in_background, NULL, false},
    {"a new set", "", 0, 3, set_plain, NULL, false},
    {"a set in a new folder", "new", 0, 2, set_plain, NULL, false},
    {"a set", "", 3, 2, set_plain, NULL, false},
    {"a larger set", "", 2, 4, set_plain, NULL, false},
    {"one file for a set", "", 3, 1, set_plain, NULL, false},
    {"a set for one file", "", 1, 3, set_plain, NULL, false},
    {"one file for one", "", 1, 1, set_plain, NULL, false},
    {"a set aligned and verified", "", 2, 3, set_checked, NULL, false},
    {"a set with digests", "", 2, 2, set_digested, NULL, true},
    {"a set without digests for one with", "", 2, 3, set_plain, set_digested, true},
    {"a set copied", "", 2, 3, set_copied, set_plain, false},
    {"a set in the background", "", 2, 3, set_in_background, NULL, false},
    {"a set published", "step-1", 0, 3, set_published, NULL, false},
    {"all files of a set", "", 3, 3, set_replaced, set_plain, false},
    {"the file of a set", "", 1, 1, set_replaced, set_plain, false},
    {"a collected file", "x.safetensors", 2, 3, write_collected, NULL, false},
    {"a collected npz", "x.npz", 2, 3, write_collected_npz, NULL, false},
    {"a declared file", "x.safetensors", 2, 3, write_declared, NULL, false},
    {"a new declared file", "x.safetensors", 0, 3, write_declared, NULL, false},
    {"a streamed file", "x.safetensors", 2, 3, write_streamed, NULL, false},
    {"a streamed file that moves", "x.safetensors", 2, 3, write_moved, NULL, false},
    {"a collected set", "", 2, 3, write_collected_set, NULL, false},
    {"a declared set", "", 2, 3, write_declared_set, NULL, false},
    {"a streamed set", "", 3, 2, write_streamed_set, NULL, false},
    {"a streamed set that moves", "", 2, 3, write_moved_set, NULL, false},
    {"a streamed set published", "step-1", 0, 2, write_published, NULL, false},
};
const size_t nsave_ways = sizeof save_ways / sizeof *save_ways;

/* ---- before and after ---- */

static const char *path_of(const save_way *way, const char *folder, char path[600]) {
    snprintf(path, 600, "%s%s%s", folder, *way->target ? "/" : "", way->target);
    return path;
}

bool save_way_can(const save_way *way) {
    return !way->digests || (heft_features() & HEFT_FEATURE_XXHASH);
}

void save_way_prepare(const save_way *way, const char *folder) {
    char path[600];
    heft_error err;
    if (!way->before) return;
    heft_status status = (way->old ? way->old : way->save)(path_of(way, folder, path), way->before, 1, &err);
    if (status != HEFT_OK) fail_msg("%s: %s", way->name, err.message);
}

heft_status save_way_run(const save_way *way, const char *folder, heft_error *err) {
    char path[600];
    return way->save(path_of(way, folder, path), way->after, 2, err);
}

int save_way_found(const save_way *way, const char *folder) {
    heft_archive *archive = NULL;
    heft_error err = {0};
    char path[600];
    bool resumed = false;
    path_of(way, folder, path);
    if (heft_archive_open(path, NULL, &archive, &err)) {
        if (err.fault != HEFT_FAULT_SAVE_INTERRUPTED) {
            bool set = !*way->target || strcmp(way->target, "new") == 0; /* of a new one there may be files without their index */
            if (way->before || (!set && access(path, F_OK) == 0)) fail_msg("%s: neither old nor new: %s", way->name, err.message);
            return 0;
        }
        if (heft_set_resume(path, NULL, &resumed, &err)) fail_msg("%s: %s", way->name, err.message);
        assert_true(resumed);
        assert_int_equal(heft_archive_open(path, NULL, &archive, &err), HEFT_OK);
    }
    uint8_t bytes[SIZE], mark = 0;
    int n = (int)heft_archive_count(archive);
    for (int i = 0; i < n; i++) {
        heft_view view;
        assert_int_equal(heft_view_of(archive, (uint64_t)i, &view, NULL), HEFT_OK);
        assert_int_equal(heft_read(&view, bytes, SIZE, NULL, NULL, NULL), HEFT_OK);
        if (i == 0) mark = bytes[0];
        for (int j = 0; j < SIZE; j++)
            if (bytes[j] != mark) fail_msg("%s: two saves in one", way->name);
    }
    /* Digests are those of the file, or there are none. */
    heft_status verified = way->digests ? heft_archive_verify(archive, NULL, 0, NULL, NULL, NULL, &err) : HEFT_OK;
    if (verified != HEFT_OK && verified != HEFT_NOT_FOUND) fail_msg("%s: %s", way->name, err.message);
    heft_archive_unref(archive);
    if (mark != 1 && mark != 2) fail_msg("%s: it is of no save", way->name);
    if (n != (mark == 1 ? way->before : way->after)) fail_msg("%s: %d tensors of mark %d", way->name, n, mark);
    if (resumed && mark != 2) fail_msg("%s: what has been resumed is old", way->name);
    return resumed ? 3 : mark;
}

bool save_way_index(const save_way *way, const char *folder) {
    char path[600], index[700];
    uint8_t mark = 0;
    size_t n;
    path_of(way, folder, path);
    snprintf(index, sizeof index, "%s/model.safetensors.index.json", path);
    if (access(index, F_OK) != 0) return false;
    char *text = (char *)test_slurp(index, &n);
    int found = 0;
    for (const char *at = text; (at = strstr(at, "\"model-")); at++, found++) {
        heft_archive *archive;
        heft_error err;
        heft_view view;
        uint8_t bytes[SIZE];
        char shard[700];
        snprintf(shard, sizeof shard, "%s/%.*s", path, (int)strcspn(at + 1, "\""), at + 1);
        if (heft_archive_open(shard, NULL, &archive, &err)) fail_msg("%s: its index: %s", way->name, err.message);
        assert_int_equal(heft_view_of(archive, 0, &view, NULL), HEFT_OK);
        assert_int_equal(heft_read(&view, bytes, SIZE, NULL, NULL, NULL), HEFT_OK);
        heft_archive_unref(archive);
        if (mark && bytes[0] != mark) fail_msg("%s: its index names files of two saves", way->name);
        mark = bytes[0];
    }
    free(text);
    assert_int_equal(found, mark == 1 ? way->before : way->after);
    return true;
}

int save_way_entries(const char *folder, int *temps) {
    DIR *d = opendir(folder);
    int n = 0;
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));) {
        char path[700];
        struct stat st;
        int inner = 0;
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) continue;
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        n++;
        *temps += strncmp(e->d_name, ".heft-", 6) == 0;
        if (lstat(path, &st) == 0 && S_ISDIR(st.st_mode)) n += save_way_entries(path, &inner);
        *temps += inner;
    }
    closedir(d);
    return n;
}
