/* ops: whole jobs on paths and open archives. */
#ifndef HEFT_OPS_OPS_H
#define HEFT_OPS_OPS_H

#include "catalog/catalog.h"
#include "format/format.h"

/* resolve.c: which files a path means (docs/formats/sharded.md). Opens directories and the index, no shard. */
typedef struct heft__resolution {
    heft_allocator alloc;
    heft__arena arena;            /* everything below */
    heft__directory *directory;   /* NULL: `names` are paths of their own */
    const char *path;             /* as given */
    const char *how;              /* a few words */
    const char *index_path;       /* NULL: no index */
    heft__index *index;           /* NULL: no index */
    const char **names;           /* files in order; under an index: its distinct shards, byte-sorted */
    uint32_t nnames;
    bool beneath;
    uint32_t beneath_levels;
    heft_report *report;          /* warnings and, under `collect`, faults of the set so far */
} heft__resolution;

heft_status heft__resolve(const char *path, const heft_open_options *options, bool collect, heft__resolution *out,
                          heft_error *err);
void heft__resolution_free(heft__resolution *resolution);

#endif
