/* Shortest float text: every 8- and 16-bit float, random wider ones, read back by strtod, and no shorter text does it.
 */
#include "helper.h"

#include "base/float_text.h"
#include "helper_random.h"

#include <math.h>

#ifndef FLOAT_TEXT_TIMES
#define FLOAT_TEXT_TIMES 1 /* test_float_text_many.c makes it more */
#endif

static double double_of(uint64_t bits) {
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static float float_of(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* What Python's repr prints. */
static void texts_by_hand(void **state) {
    (void)state;
    static const struct {
        double value;
        const char *text;
    } rows[] = {
        {0.0, "0.0"},
        {-0.0, "-0.0"},
        {1.0, "1.0"},
        {-1.5, "-1.5"},
        {0.1, "0.1"},
        {0.30000000000000004, "0.30000000000000004"},
        {1e-4, "0.0001"},
        {1e-5, "1e-05"},
        {1.5e-7, "1.5e-07"},
        {123456.789, "123456.789"},
        {1e15, "1000000000000000.0"},
        {9999999999999998.0, "9999999999999998.0"},
        {1e16, "1e+16"},
        {15000000000000000.0, "1.5e+16"},
        {123456789012345680.0, "1.2345678901234568e+17"},
        {1e22, "1e+22"},
        {1e23, "1e+23"},
        {9.5e-100, "9.5e-100"},
        {5e-324, "5e-324"},
        {2.2250738585072014e-308, "2.2250738585072014e-308"},
        {2.225073858507201e-308, "2.225073858507201e-308"},
        {1.7976931348623157e308, "1.7976931348623157e+308"},
        {5.684341886080802e-14, "5.684341886080802e-14"}, /* 2^-44: narrower below */
        {9007199254740993.0, "9007199254740992.0"},
        {2e-44, "2e-44"},
        {(double)INFINITY, "inf"},
        {(double)-INFINITY, "-inf"},
        {(double)NAN, "nan"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[32];
        assert_int_equal(heft__double_text(rows[i].value, text), strlen(rows[i].text));
        assert_string_equal(text, rows[i].text);
    }
    char text[32];
    heft__double_text(-(double)NAN, text);
    assert_string_equal(text, "nan");
}

/* What printf's %g prints. */
static void rounded_texts(void **state) {
    (void)state;
    static const struct {
        double value;
        int digits;
        const char *text;
    } rows[] = {
        {0.0, 3, "0"},
        {-0.0, 3, "-0"},
        {12.5, 3, "12.5"},
        {12.5, 2, "12"},
        {13.5, 2, "14"},
        {0.15, 1, "0.1"},
        {0.25, 1, "0.2"},
        {0.75, 1, "0.8"},
        {9.99, 2, "10"},
        {999.5, 3, "1e+03"},
        {0.0000123, 3, "1.23e-05"},
        {0.00012345, 3, "0.000123"},
        {1234567.0, 3, "1.23e+06"},
        {300.0, 3, "300"},
        {300.0, 1, "3e+02"},
        {0.1, 17, "0.10000000000000001"},
        {1e300, 4, "1e+300"},
        {5e-324, 3, "4.94e-324"},
        {2.5, 0, "2"},
        {2.5, 99, "2.5"},
        {(double)INFINITY, 3, "inf"},
        {(double)NAN, 3, "nan"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[32];
        assert_int_equal(heft__double_text_rounded(rows[i].value, rows[i].digits, text), strlen(rows[i].text));
        assert_string_equal(text, rows[i].text);
    }
    uint64_t seed = 21;
    for (uint64_t n = test_count(FLOAT_TEXT_TIMES * 120000); n > 0; n--) {
        double value = n % 2 ? double_of(random_u64(&seed)) : (double)(int64_t)random_u64(&seed) / 1e15;
        if (isnan(value)) continue;
        char want[64], got[32];
        int digits = 1 + (int)random_below(&seed, 17);
        snprintf(want, sizeof want, "%.*g", digits, value); /* the C locale: tests never call setlocale */
        heft__double_text_rounded(value, digits, got);
        if (strcmp(want, got) != 0) fail_msg("%s, not %s", got, want);
    }
}

/* A binary format narrower than double. */
typedef struct narrow {
    int mantissa_bits, min_exponent;
} narrow;

/* The double nearest to a decimal text, rounded to the narrow format by ties to even; exact, because no double rounding
 * can occur for the short texts of formats of less than half the precision. */
static double round_narrow(double value, const narrow *format) {
    int exponent;
    double size = fabs(value);
    if (size == 0 || isinf(size)) return value;
    frexp(size, &exponent);
    int power = exponent - format->mantissa_bits;
    if (power < format->min_exponent) power = format->min_exponent;
    double scaled = nearbyint(ldexp(size, -power));
    return copysign(ldexp(scaled, power), value);
}

/* `value` is of the format: its text reads back, no text with a digit less does, and of those that have as many none that
 * reads back is closer. */
static void check_narrow(double value, const narrow *format) {
    char text[32], digits[17], shorter[40];
    int exponent;
    size_t len = heft__float_text(value, format->mantissa_bits, format->min_exponent, text);
    assert_int_equal(len, strlen(text));
    double back = strtod(text, NULL);
    if (round_narrow(back, format) != value || !signbit(back) != !signbit(value))
        fail_msg("%a prints as %s", value, text);
    size_t n = heft__float_digits(value, format->mantissa_bits, format->min_exponent, digits, &exponent);
    assert_true(n >= 1 && n <= 17 && (value == 0 || (digits[0] != '0' && digits[n - 1] != '0')));
    snprintf(shorter, sizeof shorter, "%.*e", (int)n - 1, value);
    double nearest = strtod(shorter, NULL);
    if (round_narrow(nearest, format) == value && fabs(back - value) > fabs(nearest - value))
        fail_msg("%s, but %s is closer", text, shorter);
    if (n == 1) return;
    /* The shorter texts nearest to the value lie just below and above it. */
    uint64_t number = 0;
    for (size_t i = 0; i + 1 < n; i++) number = number * 10 + (uint64_t)(digits[i] - '0');
    for (uint64_t k = 0; k < 2; k++) {
        snprintf(shorter, sizeof shorter, "%s%llue%d", signbit(value) ? "-" : "", (unsigned long long)(number + k),
                 exponent - (int)n + 1);
        if (round_narrow(strtod(shorter, NULL), format) == value) fail_msg("%s, but %s does as well", text, shorter);
    }
}

static void all_narrow_floats(void **state) {
    (void)state;
    /* exponent bits, stored mantissa bits, bias: F16, BF16, E4M3, E5M2, their FNUZ twins, E2M3, E3M2, E2M1 */
    static const struct {
        int exponent, mantissa, bias;
    } formats[] = {{5, 10, 15}, {8, 7, 127}, {4, 3, 7}, {5, 2, 15}, {4, 3, 8},
                   {5, 2, 16},  {2, 3, 1},   {3, 2, 3}, {2, 1, 1}};
    for (size_t f = 0; f < sizeof formats / sizeof *formats; f++) {
        int m = formats[f].mantissa, min_exponent = 1 - formats[f].bias - m;
        narrow format = {m + 1, min_exponent};
        for (uint32_t bits = 0; bits < 1u << (1 + formats[f].exponent + m); bits++) {
            int e = (int)(bits >> m) & ((1 << formats[f].exponent) - 1);
            uint32_t fraction = bits & ((1u << m) - 1);
            if (f < 2 && e == (1 << formats[f].exponent) - 1) continue; /* infinities and NaN */
            double value =
                e ? ldexp((double)(fraction | 1u << m), min_exponent + e - 1) : ldexp(fraction, min_exponent);
            check_narrow(bits >> (formats[f].exponent + m) ? -value : value, &format);
        }
    }
    for (int e = -127; e <= 127; e++) check_narrow(ldexp(1, e), &(narrow){1, -127}); /* E8M0 */
}

/* The fewest digits with which printf's text of a float reads back. */
static int least_precision(double value, bool single) {
    char text[40];
    for (int precision = 1;; precision++) {
        snprintf(text, sizeof text, "%.*e", precision - 1, value);
        if (single ? strtof(text, NULL) == (float)value : strtod(text, NULL) == value) return precision;
    }
}

static void random_singles(void **state) {
    (void)state;
    uint64_t seed = 31;
    for (uint64_t n = test_count(FLOAT_TEXT_TIMES * 120000); n > 0; n--) {
        uint32_t bits = (uint32_t)random_u64(&seed);
        if (n % 8 == 0) bits &= 0xFF800000u; /* powers of two */
        float value = float_of(bits);
        if (!isfinite(value)) continue;
        char text[32], digits[17];
        int exponent;
        heft__float_text((double)value, 24, -149, text);
        if (n % 4 == 1) check_narrow((double)value, &(narrow){24, -149});
        if (strtof(text, NULL) != value) fail_msg("%a prints as %s", (double)value, text);
        size_t len = heft__float_digits((double)value, 24, -149, digits, &exponent);
        if (n % 4 == 0 && (int)len > least_precision((double)value, true)) fail_msg("%s is too long", text);
    }
}

static void check_double(double value, bool thorough) {
    char text[32], digits[17];
    int exponent;
    heft__double_text(value, text);
    if (strtod(text, NULL) != value) fail_msg("%a prints as %s", value, text);
    size_t len = heft__float_digits(value, 53, -1074, digits, &exponent);
    if (thorough && (int)len > least_precision(value, false)) fail_msg("%s is too long", text);
}

static void random_doubles(void **state) {
    (void)state;
    uint64_t seed = 41;
    for (uint64_t n = test_count(FLOAT_TEXT_TIMES * 150000); n > 0; n--) {
        double value = double_of(random_u64(&seed));
        if (n % 4 == 1) value = (double)(int64_t)random_u64(&seed) / 1e18;
        if (n % 4 == 2) value = (double)random_below(&seed, 1000000) / 1000;
        if (isfinite(value)) check_double(value, n % 8 < 3);
    }
    for (int e = -1074; e <= 1023; e++) {
        check_double(ldexp(1, e), true);
        check_double(nextafter(ldexp(1, e), 0), true);
        check_double(nextafter(ldexp(1, e), INFINITY), true);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_by_hand),  cmocka_unit_test(rounded_texts),  cmocka_unit_test(all_narrow_floats),
        cmocka_unit_test(random_singles), cmocka_unit_test(random_doubles),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
