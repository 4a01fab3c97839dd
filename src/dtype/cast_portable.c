/* dtype: kernels of casts in plain C, for any processor: bytes by a table, BF16 by shifts, integers. */
#include "dtype/cast.h"

#include <string.h>

/* ---- from one byte: there are only 256 results ---- */

#define PORTABLE_INLINE __attribute__((always_inline))

/* Inlined with `size` a constant, so that the memcpy is a move. */
static inline PORTABLE_INLINE size_t portable_look_up(const heft__cast_stage *stage, const void *src, void *dst,
                                                      size_t n, size_t size) {
    uint64_t table[256];
    uint8_t *entries = (uint8_t *)table;
    const uint8_t *in = src;
    uint8_t *out = dst;
    if (n < 256) return heft__cast_reference(stage, src, dst, n);
    for (uint32_t code = 0; code < 256; code++) entries[code] = (uint8_t)code;
    heft__cast_reference(stage, entries, out, 256); /* there is room for them */
    memcpy(entries, out, 256 * size);
    for (size_t i = 0; i < n; i++) memcpy(out + i * size, entries + in[i] * size, size);
    return n;
}

static size_t portable_table(const heft__cast_stage *stage, const void *src, void *dst, size_t n) {
    switch (heft__dtypes[stage->to].bits) {
    case 8: return portable_look_up(stage, src, dst, n, 1);
    case 16: return portable_look_up(stage, src, dst, n, 2);
    case 32: return portable_look_up(stage, src, dst, n, 4);
    default: return portable_look_up(stage, src, dst, n, 8);
    }
}

/* Only where none of the 256 is refused. */
static bool portable_is_total(heft_dtype from, heft_dtype to, uint32_t flags) {
    const heft__dtype_info *row = &heft__dtypes[to];
    bool total = heft__dtypes[from].kind == 'f' || row->kind == 'b' || flags & HEFT__CAST_INEXACT;
    if (heft__dtypes[from].kind == 'b')
        total = total || to != HEFT_F8_E8M0; /* which has no zero */
    else
        total = total || row->mantissa_bits >= 7; /* with the hidden bit: any integer of 8 bits */
    return total;
}

/* ---- floats ---- */

static size_t portable_bf16_f32(const heft__cast_stage *stage, const void *src, void *dst, size_t n) {
    const uint8_t *in = src;
    uint8_t *out = dst;
    (void)stage;
    for (size_t i = 0; i < n; i++) {
        uint16_t half;
        memcpy(&half, in + i * 2, sizeof half);
        uint32_t full = (uint32_t)half << 16;
        if ((full & 0x7FFFFFFF) > 0x7F800000) full |= 0x400000; /* a NaN becomes quiet */
        memcpy(out + i * 4, &full, sizeof full);
    }
    return n;
}

static size_t portable_f32_bf16(const heft__cast_stage *stage, const void *src, void *dst, size_t n) {
    const uint8_t *in = src;
    uint8_t *out = dst;
    uint32_t most = stage->flags & HEFT__CAST_SATURATE ? 0x7F7F0000 : 0x7F800000;
    for (size_t i = 0; i < n; i++) {
        uint32_t full;
        memcpy(&full, in + i * 4, sizeof full);
        uint32_t size = full & 0x7FFFFFFF, rounded = size + 0x7FFF + (size >> 16 & 1);
        if (rounded > most) rounded = most;
        if (size > 0x7F800000) rounded = size | 0x400000;
        uint16_t half = (uint16_t)((rounded | (full & 0x80000000)) >> 16);
        memcpy(out + i * 2, &half, sizeof half);
    }
    return n;
}

static size_t portable_e8m0_f32(const heft__cast_stage *stage, const void *src, void *dst, size_t n) {
    const uint8_t *in = src;
    uint8_t *out = dst;
    (void)stage;
    for (size_t i = 0; i < n; i++) {
        uint32_t full = in[i] == 0 ? 0x400000 : in[i] == 0xFF ? 0x7FC00000 : (uint32_t)in[i] << 23;
        memcpy(out + i * 4, &full, sizeof full);
    }
    return n;
}

/* See the reference for the rules. */
static size_t portable_f32_e8m0(const heft__cast_stage *stage, const void *src, void *dst, size_t n) {
    const uint8_t *in = src;
    uint8_t *out = dst;
    uint32_t beyond = stage->flags & HEFT__CAST_SATURATE ? 0xFE : 0xFF;
    for (size_t i = 0; i < n; i++) {
        uint32_t full;
        memcpy(&full, in + i * 4, sizeof full);
        uint32_t code = full >= 0x800000 ? (full + 0x400000) >> 23 : full > 0x400000;
        if (code > 0xFE) code = beyond;
        if (full - 1 >= 0x7F800000) code = 0xFF; /* 0, NaN, negative */
        out[i] = (uint8_t)code;
    }
    return n;
}

/* ---- integers ---- */

#define PORTABLE_STEP ((size_t)256)

/* The number as 64 bits: sign-extended if signed. */
static inline PORTABLE_INLINE uint64_t portable_number(const uint8_t *at, uint32_t bits, bool is_signed) {
    uint8_t u8;
    uint16_t u16;
    uint32_t u32;
    uint64_t u64;
    switch (bits) {
    case 8: memcpy(&u8, at, 1); return is_signed ? (uint64_t)(int8_t)u8 : u8;
    case 16: memcpy(&u16, at, 2); return is_signed ? (uint64_t)(int16_t)u16 : u16;
    case 32: memcpy(&u32, at, 4); return is_signed ? (uint64_t)(int32_t)u32 : u32;
    default: memcpy(&u64, at, 8); return u64;
    }
}

/* Stores the low bits; what they are worth as 64 bits. */
static inline PORTABLE_INLINE uint64_t portable_low(uint8_t *at, uint64_t number, uint32_t bits, bool is_signed) {
    uint8_t u8 = (uint8_t)number;
    uint16_t u16 = (uint16_t)number;
    uint32_t u32 = (uint32_t)number;
    switch (bits) {
    case 8: memcpy(at, &u8, 1); break;
    case 16: memcpy(at, &u16, 2); break;
    case 32: memcpy(at, &u32, 4); break;
    default: memcpy(at, &number, 8); break;
    }
    return portable_number(at, bits, is_signed);
}

/* A step is converted without looking; if a number of it did not fit, the reference does the step again and decides.
 * Equal patterns of 64 bits are equal numbers, but where just one side is U64 the top bit says that they are not. */
static inline PORTABLE_INLINE size_t portable_loop(const heft__cast_stage *stage, const void *src, void *dst, size_t n,
                                                   uint32_t from, bool from_signed, uint32_t to, bool to_signed) {
    uint64_t top = from_signed == to_signed || (from < 64 && to < 64) ? 0 : UINT64_C(1) << 63;
    for (size_t at = 0; at < n; at += PORTABLE_STEP) {
        const uint8_t *in = (const uint8_t *)src + at * (from / 8);
        uint8_t *out = (uint8_t *)dst + at * (to / 8);
        size_t step = n - at < PORTABLE_STEP ? n - at : PORTABLE_STEP, done = step;
        uint64_t wrong = 0;
        for (size_t i = 0; i < step; i++) {
            uint64_t number = portable_number(in + i * (from / 8), from, from_signed);
            wrong |= (number ^ portable_low(out + i * (to / 8), number, to, to_signed)) | (number & top);
        }
        if (wrong) done = heft__cast_reference(stage, in, out, step);
        if (done < step) return at + done;
    }
    return n;
}

static inline PORTABLE_INLINE size_t portable_from(const heft__cast_stage *stage, const void *src, void *dst, size_t n,
                                                   uint32_t from, bool from_signed) {
    bool to_signed = heft__dtypes[stage->to].kind == 'i';
    switch (heft__dtypes[stage->to].bits) {
    case 8:
        return to_signed ? portable_loop(stage, src, dst, n, from, from_signed, 8, true)
                         : portable_loop(stage, src, dst, n, from, from_signed, 8, false);
    case 16:
        return to_signed ? portable_loop(stage, src, dst, n, from, from_signed, 16, true)
                         : portable_loop(stage, src, dst, n, from, from_signed, 16, false);
    case 32:
        return to_signed ? portable_loop(stage, src, dst, n, from, from_signed, 32, true)
                         : portable_loop(stage, src, dst, n, from, from_signed, 32, false);
    default:
        return to_signed ? portable_loop(stage, src, dst, n, from, from_signed, 64, true)
                         : portable_loop(stage, src, dst, n, from, from_signed, 64, false);
    }
}

static size_t portable_integers(const heft__cast_stage *stage, const void *src, void *dst, size_t n) {
    bool from_signed = heft__dtypes[stage->from].kind == 'i';
    switch (heft__dtypes[stage->from].bits) {
    case 8:
        return from_signed ? portable_from(stage, src, dst, n, 8, true) : portable_from(stage, src, dst, n, 8, false);
    case 16:
        return from_signed ? portable_from(stage, src, dst, n, 16, true) : portable_from(stage, src, dst, n, 16, false);
    case 32:
        return from_signed ? portable_from(stage, src, dst, n, 32, true) : portable_from(stage, src, dst, n, 32, false);
    default:
        return from_signed ? portable_from(stage, src, dst, n, 64, true) : portable_from(stage, src, dst, n, 64, false);
    }
}

/* Numbers that fit the significand are exact; where one of a step does not, the reference does the step. */
static inline PORTABLE_INLINE size_t portable_float_loop(const heft__cast_stage *stage, const void *src, void *dst,
                                                         size_t n, uint32_t from, bool from_signed, uint32_t to) {
    uint64_t most = UINT64_C(1) << (to == 64 ? 53 : 24);
    for (size_t at = 0; at < n; at += PORTABLE_STEP) {
        const uint8_t *in = (const uint8_t *)src + at * (from / 8);
        uint8_t *out = (uint8_t *)dst + at * (to / 8);
        size_t step = n - at < PORTABLE_STEP ? n - at : PORTABLE_STEP, done = step;
        uint64_t wrong = 0;
        for (size_t i = 0; i < step; i++) {
            uint64_t number = portable_number(in + i * (from / 8), from, from_signed);
            double wide = (double)(int64_t)number;
            float narrow = (float)(int32_t)(uint32_t)number;
            wrong |= from_signed ? number + most > 2 * most : number > most;
            if (to == 64)
                memcpy(out + i * 8, &wide, 8);
            else
                memcpy(out + i * 4, &narrow, 4);
        }
        if (wrong) done = heft__cast_reference(stage, in, out, step);
        if (done < step) return at + done;
    }
    return n;
}

static inline PORTABLE_INLINE size_t portable_to_float(const heft__cast_stage *stage, const void *src, void *dst,
                                                       size_t n, uint32_t to) {
    bool is_signed = heft__dtypes[stage->from].kind == 'i';
    switch (heft__dtypes[stage->from].bits) {
    case 8:
        return is_signed ? portable_float_loop(stage, src, dst, n, 8, true, to)
                         : portable_float_loop(stage, src, dst, n, 8, false, to);
    case 16:
        return is_signed ? portable_float_loop(stage, src, dst, n, 16, true, to)
                         : portable_float_loop(stage, src, dst, n, 16, false, to);
    case 32:
        return is_signed ? portable_float_loop(stage, src, dst, n, 32, true, to)
                         : portable_float_loop(stage, src, dst, n, 32, false, to);
    default:
        return is_signed ? portable_float_loop(stage, src, dst, n, 64, true, to)
                         : portable_float_loop(stage, src, dst, n, 64, false, to);
    }
}

static size_t portable_integer_f32(const heft__cast_stage *stage, const void *src, void *dst, size_t n) {
    return portable_to_float(stage, src, dst, n, 32);
}

static size_t portable_integer_f64(const heft__cast_stage *stage, const void *src, void *dst, size_t n) {
    return portable_to_float(stage, src, dst, n, 64);
}

static bool portable_is_integer(heft_dtype dtype) {
    return heft__dtypes[dtype].kind == 'i' || heft__dtypes[dtype].kind == 'u';
}

heft__cast_kernel *heft__cast_portable(heft_dtype from, heft_dtype to, uint32_t flags) {
    if (portable_is_integer(from) && portable_is_integer(to)) return portable_integers;
    if (portable_is_integer(from) && to == HEFT_F32) return portable_integer_f32;
    if (portable_is_integer(from) && to == HEFT_F64) return portable_integer_f64;
    if (from == HEFT_F8_E8M0 && to == HEFT_F32) return portable_e8m0_f32;
    if (heft__dtypes[from].bits == 8) return portable_is_total(from, to, flags) ? portable_table : NULL;
    if (from == HEFT_BF16 && to == HEFT_F32) return portable_bf16_f32;
    if (from == HEFT_F32 && to == HEFT_BF16) return portable_f32_bf16;
    return from == HEFT_F32 && to == HEFT_F8_E8M0 ? portable_f32_e8m0 : NULL;
}
