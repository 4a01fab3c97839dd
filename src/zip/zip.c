/* zip: the directory of an archive, checked as a whole, and the local header of each member, which must agree with it.
 */
#include "zip/zip.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/hash_index.h"
#include "base/sort.h"
#include "base/text.h"
#include "base/utf8.h"
#include "digest/digest.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum {
    ZIP_END = 22,                    /* bytes of an end record without its comment */
    ZIP_LOCATOR = 20,                /* of what stands before it in a zip64 archive */
    ZIP_END64 = 56,                  /* of the zip64 end record, without extensions */
    ZIP_ENTRY = 46,                  /* of an entry of the directory, without name, extra field and comment */
    ZIP_LOCAL = 30,                  /* of a local header, without name and extra field */
    ZIP_COMMENT = 65535,             /* of the longest comment */
    ZIP_STREAMED = 8,                /* flag: sizes and checksum follow the data */
    ZIP_REFUSED = 1 | 32 | 64 | 8192 /* flags: encrypted, patched, strongly encrypted, masked headers */
};
#define ZIP_ONES UINT32_MAX /* of a 32-bit field: see the zip64 extra field */

typedef unsigned long long zip_number; /* what %llu takes */

static uint32_t zip_u16(const void *at) {
    const uint8_t *p = at;
    return p[0] | (uint32_t)p[1] << 8;
}

static uint32_t zip_u32(const void *at) {
    const uint8_t *p = at;
    return zip_u16(p) | zip_u16(p + 2) << 16;
}

static uint64_t zip_u64(const void *at) {
    const uint8_t *p = at;
    return zip_u32(p) | (uint64_t)zip_u32(p + 4) << 32;
}

static bool zip_is(const void *at, char third, char fourth) {
    const char signature[4] = {'P', 'K', third, fourth};
    return memcmp(at, signature, 4) == 0;
}

static heft_status zip_fail_at(heft_error *err, heft_status status, heft_fault fault, uint64_t offset,
                               const char *what) {
    heft__fail(err, status, fault, "zip archive: %s, at offset %llu", what, (zip_number)offset);
    heft__error_at(err, offset, HEFT_NONE, HEFT_NONE);
    return status;
}

static heft_status zip_fail_structure(heft_error *err, uint64_t offset, const char *what) {
    return zip_fail_at(err, HEFT_CORRUPT, HEFT_FAULT_ZIP_STRUCTURE, offset, what);
}

heft_status heft__zip_fail(heft_error *err, heft_status status, heft_fault fault, const heft__zip_member *member,
                           const char *format, ...) {
    char text[500], name[200];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    heft__escape(name, sizeof name, member->name, member->name_len);
    heft__fail(err, status, fault, "member \"%s\": %s", name, text);
    heft__error_at(err, member->local, HEFT_NONE, HEFT_NONE);
    return status;
}

/* ---- the end record ---------------------------------------------------------------------------------------------- */

typedef struct zip_end {
    uint64_t offset; /* where the directory must end: at this record, or at its zip64 counterpart */
    uint64_t nmembers, directory_offset, directory_nbytes;
} zip_end;

/* Finds the last end record whose comment ends with the file. tail[0..n) is the end of the file. */
static bool zip_find_end(const uint8_t *tail, size_t n, size_t *at) {
    for (size_t i = n < ZIP_END ? 0 : n - ZIP_END + 1; i-- > 0;) {
        if (!zip_is(tail + i, 5, 6) || zip_u16(tail + i + 20) != n - i - ZIP_END) continue;
        *at = i;
        return true;
    }
    return false;
}

/* The zip64 end record, if the locator before `end` says that there is one. */
static heft_status zip_read_end64(heft_source *source, zip_end *end, bool needed, heft_error *err) {
    uint8_t record[ZIP_END64], locator[ZIP_LOCATOR];
    uint64_t at = end->offset, place;
    bool found = false;
    if (at >= ZIP_LOCATOR) {
        heft_status status = heft_source_read(source, at - ZIP_LOCATOR, ZIP_LOCATOR, locator, err);
        if (status) return status;
        found = zip_is(locator, 6, 7);
    }
    if (!found)
        return needed ? zip_fail_structure(err, at, "the end record refers to a zip64 one that is not there") : HEFT_OK;
    at -= ZIP_LOCATOR;
    place = zip_u64(locator + 8);
    if (zip_u32(locator + 4) != 0 || zip_u32(locator + 16) > 1)
        return zip_fail_at(err, HEFT_UNSUPPORTED, HEFT_FAULT_ZIP_STRUCTURE, at, "parts on several disks");
    if (at < ZIP_END64 || place > at - ZIP_END64)
        return zip_fail_structure(err, at, "the place of the zip64 end record is wrong");
    heft_status status = heft_source_read(source, place, ZIP_END64, record, err);
    if (status) return status;
    if (!zip_is(record, 6, 6) || zip_u64(record + 4) != at - place - 12)
        return zip_fail_structure(err, place, "the zip64 end record is damaged");
    if (zip_u32(record + 16) || zip_u32(record + 20) || zip_u64(record + 24) != zip_u64(record + 32))
        return zip_fail_at(err, HEFT_UNSUPPORTED, HEFT_FAULT_ZIP_STRUCTURE, place, "parts on several disks");
    *end = (zip_end){place, zip_u64(record + 32), zip_u64(record + 48), zip_u64(record + 40)};
    return HEFT_OK;
}

static heft_status zip_read_end(heft_source *source, const heft_allocator *alloc, zip_end *end, heft_error *err) {
    uint64_t size = heft_source_size(source);
    size_t most = ZIP_END + ZIP_COMMENT, n = 0, at = 0;
    uint8_t *tail = heft__alloc(alloc, most), record[ZIP_END] = {0};
    if (!tail) return heft__fail_memory(err, most);
    bool found = false;
    heft_status status = HEFT_OK;
    for (size_t want = 1024; !status && !found && n < size && n < most; want = most) { /* few have a comment */
        n = size < want ? (size_t)size : want;
        status = heft_source_read(source, size - n, n, tail, err);
        found = !status && zip_find_end(tail, n, &at);
    }
    if (found) memcpy(record, tail + at, ZIP_END);
    heft__free(alloc, tail, most);
    if (status) return status;
    if (!found) {
        heft__fail(err, HEFT_CORRUPT, HEFT_FAULT_TRUNCATED,
                   "truncated: the directory of the zip archive, which stands at its end, is missing");
        heft__error_at(err, size, HEFT_NONE, HEFT_NONE);
        return HEFT_CORRUPT;
    }
    *end = (zip_end){size - n + at, zip_u16(record + 10), zip_u32(record + 16), zip_u32(record + 12)};
    bool ones = zip_u16(record + 8) == 0xFFFF || zip_u16(record + 10) == 0xFFFF || zip_u32(record + 12) == ZIP_ONES ||
                zip_u32(record + 16) == ZIP_ONES;
    if (!ones && (zip_u16(record + 4) || zip_u16(record + 6) || zip_u16(record + 8) != zip_u16(record + 10)))
        return zip_fail_at(err, HEFT_UNSUPPORTED, HEFT_FAULT_ZIP_STRUCTURE, end->offset, "parts on several disks");
    return zip_read_end64(source, end, ones, err);
}

/* ---- the directory ----------------------------------------------------------------------------------------------- */

/* Takes those of the fields of a zip64 extra field whose 32-bit counterparts are all ones. False: they are not there,
 * or the extra fields do not fit each other. */
static bool zip_extra64(const char *extra, uint32_t nextra, uint64_t *const *fields, size_t nfields) {
    bool wanted = false;
    for (size_t i = 0; i < nfields; i++) wanted |= *fields[i] == ZIP_ONES;
    while (wanted && nextra >= 4) {
        uint32_t len = zip_u16(extra + 2);
        if (len > nextra - 4) return false;
        const char *at = extra + 4;
        if (zip_u16(extra) == 1) {
            for (size_t i = 0; i < nfields; i++) {
                if (*fields[i] != ZIP_ONES) continue;
                if (len < 8) return false;
                *fields[i] = zip_u64(at);
                at += 8;
                len -= 8;
            }
            return true;
        }
        extra += 4 + len;
        nextra -= 4 + len;
    }
    return !wanted;
}

/* Not even a name that only looks like a way out of a folder is let through. */
const char *heft__zip_name_fault(const char *name, uint32_t len) {
    if (len == 0) return "its name is empty";
    if (memchr(name, 0, len)) return "its name holds a NUL byte";
    if (heft__utf8_check(name, len) != len) return "its name is not UTF-8";
    if (memchr(name, '\\', len)) return "its name holds a backslash";
    if (name[0] == '/') return "its name is an absolute path";
    if (len >= 2 && name[1] == ':' && ((name[0] | 32) >= 'a' && (name[0] | 32) <= 'z'))
        return "its name starts with a drive";
    for (uint32_t i = 0, from = 0; i <= len; i++) {
        if (i < len && name[i] != '/') continue;
        if (i - from == 2 && name[from] == '.' && name[from + 1] == '.') return "its name leads out of its folder";
        from = i + 1;
    }
    return NULL;
}

/* Reads the entry at *at of the directory and moves on. */
static heft_status zip_read_entry(const heft__zip *zip, uint64_t *at, heft__zip_member *out, heft_error *err) {
    const char *p = zip->directory + *at;
    uint64_t left = zip->directory_nbytes - *at, offset = zip->directory_offset + *at;
    if (left < ZIP_ENTRY || !zip_is(p, 1, 2)) return zip_fail_structure(err, offset, "no entry of the directory");
    uint32_t nname = zip_u16(p + 28), nextra = zip_u16(p + 30), ncomment = zip_u16(p + 32);
    if (left - ZIP_ENTRY < (uint64_t)nname + nextra + ncomment)
        return zip_fail_structure(err, offset, "an entry of the directory that reaches beyond it");
    *out = (heft__zip_member){.name = zip->directory + *at + ZIP_ENTRY,
                              .name_len = nname,
                              .flags = (uint16_t)zip_u16(p + 8),
                              .method = (uint16_t)zip_u16(p + 10),
                              .crc32 = zip_u32(p + 16),
                              .packed_nbytes = zip_u32(p + 20),
                              .nbytes = zip_u32(p + 24),
                              .local = zip_u32(p + 42)};
    uint64_t *const fields[] = {&out->nbytes, &out->packed_nbytes, &out->local};
    if (!zip_extra64(p + ZIP_ENTRY + nname, nextra, fields, 3))
        return zip_fail_structure(err, offset, "an entry of the directory whose extra fields are damaged");
    const char *why = heft__zip_name_fault(out->name, nname);
    if (why) return heft__zip_fail(err, HEFT_CORRUPT, HEFT_FAULT_MEMBER_NAME, out, "%s", why);
    uint32_t disk = zip_u16(p + 34);
    if (disk != 0 && disk != 0xFFFF)
        return zip_fail_at(err, HEFT_UNSUPPORTED, HEFT_FAULT_ZIP_STRUCTURE, offset, "parts on several disks");
    *at += (uint64_t)ZIP_ENTRY + nname + nextra + ncomment;
    return HEFT_OK;
}

/* Members in the order of their places; none reaches into the next or the directory. */
static heft_status zip_sort(heft__zip *zip, heft_error *err) {
    uint64_t n = zip->nmembers, nbytes = n * sizeof(heft__sort_key);
    heft__sort_key *keys = heft__alloc(&zip->alloc, nbytes);
    if (!keys) return heft__fail_memory(err, nbytes);
    for (uint32_t i = 0; i < n; i++) keys[i] = (heft__sort_key){zip->members[i].local, 0, i, 0};
    heft__sort_keys(keys, n);
    for (uint32_t i = 0; i < n; i++) keys[keys[i].index].rank = i;
    heft__sort_permute(keys, n, zip->members, sizeof *zip->members);
    heft__free(&zip->alloc, keys, nbytes);
    for (uint64_t i = 0; i < n; i++) {
        const heft__zip_member *m = &zip->members[i];
        uint64_t limit = i + 1 < n ? m[1].local : zip->directory_offset, end;
        if (heft__add_u64(m->local, (uint64_t)ZIP_LOCAL + m->name_len, &end) &&
            heft__add_u64(end, m->packed_nbytes, &end) && end <= limit)
            continue;
        heft__zip_fail(err, HEFT_CORRUPT, HEFT_FAULT_ZIP_STRUCTURE, m, "it reaches beyond offset %llu, where %s starts",
                       (zip_number)limit, i + 1 < n ? "another member" : "the directory");
        return HEFT_CORRUPT;
    }
    return HEFT_OK;
}

static heft_status zip_check_twice(const heft__zip *zip, heft_error *err) {
    heft__hash_index index;
    heft_status status = HEFT_OK;
    if (!heft__hash_index_init(&index, &zip->alloc, zip->nmembers)) return heft__fail_memory(err, HEFT_NONE);
    for (uint32_t i = 0; i < zip->nmembers && !status; i++) {
        const heft__zip_member *m = &zip->members[i];
        uint32_t hash = heft__hash_name(&index, m->name, m->name_len), number;
        for (uint64_t cursor = heft__hash_start(&index, hash); heft__hash_next(&index, hash, &cursor, &number);) {
            const heft__zip_member *other = &zip->members[number];
            if (other->name_len == m->name_len && memcmp(other->name, m->name, m->name_len) == 0)
                status = heft__zip_fail(err, HEFT_CORRUPT, HEFT_FAULT_ZIP_STRUCTURE, m,
                                        "the name stands twice, at offsets %llu and %llu", (zip_number)other->local,
                                        (zip_number)m->local);
        }
        if (!status && !heft__hash_add(&index, hash, i)) status = heft__fail_memory(err, HEFT_NONE);
    }
    heft__hash_index_free(&index);
    return status;
}

static heft_status zip_check_end(const zip_end *end, uint64_t max_nbytes, heft_error *err) {
    uint64_t limit = max_nbytes < HEFT__ZIP_DIRECTORY_MAX ? max_nbytes : HEFT__ZIP_DIRECTORY_MAX;
    if (end->directory_offset > end->offset || end->directory_nbytes != end->offset - end->directory_offset)
        return zip_fail_structure(err, end->offset, "the directory does not end where its end record starts");
    if (end->nmembers > HEFT__ZIP_MEMBERS_MAX || end->directory_nbytes > limit) {
        heft__fail(err, HEFT_LIMIT, HEFT_FAULT_HEADER_LIMIT,
                   "the directory of the zip archive has %llu members and %llu bytes, the limits are %llu and %llu",
                   (zip_number)end->nmembers, (zip_number)end->directory_nbytes, (zip_number)HEFT__ZIP_MEMBERS_MAX,
                   (zip_number)limit);
        heft__error_at(err, end->directory_offset, limit, end->directory_nbytes);
        return HEFT_LIMIT;
    }
    if (end->nmembers > end->directory_nbytes / ZIP_ENTRY)
        return zip_fail_structure(err, end->offset,
                                  "the end record counts more members than the directory has room for");
    return HEFT_OK;
}

static heft_status zip_read_directory(heft__zip *zip, const zip_end *end, heft_error *err) {
    uint64_t nbytes = end->directory_nbytes + HEFT__ZIP_SLACK, at = 0;
    zip->directory_nbytes = end->directory_nbytes;
    zip->directory_offset = end->directory_offset;
    zip->directory = heft__alloc(&zip->alloc, nbytes);
    zip->block = heft__alloc(&zip->alloc, HEFT__ZIP_BLOCK);
    zip->block_capacity = zip->block ? HEFT__ZIP_BLOCK : 0;
    if (!zip->directory || !zip->block) return heft__fail_memory(err, nbytes);
    memset(zip->directory + end->directory_nbytes, 0, HEFT__ZIP_SLACK);
    heft_status status =
        heft_source_read(zip->source, end->directory_offset, end->directory_nbytes, zip->directory, err);
    if (status) return status;
    zip->members = heft__alloc(&zip->alloc, end->nmembers * sizeof *zip->members);
    if (!zip->members) return heft__fail_memory(err, end->nmembers * sizeof *zip->members);
    zip->nmembers = end->nmembers;
    for (uint64_t i = 0; i < zip->nmembers && !status; i++) status = zip_read_entry(zip, &at, &zip->members[i], err);
    if (!status && at != zip->directory_nbytes)
        status = zip_fail_structure(err, zip->directory_offset + at, "bytes after the last entry of the directory");
    if (!status) status = zip_sort(zip, err);
    return status ? status : zip_check_twice(zip, err);
}

heft_status heft__zip_open(heft_source *source, uint64_t max_directory_nbytes, const heft_allocator *alloc,
                           heft__zip *out, heft_error *err) {
    zip_end end = {0};
    *out = (heft__zip){.alloc = *alloc, .source = source};
    heft_status status = zip_read_end(source, alloc, &end, err);
    if (!status) status = zip_check_end(&end, max_directory_nbytes, err);
    if (!status) status = zip_read_directory(out, &end, err);
    if (status) heft__zip_close(out);
    return status;
}

void heft__zip_close(heft__zip *zip) {
    heft__free(&zip->alloc, zip->directory, zip->directory_nbytes + HEFT__ZIP_SLACK);
    heft__free(&zip->alloc, zip->members, zip->nmembers * sizeof *zip->members);
    heft__free(&zip->alloc, zip->block, zip->block_capacity);
    memset(zip, 0, sizeof *zip);
}

/* ---- members ----------------------------------------------------------------------------------------------------- */

heft_status heft__zip_peek(heft__zip *zip, uint64_t offset, uint64_t nbytes, const uint8_t **out, heft_error *err) {
    uint64_t size = heft_source_size(zip->source), n = nbytes;
    if (offset < zip->block_offset || offset - zip->block_offset > zip->block_nbytes ||
        zip->block_nbytes - (offset - zip->block_offset) < nbytes) {
        zip->block_nbytes = 0;
        if (nbytes > zip->block_capacity) {
            heft__free(&zip->alloc, zip->block, zip->block_capacity);
            zip->block_capacity = 0;
            zip->block = heft__alloc(&zip->alloc, nbytes);
            if (!zip->block) return heft__fail_memory(err, nbytes);
            zip->block_capacity = nbytes;
        }
        if (n < HEFT__ZIP_BLOCK) n = HEFT__ZIP_BLOCK;
        if (offset <= size && n > size - offset && nbytes <= size - offset) n = size - offset;
        heft_status status = heft_source_read(zip->source, offset, n, zip->block, err);
        if (status) return status;
        zip->block_offset = offset;
        zip->block_nbytes = n;
    }
    *out = zip->block + (offset - zip->block_offset);
    return HEFT_OK;
}

heft_status heft__zip_check_method(const heft__zip_member *member, heft_error *err) {
    enum { DEFLATE_RATIO = 1032, DEFLATE_MORE = 65536 };
    if (member->flags & ZIP_REFUSED)
        return heft__zip_fail(err, HEFT_UNSUPPORTED, HEFT_FAULT_MEMBER_METHOD, member, "it is %s",
                              member->flags & 32 ? "a patch" : "encrypted");
    if (member->method == HEFT__ZIP_STORED) {
        if (member->packed_nbytes == member->nbytes) return HEFT_OK;
        return heft__zip_fail(err, HEFT_CORRUPT, HEFT_FAULT_ZIP_STRUCTURE, member,
                              "it is stored, and its sizes are %llu and %llu", (zip_number)member->packed_nbytes,
                              (zip_number)member->nbytes);
    }
    if (member->method != HEFT__ZIP_DEFLATE)
        return heft__zip_fail(err, HEFT_UNSUPPORTED, HEFT_FAULT_MEMBER_METHOD, member,
                              "compression method %u; stored (0) and deflate (8) are known", member->method);
    if (member->nbytes <= DEFLATE_MORE || (member->nbytes - DEFLATE_MORE) / DEFLATE_RATIO <= member->packed_nbytes)
        return HEFT_OK;
    return heft__zip_fail(err, HEFT_CORRUPT, HEFT_FAULT_ZIP_STRUCTURE, member,
                          "deflate cannot make %llu bytes out of %llu", (zip_number)member->nbytes,
                          (zip_number)member->packed_nbytes);
}

/* The sizes and the checksum of a local header against the directory's. */
static bool zip_agrees(const heft__zip_member *member, const uint8_t *local, const uint8_t *extra, uint32_t nextra) {
    uint64_t nbytes = zip_u32(local + 22), packed = zip_u32(local + 18);
    uint32_t crc32 = zip_u32(local + 14);
    uint64_t *const fields[] = {&nbytes, &packed};
    if (member->flags & ZIP_STREAMED && nbytes == 0 && packed == 0) return true;
    if (!zip_extra64((const char *)extra, nextra, fields, 2)) return false;
    if (member->flags & ZIP_STREAMED && nbytes == 0 && packed == 0) return true;
    return nbytes == member->nbytes && packed == member->packed_nbytes && crc32 == member->crc32;
}

heft_status heft__zip_locate(heft__zip *zip, heft__zip_member *member, heft_error *err) {
    const uint8_t *p = NULL;
    heft_status status = heft__zip_peek(zip, member->local, ZIP_LOCAL, &p, err);
    if (status) return status;
    if (!zip_is(p, 3, 4))
        return heft__zip_fail(err, HEFT_CORRUPT, HEFT_FAULT_ZIP_STRUCTURE, member, "no local header is there");
    uint32_t nname = zip_u16(p + 26), nextra = zip_u16(p + 28);
    uint64_t before = ZIP_LOCAL + (uint64_t)nname + nextra;
    uint64_t limit = member + 1 < zip->members + zip->nmembers ? member[1].local : zip->directory_offset;
    if (limit - member->local < before || limit - member->local - before < member->packed_nbytes)
        return heft__zip_fail(err, HEFT_CORRUPT, HEFT_FAULT_ZIP_STRUCTURE, member,
                              "it reaches beyond offset %llu, where something else starts", (zip_number)limit);
    status = heft__zip_peek(zip, member->local, before, &p, err);
    if (status) return status;
    if (nname != member->name_len || memcmp(p + ZIP_LOCAL, member->name, nname) != 0 ||
        zip_u16(p + 8) != member->method)
        return heft__zip_fail(err, HEFT_CORRUPT, HEFT_FAULT_ZIP_STRUCTURE, member,
                              "its local header has another name or method than the directory");
    if (!zip_agrees(member, p, p + ZIP_LOCAL + nname, nextra))
        return heft__zip_fail(err, HEFT_CORRUPT, HEFT_FAULT_ZIP_STRUCTURE, member,
                              "its local header has other sizes or another checksum than the directory");
    member->data = member->local + before;
    return HEFT_OK;
}

heft_status heft__zip_decode_start(heft__zip *zip, const heft__zip_member *member, uint8_t *out, uint64_t nbytes,
                                   heft_error *err) {
    const uint8_t *in = NULL;
    /* No reasonable coder needs more input for so little output. */
    uint64_t n = 4000 + 8 * nbytes;
    if (n > member->packed_nbytes) n = member->packed_nbytes;
    heft_status status = heft__zip_peek(zip, member->data, n, &in, err);
    if (status) return status;
    if (heft__inflate_portable(in, (size_t)n, out, (size_t)nbytes, true)) return HEFT_OK;
    return heft__zip_fail(err, HEFT_CORRUPT, HEFT_FAULT_CHECKSUM, member, "its compressed data is damaged");
}
