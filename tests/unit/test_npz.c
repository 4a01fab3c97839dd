/* label: threads */
/* npz: zip archives made here and damaged field by field; members in place, decoded, refused; memory, allocations,
 * threads. */
#include "helper_files.h"
#include "helper_guard.h"
#include "helper_scan.h"

#include "base/parallel.h"
#include "digest/digest.h"
#include "format/npy.h"
#include "zip/zip.h"

/* zlib's deflate of the array [[0, 1, 2], [3, 4, 5]] of F32 as numpy.save writes it: 152 bytes. */
static const uint8_t packed_array[] = {
    0x9b, 0xec, 0x17, 0xea, 0x1b, 0x10, 0xc9, 0xc8, 0x50, 0xc6, 0x50, 0xad, 0x9e, 0x92, 0x5a, 0x9c, 0x5c,
    0xa4, 0x6e, 0xa5, 0xa0, 0x6e, 0x93, 0x66, 0xa2, 0xae, 0xa3, 0xa0, 0x9e, 0x96, 0x5f, 0x54, 0x52, 0x94,
    0x98, 0x17, 0x9f, 0x5f, 0x94, 0x92, 0x0a, 0x12, 0x77, 0x4b, 0xcc, 0x29, 0x4e, 0x05, 0x8a, 0x17, 0x67,
    0x24, 0x16, 0xa4, 0x02, 0xf9, 0x1a, 0x46, 0x3a, 0x0a, 0xc6, 0x9a, 0x3a, 0x0a, 0xb5, 0x0a, 0x64, 0x03,
    0x2e, 0x06, 0x30, 0x68, 0xb0, 0x07, 0x12, 0x0e, 0x40, 0x04, 0xc4, 0x0d, 0x40, 0xbc, 0xc0, 0x01, 0x00};
enum { PACKED_NBYTES = 152 };
#define PACKED_CRC 0x2a00e94fu

/* ---- archives that are made here ---- */

typedef struct maker {
    uint8_t bytes[20000];
    size_t n; /* so far; after make_end of all */
    heft__zip_member members[16];
    size_t nmembers;
    size_t directory, end; /* offsets */
    size_t entries[16];    /* of the members in the directory */
} maker;

/* A member of any bytes; of a deflated one `nbytes` is what it decodes to. */
static void make_member(maker *m, const char *name, const void *data, size_t packed, uint16_t method, uint64_t nbytes,
                        uint32_t crc) {
    heft__zip_member *member = &m->members[m->nmembers++];
    *member = (heft__zip_member){.name = (char *)(uintptr_t)name,
                                 .name_len = (uint32_t)strlen(name),
                                 .nbytes = packed,
                                 .packed_nbytes = nbytes,
                                 .local = m->n,
                                 .method = method,
                                 .crc32 = crc};
    uint64_t local = heft__zip_local_nbytes(member, 0, 1);
    heft__zip_put_local(member, local, m->bytes + m->n);
    m->bytes[m->n + 8] = (uint8_t)method;
    m->bytes[m->n + 22] = (uint8_t)nbytes, m->bytes[m->n + 23] = (uint8_t)(nbytes >> 8);
    memcpy(m->bytes + m->n + local, data, packed);
    m->n += local + packed;
}

static void make_array(maker *m, const char *name, const char *text) {
    uint8_t array[400] = {0};
    size_t len = strlen(text);
    memcpy(array, "\x93NUMPY\1\0", 8);
    array[8] = (uint8_t)len;
    memcpy(array + 10, text, len);
    for (size_t i = 0; i < 24; i++) array[10 + len + i] = (uint8_t)(i + 1);
    make_member(m, name, array, 10 + len + 24, 0, 10 + len + 24, heft__crc32(0, array, 10 + len + 24));
}

static void make_packed(maker *m, const char *name) {
    make_member(m, name, packed_array, sizeof packed_array, 8, PACKED_NBYTES, PACKED_CRC);
}

static void make_end(maker *m) {
    m->directory = m->n;
    for (size_t i = 0; i < m->nmembers; i++) {
        uint8_t *at = m->bytes + m->n, *next = heft__zip_put_entry(&m->members[i], at);
        m->entries[i] = m->n;
        at[10] = (uint8_t)m->members[i].method;
        at[24] = (uint8_t)m->members[i].packed_nbytes, at[25] = (uint8_t)(m->members[i].packed_nbytes >> 8);
        m->n += (size_t)(next - at);
    }
    m->end = m->n;
    heft__zip_put_end(m->nmembers, m->directory, m->n - m->directory, m->bytes + m->n);
    m->n += heft__zip_end_nbytes(m->nmembers, m->directory, m->n - m->directory);
}

#define F32_6 "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }\n"
#define BIG_6 "{'descr': '>f4', 'fortran_order': True, 'shape': (2, 3), }\n"

/* Two stored arrays and a deflated one. */
static void make_three(maker *m) {
    memset(m, 0, sizeof *m);
    make_array(m, "a.npy", F32_6);
    make_packed(m, "p.npy");
    make_array(m, "layers.0/b.npy", BIG_6);
    make_end(m);
}

static heft_status scan(const maker *m, const heft__scan_options *options, heft_error *err) {
    heft__listing listing;
    heft_status status = scan_bytes(m->bytes, m->n, options, NULL, &listing, err);
    heft__listing_free(&listing);
    return status;
}

static heft_archive *open_made(const maker *m, const heft_open_options *options) {
    heft_source *source;
    heft_archive *archive = NULL;
    heft_error err = {0};
    assert_int_equal(heft_source_open_memory(m->bytes, m->n, "file", NULL, NULL, &source, &err), HEFT_OK);
    heft_status status = heft_archive_open_source(source, options, &archive, &err);
    heft_source_unref(source);
    if (status) fail_msg("%s", err.message);
    return archive;
}

/* ---- what is read ---- */

static void members_are_tensors(void **state) {
    (void)state;
    static maker m;
    make_three(&m);
    heft_archive *archive = open_made(&m, NULL);
    heft_tensor t;
    heft_file file;
    assert_int_equal(heft_archive_count(archive), 3);
    assert_int_equal(heft_archive_file(archive, 0, &file, NULL), HEFT_OK);
    assert_string_equal(file.format, "npz");
    assert_int_equal(file.nbytes, m.n);
    assert_int_equal(file.header_nbytes, 0);
    heft_archive_get(archive, 0, &t, NULL);
    assert_string_equal(t.name, "a");
    assert_int_equal(t.layout, 0);
    assert_int_equal(m.bytes[t.offset], 1);
    heft_archive_get(archive, 1, &t, NULL);
    assert_string_equal(t.name, "layers.0/b");
    assert_int_equal(t.layout, HEFT_LAYOUT_FORTRAN | HEFT_LAYOUT_BIG_ENDIAN);
    heft_archive_get(archive, 2, &t, NULL); /* decoded ones come last */
    assert_string_equal(t.name, "p");
    assert_int_equal(t.layout, HEFT_LAYOUT_PACKED);
    assert_true(t.offset == HEFT_NONE);
    assert_int_equal(t.nbytes, 24);
    heft_archive_unref(archive);
}

static void values_and_borrows(void **state) {
    (void)state;
    static maker m;
    make_three(&m);
    heft_archive *archive = open_made(&m, NULL);
    heft_view view, part;
    float values[6];
    heft_buffer buffer;
    heft_error err;
    assert_int_equal(heft_view_named(archive, "p", SIZE_MAX, &view, NULL), HEFT_OK);
    assert_int_equal(heft_read(&view, values, sizeof values, NULL, NULL, &err), HEFT_OK);
    for (int i = 0; i < 6; i++) assert_true(values[i] == (float)i);
    assert_int_equal(heft_borrow(&view, 1, &buffer, &err), HEFT_UNSUPPORTED);
    assert_non_null(strstr(err.message, "compressed"));
    assert_int_equal(heft_view_index_text(&view, "1, ::2", SIZE_MAX, &part, NULL), HEFT_OK);
    assert_int_equal(heft_read(&part, values, sizeof values, NULL, NULL, &err), HEFT_OK);
    assert_true(values[0] == 3 && values[1] == 5);
    /* Big-endian, Fortran order: element [1, 0] is the second in the file. */
    assert_int_equal(heft_view_named(archive, "layers.0/b", SIZE_MAX, &view, NULL), HEFT_OK);
    assert_int_equal(view.stride[0], 1);
    assert_int_equal(view.stride[1], 2);
    uint32_t bits[6];
    assert_int_equal(heft_read(&view, bits, sizeof bits, NULL, NULL, &err), HEFT_OK);
    assert_int_equal(bits[0], 0x01020304);
    assert_int_equal(bits[3], 0x05060708);
    assert_int_equal(bits[1], 0x090a0b0c);
    if (!(heft_features() & HEFT_FEATURE_BIG_ENDIAN)) {
        assert_int_equal(heft_borrow(&view, 1, &buffer, &err), HEFT_UNSUPPORTED);
        assert_non_null(strstr(err.message, "big-endian"));
    }
    heft_archive_unref(archive);
}

/* All three in one call, by whole tensors. */
static void many_at_once(void **state) {
    (void)state;
    static maker m;
    make_three(&m);
    heft_archive *archive = open_made(&m, NULL);
    heft_buffer buffer;
    uint64_t offsets[3], ids[] = {0, 1, 2};
    assert_int_equal(heft_read_many(archive, ids, 3, NULL, &buffer, offsets, NULL, NULL), HEFT_OK);
    uint32_t big[6];
    float packed[6];
    memcpy(big, (uint8_t *)buffer.data + offsets[1], sizeof big);
    memcpy(packed, (uint8_t *)buffer.data + offsets[2], sizeof packed);
    assert_int_equal(big[3], 0x05060708);
    assert_true(packed[5] == 5);
    heft_buffer_release(&buffer);
    heft_archive_unref(archive);
}

static void loads(void **state) {
    (void)state;
    static maker m;
    make_three(&m);
    heft_archive *archive = open_made(&m, NULL);
    heft_weights *weights;
    heft_loaded loaded;
    heft_error err = {0};
    if (heft_load(archive, NULL, &weights, NULL, &err)) fail_msg("%s", err.message);
    assert_int_equal(heft_weights_get(weights, "p", SIZE_MAX, &loaded, &err), HEFT_OK);
    assert_true(((const float *)loaded.data)[4] == 4);
    assert_int_equal(heft_weights_get(weights, "layers.0/b", SIZE_MAX, &loaded, &err), HEFT_OK);
    assert_int_equal(((const uint32_t *)loaded.data)[3], 0x05060708);
    heft_weights_unref(weights);
    heft_archive_unref(archive);
}

static void other_members_are_left_out(void **state) {
    (void)state;
    static maker m;
    memset(&m, 0, sizeof m);
    make_member(&m, "read me.txt", "hello", 5, 0, 5, 0x3610a686);
    make_array(&m, "a.npy", F32_6);
    make_member(&m, "folder/", "", 0, 0, 0, 0);
    make_end(&m);
    heft__listing listing;
    heft_error err;
    assert_int_equal(scan_bytes(m.bytes, m.n, NULL, NULL, &listing, NULL), HEFT_OK);
    assert_int_equal(listing.nentries, 1);
    assert_int_equal(listing.faults.count, 2);
    heft__fault_describe(&listing.faults.items[0], &listing, &err);
    assert_non_null(strstr(err.message, "member \"read me.txt\" at offset 0 is no array"));
    heft__listing_free(&listing);
    memset(&m, 0, sizeof m); /* none at all: an archive without tensors */
    make_end(&m);
    assert_int_equal(scan(&m, NULL, &err), HEFT_OK);
    make_member(&m, "x.txt", "hello", 5, 0, 5, 0x3610a686); /* after the end record: cut it off again */
    memset(&m, 0, sizeof m);
    make_member(&m, "x.txt", "hello", 5, 0, 5, 0x3610a686);
    make_end(&m);
    assert_int_equal(scan(&m, NULL, &err), HEFT_CORRUPT);
    assert_int_equal(err.fault, HEFT_FAULT_ZIP);
}

/* ---- what is refused ---- */

static void every_prefix_fails(void **state) {
    (void)state;
    static maker m, cut;
    make_three(&m);
    cut = m;
    for (cut.n = 0; cut.n < m.n; cut.n++) {
        heft_error err;
        assert_int_equal(scan(&cut, NULL, &err), HEFT_CORRUPT);
    }
}

/* One byte (or two) of the archive of three changed. */
typedef struct damage {
    enum { AT_START, AT_ENTRY, AT_LOCAL_2, AT_END, AT_ENTRY_2 } where;
    size_t offset;
    uint8_t byte;
    heft_status status;
    heft_fault fault;
    const char *says;
} damage;

static const damage damages[] = {
    {AT_END, 4, 1, HEFT_UNSUPPORTED, HEFT_FAULT_ZIP_STRUCTURE, "disks"},
    {AT_END, 6, 1, HEFT_UNSUPPORTED, HEFT_FAULT_ZIP_STRUCTURE, "disks"},
    {AT_END, 8, 2, HEFT_UNSUPPORTED, HEFT_FAULT_ZIP_STRUCTURE, "disks"},
    {AT_END, 12, 1, HEFT_CORRUPT, HEFT_FAULT_ZIP_STRUCTURE, "does not end where"},
    {AT_END, 19, 0x7F, HEFT_CORRUPT, HEFT_FAULT_ZIP_STRUCTURE, "does not end where"},
    {AT_END, 20, 1, HEFT_CORRUPT, HEFT_FAULT_TRUNCATED, "missing"},
    {AT_ENTRY, 0, 'Q', HEFT_CORRUPT, HEFT_FAULT_ZIP_STRUCTURE, "no entry"},
    {AT_ENTRY, 8, 1, HEFT_UNSUPPORTED, HEFT_FAULT_MEMBER_METHOD, "encrypted"},
    {AT_ENTRY, 8, 32, HEFT_UNSUPPORTED, HEFT_FAULT_MEMBER_METHOD, "patch"},
    {AT_ENTRY, 10, 12, HEFT_UNSUPPORTED, HEFT_FAULT_MEMBER_METHOD, "method 12"},
    {AT_ENTRY, 10, 8, HEFT_CORRUPT, HEFT_FAULT_ZIP_STRUCTURE, "another name or method"},
    {AT_ENTRY, 16, 0x55, HEFT_CORRUPT, HEFT_FAULT_ZIP_STRUCTURE, "other sizes or another checksum"},
    {AT_ENTRY, 20, 1, HEFT_CORRUPT, HEFT_FAULT_ZIP_STRUCTURE, "its sizes are"},
    {AT_ENTRY, 23, 0x7F, HEFT_CORRUPT, HEFT_FAULT_ZIP_STRUCTURE, "reaches beyond"},
    {AT_ENTRY, 24, 1, HEFT_CORRUPT, HEFT_FAULT_ZIP_STRUCTURE, "its sizes are"},
    {AT_ENTRY, 28, 0xFF, HEFT_CORRUPT, HEFT_FAULT_ZIP_STRUCTURE, NULL},
    {AT_ENTRY, 31, 0xFF, HEFT_CORRUPT, HEFT_FAULT_ZIP_STRUCTURE, "reaches beyond it"},
    {AT_ENTRY, 34, 1, HEFT_UNSUPPORTED, HEFT_FAULT_ZIP_STRUCTURE, "disks"},
    {AT_ENTRY, 42, 1, HEFT_CORRUPT, HEFT_FAULT_ZIP_STRUCTURE, NULL},
    {AT_ENTRY, 46, '/', HEFT_CORRUPT, HEFT_FAULT_MEMBER_NAME, "absolute"},
    {AT_ENTRY, 46, '\\', HEFT_CORRUPT, HEFT_FAULT_MEMBER_NAME, "backslash"},
    {AT_ENTRY, 46, 0, HEFT_CORRUPT, HEFT_FAULT_MEMBER_NAME, "NUL"},
    {AT_ENTRY, 46, 0xFF, HEFT_CORRUPT, HEFT_FAULT_MEMBER_NAME, "UTF-8"},
    {AT_ENTRY, 47, ':', HEFT_CORRUPT, HEFT_FAULT_MEMBER_NAME, "drive"},
    {AT_ENTRY, 46, 'b', HEFT_CORRUPT, HEFT_FAULT_ZIP_STRUCTURE, "another name or method"},
    {AT_ENTRY, 46, 'p', HEFT_CORRUPT, HEFT_FAULT_ZIP_STRUCTURE, "twice"},
    {AT_ENTRY_2, 24, 0xFF, HEFT_CORRUPT, HEFT_FAULT_ZIP_STRUCTURE, "other sizes"},
    {AT_ENTRY_2, 26, 0xFF, HEFT_CORRUPT, HEFT_FAULT_ZIP_STRUCTURE, "deflate cannot make"},
    {AT_LOCAL_2, 0, 'Q', HEFT_CORRUPT, HEFT_FAULT_ZIP_STRUCTURE, "no local header"},
    {AT_LOCAL_2, 26, 6, HEFT_CORRUPT, HEFT_FAULT_ZIP_STRUCTURE, NULL},
    {AT_LOCAL_2, 29, 0x7F, HEFT_CORRUPT, HEFT_FAULT_ZIP_STRUCTURE, "reaches beyond"},
    {AT_LOCAL_2, 35, 0xFF, HEFT_CORRUPT, HEFT_FAULT_CHECKSUM, "damaged"},
    {AT_START, 3, 9, HEFT_CORRUPT, HEFT_FAULT_ZIP_STRUCTURE, "no local header"},
    {AT_START, 35, 'N', HEFT_CORRUPT, HEFT_FAULT_HEADER_SYNTAX, "member \"a.npy\": no npy array"},
    {AT_START, 46, 'X', HEFT_CORRUPT, HEFT_FAULT_HEADER_SYNTAX, "member \"a.npy\": npy header"},
};

static void damaged_fields(void **state) {
    (void)state;
    static maker m;
    for (size_t i = 0; i < sizeof damages / sizeof *damages; i++) {
        const damage *d = &damages[i];
        heft_error err = {0};
        make_three(&m);
        size_t at = d->where == AT_END       ? m.end
                    : d->where == AT_ENTRY   ? m.entries[0]
                    : d->where == AT_ENTRY_2 ? m.entries[1]
                    : d->where == AT_LOCAL_2 ? m.members[1].local
                                             : 0;
        m.bytes[at + d->offset] = d->byte;
        if (d->where == AT_START && d->offset == 3) m.bytes[4] = 9; /* keep the probe's four bytes */
        if (d->where == AT_START && d->offset == 3)
            m.bytes[3] = 4, m.members[0].local = 0, m.bytes[m.entries[0] + 42] = 1;
        heft_status status = scan(&m, NULL, &err);
        if (d->where == AT_START && d->offset == 3) {
            assert_int_not_equal(status, HEFT_OK);
            continue;
        }
        if (status != d->status || err.fault != d->fault || (d->says && !strstr(err.message, d->says)))
            fail_msg("damage %zu: %s, %s: %s", i, heft_status_name(status), heft_fault_name(err.fault), err.message);
        heft__scan_options collect = {.collect = true};
        assert_int_equal(scan(&m, &collect, &err), HEFT_OK);
    }
}

static void names_that_lead_out(void **state) {
    (void)state;
    static const char *const bad[] = {"..", "../x", "a/../b", "a/..", "/a", "\\a", "a\\b", "C:a", "z:", ""};
    static const char *const good[] = {"a", "a/b", "..a", "a..", "a/...", "1:a", "ab:c", ". ", "\xC3\xA4"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_non_null(heft__zip_name_fault(bad[i], (uint32_t)strlen(bad[i])));
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        assert_null(heft__zip_name_fault(good[i], (uint32_t)strlen(good[i])));
}

/* The last end record whose comment ends with the file counts, not one that the comment shows. */
static void comments(void **state) {
    (void)state;
    static maker m;
    make_three(&m);
    const char *comment = "PK\5\6 is how an end record starts, and this is none";
    size_t len = strlen(comment);
    memcpy(m.bytes + m.n, comment, len);
    m.bytes[m.end + 20] = (uint8_t)len;
    m.n += len;
    heft_error err = {0};
    if (scan(&m, NULL, &err)) fail_msg("%s", err.message);
    static uint8_t large[80000]; /* a comment of the greatest length needs the second, longer look */
    make_three(&m);
    memset(large, ' ', sizeof large);
    memcpy(large, m.bytes, m.n);
    large[m.end + 20] = large[m.end + 21] = 0xFF;
    heft__listing listing;
    assert_int_equal(scan_bytes(large, m.n + 65535, NULL, NULL, &listing, &err), HEFT_OK);
    heft__listing_free(&listing);
    assert_int_equal(scan_bytes(large, m.n + 65534, NULL, NULL, &listing, &err), HEFT_CORRUPT);
    heft__listing_free(&listing);
}

/* zip64: an end record of its own before the usual one, whose fields are all ones. */
static void zip64_end(void **state) {
    (void)state;
    static maker m;
    make_three(&m);
    size_t directory = m.directory, nbytes = m.end - m.directory;
    uint8_t *end = m.bytes + m.end;
    memset(end, 0, 98);
    memcpy(end, "PK\6\6", 4);
    end[4] = 44;
    end[12] = end[14] = 45;
    end[24] = end[32] = 3;
    end[40] = (uint8_t)nbytes;
    end[48] = (uint8_t)directory, end[49] = (uint8_t)(directory >> 8);
    memcpy(end + 56, "PK\6\7", 4);
    end[64] = (uint8_t)m.end, end[65] = (uint8_t)(m.end >> 8);
    end[72] = 1;
    memcpy(end + 76, "PK\5\6", 4);
    memset(end + 84, 0xFF, 12);
    m.n = m.end + 98;
    heft_error err = {0};
    if (scan(&m, NULL, &err)) fail_msg("%s", err.message);
    static const struct {
        size_t offset;
        uint8_t byte;
        heft_status status;
    } bad[] = {{0, 'Q', HEFT_CORRUPT},    {4, 45, HEFT_CORRUPT},        {16, 1, HEFT_UNSUPPORTED},
               {24, 4, HEFT_UNSUPPORTED}, {39, 0xFF, HEFT_UNSUPPORTED}, {40, 1, HEFT_CORRUPT},
               {55, 0xFF, HEFT_CORRUPT},  {56, 'Q', HEFT_CORRUPT},      {60, 1, HEFT_UNSUPPORTED},
               {64, 1, HEFT_CORRUPT},     {71, 0xFF, HEFT_CORRUPT},     {72, 2, HEFT_UNSUPPORTED}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        uint8_t before = end[bad[i].offset];
        end[bad[i].offset] = bad[i].byte;
        heft_status status = scan(&m, NULL, &err);
        if (status != bad[i].status) fail_msg("%zu: %s: %s", bad[i].offset, heft_status_name(status), err.message);
        end[bad[i].offset] = before;
    }
    memset(end + 24, 0xFF, 16); /* 2^64 - 1 members */
    assert_int_equal(scan(&m, NULL, &err), HEFT_LIMIT);
}

/* The local extra field of zip64 counts only where a 32-bit field is all ones; sizes that follow the data are zero. */
static void local_sizes(void **state) {
    (void)state;
    static maker m;
    heft_error err = {0};
    make_three(&m);
    uint8_t *local = m.bytes + m.members[2].local;
    m.bytes[m.entries[2] + 8] |= 8, local[6] |= 8;
    memset(local + 14, 0, 12);
    if (scan(&m, NULL, &err)) fail_msg("%s", err.message);
    local[18] = 1;
    assert_int_equal(scan(&m, NULL, &err), HEFT_CORRUPT);
    memset(local + 18, 0xFF, 8); /* no zip64 field is there */
    assert_int_equal(scan(&m, NULL, &err), HEFT_CORRUPT);
}

/* ---- limits, memory, failures ---- */

static void decoded_limit(void **state) {
    (void)state;
    static maker m;
    heft_error err;
    make_three(&m);
    heft__scan_options options = {.max_decoded_nbytes = PACKED_NBYTES};
    assert_int_equal(scan(&m, &options, &err), HEFT_OK);
    options.max_decoded_nbytes--;
    assert_int_equal(scan(&m, &options, &err), HEFT_LIMIT);
    assert_int_equal(err.fault, HEFT_FAULT_CALLER_LIMIT);
    heft__scan_options header = {.max_header_nbytes = m.end - m.directory - 1};
    assert_int_equal(scan(&m, &header, &err), HEFT_LIMIT);
    assert_int_equal(err.fault, HEFT_FAULT_HEADER_LIMIT);
}

/* The data of a compressed member is damaged behind its header: opening does not see it, reading does. */
static void damaged_data(void **state) {
    (void)state;
    static maker m;
    make_three(&m);
    m.bytes[m.entries[1] + 16] ^= 1; /* the checksum, in both places */
    m.bytes[m.members[1].local + 14] ^= 1;
    heft_archive *archive = open_made(&m, NULL);
    heft_view view;
    float values[6];
    heft_error err;
    assert_int_equal(heft_view_named(archive, "p", SIZE_MAX, &view, NULL), HEFT_OK);
    assert_int_equal(heft_read(&view, values, sizeof values, NULL, NULL, &err), HEFT_CORRUPT);
    assert_int_equal(err.fault, HEFT_FAULT_CHECKSUM);
    assert_string_equal(err.tensor, "p");
    heft_archive_unref(archive);
}

/* The member that is damaged, and no other, with what the directory says of it. */
static void verify(void **state) {
    (void)state;
    static maker m;
    for (int damaged = 0; damaged < 3; damaged++) {
        make_three(&m);
        if (damaged == 1) m.bytes[m.directory - 1] ^= 1;
        if (damaged == 2) { /* the checksum, in both places */
            m.bytes[m.entries[1] + 16] ^= 1;
            m.bytes[m.members[1].local + 14] ^= 1;
        }
        heft_archive *archive = open_made(&m, NULL);
        heft_verified tensors[3], reversed[3];
        heft_error err;
        const uint64_t backwards[] = {2, 1, 0};
        heft_status status = heft_archive_verify(archive, NULL, 0, NULL, tensors, NULL, &err);
        assert_int_equal(status, damaged ? HEFT_MISMATCH : HEFT_OK);
        if (damaged) assert_int_equal(err.fault, HEFT_FAULT_CHECKSUM);
        if (damaged) assert_string_equal(err.tensor, damaged == 1 ? "layers.0/b" : "p");
        assert_int_equal(heft_archive_verify(archive, backwards, 3, NULL, reversed, NULL, NULL), status);
        for (int i = 0; i < 3; i++) {
            heft_tensor tensor;
            assert_int_equal(heft_archive_get(archive, (uint64_t)i, &tensor, NULL), HEFT_OK);
            bool bad = damaged && strcmp(tensor.name, damaged == 1 ? "layers.0/b" : "p") == 0;
            assert_int_equal(tensors[i].verdict, bad ? HEFT_VERDICT_BAD : HEFT_VERDICT_GOOD);
            assert_int_equal(tensors[i].by, HEFT_VERIFIED_BY_CRC32);
            assert_int_equal(memcmp(&tensors[i], &reversed[2 - i], sizeof tensors[i]), 0);
            bool same = memcmp(tensors[i].expected, tensors[i].found, 4) == 0;
            assert_int_equal(same, !bad);
        }
        heft_archive_unref(archive);
    }
}

static heft_status whole_job(const maker *m, const heft_allocator *alloc, heft_error *err) {
    heft_source *source;
    heft_archive *archive = NULL;
    heft_open_options options = {.struct_size = sizeof options, .allocator = alloc};
    heft_buffer buffer = {0};
    uint64_t offsets[3], ids[] = {0, 1, 2};
    assert_int_equal(heft_source_open_memory(m->bytes, m->n, NULL, NULL, NULL, &source, NULL), HEFT_OK);
    heft_status status = heft_archive_open_source(source, &options, &archive, err);
    if (!status) status = heft_read_many(archive, ids, 3, NULL, &buffer, offsets, NULL, err);
    heft_buffer_release(&buffer);
    heft_archive_unref(archive);
    heft_report *report = NULL;
    if (!status) status = heft_check_source(source, &options, &report, err);
    heft_report_free(report);
    heft_source_unref(source);
    return status;
}

static void allocations_fail(void **state) {
    (void)state;
    static maker m;
    make_three(&m);
    for (int after = 0; after < 2; after++) {
        for (uint64_t k = 1;; k++) {
            test_allocator t;
            heft_error err;
            test_allocator_init(&t, k);
            t.fail_after = after;
            heft_status status = whole_job(&m, &t.alloc, &err);
            assert_int_equal(t.live_blocks, 0);
            if (status == HEFT_OK) break;
            if (status != HEFT_OUT_OF_MEMORY) fail_msg("allocation %d: %s", (int)k, err.message);
        }
    }
}

/* Many members with short names: memory stays below 8 times the directory. */
static void memory_of_many_members(void **state) {
    (void)state;
    enum { N = 20000, EACH = 200 };
    uint8_t *file = calloc(N, EACH + 60);
    size_t at = 0;
    uint64_t *locals = malloc(N * sizeof *locals);
    char name[16];
    uint8_t header[HEFT__NPY_EMIT_MAX];
    size_t n;
    heft__npy_header(HEFT_U8, 0, NULL, false, HEFT_FOREIGN_REFUSE, header, &n, NULL);
    header[n] = 7;
    uint32_t crc = heft__crc32(0, header, n + 1);
    heft__zip_member m = {.name = name, .nbytes = n + 1, .crc32 = crc};
    for (int i = 0; i < N; i++) {
        m.name_len = (uint32_t)snprintf(name, sizeof name, "%x.npy", i);
        m.local = locals[i] = at;
        uint64_t local = heft__zip_local_nbytes(&m, 0, 1);
        heft__zip_put_local(&m, local, file + at);
        memcpy(file + at + local, header, n + 1);
        at += local + n + 1;
    }
    size_t directory = at;
    for (int i = 0; i < N; i++) {
        m.name_len = (uint32_t)snprintf(name, sizeof name, "%x.npy", i);
        m.local = locals[i];
        at = (size_t)(heft__zip_put_entry(&m, file + at) - file);
    }
    heft__zip_put_end(N, directory, at - directory, file + at);
    size_t end = at + heft__zip_end_nbytes(N, directory, at - directory);
    test_allocator t;
    heft__listing listing;
    heft_error err = {0};
    test_allocator_init(&t, 0);
    if (scan_bytes(file, end, NULL, &t.alloc, &listing, &err)) fail_msg("%s", err.message);
    assert_int_equal(listing.nentries, N);
    assert_true(t.peak_nbytes < 8 * (at - directory));
    heft__listing_free(&listing);
    free(file);
    free(locals);
}

typedef struct readers {
    const heft_archive *archive;
    atomic_int wrong;
} readers;

static void read_packed(void *ctx, uint32_t worker) {
    readers *r = ctx;
    for (int i = 0; i < 200; i++) {
        heft_view view;
        float values[6];
        if (heft_view_named(r->archive, (i + (int)worker) % 2 ? "p" : "q", SIZE_MAX, &view, NULL) ||
            heft_read(&view, values, sizeof values, NULL, NULL, NULL) || values[5] != 5)
            atomic_fetch_add(&r->wrong, 1);
    }
}

static void threads_share_members(void **state) {
    (void)state;
    static maker m;
    memset(&m, 0, sizeof m);
    make_packed(&m, "p.npy");
    make_packed(&m, "q.npy");
    make_end(&m);
    for (int round = 0; round < 20; round++) {
        readers r = {.archive = open_made(&m, NULL)};
        atomic_init(&r.wrong, 0);
        heft__parallel(4, read_packed, &r);
        assert_int_equal(atomic_load(&r.wrong), 0);
        heft_archive_unref((heft_archive *)(uintptr_t)r.archive);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(members_are_tensors),
        cmocka_unit_test(values_and_borrows),
        cmocka_unit_test(many_at_once),
        cmocka_unit_test(loads),
        cmocka_unit_test(other_members_are_left_out),
        cmocka_unit_test(every_prefix_fails),
        cmocka_unit_test(damaged_fields),
        cmocka_unit_test(names_that_lead_out),
        cmocka_unit_test(comments),
        cmocka_unit_test(zip64_end),
        cmocka_unit_test(local_sizes),
        cmocka_unit_test(decoded_limit),
        cmocka_unit_test(damaged_data),
        cmocka_unit_test(verify),
        cmocka_unit_test(allocations_fail),
        cmocka_unit_test(memory_of_many_members),
        cmocka_unit_test(threads_share_members),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
