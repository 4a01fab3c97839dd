/* dtype: casts between element types. One dispatcher picks kernels; a bit-exact reference does what no kernel does. */
#ifndef HEFT_DTYPE_CAST_H
#define HEFT_DTYPE_CAST_H

#include "dtype/dtype.h"
#include "heft/casts.h"

/* What may be asked of a cast. */
#define HEFT__CAST_SATURATE UINT32_C(1) /* out of range becomes the nearest end of the range */
#define HEFT__CAST_INEXACT  UINT32_C(2) /* integers to floats are rounded where they must be */
#define HEFT__CAST_STREAM   UINT32_C(4) /* results may go past the caches: for large ones only */
/* Tiers switched off; only tests do so. */
#define HEFT__CAST_NO_AVX512 UINT32_C(0x100)
#define HEFT__CAST_NO_AVX2   UINT32_C(0x200)
#define HEFT__CAST_NO_NEON   UINT32_C(0x400)
#define HEFT__CAST_REFERENCE UINT32_C(0x800) /* nothing but the reference */
#define HEFT__CAST_NO_SIMD   (HEFT__CAST_NO_AVX512 | HEFT__CAST_NO_AVX2 | HEFT__CAST_NO_NEON)

/* Inside: F64 to F32 where a second stage rounds again. An inexact result has its last bit set ("round to odd"), so
 * that both roundings together are one. */
#define HEFT__CAST_ODD UINT32_C(0x10000)

/* One pass over memory. Returns how many elements were converted: n, or the index of the first that must not be. */
typedef struct heft__cast_stage heft__cast_stage;
typedef size_t heft__cast_kernel(const heft__cast_stage *stage, const void *src, void *dst, size_t n);
struct heft__cast_stage {
    heft__cast_kernel *kernel;
    heft_dtype from, to;
    uint32_t flags;
};

/* A cast, ready to run: a plain value that any thread may use. */
typedef struct heft__cast {
    heft_dtype from, to;
    uint32_t nstages; /* with two, the first makes F32 */
    heft__cast_stage stages[2];
} heft__cast;

/* True if heft__cast_find finds a cast. A dtype to itself always is one: a copy. */
bool heft__cast_supported(heft_dtype from, heft_dtype to);

/* Fills *out; false if there is no such cast: a float to an integer, complex and sub-byte dtypes. */
bool heft__cast_find(heft_dtype from, heft_dtype to, uint32_t flags, heft__cast *out);

/* Converts `n` contiguous elements in host byte order; src and dst need no alignment and must not overlap. Of sub-byte
 * dtypes (copies only) the bits must fill whole bytes. Returns n, or the index of the first element that the cast
 * refuses: an integer out of range without SATURATE, one that a float cannot hold exactly without INEXACT. What was
 * written from there on is undefined. */
size_t heft__cast_run(const heft__cast *cast, const void *src, void *dst, size_t n);

/* The error of an element that was refused: `element` points to it, `index` is its number for the message. The caller
 * adds file and tensor. */
heft_status heft__cast_fail(const heft__cast *cast, const void *element, uint64_t index, heft_error *err);
/* The error of a pair that heft__cast_find does not find. */
heft_status heft__cast_fail_pair(heft_dtype from, heft_dtype to, heft_error *err);

/* ---- which dtype (dtype_choose.c) ---- */

/* Those that a default for floats is about. */
bool heft__dtype_is_plain_float(heft_dtype dtype);
/* INVALID_ARGUMENT: what heft_dtype_choose is given makes no sense. */
heft_status heft__dtype_check_rules(heft_dtype floats, const heft_dtype_rule *rules, size_t nrules, heft_error *err);

/* ---- between the files of this folder ---- */

/* The reference: any supported pair, in integer arithmetic alone. */
heft__cast_kernel heft__cast_reference;
/* Kernels of one tier; NULL: none for this pair, or not on this processor. Only ODD and SATURATE of `flags` matter. */
heft__cast_kernel *heft__cast_portable(heft_dtype from, heft_dtype to, uint32_t flags);
heft__cast_kernel *heft__cast_avx2(heft_dtype from, heft_dtype to, uint32_t flags);
heft__cast_kernel *heft__cast_avx512(heft_dtype from, heft_dtype to, uint32_t flags);
heft__cast_kernel *heft__cast_neon(heft_dtype from, heft_dtype to, uint32_t flags);
/* False if every finite number and infinity of `from` has a place in `to`, so that SATURATE has no say. */
bool heft__cast_overflows(heft_dtype from, heft_dtype to);
/* One element by the reference: bits in, bits out. False if the cast refuses it. */
bool heft__cast_one(const heft__cast_stage *stage, uint64_t raw, uint64_t *out);

#endif
