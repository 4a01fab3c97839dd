/* What helper_files.h promises. */
#include "helper_files.h"

#include <dirent.h>
#include <errno.h>
#include <ftw.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- files ---- */

static char dir_path[1024];

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw) {
    (void)st, (void)ftw;
    if (type == FTW_D || type == FTW_DNR) (void)chmod(path, 0700);
    return type == FTW_DP ? rmdir(path) : unlink(path);
}

static pid_t dir_owner;

static void remove_dir(void) {
    if (getpid() == dir_owner) (void)nftw(dir_path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

const char *test_dir(void) {
    if (!dir_path[0]) {
        const char *where = getenv("HEFT_TEST_TMP"); /* another file system */
        snprintf(dir_path, sizeof dir_path, "%s/tmp-XXXXXX", where ? where : TEST_TMP);
        assert_non_null(mkdtemp(dir_path));
        dir_owner = getpid();
        atexit(remove_dir);
    }
    return dir_path;
}

const char *test_path(const char *name) {
    static char ring[16][2048];
    static unsigned next;
    char *path = ring[next++ % 16];
    assert_true((size_t)snprintf(path, sizeof ring[0], "%s/%s", test_dir(), name) < sizeof ring[0]);
    return path;
}

static void make_parents(char *path) {
    for (char *slash = path + strlen(test_dir()) + 1; (slash = strchr(slash, '/')); slash++) {
        *slash = 0;
        assert_true(mkdir(path, 0777) == 0 || errno == EEXIST);
        *slash = '/';
    }
}

const char *test_mkdir(const char *name) {
    const char *path = test_path(name);
    char copy[2048];
    snprintf(copy, sizeof copy, "%s", path);
    make_parents(copy);
    assert_true(mkdir(path, 0777) == 0 || errno == EEXIST);
    return path;
}

const char *test_write(const char *name, const void *data, size_t nbytes) {
    const char *path = test_path(name);
    char copy[2048];
    snprintf(copy, sizeof copy, "%s", path);
    make_parents(copy);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, nbytes, f), nbytes);
    assert_int_equal(fclose(f), 0);
    return path;
}

int test_entries(const char *path) {
    DIR *d = opendir(path);
    int n = -2; /* . and .. */
    assert_non_null(d);
    while (readdir(d)) n++;
    closedir(d);
    return n;
}

uint8_t *test_slurp(const char *path, size_t *nbytes) {
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    assert_int_equal(fseek(f, 0, SEEK_END), 0);
    long n = ftell(f);
    assert_true(n >= 0);
    rewind(f);
    uint8_t *p = malloc((size_t)n + 1);
    assert_non_null(p);
    assert_int_equal(fread(p, 1, (size_t)n, f), n);
    p[n] = 0;
    fclose(f);
    *nbytes = (size_t)n;
    return p;
}

int test_count_fds(void) {
    DIR *d = opendir("/proc/self/fd");
    if (!d) return -1;
    int n = -3; /* ".", "..", and the descriptor of this listing */
    while (readdir(d)) n++;
    closedir(d);
    return n;
}

/* ---- safetensors files ---- */

static const char *const dtype_ranks[] = {"BOOL", "F4", "F6_E2M3", "F6_E3M2", "U8", "I8", "F8_E5M2", "F8_E4M3",
                                          "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ", "I16", "U16", "F16", "BF16", "I32",
                                          "U32", "F32", "C64", "F64", "I64", "U64"};

static int dtype_rank(const char *dtype) {
    for (int i = 0; i < 22; i++)
        if (strcmp(dtype_ranks[i], dtype) == 0) return i;
    return -1;
}

static int compare_tensors(const void *a, const void *b) {
    const test_tensor *x = *(const test_tensor *const *)a, *y = *(const test_tensor *const *)b;
    int rx = dtype_rank(x->dtype), ry = dtype_rank(y->dtype);
    return rx != ry ? (rx < ry ? 1 : -1) : strcmp(x->name, y->name);
}

typedef struct text_buffer {
    char *text;
    size_t len, capacity;
} text_buffer;

static void put(text_buffer *b, const char *text, size_t len) {
    if (b->len + len > b->capacity) {
        b->capacity = (b->len + len) * 2;
        b->text = realloc(b->text, b->capacity);
        assert_non_null(b->text);
    }
    memcpy(b->text + b->len, text, len);
    b->len += len;
}

static void put_text(text_buffer *b, const char *text) { put(b, text, strlen(text)); }

static void put_string(text_buffer *b, const char *text) {
    put_text(b, "\"");
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        char escape[8];
        if (c == '"' || c == '\\') snprintf(escape, sizeof escape, "\\%c", c);
        else if (c < 0x20 && strchr("\b\t\n\f\r", c)) snprintf(escape, sizeof escape, "\\%c", "btn?fr"[c - 8]);
        else if (c < 0x20) snprintf(escape, sizeof escape, "\\u%04x", c);
        else snprintf(escape, sizeof escape, "%c", c);
        put_text(b, escape);
    }
    put_text(b, "\"");
}

uint8_t *test_raw_safetensors(const char *header, size_t header_len, const void *data, size_t data_nbytes,
                              size_t *nbytes) {
    uint8_t *file = malloc(8 + header_len + data_nbytes + 1);
    assert_non_null(file);
    for (int i = 0; i < 8; i++) file[i] = (uint8_t)((uint64_t)header_len >> 8 * i);
    memcpy(file + 8, header, header_len);
    if (data_nbytes) memcpy(file + 8 + header_len, data, data_nbytes);
    *nbytes = 8 + header_len + data_nbytes;
    return file;
}

uint8_t *test_safetensors(const test_tensor *tensors, size_t ntensors, const char *metadata, size_t *nbytes) {
    const test_tensor **order = malloc((ntensors + 1) * sizeof *order);
    assert_non_null(order);
    for (size_t i = 0; i < ntensors; i++) order[i] = &tensors[i];
    qsort(order, ntensors, sizeof *order, compare_tensors);
    text_buffer head = {NULL, 0, 0}, data = {NULL, 0, 0};
    put_text(&head, "{");
    if (metadata) {
        put_text(&head, "\"__metadata__\":");
        put_text(&head, metadata);
    }
    for (size_t i = 0; i < ntensors; i++) {
        const test_tensor *t = order[i];
        char numbers[64];
        if (head.len > 1) put_text(&head, ",");
        put_string(&head, t->name);
        put_text(&head, ":{\"dtype\":\"");
        put_text(&head, t->dtype);
        put_text(&head, "\",\"shape\":[");
        put_text(&head, t->shape);
        snprintf(numbers, sizeof numbers, "],\"data_offsets\":[%zu,%zu]}", data.len, data.len + t->nbytes);
        put_text(&head, numbers);
        if (t->data) put(&data, t->data, t->nbytes);
        else
            for (size_t k = 0; k < t->nbytes; k++) put(&data, (char[]){(char)(k % 251)}, 1);
    }
    put_text(&head, "}");
    while (head.len % 8) put_text(&head, " ");
    uint8_t *file = test_raw_safetensors(head.text, head.len, data.text, data.len, nbytes);
    free(head.text);
    free(data.text);
    free(order);
    return file;
}

const char *test_write_safetensors(const char *name, const test_tensor *tensors, size_t ntensors,
                                   const char *metadata) {
    size_t n;
    uint8_t *file = test_safetensors(tensors, ntensors, metadata, &n);
    const char *path = test_write(name, file, n);
    free(file);
    return path;
}

/* ---- a source that counts, reads short, and fails ---- */

static int64_t bytes_read_at(void *ctx, uint64_t offset, void *dst, size_t nbytes) {
    test_bytes *b = ctx;
    uint64_t call = ++b->calls, end = b->end ? b->end : b->nbytes;
    if (call == b->fail_call || (b->fail_on && call > b->fail_call)) return -b->fail_errno;
    if (b->eintr && call % 2) return -EINTR;
    if (offset >= end) return 0;
    if (nbytes > end - offset) nbytes = (size_t)(end - offset);
    if (b->most && nbytes > b->most) nbytes = b->most;
    memcpy(dst, b->data + offset, nbytes);
    b->read_nbytes += nbytes;
    return (int64_t)nbytes;
}

static void bytes_release(void *ctx) { ((test_bytes *)ctx)->released++; }

heft_source *test_source(test_bytes *bytes) {
    heft_source_callbacks callbacks = {.struct_size = sizeof callbacks,
                                       .ctx = bytes,
                                       .size = bytes->nbytes,
                                       .read_at = bytes_read_at,
                                       .release = bytes_release};
    heft_source *source = NULL;
    heft_error err = {0};
    if (heft_source_open_callbacks(&callbacks, "test", &source, &err)) fail_msg("%s", err.message);
    return source;
}

/* ---- an allocator that fails the k-th allocation and counts what lives ---- */

/* The size of each block is kept before it, and a mark that freeing twice would find spoilt. */
typedef struct block_head {
    size_t nbytes;
    uint64_t mark;
} block_head;
#define BLOCK_MARK UINT64_C(0x6865667462636B21)

static bool refuse(test_allocator *t) {
    uint64_t call = ++t->calls;
    return t->fail_call && (call == t->fail_call || (t->fail_after && call > t->fail_call));
}

static void *count_alloc(void *ctx, size_t nbytes) {
    test_allocator *t = ctx;
    if (refuse(t)) return NULL;
    if (nbytes > SIZE_MAX - sizeof(block_head)) return NULL;
    block_head *head = malloc(sizeof *head + nbytes);
    if (!head) return NULL;
    *head = (block_head){nbytes, BLOCK_MARK};
    memset(head + 1, 0xA5, nbytes); /* nobody relies on zeros */
    t->live_blocks++;
    uint64_t now = atomic_fetch_add(&t->live_nbytes, nbytes) + nbytes, peak = t->peak_nbytes;
    while (now > peak && !atomic_compare_exchange_weak(&t->peak_nbytes, &peak, now)) continue;
    return head + 1;
}

static void count_free(void *ctx, void *ptr, size_t nbytes) {
    test_allocator *t = ctx;
    block_head *head = (block_head *)ptr - 1;
    assert_true(head->mark == BLOCK_MARK);
    assert_int_equal(head->nbytes, nbytes);
    head->mark = 0;
    memset(ptr, 0x5A, nbytes);
    t->live_blocks--;
    t->live_nbytes -= nbytes;
    free(head);
}

static void *count_realloc(void *ctx, void *ptr, size_t old_nbytes, size_t new_nbytes) {
    void *fresh = count_alloc(ctx, new_nbytes);
    if (!fresh) return NULL;
    memcpy(fresh, ptr, old_nbytes < new_nbytes ? old_nbytes : new_nbytes);
    count_free(ctx, ptr, old_nbytes);
    return fresh;
}

void test_allocator_init(test_allocator *t, uint64_t fail_call) {
    memset(t, 0, sizeof *t);
    t->alloc = (heft_allocator){t, count_alloc, count_realloc, count_free};
    t->fail_call = fail_call;
}

int test_count_threads(void) {
    int n = 0;
    char name[300];
    DIR *dir = opendir("/proc/self/task");
    if (!dir) return -1;
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        snprintf(name, sizeof name, "/proc/self/task/%s/comm", entry->d_name);
        FILE *file = entry->d_name[0] == '.' ? NULL : fopen(name, "r");
        if (!file) continue;
        n += fgets(name, sizeof name, file) && strncmp(name, "iou-", 4) != 0;
        fclose(file);
    }
    closedir(dir);
    return n;
}

void test_assert_threads(int n) {
    for (int i = 0; i < 2000 && test_count_threads() > n; i++) usleep(5000);
    assert_true(test_count_threads() <= n); /* fewer: one that had ended was still seen when `n` was counted */
}
