/* base: names as text: globs, natural order, escaping for people, similarity. */
#ifndef HEFT_BASE_TEXT_H
#define HEFT_BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- globs: `*` any run (dots too), `?` one byte, `[...]` one byte of a set (`!` or `^` negates, a-z is a range, a `]` that
 * comes first and a `-` that comes first or last are themselves), `\` escape, also in sets. All by bytes. ---- */

/* SIZE_MAX if the glob is well formed, else the offset of the fault, and *why (static text). */
size_t heft__glob_check(const char *glob, size_t glob_len, const char **why);
/* Whole-name match; O(glob x name) time, constant memory. An ill-formed glob matches nothing at its fault. */
bool heft__glob_match(const char *glob, size_t glob_len, const char *name, size_t name_len);

/* ---- natural order: runs of digits compare as numbers of any length, the rest by bytes, ties by bytes. <0, 0, >0 ---- */
int heft__natural_compare(const char *a, size_t a_len, const char *b, size_t b_len);

/* Plain byte order: memcmp, then length. */
int heft__bytes_compare(const char *a, size_t a_len, const char *b, size_t b_len);

/* ---- escaping for terminals and messages. Escaped are: bytes below 0x20 and 0x7F (\n, \t, \r, else \xHH), bytes that are
 * not UTF-8 (\xHH), and as \u{HHHH} the C1 controls, line and paragraph separators, bidirectional marks, embeddings,
 * overrides and isolates, and what cannot be seen (zero-width characters, joiners, soft hyphen, tags, byte order mark):
 * with them two different names would look the same. A backslash stays as it is: this form is for reading, JSON is for
 * machines. ---- */

/* Writes at most `size` bytes with the final NUL; too long ends in U+2026. Returns the length written. */
size_t heft__escape(char *dst, size_t size, const char *text, size_t len);
/* Bytes that the whole escaped text needs without the NUL. */
size_t heft__escape_length(const char *text, size_t len);

/* ---- sizes ---- */

enum { HEFT__SIZE_TEXT = 64 };
/* "1.9 GiB", rounded down to a tenth; "17 bytes". Returns out. */
const char *heft__size_text(uint64_t nbytes, char out[HEFT__SIZE_TEXT]);
/* "12.2 GiB (13,204,889,600 bytes)". Returns out. */
const char *heft__size_exact(uint64_t nbytes, char out[HEFT__SIZE_TEXT]);

/* ---- similarity ---- */

/* Edit distance (insert, delete, replace, swap neighbours), exact up to `limit` (at most 512), else limit + 1. What is left
 * of a name without the common start and end is cut to its last 256 bytes, so memory is bounded and the result a hint. */
uint32_t heft__edit_distance(const char *a, size_t a_len, const char *b, size_t b_len, uint32_t limit);

#endif
