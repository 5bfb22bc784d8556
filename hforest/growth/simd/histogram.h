/* Included once a vector width, as simd/pairwise.h is: what the splits behind all bins score.

   A vector has HF_BYTES / 4 lanes of 32 bits. Lane l of vector s stands for bin l * n_steps + s, so that a sum over
   lower bins is a sum over earlier vectors, and over lower lanes:

       4 lanes, 16 bins, n_steps = 4     vector 0 | 0  4  8 12 |
                                         vector 1 | 1  5  9 13 |
                                         vector 2 | 2  6 10 14 |
                                         vector 3 | 3  7 11 15 |  */

enum { HF_W(HF_LANES) = HF_BYTES / 4 };
typedef uint16_t HF_W(hf_half) __attribute__((vector_size(HF_BYTES / 2)));

/* Sums over the lanes below each. */
HF_W_CODE HF_INLINE HF_W(hf_u32) HF_W(hf_below)(HF_W(hf_u32) a) {
    HF_W(hf_u32) sum;
    uint32_t total = 0;
    for (int l = 0; l < HF_W(HF_LANES); ++l) {
        sum[l] = total;
        total += a[l];
    }
    return sum;
}

/* Sums of all splits of a candidate whose weights are counted in h->count. */
HF_W_CODE static void HF_W(hf_sum_bins)(hf_histogram *h) {
    HF_W(hf_u32) left[HF_HISTOGRAM_CLASSES];
    const int n_steps = h->n_steps;
    for (int64_t k = 0; k < h->n_present; ++k) {
        HF_W(hf_u32) sum = {0};
        for (int s = 0; s < n_steps; ++s) {
            HF_W(hf_half) some;
            memcpy(&some, h->count + (k * n_steps + s) * HF_W(HF_LANES), sizeof some);
            sum += __builtin_convertvector(some, HF_W(hf_u32));
        }
        left[k] = HF_W(hf_below)(sum);
    }
    for (int s = 0; s < n_steps; ++s) {
        HF_W(hf_u32) square = {0}, product = {0}, weight = {0};
        for (int64_t k = 0; k < h->n_present; ++k) {
            HF_W(hf_half) some;
            memcpy(&some, h->count + (k * n_steps + s) * HF_W(HF_LANES), sizeof some);
            const HF_W(hf_u32) l = left[k] + __builtin_convertvector(some, HF_W(hf_u32));
            left[k] = l;
            weight += l;
            square += l * l;
            product += l * h->total[k];
        }
        /* (T - l)**2 = T**2 - 2 T l + l**2 */
        const HF_W(hf_u32) right = h->square - 2 * product + square;
        memcpy(h->left_weight + s * HF_W(HF_LANES), &weight, HF_BYTES);
        memcpy(h->left_square + s * HF_W(HF_LANES), &square, HF_BYTES);
        memcpy(h->right_square + s * HF_W(HF_LANES), &right, HF_BYTES);
    }
}

/* Rates of all splits in float32, 0 where a side is empty. Returns the largest. */
HF_W_CODE static float HF_W(hf_rate_bins)(hf_histogram *h) {
    const int size = h->n_steps * HF_W(HF_LANES);
    for (int i = 0; i < size; ++i) {
        const int32_t left_weight = (int32_t)h->left_weight[i], right_weight = (int32_t)h->all - left_weight;
        const float rate = (float)(int32_t)h->left_square[i] / (float)left_weight +
                           (float)(int32_t)h->right_square[i] / (float)right_weight;
        h->rate.value[i] = left_weight && right_weight ? rate : 0.0f;
    }
    union {
        int32_t bits;
        float value;
    } most = {0};
    for (int i = 0; i < size; ++i) most.bits = h->rate.bits[i] > most.bits ? h->rate.bits[i] : most.bits;
    return most.value;
}
