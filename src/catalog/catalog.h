/* catalog: what is inside. A listing is what one file holds; an archive is one or more listings, frozen. */
#ifndef HEFT_CATALOG_CATALOG_H
#define HEFT_CATALOG_CATALOG_H

#include "base/alloc.h"
#include "base/hash_index.h"
#include "dtype/dtype.h"
#include "heft/archives.h"
#include "source/source.h"

/* ---- faults: small records; their text is made on demand (faults.c) ---- */

/* 32 bytes. What `entry`, `other`, `offset` and `value` mean is fixed per kind in faults.c, where the text is made. */
typedef struct heft__fault {
    uint16_t kind;     /* heft_fault */
    uint8_t severity;  /* heft_severity */
    uint8_t status;    /* -heft_status */
    uint32_t file;     /* listing's index in the set, UINT32_MAX: the set itself */
    uint32_t entry;    /* entry of that listing, UINT32_MAX: none */
    uint32_t other;    /* a second entry, UINT32_MAX: none */
    uint64_t offset;   /* absolute in the file, HEFT_NONE: none */
    uint64_t value;    /* a length or count; or index into `texts` of the report where the kind says so */
} heft__fault;

typedef struct heft__faults {
    heft__fault *items;
    uint64_t count, capacity;
    bool failed; /* an allocation failed */
} heft__faults;

/* ---- one file ---- */

#define HEFT__ENTRY_FILLER UINT8_C(1)   /* an alignment filler */
#define HEFT__ENTRY_HIDDEN UINT8_C(2)   /* not in the archive: filler, or withheld by the index */
#define HEFT__ENTRY_DROPPED UINT8_C(4)  /* lost to a later duplicate (lenient), its bytes do not count */

typedef struct heft__entry {
    const char *name;      /* into the retained header; NUL after it */
    const uint64_t *shape; /* `rank` dims in the arena */
    uint64_t begin, end;   /* relative to the data area; the absolute offset is data_start + begin */
    uint32_t name_len;
    uint32_t rank;
    uint32_t hash;         /* heft__hash_name under the listing's seed */
    uint8_t dtype;
    uint8_t flags;
    uint16_t reserved;
} heft__entry;

typedef struct heft__listing {
    heft_allocator alloc;
    heft_source *source;    /* held */
    const char *format;     /* static name */
    char *header;           /* retained header text (n bytes and one more), changed in place by unescaping */
    uint64_t header_nbytes; /* n; allocated size is n + 1 + HEFT__HEADER_SLACK */
    uint64_t data_start;    /* absolute: 8 + n */
    heft__entry *entries;   /* file order once finished: (begin, end, name) */
    uint64_t nentries, capacity;
    heft_pair *metadata;    /* unique keys, ascending bytes, once finished */
    uint64_t nmetadata, metadata_capacity;
    bool has_metadata;
    heft__arena arena;      /* shapes */
    heft__hash_index names; /* number = entry index; dropped entries are not in it */
    heft__faults faults;    /* warnings and notes; under `collect` errors too; in order of the rules */
    heft_error *fatal;      /* under `collect`: the full error that ended the listing; NULL: none */
    uint64_t nfillers;
} heft__listing;

/* Bytes after the header that vector code may read. */
#define HEFT__HEADER_SLACK 64

void heft__listing_init(heft__listing *listing, const heft_allocator *alloc);
void heft__listing_free(heft__listing *listing); /* what it holds, not the struct */

/* Adds a record; false only out of memory. */
bool heft__faults_add(heft__faults *faults, const heft_allocator *alloc, heft__fault fault);

/* Writes the text of a record. `listing` NULL for faults of the set, `text` for kinds that carry one (NULL otherwise). */
void heft__fault_describe(const heft__fault *fault, const heft__listing *listing, const char *text, heft_error *out);

/* The entry of a name, or UINT32_MAX. */
uint32_t heft__listing_find(const heft__listing *listing, const char *name, size_t len);

/* ---- a report: records of several listings ---- */
struct heft_report {
    heft_allocator alloc;
    const heft__listing *const *listings; /* borrowed from the archive, or owned (`owned`) */
    uint32_t nlistings;
    bool owned;
    heft__fault *items;
    uint64_t count, capacity;
    char **texts;   /* strings that records of the set refer to */
    uint64_t ntexts, texts_capacity;
    heft_report_summary summary;
};

/* ---- the archive ---- */
typedef struct heft__ref {
    uint32_t file, entry;
} heft__ref;

struct heft_archive {
    atomic_uint refs;
    heft_allocator alloc;
    heft__listing **files;
    uint32_t nfiles;
    heft__ref *tensors; /* visible ones by id, in order (file, entry) */
    uint64_t ntensors;
    heft__hash_index index;      /* number = id */
    heft_pair *metadata;         /* merged; points into the listings */
    uint64_t nmetadata;
    char *path, *index_path, *resolution; /* index_path may be NULL */
    heft_report *warnings;
    _Atomic(uint64_t *) orders[2];        /* by name, natural: made on demand, published once */
    _Atomic(heft__mapping *) *mappings;   /* per file: whole-file mapping, made by the first borrow */
};

/* How files become one archive (union.c). Takes the listings over (they are freed with the archive, or here on failure).
 * Entries with HEFT__ENTRY_HIDDEN stay out. A visible name in two listings is CORRUPT (SHARED_NAME), unless the caller
 * has hidden all but one. Texts may be NULL. */
typedef struct heft__union_input {
    heft__listing **listings;
    uint32_t nlistings;
    const char *path, *index_path, *resolution;
    heft_report *report; /* warnings of the set so far, taken over; NULL: none */
    bool show_fillers;
} heft__union_input;
heft_status heft__union(const heft_allocator *alloc, heft__union_input *input, heft_archive **out, heft_error *err);

/* The entry behind an id that is in range. */
static inline const heft__entry *heft__archive_entry(const heft_archive *archive, uint64_t id, uint32_t *file) {
    heft__ref ref = archive->tensors[id];
    *file = ref.file;
    return &archive->files[ref.file]->entries[ref.entry];
}

#endif
