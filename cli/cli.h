/* cli: what the commands share: arguments, the screen, inputs, exit codes. */
#ifndef HEFT_CLI_CLI_H
#define HEFT_CLI_CLI_H

#include "base/alloc.h"
#include "base/error.h"
#include "base/json_write.h"
#include "base/os.h"
#include "heft/heft.h"

/* ---- exit codes: a contract, see heft(1) ------------------------------------------------------------------------- */

#define CLI_OK 0
#define CLI_NEGATIVE 1    /* a negative answer: faults found, a bad row */
#define CLI_USAGE 2       /* the command line is wrong */
#define CLI_UNREADABLE 3  /* missing, existing, forbidden, input or output error, neither file nor directory */
#define CLI_BAD_FILE 4    /* the file is corrupt, unsupported, or beyond a limit by its own content */
#define CLI_REFUSED 5     /* something outside of the file refuses: memory, space, a bound of the caller */
#define CLI_INTERNAL 70   /* out of memory, a fault of heft itself */
#define CLI_CANCELLED 130 /* SIGINT, or a callback asked to stop */

/* The exit code of a failure. */
int cli_exit_code(const heft_error *err);
/* Of two exit codes of several paths the one that counts: 3 if either is 3, else the larger. */
int cli_worse(int a, int b);

/* ---- text: a line under construction (text_line.c). Out of memory ends the program with CLI_INTERNAL ------------- */

typedef struct cli_text {
    char *data;
    size_t len, capacity;
} cli_text;

void cli_text_put(cli_text *text, const char *bytes, size_t len);
void cli_text_str(cli_text *text, const char *string);
void cli_text_u64(cli_text *text, uint64_t value);
/* With a comma after each group of three digits. */
void cli_text_grouped(cli_text *text, uint64_t value);
/* "512 B", "1.5 KiB": 1024-based, one decimal. */
void cli_text_size(cli_text *text, uint64_t nbytes);
/* "768", "22.7 M": 1000-based, one decimal. */
void cli_text_count(cli_text *text, uint64_t count);
/* "0.85", rounded half up. Not negative; at most 9 decimals. */
void cli_text_fixed(cli_text *text, double value, uint32_t decimals);
/* "85 us", "21.4 ms", "2.31 s". */
void cli_text_seconds(cli_text *text, double seconds);
/* Bytes in some seconds as "4.31 GB/s", 10^9 bytes. */
void cli_text_rate(cli_text *text, uint64_t nbytes, double seconds);
/* part / whole as "12.5 %". */
void cli_text_percent(cli_text *text, uint64_t part, uint64_t whole);
/* Text of a file or of the user, made harmless for a terminal. */
void cli_text_escaped(cli_text *text, const char *bytes, size_t len);
/* A tensor's name; the empty one is "". */
void cli_text_name(cli_text *text, const char *name, size_t len);
/* "1 tensor", "2 tensors"; plural is singular and "s". */
void cli_text_plural(cli_text *text, uint64_t count, const char *singular);
void cli_text_shape(cli_text *text, uint32_t rank, const uint64_t *shape);
void cli_text_repeat(cli_text *text, const char *string, size_t times);
/* Like printf; no floating point. */
void cli_text_format(cli_text *text, const char *format, ...) HEFT__PRINTF(2, 3);
/* A word that a shell reads as `string`, harmless for a terminal. */
void cli_text_shell(cli_text *text, const char *string);
void cli_text_free(cli_text *text);
/* Columns that escaped text takes on a terminal. */
size_t cli_columns(const char *text, size_t len);
/* Bytes of the longest start of `text` that takes at most `columns`. */
size_t cli_columns_fit(const char *text, size_t len, size_t columns);

/* ---- screen: standard output and error (screen.c) ---------------------------------------------------------------- */

typedef enum cli_style { CLI_PLAIN, CLI_BOLD, CLI_DIM, CLI_GOOD, CLI_BAD, CLI_WARN, CLI_ACCENT } cli_style;

typedef struct cli_screen {
    bool terminal; /* standard output is one */
    bool colour;
    size_t width; /* of the terminal; 0: unlimited */
} cli_screen;

void cli_screen_init(void);
const cli_screen *cli_screen_get(void);
/* Appends text in a style, with escape codes only where colours are wanted. */
void cli_text_styled(cli_text *text, cli_style style, const char *bytes, size_t len);
/* Writes a line to standard output as it is and empties it. False once standard output has failed. */
bool cli_print(cli_text *text);
/* What was printed goes out now. */
void cli_flush(void);
/* Ends standard output: `code`, or CLI_UNREADABLE with a message if it could not be written. */
int cli_finish(int code);
/* "heft: ..." on standard error. */
void cli_complain(const char *format, ...) HEFT__PRINTF(1, 2);
/* "PATH: LABELmessage": led by the file that the message names first, else by the path. */
void cli_text_message(cli_text *line, const char *path, const char *label, const heft_error *err);
/* "heft: PATH: message" with cause and next step where known; the exit code of the failure. */
int cli_fail(const char *path, const heft_error *err);
/* Ends the program: out of memory. An output in progress is removed. */
void cli_die_memory(void);

/* Starts a JSON text on standard output, or ends it, or writes out what has gathered when that is much. */
void cli_json_begin(heft__json_out *json, bool lines);
void cli_json_flush(heft__json_out *json);
void cli_json_end(heft__json_out *json);

/* Pieces (json_parts.c). Metadata: the merged pairs, null if no file has any. */
void cli_json_shape(heft__json_out *json, uint32_t rank, const uint64_t *shape);
void cli_json_metadata(heft__json_out *json, const heft_archive *archive);
/* A number, or the word that JSON has no number for: "nan", "inf", "-inf". */
void cli_json_number(heft__json_out *json, const char *key, double value);
/* A member that is null for HEFT_NONE, or for NULL and "". */
void cli_json_u64_or_null(heft__json_out *json, const char *key, uint64_t value);
void cli_json_text_or_null(heft__json_out *json, const char *key, const char *text);
/* One fault, warning or note, with cause and next step for `path`. */
void cli_json_fault(heft__json_out *json, heft_severity severity, const heft_error *fault, const char *path);

/* ---- arguments (args.c, usage.c) --------------------------------------------------------------------------------- */

typedef struct cli_words {
    const char **items;
    size_t n;
} cli_words;

typedef struct cli_args {
    /* every command */
    bool help, json, quiet, version;
    uint64_t jobs, stdin_limit;
    /* opening */
    bool strict, show_fillers, unknown_dtypes;
    const char *lenient; /* NULL: off; "": all; else class words */
    const char *variant;
    uint32_t index_mode, links;
    uint32_t void1, void2; /* places in CLI_VOID1 and CLI_VOID2 */
    uint64_t max_header;
    cli_words overlay;
    /* ls */
    bool long_rows, names_only, bytes, fold, tree, expand, models, reverse;
    uint32_t order;
    uint64_t depth;
    const char *sort;
    /* info */
    const char *kinds;
    /* show */
    bool stats, force, verbose;
    const char *name, *index, *output;
    uint32_t format;
    /* stats */
    bool hist;
    const char *fail_on;
    /* digest, verify */
    bool sha256, data, sidecar;
    const char *cache;
    /* filters */
    cli_words include, exclude, defer, replicated, tp_rules;
    const char *skip;
    uint32_t preset;
    uint64_t ep_rank, ep_world, experts, tp_rank, tp_world;
    bool tp_ceil;
    /* load, plan, warm, bench */
    uint32_t io, engine;
    uint64_t align, limit, reserve, repeat, samples;
    double multiplier;
    bool touch;
    /* diff */
    bool headers_only, all;
    double tolerance, relative;
    /* copy, align, shard, merge */
    uint32_t to, foreign;
    uint64_t shard_size, header_room;
    const char *dtype, *map, *digest, *stem;
    cli_words dtype_for, transpose, rename, metadata;
    bool saturate, allow_inexact, no_fill, no_sync, verify, dry_run;
    /* edit */
    cli_words set, deleted, dropped;
    bool trim, repair, rebuild_index, in_place, resume, undo, clean;
    /* the rest */
    const char **operands;
    size_t noperands;
    uint32_t lenient_bits; /* made from `lenient` */
} cli_args;

#define CLI_PRESET_ATLAS UINT32_C(1)

#define CLI_FORMAT_UNSET UINT32_C(0)
#define CLI_FORMAT_RAW UINT32_C(1)
#define CLI_FORMAT_JSON UINT32_C(2)
#define CLI_FORMAT_NPY UINT32_C(3)

typedef struct cli_command {
    const char *name;
    uint32_t bit; /* in the table of options */
    int (*run)(const cli_args *args);
    const char *usage, *purpose, *examples;
} cli_command;

extern const cli_command cli_commands[]; /* ends with a NULL name */

/* Fills *args from argv[0..argc); operands are gathered at the front of argv. False: a message was printed. */
bool cli_args_parse(const cli_command *command, int argc, char **argv, cli_args *args);
void cli_args_free(cli_args *args);
/* "4096", "64K", "2GiB", "0": whole numbers, 1024-based units. */
bool cli_parse_size(const char *text, uint64_t *out);
void cli_help(const cli_command *command); /* NULL: of the program */
/* A usage error of a command: prints it with the way to the help; CLI_USAGE. */
int cli_usage_error(const char *command, const char *format, ...) HEFT__PRINTF(2, 3);

int cli_ls(const cli_args *args);
int cli_models(const cli_args *args);
int cli_info(const cli_args *args);
int cli_show(const cli_args *args);
int cli_check(const cli_args *args);
int cli_stats(const cli_args *args);
int cli_plan(const cli_args *args);
int cli_load(const cli_args *args);
int cli_warm(const cli_args *args);
int cli_bench(const cli_args *args);
int cli_diff(const cli_args *args);
int cli_copy(const cli_args *args);
int cli_align(const cli_args *args);
int cli_shard(const cli_args *args);
int cli_merge(const cli_args *args);
int cli_edit_command(const cli_args *args);
int cli_digest(const cli_args *args);
int cli_verify(const cli_args *args);

/* ---- inputs (inputs.c) ------------------------------------------------------------------------------------------- */

/* At most one of the paths may be "-". False: a message was printed. */
bool cli_one_stdin(const cli_args *args, size_t first, size_t count);
heft_open_options cli_open_options(const cli_args *args);
/* The longest header that other readers take. */
#define CLI_MAX_HEADER UINT64_C(100000000)
/* The longest header that may be written: that of other readers, unless a longer one may be read. */
uint64_t cli_max_header(const cli_args *args);
heft_status cli_open(const cli_args *args, const char *path, heft_archive **out, heft_error *err);
heft_status cli_check_path(const cli_args *args, const char *path, heft_report **out, heft_error *err);
/* Warnings of opening on standard error, the first 20 and the count; nothing under --quiet. */
void cli_warn(const cli_args *args, const char *path, const heft_archive *archive);
/* A text file beside the inputs, at most `limit` bytes, with a NUL after it: free *text with the default allocator, *len + 1. */
heft_status cli_read_text(const char *path, uint64_t limit, char **text, size_t *len, heft_error *err);

/* The tensors that the operands after the first name by GLOBs, all without any (pick.c). Warns of a GLOB that matches nothing;
 * NOT_FOUND if none matches anything, and under --strict. Release *ids, also after a failure. */
heft_status cli_pick(const cli_args *args, const heft_archive *archive, heft_order order, heft_buffer *ids, uint64_t *nids,
                     heft_error *err);

/* ---- digests ----------------------------------------------------------------------------------------------------- */

/* How sidecars and JSON name the digest of a tensor. */
#define CLI_DIGEST_ALGORITHM "xxh3-128, 4 MiB chunks"

/* ---- faults: likely cause and next step (advice.c, faults.def) --------------------------------------------------- */

/* Static text with {path} for the path; NULL: nothing useful to say. */
const char *cli_fault_cause(heft_fault fault);
const char *cli_fault_next(heft_fault fault);
/* Appends it with the path put in; nothing for NULL. */
void cli_text_advice(cli_text *text, const char *advice, const char *path);
/* What {path} of an advice is: the path that was given, or the file that is laid over it if that is at fault (overlays.c). */
const char *cli_advised_path(const char *path, const heft_error *err);
/* The arguments of the command that begins; NULL: it has ended. */
void cli_overlays_given(const cli_args *args);

/* ---- folding numbered names (fold.c) ----------------------------------------------------------------------------- */

typedef struct cli_fold_line {
    char *label;    /* "layers.{0-5}.mlp.weight", escaped, in memory of the fold */
    size_t label_len;
    uint64_t id;    /* the first tensor */
    uint64_t count; /* tensors of the same dtype and shape behind it */
    uint64_t place; /* of the first tensor in `ids` */
} cli_fold_line;

typedef struct cli_fold {
    cli_fold_line *lines;
    uint64_t count, capacity;
    heft__arena arena;
} cli_fold;

/* Folds the tensors ids[0..nids): names that differ only in whole numbers between separators, of one dtype and shape, become
 * one line. Lines come in the order of their first tensor in `ids`. */
heft_status cli_fold_make(const heft_archive *archive, const uint64_t *ids, uint64_t nids, cli_fold *out,
                          heft_error *err);
void cli_fold_free(cli_fold *fold);

/* "{0-5}", "{0,2,4}": ascending numbers, `stride` bytes apart; one alone stands without braces. */
void cli_text_number_set(cli_text *text, const uint64_t *first, size_t stride, uint64_t count);

/* ---- tree (tree.c) ----------------------------------------------------------------------------------------------- */

typedef struct cli_tree_options {
    uint64_t depth; /* levels below the root; 0: all */
    bool expand, bytes;
} cli_tree_options;
heft_status cli_tree_print(const heft_archive *archive, const uint64_t *ids, uint64_t nids, const char *root,
                           const cli_tree_options *options, heft_error *err);

/* ---- kind of model (kinds.c, kinds.def) -------------------------------------------------------------------------- */

typedef struct cli_kind {
    char name[128];     /* escaped; "unknown" */
    char certainty[16]; /* "confirmed", "inferred", "unknown" */
    char reason[256];   /* escaped */
    char packing[64];   /* how weights are quantized; "" if they are plain */
    char packing_certainty[16];
    char packing_reason[256]; /* escaped */
    uint32_t packed_bits;    /* of one weight; 0: not known */
    uint64_t packed_tensors; /* tensors that hold several weights an element */
    uint64_t packed_nbytes;
} cli_kind;

/* ---- values (values.c, render.c) --------------------------------------------------------------------------------- */

heft_read_options cli_read_options(const cli_args *args);

/* Prints a view as NumPy prints an array, large ones summarised. Only what is printed is read. */
heft_status cli_render_view(const cli_args *args, const heft_view *view, heft_read_stats *stats, heft_error *err);

/* Writes a view in bounded memory: its little-endian bytes, or its values as nested JSON arrays. */
heft_status cli_write_raw(const cli_args *args, const heft_view *view, heft__output *out, heft_read_stats *stats,
                          heft_error *err);
/* The same as an npy file. */
heft_status cli_write_npy(const cli_args *args, const heft_view *view, heft__output *out, heft_read_stats *stats,
                          heft_error *err);
heft_status cli_write_json_values(const cli_args *args, const heft_view *view, heft__output *out,
                                  heft_read_stats *stats, heft_error *err);
void cli_stats_add(heft_read_stats *sum, const heft_read_stats *more);

#endif
