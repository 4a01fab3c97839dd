/* cli: a progress bar on standard error, for work that takes longer than half a second. */
#include "loader.h"

#include <stdio.h>

#define PROGRESS_PATIENCE 0.5
#define PROGRESS_BAR 24

void cli_progress_start(cli_progress *progress, bool quiet) {
    *progress = (cli_progress){.start = heft__os_seconds()};
    if (!quiet && heft__os_is_terminal(2)) progress->width = heft__os_terminal_width(2);
    heft__os_defer_interrupt();
}

static void progress_time(cli_text *line, double seconds) {
    uint64_t whole = seconds < 360000 ? (uint64_t)(seconds + 0.5) : 360000;
    cli_text_format(line, "%lu:%02lu", (unsigned long)(whole / 60), (unsigned long)(whole % 60));
}

static void progress_draw(cli_progress *progress, uint64_t done, uint64_t total, double seconds) {
    cli_text line = {0};
    size_t filled = total ? (size_t)((double)done / (double)total * PROGRESS_BAR) : PROGRESS_BAR;
    if (filled > PROGRESS_BAR) filled = PROGRESS_BAR;
    cli_text_str(&line, "[");
    cli_text_repeat(&line, "#", filled);
    cli_text_repeat(&line, ".", PROGRESS_BAR - filled);
    cli_text_str(&line, "] ");
    cli_text_percent(&line, done, total);
    cli_text_str(&line, "  ");
    cli_text_size(&line, done);
    cli_text_str(&line, " of ");
    cli_text_size(&line, total);
    cli_text_str(&line, "  ");
    cli_text_rate(&line, done, seconds);
    if (done) {
        cli_text_str(&line, "  ETA ");
        progress_time(&line, seconds * ((double)total / (double)done - 1));
    }
    /* One column stays free: a full line would move the cursor to the next one. */
    size_t used = line.len < progress->width ? line.len : progress->width - 1;
    fprintf(stderr, "\r%.*s%*s", (int)used, line.data, (int)(progress->width - 1 - used), "");
    fflush(stderr);
    progress->shown = true;
    cli_text_free(&line);
}

int cli_progress_step(void *ctx, uint64_t done_nbytes, uint64_t total_nbytes) {
    cli_progress *progress = ctx;
    double seconds = heft__os_seconds() - progress->start;
    if (progress->width && seconds > PROGRESS_PATIENCE && done_nbytes < total_nbytes)
        progress_draw(progress, done_nbytes, total_nbytes, seconds);
    return heft__os_interrupted();
}

void cli_progress_end(cli_progress *progress) {
    if (progress->shown) fprintf(stderr, "\r%*s\r", (int)(progress->width - 1), "");
    progress->shown = false;
}
