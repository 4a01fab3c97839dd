/* The index of a sharded model: what it holds, what is refused and where, memory that fails. */
#include "helper.h"

#include "format/format.h"
#include "helper_files.h"
#include "helper_random.h"

static heft_status read_index(const char *text, size_t len, const heft_allocator *alloc, heft__index *index,
                              heft_error *err) {
    heft_source *source;
    assert_int_equal(heft_source_open_memory(text, len, "index", NULL, NULL, &source, NULL), HEFT_OK);
    heft_status status = heft__index_read(source, alloc ? alloc : &heft__default_allocator, 1 << 30, index, err);
    heft_source_unref(source);
    return status;
}

static void names_and_shards(void **state) {
    (void)state;
    static const char *const texts[] = {
        "{\"metadata\":{\"total_size\":12},\"weight_map\":{\"a\":\"m-1\",\"b\":\"m-1\",\"c\\n\":\"m-2\",\"d\":\"m-1\","
        "\"e\":\"m-1\"}}",
        "{\n  \"weight_map\": {\n    \"a\": \"m-1\",\n    \"b\": \"m-1\",\n    \"c\\n\": \"m\\u002d2\",\n    \"d\": "
        "\"m\\u002d1\",\n"
        "    \"e\": \"m-1\"\n  },\n  \"x\": [1, {\"y\": null}],\n  \"metadata\": {\n    \"total_size\": 12,\n \"z\": "
        "{}  }\n}\n",
    };
    static const char *const names[] = {"a", "b", "c\n", "d", "e"};
    static const uint32_t shards[] = {0, 0, 1, 0, 0};
    for (size_t i = 0; i < 2; i++) {
        heft__index index;
        assert_int_equal(read_index(texts[i], strlen(texts[i]), NULL, &index, NULL), HEFT_OK);
        assert_int_equal(index.nitems, 5);
        assert_int_equal(index.nshards, 2);
        assert_string_equal(index.shards[0], "m-1");
        assert_string_equal(index.shards[1], "m-2");
        assert_int_equal(index.total_size, 12);
        for (size_t k = 0; k < 5; k++) {
            assert_string_equal(index.items[k].name, names[k]);
            assert_int_equal(index.items[k].name_len, strlen(names[k]));
            assert_int_equal(index.items[k].shard, shards[k]);
        }
        heft__index_free(&index);
    }
}

static void total_size_may_be_anything(void **state) {
    (void)state;
    static const struct {
        const char *text;
        uint64_t size;
    } rows[] = {{"{\"weight_map\":{\"a\":\"b\"}}", HEFT_NONE},
                {"{\"metadata\":null,\"weight_map\":{\"a\":\"b\"}}", HEFT_NONE},
                {"{\"metadata\":[{\"total_size\":1}],\"weight_map\":{\"a\":\"b\"}}", HEFT_NONE},
                {"{\"metadata\":{\"total_size\":1.5},\"weight_map\":{\"a\":\"b\"}}", HEFT_NONE},
                {"{\"metadata\":{\"total_size\":{\"a\":[]}},\"weight_map\":{\"a\":\"b\"}}", HEFT_NONE},
                {"{\"metadata\":{\"a\":{\"total_size\":3},\"total_size\":0},\"weight_map\":{\"a\":\"b\"}}", 0}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        heft__index index;
        assert_int_equal(read_index(rows[i].text, strlen(rows[i].text), NULL, &index, NULL), HEFT_OK);
        assert_int_equal(index.total_size, rows[i].size);
        heft__index_free(&index);
    }
}

static void faults_have_a_place(void **state) {
    (void)state;
    static const struct {
        const char *text;
        heft_fault fault;
        uint64_t offset;
    } rows[] = {
        {"", HEFT_FAULT_INDEX_SYNTAX, 0},
        {"[]", HEFT_FAULT_INDEX_SYNTAX, 0},
        {"{}", HEFT_FAULT_INDEX_SYNTAX, 0},
        {"{\"weight_map\":[]}", HEFT_FAULT_INDEX_SYNTAX, 14},
        {"{\"weight_map\":{\"a\":1}}", HEFT_FAULT_INDEX_SYNTAX, 19},
        {"{\"weight_map\":{\"a\":\"x\",}}", HEFT_FAULT_INDEX_SYNTAX, 23},
        {"{\"weight_map\":{\"a\":\"x\",\"b\":\"x\",\"c\":\"x\"", HEFT_FAULT_INDEX_SYNTAX, 38},
        {"{\"weight_map\":{}} x", HEFT_FAULT_INDEX_SYNTAX, 18},
        {"{\"weight_map\":{},\"weight_map\":{}}", HEFT_FAULT_INDEX_SYNTAX, 17},
        {"{\"weight_map\":{}}", HEFT_FAULT_EMPTY_INDEX, 14},
        {"{\"metadata\":{\"total_size\":5}, \"weight_map\" : { } }", HEFT_FAULT_EMPTY_INDEX, 45},
        {"{\"metadata\":{\"total_size\":},\"weight_map\":{}}", HEFT_FAULT_INDEX_SYNTAX, 26},
        {"{\"weight_map\":{\"\xFF\":\"x\"}}", HEFT_FAULT_INDEX_SYNTAX, 16},
        {"{\"weight_map\":{\"a\":\"x\",\"b\":\"x\",\"\\u0061\":\"x\"}}", HEFT_FAULT_INDEX_SYNTAX, 31},
        {"{\"weight_map\":{\"a\":\"\"}}", HEFT_FAULT_SHARD_NAME, 19},
        {"{\"weight_map\":{\"a\":\"..\"}}", HEFT_FAULT_SHARD_NAME, 19},
        {"{\"weight_map\":{\"a\":\"../x\"}}", HEFT_FAULT_SHARD_NAME, 19},
        {"{\"weight_map\":{\"a\":\"/x\"}}", HEFT_FAULT_SHARD_NAME, 19},
        {"{\"weight_map\":{\"a\":\"b\\\\c\"}}", HEFT_FAULT_SHARD_NAME, 19},
        {"{\"weight_map\":{\"a\":\"b\\u0000\"}}", HEFT_FAULT_SHARD_NAME, 19},
        {"{\"weight_map\":{\"a\":\"b\\u002fc\"}}", HEFT_FAULT_SHARD_NAME, 19},
        {"<html><title>Sign in</title></html>", HEFT_FAULT_HTML_PAGE, 0},
        {"{\"error\":\"Invalid username or password.\"}", HEFT_FAULT_JSON_ERROR, 0},
        {"\n {\"status\":404,\"error\":{\"message\":\"no such file\"}}", HEFT_FAULT_JSON_ERROR, 0},
        {"{\"message\":\"Not Found\",\"documentation_url\":\"x\"}", HEFT_FAULT_JSON_ERROR, 0},
        {"{\"detail\":\"Not authenticated\"}", HEFT_FAULT_JSON_ERROR, 0},
        {"{\"errors\":[{\"code\":5}]}", HEFT_FAULT_JSON_ERROR, 0},
        {"{\"error\":\"cut o", HEFT_FAULT_JSON_ERROR, 0},
        {"{\"metadata\":{\"error\":\"x\"}}", HEFT_FAULT_INDEX_SYNTAX, 0}, /* not a key of an answer */
        {"{\"error\":\"x\",\"weight_map\":{\"a\":1}}", HEFT_FAULT_INDEX_SYNTAX, 31},
        {"{\"weight_map\":{},\"error\":\"x\"}", HEFT_FAULT_EMPTY_INDEX, 14},
        {"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n", HEFT_FAULT_LFS_POINTER, 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        heft__index index;
        heft_error err;
        assert_int_equal(read_index(rows[i].text, strlen(rows[i].text), NULL, &index, &err), HEFT_CORRUPT);
        if (err.fault != rows[i].fault || err.offset != rows[i].offset)
            print_message("%s: %s\n", rows[i].text, err.message);
        assert_int_equal(err.fault, rows[i].fault);
        assert_int_equal(err.offset, rows[i].offset);
        assert_string_equal(err.file, "index");
        assert_null(index.text);
    }
}

/* A large map in random runs of shards and spellings, against what was written. */
static void large_maps(void **state) {
    (void)state;
    enum { N = 20000 };
    uint64_t seed = 9;
    char *text = malloc(N * 80), *p = text;
    uint32_t *shards = malloc(N * sizeof *shards), shard = 0;
    p += sprintf(p, "{\"weight_map\":{");
    for (uint32_t i = 0; i < N; i++) {
        if (random_below(&seed, 5) == 0) shard = (uint32_t)random_below(&seed, 100);
        shards[i] = shard;
        const char *form = random_below(&seed, 3) ? "%s\n \"t.%u\": \"m-%05u\"" : "%s\"\\u0074.%u\" :\"m\\u002d%05u\"";
        p += sprintf(p, form, i ? "," : "", i, shard);
    }
    p += sprintf(p, "}}");
    heft__index index;
    assert_int_equal(read_index(text, (size_t)(p - text), NULL, &index, NULL), HEFT_OK);
    assert_int_equal(index.nitems, N);
    for (uint32_t i = 0; i < N; i++) {
        char name[16], file[16];
        sprintf(name, "t.%u", i);
        sprintf(file, "m-%05u", shards[i]);
        assert_string_equal(index.items[i].name, name);
        assert_string_equal(index.shards[index.items[i].shard], file);
    }
    heft__index_free(&index);
    free(text);
    free(shards);
}

static void every_allocation_may_fail(void **state) {
    (void)state;
    char text[4096] = "{\"weight_map\":{";
    for (int i = 0; i < 100; i++) sprintf(text + strlen(text), "%s\"t%d\":\"m-%d\"", i ? "," : "", i, i / 3);
    strcat(text, "}}");
    for (uint64_t k = 1;; k++) {
        test_allocator t;
        heft__index index;
        heft_error err;
        test_allocator_init(&t, k);
        heft_status status = read_index(text, strlen(text), &t.alloc, &index, &err);
        heft__index_free(&index);
        assert_int_equal(t.live_blocks, 0);
        if (t.calls < k) {
            assert_int_equal(status, HEFT_OK);
            break;
        }
        assert_int_equal(status, HEFT_OUT_OF_MEMORY);
    }
}

static void limits_and_reads(void **state) {
    (void)state;
    static const char text[] = "{\"weight_map\":{\"a\":\"x\"}}";
    test_bytes bytes = {.data = (const uint8_t *)text, .nbytes = strlen(text), .most = 1};
    heft_source *source = test_source(&bytes);
    heft__index index;
    heft_error err;
    assert_int_equal(heft__index_read(source, &heft__default_allocator, strlen(text), &index, &err), HEFT_OK);
    heft__index_free(&index);
    assert_int_equal(heft__index_read(source, &heft__default_allocator, strlen(text) - 1, &index, &err), HEFT_LIMIT);
    bytes.end = 10;
    assert_int_equal(heft__index_read(source, &heft__default_allocator, 1000, &index, &err), HEFT_IO);
    heft_source_unref(source);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_and_shards),          cmocka_unit_test(total_size_may_be_anything),
        cmocka_unit_test(faults_have_a_place),       cmocka_unit_test(large_maps),
        cmocka_unit_test(every_allocation_may_fail), cmocka_unit_test(limits_and_reads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
