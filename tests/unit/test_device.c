/* Arenas of the host, and devices: the host, and a made-up one that takes copies through its queue only. */
#include "helper_archive.h"
#include "helper_files.h"

#include "base/error.h"
#include "base/os.h"
#include "device/device.h"
#include "engine/engine.h"
#include "plan/plan.h"

#include <sys/wait.h>
#include <unistd.h>

static heft_error err;

/* ---- arenas ---- */

static void arenas_are_aligned(void **state) {
    (void)state;
    static const struct {
        uint64_t nbytes, align;
        bool pages;
    } cases[] = {{0, 64, false},           {1, 64, false},          {100000, 64, false},   {(2 << 20) - 1, 64, false},
                 {2 << 20, 64, true},      {(2 << 20) + 1, 64, true}, {9 << 20, 4096, true}, {5000, 4096, true},
                 {70000, 65536, true}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        test_allocator t;
        test_allocator_init(&t, 0);
        heft_arena *arena;
        assert_int_equal(heft__host_arena_new(&t.alloc, HEFT_HUGE_AUTO, &arena, &err), HEFT_OK);
        assert_int_equal(heft__host_arena_take(arena, cases[i].nbytes, cases[i].align, &err), HEFT_OK);
        assert_int_equal((uintptr_t)arena->data % cases[i].align, 0);
        if (cases[i].pages) assert_int_equal((uintptr_t)arena->data % (2 << 20), 0);
        assert_int_equal(arena->pages, cases[i].pages);
        assert_int_equal(t.live_blocks, cases[i].pages ? 1 : 2); /* mappings are not the allocator's */
        assert_true(arena->nbytes >= cases[i].nbytes);
        memset(arena->data, 0xA5, cases[i].nbytes);
        assert_int_equal(heft__host_arena_huge_wanted(arena), cases[i].pages ? cases[i].nbytes >> 21 << 21 : 0);
        heft__host_arena_settle(arena);
        heft__host_arena_unref(arena);
        assert_int_equal(t.live_blocks, 0);
    }
}

static void huge_pages_are_counted(void **state) {
    (void)state;
    if (test_skip_emulated("huge pages")) return;
    uint64_t nbytes = (9 << 20) + 12345;
    heft_arena *arena;
    assert_int_equal(heft__host_arena_new(&heft__default_allocator, HEFT_HUGE_NEVER, &arena, &err), HEFT_OK);
    assert_int_equal(heft__host_arena_take(arena, nbytes, 64, &err), HEFT_OK);
    memset(arena->data, 1, nbytes);
    assert_int_equal(heft__host_arena_huge_wanted(arena), 0);
    assert_int_equal(heft__host_arena_huge_nbytes(arena), 0);
    heft__host_arena_unref(arena);

    assert_int_equal(heft__host_arena_new(&heft__default_allocator, HEFT_HUGE_REQUIRE, &arena, &err), HEFT_OK);
    heft_status status = heft__host_arena_take(arena, nbytes, 64, &err);
    if (status == HEFT_OK) { /* the tail is no whole unit, so it never counts */
        memset(arena->data, 1, nbytes);
        assert_int_equal(heft__host_arena_huge_wanted(arena), 8 << 20);
        assert_in_range(heft__host_arena_huge_nbytes(arena), 2 << 20, 8 << 20);
    } else
        assert_int_equal(status, HEFT_LIMIT);
    heft__host_arena_unref(arena);
}

/* A system without huge pages, and one that does not say. */
static void required_huge_pages_are_refused(void **state) {
    (void)state;
    heft__os_traits traits = *heft__os_traits_get();
    heft_arena *arena;
    traits.plain_pages = true;
    traits.root = test_mkdir("no_proc");
    heft__os_traits_replace(&traits);
    assert_int_equal(heft__host_arena_new(&heft__default_allocator, HEFT_HUGE_REQUIRE, &arena, &err), HEFT_OK);
    assert_int_equal(heft__host_arena_take(arena, 4 << 20, 64, &err), HEFT_LIMIT);
    assert_null(arena->data);
    assert_int_equal(heft__host_arena_take(arena, 1 << 20, 64, &err), HEFT_OK); /* too small to ask for any */
    heft__host_arena_give_back(arena);
    arena->huge = HEFT_HUGE_AUTO;
    assert_int_equal(heft__host_arena_take(arena, 4 << 20, 64, &err), HEFT_OK);
    assert_int_equal(heft__host_arena_huge_nbytes(arena), HEFT_NONE);
    heft__host_arena_unref(arena);
    heft__os_traits_replace(NULL);
}

static void smaps_are_read_by_range(void **state) {
    (void)state;
    static const char text[] = "10000000-10400000 rw-p 00000000 00:00 0 \n"
                               "Size:               4096 kB\n"
                               "AnonHugePages:      4096 kB\n"
                               "10400000-10401000 rw-p 00000000 00:00 0 /a/very/long/path\n"
                               "AnonHugePages:         0 kB\n"
                               "7f0000000000-7f0000800000 rw-p 00000000 00:00 0 [anon: x]\n"
                               "AnonHugePages:      2048 kB\n";
    test_write("maps/proc/self/smaps", text, sizeof text - 1);
    heft__os_traits traits = *heft__os_traits_get();
    traits.root = test_path("maps");
    heft__os_traits_replace(&traits);
    assert_int_equal(heft__os_huge_nbytes((void *)(uintptr_t)0x10000000, 0x401000), 4 << 20);
    assert_int_equal(heft__os_huge_nbytes((void *)(uintptr_t)0x10000000, 0x200000), 2 << 20); /* no more than there is */
    assert_int_equal(heft__os_huge_nbytes((void *)(uintptr_t)0x10400000, 0x1000), 0);
    assert_int_equal(heft__os_huge_nbytes((void *)(uintptr_t)0x7f0000000000, 0x800000), 2 << 20);
    assert_int_equal(heft__os_huge_nbytes((void *)(uintptr_t)0x20000000, 0x1000), HEFT_NONE);
    heft__os_traits_replace(NULL);
}

static void arenas_serve_again(void **state) {
    (void)state;
    heft_arena *arena;
    assert_int_equal(heft__host_arena_new(&heft__default_allocator, HEFT_HUGE_AUTO, &arena, &err), HEFT_OK);
    assert_int_equal(heft__host_arena_take(arena, 3 << 20, 64, &err), HEFT_OK);
    uint8_t *first = arena->data;
    assert_int_equal(heft__host_arena_take(arena, 1, 64, &err), HEFT_INVALID_ARGUMENT); /* in use */
    heft_buffer buffer;
    heft__host_arena_buffer(arena, 3 << 20, &buffer);
    memset(buffer.data, 7, buffer.nbytes);
    heft_buffer_release(&buffer);
    assert_null(buffer.data);
    heft_buffer_release(&buffer); /* twice does nothing */
    assert_int_equal(heft__host_arena_take(arena, 1000, 64, &err), HEFT_OK); /* large enough: the same memory */
    assert_ptr_equal(arena->data, first);
    heft__host_arena_give_back(arena);
    assert_int_equal(heft__host_arena_take(arena, 8 << 20, 64, &err), HEFT_OK); /* grows */
    memset(arena->data, 7, 8 << 20);
    heft__host_arena_buffer(arena, 8 << 20, &buffer);
    heft__host_arena_unref(arena); /* the buffer keeps it */
    memset(buffer.data, 9, buffer.nbytes);
    heft_buffer_release(&buffer);
}

static void arenas_fail_cleanly(void **state) {
    (void)state;
    for (uint64_t k = 1;; k++) {
        test_allocator t;
        test_allocator_init(&t, k);
        heft_arena *arena;
        heft_status status = heft__host_arena_new(&t.alloc, HEFT_HUGE_AUTO, &arena, &err);
        if (status == HEFT_OK) {
            status = heft__host_arena_take(arena, 5000, 64, &err);
            assert_int_equal(heft__host_arena_take(arena, UINT64_MAX, 64, &err),
                             status == HEFT_OK ? HEFT_INVALID_ARGUMENT : HEFT_OUT_OF_MEMORY);
            heft__host_arena_unref(arena);
        }
        assert_int_equal(t.live_blocks, 0);
        if (status == HEFT_OK) break;
        assert_int_equal(status, HEFT_OUT_OF_MEMORY);
    }
}

static bool child_sees(uint8_t *data) {
    int ends[2];
    uint8_t vector[1];
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) _exit(write(ends[1], data, 1) == 1 ? 0 : 1); /* EFAULT instead of a fault */
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    bool sees = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    if (sees) assert_int_equal(read(ends[0], vector, 1), 1);
    close(ends[0]);
    close(ends[1]);
    return sees;
}

static void children_get_no_pages_during_a_load(void **state) {
    (void)state;
    if (test_skip_emulated("forks without pages")) return;
    heft_arena *arena;
    assert_int_equal(heft__host_arena_new(&heft__default_allocator, HEFT_HUGE_AUTO, &arena, &err), HEFT_OK);
    assert_int_equal(heft__host_arena_take(arena, (4 << 20) + 100, 64, &err), HEFT_OK);
    memset(arena->data, 3, (4 << 20) + 100);
    assert_false(child_sees(arena->data));
    assert_false(child_sees(arena->data + (4 << 20) + 99));
    heft__host_arena_settle(arena);
    assert_true(child_sees(arena->data));
    assert_true(child_sees(arena->data + (4 << 20) + 99));
    heft__host_arena_unref(arena);
}

/* ---- devices ---- */

/* Memory that nobody may touch but the queue, which is worked off when somebody waits. */
typedef struct fake_copy {
    uint8_t *to;
    const uint8_t *from;
    uint64_t nbytes;
} fake_copy;

typedef struct fake_device {
    fake_copy queue[64];
    uint64_t put, done;
    atomic_flag busy;
    uint64_t live;
    uint8_t *pinned; /* the one block of pinned memory */
    size_t pinned_nbytes;
} fake_device;

static heft_status fake_alloc(const heft__device *device, uint64_t nbytes, heft__device_memory *out, heft_error *e) {
    fake_device *fake = device->ctx;
    void *p = aligned_alloc(device->align, (nbytes + 255) / 256 * 256 + 256);
    if (!p) return heft__fail_memory(e, nbytes);
    fake->live++;
    *out = (heft__device_memory){.host = NULL, .handle = p, .nbytes = nbytes};
    return HEFT_OK;
}

static void fake_free(const heft__device *device, heft__device_memory *memory) {
    ((fake_device *)device->ctx)->live--;
    free(memory->handle);
}

static void fake_work_off(fake_device *fake, uint64_t until) {
    for (; fake->done < until; fake->done++) {
        fake_copy *c = &fake->queue[fake->done % 64];
        memcpy(c->to, c->from, c->nbytes);
    }
}

static heft_status fake_put(const heft__device *device, const heft__device_memory *to, uint64_t offset, const void *from,
                            uint64_t nbytes, uint64_t *ticket, heft_error *e) {
    fake_device *fake = device->ctx;
    size_t at = (size_t)((const uint8_t *)from - fake->pinned);
    if (offset > to->nbytes || nbytes > to->nbytes - offset || at >= fake->pinned_nbytes ||
        nbytes > fake->pinned_nbytes - at)
        return heft__fail(e, HEFT_DEVICE, HEFT_FAULT_CALL, "a copy that the device does not take");
    while (atomic_flag_test_and_set(&fake->busy)) {}
    if (fake->put - fake->done == 64) fake_work_off(fake, fake->put);
    fake->queue[fake->put % 64] = (fake_copy){(uint8_t *)to->handle + offset, from, nbytes};
    *ticket = ++fake->put;
    atomic_flag_clear(&fake->busy);
    return HEFT_OK;
}

static heft_status fake_wait(const heft__device *device, uint64_t ticket, heft_error *e) {
    (void)e;
    fake_device *fake = device->ctx;
    while (atomic_flag_test_and_set(&fake->busy)) {}
    fake_work_off(fake, ticket);
    atomic_flag_clear(&fake->busy);
    return HEFT_OK;
}

static void *pinned_alloc(void *ctx, size_t nbytes) {
    fake_device *fake = ctx;
    assert_null(fake->pinned);
    fake->pinned_nbytes = nbytes;
    return fake->pinned = malloc(nbytes);
}

static void *pinned_realloc(void *ctx, void *p, size_t old_nbytes, size_t nbytes) {
    (void)ctx, (void)p, (void)old_nbytes, (void)nbytes;
    return NULL;
}

static void pinned_free(void *ctx, void *p, size_t nbytes) {
    fake_device *fake = ctx;
    assert_int_equal(nbytes, fake->pinned_nbytes);
    fake->pinned = NULL;
    free(p);
}

static heft__device fake_open(fake_device *fake) {
    memset(fake, 0, sizeof *fake);
    atomic_flag_clear(&fake->busy);
    return (heft__device){.name = "fake", .ctx = fake, .align = 256, .staging = true, .alloc = fake_alloc,
                          .free = fake_free, .copy = fake_put, .wait = fake_wait,
                          .host_alloc = {fake, pinned_alloc, pinned_realloc, pinned_free}};
}

/* A plan at work on a device: each block is read to scratch, and its pieces are copied from there to the places that tensors
 * have in the device's memory, which are multiples of its alignment. */
typedef struct staged {
    const heft_plan *plan;
    const heft__device *device;
    const heft__device_memory *memory;
    uint64_t places[8]; /* of tensors */
} staged;

static heft_status staged_copies(const staged *s, heft__task *task, heft_error *e) {
    const heft__plan_run *run = &s->plan->runs[task->block.run];
    uint64_t at = task->block.offset, end = at + task->block.nbytes, n, item = heft__plan_item_at(s->plan, run, at);
    for (; at < end; at += n) {
        int64_t place;
        uint32_t slot;
        uint64_t piece_item = item;
        if (!heft__plan_piece(s->plan, run, at, end, &item, &n, &place, &slot)) continue;
        const heft__plan_item *it = &s->plan->items[piece_item];
        heft_status status = s->device->copy(s->device, s->memory, s->places[it->id] + (at - it->offset),
                                             task->scratch + (at - task->block.offset), n, &task->state[1], e);
        if (status != HEFT_OK) return status;
    }
    return s->device->wait(s->device, task->state[1], e); /* scratch is read into again */
}

static bool staged_step(const void *ctx, heft__task *task, heft_status *status, heft_error *e) {
    if (task->state[0]++) {
        *status = staged_copies(ctx, task, e);
        return false;
    }
    task->vec[0] = (heft__vec){task->scratch, (size_t)task->block.nbytes};
    task->nvec = 1;
    task->offset = task->block.offset;
    task->nbytes = task->block.nbytes;
    return true;
}

static void staged_block(const void *ctx, uint64_t number, heft__block *out) {
    const staged *s = ctx;
    uint64_t end;
    *out = (heft__block){.step = 0};
    heft__plan_locate(s->plan, number, &out->run, &out->part);
    heft__plan_cut(s->plan, &s->plan->runs[out->run], out->part, &out->offset, &end);
    out->nbytes = end - out->offset;
}

static void a_plan_runs_into_a_device(void **state) {
    (void)state;
    static uint8_t bytes[40000];
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (uint8_t)(i * 7 + i / 251);
    static const made_tensor tensors[] = {{HEFT_U8, 100, 5100, 1, {5000, 0}},
                                          {HEFT_F32, 5104, 25104, 1, {5000, 0}},
                                          {HEFT_U8, 25104, 25105, 1, {1, 0}},
                                          {HEFT_U8, 30000, 40000, 1, {10000, 0}}};
    for (uint32_t workers = 1; workers <= 3; workers += 2) {
        test_bytes origin = {.data = bytes, .nbytes = sizeof bytes, .most = 999};
        heft__channel channel = {.source = test_source(&origin), .direct_fd = -1};
        made_archive made;
        made_archive_init(&made, channel.source, tensors, 4);
        heft__plan_request request = {.alloc = heft__default_allocator, .default_workers = workers, .layout = true};
        request.options.block_nbytes = 256 * 16;
        request.options.gap_nbytes = 64;
        heft_plan *plan;
        assert_int_equal(heft__plan_new(&request, &plan, &err), HEFT_OK);
        for (uint32_t i = 0; i < 4; i++)
            assert_int_equal(heft__plan_add_tensor(plan, &made.archive, i, i, &err), HEFT_OK);
        assert_int_equal(heft__plan_finish(plan, &err), HEFT_OK);

        fake_device fake;
        heft__device device = fake_open(&fake);
        heft__device_memory memory;
        staged s = {.plan = plan, .device = &device, .memory = &memory};
        uint64_t nbytes = 0;
        for (uint32_t i = 0; i < 4; i++) {
            s.places[i] = nbytes;
            nbytes = (nbytes + tensors[i].end - tensors[i].begin + 255) / 256 * 256;
        }
        assert_int_equal(device.alloc(&device, nbytes, &memory, &err), HEFT_OK);
        assert_null(memory.host); /* a read cannot land here */
        static const heft__step steps[] = {staged_step};
        heft__engine_job job = {.nblocks = plan->sum.nblocks, .total_nbytes = plan->sum.requested_nbytes,
                                .block = staged_block, .steps = steps, .ctx = &s, .channels = &channel, .nchannels = 1,
                                .scratch_nbytes = sizeof bytes, .workers = workers, .alloc = heft__default_allocator,
                                .scratch_alloc = &device.host_alloc};
        heft__engine_result result;
        if (heft__engine_run(&heft__engine_pool, &job, &result, &err) != HEFT_OK) fail_msg("%s", err.message);
        for (uint32_t i = 0; i < 4; i++)
            assert_memory_equal((uint8_t *)memory.handle + s.places[i], bytes + tensors[i].begin,
                                tensors[i].end - tensors[i].begin);
        assert_true(plan->sum.nblocks >= 2);
        assert_true(fake.put >= 4);
        assert_int_equal(fake.put, fake.done);
        assert_null(fake.pinned);
        job.scratch_alloc = NULL; /* what lies elsewhere cannot be copied: the step fails the job */
        assert_int_equal(heft__engine_run(&heft__engine_pool, &job, &result, &err), HEFT_DEVICE);
        assert_int_equal(result.failed_block, 0);
        assert_int_equal(result.failed_offset, HEFT_NONE);
        device.free(&device, &memory);
        assert_int_equal(fake.live, 0);
        heft_plan_free(plan);
        made_archive_end(&made);
        heft_source_unref(channel.source);
    }
}

static void the_host_is_a_device(void **state) {
    (void)state;
    test_allocator t;
    test_allocator_init(&t, 0);
    heft__device host = heft__device_host(&t.alloc);
    heft__device_memory memory;
    assert_string_equal(host.name, "host");
    assert_false(host.staging);
    assert_int_equal(host.alloc(&host, 1000, &memory, &err), HEFT_OK);
    assert_int_equal((uintptr_t)memory.host % host.align, 0);
    uint64_t ticket;
    assert_int_equal(host.copy(&host, &memory, 990, "0123456789", 10, &ticket, &err), HEFT_OK);
    assert_int_equal(host.copy(&host, &memory, 991, "0123456789", 10, &ticket, &err), HEFT_INVALID_ARGUMENT);
    assert_int_equal(host.wait(&host, ticket, &err), HEFT_OK);
    assert_memory_equal(memory.host + 990, "0123456789", 10);
    host.free(&host, &memory);
    assert_int_equal(t.live_blocks, 0);
    test_allocator_init(&t, 1);
    assert_int_equal(host.alloc(&host, 1000, &memory, &err), HEFT_OUT_OF_MEMORY);
    assert_null(memory.handle);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arenas_are_aligned),
        cmocka_unit_test(huge_pages_are_counted),
        cmocka_unit_test(required_huge_pages_are_refused),
        cmocka_unit_test(smaps_are_read_by_range),
        cmocka_unit_test(arenas_serve_again),
        cmocka_unit_test(arenas_fail_cleanly),
        cmocka_unit_test(children_get_no_pages_during_a_load),
        cmocka_unit_test(a_plan_runs_into_a_device),
        cmocka_unit_test(the_host_is_a_device),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
