/* ops: writing: a layout's bytes, wherever they come from, to a file, to memory or to a function. */
#ifndef HEFT_OPS_SAVE_H
#define HEFT_OPS_SAVE_H

#include "base/os_target.h"
#include "ops/run.h"
#include "write/write.h"

/* ---- parts: where the bytes of a range of the file come from (save_parts.c) ---- */

typedef enum heft__part_kind {
    HEFT__PART_ZERO,    /* a filler */
    HEFT__PART_MEMORY,  /* packed, in host byte order */
    HEFT__PART_STRIDED, /* memory that is gathered on the way */
    HEFT__PART_RANGE,   /* one range of a source */
    HEFT__PART_VIEW     /* a view that a plan gathers */
} heft__part_kind;

typedef struct heft__part {
    uint64_t offset, nbytes;    /* in the file */
    const heft_save_item *item; /* NULL: none */
    const uint8_t *data;        /* of MEMORY: its first byte */
    heft_source *source;        /* of RANGE */
    uint64_t source_offset;
    heft__part_kind kind;
    uint8_t from, to;           /* dtypes: where it comes from, and as written */
    uint8_t cast_flags;         /* HEFT__CAST_SATURATE, _INEXACT */
    uint64_t base;              /* of a piece of a tensor: the bytes of the tensor before it */
    uint8_t (*digest)[16];      /* takes the digests of the tensor's 4 MiB chunks; NULL: nobody wants them */
    bool packed;                /* of RANGE: decoded on the way, so it is no range of a file */
    bool done;                  /* written already */
    _Atomic uint32_t *crc32;    /* takes the CRC-32 of all that is written up to file offset `end`; NULL: nobody wants it */
    uint64_t end;
} heft__part;

/* True if the bytes of a MEMORY part lie there as they are in the file. */
static inline bool heft__part_is_plain(const heft__part *part) {
    return part->from == part->to && (!HEFT__HOST_IS_BIG_ENDIAN || heft__dtypes[part->to].component_bits <= 8);
}

/* Parts of a layout in file order, those without bytes left out, the format's own pieces among them if they are known before
 * the tensors are written: *out is a block of heft__parts_most(layout), of which *nparts are used. */
uint64_t heft__parts_most(const heft__layout *layout);
heft_status heft__parts_make(const heft__layout *layout, const heft_save_item *items, const heft_save_options *options,
                             _Atomic uint32_t *crcs, heft__part **out, uint64_t *nparts, heft_error *err);

/* The part of one item that is written as `dtype`. */
void heft__part_make(heft__part *part, const heft_save_item *item, heft_dtype dtype, uint64_t offset, uint64_t nbytes,
                     const heft_save_options *options);
/* Memory of an item, packed, in host byte order. True: it lay with its first dim fastest, and lies so still (keep_fortran). */
bool heft__item_pack(const heft_save_item *item, uint64_t nelems, uint64_t nbytes, bool keep_fortran, uint8_t *dst);

/* Bytes [from, from + nbytes) of a part that is no VIEW to `dst`. */
heft_status heft__part_fill(const heft__part *part, uint64_t from, uint64_t nbytes, uint8_t *dst, heft_error *err);

/* Boxes that make up elements [at, end) of a row-major array, one after another: the index of the first element of a box, and
 * its shape. At most 2 x rank of them. (save_boxes.c) */
typedef struct heft__boxes {
    const uint64_t *dims; /* of the array, none 0 */
    uint32_t rank;
    uint64_t at, end;
    uint64_t first[HEFT_MAX_RANK], shape[HEFT_MAX_RANK];
    uint64_t nelems; /* of this box */
} heft__boxes;
bool heft__boxes_next(heft__boxes *boxes); /* false: no more */

/* ---- running (save_run.c, save_view.c) ---- */

/* Where bytes go: one of target, memory, write and discard. */
typedef struct heft__sink {
    heft__target *target; /* with a direct_fd what is whole blocks goes there */
    bool compare; /* the target's bytes are compared instead: MISMATCH */
    uint8_t *memory;
    int (*write)(void *ctx, const void *data, size_t nbytes); /* 0 or an errno; in order */
    void *write_ctx;
    bool discard; /* they are only looked at */
} heft__sink;

typedef struct heft__save_run {
    heft_allocator alloc;
    heft__sink sink;
    uint32_t workers;     /* 0: as many as are usual */
    int (*progress)(void *ctx, uint64_t done_nbytes, uint64_t total_nbytes);
    void *progress_ctx;
    uint64_t total_nbytes;
    _Atomic uint64_t done_nbytes;
    double reported;      /* when */
    bool no_share;
    uint64_t shared_nbytes, kernel_nbytes;
    uint32_t most_workers; /* that ran */
} heft__save_run;

/* All parts. Sources are verified first. */
heft_status heft__save_run_parts(heft__save_run *run, heft__part *parts, uint64_t nparts, heft_error *err);
/* Parts that are no VIEW, in blocks, by several threads. */
heft_status heft__save_run_blocks(heft__save_run *run, const heft__part *parts, uint64_t nparts, heft_error *err);
/* Parts that are all VIEW, window by window. (save_view.c) */
heft_status heft__save_run_views(heft__save_run *run, const heft__part *parts, uint64_t nparts, heft_error *err);
/* Marks as done what the file system can share or copy by itself: stretches of one file that stay together. (save_share.c) */
heft_status heft__save_share(heft__save_run *run, heft__part *parts, uint64_t nparts, heft_error *err);
/* Whether something that items keep is on the file system of `path` (NULL: no file), and that can let files share blocks. */
bool heft__save_can_share(const heft_save_item *items, uint64_t nitems, const char *path);
/* How many blanks more in the header make the most bytes of parts lie so that heft__save_share can share them. */
uint64_t heft__save_shift(const heft__part *parts, uint64_t nparts);
/* Bytes of parts that lie so that heft__save_share can share them. */
uint64_t heft__save_shareable(const heft__part *parts, uint64_t nparts);
/* nbytes at an offset of the file to the sink. */
heft_status heft__sink_put(const heft__sink *sink, uint64_t offset, const void *data, uint64_t nbytes, heft_error *err);

/* ---- whole saves (save_file.c) ---- */

typedef struct heft__save_job {
    heft_save_options options; /* complete */
    heft_allocator alloc;
    heft__layout layout;
    const heft_save_item *items; /* that the layout's entries number; the caller's, or the layout's */
    heft__part *parts;
    _Atomic uint32_t *crcs; /* of each entry, where the format wants them; else NULL */
    uint64_t nparts, parts_most, ntied;
    bool shares; /* blocks of what is kept can be shared */
    heft_save_stats stats;
} heft__save_job;

/* `path`: what is written to, or the folder that it will be in; NULL: no file. */
heft_status heft__save_job_make(heft__save_job *job, const heft_save_item *items, uint64_t nitems,
                                const heft_save_options *options, const char *path, heft_error *err);
void heft__save_job_free(heft__save_job *job);
/* Header, tensors and all that belongs to the file, to a sink. */
heft_status heft__save_job_run(heft__save_job *job, const heft__sink *sink, heft_error *err);
/* How much of the file will take no space; the target that is opened for it has to be told. */
uint64_t heft__save_job_shareable(const heft__save_job *job);
/* To an open target, up to the fsync and the reading back. */
heft_status heft__save_job_target(heft__save_job *job, heft__target *target, heft_error *err);
heft_status heft__save_file(heft__save_job *job, const char *path, heft_error *err);
/* Whether a file may be saved there; temporary files that processes which are gone have left in its folder go, and with them the
 * space that they take. */
heft_status heft__save_enter(const char *path, const heft_save_options *options, const heft_allocator *alloc, heft_error *err);
/* The text of its sidecar, when it has run (heft__json_out_free in any case). */
heft_status heft__save_job_sidecar(const heft__save_job *job, heft__json_out *json, heft_error *err);

/* Compares tensors that have been written as they were in an archive with the digests that it has of them, if new ones are made:
 * MISMATCH as heft_archive_verify. (save_kept.c) */
heft_status heft__save_compare_kept(const heft__save_job *job, heft_error *err);

/* ---- digests of what is there (save_digest.c) ---- */

/* Digests of whole tensors; ids NULL: 0 to nids - 1. */
heft_status heft__archive_digests(const heft_archive *archive, const heft_allocator *alloc, const uint64_t *ids,
                                  uint64_t nids, const heft_read_options *options, uint8_t (*digests)[16],
                                  heft_error *err);
/* ---- sidecars of digests (save_sidecar.c) ---- */

#define HEFT__SIDECAR_SUFFIX ".xxh3.json"
#define HEFT__SIDECAR_ALGORITHM "xxh3-128, 4 MiB chunks"

/* NAME.xxh3.json in out[size]; false: that is no file name, or too long. */
bool heft__sidecar_name(const char *name, char *out, size_t size);
/* Renames a finished target, and removes any sidecar: none that is there can be of the new file. *out (may be NULL) is what
 * has been published. */
heft_status heft__save_publish(heft__target *target, heft__target_status *out, heft_error *err);
/* The sidecar of the file that the path leads to. *other: it leads to another file by now, and nothing was written. */
heft_status heft__sidecar_write(const char *path, const heft__json_out *text, uint64_t device, uint64_t inode,
                                const heft_save_options *options, bool *other, heft_error *err);
/* Those of all files of an archive; `options` and `save_options` are complete. */
heft_status heft__archive_write_sidecars(const heft_archive *archive, const heft_allocator *alloc,
                                         const heft_read_options *options, const heft_save_options *save_options,
                                         heft_error *err);
/* Whether the label of a source is a path that leads to that very file. */
heft_status heft__sidecar_path_leads(heft_source *source, bool *leads, heft_error *err);

#endif
