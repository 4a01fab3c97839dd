/* Saves that share blocks with the files they come from, on a pretended file system that can: what lies where, and what space
 * that takes. Real ones: tests/disks/test_disks.py. */
#include "helper_files.h"

#include "base/os_target.h"
#include "facts/facts.h"

#include <errno.h>
#include <unistd.h>

enum { SHARE_SIZE = 300000, SHARE_COUNT = 3 };

static uint8_t share_bytes[SHARE_COUNT][SHARE_SIZE];
static const char *const share_names[] = {"a", "b", "c"};
static const int64_t share_shape[] = {SHARE_SIZE};

/* ---- the file system ---- */

static uint32_t share_magic;
static int share_refusal;     /* errno of clones, 0: they work */
static uint64_t share_room;   /* bytes that are free */
static uint64_t share_device; /* added to that of folders */
static uint64_t share_cloned, share_reserved, share_nreserves;
static heft__target_sys share_sys;
static heft__facts_sys share_facts;

static int pretend_type(int fd, uint32_t *magic) {
    (void)fd;
    *magic = share_magic;
    return 0;
}

static int pretend_stat(int at, const char *path, heft__target_status *out) {
    heft__target_sys_replace(NULL);
    int result = heft__target_sys_get()->stat(at, path, out);
    heft__target_sys_replace(&share_sys);
    out->device += share_device;
    return result;
}

static int pretend_space(int fd, uint64_t *nbytes) {
    (void)fd;
    *nbytes = share_room;
    return 0;
}

static int pretend_reserve(int fd, uint64_t offset, uint64_t nbytes) {
    (void)fd, (void)offset;
    share_nreserves++;
    share_reserved += nbytes;
    errno = ENOSPC;
    return share_reserved > share_room ? -1 : 0;
}

static int pretend_clone(int to, uint64_t to_offset, int from, uint64_t from_offset, uint64_t nbytes) {
    static uint8_t buffer[SHARE_COUNT * SHARE_SIZE];
    errno = share_refusal;
    if (share_refusal) return -1;
    assert_int_equal(to_offset % 4096 | from_offset % 4096 | nbytes % 4096, 0);
    assert_int_equal(pread(from, buffer, (size_t)nbytes, (off_t)from_offset), nbytes);
    assert_int_equal(pwrite(to, buffer, (size_t)nbytes, (off_t)to_offset), nbytes);
    share_cloned += nbytes;
    return 0;
}

static void pretend(uint32_t magic, int refusal, uint64_t room, uint64_t device) {
    heft__target_sys_replace(NULL);
    heft__facts_sys_replace(NULL);
    share_magic = magic;
    share_refusal = refusal;
    share_room = room;
    share_device = device;
    share_cloned = share_reserved = share_nreserves = 0;
    share_sys = *heft__target_sys_get();
    share_sys.stat = pretend_stat;
    share_sys.space = pretend_space;
    share_sys.reserve = pretend_reserve;
    share_sys.clone = pretend_clone;
    share_facts = *heft__facts_sys_get();
    share_facts.fs_type = pretend_type;
    heft__target_sys_replace(&share_sys);
    heft__facts_sys_replace(&share_facts);
}

static int truth(void **state) {
    (void)state;
    heft__target_sys_replace(NULL);
    heft__facts_sys_replace(NULL);
    return 0;
}

/* ---- files ---- */

#define SHARE_XFS UINT32_C(0x58465342)
#define SHARE_EXT4 UINT32_C(0xEF53)

static heft_save_options share_options(const heft_pair *pair) {
    return (heft_save_options){.struct_size = sizeof(heft_save_options), .metadata = pair, .nmetadata = pair ? 1 : 0,
                               .overwrite = true, .no_sync = true, .match_source = true};
}

static const char *share_file(void) {
    heft_save_item items[SHARE_COUNT] = {{0}};
    for (int i = 0; i < SHARE_COUNT; i++) {
        for (int k = 0; k < SHARE_SIZE; k++) share_bytes[i][k] = (uint8_t)(k * (i + 3) >> 2);
        items[i] = (heft_save_item){.name = share_names[i], .data = share_bytes[i], .shape = share_shape, .rank = 1,
                                    .dtype = HEFT_U8};
    }
    heft_save_options options = share_options(NULL);
    const char *path = test_path("from.safetensors");
    assert_int_equal(heft_save(path, items, SHARE_COUNT, &options, NULL, NULL), HEFT_OK);
    return path;
}

static heft_archive *share_open(const char *path) {
    heft_archive *archive;
    assert_int_equal(heft_archive_open(path, NULL, &archive, NULL), HEFT_OK);
    return archive;
}

static void share_same(const heft_archive *archive) {
    static uint8_t back[SHARE_SIZE];
    assert_int_equal(heft_archive_count(archive), SHARE_COUNT);
    for (uint64_t i = 0; i < SHARE_COUNT; i++) {
        heft_view view;
        assert_int_equal(heft_view_named(archive, share_names[i], SIZE_MAX, &view, NULL), HEFT_OK);
        assert_int_equal(heft_read(&view, back, sizeof back, NULL, NULL, NULL), HEFT_OK);
        assert_memory_equal(back, share_bytes[i], SHARE_SIZE);
    }
}

static void share_items(const heft_archive *archive, heft_save_item items[SHARE_COUNT]) {
    memset(items, 0, SHARE_COUNT * sizeof *items);
    for (uint64_t i = 0; i < SHARE_COUNT; i++) {
        items[i].archive = archive;
        assert_int_equal(heft_archive_find(archive, share_names[i], SIZE_MAX, &items[i].id, NULL), HEFT_OK);
        items[i].name = share_names[i];
    }
}

static uint64_t share_offset(const heft_archive *archive) {
    heft_tensor tensor;
    assert_int_equal(heft_archive_get(archive, 0, &tensor, NULL), HEFT_OK);
    return tensor.offset;
}

/* ---- the tests ---- */

/* Headers of many lengths: the data lies as in the source, and all but the ends are shared, in a room far too small. */
static void headers_of_all_lengths(void **state) {
    (void)state;
    heft_archive *from = share_open(share_file());
    heft_save_item items[SHARE_COUNT];
    static char value[9001];
    share_items(from, items);
    memset(value, 'v', sizeof value - 1);
    for (size_t length = 0; length < sizeof value; length += 500) {
        heft_pair pair = {"k", 1, value, length};
        heft_save_options options = share_options(&pair);
        heft_save_stats stats;
        pretend(SHARE_XFS, 0, 30000, 0);
        assert_int_equal(heft_save(test_path("to.safetensors"), items, SHARE_COUNT, &options, &stats, NULL), HEFT_OK);
        assert_true(stats.shared_nbytes == share_cloned && share_cloned > SHARE_COUNT * SHARE_SIZE - 8192);
        assert_true(share_reserved <= stats.header_nbytes && share_nreserves == 1);
        heft_archive *to = share_open(test_path("to.safetensors"));
        assert_int_equal(share_offset(to) % 4096, share_offset(from) % 4096);
        share_same(to);
        heft_archive_unref(to);
    }
    heft_archive_unref(from);
}

/* A file that takes the place of the one that its tensors lie in, and a set made of it. */
static void replaced_and_sharded(void **state) {
    (void)state;
    heft_archive *from = share_open(share_file());
    heft_save_item items[SHARE_COUNT];
    heft_pair pair = {"k", 1, "v", 1};
    heft_save_options options = share_options(&pair);
    heft_save_stats stats;
    share_items(from, items);
    pretend(SHARE_XFS, 0, 30000, 0);
    assert_int_equal(heft_save(test_path("from.safetensors"), items, SHARE_COUNT, &options, &stats, NULL), HEFT_OK);
    assert_true(stats.shared_nbytes > SHARE_COUNT * SHARE_SIZE - 8192);
    heft_set_options set = {.struct_size = sizeof set, .ceiling_nbytes = SHARE_SIZE, .create_dir = true};
    pretend(SHARE_XFS, 0, 30000, 0);
    assert_int_equal(heft_save_set(test_path("set"), items, SHARE_COUNT, &options, &set, &stats, NULL), HEFT_OK);
    assert_true(stats.nfiles == SHARE_COUNT && stats.shared_nbytes > SHARE_COUNT * (SHARE_SIZE - 8192));
    heft_archive_unref(from);
    const char *paths[] = {test_path("from.safetensors"), test_path("set")};
    for (int i = 0; i < 2; i++) {
        heft_archive *archive = share_open(paths[i]);
        share_same(archive);
        heft_archive_unref(archive);
    }
}

/* Nothing is padded where nothing can be shared, and space is asked for as ever. */
static void where_nothing_is_shared(void **state) {
    (void)state;
    heft_archive *from = share_open(share_file());
    heft_save_item items[SHARE_COUNT];
    heft_pair pair = {"k", 1, "v", 1};
    heft_save_options plain = share_options(&pair);
    heft_buffer whole;
    share_items(from, items);
    assert_int_equal(heft_save_buffer(items, SHARE_COUNT, &plain, &whole, NULL, NULL), HEFT_OK);
    static const struct {
        uint32_t magic;
        uint64_t device;
        bool no_share;
    } cases[] = {{SHARE_EXT4, 0, false}, {SHARE_XFS, 1, false}, {SHARE_XFS, 0, true}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        heft_save_options options = plain;
        heft_save_stats stats;
        heft_error err;
        options.no_share = cases[i].no_share;
        pretend(cases[i].magic, EOPNOTSUPP, 30000, cases[i].device);
        assert_int_equal(heft_save(test_path("full"), items, SHARE_COUNT, &options, NULL, &err), HEFT_LIMIT);
        assert_int_equal(err.fault, HEFT_FAULT_NO_SPACE);
        assert_int_equal(err.expected, whole.nbytes);
        assert_int_equal(access(test_path("full"), F_OK), -1);
        share_room = UINT64_C(1) << 40;
        assert_int_equal(heft_save(test_path("roomy"), items, SHARE_COUNT, &options, &stats, NULL), HEFT_OK);
        assert_true(stats.file_nbytes == whole.nbytes && stats.shared_nbytes == 0);
    }
    heft_buffer_release(&whole);
    heft_archive_unref(from);
}

/* A file system that was thought to share and does not: the bytes are written if there is room for them. */
static void sharing_refused(void **state) {
    (void)state;
    heft_archive *from = share_open(share_file());
    heft_save_item items[SHARE_COUNT];
    heft_save_options options = share_options(NULL);
    heft_save_stats stats;
    heft_error err;
    share_items(from, items);
    pretend(SHARE_XFS, EOPNOTSUPP, 30000, 0);
    const char *path = test_path("refused");
    assert_int_equal(heft_save(path, items, SHARE_COUNT, &options, NULL, &err), HEFT_LIMIT);
    assert_int_equal(err.fault, HEFT_FAULT_NO_SPACE);
    assert_int_equal(access(path, F_OK), -1);
    pretend(SHARE_XFS, EOPNOTSUPP, 1 << 30, 0);
    assert_int_equal(heft_save(path, items, SHARE_COUNT, &options, &stats, &err), HEFT_OK);
    assert_true(stats.shared_nbytes == 0 && share_reserved == stats.file_nbytes);
    heft_archive *to = share_open(path);
    share_same(to);
    heft_archive_unref(to);
    heft_archive_unref(from);
}

/* Files of one tensor each, of so many blocks, whose headers are longer by so many bytes, made into one file. */
static uint64_t share_merged(const int blocks[SHARE_COUNT], const size_t longer[SHARE_COUNT]) {
    static char value[5000];
    heft_archive *from[SHARE_COUNT];
    heft_save_item items[SHARE_COUNT] = {{0}};
    heft_save_options options = share_options(NULL);
    heft_save_stats stats;
    memset(value, 'v', sizeof value);
    for (int i = 0; i < SHARE_COUNT; i++) {
        char name[20];
        const int64_t shape[] = {blocks[i] * 4096};
        const heft_save_item one = {.name = share_names[i], .data = share_bytes[i], .shape = shape, .rank = 1, .dtype = HEFT_U8};
        const heft_pair pair = {"k", 1, value, longer[i]};
        heft_save_options own = share_options(&pair);
        snprintf(name, sizeof name, "part%d", i);
        const char *path = test_path(name);
        assert_int_equal(heft_save(path, &one, 1, &own, NULL, NULL), HEFT_OK);
        from[i] = share_open(path);
        items[i] = (heft_save_item){.name = share_names[i], .archive = from[i]};
    }
    pretend(SHARE_XFS, 0, UINT64_C(1) << 40, 0);
    assert_int_equal(heft_save(test_path("merged"), items, SHARE_COUNT, &options, &stats, NULL), HEFT_OK);
    assert_int_equal(stats.shared_nbytes, share_cloned);
    heft_archive *to = share_open(test_path("merged"));
    for (uint64_t id = 0; id < SHARE_COUNT; id++) {
        static uint8_t back[SHARE_SIZE];
        heft_view view;
        assert_int_equal(heft_view_named(to, share_names[id], SIZE_MAX, &view, NULL), HEFT_OK);
        assert_int_equal(heft_read(&view, back, sizeof back, NULL, NULL, NULL), HEFT_OK);
        assert_memory_equal(back, share_bytes[id], (size_t)blocks[id] * 4096);
    }
    heft_archive_unref(to);
    for (int i = 0; i < SHARE_COUNT; i++) heft_archive_unref(from[i]);
    truth(NULL);
    return stats.shared_nbytes / 4096;
}

/* Each file can be shared if all before it are whole blocks long and its header is as long as theirs, modulo blocks; else those
 * are that are most together. Of each the first and the last block, which are not whole, are written. */
static void several_sources(void **state) {
    (void)state;
    heft_archive_unref(share_open(share_file()));
    assert_int_equal(share_merged((int[]){20, 20, 20}, (size_t[]){9, 9, 9}), 57);
    assert_int_equal(share_merged((int[]){20, 20, 20}, (size_t[]){9, 9 + 4096, 9}), 57);
    assert_int_equal(share_merged((int[]){30, 20, 20}, (size_t[]){400, 9, 9}), 38);
    assert_int_equal(share_merged((int[]){50, 20, 20}, (size_t[]){400, 9, 9}), 49);
    assert_int_equal(share_merged((int[]){17, 18, 19}, (size_t[]){400, 9, 800}), 18);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(headers_of_all_lengths, truth),
        cmocka_unit_test_teardown(replaced_and_sharded, truth),
        cmocka_unit_test_teardown(where_nothing_is_shared, truth),
        cmocka_unit_test_teardown(sharing_refused, truth),
        cmocka_unit_test_teardown(several_sources, truth),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
