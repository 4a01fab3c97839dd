/* zip: the members of a zip archive, by its central directory, and the bytes of compressed ones. Rule source: the .ZIP
 * file format specification (APPNOTE.TXT 6.3.10). */
#ifndef HEFT_ZIP_ZIP_H
#define HEFT_ZIP_ZIP_H

#include "base/error.h"
#include "source/source.h"

#define HEFT__ZIP_MEMBERS_MAX   UINT64_C(1000000)
#define HEFT__ZIP_DIRECTORY_MAX (UINT64_C(1) << 30)
#define HEFT__ZIP_DECODED_MAX   (UINT64_C(64) << 30)

#define HEFT__ZIP_STORED  UINT16_C(0)
#define HEFT__ZIP_DEFLATE UINT16_C(8)

typedef struct heft__zip_member {
    char *name;             /* into the directory's text, UTF-8, no NUL after it */
    uint64_t packed_nbytes; /* in the file */
    uint64_t nbytes;        /* decoded */
    uint64_t local;         /* offset of its local header */
    uint64_t data;          /* of its bytes; set by heft__zip_locate */
    uint32_t crc32;
    uint32_t name_len;
    uint16_t method, flags;
} heft__zip_member;

typedef struct heft__zip {
    heft_allocator alloc;
    heft_source *source; /* borrowed */
    char *directory;     /* as it stands in the file; HEFT__ZIP_SLACK bytes of room after it */
    uint64_t directory_nbytes;
    uint64_t directory_offset;
    heft__zip_member *members; /* in the order of their places in the file */
    uint64_t nmembers;
    uint8_t *block; /* what was read last */
    uint64_t block_offset, block_nbytes, block_capacity;
} heft__zip;

/* As heft__listing wants it after its header, so that the directory can become one. */
#define HEFT__ZIP_SLACK 65

/* Reads the directory and checks it: its end record, counts, names, sizes, places. Nothing overlaps and all lies before
 * the directory. CORRUPT (ZIP_STRUCTURE, MEMBER_NAME, TRUNCATED), UNSUPPORTED (several disks), LIMIT; offsets are those
 * of the file and no error names it. After a failure there is nothing to free. */
heft_status heft__zip_open(heft_source *source, uint64_t max_directory_nbytes, const heft_allocator *alloc,
                           heft__zip *out, heft_error *err);
void heft__zip_close(heft__zip *zip); /* all but a directory that was taken over (set to NULL) */

/* UNSUPPORTED, MEMBER_METHOD for a member that is encrypted, patched, or neither stored nor deflated; CORRUPT for sizes
 * that its method cannot have. */
heft_status heft__zip_check_method(const heft__zip_member *member, heft_error *err);

/* Reads the local header of a member, which must agree with the directory, and finds its data. Cheap in file order. */
heft_status heft__zip_locate(heft__zip *zip, heft__zip_member *member, heft_error *err);

/* Bytes [offset, offset + nbytes) of the file, which lie inside of it: valid until the next call. HEFT__ZIP_BLOCK bytes
 * are read at least. */
#define HEFT__ZIP_BLOCK 4096
heft_status heft__zip_peek(heft__zip *zip, uint64_t offset, uint64_t nbytes, const uint8_t **out, heft_error *err);

/* Decodes the first `nbytes` bytes of a deflated member that has been located, at most its size; no checksum is looked
 * at. */
heft_status heft__zip_decode_start(heft__zip *zip, const heft__zip_member *member, uint8_t *out, uint64_t nbytes,
                                   heft_error *err);

/* A failure about a member, whose name comes first. */
heft_status heft__zip_fail(heft_error *err, heft_status status, heft_fault fault, const heft__zip_member *member,
                           const char *format, ...) HEFT__PRINTF(5, 6);

/* ---- decoded bytes as a source (unpack.c) ---- */

/* A range that decoding gives, at `offset` of the source. */
typedef struct heft__packed {
    uint64_t offset, nbytes;      /* of what is given out, in the source */
    uint64_t skip;                /* decoded bytes before it: offset - skip is where the member would start */
    uint64_t data, packed_nbytes; /* in the file */
    uint64_t decoded_nbytes;      /* of the whole member */
    uint32_t crc32;
} heft__packed;

/* A source of file bytes up to its size, and behind them of the decoded ranges packed[0..n), by rising offset, copied.
 * A member is decoded whole when something of it is read, its checksum verified, and kept for a while. It cannot be
 * mapped and has no descriptor. Holds `file`. */
heft_status heft__unpack_source(heft_source *file, const heft__packed *packed, uint64_t n, const heft_allocator *alloc,
                                heft_source **out, heft_error *err);

/* The file behind such a source; of any other source itself. */
heft_source *heft__unpack_file(heft_source *source);

/* ---- checksums of members (zip_verify.c) ---- */

typedef struct heft__zip_check {
    uint64_t member; /* number; it has been located */
    uint32_t found;  /* the checksum of its decoded bytes */
    bool damaged;    /* its compressed data cannot be decoded: there is nothing in `found` */
} heft__zip_check;

/* Decodes members and makes the checksums of what comes out, by several threads (`workers` 0: as many as are usual), stored ones
 * in pieces. A damaged member is no failure. IO, OUT_OF_MEMORY, CANCELLED. */
heft_status heft__zip_verify(heft__zip *zip, heft__zip_check *checks, uint64_t nchecks, uint32_t workers,
                             int (*progress)(void *ctx, uint64_t done_nbytes, uint64_t total_nbytes), void *progress_ctx,
                             heft_error *err);

/* ---- writing: stored members (zip_write.c). Of a member name, name_len, nbytes, local and crc32 count. ---- */

/* Bytes of the local header of a member at `local`, padded so that what comes `before` bytes after it is at a multiple of
 * `align`, a power of two up to 32,768. */
uint64_t heft__zip_local_nbytes(const heft__zip_member *member, uint64_t before, uint64_t align);
void heft__zip_put_local(const heft__zip_member *member, uint64_t nbytes, uint8_t *out);
uint64_t heft__zip_entry_nbytes(const heft__zip_member *member); /* of its entry in the directory */
uint8_t *heft__zip_put_entry(const heft__zip_member *member, uint8_t *at); /* where the next one goes */
/* The end record of a directory of `nbytes` bytes at `offset`. */
uint64_t heft__zip_end_nbytes(uint64_t nmembers, uint64_t offset, uint64_t nbytes);
void heft__zip_put_end(uint64_t nmembers, uint64_t offset, uint64_t nbytes, uint8_t *at);

/* The checksum of a member that starts with bytes in memory and goes on with `nbytes` more, whose own one is `crc32`. */
uint32_t heft__zip_crc32(const void *start, uint64_t start_nbytes, uint32_t crc32, uint64_t nbytes);

/* NULL if a member may have this name, else why not, as the rest of a sentence about it. */
const char *heft__zip_name_fault(const char *name, uint32_t len);

/* ---- inflate ---- */

/* Decodes raw deflate data that must give exactly out_nbytes bytes and end with in[]. False: it does not. */
bool heft__inflate(const uint8_t *in, size_t in_nbytes, uint8_t *out, size_t out_nbytes);
/* The same without a library. With `start` it ends when out[] is full, wherever that is in the data. */
bool heft__inflate_portable(const uint8_t *in, size_t in_nbytes, uint8_t *out, size_t out_nbytes, bool start);

#endif
