/* format: the header text of a safetensors file, entry by entry (check 7). */
#include "format/safetensors.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/json.h"
#include "base/sort.h"
#include "base/text.h"

#include <stdio.h>
#include <string.h>

/* An entry while it is read. Places are offsets in the header text. */
typedef struct parse_draft {
    heft__entry entry;
    const heft__json_token *key; /* its name */
    heft__json_token spelling;   /* of its dtype */
    bool has_dtype, has_shape, has_offsets;
    bool is_array, is_object_dtype; /* written as the reference's parser happens to take it */
    uint64_t array_at, dtype_at;
    uint64_t unknown_fields, unknown_field_at;
} parse_draft;

/* Entries whose names are looked up together. */
#define PARSE_BATCH 32

typedef unsigned long long parse_number; /* what %llu takes */

static const uint64_t parse_no_dims[1] = {0}; /* a scalar's shape is no NULL */

/* ---- room ---------------------------------------------------------------------------------------------------------
 */

/* Room for one more element of an array that grows with the work, `before` of whose elements are older than the present
 * work. How many will come is foreseen from how many came so far, so that a large array is neither copied often nor
 * twice as large as it must be: the bound on memory for hostile headers needs that. */
static bool parse_grow(const heft__safetensors *scan, void **array, uint64_t *capacity, uint64_t count, uint64_t before,
                       size_t nbytes) {
    if (count < *capacity) return true;
    uint64_t wanted = count + count / 8 + 16;
    uint64_t foreseen = before + (count - before) * scan->total / (scan->done + 1) / 16 * 17;
    if (count < 64)
        wanted = 2 * count + 8;
    else if (foreseen > wanted)
        wanted = foreseen;
    void *grown = heft__realloc(&scan->listing->alloc, *array, *capacity * nbytes, wanted * nbytes);
    if (!grown) return false;
    *array = grown;
    *capacity = wanted;
    return true;
}

static heft_status parse_record(heft__safetensors *scan, heft__fault fault) {
    heft__faults *faults = &scan->listing->faults;
    if (!parse_grow(scan, (void **)&faults->items, &faults->capacity, faults->count, scan->nfaults_before,
                    sizeof fault))
        return heft__fail_memory(scan->err, sizeof fault);
    faults->items[faults->count++] = fault;
    return HEFT_OK;
}

static uint32_t parse_lenient_bit(heft_fault kind) {
    switch (kind) {
    case HEFT_FAULT_DUPLICATE_NAME: return HEFT_LENIENT_DUPLICATE_NAME;
    case HEFT_FAULT_ARRAY_ENTRY: return HEFT_LENIENT_ARRAY_ENTRY;
    case HEFT_FAULT_OBJECT_DTYPE: return HEFT_LENIENT_OBJECT_DTYPE;
    case HEFT_FAULT_RESERVED_NAME: return HEFT_LENIENT_RESERVED_NAME;
    case HEFT_FAULT_TRAILING_BYTES: return HEFT_LENIENT_TRAILING_BYTES;
    case HEFT_FAULT_HOLE: return HEFT_LENIENT_HOLE;
    case HEFT_FAULT_NUL_PADDING: return HEFT_LENIENT_NUL_PADDING;
    default: return 0;
    }
}

heft_status heft__safetensors_report(heft__safetensors *scan, heft__fault fault) {
    const heft__scan_options *options = scan->options;
    bool admitted = options->lenient & parse_lenient_bit(fault.kind);
    if (fault.kind == HEFT_FAULT_UNKNOWN_DTYPE) {
        fault.status = (uint8_t)-HEFT_UNSUPPORTED;
        admitted = options->list_unknown_dtypes;
    }
    if (admitted)
        fault.severity = HEFT_SEVERITY_WARNING;
    else if (!options->collect) {
        heft__fault_describe(&fault, scan->listing, scan->err);
        return scan->err->status;
    }
    return parse_record(scan, fault);
}

/* ---- failures -----------------------------------------------------------------------------------------------------
 */

/* The name of an entry that fails: its value, as written over its own text. Once for a scan, as failing ends it. */
static size_t parse_failed_name(heft__safetensors *scan, const parse_draft *draft, const char **name) {
    char *text = scan->listing->header + draft->key->offset + 1;
    *name = text;
    return heft__json_unescape(draft->key, text);
}

/* The text is not JSON at the place where the reader stopped. */
static heft_status parse_fail_json(heft__safetensors *scan, const heft__json *json, const parse_draft *draft) {
    char escaped[200] = "";
    const char *name = NULL;
    size_t len = draft ? parse_failed_name(scan, draft, &name) : 0;
    uint64_t at = 8 + (uint64_t)json->error_at;
    if (draft) heft__escape(escaped, sizeof escaped, name, len);
    heft__fail(scan->err, HEFT_CORRUPT, HEFT_FAULT_JSON_SYNTAX, "the header is not valid JSON at offset %llu%s%s%s: %s",
               (parse_number)at, draft ? ", in tensor \"" : "", escaped, draft ? "\"" : "", json->error);
    heft__error_at(scan->err, at, HEFT_NONE, HEFT_NONE);
    heft__error_tensor(scan->err, name, len);
    return HEFT_CORRUPT;
}

/* An entry that is not what it must be: `text` is what follows its name in the message; `at` is an offset in the
 * header. */
static heft_status parse_fail_entry(heft__safetensors *scan, const parse_draft *draft, size_t at, const char *text) {
    char escaped[200];
    const char *name;
    size_t len = parse_failed_name(scan, draft, &name);
    heft__escape(escaped, sizeof escaped, name, len);
    heft__fail(scan->err, HEFT_CORRUPT, HEFT_FAULT_BAD_ENTRY, "tensor \"%s\": %s at offset %llu", escaped, text,
               8 + (parse_number)at);
    heft__error_at(scan->err, 8 + (uint64_t)at, HEFT_NONE, HEFT_NONE);
    heft__error_tensor(scan->err, name, len);
    return HEFT_CORRUPT;
}

/* The next token was not the one wanted: an error of syntax or of type. */
static heft_status parse_fail_token(heft__safetensors *scan, const heft__json *json, const parse_draft *draft,
                                    const heft__json_token *token, const char *what, const char *expected) {
    char number[80], text[240];
    const char *found = heft__json_type_name(token->type);
    if (token->type == HEFT__JSON_ERROR) return parse_fail_json(scan, json, draft);
    if (token->type == HEFT__JSON_NUMBER) {
        heft__escape(number, sizeof number, token->text, token->len);
        found = number;
    }
    snprintf(text, sizeof text, "%s: expected %s, found %s", what, expected, found);
    return parse_fail_entry(scan, draft, token->offset, text);
}

static heft_status parse_fail_metadata(heft__safetensors *scan, const heft__json *json, const heft__json_token *token,
                                       const char *what, const char *expected) {
    if (token->type == HEFT__JSON_ERROR) return parse_fail_json(scan, json, NULL);
    heft__fail(scan->err, HEFT_CORRUPT, HEFT_FAULT_BAD_METADATA, "%s at offset %llu: expected %s, found %s", what,
               8 + (parse_number)token->offset, expected, heft__json_type_name(token->type));
    heft__error_at(scan->err, 8 + (uint64_t)token->offset, HEFT_NONE, HEFT_NONE);
    return HEFT_CORRUPT;
}

/* ---- entries: what is read of each --------------------------------------------------------------------------------
 */

/* A file of heft's own that aligns tensors holds fillers; the rule is in docs/formats/safetensors.md. */
static bool parse_is_filler(const heft__entry *entry) {
    static const char prefix[] = "__heft_pad__.";
    if (entry->name_len != sizeof prefix - 1 + 8 || memcmp(entry->name, prefix, sizeof prefix - 1) != 0) return false;
    for (size_t i = sizeof prefix - 1; i < entry->name_len; i++)
        if (entry->name[i] < '0' || entry->name[i] > '9') return false;
    return entry->dtype == HEFT_U8 && entry->rank == 1 && entry->shape[0] < 65536;
}

static bool parse_precedes(const heft__entry *a, const heft__entry *b) {
    if (a->begin != b->begin) return a->begin < b->begin;
    if (a->end != b->end) return a->end < b->end;
    return heft__bytes_compare(a->name, a->name_len, b->name, b->name_len) <= 0;
}

/* The entry of the same name, or UINT32_MAX. */
static inline uint32_t parse_twin(const heft__listing *listing, const heft__entry *entry) {
    uint64_t cursor = heft__hash_start(&listing->names, entry->hash);
    uint32_t number;
    while (heft__hash_next(&listing->names, entry->hash, &cursor, &number)) {
        const heft__entry *other = &listing->entries[number];
        if (other->name_len == entry->name_len && memcmp(other->name, entry->name, entry->name_len) == 0) return number;
    }
    return UINT32_MAX;
}

/* Appends an entry, whose name is not in the table of names yet. */
static inline bool parse_append(heft__safetensors *scan, const heft__entry *entry) {
    heft__listing *l = scan->listing;
    if (!parse_grow(scan, (void **)&l->entries, &l->capacity, l->nentries, 0, sizeof *entry)) return false;
    if (scan->in_order && l->nentries > 0) scan->in_order = parse_precedes(&l->entries[l->nentries - 1], entry);
    l->entries[l->nentries++] = *entry;
    l->nfillers += (entry->flags & HEFT__ENTRY_FILLER) != 0;
    return true;
}

/* ---- entries in the reference's own spelling ----------------------------------------------------------------------
 */

/* Entry `newer` has the name of entry `number` and takes its place. */
static heft_status parse_replace(heft__safetensors *scan, uint32_t number, uint64_t newer) {
    heft__listing *l = scan->listing;
    uint64_t before = 8 + (uint64_t)(l->entries[number].name - l->header) - 1;
    uint64_t again = 8 + (uint64_t)(l->entries[newer].name - l->header) - 1;
    l->nfillers -= (l->entries[number].flags & HEFT__ENTRY_FILLER) != 0;
    l->entries[number] = l->entries[newer];
    memmove(&l->entries[newer], &l->entries[newer + 1], (l->nentries - newer - 1) * sizeof *l->entries);
    l->nentries--;
    scan->in_order = false;
    return heft__safetensors_report(scan, heft__safetensors_fault(HEFT_FAULT_DUPLICATE_NAME, number, again, before));
}

/* Enters the names of entries that came by since the last call: `scan->nindexed` to the end, a few. The table is larger
 * than the caches, so each name is looked up long after its slot was asked for. */
static heft_status parse_index_names(heft__safetensors *scan) {
    heft__listing *l = scan->listing;
    while (scan->nindexed < l->nentries) {
        const heft__entry *entry = &l->entries[scan->nindexed];
        uint32_t twin = parse_twin(l, entry);
        heft_status status = HEFT_OK;
        if (twin != UINT32_MAX)
            status = parse_replace(scan, twin, scan->nindexed);
        else if (heft__hash_add(&l->names, entry->hash, (uint32_t)scan->nindexed))
            scan->nindexed++;
        else
            status = heft__fail_memory(scan->err, sizeof *entry);
        if (status) return status;
    }
    return HEFT_OK;
}

/* Moves past a literal, in its spelling without or with blanks. Reading past the end of the text is fine, because the
 * slack after it is longer than any literal. */
#define PARSE_TAKE(p, blanks, tight, wide)                                                                             \
    ((blanks) ? memcmp((p), wide, sizeof wide - 1) == 0 && ((p) += sizeof wide - 1, true)                              \
              : memcmp((p), tight, sizeof tight - 1) == 0 && ((p) += sizeof tight - 1, true))

/* A plain integer of at most 19 digits; NULL if it is anything else. */
static inline const char *parse_plain_u64(const char *p, uint64_t *out) {
    uint64_t value = (uint64_t)(uint8_t)*p - '0', digit;
    const char *start = p++;
    if (value > 9) return NULL;
    while ((digit = (uint64_t)(uint8_t)*p - '0') <= 9) {
        value = value * 10 + digit;
        p++;
    }
    if (p - start > 19 || (*start == '0' && p - start > 1)) return NULL;
    *out = value;
    return p;
}

/* The dims between [ and ], whose first character is at p; at most 8. */
static inline const char *parse_plain_shape(const char *p, bool blanks, uint64_t dims[8], uint32_t *rank) {
    *rank = 0;
    if (*p == ']') return p + 1;
    for (;;) {
        if (*rank == 8 || !(p = parse_plain_u64(p, &dims[*rank]))) return NULL;
        ++*rank;
        if (*p == ']') return p + 1;
        if (!PARSE_TAKE(p, blanks, ",", ", ")) return NULL;
    }
}

static inline const char *parse_plain_dtype(heft__safetensors *scan, const char *p, heft__entry *entry) {
    if (scan->dtype_len && memcmp(p, scan->dtype_text, scan->dtype_len) == 0) {
        entry->dtype = scan->dtype;
        return p + scan->dtype_len;
    }
    size_t len = 0;
    while (len < sizeof scan->dtype_text - 1 && p[len] && p[len] != '"') len++;
    heft_dtype dtype = p[len] == '"' ? heft_dtype_parse(p, len) : HEFT_DTYPE_NONE;
    if (dtype == HEFT_DTYPE_NONE) return NULL;
    memcpy(scan->dtype_text, p, len + 1);
    scan->dtype_len = (uint8_t)(len + 1);
    scan->dtype = entry->dtype = (uint8_t)dtype;
    return p + scan->dtype_len;
}

/* Reads ,"name":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]} by comparing bytes; `blanks`: with a blank after
 * each comma and colon. False, with nothing changed, on the slightest deviation: the pull reader then reads the entry
 * from its start. Both read the same from the same text. */
static inline bool parse_plain_entry(heft__safetensors *scan, heft__json *json, bool blanks) {
    heft__listing *l = scan->listing;
    const char *p = json->text + json->pos;
    heft__entry entry = {0};
    uint64_t dims[8], nelems, nbytes, *shape;
    if (!PARSE_TAKE(p, blanks, ",\"", ", \"")) return false;
    char *name = l->header + (p - json->text);
    size_t start = (size_t)(p - json->text), quote = heft__json_string_end(json->text, start, json->len);
    entry.name = name;
    entry.name_len = (uint32_t)(quote - start);
    p = json->text + quote;
    if (entry.name_len == 0 || !PARSE_TAKE(p, blanks, "\":{\"dtype\":\"", "\": {\"dtype\": \"")) return false;
    if (!(p = parse_plain_dtype(scan, p, &entry))) return false;
    if (!PARSE_TAKE(p, blanks, ",\"shape\":[", ", \"shape\": [")) return false;
    if (!(p = parse_plain_shape(p, blanks, dims, &entry.rank))) return false;
    if (!PARSE_TAKE(p, blanks, ",\"data_offsets\":[", ", \"data_offsets\": [")) return false;
    if (!(p = parse_plain_u64(p, &entry.begin)) || !PARSE_TAKE(p, blanks, ",", ", ")) return false;
    if (!(p = parse_plain_u64(p, &entry.end)) || !PARSE_TAKE(p, false, "]}", "]}")) return false;
    if (entry.name_len == 12 && memcmp(name, "__metadata__", 12) == 0) return false;
    entry.hash = heft__hash_name(&l->names, name, entry.name_len);
    __builtin_prefetch(&l->names.slots[heft__hash_start(&l->names, entry.hash)], 1);
    shape = heft__arena_alloc(&l->arena, entry.rank * sizeof *dims, sizeof *dims);
    if (!shape) return !(scan->out_of_memory = true);
    memcpy(shape, dims, entry.rank * sizeof *dims);
    entry.shape = shape;
    if (heft__shape_nbytes(entry.dtype, entry.rank, dims, &nelems, &nbytes) == HEFT__SHAPE_OK)
        entry.flags |= nbytes == entry.end - entry.begin ? HEFT__ENTRY_SIZED : 0;
    if (*name == '_' && parse_is_filler(&entry)) entry.flags |= HEFT__ENTRY_FILLER;
    scan->done = json->pos;
    if (!parse_append(scan, &entry)) return !(scan->out_of_memory = true);
    name[entry.name_len] = 0;
    json->pos = (size_t)(p - json->text);
    return true;
}

/* Reads such entries as long as there are any. */
static heft_status parse_plain_entries(heft__safetensors *scan, heft__json *json) {
    heft_status status = HEFT_OK;
    if (scan->one_by_one || scan->listing->nentries == 0) return HEFT_OK;
    bool blanks = json->pos + 1 < json->len && json->text[json->pos + 1] == ' ';
    while (!status && (blanks ? parse_plain_entry(scan, json, true) : parse_plain_entry(scan, json, false)))
        if (scan->listing->nentries - scan->nindexed == PARSE_BATCH) status = parse_index_names(scan);
    if (scan->out_of_memory) status = heft__fail_memory(scan->err, sizeof(heft__entry));
    return status ? status : parse_index_names(scan);
}

/* ---- entries in any spelling --------------------------------------------------------------------------------------
 */

/* The dtype spelled by a string or key token. An unknown one is HEFT_DTYPE_NONE, no failure. */
static void parse_dtype_text(parse_draft *draft, const heft__json_token *token) {
    char text[128];
    draft->dtype_at = token->offset;
    draft->spelling = *token;
    draft->entry.dtype = HEFT_DTYPE_NONE;
    if (token->len <= sizeof text)
        draft->entry.dtype = (uint8_t)heft_dtype_parse(text, heft__json_unescape(token, text));
}

static heft_status parse_dtype(heft__safetensors *scan, heft__json *json, const heft__json_token *value,
                               parse_draft *draft) {
    heft__json_token token = *value;
    if (token.type == HEFT__JSON_STRING) {
        parse_dtype_text(draft, &token);
    } else if (token.type == HEFT__JSON_OBJECT) {
        draft->is_object_dtype = true;
        if (heft__json_next(json, &token) != HEFT__JSON_KEY)
            return parse_fail_token(scan, json, draft, &token, "dtype", "its name");
        parse_dtype_text(draft, &token);
        if (heft__json_next(json, &token) != HEFT__JSON_NULL)
            return parse_fail_token(scan, json, draft, &token, "dtype written as an object", "null");
        if (heft__json_next(json, &token) != HEFT__JSON_OBJECT_END)
            return parse_fail_token(scan, json, draft, &token, "dtype written as an object", "its end");
    } else {
        return parse_fail_token(scan, json, draft, &token, "dtype", "a string");
    }
    draft->has_dtype = true;
    return HEFT_OK;
}

/* How many dims a shape can have whose text starts at `at`: one more than its commas, but each takes two characters. */
static uint64_t parse_count_dims(const heft__json *json, size_t at) {
    const char *text = json->text + at, *end = memchr(text, ']', json->len - at);
    size_t span = end ? (size_t)(end - text) : json->len - at;
    uint64_t commas = 0;
    for (size_t i = 0; i < span; i++) commas += text[i] == ',';
    return commas + 1 < span / 2 + 1 ? commas + 1 : span / 2 + 1;
}

static heft_status parse_shape(heft__safetensors *scan, heft__json *json, const heft__json_token *value,
                               parse_draft *draft) {
    static const char expected[] = "an integer from 0 to 2^64 - 1";
    heft__json_token token;
    if (value->type != HEFT__JSON_ARRAY) return parse_fail_token(scan, json, draft, value, "shape", "an array");
    uint64_t room = parse_count_dims(json, json->pos), *dims = NULL;
    uint32_t rank = 0;
    while (heft__json_next(json, &token) != HEFT__JSON_ARRAY_END) {
        uint64_t dim;
        if (!heft__json_u64(&token, &dim) || rank == room)
            return parse_fail_token(scan, json, draft, &token, "shape", expected);
        if (!dims && !(dims = heft__arena_alloc(&scan->listing->arena, room * sizeof dim, sizeof dim)))
            return heft__fail_memory(scan->err, room * sizeof dim);
        dims[rank++] = dim;
    }
    draft->entry.shape = dims ? dims : parse_no_dims;
    draft->entry.rank = rank;
    draft->has_shape = true;
    return HEFT_OK;
}

static heft_status parse_offsets(heft__safetensors *scan, heft__json *json, const heft__json_token *value,
                                 parse_draft *draft) {
    static const char expected[] = "an integer from 0 to 2^64 - 1";
    heft__json_token token;
    if (value->type != HEFT__JSON_ARRAY) return parse_fail_token(scan, json, draft, value, "data_offsets", "an array");
    heft__json_next(json, &token);
    if (!heft__json_u64(&token, &draft->entry.begin))
        return parse_fail_token(scan, json, draft, &token, "data_offsets", expected);
    heft__json_next(json, &token);
    if (!heft__json_u64(&token, &draft->entry.end))
        return parse_fail_token(scan, json, draft, &token, "data_offsets", expected);
    if (heft__json_next(json, &token) != HEFT__JSON_ARRAY_END)
        return parse_fail_token(scan, json, draft, &token, "data_offsets", "the end of the array after two numbers");
    draft->has_offsets = true;
    return HEFT_OK;
}

typedef heft_status (*parse_field)(heft__safetensors *, heft__json *, const heft__json_token *, parse_draft *);

/* [dtype, shape, offsets] */
static heft_status parse_array_entry(heft__safetensors *scan, heft__json *json, parse_draft *draft) {
    static const parse_field fields[] = {parse_dtype, parse_shape, parse_offsets};
    heft__json_token token;
    for (size_t i = 0; i < 3; i++) {
        heft__json_next(json, &token);
        heft_status status = fields[i](scan, json, &token, draft);
        if (status) return status;
    }
    if (heft__json_next(json, &token) != HEFT__JSON_ARRAY_END)
        return parse_fail_token(scan, json, draft, &token, "entry", "the end of the array after three fields");
    return HEFT_OK;
}

static heft_status parse_object_entry(heft__safetensors *scan, heft__json *json, parse_draft *draft) {
    heft__json_token key, token;
    while (heft__json_next(json, &key) == HEFT__JSON_KEY) {
        bool is_dtype = heft__json_equals(&key, "dtype", 5), is_shape = heft__json_equals(&key, "shape", 5);
        bool is_offsets = heft__json_equals(&key, "data_offsets", 12);
        if ((is_dtype && draft->has_dtype) || (is_shape && draft->has_shape) || (is_offsets && draft->has_offsets))
            return parse_fail_entry(scan, draft, key.offset,
                                    is_dtype   ? "dtype stands twice, again"
                                    : is_shape ? "shape stands twice, again"
                                               : "data_offsets stands twice, again");
        heft__json_next(json, &token);
        heft_status status = HEFT_OK;
        if (is_dtype)
            status = parse_dtype(scan, json, &token, draft);
        else if (is_shape)
            status = parse_shape(scan, json, &token, draft);
        else if (is_offsets)
            status = parse_offsets(scan, json, &token, draft);
        else if (!heft__json_skip(json, &token))
            status = parse_fail_json(scan, json, draft);
        else if (draft->unknown_fields++ == 0)
            draft->unknown_field_at = key.offset;
        if (status) return status;
    }
    if (key.type == HEFT__JSON_ERROR) return parse_fail_json(scan, json, draft);
    if (!draft->has_dtype) return parse_fail_entry(scan, draft, key.offset, "no dtype before the end of the entry");
    if (!draft->has_shape) return parse_fail_entry(scan, draft, key.offset, "no shape before the end of the entry");
    if (!draft->has_offsets)
        return parse_fail_entry(scan, draft, key.offset, "no data_offsets before the end of the entry");
    return HEFT_OK;
}

/* The value of an entry, whose first token has been read. */
static heft_status parse_value(heft__safetensors *scan, heft__json *json, const heft__json_token *value,
                               parse_draft *draft) {
    if (value->type == HEFT__JSON_OBJECT) return parse_object_entry(scan, json, draft);
    if (value->type != HEFT__JSON_ARRAY) return parse_fail_token(scan, json, draft, value, "entry", "an object");
    draft->is_array = true;
    draft->array_at = value->offset;
    return parse_array_entry(scan, json, draft);
}

static void parse_count(heft__safetensors_count *count, uint64_t more, uint64_t at, uint32_t entry) {
    if (more && count->count == 0) {
        count->offset = 8 + at;
        count->entry = entry;
    }
    count->count += more;
}

/* Everything in a finished entry that the format does not have, in the order in which it stands in the text. */
static heft_status parse_deviations(heft__safetensors *scan, const parse_draft *draft, uint32_t number, bool reserved) {
    heft_status status = HEFT_OK;
    if (reserved)
        status = heft__safetensors_report(
            scan, heft__safetensors_fault(HEFT_FAULT_RESERVED_NAME, number, 8 + draft->key->offset, 0));
    if (!status && draft->is_array)
        status = heft__safetensors_report(
            scan, heft__safetensors_fault(HEFT_FAULT_ARRAY_ENTRY, number, 8 + draft->array_at, 0));
    if (!status && draft->is_object_dtype)
        status = heft__safetensors_report(
            scan, heft__safetensors_fault(HEFT_FAULT_OBJECT_DTYPE, number, 8 + draft->dtype_at - 1, 0));
    if (status || draft->entry.dtype != HEFT_DTYPE_NONE) return status;
    heft__fault unknown = heft__safetensors_fault(HEFT_FAULT_UNKNOWN_DTYPE, number, 8 + draft->dtype_at, 0);
    if (scan->options->collect || scan->options->list_unknown_dtypes) return heft__safetensors_report(scan, unknown);
    if (scan->unknown.kind == HEFT_FAULT_NONE) scan->unknown = unknown;
    return HEFT_OK;
}

/* An unknown dtype is kept as it is spelled, for who copies the tensor. */
static heft_status parse_keep_spelling(heft__safetensors *scan, const parse_draft *draft) {
    heft__listing *l = scan->listing;
    const heft__json_token *token = &draft->spelling;
    heft__spelling kept = {.name = draft->entry.name, .text = token->text, .len = (uint32_t)token->len};
    if (token->escaped) {
        char *text = heft__arena_alloc(&l->arena, token->len, 1);
        if (!text) return heft__fail_memory(scan->err, token->len);
        kept.len = (uint32_t)heft__json_unescape(token, text);
        kept.text = text;
    }
    if (!parse_grow(scan, (void **)&l->spellings, &l->spellings_capacity, l->nspellings, 0, sizeof kept))
        return heft__fail_memory(scan->err, sizeof kept);
    l->spellings[l->nspellings++] = kept;
    return HEFT_OK;
}

/* Adds a finished entry under its unescaped name. A repeated name takes the place of the one before it. */
static heft_status parse_add(heft__safetensors *scan, parse_draft *draft, bool reserved) {
    heft__listing *l = scan->listing;
    heft__entry *entry = &draft->entry;
    const heft__json_token *key = draft->key;
    char *name = l->header + key->offset + 1;
    entry->name = name;
    entry->name_len = (uint32_t)heft__json_unescape(key, name);
    name[entry->name_len] = 0;
    entry->hash = heft__hash_name(&l->names, name, entry->name_len);
    entry->flags = parse_is_filler(entry) ? HEFT__ENTRY_FILLER : 0;
    if (!parse_append(scan, entry)) return heft__fail_memory(scan->err, sizeof *entry);
    uint32_t number = parse_twin(l, entry);
    if (number == UINT32_MAX) number = (uint32_t)l->nentries - 1;
    heft_status status = parse_index_names(scan);
    if (!status && entry->dtype == HEFT_DTYPE_NONE && scan->options->list_unknown_dtypes)
        status = parse_keep_spelling(scan, draft);
    parse_count(&scan->odd_names, entry->name_len == 0 || memchr(name, 0, entry->name_len), key->offset, number);
    parse_count(&scan->unknown_fields, draft->unknown_fields, draft->unknown_field_at, number);
    return status ? status : parse_deviations(scan, draft, number, reserved);
}

static heft_status parse_entry(heft__safetensors *scan, heft__json *json, const heft__json_token *key) {
    heft__json_token value;
    parse_draft draft = {.key = key};
    heft__json_next(json, &value);
    heft_status status = parse_value(scan, json, &value, &draft);
    return status ? status : parse_add(scan, &draft, false);
}

/* ---- metadata -----------------------------------------------------------------------------------------------------
 */

/* A pair as offsets in the header, half the size of a heft_pair: there may be ten million. */
typedef struct parse_pair {
    uint32_t key, key_len, value, value_len;
} parse_pair;

typedef struct parse_pair_list {
    const heft__listing *listing;
    parse_pair *pairs;
    uint64_t count;
} parse_pair_list;

static const char *parse_pair_key(const void *ctx, uint32_t index, uint64_t *len) {
    const parse_pair_list *list = ctx;
    *len = list->pairs[index].key_len;
    return list->listing->header + list->pairs[index].key;
}

/* Ascending keys, and equal ones in the order of the text. */
static heft_status parse_sort_pairs(heft__safetensors *scan, const parse_pair_list *list) {
    uint64_t nbytes = list->count * sizeof(heft__sort_key);
    heft__sort_key *keys = heft__alloc(&list->listing->alloc, nbytes);
    if (!keys) return heft__fail_memory(scan->err, nbytes);
    for (uint32_t i = 0; i < list->count; i++) keys[i].index = i;
    heft__sort_texts(keys, list->count, parse_pair_key, list);
    heft__sort_permute(keys, list->count, list->pairs, sizeof *list->pairs);
    heft__free(&list->listing->alloc, keys, nbytes);
    return HEFT_OK;
}

/* Keeps the last of equal keys of a sorted list. */
static void parse_unique_pairs(heft__safetensors *scan, parse_pair_list *list) {
    const char *header = list->listing->header;
    uint64_t kept = 0, first_again = HEFT_NONE;
    for (uint64_t i = 0; i < list->count; i++) {
        parse_pair pair = list->pairs[i], last = list->pairs[kept ? kept - 1 : 0];
        bool again =
            kept && pair.key_len == last.key_len && memcmp(header + pair.key, header + last.key, pair.key_len) == 0;
        if (again && pair.key - 1 < first_again) first_again = pair.key - 1;
        kept -= again;
        list->pairs[kept++] = pair;
    }
    parse_count(&scan->duplicate_keys, list->count - kept, first_again, UINT32_MAX);
    list->count = kept;
}

/* Makes the pairs of the listing. */
static heft_status parse_make_pairs(heft__safetensors *scan, parse_pair_list *list) {
    heft__listing *l = scan->listing;
    heft_status status = parse_sort_pairs(scan, list);
    if (status) return status;
    parse_unique_pairs(scan, list);
    l->metadata = heft__alloc(&l->alloc, list->count * sizeof *l->metadata);
    if (!l->metadata) return heft__fail_memory(scan->err, list->count * sizeof *l->metadata);
    for (uint64_t i = 0; i < list->count; i++) {
        parse_pair pair = list->pairs[i];
        l->metadata[i] = (heft_pair){l->header + pair.key, pair.key_len, l->header + pair.value, pair.value_len};
    }
    l->nmetadata = l->metadata_capacity = list->count;
    return HEFT_OK;
}

/* Writes the value of a string over its own text, with a NUL after it, and returns its length. */
static uint32_t parse_unescape(heft__listing *l, const heft__json_token *token) {
    char *text = l->header + token->offset + 1;
    size_t len = heft__json_unescape(token, text);
    text[len] = 0;
    return (uint32_t)len;
}

/* Reads `count` pairs of strings, which are known to be there. */
static heft_status parse_pairs(heft__safetensors *scan, heft__json *json, uint64_t count) {
    heft__listing *l = scan->listing;
    heft__json_token key, value;
    l->has_metadata = true;
    if (count == 0) return HEFT_OK;
    parse_pair *pairs = heft__alloc(&l->alloc, count * sizeof *pairs);
    if (!pairs) return heft__fail_memory(scan->err, count * sizeof *pairs);
    for (uint64_t i = 0; i < count; i++) {
        heft__json_next(json, &key);
        heft__json_next(json, &value);
        pairs[i].key = (uint32_t)key.offset + 1;
        pairs[i].key_len = parse_unescape(l, &key);
        pairs[i].value = (uint32_t)value.offset + 1;
        pairs[i].value_len = parse_unescape(l, &value);
    }
    parse_pair_list list = {l, pairs, count};
    heft_status status = parse_make_pairs(scan, &list);
    heft__free(&l->alloc, pairs, count * sizeof *pairs);
    return status;
}

/* The value of __metadata__ is no object of strings: perhaps it is an entry. `json` stands after its first token. */
static heft_status parse_reserved(heft__safetensors *scan, heft__json *json, const heft__json_token *key,
                                  const heft__json_token *value, bool *is_entry) {
    heft_error *err = scan->err, unused;
    parse_draft draft = {.key = key};
    scan->err = &unused;
    heft_status status = parse_value(scan, json, value, &draft);
    scan->err = err;
    *is_entry = status == HEFT_OK;
    if (status == HEFT_OUT_OF_MEMORY)
        *err = unused;
    else
        status = status ? HEFT_OK : parse_add(scan, &draft, true);
    return status;
}

static heft_status parse_metadata(heft__safetensors *scan, heft__json *json, const heft__json_token *key, bool *seen) {
    static const char what[] = "__metadata__";
    heft__json_token value, token;
    heft__json_next(json, &value);
    heft__json start = *json, strings;
    uint64_t count = 0;
    if (value.type == HEFT__JSON_OBJECT) {
        while (heft__json_next(json, &token) == HEFT__JSON_KEY && heft__json_next(json, &token) == HEFT__JSON_STRING)
            count++;
        if (token.type != HEFT__JSON_OBJECT_END) {
            if (token.type == HEFT__JSON_ERROR) return parse_fail_json(scan, json, NULL);
            bool is_entry;
            strings = *json;
            *json = start;
            heft_status status = parse_reserved(scan, json, key, &value, &is_entry);
            if (status || is_entry) return status;
            return parse_fail_metadata(scan, &strings, &token, "a value of __metadata__", "a string");
        }
    } else if (value.type != HEFT__JSON_NULL) {
        return parse_fail_metadata(scan, json, &value, what, "an object");
    }
    if (*seen) {
        heft__fail(scan->err, HEFT_CORRUPT, HEFT_FAULT_BAD_METADATA, "a second __metadata__ at offset %llu",
                   8 + (parse_number)key->offset);
        heft__error_at(scan->err, 8 + (uint64_t)key->offset, HEFT_NONE, HEFT_NONE);
        return HEFT_CORRUPT;
    }
    *seen = true;
    if (value.type == HEFT__JSON_NULL) return HEFT_OK;
    *json = start;
    heft_status status = parse_pairs(scan, json, count);
    if (!status) heft__json_next(json, &token); /* the end of the object */
    return status;
}

/* ---- the whole text -----------------------------------------------------------------------------------------------
 */

/* Something follows the value. NUL bytes and white space to the end of the header are padding of another writer. */
static heft_status parse_padding(heft__safetensors *scan, const heft__json *json) {
    const heft__listing *l = scan->listing;
    uint64_t nuls = 0;
    for (uint64_t i = json->error_at; i < l->header_nbytes; i++) {
        if (l->header[i] == 0)
            nuls++;
        else if (!strchr(" \t\r\n", l->header[i]))
            return parse_fail_json(scan, json, NULL);
    }
    return heft__safetensors_report(
        scan, heft__safetensors_fault(HEFT_FAULT_NUL_PADDING, UINT32_MAX, 8 + (uint64_t)json->error_at, nuls));
}

static heft_status parse_finish(heft__safetensors *scan, heft__json *json) {
    heft__json_token token;
    if (heft__json_next(json, &token) == HEFT__JSON_ERROR) {
        heft_status status = parse_padding(scan, json);
        if (status) return status;
    }
    return scan->unknown.kind == HEFT_FAULT_NONE ? HEFT_OK : heft__safetensors_report(scan, scan->unknown);
}

heft_status heft__safetensors_parse(heft__safetensors *scan) {
    heft__listing *l = scan->listing;
    heft__json json;
    heft__json_token token;
    bool metadata_seen = false;
    heft_status status = HEFT_OK;
    heft__json_init(&json, l->header, (size_t)l->header_nbytes);
    if (heft__json_next(&json, &token) == HEFT__JSON_ERROR) return parse_fail_json(scan, &json, NULL);
    if (token.type != HEFT__JSON_OBJECT) {
        heft__fail(scan->err, HEFT_CORRUPT, HEFT_FAULT_JSON_SYNTAX,
                   "the header is not valid at offset %llu: expected an object, found %s",
                   8 + (parse_number)token.offset, heft__json_type_name(token.type));
        heft__error_at(scan->err, 8 + (uint64_t)token.offset, HEFT_NONE, HEFT_NONE);
        return HEFT_CORRUPT;
    }
    while (!status) {
        if ((status = parse_plain_entries(scan, &json)) != HEFT_OK) break;
        scan->done = json.pos;
        if (heft__json_next(&json, &token) != HEFT__JSON_KEY) break;
        if (heft__json_equals(&token, "__metadata__", 12))
            status = parse_metadata(scan, &json, &token, &metadata_seen);
        else
            status = parse_entry(scan, &json, &token);
    }
    if (status) return status;
    return token.type == HEFT__JSON_ERROR ? parse_fail_json(scan, &json, NULL) : parse_finish(scan, &json);
}
