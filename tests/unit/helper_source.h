/* What the tests of sources share: a file of known bytes, and reads of it that are checked. */
#ifndef HEFT_TESTS_HELPER_SOURCE_H
#define HEFT_TESTS_HELPER_SOURCE_H

#include "helper_files.h"

#include "source/source.h"

static uint8_t content[10007];

static inline const char *content_file(void) {
    for (size_t i = 0; i < sizeof content; i++) content[i] = (uint8_t)(i * 7 + (i >> 8) * 31);
    return test_write("content", content, sizeof content);
}

static inline heft_source *open_content(void) {
    heft_source *source = NULL;
    heft_error err = {0};
    if (heft_source_open_file(content_file(), &source, &err)) fail_msg("%s", err.message);
    return source;
}

static inline void check_read(heft_source *source, uint64_t offset, uint64_t nbytes, const uint8_t *expected) {
    uint8_t *dst = malloc(nbytes + 2);
    heft_error err = {0};
    memset(dst, 0xEE, nbytes + 2);
    if (heft_source_read(source, offset, nbytes, dst + 1, &err)) fail_msg("%s", err.message);
    assert_memory_equal(dst + 1, expected, nbytes);
    assert_int_equal(dst[0], 0xEE);
    assert_int_equal(dst[nbytes + 1], 0xEE);
    free(dst);
}

static inline void check_ranges(heft_source *source, const uint8_t *expected, uint64_t size) {
    assert_int_equal(heft_source_size(source), size);
    check_read(source, 0, size, expected);
    check_read(source, size, 0, expected);
    check_read(source, 0, 0, expected);
    if (size) {
        check_read(source, size - 1, 1, expected + size - 1);
        check_read(source, size / 3, size / 2, expected + size / 3);
    }
    heft_error err;
    uint8_t byte;
    uint64_t bad[][2] = {{0, size + 1}, {size, 1}, {size + 1, 0}, {UINT64_MAX, 1}, {1, UINT64_MAX}, {UINT64_MAX, UINT64_MAX}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(heft_source_read(source, bad[i][0], bad[i][1], &byte, &err), HEFT_INVALID_ARGUMENT);
        assert_int_equal(err.fault, HEFT_FAULT_CALL);
        assert_int_equal(err.offset, bad[i][0]);
    }
}

static inline void count_release(void *ctx) {
    ++*(int *)ctx;
}

/* Answers *ctx, or for 1 more than was asked for. */
static inline int64_t liar(void *ctx, uint64_t offset, void *dst, size_t nbytes) {
    (void)offset, (void)dst;
    int64_t answer = *(int64_t *)ctx;
    return answer == 1 ? (int64_t)nbytes + 1 : answer;
}

#endif
