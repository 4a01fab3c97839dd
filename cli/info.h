/* cli: what heft info gathers before it prints. */
#ifndef HEFT_CLI_INFO_H
#define HEFT_CLI_INFO_H

#include "kinds.h"

#define INFO_LARGEST 10

typedef struct info_dtype {
    uint64_t tensors, nelems, nbytes;
} info_dtype;

typedef struct info_entry {
    uint64_t nbytes, place; /* of a folded line: all of it, and its number */
} info_entry;

typedef struct info_facts {
    const cli_args *args;
    const char *path, *format;
    const heft_archive *archive;
    uint64_t ntensors, nelems, nbytes, aligned, aligned64, borrowable, borrowed_nbytes, empty;
    uint64_t file_nbytes, header_nbytes, data_start, fillers, withheld, replaced;
    uint32_t nfiles, nlargest;
    bool has_metadata;
    info_dtype dtypes[HEFT_DTYPE_COUNT];
    info_entry largest[INFO_LARGEST];
    cli_fold fold;
    cli_kind kind;
} info_facts;

void cli_info_screen(const info_facts *facts);
void cli_info_json(const info_facts *facts);

/* Appends JSON text found inside a string, indented for reading, each line after `margin` blanks; false if it is none. */
bool cli_text_pretty_json(cli_text *text, const char *json, size_t len, size_t margin);

#endif
