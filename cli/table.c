/* cli: prints tables, aligned, in two passes over the rows: widths, then text. */
#include "table.h"

#include <string.h>

/* Larger tables are printed here even on a terminal: a library would hold every cell. */
#define TABLE_SMALL 2000
/* A column is not cut below this, nor below its title. */
#define TABLE_LEAST 4
/* Cells wider than this do not widen their column: one name of megabytes must not pad a million rows. */
#define TABLE_MOST 160

typedef struct table_state {
    const cli_table *table;
    size_t widths[CLI_TABLE_COLUMNS];
    cli_text cell, line;
} table_state;

static void table_measure(table_state *t, bool titles) {
    const cli_table *table = t->table;
    for (size_t c = 0; c < table->ncolumns; c++) t->widths[c] = titles ? strlen(table->columns[c].title) : 0;
    for (uint64_t row = 0; row < table->nrows; row++)
        for (size_t c = 0; c < table->ncolumns; c++) {
            t->cell.len = 0;
            table->cell(table->ctx, row, c, &t->cell);
            size_t width = cli_columns(t->cell.data, t->cell.len);
            if (width > t->widths[c]) t->widths[c] = width < TABLE_MOST ? width : TABLE_MOST;
        }
}

static size_t table_least(const cli_column *column) {
    size_t title = strlen(column->title);
    return title > TABLE_LEAST ? title : TABLE_LEAST;
}

/* The widest column that can still shrink, SIZE_MAX if there is none; *second: how wide the next one is. */
static size_t table_widest(const table_state *t, size_t *second) {
    size_t best = SIZE_MAX;
    *second = 0;
    for (size_t c = 0; c < t->table->ncolumns; c++) {
        if (!t->table->columns[c].shrinks || t->widths[c] <= table_least(&t->table->columns[c])) continue;
        if (best == SIZE_MAX || t->widths[c] > t->widths[best]) {
            if (best != SIZE_MAX) *second = t->widths[best];
            best = c;
        } else if (t->widths[c] > *second) {
            *second = t->widths[c];
        }
    }
    return best;
}

/* Takes what is too much for the terminal from the columns that may shrink, the widest first. */
static void table_shrink(table_state *t, size_t width) {
    size_t total = 2 * (t->table->ncolumns - 1), second;
    for (size_t c = 0; c < t->table->ncolumns; c++) total += t->widths[c];
    while (total > width) {
        size_t best = table_widest(t, &second);
        if (best == SIZE_MAX) return;
        size_t least = table_least(&t->table->columns[best]);
        if (second < least) second = least;
        size_t cut = t->widths[best] > second ? t->widths[best] - second : 1;
        if (cut > total - width) cut = total - width;
        t->widths[best] -= cut;
        total -= cut;
    }
}

/* The cell cut in its middle: both ends of a tensor's name tell what it is. */
static void table_cut(cli_text *cell, size_t width) {
    size_t columns = cli_columns(cell->data, cell->len);
    if (columns <= width || width < 3) return;
    size_t head = (width - 1) / 2, tail = width - 1 - head;
    size_t nhead = cli_columns_fit(cell->data, cell->len, head);
    size_t skip = cli_columns_fit(cell->data, cell->len, columns - tail);
    /* A character of two columns may straddle the cut: leave it out. */
    while (cli_columns(cell->data + skip, cell->len - skip) > tail)
        skip += cli_columns_fit(cell->data + skip, cell->len - skip, 2);
    size_t ntail = cell->len - skip;
    cli_text_put(cell, "   ", 3); /* room: the ellipsis may be longer than what it replaces */
    memmove(cell->data + nhead + 3, cell->data + skip, ntail);
    memcpy(cell->data + nhead, "\xE2\x80\xA6", 3);
    cell->len = nhead + 3 + ntail;
}

static void table_put(table_state *t, size_t c, cli_style style) {
    const cli_column *column = &t->table->columns[c];
    if (cli_screen_get()->terminal) table_cut(&t->cell, t->widths[c]);
    size_t used = cli_columns(t->cell.data, t->cell.len);
    size_t blanks = used < t->widths[c] ? t->widths[c] - used : 0;
    if (c) cli_text_str(&t->line, "  ");
    if (column->right) cli_text_repeat(&t->line, " ", blanks);
    cli_text_styled(&t->line, style, t->cell.data, t->cell.len);
    if (!column->right && c + 1 < t->table->ncolumns) cli_text_repeat(&t->line, " ", blanks);
}

void cli_table_print(const cli_table *table) {
    const cli_screen *screen = cli_screen_get();
    if (screen->terminal && table->nrows && table->nrows <= TABLE_SMALL && cli_table_fit(table, screen->width)) return;
    table_state t = {.table = table};
    bool titles = screen->terminal || table->titled;
    table_measure(&t, titles);
    if (screen->terminal && table->nrows) table_shrink(&t, screen->width);
    if (titles && table->nrows) {
        for (size_t c = 0; c < table->ncolumns; c++) {
            t.cell.len = 0;
            cli_text_str(&t.cell, table->columns[c].title);
            table_put(&t, c, CLI_BOLD);
        }
        cli_print(&t.line);
    }
    bool more = true;
    for (uint64_t row = 0; row < table->nrows && more; row++) {
        for (size_t c = 0; c < table->ncolumns; c++) {
            t.cell.len = 0;
            cli_style style = table->cell(table->ctx, row, c, &t.cell);
            table_put(&t, c, style);
        }
        more = cli_print(&t.line);
    }
    cli_text_free(&t.cell);
    cli_text_free(&t.line);
}
