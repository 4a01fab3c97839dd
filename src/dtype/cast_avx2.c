/* dtype: kernels of casts for avx2. */
#include "dtype/cast.h"

heft__cast_kernel *heft__cast_avx2(heft_dtype from, heft_dtype to, uint32_t flags) {
    (void)from;
    (void)to;
    (void)flags;
    return NULL;
}

bool heft__cast_stream(void *dst, const void *src, size_t nbytes) {
    (void)dst;
    (void)src;
    (void)nbytes;
    return false;
}

void heft__cast_stream_end(void) {}
