/* base: names of statuses and faults, the version, buffers. */
#include "heft/core.h"

#include <string.h>

const char *heft_status_name(heft_status status) {
    switch (status) {
#define STATUS_NAME(constant, number, name, text)                                                                      \
    case HEFT_##constant: return name;
        HEFT_STATUS_TABLE(STATUS_NAME)
#undef STATUS_NAME
    default: return "unknown";
    }
}

const char *heft_status_text(heft_status status) {
    switch (status) {
#define STATUS_TEXT(constant, number, name, text)                                                                      \
    case HEFT_##constant: return text;
        HEFT_STATUS_TABLE(STATUS_TEXT)
#undef STATUS_TEXT
    default: return "unknown status";
    }
}

const char *heft_fault_name(heft_fault fault) {
    static const char *const names[] = {
#define FAULT_NAME(constant, word) word,
        HEFT_FAULT_TABLE(FAULT_NAME)
#undef FAULT_NAME
    };
    return fault < HEFT_FAULT_COUNT ? names[fault] : "unknown";
}

const char *heft_version(void) {
    return HEFT_VERSION;
}

void heft_buffer_release(heft_buffer *buffer) {
    if (!buffer || !buffer->release) return;
    buffer->release(buffer);
    memset(buffer, 0, sizeof *buffer);
}
