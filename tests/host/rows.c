/* Compares the vector loops of CO2's stumps, of 32 and 64 bytes, with loops over single numbers, on random rows. Prints
   a line for each width; the exit status is the number of widths with a disagreement. */
#define HF_ANY_WIDTH
#include <stdio.h>
#include <stdlib.h>

#include "co2/simd/rows.h"

enum { N = 9, FEATURES = 70 };

static uint32_t state = 1;
static double number(void) {
    state = state * 1664525u + 1013904223u;
    return (double)(state >> 8) / (1 << 24) - 0.5;
}

static int64_t wrong, spoilt; /* spoilt: added to all sums, which must show */

/* Of n_features numbers and, after them, -1 if `offset`: products with w, and sums of rows. */
#define TEST(NAME, REAL, SINGLE)                                                                                  \
    static void NAME(const hf_row_loops *loops, int64_t n_features, int offset) {                                 \
        REAL *x = malloc(N * n_features * sizeof *x), w[FEATURES + 32] = {0}, sum[FEATURES + 32] = {0};           \
        REAL want[FEATURES + 32] = {0};                                                                           \
        const void *row[HF_TOGETHER];                                                                             \
        double product[HF_TOGETHER], factor[HF_TOGETHER];                                                         \
        const int64_t n = n_features + offset, n_blocks = (n + HF_LANES - 1) / HF_LANES;                          \
        const hf_rows rows = {NULL, x, N, n_features, n_features / HF_LANES, n_blocks, SINGLE, offset};           \
        for (int64_t i = 0; i < N * n_features; ++i) x[i] = (REAL)number();                                       \
        for (int64_t j = 0; j < n; ++j) w[j] = (REAL)number(), sum[j] = want[j] = (REAL)number();                 \
        for (int r = 0; r < HF_TOGETHER; ++r) row[r] = x + (r + 1) * n_features, factor[r] = number();            \
        loops->dots(&rows, row, row, w, product);                                                                 \
        const int n_added = (int)(n_features % (HF_TOGETHER + 1));                                                \
        loops->add_rows(&rows, row, factor, n_added, sum);                                                        \
        for (int r = 0; r < HF_TOGETHER; ++r) {                                                                   \
            REAL lane[HF_LANES] = {0};                                                                            \
            for (int64_t j = 0; j < n; ++j) {                                                                     \
                const REAL value = j < n_features ? ((const REAL *)row[r])[j] : -1;                               \
                lane[j % HF_LANES] += value * w[j];                                                               \
                if (r < n_added) want[j] += value * (REAL)factor[r];                                              \
            }                                                                                                     \
            for (int half = HF_LANES / 2; half; half /= 2)                                                        \
                for (int i = 0; i < half; ++i) lane[i] += lane[i + half];                                         \
            wrong += product[r] + spoilt != lane[0];                                                              \
        }                                                                                                         \
        for (int64_t j = 0; j < n_blocks * HF_LANES; ++j) wrong += sum[j] + spoilt != want[j];                    \
        free(x);                                                                                                  \
    }
TEST(test_floats, float, 1)
TEST(test_doubles, double, 0)

static int test(const char *width, const hf_row_loops *floats, const hf_row_loops *doubles) {
    wrong = 0;
    for (int64_t n_features = 1; n_features <= FEATURES; ++n_features)
        for (int offset = 0; offset < 2; ++offset) {
            test_floats(floats, n_features, offset);
            test_doubles(doubles, n_features, offset);
        }
    printf("%s: %lld disagreements\n", width, (long long)wrong);
    return wrong > 0;
}

int main(int n_arguments, char **arguments) {
    int failed = 0;
    spoilt = n_arguments > 1 && !strcmp(arguments[1], "spoil");
#if HF_VECTORS
    failed += test("64 bytes", &hf_row_loops_f32_v64, &hf_row_loops_f64_v64);
#endif
#if HF_X86
    if (__builtin_cpu_supports("avx2")) failed += test("32 bytes", &hf_row_loops_f32_v32, &hf_row_loops_f64_v32);
#endif
    return failed;
}
