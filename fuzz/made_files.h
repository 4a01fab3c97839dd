/* What the fuzzers of writers share about disks: a folder that is empty for each input, and the options of saves. */
#ifndef HEFT_FUZZ_MADE_FILES_H
#define HEFT_FUZZ_MADE_FILES_H

#include "made.h"

#include <dirent.h>
#include <unistd.h>

static char made_folder[4096];

static void made_empty(const char *path) {
    DIR *d = opendir(path);
    if (!d) return;
    for (struct dirent *e; (e = readdir(d));) {
        char inner[5000];
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) continue;
        snprintf(inner, sizeof inner, "%s/%s", path, e->d_name);
        if (unlink(inner) == 0) continue;
        made_empty(inner);
        (void)rmdir(inner);
    }
    closedir(d);
}

static void made_leave(void) {
    made_empty(made_folder);
    (void)rmdir(made_folder);
}

/* "FOLDER/name" in static storage. */
static const char *made_path(const char *name) {
    static char path[4400];
    if (!*made_folder) {
        const char *temp = getenv("TMPDIR");
        if (!temp || !*temp) temp = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp"; /* memory, where there is some */
        snprintf(made_folder, sizeof made_folder, "%s/heft-fuzz-XXXXXX", temp);
        DEMAND(mkdtemp(made_folder));
        atexit(made_leave);
    }
    snprintf(path, sizeof path, "%s/%s", made_folder, name);
    return path;
}

/* Entries of a folder; a temporary one is none that may be left. */
static uint64_t made_entries(const char *path) {
    DIR *d = opendir(path);
    uint64_t n = 0;
    if (!d) return 0;
    for (struct dirent *e; (e = readdir(d));) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) continue;
        DEMAND(strncmp(e->d_name, ".heft-", 6) != 0);
        n++;
    }
    closedir(d);
    return n;
}

static uint8_t *made_slurp(const char *path, uint64_t *nbytes) {
    FILE *f = fopen(path, "rb");
    DEMAND(f && fseek(f, 0, SEEK_END) == 0);
    long size = ftell(f);
    DEMAND(size >= 0 && fseek(f, 0, SEEK_SET) == 0);
    uint8_t *bytes = malloc((size_t)size + 1);
    DEMAND(bytes && fread(bytes, 1, (size_t)size, f) == (size_t)size);
    fclose(f);
    *nbytes = (uint64_t)size;
    return bytes;
}

/* ---- options ---- */

typedef struct made_save {
    heft_save_options options;
    heft_pair pairs[2];
    char texts[4][16];
} made_save;

/* False: the metadata is refused. */
static bool made_metadata(made_save *save, made_bytes *in) {
    bool fine = true;
    for (int i = 0; i < 4; i++) {
        uint8_t len = made_take(in) & 15;
        for (uint8_t k = 0; k < len; k++) save->texts[i][k] = (char)made_take(in);
        heft_pair *pair = &save->pairs[i / 2];
        if (i & 1) pair->value = save->texts[i], pair->value_len = len;
        else pair->key = save->texts[i], pair->key_len = len;
        fine = fine && heft__utf8_check(save->texts[i], len) == len;
    }
    const heft_pair *a = &save->pairs[0], *b = a + 1;
    save->options.metadata = save->pairs;
    save->options.nmetadata = 2;
    return fine && (a->key_len != b->key_len || memcmp(a->key, b->key, a->key_len) != 0);
}

/* Options for a format, whatever it is; false: the metadata is refused. What a way of saving does not do the caller knows. */
static bool made_save_options(made_save *save, made_bytes *in, const char *format) {
    static const uint64_t aligns[] = {0, 16, 64, 4096, 65536, 0, 0, 32}, reserves[] = {0, 8, 1000, 5000};
    memset(save, 0, sizeof *save);
    uint8_t a = made_take(in), b = made_take(in);
    heft_save_options *o = &save->options;
    o->struct_size = sizeof *o;
    o->format = format;
    o->no_sync = true;
    o->keep_order = a & 1;
    o->no_fill = a & 2;
    o->workers = 1 + (a >> 2 & 1);
    o->verify = a & 8;
    if (a & 16 && heft_features() & HEFT_FEATURE_XXHASH) o->digests = 1 + b % 7;
    o->keep_fortran = a & 32;
    o->align = aligns[b & 7];
    o->foreign = (b >> 3 & 3) % 3;
    o->reserve_header_nbytes = reserves[b >> 5 & 3];
    o->data_start_align = b & 128 ? 512 : 0;
    return !(a & 64) || made_metadata(save, in);
}

/* Whether a whole save of that format takes them. */
static bool made_legal(const heft_save_options *o) {
    bool npy = o->format && strcmp(o->format, "npy") == 0;
    if (!o->format) return !o->keep_fortran;
    return !o->digests && !o->nmetadata && o->align <= (npy ? 64 : 32768);
}

/* Whether a writer that does not hold its tensors takes them. */
static bool made_legal_streamed(const heft_save_options *o, bool stream) {
    return !o->format && !o->verify && !o->digests && !(stream && (o->align || o->keep_order));
}

/* The given pairs are there, and the digests, in the file or, if it was opened by its path, beside it. */
static void made_compare_metadata(const made_save *save, const heft_archive *archive, bool by_path) {
    const heft_save_options *o = &save->options;
    uint32_t seen = o->digests & (by_path ? ~UINT32_C(0) : HEFT_DIGEST_TENSORS | HEFT_DIGEST_DATA);
    for (uint64_t i = 0; i < o->nmetadata; i++) {
        heft_pair pair;
        DEMAND(heft_archive_metadata_find(archive, 0, o->metadata[i].key, o->metadata[i].key_len, &pair, NULL) == HEFT_OK);
        DEMAND(pair.value_len == o->metadata[i].value_len && memcmp(pair.value, o->metadata[i].value, pair.value_len) == 0);
    }
    if (seen && heft_archive_count(archive)) DEMAND(heft_archive_verify(archive, NULL, 0, NULL, NULL, NULL, NULL) == HEFT_OK);
}

/* What a writer that is declared is given: parts of the bytes as they are in the file, in an order by chance. */
static heft_status made_write_declared(const made_all *all, heft_writer *writer, made_bytes *in, heft_error *err) {
    heft_status status = HEFT_OK;
    uint8_t how = made_take(in);
    for (uint64_t k = 0; k < all->n && status == HEFT_OK; k++) {
        uint64_t i = how & 1 ? all->n - 1 - k : k, half = all->items[i].nbytes * (how >> 1 & 3) / 4;
        const made *m = &all->items[i];
        uint8_t *bytes = malloc(m->nbytes + 1);
        DEMAND(bytes);
        memcpy(bytes, m->packed, m->nbytes);
        made_swap(bytes, m->nbytes, m->to);
        status = heft_writer_write(writer, i, half, bytes + half, m->nbytes - half, err);
        if (status == HEFT_OK) status = heft_writer_write(writer, i, 0, bytes, half, err);
        free(bytes);
    }
    return status;
}

/* A writer from begin to end. */
static heft_status made_write(const made_all *all, const char *path, heft_writer_mode mode, const heft_save_item *items,
                              const heft_save_options *options, const heft_set_options *set, made_bytes *in,
                              heft_save_stats *stats, heft_error *err) {
    heft_writer *writer;
    bool declared = mode == HEFT_WRITER_DECLARED;
    heft_status status =
        heft_writer_open(path, mode, declared ? items : NULL, declared ? all->n : 0, options, set, &writer, err);
    if (status != HEFT_OK) return status;
    if (declared) status = made_write_declared(all, writer, in, err);
    for (uint64_t i = 0; i < all->n && !declared && status == HEFT_OK; i++) {
        const made *m = &all->items[i];
        made *gone = malloc(sizeof *gone); /* after the call */
        uint8_t *data = malloc(m->memory_nbytes + 1);
        DEMAND(gone && data);
        *gone = *m;
        memcpy(data, m->memory, m->memory_nbytes);
        heft_save_item item = items[i];
        item.name = gone->name;
        if (!item.view && !item.archive) {
            item.data = data + m->first;
            item.shape = gone->shape;
            item.stride_nbytes = m->strided ? gone->stride : NULL;
        }
        status = heft_writer_add(writer, &item, err);
        free(data);
        free(gone);
    }
    if (status == HEFT_OK) status = heft_writer_finish(writer, stats, err);
    heft_writer_free(writer);
    return status;
}

/* A saver from begin to end. */
static heft_status made_background(const char *path, const heft_save_item *items, uint64_t n, const heft_save_options *options,
                                   const heft_set_options *set, heft_save_stats *stats, heft_error *err) {
    const heft_saver_options how = {.struct_size = sizeof how, .snapshot = options->workers > 1};
    heft_saver *saver;
    heft_status status = heft_saver_new(&how, &saver, err);
    if (status != HEFT_OK) return status;
    status = heft_saver_start(saver, path, items, n, options, set, err);
    if (status == HEFT_OK) status = heft_saver_wait(saver, stats, err);
    heft_saver_free(saver);
    return status;
}

#endif
