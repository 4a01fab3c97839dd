/* cli: digests of files that are kept from command to command, and made where they are not known. */
#include "digest_cache.h"
#include "copier.h"

#include "base/json.h"
#include "base/os_target.h"
#include "base/utf8.h"

#include <stdlib.h>
#include <string.h>

enum { CACHE_VERSION = 1, CACHE_MOST = 10000 };       /* files */
#define CACHE_TEXT_MOST (UINT64_C(32) << 20)          /* bytes that are written, but for the last entry */
#define CACHE_READ_MOST (CACHE_TEXT_MOST + (1 << 20)) /* that are read */

typedef struct cache_entry {
    heft__os_identity file;
    char sum[65];
    const char *path; /* absolute; "": not UTF-8 */
    bool own;         /* this command has seen the file */
} cache_entry;

typedef struct cache_list {
    cache_entry *items;
    uint64_t n, capacity;
    heft__arena paths;
} cache_list;

struct cli_digest_cache {
    const char *path;
    cache_list list;
    bool changed;
    uint64_t nrefused; /* files whose digests cannot be kept, and of the first of them */
    const char *refused, *why;
};

/* ---- entries ----------------------------------------------------------------------------------------------------- */

static void cache_list_free(cache_list *list) {
    heft__free(&heft__default_allocator, list->items, list->capacity * sizeof *list->items);
    heft__arena_free(&list->paths);
}

static void cache_add(cache_list *list, const cache_entry *entry) {
    void *items = list->items;
    if (!heft__grow(&heft__default_allocator, &items, &list->capacity, list->n, sizeof *list->items, 16)) cli_die_memory();
    list->items = items;
    list->items[list->n++] = *entry;
}

static cache_entry *cache_find(const cache_list *list, const heft__os_identity *file) {
    for (uint64_t i = 0; i < list->n; i++)
        if (heft__os_identity_same(&list->items[i].file, file)) return &list->items[i];
    return NULL;
}

/* The file as it was, or as it is now. */
static cache_entry *cache_find_inode(const cache_list *list, const heft__os_identity *file) {
    for (uint64_t i = 0; i < list->n; i++)
        if (list->items[i].file.device == file->device && list->items[i].file.inode == file->inode) return &list->items[i];
    return NULL;
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

static bool cache_key(heft__json *json, const char *key) {
    heft__json_token token;
    return heft__json_next(json, &token) == HEFT__JSON_KEY && heft__json_equals(&token, key, strlen(key));
}

static bool cache_digits(const heft__json_token *token) {
    if (token->type != HEFT__JSON_STRING || token->len != 64) return false;
    for (size_t i = 0; i < 64; i++)
        if (!strchr("0123456789abcdef", token->text[i]) || !token->text[i]) return false;
    return true;
}

/* The members of an object, in the order in which they are written. */
static bool cache_parse_entry(cache_list *list, heft__json *json) {
    static const char *const keys[] = {"device", "inode", "nbytes", "mtime_ns", "ctime_ns"};
    cache_entry entry = {0};
    uint64_t *const numbers[] = {&entry.file.device, &entry.file.inode, &entry.file.nbytes, &entry.file.mtime_ns,
                                 &entry.file.ctime_ns};
    heft__json_token token;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (!cache_key(json, keys[i]) || heft__json_next(json, &token) != HEFT__JSON_NUMBER ||
            !heft__json_u64(&token, numbers[i]))
            return false;
    if (!cache_key(json, "sha256")) return false;
    heft__json_next(json, &token);
    if (!cache_digits(&token)) return false;
    memcpy(entry.sum, token.text, 64);
    if (!cache_key(json, "path") || heft__json_next(json, &token) != HEFT__JSON_STRING) return false;
    char *path = heft__arena_alloc(&list->paths, token.len + 1, 1);
    if (!path) cli_die_memory();
    size_t len = heft__json_unescape(&token, path);
    path[len] = 0;
    entry.path = path;
    if (strlen(path) != len || heft__json_next(json, &token) != HEFT__JSON_OBJECT_END) return false;
    cache_add(list, &entry);
    return true;
}

/* NULL, or what is wrong. */
static const char *cache_parse(cache_list *list, const char *text, size_t len) {
    static const char none[] = "it is no cache of digests as heft writes it";
    heft__json json;
    heft__json_token token;
    uint64_t version;
    if (!len) return NULL; /* made by mktemp */
    heft__json_init(&json, text, len);
    if (heft__utf8_check(text, len) < len || heft__json_next(&json, &token) != HEFT__JSON_OBJECT ||
        !cache_key(&json, "heft_digest_cache") || heft__json_next(&json, &token) != HEFT__JSON_NUMBER ||
        !heft__json_u64(&token, &version))
        return none;
    if (version != CACHE_VERSION) return "it is a cache of digests of another version of heft";
    if (!cache_key(&json, "files") || heft__json_next(&json, &token) != HEFT__JSON_ARRAY) return none;
    while (heft__json_next(&json, &token) == HEFT__JSON_OBJECT)
        if (list->n == CACHE_MOST || !cache_parse_entry(list, &json)) return none;
    bool whole = token.type == HEFT__JSON_ARRAY_END && heft__json_next(&json, &token) == HEFT__JSON_OBJECT_END &&
                 heft__json_next(&json, &token) == HEFT__JSON_END;
    return whole ? NULL : none;
}

/* A file that is not there is an empty cache. CLI_OK, or the exit code of what was said: what is no cache is somebody's file, and
 * never replaced. */
static int cache_read(const char *path, cache_list *list) {
    char *text;
    size_t len;
    heft_error err;
    *list = (cache_list){0};
    heft__arena_init(&list->paths, &heft__default_allocator);
    heft_status status = cli_read_text(path, CACHE_READ_MOST, &text, &len, &err);
    if (status == HEFT_NOT_FOUND) return CLI_OK;
    if (status != HEFT_OK) return cli_fail(path, &err);
    const char *why = cache_parse(list, text, len);
    heft__free(&heft__default_allocator, text, len + 1);
    if (!why) return CLI_OK;
    cli_text line = {0};
    cli_text_str(&line, why);
    cli_text_str(&line, ": neither used nor replaced");
    cli_complain_of(path, &line);
    cli_text_free(&line);
    return CLI_BAD_FILE;
}

int cli_digest_cache_open(const char *command, const cli_args *args, cli_digest_cache **out) {
    const char *path = args->cache, *slash = path ? strrchr(path, '/') : NULL;
    *out = NULL;
    if (!path) return CLI_OK;
    if (strcmp(args->operands[0], "-") == 0)
        return cli_usage_error(command, "--cache is of files, which are known by their paths: - does not go with it");
    if (!*path || heft__output_is_stream(path))
        return cli_usage_error(command, "--cache is read and replaced: \"%s\" is no regular file", path);
    cli_digest_cache *cache = calloc(1, sizeof *cache);
    if (!cache) cli_die_memory();
    cache->path = path;
    int code = cache_read(path, &cache->list);
    cli_text folder = {0}; /* that it is missing is told before hours of reading */
    cli_text_put(&folder, path, slash ? (size_t)(slash - path) + 1 : 0);
    cli_text_put(&folder, "", 1);
    if (code == CLI_OK && slash && !heft__os_is_folder(folder.data)) {
        folder.len = 0;
        cli_text_str(&folder, "the folder in which it would be written is not there");
        cli_complain_of(path, &folder);
        code = CLI_UNREADABLE;
    }
    cli_text_free(&folder);
    if (code == CLI_OK) *out = cache;
    else {
        cache_list_free(&cache->list);
        free(cache);
    }
    return code;
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

static void cache_put_json(heft__json_out *json, const cache_entry *entry) {
    heft__json_out_object(json);
    cli_json_u64(json, "device", entry->file.device);
    cli_json_u64(json, "inode", entry->file.inode);
    cli_json_u64(json, "nbytes", entry->file.nbytes);
    cli_json_u64(json, "mtime_ns", entry->file.mtime_ns);
    cli_json_u64(json, "ctime_ns", entry->file.ctime_ns);
    cli_json_text(json, "sha256", entry->sum);
    cli_json_text(json, "path", entry->path);
    heft__json_out_object_end(json);
}

/* Whether a file that this command has not seen is still there as it was. */
static bool cache_is_there(const cache_entry *entry) {
    heft__os_identity now;
    return heft__os_identity_at(entry->path, &now) && heft__os_identity_same(&now, &entry->file);
}

/* First what this command has seen, then what others have; when there is too much the last are left out. */
static void cache_format(const cache_list *own, const cache_list *others, heft__json_out *json) {
    uint64_t n = 0;
    heft__json_out_object(json);
    cli_json_u64(json, "heft_digest_cache", CACHE_VERSION);
    heft__json_out_key(json, "files", SIZE_MAX);
    heft__json_out_array(json);
    for (uint64_t i = 0; i < own->n; i++) {
        if (!own->items[i].own || n == CACHE_MOST || json->len > CACHE_TEXT_MOST) continue;
        cache_put_json(json, &own->items[i]);
        n++;
    }
    for (uint64_t i = 0; i < others->n && n < CACHE_MOST && json->len <= CACHE_TEXT_MOST; i++) {
        const cache_entry *entry = &others->items[i], *seen = cache_find_inode(own, &entry->file);
        if ((seen && seen->own) || !cache_is_there(entry)) continue;
        cache_put_json(json, entry);
        n++;
    }
    heft__json_out_array_end(json);
    heft__json_out_object_end(json);
    heft__json_out_newline(json);
    if (json->failed) cli_die_memory();
}

static heft_status cache_replace(const char *path, const heft__json_out *json, heft_error *err) {
    heft__output *out;
    heft_status status = heft__output_open(path, true, &out, err);
    if (status != HEFT_OK) return status;
    status = heft__output_write(out, json->text, json->len, err);
    if (status == HEFT_OK) return heft__output_commit(out, err);
    heft__output_abort(out);
    return status;
}

/* CLI_OK, or the exit code of what was said. */
static int cache_write(const cli_digest_cache *cache) {
    cache_list others; /* read again: of two commands at once neither undoes what the other has done before */
    heft__json_out json;
    heft_error err;
    int code = cache_read(cache->path, &others);
    heft__json_out_init(&json, &heft__default_allocator, 2, true);
    if (code == CLI_OK) {
        cache_format(&cache->list, &others, &json);
        if (cache_replace(cache->path, &json, &err) != HEFT_OK) {
            cli_text line = {0};
            cli_text_message(&line, cache->path, "warning: digests are not kept: ", &err);
            cli_complain("%.*s", (int)line.len, line.data);
            cli_text_free(&line);
            code = cli_exit_code(&err);
        }
    }
    heft__json_out_free(&json);
    cache_list_free(&others);
    return code;
}

static void cache_tell_refused(const cli_digest_cache *cache) {
    cli_text line = {0};
    cli_text_str(&line, "note: ");
    cli_text_plural(&line, cache->nrefused, "digest");
    cli_text_str(&line, cache->nrefused == 1 ? " is not kept, of " : " are not kept, such as that of ");
    cli_text_escaped(&line, cache->refused, strlen(cache->refused));
    cli_text_str(&line, ": ");
    cli_text_str(&line, cache->why);
    cli_complain_of(cache->path, &line);
    cli_text_free(&line);
}

int cli_digest_cache_close(const cli_args *args, cli_digest_cache *cache, int code) {
    if (!cache) return code;
    int failure = cache->changed ? cache_write(cache) : CLI_OK;
    if (cache->nrefused && !args->quiet) cache_tell_refused(cache);
    if (args->strict) code = cli_worse(code, failure);
    cache_list_free(&cache->list);
    free(cache);
    return code;
}

/* ---- digests ----------------------------------------------------------------------------------------------------- */

static heft_status cache_hash(const cli_args *args, heft_source *source, char *text, heft_error *err) {
    cli_progress progress;
    heft_read_options options = {.struct_size = sizeof options, .progress = cli_progress_step, .progress_ctx = &progress};
    cli_progress_start(&progress, args->quiet || args->json);
    heft_status status = heft_source_sha256(source, &options, text, err);
    cli_progress_end(&progress);
    return status;
}

/* This command has seen the file, under this path. */
static void cache_see(cli_digest_cache *cache, cache_entry *entry, const char *path) {
    char real[HEFT__TARGET_PATH_MAX];
    if (!heft__target_real_path(path, real) || heft__utf8_check(real, strlen(real)) < strlen(real)) real[0] = 0;
    entry->own = true;
    if (entry->path && strcmp(entry->path, real) == 0) return;
    entry->path = heft__arena_text(&cache->list.paths, real, strlen(real));
    if (!entry->path) cli_die_memory();
    cache->changed = true;
}

static void cache_keep(cli_digest_cache *cache, const heft__os_identity *file, const char *sum, const char *path) {
    cache_entry *entry = cache_find_inode(&cache->list, file), fresh = {0};
    if (!entry) {
        cache_add(&cache->list, &fresh);
        entry = &cache->list.items[cache->list.n - 1];
    }
    entry->file = *file;
    memcpy(entry->sum, sum, sizeof entry->sum);
    cache_see(cache, entry, path);
    cache->changed = true;
}

static heft_status cache_sum(cli_digest_cache *cache, const cli_args *args, const char *path, int fd, bool anew, cli_sum *out,
                             heft_error *err) {
    heft__os_identity before, after;
    const char *why = heft__os_identify(fd, &before);
    cache_entry *entry = why || anew ? NULL : cache_find(&cache->list, &before);
    if (entry) {
        memcpy(out->text, entry->sum, sizeof out->text);
        out->cached = true;
        cache_see(cache, entry, path);
        return HEFT_OK;
    }
    heft_source *source;
    heft_status status = heft_source_open_fd(fd, path, &source, err);
    if (status != HEFT_OK) return status;
    status = cache_hash(args, source, out->text, err);
    heft_source_unref(source);
    if (status != HEFT_OK) return status;
    (void)heft__os_identify(fd, &after);
    if (!heft__os_identity_same(&before, &after)) why = "it changed while it was read";
    if (!why) cache_keep(cache, &before, out->text, path);
    else if (cache->nrefused++ == 0) {
        cache->refused = path;
        cache->why = why;
    }
    return HEFT_OK;
}

heft_status cli_sha256(const cli_args *args, const heft_archive *archive, uint32_t number, cli_digest_cache *cache, bool anew,
                       cli_sum *out, heft_error *err) {
    heft_file file;
    uint64_t nbytes;
    int fd;
    *out = (cli_sum){0};
    if (!cache) return cache_hash(args, heft_archive_source(archive, number), out->text, err);
    heft_status status = heft_archive_file(archive, number, &file, err);
    /* Opened again, as what is kept has to be of the very file that is looked at. */
    if (status == HEFT_OK) status = heft__os_open_read(file.path, false, &fd, &nbytes, err);
    if (status != HEFT_OK) return status;
    status = cache_sum(cache, args, file.path, fd, anew, out, err);
    heft__os_close(fd);
    return status;
}
