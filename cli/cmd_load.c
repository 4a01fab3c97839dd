/* cli: heft load: loads a model, or a part of it, and tells what that took. */
#include "loader.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What one load did. */
typedef struct load_round {
    heft_load_stats stats;
    double seconds;      /* from opening to the result */
    uint64_t huge_nbytes; /* obtained; HEFT_NONE: not known */
    heft__os_use before, after;
    bool touched;
    uint64_t touched_nbytes, sum;
    double touch_seconds;
} load_round;

/* ---- every byte, in a child -------------------------------------------------------------------------------------- */

typedef struct load_touch {
    uint64_t sum, nbytes;
    double seconds;
    heft_error err; /* status OK: none */
} load_touch;

static uint64_t load_sum(const uint8_t *at, uint64_t nbytes) {
    uint64_t sum[4] = {0}, words[4], all = 0;
    for (; nbytes >= sizeof words; at += sizeof words, nbytes -= sizeof words) {
        memcpy(words, at, sizeof words);
        for (int i = 0; i < 4; i++) sum[i] += words[i];
    }
    for (uint64_t i = 0; i < nbytes; i++) all += (uint64_t)at[i] << 8 * (i % 8);
    return all + sum[0] + sum[1] + sum[2] + sum[3];
}

/* The mapping of a file that was truncated ends this process, and not the one that prints. */
static void load_touch_all(void *ctx, void *result) {
    const heft_weights *weights = ctx;
    load_touch *touch = result;
    double start = heft__os_seconds();
    for (uint64_t i = 0; i < heft_weights_count(weights); i++) {
        heft_loaded tensor;
        if (heft_weights_at(weights, HEFT_LOAD_ORDER_FILE, i, &tensor, &touch->err) != HEFT_OK) break;
        touch->sum += load_sum(tensor.data, tensor.nbytes);
        touch->nbytes += tensor.nbytes;
    }
    touch->seconds = heft__os_seconds() - start;
    _Exit(0);
}

static heft_status load_touch_run(heft_weights *weights, load_round *round, heft_error *err) {
    load_touch touch = {0};
    heft_status status = heft__os_child(load_touch_all, weights, &touch, sizeof touch, err);
    if (status == HEFT_OK && touch.err.status != HEFT_OK) {
        if (err) *err = touch.err;
        return touch.err.status;
    }
    if (status != HEFT_OK) return status;
    round->touched = true;
    round->touched_nbytes = touch.nbytes;
    round->sum = touch.sum;
    round->touch_seconds = touch.seconds;
    return HEFT_OK;
}

/* ---- for people -------------------------------------------------------------------------------------------------- */

static void load_label(cli_text *line, const char *label) {
    cli_text_format(line, "  %-7s ", label);
}

static void load_headline(const cli_loader *loader, const load_round *round, uint64_t number) {
    cli_text line = {0}, name = {0};
    cli_text_escaped(&name, loader->path, strlen(loader->path));
    cli_text_styled(&line, CLI_BOLD, name.data, name.len);
    if (loader->args->repeat > 1) cli_text_format(&line, ", load %llu", (unsigned long long)number);
    cli_text_str(&line, ": ");
    cli_text_plural(&line, loader->sum.ntensors, "tensor");
    cli_text_str(&line, ", ");
    cli_text_size(&line, round->stats.kept_nbytes);
    cli_text_str(&line, " in ");
    cli_text_seconds(&line, round->seconds);
    cli_text_str(&line, ", ");
    cli_text_rate(&line, round->stats.kept_nbytes, round->seconds);
    cli_print(&line);
    cli_text_free(&line);
    cli_text_free(&name);
}

static void load_reads(const load_round *round, cli_text *line) {
    const heft_load_stats *stats = &round->stats;
    load_label(line, "read");
    cli_text_size(line, stats->requested_nbytes);
    cli_text_str(line, " in ");
    cli_text_plural(line, stats->requests, "request");
    if (stats->requests) {
        cli_text_str(line, " of up to ");
        cli_text_size(line, stats->block_nbytes);
        cli_text_str(line, " by ");
        cli_text_plural(line, stats->workers, "worker");
        cli_text_format(line, ", engine %s", cli_engine_name(stats->engine));
    }
    uint64_t over = stats->over_read_nbytes + stats->spanned_nbytes;
    if (over) {
        cli_text_str(line, "; ");
        cli_text_size(line, over);
        cli_text_str(line, " of it between what was wanted");
    }
    if (stats->mapped_nbytes) {
        cli_text_str(line, "; mapped ");
        cli_text_size(line, stats->mapped_nbytes);
    }
    cli_print(line);
}

static void load_casts(const cli_loader *loader, cli_text *line) {
    cli_load_casts casts;
    cli_load_casts_make(loader->archive, loader->plan, &casts);
    if (casts.n) {
        load_label(line, "cast");
        cli_load_casts_words(&casts, line);
        cli_print(line);
    }
    cli_load_casts_free(&casts);
}

static void load_memory(const cli_loader *loader, const load_round *round, cli_text *line) {
    const heft_load_stats *stats = &round->stats;
    load_label(line, "memory");
    cli_text_size(line, loader->sum.memory.peak_owned_nbytes);
    cli_text_str(line, " announced");
    if (loader->sum.memory.mapped_nbytes) {
        cli_text_str(line, ", and ");
        cli_text_size(line, loader->sum.memory.mapped_nbytes);
        cli_text_str(line, " mapped");
    }
    if (round->after.peak_rss_nbytes != HEFT_NONE && round->before.rss_nbytes != HEFT_NONE) {
        uint64_t peak = round->after.peak_rss_nbytes, start = round->before.rss_nbytes;
        cli_text_str(line, "; at the peak the whole process had grown by ");
        cli_text_size(line, peak > start ? peak - start : 0);
    }
    cli_print(line);
    load_label(line, "pages");
    cli_text_plural(line, stats->minor_faults, "minor fault");
    cli_text_str(line, ", ");
    cli_text_grouped(line, stats->major_faults);
    cli_text_str(line, " major");
    if (stats->huge_wanted_nbytes) {
        cli_text_str(line, "; ");
        if (round->huge_nbytes == HEFT_NONE) cli_text_str(line, "an unknown part");
        else cli_text_size(line, round->huge_nbytes);
        cli_text_str(line, " of ");
        cli_text_size(line, stats->huge_wanted_nbytes);
        cli_text_str(line, " on huge pages");
    }
    cli_print(line);
}

static void load_time(const cli_loader *loader, const load_round *round, cli_text *line) {
    const heft_load_stats *stats = &round->stats;
    const struct {
        const char *what;
        double seconds;
    } phases[] = {{"open", loader->open_seconds},       {"filter", stats->filter_seconds},
                  {"plan", stats->plan_seconds},        {"allocate", stats->allocate_seconds},
                  {"read", stats->read_seconds}};
    load_label(line, "time");
    for (size_t i = 0; i < sizeof phases / sizeof *phases; i++) {
        cli_text_format(line, "%s%s ", i ? ", " : "", phases[i].what);
        cli_text_seconds(line, phases[i].seconds);
    }
    cli_print(line);
    if (!round->touched) return;
    load_label(line, "touch");
    cli_text_str(line, "every byte read once in ");
    cli_text_seconds(line, round->touch_seconds);
    cli_text_str(line, ", ");
    cli_text_rate(line, round->touched_nbytes, round->touch_seconds);
    cli_text_str(line, "; with the load ");
    cli_text_rate(line, round->touched_nbytes, round->touch_seconds + round->seconds);
    cli_text_format(line, "; sum %016llx", (unsigned long long)round->sum);
    cli_print(line);
}

static void load_verified(const cli_loader *loader, const load_round *round, cli_text *line) {
    const heft_load_stats *stats = &round->stats;
    if (!loader->args->verify) return;
    uint64_t left = loader->sum.ntensors - stats->nverified;
    load_label(line, "verify");
    cli_text_grouped(line, stats->nverified);
    cli_text_str(line, " of ");
    cli_text_plural(line, loader->sum.ntensors, "tensor");
    cli_text_str(line, " are what their digests say, in ");
    cli_text_seconds(line, stats->verify_seconds);
    if (left) {
        cli_text_str(line, "; ");
        cli_text_grouped(line, left);
        cli_text_str(line, " not checked: no digest, a part, or converted");
    }
    cli_print(line);
}

/* Under --strict it is no success that a tensor could not be verified. */
static int load_strict(const cli_loader *loader, const load_round *round) {
    uint64_t all = loader->sum.ntensors, left = all - round->stats.nverified;
    if (!loader->args->verify || !loader->args->strict || left == 0) return CLI_OK;
    cli_text path = {0};
    cli_text_escaped(&path, loader->path, strlen(loader->path));
    cli_complain("%.*s: %llu of %llu tensors could not be verified: no digest, a part, or converted", (int)path.len, path.data,
                 (unsigned long long)left, (unsigned long long)all);
    cli_text_free(&path);
    return CLI_UNREADABLE; /* as heft verify */
}

static void load_screen(const cli_loader *loader, const load_round *round, uint64_t number) {
    cli_text line = {0};
    cli_load_files files;
    cli_load_files_make(loader->plan, &files);
    load_headline(loader, round, number);
    cli_overlays_screen(loader->archive, loader->path);
    cli_load_files_sentences(&files);
    cli_load_files_free(&files);
    load_reads(round, &line);
    load_casts(loader, &line);
    load_verified(loader, round, &line);
    load_memory(loader, round, &line);
    load_time(loader, round, &line);
    cli_text_free(&line);
}

/* ---- for programs ------------------------------------------------------------------------------------------------ */

static void load_json_phases(heft__json_out *json, const cli_loader *loader, const load_round *round) {
    const heft_load_stats *stats = &round->stats;
    heft__json_out_key(json, "phases", SIZE_MAX);
    heft__json_out_object(json);
    cli_json_double(json, "open", loader->open_seconds);
    cli_json_double(json, "resolve", stats->resolve_seconds);
    cli_json_double(json, "filter", stats->filter_seconds);
    cli_json_double(json, "plan", stats->plan_seconds);
    cli_json_double(json, "allocate", stats->allocate_seconds);
    cli_json_double(json, "read", stats->read_seconds);
    cli_json_double(json, "verify", stats->verify_seconds);
    cli_json_double(json, "run", stats->total_seconds);
    heft__json_out_object_end(json);
}

static void load_json_counts(heft__json_out *json, const load_round *round) {
    const heft_load_stats *stats = &round->stats;
    cli_json_u64(json, "bytes_over_read", stats->over_read_nbytes);
    cli_json_u64(json, "bytes_spanned", stats->spanned_nbytes);
    cli_json_u64(json, "bytes_mapped", stats->mapped_nbytes);
    cli_json_u64(json, "requests", stats->requests);
    cli_json_u64(json, "short_reads", stats->short_reads);
    cli_json_u64(json, "retries", stats->retries);
    cli_json_u64(json, "fallbacks", stats->fallbacks);
    cli_json_u64(json, "arena_nbytes", stats->arena_nbytes);
    cli_json_u64(json, "slack_nbytes", stats->slack_nbytes);
    cli_json_u64(json, "scratch_nbytes", stats->scratch_nbytes);
    cli_json_u64(json, "huge_wanted_nbytes", stats->huge_wanted_nbytes);
    cli_json_u64_or_null(json, "huge_nbytes", round->huge_nbytes);
    cli_json_u64(json, "minor_faults", stats->minor_faults);
    cli_json_u64(json, "major_faults", stats->major_faults);
    cli_json_u64(json, "workers", stats->workers);
    cli_json_u64(json, "block_nbytes", stats->block_nbytes);
    cli_json_text(json, "engine", cli_engine_name(stats->engine));
}

static void load_json(const cli_loader *loader, const load_round *round, uint64_t number) {
    heft__json_out json;
    cli_json_begin(&json, true);
    heft__json_out_object(&json);
    cli_json_text(&json, "path", loader->path);
    cli_json_u64(&json, "load", number);
    cli_json_double(&json, "seconds", round->seconds);
    cli_json_u64(&json, "tensors", loader->sum.ntensors);
    cli_json_u64(&json, "bytes_kept", round->stats.kept_nbytes);
    cli_json_u64(&json, "bytes_requested", round->stats.requested_nbytes);
    cli_json_double(&json, "gbps", round->seconds > 0 ? (double)round->stats.kept_nbytes / round->seconds / 1e9 : 0);
    cli_json_u64_or_null(&json, "peak_rss", round->after.peak_rss_nbytes);
    cli_json_u64_or_null(&json, "start_rss", round->before.rss_nbytes);
    heft__json_out_key(&json, "verified", SIZE_MAX);
    if (loader->args->verify) heft__json_out_u64(&json, round->stats.nverified);
    else heft__json_out_null(&json);
    load_json_counts(&json, round);
    load_json_phases(&json, loader, round);
    heft__json_out_key(&json, "touch", SIZE_MAX);
    if (round->touched) {
        heft__json_out_object(&json);
        cli_json_double(&json, "seconds", round->touch_seconds);
        cli_json_u64(&json, "nbytes", round->touched_nbytes);
        cli_json_u64(&json, "sum", round->sum);
        heft__json_out_object_end(&json);
    } else {
        heft__json_out_null(&json);
    }
    cli_json_load_shards(&json, loader->plan, true);
    cli_json_load_rules(&json, loader->plan);
    cli_load_casts casts;
    cli_load_casts_make(loader->archive, loader->plan, &casts);
    cli_json_load_casts(&json, &casts);
    cli_load_casts_free(&casts);
    cli_json_load_memory(&json, &loader->sum.memory);
    cli_json_load_warnings(&json, heft_load_plan_filter(loader->plan), loader->path);
    cli_json_replaced(&json, loader->archive, loader->path);
    heft__json_out_object_end(&json);
    cli_json_end(&json);
}

/* ---- the command ------------------------------------------------------------------------------------------------- */

static heft_status load_run(cli_loader *loader, heft_arena *arena, double start, load_round *round, heft_error *err) {
    heft_weights *weights;
    round->stats.struct_size = sizeof round->stats;
    heft_status status = heft_load_run(loader->plan, &weights, &round->stats, err);
    if (status != HEFT_OK) return status;
    round->seconds = heft__os_seconds() - start;
    heft__os_usage(&round->after);
    round->huge_nbytes = heft_arena_huge_nbytes(arena);
    heft_load_plan_summarize(loader->plan, &loader->sum);
    if (loader->args->touch) status = load_touch_run(weights, round, err);
    heft_weights_unref(weights);
    return status;
}

/* One load, from opening to the report. */
static int load_once(const cli_args *args, uint64_t number) {
    cli_loader loader;
    cli_progress progress;
    heft_arena *arena = NULL;
    load_round round = {.huge_nbytes = HEFT_NONE};
    heft_load_options options = cli_load_options(args, NULL);
    heft_error err;
    cli_progress_start(&progress, args->quiet || args->json);
    options.progress = cli_progress_step;
    options.progress_ctx = &progress;
    if (heft_arena_new(HEFT_HUGE_AUTO, NULL, &arena, &err) != HEFT_OK) return cli_fail(args->operands[0], &err);
    options.arena = arena;
    heft__os_peak_restart();
    heft__os_usage(&round.before);
    double start = heft__os_seconds();
    int code = cli_loader_open("load", args, &options, &loader);
    if (code == CLI_OK) {
        heft_status status = load_run(&loader, arena, start, &round, &err);
        cli_progress_end(&progress);
        if (status != HEFT_OK) code = cli_loader_fail(&loader, &err);
        else if (args->json) load_json(&loader, &round, number);
        else load_screen(&loader, &round, number);
        if (status == HEFT_OK) code = load_strict(&loader, &round);
    }
    cli_loader_close(&loader);
    heft_arena_unref(arena);
    return code;
}

int cli_load(const cli_args *args) {
    cli_args again = *args;
    uint64_t repeat = args->repeat ? args->repeat : 1;
    int code = CLI_OK;
    again.quiet = true; /* warnings are said once */
    for (uint64_t i = 1; i <= repeat && code == CLI_OK; i++) {
        code = load_once(i == 1 ? args : &again, i);
        cli_flush(); /* who repeats a load watches it */
    }
    return code;
}
