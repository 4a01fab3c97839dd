/* digest: XXH3-128 out of the header of xxhash, with the vectors that every processor of the target has. */
#include "digest/digest.h"

#if HEFT_WITH_XXHASH
#define XXH_INLINE_ALL
#include "digest/xxh3_body.h"
#undef XXH_INLINE_ALL

const heft__xxh3_calls heft__xxh3_base = {heft__xxh3_begin, heft__xxh3_update, heft__xxh3_end, heft__xxh3_bytes};

const heft__xxh3_calls *heft__xxh3(bool portable, heft_error *err) {
    (void)err;
    const heft__xxh3_calls *wide = portable ? NULL : heft__xxh3_wide();
    return wide ? wide : &heft__xxh3_base;
}
#endif
