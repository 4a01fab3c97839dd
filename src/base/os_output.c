/* base: files that the command line writes: regular ones by the save sequence, pipes and devices in place. */
#include "base/os.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/os_target.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct heft__output {
    heft__target target; /* `path` is used of a stream too */
    bool stream;
    int fd;              /* of a stream */
    uint64_t nbytes;     /* written to the target so far */
};

/* The file that a signal must remove. */
static _Atomic(heft__output *) output_in_progress;

void heft__output_interrupted(void) {
    heft__output *out = atomic_load(&output_in_progress);
    if (out) (void)unlinkat(out->target.folder.fd, out->target.temp, 0);
}

/* A descriptor above the standard ones. */
static int output_above_standard(int fd) {
    if (fd < 0 || fd > STDERR_FILENO) return fd;
    int moved = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1), code = errno;
    close(fd);
    errno = code;
    return moved;
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

bool heft__output_is_stream(const char *path) {
    struct stat st;
    return output_standard_fd(path) >= 0 || (stat(path, &st) == 0 && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode));
}

/* No signal comes between the moment when the file is there and the one when the handler knows of it. */
static heft_status output_create(heft__output *out, const char *path, bool force, heft_error *err) {
    sigset_t all, before;
    sigfillset(&all);
    bool blocked = pthread_sigmask(SIG_BLOCK, &all, &before) == 0;
    heft__target_options options = {.nbytes = HEFT_NONE, .overwrite = force};
    heft_status status = heft__target_open(&out->target, path, &options, err);
    heft__output *none = NULL;
    if (status == HEFT_OK) (void)atomic_compare_exchange_strong(&output_in_progress, &none, out);
    if (blocked) pthread_sigmask(SIG_SETMASK, &before, NULL);
    return status;
}

static heft_status output_open_target(heft__output *out, const char *path, bool force, heft_error *err) {
    int fd = output_standard_fd(path);
    if (!heft__output_is_stream(path))
        return output_create(out, path, force, err); /* or refused there */
    out->stream = true;
    if (fd >= 0) out->fd = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    else {
        do fd = open(path, O_WRONLY | O_CLOEXEC | O_NOCTTY);
        while (fd < 0 && errno == EINTR);
        out->fd = output_above_standard(fd);
    }
    size_t len = strlen(path);
    if (len >= sizeof out->target.path) len = sizeof out->target.path - 1;
    memcpy(out->target.path, path, len);
    return out->fd < 0 ? heft__target_fail_errno(err, errno, path, "opening") : HEFT_OK;
}

static void output_free(heft__output *out) {
    heft__output *self = out;
    (void)atomic_compare_exchange_strong(&output_in_progress, &self, NULL);
    if (out->fd >= 0) close(out->fd);
    heft__free(&heft__default_allocator, out, sizeof *out);
}

heft_status heft__output_open(const char *path, bool force, heft__output **result, heft_error *err) {
    *result = NULL;
    heft__output *out = heft__alloc_zero(&heft__default_allocator, sizeof *out);
    if (!out) return heft__fail_memory(err, sizeof *out);
    out->fd = -1;
    heft_status status = output_open_target(out, path, force, err);
    if (status == HEFT_OK) *result = out;
    else output_free(out);
    return status;
}

/* ---- writing ---- */

static heft_status output_write_stream(heft__output *out, const void *data, size_t nbytes, heft_error *err) {
    const uint8_t *at = data;
    while (nbytes) {
        ssize_t n = write(out->fd, at, nbytes < (size_t)1 << 30 ? nbytes : (size_t)1 << 30);
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) { /* a pipe that does not block */
            struct pollfd wait = {.fd = out->fd, .events = POLLOUT};
            if (poll(&wait, 1, -1) >= 0 || errno == EINTR) continue;
        }
        if (n < 0 && errno != EINTR) return heft__target_fail_errno(err, errno, out->target.path, "writing");
        if (n > 0) {
            at += n;
            nbytes -= (size_t)n;
        }
    }
    return HEFT_OK;
}

heft_status heft__output_write(heft__output *out, const void *data, size_t nbytes, heft_error *err) {
    if (out->stream) return output_write_stream(out, data, nbytes, err);
    heft_status status = heft__target_write(&out->target, out->nbytes, data, nbytes, err);
    out->nbytes += nbytes;
    return status;
}

heft_status heft__output_commit(heft__output *out, heft_error *err) {
    heft_status status = HEFT_OK;
    if (!out->stream) status = heft__target_publish(&out->target, err);
    else {
        int code = close(out->fd) != 0 && errno != EINTR ? errno : 0;
        out->fd = -1;
        if (code) status = heft__target_fail_errno(err, code, out->target.path, "closing");
    }
    output_free(out);
    return status;
}

void heft__output_abort(heft__output *out) {
    if (!out) return;
    if (!out->stream) heft__target_abort(&out->target);
    output_free(out);
}
