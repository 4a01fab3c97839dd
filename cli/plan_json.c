/* cli: what a plan decided, as JSON. */
#include "loader.h"

void cli_json_u64(heft__json_out *json, const char *key, uint64_t value) {
    heft__json_out_key(json, key, SIZE_MAX);
    heft__json_out_u64(json, value);
}

void cli_json_double(heft__json_out *json, const char *key, double value) {
    heft__json_out_key(json, key, SIZE_MAX);
    heft__json_out_double(json, value);
}

void cli_json_text(heft__json_out *json, const char *key, const char *text) {
    heft__json_out_key(json, key, SIZE_MAX);
    heft__json_out_string(json, text, SIZE_MAX);
}

void cli_json_bool(heft__json_out *json, const char *key, bool value) {
    heft__json_out_key(json, key, SIZE_MAX);
    heft__json_out_bool(json, value);
}

const char *cli_engine_name(heft_engine engine) {
    static const char *const names[] = {"auto", "pool", "uring"};
    return engine < sizeof names / sizeof *names ? names[engine] : "unknown";
}

static void json_shard_plan(heft__json_out *json, const heft_load_shard *shard) {
    cli_json_text(json, "file", shard->path);
    cli_json_text(json, "path", heft_path_name(shard->path_used != HEFT_PATH_NONE ? shard->path_used : shard->path_planned));
    cli_json_text(json, "reason", heft_reason_name(shard->reason));
    cli_json_text(json, "why", shard->why);
    cli_json_text(json, "planned", heft_path_name(shard->path_planned));
    cli_json_text_or_null(json, "file_system", shard->file_system);
    cli_json_text(json, "class", shard->class_name);
    cli_json_u64(json, "file_nbytes", shard->nbytes);
    cli_json_u64(json, "kept_nbytes", shard->kept_nbytes);
    cli_json_u64(json, "requested_nbytes", shard->requested_nbytes);
    cli_json_u64(json, "over_read_nbytes", shard->over_read_nbytes);
    cli_json_u64(json, "spanned_nbytes", shard->spanned_nbytes);
    cli_json_u64(json, "tensors", shard->ntensors);
    cli_json_u64(json, "runs", shard->nruns);
    cli_json_u64_or_null(json, "resident_nbytes", shard->resident_nbytes);
    cli_json_text(json, "resident_by", shard->residency_by);
    cli_json_bool(json, "dirty", shard->dirty);
    cli_json_u64_or_null(json, "direct_align", shard->direct_align ? shard->direct_align : HEFT_NONE);
}

void cli_json_load_shards(heft__json_out *json, const heft_load_plan *plan, bool ran) {
    heft_load_summary sum;
    heft_load_plan_summarize(plan, &sum);
    heft__json_out_key(json, "shards", SIZE_MAX);
    heft__json_out_array(json);
    for (uint32_t i = 0; i < sum.nshards; i++) {
        heft_load_shard shard;
        if (heft_load_plan_shard(plan, i, &shard, NULL) != HEFT_OK) continue;
        heft__json_out_object(json);
        json_shard_plan(json, &shard);
        if (ran) {
            cli_json_text_or_null(json, "fallback", shard.fallback_errno ? heft__errno_name(shard.fallback_errno) : NULL);
            cli_json_u64(json, "read_nbytes", shard.read_nbytes);
            cli_json_double(json, "seconds", shard.seconds);
        }
        heft__json_out_object_end(json);
        cli_json_flush(json);
    }
    heft__json_out_array_end(json);
}

void cli_json_load_rules(heft__json_out *json, const heft_load_plan *plan) {
    static const char *const outcomes[] = {"kept", "withheld", "deferred"};
    const heft_filter_result *filter = heft_load_plan_filter(plan);
    heft__json_out_key(json, "rules", SIZE_MAX);
    heft__json_out_array(json);
    for (heft_rule rule = 0; rule < HEFT_RULE_COUNT; rule++) {
        heft_rule_report report;
        if (heft_filter_report(filter, rule, &report, NULL) != HEFT_OK) continue;
        heft__json_out_object(json);
        cli_json_text(json, "rule", heft_rule_name(rule));
        cli_json_text(json, "outcome", outcomes[heft_rule_outcome(rule)]);
        cli_json_u64(json, "tensors", report.ntensors);
        cli_json_u64(json, "nbytes", report.nbytes);
        heft__json_out_key(json, "first", SIZE_MAX);
        if (report.first_name) heft__json_out_string(json, report.first_name, report.first_name_len);
        else heft__json_out_null(json);
        heft__json_out_object_end(json);
    }
    heft__json_out_array_end(json);
}

void cli_json_load_memory(heft__json_out *json, const heft_footprint *memory) {
    heft__json_out_key(json, "memory", SIZE_MAX);
    heft__json_out_object(json);
    cli_json_u64(json, "kept_nbytes", memory->kept_nbytes);
    cli_json_u64(json, "deferred_nbytes", memory->deferred_nbytes);
    cli_json_u64(json, "withheld_nbytes", memory->withheld_nbytes);
    cli_json_u64(json, "arena_nbytes", memory->arena_nbytes);
    cli_json_u64(json, "scratch_nbytes", memory->scratch_nbytes);
    cli_json_u64(json, "ring_nbytes", memory->ring_nbytes);
    cli_json_u64(json, "side_nbytes", memory->side_nbytes);
    cli_json_u64(json, "metadata_nbytes", memory->metadata_nbytes);
    cli_json_u64(json, "mapped_nbytes", memory->mapped_nbytes);
    cli_json_u64(json, "peak_owned_nbytes", memory->peak_owned_nbytes);
    cli_json_u64(json, "transient_nbytes", memory->transient_nbytes);
    cli_json_double(json, "multiplier", memory->multiplier);
    cli_json_u64(json, "estimate_nbytes", memory->estimate_nbytes);
    cli_json_u64(json, "needed_nbytes", memory->needed_nbytes);
    cli_json_u64_or_null(json, "free_nbytes", memory->free_nbytes);
    cli_json_text(json, "free_origin", memory->free_origin);
    heft__json_out_object_end(json);
}

void cli_json_load_warnings(heft__json_out *json, const heft_filter_result *filter, const char *path) {
    const heft_report *report = heft_filter_warnings(filter);
    heft__json_out_key(json, "warnings", SIZE_MAX);
    heft__json_out_array(json);
    for (uint64_t i = 0; i < heft_report_count(report); i++) {
        heft_severity severity;
        heft_error fault;
        if (heft_report_get(report, i, &severity, &fault, NULL) == HEFT_OK) cli_json_fault(json, severity, &fault, path);
    }
    heft__json_out_array_end(json);
}
