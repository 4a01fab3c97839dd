/* Plans of loads against tests/golden/plan/load_*.txt: each input, load_*.in, holds a listing, the facts of its files and the
 * caller's wishes, as text. HEFT_UPDATE_GOLDEN=1 rewrites the goldens. */
#include "helper_archive.h"
#include "helper_files.h"

#include "base/error.h"
#include "plan/plan.h"

#define MIB (UINT64_C(1) << 20)

static heft_error err;

static int64_t never_read(void *ctx, uint64_t offset, void *dst, size_t nbytes) { /* plans are pure */
    (void)ctx, (void)offset, (void)dst, (void)nbytes;
    abort();
}

/* ---- the input ----
 *
 *     file NAME CLASS [size N] [direct MEMORY/OFFSET] [direct unknown] [direct refused] [resident PERCENT] [dirty] [no-fd]
 *                     [no-map] [window N]
 *     tensor DTYPE OFFSET NBYTES               of the last file
 *     columns DTYPE OFFSET ROWS COLS FROM N    the view [:, FROM:FROM+N] of a tensor
 *     many COUNT DTYPE OFFSET NBYTES STEP      tensors at OFFSET, OFFSET + STEP ...
 *     wish WORD ...                            io=map align=64 cap=5000 ring=N page=N cpus=N workers=N gap=N scope=shard
 *                                              keep no-direct count-tensors swap
 *     memory WORD ...                          deferred= withheld= metadata= reserve= free= limit= percent= atlas
 *                                              refuse-unknown
 *     brief                                    no runs are printed
 */

enum { FILES = 8, TENSORS = 12000, VIEWS = TENSORS };

typedef struct scene {
    heft_archive archive;
    heft__listing listings[FILES], *files[FILES];
    heft__entry *entries[FILES];
    heft__ref *refs;
    uint64_t (*shapes)[2];
    heft_view *columns; /* of tensor id; rank 0: whole */
    heft__source_facts facts[FILES];
    uint32_t percent[FILES]; /* resident; UINT32_MAX: not known */
    heft__plan_wishes wishes;
    heft__plan_request request;
    heft__plan_memory memory;
    uint64_t limit;
    bool refuse_unknown, brief;
} scene;

static uint64_t number(const char *word) {
    char *end;
    uint64_t n = strtoull(word, &end, 10);
    if (strcmp(end, "K") == 0) return n << 10;
    if (strcmp(end, "M") == 0) return n << 20;
    if (strcmp(end, "G") == 0) return n << 30;
    if (*end) fail_msg("no number: %s", word);
    return n;
}

static heft_dtype dtype_named(const char *name) {
    for (heft_dtype dtype = 1; dtype < HEFT_DTYPE_COUNT; dtype++)
        if (strcmp(heft__dtypes[dtype].name, name) == 0) return dtype;
    fail_msg("no dtype: %s", name);
    return HEFT_DTYPE_NONE;
}

static void add_file(scene *s, char **words, int n) {
    static const char *const classes[] = {"unknown", "local", "memory", "network", "user-space", "stacked"};
    uint32_t f = s->archive.nfiles++;
    assert_true(f < FILES && n >= 3);
    heft_source_callbacks callbacks = {.struct_size = sizeof callbacks, .size = UINT64_C(1) << 50, .read_at = never_read};
    heft__listing *listing = &s->listings[f];
    char label[32];
    snprintf(label, sizeof label, "file%u", f);
    assert_int_equal(heft_source_open_callbacks(&callbacks, label, &listing->source, &err), HEFT_OK);
    listing->source->capabilities |= HEFT_SOURCE_MAP | HEFT_SOURCE_FD;
    listing->entries = s->entries[f] = calloc(TENSORS, sizeof(heft__entry));
    assert_non_null(listing->entries);
    s->files[f] = listing;
    heft__source_facts *facts = &s->facts[f];
    *facts = (heft__source_facts){.file = true, .direct = HEFT__DIRECT_KNOWN, .direct_memory = 512, .direct_offset = 512};
    snprintf(facts->fs_name, sizeof facts->fs_name, "%s", words[1]);
    uint32_t class = 0;
    while (class < 6 && strcmp(classes[class], words[2]) != 0) class++;
    assert_true(class < 6);
    facts->fs_class = (heft__fs_class)class;
    s->percent[f] = UINT32_MAX;
    for (int i = 3; i < n; i++) {
        if (strcmp(words[i], "dirty") == 0) facts->residency.dirty = true;
        else if (strcmp(words[i], "no-fd") == 0) facts->file = false;
        else if (strcmp(words[i], "no-map") == 0) listing->source->capabilities &= ~HEFT_SOURCE_MAP;
        else if (i + 1 == n) fail_msg("no value after %s", words[i]);
        else if (strcmp(words[i], "size") == 0) listing->source->size = number(words[++i]);
        else if (strcmp(words[i], "window") == 0) listing->source->window_offset = number(words[++i]);
        else if (strcmp(words[i], "resident") == 0) s->percent[f] = (uint32_t)number(words[++i]);
        else if (strcmp(words[i], "direct") != 0) fail_msg("what is %s?", words[i]);
        else if (strcmp(words[++i], "refused") == 0) facts->direct = HEFT__DIRECT_REFUSED;
        else if (strcmp(words[i], "unknown") == 0) {
            facts->direct = HEFT__DIRECT_UNKNOWN;
            facts->direct_memory = facts->direct_offset = HEFT__DIRECT_ASSUMED;
        } else {
            char *slash = strchr(words[i], '/');
            assert_non_null(slash);
            *slash = 0;
            facts->direct_memory = (uint32_t)number(words[i]);
            facts->direct_offset = (uint32_t)number(slash + 1);
        }
    }
}

static heft__entry *add_tensor(scene *s, heft_dtype dtype, uint64_t offset, uint64_t nbytes) {
    assert_true(s->archive.nfiles > 0 && s->archive.ntensors < TENSORS);
    uint32_t f = s->archive.nfiles - 1;
    heft__listing *listing = &s->listings[f];
    uint64_t id = s->archive.ntensors++, bits = heft__dtypes[dtype].bits;
    s->refs[id] = (heft__ref){f, (uint32_t)listing->nentries};
    s->shapes[id][0] = nbytes * 8 / bits;
    heft__entry *entry = &listing->entries[listing->nentries++];
    *entry = (heft__entry){.name = "t", .name_len = 1, .rank = 1, .shape = s->shapes[id], .begin = offset, .end = offset + nbytes,
                           .dtype = (uint8_t)dtype};
    return entry;
}

static void add_columns(scene *s, char **words) {
    heft_dtype dtype = dtype_named(words[1]);
    uint64_t rows = number(words[3]), cols = number(words[4]), id = s->archive.ntensors;
    heft__entry *entry = add_tensor(s, dtype, number(words[2]), rows * cols * heft__dtypes[dtype].bits / 8);
    entry->rank = 2;
    s->shapes[id][0] = rows;
    s->shapes[id][1] = cols;
    s->columns[id] = (heft_view){.archive = &s->archive, .id = id, .dtype = dtype, .rank = 2,
                                 .offset = (int64_t)number(words[5]), .shape = {(int64_t)rows, (int64_t)number(words[6])},
                                 .stride = {(int64_t)cols, 1}};
}

static void add_wish(scene *s, const char *word) {
    static const char *const ios[] = {"io=auto", "io=map", "io=buffered", "io=direct"};
    const char *value = strchr(word, '=');
    for (uint32_t io = 0; io < 4; io++)
        if (strcmp(word, ios[io]) == 0) {
            s->wishes.io = io;
            return;
        }
    if (strcmp(word, "keep") == 0) s->wishes.cache_policy = HEFT_CACHE_KEEP;
    else if (strcmp(word, "no-direct") == 0) s->wishes.no_direct = true;
    else if (strcmp(word, "count-tensors") == 0) s->wishes.count_tensors = true;
    else if (strcmp(word, "swap") == 0) s->request.host_is_big_endian = true;
    else if (strcmp(word, "scope=shard") == 0) s->wishes.arena_scope = HEFT_ARENA_SHARD;
    else if (strcmp(word, "cap=none") == 0) s->wishes.direct_io_tensor_cap = HEFT_NONE;
    else if (strcmp(word, "gap=never") == 0) s->request.options.gap_nbytes = HEFT_NONE;
    else if (!value) fail_msg("what is %s?", word);
    else if (strncmp(word, "align=", 6) == 0) s->wishes.align = number(value + 1);
    else if (strncmp(word, "cap=", 4) == 0) s->wishes.direct_io_tensor_cap = number(value + 1);
    else if (strncmp(word, "ring=", 5) == 0) s->wishes.ring_nbytes = number(value + 1);
    else if (strncmp(word, "page=", 5) == 0) s->wishes.page_nbytes = number(value + 1);
    else if (strncmp(word, "cpus=", 5) == 0) s->wishes.cpus = (uint32_t)number(value + 1);
    else if (strncmp(word, "workers=", 8) == 0) s->request.options.workers = (uint32_t)number(value + 1);
    else if (strncmp(word, "gap=", 4) == 0) s->request.options.gap_nbytes = number(value + 1);
    else if (strncmp(word, "block=", 6) == 0) s->request.options.block_nbytes = number(value + 1);
    else fail_msg("what is %s?", word);
}

static void add_memory(scene *s, const char *word) {
    const char *value = strchr(word, '=');
    heft__plan_memory *m = &s->memory;
    if (strcmp(word, "atlas") == 0) m->atlas = true;
    else if (strcmp(word, "refuse-unknown") == 0) s->refuse_unknown = true;
    else if (!value) fail_msg("what is %s?", word);
    else if (strncmp(word, "percent=", 8) == 0) m->multiplier = (double)number(value + 1) / 100;
    else if (strncmp(word, "deferred=", 9) == 0) m->deferred_nbytes = number(value + 1);
    else if (strncmp(word, "withheld=", 9) == 0) m->withheld_nbytes = number(value + 1);
    else if (strncmp(word, "metadata=", 9) == 0) m->metadata_nbytes = number(value + 1);
    else if (strncmp(word, "reserve=", 8) == 0) m->reserve_nbytes = number(value + 1);
    else if (strncmp(word, "limit=", 6) == 0) s->limit = number(value + 1);
    else if (strncmp(word, "free=", 5) == 0) {
        m->free_nbytes = number(value + 1);
        m->free_origin = "MemAvailable";
    } else fail_msg("what is %s?", word);
}

static void add_line(scene *s, char **words, int n) {
    if (n == 0 || words[0][0] == '#') return;
    if (strcmp(words[0], "file") == 0) add_file(s, words, n);
    else if (strcmp(words[0], "tensor") == 0 && n == 4) add_tensor(s, dtype_named(words[1]), number(words[2]), number(words[3]));
    else if (strcmp(words[0], "columns") == 0 && n == 7) add_columns(s, words);
    else if (strcmp(words[0], "many") == 0 && n == 6)
        for (uint64_t i = 0; i < number(words[1]); i++)
            add_tensor(s, dtype_named(words[2]), number(words[3]) + i * number(words[5]), number(words[4]));
    else if (strcmp(words[0], "wish") == 0)
        for (int i = 1; i < n; i++) add_wish(s, words[i]);
    else if (strcmp(words[0], "memory") == 0)
        for (int i = 1; i < n; i++) add_memory(s, words[i]);
    else if (strcmp(words[0], "brief") == 0) s->brief = true;
    else fail_msg("what is %s?", words[0]);
}

static scene *scene_new(char *text) {
    scene *s = calloc(1, sizeof *s);
    assert_non_null(s);
    s->refs = calloc(TENSORS, sizeof *s->refs);
    s->shapes = calloc(TENSORS, sizeof *s->shapes);
    s->columns = calloc(TENSORS, sizeof *s->columns);
    assert_true(s->refs && s->shapes && s->columns);
    s->archive.alloc = heft__default_allocator;
    s->archive.files = s->files;
    s->archive.tensors = s->refs;
    s->request = (heft__plan_request){.alloc = heft__default_allocator, .default_workers = 2, .layout = true};
    s->wishes = (heft__plan_wishes){.page_nbytes = 4096, .cpus = 2};
    s->memory.free_nbytes = HEFT_NONE;
    for (char *line = text, *next; line; line = next) {
        char *words[16];
        int n = 0;
        next = strchr(line, '\n');
        if (next) *next++ = 0;
        for (char *at = line; *at && n < 16;) {
            at += strspn(at, " ");
            if (*at) words[n++] = at;
            at += strcspn(at, " ");
            if (*at) *at++ = 0;
        }
        add_line(s, words, n);
    }
    for (uint32_t f = 0; f < s->archive.nfiles; f++) s->listings[f].nvisible = s->listings[f].nentries;
    return s;
}

static void scene_free(scene *s) {
    for (uint32_t f = 0; f < s->archive.nfiles; f++) {
        heft_source_unref(s->listings[f].source);
        free(s->entries[f]);
    }
    free(s->refs);
    free(s->shapes);
    free(s->columns);
    free(s);
}

/* ---- the plan ---- */

static void ask_residency(scene *s, heft_plan *plan) {
    for (uint32_t f = 0; f < s->archive.nfiles; f++) {
        heft__extent *extents;
        uint64_t n, sum = 0, end = 0;
        assert_int_equal(heft__plan_extents(plan, f, &extents, &n, &err), HEFT_OK);
        for (uint64_t i = 0; i < n; i++) {
            if (i > 0) assert_true(extents[i].offset > end);
            end = extents[i].offset + extents[i].nbytes;
            sum += extents[i].nbytes;
        }
        heft__free(&plan->alloc, extents, n * sizeof *extents);
        heft__residency *r = &s->facts[f].residency;
        r->known = s->percent[f] != UINT32_MAX;
        r->asked_nbytes = sum;
        r->resident_nbytes = r->known ? (sum * s->percent[f] + 99) / 100 : 0;
    }
}

static heft_status plan_scene(scene *s, heft_plan **out) {
    heft_plan *plan;
    assert_int_equal(heft__plan_new(&s->request, &plan, &err), HEFT_OK);
    assert_int_equal(heft__plan_add_archive(plan, &s->archive, &err), HEFT_OK);
    for (uint64_t i = 0; i < s->archive.ntensors; i++) {
        heft_status status = s->columns[i].rank
                                 ? heft__plan_add_view(plan, &s->columns[i], 0, NULL, (uint32_t)i, &err)
                                 : heft__plan_add_tensor(plan, &s->archive, i, (uint32_t)i, &err);
        assert_int_equal(status, HEFT_OK);
    }
    assert_int_equal(heft__plan_sort(plan, &err), HEFT_OK);
    ask_residency(s, plan);
    heft_status status = heft__plan_choose(plan, s->facts, &s->wishes, &err);
    if (status == HEFT_OK) status = heft__plan_finish(plan, &err);
    *out = plan;
    return status;
}

/* Every byte that is kept comes in exactly one block, blocks touch no place twice, and what is said of them agrees. */
static void check_blocks(const heft_plan *plan) {
    uint64_t *seen = calloc(plan->nitems + 1, sizeof *seen);
    assert_non_null(seen);
    for (uint64_t b = 0; b < plan->sum.nblocks; b++) {
        heft__plan_block block;
        uint64_t first, n;
        heft__plan_block_at(plan, b, &block);
        heft__plan_block_items(plan, b, &first, &n);
        for (uint64_t i = first; i < first + n; i++) {
            uint64_t begin, count;
            if (plan->items[i].mapped != (b >= plan->first_touch)) continue;
            seen[i]++;
            heft__plan_item_blocks(plan, i, &begin, &count);
            assert_true(b >= begin && b < begin + count);
        }
        if (n) assert_in_range(heft__plan_blame(plan, b, block.offset), first, first + n - 1);
    }
    for (uint64_t i = 0; i < plan->nitems; i++) {
        uint64_t begin, count;
        heft__plan_item_blocks(plan, i, &begin, &count);
        assert_int_equal(seen[i], count);
        assert_true(count > 0 || plan->items[i].mapped);
    }
    free(seen);
}

static void print_footprint(const heft_footprint *f, char *out, size_t size) {
    snprintf(out, size,
             "footprint: kept %llu, deferred %llu, withheld %llu, arena %llu, scratch %llu, ring %llu, side %llu, mapped "
             "%llu\n  estimate %llu; owned less metadata %llu\n",
             (unsigned long long)f->kept_nbytes, (unsigned long long)f->deferred_nbytes,
             (unsigned long long)f->withheld_nbytes, (unsigned long long)f->arena_nbytes,
             (unsigned long long)f->scratch_nbytes, (unsigned long long)f->ring_nbytes,
             (unsigned long long)f->side_nbytes, (unsigned long long)f->mapped_nbytes,
             (unsigned long long)f->estimate_nbytes, (unsigned long long)(f->peak_owned_nbytes - f->metadata_nbytes));
}

static char *text_of(scene *s) {
    char *out = calloc(1, 1 << 20);
    heft_plan *plan;
    assert_non_null(out);
    heft_status status = plan_scene(s, &plan);
    if (status != HEFT_OK) {
        snprintf(out, 1 << 20, "%s: %s\n", heft_status_name(status), err.message);
        heft_plan_free(plan);
        return out;
    }
    check_blocks(plan);
    uint64_t nbytes;
    char *text = heft__plan_text(plan, &nbytes), *runs;
    assert_non_null(text);
    if (s->brief && ((runs = strstr(text, "\n  run 0:")) || (runs = strstr(text, "\n    view 0:")))) runs[1] = 0;
    heft_footprint footprint;
    assert_int_equal(heft__plan_footprint(plan, &s->memory, &footprint, &err), HEFT_OK);
    size_t at = (size_t)snprintf(out, 1 << 20, "%s", text);
    print_footprint(&footprint, out + at, (1 << 20) - at);
    if (heft__plan_admit(&footprint, s->memory.reserve_nbytes, s->limit, s->refuse_unknown, &err) != HEFT_OK)
        strcat(out, "  refused\n");
    heft__free(&plan->alloc, text, nbytes);
    heft_plan_free(plan);
    return out;
}

/* Every input beside the goldens. */
static void goldens(void **state) {
    (void)state;
    static const char *const names[] = {
        "paths", "paths_wishes", "paths_stacked", "paths_shared", "forced_map", "forced_map_align",
        "forced_map_columns", "forced_map_swap", "forced_map_none", "forced_direct", "forced_tmpfs", "forced_fd",
        "forced_buffered", "extent_cap", "extent_cap_compat", "extent_cap_none", "extent_cap_default", "budget_edges",
        "budget_slack", "experts", "tiny_kept", "ends", "align", "align_256", "direct_misaligned", "direct_gaps",
        "direct_wide", "columns", "arena_shard", "ring", "mappings_many", "mappings_merge", "network", "memory",
        "memory_fits", "memory_limit", "memory_unknown", "memory_fp8", "memory_fp8_half", "end_of_file", "window",
        "workers_one", "workers_many", "workers_small", "workers_network", "workers_network_many", "forced_map_network",
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[1024];
        size_t n;
        snprintf(path, sizeof path, "%s/../golden/plan/load_%s.in", TEST_DATA, names[i]);
        char *input = (char *)test_slurp(path, &n);
        scene *s = scene_new(input);
        char *text = text_of(s);
        snprintf(path, sizeof path, "%s/../golden/plan/load_%s.txt", TEST_DATA, names[i]);
        const char *update = getenv("HEFT_UPDATE_GOLDEN");
        if (update && strcmp(update, "1") == 0) {
            FILE *f = fopen(path, "w");
            assert_non_null(f);
            fputs(text, f);
            fclose(f);
        }
        char *want = (char *)test_slurp(path, &n);
        if (strcmp(text, want) != 0) fail_msg("load_%s:\n%s\nbut wanted:\n%s", names[i], text, want);
        free(want);
        free(text);
        free(input);
        scene_free(s);
    }
}

/* What is too long for a golden: a file has up to 1,024 mappings, and beyond that one. */
static void mappings_of_a_file(void **state) {
    (void)state;
    for (int n = 1024; n <= 1025; n++) {
        char input[200];
        heft_plan *plan;
        snprintf(input, sizeof input, "file ext4 local resident 100\nmany %d U8 8192 100 3000000\nwish io=map\n", n);
        scene *s = scene_new(input);
        assert_int_equal(plan_scene(s, &plan), HEFT_OK);
        assert_int_equal(plan->nmappings, n == 1024 ? 1024 : 1);
        heft_plan_free(plan);
        scene_free(s);
    }
}

/* Direct reads that are demanded of what cannot be read so. */
static void direct_where_it_cannot_be(void **state) {
    (void)state;
    static const char *const files[] = {"file memory unknown no-fd", "file tmpfs memory", "file xfs local direct refused",
                                        "file xfs local direct 512/131072"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char input[200];
        heft_plan *plan;
        snprintf(input, sizeof input, "%s\ntensor F32 104 64M\nwish io=direct\n", files[i]);
        scene *s = scene_new(input);
        assert_int_equal(plan_scene(s, &plan), HEFT_UNSUPPORTED);
        assert_non_null(strstr(err.message, "cannot be had by path direct"));
        heft_plan_free(plan);
        scene_free(s);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(goldens),
        cmocka_unit_test(mappings_of_a_file),
        cmocka_unit_test(direct_where_it_cannot_be),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
