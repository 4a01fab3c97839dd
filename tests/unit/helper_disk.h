/* A pretended disk that follows the system calls of a save, and gives back what it may hold after a power cut: what has been
 * written and not synced is lost or not; of the changes of names whose folder was not synced the first ones are there, all but one
 * of them (where programs run slowly: all of them). */
#ifndef HEFT_TESTS_HELPER_DISK_H
#define HEFT_TESTS_HELPER_DISK_H

#include "helper_files.h"

enum { DISK_SECTOR = 512, DISK_SECTORS = 4 };

/* Takes what is in test_dir()/disk for durable and follows what is done there. After each call that changes something every way in
 * which the disk may look is laid out in test_dir()/cut, one after another, and `look` is called; what it leaves there goes.
 * `torn`: of what is not synced in the first DISK_SECTORS sectors of a file any may be on the disk. */
void disk_begin(void (*look)(const char *cut), bool torn);
/* Ends it. `look` is called once more, with the least that there may be after the last call: what a save that has ended well must
 * have made durable. NULL: not. */
void disk_end(void (*look)(const char *cut));
/* Removes all that is in a folder. */
void disk_empty(const char *path);

#endif
