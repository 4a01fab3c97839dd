/* cli: likely cause and next step of each kind of fault, from faults.def. */
#include "cli.h"

#include <string.h>

static const struct {
    const char *cause, *next;
} advice_table[HEFT_FAULT_COUNT] = {
#define FAULT(constant, cause, next) [HEFT_FAULT_##constant] = {cause, next},
#include "faults.def"
#undef FAULT
};

/* One row for each kind, in order: a kind without a row does not compile. */
enum {
#define FAULT(constant, cause, next) ADVICE_ROW_##constant,
#include "faults.def"
#undef FAULT
    ADVICE_ROWS
};
_Static_assert((int)ADVICE_ROWS == (int)HEFT_FAULT_COUNT, "faults.def has a row for each kind of fault");

const char *cli_fault_cause(heft_fault fault) {
    return fault < HEFT_FAULT_COUNT ? advice_table[fault].cause : NULL;
}

const char *cli_fault_next(heft_fault fault) {
    return fault < HEFT_FAULT_COUNT ? advice_table[fault].next : NULL;
}

void cli_text_advice(cli_text *text, const char *advice, const char *path) {
    while (advice) {
        const char *place = strstr(advice, "{path}");
        cli_text_put(text, advice, place ? (size_t)(place - advice) : strlen(advice));
        if (!place) return;
        cli_text_shell(text, path);
        advice = place + strlen("{path}");
    }
}
