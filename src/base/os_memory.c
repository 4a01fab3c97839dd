/* base: pages, random bytes and the clock of the operating system. */
#include "base/os.h"

#include "base/checked.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#if defined(__linux__) || defined(__APPLE__)
#include <sys/random.h>
#endif

static const heft__os_traits os_real_traits = {.root = ""};
static _Atomic(const heft__os_traits *) os_traits_now = &os_real_traits;

const heft__os_traits *heft__os_traits_get(void) {
    return atomic_load_explicit(&os_traits_now, memory_order_acquire);
}

void heft__os_traits_replace(const heft__os_traits *traits) {
    atomic_store_explicit(&os_traits_now, traits ? traits : &os_real_traits, memory_order_release);
}

size_t heft__os_page_size(void) {
    long n = sysconf(_SC_PAGESIZE);
    return n > 0 ? (size_t)n : 4096;
}

static bool os_round_pages(size_t nbytes, size_t *out) {
    uint64_t rounded;
    return heft__align_u64(nbytes ? nbytes : 1, heft__os_page_size(), &rounded) && heft__to_size(rounded, out);
}

static void *os_map_anonymous(size_t nbytes) {
    void *p = mmap(NULL, nbytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANON, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

#if defined(MADV_HUGEPAGE) || defined(MADV_NOHUGEPAGE) || defined(MADV_DONTFORK)
/* Hints: their failure changes nothing. */
static void os_advise(void *at, size_t nbytes, int advice) {
    int saved = errno;
    (void)madvise(at, nbytes, advice);
    errno = saved;
}
#endif

static uint8_t *os_aligned_pages(size_t nbytes, size_t *rounded) {
    size_t n;
    if (!os_round_pages(nbytes, &n)) return NULL;
    if (n > SIZE_MAX - HEFT__OS_HUGE_PAGE) return NULL;
    /* One huge page more than wanted, then what lies before and after the aligned part goes back. */
    uint8_t *p = os_map_anonymous(n + HEFT__OS_HUGE_PAGE);
    if (!p) return NULL;
    size_t before = (HEFT__OS_HUGE_PAGE - (uintptr_t)p % HEFT__OS_HUGE_PAGE) % HEFT__OS_HUGE_PAGE;
    if (before) munmap(p, before);
    munmap(p + before + n, HEFT__OS_HUGE_PAGE - before);
    *rounded = n;
    return p + before;
}

void *heft__os_pages(size_t nbytes) {
    size_t n;
    uint8_t *start = os_aligned_pages(nbytes, &n);
#if defined(MADV_HUGEPAGE)
    /* Whole units only: a huge page for a tail of a few KiB would cost memory that nobody asked for. */
    size_t whole = start ? n / HEFT__OS_HUGE_PAGE * HEFT__OS_HUGE_PAGE : 0;
    if (whole && !heft__os_traits_get()->plain_pages) os_advise(start, whole, MADV_HUGEPAGE);
#endif
    return start;
}

void *heft__os_pages_small(size_t nbytes) {
    size_t n;
    uint8_t *start = os_aligned_pages(nbytes, &n);
#if defined(MADV_NOHUGEPAGE)
    if (start) os_advise(start, n, MADV_NOHUGEPAGE);
#endif
    return start;
}

void heft__os_pages_inherit(void *ptr, size_t nbytes, bool inherit) {
#if defined(MADV_DONTFORK)
    size_t n;
    if (os_round_pages(nbytes, &n)) os_advise(ptr, n, inherit ? MADV_DOFORK : MADV_DONTFORK);
#else
    (void)ptr, (void)nbytes, (void)inherit;
#endif
}

/* Hexadecimal digits at *text; false if there are none. */
static bool os_hex(const char **text, uint64_t *out) {
    const char *at = *text;
    *out = 0;
    for (;; at++) {
        int digit = *at >= '0' && *at <= '9' ? *at - '0' : *at >= 'a' && *at <= 'f' ? *at - 'a' + 10 : -1;
        if (digit < 0) break;
        *out = *out << 4 | (uint64_t)digit;
    }
    bool some = at != *text;
    *text = at;
    return some;
}

uint64_t heft__os_huge_nbytes(const void *ptr, size_t nbytes) {
    char path[512], line[512];
    uint64_t start = (uint64_t)(uintptr_t)ptr, end = start + nbytes, first, last, shared = 0, sum = 0;
    bool known = false, head = true; /* a line that is longer than the buffer comes in pieces */
    const char *root = heft__os_traits_get()->root;
    if (strlen(root) + sizeof "/proc/self/smaps" > sizeof path) return HEFT_NONE;
    snprintf(path, sizeof path, "%s/proc/self/smaps", root);
    FILE *file = fopen(path, "re");
    if (!file) return HEFT_NONE;
    while (fgets(line, sizeof line, file)) {
        const char *at = line, *kilobytes = line + sizeof "AnonHugePages:" - 1;
        bool whole = head;
        head = strchr(line, '\n') != NULL;
        if (!whole) continue;
        if (os_hex(&at, &first) && *at++ == '-' && os_hex(&at, &last) && *at == ' ') {
            uint64_t from = first > start ? first : start, to = last < end ? last : end;
            shared = to > from ? to - from : 0; /* of this area and the range */
        } else if (shared && strncmp(line, "AnonHugePages:", sizeof "AnonHugePages:" - 1) == 0) {
            uint64_t n = strtoull(kilobytes, NULL, 10) << 10;
            sum += n < shared ? n : shared;
            known = true;
        }
    }
    fclose(file);
    return known ? sum : HEFT_NONE;
}

bool heft__os_resident(const void *ptr) {
#if defined(__linux__)
    unsigned char state = 1;
#elif defined(__APPLE__)
    char state = 1;
#endif
#if defined(__linux__) || defined(__APPLE__)
    int saved = errno;
    uintptr_t page = heft__os_page_size();
    (void)mincore((void *)((uintptr_t)ptr / page * page), page, &state);
    errno = saved;
    return state & 1;
#else
    (void)ptr;
    return true;
#endif
}

void heft__os_pages_free(void *ptr, size_t nbytes) {
    size_t n;
    if (ptr && os_round_pages(nbytes, &n)) munmap(ptr, n);
}

void *heft__os_pages_grow(void *ptr, size_t old_nbytes, size_t new_nbytes) {
    size_t left;
    uint8_t *fresh = os_round_pages(old_nbytes, &left) ? heft__os_pages(new_nbytes) : NULL, *to = fresh, *from = ptr;
    if (!fresh) return NULL;
    /* Not mremap: what has grown once consists of several areas, which Linux before 6.17 does not move in one call, and a
     * call with a fixed place that fails has removed what was there. */
    while (left) {
        size_t n = left < HEFT__OS_HUGE_PAGE ? left : HEFT__OS_HUGE_PAGE;
        memcpy(to, from, n);
        munmap(from, n);
        to += n;
        from += n;
        left -= n;
    }
    return fresh;
}

/* Without a random source of the system: clocks and addresses, mixed (the finalizer of SplitMix64). */
static void os_random_fallback(uint8_t *dst, size_t nbytes) {
    struct timespec now = {0, 0}, mono = {0, 0};
    (void)clock_gettime(CLOCK_REALTIME, &now);
    (void)clock_gettime(CLOCK_MONOTONIC, &mono);
    uint64_t state = (uint64_t)now.tv_nsec ^ (uint64_t)now.tv_sec << 30 ^ (uint64_t)mono.tv_nsec << 7 ^
                     (uint64_t)(uintptr_t)&state << 13 ^ (uint64_t)(uintptr_t)dst << 3 ^ (uint64_t)getpid() << 40;
    for (size_t i = 0; i < nbytes; i++) {
        state += UINT64_C(0x9E3779B97F4A7C15);
        uint64_t z = state;
        z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
        z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
        dst[i] = (uint8_t)(z ^ z >> 31);
    }
}

void heft__os_random(void *dst, size_t nbytes) {
    uint8_t *at = dst;
#if defined(__linux__)
    while (nbytes && !heft__os_traits_get()->plain_random) {
        ssize_t n = getrandom(at, nbytes, GRND_NONBLOCK);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) break;
        at += n;
        nbytes -= (size_t)n;
    }
#elif defined(__APPLE__)
    while (nbytes && !heft__os_traits_get()->plain_random) {
        size_t n = nbytes < 256 ? nbytes : 256;
        if (getentropy(at, n) != 0) break;
        at += n;
        nbytes -= n;
    }
#endif
    if (nbytes) os_random_fallback(at, nbytes);
}

double heft__os_seconds(void) {
    struct timespec now;
    if (clock_gettime(CLOCK_MONOTONIC, &now) != 0) return 0;
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}
