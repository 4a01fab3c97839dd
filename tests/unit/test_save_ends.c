/* label: full */
/* What comes after saves and edits: resuming, cleaning, keeping the newest, digests and aligned copies beside files; each with
 * every system call that changes a disk, and every allocation, failing in turn. The failure is told, nothing leaks, what is on the
 * disk is what it was, or is ended by calling again. */
#include "helper_disk.h"
#include "helper_edit.h"
#include "helper_target.h"
#include "helper_ways.h"

#include <errno.h>
#include <unistd.h>

static char folder[4096]; /* of the job at work */

/* One job. `prepare` makes the folder anew; `run` does the work; `look` judges what is there after it. */
typedef struct end_job {
    const char *name;
    void (*prepare)(void);
    heft_status (*run)(const heft_allocator *alloc, heft_error *err);
    void (*look)(heft_status status);
    bool copes; /* where something fails the job may go on without it */
} end_job;

/* Without waiting for a disk. */
static void calmly(void (*action)(void)) {
    trap_begin(&(trap_plan){0});
    action();
    trap_end();
}

static uint64_t step(void) {
    return 20 / test_count(20);
}

/* A failure says what failed: the call, by its number, or (0) memory. */
static void end_as(const end_job *job, heft_status status, const heft_error *err, int code, uint64_t k) {
    if (status == HEFT_OK) return;
    bool fits = code ? err->sys_errno == code : status == HEFT_OUT_OF_MEMORY && err->fault == HEFT_FAULT_MEMORY;
    if (!fits || err->status != status || !err->message[0])
        fail_msg("%s, %u: %s: %s", job->name, (unsigned)k, heft_status_name(status), err->message);
}

static void fail_each_call(const end_job *job) {
    static const int codes[] = {EIO, ENOSPC};
    for (size_t c = 0; c < sizeof codes / sizeof *codes; c++)
        for (uint64_t k = 1;; k += step()) {
            heft_error err = {0};
            calmly(job->prepare);
            int fds = test_count_fds();
            trap_begin(&(trap_plan){.fail_call = k, .fail_errno = codes[c]});
            heft_status status = job->run(NULL, &err);
            uint64_t calls = trap_calls();
            trap_end();
            assert_int_equal(test_count_fds(), fds);
            end_as(job, status, &err, codes[c], k);
            trap_begin(&(trap_plan){0});
            job->look(status);
            trap_end();
            if (calls < k) {
                assert_int_equal(status, HEFT_OK);
                assert_true(k > 1);
                break;
            }
        }
}

static void fail_each_allocation(const end_job *job) {
    for (int after = 0; after < 2; after++)
        for (uint64_t k = 1;; k += step()) {
            heft_error err = {0};
            test_allocator memory;
            calmly(job->prepare);
            int fds = test_count_fds();
            test_allocator_init(&memory, k);
            memory.fail_after = after;
            trap_begin(&(trap_plan){0});
            heft_status status = job->run(&memory.alloc, &err);
            assert_int_equal(test_count_fds(), fds);
            if (memory.live_blocks)
                fail_msg("%s, allocation %u: %u blocks are left", job->name, (unsigned)k, (unsigned)memory.live_blocks);
            end_as(job, status, &err, 0, k);
            if (status == HEFT_OK && memory.calls >= k && !job->copes)
                fail_msg("%s, allocation %u: it is not told", job->name, (unsigned)k);
            job->look(status);
            trap_end();
            if (memory.calls < k) {
                assert_int_equal(status, HEFT_OK);
                assert_true(k > 1);
                break;
            }
        }
}

static heft_save_options with(const heft_allocator *alloc) {
    return (heft_save_options){.struct_size = sizeof(heft_save_options), .allocator = alloc};
}

/* ---- resuming a set ---- */

static const save_way *resume_way;
static uint64_t resume_at; /* the call that failed when it was replaced */
static bool resume_marked;

static void resume_prepare(void) {
    disk_empty(folder);
    save_way_prepare(resume_way, folder);
    trap_begin(&(trap_plan){.fail_call = resume_at, .fail_errno = EIO});
    (void)save_way_run(resume_way, folder, NULL);
    trap_begin(&(trap_plan){0});
    char marker[4200];
    snprintf(marker, sizeof marker, "%s/.heft-save-in-progress", folder);
    resume_marked = access(marker, F_OK) == 0;
}

static heft_status resume_run(const heft_allocator *alloc, heft_error *err) {
    const heft_save_options options = with(alloc);
    bool resumed = true;
    heft_status status = heft_set_resume(folder, &options, &resumed, err);
    assert_int_equal(resumed, status == HEFT_OK);
    return status;
}

static void resume_look(heft_status status) {
    int found = save_way_found(resume_way, folder), temps = 0;
    if (found != 2 && (found != 3 || status == HEFT_OK)) fail_msg("%s: found %d", resume_way->name, found);
    (void)save_way_entries(folder, &temps);
    assert_int_equal(temps, 0);
}

static void resuming(void **state) {
    (void)state;
    static const end_job job = {"resuming a set", resume_prepare, resume_run, resume_look, false};
    snprintf(folder, sizeof folder, "%s", test_mkdir("resumed"));
    int marked = 0;
    for (size_t i = 0; i < nsave_ways; i++) {
        resume_way = &save_ways[i];
        if (strcmp(resume_way->name, "a larger set") != 0 && strcmp(resume_way->name, "one file for a set") != 0) continue;
        for (resume_at = 20; resume_at < 100; resume_at += 3) { /* until it fails no more */
            calmly(resume_prepare);
            if (!resume_marked) continue;
            marked++;
            fail_each_call(&job);
            fail_each_allocation(&job);
        }
    }
    assert_true(marked > 3);
}

/* ---- cleaning ---- */

#define DEAD "12345678-1-12345678.tmp" /* of another machine */

static void clean_prepare(void) {
    size_t n;
    static const char marker[] = "{\"writer\":\"x\",\"renames\":[[\".heft-kept-" DEAD "\",\"b\",1]]}";
    disk_empty(folder);
    test_write("cleaned/.heft-save-in-progress", marker, sizeof marker - 1);
    test_write("cleaned/.heft-kept-" DEAD, "y", 1);
    test_write("cleaned/.heft-file-" DEAD, "y", 1);
    test_mkdir("cleaned/.heft-folder-" DEAD);
    test_write("cleaned/.heft-folder-" DEAD "/inside", "y", 1);
    edit_make("cleaned/damaged.safetensors");
    test_write("cleaned/.heft-damaged.safetensors.journal", "x", 1);
    edit_make("cleaned/foreign.safetensors");
    uint8_t *journal = edit_journal(test_path("cleaned/foreign.safetensors"), &n);
    test_write("cleaned/foreign.safetensors", edit_bytes('2'), EDIT_FILE - 1); /* another file: the journal is of no use */
    test_write_safetensors("cleaned/foreign.safetensors", &(test_tensor){"a", "U8", "3", NULL, 3}, 1, NULL);
    test_write("cleaned/.heft-foreign.safetensors.journal", journal, n);
    free(journal);
    journal = edit_journal(edit_make("cleaned/needed.safetensors"), &n);
    test_write("cleaned/.heft-needed.safetensors.journal", journal, n);
    free(journal);
}

static uint64_t clean_removed;

static heft_status clean_run(const heft_allocator *alloc, heft_error *err) {
    const heft_save_options options = with(alloc);
    clean_removed = 100;
    return heft_save_clean(folder, true, &options, &clean_removed, err);
}

static void clean_look(heft_status status) {
    static const char *const litter[] = {(".heft-file-" DEAD), (".heft-folder-" DEAD), ".heft-damaged.safetensors.journal",
                                         ".heft-foreign.safetensors.journal"};
    static const char *const rest[] = {".heft-save-in-progress", (".heft-kept-" DEAD), ".heft-needed.safetensors.journal",
                                       "damaged.safetensors", "foreign.safetensors", "needed.safetensors"};
    char path[4400];
    uint64_t gone = 0, again;
    for (size_t i = 0; i < sizeof rest / sizeof *rest; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, rest[i]);
        if (access(path, F_OK) != 0) fail_msg("%s is gone", rest[i]);
    }
    for (size_t i = 0; i < sizeof litter / sizeof *litter; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, litter[i]);
        gone += access(path, F_OK) != 0;
    }
    assert_int_equal(gone, clean_removed);
    if (status == HEFT_OK) assert_int_equal(gone, 4);
    assert_int_equal(heft_save_clean(folder, true, NULL, &again, NULL), HEFT_OK);
    assert_int_equal(gone + again, 4);
}

static void cleaning(void **state) {
    (void)state;
    static const end_job job = {"cleaning", clean_prepare, clean_run, clean_look, false};
    snprintf(folder, sizeof folder, "%s", test_mkdir("cleaned"));
    fail_each_allocation(&job);
    for (uint64_t k = 1, last = false; !last; k += step()) {
        heft_error err = {0};
        calmly(clean_prepare);
        trap_begin(&(trap_plan){.fail_call = k, .fail_errno = EIO});
        heft_status status = clean_run(NULL, &err);
        last = trap_calls() < k;
        trap_begin(&(trap_plan){0});
        end_as(&job, status, &err, EIO, k);
        clean_look(clean_removed == 4 ? status : HEFT_IO); /* a journal that cannot be looked at stays, in silence */
        trap_end();
        if (last) assert_true(status == HEFT_OK && clean_removed == 4);
    }
}

/* ---- ending an edit ---- */

static bool end_undo;

static void edit_prepare(void) {
    size_t n;
    disk_empty(folder);
    uint8_t *journal = edit_journal(edit_make("edited/x.safetensors"), &n);
    test_write("edited/.heft-x.safetensors.journal", journal, n);
    free(journal);
}

static heft_status edit_end(const heft_allocator *alloc, heft_error *err) {
    const heft_edit_options options = {.struct_size = sizeof options, .allocator = alloc};
    bool done = true;
    heft_status status = (end_undo ? heft_edit_undo : heft_edit_resume)(test_path("edited/x.safetensors"), &options, &done, err);
    assert_int_equal(done, status == HEFT_OK);
    return status;
}

static void edit_look(heft_status status) {
    heft_error err;
    bool done;
    char *path = strdup(test_path("edited/x.safetensors"));
    bool journal = access(test_path("edited/.heft-x.safetensors.journal"), F_OK) == 0;
    assert_false(status == HEFT_OK && journal);
    assert_int_equal(heft_edit_undo(path, NULL, &done, &err), HEFT_OK);
    assert_int_equal(done, journal);
    assert_int_equal(edit_mark(path, HEFT_FAULT_NONE, &err), journal || end_undo ? '1' : '2');
    free(path);
}

static void ending_edits(void **state) {
    (void)state;
    static const end_job job = {"ending an edit", edit_prepare, edit_end, edit_look, false};
    snprintf(folder, sizeof folder, "%s", test_mkdir("edited"));
    for (int undo = 0; undo < 2; undo++) {
        end_undo = undo;
        fail_each_call(&job);
        fail_each_allocation(&job);
    }
}

/* ---- folders of checkpoints ---- */

static heft_verify keep_verify;
static uint64_t keep_removed;
static const char *const steps[] = {"step-1", "step-2", "step-3.safetensors", "step-4", "step-5"};
enum { STEPS = 5 };

static void keep_prepare(void) {
    static const int64_t shape[] = {20};
    static const uint8_t data[20];
    const heft_save_item items[] = {{.name = "a", .data = data, .shape = shape, .rank = 1, .dtype = HEFT_U8},
                                    {.name = "b", .data = data, .shape = shape, .rank = 1, .dtype = HEFT_U8}};
    const heft_set_options set = {.struct_size = sizeof set, .ceiling_nbytes = 20, .publish = true};
    const heft_save_options options = {
        .struct_size = sizeof options, .digests = keep_verify == HEFT_VERIFY_DIGESTS ? HEFT_DIGEST_SIDECAR : 0};
    disk_empty(folder);
    for (int i = 0; i < STEPS; i++) {
        char path[4200];
        snprintf(path, sizeof path, "%s/%s", folder, steps[i]);
        heft_status status = i == 2 ? heft_save(path, items, 2, &options, NULL, NULL)
                                    : heft_save_set(path, items, 2, &options, &set, NULL, NULL);
        assert_int_equal(status, HEFT_OK);
    }
    assert_int_equal(unlink(test_path("steps/step-5/model-00001-of-00002.safetensors")), 0); /* the newest is not whole */
}

static heft_status keep_run(const heft_allocator *alloc, heft_error *err) {
    const heft_open_options options = {.struct_size = sizeof options, .allocator = alloc};
    keep_removed = 100;
    return heft_checkpoint_keep(folder, "step-*", 1, keep_verify, &options, &keep_removed, err);
}

static bool keep_there(int i) {
    char path[4200];
    snprintf(path, sizeof path, "%s/%s", folder, steps[i]);
    return access(path, F_OK) == 0;
}

static bool keep_failed; /* a call fails: where bytes are looked at, what cannot be read is not whole, and less is removed */

static void keep_look(heft_status status) {
    uint64_t gone = 0, removed, skipped;
    heft_buffer newest;
    for (int i = 0; i < STEPS; i++) gone += !keep_there(i);
    if (status == HEFT_OK) assert_true(gone == keep_removed && (gone == 3 || (keep_failed && keep_verify == HEFT_VERIFY_DIGESTS)));
    assert_true(keep_there(3) && keep_there(4));
    assert_true(gone == keep_removed || (status != HEFT_OK && gone == keep_removed + 1)); /* one may be out of sight only */
    for (int i = 0; i < 3; i++) {
        heft_archive *archive;
        char path[4200];
        if (!keep_there(i)) continue;
        snprintf(path, sizeof path, "%s/%s", folder, steps[i]);
        assert_int_equal(heft_archive_open(path, NULL, &archive, NULL), HEFT_OK);
        assert_int_equal(heft_archive_count(archive), 2);
        heft_archive_unref(archive);
    }
    heft_error err;
    if (heft_checkpoint_latest(folder, NULL, HEFT_VERIFY_HEADERS, NULL, &newest, &skipped, &err)) fail_msg("%s", err.message);
    assert_non_null(strstr(newest.data, "/step-4"));
    assert_int_equal(skipped, 1);
    heft_buffer_release(&newest);
    assert_int_equal(heft_checkpoint_keep(folder, NULL, 1, HEFT_VERIFY_HEADERS, NULL, &removed, NULL), HEFT_OK);
    assert_int_equal(gone + removed, 3);
}

static heft_status latest_run(const heft_allocator *alloc, heft_error *err) {
    const heft_open_options options = {.struct_size = sizeof options, .allocator = alloc};
    heft_buffer path = {.data = folder};
    uint64_t skipped = 100;
    heft_status status = heft_checkpoint_latest(folder, NULL, keep_verify, &options, &path, &skipped, err);
    assert_int_equal(status == HEFT_OK, path.data != NULL);
    assert_int_equal(skipped, status == HEFT_OK);
    if (status == HEFT_OK) assert_non_null(strstr(path.data, "/step-4"));
    heft_buffer_release(&path);
    return status;
}

static void latest_look(heft_status status) {
    (void)status;
    for (int i = 0; i < STEPS; i++) assert_true(keep_there(i));
}

static void nothing(void) {}

static void checkpoints(void **state) {
    (void)state;
    static const end_job keeps = {"keeping the newest", keep_prepare, keep_run, keep_look, false},
                         finds = {"the newest", nothing, latest_run, latest_look, false};
    snprintf(folder, sizeof folder, "%s", test_mkdir("steps"));
    for (keep_verify = HEFT_VERIFY_HEADERS; keep_verify <= HEFT_VERIFY_DIGESTS; keep_verify++) {
        if (keep_verify == HEFT_VERIFY_NONE) continue; /* the newest would be kept, that is not whole */
        if (keep_verify == HEFT_VERIFY_DIGESTS && !(heft_features() & HEFT_FEATURE_XXHASH)) continue;
        keep_failed = true;
        fail_each_call(&keeps);
        keep_failed = false;
        fail_each_allocation(&keeps);
        calmly(keep_prepare);
        fail_each_allocation(&finds);
    }
}

/* A checkpoint is opened as the caller says. */
static void options_of_checkpoints(void **state) {
    (void)state;
    heft_error err;
    heft_buffer path;
    snprintf(folder, sizeof folder, "%s", test_mkdir("options"));
    test_write_safetensors("options/step-1.safetensors", &(test_tensor){"a", "U8", "2", NULL, 2}, 1, NULL);
    static const char header[] = "{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}";
    size_t n;
    uint8_t *longer = test_raw_safetensors(header, sizeof header - 1, "abc", 3, &n); /* a byte too many */
    test_write("options/step-2.safetensors", longer, n);
    free(longer);
    heft_open_options options = {.struct_size = sizeof options};
    assert_int_equal(heft_checkpoint_latest(folder, NULL, 0, &options, &path, NULL, NULL), HEFT_OK);
    assert_non_null(strstr(path.data, "/step-1"));
    heft_buffer_release(&path);
    options.lenient = HEFT_LENIENT_TRAILING_BYTES;
    assert_int_equal(heft_checkpoint_latest(folder, NULL, 0, &options, &path, NULL, NULL), HEFT_OK);
    assert_non_null(strstr(path.data, "/step-2"));
    heft_buffer_release(&path);
    options.lenient = UINT32_MAX;
    assert_int_equal(heft_checkpoint_latest(folder, NULL, 0, &options, &path, NULL, &err), HEFT_INVALID_ARGUMENT);
    assert_int_equal(heft_checkpoint_keep(folder, NULL, 1, 0, &options, NULL, &err), HEFT_INVALID_ARGUMENT);
    const heft_allocator none = {0};
    const heft_save_options save = with(&none);
    const heft_edit_options edit = {.struct_size = sizeof edit, .allocator = &none};
    assert_int_equal(heft_set_resume(folder, &save, NULL, &err), HEFT_INVALID_ARGUMENT);
    assert_int_equal(heft_save_clean(folder, false, &save, NULL, &err), HEFT_INVALID_ARGUMENT);
    assert_int_equal(heft_set_replace(folder, NULL, 0, NULL, &save, NULL, NULL, &err), HEFT_INVALID_ARGUMENT);
    assert_int_equal(heft_edit_resume(folder, &edit, NULL, &err), HEFT_INVALID_ARGUMENT);
    assert_int_equal(heft_edit_undo(folder, &edit, NULL, &err), HEFT_INVALID_ARGUMENT);
}

/* ---- beside files ---- */

static void write_two(const char *name, uint8_t mark) {
    static uint8_t data[100];
    const test_tensor tensors[] = {{"a", "U8", "100", data, 100}, {"b", "U8", "100", data, 100}};
    memset(data, mark, sizeof data);
    test_write_safetensors(name, tensors, 2, NULL);
}

/* Old digests are those of what was there before. */
static void sidecar_prepare(void) {
    heft_archive *archive;
    disk_empty(folder);
    for (int i = 0; i < 2; i++) {
        char name[60];
        snprintf(name, sizeof name, "digested/%d.safetensors", i);
        write_two(name, (uint8_t)(3 + i));
        assert_int_equal(heft_archive_open(test_path(name), NULL, &archive, NULL), HEFT_OK);
        if (i) assert_int_equal(heft_archive_write_sidecars(archive, NULL, NULL, NULL), HEFT_OK);
        heft_archive_unref(archive);
    }
}

static heft_status sidecar_run(const heft_allocator *alloc, heft_error *err) {
    heft_archive *archive;
    char *a = strdup(test_path("digested/0.safetensors")), *b = strdup(test_path("digested/1.safetensors"));
    heft_status status = HEFT_OK;
    for (int i = 0; i < 2 && status == HEFT_OK; i++) {
        heft_save_options options = with(alloc);
        heft_read_options read = {.struct_size = sizeof read, .allocator = alloc};
        options.overwrite = true;
        assert_int_equal(heft_archive_open(i ? b : a, NULL, &archive, err), HEFT_OK);
        status = heft_archive_write_sidecars(archive, &read, &options, err);
        heft_archive_unref(archive);
    }
    free(a);
    free(b);
    return status;
}

static void sidecar_look(heft_status status) {
    int temps = 0, known = 0;
    for (int i = 0; i < 2; i++) {
        heft_archive *archive;
        heft_error err;
        char name[60];
        snprintf(name, sizeof name, "digested/%d.safetensors", i);
        assert_int_equal(heft_archive_open(test_path(name), NULL, &archive, NULL), HEFT_OK);
        heft_status verified = heft_archive_verify(archive, NULL, 0, NULL, NULL, NULL, &err);
        heft_archive_unref(archive);
        if (verified != HEFT_OK && verified != HEFT_NOT_FOUND) fail_msg("%s", err.message);
        known += verified == HEFT_OK;
    }
    if (status == HEFT_OK) assert_int_equal(known, 2);
    assert_int_equal(save_way_entries(folder, &temps), 2 + known);
    assert_int_equal(temps, 0);
}

static void sidecars(void **state) {
    (void)state;
    static const end_job job = {"sidecars", sidecar_prepare, sidecar_run, sidecar_look, false};
    if (!(heft_features() & HEFT_FEATURE_XXHASH)) skip();
    snprintf(folder, sizeof folder, "%s", test_mkdir("digested"));
    fail_each_call(&job);
    fail_each_allocation(&job);
}

static heft_aligned cache_how;
static uint64_t cache_warnings;

static void cache_prepare(void) {
    disk_empty(folder);
    write_two("source.safetensors", 5);
}

static heft_status cache_run(const heft_allocator *alloc, heft_error *err) {
    const heft_open_options options = {.struct_size = sizeof options, .allocator = alloc};
    heft_archive *archive;
    uint8_t data[100];
    char *path = strdup(test_path("source.safetensors"));
    heft_status status = heft_open_aligned(path, folder, 64, &options, &archive, &cache_how, err);
    free(path);
    assert_int_equal(status == HEFT_OK, archive != NULL);
    if (status != HEFT_OK) return status;
    cache_warnings = heft_report_count(heft_archive_warnings(archive));
    assert_int_equal(heft_archive_count(archive), 2);
    for (uint64_t i = 0; i < 2 && status == HEFT_OK; i++) {
        heft_view view;
        heft_tensor tensor;
        assert_int_equal(heft_archive_get(archive, i, &tensor, NULL), HEFT_OK);
        assert_true(cache_how == HEFT_ALIGNED_UNWRITTEN || tensor.offset % 64 == 0);
        assert_int_equal(heft_view_of(archive, i, &view, NULL), HEFT_OK);
        status = heft_read(&view, data, sizeof data, NULL, NULL, err);
        for (size_t j = 0; j < sizeof data && status == HEFT_OK; j++) assert_int_equal(data[j], 5);
    }
    heft_archive_unref(archive);
    return status;
}

/* The source where the copy cannot be written, with the reason. */
static void cache_look(heft_status status) {
    int temps = 0, n = save_way_entries(folder, &temps);
    assert_int_equal(temps, 0);
    assert_true(n <= 1);
    if (status != HEFT_OK) return;
    assert_true(cache_how == HEFT_ALIGNED_BUILT ? n == 1 : cache_how == HEFT_ALIGNED_UNWRITTEN && cache_warnings == 1);
}

static void aligned_copies(void **state) {
    (void)state;
    static const end_job job = {"an aligned copy", cache_prepare, cache_run, cache_look, true};
    if (!(heft_features() & HEFT_FEATURE_XXHASH)) skip();
    snprintf(folder, sizeof folder, "%s", test_mkdir("aligned"));
    fail_each_call(&job);
    fail_each_allocation(&job);
    assert_int_equal(cache_how, HEFT_ALIGNED_BUILT);
}

/* ---- ties ---- */

static heft_status ties_run(const heft_allocator *alloc, heft_error *err) {
    static const float data[6];
    static const int64_t shape[] = {6};
    static const heft_pair pair = {"format", 6, "pt", 2};
    heft_save_options options = with(alloc);
    heft_save_item items[4];
    heft_ties *ties = (heft_ties *)folder;
    uint64_t n;
    for (int i = 0; i < 4; i++)
        items[i] = (heft_save_item){
            .name = &"dcba"[i], .name_len = 1, .data = i == 2 ? data + 1 : data, .shape = shape, .rank = 1, .dtype = HEFT_F16};
    options.metadata = &pair;
    options.nmetadata = 1;
    heft_status status = heft_ties_find(items, 4, &options, &ties, err);
    assert_int_equal(status == HEFT_OK, ties != NULL);
    if (status != HEFT_OK) return status;
    (void)heft_ties_list(ties, &n);
    assert_int_equal(n, 2);
    (void)heft_ties_metadata(ties, &n);
    assert_int_equal(n, 3);
    assert_int_equal(heft_ties_items(ties, &n)[1].name[0], 'a');
    assert_int_equal(n, 2);
    heft_ties_free(ties);
    return status;
}

static void nothing_to_see(heft_status status) {
    (void)status;
}

static void ties(void **state) {
    (void)state;
    static const end_job job = {"ties", nothing, ties_run, nothing_to_see, false};
    fail_each_allocation(&job);
}

static int teardown(void **state) {
    (void)state;
    trap_end();
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(resuming, teardown),       cmocka_unit_test_teardown(cleaning, teardown),
        cmocka_unit_test_teardown(ending_edits, teardown),   cmocka_unit_test_teardown(checkpoints, teardown),
        cmocka_unit_test(options_of_checkpoints),            cmocka_unit_test_teardown(sidecars, teardown),
        cmocka_unit_test_teardown(aligned_copies, teardown), cmocka_unit_test_teardown(ties, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
