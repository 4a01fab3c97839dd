/* format: .npz, a zip archive of .npy arrays. Stored arrays are read and mapped in place; compressed ones are decoded
 * when they are read, as ranges behind the end of the file. */
#include "format/npy.h"
#include "zip/zip.h"

#include "base/checked.h"
#include "base/error.h"

#include <stdio.h>
#include <string.h>

typedef unsigned long long npz_number; /* what %llu takes */

typedef struct npz_scan {
    const heft__scan_options *options;
    heft__listing *listing;
    heft__zip zip;
    heft__packed *packed;
    uint64_t npacked, packed_capacity;
    uint8_t *start; /* of a decoded member */
    uint64_t start_capacity;
    uint64_t cursor;  /* where the next decoded range goes */
    uint64_t decoded; /* bytes of all compressed members */
    uint64_t narrays;
    heft_error first; /* under `collect`: of `nfaults` members that are at fault */
    uint64_t nfaults;
    heft_error *err;
} npz_scan;

static bool npz_is_array(const heft__zip_member *member) {
    return member->name_len >= 4 && memcmp(member->name + member->name_len - 4, ".npy", 4) == 0;
}

/* Puts the member before the message of an error about its array, and its offset into the file. */
static heft_status npz_fail_member(npz_scan *s, const heft__zip_member *member) {
    heft_error e = *s->err;
    uint64_t at = e.offset;
    heft__zip_fail(s->err, e.status, e.fault, member, "%s", e.message);
    if (member->method != HEFT__ZIP_STORED || at == HEFT_NONE || !heft__add_u64(at, member->data, &at))
        at = member->data;
    heft__error_at(s->err, at, e.expected, e.found);
    heft__error_tensor(s->err, member->name, member->name_len - 4);
    return e.status;
}

/* The first bytes of a member, decoded: valid until the next call. */
static heft_status npz_start(npz_scan *s, const heft__zip_member *member, uint64_t nbytes, const uint8_t **out) {
    if (member->method == HEFT__ZIP_STORED) return heft__zip_peek(&s->zip, member->data, nbytes, out, s->err);
    if (nbytes > s->start_capacity) {
        heft__free(&s->zip.alloc, s->start, s->start_capacity);
        s->start_capacity = 0;
        s->start = heft__alloc(&s->zip.alloc, nbytes);
        if (!s->start) return heft__fail_memory(s->err, nbytes);
        s->start_capacity = nbytes;
    }
    *out = s->start;
    return heft__zip_decode_start(&s->zip, member, s->start, nbytes, s->err);
}

/* The header of an array. Short ones are had at once. */
static heft_status npz_header(npz_scan *s, const heft__zip_member *member, heft__npy *npy, uint64_t *extra) {
    enum { GUESS = 256 };
    const uint8_t *text;
    uint64_t nhead = member->nbytes < GUESS ? member->nbytes : GUESS, n;
    heft_status status = npz_start(s, member, nhead, &text);
    if (status) return status;
    status = heft__npy_length(text, (size_t)nhead, member->nbytes, s->options, &n, s->err);
    if (status) return npz_fail_member(s, member);
    if (n > nhead) status = npz_start(s, member, n, &text);
    if (status) return status;
    status = heft__npy_parse(text, n, member->nbytes, s->options, npy, extra, s->err);
    return status ? npz_fail_member(s, member) : HEFT_OK;
}

/* The array's place behind the file; each has one of its own, also without bytes, so that order and names stay clear.
 */
static heft_status npz_add_packed(npz_scan *s, const heft__zip_member *member, const heft__npy *npy,
                                  heft__entry *entry) {
    enum { STEP = 64 };
    uint64_t most = s->options->max_decoded_nbytes ? s->options->max_decoded_nbytes : HEFT__ZIP_DECODED_MAX;
    if (!heft__add_u64(s->decoded, member->nbytes, &s->decoded) || s->decoded > most) {
        heft__fail(s->err, HEFT_LIMIT, HEFT_FAULT_CALLER_LIMIT,
                   "its compressed members decode to more than %llu bytes (option max_decoded_nbytes)",
                   (npz_number)most);
        heft__error_at(s->err, member->local, most, HEFT_NONE);
        return HEFT_LIMIT;
    }
    if (!heft__grow(&s->zip.alloc, (void **)&s->packed, &s->packed_capacity, s->npacked, sizeof *s->packed, 8))
        return heft__fail_memory(s->err, sizeof *s->packed);
    entry->begin = s->cursor;
    s->packed[s->npacked++] = (heft__packed){.offset = s->cursor,
                                             .nbytes = npy->nbytes,
                                             .skip = npy->header_nbytes,
                                             .data = member->data,
                                             .packed_nbytes = member->packed_nbytes,
                                             .decoded_nbytes = member->nbytes,
                                             .crc32 = member->crc32};
    if (!heft__add_u64(s->cursor, npy->nbytes + STEP, &s->cursor) || !heft__align_u64(s->cursor, STEP, &s->cursor) ||
        s->cursor > INT64_MAX)
        return heft__fail(s->err, HEFT_LIMIT, HEFT_FAULT_CALLER_LIMIT, "its compressed members are too large");
    entry->flags |= HEFT__ENTRY_PACKED;
    return HEFT_OK;
}

static heft_status npz_add(npz_scan *s, heft__zip_member *member) {
    heft__npy npy;
    uint64_t extra = 0;
    heft_status status = heft__zip_check_method(member, s->err);
    if (!status) status = heft__zip_locate(&s->zip, member, s->err);
    if (!status) status = npz_header(s, member, &npy, &extra);
    if (status) return status;
    uint32_t len = member->name_len - 4;
    heft__entry *entry = heft__listing_add(s->listing, member->name, len, npy.dtype, npy.rank, npy.shape);
    if (!entry) return heft__fail_memory(s->err, HEFT_NONE);
    entry->flags = npy.flags;
    entry->begin = member->data + npy.header_nbytes;
    if (member->method != HEFT__ZIP_STORED) status = npz_add_packed(s, member, &npy, entry);
    if (status) {
        s->listing->nentries--;
        return status;
    }
    entry->end = entry->begin + npy.nbytes;
    status = heft__scan_opaque(s->listing, s->err);
    if (status) return status;
    if (!extra) return HEFT_OK;
    uint64_t at = member->method == HEFT__ZIP_STORED ? entry->end : member->data;
    return heft__scan_extra(s->listing, s->options, at, extra, s->err);
}

/* Under `collect` a damaged member does not hide the next: the first is told, the others are counted. */
static heft_status npz_judge(npz_scan *s, heft_status status) {
    bool verdict = status == HEFT_CORRUPT || status == HEFT_UNSUPPORTED || status == HEFT_LIMIT;
    if (!status || !verdict || !s->options->collect) return status;
    if (s->nfaults++ == 0) s->first = *s->err;
    return HEFT_OK;
}

/* What is no array is left out, and said. */
static heft_status npz_skip(npz_scan *s, const heft__zip_member *member) {
    heft__fault fault = {.kind = HEFT_FAULT_MEMBER_SKIPPED,
                         .severity = (uint8_t)HEFT_SEVERITY_WARNING,
                         .status = (uint8_t)-HEFT_UNSUPPORTED,
                         .entry = UINT32_MAX,
                         .other = member->name_len,
                         .offset = member->local,
                         .value = (uint64_t)(member->name - s->zip.directory)};
    if (!heft__faults_add(&s->listing->faults, &s->listing->alloc, fault))
        return heft__fail_memory(s->err, sizeof fault);
    return HEFT_OK;
}

/* Arrays in the order in which their bytes are found: stored ones, then decoded ones. */
static heft_status npz_members(npz_scan *s) {
    heft_status status = HEFT_OK;
    for (uint64_t i = 0; i < s->zip.nmembers; i++) s->narrays += npz_is_array(&s->zip.members[i]);
    if (s->narrays == 0 && s->zip.nmembers)
        return heft__fail(s->err, HEFT_CORRUPT, HEFT_FAULT_ZIP, "a zip archive without a NumPy array in it");
    for (int stored = 1; stored >= 0; stored--) {
        for (uint64_t i = 0; i < s->zip.nmembers && !status; i++) {
            heft__zip_member *member = &s->zip.members[i];
            if ((member->method == HEFT__ZIP_STORED) != (stored != 0)) continue;
            status = npz_is_array(member) ? npz_judge(s, npz_add(s, member)) : npz_skip(s, member);
        }
    }
    return status;
}

/* The directory becomes the listing's header, in which names end with NUL where ".npy" stood. */
static heft_status npz_finish(npz_scan *s) {
    heft__listing *l = s->listing;
    uint32_t twice;
    heft_status status = HEFT_OK;
    for (uint64_t i = 0; i < s->zip.nmembers; i++) {
        heft__zip_member *member = &s->zip.members[i];
        if (npz_is_array(member)) member->name[member->name_len - 4] = 0;
    }
    if (!heft__listing_index(l, &twice)) return heft__fail_memory(s->err, HEFT_NONE);
    if (s->npacked) {
        heft_source *both;
        l->file_nbytes = heft_source_size(l->source);
        status = heft__unpack_source(l->source, s->packed, s->npacked, &l->alloc, &both, s->err);
        if (status) return status;
        heft_source_unref(l->source);
        l->source = both;
    }
    if (s->nfaults) {
        *s->err = s->first;
        uint64_t more = s->first.more + s->nfaults - 1;
        s->err->more = more < UINT32_MAX ? (uint32_t)more : UINT32_MAX;
        status = s->first.status;
    }
    return status;
}

static int npz_probe(const uint8_t *head, size_t nhead, uint64_t size) {
    (void)size;
    if (nhead < 4 || head[0] != 'P' || head[1] != 'K') return 0;
    return (head[2] == 3 && head[3] == 4) || (head[2] == 5 && head[3] == 6) ? 100 : 0;
}

static heft_status npz_run(npz_scan *s) {
    heft__listing *l = s->listing;
    uint64_t most = s->options->max_header_nbytes ? s->options->max_header_nbytes : HEFT__ZIP_DIRECTORY_MAX;
    heft_status status = heft__zip_open(l->source, most, &l->alloc, &s->zip, s->err);
    if (status) return status;
    s->cursor = heft_source_size(l->source);
    heft__align_u64(s->cursor, 64, &s->cursor);
    l->scattered = true;
    l->header = s->zip.directory; /* the listing frees it, also after a failure */
    l->header_nbytes = s->zip.directory_nbytes;
    status = npz_members(s);
    if (!status) status = npz_finish(s);
    s->zip.directory = NULL;
    heft__free(&l->alloc, s->packed, s->packed_capacity * sizeof *s->packed);
    heft__free(&l->alloc, s->start, s->start_capacity);
    heft__zip_close(&s->zip);
    return status;
}

static heft_status npz_scan_file(const uint8_t *head, size_t nhead, const heft__scan_options *options,
                                 heft__listing *listing, heft_error *err) {
    heft_error local;
    npz_scan s = {.options = options, .listing = listing, .err = &local};
    (void)head, (void)nhead;
    listing->format = "npz";
    heft_status status = npz_run(&s);
    /* Without an array in sight it is another kind of zip archive, or what is left of one. */
    if (status && s.narrays == 0 && (local.fault == HEFT_FAULT_ZIP || local.fault == HEFT_FAULT_TRUNCATED))
        heft__diagnose(listing->source, &listing->alloc, &local);
    return heft__scan_end(status ? local.status : HEFT_OK, &local, options, listing, err);
}

const heft__format heft__format_npz = {"npz", npz_probe, npz_scan_file};
