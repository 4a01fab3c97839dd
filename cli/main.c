/* cli: the program: finds the command and runs it. */
#include "args.h"
#include "table.h"

#include "base/text.h"

#include <string.h>

const cli_command cli_commands[] = {
    {"ls", CLI_LS, cli_ls,
     "heft ls [OPTIONS] PATH [GLOB ...]\n       heft ls --models [OPTIONS] PATH ...",
     "list tensors: name, dtype, shape, size",
     "  heft ls model.safetensors\n"
     "  heft ls -l --sort size model.safetensors '*.weight'\n"
     "  heft ls --tree --depth 3 model-directory\n"
     "  heft ls --models models/*"},
    {"info", CLI_INFO, cli_info, "heft info [OPTIONS] PATH ...",
     "tell what a model is: kind, size, dtypes, alignment, metadata",
     "  heft info model-directory\n"
     "  heft info --json model.safetensors"},
    {"show", CLI_SHOW, cli_show,
     "heft show [OPTIONS] PATH 'NAME[INDEX]'\n       heft show [OPTIONS] PATH --name NAME [--index INDEX]",
     "show values of a tensor or of a slice of it",
     "  heft show model.safetensors 'embeddings.word_embeddings.weight[0:4, :8]'\n"
     "  heft show --stats model.safetensors pooler.dense.bias\n"
     "  heft show -o row.bin --format raw model.safetensors 'pooler.dense.weight[7]'"},
    {"check", CLI_CHECK, cli_check, "heft check [OPTIONS] PATH ...",
     "tell whether a model is whole and, if not, everything that is wrong",
     "  heft check model.safetensors\n"
     "  heft check -q models/*\n"
     "  heft check --json model-directory"},
    {"stats", CLI_STATS, cli_stats, "heft stats [OPTIONS] PATH [GLOB ...]",
     "tell what the values of tensors are: range, mean, deviation, norm, zeros, NaN",
     "  heft stats model.safetensors\n"
     "  heft stats --hist model-directory '*.weight'\n"
     "  heft stats --json --fail-on nan,inf model-directory"},
    {"diff", CLI_DIFF, cli_diff, "heft diff [OPTIONS] A B",
     "tell how two models differ: names, dtypes, shapes, metadata, values",
     "  heft diff before.safetensors after.safetensors\n"
     "  heft diff --relative 0.01 model-f32 model-bf16\n"
     "  heft diff --headers --json a b"},
    {"digest", CLI_DIGEST, cli_digest, "heft digest [OPTIONS] PATH [GLOB ...]",
     "make checksums of tensors, or of files in the form of sha256sum",
     "  heft digest model.safetensors\n"
     "  heft digest --data model-directory\n"
     "  heft digest -o model-directory/SHA256SUMS model-directory"},
    {"verify", CLI_VERIFY, cli_verify, "heft verify [OPTIONS] PATH [MANIFEST]",
     "tell whether tensors or files are what their checksums say",
     "  heft verify model.safetensors\n"
     "  heft verify --include '*.weight' model-directory\n"
     "  heft verify model-directory model-directory/SHA256SUMS"},
    {"copy", CLI_COPY, cli_copy, "heft copy [OPTIONS] SRC DST",
     "write a model in another form: format, files, dtypes, names, order of bytes",
     "  heft copy model.npz model.safetensors\n"
     "  heft copy --dtype bf16 --dtype-for '*.norm.weight=f32' model-directory model-bf16.safetensors\n"
     "  heft copy --rename 's/^model\\.//' --shard-size 5G --dry-run model-directory renamed/"},
    {"align", CLI_ALIGN, cli_align, "heft align [OPTIONS] SRC DST",
     "write a model so that its tensors start at multiples of 256 bytes",
     "  heft align model.safetensors aligned.safetensors\n"
     "  heft align --align 4096 model-directory aligned/"},
    {"shard", CLI_SHARD, cli_shard, "heft shard [OPTIONS] SRC DIR",
     "write a model as files of at most so many bytes, with an index",
     "  heft shard model.safetensors model-directory\n"
     "  heft shard --shard-size 2G --dry-run model.safetensors model-directory"},
    {"merge", CLI_MERGE, cli_merge, "heft merge [OPTIONS] DIR DST",
     "write a model of several files as one",
     "  heft merge model-directory model.safetensors"},
    {"edit", CLI_EDIT, cli_edit_command, "heft edit [OPTIONS] PATH",
     "change metadata, names and faults of a model, all or nothing",
     "  heft edit --set format=pt --delete note model.safetensors\n"
     "  heft edit --rename lm_head.weight=output.weight --drop 'vision.*' --dry-run model-directory\n"
     "  heft edit --in-place --set format=pt model.safetensors\n"
     "  heft edit --trim model.safetensors\n"
     "  heft edit --rebuild-index model-directory"},
    {"plan", CLI_PLAN, cli_plan, "heft plan [OPTIONS] PATH",
     "tell how a model would be loaded: which tensors, by which path and why, in how much memory",
     "  heft plan model-directory\n"
     "  heft plan --skip vision,mtp --ep-rank 3 --ep-world 8 --experts 512 --preset vllm model-directory\n"
     "  heft plan --io direct --limit 16G --json model-directory"},
    {"load", CLI_LOAD, cli_load, "heft load [OPTIONS] PATH",
     "load a model, or a part of it, into memory and tell what that took",
     "  heft load model-directory\n"
     "  heft load --include 'model.layers.0.*' model-directory\n"
     "  heft load --tp-rank 0 --tp-world 2 --tp-rule '*.q_proj.weight=row' --io map --touch model-directory"},
    {"warm", CLI_WARM, cli_warm, "heft warm [OPTIONS] PATH",
     "bring a model, or a part of it, into the page cache for other programs",
     "  heft warm model-directory\n"
     "  heft warm --exclude 'model.visual.*' --reserve 4G model-directory"},
    {"bench", CLI_BENCH, cli_bench, "heft bench [OPTIONS] PATH",
     "measure each way to load a model beside a bare program that reads the same bytes",
     "  heft bench model-directory\n"
     "  heft bench --samples 7 --json model-directory"},
    {NULL, 0, NULL, NULL, NULL, NULL},
};

static void main_version(void) {
    static const struct {
        uint64_t bit;
        const char *word;
    } features[] = {{HEFT_FEATURE_MAP, "map"},
                    {HEFT_FEATURE_HUGE_PAGES, "huge-pages"},
                    {HEFT_FEATURE_VECTOR_READ, "vector-read"},
                    {HEFT_FEATURE_BIG_ENDIAN, "big-endian"},
                    {HEFT_FEATURE_URING, "uring"},
                    {HEFT_FEATURE_XXHASH, "xxhash"},
                    {HEFT_FEATURE_DEFLATE, "deflate"},
                    {HEFT_FEATURE_OPENSSL, "openssl"}};
    cli_text line = {0};
    cli_text_format(&line, "heft %s", heft_version());
    cli_print(&line);
    cli_text_str(&line, "features:");
    for (size_t i = 0; i < sizeof features / sizeof *features; i++)
        if (heft_features() & features[i].bit) cli_text_format(&line, " %s", features[i].word);
    if (cli_table_fits_by_library()) cli_text_str(&line, " smartcols");
    cli_print(&line);
    cli_text_free(&line);
}

static const cli_command *main_find(const char *word) {
    for (const cli_command *c = cli_commands; c->name; c++)
        if (strcmp(c->name, word) == 0) return c;
    return NULL;
}

static int main_unknown(const char *word) {
    const cli_command *best = NULL;
    uint32_t near = 3;
    for (const cli_command *c = cli_commands; c->name; c++) {
        uint32_t d = heft__edit_distance(word, strlen(word), c->name, strlen(c->name), 3);
        if (d < near) {
            near = d;
            best = c;
        }
    }
    if (best) return cli_usage_error(NULL, "unknown command \"%s\"; did you mean heft %s?", word, best->name);
    return cli_usage_error(NULL, "unknown command \"%s\"; a command such as ls, info, check or load comes before the path", word);
}

static int main_run(int argc, char **argv) {
    if (argc < 2) return cli_usage_error(NULL, "a command is missing");
    const char *word = argv[1];
    if (strcmp(word, "--version") == 0 || strcmp(word, "-V") == 0) {
        main_version();
        return CLI_OK;
    }
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0 || strcmp(word, "help") == 0) {
        const cli_command *command = argc > 2 ? main_find(argv[2]) : NULL;
        if (argc > 2 && !command) return main_unknown(argv[2]);
        cli_help(command);
        return CLI_OK;
    }
    if (word[0] == '-')
        return cli_usage_error(NULL, "%s is no option here: a command such as ls, info, check or load comes first", word);
    const cli_command *command = main_find(word);
    if (!command) return main_unknown(word);
    cli_args args;
    int code = CLI_OK;
    if (!cli_args_parse(command, argc - 2, argv + 2, &args)) code = CLI_USAGE;
    else if (args.help) cli_help(command);
    else if (args.noperands == 0) code = cli_usage_error(command->name, "a path is missing");
    else if (!*args.operands[0]) code = cli_usage_error(command->name, "a path is empty");
    else {
        cli_overlays_given(&args);
        code = command->run(&args);
        cli_overlays_given(NULL);
    }
    cli_args_free(&args);
    return code;
}

int main(int argc, char **argv) {
    heft__os_quiet_sigpipe();
    heft__os_catch_interrupt();
    heft__os_allow_files(); /* an archive holds a file a shard, and the usual limit is 1,024 */
    cli_screen_init();
    return cli_finish(main_run(argc, argv));
}
