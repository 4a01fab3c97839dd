/* format: the index of a sharded model, which says in which file each tensor is. */
#include "format/format.h"

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "base/utf8.h"

#include <string.h>

#define INDEX_SLACK      64                   /* bytes after the text that may be read */
#define INDEX_TEXT_LIMIT UINT64_C(0xFFFFFFFF) /* numbers of items are 32-bit */
#define INDEX_BATCH      32                   /* names that are looked up together */

typedef unsigned long long index_number; /* what %llu takes */

typedef struct index_scan {
    heft__index *index;
    heft_source *source;
    heft_error *err; /* never NULL */
    heft__json json;
    heft__hash_index shards; /* number = shard */
    const char *last;        /* the text of the last shard, if it needs no unescaping; else NULL */
    uint32_t last_len, last_shard;
    uint64_t map_at; /* where the weight_map begins */
    bool has_map;
    bool has_error; /* a key that answers of servers have, and no index */
    bool out_of_memory; /* met where only true and false are said */
} index_scan;

/* ---- failures -----------------------------------------------------------------------------------------------------
 */

static heft_status index_fail(index_scan *scan, heft_fault fault, uint64_t at, const char *what, const char *found) {
    heft__fail(scan->err, HEFT_CORRUPT, fault, "%s%s at offset %llu", what, found, (index_number)at);
    heft__error_at(scan->err, at, HEFT_NONE, HEFT_NONE);
    return HEFT_CORRUPT;
}

/* A token that is not the one wanted: an error of syntax or of type. */
static heft_status index_fail_token(index_scan *scan, const heft__json_token *token, const char *expected) {
    if (token->type == HEFT__JSON_ERROR)
        return index_fail(scan, HEFT_FAULT_INDEX_SYNTAX, scan->json.error_at, "no valid JSON: ", scan->json.error);
    return index_fail(scan, HEFT_FAULT_INDEX_SYNTAX, token->offset, expected, heft__json_type_name(token->type));
}

static heft_status index_fail_name(index_scan *scan, const heft__index_item *item, uint64_t at, uint64_t before) {
    char escaped[280];
    heft__escape(escaped, sizeof escaped, item->name, item->name_len);
    heft__fail(scan->err, HEFT_CORRUPT, HEFT_FAULT_INDEX_SYNTAX,
               "weight_map names tensor \"%s\" twice, at offsets %llu and %llu", escaped, (index_number)before,
               (index_number)at);
    heft__error_at(scan->err, at, HEFT_NONE, HEFT_NONE);
    heft__error_tensor(scan->err, item->name, item->name_len);
    return HEFT_CORRUPT;
}

static heft_status index_fail_shard(index_scan *scan, const char *name, size_t len, uint64_t at, const char *why) {
    char escaped[280];
    heft__escape(escaped, sizeof escaped, name, len);
    heft__fail(scan->err, HEFT_CORRUPT, HEFT_FAULT_SHARD_NAME, "shard name \"%s\" at offset %llu: %s", escaped,
               (index_number)at, why);
    heft__error_at(scan->err, at, HEFT_NONE, HEFT_NONE);
    return HEFT_CORRUPT;
}

/* ---- shards -------------------------------------------------------------------------------------------------------
 */

static uint32_t index_find_shard(const index_scan *scan, uint32_t hash, const char *name, size_t len) {
    uint64_t cursor = heft__hash_start(&scan->shards, hash);
    uint32_t number;
    while (heft__hash_next(&scan->shards, hash, &cursor, &number)) {
        const char *other = scan->index->shards[number];
        if (strlen(other) == len && memcmp(other, name, len) == 0) return number;
    }
    return UINT32_MAX;
}

/* Makes the shard that a string token names the last one. */
static heft_status index_take_shard(index_scan *scan, const heft__json_token *token) {
    heft__index *index = scan->index;
    char *name = index->text + token->offset + 1;
    size_t len = heft__json_unescape(token, name);
    const char *why = heft__path_component_fault(name, len);
    if (why) return index_fail_shard(scan, name, len, token->offset, why);
    name[len] = 0;
    uint32_t hash = heft__hash_name(&scan->shards, name, len), number = index_find_shard(scan, hash, name, len);
    if (number == UINT32_MAX) {
        uint64_t capacity = index->shards_capacity;
        number = index->nshards;
        bool grown = heft__grow(&index->alloc, (void **)&index->shards, &capacity, number, sizeof *index->shards, 16);
        index->shards_capacity = (uint32_t)capacity;
        if (!grown || !heft__hash_add(&scan->shards, hash, number)) return heft__fail_memory(scan->err, len);
        index->shards[index->nshards++] = name;
    }
    scan->last = token->escaped ? NULL : index->shards[number];
    scan->last_len = (uint32_t)len;
    scan->last_shard = number;
    return HEFT_OK;
}

/* ---- names --------------------------------------------------------------------------------------------------------
 */

static bool index_append(index_scan *scan, const char *name, size_t len, uint32_t shard) {
    heft__index *index = scan->index;
    if (!heft__grow(&index->alloc, (void **)&index->items, &index->items_capacity, index->nitems, sizeof *index->items,
                    64))
        return false;
    index->items[index->nitems++] = (heft__index_item){name, (uint32_t)len, shard};
    return true;
}

static const char *index_skip_blanks(const char *p) {
    while (*p == ' ' || *p == '\n' || *p == '\r' || *p == '\t') p++;
    return p;
}

/* Reads , "name": "shard" where the shard is the one before and nothing is escaped, by comparing bytes. False, with
 * nothing changed, for anything else: the reader then reads it. The slack after the text is no blank, quote or digit.
 */
static bool index_plain_pair(index_scan *scan) {
    heft__json *json = &scan->json;
    const char *p = json->text + json->pos;
    if (*p != ',' || !scan->last) return false;
    p = index_skip_blanks(p + 1);
    if (*p != '"') return false;
    size_t start = (size_t)(p - json->text) + 1, quote = heft__json_string_end(json->text, start, json->len);
    p = json->text + quote;
    if (*p != '"') return false;
    p = index_skip_blanks(p + 1);
    if (*p != ':') return false;
    p = index_skip_blanks(p + 1);
    if (*p != '"' || json->len - (size_t)(p + 1 - json->text) <= scan->last_len) return false;
    if (memcmp(p + 1, scan->last, scan->last_len) != 0 || p[1 + scan->last_len] != '"') return false;
    if (!index_append(scan, json->text + start, quote - start, scan->last_shard)) return !(scan->out_of_memory = true);
    scan->index->text[quote] = 0;
    json->pos = (size_t)(p - json->text) + scan->last_len + 2;
    return true;
}

/* Makes the table of names and refuses a name that stands twice. The table is larger than the caches, so the slots of a
 * batch of names are asked for before the first of them is needed. */
static heft_status index_check_names(index_scan *scan) {
    heft__index *index = scan->index;
    heft__hash_index *names = &index->names;
    heft_status status = HEFT_OK;
    if (!heft__hash_index_init(names, &index->alloc, index->nitems))
        return heft__fail_memory(scan->err, index->nitems * 8);
    for (uint64_t from = 0; from < index->nitems && !status; from += INDEX_BATCH) {
        uint32_t hashes[INDEX_BATCH], number;
        uint64_t n = index->nitems - from < INDEX_BATCH ? index->nitems - from : INDEX_BATCH;
        for (uint64_t i = 0; i < n; i++) {
            hashes[i] = heft__hash_name(names, index->items[from + i].name, index->items[from + i].name_len);
            __builtin_prefetch(&names->slots[heft__hash_start(names, hashes[i])], 1);
        }
        for (uint64_t i = 0; i < n && !status; i++) {
            const heft__index_item *item = &index->items[from + i];
            for (uint64_t at = heft__hash_start(names, hashes[i]); heft__hash_next(names, hashes[i], &at, &number);) {
                const heft__index_item *other = &index->items[number];
                if (other->name_len != item->name_len || memcmp(other->name, item->name, item->name_len) != 0) continue;
                status = index_fail_name(scan, item, (uint64_t)(item->name - index->text) - 1,
                                         (uint64_t)(other->name - index->text) - 1);
                break;
            }
            if (!status && !heft__hash_add(names, hashes[i], (uint32_t)(from + i)))
                status = heft__fail_memory(scan->err, index->nitems * 8);
        }
    }
    return status;
}

/* ---- the text -----------------------------------------------------------------------------------------------------
 */

static heft_status index_read_map(index_scan *scan, const heft__json_token *key) {
    heft__json_token token, value;
    if (scan->has_map) return index_fail(scan, HEFT_FAULT_INDEX_SYNTAX, key->offset, "a second weight_map", "");
    scan->has_map = true;
    if (heft__json_next(&scan->json, &token) != HEFT__JSON_OBJECT)
        return index_fail_token(scan, &token, "weight_map: expected an object, found ");
    scan->map_at = token.offset;
    for (;;) {
        while (index_plain_pair(scan)) continue;
        if (scan->out_of_memory) return heft__fail_memory(scan->err, sizeof(heft__index_item));
        if (heft__json_next(&scan->json, &token) != HEFT__JSON_KEY) break;
        if (heft__json_next(&scan->json, &value) != HEFT__JSON_STRING)
            return index_fail_token(scan, &value, "a value of weight_map: expected the name of a file, found ");
        heft_status status = index_take_shard(scan, &value);
        if (status) return status;
        char *name = scan->index->text + token.offset + 1;
        size_t len = heft__json_unescape(&token, name);
        name[len] = 0;
        if (!index_append(scan, name, len, scan->last_shard))
            return heft__fail_memory(scan->err, sizeof(heft__index_item));
    }
    scan->last = NULL;
    if (token.type == HEFT__JSON_ERROR) return index_fail_token(scan, &token, "");
    return index_check_names(scan);
}

/* metadata.total_size; everything else in it is somebody else's business. */
static heft_status index_read_metadata(index_scan *scan) {
    heft__json_token token, value;
    if (heft__json_next(&scan->json, &token) == HEFT__JSON_ERROR) return index_fail_token(scan, &token, "");
    if (token.type != HEFT__JSON_OBJECT)
        return heft__json_skip(&scan->json, &token) ? HEFT_OK : index_fail_token(scan, &token, "");
    while (heft__json_next(&scan->json, &token) == HEFT__JSON_KEY) {
        uint64_t size;
        bool is_size = heft__json_equals(&token, "total_size", 10);
        if (heft__json_next(&scan->json, &value) != HEFT__JSON_ERROR && is_size)
            scan->index->total_size = heft__json_u64(&value, &size) ? size : HEFT_NONE;
        if (!heft__json_skip(&scan->json, &value)) break;
    }
    if (scan->json.error) {
        token.type = HEFT__JSON_ERROR;
        return index_fail_token(scan, &token, "");
    }
    return HEFT_OK;
}

static bool index_is_error_key(const heft__json_token *key) {
    static const char *const names[] = {"error", "errors", "message", "detail"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (heft__json_equals(key, names[i], strlen(names[i]))) return true;
    return false;
}

static heft_status index_parse(index_scan *scan) {
    heft__index *index = scan->index;
    heft__json_token token;
    size_t bad = heft__utf8_check(index->text, (size_t)index->text_nbytes);
    if (bad != index->text_nbytes) return index_fail(scan, HEFT_FAULT_INDEX_SYNTAX, bad, "bad UTF-8", "");
    heft__json_init(&scan->json, index->text, (size_t)index->text_nbytes);
    if (heft__json_next(&scan->json, &token) != HEFT__JSON_OBJECT)
        return index_fail_token(scan, &token, "an index: expected an object, found ");
    heft_status status = HEFT_OK;
    while (!status && heft__json_next(&scan->json, &token) == HEFT__JSON_KEY) {
        if (heft__json_equals(&token, "weight_map", 10))
            status = index_read_map(scan, &token);
        else if (heft__json_equals(&token, "metadata", 8))
            status = index_read_metadata(scan);
        else {
            scan->has_error = scan->has_error || index_is_error_key(&token);
            if (!heft__json_skip(&scan->json, &token)) break;
        }
    }
    if (status) return status;
    if (!scan->json.error) heft__json_next(&scan->json, &token);
    if (scan->json.error) {
        token.type = HEFT__JSON_ERROR;
        return index_fail_token(scan, &token, "");
    }
    if (!scan->has_map) return index_fail(scan, HEFT_FAULT_INDEX_SYNTAX, 0, "an index without weight_map", "");
    if (scan->index->nitems == 0)
        return index_fail(scan, HEFT_FAULT_EMPTY_INDEX, scan->map_at, "an index whose weight_map names no tensor", "");
    return HEFT_OK;
}

/* What an index file is that does not even begin as JSON, or is the answer of a server. */
static void index_diagnose(index_scan *scan) {
    heft_error err = *scan->err;
    bool object = *index_skip_blanks(scan->index->text) == '{', answer = scan->has_error && !scan->has_map;
    if (err.fault != HEFT_FAULT_INDEX_SYNTAX || (object && !answer)) return;
    err.fault = HEFT_FAULT_JSON_SYNTAX; /* what a header would be found guilty of */
    bool known = heft__diagnose(scan->source, &scan->index->alloc, &err);
    if (known && (!object || err.fault == HEFT_FAULT_JSON_ERROR)) *scan->err = err;
}

heft_status heft__index_read(heft_source *source, const heft_allocator *alloc, uint64_t max_nbytes, heft__index *out,
                             heft_error *err) {
    heft_error local;
    index_scan scan = {.index = out, .source = source, .err = &local};
    uint64_t size = heft_source_size(source), limit = max_nbytes < INDEX_TEXT_LIMIT ? max_nbytes : INDEX_TEXT_LIMIT;
    heft_status status = HEFT_OK;
    memset(out, 0, sizeof *out);
    out->alloc = *alloc;
    out->total_size = HEFT_NONE;
    out->text_nbytes = size;
    if (size > limit) {
        heft__fail(&local, HEFT_LIMIT, HEFT_FAULT_CALLER_LIMIT, "an index of %llu bytes, the limit is %llu",
                   (index_number)size, (index_number)limit);
        heft__error_at(&local, HEFT_NONE, limit, size);
        status = HEFT_LIMIT;
    } else if (!(out->text = heft__alloc(alloc, size + INDEX_SLACK)) ||
               !heft__hash_index_init(&scan.shards, alloc, 16)) {
        status = heft__fail_memory(&local, size + INDEX_SLACK);
    }
    if (!status) {
        memset(out->text + size, 0, INDEX_SLACK);
        status = size ? heft_source_read(source, 0, size, out->text, &local) : HEFT_OK;
    }
    if (!status && (status = index_parse(&scan)) == HEFT_CORRUPT) index_diagnose(&scan);
    heft__hash_index_free(&scan.shards);
    if (!status) return HEFT_OK;
    heft__name_file(&local, source);
    if (err) *err = local;
    heft__index_free(out);
    return status;
}

void heft__index_free(heft__index *index) {
    const heft_allocator *alloc = &index->alloc;
    if (index->text) heft__free(alloc, index->text, index->text_nbytes + INDEX_SLACK);
    heft__free(alloc, index->items, index->items_capacity * sizeof *index->items);
    heft__free(alloc, index->shards, index->shards_capacity * sizeof *index->shards);
    heft__hash_index_free(&index->names);
    memset(index, 0, sizeof *index);
}
