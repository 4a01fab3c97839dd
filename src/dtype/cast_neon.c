/* dtype: kernels of casts for 64-bit ARM, 8 elements at a time; all floats meet as F32. */
#include "dtype/cast.h"

#if defined(__aarch64__)

#include <arm_neon.h>
#include <string.h>

#define NEON_INLINE __attribute__((always_inline))

/* Bits of 8 F32. */
typedef struct neon_eight {
    uint32x4_t low, high;
} neon_eight;

typedef neon_eight neon_load(const uint8_t *in);
/* `most`: the largest result as F32 bits, to which a number is clamped; infinity clamps nothing. */
typedef void neon_save(uint8_t *out, neon_eight full, uint32x4_t most);

/* Loads and stores of bytes: elements need not be aligned. */
static inline NEON_INLINE uint32x4_t neon_get(const uint8_t *in) {
    return vreinterpretq_u32_u8(vld1q_u8(in));
}

static inline NEON_INLINE void neon_put(uint8_t *out, uint32x4_t bits) {
    vst1q_u8(out, vreinterpretq_u8_u32(bits));
}

static inline NEON_INLINE uint32x4_t neon_size(uint32x4_t full) {
    return vandq_u32(full, vdupq_n_u32(0x7FFFFFFF));
}

static inline NEON_INLINE uint32x4_t neon_is_nan(uint32x4_t full) {
    return vcgtq_u32(neon_size(full), vdupq_n_u32(0x7F800000));
}

/* The size of one, the sign of the other. */
static inline NEON_INLINE uint32x4_t neon_signed(uint32x4_t size, uint32x4_t sign) {
    return vbslq_u32(vdupq_n_u32(0x7FFFFFFF), size, sign);
}

static inline NEON_INLINE uint32x4_t neon_clamp(uint32x4_t full, uint32x4_t most) {
    return vbslq_u32(neon_is_nan(full), full, neon_signed(vminq_u32(neon_size(full), most), full));
}

/* ---- to F32 ---- */

static inline NEON_INLINE neon_eight neon_load_f32(const uint8_t *in) {
    return (neon_eight){neon_get(in), neon_get(in + 16)};
}

static inline NEON_INLINE uint32x4_t neon_from_bf16(uint16x4_t half) {
    uint32x4_t full = vshll_n_u16(half, 16);
    return vorrq_u32(full, vandq_u32(neon_is_nan(full), vdupq_n_u32(0x400000))); /* quiet */
}

static inline NEON_INLINE neon_eight neon_load_bf16(const uint8_t *in) {
    uint16x8_t halves = vreinterpretq_u16_u8(vld1q_u8(in));
    return (neon_eight){neon_from_bf16(vget_low_u16(halves)), neon_from_bf16(vget_high_u16(halves))};
}

static inline NEON_INLINE neon_eight neon_from_f16(uint16x8_t halves) {
    return (neon_eight){vreinterpretq_u32_f32(vcvt_f32_f16(vreinterpret_f16_u16(vget_low_u16(halves)))),
                        vreinterpretq_u32_f32(vcvt_f32_f16(vreinterpret_f16_u16(vget_high_u16(halves))))};
}

static inline NEON_INLINE neon_eight neon_load_f16(const uint8_t *in) {
    return neon_from_f16(vreinterpretq_u16_u8(vld1q_u8(in)));
}

/* F8_E5M2 is the upper byte of an F16. */
static inline NEON_INLINE neon_eight neon_load_e5m2(const uint8_t *in) {
    return neon_from_f16(vshll_n_u8(vld1_u8(in), 8));
}

/* Bytes as the bits of an F32 that is too small by `scale`: the exponents of 8-bit floats are shorter. `special` is the
 * byte that is a NaN, of both signs where `mask` takes the sign away. */
static inline NEON_INLINE uint32x4_t neon_scaled(uint16x4_t half, uint32_t places, float scale, uint32_t mask,
                                                 uint32_t special) {
    uint32x4_t bytes = vmovl_u16(half), size = vandq_u32(bytes, vdupq_n_u32(0x7F));
    uint32x4_t sign = vshlq_n_u32(vandq_u32(bytes, vdupq_n_u32(0x80)), 24);
    float32x4_t tiny = vreinterpretq_f32_u32(vshlq_u32(size, vdupq_n_s32((int32_t)places)));
    uint32x4_t full = vreinterpretq_u32_f32(vmulq_n_f32(tiny, scale));
    uint32x4_t is_nan = vceqq_u32(vandq_u32(bytes, vdupq_n_u32(mask)), vdupq_n_u32(special));
    full = vbslq_u32(is_nan, vdupq_n_u32(0x7FC00000), full);
    return vorrq_u32(full, mask == 0xFF ? vbicq_u32(sign, is_nan) : sign);
}

static inline NEON_INLINE neon_eight neon_load_scaled(const uint8_t *in, uint32_t places, float scale, uint32_t mask,
                                                      uint32_t special) {
    uint16x8_t bytes = vmovl_u8(vld1_u8(in));
    return (neon_eight){neon_scaled(vget_low_u16(bytes), places, scale, mask, special),
                        neon_scaled(vget_high_u16(bytes), places, scale, mask, special)};
}

static inline NEON_INLINE neon_eight neon_load_e4m3(const uint8_t *in) {
    return neon_load_scaled(in, 20, 0x1p120f, 0x7F, 0x7F);
}

static inline NEON_INLINE neon_eight neon_load_e4m3fnuz(const uint8_t *in) {
    return neon_load_scaled(in, 20, 0x1p119f, 0xFF, 0x80);
}

static inline NEON_INLINE neon_eight neon_load_e5m2fnuz(const uint8_t *in) {
    return neon_load_scaled(in, 21, 0x1p111f, 0xFF, 0x80);
}

static inline NEON_INLINE float64x2_t neon_get_f64(const uint8_t *in) {
    return vreinterpretq_f64_u8(vld1q_u8(in));
}

static inline NEON_INLINE uint32x4_t neon_nearest4(const uint8_t *in) {
    return vreinterpretq_u32_f32(vcombine_f32(vcvt_f32_f64(neon_get_f64(in)), vcvt_f32_f64(neon_get_f64(in + 16))));
}

static inline NEON_INLINE neon_eight neon_load_f64(const uint8_t *in) {
    return (neon_eight){neon_nearest4(in), neon_nearest4(in + 32)};
}

/* The instruction rounds to odd. */
static inline NEON_INLINE uint32x4_t neon_odd4(const uint8_t *in) {
    return vreinterpretq_u32_f32(vcombine_f32(vcvtx_f32_f64(neon_get_f64(in)), vcvtx_f32_f64(neon_get_f64(in + 16))));
}

static inline NEON_INLINE neon_eight neon_load_f64_odd(const uint8_t *in) {
    return (neon_eight){neon_odd4(in), neon_odd4(in + 32)};
}

/* ---- from F32 ---- */

static inline NEON_INLINE void neon_save_f32(uint8_t *out, neon_eight full, uint32x4_t most) {
    neon_put(out, neon_clamp(full.low, most));
    neon_put(out + 16, neon_clamp(full.high, most));
}

static inline NEON_INLINE void neon_save_two(uint8_t *out, uint32x2_t full) {
    vst1q_u8(out, vreinterpretq_u8_f64(vcvt_f64_f32(vreinterpret_f32_u32(full))));
}

static inline NEON_INLINE void neon_save_f64(uint8_t *out, neon_eight full, uint32x4_t most) {
    (void)most; /* nothing that is narrower overflows there */
    neon_save_two(out, vget_low_u32(full.low));
    neon_save_two(out + 16, vget_high_u32(full.low));
    neon_save_two(out + 32, vget_low_u32(full.high));
    neon_save_two(out + 48, vget_high_u32(full.high));
}

static inline NEON_INLINE uint16x4_t neon_to_bf16(uint32x4_t full, uint32x4_t most) {
    uint32x4_t size = neon_size(full), even = vandq_u32(vshrq_n_u32(full, 16), vdupq_n_u32(1));
    uint32x4_t rounded = vminq_u32(vaddq_u32(vaddq_u32(size, vdupq_n_u32(0x7FFF)), even), most);
    rounded = vbslq_u32(neon_is_nan(full), vorrq_u32(size, vdupq_n_u32(0x400000)), rounded);
    return vshrn_n_u32(neon_signed(rounded, full), 16);
}

static inline NEON_INLINE void neon_save_bf16(uint8_t *out, neon_eight full, uint32x4_t most) {
    vst1q_u8(out, vreinterpretq_u8_u16(vcombine_u16(neon_to_bf16(full.low, most), neon_to_bf16(full.high, most))));
}

static inline NEON_INLINE uint16x4_t neon_to_f16(uint32x4_t full, uint32x4_t most) {
    return vreinterpret_u16_f16(vcvt_f16_f32(vreinterpretq_f32_u32(neon_clamp(full, most))));
}

static inline NEON_INLINE void neon_save_f16(uint8_t *out, neon_eight full, uint32x4_t most) {
    vst1q_u8(out, vreinterpretq_u8_u16(vcombine_u16(neon_to_f16(full.low, most), neon_to_f16(full.high, most))));
}

/* A float of 8 bits, as what becomes of an F32. */
typedef struct neon_byte {
    uint32_t mantissa_bits, bias;
    uint32_t largest, beyond; /* codes: the largest number, and what is above it */
    uint32_t nan, payload;    /* codes: NaN, and the bit of it that its payload decides */
    bool fnuz;                /* no -0 */
} neon_byte;

/* Codes with the sign. Normal numbers are rounded in the bits of the F32; below them the unit rounds, by adding a power
 * of two whose last bit is worth what the last bit of a subnormal is. */
static inline NEON_INLINE uint16x4_t neon_to_byte(uint32x4_t full, uint32x4_t most, neon_byte to) {
    uint32_t drop = 23 - to.mantissa_bits, magic = (127 + 1 - to.bias + drop) << 23;
    int32x4_t right = vdupq_n_s32(-(int32_t)drop);
    uint32x4_t size = vminq_u32(neon_size(full), most);
    uint32x4_t even = vandq_u32(vshlq_u32(size, right), vdupq_n_u32(1));
    uint32x4_t rounded = vaddq_u32(vaddq_u32(size, vdupq_n_u32((1U << (drop - 1)) - 1)), even);
    uint32x4_t normal = vsubq_u32(vshlq_u32(rounded, right), vdupq_n_u32((127 - to.bias) << to.mantissa_bits));
    float32x4_t sum = vaddq_f32(vreinterpretq_f32_u32(size), vreinterpretq_f32_u32(vdupq_n_u32(magic)));
    uint32x4_t small = vsubq_u32(vreinterpretq_u32_f32(sum), vdupq_n_u32(magic));
    uint32x4_t code = vbslq_u32(vcltq_u32(size, vdupq_n_u32((128 - to.bias) << 23)), small, normal);
    code = vbslq_u32(vcgtq_u32(code, vdupq_n_u32(to.largest)), vdupq_n_u32(to.beyond), code);
    uint32x4_t nan = vorrq_u32(vdupq_n_u32(to.nan), vandq_u32(vshlq_u32(full, right), vdupq_n_u32(to.payload)));
    code = vbslq_u32(neon_is_nan(full), nan, code);
    uint32x4_t sign = vandq_u32(vshrq_n_u32(full, 24), vdupq_n_u32(0x80));
    if (to.fnuz) sign = vbicq_u32(sign, vceqq_u32(code, vdupq_n_u32(0)));
    return vmovn_u32(vorrq_u32(code, sign));
}

static inline NEON_INLINE void neon_save_byte(uint8_t *out, neon_eight full, uint32x4_t most, neon_byte to) {
    vst1_u8(out, vmovn_u16(vcombine_u16(neon_to_byte(full.low, most, to), neon_to_byte(full.high, most, to))));
}

static inline NEON_INLINE void neon_save_e4m3(uint8_t *out, neon_eight full, uint32x4_t most) {
    neon_save_byte(out, full, most, (neon_byte){3, 7, 0x7E, 0x7F, 0x7F, 0, false});
}

static inline NEON_INLINE void neon_save_e5m2(uint8_t *out, neon_eight full, uint32x4_t most) {
    neon_save_byte(out, full, most, (neon_byte){2, 15, 0x7B, 0x7C, 0x7E, 1, false});
}

static inline NEON_INLINE void neon_save_e4m3fnuz(uint8_t *out, neon_eight full, uint32x4_t most) {
    neon_save_byte(out, full, most, (neon_byte){3, 8, 0x7F, 0x80, 0x80, 0, true});
}

static inline NEON_INLINE void neon_save_e5m2fnuz(uint8_t *out, neon_eight full, uint32x4_t most) {
    neon_save_byte(out, full, most, (neon_byte){2, 16, 0x7F, 0x80, 0x80, 0, true});
}

/* ---- the kernels ---- */

/* Inlined with all functions and sizes constant. The last elements pass through memory of a whole step. */
static inline NEON_INLINE size_t neon_run(const heft__cast_stage *stage, const void *src, void *dst, size_t n,
                                          neon_load *load, size_t from, neon_save *save, size_t to, uint32_t largest) {
    const uint8_t *in = src;
    uint8_t *out = dst, rest_in[8 * 8] = {0}, rest_out[8 * 8];
    uint32x4_t most = vdupq_n_u32(stage->flags & HEFT__CAST_SATURATE ? largest : 0x7F800000);
    size_t i = 0;
    for (; i + 8 <= n; i += 8) save(out + i * to, load(in + i * from), most);
    if (i < n) {
        memcpy(rest_in, in + i * from, (n - i) * from);
        save(rest_out, load(rest_in), most);
        memcpy(out + i * to, rest_out, (n - i) * to);
    }
    return n;
}

static size_t neon_kernel_bf16_f32(const heft__cast_stage *stage, const void *src, void *dst, size_t n) {
    return neon_run(stage, src, dst, n, neon_load_bf16, 2, neon_save_f32, 4, 0);
}

static size_t neon_kernel_f16_f32(const heft__cast_stage *stage, const void *src, void *dst, size_t n) {
    return neon_run(stage, src, dst, n, neon_load_f16, 2, neon_save_f32, 4, 0);
}

static size_t neon_kernel_e4m3_f32(const heft__cast_stage *stage, const void *src, void *dst, size_t n) {
    return neon_run(stage, src, dst, n, neon_load_e4m3, 1, neon_save_f32, 4, 0);
}

static size_t neon_kernel_e5m2_f32(const heft__cast_stage *stage, const void *src, void *dst, size_t n) {
    return neon_run(stage, src, dst, n, neon_load_e5m2, 1, neon_save_f32, 4, 0);
}

static size_t neon_kernel_e4m3fnuz_f32(const heft__cast_stage *stage, const void *src, void *dst, size_t n) {
    return neon_run(stage, src, dst, n, neon_load_e4m3fnuz, 1, neon_save_f32, 4, 0);
}

static size_t neon_kernel_e5m2fnuz_f32(const heft__cast_stage *stage, const void *src, void *dst, size_t n) {
    return neon_run(stage, src, dst, n, neon_load_e5m2fnuz, 1, neon_save_f32, 4, 0);
}

static size_t neon_kernel_f64_f32(const heft__cast_stage *stage, const void *src, void *dst, size_t n) {
    return neon_run(stage, src, dst, n, neon_load_f64, 8, neon_save_f32, 4, 0x7F7FFFFF);
}

static size_t neon_kernel_f64_f32_odd(const heft__cast_stage *stage, const void *src, void *dst, size_t n) {
    return neon_run(stage, src, dst, n, neon_load_f64_odd, 8, neon_save_f32, 4, 0);
}

static size_t neon_kernel_f32_f64(const heft__cast_stage *stage, const void *src, void *dst, size_t n) {
    return neon_run(stage, src, dst, n, neon_load_f32, 4, neon_save_f64, 8, 0);
}

static size_t neon_kernel_f32_bf16(const heft__cast_stage *stage, const void *src, void *dst, size_t n) {
    return neon_run(stage, src, dst, n, neon_load_f32, 4, neon_save_bf16, 2, 0x7F7F0000);
}

static size_t neon_kernel_f32_f16(const heft__cast_stage *stage, const void *src, void *dst, size_t n) {
    return neon_run(stage, src, dst, n, neon_load_f32, 4, neon_save_f16, 2, 0x477FE000);
}

static size_t neon_kernel_f32_e4m3(const heft__cast_stage *stage, const void *src, void *dst, size_t n) {
    return neon_run(stage, src, dst, n, neon_load_f32, 4, neon_save_e4m3, 1, 0x43E00000);
}

static size_t neon_kernel_f32_e5m2(const heft__cast_stage *stage, const void *src, void *dst, size_t n) {
    return neon_run(stage, src, dst, n, neon_load_f32, 4, neon_save_e5m2, 1, 0x47600000);
}

static size_t neon_kernel_f32_e4m3fnuz(const heft__cast_stage *stage, const void *src, void *dst, size_t n) {
    return neon_run(stage, src, dst, n, neon_load_f32, 4, neon_save_e4m3fnuz, 1, 0x43700000);
}

static size_t neon_kernel_f32_e5m2fnuz(const heft__cast_stage *stage, const void *src, void *dst, size_t n) {
    return neon_run(stage, src, dst, n, neon_load_f32, 4, neon_save_e5m2fnuz, 1, 0x47600000);
}

static size_t neon_kernel_f16_bf16(const heft__cast_stage *stage, const void *src, void *dst, size_t n) {
    return neon_run(stage, src, dst, n, neon_load_f16, 2, neon_save_bf16, 2, 0);
}

static size_t neon_kernel_bf16_f16(const heft__cast_stage *stage, const void *src, void *dst, size_t n) {
    return neon_run(stage, src, dst, n, neon_load_bf16, 2, neon_save_f16, 2, 0x477FE000);
}

static size_t neon_kernel_e4m3_bf16(const heft__cast_stage *stage, const void *src, void *dst, size_t n) {
    return neon_run(stage, src, dst, n, neon_load_e4m3, 1, neon_save_bf16, 2, 0);
}

static size_t neon_kernel_e5m2_bf16(const heft__cast_stage *stage, const void *src, void *dst, size_t n) {
    return neon_run(stage, src, dst, n, neon_load_e5m2, 1, neon_save_bf16, 2, 0);
}

static size_t neon_kernel_e4m3_f16(const heft__cast_stage *stage, const void *src, void *dst, size_t n) {
    return neon_run(stage, src, dst, n, neon_load_e4m3, 1, neon_save_f16, 2, 0);
}

static size_t neon_kernel_e5m2_f16(const heft__cast_stage *stage, const void *src, void *dst, size_t n) {
    return neon_run(stage, src, dst, n, neon_load_e5m2, 1, neon_save_f16, 2, 0);
}

static const struct {
    heft_dtype from, to;
    uint32_t odd;
    heft__cast_kernel *kernel;
} neon_kernels[] = {
    {HEFT_BF16, HEFT_F32, 0, neon_kernel_bf16_f32},
    {HEFT_F16, HEFT_F32, 0, neon_kernel_f16_f32},
    {HEFT_F8_E4M3, HEFT_F32, 0, neon_kernel_e4m3_f32},
    {HEFT_F8_E5M2, HEFT_F32, 0, neon_kernel_e5m2_f32},
    {HEFT_F8_E4M3FNUZ, HEFT_F32, 0, neon_kernel_e4m3fnuz_f32},
    {HEFT_F8_E5M2FNUZ, HEFT_F32, 0, neon_kernel_e5m2fnuz_f32},
    {HEFT_F64, HEFT_F32, 0, neon_kernel_f64_f32},
    {HEFT_F64, HEFT_F32, HEFT__CAST_ODD, neon_kernel_f64_f32_odd},
    {HEFT_F32, HEFT_F64, 0, neon_kernel_f32_f64},
    {HEFT_F32, HEFT_BF16, 0, neon_kernel_f32_bf16},
    {HEFT_F32, HEFT_F16, 0, neon_kernel_f32_f16},
    {HEFT_F32, HEFT_F8_E4M3, 0, neon_kernel_f32_e4m3},
    {HEFT_F32, HEFT_F8_E5M2, 0, neon_kernel_f32_e5m2},
    {HEFT_F32, HEFT_F8_E4M3FNUZ, 0, neon_kernel_f32_e4m3fnuz},
    {HEFT_F32, HEFT_F8_E5M2FNUZ, 0, neon_kernel_f32_e5m2fnuz},
    {HEFT_F16, HEFT_BF16, 0, neon_kernel_f16_bf16},
    {HEFT_BF16, HEFT_F16, 0, neon_kernel_bf16_f16},
    {HEFT_F8_E4M3, HEFT_BF16, 0, neon_kernel_e4m3_bf16},
    {HEFT_F8_E5M2, HEFT_BF16, 0, neon_kernel_e5m2_bf16},
    {HEFT_F8_E4M3, HEFT_F16, 0, neon_kernel_e4m3_f16},
    {HEFT_F8_E5M2, HEFT_F16, 0, neon_kernel_e5m2_f16},
};

heft__cast_kernel *heft__cast_neon(heft_dtype from, heft_dtype to, uint32_t flags) {
    for (size_t i = 0; i < sizeof neon_kernels / sizeof *neon_kernels; i++)
        if (neon_kernels[i].from == from && neon_kernels[i].to == to && neon_kernels[i].odd == (flags & HEFT__CAST_ODD))
            return neon_kernels[i].kernel;
    return NULL;
}

#else

heft__cast_kernel *heft__cast_neon(heft_dtype from, heft_dtype to, uint32_t flags) {
    (void)from;
    (void)to;
    (void)flags;
    return NULL;
}

#endif
