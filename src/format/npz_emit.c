/* format: npz files: stored members whose arrays start at multiples of 64, and the directory. */
#include "base/checked.h"
#include "base/error.h"
#include "base/text.h"
#include "format/npy.h"
#include "zip/zip.h"

#include <string.h>

enum { NPZ_ALIGN = 64, NPZ_ALIGN_MOST = 32768, NPZ_CRC_LOCAL = 14, NPZ_CRC_ENTRY = 16, NPZ_ENTRY = 46, NPZ_LOCAL = 30 };

/* Room for a name and its suffix. */
typedef struct npz_emit_name {
    char *text;
    uint64_t capacity;
} npz_emit_name;

static heft_status npz_emit_fail(const heft__emit_entry *entry, heft_status status, const char *why, heft_error *err) {
    char name[200];
    heft__escape(name, sizeof name, entry->name, entry->name_len);
    heft__fail(err, status, HEFT_FAULT_CALL, "tensor \"%s\": %s", name, why);
    heft__error_tensor(err, entry->name, entry->name_len);
    return status;
}

/* The member of an entry, its name with ".npy" in `name`, which grows. */
static heft_status npz_emit_member(const heft__emit *emit, const heft__emit_entry *entry, npz_emit_name *name,
                                   uint64_t header_nbytes, heft__zip_member *out, heft_error *err) {
    uint64_t len = (uint64_t)entry->name_len + 4;
    if (len > UINT16_MAX)
        return npz_emit_fail(entry, HEFT_LIMIT, "its name is longer than a zip archive can hold", err);
    if (len > name->capacity) {
        heft__free(&emit->alloc, name->text, name->capacity);
        name->capacity = 0;
        name->text = heft__alloc(&emit->alloc, 2 * len);
        if (!name->text) return heft__fail_memory(err, 2 * len);
        name->capacity = 2 * len;
    }
    memcpy(name->text, entry->name, entry->name_len);
    memcpy(name->text + entry->name_len, ".npy", 4);
    const char *why = heft__zip_name_fault(name->text, (uint32_t)len);
    if (why) return npz_emit_fail(entry, HEFT_UNSUPPORTED, why, err);
    *out = (heft__zip_member){.name = name->text, .name_len = (uint32_t)len, .nbytes = header_nbytes + entry->nbytes};
    return HEFT_OK;
}

/* Local header and npy header of an entry, as one piece; its place, and what its directory entry takes. */
static heft_status npz_emit_entry(heft__emit *emit, heft__emit_entry *entry, npz_emit_name *name, uint64_t align,
                                  uint64_t *cursor, uint64_t *directory, heft_error *err) {
    uint8_t header[HEFT__NPY_EMIT_MAX];
    size_t n;
    heft__zip_member member;
    heft_status status = heft__npy_header(entry->dtype, entry->rank, entry->shape, entry->fortran, emit->foreign, header, &n,
                                          err);
    if (status) {
        heft__error_tensor(err, entry->name, entry->name_len);
        return status;
    }
    status = npz_emit_member(emit, entry, name, n, &member, err);
    if (status) return status;
    member.local = *cursor;
    uint64_t local = heft__zip_local_nbytes(&member, n, align);
    uint8_t *piece = heft__emit_add_piece(emit, *cursor, local + n);
    if (!piece) return heft__fail_memory(err, local + n);
    heft__zip_put_local(&member, local, piece);
    memcpy(piece + local, header, n);
    entry->offset = *cursor + local + n;
    *directory += heft__zip_entry_nbytes(&member);
    if (heft__add_u64(entry->offset, entry->nbytes, cursor) && *cursor <= INT64_MAX) return HEFT_OK;
    return heft__fail(err, HEFT_LIMIT, HEFT_FAULT_CALLER_LIMIT, "the file would have 2^63 bytes or more");
}

static void npz_store(uint8_t *at, uint32_t value) {
    for (int i = 0; i < 4; i++) at[i] = (uint8_t)(value >> 8 * i);
}

/* Bytes of a name and an extra field, by where their lengths stand. */
static uint32_t npz_lengths(const uint8_t *name, const uint8_t *extra) {
    return name[0] + ((uint32_t)name[1] << 8) + extra[0] + ((uint32_t)extra[1] << 8);
}

/* The directory but for its checksums. */
static heft_status npz_emit_directory(heft__emit *emit, npz_emit_name *name, uint64_t cursor, uint64_t nbytes,
                                      heft_error *err) {
    uint64_t end = heft__zip_end_nbytes(emit->nentries, cursor, nbytes);
    uint8_t *piece = heft__emit_add_piece(emit, cursor, nbytes + end), *at = piece;
    if (!piece) return heft__fail_memory(err, nbytes + end);
    for (uint64_t i = 0; i < emit->nentries; i++) {
        const heft__emit_entry *entry = &emit->entries[i];
        const heft__emit_piece *local = &emit->pieces[i];
        heft__zip_member member;
        uint32_t skip = NPZ_LOCAL + npz_lengths(local->bytes + 26, local->bytes + 28);
        heft_status status = npz_emit_member(emit, entry, name, local->nbytes - skip, &member, err);
        if (status) return status;
        member.local = local->offset;
        at = heft__zip_put_entry(&member, at);
    }
    heft__zip_put_end(emit->nentries, cursor, nbytes, at);
    emit->file_nbytes = cursor + nbytes + end;
    emit->header_nbytes = emit->nentries ? emit->entries[0].offset : 0;
    return HEFT_OK;
}

static heft_status npz_emit_layout(heft__emit *emit, heft_error *err) {
    uint64_t align = emit->align > NPZ_ALIGN ? emit->align : NPZ_ALIGN, cursor = 0, directory = 0;
    npz_emit_name name = {NULL, 0};
    heft_status status = HEFT_OK;
    if (align > NPZ_ALIGN_MOST)
        return heft__fail(err, HEFT_LIMIT, HEFT_FAULT_CALLER_LIMIT,
                          "members of an npz can be aligned to at most %d bytes", NPZ_ALIGN_MOST);
    if (emit->nmetadata)
        return heft__fail(err, HEFT_UNSUPPORTED, HEFT_FAULT_CALL, "npz files hold no metadata; leave it out");
    if (emit->nentries > HEFT__ZIP_MEMBERS_MAX)
        return heft__fail(err, HEFT_LIMIT, HEFT_FAULT_CALLER_LIMIT, "an npz holds at most 1,000,000 arrays");
    for (uint64_t i = 0; i < emit->nentries && !status; i++)
        status = npz_emit_entry(emit, &emit->entries[i], &name, align, &cursor, &directory, err);
    if (!status) status = npz_emit_directory(emit, &name, cursor, directory, err);
    heft__free(&emit->alloc, name.text, name.capacity);
    return status;
}

/* A member's checksum is that of its npy header and its data side by side. */
static heft_status npz_emit_finish(heft__emit *emit, heft_error *err) {
    (void)err;
    uint8_t *at = emit->pieces[emit->nentries].bytes;
    for (uint64_t i = 0; i < emit->nentries; i++) {
        const heft__emit_entry *entry = &emit->entries[i];
        heft__emit_piece *local = &emit->pieces[i];
        uint32_t skip = NPZ_LOCAL + npz_lengths(local->bytes + 26, local->bytes + 28);
        uint32_t crc = heft__zip_crc32(local->bytes + skip, local->nbytes - skip, entry->crc32, entry->nbytes);
        npz_store(local->bytes + NPZ_CRC_LOCAL, crc);
        npz_store(at + NPZ_CRC_ENTRY, crc);
        at += NPZ_ENTRY + npz_lengths(at + 28, at + 30);
    }
    return HEFT_OK;
}

const heft__emitter heft__emitter_npz = {"npz", true, npz_emit_layout, npz_emit_finish};
