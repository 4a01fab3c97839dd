/* label: threads */
/* Casts on the way: every engine, path and delivery, whole tensors, parts and strided views, against the reference cast of the
 * stored bytes. */
#include "helper_archive.h"
#include "helper_engine.h"
#include "helper_load.h"
#include "helper_random.h"

#include "dtype/cast.h"
#include "ops/run.h"

#include <stdatomic.h>

static heft_error err;

#define OK(call)                                                                                                       \
    do                                                                                                                 \
        if ((call) != HEFT_OK) fail_msg("%s:%d: %s", __FILE__, __LINE__, err.message);                                 \
    while (0)

/* ---- a checkpoint of many dtypes ---- */

static const struct {
    const char *name, *dtype, *shape;
    size_t nbytes;
} kinds[] = {
    {"a.norm", "F32", "7", 28},          {"a.big", "F32", "300,1024", 1228800}, {"a.one", "F32", "", 4},
    {"a.empty", "F32", "0,3", 0},        {"a.double", "F64", "33,5", 1320},     {"a.half", "F16", "40001", 80002},
    {"a.brain", "BF16", "64,65", 8320},  {"a.eight", "F8_E4M3", "1003", 1003},  {"b.flags", "BOOL", "100", 100},
    {"b.ids", "I32", "50", 200},         {"b.bytes", "U8", "5001", 5001},       {"b.scale", "F8_E8M0", "17", 17},
    {"c.large", "F32", "1100000", 4400000},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

/* Small integers in I32, so that they fit everywhere; any bytes in all else. */
static uint8_t *file_bytes(size_t *nbytes) {
    test_tensor tensors[KINDS];
    uint64_t seed = 5;
    for (size_t i = 0; i < KINDS; i++) {
        uint8_t *data = malloc(kinds[i].nbytes + 8);
        for (size_t at = 0; at < kinds[i].nbytes; at++) data[at] = (uint8_t)random_u64(&seed);
        for (size_t at = 0; at < kinds[i].nbytes && strcmp(kinds[i].dtype, "I32") == 0; at += 4) {
            uint32_t small = (uint32_t)random_below(&seed, 100); /* little-endian, as in files */
            for (size_t b = 0; b < 4; b++) data[at + b] = (uint8_t)(small >> (8 * b));
        }
        tensors[i] = (test_tensor){kinds[i].name, kinds[i].dtype, kinds[i].shape, data, kinds[i].nbytes};
    }
    uint8_t *file = test_safetensors(tensors, KINDS, NULL, nbytes);
    for (size_t i = 0; i < KINDS; i++) free((void *)(uintptr_t)tensors[i].data);
    return file;
}

static heft_archive *open_kinds(void) {
    size_t n;
    uint8_t *file = file_bytes(&n);
    heft_archive *archive = load_open(test_write("kinds.safetensors", file, n));
    free(file);
    return archive;
}

static size_t size_of(heft_dtype dtype) {
    return heft_dtype_bits(dtype) / 8;
}

/* A view, read as it is and then converted by the reference; malloc'ed. */
static uint8_t *expect(const heft_view *view, heft_dtype to, uint32_t flags, uint64_t *nbytes) {
    uint64_t n = heft_view_nbytes(view), count = n / size_of(view->dtype);
    uint8_t *raw = malloc(n + 1), *cooked = malloc(count * size_of(to) + 1);
    heft__cast cast;
    OK(heft_read(view, raw, n, NULL, NULL, &err));
    assert_true(heft__cast_find(view->dtype, to, flags | HEFT__CAST_REFERENCE, &cast));
    if (heft__cast_run(&cast, raw, cooked, count) != count) fail_msg("%s", "refused");
    free(raw);
    *nbytes = count * size_of(to);
    return cooked;
}

/* What the rules below make of a tensor. */
static const heft_dtype_rule rules[] = {
    {"a.*", HEFT_F16}, {"a.double", HEFT_BF16}, {"a.eight", HEFT_F32}, {"b.ids", HEFT_U8}, {"b.bytes", HEFT_F64},
    {"b.flags", HEFT_F8_E5M2}, {"b.scale", HEFT_BF16}, {"a.brain", HEFT_F8_E4M3},
};
enum { RULES = sizeof rules / sizeof *rules };

static heft_dtype target(const heft_load_options *o, const heft_tensor *t) {
    heft_dtype to = o->dtype && (t->dtype == HEFT_F32 || t->dtype == HEFT_F64 || t->dtype == HEFT_F16 || t->dtype == HEFT_BF16)
                        ? o->dtype
                        : t->dtype;
    static const char *const exact[] = {"a.double", "a.eight", "b.ids", "b.bytes", "b.flags", "b.scale", "a.brain"};
    if (!o->ndtype_rules) return to;
    if (t->name[0] == 'a') to = HEFT_F16;
    for (size_t i = 0; i < sizeof exact / sizeof *exact; i++)
        if (strcmp(t->name, exact[i]) == 0) to = rules[i + 1].dtype;
    return to;
}

/* ---- what comes out ---- */

typedef struct wanted {
    const heft_archive *archive;
    heft_load_options o;
    uint8_t *data[KINDS];
    uint64_t nbytes[KINDS];
    heft_dtype to[KINDS];
    _Atomic uint32_t seen[KINDS];
    _Atomic uint32_t wrong;
} wanted;

static void wanted_init(wanted *w, const heft_archive *archive, const heft_load_options *o) {
    memset(w, 0, sizeof *w);
    w->archive = archive;
    w->o = *o;
    for (uint64_t id = 0; id < KINDS; id++) {
        heft_tensor t;
        heft_view view;
        OK(heft_archive_get(archive, id, &t, &err));
        OK(heft_view_of(archive, id, &view, &err));
        w->to[id] = target(o, &t);
        w->data[id] = expect(&view, w->to[id], o->saturate ? HEFT__CAST_SATURATE : 0, &w->nbytes[id]);
    }
}

static void wanted_end(wanted *w) {
    for (uint64_t id = 0; id < KINDS; id++) free(w->data[id]);
}

/* NaN payloads are the reference's too. */
static bool is_wanted(const wanted *w, const heft_loaded *t) {
    heft_tensor stored;
    OK(heft_archive_get(w->archive, t->id, &stored, &err));
    return t->dtype == w->to[t->id] && t->stored_dtype == stored.dtype && t->nbytes == w->nbytes[t->id] && t->rank == stored.rank &&
           (uintptr_t)t->data % size_of(t->dtype) == 0 && memcmp(t->data, w->data[t->id], t->nbytes) == 0;
}

static void check(wanted *w, const heft_loaded *t) {
    if (!is_wanted(w, t))
        fail_msg("%s: %s to %s, mapped %d", t->name, heft_dtype_name(t->stored_dtype), heft_dtype_name(t->dtype), t->mapped);
    w->seen[t->id]++;
}

static int deliver(void *ctx, const heft_loaded *t) {
    wanted *w = ctx;
    if (!is_wanted(w, t)) w->wrong++;
    w->seen[t->id]++;
    return 0;
}

static void all_once(wanted *w) {
    assert_int_equal(w->wrong, 0);
    for (uint64_t id = 0; id < KINDS; id++) {
        assert_int_equal(w->seen[id], 1);
        w->seen[id] = 0;
    }
}

static void whole(wanted *w, heft_load_plan *plan) {
    heft_weights *weights;
    heft_loaded t;
    heft_load_summary sum;
    uint64_t nbytes = 0;
    OK(heft_load_run(plan, &weights, NULL, &err));
    for (uint64_t i = 0; i < KINDS; i++) {
        heft_load_place place;
        OK(heft_weights_at(weights, HEFT_LOAD_ORDER_NAME, i, &t, &err));
        check(w, &t);
        nbytes += t.nbytes;
        OK(heft_load_plan_place(plan, t.id, &place, &err));
        assert_true(place.dtype == t.dtype && place.nbytes == t.nbytes && (uintptr_t)t.data % place.align == 0);
    }
    all_once(w);
    heft_load_plan_summarize(plan, &sum);
    assert_true(heft_weights_nbytes(weights) == nbytes && sum.memory.kept_nbytes == nbytes);
    heft_weights_unref(weights);
}

static void iterated(wanted *w, heft_load_plan *plan, heft_load_order order, uint64_t ring) {
    heft_load_iter *iter;
    heft_loaded t;
    OK(heft_load_iter_new(plan, order, ring, &iter, &err));
    for (;;) {
        OK(heft_load_iter_next(iter, &t, &err));
        if (!t.name) break;
        check(w, &t);
        heft_load_iter_release(iter, &t);
    }
    heft_load_iter_free(iter, NULL);
    all_once(w);
}

/* Every delivery of one set of options. */
static void every_way(const heft_archive *archive, heft_load_options *o) {
    heft_load_plan *plan;
    wanted w;
    o->struct_size = sizeof *o;
    heft_status status = heft_load_plan_new(archive, o, &plan, &err);
    if (status == HEFT_UNSUPPORTED && o->io == HEFT_IO_DIRECT) return;
    OK(status);
    wanted_init(&w, archive, o);
    whole(&w, plan);
    OK(heft_load_each(plan, deliver, &w, NULL, &err));
    all_once(&w);
    for (heft_load_order order = HEFT_LOAD_ORDER_FILE; order <= HEFT_LOAD_ORDER_COMPLETION; order++) {
        iterated(&w, plan, order, 0);
        if (o->io != HEFT_IO_MAP) iterated(&w, plan, order, 9 << 20);
        else { /* also where all tensors are converted, so that none is mapped */
            heft_load_iter *iter;
            assert_int_equal(heft_load_iter_new(plan, order, 9 << 20, &iter, &err), HEFT_INVALID_ARGUMENT);
            assert_null(iter);
        }
    }
    wanted_end(&w);
    heft_load_plan_free(plan);
}

static void every_delivery(void **state) {
    (void)state;
    const heft__engine_kind *engines[2];
    static const heft_dtype floats[] = {HEFT_BF16, HEFT_F16, HEFT_F32, HEFT_F64, HEFT_DTYPE_NONE};
    bool uring = test_engines(engines) > 1;
    heft_archive *archive = open_kinds();
    for (size_t i = 0; i < sizeof floats / sizeof *floats; i++)
        for (heft_io io = HEFT_IO_AUTO; io <= HEFT_IO_DIRECT; io++) {
            if (HEFT__HOST_IS_BIG_ENDIAN && io == HEFT_IO_MAP) continue;
            for (uint32_t workers = 1; workers <= 3; workers += 2) {
                heft_load_options o = {.dtype = floats[i], .io = io, .workers = workers, .block_nbytes = 300000};
                if (i % 2) o.dtype_rules = rules, o.ndtype_rules = RULES, o.saturate = io == HEFT_IO_BUFFERED;
                if (!floats[i]) o.dtype_rules = rules, o.ndtype_rules = RULES;
                if (uring && workers == 3) o.engine = HEFT_ENGINE_URING;
                every_way(archive, &o);
            }
        }
    heft_archive_unref(archive);
}

/* A source with nothing but a read function. */
static void any_source(void **state) {
    (void)state;
    size_t n;
    uint8_t *file = file_bytes(&n);
    test_bytes bytes = {.data = file, .nbytes = n, .most = 12345};
    heft_source *source = test_source(&bytes);
    heft_archive *archive;
    OK(heft_archive_open_source(source, NULL, &archive, &err));
    heft_load_options o = {.dtype = HEFT_BF16, .dtype_rules = rules + 4, .ndtype_rules = 3};
    heft_load_plan *plan;
    o.struct_size = sizeof o;
    OK(heft_load_plan_new(archive, &o, &plan, &err));
    heft_weights *weights;
    OK(heft_load_run(plan, &weights, NULL, &err));
    heft_loaded t;
    heft_view view;
    OK(heft_weights_get(weights, "a.big", SIZE_MAX, &t, &err));
    OK(heft_view_of(archive, t.id, &view, &err));
    uint64_t nbytes;
    uint8_t *want = expect(&view, HEFT_BF16, 0, &nbytes);
    assert_true(t.nbytes == nbytes && memcmp(t.data, want, nbytes) == 0);
    free(want);
    heft_weights_unref(weights);
    heft_load_plan_free(plan);
    heft_archive_unref(archive);
    heft_source_unref(source);
    free(file);
}

/* Parts of a rank, rows and columns. */
static void parts_of_ranks(void **state) {
    (void)state;
    heft_archive *archive = open_kinds();
    heft_tp_rule cut[] = {{"a.big", 0}, {"*", -1}};
    for (int axis = 0; axis < 2; axis++)
        for (heft_io io = HEFT_IO_AUTO; io <= HEFT_IO_DIRECT; io++)
            for (uint32_t rank = 0; rank < 3; rank++) {
                cut[0].axis = axis;
                heft_filter filter = {.struct_size = sizeof filter, .tp_rank = rank, .tp_world = 3, .tp_rules = cut, .ntp_rules = 1,
                                      .tp_split = HEFT_SPLIT_CEIL};
                heft_load_options o = {.struct_size = sizeof o, .filter = &filter, .dtype = HEFT_BF16, .io = io};
                heft_load_plan *plan;
                heft_weights *weights;
                heft_loaded t;
                heft_view view;
                uint64_t nbytes;
                if (HEFT__HOST_IS_BIG_ENDIAN && io == HEFT_IO_MAP) continue;
                heft_status status = heft_load_plan_new(archive, &o, &plan, &err);
                if (status == HEFT_UNSUPPORTED && io == HEFT_IO_DIRECT) continue;
                OK(status);
                OK(heft_load_run(plan, &weights, NULL, &err));
                OK(heft_weights_get(weights, "a.big", SIZE_MAX, &t, &err));
                OK(heft_filter_view(heft_load_plan_filter(plan), t.id, &view, &err));
                uint8_t *want = expect(&view, HEFT_BF16, 0, &nbytes);
                assert_true(t.nbytes == nbytes && t.dtype == HEFT_BF16 && t.shape[axis] == (uint64_t)view.shape[axis]);
                assert_memory_equal(t.data, want, nbytes);
                free(want);
                heft_weights_unref(weights);
                heft_load_plan_free(plan);
            }
    heft_archive_unref(archive);
}

/* ---- views ---- */

/* Any view of any tensor, to any dtype, by heft_read and into strided memory; also through scratch of a few bytes. */
static void any_view(void **state) {
    (void)state;
    enum { SIZE = 40000 };
    static uint8_t bytes[SIZE], dst[1 << 20];
    static const made_tensor tensors[] = {
        {HEFT_F32, 0, 4800, 3, {10, 12, 10}}, {HEFT_U8, 4800, 4865, 1, {65}},           {HEFT_BF16, 4866, 9666, 2, {40, 60}},
        {HEFT_F64, 9672, 19272, 2, {30, 40}}, {HEFT_F16, 19272, 23272, 4, {5, 10, 4, 10}}, {HEFT_F8_E4M3, 23272, 23773, 1, {501}},
        {HEFT_F32, 23776, 39776, 2, {4, 1000}}};
    static const heft_dtype to[] = {HEFT_F32, HEFT_BF16, HEFT_F16, HEFT_F64, HEFT_F8_E5M2};
    uint64_t seed = 3;
    for (size_t i = 0; i < SIZE; i++) bytes[i] = (uint8_t)random_u64(&seed);
    test_bytes behind = {.data = bytes, .nbytes = SIZE};
    heft_source *source = test_source(&behind);
    made_archive made;
    made_archive_init(&made, source, tensors, 7);
    for (int round = 0; round < 3000; round++) {
        heft_view view = random_view(&made, random_below(&seed, 7), &seed);
        heft_read_options o = {.struct_size = sizeof o, .dtype = to[random_below(&seed, 5)], .workers = 1 + (uint32_t)round % 2,
                               .block_nbytes = 1 + random_below(&seed, 5000), .allow_inexact = true};
        uint64_t nbytes, count = 1;
        uint8_t *want = expect(&view, o.dtype, HEFT__CAST_INEXACT, &nbytes);
        size_t size = size_of(o.dtype);
        heft_read_stats stats;
        memset(dst, 0xEE, nbytes + 16);
        if (nbytes) assert_int_equal(heft_read(&view, dst, nbytes - 1, &o, &stats, &err), HEFT_INVALID_ARGUMENT);
        OK(heft_read(&view, dst, nbytes, &o, &stats, &err));
        assert_memory_equal(dst, want, nbytes);
        assert_int_equal(dst[nbytes], 0xEE);
        assert_true(stats.kept_nbytes == nbytes);
        int64_t strides[HEFT_MAX_RANK];
        for (uint32_t d = view.rank; d-- > 0;) { /* column by column, one element left out between two */
            strides[view.rank - 1 - d] = (int64_t)(count * size * 2);
            count *= (uint64_t)view.shape[view.rank - 1 - d];
        }
        assert_true(count * size * 2 <= sizeof dst);
        OK(heft_read_strided(&view, dst, strides, &o, NULL, &err));
        uint64_t index[HEFT_MAX_RANK] = {0};
        for (uint64_t i = 0; i < count; i++) {
            int64_t at = 0;
            for (uint32_t d = 0; d < view.rank; d++) at += (int64_t)index[d] * strides[d];
            assert_memory_equal(dst + at, want + i * size, size);
            for (uint32_t d = view.rank; d-- > 0 && ++index[d] == (uint64_t)view.shape[d];) index[d] = 0;
        }
        free(want);
    }
    made_archive_end(&made);
    heft_source_unref(source);
}

/* Many tensors at once, into one buffer, into the caller's memory, and by a plan. */
static void many_reads(void **state) {
    (void)state;
    heft_archive *archive = open_kinds();
    heft_read_options o = {.struct_size = sizeof o, .dtype = HEFT_F64};
    static const char *const names[] = {"c.large", "a.norm", "a.half", "a.empty", "b.ids", "a.double", "b.flags"};
    enum { N = sizeof names / sizeof *names };
    uint64_t ids[N], offsets[N], nbytes[N], room[N];
    uint8_t *want[N];
    void *dst[N];
    heft_view views[N];
    heft_buffer buffer;
    heft_plan *plan;
    heft_plan_summary sum;
    for (size_t i = 0; i < N; i++) {
        OK(heft_archive_find(archive, names[i], SIZE_MAX, &ids[i], &err));
        OK(heft_view_of(archive, ids[i], &views[i], &err));
        want[i] = expect(&views[i], HEFT_F64, 0, &nbytes[i]);
        room[i] = nbytes[i];
        dst[i] = malloc(nbytes[i] + 1);
    }
    OK(heft_read_many(archive, ids, N, &o, &buffer, offsets, NULL, &err));
    for (size_t i = 0; i < N; i++) {
        assert_int_equal(offsets[i] % 8, 0);
        assert_memory_equal((uint8_t *)buffer.data + offsets[i], want[i], nbytes[i]);
    }
    heft_buffer_release(&buffer);
    OK(heft_read_many_into(archive, ids, N, dst, room, &o, NULL, &err));
    for (size_t i = 0; i < N; i++) assert_memory_equal(dst[i], want[i], nbytes[i]);
    room[1]--;
    assert_int_equal(heft_read_many_into(archive, ids, N, dst, room, &o, NULL, &err), HEFT_INVALID_ARGUMENT);
    OK(heft_plan_views(views, N, NULL, &o, &plan, &err));
    heft_plan_summarize(plan, &sum);
    uint8_t *all = malloc(sum.dst_nbytes);
    OK(heft_plan_execute(plan, all, sum.dst_nbytes, NULL, &err));
    for (uint64_t i = 0, at = 0; i < N; i++) {
        assert_memory_equal(all + at, want[i], nbytes[i]);
        at = (at + nbytes[i] + 63) / 64 * 64;
    }
    heft_plan_free(plan);
    OK(heft_read_buffer(&views[2], &o, &buffer, NULL, &err));
    assert_true(buffer.nbytes == nbytes[2] && memcmp(buffer.data, want[2], nbytes[2]) == 0);
    heft_buffer_release(&buffer);
    free(all);
    for (size_t i = 0; i < N; i++) {
        free(want[i]);
        free(dst[i]);
    }
    heft_archive_unref(archive);
}

/* Loops of every kind, to the bytes and to what lies between them. */
static void loops(void **state) {
    (void)state;
    enum { ROOM = 200000 };
    uint8_t *src = malloc(ROOM), *dst = malloc(ROOM), *want = malloc(ROOM);
    uint64_t seed = 9;
    for (size_t i = 0; i < ROOM; i++) src[i] = (uint8_t)random_u64(&seed);
    for (int round = 0; round < 4000; round++) {
        uint32_t rank = (uint32_t)random_below(&seed, 4), order[] = {0, 1, 2};
        uint32_t swap = random_below(&seed, 3) ? 0 : 4;
        heft__loop l[3];
        int64_t in = 4, out = 2;
        for (uint32_t d = rank; d > 1; d--) {
            uint32_t e = (uint32_t)random_below(&seed, d), t = order[d - 1];
            order[d - 1] = order[e];
            order[e] = t;
        }
        for (uint32_t d = rank; d-- > 0;) {
            l[d].count = random_below(&seed, 4) ? 1 + random_below(&seed, 12) : 1 + random_below(&seed, rank == 1 ? 9000 : 40);
            l[d].src = in;
            in *= (int64_t)l[d].count;
            in += random_below(&seed, 3) ? 0 : 4;
        }
        for (uint32_t d = 0; d < rank; d++) { /* in another order on this side */
            l[order[d]].dst = out;
            out *= (int64_t)l[order[d]].count;
            out += random_below(&seed, 3) ? 0 : 2;
        }
        if (in > ROOM || out > ROOM) continue;
        heft__conversion how = {HEFT_F32, HEFT_BF16, round % 2 ? HEFT__CAST_STREAM : 0};
        heft__refusal refusal;
        heft__cast cast;
        heft__cast_find(how.from, how.to, HEFT__CAST_REFERENCE, &cast);
        memset(dst, 0x55, (size_t)out);
        memset(want, 0x55, (size_t)out);
        uint64_t n = 1, index[3] = {0};
        for (uint32_t d = 0; d < rank; d++) n *= l[d].count;
        for (uint64_t i = 0; i < n; i++) {
            int64_t from = 0, to = 0;
            uint8_t element[4];
            for (uint32_t d = 0; d < rank; d++) {
                from += (int64_t)index[d] * l[d].src;
                to += (int64_t)index[d] * l[d].dst;
            }
            for (int b = 0; b < 4; b++) element[b] = src[from + (swap ? 3 - b : b)];
            heft__cast_run(&cast, element, want + to, 1);
            for (uint32_t d = rank; d-- > 0 && ++index[d] == l[d].count;) index[d] = 0;
        }
        assert_true(heft__convert_loops(dst, src, l, rank, swap, &how, &refusal));
        assert_memory_equal(dst, want, (size_t)out);
    }
    free(src);
    free(dst);
    free(want);
}

/* ---- arrays in the other byte order, and column by column ---- */

static void swapped_arrays(void **state) {
    (void)state;
    static const char *const headers[] = {"{'descr': '>f4', 'fortran_order': False, 'shape': (300, 70), }",
                                          "{'descr': '>f4', 'fortran_order': True, 'shape': (300, 70), }",
                                          "{'descr': '<f4', 'fortran_order': True, 'shape': (300, 70), }"};
    enum { N = 300 * 70 };
    for (size_t h = 0; h < 3; h++) {
        static uint8_t file[128 + 4 * N];
        uint64_t seed = h;
        memcpy(file, "\x93NUMPY\1\0\x76\0", 10);
        memset(file + 10, ' ', 118);
        memcpy(file + 10, headers[h], strlen(headers[h]));
        file[127] = '\n';
        for (size_t i = 0; i < 4 * N; i++) file[128 + i] = (uint8_t)random_u64(&seed);
        heft_archive *archive = load_open(test_write("swapped.npy", file, sizeof file));
        heft_view view;
        uint64_t nbytes;
        OK(heft_view_of(archive, 0, &view, &err));
        uint8_t *want = expect(&view, HEFT_F16, 0, &nbytes);
        for (heft_io io = HEFT_IO_AUTO; io <= HEFT_IO_DIRECT; io++) {
            heft_load_options o = {.struct_size = sizeof o, .io = io, .dtype = HEFT_F16, .workers = 2};
            heft_weights *weights;
            heft_loaded t;
            heft_status status = heft_load(archive, &o, &weights, NULL, &err);
            if (status == HEFT_UNSUPPORTED && io == HEFT_IO_DIRECT) continue;
            OK(status);
            OK(heft_weights_at(weights, HEFT_LOAD_ORDER_FILE, 0, &t, &err));
            assert_true(t.nbytes == nbytes && t.dtype == HEFT_F16);
            assert_memory_equal(t.data, want, nbytes);
            heft_weights_unref(weights);
        }
        free(want);
        heft_archive_unref(archive);
    }
}

/* ---- what is refused ---- */

static void refusals(void **state) {
    (void)state;
    static const uint8_t ids[] = {1, 0, 0, 0, 2, 0, 0, 0, 0, 1, 0, 0, 3, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0};
    const test_tensor tensors[] = {
        {"ids", "I32", "2,3", ids, 24}, {"packed", "F4", "4", NULL, 2}, {"pair", "C64", "1", NULL, 8}, {"w", "F32", "2", NULL, 8}};
    heft_archive *archive = load_open(test_write_safetensors("refused.safetensors", tensors, 4, NULL));
    heft_load_plan *plan;
    heft_weights *weights;
    heft_load_options o = {.struct_size = sizeof o};
    const struct {
        heft_dtype_rule rule;
        heft_status status;
        const char *tensor, *says;
        uint64_t found;
    } cases[] = {{{"ids", HEFT_U8}, HEFT_MISMATCH, "ids", "element 2 is 256", 2},
                 {{"pack*", HEFT_BF16}, HEFT_UNSUPPORTED, "packed", "sub-byte", HEFT_NONE},
                 {{"pair", HEFT_F32}, HEFT_UNSUPPORTED, "pair", "complex", HEFT_NONE},
                 {{"w", HEFT_I32}, HEFT_UNSUPPORTED, "w", "does not become an integer", HEFT_NONE},
                 {{"[", HEFT_F32}, HEFT_INVALID_ARGUMENT, "", "dtype_rules[0]", HEFT_NONE},
                 {{"w", 99}, HEFT_INVALID_ARGUMENT, "", "no dtype has the number 99", HEFT_NONE},
                 {{NULL, HEFT_F32}, HEFT_INVALID_ARGUMENT, "", "NULL", HEFT_NONE}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        o.dtype_rules = &cases[i].rule;
        o.ndtype_rules = 1;
        assert_int_equal(heft_load(archive, &o, &weights, NULL, &err), cases[i].status);
        assert_null(weights);
        assert_string_equal(err.tensor, cases[i].tensor);
        if (!strstr(err.message, cases[i].says)) fail_msg("%s", err.message);
        assert_true(err.found == cases[i].found);
    }
    assert_non_null(strstr(err.message, "glob"));
    o.dtype_rules = &cases[0].rule;
    o.saturate = true;
    OK(heft_load(archive, &o, &weights, NULL, &err));
    heft_loaded t;
    OK(heft_weights_get(weights, "ids", SIZE_MAX, &t, &err));
    static const uint8_t clamped[] = {1, 2, 255, 3, 255, 0};
    assert_true(t.nbytes == 6 && memcmp(t.data, clamped, 6) == 0);
    heft_weights_unref(weights);
    o = (heft_load_options){.struct_size = sizeof o, .dtype = HEFT_F8_E4M3};
    assert_int_equal(heft_load_plan_new(archive, &o, &plan, &err), HEFT_INVALID_ARGUMENT);
    o = (heft_load_options){.struct_size = sizeof o, .dtype = HEFT_F32, .keep_file_order = true};
    assert_int_equal(heft_load_plan_new(archive, &o, &plan, &err), HEFT_INVALID_ARGUMENT);
    /* a view of it: the number is that of the element in the tensor */
    heft_view view;
    uint8_t few[2];
    OK(heft_view_of(archive, t.id, &view, &err));
    OK(heft_view_index_text(&view, "::-1, 1", SIZE_MAX, &view, &err));
    heft_read_options read = {.struct_size = sizeof read, .dtype = HEFT_U8};
    assert_int_equal(heft_read(&view, few, 2, &read, NULL, &err), HEFT_MISMATCH);
    assert_true(err.found == 4);
    assert_string_equal(err.tensor, "ids");
    read.keep_file_order = true;
    assert_int_equal(heft_read(&view, few, 2, &read, NULL, &err), HEFT_INVALID_ARGUMENT);
    heft_archive_unref(archive);
}

/* ---- many small tensors ---- */

/* They are read together, on every path, and each is converted on its own; what is refused has its own name and number. */
static void many_small(void **state) {
    (void)state;
    enum { MANY = 3000 };
    static test_tensor tensors[MANY];
    static char names[MANY][8], shapes[MANY][8];
    static uint8_t data[MANY][80];
    uint64_t seed = 21;
    for (size_t i = 0; i < MANY; i++) {
        size_t n = 1 + random_below(&seed, 19);
        snprintf(names[i], sizeof names[i], "t%04zu", i);
        snprintf(shapes[i], sizeof shapes[i], "%zu", n);
        for (size_t at = 0; at < 4 * n; at++) data[i][at] = (uint8_t)(at % 4 && i % 3 == 0 ? 0 : random_u64(&seed) & 0x7F);
        tensors[i] = (test_tensor){names[i], i % 3 ? "F32" : "I32", shapes[i], data[i], 4 * n};
    }
    data[1200][4 * 1 + 1] = 1; /* element 1 of an I32, 256 or more */
    tensors[1200].nbytes = 8;
    snprintf(shapes[1200], sizeof shapes[1200], "2");
    heft_archive *archive = load_open(test_write_safetensors("many.safetensors", tensors, MANY, NULL));
    for (heft_io io = HEFT_IO_AUTO; io <= HEFT_IO_DIRECT; io++) {
        const heft_dtype_rule rule = {"*", HEFT_U8};
        heft_load_options o = {.struct_size = sizeof o, .io = io, .dtype = HEFT_BF16, .no_direct = io != HEFT_IO_DIRECT};
        heft_load_plan *plan;
        heft_weights *weights;
        heft_load_summary sum;
        heft_loaded t;
        if (HEFT__HOST_IS_BIG_ENDIAN && io == HEFT_IO_MAP) continue;
        heft_status status = heft_load_plan_new(archive, &o, &plan, &err);
        if (status == HEFT_UNSUPPORTED && io == HEFT_IO_DIRECT) continue;
        OK(status);
        heft_load_plan_summarize(plan, &sum);
        if (!HEFT__HOST_IS_BIG_ENDIAN) assert_in_range(sum.nruns, 1, 4); /* those of F32 lie together, and those of I32 */
        OK(heft_load_run(plan, &weights, NULL, &err));
        for (uint64_t i = 0; i < MANY; i++) {
            heft_view view;
            uint64_t nbytes;
            OK(heft_weights_at(weights, HEFT_LOAD_ORDER_FILE, i, &t, &err));
            OK(heft_view_of(archive, t.id, &view, &err));
            assert_int_equal(t.dtype, t.stored_dtype == HEFT_F32 ? HEFT_BF16 : HEFT_I32);
            uint8_t *want = expect(&view, t.dtype, 0, &nbytes);
            assert_true(t.nbytes == nbytes && (uintptr_t)t.data % size_of(t.dtype) == 0 && memcmp(t.data, want, nbytes) == 0);
            free(want);
        }
        heft_weights_unref(weights);
        heft_load_plan_free(plan);
        const char *only[] = {"t1197", "t1200", "t1203"};
        heft_filter filter = {.struct_size = sizeof filter, .include = only, .ninclude = 3};
        o.filter = &filter;
        o.dtype = HEFT_DTYPE_NONE;
        o.dtype_rules = &rule;
        o.ndtype_rules = 1;
        assert_int_equal(heft_load(archive, &o, &weights, NULL, &err), HEFT_MISMATCH);
        assert_string_equal(err.tensor, "t1200");
        assert_true(err.found == 1);
    }
    heft_archive_unref(archive);
}

/* Between two that are converted lies a gap as large as the first of them grows. */
static void gap_of_that_size(void **state) {
    (void)state;
    static const char header[] = "{\"a\":{\"dtype\":\"I32\",\"shape\":[100],\"data_offsets\":[0,400]},"
                                 "\"b\":{\"dtype\":\"F32\",\"shape\":[100],\"data_offsets\":[400,800]},"
                                 "\"c\":{\"dtype\":\"I16\",\"shape\":[8],\"data_offsets\":[800,816]}}";
    uint8_t data[816];
    size_t n;
    for (size_t i = 0; i < sizeof data; i++) data[i] = (uint8_t)(i * 7 + 1);
    uint8_t *file = test_raw_safetensors(header, sizeof header - 1, data, sizeof data, &n);
    heft_archive *archive = load_open(test_write("gap.safetensors", file, n));
    free(file);
    const char *without[] = {"b"};
    heft_filter filter = {.struct_size = sizeof filter, .exclude = without, .nexclude = 1};
    const heft_dtype_rule rule = {"*", HEFT_I64};
    heft_load_options o = {.struct_size = sizeof o, .filter = &filter, .dtype_rules = &rule, .ndtype_rules = 1};
    heft_weights *weights;
    OK(heft_load(archive, &o, &weights, NULL, &err));
    assert_int_equal(heft_weights_count(weights), 2);
    for (uint64_t i = 0; i < 2; i++) {
        heft_loaded t;
        heft_view view;
        uint64_t nbytes;
        OK(heft_weights_at(weights, HEFT_LOAD_ORDER_FILE, i, &t, &err));
        OK(heft_view_of(archive, t.id, &view, &err));
        uint8_t *want = expect(&view, HEFT_I64, 0, &nbytes);
        assert_memory_equal(t.data, want, nbytes);
        free(want);
    }
    heft_weights_unref(weights);
    heft_archive_unref(archive);
}

/* ---- around a load ---- */

static void deferred_and_audit(void **state) {
    (void)state;
    heft_archive *archive = open_kinds();
    const char *defer[] = {"a.big", "b.ids"};
    heft_filter filter = {.struct_size = sizeof filter, .defer = defer, .ndefer = 2};
    heft_load_options o = {.struct_size = sizeof o, .filter = &filter, .dtype = HEFT_BF16};
    heft_load_plan *plan;
    heft_weights *weights;
    OK(heft_load_plan_new(archive, &o, &plan, &err));
    const heft_expected want[] = {{.name = "a.norm", .dtype = HEFT_BF16}, {.name = "c.large", .dtype = HEFT_F32}};
    assert_int_equal(heft_load_plan_audit(plan, want, 1, true, NULL, NULL, &err), HEFT_OK);
    assert_int_equal(heft_load_plan_audit(plan, want, 2, true, NULL, NULL, &err), HEFT_MISMATCH);
    OK(heft_load_run(plan, &weights, NULL, &err));
    heft_load_plan_free(plan);
    heft_deferred d;
    heft_buffer buffer;
    heft_view view;
    uint64_t nbytes;
    OK(heft_weights_deferred(weights, 0, &d, &err));
    assert_true(strcmp(d.name, "a.big") == 0 && d.dtype == HEFT_BF16 && d.nbytes == 614400);
    OK(heft_weights_read_deferred(weights, "a.big", SIZE_MAX, &buffer, &err));
    OK(heft_view_of(archive, d.id, &view, &err));
    uint8_t *bytes = expect(&view, HEFT_BF16, 0, &nbytes);
    assert_true(buffer.nbytes == nbytes && memcmp(buffer.data, bytes, nbytes) == 0);
    heft_buffer_release(&buffer);
    free(bytes);
    heft_weights_unref(weights);
    heft_archive_unref(archive);
}

/* The footprint counts what lies in memory, and the scratch; half the bytes of the file may be enough. */
static void footprint(void **state) {
    (void)state;
    heft_archive *archive = open_kinds();
    const char *only[] = {"a.big", "c.large"};
    heft_filter filter = {.struct_size = sizeof filter, .include = only, .ninclude = 2};
    uint64_t kept = (1228800 + 4400000) / 2;
    heft_load_options o = {.struct_size = sizeof o, .filter = &filter, .dtype = HEFT_BF16, .io = HEFT_IO_BUFFERED, .workers = 2};
    heft_load_plan *plan;
    heft_load_summary sum;
    OK(heft_load_plan_new(archive, &o, &plan, &err));
    heft_load_plan_summarize(plan, &sum);
    const heft_footprint *m = &sum.memory;
    assert_true(m->kept_nbytes == kept && m->estimate_nbytes == kept);
    assert_in_range(m->arena_nbytes, kept, kept + 8192);
    assert_true(m->scratch_nbytes == 2 * HEFT__PLAN_SCRATCH_CAST);
    assert_true(sum.requested_nbytes == 2 * kept && sum.over_read_nbytes == 0 && sum.spanned_nbytes == 0);
    assert_true(sum.nblocks == 3); /* 4 MiB of the file each */
    heft_load_plan_free(plan);
    o.memory_limit_nbytes = m->transient_nbytes;
    heft_weights *weights;
    OK(heft_load(archive, &o, &weights, NULL, &err));
    heft_weights_unref(weights);
    o.memory_limit_nbytes--;
    assert_int_equal(heft_load(archive, &o, &weights, NULL, &err), HEFT_LIMIT);
    heft_archive_unref(archive);
}

/* Each allocation fails once: nothing is left, and nothing else comes of it. */
static void allocations(void **state) {
    (void)state;
    heft_archive *archive = open_kinds();
    wanted w;
    for (uint64_t k = 1;; k++) {
        test_allocator t;
        test_allocator_init(&t, k);
        heft_load_options o = {.struct_size = sizeof o, .dtype = HEFT_BF16, .dtype_rules = rules, .ndtype_rules = RULES,
                               .workers = 2, .allocator = &t.alloc};
        heft_weights *weights = NULL;
        heft_load_plan *plan;
        heft_load_iter *iter = NULL;
        if (k == 1) wanted_init(&w, archive, &o);
        heft_status status = heft_load_plan_new(archive, &o, &plan, &err);
        if (status == HEFT_OK) status = heft_load_run(plan, &weights, NULL, &err);
        if (status == HEFT_OK) status = heft_load_each(plan, deliver, &w, NULL, &err);
        if (status == HEFT_OK) status = heft_load_iter_new(plan, HEFT_LOAD_ORDER_NAME, 9 << 20, &iter, &err);
        heft_load_iter_free(iter, NULL);
        heft_weights_unref(weights);
        heft_load_plan_free(plan);
        assert_true(t.live_blocks == 0 && w.wrong == 0);
        if (status == HEFT_OK) {
            assert_true(k > 10);
            break;
        }
        assert_int_equal(status, HEFT_OUT_OF_MEMORY);
    }
    wanted_end(&w);
    heft_archive_unref(archive);
}

static void chosen(void **state) {
    (void)state;
    const heft_dtype_rule r[] = {{"a*", HEFT_F32}, {"ab", HEFT_U8}, {"[", HEFT_I8}, {"a?c", HEFT_F64}};
    assert_int_equal(heft_dtype_choose(HEFT_BF16, NULL, 0, "x", 1, HEFT_F16), HEFT_BF16);
    assert_int_equal(heft_dtype_choose(HEFT_BF16, NULL, 0, "x", 1, HEFT_F8_E4M3), HEFT_F8_E4M3);
    assert_int_equal(heft_dtype_choose(HEFT_BF16, NULL, 0, "x", 1, HEFT_I64), HEFT_I64);
    assert_int_equal(heft_dtype_choose(HEFT_DTYPE_NONE, NULL, 0, "x", 1, HEFT_F32), HEFT_F32);
    assert_int_equal(heft_dtype_choose(HEFT_BF16, r, 4, "ab", 2, HEFT_F32), HEFT_U8);
    assert_int_equal(heft_dtype_choose(HEFT_BF16, r, 4, "abc", 3, HEFT_I32), HEFT_F64);
    assert_int_equal(heft_dtype_choose(HEFT_BF16, r, 4, "abd", 3, HEFT_I32), HEFT_F32);
    assert_int_equal(heft_dtype_choose(HEFT_BF16, r, 4, "b", 1, HEFT_F64), HEFT_BF16);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_delivery),     cmocka_unit_test(any_source),  cmocka_unit_test(parts_of_ranks),
        cmocka_unit_test(any_view),           cmocka_unit_test(many_reads),  cmocka_unit_test(loops),
        cmocka_unit_test(swapped_arrays),     cmocka_unit_test(refusals),    cmocka_unit_test(many_small),
        cmocka_unit_test(deferred_and_audit), cmocka_unit_test(footprint),   cmocka_unit_test(allocations),
        cmocka_unit_test(gap_of_that_size),   cmocka_unit_test(chosen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
