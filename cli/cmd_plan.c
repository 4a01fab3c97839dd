/* cli: heft plan: how a model would be loaded, before a byte of it is read. */
#include "loader.h"

#include <string.h>

typedef struct plan_state {
    cli_loader loader;
    cli_load_casts casts;
    heft_error refusal;
    bool refused;
    heft_rule rules[HEFT_RULE_COUNT]; /* that decided about any tensor */
    size_t nrules;
} plan_state;

static const char *const plan_outcomes[] = {"kept", "withheld", "deferred"};

/* ---- for people -------------------------------------------------------------------------------------------------- */

static void plan_headline(const plan_state *s) {
    const heft_load_summary *sum = &s->loader.sum;
    heft_filter_summary filter;
    cli_text line = {0}, name = {0};
    heft_filter_summarize(heft_load_plan_filter(s->loader.plan), &filter);
    cli_text_escaped(&name, s->loader.path, strlen(s->loader.path));
    cli_text_styled(&line, CLI_BOLD, name.data, name.len);
    cli_text_str(&line, ": ");
    cli_text_grouped(&line, sum->ntensors);
    cli_text_str(&line, " of ");
    cli_text_plural(&line, filter.ntensors, "tensor");
    cli_text_str(&line, ", ");
    cli_text_size(&line, filter.part_nbytes);
    cli_text_str(&line, " of ");
    cli_text_size(&line, filter.nbytes);
    if (s->casts.n) {
        cli_text_str(&line, ", ");
        cli_text_size(&line, sum->memory.kept_nbytes);
        cli_text_str(&line, " once converted");
    }
    if (filter.deferred_ntensors) {
        cli_text_str(&line, "; ");
        cli_text_grouped(&line, filter.deferred_ntensors);
        cli_text_str(&line, " deferred");
    }
    cli_print(&line);
    cli_text_free(&line);
    cli_text_free(&name);
}

static cli_style plan_rule_cell(void *ctx, uint64_t row, size_t column, cli_text *text) {
    const plan_state *s = ctx;
    heft_rule rule = s->rules[row];
    heft_rule_report report;
    heft_filter_report(heft_load_plan_filter(s->loader.plan), rule, &report, NULL);
    switch (column) {
    case 0: cli_text_str(text, heft_rule_name(rule)); return CLI_PLAIN;
    case 1: cli_text_str(text, plan_outcomes[heft_rule_outcome(rule)]); return CLI_ACCENT;
    case 2: cli_text_u64(text, report.ntensors); return CLI_PLAIN;
    case 3: cli_text_size(text, report.nbytes); return CLI_PLAIN;
    default: cli_text_name(text, report.first_name, report.first_name_len); return CLI_PLAIN;
    }
}

static void plan_rules_table(plan_state *s) {
    static const cli_column columns[] = {{"RULE", false, false},
                                         {"OUTCOME", false, false},
                                         {"TENSORS", true, false},
                                         {"BYTES", true, false},
                                         {"FIRST", false, true}};
    for (heft_rule rule = HEFT_RULE_COUNT; rule-- > 0;) { /* what is kept comes first */
        heft_rule_report report;
        if (heft_filter_report(heft_load_plan_filter(s->loader.plan), rule, &report, NULL) == HEFT_OK && report.ntensors)
            s->rules[s->nrules++] = rule;
    }
    cli_table table = {columns, sizeof columns / sizeof *columns, s->nrules, plan_rule_cell, s, true};
    cli_table_print(&table);
}

static cli_style plan_run_cell(void *ctx, uint64_t row, size_t column, cli_text *text) {
    static const char *const kinds[] = {"straight", "scattered", "gathered"};
    const plan_state *s = ctx;
    heft_plan_run run;
    heft_file file;
    heft_tensor tensor;
    if (heft_load_plan_run(s->loader.plan, row, &run, NULL) != HEFT_OK) return CLI_PLAIN;
    switch (column) {
    case 0:
        if (heft_archive_file(s->loader.archive, run.file, &file, NULL) == HEFT_OK)
            cli_text_escaped(text, cli_base_name(file.path), strlen(cli_base_name(file.path)));
        return CLI_PLAIN;
    case 1: cli_text_u64(text, run.offset); return CLI_PLAIN;
    case 2: cli_text_size(text, run.nbytes); return CLI_PLAIN;
    case 3: cli_text_size(text, run.kept_nbytes); return CLI_PLAIN;
    case 4: cli_text_u64(text, run.nreads); return CLI_PLAIN;
    case 5: cli_text_str(text, run.kind < 3 ? kinds[run.kind] : "unknown"); return CLI_ACCENT;
    case 6: cli_text_u64(text, run.nviews); return CLI_PLAIN;
    default:
        if (heft_archive_get(s->loader.archive, run.first_view, &tensor, NULL) == HEFT_OK)
            cli_text_name(text, tensor.name, tensor.name_len);
        return CLI_PLAIN;
    }
}

static void plan_runs_table(plan_state *s) {
    static const cli_column columns[] = {{"FILE", false, true},      {"OFFSET", true, false}, {"READ", true, false},
                                         {"KEPT", true, false},      {"READS", true, false},  {"LANDS", false, false},
                                         {"TENSORS", true, false},   {"FIRST", false, true}};
    cli_table table = {columns, sizeof columns / sizeof *columns, s->loader.sum.nruns, plan_run_cell, s, true};
    cli_table_print(&table);
}

static void plan_part(cli_text *line, uint64_t nbytes, const char *what, bool *any) {
    if (!nbytes) return;
    cli_text_str(line, *any ? ", " : ": ");
    cli_text_size(line, nbytes);
    cli_text_format(line, " %s", what);
    *any = true;
}

static void plan_label(cli_text *line, const char *label) {
    cli_text_format(line, "  %-9s ", label);
}

/* What will be held while it runs, and of what it is made. */
static void plan_held(const plan_state *s, cli_text *line) {
    const heft_footprint *m = &s->loader.sum.memory;
    bool any = false;
    plan_label(line, "held");
    cli_text_size(line, m->peak_owned_nbytes);
    cli_text_str(line, " at the most");
    plan_part(line, m->arena_nbytes, "for tensors", &any);
    if (m->arena_nbytes && s->loader.sum.slack_nbytes) {
        cli_text_str(line, " (");
        cli_text_size(line, s->loader.sum.slack_nbytes);
        cli_text_str(line, " of it gaps and padding)");
    }
    plan_part(line, m->side_nbytes, "beside the mapping", &any);
    plan_part(line, m->ring_nbytes, "in a ring", &any);
    plan_part(line, m->scratch_nbytes, "of scratch", &any);
    plan_part(line, m->metadata_nbytes, "of headers and lists", &any);
    uint64_t parts = m->arena_nbytes + m->side_nbytes + m->ring_nbytes + m->scratch_nbytes + m->metadata_nbytes;
    if (m->peak_owned_nbytes > parts) {
        cli_text what = {0};
        cli_text_str(&what, "for ");
        cli_text_plural(&what, s->loader.sum.workers, "worker");
        cli_text_put(&what, "", 1);
        plan_part(line, m->peak_owned_nbytes - parts, what.data, &any);
        cli_text_free(&what);
    }
    cli_print(line);
}

static void plan_memory(const plan_state *s) {
    const heft_footprint *m = &s->loader.sum.memory;
    cli_text line = {0};
    cli_text_str(&line, "memory");
    cli_print(&line);
    plan_held(s, &line);
    if (m->mapped_nbytes) {
        plan_label(&line, "mapped");
        cli_text_size(&line, m->mapped_nbytes);
        cli_text_str(&line, ", which the system can take back");
        cli_print(&line);
    }
    plan_label(&line, "needed");
    cli_text_size(&line, m->needed_nbytes);
    cli_text_str(&line, ": the larger of what is held and of ");
    cli_text_size(&line, m->kept_nbytes);
    cli_text_str(&line, " kept \xC3\x97 "); /* a multiplication sign */
    cli_text_fixed(&line, m->multiplier, 2);
    if (s->loader.args->reserve) {
        cli_text_str(&line, ", and ");
        cli_text_size(&line, s->loader.args->reserve);
        cli_text_str(&line, " in reserve");
    }
    cli_print(&line);
    plan_label(&line, "free");
    if (m->free_nbytes == HEFT_NONE) cli_text_str(&line, "not known");
    else cli_text_size(&line, m->free_nbytes);
    cli_text_str(&line, ", by ");
    cli_text_escaped(&line, m->free_origin, strlen(m->free_origin));
    cli_print(&line);
    plan_label(&line, "verdict");
    if (s->refused) cli_text_styled(&line, CLI_BAD, "does not fit: heft load would refuse", 36);
    else cli_text_styled(&line, CLI_GOOD, "fits", 4);
    cli_print(&line);
    cli_text_free(&line);
}

static void plan_screen(plan_state *s) {
    cli_text blank = {0};
    cli_load_files files;
    cli_load_files_make(s->loader.plan, &files);
    plan_headline(s);
    cli_overlays_screen(s->loader.archive, s->loader.path);
    cli_load_files_sentences(&files);
    cli_print(&blank);
    cli_load_files_table(&files);
    cli_load_files_free(&files);
    cli_print(&blank);
    plan_rules_table(s);
    cli_print(&blank);
    if (s->casts.n) {
        cli_load_casts_table(&s->casts);
        cli_print(&blank);
    }
    if (s->loader.args->verbose && s->loader.sum.nruns) {
        plan_runs_table(s);
        cli_print(&blank);
    }
    plan_memory(s);
    cli_text_free(&blank);
}

/* ---- for programs ------------------------------------------------------------------------------------------------ */

static void plan_json_runs(const plan_state *s, heft__json_out *json) {
    static const char *const kinds[] = {"direct", "vector", "gather"};
    heft__json_out_key(json, "runs", SIZE_MAX);
    heft__json_out_array(json);
    for (uint64_t i = 0; i < s->loader.sum.nruns; i++) {
        heft_plan_run run;
        if (heft_load_plan_run(s->loader.plan, i, &run, NULL) != HEFT_OK) continue;
        heft__json_out_object(json);
        cli_json_u64(json, "shard", run.file);
        cli_json_text(json, "kind", run.kind < 3 ? kinds[run.kind] : "unknown");
        cli_json_u64(json, "offset", run.offset);
        cli_json_u64(json, "span_nbytes", run.span_nbytes);
        cli_json_u64(json, "nbytes", run.nbytes);
        cli_json_u64(json, "kept_nbytes", run.kept_nbytes);
        cli_json_u64(json, "reads", run.nreads);
        cli_json_u64(json, "tensors", run.nviews);
        heft__json_out_object_end(json);
        cli_json_flush(json);
    }
    heft__json_out_array_end(json);
}

static void plan_json_tensors(const plan_state *s, heft__json_out *json) {
    const heft_filter_result *filter = heft_load_plan_filter(s->loader.plan);
    const uint8_t *rules = heft_filter_rules(filter);
    heft__json_out_key(json, "tensors", SIZE_MAX);
    heft__json_out_array(json);
    for (uint64_t id = 0; id < heft_archive_count(s->loader.archive); id++) {
        heft_tensor tensor;
        heft_load_place place;
        if (heft_archive_get(s->loader.archive, id, &tensor, NULL) != HEFT_OK) continue;
        heft__json_out_object(json);
        heft__json_out_key(json, "name", SIZE_MAX);
        heft__json_out_string(json, tensor.name, tensor.name_len);
        cli_json_text(json, "rule", heft_rule_name(rules[id]));
        cli_json_text(json, "outcome", plan_outcomes[heft_rule_outcome(rules[id])]);
        if (heft_load_plan_place(s->loader.plan, id, &place, NULL) == HEFT_OK) {
            cli_json_text(json, "dtype", heft_dtype_name(place.dtype));
            cli_json_u64(json, "nbytes", place.nbytes);
            cli_json_u64(json, "arena", place.arena);
            cli_json_u64(json, "offset", place.offset);
            cli_json_u64(json, "align", place.align);
            cli_json_bool(json, "side", place.side);
        }
        heft__json_out_object_end(json);
        cli_json_flush(json);
    }
    heft__json_out_array_end(json);
}

static void plan_json(const plan_state *s) {
    const heft_load_summary *sum = &s->loader.sum;
    heft__json_out json;
    cli_json_begin(&json, false);
    heft__json_out_object(&json);
    cli_json_text(&json, "path", s->loader.path);
    cli_json_bool(&json, "fits", !s->refused);
    heft__json_out_key(&json, "refusal", SIZE_MAX);
    if (s->refused) cli_json_fault(&json, HEFT_SEVERITY_ERROR, &s->refusal, s->loader.path);
    else heft__json_out_null(&json);
    cli_json_u64(&json, "kept_tensors", sum->ntensors);
    cli_json_u64(&json, "bytes_kept", sum->memory.kept_nbytes);
    cli_json_u64(&json, "bytes_requested", sum->requested_nbytes);
    cli_json_u64(&json, "bytes_over_read", sum->over_read_nbytes);
    cli_json_u64(&json, "bytes_spanned", sum->spanned_nbytes);
    cli_json_u64(&json, "bytes_slack", sum->slack_nbytes);
    cli_json_u64(&json, "blocks", sum->nblocks);
    cli_json_u64(&json, "workers", sum->workers);
    cli_json_text(&json, "engine", cli_engine_name(sum->engine));
    cli_json_load_shards(&json, s->loader.plan, false);
    cli_json_load_rules(&json, s->loader.plan);
    cli_json_load_casts(&json, &s->casts);
    cli_json_load_memory(&json, &sum->memory);
    cli_json_load_warnings(&json, heft_load_plan_filter(s->loader.plan), s->loader.path);
    cli_json_replaced(&json, s->loader.archive, s->loader.path);
    plan_json_runs(s, &json);
    plan_json_tensors(s, &json);
    heft__json_out_object_end(&json);
    cli_json_end(&json);
}

int cli_plan(const cli_args *args) {
    plan_state s = {.refused = false};
    heft_load_options options = cli_load_options(args, NULL);
    int code = cli_loader_open("plan", args, &options, &s.loader);
    if (code == CLI_OK) {
        s.refused = heft_load_plan_admit(s.loader.plan, &s.refusal) != HEFT_OK;
        cli_load_casts_make(s.loader.archive, s.loader.plan, &s.casts);
        heft_load_plan_summarize(s.loader.plan, &s.loader.sum); /* with the free memory that was compared */
        if (args->json) plan_json(&s);
        else plan_screen(&s);
        if (s.refused) code = cli_loader_fail(&s.loader, &s.refusal);
        cli_load_casts_free(&s.casts);
    }
    cli_loader_close(&s.loader);
    return code;
}
