/* dtype: kernels of casts for x86-64 with AVX2 and F16C, 16 elements at a time; all floats meet as F32. */
#include "base/cpu.h"
#include "dtype/cast.h"

#if defined(__x86_64__)

#include <immintrin.h>
#include <string.h>

#define AVX2_TARGET __attribute__((target("avx2,f16c")))
#define AVX2_INLINE __attribute__((target("avx2,f16c"), always_inline))

/* Bits of 16 F32. */
typedef struct avx2_sixteen {
    __m256i low, high;
} avx2_sixteen;

typedef avx2_sixteen avx2_load(const uint8_t *in);
/* `most`: the largest result as F32 bits, to which a number is clamped; infinity clamps nothing. `stream`: past the
 * caches. */
typedef void avx2_save(uint8_t *out, avx2_sixteen full, __m256i most, bool stream);

static inline AVX2_INLINE __m256i avx2_set(uint32_t bits) {
    return _mm256_set1_epi32((int32_t)bits);
}

static inline AVX2_INLINE __m256i avx2_size(__m256i full) {
    return _mm256_and_si256(full, avx2_set(0x7FFFFFFF));
}

static inline AVX2_INLINE __m256i avx2_is_nan(__m256i full) {
    return _mm256_cmpgt_epi32(avx2_size(full), avx2_set(0x7F800000));
}

static inline AVX2_INLINE __m256i avx2_clamp(__m256i full, __m256i most) {
    __m256i size = _mm256_min_epu32(avx2_size(full), most);
    __m256i clamped = _mm256_or_si256(size, _mm256_andnot_si256(avx2_set(0x7FFFFFFF), full));
    return _mm256_blendv_epi8(clamped, full, avx2_is_nan(full));
}

static inline AVX2_INLINE __m128i avx2_low(__m256i both) {
    return _mm256_castsi256_si128(both);
}

static inline AVX2_INLINE __m128i avx2_high(__m256i both) {
    return _mm256_extracti128_si256(both, 1);
}

static inline AVX2_INLINE __m256i avx2_join(__m128i low, __m128i high) {
    return _mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1);
}

/* 16 numbers below 2^16, each in 32 bits, as 16 bits. */
static inline AVX2_INLINE __m256i avx2_pack(__m256i low, __m256i high) {
    return _mm256_permute4x64_epi64(_mm256_packus_epi32(low, high), 0xD8);
}

/* ---- to F32 ---- */

static inline AVX2_INLINE avx2_sixteen avx2_load_f32(const uint8_t *in) {
    return (avx2_sixteen){_mm256_loadu_si256((const void *)in), _mm256_loadu_si256((const void *)(in + 32))};
}

static inline AVX2_INLINE __m256i avx2_from_bf16(__m128i half) {
    __m256i full = _mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16);
    return _mm256_or_si256(full, _mm256_and_si256(avx2_is_nan(full), avx2_set(0x400000))); /* quiet */
}

static inline AVX2_INLINE avx2_sixteen avx2_load_bf16(const uint8_t *in) {
    return (avx2_sixteen){avx2_from_bf16(_mm_loadu_si128((const void *)in)),
                          avx2_from_bf16(_mm_loadu_si128((const void *)(in + 16)))};
}

static inline AVX2_INLINE __m256i avx2_from_f16(__m128i half) {
    return _mm256_castps_si256(_mm256_cvtph_ps(half));
}

static inline AVX2_INLINE avx2_sixteen avx2_load_f16(const uint8_t *in) {
    return (avx2_sixteen){avx2_from_f16(_mm_loadu_si128((const void *)in)),
                          avx2_from_f16(_mm_loadu_si128((const void *)(in + 16)))};
}

static inline AVX2_INLINE __m256i avx2_load_bytes(const uint8_t *in) {
    return _mm256_cvtepu8_epi16(_mm_loadu_si128((const void *)in));
}

/* F8_E5M2 is the upper byte of an F16. */
static inline AVX2_INLINE avx2_sixteen avx2_load_e5m2(const uint8_t *in) {
    __m256i half = _mm256_slli_epi16(avx2_load_bytes(in), 8);
    return (avx2_sixteen){avx2_from_f16(avx2_low(half)), avx2_from_f16(avx2_high(half))};
}

/* Read as the bits of an F16 it is 256 times too small, for all exponents; its one NaN is 480 then. */
static inline AVX2_INLINE __m256i avx2_from_e4m3(__m128i half) {
    __m256 full = _mm256_mul_ps(_mm256_cvtph_ps(half), _mm256_set1_ps(256));
    __m256i bits = _mm256_castps_si256(full), sign = _mm256_andnot_si256(avx2_set(0x7FFFFFFF), bits);
    __m256i is_nan = _mm256_cmpeq_epi32(avx2_size(bits), avx2_set(0x43F00000));
    return _mm256_blendv_epi8(bits, _mm256_or_si256(sign, avx2_set(0x7FC00000)), is_nan);
}

static inline AVX2_INLINE avx2_sixteen avx2_load_e4m3(const uint8_t *in) {
    __m256i bytes = avx2_load_bytes(in), size = _mm256_and_si256(bytes, _mm256_set1_epi16(0x7F));
    __m256i sign = _mm256_slli_epi16(_mm256_andnot_si256(_mm256_set1_epi16(0x7F), bytes), 8);
    __m256i half = _mm256_or_si256(sign, _mm256_slli_epi16(size, 7));
    return (avx2_sixteen){avx2_from_e4m3(avx2_low(half)), avx2_from_e4m3(avx2_high(half))};
}

/* The same for both FNUZ dtypes, as the bits of an F32 that is too small by `scale`; -0 stands for NaN. */
static inline AVX2_INLINE __m256i avx2_from_fnuz(const uint8_t *in, int shift, float scale) {
    __m256i bytes = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const void *)in));
    __m256i size = _mm256_slli_epi32(_mm256_and_si256(bytes, avx2_set(0x7F)), shift);
    __m256i sign = _mm256_slli_epi32(_mm256_and_si256(bytes, avx2_set(0x80)), 24);
    __m256 full = _mm256_mul_ps(_mm256_castsi256_ps(_mm256_or_si256(size, sign)), _mm256_set1_ps(scale));
    __m256i is_nan = _mm256_cmpeq_epi32(bytes, avx2_set(0x80));
    return _mm256_blendv_epi8(_mm256_castps_si256(full), avx2_set(0x7FC00000), is_nan);
}

static inline AVX2_INLINE avx2_sixteen avx2_load_e4m3fnuz(const uint8_t *in) {
    return (avx2_sixteen){avx2_from_fnuz(in, 20, 0x1p119f), avx2_from_fnuz(in + 8, 20, 0x1p119f)};
}

static inline AVX2_INLINE avx2_sixteen avx2_load_e5m2fnuz(const uint8_t *in) {
    return (avx2_sixteen){avx2_from_fnuz(in, 21, 0x1p111f), avx2_from_fnuz(in + 8, 21, 0x1p111f)};
}

static inline AVX2_INLINE __m128i avx2_nearest4(const uint8_t *in) {
    return _mm_castps_si128(_mm256_cvtpd_ps(_mm256_loadu_pd((const void *)in)));
}

static inline AVX2_INLINE avx2_sixteen avx2_load_f64(const uint8_t *in) {
    return (avx2_sixteen){avx2_join(avx2_nearest4(in), avx2_nearest4(in + 32)),
                          avx2_join(avx2_nearest4(in + 64), avx2_nearest4(in + 96))};
}

/* The lower halves of four 64-bit masks. */
static inline AVX2_INLINE __m128i avx2_narrow_mask(__m256d mask) {
    return avx2_low(_mm256_permutevar8x32_epi32(_mm256_castpd_si256(mask), _mm256_setr_epi32(0, 2, 4, 6, 0, 2, 4, 6)));
}

/* The nearest, back by one if it is larger than the number; then the last bit set if it is another. NaN stays. */
static inline AVX2_INLINE __m128i avx2_odd4(const uint8_t *in) {
    __m256d value = _mm256_loadu_pd((const void *)in), sign = _mm256_set1_pd(-0.0);
    __m128 nearest = _mm256_cvtpd_ps(value);
    __m256d back = _mm256_cvtps_pd(nearest);
    __m256d other = _mm256_cmp_pd(back, value, _CMP_NEQ_OQ);
    __m256d larger = _mm256_cmp_pd(_mm256_andnot_pd(sign, back), _mm256_andnot_pd(sign, value), _CMP_GT_OQ);
    __m128i bits = _mm_add_epi32(_mm_castps_si128(nearest), avx2_narrow_mask(larger));
    return _mm_or_si128(bits, _mm_and_si128(avx2_narrow_mask(other), _mm_set1_epi32(1)));
}

static inline AVX2_INLINE avx2_sixteen avx2_load_f64_odd(const uint8_t *in) {
    return (avx2_sixteen){avx2_join(avx2_odd4(in), avx2_odd4(in + 32)),
                          avx2_join(avx2_odd4(in + 64), avx2_odd4(in + 96))};
}

/* ---- from F32 ---- */

static inline AVX2_INLINE void avx2_put(uint8_t *out, __m256i bits, bool stream) {
    if (stream)
        _mm256_stream_si256((void *)out, bits);
    else
        _mm256_storeu_si256((void *)out, bits);
}

static inline AVX2_INLINE void avx2_put16(uint8_t *out, __m128i bits, bool stream) {
    if (stream)
        _mm_stream_si128((void *)out, bits);
    else
        _mm_storeu_si128((void *)out, bits);
}

static inline AVX2_INLINE void avx2_save_f32(uint8_t *out, avx2_sixteen full, __m256i most, bool stream) {
    avx2_put(out, avx2_clamp(full.low, most), stream);
    avx2_put(out + 32, avx2_clamp(full.high, most), stream);
}

static inline AVX2_INLINE void avx2_save_same(uint8_t *out, avx2_sixteen full, __m256i most, bool stream) {
    (void)most; /* nothing that is narrower than F32 overflows there */
    avx2_put(out, full.low, stream);
    avx2_put(out + 32, full.high, stream);
}

static inline AVX2_INLINE void avx2_save_f64(uint8_t *out, avx2_sixteen full, __m256i most, bool stream) {
    __m128i quarters[4] = {avx2_low(full.low), avx2_high(full.low), avx2_low(full.high), avx2_high(full.high)};
    (void)most;
    for (size_t i = 0; i < 4; i++)
        avx2_put(out + i * 32, _mm256_castpd_si256(_mm256_cvtps_pd(_mm_castsi128_ps(quarters[i]))), stream);
}

static inline AVX2_INLINE __m256i avx2_to_bf16(__m256i full, __m256i most) {
    __m256i size = avx2_size(full), even = _mm256_and_si256(_mm256_srli_epi32(full, 16), avx2_set(1));
    __m256i rounded = _mm256_add_epi32(_mm256_add_epi32(size, avx2_set(0x7FFF)), even);
    rounded = _mm256_blendv_epi8(_mm256_min_epu32(rounded, most), _mm256_or_si256(size, avx2_set(0x400000)),
                                 avx2_is_nan(full));
    return _mm256_srli_epi32(_mm256_or_si256(rounded, _mm256_andnot_si256(avx2_set(0x7FFFFFFF), full)), 16);
}

static inline AVX2_INLINE void avx2_save_bf16(uint8_t *out, avx2_sixteen full, __m256i most, bool stream) {
    avx2_put(out, avx2_pack(avx2_to_bf16(full.low, most), avx2_to_bf16(full.high, most)), stream);
}

static inline AVX2_INLINE __m128i avx2_to_f16(__m256i full, __m256i most) {
    return _mm256_cvtps_ph(_mm256_castsi256_ps(avx2_clamp(full, most)), _MM_FROUND_TO_NEAREST_INT);
}

static inline AVX2_INLINE void avx2_save_f16(uint8_t *out, avx2_sixteen full, __m256i most, bool stream) {
    avx2_put16(out, avx2_to_f16(full.low, most), stream);
    avx2_put16(out + 16, avx2_to_f16(full.high, most), stream);
}

/* A float of 8 bits, as what becomes of an F32. */
typedef struct avx2_byte {
    uint32_t mantissa_bits, bias;
    uint32_t largest, beyond; /* codes: the largest number, and what is above it */
    uint32_t nan, payload;    /* codes: NaN, and the bit of it that its payload decides */
    bool fnuz;                /* no -0 */
} avx2_byte;

/* Codes with the sign, one in 32 bits. Normal numbers are rounded in the bits of the F32; below them the unit rounds,
 * by adding a power of two whose last bit is worth what the last bit of a subnormal is. */
static inline AVX2_INLINE __m256i avx2_to_byte(__m256i full, __m256i most, avx2_byte to) {
    uint32_t drop = 23 - to.mantissa_bits, magic = (127 + 1 - to.bias + drop) << 23;
    __m256i size = _mm256_min_epu32(avx2_size(full), most), nan = avx2_set(to.nan);
    __m256i even = _mm256_and_si256(_mm256_srli_epi32(size, (int)drop), avx2_set(1));
    __m256i rounded = _mm256_add_epi32(_mm256_add_epi32(size, avx2_set((1U << (drop - 1)) - 1)), even);
    __m256i normal =
        _mm256_sub_epi32(_mm256_srli_epi32(rounded, (int)drop), avx2_set((127 - to.bias) << to.mantissa_bits));
    __m256 sum = _mm256_add_ps(_mm256_castsi256_ps(size), _mm256_castsi256_ps(avx2_set(magic)));
    __m256i small = _mm256_sub_epi32(_mm256_castps_si256(sum), avx2_set(magic));
    __m256i code = _mm256_blendv_epi8(normal, small, _mm256_cmpgt_epi32(avx2_set((128 - to.bias) << 23), size));
    code = _mm256_blendv_epi8(code, avx2_set(to.beyond), _mm256_cmpgt_epi32(code, avx2_set(to.largest)));
    if (to.payload)
        nan = _mm256_or_si256(nan, _mm256_and_si256(_mm256_srli_epi32(full, (int)drop), avx2_set(to.payload)));
    code = _mm256_blendv_epi8(code, nan, avx2_is_nan(full));
    __m256i sign = _mm256_and_si256(_mm256_srli_epi32(full, 24), avx2_set(0x80));
    if (to.fnuz) sign = _mm256_andnot_si256(_mm256_cmpeq_epi32(code, _mm256_setzero_si256()), sign);
    return _mm256_or_si256(code, sign);
}

static inline AVX2_INLINE void avx2_save_byte(uint8_t *out, avx2_sixteen full, __m256i most, bool stream,
                                              avx2_byte to) {
    __m256i wide = avx2_pack(avx2_to_byte(full.low, most, to), avx2_to_byte(full.high, most, to));
    avx2_put16(out, _mm_packus_epi16(avx2_low(wide), avx2_high(wide)), stream);
}

static inline AVX2_INLINE void avx2_save_e4m3(uint8_t *out, avx2_sixteen full, __m256i most, bool stream) {
    avx2_save_byte(out, full, most, stream, (avx2_byte){3, 7, 0x7E, 0x7F, 0x7F, 0, false});
}

static inline AVX2_INLINE void avx2_save_e5m2(uint8_t *out, avx2_sixteen full, __m256i most, bool stream) {
    avx2_save_byte(out, full, most, stream, (avx2_byte){2, 15, 0x7B, 0x7C, 0x7E, 1, false});
}

static inline AVX2_INLINE void avx2_save_e4m3fnuz(uint8_t *out, avx2_sixteen full, __m256i most, bool stream) {
    avx2_save_byte(out, full, most, stream, (avx2_byte){3, 8, 0x7F, 0x80, 0x80, 0, true});
}

static inline AVX2_INLINE void avx2_save_e5m2fnuz(uint8_t *out, avx2_sixteen full, __m256i most, bool stream) {
    avx2_save_byte(out, full, most, stream, (avx2_byte){2, 16, 0x7F, 0x80, 0x80, 0, true});
}

/* ---- bytes to 16 bits: the whole work in lanes of 16 bits; `low` alone is used ---- */

static inline AVX2_INLINE __m256i avx2_set16(uint32_t bits) {
    return _mm256_set1_epi16((int16_t)bits);
}

/* Normal numbers need a shift and another bias; `small` has the 16-bit codes of the subnormals, by their mantissas. */
static inline AVX2_INLINE __m256i avx2_widen(__m256i size, int shift, uint32_t bias, uint32_t least, __m128i small) {
    __m256i normal = _mm256_add_epi16(_mm256_slli_epi16(size, shift), avx2_set16(bias));
    __m256i bytes = _mm256_add_epi16(_mm256_mullo_epi16(_mm256_and_si256(size, avx2_set16(7)), avx2_set16(0x0202)),
                                     avx2_set16(0x0100));
    __m256i subnormal = _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(small), bytes);
    return _mm256_blendv_epi8(normal, subnormal, _mm256_cmpgt_epi16(avx2_set16(least), size));
}

static inline AVX2_INLINE __m256i avx2_sign16(__m256i bytes) {
    return _mm256_slli_epi16(_mm256_and_si256(bytes, avx2_set16(0x80)), 8);
}

static inline AVX2_INLINE avx2_sixteen avx2_e4m3_to(const uint8_t *in, int shift, uint32_t bias, uint32_t nan,
                                                    __m128i small) {
    __m256i bytes = avx2_load_bytes(in), size = _mm256_and_si256(bytes, avx2_set16(0x7F));
    __m256i half = avx2_widen(size, shift, bias, 8, small);
    half = _mm256_blendv_epi8(half, avx2_set16(nan), _mm256_cmpeq_epi16(size, avx2_set16(0x7F)));
    return (avx2_sixteen){_mm256_or_si256(half, avx2_sign16(bytes)), _mm256_setzero_si256()};
}

/* The multiples of 2^-9, to 7. */
static inline AVX2_INLINE avx2_sixteen avx2_e4m3_bf16(const uint8_t *in) {
    return avx2_e4m3_to(in, 4, (127 - 7) << 7, 0x7FC0,
                        _mm_setr_epi16(0, 0x3B00, 0x3B80, 0x3BC0, 0x3C00, 0x3C20, 0x3C40, 0x3C60));
}

static inline AVX2_INLINE avx2_sixteen avx2_e4m3_f16(const uint8_t *in) {
    return avx2_e4m3_to(in, 7, (15 - 7) << 10, 0x7E00,
                        _mm_setr_epi16(0, 0x1800, 0x1C00, 0x1E00, 0x2000, 0x2100, 0x2200, 0x2300));
}

/* The multiples of 2^-16, to 3. Infinity and NaN (quiet) need the other bias twice. */
static inline AVX2_INLINE avx2_sixteen avx2_e5m2_bf16(const uint8_t *in) {
    const uint32_t bias = (127 - 15) << 7;
    __m256i bytes = avx2_load_bytes(in), size = _mm256_and_si256(bytes, avx2_set16(0x7F));
    __m256i half = avx2_widen(size, 5, bias, 4, _mm_setr_epi16(0, 0x3780, 0x3800, 0x3840, 0, 0, 0, 0));
    half = _mm256_add_epi16(half, _mm256_and_si256(_mm256_cmpgt_epi16(size, avx2_set16(0x7B)), avx2_set16(bias)));
    half = _mm256_or_si256(half, _mm256_and_si256(_mm256_cmpgt_epi16(size, avx2_set16(0x7C)), avx2_set16(0x40)));
    return (avx2_sixteen){_mm256_or_si256(half, avx2_sign16(bytes)), _mm256_setzero_si256()};
}

static inline AVX2_INLINE avx2_sixteen avx2_e5m2_f16(const uint8_t *in) {
    __m256i half = _mm256_slli_epi16(avx2_load_bytes(in), 8);
    __m256i is_nan = _mm256_cmpgt_epi16(_mm256_and_si256(half, avx2_set16(0x7FFF)), avx2_set16(0x7C00));
    return (avx2_sixteen){_mm256_or_si256(half, _mm256_and_si256(is_nan, avx2_set16(0x200))), _mm256_setzero_si256()};
}

static inline AVX2_INLINE void avx2_save_halves(uint8_t *out, avx2_sixteen halves, __m256i most, bool stream) {
    (void)most;
    avx2_put(out, halves.low, stream);
}

/* ---- the kernels ---- */

/* Inlined with all functions and sizes constant. The last elements pass through memory of a whole step. */
static inline AVX2_INLINE void avx2_loop(const uint8_t *in, uint8_t *out, size_t n, avx2_load *load, size_t from,
                                         avx2_save *save, size_t to, __m256i most, bool stream) {
    uint8_t rest_in[16 * 8] = {0}, rest_out[16 * 8];
    size_t i = 0;
    for (; i + 16 <= n; i += 16) save(out + i * to, load(in + i * from), most, stream);
    if (i < n) {
        memcpy(rest_in, in + i * from, (n - i) * from);
        save(rest_out, load(rest_in), most, false);
        memcpy(out + i * to, rest_out, (n - i) * to);
    }
}

/* A stream begins at a multiple of 64 bytes; where no element does, there is none. */
static inline AVX2_INLINE size_t avx2_run(const heft__cast_stage *stage, const void *src, void *dst, size_t n,
                                          avx2_load *load, size_t from, avx2_save *save, size_t to, uint32_t largest) {
    const uint8_t *in = src;
    uint8_t *out = dst;
    __m256i most = avx2_set(stage->flags & HEFT__CAST_SATURATE ? largest : 0x7F800000);
    size_t plain = n, gap = (64 - (uintptr_t)dst % 64) % 64;
    if (stage->flags & HEFT__CAST_STREAM && gap % to == 0 && gap / to < n) plain = gap / to;
    avx2_loop(in, out, plain, load, from, save, to, most, false);
    if (plain == n) return n;
    avx2_loop(in + plain * from, out + plain * to, n - plain, load, from, save, to, most, true);
    _mm_sfence();
    return n;
}

static AVX2_TARGET size_t avx2_kernel_bf16_f32(const heft__cast_stage *stage, const void *src, void *dst, size_t n) {
    return avx2_run(stage, src, dst, n, avx2_load_bf16, 2, avx2_save_same, 4, 0);
}

static AVX2_TARGET size_t avx2_kernel_f16_f32(const heft__cast_stage *stage, const void *src, void *dst, size_t n) {
    return avx2_run(stage, src, dst, n, avx2_load_f16, 2, avx2_save_same, 4, 0);
}

static AVX2_TARGET size_t avx2_kernel_e4m3_f32(const heft__cast_stage *stage, const void *src, void *dst, size_t n) {
    return avx2_run(stage, src, dst, n, avx2_load_e4m3, 1, avx2_save_same, 4, 0);
}

static AVX2_TARGET size_t avx2_kernel_e5m2_f32(const heft__cast_stage *stage, const void *src, void *dst, size_t n) {
    return avx2_run(stage, src, dst, n, avx2_load_e5m2, 1, avx2_save_same, 4, 0);
}

static AVX2_TARGET size_t avx2_kernel_e4m3fnuz_f32(const heft__cast_stage *stage, const void *src, void *dst,
                                                   size_t n) {
    return avx2_run(stage, src, dst, n, avx2_load_e4m3fnuz, 1, avx2_save_same, 4, 0);
}

static AVX2_TARGET size_t avx2_kernel_e5m2fnuz_f32(const heft__cast_stage *stage, const void *src, void *dst,
                                                   size_t n) {
    return avx2_run(stage, src, dst, n, avx2_load_e5m2fnuz, 1, avx2_save_same, 4, 0);
}

static AVX2_TARGET size_t avx2_kernel_f64_f32(const heft__cast_stage *stage, const void *src, void *dst, size_t n) {
    return avx2_run(stage, src, dst, n, avx2_load_f64, 8, avx2_save_f32, 4, 0x7F7FFFFF);
}

static AVX2_TARGET size_t avx2_kernel_f64_f32_odd(const heft__cast_stage *stage, const void *src, void *dst, size_t n) {
    return avx2_run(stage, src, dst, n, avx2_load_f64_odd, 8, avx2_save_same, 4, 0);
}

static AVX2_TARGET size_t avx2_kernel_f32_f64(const heft__cast_stage *stage, const void *src, void *dst, size_t n) {
    return avx2_run(stage, src, dst, n, avx2_load_f32, 4, avx2_save_f64, 8, 0);
}

static AVX2_TARGET size_t avx2_kernel_f32_bf16(const heft__cast_stage *stage, const void *src, void *dst, size_t n) {
    return avx2_run(stage, src, dst, n, avx2_load_f32, 4, avx2_save_bf16, 2, 0x7F7F0000);
}

static AVX2_TARGET size_t avx2_kernel_f32_f16(const heft__cast_stage *stage, const void *src, void *dst, size_t n) {
    return avx2_run(stage, src, dst, n, avx2_load_f32, 4, avx2_save_f16, 2, 0x477FE000);
}

static AVX2_TARGET size_t avx2_kernel_f32_e4m3(const heft__cast_stage *stage, const void *src, void *dst, size_t n) {
    return avx2_run(stage, src, dst, n, avx2_load_f32, 4, avx2_save_e4m3, 1, 0x43E00000);
}

static AVX2_TARGET size_t avx2_kernel_f32_e5m2(const heft__cast_stage *stage, const void *src, void *dst, size_t n) {
    return avx2_run(stage, src, dst, n, avx2_load_f32, 4, avx2_save_e5m2, 1, 0x47600000);
}

static AVX2_TARGET size_t avx2_kernel_f32_e4m3fnuz(const heft__cast_stage *stage, const void *src, void *dst,
                                                   size_t n) {
    return avx2_run(stage, src, dst, n, avx2_load_f32, 4, avx2_save_e4m3fnuz, 1, 0x43700000);
}

static AVX2_TARGET size_t avx2_kernel_f32_e5m2fnuz(const heft__cast_stage *stage, const void *src, void *dst,
                                                   size_t n) {
    return avx2_run(stage, src, dst, n, avx2_load_f32, 4, avx2_save_e5m2fnuz, 1, 0x47600000);
}

static AVX2_TARGET size_t avx2_kernel_f16_bf16(const heft__cast_stage *stage, const void *src, void *dst, size_t n) {
    return avx2_run(stage, src, dst, n, avx2_load_f16, 2, avx2_save_bf16, 2, 0);
}

static AVX2_TARGET size_t avx2_kernel_bf16_f16(const heft__cast_stage *stage, const void *src, void *dst, size_t n) {
    return avx2_run(stage, src, dst, n, avx2_load_bf16, 2, avx2_save_f16, 2, 0x477FE000);
}

static AVX2_TARGET size_t avx2_kernel_e4m3_bf16(const heft__cast_stage *stage, const void *src, void *dst, size_t n) {
    return avx2_run(stage, src, dst, n, avx2_e4m3_bf16, 1, avx2_save_halves, 2, 0);
}

static AVX2_TARGET size_t avx2_kernel_e4m3_f16(const heft__cast_stage *stage, const void *src, void *dst, size_t n) {
    return avx2_run(stage, src, dst, n, avx2_e4m3_f16, 1, avx2_save_halves, 2, 0);
}

static AVX2_TARGET size_t avx2_kernel_e5m2_bf16(const heft__cast_stage *stage, const void *src, void *dst, size_t n) {
    return avx2_run(stage, src, dst, n, avx2_e5m2_bf16, 1, avx2_save_halves, 2, 0);
}

static AVX2_TARGET size_t avx2_kernel_e5m2_f16(const heft__cast_stage *stage, const void *src, void *dst, size_t n) {
    return avx2_run(stage, src, dst, n, avx2_e5m2_f16, 1, avx2_save_halves, 2, 0);
}

static const struct {
    heft_dtype from, to;
    uint32_t odd;
    heft__cast_kernel *kernel;
} avx2_kernels[] = {
    {HEFT_BF16, HEFT_F32, 0, avx2_kernel_bf16_f32},
    {HEFT_F16, HEFT_F32, 0, avx2_kernel_f16_f32},
    {HEFT_F8_E4M3, HEFT_F32, 0, avx2_kernel_e4m3_f32},
    {HEFT_F8_E5M2, HEFT_F32, 0, avx2_kernel_e5m2_f32},
    {HEFT_F8_E4M3FNUZ, HEFT_F32, 0, avx2_kernel_e4m3fnuz_f32},
    {HEFT_F8_E5M2FNUZ, HEFT_F32, 0, avx2_kernel_e5m2fnuz_f32},
    {HEFT_F64, HEFT_F32, 0, avx2_kernel_f64_f32},
    {HEFT_F64, HEFT_F32, HEFT__CAST_ODD, avx2_kernel_f64_f32_odd},
    {HEFT_F32, HEFT_F64, 0, avx2_kernel_f32_f64},
    {HEFT_F32, HEFT_BF16, 0, avx2_kernel_f32_bf16},
    {HEFT_F32, HEFT_F16, 0, avx2_kernel_f32_f16},
    {HEFT_F32, HEFT_F8_E4M3, 0, avx2_kernel_f32_e4m3},
    {HEFT_F32, HEFT_F8_E5M2, 0, avx2_kernel_f32_e5m2},
    {HEFT_F32, HEFT_F8_E4M3FNUZ, 0, avx2_kernel_f32_e4m3fnuz},
    {HEFT_F32, HEFT_F8_E5M2FNUZ, 0, avx2_kernel_f32_e5m2fnuz},
    {HEFT_F16, HEFT_BF16, 0, avx2_kernel_f16_bf16},
    {HEFT_BF16, HEFT_F16, 0, avx2_kernel_bf16_f16},
    {HEFT_F8_E4M3, HEFT_BF16, 0, avx2_kernel_e4m3_bf16},
    {HEFT_F8_E4M3, HEFT_F16, 0, avx2_kernel_e4m3_f16},
    {HEFT_F8_E5M2, HEFT_BF16, 0, avx2_kernel_e5m2_bf16},
    {HEFT_F8_E5M2, HEFT_F16, 0, avx2_kernel_e5m2_f16},
};

heft__cast_kernel *heft__cast_avx2(heft_dtype from, heft_dtype to, uint32_t flags) {
    if (!(heft__cpu_features() & HEFT__CPU_AVX2)) return NULL;
    for (size_t i = 0; i < sizeof avx2_kernels / sizeof *avx2_kernels; i++)
        if (avx2_kernels[i].from == from && avx2_kernels[i].to == to && avx2_kernels[i].odd == (flags & HEFT__CAST_ODD))
            return avx2_kernels[i].kernel;
    return NULL;
}

#else

heft__cast_kernel *heft__cast_avx2(heft_dtype from, heft_dtype to, uint32_t flags) {
    (void)from;
    (void)to;
    (void)flags;
    return NULL;
}

#endif
