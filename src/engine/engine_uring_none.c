/* engine: io_uring of a build without liburing: it says so. */
#include "engine/engine_core.h"

#if !HEFT_WITH_URING
#include "base/error.h"

static heft_status uring_none(heft_error *err) {
    return heft__fail(err, HEFT_UNSUPPORTED, HEFT_FAULT_CALL, "this build has no io_uring (HEFT_WITH_URING)");
}

static heft_status uring_none_open(const heft__engine_job *job, heft__engine **out, heft_error *err) {
    (void)job;
    *out = NULL;
    return uring_none(err);
}

/* Nothing can be opened, so the other functions are never called. */
const heft__engine_kind heft__engine_uring = {"uring", uring_none, uring_none_open, NULL, NULL, NULL, NULL};
#endif
