/* dtype: the one table of element types, their spellings, and the checked size of a shape. */
#include "dtype/dtype.h"

#include "base/checked.h"
#include "base/error.h"

#include <string.h>

/* rank of writing, alignment, then of floats: exponent bits, mantissa bits, bias. The float formats are those of IEEE 754
 * (F16, F32, F64), OCP MX (F4, F6, E8M0), OCP FP8 (E5M2, E4M3) and the FNUZ pair of GraphCore, AMD and Qualcomm. */
#define DTYPE_ROWS(X)                                                                                                  \
    X(BOOL, 0, 1, 0, 0, 0)                                                                                             \
    X(F4, 1, 1, 2, 1, 1)                                                                                               \
    X(F6_E2M3, 2, 1, 2, 3, 1)                                                                                          \
    X(F6_E3M2, 3, 1, 3, 2, 3)                                                                                          \
    X(U8, 4, 1, 0, 0, 0)                                                                                               \
    X(I8, 5, 1, 0, 0, 0)                                                                                               \
    X(F8_E5M2, 6, 1, 5, 2, 15)                                                                                         \
    X(F8_E4M3, 7, 1, 4, 3, 7)                                                                                          \
    X(F8_E8M0, 8, 1, 8, 0, 127)                                                                                        \
    X(F8_E4M3FNUZ, 9, 1, 4, 3, 8)                                                                                      \
    X(F8_E5M2FNUZ, 10, 1, 5, 2, 16)                                                                                    \
    X(I16, 11, 2, 0, 0, 0)                                                                                             \
    X(U16, 12, 2, 0, 0, 0)                                                                                             \
    X(F16, 13, 2, 5, 10, 15)                                                                                           \
    X(BF16, 14, 2, 8, 7, 127)                                                                                          \
    X(I32, 15, 4, 0, 0, 0)                                                                                             \
    X(U32, 16, 4, 0, 0, 0)                                                                                             \
    X(F32, 17, 4, 8, 23, 127)                                                                                          \
    X(C64, 18, 8, 8, 23, 127)                                                                                          \
    X(F64, 19, 8, 11, 52, 1023)                                                                                        \
    X(I64, 20, 8, 0, 0, 0)                                                                                             \
    X(U64, 21, 8, 0, 0, 0)

/* The columns that the public header knows, as constants that the rows can refer to. */
enum {
#define DTYPE_PUBLIC(constant, nbits, component, letter)                                                               \
    dtype_bits_##constant = nbits, dtype_component_##constant = component, dtype_kind_##constant = letter,
    HEFT_DTYPE_TABLE(DTYPE_PUBLIC)
#undef DTYPE_PUBLIC
};

const heft__dtype_info heft__dtypes[HEFT_DTYPE_COUNT] = {
    [HEFT_DTYPE_NONE] = {.name = "?", .align = 1},
#define DTYPE_ROW(constant, order, alignment, exponent, mantissa, exponent_bias)                                       \
    [HEFT_##constant] = {.name = #constant,                                                                            \
                         .name_len = sizeof #constant - 1,                                                             \
                         .bits = dtype_bits_##constant,                                                                \
                         .component_bits = dtype_component_##constant,                                                 \
                         .kind = dtype_kind_##constant,                                                                \
                         .rank = order,                                                                                \
                         .align = alignment,                                                                           \
                         .exponent_bits = exponent,                                                                    \
                         .mantissa_bits = mantissa,                                                                    \
                         .bias = exponent_bias},
    DTYPE_ROWS(DTYPE_ROW)
#undef DTYPE_ROW
};

static const heft__dtype_info *dtype_row(heft_dtype dtype) {
    return &heft__dtypes[dtype < HEFT_DTYPE_COUNT ? dtype : HEFT_DTYPE_NONE];
}

const char *heft_dtype_name(heft_dtype dtype) {
    return dtype_row(dtype)->name;
}

uint32_t heft_dtype_bits(heft_dtype dtype) {
    return dtype_row(dtype)->bits;
}

uint32_t heft_dtype_component_bits(heft_dtype dtype) {
    return dtype_row(dtype)->component_bits;
}

char heft_dtype_kind(heft_dtype dtype) {
    return dtype_row(dtype)->kind;
}

/* The only dtype that a name of three letters can be, by its first two; and of seven, by its first five. */
static heft_dtype dtype_guess3(char first, char second) {
    switch (first) {
    case 'F': return second == '1' ? HEFT_F16 : second == '3' ? HEFT_F32 : HEFT_F64;
    case 'I': return second == '1' ? HEFT_I16 : second == '3' ? HEFT_I32 : HEFT_I64;
    case 'U': return second == '1' ? HEFT_U16 : second == '3' ? HEFT_U32 : HEFT_U64;
    default: return HEFT_C64;
    }
}

static heft_dtype dtype_guess7(const char *name) {
    if (name[1] == '6') return name[4] == '2' ? HEFT_F6_E2M3 : HEFT_F6_E3M2;
    return name[4] == '4' ? HEFT_F8_E4M3 : name[4] == '5' ? HEFT_F8_E5M2 : HEFT_F8_E8M0;
}

/* Once a tensor: the length and a letter or two leave one candidate, which one compare confirms. */
heft_dtype heft_dtype_parse(const char *name, size_t len) {
    heft_dtype guess;
    switch (len) {
    case 2: guess = name[0] == 'F' ? HEFT_F4 : name[0] == 'U' ? HEFT_U8 : HEFT_I8; break;
    case 3: guess = dtype_guess3(name[0], name[1]); break;
    case 4: guess = name[1] == 'F' ? HEFT_BF16 : HEFT_BOOL; break;
    case 7: guess = dtype_guess7(name); break;
    case 11: guess = name[4] == '4' ? HEFT_F8_E4M3FNUZ : HEFT_F8_E5M2FNUZ; break;
    default: return HEFT_DTYPE_NONE;
    }
    return memcmp(heft__dtypes[guess].name, name, len) == 0 ? guess : (heft_dtype)HEFT_DTYPE_NONE;
}

heft__shape_fault heft__shape_nbytes(heft_dtype dtype, uint32_t rank, const uint64_t *shape, uint64_t *nelems,
                                     uint64_t *nbytes) {
    uint64_t count = 1, bits;
    for (uint32_t i = 0; i < rank; i++)
        if (!heft__mul_u64(count, shape[i], &count)) return HEFT__SHAPE_ELEMENTS_OVERFLOW;
    *nelems = count;
    if (!heft__mul_u64(count, dtype_row(dtype)->bits, &bits)) return HEFT__SHAPE_BITS_OVERFLOW;
    if (bits % 8 != 0) return HEFT__SHAPE_SUB_BYTE;
    *nbytes = bits / 8;
    return HEFT__SHAPE_OK;
}

heft_status heft_dtype_nbytes(heft_dtype dtype, uint32_t rank, const uint64_t *shape, uint64_t *nbytes,
                              heft_error *err) {
    if (nbytes) *nbytes = 0;
    if (!nbytes || (rank && !shape))
        return heft__fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL, "heft_dtype_nbytes: %s is NULL",
                          nbytes ? "shape" : "nbytes");
    if (dtype == HEFT_DTYPE_NONE || dtype >= HEFT_DTYPE_COUNT)
        return heft__fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL, "no dtype has the number %lu",
                          (unsigned long)dtype);
    uint64_t nelems = 0;
    switch (heft__shape_nbytes(dtype, rank, shape, &nelems, nbytes)) {
    case HEFT__SHAPE_OK: return HEFT_OK;
    case HEFT__SHAPE_SUB_BYTE:
        return heft__fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_SUB_BYTE,
                          "%llu elements of %s (%u bits each) do not fill whole bytes", (unsigned long long)nelems,
                          heft_dtype_name(dtype), (unsigned)heft_dtype_bits(dtype));
    case HEFT__SHAPE_ELEMENTS_OVERFLOW:
        return heft__fail(err, HEFT_LIMIT, HEFT_FAULT_SHAPE_OVERFLOW, "the product of the dims is 2^64 or more");
    case HEFT__SHAPE_BITS_OVERFLOW:
    default:
        return heft__fail(err, HEFT_LIMIT, HEFT_FAULT_SHAPE_OVERFLOW, "%llu elements of %s are 2^64 bits or more",
                          (unsigned long long)nelems, heft_dtype_name(dtype));
    }
}
