/* Checkpoints whose bytes are all one mark, so that two saves in one are seen. */
#ifndef HEFT_TESTS_HELPER_MARKED_H
#define HEFT_TESTS_HELPER_MARKED_H

#include "helper_files.h"

enum { MARKED_TENSORS = 4, MARKED_MOST = 20000 };

/* Saves that many U8 tensors of `size` bytes (at most MARKED_MOST), all `mark`, which is not 0: as a file, or as a set. From any
 * thread. */
heft_status marked_save(const char *path, uint8_t mark, size_t size, const heft_save_options *options,
                        const heft_set_options *set, heft_error *err);
/* The mark of all tensors; fails the test if they do not open or are not of one save. */
uint8_t marked_of(const char *path, size_t size);
/* Names in a folder. */
int marked_entries(const char *folder);

#endif
