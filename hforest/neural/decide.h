/* Decisions of a soft vertex, with the same bits in vectors of every width and on a GPU. Included once per dtype and
   vector path, after definitions of DIGITS (24 for float32, 53 for float64), LANES (elements of a vector), CODE (the
   target attribute) and T(name). */
#include "core/both.h"

#if DIGITS == 24
#define REAL float
#define BITS uint32_t
#define INTS int32_t
#define LOG2_E 0x1.715476p+0f
#define LN2_HIGH 0x1.62e4p-1f
#define LN2_LOW 0x1.7f7d1cp-20f
#define EXP_LIMIT 86.0f
#define EXP_MAGIC 0x1.8p23f
#define EXP_DEGREE 4
#define EXP_COEFFICIENTS {0x1.0p-1f, 0x1.5554dcp-3f, 0x1.555518p-5f, 0x1.120be2p-7f, 0x1.6d117cp-10f}
#else
#define REAL double
#define BITS uint64_t
#define INTS int64_t
#define LOG2_E 0x1.71547652b82fep+0
#define LN2_HIGH 0x1.62e42feep-1
#define LN2_LOW 0x1.a39ef35793c76p-33
#define EXP_LIMIT 707.0
#define EXP_MAGIC 0x1.8p52
#define EXP_DEGREE 9
#define EXP_COEFFICIENTS                                                                                  \
    {0x1.0000000000001p-1, 0x1.5555555555556p-3, 0x1.5555555553d37p-5, 0x1.11111111109a6p-7,               \
     0x1.6c16c1789d1d7p-10, 0x1.a01a01a7cebcdp-13, 0x1.a019b8ca26fcfp-16, 0x1.71de0d85293b8p-19,           \
     0x1.2891d4ffbb0f9p-22, 0x1.af390ba7e6f47p-26}
#endif

#if LANES == 1
typedef REAL T(vec);
typedef BITS T(bits);
typedef INTS T(ints);
#else
typedef REAL T(vec) __attribute__((vector_size(LANES * sizeof(REAL))));
typedef BITS T(bits) __attribute__((vector_size(LANES * sizeof(REAL))));
typedef INTS T(ints) __attribute__((vector_size(LANES * sizeof(REAL))));
#endif

CODE HF_BOTH T(vec) T(all)(REAL a) {
#if LANES == 1
    return a;
#else
    return a - (T(vec)){0};
#endif
}

CODE HF_BOTH T(bits) T(as_bits)(T(vec) a) {
    T(bits) b;
    memcpy(&b, &a, sizeof b);
    return b;
}

CODE HF_BOTH T(vec) T(as_real)(T(bits) a) {
    T(vec) b;
    memcpy(&b, &a, sizeof b);
    return b;
}

/* Returns all ones in lanes where a < b. */
CODE HF_BOTH T(bits) T(less)(T(vec) a, T(vec) b) {
#if LANES == 1
    return a < b ? ~(BITS)0 : 0;
#else
    return (T(bits))(a < b);
#endif
}

/* exp(-|f|) = 2**n exp(r) with an integer n, |r| <= log(2) / 2 and exp(r) = 1 + r + r**2 q(r) (docs/neural.md). n is
   rounded by adding a number whose last place is 1; its low bits are added to the exponent. LN2_HIGH has so few bits
   that n * LN2_HIGH is exact. From EXP_LIMIT on, the result would leave the normal numbers and is set to 0. */
CODE HF_BOTH T(vec) T(decay)(T(vec) f) {
    static const REAL q[] = EXP_COEFFICIENTS;
    const T(vec) x = T(as_real)(T(as_bits)(f) | T(as_bits)(T(all)((REAL)-0.0)));
    const T(bits) inside = T(less)(T(all)(-EXP_LIMIT), x);
    T(vec) n = x * T(all)(LOG2_E) + T(all)(EXP_MAGIC), r, p;
    const T(bits) exponent = T(as_bits)(n) << (DIGITS - 1);
    int i;
    n = n - T(all)(EXP_MAGIC);
    r = (x - n * T(all)(LN2_HIGH)) - n * T(all)(LN2_LOW);
    p = T(all)(q[EXP_DEGREE]);
#ifndef __CUDACC_RTC__
#pragma GCC unroll 16
#endif
    for (i = EXP_DEGREE - 1; i >= 0; --i) p = p * r + T(all)(q[i]);
    p = T(all)(1) + (r + r * r * p);
    return T(as_real)((T(as_bits)(p) + exponent) & inside);
}

/* Writes d = sigmoid(f) and c = 1 - d = sigmoid(-f), each to a few units in the last place, from e = exp(-|f|). */
CODE HF_BOTH void T(decide)(T(vec) f, T(vec) e, T(vec) *d, T(vec) *c) {
    const T(bits) negative = (T(bits))((T(ints))T(as_bits)(f) >> (8 * sizeof(REAL) - 1));
    const T(vec) one = T(all)(1), big = one / (one + e), small = e * big;
    const T(bits) change = (T(as_bits)(small) ^ T(as_bits)(big)) & negative;
    *d = T(as_real)(T(as_bits)(big) ^ change);
    *c = T(as_real)(T(as_bits)(small) ^ change);
}

#undef LOG2_E
#undef LN2_HIGH
#undef LN2_LOW
#undef EXP_LIMIT
#undef EXP_MAGIC
#undef EXP_DEGREE
#undef EXP_COEFFICIENTS
