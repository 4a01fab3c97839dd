/* cli: tables. Cells are made on demand, one row at a time, so that a table of a million rows costs no memory. */
#ifndef HEFT_CLI_TABLE_H
#define HEFT_CLI_TABLE_H

#include "cli.h"

#define CLI_TABLE_COLUMNS 12

typedef struct cli_column {
    const char *title;
    bool right;    /* aligned to the right */
    bool shrinks;  /* may be cut in the middle to fit a terminal */
} cli_column;

typedef struct cli_table {
    const cli_column *columns;
    size_t ncolumns; /* at most CLI_TABLE_COLUMNS */
    uint64_t nrows;
    /* Appends the escaped text of a cell; returns its style. */
    cli_style (*cell)(void *ctx, uint64_t row, size_t column, cli_text *text);
    void *ctx;
    bool titled; /* has its line of titles in a pipe too: one of several tables of a report */
} cli_table;

/* Prints a table: fitted to the terminal with a line of titles, or whole, aligned and (unless `titled`) without titles when
 * piped. */
void cli_table_print(const cli_table *table);

/* Fits a small table to a terminal by a library (table_smartcols.c). False where there is none: the caller does it. */
bool cli_table_fit(const cli_table *table, size_t width);
/* Whether there is one. */
bool cli_table_fits_by_library(void);

#endif
