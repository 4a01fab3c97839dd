/* digest: CRC-32 of a build without libdeflate. */
#include "digest/digest.h"

#if !HEFT_WITH_DEFLATE
uint32_t heft__crc32(uint32_t crc, const void *data, size_t nbytes) {
    return heft__crc32_portable(crc, data, nbytes);
}
#endif
