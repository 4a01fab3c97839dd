/* base: what this build can do on this processor. */
#include "heft/core.h"

uint64_t heft_features(void) {
    uint64_t features = 0;
#if defined(__unix__) || defined(__APPLE__)
    features |= HEFT_FEATURE_MAP;
#endif
#if defined(__linux__)
    features |= HEFT_FEATURE_HUGE_PAGES | HEFT_FEATURE_VECTOR_READ;
#endif
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    features |= HEFT_FEATURE_BIG_ENDIAN;
#endif
#if HEFT_WITH_URING
    features |= HEFT_FEATURE_URING;
#endif
#if HEFT_WITH_XXHASH
    features |= HEFT_FEATURE_XXHASH;
#endif
#if HEFT_WITH_DEFLATE
    features |= HEFT_FEATURE_DEFLATE;
#endif
#if HEFT_WITH_OPENSSL
    features |= HEFT_FEATURE_OPENSSL;
#endif
    return features;
}
