/* Vector bodies of Lay et al. 2018, Alg. 3, in the compiler's vector types. simd/route_body.h is the source for every
   width: 16 bytes are SSE2 on any x86-64 and NEON on ARM, 32 bytes AVX2, 64 bytes AVX-512 (only for ferns: the margins
   of a tree are computed one by one, and wider vectors of them were slower). Leaf, margin and vertex are bit-identical
   to route.pyx's plain loop: a margin is one subtraction, and comparisons do not round.

   A tile is the input of HF_TILE samples, transposed: feature f of sample s at f * HF_TILE + s. */
#ifndef HFOREST_HINGE_SIMD_ROUTE_H
#define HFOREST_HINGE_SIMD_ROUTE_H
#include <stddef.h>
#include <stdint.h>

#include "core/counting.h"
#include "core/x86.h"

enum {
    HF_TILE = 32,      /* samples of a tile: a feature of all of them is 128 bytes of float32 */
    HF_TILE_SHIFT = 5, /* 1 << HF_TILE_SHIFT is HF_TILE */
    HF_WALKS = 16,     /* pairs routed side by side: 8 leave the loads' latency exposed, 32 exceed the registers */
    HF_MAX_LEVELS = 30 /* the limit of core.check */
};

/* One tree or fern, or `count` adjacent trees. Thresholds are float or double. */
typedef struct {
    const void *thresholds;   /* IN (count, n_vertices) */
    const int32_t *features;  /* IN (count, n_vertices) */
    ptrdiff_t n_vertices;
    int depth, count;
    uint32_t last_feature;    /* n_features - 1 */
    uint32_t mask;            /* n_features - 1, and its lower bits set: features of tiles that can be read */
    const uint32_t *offsets;  /* IN (count, n_vertices): features of the call, times HF_TILE; or NULL */
} hf_trees;

/* Returns a feature of a row. Another thread may change features: one out of range is read as the last one. */
HF_INLINE size_t hf_feature(const hf_trees *trees, int32_t feature) {
    const uint32_t f = (uint32_t)feature;
    return f < trees->last_feature ? f : trees->last_feature;
}

/* Writes leaf, margin (float or double) and vertex: of the HF_TILE samples of a tile in one tree or fern, or of one row
   in `count` trees, where HF_WALKS elements of each are written. For a tile vertex may be NULL;
   margin is then the absolute one. */
typedef void (*hf_router)(const hf_trees *trees, const void *x, int32_t *leaf, void *margin, int32_t *vertex);

#if HF_VECTORS

typedef float hf_f32x4 __attribute__((vector_size(16)));
typedef int32_t hf_i32x4 __attribute__((vector_size(16)));
typedef double hf_f64x2 __attribute__((vector_size(16)));
typedef int64_t hf_i64x2 __attribute__((vector_size(16)));
typedef int32_t hf_i32x2 __attribute__((vector_size(8)));
typedef float hf_f32x8 __attribute__((vector_size(32)));
typedef int32_t hf_i32x8 __attribute__((vector_size(32)));
typedef double hf_f64x4 __attribute__((vector_size(32)));
typedef int64_t hf_i64x4 __attribute__((vector_size(32)));
typedef float hf_f32x16 __attribute__((vector_size(64)));
typedef int32_t hf_i32x16 __attribute__((vector_size(64)));
typedef double hf_f64x8 __attribute__((vector_size(64)));
typedef int64_t hf_i64x8 __attribute__((vector_size(64)));

/* Compilers select NEON's and AVX-512's blend instruction for this expression, but not AVX2's. */
#define HF_CHOOSE(mask, a, b) (((mask) & (a)) | (~(mask) & (b)))
#define HF_LEAST(a, b) ((REALS)HF_CHOOSE((WORDS)((a) < (b)), (WORDS)(a), (WORDS)(b)))

#define ROUTE_TILE hf_route_tile_f32_vector
#define ROUTE_ROW hf_route_row_f32_vector
#define ROUTE_FERN hf_route_fern_f32_vector
#define LEVELS hf_levels_f32_vector
#define FINISH hf_finish_f32_vector
#define WALK hf_walk_f32_vector
#define REAL float
#define WORD int32_t
#define REALS hf_f32x4
#define WORDS hf_i32x4
#define INTS hf_i32x4
#define BYTES 16
#define CODE
#define CHOOSE HF_CHOOSE
#define LEAST HF_LEAST
#include "hinge/cpu/simd/route_body.h"

#define ROUTE_TILE hf_route_tile_f64_vector
#define ROUTE_ROW hf_route_row_f64_vector
#define ROUTE_FERN hf_route_fern_f64_vector
#define LEVELS hf_levels_f64_vector
#define FINISH hf_finish_f64_vector
#define WALK hf_walk_f64_vector
#define REAL double
#define WORD int64_t
#define REALS hf_f64x2
#define WORDS hf_i64x2
#define INTS hf_i32x2
#define BYTES 16
#define CODE
#define CHOOSE HF_CHOOSE
#define LEAST HF_LEAST
#include "hinge/cpu/simd/route_body.h"

#if HF_X86

#define ROUTE_TILE hf_route_tile_f32_avx2
#define ROUTE_ROW hf_route_row_f32_avx2
#define ROUTE_FERN hf_route_fern_f32_avx2
#define LEVELS hf_levels_f32_avx2
#define FINISH hf_finish_f32_avx2
#define WALK hf_walk_f32_avx2
#define REAL float
#define WORD int32_t
#define REALS hf_f32x8
#define WORDS hf_i32x8
#define INTS hf_i32x8
#define BYTES 32
#define CODE HF_AVX2_CODE
#define CHOOSE(mask, a, b) ((WORDS)_mm256_blendv_epi8((__m256i)(b), (__m256i)(a), (__m256i)(mask)))
#define LEAST(a, b) ((REALS)_mm256_min_ps((__m256)(a), (__m256)(b)))
#include "hinge/cpu/simd/route_body.h"

#define ROUTE_TILE hf_route_tile_f64_avx2
#define ROUTE_ROW hf_route_row_f64_avx2
#define ROUTE_FERN hf_route_fern_f64_avx2
#define LEVELS hf_levels_f64_avx2
#define FINISH hf_finish_f64_avx2
#define WALK hf_walk_f64_avx2
#define REAL double
#define WORD int64_t
#define REALS hf_f64x4
#define WORDS hf_i64x4
#define INTS hf_i32x4
#define BYTES 32
#define CODE HF_AVX2_CODE
#define CHOOSE(mask, a, b) ((WORDS)_mm256_blendv_epi8((__m256i)(b), (__m256i)(a), (__m256i)(mask)))
#define LEAST(a, b) ((REALS)_mm256_min_pd((__m256d)(a), (__m256d)(b)))
#include "hinge/cpu/simd/route_body.h"

#define ROUTE_FERN hf_route_fern_f32_avx512
#define LEVELS hf_levels_f32_avx512
#define REAL float
#define WORD int32_t
#define REALS hf_f32x16
#define WORDS hf_i32x16
#define INTS hf_i32x16
#define BYTES 64
#define CODE HF_AVX512_CODE
#define CHOOSE HF_CHOOSE
#define LEAST(a, b) ((REALS)_mm512_min_ps((__m512)(a), (__m512)(b)))
#include "hinge/cpu/simd/route_body.h"

#define ROUTE_FERN hf_route_fern_f64_avx512
#define LEVELS hf_levels_f64_avx512
#define REAL double
#define WORD int64_t
#define REALS hf_f64x8
#define WORDS hf_i64x8
#define INTS hf_i32x8
#define BYTES 64
#define CODE HF_AVX512_CODE
#define CHOOSE HF_CHOOSE
#define LEAST(a, b) ((REALS)_mm512_min_pd((__m512d)(a), (__m512d)(b)))
#include "hinge/cpu/simd/route_body.h"

#endif /* HF_X86 */
#endif /* HF_VECTORS */

/* Returns the function that routes tiles on a path; NULL on the plain path. */
static hf_router hf_tile_router(int path, int itemsize, int fern) {
#if HF_X86
    if (path == HF_PATH_AVX512 && fern) return itemsize == 4 ? hf_route_fern_f32_avx512 : hf_route_fern_f64_avx512;
    if (path >= HF_PATH_AVX2) {
        if (fern) return itemsize == 4 ? hf_route_fern_f32_avx2 : hf_route_fern_f64_avx2;
        return itemsize == 4 ? hf_route_tile_f32_avx2 : hf_route_tile_f64_avx2;
    }
#endif
#if HF_VECTORS
    if (path != HF_PATH_PLAIN) {
        if (fern) return itemsize == 4 ? hf_route_fern_f32_vector : hf_route_fern_f64_vector;
        return itemsize == 4 ? hf_route_tile_f32_vector : hf_route_tile_f64_vector;
    }
#endif
    (void)path, (void)itemsize, (void)fern;
    return NULL;
}

/* Returns the function that routes one row in several trees on a path; NULL on the plain path. */
static hf_router hf_row_router(int path, int itemsize) {
#if HF_X86
    if (path >= HF_PATH_AVX2) return itemsize == 4 ? hf_route_row_f32_avx2 : hf_route_row_f64_avx2;
#endif
#if HF_VECTORS
    if (path != HF_PATH_PLAIN) return itemsize == 4 ? hf_route_row_f32_vector : hf_route_row_f64_vector;
#endif
    (void)path, (void)itemsize;
    return NULL;
}

#endif
