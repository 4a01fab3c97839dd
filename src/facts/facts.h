/* facts: what the machine says about a file and about itself. Plain values that a plan is made of: nothing here decides, and
 * nothing here can fail a load: what cannot be known has a value that says so. */
#ifndef HEFT_FACTS_FACTS_H
#define HEFT_FACTS_FACTS_H

#include "base/os.h"
#include "source/source.h"

/* ---- a file ------------------------------------------------------------------------------------------------------ */

typedef enum heft__fs_class {
    HEFT__FS_UNKNOWN = 0, /* no file, or its file system cannot be asked: treated as local */
    HEFT__FS_LOCAL,       /* every file system that is none of the others */
    HEFT__FS_MEMORY,      /* tmpfs, ramfs, hugetlbfs: the page cache is the file */
    HEFT__FS_NETWORK,     /* also a host's folder lent to a virtual machine (9p, vboxsf) */
    HEFT__FS_USER_SPACE,  /* FUSE */
    HEFT__FS_STACKED      /* overlayfs, eCryptfs: local in all that counts */
} heft__fs_class;

typedef enum heft__direct_state {
    HEFT__DIRECT_UNKNOWN = 0, /* not told: HEFT__DIRECT_ASSUMED for both, and the first read is the proof */
    HEFT__DIRECT_KNOWN,
    HEFT__DIRECT_REFUSED      /* the file takes no direct read; also where there is no file */
} heft__direct_state;
#define HEFT__DIRECT_ASSUMED UINT32_C(4096)

/* Which step of the ladder answered. */
typedef enum heft__residency_step {
    HEFT__RESIDENCY_NONE = 0,  /* none: to be taken as cold */
    HEFT__RESIDENCY_CACHESTAT, /* exact over few ranges, else over ranges spread evenly */
    HEFT__RESIDENCY_NOWAIT,    /* single bytes spread evenly */
    HEFT__RESIDENCY_MINCORE    /* ranges spread evenly */
} heft__residency_step;

typedef struct heft__residency {
    heft__residency_step step;
    uint64_t asked_nbytes;    /* of the extents; gaps below 64 KiB between them are counted in */
    uint64_t resident_nbytes; /* of them in the page cache; 0 if not known */
    bool known;               /* false: nothing answered, or nothing was asked */
    bool exact;               /* every page was asked about */
    bool dirty;               /* some page waits to be written, or is being written; only CACHESTAT can tell */
} heft__residency;

typedef struct heft__source_facts {
    bool file;               /* false: no descriptor, so nothing below is known but `fs_name` and the size */
    heft__fs_class fs_class;
    char fs_name[16];        /* "ext4", "tmpfs", "nfs" ...; "0x1badface" if heft has no name for it; "memory" or "callback"
                                for such sources, "unknown" */
    heft__direct_state direct;
    uint32_t direct_memory;  /* of addresses, in bytes; never 0 unless refused */
    uint32_t direct_offset;  /* of offsets and lengths */
    heft__residency residency;
    heft__identity identity; /* size, inode and time of change, as the source was opened; not `known` for devices */
} heft__source_facts;

/* A range of a source. */
typedef struct heft__extent {
    uint64_t offset, nbytes;
} heft__extent;

/* The facts of an open source. The extents are what will be read of it, sorted by offset; what lies past the end of the
 * source counts as not there. None: residency is not asked for. Takes below 1 ms whatever the number of bytes, beyond two
 * passes over the extents. Any thread. */
void heft__facts_source(heft_source *source, const heft__extent *extents, uint64_t nextents, heft__source_facts *out);

/* "local", "memory", "network", "user-space", "stacked", "unknown". */
const char *heft__fs_class_name(heft__fs_class fs_class);
/* "cachestat", "nowait", "mincore", "none". */
const char *heft__residency_step_name(heft__residency_step step);

/* ---- the machine ------------------------------------------------------------------------------------------------- */

/* Memory that this process may still take, and where that number comes from (heft__os_memory of base/os.h): the caller's
 * number unless it is HEFT_NONE, else the least of what the machine, the control groups and the process's own limits leave.
 * `workers`: threads that will be started, whose stacks count against a limit of address space. */
void heft__facts_memory(uint64_t callers, uint32_t workers, heft__os_memory *out);

typedef struct heft__host_facts {
    uint32_t cpus;            /* usable, at least 1 */
    bool thp_disabled;        /* huge pages are switched off for this process (prctl) */
    char thp_enabled[16];     /* "always", "madvise", "never"; "unknown" */
    uint64_t page_nbytes;
    uint64_t huge_page_nbytes; /* 0: unknown, or there are none */
} heft__host_facts;

void heft__facts_host(heft__host_facts *out);

/* ---- the system calls -------------------------------------------------------------------------------------------- */

typedef struct heft__cached_pages {
    uint64_t cached;  /* pages in the cache */
    uint64_t unclean; /* dirty ones and those being written */
} heft__cached_pages;

/* What the facts of a file are asked with, replaceable by tests (one atomic pointer; never set outside of tests). All but
 * `may_mincore` give 0, or the errno. */
typedef struct heft__facts_sys {
    int (*fs_type)(int fd, uint32_t *magic);
    /* ENODATA: the kernel or the file system does not tell. Zeros: refused. */
    int (*direct)(int fd, uint32_t *memory, uint32_t *offset);
    int (*cachestat)(int fd, uint64_t offset, uint64_t nbytes, heft__cached_pages *out);
    int (*nowait)(int fd, uint64_t offset); /* reads a byte if that takes no wait; else EAGAIN */
    int (*mincore)(int fd, uint64_t offset, uint64_t nbytes, uint64_t *cached); /* nbytes <= HEFT__MINCORE_MOST */
    /* True where mincore tells the truth: this process owns the file, may write it, or may act as its owner. To all others
     * the kernel says that every page is there. */
    bool (*may_mincore)(int fd);
    bool (*thp_disabled)(void);
    double (*seconds)(void); /* the clock of timed samples, monotonic */
} heft__facts_sys;
#define HEFT__MINCORE_MOST (UINT64_C(128) << 10)

const heft__facts_sys *heft__facts_sys_get(void);
void heft__facts_sys_replace(const heft__facts_sys *sys); /* NULL: the real ones */

/* Where nothing can be known: every answer is ENOSYS or false. Systems without a table of their own use it. */
extern const heft__facts_sys heft__facts_sys_none;
#if defined(__linux__)
extern const heft__facts_sys heft__facts_sys_linux;
#endif

#endif
