/* digest: CRC-32 without a library, eight bytes at a time, and the CRC of two pieces side by side. */
#include "digest/digest.h"

#include <string.h>

#define CRC32_POLYNOMIAL UINT32_C(0xEDB88320)
/* From so many bytes on, tables of 8 KiB are worth making; they take about as long as 2 KiB by halves of bytes. */
#define CRC32_TABLE_MIN 8192

/* The CRC of each half of a byte: 4 steps of the polynomial division. */
static const uint32_t crc32_halves[16] = {0x00000000, 0x1DB71064, 0x3B6E20C8, 0x26D930AC, 0x76DC4190, 0x6B6B51F4,
                                          0x4DB26158, 0x5005713C, 0xEDB88320, 0xF00F9344, 0xD6D6A3E8, 0xCB61B38C,
                                          0x9B64C2B0, 0x86D3D2D4, 0xA00AE278, 0xBDBDF21C};

static uint32_t crc32_byte(uint32_t crc) {
    crc = crc32_halves[crc & 15] ^ crc >> 4;
    return crc32_halves[crc & 15] ^ crc >> 4;
}

static uint32_t crc32_slices(uint32_t crc, const uint8_t *p, size_t n) {
    uint32_t table[8][256];
    for (uint32_t i = 0; i < 256; i++) table[0][i] = crc32_byte(i);
    for (int k = 1; k < 8; k++)
        for (uint32_t i = 0; i < 256; i++) table[k][i] = table[0][table[k - 1][i] & 255] ^ table[k - 1][i] >> 8;
    for (; n >= 8; n -= 8, p += 8) {
        crc ^= (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
        crc = table[7][crc & 255] ^ table[6][crc >> 8 & 255] ^ table[5][crc >> 16 & 255] ^ table[4][crc >> 24] ^
              table[3][p[4]] ^ table[2][p[5]] ^ table[1][p[6]] ^ table[0][p[7]];
    }
    while (n--) crc = table[0][(crc ^ *p++) & 255] ^ crc >> 8;
    return crc;
}

uint32_t heft__crc32_portable(uint32_t crc, const void *data, size_t nbytes) {
    const uint8_t *p = data;
    crc = ~crc;
    if (nbytes >= CRC32_TABLE_MIN) return ~crc32_slices(crc, p, nbytes);
    while (nbytes--) {
        uint32_t low = (crc ^ *p++) & 255;
        crc = crc32_byte(low) ^ crc >> 8;
    }
    return ~crc;
}

/* a x b modulo the polynomial; bit 31 is x^0. */
static uint32_t crc32_multiply(uint32_t a, uint32_t b) {
    uint32_t product = 0;
    for (; a; a <<= 1) {
        if (a >> 31) product ^= b;
        b = b & 1 ? b >> 1 ^ CRC32_POLYNOMIAL : b >> 1;
    }
    return product;
}

/* Bytes after a piece multiply its CRC by x^8 each; the power is made by squaring. */
uint32_t heft__crc32_combine(uint32_t first, uint32_t second, uint64_t second_nbytes) {
    uint32_t power = UINT32_C(1) << 23; /* x^8 */
    for (uint64_t n = second_nbytes; n && first; n >>= 1) {
        if (n & 1) first = crc32_multiply(first, power);
        power = crc32_multiply(power, power);
    }
    return first ^ second;
}
