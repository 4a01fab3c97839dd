/* catalog: a name that is not there, and the nearest ones that are. */
#include "base/error.h"
#include "base/text.h"
#include "catalog/catalog.h"

#include <string.h>

enum {
    FIND_OFFERS = 3,
    FIND_DISTANCES_MAX = 4096, /* edit distances computed for one message */
    FIND_NAME_MAX = 256,       /* longer names are not compared */
    FIND_CONTAINED = 1000      /* worse than any distance: one name ends or begins with the other */
};

typedef struct find_offer {
    uint64_t id;
    uint32_t distance;
} find_offer;

/* True if the names share a quarter of the shorter one at the start or at the end: what a slip of the fingers leaves.
 */
static bool find_alike(const char *a, size_t a_len, const char *b, size_t b_len) {
    size_t most = a_len < b_len ? a_len : b_len, head = 0, tail = 0;
    while (head < most && a[head] == b[head]) head++;
    while (tail < most && a[a_len - 1 - tail] == b[b_len - 1 - tail]) tail++;
    return (head > tail ? head : tail) * 4 >= most;
}

/* True if the shorter name is the start or the end of the longer one, cut at a point. */
static bool find_contained(const char *a, size_t a_len, const char *b, size_t b_len) {
    if (a_len > b_len) return find_contained(b, b_len, a, a_len);
    if (!a_len || a_len == b_len) return false;
    return (memcmp(a, b + b_len - a_len, a_len) == 0 && b[b_len - a_len - 1] == '.') ||
           (memcmp(a, b, a_len) == 0 && b[a_len] == '.');
}

/* Keeps the best few; of equal ones the first. */
static void find_add(find_offer *offers, uint32_t *n, find_offer offer) {
    uint32_t at = *n;
    while (at && offers[at - 1].distance > offer.distance) at--;
    if (at == FIND_OFFERS) return;
    if (*n < FIND_OFFERS) ++*n;
    for (uint32_t i = *n - 1; i > at; i--) offers[i] = offers[i - 1];
    offers[at] = offer;
}

static uint32_t find_nearest(const heft_archive *archive, const char *name, size_t len, find_offer *offers) {
    uint32_t n = 0, distances = 0, limit = (uint32_t)(len / 4 < 2 ? 2 : len / 4 > 8 ? 8 : len / 4);
    for (uint64_t id = 0; len && len <= FIND_NAME_MAX && id < archive->ntensors; id++) {
        uint32_t file;
        const heft__entry *entry = heft__archive_entry(archive, id, &file);
        size_t entry_len = entry->name_len;
        if (!entry_len || entry_len > FIND_NAME_MAX) continue;
        if (find_contained(name, len, entry->name, entry_len)) {
            find_add(offers, &n, (find_offer){id, FIND_CONTAINED});
            continue;
        }
        size_t longer = entry_len > len ? entry_len - len : len - entry_len;
        if (longer > limit || distances == FIND_DISTANCES_MAX || !find_alike(name, len, entry->name, entry_len))
            continue;
        distances++;
        uint32_t distance = heft__edit_distance(name, len, entry->name, entry_len, limit);
        if (distance <= limit) find_add(offers, &n, (find_offer){id, distance});
    }
    return n;
}

heft_status heft__archive_fail_name(const heft_archive *archive, const char *name, size_t len, heft_error *err) {
    if (!err) return HEFT_NOT_FOUND; /* nobody reads the message, so a probe stays cheap */
    char text[FIND_OFFERS * 170 + 64] = "", path[200], wanted[170];
    size_t at = 0;
    find_offer offers[FIND_OFFERS];
    uint32_t n = find_nearest(archive, name, len, offers);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t file;
        const heft__entry *entry = heft__archive_entry(archive, offers[i].id, &file);
        const char *before = i == 0 ? "; did you mean \"" : i + 1 == n ? " or \"" : ", \"";
        memcpy(text + at, before, strlen(before));
        at += strlen(before);
        at += heft__escape(text + at, 140, entry->name, entry->name_len);
        memcpy(text + at, "\"", 2);
        at++;
    }
    if (n) memcpy(text + at, "?", 2);
    heft__escape(path, sizeof path, archive->path, strlen(archive->path));
    heft__escape(wanted, sizeof wanted, name, len);
    heft__fail(err, HEFT_NOT_FOUND, HEFT_FAULT_CALL, "%s: no tensor \"%s\"%s", path, wanted, text);
    heft__error_file(err, archive->path);
    heft__error_tensor(err, name, len);
    return HEFT_NOT_FOUND;
}
