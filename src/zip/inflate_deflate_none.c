/* zip: deflate data decoded in a build without libdeflate. */
#include "zip/zip.h"

#if !HEFT_WITH_DEFLATE
bool heft__inflate(const uint8_t *in, size_t in_nbytes, uint8_t *out, size_t out_nbytes) {
    return heft__inflate_portable(in, in_nbytes, out, out_nbytes, false);
}
#endif
