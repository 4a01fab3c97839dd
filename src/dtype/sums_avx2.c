/* dtype: sums of blocks of F32 for x86-64 with AVX2: the portable kernel's lanes, in two halves where they are double. */
#include "base/cpu.h"
#include "dtype/sums.h"

#if defined(__x86_64__)

#include <immintrin.h>

#define SUMS_TARGET __attribute__((target("avx2")))
#define SUMS_INLINE __attribute__((target("avx2"), always_inline))

/* Counts grow by the subtraction of masks of ones. */
static inline SUMS_INLINE void sums_avx2(const float *values, size_t ngroups, float pivot, bool careful, heft__sum_lanes *lanes) {
    __m256 around = _mm256_set1_ps(pivot), least = _mm256_loadu_ps(lanes->min), most = _mm256_loadu_ps(lanes->max);
    __m256d wide = _mm256_set1_pd((double)pivot);
    __m256d sum_a = _mm256_loadu_pd(lanes->sum), sum_b = _mm256_loadu_pd(lanes->sum + 4);
    __m256d squares_a = _mm256_loadu_pd(lanes->squares), squares_b = _mm256_loadu_pd(lanes->squares + 4);
    __m256i nans = _mm256_loadu_si256((const void *)lanes->nans), odd = _mm256_loadu_si256((const void *)lanes->odd);
    __m256i zeros = _mm256_loadu_si256((const void *)lanes->zeros);
    const __m256i sizes = _mm256_set1_epi32(0x7FFFFFFF), finite = _mm256_set1_epi32(0x7F7FFFFF);
    for (; ngroups--; values += HEFT__SUM_LANES) {
        __m256 x = _mm256_loadu_ps(values);
        zeros = _mm256_sub_epi32(zeros, _mm256_castps_si256(_mm256_cmp_ps(x, _mm256_setzero_ps(), _CMP_EQ_OQ)));
        least = _mm256_min_ps(x, least); /* the second one where one is NaN */
        most = _mm256_max_ps(x, most);
        if (careful) {
            __m256i is_odd = _mm256_cmpgt_epi32(_mm256_and_si256(_mm256_castps_si256(x), sizes), finite);
            odd = _mm256_sub_epi32(odd, is_odd);
            nans = _mm256_sub_epi32(nans, _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q)));
            x = _mm256_blendv_ps(x, around, _mm256_castsi256_ps(is_odd));
        }
        __m256d a = _mm256_sub_pd(_mm256_cvtps_pd(_mm256_castps256_ps128(x)), wide);
        __m256d b = _mm256_sub_pd(_mm256_cvtps_pd(_mm256_extractf128_ps(x, 1)), wide);
        sum_a = _mm256_add_pd(sum_a, a);
        sum_b = _mm256_add_pd(sum_b, b);
        squares_a = _mm256_add_pd(squares_a, _mm256_mul_pd(a, a));
        squares_b = _mm256_add_pd(squares_b, _mm256_mul_pd(b, b));
    }
    _mm256_storeu_ps(lanes->min, least);
    _mm256_storeu_ps(lanes->max, most);
    _mm256_storeu_pd(lanes->sum, sum_a);
    _mm256_storeu_pd(lanes->sum + 4, sum_b);
    _mm256_storeu_pd(lanes->squares, squares_a);
    _mm256_storeu_pd(lanes->squares + 4, squares_b);
    _mm256_storeu_si256((void *)lanes->nans, nans);
    _mm256_storeu_si256((void *)lanes->odd, odd);
    _mm256_storeu_si256((void *)lanes->zeros, zeros);
}

static SUMS_TARGET void sums_avx2_kernel(const float *values, size_t ngroups, float pivot, bool careful,
                                         heft__sum_lanes *lanes) {
    if (careful) sums_avx2(values, ngroups, pivot, true, lanes);
    else sums_avx2(values, ngroups, pivot, false, lanes);
}

heft__sum_kernel *heft__sum_avx2(void) {
    return heft__cpu_features() & HEFT__CPU_AVX2 ? sums_avx2_kernel : NULL;
}

#else

heft__sum_kernel *heft__sum_avx2(void) {
    return NULL;
}

#endif
