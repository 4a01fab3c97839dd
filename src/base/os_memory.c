/* base: pages, random bytes and the clock of the operating system. */
#include "base/os.h"

#include "base/checked.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#if defined(__linux__) || defined(__APPLE__)
#include <sys/random.h>
#endif

static const heft__os_traits os_real_traits = {"", false, false, false, false};
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

/* A huge page of the processors that matter; the unit in which huge pages are asked for. */
#define OS_HUGE_PAGE ((size_t)2 << 20)

static bool os_round_pages(size_t nbytes, size_t *out) {
    uint64_t rounded;
    return heft__align_u64(nbytes ? nbytes : 1, heft__os_page_size(), &rounded) && heft__to_size(rounded, out);
}

static void *os_map_anonymous(size_t nbytes) {
    void *p = mmap(NULL, nbytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANON, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

void *heft__os_pages(size_t nbytes) {
    size_t n;
    if (!os_round_pages(nbytes, &n)) return NULL;
    if (n > SIZE_MAX - OS_HUGE_PAGE) return NULL;
    /* One huge page more than wanted, then what lies before and after the aligned part goes back. */
    uint8_t *p = os_map_anonymous(n + OS_HUGE_PAGE);
    if (!p) return NULL;
    size_t before = (OS_HUGE_PAGE - (uintptr_t)p % OS_HUGE_PAGE) % OS_HUGE_PAGE;
    if (before) munmap(p, before);
    uint8_t *start = p + before;
    munmap(start + n, OS_HUGE_PAGE - before);
#if defined(MADV_HUGEPAGE)
    /* Whole units only: a huge page for a tail of a few KiB would cost memory that nobody asked for. */
    size_t whole = n / OS_HUGE_PAGE * OS_HUGE_PAGE;
    if (whole && !heft__os_traits_get()->plain_pages) {
        int saved = errno;
        (void)madvise(start, whole, MADV_HUGEPAGE); /* a hint: small pages do as well */
        errno = saved;
    }
#endif
    return start;
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
        size_t n = left < OS_HUGE_PAGE ? left : OS_HUGE_PAGE;
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
