/* format: describes files and never loads. A format is one file here and one line in registry.c. */
#ifndef HEFT_FORMAT_FORMAT_H
#define HEFT_FORMAT_FORMAT_H

#include "catalog/catalog.h"
#include "heft/saves.h"

/* ---- scanning ---- */

typedef struct heft__scan_options {
    uint64_t max_header_nbytes;
    uint32_t lenient;
    bool list_unknown_dtypes;
    heft_dtype void1, void2;     /* as in heft_open_options */
    uint64_t max_decoded_nbytes; /* 0: 64 GiB */
    bool collect; /* check: record every fault in listing->faults and go on, instead of failing at the first */
    const uint8_t *header;  /* of safetensors: what counts instead of the first bytes of the file; NULL: they do */
    uint64_t header_nbytes; /* its length field included: as many as that field says */
} heft__scan_options;

typedef struct heft__format {
    const char *name;
    /* 0: not this format; else how sure (100: a magic number). `head`: the first bytes (up to 16), `size`: of the file. */
    int (*probe)(const uint8_t *head, size_t nhead, uint64_t size);
    /* Reads headers only and fills a listing that heft__listing_init made, source set. `head` is what has been read of the
     * file already: its first 16 bytes, or all of a smaller one. Under `collect` a damaged file is no failure:
     * listing->faults and ->fatal say what is wrong; only IO and memory fail. */
    heft_status (*scan)(const uint8_t *head, size_t nhead, const heft__scan_options *options, heft__listing *listing,
                        heft_error *err);
} heft__format;

/* The formats of this build, best first (registry.c). NULL-terminated. */
extern const heft__format *const heft__formats[];

/* Finds the format of a source and scans it into a listing that heft__listing_init made; listing->source becomes one more
 * reference. A file that is of no known format is scanned as safetensors, whose failure then carries the diagnosis. On
 * failure the listing is left for heft__listing_free. */
heft_status heft__scan(heft_source *source, const heft__scan_options *options, heft__listing *listing, heft_error *err);

/* What the scans of formats end with: puts the file's name into *local, the failure of `status`; under `collect` a verdict
 * about the content becomes listing->fatal. */
heft_status heft__scan_end(heft_status status, heft_error *local, const heft__scan_options *options,
                           heft__listing *listing, heft_error *err);
/* TRAILING_BYTES: `nbytes` from `offset` on that nothing describes: a warning if `lenient` admits it, an error on record under
 * `collect`, else the failure. */
heft_status heft__scan_extra(heft__listing *listing, const heft__scan_options *options, uint64_t offset, uint64_t nbytes,
                             heft_error *err);

/* A warning about the last entry if it is listed as bytes, because heft lacks its dtype. */
heft_status heft__scan_opaque(heft__listing *listing, heft_error *err);

/* Puts the file's name into an error and before its message. */
void heft__name_file(heft_error *err, const heft_source *source);

/* safetensors.c */
extern const heft__format heft__format_safetensors, heft__format_npy, heft__format_npz, heft__format_idx;

/* ---- emitting ---- */

/* One tensor of a file to be written. */
typedef struct heft__emit_entry {
    const char *name;
    const uint64_t *shape;
    uint64_t nbytes;
    uint64_t offset;   /* set by `layout`: absolute in the file */
    uint32_t name_len;
    uint32_t rank;
    uint32_t item;     /* the caller's number, UINT32_MAX: a filler, whose bytes are zero */
    uint32_t crc32;    /* set before `finish` where the format wants it */
    const heft__spelling *spelling; /* of HEFT_DTYPE_NONE, else NULL */
    heft_dtype dtype;
    bool fortran;      /* `shape` is in the order of the bytes, the other way round than the array's */
} heft__emit_entry;

/* Bytes of the file that are no tensor's. */
typedef struct heft__emit_piece {
    uint64_t offset, nbytes;
    uint8_t *bytes; /* freed with the emit */
} heft__emit_piece;

typedef struct heft__emit {
    heft_allocator alloc;
    heft__arena arena;         /* for names and shapes that the format makes up */
    const heft_pair *metadata; /* unique keys, ascending bytes */
    uint64_t nmetadata;
    bool has_metadata;
    bool late;                 /* the pieces are complete only after `finish` */
    bool keep_order, no_fill;
    heft_foreign foreign;
    uint64_t align, data_start_align, max_header_nbytes; /* 0: the format's own */
    uint64_t reserve_header_nbytes;
    heft__emit_entry *entries; /* by `layout` put into file order: no offset below the one before */
    uint64_t nentries, capacity;
    heft__emit_piece *pieces;  /* in file order */
    uint64_t npieces, pieces_capacity;
    uint64_t file_nbytes, header_nbytes;
} heft__emit;

/* How files of a format are written. It decides where tensors lie and makes all other bytes; who writes them is not its
 * business. */
typedef struct heft__emitter {
    const char *name;
    bool wants_crc32; /* of each entry's bytes, before `finish` */
    /* From checked entries in the caller's order: their order, their offsets, the size of the file, and the pieces as far as
     * they are known. LIMIT, UNSUPPORTED, OUT_OF_MEMORY. */
    heft_status (*layout)(heft__emit *emit, heft_error *err);
    /* Called of a `late` emit when all tensors have been written: makes or completes the pieces, which are written after it.
     * Texts of metadata may be others then, of the same length. */
    heft_status (*finish)(heft__emit *emit, heft_error *err);
} heft__emitter;

/* The emitter of a name; NULL: there is none (registry.c). */
const heft__emitter *heft__emitter_find(const char *name);
extern const heft__emitter heft__emitter_safetensors, heft__emitter_npy, heft__emitter_npz;

/* The header of a safetensors file of exactly header_nbytes bytes, its length field included, that lists the entries of `emit`,
 * whose offsets are relative to the data, to `out`. *needed is how many bytes it takes without padding. HEADER_LIMIT: more. */
heft_status heft__safetensors_fit(const heft__emit *emit, uint64_t header_nbytes, uint8_t *out, uint64_t *needed,
                                  heft_error *err);
void heft__emit_init(heft__emit *emit, const heft_allocator *alloc);
void heft__emit_free(heft__emit *emit);
/* A piece of nbytes to be filled in; NULL: out of memory. (registry.c) */
uint8_t *heft__emit_add_piece(heft__emit *emit, uint64_t offset, uint64_t nbytes);

/* diagnose.c: what a file whose length or header text was refused really is, from its first 4 KiB; of a header whose length
 * field is wrong, where its text really ends. False: nothing known, *err is left alone; else *err is rewritten. */
bool heft__diagnose(heft_source *source, const heft_allocator *alloc, heft_error *err);

/* index_json.c: a model.safetensors.index.json, read as a stream. */
typedef struct heft__index_item {
    const char *name; /* into the retained text, NUL after it */
    uint32_t name_len;
    uint32_t shard; /* number in `shards` */
} heft__index_item;

typedef struct heft__index {
    heft_allocator alloc;
    char *text;
    uint64_t text_nbytes;
    heft__index_item *items; /* weight_map in file order */
    uint64_t nitems, items_capacity;
    heft__hash_index names; /* number = item */
    const char **shards; /* distinct shard names, NUL-terminated, in order of first use */
    uint32_t nshards;
    uint32_t shards_capacity;
    uint64_t total_size; /* metadata.total_size, HEFT_NONE: absent or no plain integer */
} heft__index;

/* Strict JSON, `weight_map` an object of strings, no duplicate tensor name, shard names by heft__path_component_fault: else
 * CORRUPT with offset, INDEX_SYNTAX or SHARD_NAME. Other keys are skipped. */
heft_status heft__index_read(heft_source *source, const heft_allocator *alloc, uint64_t max_nbytes, heft__index *out,
                             heft_error *err);
void heft__index_free(heft__index *index);

#endif
