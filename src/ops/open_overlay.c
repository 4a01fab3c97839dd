/* ops: files that are laid over a checkpoint: opening them, and hiding what they replace. */
#include "base/error.h"
#include "ops/ops.h"

#include <string.h>

uint32_t heft__resolution_files(const heft__resolution *r) {
    return r->source ? 1 : r->nnames;
}

uint32_t heft__resolution_all(const heft__resolution *r) {
    return heft__resolution_files(r) + (r->beside != NULL) + r->noverlays;
}

heft_status heft__overlay_source(const heft__resolution *r, uint32_t number, bool beneath, heft_source **out,
                                 heft_error *err) {
    if (r->beside && number-- == 0)
        return heft__directory_source(r->directory, r->beside, beneath, r->beneath_levels, out, err);
    return heft_source_open_file(r->overlays[number], out, err);
}

static bool overlay_same_form(const heft__entry *a, const heft__entry *b) {
    return a->dtype == b->dtype && a->rank == b->rank &&
           (a->rank == 0 || memcmp(a->shape, b->shape, a->rank * sizeof *a->shape) == 0);
}

/* The tensor of a name in the last overlay that has one, of those behind `file`. */
static const heft__entry *overlay_winner(heft__listing **listings, uint32_t file, uint32_t files, uint32_t all,
                                         const heft__entry *entry, uint32_t *winner) {
    for (uint32_t i = all; i > files && i > file + 1; i--) {
        const heft__listing *listing = listings[i - 1];
        uint32_t number = listing->fatal ? UINT32_MAX : heft__listing_find(listing, entry->name, entry->name_len);
        if (number == UINT32_MAX || (listing->entries[number].flags & HEFT__ENTRY_FILLER)) continue;
        *winner = i - 1;
        return &listing->entries[number];
    }
    return NULL;
}

static void overlay_report(heft_report *report, heft__listing **listings, uint32_t file, uint32_t number,
                           uint32_t winner, const heft__entry *won) {
    const heft__entry *lost = &listings[file]->entries[number];
    bool same = overlay_same_form(lost, won);
    heft__fault fault = {.kind = HEFT_FAULT_REPLACED,
                         .severity = (uint8_t)(same ? HEFT_SEVERITY_NOTE : HEFT_SEVERITY_WARNING),
                         .status = (uint8_t)-HEFT_MISMATCH,
                         .file = file,
                         .entry = number,
                         .other = UINT32_MAX,
                         .offset = heft__entry_offset(listings[file], lost)};
    fault.value = (uint64_t)winner << 32 | (uint64_t)(won - listings[winner]->entries);
    heft__report_add(report, fault);
}

void heft__overlay_apply(heft_report *report, heft__listing **listings, uint32_t files, uint32_t all) {
    for (uint32_t i = files; i < all; i++) listings[i]->overlay = true;
    for (uint32_t file = 0; file + 1 < all; file++) {
        heft__listing *listing = listings[file];
        for (uint64_t e = 0; e < listing->nentries && !listing->fatal; e++) {
            uint32_t winner;
            heft__entry *entry = &listing->entries[e];
            if (entry->flags & (HEFT__ENTRY_HIDDEN | HEFT__ENTRY_FILLER)) continue;
            const heft__entry *won = overlay_winner(listings, file, files, all, entry, &winner);
            if (!won) continue;
            entry->flags |= HEFT__ENTRY_HIDDEN;
            entry->marks |= HEFT__ENTRY_REPLACED;
            listing->nreplaced++;
            overlay_report(report, listings, file, (uint32_t)e, winner, won);
        }
    }
}
