/* digest: XXH3-128 compiled for AVX2, used where the processor has it: twice as fast as with SSE2. Of heft.c, where
 * xxhash.h can be had once only, this is left out: the flags of the whole file decide there. */
#include "digest/digest.h"

#if HEFT_WITH_XXHASH && defined(__x86_64__) && defined(__GNUC__) && !defined(__AVX2__) && !defined(HEFT_ONE_FILE)
#include <immintrin.h>
#include <stdlib.h>
#include <string.h>

#if defined(__clang__)
#define XXH_VECTOR 2 /* XXH_AVX2 */
#pragma clang attribute push(__attribute__((target("avx2"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2")
#endif
#define XXH_INLINE_ALL
#include "digest/xxh3_body.h"
#undef XXH_INLINE_ALL
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

const heft__xxh3_calls heft__xxh3_avx2 = {heft__xxh3_begin, heft__xxh3_update, heft__xxh3_end, heft__xxh3_bytes};

const heft__xxh3_calls *heft__xxh3_wide(void) {
    return __builtin_cpu_supports("avx2") ? &heft__xxh3_avx2 : NULL;
}
#endif
