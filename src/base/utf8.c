/* base: checks, reads and writes UTF-8; plain ASCII, which names nearly always are, goes by in vectors. */
#include "base/utf8.h"

#include <string.h>

#if defined(__SSE2__)
#include <emmintrin.h>
#elif defined(__aarch64__) && defined(__ARM_NEON)
#include <arm_neon.h>
#endif

/* Bytes of the valid sequence at p[0..left), left > 0; 0 if it is bad. The second byte's range is what keeps out
 * overlong forms (E0, F0), surrogates (ED) and values above U+10FFFF (F4). */
static inline size_t utf8_sequence(const uint8_t *p, size_t left) {
    uint8_t lead = p[0];
    if (lead < 0x80) return 1;
    if (lead < 0xC2 || lead > 0xF4) return 0;
    size_t n = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    if (left < n) return 0;
    uint8_t low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
    uint8_t high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
    if (p[1] < low || p[1] > high) return 0;
    if (n > 2 && (p[2] & 0xC0) != 0x80) return 0;
    if (n > 3 && (p[3] & 0xC0) != 0x80) return 0;
    return n;
}

/* Length of the ASCII run at p[0..len), by words of eight bytes. */
static inline size_t utf8_ascii_words(const uint8_t *p, size_t len) {
    size_t i = 0;
    for (; i + 8 <= len; i += 8) {
        uint64_t word;
        memcpy(&word, p + i, 8);
        if (word & UINT64_C(0x8080808080808080)) break;
    }
    while (i < len && p[i] < 0x80) i++;
    return i;
}

/* The same with vectors, where there are any. */
static inline size_t utf8_ascii_vectors(const uint8_t *p, size_t len) {
    size_t i = 0;
#if defined(__SSE2__)
    for (; i + 64 <= len; i += 64) {
        const __m128i *v = (const __m128i *)(const void *)(p + i);
        __m128i any = _mm_or_si128(_mm_or_si128(_mm_loadu_si128(v), _mm_loadu_si128(v + 1)),
                                   _mm_or_si128(_mm_loadu_si128(v + 2), _mm_loadu_si128(v + 3)));
        if (_mm_movemask_epi8(any)) break;
    }
    for (; i + 16 <= len; i += 16) {
        int mask = _mm_movemask_epi8(_mm_loadu_si128((const __m128i *)(const void *)(p + i)));
        if (mask) return i + (size_t)__builtin_ctz((unsigned)mask);
    }
#elif defined(__aarch64__) && defined(__ARM_NEON)
    for (; i + 64 <= len; i += 64) {
        uint8x16_t any = vorrq_u8(vorrq_u8(vld1q_u8(p + i), vld1q_u8(p + i + 16)),
                                  vorrq_u8(vld1q_u8(p + i + 32), vld1q_u8(p + i + 48)));
        if (vmaxvq_u8(any) >= 0x80) break;
    }
#endif
    return i + utf8_ascii_words(p + i, len - i);
}

/* Length of the run of three-byte sequences at p[0..len), which text of East Asia consists of. */
static inline size_t utf8_threes(const uint8_t *p, size_t len) {
    size_t i = 0;
    for (; len - i >= 3; i += 3) {
        uint32_t three = (uint32_t)p[i] << 16 | (uint32_t)p[i + 1] << 8 | p[i + 2];
        uint32_t high = three & 0x0F2000; /* bits 11 to 15 of the character: 0 is overlong, 11011 a surrogate */
        if ((three & 0xF0C0C0) != 0xE08080 || high == 0 || high == 0x0D2000) break;
    }
    return i;
}

size_t heft__utf8_check(const char *text, size_t len) {
    const uint8_t *p = (const uint8_t *)text;
    size_t at = 0;
    while (at < len) {
        if (p[at] < 0x80) {
            at += utf8_ascii_vectors(p + at, len - at);
            continue;
        }
        size_t n = p[at] >= 0xE0 ? utf8_threes(p + at, len - at) : 0;
        if (n == 0) n = utf8_sequence(p + at, len - at);
        if (n == 0) return at;
        at += n;
    }
    return len;
}

size_t heft__utf8_check_portable(const char *text, size_t len) {
    const uint8_t *p = (const uint8_t *)text;
    size_t at = 0;
    while (at < len) {
        at += utf8_ascii_words(p + at, len - at);
        if (at == len) break;
        size_t n = utf8_sequence(p + at, len - at);
        if (n == 0) return at;
        at += n;
    }
    return len;
}

uint32_t heft__utf8_decode(const char *text, size_t len, size_t *nbytes) {
    const uint8_t *p = (const uint8_t *)text;
    size_t n = utf8_sequence(p, len);
    *nbytes = n ? n : 1;
    switch (n) {
    case 1: return p[0];
    case 2: return (uint32_t)(p[0] & 0x1F) << 6 | (p[1] & 0x3F);
    case 3: return (uint32_t)(p[0] & 0x0F) << 12 | (uint32_t)(p[1] & 0x3F) << 6 | (p[2] & 0x3F);
    case 4:
        return (uint32_t)(p[0] & 0x07) << 18 | (uint32_t)(p[1] & 0x3F) << 12 | (uint32_t)(p[2] & 0x3F) << 6 |
               (p[3] & 0x3F);
    default: return 0xFFFD;
    }
}

size_t heft__utf8_encode(uint32_t code, char *dst) {
    if (code < 0x80) {
        dst[0] = (char)code;
        return 1;
    }
    size_t n = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (size_t i = n - 1; i > 0; i--) {
        dst[i] = (char)(0x80 | (code & 0x3F));
        code >>= 6;
    }
    dst[0] = (char)((n == 2 ? 0xC0u : n == 3 ? 0xE0u : 0xF0u) | code);
    return n;
}

size_t heft__utf8_cut(const char *text, size_t len) {
    const uint8_t *p = (const uint8_t *)text;
    for (size_t back = 1; back <= 3 && back <= len; back++) {
        uint8_t byte = p[len - back];
        if (byte < 0x80) return len;
        if (byte >= 0xC0) {
            size_t n = byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
            return n > back ? len - back : len;
        }
    }
    return len;
}
