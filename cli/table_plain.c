/* cli: without a table library tables are fitted to the terminal by table.c. */
#include "table.h"

#if !HEFT_WITH_SMARTCOLS

bool cli_table_fit(const cli_table *table, size_t width) {
    (void)table;
    (void)width;
    return false;
}

bool cli_table_fits_by_library(void) {
    return false;
}

#endif
