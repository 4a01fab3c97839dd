/* Elements of all dtypes, decoded and written; narrow ones are tried exhaustively against ml_dtypes in tests/oracle. */
#include "helper.h"

#include <math.h>

static const char *text_of(heft_dtype dtype, const void *data, uint64_t index) {
    static char text[64];
    heft_scalar value = heft_dtype_get(dtype, data, index);
    size_t len = heft_scalar_text(dtype, &value, text);
    assert_int_equal(len, strlen(text));
    return text;
}

static void bytes_and_codes(void **state) {
    (void)state;
    static const struct {
        heft_dtype dtype;
        uint8_t byte;
        const char *text;
    } rows[] = {
        {HEFT_BOOL, 0, "False"},           {HEFT_BOOL, 1, "True"},           {HEFT_BOOL, 7, "7"},
        {HEFT_U8, 255, "255"},             {HEFT_I8, 255, "-1"},             {HEFT_I8, 0x80, "-128"},
        {HEFT_F8_E4M3, 0x7E, "448.0"},     {HEFT_F8_E4M3, 0x7F, "nan"},      {HEFT_F8_E4M3, 0xFF, "nan"},
        {HEFT_F8_E4M3, 0x80, "-0.0"},      {HEFT_F8_E4M3, 0x01, "0.001953125"}, {HEFT_F8_E5M2, 0x7B, "57344.0"},
        {HEFT_F8_E5M2, 0x7C, "inf"},       {HEFT_F8_E5M2, 0xFC, "-inf"},     {HEFT_F8_E5M2, 0xFD, "nan"},
        {HEFT_F8_E4M3FNUZ, 0x80, "nan"},   {HEFT_F8_E4M3FNUZ, 0x7F, "240.0"}, {HEFT_F8_E5M2FNUZ, 0x80, "nan"},
        {HEFT_F8_E5M2FNUZ, 0x7F, "57344.0"}, {HEFT_F8_E8M0, 127, "1.0"},     {HEFT_F8_E8M0, 134, "128.0"},
        {HEFT_F8_E8M0, 0, "5.877472e-39"}, {HEFT_F8_E8M0, 254, "1.7014118e+38"}, {HEFT_F8_E8M0, 255, "nan"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_string_equal(text_of(rows[i].dtype, &rows[i].byte, 0), rows[i].text);
    char text[64] = "x";
    heft_scalar none = heft_dtype_get(HEFT_DTYPE_NONE, text, 0);
    assert_int_equal(none.kind, 0);
    assert_int_equal(heft_scalar_text(HEFT_DTYPE_NONE, &none, text), 0);
    assert_string_equal(text, "");
}

static void wide_numbers(void **state) {
    (void)state;
    const uint16_t halves[] = {0x3C00, 0x7BFF, 0x0001, 0xFC00, 0x2E66};
    assert_string_equal(text_of(HEFT_F16, halves, 0), "1.0");
    assert_string_equal(text_of(HEFT_F16, halves, 1), "65500.0");
    assert_string_equal(text_of(HEFT_F16, halves, 2), "6e-08");
    assert_string_equal(text_of(HEFT_F16, halves, 3), "-inf");
    assert_string_equal(text_of(HEFT_F16, halves, 4), "0.1");
    assert_string_equal(text_of(HEFT_BF16, (uint16_t[]){0x3DCD}, 0), "0.1");
    assert_string_equal(text_of(HEFT_BF16, (uint16_t[]){0x0080}, 0), "1.18e-38");
    assert_string_equal(text_of(HEFT_BF16, (uint16_t[]){0x0001}, 0), "9e-41"); /* 9.18e-41: 1e-40 reads back too */
    assert_string_equal(text_of(HEFT_F32, (float[]){0.1f, 3.4028235e38f}, 1), "3.4028235e+38");
    assert_string_equal(text_of(HEFT_F32, (float[]){0.1f}, 0), "0.1");
    assert_string_equal(text_of(HEFT_F64, (double[]){1, 0.1}, 1), "0.1");
    assert_string_equal(text_of(HEFT_F64, (double[]){5e-324}, 0), "5e-324");
    assert_string_equal(text_of(HEFT_I64, (int64_t[]){0, INT64_MIN}, 1), "-9223372036854775808");
    assert_string_equal(text_of(HEFT_U64, (uint64_t[]){UINT64_MAX}, 0), "18446744073709551615");
    assert_string_equal(text_of(HEFT_I32, (int32_t[]){INT32_MIN}, 0), "-2147483648");
    assert_string_equal(text_of(HEFT_U32, (uint32_t[]){UINT32_MAX}, 0), "4294967295");
    assert_string_equal(text_of(HEFT_I16, (int16_t[]){-1}, 0), "-1");
    assert_string_equal(text_of(HEFT_U16, (uint16_t[]){65535}, 0), "65535");
    const float complex[] = {1, 2, -0.0f, -1.5f, 0, 0, NAN, -NAN, INFINITY, -INFINITY, -3.4028235e38f, -1.1754944e-38f};
    static const char *const texts[] = {"1+2j", "-0-1.5j", "0+0j", "nan+nanj", "inf-infj", "-3.4028235e+38-1.1754944e-38j"};
    for (uint64_t i = 0; i < 6; i++) assert_string_equal(text_of(HEFT_C64, complex, i), texts[i]);
}

/* The last element's last bit is the last bit of memory: not a byte more is read. */
static void sub_byte_elements(void **state) {
    (void)state;
    uint8_t *three = malloc(3); /* the end of a block, so that a sanitizer sees a read past it */
    const uint64_t bits = UINT64_C(0x3F) << 18 | UINT64_C(0x20) << 12 | UINT64_C(0x01) << 6 | UINT64_C(0x08);
    for (int i = 0; i < 3; i++) three[i] = (uint8_t)(bits >> (8 * i));
    static const char *const e2m3[] = {"1.0", "0.125", "-0.0", "-7.5"}, *const e3m2[] = {"0.5", "0.0625", "-0.0", "-28.0"};
    for (uint64_t i = 0; i < 4; i++) {
        assert_string_equal(text_of(HEFT_F6_E2M3, three, i), e2m3[i]);
        assert_string_equal(text_of(HEFT_F6_E3M2, three, i), e3m2[i]);
    }
    three[2] = 0xF1;
    assert_string_equal(text_of(HEFT_F4, three, 4), "0.5");
    assert_string_equal(text_of(HEFT_F4, three, 5), "-6.0");
    free(three);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_and_codes),
        cmocka_unit_test(wide_numbers),
        cmocka_unit_test(sub_byte_elements),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
