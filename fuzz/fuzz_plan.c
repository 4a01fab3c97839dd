/* fuzz: plans. The input makes tensors, views (also ones that no index makes), destinations and thresholds; whatever the plan
 * accepts is run over a small source and compared with a gather element by element, surroundings included. */
#include "catalog/catalog.h"
#include "ops/run.h"
#include "plan/plan.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define REQUIRE(condition)                                                                                             \
    if (!(condition)) abort()

enum { SOURCE = 1 << 14, ROOM = 1 << 16, TENSORS = 4, VIEWS = 5, ELEMENTS = 4096 };

static uint8_t bytes[SOURCE], got[ROOM], want[ROOM];
static uint64_t read_nbytes;

typedef struct input {
    const uint8_t *data;
    size_t left;
} input;

static uint32_t next(input *in) {
    if (in->left == 0) return 0;
    in->left--;
    return *in->data++;
}

static int64_t read_bytes(void *ctx, uint64_t offset, void *dst, size_t nbytes) {
    (void)ctx;
    if (offset >= SOURCE) return 0;
    if (nbytes > SOURCE - offset) nbytes = (size_t)(SOURCE - offset);
    if (nbytes > 777) nbytes = 777;
    memcpy(dst, bytes + offset, nbytes);
    read_nbytes += nbytes;
    return (int64_t)nbytes;
}

typedef struct world {
    heft_archive archive;
    heft__listing listing, *listings[1];
    heft__entry entries[TENSORS];
    uint64_t shapes[TENSORS][4];
} world;

static void make_tensors(world *w, heft_source *source, input *in) {
    uint64_t at = 8 + next(in) % 16, n = 0;
    memset(w, 0, sizeof *w);
    for (uint32_t i = 0; i < TENSORS; i++) {
        heft__entry *e = &w->entries[n];
        e->dtype = (uint8_t)(1 + next(in) % (HEFT_DTYPE_COUNT - 1));
        e->rank = next(in) % 5;
        uint64_t bits = heft__dtypes[e->dtype].bits;
        for (uint32_t d = 0; d < e->rank; d++) bits *= w->shapes[n][d] = next(in) % 13;
        if (bits % 8 || at + bits / 8 > SOURCE) continue;
        e->name = "t";
        e->name_len = 1;
        e->shape = w->shapes[n];
        e->begin = at;
        e->end = at += bits / 8;
        at += next(in) % 20;
        n++;
    }
    w->listings[0] = &w->listing;
    w->archive.alloc = heft__default_allocator;
    w->archive.files = w->listings;
    w->archive.nfiles = 1;
    w->archive.ntensors = n;
    w->listing.source = source;
    w->listing.entries = w->entries;
    w->listing.nentries = n;
}

static heft_view make_view(const world *w, uint64_t id, input *in) {
    const heft__entry *e = &w->entries[id];
    heft_view v = {.archive = &w->archive, .id = id, .dtype = e->dtype, .rank = e->rank};
    int64_t stride = 1;
    uint32_t form = next(in);
    for (uint32_t d = e->rank; d-- > 0; stride *= (int64_t)e->shape[d]) {
        v.shape[d] = (int64_t)e->shape[d];
        v.stride[d] = stride;
    }
    if (form % 4 == 0) return v;
    if (form % 4 == 1) { /* anything */
        v.rank = next(in) % 4;
        v.offset = (int64_t)next(in) - 4;
        for (uint32_t d = 0; d < v.rank; d++) {
            v.shape[d] = (int64_t)(next(in) % 20) - 1;
            v.stride[d] = (int8_t)next(in);
        }
        return v;
    }
    for (uint32_t d = 0; d < v.rank; d++) { /* an index */
        int64_t n = v.shape[d], start = n ? next(in) % n : 0, step = 1 + next(in) % 3;
        int64_t count = n ? 1 + next(in) % (n - start) : 0;
        count = (count + step - 1) / step;
        v.offset += start * v.stride[d];
        if (form & 16 && count) {
            v.offset += (count - 1) * step * v.stride[d];
            step = -step;
        }
        v.shape[d] = count;
        v.stride[d] *= step;
    }
    for (uint32_t d = 1; form & 32 && d < v.rank; d++) { /* and a permutation */
        uint32_t e2 = next(in) % (d + 1);
        int64_t s = v.shape[d], t = v.stride[d];
        v.shape[d] = v.shape[e2];
        v.stride[d] = v.stride[e2];
        v.shape[e2] = s;
        v.stride[e2] = t;
    }
    return v;
}

static uint64_t count_of(const heft_view *v) {
    uint64_t n = 1;
    for (uint32_t d = 0; d < v->rank; d++) n *= v->shape[d] > 0 ? (uint64_t)v->shape[d] : 0;
    return n;
}

/* Element by element, `dst_bits` between neighbours of each dim. */
static void gather(const heft_view *v, const int64_t *dst_bits, int64_t base_bit, bool swap) {
    uint32_t bits = heft__dtypes[v->dtype].bits, component = heft__dtypes[v->dtype].component_bits;
    const uint8_t *data = bytes + v->archive->files[0]->entries[v->id].begin;
    int64_t index[4] = {0};
    for (uint64_t n = count_of(v); n > 0; n--) {
        int64_t from = v->offset, to = base_bit;
        for (uint32_t d = 0; d < v->rank; d++) {
            from += index[d] * v->stride[d];
            to += index[d] * dst_bits[d];
        }
        for (uint32_t b = 0; b < bits; b++) {
            uint32_t c = b, byte = b % component / 8; /* of its component */
            if (swap && component > 8) c = b - byte * 8 + (component / 8 - 1 - byte) * 8;
            uint64_t f = (uint64_t)from * bits + c, t = (uint64_t)to + b;
            want[t / 8] = (uint8_t)((want[t / 8] & ~(1u << t % 8)) | (uint32_t)(data[f / 8] >> f % 8 & 1) << t % 8);
        }
        for (uint32_t d = v->rank; d-- > 0;) {
            if (++index[d] < v->shape[d]) break;
            index[d] = 0;
        }
    }
}

static heft_plan *make_plan(input *in, bool *swap) {
    static const uint64_t gaps[] = {0, HEFT_NONE, 1, 64};
    heft__plan_request request = {.alloc = heft__default_allocator, .default_workers = 1, .nviews = next(in) % VIEWS};
    uint32_t flags = next(in);
    request.options.gap_nbytes = gaps[flags % 4];
    request.options.block_nbytes = flags & 4 ? 1 + next(in) : 0;
    request.host_is_big_endian = flags & 8;
    request.scratch_most = flags & 16 ? 16 + next(in) : 0;
    request.vector_min = flags & 32 ? 1 + next(in) % 64 : 0;
    request.unit_min = flags & 64 ? 1 + next(in) % 16 : 0;
    request.phase = next(in) * 100;
    *swap = request.host_is_big_endian;
    heft_plan *plan;
    REQUIRE(heft__plan_new(&request, &plan, NULL) == HEFT_OK);
    return plan;
}

static void packed(world *w, input *in) {
    bool swap;
    heft_plan *plan = make_plan(in, &swap);
    uint64_t place = 16;
    heft_error err;
    for (uint32_t i = 0; i < VIEWS && in->left; i++) {
        heft_view v = make_view(w, next(in) % w->archive.ntensors, in);
        uint64_t n = count_of(&v), bits = heft__dtypes[v.dtype].bits;
        if (n > ELEMENTS || place + n * 8 + 16 > ROOM) break;
        heft_status status = heft__plan_add_view(plan, &v, place, NULL, i, &err);
        if (status != HEFT_OK) {
            REQUIRE(status == HEFT_INVALID_ARGUMENT || status == HEFT_LIMIT);
            heft_plan_free(plan);
            return;
        }
        int64_t dst[4], step = (int64_t)bits;
        for (uint32_t d = v.rank; d-- > 0; step *= v.shape[d]) dst[d] = step;
        if (n * bits % 8) want[place + n * bits / 8] = 0;
        gather(&v, dst, (int64_t)place * 8, swap);
        place += (n * bits + 7) / 8 + next(in) % 5;
    }
    REQUIRE(heft__plan_finish(plan, NULL) == HEFT_OK);
    uint8_t *slot = got;
    heft_read_stats stats;
    read_nbytes = 0;
    REQUIRE(heft__run(plan, &slot, &stats, NULL) == HEFT_OK);
    REQUIRE(memcmp(got, want, ROOM) == 0);
    REQUIRE(read_nbytes == stats.requested_nbytes && stats.requested_nbytes <= plan->sum.requested_nbytes);
    heft_plan_free(plan);
}

static void strided(world *w, input *in) {
    bool swap;
    heft_view v = make_view(w, next(in) % w->archive.ntensors, in);
    uint64_t n = count_of(&v), bits = heft__dtypes[v.dtype].bits;
    int64_t nbytes[4], dst[4], step = (int64_t)bits / 8, low = ROOM / 2, high = ROOM / 2;
    if (n > ELEMENTS || bits < 8) return;
    for (uint32_t d = v.rank; d-- > 0;) { /* no two elements in one place, in any order of dims */
        step += next(in) % 4;
        nbytes[d] = next(in) % 4 ? step : -step;
        dst[d] = nbytes[d] * 8;
        step *= v.shape[d] > 0 ? v.shape[d] : 1;
        if (step > ROOM / 4) return;
        if (nbytes[d] < 0) low += nbytes[d] * v.shape[d];
        else high += nbytes[d] * v.shape[d];
    }
    if (low < 16 || high > ROOM - 16) return;
    heft_plan *plan = make_plan(in, &swap);
    if (heft__plan_add_view(plan, &v, 0, nbytes, 0, NULL) == HEFT_OK) {
        gather(&v, dst, ROOM / 2 * 8, swap);
        REQUIRE(heft__plan_finish(plan, NULL) == HEFT_OK);
        uint8_t *slot = got + ROOM / 2;
        REQUIRE(heft__run(plan, &slot, NULL, NULL) == HEFT_OK);
        REQUIRE(memcmp(got, want, ROOM) == 0);
    }
    heft_plan_free(plan);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static heft_source *source;
    if (!source) {
        heft_source_callbacks callbacks = {.struct_size = sizeof callbacks, .size = SOURCE, .read_at = read_bytes};
        for (size_t i = 0; i < SOURCE; i++) bytes[i] = (uint8_t)(i * 31 + i / 251 * 7);
        REQUIRE(heft_source_open_callbacks(&callbacks, "bytes", &source, NULL) == HEFT_OK);
    }
    input in = {data, size};
    bool one = next(&in) % 3 == 0;
    world w;
    make_tensors(&w, source, &in);
    if (w.archive.ntensors == 0) return 0;
    memset(got, 0xA5, ROOM);
    memset(want, 0xA5, ROOM);
    if (one) strided(&w, &in);
    else packed(&w, &in);
    return 0;
}
