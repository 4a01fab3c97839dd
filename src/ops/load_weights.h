/* ops: tensors in memory, as flat arrays by id beside the archive that names them. */
#ifndef HEFT_OPS_LOAD_WEIGHTS_H
#define HEFT_OPS_LOAD_WEIGHTS_H

#include "catalog/catalog.h"
#include "heft/loads.h"
#include "plan/filter.h"

/* A block that tensors lie in. `buffer` is released when the weights go, or, where `file` is one, with its last tensor. */
typedef struct heft__load_memory {
    heft_buffer buffer;
    heft_arena *arena; /* that the buffer is of, and holds; NULL: a mapping */
    uint32_t file;     /* UINT32_MAX: of the whole load */
} heft__load_memory;

/* In `states`, beside the rule that decided. */
#define HEFT__WEIGHTS_RULE UINT8_C(0x3F)
#define HEFT__WEIGHTS_MAPPED UINT8_C(0x40)
#define HEFT__WEIGHTS_REMOVED UINT8_C(0x80)

/* How tensors in memory differ from those of the files: shapes of those of which this rank has a part, dtypes of those that are
 * converted. */
typedef struct heft__load_parts {
    uint32_t *at;   /* by id: where its dims, then its first element, are in `dims`, + 1; 0: whole. NULL: all are */
    uint64_t *dims;
    uint64_t ndims;
    uint8_t *dtypes; /* by id; NULL: as in the files */
} heft__load_parts;

/* What a tensor of the archive is in memory. */
static inline heft_dtype heft__load_dtype(const heft__load_parts *parts, const heft__entry *entry, uint64_t id) {
    return parts->dtypes ? parts->dtypes[id] : entry->dtype;
}

/* A tensor that was put in. Its name and shape lie behind it. */
typedef struct heft__weights_extra {
    heft_loaded tensor;
    heft_buffer buffer;
    uint64_t nbytes; /* of this block */
    bool gone;       /* taken out */
} heft__weights_extra;

struct heft_weights {
    atomic_uint refs;
    heft_allocator alloc;
    heft_archive *archive; /* held: names, shapes, sources */
    heft_load_options options; /* of the load, for reads of deferred tensors; no filter, no callbacks */
    uint8_t **data;        /* by id; NULL: not here, see `states` */
    uint64_t data_nbytes;  /* of that block */
    uint8_t *states;       /* by id */
    heft__load_parts parts;
    uint64_t count, nbytes;
    heft__load_memory *memories;
    uint32_t nmemories;
    uint64_t *held;        /* by file: tensors that are here; NULL: memory goes as a whole */
    uint32_t *deferred;    /* ids in their order */
    uint64_t ndeferred;
    heft__weights_extra **extras;
    uint64_t nextras, extras_capacity;
    heft__hash_index extra_names;
    /* by heft_load_order, FILE and NAME: what is here (archive->ntensors + i: extra i), after the number of elements of the
     * block; made on demand, published once */
    _Atomic(uint32_t *) orders[2];
};

/* Bytes of `data` for so many tensors: a large block gets huge pages, since fresh 4 KiB pages are dear. */
uint64_t heft__weights_room(uint64_t ntensors);
/* Nothing in it yet: all `data` are NULL, all `states` are those of the filter (NULL: kept). */
heft_status heft__weights_new(const heft_archive *archive, const heft_filter_result *filter, const heft_allocator *alloc,
                              heft_weights **out, heft_error *err);
/* Room for memories and, under `by_file`, counts by file. */
heft_status heft__weights_hold(heft_weights *weights, uint32_t nmemories, bool by_file, heft_error *err);

/* load_deferred.c: the list of deferred tensors. */
heft_status heft__weights_defer(heft_weights *weights, const heft_filter_result *filter, heft_error *err);

/* Bytes and shape of a tensor of the archive, of this rank's part. */
const uint64_t *heft__load_part(const heft_archive *archive, const heft__load_parts *parts, uint64_t id,
                                uint64_t *nbytes);
/* The parts of all tensors that a filter cuts (NULL: none); no dtypes. */
heft_status heft__load_parts_make(const heft_filter_result *filter, const heft_allocator *alloc, heft__load_parts *out,
                                  heft_error *err);
void heft__load_parts_free(const heft_archive *archive, const heft_allocator *alloc, heft__load_parts *parts);

/* What tensors without bytes point at: aligned for every demand. */
uint8_t *heft__load_nothing(void);

#endif
