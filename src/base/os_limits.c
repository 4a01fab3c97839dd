/* base: how much memory, how many CPUs and files this process may use: the machine's, or less by its limits. */
#include "base/os.h"

#include "base/checked.h"
#include "base/parallel.h"
#include "base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LIMITS_PATH = 4096, LIMITS_LINE = 4096, LIMITS_MOST_CPUS = 1 << 16 };
/* A limit of version 1 from here on means none: the kernel's default is 2^63 rounded down to a page. */
#define LIMITS_NONE_V1 (UINT64_C(1) << 62)

/* ---- small text files ---- */

typedef struct limits_file {
    int fd;
    size_t pos, len;
    char buffer[1024];
} limits_file;

static bool limits_open(limits_file *file, const char *path) {
    char full[LIMITS_PATH + 1024];
    int n = snprintf(full, sizeof full, "%s%s", heft__os_traits_get()->root, path);
    if (n < 0 || (size_t)n >= sizeof full) return false;
    file->fd = open(full, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    file->pos = file->len = 0;
    return file->fd >= 0;
}

static bool limits_char(limits_file *file, char *out) {
    if (file->pos == file->len) {
        ssize_t n;
        do n = read(file->fd, file->buffer, sizeof file->buffer);
        while (n < 0 && errno == EINTR);
        if (n <= 0) return false;
        file->pos = 0;
        file->len = (size_t)n;
    }
    *out = file->buffer[file->pos++];
    return true;
}

/* The next line without its end, cut if it is too long. False at the end. */
static bool limits_line_of(limits_file *file, char *line, size_t size) {
    size_t n = 0;
    bool any = false;
    for (char c; limits_char(file, &c);) {
        any = true;
        if (c == '\n') break;
        if (n < size - 1) line[n++] = c;
    }
    line[n] = 0;
    return any;
}

static bool limits_line(limits_file *file, char line[LIMITS_LINE]) {
    return limits_line_of(file, line, LIMITS_LINE);
}

bool heft__os_first_line(const char *path, char *line, size_t size) {
    limits_file file;
    *line = 0;
    if (!limits_open(&file, path)) return false;
    bool any = limits_line_of(&file, line, size);
    close(file.fd);
    return any;
}

/* A decimal number at *text, which moves past it. */
static bool limits_parse(const char **text, uint64_t *out) {
    const char *at = *text;
    uint64_t value = 0;
    while (*at == ' ' || *at == '\t') at++;
    if (*at < '0' || *at > '9') return false;
    for (; *at >= '0' && *at <= '9'; at++)
        if (!heft__mul_u64(value, 10, &value) || !heft__add_u64(value, (uint64_t)(*at - '0'), &value)) return false;
    *text = at;
    *out = value;
    return true;
}

/* The number that follows `key` and a blank or colon at the start of a line. */
static bool limits_field(const char *path, const char *key, uint64_t *out) {
    limits_file file;
    char line[LIMITS_LINE];
    size_t n = strlen(key);
    bool found = false;
    if (!limits_open(&file, path)) return false;
    while (!found && limits_line(&file, line)) {
        if (strncmp(line, key, n) != 0 || (line[n] != ' ' && line[n] != ':')) continue;
        const char *at = line + n + 1;
        found = limits_parse(&at, out);
    }
    close(file.fd);
    return found;
}

static bool limits_join(char out[LIMITS_PATH], const char *directory, const char *name) {
    int n = snprintf(out, LIMITS_PATH, "%s/%s", directory, name);
    return n >= 0 && n < LIMITS_PATH;
}

static bool limits_text(const char *directory, const char *name, char line[LIMITS_LINE]) {
    char path[LIMITS_PATH];
    return limits_join(path, directory, name) && heft__os_first_line(path, line, LIMITS_LINE);
}

static bool limits_number(const char *directory, const char *name, uint64_t *out) {
    char line[LIMITS_LINE];
    const char *at = line;
    return limits_text(directory, name, line) && limits_parse(&at, out);
}

/* ---- control groups ---- */

typedef struct limits_group {
    char mount[LIMITS_PATH]; /* where the hierarchy is mounted */
    char path[LIMITS_PATH];  /* the process's own folder, at or below `mount` */
    bool v1;
} limits_group;

static bool limits_listed(const char *list, const char *word) {
    size_t n = strlen(word);
    for (const char *at = list; at; at = strchr(at, ',')) {
        at += *at == ',';
        if (strncmp(at, word, n) == 0 && (at[n] == ',' || at[n] == 0)) return true;
    }
    return false;
}

/* The process's group by /proc/self/cgroup: the version 1 line that has the controller, else the version 2 line. */
static bool limits_own_group(const char *controller, char path[LIMITS_PATH], bool *v1) {
    limits_file file;
    char line[LIMITS_LINE];
    bool found = false;
    *v1 = false;
    if (!limits_open(&file, "/proc/self/cgroup")) return false;
    while (!*v1 && limits_line(&file, line)) {
        char *list = strchr(line, ':');
        char *group = list ? strchr(list + 1, ':') : NULL;
        if (!group) continue;
        *group++ = 0;
        list++;
        bool second = strcmp(line, "0:") == 0 && *list == 0;
        *v1 = !second && limits_listed(list, controller);
        if (!second && !*v1) continue;
        memcpy(path, group, strlen(group) + 1); /* LIMITS_LINE and LIMITS_PATH are equal */
        found = true;
    }
    close(file.fd);
    return found;
}

/* Cuts the next blank-separated field off *text; escapes like \040 are resolved. */
static char *limits_next_field(char **text) {
    char *field = *text, *out = field;
    char *at = field;
    for (; *at && *at != ' '; at++) {
        bool octal = at[0] == '\\' && at[1] >= '0' && at[1] <= '3' && at[2] >= '0' && at[2] <= '7' && at[3] >= '0' &&
                     at[3] <= '7';
        if (octal) {
            *out++ = (char)((at[1] - '0') * 64 + (at[2] - '0') * 8 + (at[3] - '0'));
            at += 3;
        } else *out++ = *at;
    }
    *text = *at ? at + 1 : at;
    *out = 0;
    return field;
}

/* One line of mountinfo: id, parent, device, root, mount point, options, tags ..., "-", type, source, super options. */
static bool limits_mount_matches(char *line, const char *controller, bool v1, char **root, char **mount) {
    char *at = line, *field = NULL;
    for (int i = 0; i < 3; i++) (void)limits_next_field(&at);
    *root = limits_next_field(&at);
    *mount = limits_next_field(&at);
    do field = limits_next_field(&at);
    while (*at && strcmp(field, "-") != 0);
    char *type = limits_next_field(&at);
    (void)limits_next_field(&at);
    char *options = limits_next_field(&at);
    return v1 ? strcmp(type, "cgroup") == 0 && limits_listed(options, controller) : strcmp(type, "cgroup2") == 0;
}

static bool limits_is_folder(const char *path) {
    char full[LIMITS_PATH + 1024];
    struct stat st;
    int n = snprintf(full, sizeof full, "%s%s", heft__os_traits_get()->root, path);
    return n >= 0 && (size_t)n < sizeof full && stat(full, &st) == 0 && S_ISDIR(st.st_mode);
}

/* The folder of a controller that holds this process. */
static bool limits_find_group(const char *controller, limits_group *group) {
    limits_file file;
    char own[LIMITS_PATH], line[LIMITS_LINE], *root, *mount;
    bool found = false;
    if (!limits_own_group(controller, own, &group->v1) || !limits_open(&file, "/proc/self/mountinfo")) return false;
    while (!found && limits_line(&file, line)) {
        if (!limits_mount_matches(line, controller, group->v1, &root, &mount)) continue;
        size_t n = strcmp(root, "/") == 0 ? 0 : strlen(root);
        bool below = strncmp(own, root, n) == 0 && (own[n] == '/' || own[n] == 0);
        const char *rest = below && own[n] && own[n + 1] ? own + n + 1 : "";
        memcpy(group->mount, mount, strlen(mount) + 1);
        found = limits_join(group->path, mount, rest);
        if (!*rest || !found || !limits_is_folder(group->path)) memcpy(group->path, mount, strlen(mount) + 1);
        found = true;
    }
    close(file.fd);
    return found;
}

/* To the level above; false if this one was the mount point. */
static bool limits_up(limits_group *group) {
    char *slash = strrchr(group->path, '/');
    if (!slash || strlen(group->path) <= strlen(group->mount)) return false;
    *slash = 0;
    return true;
}

/* ---- memory ---- */

/* Takes the lesser one. Where it comes from is `what`, or with `where` "what where name". */
static void limits_least(heft__os_memory *best, uint64_t nbytes, const char *what, const char *where, const char *name) {
    if (nbytes >= best->nbytes) return;
    char text[LIMITS_PATH + 64];
    int n = where ? snprintf(text, sizeof text, "%s %s %s", what, where, name) : snprintf(text, sizeof text, "%s", what);
    best->nbytes = nbytes;
    heft__escape(best->origin, sizeof best->origin, text, n > 0 ? strlen(text) : 0);
}

/* What one level leaves: its limit less what is used and cannot be dropped. Files in the cache can, shared memory and
 * dirty pages that count as `file` cannot. *name: the file that has the limit. */
static uint64_t limits_memory_of(const limits_group *group, const char **name) {
    uint64_t limit = HEFT_NONE, other = 0, usage = 0, inactive = 0, active = 0;
    char stat_path[LIMITS_PATH];
    if (group->v1) {
        *name = "memory.limit_in_bytes";
        if (!limits_number(group->path, *name, &limit) || limit >= LIMITS_NONE_V1) return HEFT_NONE;
        if (!limits_number(group->path, "memory.usage_in_bytes", &usage)) return HEFT_NONE;
    } else {
        *name = "memory.max";
        if (!limits_number(group->path, *name, &limit)) limit = HEFT_NONE; /* "max" */
        if (limits_number(group->path, "memory.high", &other) && other < limit) {
            limit = other;
            *name = "memory.high";
        }
        if (limit == HEFT_NONE || !limits_number(group->path, "memory.current", &usage)) return HEFT_NONE;
    }
    if (limits_join(stat_path, group->path, "memory.stat")) {
        (void)limits_field(stat_path, group->v1 ? "total_inactive_file" : "inactive_file", &inactive);
        (void)limits_field(stat_path, group->v1 ? "total_active_file" : "active_file", &active);
    }
    uint64_t reclaimable = inactive > UINT64_MAX - active ? UINT64_MAX : inactive + active;
    uint64_t held = usage > reclaimable ? usage - reclaimable : 0;
    return limit > held ? limit - held : 0;
}

/* What a limit of the process itself leaves. Where the present use cannot be known the limit itself is the bound. */
static uint64_t limits_own(const struct rlimit *limit, const char *use, uint64_t reserved) {
    uint64_t kib = 0, used = 0;
    if (limit->rlim_cur == RLIM_INFINITY) return HEFT_NONE;
    if (limits_field("/proc/self/status", use, &kib) && !heft__mul_u64(kib, 1024, &used)) used = UINT64_MAX;
    if (!heft__add_u64(used, reserved, &used)) used = UINT64_MAX;
    return limit->rlim_cur > used ? limit->rlim_cur - used : 0;
}

void heft__os_free_memory(uint32_t threads, heft__os_memory *out) {
    uint64_t kib, stacks = (uint64_t)threads * HEFT__THREAD_STACK;
    struct rlimit own;
    limits_group group;
    *out = (heft__os_memory){.nbytes = HEFT_NONE, .origin = "unknown"};
    if (limits_field("/proc/meminfo", "MemAvailable", &kib) && kib <= UINT64_MAX >> 10)
        limits_least(out, kib << 10, "MemAvailable", NULL, NULL);
    if (limits_find_group("memory", &group)) {
        do {
            const char *name;
            uint64_t here = limits_memory_of(&group, &name);
            limits_least(out, here, group.v1 ? "cgroup v1" : "cgroup v2", group.path, name);
        } while (limits_up(&group));
    }
    if (getrlimit(RLIMIT_AS, &own) == 0)
        limits_least(out, limits_own(&own, "VmSize", stacks), "RLIMIT_AS", NULL, NULL);
    if (getrlimit(RLIMIT_DATA, &own) == 0)
        limits_least(out, limits_own(&own, "VmData", stacks), "RLIMIT_DATA", NULL, NULL);
}

/* ---- CPUs ---- */

static uint32_t limits_online_cpus(void) {
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 && n <= LIMITS_MOST_CPUS ? (uint32_t)n : 1;
}

#if defined(__linux__)
static uint32_t limits_affinity(void) {
    cpu_set_t usual;
    if (sched_getaffinity(0, sizeof usual, &usual) == 0) return (uint32_t)CPU_COUNT(&usual);
    /* The kernel refuses a mask that is smaller than its own. */
    for (size_t bytes = 2 * sizeof usual; bytes <= LIMITS_MOST_CPUS / 8; bytes *= 2) {
        cpu_set_t *set = malloc(bytes);
        if (!set) return 0;
        int failed = sched_getaffinity(0, bytes, set), code = errno;
        int count = failed ? 0 : CPU_COUNT_S(bytes, set);
        free(set);
        if (count > 0) return (uint32_t)count;
        if (!failed || code != EINVAL) return 0;
    }
    return 0;
}
#else
static uint32_t limits_affinity(void) {
    return 0;
}
#endif

/* CPUs that a level's quota is worth, rounded up; UINT32_MAX: no quota. */
static uint32_t limits_quota_of(const limits_group *group) {
    uint64_t quota, period;
    char line[LIMITS_LINE];
    const char *at = line;
    if (group->v1) {
        if (!limits_number(group->path, "cpu.cfs_quota_us", &quota) || /* "-1" is no number: none */
            !limits_number(group->path, "cpu.cfs_period_us", &period))
            return UINT32_MAX;
    } else if (!limits_text(group->path, "cpu.max", line) || !limits_parse(&at, &quota) || !limits_parse(&at, &period))
        return UINT32_MAX;
    if (period == 0) return UINT32_MAX;
    uint64_t cpus = quota / period + (quota % period != 0);
    return cpus == 0 ? 1 : cpus > UINT32_MAX ? UINT32_MAX : (uint32_t)cpus;
}

static uint32_t limits_quota(void) {
    uint32_t least = UINT32_MAX;
    limits_group group;
    if (!limits_find_group("cpu", &group)) return least;
    do {
        uint32_t here = limits_quota_of(&group);
        if (here < least) least = here;
    } while (limits_up(&group));
    return least;
}

/* The quota as it was when it was first asked for: reading it takes ten system calls, and every read of a tensor asks how
 * many threads there may be. 0: not known yet. A fact of the machine, the same for every thread that finds it out. */
static _Atomic uint32_t limits_quota_known;

uint32_t heft__os_usable_cpus(void) {
    const heft__os_traits *traits = heft__os_traits_get();
    uint32_t cpus = traits->plain_affinity ? 0 : limits_affinity();
    if (cpus == 0) cpus = limits_online_cpus();
    bool made_up = *traits->root != 0;
    uint32_t quota = made_up ? 0 : atomic_load_explicit(&limits_quota_known, memory_order_relaxed);
    if (quota == 0) {
        quota = limits_quota();
        if (!made_up) atomic_store_explicit(&limits_quota_known, quota, memory_order_relaxed);
    }
    return quota < cpus ? quota : cpus;
}

/* ---- open files -------------------------------------------------------------------------------------------------- */

void heft__os_allow_files(void) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max) return;
    limit.rlim_cur = limit.rlim_max;
#if defined(OPEN_MAX)
    if (limit.rlim_cur > OPEN_MAX) limit.rlim_cur = OPEN_MAX; /* macOS refuses more, whatever its hard limit says */
#endif
    (void)setrlimit(RLIMIT_NOFILE, &limit);
}
