/* Sources of every kind: what opens and what does not, windows, identity, offsets beyond 4 GiB, threads. */
#include "helper_source.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- kinds ---- */

static void files_read_and_say_what_they_are(void **state) {
    (void)state;
    int fds = test_count_fds();
    heft_source *source = open_content();
    assert_int_equal(heft_source_capabilities(source), HEFT_SOURCE_MAP | HEFT_SOURCE_FD);
    assert_string_equal(heft_source_label(source), test_path("content"));
    check_ranges(source, content, sizeof content);
    assert_ptr_equal(heft_source_ref(source), source);
    heft_source_unref(source);
    check_read(source, 5, 5, content + 5);
    assert_int_equal(fcntl(source->fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    heft_source_unref(source);
    heft_source_unref(NULL);
    assert_null(heft_source_ref(NULL));
    assert_int_equal(test_count_fds(), fds);
    heft_source *empty;
    assert_int_equal(heft_source_open_file(test_write("empty", "", 0), &empty, NULL), HEFT_OK);
    check_ranges(empty, content, 0);
    heft_source_unref(empty);
}

static void what_is_no_file_is_named(void **state) {
    (void)state;
    int fds = test_count_fds();
    assert_int_equal(mkfifo(test_path("fifo"), 0666), 0);
    assert_int_equal(symlink("nowhere", test_path("dangling")), 0);
    assert_int_equal(symlink("loop", test_path("loop")), 0);
    assert_int_equal(symlink("fifo", test_path("to-fifo")), 0);
    test_write("content", "x", 1);
    int sock = socket(AF_UNIX, SOCK_STREAM, 0);
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    bool bound = false;
    if (strlen(test_path("socket")) < sizeof address.sun_path) {
        strcpy(address.sun_path, test_path("socket"));
        bound = bind(sock, (struct sockaddr *)&address, sizeof address) == 0;
    }
    struct {
        const char *path;
        heft_status status;
        heft_fault fault;
        const char *text;
    } rows[] = {
        {test_path("fifo"), HEFT_INVALID_ARGUMENT, HEFT_FAULT_NOT_REGULAR, "FIFO"},
        {test_path("to-fifo"), HEFT_INVALID_ARGUMENT, HEFT_FAULT_NOT_REGULAR, "FIFO"},
        {test_dir(), HEFT_INVALID_ARGUMENT, HEFT_FAULT_NOT_REGULAR, "a directory"},
        {"/dev/null", HEFT_INVALID_ARGUMENT, HEFT_FAULT_NOT_REGULAR, "character device"},
        {test_path("dangling"), HEFT_NOT_FOUND, HEFT_FAULT_NO_FILE, "ENOENT"},
        {test_path("loop"), HEFT_NOT_FOUND, HEFT_FAULT_NO_FILE, "ELOOP"},
        {test_path("content/x"), HEFT_NOT_FOUND, HEFT_FAULT_NO_FILE, "ENOTDIR"},
        {"", HEFT_NOT_FOUND, HEFT_FAULT_NO_FILE, "ENOENT"},
        {bound ? test_path("socket") : "/dev/null", HEFT_INVALID_ARGUMENT, HEFT_FAULT_NOT_REGULAR, bound ? "socket" : ""},
        {NULL, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL, "path"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        heft_source *source = (heft_source *)&rows;
        heft_error err;
        assert_int_equal(heft_source_open_file(rows[i].path, &source, &err), rows[i].status);
        assert_null(source);
        assert_int_equal(err.status, rows[i].status);
        assert_int_equal(err.fault, rows[i].fault);
        if (!strstr(err.message, rows[i].text)) fail_msg("%s: %s", rows[i].text, err.message);
        assert_int_equal(heft_source_open_file(rows[i].path, &source, NULL), rows[i].status);
    }
    assert_int_equal(heft_source_open_file("x", NULL, NULL), HEFT_INVALID_ARGUMENT);
    close(sock);
    assert_int_equal(test_count_fds(), fds);
}

static void files_of_others_are_permission(void **state) {
    (void)state;
    const char *path = test_write("secret", "x", 1);
    assert_int_equal(chmod(path, 0), 0);
    assert_int_equal(chmod(test_dir(), 0755), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) { /* root may read everything: become nobody */
        heft_source *source;
        heft_error err = {0};
        if (geteuid() == 0 && setuid(65534) != 0) _exit(77);
        heft_status status = heft_source_open_file(path, &source, &err);
        _exit(status == HEFT_PERMISSION && err.sys_errno == EACCES && err.fault == HEFT_FAULT_ACCESS ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) skip();
    assert_int_equal(status, 0);
}

static void descriptors_are_duplicated_and_not_moved(void **state) {
    (void)state;
    int fds = test_count_fds();
    int fd = open(content_file(), O_RDWR);
    assert_int_equal(lseek(fd, 77, SEEK_SET), 77);
    heft_source *source;
    assert_int_equal(heft_source_open_fd(fd, NULL, &source, NULL), HEFT_OK);
    char label[32];
    snprintf(label, sizeof label, "fd %d", fd);
    assert_string_equal(heft_source_label(source), label);
    check_ranges(source, content, sizeof content);
    assert_int_equal(lseek(fd, 0, SEEK_CUR), 77);
    close(fd);
    check_ranges(source, content, sizeof content); /* the caller's may go */
    heft_source_unref(source);

    heft_error err;
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(heft_source_open_fd(ends[0], "in", &source, &err), HEFT_INVALID_ARGUMENT);
    assert_int_equal(err.fault, HEFT_FAULT_NOT_REGULAR);
    assert_string_equal(err.file, "in");
    assert_null(source);
    close(ends[0]), close(ends[1]);
    assert_int_equal(heft_source_open_fd(ends[0], "in", &source, &err), HEFT_IO);
    assert_int_equal(err.sys_errno, EBADF);
    assert_int_equal(heft_source_open_fd(-1, NULL, &source, &err), HEFT_IO);
    fd = open(test_path("content"), O_WRONLY);
    assert_int_equal(heft_source_open_fd(fd, NULL, &source, &err), HEFT_PERMISSION);
    close(fd);
    assert_int_equal(test_count_fds(), fds);
}

static void files_stay_off_the_standard_descriptors(void **state) {
    (void)state;
    content_file();
    int saved = dup(STDIN_FILENO);
    close(STDIN_FILENO);
    heft_source *source = open_content();
    assert_true(source->fd > 2);
    assert_int_equal(fcntl(STDIN_FILENO, F_GETFD), -1);
    heft_source_unref(source);
    if (saved >= 0) {
        dup2(saved, STDIN_FILENO);
        close(saved);
    }
}

static void memory_is_lent_until_the_last_reference(void **state) {
    (void)state;
    content_file();
    int released = 0;
    heft_source *source;
    heft_error err;
    assert_int_equal(heft_source_open_memory(content, sizeof content, NULL, count_release, &released, &source, NULL),
                     HEFT_OK);
    assert_int_equal(heft_source_capabilities(source), HEFT_SOURCE_MAP | HEFT_SOURCE_STABLE);
    assert_string_equal(heft_source_label(source), "memory");
    check_ranges(source, content, sizeof content);
    heft__mapping *mapping;
    assert_int_equal(heft__source_map(source, 13, 50, &mapping, NULL), HEFT_OK);
    assert_ptr_equal(mapping->data, content + 13);
    heft_source_unref(source);
    assert_int_equal(released, 0);
    heft__mapping_unref(mapping);
    assert_int_equal(released, 1);
    assert_int_equal(heft_source_open_memory(NULL, 1, NULL, count_release, &released, &source, &err),
                     HEFT_INVALID_ARGUMENT);
    assert_int_equal(released, 2);
    assert_null(source);
    assert_int_equal(heft_source_open_memory(NULL, 0, "none", NULL, NULL, &source, &err), HEFT_OK);
    check_ranges(source, content, 0);
    heft_source_unref(source);
}

static void callbacks_that_lie_are_errors(void **state) {
    (void)state;
    struct {
        int64_t answer;
        int code;
    } rows[] = {{1, EOVERFLOW}, {INT64_MAX, EOVERFLOW}, {INT64_MIN, EIO}, {-EACCES, EACCES}, {-EAGAIN, EAGAIN}, {0, 0}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int64_t answer = rows[i].answer;
        heft_source_callbacks c = {.struct_size = sizeof c, .ctx = &answer, .size = 100, .read_at = liar};
        heft_source *source;
        heft_error err;
        uint8_t dst[10];
        assert_int_equal(heft_source_open_callbacks(&c, NULL, &source, NULL), HEFT_OK);
        heft_status status = heft_source_read(source, 5, 10, dst, &err);
        assert_int_equal(status, rows[i].code == EACCES ? HEFT_PERMISSION : HEFT_IO);
        assert_int_equal(err.sys_errno, rows[i].code);
        assert_string_equal(err.file, "callback");
        assert_int_equal(err.offset, 5);
        heft_source_unref(source);
    }
}

static void callbacks_are_checked_and_released(void **state) {
    (void)state;
    content_file();
    test_bytes bytes = {.data = content, .nbytes = sizeof content};
    heft_source *source = test_source(&bytes);
    assert_int_equal(heft_source_capabilities(source), 0);
    check_ranges(source, content, sizeof content);
    heft__mapping *mapping;
    heft_error err;
    assert_int_equal(heft__source_map(source, 0, 1, &mapping, &err), HEFT_UNSUPPORTED);
    assert_null(mapping);
    assert_int_equal(heft__source_verify(source, NULL), HEFT_OK);
    heft_source_unref(source);
    assert_int_equal(bytes.released, 1);

    int released = 0;
    int64_t answer = 0;
    struct {
        heft_source_callbacks c;
        uint64_t tail;
    } c = {{sizeof c.c, &released, 5, 0, 0, liar, count_release}, 0};
    c.c.struct_size = sizeof c;
    assert_int_equal(heft_source_open_callbacks(&c.c, NULL, &source, NULL), HEFT_OK); /* a newer caller, a zero tail */
    heft_source_unref(source);
    assert_int_equal(released, 1);
    c.tail = 1;
    assert_int_equal(heft_source_open_callbacks(&c.c, NULL, &source, &err), HEFT_INVALID_ARGUMENT);
    assert_null(source);
    assert_int_equal(released, 2);
    c.c.struct_size = sizeof c.c;
    c.c.capabilities = HEFT_SOURCE_FD;
    assert_int_equal(heft_source_open_callbacks(&c.c, NULL, &source, &err), HEFT_INVALID_ARGUMENT);
    assert_int_equal(released, 3);
    c.c.capabilities = HEFT_SOURCE_REMOTE | HEFT_SOURCE_STABLE;
    c.c.reserved = 1;
    assert_int_equal(heft_source_open_callbacks(&c.c, NULL, &source, &err), HEFT_INVALID_ARGUMENT);
    c.c.reserved = 0;
    c.c.read_at = NULL;
    assert_int_equal(heft_source_open_callbacks(&c.c, NULL, &source, &err), HEFT_INVALID_ARGUMENT);
    assert_int_equal(released, 5);
    c.c.struct_size = 3;
    assert_int_equal(heft_source_open_callbacks(&c.c, NULL, &source, &err), HEFT_INVALID_ARGUMENT);
    assert_int_equal(heft_source_open_callbacks(NULL, NULL, &source, &err), HEFT_INVALID_ARGUMENT);
    assert_int_equal(released, 5); /* of a struct that short nothing is known */
    (void)answer;
}

/* ---- windows ---- */

static void windows_collapse(void **state) {
    (void)state;
    int fds = test_count_fds();
    heft_source *file = open_content(), *a, *b, *c, *none = NULL;
    heft_error err;
    assert_int_equal(heft_source_window(file, 1000, 5000, &a, NULL), HEFT_OK);
    assert_int_equal(heft_source_window(a, 100, 4000, &b, NULL), HEFT_OK);
    assert_int_equal(heft_source_window(b, 10, 300, &c, NULL), HEFT_OK);
    assert_ptr_equal(c->parent, file);
    assert_int_equal(c->window_offset, 1110);
    assert_int_equal(c->fd, file->fd);
    assert_int_equal(heft_source_capabilities(c), heft_source_capabilities(file));
    check_ranges(a, content + 1000, 5000);
    check_ranges(b, content + 1100, 4000);
    check_ranges(c, content + 1110, 300);
    uint64_t bad[][2] = {{0, 301}, {300, 1}, {301, 0}, {UINT64_MAX, 2}, {2, UINT64_MAX}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(heft_source_window(c, bad[i][0], bad[i][1], &none, &err), HEFT_INVALID_ARGUMENT);
        assert_null(none);
    }
    heft_source_unref(a);
    heft_source_unref(b);
    heft_source_unref(file);
    check_ranges(c, content + 1110, 300);
    assert_string_equal(heft_source_label(c), test_path("content"));
    heft__mapping *mapping;
    assert_int_equal(heft__source_map(c, 5, 20, &mapping, NULL), HEFT_OK);
    heft_source_unref(c);
    assert_memory_equal(mapping->data, content + 1115, 20);
    heft__mapping_unref(mapping);
    assert_int_equal(test_count_fds(), fds);
    /* of memory, and of nothing */
    heft_source *memory;
    assert_int_equal(heft_source_open_memory(content, 100, NULL, NULL, NULL, &memory, NULL), HEFT_OK);
    assert_int_equal(heft_source_window(memory, 100, 0, &a, NULL), HEFT_OK);
    assert_int_equal(heft_source_window(memory, 50, 20, &b, NULL), HEFT_OK);
    heft_source_unref(memory);
    check_ranges(a, content, 0);
    check_ranges(b, content + 50, 20);
    heft_source_unref(a);
    heft_source_unref(b);
}

/* ---- real files ---- */

static void offsets_beyond_4_gib(void **state) {
    (void)state;
    uint64_t sizes[] = {UINT64_C(5) << 30, UINT64_C(20) << 30};
    for (size_t i = 0; i < 2; i++) {
        int fd = open(test_path("sparse"), O_RDWR | O_CREAT, 0666);
        assert_true(fd >= 0);
        if (ftruncate(fd, (off_t)sizes[i]) != 0) {
            print_message("no sparse file of %llu bytes here\n", (unsigned long long)sizes[i]);
            close(fd);
            continue;
        }
        uint8_t mark[5] = {1, 2, 3, 4, 5}, got[7] = {9, 9, 9, 9, 9, 9, 9};
        uint64_t at = sizes[i] - 5;
        assert_int_equal(pwrite(fd, mark, 5, (off_t)at), 5);
        assert_int_equal(pwrite(fd, mark, 3, (off_t)4294967294u), 3); /* across 2^32 */
        heft_source *source, *window;
        assert_int_equal(heft_source_open_fd(fd, NULL, &source, NULL), HEFT_OK);
        close(fd);
        assert_int_equal(heft_source_size(source), sizes[i]);
        assert_int_equal(heft_source_read(source, at - 2, 7, got, NULL), HEFT_OK);
        assert_memory_equal(got, "\0\0\1\2\3\4\5", 7);
        assert_int_equal(heft_source_read(source, 4294967294u, 4, got, NULL), HEFT_OK);
        assert_memory_equal(got, "\1\2\3\0", 4);
        assert_int_equal(heft_source_window(source, at, 5, &window, NULL), HEFT_OK);
        heft_source_unref(source);
        heft__mapping *mapping;
        assert_int_equal(heft__source_map(window, 1, 4, &mapping, NULL), HEFT_OK);
        assert_memory_equal(mapping->data, mark + 1, 4);
        heft__vec vec[2] = {{got, 2}, {got + 4, 3}};
        assert_int_equal(heft__source_read_vec(window, 0, vec, 2), 5);
        assert_memory_equal(got, "\1\2", 2);
        assert_memory_equal(got + 4, "\3\4\5", 3);
        heft__mapping_unref(mapping);
        heft_source_unref(window);
        unlink(test_path("sparse"));
    }
}

static void changed_files_are_refused(void **state) {
    (void)state;
    heft_error err;
    heft__mapping *mapping;
    for (int change = 0; change < 4; change++) {
        heft_source *source = open_content(), *window;
        const char *path = test_path("content");
        struct stat before;
        assert_int_equal(stat(path, &before), 0);
        assert_int_equal(heft_source_window(source, 1, 2, &window, NULL), HEFT_OK);
        assert_int_equal(heft__source_verify(window, NULL), HEFT_OK);
        struct timespec times[2] = {{0, UTIME_OMIT}, {before.st_mtim.tv_sec + 10, 0}};
        if (change == 0) assert_int_equal(truncate(path, 20), 0);
        if (change == 1) assert_int_equal(truncate(path, 20000), 0);
        if (change == 2) assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
        if (change == 3) { /* replaced by rename: the open file is what it was */
            assert_int_equal(rename(test_write("other", "x", 1), path), 0);
            check_ranges(source, content, sizeof content);
            assert_int_equal(heft__source_verify(window, NULL), HEFT_OK);
        } else {
            assert_int_equal(heft__source_verify(window, &err), HEFT_MISMATCH);
            assert_int_equal(err.fault, HEFT_FAULT_FILE_CHANGED);
            assert_non_null(strstr(err.message, change < 2 ? "10007 bytes" : "modification time"));
            assert_string_equal(err.file, path);
            if (change < 2) assert_int_equal(err.found, change ? 20000 : 20);
            assert_int_equal(heft__source_map(window, 0, 2, &mapping, &err), HEFT_MISMATCH);
            assert_null(mapping);
        }
        heft_source_unref(window);
        heft_source_unref(source);
    }
}

/* ---- threads ---- */

typedef struct shared {
    heft_source *source;
    _Atomic int bad;
} shared;

static void *reader(void *arg) {
    shared *s = arg;
    uint8_t dst[600];
    for (uint64_t i = 0; i < 200; i++) {
        heft_source *window;
        uint64_t at = i * 37 % 9000;
        if (heft_source_window(s->source, at, 600, &window, NULL) || heft_source_read(window, 0, 600, dst, NULL) ||
            memcmp(dst, content + at, 600) != 0)
            s->bad++;
        heft__mapping *mapping = NULL;
        if (i % 16 == 0 &&
            (heft__source_map(window, 1, 599, &mapping, NULL) || memcmp(mapping->data, content + at + 1, 599) != 0))
            s->bad++;
        heft_source_unref(window);
        heft__mapping_unref(mapping);
    }
    heft_source_unref(s->source);
    return NULL;
}

static void threads_share_a_source(void **state) {
    (void)state;
    enum { THREADS = 16 };
    pthread_t threads[THREADS];
    shared s = {open_content(), 0};
    for (int i = 0; i < THREADS; i++) heft_source_ref(s.source);
    for (int i = 0; i < THREADS; i++) assert_int_equal(pthread_create(&threads[i], NULL, reader, &s), 0);
    heft_source_unref(s.source);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    assert_int_equal(s.bad, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_read_and_say_what_they_are),
        cmocka_unit_test(what_is_no_file_is_named),
        cmocka_unit_test(files_of_others_are_permission),
        cmocka_unit_test(descriptors_are_duplicated_and_not_moved),
        cmocka_unit_test(files_stay_off_the_standard_descriptors),
        cmocka_unit_test(memory_is_lent_until_the_last_reference),
        cmocka_unit_test(callbacks_that_lie_are_errors),
        cmocka_unit_test(callbacks_are_checked_and_released),
        cmocka_unit_test(windows_collapse),
        cmocka_unit_test(offsets_beyond_4_gib),
        cmocka_unit_test(changed_files_are_refused),
        cmocka_unit_test(threads_share_a_source),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
