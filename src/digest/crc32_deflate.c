/* digest: CRC-32 by libdeflate, which folds by carry-less multiplication where the processor has it. */
#include "digest/digest.h"

#if HEFT_WITH_DEFLATE
#include <libdeflate.h>

uint32_t heft__crc32(uint32_t crc, const void *data, size_t nbytes) {
    return libdeflate_crc32(crc, data, nbytes);
}
#endif
