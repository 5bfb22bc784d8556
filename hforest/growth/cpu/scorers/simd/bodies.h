/* The vector bodies of the scorers, and their tables by vector path. The same source is compiled for vectors of 16
   bytes (SSE2, NEON), 32 (AVX2) and 64 (AVX-512). bodies.pyx has the scalar bodies and says what each computes. */
#ifndef HFOREST_GROWTH_SIMD_BODIES_H
#define HFOREST_GROWTH_SIMD_BODIES_H
#include <math.h>
#include <string.h>

#include "core/counting.h"
#include "core/simd.h"
#include "growth/cpu/scorers/bodies.h"
#include "growth/cpu/scorers/term_cells.h"

#if HF_VECTORS
#define HF_BYTES 16
#define HF_LANE_NUMBERS 0, 1, 2, 3
#define HF_W(name) name##_v16
#define HF_W_CODE
#include "growth/cpu/scorers/simd/splits.h"
#include "growth/cpu/scorers/simd/pairwise.h"
#include "growth/cpu/scorers/simd/histogram.h"
#include "growth/cpu/scorers/simd/buckets.h"
#include "growth/cpu/scorers/simd/sums.h"
#include "growth/cpu/scorers/simd/values.h"
static const hf_bodies hf_bodies_v16 = {
    2, hf_sum_pairs_v16, hf_rate_pairs_v16, hf_sum_values_v16, hf_sum_bins_v16, hf_find_range_v16,
    hf_fill_buckets_v16, hf_sum_buckets_v16, hf_find_alive_v16, hf_rate_v16,
    hf_add_row_v16, hf_measure_row_v16, hf_distances_v16, hf_greatest_gain_v16, hf_mark_gains_v16,
    hf_read_lanes_v16, hf_sum_lanes_v16, hf_count_smaller_v16
};
#undef HF_BYTES
#undef HF_LANE_NUMBERS
#undef HF_W
#undef HF_W_CODE
#endif

#if HF_X86
#define HF_BYTES 32
#define HF_LANE_NUMBERS 0, 1, 2, 3, 4, 5, 6, 7
#define HF_W(name) name##_v32
#define HF_W_CODE HF_AVX2_CODE
#include "growth/cpu/scorers/simd/splits.h"
#include "growth/cpu/scorers/simd/pairwise.h"
#include "growth/cpu/scorers/simd/histogram.h"
#include "growth/cpu/scorers/simd/buckets.h"
#include "growth/cpu/scorers/simd/sums.h"
#include "growth/cpu/scorers/simd/values.h"
static const hf_bodies hf_bodies_v32 = {
    3, hf_sum_pairs_v32, hf_rate_pairs_v32, hf_sum_values_v32, hf_sum_bins_v32, hf_find_range_v32,
    hf_fill_buckets_v32, hf_sum_buckets_v32, hf_find_alive_v32, hf_rate_v32,
    hf_add_row_v32, hf_measure_row_v32, hf_distances_v32, hf_greatest_gain_v32, hf_mark_gains_v32,
    hf_read_lanes_v32, hf_sum_lanes_v32, hf_count_smaller_v32
};
#undef HF_BYTES
#undef HF_LANE_NUMBERS
#undef HF_W
#undef HF_W_CODE
#endif

/* A test compiles this file with HF_ANY_WIDTH: the 64-byte bodies then run on every processor. */
#if HF_X86 || (HF_VECTORS && defined(HF_ANY_WIDTH))
#define HF_BYTES 64
#define HF_LANE_NUMBERS 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
#define HF_W(name) name##_v64
#ifdef HF_ANY_WIDTH
#define HF_W_CODE
#else
#define HF_W_CODE HF_AVX512_CODE
#endif
#include "growth/cpu/scorers/simd/splits.h"
#include "growth/cpu/scorers/simd/pairwise.h"
#include "growth/cpu/scorers/simd/histogram.h"
#include "growth/cpu/scorers/simd/buckets.h"
#include "growth/cpu/scorers/simd/sums.h"
#include "growth/cpu/scorers/simd/values.h"
static const hf_bodies hf_bodies_v64 = {
    4, hf_sum_pairs_v64, hf_rate_pairs_v64, hf_sum_values_v64, hf_sum_bins_v64, hf_find_range_v64,
    hf_fill_buckets_v64, hf_sum_buckets_v64, hf_find_alive_v64, hf_rate_v64,
    hf_add_row_v64, hf_measure_row_v64, hf_distances_v64, hf_greatest_gain_v64, hf_mark_gains_v64,
    hf_read_lanes_v64, hf_sum_lanes_v64, hf_count_smaller_v64
};
#undef HF_BYTES
#undef HF_LANE_NUMBERS
#undef HF_W
#undef HF_W_CODE
#endif

/* Returns the bodies of a vector path; NULL for the plain path. */
static const hf_bodies *hf_vector_bodies(int path) {
#if HF_X86
    if (path == HF_PATH_AVX512) return &hf_bodies_v64;
    if (path == HF_PATH_AVX2) return &hf_bodies_v32;
#endif
#if HF_VECTORS
    if (path == HF_PATH_VECTOR) return &hf_bodies_v16;
#endif
    return NULL;
}

#endif
