/* base: names as text: globs, natural order, escaping for people, similarity. */
#ifndef HEFT_BASE_TEXT_H
#define HEFT_BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- globs: `*` any run (dots too), `?` one byte, `[...]` set (`!` or `^` negates, ranges), `\` escape ---- */

/* SIZE_MAX if the glob is well formed, else the offset of the fault, and *why (static text). */
size_t heft__glob_check(const char *glob, size_t glob_len, const char **why);
/* Whole-name match of a well-formed glob; O(glob x name) time, constant memory. */
bool heft__glob_match(const char *glob, size_t glob_len, const char *name, size_t name_len);

/* ---- natural order: runs of digits compare as numbers of any length, the rest by bytes, ties by bytes. <0, 0, >0 ---- */
int heft__natural_compare(const char *a, size_t a_len, const char *b, size_t b_len);

/* Plain byte order: memcmp, then length. */
int heft__bytes_compare(const char *a, size_t a_len, const char *b, size_t b_len);

/* ---- escaping for terminals and messages: bytes below 0x20, 0x7F, C1 controls, bidirectional marks and bytes that are not
 * UTF-8 become \n, \t, \xHH or \u{HHHH}; a backslash is doubled only where `quote` is set ---- */

/* Writes at most `size` bytes with the final NUL; too long ends in U+2026. Returns the length written. */
size_t heft__escape(char *dst, size_t size, const char *text, size_t len);
/* Bytes that the whole escaped text needs without the NUL. */
size_t heft__escape_length(const char *text, size_t len);

/* ---- similarity: edit distance (Damerau, capped at `limit` + 1), bounded memory: names above 256 bytes use their ends ---- */
uint32_t heft__edit_distance(const char *a, size_t a_len, const char *b, size_t b_len, uint32_t limit);

#endif
