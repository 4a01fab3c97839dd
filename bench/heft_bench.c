/* bench: heft's own rows of peers.py: `heft_bench JOB PATH` does a job once, times it, and prints one line of JSON.
 *
 * Jobs: open, views, load, filter, slice_col, slice_row, save, save_sync, cast_* (peers.py says what each is), check (every
 * rule, for memory). HEFT_BENCH_REUSE=1 touches the destination of a cast before the clock starts.
 * "seconds" is from before opening until the result is there, "touch" one byte in 4 KiB after views, "sum" those bytes
 * of all tensors, "peak_kb" the growth of resident memory during the job. HEFT_BENCH_WORKERS sets the number of
 * threads. */
#include "heft/heft.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static double started, seconds, touched = -1;
static uint64_t sum;
static heft_error err;
static heft_read_options options = {.struct_size = sizeof options};

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void stop(void) {
    seconds = now() - started;
}

static void need(heft_status status) {
    if (status == HEFT_OK) return;
    printf("{\"error\": \"%s\"}\n", heft_status_name(status));
    fprintf(stderr, "%s\n", err.message);
    exit(1);
}

static uint64_t samples(const void *data, uint64_t nbytes) {
    uint64_t n = 0;
    for (uint64_t i = 0; i < nbytes; i += 4096) n += ((const uint8_t *)data)[i];
    return n;
}

/* A line of /proc/self/status in KiB, 0 where there is none. */
static long status_kb(const char *key) {
    char line[256];
    long kb = 0;
    FILE *f = fopen("/proc/self/status", "r");
    while (f && fgets(line, sizeof line, f))
        if (strncmp(line, key, strlen(key)) == 0) kb = strtol(line + strlen(key) + 1, NULL, 10);
    if (f) fclose(f);
    return kb;
}

static heft_archive *open_archive(const char *path) {
    heft_archive *archive;
    heft_open_options open_options = {.struct_size = sizeof open_options, .max_header_nbytes = UINT64_C(1) << 30};
    need(heft_archive_open(path, &open_options, &archive, &err));
    return archive;
}

/* Names are asked for one by one, as a program does that lists them. */
static void job_open(const char *path) {
    heft_archive *archive = open_archive(path);
    heft_tensor tensor;
    uint64_t n = heft_archive_count(archive), length = 0;
    for (uint64_t i = 0; i < n; i++) {
        need(heft_archive_get(archive, i, &tensor, &err));
        length += tensor.name_len;
    }
    stop();
    sum = length;
    heft_archive_unref(archive);
}

static void job_check(const char *path) {
    heft_report *report;
    heft_open_options open_options = {.struct_size = sizeof open_options, .max_header_nbytes = UINT64_C(1) << 30};
    need(heft_check(path, &open_options, &report, &err));
    stop();
    sum = heft_report_count(report);
    heft_report_free(report);
}

static void job_views(const char *path) {
    heft_archive *archive = open_archive(path);
    uint64_t n = heft_archive_count(archive);
    heft_buffer *buffers = calloc(n, sizeof *buffers);
    heft_view view;
    for (uint64_t i = 0; i < n; i++) {
        need(heft_view_of(archive, i, &view, &err));
        need(heft_borrow(&view, 1, &buffers[i], &err));
    }
    stop();
    double from = now();
    for (uint64_t i = 0; i < n; i++) sum += samples(buffers[i].data, buffers[i].nbytes);
    touched = now() - from;
    for (uint64_t i = 0; i < n; i++) heft_buffer_release(&buffers[i]);
    free(buffers);
    heft_archive_unref(archive);
}

/* `ids` NULL: all. The result is what a program works with: one buffer and the place of each tensor in it. */
static void read_ids(heft_archive *archive, const uint64_t *ids, uint64_t n) {
    heft_buffer buffer;
    heft_tensor tensor;
    uint64_t *offsets = malloc((n + 1) * sizeof *offsets);
    need(heft_read_many(archive, ids, n, &options, &buffer, offsets, NULL, &err));
    stop();
    for (uint64_t i = 0; i < n; i++) {
        need(heft_archive_get(archive, ids ? ids[i] : i, &tensor, &err));
        sum += samples((const uint8_t *)buffer.data + offsets[i], tensor.nbytes);
    }
    heft_buffer_release(&buffer);
    free(offsets);
}

/* The result is the weights: from them a program gets its tensors by name. */
static void job_load(const char *path) {
    heft_archive *archive = open_archive(path);
    heft_load_options load = {.struct_size = sizeof load, .workers = options.workers};
    heft_weights *weights;
    heft_loaded tensor;
    need(heft_load(archive, &load, &weights, NULL, &err));
    stop();
    for (uint64_t i = 0; i < heft_weights_count(weights); i++) {
        need(heft_weights_at(weights, HEFT_LOAD_ORDER_FILE, i, &tensor, &err));
        sum += samples(tensor.data, tensor.nbytes);
    }
    heft_weights_unref(weights);
    heft_archive_unref(archive);
}

/* The names wanted are one a line in PATH.keep; that file is read before the clock starts. */
static void job_filter(const char *path) {
    char name[4096];
    snprintf(name, sizeof name, "%s.keep", path);
    FILE *f = fopen(name, "r");
    char **names = malloc((size_t)1 << 23);
    size_t n = 0;
    while (f && n < (size_t)1 << 20 && fgets(name, sizeof name, f)) {
        name[strcspn(name, "\n")] = 0;
        names[n++] = strdup(name);
    }
    if (f) fclose(f);
    started = now();
    heft_archive *archive = open_archive(path);
    uint64_t *ids = malloc((n + 1) * sizeof *ids);
    for (size_t i = 0; i < n; i++) need(heft_archive_find(archive, names[i], SIZE_MAX, &ids[i], &err));
    read_ids(archive, ids, n);
    heft_archive_unref(archive);
    for (size_t i = 0; i < n; i++) free(names[i]);
    free(names);
    free(ids);
}

static void slice(const char *path, const char *index) {
    heft_archive *archive = open_archive(path);
    heft_view view;
    heft_buffer buffer;
    need(heft_view_named(archive, "w", SIZE_MAX, &view, &err));
    need(heft_view_index_text(&view, index, SIZE_MAX, &view, &err));
    need(heft_read_buffer(&view, &options, &buffer, NULL, &err));
    stop();
    sum = samples(buffer.data, buffer.nbytes);
    heft_buffer_release(&buffer);
    heft_archive_unref(archive);
}

static void job_slice_col(const char *path) {
    slice(path, ":, :256");
}

static void job_slice_row(const char *path) {
    slice(path, "32768:65536");
}

/* 256 tensors of 4 MiB from memory that is there, to a new name. */
static void save(const char *path, bool no_sync) {
    enum { TENSORS = 256 };
    static const int64_t shape[] = {2048, 1024};
    static char names[TENSORS][8];
    static heft_save_item items[TENSORS];
    uint16_t *data = aligned_alloc((size_t)2 << 20, (size_t)1 << 30);
    if (!data) exit(1);
    madvise(data, (size_t)1 << 30, MADV_HUGEPAGE);
    for (size_t i = 0; i < (size_t)1 << 29; i++) data[i] = (uint16_t)(i * 40503u >> 3);
    for (int i = 0; i < TENSORS; i++) {
        snprintf(names[i], sizeof names[i], "w%d", i);
        items[i] = (heft_save_item){.name = names[i],
                                    .data = data + ((size_t)i << 21),
                                    .shape = shape,
                                    .rank = 2,
                                    .dtype = HEFT_BF16};
    }
    heft_save_options save_options = {.struct_size = sizeof save_options, .no_sync = no_sync, .workers = options.workers};
    unlink(path);
    started = now();
    need(heft_save(path, items, TENSORS, &save_options, NULL, &err));
    stop();
    free(data);
}

static void job_save(const char *path) {
    save(path, true);
}

static void job_save_sync(const char *path) {
    save(path, false);
}

static void *pages(size_t nbytes) {
    void *memory = aligned_alloc((size_t)2 << 20, nbytes);
    if (!memory) exit(1);
    madvise(memory, nbytes, MADV_HUGEPAGE);
    return memory;
}

/* 1 GiB of numbers into memory that the program has just obtained, or uses again. */
static void cast(heft_dtype from, heft_dtype to) {
    const size_t nbytes = (size_t)1 << 30;
    size_t n = nbytes / (heft_dtype_bits(from) / 8), out_nbytes = n * (heft_dtype_bits(to) / 8);
    heft_cast_options how = {.struct_size = sizeof how, .workers = options.workers};
    float *in = pages(nbytes);
    uint8_t *out = pages(out_nbytes);
    for (size_t i = 0; i < nbytes / sizeof *in; i++) in[i] = (float)(i % 977) * 0.001f;
    if (getenv("HEFT_BENCH_REUSE"))
        for (size_t i = 0; i < out_nbytes; i += 4096) out[i] = 1;
    started = now();
    need(heft_cast(from, in, to, out, n, &how, &err));
    stop();
    sum = samples(out, out_nbytes);
}

static void job_cast_bf16_f32(const char *path) {
    (void)path;
    cast(HEFT_BF16, HEFT_F32);
}

static void job_cast_f32_bf16(const char *path) {
    (void)path;
    cast(HEFT_F32, HEFT_BF16);
}

static void job_cast_f32_f16(const char *path) {
    (void)path;
    cast(HEFT_F32, HEFT_F16);
}

static void job_cast_f8_bf16(const char *path) {
    (void)path;
    cast(HEFT_F8_E4M3, HEFT_BF16);
}

static const struct {
    const char *name;
    void (*run)(const char *path);
} jobs[] = {{"open", job_open},     {"check", job_check},         {"views", job_views},        {"load", job_load},
            {"filter", job_filter}, {"slice_col", job_slice_col}, {"slice_row", job_slice_row},
            {"save", job_save},     {"save_sync", job_save_sync},
            {"cast_bf16_f32", job_cast_bf16_f32}, {"cast_f32_bf16", job_cast_f32_bf16},
            {"cast_f32_f16", job_cast_f32_f16},   {"cast_f8_bf16", job_cast_f8_bf16}};

int main(int argc, char **argv) {
    const char *workers = getenv("HEFT_BENCH_WORKERS");
    if (workers) options.workers = (uint32_t)strtoul(workers, NULL, 10);
    if (argc == 3)
        for (size_t i = 0; i < sizeof jobs / sizeof *jobs; i++) {
            if (strcmp(argv[1], jobs[i].name) != 0) continue;
            long before = status_kb("VmRSS");
            started = now();
            jobs[i].run(argv[2]);
            printf("{\"seconds\": %.6f, \"touch\": %.6f, \"sum\": %" PRIu64 ", \"peak_kb\": %ld}\n", seconds, touched,
                   sum, status_kb("VmHWM") - before);
            return 0;
        }
    fprintf(stderr, "usage: heft_bench open|check|views|load|filter|slice_col|slice_row|save|save_sync|cast_... PATH\n");
    return 2;
}
