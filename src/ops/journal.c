/* ops: journals of edits in place: their bytes, and whether they belong to a file. */
#include "ops/journal.h"

#include "base/checked.h"
#include "base/os_target.h"
#include "digest/digest.h"

#include <string.h>

enum {
    JOURNAL_MAGIC = 8,
    JOURNAL_NUMBERS = 4 * 8,
    JOURNAL_HEAD = JOURNAL_MAGIC + JOURNAL_NUMBERS + 2 * HEFT__JOURNAL_NAME,
    JOURNAL_TAIL = 4,
    JOURNAL_LEAST_HEADER = 10, /* "{}" and its length */
    JOURNAL_SECTOR = 512       /* what a disk writes whole or not at all */
};
static const char journal_magic[JOURNAL_MAGIC + 1] = "heftjrn1";

static void journal_put(uint8_t *at, uint64_t value, int nbytes) {
    for (int i = 0; i < nbytes; i++) at[i] = (uint8_t)(value >> 8 * i);
}

static uint64_t journal_get(const uint8_t *at, int nbytes) {
    uint64_t value = 0;
    while (nbytes-- > 0) value = value << 8 | at[nbytes];
    return value;
}

uint64_t heft__journal_nbytes(uint64_t header_nbytes) {
    uint64_t nbytes;
    return heft__mul_u64(header_nbytes, 2, &nbytes) && heft__add_u64(nbytes, JOURNAL_HEAD + JOURNAL_TAIL, &nbytes) ? nbytes
                                                                                                                  : HEFT_NONE;
}

void heft__journal_write(const heft__journal *journal, uint8_t *out) {
    uint64_t n = journal->header_nbytes, end = JOURNAL_HEAD + 2 * n;
    const uint64_t numbers[] = {n, journal->file_nbytes, journal->inode, (uint64_t)journal->mtime_ns};
    memcpy(out, journal_magic, JOURNAL_MAGIC);
    for (size_t i = 0; i < 4; i++) journal_put(out + JOURNAL_MAGIC + 8 * i, numbers[i], 8);
    memcpy(out + JOURNAL_MAGIC + JOURNAL_NUMBERS, journal->writer, HEFT__JOURNAL_NAME);
    memcpy(out + JOURNAL_MAGIC + JOURNAL_NUMBERS + HEFT__JOURNAL_NAME, journal->name, HEFT__JOURNAL_NAME);
    memcpy(out + JOURNAL_HEAD, journal->before, (size_t)n);
    memcpy(out + JOURNAL_HEAD + n, journal->after, (size_t)n);
    journal_put(out + end, heft__crc32(0, out, (size_t)end), JOURNAL_TAIL);
}

bool heft__journal_parse(const uint8_t *data, uint64_t nbytes, heft__journal *out, const char **why) {
    memset(out, 0, sizeof *out);
    *why = "it is no journal of heft, or cut off";
    if (nbytes < JOURNAL_HEAD + 2 * JOURNAL_LEAST_HEADER + JOURNAL_TAIL) return false;
    if (memcmp(data, journal_magic, JOURNAL_MAGIC) != 0) return false;
    uint64_t n = journal_get(data + JOURNAL_MAGIC, 8);
    if (n < JOURNAL_LEAST_HEADER || heft__journal_nbytes(n) != nbytes) return false;
    *why = "its checksum is wrong";
    if (journal_get(data + nbytes - JOURNAL_TAIL, JOURNAL_TAIL) != heft__crc32(0, data, (size_t)(nbytes - JOURNAL_TAIL)))
        return false;
    *why = "what it says about the file makes no sense";
    out->header_nbytes = n;
    out->file_nbytes = journal_get(data + JOURNAL_MAGIC + 8, 8);
    out->inode = journal_get(data + JOURNAL_MAGIC + 16, 8);
    out->mtime_ns = (int64_t)journal_get(data + JOURNAL_MAGIC + 24, 8);
    memcpy(out->writer, data + JOURNAL_MAGIC + JOURNAL_NUMBERS, HEFT__JOURNAL_NAME);
    memcpy(out->name, data + JOURNAL_MAGIC + JOURNAL_NUMBERS + HEFT__JOURNAL_NAME, HEFT__JOURNAL_NAME);
    out->before = data + JOURNAL_HEAD;
    out->after = out->before + n;
    return n <= out->file_nbytes && memchr(out->writer, 0, HEFT__JOURNAL_NAME) && memchr(out->name, 0, HEFT__JOURNAL_NAME) &&
           journal_get(out->before, 8) == n - 8 && journal_get(out->after, 8) == n - 8;
}

static bool journal_is_mixture(const uint8_t *a, const uint8_t *b, const uint8_t *mixed, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (mixed[i] != a[i] && mixed[i] != b[i]) return false;
    return true;
}

/* The new header up to some byte, then the old one. */
static bool journal_is_begun(const heft__journal *journal, const uint8_t *header) {
    uint64_t at = 0, n = journal->header_nbytes;
    while (at < n && header[at] == journal->after[at]) at++;
    return memcmp(header + at, journal->before + at, (size_t)(n - at)) == 0;
}

/* A header that is the old one to the last byte proves nothing: whoever writes the same tensors again writes it too. Only the time
 * of the file then says that nobody did. One with a sector of the new header, and none of a third, can only come from the edit.
 * Sectors that are neither old nor new are the edit's where it was killed between two calls, and where it goes on now. */
heft__journal_fit heft__journal_judge(const heft__journal *journal, uint64_t file_nbytes, uint64_t inode, int64_t mtime_ns,
                                      const uint8_t *header, bool writing) {
    uint64_t nbytes = journal->header_nbytes;
    bool begun = false, sectors = true;
    if (file_nbytes != journal->file_nbytes) return HEFT__JOURNAL_FOREIGN;
    for (uint64_t at = 0; at < nbytes; at += JOURNAL_SECTOR) {
        size_t n = nbytes - at < JOURNAL_SECTOR ? (size_t)(nbytes - at) : JOURNAL_SECTOR;
        if (memcmp(header + at, journal->before + at, n) == 0) continue;
        begun = true;
        sectors = sectors && memcmp(header + at, journal->after + at, n) == 0;
    }
    if (begun && !sectors)
        sectors = (inode == journal->inode && journal_is_begun(journal, header)) ||
                  (writing && journal_is_mixture(journal->before, journal->after, header, (size_t)nbytes));
    if (begun) return sectors ? HEFT__JOURNAL_FITS : HEFT__JOURNAL_FOREIGN;
    if (inode != journal->inode) return HEFT__JOURNAL_FOREIGN;
    return mtime_ns == journal->mtime_ns ? HEFT__JOURNAL_FITS : HEFT__JOURNAL_UNDONE;
}

bool heft__journal_is_written(const heft__journal *journal) {
    return heft__target_temp_alive(journal->writer) || heft__target_temp_own(journal->writer);
}
