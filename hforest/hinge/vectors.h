/* Routing of a tile of samples in vectors that the compiler knows (GCC's and Clang's vector types; p1 Alg. 3).

   One source, vectors_body.h, for every width: 16 bytes are SSE2 on any x86-64 and NEON on ARM, 32 bytes AVX2,
   64 bytes AVX-512 (ferns alone: a tree's margins come one by one, and wider vectors of them were slower). Leaf,
   margin and vertex have the bits of the plain loop: every margin is one subtraction, and comparisons do not
   round. */
#ifndef HFOREST_HINGE_VECTORS_H
#define HFOREST_HINGE_VECTORS_H
#include <stddef.h>
#include <stdint.h>

#include "core/simd.h"

enum {
    HF_TILE = 32,       /* samples of a tile: a feature of all of them is 128 bytes of float32 */
    HF_TILE_SHIFT = 5,  /* a feature's row in the tile is feature << HF_TILE_SHIFT */
    HF_FLYING = 16,     /* samples on their way at once: eight wait for loads, 32 have no registers */
    HF_MOST_LEVELS = 30 /* core.check's */
};

/* A tree made ready for a block of samples. Thresholds are float or double. */
typedef struct {
    const void *thresholds;      /* as given */
    const int32_t *features;
    const int32_t *packed;       /* byte offsets of the features' rows in a tile, or NULL */
    int depth;
} hf_tree;

#if HF_VECTORS

/* Compilers find NEON's and AVX-512's instruction for this, but not AVX2's. */
#define HF_CHOOSE(mask, a, b) (((mask) & (a)) | (~(mask) & (b)))

#define REAL float
#define WORD int32_t
#define BYTES 16
#define CODE
#define NAME(x) hf_##x##_f32
#define CHOOSE HF_CHOOSE
#include "hinge/vectors_body.h"

#define REAL double
#define WORD int64_t
#define BYTES 16
#define CODE
#define NAME(x) hf_##x##_f64
#define CHOOSE HF_CHOOSE
#include "hinge/vectors_body.h"

#if HF_X86

#define REAL float
#define WORD int32_t
#define BYTES 32
#define CODE HF_AVX2_CODE
#define NAME(x) hf_##x##_f32_avx2
#define CHOOSE(mask, a, b) ((WORDS)_mm256_blendv_epi8((__m256i)(b), (__m256i)(a), (__m256i)(mask)))
#include "hinge/vectors_body.h"

#define REAL double
#define WORD int64_t
#define BYTES 32
#define CODE HF_AVX2_CODE
#define NAME(x) hf_##x##_f64_avx2
#define CHOOSE(mask, a, b) ((WORDS)_mm256_blendv_epi8((__m256i)(b), (__m256i)(a), (__m256i)(mask)))
#include "hinge/vectors_body.h"

#define REAL double
#define WORD int64_t
#define BYTES 64
#define CODE HF_AVX512_CODE
#define NAME(x) hf_##x##_f64_avx512
#define CHOOSE HF_CHOOSE
#include "hinge/vectors_body.h"

#endif /* HF_X86 */
#endif /* HF_VECTORS */

/* Whether a path routes tiles. */
static int hf_has_route(int path) {
    return HF_VECTORS && path != HF_PATH_PLAIN;
}

/* Make a tree or fern ready. `packed` has room for n_vertices, or is NULL: packing reads every vertex and pays only
   where many samples follow. */
#define HF_PREPARE(SUFFIX, REAL)                                                                        \
    static void hf_prepare_##SUFFIX(                                                                    \
        hf_tree *tree, int n_vertices, int depth, const REAL *thresholds, const int32_t *features,      \
        int32_t *packed) {                                                                              \
        tree->thresholds = thresholds;                                                                  \
        tree->features = features;                                                                      \
        tree->packed = packed;                                                                          \
        tree->depth = depth;                                                                            \
        if (packed)                                                                                     \
            for (int v = 0; v < n_vertices; ++v)                                                        \
                packed[v] = (int32_t)((uint32_t)features[v] * (uint32_t)(HF_TILE * sizeof(REAL)));      \
    }

HF_PREPARE(f32, float)
HF_PREPARE(f64, double)

/* A tile's HF_TILE samples through one tree or fern; the results of each are neighbours, as the tile is aligned
   to a vector. */
#if HF_X86
#define HF_ROUTE(SUFFIX, REAL, WIDE_FERN)                                                               \
    static void hf_route_##SUFFIX(                                                                      \
        const hf_tree *tree, int path, int fern, const REAL *tile, int32_t *leaf, REAL *margin,         \
        int32_t *vertex) {                                                                              \
        if (path == HF_PATH_AVX2 || path == HF_PATH_AVX512) {                                           \
            if (fern && path == HF_PATH_AVX512) WIDE_FERN(tree, tile, leaf, margin, vertex);            \
            else if (fern) hf_fern_##SUFFIX##_avx2(tree, tile, leaf, margin, vertex);                   \
            else hf_trees_##SUFFIX##_avx2(tree, tile, leaf, margin, vertex);                            \
        } else {                                                                                        \
            if (fern) hf_fern_##SUFFIX(tree, tile, leaf, margin, vertex);                               \
            else hf_trees_##SUFFIX(tree, tile, leaf, margin, vertex);                                   \
        }                                                                                               \
    }
#elif HF_VECTORS
#define HF_ROUTE(SUFFIX, REAL, WIDE_FERN)                                                               \
    static void hf_route_##SUFFIX(                                                                      \
        const hf_tree *tree, int path, int fern, const REAL *tile, int32_t *leaf, REAL *margin,         \
        int32_t *vertex) {                                                                              \
        (void)path;                                                                                     \
        if (fern) hf_fern_##SUFFIX(tree, tile, leaf, margin, vertex);                                   \
        else hf_trees_##SUFFIX(tree, tile, leaf, margin, vertex);                                       \
    }
#else
#define HF_ROUTE(SUFFIX, REAL, WIDE_FERN)                                                               \
    static void hf_route_##SUFFIX(                                                                      \
        const hf_tree *tree, int path, int fern, const REAL *tile, int32_t *leaf, REAL *margin,         \
        int32_t *vertex) {                                                                              \
        (void)tree, (void)path, (void)fern, (void)tile, (void)leaf, (void)margin, (void)vertex;         \
    }
#endif

/* float32 ferns have vectors of sixteen of their own (ferns.h); those too deep for them come here. */
HF_ROUTE(f32, float, hf_fern_f32_avx2)
HF_ROUTE(f64, double, hf_fern_f64_avx512)

#endif
