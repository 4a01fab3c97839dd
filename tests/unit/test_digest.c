/* Digests: values that Python's zlib, hashlib and xxhash gave, in one piece and in many; what a build lacks says so. */
#include "helper.h"

#include "digest/digest.h"
#include "helper_random.h"

/* Of the first n bytes of digest_data. The tensor's: xxh3_128(b"".join(xxh3_128(chunk))) of chunks of 4 MiB. */
typedef struct vector {
    size_t nbytes;
    const char *crc32, *xxh3, *sha256, *tensor;
} vector;

static const vector vectors[] = {
    {0, "00000000", "99aa06d3014798d86001c324468d497f",
     "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855", "99aa06d3014798d86001c324468d497f"},
    {1, "d202ef8d", "a6cd5e9392000f6ac44bdff4074eecdb",
     "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d", "de68429b8afe28ce97cda390d38d6d2b"},
    {3, "36114afe", "95c705060a313bf8a1c4a8259b827291",
     "a58e7857aff83b56152847f33209bff0520c371b32ae15591cbafcbe51959f3f", "bf0485c351b98488419f32a00f624959"},
    {8, "0a005536", "2761698c33953c430234362aaf47b71a",
     "b57ee88ba88c11fddb6508fa700f5344706e084829f80de33a6df594f63e63fe", "8e3b84297887ca274cf5e6662a8833e9"},
    {16, "526fdea4", "29be75b0bbbb5284aafffcec5df2cb27",
     "c757a287847d94aa6c26b478021606bf8ff596633d6540f7c6102d40cee1b8ea", "a10f20a5f233ebe7813a1a3e28d4a66b"},
    {17, "c13c1805", "db7e8f77961e47fd878751509ecfdb8b",
     "d8d386741b1e216acd313e23975141bc465561298fad30791f203b2218a6c50a", "c4d1ba78d1b623a45171b3bcf731d6c6"},
    {128, "d54a6c92", "ba44fd018231af4cbbe087d879edcc78",
     "21830f8e3f44dcb13d25bf3c2ad43241b5a15f9924f0135aeb1268c79c280cf9", "2b1372a20ebd934711cb818203e31140"},
    {129, "85bf10c4", "522c922743fd67f1b8075934107218e5",
     "2d3e8f9badc1ddd91bf7b07a2041efddbc1bb71cdc1b98da3795242cff8712aa", "f56f6bb9282a5fd6599789efa9613b2c"},
    {240, "f065f0a4", "4f49ccc8526aa7ad407883ea5ef95b9a",
     "58a719833bd1e46c795abd78380568ac895188a16f45eed17376e5e2e5ec2480", "0fd89831dea20879e4830e1a57386ddf"},
    {241, "1efefde8", "50b62ee1ee6455a7bc424a2c480dd281",
     "7dcfb68f8cd9989671476dfa7337734e238c7d62ec26ba7be499744162ab4c28", "599c897c6a93870a5c2f17d53cdfd0b0"},
    {1024, "8b88d290", "53bd178b75ab292e1fd15e7d36f5e1bc",
     "447fb7c94f4e9091dc6694950ee642ac4d172d37928f8bb49c5b63c2545ae4d2", "cc758d79f65907a19c49362f875a3dae"},
    {1025, "ed3c6182", "d1ad5f4a3cce4374fe08e5a874d23fd2",
     "3fb5b5c881a921721c3668a133f34ebf88773ceebd780d0df9e1e58045c561de", "e80a271b6c3b621bce61e798a3331a98"},
    {8191, "d5cd70d8", "ba6481705abbb372e4cc949d2e98ba7f",
     "343352adc6053b0b90cd075221c1f2cd4803a702c0605362bac4d249716cb1f4", "bf23486582e8b8c5ad05f789b917952e"},
    {70001, "160dcd6b", "78abb9d4f4757899ef4cbad858a9c103",
     "5f85ee5203f332cc8d289a3f460f3f8d39cc95050f4de81bcb3dc6cce3063a93", "a53611092e8f08c9b714699e0d32f523"},
    {4194304, "fa4cd404", "3b4a59488783387b0fb672e34cab3500",
     "70d8ad58a9b193f06c15b1f9c836d208adf688add011ca6c05236d1fb42e2d4b", "4596ffcfa2c71136beddf407791703d8"},
    {4194309, "52542f17", "9aa93cd0f841132fb45025ae2a81d9f5",
     "10f6e2f67e41f620715d4d77a01c6af36d97cb17c0863e8fd54ded434df8d138", "456ca3db062874200b31706b605b5cc2"},
    {9437184, "1c44be77", "d9537b5fb7842e15ddcfb60afe2f813d",
     "0d25ffb7053e494ed8c02c77ea7187872c40293fa46f29aa6200e11b827e1e7e", "1ab0ca40d066c07342e8a78a64b275eb"},
};
enum { NVECTORS = sizeof vectors / sizeof *vectors, DATA_NBYTES = 9 << 20 };
static uint8_t *digest_data;

static int make_data(void **state) {
    (void)state;
    digest_data = malloc(DATA_NBYTES);
    for (uint64_t i = 0; i < DATA_NBYTES; i++) digest_data[i] = (uint8_t)(i * 2654435761u >> 13);
    return 0;
}

static int free_data(void **state) {
    (void)state;
    free(digest_data);
    return 0;
}

static bool has(uint64_t feature) {
    return heft_features() & feature;
}

static void assert_digest(const uint8_t *digest, size_t nbytes, const char *wanted) {
    char text[HEFT__DIGEST_TEXT_MOST];
    heft__digest_text(digest, nbytes, text);
    assert_string_equal(text, wanted);
}

/* In one piece, and in pieces of random sizes. */
static void check(heft__digest_kind kind, size_t nbytes, const char *wanted, uint64_t *seed) {
    uint8_t out[HEFT__DIGEST_MOST];
    heft_error err;
    assert_int_equal(heft__digest_bytes(kind, digest_data, nbytes, out, &err), HEFT_OK);
    assert_digest(out, heft__digest_nbytes(kind), wanted);
    heft__digest digest;
    assert_int_equal(heft__digest_init(&digest, kind, NULL), HEFT_OK);
    for (size_t at = 0; at < nbytes;) {
        size_t n = random_below(seed, nbytes / 3 + 2);
        if (n > nbytes - at) n = nbytes - at;
        heft__digest_update(&digest, digest_data + at, n);
        at += n;
    }
    heft__digest_final(&digest, out);
    assert_digest(out, heft__digest_nbytes(kind), wanted);
}

static void known_values(void **state) {
    (void)state;
    uint64_t seed = 1;
    for (size_t i = 0; i < NVECTORS; i++) {
        check(HEFT__DIGEST_CRC32, vectors[i].nbytes, vectors[i].crc32, &seed);
        if (has(HEFT_FEATURE_XXHASH)) check(HEFT__DIGEST_XXH3, vectors[i].nbytes, vectors[i].xxh3, &seed);
        if (has(HEFT_FEATURE_OPENSSL)) check(HEFT__DIGEST_SHA256, vectors[i].nbytes, vectors[i].sha256, &seed);
    }
}

/* A digest that nobody takes leaves nothing; a struct at any address works. */
static void dropped_and_unaligned(void **state) {
    (void)state;
    struct {
        uint64_t before;
        heft__digest digest;
    } *at = malloc(sizeof *at);
    for (heft__digest_kind kind = HEFT__DIGEST_CRC32; kind <= HEFT__DIGEST_SHA256; kind++) {
        if (heft__digest_init(&at->digest, kind, NULL)) continue;
        heft__digest_update(&at->digest, digest_data, 1000);
        heft__digest_drop(&at->digest);
    }
    free(at);
}

static void tensors(void **state) {
    (void)state;
    heft__tensor_digest digest;
    uint8_t out[16];
    if (!has(HEFT_FEATURE_XXHASH)) {
        assert_int_equal(heft__tensor_digest_init(&digest, NULL), HEFT_UNSUPPORTED);
        return;
    }
    uint64_t seed = 5;
    for (size_t i = 0; i < NVECTORS; i++) {
        size_t nbytes = vectors[i].nbytes;
        assert_int_equal(heft__tensor_digest_init(&digest, NULL), HEFT_OK);
        for (size_t at = 0, n; at < nbytes; at += n) {
            n = random_below(&seed, nbytes) + 1;
            if (n > nbytes - at) n = nbytes - at;
            heft__tensor_digest_update(&digest, digest_data + at, n);
        }
        heft__tensor_digest_final(&digest, out);
        assert_digest(out, 16, vectors[i].tensor);
    }
}

/* Each way to the same values: this processor's best, and without. */
static void ways_of_xxh3(void **state) {
    (void)state;
    heft_error err;
    const heft__xxh3_calls *base = heft__xxh3(true, &err), *best = heft__xxh3(false, &err);
    if (!has(HEFT_FEATURE_XXHASH)) {
        assert_null(base);
        assert_null(best);
        assert_int_equal(err.status, HEFT_UNSUPPORTED);
        assert_non_null(strstr(err.message, "HEFT_WITH_XXHASH"));
        return;
    }
    for (size_t n = 0; n < 5000; n += n < 600 ? 1 : 97) {
        uint8_t a[16], b[16];
        base->bytes(digest_data + n, n, a);
        best->bytes(digest_data + n, n, b);
        assert_memory_equal(a, b, 16);
    }
}

static void ways_of_crc32(void **state) {
    (void)state;
    uint64_t seed = 3;
    for (uint64_t i = 0; i < test_count(2000); i++) {
        size_t n = random_below(&seed, i % 10 ? 300 : 40000), cut = random_below(&seed, n + 1);
        const uint8_t *data = digest_data + random_below(&seed, 4096);
        uint32_t whole = heft__crc32(0, data, n), first = heft__crc32_portable(0, data, cut);
        assert_int_equal(heft__crc32_portable(0, data, n), whole);
        assert_int_equal(heft__crc32_portable(first, data + cut, n - cut), whole);
        assert_int_equal(heft__crc32_combine(first, heft__crc32(0, data + cut, n - cut), n - cut), whole);
    }
    /* Zeros beyond what memory holds: 2^40 zero bytes after "a", twice, are 2^41 and 2^41 more. */
    uint32_t zeros = 0;
    for (int i = 0; i < 40; i++)
        zeros =
            heft__crc32_combine(i ? zeros : heft__crc32(0, "", 1), i ? zeros : heft__crc32(0, "", 1), UINT64_C(1) << i);
    uint32_t a = heft__crc32(0, "a", 1), step = a;
    for (int i = 0; i < 2; i++) step = heft__crc32_combine(step, zeros, UINT64_C(1) << 40);
    uint32_t twice = heft__crc32_combine(zeros, zeros, UINT64_C(1) << 40);
    assert_int_equal(step, heft__crc32_combine(a, twice, UINT64_C(1) << 41));
}

static void lacking_libraries_say_so(void **state) {
    (void)state;
    heft__digest digest;
    heft_error err;
    if (has(HEFT_FEATURE_OPENSSL)) return;
    assert_int_equal(heft__digest_init(&digest, HEFT__DIGEST_SHA256, &err), HEFT_UNSUPPORTED);
    assert_non_null(strstr(err.message, "HEFT_WITH_OPENSSL"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_values),  cmocka_unit_test(dropped_and_unaligned),
        cmocka_unit_test(tensors),       cmocka_unit_test(ways_of_xxh3),
        cmocka_unit_test(ways_of_crc32), cmocka_unit_test(lacking_libraries_say_so),
    };
    return cmocka_run_group_tests(tests, make_data, free_data);
}
