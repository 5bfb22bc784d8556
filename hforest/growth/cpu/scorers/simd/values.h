/* Included once per vector width: values of samples, float or double. */

typedef double HF_W(hf_four) __attribute__((vector_size(32)));

#define HF_REAL float
#define HF_WHOLE int32_t
#define HF_R(name) HF_W(name##_f32)
#include "growth/cpu/scorers/simd/lanes.h"
#undef HF_REAL
#undef HF_WHOLE
#undef HF_R
#define HF_REAL double
#define HF_WHOLE int64_t
#define HF_R(name) HF_W(name##_f64)
#include "growth/cpu/scorers/simd/lanes.h"
#undef HF_REAL
#undef HF_WHOLE
#undef HF_R

HF_W_CODE static void HF_W(hf_read_lanes)(int single, hf_lanes *l) {
    if (single) HF_W(hf_read_lanes_f32)(l);
    else HF_W(hf_read_lanes_f64)(l);
}

HF_W_CODE static void HF_W(hf_sum_lanes)(int single, hf_lanes *l) {
    if (single) HF_W(hf_sum_lanes_f32)(l);
    else HF_W(hf_sum_lanes_f64)(l);
}

HF_W_CODE static void HF_W(hf_count_smaller)(int single, const void *value, int64_t n, uint32_t *count) {
    if (single) HF_W(hf_count_smaller_f32)(value, n, count);
    else HF_W(hf_count_smaller_f64)(value, n, count);
}
