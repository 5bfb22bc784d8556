/* Edges of trees for vectors of samples: a table of functions for each instruction set (shap_paths.pyx). */
#ifndef HFOREST_TREE_SIMD_PATHS_H
#define HFOREST_TREE_SIMD_PATHS_H
#include <stddef.h>

#include "core/counting.h"
#include "core/simd.h"
#include "tree/cpu/paths.h"

#if HF_VECTORS
#define NAME(what) hf_edge_##what##_vector
#define BYTES 16
#define CODE
#include "tree/cpu/simd/paths_body.h"

#if HF_X86
#define NAME(what) hf_edge_##what##_avx2
#define BYTES 32
#define CODE HF_AVX2_CODE
#include "tree/cpu/simd/paths_body.h"

#define NAME(what) hf_edge_##what##_avx512
#define BYTES 64
#define CODE HF_AVX512_CODE
#include "tree/cpu/simd/paths_body.h"
#endif
#endif

/* Returns the functions of a path, or NULL if it has none. */
static const hf_edge_bodies *hf_edge_bodies_of(int path) {
#if HF_VECTORS
    static const hf_edge_bodies vector = {hf_edge_enter_vector, hf_edge_leave_vector, hf_edge_add_leaf_vector};
#if HF_X86
    static const hf_edge_bodies avx2 = {hf_edge_enter_avx2, hf_edge_leave_avx2, hf_edge_add_leaf_avx2};
    static const hf_edge_bodies avx512 = {hf_edge_enter_avx512, hf_edge_leave_avx512, hf_edge_add_leaf_avx512};
    if (path == HF_PATH_AVX512) return &avx512;
    if (path == HF_PATH_AVX2) return &avx2;
#endif
    if (path != HF_PATH_PLAIN) return &vector;
#endif
    (void)path;
    return NULL;
}

#endif
