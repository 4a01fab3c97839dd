/* base: how much memory and how many CPUs this process may use. */
#include "base/os.h"

#include <unistd.h>

uint64_t heft__os_free_memory(void) { return HEFT_NONE; }
uint32_t heft__os_usable_cpus(void) {
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 ? (uint32_t)n : 1;
}
