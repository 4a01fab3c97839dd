/* base: what the operating system is asked for outside of sources, facts, engines and devices. Implemented in os_*.c, each
 * with a portable path. Nothing here touches a heft handle: the command line uses it too. */
#ifndef HEFT_BASE_OS_H
#define HEFT_BASE_OS_H

#include "heft/core.h"

/* What a test may pretend: one atomic pointer, never set outside of tests. NULL restores the real system. */
typedef struct heft__os_traits {
    const char *root;    /* put before /proc and cgroup paths: a folder of made-up ones */
    bool plain_pages;    /* no huge pages */
    bool plain_random;   /* no random source of the system */
    bool plain_affinity; /* CPUs are counted without affinity */
    bool plain_rename;   /* no rename that refuses to replace */
    bool plain_identity; /* no file system that tells files apart for good */
    uint64_t now_ns;     /* what the clock says, since 1970; 0: the real one */
} heft__os_traits;
const heft__os_traits *heft__os_traits_get(void);
void heft__os_traits_replace(const heft__os_traits *traits);

/* ---- os_memory.c ---- */
size_t heft__os_page_size(void);
/* A huge page of the processors that matter, and the unit in which huge pages are asked for. */
#define HEFT__OS_HUGE_PAGE ((size_t)2 << 20)
/* Fresh zeroed pages, 2 MiB-aligned, huge pages asked for where the system has them. NULL on failure. */
void *heft__os_pages(size_t nbytes);
/* The same without huge pages, also where the system gives them unasked. */
void *heft__os_pages_small(size_t nbytes);
void heft__os_pages_free(void *ptr, size_t nbytes);
/* Whether a child that is forked gets pages too. Where the system has no such switch it does. */
void heft__os_pages_inherit(void *ptr, size_t nbytes, bool inherit);
/* How many bytes of a range lie in huge pages now; HEFT_NONE where the system does not say. */
uint64_t heft__os_huge_nbytes(const void *ptr, size_t nbytes);
/* Whether the page at `ptr` is in memory already: if not, the first store into it makes the system find one and zero it. True
 * where the system does not say. */
bool heft__os_resident(const void *ptr);
/* More pages in place of those of heft__os_pages, with their content. It is copied piece by piece, and each piece goes back
 * at once, so that it is never there twice. NULL on failure: the old ones stay. new_nbytes >= old_nbytes. */
void *heft__os_pages_grow(void *ptr, size_t old_nbytes, size_t new_nbytes);
/* Random bytes for hash seeds; falls back to clock and addresses. Never fails. */
void heft__os_random(void *dst, size_t nbytes);
double heft__os_seconds(void); /* monotonic */

/* ---- os_limits.c ---- */
/* The first line of a small file of the system, cut to size - 1 bytes, without its end; "" and false if there is none. */
bool heft__os_first_line(const char *path, char *line, size_t size);
typedef struct heft__os_memory {
    uint64_t nbytes; /* HEFT_NONE: unknown */
    char origin[320]; /* printable: "MemAvailable", "cgroup v2 /sys/fs/cgroup/job memory.max", "cgroup v1 ...
                         memory.limit_in_bytes", "RLIMIT_AS", "RLIMIT_DATA", "caller", "unknown" */
} heft__os_memory;
/* Memory that can be had without swapping: MemAvailable, or less by a limit of the process's control groups or by its limits
 * of address space and data, from which the stacks of `threads` more threads are taken. */
void heft__os_free_memory(uint32_t threads, heft__os_memory *out);
/* CPUs by affinity and by the CPU quota of the control groups, at least 1. The quota is read once. */
uint32_t heft__os_usable_cpus(void);
/* Lets this process open as many files as its hard limit allows. For programs: the limit is the process's own. */
void heft__os_allow_files(void);

/* ---- os_process.c ---- */
/* A number of this process; a child that is forked has another. */
uint64_t heft__os_process(void);
/* INVALID_ARGUMENT if that was the number of another process: `what` was made before a fork, and its threads and files in
 * progress are the parent's. */
heft_status heft__os_process_check(uint64_t process, const char *what, heft_error *err);
/* Page faults of this process so far: without and with a read. 0 when unknown. */
void heft__os_faults(uint64_t *minor, uint64_t *major);
/* Takes the lock of that name of this user on this machine (a file in $XDG_RUNTIME_DIR, else /tmp), waiting for whoever has
 * it until `stop` (NULL: never) says to give up: a number for heft__os_unlock, or -1 where no lock can be had. It goes with the
 * process. */
int heft__os_lock(const char *name, bool (*stop)(void *ctx), void *ctx);
void heft__os_unlock(int lock);

/* ---- os_terminal.c ---- */
bool heft__os_is_terminal(int fd);
uint32_t heft__os_terminal_width(int fd); /* columns, 80 when unknown */
/* SIGPIPE as the system's default: a closed pipe ends the program in silence. A limit of file sizes (ulimit -f) is a failed
 * write. */
void heft__os_quiet_sigpipe(void);
/* SIGINT, SIGTERM and SIGHUP remove the output file in progress and then do what they do by default, so that a shell sees
 * 130 for SIGINT. What the program was started to ignore stays ignored. */
void heft__os_catch_interrupt(void);

/* ---- os_child.c: for the command line ---- */
/* Calls work(ctx, result) in a child process, which work ends by _Exit(0), and fills *result (nbytes of plain data, zero
 * before) with what it left there. A child that a signal ends is a failure: IO for SIGBUS (a mapped file that was
 * truncated), OUT_OF_MEMORY for SIGKILL, CANCELLED for one of the terminal. The caller has no threads. */
heft_status heft__os_child(void (*work)(void *ctx, void *result), void *ctx, void *result, size_t nbytes,
                           heft_error *err);
/* From now on a first SIGINT, SIGTERM or SIGHUP is only noted: the caller asks for it and ends in order (130). A second one ends
 * the program. What the program was started to ignore stays ignored. */
void heft__os_defer_interrupt(void);
bool heft__os_interrupted(void);

/* ---- os_usage.c: for the command line ---- */
typedef struct heft__os_use {
    uint64_t rss_nbytes, peak_rss_nbytes; /* resident memory, mapped pages of files included; HEFT_NONE: not known */
    uint64_t minor_faults, major_faults;  /* since the process began */
} heft__os_use;
void heft__os_usage(heft__os_use *out);
/* The peak counts from now on, where the system can do that. */
void heft__os_peak_restart(void);

/* Reading of a file as a bare program does it, past all sources: the measure of what loading costs. *fd -1 on failure. */
heft_status heft__os_open_read(const char *path, bool direct, int *fd, uint64_t *nbytes, heft_error *err);
heft_status heft__os_read_at(int fd, uint64_t offset, void *dst, size_t nbytes, size_t *got, heft_error *err); /* one call */
void heft__os_close(int fd); /* -1 does nothing */
/* Asks the system to drop a file's pages from its cache. Those that are dirty, mapped or in use stay, without an error. *own:
 * this process owns the file. */
heft_status heft__os_evict(const char *path, bool *own, heft_error *err);

/* ---- os_output.c: files that the command line writes ---- */
typedef struct heft__output heft__output;
/* "-", /dev/stdout and /dev/fd/N are descriptors of this program. A regular target is written beside itself under a
 * temporary name (.heft-*.tmp) and renamed by _commit; an existing one is EXISTS unless `force`, decided again at the end.
 * Links are followed: the file behind is replaced, the link stays. A new file gets the mode that the umask gives, a replaced
 * one keeps its mode and, where permitted, its owner. A pipe or device is written in place, a directory refused. */
heft_status heft__output_open(const char *path, bool force, heft__output **out, heft_error *err);
bool heft__output_is_stream(const char *path); /* one of those, or a pipe or device that is there */
heft_status heft__output_write(heft__output *out, const void *data, size_t nbytes, heft_error *err);
heft_status heft__output_commit(heft__output *out, heft_error *err); /* fsync, rename, close; frees in any case */
void heft__output_abort(heft__output *out);                          /* removes the temporary file; NULL does nothing */
void heft__output_interrupted(void); /* from a signal handler: removes the temporary file of the output first opened */

/* ---- os_identity.c: for the command line ---- */
/* Who a regular file is. While all of it stays the same nobody has written the file, but through a mapping whose pages have not
 * been written back meanwhile: of that no time tells. */
typedef struct heft__os_identity {
    uint64_t device, inode, nbytes, mtime_ns, ctime_ns; /* times since 1970 */
} heft__os_identity;
/* NULL, or why (static text) what is known of the file now must not be believed of whatever has this identity later: it is no
 * regular file; its file system makes up numbers of files or times (FAT, FUSE, 9p, SMB), or cannot be asked; it changed less than 2
 * seconds ago, so that the next change may leave all of this as it is. */
const char *heft__os_identify(int fd, heft__os_identity *out);
bool heft__os_identity_at(const char *path, heft__os_identity *out); /* false: no regular file */
bool heft__os_identity_same(const heft__os_identity *a, const heft__os_identity *b);

/* ---- os_input.c: descriptor 0 and folders ---- */
/* True if descriptor `fd` is a regular file, so that heft_source_open_fd can use it in place. */
bool heft__os_is_regular(int fd);
bool heft__os_is_folder(const char *path);
bool heft__os_is_there(const char *path); /* anything of that name */
/* Reads a descriptor to its end into *data (free with heft__free(&heft__default_allocator, data, *nbytes)); more than
 * `limit` bytes is LIMIT. */
heft_status heft__os_read_all(int fd, uint64_t limit, void **data, uint64_t *nbytes, heft_error *err);

#endif
