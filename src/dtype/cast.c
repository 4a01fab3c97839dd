/* dtype: the dispatcher of casts: which kernels do which pair, and in one pass or two. */
#include "dtype/cast.h"

#include "base/cpu.h"
#include "base/error.h"

#include <string.h>

/* Elements of one step where there is more than one pass: what lies between them stays in the first-level cache. */
#define CAST_STEP ((size_t)1024)

static char cast_kind(heft_dtype dtype) {
    return dtype < HEFT_DTYPE_COUNT ? heft__dtypes[dtype].kind : (char)0;
}

static bool cast_is_plain(heft_dtype dtype) {
    char kind = cast_kind(dtype);
    return kind != 0 && kind != 'c' && heft__dtypes[dtype].bits >= 8;
}

bool heft__cast_supported(heft_dtype from, heft_dtype to) {
    if (from == to) return cast_kind(from) != 0;
    if (!cast_is_plain(from) || !cast_is_plain(to)) return false;
    return cast_kind(from) != 'f' || cast_kind(to) == 'f' || cast_kind(to) == 'b';
}

static size_t cast_copy(const heft__cast_stage *stage, const void *src, void *dst, size_t n) {
    uint32_t bits = heft__dtypes[stage->from].bits;
    if (n) memcpy(dst, src, bits < 8 ? (n / 8) * bits + (n % 8 * bits + 7) / 8 : n * (bits / 8));
    return n;
}

/* The best kernel for a pair in one pass; NULL: none but the reference. */
static heft__cast_kernel *cast_kernel_of(heft_dtype from, heft_dtype to, uint32_t flags) {
    heft__cast_kernel *kernel = NULL;
    if (flags & HEFT__CAST_REFERENCE) return NULL;
    if (!(flags & HEFT__CAST_NO_AVX512)) kernel = heft__cast_avx512(from, to, flags);
    if (!kernel && !(flags & HEFT__CAST_NO_AVX2)) kernel = heft__cast_avx2(from, to, flags);
    if (!kernel && !(flags & HEFT__CAST_NO_NEON)) kernel = heft__cast_neon(from, to, flags);
    return kernel ? kernel : heft__cast_portable(from, to, flags);
}

/* Two passes through F32, which every narrower float fits exactly. From F64 the first pass rounds to odd, so that the
 * second gives what one rounding would; F8_E8M0 alone is defined by the nearest F32. */
static bool cast_find_two(heft_dtype from, heft_dtype to, uint32_t flags, heft__cast *out) {
    if (cast_kind(from) != 'f' || cast_kind(to) != 'f' || from == HEFT_F32 || to == HEFT_F32) return false;
    uint32_t first = flags & ~(HEFT__CAST_SATURATE | HEFT__CAST_STREAM);
    if (from == HEFT_F64 && to != HEFT_F8_E8M0) first |= HEFT__CAST_ODD;
    heft__cast_kernel *widen = cast_kernel_of(from, HEFT_F32, first), *narrow = cast_kernel_of(HEFT_F32, to, flags);
    if (!widen || !narrow) return false;
    out->nstages = 2;
    out->stages[0] = (heft__cast_stage){widen, from, HEFT_F32, first};
    out->stages[1] = (heft__cast_stage){narrow, HEFT_F32, to, flags};
    return true;
}

bool heft__cast_find(heft_dtype from, heft_dtype to, uint32_t flags, heft__cast *out) {
    memset(out, 0, sizeof *out);
    if (!heft__cast_supported(from, to)) return false;
    out->from = from;
    out->to = to;
    flags &= ~HEFT__CAST_ODD;
    if (!heft__cast_overflows(from, to)) flags &= ~HEFT__CAST_SATURATE;
    heft__cast_kernel *kernel = from == to ? cast_copy : cast_kernel_of(from, to, flags);
    if (!kernel && cast_find_two(from, to, flags, out)) return true;
    out->nstages = 1;
    out->stages[0] = (heft__cast_stage){kernel ? kernel : heft__cast_reference, from, to, flags};
    return true;
}

/* Both passes, in steps. Floats are never refused. */
static void cast_in_steps(const heft__cast *cast, const uint8_t *src, uint8_t *dst, size_t n) {
    float middle[CAST_STEP];
    const heft__cast_stage *stages = cast->stages;
    size_t from = heft__dtypes[cast->from].bits / 8, to = heft__dtypes[cast->to].bits / 8;
    for (size_t at = 0; at < n; at += CAST_STEP) {
        size_t step = n - at < CAST_STEP ? n - at : CAST_STEP;
        stages[0].kernel(&stages[0], src + at * from, middle, step);
        stages[1].kernel(&stages[1], middle, dst + at * to, step);
    }
}

size_t heft__cast_run(const heft__cast *cast, const void *src, void *dst, size_t n) {
    uint64_t mode = heft__cpu_float_enter();
    size_t done = n;
    if (cast->nstages == 1)
        done = cast->stages[0].kernel(&cast->stages[0], src, dst, n);
    else
        cast_in_steps(cast, src, dst, n);
    heft__cpu_float_leave(mode);
    return done;
}

heft_status heft__cast_fail(const heft__cast *cast, const void *element, uint64_t index, heft_error *err) {
    char text[64];
    heft_scalar value = heft_dtype_get(cast->from, element, 0);
    heft_scalar_text(cast->from, &value, text);
    bool rounds = cast_kind(cast->to) == 'f';
    heft__fail(err, HEFT_MISMATCH, HEFT_FAULT_CALL, "element %llu is %s, which %s cannot hold%s",
               (unsigned long long)index, text, heft_dtype_name(cast->to),
               rounds ? " exactly; allow_inexact rounds it" : "; saturate gives the nearest number that it can");
    heft__error_at(err, HEFT_NONE, HEFT_NONE, index);
    return HEFT_MISMATCH;
}

heft_status heft__cast_fail_pair(heft_dtype from, heft_dtype to, heft_error *err) {
    bool known = cast_kind(from) && cast_kind(to);
    const char *why = "";
    if (!known)
        return heft__fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL, "no dtype has the number %lu",
                          (unsigned long)(cast_kind(from) ? to : from));
    if (cast_kind(from) == 'f' && cast_kind(to) != 'f') why = ": a float does not become an integer";
    if (!cast_is_plain(from) || !cast_is_plain(to)) why = ": complex and sub-byte dtypes are only copied";
    return heft__fail(err, HEFT_UNSUPPORTED, HEFT_FAULT_CALL, "there is no cast from %s to %s%s", heft_dtype_name(from),
                      heft_dtype_name(to), why);
}
