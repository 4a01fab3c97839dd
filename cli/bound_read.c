/* cli: the bound of a bench: the least that loading some files can cost. Two threads on one cursor read blocks of 4 MiB into
 * memory on huge pages; nothing is parsed, checked or kept. A loader has to do more, never less. */
#include "bound_read.h"

#include "base/checked.h"
#include "base/parallel.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define BOUND_BLOCK ((uint64_t)4 << 20)
/* What O_DIRECT wants of lengths, on every file system that is known. */
#define BOUND_ALIGN 4096

typedef struct bound_file {
    int fd;
    uint64_t nbytes;
    uint64_t at; /* place of its first byte, a multiple of a block */
} bound_file;

typedef struct bound_job {
    bound_file *files;
    size_t nfiles;
    uint8_t *memory;
    uint64_t end;
    _Atomic uint64_t cursor;
    _Atomic bool failed;
    heft_error *err; /* of the first failure */
} bound_job;

static heft_status bound_block(const bound_job *job, uint64_t at, heft_error *err) {
    size_t i = job->nfiles - 1, got = 0;
    while (i > 0 && job->files[i].at > at) i--;
    const bound_file *file = &job->files[i];
    uint64_t offset = at - file->at, left = offset < file->nbytes ? file->nbytes - offset : 0;
    if (left > BOUND_BLOCK) left = BOUND_BLOCK;
    while (left) {
        size_t want = (size_t)((left + BOUND_ALIGN - 1) / BOUND_ALIGN * BOUND_ALIGN);
        heft_status status = heft__os_read_at(file->fd, offset, job->memory + file->at + offset, want, &got, err);
        if (status) return status;
        if (!got) return heft__fail(err, HEFT_MISMATCH, HEFT_FAULT_FILE_CHANGED, "a file became shorter");
        offset += got;
        left -= got < left ? got : left;
    }
    return HEFT_OK;
}

static void bound_work(void *ctx, uint32_t worker) {
    bound_job *job = ctx;
    (void)worker;
    for (;;) {
        heft_error err;
        uint64_t at = atomic_fetch_add(&job->cursor, BOUND_BLOCK);
        if (at >= job->end || atomic_load(&job->failed)) return;
        if (bound_block(job, at, &err) && !atomic_exchange(&job->failed, true)) *job->err = err;
    }
}

static heft_status bound_open(bound_job *job, const char *const *paths, bool direct, heft_error *err) {
    for (size_t i = 0; i < job->nfiles; i++) {
        bound_file *file = &job->files[i];
        heft_status status = heft__os_open_read(paths[i], direct, &file->fd, &file->nbytes, err);
        if (status) return status;
        file->at = job->end;
        uint64_t blocks = file->nbytes / BOUND_BLOCK + (file->nbytes % BOUND_BLOCK != 0);
        job->end += blocks * BOUND_BLOCK;
    }
    return HEFT_OK;
}

heft_status cli_bound_read(const char *const *paths, size_t npaths, uint32_t workers, bool direct, heft_error *err) {
    heft_error first;
    size_t nbytes = 0;
    bound_job job = {.nfiles = npaths, .files = calloc(npaths + 1, sizeof *job.files), .err = &first};
    if (!job.files) cli_die_memory();
    for (size_t i = 0; i < npaths; i++) job.files[i].fd = -1;
    heft_status status = bound_open(&job, paths, direct, err);
    if (!status && heft__to_size(job.end, &nbytes)) job.memory = heft__os_pages(nbytes);
    if (!status && !job.memory) status = heft__fail_memory(err, job.end);
    if (!status) heft__parallel(workers, bound_work, &job);
    if (!status && atomic_load(&job.failed)) {
        status = first.status;
        if (err) *err = first;
    }
    heft__os_pages_free(job.memory, nbytes);
    for (size_t i = 0; i < npaths; i++) heft__os_close(job.files[i].fd);
    free(job.files);
    return status;
}

heft_status cli_bound_fill(const char *const *paths, size_t npaths, heft_error *err) {
    uint8_t *scratch = heft__os_pages((size_t)BOUND_BLOCK);
    heft_status status = scratch ? HEFT_OK : heft__fail_memory(err, BOUND_BLOCK);
    for (size_t i = 0; i < npaths && !status; i++) {
        uint64_t nbytes, offset = 0;
        size_t got = 1;
        int fd;
        status = heft__os_open_read(paths[i], false, &fd, &nbytes, err);
        for (; !status && got; offset += got)
            status = heft__os_read_at(fd, offset, scratch, (size_t)BOUND_BLOCK, &got, err);
        heft__os_close(fd);
    }
    heft__os_pages_free(scratch, (size_t)BOUND_BLOCK);
    return status;
}

static void bound_touch(void *ctx, uint32_t worker) {
    bound_job *job = ctx;
    (void)worker;
    for (;;) {
        uint64_t at = atomic_fetch_add(&job->cursor, BOUND_BLOCK);
        if (at >= job->end) return;
        for (uint64_t i = at; i < at + BOUND_BLOCK && i < job->end; i += 4096) job->memory[i] = 1;
    }
}

void cli_bound_prime(uint64_t nbytes) {
    size_t size;
    bound_job job = {.end = nbytes};
    if (!heft__to_size(nbytes, &size)) return;
    job.memory = heft__os_pages(size);
    if (job.memory) heft__parallel(2, bound_touch, &job);
    heft__os_pages_free(job.memory, size);
}
