/* device: square tiles of a matrix, transposed: what copies use where source and destination run in different directions. */
#ifndef HEFT_DEVICE_TRANSPOSE_H
#define HEFT_DEVICE_TRANSPOSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes of a side: each cache line of the source is read once, and each of the destination written once. */
enum { HEFT__TRANSPOSE_SIDE = 64 };

/* Element (row, column) of the source, at src + row x src_step + column x unit, goes to dst + column x dst_step + row x unit:
 * HEFT__TRANSPOSE_SIDE / unit rows and as many columns. `stream`: past the caches; dst and dst_step are multiples of 16 then, and
 * heft__transpose_end follows after the last tile. */
void heft__transpose_tile(uint8_t *dst, int64_t dst_step, const uint8_t *src, int64_t src_step, size_t unit, bool stream);
void heft__transpose_end(void);
bool heft__transpose_can(size_t unit); /* elements of 1, 2, 4 and 8 bytes */

/* Lines of a tile that starts at a multiple of 16, past the caches (transpose_stream.c). */
void heft__transpose_put(uint8_t *dst, int64_t dst_step, const uint8_t *tile, size_t nrows);

#endif
