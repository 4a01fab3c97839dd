/* plan: which path the bytes of each file of a load take, and why. */
#include "plan/plan.h"

const char *heft_path_name(heft_path path) {
    static const char *const words[HEFT_PATH_COUNT] = {
#define CHOOSE_WORD(constant, word) word,
        HEFT_PATH_TABLE(CHOOSE_WORD)};
    return path < HEFT_PATH_COUNT ? words[path] : "unknown";
}

const char *heft_reason_name(heft_reason reason) {
    static const char *const words[HEFT_REASON_COUNT] = {HEFT_REASON_TABLE(CHOOSE_WORD)};
#undef CHOOSE_WORD
    return reason < HEFT_REASON_COUNT ? words[reason] : "unknown";
}
