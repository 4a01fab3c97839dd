/* Facts of files from injected system calls: every step of the ladder, every errno, every class. */
#include "helper_source.h"

#include "facts/facts.h"

#include <errno.h>

/* ---- a made-up system ---- */

#define PAGE ((uint64_t)heft__os_page_size())

static struct {
    int fs_errno, direct_errno, cachestat_errno, nowait_errno, mincore_errno;
    uint32_t magic, memory, offset;
    bool may_mincore, thp_disabled;
    uint64_t hot_begin, hot_end; /* of the file: what is in the cache */
    uint64_t unclean;            /* pages of each answer */
    uint64_t cachestats, nowaits, mincores;
    uint64_t fail_call;          /* the call of a step (1, 2 ...) from which it fails; 0: the first */
    uint64_t begin, end;         /* smallest and largest place asked for */
    uint64_t nbytes, largest;    /* asked for */
} fake;
static heft__facts_sys sys;

static void fake_asked(uint64_t offset, uint64_t nbytes) {
    assert_true(nbytes > 0);
    assert_true(offset + nbytes > offset);
    if (offset < fake.begin) fake.begin = offset;
    if (offset + nbytes > fake.end) fake.end = offset + nbytes;
    fake.nbytes += nbytes;
    if (nbytes > fake.largest) fake.largest = nbytes;
}

static uint64_t fake_pages(uint64_t offset, uint64_t nbytes) {
    uint64_t begin = offset / PAGE * PAGE, end = offset + nbytes;
    if (begin < fake.hot_begin) begin = fake.hot_begin;
    if (end > fake.hot_end) end = fake.hot_end;
    return end > begin ? (end - begin + PAGE - 1) / PAGE : 0;
}

static int fake_fs_type(int fd, uint32_t *magic) {
    assert_true(fd >= 0);
    *magic = fake.magic;
    return fake.fs_errno;
}

static int fake_direct(int fd, uint32_t *memory, uint32_t *offset) {
    assert_true(fd >= 0);
    *memory = fake.memory;
    *offset = fake.offset;
    return fake.direct_errno;
}

static int fake_cachestat(int fd, uint64_t offset, uint64_t nbytes, heft__cached_pages *out) {
    assert_true(fd >= 0);
    if (++fake.cachestats >= fake.fail_call && fake.cachestat_errno) return fake.cachestat_errno;
    fake_asked(offset, nbytes);
    *out = (heft__cached_pages){fake_pages(offset, nbytes), fake.unclean};
    return 0;
}

static int fake_nowait(int fd, uint64_t offset) {
    assert_true(fd >= 0);
    if (++fake.nowaits >= fake.fail_call && fake.nowait_errno) return fake.nowait_errno;
    fake_asked(offset, 1);
    return fake_pages(offset, 1) ? 0 : EAGAIN;
}

static int fake_mincore(int fd, uint64_t offset, uint64_t nbytes, uint64_t *cached) {
    assert_true(fd >= 0);
    assert_true(fake.may_mincore);
    if (++fake.mincores >= fake.fail_call && fake.mincore_errno) return fake.mincore_errno;
    fake_asked(offset, nbytes);
    *cached = fake_pages(offset, nbytes);
    return 0;
}

static bool fake_may_mincore(int fd) {
    assert_true(fd >= 0);
    return fake.may_mincore;
}

static bool fake_thp_disabled(void) {
    return fake.thp_disabled;
}

static void forget(void) {
    fake.cachestats = fake.nowaits = fake.mincores = fake.end = fake.nbytes = fake.largest = 0;
    fake.begin = UINT64_MAX;
}

static int inject(void **state) {
    (void)state;
    memset(&fake, 0, sizeof fake);
    forget();
    fake.magic = 0xEF53;
    fake.may_mincore = true;
    sys = (heft__facts_sys){fake_fs_type, fake_direct,      fake_cachestat,   fake_nowait,
                            fake_mincore, fake_may_mincore, fake_thp_disabled, heft__os_seconds};
    heft__facts_sys_replace(&sys);
    return 0;
}

static int restore(void **state) {
    (void)state;
    heft__facts_sys_replace(NULL);
    heft__os_traits_replace(NULL);
    return 0;
}

/* ---- file systems ---- */

static void classes_of_file_systems(void **state) {
    (void)state;
    static const struct {
        uint32_t magic;
        heft__fs_class fs_class;
        const char *name;
    } rows[] = {
        {0xEF53, HEFT__FS_LOCAL, "ext4"},           {0x58465342, HEFT__FS_LOCAL, "xfs"},
        {0x9123683E, HEFT__FS_LOCAL, "btrfs"},      {0xF2F52010, HEFT__FS_LOCAL, "f2fs"},
        {0x2FC12FC1, HEFT__FS_LOCAL, "zfs"},        {0x73717368, HEFT__FS_LOCAL, "squashfs"},
        {0x01021994, HEFT__FS_MEMORY, "tmpfs"},     {0x858458F6, HEFT__FS_MEMORY, "ramfs"},
        {0x958458F6, HEFT__FS_MEMORY, "hugetlbfs"}, {0x794C7630, HEFT__FS_STACKED, "overlay"},
        {0xF15F, HEFT__FS_STACKED, "ecryptfs"},     {0x65735546, HEFT__FS_USER_SPACE, "fuse"},
        {0x6969, HEFT__FS_NETWORK, "nfs"},          {0x517B, HEFT__FS_NETWORK, "smb"},
        {0xFF534D42, HEFT__FS_NETWORK, "cifs"},     {0xFE534D42, HEFT__FS_NETWORK, "smb2"},
        {0x0BD00BD0, HEFT__FS_NETWORK, "lustre"},   {0x01021997, HEFT__FS_NETWORK, "9p"},
        {0x00C36400, HEFT__FS_NETWORK, "ceph"},     {0x01161970, HEFT__FS_NETWORK, "gfs2"},
        {0x7461636F, HEFT__FS_NETWORK, "ocfs2"},    {0x5346414F, HEFT__FS_NETWORK, "afs"},
        {0x6B414653, HEFT__FS_NETWORK, "afs"},      {0x73757245, HEFT__FS_NETWORK, "coda"},
        {0x47504653, HEFT__FS_NETWORK, "gpfs"},     {0x19830326, HEFT__FS_NETWORK, "beegfs"},
        {0x20030528, HEFT__FS_NETWORK, "orangefs"}, {0x786F4256, HEFT__FS_NETWORK, "vboxsf"},
        {0x13734C6E, HEFT__FS_LOCAL, "0x13734c6e"}, {0, HEFT__FS_LOCAL, "0x00000000"},
        {0xFFFFFFFF, HEFT__FS_LOCAL, "0xffffffff"},
    };
    heft_source *source = open_content();
    heft__source_facts facts;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        fake.magic = rows[i].magic;
        heft__facts_source(source, NULL, 0, &facts);
        assert_int_equal(facts.fs_class, rows[i].fs_class);
        assert_string_equal(facts.fs_name, rows[i].name);
    }
    for (fake.fs_errno = 1; fake.fs_errno < 40; fake.fs_errno++) {
        heft__facts_source(source, NULL, 0, &facts);
        assert_int_equal(facts.fs_class, HEFT__FS_UNKNOWN);
        assert_string_equal(facts.fs_name, "unknown");
        assert_true(facts.file);
    }
    /* The name of a device lies in a tmpfs, its bytes do not. */
    fake.fs_errno = 0;
    fake.magic = 0x01021994;
    source->identity.known = false;
    heft__facts_source(source, NULL, 0, &facts);
    assert_int_equal(facts.fs_class, HEFT__FS_LOCAL);
    assert_string_equal(facts.fs_name, "device");
    heft_source_unref(source);
    assert_string_equal(heft__fs_class_name(HEFT__FS_UNKNOWN), "unknown");
    assert_string_equal(heft__fs_class_name(HEFT__FS_LOCAL), "local");
    assert_string_equal(heft__fs_class_name(HEFT__FS_MEMORY), "memory");
    assert_string_equal(heft__fs_class_name(HEFT__FS_NETWORK), "network");
    assert_string_equal(heft__fs_class_name(HEFT__FS_USER_SPACE), "user-space");
    assert_string_equal(heft__fs_class_name(HEFT__FS_STACKED), "stacked");
    assert_string_equal(heft__fs_class_name((heft__fs_class)6), "unknown");
}

static void direct_alignment(void **state) {
    (void)state;
    static const struct {
        uint32_t memory, offset;
        int code;
        heft__direct_state direct;
        uint32_t expected_memory, expected_offset;
    } rows[] = {
        {4, 512, 0, HEFT__DIRECT_KNOWN, 4, 512},
        {4096, 131072, 0, HEFT__DIRECT_KNOWN, 4096, 131072},
        {1, 1, 0, HEFT__DIRECT_KNOWN, 1, 1},
        {0, 0, 0, HEFT__DIRECT_REFUSED, 0, 0},
        {512, 0, 0, HEFT__DIRECT_REFUSED, 0, 0},
        {0, 512, 0, HEFT__DIRECT_REFUSED, 0, 0},
        {3, 512, 0, HEFT__DIRECT_REFUSED, 0, 0}, /* nothing that a mask can do */
        {4, 513, 0, HEFT__DIRECT_REFUSED, 0, 0},
        {4, 512, ENODATA, HEFT__DIRECT_UNKNOWN, 4096, 4096},
        {4, 512, ENOSYS, HEFT__DIRECT_UNKNOWN, 4096, 4096},
        {4, 512, EPERM, HEFT__DIRECT_UNKNOWN, 4096, 4096},
    };
    heft_source *source = open_content();
    heft__source_facts facts;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        fake.memory = rows[i].memory;
        fake.offset = rows[i].offset;
        fake.direct_errno = rows[i].code;
        heft__facts_source(source, NULL, 0, &facts);
        assert_int_equal(facts.direct, rows[i].direct);
        assert_int_equal(facts.direct_memory, rows[i].expected_memory);
        assert_int_equal(facts.direct_offset, rows[i].expected_offset);
    }
    heft_source_unref(source);
}

static void sources_without_a_file(void **state) {
    (void)state;
    heft_source *memory = NULL, *window = NULL;
    test_bytes bytes = {.data = content, .nbytes = 100};
    heft_source *callback = test_source(&bytes);
    assert_int_equal(heft_source_open_memory(content, 500, "m", NULL, NULL, &memory, NULL), HEFT_OK);
    assert_int_equal(heft_source_window(memory, 10, 20, &window, NULL), HEFT_OK);
    heft_source *sources[] = {memory, window, callback};
    static const char *const names[] = {"memory", "memory", "callback"};
    heft__extent all = {0, 20};
    for (size_t i = 0; i < 3; i++) {
        heft__source_facts facts;
        memset(&facts, 0xEE, sizeof facts);
        heft__facts_source(sources[i], &all, 1, &facts);
        assert_false(facts.file);
        assert_int_equal(facts.fs_class, HEFT__FS_UNKNOWN);
        assert_string_equal(facts.fs_name, names[i]);
        assert_int_equal(facts.direct, HEFT__DIRECT_REFUSED);
        assert_false(facts.residency.known);
        assert_int_equal(facts.residency.step, HEFT__RESIDENCY_NONE);
        assert_int_equal(facts.residency.asked_nbytes, 0);
        assert_int_equal(facts.identity.size, i == 2 ? 100 : 500);
    }
    assert_int_equal(bytes.calls, 0);
    heft_source_unref(window);
    heft_source_unref(memory);
    heft_source_unref(callback);
}

/* ---- residency ---- */

/* A file that says to be `nbytes` long; nobody reads it. */
static heft_source *open_large(uint64_t nbytes) {
    heft_source *source = open_content();
    source->size = nbytes;
    return source;
}

static heft__residency ask(heft_source *source, const heft__extent *extents, uint64_t nextents) {
    heft__source_facts facts;
    forget();
    memset(&facts, 0xEE, sizeof facts);
    heft__facts_source(source, extents, nextents, &facts);
    return facts.residency;
}

static void steps_and_errors(void **state) {
    (void)state;
    /* Each column: the errno of a step, 0 if it answers. */
    static const struct {
        int cachestat, nowait, mincore;
        bool may_mincore;
        heft__residency_step step;
    } rows[] = {
        {0, 0, 0, true, HEFT__RESIDENCY_CACHESTAT},
        {0, EOPNOTSUPP, EPERM, false, HEFT__RESIDENCY_CACHESTAT},
        {ENOSYS, 0, 0, true, HEFT__RESIDENCY_NOWAIT},
        {EPERM, 0, 0, true, HEFT__RESIDENCY_NOWAIT},
        {EOPNOTSUPP, 0, 0, true, HEFT__RESIDENCY_NOWAIT}, /* hugetlbfs */
        {EPERM, EOPNOTSUPP, 0, true, HEFT__RESIDENCY_MINCORE},
        {ENOSYS, ENOSYS, 0, true, HEFT__RESIDENCY_MINCORE},
        {ENOSYS, EINVAL, 0, true, HEFT__RESIDENCY_MINCORE},
        {ENOSYS, EIO, 0, true, HEFT__RESIDENCY_MINCORE},
        {EPERM, EOPNOTSUPP, 0, false, HEFT__RESIDENCY_NONE}, /* another user's file: mincore would say "all" */
        {EPERM, EOPNOTSUPP, ENODEV, true, HEFT__RESIDENCY_NONE},
        {EPERM, EOPNOTSUPP, EPERM, true, HEFT__RESIDENCY_NONE},
    };
    uint64_t size = UINT64_C(1) << 30;
    heft_source *source = open_large(size);
    heft__extent all = {0, size};
    fake.hot_end = size / 4;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        /* It may also fail half way: answers of an earlier step must not be mixed in. */
        for (fake.fail_call = 0; fake.fail_call <= 40; fake.fail_call += 20) {
            fake.cachestat_errno = rows[i].cachestat;
            fake.nowait_errno = rows[i].nowait;
            fake.mincore_errno = rows[i].mincore;
            fake.may_mincore = rows[i].may_mincore;
            if (fake.fail_call && rows[i].cachestat) fake.cachestat_errno = ENOSYS;
            heft__extent parts[64];
            for (uint64_t k = 0; k < 64; k++) parts[k] = (heft__extent){k * (size / 64), size / 64 - (1 << 20)};
            bool many = fake.fail_call != 0;
            heft__residency answer = many ? ask(source, parts, 64) : ask(source, &all, 1);
            uint64_t asked = many ? size - (UINT64_C(64) << 20) : size;
            bool known = rows[i].step != HEFT__RESIDENCY_NONE;
            assert_int_equal(answer.step, rows[i].step);
            assert_int_equal(answer.known, known);
            assert_int_equal(answer.asked_nbytes, asked);
            assert_int_equal(answer.resident_nbytes, known ? asked / 4 : 0);
            assert_false(answer.dirty);
        }
    }
    heft_source_unref(source);
}

/* cachestat of a file of an overlay answers 0, whatever is in memory. */
static void stacked_files(void **state) {
    (void)state;
    heft_source *source = open_large(1 << 30);
    heft__extent all = {0, 1 << 30};
    fake.magic = 0x794C7630;
    fake.nowait_errno = EOPNOTSUPP;
    heft__residency answer = ask(source, &all, 1);
    assert_int_equal(answer.step, HEFT__RESIDENCY_MINCORE);
    assert_int_equal(fake.cachestats, 0);
    heft_source_unref(source);
}

static void few_ranges_are_asked_exactly(void **state) {
    (void)state;
    uint64_t size = UINT64_C(1) << 30;
    heft_source *source = open_large(size);
    fake.hot_begin = 10 * PAGE;
    fake.hot_end = 20 * PAGE;
    /* Extents with small gaps are one range; one in a page of its own counts by its bytes. */
    heft__extent parts[] = {{10 * PAGE, PAGE}, {11 * PAGE + 5, PAGE}, {500 << 20, 3 * PAGE}, {(501 << 20) + 7, 0}, {600 << 20, 9}};
    heft__residency answer = ask(source, parts, 5);
    assert_int_equal(answer.step, HEFT__RESIDENCY_CACHESTAT);
    assert_int_equal(fake.cachestats, 3);
    assert_int_equal(fake.begin, 10 * PAGE);
    assert_int_equal(fake.end, (600 << 20) + 9);
    assert_int_equal(fake.nbytes, 2 * PAGE + 5 + 3 * PAGE + 9);
    assert_int_equal(answer.asked_nbytes, fake.nbytes);
    assert_int_equal(answer.resident_nbytes, 2 * PAGE + 5);
    assert_true(answer.known);

    /* The place of a window of the source counts, and nothing past its end does. */
    heft_source *window = NULL;
    assert_int_equal(heft_source_window(source, 15 * PAGE, 10 * PAGE, &window, NULL), HEFT_OK);
    heft__extent odd[] = {{0, UINT64_MAX}, {10 * PAGE, 1}, {UINT64_MAX, UINT64_MAX}};
    answer = ask(window, odd, 3);
    assert_int_equal(fake.cachestats, 1);
    assert_int_equal(fake.begin, 15 * PAGE);
    assert_int_equal(fake.end, 25 * PAGE);
    assert_int_equal(answer.asked_nbytes, 10 * PAGE);
    assert_int_equal(answer.resident_nbytes, 5 * PAGE);
    heft_source_unref(window);

    /* Unsorted ones are asked one by one. */
    heft__extent unsorted[] = {{19 * PAGE, 2 * PAGE}, {9 * PAGE, 2 * PAGE}};
    answer = ask(source, unsorted, 2);
    assert_int_equal(fake.cachestats, 2);
    assert_int_equal(answer.asked_nbytes, 4 * PAGE);
    assert_int_equal(answer.resident_nbytes, 2 * PAGE);
    heft_source_unref(source);
}

static void nothing_asked_is_not_known(void **state) {
    (void)state;
    heft_source *source = open_content();
    heft__extent none[] = {{0, 0}, {sizeof content, 5}, {UINT64_MAX, 1}};
    for (uint64_t n = 0; n <= 3; n++) {
        heft__residency answer = ask(source, n ? none : NULL, n);
        assert_false(answer.known);
        assert_int_equal(answer.step, HEFT__RESIDENCY_NONE);
        assert_int_equal(answer.asked_nbytes, 0);
        assert_int_equal(fake.cachestats + fake.nowaits + fake.mincores, 0);
    }
    heft_source_unref(source);
}

static void dirty_pages_are_seen(void **state) {
    (void)state;
    heft_source *source = open_content();
    heft__extent all = {0, sizeof content};
    fake.hot_end = UINT64_MAX;
    fake.unclean = 1;
    heft__residency answer = ask(source, &all, 1);
    assert_true(answer.dirty);
    assert_int_equal(answer.resident_nbytes, sizeof content);
    fake.cachestat_errno = EPERM;
    answer = ask(source, &all, 1);
    assert_int_equal(answer.step, HEFT__RESIDENCY_NOWAIT);
    assert_false(answer.dirty); /* it cannot tell */
    heft_source_unref(source);
}

/* Whatever the size and the number of ranges: 256 questions at most, of a bounded size, and a fair answer. */
static void large_and_many_are_sampled(void **state) {
    (void)state;
    static heft__extent many[100000];
    uint64_t sizes[] = {UINT64_C(3) << 30, UINT64_C(50) << 30, UINT64_C(1) << 62, (UINT64_C(1) << 63) + 12345};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        uint64_t size = sizes[s], n = sizeof many / sizeof *many;
        heft_source *source = open_large(size);
        for (uint64_t i = 0; i < n; i++) many[i] = (heft__extent){size / n * i, i % 2 ? 4 : 3 * PAGE};
        heft__extent all = {0, size};
        for (int step = 0; step < 3; step++) {
            fake.cachestat_errno = step > 0 ? EPERM : 0;
            fake.nowait_errno = step > 1 ? EOPNOTSUPP : 0;
            fake.hot_end = size / 2;
            heft__residency answer = ask(source, &all, 1);
            assert_int_equal(answer.step, HEFT__RESIDENCY_CACHESTAT + step);
            assert_int_equal(answer.asked_nbytes, size);
            assert_in_range(answer.resident_nbytes, size / 2 - size / 64, size / 2 + size / 64);
            assert_true(fake.end > size - size / 64 && fake.end <= size && fake.begin < size / 64);
            assert_in_range(fake.largest, 1, HEFT__MINCORE_MOST * 2);
            assert_in_range(fake.cachestats, 1, 256);
            assert_in_range(fake.nbytes, 1, 64 << 20);
            assert_in_range(fake.nowaits, 0, 64);
            assert_in_range(fake.mincores, 0, 64);
            answer = ask(source, many, n);
            assert_int_equal(answer.step, HEFT__RESIDENCY_CACHESTAT + step);
            assert_in_range(fake.cachestats, 1, 256);
            if (size > UINT64_C(50) << 30) assert_int_equal(answer.asked_nbytes, n / 2 * (3 * PAGE + 4));
            assert_in_range(answer.resident_nbytes, answer.asked_nbytes / 2 - answer.asked_nbytes / 32,
                            answer.asked_nbytes / 2 + answer.asked_nbytes / 32);
            fake.hot_end = UINT64_MAX; /* all of it is all of it */
            answer = ask(source, many, n);
            assert_int_equal(answer.resident_nbytes, answer.asked_nbytes);
            answer = ask(source, &all, 1);
            assert_int_equal(answer.resident_nbytes, size);
            fake.hot_end = 0;
            answer = ask(source, &all, 1);
            assert_int_equal(answer.resident_nbytes, 0);
            assert_true(answer.known);
        }
        heft_source_unref(source);
    }
    /* Fewer bytes than questions. */
    heft_source *source = open_content();
    heft__extent small = {5, 3};
    fake.hot_end = UINT64_MAX;
    heft__residency answer = ask(source, &small, 1);
    assert_int_equal(answer.step, HEFT__RESIDENCY_MINCORE);
    assert_int_equal(fake.mincores, 3);
    assert_int_equal(answer.resident_nbytes, 3);
    assert_true(fake.begin == 5 && fake.end == 8);
    heft_source_unref(source);
}

static void samples_lie_inside_of_extents(void **state) {
    (void)state;
    uint64_t size = UINT64_C(8) << 30;
    heft_source *source = open_large(size);
    /* One extent is most of what is kept: most samples lie in it, which the cold rest does not outvote. */
    heft__extent parts[] = {{0, 10}, {1 << 30, UINT64_C(1) << 30}, {size - 10, 10}};
    fake.cachestat_errno = ENOSYS;
    fake.hot_begin = 1 << 30;
    fake.hot_end = UINT64_C(2) << 30;
    heft__residency answer = ask(source, parts, 3);
    assert_int_equal(fake.nowaits, 64);
    assert_true(fake.begin > 1 << 30 && fake.end < UINT64_C(2) << 30);
    assert_int_equal(answer.resident_nbytes, answer.asked_nbytes);
    heft_source_unref(source);
}

/* A read that does not wait brings a page in: asking again must not find what the first time has left. */
static void samples_lie_elsewhere_the_next_time(void **state) {
    (void)state;
    uint64_t size = UINT64_C(1) << 30, places[8] = {0};
    heft_source *source = open_large(size);
    heft__extent all = {0, size};
    fake.cachestat_errno = EPERM;
    int same = 0;
    for (int i = 0; i < 8; i++) {
        (void)ask(source, &all, 1);
        assert_in_range(fake.begin, 0, size / 64);
        assert_in_range(fake.end, size - size / 64 + 1, size);
        places[i] = fake.begin;
        for (int k = 0; k < i; k++) same += places[k] == places[i];
    }
    assert_in_range(same, 0, 2);
    heft_source_unref(source);
}

/* ---- where nothing can be known ---- */

static void a_system_that_tells_nothing(void **state) {
    (void)state;
    heft__facts_sys_replace(&heft__facts_sys_none);
    heft_source *source = open_content();
    heft__extent all = {0, sizeof content};
    heft__source_facts facts;
    heft__facts_source(source, &all, 1, &facts);
    assert_true(facts.file);
    assert_int_equal(facts.fs_class, HEFT__FS_UNKNOWN);
    assert_int_equal(facts.direct, HEFT__DIRECT_UNKNOWN);
    assert_int_equal(facts.direct_memory, HEFT__DIRECT_ASSUMED);
    assert_int_equal(facts.direct_offset, HEFT__DIRECT_ASSUMED);
    assert_int_equal(facts.residency.step, HEFT__RESIDENCY_NONE);
    assert_false(facts.residency.known);
    assert_int_equal(facts.residency.asked_nbytes, sizeof content);
    assert_int_equal(facts.residency.resident_nbytes, 0);
    assert_int_equal(facts.identity.size, sizeof content);
    assert_true(facts.identity.known);
    uint64_t cached = 0;
    assert_int_equal(heft__facts_sys_none.mincore(source->fd, 0, 1, &cached), ENOSYS);
    heft_source_unref(source);
    heft__host_facts host;
    heft__facts_host(&host);
    assert_false(host.thp_disabled);
}

/* ---- memory and host ---- */

static void memory_of_the_caller_comes_first(void **state) {
    (void)state;
    heft__os_memory memory;
    heft__facts_memory(12345, 4, &memory);
    assert_int_equal(memory.nbytes, 12345);
    assert_string_equal(memory.origin, "caller");
    heft__facts_memory(0, 4, &memory); /* a number like any other */
    assert_int_equal(memory.nbytes, 0);
    assert_string_equal(memory.origin, "caller");
    heft__os_traits traits = {.root = test_path("nowhere")};
    heft__os_traits_replace(&traits);
    heft__facts_memory(HEFT_NONE, 4, &memory);
    assert_true(memory.nbytes == HEFT_NONE);
    assert_string_equal(memory.origin, "unknown");
    static const char meminfo[] = "MemAvailable: 7 kB\n";
    test_write("machine/proc/meminfo", meminfo, sizeof meminfo - 1);
    traits.root = test_path("machine");
    heft__facts_memory(HEFT_NONE, 4, &memory);
    assert_int_equal(memory.nbytes, 7168);
    assert_string_equal(memory.origin, "MemAvailable");
}

static void what_the_host_says(void **state) {
    (void)state;
    static const struct {
        const char *enabled, *size, *word;
        uint64_t nbytes;
    } rows[] = {
        {"always [madvise] never\n", "2097152\n", "madvise", 2097152},
        {"[always] madvise never\n", "536870912\n", "always", 536870912},
        {"always madvise [never]\n", "\n", "never", 0},
        {"always madvise never\n", "many\n", "unknown", 0},
        {"[]\n", "", "unknown", 0},
        {"[always\n", "18446744073709551616000\n", "unknown", 0},
        {"[a word much longer than any]\n", "0\n", "unknown", 0},
    };
    heft__os_traits traits = {.root = test_path("host")};
    heft__os_traits_replace(&traits);
    heft__host_facts host;
    heft__facts_host(&host);
    assert_string_equal(host.thp_enabled, "unknown");
    assert_int_equal(host.huge_page_nbytes, 0);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        test_write("host/sys/kernel/mm/transparent_hugepage/enabled", rows[i].enabled, strlen(rows[i].enabled));
        test_write("host/sys/kernel/mm/transparent_hugepage/hpage_pmd_size", rows[i].size, strlen(rows[i].size));
        fake.thp_disabled = i % 2;
        traits.root = test_path("host");
        heft__facts_host(&host);
        assert_string_equal(host.thp_enabled, rows[i].word);
        assert_int_equal(host.huge_page_nbytes, rows[i].nbytes);
        assert_int_equal(host.thp_disabled, i % 2);
        assert_true(host.cpus >= 1);
        assert_int_equal(host.page_nbytes, heft__os_page_size());
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(classes_of_file_systems, inject, restore),
        cmocka_unit_test_setup_teardown(direct_alignment, inject, restore),
        cmocka_unit_test_setup_teardown(sources_without_a_file, inject, restore),
        cmocka_unit_test_setup_teardown(steps_and_errors, inject, restore),
        cmocka_unit_test_setup_teardown(stacked_files, inject, restore),
        cmocka_unit_test_setup_teardown(few_ranges_are_asked_exactly, inject, restore),
        cmocka_unit_test_setup_teardown(nothing_asked_is_not_known, inject, restore),
        cmocka_unit_test_setup_teardown(dirty_pages_are_seen, inject, restore),
        cmocka_unit_test_setup_teardown(large_and_many_are_sampled, inject, restore),
        cmocka_unit_test_setup_teardown(samples_lie_inside_of_extents, inject, restore),
        cmocka_unit_test_setup_teardown(samples_lie_elsewhere_the_next_time, inject, restore),
        cmocka_unit_test_setup_teardown(a_system_that_tells_nothing, inject, restore),
        cmocka_unit_test_setup_teardown(memory_of_the_caller_comes_first, inject, restore),
        cmocka_unit_test_setup_teardown(what_the_host_says, inject, restore),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
