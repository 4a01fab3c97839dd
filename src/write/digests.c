/* write: digests of tensors as they are written: where the values of chunks are kept, and the texts that are made of them. */
#include "base/error.h"
#include "base/json_write.h"
#include "base/sort.h"
#include "write/write.h"

#include <stdlib.h>
#include <string.h>

static const char *digests_name(const void *ctx, uint32_t index, uint64_t *len) {
    const heft__emit_entry *entry = (const heft__emit_entry *)ctx + index;
    *len = entry->name_len;
    return entry->name;
}

bool heft__digests_object(const heft__emit *emit, const uint8_t (*values)[16], heft__json_out *json) {
    heft__sort_key *keys = heft__alloc(&emit->alloc, emit->nentries * sizeof *keys);
    uint64_t n = 0;
    if (!keys) return false;
    for (uint64_t i = 0; i < emit->nentries; i++)
        if (emit->entries[i].item != UINT32_MAX) keys[n++] = (heft__sort_key){.index = (uint32_t)i};
    heft__sort_texts(keys, n, digests_name, emit->entries);
    heft__json_out_object(json);
    for (uint64_t i = 0; i < n; i++) {
        const heft__emit_entry *entry = &emit->entries[keys[i].index];
        static const uint8_t zeros[16];
        char text[HEFT__DIGEST_TEXT_MOST];
        heft__digest_text(values ? values[keys[i].index] : zeros, 16, text);
        heft__json_out_key(json, entry->name, entry->name_len);
        heft__json_out_string(json, text, SIZE_MAX);
    }
    heft__json_out_object_end(json);
    heft__free(&emit->alloc, keys, emit->nentries * sizeof *keys);
    return true;
}

heft_status heft__digests_prepare(heft__layout *layout, uint32_t want, heft_error *err) {
    heft__digests *digests = &layout->digests;
    digests->want = want;
    if (!want) return HEFT_OK;
    if (!heft__xxh3(false, err)) return HEFT_UNSUPPORTED;
    layout->emit.late = want & (HEFT_DIGEST_TENSORS | HEFT_DIGEST_DATA);
    heft__json_out_init(&digests->text, &layout->emit.alloc, 0, false);
    if ((want & HEFT_DIGEST_TENSORS) && (!heft__digests_object(&layout->emit, NULL, &digests->text) || digests->text.failed))
        return heft__fail_memory(err, HEFT_NONE);
    memset(digests->data, '0', sizeof digests->data);
    return HEFT_OK;
}

heft_status heft__digests_allocate(heft__layout *layout, heft_error *err) {
    heft__digests *digests = &layout->digests;
    const heft__emit *emit = &layout->emit;
    if (!digests->want) return HEFT_OK;
    digests->first = heft__alloc(&emit->alloc, emit->nentries * sizeof *digests->first);
    digests->tensors = heft__alloc(&emit->alloc, emit->nentries * sizeof *digests->tensors);
    for (uint64_t i = 0; digests->first && i < emit->nentries; i++) {
        digests->first[i] = digests->nchunks;
        if (emit->entries[i].item != UINT32_MAX)
            digests->nchunks += (emit->entries[i].nbytes + HEFT__DIGEST_CHUNK - 1) / HEFT__DIGEST_CHUNK;
    }
    digests->nentries = emit->nentries;
    digests->chunks = heft__alloc(&emit->alloc, digests->nchunks * sizeof *digests->chunks);
    return digests->first && digests->tensors && digests->chunks ? HEFT_OK : heft__fail_memory(err, HEFT_NONE);
}

static int digests_compare(const void *a, const void *b) {
    return memcmp(a, b, 16);
}

heft_status heft__digests_of_all(const heft_allocator *alloc, const uint8_t (*digests)[16], uint64_t n, uint8_t out[16],
                                 heft_error *err) {
    uint8_t(*sorted)[16] = heft__alloc(alloc, n * sizeof *sorted);
    if (!sorted) return heft__fail_memory(err, n * sizeof *sorted);
    if (n) memcpy(sorted, digests, (size_t)n * sizeof *sorted);
    if (n) qsort(sorted, (size_t)n, sizeof *sorted, digests_compare); /* neither names nor places have a say */
    heft_status status = heft__digest_bytes(HEFT__DIGEST_XXH3, sorted, (size_t)n * sizeof *sorted, out, err);
    heft__free(alloc, sorted, n * sizeof *sorted);
    return status;
}

static heft_status digests_whole(heft__layout *layout, heft_error *err) {
    heft__digests *digests = &layout->digests;
    const heft__emit *emit = &layout->emit;
    uint64_t n = 0;
    uint8_t(*tensors)[16] = heft__alloc(&emit->alloc, emit->nentries * sizeof *tensors), whole[16];
    if (!tensors) return heft__fail_memory(err, emit->nentries * sizeof *tensors);
    for (uint64_t i = 0; i < emit->nentries; i++)
        if (emit->entries[i].item != UINT32_MAX) memcpy(tensors[n++], digests->tensors[i], 16);
    heft_status status = heft__digests_of_all(&emit->alloc, (const uint8_t(*)[16])tensors, n, whole, err);
    if (status == HEFT_OK) {
        char text[HEFT__DIGEST_TEXT_MOST];
        heft__digest_text(whole, 16, text);
        memcpy(digests->data, text, sizeof digests->data);
    }
    heft__free(&emit->alloc, tensors, emit->nentries * sizeof *tensors);
    return status;
}

heft_status heft__digests_finish(heft__layout *layout, heft_error *err) {
    heft__digests *digests = &layout->digests;
    const heft__emit *emit = &layout->emit;
    if (!digests->want) return HEFT_OK;
    heft_status status = HEFT_OK;
    for (uint64_t i = 0; i < emit->nentries && status == HEFT_OK; i++) {
        uint64_t end = i + 1 < emit->nentries ? digests->first[i + 1] : digests->nchunks;
        status = heft__digest_bytes(HEFT__DIGEST_XXH3, digests->chunks + digests->first[i],
                                    (size_t)(end - digests->first[i]) * 16, digests->tensors[i], err);
    }
    if (status == HEFT_OK) status = digests_whole(layout, err);
    if (status != HEFT_OK || !(digests->want & HEFT_DIGEST_TENSORS)) return status;
    heft__json_out json;
    heft__json_out_init(&json, &emit->alloc, 0, false);
    if (!heft__digests_object(emit, (const uint8_t(*)[16])digests->tensors, &json) || json.failed)
        status = heft__fail_memory(err, HEFT_NONE);
    else memcpy(digests->text.text, json.text, (size_t)json.len); /* as long as the text of zeros */
    heft__json_out_free(&json);
    return status;
}

heft_status heft__digests_sidecar(const heft__emit *emit, const uint8_t (*tensors)[16], const char *data,
                                  heft__json_out *json, heft_error *err) {
    heft__json_out_init(json, &emit->alloc, 2, false);
    heft__json_out_object(json);
    heft__json_out_key(json, "algorithm", SIZE_MAX);
    heft__json_out_string(json, "xxh3-128, 4 MiB chunks", SIZE_MAX);
    heft__json_out_key(json, "file_nbytes", SIZE_MAX);
    heft__json_out_u64(json, emit->file_nbytes);
    if (data) {
        heft__json_out_key(json, "data_xxh3", SIZE_MAX);
        heft__json_out_string(json, data, 32);
    }
    heft__json_out_key(json, "tensors", SIZE_MAX);
    bool ok = heft__digests_object(emit, tensors, json);
    heft__json_out_object_end(json);
    return ok && !json->failed ? HEFT_OK : heft__fail_memory(err, HEFT_NONE);
}

void heft__digests_free(heft__layout *layout) {
    heft__digests *digests = &layout->digests;
    const heft_allocator *alloc = &layout->emit.alloc;
    if (digests->want) heft__json_out_free(&digests->text);
    heft__free(alloc, digests->first, digests->nentries * sizeof *digests->first);
    heft__free(alloc, digests->tensors, digests->nentries * sizeof *digests->tensors);
    heft__free(alloc, digests->chunks, digests->nchunks * sizeof *digests->chunks);
    memset(digests, 0, sizeof *digests);
}
