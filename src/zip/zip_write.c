/* zip: the bytes of an archive of stored members, around their data. The same members give the same bytes: no clock is
 * asked. */
#include "zip/zip.h"

#include "digest/digest.h"

#include <string.h>

enum {
    ZIP_OUT_LOCAL = 30,
    ZIP_OUT_ENTRY = 46,
    ZIP_OUT_END = 22,
    ZIP_OUT_END64 = 56 + 20, /* with its locator */
    ZIP_OUT_DATE = 0x21,     /* 1980-01-01, the first that there is */
    ZIP_OUT_PADDING = 0x6668 /* an extra field that nobody else has */
};

static uint8_t *zip_put(uint8_t *at, uint64_t value, int nbytes) {
    for (int i = 0; i < nbytes; i++) *at++ = (uint8_t)(value >> 8 * i);
    return at;
}

static bool zip_is_large(uint64_t value) {
    return value >= UINT32_MAX;
}

static uint64_t zip_low(uint64_t value) {
    return zip_is_large(value) ? UINT32_MAX : value;
}

/* Bytes of the zip64 field of a directory entry, of its fields alone. */
static uint32_t zip_extra_nbytes(const heft__zip_member *m) {
    return (zip_is_large(m->nbytes) ? 16u : 0u) + (zip_is_large(m->local) ? 8u : 0u);
}

static uint32_t zip_version(const heft__zip_member *m) {
    return zip_is_large(m->nbytes) || zip_is_large(m->local) ? 45 : 20;
}

static uint32_t zip_flags(const heft__zip_member *m) {
    for (uint32_t i = 0; i < m->name_len; i++)
        if ((uint8_t)m->name[i] > 0x7F) return 1u << 11; /* UTF-8 */
    return 0;
}

/* What local header and directory have in common: from the version that is needed up to the lengths. */
static uint8_t *zip_put_common(uint8_t *at, const heft__zip_member *m, uint32_t nextra) {
    at = zip_put(at, zip_version(m), 2);
    at = zip_put(at, zip_flags(m), 2);
    at = zip_put(at, HEFT__ZIP_STORED, 2);
    at = zip_put(at, 0, 2);
    at = zip_put(at, ZIP_OUT_DATE, 2);
    at = zip_put(at, m->crc32, 4);
    at = zip_put(at, zip_low(m->nbytes), 4);
    at = zip_put(at, zip_low(m->nbytes), 4);
    at = zip_put(at, m->name_len, 2);
    return zip_put(at, nextra, 2);
}

uint64_t heft__zip_local_nbytes(const heft__zip_member *member, uint64_t before, uint64_t align) {
    uint64_t least = ZIP_OUT_LOCAL + (uint64_t)member->name_len + (zip_is_large(member->nbytes) ? 20 : 0);
    uint64_t padding = (align - (member->local + least + before) % align) % align;
    while (padding && padding < 4) padding += align; /* an extra field has four bytes at least */
    return least + padding;
}

void heft__zip_put_local(const heft__zip_member *member, uint64_t nbytes, uint8_t *out) {
    uint32_t large = zip_is_large(member->nbytes) ? 20 : 0;
    uint64_t nextra = nbytes - ZIP_OUT_LOCAL - member->name_len, padding = nextra - large;
    heft__zip_member m = *member;
    m.local = 0; /* where it lies is the directory's business */
    uint8_t *at = zip_put_common(zip_put(out, 0x04034B50, 4), &m, (uint32_t)nextra);
    memcpy(at, m.name, m.name_len);
    at += m.name_len;
    if (large) at = zip_put(zip_put(zip_put(zip_put(at, 1, 2), 16, 2), m.nbytes, 8), m.nbytes, 8);
    if (padding) memset(zip_put(zip_put(at, ZIP_OUT_PADDING, 2), padding - 4, 2), 0, (size_t)padding - 4);
}

uint64_t heft__zip_entry_nbytes(const heft__zip_member *member) {
    uint32_t extra = zip_extra_nbytes(member);
    return ZIP_OUT_ENTRY + (uint64_t)member->name_len + (extra ? 4 + extra : 0);
}

uint8_t *heft__zip_put_entry(const heft__zip_member *m, uint8_t *at) {
    uint32_t extra = zip_extra_nbytes(m);
    at = zip_put(zip_put(at, 0x02014B50, 4), 3u << 8 | zip_version(m), 2); /* made on Unix, for what follows */
    at = zip_put_common(at, m, extra ? 4 + extra : 0);
    at = zip_put(at, 0, 2 + 2 + 2);               /* comment, disk, kind of data */
    at = zip_put(at, UINT64_C(0100644) << 16, 4); /* a file that its owner may write */
    at = zip_put(at, zip_low(m->local), 4);
    memcpy(at, m->name, m->name_len);
    at += m->name_len;
    if (extra) at = zip_put(zip_put(at, 1, 2), extra, 2);
    if (zip_is_large(m->nbytes)) at = zip_put(zip_put(at, m->nbytes, 8), m->nbytes, 8);
    return zip_is_large(m->local) ? zip_put(at, m->local, 8) : at;
}

static bool zip_end_is_large(uint64_t nmembers, uint64_t offset, uint64_t nbytes) {
    return nmembers >= 0xFFFF || zip_is_large(offset) || zip_is_large(nbytes);
}

uint64_t heft__zip_end_nbytes(uint64_t nmembers, uint64_t offset, uint64_t nbytes) {
    return ZIP_OUT_END + (zip_end_is_large(nmembers, offset, nbytes) ? ZIP_OUT_END64 : 0);
}

void heft__zip_put_end(uint64_t nmembers, uint64_t offset, uint64_t nbytes, uint8_t *at) {
    if (zip_end_is_large(nmembers, offset, nbytes)) {
        at = zip_put(zip_put(at, 0x06064B50, 4), 56 - 12, 8);
        at = zip_put(zip_put(at, 3u << 8 | 45, 2), 45, 2);
        at = zip_put(at, 0, 4 + 4);
        at = zip_put(zip_put(at, nmembers, 8), nmembers, 8);
        at = zip_put(zip_put(at, nbytes, 8), offset, 8);
        at = zip_put(zip_put(at, 0x07064B50, 4), 0, 4);
        at = zip_put(zip_put(at, offset + nbytes, 8), 1, 4);
    }
    uint64_t count = nmembers < 0xFFFF ? nmembers : 0xFFFF;
    at = zip_put(zip_put(at, 0x06054B50, 4), 0, 2 + 2);
    at = zip_put(zip_put(at, count, 2), count, 2);
    at = zip_put(zip_put(at, zip_low(nbytes), 4), zip_low(offset), 4);
    zip_put(at, 0, 2);
}

uint32_t heft__zip_crc32(const void *start, uint64_t start_nbytes, uint32_t crc32, uint64_t nbytes) {
    return heft__crc32_combine(heft__crc32(0, start, (size_t)start_nbytes), crc32, nbytes);
}
