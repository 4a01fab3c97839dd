/* base: files that the command line writes: beside the target, then renamed; pipes and devices in place. */
#include "base/os.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/text.h"
#include "base/utf8.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#if defined(__linux__)
#include <sys/syscall.h>
#endif

#if defined(PATH_MAX)
#define OUTPUT_PATH_MAX PATH_MAX
#else
#define OUTPUT_PATH_MAX 4096
#endif
enum { OUTPUT_NAME_MAX = 255, OUTPUT_MOST_LINKS = 40, OUTPUT_TRIES = 16 };

struct heft__output {
    int fd;
    int folder;                      /* of the target; -1: streamed, nothing is renamed */
    bool force;
    mode_t mode;                     /* of the finished file */
    bool keep_owner;
    uid_t uid;                       /* of the file that is replaced */
    gid_t gid;
    char name[OUTPUT_NAME_MAX + 1];  /* of the target, in `folder` */
    char temp[OUTPUT_NAME_MAX + 1];  /* of the file in progress, in `folder` */
    char path[OUTPUT_PATH_MAX];      /* for messages */
};

/* The file that a signal must remove. */
static _Atomic(heft__output *) output_in_progress;

void heft__output_interrupted(void) {
    heft__output *out = atomic_load(&output_in_progress);
    if (out) (void)unlinkat(out->folder, out->temp, 0);
}

static heft_status output_fail(heft_error *err, heft_status status, heft_fault fault, const char *path, const char *why) {
    char name[300];
    heft__escape(name, sizeof name, path, strlen(path));
    heft__fail(err, status, fault, "%s: %s", name, why);
    heft__error_file(err, path);
    return status;
}

/* As heft__fail_errno, for what goes wrong on the way to a file written. */
static heft_status output_fail_errno(heft_error *err, int code, const char *path, const char *what) {
    heft_status status = heft__fail_errno(err, code, path, what);
    if (err && err->fault == HEFT_FAULT_READ_ERROR) err->fault = HEFT_FAULT_WRITE_ERROR;
    return status;
}

static heft_status output_fail_exists(heft_error *err, const char *path) {
    return output_fail(err, HEFT_EXISTS, HEFT_FAULT_CALL, path, "it exists already and is not replaced unless forced");
}

/* ---- where the target is ---- */

/* Follows the links at the end of `path`, so that the file they lead to is replaced and the links stay. 0 or an errno. */
static int output_follow(char path[OUTPUT_PATH_MAX], bool *followed) {
    char target[OUTPUT_PATH_MAX], joined[OUTPUT_PATH_MAX];
    *followed = false;
    for (int links = 0;; links++) {
        ssize_t n = readlink(path, target, sizeof target - 1);
        if (n < 0) return errno == EINVAL || errno == ENOENT ? 0 : errno; /* no link, or nothing there */
        if (links == OUTPUT_MOST_LINKS) return ELOOP;
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
static bool output_is_blobs(const char *folder) {
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
static heft_status output_locate(heft__output *out, char path[OUTPUT_PATH_MAX], bool followed, heft_error *err) {
    char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    if (strlen(name) > OUTPUT_NAME_MAX) return output_fail_errno(err, ENAMETOOLONG, out->path, "creating");
    if (!*name || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        return output_fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_NOT_REGULAR, out->path,
                           "it names a directory; a file is wanted");
    memcpy(out->name, name, strlen(name) + 1);
    if (slash) slash[slash == path] = 0;
    const char *folder = slash ? path : ".";
    if (followed && output_is_blobs(folder))
        return output_fail(err, HEFT_PERMISSION, HEFT_FAULT_ACCESS, out->path,
                           "it is a link into a Hub cache, whose files are named by their content; remove the link first");
    out->folder = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return out->folder < 0 ? output_fail_errno(err, errno, out->path, "opening its folder") : HEFT_OK;
}

/* ---- the file in progress ---- */

/* ".heft-<name>-<pid>-<random>.tmp": loaders do not match it, and a long name is cut so that it fits. */
static void output_temp_name(heft__output *out) {
    uint32_t random;
    char tail[64];
    heft__os_random(&random, sizeof random);
    snprintf(tail, sizeof tail, "-%ld-%08lx.tmp", (long)getpid(), (unsigned long)random);
    size_t room = sizeof out->temp - 1 - strlen(".heft-") - strlen(tail), len = strlen(out->name);
    if (len > room) len = heft__utf8_cut(out->name, room);
    snprintf(out->temp, sizeof out->temp, ".heft-%.*s%s", (int)len, out->name, tail);
}

/* A descriptor above the standard ones: a program without them must not print into the file. */
static int output_above_standard(int fd) {
    if (fd < 0 || fd > STDERR_FILENO) return fd;
    int moved = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1), code = errno;
    close(fd);
    errno = code;
    return moved;
}

static heft_status output_create_file(heft__output *out, heft_error *err) {
    int fd = -1;
    for (int tries = 0; fd < 0; tries++) {
        output_temp_name(out);
        fd = openat(out->folder, out->temp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
        if (fd < 0 && errno != EINTR && (errno != EEXIST || tries >= OUTPUT_TRIES))
            return output_fail_errno(err, errno, out->path, "creating a temporary file for");
    }
    out->fd = output_above_standard(fd);
    struct stat st;
    bool ready = out->fd >= 0 && fstat(out->fd, &st) == 0;
    /* The system has applied the umask to 0666: what came of it is the mode of a new file, and no other way of reading the
     * umask is safe between threads. Until it is finished the file is nobody else's business. */
    if (ready && !out->keep_owner) out->mode = st.st_mode & 0777;
    if (!ready || fchmod(out->fd, 0600) != 0) {
        int code = errno;
        (void)unlinkat(out->folder, out->temp, 0);
        return output_fail_errno(err, code, out->path, "creating a temporary file for");
    }
    heft__output *none = NULL;
    (void)atomic_compare_exchange_strong(&output_in_progress, &none, out);
    return HEFT_OK;
}

/* No signal comes between the moment when the file is there and the one when the handler knows of it. */
static heft_status output_create(heft__output *out, heft_error *err) {
    sigset_t all, before;
    sigfillset(&all);
    bool blocked = pthread_sigmask(SIG_BLOCK, &all, &before) == 0;
    heft_status status = output_create_file(out, err);
    if (blocked) pthread_sigmask(SIG_SETMASK, &before, NULL);
    return status;
}

/* ---- opening ---- */

/* Descriptor that a path like /dev/stdout or /dev/fd/5 stands for, -1: none. Opening such a path would start a second
 * position in a file that others write to. */
static int output_standard_fd(const char *path) {
    if (strcmp(path, "-") == 0 || strcmp(path, "/dev/stdout") == 0) return STDOUT_FILENO;
    if (strcmp(path, "/dev/stderr") == 0) return STDERR_FILENO;
    static const char *const folders[] = {"/dev/fd/", "/proc/self/fd/"};
    for (size_t i = 0; i < 2; i++) {
        size_t n = strlen(folders[i]), digits = strspn(path + (strncmp(path, folders[i], n) == 0 ? n : 0), "0123456789");
        if (strncmp(path, folders[i], n) == 0 && digits > 0 && digits < 7 && path[n + digits] == 0)
            return atoi(path + n);
    }
    return -1;
}

static heft_status output_open_target(heft__output *out, const char *path, heft_error *err) {
    struct stat st;
    char resolved[OUTPUT_PATH_MAX];
    int fd = output_standard_fd(path);
    if (fd >= 0) {
        out->fd = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
        return out->fd < 0 ? output_fail_errno(err, errno, path, "opening") : HEFT_OK;
    }
    bool exists = stat(path, &st) == 0, followed;
    if (!exists && errno != ENOENT) return output_fail_errno(err, errno, path, "examining");
    if (exists && S_ISDIR(st.st_mode))
        return output_fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_NOT_REGULAR, path, "it is a directory; a file is wanted");
    if (exists && !S_ISREG(st.st_mode)) {
        do fd = open(path, O_WRONLY | O_CLOEXEC | O_NOCTTY);
        while (fd < 0 && errno == EINTR);
        out->fd = output_above_standard(fd);
        return out->fd < 0 ? output_fail_errno(err, errno, path, "opening") : HEFT_OK;
    }
    if (exists && !out->force) return output_fail_exists(err, path);
    if (exists) {
        out->mode = st.st_mode & 0777;
        out->uid = st.st_uid;
        out->gid = st.st_gid;
        out->keep_owner = true;
    }
    memcpy(resolved, path, strlen(path) + 1);
    int code = output_follow(resolved, &followed);
    if (code) return output_fail_errno(err, code, path, "following");
    heft_status status = output_locate(out, resolved, followed, err);
    return status == HEFT_OK ? output_create(out, err) : status;
}

static void output_free(heft__output *out) {
    heft__output *self = out;
    (void)atomic_compare_exchange_strong(&output_in_progress, &self, NULL);
    if (out->fd >= 0) close(out->fd);
    if (out->folder >= 0) close(out->folder);
    heft__free(&heft__default_allocator, out, sizeof *out);
}

heft_status heft__output_open(const char *path, bool force, heft__output **result, heft_error *err) {
    *result = NULL;
    size_t len = strlen(path);
    if (len == 0) return output_fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL, path, "the output path is empty");
    if (len >= OUTPUT_PATH_MAX) return output_fail_errno(err, ENAMETOOLONG, path, "creating");
    heft__output *out = heft__alloc_zero(&heft__default_allocator, sizeof *out);
    if (!out) return heft__fail_memory(err, sizeof *out);
    out->fd = out->folder = -1;
    out->force = force;
    memcpy(out->path, path, len + 1);
    heft_status status = output_open_target(out, path, err);
    if (status == HEFT_OK) *result = out;
    else output_free(out);
    return status;
}

/* ---- writing ---- */

heft_status heft__output_write(heft__output *out, const void *data, size_t nbytes, heft_error *err) {
    const uint8_t *at = data;
    while (nbytes) {
        ssize_t n = write(out->fd, at, nbytes < (size_t)1 << 30 ? nbytes : (size_t)1 << 30);
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) { /* a pipe that does not block */
            struct pollfd wait = {.fd = out->fd, .events = POLLOUT};
            if (poll(&wait, 1, -1) < 0 && errno != EINTR) return output_fail_errno(err, errno, out->path, "writing");
        } else if (n < 0 && errno != EINTR) {
            return output_fail_errno(err, errno, out->path, "writing");
        } else if (n > 0) {
            at += n;
            nbytes -= (size_t)n;
        }
    }
    return HEFT_OK;
}

/* Renames without replacing what may have appeared meanwhile. 0 or an errno. */
static int output_rename_new(const heft__output *out) {
#if defined(__linux__) && defined(SYS_renameat2)
    if (!heft__os_traits_get()->plain_rename) {
        enum { OUTPUT_NOREPLACE = 1 };
        if (syscall(SYS_renameat2, out->folder, out->temp, out->folder, out->name, OUTPUT_NOREPLACE) == 0) return 0;
        if (errno != ENOSYS && errno != EINVAL && errno != EPERM) return errno;
    }
#endif
    if (linkat(out->folder, out->temp, out->folder, out->name, 0) != 0) return errno;
    (void)unlinkat(out->folder, out->temp, 0); /* both names are the finished file: a leftover, not a failure */
    return 0;
}

/* fsync where the file system has it. */
static int output_sync(int fd) {
    int result;
    do result = fsync(fd);
    while (result != 0 && errno == EINTR);
    return result == 0 || errno == EINVAL || errno == ENOTSUP ? 0 : errno;
}

static heft_status output_finish(heft__output *out, heft_error *err) {
    if (out->keep_owner && fchown(out->fd, out->uid, out->gid) != 0)
        (void)!fchown(out->fd, (uid_t)-1, out->gid); /* where permitted */
    if (fchmod(out->fd, out->mode) != 0) return output_fail_errno(err, errno, out->path, "setting the mode of");
    int code = output_sync(out->fd);
    if (code) return output_fail_errno(err, code, out->path, "writing to disk");
    code = close(out->fd) != 0 && errno != EINTR ? errno : 0;
    out->fd = -1;
    if (code) return output_fail_errno(err, code, out->path, "closing");
    if (out->force) code = renameat(out->folder, out->temp, out->folder, out->name) != 0 ? errno : 0;
    else code = output_rename_new(out);
    if (code == EEXIST) return output_fail_exists(err, out->path);
    if (code) return output_fail_errno(err, code, out->path, "renaming the finished file to");
    out->temp[0] = 0;
    code = output_sync(out->folder);
    return code ? output_fail_errno(err, code, out->path, "writing to disk the folder of") : HEFT_OK;
}

heft_status heft__output_commit(heft__output *out, heft_error *err) {
    heft_status status = HEFT_OK;
    if (out->folder >= 0) status = output_finish(out, err);
    else {
        int code = close(out->fd) != 0 && errno != EINTR ? errno : 0;
        out->fd = -1;
        if (code) status = output_fail_errno(err, code, out->path, "closing");
    }
    heft__output_abort(out);
    return status;
}

void heft__output_abort(heft__output *out) {
    if (!out) return;
    if (out->folder >= 0 && out->temp[0]) (void)unlinkat(out->folder, out->temp, 0);
    output_free(out);
}
