/* Plans of loads at work on a file: whatever the path, alignment, gaps and blocks, every tensor has its bytes. Where the file
 * system of the build tree refuses O_DIRECT the same ranges are read buffered, which tests the plan as well. */
#include "helper_archive.h"
#include "helper_files.h"

#include "engine/engine.h"
#include "ops/run.h"
#include "plan/plan.h"

enum { BYTES = 3 << 20, TENSORS = 40 };

static heft_error err;
static uint8_t *content;
static heft_source *source;

static int setup(void **state) {
    (void)state;
    uint64_t random = 5;
    content = malloc(BYTES);
    if (!content) return -1;
    for (size_t i = 0; i < BYTES; i++) content[i] = (uint8_t)(test_random(&random) >> 24);
    return heft_source_open_file(test_write("plan_run", content, BYTES), &source, &err);
}

static int teardown(void **state) {
    (void)state;
    heft_source_unref(source);
    free(content);
    return 0;
}

static uint64_t below(uint64_t *random, uint64_t n) { return test_random(random) % n; }

/* Tensors of all sizes, some odd gaps; the last often ends with the file. */
static uint64_t make_tensors(made_tensor *t, uint64_t *random) {
    static const heft_dtype dtypes[] = {HEFT_U8, HEFT_BF16, HEFT_F32, HEFT_F64, HEFT_F4};
    uint64_t at = 8 + below(random, 3) * below(random, 5000), n = 0;
    for (; n < TENSORS; n++) {
        made_tensor *one = &t[n];
        uint32_t bits = heft__dtypes[one->dtype = dtypes[below(random, 5)]].bits;
        one->rank = 2;
        one->shape[0] = 1 + below(random, below(random, 2) ? 300 : 3);
        one->shape[1] = 2 * (1 + below(random, below(random, 3) ? 50 : 1500));
        uint64_t nbytes = one->shape[0] * one->shape[1] * bits / 8;
        if (one->shape[0] * one->shape[1] * bits % 8 || at + nbytes > BYTES) break;
        one->begin = at;
        one->end = at += nbytes;
        if (below(random, 2)) at += below(random, below(random, 3) ? 100 : 40000);
    }
    if (n && below(random, 2)) { /* to the last byte */
        t[n - 1].end += BYTES - t[n - 1].end;
        t[n - 1].dtype = HEFT_U8;
        t[n - 1].rank = 1;
        t[n - 1].shape[0] = t[n - 1].end - t[n - 1].begin;
    }
    return n;
}

static heft_view view_of(const made_archive *made, uint64_t id, uint64_t *random) {
    heft_view v = made_view(made, id);
    if (v.rank < 2 || below(random, 4)) return v;
    if (below(random, 3)) { /* columns */
        int64_t n = v.shape[1], from = (int64_t)below(random, (uint64_t)n);
        v.offset += from;
        v.shape[1] = 1 + (int64_t)below(random, (uint64_t)(n - from));
        return v;
    }
    int64_t shape = v.shape[0], stride = v.stride[0];
    v.shape[0] = v.shape[1];
    v.stride[0] = v.stride[1];
    v.shape[1] = shape;
    v.stride[1] = stride;
    return v;
}

typedef struct memory {
    uint8_t **slots;
    void **blocks;
    heft__mapping **mappings;
} memory;

static memory make_memory(const heft_plan *plan) {
    memory m = {calloc(plan->narenas + 1, sizeof *m.slots), calloc(plan->narenas + 1, sizeof *m.blocks),
                calloc(plan->nmappings + 1, sizeof *m.mappings)};
    assert_true(m.slots && m.blocks && m.mappings);
    for (uint64_t i = 0; i < plan->narenas; i++) { /* aligned to what is asked for, and to no more */
        uint32_t align = plan->arenas[i].align;
        m.blocks[i] = malloc(plan->arenas[i].nbytes + 3 * (size_t)align);
        assert_non_null(m.blocks[i]);
        uintptr_t at = ((uintptr_t)m.blocks[i] + align) / align * align;
        if (at % (2 * (uintptr_t)align) == 0) at += align;
        m.slots[i] = (uint8_t *)at;
        memset(m.slots[i], 0xA5, plan->arenas[i].nbytes);
    }
    for (uint64_t i = 0; i < plan->nmappings; i++) {
        const heft__plan_mapping *one = &plan->mappings[i];
        assert_int_equal(heft__source_map(plan->sources[one->source].source, one->offset, one->nbytes, &m.mappings[i], &err),
                         HEFT_OK);
    }
    return m;
}

static void free_memory(const heft_plan *plan, memory *m) {
    for (uint64_t i = 0; i < plan->narenas; i++) free(m->blocks[i]);
    for (uint64_t i = 0; i < plan->nmappings; i++) heft__mapping_unref(m->mappings[i]);
    free(m->slots);
    free(m->blocks);
    free(m->mappings);
}

static void check_items(const heft_plan *plan, const memory *m, const heft_view *views) {
    uint8_t *want = malloc(BYTES);
    assert_non_null(want);
    for (uint64_t i = 0; i < plan->nitems; i++) {
        const heft__plan_item *item = &plan->items[i];
        heft_load_place place;
        heft__plan_place(plan, item, &place);
        const uint8_t *got = (item->mapped ? m->mappings[place.arena]->data : m->slots[place.arena]) + place.offset;
        assert_int_equal((uintptr_t)got % place.align, 0);
        naive_gather(&views[item->view], content, want);
        assert_memory_equal(got, want, heft__plan_kept(plan, item));
    }
    free(want);
}

static void run_plan(const heft_plan *plan, const heft_view *views, const heft__engine_kind *kind) {
    memory m = make_memory(plan);
    heft__running run = {.plan = plan, .slots = m.slots, .mappings = m.mappings, .kind = kind};
    heft__engine_result result;
    if (heft__run_open(&run, &err) != HEFT_OK) fail_msg("%s", err.message);
    assert_int_equal(kind->submit(run.engine, HEFT__LANE_WANTED, 0, plan->sum.nblocks, &err), HEFT_OK);
    kind->reap(run.engine, NULL, 0);
    if (heft__run_close(&run, &result, &err) != HEFT_OK) fail_msg("%s", err.message);
    if (plan->first_touch == plan->sum.nblocks) assert_int_equal(result.counters.nbytes, plan->sum.requested_nbytes);
    heft__run_free(&run);
    check_items(plan, &m, views);
    free_memory(plan, &m);
}

static heft__plan_request random_request(uint64_t *random) {
    heft__plan_request request = {.alloc = heft__default_allocator, .default_workers = 2, .layout = true};
    request.options.keep_file_order = true;
    request.options.gap_nbytes = below(random, 2) ? 0 : below(random, 2) ? HEFT_NONE : below(random, 100000);
    request.options.block_nbytes = below(random, 2) ? 0 : 8192 + below(random, 300000);
    request.scratch_most = below(random, 2) ? 0 : 16384 + below(random, 100000);
    request.vector_min = below(random, 2) ? 0 : 1 + below(random, 3000);
    request.unit_min = below(random, 2) ? 0 : 1 + below(random, 100);
    return request;
}

static void any_path_gives_the_bytes(void **state) {
    (void)state;
    uint64_t random = 11, cases = test_count(60);
    for (uint64_t c = 0; c < cases; c++) {
        made_archive made;
        made_tensor tensors[TENSORS];
        heft_view views[TENSORS];
        uint64_t n = make_tensors(tensors, &random);
        made_archive_init(&made, source, tensors, n);
        heft__plan_request request = random_request(&random);
        uint32_t align = below(&random, 3) ? 4096 : 512;
        heft__source_facts facts = {.file = true, .fs_class = HEFT__FS_LOCAL, .direct = HEFT__DIRECT_UNKNOWN};
        facts.direct_memory = facts.direct_offset = align;
        heft__plan_wishes wishes = {.page_nbytes = 4096, .cpus = 2, .io = 1 + (heft_io)below(&random, 3)};
        wishes.align = below(&random, 3) ? 0 : UINT64_C(1) << below(&random, 13);
        wishes.arena_scope = (heft_arena_scope)below(&random, 2);
        wishes.ring_nbytes = below(&random, 4) ? 0 : 1 + below(&random, BYTES);
        heft_plan *plan;
        assert_int_equal(heft__plan_new(&request, &plan, &err), HEFT_OK);
        for (uint64_t i = 0; i < n; i++) {
            views[i] = wishes.io == HEFT_IO_MAP ? made_view(&made, i) : view_of(&made, i, &random);
            assert_int_equal(heft__plan_add_view(plan, &views[i], 0, NULL, (uint32_t)i, &err), HEFT_OK);
        }
        assert_int_equal(heft__plan_choose(plan, &facts, &wishes, &err), HEFT_OK);
        assert_int_equal(heft__plan_finish(plan, &err), HEFT_OK);
        run_plan(plan, views, &heft__engine_pool);
        heft_plan_free(plan);
        made_archive_end(&made);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_path_gives_the_bytes),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
