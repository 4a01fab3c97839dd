/* Reads that go wrong on demand, under any engine, and the engines that there are. */
#ifndef HEFT_TESTS_HELPER_ENGINE_H
#define HEFT_TESTS_HELPER_ENGINE_H

#include "helper_files.h"

#include "engine/engine.h"

/* A hint that was given. */
enum { TEST_ADVICES = 256 };
typedef struct test_advice {
    heft__advice advice;
    bool mapping;
    uint64_t offset, nbytes;
    uint64_t delivered; /* by reads before it */
} test_advice;

/* What becomes of reads; counts from 1, 0: none. */
typedef struct test_faults {
    size_t most;          /* bytes of one read */
    uint64_t eintr;       /* every so manyth read is interrupted */
    uint64_t fail_call;   /* the read that fails ... */
    int fail_errno;       /* ... with this */
    uint64_t fail_direct; /* the direct read that fails, and all direct ones after it ... */
    int direct_errno;     /* ... with this */
    uint64_t fail_byte;   /* reads that bring in this byte fail with EIO (0: none does) */
    uint64_t end;         /* the file ends here */
    int drop_errno;       /* reads with a flag fail with this */
    int ring_errno;       /* io_uring is refused with this */
    int open_errno;       /* direct opens by /proc fail with this ... */
    int path_errno;       /* ... and those by path with this */
    int populate_errno;   /* MADV_POPULATE_READ fails with this */
    int advise_errno;     /* hints fail with this */
    _Atomic uint64_t calls, direct_calls, drop_calls, nbytes, hints; /* nbytes: that were delivered */
    _Atomic uint64_t nadvices;
    test_advice advices[TEST_ADVICES]; /* the first ones */
} test_faults;

/* From now on all reads of sources pass here, those of io_uring too. `faults` must stay; NULL: no more. */
void test_faults_install(test_faults *faults);

/* The engines that can run here: pool, and uring where the kernel lets it. Returns their number, at most 2. */
size_t test_engines(const heft__engine_kind **kinds);

/* A path on tmpfs, or NULL where there is none. The file is removed when the program ends. */
const char *test_memory_path(const char *name);

#endif
