/* api: filters, that is which tensors one process wants. */
#include "base/error.h"
#include "base/options.h"
#include "plan/filter.h"

heft_status heft_filter_apply(const heft_archive *archive, const heft_filter *filter, heft_filter_result **out,
                              heft_error *err) {
    heft_filter copy;
    heft_allocator alloc;
    if (!out) return heft__fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL, "out is NULL");
    *out = NULL;
    if (!archive) return heft__fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL, "archive is NULL");
    heft_status status = heft__options_copy(&copy, sizeof copy, filter, "heft_filter", err);
    if (status) return status;
    if (!heft__allocator_from(copy.allocator ? copy.allocator : &archive->alloc, &alloc))
        return heft__fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL, "heft_filter: the allocator lacks a function");
    return heft__filter_apply(archive, &copy, &alloc, out, err);
}
