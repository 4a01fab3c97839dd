/* base: what stands behind a descriptor, and a descriptor read to its end. */
#include "base/os.h"

#include "base/alloc.h"
#include "base/error.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

bool heft__os_is_regular(int fd) {
    struct stat st;
    return fstat(fd, &st) == 0 && S_ISREG(st.st_mode);
}

bool heft__os_is_folder(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

bool heft__os_is_there(const char *path) {
    struct stat st;
    return lstat(path, &st) == 0;
}

/* read with interruptions retried; a descriptor that does not block is waited for. Bytes, or -errno. */
static ssize_t input_read(int fd, void *dst, size_t nbytes) {
    for (;;) {
        ssize_t n = read(fd, dst, nbytes);
        if (n >= 0) return n;
        if (errno == EAGAIN || errno == EWOULDBLOCK) {
            struct pollfd wait = {.fd = fd, .events = POLLIN};
            if (poll(&wait, 1, -1) < 0 && errno != EINTR) return -errno;
        } else if (errno != EINTR) return -errno;
    }
}

heft_status heft__os_read_all(int fd, uint64_t limit, void **data, uint64_t *nbytes, heft_error *err) {
    const heft_allocator *a = &heft__default_allocator;
    uint64_t capacity = 0, count = 0;
    void *text = NULL;
    heft_status status = HEFT_OK;
    char label[32];
    snprintf(label, sizeof label, fd == 0 ? "standard input" : "fd %d", fd);
    *data = NULL;
    *nbytes = 0;
    for (;;) {
        if (count > limit) { /* one byte more than allowed has been read */
            status = heft__fail(err, HEFT_LIMIT, HEFT_FAULT_CALLER_LIMIT, "%s: more than the limit of %llu bytes", label,
                                (unsigned long long)limit);
            heft__error_file(err, label);
            heft__error_at(err, HEFT_NONE, limit, HEFT_NONE);
            break;
        }
        if (!heft__grow(a, &text, &capacity, count, 1, 1 << 16)) {
            status = heft__fail_memory(err, capacity * 2);
            break;
        }
        uint64_t room = capacity - count, most = limit - count; /* most + 1 tells a full stream from an overlong one */
        if (room > 1 << 30) room = 1 << 30;
        if (room - 1 > most) room = most + 1;
        ssize_t n = input_read(fd, (uint8_t *)text + count, (size_t)room);
        if (n < 0) status = heft__fail_errno(err, (int)-n, label, "reading");
        if (n <= 0) break;
        count += (uint64_t)n;
    }
    if (status == HEFT_OK) {
        void *exact = heft__realloc(a, text, capacity, count);
        if (exact) {
            *data = exact;
            *nbytes = count;
            return HEFT_OK;
        }
        status = heft__fail_memory(err, count);
    }
    heft__free(a, text, capacity);
    return status;
}
