/* ops: a stretch of a row-major array as boxes, so that strided arrays can be copied piece by piece. */
#include "ops/save.h"

bool heft__boxes_next(heft__boxes *boxes) {
    if (boxes->at >= boxes->end) return false;
    uint64_t inner = 1, rest = boxes->at, left = boxes->end - boxes->at;
    for (uint32_t d = boxes->rank; d-- > 0;) { /* where it starts */
        boxes->first[d] = rest % boxes->dims[d];
        rest /= boxes->dims[d];
    }
    /* The widest box that starts here: whole dims inside, a few steps along one, and one index of all those outside. */
    uint32_t along = boxes->rank;
    for (uint32_t d = boxes->rank; d-- > 0 && boxes->at % inner == 0 && inner <= left;) {
        along = d;
        if (boxes->first[d] != 0) break;
        if (inner > left / boxes->dims[d]) break;
        inner *= boxes->dims[d];
    }
    if (along == boxes->rank) { /* rank 0 */
        boxes->nelems = 1;
        boxes->at++;
        return true;
    }
    uint64_t step = 1;
    for (uint32_t d = along + 1; d < boxes->rank; d++) step *= boxes->dims[d];
    uint64_t count = left / step, most = boxes->dims[along] - boxes->first[along];
    if (count > most) count = most;
    for (uint32_t d = 0; d < boxes->rank; d++) boxes->shape[d] = d < along ? 1 : d > along ? boxes->dims[d] : count;
    boxes->nelems = count * step;
    boxes->at += boxes->nelems;
    return true;
}
