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
    bool npz = len > 4 && strcmp(args->operands[1] + len - 4, ".npz") == 0;
    return cli_copier_run("merge", args, npz ? CLI_COPY_NPZ : CLI_COPY_SAFETENSORS, 0);
}
