/* heft/archives.h: an opened checkpoint. One file, a sharded directory, an index, a glob, a
 * list: one object. */
#ifndef HEFT_ARCHIVES_H
#define HEFT_ARCHIVES_H

#include "heft/dtypes.h"
#include "heft/sources.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A frozen, reference-counted catalog of tensors. It never changes after it is opened, so any
 * number of threads share it without locks. Views, plans and buffers made from it hold what
 * they need of it alive only where they say so. */
typedef struct heft_archive heft_archive;

/* Faults of files, warnings and notes in one list. Lives as long as what it came from. */
typedef struct heft_report heft_report;

/* ---- opening ----------------------------------------------------------------------------------------------------- */

/* Bits of `lenient`: each admits one deviation from the format and turns it into a warning with
 * a byte offset. */
#define HEFT_LENIENT_DUPLICATE_NAME UINT32_C(1) /* last entry wins, the loser's bytes do not count */
#define HEFT_LENIENT_ARRAY_ENTRY UINT32_C(2)    /* an entry written as [dtype, shape, offsets] */
#define HEFT_LENIENT_OBJECT_DTYPE UINT32_C(4)   /* a dtype written as {"F32": null} */
#define HEFT_LENIENT_RESERVED_NAME UINT32_C(8)  /* a tensor named __metadata__ */
#define HEFT_LENIENT_TRAILING_BYTES UINT32_C(16)
#define HEFT_LENIENT_HOLE UINT32_C(32)
#define HEFT_LENIENT_NUL_PADDING UINT32_C(64)
#define HEFT_LENIENT_MISSING_SHARD UINT32_C(128)  /* a shard that is not there; its tensors are not listed */
#define HEFT_LENIENT_INDEX_MISMATCH UINT32_C(256) /* an indexed tensor that its shard lacks; it is not listed */
#define HEFT_LENIENT_ALL UINT32_C(511)

/* What an index file means. */
typedef uint32_t heft_index_mode;
#define HEFT_INDEX_EXACT UINT32_C(0)  /* only what the index names for a shard is visible (default) */
#define HEFT_INDEX_PREFER UINT32_C(1) /* the index decides between shards; tensors it does not name are visible too */
#define HEFT_INDEX_IGNORE UINT32_C(2) /* the *.safetensors files of the directory, no index */

/* How links among the files of a directory are followed. */
typedef uint32_t heft_links;
#define HEFT_LINKS_FOLLOW UINT32_C(0)  /* anywhere (default: Hub caches link snapshots to blobs) */
#define HEFT_LINKS_BENEATH UINT32_C(1) /* only inside the directory, or the repository's cache folder: else PERMISSION */

/* Options of opening. Zero in any field is its default; set struct_size =
 * sizeof(heft_open_options); NULL is all defaults; an unknown non-zero tail is
 * INVALID_ARGUMENT. Copied at the call. */
typedef struct heft_open_options {
    size_t struct_size;
    uint64_t max_header_nbytes; /* per file; 0: 100,000,000, as the reference */
    uint32_t lenient;           /* HEFT_LENIENT bits */
    heft_index_mode index;
    heft_links links;
    uint32_t workers;           /* threads that parse headers of shards; 0: min(4, usable CPUs); 1: the caller only */
    bool list_unknown_dtypes;   /* list an entry of unknown dtype as opaque bytes (HEFT_DTYPE_NONE) */
    bool show_fillers;          /* list alignment fillers as ordinary tensors */
    bool strict;                /* warnings are errors */
    const char *variant;        /* of a model directory: "fp16" finds model.fp16.safetensors; NULL: none */
    const heft_allocator *allocator; /* of the archive, copied; files and folders that are opened use malloc. NULL: malloc
                                      * and, for large blocks, huge pages of the system */
    heft_dtype void1, void2;     /* what npy elements of 1 and 2 bytes are that have lost their type (V1, V2: float8 and
                                  * bfloat16 of ml_dtypes): a dtype of that size; HEFT_DTYPE_NONE: they are refused */
    uint64_t max_decoded_nbytes; /* of all compressed members of a file together; 0: 64 GiB */
    const char *const *overlays; /* files that are laid over the checkpoint, each over all before it; see below */
    size_t noverlays;
    bool atlas_overlay;          /* extra_weights.safetensors beside an index, or in a directory, is the first overlay if it is
                                  * there, as for the serving program Atlas */
} heft_open_options;

/* Overlays. An overlay is one file of any format that heft opens. Its tensors join those of the checkpoint; one that has the
 * name of a tensor of the checkpoint, or of an overlay before it, takes its place, whatever its dtype and shape. Each such
 * replacement is in the warnings of the archive (REPLACED: the file that lost and the one that won): a note, or a warning
 * where dtype or shape differ. No index need name its tensors, and no rule of a filter withholds or defers them, but cuts
 * of tensor-parallel ranks apply. An overlay that is given and not there is NOT_FOUND; a damaged one is refused as any file
 * of the set. One that is given by the path of a file in the directory or glob that is opened is not counted among the files there
 * that are the checkpoint. Nothing is an overlay that is not asked for; a file that the index names is none. */

/* Opens a checkpoint: an index file (*.index.json), a file of any name, a model directory, or a glob that ends a path
 * ("dir/model-*.safetensors", resolved only if no file has that very name). Reads headers only: of a local
 * safetensors file at most 8 + n bytes in at most two reads; no tensor byte. On success *out holds one reference.
 * A directory is resolved by the names in it, in the order of docs/formats/sharded.md; a Hub cache folder
 * (models--org--name) is followed through refs/main to its snapshot.
 * `path` is taken as it is and must not be NULL; `out` must not be NULL and is NULL after a failure. One descriptor a
 * file stays open as long as the archive.
 * Errors: NOT_FOUND (also a directory with nothing or with several things to open, NO_CHECKPOINT or AMBIGUOUS: the
 * message lists what it holds and which sub-directories would open; missing shards: it names them), PERMISSION (also a
 * link that leaves under HEFT_LINKS_BENEATH), IO, INVALID_ARGUMENT (NOT_REGULAR, options, a malformed glob), CORRUPT,
 * UNSUPPORTED, LIMIT (a header above max_header_nbytes), MISMATCH (an interrupted save; under `strict` also what is a
 * warning otherwise), OUT_OF_MEMORY. Of several faults of a set the first by file is reported, whatever the threads do,
 * and `more` counts the rest; heft_check lists all.
 * Thread rule: any thread.
 * Rule source: the loaders of transformers, diffusers and mlx-lm, whose folders this reads. */
HEFT_API heft_status heft_archive_open(const char *path, const heft_open_options *options, heft_archive **out,
                                       heft_error *err);

/* The same for a list of files that are one set, in this order (npaths > 0, none of them NULL): files, not directories,
 * indexes or globs. One name in two files is CORRUPT (SHARED_NAME).
 * Errors and thread rule: as heft_archive_open. */
HEFT_API heft_status heft_archive_open_files(const char *const *paths, size_t npaths, const heft_open_options *options,
                                             heft_archive **out, heft_error *err);

/* The same for one source, which the archive then holds a reference to: the caller's may go at once.
 * Errors and thread rule: as heft_archive_open. */
HEFT_API heft_status heft_archive_open_source(heft_source *source, const heft_open_options *options, heft_archive **out,
                                              heft_error *err);

/* One more reference / one less; the last one frees, with all that was borrowed from the archive. NULL does nothing.
 * Thread rule: any thread. */
HEFT_API heft_archive *heft_archive_ref(heft_archive *archive);
HEFT_API void heft_archive_unref(heft_archive *archive);

/* ---- tensors ----------------------------------------------------------------------------------------------------- */

/* How a tensor lies in its file, where that is not a little-endian row-major array. Views and reads give the logical array all
 * the same: row-major, in host byte order. */
#define HEFT_LAYOUT_FORTRAN UINT32_C(1)    /* the first dim steps fastest; a view of it has such strides */
#define HEFT_LAYOUT_BIG_ENDIAN UINT32_C(2) /* most significant bytes first; cannot be borrowed on a little-endian host */
#define HEFT_LAYOUT_PACKED UINT32_C(4)     /* compressed: decoded when it is read; cannot be borrowed */

/* One tensor of an archive. Pointers live as long as the archive. */
typedef struct heft_tensor {
    const char *name;       /* UTF-8, unescaped, followed by a NUL; may hold NUL bytes: name_len counts */
    size_t name_len;
    uint64_t id;            /* 0 to count - 1, in file order: (file, begin, end, name) */
    heft_dtype dtype;       /* HEFT_DTYPE_NONE only under list_unknown_dtypes */
    uint32_t rank;
    const uint64_t *shape;  /* `rank` dims, exact up to 2^64 - 1 */
    uint64_t nelems;        /* product of the dims; 0 for HEFT_DTYPE_NONE */
    uint64_t nbytes;        /* bytes in the file, or that decoding gives */
    uint32_t file;          /* index of its file */
    uint32_t layout;        /* HEFT_LAYOUT bits */
    uint64_t offset;        /* absolute byte offset in that file; HEFT_NONE where it is compressed */
} heft_tensor;

/* Number of visible tensors.
 * Thread rule: any thread. */
HEFT_API uint64_t heft_archive_count(const heft_archive *archive);

/* Fills *out for tensor `id`.
 * Errors: INVALID_ARGUMENT (id out of range).
 * Thread rule: any thread. */
HEFT_API heft_status heft_archive_get(const heft_archive *archive, uint64_t id, heft_tensor *out, heft_error *err);

/* Finds a tensor by its exact name, in O(1). `name_len` may be SIZE_MAX for strlen(name).
 * Errors: NOT_FOUND (the message offers the nearest names, for which all are looked at: a probe with err = NULL stays
 * O(1)), INVALID_ARGUMENT (NULL).
 * Thread rule: any thread. */
HEFT_API heft_status heft_archive_find(const heft_archive *archive, const char *name, size_t name_len, uint64_t *id,
                                       heft_error *err);

/* Orders of listing. */
typedef uint32_t heft_order;
#define HEFT_ORDER_NAME UINT32_C(0)    /* ascending bytes */
#define HEFT_ORDER_NATURAL UINT32_C(1) /* digits as numbers: layers.2 before layers.10; ties by bytes */
#define HEFT_ORDER_FILE UINT32_C(2)    /* id order */

/* All ids in an order: *ids points to heft_archive_count() of them and lives as long as the
 * archive. Made at the first call for that order, without a lock: threads that race there each sort, and all get the
 * result of the first.
 * Errors: OUT_OF_MEMORY, INVALID_ARGUMENT.
 * Thread rule: any thread. */
HEFT_API heft_status heft_archive_order(const heft_archive *archive, heft_order order, const uint64_t **ids,
                                        heft_error *err);

/* ---- selecting --------------------------------------------------------------------------------------------------- */

/* Which tensors: those that match any include glob (all if there is none) and a prefix (all if
 * there is none), no exclude glob, and the predicate. Globs: `*` any run, `?` one byte, `[...]`
 * set, `\` escape; the whole name matches. */
typedef struct heft_selection {
    size_t struct_size;
    const char *const *include;
    size_t ninclude;
    const char *const *exclude;
    size_t nexclude;
    const char *const *prefix;
    size_t nprefix;
    bool (*predicate)(void *ctx, const heft_tensor *tensor); /* called from the caller's thread; NULL: none */
    void *predicate_ctx;
    heft_order order; /* of the result */
} heft_selection;

/* The ids that a selection keeps: out->data is a block of *nids uint64_t, which may outlive the archive (release it). A
 * glob or prefix that matches nothing is no error. NULL selects all, by name.
 * Errors: INVALID_ARGUMENT (a malformed glob, with its offset), OUT_OF_MEMORY.
 * Thread rule: any thread. */
HEFT_API heft_status heft_archive_select(const heft_archive *archive, const heft_selection *selection,
                                         heft_buffer *out, uint64_t *nids, heft_error *err);

/* True if `name` matches `glob` as a selection would. *err says why a malformed glob is refused
 * (INVALID_ARGUMENT). Linear time in the length of the name times the glob.
 * Thread rule: any thread. */
HEFT_API heft_status heft_glob_match(const char *glob, const char *name, size_t name_len, bool *matches,
                                     heft_error *err);

/* ---- files and metadata ------------------------------------------------------------------------------------------ */

/* One file of an archive. Pointers live as long as the archive. */
typedef struct heft_file {
    const char *path;        /* as opened: directory and name, or the label of the source */
    const char *format;      /* "safetensors", "npy", "npz", "idx" */
    uint64_t nbytes;         /* size of the file */
    uint64_t header_nbytes;  /* where the data area starts (of safetensors: 8 + n); 0 of npz, which has no such area */
    uint64_t ntensors;       /* visible ones */
    uint64_t nfillers;       /* hidden alignment fillers */
    uint64_t nwithheld;      /* hidden because the index does not name them for this file */
    uint64_t nreplaced;      /* hidden because an overlay has them */
    bool has_metadata;       /* false: absent or null; true with no pairs: empty */
    bool overlay;            /* lies over the files before it */
} heft_file;

/* Number of files (0 only for an index that names nothing, or whose shards are all missing under `lenient`); the files,
 * in the order in which they were found: shards by the bytes of their names, a list as it was given.
 * Errors: INVALID_ARGUMENT (index out of range).
 * Thread rule: any thread. */
HEFT_API uint32_t heft_archive_file_count(const heft_archive *archive);
HEFT_API heft_status heft_archive_file(const heft_archive *archive, uint32_t file, heft_file *out, heft_error *err);

/* The source of a file, borrowed from the archive; NULL if `file` is out of range.
 * Thread rule: any thread. */
HEFT_API heft_source *heft_archive_source(const heft_archive *archive, uint32_t file);

/* What was opened: the path given (of a list of several files empty, of a source its label), the index file that decided
 * (NULL: none), and how it was resolved in a few words: "index file", "one file", "numbered shards", "all files of the
 * folder", "glob", "list of files". Strings live as long as the archive.
 * Thread rule: any thread. */
HEFT_API const char *heft_archive_path(const heft_archive *archive);
HEFT_API const char *heft_archive_index_path(const heft_archive *archive);
HEFT_API const char *heft_archive_resolution(const heft_archive *archive);

/* One pair of metadata: UTF-8, unescaped, each followed by a NUL, may hold NUL bytes. */
typedef struct heft_pair {
    const char *key;
    size_t key_len;
    const char *value;
    size_t value_len;
} heft_pair;

/* As `file` argument: the merged metadata of all files, that is each key with one value in all
 * files that have it. Keys that differ are left out and counted in a warning. */
#define HEFT_MERGED UINT32_MAX

/* Number of metadata pairs of a file or of the merged metadata, 0 if there are none or `file`
 * is out of range. Keys are unique (of a repeated key the last wins) and in ascending byte
 * order.
 * Thread rule: any thread. */
HEFT_API uint64_t heft_archive_metadata_count(const heft_archive *archive, uint32_t file);

/* Pair `index` of them.
 * Errors: INVALID_ARGUMENT (out of range).
 * Thread rule: any thread. */
HEFT_API heft_status heft_archive_metadata(const heft_archive *archive, uint32_t file, uint64_t index, heft_pair *out,
                                           heft_error *err);

/* The pair of a key (`key_len` SIZE_MAX: strlen).
 * Errors: NOT_FOUND.
 * Thread rule: any thread. */
HEFT_API heft_status heft_archive_metadata_find(const heft_archive *archive, uint32_t file, const char *key,
                                                size_t key_len, heft_pair *out, heft_error *err);

/* ---- faults ------------------------------------------------------------------------------------------------------ */

typedef uint32_t heft_severity;
#define HEFT_SEVERITY_NOTE UINT32_C(0)    /* accepted in silence by opening */
#define HEFT_SEVERITY_WARNING UINT32_C(1) /* accepted by opening, or an error only in strict mode */
#define HEFT_SEVERITY_ERROR UINT32_C(2)

/* The warnings that opening left, in the order of files and rules. Borrowed from the archive.
 * Thread rule: any thread. */
HEFT_API const heft_report *heft_archive_warnings(const heft_archive *archive);

/* Checks a path against every rule of the format and of the set, without reading a tensor byte,
 * and reports *all* faults, warnings and notes in *out (free it): those of the set, then by file, then by offset.
 * `options` are those of opening (lenient admits, strict is the caller's to judge). The path is
 * what heft_archive_open takes. The call succeeds when the path could be judged, whatever the
 * verdict.
 * Errors: NOT_FOUND, PERMISSION, IO, INVALID_ARGUMENT (NOT_REGULAR), OUT_OF_MEMORY: nothing
 * there that can be judged.
 * Thread rule: any thread. */
HEFT_API heft_status heft_check(const char *path, const heft_open_options *options, heft_report **out, heft_error *err);

/* The same for one source, which is only used during the call and by the report.
 * Errors and thread rule: as heft_check. */
HEFT_API heft_status heft_check_source(heft_source *source, const heft_open_options *options, heft_report **out,
                                       heft_error *err);

/* Number of items of a report, and how many of one severity.
 * Thread rule: any thread. */
HEFT_API uint64_t heft_report_count(const heft_report *report);
HEFT_API uint64_t heft_report_count_of(const heft_report *report, heft_severity severity);

/* Item `index`: *severity and *fault are filled, its text is made now.
 * Errors: INVALID_ARGUMENT (out of range).
 * Thread rule: any thread. */
HEFT_API heft_status heft_report_get(const heft_report *report, uint64_t index, heft_severity *severity,
                                     heft_error *fault, heft_error *err);

/* What a check could still see of a damaged set. */
typedef struct heft_report_summary {
    uint32_t nfiles;            /* files looked at */
    uint32_t reserved;
    uint64_t ntensors;          /* entries whose header could be parsed, fillers included */
    uint64_t nwhole;            /* of these, tensors whose bytes are all there and claimed by nobody else */
    uint64_t header_nbytes;     /* 8 + n over all files */
    uint64_t data_nbytes;       /* bytes of the data areas as the file sizes give them */
    uint64_t covered_nbytes;    /* of these, bytes that a tensor owns */
    uint64_t hole_nbytes, overlap_nbytes;
    uint64_t nfillers;
} heft_report_summary;

/* The accounting of a report made by heft_check.
 * Thread rule: any thread. */
HEFT_API void heft_report_summarize(const heft_report *report, heft_report_summary *out);

/* Frees a report made by heft_check; NULL does nothing. Reports borrowed from an archive are
 * not freed.
 * Thread rule: when no other thread uses it. */
HEFT_API void heft_report_free(heft_report *report);

#ifdef __cplusplus
}
#endif
#endif
