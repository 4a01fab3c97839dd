/* source: folders, listed and opened from by one descriptor, links kept inside on request. */
#include "source/source.h"

#include "base/error.h"
#include "base/text.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#if defined(__linux__)
#include <sys/syscall.h>
#endif

struct heft__directory {
    heft_allocator alloc;
    int fd;
    char *path;
};

#if defined(PATH_MAX)
#define DIRECTORY_PATH_MAX PATH_MAX
#else
#define DIRECTORY_PATH_MAX 4096
#endif
enum { DIRECTORY_MOST_LINKS = 40, DIRECTORY_MOST_DEPTH = 64 };

/* ---- opening and listing ---- */

heft_status heft__directory_open(const char *path, heft__directory **out, heft_error *err) {
    *out = NULL;
    int fd = heft__source_open_at(AT_FDCWD, path, heft__source_open_flags());
    if (fd < 0) return heft__fail_open(err, -fd, path);
    struct stat st;
    heft_status status = HEFT_OK;
    const heft_allocator *alloc = heft__source_sys_get()->alloc;
    heft__directory *directory = NULL;
    if (fstat(fd, &st) != 0) status = heft__fail_errno(err, errno, path, "examining");
    else if (!S_ISDIR(st.st_mode)) status = heft__fail_kind(err, path, (uint32_t)st.st_mode, "a directory");
    else if (!(directory = heft__alloc_zero(alloc, sizeof *directory))) status = heft__fail_memory(err, sizeof *directory);
    else if (!(directory->path = heft__strdup_len(alloc, path, strlen(path)))) {
        heft__free(alloc, directory, sizeof *directory);
        status = heft__fail_memory(err, (uint64_t)strlen(path) + 1);
    }
    if (status != HEFT_OK) {
        close(fd);
        return status;
    }
    directory->alloc = *alloc;
    directory->fd = fd;
    *out = directory;
    return HEFT_OK;
}

void heft__directory_close(heft__directory *directory) {
    if (!directory) return;
    heft_allocator alloc = directory->alloc;
    close(directory->fd);
    heft__free(&alloc, directory->path, (uint64_t)strlen(directory->path) + 1);
    heft__free(&alloc, directory, sizeof *directory);
}

const char *heft__directory_path(const heft__directory *directory) {
    return directory->path;
}

/* False: it has gone since it was listed. */
static bool directory_examine(int fd, heft__directory_entry *entry) {
    struct stat st;
    if (fstatat(fd, entry->name, &st, 0) != 0) {
        int code = errno;
        if (fstatat(fd, entry->name, &st, AT_SYMLINK_NOFOLLOW) != 0) return false;
        bool dangling = code == ENOENT || code == ENOTDIR || code == ELOOP;
        entry->kind = dangling ? HEFT__FILE_DANGLING : HEFT__FILE_REGULAR;
        return true;
    }
#if defined(__APPLE__)
    struct timespec mtime = st.st_mtimespec;
#else
    struct timespec mtime = st.st_mtim;
#endif
    entry->kind = S_ISREG(st.st_mode) ? HEFT__FILE_REGULAR : S_ISDIR(st.st_mode) ? HEFT__FILE_DIRECTORY : HEFT__FILE_OTHER;
    entry->nbytes = st.st_size > 0 ? (uint64_t)st.st_size : 0;
    entry->mtime_ns = (int64_t)((uint64_t)mtime.tv_sec * 1000000000u + (uint64_t)mtime.tv_nsec);
    return true;
}

static int directory_compare(const void *a, const void *b) {
    return strcmp(((const heft__directory_entry *)a)->name, ((const heft__directory_entry *)b)->name);
}

/* 0 or an errno. Entries grow by doubling within the arena. */
static int directory_read(DIR *stream, const char *prefix, heft__arena *arena, heft__directory_entry **entries,
                          uint64_t *nentries) {
    uint64_t capacity = 0, count = 0;
    size_t prefix_len = strlen(prefix);
    heft__directory_entry *list = NULL;
    for (;;) {
        errno = 0;
        const struct dirent *found = readdir(stream);
        if (!found && errno == EINTR) continue;
        if (!found && errno) return errno;
        if (!found) break;
        if (strcmp(found->d_name, ".") == 0 || strcmp(found->d_name, "..") == 0) continue;
        if (strncmp(found->d_name, prefix, prefix_len) != 0) continue;
        if (count == capacity) {
            uint64_t more = capacity ? capacity * 2 : 64;
            heft__directory_entry *grown = heft__arena_alloc(arena, more * sizeof *grown, 8);
            if (!grown) return ENOMEM;
            if (count) memcpy(grown, list, (size_t)count * sizeof *grown);
            list = grown;
            capacity = more;
        }
        heft__directory_entry entry = {0};
        entry.name = heft__arena_text(arena, found->d_name, strlen(found->d_name));
        if (!entry.name) return ENOMEM;
        if (directory_examine(dirfd(stream), &entry)) list[count++] = entry;
    }
    if (count) qsort(list, (size_t)count, sizeof *list, directory_compare);
    *entries = list;
    *nentries = count;
    return 0;
}

heft_status heft__directory_list(heft__directory *directory, heft__arena *arena, heft__directory_entry **entries,
                                 uint64_t *nentries, heft_error *err) {
    return heft__directory_list_prefix(directory, "", arena, entries, nentries, err);
}

heft_status heft__directory_list_prefix(heft__directory *directory, const char *prefix, heft__arena *arena,
                                        heft__directory_entry **entries, uint64_t *nentries, heft_error *err) {
    *entries = NULL;
    *nentries = 0;
    /* A description of its own: a duplicate would share its position with other threads that list. */
    int fd = heft__source_open_at(directory->fd, ".", heft__source_open_flags() | O_DIRECTORY);
    if (fd < 0) return heft__fail_open(err, -fd, directory->path);
    DIR *stream = fdopendir(fd);
    if (!stream) {
        int code = errno;
        close(fd);
        return heft__fail_errno(err, code, directory->path, "listing");
    }
    int code = directory_read(stream, prefix, arena, entries, nentries);
    closedir(stream);
    return code ? heft__fail_errno(err, code, directory->path, "listing") : HEFT_OK;
}

bool heft__source_follow(const heft__directory *directory, const char *path, char out[HEFT__SOURCE_PATH_MAX]) {
    char target[HEFT__SOURCE_PATH_MAX], joined[HEFT__SOURCE_PATH_MAX];
    size_t len = strlen(path);
    if (len >= HEFT__SOURCE_PATH_MAX) return false;
    memcpy(out, path, len + 1);
    for (int links = 0; links < DIRECTORY_MOST_LINKS; links++) {
        ssize_t n = readlinkat(directory ? directory->fd : AT_FDCWD, out, target, sizeof target - 1);
        if (n < 0) return true; /* no link, or nothing that can be asked */
        target[n] = 0;
        const char *slash = strrchr(out, '/');
        int folder = target[0] == '/' || !slash ? 0 : (int)(slash - out) + 1;
        int all = snprintf(joined, sizeof joined, "%.*s%s", folder, out, target);
        if (all < 0 || (size_t)all >= sizeof joined) return false;
        memcpy(out, joined, (size_t)all + 1);
    }
    return false;
}

/* ---- links kept inside ---- */

/* Whether the path that was given, less its last `levels` components, leads to the folder that truly lies as far above:
 * if not, a link among these components has left it. */
static bool directory_is_above(const heft__directory *directory, uint32_t levels, int root) {
    char text[DIRECTORY_PATH_MAX];
    struct stat a, b;
    size_t len = strlen(directory->path);
    if (len >= sizeof text) return false;
    memcpy(text, directory->path, len);
    for (; levels && len; levels--) {
        while (len && text[len - 1] == '/') len--;
        while (len && text[len - 1] != '/') len--;
    }
    if (len == 0) text[len++] = directory->path[0] == '/' ? '/' : '.';
    text[len] = 0;
    return stat(text, &a) == 0 && fstat(root, &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

/* The folder `levels` above the directory, and the directory's path below it with a final slash (empty for 0 levels).
 * A descriptor or -errno. */
static int directory_open_root(const heft__directory *directory, uint32_t levels, char below[DIRECTORY_PATH_MAX]) {
    below[0] = 0;
    if (levels == 0) return fcntl(directory->fd, F_DUPFD_CLOEXEC, 3);
    char *real = realpath(directory->path, NULL);
    if (!real) return -errno;
    uint32_t above = levels;
    char *cut = real + strlen(real);
    while (levels && cut > real) {
        do cut--;
        while (*cut != '/');
        levels--;
    }
    size_t len = strlen(cut);
    int fd = -ENAMETOOLONG;
    if (len + 1 < DIRECTORY_PATH_MAX) {
        if (len > 1) {
            memcpy(below, cut + 1, len - 1);
            below[len - 1] = '/';
            below[len] = 0;
        }
        cut[cut == real ? 1 : 0] = 0; /* the root folder keeps its slash */
        fd = heft__source_open_at(AT_FDCWD, real, heft__source_open_flags() | O_DIRECTORY);
    }
    free(real);
    if (fd >= 0 && !directory_is_above(directory, above, fd)) {
        close(fd);
        return -EXDEV;
    }
    return fd;
}

#if defined(__linux__)
typedef struct directory_how { /* struct open_how of Linux 5.6, which old headers lack */
    uint64_t flags, mode, resolve;
} directory_how;
enum { DIRECTORY_NO_MAGICLINKS = 0x02, DIRECTORY_BENEATH = 0x08, DIRECTORY_OPENAT2 = 437 };

static int directory_openat2(int root, const char *path) {
    directory_how how = {(uint64_t)heft__source_open_flags(), 0, DIRECTORY_NO_MAGICLINKS | DIRECTORY_BENEATH};
    for (int tries = 0; tries < 16; tries++) {
        long fd = syscall(DIRECTORY_OPENAT2, root, path, &how, sizeof how);
        if (fd >= 0) return (int)fd;
        if (errno != EINTR && errno != EAGAIN) return -errno; /* EAGAIN: something was renamed meanwhile */
    }
    return -ENOSYS;
}
#else
static int directory_openat2(int root, const char *path) {
    (void)root, (void)path;
    return -ENOSYS;
}
#endif

/* A walk from a root down, by one component at a time. */
typedef struct directory_walk {
    int fds[DIRECTORY_MOST_DEPTH]; /* the folders from the root to where it stands */
    uint32_t depth;                /* of them */
    uint32_t links;
    char rest[DIRECTORY_PATH_MAX]; /* what is still to be walked */
} directory_walk;

/* Puts the target of a link before what follows it in `rest`. 0 or -errno. */
static int directory_take_link(directory_walk *walk, const char *target, size_t len, const char *after) {
    char joined[DIRECTORY_PATH_MAX];
    size_t after_len = strlen(after);
    if (++walk->links > DIRECTORY_MOST_LINKS) return -ELOOP;
    if (len && target[0] == '/') return -EXDEV;
    if (len + 1 + after_len >= sizeof joined) return -ENAMETOOLONG;
    memcpy(joined, target, len);
    joined[len] = '/';
    memcpy(joined + len + 1, after, after_len + 1);
    if (!after_len) joined[len] = 0; /* a slash at the end would demand a folder */
    memcpy(walk->rest, joined, sizeof joined);
    return 0;
}

/* One component. 0: go on; -errno; or the descriptor of the file at the end, which is never 0. */
static int directory_step(directory_walk *walk) {
    char *name = walk->rest, target[DIRECTORY_PATH_MAX];
    while (*name == '/') name++;
    char *after = name + strcspn(name, "/");
    bool last = *after == 0;
    if (!last) *after++ = 0;
    int here = walk->fds[walk->depth - 1];
    if (strcmp(name, "..") == 0) {
        if (walk->depth == 1) return -EXDEV;
        close(walk->fds[--walk->depth]);
    } else if (strcmp(name, ".") != 0 && *name) {
        ssize_t len = readlinkat(here, name, target, sizeof target);
        if (len >= (ssize_t)sizeof target) return -ENAMETOOLONG;
        if (len >= 0) return directory_take_link(walk, target, (size_t)len, after);
        if (errno != EINVAL) return -errno; /* EINVAL: it is no link */
        int flags = heft__source_open_flags() | O_NOFOLLOW | (last ? 0 : O_DIRECTORY);
        int fd = heft__source_open_at(here, name, flags);
        if (fd < 0 || last) return fd;
        if (walk->depth == DIRECTORY_MOST_DEPTH) {
            close(fd);
            return -ENAMETOOLONG;
        }
        walk->fds[walk->depth++] = fd;
    }
    if (last) return -EISDIR; /* it ended in a folder */
    memmove(walk->rest, after, strlen(after) + 1);
    return 0;
}

static int directory_walk_beneath(int root, const char *path) {
    directory_walk walk;
    walk.fds[0] = root;
    walk.depth = 1;
    walk.links = 0;
    memcpy(walk.rest, path, strlen(path) + 1);
    int fd;
    do fd = directory_step(&walk);
    while (fd == 0);
    while (walk.depth > 1) close(walk.fds[--walk.depth]);
    return fd;
}

/* Whether `below` still leads from the root to the directory: the path may have been renamed since that was opened. */
static bool directory_is_below(const heft__directory *directory, int root, const char *below) {
    struct stat a, b;
    return fstat(directory->fd, &a) == 0 && fstatat(root, *below ? below : ".", &b, 0) == 0 && a.st_dev == b.st_dev &&
           a.st_ino == b.st_ino;
}

static int directory_open_beneath(const heft__directory *directory, const char *name, uint32_t levels) {
    char path[DIRECTORY_PATH_MAX];
    int root = directory_open_root(directory, levels, path);
    if (root < 0) return root;
    size_t len = strlen(path), name_len = strlen(name);
    int fd = -ESTALE;
    if (len + name_len >= sizeof path) fd = -ENAMETOOLONG;
    else if (directory_is_below(directory, root, path)) {
        memcpy(path + len, name, name_len + 1);
        fd = heft__source_sys_get()->no_openat2 ? -ENOSYS : directory_openat2(root, path);
        /* Sandboxes answer EPERM to calls they do not know. */
        if (fd == -ENOSYS || fd == -EPERM || fd == -E2BIG) fd = directory_walk_beneath(root, path);
    }
    close(root);
    return fd;
}

heft_status heft__directory_source(heft__directory *directory, const char *name, bool beneath, uint32_t beneath_levels,
                                   heft_source **out, heft_error *err) {
    *out = NULL;
    size_t head = strlen(directory->path), len = strlen(name);
    char *path = heft__alloc(&directory->alloc, (uint64_t)head + 1 + len + 1);
    if (!path) return heft__fail_memory(err, (uint64_t)head + len + 2);
    memcpy(path, directory->path, head);
    if (head && path[head - 1] != '/') path[head++] = '/';
    memcpy(path + head, name, len + 1);
    int fd = beneath ? directory_open_beneath(directory, name, beneath_levels)
                     : heft__source_open_at(directory->fd, name, heft__source_open_flags());
    heft_status status;
    if (fd == -ESTALE) {
        char text[300];
        heft__escape(text, sizeof text, directory->path, strlen(directory->path));
        status = heft__fail(err, HEFT_MISMATCH, HEFT_FAULT_FILE_CHANGED,
                            "%s: the folder was moved or replaced since it was opened; open it again", text);
        heft__error_file(err, path);
    } else if (fd < 0) status = heft__fail_open(err, -fd, path);
    else status = heft__source_from_fd(fd, path, false, out, err);
    if (status == HEFT_OK) {
        (*out)->name = (*out)->label + head;
        (*out)->in_directory = true;
    }
    heft__free(&directory->alloc, path, (uint64_t)strlen(directory->path) + 1 + len + 1);
    return status;
}
