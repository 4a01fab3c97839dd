/* ops: tensors that a save takes over as they are, against the digests that their files have: new ones would hide damage. */
#include "base/error.h"
#include "ops/digest_verify.h"

#include <string.h>

/* Whose tensor an entry is. */
typedef struct kept_tensor {
    const heft_archive *archive; /* NULL: nobody's, or it has been looked at */
    uint64_t id;
} kept_tensor;

/* The tensor of which an item is written byte for byte, as its digest is made: not converted, not cut, not in another order. */
static kept_tensor kept_of(const heft_save_item *item, const heft__emit_entry *entry) {
    const heft_view *view = item->view;
    kept_tensor kept = {view ? view->archive : item->archive, view ? view->id : item->id}, none = {0};
    uint32_t file;
    if (!kept.archive) return none;
    const heft__entry *source = heft__archive_entry(kept.archive, kept.id, &file);
    if (source->dtype != entry->dtype || source->end - source->begin != entry->nbytes) return none;
    if (!view) return kept;
    bool whole = view->dtype == entry->dtype && view->offset == 0 && heft_view_is_contiguous(view);
    return whole && !(source->flags & HEFT__ENTRY_FORTRAN) ? kept : none;
}

/* Those of one archive. Digests that are none, for which a new one is what is advised, say nothing. */
static heft_status kept_compare(const heft_archive *archive, const heft_allocator *alloc, const uint64_t *ids, uint64_t nids,
                                const uint8_t (*digests)[16], heft_error *err) {
    heft_error local;
    heft_status status = heft__archive_compare(archive, alloc, ids, nids, digests, &local);
    if (status == HEFT_OK || status == HEFT_NOT_FOUND || local.fault == HEFT_FAULT_BAD_DIGESTS) return HEFT_OK;
    if (err) *err = local;
    return status;
}

heft_status heft__save_compare_kept(const heft__save_job *job, heft_error *err) {
    const heft__emit *emit = &job->layout.emit;
    const heft_allocator *alloc = &job->alloc;
    uint64_t n = emit->nentries;
    if (!job->layout.digests.want) return HEFT_OK;
    kept_tensor *kept = heft__alloc_zero(alloc, n * sizeof *kept);
    uint64_t *ids = heft__alloc(alloc, n * sizeof *ids);
    uint8_t(*digests)[16] = heft__alloc(alloc, n * sizeof *digests);
    heft_status status = kept && ids && digests ? HEFT_OK : heft__fail_memory(err, n * sizeof *digests);
    for (uint64_t i = 0; i < n && status == HEFT_OK; i++)
        if (emit->entries[i].item != UINT32_MAX) kept[i] = kept_of(&job->items[emit->entries[i].item], &emit->entries[i]);
    for (uint64_t i = 0; i < n && status == HEFT_OK; i++) {
        const heft_archive *archive = kept[i].archive;
        uint64_t nids = 0;
        for (uint64_t k = i; k < n && archive; k++) {
            if (kept[k].archive != archive) continue;
            memcpy(digests[nids], job->layout.digests.tensors[k], 16);
            ids[nids++] = kept[k].id;
            kept[k].archive = NULL;
        }
        if (archive) status = kept_compare(archive, alloc, ids, nids, (const uint8_t(*)[16])digests, err);
    }
    heft__free(alloc, kept, n * sizeof *kept);
    heft__free(alloc, ids, n * sizeof *ids);
    heft__free(alloc, digests, n * sizeof *digests);
    return status;
}
