/* cli: --dtype and --dtype-for, the same for loads and copies. */
#include "loader.h"

#include "base/text.h"

#include <stdlib.h>
#include <string.h>

/* A dtype in letters of either case. */
static heft_dtype dtypes_parse(const char *text) {
    char name[16];
    size_t n = strlen(text);
    if (n >= sizeof name) return HEFT_DTYPE_NONE;
    for (size_t i = 0; i <= n; i++) name[i] = (char)(text[i] >= 'a' && text[i] <= 'z' ? text[i] - 'a' + 'A' : text[i]);
    return heft_dtype_parse(name, n);
}

bool cli_check_glob(const char *command, const char *option, const char *glob) {
    const char *why = NULL;
    size_t at = heft__glob_check(glob, strlen(glob), &why);
    if (at != SIZE_MAX) cli_usage_error(command, "--%s \"%s\": %s, at offset %zu", option, glob, why, at);
    return at == SIZE_MAX;
}

bool cli_glob_matches(const heft_archive *archive, const char *glob) {
    heft_tensor tensor;
    for (uint64_t id = 0; heft_archive_get(archive, id, &tensor, NULL) == HEFT_OK; id++)
        if (heft__glob_match(glob, strlen(glob), tensor.name, tensor.name_len)) return true;
    return false;
}

static bool dtypes_default(const char *command, const char *text, cli_dtypes *out) {
    out->floats = dtypes_parse(text);
    /* what --dtype converts is also what it converts to */
    if (heft_dtype_choose(HEFT_F32, NULL, 0, "", 0, out->floats) == HEFT_F32) return true;
    cli_usage_error(command, "--dtype takes F64, F32, F16 or BF16, not \"%s\"; other dtypes go by --dtype-for", text);
    return false;
}

static bool dtypes_rule(const char *command, const char *word, cli_dtypes *out) {
    const char *equals = strrchr(word, '=');
    heft_dtype dtype = equals && equals != word ? dtypes_parse(equals + 1) : HEFT_DTYPE_NONE;
    if (dtype == HEFT_DTYPE_NONE) {
        cli_usage_error(command, "--dtype-for takes GLOB=DTYPE, such as '*.norm.weight=F32', not \"%s\"", word);
        return false;
    }
    cli_text glob = {0};
    cli_text_put(&glob, word, (size_t)(equals - word));
    cli_text_put(&glob, "", 1);
    out->rules[out->nrules++] = (heft_dtype_rule){glob.data, dtype};
    return cli_check_glob(command, "dtype-for", glob.data);
}

bool cli_dtypes_make(const char *command, const cli_args *args, cli_dtypes *out) {
    *out = (cli_dtypes){0};
    out->rules = calloc(args->dtype_for.n + 1, sizeof *out->rules);
    if (!out->rules) cli_die_memory();
    bool ok = !args->dtype || dtypes_default(command, args->dtype, out);
    for (size_t i = 0; i < args->dtype_for.n && ok; i++) ok = dtypes_rule(command, args->dtype_for.items[i], out);
    return ok;
}

void cli_dtypes_free(cli_dtypes *dtypes) {
    for (size_t i = 0; i < dtypes->nrules; i++) free((void *)(uintptr_t)dtypes->rules[i].glob);
    free(dtypes->rules);
    *dtypes = (cli_dtypes){0};
}
