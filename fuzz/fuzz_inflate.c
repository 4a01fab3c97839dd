/* fuzz: deflate data. The first two bytes say how many bytes are wanted; both ways of decoding agree, and so does the start. */
#include "zip/zip.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 2) return 0;
    size_t n = (size_t)data[0] | (size_t)data[1] << 8;
    uint8_t *a = malloc(n + 1), *b = malloc(n + 1), *in = malloc(size - 2 + 1);
    memcpy(in, data + 2, size - 2);
    memset(a, 1, n + 1);
    memset(b, 2, n + 1);
    bool whole = heft__inflate_portable(in, size - 2, a, n, false);
    if (heft__inflate(in, size - 2, b, n) != whole) abort();
    if (whole && memcmp(a, b, n) != 0) abort();
    bool start = heft__inflate_portable(in, size - 2, b, n, true);
    if (whole && (!start || memcmp(a, b, n) != 0)) abort();
    size_t half = n / 2;
    if (start) {
        memset(a, 3, n + 1);
        if (!heft__inflate_portable(in, size - 2, a, half, true) || memcmp(a, b, half) != 0) abort();
    }
    free(in);
    free(a);
    free(b);
    return 0;
}
