/* ops: opening a file whose edit in place was interrupted: the new header is taken from the journal, and nothing is written. */
#include "base/error.h"
#include "base/os_target.h"
#include "ops/journal.h"

#include <stdio.h>
#include <string.h>

/* What a warning says: `value` of the records (catalog/faults.c). */
enum {
    LOOK_DAMAGED = 0,
    LOOK_FOREIGN = 1,
    LOOK_UNREADABLE = 2,
    LOOK_UNFIT = 3,
    LOOK_USED = 0,
    LOOK_UNDONE = 1
};

typedef struct look {
    heft_allocator alloc;
    heft__journal journal;
    uint8_t *bytes; /* of the journal, and of the header of the file */
    uint64_t nbytes;
    bool there;
    heft_fault fault; /* of what is there */
    uint64_t value;
} look;

/* The journal of a file; *out NULL: there is none. It lies beside the real file, so that all links to that find it. */
static heft_status look_open(const heft__journal_place *place, heft_source **out, heft_error *err) {
    char real[HEFT__SOURCE_PATH_MAX], name[HEFT__TARGET_NAME_MAX + 1], path[HEFT__SOURCE_PATH_MAX + sizeof name];
    *out = NULL;
    if (!heft__source_follow(place->directory, place->name, real)) return HEFT_OK;
    const char *slash = strrchr(real, '/'), *base = slash ? slash + 1 : real;
    if (strlen(base) > HEFT__TARGET_NAME_MAX) return HEFT_OK;
    heft__target_journal_name(name, base);
    snprintf(path, sizeof path, "%.*s%s", (int)(base - real), real, name);
    heft_status status = place->directory && real[0] != '/'
                             ? heft__directory_source(place->directory, path, place->beneath, place->beneath_levels, out, err)
                             : heft_source_open_file(path, out, err);
    return status == HEFT_NOT_FOUND ? HEFT_OK : status;
}

static void look_say(look *l, heft_fault fault, uint64_t value) {
    l->there = true;
    l->fault = fault;
    l->value = value;
}

/* Reads the journal and, behind it, the header that the file has now. */
static heft_status look_read(look *l, heft_source *file, heft_source *source, uint64_t most, heft_error *err) {
    uint64_t size = heft_source_size(source), nbytes;
    const char *why;
    look_say(l, HEFT_FAULT_JOURNAL_IGNORED, LOOK_DAMAGED);
    /* Neither of its headers is longer than the file, or than what may be read. */
    if (most > heft_source_size(file)) most = heft_source_size(file);
    if (size > heft__journal_nbytes(most) || !heft__add_u64(size, size / 2, &nbytes)) return HEFT_OK;
    l->bytes = heft__alloc(&l->alloc, nbytes);
    if (!l->bytes) return heft__fail_memory(err, nbytes);
    l->nbytes = nbytes;
    heft_error ignored;
    if (heft_source_read(source, 0, size, l->bytes, &ignored)) {
        look_say(l, HEFT_FAULT_JOURNAL_IGNORED, LOOK_UNREADABLE);
        return HEFT_OK;
    }
    if (!heft__journal_parse(l->bytes, size, &l->journal, &why)) return HEFT_OK;
    look_say(l, HEFT_FAULT_JOURNAL_IGNORED, LOOK_FOREIGN);
    if (l->journal.file_nbytes != heft_source_size(file)) return HEFT_OK;
    heft_status status = heft_source_read(file, 0, l->journal.header_nbytes, l->bytes + size, err);
    if (status) return status;
    switch (heft__journal_judge(&l->journal, file->identity.size, file->identity.inode, file->identity.mtime_ns,
                                l->bytes + size, heft__journal_is_written(&l->journal))) {
    case HEFT__JOURNAL_FITS: look_say(l, HEFT_FAULT_EDIT_INTERRUPTED, LOOK_USED); break;
    case HEFT__JOURNAL_UNDONE: look_say(l, HEFT_FAULT_EDIT_INTERRUPTED, LOOK_UNDONE); break;
    case HEFT__JOURNAL_FOREIGN: break;
    }
    return HEFT_OK;
}

/* Fails for what has nothing to do with the journal: memory, and reading the file itself. */
static heft_status look_for(look *l, heft_source *file, const heft__journal_place *place, uint64_t most, heft_error *err) {
    heft_source *source = NULL;
    heft_error local;
    heft_status status = look_open(place, &source, &local);
    if (status == HEFT_OUT_OF_MEMORY) {
        if (err) *err = local;
        return status;
    }
    if (status != HEFT_OK) look_say(l, HEFT_FAULT_JOURNAL_IGNORED, LOOK_UNREADABLE);
    if (status != HEFT_OK || !source) return HEFT_OK;
    status = look_read(l, file, source, most, err);
    heft_source_unref(source);
    return status;
}

/* The file with the new header: true if *listing is that of it now. */
static heft_status look_scan(look *l, heft_source *source, const heft__scan_options *options, heft__listing **listing,
                             bool *taken, heft_error *err) {
    heft__scan_options again = *options;
    heft_error error;
    again.header = l->journal.after;
    again.header_nbytes = l->journal.header_nbytes;
    *taken = false;
    heft__listing *other = heft__listing_new(&l->alloc);
    if (!other) return heft__fail_memory(err, sizeof *other);
    heft_status status = heft__scan(source, &again, other, &error);
    if (status == HEFT_OK && !other->fatal) {
        heft__listing_delete(*listing);
        *listing = other;
        *taken = true;
        return HEFT_OK;
    }
    heft__listing_delete(other);
    if (status == HEFT_OUT_OF_MEMORY && err) *err = error;
    return status == HEFT_OUT_OF_MEMORY ? status : HEFT_OK;
}

heft_status heft__journal_rescan(heft_source *source, const heft__journal_place *place, const heft__scan_options *options,
                                 heft__listing **listing, heft_status status, heft_error *err) {
    look l = {.alloc = (*listing)->alloc};
    uint64_t most = options->max_header_nbytes > UINT64_MAX - 8 ? UINT64_MAX : options->max_header_nbytes + 8;
    heft_error error;
    bool taken = false;
    heft_status looked = look_for(&l, source, place, most, &error);
    if (looked == HEFT_OK && l.fault == HEFT_FAULT_EDIT_INTERRUPTED && l.value == LOOK_USED) {
        looked = look_scan(&l, source, options, listing, &taken, &error);
        if (!taken) look_say(&l, HEFT_FAULT_JOURNAL_IGNORED, LOOK_UNFIT);
    }
    heft__free(&l.alloc, l.bytes, l.nbytes);
    if (looked != HEFT_OK) {
        if (status == HEFT_OK && err) *err = error;
        return status == HEFT_OK ? looked : status;
    }
    if (taken) status = HEFT_OK;
    if (!l.there || status != HEFT_OK) return status;
    heft__fault fault = {.kind = (uint16_t)l.fault,
                         .severity = (uint8_t)HEFT_SEVERITY_WARNING,
                         .status = (uint8_t)-HEFT_MISMATCH,
                         .entry = UINT32_MAX,
                         .other = UINT32_MAX,
                         .offset = HEFT_NONE,
                         .value = l.value};
    return heft__faults_add(&(*listing)->faults, &l.alloc, fault) ? HEFT_OK : heft__fail_memory(err, sizeof fault);
}
