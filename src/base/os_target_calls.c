/* base: system calls of files in progress, made again when they are interrupted. */
#include "base/os_target_calls.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#define TARGET_RETRY(result, call)                                                                                     \
    do (result) = (call);                                                                                              \
    while ((result) != 0 && errno == EINTR)

static const heft__target_sys *target_calls(void) {
    return heft__target_sys_get();
}

int heft__target_call_open(int at, const char *path, int flags, uint32_t mode) {
    int fd;
    do fd = target_calls()->open(at, path, flags | O_CLOEXEC, mode);
    while (fd < 0 && errno == EINTR);
    if (fd < 0 || fd > STDERR_FILENO) return fd;
    /* A program that closed a standard stream would print into the file. */
    int moved = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1), code = errno;
    (void)target_calls()->close(fd);
    errno = code;
    return moved;
}

int heft__target_call_close(int *fd) {
    if (*fd < 0) return 0;
    int code = target_calls()->close(*fd) != 0 && errno != EINTR ? errno : 0; /* interrupted, it is closed all the same */
    *fd = -1;
    return code;
}

int heft__target_call_stat(int at, const char *path, heft__target_status *out) {
    int result;
    TARGET_RETRY(result, target_calls()->stat(at, path, out));
    return result == 0 ? 0 : errno;
}

int heft__target_call_chmod(int fd, uint32_t mode) {
    int result;
    TARGET_RETRY(result, target_calls()->chmod(fd, mode));
    return result == 0 ? 0 : errno;
}

int heft__target_call_unlink(int at, const char *name) {
    int result;
    TARGET_RETRY(result, target_calls()->unlink(at, name));
    return result == 0 ? 0 : errno;
}

int heft__target_call_fsync(int fd) {
    int result;
    TARGET_RETRY(result, target_calls()->fsync(fd));
    return result == 0 || errno == EINVAL || errno == ENOTSUP ? 0 : errno;
}

/* What an edit in place of a file has left beside it means nothing to the file that took its name. */
static void target_drop_journal(int folder, const char *name) {
    char journal[HEFT__TARGET_NAME_MAX + 1];
    if (strncmp(name, ".heft-", 6) == 0) return;
    heft__target_journal_name(journal, name);
    (void)heft__target_call_unlink(folder, journal);
}

int heft__target_call_rename(int folder, const char *from, const char *to) {
    int result;
    TARGET_RETRY(result, target_calls()->rename(folder, from, folder, to));
    if (result != 0) return errno;
    target_drop_journal(folder, to);
    return 0;
}

int heft__target_call_rename_new(int folder, const char *from, const char *to) {
    int result;
    TARGET_RETRY(result, target_calls()->rename_new(folder, from, folder, to));
    if (result != 0) {
        if (errno != ENOSYS && errno != EINVAL && errno != EPERM) return errno;
        TARGET_RETRY(result, target_calls()->link(folder, from, to));
        if (result != 0) return errno;
        (void)heft__target_call_unlink(folder, from); /* both names are the finished file: a leftover, not a failure */
    }
    target_drop_journal(folder, to);
    return 0;
}
