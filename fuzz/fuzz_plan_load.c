/* fuzz: plans of loads. The input makes files, tensors, views, facts and wishes. Nothing is read: what the plan says about
 * every block is held against what must be true of every plan. */
#include "catalog/catalog.h"
#include "plan/plan.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define REQUIRE(condition)                                                                                             \
    do {                                                                                                               \
        if (!(condition)) abort();                                                                                     \
    } while (0)

enum { FILES = 3, TENSORS = 40, WRITES = 1 << 14 };

typedef struct input {
    const uint8_t *data;
    size_t left;
} input;

static uint32_t next(input *in) {
    if (in->left == 0) return 0;
    in->left--;
    return *in->data++;
}

/* Sizes of all magnitudes. */
static uint64_t size_of(input *in, uint32_t most_bits) {
    uint32_t bits = next(in) % (most_bits + 1);
    uint64_t n = next(in) | (uint64_t)next(in) << 8 | (uint64_t)next(in) << 16 | (uint64_t)next(in) << 24;
    return n % (UINT64_C(1) << bits);
}

static int64_t never_read(void *ctx, uint64_t offset, void *dst, size_t nbytes) {
    (void)ctx, (void)offset, (void)dst, (void)nbytes;
    abort();
}

typedef struct world {
    heft_archive archive;
    heft__listing listings[FILES], *files[FILES];
    heft__entry entries[FILES][TENSORS];
    uint64_t shapes[FILES][TENSORS][2];
    heft__ref refs[FILES * TENSORS];
    heft__source_facts facts[FILES];
    uint64_t ends[FILES];
} world;

static void make_files(world *w, input *in) {
    static heft_source *sources[FILES];
    memset(w, 0, sizeof *w);
    w->archive.alloc = heft__default_allocator;
    w->archive.files = w->files;
    w->archive.tensors = w->refs;
    w->archive.nfiles = 1 + next(in) % FILES;
    for (uint32_t f = 0; f < w->archive.nfiles; f++) {
        heft_source_callbacks callbacks = {.struct_size = sizeof callbacks, .size = 1, .read_at = never_read};
        if (!sources[f]) REQUIRE(heft_source_open_callbacks(&callbacks, "f", &sources[f], NULL) == HEFT_OK);
        heft__listing *listing = w->files[f] = &w->listings[f];
        listing->source = sources[f];
        listing->entries = w->entries[f];
        uint64_t at = 8 + next(in) % 200;
        for (uint32_t n = next(in) % TENSORS; listing->nentries < n && in->left;) {
            heft__entry *e = &w->entries[f][listing->nentries];
            uint64_t *shape = w->shapes[f][listing->nentries];
            *e = (heft__entry){.name = "t", .name_len = 1, .rank = 2, .shape = shape};
            e->dtype = (uint8_t)(1 + next(in) % (HEFT_DTYPE_COUNT - 1));
            shape[0] = size_of(in, 11);
            shape[1] = size_of(in, 12);
            uint64_t bits = shape[0] * shape[1] * heft__dtypes[e->dtype].bits;
            if (bits % 8) shape[0] *= 8, bits *= 8;
            e->begin = at;
            e->end = at += bits / 8;
            at += next(in) % 2 ? size_of(in, 22) : 0;
            w->refs[w->archive.ntensors++] = (heft__ref){f, (uint32_t)listing->nentries++};
        }
        uint32_t flags = next(in);
        w->ends[f] = listing->source->size = at + (flags & 1 ? size_of(in, 16) : 0);
        listing->source->capabilities = flags & 2 ? 0 : HEFT_SOURCE_MAP;
        listing->source->window_offset = flags & 4 ? UINT64_C(512) * next(in) : 0;
        heft__source_facts *facts = &w->facts[f];
        facts->file = !(flags & 8);
        facts->fs_class = (heft__fs_class)(flags & 16 ? next(in) % 6 : 1);
        facts->direct = (heft__direct_state)(flags & 32 ? next(in) % 3 : 1);
        facts->direct_memory = UINT32_C(1) << next(in) % 18;
        facts->direct_offset = UINT32_C(1) << next(in) % 18;
        facts->residency.known = flags & 64;
        facts->residency.dirty = flags & 128 && next(in) % 2;
        facts->residency.asked_nbytes = 100;
        facts->residency.resident_nbytes = next(in) % 101;
    }
}

static heft_view columns(const world *w, uint64_t id, input *in) {
    const heft__entry *e = &w->entries[w->refs[id].file][w->refs[id].entry];
    heft_view v = {.archive = &w->archive, .id = id, .dtype = e->dtype, .rank = 2};
    int64_t rows = (int64_t)e->shape[0], cols = (int64_t)e->shape[1];
    v.shape[0] = rows;
    v.shape[1] = cols ? 1 + (int64_t)(size_of(in, 12) % (uint64_t)cols) : 0;
    v.stride[0] = cols;
    v.stride[1] = 1;
    v.offset = cols ? (int64_t)(size_of(in, 12) % (uint64_t)(cols - v.shape[1] + 1)) : 0;
    return v;
}

/* ---- what must be true ---- */

/* Memory that blocks write: [place, place + nbytes) of a slot. */
typedef struct write {
    uint64_t slot, place, nbytes;
} write;

static write writes[WRITES];
static size_t nwrites;

static void add_write(uint32_t slot, int64_t place, uint64_t nbytes) {
    REQUIRE(place >= 0);
    if (nwrites && writes[nwrites - 1].slot == slot &&
        writes[nwrites - 1].place + writes[nwrites - 1].nbytes == (uint64_t)place) {
        writes[nwrites - 1].nbytes += nbytes;
        return;
    }
    if (nwrites < WRITES) writes[nwrites++] = (write){slot, (uint64_t)place, nbytes};
}

static int by_place(const void *a, const void *b) {
    const write *x = a, *y = b;
    if (x->slot != y->slot) return x->slot < y->slot ? -1 : 1;
    return x->place < y->place ? -1 : x->place > y->place;
}

static void check_writes(const heft_plan *plan) {
    qsort(writes, nwrites, sizeof *writes, by_place);
    for (size_t i = 0; i < nwrites; i++) {
        REQUIRE(writes[i].slot < plan->narenas);
        REQUIRE(writes[i].place + writes[i].nbytes <= plan->arenas[writes[i].slot].nbytes);
        if (i > 0 && writes[i].slot == writes[i - 1].slot)
            REQUIRE(writes[i].place >= writes[i - 1].place + writes[i - 1].nbytes);
    }
}

/* The pieces of a block of plain items: each item's bytes in order, vectors as O_DIRECT wants them. */
static void check_pieces(const heft_plan *plan, const heft__plan_block *block, uint64_t *delivered) {
    const heft__plan_run *run = &plan->runs[block->run];
    const heft__plan_source *source = &plan->sources[run->source];
    uint64_t at = block->offset, end = at + block->nbytes, item = heft__plan_item_at(plan, run, at), n, align = 1;
    bool straight = block->step != HEFT__PLAN_GATHER, was_dump = false;
    if (run->direct && straight) align = source->direct_align;
    int64_t tail = -1;
    for (bool first = true; at < end; at += n, first = false) {
        int64_t place;
        uint32_t slot;
        uint64_t before = item;
        bool lands = heft__plan_piece(plan, run, at, end, &item, &n, &place, &slot);
        REQUIRE(n > 0 && at + n <= end);
        if (!lands) {
            if (!first && !was_dump) REQUIRE((uint64_t)tail % align == 0);
            REQUIRE(n % align == 0);
            was_dump = true;
            continue;
        }
        if (first || was_dump) REQUIRE((uint64_t)place % align == 0);
        if (run->direct && straight) REQUIRE(((uint64_t)place - at) % source->congruence == 0);
        was_dump = false;
        tail = place + (int64_t)n;
        add_write(slot, place, n);
        const heft__plan_item *it = &plan->items[before];
        if (at >= it->offset && at < it->offset + it->nbytes) {
            REQUIRE(at == it->offset + delivered[before] && place == it->place + (int64_t)delivered[before]);
            delivered[before] += n;
        }
    }
    if (block->step == HEFT__PLAN_PLAIN) {
        REQUIRE(tail == block->place + (int64_t)block->nbytes);
        REQUIRE((uint64_t)block->place % align == 0);
    }
}

static void check_nest(const heft_plan *plan, const heft__plan_block *block, uint64_t *requested) {
    const heft__plan_run *run = &plan->runs[block->run];
    const heft__plan_item *item = &plan->items[run->first_item];
    const heft__plan_nest *nest = &plan->nests[item->nest];
    const heft__plan_source *source = &plan->sources[run->source];
    for (uint64_t b = nest->bits ? 0 : block->part; b < (nest->bits ? nest->nboxes : block->part + 1); b++) {
        heft__box box;
        uint64_t begin, end, src;
        int64_t dst;
        heft__nest_box(plan, nest, b, &box);
        REQUIRE(!nest->direct || box.nreads == 1);
        for (uint64_t r = 0; r < box.nreads && r < 100; r++) {
            heft__nest_read(nest, &box, r, &src, &dst);
            heft__nest_range(nest, item, src, box.span, &begin, &end);
            REQUIRE(begin >= item->offset && end <= item->offset + item->nbytes);
            *requested += heft__plan_asked(source, begin, end);
            heft__plan_round(source, &begin, &end);
            if (!nest->scatter) REQUIRE(end - begin <= nest->box_nbytes && nest->box_nbytes <= plan->scratch_nbytes);
        }
        if (box.nreads > 100) *requested += (box.nreads - 100) * box.span;
    }
}

static void check_blocks(const heft_plan *plan) {
    uint64_t *delivered = calloc(plan->nitems + 1, sizeof *delivered), requested = 0, at_run = HEFT_NONE, at = 0;
    REQUIRE(delivered);
    nwrites = 0;
    for (uint64_t i = 0; i < plan->sum.nblocks; i++) {
        heft__plan_block block;
        heft__plan_block_at(plan, i, &block);
        REQUIRE((block.way == HEFT__PLAN_TOUCH) == (i >= plan->first_touch));
        if (block.way == HEFT__PLAN_TOUCH) {
            const heft__plan_mapping *m = &plan->mappings[block.channel - plan->nsources];
            REQUIRE(block.offset >= m->offset && block.offset + block.nbytes <= m->offset + m->nbytes && block.nbytes);
            continue;
        }
        const heft__plan_source *source = &plan->sources[block.channel];
        const heft__plan_run *run = &plan->runs[block.run];
        REQUIRE((block.way == HEFT__PLAN_DIRECT) == (source->path == HEFT_PATH_DIRECT));
        if (plan->items[run->first_item].nest != HEFT__PLAN_NONE) {
            check_nest(plan, &block, &requested);
            continue;
        }
        REQUIRE(block.needed <= block.nbytes && block.offset + block.needed <= source->source->size);
        if (block.way == HEFT__PLAN_DIRECT)
            REQUIRE(block.offset % source->direct_align == 0 && block.nbytes % source->direct_align == 0);
        if (at_run == block.run) REQUIRE(block.offset == at); /* neighbours meet: nothing is read twice */
        at_run = block.run;
        at = block.offset + block.nbytes;
        uint64_t come = block.offset + block.nbytes > source->source->size ? source->source->size - block.offset : block.nbytes;
        requested += come;
        if (block.step == HEFT__PLAN_GATHER) REQUIRE(block.nbytes <= plan->scratch_nbytes);
        check_pieces(plan, &block, delivered);
    }
    uint64_t kept = 0;
    for (uint64_t i = 0; i < plan->nitems; i++) {
        const heft__plan_item *item = &plan->items[i];
        if (item->mapped) continue;
        kept += heft__plan_kept(plan, item);
        if (item->nest == HEFT__PLAN_NONE) REQUIRE(delivered[i] == item->nbytes);
        else add_write(item->slot, item->place, heft__plan_kept(plan, item));
    }
    free(delivered);
    REQUIRE(requested == plan->sum.requested_nbytes);
    REQUIRE(requested == kept + plan->sum.over_read_nbytes + plan->sum.spanned_nbytes);
    check_writes(plan);
}

static void check_places(const heft_plan *plan) {
    for (uint64_t i = 0; i < plan->nitems; i++) {
        const heft__plan_item *item = &plan->items[i];
        heft_load_place place;
        heft__plan_place(plan, item, &place);
        bool identity = item->mapped || plan->sources[item->source].path != HEFT_PATH_DIRECT || item->apart ||
                        item->nest != HEFT__PLAN_NONE;
        if (identity) REQUIRE(place.align >= heft__plan_align(plan, item));
        else REQUIRE(place.align >= (item->offset % heft__plan_align(plan, item) ? 1 : heft__plan_align(plan, item)));
        uint64_t first, n;
        heft__plan_item_blocks(plan, i, &first, &n);
        REQUIRE(n > 0 || item->mapped);
        REQUIRE(first + n <= plan->sum.nblocks);
        if (!item->mapped) continue;
        const heft__plan_mapping *m = &plan->mappings[item->slot];
        REQUIRE(m->source == item->source && item->offset >= m->offset);
        REQUIRE(item->offset + item->nbytes <= m->offset + m->nbytes);
    }
    for (uint64_t i = 1; i < plan->nmappings; i++)
        if (plan->mappings[i].source == plan->mappings[i - 1].source)
            REQUIRE(plan->mappings[i].offset >= plan->mappings[i - 1].offset + plan->mappings[i - 1].nbytes);
}

static void check_plan(const heft_plan *plan, const heft__plan_wishes *wishes) {
    if (wishes->io != HEFT_IO_DIRECT && !wishes->ring_nbytes) {
        REQUIRE(plan->sum.over_read_nbytes <= heft__plan_budget(plan));
        uint64_t padding = plan->nitems * (64 + (wishes->align ? wishes->align : 8)) + plan->narenas * UINT64_C(65536);
        REQUIRE(plan->slack <= HEFT__PLAN_SLACK + padding);
    }
    if (plan->sum.nblocks < 5000) check_blocks(plan); /* the rest would tell nothing new and take long */
    check_places(plan);
    heft_footprint footprint;
    heft__plan_memory memory = {.free_nbytes = HEFT_NONE};
    REQUIRE(heft__plan_footprint(plan, &memory, &footprint, NULL) == HEFT_OK);
    REQUIRE(footprint.peak_owned_nbytes >= plan->sum.scratch_nbytes + footprint.arena_nbytes);
    uint64_t nbytes;
    char *text = heft__plan_text(plan, &nbytes);
    REQUIRE(text);
    heft__free(&plan->alloc, text, nbytes);
}

static void make_wishes(input *in, heft__plan_request *request, heft__plan_wishes *wishes) {
    static const uint64_t gaps[] = {0, HEFT_NONE, 1, 100000}, pages[] = {4096, 16384, 65536};
    uint32_t flags = next(in), more = next(in);
    *request = (heft__plan_request){.alloc = heft__default_allocator, .default_workers = 1 + next(in) % 20, .layout = true};
    request->options.gap_nbytes = flags & 1 ? gaps[next(in) % 4] : 0;
    request->options.block_nbytes = flags & 2 ? 16384 + size_of(in, 23) : 0;
    request->options.workers = flags & 4 ? next(in) % 40 : 0;
    request->host_is_big_endian = (flags & 24) == 24;
    request->scratch_most = flags & 32 ? 2048 + size_of(in, 16) : 0;
    request->vector_min = flags & 64 ? 1 + next(in) : 0;
    request->unit_min = flags & 128 ? 1 + next(in) : 0;
    *wishes = (heft__plan_wishes){.page_nbytes = pages[next(in) % 3], .cpus = next(in) % 9};
    wishes->io = more & 1 ? next(in) % 4 : HEFT_IO_AUTO;
    wishes->cache_policy = more & 2 ? HEFT_CACHE_KEEP : 0;
    wishes->arena_scope = more & 4 ? HEFT_ARENA_SHARD : 0;
    wishes->no_direct = (more & 24) == 24;
    wishes->count_tensors = more & 32;
    wishes->align = more & 64 ? UINT64_C(1) << next(in) % 13 : 0;
    wishes->direct_io_tensor_cap = more & 128 ? next(in) : 0;
    wishes->ring_nbytes = next(in) % 4 ? 0 : 1 + size_of(in, 24);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static world w;
    input in = {data, size};
    heft__plan_request request;
    heft__plan_wishes wishes;
    heft_plan *plan;
    make_wishes(&in, &request, &wishes);
    make_files(&w, &in);
    REQUIRE(heft__plan_new(&request, &plan, NULL) == HEFT_OK);
    REQUIRE(heft__plan_add_archive(plan, &w.archive, NULL) == HEFT_OK);
    for (uint64_t i = 0; i < w.archive.ntensors; i++) {
        uint32_t what = next(&in) % 8;
        heft_view view = columns(&w, i, &in);
        heft_status status = HEFT_OK;
        if (what == 1) status = heft__plan_add_view(plan, &view, 0, NULL, (uint32_t)i, NULL);
        else if (what != 2) status = heft__plan_add_tensor(plan, &w.archive, i, (uint32_t)i, NULL);
        REQUIRE(status == HEFT_OK);
    }
    heft_status status = HEFT_OK;
    for (uint32_t times = 1 + next(&in) % 2; times > 0 && status == HEFT_OK; times--) {
        status = heft__plan_choose(plan, w.facts, &wishes, NULL);
        if (status == HEFT_OK && times == 2) w.facts[0].residency.resident_nbytes = 100 - w.facts[0].residency.resident_nbytes;
    }
    if (status == HEFT_OK) {
        REQUIRE(heft__plan_finish(plan, NULL) == HEFT_OK);
        check_plan(plan, &wishes);
    } else
        REQUIRE(status == HEFT_UNSUPPORTED && wishes.io != HEFT_IO_AUTO);
    heft_plan_free(plan);
    return 0;
}
