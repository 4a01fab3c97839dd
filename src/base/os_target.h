/* base: files in progress: written beside their target under a temporary name, then renamed over it. The one save sequence
 * of this project; heft handles are not known here, because the command line writes through it too. */
#ifndef HEFT_BASE_OS_TARGET_H
#define HEFT_BASE_OS_TARGET_H

#include "heft/core.h"

/* ---- the system ---- */

typedef struct heft__target_status {
    uint64_t nbytes, device, inode, nlinks;
    int64_t mtime_ns;
    uint32_t mode; /* st_mode */
    uint32_t uid, gid;
} heft__target_status;

/* Every call that changes a disk, and the questions before it, replaceable by tests (one atomic pointer; never set outside of
 * tests): copy what heft__target_sys_get gives, change a member, replace. All fail with -1 and errno, and may be interrupted. */
typedef struct heft__target_sys {
    int (*open)(int at, const char *path, int flags, uint32_t mode);
    int (*close)(int fd);
    int (*stat)(int at, const char *path, heft__target_status *out); /* links followed; path NULL: of the descriptor */
    int (*space)(int fd, uint64_t *nbytes);                          /* free for this user; HEFT_NONE: cannot be told */
    int (*reserve)(int fd, uint64_t offset, uint64_t nbytes);
    int (*resize)(int fd, uint64_t nbytes);
    int64_t (*pwrite)(int fd, const void *data, size_t nbytes, uint64_t offset);
    int64_t (*pread)(int fd, void *data, size_t nbytes, uint64_t offset);
    int (*clone)(int to, uint64_t to_offset, int from, uint64_t from_offset, uint64_t nbytes);     /* shares blocks */
    int64_t (*copy)(int to, uint64_t to_offset, int from, uint64_t from_offset, size_t nbytes); /* inside the kernel */
    int (*chmod)(int fd, uint32_t mode);
    int (*chown)(int fd, uint32_t uid, uint32_t gid);
    void (*copy_acl)(int folder, const char *from, int to); /* where there is one and it is permitted */
    int (*fsync)(int fd);
    void (*drop_cache)(int fd);
    int (*rename)(int from_at, const char *from, int to_at, const char *to);
    int (*rename_new)(int from_at, const char *from, int to_at, const char *to); /* ENOSYS, EINVAL: it cannot */
    int (*link)(int at, const char *from, const char *to);
    int (*unlink)(int at, const char *name);
    int (*rmdir)(int at, const char *name);
    int (*mkdir)(int at, const char *name);
} heft__target_sys;
const heft__target_sys *heft__target_sys_get(void);
void heft__target_sys_replace(const heft__target_sys *sys); /* NULL: the real ones */

/* ---- folders ---- */

enum { HEFT__TARGET_NAME_MAX = 255, HEFT__TARGET_PATH_MAX = 4096 };

/* An open folder in which names are made, renamed and removed. */
typedef struct heft__target_folder {
    int fd; /* -1: none */
    char path[HEFT__TARGET_PATH_MAX]; /* for messages */
} heft__target_folder;

/* All fail with the name of the path and the action. */
heft_status heft__target_folder_open(heft__target_folder *folder, const char *path, heft_error *err);
void heft__target_folder_close(heft__target_folder *folder);
heft_status heft__target_folder_sync(const heft__target_folder *folder, heft_error *err);
/* Replaces what has that name. */
heft_status heft__target_folder_rename(const heft__target_folder *folder, const char *from, const char *to,
                                       heft_error *err);
/* EXISTS if there is something of that name. */
heft_status heft__target_folder_rename_new(const heft__target_folder *folder, const char *from, const char *to,
                                           heft_error *err);
/* A name that is not there is no failure. */
heft_status heft__target_folder_unlink(const heft__target_folder *folder, const char *name, heft_error *err);
/* The same if it leads to that file and no other. */
heft_status heft__target_folder_unlink_of(const heft__target_folder *folder, const char *name, uint64_t inode,
                                          heft_error *err);
/* Whether a path, all links followed, leads to that file. */
heft_status heft__target_leads(const char *path, uint64_t device, uint64_t inode, bool *leads, heft_error *err);
/* Removes what is at a path; nothing there is no failure. */
heft_status heft__target_unlink(const char *path, heft_error *err);
/* Whether there is anything of that name. */
heft_status heft__target_folder_has(const heft__target_folder *folder, const char *name, bool *there, heft_error *err);

/* The same with its size. */
heft_status heft__target_folder_size(const heft__target_folder *folder, const char *name, bool *there, uint64_t *nbytes,
                                     heft_error *err);
/* Reads a small file whole (free with heft__free(alloc, *data, *nbytes)); more than `limit` bytes is LIMIT. */
heft_status heft__target_folder_read(const heft__target_folder *folder, const char *name, uint64_t limit,
                                     const heft_allocator *alloc, void **data, uint64_t *nbytes, bool *there,
                                     heft_error *err);
/* Makes folder `name` in it and opens that. */
heft_status heft__target_folder_make(const heft__target_folder *parent, const char *name, heft__target_folder *folder,
                                     heft_error *err);
/* Whether `name` is there and is anything but an empty folder. */
heft_status heft__target_folder_full(const heft__target_folder *parent, const char *name, bool *full, heft_error *err);
/* Removes folder `name` and the files in it; folders in it are a failure. */
heft_status heft__target_folder_remove(const heft__target_folder *parent, const char *name, heft_error *err);
/* The path without links; false: it cannot be told, or is too long. */
bool heft__target_real_path(const char *path, char out[HEFT__TARGET_PATH_MAX]);
/* The device of what is at `path`, or of the folder in which that would be made. False: it cannot be told. */
bool heft__target_device(const char *path, uint64_t *device);
/* Makes a folder; one that is there is fine. */
heft_status heft__target_mkdir(const char *path, bool *made, heft_error *err);

/* ---- files in progress ---- */

#define HEFT__TARGET_FOLLOW UINT32_C(0)  /* of links at the end of the path: the file behind is replaced, the link stays */
#define HEFT__TARGET_REPLACE UINT32_C(1) /* the link is replaced */
#define HEFT__TARGET_REFUSE UINT32_C(2)  /* a link is PERMISSION */

typedef struct heft__target_options {
    uint64_t nbytes; /* of the whole file: checked against the free space and reserved; HEFT_NONE: not known */
    uint64_t shared_nbytes; /* of it will be shared with another file and so take no space; what is not, is reserved later */
    uint32_t links;  /* HEFT__TARGET_* */
    bool overwrite;  /* an existing file is replaced; else EXISTS, decided again at the end */
    bool no_sync;
} heft__target_options;

typedef struct heft__target {
    int fd;          /* of the file in progress, -1: closed */
    int direct_fd;   /* the same past the page cache, -1: none */
    heft__target_folder folder;
    bool borrowed;   /* the folder is another's */
    bool overwrite, no_sync, keep_owner, sealed;
    bool followed;   /* `path` is a link to it */
    uint32_t mode, uid, gid;
    bool unreserved; /* it has its size, and its space is not taken yet */
    uint64_t wanted; /* bytes of the whole file, HEFT_NONE: not known */
    char name[HEFT__TARGET_NAME_MAX + 1]; /* in the folder */
    char temp[HEFT__TARGET_NAME_MAX + 1]; /* of the file in progress, in the folder; empty: there is none any more */
    char path[HEFT__TARGET_PATH_MAX];     /* as given, for messages */
} heft__target;

/* Steps 1 to 4 of a save: finds the target, sees that it may be written and has room, opens its folder, makes the temporary
 * file. *target is a file in progress after success, and needs nothing after a failure.
 * EXISTS, NOT_FOUND, PERMISSION, INVALID_ARGUMENT (a folder or device), LIMIT (NO_SPACE), IO. */
heft_status heft__target_open(heft__target *target, const char *path, const heft__target_options *options,
                              heft_error *err);
/* Step 1 alone, without the free space: whether it could be opened, and the folder that it lies in, links followed. Nothing is
 * made. */
heft_status heft__target_check(const char *path, const heft__target_options *options, char folder[HEFT__TARGET_PATH_MAX],
                               heft_error *err);
/* The same as _open for plain name `name` in a folder that stays open; links of that name are replaced, what exists is kept or
 * replaced by whoever renames. */
heft_status heft__target_open_in(heft__target *target, const heft__target_folder *folder, const char *name,
                                 const heft__target_options *options, heft_error *err);
/* Opens the file that is there for a change where it stands: no file is made, and _abort closes it. *found is what it is.
 * NOT_FOUND, PERMISSION (also a link into a Hub cache), INVALID_ARGUMENT (no regular file), IO. */
heft_status heft__target_open_there(heft__target *target, const char *path, const heft__target_options *options,
                                    heft__target_status *found, heft_error *err);
/* What a target is that is open, or sealed and not published. */
heft_status heft__target_stat(const heft__target *target, heft__target_status *out, heft_error *err);
/* All that was written to the disk, and nothing else; without effect under no_sync. */
heft_status heft__target_flush(const heft__target *target, heft_error *err);
/* nbytes at an offset, from any thread; interrupted and short writes are handled. */
heft_status heft__target_write(heft__target *target, uint64_t offset, const void *data, uint64_t nbytes,
                               heft_error *err);
/* The same past the page cache: offset, nbytes and the address are multiples of HEFT__TARGET_BLOCK. What the file system
 * refuses is written as ever. */
#define HEFT__TARGET_BLOCK 4096
heft_status heft__target_write_direct(heft__target *target, uint64_t offset, const void *data, uint64_t nbytes,
                                      heft_error *err);
void heft__target_try_direct(heft__target *target); /* makes direct_fd, where the file system can */
/* Shares bytes of another file, or has the kernel copy them if `copy` allows it. Returns how many bytes from the start are done;
 * the rest, which may be all, is the caller's. *cloned of them are shared. */
uint64_t heft__target_transfer(heft__target *target, uint64_t offset, int from, uint64_t from_offset, uint64_t nbytes,
                               bool copy, uint64_t *cloned);
/* Takes the space of a range. A system that cannot is no failure. */
heft_status heft__target_reserve(heft__target *target, uint64_t offset, uint64_t nbytes, heft_error *err);
/* Reads back what has been written. */
heft_status heft__target_read(heft__target *target, uint64_t offset, void *data, uint64_t nbytes, heft_error *err);
/* Sets the size: of a file whose size was not known. */
heft_status heft__target_resize(heft__target *target, uint64_t nbytes, heft_error *err);

/* Step 6: mode, owner, ACL, fsync. The file can still be read back. */
heft_status heft__target_sync(heft__target *target, heft_error *err);
/* Closes; after it only _publish and _abort. */
heft_status heft__target_seal(heft__target *target, heft_error *err);
/* Steps 7 and 8: rename, fsync of the folder. Frees what the target holds, in any case; after a failure nothing is left but
 * what was there before. Seals first if that has not been done. */
heft_status heft__target_publish(heft__target *target, heft_error *err);
void heft__target_abort(heft__target *target); /* removes the temporary file; frees what the target holds */

/* A name for something in progress: ".heft-<base>-<8 hex of boot and pid namespace>-<pid>-<8 random hex>.tmp", `base` cut so
 * that it fits. */
void heft__target_temp_name(char out[HEFT__TARGET_NAME_MAX + 1], const char *base);
/* True if `name` is such a name, of this machine and pid namespace, and that process is gone. */
bool heft__target_temp_dead(const char *name);
/* True if it is one of another process that certainly lives. */
bool heft__target_temp_alive(const char *name);
/* True if `name` is such a name. */
bool heft__target_temp_is(const char *name);
/* True if it is one of this process. */
bool heft__target_temp_own(const char *name);

/* The name of the journal of an edit in place of file `base`: ".heft-<base>.journal"; of a name that is too long what fits, with
 * a hash of it. */
void heft__target_journal_name(char out[HEFT__TARGET_NAME_MAX + 1], const char *base);

/* LIMIT, NO_SPACE: so many bytes are wanted and so many are free. */
heft_status heft__target_fail_space(heft_error *err, const char *path, uint64_t wanted, uint64_t found);
/* As heft__fail_errno, for what goes wrong on the way to a file written. */
heft_status heft__target_fail_errno(heft_error *err, int code, const char *path, const char *what);

#endif
