/* dtype: kernels of casts for x86-64 with AVX-512 (F, BW, DQ, VL), 16 elements at a time; all floats meet as F32. */
#include "base/cpu.h"
#include "dtype/cast.h"

#if defined(__x86_64__)

#include <immintrin.h>
#include <string.h>

#define AVX512_TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,f16c")))
#define AVX512_INLINE __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,f16c"), always_inline))

/* 16 F32 in one register. */
typedef __m512i avx512_load(const uint8_t *in);
/* `most`: the largest result as F32 bits, to which a number is clamped; infinity clamps nothing. `stream`: past the
 * caches. */
typedef void avx512_save(uint8_t *out, __m512i full, __m512i most, bool stream);

static inline AVX512_INLINE __m512i avx512_set(uint32_t bits) {
    return _mm512_set1_epi32((int32_t)bits);
}

static inline AVX512_INLINE __m512i avx512_size(__m512i full) {
    return _mm512_and_si512(full, avx512_set(0x7FFFFFFF));
}

static inline AVX512_INLINE __m512i avx512_sign(__m512i full) {
    return _mm512_andnot_si512(avx512_set(0x7FFFFFFF), full);
}

static inline AVX512_INLINE __mmask16 avx512_is_nan(__m512i full) {
    return _mm512_cmpgt_epi32_mask(avx512_size(full), avx512_set(0x7F800000));
}

static inline AVX512_INLINE __m512i avx512_clamp(__m512i full, __m512i most) {
    __m512i clamped = _mm512_or_si512(_mm512_min_epu32(avx512_size(full), most), avx512_sign(full));
    return _mm512_mask_mov_epi32(clamped, avx512_is_nan(full), full);
}

/* ---- to F32 ---- */

static inline AVX512_INLINE __m512i avx512_load_f32(const uint8_t *in) {
    return _mm512_loadu_si512(in);
}

static inline AVX512_INLINE __m512i avx512_load_bf16(const uint8_t *in) {
    __m512i full = _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)in)), 16);
    return _mm512_mask_or_epi32(full, avx512_is_nan(full), full, avx512_set(0x400000)); /* quiet */
}

static inline AVX512_INLINE __m512i avx512_load_f16(const uint8_t *in) {
    return _mm512_castps_si512(_mm512_cvtph_ps(_mm256_loadu_si256((const void *)in)));
}

static inline AVX512_INLINE __m512i avx512_load_bytes(const uint8_t *in) {
    return _mm512_cvtepu8_epi32(_mm_loadu_si128((const void *)in));
}

/* F8_E5M2 is the upper byte of an F16. */
static inline AVX512_INLINE __m512i avx512_load_e5m2(const uint8_t *in) {
    __m256i half = _mm256_slli_epi16(_mm256_cvtepu8_epi16(_mm_loadu_si128((const void *)in)), 8);
    return _mm512_castps_si512(_mm512_cvtph_ps(half));
}

/* Bytes as the bits of an F32 that is too small by `scale`: the exponents of 8-bit floats are shorter. */
static inline AVX512_INLINE __m512i avx512_scaled(__m512i bytes, unsigned places, float scale) {
    __m512i size = _mm512_slli_epi32(_mm512_and_si512(bytes, avx512_set(0x7F)), places);
    __m512i sign = _mm512_slli_epi32(_mm512_and_si512(bytes, avx512_set(0x80)), 24);
    return _mm512_or_si512(_mm512_castps_si512(_mm512_mul_ps(_mm512_castsi512_ps(size), _mm512_set1_ps(scale))), sign);
}

static inline AVX512_INLINE __m512i avx512_load_e4m3(const uint8_t *in) {
    __m512i full = avx512_scaled(avx512_load_bytes(in), 20, 0x1p120f);
    __mmask16 is_nan = _mm512_cmpeq_epi32_mask(avx512_size(full), avx512_set(0x43F00000)); /* 480 */
    return _mm512_mask_or_epi32(full, is_nan, avx512_sign(full), avx512_set(0x7FC00000));
}

static inline AVX512_INLINE __m512i avx512_load_fnuz(const uint8_t *in, unsigned places, float scale) {
    __m512i bytes = avx512_load_bytes(in);
    __mmask16 is_nan = _mm512_cmpeq_epi32_mask(bytes, avx512_set(0x80)); /* in place of -0 */
    return _mm512_mask_mov_epi32(avx512_scaled(bytes, places, scale), is_nan, avx512_set(0x7FC00000));
}

static inline AVX512_INLINE __m512i avx512_load_e4m3fnuz(const uint8_t *in) {
    return avx512_load_fnuz(in, 20, 0x1p119f);
}

static inline AVX512_INLINE __m512i avx512_load_e5m2fnuz(const uint8_t *in) {
    return avx512_load_fnuz(in, 21, 0x1p111f);
}

static inline AVX512_INLINE __m512i avx512_join(__m256i low, __m256i high) {
    return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}

static inline AVX512_INLINE __m256i avx512_nearest8(const uint8_t *in) {
    return _mm256_castps_si256(_mm512_cvtpd_ps(_mm512_loadu_pd(in)));
}

static inline AVX512_INLINE __m512i avx512_load_f64(const uint8_t *in) {
    return avx512_join(avx512_nearest8(in), avx512_nearest8(in + 64));
}

/* The nearest, back by one if it is larger than the number; then the last bit set if it is another. NaN stays. */
static inline AVX512_INLINE __m256i avx512_odd8(const uint8_t *in) {
    __m512d value = _mm512_loadu_pd(in), back;
    __m256i nearest = _mm256_castps_si256(_mm512_cvtpd_ps(value)), one = _mm256_set1_epi32(1);
    back = _mm512_cvtps_pd(_mm256_castsi256_ps(nearest));
    __mmask8 other = _mm512_cmp_pd_mask(back, value, _CMP_NEQ_OQ);
    __mmask8 larger = _mm512_cmp_pd_mask(_mm512_abs_pd(back), _mm512_abs_pd(value), _CMP_GT_OQ);
    nearest = _mm256_mask_sub_epi32(nearest, larger, nearest, one);
    return _mm256_mask_or_epi32(nearest, other, nearest, one);
}

static inline AVX512_INLINE __m512i avx512_load_f64_odd(const uint8_t *in) {
    return avx512_join(avx512_odd8(in), avx512_odd8(in + 64));
}

/* ---- from F32 ---- */

static inline AVX512_INLINE void avx512_put(uint8_t *out, __m512i bits, bool stream) {
    if (stream)
        _mm512_stream_si512((void *)out, bits);
    else
        _mm512_storeu_si512(out, bits);
}

static inline AVX512_INLINE void avx512_put32(uint8_t *out, __m256i bits, bool stream) {
    if (stream)
        _mm256_stream_si256((void *)out, bits);
    else
        _mm256_storeu_si256((void *)out, bits);
}

static inline AVX512_INLINE void avx512_put16(uint8_t *out, __m128i bits, bool stream) {
    if (stream)
        _mm_stream_si128((void *)out, bits);
    else
        _mm_storeu_si128((void *)out, bits);
}

static inline AVX512_INLINE void avx512_save_f32(uint8_t *out, __m512i full, __m512i most, bool stream) {
    avx512_put(out, avx512_clamp(full, most), stream);
}

static inline AVX512_INLINE void avx512_save_same(uint8_t *out, __m512i full, __m512i most, bool stream) {
    (void)most; /* nothing that is narrower than F32 overflows there */
    avx512_put(out, full, stream);
}

static inline AVX512_INLINE void avx512_save_f64(uint8_t *out, __m512i full, __m512i most, bool stream) {
    (void)most;
    avx512_put(out, _mm512_castpd_si512(_mm512_cvtps_pd(_mm256_castsi256_ps(_mm512_castsi512_si256(full)))), stream);
    avx512_put(out + 64, _mm512_castpd_si512(_mm512_cvtps_pd(_mm256_castsi256_ps(_mm512_extracti64x4_epi64(full, 1)))),
               stream);
}

static inline AVX512_INLINE void avx512_save_bf16(uint8_t *out, __m512i full, __m512i most, bool stream) {
    __m512i size = avx512_size(full), even = _mm512_and_si512(_mm512_srli_epi32(full, 16), avx512_set(1));
    __m512i rounded = _mm512_add_epi32(_mm512_add_epi32(size, avx512_set(0x7FFF)), even);
    rounded = _mm512_mask_or_epi32(_mm512_min_epu32(rounded, most), avx512_is_nan(full), size, avx512_set(0x400000));
    rounded = _mm512_srli_epi32(_mm512_or_si512(rounded, avx512_sign(full)), 16);
    avx512_put32(out, _mm512_cvtepi32_epi16(rounded), stream);
}

static inline AVX512_INLINE void avx512_save_f16(uint8_t *out, __m512i full, __m512i most, bool stream) {
    __m512 clamped = _mm512_castsi512_ps(avx512_clamp(full, most));
    const __mmask16 all = 0xFFFF; /* the macro without a mask warns when not optimizing */
    avx512_put32(out, _mm512_maskz_cvtps_ph(all, clamped, _MM_FROUND_TO_NEAREST_INT), stream);
}

/* A float of 8 bits, as what becomes of an F32. */
typedef struct avx512_byte {
    uint32_t mantissa_bits, bias;
    uint32_t largest, beyond; /* codes: the largest number, and what is above it */
    uint32_t nan, payload;    /* codes: NaN, and the bit of it that its payload decides */
    bool fnuz;                /* no -0 */
} avx512_byte;

/* Normal numbers are rounded in the bits of the F32; below them the unit rounds, by adding a power of two whose last
 * bit is worth what the last bit of a subnormal is. */
static inline AVX512_INLINE void avx512_save_byte(uint8_t *out, __m512i full, __m512i most, bool stream,
                                                  avx512_byte to) {
    uint32_t drop = 23 - to.mantissa_bits, magic = (127 + 1 - to.bias + drop) << 23;
    __m512i size = _mm512_min_epu32(avx512_size(full), most);
    __m512i even = _mm512_and_si512(_mm512_srli_epi32(size, drop), avx512_set(1));
    __m512i rounded = _mm512_add_epi32(_mm512_add_epi32(size, avx512_set((1U << (drop - 1)) - 1)), even);
    __m512i code = _mm512_sub_epi32(_mm512_srli_epi32(rounded, drop), avx512_set((127 - to.bias) << to.mantissa_bits));
    __m512 sum = _mm512_add_ps(_mm512_castsi512_ps(size), _mm512_castsi512_ps(avx512_set(magic)));
    __mmask16 is_small = _mm512_cmpgt_epi32_mask(avx512_set((128 - to.bias) << 23), size);
    code = _mm512_mask_sub_epi32(code, is_small, _mm512_castps_si512(sum), avx512_set(magic));
    code = _mm512_mask_mov_epi32(code, _mm512_cmpgt_epi32_mask(code, avx512_set(to.largest)), avx512_set(to.beyond));
    __m512i payload = _mm512_and_si512(_mm512_srli_epi32(full, drop), avx512_set(to.payload));
    code = _mm512_mask_or_epi32(code, avx512_is_nan(full), payload, avx512_set(to.nan));
    __m512i sign = _mm512_and_si512(_mm512_srli_epi32(full, 24), avx512_set(0x80));
    __mmask16 has_sign = to.fnuz ? _mm512_cmpgt_epi32_mask(code, _mm512_setzero_si512()) : (__mmask16)0xFFFF;
    code = _mm512_mask_or_epi32(code, has_sign, code, sign);
    avx512_put16(out, _mm512_cvtepi32_epi8(code), stream);
}

static inline AVX512_INLINE void avx512_save_e4m3(uint8_t *out, __m512i full, __m512i most, bool stream) {
    avx512_save_byte(out, full, most, stream, (avx512_byte){3, 7, 0x7E, 0x7F, 0x7F, 0, false});
}

static inline AVX512_INLINE void avx512_save_e5m2(uint8_t *out, __m512i full, __m512i most, bool stream) {
    avx512_save_byte(out, full, most, stream, (avx512_byte){2, 15, 0x7B, 0x7C, 0x7E, 1, false});
}

static inline AVX512_INLINE void avx512_save_e4m3fnuz(uint8_t *out, __m512i full, __m512i most, bool stream) {
    avx512_save_byte(out, full, most, stream, (avx512_byte){3, 8, 0x7F, 0x80, 0x80, 0, true});
}

static inline AVX512_INLINE void avx512_save_e5m2fnuz(uint8_t *out, __m512i full, __m512i most, bool stream) {
    avx512_save_byte(out, full, most, stream, (avx512_byte){2, 16, 0x7F, 0x80, 0x80, 0, true});
}

/* ---- the kernels ---- */

/* Inlined with all functions and sizes constant. The last elements pass through memory of a whole step. */
static inline AVX512_INLINE void avx512_loop(const uint8_t *in, uint8_t *out, size_t n, avx512_load *load, size_t from,
                                             avx512_save *save, size_t to, __m512i most, bool stream) {
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
static inline AVX512_INLINE size_t avx512_run(const heft__cast_stage *stage, const void *src, void *dst, size_t n,
                                              avx512_load *load, size_t from, avx512_save *save, size_t to,
                                              uint32_t largest) {
    const uint8_t *in = src;
    uint8_t *out = dst;
    __m512i most = avx512_set(stage->flags & HEFT__CAST_SATURATE ? largest : 0x7F800000);
    size_t plain = n, gap = (64 - (uintptr_t)dst % 64) % 64;
    if (stage->flags & HEFT__CAST_STREAM && gap % to == 0 && gap / to < n) plain = gap / to;
    avx512_loop(in, out, plain, load, from, save, to, most, false);
    if (plain == n) return n;
    avx512_loop(in + plain * from, out + plain * to, n - plain, load, from, save, to, most, true);
    _mm_sfence();
    return n;
}

static AVX512_TARGET size_t avx512_kernel_bf16_f32(const heft__cast_stage *stage, const void *src, void *dst,
                                                   size_t n) {
    return avx512_run(stage, src, dst, n, avx512_load_bf16, 2, avx512_save_same, 4, 0);
}

static AVX512_TARGET size_t avx512_kernel_f16_f32(const heft__cast_stage *stage, const void *src, void *dst, size_t n) {
    return avx512_run(stage, src, dst, n, avx512_load_f16, 2, avx512_save_same, 4, 0);
}

static AVX512_TARGET size_t avx512_kernel_e4m3_f32(const heft__cast_stage *stage, const void *src, void *dst,
                                                   size_t n) {
    return avx512_run(stage, src, dst, n, avx512_load_e4m3, 1, avx512_save_same, 4, 0);
}

static AVX512_TARGET size_t avx512_kernel_e5m2_f32(const heft__cast_stage *stage, const void *src, void *dst,
                                                   size_t n) {
    return avx512_run(stage, src, dst, n, avx512_load_e5m2, 1, avx512_save_same, 4, 0);
}

static AVX512_TARGET size_t avx512_kernel_e4m3fnuz_f32(const heft__cast_stage *stage, const void *src, void *dst,
                                                       size_t n) {
    return avx512_run(stage, src, dst, n, avx512_load_e4m3fnuz, 1, avx512_save_same, 4, 0);
}

static AVX512_TARGET size_t avx512_kernel_e5m2fnuz_f32(const heft__cast_stage *stage, const void *src, void *dst,
                                                       size_t n) {
    return avx512_run(stage, src, dst, n, avx512_load_e5m2fnuz, 1, avx512_save_same, 4, 0);
}

static AVX512_TARGET size_t avx512_kernel_f64_f32(const heft__cast_stage *stage, const void *src, void *dst, size_t n) {
    return avx512_run(stage, src, dst, n, avx512_load_f64, 8, avx512_save_f32, 4, 0x7F7FFFFF);
}

static AVX512_TARGET size_t avx512_kernel_f64_f32_odd(const heft__cast_stage *stage, const void *src, void *dst,
                                                      size_t n) {
    return avx512_run(stage, src, dst, n, avx512_load_f64_odd, 8, avx512_save_same, 4, 0);
}

static AVX512_TARGET size_t avx512_kernel_f32_f64(const heft__cast_stage *stage, const void *src, void *dst, size_t n) {
    return avx512_run(stage, src, dst, n, avx512_load_f32, 4, avx512_save_f64, 8, 0);
}

static AVX512_TARGET size_t avx512_kernel_f32_bf16(const heft__cast_stage *stage, const void *src, void *dst,
                                                   size_t n) {
    return avx512_run(stage, src, dst, n, avx512_load_f32, 4, avx512_save_bf16, 2, 0x7F7F0000);
}

static AVX512_TARGET size_t avx512_kernel_f32_f16(const heft__cast_stage *stage, const void *src, void *dst, size_t n) {
    return avx512_run(stage, src, dst, n, avx512_load_f32, 4, avx512_save_f16, 2, 0x477FE000);
}

static AVX512_TARGET size_t avx512_kernel_f32_e4m3(const heft__cast_stage *stage, const void *src, void *dst,
                                                   size_t n) {
    return avx512_run(stage, src, dst, n, avx512_load_f32, 4, avx512_save_e4m3, 1, 0x43E00000);
}

static AVX512_TARGET size_t avx512_kernel_f32_e5m2(const heft__cast_stage *stage, const void *src, void *dst,
                                                   size_t n) {
    return avx512_run(stage, src, dst, n, avx512_load_f32, 4, avx512_save_e5m2, 1, 0x47600000);
}

static AVX512_TARGET size_t avx512_kernel_f32_e4m3fnuz(const heft__cast_stage *stage, const void *src, void *dst,
                                                       size_t n) {
    return avx512_run(stage, src, dst, n, avx512_load_f32, 4, avx512_save_e4m3fnuz, 1, 0x43700000);
}

static AVX512_TARGET size_t avx512_kernel_f32_e5m2fnuz(const heft__cast_stage *stage, const void *src, void *dst,
                                                       size_t n) {
    return avx512_run(stage, src, dst, n, avx512_load_f32, 4, avx512_save_e5m2fnuz, 1, 0x47600000);
}

static AVX512_TARGET size_t avx512_kernel_f16_bf16(const heft__cast_stage *stage, const void *src, void *dst,
                                                   size_t n) {
    return avx512_run(stage, src, dst, n, avx512_load_f16, 2, avx512_save_bf16, 2, 0);
}

static AVX512_TARGET size_t avx512_kernel_bf16_f16(const heft__cast_stage *stage, const void *src, void *dst,
                                                   size_t n) {
    return avx512_run(stage, src, dst, n, avx512_load_bf16, 2, avx512_save_f16, 2, 0x477FE000);
}

static AVX512_TARGET size_t avx512_kernel_e4m3_bf16(const heft__cast_stage *stage, const void *src, void *dst,
                                                    size_t n) {
    return avx512_run(stage, src, dst, n, avx512_load_e4m3, 1, avx512_save_bf16, 2, 0);
}

static AVX512_TARGET size_t avx512_kernel_e5m2_bf16(const heft__cast_stage *stage, const void *src, void *dst,
                                                    size_t n) {
    return avx512_run(stage, src, dst, n, avx512_load_e5m2, 1, avx512_save_bf16, 2, 0);
}

static AVX512_TARGET size_t avx512_kernel_e4m3_f16(const heft__cast_stage *stage, const void *src, void *dst,
                                                   size_t n) {
    return avx512_run(stage, src, dst, n, avx512_load_e4m3, 1, avx512_save_f16, 2, 0);
}

static AVX512_TARGET size_t avx512_kernel_e5m2_f16(const heft__cast_stage *stage, const void *src, void *dst,
                                                   size_t n) {
    return avx512_run(stage, src, dst, n, avx512_load_e5m2, 1, avx512_save_f16, 2, 0);
}

static const struct {
    heft_dtype from, to;
    uint32_t odd;
    heft__cast_kernel *kernel;
} avx512_kernels[] = {
    {HEFT_BF16, HEFT_F32, 0, avx512_kernel_bf16_f32},
    {HEFT_F16, HEFT_F32, 0, avx512_kernel_f16_f32},
    {HEFT_F8_E4M3, HEFT_F32, 0, avx512_kernel_e4m3_f32},
    {HEFT_F8_E5M2, HEFT_F32, 0, avx512_kernel_e5m2_f32},
    {HEFT_F8_E4M3FNUZ, HEFT_F32, 0, avx512_kernel_e4m3fnuz_f32},
    {HEFT_F8_E5M2FNUZ, HEFT_F32, 0, avx512_kernel_e5m2fnuz_f32},
    {HEFT_F64, HEFT_F32, 0, avx512_kernel_f64_f32},
    {HEFT_F64, HEFT_F32, HEFT__CAST_ODD, avx512_kernel_f64_f32_odd},
    {HEFT_F32, HEFT_F64, 0, avx512_kernel_f32_f64},
    {HEFT_F32, HEFT_BF16, 0, avx512_kernel_f32_bf16},
    {HEFT_F32, HEFT_F16, 0, avx512_kernel_f32_f16},
    {HEFT_F32, HEFT_F8_E4M3, 0, avx512_kernel_f32_e4m3},
    {HEFT_F32, HEFT_F8_E5M2, 0, avx512_kernel_f32_e5m2},
    {HEFT_F32, HEFT_F8_E4M3FNUZ, 0, avx512_kernel_f32_e4m3fnuz},
    {HEFT_F32, HEFT_F8_E5M2FNUZ, 0, avx512_kernel_f32_e5m2fnuz},
    {HEFT_F16, HEFT_BF16, 0, avx512_kernel_f16_bf16},
    {HEFT_BF16, HEFT_F16, 0, avx512_kernel_bf16_f16},
    {HEFT_F8_E4M3, HEFT_BF16, 0, avx512_kernel_e4m3_bf16},
    {HEFT_F8_E5M2, HEFT_BF16, 0, avx512_kernel_e5m2_bf16},
    {HEFT_F8_E4M3, HEFT_F16, 0, avx512_kernel_e4m3_f16},
    {HEFT_F8_E5M2, HEFT_F16, 0, avx512_kernel_e5m2_f16},
};

heft__cast_kernel *heft__cast_avx512(heft_dtype from, heft_dtype to, uint32_t flags) {
    if (!(heft__cpu_features() & HEFT__CPU_AVX512)) return NULL;
    for (size_t i = 0; i < sizeof avx512_kernels / sizeof *avx512_kernels; i++)
        if (avx512_kernels[i].from == from && avx512_kernels[i].to == to &&
            avx512_kernels[i].odd == (flags & HEFT__CAST_ODD))
            return avx512_kernels[i].kernel;
    return NULL;
}

#else

heft__cast_kernel *heft__cast_avx512(heft_dtype from, heft_dtype to, uint32_t flags) {
    (void)from;
    (void)to;
    (void)flags;
    return NULL;
}

#endif
