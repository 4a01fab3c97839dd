/* base: names of files in progress, which say whose they are, so that what the dead left can be told from what the living
 * write. */
#include "base/os.h"
#include "base/os_target.h"
#include "base/utf8.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void target_name_mix(uint32_t *hash, const char *text, size_t len) {
    for (size_t i = 0; i < len; i++) *hash = (*hash ^ (uint8_t)text[i]) * UINT32_C(16777619); /* FNV-1a */
}

/* Eight digits for this boot of this machine and this pid namespace: a pid means nothing elsewhere. 0 where neither is
 * known, and then no process is ever taken for dead. */
static uint32_t target_name_place(void) {
    char path[512], text[128];
    uint32_t hash = UINT32_C(2166136261);
    const char *root = heft__os_traits_get()->root;
    snprintf(path, sizeof path, "%s/proc/sys/kernel/random/boot_id", root ? root : "");
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return 0;
    ssize_t n = read(fd, text, sizeof text);
    close(fd);
    if (n < 16) return 0;
    target_name_mix(&hash, text, (size_t)n);
    snprintf(path, sizeof path, "%s/proc/self/ns/pid", root ? root : "");
    n = readlink(path, text, sizeof text);
    if (n < 1) return 0;
    target_name_mix(&hash, text, (size_t)n);
    return hash ? hash : 1;
}

void heft__target_temp_name(char out[HEFT__TARGET_NAME_MAX + 1], const char *base) {
    uint32_t random;
    char tail[64];
    heft__os_random(&random, sizeof random);
    snprintf(tail, sizeof tail, "-%08lx-%ld-%08lx.tmp", (unsigned long)target_name_place(), (long)getpid(),
             (unsigned long)random);
    size_t room = HEFT__TARGET_NAME_MAX - strlen(".heft-") - strlen(tail), len = strlen(base);
    if (len > room) len = heft__utf8_cut(base, room);
    snprintf(out, HEFT__TARGET_NAME_MAX + 1, ".heft-%.*s%s", (int)len, base, tail);
}

/* Splits off the tail: its place and pid. */
static bool target_name_split(const char *name, uint32_t *place, long *pid) {
    size_t len = strlen(name);
    if (len < 30 || strncmp(name, ".heft-", 6) != 0 || strcmp(name + len - 4, ".tmp") != 0) return false;
    const char *random = name + len - 12, *at = random - 1;
    if (strspn(random, "0123456789abcdef") != 8 || *at != '-') return false;
    const char *end = at;
    while (at > name && at[-1] >= '0' && at[-1] <= '9') at--;
    if (at == end || end - at > 10 || at - name < 16 || at[-1] != '-' || at[-10] != '-') return false;
    if (strspn(at - 9, "0123456789abcdef") != 8) return false;
    *place = (uint32_t)strtoul(at - 9, NULL, 16);
    *pid = strtol(at, NULL, 10);
    return true;
}

bool heft__target_temp_is(const char *name) {
    uint32_t place;
    long pid;
    return target_name_split(name, &place, &pid);
}

bool heft__target_temp_dead(const char *name) {
    uint32_t place;
    long pid;
    if (!target_name_split(name, &place, &pid) || place == 0 || place != target_name_place() || pid < 1) return false;
    return kill((pid_t)pid, 0) != 0 && errno == ESRCH;
}

bool heft__target_temp_own(const char *name) {
    uint32_t place;
    long pid;
    return target_name_split(name, &place, &pid) && place == target_name_place() && pid == (long)getpid();
}

void heft__target_journal_name(char out[HEFT__TARGET_NAME_MAX + 1], const char *base) {
    size_t room = HEFT__TARGET_NAME_MAX - strlen(".heft-.journal"), len = strlen(base);
    char hash[16] = "";
    if (len > room) {
        uint32_t value = UINT32_C(2166136261);
        target_name_mix(&value, base, len);
        snprintf(hash, sizeof hash, "-%08lx", (unsigned long)value);
        len = heft__utf8_cut(base, room - strlen(hash));
    }
    snprintf(out, HEFT__TARGET_NAME_MAX + 1, ".heft-%.*s%s.journal", (int)len, base, hash);
}

bool heft__target_temp_alive(const char *name) {
    uint32_t place;
    long pid;
    if (!target_name_split(name, &place, &pid) || place == 0 || place != target_name_place() || pid < 1) return false;
    return pid != (long)getpid() && (kill((pid_t)pid, 0) == 0 || errno == EPERM);
}
