/* device: transposed tiles past the caches, where the processor can: what is written will not be read soon. */
#include "device/transpose.h"

#include <string.h>

#if defined(__x86_64__)

#include <emmintrin.h>

void heft__transpose_put(uint8_t *dst, int64_t dst_step, const uint8_t *tile, size_t nrows) {
    for (size_t i = 0; i < nrows; i++, dst += dst_step, tile += HEFT__TRANSPOSE_SIDE)
        for (size_t at = 0; at < HEFT__TRANSPOSE_SIDE; at += 16)
            _mm_stream_si128((void *)(dst + at), _mm_load_si128((const void *)(tile + at)));
}

void heft__transpose_end(void) {
    _mm_sfence();
}

#else

void heft__transpose_put(uint8_t *dst, int64_t dst_step, const uint8_t *tile, size_t nrows) {
    for (size_t i = 0; i < nrows; i++, dst += dst_step, tile += HEFT__TRANSPOSE_SIDE) memcpy(dst, tile, HEFT__TRANSPOSE_SIDE);
}

void heft__transpose_end(void) {}

#endif
