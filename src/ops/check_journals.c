/* ops: journals of edits in place whose file is not there under its name: the file that each belongs to is looked for. */
#include "base/error.h"
#include "base/os_target.h"
#include "base/text.h"
#include "ops/journal.h"

#include <stdio.h>
#include <string.h>

#define ORPHAN_MOST (UINT64_C(1) << 30) /* longer journals are not written */

static const char orphan_start[] = ".heft-", orphan_end[] = ".journal";

bool heft__journal_is(const char *name) {
    size_t len = strlen(name), ends = sizeof orphan_start + sizeof orphan_end - 2;
    return len > ends && strncmp(name, orphan_start, sizeof orphan_start - 1) == 0 &&
           strcmp(name + len - (sizeof orphan_end - 1), orphan_end) == 0;
}

void heft__journal_base(const char *name, char out[HEFT__JOURNAL_NAME]) {
    size_t len = strlen(name) - (sizeof orphan_start + sizeof orphan_end - 2);
    if (len >= HEFT__JOURNAL_NAME) len = HEFT__JOURNAL_NAME - 1;
    memcpy(out, name + sizeof orphan_start - 1, len);
    out[len] = 0;
}

typedef struct orphan {
    const heft__resolution *r;
    heft_allocator alloc;
    heft__journal journal;
    uint8_t *bytes;
    uint64_t nbytes;
    bool whole;
    char base[HEFT__JOURNAL_NAME]; /* the file that it is named for */
} orphan;

/* Reads a journal as far as it can be read. False: out of memory. */
static bool orphan_read(orphan *o, const char *name) {
    heft_source *source;
    const char *why;
    heft__journal_base(name, o->base);
    if (heft__directory_source(o->r->directory, name, false, 0, &source, NULL) != HEFT_OK) return true;
    uint64_t nbytes = heft_source_size(source);
    if (nbytes <= ORPHAN_MOST) {
        o->bytes = heft__alloc(&o->alloc, nbytes);
        o->nbytes = nbytes;
        o->whole = o->bytes && heft_source_read(source, 0, nbytes, o->bytes, NULL) == HEFT_OK &&
                   heft__journal_parse(o->bytes, nbytes, &o->journal, &why);
    }
    heft_source_unref(source);
    if (o->whole) memcpy(o->base, o->journal.name, sizeof o->base);
    return nbytes > ORPHAN_MOST || o->bytes;
}

/* Whether a file of the folder is the one that was edited. False in *memory: it could not be looked at. */
static bool orphan_fits(const orphan *o, const char *name, bool *memory) {
    const heft__journal *journal = &o->journal;
    heft_source *source;
    if (heft__directory_source(o->r->directory, name, false, 0, &source, NULL) != HEFT_OK) return false;
    const heft__identity *id = &source->identity;
    uint8_t *header = heft__alloc(&o->alloc, journal->header_nbytes);
    if (!header) *memory = false;
    bool fits = header && heft_source_read(source, 0, journal->header_nbytes, header, NULL) == HEFT_OK &&
                heft__journal_judge(journal, id->size, id->inode, id->mtime_ns, header, false) != HEFT__JOURNAL_FOREIGN;
    heft__free(&o->alloc, header, journal->header_nbytes);
    heft_source_unref(source);
    return fits;
}

static void orphan_report(const orphan *o, const char *journal, const char *file, heft_report *report) {
    char path[200], name[200], base[200], now[200] = "";
    heft_error error;
    heft__escape(path, sizeof path, o->r->path, strlen(o->r->path));
    heft__escape(name, sizeof name, journal, strlen(journal));
    heft__escape(base, sizeof base, o->base, strlen(o->base));
    if (file) heft__escape(now, sizeof now, file, strlen(file));
    heft__fail(&error, HEFT_MISMATCH, HEFT_FAULT_JOURNAL_ORPHAN,
               "%s: \"%s\" is the journal of an edit in place of \"%s\" that did not end, and %s%s%s", path, name, base,
               file ? "that file is \"" : "no such file is there", now, file ? "\" now, whose header may be torn" : "");
    heft__error_file(&error, o->r->path);
    heft__report_add_error(report, HEFT_SEVERITY_WARNING, UINT32_MAX, &error);
}

void heft__check_journals(const heft__resolution *r, heft_report *report) {
    for (uint64_t i = 0; i < r->nentries; i++) {
        orphan o = {.r = r, .alloc = r->alloc};
        const char *file = NULL;
        bool memory = true;
        if (r->entries[i].kind != HEFT__FILE_REGULAR || !heft__journal_is(r->entries[i].name)) continue;
        memory = orphan_read(&o, r->entries[i].name);
        bool there = !memory || heft__folder_find(r->entries, r->nentries, o.base);
        for (uint64_t k = 0; !there && o.whole && !file && k < r->nentries; k++)
            if (r->entries[k].kind == HEFT__FILE_REGULAR && r->entries[k].nbytes == o.journal.file_nbytes &&
                orphan_fits(&o, r->entries[k].name, &memory))
                file = r->entries[k].name;
        if (!there) orphan_report(&o, r->entries[i].name, file, report);
        if (!memory) report->failed = true;
        heft__free(&o.alloc, o.bytes, o.nbytes);
    }
}
