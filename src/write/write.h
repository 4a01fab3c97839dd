/* write: what is to be written, checked, and where each byte of it will lie. No system call, no byte moved: ops joins this
 * with sources, memory and files. */
#ifndef HEFT_WRITE_WRITE_H
#define HEFT_WRITE_WRITE_H

#include "base/error.h"
#include "base/json_write.h"
#include "digest/digest.h"
#include "format/format.h"
#include "heft/saves.h"

#define HEFT__FILLER_PREFIX "__heft_pad__."

/* An item in the terms that all three kinds share. */
typedef struct heft__item {
    const char *name;
    size_t name_len;
    const uint64_t *shape;
    uint32_t rank;
    heft_dtype from, dtype; /* where it comes from, and as it is written */
    const heft__spelling *spelling; /* of a tensor whose dtype is unknown: its bytes are copied; else NULL */
    uint64_t nelems, nbytes; /* as written; no elements are known of an unknown dtype */
} heft__item;

/* Checks one item by itself: INVALID_ARGUMENT naming it. */
heft_status heft__item_check(const heft_save_item *item, uint64_t number, heft__item *out, heft_error *err);

/* INVALID_ARGUMENT for the second item of a name, naming both. The items have been checked. */
heft_status heft__items_check_names(const heft_save_item *items, uint64_t nitems, const heft_allocator *alloc,
                                    heft_error *err);

/* Those from number `first` on of a list that may be NULL where it is empty. */
static inline const heft_save_item *heft__items_from(const heft_save_item *items, uint64_t first) {
    return first ? items + first : items;
}

/* A failure about an item: its number and name come first. */
heft_status heft__item_fail(heft_error *err, heft_status status, heft_fault fault, const heft_save_item *item,
                            uint64_t number, const char *format, ...) HEFT__PRINTF(6, 7);

/* Options of a save, checked and copied, with an allocator. */
heft_status heft__save_options_copy(const heft_save_options *given, heft_save_options *out, heft_allocator *alloc,
                                    heft_error *err);

/* Digests of tensors in the making (digests.c). */
typedef struct heft__digests {
    uint32_t want; /* HEFT_DIGEST bits, 0: none */
    uint64_t nentries, nchunks;
    uint64_t *first;          /* of each entry its first chunk */
    uint8_t (*chunks)[16];    /* filled while chunks are written, in any order */
    uint8_t (*tensors)[16];   /* of each entry, once finished */
    heft__json_out text;      /* value of the metadata key, always of the same length */
    char data[32];            /* of all data */
} heft__digests;

/* Items, checked together, laid out as one file: after it `emit` has entries in file order, pieces, and the file's size. */
typedef struct heft__layout {
    heft__emit emit;
    const heft__emitter *emitter;
    heft_pair *metadata; /* sorted */
    uint64_t nmetadata, metadata_capacity;
    heft__digests digests;
    heft_save_item *turned; /* under keep_fortran: the items that are written; else NULL, and those given are */
    heft_view *views;       /* of these */
    uint64_t nturned, nviews;
} heft__layout;
heft_status heft__layout_make(heft__layout *layout, const heft_save_item *items, uint64_t nitems,
                              const heft_save_options *options, const heft_allocator *alloc, heft_error *err);
void heft__layout_free(heft__layout *layout);

/* Arrays whose first dim steps fastest, with their dims in the other order: then they are packed as others (fortran.c). */
heft_status heft__layout_turn(heft__layout *layout, const heft_save_item *items, uint64_t nitems, heft_error *err);
/* Whether memory is packed with its first dim fastest, and not with its last. The item has been checked. */
bool heft__item_is_fortran(const heft_save_item *item);
bool heft__layout_is_turned(const heft__layout *layout, const heft_save_item *items, uint64_t number);

/* Before the layout: a text of zeros for the header. After it: room for chunks. When all tensors are written: the texts. */
heft_status heft__digests_prepare(heft__layout *layout, uint32_t want, heft_error *err);
heft_status heft__digests_allocate(heft__layout *layout, heft_error *err);
heft_status heft__digests_finish(heft__layout *layout, heft_error *err);
/* {"name": "32 digits", ...} of the entries that have an item, by the bytes of the names; `values`, one an entry, NULL: zeros.
 * False: out of memory. */
bool heft__digests_object(const heft__emit *emit, const uint8_t (*values)[16], heft__json_out *json);
/* The digest of all data from those of n tensors. */
heft_status heft__digests_of_all(const heft_allocator *alloc, const uint8_t (*digests)[16], uint64_t n, uint8_t out[16],
                                 heft_error *err);
/* The text of the sidecar of a file (heft__json_out_free in any case): entries of `emit` that are no fillers, with the digests of
 * all entries; `data` is text, NULL: not known. */
heft_status heft__digests_sidecar(const heft__emit *emit, const uint8_t (*tensors)[16], const char *data,
                                  heft__json_out *json, heft_error *err);
void heft__digests_free(heft__layout *layout);

/* ---- sets (shards.c) ---- */

/* A whole save laid out: the files, where items lie in them, and the text of the index. */
struct heft_layout {
    heft_allocator alloc;
    heft__arena arena; /* names */
    heft_layout_file *files;
    uint64_t nfiles, files_capacity;
    heft_layout_tensor *tensors;
    uint64_t nitems;
    char *index; /* NULL: none */
    uint64_t index_nbytes, index_capacity;
    uint64_t total_nbytes; /* of all files, without the index */
};

/* Options of a set (`given` NULL: defaults), checked. */
heft_status heft__set_options_copy(const heft_set_options *given, heft_set_options *out, heft_error *err);
/* `set` NULL: one file without a name. */
heft_status heft__set_layout(const heft_save_item *items, uint64_t nitems, const heft_save_options *options,
                             const heft_set_options *set, const heft_allocator *alloc, heft_layout **out,
                             heft_error *err);
/* Fills files with first_item and nitems, from sizes alone: a new one begins where the present one has a tensor and the next
 * would pass the ceiling. False: out of memory. */
bool heft__shards_cut(heft_layout *layout, const uint64_t *sizes, uint64_t ceiling);
/* Makes the text of the index from names of items and files: `nbytes` and `nelems` are the totals. */
heft_status heft__shards_index(heft_layout *layout, const heft_save_item *items, const heft_set_options *set,
                               uint64_t nbytes, uint64_t nelems, heft_error *err);
/* Whether a set gets an index: never one that would name nothing, which nobody could open. */
bool heft__set_has_index(const heft_set_options *set, uint64_t nfiles, uint64_t nitems);
/* "STEM-00001-of-00003.safetensors", "STEM.safetensors" of one. NULL: out of memory. */
const char *heft__shard_name(heft__arena *arena, const char *stem, uint64_t number, uint64_t total);

#endif
