/* cli: heft info: what a checkpoint is, on one screen. */
#include "info.h"

#include <stdlib.h>
#include <string.h>

#define INFO_KINDS_MOST ((uint64_t)1 << 20) /* of a --kinds file */

/* ---- gathering --------------------------------------------------------------------------------------------------- */

static void info_tensor(info_facts *f, const heft_tensor *t) {
    heft_view view;
    uint64_t element = heft_dtype_bits(t->dtype) / 8;
    info_dtype *sum = &f->dtypes[t->dtype < HEFT_DTYPE_COUNT ? t->dtype : HEFT_DTYPE_NONE];
    sum->tensors++;
    sum->nelems += t->nelems;
    sum->nbytes += t->nbytes;
    f->nelems += t->nelems;
    f->nbytes += t->nbytes;
    if (element < 2 || t->offset % element == 0) f->aligned++;
    if (t->offset % 64 == 0) f->aligned64++;
    if (t->nelems == 0) f->empty++;
    if (heft_view_of(f->archive, t->id, &view, NULL) == HEFT_OK && heft_can_borrow(&view, 0, NULL) == HEFT_OK) {
        f->borrowable++;
        f->borrowed_nbytes += t->nbytes;
    }
}

static int info_by_bytes(const void *a, const void *b) {
    const info_entry *x = a, *y = b;
    if (x->nbytes != y->nbytes) return x->nbytes > y->nbytes ? -1 : 1;
    return x->place < y->place ? -1 : x->place > y->place;
}

/* The largest lines of the folded listing. */
static void info_largest(info_facts *f) {
    info_entry *all = malloc((size_t)(f->fold.count + 1) * sizeof *all);
    if (!all) cli_die_memory();
    for (uint64_t i = 0; i < f->fold.count; i++) {
        heft_tensor t;
        uint64_t nbytes = heft_archive_get(f->archive, f->fold.lines[i].id, &t, NULL) == HEFT_OK ? t.nbytes : 0;
        all[i] = (info_entry){.nbytes = nbytes * f->fold.lines[i].count, .place = i};
    }
    qsort(all, (size_t)f->fold.count, sizeof *all, info_by_bytes);
    f->nlargest = f->fold.count < INFO_LARGEST ? (uint32_t)f->fold.count : INFO_LARGEST;
    memcpy(f->largest, all, f->nlargest * sizeof *all);
    free(all);
}

static heft_status info_gather(const cli_args *args, const kind_rules *rules, info_facts *f, heft_error *err) {
    const uint64_t *ids;
    heft_status status = heft_archive_order(f->archive, HEFT_ORDER_NATURAL, &ids, err);
    f->args = args;
    f->ntensors = heft_archive_count(f->archive);
    for (uint64_t i = 0; i < f->ntensors && status == HEFT_OK; i++) {
        heft_tensor t;
        status = heft_archive_get(f->archive, i, &t, err);
        if (status == HEFT_OK) info_tensor(f, &t);
    }
    if (status == HEFT_OK) status = cli_fold_make(f->archive, ids, f->ntensors, &f->fold, err);
    if (status != HEFT_OK) return status;
    f->nfiles = heft_archive_file_count(f->archive);
    for (uint32_t i = 0; i < f->nfiles; i++) {
        heft_file file;
        if (heft_archive_file(f->archive, i, &file, NULL) != HEFT_OK) continue;
        f->format = file.format;
        f->file_nbytes += file.nbytes;
        f->header_nbytes += file.header_nbytes;
        f->fillers += file.nfillers;
        f->withheld += file.nwithheld;
        f->replaced += file.nreplaced;
        if (i == 0) f->data_start = file.header_nbytes;
        f->has_metadata = f->has_metadata || file.has_metadata;
    }
    info_largest(f);
    cli_kind_find(f->archive, &f->fold, rules, &f->kind);
    return HEFT_OK;
}

/* ---- the command ------------------------------------------------------------------------------------------------- */

static int info_one(const cli_args *args, const char *path, const kind_rules *rules) {
    heft_archive *archive;
    heft_error err;
    if (cli_open(args, path, &archive, &err) != HEFT_OK) return cli_fail(path, &err);
    info_facts *f = calloc(1, sizeof *f);
    if (!f) cli_die_memory();
    f->archive = archive;
    f->path = path;
    heft_status status = info_gather(args, rules, f, &err);
    if (status == HEFT_OK && args->json) cli_info_json(f);
    else if (status == HEFT_OK) cli_info_screen(f);
    cli_fold_free(&f->fold);
    free(f);
    heft_archive_unref(archive);
    return status == HEFT_OK ? CLI_OK : cli_fail(path, &err);
}

static int info_rules(const char *path, char **text, size_t *len, kind_rules *rules) {
    heft_error err;
    uint64_t line;
    *rules = (kind_rules){0};
    *text = NULL;
    *len = 0;
    if (!path) return CLI_OK;
    if (cli_read_text(path, INFO_KINDS_MOST, text, len, &err) != HEFT_OK) return cli_fail(path, &err);
    if (cli_kinds_parse(*text, *len, rules, &line)) return CLI_OK;
    heft__free(&heft__default_allocator, *text, *len + 1);
    *text = NULL;
    return cli_usage_error("info", "%s: line %llu is no rule like CONFIG(\"bert\", \"BERT encoder\")", path,
                           (unsigned long long)line);
}

int cli_info(const cli_args *args) {
    char *text;
    size_t len;
    kind_rules rules;
    if (!cli_one_stdin(args, 0, args->noperands)) return CLI_USAGE;
    int code = info_rules(args->kinds, &text, &len, &rules);
    if (code != CLI_OK) return code;
    for (size_t i = 0; i < args->noperands; i++) {
        cli_text blank = {0};
        if (i && !args->json) cli_print(&blank);
        cli_text_free(&blank);
        code = cli_worse(code, info_one(args, args->operands[i], &rules));
    }
    cli_kinds_free(&rules);
    heft__free(&heft__default_allocator, text, len + 1);
    return code;
}
