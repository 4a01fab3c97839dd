/* cli: the tensors that GLOBs of a command line name. */
#include "copier.h" /* cli_complain_of, cli_glob_matches */

#include "base/error.h"

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

/* What is said of a GLOB without a tensor. */
static void pick_text(cli_text *line, const char *glob) {
    cli_text_str(line, "no tensor matches \"");
    cli_text_escaped(line, glob, strlen(glob));
    cli_text_str(line, strpbrk(glob, "*?[") ? "\"" : "\"; a GLOB is for whole names, with * for any run of bytes");
}

/* A GLOB that matches nothing is a warning; if none does, or under --strict, nothing is done. */
static heft_status pick_check(const cli_args *args, const heft_archive *archive, char **globs, size_t nglobs, bool any,
                              heft_error *err) {
    cli_text line = {0};
    heft_status status = HEFT_OK;
    for (size_t i = 0; i < nglobs && status == HEFT_OK; i++) {
        if (any && cli_glob_matches(archive, globs[i])) continue;
        line.len = 0;
        pick_text(&line, args->operands[i + 1]);
        if (!any || args->strict)
            status = heft__fail(err, HEFT_NOT_FOUND, HEFT_FAULT_NONE, "%.*s", (int)line.len, line.data);
        else if (!args->quiet) {
            cli_text said = {0};
            cli_text_str(&said, "warning: ");
            cli_text_put(&said, line.data, line.len);
            cli_complain_of(args->operands[0], &said);
            cli_text_free(&said);
        }
    }
    cli_text_free(&line);
    return status;
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
    if (status == HEFT_OK) status = pick_check(args, archive, globs, nglobs, *nids > 0, err);
    for (size_t i = 0; i < nglobs; i++) free(globs[i]);
    free(globs);
    return status;
}
