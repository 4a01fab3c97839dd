/* digest: XXH3-128 of a build without xxhash: none. */
#include "digest/digest.h"

#if !HEFT_WITH_XXHASH
#include "base/error.h"

const heft__xxh3_calls *heft__xxh3(bool portable, heft_error *err) {
    (void)portable;
    heft__fail(err, HEFT_UNSUPPORTED, HEFT_FAULT_CALL, "XXH3 needs xxhash, which this build lacks (HEFT_WITH_XXHASH)");
    return NULL;
}
#endif
