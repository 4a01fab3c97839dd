/* base: what this processor can do beyond its baseline, and its floating-point mode. */
#ifndef HEFT_BASE_CPU_H
#define HEFT_BASE_CPU_H

#include <stdbool.h>
#include <stdint.h>

#define HEFT__CPU_AVX2   UINT32_C(1) /* AVX2 and F16C */
#define HEFT__CPU_AVX512 UINT32_C(2) /* AVX-512 F, BW, DQ and VL */

/* The bits above that processor and system support. */
uint32_t heft__cpu_features(void);

/* The calling thread's floating-point unit into its default mode: to nearest, subnormals kept, no traps. What it was
 * goes back by _leave, flags included. The two are opaque to the compiler, so that no arithmetic of a function called
 * in between moves out. */
uint64_t heft__cpu_float_enter(void);
void heft__cpu_float_leave(uint64_t before);

#endif
