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
#include <string.h>

#include "simd.h"

enum {
    HF_LANES = 8,
    HF_MOST_VECTORS = 4,
    HF_AHEAD = 8    /* trees ahead whose leaf row is asked for */
};

#define HF_ADD_LANES(a) (((a[0] + a[4]) + (a[2] + a[6])) + ((a[1] + a[5]) + (a[3] + a[7])))

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
            s = HF_ADD_LANES(lane);                                                                       \
            s /= divisor;                                                                                 \
            slope[order[c]] = (REAL)(r > 0 ? s : r < 0 ? -s : 0.0);                                       \
        }                                                                                                 \
        for (k = 0; k < n_outputs; ++k) out[k] = (REAL)(total[k] / divisor);                              \
    }

HF_PLAIN_LEAF(hf_leaf_f32_plain, float)
HF_PLAIN_LEAF(hf_leaf_f64_plain, double)

#if HF_X86
HF_AVX512_CODE HF_INLINE double hf_add_lanes_avx512(__m512d a) {
    const __m256d four = _mm256_add_pd(_mm512_castpd512_pd256(a), _mm512_extractf64x4_pd(a, 1));
    const __m128d two = _mm_add_pd(_mm256_castpd256_pd128(four), _mm256_extractf128_pd(four, 1));
    return _mm_cvtsd_f64(two) + _mm_cvtsd_f64(_mm_unpackhi_pd(two, two));
}

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
        const double s = hf_add_lanes_avx512(lane) / divisor;
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

/* The same for all samples of a tree without sorting them: the leaf of sample i gets the slot slot_of[leaf[i]],
   given on its first visit (slot_of holds -1 before, and is left set for the n_slots leaves in slot_leaf);
   total (n_slots, width) has the sums, width >= n_outputs a multiple of HF_LANES. A leaf's samples are added
   in their order, as above, so the bits are the same. Rows of `next` (n), of the tree that follows or NULL,
   are asked for on the way, with those of m and v beside them. Returns n_slots. */
typedef struct {
    const int32_t *leaf, *next;
    int32_t *slot_of, *slot_leaf;
    ptrdiff_t n_samples, n_outputs, width, step;
    double *total;
} hf_visits;

#define HF_NEXT_ROWS(i)                                                                                         if (a->next) {                                                                                                  const ptrdiff_t at_ = a->next[i] * a->n_outputs;                                                            hf_fetch(next_weights + at_, a->n_outputs * (ptrdiff_t)sizeof *weights);                                    hf_fetch(next_m + at_, a->n_outputs * (ptrdiff_t)sizeof *weights);                                          hf_fetch(next_v + at_, a->n_outputs * (ptrdiff_t)sizeof *weights);                                      }

static inline int32_t hf_visit(const hf_visits *a, ptrdiff_t i, int32_t *n_slots) {
    int32_t slot = a->slot_of[a->leaf[i]];
    if (slot < 0) {
        slot = (*n_slots)++;
        a->slot_of[a->leaf[i]] = slot;
        a->slot_leaf[slot] = a->leaf[i];
        memset(a->total + slot * a->width, 0, (size_t)a->width * sizeof(double));
    }
    return slot;
}

#define HF_PLAIN_VISITS(NAME, REAL)                                                                             static ptrdiff_t NAME(const hf_visits *a, const REAL *grad, const REAL *margin, const REAL *weights,                              const REAL *next_weights, const REAL *next_m, const REAL *next_v, double divisor,                           REAL *slope) {                                                                            int32_t n_slots = 0;                                                                                        const ptrdiff_t n_outputs = a->n_outputs;                                                                   for (ptrdiff_t n = 0; n < a->n_samples; ++n) {                                                                  double *total = a->total + hf_visit(a, n, &n_slots) * a->width;                                             const REAL *g = grad + n * a->step, *row = weights + a->leaf[n] * n_outputs, r = margin[n];                 const double size = fabs((double)r);                                                                        double lane[HF_LANES] = {0}, s;                                                                             ptrdiff_t k, i;                                                                                             HF_NEXT_ROWS(n)                                                                                             for (k = 0; k + HF_LANES <= n_outputs; k += HF_LANES)                                                           for (i = 0; i < HF_LANES; ++i) lane[i] += (double)row[k + i] * (double)g[k + i];                        for (i = 0; k + i < n_outputs; ++i) lane[i] += (double)row[k + i] * (double)g[k + i];                       for (k = 0; k < n_outputs; ++k) total[k] += size * (double)g[k];                                            s = HF_ADD_LANES(lane) / divisor;                                                                           slope[n] = (REAL)(r > 0 ? s : r < 0 ? -s : 0.0);                                                        }                                                                                                           return n_slots;                                                                                         }

HF_PLAIN_VISITS(hf_visits_f32_plain, float)
HF_PLAIN_VISITS(hf_visits_f64_plain, double)

#if HF_X86
HF_AVX512_CODE HF_INLINE ptrdiff_t hf_visits_avx512(
    const hf_visits *a, const float *grad, const float *margin, const float *weights, const float *next_weights,
    const float *next_m, const float *next_v, double divisor, float *slope, const int n_vectors) {
    const ptrdiff_t n_outputs = a->n_outputs;
    const __mmask8 last = (__mmask8)(0xff >> (8 * n_vectors - n_outputs));
    int32_t n_slots = 0;
    for (ptrdiff_t n = 0; n < a->n_samples; ++n) {
        double *total = a->total + hf_visit(a, n, &n_slots) * a->width;
        const float *g = grad + n * a->step, *row = weights + a->leaf[n] * n_outputs, r = margin[n];
        const __m512d size = _mm512_set1_pd(fabs((double)r));
        __m512d lane = _mm512_setzero_pd();
        HF_NEXT_ROWS(n)
        for (int i = 0; i < n_vectors; ++i) {
            const __mmask8 k = i == n_vectors - 1 ? last : 0xff;
            const __m512d x = _mm512_cvtps_pd(_mm256_maskz_loadu_ps(k, g + 8 * i));
            const __m512d w = _mm512_cvtps_pd(_mm256_maskz_loadu_ps(k, row + 8 * i));
            lane = _mm512_add_pd(lane, _mm512_mul_pd(w, x));
            _mm512_storeu_pd(total + 8 * i, _mm512_add_pd(_mm512_loadu_pd(total + 8 * i), _mm512_mul_pd(size, x)));
        }
        const double s = hf_add_lanes_avx512(lane) / divisor;
        slope[n] = (float)(r > 0 ? s : r < 0 ? -s : 0.0);
    }
    return n_slots;
}

HF_AVX512_CODE static ptrdiff_t hf_visits_f32_avx512(
    const hf_visits *a, const float *grad, const float *margin, const float *weights, const float *next_weights,
    const float *next_m, const float *next_v, double divisor, float *slope) {
    switch ((a->n_outputs + 7) / 8) {
        case 1: return hf_visits_avx512(a, grad, margin, weights, next_weights, next_m, next_v, divisor, slope, 1);
        case 2: return hf_visits_avx512(a, grad, margin, weights, next_weights, next_m, next_v, divisor, slope, 2);
        case 3: return hf_visits_avx512(a, grad, margin, weights, next_weights, next_m, next_v, divisor, slope, 3);
        default: return hf_visits_avx512(a, grad, margin, weights, next_weights, next_m, next_v, divisor, slope, 4);
    }
}

/* Outputs of one sample summed over its trees (p1 eq 10), in float64 in the order of the trees. */
HF_AVX512_CODE HF_INLINE void hf_sum_avx512(
    const int32_t *leaf, const float *margin, const float *weights, ptrdiff_t n_trees, ptrdiff_t n_leaves,
    ptrdiff_t n_outputs, double divisor, float *y, const int n_vectors) {
    const __mmask8 last = (__mmask8)(0xff >> (8 * n_vectors - n_outputs));
    __m512d total[HF_MOST_VECTORS];
    int i;
    for (i = 0; i < n_vectors; ++i) total[i] = _mm512_setzero_pd();
    for (ptrdiff_t m = 0; m < n_trees; ++m) {
        const float *row = weights + (m * n_leaves + leaf[m]) * n_outputs;
        const __m256 size = _mm256_set1_ps(fabsf(margin[m]));
        if (m + HF_AHEAD < n_trees)
            hf_fetch(weights + ((m + HF_AHEAD) * n_leaves + leaf[m + HF_AHEAD]) * n_outputs, 4 * n_outputs);
        for (i = 0; i < n_vectors; ++i) {
            const __m256 w = _mm256_maskz_loadu_ps(i == n_vectors - 1 ? last : 0xff, row + 8 * i);
            total[i] = _mm512_add_pd(total[i], _mm512_cvtps_pd(_mm256_mul_ps(w, size)));
        }
    }
    for (i = 0; i < n_vectors; ++i)
        _mm256_mask_storeu_ps(y + 8 * i, i == n_vectors - 1 ? last : 0xff,
                              _mm512_cvtpd_ps(_mm512_div_pd(total[i], _mm512_set1_pd(divisor))));
}

HF_AVX512_CODE static void hf_sum_f32_avx512(
    const int32_t *leaf, const float *margin, const float *weights, ptrdiff_t n_trees, ptrdiff_t n_leaves,
    ptrdiff_t n_outputs, double divisor, float *y) {
    switch ((n_outputs + 7) / 8) {
        case 1: hf_sum_avx512(leaf, margin, weights, n_trees, n_leaves, n_outputs, divisor, y, 1); break;
        case 2: hf_sum_avx512(leaf, margin, weights, n_trees, n_leaves, n_outputs, divisor, y, 2); break;
        case 3: hf_sum_avx512(leaf, margin, weights, n_trees, n_leaves, n_outputs, divisor, y, 3); break;
        default: hf_sum_avx512(leaf, margin, weights, n_trees, n_leaves, n_outputs, divisor, y, 4);
    }
}
#endif

#define HF_PLAIN_SUM(NAME, REAL, FABS)                                                                           static void NAME(const int32_t *leaf, const REAL *margin, const REAL *weights, ptrdiff_t n_trees,                             ptrdiff_t n_leaves, ptrdiff_t n_outputs, double divisor, double *total, REAL *y) {              ptrdiff_t k;                                                                                                 for (k = 0; k < n_outputs; ++k) total[k] = 0;                                                                for (ptrdiff_t m = 0; m < n_trees; ++m) {                                                                        const REAL *row = weights + (m * n_leaves + leaf[m]) * n_outputs;                                            const REAL size = FABS(margin[m]);                                                                           if (m + HF_AHEAD < n_trees)                                                                                      HF_PREFETCH(weights + ((m + HF_AHEAD) * n_leaves + leaf[m + HF_AHEAD]) * n_outputs);                     for (k = 0; k < n_outputs; ++k) total[k] += (double)(row[k] * size);                                     }                                                                                                            for (k = 0; k < n_outputs; ++k) y[k] = (REAL)(total[k] / divisor);                                       }

HF_PLAIN_SUM(hf_sum_f32_plain, float, fabsf)
HF_PLAIN_SUM(hf_sum_f64_plain, double, fabs)

/* ------------------------------------------------------------------------- what cpu.pyx calls */

static int hf_sums_in_vectors(int path, ptrdiff_t n_outputs) {
    return HF_X86 && path == HF_PATH_AVX512 && n_outputs > 2 && n_outputs <= HF_LANES * HF_MOST_VECTORS;
}

static ptrdiff_t hf_visits_f32(
    int path, const hf_visits *a, const float *grad, const float *margin, const float *weights,
    const float *next_weights, const float *next_m, const float *next_v, double divisor, float *slope) {
#if HF_X86
    if (hf_sums_in_vectors(path, a->n_outputs))
        return hf_visits_f32_avx512(a, grad, margin, weights, next_weights, next_m, next_v, divisor, slope);
#endif
    return hf_visits_f32_plain(a, grad, margin, weights, next_weights, next_m, next_v, divisor, slope);
}

static ptrdiff_t hf_visits_f64(
    int path, const hf_visits *a, const double *grad, const double *margin, const double *weights,
    const double *next_weights, const double *next_m, const double *next_v, double divisor, double *slope) {
    (void)path;
    return hf_visits_f64_plain(a, grad, margin, weights, next_weights, next_m, next_v, divisor, slope);
}

static void hf_sum_f32(
    int path, const int32_t *leaf, const float *margin, const float *weights, ptrdiff_t n_trees, ptrdiff_t n_leaves,
    ptrdiff_t n_outputs, double divisor, double *total, float *y) {
#if HF_X86
    if (hf_sums_in_vectors(path, n_outputs)) {
        hf_sum_f32_avx512(leaf, margin, weights, n_trees, n_leaves, n_outputs, divisor, y);
        return;
    }
#endif
    hf_sum_f32_plain(leaf, margin, weights, n_trees, n_leaves, n_outputs, divisor, total, y);
}

static void hf_sum_f64(
    int path, const int32_t *leaf, const double *margin, const double *weights, ptrdiff_t n_trees, ptrdiff_t n_leaves,
    ptrdiff_t n_outputs, double divisor, double *total, double *y) {
    (void)path;
    hf_sum_f64_plain(leaf, margin, weights, n_trees, n_leaves, n_outputs, divisor, total, y);
}

static void hf_leaf_f32(int path, const float *row, const float *grad, ptrdiff_t step, const int32_t *order,
                        ptrdiff_t count, const float *margin, ptrdiff_t n_outputs, double divisor, float *slope,
                        double *total, float *out) {
#if HF_X86
    if (hf_sums_in_vectors(path, n_outputs)) {
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
