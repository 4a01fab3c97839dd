/* dtype: one element of any dtype as an exact number, and as text. */
#include "base/float_text.h"
#include "dtype/dtype.h"

#include <math.h>
#include <string.h>

/* The bits of element `index`, in host byte order. */
static uint64_t scalar_bits(uint32_t bits, const void *data, uint64_t index) {
    const uint8_t *bytes = data;
    uint64_t u64;
    uint32_t u32;
    uint16_t u16;
    switch (bits) {
    case 8: return bytes[index];
    case 16: memcpy(&u16, bytes + index * 2, sizeof u16); return u16;
    case 32: memcpy(&u32, bytes + index * 4, sizeof u32); return u32;
    case 64: memcpy(&u64, bytes + index * 8, sizeof u64); return u64;
    default: break;
    }
    uint64_t bit = index * bits; /* below 8 bits: an element may lie across two bytes */
    uint32_t shift = (uint32_t)(bit % 8), both = bytes[bit / 8];
    if (shift + bits > 8) both |= (uint32_t)bytes[bit / 8 + 1] << 8;
    return both >> shift & ((1U << bits) - 1);
}

/* 2^power, -1022 <= power <= 1023. */
static double scalar_power(int power) {
    uint64_t bits = (uint64_t)(power + 1023) << 52;
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* A float narrower than F32, by its row of the table. */
static double scalar_narrow_float(heft_dtype dtype, uint32_t raw) {
    const heft__dtype_info *row = &heft__dtypes[dtype];
    uint32_t mantissa_bits = row->mantissa_bits, last = (1U << row->exponent_bits) - 1;
    uint32_t mantissa = raw & ((1U << mantissa_bits) - 1), exponent = raw >> mantissa_bits & last;
    bool nan = false, negative = raw >> (row->bits - 1);
    switch (dtype) {
    case HEFT_F4:
    case HEFT_F6_E2M3:
    case HEFT_F6_E3M2: break; /* every code is a number */
    case HEFT_F8_E4M3: nan = exponent == last && mantissa == 7; break;
    case HEFT_F8_E4M3FNUZ:
    case HEFT_F8_E5M2FNUZ: nan = raw == 0x80; break; /* in place of -0 */
    case HEFT_F8_E8M0: return exponent == last ? (double)NAN : scalar_power((int)exponent - row->bias);
    default:
        nan = exponent == last && mantissa != 0;
        if (exponent == last && !nan) return negative ? -(double)INFINITY : (double)INFINITY;
    }
    if (nan) return (double)NAN;
    uint32_t significand = exponent ? mantissa | 1U << mantissa_bits : mantissa;
    double value = significand * scalar_power((int)(exponent ? exponent : 1) - row->bias - (int)mantissa_bits);
    return negative ? -value : value;
}

static double scalar_f32(uint32_t raw) {
    float value;
    memcpy(&value, &raw, sizeof value);
    return (double)value;
}

static int64_t scalar_signed(uint32_t bits, uint64_t raw) {
    uint64_t sign = UINT64_C(1) << (bits - 1);
    return (int64_t)((raw ^ sign) - sign);
}

heft_scalar heft_dtype_get(heft_dtype dtype, const void *data, uint64_t index) {
    heft_scalar value = {.kind = heft_dtype_kind(dtype)};
    uint32_t bits = heft_dtype_bits(dtype);
    if (dtype == HEFT_C64) { /* two components, each in host byte order */
        value.re = scalar_f32((uint32_t)scalar_bits(32, data, index * 2));
        value.im = scalar_f32((uint32_t)scalar_bits(32, data, index * 2 + 1));
        return value;
    }
    uint64_t raw = bits ? scalar_bits(bits, data, index) : 0;
    switch (value.kind) {
    case 'b':
    case 'u': value.u = raw; break;
    case 'i': value.i = scalar_signed(bits, raw); break;
    case 'f':
        if (bits == 64) memcpy(&value.re, &raw, sizeof value.re);
        else value.re = bits == 32 ? scalar_f32((uint32_t)raw) : scalar_narrow_float(dtype, (uint32_t)raw);
        break;
    default: break;
    }
    return value;
}

static size_t scalar_unsigned_text(uint64_t value, bool negative, char *out) {
    char digits[20];
    size_t n = 0, len = 0;
    do digits[n++] = (char)('0' + value % 10);
    while (value /= 10);
    if (negative) out[len++] = '-';
    while (n) out[len++] = digits[--n];
    out[len] = 0;
    return len;
}

static size_t scalar_float_text(heft_dtype dtype, double value, char *out) {
    const heft__dtype_info *row = &heft__dtypes[dtype];
    if (row->component_bits == 64) return heft__double_text(value, out);
    if (row->component_bits <= 8) return heft__float_text(value, 24, -149, out); /* see the header: 448.0, not 450.0 */
    return heft__float_text(value, row->mantissa_bits + 1, 1 - row->bias - row->mantissa_bits, out);
}

/* A part of a complex number: without the ".0" that marks a float. */
static size_t scalar_part_text(heft_dtype dtype, double value, char *out) {
    size_t len = scalar_float_text(dtype, value, out);
    if (len > 2 && out[len - 2] == '.' && out[len - 1] == '0') len -= 2;
    out[len] = 0;
    return len;
}

size_t heft_scalar_text(heft_dtype dtype, const heft_scalar *value, char *out) {
    size_t len = 0;
    out[0] = 0;
    switch (heft_dtype_kind(dtype)) {
    case 'b':
        if (value->u > 1) return scalar_unsigned_text(value->u, false, out);
        len = value->u ? 4 : 5;
        memcpy(out, value->u ? "True" : "False", len + 1);
        return len;
    case 'u': return scalar_unsigned_text(value->u, false, out);
    case 'i': return scalar_unsigned_text(value->i < 0 ? 0 - (uint64_t)value->i : (uint64_t)value->i, value->i < 0, out);
    case 'f': return scalar_float_text(dtype, value->re, out);
    case 'c':
        len = scalar_part_text(dtype, value->re, out);
        if (!signbit(value->im) || isnan(value->im)) out[len++] = '+';
        len += scalar_part_text(dtype, value->im, out + len);
        out[len++] = 'j';
        out[len] = 0;
        return len;
    default: return 0;
    }
}
