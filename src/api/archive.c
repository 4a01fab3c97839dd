/* api: opening checkpoints, and what an archive holds. */
#include "api/api.h"

#include "base/error.h"
#include "base/options.h"
#include "base/os.h"
#include "base/text.h"

#include <string.h>

/* Each costs a look-up of every name. */
#define ARCHIVE_OVERLAYS_MOST ((size_t)1 << 16)

/* ---- opening ---- */

heft_status heft__open_job_make(const heft_open_options *options, heft__open_job *job, heft_error *err) {
    memset(job, 0, sizeof *job);
    job->started = heft__os_seconds();
    heft_status status = heft__options_copy(&job->options, sizeof job->options, options, "heft_open_options", err);
    if (status) return status;
    heft_open_options *o = &job->options;
    const char *wrong = NULL;
    if (o->lenient & ~HEFT_LENIENT_ALL)
        wrong = "lenient has an unknown bit";
    else if (o->index > HEFT_INDEX_IGNORE)
        wrong = "index is no known mode";
    else if (o->links > HEFT_LINKS_BENEATH)
        wrong = "links is no known mode";
    else if (!heft__allocator_from(o->allocator, &job->alloc))
        wrong = "the allocator lacks a function";
    else if (o->noverlays && (!o->overlays || o->noverlays > ARCHIVE_OVERLAYS_MOST))
        wrong = "overlays is NULL, or there are more than 65,536";
    else if (o->variant && (!*o->variant || strlen(o->variant) > 100 || strchr(o->variant, '/')))
        wrong = "variant is no part of a file name";
    else if ((o->void1 && heft_dtype_bits(o->void1) != 8) || (o->void2 && heft_dtype_bits(o->void2) != 16))
        wrong = "void1 is no dtype of 8 bits, or void2 none of 16";
    for (size_t i = 0; i < o->noverlays && !wrong; i++)
        if (!o->overlays[i]) wrong = "an overlay is NULL";
    if (wrong) return heft__fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL, "heft_open_options: %s", wrong);
    if (!o->max_header_nbytes) o->max_header_nbytes = HEFT__MAX_HEADER_NBYTES;
    o->allocator = &job->alloc;
    return HEFT_OK;
}

/* The end that all ways of opening share. */
static heft_status archive_finish(heft_status status, heft__resolution *resolution, const heft__open_job *job,
                                  heft_archive **out, heft_error *err) {
    if (status) return status;
    status = heft__open(resolution, job, out, err);
    heft__resolution_free(resolution);
    if (status == HEFT_OK) (*out)->open_seconds = heft__os_seconds() - job->started;
    return status;
}

heft_status heft_archive_open(const char *path, const heft_open_options *options, heft_archive **out, heft_error *err) {
    heft__open_job job;
    heft__resolution resolution;
    if (!out) return heft__fail_null(err, "out");
    *out = NULL;
    if (!path) return heft__fail_null(err, "path");
    heft_status status = heft__open_job_make(options, &job, err);
    if (status) return status;
    return archive_finish(heft__resolve(path, &job, &resolution, err), &resolution, &job, out, err);
}

heft_status heft_archive_open_files(const char *const *paths, size_t npaths, const heft_open_options *options,
                                    heft_archive **out, heft_error *err) {
    heft__open_job job;
    heft__resolution resolution;
    if (!out) return heft__fail_null(err, "out");
    *out = NULL;
    if (!paths || !npaths || npaths >= UINT32_MAX)
        return heft__fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL, "a list of files needs at least one path");
    for (size_t i = 0; i < npaths; i++)
        if (!paths[i]) return heft__fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL, "path %zu is NULL", i);
    heft_status status = heft__open_job_make(options, &job, err);
    if (status) return status;
    return archive_finish(heft__resolve_files(paths, npaths, &job, &resolution, err), &resolution, &job, out, err);
}

heft_status heft_archive_open_source(heft_source *source, const heft_open_options *options, heft_archive **out,
                                     heft_error *err) {
    heft__open_job job;
    heft__resolution resolution;
    if (!out) return heft__fail_null(err, "out");
    *out = NULL;
    if (!source) return heft__fail_null(err, "source");
    heft_status status = heft__open_job_make(options, &job, err);
    if (status) return status;
    return archive_finish(heft__resolve_source(source, &job, &resolution, err), &resolution, &job, out, err);
}

heft_archive *heft_archive_ref(heft_archive *archive) {
    if (archive) atomic_fetch_add_explicit(&archive->refs, 1, memory_order_relaxed);
    return archive;
}

void heft_archive_unref(heft_archive *archive) {
    if (!archive || atomic_fetch_sub_explicit(&archive->refs, 1, memory_order_acq_rel) != 1) return;
    heft__archive_free(archive);
}

/* ---- tensors ---- */

uint64_t heft_archive_count(const heft_archive *archive) {
    return archive->ntensors;
}

heft_status heft_archive_get(const heft_archive *archive, uint64_t id, heft_tensor *out, heft_error *err) {
    memset(out, 0, sizeof *out);
    if (id >= archive->ntensors)
        return heft__fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL, "tensor id %llu of an archive of %llu",
                          (unsigned long long)id, (unsigned long long)archive->ntensors);
    heft__archive_tensor(archive, id, out);
    return HEFT_OK;
}

heft_status heft_archive_find(const heft_archive *archive, const char *name, size_t name_len, uint64_t *id,
                              heft_error *err) {
    *id = 0;
    if (!name) return heft__fail_null(err, "name");
    size_t len = name_len == SIZE_MAX ? strlen(name) : name_len;
    uint64_t found = heft__archive_lookup(archive, name, len);
    if (found == HEFT_NONE) return heft__archive_fail_name(archive, name, len, err);
    *id = found;
    return HEFT_OK;
}

heft_status heft_archive_order(const heft_archive *archive, heft_order order, const uint64_t **ids, heft_error *err) {
    *ids = NULL;
    if (order > HEFT_ORDER_FILE)
        return heft__fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL, "%u is no order of listing", order);
    return heft__archive_order(archive, order, ids, err);
}

/* ---- selecting ---- */

/* What a buffer of ids needs to free itself: it may outlive the archive. */
typedef struct archive_ids {
    heft_allocator alloc;
    uint64_t capacity;
    uint64_t ids[];
} archive_ids;

static void archive_release_ids(heft_buffer *buffer) {
    archive_ids *block = buffer->owner;
    heft_allocator alloc = block->alloc;
    heft__free(&alloc, block, sizeof *block + block->capacity * sizeof *block->ids);
}

heft_status heft_archive_select(const heft_archive *archive, const heft_selection *selection, heft_buffer *out,
                                uint64_t *nids, heft_error *err) {
    memset(out, 0, sizeof *out);
    *nids = 0;
    heft_selection copy;
    heft_status status = heft__options_copy(&copy, sizeof copy, selection, "heft_selection", err);
    if (status) return status;
    if (copy.order > HEFT_ORDER_FILE)
        return heft__fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL, "%u is no order of listing", copy.order);
    uint64_t nbytes = sizeof(archive_ids) + archive->ntensors * sizeof(uint64_t), n = 0;
    archive_ids *block = heft__alloc(&archive->alloc, nbytes);
    if (!block) return heft__fail_memory(err, nbytes);
    block->alloc = archive->alloc;
    block->capacity = archive->ntensors;
    status = heft__archive_select(archive, &copy, block->ids, &n, err);
    if (status) {
        heft__free(&archive->alloc, block, nbytes);
        return status;
    }
    *out = (heft_buffer){
        .data = block->ids, .nbytes = n * sizeof *block->ids, .release = archive_release_ids, .owner = block};
    *nids = n;
    return HEFT_OK;
}

heft_status heft_glob_match(const char *glob, const char *name, size_t name_len, bool *matches, heft_error *err) {
    *matches = false;
    if (!glob) return heft__fail_null(err, "glob");
    if (!name) return heft__fail_null(err, "name");
    heft_status status = heft__glob_refuse("glob", glob, err);
    if (status) return status;
    *matches = heft__glob_match(glob, strlen(glob), name, name_len == SIZE_MAX ? strlen(name) : name_len);
    return HEFT_OK;
}

/* ---- files and metadata ---- */

uint32_t heft_archive_file_count(const heft_archive *archive) {
    return archive->nfiles;
}

heft_status heft_archive_file(const heft_archive *archive, uint32_t file, heft_file *out, heft_error *err) {
    memset(out, 0, sizeof *out);
    if (file >= archive->nfiles)
        return heft__fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL, "file %u of an archive of %u", file,
                          archive->nfiles);
    const heft__listing *listing = archive->files[file];
    out->path = heft_source_label(listing->source);
    out->format = listing->format;
    out->nbytes = heft__listing_file_nbytes(listing);
    out->header_nbytes = listing->data_start;
    out->ntensors = listing->nvisible;
    out->nfillers = listing->nfillers;
    out->nwithheld = listing->nwithheld;
    out->nreplaced = listing->nreplaced;
    out->overlay = listing->overlay;
    out->has_metadata = listing->has_metadata;
    return HEFT_OK;
}

heft_source *heft_archive_source(const heft_archive *archive, uint32_t file) {
    return file < archive->nfiles ? archive->files[file]->source : NULL;
}

const char *heft_archive_path(const heft_archive *archive) {
    return archive->path;
}

const char *heft_archive_index_path(const heft_archive *archive) {
    return archive->index_path;
}

const char *heft_archive_resolution(const heft_archive *archive) {
    return archive->resolution;
}

static const heft_pair *archive_pairs(const heft_archive *archive, uint32_t file, uint64_t *n) {
    *n = 0;
    if (file != HEFT_MERGED && file >= archive->nfiles) return NULL;
    *n = file == HEFT_MERGED ? archive->nmetadata : archive->files[file]->nmetadata;
    return file == HEFT_MERGED ? archive->metadata : archive->files[file]->metadata;
}

uint64_t heft_archive_metadata_count(const heft_archive *archive, uint32_t file) {
    uint64_t n;
    archive_pairs(archive, file, &n);
    return n;
}

heft_status heft_archive_metadata(const heft_archive *archive, uint32_t file, uint64_t index, heft_pair *out,
                                  heft_error *err) {
    uint64_t n;
    const heft_pair *pairs = archive_pairs(archive, file, &n);
    memset(out, 0, sizeof *out);
    if (index >= n)
        return heft__fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL, "metadata pair %llu of %llu",
                          (unsigned long long)index, (unsigned long long)n);
    *out = pairs[index];
    return HEFT_OK;
}

heft_status heft_archive_metadata_find(const heft_archive *archive, uint32_t file, const char *key, size_t key_len,
                                       heft_pair *out, heft_error *err) {
    uint64_t low = 0, high;
    const heft_pair *pairs = archive_pairs(archive, file, &high);
    memset(out, 0, sizeof *out);
    if (!key) return heft__fail_null(err, "key");
    size_t len = key_len == SIZE_MAX ? strlen(key) : key_len;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        int order = heft__bytes_compare(pairs[middle].key, pairs[middle].key_len, key, len);
        if (order == 0) {
            *out = pairs[middle];
            return HEFT_OK;
        }
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    char path[200], text[200];
    heft__escape(path, sizeof path, archive->path, strlen(archive->path));
    heft__escape(text, sizeof text, key, len);
    heft__fail(err, HEFT_NOT_FOUND, HEFT_FAULT_CALL, "%s: no metadata key \"%s\"", path, text);
    heft__error_file(err, archive->path);
    return HEFT_NOT_FOUND;
}

const heft_report *heft_archive_warnings(const heft_archive *archive) {
    return archive->warnings;
}
