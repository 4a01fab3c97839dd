/* zip: deflate data decoded without a library, bit by bit in the tables and a byte at a time in copies. It is what a
 * build without libdeflate uses, and what decodes the first bytes of a member in any build. Rule source: RFC 1951. */
#include "zip/zip.h"

#include <string.h>

enum { INFLATE_BITS = 15, INFLATE_LENGTHS = 288, INFLATE_DISTANCES = 30, INFLATE_FAST = 9 };

/* A canonical code: how many codes there are of each length, and their symbols in order; and a table by the next bits
 * for the short ones: symbol << 4 | length, 0 for longer codes and for none. */
typedef struct inflate_code {
    uint16_t count[INFLATE_BITS + 1];
    uint16_t symbol[INFLATE_LENGTHS];
    uint16_t fast[1 << INFLATE_FAST];
} inflate_code;

typedef struct inflate_state {
    const uint8_t *in, *in_end;
    uint8_t *out, *at, *end;
    uint64_t bits;
    uint32_t nbits;
    bool start;
    inflate_code lengths, distances;
} inflate_state;

/* Makes at least 32 bits available; behind the input they are zero, which the caller of take notices. */
static void inflate_fill(inflate_state *s) {
    while (s->nbits <= 56 && s->in < s->in_end) {
        s->bits |= (uint64_t)*s->in++ << s->nbits;
        s->nbits += 8;
    }
}

/* The next n <= 16 bits; false: the input has ended. */
static bool inflate_take(inflate_state *s, uint32_t n, uint32_t *out) {
    if (s->nbits < n) inflate_fill(s);
    if (s->nbits < n) return false;
    *out = (uint32_t)(s->bits & ((UINT64_C(1) << n) - 1));
    s->bits >>= n;
    s->nbits -= n;
    return true;
}

static uint32_t inflate_reverse(uint32_t code, uint32_t len) {
    uint32_t out = 0;
    for (; len; len--, code >>= 1) out = out << 1 | (code & 1);
    return out;
}

/* False: the lengths are no code. One that is not full is allowed where RFC 1951 has it: a single code of one bit, or
 * none. */
static bool inflate_build(inflate_code *code, const uint8_t *len, uint32_t n) {
    uint16_t next[INFLATE_BITS + 2];
    uint32_t first[INFLATE_BITS + 2], used = 0;
    int32_t left = 1;
    memset(code, 0, sizeof *code);
    for (uint32_t i = 0; i < n; i++) code->count[len[i]]++;
    used = n - code->count[0];
    code->count[0] = 0;
    for (uint32_t b = 1; b <= INFLATE_BITS; b++) {
        left = left * 2 - code->count[b];
        if (left < 0) return false;
    }
    if (left > 0 && !(used == 0 || (used == 1 && code->count[1] == 1))) return false;
    next[1] = 0;
    first[1] = 0;
    for (uint32_t b = 1; b <= INFLATE_BITS; b++) {
        next[b + 1] = (uint16_t)(next[b] + code->count[b]);
        first[b + 1] = (first[b] + code->count[b]) << 1;
    }
    for (uint32_t i = 0; i < n; i++) {
        uint32_t b = len[i];
        if (b == 0) continue;
        code->symbol[next[b]++] = (uint16_t)i;
        uint32_t value = first[b]++;
        if (b > INFLATE_FAST) continue;
        for (uint32_t at = inflate_reverse(value, b); at < 1u << INFLATE_FAST; at += 1u << b)
            code->fast[at] = (uint16_t)(i << 4 | b);
    }
    return true;
}

static bool inflate_symbol(inflate_state *s, const inflate_code *code, uint32_t *out) {
    if (s->nbits < INFLATE_BITS) inflate_fill(s);
    uint32_t fast = code->fast[s->bits & ((1u << INFLATE_FAST) - 1)], b = fast & 15;
    if (fast && b <= s->nbits) {
        s->bits >>= b;
        s->nbits -= b;
        *out = fast >> 4;
        return true;
    }
    uint32_t value = 0, first = 0, index = 0;
    for (b = 1; b <= INFLATE_BITS && b <= s->nbits; b++) {
        value |= (uint32_t)(s->bits >> (b - 1) & 1);
        uint32_t count = code->count[b];
        if (value - first < count) {
            s->bits >>= b;
            s->nbits -= b;
            *out = code->symbol[index + (value - first)];
            return true;
        }
        index += count;
        first = (first + count) << 1;
        value <<= 1;
    }
    return false;
}

/* Room for n bytes, or for some of them where only the start is wanted. */
static bool inflate_room(const inflate_state *s, size_t *n) {
    size_t room = (size_t)(s->end - s->at);
    if (*n <= room) return true;
    *n = room;
    return s->start;
}

static bool inflate_stored(inflate_state *s) {
    uint32_t length, inverse, skip;
    if (!inflate_take(s, s->nbits % 8, &skip) || !inflate_take(s, 16, &length) || !inflate_take(s, 16, &inverse) ||
        length != (inverse ^ 0xFFFF))
        return false;
    size_t n = length;
    s->in -= s->nbits / 8; /* whole bytes that were taken too early */
    s->bits = s->nbits = 0;
    if (n > (size_t)(s->in_end - s->in) || !inflate_room(s, &n)) return false;
    if (n) memcpy(s->at, s->in, n);
    s->at += n;
    s->in += n;
    return true;
}

static bool inflate_copy(inflate_state *s, uint32_t symbol) {
    static const uint16_t length_base[] = {3,  4,  5,  6,  7,  8,  9,  10, 11,  13,  15,  17,  19,  23, 27,
                                           31, 35, 43, 51, 59, 67, 83, 99, 115, 131, 163, 195, 227, 258};
    static const uint8_t length_extra[] = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2,
                                           2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 0};
    static const uint16_t distance_base[] = {1,    2,    3,    4,    5,    7,    9,    13,    17,    25,
                                             33,   49,   65,   97,   129,  193,  257,  385,   513,   769,
                                             1025, 1537, 2049, 3073, 4097, 6145, 8193, 12289, 16385, 24577};
    uint32_t more, length, distance;
    if (symbol > 285 || !inflate_take(s, length_extra[symbol - 257], &more)) return false;
    length = length_base[symbol - 257] + more;
    if (!inflate_symbol(s, &s->distances, &symbol) || symbol >= INFLATE_DISTANCES) return false;
    if (!inflate_take(s, symbol < 4 ? 0 : symbol / 2 - 1, &more)) return false;
    distance = distance_base[symbol] + more;
    size_t n = length;
    if (distance > (size_t)(s->at - s->out) || !inflate_room(s, &n)) return false;
    for (const uint8_t *from = s->at - distance; n--;) *s->at++ = *from++; /* they may overlap */
    return true;
}

static bool inflate_codes(inflate_state *s) {
    uint32_t symbol;
    while (!(s->start && s->at == s->end)) {
        if (!inflate_symbol(s, &s->lengths, &symbol)) return false;
        if (symbol == 256) return true;
        if (symbol > 256) {
            if (!inflate_copy(s, symbol)) return false;
        } else {
            if (s->at == s->end) return false;
            *s->at++ = (uint8_t)symbol;
        }
    }
    return true;
}

static bool inflate_fixed(inflate_state *s) {
    uint8_t len[INFLATE_LENGTHS];
    memset(len, 8, 144);
    memset(len + 144, 9, 112);
    memset(len + 256, 7, 24);
    memset(len + 280, 8, 8);
    inflate_build(&s->lengths, len, INFLATE_LENGTHS);
    memset(len, 5, 32);
    inflate_build(&s->distances, len, 32);
    return inflate_codes(s);
}

static bool inflate_dynamic(inflate_state *s) {
    static const uint8_t order[19] = {16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15};
    uint8_t len[INFLATE_LENGTHS + 32] = {0}, code_len[19] = {0};
    uint32_t nlengths, ndistances, ncodes, symbol, repeat, at = 0;
    if (!inflate_take(s, 5, &nlengths) || !inflate_take(s, 5, &ndistances) || !inflate_take(s, 4, &ncodes))
        return false;
    nlengths += 257;
    ndistances += 1;
    if (nlengths > 286 || ndistances > INFLATE_DISTANCES) return false;
    for (uint32_t i = 0; i < ncodes + 4; i++) {
        if (!inflate_take(s, 3, &symbol)) return false;
        code_len[order[i]] = (uint8_t)symbol;
    }
    if (!inflate_build(&s->lengths, code_len, 19)) return false;
    while (at < nlengths + ndistances) {
        uint8_t value = 0;
        if (!inflate_symbol(s, &s->lengths, &symbol)) return false;
        if (symbol < 16) {
            len[at++] = (uint8_t)symbol;
            continue;
        }
        if (symbol == 16 && at == 0) return false;
        if (symbol == 16) value = len[at - 1];
        if (!inflate_take(s, symbol == 16 ? 2 : symbol == 17 ? 3 : 7, &repeat)) return false;
        repeat += symbol == 18 ? 11 : 3;
        if (repeat > nlengths + ndistances - at) return false;
        memset(len + at, value, repeat);
        at += repeat;
    }
    return len[256] && inflate_build(&s->lengths, len, nlengths) &&
           inflate_build(&s->distances, len + nlengths, ndistances) && inflate_codes(s);
}

bool heft__inflate_portable(const uint8_t *in, size_t in_nbytes, uint8_t *out, size_t out_nbytes, bool start) {
    inflate_state s = {
        .in = in, .in_end = in + in_nbytes, .out = out, .at = out, .end = out + out_nbytes, .start = start};
    uint32_t last = 0, type;
    while (!last) {
        if (start && s.at == s.end) return true;
        if (!inflate_take(&s, 1, &last) || !inflate_take(&s, 2, &type)) return false;
        if (!(type == 0 ? inflate_stored(&s) : type == 1 ? inflate_fixed(&s) : type == 2 && inflate_dynamic(&s)))
            return false;
    }
    return s.at == s.end && (start || (s.in == s.in_end && s.nbits < 8));
}
