/* Files, sources and allocators for tests: made quickly, removed by themselves, failing on demand. */
#ifndef HEFT_TESTS_HELPER_FILES_H
#define HEFT_TESTS_HELPER_FILES_H

#include "helper.h"

#include <stdatomic.h>

/* ---- files ---- */

/* A fresh folder under the build tree; it and all that is in it goes when the program ends. Static storage. */
const char *test_dir(void);
/* "test_dir()/name". The last 16 results stay valid. */
const char *test_path(const char *name);
/* Makes folder test_dir()/name, and parents. Returns test_path(name). */
const char *test_mkdir(const char *name);
/* Writes (or replaces) a file of these bytes under test_dir(), parents too. Returns test_path(name). */
const char *test_write(const char *name, const void *data, size_t nbytes);
/* A whole file, malloc'ed with a NUL after it; fails the test if it cannot be read. */
uint8_t *test_slurp(const char *path, size_t *nbytes);
/* Files in a folder. */
int test_entries(const char *path);
/* Open descriptors of this process, or -1 where that cannot be known. */
int test_count_fds(void);
/* Threads of this process but for those that the kernel makes for io_uring, which it keeps for a while. */
int test_count_threads(void);
/* There are no more than n: waits for those that are joined and that the kernel has not let go yet. */
void test_assert_threads(int n);

/* ---- safetensors files ---- */

typedef struct test_tensor {
    const char *name;
    const char *dtype; /* "F32" */
    const char *shape; /* "2,3"; "" is a scalar */
    const void *data;  /* NULL: bytes 0, 1, 2 ... 250, 0 ... */
    size_t nbytes;     /* the builder checks nothing */
} test_tensor;

/* A file as the reference writes it: sorted by dtype and name, header padded with blanks to a multiple of 8.
 * `metadata` is JSON text ({"k":"v"}) or NULL. malloc'ed. */
uint8_t *test_safetensors(const test_tensor *tensors, size_t ntensors, const char *metadata, size_t *nbytes);
/* The same written to test_dir()/name. */
const char *test_write_safetensors(const char *name, const test_tensor *tensors, size_t ntensors, const char *metadata);
/* A file from header text as it stands (no padding) and a data area. malloc'ed. */
uint8_t *test_raw_safetensors(const char *header, size_t header_len, const void *data, size_t data_nbytes,
                              size_t *nbytes);

/* ---- a source that counts, reads short, and fails ---- */

typedef struct test_bytes {
    const uint8_t *data;
    uint64_t nbytes;
    size_t most;            /* bytes of one call, 0: all that is wanted */
    uint64_t fail_call;     /* the call (1, 2, ...) that fails, 0: none */
    int fail_errno;         /* with this errno */
    bool fail_on;           /* and so does every later one: what fails behind bytes that were had is asked for again */
    uint64_t end;           /* reads end here, 0: at nbytes (a source that lost its tail) */
    bool eintr;             /* every other call is interrupted first */
    _Atomic uint64_t calls, read_nbytes, released;
} test_bytes;

/* A heft_source on it. `bytes` must live as long as the source. */
heft_source *test_source(test_bytes *bytes);

/* ---- an allocator that fails the k-th allocation and counts what lives ---- */

typedef struct test_allocator {
    heft_allocator alloc;   /* give &t.alloc to the code under test */
    _Atomic uint64_t calls; /* allocations and reallocations so far */
    uint64_t fail_call;     /* the call (1, 2, ...) that fails, 0: none */
    bool fail_after;        /* and all after it */
    _Atomic uint64_t live_blocks, live_nbytes, peak_nbytes;
} test_allocator;

/* Starts one in place (alloc.ctx points at it). Freeing with a wrong size fails the test.
 *     for (uint64_t k = 1;; k++) {
 *         test_allocator t;
 *         test_allocator_init(&t, k);
 *         heft_status s = job(&t.alloc);
 *         assert_int_equal(t.live_blocks, 0);
 *         if (s == HEFT_OK) break;
 *         assert_int_equal(s, HEFT_OUT_OF_MEMORY);
 *     } */
void test_allocator_init(test_allocator *t, uint64_t fail_call);

#endif
