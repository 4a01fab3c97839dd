/* format: describes files and never loads. A format is one file here and one line in registry.c. */
#ifndef HEFT_FORMAT_FORMAT_H
#define HEFT_FORMAT_FORMAT_H

#include "catalog/catalog.h"

typedef struct heft__scan_options {
    uint64_t max_header_nbytes;
    uint32_t lenient;
    bool list_unknown_dtypes;
    bool collect; /* check: record every fault in listing->faults and go on, instead of failing at the first */
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

/* Puts the file's name into an error and before its message. */
void heft__name_file(heft_error *err, const heft_source *source);

/* safetensors.c */
extern const heft__format heft__format_safetensors;

/* diagnose.c: what a file whose length or header text was refused really is, from its first 4 KiB; of a header whose length
 * field is wrong, where its text really ends. False: nothing known, *err is left alone; else *err is rewritten. */
bool heft__diagnose(heft_source *source, heft_error *err);

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
 * CORRUPT with offset, INDEX_SYNTAX, SHARD_NAME or DUPLICATE_NAME. Other keys are skipped. */
heft_status heft__index_read(heft_source *source, const heft_allocator *alloc, uint64_t max_nbytes, heft__index *out,
                             heft_error *err);
void heft__index_free(heft__index *index);

#endif
