/* device: strided copies in memory, by bytes. The two fastest loops run in a kernel, tile by tile where one side jumps. */
#include "device/device.h"
#include "device/transpose.h"

#include <string.h>

/* Two loops over units: `n` steps outside, `m` inside. */
typedef struct copy_plane {
    uint64_t n, m;
    int64_t n_src, n_dst, m_src, m_dst;
} copy_plane;

#define COPY_KERNEL(name, type, convert)                                                                               \
    void name(uint8_t *dst, const uint8_t *src, const copy_plane *p) {                                                 \
        for (uint64_t i = 0; i < p->n; i++) {                                                                          \
            uint8_t *d = dst + (int64_t)i * p->n_dst;                                                                  \
            const uint8_t *s = src + (int64_t)i * p->n_src;                                                            \
            for (uint64_t j = 0; j < p->m; j++) {                                                                      \
                type value;                                                                                            \
                memcpy(&value, s, sizeof value);                                                                       \
                value = convert(value);                                                                                \
                memcpy(d, &value, sizeof value);                                                                       \
                s += p->m_src;                                                                                         \
                d += p->m_dst;                                                                                         \
            }                                                                                                          \
        }                                                                                                              \
    }

typedef struct copy_16_bytes {
    uint64_t half[2];
} copy_16_bytes;

#define COPY_AS_IS(value) (value)
static COPY_KERNEL(copy_1, uint8_t, COPY_AS_IS)
static COPY_KERNEL(copy_2, uint16_t, COPY_AS_IS)
static COPY_KERNEL(copy_4, uint32_t, COPY_AS_IS)
static COPY_KERNEL(copy_8, uint64_t, COPY_AS_IS)
static COPY_KERNEL(copy_16, copy_16_bytes, COPY_AS_IS)
static COPY_KERNEL(swap_2, uint16_t, __builtin_bswap16)
static COPY_KERNEL(swap_4, uint32_t, __builtin_bswap32)
static COPY_KERNEL(swap_8, uint64_t, __builtin_bswap64)

static void copy_unit(uint8_t *dst, const uint8_t *src, size_t unit, uint32_t swap) {
    if (swap < 2) {
        memcpy(dst, src, unit);
        return;
    }
    copy_plane row = {1, unit / swap, 0, 0, swap, swap};
    (swap == 2 ? swap_2 : swap == 4 ? swap_4 : swap_8)(dst, src, &row);
}

static void copy_any(uint8_t *dst, const uint8_t *src, const copy_plane *p, size_t unit, uint32_t swap) {
    for (uint64_t i = 0; i < p->n; i++)
        for (uint64_t j = 0; j < p->m; j++)
            copy_unit(dst + (int64_t)i * p->n_dst + (int64_t)j * p->m_dst,
                      src + (int64_t)i * p->n_src + (int64_t)j * p->m_src, unit, swap);
}

static void copy_tile(uint8_t *dst, const uint8_t *src, const copy_plane *p, size_t unit, uint32_t swap) {
    if (swap > 1 && unit == swap) (swap == 2 ? swap_2 : swap == 4 ? swap_4 : swap_8)(dst, src, p);
    else if (swap > 1) copy_any(dst, src, p, unit, swap);
    else if (unit == 1) copy_1(dst, src, p);
    else if (unit == 2) copy_2(dst, src, p);
    else if (unit == 4) copy_4(dst, src, p);
    else if (unit == 8) copy_8(dst, src, p);
    else if (unit == 16) copy_16(dst, src, p);
    else copy_any(dst, src, p, unit, 0);
}

/* So much is not read again out of a cache, and need not be fetched into one before it is written. */
#define COPY_STREAM (UINT64_C(2) << 20)

/* A plane that is contiguous on both sides, each in its direction, and at least one tile large. The last tiles of a row or
 * column lie over the ones before, and write the same once more. */
static void copy_transposed(uint8_t *dst, const uint8_t *src, const copy_plane *p, size_t unit) {
    const uint64_t side = HEFT__TRANSPOSE_SIDE / unit;
    bool aligned = (uintptr_t)dst % 16 == 0 && p->n_dst % 16 == 0 && p->m * unit % 16 == 0;
    bool stream = aligned && p->n * p->m >= COPY_STREAM / unit;
    for (uint64_t i = 0; i < p->n; i += side)
        for (uint64_t j = 0; j < p->m; j += side) {
            int64_t row = (int64_t)(p->n - i < side ? p->n - side : i), column = (int64_t)(p->m - j < side ? p->m - side : j);
            heft__transpose_tile(dst + row * p->n_dst + column * p->m_dst, p->n_dst,
                                 src + row * p->n_src + column * p->m_src, p->m_src, unit, stream);
        }
    if (stream) heft__transpose_end();
}

/* A plane whose inner loop runs along the destination while its outer one runs along the source is cut into tiles, so that
 * each cache line is fetched once. */
enum { COPY_TILE = 32, COPY_TILE_UNIT = 16 };

static void copy_plane_run(uint8_t *dst, const uint8_t *src, const copy_plane *p, size_t unit, uint32_t swap) {
    if (p->n < 2 || p->m < 2 || unit > COPY_TILE_UNIT || p->n_src >= p->m_src) {
        copy_tile(dst, src, p, unit, swap);
        return;
    }
    bool square = swap < 2 && heft__transpose_can(unit) && p->n_src == (int64_t)unit && p->m_dst == (int64_t)unit;
    if (square && p->n >= HEFT__TRANSPOSE_SIDE / unit && p->m >= HEFT__TRANSPOSE_SIDE / unit) {
        copy_transposed(dst, src, p, unit);
        return;
    }
    for (uint64_t i = 0; i < p->n; i += COPY_TILE)
        for (uint64_t j = 0; j < p->m; j += COPY_TILE) {
            copy_plane tile = *p;
            if (tile.n - i < COPY_TILE) tile.n -= i;
            else tile.n = COPY_TILE;
            if (tile.m - j < COPY_TILE) tile.m -= j;
            else tile.m = COPY_TILE;
            copy_tile(dst + (int64_t)i * p->n_dst + (int64_t)j * p->m_dst,
                      src + (int64_t)i * p->n_src + (int64_t)j * p->m_src, &tile, unit, swap);
        }
}

static uint64_t copy_magnitude(int64_t step) {
    return step < 0 ? 0 - (uint64_t)step : (uint64_t)step;
}

void heft__copy_loops(uint8_t *dst, const uint8_t *src, const heft__loop *loops, uint32_t rank, size_t unit,
                      uint32_t swap) {
    uint32_t inner = rank, outer = rank; /* inner: the smallest step in dst; outer: the smallest in src of the others */
    for (uint32_t d = rank; d-- > 0;) {
        if (loops[d].count == 0) return;
        if (loops[d].count > 1 &&
            (inner == rank || copy_magnitude(loops[d].dst) < copy_magnitude(loops[inner].dst)))
            inner = d;
    }
    if (inner == rank) {
        copy_unit(dst, src, unit, swap);
        return;
    }
    for (uint32_t d = rank; d-- > 0;)
        if (d != inner && loops[d].count > 1 && (outer == rank || loops[d].src < loops[outer].src)) outer = d;
    copy_plane plane = {1, loops[inner].count, 0, 0, loops[inner].src, loops[inner].dst};
    if (outer < rank) {
        plane.n = loops[outer].count;
        plane.n_src = loops[outer].src;
        plane.n_dst = loops[outer].dst;
    }
    uint64_t index[HEFT_MAX_RANK + 1] = {0};
    for (;;) {
        copy_plane_run(dst, src, &plane, unit, swap);
        uint32_t d = rank;
        while (d-- > 0) {
            if (d == inner || d == outer) continue;
            src += loops[d].src;
            dst += loops[d].dst;
            if (++index[d] < loops[d].count) break;
            src -= loops[d].src * (int64_t)index[d];
            dst -= loops[d].dst * (int64_t)index[d];
            index[d] = 0;
        }
        if (d == UINT32_MAX) return;
    }
}
