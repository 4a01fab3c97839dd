/* Views of no archive, for tests of their arithmetic. */
#ifndef HEFT_TESTS_HELPER_VIEW_H
#define HEFT_TESTS_HELPER_VIEW_H

#include "helper.h"

/* A row-major view of a tensor of this shape. */
heft_view helper_view(heft_dtype dtype, uint32_t rank, const int64_t *shape);

/* "[2,3]" as a view of F32 elements. */
heft_view helper_view_text(heft_dtype dtype, const char *shape);

/* The shape as "[2,3]"; a static buffer. */
const char *helper_shape(const heft_view *view);

/* The element numbers in order, "0 4 8", at most `most` of them (then " ..." follows); a static buffer. */
const char *helper_elements(const heft_view *view, size_t most);

#endif
