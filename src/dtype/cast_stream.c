/* dtype: copies past the caches, for results larger than they are. */
#include "dtype/cast.h"

#if defined(__x86_64__)

#include <emmintrin.h>

bool heft__cast_stream(void *dst, const void *src, size_t nbytes) {
    if ((uintptr_t)dst % 64 || nbytes % 64) return false;
    __m128i *out = dst;
    const __m128i *in = src;
    for (size_t i = 0; i < nbytes / 16; i++) _mm_stream_si128(out + i, _mm_loadu_si128(in + i));
    return true;
}

void heft__cast_stream_end(void) {
    _mm_sfence();
}

#else

bool heft__cast_stream(void *dst, const void *src, size_t nbytes) {
    (void)dst;
    (void)src;
    (void)nbytes;
    return false;
}

void heft__cast_stream_end(void) {
}

#endif
