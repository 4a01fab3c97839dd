/* digest: one interface over CRC-32, XXH3-128 and SHA-256, and the digest of a tensor out of those of its chunks. */
#include "digest/digest.h"

#include <string.h>

size_t heft__digest_nbytes(heft__digest_kind kind) {
    switch (kind) {
    case HEFT__DIGEST_CRC32: return 4;
    case HEFT__DIGEST_XXH3: return 16;
    case HEFT__DIGEST_SHA256: break;
    }
    return 32;
}

void heft__digest_text(const uint8_t *digest, size_t nbytes, char *text) {
    for (size_t i = 0; i < nbytes; i++) {
        *text++ = "0123456789abcdef"[digest[i] >> 4];
        *text++ = "0123456789abcdef"[digest[i] & 15];
    }
    *text = 0;
}

/* Vector code wants its state at a multiple of 64, which a struct on the heap need not have. */
static void *digest_xxh3_state(heft__digest *digest) {
    return digest->xxh3 + (64 - (uintptr_t)digest->xxh3 % 64) % 64;
}

static void digest_store_u32(uint32_t value, uint8_t *out) {
    for (int i = 0; i < 4; i++) out[i] = (uint8_t)(value >> (24 - 8 * i));
}

heft_status heft__digest_init(heft__digest *digest, heft__digest_kind kind, heft_error *err) {
    digest->kind = kind;
    digest->crc = 0;
    digest->sha256 = NULL;
    digest->xxh3_calls = NULL;
    if (kind == HEFT__DIGEST_SHA256) return heft__sha256_init(&digest->sha256, err);
    if (kind != HEFT__DIGEST_XXH3) return HEFT_OK;
    digest->xxh3_calls = heft__xxh3(false, err);
    if (!digest->xxh3_calls) return HEFT_UNSUPPORTED;
    digest->xxh3_calls->begin(digest_xxh3_state(digest));
    return HEFT_OK;
}

void heft__digest_update(heft__digest *digest, const void *data, size_t nbytes) {
    if (nbytes == 0) return;
    switch (digest->kind) {
    case HEFT__DIGEST_CRC32: digest->crc = heft__crc32(digest->crc, data, nbytes); break;
    case HEFT__DIGEST_XXH3: digest->xxh3_calls->update(digest_xxh3_state(digest), data, nbytes); break;
    case HEFT__DIGEST_SHA256: heft__sha256_update(digest->sha256, data, nbytes); break;
    }
}

void heft__digest_final(heft__digest *digest, uint8_t *out) {
    switch (digest->kind) {
    case HEFT__DIGEST_CRC32: digest_store_u32(digest->crc, out); break;
    case HEFT__DIGEST_XXH3: digest->xxh3_calls->end(digest_xxh3_state(digest), out); break;
    case HEFT__DIGEST_SHA256: heft__sha256_final(digest->sha256, out); break;
    }
    digest->sha256 = NULL;
}

void heft__digest_drop(heft__digest *digest) {
    if (digest->sha256) heft__sha256_final(digest->sha256, NULL);
    digest->sha256 = NULL;
}

heft_status heft__digest_bytes(heft__digest_kind kind, const void *data, size_t nbytes, uint8_t *out, heft_error *err) {
    if (kind == HEFT__DIGEST_XXH3) { /* its short cut is twice as fast as a state for less than 1 KiB */
        const heft__xxh3_calls *calls = heft__xxh3(false, err);
        if (!calls) return HEFT_UNSUPPORTED;
        calls->bytes(data, nbytes, out);
        return HEFT_OK;
    }
    heft__digest digest;
    heft_status status = heft__digest_init(&digest, kind, err);
    if (status) return status;
    heft__digest_update(&digest, data, nbytes);
    heft__digest_final(&digest, out);
    return HEFT_OK;
}

heft_status heft__tensor_digest_init(heft__tensor_digest *digest, heft_error *err) {
    digest->filled = 0;
    heft_status status = heft__digest_init(&digest->chunk, HEFT__DIGEST_XXH3, err);
    return status ? status : heft__digest_init(&digest->whole, HEFT__DIGEST_XXH3, err);
}

static void tensor_digest_end_chunk(heft__tensor_digest *digest) {
    uint8_t value[16];
    heft__digest_final(&digest->chunk, value);
    heft__digest_update(&digest->whole, value, sizeof value);
    digest->chunk.xxh3_calls->begin(digest_xxh3_state(&digest->chunk));
    digest->filled = 0;
}

void heft__tensor_digest_update(heft__tensor_digest *digest, const void *data, uint64_t nbytes) {
    const uint8_t *at = data;
    while (nbytes) {
        uint64_t room = HEFT__DIGEST_CHUNK - digest->filled, n = nbytes < room ? nbytes : room;
        heft__digest_update(&digest->chunk, at, (size_t)n);
        digest->filled += n;
        at += n;
        nbytes -= n;
        if (digest->filled == HEFT__DIGEST_CHUNK) tensor_digest_end_chunk(digest);
    }
}

void heft__tensor_digest_final(heft__tensor_digest *digest, uint8_t out[16]) {
    if (digest->filled) tensor_digest_end_chunk(digest);
    heft__digest_final(&digest->whole, out);
}
