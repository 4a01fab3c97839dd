/* digest: XXH3-128 where xxh3_avx2.c is not compiled: nothing is wider than what the flags of the build give. */
#include "digest/digest.h"

#if !(HEFT_WITH_XXHASH && defined(__x86_64__) && defined(__GNUC__) && !defined(__AVX2__) && !defined(HEFT_ONE_FILE))
const heft__xxh3_calls *heft__xxh3_wide(void) {
    return NULL;
}
#endif
