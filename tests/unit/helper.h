/* What every unit test includes: cmocka with its prerequisites, and the public headers. */
#ifndef HEFT_TESTS_HELPER_H
#define HEFT_TESTS_HELPER_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/utf8.h"
#include "heft/heft.h"

/* Cases of a random test: n, or fewer (at least 1) where HEFT_TEST_DIVISOR says that programs run slowly: under an emulator
 * or a sanitizer. */
static inline uint64_t test_count(uint64_t n) {
    const char *text = getenv("HEFT_TEST_DIVISOR");
    uint64_t divisor = text ? strtoull(text, NULL, 10) : 1;
    return divisor > 1 && n / divisor ? n / divisor : divisor > 1 ? 1 : n;
}

/* True under an emulator of another processor, which the full tier says by HEFT_TEST_EMULATED=1; prints why the caller is
 * left out. For tests of what only a real kernel does: faults in mappings, cachestat, io_uring. */
static inline bool test_skip_emulated(const char *why) {
    const char *text = getenv("HEFT_TEST_EMULATED");
    if (!text || strcmp(text, "1") != 0) return false;
    printf("left out under an emulator: %s\n", why);
    return true;
}

/* An array of a dtype between the order of files and that of this host: nothing on a little-endian one. */
static inline void test_host_order(heft_dtype dtype, void *data, uint64_t nbytes) {
    uint32_t unit = heft_dtype_component_bits(dtype) / 8;
    if (!(heft_features() & HEFT_FEATURE_BIG_ENDIAN) || unit < 2) return;
    for (uint8_t *at = data, *end = at + nbytes; at < end; at += unit) {
        for (uint32_t i = 0; i < unit / 2; i++) {
            uint8_t byte = at[i];
            at[i] = at[unit - 1 - i];
            at[unit - 1 - i] = byte;
        }
    }
}

#endif
