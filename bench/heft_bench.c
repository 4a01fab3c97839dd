/* bench: heft's own rows of peers.py: `heft_bench JOB PATH [OUT]` does a job once, times it, and prints one line of JSON.
 *
 * Jobs: the table at the end (peers.py says what each is); check is every rule, for memory. HEFT_BENCH_REUSE=1 touches the
 * destination of a cast or a transpose before the clock starts. BENCH_SCALE=N divides all sizes of jobs in memory by N.
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
static uint64_t gib = UINT64_C(1) << 30; /* or less, by BENCH_SCALE */
static const char *output;
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

/* The result is the weights: from them a program gets its tensors by name. With `verify` all is read once more, and compared
 * with the checksums that the file has. */
static void load_file(const char *path, bool verify, heft_dtype dtype, const heft_filter *filter) {
    heft_archive *archive = open_archive(path);
    heft_load_options load = {.struct_size = sizeof load, .workers = options.workers, .dtype = dtype, .filter = filter};
    heft_weights *weights;
    heft_loaded tensor;
    if (verify) need(heft_archive_verify(archive, NULL, 0, &options, NULL, NULL, &err));
    need(heft_load(archive, &load, &weights, NULL, &err));
    stop();
    for (uint64_t i = 0; i < heft_weights_count(weights); i++) {
        need(heft_weights_at(weights, HEFT_LOAD_ORDER_FILE, i, &tensor, &err));
        sum += samples(tensor.data, tensor.nbytes);
    }
    heft_weights_unref(weights);
    heft_archive_unref(archive);
}

static void job_load(const char *path) {
    load_file(path, false, HEFT_DTYPE_NONE, NULL);
}

static void job_npz_check(const char *path) {
    load_file(path, true, HEFT_DTYPE_NONE, NULL);
}

static void job_load_cast(const char *path) {
    load_file(path, false, HEFT_BF16, NULL);
}

static void job_rank(const char *path) {
    heft_filter mine = {.struct_size = sizeof mine, .ep_rank = 3, .ep_world = 8, .num_experts = 512};
    load_file(path, false, HEFT_DTYPE_NONE, &mine);
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
    heft_archive *archive = open_archive(path);
    heft_tensor tensor;
    char index[64];
    need(heft_archive_get(archive, 0, &tensor, &err));
    snprintf(index, sizeof index, "%" PRId64 ":%" PRId64, tensor.shape[0] / 4, tensor.shape[0] / 2);
    heft_archive_unref(archive);
    started = now();
    slice(path, index);
}

static void *pages(size_t nbytes) {
    void *memory = aligned_alloc((size_t)2 << 20, nbytes);
    if (!memory) exit(1);
    madvise(memory, nbytes, MADV_HUGEPAGE);
    return memory;
}

/* 1 GiB of memory, as 256 tensors of 4 MiB or 64 of 16. */
enum { ITEMS_MOST = 512 };
static const int64_t shape_bf16[] = {2048, 1024}, shape_f32[] = {2048, 2048};
static char item_names[ITEMS_MOST][8];
static heft_save_item items[ITEMS_MOST];

static uint64_t make_items(uint64_t nbytes, heft_dtype dtype) {
    uint64_t each = dtype == HEFT_BF16 ? UINT64_C(4) << 20 : UINT64_C(16) << 20, n = nbytes / each;
    uint16_t *data = pages(nbytes);
    for (size_t i = 0; i < nbytes / 2; i++) data[i] = (uint16_t)(i * 40503u >> 3);
    for (uint64_t i = 0; i < n; i++) {
        snprintf(item_names[i], sizeof item_names[i], "w%u", (unsigned)i);
        items[i] = (heft_save_item){.name = item_names[i],
                                    .data = (uint8_t *)data + i * each,
                                    .shape = dtype == HEFT_BF16 ? shape_bf16 : shape_f32,
                                    .rank = 2,
                                    .dtype = dtype};
    }
    return n;
}

/* To a new name, or in place of what has it. */
static void save(const char *path, const char *format, heft_dtype dtype, bool no_sync, bool over) {
    uint64_t n = make_items(gib, dtype);
    heft_save_options how = {.struct_size = sizeof how, .format = format, .no_sync = no_sync, .workers = options.workers};
    how.overwrite = over;
    if (!over) unlink(path);
    started = now();
    need(heft_save(path, items, n, &how, NULL, &err));
    stop();
    free((void *)(uintptr_t)items[0].data);
}

static void job_save(const char *path) {
    save(path, NULL, HEFT_BF16, true, false);
}

static void job_save_sync(const char *path) {
    save(path, NULL, HEFT_BF16, false, false);
}

static void job_save_over(const char *path) {
    save(path, NULL, HEFT_BF16, true, true);
}

static void job_npz_save(const char *path) {
    save(path, "npz", HEFT_F32, true, false);
}

/* A whole file, its BF16 tensors as F32, to a new one. */
static void job_copy(const char *path) {
    if (!output) exit(2);
    unlink(output);
    started = now();
    heft_archive *archive = open_archive(path);
    uint64_t n = heft_archive_count(archive);
    heft_save_item *all = calloc(n, sizeof *all);
    for (uint64_t i = 0; all && i < n; i++) {
        heft_tensor tensor;
        need(heft_archive_get(archive, i, &tensor, &err));
        all[i] = (heft_save_item){.name = tensor.name, .name_len = tensor.name_len, .archive = archive, .id = i, .as = HEFT_F32};
    }
    heft_save_options how = {.struct_size = sizeof how, .no_sync = true, .workers = options.workers};
    need(heft_save(output, all, n, &how, NULL, &err));
    stop();
    free(all);
    heft_archive_unref(archive);
}

/* The copy that a save in the background makes first; the one before it has brought the memory into use. Both are cancelled. */
static void job_snapshot(const char *path) {
    uint64_t n = make_items(2 * gib, HEFT_BF16);
    heft_saver_options saver_options = {.struct_size = sizeof saver_options, .snapshot = true};
    heft_save_options how = {.struct_size = sizeof how, .no_sync = true, .overwrite = true, .workers = options.workers};
    heft_saver *saver;
    need(heft_saver_new(&saver_options, &saver, &err));
    for (int i = 0; i < 2; i++) {
        started = now();
        need(heft_saver_start(saver, path, items, n, &how, NULL, &err));
        stop();
        heft_saver_cancel(saver);
        (void)heft_saver_wait(saver, NULL, NULL);
    }
    heft_saver_free(saver);
    free((void *)(uintptr_t)items[0].data);
}

/* ---- looking at every byte ---- */

static void stats(const char *path, bool histogram) {
    heft_archive *archive = open_archive(path);
    uint64_t n = heft_archive_count(archive);
    heft_stats *out = calloc(n, sizeof *out);
    heft_histogram *histograms = histogram ? calloc(n, sizeof *histograms) : NULL;
    need(heft_archive_stats(archive, NULL, 0, &options, out, histograms, NULL, &err));
    stop();
    for (uint64_t i = 0; i < n; i++) sum += out[i].count;
    free(out);
    free(histograms);
    heft_archive_unref(archive);
}

static void job_stats(const char *path) {
    stats(path, false);
}

static void job_stats_hist(const char *path) {
    stats(path, true);
}

static void job_digest(const char *path) {
    heft_archive *archive = open_archive(path);
    uint8_t(*digests)[16] = calloc(heft_archive_count(archive), sizeof *digests), whole[16];
    need(heft_archive_digests(archive, NULL, 0, &options, digests, whole, &err));
    stop();
    sum = whole[0];
    free(digests);
    heft_archive_unref(archive);
}

static void job_sha256(const char *path) {
    char text[65];
    heft_source *source;
    need(heft_source_open_file(path, &source, &err));
    need(heft_source_sha256(source, &options, text, &err));
    stop();
    heft_source_unref(source);
}

/* With PATH.same, which is equal. */
static void job_diff(const char *path) {
    char other[4096];
    snprintf(other, sizeof other, "%s.same", path);
    heft_archive *a = open_archive(path), *b = open_archive(other);
    heft_diff_options how = {.struct_size = sizeof how, .workers = options.workers};
    heft_diff *diff;
    need(heft_diff_archives(a, b, &how, &diff, &err));
    stop();
    sum = heft_diff_count_of(diff, HEFT_DIFF_EQUAL);
    if (sum != heft_archive_count(a)) exit(1);
    heft_diff_free(diff);
    heft_archive_unref(a);
    heft_archive_unref(b);
}

/* ---- in memory ---- */

/* A program's allocator that gives memory which is in use already, once. */
static void *warm_block;
static size_t warm_nbytes;

static void *warm_alloc(void *ctx, size_t nbytes) {
    (void)ctx;
    void *block = nbytes > warm_nbytes / 2 && nbytes <= warm_nbytes ? warm_block : malloc(nbytes);
    if (block == warm_block) warm_block = NULL;
    return block;
}

static void *warm_realloc(void *ctx, void *block, size_t old_nbytes, size_t new_nbytes) {
    (void)ctx;
    (void)old_nbytes;
    return realloc(block, new_nbytes);
}

static void warm_free(void *ctx, void *block, size_t nbytes) {
    (void)ctx;
    (void)nbytes;
    free(block);
}

/* A matrix of 4096 x 4096, transposed: an item of strides, saved to memory. */
static void transpose(heft_dtype dtype) {
    static const int64_t shape[] = {4096, 4096};
    static const heft_allocator warm = {.alloc = warm_alloc, .realloc = warm_realloc, .free = warm_free};
    const int64_t size = heft_dtype_bits(dtype) / 8, strides[] = {size, 4096 * size};
    const size_t nbytes = ((size_t)16 << 20) * (size_t)size;
    uint8_t *in = pages(nbytes);
    for (size_t i = 0; i < nbytes; i++) in[i] = (uint8_t)(i * 40503u >> 3);
    heft_save_item item = {.name = "w", .data = in, .shape = shape, .stride_nbytes = strides, .rank = 2, .dtype = dtype};
    heft_save_options how = {.struct_size = sizeof how, .align = 64, .workers = options.workers};
    heft_buffer file;
    if (getenv("HEFT_BENCH_REUSE")) {
        warm_nbytes = nbytes + 65536;
        warm_block = pages(nbytes + ((size_t)2 << 20));
        memset(warm_block, 1, warm_nbytes);
        how.allocator = &warm;
    }
    started = now();
    need(heft_save_buffer(&item, 1, &how, &file, NULL, &err));
    stop();
    if (how.allocator && warm_block) exit(1); /* it was not taken */
    const uint8_t *out = (const uint8_t *)file.data + file.nbytes - nbytes;
    for (uint64_t at = 0; at < (UINT64_C(1) << 24); at += 977)
        if (memcmp(out + at * (uint64_t)size, in + (at % 4096 * 4096 + at / 4096) * (uint64_t)size, (size_t)size) != 0) exit(1);
    heft_buffer_release(&file);
}

static void job_transpose(const char *path) {
    (void)path;
    transpose(HEFT_F32);
}

static void job_transpose_f16(const char *path) {
    (void)path;
    transpose(HEFT_F16);
}

static void job_transpose_u8(const char *path) {
    (void)path;
    transpose(HEFT_U8);
}

/* 1 GiB of numbers into memory that the program has just obtained, or uses again. */
static void cast(heft_dtype from, heft_dtype to) {
    const size_t nbytes = (size_t)gib;
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
} jobs[] = {
    {"open", job_open},
    {"check", job_check},
    {"views", job_views},
    {"load", job_load},
    {"load_cast", job_load_cast},
    {"npz_load", job_load},
    {"npz_check", job_npz_check},
    {"filter", job_filter},
    {"rank", job_rank},
    {"slice_col", job_slice_col},
    {"slice_row", job_slice_row},
    {"save", job_save},
    {"save_sync", job_save_sync},
    {"save_over", job_save_over},
    {"npz_save", job_npz_save},
    {"copy", job_copy},
    {"snapshot", job_snapshot},
    {"diff", job_diff},
    {"digest", job_digest},
    {"sha256", job_sha256},
    {"stats", job_stats},
    {"stats_hist", job_stats_hist},
    {"cast_bf16_f32", job_cast_bf16_f32},
    {"cast_f32_bf16", job_cast_f32_bf16},
    {"cast_f32_f16", job_cast_f32_f16},
    {"cast_f8_bf16", job_cast_f8_bf16},
    {"transpose", job_transpose},
    {"transpose_f16", job_transpose_f16},
    {"transpose_u8", job_transpose_u8},
};

int main(int argc, char **argv) {
    const char *workers = getenv("HEFT_BENCH_WORKERS");
    if (workers) options.workers = (uint32_t)strtoul(workers, NULL, 10);
    const char *scale = getenv("BENCH_SCALE");
    if (scale && strtoul(scale, NULL, 10) > 1) gib /= strtoul(scale, NULL, 10);
    output = argc == 4 ? argv[3] : NULL;
    if (argc == 3 || argc == 4)
        for (size_t i = 0; i < sizeof jobs / sizeof *jobs; i++) {
            if (strcmp(argv[1], jobs[i].name) != 0) continue;
            long before = status_kb("VmRSS");
            started = now();
            jobs[i].run(argv[2]);
            printf("{\"seconds\": %.6f, \"touch\": %.6f, \"sum\": %" PRIu64 ", \"peak_kb\": %ld}\n", seconds, touched,
                   sum, status_kb("VmHWM") - before);
            return 0;
        }
    fprintf(stderr, "usage: heft_bench JOB PATH [OUT], of");
    for (size_t i = 0; i < sizeof jobs / sizeof *jobs; i++) fprintf(stderr, " %s", jobs[i].name);
    fprintf(stderr, "\n");
    return 2;
}
