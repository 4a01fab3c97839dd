/* Plans as text against tests/golden/plan, and what holds of every plan. HEFT_UPDATE_GOLDEN=1 rewrites the goldens. */
#include "helper_archive.h"
#include "helper_files.h"

#include "plan/plan.h"

#define MIB (UINT64_C(1) << 20)

static heft_source *nowhere; /* plans are pure: reading from it fails the test */
static heft_error err;

static int64_t never_read(void *ctx, uint64_t offset, void *dst, size_t nbytes) {
    (void)ctx, (void)offset, (void)dst, (void)nbytes;
    abort();
}

static int setup(void **state) {
    (void)state;
    heft_source_callbacks callbacks = {.struct_size = sizeof callbacks, .size = UINT64_C(1) << 50, .read_at = never_read};
    return heft_source_open_callbacks(&callbacks, "nowhere", &nowhere, &err);
}

static int teardown(void **state) {
    (void)state;
    heft_source_unref(nowhere);
    return 0;
}

static heft__plan_request request_of(uint32_t workers) {
    return (heft__plan_request){.alloc = heft__default_allocator, .default_workers = workers};
}

static heft_plan *plan_of(const heft__plan_request *request, const heft_view *views, uint64_t n) {
    heft_plan *plan;
    assert_int_equal(heft__plan_new(request, &plan, &err), HEFT_OK);
    uint64_t place = 0;
    for (uint64_t i = 0; i < n; i++) {
        if (heft__plan_add_view(plan, &views[i], place, NULL, (uint32_t)i, &err) != HEFT_OK) fail_msg("%s", err.message);
        place = (plan->sum.dst_nbytes + 63) / 64 * 64;
    }
    assert_int_equal(heft__plan_finish(plan, &err), HEFT_OK);
    return plan;
}

static heft_plan *plan_of_tensors(const heft__plan_request *request, const made_archive *made) {
    heft_plan *plan;
    assert_int_equal(heft__plan_new(request, &plan, &err), HEFT_OK);
    for (uint64_t i = 0; i < made->archive.ntensors; i++)
        assert_int_equal(heft__plan_add_tensor(plan, &made->archive, i, (uint32_t)i, &err), HEFT_OK);
    assert_int_equal(heft__plan_finish(plan, &err), HEFT_OK);
    return plan;
}

/* Compares and frees. */
static void golden(const char *name, heft_plan *plan) {
    char path[1024];
    uint64_t nbytes;
    snprintf(path, sizeof path, "%s/../golden/plan/%s.txt", TEST_DATA, name);
    char *text = heft__plan_text(plan, &nbytes);
    assert_non_null(text);
    const char *update = getenv("HEFT_UPDATE_GOLDEN");
    if (update && strcmp(update, "1") == 0) {
        FILE *f = fopen(path, "w");
        assert_non_null(f);
        fputs(text, f);
        fclose(f);
    }
    size_t n;
    char *want = (char *)test_slurp(path, &n);
    assert_string_equal(text, want);
    free(want);
    heft__free(&plan->alloc, text, nbytes);
    heft_plan_free(plan);
}

static heft_view strided(const made_archive *made, uint64_t id, int64_t offset, int64_t n0, int64_t s0, int64_t n1, int64_t s1) {
    heft_view v = made_view(made, id);
    v.offset = offset;
    v.shape[0] = n0;
    v.stride[0] = s0;
    v.shape[1] = n1;
    v.stride[1] = s1;
    return v;
}

static void plain_tensors(void **state) {
    (void)state;
    made_archive made;
    const made_tensor touching[] = {{HEFT_BF16, 1000, 1000 + 10 * MIB, 1, {5 * MIB}},
                                    {HEFT_U8, 1000 + 10 * MIB, 1003 + 10 * MIB, 1, {3}},
                                    {HEFT_BF16, 1003 + 10 * MIB, 1009 + 10 * MIB, 1, {3}},
                                    {HEFT_F32, 1009 + 10 * MIB, 1009 + 10 * MIB, 1, {0}},
                                    {HEFT_BF16, 1009 + 10 * MIB, 1009 + 20 * MIB, 1, {5 * MIB}}};
    made_archive_init(&made, nowhere, touching, 5);
    heft__plan_request request = request_of(4);
    request.layout = true;
    golden("tensors_layout", plan_of_tensors(&request, &made));
    request.layout = false;
    request.slots = true;
    golden("tensors_slots", plan_of_tensors(&request, &made));
    heft_view whole = made_view(&made, 4);
    request = request_of(2);
    request.phase = MIB + 7; /* blocks end where huge pages of the destination do */
    golden("one_tensor_phase", plan_of(&request, &whole, 1));

    made_tensor small[50];
    for (uint64_t i = 0; i < 50; i++) small[i] = (made_tensor){HEFT_F32, 1000 + 4 * i, 1004 + 4 * i, 0, {0}};
    made_archive_init(&made, nowhere, small, 50);
    request = request_of(2);
    request.slots = true;
    golden("tiny_slots", plan_of_tensors(&request, &made));
}

static void gaps(void **state) {
    (void)state;
    made_archive made;
    made_tensor t[40];
    uint64_t at = 8;
    for (uint64_t i = 0; i < 6; i++) { /* gaps of 10, 20, 30, 40 KiB and one more */
        t[i] = (made_tensor){HEFT_U8, at, at + 100000, 1, {100000}};
        at += 100000 + (i + 1) * 10240;
    }
    made_archive_init(&made, nowhere, t, 6);
    heft__plan_request request = request_of(2);
    request.layout = true;
    golden("gaps", plan_of_tensors(&request, &made));
    request.options.gap_nbytes = HEFT_NONE;
    golden("gaps_never", plan_of_tensors(&request, &made));

    at = 8; /* 39 gaps of 30 KiB and below, the budget of 1 MiB takes the small ones */
    for (uint64_t i = 0; i < 40; i++) {
        t[i] = (made_tensor){HEFT_U8, at, at + 5000, 1, {5000}};
        at += 5000 + 30720 - i % 4;
    }
    made_archive_init(&made, nowhere, t, 40);
    request.options.gap_nbytes = 0;
    golden("gaps_budget", plan_of_tensors(&request, &made));
}

static void strided_views(void **state) {
    (void)state;
    made_archive made;
    const made_tensor t[] = {
        {HEFT_F32, 104, 104 + 512 * MIB, 2, {131072, 1024}},
        {HEFT_F32, 104 + 512 * MIB, 104 + 576 * MIB, 2, {4096, 4096}},
        {HEFT_U8, 104 + 576 * MIB, 104 + 1376 * MIB, 2, {8 * MIB, 100}},
        {HEFT_F16, 104 + 1376 * MIB, 104 + 1376 * MIB + 2000000000, 2, {100, 10000000}},
        {HEFT_F4, 3 * 1024 * MIB, 3 * 1024 * MIB + 7500, 2, {3000, 5}},
    };
    made_archive_init(&made, nowhere, t, 5);
    heft__plan_request request = request_of(2);
    heft_view views[4];
    views[0] = strided(&made, 0, 0, 131072, 1024, 256, 1);
    golden("columns", plan_of(&request, views, 1));
    views[0] = strided(&made, 0, 32768 * 1024, 32768, 1024, 1024, 1);
    golden("rows", plan_of(&request, views, 1));
    views[0] = strided(&made, 0, 1024 * 131071 + 9, 13108, -10240, 10, -1); /* backwards, far apart */
    golden("backwards", plan_of(&request, views, 1));
    views[0] = strided(&made, 1, 0, 4096, 1, 4096, 4096);
    golden("transposed", plan_of(&request, views, 1));
    views[0] = strided(&made, 2, 5, 1, 1, 8 * (int64_t)MIB, 100);
    golden("one_column", plan_of(&request, views, 1));
    views[0] = strided(&made, 3, 0, 50, 20000000, 6000000, 1); /* rows longer than a block */
    views[1] = strided(&made, 3, 10000000, 50, 20000000, 100, 1);
    golden("long_rows", plan_of(&request, views, 2));
    views[0] = strided(&made, 3, 0, 10000000, 1, 100, 10000000); /* read in rectangles */
    golden("wide_transposed", plan_of(&request, views, 1));
    views[0] = strided(&made, 4, 1, 3000, 5, 3, 1);
    views[1] = strided(&made, 4, 0, 1500, 10, 5, 1); /* of whole bytes? no: 20 bits */
    views[2] = strided(&made, 4, 2, 1500, 10, 8, 1);
    golden("sub_byte", plan_of(&request, views, 3));
    views[0] = made_view(&made, 1); /* nothing that an index makes: steps that overlap */
    views[0].shape[0] = 1000;
    views[0].stride[0] = 3;
    views[0].shape[1] = 4;
    golden("overlapping", plan_of(&request, views, 1));
    request.host_is_big_endian = true;
    views[0] = made_view(&made, 1);
    views[1] = strided(&made, 0, 0, 131072, 1024, 256, 1);
    views[2] = made_view(&made, 4);
    golden("swapped", plan_of(&request, views, 3));
}

/* Blocks cover each run once, in order, whatever the sizes. */
static void blocks_tile_runs(void **state) {
    (void)state;
    uint64_t random = 8, cases = test_count(20000);
    for (uint64_t c = 0; c < cases; c++) {
        made_archive made;
        uint64_t n = 1 + test_random(&random) % (test_random(&random) % 2 ? 100 * MIB : 9000);
        made_tensor t = {HEFT_U8, 8, 8 + n, 1, {n}};
        made_archive_init(&made, nowhere, &t, 1);
        heft__plan_request request = request_of(2);
        request.phase = test_random(&random);
        if (test_random(&random) % 2) request.options.block_nbytes = 1 + test_random(&random) % (8 * MIB);
        heft_view view = made_view(&made, 0);
        heft_plan *plan = plan_of(&request, &view, 1);
        uint64_t block = plan->options.block_nbytes, at = 8;
        assert_int_equal(plan->sum.nruns, 1);
        for (uint64_t i = 0; i < plan->sum.nblocks; i++) {
            uint64_t run, part, begin, end;
            heft__plan_locate(plan, i, &run, &part);
            assert_int_equal(part, i);
            heft__plan_cut(plan, &plan->runs[0], part, &begin, &end);
            assert_int_equal(begin, at);
            assert_true(end > begin && end - begin <= block + HEFT__PLAN_TAIL);
            if (block % HEFT__PLAN_CUT == 0 && end < 8 + n) assert_int_equal((plan->phase + end - 8) % HEFT__PLAN_CUT, 0);
            at = end;
        }
        assert_int_equal(at, 8 + n);
        heft_plan_free(plan);
    }
}

/* Every gap that is read over is one that the rule allows, and no larger one is taken while a smaller one is not. */
static void the_budget_holds(void **state) {
    (void)state;
    uint64_t random = 80, cases = test_count(5000);
    for (uint64_t c = 0; c < cases; c++) {
        made_archive made;
        made_tensor t[64];
        uint64_t at = 8, gaps_of[64], limit = test_random(&random) % 2 ? 0 : test_random(&random) % 200000;
        uint64_t sizes = 1 + test_random(&random) % 50000, most = 1 + test_random(&random) % 60000;
        for (uint64_t i = 0; i < 64; i++) {
            uint64_t n = 1 + test_random(&random) % sizes;
            t[i] = (made_tensor){HEFT_U8, at, at + n, 1, {n}};
            gaps_of[i] = test_random(&random) % 5 ? test_random(&random) % most : 0;
            at += n + gaps_of[i];
        }
        made_archive_init(&made, nowhere, t, 64);
        heft__plan_request request = request_of(2);
        request.options.gap_nbytes = limit;
        request.layout = test_random(&random) % 2;
        request.slots = !request.layout;
        heft_plan *plan = plan_of_tensors(&request, &made);
        if (limit == 0) limit = 32768;
        uint64_t kept = plan->sum.kept_nbytes, budget = kept / 20 > MIB ? kept / 20 : MIB, largest = 0, smallest = UINT64_MAX;
        assert_true(plan->sum.over_read_nbytes <= budget);
        uint64_t r = 0, over = 0;
        for (uint64_t i = 0; i + 1 < 64; i++) {
            const heft__plan_run *run = &plan->runs[r];
            bool joined = i + 1 < run->first_item + run->nitems;
            if (gaps_of[i] == 0) assert_true(joined);
            if (joined) {
                over += gaps_of[i];
                assert_true(gaps_of[i] <= limit);
                if (gaps_of[i] > largest) largest = gaps_of[i];
            } else {
                if (gaps_of[i] <= limit && gaps_of[i] < smallest) smallest = gaps_of[i];
                r++;
            }
        }
        assert_int_equal(over, plan->sum.over_read_nbytes);
        assert_true(largest <= smallest);
        if (smallest != UINT64_MAX) assert_true(over + smallest > budget); /* it was the budget that refused it */
        heft_plan_free(plan);
    }
}

static void plans_can_be_looked_at(void **state) {
    (void)state;
    made_archive made;
    const made_tensor t[] = {{HEFT_U8, 8, 108, 1, {100}}, {HEFT_F32, 108, 4108, 2, {10, 100}}};
    made_archive_init(&made, nowhere, t, 2);
    heft_view views[3] = {made_view(&made, 1), made_view(&made, 0), strided(&made, 1, 0, 10, 100, 50, 1)};
    heft_plan *plan;
    heft_plan_summary sum;
    heft_plan_run run;
    heft_read_options options = {.struct_size = sizeof options, .keep_file_order = true}; /* the same plan on every host */
    assert_int_equal(heft_plan_views(views, 3, NULL, &options, &plan, &err), HEFT_OK);
    heft_plan_summarize(plan, &sum);
    assert_int_equal(sum.nviews, 3);
    assert_int_equal(sum.nruns, 2);
    assert_int_equal(sum.kept_nbytes, 6100);
    assert_int_equal(sum.requested_nbytes, 4100 + 3800);
    assert_int_equal(sum.spanned_nbytes, 1800);
    assert_int_equal(sum.dst_nbytes, 4160 + 2000); /* 4000, 100, 2000, each at a multiple of 64 */
    assert_int_equal(heft_plan_get(plan, 0, &run, &err), HEFT_OK);
    assert_int_equal(run.offset, 8);
    assert_int_equal(run.nbytes, 4100);
    assert_int_equal(run.first_view, 1);
    assert_int_equal(run.nviews, 2);
    assert_int_equal(heft_plan_get(plan, 1, &run, &err), HEFT_OK);
    assert_int_equal(run.kind, HEFT_RUN_GATHER);
    assert_int_equal(run.span_nbytes, 3800);
    assert_int_equal(run.nreads, 1);
    assert_int_equal(heft_plan_get(plan, 2, &run, &err), HEFT_INVALID_ARGUMENT);
    uint8_t small[100];
    assert_int_equal(heft_plan_execute(plan, small, sizeof small, NULL, &err), HEFT_INVALID_ARGUMENT);
    assert_int_equal(err.expected, 6160);
    heft_plan_free(plan);
    heft_plan_free(NULL);
    const uint64_t places[] = {0, UINT64_MAX - 10, 0};
    assert_int_equal(heft_plan_views(views, 3, places, NULL, &plan, &err), HEFT_LIMIT);
    assert_null(plan);
    assert_int_equal(heft_plan_views(NULL, 0, NULL, NULL, &plan, &err), HEFT_OK);
    assert_int_equal(heft_plan_execute(plan, NULL, 0, NULL, &err), HEFT_OK);
    heft_plan_free(plan);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_tensors),    cmocka_unit_test(gaps),
        cmocka_unit_test(strided_views),    cmocka_unit_test(blocks_tile_runs),
        cmocka_unit_test(the_budget_holds), cmocka_unit_test(plans_can_be_looked_at),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
