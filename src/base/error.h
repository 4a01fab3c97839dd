/* base: filling a heft_error. Every function takes err = NULL. */
#ifndef HEFT_BASE_ERROR_H
#define HEFT_BASE_ERROR_H

#include "heft/core.h"

#if defined(__GNUC__)
#define HEFT__PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#else
#define HEFT__PRINTF(fmt, args)
#endif

/* Starts an error: clears *err, sets status, fault and message, numbers to HEFT_NONE. Returns `status`, so that a function
 * ends with `return heft__fail(...)`. A too long message is cut at a UTF-8 boundary with U+2026. Text from files must be
 * escaped before it is passed (heft__escape of base/text.h). No floating point in formats: it is bound to the locale. */
heft_status heft__fail(heft_error *err, heft_status status, heft_fault fault, const char *format, ...) HEFT__PRINTF(4, 5);

/* An allocation failed: OUT_OF_MEMORY, HEFT_FAULT_MEMORY, with the size wanted in `expected` (HEFT_NONE: unknown). */
heft_status heft__fail_memory(heft_error *err, uint64_t nbytes);

/* A system call failed with errno `code` while doing `what` ("opening", "reading") to `file`: NOT_FOUND, PERMISSION, IO,
 * or OUT_OF_MEMORY as the code says; the message names file, action and errno's name and text. */
heft_status heft__fail_errno(heft_error *err, int code, const char *file, const char *what);

/* The errno's symbolic name ("ENOENT") or "errno". */
const char *heft__errno_name(int code);

/* Adds detail to an error that heft__fail made. */
void heft__error_file(heft_error *err, const char *file);
void heft__error_tensor(heft_error *err, const char *name, size_t len);
void heft__error_at(heft_error *err, uint64_t offset, uint64_t expected, uint64_t found);

/* Copies `len` bytes into dst[size], cut at a UTF-8 boundary with U+2026, NUL-terminated; bytes that are not UTF-8 become
 * '?', a NUL inside becomes U+2400. Returns the length. */
size_t heft__copy_text(char *dst, size_t size, const char *text, size_t len);

#endif
