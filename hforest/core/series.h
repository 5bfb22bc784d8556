/* Logarithms, exponential and cosine from exact steps and fixed series, because the library functions of C and CUDA
   differ in the last bit. Additions and multiplications are in a fixed order, without fused ones, so that results are
   bit-identical on all processors and devices. Errors are below 0.85 units in the last place, of the cosine below 2.5
   (tests/test_series.py).

   Methods: Tang, "Table-driven implementation of the exponential function" (1989) and "... of the logarithm function"
   (1990), without their tables; Muller et al., Handbook of Floating-Point Arithmetic (2018), chapter 10. */
#ifndef HFOREST_SERIES_H
#define HFOREST_SERIES_H
#include "core/both.h"

#define HF_LN2 0.69314718055994530942
#define HF_LN2_HIGH 0x1.62e42feep-1 /* so few bits that its product with an exponent is exact */
#define HF_LN2_LOW 0x1.a39ef35793c76p-33

HF_BOTH uint64_t hf_bits_of(double a) {
    uint64_t bits;
    memcpy(&bits, &a, sizeof bits);
    return bits;
}
HF_BOTH double hf_double_of(uint64_t bits) {
    double a;
    memcpy(&a, &bits, sizeof a);
    return a;
}

/* Returns log2 of a positive number, within two roundings: a = m 2**e with m in [sqrt(1/2), sqrt(2)),
   s = (m - 1) / (m + 1), ln m = 2 (s + s**3/3 + s**5/5 + ...). */
HF_BOTH double hf_log2(double a) {
    int e;
    double m = frexp(a, &e);
    if (m < 0.70710678118654752) {
        m = 2 * m;
        e = e - 1;
    }
    const double s = (m - 1) / (m + 1), q = s * s;
    double sum = 1.0 / 23;
    for (int k = 21; k >= 1; k -= 2) sum = sum * q + 1.0 / k;
    return e + s * sum * 2.8853900817779268;
}

/* Returns the number in [-746, 710] next to `a`, of which exp is that of `a`: 0 below, infinity above. */
HF_BOTH double hf_exp_argument(double a) {
    const double b = a < -746 ? -746 : a;
    return b > 710 ? 710 : b;
}

/* Returns exp of a number in [-746, 710], or NaN of NaN: 2**k exp(r) with an integer k, |r| <= log(2) / 2 and
   exp(r) = 1 + r + r**2 (1/2! + r/3! + ...). r = high - low with an exact `high`; 1 + high = most + rest is exact.
   2**k is the product of two powers, as the result may be subnormal. Without calls, branches and divisions. */
HF_BOTH double hf_exp_inside(double a) {
    const double shift = 0x1.8p52 + 2046; /* a sum with it has no fractional bits: the low bits are k + 2046 */
    const double whole = a * 1.4426950408889634 + shift, k = whole - shift;
    const double high = a - k * HF_LN2_HIGH, low = k * HF_LN2_LOW, r = high - low, r2 = r * r, r4 = r2 * r2;
    const double first = (1.0 / 2 + 1.0 / 6 * r) + (1.0 / 24 + 1.0 / 120 * r) * r2;
    const double middle = (1.0 / 720 + 1.0 / 5040 * r) + (1.0 / 40320 + 1.0 / 362880 * r) * r2;
    const double last = (1.0 / 3628800 + 1.0 / 39916800 * r) + (1.0 / 479001600 + 1.0 / 6227020800 * r) * r2;
    const double most = 1.0 + high, rest = high - (most - 1.0);
    const double sum = most + (rest + (r2 * (first + middle * r4 + last * (r4 * r4)) - low));
    const uint64_t bits = hf_bits_of(whole), half = bits >> 1 << 52;
    return sum * hf_double_of(half) * hf_double_of((bits << 52) - half);
}

/* Returns exp of any number. */
HF_BOTH double hf_exp(double a) { return hf_exp_inside(hf_exp_argument(a)); }

/* Returns log(a + b) for a >= 0 and a small b: a = m 2**k with m in [sqrt(1/2), sqrt(2)), f = m - 1, s = f / (2 + f),
   log m = f - f**2/2 + s (f**2/2 + 2 (s**2/3 + s**4/5 + ...)). `correction` is b / a. log 0 = -infinity; of negative
   numbers NaN. */
HF_BOTH double hf_corrected_log(double a, double correction) {
    const int is_small = a < 0x1p-1022;
    const double scaled = is_small ? a * 0x1p54 : a;
    const uint64_t bits = hf_bits_of(scaled);
    const uint64_t exponent = (bits - 0x3fe6a09e667f3bcd + 0x3ff0000000000000) >> 52; /* k + 1023 */
    const double k = hf_double_of(exponent | 0x4330000000000000) - (0x1p52 + (is_small ? 1023 + 54 : 1023));
    const double f = hf_double_of(bits - ((exponent - 1023) << 52)) - 1;
    const double s = f / (2 + f), z = s * s, w = z * z, square = 0.5 * f * f;
    const double odd = z * (2.0 / 3 + w * (2.0 / 7 + w * (2.0 / 11 + w * (2.0 / 15 + w * (2.0 / 19)))));
    const double even = w * (2.0 / 5 + w * (2.0 / 9 + w * (2.0 / 13 + w * (2.0 / 17 + w * (2.0 / 21)))));
    const double low = s * (square + (odd + even)) + (k * HF_LN2_LOW + correction);
    const double log_a = k * HF_LN2_HIGH - ((square - low) - f);
    return a > 0 ? (a < HF_INFINITY ? log_a : a) : (a == 0 ? -HF_INFINITY : hf_double_of(0x7ff8000000000000));
}

/* Returns the natural logarithm. */
HF_BOTH double hf_log(double a) { return hf_corrected_log(a, 0); }

/* Returns log(1 + a), also of a small `a`: with the error of the rounded sum. */
HF_BOTH double hf_log1p(double a) {
    const double sum = 1 + a, error = a < 1 ? a - (sum - 1) : 1 - (sum - a);
    return hf_corrected_log(sum, error / sum);
}

/* Returns cos(2 pi a) of a number below 2**50: quarters of a turn, then cos or sin of x within an eighth. */
HF_BOTH double hf_cos_of_turns(double a) {
    const double shift = 0x1.8p52, whole = a * 4 + shift;
    const double x = (a - (whole - shift) * 0.25) * 6.28318530717958647693, z = x * x;
    const uint64_t quarter = hf_bits_of(whole);
    double of_cos = 1, of_sin = 1; /* Horner's rule: 1 - z / (1 2) (1 - z / (3 4) (...)) */
    for (int i = 16; i > 0; i -= 2) {
        of_cos = 1 - z * (1.0 / ((i - 1) * i)) * of_cos;
        of_sin = 1 - z * (1.0 / (i * (i + 1))) * of_sin;
    }
    const double size = quarter & 1 ? x * of_sin : of_cos;
    return (quarter + 1) & 2 ? -size : size;
}

#endif
