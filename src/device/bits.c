/* device: strided copies in memory, by bits: sub-byte elements that do not fill bytes. */
#include "device/device.h"

/* `n` bits, 1 to 8, from bit `at` on. */
static uint32_t bits_get(const uint8_t *src, int64_t at, uint32_t n) {
    const uint8_t *p = src + at / 8;
    uint32_t shift = (uint32_t)(at % 8), value = (uint32_t)p[0] >> shift;
    if (shift + n > 8) value |= (uint32_t)p[1] << (8 - shift);
    return value & ((1u << n) - 1);
}

static void bits_put(uint8_t *dst, int64_t at, uint32_t n, uint32_t value) {
    uint8_t *p = dst + at / 8;
    uint32_t shift = (uint32_t)(at % 8), mask = ((1u << n) - 1) << shift;
    value <<= shift;
    p[0] = (uint8_t)((p[0] & ~mask) | (value & mask));
    if (shift + n > 8) p[1] = (uint8_t)((p[1] & ~(mask >> 8)) | ((value & mask) >> 8));
}

static void bits_unit(uint8_t *dst, int64_t dst_bit, const uint8_t *src, int64_t src_bit, uint64_t unit) {
    for (uint64_t done = 0; done < unit; done += 8) {
        uint32_t n = unit - done < 8 ? (uint32_t)(unit - done) : 8;
        bits_put(dst, dst_bit + (int64_t)done, n, bits_get(src, src_bit + (int64_t)done, n));
    }
}

void heft__copy_bits(uint8_t *dst, int64_t dst_bit, const uint8_t *src, int64_t src_bit, const heft__loop *loops,
                     uint32_t rank, uint64_t unit) {
    uint64_t index[HEFT_MAX_RANK + 1] = {0};
    for (uint32_t d = 0; d < rank; d++)
        if (loops[d].count == 0) return;
    for (;;) {
        bits_unit(dst, dst_bit, src, src_bit, unit);
        uint32_t d = rank;
        while (d-- > 0) {
            src_bit += loops[d].src;
            dst_bit += loops[d].dst;
            if (++index[d] < loops[d].count) break;
            src_bit -= loops[d].src * (int64_t)index[d];
            dst_bit -= loops[d].dst * (int64_t)index[d];
            index[d] = 0;
        }
        if (d == UINT32_MAX) return;
    }
}
