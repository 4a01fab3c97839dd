/* heft/saves.h: writing checkpoints. A save is all or nothing: whatever happens on the way, the file that was there before
 * stays, or the new one is whole.
 * Rule source: the writer of the safetensors reference implementation (order, header, padding); docs/saving.md. */
#ifndef HEFT_SAVES_H
#define HEFT_SAVES_H

#include "heft/casts.h"
#include "heft/reads.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- what is written --------------------------------------------------------------------------------------------- */

/* One tensor to be written, from one of three places: a view (`view`), a tensor of an archive as it stands in its file
 * (`archive` and `id`), or memory (`data` and what follows). All pointers are the caller's, and so is what they point to: none
 * of it may change or go before the call, or the background save, has ended. Zero what is not used. A tensor of unknown dtype
 * (list_unknown_dtypes) of a safetensors file goes by `archive` and `id`, as it is, into another one: bytes and spelling. */
typedef struct heft_save_item {
    const char *name;             /* UTF-8 */
    size_t name_len;              /* 0 or SIZE_MAX: strlen(name) */
    const heft_view *view;        /* NULL: the next */
    const heft_archive *archive;  /* NULL: memory */
    uint64_t id;
    const void *data;             /* element 0, in host byte order; may be NULL where there are no elements */
    const int64_t *shape;         /* `rank` dims; may be NULL for rank 0 */
    const int64_t *stride_nbytes; /* of each dim, of any sign; NULL: packed row-major. Sub-byte dtypes: NULL */
    uint32_t rank;
    heft_dtype dtype;             /* of the elements at `data` */
    heft_dtype as;                /* converted on the way to this dtype (heft_cast); HEFT_DTYPE_NONE: as it is */
    uint32_t reserved[3];         /* 0 */
} heft_save_item;

/* What becomes of symbolic links at the end of the path. */
typedef uint32_t heft_symlink;
#define HEFT_SYMLINK_FOLLOW UINT32_C(0)  /* the file behind is replaced, the link stays; not into a Hub cache's blobs */
#define HEFT_SYMLINK_REPLACE UINT32_C(1) /* the link is replaced by the file */
#define HEFT_SYMLINK_REFUSE UINT32_C(2)  /* PERMISSION */

/* What becomes of a dtype that the format lacks: BF16 and floats of 8 bits in npy and npz. */
typedef uint32_t heft_foreign;
#define HEFT_FOREIGN_REFUSE UINT32_C(0) /* UNSUPPORTED */
#define HEFT_FOREIGN_VOID UINT32_C(1)   /* raw bytes, as NumPy writes types of ml_dtypes: '|V2', '|V1' */
#define HEFT_FOREIGN_UINT UINT32_C(2)   /* the same bits as U16, U8 */

/* Digests that are made on the way. The digest of a tensor is XXH3-128 over the XXH3-128 values (16 bytes, most significant
 * first) of its consecutive 4 MiB pieces; that of all data is XXH3-128 over the digests of all tensors, sorted, so that it does
 * not depend on names, order, alignment or shards. As text: 32 lower-case hexadecimal digits. */
#define HEFT_DIGEST_TENSORS UINT32_C(1) /* metadata "heft.xxh3": a JSON object, name to digest, by the bytes of the names */
#define HEFT_DIGEST_DATA UINT32_C(2)    /* metadata "heft.data_xxh3": of all data */
#define HEFT_DIGEST_SIDECAR UINT32_C(4) /* both in a file FILE.xxh3.json beside each file */

/* Options of every save. Zero is the default and the safe choice of each; struct_size = sizeof(heft_save_options); NULL is
 * all defaults. Copied at the call, but for what the pointers lead to. */
typedef struct heft_save_options {
    size_t struct_size;
    const char *format;            /* NULL: "safetensors"; "npy" (one array), "npz" (in the order given) */
    const heft_pair *metadata;     /* written by ascending bytes of the keys; NULL: none; else `nmetadata`, also 0, pairs */
    uint64_t nmetadata;
    bool overwrite;                /* an existing file is replaced; else EXISTS */
    bool no_sync;                  /* no fsync: safe against a crash of the program, not of the machine */
    bool no_direct;                /* a durable save goes through the page cache too; else past it where that is faster */
    bool verify;                   /* the file is read back from the disk and compared before it takes its name */
    bool keep_order;               /* items stay in the order given; else as the reference orders them */
    bool no_fill;                  /* under `align`: no filler entries */
    bool match_source;             /* where what is kept lies on the file system that is written to, and that lets files share
                                    * blocks (XFS, btrfs, bcachefs, OCFS2), the header is padded by up to 4,088 blanks so that
                                    * the most bytes can be shared: it is written at once, and takes no space.
                                    * The bytes are not those of the reference then. Elsewhere it changes nothing */
    bool no_share;                 /* bytes of a file are never shared with it, nor copied inside the kernel */
    bool saturate, allow_inexact;  /* of conversions, as in heft_cast_options */
    bool keep_fortran;             /* npy, npz: arrays that are packed with their first dim fastest are written so, as NumPy does;
                                    * else all are written with the last dim fastest */
    heft_symlink symlink;
    uint32_t digests;              /* HEFT_DIGEST bits; they take the place of metadata of the same keys; safetensors only */
    heft_foreign foreign;          /* npy, npz */
    uint32_t workers;              /* threads, the caller's included; 0: min(4, usable CPUs), 1 below 8 MiB */
    uint64_t align;                /* 0: as the reference; else tensors start at multiples of this, 16 to 65,536 */
    uint64_t data_start_align;     /* of the data area; 0: 8, under `align` 4,096 or `align` if that is larger */
    uint64_t reserve_header_nbytes; /* the header is padded to at least so many bytes, for later edits in place */
    uint64_t max_header_nbytes;    /* 0: 100,000,000; the reference cannot read a file with more */
    int (*progress)(void *ctx, uint64_t done_nbytes, uint64_t total_nbytes); /* as in heft_read_options */
    void *progress_ctx;
    const heft_allocator *allocator; /* NULL: malloc, and huge pages for large blocks */
} heft_save_options;

/* What a save did. Filled on success, zero after a failure. */
typedef struct heft_save_stats {
    uint64_t file_nbytes;   /* of all files */
    uint64_t header_nbytes; /* before the data of the first, its length field included */
    uint64_t data_nbytes;   /* of tensors */
    uint64_t filler_nbytes;
    uint64_t shared_nbytes; /* of the file: blocks that it shares with the file they come from */
    uint64_t kernel_nbytes; /* copied inside the kernel */
    uint64_t ntensors, nfillers;
    uint64_t nunaligned;    /* tensors that do not lie at a multiple of their element size */
    uint64_t ntied;         /* items that are the storage of another one and were written again: heft_ties_find. Not
                             * counted of writers, whose tensors come one after another, nor of snapshots */
    uint32_t nfiles;
    uint32_t workers;
} heft_save_stats;

/* ---- one file ---------------------------------------------------------------------------------------------------- */

/* Writes one file. Without options it is byte for byte what the reference writes for the same tensors, with metadata keys
 * in order. The path is written to beside itself, under a name that ends in ".tmp", and renamed when all of it is on the
 * disk, so readers see the old file or the new one and nothing else, also after a crash. A new file gets the mode that the
 * umask gives; a replaced one keeps its mode and, where permitted, owner, group and ACL, and other hard links to it keep the
 * old content. A sidecar of digests beside it is of the old file and goes before the new one takes the name. Items may be
 * views of the very file that is replaced. `nitems` may be 0. `stats` may be NULL.
 * Refused before anything is made, INVALID_ARGUMENT naming the tensor: the names "__metadata__" and "__heft_pad__...", a
 * name twice, a name, key or value that is not UTF-8, a key twice, a shape that overflows, sub-byte elements that do not
 * fill bytes.
 * Errors: these, EXISTS, PERMISSION, NOT_FOUND (no such folder), LIMIT (a header above max_header_nbytes; no space), IO,
 * MISMATCH (a source changed; `verify` found a difference; a conversion refuses an element; CHECKSUM: under `digests` a tensor
 * that comes from an archive as it is does not have the digest that its file has of it), UNSUPPORTED (a conversion or
 * format that is not there),
 * CANCELLED, OUT_OF_MEMORY, and those of reading. After each of them the old file is as it was and no temporary one is
 * left, but where the machine or the program died: what was left is named .heft-*.tmp, and goes with the next save into that
 * folder once its process is gone.
 * Thread rule: any thread; any number of threads and processes may save one path, and the last to finish wins. */
HEFT_API heft_status heft_save(const char *path, const heft_save_item *items, uint64_t nitems,
                               const heft_save_options *options, heft_save_stats *stats, heft_error *err);

/* The same bytes into memory of heft; release the buffer. Options about files do nothing.
 * Errors: as heft_save, but for those of files.
 * Thread rule: any thread. */
HEFT_API heft_status heft_save_buffer(const heft_save_item *items, uint64_t nitems, const heft_save_options *options,
                                      heft_buffer *out, heft_save_stats *stats, heft_error *err);

/* The same bytes in order to a function of the caller, for pipes and sockets: it is given pieces of at most 1 MiB, one after
 * another, on the caller's thread, and answers 0 or an errno, which ends the save (IO). Nothing is undone. Formats that
 * finish what they wrote earlier are UNSUPPORTED.
 * Errors: as heft_save_buffer, IO.
 * Thread rule: any thread. */
HEFT_API heft_status heft_save_callback(const heft_save_item *items, uint64_t nitems, const heft_save_options *options,
                                        int (*write)(void *ctx, const void *data, size_t nbytes), void *ctx,
                                        heft_save_stats *stats, heft_error *err);

/* ---- sets of files ----------------------------------------------------------------------------------------------- */

/* When an index file is written: never of a set without tensors. */
typedef uint32_t heft_set_index;
#define HEFT_SET_INDEX_AUTO UINT32_C(0)   /* of more than one file */
#define HEFT_SET_INDEX_ALWAYS UINT32_C(1)
#define HEFT_SET_INDEX_NEVER UINT32_C(2)

/* Options of a set of files, beside those of each file. Zero is the default of each; struct_size = sizeof(heft_set_options).
 * Copied at the call, but for strings. */
typedef struct heft_set_options {
    size_t struct_size;
    uint64_t ceiling_nbytes;   /* tensor bytes of one file; 0: 5 GiB. A larger tensor has a file of its own */
    const char *stem;          /* NULL: "model": model-00001-of-00003.safetensors, of one file model.safetensors */
    heft_set_index index;
    uint32_t index_indent;     /* blanks; 0: 2 */
    bool index_ascii;          /* what is not ASCII is escaped in the index */
    bool create_dir;           /* the folder is made if it is not there; else NOT_FOUND */
    bool publish;              /* a new folder appears complete, by one rename: it must be absent or empty */
    uint64_t total_parameters; /* in the index; 0: elements as stored */
} heft_set_options;

/* Writes items, in the order given, as files of at most so many bytes, and an index that names them. Files are staged under
 * temporary names and synced; then they are renamed, the index last. Without `overwrite`, anything there that belongs to a set
 * of that stem is EXISTS, before a byte is written. With it, the old set is replaced in place: a marker
 * (.heft-save-in-progress) lists what is to be done before the first file is touched, folders that hold it are refused
 * (MISMATCH, SAVE_INTERRUPTED), and heft_set_resume, or the next save there, ends what was begun. Files of the old set that
 * are not in the new one are removed. For training loops `publish` is better: no reader ever sees a folder between two sets.
 * Fillers are not counted in the totals. *stats sums up all files.
 * Errors: as heft_save for items and files; NOT_FOUND (no such folder), EXISTS (also while another process replaces the set
 * there), INVALID_ARGUMENT (a stem that is no plain name). After a failure the old set is as it was, or, when files were being
 * renamed already, the marker stays.
 * Thread rule: any thread; one save at a time in one folder, unless each has `publish` and a folder of its own. */
HEFT_API heft_status heft_save_set(const char *folder, const heft_save_item *items, uint64_t nitems,
                                   const heft_save_options *options, const heft_set_options *set_options,
                                   heft_save_stats *stats, heft_error *err);

/* One file of a set that is there, as it is to be. Zero what is not used. */
typedef struct heft_set_file {
    const char *name;           /* a plain name in the folder */
    const heft_save_item *items;
    uint64_t nitems;
    const heft_save_options *options; /* metadata, alignment, order, digests of this file; NULL: defaults */
    bool keep;                  /* it stays as it is: the items, which must be those in it, are only for the index */
    uint32_t reserved[3];       /* 0 */
} heft_set_file;

/* Replaces files of a set, and makes its index `index` (a plain name; NULL: no index is written) new from the items of all
 * `files`, the kept ones among them, in the form of heft_save_set. All or nothing, by the same marker; where only one file
 * changes, by one rename. Other files of the folder stay. Items may be tensors of the very files that are replaced. Of
 * `options` only no_sync, progress and the allocator are used, of `set_options` only what shapes the index.
 * `stats` (may be NULL) sums up the files that were written.
 * Errors: as heft_save_set, but for EXISTS of a set that is there; INVALID_ARGUMENT (a name that is no plain one, or of two
 * files, a tensor name twice).
 * Thread rule: as heft_save_set. */
HEFT_API heft_status heft_set_replace(const char *folder, const heft_set_file *files, uint64_t nfiles, const char *index,
                                      const heft_save_options *options, const heft_set_options *set_options,
                                      heft_save_stats *stats, heft_error *err);

/* Ends an interrupted replacement of a set: renames the files that the marker in `folder` lists, removes old ones and the
 * marker. Does nothing (HEFT_OK, *resumed false) where there is no marker. Of `options` (may be NULL) only the allocator is used.
 * `resumed` may be NULL.
 * Errors: CORRUPT (the marker is damaged, or a file that it lists is gone) and OUT_OF_MEMORY: nothing has been touched; EXISTS
 * (the process that wrote the marker still lives), PERMISSION, IO, INVALID_ARGUMENT (options).
 * Thread rule: any thread. */
HEFT_API heft_status heft_set_resume(const char *folder, const heft_save_options *options, bool *resumed, heft_error *err);

/* Removes temporary files (.heft-*.tmp) that saves left in `folder`: those of processes of this machine that are gone, under
 * `all` every one, which must be no save's that is going on, but those of other processes of this machine that certainly live;
 * and journals of edits in place that are of no use to anybody. What a marker lists stays. Of `options` (may be NULL) only the
 * allocator is used. *nremoved (may be NULL) counts what has gone, after a failure too.
 * Errors: NOT_FOUND, PERMISSION, IO, CORRUPT (a damaged marker), OUT_OF_MEMORY, INVALID_ARGUMENT (options).
 * Thread rule: any thread. */
HEFT_API heft_status heft_save_clean(const char *folder, bool all, const heft_save_options *options, uint64_t *nremoved,
                                     heft_error *err);

/* ---- in place ---------------------------------------------------------------------------------------------------- */

/* A tensor under another name. Zero what is not used. */
typedef struct heft_new_name {
    uint64_t id;          /* in the archive */
    const char *name;     /* UTF-8 */
    size_t name_len;      /* 0 or SIZE_MAX: strlen(name) */
    uint32_t reserved[2]; /* 0 */
} heft_new_name;

/* Options of an edit in place. Zero is the default of each; struct_size = sizeof(heft_edit_options). Copied at the call, but for
 * what the pointers lead to. */
typedef struct heft_edit_options {
    size_t struct_size;
    const heft_pair *metadata; /* all of it, as it is to be; NULL: as it is. `nmetadata` 0 with a pointer: none */
    uint64_t nmetadata;
    bool no_sync;              /* no fsync: safe against a crash of the program, not of the machine */
    bool dry_run;              /* all is checked and measured, nothing is written */
    const heft_allocator *allocator; /* NULL: malloc */
} heft_edit_options;

typedef struct heft_edit_stats {
    uint64_t header_nbytes;  /* before the data, the length field included: what is available */
    uint64_t needed_nbytes;  /* what the new header takes without padding; known also after LIMIT */
    uint64_t changed_nbytes; /* bytes of the header that differ; 0: there was nothing to do */
} heft_edit_stats;

/* Changes names and metadata of a safetensors file where it stands: no byte behind the header is touched, and no space is needed
 * but for a journal. `archive` is that file, opened by itself, and is old after it: open the file again. Digests of tensors in the
 * metadata (heft.xxh3) get the new names. Not the way to do it where there is another: heft_save of the same tensors is atomic for
 * readers too.
 * The header spans many sectors, so that writing it is not atomic: PROGRAMS THAT OPEN THE FILE MEANWHILE MAY SEE A HEADER THAT IS
 * PARTLY OLD AND PARTLY NEW. So a journal with both headers, ".heft-NAME.journal", lies beside the file before the first byte is
 * written, and goes when all are on the disk. After a crash heft opens the file with the new header from the journal and a warning
 * (EDIT_INTERRUPTED); other programs wait for heft_edit_resume or heft_edit_undo. A journal that does not belong to the file as it
 * is, or is damaged, is ignored with a warning (JOURNAL_IGNORED).
 * `names` may be NULL with nnames 0. Of an id that comes twice the last name counts. `stats` may be NULL.
 * Errors: LIMIT, HEADER_LIMIT (the new header does not fit; found: the bytes it needs, expected: those available), EXISTS (another
 * edit of it is going on), MISMATCH (one was interrupted: end it first; or the file changed since it was opened), UNSUPPORTED (no
 * safetensors file, not opened by a path, one with several hard links), PERMISSION (also of a link into a Hub cache),
 * INVALID_ARGUMENT (as heft_save for names and metadata), IO (the edit was taken back, or the message says that the journal stays),
 * OUT_OF_MEMORY.
 * Thread rule: any thread; in one process no other thread may open or edit that file meanwhile. */
HEFT_API heft_status heft_edit_in_place(const heft_archive *archive, const heft_new_name *names, uint64_t nnames,
                                        const heft_edit_options *options, heft_edit_stats *stats, heft_error *err);

/* Ends an interrupted edit in place of file `path`: writes the new header from its journal, or, undoing it, the old one, and
 * removes the journal. Does nothing (HEFT_OK, *done false) where there is no journal. Of `options` (may be NULL) only the allocator
 * is used. `done` may be NULL. May be repeated after any failure.
 * Errors: CORRUPT (the journal is damaged), MISMATCH (it does not belong to the file as it is), OUT_OF_MEMORY: nothing has been
 * touched; EXISTS (the process that writes it lives), NOT_FOUND, PERMISSION, IO, INVALID_ARGUMENT (options).
 * Thread rule: as heft_edit_in_place. */
HEFT_API heft_status heft_edit_resume(const char *path, const heft_edit_options *options, bool *done, heft_error *err);
HEFT_API heft_status heft_edit_undo(const char *path, const heft_edit_options *options, bool *done, heft_error *err);

/* ---- what would be written --------------------------------------------------------------------------------------- */

/* Where everything would lie: of one file, or of a set. Made without touching a disk. */
typedef struct heft_layout heft_layout;

typedef struct heft_layout_file {
    const char *name;        /* of a set; "" of one file. Lives as long as the layout */
    uint64_t first_item, nitems;
    uint64_t file_nbytes, header_nbytes, data_nbytes;
    uint64_t nfillers, filler_nbytes;
    bool above_ceiling;      /* one tensor that is larger than the ceiling */
} heft_layout_file;

typedef struct heft_layout_tensor {
    uint32_t file;
    heft_dtype dtype;        /* as written */
    uint64_t offset, nbytes; /* in that file */
} heft_layout_tensor;

/* Lays items out; `set_options` NULL: as one file. The items may go after the call.
 * Errors: those of heft_save and heft_save_set before anything is made.
 * Thread rule: any thread. */
HEFT_API heft_status heft_layout_make(const heft_save_item *items, uint64_t nitems, const heft_save_options *options,
                                      const heft_set_options *set_options, heft_layout **out, heft_error *err);

/* Its files; file `index` of them; where item `item` lies.
 * Errors: INVALID_ARGUMENT (out of range).
 * Thread rule: any thread. */
HEFT_API uint32_t heft_layout_file_count(const heft_layout *layout);
HEFT_API heft_status heft_layout_get_file(const heft_layout *layout, uint32_t index, heft_layout_file *out,
                                          heft_error *err);
HEFT_API heft_status heft_layout_get_tensor(const heft_layout *layout, uint64_t item, heft_layout_tensor *out,
                                            heft_error *err);

/* The text of its index file, not NUL-terminated, living as long as the layout; 0 bytes if it would have none.
 * Thread rule: any thread. */
HEFT_API const char *heft_layout_index(const heft_layout *layout, uint64_t *nbytes);

/* Frees a layout; NULL does nothing.
 * Thread rule: when no other thread uses it. */
HEFT_API void heft_layout_free(heft_layout *layout);

/* ---- one storage under several names ------------------------------------------------------------------------------ */

/* A save writes every item, also those that are one storage under several names (tied weights, as an embedding and the matrix
 * of the output). This finds them, so that one is written and the others are noted:
 *     heft_ties_find(items, n, &options, &ties, &err);
 *     options.metadata = heft_ties_metadata(ties, &options.nmetadata);
 *     kept = heft_ties_items(ties, &nkept);     and then heft_save(path, kept, nkept, &options, ...)
 * Items are tied if they are the same elements of the same memory, tensor or view: place, dtype, shape, strides and conversion
 * alike, of more than 0 bytes. Items that only overlap are not. */
typedef struct heft_ties heft_ties;

typedef struct heft_tie {
    uint64_t dropped, kept; /* numbers of items as given */
} heft_tie;

/* Finds ties. Of items that are tied the one whose name is first by bytes is kept. `options` (may be NULL) are those of the save:
 * of them the metadata and the allocator are used. Items and metadata stay the caller's, and have to stay until heft_ties_free, as
 * does what they lead to.
 * Errors: INVALID_ARGUMENT (NULL, options), LIMIT (2^31 items), OUT_OF_MEMORY. Items that a save would refuse are left for it to
 * refuse.
 * Thread rule: any thread. */
HEFT_API heft_status heft_ties_find(const heft_save_item *items, uint64_t nitems, const heft_save_options *options,
                                    heft_ties **out, heft_error *err);

/* The items that are kept, in the order given; the pairs given and "tied:<dropped name>" = kept name for each that goes; which
 * went, by their numbers. All live as long as `ties`.
 * Thread rule: any thread. */
HEFT_API const heft_save_item *heft_ties_items(const heft_ties *ties, uint64_t *nitems);
HEFT_API const heft_pair *heft_ties_metadata(const heft_ties *ties, uint64_t *nmetadata);
HEFT_API const heft_tie *heft_ties_list(const heft_ties *ties, uint64_t *nties);

/* Frees them; NULL does nothing.
 * Thread rule: when no other thread uses it. */
HEFT_API void heft_ties_free(heft_ties *ties);

/* ---- one tensor after another ------------------------------------------------------------------------------------ */

/* A save whose tensors are not all there at once. One thread at a time, but for heft_writer_write. A process that is forked
 * meanwhile cannot go on with it: there every function is INVALID_ARGUMENT, and heft_writer_free does nothing, so that the parent
 * can. */
typedef struct heft_writer heft_writer;

/* What is known when. */
typedef uint32_t heft_writer_mode;
/* Nothing is declared. Memory is copied when it is added and held until its file is full; views and tensors of archives are
 * read then. The bytes are those of heft_save and heft_save_set. Memory: one file, and the tensor in flight. */
#define HEFT_WRITER_COLLECT UINT32_C(0)
/* Names, dtypes and shapes of all are given first (`data` is not looked at); then bytes go straight to their places, in any
 * order. The same bytes again. Memory: what is in flight. */
#define HEFT_WRITER_DECLARED UINT32_C(1)
/* Nothing is declared and nothing is held: tensors are written as they are added, and lie in that order. Only those are
 * aligned that happen to be (`nunaligned`). The header goes into a place kept free before them (reserve_header_nbytes; 0:
 * 64 KiB); if it does not fit, the file is moved once. */
#define HEFT_WRITER_STREAM UINT32_C(2)

/* Begins a save to the file `path`, or, with `set_options`, to a set in the folder `path`. `items` and `nitems` are of
 * HEFT_WRITER_DECLARED and 0 else. Options are copied; metadata and strings must stay until the end. `align`, `verify`
 * and `digests` of the options need HEFT_WRITER_COLLECT, `align` is also fine with HEFT_WRITER_DECLARED.
 * Errors: as heft_save and heft_save_set before a byte is written; INVALID_ARGUMENT (no such mode, options that it cannot do).
 * Thread rule: any thread. */
HEFT_API heft_status heft_writer_open(const char *path, heft_writer_mode mode, const heft_save_item *items, uint64_t nitems,
                                      const heft_save_options *options, const heft_set_options *set_options,
                                      heft_writer **out, heft_error *err);

/* Adds a tensor (HEFT_WRITER_COLLECT, _STREAM). Memory may go after the call; views and archives must stay until the end. When
 * a full file cannot be written, the tensors in it are kept and this one has not been added: the call may be repeated.
 * Errors: as heft_save; INVALID_ARGUMENT (a name twice, declared mode, after the end).
 * Thread rule: one thread per writer. */
HEFT_API heft_status heft_writer_add(heft_writer *writer, const heft_save_item *item, heft_error *err);

/* Writes bytes [offset, offset + nbytes) of declared item `item`, as they are in the file (packed, little-endian).
 * Errors: INVALID_ARGUMENT (outside of the tensor, or bytes that have been given already: nothing is written), IO.
 * Thread rule: any number of threads at once. */
HEFT_API heft_status heft_writer_write(heft_writer *writer, uint64_t item, uint64_t offset, const void *data,
                                       uint64_t nbytes, heft_error *err);

/* Ends the save: all of it takes its name now. *stats as in heft_save. After a failure the writer can only be freed, but
 * where declared bytes are missing: they may be written, and the call repeated.
 * Errors: as heft_save; INVALID_ARGUMENT (bytes of declared tensors are missing: the message lists them; a second call).
 * Thread rule: one thread per writer. */
HEFT_API heft_status heft_writer_finish(heft_writer *writer, heft_save_stats *stats, heft_error *err);

/* Frees a writer; without heft_writer_finish nothing is left of it. NULL does nothing.
 * Thread rule: one thread per writer. */
HEFT_API void heft_writer_free(heft_writer *writer);

/* ---- in the background ------------------------------------------------------------------------------------------- */

/* Saves on a thread of its own, one after another, while the program goes on. In a process that is forked meanwhile that thread is
 * not: there heft_saver_start and _wait are INVALID_ARGUMENT, heft_saver_poll is false, and heft_saver_free does nothing. */
typedef struct heft_saver heft_saver;

/* Options of a saver. Zero is the default of each; struct_size = sizeof(heft_saver_options). Copied. */
typedef struct heft_saver_options {
    size_t struct_size;
    bool snapshot; /* memory is copied first, before heft_saver_start returns; else it must stay as it is until the end */
    /* Called on the thread of the saver when a save has ended. It gives failures that nobody waits for a place to go to. May
     * be NULL. It must not call the saver. */
    void (*completed)(void *ctx, heft_status status, const heft_error *error);
    void *completed_ctx;
    const heft_allocator *allocator; /* NULL: malloc, and huge pages for large blocks */
} heft_saver_options;

/* A saver, with nothing to do. The memory of snapshots is kept from save to save.
 * Errors: INVALID_ARGUMENT, OUT_OF_MEMORY.
 * Thread rule: any thread. */
HEFT_API heft_status heft_saver_new(const heft_saver_options *options, heft_saver **out, heft_error *err);

/* Begins a save to the file `path`, or, with `set_options`, to a set in the folder `path`. Names, shapes, metadata and options are
 * copied, views and archives are held; memory is copied under `snapshot` and borrowed else. `progress` of the options is called
 * on threads of the saver.
 * Errors: INVALID_ARGUMENT (a save is going on, or has ended and was not waited for), OUT_OF_MEMORY; those of the save itself
 * come from heft_saver_wait.
 * Thread rule: one thread per saver. */
HEFT_API heft_status heft_saver_start(heft_saver *saver, const char *path, const heft_save_item *items, uint64_t nitems,
                                      const heft_save_options *options, const heft_set_options *set_options,
                                      heft_error *err);

/* True while a save is going on. *done_nbytes of *total_nbytes (either may be NULL) have been written by then.
 * Thread rule: any thread. */
HEFT_API bool heft_saver_poll(heft_saver *saver, uint64_t *done_nbytes, uint64_t *total_nbytes);

/* Asks the save that is going on to stop: it ends as CANCELLED, and what was there before stays, or it has ended before.
 * Thread rule: any thread. */
HEFT_API void heft_saver_cancel(heft_saver *saver);

/* Waits for the save and gives its result. Without one it is HEFT_OK and *stats is zero.
 * Errors: as heft_save and heft_save_set.
 * Thread rule: one thread per saver. */
HEFT_API heft_status heft_saver_wait(heft_saver *saver, heft_save_stats *stats, heft_error *err);

/* Waits for a save that is going on and frees the saver. NULL does nothing.
 * Thread rule: one thread per saver. */
HEFT_API void heft_saver_free(heft_saver *saver);

/* ---- folders of checkpoints -------------------------------------------------------------------------------------- */

/* Checkpoints of one folder that are folders or files whose names hold a number ("checkpoint-500", "step_20.safetensors"),
 * newest first: by that number, the last one in the name. */

/* How a checkpoint is verified. */
typedef uint32_t heft_verify;
#define HEFT_VERIFY_HEADERS UINT32_C(0) /* it opens without an error of heft_check: all files there, whole by their size */
#define HEFT_VERIFY_NONE UINT32_C(1)    /* it is there */
#define HEFT_VERIFY_DIGESTS UINT32_C(2) /* as HEADERS, and all its bytes are those of its digests, which each tensor must have */

/* The path of the newest checkpoint in `folder` that verifies, whose name matches `glob` (NULL: any). `options` (may be NULL) are
 * those of opening the checkpoints; their allocator is that of the call. *path is a block with the path and a NUL (release it);
 * *nskipped (may be NULL) counts newer ones that do not verify. Where there is not the memory to verify one, nothing is said of it
 * or of older ones.
 * Errors: NOT_FOUND (no checkpoint there that verifies: NO_CHECKPOINT), INVALID_ARGUMENT (glob, options), PERMISSION, IO,
 * OUT_OF_MEMORY.
 * Thread rule: any thread. */
HEFT_API heft_status heft_checkpoint_latest(const char *folder, const char *glob, heft_verify verify,
                                            const heft_open_options *options, heft_buffer *path, uint64_t *nskipped,
                                            heft_error *err);

/* Removes the checkpoints in `folder` whose names match `glob` (NULL: any) that are older than the newest `keep` (1 or more)
 * which verify; if no more than those verify, nothing. A checkpoint that is a folder goes with the files in it, out of sight
 * first, one that is a file with its sidecar of digests. `options` as above. *nremoved (may be NULL) counts what has gone, after a
 * failure too.
 * Errors: as heft_checkpoint_latest; UNSUPPORTED (a checkpoint with folders in it, which stays, as does what is newer).
 * Thread rule: any thread; not while another one saves into a checkpoint that is to go. */
HEFT_API heft_status heft_checkpoint_keep(const char *folder, const char *glob, uint64_t keep, heft_verify verify,
                                          const heft_open_options *options, uint64_t *nremoved, heft_error *err);

/* ---- aligned copies for opening ---------------------------------------------------------------------------------- */

/* Where an archive that heft_open_aligned gives comes from. */
typedef uint32_t heft_aligned;
#define HEFT_ALIGNED_SOURCE UINT32_C(0)   /* the source: it is aligned as it is, or is a set of several files */
#define HEFT_ALIGNED_CACHED UINT32_C(1)   /* a copy that was there */
#define HEFT_ALIGNED_BUILT UINT32_C(2)    /* a copy that was made now */
#define HEFT_ALIGNED_UNWRITTEN UINT32_C(3) /* the source, because the copy could not be written: a warning says why */

/* Opens a file so that each tensor can be borrowed at a multiple of `min_alignment` (0: 256; else 16 to 65,536): the source if it
 * is aligned so, else a copy of it in folder `cache_dir`, which is made if it is not there, not whole, or not of the source as it
 * is now (its size, time of change and header). The copy is written as heft_save writes; several processes may make it at once.
 * *how (may be NULL) says what was opened. Metadata keys that the copy has of its own are not shown.
 * Errors: as heft_archive_open for the source; UNSUPPORTED (a build without xxhash), INVALID_ARGUMENT.
 * Thread rule: any thread. */
HEFT_API heft_status heft_open_aligned(const char *path, const char *cache_dir, uint64_t min_alignment,
                                       const heft_open_options *options, heft_archive **out, heft_aligned *how,
                                       heft_error *err);

/* ---- digests of what is there ------------------------------------------------------------------------------------ */

/* Digests of whole tensors as HEFT_DIGEST_TENSORS makes them: ids[0..nids) in any order (NULL: all, nids ignored), 16 bytes each
 * to digests[i]. `whole` (may be NULL) takes that of all of them as HEFT_DIGEST_DATA makes it. Reads each byte once, by several
 * threads, in bounded memory.
 * Errors: UNSUPPORTED (a build without xxhash), INVALID_ARGUMENT (an id), and as heft_read.
 * Thread rule: any thread. */
HEFT_API heft_status heft_archive_digests(const heft_archive *archive, const uint64_t *ids, uint64_t nids,
                                          const heft_read_options *options, uint8_t (*digests)[16], uint8_t *whole,
                                          heft_error *err);

/* Writes the sidecar FILE.xxh3.json of each file of the archive: its size, the digests of its tensors and that of all its data
 * (left out where the index withholds tensors of it). The archive must have been opened by a path that leads to the same files
 * still. All tensors are read before the first sidecar is written, and each appears whole or not at all. Of the save options
 * count overwrite, no_sync and symlink.
 * Errors: INVALID_ARGUMENT (not opened by path, or other files are there now), EXISTS, PERMISSION, LIMIT (no space), IO, and as
 * heft_archive_digests. After a failure some sidecars may have been written, and are right.
 * Thread rule: any thread. */
HEFT_API heft_status heft_archive_write_sidecars(const heft_archive *archive, const heft_read_options *options,
                                                 const heft_save_options *save_options, heft_error *err);

/* What became of a tensor, or of a file, that was verified. */
typedef uint32_t heft_verdict;
#define HEFT_VERDICT_ABSENT UINT32_C(0) /* nothing is known to compare with */
#define HEFT_VERDICT_GOOD UINT32_C(1)
#define HEFT_VERDICT_BAD UINT32_C(2)    /* its bytes are others */

/* What it was compared with. */
typedef uint32_t heft_verified_by;
#define HEFT_VERIFIED_BY_NOTHING UINT32_C(0)
#define HEFT_VERIFIED_BY_METADATA UINT32_C(1) /* "heft.xxh3", of a file "heft.data_xxh3" */
#define HEFT_VERIFIED_BY_SIDECAR UINT32_C(2)  /* FILE.xxh3.json */
#define HEFT_VERIFIED_BY_CRC32 UINT32_C(3)    /* of its member of an npz file, which holds the array's own header too */
#define HEFT_VERIFIED_BY_DATA UINT32_C(4)     /* a tensor by the digest of all data of its file, as it has none of its own */

/* One tensor. Digests are XXH3-128, or CRC-32 in the first 4 bytes, most significant first; of BY_DATA they are the file's. */
typedef struct heft_verified {
    heft_verdict verdict;
    heft_verified_by by;
    bool damaged;        /* its compressed data cannot be decoded: there is nothing in `found` */
    uint8_t reserved[7]; /* 0 */
    uint8_t expected[16], found[16];
} heft_verified;

/* One file, by the digest of all its data, which needs all its tensors: it is ABSENT where not all are asked for, or one has
 * been found bad before. It alone shows that a tensor is missing, or one too many. */
typedef struct heft_verified_file {
    heft_verdict data;
    heft_verified_by by;       /* METADATA or SIDECAR */
    uint8_t expected[16], found[16];
    uint64_t sidecar_nbytes;   /* of the file, as its sidecar says; HEFT_NONE: there is none, or it does not say */
    bool resized;              /* that is not its size */
    bool bad_member;           /* of an npz, all of whose tensors are asked for: something in it that is no array does not have
                                * its CRC-32 */
    uint8_t reserved[2];       /* 0 */
    uint32_t nmissing;         /* names that have a digest in its metadata or in its sidecar, and no tensor: one was removed, or a
                                * name was changed. 0 of a file of which an index or an overlay hides tensors */
    char missing[128];         /* the first of them, with escapes, cut off to fit; "": none */
} heft_verified_file;

/* Compares tensors ids[0..nids) (NULL: all) with what is known of them: first the metadata of their file, then the sidecar beside
 * it (of archives that were opened by path), in an npz file the CRC-32 of their members, and of what has none of these the digest
 * of all data of their file. tensors[i] (may be NULL) is of ids[i]; files (may be NULL) takes one entry a file of the archive.
 * That a digest names a tensor that is not there (`nmissing`) decides nothing: the digest of all data does, where it is known.
 * Reads in parallel and in bounded memory, but that a compressed member is decoded whole in each thread. On MISMATCH all have
 * been looked at, and the error names the first bad one, what was expected and what was found; `more` counts the others.
 * Errors: MISMATCH, NOT_FOUND (nothing is known of any of them: that is never success), CORRUPT (BAD_DIGESTS: the metadata, or a
 * sidecar, is no such text, or has two digests of one name), UNSUPPORTED (BAD_DIGESTS: of an algorithm that is not known; else
 * digests are known and the build lacks xxhash), and as heft_archive_digests.
 * Thread rule: any thread. */
HEFT_API heft_status heft_archive_verify(const heft_archive *archive, const uint64_t *ids, uint64_t nids,
                                         const heft_read_options *options, heft_verified *tensors,
                                         heft_verified_file *files, heft_error *err);

/* SHA-256 of a whole source, as 64 lower-case hexadecimal digits and a NUL in `text` (65 bytes): what `sha256sum` prints, and
 * the etag of a Hub's large files. Read in order, one thread ahead of the hash.
 * Errors: UNSUPPORTED (a build without OpenSSL), and as heft_source_read; CANCELLED.
 * Thread rule: any thread. */
HEFT_API heft_status heft_source_sha256(heft_source *source, const heft_read_options *options, char *text,
                                        heft_error *err);

#ifdef __cplusplus
}
#endif
#endif
