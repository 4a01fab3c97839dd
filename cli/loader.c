/* cli: opens what is to be loaded, with the options of the command line, and says what went wrong. */
#include "loader.h"

#include <stdio.h>
#include <string.h>

/* Warnings of a filter that are shown; --json has all. */
#define LOADER_WARNINGS 20

heft_load_options cli_load_options(const cli_args *args, const heft_filter *filter) {
    heft_load_options options = {.struct_size = sizeof options, .filter = filter};
    options.io = args->io; /* the words are in the order of the constants */
    options.engine = args->engine;
    options.workers = (uint32_t)args->jobs;
    options.align = args->align;
    options.memory_limit_nbytes = args->limit;
    options.reserve_nbytes = args->reserve;
    options.peak_memory_multiplier = args->multiplier;
    options.verify = args->verify; /* of load alone */
    return options;
}

int cli_loader_fail(const cli_loader *loader, const heft_error *err) {
    const cli_args *args = loader->args;
    int code = cli_fail(loader->path, err);
    if (err->status == HEFT_INVALID_ARGUMENT && args->ep_world > 1 && !args->experts && err->expected != HEFT_NONE)
        fprintf(stderr, "  next: --experts %llu, if a layer has so many\n", (unsigned long long)err->expected);
    return code;
}

/* What the filter has to say, such as a glob that matches nothing. */
static void loader_warn(const cli_loader *loader) {
    const heft_report *report = heft_filter_warnings(heft_load_plan_filter(loader->plan));
    uint64_t count = heft_report_count(report), shown = 0;
    cli_text line = {0};
    if (loader->args->quiet) return;
    for (uint64_t i = 0; i < count; i++) {
        heft_severity severity;
        heft_error fault;
        if (heft_report_get(report, i, &severity, &fault, NULL) != HEFT_OK || severity < HEFT_SEVERITY_WARNING) continue;
        if (shown++ >= LOADER_WARNINGS) continue;
        line.len = 0;
        cli_text_message(&line, loader->path, "warning: ", &fault);
        cli_complain("%.*s", (int)line.len, line.data);
    }
    if (shown > LOADER_WARNINGS)
        cli_complain("and %llu more warnings; heft plan --json lists them",
                     (unsigned long long)(shown - LOADER_WARNINGS));
    cli_text_free(&line);
}

/* Free memory that cannot be known is compared with nothing. */
static void loader_warn_memory(const cli_loader *loader) {
    cli_text path = {0};
    if (loader->args->quiet || loader->sum.memory.free_nbytes != HEFT_NONE) return;
    cli_text_escaped(&path, loader->path, strlen(loader->path));
    cli_complain("%.*s: warning: how much memory is free cannot be known, so nothing is refused for it; --limit sets a bound",
                 (int)path.len, path.data);
    cli_text_free(&path);
}

/* The same as loader_warn of --dtype-for. False: there is one, and warnings are errors. */
static bool loader_warn_dtypes(const cli_loader *loader) {
    const cli_args *args = loader->args;
    bool all = true;
    for (size_t i = 0; i < loader->dtypes.nrules; i++) {
        const char *glob = loader->dtypes.rules[i].glob;
        if (cli_glob_matches(loader->archive, glob)) continue;
        all = false;
        if (args->quiet && !args->strict) continue;
        cli_text name = {0}, path = {0};
        cli_text_escaped(&name, glob, strlen(glob));
        cli_text_escaped(&path, loader->path, strlen(loader->path));
        cli_complain("%.*s: warning: --dtype-for \"%.*s\" matches no tensor", (int)path.len, path.data, (int)name.len, name.data);
        cli_text_free(&name);
        cli_text_free(&path);
    }
    return all || !args->strict;
}

int cli_loader_open(const char *command, const cli_args *args, const heft_load_options *options, cli_loader *out) {
    heft_error err;
    *out = (cli_loader){.path = args->operands[0], .args = args};
    if (args->noperands > 1) return cli_usage_error(command, "one path is loaded at a time, not %zu", args->noperands);
    if (!cli_filter_make(command, args, &out->filter) || !cli_dtypes_make(command, args, &out->dtypes)) return CLI_USAGE;
    double start = heft__os_seconds();
    if (cli_open(args, out->path, &out->archive, &err) != HEFT_OK) return cli_fail(out->path, &err);
    out->open_seconds = heft__os_seconds() - start;
    cli_warn(args, out->path, out->archive);
    heft_load_options mine = *options;
    mine.filter = &out->filter.filter;
    mine.dtype = out->dtypes.floats;
    mine.dtype_rules = out->dtypes.rules;
    mine.ndtype_rules = out->dtypes.nrules;
    mine.saturate = args->saturate;
    mine.allow_inexact = args->allow_inexact;
    if (heft_load_plan_new(out->archive, &mine, &out->plan, &err) != HEFT_OK) return cli_loader_fail(out, &err);
    heft_load_plan_summarize(out->plan, &out->sum);
    loader_warn(out);
    loader_warn_memory(out);
    return loader_warn_dtypes(out) ? CLI_OK : CLI_REFUSED;
}

void cli_loader_close(cli_loader *loader) {
    heft_load_plan_free(loader->plan);
    heft_archive_unref(loader->archive);
    cli_filter_free(&loader->filter);
    cli_dtypes_free(&loader->dtypes);
    *loader = (cli_loader){0};
}
