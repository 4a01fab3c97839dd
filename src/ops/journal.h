/* ops: journals of edits in place: what they hold, whether they belong to a file, and how opening finds them. */
#ifndef HEFT_OPS_JOURNAL_H
#define HEFT_OPS_JOURNAL_H

#include "ops/ops.h"

enum { HEFT__JOURNAL_NAME = 256 };

/* What the header of a file was and is to be, and which file that was. The headers are of one length: 8 and what the first 8
 * bytes say. */
typedef struct heft__journal {
    uint64_t header_nbytes, file_nbytes;
    uint64_t inode; /* of the file, and its time before the edit */
    int64_t mtime_ns;
    char writer[HEFT__JOURNAL_NAME]; /* as a temporary file of the writer would be named */
    char name[HEFT__JOURNAL_NAME];   /* of the file */
    const uint8_t *before, *after;
} heft__journal;

/* The bytes of one, and how many: a fixed head, both headers, a CRC-32 of all that. HEFT_NONE: too many. */
uint64_t heft__journal_nbytes(uint64_t header_nbytes);
void heft__journal_write(const heft__journal *journal, uint8_t *out);
/* Reads what anybody may have written; `before` and `after` point into it. False: *why says why not (static). */
bool heft__journal_parse(const uint8_t *data, uint64_t nbytes, heft__journal *out, const char **why);

/* Whether a whole journal belongs to a file as it is now. */
typedef enum heft__journal_fit {
    HEFT__JOURNAL_FOREIGN, /* it does not: another took the place of that file, or its header was written by others since */
    HEFT__JOURNAL_UNDONE,  /* the file has its old header, but was touched: by the edit, or by others: nobody knows */
    HEFT__JOURNAL_FITS     /* untouched, or its header is made of sectors of the old and the new one, or is partly written */
} heft__journal_fit;
/* `header`: the first journal->header_nbytes bytes of the file. `writing`: the writer may be at it now, so that sectors may be
 * torn too. */
heft__journal_fit heft__journal_judge(const heft__journal *journal, uint64_t file_nbytes, uint64_t inode, int64_t mtime_ns,
                                      const uint8_t *header, bool writing);
/* Whether the writer lives, or is this process. */
bool heft__journal_is_written(const heft__journal *journal);

/* Whether a name looks like that of a journal, and what stands in it: the name of the file, where that was not too long. */
bool heft__journal_is(const char *name);
void heft__journal_base(const char *name, char out[HEFT__JOURNAL_NAME]);
/* Reports journals in the folder of a resolution that belong to no file of the name that they were made for. (check_journals.c) */
void heft__check_journals(const heft__resolution *resolution, heft_report *report);

/* ---- opening (journal_open.c) ---- */

/* Where the file of a source lies: `name` in `directory`, or a path. */
typedef struct heft__journal_place {
    heft__directory *directory; /* NULL: none */
    const char *name;
    bool beneath; /* as in heft__directory_source */
    uint32_t beneath_levels;
} heft__journal_place;

/* After the scan of a file, which ended with `status` and *listing: looks for its journal. If there is one that fits, the file is
 * scanned again with the new header; in any case a warning says what was found. Returns the status of the scan that counts. */
heft_status heft__journal_rescan(heft_source *source, const heft__journal_place *place, const heft__scan_options *options,
                                 heft__listing **listing, heft_status status, heft_error *err);

#endif
