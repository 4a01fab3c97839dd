/* ops: the inside of a heft_writer: what its three modes share. */
#ifndef HEFT_OPS_SAVE_WRITER_H
#define HEFT_OPS_SAVE_WRITER_H

#include "base/hash_index.h"
#include "base/parallel.h"
#include "ops/save_set.h"

/* Bytes of a declared tensor that have been given: disjoint ranges, ascending. */
typedef struct heft__given {
    uint64_t (*ranges)[2];
    uint64_t nranges, capacity;
} heft__given;

struct heft_writer {
    heft_allocator alloc;
    heft_writer_mode mode;
    uint64_t process;          /* whose it is: a forked child has copies of what only one can go on with */
    heft_save_options options; /* checked; `allocator` is `alloc` */
    heft_set_options set;
    bool is_set, ended;
    bool broken;               /* declared: a write failed */
    char *path;
    uint64_t path_nbytes;
    heft__set_job *job;        /* of a set */
    heft__arena arena;         /* names, shapes */
    heft_save_item *items;     /* all so far */
    uint64_t nitems, items_capacity;
    heft__hash_index names;
    heft_layout *layout;       /* the files so far; declared: the whole */
    uint64_t tensors_capacity;
    uint64_t first;            /* item of the present file */
    uint64_t file_nbytes;      /* of tensors in it */
    uint64_t data_nbytes, nelems;
    /* collect: copies of the present file */
    void **held;
    uint64_t *held_nbytes;
    uint64_t nheld, held_capacity, held_nbytes_capacity;
    /* declared */
    heft__target *targets;
    heft__given *given;
    heft__monitor *monitor;
    /* stream */
    heft__target target;
    bool target_open;
    uint64_t reserved, at;     /* bytes kept for the header; where the next tensor goes */
    heft_save_stats stats;
};

/* An item copied to the end of the writer's list, its name found to be new; its data is the caller's still. _count makes it one
 * of the items. */
heft_status heft__writer_note(heft_writer *writer, const heft_save_item *item, const heft__item *checked, heft_error *err);
heft_status heft__writer_count(heft_writer *writer, const heft__item *checked, heft_error *err);
/* Counts the file that ends here among those of the set. */
heft_status heft__writer_end_file(heft_writer *writer, heft_error *err);
/* Puts a set in place: names, index, renames. */
heft_status heft__writer_end_set(heft_writer *writer, heft_error *err);

/* save_declared.c */
heft_status heft__declared_open(heft_writer *writer, const heft_save_item *items, uint64_t nitems, heft_error *err);
heft_status heft__declared_write(heft_writer *writer, uint64_t item, uint64_t offset, const void *data, uint64_t nbytes,
                                 heft_error *err);
heft_status heft__declared_finish(heft_writer *writer, heft_error *err);
void heft__declared_free(heft_writer *writer);

/* save_stream.c */
heft_status heft__stream_add(heft_writer *writer, const heft_save_item *item, const heft__item *checked, heft_error *err);
heft_status heft__stream_finish(heft_writer *writer, heft_error *err);
void heft__stream_free(heft_writer *writer);

#endif
