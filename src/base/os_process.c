/* base: what the system counts for this process, and one lock for each user of a machine. */
#include "base/os.h"

#include "base/error.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

uint64_t heft__os_process(void) {
    return (uint64_t)getpid();
}

heft_status heft__os_process_check(uint64_t process, const char *what, heft_error *err) {
    uint64_t now = heft__os_process();
    if (process == now) return HEFT_OK;
    heft__fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL,
               "the %s was made by process %llu, before the fork of this one: only that one can use it", what,
               (unsigned long long)process);
    heft__error_at(err, HEFT_NONE, process, now);
    return HEFT_INVALID_ARGUMENT;
}

void heft__os_faults(uint64_t *minor, uint64_t *major) {
    struct rusage usage;
    *minor = *major = 0;
    if (getrusage(RUSAGE_SELF, &usage) != 0) return;
    *minor = (uint64_t)usage.ru_minflt;
    *major = (uint64_t)usage.ru_majflt;
}

/* A folder that belongs to this user alone is best; in /tmp the name holds the user, and a file of somebody else's is
 * no lock of ours. */
int heft__os_lock(const char *name, bool (*stop)(void *ctx), void *ctx) {
    char path[512];
    const char *folder = getenv("XDG_RUNTIME_DIR");
    int n = folder && folder[0] == '/'
                ? snprintf(path, sizeof path, "%s/%s.lock", folder, name)
                : snprintf(path, sizeof path, "/tmp/%s-%lu.lock", name, (unsigned long)geteuid());
    if (n < 0 || (size_t)n >= sizeof path) return -1;
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    struct stat st;
    if (fd >= 0 && (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || st.st_uid != geteuid())) {
        close(fd);
        return -1;
    }
    if (fd < 0) return -1;
    while (flock(fd, stop ? LOCK_EX | LOCK_NB : LOCK_EX) != 0) {
        const struct timespec pause = {0, 20000000};
        int code = errno;
        if (code == EWOULDBLOCK && stop && !stop(ctx)) {
            nanosleep(&pause, NULL);
        } else if (code != EINTR) {
            close(fd);
            return -1;
        }
    }
    return fd;
}

void heft__os_unlock(int lock) {
    if (lock >= 0) close(lock);
}
