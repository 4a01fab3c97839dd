/* Scans of bytes in memory, for tests of formats. */
#ifndef HEFT_TESTS_HELPER_SCAN_H
#define HEFT_TESTS_HELPER_SCAN_H

#include "helper.h"

#include "format/format.h"

/* Scans data[0..n), labelled "file", into *listing, which the caller frees in any case. `alloc` NULL: the default one.
 */
heft_status scan_bytes(const void *data, size_t n, const heft__scan_options *options, const heft_allocator *alloc,
                       heft__listing *listing, heft_error *err);

/* A file of this header text and `data_nbytes` zero bytes. malloc'ed. */
uint8_t *scan_file(const char *header, size_t header_len, uint64_t data_nbytes, size_t *n);

/* Scans such a file. `header` is a string. */
heft_status scan_text(const char *header, uint64_t data_nbytes, const heft__scan_options *options,
                      heft__listing *listing, heft_error *err);

/* By default: the status, and the fault and offset of its error. */
heft_status scan_verdict(const char *header, uint64_t data_nbytes, heft_fault *fault, uint64_t *offset);

/* "kind@offset:value" of each record of a listing, blanks between, "!" before errors and "." before notes. Static. */
const char *scan_faults(const heft__listing *listing);

/* Fails the test unless both listings say the same: entries, names, shapes, metadata, records. */
void scan_assert_equal(const heft__listing *a, const heft__listing *b);

#endif
