/* cli: prints what heft info gathered, for people. */
#include "info.h"

#include <stdlib.h>
#include <string.h>

#define INFO_LABEL 12
#define INFO_BAR 24
#define INFO_WARNINGS 20
/* Metadata longer than this is cut on the screen; --json has all of it. */
#define INFO_PAIRS 50
#define INFO_VALUE 2000
#define INFO_LINES 40
/* Columns of a name. */
#define INFO_NAME 400

/* Starts a line: the label, or blanks where it goes on. */
static void info_label(cli_text *line, const char *label) {
    cli_text_put(line, "  ", 2);
    cli_text_styled(line, CLI_DIM, label, strlen(label));
    cli_text_repeat(line, " ", INFO_LABEL - strlen(label));
}

static void info_what(const info_facts *f, cli_text *line) {
    info_label(line, "format");
    cli_text_format(line, "%s, ", f->format ? f->format : "safetensors");
    cli_text_plural(line, f->nfiles, "file");
    cli_text_str(line, ", ");
    cli_text_size(line, f->file_nbytes);
    cli_text_format(line, " (%s)", heft_archive_resolution(f->archive));
    cli_print(line);
    info_label(line, "kind");
    if (strcmp(f->kind.certainty, "unknown") == 0) cli_text_format(line, "unknown: %s", f->kind.reason);
    else cli_text_format(line, "%s (%s: %s)", f->kind.name, f->kind.certainty, f->kind.reason);
    cli_print(line);
    info_label(line, "tensors");
    cli_text_grouped(line, f->ntensors);
    if (f->empty) {
        cli_text_str(line, ", of which ");
        cli_text_grouped(line, f->empty);
        cli_text_str(line, " without elements");
    }
    cli_print(line);
}

static void info_parameters(const info_facts *f, cli_text *line) {
    info_label(line, "parameters");
    cli_text_count(line, f->nelems);
    if (f->nelems >= 1000) {
        cli_text_str(line, " (");
        cli_text_grouped(line, f->nelems);
        cli_text_str(line, " elements)");
    }
    cli_print(line);
    if (!*f->kind.packing) return;
    info_label(line, "quantized");
    cli_text_format(line, "%s (%s: %s)", f->kind.packing, f->kind.packing_certainty, f->kind.packing_reason);
    cli_print(line);
    if (!f->kind.packed_tensors) return;
    info_label(line, "");
    cli_text_plural(line, f->kind.packed_tensors, "tensor");
    cli_text_str(line, " of ");
    cli_text_size(line, f->kind.packed_nbytes);
    cli_text_str(line, f->kind.packed_tensors == 1 ? " holds several weights an element: "
                                                   : " hold several weights an element: ");
    uint32_t bits = f->kind.packed_bits ? f->kind.packed_bits : 4;
    cli_text_count(line, f->kind.packed_nbytes / bits * 8 + f->kind.packed_nbytes % bits * 8 / bits);
    cli_text_format(line, f->kind.packed_bits ? " weights of %u bits" : " weights if each has %u bits", bits);
    cli_print(line);
}

typedef struct info_share {
    heft_dtype dtype;
    uint64_t nbytes;
} info_share;

static int info_by_share(const void *a, const void *b) {
    const info_share *x = a, *y = b;
    if (x->nbytes != y->nbytes) return x->nbytes > y->nbytes ? -1 : 1;
    return x->dtype < y->dtype ? -1 : x->dtype > y->dtype;
}

/* Eighths of a block, so that small shares still show. */
static void info_bar(cli_text *line, uint64_t part, uint64_t whole) {
    static const char *const eighths[] = {"",         "\xE2\x96\x8F", "\xE2\x96\x8E", "\xE2\x96\x8D",
                                          "\xE2\x96\x8C", "\xE2\x96\x8B", "\xE2\x96\x8A", "\xE2\x96\x89"};
    while (part > UINT64_MAX / (INFO_BAR * 8)) {
        part /= 2;
        whole /= 2;
    }
    uint64_t n = whole ? part * INFO_BAR * 8 / whole : 0;
    if (n == 0 && part) n = 1;
    cli_text bar = {0};
    cli_text_repeat(&bar, "\xE2\x96\x88", (size_t)(n / 8));
    cli_text_str(&bar, eighths[n % 8]);
    cli_text_styled(line, CLI_ACCENT, bar.data, bar.len);
    cli_text_free(&bar);
    cli_text_repeat(line, " ", (size_t)(INFO_BAR - n / 8 - (n % 8 != 0)));
}

static void info_right(cli_text *line, cli_text *cell, size_t width) {
    cli_text_repeat(line, " ", cell->len < width ? width - cell->len : 0);
    cli_text_put(line, cell->data, cell->len);
    cell->len = 0;
}

static void info_dtypes(const info_facts *f, cli_text *line) {
    info_share shares[HEFT_DTYPE_COUNT];
    size_t n = 0;
    cli_text cell = {0};
    for (uint32_t d = 0; d < HEFT_DTYPE_COUNT; d++)
        if (f->dtypes[d].tensors) shares[n++] = (info_share){d, f->dtypes[d].nbytes};
    qsort(shares, n, sizeof *shares, info_by_share);
    for (size_t i = 0; i < n; i++) {
        const info_dtype *sum = &f->dtypes[shares[i].dtype];
        const char *name = shares[i].dtype == HEFT_DTYPE_NONE ? "unknown" : heft_dtype_name(shares[i].dtype);
        info_label(line, i ? "" : "dtypes");
        cli_text_format(line, "%-12s", name);
        info_bar(line, sum->nbytes, f->nbytes);
        cli_text_percent(&cell, sum->nbytes, f->nbytes);
        info_right(line, &cell, 9);
        cli_text_size(&cell, sum->nbytes);
        info_right(line, &cell, 12);
        cli_text_str(line, "  ");
        cli_text_plural(line, sum->tensors, "tensor");
        cli_print(line);
    }
    cli_text_free(&cell);
}

static void info_header(const info_facts *f, cli_text *line) {
    info_label(line, "header");
    cli_text_grouped(line, f->header_nbytes);
    cli_text_str(line, " bytes");
    if (f->nfiles == 1 && f->header_nbytes == 0) {
        cli_text_str(line, " before all data: each array has a header of its own");
    } else if (f->nfiles == 1) {
        cli_text_str(line, "; data starts at ");
        cli_text_grouped(line, f->data_start);
        cli_text_format(line, ", %llu mod 64", (unsigned long long)(f->data_start % 64));
    } else {
        cli_text_str(line, " in all files");
    }
    cli_print(line);
    info_label(line, "alignment");
    cli_text_grouped(line, f->aligned);
    cli_text_str(line, " of ");
    cli_text_plural(line, f->ntensors, "tensor");
    cli_text_str(line, f->ntensors == 1 ? " is aligned to its element, " : " are aligned to their element, ");
    cli_text_grouped(line, f->aligned64);
    cli_text_str(line, " of them to 64 bytes; ");
    cli_text_grouped(line, f->borrowable);
    cli_text_str(line, " can be borrowed without a copy");
    cli_print(line);
    info_label(line, "memory");
    cli_text_str(line, "as views ");
    cli_text_size(line, f->borrowed_nbytes);
    cli_text_str(line, " mapped and ");
    cli_text_size(line, f->nbytes - f->borrowed_nbytes);
    cli_text_str(line, " copied; read ");
    cli_text_size(line, f->nbytes);
    cli_print(line);
}

static void info_largest_lines(const info_facts *f, cli_text *line) {
    for (uint32_t i = 0; i < f->nlargest; i++) {
        const cli_fold_line *entry = &f->fold.lines[f->largest[i].place];
        heft_tensor t;
        if (heft_archive_get(f->archive, entry->id, &t, NULL) != HEFT_OK) continue;
        info_label(line, i ? "" : "largest");
        cli_text_format(line, "%llu\xC3\x97 ", (unsigned long long)entry->count);
        size_t shown = cli_columns_fit(entry->label, entry->label_len, INFO_NAME);
        cli_text_put(line, entry->label, shown);
        if (shown < entry->label_len) cli_text_str(line, "\xE2\x80\xA6");
        cli_text_format(line, "  %s ", heft_dtype_name(t.dtype));
        cli_text_shape(line, t.rank, t.shape);
        cli_text_str(line, "  ");
        cli_text_size(line, t.nbytes);
        if (entry->count > 1) cli_text_str(line, " each");
        cli_print(line);
    }
    if (f->fold.count > f->nlargest && f->nlargest) {
        info_label(line, "");
        cli_text_str(line, "and ");
        cli_text_grouped(line, f->fold.count - f->nlargest);
        cli_text_str(line, " more; heft ls --fold lists all");
        cli_print(line);
    }
}

/* One pair: text as it is, JSON inside of it laid out for reading. */
static void info_pair(const heft_pair *pair, const char *label, cli_text *line) {
    cli_text pretty = {0};
    info_label(line, label);
    cli_text_escaped(line, pair->key, pair->key_len);
    cli_text_str(line, " = ");
    if (cli_text_pretty_json(&pretty, pair->value, pair->value_len, INFO_LABEL + 4)) {
        size_t lines = 0, len = 0;
        while (len < pretty.len && lines < INFO_LINES) lines += pretty.data[len++] == '\n';
        if (len < pretty.len) len--; /* without the last newline */
        cli_text_put(line, pretty.data, len);
        if (len < pretty.len) {
            cli_text_str(line, "\n");
            cli_text_repeat(line, " ", INFO_LABEL + 4);
            cli_text_str(line, "\xE2\x80\xA6 more in heft info --json");
        }
    } else {
        cli_text_escaped(line, pair->value, pair->value_len < INFO_VALUE ? pair->value_len : INFO_VALUE);
        if (pair->value_len > INFO_VALUE) cli_text_str(line, "\xE2\x80\xA6 (all of it in heft info --json)");
    }
    cli_print(line);
    cli_text_free(&pretty);
}

static void info_metadata(const info_facts *f, cli_text *line) {
    uint64_t count = heft_archive_metadata_count(f->archive, HEFT_MERGED);
    if (!count) {
        info_label(line, "metadata");
        cli_text_str(line, f->has_metadata ? "empty" : "none");
        cli_print(line);
    }
    for (uint64_t i = 0; i < count && i < INFO_PAIRS; i++) {
        heft_pair pair;
        if (heft_archive_metadata(f->archive, HEFT_MERGED, i, &pair, NULL) == HEFT_OK)
            info_pair(&pair, i ? "" : "metadata", line);
    }
    if (count > INFO_PAIRS) {
        info_label(line, "");
        cli_text_str(line, "and ");
        cli_text_grouped(line, count - INFO_PAIRS);
        cli_text_str(line, " more; heft info --json has all");
        cli_print(line);
    }
}

static void info_set(const info_facts *f, cli_text *line) {
    const char *index = heft_archive_index_path(f->archive);
    info_label(line, "index");
    if (index) cli_text_escaped(line, index, strlen(index));
    else cli_text_str(line, "none");
    if (f->withheld) {
        cli_text_str(line, ", which leaves out ");
        cli_text_plural(line, f->withheld, "tensor");
        cli_text_str(line, " of the files");
    }
    cli_print(line);
    for (uint32_t i = 0; i < f->nfiles; i++) {
        heft_file file;
        if (heft_archive_file(f->archive, i, &file, NULL) != HEFT_OK || !file.overlay) continue;
        info_label(line, "overlay");
        cli_text_escaped(line, file.path, strlen(file.path));
        cli_text_str(line, ", ");
        cli_text_plural(line, file.ntensors, "tensor");
        cli_print(line);
    }
    if (f->replaced) {
        info_label(line, "replaced");
        cli_text_plural(line, f->replaced, "tensor");
        cli_text_str(line, ", of which overlays have others");
        cli_print(line);
    }
    info_label(line, "fillers");
    if (f->fillers) cli_text_grouped(line, f->fillers);
    else cli_text_str(line, "none");
    cli_print(line);
}

static void info_warnings(const info_facts *f, cli_text *line) {
    const heft_report *report = heft_archive_warnings(f->archive);
    uint64_t shown = 0, warnings = heft_report_count_of(report, HEFT_SEVERITY_WARNING);
    if (!warnings) {
        info_label(line, "warnings");
        cli_text_str(line, "none");
        cli_print(line);
        return;
    }
    for (uint64_t i = 0; i < heft_report_count(report) && shown < INFO_WARNINGS; i++) {
        heft_severity severity;
        heft_error fault;
        if (heft_report_get(report, i, &severity, &fault, NULL) != HEFT_OK || severity < HEFT_SEVERITY_WARNING) continue;
        info_label(line, shown++ ? "" : "warnings");
        cli_text_styled(line, CLI_WARN, heft_fault_name(fault.fault), strlen(heft_fault_name(fault.fault)));
        cli_text_format(line, ": %s", fault.message);
        cli_print(line);
    }
    if (warnings > shown) {
        info_label(line, "");
        cli_text_str(line, "and ");
        cli_text_grouped(line, warnings - shown);
        cli_text_str(line, " more; heft check lists them");
        cli_print(line);
    }
}

void cli_info_screen(const info_facts *f) {
    cli_text line = {0}, path = {0};
    cli_text_escaped(&path, f->path, strlen(f->path));
    cli_text_styled(&line, CLI_BOLD, path.data, path.len);
    cli_print(&line);
    info_what(f, &line);
    info_parameters(f, &line);
    info_dtypes(f, &line);
    info_header(f, &line);
    info_largest_lines(f, &line);
    info_metadata(f, &line);
    info_set(f, &line);
    info_warnings(f, &line);
    cli_text_free(&line);
    cli_text_free(&path);
}
