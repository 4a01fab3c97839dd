/* base: work in a child process, so that what may end by a signal is a failure and not the end of the program. */
#include "base/os.h"

#include "base/error.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

/* What a child reads or computes is not what signals of the terminal are about: they end it at once. */
static void child_run(void (*work)(void *ctx, void *result), void *ctx, void *result) {
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) signal(numbers[i], SIG_DFL);
    work(ctx, result);
    signal(SIGABRT, SIG_DFL);
    raise(SIGABRT); /* work has not ended the child */
}

static heft_status child_fail(int ended, heft_error *err) {
    if (!WIFSIGNALED(ended))
        return heft__fail(err, HEFT_INTERNAL, HEFT_FAULT_NONE, "a child process ended with code %d",
                          WIFEXITED(ended) ? WEXITSTATUS(ended) : -1);
    int number = WTERMSIG(ended);
    if (number == SIGINT || number == SIGTERM || number == SIGHUP)
        return heft__fail(err, HEFT_CANCELLED, HEFT_FAULT_CALL, "interrupted");
    if (number == SIGBUS) {
        heft__fail(err, HEFT_IO, HEFT_FAULT_READ_ERROR,
                   "a page of a mapped file could not be read (SIGBUS): the file was truncated, or its storage failed");
    } else {
        heft__fail(err, number == SIGKILL ? HEFT_OUT_OF_MEMORY : HEFT_INTERNAL,
                   number == SIGKILL ? HEFT_FAULT_MEMORY : HEFT_FAULT_NONE, "a child process was ended by signal %d%s",
                   number, number == SIGKILL ? " (SIGKILL), which is what a system does that has run out of memory" : "");
    }
    heft__error_at(err, HEFT_NONE, HEFT_NONE, (uint64_t)number);
    return number == SIGBUS ? HEFT_IO : number == SIGKILL ? HEFT_OUT_OF_MEMORY : HEFT_INTERNAL;
}

heft_status heft__os_child(void (*work)(void *ctx, void *result), void *ctx, void *result, size_t nbytes,
                           heft_error *err) {
    void *shared = mmap(NULL, nbytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANON, -1, 0);
    if (shared == MAP_FAILED) return heft__fail_memory(err, nbytes);
    fflush(NULL); /* else the child could print again what waits */
    pid_t pid = fork();
    if (pid == 0) child_run(work, ctx, shared);
    int ended = 0, code = pid < 0 ? errno : 0;
    while (!code && waitpid(pid, &ended, 0) < 0)
        if (errno != EINTR) code = errno;
    heft_status status = HEFT_OK;
    if (code) status = heft__fail_errno(err, code, "a child process", "starting");
    else if (ended) status = child_fail(ended, err);
    else memcpy(result, shared, nbytes);
    munmap(shared, nbytes);
    return status;
}

/* ---- interrupts ---- */

static volatile sig_atomic_t child_interrupted;

static void child_note(int number) {
    child_interrupted = 1;
    signal(number, SIG_DFL); /* a second one does not wait */
}

void heft__os_defer_interrupt(void) {
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        struct sigaction old, action;
        if (sigaction(numbers[i], NULL, &old) != 0 || old.sa_handler == SIG_IGN) continue;
        memset(&action, 0, sizeof action);
        sigemptyset(&action.sa_mask);
        action.sa_handler = child_note;
        action.sa_flags = SA_RESTART;
        sigaction(numbers[i], &action, NULL);
    }
}

bool heft__os_interrupted(void) {
    return child_interrupted != 0;
}
