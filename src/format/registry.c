/* format: the formats of this build, which one a file is, and what all emitters share. */
#include "format/format.h"

#include "base/error.h"
#include "base/text.h"

#include <stdio.h>
#include <string.h>

const heft__format *const heft__formats[] = {&heft__format_safetensors, NULL};

heft_status heft__scan(heft_source *source, const heft__scan_options *options, heft__listing *listing,
                       heft_error *err) {
    uint8_t head[16];
    uint64_t size = heft_source_size(source);
    size_t nhead = size < sizeof head ? (size_t)size : sizeof head;
    heft_status status = nhead ? heft_source_read(source, 0, nhead, head, err) : HEFT_OK;
    if (status) return status;
    listing->source = heft_source_ref(source);
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

static const heft__emitter *const registry_emitters[] = {&heft__emitter_safetensors};

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
    if (!heft__grow(&emit->alloc, (void **)&emit->pieces, &emit->pieces_capacity, emit->npieces, sizeof *emit->pieces, 4))
        return NULL;
    uint8_t *bytes = heft__alloc(&emit->alloc, nbytes);
    if (bytes) emit->pieces[emit->npieces++] = (heft__emit_piece){offset, nbytes, bytes};
    return bytes;
}
