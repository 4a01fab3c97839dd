/* base: folders in which files in progress become files: names made, renamed, examined and removed. */
#include "base/alloc.h"
#include "base/error.h"
#include "base/os_target_calls.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static heft_status folder_fail(const heft__target_folder *folder, const char *name, int code, const char *what,
                               heft_error *err) {
    char path[HEFT__TARGET_PATH_MAX + HEFT__TARGET_NAME_MAX + 2];
    snprintf(path, sizeof path, "%s/%s", folder->path, name);
    return heft__target_fail_errno(err, code, path, what);
}

heft_status heft__target_folder_open(heft__target_folder *folder, const char *path, heft_error *err) {
    folder->fd = -1;
    size_t len = strlen(path);
    if (len >= sizeof folder->path) return heft__target_fail_errno(err, ENAMETOOLONG, path, "opening the folder");
    memcpy(folder->path, path, len + 1);
    folder->fd = heft__target_call_open(AT_FDCWD, path, O_RDONLY | O_DIRECTORY, 0);
    return folder->fd < 0 ? heft__target_fail_errno(err, errno, path, "opening the folder") : HEFT_OK;
}

void heft__target_folder_close(heft__target_folder *folder) {
    (void)heft__target_call_close(&folder->fd);
}

heft_status heft__target_folder_sync(const heft__target_folder *folder, heft_error *err) {
    int code = heft__target_call_fsync(folder->fd);
    return code ? heft__target_fail_errno(err, code, folder->path, "writing the folder to disk") : HEFT_OK;
}

heft_status heft__target_folder_rename(const heft__target_folder *folder, const char *from, const char *to,
                                       heft_error *err) {
    int code = heft__target_call_rename(folder->fd, from, to);
    bool full = code == ENOTEMPTY || code == EEXIST; /* a folder that another has filled meanwhile */
    heft_status status = code ? folder_fail(folder, to, full ? EEXIST : code, "renaming to", err) : HEFT_OK;
    if (full && err) err->fault = HEFT_FAULT_FILE_EXISTS;
    return status;
}

heft_status heft__target_folder_rename_new(const heft__target_folder *folder, const char *from, const char *to,
                                           heft_error *err) {
    int code = heft__target_call_rename_new(folder->fd, from, to);
    heft_status status = code ? folder_fail(folder, to, code, "renaming to", err) : HEFT_OK;
    if (code == EEXIST && err) err->fault = HEFT_FAULT_FILE_EXISTS;
    return status;
}

heft_status heft__target_folder_unlink(const heft__target_folder *folder, const char *name, heft_error *err) {
    int code = heft__target_call_unlink(folder->fd, name);
    return code && code != ENOENT ? folder_fail(folder, name, code, "removing", err) : HEFT_OK;
}

heft_status heft__target_unlink(const char *path, heft_error *err) {
    int code = heft__target_call_unlink(AT_FDCWD, path);
    return code && code != ENOENT ? heft__target_fail_errno(err, code, path, "removing") : HEFT_OK;
}

heft_status heft__target_leads(const char *path, uint64_t device, uint64_t inode, bool *leads, heft_error *err) {
    heft__target_status st;
    int code = heft__target_call_stat(AT_FDCWD, path, &st);
    *leads = !code && st.device == device && st.inode == inode;
    return code && code != ENOENT ? heft__target_fail_errno(err, code, path, "examining") : HEFT_OK;
}

heft_status heft__target_folder_unlink_of(const heft__target_folder *folder, const char *name, uint64_t inode,
                                          heft_error *err) {
    heft__target_status st;
    int code = heft__target_call_stat(folder->fd, name, &st);
    if (code == ENOENT || (!code && st.inode != inode)) return HEFT_OK;
    return code ? folder_fail(folder, name, code, "examining", err) : heft__target_folder_unlink(folder, name, err);
}

heft_status heft__target_folder_size(const heft__target_folder *folder, const char *name, bool *there, uint64_t *nbytes,
                                     heft_error *err) {
    heft__target_status st;
    int code = heft__target_call_stat(folder->fd, name, &st);
    *there = code == 0;
    if (code == 0) *nbytes = st.nbytes;
    return code == 0 || code == ENOENT ? HEFT_OK : folder_fail(folder, name, code, "examining", err);
}

heft_status heft__target_folder_has(const heft__target_folder *folder, const char *name, bool *there, heft_error *err) {
    uint64_t nbytes;
    return heft__target_folder_size(folder, name, there, &nbytes, err);
}

heft_status heft__target_folder_read(const heft__target_folder *folder, const char *name, uint64_t limit,
                                     const heft_allocator *alloc, void **data, uint64_t *nbytes, bool *there,
                                     heft_error *err) {
    heft__target_status st;
    *data = NULL;
    *nbytes = 0;
    int fd = heft__target_call_open(folder->fd, name, O_RDONLY | O_NONBLOCK | O_NOCTTY, 0), code = errno;
    *there = fd >= 0;
    if (fd < 0) return code == ENOENT ? HEFT_OK : folder_fail(folder, name, code, "opening", err);
    heft_status status = HEFT_OK;
    code = heft__target_call_stat(fd, NULL, &st);
    if (code) status = folder_fail(folder, name, code, "examining", err);
    else if (!S_ISREG((mode_t)st.mode) || st.nbytes > limit)
        status = heft__fail(err, HEFT_LIMIT, HEFT_FAULT_CALLER_LIMIT, "%s is no small file", name);
    else if (!(*data = heft__alloc(alloc, st.nbytes))) status = heft__fail_memory(err, st.nbytes);
    else *nbytes = st.nbytes;
    for (uint64_t done = 0; status == HEFT_OK && done < st.nbytes;) {
        int64_t got = heft__target_sys_get()->pread(fd, (uint8_t *)*data + done, (size_t)(st.nbytes - done), done);
        if (got > 0) done += (uint64_t)got;
        else if (got == 0 || errno != EINTR) status = folder_fail(folder, name, got ? errno : EIO, "reading", err);
    }
    (void)heft__target_call_close(&fd);
    if (status != HEFT_OK) {
        heft__free(alloc, *data, *nbytes);
        *data = NULL;
        *nbytes = 0;
    }
    return status;
}

bool heft__target_real_path(const char *path, char out[HEFT__TARGET_PATH_MAX]) {
    char *real = realpath(path, NULL);
    size_t len = real ? strlen(real) : HEFT__TARGET_PATH_MAX;
    if (len < HEFT__TARGET_PATH_MAX) memcpy(out, real, len + 1);
    free(real);
    return len < HEFT__TARGET_PATH_MAX;
}

bool heft__target_device(const char *path, uint64_t *device) {
    char folder[HEFT__TARGET_PATH_MAX];
    heft__target_status st;
    int code = heft__target_call_stat(AT_FDCWD, path, &st);
    if (code) {
        const char *slash = strrchr(path, '/');
        size_t len = !slash ? 0 : slash == path ? 1 : (size_t)(slash - path);
        if (len >= sizeof folder) return false;
        memcpy(folder, path, len);
        folder[len] = 0;
        code = heft__target_call_stat(AT_FDCWD, len ? folder : ".", &st);
    }
    *device = code ? 0 : st.device;
    return code == 0;
}

/* ---- folders in folders ---- */

heft_status heft__target_mkdir(const char *path, bool *made, heft_error *err) {
    int result;
    do result = heft__target_sys_get()->mkdir(AT_FDCWD, path);
    while (result != 0 && errno == EINTR);
    *made = result == 0;
    return result == 0 || errno == EEXIST ? HEFT_OK : heft__target_fail_errno(err, errno, path, "making the folder");
}

static heft_status folder_open_in(const heft__target_folder *parent, const char *name, heft__target_folder *folder,
                                  int *code) {
    snprintf(folder->path, sizeof folder->path, "%.3800s/%.255s", parent->path, name);
    folder->fd = heft__target_call_open(parent->fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0);
    *code = folder->fd < 0 ? errno : 0;
    return folder->fd < 0 ? HEFT_IO : HEFT_OK;
}

heft_status heft__target_folder_make(const heft__target_folder *parent, const char *name, heft__target_folder *folder,
                                     heft_error *err) {
    int result, code;
    do result = heft__target_sys_get()->mkdir(parent->fd, name);
    while (result != 0 && errno == EINTR);
    if (result != 0) return folder_fail(parent, name, errno, "making the folder", err);
    if (folder_open_in(parent, name, folder, &code) == HEFT_OK) return HEFT_OK;
    (void)heft__target_sys_get()->rmdir(parent->fd, name);
    return folder_fail(parent, name, code, "opening the folder", err);
}

/* Calls remove(folder, name) for each entry but "." and "..", or counts them only. 0 or an errno. */
static int folder_each(const heft__target_folder *folder, uint64_t *count, bool remove) {
    int own = heft__target_call_open(folder->fd, ".", O_RDONLY | O_DIRECTORY, 0), code = 0;
    if (own < 0) return errno;
    DIR *list = fdopendir(own);
    if (!list) {
        code = errno;
        (void)heft__target_call_close(&own);
        return code;
    }
    for (struct dirent *e; code == 0 && (errno = 0, e = readdir(list));) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) continue;
        ++*count;
        if (remove) code = heft__target_call_unlink(folder->fd, e->d_name);
    }
    closedir(list);
    return code;
}

heft_status heft__target_folder_full(const heft__target_folder *parent, const char *name, bool *full, heft_error *err) {
    heft__target_folder folder;
    int code;
    uint64_t count = 0;
    *full = false;
    if (folder_open_in(parent, name, &folder, &code) != HEFT_OK) {
        if (code == ENOENT) return HEFT_OK;
        *full = code == ENOTDIR || code == ELOOP; /* a file, a link */
        return *full ? HEFT_OK : folder_fail(parent, name, code, "opening the folder", err);
    }
    code = folder_each(&folder, &count, false);
    *full = count > 0;
    heft__target_folder_close(&folder);
    return code ? folder_fail(parent, name, code, "listing the folder", err) : HEFT_OK;
}

heft_status heft__target_folder_remove(const heft__target_folder *parent, const char *name, heft_error *err) {
    heft__target_folder folder;
    int code;
    uint64_t count = 0;
    if (folder_open_in(parent, name, &folder, &code) == HEFT_OK) {
        code = folder_each(&folder, &count, true);
        heft__target_folder_close(&folder);
        if (!code && heft__target_sys_get()->rmdir(parent->fd, name) != 0) code = errno;
    }
    return code && code != ENOENT ? folder_fail(parent, name, code, "removing the folder", err) : HEFT_OK;
}
