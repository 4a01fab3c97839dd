/* cli: writes the values of a view to an output, piece by piece. */
#include "cli.h"

#include <string.h>

/* Bytes of one piece. */
#define VALUES_PIECE ((uint64_t)4 << 20)
/* JSON text is handed on when this much has gathered. */
#define VALUES_TEXT ((size_t)1 << 16)

typedef heft_status (*values_piece)(void *ctx, const void *data, uint64_t nelems, heft_error *err);

heft_read_options cli_read_options(const cli_args *args) {
    heft_read_options options = {.struct_size = sizeof options};
    options.workers = (uint32_t)args->jobs;
    return options;
}

void cli_stats_add(heft_read_stats *sum, const heft_read_stats *more) {
    sum->kept_nbytes += more->kept_nbytes;
    sum->requested_nbytes += more->requested_nbytes;
    sum->over_read_nbytes += more->over_read_nbytes;
    sum->spanned_nbytes += more->spanned_nbytes;
    sum->requests += more->requests;
    sum->short_reads += more->short_reads;
    sum->retries += more->retries;
}

typedef struct values_walk {
    const heft_view *view;
    uint32_t axis;  /* pieces are cut along it */
    uint64_t inner; /* elements of one step along it */
    int64_t step;
    int64_t index[HEFT_MAX_RANK]; /* of the axes before it */
} values_walk;

/* The first axis whose steps fit a piece, so that pieces are as long as they can be. */
static void values_plan(values_walk *w) {
    const heft_view *view = w->view;
    uint64_t most = VALUES_PIECE * 8 / heft_dtype_bits(view->dtype);
    uint64_t inner = 1;
    w->axis = view->rank ? view->rank - 1 : 0;
    w->inner = 1;
    for (uint32_t d = view->rank; d-- > 0;) {
        if (inner > most) break;
        w->axis = d;
        w->inner = inner;
        inner *= (uint64_t)view->shape[d];
    }
    w->step = (int64_t)(most / w->inner);
}

/* The part of the view that begins at `start` of the cut axis. */
static void values_part(const values_walk *w, int64_t start, heft_view *part) {
    *part = *w->view;
    if (w->view->rank == 0) return;
    for (uint32_t d = 0; d < w->axis; d++) part->offset += w->index[d] * w->view->stride[d];
    part->offset += start * w->view->stride[w->axis];
    part->rank = w->view->rank - w->axis;
    memmove(part->shape, w->view->shape + w->axis, part->rank * sizeof *part->shape);
    memmove(part->stride, w->view->stride + w->axis, part->rank * sizeof *part->stride);
    int64_t left = w->view->shape[w->axis] - start;
    part->shape[0] = left < w->step ? left : w->step;
}

static bool values_next_outer(values_walk *w) {
    for (uint32_t d = w->axis; d-- > 0;) {
        if (++w->index[d] < w->view->shape[d]) return true;
        w->index[d] = 0;
    }
    return false;
}

/* Hands a view on in element order, as packed bytes of some elements at a time. */
static heft_status values_stream(const heft_view *view, const heft_read_options *options, values_piece piece, void *ctx,
                                 heft_read_stats *stats, heft_error *err) {
    values_walk w = {.view = view};
    heft_view part;
    heft_status status = HEFT_OK;
    if (heft_view_nelems(view) == 0) return HEFT_OK;
    values_plan(&w);
    uint64_t nbytes = heft_view_nbytes(view) < VALUES_PIECE ? heft_view_nbytes(view) : VALUES_PIECE;
    void *data = heft__alloc(&heft__default_allocator, nbytes);
    if (!data) return heft__fail_memory(err, nbytes);
    do {
        int64_t start = 0, end = view->rank ? view->shape[w.axis] : 1;
        for (; start < end && status == HEFT_OK; start += w.step) {
            heft_read_stats more = {0};
            values_part(&w, start, &part);
            status = heft_read(&part, data, nbytes, options, &more, err);
            cli_stats_add(stats, &more);
            if (status == HEFT_OK) status = piece(ctx, data, heft_view_nelems(&part), err);
        }
    } while (status == HEFT_OK && values_next_outer(&w));
    heft__free(&heft__default_allocator, data, nbytes);
    return status;
}

/* ---- raw --------------------------------------------------------------------------------------------------------- */

typedef struct values_raw {
    heft__output *out;
    uint32_t element_bits;
    uint32_t bits, nbits; /* of a byte that is not full yet: pieces of sub-byte elements need not end on a byte */
} values_raw;

static heft_status values_raw_bits(values_raw *raw, const uint8_t *data, uint64_t total, heft_error *err) {
    uint8_t bytes[4096];
    size_t n = 0;
    heft_status status = HEFT_OK;
    for (uint64_t at = 0; at < total && status == HEFT_OK; at += 8) {
        uint32_t more = total - at < 8 ? (uint32_t)(total - at) : 8;
        raw->bits |= (data[at / 8] & ((UINT32_C(1) << more) - 1)) << raw->nbits;
        raw->nbits += more;
        if (raw->nbits >= 8) {
            bytes[n++] = (uint8_t)raw->bits;
            raw->bits >>= 8;
            raw->nbits -= 8;
        }
        if (n == sizeof bytes) {
            status = heft__output_write(raw->out, bytes, n, err);
            n = 0;
        }
    }
    return status == HEFT_OK && n ? heft__output_write(raw->out, bytes, n, err) : status;
}

static heft_status values_raw_piece(void *ctx, const void *data, uint64_t nelems, heft_error *err) {
    values_raw *raw = ctx;
    uint64_t total = nelems * raw->element_bits;
    if (raw->nbits == 0 && total % 8 == 0) return heft__output_write(raw->out, data, (size_t)(total / 8), err);
    return values_raw_bits(raw, data, total, err);
}

heft_status cli_write_raw(const cli_args *args, const heft_view *view, heft__output *out, heft_read_stats *stats,
                          heft_error *err) {
    values_raw raw = {.out = out, .element_bits = heft_dtype_bits(view->dtype)};
    heft_read_options options = cli_read_options(args);
    options.keep_file_order = true;
    heft_status status = values_stream(view, &options, values_raw_piece, &raw, stats, err);
    uint8_t last = (uint8_t)raw.bits;
    if (status == HEFT_OK && raw.nbits) status = heft__output_write(out, &last, 1, err);
    return status;
}

/* ---- npy --------------------------------------------------------------------------------------------------------- */

typedef struct values_npy {
    heft__output *out;
    heft_status status;
    heft_error err;
} values_npy;

static int values_npy_write(void *ctx, const void *data, size_t nbytes) {
    values_npy *npy = ctx;
    npy->status = heft__output_write(npy->out, data, nbytes, &npy->err);
    return npy->status == HEFT_OK ? 0 : npy->err.sys_errno ? npy->err.sys_errno : 1;
}

/* What the reads of the save amount to: the plan of the view says it. */
static void values_npy_count(const heft_view *view, const heft_read_options *options, heft_read_stats *stats) {
    heft_plan *plan;
    heft_plan_summary sum;
    if (heft_plan_views(view, 1, NULL, options, &plan, NULL) != HEFT_OK) return;
    heft_plan_summarize(plan, &sum);
    heft_plan_free(plan);
    stats->requested_nbytes = sum.requested_nbytes;
    stats->kept_nbytes = sum.kept_nbytes;
    stats->requests = sum.nblocks;
}

heft_status cli_write_npy(const cli_args *args, const heft_view *view, heft__output *out, heft_read_stats *stats,
                          heft_error *err) {
    values_npy npy = {.out = out};
    heft_read_options reading = cli_read_options(args);
    heft_save_item item = {.name = "data", .view = view};
    heft_save_options options = {.struct_size = sizeof options, .format = "npy"};
    heft_status status = heft_save_callback(&item, 1, &options, values_npy_write, &npy, NULL, err);
    if (npy.status != HEFT_OK) { /* what went wrong is the output's */
        *err = npy.err;
        return npy.status;
    }
    if (status == HEFT_OK) values_npy_count(view, &reading, stats);
    return status;
}

/* ---- JSON -------------------------------------------------------------------------------------------------------- */

typedef struct values_json {
    heft__output *out;
    const heft_view *view;
    cli_text text;
    int64_t index[HEFT_MAX_RANK];
    bool started;
} values_json;

static heft_status values_json_flush(values_json *json, size_t least, heft_error *err) {
    if (json->text.len < least || json->text.len == 0) return HEFT_OK;
    heft_status status = heft__output_write(json->out, json->text.data, json->text.len, err);
    json->text.len = 0;
    return status;
}

/* One value; what JSON has no number for (nan, inf) is a string, a complex value a pair. */
static void values_json_value(cli_text *text, heft_dtype dtype, const heft_scalar *value) {
    char word[64];
    heft_scalar part = *value;
    if (value->kind == 'b') {
        cli_text_str(text, value->u ? "true" : "false");
        return;
    }
    if (value->kind == 'c') {
        part.kind = 'f';
        cli_text_put(text, "[", 1);
        values_json_value(text, HEFT_F32, &part);
        cli_text_put(text, ",", 1);
        part.re = value->im;
        values_json_value(text, HEFT_F32, &part);
        cli_text_put(text, "]", 1);
        return;
    }
    size_t n = heft_scalar_text(dtype, value, word);
    bool number = strpbrk(word, "0123456789") != NULL;
    if (!number) cli_text_put(text, "\"", 1);
    cli_text_put(text, word, n);
    if (!number) cli_text_put(text, "\"", 1);
}

/* Brackets and commas between the last element and the next, by the axes that turned over. */
static void values_json_step(values_json *json) {
    uint32_t rank = json->view->rank, turned = 0;
    if (!json->started) {
        cli_text_repeat(&json->text, "[", rank);
        json->started = true;
        return;
    }
    for (uint32_t d = rank; d-- > 0; turned++) {
        if (++json->index[d] < json->view->shape[d]) break;
        json->index[d] = 0;
    }
    cli_text_repeat(&json->text, "]", turned);
    cli_text_put(&json->text, ",", 1);
    cli_text_repeat(&json->text, "[", turned);
}

static heft_status values_json_piece(void *ctx, const void *data, uint64_t nelems, heft_error *err) {
    values_json *json = ctx;
    heft_status status = HEFT_OK;
    for (uint64_t i = 0; i < nelems && status == HEFT_OK; i++) {
        heft_scalar value = heft_dtype_get(json->view->dtype, data, i);
        values_json_step(json);
        values_json_value(&json->text, json->view->dtype, &value);
        status = values_json_flush(json, VALUES_TEXT, err);
    }
    return status;
}

heft_status cli_write_json_values(const cli_args *args, const heft_view *view, heft__output *out,
                                  heft_read_stats *stats, heft_error *err) {
    values_json json = {.out = out, .view = view};
    heft_read_options options = cli_read_options(args);
    heft_status status = values_stream(view, &options, values_json_piece, &json, stats, err);
    /* Without elements the shape may still hold any number of empty arrays: they are left out. */
    if (status == HEFT_OK && !json.started) cli_text_str(&json.text, "[]");
    if (status == HEFT_OK && json.started) cli_text_repeat(&json.text, "]", view->rank);
    if (status == HEFT_OK) status = values_json_flush(&json, 0, err);
    cli_text_free(&json.text);
    return status;
}
