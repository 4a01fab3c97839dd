/* format: the formats of this build, and which one a file is. */
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
