/* What one leaf's samples add to the gradients (p1 eq 11, 12).

   For samples i of one leaf, in their order: slope_i = sgn(r_i) (row . g_i) / divisor, and
   out = sum_i |r_i| g_i / divisor. One pass over g serves both. Sums run in double; the dot product in eight
   lanes (element k in lane k mod 8) that are added in one fixed order, so that the vector path has the
   bits of the plain one. Lanes start at +0, so a vector's spare elements, which add +0, change nothing. */
#ifndef HFOREST_HINGE_SUMS_H
#define HFOREST_HINGE_SUMS_H
#include <math.h>
#include <stddef.h>
#include <stdint.h>

#include "simd.h"

enum { HF_LANES = 8, HF_MOST_VECTORS = 4 };

#define HF_PLAIN_LEAF(NAME, REAL)                                                                         \
    static void NAME(const REAL *row, const REAL *grad, ptrdiff_t step, const int32_t *order,             \
                     ptrdiff_t count, const REAL *margin, ptrdiff_t n_outputs, double divisor,            \
                     REAL *slope, double *total, REAL *out) {                                             \
        ptrdiff_t c, k, i;                                                                                \
        for (k = 0; k < n_outputs; ++k) total[k] = 0;                                                     \
        for (c = 0; c < count; ++c) {                                                                     \
            const REAL *g = grad + order[c] * step;                                                       \
            const REAL r = margin[order[c]];                                                              \
            const double size = fabs((double)r);                                                          \
            double lane[HF_LANES] = {0}, s;                                                               \
            for (k = 0; k + HF_LANES <= n_outputs; k += HF_LANES)                                         \
                for (i = 0; i < HF_LANES; ++i) lane[i] += (double)row[k + i] * (double)g[k + i];          \
            for (i = 0; k + i < n_outputs; ++i) lane[i] += (double)row[k + i] * (double)g[k + i];         \
            for (k = 0; k < n_outputs; ++k) total[k] += size * (double)g[k];                              \
            s = ((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7])); \
            s /= divisor;                                                                                 \
            slope[order[c]] = (REAL)(r > 0 ? s : r < 0 ? -s : 0.0);                                       \
        }                                                                                                 \
        for (k = 0; k < n_outputs; ++k) out[k] = (REAL)(total[k] / divisor);                              \
    }

HF_PLAIN_LEAF(hf_leaf_f32_plain, float)
HF_PLAIN_LEAF(hf_leaf_f64_plain, double)

#if HF_X86
HF_AVX512_CODE HF_INLINE void hf_leaf_avx512(
    const float *row, const float *grad, ptrdiff_t step, const int32_t *order, ptrdiff_t count, const float *margin,
    ptrdiff_t n_outputs, double divisor, float *slope, float *out, const int n_vectors) {
    const __mmask8 last = (__mmask8)(0xff >> (8 * n_vectors - n_outputs));
    __m512d w[HF_MOST_VECTORS], total[HF_MOST_VECTORS];
    int i;
    for (i = 0; i < n_vectors; ++i) {
        w[i] = _mm512_cvtps_pd(_mm256_maskz_loadu_ps(i == n_vectors - 1 ? last : 0xff, row + 8 * i));
        total[i] = _mm512_setzero_pd();
    }
    for (ptrdiff_t c = 0; c < count; ++c) {
        const float *g = grad + order[c] * step;
        const float r = margin[order[c]];
        const __m512d size = _mm512_set1_pd(fabs((double)r));
        __m512d lane = _mm512_setzero_pd();
        for (i = 0; i < n_vectors; ++i) {
            __m512d x = _mm512_cvtps_pd(_mm256_maskz_loadu_ps(i == n_vectors - 1 ? last : 0xff, g + 8 * i));
            lane = _mm512_add_pd(lane, _mm512_mul_pd(w[i], x));
            total[i] = _mm512_add_pd(total[i], _mm512_mul_pd(size, x));
        }
        __m256d four = _mm256_add_pd(_mm512_castpd512_pd256(lane), _mm512_extractf64x4_pd(lane, 1));
        __m128d two = _mm_add_pd(_mm256_castpd256_pd128(four), _mm256_extractf128_pd(four, 1));
        double s = (_mm_cvtsd_f64(two) + _mm_cvtsd_f64(_mm_unpackhi_pd(two, two))) / divisor;
        slope[order[c]] = (float)(r > 0 ? s : r < 0 ? -s : 0.0);
    }
    for (i = 0; i < n_vectors; ++i) {
        __m256 rounded = _mm512_cvtpd_ps(_mm512_div_pd(total[i], _mm512_set1_pd(divisor)));
        _mm256_mask_storeu_ps(out + 8 * i, i == n_vectors - 1 ? last : 0xff, rounded);
    }
}

HF_AVX512_CODE static void hf_leaf_f32_avx512(
    const float *row, const float *grad, ptrdiff_t step, const int32_t *order, ptrdiff_t count, const float *margin,
    ptrdiff_t n_outputs, double divisor, float *slope, float *out) {
    switch ((n_outputs + 7) / 8) {
        case 1: hf_leaf_avx512(row, grad, step, order, count, margin, n_outputs, divisor, slope, out, 1); break;
        case 2: hf_leaf_avx512(row, grad, step, order, count, margin, n_outputs, divisor, slope, out, 2); break;
        case 3: hf_leaf_avx512(row, grad, step, order, count, margin, n_outputs, divisor, slope, out, 3); break;
        default: hf_leaf_avx512(row, grad, step, order, count, margin, n_outputs, divisor, slope, out, 4);
    }
}
#endif

static void hf_leaf_f32(int path, const float *row, const float *grad, ptrdiff_t step, const int32_t *order,
                        ptrdiff_t count, const float *margin, ptrdiff_t n_outputs, double divisor, float *slope,
                        double *total, float *out) {
#if HF_X86
    if (path == HF_PATH_AVX512 && n_outputs > 2 && n_outputs <= HF_LANES * HF_MOST_VECTORS) {
        hf_leaf_f32_avx512(row, grad, step, order, count, margin, n_outputs, divisor, slope, out);
        return;
    }
#endif
    (void)path;
    hf_leaf_f32_plain(row, grad, step, order, count, margin, n_outputs, divisor, slope, total, out);
}

static void hf_leaf_f64(int path, const double *row, const double *grad, ptrdiff_t step, const int32_t *order,
                        ptrdiff_t count, const double *margin, ptrdiff_t n_outputs, double divisor, double *slope,
                        double *total, double *out) {
    (void)path;
    hf_leaf_f64_plain(row, grad, step, order, count, margin, n_outputs, divisor, slope, total, out);
}

#endif
