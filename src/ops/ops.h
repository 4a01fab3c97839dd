/* ops: whole jobs on paths and open archives. */
#ifndef HEFT_OPS_OPS_H
#define HEFT_OPS_OPS_H

#include "catalog/catalog.h"
#include "format/format.h"

/* Options as the jobs take them: complete, with an allocator. */
typedef struct heft__open_job {
    heft_open_options options; /* copied; strings are the caller's, for the time of the call */
    heft_allocator alloc;
    double started; /* heft__os_seconds */
    bool collect; /* check: put faults of the set into the report and go on */
} heft__open_job;

/* What Atlas lays over the files of a directory. */
#define HEFT__ATLAS_OVERLAY "extra_weights.safetensors"
/* Bytes of a header by default: the reference's limit. */
#define HEFT__MAX_HEADER_NBYTES UINT64_C(100000000)

/* resolve.c: which files a path means (docs/formats/sharded.md). Opens folders, the index, and a path that is one file;
 * no shard. Everything lies in `arena` unless said otherwise. */
typedef struct heft__resolution {
    heft_allocator alloc;
    heft__arena arena;
    const char *path;               /* as given */
    const char *how;                /* a few words, static */
    heft_source *source;            /* of a path that is one file, held; NULL: `names` are to be opened */
    heft__directory *directory;     /* NULL: `names` are paths of their own */
    heft__directory_entry *entries; /* of the directory */
    uint64_t nentries;
    uint32_t beneath_levels; /* for heft__directory_source */
    const char *index_path;  /* NULL: no index */
    heft__index *index;      /* NULL: no index; freed with the resolution */
    uint32_t *shard_files;   /* of each shard of the index its number in `names`, UINT32_MAX: it is missing */
    const char *shadowed;    /* a whole model beside the index, NULL: none */
    const char **names;      /* files in order; under an index its shards that are there, by bytes */
    uint32_t nnames;
    const char *beside;           /* a file of the directory that is laid over the others, before `overlays`; NULL: none */
    const char *const *overlays;  /* the caller's paths: each is laid over all before it */
    uint32_t noverlays;
    bool incomplete;     /* a shard is missing */
    heft_report *report; /* warnings and, under `collect`, faults of the set so far; NULL once taken */
} heft__resolution;

heft_status heft__resolve(const char *path, const heft__open_job *job, heft__resolution *out, heft_error *err);
/* A list of files, and one source (a reference is taken). */
heft_status heft__resolve_files(const char *const *paths, size_t npaths, const heft__open_job *job,
                                heft__resolution *out, heft_error *err);
heft_status heft__resolve_source(heft_source *source, const heft__open_job *job, heft__resolution *out,
                                 heft_error *err);
void heft__resolution_free(heft__resolution *resolution);

/* folder.c: what a folder holds, by names alone. */
typedef struct heft__folder_choice {
    const char *how;   /* NULL: nothing, and `fault` says why */
    const char *index; /* name of an index file; NULL: `names` count */
    const char **names;
    uint32_t nnames;
    uint64_t total;   /* of numbered shards, 0: no numbering */
    bool no_index;    /* several files without an index */
    heft_fault fault; /* HEFT_FAULT_NO_CHECKPOINT or _AMBIGUOUS */
    const char *what; /* of these: what is ambiguous, static */
} heft__folder_choice;
/* False: out of memory. */
bool heft__folder_choose(const heft__directory_entry *entries, uint64_t nentries, heft_index_mode mode,
                         const char *variant, heft__arena *arena, heft__folder_choice *out);
bool heft__is_index_name(const char *name); /* NAME.index.json, or NAME.index.VARIANT.json */
bool heft__is_tensor_file(const heft__directory_entry *entry);
const heft__directory_entry *heft__folder_find(const heft__directory_entry *entries, uint64_t nentries,
                                               const char *name);
/* STEM-NNNNN-of-MMMMM[.VARIANT].safetensors; false: no such name. */
typedef struct heft__shard_number {
    size_t stem_len;
    uint64_t number, total;
    bool variant; /* something stands between the total and the suffix */
} heft__shard_number;
bool heft__shard_number_parse(const char *name, heft__shard_number *out);
/* False: the name has a number, and it is none of 1 to its total. */
bool heft__shard_number_fits(const char *name);
/* Text like "2, 4-6" of the numbers 1 to total that `names` lack, and how many they are. False: out of memory. */
bool heft__missing_numbers(heft__arena *arena, const char *const *names, uint32_t nnames, uint64_t total, char *text,
                           size_t size, uint64_t *count);

/* open.c: scans the files of a resolution, in parallel, and makes one archive of them. Under job->collect the archive's
 * report then holds all faults, and only what cannot be judged at all fails. */
heft_status heft__open(heft__resolution *resolution, const heft__open_job *job, heft_archive **out, heft_error *err);

/* open_overlay.c: how many files a resolution has without, and with, what is laid over them. */
uint32_t heft__resolution_files(const heft__resolution *resolution);
uint32_t heft__resolution_all(const heft__resolution *resolution);
/* Opens overlay `number`, from 0. */
heft_status heft__overlay_source(const heft__resolution *resolution, uint32_t number, bool beneath, heft_source **out,
                                 heft_error *err);
/* Hides what overlays replace, and reports each: `files` listings are what they lie over, `all` - `files` overlays follow. */
void heft__overlay_apply(heft_report *report, heft__listing **listings, uint32_t files, uint32_t all);

/* check_set.c: everything that can be said about a resolution's files. */
heft_status heft__check(heft__resolution *resolution, const heft__open_job *job, heft_report **out, heft_error *err);

#endif
