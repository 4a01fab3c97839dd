/* ops: what a folder holds, decided by the names of its files alone. */
#include "base/text.h"
#include "ops/ops.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char folder_suffix[] = ".safetensors";
static const char folder_index_suffix[] = ".safetensors.index.json";

static bool folder_ends(const char *name, const char *end) {
    size_t n = strlen(name), m = strlen(end);
    return n >= m && memcmp(name + n - m, end, m + 1) == 0;
}

static bool folder_starts(const char *name, const char *start) {
    return strncmp(name, start, strlen(start)) == 0;
}

bool heft__is_index_name(const char *name) {
    return folder_ends(name, ".index.json") || (strstr(name, ".safetensors.index.") && folder_ends(name, ".json"));
}

/* Dot files are no part of a checkpoint: saves stage theirs under such names. */
bool heft__is_tensor_file(const heft__directory_entry *entry) {
    return entry->kind != HEFT__FILE_DIRECTORY && entry->name[0] != '.' && folder_ends(entry->name, folder_suffix);
}

const heft__directory_entry *heft__folder_find(const heft__directory_entry *entries, uint64_t nentries,
                                               const char *name) {
    uint64_t low = 0, high = nentries;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        int order = strcmp(entries[middle].name, name);
        if (order == 0) return entries[middle].kind == HEFT__FILE_DIRECTORY ? NULL : &entries[middle];
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

/* Digits that end at name[*end]; moves *end before them. */
static bool folder_number(const char *name, size_t *end, uint64_t *value) {
    size_t at = *end;
    while (at && name[at - 1] >= '0' && name[at - 1] <= '9') at--;
    if (at == *end || *end - at > 18) return false;
    *value = 0;
    for (size_t i = at; i < *end; i++) *value = *value * 10 + (uint64_t)(name[i] - '0');
    *end = at;
    return true;
}

bool heft__shard_number_parse(const char *name, heft__shard_number *out) {
    if (!folder_ends(name, folder_suffix)) return false;
    size_t end = strlen(name) - (sizeof folder_suffix - 1), whole = end;
    /* A variant may stand behind the total: model-00001-of-00002.fp16.safetensors. */
    size_t dot = end;
    while (dot && name[dot - 1] != '.' && name[dot - 1] != '-') dot--;
    if (dot && name[dot - 1] == '.') end = dot - 1;
    out->variant = end != whole;
    if (!folder_number(name, &end, &out->total) || end < 4 || memcmp(name + end - 4, "-of-", 4) != 0) return false;
    end -= 4;
    if (!folder_number(name, &end, &out->number) || end < 2 || name[end - 1] != '-') return false;
    out->stem_len = end - 1;
    return true;
}

bool heft__shard_number_fits(const char *name) {
    heft__shard_number shard;
    return !heft__shard_number_parse(name, &shard) || (shard.number >= 1 && shard.number <= shard.total);
}

/* ---- names of a variant ---- */

/* True if `.variant` stands in `name` right before name[end]. */
static bool folder_variant_before(const char *name, size_t end, const char *variant) {
    size_t n = strlen(variant);
    return end > n && name[end - n - 1] == '.' && memcmp(name + end - n, variant, n) == 0;
}

/* Whether a file of tensors is of the variant: NAME.V.safetensors, NAME.V-1-of-2.safetensors,
 * NAME-1-of-2.V.safetensors. */
static bool folder_is_variant(const char *name, const char *variant) {
    heft__shard_number number;
    if (folder_variant_before(name, strlen(name) - (sizeof folder_suffix - 1), variant)) return true;
    return heft__shard_number_parse(name, &number) && folder_variant_before(name, number.stem_len, variant);
}

static bool folder_is_index(const char *name, const char *variant) {
    if (!variant) return folder_ends(name, folder_index_suffix);
    char end[300];
    if (folder_ends(name, folder_index_suffix))
        return folder_variant_before(name, strlen(name) - (sizeof folder_index_suffix - 1), variant);
    snprintf(end, sizeof end, ".safetensors.index.%s.json", variant);
    if (folder_ends(name, end)) return true;
    snprintf(end, sizeof end, ".safetensors.%s.index.json", variant);
    return folder_ends(name, end);
}

/* ---- the rules ---- */

typedef struct folder_rules {
    const heft__directory_entry *entries;
    uint64_t nentries;
    const char *variant;
    heft__arena *arena;
    heft__folder_choice *out;
} folder_rules;

/* Room for as many names as there are entries. */
static const char **folder_names(folder_rules *rules) {
    if (!rules->out->names)
        rules->out->names =
            heft__arena_alloc(rules->arena, rules->nentries * sizeof *rules->out->names, sizeof(void *));
    rules->out->nnames = 0;
    return rules->out->names;
}

static bool folder_take(folder_rules *rules, const char *name, const char *how) {
    const char **names = folder_names(rules);
    if (!names) return false;
    names[0] = name;
    rules->out->nnames = 1;
    rules->out->how = how;
    return true;
}

static void folder_refuse(folder_rules *rules, const char *what) {
    rules->out->fault = HEFT_FAULT_AMBIGUOUS;
    rules->out->what = what;
}

/* Rule 1: an index. True: decided. */
static bool folder_rule_index(folder_rules *rules) {
    static const char *const stems[] = {"model.", "consolidated."};
    const char *found = NULL;
    uint32_t n = 0;
    for (size_t s = 0; s < sizeof stems / sizeof *stems; s++)
        for (uint64_t i = 0; i < rules->nentries; i++) {
            const char *name = rules->entries[i].name;
            if (rules->entries[i].kind == HEFT__FILE_DIRECTORY || !folder_is_index(name, rules->variant)) continue;
            bool plain = strlen(name) == strlen(stems[s]) - 1 + sizeof folder_index_suffix - 1;
            if (folder_starts(name, stems[s]) && (plain || rules->variant)) {
                rules->out->index = name;
                rules->out->how = "index file";
                return true;
            }
        }
    for (uint64_t i = 0; i < rules->nentries; i++) {
        const heft__directory_entry *entry = &rules->entries[i];
        if (entry->kind == HEFT__FILE_DIRECTORY || entry->name[0] == '.' ||
            !folder_is_index(entry->name, rules->variant))
            continue;
        found = entry->name;
        n++;
    }
    if (n > 1) folder_refuse(rules, "index files");
    if (n == 1) {
        rules->out->index = found;
        rules->out->how = "index file";
    }
    return n > 0;
}

/* Rules 2 and 3b: a file of one of these names. True: decided. */
static bool folder_rule_named(folder_rules *rules, const char *const *stems, size_t nstems, bool *ok) {
    for (size_t i = 0; i < nstems; i++) {
        char name[320];
        if (rules->variant)
            snprintf(name, sizeof name, "%s.%s%s", stems[i], rules->variant, folder_suffix);
        else
            snprintf(name, sizeof name, "%s%s", stems[i], folder_suffix);
        const heft__directory_entry *entry = heft__folder_find(rules->entries, rules->nentries, name);
        if (!entry) continue;
        *ok = folder_take(rules, entry->name, "one file");
        return true;
    }
    return false;
}

/* Rule 3: numbered shards of one stem and one total, or what two known writers name. True: decided. */
static bool folder_rule_shards(folder_rules *rules, bool *ok) {
    static const char *const starts[] = {"model.safetensors-", "consolidated-"};
    const char **names = folder_names(rules), *first = NULL;
    heft__shard_number set = {0, 0, 0, false}, number;
    bool several = false;
    if (!names) {
        *ok = false;
        return true;
    }
    for (uint64_t i = 0; i < rules->nentries; i++) {
        const char *name = rules->entries[i].name;
        if (!heft__is_tensor_file(&rules->entries[i]) || !heft__shard_number_parse(name, &number)) continue;
        if (rules->variant ? !folder_is_variant(name, rules->variant) : number.variant) continue;
        if (!first) {
            first = name;
            set = number;
        }
        several = several || number.stem_len != set.stem_len || memcmp(name, first, set.stem_len) != 0 ||
                  number.total != set.total;
        names[rules->out->nnames++] = name;
    }
    rules->out->total = set.total;
    for (size_t s = 0; !first && !rules->variant && s < sizeof starts / sizeof *starts; s++) {
        for (uint64_t i = 0; i < rules->nentries; i++)
            if (heft__is_tensor_file(&rules->entries[i]) && folder_starts(rules->entries[i].name, starts[s]))
                names[rules->out->nnames++] = rules->entries[i].name;
        if (rules->out->nnames) break;
    }
    if (!rules->out->nnames) return false;
    if (several) {
        folder_refuse(rules, "sets of numbered shards");
        return true;
    }
    rules->out->how = "numbered shards";
    rules->out->no_index = true;
    return true;
}

/* Rule 4, and index = ignore: all files of tensors. */
static bool folder_all(folder_rules *rules) {
    const char **names = folder_names(rules);
    if (!names) return false;
    for (uint64_t i = 0; i < rules->nentries; i++) {
        const heft__directory_entry *entry = &rules->entries[i];
        if (!heft__is_tensor_file(entry) || (rules->variant && !folder_is_variant(entry->name, rules->variant)))
            continue;
        names[rules->out->nnames++] = entry->name;
    }
    return true;
}

bool heft__folder_choose(const heft__directory_entry *entries, uint64_t nentries, heft_index_mode mode,
                         const char *variant, heft__arena *arena, heft__folder_choice *out) {
    static const char *const whole[] = {"model", "consolidated", "weights"};
    static const char *const parts[] = {"diffusion_pytorch_model", "adapter_model"};
    memset(out, 0, sizeof *out);
    out->fault = HEFT_FAULT_NO_CHECKPOINT;
    folder_rules rules = {entries, nentries, variant, arena, out};
    bool ok = true;
    if (mode == HEFT_INDEX_IGNORE) {
        if (!folder_all(&rules)) return false;
        out->how = out->nnames == 0 ? NULL : out->nnames == 1 ? "one file" : "all files of the folder";
        return true;
    }
    if (folder_rule_index(&rules)) return true;
    if (folder_rule_named(&rules, whole, sizeof whole / sizeof *whole, &ok) || folder_rule_shards(&rules, &ok) ||
        folder_rule_named(&rules, parts, sizeof parts / sizeof *parts, &ok))
        return ok;
    if (!folder_all(&rules)) return false;
    if (out->nnames > 1)
        folder_refuse(&rules, "files of tensors and no index");
    else if (out->nnames == 1)
        out->how = "one file";
    return true;
}

/* ---- numbers that are missing ---- */

static int folder_compare_numbers(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

bool heft__missing_numbers(heft__arena *arena, const char *const *names, uint32_t nnames, uint64_t total, char *text,
                           size_t size, uint64_t *count) {
    uint64_t *numbers = heft__arena_alloc(arena, (uint64_t)nnames * sizeof *numbers, 8), next = 1;
    uint32_t n = 0;
    size_t at = 0;
    heft__shard_number parsed;
    if (!numbers) return false;
    for (uint32_t i = 0; i < nnames; i++)
        if (heft__shard_number_parse(names[i], &parsed)) numbers[n++] = parsed.number;
    if (n) qsort(numbers, n, sizeof *numbers, folder_compare_numbers);
    *count = 0;
    text[0] = 0;
    for (uint32_t i = 0; i <= n; i++) {
        uint64_t number = i < n && numbers[i] <= total ? numbers[i] : total + 1;
        if (number < next) continue; /* twice, or no number of this set */
        char range[64];
        uint64_t gap = number - next;
        if (gap == 1)
            snprintf(range, sizeof range, "%llu", (unsigned long long)next);
        else
            snprintf(range, sizeof range, "%llu-%llu", (unsigned long long)next, (unsigned long long)(number - 1));
        if (gap && at + strlen(range) + 8 < size)
            at += (size_t)snprintf(text + at, size - at, "%s%s", at ? ", " : "", range);
        else if (gap && at && text[at - 1] != '.')
            at += (size_t)snprintf(text + at, size - at, " ...");
        *count += gap;
        next = number + 1;
    }
    return true;
}
