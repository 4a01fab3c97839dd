/* heft/core.h: status codes, errors, allocators, buffers and the version. Every other header of
 * heft includes this one.
 *
 * For all of them, where a function does not say otherwise: a pointer must not be NULL, but `err`
 * may always be, and so may what an _unref or _free takes. On failure what would have been filled
 * is NULL or 0, and *err is complete; on success *err is untouched. */
#ifndef HEFT_CORE_H
#define HEFT_CORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(HEFT_STATIC) || !defined(__GNUC__)
#define HEFT_API
#else
#define HEFT_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define HEFT_VERSION_MAJOR 0
#define HEFT_VERSION_MINOR 1
#define HEFT_VERSION_PATCH 0
#define HEFT_VERSION "0.1.0"

/* "No value" in every uint64_t field of this API that can be absent (offsets, expected, found,
 * entry ids). */
#define HEFT_NONE UINT64_MAX

/* Most dims of a view (NumPy's limit). A tensor of higher rank opens and lists; making a view
 * of it is HEFT_LIMIT. */
#define HEFT_MAX_RANK 64

/* ---- status ------------------------------------------------------------------------------------------------------ */

/* The classes of failure that a caller can act on: constant, number, name, text. Numbers are
 * never reused. */
#define HEFT_STATUS_TABLE(X)                                                                                           \
    X(OK, 0, "ok", "success")                                                                                          \
    X(INVALID_ARGUMENT, -1, "invalid-argument", "the call or its arguments are wrong")                                 \
    X(OUT_OF_MEMORY, -2, "out-of-memory", "the allocator returned NULL")                                               \
    X(NOT_FOUND, -3, "not-found", "no such file, tensor or key")                                                       \
    X(EXISTS, -4, "exists", "the target exists already")                                                               \
    X(PERMISSION, -5, "permission", "the operating system refused access")                                             \
    X(IO, -6, "io", "the operating system reported an input or output error")                                          \
    X(CORRUPT, -7, "corrupt", "the file breaks a rule of its format")                                                  \
    X(UNSUPPORTED, -8, "unsupported", "valid, but not something this build or this call can do")                       \
    X(LIMIT, -9, "limit", "a limit of the library, the caller or the machine would be passed")                         \
    X(MISMATCH, -10, "mismatch", "two things that must agree do not")                                                  \
    X(CANCELLED, -11, "cancelled", "a callback of the caller asked to stop")                                           \
    X(NETWORK, -12, "network", "a remote end failed")                                                                  \
    X(DEVICE, -13, "device", "an accelerator or its driver failed")                                                    \
    X(INTERNAL, -14, "internal", "a fault of heft itself: please report it")

typedef int32_t heft_status;
enum {
#define HEFT_STATUS_ENUM(constant, number, name, text) HEFT_##constant = number,
    HEFT_STATUS_TABLE(HEFT_STATUS_ENUM)
#undef HEFT_STATUS_ENUM
};

/* The short name of a status ("corrupt"); "unknown" for a number that is none.
 * Returns a static string.
 * Thread rule: any thread. */
HEFT_API const char *heft_status_name(heft_status status);

/* One sentence that explains a status; "unknown status" for a number that is none.
 * Returns a static string.
 * Thread rule: any thread. */
HEFT_API const char *heft_status_text(heft_status status);

/* ---- kinds of fault ---------------------------------------------------------------------------------------------- */

/* What exactly is wrong: constant, class word as the command line prints it. The list is closed
 * and documented in docs/faults.md; a status says what to do about a failure, a kind says what
 * it is. Append only. */
#define HEFT_FAULT_TABLE(X)                                                                                            \
    X(NONE, "none")                                                                                                    \
    X(CALL, "call")                             /* arguments of a call; nothing is wrong with any file */              \
    X(MEMORY, "memory")                         /* the allocator returned NULL */                                      \
    X(CALLER_LIMIT, "caller-limit")             /* a bound that the caller or the machine sets */                      \
    X(NO_FILE, "no-file")                       /* does not exist */                                                   \
    X(ACCESS, "access")                         /* exists, may not be read */                                          \
    X(READ_ERROR, "read-error")                 /* the operating system failed a read */                               \
    X(NOT_REGULAR, "not-regular")               /* FIFO, device, socket, or a directory where a file is wanted */      \
    X(FILE_CHANGED, "file-changed")             /* size, time or inode differ from when it was opened */               \
    X(NO_CHECKPOINT, "no-checkpoint")           /* a directory without anything to open */                             \
    X(AMBIGUOUS, "ambiguous")                   /* a directory with several things to open */                          \
    X(EMPTY, "empty")                           /* 0 bytes */                                                          \
    X(TOO_SMALL, "too-small")                   /* 1 to 7 bytes */                                                     \
    X(ZEROS, "zeros")                           /* nothing but zero bytes at the start */                              \
    X(LFS_POINTER, "lfs-pointer")               /* a Git LFS pointer text */                                           \
    X(HTML_PAGE, "html-page")                   /* an HTML or XML page */                                              \
    X(JSON_ERROR, "json-error")                 /* a JSON error body of a server */                                    \
    X(ZIP, "zip")                               /* a zip archive, but no npz */                                         \
    X(PICKLE, "pickle")                         /* legacy torch file or other pickle */                                \
    X(COMPRESSED, "compressed")                 /* gzip, bzip2, xz, zstd */                                            \
    X(OTHER_FORMAT, "other-format")             /* GGUF, HDF5, tar: a known tensor container */                   \
    X(NOT_TENSORS, "not-tensors")               /* PNG, JPEG, PDF, ELF, RIFF, SAFT */                                  \
    X(TEXT, "text")                             /* some other text file */                                             \
    X(HEADER_LENGTH, "header-length")           /* the length field and the header do not fit each other */            \
    X(HEADER_LIMIT, "header-limit")             /* the header is longer than the limit */                              \
    X(TRUNCATED, "truncated")                   /* fewer bytes than the header promises */                             \
    X(TRAILING_BYTES, "trailing-bytes")         /* more bytes than the header describes */                             \
    X(UTF8, "utf8")                             /* the header is not UTF-8 */                                          \
    X(JSON_SYNTAX, "json-syntax")               /* the header is not JSON, or no object */                             \
    X(NUL_PADDING, "nul-padding")               /* header padded with NUL instead of spaces */                         \
    X(BAD_ENTRY, "bad-entry")                   /* a tensor entry with a missing, repeated or mistyped field */        \
    X(BAD_METADATA, "bad-metadata")             /* __metadata__ twice, or no object of strings */                      \
    X(UNKNOWN_DTYPE, "unknown-dtype")           /* a dtype that is none of the 22 */                                   \
    X(DUPLICATE_NAME, "duplicate-name")         /* a tensor name twice, escapes resolved */                            \
    X(ARRAY_ENTRY, "array-entry")               /* a tensor entry written as [dtype, shape, offsets] */                \
    X(OBJECT_DTYPE, "object-dtype")             /* a dtype written as {"F32": null} */                                 \
    X(RESERVED_NAME, "reserved-name")           /* a tensor named __metadata__ */                                      \
    X(HOLE, "hole")                             /* bytes between tensors that none owns */                             \
    X(OVERLAP, "overlap")                       /* a tensor begins before the one before it ends */                    \
    X(SHAPE_OVERFLOW, "shape-overflow")         /* elements or bits do not fit 64 bits */                              \
    X(SUB_BYTE, "sub-byte")                     /* a sub-byte tensor that does not fill whole bytes */                 \
    X(SIZE_MISMATCH, "size-mismatch")           /* bytes by shape and bytes by offsets differ */                       \
    X(INDEX_SYNTAX, "index-syntax")             /* an index file that is not what an index must be */                  \
    X(SHARD_NAME, "shard-name")                 /* a shard name that is not one plain file name */                     \
    X(MISSING_SHARD, "missing-shard")           /* a shard that the index names is not there */                        \
    X(SHARD_NUMBERING, "shard-numbering")       /* gaps, numbers above, several totals in -NNNNN-of-MMMMM */           \
    X(INDEX_MISMATCH, "index-mismatch")         /* the index names a tensor that its shard lacks */                    \
    X(UNINDEXED_TENSOR, "unindexed-tensor")     /* in a shard, not in the index (or in another shard there) */         \
    X(SHARED_NAME, "shared-name")               /* one name in two shards, no index to decide */                       \
    X(TOTAL_SIZE, "total-size")                 /* metadata.total_size differs from the sum */                         \
    X(ORPHAN_SHARD, "orphan-shard")             /* a shard file that the index does not name */                        \
    X(SHADOWED_FILE, "shadowed-file")           /* an index and a whole-model file side by side */                     \
    X(METADATA_DIFFERS, "metadata-differs")     /* shards disagree on a metadata key */                                \
    X(EMPTY_TENSORS, "empty-tensors")           /* many zero-element tensors: a save that was not gathered */          \
    X(SAVE_INTERRUPTED, "save-interrupted")     /* the marker of an unfinished save is there */                        \
    X(TEMP_FILE, "temp-file")                   /* a temporary file of a save that ended */                            \
    X(LEADING_SPACE, "leading-space")           /* white space before the header's object */                           \
    X(UNKNOWN_FIELD, "unknown-field")           /* a field of an entry that the format lacks */                        \
    X(DUPLICATE_KEY, "duplicate-key")           /* a metadata key twice, the last wins */                              \
    X(ODD_NAME, "odd-name")                     /* an empty or NUL-bearing name */                                     \
    X(DATA_UNALIGNED, "data-unaligned")         /* data area not at a multiple of 8 */                                 \
    X(TENSOR_UNALIGNED, "tensor-unaligned")     /* tensors not at a multiple of their element size */                  \
    X(NO_TENSORS, "no-tensors")                 /* a file without tensors */                                           \
    X(FILLERS, "fillers")                       /* filler entries, hidden from listings */                             \
    X(RANK_LIMIT, "rank-limit")                 /* more than HEFT_MAX_RANK dims, or a dim above 2^63 - 1 */            \
    X(NOT_ALIGNED, "not-aligned")               /* a borrow that the tensor's address does not allow */                \
    X(NO_INDEX, "no-index")                     /* numbered shards without an index file */                            \
    X(WRITE_ERROR, "write-error")               /* the operating system failed a write */                              \
    X(NO_SPACE, "no-space")                     /* the disk is full, or the quota used up */                           \
    X(FILE_EXISTS, "file-exists")               /* there already, and not to be overwritten */                         \
    X(HEADER_SYNTAX, "header-syntax")           /* the header of an npy array is not what it must be */                \
    X(OBJECT_ARRAY, "object-array")             /* an npy array of Python objects */                                   \
    X(ZIP_STRUCTURE, "zip-structure")           /* directory and members of a zip archive do not fit each other */     \
    X(MEMBER_NAME, "member-name")               /* a member of a zip archive whose name is not a plain relative one */ \
    X(MEMBER_METHOD, "member-method")           /* encrypted, or compressed in a way that is not known */              \
    X(MEMBER_SKIPPED, "member-skipped")         /* a member of an npz that is no array */                              \
    X(CHECKSUM, "checksum")                     /* bytes that do not have the checksum which the file gives */         \
    X(EMPTY_INDEX, "empty-index")               /* an index that names no tensor */                                    \
    X(REPLACED, "replaced")                     /* a tensor in whose place an overlay puts its own */                  \
    X(EDIT_INTERRUPTED, "edit-interrupted")     /* the journal of an unfinished edit in place is there */              \
    X(JOURNAL_IGNORED, "journal-ignored")       /* a journal that is damaged or belongs to another file */             \
    X(JOURNAL_ORPHAN, "journal-orphan")         /* a journal whose file is not there under its name */                     \
    X(STRUCTURED_ARRAY, "structured-array")     /* an npy array of records or of sub-arrays */                         \
    X(BAD_DIGESTS, "bad-digests")               /* digests in metadata or a sidecar that are none, or two of one name */

typedef uint32_t heft_fault;
enum {
#define HEFT_FAULT_ENUM(constant, word) HEFT_FAULT_##constant,
    HEFT_FAULT_TABLE(HEFT_FAULT_ENUM)
#undef HEFT_FAULT_ENUM
        HEFT_FAULT_COUNT
};

/* The class word of a fault ("hole"); "unknown" for a number that is none.
 * Returns a static string.
 * Thread rule: any thread. */
HEFT_API const char *heft_fault_name(heft_fault fault);

/* ---- errors ------------------------------------------------------------------------------------------------------ */

/* Everything known about one failure. The caller owns it and may pass NULL wherever one is
 * taken. It is written only when a call fails and is complete then: nothing has to be cleared
 * before. Numbers are HEFT_NONE when they do not apply. Texts end in NUL, are valid UTF-8, and
 * are cut at a character boundary with U+2026 when too long; names in `file` and `tensor` are
 * raw (a printer must escape them), inside `message` they are escaped. */
typedef struct heft_error {
    heft_status status;  /* never HEFT_OK after a failure */
    int32_t sys_errno;   /* errno of the failed system call, else 0 */
    heft_fault fault;    /* what is wrong */
    uint32_t more;       /* how many further faults of the same call were left out */
    uint64_t offset;     /* byte offset in `file` */
    uint64_t expected;   /* a number that was expected: bytes, an offset, a count */
    uint64_t found;      /* the number found in its place */
    char file[256];      /* path or label of the source, may be empty */
    char tensor[256];    /* name of the tensor, may be empty */
    char message[768];   /* one sentence, English, without a final full stop or newline */
    uint8_t reserved[64];
} heft_error;

/* ---- memory ------------------------------------------------------------------------------------------------------ */

/* An allocator. `alloc` returns memory aligned for any C object or NULL; `realloc` is given the
 * old size; `free` gets the size that was asked for and is never called with NULL. All three
 * may be called from several threads at once. The struct is copied wherever one is taken; `ctx`
 * must outlive every object made with it. */
typedef struct heft_allocator {
    void *ctx;
    void *(*alloc)(void *ctx, size_t nbytes);
    void *(*realloc)(void *ctx, void *ptr, size_t old_nbytes, size_t new_nbytes);
    void (*free)(void *ctx, void *ptr, size_t nbytes);
} heft_allocator;

/* A piece of memory that crosses the API, with the way to give it back (the shape of Arrow's
 * release callback). Whoever holds it calls heft_buffer_release once. Fields other than `data`
 * and `nbytes` are private. */
typedef struct heft_buffer {
    void *data;      /* NULL only when released; never NULL after success, also for 0 bytes */
    uint64_t nbytes; /* bytes at `data` */
    void (*release)(struct heft_buffer *self);
    void *owner;
    uint64_t reserved[4];
} heft_buffer;

/* Gives a buffer back and clears the struct. NULL and a released buffer do nothing.
 * Thread rule: any thread; one thread at a time for one buffer. */
HEFT_API void heft_buffer_release(heft_buffer *buffer);

/* ---- version ----------------------------------------------------------------------------------------------------- */

/* The version of the library at run time, as "0.1.0". Compare with HEFT_VERSION of the headers.
 * Returns a static string.
 * Thread rule: any thread. */
HEFT_API const char *heft_version(void);

/* What this build and this processor can do. */
#define HEFT_FEATURE_MAP UINT64_C(1)          /* files can be mapped, so tensors can be borrowed */
#define HEFT_FEATURE_HUGE_PAGES UINT64_C(2)   /* large allocations ask for huge pages */
#define HEFT_FEATURE_VECTOR_READ UINT64_C(4)  /* preadv is there */
#define HEFT_FEATURE_BIG_ENDIAN UINT64_C(16)  /* the host is big-endian: reads swap, borrows are refused */
#define HEFT_FEATURE_URING UINT64_C(32)       /* built with liburing (the kernel is asked when it is used) */
#define HEFT_FEATURE_XXHASH UINT64_C(64)      /* built with xxhash: XXH3 digests */
#define HEFT_FEATURE_DEFLATE UINT64_C(128)    /* built with libdeflate: compressed members of npz files */
#define HEFT_FEATURE_OPENSSL UINT64_C(256)    /* built with OpenSSL: SHA-256 digests */

/* The HEFT_FEATURE bits of this build on this processor.
 * Thread rule: any thread. */
HEFT_API uint64_t heft_features(void);

#ifdef __cplusplus
}
#endif
#endif
