/* peek MODEL TENSOR INDEX: prints a slice of a tensor, reading nothing else. */
#include <heft/heft.h>
#include <stdio.h>

int main(int argc, char **argv) {
    heft_archive *model;
    heft_view view;
    heft_buffer values;
    heft_error err;
    if (argc != 4) return 2;
    if (heft_archive_open(argv[1], NULL, &model, &err) || heft_view_named(model, argv[2], SIZE_MAX, &view, &err) ||
        heft_view_index_text(&view, argv[3], SIZE_MAX, &view, &err) ||
        heft_read_buffer(&view, NULL, &values, NULL, &err)) {
        fprintf(stderr, "%s\n", err.message);
        return 1;
    }
    for (uint64_t i = 0; i < heft_view_nelems(&view); i++) {
        char text[64];
        heft_scalar value = heft_dtype_get(view.dtype, values.data, i);
        heft_scalar_text(view.dtype, &value, text);
        puts(text);
    }
    heft_buffer_release(&values);
    heft_archive_unref(model);
}
