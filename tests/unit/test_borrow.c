/* Borrowing: who may, where the bytes lie, how long they live. */
#include "helper_archive.h"
#include "helper_files.h"

#include "ops/run.h"

#include <unistd.h>

#define ROOM 20000
static uint8_t bytes[ROOM];
static heft_error err;
static const made_tensor tensors[] = {
    {HEFT_F32, 64, 4064, 2, {10, 100}}, {HEFT_F32, 4066, 4070, 0, {0}}, {HEFT_F4, 4072, 4075, 2, {2, 3}},
    {HEFT_U8, 4075, 4085, 1, {10}},     {HEFT_I64, 4085, 4085, 1, {0}}, {HEFT_C64, 4096, 4104, 0, {0}},
};
enum { TENSORS = 6 };

static int setup(void **state) {
    (void)state;
    uint64_t random = 6;
    for (size_t i = 0; i < ROOM; i++) bytes[i] = (uint8_t)(test_random(&random) >> 40);
    return 0;
}

static void rules(heft_source *source) {
    made_archive made;
    heft_buffer buffer;
    made_archive_init(&made, source, tensors, TENSORS);
    heft_view view = made_view(&made, 0);
    assert_int_equal(heft__borrow(&view, 0, false, &buffer, &err), HEFT_OK);
    assert_int_equal(buffer.nbytes, 4000);
    assert_memory_equal(buffer.data, bytes + 64, 4000);
    heft_buffer_release(&buffer);
    assert_int_equal(heft__borrow(&view, 0, true, NULL, &err), HEFT_UNSUPPORTED); /* of 4 bytes, on a big-endian host */
    assert_int_equal(heft_can_borrow(&view, 3, &err), HEFT_INVALID_ARGUMENT);
    view.shape[0] = 3; /* rows 8, 6, 4, columns 99, 96, ... */
    view.stride[0] = -200;
    view.shape[1] = 5;
    view.stride[1] = -3;
    view.offset = 899;
    assert_int_equal(heft__borrow(&view, 0, false, &buffer, &err), HEFT_OK);
    assert_memory_equal(buffer.data, bytes + 64 + 487 * 4, buffer.nbytes); /* from the first in the file ... */
    assert_int_equal(buffer.nbytes, (899 - 487 + 1) * 4);                  /* ... to the last */
    heft_buffer_release(&buffer);
    view = made_view(&made, 1);
    assert_int_equal(heft__borrow(&view, 0, false, &buffer, &err), HEFT_UNSUPPORTED);
    assert_int_equal(err.fault, HEFT_FAULT_NOT_ALIGNED);
    assert_int_equal(err.found, 2);
    assert_string_equal(err.tensor, "t1");
    assert_null(buffer.data);
    assert_int_equal(heft__borrow(&view, 1, false, &buffer, &err), HEFT_OK); /* as the caller wants */
    heft_buffer_release(&buffer);
    assert_int_equal(heft__borrow(&view, 2, false, NULL, &err), HEFT_OK);
    view = made_view(&made, 2);
    assert_int_equal(heft_can_borrow(&view, 0, &err), HEFT_OK); /* six halves: whole bytes */
    view.shape[0] = 1;
    assert_int_equal(heft_can_borrow(&view, 0, &err), HEFT_UNSUPPORTED);
    assert_int_equal(err.fault, HEFT_FAULT_SUB_BYTE);
    view = made_view(&made, 3);
    assert_int_equal(heft__borrow(&view, 0, true, NULL, &err), HEFT_OK); /* single bytes have no order */
    view = made_view(&made, 4);
    assert_int_equal(heft_borrow(&view, 64, &buffer, &err), HEFT_OK); /* nothing */
    assert_int_equal(buffer.nbytes, 0);
    assert_int_equal((uintptr_t)buffer.data % 64, 0);
    heft_buffer_release(&buffer);
    view.id = 17;
    assert_int_equal(heft_borrow(&view, 0, &buffer, &err), HEFT_INVALID_ARGUMENT);
    made_archive_end(&made);
}

static void files_and_memory_lend(void **state) {
    (void)state;
    heft_source *source;
    assert_int_equal(heft_source_open_file(test_write("borrow.bin", bytes, ROOM), &source, &err), HEFT_OK);
    rules(source);
    heft_source_unref(source);
    uint8_t *aligned = aligned_alloc(4096, 20480);
    memcpy(aligned, bytes, ROOM);
    assert_int_equal(heft_source_open_memory(aligned, ROOM, NULL, NULL, NULL, &source, &err), HEFT_OK);
    rules(source);
    heft_source_unref(source);
    free(aligned);
}

static void callbacks_do_not(void **state) {
    (void)state;
    test_bytes origin = {.data = bytes, .nbytes = ROOM};
    heft_source *source = test_source(&origin);
    made_archive made;
    made_archive_init(&made, source, tensors, TENSORS);
    heft_view view = made_view(&made, 0);
    heft_buffer buffer;
    assert_int_equal(heft_borrow(&view, 0, &buffer, &err), HEFT_UNSUPPORTED);
    assert_non_null(strstr(err.message, "read it instead"));
    heft_source_unref(source);
}

static void windows_count_from_their_file(void **state) {
    (void)state;
    heft_source *file, *window;
    assert_int_equal(heft_source_open_file(test_write("window.bin", bytes, ROOM), &file, &err), HEFT_OK);
    assert_int_equal(heft_source_window(file, 2, 10000, &window, &err), HEFT_OK);
    heft_source_unref(file);
    made_archive made;
    made_archive_init(&made, window, tensors, TENSORS);
    heft_view view = made_view(&made, 0);
    heft_buffer buffer;
    assert_int_equal(heft_borrow(&view, 0, &buffer, &err), HEFT_UNSUPPORTED); /* 66 */
    view = made_view(&made, 1);                                               /* 4068 */
    assert_int_equal(heft__borrow(&view, 0, false, &buffer, &err), HEFT_OK);
    made_archive_end(&made);
    heft_source_unref(window);
    assert_memory_equal(buffer.data, bytes + 4068, 4); /* after all others have gone */
    heft_buffer_release(&buffer);
}

static void changed_files_are_not_mapped(void **state) {
    (void)state;
    heft_source *source;
    assert_int_equal(heft_source_open_file(test_write("changes.bin", bytes, ROOM), &source, &err), HEFT_OK);
    assert_int_equal(truncate(test_path("changes.bin"), 100), 0);
    made_archive made;
    made_archive_init(&made, source, tensors, TENSORS);
    heft_view view = made_view(&made, 3);
    heft_buffer buffer;
    assert_int_equal(heft_borrow(&view, 0, &buffer, &err), HEFT_MISMATCH);
    assert_string_equal(err.tensor, "t3");
    assert_null(buffer.data);
    heft_source_unref(source);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_and_memory_lend),        cmocka_unit_test(callbacks_do_not),
        cmocka_unit_test(windows_count_from_their_file), cmocka_unit_test(changed_files_are_not_mapped),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
