/* digest: the four calls of XXH3-128 as the flags of the including file make them. No guard: each file that compiles xxhash.h
 * in its own way includes it. */
#include "digest/digest.h"

#include <xxhash.h>

#include <string.h>

_Static_assert(sizeof(XXH3_state_t) + 63 <= sizeof(((heft__digest *)0)->xxh3), "room for the state of xxhash");

static void heft__xxh3_store(XXH128_hash_t hash, uint8_t out[16]) {
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, hash);
    memcpy(out, canonical.digest, 16);
}

static void heft__xxh3_begin(void *state) {
    XXH3_INITSTATE((XXH3_state_t *)state);
    XXH3_128bits_reset(state);
}

static void heft__xxh3_update(void *state, const void *data, size_t nbytes) {
    XXH3_128bits_update(state, data, nbytes);
}

static void heft__xxh3_end(const void *state, uint8_t out[16]) {
    heft__xxh3_store(XXH3_128bits_digest(state), out);
}

static void heft__xxh3_bytes(const void *data, size_t nbytes, uint8_t out[16]) {
    heft__xxh3_store(XXH3_128bits(data, nbytes), out);
}
