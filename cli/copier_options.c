/* cli: a copy: what its flags say about the form, the digests and the metadata of what is written. */
#include "copier.h"
#include "kinds.h"

#include "base/text.h"

#include <stdlib.h>
#include <string.h>

static bool copier_digests(cli_copier *c) {
    const char *where = c->args->digest;
    bool inside = where && (!*where || strcmp(where, "metadata") == 0), beside = where && strcmp(where, "sidecar") == 0;
    if (where && !inside && !beside)
        cli_usage_error(c->command, "--digest goes to metadata or to a sidecar, not to \"%s\"", where);
    else if (where && c->form != CLI_COPY_SAFETENSORS && c->form != CLI_COPY_SHARDED)
        cli_usage_error(c->command, "--digest is for safetensors files; heft digest --sidecar is for others");
    else {
        if (inside) c->options.digests = HEFT_DIGEST_TENSORS | HEFT_DIGEST_DATA;
        if (beside) c->options.digests = HEFT_DIGEST_SIDECAR;
        return true;
    }
    return false;
}

/* A stream is written in order and not looked back at. */
static bool copier_check_stream(const cli_copier *c) {
    const struct {
        bool wrong;
        const char *why;
    } rules[] = {
        {c->form == CLI_COPY_SHARDED || c->form == CLI_COPY_NPZ, "a set or an npz file cannot be written in order"},
        {c->args->digest, "--digest is known only after the tensors"},
        {c->args->verify, "--verify reads back"},
        {c->args->json && !c->args->dry_run, "--json goes to standard output itself"},
        {strcmp(c->target, "-") == 0 && cli_screen_get()->terminal && !c->args->dry_run, "standard output is a terminal"},
    };
    for (size_t i = 0; c->stream && i < sizeof rules / sizeof *rules; i++) {
        if (!rules[i].wrong) continue;
        cli_usage_error(c->command, "\"%s\" is no regular file, and %s", c->target, rules[i].why);
        return false;
    }
    return true;
}

bool cli_copier_check_form(cli_copier *c) {
    bool numpy = c->form == CLI_COPY_NPZ || c->form == CLI_COPY_NPY;
    const char *option = c->options.align        ? "--align"
                         : c->args->metadata.n   ? "--metadata"
                         : c->args->header_room  ? "--header-room"
                                                 : NULL;
    if (numpy && option) cli_usage_error(c->command, "%s is for safetensors files, npz and npy have no such thing", option);
    else if (c->args->shard_size && c->form != CLI_COPY_SHARDED)
        cli_usage_error(c->command, "--shard-size cuts a set, and %s is one file", c->target);
    else if (c->args->stem && c->form != CLI_COPY_SHARDED)
        cli_usage_error(c->command, "--stem names the files of a set, and %s is one file", c->target);
    else if (c->options.align && (c->options.align < 16 || c->options.align > 65536 ||
                                  (c->options.align & (c->options.align - 1))))
        cli_usage_error(c->command, "--align takes a power of two from 16 to 65536, not %llu",
                        (unsigned long long)c->options.align);
    else if (c->args->no_fill && !c->options.align) cli_usage_error(c->command, "--no-fill needs --align");
    else return copier_check_stream(c) && copier_digests(c);
    return false;
}

/* ---- metadata ---------------------------------------------------------------------------------------------------- */

/* Keys that tell of the very bytes of a file: they stay only where all of these stay. */
static bool copier_is_of_bytes(const heft_pair *pair) {
    static const char *const keys[] = {"heft.xxh3", "heft.data_xxh3"}, cache[] = "heft.cache.";
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (heft__bytes_compare(pair->key, pair->key_len, keys[i], strlen(keys[i])) == 0) return true;
    return pair->key_len >= sizeof cache - 1 && memcmp(pair->key, cache, sizeof cache - 1) == 0;
}

/* What is left out is said. */
static void copier_note(const cli_copier *c, const heft_pair *pair) {
    if (c->args->quiet || (c->options.digests & HEFT_DIGEST_TENSORS)) return; /* or made new */
    cli_text line = {0};
    cli_text_str(&line, "note: metadata \"");
    cli_text_escaped(&line, pair->key, pair->key_len);
    cli_text_str(&line, "\" is left out: it is of the source's bytes");
    cli_complain_of(c->source, &line);
    cli_text_free(&line);
}

static bool copier_changes(const cli_copier *c) {
    for (uint64_t i = 0; i < c->nitems; i++)
        if (c->items[i].as) return true;
    return c->nviews || c->nrenamed || c->nitems != heft_archive_count(c->archive) || c->form != CLI_COPY_SAFETENSORS ||
           heft_archive_file_count(c->archive) != 1;
}

static bool copier_set_metadata(cli_copier *c, const char *word) {
    const char *equals = strchr(word, '=');
    if (!equals) {
        cli_usage_error(c->command, "--metadata takes KEY=VALUE, not \"%s\"", word);
        return false;
    }
    heft_pair pair = {word, (size_t)(equals - word), equals + 1, strlen(equals + 1)};
    uint64_t i = 0;
    while (i < c->options.nmetadata && heft__bytes_compare(c->metadata[i].key, c->metadata[i].key_len, pair.key, pair.key_len))
        i++;
    c->metadata[i] = pair;
    if (i == c->options.nmetadata) c->options.nmetadata++;
    return true;
}

/* A config.json of transformers beside the source names who will read the result. */
static void copier_warn_format(cli_copier *c) {
    static const char absent[] = "there is no metadata \"format\", without which transformers refuses a file: "
                                 "--metadata format=pt sets it";
    kind_config config;
    for (uint64_t i = 0; i < c->options.nmetadata; i++)
        if (c->metadata[i].key_len == 6 && memcmp(c->metadata[i].key, "format", 6) == 0) return;
    cli_kinds_config(c->archive, &config);
    if (config.architecture[0]) cli_copier_warn(c, absent, sizeof absent - 1);
}

/* The merged metadata of the source, and what is set; absent and empty stay what they are. */
static bool copier_collect_metadata(cli_copier *c) {
    uint64_t n = heft_archive_metadata_count(c->archive, HEFT_MERGED);
    bool any = c->args->metadata.n > 0;
    heft_file file;
    for (uint32_t i = 0; i < heft_archive_file_count(c->archive) && !any; i++)
        any = heft_archive_file(c->archive, i, &file, NULL) == HEFT_OK && file.has_metadata;
    if (!any) return true;
    c->metadata = calloc((size_t)n + c->args->metadata.n + 1, sizeof *c->metadata);
    if (!c->metadata) cli_die_memory();
    bool changes = copier_changes(c);
    for (uint64_t i = 0; i < n; i++) {
        heft_pair *pair = &c->metadata[c->options.nmetadata];
        if (heft_archive_metadata(c->archive, HEFT_MERGED, i, pair, NULL) != HEFT_OK) continue;
        if (!changes || !copier_is_of_bytes(pair)) c->options.nmetadata++;
        else copier_note(c, pair);
    }
    for (size_t i = 0; i < c->args->metadata.n; i++)
        if (!copier_set_metadata(c, c->args->metadata.items[i])) return false;
    c->options.metadata = c->metadata;
    return true;
}

bool cli_copier_metadata(cli_copier *c) {
    if (c->form == CLI_COPY_NPZ || c->form == CLI_COPY_NPY) {
        static const char lost[] = "npz and npy hold no metadata; it is left out";
        if (heft_archive_metadata_count(c->archive, HEFT_MERGED)) cli_copier_warn(c, lost, sizeof lost - 1);
        return true;
    }
    if (!copier_collect_metadata(c)) return false;
    copier_warn_format(c);
    return true;
}
