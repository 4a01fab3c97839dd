/* cli: heft diff: how two checkpoints differ: names, dtypes, shapes, metadata, then values. */
#include "loader.h"

#include "base/float_text.h"

#include <stdlib.h>
#include <string.h>

#define DIFF_ROWS 20 /* on a terminal */

typedef struct diff_state {
    const cli_args *args;
    const char *path[2];
    heft_archive *archive[2];
    heft_diff *diff;
    uint64_t ntensors, ndtypes, nmetadata; /* names; of these with other dtypes; keys that differ */
    heft_diff_tensor *rows; /* what is not equal, as it is shown */
    uint64_t nrows;
} diff_state;

static const char *const diff_words[HEFT_DIFF_STATES] = {"equal", "close", "changed", "shape", "added", "removed",
                                                         "unread"};

/* ---- metadata ---------------------------------------------------------------------------------------------------- */

/* Calls `each` for every key of one side that the other lacks or has another value for. */
static void diff_metadata(const diff_state *s, void (*each)(void *ctx, const heft_pair *a, const heft_pair *b), void *ctx) {
    for (int side = 0; side < 2; side++) {
        uint64_t n = heft_archive_metadata_count(s->archive[side], HEFT_MERGED);
        for (uint64_t i = 0; i < n; i++) {
            heft_pair mine, other;
            if (heft_archive_metadata(s->archive[side], HEFT_MERGED, i, &mine, NULL) != HEFT_OK) continue;
            bool both = heft_archive_metadata_find(s->archive[!side], HEFT_MERGED, mine.key, mine.key_len, &other, NULL) ==
                        HEFT_OK;
            if (side == 1 && both) continue; /* has been told */
            if (both && mine.value_len == other.value_len && memcmp(mine.value, other.value, mine.value_len) == 0) continue;
            if (side == 0) each(ctx, &mine, both ? &other : NULL);
            else each(ctx, NULL, &mine);
        }
    }
}

static void diff_metadata_count(void *ctx, const heft_pair *a, const heft_pair *b) {
    (void)a, (void)b;
    ++*(uint64_t *)ctx;
}

/* A value of at most 40 columns. */
static void diff_metadata_value(cli_text *line, const heft_pair *pair) {
    cli_text value = {0};
    if (!pair) {
        cli_text_str(line, "absent");
        return;
    }
    cli_text_escaped(&value, pair->value, pair->value_len < 400 ? pair->value_len : 400);
    size_t fits = cli_columns_fit(value.data, value.len, 40);
    cli_text_str(line, "\"");
    cli_text_put(line, value.data, fits);
    cli_text_str(line, fits < value.len || pair->value_len >= 400 ? "…\"" : "\"");
    cli_text_free(&value);
}

static void diff_metadata_print(void *ctx, const heft_pair *a, const heft_pair *b) {
    cli_text line = {0};
    const heft_pair *key = a ? a : b;
    (void)ctx;
    cli_text_str(&line, "    ");
    cli_text_escaped(&line, key->key, key->key_len);
    cli_text_str(&line, ": ");
    diff_metadata_value(&line, a);
    cli_text_str(&line, " and ");
    diff_metadata_value(&line, b);
    cli_print(&line);
    cli_text_free(&line);
}

static void diff_metadata_json(void *ctx, const heft_pair *a, const heft_pair *b) {
    heft__json_out *json = ctx;
    const heft_pair *key = a ? a : b, *sides[2] = {a, b};
    heft__json_out_object(json);
    heft__json_out_key(json, "key", SIZE_MAX);
    heft__json_out_string(json, key->key, key->key_len);
    for (int side = 0; side < 2; side++) {
        heft__json_out_key(json, side ? "b" : "a", SIZE_MAX);
        if (sides[side]) heft__json_out_string(json, sides[side]->value, sides[side]->value_len);
        else heft__json_out_null(json);
    }
    heft__json_out_object_end(json);
}

/* ---- gathering --------------------------------------------------------------------------------------------------- */

static int diff_rank(heft_diff_state state) {
    static const int ranks[HEFT_DIFF_STATES] = {6, 4, 3, 2, 1, 0, 5};
    return ranks[state];
}

/* Removed, added, other shapes; then changed ones by the relative change, the largest first. */
static int diff_compare(const void *left, const void *right) {
    const heft_diff_tensor *a = left, *b = right;
    if (a->state != b->state) return diff_rank(a->state) - diff_rank(b->state);
    if (a->rel_l2 != b->rel_l2) return a->rel_l2 > b->rel_l2 ? -1 : 1;
    uint64_t x = a->a == HEFT_NONE ? a->b : a->a, y = b->a == HEFT_NONE ? b->b : b->a;
    return x < y ? -1 : x > y;
}

static void diff_gather(diff_state *s) {
    s->ntensors = heft_diff_count(s->diff);
    s->rows = malloc((size_t)(s->ntensors + 1) * sizeof *s->rows);
    if (!s->rows) cli_die_memory();
    for (uint64_t i = 0; i < s->ntensors; i++) {
        heft_diff_tensor t;
        if (heft_diff_get(s->diff, i, &t, NULL) != HEFT_OK) continue;
        s->ndtypes += t.dtype_differs;
        if (t.state == HEFT_DIFF_UNREAD && !t.dtype_differs) continue;
        if (t.state != HEFT_DIFF_EQUAL || t.dtype_differs) s->rows[s->nrows++] = t;
    }
    qsort(s->rows, (size_t)s->nrows, sizeof *s->rows, diff_compare);
    diff_metadata(s, diff_metadata_count, &s->nmetadata);
}

/* Metadata counts between files of one format: others may not be able to hold it. */
static bool diff_metadata_counts(const diff_state *s) {
    heft_file files[2];
    for (int side = 0; side < 2; side++)
        if (heft_archive_file(s->archive[side], 0, &files[side], NULL) != HEFT_OK) return true;
    return strcmp(files[0].format, files[1].format) == 0;
}

static bool diff_is_different(const diff_state *s) {
    return s->ndtypes || (s->nmetadata && diff_metadata_counts(s)) || heft_diff_count_of(s->diff, HEFT_DIFF_CHANGED) ||
           heft_diff_count_of(s->diff, HEFT_DIFF_SHAPE) || heft_diff_count_of(s->diff, HEFT_DIFF_ADDED) ||
           heft_diff_count_of(s->diff, HEFT_DIFF_REMOVED);
}

/* ---- the screen -------------------------------------------------------------------------------------------------- */

static void diff_tensor(const diff_state *s, const heft_diff_tensor *t, heft_tensor *out) {
    int side = t->a == HEFT_NONE;
    memset(out, 0, sizeof *out);
    heft_archive_get(s->archive[side], side ? t->b : t->a, out, NULL);
}

static void diff_number(cli_text *text, double value) {
    char digits[32];
    cli_text_put(text, digits, heft__double_text_rounded(value, 3, digits));
}

/* "[2, 17]" of a row-major index. */
static void diff_index(cli_text *text, const heft_tensor *tensor, uint64_t index) {
    uint64_t at[HEFT_MAX_RANK];
    for (uint32_t axis = tensor->rank; axis-- > 0;) {
        at[axis] = index % tensor->shape[axis];
        index /= tensor->shape[axis];
    }
    cli_text_shape(text, tensor->rank, at);
}

static void diff_form(cli_text *text, const heft_tensor *tensor) {
    cli_text_str(text, heft_dtype_name(tensor->dtype));
    cli_text_str(text, " ");
    cli_text_shape(text, tensor->rank, tensor->shape);
}

static void diff_numbers(cli_text *line, const heft_diff_tensor *t) {
    cli_text_str(line, ", max |a-b| ");
    diff_number(line, t->max_abs);
    cli_text_str(line, ", relative ");
    diff_number(line, t->max_rel);
    cli_text_str(line, ", L2 ");
    diff_number(line, t->rel_l2);
}

static void diff_row(const diff_state *s, const heft_diff_tensor *t) {
    cli_text line = {0};
    heft_tensor tensor, other;
    diff_tensor(s, t, &tensor);
    cli_style style = t->state == HEFT_DIFF_ADDED     ? CLI_GOOD
                      : t->state == HEFT_DIFF_REMOVED ? CLI_BAD
                      : t->state == HEFT_DIFF_CLOSE || t->state == HEFT_DIFF_EQUAL ? CLI_DIM
                                                                                   : CLI_WARN;
    const char *word = t->state == HEFT_DIFF_UNREAD || t->state == HEFT_DIFF_EQUAL ? "dtype" : diff_words[t->state];
    cli_text padded = {0};
    cli_text_format(&padded, "  %-8s ", word);
    cli_text_styled(&line, style, padded.data, padded.len);
    cli_text_free(&padded);
    cli_text_name(&line, tensor.name, tensor.name_len);
    cli_text_str(&line, "  ");
    diff_form(&line, &tensor);
    if (t->b != HEFT_NONE && t->a != HEFT_NONE && (t->dtype_differs || t->state == HEFT_DIFF_SHAPE)) {
        memset(&other, 0, sizeof other);
        heft_archive_get(s->archive[1], t->b, &other, NULL);
        cli_text_str(&line, " and ");
        diff_form(&line, &other);
    }
    if (t->state == HEFT_DIFF_EQUAL) cli_text_str(&line, "  the same values");
    if (t->ndifferent) {
        bool finite = t->ndifferent > t->nnonfinite;
        cli_text_str(&line, "  ");
        cli_text_grouped(&line, t->ndifferent);
        cli_text_str(&line, " of ");
        cli_text_grouped(&line, t->nelems);
        cli_text_str(&line, " (");
        cli_text_percent(&line, t->ndifferent, t->nelems);
        cli_text_str(&line, ")");
        if (finite) diff_numbers(&line, t);
        if (finite && t->max_ulp != HEFT_NONE) {
            cli_text_str(&line, ", ");
            cli_text_grouped(&line, t->max_ulp);
            cli_text_str(&line, " ULP");
        }
        if (t->nnonfinite) {
            cli_text_str(&line, ", ");
            cli_text_grouped(&line, t->nnonfinite);
            cli_text_str(&line, " with NaN or infinity");
        }
        cli_text_str(&line, ", first at ");
        diff_index(&line, &tensor, t->first);
    }
    cli_print(&line);
    cli_text_free(&line);
}

/* "3 changed, 1 added" and what else there is. */
static void diff_sum(const diff_state *s, cli_text *line) {
    static const struct {
        heft_diff_state state;
        const char *words;
    } parts[] = {{HEFT_DIFF_EQUAL, "equal"}, {HEFT_DIFF_CLOSE, "within the tolerance"}, {HEFT_DIFF_CHANGED, "changed"},
                 {HEFT_DIFF_ADDED, "added"}, {HEFT_DIFF_REMOVED, "removed"}, {HEFT_DIFF_SHAPE, "of another shape"},
                 {HEFT_DIFF_UNREAD, "not compared"}};
    const char *comma = "";
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        uint64_t n = heft_diff_count_of(s->diff, parts[i].state);
        if (!n) continue;
        cli_text_str(line, comma);
        cli_text_grouped(line, n);
        cli_text_format(line, " %s", parts[i].words);
        comma = ", ";
    }
    if (s->ndtypes) {
        cli_text_format(line, "%s", comma);
        cli_text_grouped(line, s->ndtypes);
        cli_text_str(line, " of another dtype");
        comma = ", ";
    }
    if (!*comma) cli_text_str(line, "none");
}

static void diff_screen(const diff_state *s, bool different) {
    cli_text line = {0};
    bool unread = s->args->headers_only;
    cli_text_escaped(&line, s->path[0], strlen(s->path[0]));
    cli_text_str(&line, " and ");
    cli_text_escaped(&line, s->path[1], strlen(s->path[1]));
    cli_text_str(&line, ": ");
    const char *verdict = different ? "different" : unread ? "headers equal, values not compared" : "equal";
    cli_text_styled(&line, different ? CLI_BAD : CLI_GOOD, verdict, strlen(verdict));
    cli_print(&line);
    if (!s->args->quiet) {
        cli_text_str(&line, "  ");
        cli_text_plural(&line, s->ntensors, "tensor");
        cli_text_str(&line, ": ");
        diff_sum(s, &line);
        cli_print(&line);
        uint64_t most = cli_screen_get()->terminal && !s->args->all ? DIFF_ROWS : s->nrows;
        for (uint64_t i = 0; i < s->nrows && i < most; i++) diff_row(s, &s->rows[i]);
        if (s->nrows > most) {
            cli_text_str(&line, "  and ");
            cli_text_grouped(&line, s->nrows - most);
            cli_text_str(&line, " more; --all lists them");
            cli_print(&line);
        }
        if (s->nmetadata) {
            cli_text_str(&line, "  metadata: ");
            cli_text_plural(&line, s->nmetadata, "key");
            cli_text_str(&line, s->nmetadata == 1 ? " differs" : " differ");
            cli_print(&line);
            diff_metadata(s, diff_metadata_print, NULL);
        }
    }
    cli_text_free(&line);
}

/* ---- JSON -------------------------------------------------------------------------------------------------------- */

static void diff_json_row(const diff_state *s, heft__json_out *json, const heft_diff_tensor *t) {
    heft_tensor tensor;
    diff_tensor(s, t, &tensor);
    heft__json_out_object(json);
    heft__json_out_key(json, "name", SIZE_MAX);
    heft__json_out_string(json, tensor.name, tensor.name_len);
    cli_json_text(json, "state", diff_words[t->state]);
    for (int side = 0; side < 2; side++) {
        heft__json_out_key(json, side ? "b" : "a", SIZE_MAX);
        if (heft_archive_get(s->archive[side], side ? t->b : t->a, &tensor, NULL) != HEFT_OK) {
            heft__json_out_null(json);
            continue;
        }
        heft__json_out_object(json);
        cli_json_text(json, "dtype", heft_dtype_name(tensor.dtype));
        heft__json_out_key(json, "shape", SIZE_MAX);
        cli_json_shape(json, tensor.rank, tensor.shape);
        heft__json_out_object_end(json);
    }
    if (t->ndifferent) {
        cli_json_u64(json, "elements", t->nelems);
        cli_json_u64(json, "different", t->ndifferent);
        cli_json_u64(json, "beyond_tolerance", t->nbeyond);
        cli_json_u64(json, "nonfinite", t->nnonfinite);
        cli_json_u64(json, "first", t->first);
        cli_json_number(json, "max_abs", t->max_abs);
        cli_json_number(json, "max_rel", t->max_rel);
        cli_json_number(json, "rel_l2", t->rel_l2);
        cli_json_u64_or_null(json, "max_ulp", t->max_ulp);
    }
    heft__json_out_object_end(json);
}

static void diff_json(const diff_state *s, bool different) {
    heft__json_out json;
    cli_json_begin(&json, false);
    heft__json_out_object(&json);
    cli_json_text(&json, "a", s->path[0]);
    cli_json_text(&json, "b", s->path[1]);
    cli_json_bool(&json, "different", different);
    cli_json_bool(&json, "values_compared", !s->args->headers_only);
    cli_json_u64(&json, "tensors", s->ntensors);
    for (heft_diff_state state = 0; state < HEFT_DIFF_STATES; state++)
        cli_json_u64(&json, diff_words[state], heft_diff_count_of(s->diff, state));
    cli_json_u64(&json, "dtype", s->ndtypes);
    heft__json_out_key(&json, "differences", SIZE_MAX);
    heft__json_out_array(&json);
    for (uint64_t i = 0; i < s->nrows; i++) {
        diff_json_row(s, &json, &s->rows[i]);
        cli_json_flush(&json);
    }
    heft__json_out_array_end(&json);
    heft__json_out_key(&json, "metadata", SIZE_MAX);
    heft__json_out_array(&json);
    diff_metadata(s, diff_metadata_json, &json);
    heft__json_out_array_end(&json);
    heft__json_out_object_end(&json);
    cli_json_end(&json);
}

/* ---- the command ------------------------------------------------------------------------------------------------- */

static int diff_run(diff_state *s) {
    heft_error err;
    for (int side = 0; side < 2; side++) {
        if (cli_open(s->args, s->path[side], &s->archive[side], &err) != HEFT_OK) return cli_fail(s->path[side], &err);
        cli_warn(s->args, s->path[side], s->archive[side]);
    }
    cli_progress progress;
    heft_diff_options options = {.struct_size = sizeof options, .headers_only = s->args->headers_only,
                                 .tolerance = s->args->tolerance, .relative = s->args->relative,
                                 .workers = (uint32_t)s->args->jobs, .progress = cli_progress_step,
                                 .progress_ctx = &progress};
    cli_progress_start(&progress, s->args->quiet);
    heft_status status = heft_diff_archives(s->archive[0], s->archive[1], &options, &s->diff, &err);
    cli_progress_end(&progress);
    if (status != HEFT_OK) return cli_fail(s->path[0], &err);
    diff_gather(s);
    bool different = diff_is_different(s);
    if (s->args->json) diff_json(s, different);
    else diff_screen(s, different);
    return different ? CLI_NEGATIVE : CLI_OK;
}

int cli_diff(const cli_args *args) {
    if (args->noperands != 2) return cli_usage_error("diff", "two paths are compared");
    if (!cli_one_stdin(args, 0, 2)) return CLI_USAGE;
    diff_state s = {.args = args, .path = {args->operands[0], args->operands[1]}};
    int code = diff_run(&s);
    free(s.rows);
    heft_diff_free(s.diff);
    for (int side = 0; side < 2; side++) heft_archive_unref(s.archive[side]);
    return code;
}
