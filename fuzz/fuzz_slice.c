/* fuzz: an index text on a view of a random shape. Never crashes; what comes out lies inside the tensor, and its runs are as
 * many bytes as it has.
 * Input: dtype, rank, one byte a dim (0xFF: a dim of 2^63 - 1, where the tensor has no elements), flags, then the text. */
#include "heft/heft.h"
#include "view/view.h"

#include <stdlib.h>
#include <string.h>

static void require(int holds) {
    if (!holds) abort();
}

static void check_inside(const heft_view *view, uint64_t nelems) {
    uint64_t first, end, count = heft_view_nelems(view), bit, nbits, sum = 0;
    heft__view_span(view, &first, &end);
    require(view->rank <= HEFT_MAX_RANK && count <= nelems);
    require(first <= end && end <= nelems);
    require(count == 0 || (uint64_t)view->offset < nelems);
    require(heft_view_is_contiguous(view) ? count == 0 || end - first == count : 1);
    heft_run_iter iter;
    uint64_t bits = heft_dtype_bits(view->dtype), last = HEFT_NONE;
    heft__run_iter_init_bits(&iter, view);
    while (heft__run_iter_next_bits(&iter, &bit, &nbits)) {
        require(nbits && bit != last && bit >= first * bits && bit + nbits <= end * bits);
        last = bit + nbits;
        sum += nbits;
    }
    require(sum == count * bits);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 3) return 0;
    heft_view view = {.dtype = data[0] % (HEFT_DTYPE_COUNT - 1) + 1, .rank = data[1] % (HEFT_MAX_RANK + 1)};
    uint8_t flags = data[2];
    data += 3, size -= 3;
    if (size < view.rank) return 0;
    bool huge = false;
    uint64_t nelems = 1;
    for (uint32_t i = 0; i < view.rank; i++) {
        huge = huge || data[i] == 0xFF;
        view.shape[i] = data[i] == 0xFF ? INT64_MAX : data[i] % 8;
    }
    if (huge) view.shape[0] = 0; /* only a tensor without elements may have such dims */
    for (uint32_t i = 0; i < view.rank; i++)
        if (view.shape[i] == 0) nelems = 0;
    for (uint32_t i = 0; i < view.rank && nelems; i++) {
        if (nelems > 2000) view.shape[i] = 1;
        nelems *= (uint64_t)view.shape[i];
    }
    heft__view_strides(view.shape, view.rank, view.stride);
    data += view.rank, size -= view.rank;
    heft_view out;
    heft_error err;
    if (flags & 1) require(heft_view_permute(&view, NULL, &view, NULL) == HEFT_OK);
    heft_status status = heft_view_index_text(&view, (const char *)data, size, &out, &err);
    if (status != HEFT_OK) {
        require(status == HEFT_INVALID_ARGUMENT || status == HEFT_LIMIT);
        require(err.status == status && err.message[0] && (err.offset == HEFT_NONE || err.offset <= size));
        require(out.archive == NULL && out.dtype == HEFT_DTYPE_NONE);
        return 0;
    }
    check_inside(&out, nelems);
    int64_t flat = -1;
    if (heft_view_reshape(&out, &flat, 1, &view, NULL) == HEFT_OK) check_inside(&view, nelems);
    heft_view_squeeze_all(&out, &out);
    check_inside(&out, nelems);
    return 0;
}
