/* fuzz: tensors of every dtype, in every order of memory, under every kind of name, written as one file in each format by each way
 * of writing, and read back; what is refused is what the formats cannot hold. */
#include "made_files.h"

#include "zip/zip.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { WAY_MEMORY, WAY_FUNCTION, WAY_FILE, WAY_COLLECT, WAY_DECLARED, WAY_STREAM, WAY_BACKGROUND, WAYS };

typedef struct written {
    uint8_t *bytes;
    uint64_t nbytes, room;
} written;

static int take_bytes(void *ctx, const void *data, size_t nbytes) {
    written *out = ctx;
    if (out->nbytes + nbytes > out->room) {
        out->room = 2 * (out->nbytes + nbytes);
        out->bytes = realloc(out->bytes, out->room);
        DEMAND(out->bytes);
    }
    memcpy(out->bytes + out->nbytes, data, nbytes);
    out->nbytes += nbytes;
    return 0;
}

static heft_status write_memory(const heft_save_item *items, uint64_t n, const heft_save_options *options, written *out,
                                heft_save_stats *stats, heft_error *err) {
    heft_buffer buffer;
    heft_status status = heft_save_buffer(items, n, options, &buffer, stats, err);
    DEMAND((status == HEFT_OK) == (buffer.data != NULL));
    if (status == HEFT_OK) (void)take_bytes(out, buffer.data, buffer.nbytes);
    heft_buffer_release(&buffer);
    return status;
}

static heft_status write_one(int way, const made_all *all, const heft_save_item *items, const heft_save_options *options,
                             made_bytes *in, written *out, heft_save_stats *stats, heft_error *err) {
    char path[4400];
    heft_status status;
    if (way == WAY_MEMORY) return write_memory(items, all->n, options, out, stats, err);
    if (way == WAY_FUNCTION) return heft_save_callback(items, all->n, options, take_bytes, out, stats, err);
    memcpy(path, made_path("file"), sizeof path);
    made_empty(made_folder);
    if (way == WAY_FILE) status = heft_save(path, items, all->n, options, stats, err);
    else if (way == WAY_BACKGROUND) status = made_background(path, items, all->n, options, NULL, stats, err);
    else status = made_write(all, path, (heft_writer_mode)(way - WAY_COLLECT), items, options, NULL, in, stats, err);
    uint64_t left = made_entries(made_folder), sidecar = (options->digests & HEFT_DIGEST_SIDECAR) != 0;
    DEMAND(left == (status == HEFT_OK ? 1 + sidecar : 0));
    if (status == HEFT_OK) out->bytes = made_slurp(path, &out->nbytes);
    return status;
}

static heft_archive *open_written(const written *file) {
    heft_source *source;
    heft_archive *archive;
    heft_report *report;
    heft_open_options options = made_options();
    DEMAND(heft_source_open_memory(file->bytes, file->nbytes, NULL, NULL, NULL, &source, NULL) == HEFT_OK);
    DEMAND(heft_check_source(source, &options, &report, NULL) == HEFT_OK);
    DEMAND(heft_report_count_of(report, HEFT_SEVERITY_ERROR) == 0);
    heft_report_free(report);
    DEMAND(heft_archive_open_source(source, &options, &archive, NULL) == HEFT_OK);
    heft_source_unref(source);
    return archive;
}

/* What the layout says beforehand. */
static void check_layout(const made_all *all, const heft_save_item *items, const heft_save_options *options,
                         const heft_archive *archive, const heft_save_stats *stats) {
    heft_layout *layout;
    heft_layout_file file;
    bool npy = options->format && strcmp(options->format, "npy") == 0;
    DEMAND(heft_layout_make(items, all->n, options, NULL, &layout, NULL) == HEFT_OK);
    DEMAND(heft_layout_get_file(layout, 0, &file, NULL) == HEFT_OK && file.file_nbytes == stats->file_nbytes);
    DEMAND(file.nfillers == stats->nfillers && file.header_nbytes == stats->header_nbytes);
    for (uint64_t i = 0; i < all->n; i++) {
        heft_layout_tensor place;
        heft_tensor tensor;
        uint64_t id = 0;
        const made *m = &all->items[i];
        if (!npy) DEMAND(heft_archive_find(archive, m->name, m->name_len, &id, NULL) == HEFT_OK);
        DEMAND(heft_archive_get(archive, id, &tensor, NULL) == HEFT_OK);
        DEMAND(heft_layout_get_tensor(layout, i, &place, NULL) == HEFT_OK);
        DEMAND(place.offset == tensor.offset && place.nbytes == tensor.nbytes && place.dtype == m->to);
        bool aligned = options->align && !options->keep_order && !options->no_fill && tensor.nbytes;
        if (aligned) DEMAND(tensor.offset % options->align == 0);
    }
    heft_layout_free(layout);
}

static void check_written(const made_all *all, const heft_save_item *items, const made_save *save, int way, const written *file,
                          const heft_save_stats *stats) {
    const heft_save_options *options = &save->options;
    heft_archive *archive = open_written(file);
    made_compare(all, archive, options->format, options->foreign);
    made_compare_metadata(save, archive, false);
    uint64_t data_nbytes = 0;
    for (uint64_t i = 0; i < all->n; i++) data_nbytes += all->items[i].nbytes;
    DEMAND(stats->ntensors == all->n && stats->data_nbytes == data_nbytes && stats->nfiles == 1);
    if (way != WAY_STREAM) {
        DEMAND(stats->file_nbytes >= file->nbytes);
        check_layout(all, items, options, archive, stats);
    }
    if (way != WAY_STREAM && !all->unfit) {
        written whole = {0};
        heft_save_options plain = *options;
        plain.workers = 3 - plain.workers;
        plain.verify = false;
        DEMAND(write_memory(items, all->n, &plain, &whole, NULL, NULL) == HEFT_OK);
        DEMAND(whole.nbytes == file->nbytes && memcmp(whole.bytes, file->bytes, whole.nbytes) == 0);
        free(whole.bytes);
    }
    heft_archive_unref(archive);
}

static bool legal(const heft_save_options *options, int way) {
    if (!made_legal(options)) return false;
    bool late = options->format ? strcmp(options->format, "npz") == 0 : options->digests & (HEFT_DIGEST_TENSORS | HEFT_DIGEST_DATA);
    if (way == WAY_FUNCTION) return !late;
    if (way == WAY_DECLARED || way == WAY_STREAM) return made_legal_streamed(options, way == WAY_STREAM);
    return true;
}

static bool fits_npz(const made *m) {
    char name[MADE_NAME + 4];
    memcpy(name, m->name, m->name_len);
    memcpy(name + m->name_len, ".npy", 4);
    return !heft__zip_name_fault(name, (uint32_t)m->name_len + 4);
}

/* Whether these go into that format. */
static bool fits(const made_all *all, const char *format, heft_foreign foreign) {
    bool npy = format && strcmp(format, "npy") == 0;
    for (uint64_t i = 0; i < all->n; i++)
        if (!made_found_dtype(all->items[i].to, format, foreign) || (format && !npy && !fits_npz(&all->items[i])))
            return false;
    return !npy || all->n == 1;
}

/* Tensors of another archive in their place: as they lie there or, where that can be, turned round as views. */
static void take_from_archive(made_all *all, const heft_archive *archive, bool named, bool turn, heft_save_item *items,
                              heft_view *views) {
    for (uint64_t i = 0; i < all->n; i++) {
        made *m = &all->items[i];
        uint64_t id = 0;
        if (named) DEMAND(heft_archive_find(archive, m->name, m->name_len, &id, NULL) == HEFT_OK);
        DEMAND(heft_view_of(archive, id, &views[i], NULL) == HEFT_OK);
        m->from = m->to = views[i].dtype;
        items[i] = (heft_save_item){
            .name = m->name, .name_len = m->name_len ? m->name_len : SIZE_MAX, .archive = archive, .id = id};
        if (!turn || heft_dtype_bits(m->from) < 8) continue;
        made turned = {.from = m->from, .rank = m->rank, .nelems = m->nelems, .memory = m->packed, .first = 0};
        int64_t step = heft_dtype_bits(m->from) / 8;
        for (uint32_t d = m->rank; d-- > 0; step *= m->shape[d]) {
            turned.shape[m->rank - 1 - d] = m->shape[d];
            turned.stride[m->rank - 1 - d] = step;
        }
        turned.packed = malloc(8 * m->nelems + 8);
        DEMAND(turned.packed && heft_view_permute(&views[i], NULL, &views[i], NULL) == HEFT_OK);
        made_pack(&turned, turned.packed);
        free(m->packed);
        m->packed = turned.packed;
        memcpy(m->shape, turned.shape, sizeof m->shape);
        items[i].archive = NULL;
        items[i].view = &views[i];
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char *const formats[] = {NULL, "npz", "npy"};
    made_bytes in = {data, size};
    made_all all;
    made_save save;
    heft_save_item items[MADE_MOST];
    heft_view views[MADE_MOST];
    heft_archive *through = NULL;
    written first = {0}, file = {0};
    uint8_t kind = made_take(&in), route = made_take(&in);
    int way = kind / 3 % WAYS;
    const char *format = formats[kind % 3];
    bool fine = made_save_options(&save, &in, format);
    fine = made_init(&all, &in, kind % 3 == 2 ? 2 : MADE_MOST) && fine;
    fine = fine && (!all.unfit || way == WAY_DECLARED);
    made_save_items(&all, items);
    save.options.saturate = all.saturate;
    save.options.allow_inexact = all.allow_inexact;
    const heft_save_options old = {.struct_size = sizeof old, .format = formats[route % 3], .foreign = HEFT_FOREIGN_VOID,
                                   .keep_fortran = route % 3 && route & 64, .saturate = all.saturate,
                                   .allow_inexact = all.allow_inexact};
    if (route & 128 && way != WAY_DECLARED && fine && fits(&all, old.format, old.foreign)) { /* by way of another file */
        DEMAND(write_memory(items, all.n, &old, &first, NULL, NULL) == HEFT_OK);
        through = open_written(&first);
        take_from_archive(&all, through, route % 3 != 2, route & 32, items, views);
    }
    heft_error err;
    heft_save_stats stats;
    bool takes = fine && legal(&save.options, way) && fits(&all, format, save.options.foreign);
    heft_status status = write_one(way, &all, items, &save.options, &in, &file, &stats, &err);
    made_expect(status, takes, &err);
    if (status == HEFT_OK) check_written(&all, items, &save, way, &file, &stats);
    else DEMAND(err.status == status && err.message[0] && status != HEFT_IO && status != HEFT_CORRUPT);
    heft_archive_unref(through);
    free(first.bytes);
    free(file.bytes);
    made_free(&all);
    return 0;
}
