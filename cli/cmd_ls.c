/* cli: heft ls: the tensors of a checkpoint as rows, folded, as a tree, or as JSON. */
#include "table.h"

#include "base/text.h"

#include <stdlib.h>
#include <string.h>

/* Alignments above a page tell nothing. */
#define LS_MOST_ALIGNED 4096

typedef enum ls_key { LS_NAME, LS_SIZE, LS_OFFSET, LS_DTYPE } ls_key;

typedef struct ls_row { /* what rows are sorted by; the rest is asked for when it is printed */
    uint64_t id, place, nbytes, offset;
    uint32_t file, dtype;
} ls_row;

typedef struct ls_state {
    const cli_args *args;
    const heft_archive *archive;
    const char *path;
    uint64_t *ids;
    uint64_t nids;
    ls_row *rows;
    cli_fold fold;
    heft_buffer selected;
    heft_tensor tensor; /* of the row being printed */
    uint64_t cached;    /* its row */
} ls_state;

/* ---- which, and in what order ------------------------------------------------------------------------------------ */

static heft_status ls_select(ls_state *s, heft_error *err) {
    /* The command line's orders are natural, bytes, file; the library's are name, natural, file. */
    static const heft_order orders[] = {HEFT_ORDER_NATURAL, HEFT_ORDER_NAME, HEFT_ORDER_FILE};
    heft_status status = cli_pick(s->args, s->archive, orders[s->args->order], &s->selected, &s->nids, err);
    if (status == HEFT_OK) s->ids = s->selected.data;
    return status;
}

static ls_key ls_sort_keys[4];
static size_t ls_nsort_keys;

static int ls_compare(const void *a, const void *b) {
    const ls_row *x = a, *y = b;
    for (size_t i = 0; i < ls_nsort_keys; i++) {
        int order = 0;
        switch (ls_sort_keys[i]) {
        case LS_NAME: order = x->place < y->place ? -1 : x->place > y->place; break;
        case LS_SIZE: order = x->nbytes > y->nbytes ? -1 : x->nbytes < y->nbytes; break;
        case LS_DTYPE: order = strcmp(heft_dtype_name(x->dtype), heft_dtype_name(y->dtype)); break;
        case LS_OFFSET:
            order = x->file != y->file       ? (x->file < y->file ? -1 : 1)
                    : x->offset < y->offset ? -1
                                             : x->offset > y->offset;
            break;
        }
        if (order) return order;
    }
    return x->place < y->place ? -1 : x->place > y->place;
}

static bool ls_parse_sort(const char *text) {
    static const char *const words[] = {"name", "size", "offset", "dtype"};
    ls_nsort_keys = 0;
    while (*text) {
        size_t n = strcspn(text, ","), key = 0;
        while (key < 4 && !(strlen(words[key]) == n && memcmp(words[key], text, n) == 0)) key++;
        if (key == 4 || ls_nsort_keys == 4) return false;
        ls_sort_keys[ls_nsort_keys++] = (ls_key)key;
        text += n + (text[n] == ',');
    }
    return ls_nsort_keys > 0;
}

static heft_status ls_sort(ls_state *s, heft_error *err) {
    if (s->args->sort && s->nids) {
        s->rows = heft__alloc(&heft__default_allocator, s->nids * sizeof *s->rows);
        if (!s->rows) return heft__fail_memory(err, s->nids * sizeof *s->rows);
        for (uint64_t i = 0; i < s->nids; i++) {
            heft_tensor t;
            heft_status status = heft_archive_get(s->archive, s->ids[i], &t, err);
            if (status != HEFT_OK) return status;
            s->rows[i] = (ls_row){t.id, i, t.nbytes, t.offset, t.file, t.dtype};
        }
        qsort(s->rows, (size_t)s->nids, sizeof *s->rows, ls_compare);
        for (uint64_t i = 0; i < s->nids; i++) s->ids[i] = s->rows[i].id;
    }
    for (uint64_t i = 0; s->args->reverse && i < s->nids / 2; i++) {
        uint64_t id = s->ids[i];
        s->ids[i] = s->ids[s->nids - 1 - i];
        s->ids[s->nids - 1 - i] = id;
    }
    return HEFT_OK;
}

/* ---- rows -------------------------------------------------------------------------------------------------------- */

static void ls_size(const ls_state *s, uint64_t nbytes, cli_text *text) {
    if (s->args->bytes) cli_text_u64(text, nbytes);
    else cli_text_size(text, nbytes);
}

static uint64_t ls_alignment(uint64_t offset) {
    uint64_t power = offset & (~offset + 1);
    return power == 0 || power > LS_MOST_ALIGNED ? LS_MOST_ALIGNED : power;
}

static cli_style ls_cell(void *ctx, uint64_t row, size_t column, cli_text *text) {
    ls_state *s = ctx;
    if (s->cached != row) {
        heft_archive_get(s->archive, s->ids[row], &s->tensor, NULL);
        s->cached = row;
    }
    const heft_tensor *t = &s->tensor;
    heft_file file;
    uint32_t element = heft_dtype_bits(t->dtype) / 8;
    switch (column) {
    case 0: cli_text_name(text, t->name, t->name_len); return CLI_PLAIN;
    case 1: cli_text_str(text, heft_dtype_name(t->dtype)); return CLI_ACCENT;
    case 2: cli_text_shape(text, t->rank, t->shape); return CLI_PLAIN;
    case 3: ls_size(s, t->nbytes, text); return CLI_PLAIN;
    case 4:
        if (t->offset == HEFT_NONE) cli_text_str(text, "-"); /* compressed */
        else cli_text_u64(text, t->offset);
        return CLI_PLAIN;
    case 5:
        if (t->offset == HEFT_NONE) {
            cli_text_str(text, "-");
            return CLI_PLAIN;
        }
        cli_text_u64(text, ls_alignment(t->offset));
        return element > ls_alignment(t->offset) ? CLI_WARN : CLI_PLAIN;
    default:
        if (heft_archive_file(s->archive, t->file, &file, NULL) == HEFT_OK) {
            /* On a terminal width is dear, and the folder is known. */
            const char *slash = cli_screen_get()->terminal ? strrchr(file.path, '/') : NULL;
            const char *name = slash ? slash + 1 : file.path;
            cli_text_escaped(text, name, strlen(name));
        }
        return CLI_PLAIN;
    }
}

static cli_style ls_fold_cell(void *ctx, uint64_t row, size_t column, cli_text *text) {
    ls_state *s = ctx;
    const cli_fold_line *line = &s->fold.lines[row];
    heft_tensor t;
    heft_archive_get(s->archive, line->id, &t, NULL);
    switch (column) {
    case 0:
        cli_text_u64(text, line->count);
        cli_text_str(text, "\xC3\x97"); /* a multiplication sign */
        return CLI_DIM;
    case 1: cli_text_put(text, line->label, line->label_len); return CLI_PLAIN;
    case 2: cli_text_str(text, heft_dtype_name(t.dtype)); return CLI_ACCENT;
    case 3: cli_text_shape(text, t.rank, t.shape); return CLI_PLAIN;
    case 4: ls_size(s, t.nbytes, text); return CLI_PLAIN;
    default: ls_size(s, t.nbytes * line->count, text); return CLI_PLAIN;
    }
}

/* On a terminal the list ends with what it adds up to. */
static void ls_total(const ls_state *s) {
    uint64_t nbytes = 0, nelems = 0;
    cli_text line = {0};
    if (!cli_screen_get()->terminal || s->args->quiet) return;
    for (uint64_t i = 0; i < s->nids; i++) {
        heft_tensor t;
        if (heft_archive_get(s->archive, s->ids[i], &t, NULL) != HEFT_OK) return;
        nbytes += t.nbytes;
        nelems += t.nelems;
    }
    cli_text_plural(&line, s->nids, "tensor");
    cli_text_str(&line, ", ");
    cli_text_count(&line, nelems);
    cli_text_str(&line, nelems == 1 ? " parameter, " : " parameters, ");
    cli_text_size(&line, nbytes);
    cli_text summary = {0};
    cli_text_styled(&summary, CLI_DIM, line.data, line.len);
    cli_print(&summary);
    cli_text_free(&summary);
    cli_text_free(&line);
}

static heft_status ls_rows(ls_state *s, heft_error *err) {
    static const cli_column columns[] = {{"NAME", false, true},    {"DTYPE", false, false}, {"SHAPE", false, false},
                                         {"SIZE", true, false},    {"OFFSET", true, false}, {"ALIGNED", true, false},
                                         {"FILE", false, true}};
    static const cli_column folded[] = {{"", true, false},       {"NAME", false, true}, {"DTYPE", false, false},
                                        {"SHAPE", false, false}, {"EACH", true, false}, {"TOTAL", true, false}};
    cli_table table = {.ctx = s, .columns = columns, .nrows = s->nids, .cell = ls_cell};
    if (s->args->fold) {
        heft_status status = cli_fold_make(s->archive, s->ids, s->nids, &s->fold, err);
        if (status != HEFT_OK) return status;
        table.columns = folded;
        table.ncolumns = sizeof folded / sizeof *folded;
        table.nrows = s->fold.count;
        table.cell = ls_fold_cell;
    } else {
        table.ncolumns = s->args->names_only ? 1 : s->args->long_rows ? 7 : 4;
    }
    cli_table_print(&table);
    if (!s->args->names_only) ls_total(s);
    return HEFT_OK;
}

/* ---- JSON -------------------------------------------------------------------------------------------------------- */

static void ls_json_head(const ls_state *s, heft__json_out *json) {
    heft_file file;
    heft__json_out_key(json, "path", SIZE_MAX);
    heft__json_out_string(json, s->path, SIZE_MAX);
    heft__json_out_key(json, "format", SIZE_MAX);
    bool any = heft_archive_file(s->archive, 0, &file, NULL) == HEFT_OK;
    heft__json_out_string(json, any ? file.format : "safetensors", SIZE_MAX);
    heft__json_out_key(json, "files", SIZE_MAX);
    heft__json_out_array(json);
    for (uint32_t i = 0; i < heft_archive_file_count(s->archive); i++)
        if (heft_archive_file(s->archive, i, &file, NULL) == HEFT_OK) heft__json_out_string(json, file.path, SIZE_MAX);
    heft__json_out_array_end(json);
    heft__json_out_key(json, "metadata", SIZE_MAX);
    cli_json_metadata(json, s->archive);
}

static void ls_json_tensor(heft__json_out *json, const heft_tensor *t) {
    heft__json_out_object(json);
    heft__json_out_key(json, "name", SIZE_MAX);
    heft__json_out_string(json, t->name, t->name_len);
    heft__json_out_key(json, "dtype", SIZE_MAX);
    heft__json_out_string(json, heft_dtype_name(t->dtype), SIZE_MAX);
    heft__json_out_key(json, "shape", SIZE_MAX);
    cli_json_shape(json, t->rank, t->shape);
    heft__json_out_key(json, "nbytes", SIZE_MAX);
    heft__json_out_u64(json, t->nbytes);
    heft__json_out_key(json, "file", SIZE_MAX);
    heft__json_out_u64(json, t->file);
    heft__json_out_key(json, "offset", SIZE_MAX);
    if (t->offset == HEFT_NONE) heft__json_out_null(json);
    else heft__json_out_u64(json, t->offset);
    heft__json_out_object_end(json);
}

static heft_status ls_json(ls_state *s, heft_error *err) {
    heft__json_out json;
    heft_status status = HEFT_OK;
    cli_json_begin(&json, false);
    heft__json_out_object(&json);
    ls_json_head(s, &json);
    heft__json_out_key(&json, "tensors", SIZE_MAX);
    heft__json_out_array(&json);
    for (uint64_t i = 0; i < s->nids && status == HEFT_OK; i++) {
        heft_tensor t;
        status = heft_archive_get(s->archive, s->ids[i], &t, err);
        if (status == HEFT_OK) ls_json_tensor(&json, &t);
        cli_json_flush(&json);
    }
    heft__json_out_array_end(&json);
    heft__json_out_object_end(&json);
    cli_json_end(&json);
    return status;
}

/* ---- the command ------------------------------------------------------------------------------------------------- */

static heft_status ls_run(ls_state *s, heft_error *err) {
    heft_status status = ls_select(s, err);
    if (status == HEFT_OK) status = ls_sort(s, err);
    if (status != HEFT_OK) return status;
    if (s->args->json) return ls_json(s, err);
    if (s->args->tree) {
        cli_tree_options options = {.depth = s->args->depth, .expand = s->args->expand, .bytes = s->args->bytes};
        return cli_tree_print(s->archive, s->ids, s->nids, s->path, &options, err);
    }
    return ls_rows(s, err);
}

static bool ls_options_agree(const cli_args *args) {
    const struct {
        bool wrong;
        const char *why;
    } rules[] = {
        {args->json && (args->tree || args->fold || args->names_only), "--json lists every tensor: it goes with no other form"},
        {args->tree + args->fold + args->names_only + args->long_rows > 1, "--tree, --fold, --names and --long exclude each other"},
        {(args->depth || args->expand) && !args->tree, "--depth and --expand belong to --tree"},
        {args->sort && !ls_parse_sort(args->sort), "--sort takes name, size, offset, dtype, or several with commas"},
        {args->tree && (args->sort || args->reverse || args->order), "a tree has an order of its own"},
    };
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        if (!rules[i].wrong) continue;
        cli_usage_error("ls", "%s", rules[i].why);
        return false;
    }
    return true;
}

int cli_ls(const cli_args *args) {
    if (args->models) return cli_models(args);
    if (!ls_options_agree(args)) return CLI_USAGE;
    ls_state s = {.args = args, .path = args->operands[0], .cached = HEFT_NONE};
    heft_archive *archive;
    heft_error err;
    int code = CLI_OK;
    if (cli_open(args, s.path, &archive, &err) != HEFT_OK) return cli_fail(s.path, &err);
    s.archive = archive;
    cli_warn(args, s.path, archive);
    if (ls_run(&s, &err) != HEFT_OK) code = cli_fail(s.path, &err);
    cli_fold_free(&s.fold);
    heft__free(&heft__default_allocator, s.rows, s.nids * sizeof *s.rows);
    heft_buffer_release(&s.selected);
    heft_archive_unref(archive);
    return code;
}
