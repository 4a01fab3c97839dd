/* Views of no archive, for tests of their arithmetic. */
#include "helper_view.h"

#include "view/view.h"

heft_view helper_view(heft_dtype dtype, uint32_t rank, const int64_t *shape) {
    heft_view view = {.dtype = dtype, .rank = rank};
    for (uint32_t i = 0; i < rank; i++) view.shape[i] = shape[i];
    heft__view_strides(view.shape, rank, view.stride);
    return view;
}

heft_view helper_view_text(heft_dtype dtype, const char *shape) {
    int64_t dims[HEFT_MAX_RANK];
    uint32_t rank = 0;
    assert_int_equal(*shape, '[');
    for (const char *at = shape + 1; *at != ']';) {
        char *end;
        dims[rank++] = strtoll(at, &end, 10);
        assert_ptr_not_equal(at, end);
        at = *end == ',' ? end + 1 : end;
    }
    return helper_view(dtype, rank, dims);
}

const char *helper_shape(const heft_view *view) {
    static char text[2048];
    size_t n = 0;
    n += (size_t)sprintf(text + n, "[");
    for (uint32_t i = 0; i < view->rank; i++)
        n += (size_t)sprintf(text + n, "%s%lld", i ? "," : "", (long long)view->shape[i]);
    sprintf(text + n, "]");
    return text;
}

const char *helper_elements(const heft_view *view, size_t most) {
    static char text[4096];
    size_t n = 0;
    uint64_t count = heft_view_nelems(view);
    text[0] = 0;
    for (uint64_t k = 0; k < count; k++) {
        if (k == most) {
            sprintf(text + n, " ...");
            break;
        }
        int64_t element = view->offset;
        uint64_t rest = k;
        for (uint32_t axis = view->rank; axis-- > 0;) {
            element += (int64_t)(rest % (uint64_t)view->shape[axis]) * view->stride[axis];
            rest /= (uint64_t)view->shape[axis];
        }
        n += (size_t)sprintf(text + n, "%s%lld", k ? " " : "", (long long)element);
    }
    return text;
}
