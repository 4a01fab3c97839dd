/* Tied weights: which items are one storage, what is kept of them, and what a file says of the rest. */
#include "helper_files.h"

static float tie_matrix[4][6];
static const int64_t tie_shape[] = {4, 6}, tie_turned[] = {6, 4}, tie_column[] = {4, 1}, tie_flat[] = {24}, tie_row[] = {6},
                     tie_none[] = {0};
static const int64_t tie_strides[] = {24, 4}, tie_across[] = {4, 24}, tie_down[] = {24, 999}, tie_down_too[] = {24, -8};

#define TIE(NAME, DATA, SHAPE, RANK, STRIDE)                                                                           \
    {.name = NAME, .data = DATA, .shape = SHAPE, .rank = RANK, .stride_nbytes = STRIDE, .dtype = HEFT_F32}

static void what_is_tied(void **state) {
    (void)state;
    const heft_save_item items[] = {
        TIE("lm_head", tie_matrix, tie_shape, 2, NULL),
        TIE("other", tie_matrix[1], tie_row, 1, NULL),
        TIE("embed", tie_matrix, tie_shape, 2, tie_strides), /* the same, said otherwise */
        TIE("turned", tie_matrix, tie_turned, 2, tie_across),
        TIE("flat", tie_matrix, tie_flat, 1, NULL),
        TIE("column_b", tie_matrix, tie_column, 2, tie_down),
        TIE("column_a", tie_matrix, tie_column, 2, tie_down_too), /* nobody steps along a dim of 1 */
        TIE("empty", tie_matrix, tie_none, 1, NULL),
        TIE("empty too", tie_matrix, tie_none, 1, NULL),
        TIE("embe", tie_matrix, tie_shape, 2, NULL),
        {.name = "half", .data = tie_matrix, .shape = tie_shape, .rank = 2, .dtype = HEFT_F32, .as = HEFT_F16},
        {.name = "bits", .data = tie_matrix, .shape = tie_shape, .rank = 2, .dtype = HEFT_U32},
    };
    enum { N = sizeof items / sizeof *items };
    const heft_pair given = {"format", 6, "pt", 2};
    heft_ties *ties;
    uint64_t n;
    heft_save_options options = {.struct_size = sizeof options, .no_sync = true, .metadata = &given, .nmetadata = 1};
    assert_int_equal(heft_ties_find(items, N, &options, &ties, NULL), HEFT_OK);
    const heft_tie *list = heft_ties_list(ties, &n);
    static const heft_tie expected[] = {{0, 9}, {2, 9}, {5, 6}};
    assert_int_equal(n, 3);
    for (uint64_t i = 0; i < n; i++) assert_true(list[i].dropped == expected[i].dropped && list[i].kept == expected[i].kept);
    const heft_pair *pairs = heft_ties_metadata(ties, &n);
    static const char *const texts[][2] = {
        {"format", "pt"}, {"tied:lm_head", "embe"}, {"tied:embed", "embe"}, {"tied:column_b", "column_a"}};
    assert_int_equal(n, 4);
    for (uint64_t i = 0; i < n; i++) {
        assert_int_equal(pairs[i].key_len, strlen(texts[i][0]));
        assert_memory_equal(pairs[i].key, texts[i][0], pairs[i].key_len);
        assert_int_equal(pairs[i].value_len, strlen(texts[i][1]));
        assert_memory_equal(pairs[i].value, texts[i][1], pairs[i].value_len);
    }
    const heft_save_item *kept = heft_ties_items(ties, &n);
    assert_int_equal(n, N - 3);
    assert_string_equal(kept[0].name, "other");
    heft_save_stats stats;
    options.metadata = heft_ties_metadata(ties, &options.nmetadata);
    assert_int_equal(heft_save(test_path("tied"), kept, n, &options, &stats, NULL), HEFT_OK);
    assert_int_equal(stats.ntied, 0);
    heft_archive *archive;
    assert_int_equal(heft_archive_open(test_path("tied"), NULL, &archive, NULL), HEFT_OK);
    assert_int_equal(heft_archive_count(archive), N - 3);
    assert_int_equal(heft_archive_metadata_count(archive, 0), 4);
    heft_archive_unref(archive);
    heft_ties_free(ties);
    options.metadata = NULL;
    options.nmetadata = 0;
    assert_int_equal(heft_save(test_path("twice"), items, N, &options, &stats, NULL), HEFT_OK);
    assert_int_equal(stats.ntied, 3);
    heft_set_options set = {.struct_size = sizeof set, .ceiling_nbytes = 96, .create_dir = true};
    assert_int_equal(heft_save_set(test_path("set"), items, N, &options, &set, &stats, NULL), HEFT_OK);
    assert_true(stats.nfiles > 3 && stats.ntied == 3);
}

/* Tensors and views of an archive. */
static void ties_of_archives(void **state) {
    (void)state;
    const heft_save_item item = TIE("w", tie_matrix, tie_shape, 2, NULL);
    heft_save_options options = {.struct_size = sizeof options, .no_sync = true};
    assert_int_equal(heft_save(test_path("a"), &item, 1, &options, NULL, NULL), HEFT_OK);
    heft_archive *archive;
    heft_view whole, half;
    assert_int_equal(heft_archive_open(test_path("a"), NULL, &archive, NULL), HEFT_OK);
    assert_int_equal(heft_view_of(archive, 0, &whole, NULL), HEFT_OK);
    assert_int_equal(heft_view_index_text(&whole, ":2", SIZE_MAX, &half, NULL), HEFT_OK);
    heft_view again = half;
    const heft_save_item items[] = {{.name = "a", .archive = archive}, {.name = "b", .archive = archive},
                                    {.name = "c", .view = &half},      {.name = "d", .view = &again},
                                    {.name = "e", .view = &whole}};
    heft_ties *ties;
    uint64_t n;
    assert_int_equal(heft_ties_find(items, 5, NULL, &ties, NULL), HEFT_OK);
    const heft_tie *list = heft_ties_list(ties, &n);
    assert_true(n == 2 && list[0].dropped == 1 && list[0].kept == 0 && list[1].dropped == 3 && list[1].kept == 2);
    heft_ties_free(ties);
    heft_archive_unref(archive);
}

/* As many as there are, in no more than linear time: a quadratic one would not end. */
static void many_ties(void **state) {
    (void)state;
    enum { N = 300000 };
    heft_save_item *items = calloc(N, sizeof *items);
    char (*names)[8] = calloc(N, sizeof *names);
    assert_true(items && names);
    for (int i = 0; i < N; i++) {
        snprintf(names[i], sizeof names[i], "%07d", N - i);
        items[i] = (heft_save_item)TIE(names[i], tie_matrix, tie_shape, 2, NULL);
    }
    heft_ties *ties;
    uint64_t n;
    assert_int_equal(heft_ties_find(items, N, NULL, &ties, NULL), HEFT_OK);
    assert_true(heft_ties_items(ties, &n)->name == names[N - 1] && n == 1);
    assert_int_equal(heft_ties_list(ties, &n)[7].kept, N - 1);
    assert_int_equal(n, N - 1);
    heft_ties_free(ties);
    free(items);
    free(names);
}

static void calls_that_are_refused(void **state) {
    (void)state;
    heft_ties *ties = (heft_ties *)&ties;
    heft_save_item item = {.name = NULL};
    uint64_t n;
    assert_int_equal(heft_ties_find(NULL, 1, NULL, &ties, NULL), HEFT_INVALID_ARGUMENT);
    assert_null(ties);
    const heft_save_options missing = {.struct_size = sizeof missing, .nmetadata = 1};
    assert_int_equal(heft_ties_find(&item, 1, &missing, &ties, NULL), HEFT_INVALID_ARGUMENT);
    assert_int_equal(heft_ties_find(&item, 1, NULL, NULL, NULL), HEFT_INVALID_ARGUMENT);
    assert_int_equal(heft_ties_find(NULL, 0, NULL, &ties, NULL), HEFT_OK);
    heft_ties_free(ties);
    assert_int_equal(heft_ties_find(&item, 1, NULL, &ties, NULL), HEFT_OK); /* the save will refuse it */
    (void)heft_ties_items(ties, &n);
    assert_int_equal(n, 1);
    heft_ties_free(ties);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_tied),
        cmocka_unit_test(ties_of_archives),
        cmocka_unit_test(many_ties),
        cmocka_unit_test(calls_that_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
