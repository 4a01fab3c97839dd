/* dtype: the reference of all casts, one element at a time in integer arithmetic. */
#include "dtype/cast.h"

#include <string.h>

/* Any number of any dtype but complex: significand x 2^(exponent - 63), with bit 63 set but for zero. A NaN keeps its
 * payload at the top of the significand, where bit 63 is the one that makes it quiet. */
typedef enum cast_class { CAST_FINITE, CAST_INFINITE, CAST_NAN } cast_class;
typedef struct cast_number {
    cast_class kind;
    bool negative;
    int exponent;
    uint64_t significand;
} cast_number;

static uint64_t cast_load(uint32_t bits, const uint8_t *at) {
    uint64_t u64;
    uint32_t u32;
    uint16_t u16;
    switch (bits) {
    case 8: return *at;
    case 16: memcpy(&u16, at, sizeof u16); return u16;
    case 32: memcpy(&u32, at, sizeof u32); return u32;
    default: memcpy(&u64, at, sizeof u64); return u64;
    }
}

static void cast_store(uint32_t bits, uint8_t *at, uint64_t raw) {
    uint32_t u32 = (uint32_t)raw;
    uint16_t u16 = (uint16_t)raw;
    switch (bits) {
    case 8: *at = (uint8_t)raw; break;
    case 16: memcpy(at, &u16, sizeof u16); break;
    case 32: memcpy(at, &u32, sizeof u32); break;
    default: memcpy(at, &raw, sizeof raw); break;
    }
}

static cast_number cast_normalize(bool negative, uint64_t significand, int exponent) {
    if (significand == 0) return (cast_number){.kind = CAST_FINITE, .negative = negative};
    int shift = __builtin_clzll(significand);
    return (cast_number){CAST_FINITE, negative, exponent - shift, significand << shift};
}

static bool cast_is_fnuz(heft_dtype dtype) {
    return dtype == HEFT_F8_E4M3FNUZ || dtype == HEFT_F8_E5M2FNUZ;
}

static bool cast_has_infinity(heft_dtype dtype) {
    return dtype != HEFT_F8_E4M3 && dtype != HEFT_F8_E8M0 && !cast_is_fnuz(dtype);
}

static cast_number cast_decode_float(heft_dtype dtype, uint64_t raw) {
    const heft__dtype_info *row = &heft__dtypes[dtype];
    uint32_t width = row->mantissa_bits;
    uint64_t last = (UINT64_C(1) << row->exponent_bits) - 1, mantissa = raw & ((UINT64_C(1) << width) - 1);
    uint64_t exponent = raw >> width & last;
    bool negative = dtype != HEFT_F8_E8M0 && raw >> (row->bits - 1) & 1;
    cast_number nan = {.kind = CAST_NAN, .negative = negative};
    if (dtype == HEFT_F8_E8M0) return exponent == last ? nan : cast_normalize(false, 1, (int)exponent - row->bias + 63);
    if (cast_is_fnuz(dtype) && raw == 0x80) return (cast_number){.kind = CAST_NAN}; /* in place of -0 */
    if (dtype == HEFT_F8_E4M3 && exponent == last && mantissa == 7) return nan;
    if (cast_has_infinity(dtype) && exponent == last) {
        if (mantissa == 0) return (cast_number){.kind = CAST_INFINITE, .negative = negative};
        nan.significand = mantissa << (64 - width);
        return nan;
    }
    uint64_t significand = exponent ? mantissa | UINT64_C(1) << width : mantissa;
    return cast_normalize(negative, significand, (int)(exponent ? exponent : 1) - row->bias - (int)width + 63);
}

static cast_number cast_decode_integer(heft_dtype dtype, uint64_t raw) {
    const heft__dtype_info *row = &heft__dtypes[dtype];
    if (row->kind == 'b') return cast_normalize(false, raw != 0, 63);
    uint64_t sign = UINT64_C(1) << (row->bits - 1);
    if (row->kind == 'u' || !(raw & sign)) return cast_normalize(false, raw, 63);
    return cast_normalize(true, sign - (raw ^ sign), 63);
}

/* value >> shift, to nearest, ties to even; *exact becomes false if bits are lost. 1 <= shift. */
static uint64_t cast_round(uint64_t value, int shift, bool *exact) {
    if (shift > 64) { /* below a quarter */
        *exact = false;
        return 0;
    }
    uint64_t half = UINT64_C(1) << (shift - 1), whole = shift == 64 ? 0 : value >> shift;
    uint64_t rest = shift == 64 ? value : value & ((half << 1) - 1);
    if (rest == 0) return whole;
    *exact = false;
    return whole + (rest > half || (rest == half && (whole & 1)));
}

/* Largest finite code without the sign, and the code of what is beyond it. */
static uint64_t cast_largest(heft_dtype dtype) {
    const heft__dtype_info *row = &heft__dtypes[dtype];
    if (dtype == HEFT_F8_E4M3) return 0x7E;
    if (cast_is_fnuz(dtype)) return 0x7F;
    return (((UINT64_C(1) << row->exponent_bits) - 1) << row->mantissa_bits) - 1; /* F8_E8M0: 254 */
}

static uint64_t cast_encode_nan(heft_dtype dtype, cast_number number) {
    const heft__dtype_info *row = &heft__dtypes[dtype];
    uint64_t sign = (uint64_t)number.negative << (row->bits - 1);
    if (dtype == HEFT_F8_E8M0) return 0xFF;
    if (cast_is_fnuz(dtype)) return 0x80;
    if (dtype == HEFT_F8_E4M3) return sign | 0x7F;
    uint64_t quiet = UINT64_C(1) << (row->mantissa_bits - 1);
    return sign | (cast_largest(dtype) + 1) | quiet | number.significand >> (64 - row->mantissa_bits);
}

static uint64_t cast_encode_overflow(heft_dtype dtype, bool negative, bool saturate) {
    uint64_t sign = (uint64_t)negative << (heft__dtypes[dtype].bits - 1);
    if (saturate) return sign | cast_largest(dtype);
    if (!cast_has_infinity(dtype)) return cast_encode_nan(dtype, (cast_number){.negative = negative});
    return sign | (cast_largest(dtype) + 1);
}

/* Nearest, ties to even, of a float with sign. */
static uint64_t cast_encode_float(heft_dtype dtype, cast_number number, bool saturate, bool *exact) {
    const heft__dtype_info *row = &heft__dtypes[dtype];
    if (number.kind == CAST_NAN) return cast_encode_nan(dtype, number);
    if (number.kind == CAST_INFINITE) return cast_encode_overflow(dtype, number.negative, saturate);
    uint64_t code = 0, width = row->mantissa_bits;
    int exponent = number.exponent + row->bias, shift = 63 - (int)width;
    if (number.significand) {
        if (exponent > 1 << row->exponent_bits)
            code = UINT64_MAX;
        else if (exponent >= 1) /* the leading 1 of the significand counts in the exponent field */
            code = ((uint64_t)(exponent - 1) << width) + cast_round(number.significand, shift, exact);
        else
            code = cast_round(number.significand, shift + 1 - exponent, exact); /* subnormal */
    }
    if (code > cast_largest(dtype)) {
        *exact = false;
        return cast_encode_overflow(dtype, number.negative, saturate);
    }
    if (code == 0 && cast_is_fnuz(dtype)) return 0; /* there is no -0 */
    return code | (uint64_t)number.negative << (row->bits - 1);
}

/* As ml_dtypes has it: from the nearest F32, halves up, but from F32's subnormals upward to 2^-126 if above 2^-127.
 * Zero and negative numbers are NaN. */
static uint64_t cast_encode_e8m0(cast_number number, bool saturate, bool *exact) {
    if (number.kind == CAST_FINITE) {
        uint64_t f32 = cast_encode_float(HEFT_F32, number, false, exact);
        if (f32 == 0 || f32 >> 31) {
            *exact = false;
            return 0xFF;
        }
        uint64_t code = f32 <= 0x400000 ? 0 : f32 <= 0x7FFFFF ? 1 : (f32 + 0x400000) >> 23;
        if (code > 0 ? (f32 & 0x7FFFFF) != 0 : f32 != 0x400000) *exact = false;
        if (code <= 254) return code;
        *exact = false;
    }
    return saturate && number.kind != CAST_NAN && !number.negative ? 0xFE : 0xFF;
}

/* False: out of range. */
static bool cast_encode_integer(heft_dtype dtype, cast_number number, bool saturate, uint64_t *out) {
    const heft__dtype_info *row = &heft__dtypes[dtype];
    uint64_t size = number.significand ? number.significand >> (63 - number.exponent) : 0;
    uint64_t all = UINT64_MAX >> (64 - row->bits), most = row->kind == 'u' ? all : all >> 1;
    if (number.negative) most = row->kind == 'u' ? 0 : most + 1;
    if (size > most) {
        if (!saturate) return false;
        size = most;
    }
    *out = (number.negative ? 0 - size : size) & all;
    return true;
}

/* Above the largest finite number of a float: what SATURATE is for. */
static bool cast_is_beyond(heft_dtype dtype, cast_number number) {
    cast_number most = cast_decode_float(dtype, cast_largest(dtype));
    return number.exponent > most.exponent ||
           (number.exponent == most.exponent && number.significand > most.significand);
}

bool heft__cast_overflows(heft_dtype from, heft_dtype to) {
    if (heft__dtypes[from].kind != 'f' || heft__dtypes[to].kind != 'f') return true;
    return (cast_has_infinity(from) && !cast_has_infinity(to)) ||
           cast_is_beyond(to, cast_decode_float(from, cast_largest(from)));
}

bool heft__cast_one(const heft__cast_stage *stage, uint64_t raw, uint64_t *out) {
    char from = heft__dtypes[stage->from].kind, to = heft__dtypes[stage->to].kind;
    bool saturate = stage->flags & HEFT__CAST_SATURATE, exact = true;
    cast_number number = from == 'f' ? cast_decode_float(stage->from, raw) : cast_decode_integer(stage->from, raw);
    if (to == 'b') {
        *out = number.kind != CAST_FINITE || number.significand != 0;
        return true;
    }
    if (to != 'f') return cast_encode_integer(stage->to, number, saturate, out);
    *out = stage->to == HEFT_F8_E8M0 ? cast_encode_e8m0(number, saturate, &exact)
                                     : cast_encode_float(stage->to, number, saturate, &exact);
    if (exact || from == 'f' || (stage->flags & HEFT__CAST_INEXACT)) return true;
    return saturate && cast_is_beyond(stage->to, number);
}

size_t heft__cast_reference(const heft__cast_stage *stage, const void *src, void *dst, size_t n) {
    const uint8_t *in = src;
    uint8_t *out = dst;
    uint32_t from = heft__dtypes[stage->from].bits, to = heft__dtypes[stage->to].bits;
    for (size_t i = 0; i < n; i++) {
        uint64_t code;
        if (!heft__cast_one(stage, cast_load(from, in + i * (from / 8)), &code)) return i;
        cast_store(to, out + i * (to / 8), code);
    }
    return n;
}
