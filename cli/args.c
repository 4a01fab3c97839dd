/* cli: the table of options, and how a command line becomes cli_args. */
#include "args.h"

#include "base/text.h"

#include <stdlib.h>
#include <string.h>

#define ARGS_AT(member) offsetof(cli_args, member)

/* In the order in which help shows them. */
const cli_option cli_option_table[] = {
    {"long", 'l', ARG_FLAG, ARGS_AT(long_rows), CLI_LS, NULL, NULL, "add offset, alignment and file"},
    {"sort", 0, ARG_TEXT, ARGS_AT(sort), CLI_LS, "KEY[,KEY]", NULL, "name, size (largest first), offset, dtype"},
    {"reverse", 'r', ARG_FLAG, ARGS_AT(reverse), CLI_LS, NULL, NULL, "the other way round"},
    {"order", 0, ARG_CHOICE, ARGS_AT(order), CLI_LS, "ORDER", "natural,bytes,file",
     "natural (layers.2 before layers.10), bytes, file"},
    {"fold", 0, ARG_FLAG, ARGS_AT(fold), CLI_LS, NULL, NULL, "one line for numbered tensors of one form"},
    {"tree", 0, ARG_FLAG, ARGS_AT(tree), CLI_LS, NULL, NULL, "bytes and parameters summed up by name segment"},
    {"depth", 0, ARG_NUMBER, ARGS_AT(depth), CLI_LS, "N", NULL, "levels of the tree"},
    {"expand", 0, ARG_FLAG, ARGS_AT(expand), CLI_LS, NULL, NULL, "do not fold numbered branches of the tree"},
    {"models", 0, ARG_FLAG, ARGS_AT(models), CLI_LS, NULL, NULL, "one row for each PATH"},
    {"names", '1', ARG_FLAG, ARGS_AT(names_only), CLI_LS, NULL, NULL, "names only"},
    {"bytes", 'b', ARG_FLAG, ARGS_AT(bytes), CLI_LS, NULL, NULL, "sizes and counts as exact numbers"},
    {"kinds", 0, ARG_TEXT, ARGS_AT(kinds), CLI_INFO, "FILE", NULL, "rules for kinds of model, asked before heft's own"},
    {"stats", 0, ARG_FLAG, ARGS_AT(stats), CLI_SHOW, NULL, NULL, "statistics of the values instead of the values"},
    {"name", 'n', ARG_TEXT, ARGS_AT(name), CLI_SHOW, "NAME", NULL, "the tensor's exact name"},
    {"index", 'i', ARG_TEXT, ARGS_AT(index), CLI_SHOW, "INDEX", NULL, "what to take of it: \"0:4, ::2, -1, ..., None\""},
    {"output", 'o', ARG_TEXT, ARGS_AT(output), CLI_SHOW, "FILE", NULL, "write the values to a file, - for standard output"},
    {"sha256", 0, ARG_FLAG, ARGS_AT(sha256), CLI_DIGEST, NULL, NULL, "SHA-256 of the files, as sha256sum prints it"},
    {"data", 0, ARG_FLAG, ARGS_AT(data), CLI_DIGEST, NULL, NULL,
     "one digest of all, whatever the order, names and files"},
    {"sidecar", 0, ARG_FLAG, ARGS_AT(sidecar), CLI_DIGEST, NULL, NULL,
     "write the digests of each file beside it, to\nFILE.xxh3.json, for heft verify"},
    {"output", 'o', ARG_TEXT, ARGS_AT(output), CLI_DIGEST, "FILE", NULL, "write SHA-256 of the files to FILE, for sha256sum -c"},
    {"cache", 0, ARG_TEXT, ARGS_AT(cache), CLI_DIGEST, "FILE", NULL,
     "with --sha256 or -o: keep SHA-256 in FILE, and do not read\nfiles again that were not written since"},
    {"cache", 0, ARG_TEXT, ARGS_AT(cache), CLI_VERIFY, "FILE", NULL,
     "with MANIFEST: keep SHA-256 in FILE, and do not read files\nagain that were not written since"},
    {"format", 0, ARG_CHOICE, ARGS_AT(format), CLI_SHOW, "FORMAT", "unset,raw,json,npy",
     "of the output: raw (little-endian), json or npy (the\ndefault for FILE.npy)"},
    {"force", 'f', ARG_FLAG, ARGS_AT(force), CLI_SHOW | CLI_DIGEST | CLI_COPIERS, NULL, NULL, "replace what is there"},
    {"verbose", 'v', ARG_FLAG, ARGS_AT(verbose), CLI_SHOW, NULL, NULL, "say what was read, and whether a view needs a copy"},
    {"verbose", 'v', ARG_FLAG, ARGS_AT(verbose), CLI_CHECK, NULL, NULL, "account for every byte"},
    {"hist", 0, ARG_FLAG, ARGS_AT(hist), CLI_STATS, NULL, NULL, "draw how values are distributed over powers of two"},
    {"fail-on", 0, ARG_TEXT, ARGS_AT(fail_on), CLI_STATS, "KIND,...", NULL,
     "the exit status is 1 if there is any of them: nan, inf"},
    {"include", 0, ARG_LIST, ARGS_AT(include), CLI_LOADERS | CLI_COPIERS | CLI_VERIFY, "GLOB", NULL,
     "only tensors that match; may be given again"},
    {"exclude", 0, ARG_LIST, ARGS_AT(exclude), CLI_LOADERS | CLI_COPIERS | CLI_VERIFY, "GLOB", NULL,
     "not the tensors that match; may be given again"},
    {"skip", 0, ARG_TEXT, ARGS_AT(skip), CLI_LOADERS, "KIND,...", NULL,
     "leave out what serving does not read: vision, mtp,\nactivation-scales"},
    {"defer", 0, ARG_LIST, ARGS_AT(defer), CLI_LOADERS, "GLOB", NULL, "locate what matches, and do not read it"},
    {"ep-rank", 0, ARG_RANK, ARGS_AT(ep_rank), CLI_LOADERS, "R", NULL, "this process's place in the expert-parallel group"},
    {"ep-world", 0, ARG_NUMBER, ARGS_AT(ep_world), CLI_LOADERS, "W", NULL, "processes that share the experts"},
    {"experts", 0, ARG_NUMBER, ARGS_AT(experts), CLI_LOADERS, "N", NULL, "experts of a layer"},
    {"preset", 0, ARG_CHOICE, ARGS_AT(preset), CLI_LOADERS, "NAME", "none,atlas,vllm",
     "whose rules for experts: atlas or vllm"},
    {"replicated", 0, ARG_LIST, ARGS_AT(replicated), CLI_LOADERS, "PREFIX", NULL,
     "names that every rank keeps (mtp.); may be given again"},
    {"tp-rank", 0, ARG_RANK, ARGS_AT(tp_rank), CLI_LOADERS, "R", NULL, "this process's place in the tensor-parallel group"},
    {"tp-world", 0, ARG_NUMBER, ARGS_AT(tp_world), CLI_LOADERS, "W", NULL, "processes that share the tensors"},
    {"tp-rule", 0, ARG_LIST, ARGS_AT(tp_rules), CLI_LOADERS, "GLOB=AXIS", NULL,
     "cut what matches along an axis: a number, row (whole\nrows) or column (a part of each row); the first that\n"
     "matches counts"},
    {"tp-ceil", 0, ARG_FLAG, ARGS_AT(tp_ceil), CLI_LOADERS, NULL, NULL,
     "what does not divide: the last ranks get less"},
    {"io", 0, ARG_CHOICE, ARGS_AT(io), CLI_PLAN | CLI_LOAD, "PATH", "auto,map,buffered,direct",
     "auto: chosen for each file; or all by map, buffered,\ndirect"},
    {"engine", 0, ARG_CHOICE, ARGS_AT(engine), CLI_PLAN | CLI_LOAD, "ENGINE", "auto,pool,uring", "who reads: auto, pool, uring"},
    {"workers", 'j', ARG_NUMBER, ARGS_AT(jobs), CLI_LOADERS | CLI_BENCH | CLI_COPIERS, "N", NULL,
     "threads (by path and size, up to 4)"},
    {"align", 0, ARG_SIZE, ARGS_AT(align), CLI_PLAN | CLI_LOAD, "N", NULL,
     "bytes that addresses of tensors are a multiple of: a\npower of two up to 4096"},
    {"limit", 0, ARG_SIZE, ARGS_AT(limit), CLI_PLAN | CLI_LOAD, "SIZE", NULL, "refuse to use more memory than that"},
    {"reserve", 0, ARG_SIZE, ARGS_AT(reserve), CLI_LOADERS, "SIZE", NULL, "leave so much memory free"},
    {"multiplier", 0, ARG_DECIMAL, ARGS_AT(multiplier), CLI_PLAN | CLI_LOAD, "X", NULL,
     "memory that a serving program needs, as a multiple of\nthe kept bytes (1.0)"},
    {"touch", 0, ARG_FLAG, ARGS_AT(touch), CLI_LOAD, NULL, NULL, "then read every byte once, which makes a mapped load honest"},
    {"repeat", 0, ARG_NUMBER, ARGS_AT(repeat), CLI_LOAD, "N", NULL, "load so many times"},
    {"samples", 0, ARG_NUMBER, ARGS_AT(samples), CLI_BENCH, "N", NULL, "rounds, of which the median counts (3)"},
    {"verbose", 'v', ARG_FLAG, ARGS_AT(verbose), CLI_PLAN, NULL, NULL, "list the runs: what is read in one piece"},
    {"tolerance", 0, ARG_AMOUNT, ARGS_AT(tolerance), CLI_DIFF, "X", NULL, "values that differ by no more are close (0)"},
    {"relative", 0, ARG_AMOUNT, ARGS_AT(relative), CLI_DIFF, "X", NULL, "the same as a part of the first value; both are added"},
    {"headers", 0, ARG_FLAG, ARGS_AT(headers_only), CLI_DIFF, NULL, NULL, "names, dtypes, shapes and metadata only"},
    {"all", 0, ARG_FLAG, ARGS_AT(all), CLI_DIFF, NULL, NULL, "list every difference on a terminal too"},
    {"all", 0, ARG_FLAG, ARGS_AT(all), CLI_VERIFY, NULL, NULL, "list all that is not good on a terminal too"},
    {"to", 0, ARG_CHOICE, ARGS_AT(to), CLI_COPY, "FORM", "unset,safetensors,sharded,npz,npy",
     "safetensors, sharded (DST is a folder), npz, npy (one\ntensor); without it by the name of DST. With it DST may\n"
     "be - for standard output, or a pipe"},
    {"shard-size", 0, ARG_SIZE, ARGS_AT(shard_size), CLI_COPY | CLI_ALIGN | CLI_SHARD, "SIZE", NULL,
     "most bytes of tensors in a file of a set (5G)"},
    {"stem", 0, ARG_TEXT, ARGS_AT(stem), CLI_COPY | CLI_ALIGN | CLI_SHARD, "NAME", NULL,
     "what names of files of a set begin with (model)"},
    {"dtype", 0, ARG_TEXT, ARGS_AT(dtype), CLI_COPIERS | CLI_PLAN | CLI_LOAD, "DTYPE", NULL,
     "convert tensors of F64, F32, F16 and BF16 to that one of\nthem"},
    {"dtype-for", 0, ARG_LIST, ARGS_AT(dtype_for), CLI_COPIERS | CLI_PLAN | CLI_LOAD, "GLOB=DTYPE", NULL,
     "convert what matches, of any dtype; may be given again,\nthe last that matches counts"},
    {"saturate", 0, ARG_FLAG, ARGS_AT(saturate), CLI_COPIERS | CLI_PLAN | CLI_LOAD, NULL, NULL,
     "what a dtype cannot hold becomes its nearest number"},
    {"allow-inexact", 0, ARG_FLAG, ARGS_AT(allow_inexact), CLI_COPIERS | CLI_PLAN | CLI_LOAD, NULL, NULL,
     "integers that a float cannot hold exactly are rounded;\nelse they are refused"},
    {"transpose", 0, ARG_LIST, ARGS_AT(transpose), CLI_COPIERS, "GLOB", NULL,
     "swap the last two dims of what matches, if it has two;\nmay be given again"},
    {"rename", 0, ARG_LIST, ARGS_AT(rename), CLI_COPIERS, "S", NULL,
     "'s/PATTERN/REPLACEMENT/', an extended regular\nexpression; with /g every match; may be given again"},
    {"map", 0, ARG_TEXT, ARGS_AT(map), CLI_COPIERS, "FILE", NULL, "new names: a JSON object, old name to new one"},
    {"metadata", 0, ARG_LIST, ARGS_AT(metadata), CLI_COPIERS, "KEY=VALUE", NULL, "set it; may be given again"},
    {"align", 0, ARG_SIZE, ARGS_AT(align), CLI_COPIERS, "N", NULL,
     "start tensors at multiples of N bytes: a power of two,\n16 to 65536 (heft align: 256)"},
    {"header-room", 0, ARG_SIZE, ARGS_AT(header_room), CLI_COPIERS, "SIZE", NULL,
     "pad the header of each file to SIZE: room for later edits\nin place (heft edit)"},
    {"no-fill", 0, ARG_FLAG, ARGS_AT(no_fill), CLI_COPIERS, NULL, NULL, "align by order alone, without filler entries"},
    {"digest", 0, ARG_OPTIONAL, ARGS_AT(digest), CLI_COPIERS, "WHERE", NULL,
     "checksums of all tensors, into metadata (the default) or\na sidecar (FILE.xxh3.json)"},
    {"foreign", 0, ARG_CHOICE, ARGS_AT(foreign), CLI_COPY | CLI_MERGE, "HOW", "refuse,void,uint",
     "to npz and npy, BF16 and floats of 8 bits: refuse; void\n(raw bytes, as ml_dtypes); uint (the same bits)"},
    {"no-sync", 0, ARG_FLAG, ARGS_AT(no_sync), CLI_COPIERS | CLI_DIGEST, NULL, NULL,
     "do not wait for the disk: not safe against a power cut"},
    {"verify", 0, ARG_FLAG, ARGS_AT(verify), CLI_LOAD, NULL, NULL, "compare what has landed with the digests of its files"},
    {"verify", 0, ARG_FLAG, ARGS_AT(verify), CLI_COPIERS, NULL, NULL, "read back what was written before it takes its name"},
    {"dry-run", 'n', ARG_FLAG, ARGS_AT(dry_run), CLI_COPIERS, NULL, NULL, "print the plan and write nothing"},
    {"set", 0, ARG_LIST, ARGS_AT(set), CLI_EDIT, "KEY=VALUE", NULL, "write metadata; may be given again"},
    {"delete", 0, ARG_LIST, ARGS_AT(deleted), CLI_EDIT, "KEY", NULL, "take metadata out; may be given again"},
    {"rename", 0, ARG_LIST, ARGS_AT(rename), CLI_EDIT, "OLD=NEW", NULL, "give a tensor another name; may be given again"},
    {"drop", 0, ARG_LIST, ARGS_AT(dropped), CLI_EDIT, "GLOB", NULL, "leave out tensors that match; may be given again"},
    {"trim", 0, ARG_FLAG, ARGS_AT(trim), CLI_EDIT, NULL, NULL, "cut off bytes after the last tensor"},
    {"repair", 0, ARG_FLAG, ARGS_AT(repair), CLI_EDIT, NULL, NULL,
     "mend what heft check names, where no tensor byte is\nlost by it"},
    {"rebuild-index", 0, ARG_FLAG, ARGS_AT(rebuild_index), CLI_EDIT, NULL, NULL,
     "make the index of a directory new from the headers of\nits shards"},
    {"in-place", 0, ARG_FLAG, ARGS_AT(in_place), CLI_EDIT, NULL, NULL,
     "write only the header of a file, where it stands, if the\nchanges fit: programs that open it meanwhile may see a\n"
     "torn header; a crash leaves a journal beside it"},
    {"resume", 0, ARG_FLAG, ARGS_AT(resume), CLI_EDIT, NULL, NULL,
     "end an interrupted save of a set in directory PATH, or an\nedit in place of file PATH"},
    {"undo", 0, ARG_FLAG, ARGS_AT(undo), CLI_EDIT, NULL, NULL, "take back an interrupted edit in place of file PATH"},
    {"clean", 0, ARG_FLAG, ARGS_AT(clean), CLI_EDIT, NULL, NULL,
     "remove what saves and edits left in directory PATH and\nnobody needs"},
    {"dry-run", 'n', ARG_FLAG, ARGS_AT(dry_run), CLI_EDIT, NULL, NULL, "tell what would change, and change nothing"},
    {"json", 0, ARG_FLAG, ARGS_AT(json), CLI_ALL, NULL, NULL, "JSON, see docs/json.md"},
    {"quiet", 'q', ARG_FLAG, ARGS_AT(quiet), CLI_LS | CLI_INFO | CLI_PLAN, NULL, NULL, "no warnings"},
    {"quiet", 'q', ARG_FLAG, ARGS_AT(quiet), CLI_LOAD | CLI_WARM | CLI_BENCH | CLI_STATS | CLI_DIGEST, NULL, NULL,
     "no warnings, no progress bar"},
    {"quiet", 'q', ARG_FLAG, ARGS_AT(quiet), CLI_SHOW, NULL, NULL, "no warnings, and the values without their title"},
    {"quiet", 'q', ARG_FLAG, ARGS_AT(quiet), CLI_CHECK, NULL, NULL, "the verdicts only"},
    {"quiet", 'q', ARG_FLAG, ARGS_AT(quiet), CLI_DIFF | CLI_VERIFY, NULL, NULL, "the verdict only"},
    {"quiet", 'q', ARG_FLAG, ARGS_AT(quiet), CLI_COPIERS, NULL, NULL, "no warnings, no plan, no progress bar"},
    {"quiet", 'q', ARG_FLAG, ARGS_AT(quiet), CLI_EDIT, NULL, NULL, "the verdict only, and no progress bar"},
    {"strict", 0, ARG_FLAG, ARGS_AT(strict), CLI_ALL, NULL, NULL, "warnings are errors"},
    {"lenient", 0, ARG_OPTIONAL, ARGS_AT(lenient), CLI_ALL, "WORD,...", NULL,
     "admit deviations from the format with a warning: all,\nor of duplicate-name, array-entry, object-dtype,\n"
     "reserved-name, trailing-bytes, hole, nul-padding,\nmissing-shard, index-mismatch"},
    {"index-mode", 0, ARG_CHOICE, ARGS_AT(index_mode), CLI_ALL, "MODE", "exact,prefer,ignore",
     "exact: only what the index names; prefer: all tensors;\nignore: no index"},
    {"void1", 0, ARG_CHOICE, ARGS_AT(void1), CLI_ALL, "DTYPE", CLI_VOID1,
     "what elements of npy and npz are that NumPy wrote as V1:\nF8_E4M3, F8_E5M2, ..."},
    {"void2", 0, ARG_CHOICE, ARGS_AT(void2), CLI_ALL, "DTYPE", CLI_VOID2, "the same of V2: BF16, F16, ..."},
    {"variant", 0, ARG_TEXT, ARGS_AT(variant), CLI_ALL, "WORD", NULL, "fp16 opens model.fp16.safetensors of a directory"},
    {"overlay", 0, ARG_LIST, ARGS_AT(overlay), CLI_OVERLAYS, "FILE", NULL,
     "lay FILE over the checkpoint: its tensors take the place\nof those of the same names; may be given again"},
    {"links", 0, ARG_CHOICE, ARGS_AT(links), CLI_ALL, "WHERE", "follow,beneath",
     "follow: links may lead anywhere; beneath: not out of\nthe directory"},
    {"max-header", 0, ARG_SIZE, ARGS_AT(max_header), CLI_ALL & ~(CLI_COPIERS | CLI_EDIT), "SIZE", NULL,
     "longest header to read (100,000,000 bytes)"},
    {"max-header", 0, ARG_SIZE, ARGS_AT(max_header), CLI_COPIERS | CLI_EDIT, "SIZE", NULL,
     "longest header to read and to write (100,000,000 bytes;\nother readers refuse longer ones)"},
    {"fillers", 0, ARG_FLAG, ARGS_AT(show_fillers), CLI_LS | CLI_INFO, NULL, NULL, "show alignment fillers"},
    {"unknown-dtypes", 0, ARG_FLAG, ARGS_AT(unknown_dtypes), CLI_LS | CLI_INFO, NULL, NULL,
     "list tensors of unknown dtype as opaque bytes"},
    {"unknown-dtypes", 0, ARG_FLAG, ARGS_AT(unknown_dtypes), CLI_COPIERS | CLI_EDIT, NULL, NULL,
     "copy tensors of unknown dtype as they are"},
    {"unknown-dtypes", 0, ARG_FLAG, ARGS_AT(unknown_dtypes), CLI_DIGEST | CLI_VERIFY, NULL, NULL,
     "take tensors of unknown dtype too, as bytes"},
    {"stdin-limit", 0, ARG_SIZE, ARGS_AT(stdin_limit), CLI_ALL, "SIZE", NULL,
     "most that PATH - reads of a pipe (a quarter of the\nfree memory)"},
    {"jobs", 'j', ARG_NUMBER, ARGS_AT(jobs), CLI_READERS | CLI_DIFF, "N", NULL, "threads (up to 4)"},
    {"help", 'h', ARG_FLAG, ARGS_AT(help), CLI_ALL, NULL, NULL, "this text"},
    {NULL, 0, ARG_FLAG, 0, 0, NULL, NULL, NULL},
};

static const struct {
    const char *word;
    uint32_t bit;
} args_lenient[] = {
    {"duplicate-name", HEFT_LENIENT_DUPLICATE_NAME}, {"array-entry", HEFT_LENIENT_ARRAY_ENTRY},
    {"object-dtype", HEFT_LENIENT_OBJECT_DTYPE},     {"reserved-name", HEFT_LENIENT_RESERVED_NAME},
    {"trailing-bytes", HEFT_LENIENT_TRAILING_BYTES}, {"hole", HEFT_LENIENT_HOLE},
    {"nul-padding", HEFT_LENIENT_NUL_PADDING},       {"missing-shard", HEFT_LENIENT_MISSING_SHARD},
    {"index-mismatch", HEFT_LENIENT_INDEX_MISMATCH}, {"all", HEFT_LENIENT_ALL},
};

static bool args_number(const char *text, const char **end, uint64_t *out) {
    uint64_t value = 0;
    const char *at = text;
    for (; *at >= '0' && *at <= '9'; at++) {
        uint64_t digit = (uint64_t)(*at - '0');
        if (value > (UINT64_MAX - digit) / 10) return false;
        value = value * 10 + digit;
    }
    *end = at;
    *out = value;
    return at != text;
}

bool cli_parse_size(const char *text, uint64_t *out) {
    static const char units[] = "KMGT";
    const char *end;
    uint64_t value;
    if (!args_number(text, &end, &value)) return false;
    uint32_t shift = 0;
    if (*end) {
        char upper = (char)(*end >= 'a' && *end <= 'z' ? *end - 'a' + 'A' : *end);
        const char *unit = strchr(units, upper);
        if (unit) {
            shift = 10 * (uint32_t)(unit - units + 1);
            end++;
            if (*end == 'i') end++;
        }
        if (*end == 'B' || *end == 'b') end++;
    }
    if (*end || value > (UINT64_MAX >> shift)) return false;
    *out = value << shift;
    return true;
}

/* The number of `word` among the comma-separated `choices`, or UINT32_MAX. */
static uint32_t args_choice(const char *choices, const char *word) {
    uint32_t number = 0;
    size_t len = strlen(word);
    for (const char *at = choices;; number++) {
        size_t n = strcspn(at, ",");
        if (n == len && memcmp(at, word, n) == 0) return number;
        if (!at[n]) return UINT32_MAX;
        at += n + 1;
    }
}

/* "1", "1.25", ".5", "1e-5": by whole numbers, so that no locale has a say. */
static bool args_decimal(const char *text, double *out) {
    uint64_t value = 0, power = 0;
    int digits = 0, behind = 0;
    bool point = false, negative = false;
    for (; *text && *text != 'e' && *text != 'E'; text++) {
        if (*text == '.' && !point) {
            point = true;
            continue;
        }
        if (*text < '0' || *text > '9' || value > UINT64_MAX / 100) return false;
        value = value * 10 + (uint64_t)(*text - '0');
        behind += point;
        digits++;
    }
    if (*text) {
        const char *end;
        negative = text[1] == '-';
        text += 1 + (text[1] == '-' || text[1] == '+');
        if (!args_number(text, &end, &power) || *end || power > 300) return false;
    }
    int exponent = (negative ? -(int)power : (int)power) - behind;
    double scale = 1;
    for (int i = exponent < 0 ? -exponent : exponent; i > 0; i--) scale *= 10; /* exact up to 10^22 */
    *out = exponent < 0 ? (double)value / scale : (double)value * scale;
    return digits > 0;
}

static void args_append(cli_words *words, const char *value) {
    const char **items = realloc(words->items, (words->n + 1) * sizeof *items);
    if (!items) cli_die_memory();
    words->items = items;
    words->items[words->n++] = value;
}

static bool args_set(const cli_command *command, const cli_option *option, const char *value, cli_args *args) {
    char *at = (char *)args + option->at;
    const char *end;
    uint64_t number = 0;
    uint32_t choice;
    switch (option->kind) {
    case ARG_FLAG: *(bool *)at = true; return true;
    case ARG_TEXT: *(const char **)at = value; return true;
    case ARG_OPTIONAL: *(const char **)at = value ? value : ""; return true;
    case ARG_LIST: args_append((cli_words *)(void *)at, value); return true;
    case ARG_DECIMAL:
    case ARG_AMOUNT:
        if (!args_decimal(value, (double *)(void *)at)) break;
        if (*(double *)(void *)at == 0 && option->kind == ARG_DECIMAL) break;
        return true;
    case ARG_RANK:
    case ARG_NUMBER:
        if (!args_number(value, &end, &number) || *end || number > UINT32_MAX) break;
        if (number == 0 && option->kind == ARG_NUMBER) break;
        *(uint64_t *)at = number;
        return true;
    case ARG_SIZE:
        if (!cli_parse_size(value, &number) || number == 0) break;
        *(uint64_t *)at = number;
        return true;
    case ARG_CHOICE:
        choice = args_choice(option->choices, value);
        if (choice == UINT32_MAX || strcmp(value, "unset") == 0) break;
        *(uint32_t *)at = choice;
        return true;
    }
    const char *choices = option->choices;
    if (choices && strncmp(choices, "unset,", 6) == 0) choices += 6;
    cli_text wanted = {0};
    cli_text_str(&wanted, option->kind == ARG_SIZE     ? "a whole size from 1 such as 64M"
                          : option->kind == ARG_NUMBER ? "a whole number from 1"
                          : option->kind == ARG_RANK   ? "a whole number from 0"
                          : option->kind == ARG_DECIMAL ? "a number above 0 such as 1.25"
                          : option->kind == ARG_AMOUNT  ? "a number from 0 such as 0.001 or 1e-5"
                                                       : "one of ");
    for (; choices && *choices; choices++) cli_text_put(&wanted, *choices == ',' ? ", " : choices, *choices == ',' ? 2 : 1);
    cli_usage_error(command->name, "--%s takes %.*s, not \"%s\"", option->name, (int)wanted.len, wanted.data, value);
    cli_text_free(&wanted);
    return false;
}

/* An option that the command does not have: says which one was meant, if one is near. */
static bool args_unknown(const cli_command *command, const char *name, size_t len) {
    const cli_option *best = NULL;
    uint32_t near = 3;
    for (const cli_option *o = cli_option_table; o->name; o++) {
        uint32_t d = heft__edit_distance(name, len, o->name, strlen(o->name), 3);
        if ((o->commands & command->bit) && d < near) {
            near = d;
            best = o;
        }
    }
    if (best) cli_usage_error(command->name, "unknown option --%.*s; did you mean --%s?", (int)len, name, best->name);
    else cli_usage_error(command->name, "unknown option --%.*s", (int)len, name);
    return false;
}

static bool args_long(const cli_command *command, const char *text, int argc, char **argv, int *at, cli_args *args) {
    size_t len = strcspn(text, "=");
    const char *value = text[len] ? text + len + 1 : NULL;
    for (const cli_option *o = cli_option_table; o->name; o++) {
        if (!(o->commands & command->bit) || strlen(o->name) != len || memcmp(o->name, text, len) != 0) continue;
        if (o->kind == ARG_FLAG && value) {
            cli_usage_error(command->name, "--%s takes no value", o->name);
            return false;
        }
        if (o->kind != ARG_FLAG && o->kind != ARG_OPTIONAL && !value) {
            if (*at + 1 >= argc) {
                cli_usage_error(command->name, "--%s needs a value", o->name);
                return false;
            }
            value = argv[++*at];
        }
        return args_set(command, o, value, args);
    }
    return args_unknown(command, text, len);
}

/* A cluster of short options: "-lr", "-j4", "-o" "FILE". */
static bool args_short(const cli_command *command, const char *text, int argc, char **argv, int *at, cli_args *args) {
    for (; *text; text++) {
        const cli_option *o = cli_option_table;
        while (o->name && !(o->letter == *text && (o->commands & command->bit))) o++;
        if (!o->name) {
            cli_usage_error(command->name, "unknown option -%c", *text >= 0x20 && *text < 0x7F ? *text : '?');
            return false;
        }
        const char *value = NULL;
        if (o->kind != ARG_FLAG) {
            value = text[1] ? text + 1 : NULL;
            if (!value && *at + 1 < argc) value = argv[++*at];
            if (!value) {
                cli_usage_error(command->name, "-%c needs a value", *text);
                return false;
            }
        }
        if (!args_set(command, o, value, args)) return false;
        if (value) break;
    }
    return true;
}

static bool args_lenient_bits(const cli_command *command, cli_args *args) {
    if (!args->lenient) return true;
    if (!*args->lenient) args->lenient_bits = HEFT_LENIENT_ALL;
    for (const char *at = args->lenient; *at;) {
        size_t n = strcspn(at, ","), i = 0, nwords = sizeof args_lenient / sizeof *args_lenient;
        while (i < nwords && !(strlen(args_lenient[i].word) == n && memcmp(args_lenient[i].word, at, n) == 0)) i++;
        if (i == nwords) {
            cli_usage_error(command->name, "--lenient does not know \"%.*s\"", (int)n, at);
            return false;
        }
        args->lenient_bits |= args_lenient[i].bit;
        at += n + (at[n] == ',');
    }
    return true;
}

bool cli_args_parse(const cli_command *command, int argc, char **argv, cli_args *args) {
    bool options = true;
    size_t n = 0;
    memset(args, 0, sizeof *args);
    for (int at = 0; at < argc; at++) {
        const char *word = argv[at];
        if (!options || word[0] != '-' || !word[1]) {
            argv[n++] = argv[at];
        } else if (strcmp(word, "--") == 0) {
            options = false;
        } else if (word[1] == '-') {
            if (!args_long(command, word + 2, argc, argv, &at, args)) return false;
        } else if (!args_short(command, word + 1, argc, argv, &at, args)) {
            return false;
        }
    }
    args->operands = (const char **)argv;
    args->noperands = n;
    return args_lenient_bits(command, args);
}

void cli_args_free(cli_args *args) {
    cli_words *lists[] = {&args->overlay, &args->include, &args->exclude, &args->defer, &args->replicated, &args->tp_rules,
                          &args->dtype_for, &args->transpose, &args->rename, &args->metadata,
                          &args->set, &args->deleted, &args->dropped};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) free(lists[i]->items);
}
