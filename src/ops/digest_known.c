/* ops: digests to compare with: in the metadata of files, and in sidecars beside them. All of it may be anybody's text. */
#include "base/error.h"
#include "base/hash_index.h"
#include "base/json.h"
#include "base/text.h"
#include "base/utf8.h"
#include "ops/digest_verify.h"

#include <stdio.h>
#include <string.h>

#define KNOWN_SIDECAR_MOST (UINT64_C(1) << 30)

static const char known_bad_sidecar[] = "it is no sidecar of digests as heft writes it";
static const char known_bad_metadata[] = "its metadata heft.xxh3 is no object of names and 32 hexadecimal digits";
static const char known_other[] = "its digests are of an algorithm that this version does not know";
static const char known_no_memory[] = "out of memory"; /* never told as what is wrong with a text */

typedef struct known_text {
    heft__known *known;
    const heft_archive *archive;
    uint32_t file;
    heft_verified_by by;
    char *names; /* unescaped, one behind another, its length before each: so the text itself is longer */
    size_t names_nbytes;
    heft__hash_index index; /* of `names`: the number is where its length stands */
    uint32_t nmissing;      /* names of no tensor */
    char why[200];
} known_text;

enum { KNOWN_LENGTH = 4 };

static bool known_digits(const char *text, size_t len, uint8_t out[16]) {
    for (size_t i = 0; i < 32 && len == 32; i++) {
        char c = text[i];
        int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
        if (digit < 0) return false;
        out[i / 2] = (uint8_t)(i % 2 ? out[i / 2] | digit : digit << 4);
    }
    return len == 32;
}

static bool known_digest(const heft__json_token *token, uint8_t out[16]) {
    return token->type == HEFT__JSON_STRING && !token->escaped && known_digits(token->text, token->len, out);
}

/* Whether a name has been in this text before; it is noted. */
static const char *known_note(known_text *text, const char *name, uint32_t len) {
    uint32_t hash = heft__hash_name(&text->index, name, len), number, other_len;
    for (uint64_t cursor = heft__hash_start(&text->index, hash); heft__hash_next(&text->index, hash, &cursor, &number);) {
        const char *other = text->names + number;
        memcpy(&other_len, other, KNOWN_LENGTH);
        if (other_len != len || memcmp(other + KNOWN_LENGTH, name, len) != 0) continue;
        char escaped[120];
        heft__escape(escaped, sizeof escaped, name, len);
        snprintf(text->why, sizeof text->why, "%s two digests of \"%s\"",
                 text->by == HEFT_VERIFIED_BY_METADATA ? "its metadata heft.xxh3 has" : "it has", escaped);
        return text->why;
    }
    return heft__hash_add(&text->index, hash, (uint32_t)text->names_nbytes) ? NULL : known_no_memory;
}

/* A name that is none of the file's. It may be in the metadata and in the sidecar. */
static void known_missing(known_text *text, const char *name, uint32_t len) {
    const heft__listing *listing = text->archive->files[text->file];
    heft_verified_file *file = &text->known->files[text->file];
    if (listing->nwithheld || listing->nreplaced) return; /* it may be one of those */
    if (text->nmissing++ < file->nmissing) return;
    if (file->nmissing++ == 0) heft__escape(file->missing, sizeof file->missing, name, len);
}

/* Members of an object of names and digests, up to its end. Names that are none of the file's are counted, but none may come
 * twice. NULL, or what is wrong: `bad` of all but that. */
static const char *known_tensors(known_text *text, heft__json *json, const char *bad) {
    heft__json_token key, value;
    uint32_t of;
    while (heft__json_next(json, &key) == HEFT__JSON_KEY) {
        uint8_t digest[16];
        char *name = text->names + text->names_nbytes + KNOWN_LENGTH;
        uint32_t len = (uint32_t)heft__json_unescape(&key, name);
        heft__json_next(json, &value);
        if (!known_digest(&value, digest)) return bad;
        const char *why = known_note(text, name, len);
        if (why) return why;
        memcpy(name - KNOWN_LENGTH, &len, KNOWN_LENGTH);
        text->names_nbytes += KNOWN_LENGTH + len; /* the two quotes, the colon and the digits are longer than the length */
        uint64_t id = heft__archive_lookup(text->archive, name, len);
        bool there = id != HEFT_NONE && (heft__archive_entry(text->archive, id, &of), of == text->file);
        if (!there) known_missing(text, name, len);
        if (!there || text->known->by[id]) continue;
        memcpy(text->known->digests[id], digest, 16);
        text->known->by[id] = (uint8_t)text->by;
    }
    return key.type == HEFT__JSON_OBJECT_END ? NULL : bad;
}

/* Room for the names of a text of so many bytes. */
static bool known_begin(known_text *text, size_t nbytes) {
    const heft_allocator *alloc = &text->known->alloc;
    text->names_nbytes = 0;
    text->names = heft__alloc(alloc, nbytes + KNOWN_LENGTH);
    return text->names && heft__hash_index_init(&text->index, alloc, 0);
}

static void known_end(known_text *text, size_t nbytes) {
    heft__free(&text->known->alloc, text->names, nbytes + KNOWN_LENGTH);
    heft__hash_index_free(&text->index);
    text->names = NULL;
}

static void known_data(const known_text *text, const uint8_t digest[16]) {
    heft_verified_file *file = &text->known->files[text->file];
    if (file->by) return;
    memcpy(file->expected, digest, 16);
    file->by = text->by;
}

static heft_status known_fail(heft_error *err, const char *path, const char *why) {
    char name[300];
    heft__escape(name, sizeof name, path, strlen(path));
    heft_status status = why == known_other ? HEFT_UNSUPPORTED : HEFT_CORRUPT;
    heft__fail(err, status, HEFT_FAULT_BAD_DIGESTS, "%s: %s", name, why);
    heft__error_file(err, path);
    return status;
}

/* ---- metadata ---- */

static heft_status known_metadata(known_text *text, heft_error *err) {
    const char *path = heft_source_label(text->archive->files[text->file]->source);
    heft_pair pair;
    uint8_t digest[16];
    text->by = HEFT_VERIFIED_BY_METADATA;
    if (heft_archive_metadata_find(text->archive, text->file, "heft.data_xxh3", 14, &pair, NULL) == HEFT_OK) {
        if (!known_digits(pair.value, pair.value_len, digest))
            return known_fail(err, path, "its metadata heft.data_xxh3 is not 32 hexadecimal digits");
        known_data(text, digest);
    }
    if (heft_archive_metadata_find(text->archive, text->file, "heft.xxh3", 9, &pair, NULL) != HEFT_OK) return HEFT_OK;
    heft__json json;
    heft__json_token token;
    const char *why = known_begin(text, pair.value_len) ? NULL : known_no_memory;
    heft__json_init(&json, pair.value, pair.value_len);
    if (!why && heft__json_next(&json, &token) != HEFT__JSON_OBJECT) why = known_bad_metadata;
    if (!why) why = known_tensors(text, &json, known_bad_metadata);
    if (!why && heft__json_next(&json, &token) != HEFT__JSON_END) why = known_bad_metadata;
    known_end(text, pair.value_len);
    if (why == known_no_memory) return heft__fail_memory(err, pair.value_len);
    return why ? known_fail(err, path, why) : HEFT_OK;
}

/* ---- sidecars ---- */

/* NULL, or what is wrong. */
static const char *known_sidecar(known_text *text, const char *data, size_t nbytes) {
    if (heft__utf8_check(data, nbytes) < nbytes) return known_bad_sidecar;
    heft_verified_file *file = &text->known->files[text->file];
    heft__json json;
    heft__json_token key, value;
    bool algorithm = false, tensors = false, size = false, whole = false; /* none comes twice */
    heft__json_init(&json, data, nbytes);
    if (heft__json_next(&json, &key) != HEFT__JSON_OBJECT) return known_bad_sidecar;
    while (heft__json_next(&json, &key) == HEFT__JSON_KEY) {
        uint8_t digest[16];
        heft__json_next(&json, &value);
        if (heft__json_equals(&key, "algorithm", 9)) {
            if (value.type != HEFT__JSON_STRING || algorithm) return known_bad_sidecar;
            if (!heft__json_equals(&value, HEFT__SIDECAR_ALGORITHM, sizeof HEFT__SIDECAR_ALGORITHM - 1))
                return known_other;
            algorithm = true;
        } else if (heft__json_equals(&key, "file_nbytes", 11)) {
            if (size || value.type != HEFT__JSON_NUMBER || !heft__json_u64(&value, &file->sidecar_nbytes))
                return known_bad_sidecar;
            size = true;
        } else if (heft__json_equals(&key, "data_xxh3", 9)) {
            if (whole || !known_digest(&value, digest)) return known_bad_sidecar;
            known_data(text, digest);
            whole = true;
        } else if (heft__json_equals(&key, "tensors", 7)) {
            if (value.type != HEFT__JSON_OBJECT || tensors) return known_bad_sidecar;
            const char *why = known_tensors(text, &json, known_bad_sidecar);
            if (why) return why;
            tensors = true;
        } else if (!heft__json_skip(&json, &value)) {
            return known_bad_sidecar;
        }
    }
    if (key.type != HEFT__JSON_OBJECT_END || heft__json_next(&json, &key) != HEFT__JSON_END) return known_bad_sidecar;
    return algorithm && tensors ? NULL : known_bad_sidecar;
}

heft_status heft__known_sidecar(heft__known *known, const heft_archive *archive, uint32_t file, const char *path,
                                const char *data, size_t nbytes, heft_error *err) {
    known_text text = {.known = known, .archive = archive, .file = file, .by = HEFT_VERIFIED_BY_SIDECAR};
    const char *why = known_begin(&text, nbytes) ? known_sidecar(&text, data, nbytes) : known_no_memory;
    known_end(&text, nbytes);
    if (why == known_no_memory) return heft__fail_memory(err, nbytes);
    return why ? known_fail(err, path, why) : HEFT_OK;
}

static heft_status known_read(const known_text *text, heft_source *source, heft_error *err) {
    const heft_allocator *alloc = &text->known->alloc;
    const char *path = heft_source_label(source);
    uint64_t nbytes = heft_source_size(source);
    if (nbytes > KNOWN_SIDECAR_MOST) return known_fail(err, path, "it is larger than 1 GiB");
    char *data = heft__alloc(alloc, nbytes);
    heft_status status = data ? heft_source_read(source, 0, nbytes, data, err) : heft__fail_memory(err, nbytes);
    if (status == HEFT_OK)
        status = heft__known_sidecar(text->known, text->archive, text->file, path, data, (size_t)nbytes, err);
    heft__free(alloc, data, nbytes);
    return status;
}

/* The sidecar of a file, if there is one. */
static heft_status known_beside(const known_text *text, heft_error *err) {
    const heft__listing *listing = text->archive->files[text->file];
    heft_verified_file *file = &text->known->files[text->file];
    char path[HEFT__TARGET_PATH_MAX];
    heft_error local;
    heft_source *source;
    if (!heft__sidecar_name(heft_source_label(listing->source), path, sizeof path)) return HEFT_OK;
    heft_status status = heft_source_open_file(path, &source, &local);
    if (status == HEFT_NOT_FOUND) return HEFT_OK;
    bool leads; /* a sidecar beside another file says nothing */
    heft_status judged = heft__sidecar_path_leads(listing->source, &leads, err);
    if (status != HEFT_OK) {
        if (judged != HEFT_OK || !leads) return judged;
        if (err) *err = local;
        return status;
    }
    status = judged;
    if (status == HEFT_OK && leads) status = known_read(text, source, err);
    file->resized = file->sidecar_nbytes != HEFT_NONE && file->sidecar_nbytes != heft__listing_file_nbytes(listing);
    heft_source_unref(source);
    return status;
}

/* ---- all of it ---- */

heft_status heft__known_make(heft__known *known, const heft_archive *archive, const bool *wanted,
                             const heft_allocator *alloc, heft_error *err) {
    *known = (heft__known){.alloc = *alloc, .ntensors = archive->ntensors, .nfiles = archive->nfiles};
    known->digests = heft__alloc(alloc, known->ntensors * sizeof *known->digests);
    known->by = heft__alloc_zero(alloc, known->ntensors);
    known->files = heft__alloc_zero(alloc, known->nfiles * sizeof *known->files);
    if (!known->digests || !known->by || !known->files) return heft__fail_memory(err, known->ntensors * 17);
    heft_status status = HEFT_OK;
    for (uint32_t i = 0; i < archive->nfiles; i++) known->files[i].sidecar_nbytes = HEFT_NONE;
    for (uint32_t i = 0; i < archive->nfiles && status == HEFT_OK; i++) {
        known_text text = {.known = known, .archive = archive, .file = i};
        if (wanted && !wanted[i]) continue;
        status = known_metadata(&text, err);
        if (status == HEFT_OK) status = known_beside(&text, err);
    }
    return status;
}

void heft__known_free(heft__known *known) {
    heft__free(&known->alloc, known->digests, known->ntensors * sizeof *known->digests);
    heft__free(&known->alloc, known->by, known->ntensors);
    heft__free(&known->alloc, known->files, known->nfiles * sizeof *known->files);
}
