/* device: square tiles transposed in vectors of 16 bytes, which the compiler makes of whatever the processor has. */
#include "device/transpose.h"

#include <string.h>

typedef uint8_t transpose_bytes __attribute__((vector_size(16)));
typedef uint16_t transpose_pairs __attribute__((vector_size(16)));
typedef uint32_t transpose_fours __attribute__((vector_size(16)));
typedef uint64_t transpose_eights __attribute__((vector_size(16)));

/* N vectors of N elements of SIZE bytes are transposed by interleaving vector i with vector i + N / 2, log2(N) times. What comes
 * out is first kept in a tile of its own, so that lines of the destination are written whole. */
#define TRANSPOSE_TILE(name, vector, SIZE, LOW, HIGH)                                                                   \
    void name(uint8_t *dst, int64_t dst_step, const uint8_t *src, int64_t src_step, bool stream) {                     \
        enum { N = 16 / (SIZE), SIDE = HEFT__TRANSPOSE_SIDE / (SIZE), PARTS = HEFT__TRANSPOSE_SIDE / 16 };             \
        _Alignas(64) uint8_t tile[SIDE][HEFT__TRANSPOSE_SIDE];                                                         \
        for (int row = 0; row < SIDE; row += N)                                                                        \
            for (int part = 0; part < PARTS; part++) {                                                                 \
                vector a[N], b[N];                                                                                     \
                for (int i = 0; i < N; i++) memcpy(&a[i], src + (row + i) * src_step + part * 16, 16);                 \
                for (int n = 1; n < N; n *= 2) {                                                                       \
                    for (int i = 0; i < N / 2; i++) {                                                                  \
                        b[2 * i] = LOW(a[i], a[i + N / 2]);                                                            \
                        b[2 * i + 1] = HIGH(a[i], a[i + N / 2]);                                                       \
                    }                                                                                                  \
                    memcpy(a, b, sizeof a);                                                                            \
                }                                                                                                      \
                for (int i = 0; i < N; i++) memcpy(&tile[part * N + i][row * (SIZE)], &a[i], 16);                      \
            }                                                                                                          \
        if (stream) heft__transpose_put(dst, dst_step, tile[0], SIDE);                                                 \
        else                                                                                                           \
            for (int i = 0; i < SIDE; i++) memcpy(dst + i * dst_step, tile[i], HEFT__TRANSPOSE_SIDE);                  \
    }

#define TRANSPOSE_LOW_1(a, b) __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23)
#define TRANSPOSE_HIGH_1(a, b) __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31)
#define TRANSPOSE_LOW_2(a, b) __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11)
#define TRANSPOSE_HIGH_2(a, b) __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15)
#define TRANSPOSE_LOW_4(a, b) __builtin_shufflevector(a, b, 0, 4, 1, 5)
#define TRANSPOSE_HIGH_4(a, b) __builtin_shufflevector(a, b, 2, 6, 3, 7)
#define TRANSPOSE_LOW_8(a, b) __builtin_shufflevector(a, b, 0, 2)
#define TRANSPOSE_HIGH_8(a, b) __builtin_shufflevector(a, b, 1, 3)

static TRANSPOSE_TILE(transpose_1, transpose_bytes, 1, TRANSPOSE_LOW_1, TRANSPOSE_HIGH_1)
static TRANSPOSE_TILE(transpose_2, transpose_pairs, 2, TRANSPOSE_LOW_2, TRANSPOSE_HIGH_2)
static TRANSPOSE_TILE(transpose_4, transpose_fours, 4, TRANSPOSE_LOW_4, TRANSPOSE_HIGH_4)
static TRANSPOSE_TILE(transpose_8, transpose_eights, 8, TRANSPOSE_LOW_8, TRANSPOSE_HIGH_8)

/* The rows of a matrix often lie a power of two apart, and their lines share one set of the first cache then, which holds 8 to
 * 12 of them. Single bytes want 16 at a time: each line is read whole first, lest it be fetched four times. */
static void transpose_lines_1(uint8_t *dst, int64_t dst_step, const uint8_t *src, int64_t src_step, bool stream) {
    _Alignas(64) uint8_t lines[HEFT__TRANSPOSE_SIDE][HEFT__TRANSPOSE_SIDE];
    for (int i = 0; i < HEFT__TRANSPOSE_SIDE; i++) memcpy(lines[i], src + i * src_step, HEFT__TRANSPOSE_SIDE);
    transpose_1(dst, dst_step, lines[0], HEFT__TRANSPOSE_SIDE, stream);
}

bool heft__transpose_can(size_t unit) {
    return unit == 1 || unit == 2 || unit == 4 || unit == 8;
}

void heft__transpose_tile(uint8_t *dst, int64_t dst_step, const uint8_t *src, int64_t src_step, size_t unit, bool stream) {
    if (unit == 1) transpose_lines_1(dst, dst_step, src, src_step, stream);
    else if (unit == 2) transpose_2(dst, dst_step, src, src_step, stream);
    else if (unit == 4) transpose_4(dst, dst_step, src, src_step, stream);
    else transpose_8(dst, dst_step, src, src_step, stream);
}
