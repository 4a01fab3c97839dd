/* Casts: the reference by hand-made values, every kernel of every tier against the reference, refusals, heft_cast. */
#include "helper.h"
#include "helper_random.h"

#include "base/os.h"
#include "dtype/cast.h"

#define MOST_INPUTS 360000

static uint8_t inputs[MOST_INPUTS * 8 + 64], outputs[MOST_INPUTS * 8 + 64], expected[MOST_INPUTS * 8 + 64];

/* ---- inputs ---- */

static void put(uint32_t bits, uint8_t *at, uint64_t raw) {
    uint8_t u8 = (uint8_t)raw;
    uint16_t u16 = (uint16_t)raw;
    uint32_t u32 = (uint32_t)raw;
    memcpy(at, bits == 8 ? (void *)&u8 : bits == 16 ? (void *)&u16 : bits == 32 ? (void *)&u32 : (void *)&raw, bits / 8);
}

static uint64_t take(uint32_t bits, const uint8_t *at) {
    uint8_t u8;
    uint16_t u16;
    uint32_t u32;
    uint64_t u64;
    switch (bits) {
    case 8: memcpy(&u8, at, 1); return u8;
    case 16: memcpy(&u16, at, 2); return u16;
    case 32: memcpy(&u32, at, 4); return u32;
    default: memcpy(&u64, at, 8); return u64;
    }
}

/* Every exponent with mantissas around each place where a narrower float rounds, both signs; and random bits. */
static size_t make_floats(uint32_t bits) {
    size_t n = 0, all_inputs = bits == 32 ? 100000 : MOST_INPUTS, most = 20000 + test_count(all_inputs - 20000);
    uint32_t width = bits == 32 ? 23 : 52, exponents = bits == 32 ? 256 : 2048;
    uint64_t state = 5, all = (UINT64_C(1) << width) - 1, sign = UINT64_C(1) << (bits - 1);
    uint64_t stride = most < all_inputs ? 7 : 1; /* of exponents, where there is no time for all */
    for (uint64_t exponent = 0; exponent < exponents; exponent += stride) {
        uint64_t step = bits == 64 && exponent % 8 && (exponent < 860 || exponent > 1160) ? 9 : 1; /* F32's own: all */
        for (uint32_t bit = 0; bit <= width; bit += (uint32_t)step) {
            uint64_t one = bit == width ? 0 : UINT64_C(1) << bit;
            uint64_t others[] = {one, one - 1, one + 1, all - one, (random_u64(&state) << bit) | one, (one << 1) + one,
                                 all ^ (one - 1)};
            for (size_t i = 0; i < sizeof others / sizeof *others && n < most * 3 / 4; i++) {
                uint64_t raw = exponent << width | (others[i] & all);
                put(bits, inputs + n++ * (bits / 8), random_below(&state, 2) ? raw | sign : raw);
            }
        }
    }
    while (n < most * 7 / 8) put(bits, inputs + n++ * (bits / 8), random_u64(&state));
    for (; n < most; n++) { /* near 1, where all floats have values */
        uint64_t raw = random_u64(&state) & all, bias = exponents / 2 - 1;
        put(bits, inputs + n * (bits / 8), raw | (bias - 20 + random_below(&state, 40)) << width | (raw & 1 ? sign : 0));
    }
    return n;
}

/* Around every power of two, and random numbers of every length. */
static size_t make_integers(uint32_t bits) {
    size_t n = 0;
    uint64_t state = 6;
    for (uint32_t bit = 0; bit < 64; bit++)
        for (uint64_t i = 0; i < 5; i++) {
            put(bits, inputs + n++ * (bits / 8), (UINT64_C(1) << bit) + i - 2);
            put(bits, inputs + n++ * (bits / 8), 0 - ((UINT64_C(1) << bit) + i - 2));
        }
    while (n < 20000) put(bits, inputs + n++ * (bits / 8), random_u64(&state) >> random_below(&state, 64));
    return n;
}

static size_t make_inputs(heft_dtype dtype) {
    uint32_t bits = heft_dtype_bits(dtype);
    size_t n = bits == 8 ? 1024 : 65536;
    if (bits > 16) return heft_dtype_kind(dtype) == 'f' ? make_floats(bits) : make_integers(bits);
    for (size_t i = 0; i < n; i++) put(bits, inputs + i * (bits / 8), i);
    return n;
}

/* ---- every tier against the reference ---- */

static const uint32_t tiers[] = {HEFT__CAST_NO_SIMD, HEFT__CAST_NO_AVX512, HEFT__CAST_NO_AVX2, 0, HEFT__CAST_STREAM,
                                 HEFT__CAST_REFERENCE};

static void compare(const heft__cast *cast, uint32_t flags, size_t n) {
    uint32_t from = heft_dtype_bits(cast->from), to = heft_dtype_bits(cast->to);
    for (size_t i = 0; i < n; i++)
        if (take(to, outputs + i * (to / 8)) != take(to, expected + i * (to / 8)))
            fail_msg("%s %llx to %s under %x: %llx, not %llx", heft_dtype_name(cast->from),
                     (unsigned long long)take(from, inputs + i * (from / 8)), heft_dtype_name(cast->to), flags,
                     (unsigned long long)take(to, outputs + i * (to / 8)),
                     (unsigned long long)take(to, expected + i * (to / 8)));
}

/* Leaves out the inputs that the cast refuses, having seen that it does; the number that is left. */
static size_t fill_expected(heft_dtype from, heft_dtype to, uint32_t flags, size_t n) {
    heft__cast cast;
    uint32_t from_bits = heft_dtype_bits(from), to_bits = heft_dtype_bits(to);
    size_t kept = 0;
    assert_true(heft__cast_find(from, to, flags | HEFT__CAST_REFERENCE, &cast));
    assert_int_equal(cast.nstages, 1);
    for (size_t i = 0; i < n; i++) {
        uint64_t raw = take(from_bits, inputs + i * (from_bits / 8)), out;
        if (!heft__cast_one(&cast.stages[0], raw, &out)) continue;
        put(from_bits, inputs + kept * (from_bits / 8), raw);
        put(to_bits, expected + kept++ * (to_bits / 8), out);
    }
    return kept;
}

static void check_pair(heft_dtype from, heft_dtype to, uint32_t flags) {
    uint32_t from_bytes = heft_dtype_bits(from) / 8, to_bytes = heft_dtype_bits(to) / 8;
    size_t n = fill_expected(from, to, flags, make_inputs(from));
    heft__cast cast;
    for (size_t t = 0; t < sizeof tiers / sizeof *tiers; t++) {
        assert_true(heft__cast_find(from, to, flags | tiers[t], &cast));
        memset(outputs, 0xA5, sizeof outputs);
        assert_int_equal(heft__cast_run(&cast, inputs, outputs, n), n);
        compare(&cast, flags | tiers[t], n);
        for (size_t i = 0; i < 64; i++) assert_int_equal(outputs[n * to_bytes + i], 0xA5);
        if (from == to) return;
        for (size_t length = 0; length < 70 && length <= n; length++) { /* and addresses of any kind */
            size_t skip = length % 7 * 11 % (n - length + 1);
            memset(outputs, 0x5A, (length + 16) * 8);
            assert_int_equal(heft__cast_run(&cast, inputs + skip * from_bytes, outputs + length % 5, length), length);
            assert_memory_equal(outputs + length % 5, expected + skip * to_bytes, length * to_bytes);
            assert_int_equal(outputs[length % 5 + length * to_bytes], 0x5A);
        }
    }
}

static void every_pair_in_every_tier(void **state) {
    (void)state;
    for (heft_dtype from = 1; from < HEFT_DTYPE_COUNT; from++)
        for (heft_dtype to = 1; to < HEFT_DTYPE_COUNT; to++) {
            if (from == to || !heft_can_cast(from, to)) continue;
            check_pair(from, to, 0);
            check_pair(from, to, HEFT__CAST_SATURATE);
            if (heft_dtype_kind(from) != 'f' && heft_dtype_kind(to) == 'f') check_pair(from, to, HEFT__CAST_INEXACT);
        }
}

/* ---- values by hand ---- */

#define REFUSED UINT64_C(0xBAD)

enum { S = HEFT__CAST_SATURATE, I = HEFT__CAST_INEXACT };
static const struct {
    heft_dtype from, to;
    uint32_t flags;
    uint64_t raw, result;
} rows[] = {
    /* halves to even, carries into the exponent, the largest, overflow */
    {HEFT_F32, HEFT_BF16, 0, 0x3F808000, 0x3F80}, {HEFT_F32, HEFT_BF16, 0, 0x3F818000, 0x3F82},
    {HEFT_F32, HEFT_BF16, 0, 0x3F808001, 0x3F81}, {HEFT_F32, HEFT_BF16, 0, 0x3FFF8000, 0x4000},
    {HEFT_F32, HEFT_BF16, 0, 0x7F7F7FFF, 0x7F7F}, {HEFT_F32, HEFT_BF16, 0, 0x7F7F8000, 0x7F80},
    {HEFT_F32, HEFT_BF16, S, 0xFF7F8000, 0xFF7F}, {HEFT_F32, HEFT_BF16, S, 0x7F800000, 0x7F7F},
    {HEFT_F32, HEFT_BF16, 0, 0x00008000, 0x0000}, {HEFT_F32, HEFT_BF16, 0, 0x80018000, 0x8002},
    {HEFT_F32, HEFT_F16, 0, 0x477FEFFF, 0x7BFF},  {HEFT_F32, HEFT_F16, 0, 0x477FF000, 0x7C00},
    {HEFT_F32, HEFT_F16, S, 0xFF800000, 0xFBFF},  {HEFT_F32, HEFT_F16, 0, 0x33000000, 0x0000},
    {HEFT_F32, HEFT_F16, 0, 0x33000001, 0x0001},  {HEFT_F32, HEFT_F16, 0, 0x387FE000, 0x0400},
    /* NaN: quiet, with its sign and the top of its payload */
    {HEFT_F32, HEFT_BF16, 0, 0xFF800001, 0xFFC0}, {HEFT_F32, HEFT_BF16, S, 0x7FA5FFFF, 0x7FE5},
    {HEFT_F32, HEFT_F16, 0, 0x7FA5FFFF, 0x7F2F},  {HEFT_BF16, HEFT_F32, 0, 0xFF81, 0xFFC10000},
    {HEFT_F16, HEFT_F64, 0, 0x7C01, UINT64_C(0x7FF8040000000000)},
    {HEFT_F64, HEFT_F16, 0, UINT64_C(0xFFF0000000000001), 0xFE00},
    {HEFT_F32, HEFT_F8_E4M3, 0, 0xFFA5FFFF, 0xFF}, {HEFT_F32, HEFT_F8_E5M2, 0, 0xFFA5FFFF, 0xFF},
    {HEFT_F32, HEFT_F8_E4M3FNUZ, 0, 0xFFA5FFFF, 0x80}, {HEFT_F8_E4M3, HEFT_F32, 0, 0xFF, 0xFFC00000},
    {HEFT_F8_E5M2FNUZ, HEFT_F32, 0, 0x80, 0x7FC00000}, {HEFT_F32, HEFT_F8_E8M0, S, 0xFFC00000, 0xFF},
    /* F8: 464 and above it, 248, 61440, no -0 */
    {HEFT_F32, HEFT_F8_E4M3, 0, 0x43E80000, 0x7E}, {HEFT_F32, HEFT_F8_E4M3, 0, 0xC3E80001, 0xFF},
    {HEFT_F32, HEFT_F8_E4M3, S, 0xC3E80001, 0xFE}, {HEFT_F32, HEFT_F8_E4M3, S, 0x7F800000, 0x7E},
    {HEFT_F32, HEFT_F8_E4M3FNUZ, 0, 0x4377FFFF, 0x7F}, {HEFT_F32, HEFT_F8_E4M3FNUZ, 0, 0x43780000, 0x80},
    {HEFT_F32, HEFT_F8_E5M2FNUZ, 0, 0x476FFFFF, 0x7F}, {HEFT_F32, HEFT_F8_E5M2FNUZ, 0, 0xC7700000, 0x80},
    {HEFT_F32, HEFT_F8_E5M2FNUZ, S, 0xC7700000, 0xFF}, {HEFT_F32, HEFT_F8_E5M2, 0, 0x476FFFFF, 0x7B},
    {HEFT_F32, HEFT_F8_E5M2, 0, 0x47700000, 0x7C}, {HEFT_F32, HEFT_F8_E5M2, S, 0xC7700000, 0xFB},
    {HEFT_F32, HEFT_F8_E4M3, 0, 0x3A800000, 0x00}, {HEFT_F32, HEFT_F8_E4M3, 0, 0xBA800001, 0x81},
    {HEFT_F32, HEFT_F8_E4M3FNUZ, 0, 0x80000000, 0x00}, {HEFT_F32, HEFT_F8_E5M2FNUZ, 0, 0x80000001, 0x00},
    {HEFT_F8_E5M2, HEFT_F8_E5M2FNUZ, 0, 0x7C, 0x80}, {HEFT_F8_E5M2, HEFT_F8_E5M2FNUZ, S, 0x7C, 0x7F},
    /* nothing overflows here, so nothing saturates */
    {HEFT_F16, HEFT_F32, S, 0x7C00, 0x7F800000}, {HEFT_F16, HEFT_BF16, S, 0xFC00, 0xFF80},
    /* E8M0: halves up, 0 and negative are NaN */
    {HEFT_F32, HEFT_F8_E8M0, 0, 0x40400000, 0x81}, {HEFT_F32, HEFT_F8_E8M0, 0, 0x403FFFFF, 0x80},
    {HEFT_F32, HEFT_F8_E8M0, S, 0x00000000, 0xFF}, {HEFT_F32, HEFT_F8_E8M0, 0, 0x00000001, 0x00},
    {HEFT_F32, HEFT_F8_E8M0, 0, 0x00400001, 0x01}, {HEFT_F32, HEFT_F8_E8M0, S, 0xBF800000, 0xFF},
    {HEFT_F32, HEFT_F8_E8M0, 0, 0x7F400000, 0xFF}, {HEFT_F32, HEFT_F8_E8M0, S, 0x7F800000, 0xFE},
    {HEFT_F8_E8M0, HEFT_F32, 0, 0x00, 0x00400000}, {HEFT_F8_E8M0, HEFT_F16, 0, 0xFE, 0x7C00},
    /* one rounding: just above half of BF16 by less than F32 shows */
    {HEFT_F64, HEFT_BF16, 0, UINT64_C(0x3FF0100000000001), 0x3F81},
    {HEFT_F64, HEFT_F8_E4M3, 0, UINT64_C(0x3FF1000000000001), 0x39},
    {HEFT_F64, HEFT_F16, 0, UINT64_C(0x3E60000000000001), 0x0001},
    {HEFT_F64, HEFT_F32, 0, UINT64_C(0x3690000000000000), 0x00000000},
    {HEFT_F64, HEFT_F32, 0, UINT64_C(0x3690000000000001), 0x00000001},
    {HEFT_F64, HEFT_F32, 0, UINT64_C(0x47EFFFFFF0000000), 0x7F800000},
    {HEFT_F64, HEFT_BF16, S, UINT64_C(0xFE37E43C8800759C), 0xFF7F},
    {HEFT_I64, HEFT_F32, I, UINT64_C(0x8000004000000001), 0xDEFFFFFF}, /* once, not by way of F64 */
    /* integers */
    {HEFT_I32, HEFT_U8, 0, 255, 255}, {HEFT_I32, HEFT_U8, 0, 256, REFUSED}, {HEFT_I32, HEFT_U8, S, 256, 255},
    {HEFT_I32, HEFT_U8, 0, 0xFFFFFFFF, REFUSED}, {HEFT_I32, HEFT_U8, S, 0xFFFFFFFF, 0},
    {HEFT_I32, HEFT_I8, 0, 0xFFFFFF80, 0x80}, {HEFT_I32, HEFT_I8, S, 0xFFFFFF7F, 0x80},
    {HEFT_U64, HEFT_I64, 0, UINT64_C(1) << 63, REFUSED}, {HEFT_U64, HEFT_I64, S, UINT64_C(1) << 63, INT64_MAX},
    {HEFT_I64, HEFT_U64, 0, UINT64_MAX, REFUSED}, {HEFT_I64, HEFT_U64, I, UINT64_MAX, REFUSED},
    {HEFT_U64, HEFT_I32, 0, UINT64_MAX, REFUSED}, {HEFT_I8, HEFT_I64, 0, 0x80, UINT64_C(0xFFFFFFFFFFFFFF80)},
    {HEFT_I32, HEFT_F32, 0, 16777217, REFUSED}, {HEFT_I32, HEFT_F32, S, 16777217, REFUSED},
    {HEFT_I32, HEFT_F32, I, 16777217, 0x4B800000}, {HEFT_I32, HEFT_F32, 0, 16777218, 0x4B800001},
    {HEFT_I32, HEFT_F16, 0, 65504, 0x7BFF}, {HEFT_I32, HEFT_F16, S, 65505, 0x7BFF},
    {HEFT_I32, HEFT_F16, S, 65503, REFUSED}, {HEFT_I32, HEFT_F16, I, 65520, 0x7C00},
    {HEFT_I32, HEFT_F16, I | S, 65520, 0x7BFF}, {HEFT_U16, HEFT_F8_E4M3, I, 465, 0x7F},
    {HEFT_I16, HEFT_F8_E8M0, 0, 4, 0x81}, {HEFT_I16, HEFT_F8_E8M0, 0, 0, REFUSED}, {HEFT_I16, HEFT_F8_E8M0, I, 0, 0xFF},
    /* BOOL */
    {HEFT_BOOL, HEFT_F16, 0, 7, 0x3C00}, {HEFT_BOOL, HEFT_I64, 0, 1, 1}, {HEFT_BOOL, HEFT_BOOL, 0, 7, 7},
    {HEFT_F32, HEFT_BOOL, 0, 0x80000000, 0}, {HEFT_F32, HEFT_BOOL, 0, 0x7FC00000, 1}, {HEFT_F64, HEFT_BOOL, 0, 1, 1},
    {HEFT_F8_E4M3FNUZ, HEFT_BOOL, 0, 0x80, 1}, {HEFT_U64, HEFT_BOOL, 0, UINT64_C(1) << 63, 1},
};

static void values(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        heft__cast cast;
        uint8_t in[8], out[8];
        assert_true(heft__cast_find(rows[i].from, rows[i].to, rows[i].flags | HEFT__CAST_REFERENCE, &cast));
        put(heft_dtype_bits(rows[i].from), in, rows[i].raw);
        if (heft__cast_run(&cast, in, out, 1) != 1 ? rows[i].result != REFUSED
                                                   : take(heft_dtype_bits(rows[i].to), out) != rows[i].result)
            fail_msg("row %zu: %s %llx to %s under %x", i, heft_dtype_name(rows[i].from), (unsigned long long)rows[i].raw,
                     heft_dtype_name(rows[i].to), rows[i].flags);
    }
}

/* ---- refusals, and heft_cast ---- */

static void pairs(void **state) {
    (void)state;
    uint32_t known = 0;
    heft_error err;
    heft__cast cast;
    for (heft_dtype from = 0; from <= HEFT_DTYPE_COUNT; from++)
        for (heft_dtype to = 0; to <= HEFT_DTYPE_COUNT; to++) {
            char a = heft_dtype_kind(from), b = heft_dtype_kind(to);
            bool narrow = heft_dtype_bits(from) < 8 || heft_dtype_bits(to) < 8, integer = b == 'i' || b == 'u';
            bool can = a && b && (from == to || (!narrow && a != 'c' && b != 'c' && !(a == 'f' && integer)));
            assert_int_equal(heft_can_cast(from, to), can);
            assert_int_equal(heft__cast_find(from, to, 0, &cast), can);
            known += can;
            if (can) continue;
            uint8_t byte = 0, wide[8];
            heft_status status = heft_cast(from, &byte, to, wide, 0, NULL, &err);
            assert_int_equal(status, a && b ? HEFT_UNSUPPORTED : HEFT_INVALID_ARGUMENT);
            assert_int_equal(err.status, status);
        }
    assert_int_equal(known, 18 * 18 - 9 * 8 + 4);
    assert_int_equal(heft_cast(HEFT_F32, NULL, HEFT_I8, NULL, 0, NULL, &err), HEFT_UNSUPPORTED);
    assert_string_equal(err.message, "there is no cast from F32 to I8: a float does not become an integer");
    assert_int_equal(heft_cast(HEFT_F4, NULL, HEFT_F32, NULL, 0, NULL, NULL), HEFT_UNSUPPORTED);
}

static void arguments(void **state) {
    (void)state;
    heft_error err;
    uint8_t some[8] = {0x21, 0x43, 0x65}, other[8] = {0};
    assert_int_equal(heft_cast(HEFT_F32, NULL, HEFT_F16, NULL, 0, NULL, NULL), HEFT_OK);
    assert_int_equal(heft_cast(HEFT_F32, NULL, HEFT_F16, other, 1, NULL, &err), HEFT_INVALID_ARGUMENT);
    assert_int_equal(heft_cast(HEFT_F32, some, HEFT_F16, NULL, 1, NULL, &err), HEFT_INVALID_ARGUMENT);
    assert_int_equal(heft_cast(HEFT_U8, some, HEFT_U16, other, UINT64_MAX / 2, NULL, &err), HEFT_LIMIT);
    assert_int_equal(heft_cast(HEFT_F4, some, HEFT_F4, other, 3, NULL, &err), HEFT_INVALID_ARGUMENT);
    assert_int_equal(heft_cast(HEFT_F4, some, HEFT_F4, other, 4, NULL, &err), HEFT_OK);
    assert_memory_equal(other, "\x21\x43\0", 3);
    assert_int_equal(heft_cast(HEFT_F6_E2M3, some, HEFT_F6_E2M3, other, 4, NULL, &err), HEFT_OK);
    assert_memory_equal(other, "\x21\x43\x65\0", 4);
    heft_cast_options how = {.struct_size = sizeof how, .reserved_flags = {false, true}};
    assert_int_equal(heft_cast(HEFT_U8, some, HEFT_U16, other, 1, &how, &err), HEFT_INVALID_ARGUMENT);
    how.struct_size = 0;
    assert_int_equal(heft_cast(HEFT_U8, some, HEFT_U16, other, 1, &how, &err), HEFT_INVALID_ARGUMENT);
}

/* Many blocks, several threads; of several refused numbers the first is reported, always. */
static void first_refused(void **state) {
    (void)state;
    enum { N = 3000001 };
    int32_t *in = malloc(N * sizeof *in);
    uint8_t *out = malloc(N);
    heft_error err;
    heft_cast_options how = {.struct_size = sizeof how};
    for (int round = 0; round < 6; round++) {
        how.workers = (uint32_t)round;
        how.saturate = false;
        for (size_t i = 0; i < N; i++) in[i] = (int32_t)(i % 256);
        in[1000000] = -5;
        for (size_t i = 1200000; i < N; i += 1000) in[i] = 256;
        assert_int_equal(heft_cast(HEFT_I32, in, HEFT_U8, out, N, &how, &err), HEFT_MISMATCH);
        assert_int_equal(err.found, 1000000);
        assert_string_equal(err.message, "element 1000000 is -5, which U8 cannot hold; saturate gives the nearest number that "
                                         "it can");
        how.saturate = true;
        assert_int_equal(heft_cast(HEFT_I32, in, HEFT_U8, out, N, &how, &err), HEFT_OK);
        for (size_t i = 0; i < N; i++) assert_int_equal(out[i], in[i] < 0 ? 0 : in[i] > 255 ? 255 : in[i]);
    }
    const int64_t odd[] = {1, 1 << 24, (1 << 24) + 1};
    float floats[3];
    assert_int_equal(heft_cast(HEFT_I64, odd, HEFT_F32, floats, 3, NULL, &err), HEFT_MISMATCH);
    assert_string_equal(err.message, "element 2 is 16777217, which F32 cannot hold exactly; allow_inexact rounds it");
    how = (heft_cast_options){.struct_size = sizeof how, .allow_inexact = true};
    assert_int_equal(heft_cast(HEFT_I64, odd, HEFT_F32, floats, 3, &how, &err), HEFT_OK);
    assert_true(floats[2] == 16777216.0f);
    free(in);
    free(out);
}

/* Large results into memory that is new and into memory in use, from places that no huge page begins at too. */
static void large(void **state) {
    (void)state;
    static const size_t shifts[] = {0, 2, 64, ((size_t)2 << 20) - 4};
    size_t n = ((size_t)16 << 20) + 1001, room = ((size_t)2 << 20) + n * 4;
    uint16_t *in = malloc(n * 2);
    assert_non_null(in);
    for (size_t i = 0; i < n; i++) in[i] = (uint16_t)(i * 40503u >> 3 & 0x3FFF); /* no NaN */
    for (size_t k = 0; k < sizeof shifts / sizeof *shifts; k++) {
        uint8_t *pages = heft__os_pages(room), *out = pages + shifts[k];
        assert_non_null(pages);
        for (uint32_t round = 0; round < 2; round++) {
            heft_error err;
            assert_int_equal(heft_cast(HEFT_BF16, in, HEFT_F32, out, n, NULL, &err), HEFT_OK);
            for (size_t i = 0; i < n; i += round ? 1 : 3) {
                uint32_t got;
                memcpy(&got, out + i * 4, 4);
                if (got != (uint32_t)in[i] << 16) fail_msg("element %zu, shift %zu: %08x", i, shifts[k], (unsigned)got);
            }
            memset(pages, 0xEE, room);
        }
        heft__os_pages_free(pages, room);
    }
    free(in);
}

/* Pages count as there once something was stored in them. */
static void resident(void **state) {
    (void)state;
    size_t page = heft__os_page_size(), room = 16 * page;
    uint8_t *pages = heft__os_pages_small(room);
    assert_non_null(pages);
#if defined(__linux__)
    assert_false(heft__os_resident(pages + 5 * page + 17));
#endif
    pages[5 * page] = 1;
    assert_true(heft__os_resident(pages + 5 * page + 17));
    assert_true(heft__os_resident(&page));
    heft__os_pages_free(pages, room);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values),
        cmocka_unit_test(pairs),
        cmocka_unit_test(arguments),
        cmocka_unit_test(first_refused),
        cmocka_unit_test(large),
        cmocka_unit_test(resident),
        cmocka_unit_test(every_pair_in_every_tier),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
