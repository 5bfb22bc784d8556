/* Included once per vector width: running sums of several targets or classes. bodies.pyx has the scalar loops and says
   what each computes. */

typedef int64_t HF_W(hf_i64) __attribute__((vector_size(HF_BYTES), aligned(8)));
typedef double HF_W(hf_f64) __attribute__((vector_size(HF_BYTES), aligned(8)));

/* Adds n numbers to n sums. */
HF_W_CODE static void HF_W(hf_add_row)(int64_t *sum, const int64_t *q, int64_t n) {
    enum { LANES = HF_BYTES / 8 };
    int64_t k = 0;
    for (; k + LANES <= n; k += LANES) *(HF_W(hf_i64) *)(sum + k) += *(const HF_W(hf_i64) *)(q + k);
    for (; k < n; ++k) sum[k] += q[k];
}

/* Returns the sum of (|sum - mean left| + HF_DISTANCE_ERROR)^2 over n outputs, added in any order. */
HF_W_CODE static double HF_W(hf_distances)(const int64_t *sum, const double *mean, double left, int64_t n) {
    enum { LANES = HF_BYTES / 8 };
    HF_W(hf_f64) square = {0};
    double total = 0;
    int64_t k = 0;
    HF_COUNT("growth", __func__);
    for (; k + LANES <= n; k += LANES) {
        const HF_W(hf_f64) q = __builtin_convertvector(*(const HF_W(hf_i64) *)(sum + k), HF_W(hf_f64));
        HF_W(hf_f64) d = q - *(const HF_W(hf_f64) *)(mean + k) * left;
        d = (HF_W(hf_f64))((HF_W(hf_i64))d & INT64_MAX) + HF_DISTANCE_ERROR;
        square += d * d;
    }
    for (int l = 0; l < LANES; ++l) total += square[l];
    for (; k < n; ++k) {
        const double d = fabs((double)sum[k] - mean[k] * left) + HF_DISTANCE_ERROR;
        total += d * d;
    }
    return total;
}
