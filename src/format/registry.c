/* format: the formats of this build, which one a file is, and what all emitters share. */
#include "format/format.h"

#include "base/error.h"
#include "base/text.h"

#include <stdio.h>
#include <string.h>

const heft__format *const heft__formats[] = {&heft__format_safetensors, &heft__format_npy, &heft__format_npz,
                                             &heft__format_idx, NULL};

heft_status heft__scan(heft_source *source, const heft__scan_options *options, heft__listing *listing,
                       heft_error *err) {
    uint8_t head[16] = {0};
    uint64_t size = heft_source_size(source);
    size_t nhead = size < sizeof head ? (size_t)size : sizeof head;
    heft_status status = HEFT_OK;
    if (options->header) memcpy(head, options->header, nhead < options->header_nbytes ? nhead : options->header_nbytes);
    else if (nhead) status = heft_source_read(source, 0, nhead, head, err);
    if (status) return status;
    listing->source = heft_source_ref(source);
    if (options->header) return heft__format_safetensors.scan(head, nhead, options, listing, err);
    const heft__format *best = &heft__format_safetensors;
    int best_score = 0;
    for (const heft__format *const *format = heft__formats; *format; format++) {
        int score = (*format)->probe(head, nhead, size);
        if (score <= best_score) continue;
        best = *format;
        best_score = score;
    }
    return best->scan(head, nhead, options, listing, err);
}

heft_status heft__scan_end(heft_status status, heft_error *local, const heft__scan_options *options,
                           heft__listing *listing, heft_error *err) {
    if (!status) return HEFT_OK;
    if (status == HEFT_CORRUPT || status == HEFT_UNSUPPORTED || status == HEFT_LIMIT) {
        heft__name_file(local, listing->source);
        if (options->collect) {
            listing->fatal = heft__alloc(&listing->alloc, sizeof *local);
            if (!listing->fatal) return heft__fail_memory(err, sizeof *local);
            *listing->fatal = *local;
            return HEFT_OK;
        }
    }
    if (err) *err = *local;
    return local->status;
}

heft_status heft__scan_extra(heft__listing *listing, const heft__scan_options *options, uint64_t offset,
                             uint64_t nbytes, heft_error *err) {
    bool lenient = options->lenient & HEFT_LENIENT_TRAILING_BYTES;
    heft__fault fault = {.kind = HEFT_FAULT_TRAILING_BYTES,
                         .severity = (uint8_t)(lenient ? HEFT_SEVERITY_WARNING : HEFT_SEVERITY_ERROR),
                         .status = (uint8_t)-HEFT_CORRUPT,
                         .entry = UINT32_MAX,
                         .other = HEFT__CONTENT_UNKNOWN,
                         .offset = offset,
                         .value = nbytes};
    if (!lenient && !options->collect) {
        heft__fault_describe(&fault, listing, err);
        return HEFT_CORRUPT;
    }
    if (!heft__faults_add(&listing->faults, &listing->alloc, fault)) return heft__fail_memory(err, sizeof fault);
    return HEFT_OK;
}

heft_status heft__scan_opaque(heft__listing *listing, heft_error *err) {
    heft__fault fault = {.kind = HEFT_FAULT_UNKNOWN_DTYPE,
                         .severity = (uint8_t)HEFT_SEVERITY_WARNING,
                         .status = (uint8_t)-HEFT_UNSUPPORTED,
                         .entry = (uint32_t)listing->nentries - 1,
                         .other = UINT32_MAX,
                         .offset = HEFT_NONE};
    if (listing->entries[listing->nentries - 1].dtype != HEFT_DTYPE_NONE) return HEFT_OK;
    if (!heft__faults_add(&listing->faults, &listing->alloc, fault)) return heft__fail_memory(err, sizeof fault);
    return HEFT_OK;
}

void heft__name_file(heft_error *err, const heft_source *source) {
    char label[200], text[sizeof err->message + sizeof label + 2];
    const char *path = heft_source_label(source);
    if (err->file[0]) return;
    heft__escape(label, sizeof label, path, strlen(path));
    snprintf(text, sizeof text, "%s: %s", label, err->message);
    heft__copy_text(err->message, sizeof err->message, text, strlen(text));
    heft__error_file(err, path);
}

/* ---- emitting ---- */

static const heft__emitter *const registry_emitters[] = {&heft__emitter_safetensors, &heft__emitter_npy, &heft__emitter_npz};

const heft__emitter *heft__emitter_find(const char *name) {
    for (size_t i = 0; i < sizeof registry_emitters / sizeof *registry_emitters; i++)
        if (strcmp(name, registry_emitters[i]->name) == 0) return registry_emitters[i];
    return NULL;
}

void heft__emit_init(heft__emit *emit, const heft_allocator *alloc) {
    memset(emit, 0, sizeof *emit);
    emit->alloc = *alloc;
    heft__arena_init(&emit->arena, alloc);
}

void heft__emit_free(heft__emit *emit) {
    for (uint64_t i = 0; i < emit->npieces; i++)
        heft__free(&emit->alloc, emit->pieces[i].bytes, emit->pieces[i].nbytes);
    heft__free(&emit->alloc, emit->pieces, emit->pieces_capacity * sizeof *emit->pieces);
    heft__free(&emit->alloc, emit->entries, emit->capacity * sizeof *emit->entries);
    heft__arena_free(&emit->arena);
}

uint8_t *heft__emit_add_piece(heft__emit *emit, uint64_t offset, uint64_t nbytes) {
    if (!heft__grow(&emit->alloc, (void **)&emit->pieces, &emit->pieces_capacity, emit->npieces, sizeof *emit->pieces,
                    4))
        return NULL;
    uint8_t *bytes = heft__alloc(&emit->alloc, nbytes);
    if (bytes) emit->pieces[emit->npieces++] = (heft__emit_piece){offset, nbytes, bytes};
    return bytes;
}
