/* api: opening through a cached copy whose tensors are aligned. */
#include "base/error.h"
#include "base/text.h"
#include "digest/digest.h"
#include "ops/save.h"

#include <stdio.h>
#include <string.h>

enum { CACHED_KEYS = 3, CACHED_ALIGN = 256, CACHED_READ = 1 << 16 };
static const char cached_prefix[] = "heft.cache.";

/* What a copy is of: keys and values of its metadata. */
typedef struct cached_mark {
    char values[CACHED_KEYS][40];
    heft_pair pairs[CACHED_KEYS];
} cached_mark;

static heft_status cached_header(heft_archive *archive, char text[40], heft_error *err) {
    heft__listing *listing = archive->files[0];
    uint8_t block[CACHED_READ], value[16];
    heft__digest digest;
    heft_status status = heft__digest_init(&digest, HEFT__DIGEST_XXH3, err);
    if (status != HEFT_OK) return status;
    for (uint64_t at = 0, n; at < listing->data_start && status == HEFT_OK; at += n) {
        n = listing->data_start - at < sizeof block ? listing->data_start - at : sizeof block;
        status = heft__source_read_all(listing->source, at, n, block, NULL, err);
        if (status == HEFT_OK) heft__digest_update(&digest, block, (size_t)n);
    }
    heft__digest_final(&digest, value);
    heft__digest_text(value, sizeof value, text);
    return status;
}

static heft_status cached_describe(heft_archive *archive, cached_mark *mark, heft_error *err) {
    static const char *const keys[CACHED_KEYS] = {"heft.cache.source_nbytes", "heft.cache.source_mtime_ns",
                                                  "heft.cache.source_header_xxh3"};
    const heft_source *source = archive->files[0]->source;
    snprintf(mark->values[0], sizeof mark->values[0], "%llu", (unsigned long long)source->identity.size);
    snprintf(mark->values[1], sizeof mark->values[1], "%lld", (long long)source->identity.mtime_ns);
    heft_status status = cached_header(archive, mark->values[2], err);
    for (int i = 0; i < CACHED_KEYS; i++)
        mark->pairs[i] = (heft_pair){keys[i], strlen(keys[i]), mark->values[i], strlen(mark->values[i])};
    return status;
}

static bool cached_is_aligned(const heft_archive *archive, uint64_t align) {
    for (uint64_t i = 0; i < archive->ntensors; i++) {
        uint32_t file;
        const heft__entry *entry = heft__archive_entry(archive, i, &file);
        if (entry->begin != entry->end && heft__entry_offset(archive->files[file], entry) % align != 0) return false;
    }
    return true;
}

/* <cache_dir>/<base name>.<32 digits of the path and the alignment>.safetensors */
static heft_status cached_path(const char *path, const char *cache_dir, uint64_t align, char out[HEFT__TARGET_PATH_MAX],
                               heft_error *err) {
    char real[HEFT__TARGET_PATH_MAX + 32], text[HEFT__DIGEST_TEXT_MOST];
    uint8_t value[16];
    if (!heft__target_real_path(path, real)) return heft__fail(err, HEFT_IO, HEFT_FAULT_READ_ERROR, "the path cannot be resolved");
    const char *base = strrchr(real, '/') + 1;
    size_t len = strlen(real), room = HEFT__TARGET_NAME_MAX - 32 - strlen("..safetensors");
    int digits = snprintf(real + len + 1, sizeof real - len - 1, "%llu", (unsigned long long)align);
    heft_status status = heft__digest_bytes(HEFT__DIGEST_XXH3, real, len + 1 + (size_t)digits, value, err);
    if (status != HEFT_OK) return status;
    heft__digest_text(value, sizeof value, text);
    int n = snprintf(out, HEFT__TARGET_PATH_MAX, "%s/%.*s.%s.safetensors", cache_dir, (int)room, base, text);
    return n > 0 && n < HEFT__TARGET_PATH_MAX
               ? HEFT_OK
               : heft__fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL, "the path of the cache is too long");
}

/* Opens the copy if it is one of the source as it is. *out NULL: it is not there, or not whole, or of another one. */
static heft_status cached_open(const char *copy, const cached_mark *mark, uint64_t align, const heft_open_options *options,
                               heft_archive **out, heft_error *err) {
    heft_archive *archive;
    heft_error local;
    *out = NULL;
    heft_status status = heft_archive_open(copy, options, &archive, &local);
    if (status == HEFT_OUT_OF_MEMORY && err) *err = local;
    if (status != HEFT_OK) return status == HEFT_OUT_OF_MEMORY ? status : HEFT_OK;
    bool fresh = archive->nfiles == 1 && cached_is_aligned(archive, align);
    for (int i = 0; fresh && i < CACHED_KEYS; i++) {
        heft_pair pair;
        const heft_pair *want = &mark->pairs[i];
        fresh = heft_archive_metadata_find(archive, 0, want->key, want->key_len, &pair, NULL) == HEFT_OK &&
                pair.value_len == want->value_len && memcmp(pair.value, want->value, pair.value_len) == 0;
    }
    if (fresh) *out = archive;
    else heft_archive_unref(archive);
    return HEFT_OK;
}

/* Takes the keys of the copy out of its metadata, before anybody has seen the archive. */
static void cached_hide(heft_archive *archive) {
    heft__listing *listing = archive->files[0];
    uint64_t n = 0;
    for (uint64_t i = 0; i < listing->nmetadata; i++) {
        const heft_pair *pair = &listing->metadata[i];
        bool own = pair->key_len >= sizeof cached_prefix - 1 && memcmp(pair->key, cached_prefix, sizeof cached_prefix - 1) == 0;
        if (!own) listing->metadata[n++] = *pair;
    }
    listing->nmetadata = n;
    if (archive->metadata == listing->metadata) archive->nmetadata = n;
}

static heft_status cached_build(heft_archive *source, const char *copy, const cached_mark *mark, uint64_t align,
                                heft_error *err) {
    const heft__listing *listing = source->files[0];
    uint64_t npairs = listing->nmetadata + CACHED_KEYS;
    heft_save_item *items = heft__alloc_zero(&source->alloc, source->ntensors * sizeof *items);
    heft_pair *pairs = heft__alloc(&source->alloc, npairs * sizeof *pairs);
    heft_status status = items && pairs ? HEFT_OK : heft__fail_memory(err, HEFT_NONE);
    for (uint64_t i = 0; status == HEFT_OK && i < source->ntensors; i++) {
        uint32_t file;
        const heft__entry *entry = heft__archive_entry(source, i, &file);
        items[i] = (heft_save_item){.name = entry->name, .name_len = entry->name_len, .archive = source, .id = i};
    }
    if (status == HEFT_OK) {
        memcpy(pairs, mark->pairs, sizeof mark->pairs);
        if (listing->nmetadata) memcpy(pairs + CACHED_KEYS, listing->metadata, listing->nmetadata * sizeof *pairs);
        heft_save_options options = {.struct_size = sizeof options,
                                     .metadata = pairs,
                                     .nmetadata = npairs,
                                     .overwrite = true,
                                     .align = align,
                                     .max_header_nbytes = HEFT_NONE,
                                     .allocator = &source->alloc};
        status = heft_save(copy, items, source->ntensors, &options, NULL, err);
    }
    heft__free(&source->alloc, items, source->ntensors * sizeof *items);
    heft__free(&source->alloc, pairs, npairs * sizeof *pairs);
    return status;
}

heft_status heft_open_aligned(const char *path, const char *cache_dir, uint64_t min_alignment,
                              const heft_open_options *options, heft_archive **out, heft_aligned *how, heft_error *err) {
    char copy[HEFT__TARGET_PATH_MAX];
    cached_mark mark;
    heft_archive *source, *archive;
    heft_aligned state = HEFT_ALIGNED_SOURCE;
    uint64_t align = min_alignment ? min_alignment : CACHED_ALIGN;
    if (how) *how = HEFT_ALIGNED_SOURCE;
    if (!out || !cache_dir) return heft__fail_null(err, out ? "cache_dir" : "out");
    *out = NULL;
    if (align < 16 || align > 65536 || (align & (align - 1)) != 0)
        return heft__fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL, "min_alignment is no power of two from 16 to 65,536");
    heft_status status = heft_archive_open(path, options, &source, err);
    if (status != HEFT_OK) return status;
    archive = source;
    if (source->nfiles == 1 && !cached_is_aligned(source, align)) {
        status = cached_path(path, cache_dir, align, copy, err);
        if (status == HEFT_OK) status = cached_describe(source, &mark, err);
        heft_error failure;
        archive = NULL;
        if (status == HEFT_OK) status = cached_open(copy, &mark, align, options, &archive, err);
        state = HEFT_ALIGNED_CACHED;
        if (status == HEFT_OK && !archive) {
            state = HEFT_ALIGNED_BUILT;
            if (cached_build(source, copy, &mark, align, &failure) == HEFT_OK)
                status = cached_open(copy, &mark, align, options, &archive, err);
            else heft__report_add_error(source->warnings, HEFT_SEVERITY_WARNING, UINT32_MAX, &failure);
        }
        if (archive) cached_hide(archive);
        else state = HEFT_ALIGNED_UNWRITTEN;
    }
    if (status == HEFT_OK && !archive) archive = source;
    if (archive != source) heft_archive_unref(source);
    if (status != HEFT_OK) return status;
    *out = archive;
    if (how) *how = state;
    return HEFT_OK;
}
