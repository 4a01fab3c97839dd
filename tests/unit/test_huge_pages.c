/* What asks for huge pages and what does not: arenas of loads, and catalogs and plans of many tensors. Whether the system grants
 * them is its own affair, so it is asked what it was asked for (VmFlags of smaps). */
#include "helper_files.h"
#include "helper_load.h"

#include "base/os.h"
#include "device/device.h"
#include "ops/load.h"

static heft_error err;

#define OK(call)                                                                                                       \
    do                                                                                                                 \
        if ((call) != HEFT_OK) fail_msg("%s:%d: %s", __FILE__, __LINE__, err.message);                                 \
    while (0)

/* The flags of the area that holds an address, such as " rd wr mr hg"; NULL: this system does not tell. */
static const char *flags_of(const void *at) {
    static char line[1024];
    FILE *f = fopen("/proc/self/smaps", "re");
    bool inside = false, found = false;
    unsigned long long begin, end, place = (unsigned long long)(uintptr_t)at;
    while (f && !found && fgets(line, sizeof line, f)) {
        if (sscanf(line, "%llx-%llx ", &begin, &end) == 2) inside = begin <= place && place < end;
        else found = inside && strncmp(line, "VmFlags:", 8) == 0;
    }
    if (f) fclose(f);
    return found ? line + 8 : NULL;
}

/* False, with the reason: there are no huge pages to ask for, or nobody says what was asked. */
static bool asked_can_be_seen(void) {
    char line[64];
    if (test_skip_emulated("huge pages")) return false;
    if (heft__os_first_line("/sys/kernel/mm/transparent_hugepage/enabled", line, sizeof line) && flags_of(line)) return true;
    printf("left out: this system has no huge pages, or does not say what they are asked for\n");
    return false;
}

static bool asked(const void *at) {
    return strstr(flags_of(at), " hg") != NULL;
}

static void arenas_ask_for_whole_units(void **state) {
    (void)state;
    if (!asked_can_be_seen()) return;
    uint64_t nbytes = (9 << 20) + 12345;
    for (heft_huge huge = HEFT_HUGE_AUTO; huge <= HEFT_HUGE_NEVER; huge++) {
        heft_arena *arena;
        OK(heft__host_arena_new(&heft__default_allocator, huge, &arena, &err));
        OK(heft__host_arena_take(arena, nbytes, 64, &err));
        assert_int_equal(asked(arena->data), huge == HEFT_HUGE_AUTO);
        assert_int_equal(asked(arena->data + (8 << 20) - 1), huge == HEFT_HUGE_AUTO);
        assert_false(asked(arena->data + (8 << 20))); /* the ragged tail */
        if (huge == HEFT_HUGE_NEVER) assert_non_null(strstr(flags_of(arena->data), " nh"));
        heft__host_arena_unref(arena);
    }
}

/* ---- catalogs ---- */

enum { MANY = 150000, RANK = 8 };

/* Tensors of one byte whose shapes differ, behind names that are never freed before the file is made. */
static heft_archive *many_tensors(void) {
    static char names[MANY][24], shapes[MANY][24];
    static test_tensor tensors[MANY];
    size_t nbytes;
    heft_source *source;
    heft_archive *archive;
    for (int i = 0; i < MANY; i++) {
        snprintf(names[i], sizeof names[i], "layers.%06d.scale", i);
        for (int d = 0; d < RANK; d++) memcpy(shapes[i] + 2 * d, d == i % RANK ? "2," : "1,", 2);
        shapes[i][2 * RANK - 1] = 0;
        tensors[i] = (test_tensor){names[i], "U8", shapes[i], NULL, 2};
    }
    uint8_t *file = test_safetensors(tensors, MANY, NULL, &nbytes);
    OK(heft_source_open_memory(file, nbytes, NULL, free, file, &source, &err));
    OK(heft_archive_open_source(source, NULL, &archive, &err));
    heft_source_unref(source);
    return archive;
}

/* All that is large of a catalog and of a plan lies at multiples of a huge page, and they were asked for: header, entries,
 * shapes, lists. */
static void large_catalogs_ask_for_them(void **state) {
    (void)state;
    heft_archive *archive = many_tensors();
    const heft__listing *listing = archive->files[0];
    heft_load_plan *plan;
    heft_weights *weights;
    OK(heft_load_plan_new(archive, NULL, &plan, &err));
    OK(heft_load_run(plan, &weights, NULL, &err));
    const struct {
        const void *at;
        uint64_t nbytes;
    } blocks[] = {{listing->header, listing->header_nbytes},
                  {listing->entries, listing->capacity * sizeof *listing->entries},
                  {listing->arena.chunks, listing->arena.nbytes},
                  {plan->plan->items, plan->plan->items_capacity * sizeof *plan->plan->items},
                  {weights->data, weights->data_nbytes}};
    bool seen = asked_can_be_seen();
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) {
        assert_true(blocks[i].nbytes >= HEFT__HUGE_MIN);
        assert_int_equal((uintptr_t)blocks[i].at % HEFT__OS_HUGE_PAGE, 0);
        if (seen) assert_true(asked(blocks[i].at));
    }
    heft_weights_unref(weights);
    heft_load_plan_free(plan);
    heft_archive_unref(archive);
}

/* ---- loads on a system that grants none ---- */

static void loads_go_on_without(void **state) {
    (void)state;
    static heft__os_traits traits;
    traits = *heft__os_traits_get();
    traits.plain_pages = true;
    heft_archive *archive = load_open(load_set("plain", 2, 12, 3 << 20));
    for (heft_huge huge = HEFT_HUGE_AUTO; huge <= HEFT_HUGE_REQUIRE; huge++) {
        test_allocator t;
        test_allocator_init(&t, 0);
        heft_load_options o = {.struct_size = sizeof o, .huge = huge, .allocator = &t.alloc};
        heft_load_stats stats = {.struct_size = sizeof stats};
        heft_weights *weights;
        heft__os_traits_replace(&traits);
        heft_status status = heft_load(archive, &o, &weights, &stats, &err);
        heft__os_traits_replace(NULL);
        bool granted = status == HEFT_OK && huge == HEFT_HUGE_REQUIRE; /* where they come unasked */
        if (granted) printf("left out: huge pages come unasked here\n");
        else assert_int_equal(status, huge == HEFT_HUGE_REQUIRE ? HEFT_LIMIT : HEFT_OK);
        if (status == HEFT_OK) {
            assert_weights(archive, weights);
            assert_int_equal(stats.huge_wanted_nbytes != 0, huge != HEFT_HUGE_NEVER);
        } else {
            assert_non_null(strstr(err.message, "huge pages are required"));
            assert_null(weights);
        }
        heft_weights_unref(weights);
        assert_true(t.live_blocks == 0);
    }
    heft_archive_unref(archive);
    archive = load_open(load_set("little", 1, 4, 100)); /* nothing large enough to ask for any */
    heft_load_options o = {.struct_size = sizeof o, .huge = HEFT_HUGE_REQUIRE};
    heft_weights *weights;
    heft__os_traits_replace(&traits);
    heft_status status = heft_load(archive, &o, &weights, NULL, &err);
    heft__os_traits_replace(NULL);
    assert_int_equal(status, HEFT_OK);
    heft_weights_unref(weights);
    heft_archive_unref(archive);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arenas_ask_for_whole_units),
        cmocka_unit_test(large_catalogs_ask_for_them),
        cmocka_unit_test(loads_go_on_without),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
