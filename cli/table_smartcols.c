/* cli: fits tables to the terminal with libsmartcols, which wraps long names where table.c would cut them. */
#include "table.h"

#if HEFT_WITH_SMARTCOLS

#include <libsmartcols/libsmartcols.h>
#include <stdio.h>

bool cli_table_fits_by_library(void) {
    return true;
}

static const char *smartcols_colour(cli_style style) {
    switch (style) {
    case CLI_BOLD: return "bold";
    case CLI_DIM: return "darkgray";
    case CLI_GOOD: return "green";
    case CLI_BAD: return "red";
    case CLI_WARN: return "yellow";
    case CLI_ACCENT: return "cyan";
    case CLI_PLAIN: break;
    }
    return NULL;
}

static bool smartcols_columns(struct libscols_table *out, const cli_table *table) {
    for (size_t c = 0; c < table->ncolumns; c++) {
        const cli_column *column = &table->columns[c];
        int narrow = c == 0 ? SCOLS_FL_WRAP : SCOLS_FL_TRUNC;
        int flags = (column->right ? SCOLS_FL_RIGHT : 0) | (column->shrinks ? narrow : 0);
        if (!scols_table_new_column(out, column->title, 0, flags)) return false;
    }
    return true;
}

/* The library measures text by the rules of the locale, which a program of UTF-8 output does not follow: tables with more
 * than ASCII are left to table.c. */
static bool smartcols_is_ascii(const char *text) {
    for (; *text; text++)
        if ((unsigned char)*text >= 0x80) return false;
    return true;
}

static bool smartcols_rows(struct libscols_table *out, const cli_table *table, cli_text *cell) {
    for (uint64_t row = 0; row < table->nrows; row++) {
        struct libscols_line *line = scols_table_new_line(out, NULL);
        if (!line) return false;
        for (size_t c = 0; c < table->ncolumns; c++) {
            cell->len = 0;
            cli_style style = table->cell(table->ctx, row, c, cell);
            cli_text_put(cell, "", 1); /* its NUL */
            if (!smartcols_is_ascii(cell->data) || scols_line_set_data(line, c, cell->data)) return false;
            const char *colour = smartcols_colour(style);
            if (colour) scols_cell_set_color(scols_line_get_cell(line, c), colour);
        }
    }
    return true;
}

bool cli_table_fit(const cli_table *table, size_t width) {
    struct libscols_table *out = scols_new_table();
    if (!out) return false;
    cli_text cell = {0};
    scols_table_enable_colors(out, cli_screen_get()->colour);
    scols_table_set_column_separator(out, "  ");
    scols_table_set_termforce(out, SCOLS_TERMFORCE_ALWAYS);
    scols_table_set_termwidth(out, width);
    bool done = smartcols_columns(out, table) && smartcols_rows(out, table, &cell);
    cli_flush();
    if (done) done = scols_print_table(out) == 0;
    scols_unref_table(out);
    cli_text_free(&cell);
    return done;
}

#endif
