/* heft/casts.h: arrays from one dtype to another, in the caller's memory. The table of pairs and the
 * rules in full: docs/casts.md.
 *
 *     heft_cast_options how = {.struct_size = sizeof how, .saturate = true};
 *     heft_cast(HEFT_F32, weights, HEFT_F8_E4M3, small, n, &how, &err);
 *
 * Floats are rounded once, to nearest, ties to even. Beyond the largest finite number (after
 * rounding) lies infinity, or NaN where the dtype has no infinity. Subnormals are kept. A NaN becomes
 * a quiet NaN with its sign and the upper bits of its payload, where the dtype has them. The results
 * do not depend on the processor, on the number of threads, or on the floating-point environment of
 * the caller. */
#ifndef HEFT_CASTS_H
#define HEFT_CASTS_H

#include "heft/dtypes.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How to cast. Zero in any field is its default; set struct_size = sizeof(heft_cast_options). */
typedef struct heft_cast_options {
    size_t struct_size;
    /* Threads, the caller's included. 0: as many as the CPUs that this process may use, 4 at most.
     * Small arrays take fewer. */
    uint32_t workers;
    /* What is out of range becomes the nearest end of the range: integers that would be refused, and
     * floats that would become infinity or NaN, infinities included. NaN stays NaN. */
    bool saturate;
    /* Integers to floats: numbers that the float cannot hold exactly are rounded, as NumPy does,
     * instead of refused. */
    bool allow_inexact;
    bool reserved_flags[2]; /* false */
} heft_cast_options;

/* True if heft_cast knows this pair of dtypes. It knows each dtype to itself (a copy, byte by byte);
 * floats of 8 bits and more among themselves; integers among themselves; integers to floats; BOOL to
 * any of these, and any of these to BOOL. It does not know: floats to integers; C64, F4, F6_E2M3 and
 * F6_E3M2 to or from others.
 * Thread rule: any thread. */
HEFT_API bool heft_can_cast(heft_dtype from, heft_dtype to);

/* Converts `nelems` contiguous elements of dtype `from` at `src` into dtype `to` at `dst`, both in
 * host byte order (what heft_read delivers). The caller vouches for the sizes; neither needs any
 * alignment (64 bytes are fastest); they must not overlap. Both may be NULL when nelems is 0.
 * `options` may be NULL: all defaults.
 *
 *   floats to F8_E8M0   from the nearest F32, halves up; zero and negative numbers become NaN
 *   BOOL to others      0 stays 0, any other byte is 1
 *   others to BOOL      True for all but zero: NaN is True, -0.0 is False
 *   integers            a number that `to` cannot hold is refused, or clamped under `saturate`
 *   integers to floats  a number that `to` cannot hold exactly is refused, or rounded under
 *                       `allow_inexact` (one beyond the largest finite number is clamped under
 *                       `saturate`)
 *
 * Errors: INVALID_ARGUMENT (a NULL pointer; no such dtype; options of a newer heft; sub-byte elements
 * that do not fill whole bytes), UNSUPPORTED (heft_can_cast says no), LIMIT (more bytes than an
 * address can count), MISMATCH (an integer was refused: the message has its index and value,
 * err->found the index of the first; the content of `dst` is undefined then).
 * Thread rule: any thread; nothing else may write `src`, or use `dst`, meanwhile.
 * Rule source: ml_dtypes 0.6.0 and NumPy for values (but F64 is rounded once where ml_dtypes rounds
 * twice), torch.clamp before the cast for `saturate`. */
HEFT_API heft_status heft_cast(heft_dtype from, const void *src, heft_dtype to, void *dst, uint64_t nelems,
                               const heft_cast_options *options, heft_error *err);

/* A dtype for tensors by name. */
typedef struct heft_dtype_rule {
    const char *glob;
    heft_dtype dtype;
} heft_dtype_rule;

/* What a tensor becomes where tensors are converted by a default and by rules, as loads, and
 * `heft copy`, do it: `floats` if it is F64, F32, F16 or BF16, and whatever it is, the dtype of
 * the last rule whose glob matches its name. `floats` HEFT_DTYPE_NONE: floats stay what they are.
 * `rules` may be NULL if nrules is 0; a glob that is none matches nothing.
 * Returns `stored` if nothing applies. Whether there is such a cast is not asked: heft_can_cast.
 * Thread rule: any thread. */
HEFT_API heft_dtype heft_dtype_choose(heft_dtype floats, const heft_dtype_rule *rules, size_t nrules, const char *name,
                                      size_t name_len, heft_dtype stored);

#ifdef __cplusplus
}
#endif
#endif
