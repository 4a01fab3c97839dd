/* stream MODEL MEGABYTES: goes through all tensors of a model, in file order, in so much memory and no more. */
#include <heft/heft.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
    heft_archive *model;
    heft_load_plan *plan;
    heft_load_iter *iter;
    heft_loaded tensor;
    heft_error err;
    uint64_t tensors = 0, nbytes = 0;
    if (argc != 3) return 2;
    uint64_t ring = strtoull(argv[2], NULL, 10) << 20;
    if (heft_archive_open(argv[1], NULL, &model, &err) || heft_load_plan_new(model, NULL, &plan, &err) ||
        heft_load_iter_new(plan, HEFT_LOAD_ORDER_FILE, ring, &iter, &err)) {
        fprintf(stderr, "%s\n", err.message);
        return 1;
    }
    heft_status status;
    while ((status = heft_load_iter_next(iter, &tensor, &err)) == HEFT_OK && tensor.name) {
        tensors++; /* here a program would use tensor.data: copy it to a device, quantise it ... */
        nbytes += tensor.nbytes;
        heft_load_iter_release(iter, &tensor); /* its place may be used again from now on */
    }
    if (status != HEFT_OK) fprintf(stderr, "%s\n", err.message);
    heft_load_iter_free(iter, NULL);
    heft_load_plan_free(plan);
    heft_archive_unref(model);
    if (status != HEFT_OK) return 1;
    printf("%llu tensors, %llu bytes\n", (unsigned long long)tensors, (unsigned long long)nbytes);
    return 0;
}
