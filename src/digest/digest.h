/* digest: checksums of bytes behind one interface. CRC-32 is always there; XXH3-128 and SHA-256 need an optional
 * library. */
#ifndef HEFT_DIGEST_DIGEST_H
#define HEFT_DIGEST_DIGEST_H

#include "heft/core.h"

typedef enum heft__digest_kind {
    HEFT__DIGEST_CRC32, /* of zip and gzip: polynomial EDB88320, reflected */
    HEFT__DIGEST_XXH3,  /* XXH3-128, seed 0 (HEFT_WITH_XXHASH) */
    HEFT__DIGEST_SHA256 /* HEFT_WITH_OPENSSL */
} heft__digest_kind;

/* Bytes of the longest digest, and of its text with the final NUL. */
#define HEFT__DIGEST_MOST      32
#define HEFT__DIGEST_TEXT_MOST 65

/* Bytes of a digest of this kind: 4, 16, 32. */
size_t heft__digest_nbytes(heft__digest_kind kind);

/* Lower-case hexadecimal with a NUL after it; `text` has room for 2 x nbytes + 1. */
void heft__digest_text(const uint8_t *digest, size_t nbytes, char *text);

/* ---- as bytes come. One thread at a time; the struct may not be copied or moved between init and final. ---- */
typedef struct heft__digest {
    heft__digest_kind kind;
    uint32_t crc;
    void *sha256;
    const struct heft__xxh3_calls *xxh3_calls;
    uint8_t xxh3[640]; /* XXH3_state_t at the first multiple of 64 */
} heft__digest;

/* UNSUPPORTED, naming the build option, where the build lacks the library; OUT_OF_MEMORY. After a failure there is
 * nothing to free. */
heft_status heft__digest_init(heft__digest *digest, heft__digest_kind kind, heft_error *err);
void heft__digest_update(heft__digest *digest, const void *data, size_t nbytes);
/* The canonical bytes, most significant first; frees what the state holds. */
void heft__digest_final(heft__digest *digest, uint8_t *out);
/* Instead of final, when nobody wants the result. */
void heft__digest_drop(heft__digest *digest);

/* All at once. Errors as heft__digest_init. */
heft_status heft__digest_bytes(heft__digest_kind kind, const void *data, size_t nbytes, uint8_t *out, heft_error *err);

/* ---- the digest of a tensor: XXH3-128 over the 16-byte XXH3-128 values of its consecutive chunks, so that blocks may
 * finish in any order. In parallel: heft__digest_bytes of each chunk, then of all their values side by side. An empty
 * tensor has no chunk. ---- */
#define HEFT__DIGEST_CHUNK (UINT64_C(4) << 20)

typedef struct heft__tensor_digest {
    uint64_t filled; /* bytes of the current chunk */
    heft__digest chunk, whole;
} heft__tensor_digest;

heft_status heft__tensor_digest_init(heft__tensor_digest *digest, heft_error *err);
void heft__tensor_digest_update(heft__tensor_digest *digest, const void *data, uint64_t nbytes);
void heft__tensor_digest_final(heft__tensor_digest *digest, uint8_t out[16]);

/* ---- CRC-32 ---- */

/* Continues `crc` (0 at the start) over more bytes. */
uint32_t heft__crc32(uint32_t crc, const void *data, size_t nbytes);
uint32_t heft__crc32_portable(uint32_t crc, const void *data, size_t nbytes); /* the fallback, for tests too */
/* The CRC of two pieces side by side, from those of the pieces and the length of the second. */
uint32_t heft__crc32_combine(uint32_t first, uint32_t second, uint64_t second_nbytes);

/* ---- what the optional files provide ---- */

typedef struct heft__xxh3_calls {
    void (*begin)(void *state);
    void (*update)(void *state, const void *data, size_t nbytes);
    void (*end)(const void *state, uint8_t out[16]);
    void (*bytes)(const void *data, size_t nbytes, uint8_t out[16]);
} heft__xxh3_calls;

/* The best for this processor; `portable`: without vectors wider than the flags of the build give. NULL with
 * UNSUPPORTED. */
const heft__xxh3_calls *heft__xxh3(bool portable, heft_error *err);
const heft__xxh3_calls *heft__xxh3_wide(void); /* with wider vectors; NULL: not on this processor, or in this build */
extern const heft__xxh3_calls heft__xxh3_base, heft__xxh3_avx2;

heft_status heft__sha256_init(void **state, heft_error *err);
void heft__sha256_update(void *state, const void *data, size_t nbytes);
void heft__sha256_final(void *state, uint8_t *out); /* out NULL: only frees */

#endif
