/* Guard pages behind inputs of tests. */
#include "helper_guard.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

void guard_init(guard *g, size_t capacity) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE), room = (capacity + page) / page * page;
    g->mapped = room + page;
    g->base = mmap(NULL, g->mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (g->base == MAP_FAILED || mprotect(g->base + room, page, PROT_NONE) != 0) {
        perror("guard pages");
        exit(1);
    }
    g->end = g->base + room;
}

void guard_free(guard *g) {
    munmap(g->base, g->mapped);
    memset(g, 0, sizeof *g);
}

char *guard_copy(guard *g, const void *data, size_t len) {
    if (len > (size_t)(g->end - g->base)) {
        fprintf(stderr, "guard_copy: %zu bytes do not fit\n", len);
        exit(1);
    }
    if (len) memcpy(g->end - len, data, len);
    return g->end - len;
}
