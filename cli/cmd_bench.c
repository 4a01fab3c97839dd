/* cli: heft bench: each way to load a model, hot and cold, beside a bare program that reads the same bytes. */
#include "bound_read.h"
#include "loader.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BENCH_SAMPLES 3
/* More than this in the cache after dropping it: not cold. */
#define BENCH_COLD_PERCENT 5

typedef enum bench_way {
    BENCH_BOUND,
    BENCH_BOUND_AGAIN,
    BENCH_BOUND_DIRECT,
    BENCH_ONE_READER,
    BENCH_MAP,
    BENCH_MAP_TOUCH,
    BENCH_BUFFERED,
    BENCH_DIRECT,
    BENCH_URING,
    BENCH_AUTO,
    BENCH_WAYS
} bench_way;

static const struct {
    const char *name;
    bool bound, hot; /* a measure for the others; makes sense when everything is cached */
    heft_io io;
    heft_engine engine;
    const char *took; /* by a bound */
} bench_table[BENCH_WAYS] = {
    [BENCH_BOUND] = {"bound", true, true, 0, 0, "buffered"},
    [BENCH_BOUND_AGAIN] = {"bound, again", true, true, 0, 0, "buffered"},
    [BENCH_BOUND_DIRECT] = {"bound, direct", true, false, 0, 0, "direct"},
    [BENCH_ONE_READER] = {"bound, 1 reader", true, false, 0, 0, "buffered"},
    [BENCH_MAP] = {"map", false, true, HEFT_IO_MAP, 0, NULL},
    [BENCH_MAP_TOUCH] = {"map + touch", false, true, HEFT_IO_MAP, 0, NULL},
    [BENCH_BUFFERED] = {"buffered", false, true, HEFT_IO_BUFFERED, HEFT_ENGINE_POOL, NULL},
    [BENCH_DIRECT] = {"direct", false, true, HEFT_IO_DIRECT, HEFT_ENGINE_POOL, NULL},
    [BENCH_URING] = {"io_uring", false, true, HEFT_IO_AUTO, HEFT_ENGINE_URING, NULL},
    [BENCH_AUTO] = {"auto", false, true, HEFT_IO_AUTO, HEFT_ENGINE_AUTO, NULL},
};

/* One way in one state of the cache. */
typedef struct bench_row {
    bench_way way;
    bool cold, failed;
    heft_error err;
    double *seconds; /* of each sample, sorted in the end */
    double median;
    char took[64]; /* the paths taken */
} bench_row;

typedef struct bench_state {
    const cli_args *args;
    const char *path;
    heft_archive *archive;
    const char **files;
    uint32_t nfiles;
    uint64_t nbytes;  /* of all tensors */
    uint64_t nsamples;
    bench_row rows[2 * BENCH_WAYS];
    size_t nrows;
    double best[2]; /* bound, by state */
    bool no_cold;   /* files that are memory */
    bool foreign, dirty, unknown;
    uint64_t resident_most, resident_of; /* after dropping the cache */
} bench_state;

/* ---- one sample, in a child -------------------------------------------------------------------------------------- */

typedef struct bench_job {
    const bench_state *state;
    bench_way way;
} bench_job;

typedef struct bench_result {
    double seconds;
    uint64_t sum;
    char took[64];
    heft_error err; /* status OK: none */
} bench_result;

/* "buffered", or "buffered, direct" where files differ. */
static void bench_took(const heft_load_plan *plan, const bench_state *s, char took[64]) {
    bool seen[HEFT_PATH_COUNT] = {false};
    for (uint32_t i = 0; i < s->nfiles; i++) {
        heft_load_shard shard;
        if (heft_load_plan_shard(plan, i, &shard, NULL) != HEFT_OK || shard.path_used == HEFT_PATH_NONE) continue;
        if (shard.path_used >= HEFT_PATH_COUNT || seen[shard.path_used]) continue;
        seen[shard.path_used] = true;
        size_t used = strlen(took);
        snprintf(took + used, 64 - used, "%s%s", used ? ", " : "", heft_path_name(shard.path_used));
    }
}

static void bench_sum(const heft_weights *weights, uint64_t *sum) {
    for (uint64_t i = 0; i < heft_weights_count(weights); i++) {
        heft_loaded tensor;
        if (heft_weights_at(weights, HEFT_LOAD_ORDER_FILE, i, &tensor, NULL) != HEFT_OK) continue;
        const uint8_t *bytes = tensor.data;
        uint64_t word = 0;
        for (uint64_t at = 0; at + 8 <= tensor.nbytes; at += 8) {
            memcpy(&word, bytes + at, 8);
            *sum += word;
        }
    }
}

static heft_status bench_load(const bench_job *job, bench_result *result) {
    const bench_state *s = job->state;
    heft_archive *archive;
    heft_load_plan *plan = NULL;
    heft_weights *weights = NULL;
    heft_load_options options = cli_load_options(s->args, NULL);
    options.io = bench_table[job->way].io;
    options.engine = bench_table[job->way].engine;
    heft_status status = cli_open(s->args, s->path, &archive, &result->err);
    if (!status) status = heft_load_plan_new(archive, &options, &plan, &result->err);
    if (!status) status = heft_load_run(plan, &weights, NULL, &result->err);
    if (!status) bench_took(plan, s, result->took);
    if (!status && job->way == BENCH_MAP_TOUCH) bench_sum(weights, &result->sum);
    heft_weights_unref(weights);
    heft_load_plan_free(plan);
    heft_archive_unref(archive);
    return status;
}

static void bench_child(void *ctx, void *out) {
    const bench_job *job = ctx;
    const bench_state *s = job->state;
    bench_result *result = out;
    bool direct = job->way == BENCH_BOUND_DIRECT;
    uint32_t workers = job->way == BENCH_ONE_READER ? 1 : s->args->jobs ? (uint32_t)s->args->jobs : direct ? 8 : 2;
    cli_bound_prime(s->nbytes);
    double start = heft__os_seconds();
    heft_status status = bench_table[job->way].bound
                             ? cli_bound_read(s->files, s->nfiles, workers, direct, &result->err)
                             : bench_load(job, result);
    result->seconds = heft__os_seconds() - start;
    if (status == HEFT_OK) result->err.status = HEFT_OK;
    if (bench_table[job->way].bound) snprintf(result->took, sizeof result->took, "%s", bench_table[job->way].took);
    _Exit(0);
}

/* ---- the state of the cache -------------------------------------------------------------------------------------- */

/* What is in the cache, by the facts of a plan. */
static void bench_look(bench_state *s, bool after_drop) {
    heft_load_plan *plan;
    heft_load_options options = cli_load_options(s->args, NULL);
    uint64_t resident = 0, of = 0;
    if (heft_load_plan_new(s->archive, &options, &plan, NULL) != HEFT_OK) return;
    for (uint32_t i = 0; i < s->nfiles; i++) {
        heft_load_shard shard;
        if (heft_load_plan_shard(plan, i, &shard, NULL) != HEFT_OK) continue;
        s->no_cold = s->no_cold || strcmp(shard.class_name, "memory") == 0;
        s->dirty = s->dirty || shard.dirty;
        if (!after_drop || !shard.kept_nbytes) continue;
        if (shard.resident_nbytes == HEFT_NONE) {
            s->unknown = true;
            continue;
        }
        resident += shard.resident_nbytes;
        of += shard.kept_nbytes;
    }
    heft_load_plan_free(plan);
    if (of && resident >= s->resident_most) {
        s->resident_most = resident;
        s->resident_of = of;
    }
}

static heft_status bench_prepare(bench_state *s, bool cold, heft_error *err) {
    if (!cold) return cli_bound_fill(s->files, s->nfiles, err);
    for (uint32_t i = 0; i < s->nfiles; i++) {
        bool own;
        heft_status status = heft__os_evict(s->files[i], &own, err);
        if (status) return status;
        s->foreign = s->foreign || !own;
    }
    bench_look(s, true);
    return HEFT_OK;
}

/* ---- all samples ------------------------------------------------------------------------------------------------- */

static int bench_compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static void bench_status(const bench_state *s, const bench_row *row, uint64_t sample) {
    char text[80];
    if (s->args->quiet || !heft__os_is_terminal(2)) return;
    snprintf(text, sizeof text, "round %llu of %llu, %s: %s", (unsigned long long)sample + 1,
             (unsigned long long)s->nsamples, row->cold ? "cold" : "hot", bench_table[row->way].name);
    fprintf(stderr, "\r%-60s", text);
    fflush(stderr);
}

/* A row that cannot be is not tried again. A failure of the model itself ends the bench. */
static heft_status bench_sample(bench_state *s, bench_row *row, uint64_t sample, heft_error *err) {
    bench_job job = {s, row->way};
    bench_result result;
    if (row->failed) return HEFT_OK;
    bench_status(s, row, sample);
    heft_status status = bench_prepare(s, row->cold, err);
    if (status) return status;
    status = heft__os_child(bench_child, &job, &result, sizeof result, err);
    if (status == HEFT_CANCELLED) return status;
    if (status) {
        row->failed = true;
        if (err) row->err = *err;
        return HEFT_OK;
    }
    row->failed = result.err.status != HEFT_OK;
    row->err = result.err;
    row->seconds[sample] = result.seconds;
    memcpy(row->took, result.took, sizeof row->took);
    return HEFT_OK;
}

static void bench_rows(bench_state *s) {
    for (int cold = 0; cold < 2; cold++)
        for (bench_way way = 0; way < BENCH_WAYS; way++) {
            if (cold ? s->no_cold : !bench_table[way].hot) continue;
            bench_row *row = &s->rows[s->nrows++];
            *row = (bench_row){.way = way, .cold = cold, .seconds = calloc((size_t)s->nsamples, sizeof *row->seconds)};
            if (!row->seconds) cli_die_memory();
        }
}

static void bench_medians(bench_state *s) {
    for (size_t i = 0; i < s->nrows; i++) {
        bench_row *row = &s->rows[i];
        if (row->failed) continue;
        qsort(row->seconds, (size_t)s->nsamples, sizeof *row->seconds, bench_compare);
        row->median = (row->seconds[(s->nsamples - 1) / 2] + row->seconds[s->nsamples / 2]) / 2;
        double *best = &s->best[row->cold];
        if (bench_table[row->way].bound && (*best == 0 || row->median < *best)) *best = row->median;
    }
}

static heft_status bench_run(bench_state *s, heft_error *err) {
    heft_status status = HEFT_OK;
    bench_look(s, false);
    bench_rows(s);
    for (uint64_t sample = 0; sample < s->nsamples && !status; sample++)
        for (size_t i = 0; i < s->nrows && !status; i++) status = bench_sample(s, &s->rows[i], sample, err);
    if (!s->args->quiet && heft__os_is_terminal(2)) fprintf(stderr, "\r%60s\r", "");
    if (!status) bench_medians(s);
    return status;
}

/* ---- what is said ------------------------------------------------------------------------------------------------ */

/* Whether "cold" was cold: the remarks, one a call, NULL after the last. */
static const char *bench_note(const bench_state *s, size_t number, cli_text *text) {
    bool warm = s->resident_of && s->resident_most > s->resident_of / 100 * BENCH_COLD_PERCENT;
    const struct {
        bool says;
        const char *what;
    } notes[] = {
        {s->no_cold, "the files lie in memory (tmpfs or the like): there is no cold state"},
        {s->foreign, "files belong to another user, so whether their pages were dropped is not known"},
        {s->dirty, "pages wait to be written to disk, and those cannot be dropped: run sync first"},
        {s->unknown && !s->foreign && !s->no_cold, "this system does not say which pages are cached: cold may be warm"},
        {warm && !s->no_cold, NULL},
    };
    for (size_t i = 0; i < sizeof notes / sizeof *notes; i++) {
        if (!notes[i].says || number--) continue;
        if (notes[i].what) return notes[i].what;
        text->len = 0;
        cli_text_str(text, "cold was not cold: after dropping the cache ");
        cli_text_percent(text, s->resident_most, s->resident_of);
        cli_text_str(text, " was still in it, since other programs use it");
        cli_text_put(text, "", 1);
        return text->data;
    }
    return NULL;
}

static double bench_ratio(const bench_state *s, const bench_row *row) {
    return row->median > 0 ? s->best[row->cold] / row->median : 0;
}

static cli_style bench_cell(void *ctx, uint64_t number, size_t column, cli_text *text) {
    const bench_state *s = ctx;
    const bench_row *row = &s->rows[number];
    const double *seconds = row->seconds;
    if (row->failed && column > 1 && column < 6) {
        cli_text_str(text, "-");
        return CLI_DIM;
    }
    switch (column) {
    case 0: cli_text_str(text, row->cold ? "cold" : "hot"); return CLI_PLAIN;
    case 1: cli_text_str(text, bench_table[row->way].name); return bench_table[row->way].bound ? CLI_DIM : CLI_ACCENT;
    case 2: cli_text_seconds(text, row->median); return CLI_PLAIN;
    case 3: cli_text_fixed(text, row->median > 0 ? (double)s->nbytes / row->median / 1e9 : 0, 2); return CLI_PLAIN;
    case 4: cli_text_fixed(text, bench_ratio(s, row), 2); return CLI_BOLD;
    case 5:
        cli_text_fixed(text, row->median > 0 ? (seconds[s->nsamples - 1] - seconds[0]) / row->median * 100 : 0, 0);
        cli_text_str(text, " %");
        return CLI_PLAIN;
    default:
        if (row->failed) cli_text_str(text, row->err.message);
        else cli_text_str(text, row->took);
        return row->failed ? CLI_WARN : CLI_PLAIN;
    }
}

static void bench_screen(bench_state *s) {
    static const cli_column columns[] = {{"CACHE", false, false},   {"WAY", false, false},   {"TIME", true, false},
                                         {"GB/S", true, false},     {"OF BOUND", true, false}, {"SPREAD", true, false},
                                         {"PATH TAKEN", false, true}};
    cli_text line = {0}, name = {0};
    cli_text_escaped(&name, s->path, strlen(s->path));
    cli_text_styled(&line, CLI_BOLD, name.data, name.len);
    cli_text_str(&line, ": ");
    cli_text_size(&line, s->nbytes);
    cli_text_str(&line, " in ");
    cli_text_plural(&line, s->nfiles, "file");
    cli_text_str(&line, "; median of ");
    cli_text_plural(&line, s->nsamples, "round");
    cli_text_str(&line, ", each row in a process of its own");
    cli_print(&line);
    cli_table table = {columns, sizeof columns / sizeof *columns, s->nrows, bench_cell, s, true};
    cli_table_print(&table);
    cli_text_str(&line, "bound: a bare program that reads the same files with ");
    cli_text_plural(&line, s->args->jobs ? s->args->jobs : 2, "thread");
    cli_text_str(&line, " and parses nothing");
    cli_print(&line);
    cli_text_str(&line, "OF BOUND: the time of the best bound over that of the row; 1.00 is as fast. A mapping alone "
                        "reads nothing");
    cli_print(&line);
    const char *note;
    for (size_t i = 0; (note = bench_note(s, i, &name)) != NULL; i++) {
        cli_text_styled(&line, CLI_WARN, "note", 4);
        cli_text_format(&line, ": %s", note);
        cli_print(&line);
    }
    cli_text_free(&line);
    cli_text_free(&name);
}

static void bench_json_row(heft__json_out *json, const bench_state *s, const bench_row *row) {
    heft__json_out_object(json);
    cli_json_text(json, "cache", row->cold ? "cold" : "hot");
    cli_json_text(json, "way", bench_table[row->way].name);
    cli_json_bool(json, "bound", bench_table[row->way].bound);
    cli_json_text_or_null(json, "error", row->failed ? row->err.message : NULL);
    if (!row->failed) {
        cli_json_double(json, "seconds", row->median);
        cli_json_double(json, "least", row->seconds[0]);
        cli_json_double(json, "most", row->seconds[s->nsamples - 1]);
        cli_json_double(json, "gbps", row->median > 0 ? (double)s->nbytes / row->median / 1e9 : 0);
        cli_json_double(json, "of_bound", bench_ratio(s, row));
        cli_json_text_or_null(json, "path", row->took);
    }
    heft__json_out_object_end(json);
}

static void bench_json(const bench_state *s) {
    heft__json_out json;
    cli_text text = {0};
    const char *note;
    cli_json_begin(&json, false);
    heft__json_out_object(&json);
    cli_json_text(&json, "path", s->path);
    cli_json_u64(&json, "bytes_kept", s->nbytes);
    cli_json_u64(&json, "files", s->nfiles);
    cli_json_u64(&json, "samples", s->nsamples);
    heft__json_out_key(&json, "rows", SIZE_MAX);
    heft__json_out_array(&json);
    for (size_t i = 0; i < s->nrows; i++) bench_json_row(&json, s, &s->rows[i]);
    heft__json_out_array_end(&json);
    heft__json_out_key(&json, "notes", SIZE_MAX);
    heft__json_out_array(&json);
    for (size_t i = 0; (note = bench_note(s, i, &text)) != NULL; i++) heft__json_out_string(&json, note, SIZE_MAX);
    heft__json_out_array_end(&json);
    heft__json_out_object_end(&json);
    cli_json_end(&json);
    cli_text_free(&text);
}

/* ---- the command ------------------------------------------------------------------------------------------------- */

/* The whole model must fit: the bound holds all of it too. */
static heft_status bench_admit(const bench_state *s, heft_error *err) {
    heft_load_plan *plan;
    heft_load_options options = cli_load_options(s->args, NULL);
    heft_status status = heft_load_plan_new(s->archive, &options, &plan, err);
    if (!status) status = heft_load_plan_admit(plan, err);
    heft_load_plan_free(plan);
    return status;
}

static void bench_gather(bench_state *s) {
    s->nfiles = heft_archive_file_count(s->archive);
    s->files = calloc((size_t)s->nfiles + 1, sizeof *s->files);
    if (!s->files) cli_die_memory();
    for (uint32_t i = 0; i < s->nfiles; i++) {
        heft_file file;
        if (heft_archive_file(s->archive, i, &file, NULL) == HEFT_OK) s->files[i] = file.path;
    }
    for (uint64_t id = 0; id < heft_archive_count(s->archive); id++) {
        heft_tensor tensor;
        if (heft_archive_get(s->archive, id, &tensor, NULL) == HEFT_OK) s->nbytes += tensor.nbytes;
    }
}

int cli_bench(const cli_args *args) {
    bench_state s = {.args = args, .path = args->operands[0]};
    heft_error err;
    int code = CLI_OK;
    s.nsamples = args->samples ? args->samples : BENCH_SAMPLES;
    if (args->noperands > 1) return cli_usage_error("bench", "one path is measured at a time, not %zu", args->noperands);
    if (strcmp(s.path, "-") == 0) return cli_usage_error("bench", "standard input cannot be read again and again");
    if (cli_open(args, s.path, &s.archive, &err) != HEFT_OK) return cli_fail(s.path, &err);
    cli_warn(args, s.path, s.archive);
    bench_gather(&s);
    heft_status status = bench_admit(&s, &err);
    if (!status) status = bench_run(&s, &err);
    if (status) code = cli_fail(s.path, &err);
    else if (args->json) bench_json(&s);
    else bench_screen(&s);
    for (size_t i = 0; i < s.nrows; i++) free(s.rows[i].seconds);
    free(s.files);
    heft_archive_unref(s.archive);
    return code;
}
