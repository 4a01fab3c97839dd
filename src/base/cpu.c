/* base: what this build can do on this processor. */
#include "base/cpu.h"

#include "heft/core.h"

#include <stdatomic.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

uint64_t heft_features(void) {
    uint64_t features = 0;
#if defined(__unix__) || defined(__APPLE__)
    features |= HEFT_FEATURE_MAP;
#endif
#if defined(__linux__)
    features |= HEFT_FEATURE_HUGE_PAGES | HEFT_FEATURE_VECTOR_READ;
#endif
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    features |= HEFT_FEATURE_BIG_ENDIAN;
#endif
#if HEFT_WITH_URING
    features |= HEFT_FEATURE_URING;
#endif
#if HEFT_WITH_XXHASH
    features |= HEFT_FEATURE_XXHASH;
#endif
#if HEFT_WITH_DEFLATE
    features |= HEFT_FEATURE_DEFLATE;
#endif
#if HEFT_WITH_OPENSSL
    features |= HEFT_FEATURE_OPENSSL;
#endif
    return features;
}

#if defined(__x86_64__)

/* Asking traps into the hypervisor of a virtual machine, so it is done once. 0: not yet; a fact of the machine. */
static _Atomic uint32_t cpu_known;

static uint32_t cpu_ask(void) {
    uint32_t a, b, c, d, features = 0;
    bool f16c = __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
    if (f16c && __builtin_cpu_supports("avx2")) features |= HEFT__CPU_AVX2;
    if (f16c && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
        features |= HEFT__CPU_AVX512;
    return features;
}

uint32_t heft__cpu_features(void) {
    const uint32_t asked = UINT32_C(1) << 31;
    uint32_t features = atomic_load_explicit(&cpu_known, memory_order_relaxed);
    if (!features) {
        features = cpu_ask() | asked;
        atomic_store_explicit(&cpu_known, features, memory_order_relaxed);
    }
    return features & ~asked;
}

uint64_t heft__cpu_float_enter(void) {
    uint32_t before = _mm_getcsr();
    _mm_setcsr(0x1F80);
    return before;
}

void heft__cpu_float_leave(uint64_t before) {
    _mm_setcsr((uint32_t)before);
}

#else

uint32_t heft__cpu_features(void) {
    return 0;
}

#if defined(__aarch64__)

uint64_t heft__cpu_float_enter(void) {
    uint64_t before;
    __asm__ volatile("mrs %0, fpcr" : "=r"(before));
    __asm__ volatile("msr fpcr, %0" : : "r"(UINT64_C(0)));
    return before;
}

void heft__cpu_float_leave(uint64_t before) {
    __asm__ volatile("msr fpcr, %0" : : "r"(before));
}

#else

uint64_t heft__cpu_float_enter(void) {
    return 0;
}

void heft__cpu_float_leave(uint64_t before) {
    (void)before;
}

#endif
#endif
