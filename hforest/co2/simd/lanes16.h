/* Vectors of sixteen numbers, in the registers that the enclosing function is compiled for: one source for every
   vector path, and the same bits. */
#ifndef HFOREST_CO2_LANES16_H
#define HFOREST_CO2_LANES16_H
#include <stdint.h>
#include <string.h>

#include "core/simd.h"

enum { HF_LANES = 16 };

#if defined(__GNUC__) || defined(__clang__)
/* Only inlined functions take and return them, so no calling convention is concerned. */
#pragma GCC diagnostic ignored "-Wpsabi"
typedef float hf_f32x16 __attribute__((vector_size(64)));
typedef double hf_f64x16 __attribute__((vector_size(128)));
typedef int32_t hf_i32x16 __attribute__((vector_size(64)));
typedef int64_t hf_i64x16 __attribute__((vector_size(128)));
#define HF_LANES_ADD(a, b) ((a) + (b))
#define HF_LANES_MUL(a, b) ((a) * (b))

/* Returns the first n of sixteen numbers, then -1 if `offset`, then zeros; the masks are two loads from constants. */
#define HF_LANES_CUT(NAME, REAL, VEC, INT, IVEC)                                                             \
    HF_INLINE VEC NAME(const REAL *p, int64_t n, int offset) {                                               \
        static const INT keep[2 * HF_LANES] = {-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1}; \
        static const REAL none[HF_LANES], minus[2 * HF_LANES] = {[HF_LANES] = -1};                           \
        IVEC a, mask, after;                                                                                \
        memcpy(&a, p, sizeof a);                                                                             \
        memcpy(&mask, keep + HF_LANES - n, sizeof mask);                                                     \
        memcpy(&after, offset ? minus + HF_LANES - n : none, sizeof after);                                \
        a = (a & mask) | after;                                                                             \
        return (VEC)a;                                                                                       \
    }
HF_LANES_CUT(hf_cut_f32x16, float, hf_f32x16, int32_t, hf_i32x16)
HF_LANES_CUT(hf_cut_f64x16, double, hf_f64x16, int64_t, hf_i64x16)
#else
typedef struct {
    float lane[16];
} hf_f32x16;
typedef struct {
    double lane[16];
} hf_f64x16;
static inline hf_f32x16 hf_add_f32x16(hf_f32x16 a, hf_f32x16 b) {
    for (int i = 0; i < 16; ++i) a.lane[i] += b.lane[i];
    return a;
}
static inline hf_f64x16 hf_add_f64x16(hf_f64x16 a, hf_f64x16 b) {
    for (int i = 0; i < 16; ++i) a.lane[i] += b.lane[i];
    return a;
}
static inline hf_f32x16 hf_mul_f32x16(hf_f32x16 a, hf_f32x16 b) {
    for (int i = 0; i < 16; ++i) a.lane[i] *= b.lane[i];
    return a;
}
static inline hf_f64x16 hf_mul_f64x16(hf_f64x16 a, hf_f64x16 b) {
    for (int i = 0; i < 16; ++i) a.lane[i] *= b.lane[i];
    return a;
}
#define HF_LANES_ADD(a, b) _Generic((a), hf_f32x16: hf_add_f32x16, hf_f64x16: hf_add_f64x16)(a, b)
#define HF_LANES_MUL(a, b) _Generic((a), hf_f32x16: hf_mul_f32x16, hf_f64x16: hf_mul_f64x16)(a, b)
#define HF_LANES_CUT(NAME, REAL, VEC)                                     \
    static inline VEC NAME(const REAL *p, int64_t n, int offset) {        \
        VEC a = {{0}};                                                    \
        memcpy(&a, p, (size_t)n * sizeof *p);                             \
        if (offset) a.lane[n] = -1;                                       \
        return a;                                                         \
    }
HF_LANES_CUT(hf_cut_f32x16, float, hf_f32x16)
HF_LANES_CUT(hf_cut_f64x16, double, hf_f64x16)
#endif
#define HF_LANES_CUT_OF(p) _Generic((p), const float *: hf_cut_f32x16, const double *: hf_cut_f64x16)

/* Returns the sum of the lanes, added by halves. */
#if defined(__has_builtin)
#if __has_builtin(__builtin_shufflevector)
#define HF_SHUFFLES 1
#endif
#endif
#ifdef HF_SHUFFLES
#define HF_LANES_FOLD(NAME, REAL, VEC)                                                                              \
    HF_INLINE REAL NAME(VEC a) {                                                                                    \
        const VEC b = a + __builtin_shufflevector(a, a, 8, 9, 10, 11, 12, 13, 14, 15, 8, 9, 10, 11, 12, 13, 14, 15); \
        const VEC c = b + __builtin_shufflevector(b, b, 4, 5, 6, 7, 4, 5, 6, 7, 4, 5, 6, 7, 4, 5, 6, 7);            \
        const VEC d = c + __builtin_shufflevector(c, c, 2, 3, 2, 3, 2, 3, 2, 3, 2, 3, 2, 3, 2, 3, 2, 3);            \
        return d[0] + d[1];                                                                                         \
    }
#else
#define HF_LANES_FOLD(NAME, REAL, VEC)                                    \
    static inline REAL NAME(VEC a) {                                      \
        REAL lane[HF_LANES];                                              \
        memcpy(lane, &a, sizeof lane);                                    \
        for (int width = HF_LANES / 2; width >= 1; width /= 2)            \
            for (int i = 0; i < width; ++i) lane[i] += lane[i + width];   \
        return lane[0];                                                   \
    }
#endif
HF_LANES_FOLD(hf_fold_f32x16, float, hf_f32x16)
HF_LANES_FOLD(hf_fold_f64x16, double, hf_f64x16)

#endif
