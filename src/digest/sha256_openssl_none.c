/* digest: SHA-256 of a build without OpenSSL: none. */
#include "digest/digest.h"

#if !HEFT_WITH_OPENSSL
#include "base/error.h"

heft_status heft__sha256_init(void **state, heft_error *err) {
    *state = NULL;
    return heft__fail(err, HEFT_UNSUPPORTED, HEFT_FAULT_CALL,
                      "SHA-256 needs OpenSSL, which this build lacks (HEFT_WITH_OPENSSL)");
}

void heft__sha256_update(void *state, const void *data, size_t nbytes) {
    (void)state, (void)data, (void)nbytes;
}

void heft__sha256_final(void *state, uint8_t *out) {
    (void)state, (void)out;
}
#endif
