/* base: the shortest decimal text of a binary float that reads back as the same value, independent of the locale. */
#ifndef HEFT_BASE_FLOAT_TEXT_H
#define HEFT_BASE_FLOAT_TEXT_H

#include <stddef.h>
#include <stdint.h>

/* The shortest digits for `value`, of several the closest. It is a finite double that is exactly a float with
 * `mantissa_bits` of precision (53 double, 24 F32, 11 F16, 8 BF16, 4 E4M3, 3 E5M2, ...) and smallest exponent
 * `min_exponent` (value of the lowest subnormal bit is 2^min_exponent: -1074, -149, -24, -133, ...). Writes at most 17
 * digits without leading or trailing zeros to `digits`, and the decimal exponent: value = 0.d1d2d3... x 10^*exponent.
 * Returns their number (1 for zero: "0"). */
size_t heft__float_digits(double value, int mantissa_bits, int min_exponent, char digits[17], int *exponent);

/* The text of a double as Python's repr writes it ("0.1", "1e-05", "1.5e+16", "-0.0", "nan", "-inf"); out[32], NUL after
 * it. Returns its length. */
size_t heft__double_text(double value, char *out);

/* The same with the precision of a narrower type: 1024.0 as F16 (11 bits, -24) is "1024.0", 65504.0 is "65500.0". */
size_t heft__float_text(double value, int mantissa_bits, int min_exponent, char *out);

/* `value` correctly rounded to at most `digits` (1 to 17) significant digits, without trailing zeros, as printf's %g lays
 * it out ("1.23e-05", "12.5", "300"); out[32]. Returns its length. */
size_t heft__double_text_rounded(double value, int digits, char *out);

#endif
