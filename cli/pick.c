/* cli: the tensors that GLOBs of a command line name. */
#include "cli.h"

#include <stdlib.h>
#include <string.h>

/* A copy of a GLOB. One that is a tensor's name, letter by letter, means that tensor, whatever it holds. */
static char *pick_glob(const char *glob, bool literal) {
    cli_text text = {0};
    for (const char *at = glob; *at; at++) {
        if (literal && strchr("*?[]\\", *at)) cli_text_put(&text, "\\", 1);
        cli_text_put(&text, at, 1);
    }
    cli_text_put(&text, "", 1);
    return text.data;
}

static void pick_none(const char *path, const char *glob) {
    cli_text line = {0};
    cli_text_escaped(&line, path, strlen(path));
    cli_text_str(&line, ": no tensor matches \"");
    cli_text_escaped(&line, glob, strlen(glob));
    cli_text_str(&line, strpbrk(glob, "*?[") ? "\"" : "\"; a GLOB is for whole names, with * for any run of bytes");
    cli_complain("%.*s", (int)line.len, line.data);
    cli_text_free(&line);
}

heft_status cli_pick(const cli_args *args, const heft_archive *archive, heft_order order, heft_buffer *ids, uint64_t *nids,
                     heft_error *err) {
    size_t nglobs = args->noperands - 1;
    char **globs = calloc(nglobs + 1, sizeof *globs);
    if (!globs) cli_die_memory();
    for (size_t i = 0; i < nglobs; i++) {
        const char *glob = args->operands[i + 1];
        uint64_t id;
        globs[i] = pick_glob(glob, heft_archive_find(archive, glob, SIZE_MAX, &id, NULL) == HEFT_OK);
    }
    heft_selection selection = {.struct_size = sizeof selection, .include = (const char *const *)globs, .ninclude = nglobs,
                                .order = order};
    heft_status status = heft_archive_select(archive, &selection, ids, nids, err);
    for (size_t i = 0; i < nglobs; i++) free(globs[i]);
    free(globs);
    if (status == HEFT_OK && nglobs && *nids == 0)
        for (size_t i = 0; i < nglobs; i++) pick_none(args->operands[0], args->operands[i + 1]);
    return status;
}
