/* The system calls of files in progress, made to fail, to be interrupted, to be short, to end the process, or to be told. */
#ifndef HEFT_TESTS_HELPER_TARGET_H
#define HEFT_TESTS_HELPER_TARGET_H

#include "helper.h"

#include "base/os_target.h"

typedef struct trap_plan {
    uint64_t fail_call;  /* the call (1, 2, ...) that fails, 0: none */
    int fail_errno;
    const char *only;    /* calls of this name alone are counted ("pwrite"); NULL: all */
    bool die;            /* instead of failing the process ends, as by SIGKILL */
    int hold;            /* instead of failing it writes a byte to this descriptor and waits for the end; 0: no */
    bool interrupt;      /* every other call fails with EINTR */
    size_t most;         /* bytes of one pwrite or copy, 0: all */
    int no_reserve, no_clone, no_copy, no_rename_new; /* errno of these, 0: the real ones */
    uint64_t space;      /* free bytes that are answered, 0: the real ones */
} trap_plan;

/* Installs; the number of calls made since then. trap_end puts the real ones back. */
void trap_begin(const trap_plan *plan);
uint64_t trap_calls(void);
void trap_end(void);

/* Called before each call with its name, when set; and after an open with "opened" and the new descriptor, and after bytes went
 * from file to file with "copied" and where they are: for logs. */
typedef struct trap_event {
    const char *name;
    int fd;                  /* or the folder */
    int at;                  /* of "opened": the folder */
    const char *from, *to;   /* names; of open `from` */
    const void *data;
    uint64_t nbytes, offset;
} trap_event;
extern void (*trap_log)(const trap_event *event);

#endif
