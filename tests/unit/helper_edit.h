/* Files with a header of several sectors, edited in place, and what they are found to be. */
#ifndef HEFT_TESTS_HELPER_EDIT_H
#define HEFT_TESTS_HELPER_EDIT_H

#include "helper_files.h"

#include "ops/journal.h"

enum { EDIT_HEADER = 8 + 1704, EDIT_DATA = 96, EDIT_FILE = EDIT_HEADER + EDIT_DATA };

/* The bytes of a file whose header is filled with `mark` ('1', '2'): metadata, and the name of its second tensor. */
const uint8_t *edit_bytes(char mark);
/* Makes one of mark '1' under test_dir(). Returns test_path(name). */
const char *edit_make(const char *name);
/* Opens a path and gives the mark that it has; `fault` is that of the only warning, NONE: there must be none. 0: it does not open,
 * and *err says why. All tensors are read. */
char edit_mark(const char *path, heft_fault fault, heft_error *err);
/* Gives a file of mark '1' the mark '2', in place. */
heft_status edit_run(const char *path, const heft_allocator *alloc, heft_error *err);
/* The journal of that edit of the file at `path`, as it is now (malloc'ed). */
uint8_t *edit_journal(const char *path, size_t *nbytes);
/* The path of the journal of a file. */
const char *edit_journal_path(const char *path);

#endif
