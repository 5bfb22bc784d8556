/* Sixteen numbers at once, in whatever registers the function around them may use: one text for every vector
   path, and the same bits. */
#ifndef HFOREST_CO2_LANES16_H
#define HFOREST_CO2_LANES16_H
#include <string.h>

#include "simd.h"

enum { HF_LANES = 16 };

#if defined(__GNUC__) || defined(__clang__)
/* Only inlined functions hand them on, so no calling convention is concerned. */
#pragma GCC diagnostic ignored "-Wpsabi"
typedef float hf_f32x16 __attribute__((vector_size(64)));
typedef double hf_f64x16 __attribute__((vector_size(128)));
#define HF_LANES_ADD(a, b) ((a) + (b))
#define HF_LANES_MUL(a, b) ((a) * (b))
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
#endif

#endif
