/* fuzz: tensors of every dtype written as sets of files by each way of writing, anew or in the place of another, and read back. */
#include "made_files.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { SET_SAVE, SET_COLLECT, SET_DECLARED, SET_STREAM, SET_BACKGROUND, SET_WAYS };

static heft_set_options set_options(made_bytes *in) {
    static const char *const stems[] = {NULL, "x", "a b", "model.v2"};
    static const uint64_t ceilings[] = {0, 1, 100, 1000, 10000, 64, 300, 0};
    uint8_t a = made_take(in), b = made_take(in);
    return (heft_set_options){.struct_size = sizeof(heft_set_options),
                              .ceiling_nbytes = ceilings[a & 7],
                              .stem = stems[a >> 3 & 3],
                              .index = (a >> 5 & 3) % 3,
                              .index_indent = b & 7,
                              .index_ascii = b & 8,
                              .create_dir = b & 16,
                              .publish = b & 32,
                              .total_parameters = b & 64 ? 12345 : 0};
}

static heft_status save_by(int way, const made_all *all, const char *path, const heft_save_item *items,
                           const heft_save_options *options, const heft_set_options *set, made_bytes *in,
                           heft_save_stats *stats, heft_error *err) {
    if (way == SET_SAVE) return heft_save_set(path, items, all->n, options, set, stats, err);
    if (way == SET_BACKGROUND) return made_background(path, items, all->n, options, set, stats, err);
    return made_write(all, path, (heft_writer_mode)(way - SET_COLLECT), items, options, set, in, stats, err);
}

/* The files are those that the layout gives, of the sizes that it gives; nothing else is there. */
static void check_files(const made_all *all, const char *path, const heft_save_item *items, const heft_save_options *options,
                        const heft_set_options *set, bool sizes) {
    heft_layout *layout;
    heft_layout_file file;
    uint64_t index_nbytes, nfiles, nbytes, sidecars = (options->digests & HEFT_DIGEST_SIDECAR) != 0;
    DEMAND(heft_layout_make(items, all->n, options, set, &layout, NULL) == HEFT_OK);
    const char *index = heft_layout_index(layout, &index_nbytes);
    nfiles = heft_layout_file_count(layout);
    for (uint32_t i = 0; i < nfiles; i++) {
        char name[5000];
        DEMAND(heft_layout_get_file(layout, i, &file, NULL) == HEFT_OK);
        snprintf(name, sizeof name, "%s/%s", path, file.name);
        uint8_t *bytes = made_slurp(name, &nbytes);
        if (sizes) DEMAND(nbytes == file.file_nbytes);
        free(bytes);
    }
    DEMAND(made_entries(path) == nfiles * (1 + sidecars) + (index_nbytes > 0));
    if (index_nbytes) {
        char name[5000];
        snprintf(name, sizeof name, "%s/%s.safetensors.index.json", path, set->stem ? set->stem : "model");
        uint8_t *text = made_slurp(name, &nbytes);
        DEMAND(nbytes == index_nbytes && memcmp(text, index, nbytes) == 0);
        free(text);
    }
    heft_layout_free(layout);
}

static void check_set(const made_all *all, const char *path, const made_save *save, const heft_set_options *set) {
    heft_archive *archive;
    heft_report *report;
    heft_open_options options = made_options();
    DEMAND(heft_archive_open(path, &options, &archive, NULL) == HEFT_OK);
    made_compare(all, archive, NULL, 0);
    made_compare_metadata(save, archive, true);
    bool index = set->index == HEFT_SET_INDEX_ALWAYS || (!set->index && heft_archive_file_count(archive) > 1);
    DEMAND((heft_archive_index_path(archive) != NULL) == (index && all->n));
    heft_archive_unref(archive);
    DEMAND(heft_check(path, &options, &report, NULL) == HEFT_OK);
    DEMAND(heft_report_count_of(report, HEFT_SEVERITY_ERROR) == 0);
    heft_report_free(report);
}

/* A set of one tensor and other cuts, which the other takes the place of. */
static void make_old(const char *path, const heft_set_options *set) {
    static const uint8_t bytes[300];
    static const int64_t shape[] = {300};
    const heft_save_item items[] = {{.name = "old.a", .data = bytes, .shape = shape, .rank = 1, .dtype = HEFT_U8},
                                    {.name = "old.b", .data = bytes, .shape = shape, .rank = 1, .dtype = HEFT_I8}};
    const heft_save_options options = {.struct_size = sizeof options, .no_sync = true};
    heft_set_options one = {.struct_size = sizeof one, .stem = set->stem, .ceiling_nbytes = 300, .create_dir = true};
    DEMAND(heft_save_set(path, items, 2, &options, &one, NULL, NULL) == HEFT_OK);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    made_bytes in = {data, size};
    made_all all;
    made_save save;
    heft_save_item items[MADE_MOST];
    char path[4400];
    uint8_t kind = made_take(&in);
    int way = kind % SET_WAYS;
    bool replaces = kind & 128;
    bool fine = made_save_options(&save, &in, NULL);
    heft_set_options set = set_options(&in);
    fine = made_init(&all, &in, MADE_MOST) && fine;
    made_save_items(&all, items);
    save.options.saturate = all.saturate;
    save.options.allow_inexact = all.allow_inexact;
    save.options.overwrite = kind & 64;
    memcpy(path, made_path("set"), sizeof path);
    made_empty(made_folder);
    if (replaces) make_old(path, &set);
    heft_error err;
    heft_save_stats stats;
    bool takes = fine && made_legal(&save.options) && (!all.unfit || way == SET_DECLARED);
    if (way == SET_DECLARED || way == SET_STREAM) takes = takes && made_legal_streamed(&save.options, way == SET_STREAM);
    takes = takes && (replaces ? save.options.overwrite && !set.publish : set.create_dir || set.publish);
    heft_status status = save_by(way, &all, path, items, &save.options, &set, &in, &stats, &err);
    made_expect(status, takes, &err);
    if (status == HEFT_OK) {
        check_files(&all, path, items, &save.options, &set, way != SET_STREAM);
        check_set(&all, path, &save, &set);
    } else {
        DEMAND(err.status == status && err.message[0] && status != HEFT_IO && status != HEFT_CORRUPT);
        DEMAND(made_entries(made_folder) <= 1);
        if (replaces) DEMAND(made_entries(path) == 3); /* the old one, and nothing else */
    }
    made_free(&all);
    return 0;
}
