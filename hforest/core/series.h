/* Logarithm and exponential from exact steps and a fixed series, because the library functions of C and CUDA differ in
   the last bit. */
#ifndef HFOREST_SERIES_H
#define HFOREST_SERIES_H
#include "core/both.h"

#define HF_LN2 0.69314718055994530942

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

/* Returns exp of a number that is at most 0, within two roundings. It has no call, branch or division, so that loops
   over it are vectorised. */
HF_BOTH double hf_exp(double a) {
    const double shift = 0x1.8p52; /* adding this leaves no fractional bits: the low bits are the rounded number */
    const double whole = a * 1.4426950408889634 + shift, k = whole - shift;
    const double r = (a - k * 6.93147180369123816490e-01) - k * 1.90821492927058770002e-10;
    const double r2 = r * r, r4 = r2 * r2;
    const double low = (1.0 / 2 + 1.0 / 6 * r) + (1.0 / 24 + 1.0 / 120 * r) * r2;
    const double middle = (1.0 / 720 + 1.0 / 5040 * r) + (1.0 / 40320 + 1.0 / 362880 * r) * r2;
    const double high = (1.0 / 3628800 + 1.0 / 39916800 * r) + (1.0 / 479001600 + 1.0 / 6227020800 * r) * r2;
    const double sum = 1.0 + (r + r2 * (low + middle * r4 + high * (r4 * r4)));
    uint64_t bits;
    double power;
    memcpy(&bits, &whole, sizeof bits);
    bits = (bits + 1023) << 52; /* 2**k */
    memcpy(&power, &bits, sizeof power);
    return a < -700 ? 0 : sum * power;
}

#endif
