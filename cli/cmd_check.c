/* cli: heft check: whether a checkpoint is whole, and everything that is wrong with it. */
#include "cli.h"

#include <string.h>

/* Faults, warnings and notes that are shown, each; --json has all. */
#define CHECK_SHOWN 20

typedef struct check_state {
    const cli_args *args;
    const char *path;
    const heft_report *report;
    heft_report_summary summary;
    uint64_t errors, warnings, notes; /* as they are judged here */
    bool advised[HEFT_FAULT_COUNT]; /* kinds whose cause and next step have been printed */
    cli_text line, name;
} check_state;

/* Under --strict warnings are errors. */
static heft_severity check_judge(const check_state *s, heft_severity severity) {
    return severity == HEFT_SEVERITY_WARNING && s->args->strict ? HEFT_SEVERITY_ERROR : severity;
}

static bool check_get(const check_state *s, uint64_t index, heft_severity *severity, heft_error *fault) {
    if (heft_report_get(s->report, index, severity, fault, NULL) != HEFT_OK) return false;
    *severity = check_judge(s, *severity);
    return true;
}

/* ---- for people -------------------------------------------------------------------------------------------------- */

/* The first line: path, ok or BAD, class word, and how many more there are. */
static void check_verdict(check_state *s) {
    heft_severity severity = HEFT_SEVERITY_NOTE;
    heft_error fault;
    cli_text_put(&s->line, s->name.data, s->name.len);
    cli_text_str(&s->line, ": ");
    if (!s->errors) {
        cli_text_styled(&s->line, CLI_GOOD, "ok", 2);
        cli_print(&s->line);
        return;
    }
    uint64_t i = 0;
    while (check_get(s, i, &severity, &fault) && severity != HEFT_SEVERITY_ERROR) i++;
    cli_text_styled(&s->line, CLI_BAD, "BAD", 3);
    cli_text_put(&s->line, " ", 1);
    const char *word = heft_fault_name(fault.fault);
    cli_text_styled(&s->line, CLI_BAD, word, strlen(word));
    if (s->errors > 1) {
        cli_text_str(&s->line, " and ");
        cli_text_grouped(&s->line, s->errors - 1);
        cli_text_str(&s->line, s->errors == 2 ? " more fault" : " more faults");
    }
    cli_print(&s->line);
}

static void check_label(check_state *s, const char *label) {
    cli_text_format(&s->line, "  %-6s ", label);
}

/* The message without the path, which the first line has said. */
static void check_message(check_state *s, const heft_error *fault) {
    const char *word = heft_fault_name(fault->fault), *message = fault->message;
    if (strncmp(message, s->name.data, s->name.len) == 0 && strncmp(message + s->name.len, ": ", 2) == 0)
        message += s->name.len + 2;
    const char *said = strstr(message, word); /* at its start, or after the path of a shard */
    if (!said || (said != message && (said - message < 2 || memcmp(said - 2, ": ", 2) != 0)))
        cli_text_format(&s->line, "%s: ", word);
    cli_text_str(&s->line, message);
    cli_print(&s->line);
}

/* Offset and tensor; once, how much is still whole. */
static void check_where(check_state *s, const heft_error *fault, bool first) {
    bool any = false;
    size_t start = s->line.len;
    check_label(s, "where:");
    if (fault->offset != HEFT_NONE) {
        cli_text_str(&s->line, "offset ");
        cli_text_u64(&s->line, fault->offset);
        any = true;
    }
    if (*fault->tensor) {
        cli_text_str(&s->line, any ? ", tensor " : "tensor ");
        cli_text_escaped(&s->line, fault->tensor, strlen(fault->tensor));
        any = true;
    }
    /* What is said of a truncated file says it itself. */
    if (first && s->summary.ntensors && !(fault->fault == HEFT_FAULT_TRUNCATED && s->summary.nfiles == 1)) {
        cli_text_str(&s->line, any ? "; " : "");
        cli_text_grouped(&s->line, s->summary.nwhole);
        cli_text_str(&s->line, " of ");
        cli_text_plural(&s->line, s->summary.ntensors, "tensor");
        cli_text_str(&s->line, s->summary.nwhole == 1 || s->summary.ntensors == 1 ? " is whole" : " are whole");
        any = true;
    }
    if (any) cli_print(&s->line);
    else s->line.len = start;
}

static void check_advice(check_state *s, const heft_error *fault, const char *label, const char *advice) {
    if (!advice) return;
    check_label(s, label);
    cli_text_advice(&s->line, advice, cli_advised_path(s->path, fault));
    cli_print(&s->line);
}

/* At most four lines; cause and next step only with the first fault of a kind. */
static void check_fault(check_state *s, const heft_error *fault, bool first) {
    check_label(s, "what:");
    check_message(s, fault);
    check_where(s, fault, first);
    if (fault->fault < HEFT_FAULT_COUNT && s->advised[fault->fault]) return;
    check_advice(s, fault, "cause:", cli_fault_cause(fault->fault));
    check_advice(s, fault, "next:", cli_fault_next(fault->fault));
    if (fault->fault < HEFT_FAULT_COUNT) s->advised[fault->fault] = true;
}

/* The first CHECK_SHOWN of one severity, then how many more. */
static void check_list(check_state *s, heft_severity wanted, uint64_t count, const char *what) {
    uint64_t shown = 0;
    heft_severity severity;
    heft_error fault;
    for (uint64_t i = 0; shown < CHECK_SHOWN && shown < count && check_get(s, i, &severity, &fault); i++) {
        if (severity != wanted) continue;
        if (wanted == HEFT_SEVERITY_ERROR) {
            check_fault(s, &fault, shown == 0);
        } else {
            cli_text_put(&s->line, "  ", 2);
            cli_text_styled(&s->line, wanted == HEFT_SEVERITY_WARNING ? CLI_WARN : CLI_DIM, what, strlen(what));
            cli_text_str(&s->line, ": ");
            check_message(s, &fault);
        }
        shown++;
    }
    if (count > shown) {
        cli_text_str(&s->line, "  and ");
        cli_text_grouped(&s->line, count - shown);
        cli_text_format(&s->line, " more %s%s; heft check --json lists all", what, count - shown == 1 ? "" : "s");
        cli_print(&s->line);
    }
}

static void check_row(check_state *s, const char *label, uint64_t value, const char *unit) {
    cli_text_format(&s->line, "  %-10s ", label);
    cli_text_grouped(&s->line, value);
    cli_text_str(&s->line, unit);
    cli_print(&s->line);
}

/* Alignment and order, which only a checkpoint that opens has. */
static void check_layout(check_state *s) {
    heft_archive *archive;
    heft_tensor t;
    if (cli_open(s->args, s->path, &archive, NULL) != HEFT_OK) return;
    uint64_t count = heft_archive_count(archive), aligned = 0, width = UINT64_MAX;
    bool falling = true;
    uint32_t file = 0;
    for (uint64_t i = 0; i < count && heft_archive_get(archive, i, &t, NULL) == HEFT_OK; i++) {
        uint64_t bits = heft_dtype_bits(t.dtype);
        aligned += bits < 16 || t.offset % (bits / 8) == 0;
        if (t.file != file) width = UINT64_MAX;
        file = t.file;
        if (bits > width) falling = false;
        width = bits;
    }
    cli_text_str(&s->line, "  alignment  ");
    cli_text_grouped(&s->line, aligned);
    cli_text_str(&s->line, " of ");
    cli_text_plural(&s->line, count, "tensor");
    cli_text_str(&s->line, count == 1 ? " is at a multiple of its element" : " are at a multiple of their element");
    cli_print(&s->line);
    cli_text_format(&s->line, "  order      %s", falling ? "elements get narrower along the file, as the reference writes them"
                                                         : "elements of different widths are mixed along the file");
    cli_print(&s->line);
    heft_archive_unref(archive);
}

static void check_account(check_state *s) {
    const heft_report_summary *sum = &s->summary;
    cli_text_str(&s->line, "  files      ");
    cli_text_grouped(&s->line, sum->nfiles);
    cli_print(&s->line);
    check_row(s, "tensors", sum->ntensors, "");
    if (sum->nfillers) check_row(s, "fillers", sum->nfillers, "");
    check_row(s, "header", sum->header_nbytes, " bytes");
    check_row(s, "data", sum->data_nbytes, " bytes");
    cli_text_str(&s->line, "  coverage   ");
    cli_text_grouped(&s->line, sum->covered_nbytes);
    cli_text_str(&s->line, " of ");
    cli_text_grouped(&s->line, sum->data_nbytes);
    cli_text_str(&s->line, " bytes");
    cli_print(&s->line);
    check_row(s, "gaps", sum->hole_nbytes, " bytes");
    check_row(s, "overlaps", sum->overlap_nbytes, " bytes");
    /* Standard input can be read once only. */
    if (!s->errors && (strcmp(s->path, "-") != 0 || heft__os_is_regular(0))) check_layout(s);
}

static void check_screen(check_state *s) {
    check_verdict(s);
    if (s->args->quiet) return;
    check_list(s, HEFT_SEVERITY_ERROR, s->errors, "fault");
    check_list(s, HEFT_SEVERITY_WARNING, s->warnings, "warning");
    check_list(s, HEFT_SEVERITY_NOTE, s->notes, "note");
    if (s->args->verbose) check_account(s);
}

/* ---- for programs ------------------------------------------------------------------------------------------------ */

static void check_json_items(check_state *s, heft__json_out *json, bool notes) {
    heft_severity severity;
    heft_error fault;
    heft__json_out_key(json, notes ? "notes" : "faults", SIZE_MAX);
    heft__json_out_array(json);
    for (uint64_t i = 0; check_get(s, i, &severity, &fault); i++) {
        if ((severity == HEFT_SEVERITY_NOTE) != notes) continue;
        cli_json_fault(json, severity, &fault, s->path);
        cli_json_flush(json);
    }
    heft__json_out_array_end(json);
}

static void check_json(check_state *s, const heft_error *unreadable) {
    heft__json_out json;
    cli_json_begin(&json, true);
    heft__json_out_object(&json);
    heft__json_out_key(&json, "path", SIZE_MAX);
    heft__json_out_string(&json, s->path, SIZE_MAX);
    heft__json_out_key(&json, "ok", SIZE_MAX);
    heft__json_out_bool(&json, !unreadable && !s->errors);
    if (unreadable) {
        heft__json_out_key(&json, "faults", SIZE_MAX);
        heft__json_out_array(&json);
        cli_json_fault(&json, HEFT_SEVERITY_ERROR, unreadable, s->path);
        heft__json_out_array_end(&json);
        heft__json_out_key(&json, "notes", SIZE_MAX);
        heft__json_out_array(&json);
        heft__json_out_array_end(&json);
    } else {
        check_json_items(s, &json, false);
        check_json_items(s, &json, true);
    }
    heft__json_out_object_end(&json);
    cli_json_end(&json);
}

/* ---- the command ------------------------------------------------------------------------------------------------- */

static int check_one(const cli_args *args, const char *path) {
    heft_report *report;
    heft_error err;
    check_state s = {.args = args, .path = path};
    if (cli_check_path(args, path, &report, &err) != HEFT_OK) {
        if (!args->json) return cli_fail(path, &err);
        check_json(&s, &err);
        return cli_exit_code(&err);
    }
    s.report = report;
    heft_report_summarize(report, &s.summary);
    s.errors = heft_report_count_of(report, HEFT_SEVERITY_ERROR);
    s.warnings = heft_report_count_of(report, HEFT_SEVERITY_WARNING);
    s.notes = heft_report_count_of(report, HEFT_SEVERITY_NOTE);
    if (args->strict) {
        s.errors += s.warnings;
        s.warnings = 0;
    }
    cli_text_escaped(&s.name, path, strlen(path));
    if (args->json) check_json(&s, NULL);
    else check_screen(&s);
    cli_text_free(&s.line);
    cli_text_free(&s.name);
    heft_report_free(report);
    return s.errors ? CLI_NEGATIVE : CLI_OK;
}

int cli_check(const cli_args *args) {
    int code = CLI_OK;
    if (!cli_one_stdin(args, 0, args->noperands)) return CLI_USAGE;
    for (size_t i = 0; i < args->noperands; i++) code = cli_worse(code, check_one(args, args->operands[i]));
    return code;
}
