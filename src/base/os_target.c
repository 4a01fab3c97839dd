/* base: the save sequence of one file: find the target, make a file beside it, reserve, write, sync, rename, sync. */
#include "base/os_target_calls.h"

#include "base/error.h"
#include "base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TARGET_MOST_LINKS = 40, TARGET_TRIES = 16 };
#define TARGET_CALL_MAX ((uint64_t)1 << 30)

static const heft__target_sys *target_sys(void) {
    return heft__target_sys_get();
}

static heft_status target_fail(heft_error *err, heft_status status, heft_fault fault, const char *path, const char *why) {
    char name[300];
    heft__escape(name, sizeof name, path, strlen(path));
    heft__fail(err, status, fault, "%s: %s", name, why);
    heft__error_file(err, path);
    return status;
}

heft_status heft__target_fail_errno(heft_error *err, int code, const char *path, const char *what) {
    heft_status status = heft__fail_errno(err, code, path, what);
    bool full = code == ENOSPC || code == EDQUOT;
    if (err && err->fault == HEFT_FAULT_READ_ERROR)
        err->fault = full            ? HEFT_FAULT_NO_SPACE
                     : code == EFBIG ? HEFT_FAULT_CALLER_LIMIT /* of the process, or of the file system */
                                     : HEFT_FAULT_WRITE_ERROR;
    return status;
}

static heft_status target_fail_exists(heft_error *err, const char *path) {
    return target_fail(err, HEFT_EXISTS, HEFT_FAULT_FILE_EXISTS, path,
                       "it exists already and is not replaced unless forced");
}

/* ---- where the target is ---- */

/* Follows the links at the end of `path`. 0 or an errno. */
static int target_follow(char path[HEFT__TARGET_PATH_MAX], bool *followed) {
    char target[HEFT__TARGET_PATH_MAX], joined[HEFT__TARGET_PATH_MAX];
    *followed = false;
    for (int links = 0;; links++) {
        ssize_t n = readlink(path, target, sizeof target - 1);
        if (n < 0) return errno == EINVAL || errno == ENOENT ? 0 : errno; /* no link, or nothing there */
        if (links == TARGET_MOST_LINKS) return ELOOP;
        target[n] = 0;
        const char *slash = strrchr(path, '/');
        int folder = target[0] == '/' || !slash ? 0 : (int)(slash - path) + 1;
        int len = snprintf(joined, sizeof joined, "%.*s%s", folder, path, target);
        if (len < 0 || (size_t)len >= sizeof joined) return ENAMETOOLONG;
        memcpy(path, joined, (size_t)len + 1);
        *followed = true;
    }
}

/* Whether a folder is the blobs folder of a Hub cache, whose files are named by the hash of what is in them. */
static bool target_is_blobs(const char *folder) {
    char *real = realpath(folder, NULL);
    if (!real) return false;
    char *last = strrchr(real, '/');
    bool blobs = last && strcmp(last, "/blobs") == 0;
    if (blobs) {
        *last = 0;
        last = strrchr(real, '/');
        blobs = last && (strncmp(last, "/models--", 9) == 0 || strncmp(last, "/datasets--", 11) == 0 ||
                         strncmp(last, "/spaces--", 9) == 0);
    }
    free(real);
    return blobs;
}

/* Opens the folder of `path` and notes the name in it. */
static heft_status target_locate(heft__target *target, char path[HEFT__TARGET_PATH_MAX], bool followed,
                                 heft_error *err) {
    char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    if (strlen(name) > HEFT__TARGET_NAME_MAX)
        return heft__target_fail_errno(err, ENAMETOOLONG, target->path, "creating");
    if (!*name || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        return target_fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_NOT_REGULAR, target->path,
                           "it names a directory; a file is wanted");
    memcpy(target->name, name, strlen(name) + 1);
    if (slash) slash[slash == path] = 0;
    const char *folder = slash ? path : ".";
    if (followed && target_is_blobs(folder))
        return target_fail(err, HEFT_PERMISSION, HEFT_FAULT_ACCESS, target->path,
                           "it is a link into a Hub cache, whose files are named by their content; remove the link first");
    heft_status status = heft__target_folder_open(&target->folder, folder, err);
    if (status != HEFT_OK) heft__error_file(err, target->path);
    return status;
}

/* What stands at the path now. */
static heft_status target_examine(heft__target *target, int at, const char *path, heft_error *err) {
    heft__target_status st;
    int code = heft__target_call_stat(at, path, &st);
    if (code == ENOENT) return HEFT_OK;
    if (code) return heft__target_fail_errno(err, code, target->path, "examining");
    if (S_ISDIR((mode_t)st.mode))
        return target_fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_NOT_REGULAR, target->path,
                           "it is a directory; a file is wanted");
    if (!S_ISREG((mode_t)st.mode))
        return target_fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_NOT_REGULAR, target->path,
                           "it is a pipe, device or socket; only a regular file can be replaced");
    if (!target->overwrite) return target_fail_exists(err, target->path);
    target->mode = st.mode & 0777;
    target->uid = st.uid;
    target->gid = st.gid;
    target->keep_owner = true;
    return HEFT_OK;
}

/* ---- the file in progress ---- */

static heft_status target_create(heft__target *target, heft_error *err) {
    for (int tries = 0; target->fd < 0; tries++) {
        heft__target_temp_name(target->temp, target->name);
        /* The system applies the umask, or the folder's default ACL, to 0666: what comes of it is the mode of a new file, and
         * no other way of reading the umask is safe between threads. What takes the place of a private file is never more
         * than that. */
        target->fd = heft__target_call_open(target->folder.fd, target->temp, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW,
                                    target->keep_owner ? 0600 : 0666);
        if (target->fd >= 0) break;
        target->temp[0] = 0;
        if (errno != EEXIST || tries >= TARGET_TRIES)
            return heft__target_fail_errno(err, errno, target->path, "creating a temporary file for");
    }
    heft__target_status st;
    int code = heft__target_call_stat(target->fd, NULL, &st);
    if (!code && !target->keep_owner) target->mode = st.mode & 0777;
    /* Until it is finished the file is nobody else's business. */
    if (!code) code = heft__target_call_chmod(target->fd, 0600);
    return code ? heft__target_fail_errno(err, code, target->path, "creating a temporary file for") : HEFT_OK;
}

heft_status heft__target_fail_space(heft_error *err, const char *path, uint64_t wanted, uint64_t found) {
    char name[300];
    heft__escape(name, sizeof name, path, strlen(path));
    heft__fail(err, HEFT_LIMIT, HEFT_FAULT_NO_SPACE,
               "%s: no space left on the device: %llu bytes are needed and %llu are free", name,
               (unsigned long long)wanted, (unsigned long long)found);
    heft__error_file(err, path);
    heft__error_at(err, HEFT_NONE, wanted, found);
    return HEFT_LIMIT;
}

/* What no question beforehand could tell: a quota, or others who write meanwhile. With what is needed and what is free. */
static heft_status target_fail_full(const heft__target *target, int code, const char *what, heft_error *err) {
    uint64_t free_nbytes = HEFT_NONE;
    heft_status status = heft__target_fail_errno(err, code, target->path, what);
    bool full = code == ENOSPC || code == EDQUOT;
    if (!err || !full || target->wanted == 0 || target->wanted == HEFT_NONE) return status;
    size_t len = strlen(err->message);
    snprintf(err->message + len, sizeof err->message - len, ": the file needs %llu bytes", (unsigned long long)target->wanted);
    len = strlen(err->message);
    if (code == ENOSPC && target_sys()->space(target->folder.fd, &free_nbytes) == 0 && free_nbytes != HEFT_NONE)
        snprintf(err->message + len, sizeof err->message - len, " and %llu are free", (unsigned long long)free_nbytes);
    return status;
}

/* Whether there is room, before anything is made. */
static heft_status target_preflight(const heft__target *target, const heft__target_options *options, heft_error *err) {
    uint64_t free_nbytes = HEFT_NONE, nbytes = options->nbytes == HEFT_NONE ? 0 : options->nbytes - options->shared_nbytes;
    if (nbytes == 0 || target_sys()->space(target->folder.fd, &free_nbytes) != 0) return HEFT_OK;
    return nbytes > free_nbytes ? heft__target_fail_space(err, target->path, nbytes, free_nbytes) : HEFT_OK;
}

/* Before the first byte is written, so that a full disk is found out now. */
heft_status heft__target_reserve(heft__target *target, uint64_t offset, uint64_t nbytes, heft_error *err) {
    int result;
    do result = target_sys()->reserve(target->fd, offset, nbytes);
    while (result != 0 && errno == EINTR);
    if (result == 0) return HEFT_OK;
    int code = errno;
    if (code == ENOSPC || code == EDQUOT || code == EFBIG || code == EIO) {
        uint64_t free_nbytes = HEFT_NONE;
        if (code == ENOSPC && target_sys()->space(target->folder.fd, &free_nbytes) == 0 && free_nbytes < nbytes)
            return heft__target_fail_space(err, target->path, nbytes, free_nbytes);
        return target_fail_full(target, code, "reserving space for", err);
    }
    /* This file system does not reserve. */
    return target->unreserved ? HEFT_OK : heft__target_resize(target, nbytes, err);
}

heft_status heft__target_resize(heft__target *target, uint64_t nbytes, heft_error *err) {
    int result;
    do result = target_sys()->resize(target->fd, nbytes);
    while (result != 0 && errno == EINTR);
    return result ? heft__target_fail_errno(err, errno, target->path, "setting the size of") : HEFT_OK;
}

static void target_init(heft__target *target, const char *path, const heft__target_options *options) {
    memset(target, 0, sizeof *target);
    target->fd = target->direct_fd = target->folder.fd = -1;
    target->overwrite = options->overwrite;
    target->no_sync = options->no_sync;
    target->wanted = options->nbytes;
    size_t len = strlen(path);
    if (len >= sizeof target->path) len = sizeof target->path - 1;
    memcpy(target->path, path, len);
}

static heft_status target_begin(heft__target *target, const heft__target_options *options, heft_error *err) {
    heft_status status = target_preflight(target, options, err);
    if (status == HEFT_OK) status = target_create(target, err);
    if (status != HEFT_OK || options->nbytes == HEFT_NONE || options->nbytes == 0) return status;
    target->unreserved = options->shared_nbytes > 0;
    return target->unreserved ? heft__target_resize(target, options->nbytes, err)
                              : heft__target_reserve(target, 0, options->nbytes, err);
}

/* Finds and examines the target, and opens its folder. */
static heft_status target_find(heft__target *target, const char *path, const heft__target_options *options, heft_error *err) {
    char resolved[HEFT__TARGET_PATH_MAX];
    bool followed = false;
    size_t len = strlen(path);
    target_init(target, path, options);
    if (len == 0) return target_fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL, path, "the path is empty");
    if (len >= sizeof resolved) return heft__target_fail_errno(err, ENAMETOOLONG, path, "creating");
    memcpy(resolved, path, len + 1);
    int code = options->links == HEFT__TARGET_REPLACE ? 0 : target_follow(resolved, &followed);
    target->followed = followed;
    heft_status status = HEFT_OK;
    if (options->links == HEFT__TARGET_REFUSE && followed)
        status = target_fail(err, HEFT_PERMISSION, HEFT_FAULT_ACCESS, path, "it is a symbolic link, and those are refused");
    else if (code) status = heft__target_fail_errno(err, code, path, "following");
    else status = target_examine(target, AT_FDCWD, resolved, err);
    return status == HEFT_OK ? target_locate(target, resolved, followed, err) : status;
}

heft_status heft__target_open(heft__target *target, const char *path, const heft__target_options *options,
                              heft_error *err) {
    heft_status status = target_find(target, path, options, err);
    if (status == HEFT_OK) status = target_begin(target, options, err);
    if (status != HEFT_OK) heft__target_abort(target);
    return status;
}

heft_status heft__target_check(const char *path, const heft__target_options *options, char folder[HEFT__TARGET_PATH_MAX],
                               heft_error *err) {
    heft__target target;
    heft_status status = target_find(&target, path, options, err);
    memcpy(folder, target.folder.path, HEFT__TARGET_PATH_MAX);
    heft__target_abort(&target);
    return status;
}

heft_status heft__target_open_there(heft__target *target, const char *path, const heft__target_options *options,
                                    heft__target_status *found, heft_error *err) {
    heft_status status = target_find(target, path, options, err);
    if (status == HEFT_OK) {
        target->fd = heft__target_call_open(target->folder.fd, target->name, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0);
        if (target->fd < 0) status = heft__target_fail_errno(err, errno, path, "opening for a change");
    }
    if (status == HEFT_OK) status = heft__target_stat(target, found, err);
    if (status == HEFT_OK && !S_ISREG((mode_t)found->mode)) /* it took the place of the file that was examined */
        status = target_fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_NOT_REGULAR, path, "it is no regular file");
    if (status != HEFT_OK) heft__target_abort(target);
    return status;
}

heft_status heft__target_stat(const heft__target *target, heft__target_status *out, heft_error *err) {
    bool open = target->fd >= 0;
    int code = heft__target_call_stat(open ? target->fd : target->folder.fd, open ? NULL : target->temp, out);
    return code ? heft__target_fail_errno(err, code, target->path, "examining") : HEFT_OK;
}

heft_status heft__target_flush(const heft__target *target, heft_error *err) {
    int code = target->no_sync ? 0 : heft__target_call_fsync(target->fd);
    return code ? heft__target_fail_errno(err, code, target->path, "writing to disk") : HEFT_OK;
}

heft_status heft__target_open_in(heft__target *target, const heft__target_folder *folder, const char *name,
                                 const heft__target_options *options, heft_error *err) {
    char path[HEFT__TARGET_PATH_MAX + HEFT__TARGET_NAME_MAX + 2];
    snprintf(path, sizeof path, "%s/%s", folder->path, name);
    target_init(target, path, options);
    target->folder = *folder;
    target->borrowed = true;
    heft_status status = HEFT_OK;
    if (strlen(name) > HEFT__TARGET_NAME_MAX) status = heft__target_fail_errno(err, ENAMETOOLONG, path, "creating");
    else memcpy(target->name, name, strlen(name) + 1);
    if (status == HEFT_OK) status = target_examine(target, folder->fd, name, err);
    if (status == HEFT_OK) status = target_begin(target, options, err);
    if (status != HEFT_OK) heft__target_abort(target);
    return status;
}

/* ---- bytes ---- */

static heft_status target_write_fd(heft__target *target, int fd, uint64_t offset, const void *data, uint64_t nbytes,
                                   uint64_t *done, heft_error *err) {
    for (*done = 0; *done < nbytes;) {
        uint64_t n = nbytes - *done;
        if (n > TARGET_CALL_MAX) n = TARGET_CALL_MAX;
        int64_t got = target_sys()->pwrite(fd, (const uint8_t *)data + *done, (size_t)n, offset + *done);
        if (got > 0) *done += (uint64_t)got;
        else if (got == 0 || errno != EINTR) {
            int code = got == 0 ? EIO : errno; /* a write that does nothing would do so forever */
            heft_status status = target_fail_full(target, code, "writing", err);
            heft__error_at(err, offset + *done, nbytes, *done);
            return status;
        }
    }
    return HEFT_OK;
}

heft_status heft__target_write(heft__target *target, uint64_t offset, const void *data, uint64_t nbytes,
                               heft_error *err) {
    uint64_t done;
    return target_write_fd(target, target->fd, offset, data, nbytes, &done, err);
}

void heft__target_try_direct(heft__target *target) {
#if defined(O_DIRECT)
    target->direct_fd = heft__target_call_open(target->folder.fd, target->temp, O_WRONLY | O_NOFOLLOW | O_DIRECT, 0);
#else
    (void)target;
#endif
}

heft_status heft__target_write_direct(heft__target *target, uint64_t offset, const void *data, uint64_t nbytes,
                                      heft_error *err) {
    uint64_t done = 0;
    if (target->direct_fd >= 0) {
        heft_error failure;
        heft_status status = target_write_fd(target, target->direct_fd, offset, data, nbytes, &done, &failure);
        if (status == HEFT_OK || failure.sys_errno != EINVAL) { /* EINVAL: this device wants another alignment */
            if (status != HEFT_OK && err) *err = failure;
            return status;
        }
    }
    return heft__target_write(target, offset + done, (const uint8_t *)data + done, nbytes - done, err);
}

heft_status heft__target_read(heft__target *target, uint64_t offset, void *data, uint64_t nbytes, heft_error *err) {
    for (uint64_t done = 0; done < nbytes;) {
        uint64_t n = nbytes - done;
        if (n > TARGET_CALL_MAX) n = TARGET_CALL_MAX;
        int64_t got = target_sys()->pread(target->fd, (uint8_t *)data + done, (size_t)n, offset + done);
        if (got > 0) done += (uint64_t)got;
        else if (got == 0 || errno != EINTR) {
            heft_status status = heft__target_fail_errno(err, got == 0 ? EIO : errno, target->path, "reading back");
            heft__error_at(err, offset + done, nbytes, done);
            return status;
        }
    }
    return HEFT_OK;
}

/* Less than a block at an end of a range. False: it failed, and so will whoever tries again, with a message. */
static bool target_copy_edge(heft__target *target, uint64_t offset, int from, uint64_t from_offset, uint64_t nbytes) {
    uint8_t edge[HEFT__TARGET_BLOCK];
    uint64_t got = 0, put = 0;
    while (got < nbytes) {
        int64_t n = target_sys()->pread(from, edge + got, (size_t)(nbytes - got), from_offset + got);
        if (n == 0 || (n < 0 && errno != EINTR)) return false;
        if (n > 0) got += (uint64_t)n;
    }
    return target_write_fd(target, target->fd, offset, edge, nbytes, &put, NULL) == HEFT_OK;
}

uint64_t heft__target_transfer(heft__target *target, uint64_t offset, int from, uint64_t from_offset, uint64_t nbytes,
                               bool copy, uint64_t *cloned) {
    uint64_t done = 0, head = (HEFT__TARGET_BLOCK - offset % HEFT__TARGET_BLOCK) % HEFT__TARGET_BLOCK;
    *cloned = 0;
    if (offset % HEFT__TARGET_BLOCK == from_offset % HEFT__TARGET_BLOCK && nbytes >= head + HEFT__TARGET_BLOCK) {
        uint64_t middle = (nbytes - head) / HEFT__TARGET_BLOCK * HEFT__TARGET_BLOCK, tail = nbytes - head - middle;
        if (target_sys()->clone(target->fd, offset + head, from, from_offset + head, middle) == 0) {
            if (!target_copy_edge(target, offset, from, from_offset, head)) return 0;
            *cloned = middle;
            bool all = target_copy_edge(target, offset + head + middle, from, from_offset + head + middle, tail);
            return all ? nbytes : head + middle;
        }
    }
    while (copy && done < nbytes) {
        uint64_t n = nbytes - done;
        if (n > TARGET_CALL_MAX) n = TARGET_CALL_MAX;
        int64_t got = target_sys()->copy(target->fd, offset + done, from, from_offset + done, (size_t)n);
        if (got > 0) done += (uint64_t)got;
        else if (got == 0 || errno != EINTR) break;
    }
    return done;
}

/* ---- the end ---- */

heft_status heft__target_sync(heft__target *target, heft_error *err) {
    const heft__target_sys *sys = target_sys();
    if (target->keep_owner) {
        (void)sys->chown(target->fd, target->uid, target->gid); /* where permitted */
        sys->copy_acl(target->folder.fd, target->name, target->fd);
    }
    int code = heft__target_call_chmod(target->fd, target->mode);
    if (code) return heft__target_fail_errno(err, code, target->path, "setting the mode of");
    code = target->no_sync ? 0 : heft__target_call_fsync(target->fd);
    target->sealed = true;
    return code ? heft__target_fail_errno(err, code, target->path, "writing to disk") : HEFT_OK;
}

heft_status heft__target_seal(heft__target *target, heft_error *err) {
    heft_status status = target->sealed ? HEFT_OK : heft__target_sync(target, err);
    if (status != HEFT_OK) return status;
    int code = heft__target_call_close(&target->direct_fd), second = heft__target_call_close(&target->fd);
    if (code || second) return heft__target_fail_errno(err, code ? code : second, target->path, "closing");
    return HEFT_OK;
}

static heft_status target_rename(heft__target *target, heft_error *err) {
    int code = (target->overwrite ? heft__target_call_rename : heft__target_call_rename_new)(target->folder.fd, target->temp,
                                                                                             target->name);
    if (code == EEXIST) return target_fail_exists(err, target->path);
    if (code) return heft__target_fail_errno(err, code, target->path, "renaming the finished file to");
    target->temp[0] = 0;
    return HEFT_OK;
}

heft_status heft__target_publish(heft__target *target, heft_error *err) {
    heft_status status = HEFT_OK;
    if (target->fd >= 0) status = heft__target_seal(target, err);
    if (status == HEFT_OK) status = target_rename(target, err);
    if (status == HEFT_OK && !target->no_sync) {
        int code = heft__target_call_fsync(target->folder.fd);
        if (code) status = heft__target_fail_errno(err, code, target->path, "writing to disk the folder of");
    }
    heft__target_abort(target);
    return status;
}

void heft__target_abort(heft__target *target) {
    (void)heft__target_call_close(&target->direct_fd);
    (void)heft__target_call_close(&target->fd);
    if (target->temp[0]) (void)heft__target_call_unlink(target->folder.fd, target->temp);
    target->temp[0] = 0;
    if (!target->borrowed) heft__target_folder_close(&target->folder);
}
