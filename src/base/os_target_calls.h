/* base: the calls that the files about files in progress share: interrupted ones are made again. Nobody else includes this. */
#ifndef HEFT_BASE_OS_TARGET_CALLS_H
#define HEFT_BASE_OS_TARGET_CALLS_H

#include "base/os_target.h"

/* A descriptor above the standard ones, close-on-exec, or -1 with errno. */
int heft__target_call_open(int at, const char *path, int flags, uint32_t mode);
/* The others: 0 or an errno. *fd becomes -1; a negative one is fine. */
int heft__target_call_close(int *fd);
int heft__target_call_stat(int at, const char *path, heft__target_status *out);
int heft__target_call_chmod(int fd, uint32_t mode);
int heft__target_call_unlink(int at, const char *name);
/* Where the file system has it. A failure is final: the system may have dropped the pages. */
int heft__target_call_fsync(int fd);
int heft__target_call_rename(int folder, const char *from, const char *to);
/* Without replacing what is there: EEXIST. */
int heft__target_call_rename_new(int folder, const char *from, const char *to);

#endif
