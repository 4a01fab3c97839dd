/* dtype: the one table of element types, and shape arithmetic. */
#ifndef HEFT_DTYPE_DTYPE_H
#define HEFT_DTYPE_DTYPE_H

#include "heft/dtypes.h"

typedef struct heft__dtype_info {
    char name[16];
    uint8_t name_len;
    uint8_t bits;
    uint8_t component_bits;
    char kind;
    uint8_t rank;          /* order of writing: declaration order of the reference */
    uint8_t align;         /* bytes: element size, 1 for sub-byte types, 8 for C64 */
    /* floats only: */
    uint8_t exponent_bits, mantissa_bits; /* stored bits */
    int16_t bias;
} heft__dtype_info;

/* Indexed by heft_dtype, HEFT_DTYPE_COUNT entries; [0] is zero but for its name "?" and its alignment of 1. */
extern const heft__dtype_info heft__dtypes[HEFT_DTYPE_COUNT];

/* Why a shape has no byte size. */
typedef enum heft__shape_fault {
    HEFT__SHAPE_OK,
    HEFT__SHAPE_ELEMENTS_OVERFLOW, /* check 8b: product of dims, left to right, does not fit u64 */
    HEFT__SHAPE_BITS_OVERFLOW,     /* 8c */
    HEFT__SHAPE_SUB_BYTE           /* 8d: bits are no multiple of 8 */
} heft__shape_fault;

/* Checks 8b, 8c, 8d in this order. *nelems is set unless 8b fails, *nbytes only on OK. */
heft__shape_fault heft__shape_nbytes(heft_dtype dtype, uint32_t rank, const uint64_t *shape, uint64_t *nelems,
                                     uint64_t *nbytes);

#endif
