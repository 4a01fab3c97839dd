/* fuzz: digests that anybody may have written: a sidecar, and the metadata of a file. The first byte says which. */
#include "heft/heft.h"
#include "ops/digest_verify.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A file of two tensors, whose metadata heft.xxh3 and heft.data_xxh3 are the text, if it is any. */
static heft_archive *sidecar_archive(const char *text, size_t nbytes, heft_buffer *file) {
    static const uint8_t bytes[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    static const int64_t shape[] = {4};
    const heft_save_item items[] = {{.name = "a", .data = bytes, .shape = shape, .rank = 1, .dtype = HEFT_U8},
                                    {.name = "b", .data = bytes + 4, .shape = shape, .rank = 1, .dtype = HEFT_U8}};
    const heft_pair pairs[] = {{"heft.data_xxh3", SIZE_MAX, text, nbytes}, {"heft.xxh3", SIZE_MAX, text, nbytes}};
    heft_save_options options = {.struct_size = sizeof options, .metadata = text ? pairs : NULL, .nmetadata = text ? 2 : 0};
    heft_source *source;
    heft_archive *archive = NULL;
    if (heft_save_buffer(items, 2, &options, file, NULL, NULL) != HEFT_OK) return NULL; /* not UTF-8 */
    if (heft_source_open_memory(file->data, file->nbytes, "memory", NULL, NULL, &source, NULL) != HEFT_OK) abort();
    if (heft_archive_open_source(source, NULL, &archive, NULL) != HEFT_OK) abort();
    heft_source_unref(source);
    return archive;
}

static void sidecar_text(const heft_archive *archive, const char *text, size_t nbytes) {
    heft__known known;
    heft_error err;
    if (heft__known_make(&known, archive, NULL, &heft__default_allocator, NULL) != HEFT_OK) abort();
    heft_status status = heft__known_sidecar(&known, archive, 0, "memory", text, nbytes, &err);
    bool refused = status == HEFT_CORRUPT || status == HEFT_UNSUPPORTED; /* the latter: an algorithm of later */
    if (status != HEFT_OK && (!refused || err.fault != HEFT_FAULT_BAD_DIGESTS || strncmp(err.message, "memory: ", 8) != 0)) abort();
    for (int i = 0; i < 2; i++)
        if (known.by[i] && known.by[i] != HEFT_VERIFIED_BY_SIDECAR) abort();
    heft__known_free(&known);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    heft_buffer file = {0};
    heft_verified tensors[2];
    if (size < 1) return 0;
    const char *text = (const char *)data + 1;
    heft_archive *archive = sidecar_archive(data[0] & 1 ? text : NULL, size - 1, &file);
    if (archive && data[0] & 1) (void)heft_archive_verify(archive, NULL, 0, NULL, tensors, NULL, NULL);
    else if (archive) sidecar_text(archive, text, size - 1);
    heft_archive_unref(archive);
    heft_buffer_release(&file);
    return 0;
}
