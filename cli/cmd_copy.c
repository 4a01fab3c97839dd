/* cli: heft copy, align, shard, merge: a checkpoint in another form. */
#include "copier.h"

#include <string.h>

int cli_copy(const cli_args *args) {
    return cli_copier_run("copy", args, args->to, 0);
}

int cli_align(const cli_args *args) {
    enum { COPY_ALIGN = 256 };
    return cli_copier_run("align", args, CLI_COPY_BY_NAME, COPY_ALIGN);
}

int cli_shard(const cli_args *args) {
    return cli_copier_run("shard", args, CLI_COPY_SHARDED, 0);
}

int cli_merge(const cli_args *args) {
    size_t len = args->noperands == 2 ? strlen(args->operands[1]) : 0;
    const char *suffix = len > 4 ? args->operands[1] + len - 4 : "";
    uint32_t form = strcmp(suffix, ".npz") == 0   ? CLI_COPY_NPZ
                    : strcmp(suffix, ".npy") == 0 ? CLI_COPY_NPY /* of one tensor, or it says why not */
                                                  : CLI_COPY_SAFETENSORS;
    return cli_copier_run("merge", args, form, 0);
}
