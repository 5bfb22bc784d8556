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

/* Adds n numbers to n sums, and widens n ranges to them. */
HF_W_CODE static void HF_W(hf_measure_row)(
    int64_t *sum, int64_t *least, int64_t *greatest, const int64_t *q, int64_t n
) {
    enum { LANES = HF_BYTES / 8 };
    int64_t k = 0;
    for (; k + LANES <= n; k += LANES) {
        const HF_W(hf_i64) a = *(const HF_W(hf_i64) *)(q + k);
        HF_W(hf_i64) *low = (HF_W(hf_i64) *)(least + k), *high = (HF_W(hf_i64) *)(greatest + k);
        const HF_W(hf_i64) below = a < *low, above = a > *high;
        *(HF_W(hf_i64) *)(sum + k) += a;
        *low = (a & below) | (*low & ~below);
        *high = (a & above) | (*high & ~above);
    }
    for (; k < n; ++k) {
        sum[k] += q[k];
        least[k] = q[k] < least[k] ? q[k] : least[k];
        greatest[k] = q[k] > greatest[k] ? q[k] : greatest[k];
    }
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

/* Returns a in lanes where `some` is all ones, else b. */
HF_W_CODE HF_INLINE HF_W(hf_f64) HF_W(hf_pick)(HF_W(hf_i64) some, HF_W(hf_f64) a, HF_W(hf_f64) b) {
    return (HF_W(hf_f64))(((HF_W(hf_i64))a & some) | ((HF_W(hf_i64))b & ~some));
}

/* Returns the greatest square(length - margin) / product of n splits whose product is positive; 0 if there is none. */
HF_W_CODE static double HF_W(hf_greatest_gain)(const hf_gains *g, double margin, int n) {
    enum { LANES = HF_BYTES / 8 };
    const HF_W(hf_f64) zero = {0};
    HF_W(hf_f64) most = {0};
    double greatest = 0;
    for (int c = 0; c < n; c += LANES) {
        HF_W(hf_f64) d = *(const HF_W(hf_f64) *)(g->length + 1 + c) - margin;
        const HF_W(hf_f64) product = *(const HF_W(hf_f64) *)(g->product + 1 + c);
        const HF_W(hf_i64) some = (d > zero) & (product > zero);
        d = HF_W(hf_pick)(some, d, zero);
        const HF_W(hf_f64) gain = d * d / HF_W(hf_pick)(some, product, zero + 1.0);
        most = HF_W(hf_pick)(gain > most, gain, most);
    }
    for (int l = 0; l < LANES; ++l) greatest = most[l] > greatest ? most[l] : greatest;
    return greatest;
}

/* Writes whether a split inside (1) and after (2) each of n buckets may gain more than `bound`. */
HF_W_CODE static void HF_W(hf_mark_gains)(hf_gains *g, double total, double bound, int n) {
    enum { LANES = HF_BYTES / 8 };
    const HF_W(hf_f64) zero = {0};
    HF_COUNT("growth", __func__);
    for (int c = 0; c < n; c += LANES) {
        const HF_W(hf_f64) before = *(const HF_W(hf_f64) *)(g->length + c);
        const HF_W(hf_f64) after = *(const HF_W(hf_f64) *)(g->length + 1 + c);
        const HF_W(hf_f64) left = *(const HF_W(hf_f64) *)(g->product + c);
        const HF_W(hf_f64) right = *(const HF_W(hf_f64) *)(g->product + 1 + c);
        HF_W(hf_f64) length = (before + after + *(const HF_W(hf_f64) *)(g->path + c)) / 2;
        length = HF_W(hf_pick)(length > zero, length, zero);
        const HF_W(hf_f64) least = HF_W(hf_pick)(left < right, left, right);
        const HF_W(hf_i64) inside = (length > zero) & (length * length * total > bound * least);
        *(HF_W(hf_i64) *)(g->alive + c) = (inside & 1) | ((after * after * total > bound * right) & 2);
    }
}
