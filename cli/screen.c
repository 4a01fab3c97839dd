/* cli: standard output and standard error: what they are, colours, complaints, the end. */
#include "cli.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static cli_screen screen_state;
static int screen_failure; /* why the first write to standard output failed; 0: none did, or nobody knows */

static void screen_write(const void *data, size_t len) {
    if (ferror(stdout)) return;
    errno = 0;
    if (fwrite(data, 1, len, stdout) < len) screen_failure = errno;
}

void cli_flush(void) {
    if (ferror(stdout)) return;
    errno = 0;
    if (fflush(stdout) != 0) screen_failure = errno;
}

void cli_screen_init(void) {
    static char buffer[1 << 16];
    const char *no_colour = getenv("NO_COLOR"), *term = getenv("TERM");
    screen_state.terminal = heft__os_is_terminal(1);
    screen_state.width = screen_state.terminal ? heft__os_terminal_width(1) : 0;
    screen_state.colour = screen_state.terminal && !(no_colour && *no_colour) && term && strcmp(term, "dumb") != 0;
    setvbuf(stdout, buffer, screen_state.terminal ? _IOLBF : _IOFBF, sizeof buffer);
}

const cli_screen *cli_screen_get(void) {
    return &screen_state;
}

static const char *screen_code(cli_style style) {
    switch (style) {
    case CLI_BOLD: return "\x1b[1m";
    case CLI_DIM: return "\x1b[2m";
    case CLI_GOOD: return "\x1b[32m";
    case CLI_BAD: return "\x1b[1;31m";
    case CLI_WARN: return "\x1b[33m";
    case CLI_ACCENT: return "\x1b[36m";
    case CLI_PLAIN: break;
    }
    return "";
}

void cli_text_styled(cli_text *text, cli_style style, const char *bytes, size_t len) {
    bool coded = screen_state.colour && style != CLI_PLAIN && len;
    if (coded) cli_text_str(text, screen_code(style));
    cli_text_put(text, bytes, len);
    if (coded) cli_text_str(text, "\x1b[0m");
}

bool cli_print(cli_text *text) {
    cli_text_put(text, "\n", 1);
    screen_write(text->data, text->len);
    text->len = 0;
    return !ferror(stdout);
}

static bool screen_no_space(int code) {
#ifdef EDQUOT
    if (code == EDQUOT) return true;
#endif
    return code == ENOSPC || code == EFBIG;
}

int cli_finish(int code) {
    cli_flush();
    if (!ferror(stdout)) return code;
    int reason = screen_failure;
    if (reason == EPIPE) return code; /* SIGPIPE is ignored by whoever started us; nobody reads: not our fault */
    cli_complain("standard output: %s", reason ? strerror(reason) : "could not be written");
    return cli_worse(code, screen_no_space(reason) ? CLI_REFUSED : CLI_UNREADABLE);
}

void cli_complain(const char *format, ...) {
    va_list args;
    va_start(args, format);
    cli_flush(); /* so that both streams come in order on a terminal */
    fputs("heft: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
}

static bool screen_leads(const char *message, const char *path) {
    cli_text name = {0};
    cli_text_escaped(&name, path, strlen(path));
    bool leads = name.len && strncmp(message, name.data, name.len) == 0 && strncmp(message + name.len, ": ", 2) == 0;
    cli_text_free(&name);
    return leads;
}

void cli_text_message(cli_text *line, const char *path, const char *label, const heft_error *err) {
    const char *message = err->message, *leader = screen_leads(message, path)        ? path
                                                  : screen_leads(message, err->file) ? err->file
                                                                                     : NULL;
    size_t start = line->len;
    cli_text_escaped(line, leader ? leader : path, strlen(leader ? leader : path));
    cli_text_str(line, ": ");
    if (leader) message += line->len - start; /* it is said, and a label belongs behind it */
    cli_text_str(line, label);
    cli_text_str(line, message);
}

int cli_fail(const char *path, const heft_error *err) {
    if (err->status == HEFT_CANCELLED) { /* by a signal: nothing else asks for that here */
        cli_text name = {0};
        cli_text_escaped(&name, path, strlen(path));
        cli_complain("%.*s: interrupted", (int)name.len, name.data);
        cli_text_free(&name);
        return cli_exit_code(err);
    }
    bool exists = err->status == HEFT_EXISTS;
    bool elsewhere = err->fault == HEFT_FAULT_NOT_REGULAR && strcmp(err->file, path) != 0; /* an output, a shard */
    const struct {
        const char *label, *advice;
    } more[] = {{"cause", cli_fault_cause(err->fault)},
                {"next", exists ? "give --force to replace it" : cli_fault_next(err->fault)}};
    cli_text line = {0};
    cli_text_message(&line, path, "", err);
    if (err->more) {
        cli_text_str(&line, " (and ");
        cli_text_u64(&line, err->more);
        cli_text_str(&line, err->more == 1 ? " more fault)" : " more faults)");
    }
    cli_complain("%.*s", (int)line.len, line.data);
    for (size_t i = 0; i < sizeof more / sizeof *more; i++) {
        if (!more[i].advice || elsewhere) continue;
        line.len = 0;
        cli_text_advice(&line, more[i].advice, cli_advised_path(path, err));
        fprintf(stderr, "  %s: %.*s\n", more[i].label, (int)line.len, line.data);
    }
    cli_text_free(&line);
    return cli_exit_code(err);
}

int cli_exit_code(const heft_error *err) {
    if (err->fault == HEFT_FAULT_NO_SPACE || (err->status == HEFT_IO && screen_no_space(err->sys_errno))) return CLI_REFUSED;
    switch (err->status) {
    case HEFT_OK: return CLI_OK;
    case HEFT_INVALID_ARGUMENT: return err->fault == HEFT_FAULT_NOT_REGULAR ? CLI_UNREADABLE : CLI_USAGE;
    case HEFT_NOT_FOUND:
    case HEFT_EXISTS:
    case HEFT_PERMISSION:
    case HEFT_IO:
    case HEFT_NETWORK: return CLI_UNREADABLE;
    case HEFT_CORRUPT:
    case HEFT_UNSUPPORTED: return CLI_BAD_FILE;
    case HEFT_LIMIT: return err->fault == HEFT_FAULT_CALLER_LIMIT ? CLI_REFUSED : CLI_BAD_FILE;
    case HEFT_MISMATCH:
    case HEFT_DEVICE: return CLI_REFUSED;
    case HEFT_CANCELLED: return CLI_CANCELLED;
    default: return CLI_INTERNAL;
    }
}

int cli_worse(int a, int b) {
    if (a >= CLI_INTERNAL || b >= CLI_INTERNAL) return a > b ? a : b;
    if (a == CLI_UNREADABLE || b == CLI_UNREADABLE) return CLI_UNREADABLE;
    return a > b ? a : b;
}

void cli_json_begin(heft__json_out *json, bool lines) {
    heft__json_out_init(json, &heft__default_allocator, screen_state.terminal && !lines ? 2 : 0, true);
}

static void screen_json_write(heft__json_out *json) {
    if (json->failed) cli_die_memory();
    if (json->len) screen_write(json->text, (size_t)json->len);
    json->len = 0;
}

void cli_json_flush(heft__json_out *json) {
    if (json->failed || json->len >= 1 << 16) screen_json_write(json);
}

void cli_json_end(heft__json_out *json) {
    heft__json_out_newline(json);
    screen_json_write(json);
    heft__json_out_free(json);
}

void cli_die_memory(void) {
    heft__output_interrupted();
    fputs("heft: out of memory\n", stderr);
    exit(CLI_INTERNAL);
}
