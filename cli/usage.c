/* cli: help texts and usage errors. */
#include "args.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int cli_usage_error(const char *command, const char *format, ...) {
    cli_text raw = {0}, line = {0};
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (n > 0) {
        cli_text_repeat(&raw, " ", (size_t)n + 1);
        vsnprintf(raw.data, (size_t)n + 1, format, again);
        cli_text_escaped(&line, raw.data, (size_t)n); /* it quotes arguments */
    }
    va_end(again);
    if (line.len && line.data[line.len - 1] != '?') /* else it says itself how to go on */
        cli_text_format(&line, "; see heft %s%s--help", command ? command : "", command ? " " : "");
    cli_complain("%.*s", (int)line.len, line.data);
    cli_text_free(&raw);
    cli_text_free(&line);
    return CLI_USAGE;
}

static void usage_option(cli_text *line, const cli_option *o) {
    enum { USAGE_COLUMN = 26 };
    size_t start = line->len;
    if (o->letter) cli_text_format(line, "  -%c, --%s", o->letter, o->name);
    else cli_text_format(line, "      --%s", o->name);
    if (o->value) cli_text_format(line, o->kind == ARG_OPTIONAL ? "[=%s]" : " %s", o->value);
    size_t used = line->len - start;
    if (used + 2 > USAGE_COLUMN) {
        cli_text_put(line, "\n", 1);
        used = 0;
    }
    for (const char *help = o->help; *help;) {
        size_t n = strcspn(help, "\n");
        cli_text_repeat(line, " ", USAGE_COLUMN - used);
        cli_text_put(line, help, n);
        help += n;
        if (*help) {
            cli_text_put(line, "\n", 1);
            help++;
            used = 0;
        }
    }
    cli_print(line);
}

static void usage_program(void) {
    cli_text line = {0};
    cli_text_str(&line, "usage: heft COMMAND [OPTIONS] PATH ...\n\n"
                        "heft looks inside model checkpoints (safetensors files, sharded sets of them, npy, npz, IDX), loads\n"
                        "them fast, and converts them.\n\n"
                        "commands:");
    cli_print(&line);
    for (const cli_command *c = cli_commands; c->name; c++) {
        cli_text_format(&line, "  %-7s %s", c->name, c->purpose);
        cli_print(&line);
    }
    cli_text_str(&line, "\nPATH is a file, a model directory, an index file, a glob, or - for standard input.\n"
                        "heft COMMAND --help tells more, heft --version the version and its features.\n\n"
                        "exit codes: 0 success, 1 a negative answer, 2 usage, 3 missing or unreadable, 4 a bad file,\n"
                        "5 refused for memory, space or a bound, 70 out of memory or internal, 130 interrupted");
    cli_print(&line);
    cli_text_free(&line);
}

void cli_help(const cli_command *command) {
    if (!command) {
        usage_program();
        return;
    }
    cli_text line = {0};
    cli_text_format(&line, "usage: %s\n\n%s.\n\noptions:", command->usage, command->purpose);
    cli_print(&line);
    for (const cli_option *o = cli_option_table; o->name; o++)
        if (o->commands & command->bit) usage_option(&line, o);
    cli_text_format(&line, "\nexamples:\n%s", command->examples);
    cli_print(&line);
    cli_text_free(&line);
}
