/* Tiles of samples: input turned over, so that one feature of neighbouring samples is one load, and results turned
   back into rows of trees. What happens to a tile in between is vectors.h's. */
#ifndef HFOREST_HINGE_ROUTE_H
#define HFOREST_HINGE_ROUTE_H
#include <stddef.h>
#include <stdint.h>

#include "core/simd.h"
#include "hinge/vectors.h"

enum {
    HF_GROUP = 16       /* trees whose results are stored together: a cache line of float32 */
};

#if HF_X86

/* ------------------------------------------------------------------------------------- AVX-512 */

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

/* ---------------------------------------------------------------------------------------- AVX2 */

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

/* 16 rows in, n_columns (a multiple of 16) rows out. */
HF_AVX512_CODE static void hf_turn_rows_avx512(
    const int32_t *in, ptrdiff_t in_step, ptrdiff_t n_columns, int32_t *out, ptrdiff_t out_step) {
    for (ptrdiff_t c = 0; c < n_columns; c += 16) hf_turn16_avx512(in + c, in_step, out + c * out_step, out_step);
}

HF_AVX2_CODE static void hf_turn_rows_avx2(
    const int32_t *in, ptrdiff_t in_step, ptrdiff_t n_columns, int32_t *out, ptrdiff_t out_step) {
    for (ptrdiff_t c = 0; c < n_columns; c += 8) {
        hf_turn8_avx2(in + c, in_step, out + c * out_step, out_step);
        hf_turn8_avx2(in + c + 8 * in_step, in_step, out + c * out_step + 8, out_step);
    }
}

#endif /* HF_X86 */

/* ----------------------------------------------------------------------------------- any vectors */

#if HF_VECTORS
typedef int32_t hf_four __attribute__((vector_size(16)));

#if defined(__clang__) || __GNUC__ >= 12
#define HF_MIX(a, b, i, j, k, l) __builtin_shufflevector(a, b, i, j, k, l)
#else
#define HF_MIX(a, b, i, j, k, l) __builtin_shuffle(a, b, (hf_four){i, j, k, l})
#endif

HF_INLINE void hf_turn4(const int32_t *in, ptrdiff_t in_step, int32_t *out, ptrdiff_t out_step) {
    hf_four a[4], b[4];
    int i;
    for (i = 0; i < 4; ++i) memcpy(&a[i], in + i * in_step, sizeof a[i]);
    for (i = 0; i < 2; ++i) {
        b[2 * i] = HF_MIX(a[i], a[i + 2], 0, 4, 1, 5);
        b[2 * i + 1] = HF_MIX(a[i], a[i + 2], 2, 6, 3, 7);
    }
    for (i = 0; i < 2; ++i) {
        a[2 * i] = HF_MIX(b[i], b[i + 2], 0, 4, 1, 5);
        a[2 * i + 1] = HF_MIX(b[i], b[i + 2], 2, 6, 3, 7);
    }
    for (i = 0; i < 4; ++i) memcpy(out + i * out_step, &a[i], sizeof a[i]);
}

static void hf_turn_rows(
    const int32_t *in, ptrdiff_t in_step, ptrdiff_t n_columns, int32_t *out, ptrdiff_t out_step) {
    for (ptrdiff_t c = 0; c < n_columns; c += 4)
        for (int r = 0; r < 16; r += 4) hf_turn4(in + c + r * in_step, in_step, out + c * out_step + r, out_step);
}
#endif

/* ------------------------------------------------------------------------- what cpu.pyx calls */

/* 16 rows of words in, n_columns (a multiple of 16) rows out; how many came out, which on the plain path is none. */
static ptrdiff_t hf_turn(
    int path, const int32_t *in, ptrdiff_t in_step, ptrdiff_t n_columns, int32_t *out, ptrdiff_t out_step) {
    if (path == HF_PATH_PLAIN) return 0;
#if HF_X86
    if (path == HF_PATH_AVX512) hf_turn_rows_avx512(in, in_step, n_columns, out, out_step);
    else if (path == HF_PATH_AVX2) hf_turn_rows_avx2(in, in_step, n_columns, out, out_step);
    else hf_turn_rows(in, in_step, n_columns, out, out_step);
#elif HF_VECTORS
    hf_turn_rows(in, in_step, n_columns, out, out_step);
#else
    (void)in, (void)in_step, (void)out, (void)out_step;
#endif
    return n_columns;
}

/* Features first to last - 1 of x (n, step), n <= HF_TILE, to their rows of a tile (step, HF_TILE); lanes without a
   sample hold 0. */
static void hf_fill_tile_f32(
    int path, const float *x, ptrdiff_t step, ptrdiff_t first, ptrdiff_t last, int n, float *tile) {
    ptrdiff_t f = first;
    int s;
    if (path != HF_PATH_PLAIN)
        for (; f + 16 <= last; f += 16)
            for (s = 0; s < HF_TILE; s += 16) {
                const float *in = x + s * step + f;
                int32_t *out = (int32_t *)(tile + f * HF_TILE + s);
                if (s + 16 <= n) {
                    hf_turn(path, (const int32_t *)in, step, 16, out, HF_TILE);
                } else {
                    int32_t some[16 * 16] = {0};
                    for (int i = 0; s + i < n; ++i) memcpy(some + 16 * i, in + i * step, 64);
                    hf_turn(path, some, 16, 16, out, HF_TILE);
                }
            }
    for (; f < last; ++f) {
        for (s = 0; s < n; ++s) tile[f * HF_TILE + s] = x[s * step + f];
        for (; s < HF_TILE; ++s) tile[f * HF_TILE + s] = 0;
    }
}

static void hf_fill_tile_f64(
    int path, const double *x, ptrdiff_t step, ptrdiff_t first, ptrdiff_t last, int n, double *tile) {
    (void)path;
    for (ptrdiff_t f = first; f < last; ++f) {
        int s;
        for (s = 0; s < n; ++s) tile[f * HF_TILE + s] = x[s * step + f];
        for (; s < HF_TILE; ++s) tile[f * HF_TILE + s] = 0;
    }
}

/* The other way: in (n_samples, ...) with in_step words a row, out n_trees rows of out_step words. */
static void hf_load_words(int path, const int32_t *in, ptrdiff_t in_step, int n_trees, ptrdiff_t n_samples,
                          int32_t *out, ptrdiff_t out_step) {
    ptrdiff_t s = 0;
    if (n_trees == HF_GROUP && path != HF_PATH_PLAIN)
        for (; s + 16 <= n_samples; s += 16) {
            /* Rows lie pages apart, where no processor foresees them. */
            if (s + 48 <= n_samples)
                for (int i = 0; i < 16; ++i) hf_fetch(in + (s + 32 + i) * in_step, 64);
            hf_turn(path, in + s * in_step, in_step, 16, out + s, out_step);
        }
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
    ptrdiff_t s = n_trees == HF_GROUP ? hf_turn(path, in, in_step, n_samples / 16 * 16, out, out_step) : 0;
    for (; s < n_samples; ++s)
        for (int m = 0; m < n_trees; ++m) out[s * out_step + m] = in[m * in_step + s];
}

static void hf_store_doubles(const double *in, ptrdiff_t in_step, int n_trees, ptrdiff_t n_samples, double *out,
                             ptrdiff_t out_step) {
    for (ptrdiff_t s = 0; s < n_samples; ++s)
        for (int m = 0; m < n_trees; ++m) out[s * out_step + m] = in[m * in_step + s];
}

#endif
