/* heft/dtypes.h: element types, their sizes and their values.
 * Rule source: the dtype list of the safetensors reference implementation (0.8.0), packing of
 * sub-byte types: DLPack. */
#ifndef HEFT_DTYPES_H
#define HEFT_DTYPES_H

#include "heft/core.h"

#ifdef __cplusplus
extern "C" {
#endif

/* constant, bits, bits of one component (what is swapped on a big-endian host; C64 has two),
 * kind (b bool, u unsigned, i signed, f float, c complex). Spelled as safetensors spells them.
 * The order is heft's own numbering, append only; the rank that decides the order of writing is
 * a column of the internal table. */
#define HEFT_DTYPE_TABLE(X)                                                                                            \
    X(BOOL, 8, 8, 'b')                                                                                                 \
    X(F4, 4, 4, 'f')                                                                                                   \
    X(F6_E2M3, 6, 6, 'f')                                                                                              \
    X(F6_E3M2, 6, 6, 'f')                                                                                              \
    X(U8, 8, 8, 'u')                                                                                                   \
    X(I8, 8, 8, 'i')                                                                                                   \
    X(F8_E5M2, 8, 8, 'f')                                                                                              \
    X(F8_E4M3, 8, 8, 'f')                                                                                              \
    X(F8_E8M0, 8, 8, 'f')                                                                                              \
    X(F8_E4M3FNUZ, 8, 8, 'f')                                                                                          \
    X(F8_E5M2FNUZ, 8, 8, 'f')                                                                                          \
    X(I16, 16, 16, 'i')                                                                                                \
    X(U16, 16, 16, 'u')                                                                                                \
    X(F16, 16, 16, 'f')                                                                                                \
    X(BF16, 16, 16, 'f')                                                                                               \
    X(I32, 32, 32, 'i')                                                                                                \
    X(U32, 32, 32, 'u')                                                                                                \
    X(F32, 32, 32, 'f')                                                                                                \
    X(C64, 64, 32, 'c')                                                                                                \
    X(F64, 64, 64, 'f')                                                                                                \
    X(I64, 64, 64, 'i')                                                                                                \
    X(U64, 64, 64, 'u')

typedef uint32_t heft_dtype;
enum {
    HEFT_DTYPE_NONE = 0, /* no dtype; also an entry listed under list_unknown_dtypes */
#define HEFT_DTYPE_ENUM(constant, bits, component, kind) HEFT_##constant,
    HEFT_DTYPE_TABLE(HEFT_DTYPE_ENUM)
#undef HEFT_DTYPE_ENUM
        HEFT_DTYPE_COUNT
};

/* The spelling of a dtype ("BF16"); "?" for HEFT_DTYPE_NONE and numbers that are none.
 * Returns a static string.
 * Thread rule: any thread. */
HEFT_API const char *heft_dtype_name(heft_dtype dtype);

/* The dtype spelled by the `len` bytes at `name` (case-sensitive, not trimmed), or
 * HEFT_DTYPE_NONE.
 * Thread rule: any thread. */
HEFT_API heft_dtype heft_dtype_parse(const char *name, size_t len);

/* Bits of one element: 4, 6, 8, 16, 32 or 64; 0 for HEFT_DTYPE_NONE.
 * Thread rule: any thread. */
HEFT_API uint32_t heft_dtype_bits(heft_dtype dtype);

/* Bits of one component: what is byte-swapped on a big-endian host. Equal to the bits of the
 * element but for C64 (32).
 * Thread rule: any thread. */
HEFT_API uint32_t heft_dtype_component_bits(heft_dtype dtype);

/* 'b' bool, 'u' unsigned, 'i' signed, 'f' float, 'c' complex, 0 for HEFT_DTYPE_NONE.
 * Thread rule: any thread. */
HEFT_API char heft_dtype_kind(heft_dtype dtype);

/* Bytes of a packed array: product of `rank` dims times the bits, which must fill whole bytes.
 * `shape` may be NULL when rank is 0 (a scalar, one element). On success *nbytes is set.
 * Errors: INVALID_ARGUMENT (no such dtype; the bits do not fill bytes), LIMIT (2^64 bits or
 * more).
 * Thread rule: any thread.
 * Rule source: checks 8b to 8d of the safetensors reference. */
HEFT_API heft_status heft_dtype_nbytes(heft_dtype dtype, uint32_t rank, const uint64_t *shape, uint64_t *nbytes,
                                       heft_error *err);

/* One element, decoded. `kind` says which member holds it: 'b' and 'u' u, 'i' i, 'f' re, 'c' re
 * and im. */
typedef struct heft_scalar {
    char kind;
    uint64_t u;
    int64_t i;
    double re, im; /* exact: every float dtype fits a double */
} heft_scalar;

/* Decodes element `index` of a packed array of `dtype` in host byte order at `data` (sub-byte
 * elements: little-endian bits, element i at bit i x width counted from the least significant
 * bit of the first byte). The caller vouches for the size of `data`. BOOL bytes other than 0
 * and 1 come back as they are in `u`. HEFT_DTYPE_NONE gives kind 0.
 * Thread rule: any thread. */
HEFT_API heft_scalar heft_dtype_get(heft_dtype dtype, const void *data, uint64_t index);

/* Writes a value as text into `out` (at least 64 bytes), independent of the locale: "0.1",
 * "-1.5e-05", "nan", "-inf", "True", "-7", "1+2j". Returns its length without the final NUL.
 * Of F16, BF16, F32, F64 and C64 it is the shortest text that reads back as the same value of
 * `dtype`, of narrower floats the shortest that reads back as the same F32: the largest F8_E4M3
 * is "448.0", as people know it, though "400.0" would read back too. Floats switch to an exponent
 * below 1e-4 and from 1e16, and always show that they are floats ("1.0"). A BOOL byte above 1 is
 * written as a number.
 * Thread rule: any thread. */
HEFT_API size_t heft_scalar_text(heft_dtype dtype, const heft_scalar *value, char *out);

#ifdef __cplusplus
}
#endif
#endif
