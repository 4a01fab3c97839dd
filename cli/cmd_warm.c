/* cli: heft warm: brings the kept bytes of a model into the page cache, for programs that are not heft's. */
#include "loader.h"

#include <string.h>

/* Bytes of the plan that were cached, of those whose residency is known. */
static void warm_cached(const heft_load_plan *plan, uint64_t *cached, uint64_t *of) {
    heft_load_summary sum;
    heft_load_plan_summarize(plan, &sum);
    *cached = *of = 0;
    for (uint32_t i = 0; i < sum.nshards; i++) {
        heft_load_shard shard;
        if (heft_load_plan_shard(plan, i, &shard, NULL) != HEFT_OK || shard.resident_nbytes == HEFT_NONE) continue;
        *cached += shard.resident_nbytes;
        *of += shard.kept_nbytes;
    }
}

static void warm_screen(const cli_loader *loader, const heft_load_stats *stats, double seconds) {
    cli_text line = {0}, name = {0};
    uint64_t cached, of;
    warm_cached(loader->plan, &cached, &of);
    cli_text_escaped(&name, loader->path, strlen(loader->path));
    cli_text_styled(&line, CLI_BOLD, name.data, name.len);
    cli_text_str(&line, ": ");
    cli_text_size(&line, loader->sum.memory.kept_nbytes);
    cli_text_str(&line, " wanted");
    if (of) {
        cli_text_str(&line, ", ");
        cli_text_percent(&line, cached, of);
        cli_text_str(&line, " of it cached before");
    }
    cli_text_str(&line, "; read ");
    cli_text_size(&line, stats->requested_nbytes);
    cli_text_str(&line, " in ");
    cli_text_seconds(&line, seconds);
    if (stats->requested_nbytes) {
        cli_text_str(&line, ", ");
        cli_text_rate(&line, stats->requested_nbytes, seconds);
    }
    cli_print(&line);
    cli_text_free(&line);
    cli_text_free(&name);
}

static void warm_json(const cli_loader *loader, const heft_load_stats *stats, double seconds) {
    heft__json_out json;
    uint64_t cached, of;
    warm_cached(loader->plan, &cached, &of);
    cli_json_begin(&json, true);
    heft__json_out_object(&json);
    cli_json_text(&json, "path", loader->path);
    cli_json_double(&json, "seconds", seconds);
    cli_json_u64(&json, "tensors", loader->sum.ntensors);
    cli_json_u64(&json, "bytes_kept", loader->sum.memory.kept_nbytes);
    cli_json_u64_or_null(&json, "bytes_cached_before", of ? cached : HEFT_NONE);
    cli_json_u64(&json, "bytes_requested", stats->requested_nbytes);
    cli_json_load_shards(&json, loader->plan, false);
    cli_json_load_rules(&json, loader->plan);
    cli_json_load_warnings(&json, heft_load_plan_filter(loader->plan), loader->path);
    cli_json_replaced(&json, loader->archive, loader->path);
    heft__json_out_object_end(&json);
    cli_json_end(&json);
}

int cli_warm(const cli_args *args) {
    cli_loader loader;
    cli_progress progress;
    heft_load_stats stats = {.struct_size = sizeof stats};
    heft_load_options options = cli_load_options(args, NULL);
    heft_error err;
    cli_progress_start(&progress, args->quiet || args->json);
    options.progress = cli_progress_step;
    options.progress_ctx = &progress;
    double start = heft__os_seconds();
    int code = cli_loader_open("warm", args, &options, &loader);
    if (code == CLI_OK) {
        heft_status status = heft_warm(loader.plan, &stats, &err);
        double seconds = heft__os_seconds() - start;
        cli_progress_end(&progress);
        if (status != HEFT_OK) code = cli_loader_fail(&loader, &err);
        else if (args->json) warm_json(&loader, &stats, seconds);
        else warm_screen(&loader, &stats, seconds);
    }
    cli_loader_close(&loader);
    return code;
}
