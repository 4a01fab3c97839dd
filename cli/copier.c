/* cli: a copy: what is asked for, made into items of a save, and run. */
#include "copier.h"

#include "base/text.h"

#include <stdlib.h>
#include <string.h>

/* ---- what is asked for ------------------------------------------------------------------------------------------- */

static bool copier_ends(const char *text, const char *suffix) {
    size_t len = strlen(text), n = strlen(suffix);
    return len > n && strcmp(text + len - n, suffix) == 0;
}

/* The target without slashes at its end; what the name says, where no flag does. */
static bool copier_target(cli_copier *c, const char *given) {
    size_t len = strlen(given), cut = len;
    while (cut > 1 && given[cut - 1] == '/') cut--;
    cli_text path = {0};
    cli_text_put(&path, given, cut);
    cli_text_put(&path, "", 1);
    c->target = path.data;
    if (!*given) {
        cli_usage_error(c->command, "the copy needs the path of a file or folder, which \"\" is not");
        return false;
    }
    c->stream = heft__output_is_stream(given);
    if (cut < len && c->form != CLI_COPY_BY_NAME && c->form != CLI_COPY_SHARDED) {
        cli_usage_error(c->command, "\"%s\" names a folder by its slash, and one file is written", given);
        return false;
    }
    if (c->form == CLI_COPY_BY_NAME && !c->stream) {
        if (cut < len || heft__os_is_folder(c->target)) c->form = CLI_COPY_SHARDED;
        else if (copier_ends(c->target, ".safetensors")) c->form = CLI_COPY_SAFETENSORS;
        else if (copier_ends(c->target, ".npz")) c->form = CLI_COPY_NPZ;
        else if (copier_ends(c->target, ".npy")) c->form = CLI_COPY_NPY;
        else if (c->args->shard_size) c->form = CLI_COPY_SHARDED;
    }
    c->fresh = !heft__os_is_there(c->target);
    if (c->form != CLI_COPY_BY_NAME) return true;
    bool copy = strcmp(c->command, "copy") == 0;
    cli_usage_error(c->command, "\"%s\" does not say what to write: %s", c->target,
                    c->stream ? "what is no regular file is written to only by heft copy --to safetensors or npy"
                    : copy    ? "give it a suffix, or --to safetensors, sharded, npz or npy"
                              : "end it with .safetensors, or with a slash for a folder");
    return false;
}

static bool copier_parse_rules(cli_copier *c) {
    const cli_args *args = c->args;
    const struct {
        const char *option;
        const cli_words *words;
    } globs[] = {{"include", &args->include}, {"exclude", &args->exclude}, {"transpose", &args->transpose}};
    for (size_t i = 0; i < sizeof globs / sizeof *globs; i++)
        for (size_t k = 0; k < globs[i].words->n; k++)
            if (!cli_check_glob(c->command, globs[i].option, globs[i].words->items[k])) return false;
    return cli_dtypes_make(c->command, args, &c->dtypes);
}

/* ---- complaints -------------------------------------------------------------------------------------------------- */

void cli_complain_of(const char *path, cli_text *text) {
    cli_text name = {0};
    cli_text_escaped(&name, path, strlen(path));
    cli_complain("%.*s: %.*s", (int)name.len, name.data, (int)text->len, text->data);
    cli_text_free(&name);
    text->len = 0;
}

void cli_copier_warn(cli_copier *c, const char *text, size_t len) {
    c->nwarnings++;
    if (c->args->quiet && !c->args->strict) return;
    cli_text line = {0};
    cli_text_str(&line, "warning: ");
    cli_text_put(&line, text, len);
    cli_complain_of(c->source, &line);
    cli_text_free(&line);
}

static bool copier_matches(const cli_words *globs, const heft_tensor *tensor) {
    for (size_t i = 0; i < globs->n; i++)
        if (heft__glob_match(globs->items[i], strlen(globs->items[i]), tensor->name, tensor->name_len)) return true;
    return false;
}

static void copier_warn_glob(cli_copier *c, const char *option, const char *glob) {
    if (cli_glob_matches(c->archive, glob)) return;
    cli_text line = {0};
    cli_text_format(&line, "--%s \"", option);
    cli_text_escaped(&line, glob, strlen(glob));
    cli_text_str(&line, "\" matches no tensor");
    cli_copier_warn(c, line.data, line.len);
    cli_text_free(&line);
}

/* Globs of --transpose that match, but nothing that has two dims. */
static void copier_warn_transpose(cli_copier *c, const char *glob) {
    heft_tensor tensor;
    bool any = false;
    for (uint64_t id = 0; heft_archive_get(c->archive, id, &tensor, NULL) == HEFT_OK; id++) {
        if (!heft__glob_match(glob, strlen(glob), tensor.name, tensor.name_len)) continue;
        if (tensor.rank >= 2) return;
        any = true;
    }
    if (!any) {
        copier_warn_glob(c, "transpose", glob);
        return;
    }
    cli_text line = {0};
    cli_text_str(&line, "--transpose \"");
    cli_text_escaped(&line, glob, strlen(glob));
    cli_text_str(&line, "\" matches no tensor of two dims or more, so that nothing is transposed by it");
    cli_copier_warn(c, line.data, line.len);
    cli_text_free(&line);
}

static void copier_warn_globs(cli_copier *c) {
    const cli_args *args = c->args;
    for (size_t i = 0; i < args->include.n; i++) copier_warn_glob(c, "include", args->include.items[i]);
    for (size_t i = 0; i < args->exclude.n; i++) copier_warn_glob(c, "exclude", args->exclude.items[i]);
    for (size_t i = 0; i < args->transpose.n; i++) copier_warn_transpose(c, args->transpose.items[i]);
    for (size_t i = 0; i < c->dtypes.nrules; i++) copier_warn_glob(c, "dtype-for", c->dtypes.rules[i].glob);
}

static void copier_warn_map(cli_copier *c) {
    size_t len;
    uint64_t count;
    const char *name = c->renames ? cli_renames_unused(c->renames, &len, &count) : NULL;
    if (!name) return;
    cli_text line = {0};
    cli_text_str(&line, "--map: ");
    cli_text_plural(&line, count, "name");
    cli_text_str(&line, count == 1 ? " is of no tensor that is copied: \"" : " are of no tensor that is copied, such as \"");
    cli_text_escaped(&line, name, len);
    cli_text_str(&line, "\"");
    cli_copier_warn(c, line.data, line.len);
    cli_text_free(&line);
}

/* The scale that belongs to quantized weights, by the names that are usual: behind the name, or in place of its "weight"; false:
 * none. */
static bool copier_find_scale(const cli_copier *c, const heft_tensor *tensor, heft_tensor *scale) {
    static const char *const behind[] = {"_scale", "_scale_inv", ".scale", "_scales"}, weight[] = "weight";
    static const char *const instead[] = {"scale_weight", "scale", "scales", "scale_inv"};
    size_t stem = tensor->name_len, n = sizeof weight - 1, nbehind = sizeof behind / sizeof *behind;
    bool weights = stem >= n && memcmp(tensor->name + stem - n, weight, n) == 0, found = false;
    size_t most = nbehind + (weights ? sizeof instead / sizeof *instead : 0);
    cli_text name = {0};
    uint64_t id;
    for (size_t i = 0; i < most && !found; i++) {
        name.len = 0;
        cli_text_put(&name, tensor->name, i < nbehind ? stem : stem - n);
        cli_text_str(&name, i < nbehind ? behind[i] : instead[i - nbehind]);
        found = heft_archive_find(c->archive, name.data, name.len, &id, NULL) == HEFT_OK;
    }
    cli_text_free(&name);
    return found && heft_archive_get(c->archive, id, scale, NULL) == HEFT_OK;
}

static bool copier_is_float8(heft_dtype dtype) {
    return dtype >= HEFT_F8_E5M2 && dtype <= HEFT_F8_E5M2FNUZ;
}

static void copier_warn_scale(cli_copier *c, const heft_tensor *tensor) {
    heft_tensor scale;
    if (!copier_is_float8(tensor->dtype) || !copier_find_scale(c, tensor, &scale)) return;
    cli_text line = {0};
    cli_text_str(&line, "\"");
    cli_text_escaped(&line, tensor->name, tensor->name_len);
    cli_text_format(&line, "\" is converted from %s without its scale \"", heft_dtype_name(tensor->dtype));
    cli_text_escaped(&line, scale.name, scale.name_len);
    cli_text_str(&line, "\", by which readers still have to multiply");
    cli_copier_warn(c, line.data, line.len);
    cli_text_free(&line);
}

/* Whether a tensor is copied, and converted by --dtype alone. */
static bool copier_is_swept(const cli_copier *c, const heft_tensor *t) {
    const cli_args *args = c->args;
    const cli_dtypes *d = &c->dtypes;
    if ((args->include.n && !copier_matches(&args->include, t)) || copier_matches(&args->exclude, t)) return false;
    return heft_dtype_choose(d->floats, d->rules, d->nrules, t->name, t->name_len, t->dtype) != t->dtype &&
           heft_dtype_choose(HEFT_DTYPE_NONE, d->rules, d->nrules, t->name, t->name_len, t->dtype) == t->dtype;
}

/* Scales that --dtype converts beside weights that stay floats of 8 bits: it was asked for, and seldom is meant. */
static void copier_warn_scales(cli_copier *c) {
    static const char glob[] = "*scale*"; /* of all names that copier_find_scale knows */
    heft_tensor tensor, scale, first = {0};
    uint64_t n = 0;
    bool keeps = true; /* a rule for the glob keeps them, and converts no weights */
    for (uint64_t i = 0; i < c->nitems && c->dtypes.floats; i++) {
        if (c->items[i].as || heft_archive_get(c->archive, c->items[i].id, &tensor, NULL) != HEFT_OK) continue;
        if (!copier_is_float8(tensor.dtype)) continue;
        if (heft__glob_match(glob, sizeof glob - 1, tensor.name, tensor.name_len)) keeps = false;
        if (!copier_find_scale(c, &tensor, &scale) || !copier_is_swept(c, &scale)) continue;
        if (n++ == 0) first = scale;
        keeps = keeps && scale.dtype == first.dtype;
    }
    if (!n) return;
    cli_text line = {0};
    cli_text_plural(&line, n, "scale");
    cli_text_str(&line, n == 1 ? " of a tensor that stays F8 is" : " of tensors that stay F8 are");
    cli_text_str(&line, " converted too (\"");
    cli_text_escaped(&line, first.name, first.name_len);
    cli_text_str(&line, "\")");
    if (keeps)
        cli_text_format(&line, ": --dtype-for '%s=%s' keeps %s", glob, heft_dtype_name(first.dtype), n == 1 ? "it" : "them");
    cli_copier_warn(c, line.data, line.len);
    cli_text_free(&line);
}

/* ---- items ------------------------------------------------------------------------------------------------------- */

static heft_status copier_select(cli_copier *c, heft_error *err) {
    heft_selection selection = {.struct_size = sizeof selection,
                                .include = c->args->include.items,
                                .ninclude = c->args->include.n,
                                .exclude = c->args->exclude.items,
                                .nexclude = c->args->exclude.n,
                                .order = HEFT_ORDER_FILE};
    return heft_archive_select(c->archive, &selection, &c->selected, &c->nitems, err);
}

static bool copier_is_transposed(const cli_copier *c, const heft_tensor *tensor) {
    return tensor->rank >= 2 && copier_matches(&c->args->transpose, tensor);
}

static heft_status copier_item(cli_copier *c, uint64_t id, uint64_t number, cli_text *name, heft_error *err) {
    heft_save_item *item = &c->items[number];
    heft_tensor tensor;
    heft_status status = heft_archive_get(c->archive, id, &tensor, err);
    if (status != HEFT_OK) return status;
    heft_dtype dtype = heft_dtype_choose(c->dtypes.floats, c->dtypes.rules, c->dtypes.nrules, tensor.name, tensor.name_len,
                                         tensor.dtype);
    *item = (heft_save_item){.name = tensor.name, .name_len = tensor.name_len, .archive = c->archive, .id = id};
    if (dtype != tensor.dtype) {
        item->as = dtype;
        c->converted[tensor.dtype][dtype]++;
        copier_warn_scale(c, &tensor);
    }
    if (c->renames) {
        cli_renames_apply(c->renames, tensor.name, tensor.name_len, name);
        if (name->len != tensor.name_len || (name->len && memcmp(name->data, tensor.name, name->len) != 0)) {
            item->name = heft__arena_text(&c->names, name->len ? name->data : "", name->len);
            item->name_len = name->len;
            if (!item->name) cli_die_memory();
            c->nrenamed++;
        }
    }
    if (!copier_is_transposed(c, &tensor)) return HEFT_OK;
    heft_view *view = &c->views[c->nviews++];
    item->view = view;
    status = heft_view_of(c->archive, id, view, err);
    return status == HEFT_OK ? heft_view_transpose(view, -1, -2, view, err) : status;
}

static heft_status copier_items(cli_copier *c, heft_error *err) {
    heft_status status = copier_select(c, err);
    if (status != HEFT_OK) return status;
    const uint64_t *ids = c->selected.data;
    uint64_t ntransposed = 0;
    for (uint64_t i = 0; i < c->nitems && c->args->transpose.n; i++) {
        heft_tensor tensor;
        if (heft_archive_get(c->archive, ids[i], &tensor, NULL) == HEFT_OK) ntransposed += copier_is_transposed(c, &tensor);
    }
    c->items = calloc((size_t)c->nitems + 1, sizeof *c->items);
    c->views = calloc((size_t)ntransposed + 1, sizeof *c->views);
    if (!c->items || !c->views) cli_die_memory();
    cli_text name = {0};
    for (uint64_t i = 0; i < c->nitems && status == HEFT_OK; i++) status = copier_item(c, ids[i], i, &name, err);
    cli_text_free(&name);
    return status;
}

/* ---- names that meet --------------------------------------------------------------------------------------------- */

static int copier_compare(const void *a, const void *b) {
    const heft_save_item *x = *(const heft_save_item *const *)a, *y = *(const heft_save_item *const *)b;
    int order = heft__bytes_compare(x->name, x->name_len, y->name, y->name_len);
    return order ? order : x < y ? -1 : x > y;
}

static void copier_quote(const cli_copier *c, const heft_save_item *item, cli_text *line) {
    heft_tensor tensor = {0};
    heft_archive_get(c->archive, item->id, &tensor, NULL);
    cli_text_str(line, "\"");
    cli_text_escaped(line, tensor.name, tensor.name_len);
    cli_text_str(line, "\"");
}

static bool copier_names_differ(const cli_copier *c) {
    if (!c->nrenamed) return true;
    const heft_save_item **sorted = calloc((size_t)c->nitems, sizeof *sorted);
    if (!sorted) cli_die_memory();
    for (uint64_t i = 0; i < c->nitems; i++) sorted[i] = &c->items[i];
    qsort(sorted, (size_t)c->nitems, sizeof *sorted, copier_compare);
    bool differ = true;
    for (uint64_t i = 1; i < c->nitems && differ; i++) {
        const heft_save_item *a = sorted[i - 1], *b = sorted[i];
        differ = heft__bytes_compare(a->name, a->name_len, b->name, b->name_len) != 0;
        if (differ) continue;
        cli_text line = {0};
        copier_quote(c, a, &line);
        cli_text_str(&line, " and ");
        copier_quote(c, b, &line);
        cli_text_str(&line, " would both be named \"");
        cli_text_escaped(&line, a->name, a->name_len);
        cli_text_str(&line, "\"");
        cli_complain_of(c->source, &line);
        cli_text_free(&line);
    }
    free(sorted);
    return differ;
}

/* ---- running ----------------------------------------------------------------------------------------------------- */

/* A failure of the save: about the source where its bytes are wrong, else about the target. */
static int copier_fail(const cli_copier *c, const heft_error *err) {
    bool source = err->status == HEFT_CORRUPT || err->status == HEFT_MISMATCH;
    heft_error plain = *err;
    bool header = err->fault == HEFT_FAULT_HEADER_LIMIT; /* of the file to be: a bound, not a fault */
    if (err->status == HEFT_UNSUPPORTED || err->status == HEFT_INVALID_ARGUMENT || header)
        plain.fault = HEFT_FAULT_CALL; /* what is advised for files that are read does not help here */
    (void)cli_fail(source ? c->source : c->target, &plain);
    if (header) cli_complain("--max-header SIZE raises the limit");
    if (c->options.digests && err->fault == HEFT_FAULT_CHECKSUM)
        cli_complain("nothing was written: new digests would hide that; without --digest the bytes are copied as they are");
    return header ? CLI_REFUSED : cli_exit_code(err);
}

static bool copier_refuse_unknown(const cli_copier *c, const heft_save_item *item) {
    cli_text line = {0};
    copier_quote(c, item, &line);
    cli_text_str(&line, " is of a dtype that is unknown: only a safetensors file can hold it as it is");
    cli_complain_of(c->source, &line);
    cli_text_free(&line);
    return false;
}

/* What NumPy lacks needs a word of the user's. */
static bool copier_numpy_has(const cli_copier *c) {
    bool numpy = c->form == CLI_COPY_NPZ || c->form == CLI_COPY_NPY;
    for (uint64_t i = 0; i < c->nitems && numpy && !c->args->foreign; i++) {
        heft_tensor tensor;
        if (heft_archive_get(c->archive, c->items[i].id, &tensor, NULL) != HEFT_OK) continue;
        heft_dtype dtype = c->items[i].as ? c->items[i].as : tensor.dtype;
        if (dtype == HEFT_DTYPE_NONE) return copier_refuse_unknown(c, &c->items[i]);
        if (dtype != HEFT_BF16 && !copier_is_float8(dtype)) continue;
        cli_text line = {0};
        copier_quote(c, &c->items[i], &line);
        cli_text_format(&line, " would be of dtype %s, which NumPy lacks: convert it, as with %s, or give --foreign",
                        heft_dtype_name(dtype), dtype == HEFT_BF16 ? "--dtype f32" : "--dtype-for '*=f32'");
        cli_complain_of(c->source, &line);
        cli_text_free(&line);
        return false;
    }
    return true;
}

/* Under --max-header. */
static void copier_warn_header(cli_copier *c) {
    static const char warning[] = "a header will be longer than 100,000,000 bytes, which other readers refuse";
    heft_layout_file file;
    bool longer = false;
    for (uint32_t i = 0; !longer && heft_layout_get_file(c->layout, i, &file, NULL) == HEFT_OK; i++)
        longer = file.header_nbytes > CLI_MAX_HEADER + 8;
    if (longer && c->form != CLI_COPY_NPZ && c->form != CLI_COPY_NPY) cli_copier_warn(c, warning, sizeof warning - 1);
}

static int copier_prepare(cli_copier *c) {
    int code = CLI_USAGE;
    heft_error err;
    if (!copier_parse_rules(c) || !cli_renames_make(c->command, c->args, &c->renames, &code)) return code;
    if (cli_open(c->args, c->source, &c->archive, &err) != HEFT_OK) return cli_fail(c->source, &err);
    cli_warn(c->args, c->source, c->archive);
    copier_warn_globs(c);
    if (copier_items(c, &err) != HEFT_OK) return cli_fail(c->source, &err);
    copier_warn_scales(c);
    if (!c->nitems && heft_archive_count(c->archive)) {
        cli_text line = {0};
        cli_text_str(&line, "no tensor is left to be copied");
        cli_complain_of(c->source, &line);
        cli_text_free(&line);
        return CLI_UNREADABLE;
    }
    if (c->form == CLI_COPY_NPY && c->nitems != 1)
        return cli_usage_error(c->command, "an npy file holds one tensor, not %llu: choose it with --include NAME",
                               (unsigned long long)c->nitems);
    if (!copier_numpy_has(c)) return CLI_BAD_FILE;
    if (!copier_names_differ(c) || !cli_copier_metadata(c)) return CLI_USAGE;
    copier_warn_map(c);
    const heft_set_options *set = c->form == CLI_COPY_SHARDED ? &c->set : NULL;
    if (heft_layout_make(c->items, c->nitems, &c->options, set, &c->layout, &err) != HEFT_OK) return copier_fail(c, &err);
    copier_warn_header(c);
    return c->nwarnings && c->args->strict ? CLI_REFUSED : CLI_OK;
}

/* ---- to a stream ---- */

typedef struct copier_pipe {
    heft__output *out;
    heft_error err;
} copier_pipe;

static int copier_put(void *ctx, const void *data, size_t nbytes) {
    copier_pipe *pipe = ctx;
    if (heft__output_write(pipe->out, data, nbytes, &pipe->err) == HEFT_OK) return 0;
    return pipe->err.sys_errno ? pipe->err.sys_errno : 1;
}

static heft_status copier_stream(cli_copier *c, heft_error *err) {
    copier_pipe pipe = {0};
    heft_status status = heft__output_open(c->target, c->args->force, &pipe.out, err);
    if (status != HEFT_OK) return status;
    status = heft_save_callback(c->items, c->nitems, &c->options, copier_put, &pipe, &c->stats, err);
    if (status == HEFT_OK) return heft__output_commit(pipe.out, err);
    if (pipe.err.status != HEFT_OK) *err = pipe.err;
    heft__output_abort(pipe.out);
    return status;
}

static int copier_write(cli_copier *c) {
    cli_progress progress;
    heft_error err;
    heft_status status;
    c->options.progress = cli_progress_step;
    c->options.progress_ctx = &progress;
    double start = heft__os_seconds();
    cli_progress_start(&progress, c->args->quiet || c->args->json);
    if (c->stream) status = copier_stream(c, &err);
    else if (c->form == CLI_COPY_SHARDED)
        status = heft_save_set(c->target, c->items, c->nitems, &c->options, &c->set, &c->stats, &err);
    else status = heft_save(c->target, c->items, c->nitems, &c->options, &c->stats, &err);
    cli_progress_end(&progress);
    c->seconds = heft__os_seconds() - start;
    return status == HEFT_OK ? CLI_OK : copier_fail(c, &err);
}

/* A set of another stem stays in the folder, and who opens that by its name may get the old tensors. */
static int copier_warn_others(const cli_copier *c) {
    const char *stem = c->set.stem ? c->set.stem : "model";
    size_t len = strlen(stem);
    heft_archive *there;
    heft_error err;
    bool other = false;
    if (c->form != CLI_COPY_SHARDED || c->fresh) return CLI_OK;
    if (heft_archive_open(c->target, NULL, &there, &err) != HEFT_OK) other = err.fault == HEFT_FAULT_AMBIGUOUS;
    else {
        heft_file file;
        for (uint32_t i = 0; !other && heft_archive_file(there, i, &file, &err) == HEFT_OK; i++) {
            const char *slash = strrchr(file.path, '/'), *name = slash ? slash + 1 : file.path;
            other = strncmp(name, stem, len) != 0 || (name[len] != '-' && name[len] != '.');
        }
        heft_archive_unref(there);
    }
    if (!other || (c->args->quiet && !c->args->strict)) return CLI_OK;
    cli_text line = {0};
    cli_text_str(&line, "warning: there are files of another set too, so that the folder does not open as what was written: ");
    cli_text_escaped(&line, stem, len);
    cli_text_str(&line, "*");
    cli_complain_of(c->target, &line);
    cli_text_free(&line);
    return c->args->strict ? CLI_REFUSED : CLI_OK;
}

static int copier_run(cli_copier *c) {
    const cli_args *args = c->args;
    int code = copier_prepare(c);
    if (code != CLI_OK) return code;
    if (c->stream && !args->dry_run) return copier_write(c); /* what is printed would be taken for a part of it */
    if (!args->json && (args->dry_run || !args->quiet)) {
        cli_copier_plan(c);
        cli_flush(); /* it is there while the copy runs, also in a pipe */
    }
    if (!args->dry_run) code = copier_write(c);
    if (code != CLI_OK) return code;
    if (args->json) cli_copier_json(c);
    else if (!args->dry_run) cli_copier_report(c);
    return args->dry_run ? CLI_OK : copier_warn_others(c);
}

static void copier_free(cli_copier *c) {
    heft_layout_free(c->layout);
    cli_dtypes_free(&c->dtypes);
    free(c->items);
    free(c->views);
    free(c->metadata);
    free(c->target);
    cli_renames_free(c->renames);
    heft_buffer_release(&c->selected);
    heft__arena_free(&c->names);
    heft_archive_unref(c->archive);
    free(c);
}

int cli_copier_run(const char *command, const cli_args *args, uint32_t form, uint64_t align) {
    if (args->noperands != 2) return cli_usage_error(command, "two paths are needed: what is read, and what is written");
    cli_copier *c = calloc(1, sizeof *c);
    if (!c) cli_die_memory();
    c->command = command;
    c->args = args;
    c->source = args->operands[0];
    c->form = form;
    heft__arena_init(&c->names, &heft__default_allocator);
    int code = CLI_USAGE;
    if (copier_target(c, args->operands[1])) {
        static const char *const formats[] = {NULL, NULL, NULL, "npz", "npy"};
        c->options = (heft_save_options){.struct_size = sizeof c->options,
                                         .format = formats[c->form],
                                         .overwrite = args->force,
                                         .no_sync = args->no_sync,
                                         .verify = args->verify,
                                         .no_fill = args->no_fill,
                                         .reserve_header_nbytes = args->header_room,
                                         .max_header_nbytes = cli_max_header(args),
                                         .saturate = args->saturate,
                                         .allow_inexact = args->allow_inexact,
                                         .foreign = args->foreign, /* the words are in the order of the constants */
                                         .workers = (uint32_t)args->jobs,
                                         .align = args->align ? args->align : align};
        c->options.match_source = !c->options.align && !c->stream;
        c->set = (heft_set_options){.struct_size = sizeof c->set, .ceiling_nbytes = args->shard_size, .stem = args->stem,
                                    .create_dir = true,
                                    .publish = c->fresh};
        if (cli_copier_check_form(c)) code = copier_run(c);
    }
    copier_free(c);
    return code;
}
