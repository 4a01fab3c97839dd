/* facts: what the machine says about an open source, its memory and itself, as plain values. */
#include "facts/facts.h"

#include "facts/residency.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

/* ---- the system ---- */

#if defined(__linux__)
#define FACTS_SYS_REAL &heft__facts_sys_linux
#else
#define FACTS_SYS_REAL &heft__facts_sys_none
#endif
static _Atomic(const heft__facts_sys *) facts_sys_now = FACTS_SYS_REAL;

const heft__facts_sys *heft__facts_sys_get(void) {
    return atomic_load_explicit(&facts_sys_now, memory_order_acquire);
}

void heft__facts_sys_replace(const heft__facts_sys *sys) {
    atomic_store_explicit(&facts_sys_now, sys ? sys : FACTS_SYS_REAL, memory_order_release);
}

/* ---- a file ---- */

typedef struct facts_fs {
    uint32_t magic;
    heft__fs_class fs_class;
    char name[12];
} facts_fs;

/* f_type of statfs, as in linux/magic.h and the makers' own headers. What is not here is local. */
static const facts_fs facts_fs_table[] = {
    {0x0000EF53, HEFT__FS_LOCAL, "ext4"}, /* ext2 and ext3 share it, and the driver */
    {0x58465342, HEFT__FS_LOCAL, "xfs"},
    {0x9123683E, HEFT__FS_LOCAL, "btrfs"},
    {0xF2F52010, HEFT__FS_LOCAL, "f2fs"},
    {0x2FC12FC1, HEFT__FS_LOCAL, "zfs"},
    {0x73717368, HEFT__FS_LOCAL, "squashfs"},
    {0xE0F5E1E2, HEFT__FS_LOCAL, "erofs"},
    {0x2011BAB0, HEFT__FS_LOCAL, "exfat"},
    {0x00004D44, HEFT__FS_LOCAL, "vfat"},
    {0x01021994, HEFT__FS_MEMORY, "tmpfs"},
    {0x858458F6, HEFT__FS_MEMORY, "ramfs"},
    {0x958458F6, HEFT__FS_MEMORY, "hugetlbfs"},
    {0x794C7630, HEFT__FS_STACKED, "overlay"},
    {0x0000F15F, HEFT__FS_STACKED, "ecryptfs"},
    {0x65735546, HEFT__FS_USER_SPACE, "fuse"},
    {0x00006969, HEFT__FS_NETWORK, "nfs"},
    {0x0000517B, HEFT__FS_NETWORK, "smb"},
    {0xFF534D42, HEFT__FS_NETWORK, "cifs"},
    {0xFE534D42, HEFT__FS_NETWORK, "smb2"},
    {0x0BD00BD0, HEFT__FS_NETWORK, "lustre"},
    {0x01021997, HEFT__FS_NETWORK, "9p"},
    {0x786F4256, HEFT__FS_NETWORK, "vboxsf"},
    {0x00C36400, HEFT__FS_NETWORK, "ceph"},
    {0x01161970, HEFT__FS_NETWORK, "gfs2"},
    {0x7461636F, HEFT__FS_NETWORK, "ocfs2"},
    {0x5346414F, HEFT__FS_NETWORK, "afs"},
    {0x6B414653, HEFT__FS_NETWORK, "afs"},
    {0x73757245, HEFT__FS_NETWORK, "coda"},
    {0x47504653, HEFT__FS_NETWORK, "gpfs"},
    {0x19830326, HEFT__FS_NETWORK, "beegfs"},
    {0x20030528, HEFT__FS_NETWORK, "orangefs"},
};

static void facts_fs_of(const heft__facts_sys *sys, const heft_source *source, heft__source_facts *out) {
    uint32_t magic = 0;
    if (!source->identity.known) { /* of a device the file system would be the one that holds its name: a tmpfs */
        out->fs_class = HEFT__FS_LOCAL;
        snprintf(out->fs_name, sizeof out->fs_name, "device");
        return;
    }
    if (sys->fs_type(source->fd, &magic) != 0) return;
    for (size_t i = 0; i < sizeof facts_fs_table / sizeof *facts_fs_table; i++) {
        if (facts_fs_table[i].magic != magic) continue;
        out->fs_class = facts_fs_table[i].fs_class;
        snprintf(out->fs_name, sizeof out->fs_name, "%s", facts_fs_table[i].name);
        return;
    }
    out->fs_class = HEFT__FS_LOCAL;
    snprintf(out->fs_name, sizeof out->fs_name, "0x%08lx", (unsigned long)magic);
}

static bool facts_power_of_two(uint32_t n) {
    return n != 0 && (n & (n - 1)) == 0;
}

static void facts_direct_of(const heft__facts_sys *sys, const heft_source *source, heft__source_facts *out) {
    uint32_t memory = 0, offset = 0;
    out->direct = HEFT__DIRECT_UNKNOWN;
    out->direct_memory = out->direct_offset = HEFT__DIRECT_ASSUMED;
    if (sys->direct(source->fd, &memory, &offset) != 0) return;
    bool fine = facts_power_of_two(memory) && facts_power_of_two(offset);
    out->direct = fine ? HEFT__DIRECT_KNOWN : HEFT__DIRECT_REFUSED;
    out->direct_memory = fine ? memory : 0;
    out->direct_offset = fine ? offset : 0;
}

void heft__facts_source(heft_source *source, const heft__extent *extents, uint64_t nextents, heft__source_facts *out) {
    const heft__facts_sys *sys = heft__facts_sys_get();
    *out = (heft__source_facts){.fs_name = "unknown", .direct = HEFT__DIRECT_REFUSED, .identity = source->identity};
    out->identity.size = heft_source_size(heft__source_base(source));
    if (source->fd < 0) {
        snprintf(out->fs_name, sizeof out->fs_name, "%s", heft__source_base(source)->memory ? "memory" : "callback");
        return;
    }
    out->file = true;
    facts_fs_of(sys, source, out);
    facts_direct_of(sys, source, out);
    heft__residency_ask(sys, source, out->fs_class == HEFT__FS_STACKED, extents, nextents, &out->residency);
}

const char *heft__fs_class_name(heft__fs_class fs_class) {
    static const char *const names[] = {"unknown", "local", "memory", "network", "user-space", "stacked"};
    return (size_t)fs_class < sizeof names / sizeof *names ? names[fs_class] : names[0];
}

const char *heft__residency_step_name(heft__residency_step step) {
    static const char *const names[] = {"none", "cachestat", "nowait", "mincore"};
    return (size_t)step < sizeof names / sizeof *names ? names[step] : names[0];
}

/* ---- the machine ---- */

void heft__facts_memory(uint64_t callers, uint32_t workers, heft__os_memory *out) {
    if (callers == HEFT_NONE) heft__os_free_memory(workers, out);
    else *out = (heft__os_memory){.nbytes = callers, .origin = "caller"};
}

/* The word in brackets of "always [madvise] never". */
static void facts_chosen_word(const char *line, char *word, size_t size) {
    const char *begin = strchr(line, '['), *end = begin ? strchr(begin, ']') : NULL;
    size_t n = end ? (size_t)(end - begin - 1) : 0;
    if (n == 0 || n >= size) return;
    memcpy(word, begin + 1, n);
    word[n] = 0;
}

void heft__facts_host(heft__host_facts *out) {
    char line[256];
    *out = (heft__host_facts){.cpus = heft__os_usable_cpus(), .page_nbytes = heft__os_page_size(), .thp_enabled = "unknown"};
    out->thp_disabled = heft__facts_sys_get()->thp_disabled();
    if (heft__os_first_line("/sys/kernel/mm/transparent_hugepage/enabled", line, sizeof line))
        facts_chosen_word(line, out->thp_enabled, sizeof out->thp_enabled);
    if (heft__os_first_line("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size", line, sizeof line)) {
        uint64_t nbytes = 0;
        size_t digits = strspn(line, "0123456789");
        for (size_t i = 0; i < digits && digits < 19; i++) nbytes = nbytes * 10 + (uint64_t)(line[i] - '0');
        out->huge_page_nbytes = nbytes;
    }
}
