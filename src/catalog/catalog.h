/* catalog: what is inside. A listing is what one file holds; an archive is one or more listings, frozen. */
#ifndef HEFT_CATALOG_CATALOG_H
#define HEFT_CATALOG_CATALOG_H

#include "base/alloc.h"
#include "base/checked.h"
#include "base/hash_index.h"
#include "dtype/dtype.h"
#include "heft/archives.h"
#include "source/source.h"

/* ---- faults: small records; their text is made on demand (faults.c) ---- */

/* 32 bytes. What `entry`, `other`, `offset` and `value` mean is fixed per kind where the text is made: in faults.c for
 * kinds that one file shows alone, in set_faults.c for those of a set (index, shards, folder). */
typedef struct heft__fault {
    uint16_t kind;     /* heft_fault */
    uint8_t severity;  /* heft_severity */
    uint8_t status;    /* -heft_status */
    uint32_t file;     /* listing's index in the set, UINT32_MAX: the set itself */
    uint32_t entry;    /* entry of that listing, UINT32_MAX: none */
    uint32_t other;    /* a second entry, UINT32_MAX: none */
    uint64_t offset;   /* absolute in the file, HEFT_NONE: none */
    uint64_t value;    /* a length or count; of kinds of a set an index into `texts` or `errors` of the report */
} heft__fault;

/* In `other` of a record about bytes that no tensor owns: what they are, as far as they were looked at. */
#define HEFT__CONTENT_UNKNOWN UINT32_MAX
#define HEFT__CONTENT_ZERO UINT32_C(0)
#define HEFT__CONTENT_DATA UINT32_C(1)       /* some byte is not zero */
#define HEFT__CONTENT_ZERO_START UINT32_C(2) /* zero up to the limit of what is looked at */

typedef struct heft__faults {
    heft__fault *items;
    uint64_t count, capacity;
    bool failed; /* an allocation failed */
} heft__faults;

/* ---- one file ---- */

#define HEFT__ENTRY_FILLER UINT8_C(1)   /* an alignment filler */
#define HEFT__ENTRY_HIDDEN UINT8_C(2)   /* not in the archive: filler, or withheld by the index */
#define HEFT__ENTRY_FORTRAN UINT8_C(4)  /* HEFT_LAYOUT_FORTRAN: the first dim steps fastest */
#define HEFT__ENTRY_INDEXED UINT8_C(8)  /* an index names it for this file */
#define HEFT__ENTRY_BROKEN UINT8_C(16)  /* under a check: a fault says that it is not whole */
#define HEFT__ENTRY_SIZED UINT8_C(32)   /* seen while it was read: offsets, shape and dtype agree (checks 8b to 8e) */
#define HEFT__ENTRY_BIG UINT8_C(64)     /* HEFT_LAYOUT_BIG_ENDIAN: components lie most significant byte first */
#define HEFT__ENTRY_PACKED UINT8_C(128) /* HEFT_LAYOUT_PACKED: its bytes come from decoding, behind the end of the file */
/* Its bytes are not a row-major little-endian array in the file. */
#define HEFT__ENTRY_ODD (HEFT__ENTRY_FORTRAN | HEFT__ENTRY_BIG | HEFT__ENTRY_PACKED)

typedef struct heft__entry {
    const char *name;      /* into the retained header; NUL after it */
    const uint64_t *shape; /* `rank` dims in the arena */
    uint64_t begin, end;   /* relative to the data area; the absolute offset is data_start + begin */
    uint32_t name_len;
    uint32_t rank;
    uint32_t hash;         /* heft__hash_name under the listing's seed; of an entry that an index names: its item there */
    uint8_t dtype;
    uint8_t flags;
    uint16_t marks; /* HEFT__ENTRY_REPLACED */
} heft__entry;

/* Of `marks`: hidden, since a file that was laid over this one has a tensor of the name. */
#define HEFT__ENTRY_REPLACED UINT16_C(1)

/* A dtype that heft lacks, as the file spells it. */
typedef struct heft__spelling {
    const char *name; /* of the entry: the same pointer */
    const char *text; /* UTF-8, unescaped; in the retained header or in the arena */
    uint32_t len;
} heft__spelling;

typedef struct heft__listing {
    heft_allocator alloc;
    heft_source *source;    /* held */
    const char *format;     /* static name */
    char *header;           /* retained header text (n bytes and one more), changed in place by unescaping */
    uint64_t header_nbytes; /* n; allocated size is n + 1 + HEFT__HEADER_SLACK */
    uint64_t data_start;    /* absolute: 8 + n; 0 where tensors do not lie in one area (npz) */
    uint64_t file_nbytes;   /* of the file, where the source counts more: 0 else */
    bool scattered;         /* bytes between tensors belong to the container: they are no holes */
    heft__entry *entries;   /* file order once finished: (begin, end, name) */
    uint64_t nentries, capacity;
    heft_pair *metadata;    /* unique keys, ascending bytes, once finished */
    uint64_t nmetadata, metadata_capacity;
    bool has_metadata;
    heft__spelling *spellings; /* under list_unknown_dtypes, of safetensors: by rising `name` */
    uint64_t nspellings, spellings_capacity;
    heft__arena arena;      /* shapes */
    heft__hash_index names; /* number = entry index; of a repeated name the last entry is kept */
    heft__faults faults;    /* warnings and notes; under `collect` errors too; in order of the rules */
    heft_error *fatal;      /* under `collect`: the full error that ended the listing, whose entries are then those read so
                             * far, in header order and unchecked; NULL: none */
    uint64_t nfillers;
    bool overlay;           /* lies over the files before it: its tensors replace theirs of the same name */
    uint64_t nreplaced;     /* entries that are marked so */
    uint64_t nvisible, nwithheld; /* set by the union: tensors of the archive; hidden because the index does not name them */
} heft__listing;

/* Where in the file an entry's bytes start. HEFT_NONE: beyond 2^64, which only a check lets live. */
static inline uint64_t heft__entry_offset(const heft__listing *listing, const heft__entry *entry) {
    uint64_t offset = HEFT_NONE;
    heft__add_u64(listing->data_start, entry->begin, &offset);
    return offset;
}

/* Bytes after the header that vector code may read. */
#define HEFT__HEADER_SLACK 64

void heft__listing_init(heft__listing *listing, const heft_allocator *alloc);
void heft__listing_free(heft__listing *listing); /* what it holds, not the struct */

/* Bytes of the file itself. */
static inline uint64_t heft__listing_file_nbytes(const heft__listing *listing) {
    return listing->file_nbytes ? listing->file_nbytes : heft_source_size(listing->source);
}

/* Appends an entry with a copy of its shape, its name not indexed; `name` must stay, with a NUL after it. NULL: no memory. */
heft__entry *heft__listing_add(heft__listing *listing, const char *name, uint32_t name_len, heft_dtype dtype,
                               uint32_t rank, const uint64_t *shape);
/* How the file spells the dtype of an entry of HEFT_DTYPE_NONE; NULL: no safetensors file could spell it. */
const heft__spelling *heft__listing_spelling(const heft__listing *listing, const heft__entry *entry);
/* Indexes all names. *twice is the second entry of a name that comes twice (the first such one), UINT32_MAX: there is none.
 * False: out of memory. */
bool heft__listing_index(heft__listing *listing, uint32_t *twice);

/* Adds a record; false only out of memory. */
bool heft__faults_add(heft__faults *faults, const heft_allocator *alloc, heft__fault fault);

/* faults.c: the text of a record about one file. */
void heft__fault_describe(const heft__fault *fault, const heft__listing *listing, heft_error *out);

/* The entry of a name, or UINT32_MAX. */
uint32_t heft__listing_find(const heft__listing *listing, const char *name, size_t len);

/* ---- a report: records of several listings, and of the set that they make ---- */
typedef struct heft__text {
    const char *text; /* NUL after it */
    size_t len;
} heft__text;

/* As `entry` of a record: `value` is an index into the report's `errors`, which hold its whole text. */
#define HEFT__FAULT_WHOLE (UINT32_MAX - 1)

struct heft_report {
    heft_allocator alloc;
    heft__listing *const *listings; /* of the archive, or owned */
    uint32_t nlistings;
    bool owned;
    bool failed; /* an allocation failed */
    heft__faults faults;
    heft__arena arena; /* behind `texts` and `index_path` */
    heft__text *texts; /* names that records of the set refer to */
    uint64_t ntexts, texts_capacity;
    heft_error *errors;
    uint64_t nerrors, errors_capacity;
    const char *path, *index_path; /* what was opened; the index that decides, NULL: none */
    heft_report_summary summary;
};

heft_report *heft__report_new(const heft_allocator *alloc); /* NULL: out of memory */
void heft__report_free(heft_report *report);                /* NULL does nothing */
/* Each adds to a report; out of memory sets `failed`, to be looked at once at the end. */
void heft__report_add(heft_report *report, heft__fault fault);
void heft__report_add_error(heft_report *report, heft_severity severity, uint32_t file, const heft_error *error);
uint64_t heft__report_text(heft_report *report, const char *text, size_t len); /* its index */
/* Moves the records of a listing that is number `file` of the set into the report: kept twice, those of a hostile header
 * would be larger than all else. */
void heft__report_take_listing(heft_report *report, heft__listing *listing, uint32_t file);
/* The set first, then by file, then by offset; equal ones stay in the order of adding. False: out of memory. */
bool heft__report_sort(heft_report *report);
void heft__report_describe(const heft_report *report, const heft__fault *fault, heft_error *out);
/* Fails with the first record of severity `least` or above, `more` counting the others; HEFT_OK if there is none. */
heft_status heft__report_fail(const heft_report *report, heft_severity least, heft_error *err);
/* set_faults.c: the text of a record whose kind belongs to a set; false for other kinds. */
bool heft__set_fault_describe(const heft_report *report, const heft__fault *fault, heft_error *out);

/* ---- the archive ---- */
typedef struct heft__ref {
    uint32_t file, entry;
} heft__ref;

struct heft_archive {
    atomic_uint refs;
    heft_allocator alloc;
    heft__listing **files;
    uint32_t nfiles;
    heft__ref *tensors; /* visible ones by id, in order (file, entry); NULL: one file, all visible, id = entry */
    uint64_t ntensors;
    double open_seconds;         /* that opening took */
    heft__hash_index index;      /* number = id */
    heft_pair *metadata;         /* merged; points into the listings, of one file it is the listing's own */
    uint64_t nmetadata, metadata_capacity;
    char *path, *index_path, *resolution; /* index_path may be NULL */
    heft_report *warnings;
    _Atomic(uint64_t *) orders[3];        /* by heft_order: made on demand, published once */
    _Atomic(heft__mapping *) *mappings;   /* per file: whole-file mapping, made by the first borrow */
};

/* How files become one archive (union.c). Takes listings and report over in any case: they are freed with the archive, or
 * here on failure. Entries with HEFT__ENTRY_HIDDEN stay out, fillers are hidden here. Of a visible name in two
 * listings the first is found, and each further one is an error in the report (SHARED_NAME), which the caller judges.
 * Fails only for memory and LIMIT. */
typedef struct heft__union_input {
    heft__listing **listings; /* a block of nlistings pointers; each points to a block of one listing */
    uint32_t nlistings;
    const char *path, *index_path, *resolution; /* copied; index_path NULL: no entry is withheld */
    heft__hash_index *names; /* an index's table, if it names what is visible and nothing else: taken over; NULL: none */
    heft_report *report; /* faults and warnings of the set so far; becomes the archive's warnings */
    bool show_fillers;
} heft__union_input;
heft_status heft__union(const heft_allocator *alloc, heft__union_input *input, heft_archive **out, heft_error *err);
heft__listing *heft__listing_new(const heft_allocator *alloc); /* for a union; NULL: out of memory */
void heft__listing_delete(heft__listing *listing);             /* NULL does nothing */

/* The entry behind an id that is in range. */
static inline const heft__entry *heft__archive_entry(const heft_archive *archive, uint64_t id, uint32_t *file) {
    heft__ref ref = archive->tensors ? archive->tensors[id] : (heft__ref){0, (uint32_t)id};
    *file = ref.file;
    return &archive->files[ref.file]->entries[ref.entry];
}

void heft__archive_free(heft_archive *archive);
/* Frees an archive but for its report, which then owns the listings. */
heft_report *heft__archive_report(heft_archive *archive);

/* The id of a name, or HEFT_NONE. */
uint64_t heft__archive_lookup(const heft_archive *archive, const char *name, size_t len);

/* find.c: NOT_FOUND for a name, offering the nearest ones. */
heft_status heft__archive_fail_name(const heft_archive *archive, const char *name, size_t len, heft_error *err);

/* order.c: *ids lives as long as the archive. `order` is a known one. */
heft_status heft__archive_order(const heft_archive *archive, heft_order order, const uint64_t **ids, heft_error *err);

/* select.c: INVALID_ARGUMENT, with the offset, for a malformed glob that the caller calls `what`. */
heft_status heft__glob_refuse(const char *what, const char *glob, heft_error *err);

/* The ids kept, at most count of them, written to ids[]. */
heft_status heft__archive_select(const heft_archive *archive, const heft_selection *selection, uint64_t *ids,
                                 uint64_t *nids, heft_error *err);

/* What the public structs hold. `id` and `file` are in range. */
void heft__archive_tensor(const heft_archive *archive, uint64_t id, heft_tensor *out);

/* metadata.c: fills archive->metadata; a warning tells how many keys differ between files. False: out of memory. */
bool heft__archive_merge_metadata(heft_archive *archive);

#endif
