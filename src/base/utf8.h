/* base: strict UTF-8 (RFC 3629: no overlong forms, no surrogates, nothing above U+10FFFF). */
#ifndef HEFT_BASE_UTF8_H
#define HEFT_BASE_UTF8_H

#include <stdint.h>
#include <stddef.h>

/* The offset of the first byte of the first bad sequence, or `len` if all is well. Vectorised for ASCII. */
size_t heft__utf8_check(const char *text, size_t len);

/* The same without vector instructions: what other processors run, and a second opinion for the tests. */
size_t heft__utf8_check_portable(const char *text, size_t len);

/* Decodes one character of valid UTF-8 at text[0..len), len > 0: its code point, and its bytes in *nbytes. A bad sequence
 * gives U+FFFD and 1. */
uint32_t heft__utf8_decode(const char *text, size_t len, size_t *nbytes);

/* Writes a code point (<= 10FFFF, no surrogate) to dst[4]; returns its bytes. */
size_t heft__utf8_encode(uint32_t code, char *dst);

/* The largest length <= len at which text[0..len) can be cut without splitting a character. */
size_t heft__utf8_cut(const char *text, size_t len);

#endif
