/* fuzz: runs a target over every file of the folders given, without libFuzzer. Each input lies against the end of its heap
 * block, so that a read past it is seen by a sanitizer or valgrind. Also tries every prefix of inputs up to 512 bytes. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void replay_one(const uint8_t *data, size_t size) {
    uint8_t *exact = malloc(size ? size : 1);
    if (!exact) abort();
    memcpy(exact, data, size);
    LLVMFuzzerTestOneInput(exact, size);
    free(exact);
}

static long replay_file(const char *path) {
    FILE *f = fopen(path, "rb");
    if (!f) return 0;
    size_t capacity = 1 << 16, size = 0, got;
    uint8_t *data = malloc(capacity);
    while (data && (got = fread(data + size, 1, capacity - size, f)) > 0) {
        size += got;
        if (size == capacity) data = realloc(data, capacity *= 2);
    }
    fclose(f);
    if (!data) abort();
    replay_one(data, size);
    for (size_t n = 0; size <= 512 && n < size; n++) replay_one(data, n);
    free(data);
    return 1;
}

int main(int argc, char **argv) {
    long done = 0;
    for (int i = 1; i < argc; i++) {
        DIR *dir = opendir(argv[i]);
        if (!dir) {
            done += replay_file(argv[i]);
            continue;
        }
        for (struct dirent *e; (e = readdir(dir));) {
            char path[4096];
            if (e->d_name[0] == '.') continue;
            snprintf(path, sizeof path, "%s/%s", argv[i], e->d_name);
            done += replay_file(path);
        }
        closedir(dir);
    }
    printf("%ld inputs\n", done);
    return done ? 0 : 1; /* an empty corpus is a fault */
}
