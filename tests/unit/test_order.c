/* Orders of listing against qsort with the plain comparisons, on names of every awkward kind. */
#include "helper_files.h"

#include "base/text.h"
#include "catalog/catalog.h"

static uint64_t rng_state = 88172645463325252u;

static uint64_t rng(void) {
    rng_state ^= rng_state << 13;
    rng_state ^= rng_state >> 7;
    rng_state ^= rng_state << 17;
    return rng_state;
}

typedef struct names {
    char **text;
    uint32_t *len;
    uint64_t n;
} names;

static const names *sorting;

static int by_bytes(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    int order = heft__bytes_compare(sorting->text[x], sorting->len[x], sorting->text[y], sorting->len[y]);
    return order ? order : (x > y) - (x < y);
}

static int naturally(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    int order = heft__natural_compare(sorting->text[x], sorting->len[x], sorting->text[y], sorting->len[y]);
    return order ? order : (x > y) - (x < y);
}

/* An archive with these names and nothing else, as far as orders look at it. */
static heft_archive *fake_archive(const names *list) {
    heft_archive *archive = calloc(1, sizeof *archive);
    heft__listing *listing = calloc(1, sizeof *listing);
    archive->alloc = heft__default_allocator;
    archive->files = malloc(sizeof *archive->files);
    archive->files[0] = listing;
    archive->nfiles = 1;
    archive->ntensors = listing->nentries = list->n;
    listing->entries = calloc(list->n ? list->n : 1, sizeof *listing->entries);
    for (uint64_t i = 0; i < list->n; i++) {
        listing->entries[i].name = list->text[i];
        listing->entries[i].name_len = list->len[i];
    }
    return archive;
}

static void free_archive(heft_archive *archive) {
    for (int i = 0; i < 3; i++) heft__free(&archive->alloc, archive->orders[i], archive->ntensors * sizeof(uint64_t));
    free(archive->files[0]->entries);
    free(archive->files[0]);
    free(archive->files);
    free(archive);
}

static void check_orders(const names *list) {
    heft_archive *archive = fake_archive(list);
    uint64_t *expected = malloc((list->n + 1) * sizeof *expected);
    for (heft_order order = HEFT_ORDER_NAME; order <= HEFT_ORDER_FILE; order++) {
        const uint64_t *ids, *again;
        assert_int_equal(heft_archive_order(archive, order, &ids, NULL), HEFT_OK);
        for (uint64_t i = 0; i < list->n; i++) expected[i] = i;
        sorting = list;
        if (order == HEFT_ORDER_NAME) qsort(expected, list->n, sizeof *expected, by_bytes);
        if (order == HEFT_ORDER_NATURAL) qsort(expected, list->n, sizeof *expected, naturally);
        for (uint64_t i = 0; i < list->n; i++) {
            if (ids[i] == expected[i]) continue;
            fail_msg("order %u, place %llu: \"%.*s\" instead of \"%.*s\"", order, (unsigned long long)i,
                     (int)list->len[ids[i]], list->text[ids[i]], (int)list->len[expected[i]], list->text[expected[i]]);
        }
        assert_int_equal(heft_archive_order(archive, order, &again, NULL), HEFT_OK);
        assert_ptr_equal(ids, again);
    }
    free(expected);
    free_archive(archive);
}

/* Copies of exactly their length, so that a sanitizer sees a read past the end. */
static void names_set(names *list, uint64_t i, const char *text, uint32_t len) {
    list->text[i] = malloc(len ? len : 1);
    memcpy(list->text[i], text, len);
    list->len[i] = len;
}

static names names_new(uint64_t n) {
    names list = {calloc(n ? n : 1, sizeof(char *)), calloc(n ? n : 1, sizeof(uint32_t)), n};
    return list;
}

static void names_free(names *list) {
    for (uint64_t i = 0; i < list->n; i++) free(list->text[i]);
    free(list->text);
    free(list->len);
}

/* Random names over a small alphabet: many shared beginnings, digits with leading zeros, NUL and high bytes. */
static void test_random_names(void **state) {
    (void)state;
    static const char *const alphabets[] = {"ab", "a1", "01", "0123456789", "a.0129", "/09:", "layer.123"};
    for (int round = 0; round < 400; round++) {
        names list = names_new(rng() % (round % 20 == 0 ? 3000 : 120));
        uint32_t most = 1 + (uint32_t)(rng() % 40), raw = rng() % 4 == 0;
        const char *alphabet = alphabets[rng() % 7];
        for (uint64_t i = 0; i < list.n; i++) {
            char text[64];
            uint32_t len = (uint32_t)(rng() % most);
            for (uint32_t k = 0; k < len; k++) {
                text[k] = alphabet[rng() % strlen(alphabet)];
                if (raw && rng() % 8 == 0) text[k] = (char)(rng() % 3 ? 0 : rng());
            }
            names_set(&list, i, text, len);
        }
        check_orders(&list);
        names_free(&list);
    }
}

/* Names as models have them, shuffled. */
static void test_model_names(void **state) {
    (void)state;
    static const char *const parts[] = {"gate_proj.weight", "up_proj.weight", "down_proj.weight",
                                        "gate_proj.weight_scale_inv"};
    names list = names_new(20000);
    for (uint64_t i = 0; i < list.n; i++) {
        char text[128];
        int len = snprintf(text, sizeof text, "model.layers.%u.mlp.experts.%u.%s", (unsigned)(i / 4 / 128),
                           (unsigned)(i / 4 % 128), parts[i % 4]);
        names_set(&list, i, text, (uint32_t)len);
    }
    check_orders(&list);
    for (uint64_t i = list.n - 1; i > 0; i--) {
        uint64_t k = rng() % (i + 1);
        char *text = list.text[i];
        uint32_t len = list.len[i];
        list.text[i] = list.text[k], list.len[i] = list.len[k];
        list.text[k] = text, list.len[k] = len;
    }
    check_orders(&list);
    names_free(&list);
}

/* Numbers around the 18 digits that one key holds, and far above, with zeros before them. */
static void test_long_numbers(void **state) {
    (void)state;
    names list = names_new(600);
    for (uint64_t i = 0; i < list.n; i++) {
        char text[200];
        uint32_t len = 0, zeros = (uint32_t)(rng() % 3), digits = (uint32_t)(rng() % 3 ? 16 + rng() % 6 : rng() % 120);
        text[len++] = 'x';
        for (uint32_t k = 0; k < zeros; k++) text[len++] = '0';
        for (uint32_t k = 0; k < digits; k++) text[len++] = (char)('0' + (rng() % 20 ? 9 : rng() % 10));
        if (rng() % 2) text[len++] = (char)('a' + rng() % 2);
        if (rng() % 3 == 0) text[len++] = '7';
        names_set(&list, i, text, len);
    }
    check_orders(&list);
    names_free(&list);
}

/* A stair of names, each one byte longer, and long names that differ at the end: no byte may be looked at over and
 * over. */
static void test_hostile_names(void **state) {
    (void)state;
    enum { N = 3000, LONG = 20000 };
    char *text = malloc(LONG + 1);
    for (int kind = 0; kind < 3; kind++) {
        names list = names_new(N);
        memset(text, kind == 1 ? '1' : 'a', LONG);
        for (uint64_t i = 0; i < N; i++) {
            uint32_t len = kind == 2 ? LONG / 8 + (uint32_t)(i % 3) : (uint32_t)i;
            names_set(&list, i, text, len);
            if (kind == 2) list.text[i][i % 7 * 300] = (char)('b' + i % 5);
        }
        check_orders(&list);
        names_free(&list);
    }
    free(text);
}

static void test_out_of_memory(void **state) {
    (void)state;
    for (heft_order order = HEFT_ORDER_NAME; order <= HEFT_ORDER_FILE; order++) {
        for (uint64_t k = 1;; k++) {
            names list = names_new(500);
            for (uint64_t i = 0; i < list.n; i++) {
                char text[32];
                names_set(&list, i, text,
                          (uint32_t)snprintf(text, sizeof text, "a.%d.b.%d", (int)(i * 7 % 500) / 10, (int)i % 10));
            }
            test_allocator t;
            test_allocator_init(&t, k);
            heft_archive *archive = fake_archive(&list);
            archive->alloc = t.alloc;
            const uint64_t *ids;
            heft_status status = heft_archive_order(archive, order, &ids, NULL);
            assert_true(status == HEFT_OK ? ids != NULL : ids == NULL);
            free_archive(archive);
            names_free(&list);
            assert_int_equal(t.live_blocks, 0);
            if (status == HEFT_OK) break;
            assert_int_equal(status, HEFT_OUT_OF_MEMORY);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_names),  cmocka_unit_test(test_model_names),   cmocka_unit_test(test_long_numbers),
        cmocka_unit_test(test_hostile_names), cmocka_unit_test(test_out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
