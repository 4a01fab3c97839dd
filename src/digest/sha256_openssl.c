/* digest: SHA-256 by OpenSSL. Its states come from OpenSSL's own allocator. */
#include "digest/digest.h"

#if HEFT_WITH_OPENSSL
#include "base/error.h"

#include <openssl/evp.h>

heft_status heft__sha256_init(void **state, heft_error *err) {
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    *state = NULL;
    if (!ctx) return heft__fail_memory(err, HEFT_NONE);
    if (EVP_DigestInit_ex(ctx, EVP_sha256(), NULL) != 1) {
        EVP_MD_CTX_free(ctx);
        return heft__fail(err, HEFT_UNSUPPORTED, HEFT_FAULT_CALL, "OpenSSL, as it is set up here, refuses SHA-256");
    }
    *state = ctx;
    return HEFT_OK;
}

void heft__sha256_update(void *state, const void *data, size_t nbytes) {
    EVP_DigestUpdate(state, data, nbytes); /* fails only for a state that is not set up */
}

void heft__sha256_final(void *state, uint8_t *out) {
    if (out) EVP_DigestFinal_ex(state, out, NULL);
    EVP_MD_CTX_free(state);
}
#endif
