/* base: terminals and signals, for the command line. */
#include "base/os.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

bool heft__os_is_terminal(int fd) {
    return isatty(fd) == 1;
}

uint32_t heft__os_terminal_width(int fd) {
    struct winsize size;
    memset(&size, 0, sizeof size);
    if (ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
    return 80;
}

void heft__os_quiet_sigpipe(void) {
    signal(SIGPIPE, SIG_DFL); /* a parent may have left it ignored */
#if defined(SIGXFSZ)
    signal(SIGXFSZ, SIG_IGN); /* a failed write can clean up */
#endif
}

/* Removes what is half written, then lets the signal do what it does by default. */
static void terminal_die(int number) {
    heft__output_interrupted();
    signal(number, SIG_DFL);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, number);
    sigprocmask(SIG_UNBLOCK, &set, NULL);
    raise(number);
}

void heft__os_catch_interrupt(void) {
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        struct sigaction old, action;
        if (sigaction(numbers[i], NULL, &old) != 0 || old.sa_handler == SIG_IGN) continue; /* nohup, or background */
        memset(&action, 0, sizeof action);
        sigemptyset(&action.sa_mask);
        action.sa_handler = terminal_die;
        sigaction(numbers[i], &action, NULL);
    }
}
