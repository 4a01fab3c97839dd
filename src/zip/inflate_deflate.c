/* zip: deflate data decoded by libdeflate. Its decoder comes from malloc. */
#include "zip/zip.h"

#if HEFT_WITH_DEFLATE
#include <libdeflate.h>

bool heft__inflate(const uint8_t *in, size_t in_nbytes, uint8_t *out, size_t out_nbytes) {
    struct libdeflate_decompressor *decoder = libdeflate_alloc_decompressor();
    if (!decoder) return heft__inflate_portable(in, in_nbytes, out, out_nbytes, false);
    size_t used = 0;
    enum libdeflate_result result =
        libdeflate_deflate_decompress_ex(decoder, in, in_nbytes, out, out_nbytes, &used, NULL);
    libdeflate_free_decompressor(decoder);
    return result == LIBDEFLATE_SUCCESS && used == in_nbytes;
}
#endif
