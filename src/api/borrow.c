/* api: borrowing. */
#include "base/error.h"
#include "ops/run.h"

#include <string.h>

heft_status heft_borrow(const heft_view *view, uint64_t min_alignment, heft_buffer *out, heft_error *err) {
    if (!out) return heft__fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL, "out is NULL");
    memset(out, 0, sizeof *out);
    return heft__borrow(view, min_alignment, HEFT__HOST_IS_BIG_ENDIAN, out, err);
}

heft_status heft_can_borrow(const heft_view *view, uint64_t min_alignment, heft_error *err) {
    return heft__borrow(view, min_alignment, HEFT__HOST_IS_BIG_ENDIAN, NULL, err);
}
