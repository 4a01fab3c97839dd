/* ops: bytes that stay as they are in a file are shared with it, or copied inside the kernel, where the file system can. */
#include "base/error.h"
#include "facts/facts.h"
#include "ops/save.h"

#include <string.h>

/* Less is copied by the pool: a call has to be worth it. */
#define SHARE_LEAST (UINT64_C(64) << 10)

static bool share_can(const heft__part *part) {
    return part->kind == HEFT__PART_RANGE && part->from == part->to && !part->packed && heft__source_base(part->source)->fd >= 0;
}

/* Parts [i, end) that lie in the file as they lie in one source. */
static uint64_t share_stretch(const heft__part *parts, uint64_t nparts, uint64_t i) {
    uint64_t end = i + 1;
    while (end < nparts && share_can(&parts[end]) && parts[end].source == parts[i].source &&
           parts[end].offset == parts[end - 1].offset + parts[end - 1].nbytes &&
           parts[end].source_offset == parts[end - 1].source_offset + parts[end - 1].nbytes)
        end++;
    return end;
}

/* On a local disk the kernel's copy is a plain one by one thread, slower than the pool; a server does it without the network. */
static bool share_is_remote(heft_source *source) {
    heft__source_facts facts;
    heft__facts_source(source, NULL, 0, &facts);
    return facts.fs_class == HEFT__FS_NETWORK || facts.fs_class == HEFT__FS_USER_SPACE;
}

/* File systems that can let two files have blocks in common. */
static bool share_is_sharing(heft_source *source) {
    static const char *const names[] = {"xfs", "btrfs", "bcachefs", "ocfs2"};
    heft__source_facts facts;
    heft__facts_source(source, NULL, 0, &facts);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(facts.fs_name, names[i]) == 0) return true;
    return false;
}

static heft_source *share_source(const heft_save_item *item) {
    const heft_archive *archive = item->view ? item->view->archive : item->archive;
    uint32_t file;
    if (!archive) return NULL;
    (void)heft__archive_entry(archive, item->view ? item->view->id : item->id, &file);
    return archive->files[file]->source;
}

bool heft__save_can_share(const heft_save_item *items, uint64_t nitems, const char *path) {
    const heft_source *last = NULL;
    uint64_t device;
    if (!path || !heft__target_device(path, &device)) return false;
    for (uint64_t i = 0; i < nitems; i++) {
        heft_source *source = share_source(&items[i]);
        if (!source || source == last) continue;
        last = source;
        source = heft__source_base(source);
        if (source->identity.known && source->identity.device == device && share_is_sharing(source)) return true;
    }
    return false;
}

/* Where a part lies in the file that it comes from, less where it lies in the one that is written, modulo blocks. */
static uint64_t share_distance(const heft__part *part) {
    return (part->source_offset + part->source->window_offset - part->offset) % HEFT__TARGET_BLOCK;
}

uint64_t heft__save_shift(const heft__part *parts, uint64_t nparts) {
    enum { STEP = 8, STEPS = HEFT__TARGET_BLOCK / STEP }; /* headers are padded to multiples of 8 */
    uint64_t sums[STEPS] = {0}, best = 0;
    for (uint64_t i = 0, end; i < nparts; i = end) {
        end = i + 1;
        if (!share_can(&parts[i])) continue;
        end = share_stretch(parts, nparts, i);
        uint64_t nbytes = parts[end - 1].offset + parts[end - 1].nbytes - parts[i].offset, distance = share_distance(&parts[i]);
        if (nbytes >= SHARE_LEAST && distance % STEP == 0) sums[distance / STEP] += nbytes;
    }
    for (uint64_t i = 1; i < STEPS; i++)
        if (sums[i] > sums[best]) best = i;
    return best * STEP;
}

uint64_t heft__save_shareable(const heft__part *parts, uint64_t nparts) {
    uint64_t all = 0;
    for (uint64_t i = 0, end; i < nparts; i = end) {
        end = i + 1;
        if (!share_can(&parts[i])) continue;
        end = share_stretch(parts, nparts, i);
        uint64_t stop = parts[end - 1].offset + parts[end - 1].nbytes;
        if (share_distance(&parts[i]) || stop - parts[i].offset < SHARE_LEAST) continue;
        all += stop / HEFT__TARGET_BLOCK * HEFT__TARGET_BLOCK;
        all -= (parts[i].offset + HEFT__TARGET_BLOCK - 1) / HEFT__TARGET_BLOCK * HEFT__TARGET_BLOCK;
    }
    return all;
}

/* Space for what is left to be written. Not that of the whole file: XFS wants as much free as it is asked for, shared or not. */
static heft_status share_reserve(heft__save_run *run, const heft__part *parts, uint64_t nparts, heft_error *err) {
    heft__target *target = run->sink.target;
    heft_status status = HEFT_OK;
    for (uint64_t i = 0, end; i < nparts && status == HEFT_OK && target->unreserved; i = end) {
        for (end = i + 1; end < nparts && parts[end].done == parts[i].done; end++) {}
        uint64_t stop = parts[end - 1].offset + parts[end - 1].nbytes;
        if (!parts[i].done) status = heft__target_reserve(target, parts[i].offset, stop - parts[i].offset, err);
    }
    return status;
}

heft_status heft__save_share(heft__save_run *run, heft__part *parts, uint64_t nparts, heft_error *err) {
    if (run->no_share || !run->sink.target || run->sink.compare) return HEFT_OK;
    for (uint64_t i = 0, end; i < nparts; i = end) {
        end = i + 1;
        if (!share_can(&parts[i])) continue;
        end = share_stretch(parts, nparts, i);
        uint64_t nbytes = parts[end - 1].offset + parts[end - 1].nbytes - parts[i].offset, shared = 0;
        if (nbytes < SHARE_LEAST) continue;
        heft_source *source = parts[i].source;
        uint64_t from = parts[i].source_offset + source->window_offset;
        uint64_t done = heft__target_transfer(run->sink.target, parts[i].offset, heft__source_base(source)->fd, from, nbytes,
                                              share_is_remote(source), &shared);
        if (done == 0) continue;
        run->shared_nbytes += shared;
        run->kernel_nbytes += done - shared;
        uint64_t stop = parts[i].offset + done;
        for (uint64_t k = i; k < end && parts[k].offset + parts[k].nbytes <= stop; k++) {
            parts[k].done = true; /* one that is not whole is written again */
            atomic_fetch_add(&run->done_nbytes, parts[k].nbytes);
        }
        if (run->progress && run->progress(run->progress_ctx, atomic_load(&run->done_nbytes), run->total_nbytes))
            return heft__fail(err, HEFT_CANCELLED, HEFT_FAULT_CALL, "the progress callback asked to stop");
    }
    return share_reserve(run, parts, nparts, err);
}
