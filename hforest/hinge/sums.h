/* Sums over samples and trees (p1 eq 10-12), in double.

   Forward: y_k = sum over trees of |r| w_k. Backward, for the samples i of a tree in their order: the slope
   sgn(r_i) (w_leaf(i) . g_i) / divisor, and for each leaf reached the sum of |r_i| g_i. One pass over g serves
   both. The dot product runs in eight lanes (element k in lane k mod 8) that are added in one fixed order, so
   that the vector path has the bits of the plain one. Lanes start at +0, so a vector's spare elements, which
   add +0, change nothing. */
#ifndef HFOREST_HINGE_SUMS_H
#define HFOREST_HINGE_SUMS_H
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "core/simd.h"

enum {
    HF_LANES = 8,
    HF_MOST_VECTORS = 4,
    HF_TOGETHER = 4,    /* samples of one output summed at once */
    HF_AHEAD = 8    /* trees or samples ahead whose leaf row is asked for */
};

/* What is known of one tree's samples, and room for what comes of them. total (leaves, width) gets the sums;
   width >= n_outputs is a multiple of HF_LANES, but 1 for one output. Rows of `next`, the leaves of the tree
   that follows (or NULL), are asked for on the way. */
typedef struct {
    const int32_t *leaf, *next;
    ptrdiff_t n_samples, n_outputs, width, step;
    double *total;
} hf_visits;

/* Parameters of the tree that follows. */
typedef struct {
    const void *weights, *m, *v;
} hf_next;

/* sgn(r) s without a branch, which no processor could foresee. */
HF_INLINE double hf_signed(double s, double r) {
    uint64_t a, b;
    memcpy(&a, &s, sizeof a);
    memcpy(&b, &r, sizeof b);
    a = (a ^ (b & ((uint64_t)1 << 63))) & (0 - (uint64_t)(r != 0));
    memcpy(&s, &a, sizeof s);
    return s;
}

HF_INLINE void hf_fetch_next(const hf_visits *a, const hf_next *next, ptrdiff_t i, ptrdiff_t itemsize) {
    const ptrdiff_t size = a->n_outputs * itemsize, at = a->next[i] * size;
    hf_fetch((const char *)next->weights + at, size);
    hf_fetch((const char *)next->m + at, size);
    hf_fetch((const char *)next->v + at, size);
}

/* --------------------------------------------------------------------------------------- plain */

#define HF_PLAIN_SUMS(SUFFIX, REAL, FABS)                                                              \
    static void hf_sum_##SUFFIX##_plain(                                                               \
        const int32_t *leaf, const REAL *margin, const REAL *weights, ptrdiff_t n_trees,               \
        ptrdiff_t n_leaves, ptrdiff_t n_outputs, double divisor, double *total, REAL *y) {             \
        ptrdiff_t m, k;                                                                                \
        for (k = 0; k < n_outputs; ++k) total[k] = 0;                                                  \
        for (m = 0; m < n_trees; ++m) {                                                                \
            const REAL *row = weights + (m * n_leaves + leaf[m]) * n_outputs;                          \
            const REAL size = FABS(margin[m]);                                                         \
            if (m + HF_AHEAD < n_trees)                                                                \
                HF_PREFETCH(weights + ((m + HF_AHEAD) * n_leaves + leaf[m + HF_AHEAD]) * n_outputs);   \
            for (k = 0; k < n_outputs; ++k) total[k] += (double)(row[k] * size);                       \
        }                                                                                              \
        for (k = 0; k < n_outputs; ++k) y[k] = (REAL)(total[k] / divisor);                             \
    }                                                                                                  \
                                                                                                       \
    static void hf_visits_##SUFFIX##_plain(                                                            \
        const hf_visits *a, const REAL *grad, const REAL *margin, const REAL *weights,                 \
        const hf_next *next, double divisor, REAL *slope) {                                            \
        const ptrdiff_t n_outputs = a->n_outputs;                                                      \
        for (ptrdiff_t n = 0; n < a->n_samples; ++n) {                                                 \
            double *total = a->total + a->leaf[n] * a->width;                                          \
            const REAL *g = grad + n * a->step, *row = weights + a->leaf[n] * n_outputs;               \
            const double r = margin[n], size = fabs(r);                                                \
            double lane[HF_LANES] = {0}, s;                                                            \
            ptrdiff_t k, i;                                                                            \
            if (a->next) hf_fetch_next(a, next, n, sizeof(REAL));                                      \
            for (k = 0; k + HF_LANES <= n_outputs; k += HF_LANES)                                      \
                for (i = 0; i < HF_LANES; ++i) lane[i] += (double)row[k + i] * (double)g[k + i];       \
            for (i = 0; k + i < n_outputs; ++i) lane[i] += (double)row[k + i] * (double)g[k + i];      \
            for (k = 0; k < n_outputs; ++k) total[k] += size * (double)g[k];                           \
            s = ((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7])); \
            slope[n] = (REAL)hf_signed(s / divisor, r);                                                \
        }                                                                                              \
    }                                                                                                  \
                                                                                                       \
    /* One output of a few samples at once: each sum waits for the tree before, the samples don't wait for  \
       each other. */                                                                                  \
    static void hf_sum_single_##SUFFIX(                                                                \
        const int32_t *leaf, const REAL *margin, const REAL *weights, ptrdiff_t n_trees,               \
        ptrdiff_t n_leaves, ptrdiff_t n, double divisor, REAL *y) {                                    \
        ptrdiff_t row[HF_TOGETHER], m;                                                                 \
        double total[HF_TOGETHER];                                                                     \
        int i;                                                                                         \
        for (i = 0; i < HF_TOGETHER; ++i) row[i] = (i < n ? i : 0) * n_trees, total[i] = 0;            \
        for (m = 0; m < n_trees; ++m)                                                                  \
            for (i = 0; i < HF_TOGETHER; ++i)                                                          \
                total[i] += (double)(weights[m * n_leaves + leaf[row[i] + m]] * FABS(margin[row[i] + m])); \
        for (i = 0; i < n; ++i) y[i] = (REAL)(total[i] / divisor);                                     \
    }                                                                                                  \
                                                                                                       \
    /* One output: the lanes other than the first are +0. */                                           \
    static void hf_visits_one_##SUFFIX(                                                                \
        const hf_visits *a, const REAL *grad, const REAL *margin, const REAL *weights,                 \
        const hf_next *next, double divisor, REAL *slope) {                                            \
        for (ptrdiff_t n = 0; n < a->n_samples; ++n) {                                                 \
            const double g = grad[n * a->step], r = margin[n];                                         \
            if (a->next) hf_fetch_next(a, next, n, sizeof(REAL));                                      \
            a->total[a->leaf[n]] += fabs(r) * g;                                                       \
            slope[n] = (REAL)hf_signed(((double)weights[a->leaf[n]] * g + 0.0) / divisor, r);          \
        }                                                                                              \
    }                                                                                                  \
                                                                                                       \
    /* The same, where sums go straight to the leaves. */                                              \
    static void hf_single_##SUFFIX##_plain(                                                            \
        const int32_t *leaf, const REAL *grad, ptrdiff_t step, const REAL *margin, const REAL *weights,\
        ptrdiff_t first, ptrdiff_t n, double divisor, double *total, REAL *slope) {                    \
        for (ptrdiff_t i = first; i < n; ++i) {                                                        \
            const double g = grad[i * step], r = margin[i];                                            \
            total[leaf[i]] += fabs(r) * g;                                                             \
            slope[i] = (REAL)hf_signed(((double)weights[leaf[i]] * g + 0.0) / divisor, r);             \
        }                                                                                              \
    }

HF_PLAIN_SUMS(f32, float, fabsf)
HF_PLAIN_SUMS(f64, double, fabs)

/* ------------------------------------------------------------------------------------- AVX-512 */

#if HF_X86
/* The eight lanes of eight vectors added as ((0+4)+(2+6)) + ((1+5)+(3+7)); sum j in lane j. */
HF_AVX512_CODE HF_INLINE __m512d hf_add_lanes(const __m512d a[8]) {
    __m512d two[4], four[2];
    int i;
    /* Lanes 0 to 3 of vectors i and i + 4 plus their lanes 4 to 7. */
    for (i = 0; i < 4; ++i)
        two[i] = _mm512_add_pd(_mm512_shuffle_f64x2(a[i], a[i + 4], 0x44), _mm512_shuffle_f64x2(a[i], a[i + 4], 0xee));
    /* Of vectors i, i + 2, i + 4, i + 6. */
    for (i = 0; i < 2; ++i)
        four[i] = _mm512_add_pd(
            _mm512_shuffle_f64x2(two[i], two[i + 2], 0x88), _mm512_shuffle_f64x2(two[i], two[i + 2], 0xdd));
    /* Pairs of lanes hold vectors 0 1, 4 5, 2 3, 6 7. */
    return _mm512_permutexvar_pd(
        _mm512_set_epi64(7, 6, 3, 2, 5, 4, 1, 0),
        _mm512_add_pd(_mm512_unpacklo_pd(four[0], four[1]), _mm512_unpackhi_pd(four[0], four[1])));
}

HF_AVX512_CODE HF_INLINE void hf_visits_vectors(
    const hf_visits *a, const float *grad, const float *margin, const float *weights, const hf_next *next,
    double divisor, float *slope, const int n_vectors) {
    const ptrdiff_t n_outputs = a->n_outputs;
    const __mmask8 last = (__mmask8)(0xff >> (8 * n_vectors - n_outputs));
    for (ptrdiff_t first = 0; first < a->n_samples; first += 8) {
        const ptrdiff_t rest = a->n_samples - first;
        const int count = rest < 8 ? (int)rest : 8;
        const __mmask8 used = (__mmask8)(0xff >> (8 - count));
        const __m512d r = _mm512_cvtps_pd(_mm256_maskz_loadu_ps(used, margin + first));
        const __m512i sign = _mm512_and_epi64(_mm512_castpd_si512(r), _mm512_set1_epi64(INT64_MIN));
        double size[8];
        __m512d lane[8], s;
        /* Rows of this tree come from anywhere in its leaves: the next samples' are asked for. */
        for (int j = 0; j < 8 && first + 8 + j < a->n_samples; ++j) {
            const ptrdiff_t at = a->leaf[first + 8 + j];
            hf_fetch(weights + at * n_outputs, 4 * n_outputs);
            hf_fetch(a->total + at * a->width, 8 * n_outputs);
        }
        _mm512_storeu_pd(size, _mm512_abs_pd(r));
        for (int j = 0; j < 8; ++j) {
            const ptrdiff_t n = first + j;
            lane[j] = _mm512_setzero_pd();
            if (j < count) {
                double *total = a->total + a->leaf[n] * a->width;
                const float *g = grad + n * a->step, *row = weights + a->leaf[n] * n_outputs;
                if (a->next) hf_fetch_next(a, next, n, sizeof(float));
                for (int i = 0; i < n_vectors; ++i) {
                    const __mmask8 k = i == n_vectors - 1 ? last : 0xff;
                    const __m512d x = _mm512_cvtps_pd(_mm256_maskz_loadu_ps(k, g + 8 * i));
                    const __m512d w = _mm512_cvtps_pd(_mm256_maskz_loadu_ps(k, row + 8 * i));
                    /* Products of float32 are exact in double: fused or not, the bits are the same. */
                    lane[j] = _mm512_fmadd_pd(w, x, lane[j]);
                    _mm512_storeu_pd(
                        total + 8 * i, _mm512_fmadd_pd(_mm512_set1_pd(size[j]), x, _mm512_loadu_pd(total + 8 * i)));
                }
            }
        }
        s = hf_add_lanes(lane);
        if (divisor != 1) s = _mm512_div_pd(s, _mm512_set1_pd(divisor));
        /* sgn(r) s, and +0 for a margin of zero. */
        s = _mm512_castsi512_pd(_mm512_maskz_xor_epi64(
            _mm512_cmp_pd_mask(r, _mm512_setzero_pd(), _CMP_NEQ_UQ), _mm512_castpd_si512(s), sign));
        _mm256_mask_storeu_ps(slope + first, used, _mm512_cvtpd_ps(s));
    }
}

HF_AVX512_CODE static void hf_visits_f32_avx512(
    const hf_visits *a, const float *grad, const float *margin, const float *weights, const hf_next *next,
    double divisor, float *slope) {
    switch ((a->n_outputs + 7) / 8) {
        case 1: hf_visits_vectors(a, grad, margin, weights, next, divisor, slope, 1); break;
        case 2: hf_visits_vectors(a, grad, margin, weights, next, divisor, slope, 2); break;
        case 3: hf_visits_vectors(a, grad, margin, weights, next, divisor, slope, 3); break;
        default: hf_visits_vectors(a, grad, margin, weights, next, divisor, slope, 4);
    }
}

/* Sixteen samples at a time, whose gradients are neighbours. A product of two float32 is exact in double, so
   that rounding it to float32 is the float32 product. */
HF_AVX512_CODE static void hf_single_f32_avx512(
    const int32_t *leaf, const float *grad, const float *margin, const float *weights, ptrdiff_t n,
    double divisor, double *total, float *slope) {
    const __m512 zero = _mm512_setzero_ps();
    ptrdiff_t i = 0;
    for (; i + 16 <= n; i += 16) {
        const __m512 r = _mm512_loadu_ps(margin + i), g = _mm512_loadu_ps(grad + i), size = _mm512_abs_ps(r);
        const __m512i sign = _mm512_and_epi32(_mm512_castps_si512(r), _mm512_set1_epi32(INT32_MIN));
        const __m512 w = _mm512_i32gather_ps(_mm512_loadu_si512(leaf + i), weights, 4);
        double step[16];
        __m512 s;
        _mm512_storeu_pd(step, _mm512_mul_pd(_mm512_cvtps_pd(_mm512_castps512_ps256(size)),
                                             _mm512_cvtps_pd(_mm512_castps512_ps256(g))));
        _mm512_storeu_pd(step + 8, _mm512_mul_pd(_mm512_cvtps_pd(_mm512_extractf32x8_ps(size, 1)),
                                                 _mm512_cvtps_pd(_mm512_extractf32x8_ps(g, 1))));
        if (divisor == 1) {
            s = _mm512_add_ps(_mm512_mul_ps(w, g), zero);
        } else {
            const __m512d d = _mm512_set1_pd(divisor), none = _mm512_setzero_pd();
            __m512d a = _mm512_mul_pd(_mm512_cvtps_pd(_mm512_castps512_ps256(w)),
                                      _mm512_cvtps_pd(_mm512_castps512_ps256(g)));
            __m512d b = _mm512_mul_pd(_mm512_cvtps_pd(_mm512_extractf32x8_ps(w, 1)),
                                      _mm512_cvtps_pd(_mm512_extractf32x8_ps(g, 1)));
            s = _mm512_castps256_ps512(_mm512_cvtpd_ps(_mm512_div_pd(_mm512_add_pd(a, none), d)));
            s = _mm512_insertf32x8(s, _mm512_cvtpd_ps(_mm512_div_pd(_mm512_add_pd(b, none), d)), 1);
        }
        _mm512_storeu_si512(slope + i, _mm512_maskz_xor_epi32(
            _mm512_cmp_ps_mask(r, zero, _CMP_NEQ_UQ), _mm512_castps_si512(s), sign));
        for (int j = 0; j < 16; ++j) total[leaf[i + j]] += step[j];
    }
    hf_single_f32_plain(leaf, grad, 1, margin, weights, i, n, divisor, total, slope);
}

HF_AVX512_CODE HF_INLINE void hf_sum_vectors(
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
        _mm256_mask_storeu_ps(
            y + 8 * i, i == n_vectors - 1 ? last : 0xff,
            _mm512_cvtpd_ps(_mm512_div_pd(total[i], _mm512_set1_pd(divisor))));
}

HF_AVX512_CODE static void hf_sum_f32_avx512(
    const int32_t *leaf, const float *margin, const float *weights, ptrdiff_t n_trees, ptrdiff_t n_leaves,
    ptrdiff_t n_outputs, double divisor, float *y) {
    switch ((n_outputs + 7) / 8) {
        case 1: hf_sum_vectors(leaf, margin, weights, n_trees, n_leaves, n_outputs, divisor, y, 1); break;
        case 2: hf_sum_vectors(leaf, margin, weights, n_trees, n_leaves, n_outputs, divisor, y, 2); break;
        case 3: hf_sum_vectors(leaf, margin, weights, n_trees, n_leaves, n_outputs, divisor, y, 3); break;
        default: hf_sum_vectors(leaf, margin, weights, n_trees, n_leaves, n_outputs, divisor, y, 4);
    }
}
#endif

/* ------------------------------------------------------------------------- what cpu.pyx calls */

static int hf_in_vectors(int path, ptrdiff_t n_outputs) {
    return HF_X86 && path == HF_PATH_AVX512 && n_outputs > 2 && n_outputs <= HF_LANES * HF_MOST_VECTORS;
}

/* Doubles of a leaf's sums. */
static ptrdiff_t hf_sum_width(ptrdiff_t n_outputs) {
    return n_outputs == 1 ? 1 : (n_outputs + HF_LANES - 1) / HF_LANES * HF_LANES;
}

/* Slopes of the samples and sums of the leaves of one tree. */
static void hf_visits_f32(
    int path, const hf_visits *a, const float *grad, const float *margin, const float *weights,
    const hf_next *next, double divisor, float *slope) {
    if (a->n_outputs == 1) {
        hf_visits_one_f32(a, grad, margin, weights, next, divisor, slope);
        return;
    }
#if HF_X86
    if (hf_in_vectors(path, a->n_outputs)) {
        hf_visits_f32_avx512(a, grad, margin, weights, next, divisor, slope);
        return;
    }
#endif
    (void)path;
    hf_visits_f32_plain(a, grad, margin, weights, next, divisor, slope);
}

static void hf_visits_f64(
    int path, const hf_visits *a, const double *grad, const double *margin, const double *weights,
    const hf_next *next, double divisor, double *slope) {
    (void)path;
    if (a->n_outputs == 1) hf_visits_one_f64(a, grad, margin, weights, next, divisor, slope);
    else hf_visits_f64_plain(a, grad, margin, weights, next, divisor, slope);
}

/* The same where leaves have one output: slopes of n samples of a tree, and sums added to total (n_leaves). */
static void hf_single_f32(
    int path, const int32_t *leaf, const float *grad, ptrdiff_t step, const float *margin, const float *weights,
    ptrdiff_t n, double divisor, double *total, float *slope) {
#if HF_X86
    if (path == HF_PATH_AVX512 && step == 1) {
        hf_single_f32_avx512(leaf, grad, margin, weights, n, divisor, total, slope);
        return;
    }
#endif
    (void)path;
    hf_single_f32_plain(leaf, grad, step, margin, weights, 0, n, divisor, total, slope);
}

static void hf_single_f64(
    int path, const int32_t *leaf, const double *grad, ptrdiff_t step, const double *margin, const double *weights,
    ptrdiff_t n, double divisor, double *total, double *slope) {
    (void)path;
    hf_single_f64_plain(leaf, grad, step, margin, weights, 0, n, divisor, total, slope);
}

/* Outputs of one sample summed over its trees, in their order. */
static void hf_sum_f32(
    int path, const int32_t *leaf, const float *margin, const float *weights, ptrdiff_t n_trees,
    ptrdiff_t n_leaves, ptrdiff_t n_outputs, double divisor, double *total, float *y) {
#if HF_X86
    if (hf_in_vectors(path, n_outputs)) {
        hf_sum_f32_avx512(leaf, margin, weights, n_trees, n_leaves, n_outputs, divisor, y);
        return;
    }
#endif
    (void)path;
    hf_sum_f32_plain(leaf, margin, weights, n_trees, n_leaves, n_outputs, divisor, total, y);
}

static void hf_sum_f64(
    int path, const int32_t *leaf, const double *margin, const double *weights, ptrdiff_t n_trees,
    ptrdiff_t n_leaves, ptrdiff_t n_outputs, double divisor, double *total, double *y) {
    (void)path;
    hf_sum_f64_plain(leaf, margin, weights, n_trees, n_leaves, n_outputs, divisor, total, y);
}

#endif
