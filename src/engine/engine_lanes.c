/* engine: the queue of submitted blocks: ranges in lanes, drawn from without a lock, and no block twice. */
#include "engine/engine_core.h"

/* Of a block that waits the state is its lane + 1. */
enum { LANES_UNKNOWN = 0, LANES_BEGUN = 255 };

void heft__lanes_free(heft__lanes *lanes) {
    for (heft__range *range = lanes->made, *next; range; range = next) {
        next = range->made;
        heft__free(&lanes->alloc, range, sizeof *range);
    }
}

static heft__range *lanes_spare(heft__lanes *lanes) {
    heft__range *range = lanes->spare;
    if (range) {
        lanes->spare = range->next;
        return range;
    }
    range = heft__alloc_zero(&lanes->alloc, sizeof *range);
    if (!range) return NULL;
    range->made = lanes->made;
    lanes->made = range;
    return range;
}

bool heft__lanes_add(heft__lanes *lanes, heft__lane lane, uint64_t first, uint64_t n, uint64_t *fresh) {
    *fresh = 0;
    heft__range *range = lanes_spare(lanes);
    if (!range) return false;
    bool wanted = false;
    uint8_t waits = (uint8_t)(lane + 1);
    for (uint64_t i = first; i < first + n; i++) {
        uint8_t state = atomic_load_explicit(&lanes->states[i], memory_order_relaxed);
        *fresh += state == LANES_UNKNOWN;
        if (state != LANES_UNKNOWN && state <= waits) continue; /* it waits in a lane as urgent as this */
        /* A worker may begin it meanwhile: then it stays begun. */
        if (state != LANES_BEGUN && atomic_compare_exchange_strong(&lanes->states[i], &state, waits)) wanted = true;
    }
    range->next = NULL;
    if (!wanted) {
        range->next = lanes->spare;
        lanes->spare = range;
        return true;
    }
    atomic_store_explicit(&range->cursor, first, memory_order_relaxed);
    range->end = first + n;
    range->holders = 0;
    range->queued = true;
    if (lanes->last[lane]) lanes->last[lane]->next = range;
    else lanes->first[lane] = range;
    lanes->last[lane] = range;
    return true;
}

static void lanes_put_back(heft__lanes *lanes, heft__range *range) {
    if (range->queued || range->holders) return;
    range->next = lanes->spare;
    lanes->spare = range;
}

heft__range *heft__lanes_hold(heft__lanes *lanes, heft__range *held) {
    if (held) {
        held->holders--;
        lanes_put_back(lanes, held);
    }
    for (int lane = 0; lane < HEFT__LANES; lane++)
        for (heft__range *range; (range = lanes->first[lane]) != NULL;) {
            if (atomic_load_explicit(&range->cursor, memory_order_relaxed) < range->end) {
                range->holders++;
                return range;
            }
            lanes->first[lane] = range->next;
            if (!range->next) lanes->last[lane] = NULL;
            range->queued = false;
            lanes_put_back(lanes, range);
        }
    return NULL;
}

bool heft__range_take(heft__lanes *lanes, heft__range *range, uint64_t *number) {
    for (;;) {
        uint64_t n = atomic_fetch_add_explicit(&range->cursor, 1, memory_order_relaxed);
        if (n >= range->end) return false;
        if (atomic_exchange_explicit(&lanes->states[n], LANES_BEGUN, memory_order_relaxed) == LANES_BEGUN) continue;
        *number = n;
        return true;
    }
}
