/* Tensors whose dtype heft lacks: copied byte for byte with their spelling, digests made and compared; nothing else is possible. */
#include "helper_files.h"

#include "digest/digest.h"

#include <unistd.h>

static heft_error err;

#define OK(call)                                                                                                       \
    do                                                                                                                 \
        if ((call) != HEFT_OK) fail_msg("%s:%d: %s", __FILE__, __LINE__, err.message);                                 \
    while (0)

enum { NDATA = 40 };
static uint8_t data_bytes[NDATA];

/* F7, a spelling with escapes and a quote, one without bytes, between known ones; fields in any order, one spelling twice. */
static const char *unknown_file(void) {
    static const char header[] =
        "{\"q\":{\"dtype\":\"I2\",\"shape\":[4],\"data_offsets\":[0,1]},"
        "\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[1,9]},"
        "\"e\":{\"shape\":[18446744073709551615,1],\"data_offsets\":[9,20],\"dtype\":\"\\u00469\\\"\\n\\u00e9\"},"
        "\"__heft_pad__.00000000\":{\"dtype\":\"F7\",\"shape\":[3],\"data_offsets\":[20,23]},"
        "\"a\":{\"dtype\":\"U8\",\"shape\":[17],\"data_offsets\":[23,40]},"
        "\"empty\":{\"dtype\":\"\",\"shape\":[],\"data_offsets\":[40,40]}}";
    for (int i = 0; i < NDATA; i++) data_bytes[i] = (uint8_t)(i * 7 + 1);
    size_t nbytes;
    uint8_t *file = test_raw_safetensors(header, sizeof header - 1, data_bytes, NDATA, &nbytes);
    const char *path = test_write("unknown.safetensors", file, nbytes);
    free(file);
    return path;
}

static heft_archive *unknown_open(const char *path) {
    heft_open_options options = {.struct_size = sizeof options, .list_unknown_dtypes = true};
    heft_archive *archive;
    OK(heft_archive_open(path, &options, &archive, &err));
    return archive;
}

/* All tensors but that of a filler's name, which nobody may write. */
static uint64_t unknown_items(const heft_archive *archive, heft_save_item *items) {
    uint64_t n = 0;
    for (uint64_t id = 0; id < heft_archive_count(archive); id++) {
        heft_tensor tensor;
        OK(heft_archive_get(archive, id, &tensor, &err));
        if (tensor.name[0] == '_') continue;
        items[n++] = (heft_save_item){.name = tensor.name, .name_len = tensor.name_len, .archive = archive, .id = id};
    }
    return n;
}

static const char *file_text(const char *path) {
    size_t nbytes;
    uint8_t *file = test_slurp(path, &nbytes);
    static char text[4000];
    assert_true(nbytes > 8 && nbytes - 8 < sizeof text);
    memcpy(text, file + 8, nbytes - 8);
    text[nbytes - 8] = 0;
    free(file);
    return text;
}

static void assert_bytes(const char *path, const char *name, size_t from, size_t nbytes) {
    heft_archive *archive = unknown_open(path);
    heft_tensor tensor;
    heft_file file;
    uint64_t id;
    size_t size;
    OK(heft_archive_find(archive, name, SIZE_MAX, &id, &err));
    OK(heft_archive_get(archive, id, &tensor, &err));
    OK(heft_archive_file(archive, tensor.file, &file, &err));
    uint8_t *all = test_slurp(file.path, &size);
    assert_int_equal(tensor.nbytes, nbytes);
    if (nbytes) assert_memory_equal(all + tensor.offset, data_bytes + from, nbytes);
    free(all);
    heft_archive_unref(archive);
}

static void assert_all(const char *path) {
    assert_bytes(path, "q", 0, 1);
    assert_bytes(path, "b", 1, 8);
    assert_bytes(path, "e", 9, 11);
    assert_bytes(path, "a", 23, 17);
    assert_bytes(path, "empty", 40, 0);
}

static void a_copy(void **state) {
    (void)state;
    heft_archive *archive = unknown_open(unknown_file());
    heft_save_item items[8];
    uint64_t n = unknown_items(archive, items);
    const char *path = test_path("copy.safetensors");
    heft_save_stats stats;
    assert_int_equal(n, 5);
    for (int way = 0; way < 4; way++) {
        heft_save_options options = {.struct_size = sizeof options, .overwrite = true, .no_sync = true, .verify = true,
                                     .align = way & 1 ? 32 : 0, .keep_order = way & 2};
        OK(heft_save(path, items, n, &options, &stats, &err));
        assert_int_equal(stats.ntensors, 5);
        assert_all(path);
        if (way) continue;
        /* Known ones as ever, then the others by their names. */
        assert_non_null(strstr(file_text(path),
                               "{\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
                               "\"a\":{\"dtype\":\"U8\",\"shape\":[17],\"data_offsets\":[8,25]},"
                               "\"e\":{\"dtype\":\"F9\\\"\\n\xC3\xA9\","
                               "\"shape\":[18446744073709551615,1],\"data_offsets\":[25,36]},"
                               "\"empty\":{\"dtype\":\"\",\"shape\":[],\"data_offsets\":[36,36]},"
                               "\"q\":{\"dtype\":\"I2\",\"shape\":[4],\"data_offsets\":[36,37]}}"));
    }
    heft_archive_unref(archive);
    archive = unknown_open(path); /* a copy of the copy, over itself */
    n = unknown_items(archive, items);
    heft_save_options again = {.struct_size = sizeof again, .overwrite = true, .no_sync = true};
    OK(heft_save(path, items, n, &again, &stats, &err));
    assert_all(path);
    heft_archive_unref(archive);
}

static void a_set_and_an_edit(void **state) {
    (void)state;
    heft_archive *archive = unknown_open(unknown_file());
    heft_save_item items[8];
    uint64_t n = unknown_items(archive, items), id;
    heft_save_options options = {.struct_size = sizeof options, .no_sync = true, .reserve_header_nbytes = 1000};
    heft_set_options set = {.struct_size = sizeof set, .ceiling_nbytes = 12, .create_dir = true};
    OK(heft_save_set(test_path("set"), items, n, &options, &set, NULL, &err));
    assert_all(test_path("set"));
    OK(heft_save(test_path("edit.safetensors"), items, n, &options, NULL, &err));
    heft_archive_unref(archive);
    archive = unknown_open(test_path("edit.safetensors"));
    OK(heft_archive_find(archive, "e", 1, &id, &err));
    heft_new_name name = {.id = id, .name = "q2"};
    OK(heft_edit_in_place(archive, &name, 1, NULL, NULL, &err));
    heft_archive_unref(archive);
    assert_bytes(test_path("edit.safetensors"), "q2", 9, 11);
    assert_non_null(strstr(file_text(test_path("edit.safetensors")), "\"q2\":{\"dtype\":\"F9\\\"\\n"));
}

static void nothing_else(void **state) {
    (void)state;
    heft_archive *archive = unknown_open(unknown_file());
    uint64_t id;
    OK(heft_archive_find(archive, "e", 1, &id, &err));
    heft_save_item item = {.name = "e", .archive = archive, .id = id, .as = HEFT_F32};
    heft_save_options options = {.struct_size = sizeof options, .overwrite = true, .no_sync = true};
    const char *path = test_path("else.safetensors");
    assert_int_equal(heft_save(path, &item, 1, &options, NULL, &err), HEFT_UNSUPPORTED);
    assert_int_equal(err.fault, HEFT_FAULT_UNKNOWN_DTYPE);
    assert_string_equal(err.tensor, "e");
    item.as = HEFT_DTYPE_NONE;
    static const char *const formats[] = {"npy", "npz"};
    for (int i = 0; i < 2; i++) {
        options.format = formats[i];
        assert_int_equal(heft_save(path, &item, 1, &options, NULL, &err), HEFT_UNSUPPORTED);
        assert_string_equal(err.tensor, "e");
    }
    options.format = NULL;
    heft_writer *writer;
    OK(heft_writer_open(path, HEFT_WRITER_STREAM, NULL, 0, &options, NULL, &writer, &err));
    assert_int_equal(heft_writer_add(writer, &item, &err), HEFT_UNSUPPORTED);
    heft_writer_free(writer);
    assert_int_equal(heft_writer_open(path, HEFT_WRITER_DECLARED, &item, 1, &options, NULL, &writer, &err), HEFT_UNSUPPORTED);
    OK(heft_writer_open(path, HEFT_WRITER_COLLECT, NULL, 0, &options, NULL, &writer, &err));
    OK(heft_writer_add(writer, &item, &err));
    OK(heft_writer_finish(writer, NULL, &err));
    heft_writer_free(writer);
    assert_bytes(path, "e", 9, 11);
    heft_archive_unref(archive);
    assert_int_equal(heft_archive_open(path, NULL, &archive, &err), HEFT_UNSUPPORTED); /* unless asked for */
    /* An unknown dtype of NumPy has no spelling that a safetensors file could have. */
    static const char npy[] = "\x93NUMPY\x01\x00\x38\x00{'descr': '|S4', 'fortran_order': False, 'shape': (2,)}\nabcdefgh";
    archive = unknown_open(test_write("s.npy", npy, sizeof npy - 1));
    item = (heft_save_item){.name = "s", .archive = archive};
    assert_int_equal(heft_save(path, &item, 1, &options, NULL, &err), HEFT_INVALID_ARGUMENT);
    assert_int_equal(err.fault, HEFT_FAULT_UNKNOWN_DTYPE);
    heft_archive_unref(archive);
}

/* Digests are of bytes, whatever they mean. */
static void digests(void **state) {
    (void)state;
    heft_save_item items[8];
    heft_save_options options = {.struct_size = sizeof options, .overwrite = true, .no_sync = true,
                                 .digests = HEFT_DIGEST_TENSORS | HEFT_DIGEST_DATA};
    heft_archive *archive = unknown_open(unknown_file());
    uint64_t n = unknown_items(archive, items);
    const char *path = test_path("digests.safetensors");
    if (!heft__xxh3(false, NULL)) {
        assert_int_equal(heft_save(path, items, n, &options, NULL, &err), HEFT_UNSUPPORTED);
        heft_archive_unref(archive);
        return;
    }
    OK(heft_save(path, items, n, &options, NULL, &err));
    heft_archive_unref(archive);
    archive = unknown_open(path);
    uint8_t made[8][16], whole[16];
    heft_verified tensors[8];
    heft_verified_file file;
    OK(heft_archive_digests(archive, NULL, 0, NULL, made, whole, &err));
    OK(heft_archive_verify(archive, NULL, 0, NULL, tensors, &file, &err));
    for (uint64_t id = 0; id < n; id++) {
        assert_int_equal(tensors[id].verdict, HEFT_VERDICT_GOOD);
        assert_memory_equal(tensors[id].found, made[id], 16);
    }
    assert_int_equal(file.data, HEFT_VERDICT_GOOD);
    assert_int_equal(file.nmissing, 0);
    assert_memory_equal(file.found, whole, 16);
    heft_archive_unref(archive);

    size_t nbytes;
    uint8_t *bytes = test_slurp(path, &nbytes);
    archive = unknown_open(path);
    heft_tensor tensor;
    uint64_t id;
    OK(heft_archive_find(archive, "e", SIZE_MAX, &id, &err));
    OK(heft_archive_get(archive, id, &tensor, &err));
    bytes[tensor.offset] ^= 1;
    heft_archive_unref(archive);
    archive = unknown_open(test_write("damaged.safetensors", bytes, nbytes));
    assert_int_equal(heft_archive_verify(archive, NULL, 0, NULL, tensors, &file, &err), HEFT_MISMATCH);
    assert_string_equal(err.tensor, "e");
    assert_int_equal(tensors[id].verdict, HEFT_VERDICT_BAD);
    heft_archive_unref(archive);
    free(bytes);
}

static void allocations_fail(void **state) {
    (void)state;
    const char *path = unknown_file();
    for (uint64_t k = 1;; k++) {
        test_allocator t;
        heft_archive *archive;
        test_allocator_init(&t, k);
        heft_open_options options = {.struct_size = sizeof options, .list_unknown_dtypes = true, .allocator = &t.alloc};
        heft_status status = heft_archive_open(path, &options, &archive, &err);
        heft_archive_unref(archive);
        assert_int_equal(t.live_blocks, 0);
        if (status == HEFT_OK) break;
        assert_int_equal(status, HEFT_OUT_OF_MEMORY);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_copy),
        cmocka_unit_test(a_set_and_an_edit),
        cmocka_unit_test(nothing_else),
        cmocka_unit_test(digests),
        cmocka_unit_test(allocations_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
