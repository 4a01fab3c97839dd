/* The dtype table: spellings, sizes, order of writing, shape arithmetic. */
#include "helper.h"

#include "dtype/dtype.h"

static void every_spelling_parses_to_itself(void **state) {
    (void)state;
    for (heft_dtype d = 1; d < HEFT_DTYPE_COUNT; d++) {
        const char *name = heft_dtype_name(d);
        assert_int_equal(heft_dtype_parse(name, strlen(name)), d);
        assert_int_equal(heft__dtypes[d].name_len, strlen(name));
        for (size_t i = 0; i < strlen(name); i++) { /* no other letter anywhere is the same dtype, or none by accident */
            char other[16];
            strcpy(other, name);
            for (int c = 0; c < 256; c++) {
                other[i] = (char)c;
                heft_dtype got = heft_dtype_parse(other, strlen(name));
                if (got) assert_memory_equal(heft_dtype_name(got), other, strlen(name));
            }
        }
    }
    assert_string_equal(heft_dtype_name(HEFT_DTYPE_NONE), "?");
    assert_string_equal(heft_dtype_name(HEFT_DTYPE_COUNT), "?");
    assert_int_equal(heft_dtype_bits(HEFT_DTYPE_COUNT), 0);
    assert_int_equal(heft_dtype_component_bits(HEFT_DTYPE_NONE), 0);
    assert_int_equal(heft_dtype_kind(UINT32_MAX), 0);
}

static void other_spellings_are_none(void **state) {
    (void)state;
    static const char *const none[] = {"",     "f32",  "F32 ", "E8M0", "F4_E2M1", "F8_E4M3FN", "C32",  "C128",
                                       "U1",   "U4",   "I4",   "I128", "F128",    "F",         "bool", "?",
                                       "BOOL_", "F8_E4M3FNU", "F8_E4M3FNUZZ", "F6_E4M3", "F8_E2M3", "F8_E9M0", "F99"};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        assert_int_equal(heft_dtype_parse(none[i], strlen(none[i])), HEFT_DTYPE_NONE);
    assert_int_equal(heft_dtype_parse("F32\0", 4), HEFT_DTYPE_NONE);
}

static void order_of_writing_is_the_reference_s(void **state) {
    (void)state;
    static const char *const order[] = {"BOOL",    "F4",          "F6_E2M3",     "F6_E3M2", "U8",  "I8",  "F8_E5M2", "F8_E4M3",
                                        "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ", "I16",     "U16", "F16", "BF16",    "I32",
                                        "U32",     "F32",         "C64",         "F64",     "I64", "U64"};
    assert_int_equal(sizeof order / sizeof *order, HEFT_DTYPE_COUNT - 1);
    for (uint8_t i = 0; i < HEFT_DTYPE_COUNT - 1; i++)
        assert_int_equal(heft__dtypes[heft_dtype_parse(order[i], strlen(order[i]))].rank, i);
}

static void rows_are_consistent(void **state) {
    (void)state;
    for (heft_dtype d = 1; d < HEFT_DTYPE_COUNT; d++) {
        const heft__dtype_info *row = &heft__dtypes[d];
        assert_int_equal(row->bits, heft_dtype_bits(d));
        assert_int_equal(row->component_bits, d == HEFT_C64 ? 32 : row->bits);
        assert_int_equal(row->align, row->bits < 8 ? 1 : row->bits / 8);
        if (row->kind == 'f' || row->kind == 'c') {
            int sign = d == HEFT_F8_E8M0 ? 0 : 1;
            assert_int_equal(sign + row->exponent_bits + row->mantissa_bits, row->component_bits);
        } else {
            assert_int_equal(row->exponent_bits + row->mantissa_bits + row->bias, 0);
        }
    }
}

static void shapes_are_measured_in_the_order_of_the_reference(void **state) {
    (void)state;
    static const struct {
        heft_dtype dtype;
        uint32_t rank;
        uint64_t shape[3];
        heft__shape_fault fault;
        uint64_t nbytes;
    } rows[] = {
        {HEFT_F32, 0, {0}, HEFT__SHAPE_OK, 4},
        {HEFT_F32, 2, {2, 3}, HEFT__SHAPE_OK, 24},
        {HEFT_C64, 2, {2, 3}, HEFT__SHAPE_OK, 48},
        {HEFT_U64, 3, {UINT64_MAX, UINT64_MAX, 0}, HEFT__SHAPE_ELEMENTS_OVERFLOW, 0},
        {HEFT_U64, 3, {0, UINT64_MAX, UINT64_MAX}, HEFT__SHAPE_OK, 0},
        {HEFT_U8, 1, {(UINT64_C(1) << 61) - 1}, HEFT__SHAPE_OK, (UINT64_C(1) << 61) - 1},
        {HEFT_U8, 1, {UINT64_C(1) << 61}, HEFT__SHAPE_BITS_OVERFLOW, 0},
        {HEFT_I32, 2, {2, UINT64_MAX - 1}, HEFT__SHAPE_ELEMENTS_OVERFLOW, 0},
        {HEFT_I32, 2, {2, (UINT64_C(1) << 63) - 1}, HEFT__SHAPE_BITS_OVERFLOW, 0},
        {HEFT_F4, 0, {0}, HEFT__SHAPE_SUB_BYTE, 0},
        {HEFT_F4, 1, {3}, HEFT__SHAPE_SUB_BYTE, 0},
        {HEFT_F4, 1, {4}, HEFT__SHAPE_OK, 2},
        {HEFT_F4, 2, {0, 3}, HEFT__SHAPE_OK, 0},
        {HEFT_F6_E2M3, 1, {2}, HEFT__SHAPE_SUB_BYTE, 0},
        {HEFT_F6_E3M2, 1, {4}, HEFT__SHAPE_OK, 3},
        {HEFT_F4, 1, {UINT64_C(1) << 62}, HEFT__SHAPE_BITS_OVERFLOW, 0},
        {HEFT_F4, 1, {(UINT64_C(1) << 62) - 2}, HEFT__SHAPE_OK, (UINT64_C(1) << 61) - 1},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        uint64_t nelems = 77, nbytes = 77;
        assert_int_equal(heft__shape_nbytes(rows[i].dtype, rows[i].rank, rows[i].shape, &nelems, &nbytes),
                         rows[i].fault);
        assert_int_equal(nbytes, rows[i].fault ? 77 : rows[i].nbytes);
        heft_error err;
        heft_status expected = rows[i].fault == HEFT__SHAPE_OK         ? HEFT_OK
                               : rows[i].fault == HEFT__SHAPE_SUB_BYTE ? HEFT_INVALID_ARGUMENT
                                                                       : HEFT_LIMIT;
        assert_int_equal(heft_dtype_nbytes(rows[i].dtype, rows[i].rank, rows[i].shape, &nbytes, &err), expected);
        assert_int_equal(nbytes, rows[i].fault ? 0 : rows[i].nbytes);
    }
    uint64_t nbytes;
    assert_int_equal(heft_dtype_nbytes(HEFT_F32, 0, NULL, &nbytes, NULL), HEFT_OK);
    assert_int_equal(nbytes, 4);
    assert_int_equal(heft_dtype_nbytes(HEFT_DTYPE_NONE, 0, NULL, &nbytes, NULL), HEFT_INVALID_ARGUMENT);
    assert_int_equal(heft_dtype_nbytes(HEFT_DTYPE_COUNT, 0, NULL, &nbytes, NULL), HEFT_INVALID_ARGUMENT);
    assert_int_equal(heft_dtype_nbytes(HEFT_F32, 1, NULL, &nbytes, NULL), HEFT_INVALID_ARGUMENT);
    assert_int_equal(heft_dtype_nbytes(HEFT_F32, 0, NULL, NULL, NULL), HEFT_INVALID_ARGUMENT);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_spelling_parses_to_itself),
        cmocka_unit_test(other_spellings_are_none),
        cmocka_unit_test(order_of_writing_is_the_reference_s),
        cmocka_unit_test(rows_are_consistent),
        cmocka_unit_test(shapes_are_measured_in_the_order_of_the_reference),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
