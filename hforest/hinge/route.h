/* Routing by vectors of samples: AVX2 for float32, AVX-512 for float64 (p1 Alg. 3).

   The input of TILE samples is held feature-major, so that one feature of neighbouring samples is one
   load. A fern looks at one feature a level: loads only. A tree's level has 2**level vertices: the first
   two load every candidate feature and blend; after that thresholds and features come from memory by
   gathers of (threshold, feature) pairs. Leaf, margin and vertex have the bits of the plain loop: every
   margin is one subtraction, and comparisons do not round.

   Each tree's results are TILE values in a row; hf_store turns them into rows of trees. */
#ifndef HFOREST_HINGE_ROUTE_H
#define HFOREST_HINGE_ROUTE_H
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "simd.h"

enum {
    HF_TILE = 32,       /* samples of a tile: two AVX-512 vectors in flight */
    HF_TILE_SHIFT = 5,  /* a feature's row in the tile is feature << HF_TILE_SHIFT */
    HF_GROUP = 16,      /* trees whose results are stored together: a cache line of float32 */
    HF_TABLE = 32       /* first vertices, of a fern all, whose features are kept multiplied */
};

/* A tree made ready for a block of samples. Thresholds are bits of float or double. */
typedef struct {
    const void *thresholds;      /* as given */
    const int32_t *features;
    int64_t *pairs;              /* float32 only: threshold bits low, feature << HF_TILE_SHIFT high; or NULL */
    int depth;
    int32_t top_features[HF_TABLE];  /* feature << HF_TILE_SHIFT of the first vertices */
} hf_tree;

#if HF_X86

/* ------------------------------------------------------------------------------------- AVX-512 */

/* float64: eight samples a vector; thresholds and features are gathered from the given arrays. */
HF_AVX512_CODE static void hf_route_f64_avx512(
    const hf_tree *tree, int fern, const double *tile, int32_t *leaf_out, double *margin_out, int32_t *vertex_out) {
    const double *t = (const double *)tree->thresholds;
    const __m256i lane = _mm256_set_epi32(7, 6, 5, 4, 3, 2, 1, 0), one = _mm256_set1_epi32(1);
    const __m512d zero = _mm512_setzero_pd();
    int s, level;
    for (s = 0; s < HF_TILE; s += 8) {
        const double *x = tile + s;
        __m512d r, lowest = zero;
        __m256i v = _mm256_setzero_si256(), vertex = v, leaf = v, f;
        for (level = 0; level < tree->depth; ++level) {
            __mmask8 closer, right;
            if (fern || level == 0) {
                r = _mm512_sub_pd(
                    _mm512_loadu_pd(x + ((ptrdiff_t)tree->features[level] << HF_TILE_SHIFT)), _mm512_set1_pd(t[level]));
            } else {
                f = _mm256_slli_epi32(_mm256_i32gather_epi32(tree->features, v, 4), HF_TILE_SHIFT);
                r = _mm512_sub_pd(
                    _mm512_i32gather_pd(_mm256_add_epi32(f, lane), x, 8), _mm512_i32gather_pd(v, t, 8));
            }
            closer = level ? _mm512_cmp_pd_mask(_mm512_abs_pd(r), _mm512_abs_pd(lowest), _CMP_LT_OQ) : 0xff;
            lowest = _mm512_mask_mov_pd(lowest, closer, r);
            vertex = _mm256_mask_mov_epi32(vertex, closer, fern ? _mm256_set1_epi32(level) : v);
            right = _mm512_cmp_pd_mask(r, zero, _CMP_GT_OQ);
            leaf = _mm256_add_epi32(leaf, leaf);
            leaf = _mm256_mask_add_epi32(leaf, right, leaf, one);
            v = _mm256_add_epi32(_mm256_add_epi32(v, v), one);
            v = _mm256_mask_add_epi32(v, right, v, one);
        }
        _mm256_storeu_si256((__m256i *)(leaf_out + s), leaf);
        _mm512_storeu_pd(margin_out + s, lowest);
        _mm256_storeu_si256((__m256i *)(vertex_out + s), vertex);
    }
}

/* 16 rows of 16 words, turned over. */
HF_AVX512_CODE HF_INLINE void hf_turn_registers_avx512(const int32_t *in, ptrdiff_t in_step, __m512i out[16]) {
    __m512i a[16], b[16];
    int i;
    for (i = 0; i < 16; ++i) a[i] = _mm512_loadu_si512(in + i * in_step);
    for (i = 0; i < 8; ++i) {
        b[2 * i] = _mm512_unpacklo_epi32(a[2 * i], a[2 * i + 1]);
        b[2 * i + 1] = _mm512_unpackhi_epi32(a[2 * i], a[2 * i + 1]);
    }
    for (i = 0; i < 4; ++i) {
        a[4 * i + 0] = _mm512_unpacklo_epi64(b[4 * i + 0], b[4 * i + 2]);
        a[4 * i + 1] = _mm512_unpackhi_epi64(b[4 * i + 0], b[4 * i + 2]);
        a[4 * i + 2] = _mm512_unpacklo_epi64(b[4 * i + 1], b[4 * i + 3]);
        a[4 * i + 3] = _mm512_unpackhi_epi64(b[4 * i + 1], b[4 * i + 3]);
    }
    for (i = 0; i < 4; ++i) {
        b[i] = _mm512_shuffle_i32x4(a[i], a[4 + i], 0x88);
        b[4 + i] = _mm512_shuffle_i32x4(a[i], a[4 + i], 0xdd);
        b[8 + i] = _mm512_shuffle_i32x4(a[8 + i], a[12 + i], 0x88);
        b[12 + i] = _mm512_shuffle_i32x4(a[8 + i], a[12 + i], 0xdd);
    }
    for (i = 0; i < 4; ++i) {
        out[i + 0] = _mm512_shuffle_i32x4(b[i], b[8 + i], 0x88);
        out[i + 4] = _mm512_shuffle_i32x4(b[4 + i], b[12 + i], 0x88);
        out[i + 8] = _mm512_shuffle_i32x4(b[i], b[8 + i], 0xdd);
        out[i + 12] = _mm512_shuffle_i32x4(b[4 + i], b[12 + i], 0xdd);
    }
}

HF_AVX512_CODE HF_INLINE void hf_turn16_avx512(const int32_t *in, ptrdiff_t in_step, int32_t *out, ptrdiff_t out_step) {
    __m512i row[16];
    hf_turn_registers_avx512(in, in_step, row);
    for (int i = 0; i < 16; ++i) _mm512_storeu_si512(out + i * out_step, row[i]);
}

HF_AVX512_CODE static void hf_turn_tile_avx512(
    const int32_t *in, ptrdiff_t in_step, ptrdiff_t n_columns, int32_t *out, ptrdiff_t out_step) {
    /* 16 rows in, n_columns (a multiple of 16) rows out. */
    for (ptrdiff_t c = 0; c < n_columns; c += 16) hf_turn16_avx512(in + c, in_step, out + c * out_step, out_step);
}

/* ---------------------------------------------------------------------------------------- AVX2 */

HF_AVX2_CODE static void hf_pack_avx2(hf_tree *tree, int n_vertices) {
    const float *t = (const float *)tree->thresholds;
    int v = 0;
    for (; v + 8 <= n_vertices; v += 8) {
        __m256i a = _mm256_loadu_si256((const __m256i *)(t + v));
        __m256i b = _mm256_slli_epi32(_mm256_loadu_si256((const __m256i *)(tree->features + v)), HF_TILE_SHIFT);
        __m256i low = _mm256_unpacklo_epi32(a, b), high = _mm256_unpackhi_epi32(a, b);
        _mm256_storeu_si256((__m256i *)(tree->pairs + v), _mm256_permute2x128_si256(low, high, 0x20));
        _mm256_storeu_si256((__m256i *)(tree->pairs + v + 4), _mm256_permute2x128_si256(low, high, 0x31));
    }
    for (; v < n_vertices; ++v) {
        uint32_t bits;
        memcpy(&bits, t + v, 4);
        tree->pairs[v] = (int64_t)(((uint64_t)(uint32_t)tree->features[v] << (32 + HF_TILE_SHIFT)) | bits);
    }
}

HF_AVX2_CODE HF_INLINE __m256 hf_abs_avx2(__m256 a) {
    return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a);
}

HF_AVX2_CODE static void hf_route_f32_avx2(
    const hf_tree *tree, int fern, const float *tile, int32_t *leaf_out, float *margin_out, int32_t *vertex_out) {
    const float *t = (const float *)tree->thresholds;
    const int32_t *ff = tree->top_features;
    const __m256i lane = _mm256_set_epi32(7, 6, 5, 4, 3, 2, 1, 0);
    const __m256 zero = _mm256_setzero_ps();
    int s, level, u;
    for (s = 0; s < HF_TILE; s += 16) {
        __m256 lowest[2], r, threshold;
        __m256i v[2], vertex[2], leaf[2], right[2], f, at;
        for (u = 0; u < 2; ++u) v[u] = vertex[u] = leaf[u] = right[u] = _mm256_setzero_si256();
        for (level = 0; level < tree->depth; ++level)
            for (u = 0; u < 2; ++u) {
                const float *x = tile + s + 8 * u;
                __m256 closer;
                at = fern ? _mm256_set1_epi32(level) : v[u];
                if (fern || level == 0) {
                    r = _mm256_sub_ps(_mm256_loadu_ps(x + ff[level]), _mm256_set1_ps(t[level]));
                } else if (level == 1) {
                    __m256 m = _mm256_castsi256_ps(right[u]);
                    threshold = _mm256_blendv_ps(_mm256_set1_ps(t[1]), _mm256_set1_ps(t[2]), m);
                    r = _mm256_blendv_ps(_mm256_loadu_ps(x + ff[1]), _mm256_loadu_ps(x + ff[2]), m);
                    r = _mm256_sub_ps(r, threshold);
                } else {
                    if (tree->pairs) {
                        const long long *pairs = (const long long *)tree->pairs;
                        __m256i p = _mm256_i32gather_epi64(pairs, _mm256_castsi256_si128(v[u]), 8);
                        __m256i q = _mm256_i32gather_epi64(pairs, _mm256_extracti128_si256(v[u], 1), 8);
                        __m256 low = _mm256_castsi256_ps(_mm256_permute2x128_si256(p, q, 0x20));
                        __m256 high = _mm256_castsi256_ps(_mm256_permute2x128_si256(p, q, 0x31));
                        threshold = _mm256_shuffle_ps(low, high, 0x88);
                        f = _mm256_castps_si256(_mm256_shuffle_ps(low, high, 0xdd));
                    } else {
                        threshold = _mm256_i32gather_ps(t, v[u], 4);
                        f = _mm256_slli_epi32(_mm256_i32gather_epi32(tree->features, v[u], 4), HF_TILE_SHIFT);
                    }
                    r = _mm256_sub_ps(_mm256_i32gather_ps(x, _mm256_add_epi32(f, lane), 4), threshold);
                }
                closer = level ? _mm256_cmp_ps(hf_abs_avx2(r), hf_abs_avx2(lowest[u]), _CMP_LT_OQ)
                               : _mm256_castsi256_ps(_mm256_set1_epi32(-1));
                lowest[u] = level ? _mm256_blendv_ps(lowest[u], r, closer) : r;
                vertex[u] = _mm256_blendv_epi8(vertex[u], at, _mm256_castps_si256(closer));
                right[u] = _mm256_castps_si256(_mm256_cmp_ps(r, zero, _CMP_GT_OQ));
                /* A mask of all ones is -1: subtracting it adds 1. */
                leaf[u] = _mm256_sub_epi32(_mm256_add_epi32(leaf[u], leaf[u]), right[u]);
                v[u] = _mm256_sub_epi32(
                    _mm256_add_epi32(_mm256_add_epi32(v[u], v[u]), _mm256_set1_epi32(1)), right[u]);
            }
        for (u = 0; u < 2; ++u) {
            _mm256_storeu_si256((__m256i *)(leaf_out + s + 8 * u), leaf[u]);
            _mm256_storeu_ps(margin_out + s + 8 * u, lowest[u]);
            _mm256_storeu_si256((__m256i *)(vertex_out + s + 8 * u), vertex[u]);
        }
    }
}

HF_AVX2_CODE HF_INLINE void hf_turn8_avx2(const int32_t *in, ptrdiff_t in_step, int32_t *out, ptrdiff_t out_step) {
    __m256i a[8], b[8];
    int i;
    for (i = 0; i < 8; ++i) a[i] = _mm256_loadu_si256((const __m256i *)(in + i * in_step));
    for (i = 0; i < 4; ++i) {
        b[2 * i] = _mm256_unpacklo_epi32(a[2 * i], a[2 * i + 1]);
        b[2 * i + 1] = _mm256_unpackhi_epi32(a[2 * i], a[2 * i + 1]);
    }
    for (i = 0; i < 2; ++i) {
        a[4 * i + 0] = _mm256_unpacklo_epi64(b[4 * i + 0], b[4 * i + 2]);
        a[4 * i + 1] = _mm256_unpackhi_epi64(b[4 * i + 0], b[4 * i + 2]);
        a[4 * i + 2] = _mm256_unpacklo_epi64(b[4 * i + 1], b[4 * i + 3]);
        a[4 * i + 3] = _mm256_unpackhi_epi64(b[4 * i + 1], b[4 * i + 3]);
    }
    for (i = 0; i < 4; ++i) {
        _mm256_storeu_si256((__m256i *)(out + i * out_step), _mm256_permute2x128_si256(a[i], a[4 + i], 0x20));
        _mm256_storeu_si256((__m256i *)(out + (4 + i) * out_step), _mm256_permute2x128_si256(a[i], a[4 + i], 0x31));
    }
}

HF_AVX2_CODE static void hf_turn_tile_avx2(
    const int32_t *in, ptrdiff_t in_step, ptrdiff_t n_columns, int32_t *out, ptrdiff_t out_step) {
    for (ptrdiff_t c = 0; c < n_columns; c += 8) {
        hf_turn8_avx2(in + c, in_step, out + c * out_step, out_step);
        hf_turn8_avx2(in + c + 8 * in_step, in_step, out + c * out_step + 8, out_step);
    }
}

#endif /* HF_X86 */

/* ------------------------------------------------------------------------- what cpu.pyx calls */

/* Make a tree or fern ready. `pairs` holds n_vertices + 16 words, or is NULL: packing reads every vertex and
   pays only where many samples follow. */
static void hf_prepare_f32(hf_tree *tree, int n_vertices, int depth, const float *thresholds,
                           const int32_t *features, int64_t *pairs) {
    int i, top = n_vertices < HF_TABLE ? n_vertices : HF_TABLE;
    tree->thresholds = thresholds;
    tree->features = features;
    tree->pairs = depth > 2 ? pairs : NULL;
    tree->depth = depth;
    for (i = 0; i < top; ++i) tree->top_features[i] = features[i] << HF_TILE_SHIFT;
#if HF_X86
    if (tree->pairs) hf_pack_avx2(tree, n_vertices);
#endif
}

static void hf_prepare_f64(hf_tree *tree, int n_vertices, int depth, const double *thresholds,
                           const int32_t *features, int64_t *pairs) {
    (void)n_vertices, (void)pairs;
    tree->thresholds = thresholds;
    tree->features = features;
    tree->pairs = NULL;
    tree->depth = depth;
}

static void hf_route_f32(const hf_tree *tree, int path, int fern, const float *tile, int32_t *leaf, float *margin,
                         int32_t *vertex) {
#if HF_X86
    (void)path;
    hf_route_f32_avx2(tree, fern, tile, leaf, margin, vertex);
#else
    (void)tree, (void)path, (void)fern, (void)tile, (void)leaf, (void)margin, (void)vertex;
#endif
}

static void hf_route_f64(const hf_tree *tree, int path, int fern, const double *tile, int32_t *leaf, double *margin,
                         int32_t *vertex) {
#if HF_X86
    (void)path;
    hf_route_f64_avx512(tree, fern, tile, leaf, margin, vertex);
#else
    (void)tree, (void)path, (void)fern, (void)tile, (void)leaf, (void)margin, (void)vertex;
#endif
}

/* Vector paths of this header; float32 has AVX-512 in lanes.h and ferns.h, the rest the plain loop in cpu.pyx. */
static int hf_has_route(int path, int itemsize) {
    return HF_X86 && (path == HF_PATH_AVX2 ? itemsize == 4 : path == HF_PATH_AVX512 && itemsize == 8);
}

/* x (n, n_features), n <= HF_TILE, to tile (n_features, HF_TILE); lanes without a sample hold 0. */
static void hf_fill_tile_f32(int path, const float *x, ptrdiff_t n_features, int n, float *tile) {
    ptrdiff_t f = 0;
    int s;
#if HF_X86
    if (n == HF_TILE)
        for (; f + 16 <= n_features; f += 16)
            for (s = 0; s < HF_TILE; s += 16) {
                const int32_t *in = (const int32_t *)(x + s * n_features + f);
                int32_t *out = (int32_t *)(tile + f * HF_TILE + s);
                if (path == HF_PATH_AVX512) hf_turn_tile_avx512(in, n_features, 16, out, HF_TILE);
                else hf_turn_tile_avx2(in, n_features, 16, out, HF_TILE);
            }
#endif
    for (; f < n_features; ++f) {
        for (s = 0; s < n; ++s) tile[f * HF_TILE + s] = x[s * n_features + f];
        for (; s < HF_TILE; ++s) tile[f * HF_TILE + s] = 0;
    }
}

static void hf_fill_tile_f64(int path, const double *x, ptrdiff_t n_features, int n, double *tile) {
    (void)path;
    for (ptrdiff_t f = 0; f < n_features; ++f) {
        int s;
        for (s = 0; s < n; ++s) tile[f * HF_TILE + s] = x[s * n_features + f];
        for (; s < HF_TILE; ++s) tile[f * HF_TILE + s] = 0;
    }
}

/* The other way: in (n_samples, ...) with in_step words a row, out n_trees rows of out_step words. */
static void hf_load_words(int path, const int32_t *in, ptrdiff_t in_step, int n_trees, ptrdiff_t n_samples,
                          int32_t *out, ptrdiff_t out_step) {
    ptrdiff_t s = 0;
#if HF_X86
    if (n_trees == HF_GROUP && path == HF_PATH_AVX512)
        for (; s + 16 <= n_samples; s += 16) {
            /* Rows lie pages apart, where no processor foresees them. */
            if (s + 48 <= n_samples)
                for (int i = 0; i < 16; ++i) hf_fetch(in + (s + 32 + i) * in_step, 64);
            hf_turn_tile_avx512(in + s * in_step, in_step, 16, out + s, out_step);
        }
    else if (n_trees == HF_GROUP && path == HF_PATH_AVX2)
        for (; s + 16 <= n_samples; s += 16) hf_turn_tile_avx2(in + s * in_step, in_step, 16, out + s, out_step);
#endif
    (void)path;
    for (; s < n_samples; ++s)
        for (int m = 0; m < n_trees; ++m) out[m * out_step + s] = in[s * in_step + m];
}

static void hf_load_doubles(const double *in, ptrdiff_t in_step, int n_trees, ptrdiff_t n_samples, double *out,
                            ptrdiff_t out_step) {
    for (ptrdiff_t s = 0; s < n_samples; ++s)
        for (int m = 0; m < n_trees; ++m) out[m * out_step + s] = in[s * in_step + m];
}

/* in: n_trees rows of in_step words, one word a sample; out: (n_samples, ...) with out_step words a row. */
static void hf_store_words(int path, const int32_t *in, ptrdiff_t in_step, int n_trees, ptrdiff_t n_samples,
                           int32_t *out, ptrdiff_t out_step) {
    ptrdiff_t s = 0;
#if HF_X86
    if (n_trees == HF_GROUP) {
        s = n_samples / 16 * 16;
        if (path == HF_PATH_AVX512) hf_turn_tile_avx512(in, in_step, s, out, out_step);
        else hf_turn_tile_avx2(in, in_step, s, out, out_step);
    }
#endif
    (void)path;
    for (; s < n_samples; ++s)
        for (int m = 0; m < n_trees; ++m) out[s * out_step + m] = in[m * in_step + s];
}

static void hf_store_doubles(const double *in, ptrdiff_t in_step, int n_trees, ptrdiff_t n_samples, double *out,
                             ptrdiff_t out_step) {
    for (ptrdiff_t s = 0; s < n_samples; ++s)
        for (int m = 0; m < n_trees; ++m) out[s * out_step + m] = in[m * in_step + s];
}

#endif
