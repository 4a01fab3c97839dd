/* fuzz: globs and what else is done with names. The input is a glob, a line feed, and a name. */
#include "base/text.h"
#include "base/utf8.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define REQUIRE(condition)                                                                                             \
    if (!(condition)) abort()

static int sign(int order) {
    return (order > 0) - (order < 0);
}

static void check_glob(const char *glob, size_t glob_len, const char *name, size_t name_len) {
    const char *why = NULL;
    size_t fault = heft__glob_check(glob, glob_len, &why);
    bool hit = heft__glob_match(glob, glob_len, name, name_len);
    REQUIRE(fault == SIZE_MAX ? why == NULL : fault < glob_len && why != NULL);
    char *other = malloc(glob_len + 2 * name_len + 2);
    REQUIRE(other);
    if (fault == SIZE_MAX && hit) { /* stars around it change nothing */
        other[0] = '*';
        memcpy(other + 1, glob, glob_len);
        other[glob_len + 1] = '*';
        REQUIRE(heft__glob_match(other, glob_len + 2, name, name_len));
    }
    for (size_t i = 0; i < name_len; i++) { /* each byte escaped is the name itself */
        other[2 * i] = '\\';
        other[2 * i + 1] = name[i];
    }
    REQUIRE(heft__glob_match(other, 2 * name_len, name, name_len));
    REQUIRE(!heft__glob_match(other, 2 * name_len, name, name_len - (name_len > 0)) || name_len == 0);
    free(other);
}

static void check_escape(const char *name, size_t len, size_t size) {
    size_t need = heft__escape_length(name, len);
    char *out = malloc(need + 1), *cut = malloc(size);
    REQUIRE(out && cut);
    REQUIRE(heft__escape(out, need + 1, name, len) == need && strlen(out) == need);
    REQUIRE(heft__utf8_check(out, need) == need);
    for (size_t i = 0; i < need; i++) REQUIRE((uint8_t)out[i] >= 0x20 && out[i] != 0x7F);
    size_t n = heft__escape(cut, size, name, len);
    REQUIRE(n < size && cut[n] == 0 && heft__utf8_check(cut, n) == n);
    free(out);
    free(cut);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const char *text = (const char *)data, *line = size ? memchr(text, '\n', size) : NULL;
    size_t glob_len = line ? (size_t)(line - text) : size;
    const char *name = line ? line + 1 : text + size;
    size_t name_len = size - (size_t)(name - text);
    if (size > 4096) return 0;
    check_glob(text, glob_len, name, name_len);
    check_escape(name, name_len, 1 + glob_len % 40);
    int order = heft__natural_compare(text, glob_len, name, name_len);
    REQUIRE(sign(order) == -sign(heft__natural_compare(name, name_len, text, glob_len)));
    REQUIRE((order == 0) == (heft__bytes_compare(text, glob_len, name, name_len) == 0));
    uint32_t distance = heft__edit_distance(text, glob_len, name, name_len, 20);
    REQUIRE(distance == heft__edit_distance(name, name_len, text, glob_len, 20) && distance <= 21);
    if (order == 0) REQUIRE(distance == 0);
    return 0;
}
