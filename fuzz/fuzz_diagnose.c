/* fuzz: what a file is that no format knows. */
#include "format/format.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/utf8.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const heft_fault kinds[] = {HEFT_FAULT_HEADER_LIMIT, HEFT_FAULT_TRUNCATED, HEFT_FAULT_UTF8,
                                       HEFT_FAULT_JSON_SYNTAX, HEFT_FAULT_HOLE};
    heft_source *source;
    if (heft_source_open_memory(data, size, "input", NULL, NULL, &source, NULL)) abort();
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        heft_error err, before;
        heft__fail(&err, HEFT_CORRUPT, kinds[i], "refused");
        heft__error_at(&err, size ? size - 1 : 0, HEFT_NONE, HEFT_NONE);
        before = err;
        bool known = heft__diagnose(source, &heft__default_allocator, &err);
        if (!known && memcmp(&err, &before, sizeof err) != 0) abort();
        if (known && (err.status == HEFT_OK || err.fault == HEFT_FAULT_NONE || !err.message[0])) abort();
        if (known && heft__utf8_check(err.message, strlen(err.message)) != strlen(err.message)) abort();
    }
    heft_source_unref(source);
    return 0;
}
