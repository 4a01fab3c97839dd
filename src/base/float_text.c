/* base: shortest and rounded decimal text of floats, from exact integer arithmetic (the method of Steele and White: the
 * value and the half gaps to its neighbours as fractions of one denominator, digit after digit until the rest cannot
 * matter). */
#include "base/float_text.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

/* An unsigned integer of at most 1,280 bits, lowest word first, no leading zero word. The largest that occurs is
 * 2^54 x 10^325, below 2^1134. */
typedef struct float_big {
    uint32_t n;
    uint32_t word[40];
} float_big;

static void float_big_set(float_big *a, uint64_t value) {
    a->word[0] = (uint32_t)value;
    a->word[1] = (uint32_t)(value >> 32);
    a->n = a->word[1] ? 2 : a->word[0] ? 1 : 0;
}

static void float_big_multiply(float_big *a, uint32_t factor) {
    uint64_t carry = 0;
    for (uint32_t i = 0; i < a->n; i++) {
        carry += (uint64_t)a->word[i] * factor;
        a->word[i] = (uint32_t)carry;
        carry >>= 32;
    }
    if (carry) a->word[a->n++] = (uint32_t)carry;
}

static void float_big_power10(float_big *a, int power) {
    static const uint32_t small[] = {1, 10, 100, 1000, 10000, 100000, 1000000, 10000000, 100000000};
    for (; power >= 9; power -= 9) float_big_multiply(a, 1000000000);
    if (power) float_big_multiply(a, small[power]);
}

static void float_big_shift(float_big *a, int bits) {
    uint32_t words = (uint32_t)bits / 32;
    if (a->n == 0) return;
    float_big_multiply(a, UINT32_C(1) << (bits % 32));
    memmove(a->word + words, a->word, a->n * sizeof *a->word);
    memset(a->word, 0, words * sizeof *a->word);
    a->n += words;
}

/* The sign of a - b. */
static int float_big_compare(const float_big *a, const float_big *b) {
    if (a->n != b->n) return a->n < b->n ? -1 : 1;
    for (uint32_t i = a->n; i-- > 0;)
        if (a->word[i] != b->word[i]) return a->word[i] < b->word[i] ? -1 : 1;
    return 0;
}

/* a -= b, where b <= a. */
static void float_big_subtract(float_big *a, const float_big *b) {
    uint64_t borrow = 0;
    for (uint32_t i = 0; i < a->n; i++) {
        uint64_t d = (uint64_t)a->word[i] - (i < b->n ? b->word[i] : 0) - borrow;
        a->word[i] = (uint32_t)d;
        borrow = d >> 63;
    }
    while (a->n && a->word[a->n - 1] == 0) a->n--;
}

static uint32_t float_big_word(const float_big *a, uint32_t i) {
    return i < a->n ? a->word[i] : 0;
}

/* The sign of a + b - c: of the words from the lowest up the last one that differs decides. */
static int float_big_compare_sum(const float_big *a, const float_big *b, const float_big *c) {
    uint32_t n = a->n > b->n ? a->n : b->n;
    uint64_t carry = 0;
    int order = 0;
    for (uint32_t i = 0; i < n || i < c->n; i++) {
        carry += (uint64_t)float_big_word(a, i) + float_big_word(b, i);
        uint32_t word = float_big_word(c, i);
        if ((uint32_t)carry != word) order = (uint32_t)carry < word ? -1 : 1;
        carry >>= 32;
    }
    return carry ? 1 : order;
}

/* A positive value as value / scale, with the half gaps to the neighbours above and below over the same scale; while
 * digits are made, value = 0.d1d2... x 10^exponent x scale. */
typedef struct float_state {
    float_big value, scale, above, below;
    bool even; /* the neighbours' ties read back as this value */
    int exponent;
} float_state;

/* Takes |value| apart into mantissa x 2^*power for the precision given. */
static uint64_t float_parts(double value, int mantissa_bits, int min_exponent, int *power) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    uint64_t mantissa = bits & ((UINT64_C(1) << 52) - 1);
    int biased = (int)(bits >> 52 & 0x7FF), e = biased ? biased - 1075 : -1074, length = 0;
    if (biased) mantissa |= UINT64_C(1) << 52;
    while (length < 53 && mantissa >> length) length++;
    *power = e + length - mantissa_bits;
    if (*power < min_exponent) *power = min_exponent;
    return *power < e ? mantissa << (e - *power) : *power - e > 63 ? 0 : mantissa >> (*power - e);
}

/* Sets up the fractions for mantissa x 2^power, mantissa > 0. `lowest`: no value below has a smaller power. */
static void float_start(float_state *s, uint64_t mantissa, int power, int mantissa_bits, bool lowest) {
    bool narrow_below = mantissa == UINT64_C(1) << (mantissa_bits - 1) && !lowest; /* half as far down as up */
    int extra = narrow_below ? 2 : 1, length = 0;
    while (mantissa >> length) length++;
    float_big_set(&s->value, mantissa);
    float_big_set(&s->scale, 1);
    float_big_set(&s->below, 1);
    float_big_shift(&s->value, extra + (power > 0 ? power : 0));
    float_big_shift(&s->scale, extra + (power < 0 ? -power : 0));
    float_big_shift(&s->below, power > 0 ? power : 0);
    s->above = s->below;
    if (narrow_below) float_big_shift(&s->above, 1);
    s->even = mantissa % 2 == 0;
    /* floor(log10(2^(power + length - 1))) + 1; right, or one too low, which the caller sees. */
    int x = power + length - 1;
    s->exponent = (x * 78913 - (x < 0 ? (1 << 18) - 1 : 0)) / (1 << 18) + 1;
    if (s->exponent >= 0) {
        float_big_power10(&s->scale, s->exponent);
    } else {
        float_big_power10(&s->value, -s->exponent);
        float_big_power10(&s->above, -s->exponent);
        float_big_power10(&s->below, -s->exponent);
    }
}

/* Brings value / scale below 1: the exponent was one too low. */
static void float_fit_scale(float_state *s) {
    if (float_big_compare(&s->value, &s->scale) < 0) return;
    s->exponent++;
    float_big_multiply(&s->scale, 10);
}

/* The next digit of value / scale, which is below 1. */
static char float_next_digit(float_state *s) {
    char digit = '0';
    float_big_multiply(&s->value, 10);
    while (float_big_compare(&s->value, &s->scale) >= 0) {
        float_big_subtract(&s->value, &s->scale);
        digit++;
    }
    return digit;
}

/* The sign of value / scale - 1/2: which way what is left rounds. */
static int float_compare_half(const float_state *s) {
    return float_big_compare_sum(&s->value, &s->value, &s->scale);
}

size_t heft__float_digits(double value, int mantissa_bits, int min_exponent, char digits[17], int *exponent) {
    int power;
    uint64_t mantissa = float_parts(value, mantissa_bits, min_exponent, &power);
    *exponent = 1;
    digits[0] = '0';
    if (mantissa == 0) return 1;
    float_state s;
    float_start(&s, mantissa, power, mantissa_bits, power == min_exponent);
    float_fit_scale(&s);
    *exponent = s.exponent;
    for (size_t n = 0;;) {
        digits[n] = float_next_digit(&s);
        float_big_multiply(&s.above, 10);
        float_big_multiply(&s.below, 10);
        int low = float_big_compare(&s.value, &s.below), high = float_big_compare_sum(&s.value, &s.above, &s.scale);
        bool down = low < 0 || (low == 0 && s.even), up = high > 0 || (high == 0 && s.even);
        if (down || up) {
            int half = float_compare_half(&s);
            if (up && (!down || half > 0 || (half == 0 && digits[n] % 2))) digits[n]++;
            if (digits[n] > '9') { /* the first digit only: a later one would have ended the text before it */
                digits[n] = '1';
                ++*exponent;
            }
            return n + 1;
        }
        n++;
    }
}

/* The first `wanted` digits, correctly rounded (ties to even), trailing zeros cut. */
static size_t float_round_digits(double value, size_t wanted, char digits[17], int *exponent) {
    int power;
    uint64_t mantissa = float_parts(value, 53, -1074, &power);
    *exponent = 1;
    digits[0] = '0';
    if (mantissa == 0) return 1;
    float_state s;
    float_start(&s, mantissa, power, 53, power == -1074);
    float_fit_scale(&s);
    size_t n = 0;
    while (n < wanted) digits[n++] = float_next_digit(&s);
    int half = float_compare_half(&s);
    if (half > 0 || (half == 0 && digits[n - 1] % 2)) {
        while (n && digits[n - 1] == '9') n--;
        if (n) {
            digits[n - 1]++;
        } else {
            digits[n++] = '1';
            s.exponent++;
        }
    }
    while (n > 1 && digits[n - 1] == '0') n--;
    *exponent = s.exponent;
    return n;
}

/* Lays digits out: plain for exponents in [plain_from, plain_to], else d.ddde+XX. `point`: integers end in ".0". */
static size_t float_layout(bool negative, const char *digits, size_t n, int exponent, int plain_to, bool point,
                           char *out) {
    const int plain_from = -3;
    size_t at = 0, whole = exponent > 0 ? (size_t)exponent : 0;
    if (negative) out[at++] = '-';
    if (exponent < plain_from || exponent > plain_to) {
        int shown = exponent - 1, size = shown < 0 ? -shown : shown;
        out[at++] = digits[0];
        if (n > 1) out[at++] = '.';
        memcpy(out + at, digits + 1, n - 1);
        at += n - 1;
        out[at++] = 'e';
        out[at++] = shown < 0 ? '-' : '+';
        if (size >= 100) out[at++] = (char)('0' + size / 100);
        out[at++] = (char)('0' + size / 10 % 10);
        out[at++] = (char)('0' + size % 10);
    } else {
        for (size_t i = 0; i < whole; i++) out[at++] = i < n ? digits[i] : '0';
        if (whole == 0) out[at++] = '0';
        if (point || n > whole) out[at++] = '.';
        for (int i = exponent; i < 0; i++) out[at++] = '0';
        for (size_t i = whole; i < n; i++) out[at++] = digits[i];
        if (point && n <= whole) out[at++] = '0';
    }
    out[at] = 0;
    return at;
}

/* "nan", "inf", "-inf"; 0 for finite values. */
static size_t float_special(double value, char *out) {
    if (isfinite(value)) return 0;
    const char *text = isnan(value) ? "nan" : value < 0 ? "-inf" : "inf";
    size_t n = strlen(text);
    memcpy(out, text, n + 1);
    return n;
}

size_t heft__float_text(double value, int mantissa_bits, int min_exponent, char *out) {
    char digits[17];
    int exponent;
    size_t special = float_special(value, out);
    if (special) return special;
    size_t n = heft__float_digits(value, mantissa_bits, min_exponent, digits, &exponent);
    return float_layout(signbit(value), digits, n, exponent, 16, true, out);
}

size_t heft__double_text(double value, char *out) {
    return heft__float_text(value, 53, -1074, out);
}

size_t heft__double_text_rounded(double value, int digits, char *out) {
    char text[17];
    int exponent, wanted = digits < 1 ? 1 : digits > 17 ? 17 : digits;
    size_t special = float_special(value, out);
    if (special) return special;
    size_t n = float_round_digits(value, (size_t)wanted, text, &exponent);
    return float_layout(signbit(value), text, n, exponent, wanted, false, out);
}
